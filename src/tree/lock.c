/*
 * lock.c - HOCL (Sherman §4.3): local queues before global lock words. One round trip to take a free lock,
 * none where it is handed over; releasing costs nothing beyond the write-back's list. Reasoning:
 * docs/internals/locks.md.
 */
#include "tree/lock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/random.h"
#include "base/task.h"
#include "memory/memory.h"
#include "tree/delegate.h"
#include "tree/session.h"

/*
 * The local lock table holds only the locks that tasks of this compute node hold or want, in hashed
 * shards: the full table of Sherman (one local lock for each global one, 131,072 for each memory node) would
 * be almost all idle.
 */
#define SHARDS 4096u
/* How long to wait between attempts to release a lock over a connection that is being reopened. */
#define RECONNECT_POLL_NS UINT64_C(200000)
/* How long an endpoint may be without the connection that frees a lock: others may wait for that lock. */
#define RECONNECT_PATIENCE_NS UINT64_C(2000000000)
/* Waiters that a holder looks at when it takes operations. */
#define LOOK_MAX 128u
/* How often a guest stays when the lock goes to a waiter behind it, which may do its operations. */
#define PASSES_MAX 4u
/* How often a waiter looks for the lock before it parks, where lists take no time: a holder on another CPU is
 * done sooner than a task could be woken. Learnt: in vain, it waits for a CPU. */
#define LOOKS_MAX 256u
#define LOOKS_MIN 4u

struct tree_local_lock {
    gaddr name;     /* of the global lock */
    uint32_t depth; /* handovers in a row */
    struct tree_waiter *head, *tail;
    struct tree_local_lock *next;
};

/* A cache line of its own: threads that work on different leaves share none. */
struct tree_lock_shard {
    struct spinlock spin; /* guards all below; held for a few instructions, or for a change in place */
    uint32_t thread;      /* task_thread of the task that used it last */
    struct tree_local_lock *held;
    struct tree_local_lock *idle; /* to be used again */
} __attribute__((aligned(64)));

struct tree_lock_table {
    struct tree_lock_shard shards[SHARDS];
};

/* Cache lines of a shard and of the lock that is wanted in it. */
#define SHARD_LINES     2u
#define WAITER_LINES    task_lines(sizeof(struct tree_waiter))
#define OPERATION_LINES task_lines(sizeof(struct tree_operation))

static void spin_pause(unsigned attempt)
{
    /* Over a network the retry itself takes a round trip. In shared memory the holder may need this CPU. */
    if (attempt < 64)
        atomic_pause();
    else
        task_yield();
}

struct tree_lock_table *tree_lock_table_create(void)
{
    struct tree_lock_table *table = aligned_alloc(_Alignof(struct tree_lock_table), sizeof *table);
    if (table)
        memset(table, 0, sizeof *table);
    return table;
}

static void free_locks(struct tree_local_lock *lock)
{
    while (lock) {
        struct tree_local_lock *next = lock->next;
        free(lock);
        lock = next;
    }
}

void tree_lock_table_destroy(struct tree_lock_table *table)
{
    for (unsigned i = 0; i < SHARDS; i++) {
        free_locks(table->shards[i].held);
        free_locks(table->shards[i].idle);
    }
    free(table);
}

/* ---- global locks ---- */

static uint64_t lock_region(const struct tree_session *session, uint16_t node, gaddr *base)
{
    const struct fabric_capabilities *capabilities = fabric_capabilities(session->pool.fabric);
    if (session->compute->switches.lock_region == TREE_LOCKS_ONCHIP)
        *base = gaddr_make(node, GADDR_LOCK_REGION);
    else
        *base = gaddr_make(node, MEMORY_LOCK_TABLE_OFFSET);
    return capabilities->lock_region_bytes;
}

gaddr tree_lock_name(const struct tree_session *session, gaddr node)
{
    gaddr base;
    uint64_t bytes = lock_region(session, gaddr_node(node), &base);
    uint32_t width = fabric_capabilities(session->pool.fabric)->lock_width;
    return base + (((random_mix(node) >> 32) * (bytes / width)) >> 32) * width;
}

/* Words of global locks lie at even addresses. */
#define OWNED_MARK 1u

gaddr tree_hold_leaf(const struct tree_hold *hold)
{
    assert(hold->owned);
    return hold->word & ~(gaddr)OWNED_MARK;
}

static void hold_init_owned(const struct tree_session *session, gaddr node, struct tree_hold *hold)
{
    *hold = (struct tree_hold){
        .word = node | OWNED_MARK, .incarnation = session->pool.incarnation, .owned = true, .global = true};
}

static void hold_init(const struct tree_session *session, gaddr node, bool owned, struct tree_hold *hold)
{
    if (owned) {
        hold_init_owned(session, node, hold);
        return;
    }
    gaddr name = tree_lock_name(session, node);
    uint32_t width = fabric_capabilities(session->pool.fabric)->lock_width;
    hold->word = name & ~(gaddr)7;
    hold->shift = (uint32_t)(name & 7) * 8;
    hold->mask = width == 8 ? UINT64_MAX : ((UINT64_C(1) << (8 * width)) - 1) << hold->shift;
    hold->local = NULL;
    hold->incarnation = session->pool.incarnation;
    hold->owned = false;
    hold->global = false;
    hold->unheard = false;
    hold->handing = false;
}

static gaddr hold_name(const struct tree_hold *hold)
{
    return hold->word + hold->shift / 8;
}

struct fabric_command tree_lock_command(const struct tree_session *session, const struct tree_hold *hold)
{
    uint64_t owner = fabric_capabilities(session->pool.fabric)->compute_id;
    return (struct fabric_command){
        .operation = FABRIC_CAS,
        .address = hold->word,
        .cas = {.compare = 0, .swap = owner << hold->shift, .mask = hold->mask, .old = UINT64_MAX}};
}

static uint64_t owner_bits(const struct tree_session *session, const struct tree_hold *hold)
{
    return (uint64_t)fabric_capabilities(session->pool.fabric)->compute_id << hold->shift;
}

/* Frees the word if it is ours, and does nothing else: safe where an unlock may have been done already. */
static struct fabric_command unlock_again_command(const struct tree_session *session,
                                                  const struct tree_hold *hold)
{
    return (struct fabric_command){
        .operation = FABRIC_CAS,
        .address = hold->word,
        .cas = {.compare = owner_bits(session, hold), .swap = 0, .mask = hold->mask}};
}

struct fabric_command tree_unlock_command(const struct tree_session *session, const struct tree_hold *hold)
{
    static const uint64_t zero; /* what an unlock writes */
    const struct fabric_capabilities *capabilities = fabric_capabilities(session->pool.fabric);
    /* The lock's bits are the owner's id, exactly: taking that off borrows nothing from the words beside. */
    if (session->compute->switches.release == TREE_RELEASE_FAA)
        return (struct fabric_command){.operation = FABRIC_FAA,
                                       .address = hold->word,
                                       .faa = {.add = UINT64_C(0) - owner_bits(session, hold)}};
    if (capabilities->release_by_write)
        return pool_write_command(hold_name(hold), &zero, capabilities->lock_width);
    return unlock_again_command(session, hold);
}

/* ---- local locks ---- */

static struct tree_lock_shard *shard_of_leaf(const struct tree_session *session, gaddr name)
{
    return &session->compute->locks->shards[random_mix(name) % SHARDS];
}

static struct tree_lock_shard *shard_of(const struct tree_session *session, const struct tree_hold *hold)
{
    /* Names of global locks are hashes already: their low bits tell locks of one memory node apart, the node
     * is mixed in. Those of owned leaves are addresses. */
    gaddr name = hold_name(hold);
    return hold->owned ? shard_of_leaf(session, name)
                       : &session->compute->locks->shards[(name >> 1 ^ gaddr_node(name) * 0x9e5u) % SHARDS];
}

/* Takes the shard's spin lock. Where another thread used the shard last, it and its lock come from there. */
static void shard_enter(struct tree_lock_shard *shard)
{
    uint32_t thread = task_thread();
    spinlock_lock(&shard->spin);
    if (shard->thread == thread)
        return;
    shard->thread = thread;
    task_charge(TASK_WORK_LINE, SHARD_LINES);
}

/* Under the shard's spin lock. */
static struct tree_local_lock *local_find(struct tree_lock_shard *shard, gaddr name)
{
    struct tree_local_lock *lock = shard->held;
    while (lock && lock->name != name)
        lock = lock->next;
    return lock;
}

/* Under the shard's spin lock: makes a held lock without waiters; NULL when memory is short. */
static struct tree_local_lock *local_make(struct tree_lock_shard *shard, gaddr name)
{
    struct tree_local_lock *lock = shard->idle;
    if (lock)
        shard->idle = lock->next;
    else if (!(lock = malloc(sizeof *lock)))
        return NULL;
    *lock = (struct tree_local_lock){.name = name, .next = shard->held};
    shard->held = lock;
    return lock;
}

void tree_latch_prefetch(const struct tree_session *session, gaddr leaf)
{
    __builtin_prefetch(shard_of_leaf(session, leaf | OWNED_MARK), 1);
}

struct tree_lock_shard *tree_latch_try(struct tree_session *session, gaddr leaf)
{
    const gaddr name = leaf | OWNED_MARK;
    struct tree_lock_shard *shard = shard_of_leaf(session, name);
    shard_enter(shard);
    if (!local_find(shard, name))
        return shard;
    spinlock_unlock(&shard->spin);
    return NULL;
}

void tree_latch_leave(struct tree_lock_shard *shard, bool fence)
{
    if (fence)
        spinlock_unlock_fenced(&shard->spin);
    else
        spinlock_unlock(&shard->spin);
}

/* Without local locks, tasks exclude each other by the global ones. */
static bool local_used(const struct tree_session *session, const struct tree_hold *hold)
{
    return session->compute->switches.local_locks || hold->owned;
}

bool tree_lock_try_local(struct tree_session *session, gaddr node, bool owned, struct tree_hold *hold)
{
    hold_init(session, node, owned, hold);
    if (!local_used(session, hold))
        return true;
    struct tree_lock_shard *shard = shard_of(session, hold);
    shard_enter(shard);
    if (!local_find(shard, hold_name(hold)))
        hold->local = local_make(shard, hold_name(hold));
    spinlock_unlock(&shard->spin);
    return hold->local;
}

/* Under the shard's spin lock. */
static void queue_append(struct tree_local_lock *lock, struct tree_waiter *waiter)
{
    if (lock->tail && lock->tail->thread != waiter->thread)
        task_charge(TASK_WORK_LINE, 1);
    waiter->next = NULL;
    if (lock->tail)
        lock->tail->next = waiter;
    else
        atomic_store_relaxed(&lock->head, waiter); /* read without the spin lock by the releaser */
    lock->tail = waiter;
}

static void waiter_init(struct tree_waiter *waiter, struct tree_session *session, gaddr node)
{
    waiter->session = session;
    waiter->task = task_self();
    waiter->node = node;
    waiter->incarnation = session->pool.incarnation;
    waiter->handed = waiter->snapshot = waiter->answered = false;
    waiter->passed = 0;
    waiter->thread = waiter->waker = task_thread();
    waiter->lines = 0;
    atomic_store_relaxed(&waiter->state, TREE_WAITER_QUEUED); /* published by the spin lock */
}

/* The acquiring loads pair with the releaser's stores: the image, or the answer, is visible. */
static void waiter_wait_done(struct tree_session *session, struct tree_waiter *waiter)
{
    if (fabric_capabilities(session->pool.fabric)->direct) {
        unsigned looks = session->looks;
        while (looks && atomic_load_acquire(&waiter->state) == TREE_WAITER_QUEUED) {
            atomic_pause();
            looks--;
        }
        session->looks = looks ? 2 * session->looks : session->looks / 2;
        session->looks = session->looks > LOOKS_MAX   ? LOOKS_MAX
                         : session->looks < LOOKS_MIN ? LOOKS_MIN
                                                      : session->looks;
    }
    uint32_t queued = TREE_WAITER_QUEUED;
    /* Relaxed: says only that we park. If it fails the releaser was faster, and the loop below acquires. */
    __atomic_compare_exchange_n(&waiter->state, &queued, (uint32_t)TREE_WAITER_PARKED, false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    while (atomic_load_acquire(&waiter->state) == TREE_WAITER_PARKED)
        task_park();
    for (unsigned i = 0; atomic_load_acquire(&waiter->state) != TREE_WAITER_DONE; i++)
        spin_pause(i); /* the releaser still touches our task */
}

/* What a holder on another core has written comes from there: the waiter, the image, or the answers with the
 * contexts (counted as a line each) of the operations. */
static void waiter_wait(struct tree_session *session, struct tree_waiter *waiter)
{
    waiter_wait_done(session, waiter);
    if (waiter->waker == waiter->thread)
        return;
    uint32_t operations = waiter->answered ? waiter->count : 0;
    task_charge(TASK_WORK_LINE, WAITER_LINES + operations * (OPERATION_LINES + 1));
    task_charge(TASK_WORK_COPY, waiter->lines);
}

/* The releaser is through with the waiter, and wakes it if it has parked. */
static void waiter_wake(struct tree_waiter *waiter)
{
    uint32_t queued = TREE_WAITER_QUEUED;
    waiter->waker = task_thread();
    task_charge(TASK_WORK_HANDOVER, 1);
    /* Release: with all that was handed over or answered. If it fails the waiter has parked; it published
     * nothing with that, so relaxed will do. */
    if (__atomic_compare_exchange_n(&waiter->state, &queued, (uint32_t)TREE_WAITER_DONE, false,
                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return;
    assert(queued == TREE_WAITER_PARKED);
    struct task *task = waiter->task;
    atomic_store_release(&waiter->state, TREE_WAITER_GRANTED);
    task_unpark(task);
    atomic_store_release(&waiter->state, TREE_WAITER_DONE);
}

void tree_lock_await(struct tree_session *session, struct tree_waiter *waiter)
{
    waiter_wait(session, waiter);
    assert(waiter->answered);
}

int tree_lock_try_or_leave(struct tree_session *session, gaddr node, bool owned, struct tree_waiter *waiter,
                           struct tree_hold *hold)
{
    hold_init(session, node, owned, hold);
    struct tree_lock_shard *shard = shard_of(session, hold);
    waiter_init(waiter, session, node);
    waiter->guest = true;
    assert(waiter->count && local_used(session, hold));
    shard_enter(shard);
    struct tree_local_lock *lock = local_find(shard, hold_name(hold));
    if (lock)
        queue_append(lock, waiter);
    else
        hold->local = local_make(shard, hold_name(hold));
    spinlock_unlock(&shard->spin);
    return lock ? TREE_ANSWERED : hold->local ? 0 : BANYAN_ENOMEM;
}

/* TREE_ANSWERED: another holder has done the waiter's operation. */
static int local_acquire(struct tree_session *session, gaddr node, bool wanted,
                         struct tree_operation *operation, struct tree_hold *hold)
{
    if (!local_used(session, hold))
        return 0;
    struct tree_lock_shard *shard = shard_of(session, hold);
    struct tree_waiter *waiter = &session->waiter;
    shard_enter(shard);
    struct tree_local_lock *lock = local_find(shard, hold_name(hold));
    bool queued = lock;
    if (queued) {
        waiter_init(waiter, session, wanted ? node : GADDR_NULL);
        waiter->tree = operation ? operation->tree : NULL;
        waiter->operations = operation;
        waiter->count = operation ? 1 : 0;
        queue_append(lock, waiter);
    } else {
        lock = local_make(shard, hold_name(hold));
    }
    spinlock_unlock(&shard->spin);
    if (!lock)
        return pool_fail_memory(&session->pool);
    if (queued) {
        waiter_wait(session, waiter);
        if (waiter->answered)
            return TREE_ANSWERED;
        hold->global = waiter->handed || hold->owned;
    }
    hold->local = lock;
    return 0;
}

bool tree_lock_wanted_there(const struct tree_hold *hold)
{
    /* Relaxed, a hint: what comes later is taken by the next holder. */
    return hold->local && atomic_load_relaxed(&hold->local->head);
}

static bool waiter_fits(const struct tree_waiter *waiter, const struct tree_hold *hold,
                        const struct tree_lock_wanted *wanted, uint32_t room)
{
    const struct tree_operation *operation = waiter->operations;
    if (!operation || waiter->count > room || waiter->node != wanted->node || waiter->tree != wanted->tree ||
        operation->place.link.tag != wanted->tag || waiter->incarnation != hold->incarnation)
        return false;
    for (; operation && wanted->known; operation = operation->next)
        if (!(wanted->known[operation->place.bucket.number / 64] >> operation->place.bucket.number % 64 & 1))
            return false;
    return true;
}

struct tree_waiter *tree_lock_take(struct tree_session *session, const struct tree_hold *hold,
                                   const struct tree_lock_wanted *wanted)
{
    struct tree_local_lock *lock = hold->local;
    struct tree_lock_shard *shard = shard_of(session, hold);
    struct tree_waiter *taken = NULL, **end = &taken, *before = NULL;
    uint32_t room = wanted->room;
    assert(hold->global);
    shard_enter(shard);
    struct tree_waiter *waiter = lock->head;
    for (uint32_t looked = 0; waiter && looked < LOOK_MAX && room; looked++) {
        struct tree_waiter *next = waiter->next;
        bool fits = waiter_fits(waiter, hold, wanted, room);
        if (waiter->thread != shard->thread)
            task_charge(TASK_WORK_LINE, WAITER_LINES + OPERATION_LINES * (fits ? waiter->count : 0));
        if (!fits) {
            before = waiter;
        } else {
            room -= waiter->count;
            if (before)
                before->next = next;
            else
                atomic_store_relaxed(&lock->head, next); /* as in queue_append */
            if (lock->tail == waiter)
                lock->tail = before;
            waiter->next = NULL;
            *end = waiter;
            end = &waiter->next;
        }
        waiter = next;
    }
    spinlock_unlock(&shard->spin);
    return taken;
}

void tree_lock_put_back(struct tree_session *session, const struct tree_hold *hold,
                        struct tree_waiter *waiters)
{
    struct tree_local_lock *lock = hold->local;
    struct tree_lock_shard *shard = shard_of(session, hold);
    struct tree_waiter *last = waiters;
    while (last->next)
        last = last->next;
    shard_enter(shard);
    last->next = lock->head;
    if (!lock->tail)
        lock->tail = last;
    atomic_store_relaxed(&lock->head, waiters); /* as in queue_append */
    spinlock_unlock(&shard->spin);
}

void tree_lock_answer(struct tree_waiter *waiters)
{
    while (waiters) {
        struct tree_waiter *waiter = waiters;
        waiters = waiter->next;
        waiter->answered = true;
        waiter_wake(waiter);
    }
}

/*
 * Whether only the unlock can prove that the lock was held: the holder decided by an image that was handed
 * over, and has neither written nor read anything since (or has read what looks corrupt). The lock may have
 * been lost, and the leaf changed by others, before this operation even began, while the answer to the
 * previous holder's list was still on its way.
 */
static bool unlock_proves(const struct tree_session *session, const struct tree_hold *hold, bool writes)
{
    return hold->unheard && !writes && session->pool.fabric->ops->incarnation;
}

/* Under the shard's spin lock: the first that wants the lock itself. */
static struct tree_waiter *next_holder(const struct tree_local_lock *lock)
{
    struct tree_waiter *waiter = lock->head;
    while (waiter && waiter->guest)
        waiter = waiter->next;
    return waiter;
}

/* Under the shard's spin lock: takes the next holder out of the queue. Guests before it stay if it may do
 * their operations; else they are taken out too, to be answered as not done. */
static struct tree_waiter *queue_advance(struct tree_local_lock *lock, uint32_t thread,
                                         struct tree_waiter **guests)
{
    struct tree_waiter *next = next_holder(lock), *waiter = lock->head, *before = NULL, **end = guests;
    *guests = NULL;
    while (waiter) {
        struct tree_waiter *after = waiter->next;
        bool last = waiter == next;
        if (waiter->thread != thread)
            task_charge(TASK_WORK_LINE, WAITER_LINES);
        if (!last && next && waiter->node == next->node && waiter->passed++ < PASSES_MAX) {
            before = waiter;
        } else {
            if (before)
                before->next = after;
            else
                atomic_store_relaxed(&lock->head, after); /* as in queue_append */
            if (lock->tail == waiter)
                lock->tail = before;
            waiter->next = NULL;
            if (!last) {
                *end = waiter;
                end = &waiter->next;
            }
        }
        if (last)
            break;
        waiter = after;
    }
    return next;
}

/* Decides what becomes of the lock; true if the global word must be freed, under the incarnation in which it
 * was taken. */
static bool local_release_begin(struct tree_session *session, struct tree_hold *hold, bool writes)
{
    struct tree_local_lock *lock = hold->local;
    if (!lock)
        return true;
    /* Relaxed, a hint: a task that queues up from now on is woken at the end, without the global lock. Only
     * the holder writes depth. */
    if (!atomic_load_relaxed(&lock->head)) {
        lock->depth = 0;
        return true;
    }
    struct tree_lock_shard *shard = shard_of(session, hold);
    assert(hold->incarnation == session->pool.incarnation);
    shard_enter(shard);
    const struct tree_waiter *next = next_holder(lock);
    /* Not from one incarnation to another: our memory node may have freed the word in between (locks.md). */
    hold->handing = next && next->incarnation == hold->incarnation &&
                    lock->depth < session->compute->switches.handover &&
                    !unlock_proves(session, hold, writes);
    lock->depth = hold->handing ? lock->depth + 1 : 0;
    spinlock_unlock(&shard->spin);
    return !hold->handing;
}

/* Header and buckets, as far as they are known. Returns the cache lines that were copied. */
static uint32_t image_copy(const struct tree_image *from, uint8_t *to)
{
    const struct format_layout *layout = from->layout;
    uint32_t lines = task_lines(layout->header_bytes);
    memcpy(to, from->bytes, layout->header_bytes);
    for (uint32_t i = 0; i < layout->buckets; i++) {
        struct format_bucket bucket;
        if (!(from->buckets[i / 64] >> i % 64 & 1))
            continue;
        format_bucket_number(layout, i, &bucket);
        memcpy(to + bucket.offset, from->bytes + bucket.offset, bucket.bytes);
        lines += task_lines(bucket.bytes);
    }
    return lines;
}

/* Writes to memory that the waiter's core has, from its own: as many lines there as the waiter reads then. */
static void image_hand(const struct tree_session *from, struct tree_waiter *waiter)
{
    struct tree_image *image = &waiter->session->image;
    memcpy(image->buckets, from->image.buckets, sizeof image->buckets);
    waiter->lines = image_copy(&from->image, image->bytes);
    if (waiter->thread != task_thread())
        task_charge(TASK_WORK_COPY, waiter->lines);
    image->header = from->image.header;
    image->address = from->image.address;
}

static void local_release_end(struct tree_session *session, struct tree_hold *hold)
{
    if (!hold->local)
        return;
    struct tree_lock_shard *shard = shard_of(session, hold);
    shard_enter(shard);
    struct tree_local_lock *lock = hold->local;
    struct tree_waiter *guests, *waiter = queue_advance(lock, shard->thread, &guests);
    assert(lock->name == hold_name(hold) && (!waiter || waiter->session != session));
    if (!waiter) {
        assert(!lock->head);
        struct tree_local_lock **at = &shard->held;
        while (*at != lock)
            at = &(*at)->next;
        *at = lock->next;
        lock->next = shard->idle;
        shard->idle = lock;
    }
    spinlock_unlock(&shard->spin);
    hold->local = NULL;
    assert(!hold->handing || waiter || hold->owned);
    tree_lock_answer(guests);
    if (!waiter)
        return;
    /* An owned leaf's lock passes on in any case; the image does not from one incarnation to another. */
    if (hold->owned && waiter->incarnation != hold->incarnation)
        hold->handing = false;
    waiter->handed = hold->handing;
    session->stats.handovers += hold->handing;
    if (hold->handing && session->compute->switches.snapshot && waiter->node &&
        waiter->node == session->image.address &&
        waiter->session->image.capacity == session->image.capacity) {
        image_hand(session, waiter);
        waiter->snapshot = true;
        session->stats.snapshot_handovers++;
    }
    waiter_wake(waiter);
}

void tree_lock_abandon_local(struct tree_session *session, struct tree_hold *hold)
{
    hold->handing = false;
    local_release_end(session, hold);
}

/* ---- both ---- */

/* Without a message: the caller has an error to report already. Not by FAA: done twice, that would leave a
 * free word as another's. */
static int free_word(struct tree_session *session, const struct tree_hold *hold)
{
    struct fabric_command unlock = session->compute->switches.release == TREE_RELEASE_FAA
                                       ? unlock_again_command(session, hold)
                                       : tree_unlock_command(session, hold);
    struct fabric_list list = {.node = gaddr_node(hold->word),
                               .count = 1,
                               .commands = &unlock,
                               .incarnation = hold->incarnation},
                       *lists[1] = {&list};
    int status = fabric_execute(session->pool.endpoint, lists, 1, session->pool.cost);
    return status ? status : list.status;
}

/*
 * The release could not be sent, or its answer did not come. Mostly the connection is lost, and the word is
 * freed by the fencing: then our number is old by now, and we hear EFENCED. But ENET can also mean that this
 * endpoint has no connection *yet*: after a loss they are opened one by one, and the lock may have been
 * handed to us by a session whose endpoint was faster. Then only this list frees the word; and should this
 * endpoint get no connection at all, the connections of the others are given up, so that we are fenced.
 */
static void free_word_surely(struct tree_session *session, const struct tree_hold *hold)
{
    uint64_t patience = task_now() + RECONNECT_PATIENCE_NS;
    int status;
    while ((status = free_word(session, hold)) == BANYAN_ENET || status == BANYAN_ETIMEOUT ||
           status == BANYAN_ENOMEM) {
        if (task_now() >= patience) {
            fabric_give_up(session->pool.endpoint, gaddr_node(hold->word));
            patience = task_now() + RECONNECT_PATIENCE_NS;
        }
        task_sleep(RECONNECT_POLL_NS);
    }
}

void tree_lock_give_back(struct tree_session *session, const struct tree_hold *hold,
                         const struct fabric_command *lock, int status)
{
    assert(!hold->owned);
    if (status != BANYAN_ECORRUPT && status != BANYAN_EADDRESS && status != BANYAN_ENOMEM)
        return; /* the connection is gone: so is the lock, once we are fenced */
    if (lock->cas.old & hold->mask)
        return;
    free_word_surely(session, hold);
}

/* The list that was to free the lock has failed. */
static void unlock_failed(struct tree_session *session, const struct tree_hold *hold, int status)
{
    if (status && status != BANYAN_EFENCED) /* fenced: the word is freed, or will be */
        free_word_surely(session, hold);
}

void tree_lock_abandon(struct tree_session *session, struct tree_hold *hold, int status)
{
    if (!hold->owned)
        unlock_failed(session, hold, status);
    tree_lock_abandon_local(session, hold);
}

static int lock_take(struct tree_session *session, gaddr node, bool wanted, struct tree_operation *operation,
                     struct fabric_command *reads, uint32_t count, struct tree_hold *hold)
{
    struct fabric_command commands[1 + TREE_LOCK_READS_MAX];
    assert(count <= TREE_LOCK_READS_MAX);
    session->waiter.snapshot = false;
    hold_init(session, node, false, hold);
    int status = local_acquire(session, node, wanted, operation, hold);
    if (status)
        return status;
    assert(hold->global || !session->waiter.snapshot); /* an image comes with a handed-over lock alone */
    if (!session->waiter.snapshot)
        session->image.address = GADDR_NULL;
    if (hold->global) {
        status = session->waiter.snapshot || !count
                     ? 0
                     : pool_execute(&session->pool, gaddr_node(node), reads, count);
        hold->unheard = session->waiter.snapshot || !count;
        if (status)
            tree_unlock(session, hold, commands, 0);
        return status;
    }
    for (unsigned attempt = 0;; attempt++) {
        commands[0] = tree_lock_command(session, hold);
        if (count)
            memcpy(commands + 1, reads, count * sizeof *reads);
        status = pool_execute(&session->pool, gaddr_node(node), commands, 1 + count);
        if (status) {
            tree_lock_give_back(session, hold, &commands[0], status);
            tree_lock_abandon_local(session, hold);
            return status;
        }
        if (!(commands[0].cas.old & hold->mask))
            break;
        session->stats.retries++;
        spin_pause(attempt);
    }
    if (count)
        memcpy(reads, commands + 1, count * sizeof *reads);
    hold->global = true;
    return 0;
}

int tree_lock(struct tree_session *session, gaddr node, bool wanted, struct fabric_command *reads,
              uint32_t count, struct tree_hold *hold)
{
    return lock_take(session, node, wanted, NULL, reads, count, hold);
}

int tree_lock_or_leave(struct tree_session *session, gaddr node, struct tree_operation *operation,
                       struct fabric_command *reads, uint32_t count, struct tree_hold *hold)
{
    return lock_take(session, node, true, operation, reads, count, hold);
}

int tree_lock_owned(struct tree_session *session, gaddr node, bool wanted, struct tree_operation *operation,
                    struct tree_hold *hold)
{
    session->waiter.snapshot = false;
    hold_init_owned(session, node, hold);
    int status = local_acquire(session, node, wanted, operation, hold);
    if (!status && !session->waiter.snapshot)
        session->image.address = GADDR_NULL;
    return status;
}

void tree_unlock_owned(struct tree_session *session, struct tree_hold *hold)
{
    assert(hold->owned && hold->global && hold->local);
    hold->global = false;
    hold->handing = true; /* if there is a waiter of this incarnation */
    local_release_end(session, hold);
}

int tree_unlock(struct tree_session *session, struct tree_hold *hold, struct fabric_command *writes,
                uint32_t count)
{
    assert(hold->global && !hold->owned); /* only a lock that is held can be released */
    bool wrote = count, release = local_release_begin(session, hold, wrote);
    if (release)
        writes[count++] = tree_unlock_command(session, hold);
    int status = count ? pool_execute(&session->pool, gaddr_node(hold->word), writes, count) : 0;
    if (status) {
        session->image.address = GADDR_NULL;
        bool lost = status == BANYAN_ENET || status == BANYAN_ETIMEOUT || status == BANYAN_ENOMEM;
        if (lost || status == BANYAN_EFENCED) /* the word is freed, so there is nothing to hand over */
            hold->handing = false;
        if (lost || release) /* else it is handed over, whatever became of the writes */
            unlock_failed(session, hold, status);
        if (wrote)
            status = pool_unknown(&session->pool, status);
    }
    hold->global = false;
    local_release_end(session, hold);
    return status;
}

int tree_unlock_with(struct tree_session *session, struct tree_hold *hold, int verdict)
{
    struct fabric_command unlock[1];
    hold->unheard |= verdict == BANYAN_ECORRUPT;
    int status = tree_unlock(session, hold, unlock, 0);
    return status ? status : verdict;
}
