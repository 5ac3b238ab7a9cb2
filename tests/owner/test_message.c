/* test_message.c - what compute nodes say to each other: written and read back, filled up to the last byte,
 * cut off at every byte, and with every byte another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "owner/message.h"
#include "owner/part.h"

static const uint8_t letters[255 + 3] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 0, 255};

static const struct owner_item items[] = {
    {.kind = OWNER_ITEM_LOOKUP, .key = letters, .key_length = 8},
    {.kind = OWNER_ITEM_LOOKUP, .key = letters, .key_length = 0},
    {.kind = OWNER_ITEM_BORDER, .key = letters, .key_length = 255},
    {.kind = OWNER_ITEM_SETTLED, .key = letters, .key_length = 3},
    {.kind = OWNER_ITEM_MOVE, .key = letters, .key_length = 0, .value = letters, .length = OWNER_MOVE_BYTES},
    {.kind = OWNER_ITEM_EXCHANGE, .key = letters, .key_length = 1, .value = letters, .length = 0},
    {.kind = OWNER_ITEM_EXCHANGE,
     .key = letters,
     .key_length = 2,
     .expect = TREE_EXPECT_NOTHING,
     .value = letters,
     .length = 255},
    {.kind = OWNER_ITEM_EXCHANGE, .key = letters, .key_length = 3, .expect = TREE_EXPECT_SOMETHING},
    {.kind = OWNER_ITEM_EXCHANGE,
     .key = letters,
     .key_length = 4,
     .expect = TREE_EXPECT_VALUE,
     .expected = letters + 3,
     .expected_length = 255,
     .value = letters + 1,
     .length = 9},
};
#define ITEMS (sizeof items / sizeof items[0])

static const struct owner_answer answers[] = {
    {.status = 0, .existed = true, .value = letters, .length = 255},
    {.status = 0, .existed = true, .replaced = true, .value = letters, .length = 0},
    {.status = 0},
    {.status = 0, .replaced = true},
    {.status = BANYAN_ECONFLICT, .existed = true, .value = letters + 1, .length = 4},
    {.status = ERROR_CODE_LOWEST},
};
#define ANSWERS (sizeof answers / sizeof answers[0])

static void same(const void *a, size_t a_length, const void *b, size_t b_length)
{
    assert_int_equal(a_length, b_length);
    if (a_length)
        assert_memory_equal(a, b, a_length);
}

static size_t write_request(uint8_t *bytes, size_t capacity)
{
    struct owner_writer writer;
    owner_request_begin(&writer, bytes, capacity, 0x1234, 77, 78);
    for (size_t i = 0; i < ITEMS; i++)
        assert_true(owner_request_add(&writer, &items[i]));
    return writer.length;
}

static size_t write_reply(uint8_t *bytes, size_t capacity)
{
    struct owner_writer writer;
    owner_reply_begin(&writer, bytes, capacity, UINT64_MAX);
    for (size_t i = 0; i < ANSWERS; i++)
        assert_true(owner_reply_add(&writer, &answers[i]));
    return writer.length;
}

static void test_round_trip(void **state)
{
    uint8_t bytes[4096];
    struct owner_reader reader;
    struct owner_item item;
    struct owner_answer answer;
    assert_int_equal(owner_request_open(&reader, bytes, write_request(bytes, sizeof bytes)), 0);
    assert_int_equal(reader.number, 0x1234);
    assert_int_equal(reader.version, 77);
    assert_int_equal(reader.given_up, 78);
    for (size_t i = 0; i < ITEMS; i++) {
        assert_int_equal(owner_request_next(&reader, &item), 0);
        assert_int_equal(item.kind, items[i].kind);
        assert_int_equal(item.expect, items[i].expect);
        same(item.key, item.key_length, items[i].key, items[i].key_length);
        same(item.expected, item.expected_length, items[i].expected, items[i].expected_length);
        assert_int_equal(item.value != NULL, items[i].value != NULL);
        same(item.value, item.length, items[i].value, items[i].length);
    }
    assert_int_equal(owner_request_next(&reader, &item), BANYAN_ENOTFOUND);

    assert_int_equal(owner_reply_open(&reader, bytes, write_reply(bytes, sizeof bytes)), 0);
    assert_true(reader.version == UINT64_MAX);
    for (size_t i = 0; i < ANSWERS; i++) {
        assert_int_equal(owner_reply_next(&reader, &answer), 0);
        assert_int_equal(answer.status, answers[i].status);
        assert_int_equal(answer.existed, answers[i].existed);
        assert_int_equal(answer.replaced, answers[i].replaced);
        same(answer.value, answer.length, answers[i].value, answers[i].length);
    }
    assert_int_equal(owner_reply_next(&reader, &answer), BANYAN_ENOTFOUND);
}

/* Reads to the end; the status there. Everything that an item names lies in the bytes. */
static int read_request(const uint8_t *bytes, size_t length)
{
    struct owner_reader reader;
    struct owner_item item;
    int status = owner_request_open(&reader, bytes, length);
    while (!status) {
        status = owner_request_next(&reader, &item);
        if (!status) {
            const uint8_t *key = item.key, *expected = item.expected, *value = item.value;
            assert_true(key >= bytes && key + item.key_length <= bytes + length);
            assert_true(expected >= bytes && expected + item.expected_length <= bytes + length);
            assert_true(!value || (value >= bytes && value + item.length <= bytes + length));
        }
    }
    return status;
}

static int read_reply(const uint8_t *bytes, size_t length)
{
    struct owner_reader reader;
    struct owner_answer answer;
    int status = owner_reply_open(&reader, bytes, length);
    while (!status) {
        status = owner_reply_next(&reader, &answer);
        if (!status)
            assert_true(answer.value >= bytes && answer.value + answer.length <= bytes + length &&
                        answer.status <= 0 && answer.status >= ERROR_CODE_LOWEST);
    }
    return status;
}

static void test_cut_off(void **state)
{
    uint8_t bytes[4096];
    size_t length = write_request(bytes, sizeof bytes);
    for (size_t shorter = 0; shorter < length; shorter++) {
        uint8_t *copy = malloc(shorter + 1); /* so that a step beyond is seen */
        memcpy(copy, bytes, shorter);
        assert_int_equal(read_request(copy, shorter), BANYAN_EINVAL);
        free(copy);
    }
    assert_int_equal(read_request(bytes, length), BANYAN_ENOTFOUND);
    bytes[length] = 0;
    assert_int_equal(read_request(bytes, length + 1), BANYAN_EINVAL); /* something follows the last */
    length = write_reply(bytes, sizeof bytes);
    for (size_t shorter = 0; shorter < length; shorter++)
        assert_int_equal(read_reply(bytes, shorter), BANYAN_EINVAL);
    assert_int_equal(read_reply(bytes, length), BANYAN_ENOTFOUND);
}

static void test_changed_bytes(void **state)
{
    uint8_t bytes[4096];
    size_t length = write_request(bytes, sizeof bytes);
    for (size_t at = 0; at < length; at++)
        for (unsigned byte = 0; byte < 256; byte++) {
            uint8_t before = bytes[at];
            bytes[at] = (uint8_t)byte;
            int status = read_request(bytes, length);
            assert_true(status == BANYAN_EINVAL || status == BANYAN_ENOTFOUND ||
                        (status == BANYAN_EVERSION && at == 1));
            assert_int_equal(at != 0 || byte == 'o' || status == BANYAN_EINVAL, 1);
            bytes[at] = before;
        }
    length = write_reply(bytes, sizeof bytes);
    for (size_t at = 0; at < length; at++)
        for (unsigned byte = 0; byte < 256; byte++) {
            uint8_t before = bytes[at];
            bytes[at] = (uint8_t)byte;
            int status = read_reply(bytes, length);
            assert_true(status == BANYAN_EINVAL || status == BANYAN_ENOTFOUND ||
                        (status == BANYAN_EVERSION && at == 1));
            bytes[at] = before;
        }
}

/* As many of the largest as a request takes get answers that fit a reply. */
static void test_full(void **state)
{
    uint8_t *bytes = malloc(FABRIC_PEER_BYTES_MAX);
    struct owner_writer writer;
    const struct owner_item large = {.kind = OWNER_ITEM_EXCHANGE,
                                     .key = letters,
                                     .key_length = 255,
                                     .expect = TREE_EXPECT_VALUE,
                                     .expected = letters,
                                     .expected_length = 255,
                                     .value = letters,
                                     .length = 255};
    owner_request_begin(&writer, bytes, FABRIC_PEER_BYTES_MAX, 1, 1, 1);
    while (owner_request_add(&writer, &large))
        ;
    assert_int_equal(writer.items, OWNER_MESSAGE_ITEMS);
    assert_int_equal(read_request(bytes, writer.length), BANYAN_ENOTFOUND);
    owner_request_begin(&writer, bytes, 1000, 1, 1, 1);
    assert_true(owner_request_add(&writer, &large));
    assert_false(owner_request_add(&writer, &large));
    assert_int_equal(read_request(bytes, writer.length), BANYAN_ENOTFOUND);
    owner_reply_begin(&writer, bytes, OWNER_REPLY_BYTES, 1);
    for (unsigned i = 0; i < OWNER_MESSAGE_ITEMS; i++)
        assert_true(owner_reply_add(&writer, &answers[0]));
    assert_false(owner_reply_add(&writer, &answers[0]));
    assert_int_equal(read_reply(bytes, writer.length), BANYAN_ENOTFOUND);
    free(bytes);
}

/* ---- parts of scans ---- */

static void same_range(const struct tree_range *a, const struct tree_range *b)
{
    assert_int_equal(a->from != NULL, b->from != NULL);
    assert_int_equal(a->to != NULL, b->to != NULL);
    if (a->from)
        same(a->from, a->from_length, b->from, b->from_length);
    if (a->to)
        same(a->to, a->to_length, b->to, b->to_length);
    assert_int_equal(a->from_open, b->from_open);
    assert_int_equal(a->to_open, b->to_open);
    assert_int_equal(a->reverse, b->reverse);
    assert_int_equal(a->limit, b->limit);
}

static void test_part_requests(void **state)
{
    static const struct tree_range ranges[] = {
        {.limit = 0},
        {.from = letters, .from_length = 8, .limit = UINT32_MAX},
        {.from = letters, .from_length = 255, .from_open = true, .to = letters + 1, .to_length = 255},
        {.to = letters, .to_length = 0, .to_open = true, .reverse = true, .limit = 1},
        {.from = letters, .from_length = 0, .to = letters + 2, .to_length = 3, .reverse = true},
    };
    uint8_t bytes[OWNER_PART_REQUEST_BYTES];
    struct owner_part_request back;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const struct owner_part_request request = {.number = 0x4321, .version = 99, .range = ranges[i]};
        size_t length = owner_part_request_write(bytes, &request);
        assert_int_equal(owner_part_request_read(bytes, length, &back), 0);
        assert_int_equal(back.number, 0x4321);
        assert_int_equal(back.version, 99);
        same_range(&back.range, &ranges[i]);
        for (size_t cut = 0; cut < length; cut++)
            assert_int_equal(owner_part_request_read(bytes, cut, &back), BANYAN_EINVAL);
        static const uint8_t never[] = {0, 5, 20, 21, 22, 23}; /* of the header: whatever else they say */
        for (size_t at = 0; at < sizeof never; at++) {
            bytes[never[at]] ^= 0x80;
            assert_int_equal(owner_part_request_read(bytes, length, &back), BANYAN_EINVAL);
            bytes[never[at]] ^= 0x80;
        }
        bytes[1]++;
        assert_int_equal(owner_part_request_read(bytes, length, &back), BANYAN_EVERSION);
    }
    /* Open ends of bounds that there are not, and limits that the message has no room for. */
    struct owner_part_request request = {.range = {.limit = UINT64_C(1) << 32}};
    size_t length = owner_part_request_write(bytes, &request);
    assert_int_equal(owner_part_request_read(bytes, length, &back), 0);
    assert_int_equal(back.range.limit, 0);
    bytes[4] = 4;
    assert_int_equal(owner_part_request_read(bytes, length, &back), BANYAN_EINVAL);
    bytes[4] = 16;
    assert_int_equal(owner_part_request_read(bytes, length, &back), BANYAN_EINVAL);
}

/* A reply of these one-byte keys, which says that `next` is due, or that the range ended. */
static size_t write_part(uint8_t *bytes, const char *keys, const char *next)
{
    struct owner_part_writer writer;
    struct tree_scan_end end = {.ended = !next};
    owner_part_begin(&writer, bytes);
    for (; *keys; keys++)
        assert_true(owner_part_add(&writer, keys, 1, letters, (size_t)*keys % 5));
    if (next)
        format_key_store(&end.next, (struct format_key){(const uint8_t *)next, (uint32_t)strlen(next)});
    owner_part_end(&writer, 0, &end, 7);
    return writer.length;
}

static int read_part(const char *keys, const char *next, const struct tree_range *asked)
{
    static uint8_t bytes[OWNER_PART_BYTES];
    struct owner_part_reader reader;
    struct format_key key, value;
    size_t length = write_part(bytes, keys, next), count = 0;
    int status = owner_part_open(&reader, bytes, length, asked);
    if (status)
        return status;
    assert_int_equal(reader.version, 7);
    for (; owner_part_next(&reader, &key, &value); count++) {
        same(key.bytes, key.length, &keys[count], 1);
        same(value.bytes, value.length, letters, (size_t)keys[count] % 5);
    }
    assert_int_equal(count, strlen(keys));
    assert_int_equal(reader.end.ended, !next);
    if (next)
        same(reader.end.next.bytes, reader.end.next.length, next, strlen(next));
    for (size_t cut = 0; cut < length; cut++)
        assert_int_not_equal(owner_part_open(&reader, bytes, cut, asked), 0);
    bytes[length] = 0;
    assert_int_equal(owner_part_open(&reader, bytes, length + 1, asked), BANYAN_EINVAL);
    return 0;
}

static void test_parts(void **state)
{
    const struct tree_range all = {0}, back = {.reverse = true},
                            some = {.from = "c", .from_length = 1, .to = "m", .to_length = 1, .limit = 4},
                            open = {.from = "c",
                                    .from_length = 1,
                                    .from_open = true,
                                    .to = "m",
                                    .to_length = 1,
                                    .to_open = true,
                                    .reverse = true};
    assert_int_equal(read_part("", NULL, &all), 0);
    assert_int_equal(read_part("abz", NULL, &all), 0);
    assert_int_equal(read_part("abz", "z0", &all), 0);
    assert_int_equal(read_part("zba", "a", &back), 0);
    assert_int_equal(read_part("", "x", &back), 0);
    assert_int_equal(read_part("cdem", NULL, &some), 0);
    assert_int_equal(read_part("", "d", &some), 0);
    assert_int_equal(read_part("ld", "d", &open), 0);
    /* not in order, or twice */
    assert_int_equal(read_part("ba", NULL, &all), BANYAN_EINVAL);
    assert_int_equal(read_part("aa", NULL, &all), BANYAN_EINVAL);
    assert_int_equal(read_part("ab", NULL, &back), BANYAN_EINVAL);
    /* not in the range, or more than were asked for */
    assert_int_equal(read_part("bd", NULL, &some), BANYAN_EINVAL);
    assert_int_equal(read_part("dn", NULL, &some), BANYAN_EINVAL);
    assert_int_equal(read_part("defgh", NULL, &some), BANYAN_EINVAL);
    assert_int_equal(read_part("md", NULL, &open), BANYAN_EINVAL);
    assert_int_equal(read_part("dc", NULL, &open), BANYAN_EINVAL);
    /* what is due next leaves something out, was there already, or is where the asker is */
    assert_int_equal(read_part("ab", "b", &all), BANYAN_EINVAL);
    assert_int_equal(read_part("ab", "a", &all), BANYAN_EINVAL);
    assert_int_equal(read_part("ba", "a0", &back), BANYAN_EINVAL);
    assert_int_equal(read_part("", "c", &some), BANYAN_EINVAL);
    assert_int_equal(read_part("", "m", &open), BANYAN_EINVAL);
    assert_int_equal(read_part("", "", &all), BANYAN_EINVAL);
}

/* Filled up to the last entry there is room for; and an error, which tells nothing else. */
static void test_part_limits(void **state)
{
    static uint8_t bytes[OWNER_PART_BYTES];
    const struct tree_range all = {0};
    struct owner_part_writer writer;
    struct owner_part_reader reader;
    struct tree_scan_end end = {.next = {.length = FORMAT_KEY_MAX}};
    uint8_t key[FORMAT_KEY_MAX] = {0};
    memset(end.next.bytes, 255, FORMAT_KEY_MAX);
    owner_part_begin(&writer, bytes);
    unsigned count = 0;
    for (;; count++) {
        key[0] = (uint8_t)(count >> 8);
        key[1] = (uint8_t)count;
        if (!owner_part_add(&writer, key, sizeof key, letters, 255))
            break;
    }
    assert_int_equal(count, (OWNER_PART_BYTES - 16 - FORMAT_KEY_MAX) / (2 + 2 * 255));
    owner_part_end(&writer, 0, &end, UINT64_MAX);
    assert_in_range(writer.length, 0, OWNER_PART_BYTES);
    assert_int_equal(owner_part_open(&reader, bytes, writer.length, &all), 0);
    assert_int_equal(reader.entries, count);
    owner_part_end(&writer, BANYAN_EFENCED, &end, 8);
    assert_int_equal(writer.length, 16);
    assert_int_equal(owner_part_open(&reader, bytes, writer.length, &all), 0);
    assert_int_equal(reader.status, BANYAN_EFENCED);
    assert_int_equal(reader.entries, 0);
    assert_int_equal(reader.version, 8);
    static const uint8_t others[][2] = {{0, 's'}, {2, 1}, {2, 128}, {3, 1}, {3, 2}, {4, 1}, {6, 1}, {7, 1}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        uint8_t was = bytes[others[i][0]];
        bytes[others[i][0]] = others[i][1];
        assert_int_equal(owner_part_open(&reader, bytes, writer.length, &all), BANYAN_EINVAL);
        bytes[others[i][0]] = was;
    }
    bytes[1]++;
    assert_int_equal(owner_part_open(&reader, bytes, writer.length, &all), BANYAN_EVERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_changed_bytes), cmocka_unit_test(test_full),
        cmocka_unit_test(test_part_requests), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_part_limits),
    };
    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
