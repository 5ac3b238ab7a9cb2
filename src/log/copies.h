/*
 * copies.h - which frames of a process's log have another copy that is whole, and where that one lies: so
 * that bytes which are corrupt on one memory node can be told from bytes that are lost (L8 of
 * docs/internals/log.md). For reader.c.
 *
 * One thread, no round trips. Takes 48 bytes for each frame that was written twice.
 */
#ifndef LOG_COPIES_H
#define LOG_COPIES_H

#include "base/heap.h"
#include "format/log.h"

/* A frame is whole, and says where its other copy lies. */
struct log_copy {
    struct format_log_other other;
    uint32_t bytes;   /* of both */
    uint32_t carried; /* right before the other one: carriers, which nothing is lost with */
    uint64_t last;    /* its greatest sequence */
};

struct log_copies {
    struct heap *heap;
    struct log_copy *all; /* owned */
    uint32_t count, capacity;
    bool sorted;
};

/* False: no memory. */
bool log_copies_add(struct log_copies *copies, const struct format_log_view *frame);
/* Whether each of these bytes of the segment with this nonce belongs to a frame whose other copy is whole, or
 * to its carriers. */
bool log_copies_cover(struct log_copies *copies, uint64_t nonce, uint32_t begin, uint32_t end);
/* The one with the greatest sequence of those whose other copy lies in the segment with this nonce; NULL:
 * there is none. */
const struct log_copy *log_copies_segment(struct log_copies *copies, uint64_t nonce);
void log_copies_clear(struct log_copies *copies);

#endif
