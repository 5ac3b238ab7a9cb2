/* heap.c - see heap.h. */
#include "base/heap.h"

#include <stdalign.h>
#include <stdlib.h>

struct heap_block {
    struct heap_block *next, **link; /* the pointer that leads here */
    alignas(max_align_t) uint8_t bytes[];
};

static struct heap_block *block_of(void *bytes)
{
    return (struct heap_block *)(void *)((uint8_t *)bytes - offsetof(struct heap_block, bytes));
}

static void *enter(struct heap *heap, struct heap_block *block)
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

static struct heap_block *leave(struct heap *heap, void *bytes)
{
    struct heap_block *block = block_of(bytes);
    spinlock_lock(&heap->lock);
    *block->link = block->next;
    if (block->next)
        block->next->link = block->link;
    spinlock_unlock(&heap->lock);
    return block;
}

void *heap_allocate(struct heap *heap, size_t bytes)
{
    return enter(heap, malloc(sizeof(struct heap_block) + bytes));
}

void *heap_allocate_zeros(struct heap *heap, size_t count, size_t bytes)
{
    void *zeros = heap_allocate(heap, count * bytes);
    return zeros ? memset(zeros, 0, count * bytes) : NULL;
}

void *heap_resize(struct heap *heap, void *old, size_t bytes)
{
    if (!old)
        return heap_allocate(heap, bytes);
    struct heap_block *block = leave(heap, old);
    struct heap_block *larger = realloc(block, sizeof(struct heap_block) + bytes);
    if (larger)
        return enter(heap, larger);
    enter(heap, block); /* what could not grow stays */
    return NULL;
}

void heap_free(struct heap *heap, void *old)
{
    if (old)
        free(leave(heap, old));
}

void *heap_grow(struct heap *heap, void *array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    const uint32_t larger = *capacity ? 2 * *capacity : 16;
    void *grown = heap_resize(heap, array, larger * size);
    if (grown)
        *capacity = larger;
    return grown;
}

void heap_clear(struct heap *heap)
{
    while (heap->first)
        free(leave(heap, heap->first->bytes));
}
