/* buffer.c - see buffer.h. */
#include "memoryd/buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 4096u

static void to_front(struct memoryd_buffer *buffer)
{
    if (buffer->start == 0)
        return;
    memmove(buffer->bytes, buffer->bytes + buffer->start, buffer->end - buffer->start);
    buffer->ready -= buffer->ready < buffer->start ? buffer->ready : buffer->start;
    buffer->end -= buffer->start;
    buffer->start = 0;
}

bool memoryd_buffer_room(struct memoryd_buffer *buffer, size_t more)
{
    assert(buffer->start <= buffer->end && buffer->end <= buffer->capacity);
    if (buffer->capacity - buffer->end >= more && buffer->bytes != NULL)
        return true;
    size_t needed = memoryd_buffer_held(buffer) + more;
    if (needed > buffer->capacity || buffer->bytes == NULL) {
        size_t capacity = CAPACITY_MIN;
        while (capacity < needed)
            capacity *= 2;
        uint8_t *bytes = realloc(buffer->bytes, capacity);
        if (bytes == NULL)
            return false;
        buffer->bytes = bytes;
        buffer->capacity = capacity;
    }
    to_front(buffer);
    return true;
}

void memoryd_buffer_shrink(struct memoryd_buffer *buffer, size_t keep)
{
    assert(memoryd_buffer_held(buffer) == 0);
    buffer->start = buffer->ready = buffer->end = 0;
    if (buffer->capacity <= keep)
        return;
    if (keep == 0) {
        memoryd_buffer_free(buffer);
        return;
    }
    uint8_t *bytes = realloc(buffer->bytes, keep);
    if (bytes == NULL)
        return; /* it stays large */
    buffer->bytes = bytes;
    buffer->capacity = keep;
}

void memoryd_buffer_free(struct memoryd_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct memoryd_buffer){0};
}

bool memoryd_buffer_append(struct memoryd_buffer *buffer, const void *bytes, size_t length)
{
    if (!memoryd_buffer_room(buffer, length))
        return false;
    if (length != 0)
        memcpy(buffer->bytes + buffer->end, bytes, length);
    buffer->end += length;
    return true;
}
