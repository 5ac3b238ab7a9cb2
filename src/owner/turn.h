/*
 * turn.h - mutual exclusion of tasks for sections that suspend: first come, first served, waiting tasks are
 * parked. Private to src/owner/. Zero-initialized it is free.
 */
#ifndef OWNER_TURN_H
#define OWNER_TURN_H

#include "base/atomic.h"
#include "base/task.h"

struct owner_turn_waiter;
struct owner_turn {
    struct spinlock lock;
    bool taken;
    struct owner_turn_waiter *first, *last; /* on their tasks' stacks */
};

void owner_turn_take(struct owner_turn *turn);
bool owner_turn_try(struct owner_turn *turn);
void owner_turn_give(struct owner_turn *turn);

#endif
