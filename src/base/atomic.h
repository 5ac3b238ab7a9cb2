/*
 * atomic.h - the few atomics that the layers above may use, each with its ordering in its name,
 * a small spin lock, and word-wise copying of memory that other threads write meanwhile.
 */
#ifndef BASE_ATOMIC_H
#define BASE_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define atomic_load_relaxed(p)     __atomic_load_n((p), __ATOMIC_RELAXED)
#define atomic_load_acquire(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define atomic_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define atomic_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define atomic_add_relaxed(p, v)   __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define atomic_add_release(p, v)   __atomic_fetch_add((p), (v), __ATOMIC_RELEASE)

/* Stores `v` where *p is still *old, else loads *p into *old. For hints: no order. */
#define atomic_swap_relaxed(p, old, v)                                                                       \
    __atomic_compare_exchange_n((p), (old), (v), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)

/* Keeps the compiler from moving loads and stores across it. That is all the order that is needed where the
 * only one to see the stores comes after this process's end: a killed thread has done all of its instructions
 * before some point, and none behind it. */
#define atomic_order_stores() __atomic_signal_fence(__ATOMIC_SEQ_CST)

static inline void atomic_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A test-and-test-and-set lock for sections of a few dozen instructions that do not suspend.
 * Zero-initialized is unlocked. Yields the CPU when it spins for long. */
struct spinlock {
    uint32_t locked;
};
void spinlock_lock_slow(struct spinlock *lock);
static inline bool spinlock_try(struct spinlock *lock)
{
    return !__atomic_exchange_n(&lock->locked, 1u, __ATOMIC_ACQUIRE);
}
static inline void spinlock_lock(struct spinlock *lock)
{
    if (!spinlock_try(lock))
        spinlock_lock_slow(lock);
}
static inline void spinlock_unlock(struct spinlock *lock)
{
    __atomic_store_n(&lock->locked, 0u, __ATOMIC_RELEASE);
}

/* The same, and a full fence behind it: all that was stored before can be seen by every thread before the
 * caller goes on. */
static inline void spinlock_unlock_fenced(struct spinlock *lock)
{
#if defined(__x86_64__)
    __atomic_exchange_n(&lock->locked, 0u, __ATOMIC_SEQ_CST); /* drains the store buffer, as a fence does */
#else
    spinlock_unlock(lock);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Whether long runs of bytes that other threads may read or write are copied by assembler: to the language
 * loads and stores of vectors beside another thread's would be a race. The sanitizers see nothing of what
 * assembler copies. */
#define ATOMIC_ASSEMBLER 0
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
#undef ATOMIC_ASSEMBLER
#define ATOMIC_ASSEMBLER 1
#endif
#else
#undef ATOMIC_ASSEMBLER
#define ATOMIC_ASSEMBLER 1
#endif
#endif

/* Eight bytes at a multiple of 4, out of memory that others may write meanwhile: each half is read once,
 * relaxed. */
static inline uint64_t atomic_load_halves(const void *shared)
{
#if defined(__x86_64__)
    /* One load, by assembler, since to the language an atomic one has to be aligned to its size. */
    struct halves {
        uint32_t half[2];
    };
    uint64_t word;
    __asm__ volatile("movq %1, %0" : "=r"(word) : "m"(*(const struct halves *)shared));
    return word;
#else
    uint32_t halves[2];
    uint64_t word;
    halves[0] = atomic_load_relaxed((const uint32_t *)shared);
    halves[1] = atomic_load_relaxed((const uint32_t *)shared + 1);
    memcpy(&word, halves, sizeof word);
    return word;
#endif
}

/* Copies out of memory that others may write meanwhile: every aligned 8-byte word is read once,
 * relaxed. Any alignment and length. */
void atomic_copy_from(void *to, const void *shared, size_t length);
/* Copies into memory that others may read meanwhile: whole aligned words are stored once, relaxed;
 * the bytes of a partly covered word by one store where they are an aligned 4 or 2 bytes. */
void atomic_copy_to(void *shared, const void *from, size_t length);
/* The same for long runs of bytes whose words mean nothing by themselves, such as a value that its hash
 * proves: as quick as the CPU copies, and in whatever pieces that is. */
void atomic_copy_long_from(void *to, const void *shared, size_t length);
void atomic_copy_long_to(void *shared, const void *from, size_t length);

#endif
