/*
 * buffer.h - bytes that are added at one end and taken from the other: a connection's input and output.
 *
 * A buffer belongs to its connection, and so to one I/O thread. Bytes start..ready may be taken; ready..end
 * are being made (a reply whose list has not ended; input does not use `ready`). The callers bound its
 * growth, since they know what the protocol allows.
 */
#ifndef MEMORYD_BUFFER_H
#define MEMORYD_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memoryd_buffer {
    uint8_t *bytes;
    size_t capacity, start, ready, end;
};

/* Makes room for `more` bytes behind end: moves what is there to the front, grows to a power of two. false:
 * no memory, nothing was changed. */
bool memoryd_buffer_room(struct memoryd_buffer *buffer, size_t more);
/* Of an empty buffer: gives all but `keep` bytes of capacity back. */
void memoryd_buffer_shrink(struct memoryd_buffer *buffer, size_t keep);
void memoryd_buffer_free(struct memoryd_buffer *buffer);
/* Copies behind end. false: no memory. */
bool memoryd_buffer_append(struct memoryd_buffer *buffer, const void *bytes, size_t length);

static inline size_t memoryd_buffer_held(const struct memoryd_buffer *buffer)
{
    return buffer->end - buffer->start;
}

#endif
