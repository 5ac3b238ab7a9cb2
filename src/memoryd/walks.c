/* walks.c - see walks.h. */
#include "memoryd/walks.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/task.h"
#include "memory/memory.h"
#include "memory/request.h"
#include "memory/walk.h"
#include "memoryd/loop.h"

#define NONE       UINT16_MAX
#define SLOT_BITS  16u
#define FENCE_LOOK UINT64_C(20000)

enum walk_state { WALK_FREE, WALK_QUEUED, WALK_RUNNING, WALK_ORPHAN /* running, for nobody */, WALK_DONE };

struct walk {
    enum walk_state state;
    uint16_t next; /* of the free ones, or of the queue */
    uint16_t compute_id;
    unsigned thread; /* the I/O thread that is told */
    uint32_t use;    /* so that an old ticket is none of a later walk's */
    uint8_t *bytes;  /* owned: the request, then the reply; NULL: none */
    size_t length;
    int status;
};

struct walk_thread {
    struct memoryd_walks *walks;
    struct thread *thread;
    struct memory_walker *walker;
    uint64_t cpu_ns; /* atomic: stored by the thread, for reports */
    uint8_t reply[MEMORY_WALK_REPLY_MAX];
};

struct memoryd_walks {
    struct memoryd *daemon;
    enum memoryd_walks_kind kind;
    unsigned thread_count;
    struct walk_thread *threads;
    int wake; /* eventfd, a semaphore: one for each sleeper that is to wake */
    struct spinlock lock;
    /* guarded by the lock: */
    bool stopping;
    unsigned sleeping;
    uint16_t free, first, last;
    uint64_t busy, merges_busy, refused;
    struct walk walks[MEMORYD_WALKS_MAX];
};

/* ---- the table; its lock is held ---- */

static void release(struct memoryd_walks *walks, struct walk *walk)
{
    free(walk->bytes);
    walk->bytes = NULL;
    walk->state = WALK_FREE;
    walk->next = walks->free;
    walks->free = (uint16_t)(walk - walks->walks);
}

static struct walk *pop(struct memoryd_walks *walks)
{
    while (walks->first != NONE) {
        struct walk *walk = &walks->walks[walks->first];
        walks->first = walk->next;
        if (walk->state == WALK_QUEUED)
            return walk;
        release(walks, walk); /* it was dropped */
    }
    walks->last = NONE;
    return NULL;
}

static void push(struct memoryd_walks *walks, struct walk *walk)
{
    const uint16_t at = (uint16_t)(walk - walks->walks);
    walk->next = NONE;
    if (walks->first == NONE)
        walks->first = at;
    else
        walks->walks[walks->last].next = at;
    walks->last = at;
}

static struct walk *find(struct memoryd_walks *walks, uint64_t ticket)
{
    const uint64_t at = ticket & ((1u << SLOT_BITS) - 1);
    struct walk *walk = at < MEMORYD_WALKS_MAX ? &walks->walks[at] : NULL;
    bool fits = walk && walk->use == (uint32_t)(ticket >> SLOT_BITS) && walk->state != WALK_FREE;
    return fits ? walk : NULL;
}

/* ---- the threads ---- */

/* The next walk, which is under way from now on; NULL: the thread is to end. */
static struct walk *next_walk(struct memoryd_walks *walks)
{
    for (;;) {
        uint64_t one;
        spinlock_lock(&walks->lock);
        bool stopping = walks->stopping;
        struct walk *walk = stopping ? NULL : pop(walks);
        if (walk)
            walk->state = WALK_RUNNING;
        else if (!stopping)
            walks->sleeping++;
        spinlock_unlock(&walks->lock);
        if (walk || stopping)
            return walk;
        while (read(walks->wake, &one, sizeof one) < 0 && errno == EINTR)
            ;
    }
}

/* The reply in memory of its own; NULL with a status. */
static uint8_t *carry_out(struct walk_thread *thread, const struct walk *walk, int *status, size_t *length)
{
    *status =
        memory_walk(thread->walker, walk->bytes, walk->length, thread->reply, sizeof thread->reply, length);
    uint8_t *reply = !*status ? malloc(*length) : NULL;
    if (!*status && !reply)
        *status = BANYAN_ENOMEM;
    if (reply)
        memcpy(reply, thread->reply, *length);
    return reply;
}

/* Its request is this thread's until then; nothing of the walk is afterwards. */
static void finish(struct memoryd_walks *walks, struct walk *walk, int status, uint8_t *reply, size_t length)
{
    struct memoryd *daemon = walks->daemon;
    spinlock_lock(&walks->lock);
    uint8_t *request = walk->bytes;
    const unsigned thread = walk->thread;
    bool wanted = walk->state == WALK_RUNNING;
    walk->bytes = reply;
    walk->length = reply ? length : 0;
    walk->status = status;
    if (wanted)
        walk->state = WALK_DONE;
    else
        release(walks, walk);
    spinlock_unlock(&walks->lock);
    free(request);
    if (wanted && thread < daemon->loop_count)
        memoryd_loop_walked(&daemon->loops[thread]);
}

static void walks_main(void *argument)
{
    struct walk_thread *thread = argument;
    struct walk *walk;
    while ((walk = next_walk(thread->walks)) != NULL) {
        size_t length = 0;
        int status;
        uint8_t *reply = carry_out(thread, walk, &status, &length);
        finish(thread->walks, walk, status, reply, length);
        atomic_store_relaxed(&thread->cpu_ns, clock_thread_ns()); /* a count */
    }
}

/* ---- the service ---- */

/* The lock is held. Threads that merge alone have too much to do by whatever finds their queue full. */
static void turned_away(struct memoryd_walks *walks, const struct memory_call *call)
{
    if (call->kind == MEMORY_MERGE || walks->kind == MEMORYD_MERGES)
        walks->merges_busy++;
    else
        walks->busy++;
}

static int enqueue(struct memoryd_walks *walks, struct memory_call *call, uint8_t *request)
{
    bool wake = false;
    spinlock_lock(&walks->lock);
    struct walk *walk = walks->free != NONE ? &walks->walks[walks->free] : NULL;
    if (walk) {
        walks->free = walk->next;
        *walk = (struct walk){.state = WALK_QUEUED,
                              .compute_id = call->compute_id,
                              .thread = call->thread,
                              .use = walk->use + 1,
                              .bytes = request,
                              .length = call->length};
        push(walks, walk);
        call->ticket = (walks->kind == MEMORYD_MERGES ? MEMORYD_MERGE_TICKET : MEMORYD_WALK_TICKET) |
                       (uint64_t)walk->use << SLOT_BITS | (uint64_t)(walk - walks->walks);
        wake = walks->sleeping > 0;
        walks->sleeping -= wake;
    } else {
        turned_away(walks, call);
    }
    spinlock_unlock(&walks->lock);
    const uint64_t one = 1;
    if (wake && write(walks->wake, &one, sizeof one) != sizeof one)
        assert(false && "a semaphore that counts sleepers does not overflow");
    return walk ? MEMORY_DEFERRED : BANYAN_EBUSY;
}

static int walks_serve(void *context, struct memory_call *call)
{
    struct memoryd_walks *walks = context;
    if (call->length > MEMORY_WALK_REQUEST_MAX || call->compute_id == 0) {
        spinlock_lock(&walks->lock);
        walks->refused++;
        spinlock_unlock(&walks->lock);
        return BANYAN_EINVAL;
    }
    if (!call->defers) { /* the connection has too many calls under way already */
        spinlock_lock(&walks->lock);
        turned_away(walks, call);
        spinlock_unlock(&walks->lock);
        return BANYAN_EBUSY;
    }
    uint8_t *request = malloc(call->length);
    if (!request)
        return BANYAN_ENOMEM;
    memcpy(request, call->request, call->length);
    int status = enqueue(walks, call, request);
    if (status != MEMORY_DEFERRED)
        free(request);
    return status;
}

bool memoryd_walks_take(struct memoryd_walks *walks, uint64_t ticket, int *status, uint8_t **reply,
                        size_t *length)
{
    spinlock_lock(&walks->lock);
    struct walk *walk = find(walks, ticket);
    bool done = !walk || walk->state == WALK_DONE;
    *status = walk ? walk->status : BANYAN_EINVAL;
    *reply = NULL;
    *length = 0;
    if (walk && done) {
        *reply = walk->bytes;
        *length = walk->length;
        walk->bytes = NULL;
        release(walks, walk);
    }
    spinlock_unlock(&walks->lock);
    return done;
}

/* The lock is held. */
static void drop(struct memoryd_walks *walks, struct walk *walk)
{
    if (walk->state == WALK_RUNNING || walk->state == WALK_QUEUED)
        walk->state = WALK_ORPHAN; /* in the queue: it is freed when its turn comes */
    else if (walk->state == WALK_DONE)
        release(walks, walk);
}

void memoryd_walks_drop(struct memoryd_walks *walks, uint64_t ticket)
{
    spinlock_lock(&walks->lock);
    struct walk *walk = find(walks, ticket);
    if (walk)
        drop(walks, walk);
    spinlock_unlock(&walks->lock);
}

/* Drops what the compute node has; whether nothing of it is left. A walk that was dropped in the queue is not
 * carried out any more, but its place is taken until its turn comes: that soon does. */
static bool drop_all(struct memoryd_walks *walks, uint16_t compute_id)
{
    bool left = false;
    spinlock_lock(&walks->lock);
    for (unsigned i = 0; i < MEMORYD_WALKS_MAX; i++) {
        struct walk *walk = &walks->walks[i];
        if (walk->state == WALK_FREE || walk->compute_id != compute_id)
            continue;
        drop(walks, walk);
        left |= walk->state != WALK_FREE;
    }
    left &= !walks->stopping; /* then the threads are gone, or go without another look at the queue */
    spinlock_unlock(&walks->lock);
    return !left;
}

static void walks_fenced(void *context, uint16_t compute_id)
{
    while (!drop_all(context, compute_id))
        task_sleep(FENCE_LOOK);
}

static void thread_report(const struct walk_thread *thread, struct memory_status_reply *status)
{
    const struct memory_walk_counts *counts = memory_walker_counts(thread->walker);
    const uint64_t cpu_ns = atomic_load_relaxed(&thread->cpu_ns);
    status->walks_total += atomic_load_relaxed(&counts->walks);
    status->walk_keys_total += atomic_load_relaxed(&counts->keys);
    status->walk_nodes_total += atomic_load_relaxed(&counts->nodes);
    status->walk_answered_total += atomic_load_relaxed(&counts->answered);
    status->walk_refused_total += atomic_load_relaxed(&counts->refused);
    status->merges_total += atomic_load_relaxed(&counts->merges);
    status->merge_entries_total += atomic_load_relaxed(&counts->entries);
    status->merge_merged_total += atomic_load_relaxed(&counts->merged);
    if (thread->walks->kind == MEMORYD_MERGES)
        status->merge_cpu_ns_total += cpu_ns;
    else
        status->walk_cpu_ns_total += cpu_ns;
}

static void walks_report(void *context, struct memory_status_reply *status)
{
    struct memoryd_walks *walks = context;
    if (walks->kind == MEMORYD_MERGES)
        status->merge_threads = walks->thread_count;
    else
        status->walk_threads = walks->thread_count;
    spinlock_lock(&walks->lock);
    status->walk_busy_total += walks->busy;
    status->merge_busy_total += walks->merges_busy;
    status->walk_refused_total += walks->refused;
    spinlock_unlock(&walks->lock);
    for (unsigned i = 0; i < walks->thread_count; i++)
        thread_report(&walks->threads[i], status);
}

const struct memory_service memoryd_walk_service = {.name = "walks",
                                                    .roles = MEMORY_ROLE_DATA,
                                                    .serve = walks_serve,
                                                    .fenced = walks_fenced,
                                                    .report = walks_report};

/* ---- life ---- */

int memoryd_walks_create(struct memoryd_walks **made, struct memoryd *daemon, enum memoryd_walks_kind kind,
                         unsigned threads, unsigned staging, struct error *error)
{
    struct memoryd_walks *walks = calloc(1, sizeof *walks);
    *made = NULL;
    if (walks) {
        walks->daemon = daemon;
        walks->kind = kind;
        walks->first = walks->last = walks->free = NONE;
        for (unsigned i = MEMORYD_WALKS_MAX; i-- > 0;)
            release(walks, &walks->walks[i]);
        walks->wake = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
        walks->threads = calloc(threads, sizeof *walks->threads);
    }
    bool complete = walks && walks->wake >= 0 && walks->threads;
    for (unsigned i = 0; complete && i < threads; i++) {
        walks->threads[i].walks = walks;
        walks->threads[i].walker = memory_walker_create(daemon->node);
        complete = walks->threads[i].walker != NULL;
        walks->thread_count += complete;
        if (complete && kind != MEMORYD_WALKS)
            memory_walker_writes(walks->threads[i].walker, memory_node_staging(daemon->node, staging + i));
    }
    if (!complete) {
        memoryd_walks_destroy(walks);
        return error_set(error, BANYAN_ENOMEM, "memory node: no memory for %u threads that walk", threads);
    }
    *made = walks;
    return BANYAN_OK;
}

int memoryd_walks_start(struct memoryd_walks *walks, struct error *error)
{
    int status = BANYAN_OK;
    for (unsigned i = 0; i < walks->thread_count && !status; i++)
        status = thread_start(&walks->threads[i].thread, walks_main, &walks->threads[i], error);
    return status;
}

void memoryd_walks_stop(struct memoryd_walks *walks)
{
    if (!walks)
        return;
    spinlock_lock(&walks->lock);
    walks->stopping = true;
    const uint64_t sleepers = walks->sleeping;
    walks->sleeping = 0;
    spinlock_unlock(&walks->lock);
    if (sleepers > 0 && write(walks->wake, &sleepers, sizeof sleepers) != sizeof sleepers)
        assert(false && "as in enqueue");
    for (unsigned i = 0; i < walks->thread_count; i++) {
        if (walks->threads[i].thread)
            thread_join(walks->threads[i].thread);
        walks->threads[i].thread = NULL;
    }
}

void memoryd_walks_destroy(struct memoryd_walks *walks)
{
    if (!walks)
        return;
    for (unsigned i = 0; i < walks->thread_count; i++)
        memory_walker_destroy(walks->threads[i].walker);
    for (unsigned i = 0; i < MEMORYD_WALKS_MAX; i++)
        free(walks->walks[i].bytes);
    free(walks->threads);
    if (walks->wake >= 0)
        close(walks->wake);
    free(walks);
}
