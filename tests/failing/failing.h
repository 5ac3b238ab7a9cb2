/*
 * failing.h - allocations and system calls that fail, or move a few bytes only, when a test says so.
 *
 * A test program with the dependency `failing` has its own calls and those of the product's libraries sent
 * through here by the linker (--wrap); what shared libraries call among themselves (OpenSSL, libc) goes its
 * usual way. Without an order everything is passed on. One order is in force at a time; it may be given and
 * withdrawn on any thread, and counts the calls of all threads that it is for.
 */
#ifndef TESTS_FAILING_FAILING_H
#define TESTS_FAILING_FAILING_H

#include <stdint.h>

enum failing_call {
    FAILING_MEMORY = 1u << 0, /* malloc, calloc, realloc, aligned_alloc, strdup */
    FAILING_MMAP = 1u << 1,
    FAILING_MEMFD = 1u << 2,
    FAILING_FTRUNCATE = 1u << 3,
    FAILING_FALLOCATE = 1u << 4,
    FAILING_FCNTL = 1u << 5,
    FAILING_FSTAT = 1u << 6,
    FAILING_FOPEN = 1u << 7,
    FAILING_MADVISE = 1u << 8,
    FAILING_EVENTFD = 1u << 9,
    FAILING_EPOLL_CREATE = 1u << 10,
    FAILING_EPOLL_CTL = 1u << 11,
    FAILING_SOCKET = 1u << 12,
    FAILING_ACCEPT = 1u << 13,
    FAILING_SEND = 1u << 14,
    FAILING_RECV = 1u << 15,
    FAILING_SENDMSG = 1u << 16,
    FAILING_RECVMSG = 1u << 17,
    FAILING_THREAD = 1u << 18,  /* pthread_create */
    FAILING_URING = 1u << 19,   /* io_uring_queue_init_params */
    FAILING_SYSCALL = 1u << 20, /* syscall(), see `detail` */
    FAILING_PWRITEV = 1u << 21,
    FAILING_SYNC = 1u << 22,  /* fsync, fdatasync */
    FAILING_NAMES = 1u << 23, /* renameat, unlinkat */
};
enum failing_where {
    FAILING_ANYWHERE,
    FAILING_HERE,
    FAILING_ELSEWHERE
}; /* than on the thread that ordered it */

struct failing_order {
    unsigned calls;           /* of these (enum failing_call, or-ed) ... */
    enum failing_where where; /* ... on these threads ... */
    long detail;              /* ... syscall: this number; fcntl, epoll_ctl: this command; 0: any ... */
    unsigned first;           /* ... the first-th from now, 0 as 1, ... */
    unsigned count;           /* ... and count - 1 more; 0: all from there on; ... */
    int error;                /* ... fail with this errno; 0: as `bytes` says, of calls that move bytes */
    uint32_t bytes;           /* at most so many are moved */
};
void failing_begin(const struct failing_order *order);
/* Withdraws it. Returns how many calls it has met. */
unsigned failing_end(void);
/* How many it has met until now; and how many calls it was for, those that it let pass (`first`) too. */
unsigned failing_met(void);
unsigned failing_seen(void);

/*
 * Out-of-memory loops, and the like for other calls: calls attempt(context) again and again, letting its 1st
 * call fail (and order->count - 1 more), then its 2nd, ..., until an attempt met no failure. order->first is
 * ignored.
 *
 * An attempt does something whole: makes what it needs, uses it, and takes it all down again, whether it went
 * well or not. It returns BANYAN_OK or the error that the product gave it. That must be `expected` where a
 * call has failed, or BANYAN_OK where the product can do without; the last attempt must succeed. Each must
 * leave as many descriptors open as there were, at once or soon. (Memory that is lost is found by the
 * sanitizers' run.) Whatever else fails the test. Returns how many attempts failed.
 */
unsigned failing_each(const struct failing_order *order, int (*attempt)(void *context), void *context,
                      int expected);

#endif
