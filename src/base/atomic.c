#include "base/atomic.h"

#include <sched.h>

#include "base/seqlock.h"

void spinlock_lock_slow(struct spinlock *lock)
{
    for (unsigned spins = 0;; spins++) {
        /* Relaxed: only a hint of when the exchange (acquire) is worth trying. */
        if (!atomic_load_relaxed(&lock->locked) && spinlock_try(lock))
            return;
        if (spins < 200)
            atomic_pause();
        else
            sched_yield(); /* the holder may need this CPU */
    }
}

void seqlock_lock_slow(struct seqlock *lock)
{
    for (unsigned spins = 0;; spins++) {
        if (seqlock_try(lock))
            return;
        if (spins < 200)
            atomic_pause();
        else
            sched_yield(); /* the holder may need this CPU */
    }
}

/* The largest naturally aligned piece of 1, 2, 4 or 8 bytes at this address. */
static size_t piece(uintptr_t address, size_t length)
{
    size_t size = 8;
    while (size > length || address % size)
        size /= 2;
    return size;
}

/* From an aligned word. */
static inline void word_copy(uint8_t *out, const uint8_t *in)
{
    const uint64_t word = atomic_load_relaxed((const uint64_t *)(const void *)in);
    memcpy(out, &word, sizeof word);
}

void atomic_copy_from(void *to, const void *shared, size_t length)
{
    uint8_t *out = to;
    const uint8_t *in = shared;
    /* All loads are relaxed: the bytes may be of different moments, and the caller validates what it got. */
    while (length && (uintptr_t)in % 8) {
        size_t size = piece((uintptr_t)in, length);
        uint8_t bytes[8];
        if (size == 4) {
            uint32_t word = atomic_load_relaxed((const uint32_t *)(const void *)in);
            memcpy(bytes, &word, 4);
        } else if (size == 2) {
            uint16_t word = atomic_load_relaxed((const uint16_t *)(const void *)in);
            memcpy(bytes, &word, 2);
        } else {
            bytes[0] = atomic_load_relaxed(in);
        }
        memcpy(out, bytes, size);
        in += size, out += size, length -= size;
    }
    for (; length >= 32; in += 32, out += 32, length -= 32) { /* most are buckets of some hundred bytes */
        /* Word by word to where they go: put together on the stack, they would be loaded from there as
         * vectors before the CPU has stored them. */
        word_copy(out, in);
        word_copy(out + 8, in + 8);
        word_copy(out + 16, in + 16);
        word_copy(out + 24, in + 24);
    }
    for (; length >= 8; in += 8, out += 8, length -= 8)
        word_copy(out, in);
    if (length) {
        /* The rest shares one aligned word, which may end beyond the source: so only its bytes are loaded, in
         * pieces. */
        if (length & 4) {
            uint32_t word = atomic_load_relaxed((const uint32_t *)(const void *)in);
            memcpy(out, &word, 4);
            in += 4, out += 4;
        }
        if (length & 2) {
            uint16_t word = atomic_load_relaxed((const uint16_t *)(const void *)in);
            memcpy(out, &word, 2);
            in += 2, out += 2;
        }
        if (length & 1)
            *out = atomic_load_relaxed(in);
    }
}

/* As many bytes as can be copied 64 at a time, by assembler, since to the language such loads and stores
 * beside another thread's would be a race. Returns how many. */
static size_t lines_copy(uint8_t *to, const uint8_t *from, size_t length)
{
#if ATOMIC_ASSEMBLER
    const size_t whole = length & ~(size_t)63;
    for (const uint8_t *end = from + whole; from < end; from += 64, to += 64)
        __asm__ volatile("movdqu (%0), %%xmm0\n\t"
                         "movdqu 16(%0), %%xmm1\n\t"
                         "movdqu 32(%0), %%xmm2\n\t"
                         "movdqu 48(%0), %%xmm3\n\t"
                         "movdqu %%xmm0, (%1)\n\t"
                         "movdqu %%xmm1, 16(%1)\n\t"
                         "movdqu %%xmm2, 32(%1)\n\t"
                         "movdqu %%xmm3, 48(%1)"
                         :
                         : "r"(from), "r"(to)
                         : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
    return whole;
#else
    (void)to, (void)from, (void)length;
    return 0;
#endif
}

void atomic_copy_long_from(void *to, const void *shared, size_t length)
{
    const size_t done = lines_copy(to, shared, length);
    atomic_copy_from((uint8_t *)to + done, (const uint8_t *)shared + done, length - done);
}

void atomic_copy_long_to(void *shared, const void *from, size_t length)
{
    const size_t done = lines_copy(shared, from, length);
    atomic_copy_to((uint8_t *)shared + done, (const uint8_t *)from + done, length - done);
}

/* Stores 8, 4, 2 or 1 bytes. */
static inline void store_piece(uint8_t *out, const uint8_t *in, size_t size)
{
    if (size == 8) {
        uint64_t word;
        memcpy(&word, in, 8);
        atomic_store_relaxed((uint64_t *)(void *)out, word);
    } else if (size == 4) {
        uint32_t word;
        memcpy(&word, in, 4);
        atomic_store_relaxed((uint32_t *)(void *)out, word);
    } else if (size == 2) {
        uint16_t word;
        memcpy(&word, in, 2);
        atomic_store_relaxed((uint16_t *)(void *)out, word);
    } else {
        atomic_store_relaxed(out, *in);
    }
}

void atomic_copy_to(void *shared, const void *from, size_t length)
{
    uint8_t *out = shared;
    const uint8_t *in = from;
    /* All stores are relaxed: a caller that needs an order puts a fence before the copy. */
    while (length && (uintptr_t)out % 8) {
        size_t size = piece((uintptr_t)out, length);
        store_piece(out, in, size);
        in += size, out += size, length -= size;
    }
    for (; length >= 32; in += 32, out += 32, length -= 32) { /* most are slots, and leaves that are split */
        store_piece(out, in, 8);
        store_piece(out + 8, in + 8, 8);
        store_piece(out + 16, in + 16, 8);
        store_piece(out + 24, in + 24, 8);
    }
    for (; length >= 8; in += 8, out += 8, length -= 8)
        store_piece(out, in, 8);
    while (length) {
        size_t size = piece((uintptr_t)out, length);
        store_piece(out, in, size);
        in += size, out += size, length -= size;
    }
}
