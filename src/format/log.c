/* log.c - see log.h: headers of segments, control blocks. */
#include "format/log.h"

#include <assert.h>
#include <string.h>

#include "base/crc32c.h"

#define SEGMENT_VERSION   3u
#define SEGMENT_UNTELLING 2u /* without flags in its frames; it is read still */
#define CONTROL_VERSION   2u
#define SEGMENT_MAGIC     0x67734c42u /* "BLsg" */
#define CONTROL_MAGIC     0x74634c42u /* "BLct" */
#define CONTROL_CHECKED   8u          /* the crc of a control block covers what lies from here ... */
#define CONTROL_CRC       60u         /* ... to here */
#define WATERMARK_SHIFT   12u
#define WATERMARK_CHECK   ((1u << WATERMARK_SHIFT) - 1)
#define WATERMARK_CRC_12  0x80fu /* x^12 + x^11 + x^3 + x^2 + x + 1: finds any three wrong bits of 2,047 */

static bool process_possible(struct fabric_process process)
{
    return process.compute_id && process.instance;
}

static bool segment_possible(const struct format_log_segment *segment)
{
    return process_possible(segment->owner) && segment->nonce && segment->size >= 2 * FORMAT_LOG_BLOCK &&
           segment->size <= FORMAT_LOG_SEGMENT_MAX && segment->size % FORMAT_LOG_BLOCK == 0 &&
           segment->before <= FORMAT_LOG_SEGMENT_MAX && segment->before % FORMAT_LOG_BLOCK == 0;
}

void format_log_segment_encode(const struct format_log_segment *segment, uint8_t bytes[FORMAT_LOG_BLOCK])
{
    const uint32_t magic = SEGMENT_MAGIC;
    const uint16_t version = SEGMENT_VERSION;
    assert(segment_possible(segment));
    memset(bytes, 0, FORMAT_LOG_BLOCK);
    memcpy(bytes + 4, &magic, 4);
    memcpy(bytes + 8, &version, 2);
    memcpy(bytes + 10, &segment->owner.compute_id, 2);
    memcpy(bytes + 12, &segment->size, 4);
    memcpy(bytes + 16, &segment->owner.instance, 8);
    memcpy(bytes + 24, &segment->number, 8);
    memcpy(bytes + 32, &segment->nonce, 8);
    memcpy(bytes + 40, &segment->before, 4);
    uint32_t crc = crc32c(0, bytes + 4, FORMAT_LOG_BLOCK - 4);
    memcpy(bytes, &crc, 4);
}

const char *format_log_segment_decode(const uint8_t bytes[FORMAT_LOG_BLOCK],
                                      struct format_log_segment *segment)
{
    uint32_t crc, magic;
    uint16_t version;
    memset(segment, 0, sizeof *segment);
    memcpy(&crc, bytes, 4);
    memcpy(&magic, bytes + 4, 4);
    memcpy(&version, bytes + 8, 2);
    if (magic != SEGMENT_MAGIC)
        return "has no header of a log's segment";
    if (crc != crc32c(0, bytes + 4, FORMAT_LOG_BLOCK - 4))
        return "has a header that fails its check";
    if (version != SEGMENT_VERSION && version != SEGMENT_UNTELLING)
        return "is of another version of Banyan";
    segment->tells = version == SEGMENT_VERSION;
    memcpy(&segment->owner.compute_id, bytes + 10, 2);
    memcpy(&segment->size, bytes + 12, 4);
    memcpy(&segment->owner.instance, bytes + 16, 8);
    memcpy(&segment->number, bytes + 24, 8);
    memcpy(&segment->nonce, bytes + 32, 8);
    memcpy(&segment->before, bytes + 40, 4);
    return segment_possible(segment) ? NULL : "has a header with impossible values";
}

/* The remainder of the sequence's 52 bits. It does not begin at 0, so that a word of zeros is wrong. */
static uint32_t watermark_check(uint64_t sequence)
{
    uint32_t rest = WATERMARK_CHECK;
    for (unsigned bit = 52; bit-- > 0;) {
        uint32_t top = (rest >> (WATERMARK_SHIFT - 1) ^ (uint32_t)(sequence >> bit)) & 1u;
        rest = (rest << 1 & WATERMARK_CHECK) ^ (top ? WATERMARK_CRC_12 : 0);
    }
    return rest;
}

uint64_t format_log_watermark_encode(uint64_t sequence)
{
    assert(sequence <= FORMAT_LOG_SEQUENCE_MAX);
    return sequence << WATERMARK_SHIFT | watermark_check(sequence);
}

bool format_log_watermark_decode(uint64_t word, uint64_t *sequence)
{
    *sequence = word >> WATERMARK_SHIFT;
    return (word & WATERMARK_CHECK) == watermark_check(*sequence);
}

void format_log_control_encode(const struct format_log_control *control, uint8_t bytes[FORMAT_LOG_BLOCK])
{
    const uint32_t magic = CONTROL_MAGIC;
    const uint16_t version = CONTROL_VERSION;
    uint64_t word = format_log_watermark_encode(control->watermark);
    assert(process_possible(control->owner));
    memset(bytes, 0, FORMAT_LOG_BLOCK);
    memcpy(bytes + FORMAT_LOG_WATERMARK_OFFSET, &word, 8);
    memcpy(bytes + 8, &magic, 4);
    memcpy(bytes + 12, &version, 2);
    memcpy(bytes + 14, &control->owner.compute_id, 2);
    memcpy(bytes + 16, &control->owner.instance, 8);
    uint32_t crc = crc32c(0, bytes + CONTROL_CHECKED, CONTROL_CRC - CONTROL_CHECKED);
    memcpy(bytes + CONTROL_CRC, &crc, 4);
}

const char *format_log_control_decode(const uint8_t bytes[FORMAT_LOG_BLOCK],
                                      struct format_log_control *control)
{
    uint32_t crc, magic;
    uint16_t version;
    uint64_t word;
    memset(control, 0, sizeof *control);
    memcpy(&word, bytes + FORMAT_LOG_WATERMARK_OFFSET, 8);
    memcpy(&magic, bytes + 8, 4);
    memcpy(&version, bytes + 12, 2);
    memcpy(&crc, bytes + CONTROL_CRC, 4);
    if (magic != CONTROL_MAGIC)
        return "is no control block of a log";
    if (crc != crc32c(0, bytes + CONTROL_CHECKED, CONTROL_CRC - CONTROL_CHECKED))
        return "fails its check";
    if (version != CONTROL_VERSION)
        return "is of another version of Banyan";
    memcpy(&control->owner.compute_id, bytes + 14, 2);
    memcpy(&control->owner.instance, bytes + 16, 8);
    if (!process_possible(control->owner))
        return "names a process by half";
    return format_log_watermark_decode(word, &control->watermark) ? NULL
                                                                  : "has a watermark that fails its check";
}
