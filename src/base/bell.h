/*
 * bell.h - one task sleeps until another one rings. A ring that comes while it is awake is kept, so that its
 * next wait returns at once; any number of rings are one.
 *
 * bell_wait and bell_take are the sleeper's, bell_ring is any task's. What the ringing task has written
 * before, the sleeper sees when it was told of the ring. All zero: a bell that nobody has rung. Cannot fail,
 * allocates nothing.
 */
#ifndef BASE_BELL_H
#define BASE_BELL_H

#include "base/atomic.h"
#include "base/task.h"

struct bell {
    struct spinlock lock;
    /* guarded by the lock: */
    struct task *sleeper; /* NULL: it is awake */
    bool rung;
};

static inline void bell_ring(struct bell *bell)
{
    spinlock_lock(&bell->lock);
    struct task *sleeper = bell->sleeper;
    bell->sleeper = NULL;
    bell->rung = true;
    if (sleeper)
        task_unpark(sleeper); /* under the lock, which the sleeper takes before it can end */
    spinlock_unlock(&bell->lock);
}
/* Whether it was rung since the sleeper was last told; does not wait. */
static inline bool bell_take(struct bell *bell)
{
    spinlock_lock(&bell->lock);
    const bool rung = bell->rung;
    bell->rung = false;
    bell->sleeper = NULL;
    spinlock_unlock(&bell->lock);
    return rung;
}
/* Until it is rung. May return earlier. */
static inline void bell_wait(struct bell *bell)
{
    spinlock_lock(&bell->lock);
    const bool rung = bell->rung;
    bell->rung = false;
    bell->sleeper = rung ? NULL : task_self();
    spinlock_unlock(&bell->lock);
    if (rung)
        return;
    task_park();
    bell_take(bell);
}

#endif
