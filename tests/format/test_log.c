/* test_log.c - an owner's log: headers of segments, control blocks and watermarks that were encoded come
 * back, and damaged or impossible ones do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "format/log.h"

#define NONCE UINT64_C(0x1122334455667788)

static const struct format_log_segment segments[] = {
    {.owner = {1, 1}, .number = 0, .nonce = 1, .size = 128},
    {.owner = {UINT64_MAX, UINT16_MAX},
     .number = UINT64_MAX,
     .nonce = UINT64_MAX,
     .size = FORMAT_LOG_SEGMENT_MAX,
     .before = FORMAT_LOG_SEGMENT_MAX},
    {.owner = {77, 9}, .number = 5, .nonce = NONCE, .size = 65536, .before = 640},
};

static void test_segment(void **state)
{
    for (size_t i = 0; i < sizeof segments / sizeof segments[0]; i++) {
        const struct format_log_segment *segment = &segments[i];
        uint8_t bytes[FORMAT_LOG_BLOCK];
        struct format_log_segment back;
        format_log_segment_encode(segment, bytes);
        assert_null(format_log_segment_decode(bytes, &back));
        assert_true(fabric_process_equal(back.owner, segment->owner));
        assert_true(back.number == segment->number && back.nonce == segment->nonce);
        assert_true(back.size == segment->size && back.before == segment->before);
        for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_non_null(format_log_segment_decode(bytes, &back));
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

/* With a check that fits. */
static const char *segment_forged(uint32_t at, uint64_t value, uint32_t length)
{
    uint8_t bytes[FORMAT_LOG_BLOCK];
    struct format_log_segment segment;
    format_log_segment_encode(&segments[2], bytes);
    memcpy(bytes + at, &value, length);
    uint32_t crc = crc32c(0, bytes + 4, sizeof bytes - 4);
    memcpy(bytes, &crc, 4);
    return format_log_segment_decode(bytes, &segment);
}

static void test_segment_impossible(void **state)
{
    static const char impossible[] = "has a header with impossible values";
    uint8_t zeros[FORMAT_LOG_BLOCK] = {0};
    struct format_log_segment segment;
    assert_string_equal(format_log_segment_decode(zeros, &segment), "has no header of a log's segment");
    assert_string_equal(segment_forged(4, 0, 4), "has no header of a log's segment");
    assert_string_equal(segment_forged(8, 1, 2), "is of another version of Banyan");
    assert_string_equal(segment_forged(10, 0, 2), impossible);
    assert_string_equal(segment_forged(16, 0, 8), impossible);
    assert_string_equal(segment_forged(32, 0, 8), impossible);
    assert_string_equal(segment_forged(12, 64, 4), impossible);
    assert_string_equal(segment_forged(12, 65537, 4), impossible);
    assert_string_equal(segment_forged(12, FORMAT_LOG_SEGMENT_MAX + 64, 4), impossible);
    assert_string_equal(segment_forged(40, 63, 4), impossible);
    assert_string_equal(segment_forged(40, FORMAT_LOG_SEGMENT_MAX + 64, 4), impossible);
    assert_null(segment_forged(40, 0, 4));
}

/* Up to three wrong bits of a watermark are always noticed. */
static void test_watermark(void **state)
{
    const uint64_t sequences[] = {0, 1, 2, 4095, 4096, UINT64_C(0x123456789abcd), FORMAT_LOG_SEQUENCE_MAX};
    uint64_t back;
    assert_false(format_log_watermark_decode(0, &back));
    assert_false(format_log_watermark_decode(UINT64_MAX, &back));
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        uint64_t word = format_log_watermark_encode(sequences[i]);
        assert_true(format_log_watermark_decode(word, &back) && back == sequences[i]);
        for (unsigned a = 0; a < 64; a++)
            for (unsigned b = a; b < 64; b++)
                for (unsigned c = b; c < 64; c++) {
                    /* a == b: one bit, c */
                    uint64_t wrong = word ^ UINT64_C(1) << a ^ UINT64_C(1) << b ^ UINT64_C(1) << c;
                    if (b == c && a != b)
                        wrong = word ^ UINT64_C(1) << a ^ UINT64_C(1) << b;
                    assert_false(format_log_watermark_decode(wrong, &back));
                }
    }
}

static void test_control(void **state)
{
    const struct format_log_control control = {.owner = {77, 9}, .watermark = 123456789};
    uint8_t bytes[FORMAT_LOG_BLOCK] = {0};
    struct format_log_control back;
    assert_string_equal(format_log_control_decode(bytes, &back), "is no control block of a log");
    format_log_control_encode(&control, bytes);
    assert_null(format_log_control_decode(bytes, &back));
    assert_true(fabric_process_equal(back.owner, control.owner) && back.watermark == control.watermark);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_non_null(format_log_control_decode(bytes, &back));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* the word alone is written */
    uint64_t word = format_log_watermark_encode(FORMAT_LOG_SEQUENCE_MAX);
    memcpy(bytes + FORMAT_LOG_WATERMARK_OFFSET, &word, 8);
    assert_null(format_log_control_decode(bytes, &back));
    assert_true(back.watermark == FORMAT_LOG_SEQUENCE_MAX);
    word = 0;
    memcpy(bytes + FORMAT_LOG_WATERMARK_OFFSET, &word, 8);
    assert_string_equal(format_log_control_decode(bytes, &back), "has a watermark that fails its check");
    /* with a check that fits */
    const struct {
        uint32_t at, length;
        const char *message;
    } forged[] = {{12, 1, "is of another version of Banyan"},
                  {14, 2, "names a process by half"},
                  {16, 8, "names a process by half"}};
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        format_log_control_encode(&control, bytes);
        memset(bytes + forged[i].at, 0, forged[i].length);
        uint32_t crc = crc32c(0, bytes + 8, 52);
        memcpy(bytes + 60, &crc, 4);
        assert_string_equal(format_log_control_decode(bytes, &back), forged[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segment),
        cmocka_unit_test(test_segment_impossible),
        cmocka_unit_test(test_watermark),
        cmocka_unit_test(test_control),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
