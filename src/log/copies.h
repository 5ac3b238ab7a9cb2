/*
 * copies.h - which changes of a process's log are whole on which memory node: so that bytes which are corrupt
 * on one can be told from bytes that are lost (--log-copies 2, L8 of docs/internals/log.md). For examine.c.
 *
 * One thread, no round trips. Takes 16 bytes for each change.
 */
#ifndef LOG_COPIES_H
#define LOG_COPIES_H

#include "format/log.h"

struct log_copy;
struct log_copies {
    struct log_copy *all; /* owned */
    uint32_t count, capacity;
    bool sorted;
};

/* The changes of a frame that is whole on this memory node. False: no memory. */
bool log_copies_add(struct log_copies *copies, uint16_t node, const struct format_log_view *frame);
/* When all were added. Whether what stood in `bytes` bytes of a memory node, between the changes `before` and
 * `after` there, is whole on others: no change between these two is missing, and the frames that lack their
 * copy on this memory node are as long together as the bytes. */
bool log_copies_elsewhere(struct log_copies *copies, uint16_t node, uint64_t before, uint64_t after,
                          uint32_t bytes);
void log_copies_free(struct log_copies *copies);

#endif
