/*
 * board.h - the state of the service BOARD (request.h, board.c), of which each memory node has one; compute
 * nodes use that of memory node 0. Private to src/memory/.
 */
#ifndef MEMORY_BOARD_H
#define MEMORY_BOARD_H

#include "base/atomic.h"
#include "memory/keep.h"
#include "memory/request.h"

struct memory_board {
    struct spinlock lock;
    /* guarded by the lock: */
    struct keep *keep;            /* what the board says: keep->board, and the members' slots */
    struct keep_member **members; /* owned; in the order of entering: slots of the keep */
    uint32_t count, capacity;
};

/* As it was kept: everyone of the node's former life is fenced. BANYAN_ENOMEM, BANYAN_ECORRUPT. */
int memory_board_open(struct memory_board *board, struct keep *keep, struct error *error);
/* The keep was cleared. */
void memory_board_clear(struct memory_board *board);
void memory_board_close(struct memory_board *board);

#endif
