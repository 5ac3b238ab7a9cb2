/*
 * seqlock.h - a version word before data that many read and few write: readers copy without a lock and look
 * whether the version stayed the same. The data must be copied by atomic_copy_from and atomic_copy_to, or
 * word by word with relaxed atomics, since readers meet bytes of a write under way.
 *
 * Zero-initialized is unlocked. An odd version is a writer's; writers exclude each other. A writer's section
 * is some dozen instructions and must not suspend.
 */
#ifndef BASE_SEQLOCK_H
#define BASE_SEQLOCK_H

#include "base/atomic.h"

struct seqlock {
    uint32_t version;
};

void seqlock_lock_slow(struct seqlock *lock);

/* Begins a copy. Odd: a write is under way, and the copy would be in vain. */
static inline uint32_t seqlock_read(const struct seqlock *lock)
{
    return atomic_load_acquire(&lock->version); /* acquire: the copy comes after it */
}
/* Whether what was copied since seqlock_read is of one state. */
static inline bool seqlock_same(const struct seqlock *lock, uint32_t version)
{
    /* Acquire: the relaxed loads of the copy come before the second look at the version. Pairs with the
     * fence in seqlock_try. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return !(version & 1u) && atomic_load_relaxed(&lock->version) == version;
}

static inline bool seqlock_try(struct seqlock *lock)
{
    uint32_t version = atomic_load_relaxed(&lock->version);
    /* Acquire: what the writer before wrote is seen. */
    if (version & 1u || !__atomic_compare_exchange_n(&lock->version, &version, version + 1, false,
                                                     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return false;
    /* Release: a reader that sees one of the stores that follow sees the odd version too. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return true;
}
static inline void seqlock_lock(struct seqlock *lock)
{
    if (!seqlock_try(lock))
        seqlock_lock_slow(lock);
}
static inline void seqlock_unlock(struct seqlock *lock)
{
    /* Release: the data come before it. Nobody else changes an odd version. */
    atomic_store_release(&lock->version, atomic_load_relaxed(&lock->version) + 1);
}

#endif
