/* turn.c - see turn.h. */
#include "owner/turn.h"

#include <assert.h>

struct owner_turn_waiter {
    struct task *task;
    uint32_t granted; /* atomic */
    struct owner_turn_waiter *next;
};

bool owner_turn_try(struct owner_turn *turn)
{
    spinlock_lock(&turn->lock);
    bool free = !turn->taken;
    turn->taken = true;
    spinlock_unlock(&turn->lock);
    return free;
}

void owner_turn_take(struct owner_turn *turn)
{
    struct owner_turn_waiter waiter = {.task = task_self()};
    spinlock_lock(&turn->lock);
    bool free = !turn->taken;
    turn->taken = true;
    if (!free) {
        if (turn->last)
            turn->last->next =
                &waiter; // cppcheck-suppress autoVariables ; it leaves the list before we go on
        else
            turn->first = &waiter; // cppcheck-suppress autoVariables ; as above
        turn->last = &waiter;      // cppcheck-suppress autoVariables ; as above
    }
    spinlock_unlock(&turn->lock);
    if (free)
        return;
    while (!atomic_load_acquire(&waiter.granted)) /* acquire: what the one before did */
        task_park();
}

void owner_turn_give(struct owner_turn *turn)
{
    spinlock_lock(&turn->lock);
    assert(turn->taken);
    struct owner_turn_waiter *next = turn->first;
    if (next) {
        turn->first = next->next;
        if (!turn->first)
            turn->last = NULL;
    } else {
        turn->taken = false;
    }
    spinlock_unlock(&turn->lock);
    if (!next)
        return;
    struct task *task = next->task;          /* the waiter is gone once it sees the grant */
    atomic_store_release(&next->granted, 1); /* release: what this task did */
    task_unpark(task);
}
