/* log_scan.c - see log.h: what a segment holds. */
#include <assert.h>

#include "format/log.h"

/* Notes what no whole frame covers below `limit`. */
static void find_corrupt(const struct format_log_segment *segment, const uint8_t *bytes, uint32_t limit,
                         struct format_log_scan *scan)
{
    struct format_log_view view;
    bool within = false;
    for (uint32_t position = FORMAT_LOG_BLOCK; position < limit;) {
        enum format_log_found found = format_log_frame_find(segment, bytes, position, &view);
        uint32_t step = found == FORMAT_LOG_NOTHING ? FORMAT_LOG_BLOCK : view.bytes;
        if (step > limit - position)
            step = limit - position;
        if (found != FORMAT_LOG_WHOLE) {
            if (!within && !scan->corrupt_regions++)
                scan->corrupt_first = position;
            if (scan->corrupt_regions == 1)
                scan->corrupt_first_bytes += step;
            scan->corrupt_bytes += step;
        }
        within = found != FORMAT_LOG_WHOLE;
        position += step;
    }
}

int format_log_scan(const struct format_log_segment *segment, const uint8_t *bytes, uint32_t known,
                    int (*visit)(void *context, const struct format_log_view *frame), void *context,
                    struct format_log_scan *scan)
{
    struct format_log_view view;
    uint32_t covered = FORMAT_LOG_BLOCK; /* there is no hole below */
    assert(segment->size <= FORMAT_LOG_SEGMENT_MAX && segment->size % FORMAT_LOG_BLOCK == 0);
    *scan = (struct format_log_scan){.end = FORMAT_LOG_BLOCK};
    for (uint32_t position = FORMAT_LOG_BLOCK; position < segment->size;) {
        enum format_log_found found = format_log_frame_find(segment, bytes, position, &view);
        if (found == FORMAT_LOG_WHOLE) {
            int status = visit ? visit(context, &view) : 0;
            if (status)
                return status;
            scan->entries += view.count;
            if (view.last > scan->sequence)
                scan->sequence = view.last;
            if (covered == position)
                covered += view.bytes;
            scan->end = position + view.bytes;
            scan->frames++;
        }
        if (found != FORMAT_LOG_NOTHING && view.committed > scan->committed)
            scan->committed = view.committed; /* true whatever became of the frame that says it */
        position += found == FORMAT_LOG_NOTHING ? FORMAT_LOG_BLOCK : view.bytes;
    }
    uint32_t limit = known > scan->committed ? known : scan->committed;
    if (limit > segment->size)
        limit = segment->size;
    if (covered < limit)
        find_corrupt(segment, bytes, limit, scan);
    return 0;
}

bool format_log_reach(const struct format_log_segment *segment, const uint8_t *bytes, uint32_t length,
                      struct format_log_reach *reach)
{
    const bool all = length >= segment->size;
    struct format_log_segment part = *segment;
    if (!all)
        part.size = length / FORMAT_LOG_BLOCK * FORMAT_LOG_BLOCK;
    /* A frame that goes on behind the bytes is not one yet. */
    const uint32_t limit = all                                ? segment->size
                           : part.size > FORMAT_LOG_FRAME_MAX ? part.size - FORMAT_LOG_FRAME_MAX
                                                              : 0;
    while (reach->position < limit) {
        struct format_log_view view;
        const enum format_log_found found = format_log_frame_find(&part, bytes, reach->position, &view);
        if (found == FORMAT_LOG_NOTHING) {
            reach->position += FORMAT_LOG_BLOCK;
            continue;
        }
        reach->position += view.bytes;
        reach->end = reach->position;
    }
    return all || (reach->position > reach->end && reach->position - reach->end >= FORMAT_LOG_SPAN);
}
