/* buffers.c - see buffers.h. */
#include "server/buffers.h"

#include <assert.h>
#include <stdlib.h>

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

void buffer_give(struct server_thread *thread, char *buffer, size_t capacity)
{
    if (!buffer)
        return;
    if (capacity != BUFFER_BLOCK_BYTES) {
        buffer_account_large(thread, capacity, 0);
        free(buffer);
        return;
    }
    block_count_down(thread);
    if (thread->spare_count < BUFFERS_SPARE_MAX)
        thread->spare[thread->spare_count++] = buffer;
    else
        free(buffer);
}

void buffer_account(struct server_thread *thread, size_t from, size_t to)
{
    if (from == BUFFER_BLOCK_BYTES)
        block_count_down(thread);
    else
        buffer_account_large(thread, from, 0);
    if (to == BUFFER_BLOCK_BYTES)
        counter_add(&thread->counters.blocks, 1);
    else
        buffer_account_large(thread, 0, to);
}

void buffers_free_spare(struct server_thread *thread)
{
    while (thread->spare_count)
        free(thread->spare[--thread->spare_count]);
    free(thread->spare);
    thread->spare = NULL;
}
