/* test_disk.c - what every disk does, on the simulated one; and that the simulated one loses all that a cut
 * may lose, and nothing that was synced. */
#include "book.h"

#include "base/log.h"
#include "base/task.h"

static void put(struct disk_file *file, uint64_t offset, uint8_t byte, size_t length)
{
    static uint8_t bytes[65536];
    memset(bytes, byte, length);
    assert_int_equal(disk_write(file, offset, &(struct disk_piece){bytes, length}, 1, NULL), 0);
}

static struct disk_file *make(struct disk *disk, const char *name)
{
    struct disk_file *file;
    assert_int_equal(disk_create(disk, name, &file, NULL), 0);
    return file;
}

static void test_names(void **state)
{
    assert_true(disk_name_valid("journal-00000001"));
    assert_true(disk_name_valid("a"));
    assert_true(disk_name_valid("a23456789.123456789-123456789-123456789-1234567"));
    assert_false(disk_name_valid("a23456789.123456789-123456789-123456789-12345678"));
    const char *wrong[] = {"",   ".",   "..", ".a", "a/b", "../a", "A",
                           "aB", "a b", "1a", "-a", "a\n", "LOCK", "\xc3\xa4"};
    struct disk *disk = disk_make(1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct disk_file *file;
        struct error error = {0};
        assert_false(disk_name_valid(wrong[i]));
        assert_int_equal(disk_create(disk, wrong[i], &file, &error), BANYAN_EINVAL);
        assert_non_null(strstr(error.text, "cannot be a file's name"));
        assert_int_equal(disk_open(disk, wrong[i], &file, NULL), BANYAN_EINVAL);
        assert_int_equal(disk_remove(disk, wrong[i], NULL), BANYAN_EINVAL);
        assert_int_equal(disk_rename(disk, wrong[i], "a", NULL), BANYAN_EINVAL);
        assert_int_equal(disk_rename(disk, "a", wrong[i], NULL), BANYAN_EINVAL);
    }
    disk_close(disk);
}

static int add_name(void *context, const char *name, uint64_t bytes, struct error *error)
{
    char *text = context;
    snprintf(text + strlen(text), 100 - strlen(text), "%s %u ", name, (unsigned)bytes);
    return 0;
}

static int stop_at_b(void *context, const char *name, uint64_t bytes, struct error *error)
{
    ++*(int *)context;
    return name[0] == 'b' ? 17 : 0;
}

static void test_list_is_in_order(void **state)
{
    struct disk *disk = disk_make(1);
    char text[100] = "";
    int count = 0;
    const char *names[] = {"c", "a", "b", "a2"};
    for (int i = 0; i < 4; i++) {
        struct disk_file *file = make(disk, names[i]);
        put(file, 0, 1, (size_t)i);
        disk_file_close(file);
    }
    assert_int_equal(disk_list(disk, add_name, text, NULL), 0);
    assert_string_equal(text, "a 1 a2 3 b 2 c 0 ");
    assert_int_equal(disk_list(disk, stop_at_b, &count, NULL), 17);
    assert_int_equal(count, 3);
    disk_close(disk);
}

static void test_read_and_write(void **state)
{
    struct disk *disk = disk_make(1);
    struct disk_file *file = make(disk, "a"), *other;
    uint8_t bytes[2000];
    size_t got;
    uint64_t size;
    const struct disk_piece pieces[] = {{"one", 3}, {"", 0}, {"two", 3}};
    assert_int_equal(disk_create(disk, "a", &other, NULL), BANYAN_EEXIST);
    assert_int_equal(disk_open(disk, "b", &other, NULL), BANYAN_ENOTFOUND);
    assert_int_equal(disk_write(file, 1000, pieces, 3, NULL), 0);
    assert_int_equal(disk_size(file, &size, NULL), 0);
    assert_int_equal(size, 1006);
    assert_int_equal(disk_read(file, 998, bytes, 2000, &got, NULL), 0);
    assert_int_equal(got, 8);
    assert_memory_equal(bytes, "\0\0onetwo", 8);
    assert_int_equal(disk_read(file, 1006, bytes, 10, &got, NULL), 0);
    assert_int_equal(got, 0);
    assert_int_equal(disk_truncate(file, 1002, NULL), 0);
    assert_int_equal(disk_truncate(file, 1004, NULL), 0);
    assert_int_equal(disk_read(file, 1000, bytes, 2000, &got, NULL), 0);
    assert_int_equal(got, 4);
    assert_memory_equal(bytes, "on\0\0", 4);
    disk_file_close(file);
    assert_int_equal(disk_rename(disk, "a", "b", NULL), 0);
    assert_false(file_there(disk, "a"));
    assert_true(file_there(disk, "b"));
    assert_int_equal(disk_remove(disk, "a", NULL), BANYAN_ENOTFOUND);
    assert_int_equal(disk_remove_if_there(disk, "a", NULL), 0);
    assert_int_equal(disk_remove(disk, "b", NULL), 0);
    assert_false(file_there(disk, "b"));
    disk_close(disk);
}

static void test_limit(void **state)
{
    struct disk *disk = disk_simulated_create(&(struct disk_simulated_options){.seed = 1, .limit = 3000});
    struct disk_file *a = make(disk, "a"), *b = make(disk, "b");
    static const uint8_t bytes[4000];
    uint64_t left, size;
    struct error error = {0};
    put(a, 0, 1, 1000);
    put(b, 0, 1, 1500);
    put(a, 0, 2, 1000); /* grows nothing */
    assert_int_equal(disk_used(disk), 2500);
    assert_int_equal(disk_free(disk, &left, NULL), 0);
    assert_int_equal(left, 500);
    assert_int_equal(disk_write(a, 500, &(struct disk_piece){bytes, 1001}, 1, &error), BANYAN_ENOSPC);
    assert_non_null(strstr(error.text, "limit of 3000 bytes"));
    assert_int_equal(disk_size(a, &size, NULL), 0);
    assert_int_equal(size, 1000);
    assert_int_equal(disk_used(disk), 2500);
    assert_int_equal(disk_write(a, 500, &(struct disk_piece){bytes, 1000}, 1, NULL), 0);
    assert_int_equal(disk_used(disk), 3000);
    assert_int_equal(disk_truncate(a, 100, NULL), 0);
    assert_int_equal(disk_used(disk), 1600);
    assert_int_equal(disk_rename(disk, "a", "b", NULL), 0);
    assert_int_equal(disk_used(disk), 100);
    assert_int_equal(disk_remove(disk, "b", NULL), 0);
    assert_int_equal(disk_used(disk), 0);
    disk_file_close(a);
    disk_file_close(b);
    disk_close(disk);
}

static void test_full(void **state)
{
    struct disk *disk = disk_make(1);
    struct disk_file *file = make(disk, "a");
    static const uint8_t bytes[4000];
    uint64_t size;
    put(file, 0, 1, 1000);
    disk_simulated_capacity(disk, 3000);
    /* Some of it finds room: the file becomes what it was. */
    assert_int_equal(disk_write(file, 1000, &(struct disk_piece){bytes, 2001}, 1, NULL), BANYAN_ENOSPC);
    assert_int_equal(disk_size(file, &size, NULL), 0);
    assert_int_equal(size, 1000);
    assert_int_equal(disk_used(disk), 1000);
    /* Bytes that it had are overwritten: that is not taken back. */
    assert_int_equal(disk_write(file, 500, &(struct disk_piece){bytes, 2501}, 1, NULL), BANYAN_EUNKNOWN);
    assert_int_equal(disk_used(disk), 3000);
    disk_file_close(file);
    disk_close(disk);
}

/* ---- cuts ---- */

/* Which bytes stand at the beginnings of so many sectors, as digits; "-" is what the file has not. */
static void sectors(struct disk *disk, const char *name, uint32_t count, char *text)
{
    struct disk_file *file;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t byte = 0;
        size_t got = 0;
        if (!disk_open(disk, name, &file, NULL)) {
            assert_int_equal(disk_read(file, (uint64_t)i * DISK_SECTOR_BYTES, &byte, 1, &got, NULL), 0);
            disk_file_close(file);
        }
        text[i] = (char)(got ? '0' + byte : '-');
    }
    text[count] = 0;
}

/* All states of a disk, as a set of texts: how many there are, and whether one of them is this. */
static uint32_t states_of(struct disk *disk, uint32_t count, const char *wanted, bool *found)
{
    char texts[64][8];
    uint32_t different = 0;
    const uint64_t states = disk_simulated_states(disk);
    assert_true(states <= 64);
    *found = false;
    for (uint64_t i = 0; i < states; i++) {
        struct disk *next = disk_simulated_state(disk, i);
        sectors(next, "a", count, texts[different]);
        *found = *found || !strcmp(texts[different], wanted);
        uint32_t same = 0;
        while (strcmp(texts[same], texts[different]) != 0)
            same++;
        different += same == different;
        disk_close(next);
    }
    return different;
}

static void test_sectors_tear(void **state)
{
    struct disk *disk = disk_make(1);
    struct disk_file *file = make(disk, "a");
    char text[8];
    bool found;
    put(file, 0, 1, 1536);
    assert_int_equal(disk_sync(file, NULL), 0);
    assert_int_equal(disk_sync_names(disk, NULL), 0);
    assert_int_equal(disk_simulated_states(disk), 1);
    put(file, 0, 2, 1536);
    assert_int_equal(disk_simulated_states(disk), 8);
    assert_int_equal(states_of(disk, 3, "212", &found), 8);
    assert_true(found);
    put(file, 512, 3, 512); /* and what was there in between may be what survives */
    assert_int_equal(states_of(disk, 3, "222", &found), 12);
    assert_true(found);
    states_of(disk, 3, "133", &found);
    assert_false(found);
    struct disk *none = disk_simulated_state(disk, 0);
    sectors(none, "a", 3, text);
    assert_string_equal(text, "111");
    disk_close(none);
    struct disk *all = disk_simulated_state(disk, disk_simulated_states(disk) - 1);
    sectors(all, "a", 3, text);
    assert_string_equal(text, "232");
    disk_close(all);
    disk_file_close(file);
    disk_close(disk);
}

static void test_lengths(void **state)
{
    struct disk *disk = disk_make(1);
    struct disk_file *file = make(disk, "a");
    bool found;
    put(file, 0, 1, 512);
    assert_int_equal(disk_sync(file, NULL), 0);
    assert_int_equal(disk_sync_names(disk, NULL), 0);
    put(file, 512, 2, 512); /* its length may survive without its bytes, and the other way round */
    assert_int_equal(disk_simulated_states(disk), 4);
    assert_int_equal(states_of(disk, 2, "10", &found), 3);
    assert_true(found);
    states_of(disk, 2, "1-", &found);
    assert_true(found);
    assert_int_equal(disk_sync(file, NULL), 0);
    assert_int_equal(states_of(disk, 2, "12", &found), 1);
    assert_true(found);
    assert_int_equal(disk_truncate(file, 512, NULL), 0);
    assert_int_equal(disk_truncate(file, 1024, NULL), 0);
    assert_int_equal(states_of(disk, 2, "10", &found), 3);
    assert_true(found);
    states_of(disk, 2, "12", &found);
    assert_true(found);
    disk_file_close(file);
    disk_close(disk);
}

static void test_stale(void **state)
{
    struct disk *disk = disk_simulated_create(&(struct disk_simulated_options){.seed = 1, .stale = true});
    struct disk_file *file = make(disk, "b");
    bool found;
    put(file, 0, 7, 1024);
    disk_file_close(file);
    assert_int_equal(disk_remove(disk, "b", NULL), 0);
    file = make(disk, "a");
    assert_int_equal(disk_sync_names(disk, NULL), 0);
    put(file, 0, 1, 1024);
    states_of(disk, 2, "17", &found);
    assert_true(found);
    assert_int_equal(disk_sync(file, NULL), 0);
    assert_int_equal(states_of(disk, 2, "11", &found), 1);
    disk_file_close(file);
    disk_close(disk);
}

/* The names of each state, as bits: 1 for "a", 2 for "b", 4 for "c". */
static uint32_t names_of(struct disk *disk)
{
    uint32_t seen = 0;
    for (uint64_t i = 0; i < disk_simulated_states(disk); i++) {
        struct disk *next = disk_simulated_state(disk, i);
        uint32_t bits = 0;
        for (uint32_t name = 0; name < 3; name++)
            bits |= (uint32_t)file_there(next, (const char *[]){"a", "b", "c"}[name]) << name;
        seen |= 1u << bits;
        disk_close(next);
    }
    return seen;
}

static void test_names_survive_in_any_subset(void **state)
{
    struct disk *disk = disk_make(1);
    disk_file_close(make(disk, "a"));
    disk_file_close(make(disk, "b"));
    assert_int_equal(names_of(disk), 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3);
    assert_int_equal(disk_sync_names(disk, NULL), 0);
    assert_int_equal(names_of(disk), 1u << 3);
    assert_int_equal(disk_rename(disk, "a", "c", NULL), 0);
    assert_int_equal(names_of(disk), 1u << 3 | 1u << 6); /* never both, never none */
    assert_int_equal(disk_remove(disk, "b", NULL), 0);
    assert_int_equal(names_of(disk), 1u << 3 | 1u << 6 | 1u << 1 | 1u << 4);
    assert_int_equal(disk_remove(disk, "c", NULL), 0);
    /* The removal of "c" alone removes nothing: that name is not there without the renaming. */
    assert_int_equal(names_of(disk), 1u << 3 | 1u << 6 | 1u << 1 | 1u << 4 | 1u << 2 | 1u << 0);
    assert_int_equal(disk_sync_names(disk, NULL), 0);
    assert_int_equal(names_of(disk), 1u << 0);
    disk_close(disk);
}

static void test_synced_survives_any_cut(void **state)
{
    struct disk *disk = disk_make(1);
    struct disk_file *file = make(disk, "a");
    put(file, 0, 1, 4096);
    assert_int_equal(disk_write_sync(file, 4096, &(struct disk_piece){"\2", 1}, 1, NULL), 0);
    assert_int_equal(disk_sync_names(disk, NULL), 0);
    put(file, 5120, 3, 4096);
    for (int i = 0; i < 100; i++) {
        char text[16];
        struct disk *next = disk_simulated_cut(disk);
        sectors(next, "a", 9, text);
        assert_memory_equal(text, "111111112", 9);
        disk_close(next);
    }
    disk_file_close(file);
    disk_close(disk);
}

/* ---- faults ---- */

static void test_failed_sync_drops(void **state)
{
    uint32_t dropped = 0, kept = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct disk *disk = disk_make(seed);
        struct disk_file *file = make(disk, "a");
        char text[8];
        put(file, 0, 1, 1024);
        assert_int_equal(disk_sync(file, NULL), 0);
        assert_int_equal(disk_sync_names(disk, NULL), 0);
        put(file, 0, 2, 1024);
        disk_simulated_fail(disk, DISK_FAULT_SYNC, 0, 1);
        assert_int_equal(disk_sync(file, NULL), BANYAN_EUNKNOWN);
        sectors(disk, "a", 2, text);
        assert_string_equal(text, "22"); /* it is read all the same */
        assert_int_equal(disk_sync(file, NULL), 0);
        assert_int_equal(disk_simulated_states(disk), 1);
        struct disk *next = disk_simulated_cut(disk);
        sectors(next, "a", 2, text);
        dropped += text[0] == '1';
        kept += text[0] == '2';
        disk_close(next);
        disk_file_close(file);
        disk_close(disk);
    }
    assert_true(dropped && kept);
}

static void test_faults_are_counted(void **state)
{
    struct disk *disk = disk_make(1);
    struct disk_file *file = make(disk, "a");
    const struct disk_piece piece = {"x", 1};
    disk_simulated_fail(disk, DISK_FAULT_WRITE, 1, 2);
    const int expected[] = {0, BANYAN_EUNKNOWN, BANYAN_EUNKNOWN, 0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(disk_write(file, 0, &piece, 1, NULL), expected[i]);
    disk_simulated_fail(disk, DISK_FAULT_SYNC, 0, DISK_FAULT_FOR_EVER);
    for (int i = 0; i < 4; i++)
        assert_int_equal(disk_write_sync(file, 0, &piece, 1, NULL), BANYAN_EUNKNOWN);
    disk_simulated_fail(disk, DISK_FAULT_NAMES, 0, 1);
    assert_int_equal(disk_sync_names(disk, NULL), BANYAN_EUNKNOWN);
    assert_int_equal(names_of(disk), 1u << 0 | 1u << 1);
    /* Whoever else asks hears it too. */
    assert_int_equal(disk_sync_names(disk, NULL), BANYAN_EUNKNOWN);
    disk_simulated_restart(disk);
    assert_int_equal(disk_sync_names(disk, NULL), 0);
    assert_int_equal(names_of(disk), 1u << 1);
    disk_file_close(file);
    disk_close(disk);
}

static void test_flips(void **state)
{
    struct disk *disk = disk_make(1);
    struct disk_file *file = make(disk, "a");
    char text[8];
    put(file, 0, 1, 600);
    assert_int_equal(disk_sync(file, NULL), 0);
    assert_int_equal(disk_sync_names(disk, NULL), 0);
    assert_int_equal(disk_simulated_flip(disk, "a", 512, 2), 0);
    assert_int_equal(disk_simulated_flip(disk, "a", 600, 2), BANYAN_ENOTFOUND);
    assert_int_equal(disk_simulated_flip(disk, "b", 0, 2), BANYAN_ENOTFOUND);
    struct disk *next = disk_simulated_cut(disk);
    sectors(next, "a", 2, text);
    assert_string_equal(text, "13");
    disk_close(next);
    disk_file_close(file);
    disk_close(disk);
}

static uint64_t slept;
static void count_sleep(struct task *self, uint64_t nanoseconds)
{
    slept += nanoseconds;
}

static void test_time(void **state)
{
    static const struct task_ops ops = {.sleep = count_sleep};
    struct task task = {&ops};
    struct disk *disk = disk_simulated_create(
        &(struct disk_simulated_options){.seed = 1, .sync_ns = 1000000, .call_ns = 1000});
    task_set_self(&task);
    struct disk_file *file = make(disk, "a");
    assert_int_equal(slept, 1000);
    put(file, 0, 1, 512);
    assert_int_equal(slept, 2000);
    assert_int_equal(disk_sync(file, NULL), 0);
    assert_int_equal(disk_sync_names(disk, NULL), 0);
    assert_int_equal(slept, 2002000);
    disk_file_close(file);
    disk_close(disk);
    task_set_self(NULL);
}

static void test_the_seed_decides(void **state)
{
    static char texts[3][20][8];
    for (int run = 0; run < 3; run++) {
        struct disk *disk = disk_make(run == 2 ? 6 : 5);
        struct disk_file *file = make(disk, "a");
        put(file, 0, 1, 2048);
        for (int i = 0; i < 20; i++) {
            struct disk *next = disk_simulated_cut(disk);
            sectors(next, "a", 4, texts[run][i]);
            disk_close(next);
        }
        disk_file_close(file);
        disk_close(disk);
    }
    assert_memory_equal(texts[0], texts[1], sizeof texts[0]);
    assert_memory_not_equal(texts[0], texts[2], sizeof texts[0]);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_list_is_in_order),
        cmocka_unit_test(test_read_and_write),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_sectors_tear),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_names_survive_in_any_subset),
        cmocka_unit_test(test_synced_survives_any_cut),
        cmocka_unit_test(test_failed_sync_drops),
        cmocka_unit_test(test_faults_are_counted),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_the_seed_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
