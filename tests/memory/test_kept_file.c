/*
 * test_kept_file.c - the file of a memory node: what it keeps from one life to the next, and what becomes of
 * files that are damaged, of other sizes, of a newer version, in use, or no pools at all. Every refusal names
 * the file and changes nothing in it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "kept.h"
#include "memory/node.h"

static int setup(void **state)
{
    (void)state;
    kept_begin(NULL);
    log_set_level(LOG_ERROR);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kept_end();
    return 0;
}

/* A pool with something in it, closed in order. */
static uint32_t fill(const char *name, uint64_t seed)
{
    struct random random;
    struct memory_node *node = kept_open(name);
    random_seed(&random, seed);
    for (unsigned i = 0; i < 100; i++)
        kept_do(node, &random, KEPT_ANY);
    memory_node_destroy(node);
    node = kept_open(name);
    uint32_t digest = kept_digest(node);
    memory_node_destroy(node);
    return digest;
}

static uint32_t crc_of(const char *name)
{
    static uint8_t buffer[1 << 16];
    uint32_t sum = 0;
    int file = open(kept_path(name), O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    for (ssize_t length; (length = read(file, buffer, sizeof buffer)) > 0;)
        sum = crc32c(sum, buffer, (size_t)length);
    close(file);
    return sum;
}

static void put(const char *name, uint64_t at, const void *bytes, size_t length)
{
    int file = open(kept_path(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, bytes, length, (off_t)at), length);
    close(file);
}

static uint8_t byte_at(const char *name, uint64_t at)
{
    uint8_t byte;
    int file = open(kept_path(name), O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, (off_t)at), 1);
    close(file);
    return byte;
}

/* It is refused with this code, the message has the file's name and this text, and nothing has changed. */
static void refused(const char *name, int code, const char *text)
{
    struct error error = {0};
    uint32_t before = crc_of(name);
    if (kept_try(name, &error) != NULL)
        fail_msg("%s was opened, and should not have been (%s)", name, text);
    if (error.code != code || strstr(error.text, kept_path(name)) == NULL || strstr(error.text, text) == NULL)
        fail_msg("%d, not %d with '%s': %s", error.code, code, text, error.text);
    assert_int_equal(crc_of(name), before);
}

/* ---- what it keeps ---- */

static void a_life_begins_where_the_last_one_ended(void **state)
{
    (void)state;
    struct memory_node *node = kept_open("a");
    uint64_t instance = memory_node_instance(node);
    uint8_t *pool = memory_node_target(node)->pool;
    const struct memory_allocate_request request = {.kind = MEMORY_ALLOCATE, .block_bytes = 1024, .want = 1};
    struct memory_allocate_reply reply;
    size_t length;
    assert_true(instance != 0 && (uintptr_t)pool % KEEP_POOL_ALIGNMENT == 0);
    assert_int_equal(
        memory_node_target(node)->call(node, 1, &request, sizeof request, &reply, sizeof reply, &length), 0);
    memset(pool + gaddr_offset(reply.blocks[0]), 42, 1024);
    memset(pool + MEMORY_LOCK_TABLE_OFFSET, 1, KEPT_LOCKS); /* locks that the dead hold */
    memset(memory_node_target(node)->locks, 1, KEPT_LOCKS);
    uint64_t tag = 7;
    memcpy(pool + MEMORY_NEXT_TAG_OFFSET, &tag, sizeof tag);
    memory_node_keep_id(node, 77);
    memory_node_keep_read_lease(node, 50);
    memory_node_destroy(node);

    node = kept_open("a");
    gaddr block;
    uint32_t bytes;
    pool = memory_node_target(node)->pool;
    assert_true(memory_node_instance(node) == instance);
    assert_true(memory_node_find_used(node, reply.blocks[0], &block, &bytes) && bytes == 1024);
    for (unsigned i = 0; i < 1024; i++)
        assert_int_equal(pool[gaddr_offset(reply.blocks[0]) + i], 42);
    for (unsigned i = 0; i < KEPT_LOCKS; i++)
        assert_true(pool[MEMORY_LOCK_TABLE_OFFSET + i] == 0 && memory_node_target(node)->locks[i] == 0);
    assert_int_equal(memcmp(pool + MEMORY_NEXT_TAG_OFFSET, &tag, sizeof tag), 0);
    assert_int_equal(memory_node_kept_id(node), 77);
    assert_int_equal(memory_node_kept_read_lease(node), 50);
    assert_int_equal(memory_node_pool_descriptor(node), -1); /* nobody else may map it */
    memory_node_destroy(node);
}

static void lives_and_formats_go_on(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 5);
    struct memory_node *node = kept_open("a");
    for (unsigned life = 0; life < 40; life++) {
        for (unsigned i = 0; i < 50; i++)
            kept_do(node, &random, KEPT_ANY);
        if (life % 10 == 9) {
            uint64_t instance = memory_node_instance(node);
            memset(memory_node_target(node)->pool + 100000, 9, 300000);
            kept_do(node, &random, KEPT_FORMAT);
            assert_true(memory_node_instance(node) == instance);
            for (uint64_t i = 4096; i < KEPT_POOL; i++)
                if (memory_node_target(node)->pool[i] != 0)
                    fail_msg("byte %llu is not zero after a format", (unsigned long long)i);
        }
        memory_node_destroy(node);
        node = kept_open("a");
        uint32_t digest = kept_digest(node);
        memory_node_destroy(node);
        node = kept_open("a");
        assert_int_equal(kept_digest(node), digest);
    }
    memory_node_destroy(node);
}

/* Everyone of the last life is fenced: who held the board's lock is the orphan, and logs are to be released
 * by anyone. */
static void the_last_life_is_fenced(void **state)
{
    (void)state;
    struct memory_node *node = kept_open("a");
    struct memory_log_request request = {.kind = MEMORY_LOG_OPEN, .instance = 101};
    struct memory_board_request lock = {.kind = MEMORY_BOARD_LOCK, .instance = 101};
    struct memory_log_reply reply;
    struct memory_board_reply told;
    size_t length;
    assert_int_equal(
        memory_node_target(node)->call(node, 1, &request, sizeof request, &reply, sizeof reply, &length), 0);
    assert_int_equal(memory_node_target(node)->call(node, 1, &lock, sizeof lock, &told, sizeof told, &length),
                     0);
    assert_true(told.grant != 0);
    memory_node_destroy(node);
    node = kept_open("a");
    request.kind = MEMORY_LOG_TAKE;
    assert_int_equal(
        memory_node_target(node)->call(node, 1, &request, sizeof request, &reply, sizeof reply, &length),
        BANYAN_ECONFLICT);
    lock.kind = MEMORY_BOARD_LOOK;
    assert_int_equal(memory_node_target(node)->call(node, 2, &lock, sizeof lock, &told, sizeof told, &length),
                     0);
    assert_true(told.holder.instance == 0 && told.orphan.instance == 101 && told.orphan.compute_id == 1);
    request = (struct memory_log_request){
        .kind = MEMORY_LOG_RELEASE, .instance = 102, .process = {.instance = 101, .compute_id = 1}};
    assert_int_equal(
        memory_node_target(node)->call(node, 2, &request, sizeof request, &reply, sizeof reply, &length), 0);
    memory_node_destroy(node);
}

/* ---- sizes ---- */

static int try_sizes(struct memory_options options, struct error *error)
{
    struct memory_node *node = NULL;
    *error = (struct error){0};
    options.pool_file = kept_path("a");
    int status = memory_node_create(&node, &options, error);
    memory_node_destroy(node);
    return status;
}

static void sizes_are_those_of_the_file(void **state)
{
    (void)state;
    struct error error;
    uint32_t digest = fill("a", 1);
    assert_int_equal(try_sizes((struct memory_options){0}, &error), 0);
    assert_int_equal(try_sizes((struct memory_options){.pool_bytes = KEPT_POOL + 4096}, &error),
                     BANYAN_EINVAL);
    assert_non_null(strstr(error.text, kept_path("a")));
    assert_int_equal(try_sizes((struct memory_options){.chunk_bytes = 131072}, &error), BANYAN_EINVAL);
    assert_int_equal(try_sizes((struct memory_options){.lock_width = 8}, &error), BANYAN_EINVAL);
    assert_int_equal(try_sizes((struct memory_options){.log_bytes = 600000}, &error), BANYAN_EINVAL);
    assert_int_equal(try_sizes((struct memory_options){.lock_bytes = 4096}, &error), BANYAN_EINVAL);
    struct memory_node *node = kept_open("a");
    assert_int_equal(kept_digest(node), digest);
    memory_node_destroy(node);
}

/* ---- bad files ---- */

/* Each byte of the header, and of the words beside it, changed in three ways. What is not found by a check is
 * only what says nothing that matters. */
static void flipped_bytes_are_found(void **state)
{
    (void)state;
    const uint64_t harmless = KEEP_WORDS_OFFSET + offsetof(struct keep_words, boot);
    uint32_t digest = fill("a", 2);
    for (uint64_t at = 0; at < KEEP_WORDS_OFFSET + sizeof(struct keep_words); at++) {
        if (at == sizeof(struct keep_header))
            at = KEEP_WORDS_OFFSET;
        static const uint8_t flips[] = {1, 0x80, 0xff};
        for (unsigned i = 0; i < 3; i++) {
            uint8_t was = byte_at("a", at), is = was ^ flips[i];
            struct error error = {0};
            put("a", at, &is, 1);
            uint32_t before = crc_of("a");
            struct memory_node *node = kept_try("a", &error);
            if (node != NULL ? at < harmless : strstr(error.text, kept_path("a")) == NULL)
                fail_msg("byte %llu: %s", (unsigned long long)at, node != NULL ? "opened" : error.text);
            if (node == NULL)
                assert_int_equal(crc_of("a"), before);
            memory_node_destroy(node);
            if (at < harmless)
                put("a", at, &was, 1);
        }
    }
    struct memory_node *node = kept_open("a");
    assert_int_equal(kept_digest(node), digest);
    memory_node_destroy(node);
}

/* Bits of the accounts of blocks, slots, lists: the file is opened, or refused, and no process crashes. */
static void flipped_accounts_crash_nothing(void **state)
{
    (void)state;
    struct random random;
    struct keep_layout layout;
    const struct keep_sizes sizes = {KEPT_POOL, KEPT_CHUNK, KEPT_LOCKS, MEMORY_LOG_BYTES_LEAST, 2};
    unsigned found = 0;
    random_seed(&random, 6);
    keep_layout(&layout, &sizes);
    fill("a", 3);
    kept_copy("good", "a");
    for (unsigned i = 0; i < 600; i++) {
        static const enum keep_place places[] = {KEEP_NODE_LIST, KEEP_BOARD_LIST, KEEP_MEMBERS,
                                                 KEEP_PROCESSES, KEEP_SEGMENTS,   KEEP_STAGING,
                                                 KEEP_USED,      KEEP_STARTS,     KEEP_NODES};
        struct error error = {0};
        enum keep_place place = places[i % 9];
        uint64_t at = layout.at[place] + random_below(&random, place >= KEEP_USED ? 2048 : 96);
        uint8_t is = byte_at("a", at) ^ (uint8_t)(1u << random_below(&random, 8));
        put("a", at, &is, 1);
        struct memory_node *node = kept_try("a", &error);
        if (node == NULL) {
            assert_true(error.code == BANYAN_ECORRUPT && strstr(error.text, kept_path("a")) != NULL);
            found++;
        } else {
            kept_digest(node);
        }
        memory_node_destroy(node);
        kept_copy("a", "good");
    }
    print_message("  %u of 600 flips were found\n", found);
    assert_true(found > 150);
}

static void short_files_are_found(void **state)
{
    (void)state;
    static const off_t lengths[] = {1, 8, 100, 184, 4095, 4096, 1 << 20, (off_t)KEPT_POOL};
    fill("a", 4);
    kept_copy("good", "a");
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_int_equal(truncate(kept_path("a"), lengths[i]), 0);
        refused("a", lengths[i] < 184 ? BANYAN_EINVAL : BANYAN_ECORRUPT,
                lengths[i] < 184 ? "not a pool" : "its end is missing");
        kept_copy("a", "good");
    }
}

static void other_versions_and_other_files_are_left_alone(void **state)
{
    (void)state;
    uint32_t newer = KEEP_VERSION + 1;
    fill("a", 5);
    put("a", offsetof(struct keep_header, version), &newer, sizeof newer);
    refused("a", BANYAN_EVERSION, "format 2");
    put("letter", 0, "Dear Banyan,", 12);
    refused("letter", BANYAN_EINVAL, "not a pool");
    put("zeros", 3 << 20, "", 1); /* longer than what a cut making leaves */
    refused("zeros", BANYAN_EINVAL, "not a pool");
    put("few", 4095, "", 1);
    memory_node_destroy(kept_open("few")); /* nothing is lost by it */
}

static void what_is_no_regular_file_is_refused(void **state)
{
    (void)state;
    struct error error = {0};
    assert_int_equal(mkdir(kept_path("directory"), 0700), 0);
    assert_null(kept_try("directory", &error));
    assert_non_null(strstr(error.text, "directory"));
    assert_int_equal(mkfifo(kept_path("pipe"), 0600), 0);
    assert_null(kept_try("pipe", &error));
    assert_non_null(strstr(error.text, "not a regular file"));
    assert_null(kept_try("no/such/place", &error));
    assert_true(error.code == BANYAN_EINVAL && strstr(error.text, "No such file") != NULL);
    if (geteuid() != 0) {
        fill("a", 6);
        assert_int_equal(chmod(kept_path("a"), 0400), 0);
        assert_null(kept_try("a", &error));
        assert_non_null(strstr(error.text, "Permission denied"));
    }
}

static void a_file_has_one_process(void **state)
{
    (void)state;
    struct memory_node *node = kept_open("a");
    struct error error = {0};
    char pid[32];
    assert_null(kept_try("a", &error));
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    assert_int_equal(error.code, BANYAN_EBUSY);
    assert_true(strstr(error.text, pid) != NULL && strstr(error.text, kept_path("a")) != NULL);
    memory_node_destroy(node);
    memory_node_destroy(kept_open("a"));
    struct stat status;
    assert_int_equal(stat(kept_path("a"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_true((uint64_t)status.st_blocks * 512 >= (uint64_t)status.st_size); /* taken wholly */
}

/* A file system that gives no more room: a limit of the process is one that tests can set. */
static void no_room_is_an_error(void **state)
{
    (void)state;
    struct rlimit old, small;
    struct error error = {0};
    struct stat status;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_null(kept_try("a", &error));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_true(error.code == BANYAN_ENOSPC && strstr(error.text, kept_path("a")) != NULL);
    assert_int_equal(stat(kept_path("a"), &status), 0);
    assert_int_equal(status.st_size, 0); /* and what it took is given back */
    memory_node_destroy(kept_open("a"));
}

/* The machine went down: a file that was not closed is older in parts; one that was closed is whole. */
static void files_of_another_boot(void **state)
{
    (void)state;
    uint64_t boot = 4711;
    const uint64_t at = KEEP_WORDS_OFFSET + offsetof(struct keep_words, boot);
    uint32_t digest = fill("a", 7);
    put("a", at, &boot, sizeof boot);
    struct memory_node *node = kept_open("a");
    assert_int_equal(kept_digest(node), digest);
    kept_copy("a2", "a"); /* as it is while it is in use */
    memory_node_destroy(node);
    memory_node_destroy(kept_open("a2"));
    kept_copy("a2", "a");
    const uint64_t open = UINT64_C(0xffffffff) << 32;
    put("a2", KEEP_WORDS_OFFSET + offsetof(struct keep_words, checked) + 8 * KEEP_CLOSED, &open, sizeof open);
    put("a2", at, &boot, sizeof boot);
    refused("a2", BANYAN_ECORRUPT, "when its machine went down");
}

/* What a start of a server asks that has a disk: must the pool be made anew, although it was there? */
static void what_power_takes(void **state)
{
    (void)state;
    const uint8_t zeros[8192] = {0};
    const uint64_t boot = 4711, cluster = 5;
    const uint64_t at = KEEP_WORDS_OFFSET + offsetof(struct keep_words, boot);
    const uint64_t formatted = KEEP_WORDS_OFFSET + offsetof(struct keep_words, formatted);
    assert_false(memory_pool_file_lost_power(kept_path("none")));
    put("empty", 0, zeros, 0);
    assert_true(memory_pool_file_lost_power(kept_path("empty")));
    put("zeros", 0, zeros, sizeof zeros);
    assert_true(memory_pool_file_lost_power(kept_path("zeros")));
    put("foreign", 0, "something else", 14);
    assert_false(memory_pool_file_lost_power(kept_path("foreign")));

    struct memory_node *node = kept_open("a");
    struct error error;
    assert_int_equal(memory_node_format(node, cluster, 0, 1, &error), BANYAN_OK);
    assert_false(memory_pool_file_lost_power(kept_path("a")));
    kept_copy("used", "a");
    put("used", at, &boot, sizeof boot);
    assert_true(memory_pool_file_lost_power(kept_path("used")));
    kept_copy("unmade", "a");
    put("unmade", offsetof(struct keep_header, made), zeros, sizeof(uint64_t));
    assert_true(memory_pool_file_lost_power(kept_path("unmade")));
    kept_copy("nobody", "a");
    put("nobody", formatted, zeros, sizeof(uint64_t));
    assert_true(memory_pool_file_lost_power(kept_path("nobody")));
    memory_node_destroy(node); /* in order: it outlives the machine */
    put("a", at, &boot, sizeof boot);
    assert_false(memory_pool_file_lost_power(kept_path("a")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_life_begins_where_the_last_one_ended, setup, teardown),
        cmocka_unit_test_setup_teardown(lives_and_formats_go_on, setup, teardown),
        cmocka_unit_test_setup_teardown(the_last_life_is_fenced, setup, teardown),
        cmocka_unit_test_setup_teardown(sizes_are_those_of_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(flipped_bytes_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(flipped_accounts_crash_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(short_files_are_found, setup, teardown),
        cmocka_unit_test_setup_teardown(other_versions_and_other_files_are_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_regular_file_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_has_one_process, setup, teardown),
        cmocka_unit_test_setup_teardown(no_room_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(files_of_another_boot, setup, teardown),
        cmocka_unit_test_setup_teardown(what_power_takes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
