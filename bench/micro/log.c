/*
 * log.c - what the bytes of an owner's log cost one core (micro.h): entries put into frames, and found again
 * by the scan of a segment.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/micro/micro.h"
#include "format/log.h"

#define SEGMENT_BYTES (256u << 10)
#define ENTRIES       16u /* of a frame: a group commit of 16 tasks */
#define NONCE         1u

struct logs {
    struct format_log_segment segment;
    uint8_t bytes[SEGMENT_BYTES];
    uint8_t frame[FORMAT_LOG_FRAME_MAX];
    uint32_t position, entries;
};

/* A frame of ENTRIES entries with keys and values of 8 bytes; 0: no room in the segment. */
static uint32_t frame_make(struct logs *logs, uint32_t position)
{
    uint64_t key = 1, value = 2;
    struct format_log_frame frame;
    struct format_log_entry entry = {.kind = FORMAT_LOG_PUT,
                                     .index = 1,
                                     .epoch = 1,
                                     .key = {(const uint8_t *)&key, sizeof key},
                                     .value = (const uint8_t *)&value,
                                     .value_length = sizeof value};
    format_log_frame_begin(&frame, logs->frame, sizeof logs->frame);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        entry.sequence = 1 + logs->entries + i;
        key = entry.sequence;
        if (!format_log_frame_add(&frame, &entry))
            return 0;
    }
    if (format_log_frame_bytes(&frame) > SEGMENT_BYTES - position)
        return 0;
    return format_log_frame_seal(&frame, NONCE, position, position);
}

static void log_entries(void *argument)
{
    struct logs *logs = argument;
    micro_keep(frame_make(logs, FORMAT_LOG_BLOCK) + logs->frame[0]);
}

static int visit(void *context, const struct format_log_view *frame)
{
    struct format_log_entry entry;
    uint64_t *sum = context;
    uint32_t at = 0;
    while (format_log_frame_next(frame, &at, &entry))
        *sum += entry.sequence;
    return 0;
}

static void log_scan(void *argument)
{
    struct logs *logs = argument;
    struct format_log_scan scan;
    uint64_t sum = 0;
    micro_keep((uint64_t)format_log_scan(&logs->segment, logs->bytes, 0, visit, &sum, &scan));
    micro_keep(sum);
}

bool micro_log(uint32_t rounds, struct micro_result results[MICRO_NAMES])
{
    struct logs *logs = calloc(1, sizeof *logs);
    if (!logs)
        return false;
    logs->segment = (struct format_log_segment){
        .owner = {.instance = 1, .compute_id = 1}, .nonce = NONCE, .size = SEGMENT_BYTES};
    uint32_t position = FORMAT_LOG_BLOCK, bytes;
    while ((bytes = frame_make(logs, position))) {
        memcpy(logs->bytes + position, logs->frame, bytes);
        position += bytes;
        logs->entries += ENTRIES;
    }
    bool done = micro_measure(rounds, ENTRIES, log_entries, logs, &results[MICRO_LOG_ENTRY]) &&
                micro_measure(rounds, logs->entries, log_scan, logs, &results[MICRO_LOG_SCAN]);
    free(logs);
    return done;
}
