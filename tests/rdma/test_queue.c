/*
 * test_queue.c - the compute node's end of a queue pair (fabric/verbs_queue.h) on a real libibverbs and a
 * real device: its other end is a bare queue pair of the same device. Results, errors, bounds, sleep; and
 * what the data path costs when it is warm, counted by standing in front of the C library's functions.
 *
 * It must run where there is a device: scripts/test-rdma. Numbers for people go to standard output.
 * Usage: test_queue [PATTERN], the tests to run: 'test_warm*'
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/task.h"
#include "fabric/target.h"
#include "fabric/verbs_queue.h"
#include "fabric/verbs_works.h"
#include "trials.h"

#define NODE        2
#define POOL_BYTES  (UINT64_C(4) << 20)
#define LOCK_BYTES  (UINT64_C(64) << 10)
#define FAR_RIGHTS  (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define PATIENCE_NS (UINT64_C(120) * 1000000000) /* then something hangs */
/* Times 4.096 us << 20 is 4 s: emulated, a packet may be late, and a READ that is sent again may see what was
 * written behind it, which the contract allows and a model does not. */
#define TIMEOUT_LONG  20u
#define TIMEOUT_SHORT 12u

/* ---- counting calls ---- */

/* Sanitizers stand in front of the same functions. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTING 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define COUNTING 0
#endif
#endif
#ifndef COUNTING
#define COUNTING 1
#endif

static struct calls {
    uint64_t memory;  /* malloc and its kin, mmap and munmap */
    uint64_t mutexes; /* pthread_mutex_lock */
    uint64_t spins;   /* pthread_spin_lock: the device's library has some */
    uint64_t writes;  /* write(): Soft-RoCE's doorbell is one */
    uint64_t others;  /* read, ioctl, poll */
} calls;

#if COUNTING
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

void *malloc(size_t size)
{
    calls.memory++;
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    calls.memory++;
    return __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size)
{
    calls.memory++;
    return __libc_realloc(memory, size);
}
void free(void *memory)
{
    calls.memory++;
    __libc_free(memory);
}
int posix_memalign(void **memory, size_t alignment, size_t size)
{
    calls.memory++;
    *memory = __libc_memalign(alignment, size);
    return *memory != NULL ? 0 : ENOMEM;
}
void *aligned_alloc(size_t alignment, size_t size)
{
    calls.memory++;
    return __libc_memalign(alignment, size);
}
void *mmap(void *at, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    calls.memory++;
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, descriptor, offset);
}
int munmap(void *at, size_t bytes)
{
    calls.memory++;
    return (int)syscall(SYS_munmap, at, bytes);
}
ssize_t write(int descriptor, const void *data, size_t bytes)
{
    calls.writes++;
    return syscall(SYS_write, descriptor, data, bytes);
}
ssize_t read(int descriptor, void *data, size_t bytes)
{
    calls.others++;
    return syscall(SYS_read, descriptor, data, bytes);
}
int poll(struct pollfd *polled, nfds_t count, int milliseconds)
{
    calls.others++;
    return (int)syscall(SYS_poll, polled, count, milliseconds);
}
int ioctl(int descriptor, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    calls.others++;
    return (int)syscall(SYS_ioctl, descriptor, request, argument);
}

static int (*real_mutex_lock)(pthread_mutex_t *);
static int (*real_spin_lock)(pthread_spinlock_t *);

/* Called by others' constructors too, before main. */
static void find(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
}
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (real_mutex_lock == NULL)
        find(&real_mutex_lock, "pthread_mutex_lock");
    calls.mutexes++;
    return real_mutex_lock(mutex);
}
int pthread_spin_lock(pthread_spinlock_t *lock)
{
    if (real_spin_lock == NULL)
        find(&real_spin_lock, "pthread_spin_lock");
    calls.spins++;
    return real_spin_lock(lock);
}
#endif

/* ---- two ends ---- */

static struct verbs_device *device;
static struct ibv_mr *pool_region, *lock_region;
static uint8_t *pool, *locks;
static struct verbs_memory memory;
static struct error error;

struct ends {
    struct verbs_queue *queue;
    struct ibv_cq *far_completions;
    struct ibv_qp *far;
    uint32_t done;
    int status; /* of the last one */
    struct fabric_list *last;
};

static void done(void *owner, struct fabric_list *list, int status)
{
    struct ends *ends = owner;
    list->status = status;
    ends->done++;
    ends->status = status;
    ends->last = list;
}

static void check(int status)
{
    if (status)
        fail_msg("%s", error.text);
}

static void *pages(uint64_t bytes)
{
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(made != MAP_FAILED);
    return made;
}

static int group_setup(void **state)
{
    const struct verbs_options options = {.timeout = TIMEOUT_LONG};
    check(verbs_device_open(&device, &options, NULL, &error));
    pool = pages(POOL_BYTES);
    locks = pages(LOCK_BYTES);
    int access = IBV_ACCESS_LOCAL_WRITE | FAR_RIGHTS;
    check(verbs_memory_register(device, pool, POOL_BYTES, access, "the pool", &pool_region, &error));
    check(verbs_memory_register(device, locks, LOCK_BYTES, access, "the locks", &lock_region, &error));
    return 0;
}

static int group_teardown(void **state)
{
    if (device == NULL)
        return 0;
    ibv_dereg_mr(pool_region);
    ibv_dereg_mr(lock_region);
    munmap(pool, POOL_BYTES);
    munmap(locks, LOCK_BYTES);
    verbs_device_close(device);
    return 0;
}

static int setup(void **state)
{
    memset(pool, 0, POOL_BYTES);
    memset(locks, 0, LOCK_BYTES);
    memory = (struct verbs_memory){.pool_address = (uint64_t)(uintptr_t)pool,
                                   .pool_bytes = POOL_BYTES,
                                   .pool_key = pool_region->rkey,
                                   .lock_address = (uint64_t)(uintptr_t)locks,
                                   .lock_bytes = LOCK_BYTES,
                                   .lock_key = lock_region->rkey};
    return 0;
}

static void far_close(struct ends *ends)
{
    if (ends->far != NULL)
        assert_int_equal(ibv_destroy_qp(ends->far), 0);
    ends->far = NULL;
}

static void ends_open(struct ends *ends)
{
    struct wire_nic far;
    *ends = (struct ends){0};
    check(verbs_queue_create(&ends->queue, device, &error));
    ends->far_completions = ibv_create_cq(device->context, 16, NULL, NULL, 0);
    assert_non_null(ends->far_completions);
    struct ibv_qp_init_attr attributes = {
        .send_cq = ends->far_completions,
        .recv_cq = ends->far_completions,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    ends->far = device->provider->queue_create(device->domain, &attributes, device->features.masked_cas);
    assert_non_null(ends->far);
    check(verbs_pair_begin(device, ends->far, FAR_RIGHTS, &far, &error));
    check(verbs_pair_connect(device, ends->far, &far, verbs_queue_end(ends->queue), &error));
    check(verbs_queue_connect(ends->queue, &far, &memory, &error));
}

static void ends_close(struct ends *ends)
{
    verbs_queue_destroy(ends->queue, done, ends);
    far_close(ends);
    assert_int_equal(ibv_destroy_cq(ends->far_completions), 0);
}

/* Until nothing is under way, or the queue is broken. */
static void settle(struct ends *ends)
{
    uint64_t begin = task_now();
    while (verbs_queue_under_way(ends->queue) > 0 && verbs_queue_broken(ends->queue) == NULL) {
        verbs_queue_poll(ends->queue, done, ends);
        if (task_now() - begin > PATIENCE_NS)
            fail_msg("%u lists never complete", verbs_queue_under_way(ends->queue));
    }
}

static struct fabric_list list_of(struct fabric_command *commands, unsigned count)
{
    return (struct fabric_list){.node = NODE, .count = (uint16_t)count, .commands = commands, .status = 1};
}

static void run(struct ends *ends, struct fabric_command *commands, unsigned count, int status)
{
    struct fabric_list list = list_of(commands, count);
    assert_int_equal(verbs_queue_post(ends->queue, &list), BANYAN_OK);
    settle(ends);
    if (verbs_queue_broken(ends->queue) != NULL)
        fail_msg("broken: %s", verbs_queue_broken(ends->queue));
    assert_int_equal(list.status, status);
}

static gaddr pool_at(uint64_t offset)
{
    return gaddr_make(NODE, offset);
}
static gaddr lock_at(uint64_t offset)
{
    return gaddr_make(NODE, GADDR_LOCK_REGION | offset);
}

/* ---- what lists do ---- */

static void test_operations(void **state)
{
    struct ends ends;
    uint64_t words[8] = {0}, word = 0;
    memcpy(&word, locks + 64, 8);
    ends_open(&ends);
    struct fabric_command lock[] = {cas_of(lock_at(64), 0, 77), read_of(lock_at(64), &word, 8),
                                    read_of(pool_at(4096), words, sizeof words)};
    memset(pool + 4096, 0x11, sizeof words);
    run(&ends, lock, 3, BANYAN_OK);
    assert_int_equal(lock[0].cas.old, 0);
    assert_int_equal(word, 77); /* a READ sees the CAS before it */
    assert_int_equal(words[7], 0x1111111111111111);
    assert_ptr_equal(lock[2].read.data, words);
    run(&ends, lock, 1, BANYAN_OK);
    assert_int_equal(lock[0].cas.old, 77);

    uint64_t zero = 0;
    memset(words, 0x22, sizeof words);
    struct fabric_command unlock[] = {write_of(pool_at(4096), words, sizeof words),
                                      write_of(lock_at(64), &zero, 8), faa_of(pool_at(8), 5),
                                      faa_of(pool_at(8), UINT64_MAX)};
    run(&ends, unlock, 4, BANYAN_OK);
    assert_memory_equal(pool + 4096, words, sizeof words);
    assert_memory_equal(locks + 64, &zero, 8);
    assert_int_equal(unlock[2].faa.old, 0);
    assert_int_equal(unlock[3].faa.old, 5);
    memcpy(&word, pool + 8, 8);
    assert_int_equal(word, 4);

    struct fabric_command cut[] = {faa_of(pool_at(16), 1), read_of(pool_at(POOL_BYTES - 7), words, 8),
                                   faa_of(pool_at(16), 1)};
    run(&ends, cut, 3, BANYAN_EADDRESS);
    memcpy(&word, pool + 16, 8);
    assert_int_equal(word, 1);
    ends_close(&ends);
}

/* Every length where something changes, there and back. */
static void test_lengths(void **state)
{
    static const uint32_t lengths[] = {1,    7,    8,    9,    27,    28,     29,     63,
                                       64,   65,   128,  219,  220,   221,    512,    513,
                                       1023, 1024, 1025, 4096, 65535, 262144, 262145, FABRIC_LENGTH_MAX};
    uint8_t *data = pages(FABRIC_LENGTH_MAX), *back = pages(FABRIC_LENGTH_MAX);
    struct ends ends;
    ends_open(&ends);
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint64_t offset = 4096 + i;
        for (uint32_t byte = 0; byte < lengths[i]; byte++)
            data[byte] = (uint8_t)random_mix(byte + i);
        struct fabric_command commands[] = {write_of(pool_at(offset), data, lengths[i]),
                                            read_of(pool_at(offset), back, lengths[i])};
        run(&ends, commands, 2, BANYAN_OK);
        assert_memory_equal(pool + offset, data, lengths[i]);
        assert_memory_equal(back, data, lengths[i]);
        assert_int_equal(pool[offset - 1], 0);
        assert_int_equal(pool[offset + lengths[i]], 0);
        memset(pool, 0, POOL_BYTES);
    }
    ends_close(&ends);
    munmap(data, FABRIC_LENGTH_MAX);
    munmap(back, FABRIC_LENGTH_MAX);
}

/* ---- random lists, through two queues at once ---- */

#define TRIALS 1024
struct half {
    struct ends ends;
    struct trial_space space;
    struct trial *trials[TRIALS];
    uint32_t posted, judged, busy;
};

static void half_take(struct half *half)
{
    verbs_queue_poll(half->ends.queue, done, &half->ends);
    if (verbs_queue_broken(half->ends.queue) != NULL)
        fail_msg("broken: %s", verbs_queue_broken(half->ends.queue));
    for (; half->judged < half->ends.done; half->judged++)
        trial_judge(half->trials[half->judged % TRIALS]);
}

static void half_post(struct half *half, struct random *random, const struct fabric_target *model)
{
    struct trial *trial = trial_make(random, &half->space);
    int status;
    while ((status = verbs_queue_post(half->ends.queue, &trial->list)) == BANYAN_EBUSY) {
        assert_true(verbs_queue_under_way(half->ends.queue) > 0);
        half->busy++;
        half_take(half);
    }
    trial_model(trial, model);
    if (!status) {
        half->trials[half->posted++ % TRIALS] = trial;
    } else {
        trial->list.status = status;
        trial_judge(trial);
    }
}

static void test_random_lists(void **state)
{
    static struct half halves[2];
    struct fabric_target model = {.pool = pages(POOL_BYTES),
                                  .pool_bytes = POOL_BYTES,
                                  .locks = pages(LOCK_BYTES),
                                  .lock_bytes = LOCK_BYTES,
                                  .lock_width = 8};
    struct random random;
    random_seed(&random, 5);
    for (unsigned i = 0; i < 2; i++) {
        halves[i].space = (struct trial_space){.node = NODE,
                                               .masked = device->features.masked_cas,
                                               .pool_begin = POOL_BYTES / 2 * i,
                                               .pool_end = POOL_BYTES / 2 * (i + 1),
                                               .lock_begin = LOCK_BYTES / 2 * i,
                                               .lock_end = LOCK_BYTES / 2 * (i + 1),
                                               .bad = POOL_BYTES};
        ends_open(&halves[i].ends);
    }
    for (unsigned round = 0; round < 1500; round++) {
        struct half *half = &halves[random_below(&random, 2)];
        half_post(half, &random, &model);
        if (random_chance(&random, 0.01))
            half_take(half);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct half *half = &halves[i];
        settle(&half->ends);
        half_take(half);
        assert_int_equal(half->judged, half->posted);
        const struct verbs_counts *counts = verbs_queue_counts(half->ends.queue);
        assert_int_equal(counts->lists, half->posted);
        assert_int_equal(counts->doorbells, half->posted);
        assert_int_equal(counts->signalled, half->posted);
        assert_int_equal(counts->completions, half->posted);
        printf("queue %u: %llu lists, %llu requests, %llu inlined, %llu with memory of their own, %u times "
               "busy\n",
               i, (unsigned long long)counts->lists, (unsigned long long)counts->works,
               (unsigned long long)counts->inlined, (unsigned long long)counts->registered, half->busy);
        assert_true(half->busy > 0 && counts->registered > 0 && counts->inlined > 0);
        ends_close(&half->ends);
    }
    assert_memory_equal(model.pool, pool, POOL_BYTES);
    assert_memory_equal(model.locks, locks, LOCK_BYTES);
    munmap(model.pool, POOL_BYTES);
    munmap(model.locks, LOCK_BYTES);
}

/* As many as go in, again and again: one request a list, then three. The device would refuse one too many. */
static void test_bounds(void **state)
{
    static struct fabric_list lists[1024];
    static uint64_t words[8];
    struct fabric_command commands[] = {write_of(pool_at(64), words, 8), read_of(pool_at(64), words, 64),
                                        faa_of(pool_at(8), 1)};
    struct ends ends;
    ends_open(&ends);
    uint32_t most = device->limits.works < 512 ? device->limits.works : 512;
    for (unsigned count = 1; count <= 3; count += 2) {
        uint32_t posted = 0, refused = 0;
        while (posted < 5000) {
            lists[posted % 1024] = list_of(commands, count);
            int status = verbs_queue_post(ends.queue, &lists[posted % 1024]);
            if (!status) {
                posted++;
            } else {
                assert_int_equal(status, BANYAN_EBUSY);
                refused++;
                uint32_t before = ends.done;
                while (ends.done == before)
                    verbs_queue_poll(ends.queue, done, &ends);
            }
            assert_true(verbs_queue_under_way(ends.queue) <= most / count);
        }
        settle(&ends);
        assert_true(refused > 0);
        assert_null(verbs_queue_broken(ends.queue));
    }
    assert_int_equal(ends.done, 10000);
    ends_close(&ends);
}

/* ---- errors ---- */

/* What names the wrong key or address is told; lists before it are done, those from it on end with ENET. */
static void remote_access_error(const struct verbs_memory *wrong, gaddr address, const char *text)
{
    struct ends ends;
    uint64_t words[8], word = 1;
    const struct verbs_memory right = memory;
    memory = *wrong;
    ends_open(&ends);
    memory = right;
    struct fabric_command good[] = {write_of(lock_at(8), &word, 8)};
    struct fabric_command bad[] = {faa_of(lock_at(16), 1), read_of(address, words, sizeof words)};
    struct fabric_command late[] = {faa_of(lock_at(16), 100)};
    struct fabric_list lists[] = {list_of(good, 1), list_of(bad, 2), list_of(late, 1)};
    memset(locks, 0, 64);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(verbs_queue_post(ends.queue, &lists[i]), BANYAN_OK);
    settle(&ends);
    assert_non_null(verbs_queue_broken(ends.queue));
    printf("told: %s\n", verbs_queue_broken(ends.queue));
    assert_true(strncmp(verbs_queue_broken(ends.queue), text, strlen(text)) == 0);
    assert_int_equal(ends.done, 1);
    assert_int_equal(lists[0].status, BANYAN_OK);
    assert_int_equal(verbs_queue_under_way(ends.queue), 2);
    assert_int_equal(verbs_queue_post(ends.queue, &lists[0]), BANYAN_ENET);
    ends_close(&ends);
    assert_int_equal(lists[1].status, BANYAN_ENET);
    assert_int_equal(lists[2].status, BANYAN_ENET);
    assert_int_equal(locks[8], 1);
    assert_int_equal(locks[16], 1); /* what stood before it was done, what stood behind it not */
}

static void test_remote_access_errors(void **state)
{
    struct verbs_memory wrong = memory;
    wrong.pool_key = pool_region->rkey ^ 0x5500;
    remote_access_error(&wrong, pool_at(0x1000), "READ of 64 bytes at 2:0x1000: remote access error");
    wrong = memory;
    wrong.pool_bytes = 2 * POOL_BYTES; /* it says; more than is registered */
    remote_access_error(&wrong, pool_at(POOL_BYTES - 56),
                        "READ of 64 bytes at 2:0x3fffc8: remote access error");
}

static void test_other_end_gone(void **state)
{
    struct ends ends;
    uint64_t word = 1;
    struct fabric_command commands[] = {write_of(pool_at(8), &word, 8), faa_of(pool_at(8), 1)};
    struct fabric_list list = list_of(commands, 2);
    device->options.timeout = TIMEOUT_SHORT;
    ends_open(&ends);
    device->options.timeout = TIMEOUT_LONG;
    run(&ends, commands, 2, BANYAN_OK);
    far_close(&ends);
    assert_int_equal(verbs_queue_post(ends.queue, &list), BANYAN_OK);
    settle(&ends);
    assert_non_null(verbs_queue_broken(ends.queue));
    printf("told: %s\n", verbs_queue_broken(ends.queue));
    assert_non_null(strstr(verbs_queue_broken(ends.queue), " of 8 bytes at 2:0x8: no answer"));
    ends_close(&ends);
    assert_int_equal(list.status, BANYAN_ENET);
}

/* The other end does not answer any more, as after a fence, and we do not wait until the device sees it. */
static void test_destroyed_under_way(void **state)
{
    struct ends ends;
    struct fabric_command commands[] = {faa_of(lock_at(8), 1)};
    struct fabric_list list = list_of(commands, 1);
    ends_open(&ends);
    run(&ends, commands, 1, BANYAN_OK);
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(ibv_modify_qp(ends.far, &attributes, IBV_QP_STATE), 0);
    assert_int_equal(verbs_queue_post(ends.queue, &list), BANYAN_OK);
    verbs_queue_destroy(ends.queue, done, &ends);
    ends.queue = NULL;
    assert_int_equal(list.status, BANYAN_ENET);
    assert_int_equal(locks[8], 1);
    ends_close(&ends);
}

/* ---- sleep ---- */

/* Posts when it is told to, from another thread: the queue is its own meanwhile. */
struct poster {
    struct ends *ends;
    sem_t go;
    struct fabric_command commands[2];
    struct fabric_list list;
};

static void *poster_main(void *argument)
{
    struct poster *poster = argument;
    for (;;) {
        sem_wait(&poster->go);
        if (poster->list.count == 0)
            return NULL;
        if (verbs_queue_post(poster->ends->queue, &poster->list))
            abort();
    }
}

/* Armed before the post: the sleep ends when the list is done, and not before. */
static void test_sleep(void **state)
{
    struct ends ends;
    uint64_t words[8];
    pthread_t thread;
    struct poster poster = {.ends = &ends};
    ends_open(&ends);
    struct pollfd waiting = {.fd = verbs_queue_descriptor(ends.queue), .events = POLLIN};
    sem_init(&poster.go, 0, 0);
    poster.commands[0] = faa_of(pool_at(8), 1);
    poster.commands[1] = read_of(pool_at(64), words, 64);
    assert_int_equal(pthread_create(&thread, NULL, poster_main, &poster), 0);
    for (unsigned i = 0; i < 300; i++) {
        poster.list = list_of(poster.commands, 2);
        verbs_queue_arm(ends.queue);
        assert_int_equal(verbs_queue_poll(ends.queue, done, &ends), 0);
        assert_int_equal(poll(&waiting, 1, 0), 0);
        sem_post(&poster.go);
        assert_int_equal(poll(&waiting, 1, (int)(PATIENCE_NS / 1000000)), 1);
        verbs_queue_awake(ends.queue);
        assert_int_equal(poll(&waiting, 1, 0), 0);
        assert_int_equal(verbs_queue_poll(ends.queue, done, &ends), 1);
        assert_int_equal(poster.list.status, BANYAN_OK);
        assert_int_equal(poster.commands[0].faa.old, i);
    }
    poster.list.count = 0;
    sem_post(&poster.go);
    pthread_join(thread, NULL);
    sem_destroy(&poster.go);
    ends_close(&ends);
}

/* However the completion falls between the post, the arming and the last look, it is never missed. */
static void test_never_missed(void **state)
{
    struct ends ends;
    uint64_t words[8];
    uint32_t slept = 0;
    ends_open(&ends);
    struct pollfd waiting = {.fd = verbs_queue_descriptor(ends.queue), .events = POLLIN};
    for (unsigned i = 0; i < 500; i++) {
        struct fabric_command commands[] = {faa_of(pool_at(8), 1), read_of(pool_at(64), words, 64)};
        struct fabric_list list = list_of(commands, 2);
        if (i % 2 == 0)
            verbs_queue_arm(ends.queue);
        assert_int_equal(verbs_queue_post(ends.queue, &list), BANYAN_OK);
        if (i % 2 == 1)
            verbs_queue_arm(ends.queue);
        while (verbs_queue_poll(ends.queue, done, &ends) == 0) {
            assert_int_equal(poll(&waiting, 1, (int)(PATIENCE_NS / 1000000)), 1);
            slept++;
            verbs_queue_awake(ends.queue);
            verbs_queue_arm(ends.queue);
        }
        assert_int_equal(list.status, BANYAN_OK);
        assert_int_equal(commands[0].faa.old, i);
        verbs_queue_awake(ends.queue);
    }
    printf("slept %u times for 500 lists, armed %llu times\n", slept,
           (unsigned long long)verbs_queue_counts(ends.queue)->arms);
    assert_int_equal(poll(&waiting, 1, 0), 0);
    ends_close(&ends);
}

/* ---- costs ---- */

/* The lists of a tree: lock and read, write back and unlock, look up, scan. Four under way. */
static void tree_lists(struct ends *ends, uint32_t count)
{
    static uint8_t leaf[4][1024], many[4][8][1024];
    static uint64_t zero;
    static struct fabric_command commands[4][8];
    static struct fabric_list lists[4];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = i % 4;
        unsigned length = 2;
        if (slot == 0)
            settle(ends);
        gaddr node = pool_at(4096 + 1024 * (i % 1000)), lock = lock_at(8 * (i % 1000));
        if (slot == 0) {
            commands[slot][0] = cas_of(lock, 0, 9);
            commands[slot][1] = read_of(node, leaf[slot], 1024);
        } else if (slot == 1) {
            commands[slot][0] = write_of(node, leaf[slot], 1024);
            commands[slot][1] = write_of(lock, &zero, 8);
        } else if (slot == 2) {
            commands[slot][0] = read_of(node, leaf[slot], 1024);
            length = 1;
        } else {
            for (length = 0; length < 8; length++)
                commands[slot][length] = read_of(node, many[slot][length], 1024);
        }
        lists[slot] = list_of(commands[slot], length);
        assert_int_equal(verbs_queue_post(ends->queue, &lists[slot]), BANYAN_OK);
    }
    settle(ends);
    assert_null(verbs_queue_broken(ends->queue));
}

/* Nothing is allocated, no lock is ours, and the only call of the system is the device's own, for its
 * doorbell. */
static void test_warm_path(void **state)
{
    struct ends ends;
    ends_open(&ends);
    tree_lists(&ends, 400);
    struct verbs_counts counts = *verbs_queue_counts(ends.queue);
    struct calls before = calls;
    tree_lists(&ends, 10000);
    struct calls after = calls;
    const struct verbs_counts *now = verbs_queue_counts(ends.queue);
    uint64_t doorbells = now->doorbells - counts.doorbells;
    printf("10000 lists: %llu doorbells, %llu requests, %llu completions; of the C library: memory %llu, "
           "mutexes %llu, "
           "spin locks %llu, write() %llu, other calls %llu\n",
           (unsigned long long)doorbells, (unsigned long long)(now->works - counts.works),
           (unsigned long long)(now->completions - counts.completions),
           (unsigned long long)(after.memory - before.memory),
           (unsigned long long)(after.mutexes - before.mutexes),
           (unsigned long long)(after.spins - before.spins),
           (unsigned long long)(after.writes - before.writes),
           (unsigned long long)(after.others - before.others));
    assert_int_equal(doorbells, 10000);
    assert_int_equal(now->lists - counts.lists, 10000);
    assert_int_equal(now->completions - counts.completions, 10000);
    assert_int_equal(now->works - counts.works, 10000 / 4 * (2 + 2 + 1 + 8));
    assert_int_equal(now->registered, 0);
    assert_int_equal(after.memory, before.memory);
    assert_int_equal(after.mutexes, before.mutexes);
    assert_int_equal(after.others, before.others);
    assert_true(after.writes - before.writes <= doorbells);
    if (COUNTING && strncmp(device->name, "rxe", 3) == 0) {
        /* The counters do count. */
        assert_int_equal(after.writes - before.writes, doorbells);
        assert_true(after.spins > before.spins && before.memory > 0);
    }
    ends_close(&ends);
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

#define MEASURED 2000

static uint64_t timed(struct ends *ends, struct fabric_list *lists, unsigned count)
{
    uint64_t begin = task_now();
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(verbs_queue_post(ends->queue, &lists[i]), BANYAN_OK);
        settle(ends);
    }
    return task_now() - begin;
}

/* Lock and read: two commands in one list ring one bell and wait once, in two lists twice. */
static void test_one_list_or_two(void **state)
{
    static uint64_t times[2][MEASURED];
    struct ends ends;
    uint64_t words[128];
    struct fabric_command commands[] = {cas_of(lock_at(8), 0, 1),
                                        read_of(pool_at(4096), words, sizeof words)};
    struct fabric_list together = list_of(commands, 2);
    struct fabric_list apart[] = {list_of(commands, 1), list_of(commands + 1, 1)};
    ends_open(&ends);
    tree_lists(&ends, 400);
    const struct verbs_counts *counts = verbs_queue_counts(ends.queue);
    for (unsigned i = 0; i < MEASURED; i++) {
        struct verbs_counts start = *counts;
        times[0][i] = timed(&ends, &together, 1);
        struct verbs_counts middle = *counts;
        times[1][i] = timed(&ends, apart, 2);
        assert_int_equal(middle.works - start.works, 2);
        assert_int_equal(middle.doorbells - start.doorbells, 1);
        assert_int_equal(middle.completions - start.completions, 1);
        assert_int_equal(counts->works - middle.works, 2);
        assert_int_equal(counts->doorbells - middle.doorbells, 2);
        assert_int_equal(counts->completions - middle.completions, 2);
    }
    for (unsigned i = 0; i < 2; i++)
        qsort(times[i], MEASURED, sizeof times[i][0], compare_times);
    printf("CAS and READ of 1024 bytes: in one list %.1f us (1 doorbell, 1 round trip), in two lists %.1f us "
           "(2, 2); medians of %d\n",
           (double)times[0][MEASURED / 2] / 1e3, (double)times[1][MEASURED / 2] / 1e3, MEASURED);
    ends_close(&ends);
}

#define CASE(function) cmocka_unit_test_setup(function, setup)

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        CASE(test_operations),           CASE(test_lengths),
        CASE(test_random_lists),         CASE(test_bounds),
        CASE(test_remote_access_errors), CASE(test_other_end_gone),
        CASE(test_destroyed_under_way),  CASE(test_sleep),
        CASE(test_never_missed),         CASE(test_warm_path),
        CASE(test_one_list_or_two),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("queue", tests, group_setup, group_teardown);
}
