/*
 * stream.c - This process's stream of segments on one memory node: reserving room for frames, the next
 * segment, segments' end (L6 of docs/internals/log.md). A new segment costs the memory node's answer, where
 * none is spare, and a WRITE of its header.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/task.h"
#include "fabric/peers.h"
#include "log/reader.h"
#include "log/state.h"

/* How long a writer sleeps between two looks for room. */
#define LOOK_FIRST_NS (10 * MICROSECOND)
#define LOOK_LAST_NS  (500 * MICROSECOND)

/* ---- the next segment; `switching` is this task's ---- */

/* Whether the control block is not this process's of before, but a new one at the same place: behind the
 * watermark, which a merger may have written since, nothing was. */
static int control_blank(struct tree_session *session, gaddr control, bool *blank)
{
    uint8_t bytes[FORMAT_LOG_BLOCK];
    int status = log_bytes_read(session, control, bytes, sizeof bytes);
    memset(bytes + FORMAT_LOG_WATERMARK_OFFSET, 0, sizeof(uint64_t));
    *blank = !status && log_block_empty(bytes);
    return status;
}

static void list_lose(struct log_segment *segment)
{
    for (; segment; segment = segment->next)
        segment->broken = segment->asked = true;
}

/* The process was fenced, no range named it any more, and its log was given back: the segments may be others'
 * memory. Nothing is written there any more; they leave the lists as if they were given back. */
static void segments_lose(struct log_stream *stream)
{
    spinlock_lock(&stream->lock);
    struct log_segment **end = &stream->broken;
    while (*end)
        end = &(*end)->next;
    *end = stream->spare;
    stream->spare = NULL;
    list_lose(stream->broken);
    list_lose(stream->used);
    if (stream->current)
        stream->current->broken = stream->current->asked = true;
    spinlock_unlock(&stream->lock);
}

static int stream_open(struct log_stream *stream, struct tree_session *session)
{
    struct pool_log log;
    const uint64_t incarnation = fabric_incarnation(stream->log->fabric);
    spinlock_lock(&stream->lock);
    const uint64_t opened = stream->opened;
    const gaddr known = stream->control;
    const struct format_log_control control = {.owner = fabric_self(stream->log->fabric),
                                               /* Relaxed: an older one is true as well. */
                                               .watermark = atomic_load_relaxed(&stream->log->certain)};
    spinlock_unlock(&stream->lock);
    if (opened == incarnation)
        return 0;
    int status = pool_log_open(tree_session_pool(session), stream->node, &log);
    if (status)
        return status;
    /* The watermark begins anew with each process, whose log it is. Of a block that was written before, the
     * merger alone writes the word: this one may be older than what it publishes just now. */
    bool fresh = log.control != known;
    if (!fresh)
        status = control_blank(session, log.control, &fresh);
    if (!status && fresh && known != GADDR_NULL)
        segments_lose(stream);
    if (!status && fresh) {
        uint8_t bytes[FORMAT_LOG_BLOCK];
        format_log_control_encode(&control, bytes);
        struct fabric_command write = pool_write_command(log.control, bytes, sizeof bytes);
        status = pool_execute(tree_session_pool(session), stream->node, &write, 1);
    }
    if (status)
        return status;
    spinlock_lock(&stream->lock);
    stream->opened = incarnation;
    stream->control = log.control;
    stream->owes = false;
    spinlock_unlock(&stream->lock);
    return 0;
}

int log_stream_open(struct log_stream *stream, struct tree_session *session, uint64_t *incarnation,
                    gaddr *control)
{
    for (;;) {
        spinlock_lock(&stream->lock);
        *incarnation = stream->opened;
        *control = stream->control;
        const bool known = stream->opened == fabric_incarnation(stream->log->fabric);
        const bool mine = !known && !stream->switching;
        stream->switching |= mine;
        spinlock_unlock(&stream->lock);
        if (known)
            return 0;
        if (mine)
            break;
        task_sleep(LOOK_FIRST_NS);
    }
    int status = stream_open(stream, session);
    spinlock_lock(&stream->lock);
    stream->switching = false;
    *incarnation = stream->opened;
    *control = stream->control;
    spinlock_unlock(&stream->lock);
    return status;
}

/* Of those that the memory node has handed out with answers that were lost, the first; *found: there is one.
 * Without it they would count as this process's, and nothing would write to them, until it ends. */
static int segment_astray(struct log_stream *stream, struct tree_session *session,
                          struct memory_log_segment *segment, bool *found)
{
    struct heap *heap = &stream->log->heap;
    struct memory_log_segments *page = heap_allocate(heap, sizeof *page);
    int status = page ? pool_log_list(tree_session_pool(session), stream->node,
                                      fabric_self(stream->log->fabric), stream->told, page)
                      : pool_fail_memory(tree_session_pool(session));
    *found = !status && page->count;
    if (*found)
        *segment = page->segments[0];
    else if (!status)
        stream->astray = false;
    heap_free(heap, page);
    return status;
}

/* From the memory node. Numbers grow, so `told` tells which ones this process has been told of. */
static int segment_ask(struct log_stream *stream, struct tree_session *session,
                       struct memory_log_segment *segment)
{
    bool found = false;
    int status = stream->astray ? segment_astray(stream, session, segment, &found) : 0;
    if (!status && !found) {
        status = pool_log_take(tree_session_pool(session), stream->node, stream->log->options.segment_bytes,
                               segment);
        stream->astray = status && status != BANYAN_ENOSPC && status != BANYAN_ECONFLICT;
    }
    if (!status)
        stream->told = segment->number;
    return status;
}

static int segment_take(struct log_stream *stream, struct tree_session *session, struct log_segment **segment)
{
    int status = stream_open(stream, session);
    if (status)
        return status;
    struct log_segment *fresh = heap_allocate_zeros(&stream->log->heap, 1, sizeof *fresh);
    if (!fresh)
        return pool_fail_memory(tree_session_pool(session));
    status = segment_ask(stream, session, &fresh->pool);
    if (status) {
        heap_free(&stream->log->heap, fresh);
        return status;
    }
    spinlock_lock(&stream->lock);
    stream->segments++;
    stream->segment_bytes += fresh->pool.bytes;
    spinlock_unlock(&stream->lock);
    *segment = fresh;
    return 0;
}

static uint64_t nonce_draw(struct log *log)
{
    uint64_t nonce;
    spinlock_lock(&log->lock);
    do
        nonce = random_next(&log->random);
    while (!nonce);
    spinlock_unlock(&log->lock);
    return nonce;
}

/* Gives the segment a new life: its header is in memory when it returns 0. */
static int segment_begin(struct log_stream *stream, struct tree_session *session, struct log_segment *segment)
{
    const uint64_t most = FORMAT_LOG_SEGMENT_MAX;
    uint8_t bytes[FORMAT_LOG_BLOCK];
    segment->number = stream->next_number++;
    segment->nonce = nonce_draw(stream->log);
    segment->size = (uint32_t)(segment->pool.bytes < most ? segment->pool.bytes : most) / FORMAT_LOG_BLOCK *
                    FORMAT_LOG_BLOCK;
    segment->tail = FORMAT_LOG_BLOCK;
    segment->last = 0;
    if (segment->size / 4 < atomic_load_relaxed(&stream->log->carry_most)) /* a hint */
        atomic_store_relaxed(&stream->log->carry_most, segment->size / 4);
    spinlock_lock(&stream->lock);
    const struct log_segment *before = stream->current;
    segment->trusts = before && !before->broken;
    const struct format_log_segment header = {.owner = fabric_self(stream->log->fabric),
                                              .number = segment->number,
                                              .nonce = segment->nonce,
                                              .size = segment->size,
                                              .before = segment->before = segment->trusts ? before->tail : 0};
    spinlock_unlock(&stream->lock);
    format_log_segment_encode(&header, bytes);
    struct fabric_command write = pool_write_command(segment->pool.address, bytes, sizeof bytes);
    return pool_execute(tree_session_pool(session), stream->node, &write, 1);
}

static void segment_retire(struct log_stream *stream, struct log_segment *segment)
{
    segment->next = NULL;
    *stream->used_last = segment;
    stream->used_last = &segment->next;
    stream->used_count++;
}

/* Its header may be in memory or not, and no frame gets its nonce. What a header says of the segment before
 * it is said of the number before its own, so none may come behind this one's. Where nothing of the WRITE can
 * arrive any more (G6) the same segment is begun again, with its number. Else a number is left out. */
static void segment_unbegun(struct log_stream *stream, struct log_segment *segment, int status)
{
    const bool lost = status == BANYAN_ENET || status == BANYAN_EFENCED;
    struct log_segment **list = lost ? &stream->spare : &stream->broken;
    stream->next_number = lost ? segment->number : segment->number + 2;
    segment->next = *list;
    *list = segment;
}

/* The current segment is full, or there is none. BANYAN_ENOSPC: there is no room now. 0: the caller looks
 * again. */
static int stream_switch(struct log_stream *stream, struct tree_session *session)
{
    spinlock_lock(&stream->lock);
    struct log_segment *segment = stream->spare;
    if (segment)
        stream->spare = segment->next;
    spinlock_unlock(&stream->lock);
    int status = segment ? 0 : segment_take(stream, session, &segment);
    if (status)
        return status;
    status = segment_begin(stream, session, segment);
    spinlock_lock(&stream->lock);
    if (status) {
        segment_unbegun(stream, segment, status);
    } else if (segment->trusts && stream->current->broken) {
        /* No frame gets that nonce, so it does not matter that the header is not true: of the one before it a
         * frame has failed meanwhile. What the next one says of the one before is nothing. */
        segment->next = stream->broken;
        stream->broken = segment;
    } else {
        if (stream->current)
            segment_retire(stream, stream->current);
        stream->current = segment;
        stream->hole = stream->hole_end = 0;
    }
    spinlock_unlock(&stream->lock);
    return status;
}

/* Frames without entries go where frames were lost. `switching` is this task's, so the hole stays as it is.
 */
static int stream_cover(struct log_stream *stream, struct tree_session *session)
{
    spinlock_lock(&stream->lock);
    const struct log_segment *segment = stream->current;
    const uint32_t begin = stream->hole, length = stream->hole_end - begin;
    spinlock_unlock(&stream->lock);
    uint8_t *bytes = heap_allocate(&stream->log->heap, length);
    if (!bytes)
        return pool_fail_memory(tree_session_pool(session));
    for (uint32_t at = 0; at < length; at += FORMAT_LOG_BLOCK) {
        struct format_log_frame frame;
        format_log_frame_begin(&frame, bytes + at, FORMAT_LOG_BLOCK);
        format_log_frame_seal(&frame, segment->nonce, begin + at, 0);
    }
    struct fabric_command write = pool_write_command(segment->pool.address + begin, bytes, length);
    int status = pool_execute(tree_session_pool(session), stream->node, &write, 1);
    heap_free(&stream->log->heap, bytes);
    spinlock_lock(&stream->lock);
    if (!status)
        stream->hole = stream->hole_end = 0;
    spinlock_unlock(&stream->lock);
    return status;
}

/* ---- reserving ---- */

enum room { ROOM, ROOM_OPEN, ROOM_COVER, ROOM_SWITCH, ROOM_WAIT, ROOM_NEVER };

/* Under the lock. */
static enum room room_find(struct log_stream *stream, uint64_t incarnation, uint32_t bytes, bool beyond)
{
    const struct log_segment *current = stream->current;
    if (stream->giving)
        return ROOM_WAIT;
    /* A connection was lost: the log may have been given back since. */
    if ((current || stream->spare) && stream->opened < incarnation)
        return stream->switching ? ROOM_WAIT : ROOM_OPEN;
    /* What is written behind it, or the next segment's header, calls it complete. */
    if (current && !current->broken && stream->hole_end)
        return stream->switching ? ROOM_WAIT : ROOM_COVER;
    if (current && !current->broken && current->size - current->tail >= bytes)
        return ROOM;
    if (current && !current->broken && current->tail == FORMAT_LOG_BLOCK)
        return ROOM_NEVER; /* all of a segment is too short for it */
    if (stream->switching)
        return ROOM_WAIT;
    /* With the one that is left and the one that comes. */
    const uint32_t unmerged = stream->used_count + (current != NULL) + 1;
    return beyond || unmerged <= stream->log->options.threshold ? ROOM_SWITCH : ROOM_WAIT;
}

static void place_take(struct log_stream *stream, uint32_t bytes, struct log_place *place)
{
    struct log_segment *current = stream->current;
    *place =
        (struct log_place){.stream = stream, .segment = current, .position = current->tail, .bytes = bytes};
    current->tail += bytes;
    current->flying++;
    *stream->flights_last = place;
    stream->flights_last = &place->next;
    /* What is under way in the segment before leaves open whether that is complete. Where a frame has failed
     * nothing is reserved any more. */
    place->committed = stream->flights->segment == current ? stream->flights->position : 0;
    /* A batch's frames, and some of a task that inherits: readers rely on that (reader.c). */
    assert(stream->flights->segment != current ||
           current->tail - stream->flights->position <= FORMAT_LOG_SPAN);
}

/* Under the lock. There is no room; from when on does the waiting count? Where another stream had no room
 * before, this one's could be merged since then as well. */
static uint64_t full_note(struct log_stream *stream, struct log_patience *patience, uint64_t began)
{
    if (!stream->full_since)
        stream->full_since = began;
    if (!patience->since)
        patience->since = began;
    const uint64_t shared = patience->since > stream->taken_at ? patience->since : stream->taken_at;
    return shared < stream->full_since ? shared : stream->full_since;
}

static int waited_long(struct log_stream *stream, struct tree_session *session, struct log_patience *patience,
                       int status)
{
    log_count(&stream->log->stats.full, 1);
    patience->refused = true;
    if (status)
        return status; /* with its message */
    return pool_node_failed(tree_session_pool(session), BANYAN_ENOSPC, stream->node,
                            "the log: segments that are not merged yet have all the room; reserving");
}

/* What makes room; `switching` is this task's. */
static int room_make(struct log_stream *stream, struct tree_session *session, enum room room)
{
    return room == ROOM_OPEN    ? stream_open(stream, session)
           : room == ROOM_COVER ? stream_cover(stream, session)
                                : stream_switch(stream, session);
}

int log_stream_reserve(struct log_stream *stream, struct tree_session *session, uint32_t bytes, bool beyond,
                       struct log_patience *patience, struct log_place *place)
{
    struct log *log = stream->log;
    struct log_patience own = {0};
    const uint64_t began = task_now();
    uint64_t pause = LOOK_FIRST_NS, now = began;
    int status = 0;
    patience = patience ? patience : &own;
    for (bool waited = false;; waited = true) {
        uint64_t since = began;
        spinlock_lock(&stream->lock);
        enum room room = room_find(stream, tree_session_pool(session)->incarnation, bytes,
                                   beyond || atomic_load_relaxed(&log->beyond)); /* a hint */
        if (room == ROOM) {
            place_take(stream, bytes, place);
            stream->full_since = 0;
            stream->taken_at = now;
        } else if (room == ROOM_WAIT && !stream->switching && !stream->giving) {
            since = full_note(stream, patience, began);
        }
        const bool mine = room == ROOM_OPEN || room == ROOM_COVER || room == ROOM_SWITCH;
        stream->switching |= mine;
        spinlock_unlock(&stream->lock);
        if (room == ROOM) {
            const uint64_t took = task_now() - began;
            if (waited) {
                log_count(&log->stats.waits, 1);
                log_count(&log->stats.wait_ns, took);
                log_longest(&log->stats.wait_longest_ns, took);
            }
            return 0;
        }
        if (room == ROOM_NEVER)
            return pool_node_failed(tree_session_pool(session), BANYAN_EINVAL, stream->node,
                                    "the log: a segment is too short for a frame; reserving");
        if (mine) {
            status = room_make(stream, session, room);
            spinlock_lock(&stream->lock);
            stream->switching = false;
            if (status == BANYAN_ENOSPC)
                since = full_note(stream, patience, began);
            spinlock_unlock(&stream->lock);
            if (!status)
                continue;
            if (status == BANYAN_ECONFLICT) /* fenced since the log was opened: the operation begins again */
                return BANYAN_EFENCED;
            if (status != BANYAN_ENOSPC)
                return status;
        }
        /* What it would write is refused; and the table of rights under which segments can be merged again is
         * installed when this operation has ended. */
        const uint64_t incarnation = tree_session_pool(session)->incarnation;
        if (incarnation && incarnation < fabric_incarnation(log->fabric))
            return BANYAN_EFENCED;
        now = task_now();
        if (now - since > log->options.wait_ns || atomic_load_relaxed(&log->stopped)) /* a hint */
            return waited_long(stream, session, patience, status);
        task_sleep(pause);
        pause = pause < LOOK_LAST_NS ? 2 * pause : LOOK_LAST_NS;
    }
}

void log_stream_seal(struct log_place *place, const struct log_place *other, struct format_log_frame *frame)
{
    struct log_stream *stream = place->stream;
    spinlock_lock(&stream->lock);
    if (frame->last > place->segment->last)
        place->segment->last = frame->last;
    spinlock_unlock(&stream->lock);
    frame->other = (struct format_log_other){0};
    if (other)
        frame->other = (struct format_log_other){.nonce = other->segment->nonce,
                                                 .number = other->segment->number,
                                                 .position = log_place_frame(other),
                                                 .before = other->segment->before};
    frame->carried = other ? other->carried : 0;
    frame->alone = log_tells_alone(stream->log);
    format_log_frame_seal(frame, place->segment->nonce, log_place_frame(place), place->committed);
}

/* Under the lock. The headers of those behind it may say that it is complete. */
static void segment_break(struct log_stream *stream, struct log_segment *segment)
{
    segment->broken = true;
    if (segment == stream->current)
        return;
    for (; segment; segment = segment->next)
        segment->broken = true;
    if (stream->current)
        stream->current->broken = true;
}

/* Under the lock. */
static void flight_end(struct log_stream *stream, struct log_place *place)
{
    struct log_place **at = &stream->flights;
    while (*at != place)
        at = &(*at)->next;
    *at = place->next;
    if (!place->next)
        stream->flights_last = at;
    assert(place->segment->flying);
    place->segment->flying--;
}

/* Under the lock. Room of the current segment that is to be covered. False: there is some elsewhere. */
static bool hole_add(struct log_stream *stream, uint32_t begin, uint32_t end)
{
    if (!stream->hole_end)
        stream->hole = begin;
    else if (end == stream->hole)
        stream->hole = begin;
    else if (begin != stream->hole_end)
        return false;
    if (end > stream->hole_end)
        stream->hole_end = end;
    return true;
}

/* Under the lock. Nothing of the frame arrives any more. The room is given back, where nothing lies behind
 * it, and no copy elsewhere says that it is the frame's (L8); else it is covered. But not where a header is
 * being written that says where this segment ends. */
static void place_return(struct log_stream *stream, const struct log_place *place)
{
    struct log_segment *segment = place->segment;
    const uint32_t end = place->position + place->bytes;
    const bool open = segment == stream->current && !stream->switching;
    if (open && segment->tail == end && !place->named)
        segment->tail = place->position;
    else if (!open || !hole_add(stream, place->position, end))
        segment_break(stream, segment);
}

void log_stream_ended(struct log_place *place, int status)
{
    struct log_stream *stream = place->stream;
    spinlock_lock(&stream->lock);
    flight_end(stream, place);
    if (status == BANYAN_ENET || status == BANYAN_EFENCED)
        place_return(stream, place);
    else if (status)
        segment_break(stream, place->segment);
    spinlock_unlock(&stream->lock);
}

bool log_stream_fits(struct log_stream *stream, uint32_t bytes)
{
    spinlock_lock(&stream->lock);
    const bool fits = !stream->current || bytes <= stream->current->size - FORMAT_LOG_BLOCK;
    spinlock_unlock(&stream->lock);
    return fits;
}

void log_stream_unreserve(struct log_place *place)
{
    log_stream_ended(place, BANYAN_EFENCED);
}

/* ---- how much there is to merge ---- */

static uint64_t segment_fresh(const struct log_stream *stream, const struct log_segment *segment)
{
    const struct log_mark *merged = &stream->merged;
    if (segment->number > merged->segment)
        return segment->tail;
    /* The tail may have gone back (log_stream_unreserve). */
    return segment->number == merged->segment && segment->tail > merged->tail ? segment->tail - merged->tail
                                                                              : 0;
}

uint64_t log_stream_fresh(const struct log_stream *stream)
{
    uint64_t fresh = stream->current ? segment_fresh(stream, stream->current) : 0;
    for (const struct log_segment *segment = stream->used; segment; segment = segment->next)
        fresh += segment_fresh(stream, segment);
    return fresh;
}

struct log_pressure log_stream_pressure(struct log_stream *stream)
{
    uint64_t full = 0, fresh = 0, size = 0, merged = 0;
    spinlock_lock(&stream->lock);
    if (stream->current) {
        size = (uint64_t)stream->current->size * stream->log->options.threshold;
        full = stream->current->tail;
        fresh = log_stream_fresh(stream);
        merged = stream->cycled * atomic_load_relaxed(&stream->log->progress) >> 16; /* a hint */
    }
    for (const struct log_segment *segment = stream->used; segment; segment = segment->next)
        full += segment->size;
    spinlock_unlock(&stream->lock);
    if (!size)
        return (struct log_pressure){0};
    return (struct log_pressure){.full = (uint32_t)(full * 256 / size),
                                 .fresh = (uint32_t)(fresh * 256 / size),
                                 .left = (uint32_t)(fresh > merged ? (fresh - merged) * 256 / size : 0)};
}

/* ---- segments' end ---- */

bool log_stream_ends(struct log_stream *stream, uint64_t watermark)
{
    spinlock_lock(&stream->lock);
    const bool ends = (stream->used && stream->used->last <= watermark && !stream->used->flying);
    spinlock_unlock(&stream->lock);
    return ends;
}

void log_stream_free_up_to(struct log_stream *stream, uint64_t watermark)
{
    spinlock_lock(&stream->lock);
    while (stream->used && stream->used->last <= watermark && !stream->used->flying) {
        struct log_segment *segment = stream->used;
        stream->used = segment->next;
        if (!stream->used)
            stream->used_last = &stream->used;
        stream->used_count--;
        struct log_segment **to = segment->broken ? &stream->broken : &stream->spare;
        segment->next = *to;
        *to = segment;
    }
    spinlock_unlock(&stream->lock);
}

/* A memory node that was removed has nothing that could be given back to it. */
static bool is_there(const struct log_stream *stream)
{
    return fabric_membership(stream->log->fabric, stream->node) != FABRIC_NO_MEMBER;
}

static int segment_return(struct log_stream *stream, struct tree_session *session,
                          struct log_segment *segment)
{
    uint64_t incarnation;
    gaddr control;
    int status = log_stream_open(stream, session, &incarnation, &control);
    if (!status)
        status = pool_log_give(tree_session_pool(session), stream->node, &segment->pool);
    if (status == BANYAN_EINVAL && segment->asked)
        status = 0; /* it was served before, and the answer was lost */
    segment->asked = true;
    return status;
}

static int segment_give(struct log_stream *stream, struct tree_session *session, struct log_segment *segment)
{
    int status = is_there(stream) ? segment_return(stream, session, segment) : 0;
    if (status)
        return status;
    spinlock_lock(&stream->lock);
    stream->segments--;
    stream->segment_bytes -= segment->pool.bytes;
    spinlock_unlock(&stream->lock);
    heap_free(&stream->log->heap, segment);
    return 0;
}

static int list_give(struct log_stream *stream, struct tree_session *session, struct log_segment **list)
{
    for (;;) {
        spinlock_lock(&stream->lock);
        struct log_segment *segment = *list;
        if (segment)
            *list = segment->next;
        spinlock_unlock(&stream->lock);
        if (!segment)
            return 0;
        int status = segment_give(stream, session, segment);
        if (!status)
            continue;
        spinlock_lock(&stream->lock);
        segment->next = stream->broken; /* it may be another's by now */
        stream->broken = segment;
        spinlock_unlock(&stream->lock);
        return status;
    }
}

int log_stream_give_broken(struct log_stream *stream, struct tree_session *session)
{
    return list_give(stream, session, &stream->broken);
}

/* All segments, of which none is in use, and the control block. */
static int stream_give(struct log_stream *stream, struct tree_session *session)
{
    int status = list_give(stream, session, &stream->spare);
    if (!status)
        status = list_give(stream, session, &stream->broken);
    if (status || (!stream->opened && !stream->owes))
        return status;
    /* The control block, and segments of which a lost answer has told. Where it fails they may be there or
     * not: nothing is written to them any more, and they are given back again. */
    status = pool_log_release(tree_session_pool(session), stream->node, fabric_self(stream->log->fabric));
    spinlock_lock(&stream->lock);
    stream->opened = 0;
    stream->control = GADDR_NULL;
    stream->owes = status;
    spinlock_unlock(&stream->lock);
    return status;
}

/* Under the lock. */
static bool all_merged(const struct log_stream *stream, uint64_t watermark)
{
    bool merged = !stream->current || stream->current->last <= watermark;
    for (const struct log_segment *segment = stream->used; segment; segment = segment->next)
        merged &= segment->last <= watermark;
    return merged;
}

void log_stream_retire(struct log_stream *stream, uint64_t watermark)
{
    spinlock_lock(&stream->lock);
    if (stream->current && !stream->switching && !stream->flights && all_merged(stream, watermark)) {
        segment_retire(stream, stream->current);
        stream->current = NULL;
        stream->hole = stream->hole_end = 0;
    }
    spinlock_unlock(&stream->lock);
}

int log_stream_leave(struct log_stream *stream, struct tree_session *session)
{
    spinlock_lock(&stream->lock);
    const bool empty = !stream->current && !stream->used && !stream->flights && !stream->switching;
    stream->giving = empty;
    spinlock_unlock(&stream->lock);
    if (!empty)
        return 0;
    int status = stream_give(stream, session);
    spinlock_lock(&stream->lock);
    stream->giving = false;
    spinlock_unlock(&stream->lock);
    return status;
}

bool log_stream_lingers(struct log_stream *stream)
{
    spinlock_lock(&stream->lock);
    const bool lingers = stream->opened || stream->owes || stream->current || stream->used;
    spinlock_unlock(&stream->lock);
    return lingers;
}

int log_stream_close(struct log_stream *stream, struct tree_session *session)
{
    spinlock_lock(&stream->lock);
    if (stream->current && !stream->flights) {
        segment_retire(stream, stream->current);
        stream->current = NULL;
    }
    spinlock_unlock(&stream->lock);
    log_stream_free_up_to(stream, atomic_load_relaxed(&stream->log->published)); /* no cycle is under way */
    if (stream->used || stream->current)
        return pool_fail(tree_session_pool(session), BANYAN_EBUSY,
                         "the log on memory node %u is not merged yet", stream->node);
    return stream_give(stream, session);
}
