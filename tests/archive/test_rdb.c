/* test_rdb.c - Redis's snapshots: one that Redis 7.0.15 has written (redis-7.0.rdb: strings of each encoding,
 * and keys of each other type), and bytes by hand for what it does not write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "archive/rdb.h"
#include "bytes.h"

static const char *snapshot_path;

static int read_all(const struct bytes *file, uint64_t database, struct bytes *found,
                    struct rdb_counts *counts, struct error *error)
{
    struct source source;
    const struct rdb_options options = {.database = database};
    bytes_free(found);
    bytes_text(found, "");
    *counts = (struct rdb_counts){0};
    source_memory(&source, "file", file->start, file->length);
    int status = rdb_read(&source, &options, bytes_visit, found, counts, error);
    if (!status)
        assert_int_equal(source.position, file->length);
    source_close(&source);
    return status;
}

static void snapshot_load(struct bytes *file)
{
    uint8_t bytes[4096];
    FILE *stream = fopen(snapshot_path, "rb");
    assert_non_null(stream);
    bytes_add(file, bytes, fread(bytes, 1, sizeof bytes, stream));
    fclose(stream);
    assert_true(file->length > 9);
}

static void assert_has(const struct bytes *found, const char *part)
{
    if (!strstr((const char *)found->start, part))
        fail_msg("'%s' has no '%s'", (const char *)found->start, part);
}

static void test_of_redis(void **state)
{
    struct bytes file = {0}, found = {0};
    struct rdb_counts counts;
    struct error error = {0};
    char compressed[320] = "comp=";
    (void)state;
    snapshot_load(&file);
    if (read_all(&file, 0, &found, &counts, &error))
        fail_msg("%s", error.text);
    assert_int_equal(counts.strings, 6);
    assert_int_equal(counts.others, 8);
    assert_int_equal(counts.other_databases, 1);
    assert_int_equal(counts.too_long, 0);
    assert_true(counts.example[0] != 0);
    assert_has(&found, "n=12345@0 ");
    assert_has(&found, "neg=-7@0 ");
    assert_has(&found, "short=300@0 ");
    assert_has(&found, "text=hello@0 ");
    assert_has(&found, "e=x@4102444800000 ");
    memset(compressed + 5, 'x', 300);
    assert_has(&found, compressed);
    assert_int_equal(read_all(&file, 3, &found, &counts, NULL), 0);
    assert_string_equal((char *)found.start, "other=1@0 ");
    assert_int_equal(counts.other_databases, 14);
    bytes_free(&file);
    bytes_free(&found);
}

/* Redis's checksum finds any of them, but for the places where a bit leads to an earlier refusal. */
static void test_each_bit_counts(void **state)
{
    struct bytes file = {0}, found = {0};
    struct rdb_counts counts;
    (void)state;
    snapshot_load(&file);
    for (size_t at = 0; at < file.length; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            struct error error = {0};
            file.start[at] ^= (uint8_t)(1u << bit);
            if (read_all(&file, 0, &found, &counts, &error) == 0)
                fail_msg("bit %u of byte %zu may be either", bit, at);
            assert_non_null(strstr(error.text, "file"));
            file.start[at] ^= (uint8_t)(1u << bit);
        }
    bytes_free(&file);
    bytes_free(&found);
}

static void test_each_length_counts(void **state)
{
    struct bytes file = {0}, found = {0};
    struct rdb_counts counts;
    struct error error = {0};
    (void)state;
    snapshot_load(&file);
    const size_t whole = file.length;
    for (file.length = 0; file.length < whole; file.length++) {
        assert_int_equal(read_all(&file, 0, &found, &counts, &error), BANYAN_ECORRUPT);
        assert_non_null(strstr(error.text, "the file ends here"));
    }
    bytes_free(&file);
    bytes_free(&found);
}

/* A snapshot of these bytes, without a checksum. */
static void by_hand(struct bytes *file, const char *version, const void *body, size_t length)
{
    bytes_free(file);
    bytes_text(file, "REDIS");
    bytes_text(file, version);
    bytes_add(file, body, length);
    bytes_add(file, "\377\0\0\0\0\0\0\0", 9);
}
#define BY_HAND(file, version, body) by_hand(file, version, body, sizeof(body) - 1)

static void test_by_hand(void **state)
{
    static const struct {
        const char *what, *body;
        size_t length;
    } others[] = {
#define OTHER(what, body) {what, body, sizeof(body) - 1}
        OTHER("list", "\001\001o\002\001a\001b"),
        OTHER("zset with scores as text", "\003\001o\003\001a\0031.5\001b\376\001c\375"),
        OTHER("zset", "\005\001o\001\001a12345678"),
        OTHER("hash", "\004\001o\001\001f\001v"),
        OTHER("zipmap", "\011\001o\003abc"),
        OTHER("quicklist", "\016\001o\001\003abc"),
        OTHER("quicklist 2", "\022\001o\001\002\003abc"),
        OTHER("module", "\007\001o\201\0\0\0\0\0\0\0\001\001\005\002\006\003abcd\004abcdefgh\005\001s\0"),
        OTHER("stream 3", "\025\001o\001\00216\001l\001\001\001\001\001\001\001\001\001"
                          "\001\001g\001\001\001\0011234567890123456abcdefgh\001"
                          "\001\001c12345678abcdefgh\0011234567890123456"),
        OTHER("hash with expiries", "\030\001oabcdefgh\001\003\001f\001v"),
        OTHER("listpack with expiries", "\031\001oabcdefgh\001l"),
    };
    struct bytes file = {0}, found = {0}, body = {0};
    struct rdb_counts counts;
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct error error = {0};
        bytes_free(&body);
        bytes_add(&body, others[i].body, others[i].length);
        bytes_add(&body, "\0\001k\001v", 5);
        by_hand(&file, "0012", body.start, body.length);
        if (read_all(&file, 0, &found, &counts, &error))
            fail_msg("%s: %s", others[i].what, error.text);
        assert_string_equal((char *)found.start, "k=v@0 ");
        assert_int_equal(counts.others, 1);
        assert_string_equal(counts.example, "o");
        const size_t whole = file.length;
        for (file.length = 9; file.length < whole; file.length++)
            assert_int_equal(read_all(&file, 0, &found, &counts, NULL), BANYAN_ECORRUPT);
    }
    /* frequency, idle time, slots, a module's own words, seconds, lengths of each width */
    BY_HAND(&file, "0012",
            "\371\007\370\101\000\364\001\002\003\367\001\002\001\000\375\001\000\000\000\000\001s\200\000"
            "\000\000\002vv"
            "\375\377\377\377\377\000\001t\100\001w");
    assert_int_equal(read_all(&file, 0, &found, &counts, NULL), 0);
    assert_string_equal((char *)found.start, "s=vv@1000 t=w@1 ");
    bytes_free(&file);
    bytes_text(&file, "REDIS0003\376\005");
    bytes_add(&file, "\0\001k\300\200\377", 6); /* before version 5 there was no checksum */
    assert_int_equal(read_all(&file, 5, &found, &counts, NULL), 0);
    assert_string_equal((char *)found.start, "k=-128@0 ");
    bytes_free(&file);
    bytes_free(&body);
    bytes_free(&found);
}

static void test_refused(void **state)
{
    static const struct {
        const char *version, *body, *part;
        size_t length;
        int status;
    } refused[] = {
#define REFUSED(version, body, status, part) {version, body, part, sizeof(body) - 1, status}
        REFUSED("0013", "", BANYAN_EVERSION, "version 13"),
        REFUSED("0000", "", BANYAN_EVERSION, "version 0"),
        REFUSED("00x1", "", BANYAN_ECORRUPT, "without a version"),
        REFUSED("0011", "\006\001k\001v", BANYAN_ENOTSUP, "kind 6"),
        REFUSED("0011", "\366", BANYAN_ENOTSUP, "kind 246"),
        REFUSED("0011", "\0\277k", BANYAN_ECORRUPT, "no length begins with bf"),
        REFUSED("0011", "\0\307k", BANYAN_ECORRUPT, "in way 7"),
        REFUSED("0011", "\376\300", BANYAN_ECORRUPT, "where a length belongs"),
        REFUSED("0011", "\0\001k\303\077\005x", BANYAN_ECORRUPT, "ends here"),
        REFUSED("0011", "\0\001k\303\002\005\377\377", BANYAN_ECORRUPT, "does not unpack"),
        REFUSED("0011", "\0\001k\303\001\200\000\000\001\000x", BANYAN_ECORRUPT, "impossible length"),
        REFUSED("0011", "\0\001k\201\377\377\377\377\377\377\377\377", BANYAN_ECORRUPT, "ends here"),
        REFUSED("0011", "\007\001o\001\011", BANYAN_ECORRUPT, "kind 9"),
    };
    struct bytes file = {0}, found = {0};
    struct rdb_counts counts;
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct error error = {0};
        by_hand(&file, refused[i].version, refused[i].body, refused[i].length);
        int status = read_all(&file, 0, &found, &counts, &error);
        if (status != refused[i].status || !strstr(error.text, refused[i].part))
            fail_msg("%zu: %d, '%s', and not '%s'", i, status, error.text, refused[i].part);
    }
    bytes_free(&file);
    bytes_free(&found);
}

/* They are stepped over, however long: a length that the file only claims costs no memory. */
static void test_too_long(void **state)
{
    struct bytes file = {0}, found = {0};
    struct rdb_counts counts;
    const uint32_t length = ARCHIVE_VALUE_MAX + 1;
    uint8_t *value = calloc(1, length);
    (void)state;
    assert_non_null(value);
    bytes_text(&file, "REDIS0004");
    bytes_add(&file, "\0\001k\200\004\000\000\001", 8);
    bytes_add(&file, value, length);
    bytes_add(&file, "\0\101\000", 3);
    bytes_add(&file, value, 256);
    bytes_add(&file, "\001v\0\0\001e\0\001l\001m\377", 12);
    assert_int_equal(read_all(&file, 0, &found, &counts, NULL), 0);
    assert_string_equal((char *)found.start, "l=m@0 ");
    assert_int_equal(counts.too_long, 3);
    assert_string_equal(counts.example, "k");
    free(value);
    bytes_free(&file);
    bytes_free(&found);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_redis),
        cmocka_unit_test(test_each_bit_counts),
        cmocka_unit_test(test_each_length_counts),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_long),
    };
    snapshot_path = argc > 1 ? argv[1] : "redis-7.0.rdb";
    return cmocka_run_group_tests_name("snapshots of Redis", tests, NULL, NULL);
}
