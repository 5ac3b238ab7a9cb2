/*
 * buffer.h - a run of bytes that is filled at one end and taken from the other: a connection's input
 * and output.
 *
 * Used by the parts of the memory daemon. A buffer belongs to its connection, and so to one I/O thread.
 * Bytes start..ready may be taken; ready..end are being made (a reply whose list has not ended; for input
 * ready is not used). Growth is bounded by the callers, who know what the protocol allows.
 */
#ifndef MEMORY_SERVER_BUFFER_H
#define MEMORY_SERVER_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct server_buffer {
    uint8_t *bytes;
    size_t capacity, start, ready, end;
};

/* Makes room for `more` bytes behind end: moves what is there to the front, grows to a power of two. false:
 * no memory, nothing was changed. */
bool server_buffer_room(struct server_buffer *buffer, size_t more);
/* start..end is empty: gives all but `keep` bytes of capacity back. */
void server_buffer_shrink(struct server_buffer *buffer, size_t keep);
void server_buffer_free(struct server_buffer *buffer);
/* Copies behind end. false: no memory. */
bool server_buffer_append(struct server_buffer *buffer, const void *bytes, size_t length);

static inline size_t server_buffer_held(const struct server_buffer *buffer)
{
    return buffer->end - buffer->start;
}

#endif
