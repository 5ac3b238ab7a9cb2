/*
 * merge.c - The merger (L5), the watermark and the end of segments (L6 of docs/internals/log.md).
 *
 * A CYCLE walks the tables of all indexes in key order. All that was logged before it began is merged when it
 * has ended, but for what could not be; so the watermark is the sequence that was drawn last when it began,
 * or lies below the least of those. A cycle begins when an eighth of what writers may fill was logged since
 * the last one began, or when nothing was logged for a while; so entries that are overwritten soon are merged
 * once, and neighbours together. While little is left to merge one task walks, and leaves pauses, so that
 * operations go first; from there on others help it, and the cycle ends with the last of them. It ends early,
 * and publishes nothing, where a task inherits: all operations of the range wait for that, and it waits for
 * the end of the cycle.
 */
#include <assert.h>

#include "base/task.h"
#include "log/state.h"
#include "tree/rights.h"

/* A cycle pauses for so long behind so many entries, while there is room. A worker would spin through a
 * shorter sleep, and take CPU time from the operations that are to go first. */
#define PAUSE_NS      (100 * MICROSECOND)
#define PAUSE_ENTRIES 64u
/* Between two looks while something is logged. */
#define BUSY_NS (200 * MICROSECOND)
/* Between two cycles that can move nothing, at most. */
#define HELD_NS (1 * MILLISECOND)
/* A cycle begins when so much of what writers may fill was logged since the last one, in 1/256; or when so
 * much is full, so that a segment becomes free. */
#define DUE  32u
#define FULL 128u
/* From so much on that is left to merge others help, and nobody pauses; LOG_CROWDED is the end of that. */
#define HASTE 32u
/* ... or after so many looks at which nothing was logged. */
#define QUIET 10u

/* ---- memory nodes that leave ---- */

/* Or has left: one may be removed before this process hears that it leaves, and has a stream here still. */
static bool leaves(const struct log *log, uint16_t node)
{
    return fabric_membership(log->fabric, node) != FABRIC_MEMBER;
}

/* ---- the watermark ---- */

/* The stream's control block; GADDR_NULL: there is none. The session's lists are bound to the incarnation in
 * which it is this log's. */
static int control_find(struct log_stream *stream, struct tree_session *session, gaddr *control)
{
    struct pool_session *pool = tree_session_pool(session);
    uint64_t incarnation = 0;
    spinlock_lock(&stream->lock);
    const bool opened = stream->opened;
    spinlock_unlock(&stream->lock);
    *control = GADDR_NULL;
    int status = opened ? log_stream_open(stream, session, &incarnation, control) : 0;
    if (status)
        *control = GADDR_NULL;
    if (opened && incarnation < pool->incarnation)
        pool->incarnation = incarnation;
    return status;
}

/* Writes it to every memory node that has a stream; all must have it before a segment is used again. One that
 * was removed needs none: who inherits asks for the list of memory nodes first, and reads nothing there. */
static int publish(struct log *log, struct tree_session *session, uint64_t watermark)
{
    struct fabric_command writes[64];
    struct fabric_list lists[64], *pointers[64];
    uint64_t word = format_log_watermark_encode(watermark);
    uint32_t count = 0;
    int status = 0;
    struct pool_session *pool = tree_session_pool(session);
    pool_session_begin(pool);
    for (uint16_t n = 0; n < log_nodes(log) && !status; n++) {
        struct log_stream *stream = &log->streams[n];
        gaddr control;
        if (fabric_membership(log->fabric, n) == FABRIC_NO_MEMBER)
            continue;
        status = control_find(stream, session, &control);
        if (control == GADDR_NULL)
            continue;
        writes[count] = pool_write_command(control + FORMAT_LOG_WATERMARK_OFFSET, &word, sizeof word);
        lists[count] = (struct fabric_list){.node = n, .count = 1, .commands = &writes[count]};
        pointers[count] = &lists[count];
        if (++count == 64) {
            status = pool_lists_execute(pool, pointers, count);
            count = 0;
        }
    }
    if (count && !status)
        status = pool_lists_execute(pool, pointers, count);
    return status;
}

/* What is kept for successors is not passed. Under the lock from here to the publishing nothing is kept that
 * lies below: log_keep begins above what was published, and this says first what will be. */
static uint64_t watermark_take(struct log *log, uint64_t wanted)
{
    spinlock_lock(&log->lock);
    for (const struct log_kept *kept = log->kept; kept; kept = kept->next)
        if (wanted >= kept->floor)
            wanted = kept->floor - 1;
    bool more = wanted > log->published && !log->sealed;
    if (more)
        atomic_store_relaxed(&log->published, wanted); /* a hint for log_merge; else under the lock */
    spinlock_unlock(&log->lock);
    return more ? wanted : 0;
}

/* What stands in the segments that are free now is kept elsewhere first, if it is to be: by the caller, and
 * on the disks of the memory nodes (P2). */
static int ends_keep(struct log *log, struct tree_session *session, uint64_t certain)
{
    uint16_t nodes[POOL_PERSIST_MAX];
    uint32_t count = 0, at;
    bool some = false;
    int status = 0;
    for (uint16_t n = 0; n < log_nodes(log) && !status; n++) {
        const bool disk = pool_on_disk(tree_session_pool(session), n);
        if ((!disk && !log->options.keep) || !log_stream_ends(&log->streams[n], certain))
            continue;
        some = true;
        if (disk)
            nodes[count++] = n;
        if (count == POOL_PERSIST_MAX) {
            status = log_persist(log, session, nodes, count, &at);
            count = 0;
        }
    }
    if (!status && count)
        status = log_persist(log, session, nodes, count, &at);
    return !status && some && log->options.keep ? log->options.keep(log->options.keep_context) : status;
}

/* Segments are freed also where the watermark stays: one may have become full since then all of which was
 * merged before. */
static int watermark_move(struct log *log, struct tree_session *session, uint64_t wanted)
{
    const uint64_t watermark = watermark_take(log, wanted);
    int status = watermark ? publish(log, session, watermark) : 0;
    spinlock_lock(&log->lock);
    if (watermark && !status)
        atomic_store_relaxed(&log->certain, watermark); /* stream_open may have an older one */
    else if (watermark) /* it may be there: it is true, but no segment is free until it is certain */
        atomic_store_relaxed(&log->published, log->certain); /* as above */
    const uint64_t certain = log->sealed ? 0 : log->certain;
    spinlock_unlock(&log->lock);
    /* Where nothing was published: segments are given back after a loss too, though no write comes behind it.
     */
    pool_session_begin(tree_session_pool(session));
    for (uint16_t n = 0; n < log_nodes(log); n++)
        if (leaves(log, n))
            log_stream_retire(&log->streams[n], certain);
    if (!status)
        status = ends_keep(log, session, certain);
    for (uint16_t n = 0; n < log_nodes(log) && !status; n++) {
        struct log_stream *stream = &log->streams[n];
        log_stream_free_up_to(stream, certain);
        (void)log_stream_give_broken(stream, session); /* the next cycle tries again; likewise: */
        if (leaves(log, n))
            (void)log_stream_leave(stream, session);
    }
    return status;
}

/* ---- a cycle ---- */

static bool yields(const struct log *log, enum log_pace pace)
{
    return pace != LOG_PACE_FAST && atomic_load_relaxed(&log->inheriting); /* a hint */
}

/* In the stream that has most of it. */
static struct log_pressure pressure(struct log *log)
{
    struct log_pressure most = {0};
    for (uint16_t n = 0; n < log_nodes(log); n++) {
        const struct log_pressure here = log_stream_pressure(&log->streams[n]);
        most.full = here.full > most.full ? here.full : most.full;
        most.fresh = here.fresh > most.fresh ? here.fresh : most.fresh;
        most.left = here.left > most.left ? here.left : most.left;
    }
    return most;
}

static void stream_begins(struct log_stream *stream)
{
    spinlock_lock(&stream->lock);
    if (stream->current)
        stream->begun = (struct log_mark){stream->current->number, stream->current->tail};
    stream->cycled = log_stream_fresh(stream);
    spinlock_unlock(&stream->lock);
}

/* `merged`: the cycle has merged all that there was when it began. */
static void stream_ends(struct log_stream *stream, bool merged)
{
    spinlock_lock(&stream->lock);
    if (merged)
        stream->merged = stream->begun;
    stream->cycled = 0;
    spinlock_unlock(&stream->lock);
}

/* The next index behind `tree` (NULL: the first), which stays attached until index_leave. */
static struct log_index *index_enter(struct log *log, const struct log_index *behind)
{
    spinlock_lock(&log->lock);
    struct log_index *index = behind ? behind->next : log->indexes;
    while (index && index->leaving)
        index = index->next;
    if (index)
        index->users++;
    spinlock_unlock(&log->lock);
    return index;
}

static void index_leave(struct log *log, struct log_index *index)
{
    spinlock_lock(&log->lock);
    index->users--;
    spinlock_unlock(&log->lock);
}

/* ---- a walk, which mergers make together ---- */

/* So many helpers are wanted: none while there is time, and then the more the nearer it comes to holding
 * writers back. */
static uint32_t helpers_wanted(struct log *log, enum log_pace pace)
{
    if (pace == LOG_PACE_FAST)
        return UINT32_MAX;
    const uint32_t left = pressure(log).left;
    return left >= HASTE ? 1 + left - HASTE : 0;
}

static void helpers_call(struct log *log, uint32_t wanted)
{
    for (;;) {
        spinlock_lock(&log->lock);
        struct log_helper *helper = log->walk.working < wanted ? log->helpers : NULL;
        if (helper) {
            log->helpers = helper->next;
            log->walk.working++;
            helper->called = true;
        }
        spinlock_unlock(&log->lock);
        if (!helper)
            return;
        wakeup_give(&helper->wakeup);
    }
}

void log_helpers_end(struct log *log)
{
    spinlock_lock(&log->lock);
    struct log_helper *helper = log->helpers;
    log->helpers = NULL;
    spinlock_unlock(&log->lock);
    while (helper) {
        struct log_helper *next = helper->next; /* it is its task's again once that knows */
        wakeup_give(&helper->wakeup);
        helper = next;
    }
}

/* Sleeps until there is work. False: the log was stopped. */
static bool helper_wait(struct log *log)
{
    struct log_helper helper = {0};
    wakeup_init(&helper.wakeup);
    spinlock_lock(&log->lock);
    /* Relaxed: log_stop takes the lock behind it. */
    const bool waits = !atomic_load_relaxed(&log->stopped);
    if (waits) {
        helper.next = log->helpers;
        log->helpers = &helper; // cppcheck-suppress autoVariables ; the teller takes it off before we go on
    }
    spinlock_unlock(&log->lock);
    if (waits)
        wakeup_wait(&helper.wakeup);
    return helper.called;
}

static void helper_done(struct log *log)
{
    spinlock_lock(&log->lock);
    struct wakeup *leader = --log->walk.working ? NULL : log->walk.leader;
    if (leader)
        log->walk.leader = NULL;
    spinlock_unlock(&log->lock);
    if (leader)
        wakeup_give(leader);
}

static void helpers_await(struct log *log)
{
    struct wakeup wakeup;
    wakeup_init(&wakeup);
    spinlock_lock(&log->lock);
    const bool waits = log->walk.working;
    if (waits)
        log->walk.leader =
            &wakeup; // cppcheck-suppress autoVariables ; the teller takes it off before we go on
    spinlock_unlock(&log->lock);
    if (waits)
        wakeup_wait(&wakeup);
}

/* What was not looked at must not be passed. */
static void walk_cut(struct log_walk *walk, int status)
{
    spinlock_lock(&walk->keys.lock);
    walk->keys.least = 1;
    walk->keys.end = true;
    walk->status = walk->status ? walk->status : status;
    spinlock_unlock(&walk->keys.lock);
}

/* After a share of the walk. True: there is another one. */
static bool walk_goes_on(struct log *log, int status, uint64_t *merged)
{
    struct log_walk *walk = &log->walk;
    spinlock_lock(&walk->keys.lock);
    walk->status = walk->status ? walk->status : status;
    const uint64_t done = walk->before + walk->keys.done;
    const bool more = !walk->keys.end;
    *merged = walk->keys.merged;
    spinlock_unlock(&walk->keys.lock);
    if (walk->all) /* a hint for writers */
        atomic_store_relaxed(&log->progress,
                             done < walk->all ? (uint32_t)((done << 16) / walk->all) : 1u << 16);
    log_count(&log->stats.merge_calls, 1);
    return more;
}

static void walk_work(struct log *log, struct tree_session *session, bool leads)
{
    struct log_walk *walk = &log->walk;
    uint64_t merged = 0, paused = 0; /* paused: behind how many */
    for (;;) {
        if (yields(log, walk->pace)) {
            walk_cut(walk, BANYAN_EBUSY);
            return;
        }
        int status = tree_log_apply(session, walk->tree, &walk->keys, TREE_LOG_APPLY_MAX);
        if (status == BANYAN_ENOMEM)
            walk_cut(walk, status);
        if (!walk_goes_on(log, status, &merged))
            return;
        const uint32_t wanted = helpers_wanted(log, walk->pace);
        if (leads)
            helpers_call(log, wanted);
        else if (!wanted)
            return;
        if (!wanted && walk->pace == LOG_PACE_PAUSES && merged - paused >= PAUSE_ENTRIES) {
            task_sleep(PAUSE_NS);
            paused = merged;
        }
    }
}

/* The others. */
static int merger_help(struct log *log, struct tree_session *session)
{
    while (helper_wait(log)) {
        walk_work(log, session, false);
        helper_done(log);
    }
    return 0;
}

static int merge_range(struct log *log, struct tree_session *session, struct tree *tree,
                       struct format_key lower, const struct format_key *upper, enum log_pace pace,
                       uint64_t *least)
{
    struct log_walk *walk = &log->walk;
    walk->keys = (struct tree_log_walk){.to = upper, .least = *least};
    walk->tree = tree;
    walk->pace = pace;
    walk->status = 0;
    format_key_store(&walk->keys.from, lower);
    walk_work(log, session, true);
    helpers_await(log);
    log_count(&log->stats.merged, walk->keys.merged);
    log_count(&log->stats.merged_there, walk->keys.there);
    *least = walk->keys.least;
    walk->before += walk->keys.done;
    return walk->status;
}

/* Sees to it that the log's room, which what is doubtful keeps from being free, does not hold it up. */
static int settle(struct log *log, struct tree_session *session, struct tree *tree)
{
    atomic_add_relaxed(&log->beyond, 1); /* whoever waits looks again soon */
    int status = tree_log_settle(session, tree);
    atomic_add_relaxed(&log->beyond, -1u); /* as above */
    return status;
}

/* Also the indexes' doubtful keys. The first error; *least: of what is not merged. */
static int merge_all(struct log *log, struct tree_session *session, enum log_pace pace, uint64_t *least)
{
    int first = 0;
    for (struct log_index *index = index_enter(log, NULL), *next; index; index = next) {
        struct unmerged *table = tree_log_table(index->tree);
        int status = 0;
        if (table) {
            status = settle(log, session, index->tree);
            int merged = merge_range(log, session, index->tree, (struct format_key){0}, NULL, pace, least);
            status = status ? status : merged;
        }
        first = first ? first : status;
        next = index_enter(log, index);
        index_leave(log, index);
    }
    return first;
}

static uint64_t unmerged_all(struct log *log)
{
    uint64_t count = 0;
    spinlock_lock(&log->lock);
    for (const struct log_index *index = log->indexes; index; index = index->next) {
        const struct unmerged *table = tree_log_table(index->tree);
        count += table ? unmerged_count(table) : 0;
    }
    spinlock_unlock(&log->lock);
    return count;
}

static int cycle(struct log *log, struct tree_session *session, enum log_pace pace)
{
    const uint64_t began = task_now();
    uint64_t least = UINT64_MAX;
    log->walk.before = 0;
    log->walk.all = unmerged_all(log);
    for (uint16_t n = 0; n < log_nodes(log); n++)
        stream_begins(&log->streams[n]);
    /* Before the tables are looked at. Acquire: frames whose numbers were drawn say so (log_draw). */
    const uint64_t drawn = atomic_load_acquire(&log->sequence);
    int status = merge_all(log, session, pace, &least);
    int moved = watermark_move(log, session, least <= drawn ? least - 1 : drawn);
    for (uint16_t n = 0; n < log_nodes(log); n++)
        stream_ends(&log->streams[n], !status && !moved);
    log->walk.all = 0;
    atomic_store_relaxed(&log->progress, 0);                     /* a hint */
    if (!moved && atomic_load_relaxed(&log->published) >= drawn) /* statistics */
        atomic_store_relaxed(&log->merged_at, began);
    log_count(&log->stats.cycles, 1);
    const uint64_t took = task_now() - began;
    atomic_store_relaxed(&log->stats.cycle_ns, took); /* statistics */
    log_longest(&log->stats.cycle_longest_ns, took);
    return status ? status : moved;
}

/* One cycle at a time: it is this task's turn. The merger, which takes one turn after the other, takes none
 * while another task waits: it might never sleep when that one looks. */
static bool turn_take(struct log *log, bool waited)
{
    spinlock_lock(&log->lock);
    const bool mine = !log->merging && (waited || !log->turn_waits);
    log->merging = log->merging || mine;
    spinlock_unlock(&log->lock);
    return mine;
}

void log_turn_give(struct log *log)
{
    spinlock_lock(&log->lock);
    log->merging = false;
    spinlock_unlock(&log->lock);
}

/* A memory node leaves, or has left, on which something of this log lies. */
static bool any_leaves(struct log *log)
{
    bool any = false;
    for (uint16_t n = 0; n < log_nodes(log) && !any; n++)
        any = leaves(log, n) && log_stream_lingers(&log->streams[n]);
    return any;
}

static int merger_watch(struct log *log, struct tree_session *session)
{
    uint64_t seen = 0;       /* of log->logged */
    unsigned quiet = 0;      /* looks since something was logged */
    uint64_t held = BUSY_NS; /* until the next cycle, after one that has moved nothing */
    while (!atomic_load_acquire(&log->stopped)) {
        const uint64_t logged = atomic_load_relaxed(&log->logged); /* a hint */
        quiet = logged == seen ? quiet + 1 : 0;
        seen = logged;
        if (atomic_load_relaxed(&log->published) >= atomic_load_relaxed(&log->sequence)) /* statistics */
            atomic_store_relaxed(&log->merged_at, task_now());
        const struct log_pressure now = pressure(log);
        const bool due = now.fresh >= DUE || now.full >= FULL;
        const bool idle = any_leaves(log) ||
                          (quiet >= QUIET && (unmerged_all(log) || atomic_load_relaxed(&log->published) <
                                                                       atomic_load_relaxed(&log->sequence)));
        if ((due || idle) && !yields(log, LOG_PACE_YIELDS) && turn_take(log, false)) {
            const uint64_t published = atomic_load_relaxed(&log->published); /* it is this task's turn */
            int status = cycle(log, session, idle ? LOG_PACE_YIELDS : LOG_PACE_PAUSES);
            const bool moved = atomic_load_relaxed(&log->published) > published; /* as above */
            log_turn_give(log);
            if (!status)
                quiet = idle ? 0 : quiet;
            if (!status && !idle && moved)
                continue;
            /* What holds the watermark, such as heirs that are on the map still, is others' to end. */
            held = moved ? BUSY_NS : held < HELD_NS ? 2 * held : HELD_NS;
        } else if (!due) {
            held = BUSY_NS;
        }
        task_sleep(quiet ? log->options.idle_ns : held);
    }
    return 0;
}

int log_merge(struct log *log, struct tree_session *session)
{
    spinlock_lock(&log->lock);
    const bool watches = !log->watched;
    log->watched = true;
    spinlock_unlock(&log->lock);
    return watches ? merger_watch(log, session) : merger_help(log, session);
}

/* ---- on demand ---- */

static void turn_waits_add(struct log *log, uint32_t more)
{
    spinlock_lock(&log->lock);
    log->turn_waits += more;
    spinlock_unlock(&log->lock);
}

void log_turn_wait(struct log *log)
{
    turn_waits_add(log, 1);
    while (!turn_take(log, true))
        task_sleep(20 * MICROSECOND);
    turn_waits_add(log, -1u);
}

int log_flush(struct log *log, struct tree_session *session, struct tree *tree, struct format_key lower,
              const struct format_key *upper)
{
    uint64_t least = UINT64_MAX;
    if (!tree_log_table(tree))
        return 0;
    log_turn_wait(log);
    (void)settle(log, session, tree);                           /* what stays doubtful counts as not merged */
    const uint64_t drawn = atomic_load_acquire(&log->sequence); /* as in cycle */
    int status = merge_range(log, session, tree, lower, upper, LOG_PACE_FAST, &least);
    if (!status && least <= drawn)
        status = pool_fail(tree_session_pool(session), BANYAN_EBUSY,
                           "index %s: the range still has changes that are not merged", tree_name(tree));
    log_turn_give(log);
    return status;
}

int log_flush_all(struct log *log, struct tree_session *session)
{
    log_turn_wait(log);
    int status = cycle(log, session, LOG_PACE_FAST);
    log_turn_give(log);
    return status;
}

int log_close(struct log *log, struct tree_session *session)
{
    int first = log_flush_all(log, session);
    if (!first && log->options.keep)
        first = log->options.keep(log->options.keep_context);
    for (uint16_t n = 0; n < log_nodes(log) && !first; n++)
        first = log_stream_close(&log->streams[n], session);
    return first;
}
