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

static const uint8_t letters[255 + 3] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 0, 255};

static const struct owner_item items[] = {
    {.kind = OWNER_ITEM_LOOKUP, .key = letters, .key_length = 8},
    {.kind = OWNER_ITEM_LOOKUP, .key = letters, .key_length = 0},
    {.kind = OWNER_ITEM_BORDER, .key = letters, .key_length = 255},
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
    {.status = 0, .existed = true, .value = letters, .length = 0},
    {.status = 0},
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
    owner_request_begin(&writer, bytes, capacity, 0x1234, 77);
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
    owner_request_begin(&writer, bytes, FABRIC_PEER_BYTES_MAX, 1, 1);
    while (owner_request_add(&writer, &large))
        ;
    assert_int_equal(writer.items, OWNER_MESSAGE_ITEMS);
    assert_int_equal(read_request(bytes, writer.length), BANYAN_ENOTFOUND);
    owner_request_begin(&writer, bytes, 1000, 1, 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_changed_bytes),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
