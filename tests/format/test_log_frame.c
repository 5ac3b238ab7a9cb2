/* test_log_frame.c - an owner's log: entries and frames that were encoded come back, and impossible ones do
 * not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "format/log.h"

#define NONCE UINT64_C(0x1122334455667788)

static void assert_entry(const struct format_log_entry *a, const struct format_log_entry *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->index, b->index);
    assert_true(a->epoch == b->epoch && a->sequence == b->sequence);
    assert_int_equal(format_key_compare(a->key, b->key), 0);
    assert_int_equal(a->value_length, b->value_length);
    if (a->value_length)
        assert_memory_equal(a->value, b->value, a->value_length);
}

/* A segment with one frame in it. */
struct one {
    struct format_log_segment segment;
    uint8_t bytes[FORMAT_LOG_BLOCK + FORMAT_LOG_FRAME_MAX];
    struct format_log_view view;
};

static void one_seal(struct one *one, struct format_log_frame *frame)
{
    one->segment = (struct format_log_segment){
        .owner = {7, 3}, .nonce = NONCE, .size = FORMAT_LOG_BLOCK + FORMAT_LOG_FRAME_MAX};
    uint32_t bytes = format_log_frame_seal(frame, NONCE, FORMAT_LOG_BLOCK, FORMAT_LOG_BLOCK);
    assert_int_equal(bytes, format_log_frame_bytes(frame));
    assert_int_equal(bytes % FORMAT_LOG_BLOCK, 0);
    assert_true(bytes >= frame->used && bytes < frame->used + FORMAT_LOG_BLOCK);
    for (uint32_t i = frame->used; i < bytes; i++)
        assert_int_equal(frame->bytes[i], 0);
    memcpy(one->bytes + FORMAT_LOG_BLOCK, frame->bytes, bytes);
    assert_int_equal(format_log_frame_find(&one->segment, one->bytes, FORMAT_LOG_BLOCK, &one->view),
                     FORMAT_LOG_WHOLE);
    assert_int_equal(one->view.bytes, bytes);
    assert_int_equal(one->view.count, frame->count);
    assert_int_equal(one->view.committed, FORMAT_LOG_BLOCK);
}

static uint8_t buffer[FORMAT_LOG_FRAME_MAX];
static struct one one;

/* All kinds; keys and values of no byte and of the most; the extremes of the numbers. */
static void test_entries(void **state)
{
    static uint8_t long_key[FORMAT_KEY_MAX], long_value[FORMAT_VALUE_MAX];
    memset(long_key, 254, sizeof long_key);
    memset(long_value, 255, sizeof long_value);
    const struct format_key none = {long_key, 0}, one_byte = {long_key, 1}, all = {long_key, FORMAT_KEY_MAX};
    const struct format_log_entry entries[] = {
        {.kind = FORMAT_LOG_PUT, .sequence = 1u << 31, .key = none, .value = long_value},
        {.kind = FORMAT_LOG_PUT,
         .index = 65535,
         .epoch = UINT64_MAX,
         .sequence = 1,
         .key = all,
         .value = long_value,
         .value_length = 255},
        {.kind = FORMAT_LOG_PUT,
         .index = 1,
         .sequence = UINT32_MAX,
         .key = one_byte,
         .value = long_value,
         .value_length = 1},
        {.kind = FORMAT_LOG_DELETE, .index = 2, .epoch = 1, .sequence = 2, .key = all},
        {.kind = FORMAT_LOG_DELETE, .index = 3, .epoch = 2, .sequence = 3, .key = none},
    };
    const uint32_t count = sizeof entries / sizeof entries[0];
    struct format_log_frame frame;
    format_log_frame_begin(&frame, buffer, sizeof buffer);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t used = frame.used;
        assert_true(format_log_frame_add(&frame, &entries[i]));
        assert_int_equal(frame.used, used + format_log_entry_bytes(&entries[i]));
        assert_true(format_log_entry_bytes(&entries[i]) <= FORMAT_LOG_ENTRY_MAX);
    }
    assert_true(frame.first == entries[0].sequence && frame.last == UINT32_MAX);
    one_seal(&one, &frame);
    struct format_log_entry back;
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(format_log_frame_next(&one.view, &at, &back));
        assert_entry(&back, &entries[i]);
    }
    assert_false(format_log_frame_next(&one.view, &at, &back));
}

/* Frames of every length up to two blocks, full ones, and one without entries. */
static void test_frame_lengths(void **state)
{
    static uint8_t value[FORMAT_VALUE_MAX];
    struct format_log_entry entry = {.kind = FORMAT_LOG_PUT,
                                     .sequence = 9,
                                     .key = {value, 3},
                                     .value = value},
                            back;
    struct format_log_frame frame;
    for (uint32_t length = 0; length <= 140; length++) {
        uint32_t at = 0;
        entry.value_length = (uint8_t)length;
        memset(buffer, 0xee, sizeof buffer);
        format_log_frame_begin(&frame, buffer, sizeof buffer);
        assert_true(format_log_frame_add(&frame, &entry));
        one_seal(&one, &frame);
        assert_true(format_log_frame_next(&one.view, &at, &back));
        assert_entry(&back, &entry);
    }
    format_log_frame_begin(&frame, buffer, FORMAT_LOG_BLOCK);
    one_seal(&one, &frame);
    assert_int_equal(one.view.bytes, FORMAT_LOG_BLOCK);
    /* as many as fit, in rooms of every size of some blocks, and in the greatest */
    for (uint32_t room = FORMAT_LOG_BLOCK; room <= FORMAT_LOG_FRAME_MAX;
         room = room < 1024 ? room + 64 : room * 2) {
        uint32_t count = 0;
        entry.value_length = 5;
        format_log_frame_begin(&frame, buffer, room);
        while (format_log_frame_add(&frame, &entry))
            count++;
        assert_int_equal(count, (room - FORMAT_LOG_FRAME_BYTES) / 25);
        one_seal(&one, &frame);
        assert_int_equal(one.view.bytes, (FORMAT_LOG_FRAME_BYTES + 25 * count + 63) / 64 * 64);
        assert_true(one.view.bytes <= room);
    }
}

/* Sequences that are too far from the first one do not go into the frame, and change nothing in it. */
static void test_far_sequences(void **state)
{
    uint8_t value[1] = {1};
    struct format_log_entry entry = {.kind = FORMAT_LOG_PUT,
                                     .sequence = UINT64_C(1) << 40,
                                     .key = {value, 1},
                                     .value = value},
                            back;
    struct format_log_frame frame, before;
    uint32_t at = 0;
    format_log_frame_begin(&frame, buffer, sizeof buffer);
    assert_true(format_log_frame_add(&frame, &entry));
    before = frame;
    entry.sequence += UINT64_C(1) << 31;
    assert_false(format_log_frame_add(&frame, &entry));
    entry.sequence = (UINT64_C(1) << 40) - (UINT64_C(1) << 31);
    assert_false(format_log_frame_add(&frame, &entry));
    assert_memory_equal(&frame, &before, sizeof frame);
    entry.sequence++;
    assert_true(format_log_frame_add(&frame, &entry));
    one_seal(&one, &frame);
    assert_true(format_log_frame_next(&one.view, &at, &back) && format_log_frame_next(&one.view, &at, &back));
    assert_entry(&back, &entry);
}

/* Entries that no owner writes, with checks that fit. */
static void test_entries_impossible(void **state)
{
    uint8_t value[8] = "abcdefgh";
    const struct format_log_entry entries[] = {
        {.kind = FORMAT_LOG_PUT, .sequence = 1, .key = {value, 2}, .value = value + 1, .value_length = 3},
        {.kind = FORMAT_LOG_DELETE, .sequence = 1, .key = {value, 2}}};
    const struct {
        uint32_t entry, at;
        uint8_t value;
        bool possible;
    } forged[] = {
        {1, 0, FORMAT_LOG_DELETE, true},
        {1, 0, FORMAT_LOG_PUT, true},
        {1, 0, 0, false},
        {1, 0, FORMAT_LOG_KINDS, false},
        {1, 0, FORMAT_LOG_PUT | 128, false},
        {1, 0, FORMAT_LOG_DELETE | 128, false},
        {1, 0, 127, false},
        {1, 14, 128, false}, /* a sequence below 1 */
        {1, 15, 3, false},
        {1, 15, 1, false},
        {1, 16, 1, false},
        {0, 0, FORMAT_LOG_KINDS, false},
        {0, 0, FORMAT_LOG_DELETE, false},
        {0, 0, FORMAT_LOG_PUT, true},
    };
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        struct format_log_frame frame;
        format_log_frame_begin(&frame, buffer, sizeof buffer);
        assert_true(format_log_frame_add(&frame, &entries[forged[i].entry]));
        buffer[FORMAT_LOG_FRAME_BYTES + forged[i].at] = forged[i].value;
        uint32_t bytes = format_log_frame_seal(&frame, NONCE, FORMAT_LOG_BLOCK, 0);
        one.segment = (struct format_log_segment){
            .owner = {7, 3}, .nonce = NONCE, .size = FORMAT_LOG_BLOCK + FORMAT_LOG_FRAME_MAX};
        memcpy(one.bytes + FORMAT_LOG_BLOCK, buffer, bytes);
        assert_int_equal(format_log_frame_find(&one.segment, one.bytes, FORMAT_LOG_BLOCK, &one.view),
                         forged[i].possible ? FORMAT_LOG_WHOLE : FORMAT_LOG_TORN);
    }
}

/* Where the other copy lies stands in the frame, as it was given. */
static void test_other_copy(void **state)
{
    const struct format_log_other others[] = {{.nonce = 0},
                                              {.nonce = 1, .position = FORMAT_LOG_BLOCK},
                                              {.nonce = UINT64_MAX,
                                               .number = UINT64_MAX,
                                               .position = FORMAT_LOG_SEGMENT_MAX - FORMAT_LOG_BLOCK,
                                               .before = FORMAT_LOG_SEGMENT_MAX},
                                              {.nonce = NONCE, .number = 7, .position = 640, .before = 0}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct format_log_frame frame;
        format_log_frame_begin(&frame, buffer, sizeof buffer);
        frame.other = others[i];
        one_seal(&one, &frame);
        assert_memory_equal(&one.view.other, &others[i], sizeof others[i]);
    }
}

/* Headers with right checks and impossible values. */
static void test_frame_impossible(void **state)
{
    const struct {
        uint32_t at, value;
    } forged[] = {{20, 0},
                  {20, FORMAT_LOG_FRAME_BYTES - 1},
                  {20, FORMAT_LOG_FRAME_MAX + 1},
                  {20, UINT32_MAX},
                  {24, 3 * FORMAT_LOG_BLOCK},
                  {24, 63},
                  {24, UINT32_MAX - 63},
                  {40, 1}, /* another copy at the place of the segment's header */
                  {48, 1}, /* one without a segment */
                  {56, 64},
                  {60, 64}};
    struct format_log_frame frame;
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        uint32_t position = 2 * FORMAT_LOG_BLOCK;
        format_log_frame_begin(&frame, buffer, FORMAT_LOG_BLOCK);
        format_log_frame_seal(&frame, NONCE, position, 0);
        memcpy(buffer + forged[i].at, &forged[i].value, 4);
        uint32_t crc = crc32c(0, buffer + 4, FORMAT_LOG_FRAME_BYTES - 4);
        memcpy(buffer, &crc, 4);
        memcpy(one.bytes + position, buffer, FORMAT_LOG_BLOCK);
        one.segment = (struct format_log_segment){.owner = {7, 3}, .nonce = NONCE, .size = sizeof one.bytes};
        assert_int_equal(format_log_frame_find(&one.segment, one.bytes, position, &one.view),
                         FORMAT_LOG_NOTHING);
    }
    /* beyond the end of the segment */
    struct format_log_entry entry = {.kind = FORMAT_LOG_DELETE, .sequence = 5, .key = {one.bytes, 200}};
    format_log_frame_begin(&frame, buffer, 1024);
    assert_true(format_log_frame_add(&frame, &entry));
    memcpy(one.bytes + FORMAT_LOG_BLOCK, buffer, format_log_frame_seal(&frame, NONCE, FORMAT_LOG_BLOCK, 0));
    one.segment.size = FORMAT_LOG_BLOCK + format_log_frame_bytes(&frame);
    assert_int_equal(format_log_frame_find(&one.segment, one.bytes, FORMAT_LOG_BLOCK, &one.view),
                     FORMAT_LOG_WHOLE);
    one.segment.size -= FORMAT_LOG_BLOCK;
    assert_int_equal(format_log_frame_find(&one.segment, one.bytes, FORMAT_LOG_BLOCK, &one.view),
                     FORMAT_LOG_NOTHING);
}

/* Records of any lengths, longer than a carrier, come back in parts that follow each other; no flipped bit is
 * believed; and the frame behind them is none of theirs. */
static void test_carriers(void **state)
{
    static uint8_t segment_bytes[512 << 10], carried[512 << 10], record[90000];
    const uint32_t lengths[] = {1, 60, 63, 64, 65, 1000, 65300, 65448, 65449, 65536, 90000};
    const struct format_log_segment segment = {.nonce = NONCE, .size = sizeof segment_bytes};
    struct format_log_carriers counted = {.bytes = NULL}, made = {.bytes = carried};
    uint32_t at = FORMAT_LOG_BLOCK, done = 0, offset = 0;
    (void)state;
    for (uint32_t i = 0; i < sizeof record; i++)
        record[i] = (uint8_t)(i * 7 + i / 251);
    for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        format_log_carriers_add(&counted, gaddr_make(1, 64 * (i + 1)), NULL, lengths[i]);
        format_log_carriers_add(&made, gaddr_make(1, 64 * (i + 1)), record, lengths[i]);
    }
    const uint32_t bytes = format_log_carriers_end(&counted);
    assert_int_equal(bytes, format_log_carriers_end(&made));
    assert_int_equal(bytes % FORMAT_LOG_BLOCK, 0);
    format_log_carriers_seal(&made, NONCE, FORMAT_LOG_BLOCK, FORMAT_LOG_BLOCK, 77);
    memcpy(segment_bytes + FORMAT_LOG_BLOCK, carried, bytes);
    while (at < FORMAT_LOG_BLOCK + bytes) {
        struct format_log_view view;
        struct format_log_part part;
        uint32_t in = 0;
        assert_int_equal(format_log_frame_find(&segment, segment_bytes, at, &view), FORMAT_LOG_WHOLE);
        assert_int_equal(view.count + view.length, 0);
        assert_int_equal(view.first, 77);
        assert_true(view.parts && view.bytes <= FORMAT_LOG_FRAME_MAX);
        while (format_log_part_next(&view, &in, &part)) {
            assert_int_equal(part.address, gaddr_make(1, 64 * (done + 1)));
            assert_int_equal(part.offset, offset);
            assert_int_equal(part.whole, lengths[done]);
            assert_memory_equal(part.bytes, record + offset, part.length);
            offset += part.length;
            if (offset == lengths[done]) {
                done++;
                offset = 0;
            }
        }
        assert_int_equal(in, view.parts_bytes);
        segment_bytes[at + 64 + in / 2] ^= 4;
        assert_int_equal(format_log_frame_find(&segment, segment_bytes, at, &view), FORMAT_LOG_TORN);
        for (uint32_t byte = 0; byte < FORMAT_LOG_FRAME_BYTES; byte++) {
            segment_bytes[at + byte] ^= 1;
            assert_int_not_equal(format_log_frame_find(&segment, segment_bytes, at, &view), FORMAT_LOG_WHOLE);
            segment_bytes[at + byte] ^= 1;
        }
        at += view.bytes;
    }
    assert_int_equal(done, sizeof lengths / sizeof *lengths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_carriers),           cmocka_unit_test(test_entries),
        cmocka_unit_test(test_frame_lengths),      cmocka_unit_test(test_far_sequences),
        cmocka_unit_test(test_entries_impossible), cmocka_unit_test(test_frame_impossible),
        cmocka_unit_test(test_other_copy),
    };
    return cmocka_run_group_tests_name("log_frame", tests, NULL, NULL);
}
