/* failing.c - see failing.h. */
#include "failing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cmocka.h>

#include "banyan.h"
#include "base/atomic.h"
#include "base/task.h"

#define ATTEMPTS_MAX 100000u

static struct {
    struct spinlock lock;
    uint32_t calls; /* 0: no order is in force */
    struct failing_order order;
    pthread_t giver;
    unsigned seen, met;
} state;

static bool meant(unsigned call, long detail)
{
    const struct failing_order *order = &state.order;
    bool here = pthread_equal(state.giver, pthread_self()) != 0;
    if ((state.calls & call) == 0 || (order->detail != 0 && order->detail != detail))
        return false;
    return order->where == FAILING_ANYWHERE || here == (order->where == FAILING_HERE);
}

/* True: this call is to fail; *order as it stands. */
static bool hit(unsigned call, long detail, struct failing_order *order)
{
    bool is_hit = false;
    if (__builtin_expect((atomic_load_acquire(&state.calls) & call) == 0, 1))
        return false;
    spinlock_lock(&state.lock);
    if (meant(call, detail)) {
        unsigned first = state.order.first != 0 ? state.order.first : 1;
        state.seen++;
        is_hit = state.seen >= first && (state.order.count == 0 || state.seen - first < state.order.count);
        state.met += is_hit;
        *order = state.order;
    }
    spinlock_unlock(&state.lock);
    return is_hit;
}

static bool fails(unsigned call, long detail)
{
    struct failing_order order;
    if (!hit(call, detail, &order))
        return false;
    errno = order.error;
    return true;
}

/* True: *length was cut or the call is to fail (*failed). */
static bool fails_or_cuts(unsigned call, size_t *length)
{
    struct failing_order order;
    if (!hit(call, 0, &order))
        return false;
    if (order.error == 0) {
        *length = *length < order.bytes ? *length : order.bytes;
        return false;
    }
    errno = order.error;
    return true;
}

void failing_begin(const struct failing_order *order)
{
    spinlock_lock(&state.lock);
    state.order = *order;
    state.giver = pthread_self();
    state.seen = state.met = 0;
    atomic_store_release(&state.calls, order->calls);
    spinlock_unlock(&state.lock);
}

unsigned failing_met(void)
{
    spinlock_lock(&state.lock);
    unsigned met = state.met;
    spinlock_unlock(&state.lock);
    return met;
}

unsigned failing_seen(void)
{
    spinlock_lock(&state.lock);
    unsigned seen = state.seen;
    spinlock_unlock(&state.lock);
    return seen;
}

unsigned failing_end(void)
{
    spinlock_lock(&state.lock);
    unsigned met = state.met;
    atomic_store_release(&state.calls, 0u);
    spinlock_unlock(&state.lock);
    return met;
}

static unsigned descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        fail_msg("no list of this process's descriptors");
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

/* Threads that end may still be closing theirs. */
static void await_descriptors(unsigned wanted, unsigned number)
{
    uint64_t deadline = task_now() + UINT64_C(20000000000);
    unsigned count;
    while ((count = descriptors()) != wanted) {
        if (task_now() > deadline)
            fail_msg("failure of call %u: %u descriptors were open, now %u", number, wanted, count);
        task_sleep(1000000);
    }
}

unsigned failing_each(const struct failing_order *order, int (*attempt)(void *context), void *context,
                      int expected)
{
    struct failing_order now = *order;
    unsigned before = descriptors(), failed = 0;
    for (now.first = 1;; now.first++) {
        failing_begin(&now);
        int status = attempt(context);
        unsigned met = failing_end();
        await_descriptors(before, now.first);
        if (status && (met == 0 || status != expected))
            fail_msg("failure of call %u (%u met): status %d, wanted %d or success", now.first, met, status,
                     expected);
        if (met == 0)
            return failed;
        failed += status != 0;
        if (now.first == ATTEMPTS_MAX)
            fail_msg("no end after %u attempts", ATTEMPTS_MAX);
    }
}

/* ---- what the linker sends here: NAME becomes __wrap_NAME, and __real_NAME is the real one ---- */

#define WRAPPED(type, name, parameters, arguments, call, detail, failure)                                    \
    type __real_##name parameters;                                                                           \
    type __wrap_##name parameters;                                                                           \
    type __wrap_##name parameters                                                                            \
    {                                                                                                        \
        return fails(call, detail) ? (failure) : __real_##name arguments;                                    \
    }

WRAPPED(void *, malloc, (size_t size), (size), FAILING_MEMORY, 0, NULL)
WRAPPED(void *, calloc, (size_t count, size_t size), (count, size), FAILING_MEMORY, 0, NULL)
WRAPPED(void *, realloc, (void *old, size_t size), (old, size), FAILING_MEMORY, 0, NULL)
WRAPPED(void *, aligned_alloc, (size_t unit, size_t size), (unit, size), FAILING_MEMORY, 0, NULL)
WRAPPED(char *, strdup, (const char *text), (text), FAILING_MEMORY, 0, NULL)
WRAPPED(void *, mmap64, (void *start, size_t length, int protection, int flags, int fd, off64_t offset),
        (start, length, protection, flags, fd, offset), FAILING_MMAP, 0, MAP_FAILED)
WRAPPED(int, memfd_create, (const char *name, unsigned flags), (name, flags), FAILING_MEMFD, 0, -1)
WRAPPED(int, ftruncate64, (int fd, off64_t length), (fd, length), FAILING_FTRUNCATE, 0, -1)
WRAPPED(ssize_t, pwritev64, (int fd, const struct iovec *pieces, int count, off64_t offset),
        (fd, pieces, count, offset), FAILING_PWRITEV, 0, -1)
WRAPPED(int, fsync, (int fd), (fd), FAILING_SYNC, 0, -1)
WRAPPED(int, fdatasync, (int fd), (fd), FAILING_SYNC, 0, -1)
WRAPPED(int, renameat, (int from, const char *old, int to, const char *new), (from, old, to, new),
        FAILING_NAMES, 0, -1)
WRAPPED(int, unlinkat, (int folder, const char *name, int flags), (folder, name, flags), FAILING_NAMES, 0, -1)
WRAPPED(int, fallocate64, (int fd, int mode, off64_t offset, off64_t length), (fd, mode, offset, length),
        FAILING_FALLOCATE, 0, -1)
WRAPPED(int, fstat64, (int fd, struct stat64 *file), (fd, file), FAILING_FSTAT, 0, -1)
WRAPPED(FILE *, fopen64, (const char *path, const char *mode), (path, mode), FAILING_FOPEN, 0, NULL)
WRAPPED(int, madvise, (void *start, size_t length, int advice), (start, length, advice), FAILING_MADVISE, 0,
        -1)
WRAPPED(int, eventfd, (unsigned count, int flags), (count, flags), FAILING_EVENTFD, 0, -1)
WRAPPED(int, epoll_create1, (int flags), (flags), FAILING_EPOLL_CREATE, 0, -1)
WRAPPED(int, epoll_ctl, (int fd, int operation, int other, struct epoll_event *event),
        (fd, operation, other, event), FAILING_EPOLL_CTL, operation, -1)
WRAPPED(int, socket, (int domain, int type, int protocol), (domain, type, protocol), FAILING_SOCKET, 0, -1)
WRAPPED(int, accept4, (int fd, struct sockaddr *from, socklen_t *length, int flags),
        (fd, from, length, flags), FAILING_ACCEPT, 0, -1)
WRAPPED(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags),
        FAILING_SENDMSG, 0, -1)
WRAPPED(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags), FAILING_RECVMSG,
        0, -1)
WRAPPED(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument),
        (thread, attributes, start, argument), FAILING_THREAD, 0, errno)
WRAPPED(int, io_uring_queue_init_params,
        (unsigned entries, struct io_uring *ring, struct io_uring_params *parameters),
        (entries, ring, parameters), FAILING_URING, 0, -errno)

ssize_t __real_send(int fd, const void *bytes, size_t length, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags)
{
    return fails_or_cuts(FAILING_SEND, &length) ? -1 : __real_send(fd, bytes, length, flags);
}

ssize_t __real_recv(int fd, void *bytes, size_t length, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags)
{
    return fails_or_cuts(FAILING_RECV, &length) ? -1 : __real_recv(fd, bytes, length, flags);
}

/* Those with arguments of their own choice: as many as the kernel knows are passed on, whether they were
 * given or not, which the address sanitizer would not forgive. */
int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
__attribute__((no_sanitize_address)) int __wrap_fcntl64(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    return fails(FAILING_FCNTL, command) ? -1 : __real_fcntl64(fd, command, argument);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
__attribute__((no_sanitize_address)) long __wrap_syscall(long number, ...)
{
    va_list arguments;
    long words[6];
    va_start(arguments, number);
    for (unsigned i = 0; i < 6; i++)
        words[i] = va_arg(arguments, long);
    va_end(arguments);
    return fails(FAILING_SYSCALL, number)
               ? -1
               : __real_syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
