/*
 * wakeup.h - one task waits, once, for what another task tells it: a word and the waiting task, on the
 * waiter's stack. The teller may be on another thread, and wakeup_give is its last look at the object and at
 * the task, so the waiter's memory is its own again when wakeup_wait returns.
 *
 * The waiter makes it visible to the teller (under a lock of theirs) between wakeup_init and wakeup_wait.
 * What the teller has written before wakeup_give is seen behind wakeup_wait. Cannot fail, allocates nothing.
 */
#ifndef BASE_WAKEUP_H
#define BASE_WAKEUP_H

#include "base/atomic.h"
#include "base/task.h"

enum wakeup_state {
    WAKEUP_QUEUED,
    WAKEUP_PARKED,  /* set by the waiter */
    WAKEUP_GRANTED, /* set by the teller, which still touches the waiter's task */
    WAKEUP_DONE,    /* set by the teller: it is through with the object */
};

struct wakeup {
    struct task *task;
    uint32_t state; /* atomic; written by both sides */
};

#define WAKEUP_SPINS 100u

static inline void wakeup_init(struct wakeup *wakeup)
{
    wakeup->task = task_self();
    wakeup->state = WAKEUP_QUEUED;
}
/* The waiter: returns when it was told. */
static inline void wakeup_wait(struct wakeup *wakeup)
{
    uint32_t queued = WAKEUP_QUEUED;
    /* Relaxed: says only that we park. If it fails the teller was faster, and the loops below acquire. */
    __atomic_compare_exchange_n(&wakeup->state, &queued, (uint32_t)WAKEUP_PARKED, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    while (atomic_load_acquire(&wakeup->state) == WAKEUP_PARKED)
        task_park();
    for (unsigned spins = 0; atomic_load_acquire(&wakeup->state) != WAKEUP_DONE; spins++) {
        /* The teller still touches our task. Its thread may have lost its CPU to ours, which it has just
         * woken: then it goes on no sooner than we leave it. */
        if (spins < WAKEUP_SPINS)
            atomic_pause();
        else
            task_yield();
    }
}
/* The teller, once. */
static inline void wakeup_give(struct wakeup *wakeup)
{
    uint32_t queued = WAKEUP_QUEUED;
    /* Release: with what was written before. If it fails the waiter has parked; it published nothing with
     * that. */
    if (__atomic_compare_exchange_n(&wakeup->state, &queued, (uint32_t)WAKEUP_DONE, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED))
        return;
    struct task *task = wakeup->task;
    atomic_store_release(&wakeup->state, WAKEUP_GRANTED); /* as above */
    task_unpark(task);
    atomic_store_release(&wakeup->state, WAKEUP_DONE); /* behind the last look at the task */
}

#endif
