/*
 * heap.h - memory of tasks that may end in the middle: a simulated compute node dies with what its tasks have
 * allocated, and the heap's owner frees that at its end. Any thread; a spin lock on top of malloc.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include "base/atomic.h"

struct heap_block;
struct heap {
    struct spinlock lock;
    struct heap_block *first;
};

/* As malloc, calloc, realloc and free. */
void *heap_allocate(struct heap *heap, size_t bytes);
void *heap_allocate_zeros(struct heap *heap, size_t count, size_t bytes);
void *heap_resize(struct heap *heap, void *old, size_t bytes);
void heap_free(struct heap *heap, void *old);
/* An array of so many elements of `size` bytes, with room for another: itself, or a larger one in its place.
 * NULL: no memory, and the array is what it was. */
void *heap_grow(struct heap *heap, void *array, uint32_t count, uint32_t *capacity, size_t size);
/* Frees whatever is left. */
void heap_clear(struct heap *heap);

#endif
