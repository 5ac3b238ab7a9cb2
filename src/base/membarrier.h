/*
 * membarrier.h - one thread announces something and then looks at a word, often; another changes the word and
 * then looks at the announcements, seldom: at least one of the two must see the other (Dekker). With
 * membarrier(2) the frequent side needs no fence of its own: the seldom side has the kernel run one on every
 * CPU that runs a thread of this process. Any thread; some microseconds for membarrier_all, nothing for the
 * frequent side. Where the kernel has no such call both sides run a full fence.
 */
#ifndef BASE_MEMBARRIER_H
#define BASE_MEMBARRIER_H

#include <stdbool.h>

/* Asks the kernel for it; each part of a process that needs it asks once, and keeps the answer. */
bool membarrier_register(void);
/* The seldom side, between its store and its loads. `registered`: what membarrier_register said. */
void membarrier_all(bool registered);
/* The frequent side, between its store and its load. */
static inline void membarrier_light(bool registered)
{
    if (__builtin_expect(registered, 1))
        __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the compiler keeps the order; membarrier_all the CPU */
    else
        __atomic_thread_fence(__ATOMIC_SEQ_CST); /* pairs with the fence in membarrier_all */
}

#endif
