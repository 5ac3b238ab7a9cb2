/* format.c - see format.h. */
#include "persist/format.h"

#include <string.h>

void persist_frame_encode(const struct persist_frame *frame, uint8_t header[PERSIST_FRAME_HEADER])
{
    memcpy(header, &frame->process.instance, 8);
    memcpy(header + 8, &frame->view.first, 8);
    memcpy(header + 16, &frame->view.count, 4);
    memcpy(header + 20, &frame->process.compute_id, 2);
    memcpy(header + 22, &frame->node, 2);
}

/* Whether the entries are as many as the header says, and end where the bytes do. */
static bool entries_right(const struct format_log_view *view)
{
    struct format_log_entry entry;
    uint32_t at = 0, count = 0;
    while (format_log_frame_next(view, &at, &entry))
        count++;
    return count == view->count && at == view->length;
}

bool persist_frame_decode(const uint8_t *bytes, uint32_t length, struct persist_frame *frame)
{
    *frame = (struct persist_frame){0};
    if (length < PERSIST_FRAME_HEADER)
        return false;
    memcpy(&frame->process.instance, bytes, 8);
    memcpy(&frame->view.first, bytes + 8, 8);
    memcpy(&frame->view.count, bytes + 16, 4);
    memcpy(&frame->process.compute_id, bytes + 20, 2);
    memcpy(&frame->node, bytes + 22, 2);
    frame->view.entries = bytes + PERSIST_FRAME_HEADER;
    frame->view.length = length - PERSIST_FRAME_HEADER;
    return frame->process.instance && frame->view.count && entries_right(&frame->view);
}
