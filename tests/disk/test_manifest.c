/* test_manifest.c - the manifest: its bytes, its refusals, its replacement, and what is swept. */
#include "book.h"

#include "base/crc32c.h"
#include "base/log.h"
#include "disk/manifest.h"

#define TOKEN UINT64_C(0x123456789abcdef1)

static struct error error;

static void says(const char *what)
{
    if (!strstr(error.text, what))
        fail_msg("'%s' does not say '%s'", error.text, what);
}

static struct manifest_part part_make(const char *name, const char *lower, const char *upper)
{
    struct manifest_part part = {.epoch = 1, .sequence = 2, .entries = 3, .bytes = 4, .check = 5};
    snprintf(part.name, sizeof part.name, "%s", name);
    part.lower_length = (uint8_t)strlen(lower);
    memcpy(part.lower, lower, strlen(lower));
    part.has_upper = upper != NULL;
    if (upper) {
        part.upper_length = (uint8_t)strlen(upper);
        memcpy(part.upper, upper, strlen(upper));
    }
    return part;
}

static struct manifest manifest_make(struct manifest_part *parts, uint32_t count)
{
    return (struct manifest){.cluster = BOOK_CLUSTER,
                             .node = BOOK_NODE,
                             .nodes = 4,
                             .serial = 6,
                             .checkpoint = 7,
                             .position = 8,
                             .part_count = count,
                             .parts = parts};
}

static void same(const struct manifest *left, const struct manifest *right)
{
    assert_int_equal(left->token, right->token);
    for (unsigned i = 0; i < MANIFEST_JOINS_MAX; i++) {
        assert_int_equal(left->joins[i].state, right->joins[i].state);
        assert_int_equal(left->joins[i].token, right->joins[i].token);
    }
    assert_int_equal(left->cluster, right->cluster);
    assert_int_equal(left->node, right->node);
    assert_int_equal(left->nodes, right->nodes);
    assert_int_equal(left->serial, right->serial);
    assert_int_equal(left->checkpoint, right->checkpoint);
    assert_int_equal(left->position, right->position);
    assert_int_equal(left->part_count, right->part_count);
    for (uint32_t i = 0; i < left->part_count; i++) {
        const struct manifest_part *a = &left->parts[i], *b = &right->parts[i];
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->lower_length, b->lower_length);
        assert_int_equal(a->upper_length, b->upper_length);
        assert_int_equal(a->has_upper, b->has_upper);
        assert_memory_equal(a->lower, b->lower, a->lower_length);
        assert_memory_equal(a->upper, b->upper, a->upper_length);
        assert_int_equal(a->epoch, b->epoch);
        assert_int_equal(a->sequence, b->sequence);
        assert_int_equal(a->entries, b->entries);
        assert_int_equal(a->bytes, b->bytes);
        assert_int_equal(a->check, b->check);
    }
}

static int open_it(struct disk *disk, struct manifest *manifest)
{
    error = (struct error){0};
    return manifest_open(disk, BOOK_CLUSTER, BOOK_NODE, 4, manifest, &error);
}

/* ---- bytes ---- */

static void test_codec(void **state)
{
    struct manifest_part parts[] = {part_make("checkpoint-1", "", "m"), part_make("checkpoint-2", "m", "mm"),
                                    part_make("checkpoint-3", "mm", NULL)};
    memset(parts[2].lower, 255, 255);
    parts[2].lower_length = 255;
    for (uint32_t count = 0; count <= 3; count++) {
        struct manifest manifest = manifest_make(parts, count), read;
        uint8_t *bytes;
        size_t length;
        assert_int_equal(manifest_encode(&manifest, &bytes, &length, NULL), 0);
        assert_memory_equal(bytes, "BNYNMNFT\1\0\0\0", 12);
        assert_int_equal(manifest_decode(&read, bytes, length, "here", NULL), 0);
        same(&manifest, &read);
        manifest_free(&read);
        free(bytes);
    }
}

/* What was written before there were tokens is read as ever, and written so where there is nothing new. */
static void test_codec_tokens(void **state)
{
    struct manifest_part parts[] = {part_make("checkpoint-1", "", "m"), part_make("checkpoint-2", "m", NULL)};
    for (unsigned what = 0; what < 8; what++) {
        struct manifest manifest = manifest_make(parts, what & 4 ? 2 : 0), read;
        uint8_t *bytes;
        size_t length;
        manifest.token = what & 1 ? TOKEN : 0;
        if (what & 2) {
            manifest.joins[3] = (struct manifest_join){MANIFEST_JOIN_MEANT, TOKEN + 1};
            manifest.joins[4] = (struct manifest_join){MANIFEST_JOIN_SEVERAL, 0};
            manifest.joins[MANIFEST_JOINS_MAX - 1] = (struct manifest_join){MANIFEST_JOIN_DONE, TOKEN + 2};
        }
        assert_int_equal(manifest_encode(&manifest, &bytes, &length, NULL), 0);
        assert_int_equal(bytes[8], what & 3 ? 2 : 1);
        assert_int_equal(manifest_decode(&read, bytes, length, "here", NULL), 0);
        same(&manifest, &read);
        manifest_free(&read);
        free(bytes);
    }
}

/* The first one that is noted is meant; a second one makes it several, until one of them has joined. */
static void test_joins(void **state)
{
    struct manifest noted = manifest_make(NULL, 0);
    struct manifest_join *join = &noted.joins[4];
    assert_false(manifest_join_denies(join, TOKEN, true));
    assert_int_equal(manifest_join_note(&noted, 4, TOKEN, false), 0);
    assert_true(manifest_join_stands(join, TOKEN, false));
    assert_false(manifest_join_stands(join, TOKEN, true) || manifest_join_stands(join, TOKEN + 1, false));
    assert_true(manifest_join_denies(join, TOKEN + 1, true));
    assert_false(manifest_join_denies(join, TOKEN, true) || manifest_join_denies(join, TOKEN + 1, false));
    assert_int_equal(manifest_join_note(&noted, 4, TOKEN, false), 0);
    assert_int_equal(join->state, MANIFEST_JOIN_MEANT);

    assert_int_equal(manifest_join_note(&noted, 4, TOKEN + 1, false), 0);
    assert_true(manifest_join_stands(join, TOKEN, false) && manifest_join_stands(join, TOKEN + 1, false));
    assert_false(manifest_join_stands(join, TOKEN + 1, true));
    assert_false(manifest_join_denies(join, TOKEN, true) || manifest_join_denies(join, TOKEN + 1, true));
    assert_int_equal(manifest_join_note(&noted, 4, TOKEN, false), 0);
    assert_int_equal(join->state, MANIFEST_JOIN_SEVERAL);

    assert_int_equal(manifest_join_note(&noted, 4, TOKEN + 1, true), 0);
    assert_true(manifest_join_stands(join, TOKEN + 1, true) && manifest_join_stands(join, TOKEN + 1, false));
    assert_true(manifest_join_denies(join, TOKEN, false) && manifest_join_denies(join, 0, true));
    assert_false(manifest_join_denies(join, TOKEN + 1, true));
    assert_int_equal(manifest_join_note(&noted, 4, TOKEN, false), BANYAN_EEXIST);
    assert_int_equal(manifest_join_note(&noted, 4, TOKEN, true), BANYAN_EEXIST);
    assert_int_equal(manifest_join_note(&noted, 4, TOKEN + 1, false), 0);
    assert_int_equal(join->state, MANIFEST_JOIN_DONE);

    /* One whose directory has no token: nothing is denied. */
    assert_int_equal(manifest_join_note(&noted, 5, 0, false), 0);
    assert_int_equal(manifest_join_note(&noted, 5, 0, true), 0);
    assert_false(manifest_join_denies(&noted.joins[5], TOKEN, true));
    assert_int_equal(manifest_join_note(&noted, MANIFEST_JOINS_MAX, TOKEN, true), BANYAN_EINVAL);
}

static void test_impossible_parts(void **state)
{
    const struct manifest_part wrong[] = {
        part_make("journal-00000001", "a", "b"),
        part_make("checkpoint-/", "a", "b"),
        part_make("", "a", "b"),
        part_make("checkpoint-1", "b", "a"),
        part_make("checkpoint-1", "b", "b"),
        part_make("checkpoint-1", "ab", "a"),
        part_make("checkpoint-1", "", ""),
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct manifest_part part = wrong[i];
        struct manifest manifest = manifest_make(&part, 1);
        uint8_t *bytes;
        size_t length;
        error = (struct error){0};
        assert_int_equal(manifest_encode(&manifest, &bytes, &length, &error), BANYAN_EINVAL);
        says("part 0 of a checkpoint");
    }
}

static uint8_t *encoded_with(size_t *length, bool tokens)
{
    struct manifest_part parts[] = {part_make("checkpoint-1", "", "m"), part_make("checkpoint-2", "m", NULL)};
    struct manifest manifest = manifest_make(parts, 2);
    uint8_t *bytes;
    if (tokens) {
        manifest.token = TOKEN;
        manifest.joins[3] = (struct manifest_join){MANIFEST_JOIN_MEANT, TOKEN + 1};
        manifest.joins[4] = (struct manifest_join){MANIFEST_JOIN_DONE, TOKEN + 2};
    }
    assert_int_equal(manifest_encode(&manifest, &bytes, length, NULL), 0);
    return bytes;
}

static uint8_t *encoded(size_t *length)
{
    return encoded_with(length, false);
}

static void test_each_byte_flipped(void **state)
{
    size_t length;
    uint8_t *bytes = encoded(&length);
    for (size_t at = 0; at < length; at++)
        for (int bit = 0; bit < 8; bit++) {
            struct manifest read;
            error = (struct error){0};
            bytes[at] ^= (uint8_t)(1u << bit);
            assert_int_equal(manifest_decode(&read, bytes, length, "here", &error), BANYAN_ECORRUPT);
            says("manifest in here is corrupt at byte ");
            assert_null(read.parts);
            bytes[at] ^= (uint8_t)(1u << bit);
        }
    free(bytes);
}

static void test_every_prefix(void **state)
{
    size_t length;
    uint8_t *bytes = encoded(&length);
    for (size_t some = 0; some < length; some++) {
        struct manifest read;
        uint8_t *copy = malloc(some ? some : 1); /* of exactly its size */
        memcpy(copy, bytes, some);
        error = (struct error){0};
        assert_int_equal(manifest_decode(&read, copy, some, "here", &error), BANYAN_ECORRUPT);
        says("byte");
        free(copy);
    }
    uint8_t *longer = calloc(1, length + 1);
    struct manifest read;
    memcpy(longer, bytes, length);
    assert_int_equal(manifest_decode(&read, longer, length + 1, "here", &error), BANYAN_ECORRUPT);
    free(longer);
    free(bytes);
}

static void checks_mend(uint8_t *bytes, size_t length)
{
    uint32_t check = crc32c(0, bytes, 60);
    memcpy(bytes + 60, &check, 4);
    check = crc32c(0, bytes, length - 4);
    memcpy(bytes + length - 4, &check, 4);
}

/* With right checksums: what the fields say of each other is looked at all the same. */
static void test_forged_tokens(void **state)
{
    const struct {
        size_t at;
        uint8_t value;
        const char *says;
    } forgeries[] = {
        {8, 1, "no part of a checkpoint"},
        {72, 97, "of tokens"},
        {72, 1, "no part of a checkpoint"},
        {74, 200, "of tokens"},
        {76, 1, "of tokens"},
        {80, 96, "joins cannot be"},
        {80, 4, "joins cannot be"}, /* the next one is not above it */
        {84, 0, "joins cannot be"},
        {84, 2, "joins cannot be"}, /* several, with a token */
        {84, 4, "joins cannot be"},
    };
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        size_t length;
        struct manifest read;
        uint8_t *bytes = encoded_with(&length, true);
        bytes[forgeries[i].at] = forgeries[i].value;
        checks_mend(bytes, length);
        error = (struct error){0};
        assert_int_equal(manifest_decode(&read, bytes, length, "here", &error), BANYAN_ECORRUPT);
        says(forgeries[i].says);
        free(bytes);
    }
    for (size_t length = 68; length < 68 + 16; length++) { /* it ends in them, by its own length */
        size_t all;
        struct manifest read;
        uint8_t *bytes = encoded_with(&all, true);
        const uint32_t cut = (uint32_t)length;
        memcpy(bytes + 12, &cut, 4);
        checks_mend(bytes, length);
        assert_int_equal(manifest_decode(&read, bytes, length, "here", &error), BANYAN_ECORRUPT);
        free(bytes);
    }
}

static void test_forged(void **state)
{
    const struct {
        size_t at;
        uint8_t value;
        int status;
        const char *says;
    } forgeries[] = {
        {8, 3, BANYAN_EVERSION, "has format 3, this program reads format 1 to 2"},
        {8, 0, BANYAN_EVERSION, "has format 0, this program reads format 1 to 2"},
        {12, 9, BANYAN_ECORRUPT, "another length than its header says"},
        {56, 1, BANYAN_ECORRUPT, "something follows behind the last part"},
        {56, 0, BANYAN_ECORRUPT, "something follows where no part is"},
        {56, 3, BANYAN_ECORRUPT, "more parts than it can"},
        {58, 200, BANYAN_ECORRUPT, "more parts than it can"},
        {64, 48, BANYAN_ECORRUPT, "no part of a checkpoint"},
        {67, 2, BANYAN_ECORRUPT, "no part of a checkpoint"},
        {108, 'x', BANYAN_ECORRUPT, "no part of a checkpoint"},
    };
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        size_t length;
        struct manifest read;
        uint8_t *bytes = encoded(&length);
        bytes[forgeries[i].at] = forgeries[i].value;
        checks_mend(bytes, length);
        error = (struct error){0};
        assert_int_equal(manifest_decode(&read, bytes, length, "here", &error), forgeries[i].status);
        says(forgeries[i].says);
        free(bytes);
    }
}

/* ---- the directory ---- */

static void test_replace(void **state)
{
    struct disk *disk = disk_make(1);
    struct manifest_part first[] = {part_make("checkpoint-1", "", "m"), part_make("checkpoint-2", "m", NULL)};
    struct manifest_part second[] = {part_make("checkpoint-3", "", "m"),
                                     part_make("checkpoint-2", "m", NULL)};
    struct manifest none = manifest_make(NULL, 0), one = manifest_make(first, 2),
                    two = manifest_make(second, 2);
    struct manifest read;
    assert_int_equal(open_it(disk, &read), BANYAN_ENOTFOUND);
    assert_int_equal(manifest_replace(disk, NULL, &none, &error), 0);
    assert_int_equal(none.serial, 1);
    file_write(disk, "checkpoint-1", "1111", 4);
    file_write(disk, "checkpoint-2", "2222", 4);
    assert_int_equal(manifest_replace(disk, &none, &one, &error), 0);
    assert_int_equal(one.serial, 2);
    assert_int_equal(open_it(disk, &read), 0);
    same(&one, &read);
    manifest_free(&read);
    file_write(disk, "checkpoint-3", "3333", 4);
    assert_int_equal(manifest_replace(disk, &one, &two, &error), 0);
    assert_false(file_there(disk, "checkpoint-1"));
    assert_true(file_there(disk, "checkpoint-2"));
    assert_int_equal(open_it(disk, &read), 0);
    same(&two, &read);
    manifest_free(&read);
    disk_close(disk);
}

static void test_strays_are_swept(void **state)
{
    struct disk *disk = disk_make(1);
    struct manifest_part parts[] = {part_make("checkpoint-1", "", NULL)};
    struct manifest one = manifest_make(parts, 1), read;
    file_write(disk, "checkpoint-1", "1111", 4);
    assert_int_equal(manifest_replace(disk, NULL, &one, &error), 0);
    file_write(disk, "checkpoint-9", "9999", 4);
    file_write(disk, "manifest.new", "x", 1);
    file_write(disk, "checkpoints", "somebody's", 10);
    file_write(disk, "journal-00000001", "somebody's", 10);
    assert_int_equal(open_it(disk, &read), 0);
    manifest_free(&read);
    assert_false(file_there(disk, "checkpoint-9"));
    assert_false(file_there(disk, "manifest.new"));
    assert_true(file_there(disk, "checkpoint-1"));
    assert_true(file_there(disk, "checkpoints"));
    assert_true(file_there(disk, "journal-00000001"));
    disk_close(disk);
}

static void test_refusals(void **state)
{
    struct disk *disk = disk_make(1);
    struct manifest_part parts[] = {part_make("checkpoint-1", "", NULL)};
    struct manifest one = manifest_make(parts, 1), read;
    size_t length;
    file_write(disk, "checkpoint-1", "1111", 4);
    file_write(disk, "checkpoint-9", "9999", 4);
    assert_int_equal(manifest_replace(disk, NULL, &one, &error), 0);
    assert_int_equal(manifest_open(disk, 1, BOOK_NODE, 4, &read, &error), BANYAN_EINVAL);
    says("manifest in the simulated disk is of memory node 3 of 4 of cluster 1122334455667788, this is 3 of "
         "4 of "
         "cluster 0000000000000001");
    assert_int_equal(manifest_open(disk, BOOK_CLUSTER, 2, 4, &read, &error), BANYAN_EINVAL);
    assert_int_equal(manifest_open(disk, BOOK_CLUSTER, BOOK_NODE, 5, &read, &error), BANYAN_EINVAL);
    assert_true(file_there(disk, "checkpoint-9")); /* nothing is swept for another */
    file_write(disk, "checkpoint-1", "111", 3);
    assert_int_equal(open_it(disk, &read), BANYAN_ECORRUPT);
    says("checkpoint-1 in the simulated disk is of another length");
    assert_int_equal(disk_remove(disk, "checkpoint-1", NULL), 0);
    assert_int_equal(open_it(disk, &read), BANYAN_ECORRUPT);
    says("checkpoint-1 in the simulated disk is missing");
    uint8_t *bytes = file_read(disk, "manifest", &length);
    file_write(disk, "manifest", bytes, length / 2);
    free(bytes);
    assert_int_equal(open_it(disk, &read), BANYAN_ECORRUPT);
    says("manifest in the simulated disk is corrupt at byte");
    assert_true(file_there(disk, "checkpoint-9"));
    disk_close(disk);
}

static void test_failures(void **state)
{
    for (uint32_t fault = 0; fault < DISK_FAULTS; fault++)
        for (uint32_t after = 0; after < 2; after++) {
            struct disk *disk = disk_make(1);
            struct manifest_part first[] = {part_make("checkpoint-1", "", NULL)};
            struct manifest_part second[] = {part_make("checkpoint-2", "", NULL)};
            struct manifest one = manifest_make(first, 1), two = manifest_make(second, 1), read;
            file_write(disk, "checkpoint-1", "1111", 4);
            file_write(disk, "checkpoint-2", "2222", 4);
            assert_int_equal(manifest_replace(disk, NULL, &one, &error), 0);
            disk_simulated_fail(disk, (enum disk_fault)fault, after, 1);
            const int status = manifest_replace(disk, &one, &two, &error);
            if (fault == DISK_FAULT_NAMES || !after)
                assert_int_equal(status, BANYAN_EUNKNOWN);
            else
                assert_int_equal(status, 0); /* there is one write, and one sync */
            if (status)
                assert_true(file_there(disk, "checkpoint-1"));
            disk_simulated_restart(disk);
            assert_int_equal(open_it(disk, &read), 0);
            assert_true(read.serial == one.serial || read.serial == two.serial);
            manifest_free(&read);
            disk_close(disk);
        }
}

static void test_full(void **state)
{
    struct disk *disk = disk_make(1);
    struct manifest none = manifest_make(NULL, 0), read;
    assert_int_equal(manifest_replace(disk, NULL, &none, &error), 0);
    disk_simulated_capacity(disk, disk_used(disk) + 10);
    struct manifest next = none;
    next.position++;
    assert_int_equal(manifest_replace(disk, &none, &next, &error), BANYAN_ENOSPC);
    assert_int_equal(open_it(disk, &read), 0);
    same(&none, &read);
    disk_simulated_capacity(disk, 0);
    assert_int_equal(manifest_replace(disk, &none, &next, &error), 0);
    assert_int_equal(open_it(disk, &read), 0);
    same(&next, &read);
    disk_close(disk);
}

int main(void)
{
    log_set_level(LOG_ERROR + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codec),
        cmocka_unit_test(test_codec_tokens),
        cmocka_unit_test(test_joins),
        cmocka_unit_test(test_impossible_parts),
        cmocka_unit_test(test_each_byte_flipped),
        cmocka_unit_test(test_every_prefix),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_forged_tokens),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_strays_are_swept),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
