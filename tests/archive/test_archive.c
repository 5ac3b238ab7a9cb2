/* test_archive.c - Banyan's own file of keys: what is written is read, and whatever is not what was written
 * is refused: each byte changed, each length cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "archive/archive_format.h"
#include "bytes.h"

#define CREATED UINT64_C(1700000000000)

static struct archive_entry entry_of(const char *key, const char *value, uint64_t expires)
{
    return (struct archive_entry){.key = (const uint8_t *)key,
                                  .key_length = strlen(key),
                                  .value = (const uint8_t *)value,
                                  .value_length = strlen(value),
                                  .expires = expires};
}

static struct archive_writer *writer_of(struct bytes *file, uint32_t flags, int level)
{
    struct archive_writer *writer;
    assert_int_equal(archive_writer_create(&writer, flags, CREATED, level, bytes_write, file, NULL), 0);
    return writer;
}

static int read_all(const struct bytes *file, struct bytes *found, struct archive_totals *totals,
                    struct error *error)
{
    struct source source;
    bytes_free(found);
    bytes_text(found, "");
    source_memory(&source, "file", file->start, file->length);
    int status = archive_read(&source, bytes_visit, found, totals, error);
    source_close(&source);
    return status;
}

/* Three entries, the last in a block of its own. */
static void small_file(struct bytes *file, int level)
{
    static char large[ARCHIVE_BLOCK_BYTES];
    struct archive_writer *writer = writer_of(file, ARCHIVE_ORDERED, level);
    memset(large, 'v', sizeof large - 1);
    const struct archive_entry entries[] = {entry_of("a", "", 0), entry_of("b", "two", CREATED),
                                            entry_of("c", level ? large : "x", UINT64_MAX)};
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(archive_add(writer, &entries[i], NULL), 0);
    assert_int_equal(archive_finish(writer, NULL), 0);
    archive_writer_destroy(writer);
}

static void test_written_is_read(void **state)
{
    struct bytes file = {0}, found = {0};
    struct archive_totals totals;
    (void)state;
    small_file(&file, 0);
    assert_int_equal(read_all(&file, &found, &totals, NULL), 0);
    assert_string_equal((char *)found.start, "a=@0 b=two@1700000000000 c=x@18446744073709551615 ");
    assert_int_equal(totals.entries, 3);
    assert_int_equal(totals.written, file.length);
    bytes_free(&file);
    small_file(&file, 3);
    assert_true(file.length < 1000); /* a MiB of one byte */
    assert_int_equal(read_all(&file, &found, &totals, NULL), 0);
    assert_int_equal(totals.entries, 3);
    assert_true(totals.bytes > ARCHIVE_BLOCK_BYTES);
    bytes_free(&file);
    bytes_free(&found);
}

static void test_no_entry(void **state)
{
    struct bytes file = {0}, found = {0};
    struct archive_totals totals;
    struct archive_writer *writer = writer_of(&file, 0, 0);
    (void)state;
    assert_int_equal(archive_finish(writer, NULL), 0);
    archive_writer_destroy(writer);
    assert_int_equal(file.length, 2 * ARCHIVE_HEADER + ARCHIVE_END_BYTES);
    assert_int_equal(read_all(&file, &found, &totals, NULL), 0);
    assert_int_equal(totals.entries, 0);
    bytes_free(&file);
    bytes_free(&found);
}

/* Many blocks, keys and values of all bytes, both compressed and not. */
static void test_many_blocks(void **state)
{
    (void)state;
    for (int level = 0; level <= 1; level++) {
        struct bytes file = {0}, found = {0}, meant = {0};
        struct archive_writer *writer = writer_of(&file, ARCHIVE_ORDERED, level);
        static uint8_t value[3000];
        for (uint32_t i = 0; i < 2000; i++) {
            const uint8_t key[5] = {0, (uint8_t)(i >> 8), (uint8_t)i, 255, '\n'};
            for (size_t k = 0; k < sizeof value; k++)
                value[k] = (uint8_t)(k * i >> 3);
            const struct archive_entry entry = {.key = key,
                                                .key_length = sizeof key,
                                                .value = value,
                                                .value_length = i * 7 % sizeof value,
                                                .expires = i % 3 ? 0 : (uint64_t)i << 40};
            assert_int_equal(archive_add(writer, &entry, NULL), 0);
            bytes_visit(&meant, &entry, NULL);
        }
        assert_int_equal(archive_finish(writer, NULL), 0);
        archive_writer_destroy(writer);
        assert_int_equal(read_all(&file, &found, NULL, NULL), 0);
        assert_int_equal(found.length, meant.length);
        assert_memory_equal(found.start, meant.start, meant.length);
        bytes_free(&file);
        bytes_free(&found);
        bytes_free(&meant);
    }
}

static void test_each_bit_counts(void **state)
{
    struct bytes file = {0}, found = {0};
    (void)state;
    for (int level = 0; level <= 1; level++) {
        small_file(&file, level);
        for (size_t at = 0; at < file.length; at++)
            for (unsigned bit = 0; bit < 8; bit++) {
                struct error error = {0};
                file.start[at] ^= (uint8_t)(1u << bit);
                if (read_all(&file, &found, NULL, &error) == 0)
                    fail_msg("bit %u of byte %zu may be either", bit, at);
                assert_non_null(strstr(error.text, "file"));
                file.start[at] ^= (uint8_t)(1u << bit);
            }
        assert_int_equal(read_all(&file, &found, NULL, NULL), 0);
        bytes_free(&file);
    }
    bytes_free(&found);
}

static void test_each_length_counts(void **state)
{
    struct bytes file = {0}, found = {0};
    struct error error = {0};
    (void)state;
    small_file(&file, 0);
    const size_t whole = file.length;
    for (file.length = 0; file.length < whole; file.length++) {
        assert_int_equal(read_all(&file, &found, NULL, &error), BANYAN_ECORRUPT);
        assert_non_null(strstr(error.text, "the file ends here"));
    }
    bytes_add(&file, "x", 1);
    assert_int_equal(read_all(&file, &found, NULL, &error), BANYAN_ECORRUPT);
    assert_non_null(strstr(error.text, "something follows"));
    bytes_free(&file);
    bytes_free(&found);
}

/* What has the right checksum and makes no sense: another program may have written it. */
static void forge(struct bytes *file, size_t block, size_t at, uint32_t value)
{
    uint8_t *header = file->start + block;
    archive_put_u32(header + at, value);
    archive_put_u64(header + 24,
                    archive_block_hash(header, header + ARCHIVE_HEADER, archive_get_u32(header + 8)));
}

static void test_forged(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
        const char *part;
    } forgeries[] = {
        {0, 0x41414141, "no block begins here"}, {4, 1, "another block"},
        {12, 5, "a block's kind is impossible"}, {16, 4, "is none"},
        {16, 2, "bytes behind its entries"},     {16, UINT32_MAX, "lengths are impossible"},
        {20, 1, "unpacks to another length"},    {20, 2, "kind is impossible"},
    };
    struct bytes file = {0}, found = {0};
    struct error error = {0};
    (void)state;
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        small_file(&file, 0);
        forge(&file, ARCHIVE_HEADER, forgeries[i].at, forgeries[i].value);
        assert_int_equal(read_all(&file, &found, NULL, &error), BANYAN_ECORRUPT);
        if (!strstr(error.text, forgeries[i].part))
            fail_msg("'%s' is not '%s'", error.text, forgeries[i].part);
        bytes_free(&file);
    }
    small_file(&file, 0);
    const size_t end = file.length - ARCHIVE_HEADER - ARCHIVE_END_BYTES;
    file.start[end + ARCHIVE_HEADER]++;
    forge(&file, end, 8, ARCHIVE_END_BYTES);
    assert_int_equal(read_all(&file, &found, NULL, &error), BANYAN_ECORRUPT);
    assert_non_null(strstr(error.text, "speaks of 4 entries, and 3 stand in it"));
    bytes_free(&file);
    small_file(&file, 0);
    archive_put_u32(file.start + 8, 2);
    archive_put_u64(file.start + 24, archive_header_hash(file.start));
    assert_int_equal(read_all(&file, &found, NULL, &error), BANYAN_EVERSION);
    assert_non_null(strstr(error.text, "version 2"));
    bytes_free(&file);
    bytes_free(&found);
}

static void test_order(void **state)
{
    static const char *const wrong[][2] = {{"b", "a"}, {"b", "b"}, {"ab", "a"}};
    struct bytes file = {0}, found = {0};
    struct error error = {0};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        const struct archive_entry first = entry_of(wrong[i][0], "1", 0),
                                   second = entry_of(wrong[i][1], "2", 0);
        struct archive_writer *writer = writer_of(&file, ARCHIVE_ORDERED, 0);
        assert_int_equal(archive_add(writer, &first, NULL), 0);
        assert_int_equal(archive_add(writer, &second, &error), BANYAN_EINVAL);
        archive_writer_destroy(writer);
        bytes_free(&file);
        writer = writer_of(&file, 0, 0);
        assert_int_equal(archive_add(writer, &first, NULL), 0);
        assert_int_equal(archive_add(writer, &second, NULL), 0);
        assert_int_equal(archive_finish(writer, NULL), 0);
        archive_writer_destroy(writer);
        assert_int_equal(read_all(&file, &found, NULL, NULL), 0);
        archive_put_u32(file.start + 12, ARCHIVE_ORDERED); /* a file that claims the order that it has not */
        archive_put_u64(file.start + 24, archive_header_hash(file.start));
        assert_int_equal(read_all(&file, &found, NULL, &error), BANYAN_ECORRUPT);
        assert_non_null(strstr(error.text, "does not follow"));
        bytes_free(&file);
    }
    bytes_free(&found);
}

static int refuse(void *context, const struct archive_entry *entry, struct error *error)
{
    (void)entry;
    return ++*(unsigned *)context == 2 ? error_set(error, BANYAN_ENET, "no more") : 0;
}

static int refuse_bytes(void *context, const void *bytes, size_t length, struct error *error)
{
    (void)bytes;
    return (*(size_t *)context += length) > 40 ? error_set(error, BANYAN_EINVAL, "full") : 0;
}

static void test_refusals_pass_through(void **state)
{
    struct bytes file = {0};
    struct source source;
    struct error error = {0};
    struct archive_writer *writer;
    unsigned seen = 0;
    size_t written = 0;
    const struct archive_entry entry = entry_of("key", "value", 0), empty = entry_of("", "value", 0);
    (void)state;
    small_file(&file, 0);
    source_memory(&source, "file", file.start, file.length);
    assert_int_equal(archive_read(&source, refuse, &seen, NULL, &error), BANYAN_ENET);
    assert_int_equal(seen, 2);
    bytes_free(&file);
    assert_int_equal(archive_writer_create(&writer, 0, CREATED, 0, refuse_bytes, &written, NULL), 0);
    assert_int_equal(archive_add(writer, &empty, &error), BANYAN_EINVAL);
    assert_int_equal(archive_add(writer, &entry, NULL), 0);
    assert_int_equal(archive_finish(writer, &error), BANYAN_EINVAL);
    assert_string_equal(error.text, "full");
    archive_writer_destroy(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_is_read),
        cmocka_unit_test(test_no_entry),
        cmocka_unit_test(test_many_blocks),
        cmocka_unit_test(test_each_bit_counts),
        cmocka_unit_test(test_each_length_counts),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_refusals_pass_through),
    };
    return cmocka_run_group_tests_name("files of keys", tests, NULL, NULL);
}
