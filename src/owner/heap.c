/* heap.c - see heap.h. */
#include "owner/heap.h"

#include <stdalign.h>
#include <stdlib.h>

struct owner_block {
    struct owner_block *next, **link; /* the pointer that leads here */
    alignas(max_align_t) uint8_t bytes[];
};

static struct owner_block *block_of(void *bytes)
{
    return (struct owner_block *)(void *)((uint8_t *)bytes - offsetof(struct owner_block, bytes));
}

static void *enter(struct owner_heap *heap, struct owner_block *block)
{
    if (!block)
        return NULL;
    spinlock_lock(&heap->lock);
    block->next = heap->first;
    block->link = &heap->first;
    if (block->next)
        block->next->link = &block->next;
    heap->first = block;
    spinlock_unlock(&heap->lock);
    return block->bytes;
}

static struct owner_block *leave(struct owner_heap *heap, void *bytes)
{
    struct owner_block *block = block_of(bytes);
    spinlock_lock(&heap->lock);
    *block->link = block->next;
    if (block->next)
        block->next->link = block->link;
    spinlock_unlock(&heap->lock);
    return block;
}

void *owner_allocate(struct owner_heap *heap, size_t bytes)
{
    return enter(heap, malloc(sizeof(struct owner_block) + bytes));
}

void *owner_allocate_zeros(struct owner_heap *heap, size_t count, size_t bytes)
{
    void *zeros = owner_allocate(heap, count * bytes);
    return zeros ? memset(zeros, 0, count * bytes) : NULL;
}

void *owner_resize(struct owner_heap *heap, void *old, size_t bytes)
{
    if (!old)
        return owner_allocate(heap, bytes);
    struct owner_block *block = leave(heap, old);
    struct owner_block *larger = realloc(block, sizeof(struct owner_block) + bytes);
    if (larger)
        return enter(heap, larger);
    enter(heap, block); /* what could not grow stays */
    return NULL;
}

void owner_free(struct owner_heap *heap, void *old)
{
    if (old)
        free(leave(heap, old));
}

void owner_heap_clear(struct owner_heap *heap)
{
    while (heap->first)
        free(leave(heap, heap->first->bytes));
}
