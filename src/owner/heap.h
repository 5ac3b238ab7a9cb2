/*
 * heap.h - memory of tasks that may end in the middle: a simulated compute node dies with what its tasks have
 * allocated, and owner_destroy frees that. Private to src/owner/. Any thread; a spin lock on top of malloc.
 */
#ifndef OWNER_HEAP_H
#define OWNER_HEAP_H

#include "base/atomic.h"

struct owner_block;
struct owner_heap {
    struct spinlock lock;
    struct owner_block *first;
};

/* As malloc, calloc, realloc and free. */
void *owner_allocate(struct owner_heap *heap, size_t bytes);
void *owner_allocate_zeros(struct owner_heap *heap, size_t count, size_t bytes);
void *owner_resize(struct owner_heap *heap, void *old, size_t bytes);
void owner_free(struct owner_heap *heap, void *old);
/* Frees whatever is left. */
void owner_heap_clear(struct owner_heap *heap);

#endif
