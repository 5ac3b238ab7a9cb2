/* feed.c - see feed.h. */
#include "durable/feed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/bell.h"
#include "base/task.h"
#include "base/wakeup.h"

#define LANE_BYTES (4u << 20)
#define KEY_MAX    255u
#define SECOND_NS  UINT64_C(1000000000)
#define WAIT_NS    (5 * SECOND_NS)
#define LOOK_NS    UINT64_C(1000000) /* between two looks of a mark that waits */
/* A pass is to take no longer than PASS_NS; a lane takes at least ROOM_LEAST. */
#define PASS_NS    (SECOND_NS / 2)
#define ROOM_LEAST 8192u
#define GATHER_NS  UINT64_C(10000)
#define SLEEP_NS   UINT64_C(10000000) /* between two looks of a keeper that sleeps for a time */

struct feed_lane {
    struct spinlock lock;
    /* guarded by the lock: */
    uint8_t *bytes; /* owned */
    uint32_t used, count;
    uint32_t doubtful; /* its first bytes: see feed_doubt */
    uint64_t taken;    /* the last pass that took it */
    uint64_t since;    /* when the first of them was marked */
    uint64_t marks;
    uint8_t *spare;              /* owned: the leader's */
    struct feed_taken taken_now; /* the leader's, with the spare bytes */
} __attribute__((aligned(64)));

struct feed_waiter {
    struct feed_waiter *next;
    uint64_t ticket;
    struct wakeup wakeup;
};

enum leader { LEADER_NONE, LEADER_TASK, LEADER_KEEPER };

struct feed {
    struct feed_options options;
    struct feed_lane *lanes; /* owned */
    uint64_t pass, safe;     /* atomic: the last one that began, the last one that is safe */
    uint64_t oldest;         /* atomic: all that was marked before is safe; 0: all changes are */
    uint32_t failed;         /* atomic: 1: `error` says how */
    uint64_t progress;       /* atomic: when the disk took something last */
    uint32_t room;           /* atomic: bytes that a lane takes at the moment */
    uint32_t ends, missed;   /* atomic: the server ends; a mark was given up */
    uint32_t stopped;        /* atomic: the keeper sleeps no more */
    uint64_t waits, wait_ns; /* atomic, statistics */
    struct bell keeper;      /* rung: it is to go on */
    struct spinlock lock;
    /* guarded by the lock: */
    struct feed_waiter *waiters;
    unsigned waiting, answered; /* in the list; and how many the last pass let go */
    uint64_t hurried;           /* a pass up to which tasks wait without being in the list */
    enum leader leader;         /* who may make passes now */
    uint64_t led;               /* times that a task did, statistics */
    bool claimed;               /* the keeper wants to lead next */
    struct error error;
};

/* ---- life ---- */

static bool lanes_make(struct feed *feed)
{
    for (unsigned i = 0; i < feed->options.lanes; i++) {
        struct feed_lane *lane = &feed->lanes[i];
        lane->bytes = malloc(feed->options.lane_bytes);
        lane->spare = malloc(feed->options.lane_bytes);
        if (!lane->bytes || !lane->spare)
            return false;
    }
    return true;
}

int feed_create(struct feed **out, const struct feed_options *options, struct error *error)
{
    struct feed *feed = calloc(1, sizeof *feed);
    *out = feed;
    if (feed) {
        feed->options = *options;
        feed->options.lane_bytes = options->lane_bytes ? options->lane_bytes : LANE_BYTES;
        feed->options.wait_ns = options->wait_ns ? options->wait_ns : WAIT_NS;
        feed->room = feed->options.lane_bytes;
        assert(feed->options.lane_bytes >= FEED_ENTRY_HEADER + KEY_MAX);
        feed->lanes = aligned_alloc(64, options->lanes * sizeof *feed->lanes);
        if (feed->lanes)
            memset(feed->lanes, 0, options->lanes * sizeof *feed->lanes);
    }
    if (feed && feed->lanes && lanes_make(feed))
        return 0;
    feed_destroy(feed);
    *out = NULL;
    return error_set(error, BANYAN_ENOMEM, "no memory to note which keys have changed");
}

void feed_destroy(struct feed *feed)
{
    if (!feed)
        return;
    assert(!feed->waiters);
    for (unsigned i = 0; feed->lanes && i < feed->options.lanes; i++) {
        free(feed->lanes[i].bytes);
        free(feed->lanes[i].spare);
    }
    free(feed->lanes);
    free(feed);
}

/* ---- the keeper's sleep ---- */

void feed_wake(struct feed *feed)
{
    bell_ring(&feed->keeper);
}

void feed_stop(struct feed *feed)
{
    atomic_store_release(&feed->stopped, 1); /* before it is rung */
    feed_wake(feed);
}

static bool stopped(const struct feed *feed)
{
    return atomic_load_acquire(&feed->stopped); /* acquire: behind the ring that the keeper took, if it did */
}

void feed_sleep(struct feed *feed, uint64_t most_ns)
{
    const uint64_t begun = task_now();
    if (!most_ns) {
        if (!stopped(feed))
            bell_wait(&feed->keeper);
        return;
    }
    while (!bell_take(&feed->keeper) && !stopped(feed) && task_now() - begun < most_ns)
        task_sleep(SLEEP_NS);
}

/* ---- waiting ---- */

/* The failure and its message; 0: it has ended meanwhile. */
static int failure(struct feed *feed, struct error *error)
{
    spinlock_lock(&feed->lock);
    const int status = feed->error.code;
    if (error && status)
        *error = feed->error;
    spinlock_unlock(&feed->lock);
    return status;
}

int feed_error(struct feed *feed, struct error *error)
{
    /* A failure comes first: the disk takes nothing then, so the oldest change grows old, and the tasks that
     * wait would take that for a slow disk and wait for ever. Acquire: the message is there. */
    int status = atomic_load_acquire(&feed->failed) ? failure(feed, error) : 0;
    if (status)
        return status;
    const uint64_t oldest = atomic_load_relaxed(&feed->oldest); /* hints of the pace, both */
    const uint64_t progress = atomic_load_relaxed(&feed->progress),
                   from = progress > oldest ? progress : oldest;
    const uint64_t now = oldest ? task_now() : 0;
    if (now <= from || now - from <= feed->options.wait_ns)
        return 0;
    return error_set(error, BANYAN_EBUSY, "the disk has not taken anything for %llu s",
                     (unsigned long long)((now - from) / SECOND_NS));
}

/* If the lanes are empty, the passes that have begun took all that was marked. */
uint64_t feed_ticket(struct feed *feed)
{
    const bool marked = feed_marked(feed) != 0;
    return atomic_load_acquire(&feed->pass) +
           marked; /* acquire: lanes were taken by it, or by an earlier one */
}

int feed_wait(struct feed *feed, uint64_t ticket, struct error *error)
{
    struct feed_waiter waiter = {.ticket = ticket};
    /* Of a mark that was given up: no pass has it, though the disk may go on meanwhile. */
    if (ticket == UINT64_MAX) {
        int status = feed_error(feed, error);
        return status ? status : error_set(error, BANYAN_ENOSPC, "there was no room for a change");
    }
    /* Acquire: with what the keeper wrote before the pass was safe. */
    while (atomic_load_acquire(&feed->safe) < ticket) {
        int status = feed_error(feed, error);
        if (status && status != BANYAN_EBUSY)
            return status;
        wakeup_init(&waiter.wakeup);
        spinlock_lock(&feed->lock);
        const bool waits = feed->safe < ticket && !feed->failed;
        const bool led = feed->leader == LEADER_TASK; /* then its feed_lead_end rings, if need be */
        if (waits) {
            waiter.next = feed->waiters;
            feed->waiters = &waiter; // cppcheck-suppress autoVariables ; it leaves the list before we go on
            feed->waiting++;
        }
        spinlock_unlock(&feed->lock);
        if (!waits)
            continue;
        if (!led)
            feed_wake(feed);
        wakeup_wait(&waiter.wakeup);
    }
    return 0;
}

unsigned feed_gather(struct feed *feed, uint64_t most_ns)
{
    const uint64_t begun = task_now();
    for (;;) {
        spinlock_lock(&feed->lock);
        const unsigned waiting = feed->waiting, answered = feed->answered;
        spinlock_unlock(&feed->lock);
        if (waiting >= answered || task_now() - begun >= most_ns)
            return waiting;
        task_sleep(GATHER_NS);
    }
}

bool feed_safe(const struct feed *feed, uint64_t ticket)
{
    return atomic_load_acquire(&feed->safe) >= ticket; /* acquire: as feed_wait */
}

void feed_hurry(struct feed *feed, uint64_t ticket)
{
    spinlock_lock(&feed->lock);
    const bool news = ticket > feed->hurried;
    if (news)
        feed->hurried = ticket;
    spinlock_unlock(&feed->lock);
    if (news)
        feed_wake(feed);
}

bool feed_wanted(struct feed *feed)
{
    spinlock_lock(&feed->lock);
    const bool wanted = feed->waiters != NULL || feed->hurried > feed->safe;
    spinlock_unlock(&feed->lock);
    return wanted;
}

uint64_t feed_marked(struct feed *feed)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < feed->options.lanes; i++) {
        spinlock_lock(&feed->lanes[i].lock);
        bytes += feed->lanes[i].used;
        spinlock_unlock(&feed->lanes[i].lock);
    }
    return bytes;
}

/* Tasks whose pass is safe go on, or all of them. */
static void waiters_wake(struct feed *feed, uint64_t safe, bool all)
{
    struct feed_waiter *go = NULL, **at = &feed->waiters;
    feed->answered = 0;
    while (*at) {
        struct feed_waiter *waiter = *at;
        if (!all && waiter->ticket > safe) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        waiter->next = go;
        go = waiter;
        feed->waiting--;
        feed->answered++;
    }
    while (go) {
        struct feed_waiter *waiter = go;
        go = waiter->next;
        wakeup_give(&waiter->wakeup);
    }
}

/* ---- marks ---- */

static uint32_t lane_room(const struct feed *feed)
{
    return atomic_load_relaxed(&feed->room); /* a hint of the pace */
}

/* If the disk has no room, marks do not wait for its pace: a change that began before that was known is
 * noted, so that its client is answered, and later ones are refused. */
static bool late(const struct feed *feed)
{
    const uint64_t oldest = atomic_load_relaxed(&feed->oldest); /* hints of the pace, both */
    if (!feed->options.late_ns || !oldest || atomic_load_relaxed(&feed->failed))
        return false;
    const uint64_t now = task_now(); /* only here: most marks come while all is safe, and read no clock */
    return now > oldest && now - oldest > feed->options.late_ns;
}

/* Whether a mark may wait on. It may not if the disk has failed for ever, nor for room on the disk if the
 * server ends. */
static bool may_wait(struct feed *feed)
{
    switch (feed_error(feed, NULL)) {
    case BANYAN_EUNKNOWN:
        return false;
    case BANYAN_ENOSPC:
        return !atomic_load_acquire(&feed->ends); /* acquire: a flag that orders nothing else */
    default:
        return true;
    }
}

/* Waits until the lane has room, and the disk is not late. False: the mark is given up. */
static bool room_wait(struct feed *feed, struct feed_lane *lane, uint32_t bytes)
{
    const uint64_t begun = task_now();
    bool room = false;
    while (!room && may_wait(feed)) {
        feed_wake(feed);
        task_sleep(LOOK_NS);
        spinlock_lock(&lane->lock);
        room = lane->used + bytes <= lane_room(feed) && !late(feed);
        spinlock_unlock(&lane->lock);
    }
    atomic_add_relaxed(&feed->waits, 1);                    /* statistics */
    atomic_add_relaxed(&feed->wait_ns, task_now() - begun); /* statistics */
    return room;
}

uint32_t feed_entry_name(uint8_t *entry, const void *key, size_t length)
{
    memcpy(entry, (const uint8_t[FEED_ENTRY_HEADER]){(uint8_t)length}, FEED_ENTRY_HEADER);
    memcpy(entry + FEED_ENTRY_HEADER, key, length);
    return FEED_ENTRY_HEADER + (uint32_t)length;
}

/* The same with the value. */
static uint32_t entry_put(uint8_t *entry, const void *key, size_t length, const struct store_value *value)
{
    const uint16_t bytes = (uint16_t)value->length;
    const uint8_t flags = FEED_VALUE | (value->expires ? FEED_EXPIRES : 0);
    uint8_t *to = entry + FEED_ENTRY_HEADER;
    entry[0] = (uint8_t)length;
    entry[1] = flags;
    memcpy(entry + 2, &bytes, sizeof bytes);
    if (value->expires) {
        memcpy(to, &value->expires, sizeof value->expires);
        to += sizeof value->expires;
    }
    memcpy(to, key, length);
    if (bytes)
        memcpy(to + length, value->bytes, bytes);
    return (uint32_t)(to - entry) + (uint32_t)length + bytes;
}

/* The bytes of the entry if it has the value, at most. */
static uint32_t entry_room(size_t length, const struct store_value *value)
{
    return FEED_ENTRY_HEADER + (uint32_t)length + (value ? 8u + (uint32_t)value->length : 0);
}

/* Notes the key, with the value unless that is NULL. False: the lane has no room, or the disk is late. */
static bool note(struct feed_writer *writer, const void *key, size_t length, const struct store_value *value)
{
    struct feed *feed = writer->feed;
    struct feed_lane *lane = &feed->lanes[writer->lane];
    assert(length <= KEY_MAX);
    if (value && value->length > FEED_VALUE_MAX)
        value = NULL;
    spinlock_lock(&lane->lock);
    const uint32_t used = lane->used, most = lane_room(feed);
    const bool room = used + entry_room(length, value) <= most && !late(feed);
    if (room) {
        lane->used += value ? entry_put(lane->bytes + used, key, length, value)
                            : feed_entry_name(lane->bytes + used, key, length);
        if (!lane->count++)
            lane->since = task_now();
        lane->marks++;
        if (writer->ticket != UINT64_MAX) /* an earlier one was given up, and is not forgotten */
            writer->ticket = lane->taken + 1;
    }
    const bool half = used < most / 2 && lane->used >= most / 2;
    spinlock_unlock(&lane->lock);
    if (half)
        feed_wake(feed);
    return room;
}

bool feed_mark_value(void *context, const void *key, size_t length, const struct store_value *value)
{
    return note(context, key, length, value);
}

void feed_mark(void *context, const void *key, size_t length)
{
    struct feed_writer *writer = context;
    struct feed *feed = writer->feed;
    while (!note(writer, key, length, NULL)) {
        if (!room_wait(feed, &feed->lanes[writer->lane], FEED_ENTRY_HEADER + (uint32_t)length)) {
            /* given up: the next life makes a checkpoint (K5) */
            atomic_store_release(&feed->missed, 1); /* before the task that marks ends */
            writer->ticket = UINT64_MAX;
            return;
        }
    }
}

void feed_end(struct feed *feed)
{
    atomic_store_release(&feed->ends, 1); /* a flag that orders nothing else */
}

bool feed_missed(const struct feed *feed)
{
    return atomic_load_acquire(&feed->missed); /* acquire: as it is set */
}

/* ---- the leader of passes (K7) ---- */

bool feed_lead(struct feed *feed)
{
    spinlock_lock(&feed->lock);
    const bool leads = feed->leader == LEADER_NONE && !feed->claimed;
    if (leads)
        feed->leader = LEADER_TASK;
    feed->led += leads;
    spinlock_unlock(&feed->lock);
    return leads;
}

void feed_lead_keeper(struct feed *feed)
{
    for (;;) {
        spinlock_lock(&feed->lock);
        const bool leads = feed->leader == LEADER_NONE;
        if (leads)
            feed->leader = LEADER_KEEPER;
        feed->claimed = !leads;
        spinlock_unlock(&feed->lock);
        if (leads)
            return;
        bell_wait(&feed->keeper);
    }
}

void feed_lead_end(struct feed *feed)
{
    spinlock_lock(&feed->lock);
    assert(feed->leader != LEADER_NONE);
    /* Tasks that came to wait behind the beginning of its last pass have rung for nobody. */
    const bool rings =
        feed->leader == LEADER_TASK && (feed->waiters != NULL || feed->hurried > feed->safe || feed->claimed);
    feed->leader = LEADER_NONE;
    spinlock_unlock(&feed->lock);
    if (rings)
        feed_wake(feed);
}

/* ---- passes ---- */

void feed_progress(struct feed *feed)
{
    atomic_store_relaxed(&feed->progress, task_now()); /* a hint of the pace */
}

void feed_pace(struct feed *feed, uint64_t took_ns)
{
    const uint32_t room = lane_room(feed), most = feed->options.lane_bytes;
    const uint32_t least = most < ROOM_LEAST ? most : ROOM_LEAST;
    uint64_t next = room;
    if (took_ns > PASS_NS)
        next = (uint64_t)room * PASS_NS / took_ns;
    else if (took_ns < PASS_NS / 2)
        next = (uint64_t)room * 2;
    next = next < least ? least : next > most ? most : next;
    atomic_store_relaxed(&feed->room, (uint32_t)next); /* a hint of the pace */
}

unsigned feed_lanes(const struct feed *feed)
{
    return feed->options.lanes;
}

/* Under the lane's lock. */
static void lane_take(struct feed *feed, struct feed_lane *lane, uint64_t pass)
{
    uint8_t *full = lane->bytes;
    const uint64_t oldest = atomic_load_relaxed(&feed->oldest); /* the leader's own */
    if (lane->count && (!oldest || lane->since < oldest))
        atomic_store_relaxed(&feed->oldest, lane->since); /* a hint */
    lane->bytes = lane->spare;
    lane->spare = full;
    lane->taken_now = (struct feed_taken){full, lane->used, lane->count, lane->doubtful};
    lane->used = lane->count = lane->doubtful = 0;
    lane->taken = pass;
}

uint64_t feed_begin(struct feed *feed)
{
    assert(feed->leader != LEADER_NONE); /* it changes only when the leader, who calls this, lets go */
    for (unsigned i = 0; i < feed->options.lanes; i++) /* nothing else holds one and wants another */
        spinlock_lock(&feed->lanes[i].lock);
    /* Release: with the lanes that earlier passes took. */
    const uint64_t pass = atomic_add_release(&feed->pass, 1) + 1;
    for (unsigned i = 0; i < feed->options.lanes; i++) {
        lane_take(feed, &feed->lanes[i], pass);
        spinlock_unlock(&feed->lanes[i].lock);
    }
    return pass;
}

struct feed_taken feed_taken(const struct feed *feed, unsigned number)
{
    return feed->lanes[number].taken_now;
}

void feed_doubt(struct feed *feed)
{
    for (unsigned i = 0; i < feed->options.lanes; i++) {
        spinlock_lock(&feed->lanes[i].lock); /* a mark behind this one is newer than all that was read */
        feed->lanes[i].doubtful = feed->lanes[i].used;
        spinlock_unlock(&feed->lanes[i].lock);
    }
}

void feed_done(struct feed *feed, uint64_t pass)
{
    spinlock_lock(&feed->lock);
    assert(pass > feed->safe);
    atomic_store_release(&feed->safe, pass); /* release: with what the keeper wrote before */
    if (feed->failed && feed->error.code == BANYAN_ENOSPC) {
        error_clear(&feed->error);
        atomic_store_release(&feed->failed, 0); /* with the message */
    }
    atomic_store_relaxed(&feed->oldest, 0); /* a hint */
    waiters_wake(feed, pass, false);
    spinlock_unlock(&feed->lock);
}

void feed_fail(struct feed *feed, const struct error *error)
{
    assert(error->code);
    spinlock_lock(&feed->lock);
    /* A failure for ever keeps its first message. */
    if (!feed->failed || feed->error.code == BANYAN_ENOSPC)
        feed->error = *error;
    atomic_store_release(&feed->failed, 1); /* with the message */
    waiters_wake(feed, 0, true);
    spinlock_unlock(&feed->lock);
}

void feed_stats(struct feed *feed, struct feed_stats *stats)
{
    const uint64_t now = task_now();
    uint64_t oldest = atomic_load_relaxed(&feed->oldest); /* statistics, as all below */
    *stats = (struct feed_stats){.passes = atomic_load_relaxed(&feed->pass),
                                 .safe = atomic_load_relaxed(&feed->safe),
                                 .waits = atomic_load_relaxed(&feed->waits),
                                 .wait_ns = atomic_load_relaxed(&feed->wait_ns)};
    for (unsigned i = 0; i < feed->options.lanes; i++) {
        struct feed_lane *lane = &feed->lanes[i];
        spinlock_lock(&lane->lock);
        stats->marks += lane->marks;
        if (lane->count && (!oldest || lane->since < oldest))
            oldest = lane->since;
        spinlock_unlock(&lane->lock);
    }
    spinlock_lock(&feed->lock);
    stats->led = feed->led;
    spinlock_unlock(&feed->lock);
    stats->behind_ns = oldest && now > oldest ? now - oldest : 0;
}
