/*
 * board.h - the state of the service BOARD (request.h, board.c), of which each memory node has one; compute
 * nodes use that of memory node 0. Private to src/memory/.
 */
#ifndef MEMORY_BOARD_H
#define MEMORY_BOARD_H

#include "base/atomic.h"
#include "memory/request.h"

struct memory_board {
    struct spinlock lock;
    /* guarded by the lock: */
    uint64_t version, grants, entries;   /* published; given, and made, so far */
    uint64_t grant;                      /* that has the lock; 0: free */
    struct memory_board_process holder;  /* with `grant` */
    struct memory_board_process orphan;  /* instance 0: none */
    struct memory_board_member *members; /* owned; in the order of entering */
    uint32_t count, capacity;
};

/* As new: for a memory node that is formatted, and at its end (then it holds no memory any more). */
void memory_board_clear(struct memory_board *board);

#endif
