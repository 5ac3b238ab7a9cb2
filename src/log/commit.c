/*
 * commit.c - Frames and group commit (L1, L3 of docs/internals/log.md). What the tasks of all threads have
 * ready leaves in one wait: a list for each memory node, with the writes ahead and the frame; with two copies
 * another for each. The first task of a batch leads it: it lets the others of its thread run once, waits
 * until the batch before is back, and posts. An idle process so commits at once, and a busy one in batches as
 * large as a round trip lets them grow.
 *
 * A list takes effect in order, so an entry that is whole has what was to be written ahead of it. The second
 * copy of a frame is another list: where something is written ahead it goes out when the first list is back.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/task.h"
#include "log/state.h"

/* A memory node may be away for long: that entries have one copy is said so often at most. */
#define DEGRADED_SAID_NS (1000 * MILLISECOND)
/* A commit is held back for so long, at the least pressure; between two looks. */
#define HOLD_NS      (20 * MILLISECOND)
#define HOLD_LOOK_NS (100 * MICROSECOND)
/* Where merging has ended nothing for so long it does not go on. */
#define DEAD_NS (1000 * MILLISECOND)

/* ---- the lane ---- */

bool log_lane_create(struct log *log)
{
    struct log_lane *lane = &log->lane;
    lane->log = log;
    lane->open = &lane->batches[0];
    for (unsigned i = 0; i < 2; i++) {
        struct log_batch *batch = &lane->batches[i];
        batch->lane = lane;
        batch->frames = calloc(log->most, sizeof *batch->frames);
        if (!batch->frames)
            return false;
        for (uint16_t n = 0; n < log->most; n++) {
            batch->frames[n].batch = batch;
            batch->frames[n].node = n;
            batch->frames[n].last = &batch->frames[n].first;
        }
    }
    return true;
}

void log_lane_destroy(struct log *log)
{
    for (unsigned i = 0; i < 2; i++) {
        struct log_frame *frames = log->lane.batches[i].frames;
        for (uint16_t n = 0; frames && n < log->most; n++) {
            free(frames[n].bytes);
            free(frames[n].copy);
            log_carry_free(&frames[n].carry);
        }
        free(frames);
    }
}

/* ---- filling ---- */

static uint32_t entry_bytes(const struct tree_logged_entry *entry)
{
    return FORMAT_LOG_ENTRY_BYTES + entry->key.length + entry->value.length;
}

static uint32_t ahead_bytes(const struct tree_logged_entry *entry)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < entry->ahead_count; i++)
        bytes += entry->ahead[i].length;
    return bytes;
}

static bool frame_ready(struct log_frame *frame, uint32_t room)
{
    if (!frame->bytes)
        frame->bytes = malloc(room);
    if (!frame->bytes)
        return false;
    if (!frame->frame.bytes)
        format_log_frame_begin(&frame->frame, frame->bytes, room);
    return true;
}

/* Whether the batch may carry the entry's record too, if it has to. */
static bool carry_fits(const struct log_frame *frame, const struct tree_logged_entry *entry)
{
    const struct log_batch *batch = frame->batch;
    const uint32_t most = atomic_load_relaxed(&batch->lane->log->carry_most); /* a hint */
    return !batch->lane->carries || !entry->record_bytes || !batch->carried ||
           batch->carried + entry->record_bytes <= most;
}

static bool frame_fits(const struct log_frame *frame, const struct tree_logged_entry *entry)
{
    const bool reads = entry->record_bytes && frame->batch->lane->carries && !log_carry_brought(entry);
    return frame->frame.used + entry_bytes(entry) <= frame->frame.room &&
           frame->ahead + entry->ahead_count + reads + 1 <= FABRIC_COMMANDS_MAX &&
           frame->ahead_bytes + ahead_bytes(entry) <= FABRIC_LIST_BYTES_MAX - FORMAT_LOG_FRAME_MAX &&
           carry_fits(frame, entry);
}

/* What the frame was opened for says whether it carries records. An entry of another task that has one may
 * have to be carried where that has none: its own task opens a frame for it. */
static bool commit_fits(void *context, const struct unmerged_frame *frame,
                        const struct tree_logged_entry *entry)
{
    const struct log *log = context;
    if (entry->record_bytes && !log->lane.carries && log_carries(log))
        return false;
    return frame_fits((const struct log_frame *)frame, entry);
}

static struct unmerged_frame *commit_open(void *context, struct tree_session *session, uint16_t node,
                                          const struct tree_logged_entry *entry)
{
    struct log *log = context;
    struct log_lane *lane = &log->lane;
    const bool carries = entry->record_bytes && log_carries(log);
    /* What goes ahead lies on this memory node; else any stream will do, where this one's leaves. */
    if (!log_takes(log, node) && !entry->ahead_count)
        node = log_copy_node(log, node, 0);
    spinlock_lock(&lane->lock);
    struct log_batch *batch = lane->open;
    struct log_frame *frame = &batch->frames[node];
    lane->carries = carries;
    if ((!batch->entries || batch->incarnation == tree_session_pool(session)->incarnation) &&
        node < log_nodes(log) && frame_ready(frame, log->options.frame_bytes) && frame_fits(frame, entry))
        return &frame->drawn; /* locked until commit_close */
    spinlock_unlock(&lane->lock);
    return NULL;
}

static void commit_close(void *context, struct tree_session *session)
{
    struct log *log = context;
    (void)session;
    spinlock_unlock(&log->lane.lock);
}

/* All that the frame has in pieces is to be on the disk of one memory node, which gets its copy. */
static void brought_note(struct log *log, struct log_frame *frame, const struct tree_logged_entry *entry)
{
    if (entry->brought == POOL_ANY_NODE || (frame->brought && frame->brought_node != entry->brought)) {
        log_uncarried(log, 1);
        frame->lacks = true;
        return;
    }
    frame->brought_node = entry->brought;
    frame->brought++;
}

static uint32_t commit_add(void *context, struct tree_session *session, struct unmerged_frame *opened,
                           const struct tree_logged_entry *entry, struct tree_logged *logged)
{
    struct log *log = context;
    struct log_frame *frame = (struct log_frame *)opened;
    const uint32_t index = frame->frame.count;
    struct log_batch *batch = frame->batch;
    const struct format_log_entry bytes = {.kind = entry->value.bytes ? FORMAT_LOG_PUT : FORMAT_LOG_DELETE,
                                           .index = entry->index,
                                           .epoch = entry->epoch,
                                           .sequence = index + 1, /* until they are drawn */
                                           .key = entry->key,
                                           .value = entry->value.bytes,
                                           .value_length = (uint8_t)entry->value.length};
    if (!batch->entries++)
        batch->incarnation = tree_session_pool(session)->incarnation;
    bool added = format_log_frame_add(&frame->frame, &bytes);
    assert(added && "commit_open has found room");
    (void)added;
    if (entry->ahead_count)
        memcpy(&frame->commands[frame->ahead], entry->ahead, entry->ahead_count * sizeof *entry->ahead);
    frame->ahead += entry->ahead_count;
    frame->ahead_bytes += ahead_bytes(entry);
    if (entry->record_bytes && batch->lane->carries)
        log_carry_add(frame, entry);
    if (entry->in_pieces && batch->lane->carries)
        brought_note(log, frame, entry);
    frame->again += entry->again;
    if (entry->again)                        /* seldom: all threads look at the count */
        atomic_add_relaxed(&log->beyond, 1); /* a hint */
    logged->next = NULL;
    logged->frame = opened;
    *frame->last = logged;
    frame->last = &logged->next;
    task_charge(TASK_WORK_COPY, task_lines(entry_bytes(entry)));
    log_count(&log->stats.entries, 1);
    return index;
}

/* ---- sending ---- */

void log_uncarried(struct log *log, uint32_t entries)
{
    log_count(&log->stats.uncarried, entries);
    log_alone(log);
}

/* Whether the frame's copy on this memory node is to carry records. */
static bool carries(const struct log *log, const struct log_frame *frame, uint16_t node)
{
    return frame->carry.carriers.used && fabric_durability(log->fabric, node) >= FABRIC_KEPT_ON_DISK;
}

/* What goes before it, where a segment can take it. */
static uint32_t carried_bytes(struct log *log, const struct log_frame *frame, uint16_t node, uint32_t bytes)
{
    const uint32_t carried = frame->carry.carriers.used;
    if (!carries(log, frame, node))
        return 0;
    return log_stream_fits(&log->streams[node], carried + bytes) ? carried : 0;
}

static int copy_reserve(struct log *log, struct tree_session *session, struct log_frame *frame, uint16_t node,
                        uint32_t copy)
{
    if (copy && !frame->copy)
        frame->copy = malloc(log->options.frame_bytes);
    if (copy && !frame->copy)
        return pool_fail_memory(tree_session_pool(session));
    const uint32_t bytes = format_log_frame_bytes(&frame->frame);
    uint32_t carried = copy ? carried_bytes(log, frame, node, bytes) : 0;
    int status = log_stream_reserve(&log->streams[node], session, carried + bytes, false, &log->lane.patience,
                                    &frame->places[copy]);
    if (status == BANYAN_EINVAL && carried) {
        carried = 0;
        status = log_stream_reserve(&log->streams[node], session, bytes, false, &log->lane.patience,
                                    &frame->places[copy]);
    }
    if (!status)
        frame->places[copy].carried = carried;
    uint32_t uncarried = 0;
    if (!status && copy && !carried && carries(log, frame, node))
        uncarried = frame->frame.count;
    else if (!status && copy && frame->brought && frame->brought_node != node)
        uncarried = frame->brought;
    if (uncarried)
        log_uncarried(log, uncarried);
    frame->lacks |= uncarried > 0;
    frame->copies += !status;
    return status;
}

void log_degraded(struct log *log, uint16_t node)
{
    const uint64_t now = task_now(), said = atomic_load_relaxed(&log->degraded_said); /* a hint */
    log_count(&log->stats.degraded, 1);
    if (said && now - said < DEGRADED_SAID_NS)
        return;
    atomic_store_relaxed(&log->degraded_said, now); /* as above */
    log_warning("the log: entries of memory node %u have one copy, since no other memory node took a second",
                node);
}

/* L8. Room for the second copy on the first of the others, from the attempt-th on, that is there; on none:
 * the entry has one copy, and that is said. What a memory node says that is there, that no segment is to be
 * had or that this process was fenced, is said of the write. */
static int second_reserve(struct log *log, struct tree_session *session, struct log_frame *frame,
                          uint32_t attempt)
{
    for (; log_copy_node(log, frame->node, attempt) != frame->node; attempt++) {
        int status = copy_reserve(log, session, frame, log_copy_node(log, frame->node, attempt), 1);
        if (status != BANYAN_ENET && status != BANYAN_ETIMEOUT)
            return status;
    }
    log_degraded(log, frame->node);
    frame->lacks = true;
    return 0;
}

/* L2. Behind the reserving, and before the frame is sent. */
static void frame_draw(struct log *log, struct log_frame *frame)
{
    struct format_log_frame *bytes = &frame->frame;
    /* Relaxed: log_draw orders it before the counter's move. */
    atomic_store_relaxed(&frame->drawn.first, UNMERGED_DRAWING);
    log_marks_take(log, frame);
    uint64_t first = log_draw(log, bytes->count);
    atomic_store_release(&frame->drawn.first, first); /* seen by whoever sees what the frame becomes */
    bytes->first = first;
    bytes->last = first + bytes->count - 1;
    if (frame->lacks)
        log_alone(log);
}

/* Puts one copy of the frame where room is reserved for it. */
static void copy_seal(struct log *log, struct log_frame *frame, uint32_t copy)
{
    struct log_place *place = &frame->places[copy];
    const uint32_t bytes = format_log_frame_bytes(&frame->frame);
    struct format_log_frame sealed = frame->frame;
    if (copy) {
        memcpy(frame->copy, frame->bytes, frame->frame.used);
        sealed.bytes = frame->copy;
    }
    log_stream_seal(place, frame->copies > 1 ? &frame->places[!copy] : NULL, &sealed);
    struct fabric_command *write =
        copy ? &frame->copied[place->carried != 0] : &frame->commands[frame->ahead];
    *write = pool_write_command(place->segment->pool.address + log_place_frame(place), sealed.bytes, bytes);
    if (place->carried) /* it is filled when the first list is back */
        frame->copied[0] = pool_write_command(place->segment->pool.address + place->position,
                                              frame->carry.bytes, place->carried);
    frame->lists[copy] =
        (struct fabric_list){.node = place->stream->node,
                             .count = (uint16_t)(copy ? 1u + (place->carried != 0) : frame->ahead + 1),
                             .commands = copy ? frame->copied : frame->commands};
    log_count(&log->stats.frames, 1);
    log_count(&log->stats.carried, place->carried);
    log_count(&log->stats.bytes, bytes + place->carried);
    log_count(&log->logged, bytes + place->carried);
}

/* 0, or why nothing of the frame is sent. */
static int frame_prepare(struct log *log, struct tree_session *session, struct log_frame *frame)
{
    const bool twice = log->options.copies > 1 && log_nodes(log) > 1;
    frame->copies = 0;
    if (!log_carry_prepare(frame))
        return pool_fail_memory(tree_session_pool(session));
    int status = copy_reserve(log, session, frame, frame->node, 0);
    if (!status && twice)
        status = second_reserve(log, session, frame, 0);
    if (status && frame->copies) {
        log_stream_unreserve(&frame->places[0]);
        frame->copies = 0;
    }
    return status;
}

/* L8. The second copy has failed: it goes to another memory node, or the entry has one copy, and that is
 * said.
 */
static void copy_again(struct log *log, struct tree_session *session, struct log_frame *frame)
{
    for (uint32_t attempt = 1; log_copy_node(log, frame->node, attempt) != frame->node; attempt++) {
        frame->copies = 1;
        if (copy_reserve(log, session, frame, log_copy_node(log, frame->node, attempt), 1))
            continue;
        frame->places[1].committed = 0; /* its sequences were drawn before: L2 */
        copy_seal(log, frame, 1);
        if (frame->places[1].carried)
            log_carry_fill(frame, &frame->places[1]);
        struct fabric_list *list = &frame->lists[1];
        int status = pool_lists_post(tree_session_pool(session), &list, 1);
        log_stream_ended(&frame->places[1], list->status);
        if (!status && frame->lacks)
            log_alone(log);
        if (!status)
            return;
    }
    log_degraded(log, frame->node);
    log_alone(log);
}

/* The lists are back. */
static void frame_judge(struct log *log, struct tree_session *session, struct log_frame *frame)
{
    bool whole = true, refused = true;
    if (!frame->copies) { /* nothing of it was sent */
        return;
    }
    for (uint32_t i = 0; i < frame->copies; i++) {
        whole &= !frame->lists[i].status;
        refused &= frame->lists[i].status == BANYAN_EFENCED;
        frame->places[i].named = frame->copies > 1 && frame->lists[!i].status != BANYAN_EFENCED;
        log_stream_ended(&frame->places[i], frame->lists[i].status);
    }
    if (!whole && !frame->lists[0].status) {
        copy_again(log, session, frame);
        whole = true;
    }
    frame->status = whole ? 0 : refused ? BANYAN_EFENCED : BANYAN_EUNKNOWN;
    if (frame->status)
        error_set(&frame->error, frame->status,
                  "the log on memory node %u: the write may have taken effect: %s", frame->node,
                  error_name(frame->lists[0].status));
}

/* The copies that wait for the first lists. Those whose first list failed are not sent. */
static void copies_post(struct tree_session *session, struct log_batch *batch)
{
    struct fabric_list *lists[64];
    uint32_t count = 0;
    for (uint16_t n = 0; n < log_nodes(batch->lane->log); n++) {
        struct log_frame *frame = &batch->frames[n];
        if (!frame->ahead || frame->copies < 2)
            continue;
        frame->lists[1].status = BANYAN_EFENCED;
        if (!frame->lists[0].status && frame->places[1].carried)
            log_carry_fill(frame, &frame->places[1]);
        if (!frame->lists[0].status)
            lists[count++] = &frame->lists[1];
        if (count == sizeof lists / sizeof *lists) {
            pool_lists_post(tree_session_pool(session), lists, count);
            count = 0;
        }
    }
    if (count)
        pool_lists_post(tree_session_pool(session), lists, count);
}

/* So long a commit is held back, at most, where so much is left to merge: the longer the nearer the stream is
 * to having no room at all, where writers would wait for the end of a cycle. */
static uint64_t hold_most(const struct log *log, uint32_t left)
{
    if (left < LOG_CROWDED || log->options.wait_ns < HOLD_NS) /* writers are to fail sooner than that */
        return 0;
    const uint32_t steps = (left - LOG_CROWDED) / 8;
    const uint64_t most = HOLD_NS << (steps < 5 ? steps : 5);
    return most < log->options.wait_ns ? most : log->options.wait_ns;
}

/* Nothing may wait for merging: what is doubtful is logged again, an adopting waits for writers, or merging
 * waits for a task that inherits. All are hints. */
static bool hurried(struct log *log)
{
    return atomic_load_relaxed(&log->beyond) || atomic_load_relaxed(&log->inheriting) ||
           atomic_load_relaxed(&log->stopped);
}

/* Merging goes on: it has ended something since it was looked at last, or that is not long ago. */
static bool merging_lives(struct log *log, uint64_t now)
{
    struct log_lane *lane = &log->lane;
    const uint64_t calls = atomic_load_relaxed(&log->stats.merge_calls); /* a hint */
    if (calls != lane->merge_calls) {
        lane->merge_calls = calls;
        lane->merged_at = now;
    }
    return calls && now - lane->merged_at < DEAD_NS;
}

/* Writers go on as fast as merging does (log.md), as long as it goes on. */
static void batch_hold(struct log *log, struct log_batch *batch)
{
    uint64_t began = 0, now = 0;
    for (uint16_t n = 0; n < log_nodes(log); n++) {
        while (batch->frames[n].frame.count && !hurried(log)) {
            const uint64_t most = hold_most(log, log_stream_pressure(&log->streams[n]).left);
            if (!most)
                break;
            now = task_now();
            began = began ? began : now;
            if (now - began >= most || !merging_lives(log, now))
                break;
            task_sleep(HOLD_LOOK_NS);
        }
    }
    if (!began || now == began)
        return;
    const uint64_t held = task_now() - began;
    log_count(&log->stats.held, 1);
    log_count(&log->stats.held_ns, held);
    log_longest(&log->stats.held_longest_ns, held);
}

static void persist_count(struct log *log, uint64_t began)
{
    const uint64_t took = task_now() - began;
    log_count(&log->stats.persists, 1);
    log_count(&log->stats.persist_ns, took);
    log_longest(&log->stats.persist_longest_ns, took);
}

int log_persist(struct log *log, struct tree_session *session, const uint16_t *nodes, uint32_t count,
                uint32_t *at)
{
    const uint64_t began = task_now();
    int status = pool_persist(tree_session_pool(session), nodes, count, at);
    persist_count(log, began);
    return status;
}

/* The disk has not said that it has the frame, which stands in memory: its keys are doubtful. */
static void frame_unsafe(struct log *log, struct tree_session *session, struct log_frame *frame,
                         uint16_t node, int status)
{
    log_count(&log->stats.unsafe, 1);
    pool_persist_failed(tree_session_pool(session), node, status);
    frame->status = BANYAN_EUNKNOWN;
    error_set(&frame->error, frame->status, "the write is not safe from power: %.200s",
              tree_session_error(session)->text);
}

/* What became of the asking, of a frame that stands in memory. A second disk that has no room holds writers
 * back as the first one does (L8); one that is not there, or has failed, leaves the frame with one copy. */
static void frame_safe(struct log *log, struct tree_session *session, struct log_frame *frame)
{
    for (uint32_t i = 0; i < frame->copies && !frame->status; i++) {
        const uint16_t node = frame->places[i].stream->node;
        const struct log_frame *asked = &frame->batch->frames[node];
        const int status = frame->lists[i].status || !asked->must ? 0 : asked->disk;
        if (status && (!i || status == BANYAN_ENOSPC)) {
            frame_unsafe(log, session, frame, node, status);
        } else if (status) {
            log_degraded(log, frame->node);
            log_alone(log);
        }
    }
}

/* Notes which memory nodes have copies that their disks are to have: before the write is acknowledged, or
 * (P18) since the frame says that there are others of one copy. */
static void disks_want(struct log *log, struct log_batch *batch)
{
    for (uint16_t n = 0; n < log_nodes(log); n++) {
        batch->frames[n].disk = 0;
        batch->frames[n].asks = batch->frames[n].must = false;
    }
    for (uint16_t n = 0; n < log_nodes(log); n++) {
        const struct log_frame *frame = &batch->frames[n];
        const bool told = frame->frame.count && log_asks_told(log, frame);
        for (uint32_t i = 0; frame->frame.count && !frame->status && i < frame->copies; i++) {
            const uint16_t node = frame->places[i].stream->node;
            const bool must =
                !frame->lists[i].status && fabric_durability(log->fabric, node) == FABRIC_KEPT_ON_DISK_ALWAYS;
            batch->frames[node].must |= must;
            batch->frames[node].asks |= must || told;
        }
    }
}

/* P5. What stands on memory nodes that promise so is acknowledged when it is on their disks, in all its
 * copies. The lists are back, so what they wrote is there before these ask. */
static void batch_persist(struct log *log, struct tree_session *session, struct log_batch *batch)
{
    uint16_t nodes[POOL_PERSIST_MAX];
    int statuses[POOL_PERSIST_MAX];
    uint32_t count = 0;
    disks_want(log, batch);
    for (uint16_t n = 0; n < log_nodes(log); n++) {
        const bool last = n + 1u == log_nodes(log);
        if (batch->frames[n].asks)
            nodes[count++] = n;
        if (!count || (count < POOL_PERSIST_MAX && !last))
            continue;
        const uint64_t began = task_now();
        pool_persist_each(tree_session_pool(session), nodes, count, statuses);
        persist_count(log, began);
        for (uint32_t i = 0; i < count; i++)
            batch->frames[nodes[i]].disk = statuses[i];
        count = 0;
    }
    for (uint16_t n = 0; n < log_nodes(log); n++)
        if (batch->frames[n].frame.count)
            frame_safe(log, session, &batch->frames[n]);
    for (uint16_t n = 0; n < log_nodes(log); n++)
        if (batch->frames[n].frame.count)
            log_told(log, &batch->frames[n]);
}

static void batch_post(struct log *log, struct tree_session *session, struct log_batch *batch)
{
    struct pool_session *pool = tree_session_pool(session);
    const uint64_t incarnation = pool->incarnation;
    struct fabric_list *lists[2 * 64];
    uint32_t count = 0;
    batch_hold(log, batch);
    log->lane.patience.refused = false;
    pool->incarnation = batch->incarnation;
    for (uint16_t n = 0; n < log_nodes(log); n++) {
        struct log_frame *frame = &batch->frames[n];
        frame->copies = 0;
        if (!frame->frame.count)
            continue;
        frame->status = frame_prepare(log, session, frame);
        if (frame->status)
            frame->error = pool->error;
    }
    for (uint16_t n = 0; n < log_nodes(log); n++) { /* nothing is waited for from here on */
        struct log_frame *frame = &batch->frames[n];
        if (frame->copies)
            frame_draw(log, frame);
        for (uint32_t i = 0; i < frame->copies; i++)
            copy_seal(log, frame, i);
        for (uint32_t i = 0; i < frame->copies && (!i || !frame->ahead); i++)
            lists[count++] = &frame->lists[i];
        if (count + 2 > sizeof lists / sizeof *lists) { /* more memory nodes than fit into one wait */
            pool_lists_post(pool, lists, count);
            count = 0;
        }
    }
    if (count)
        pool_lists_post(pool, lists, count);
    copies_post(session, batch);
    for (uint16_t n = 0; n < log_nodes(log); n++)
        if (batch->frames[n].frame.count)
            frame_judge(log, session, &batch->frames[n]);
    batch_persist(log, session, batch);
    if (!log->lane.patience.refused)
        log->lane.patience.since = 0;
    pool->incarnation = incarnation;
}

static enum unmerged_fate fate_of(int status)
{
    return !status ? UNMERGED_COMMITTED : status == BANYAN_EUNKNOWN ? UNMERGED_UNKNOWN : UNMERGED_REFUSED;
}

/* Tells those who wait for the frame, and empties it. */
static void frame_end(struct log *log, struct tree_session *session, struct log_frame *frame)
{
    const int status = frame->status;
    const enum unmerged_fate fate = fate_of(status);
    struct tree_logged *logged = frame->first;
    if (!frame->frame.count)
        return;
    log_count(&log->stats.unknown, fate == UNMERGED_UNKNOWN);
    log_count(&log->stats.refused, fate == UNMERGED_REFUSED);
    for (struct tree_logged *at = logged; at; at = at->next)
        unmerged_settle(tree_session_pool(session)->epoch, &at->write, fate);
    frame->first = NULL;
    frame->last = &frame->first;
    frame->frame = (struct format_log_frame){0};
    /* Relaxed: the keys that were pending in it are so no more, and were told under their locks. */
    atomic_store_relaxed(&frame->drawn.first, UNMERGED_UNDRAWN);
    if (frame->again)
        atomic_add_relaxed(&log->beyond, -frame->again); /* a hint */
    frame->ahead = frame->ahead_bytes = frame->copies = frame->again = frame->brought = 0;
    frame->carry.carriers = (struct format_log_carriers){.bytes = NULL};
    frame->carry.commands = frame->carry.reads = 0;
    frame->carry.filled = frame->lacks = false;
    frame->status = 0;
    while (logged) {
        struct tree_logged *next = logged->next; /* it is its operation's again once that knows */
        logged->status = status;
        if (status)
            logged->error = frame->error;
        task_charge(TASK_WORK_HANDOVER, 1);
        wakeup_give(&logged->wakeup);
        logged = next;
    }
}

/* The batch is closed, and nothing else of the lane is under way: it is this task's. */
static void batch_close(struct log_lane *lane, struct log_batch *batch)
{
    struct wakeup wakeup;
    spinlock_lock(&lane->lock);
    while (lane->flying) {
        wakeup_init(&wakeup);
        assert(!lane->leader);
        lane->leader = &wakeup; // cppcheck-suppress autoVariables ; the teller takes it off before we go on
        spinlock_unlock(&lane->lock);
        wakeup_wait(&wakeup);
        spinlock_lock(&lane->lock);
    }
    lane->flying = batch;
    lane->open = &lane->batches[batch == lane->batches];
    struct log_wait *wait = lane->waits;
    lane->waits = NULL;
    spinlock_unlock(&lane->lock);
    while (wait) {
        struct log_wait *next = wait->next;
        wakeup_give(&wait->wakeup);
        wait = next;
    }
}

/* `led` was set by this task. */
static void batch_lead(struct log *log, struct tree_session *session, struct log_batch *batch)
{
    struct log_lane *lane = batch->lane;
    task_yield(); /* all that can run on this thread adds what it has */
    batch_close(lane, batch);
    batch_post(log, session, batch);
    for (uint16_t n = 0; n < log_nodes(log); n++)
        frame_end(log, session, &batch->frames[n]);
    log_count(&log->stats.commits, 1);
    spinlock_lock(&lane->lock);
    batch->entries = batch->carried = 0;
    batch->led = false;
    lane->flying = NULL;
    struct wakeup *leader = lane->leader;
    lane->leader = NULL;
    spinlock_unlock(&lane->lock);
    if (leader)
        wakeup_give(leader);
}

/* ---- what operations call ---- */

/* The open batch, which has entries and no leader, is this task's to lead; NULL: it is not. */
static struct log_batch *lead_take(struct log_lane *lane)
{
    struct log_batch *batch = lane->open;
    if (!batch->entries || batch->led)
        return NULL;
    batch->led = true;
    return batch;
}

static void commit_lead(void *context, struct tree_session *session)
{
    struct log *log = context;
    spinlock_lock(&log->lane.lock);
    struct log_batch *batch = lead_take(&log->lane);
    spinlock_unlock(&log->lane.lock);
    if (batch)
        batch_lead(log, session, batch);
}

static void commit_room(void *context, struct tree_session *session)
{
    struct log *log = context;
    struct log_lane *lane = &log->lane;
    struct log_wait wait;
    wakeup_init(&wait.wakeup);
    spinlock_lock(&lane->lock);
    struct log_batch *batch = lead_take(lane);
    const bool waits = !batch && lane->open->entries;
    if (waits) {
        wait.next = lane->waits;
        lane->waits = &wait;
    }
    spinlock_unlock(&lane->lock);
    if (batch)
        batch_lead(log, session, batch);
    else if (waits)
        wakeup_wait(&wait.wakeup);
    else
        task_sleep(100 * MICROSECOND); /* it was closed meanwhile, or memory is short */
}

static int commit_wait(void *context, struct tree_session *session, struct tree_logged *logged)
{
    struct log *log = context;
    struct log_frame *frame = (struct log_frame *)(uintptr_t)logged->frame;
    spinlock_lock(&log->lane.lock);
    /* Told already: the frame may be another batch's by now. Relaxed: the wait below orders. */
    const bool told = atomic_load_relaxed(&logged->wakeup.state) != WAKEUP_QUEUED;
    struct log_batch *batch = !told && frame->batch == log->lane.open ? lead_take(&log->lane) : NULL;
    spinlock_unlock(&log->lane.lock);
    if (batch)
        batch_lead(log, session, batch);
    wakeup_wait(&logged->wakeup);
    if (logged->status && logged->status != BANYAN_EFENCED)
        pool_fail(tree_session_pool(session), logged->status, "%s", logged->error.text);
    return logged->status;
}

static int commit_bring(void *context, struct tree_session *session, uint16_t node,
                        struct tree_logged_entry *entry)
{
    return log_bring(context, session, node, entry);
}

const struct tree_log log_tree = {
    .bring = commit_bring,
    .open = commit_open,
    .fits = commit_fits,
    .add = commit_add,
    .close = commit_close,
    .room = commit_room,
    .lead = commit_lead,
    .commit = commit_wait,
};
