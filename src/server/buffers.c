/* buffers.c - see buffers.h. */
#include "server/buffers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void buffer_account_large(struct server_thread *thread, size_t from, size_t to)
{
    assert(thread->counters.large >= from);
    counter_add(&thread->counters.large, (uint64_t)to - (uint64_t)from);
}

static void block_count_down(struct server_thread *thread)
{
    assert(thread->counters.blocks);
    counter_add(&thread->counters.blocks, (uint64_t)-1);
}

char *buffer_take(struct server_thread *thread)
{
    char *block = thread->spare_count ? thread->spare[--thread->spare_count] : malloc(BUFFER_BLOCK_BYTES);
    if (block)
        counter_add(&thread->counters.blocks, 1);
    return block;
}

/* ---- those that have grown ---- */

/* NULL: none of that size is kept. */
static struct buffers_grown *grown_of(struct server_thread *thread, size_t capacity)
{
    for (unsigned i = 0; i < BUFFERS_SIZES; i++)
        if (capacity == (size_t)BUFFER_BLOCK_BYTES << (i + 1))
            return &thread->grown[i];
    return NULL;
}

static char *grown_take(struct server_thread *thread, size_t capacity)
{
    struct buffers_grown *grown = grown_of(thread, capacity);
    char *buffer = grown ? grown->first : NULL;
    if (!buffer)
        return malloc(capacity);
    memcpy(&grown->first, buffer, sizeof grown->first);
    grown->count--;
    if (grown->least > grown->count)
        grown->least = grown->count;
    thread->grown_bytes -= capacity;
    return buffer;
}

static void grown_give(struct server_thread *thread, char *buffer, size_t capacity)
{
    struct buffers_grown *grown = grown_of(thread, capacity);
    if (!grown || thread->grown_bytes + capacity > BUFFERS_GROWN_MAX) {
        free(buffer);
        return;
    }
    memcpy(buffer, &grown->first, sizeof grown->first);
    grown->first = buffer;
    grown->count++;
    thread->grown_bytes += capacity;
}

void buffers_trim(struct server_thread *thread)
{
    for (unsigned i = 0; i < BUFFERS_SIZES; i++) {
        const size_t capacity = (size_t)BUFFER_BLOCK_BYTES << (i + 1);
        for (unsigned spare = thread->grown[i].least; spare; spare--)
            free(grown_take(thread, capacity));
        thread->grown[i].least = thread->grown[i].count;
    }
}

/* ---- all ---- */

void buffer_give(struct server_thread *thread, char *buffer, size_t capacity)
{
    if (!buffer)
        return;
    if (capacity != BUFFER_BLOCK_BYTES) {
        buffer_account_large(thread, capacity, 0);
        grown_give(thread, buffer, capacity);
        return;
    }
    block_count_down(thread);
    if (thread->spare_count < BUFFERS_SPARE_MAX)
        thread->spare[thread->spare_count++] = buffer;
    else
        free(buffer);
}

char *buffer_grow(struct server_thread *thread, char *buffer, size_t used, size_t capacity, size_t larger)
{
    assert(used <= capacity && capacity < larger && larger != BUFFER_BLOCK_BYTES);
    if (capacity > BUFFER_BLOCK_BYTES &&
        !grown_of(thread, capacity)) { /* not kept: the allocator may move pages */
        char *moved = realloc(buffer, larger);
        if (moved)
            buffer_account_large(thread, capacity, larger);
        return moved;
    }
    char *grown = grown_take(thread, larger);
    if (!grown)
        return NULL;
    if (used)
        memcpy(grown, buffer, used);
    buffer_account_large(thread, 0, larger);
    buffer_give(thread, buffer, capacity);
    return grown;
}

void buffers_free_spare(struct server_thread *thread)
{
    while (thread->spare_count)
        free(thread->spare[--thread->spare_count]);
    free(thread->spare);
    thread->spare = NULL;
    for (unsigned i = 0; i < BUFFERS_SIZES; i++)
        thread->grown[i].least = thread->grown[i].count;
    buffers_trim(thread);
}
