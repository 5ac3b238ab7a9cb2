/*
 * inherit.c - What an earlier owner has logged of a range and not merged (L7 of docs/internals/log.md): its
 * log is read (reading.c), entries above its watermark are sorted out, and logged again. Costs the READs of
 * what is used of its segments, once for all ranges of a transfer, and as many WRITEs as what is logged again
 * has frames, some in a wait.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/task.h"
#include "log/state.h"
#include "tree/rights.h"

/* Frames that leave in one wait. */
#define FRAMES 8u

struct inherit {
    struct log *log;
    struct tree_session *session;
    struct tree *tree;
    struct format_key lower;
    const struct format_key *upper;
    const struct log_heir *heirs;
    uint32_t heir_count;
    struct log_reading *reading; /* owned */
};

static int no_memory(struct inherit *inherit)
{
    return pool_fail_memory(tree_session_pool(inherit->session));
}

/* ---- sorting out ---- */

static struct format_key key_of(const struct inherit *inherit, const struct log_found *entry)
{
    return log_found_key(inherit->reading, entry);
}

/* Whether its process is an heir under the epoch; else it is of another time. */
static bool entry_counts(const struct inherit *inherit, const struct log_found *entry)
{
    for (uint32_t i = 0; i < inherit->heir_count; i++)
        if (log_reading_find(inherit->reading, inherit->heirs[i].process) == entry->process &&
            inherit->heirs[i].epoch == entry->epoch)
            return true;
    return false;
}

static bool entry_below(const struct inherit *inherit, const struct log_found *entry)
{
    const uint16_t index = tree_number(inherit->tree);
    return entry->index < index ||
           (entry->index == index && format_key_compare(key_of(inherit, entry), inherit->lower) < 0);
}

static bool entry_above(const struct inherit *inherit, const struct log_found *entry)
{
    return entry->index > tree_number(inherit->tree) ||
           (inherit->upper && format_key_compare(key_of(inherit, entry), *inherit->upper) >= 0);
}

/* The range's first entry in the reading. */
static uint32_t range_begin(const struct inherit *inherit)
{
    uint32_t low = 0, high = inherit->reading->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (entry_below(inherit, &inherit->reading->entries[middle]))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The latest entry of each key; *count of them. NULL: no memory. */
static const struct log_found **latest(struct inherit *inherit, uint32_t *count)
{
    const struct log_reading *reading = inherit->reading;
    const uint32_t begin = range_begin(inherit);
    uint32_t end = begin;
    while (end < reading->count && !entry_above(inherit, &reading->entries[end]))
        end++;
    const struct log_found **all = heap_allocate(&inherit->log->heap, (end - begin + 1) * sizeof *all);
    *count = 0;
    for (uint32_t i = begin; i < end && all; i++) {
        const struct log_found *entry = &reading->entries[i];
        if (entry_counts(inherit, entry) &&
            (!*count || format_key_compare(key_of(inherit, entry), key_of(inherit, all[*count - 1]))))
            all[(*count)++] = entry;
    }
    return all;
}

/* ---- logging again ---- */

struct again {
    struct format_log_frame frames[FRAMES];
    struct fabric_command writes[2 * FRAMES];
    struct fabric_list lists[2 * FRAMES];
    struct log_place places[FRAMES][2]; /* of a frame and its copy */
    uint32_t copies[FRAMES];            /* of them, those that are reserved */
    uint8_t bytes[FRAMES][FORMAT_LOG_FRAME_MAX / 2], second[FRAMES][FORMAT_LOG_FRAME_MAX / 2];
};

/* Its memory node is away. */
static bool is_away(int status)
{
    return status == BANYAN_ENET || status == BANYAN_ETIMEOUT;
}

/* Room for a copy of the frame, on the first memory node from `node` on that is there, up to `last`. */
static int copy_reserve(struct inherit *inherit, struct again *again, uint32_t frame, uint32_t node,
                        uint32_t last)
{
    struct log *log = inherit->log;
    const uint32_t length = format_log_frame_bytes(&again->frames[frame]);
    int status = BANYAN_ENET;
    for (; node <= last && is_away(status); node++)
        status = log_stream_reserve(&log->streams[node % log->memory_nodes], inherit->session, length, true,
                                    NULL, &again->places[frame][again->copies[frame]]);
    again->copies[frame] += !status;
    return status;
}

/* Room for the frame, and for its copy: where another memory node is there (L8). */
static int again_reserve(struct inherit *inherit, struct again *again, uint32_t frame, uint32_t node)
{
    struct log *log = inherit->log;
    int status = copy_reserve(inherit, again, frame, node, node);
    if (status || log->options.copies < 2 || log->memory_nodes < 2)
        return status;
    status = copy_reserve(inherit, again, frame, node + 1, node + log->memory_nodes - 1);
    if (!is_away(status))
        return status;
    log_degraded(log, (uint16_t)node);
    return 0;
}

/* L2: the entries get their sequences when there is room, and nothing is waited for any more. Until then they
 * have their place in the frame. */
static void again_draw(struct log *log, struct format_log_frame *frame)
{
    frame->first = log_draw(log, frame->count);
    frame->last = frame->first + frame->count - 1;
}

static void again_seal(struct again *again, uint32_t frame, uint32_t copy, struct fabric_list *list,
                       struct fabric_command *write)
{
    struct log_place *place = &again->places[frame][copy];
    struct format_log_frame sealed = again->frames[frame];
    if (copy) {
        memcpy(again->second[frame], sealed.bytes, sealed.used);
        sealed.bytes = again->second[frame];
    }
    log_stream_seal(place, again->copies[frame] > 1 ? &again->places[frame][!copy] : NULL, &sealed);
    *write = pool_write_command(place->segment->pool.address + place->position, sealed.bytes, place->bytes);
    *list = (struct fabric_list){.node = place->stream->node, .count = 1, .commands = write};
}

/* The lists are back, or were not posted. The last one first, so that all room can be given back. */
static void again_ended(struct again *again, struct fabric_list *const *lists, uint32_t frames, uint32_t used,
                        bool posted)
{
    for (uint32_t frame = frames; frame-- > 0;) {
        const uint32_t copies = again->copies[frame];
        used -= copies;
        for (uint32_t copy = copies; copy-- > 0;) {
            struct log_place *place = &again->places[frame][copy];
            place->named = posted && copies > 1 && lists[used + !copy]->status != BANYAN_EFENCED;
            log_stream_ended(place, posted ? lists[used + copy]->status : BANYAN_EFENCED);
        }
    }
}

/* Writes the frames that are filled: to this memory node, and the copies to others. */
static int again_try(struct inherit *inherit, struct again *again, uint32_t frames, uint32_t node)
{
    struct fabric_list *lists[2 * FRAMES];
    uint32_t used = 0;
    int status = 0;
    memset(again->copies, 0, sizeof again->copies);
    for (uint32_t i = 0; i < frames && !status; i++)
        status = again_reserve(inherit, again, i, node);
    for (uint32_t i = 0; i < frames; i++) {
        if (!status)
            again_draw(inherit->log, &again->frames[i]);
        for (uint32_t copy = 0; copy < again->copies[i]; copy++, used++) {
            lists[used] = &again->lists[used];
            if (!status)
                again_seal(again, i, copy, lists[used], &again->writes[used]);
        }
    }
    const bool posted = !status;
    if (posted)
        status = pool_lists_execute(tree_session_pool(inherit->session), lists, used);
    again_ended(again, lists, frames, used, posted);
    return status;
}

/* To another memory node where one is away: whoever reads this log reads it from all of them. Each try begins
 * behind the loss that ended the one before; what that one wrote has smaller sequences, and says the same. At
 * last to the same one again, which may have lost no more than the memory node of its copies. */
static int again_send(struct inherit *inherit, struct again *again, uint32_t frames, uint16_t node)
{
    const uint32_t all = inherit->log->memory_nodes;
    int status = again_try(inherit, again, frames, node);
    for (uint32_t other = 1; other <= all && (is_away(status) || status == BANYAN_EFENCED); other++) {
        pool_session_begin(tree_session_pool(inherit->session));
        status = again_try(inherit, again, frames, (node + other) % all);
    }
    return status;
}

/* The entries of one memory node's frames, from *next on, as many as leave in one wait. */
static int again_some(struct inherit *inherit, struct again *again, const struct log_found *const *sorted,
                      uint64_t *sequences, uint32_t count, uint64_t epoch, uint16_t node, uint32_t *next)
{
    const uint32_t from = *next;
    struct format_log_frame *frame = again->frames;
    format_log_frame_begin(frame, again->bytes[0], sizeof again->bytes[0]);
    for (; *next < count; ++*next) {
        const struct log_found *entry = sorted[*next];
        if (entry->node != node)
            continue;
        struct format_log_entry fresh = {.kind = entry->deleted ? FORMAT_LOG_DELETE : FORMAT_LOG_PUT,
                                         .index = tree_number(inherit->tree),
                                         .epoch = epoch,
                                         .sequence = frame->count + 1,
                                         .key = key_of(inherit, entry),
                                         .value = log_found_value(inherit->reading, entry).bytes,
                                         .value_length = entry->value_length};
        if (format_log_frame_add(frame, &fresh))
            continue;
        if (frame + 1 == again->frames + FRAMES)
            break;
        frame++;
        format_log_frame_begin(frame, again->bytes[frame - again->frames], sizeof again->bytes[0]);
        fresh.sequence = 1;
        bool added = format_log_frame_add(frame, &fresh);
        assert(added);
        (void)added;
    }
    const uint32_t frames = (uint32_t)(frame - again->frames) + 1;
    int status = again->frames[0].count ? again_send(inherit, again, frames, node) : 0;
    frame = again->frames;
    for (uint32_t i = from, at = 0; i < *next && !status; i++) { /* the same walk */
        if (sorted[i]->node != node)
            continue;
        if (at == frame->count) {
            frame++;
            at = 0;
        }
        sequences[i] = frame->first + at++;
    }
    return status;
}

static int log_again(struct inherit *inherit, const struct log_found *const *sorted, uint64_t *sequences,
                     uint32_t count, uint64_t epoch)
{
    struct again *again = heap_allocate_zeros(&inherit->log->heap, 1, sizeof *again);
    int status = again ? 0 : no_memory(inherit);
    for (uint16_t node = 0; node < inherit->log->memory_nodes && !status; node++)
        for (uint32_t next = 0; next < count && !status;)
            status = again_some(inherit, again, sorted, sequences, count, epoch, node, &next);
    heap_free(&inherit->log->heap, again);
    return status;
}

static int table_fill(struct inherit *inherit, const struct log_found *const *sorted,
                      const uint64_t *sequences, uint32_t count)
{
    struct unmerged *table = tree_log_table_make(inherit->tree);
    bool filled = table;
    for (uint32_t i = 0; i < count && filled; i++) {
        const struct log_found *entry = sorted[i];
        const struct format_key value = log_found_value(inherit->reading, entry);
        filled = unmerged_adopt(table, key_of(inherit, entry), entry->deleted ? NULL : &value, sequences[i]);
    }
    return filled ? 0 : no_memory(inherit);
}

/* ---- all of it ---- */

/* What was taken over is in the table, and nothing has passed it. Until the heirs are off the map this
 * process's later changes of the range must be found beside theirs. */
static int take_in(struct inherit *inherit, const struct log_found *const *sorted, const uint64_t *sequences,
                   uint32_t count, uint64_t epoch)
{
    struct log *log = inherit->log;
    int status = count ? table_fill(inherit, sorted, sequences, count) : 0;
    if (!status && !log_keep_inherited(log, inherit->tree, inherit->lower, inherit->upper, epoch))
        status = no_memory(inherit);
    if (!status)
        log_count(&log->stats.inherited, count);
    return status;
}

/* A cycle that did not find in the table what is logged again here must not publish that it is merged. */
static int again(struct inherit *inherit, const struct log_found *const *sorted, uint64_t *sequences,
                 uint32_t count, uint64_t epoch)
{
    struct log_kept *hold = log_hold(inherit->log);
    if (!hold)
        return no_memory(inherit);
    int status = log_again(inherit, sorted, sequences, count, epoch);
    log_turn_wait(inherit->log);
    if (!status)
        status = take_in(inherit, sorted, sequences, count, epoch);
    log_unhold(inherit->log, hold);
    log_turn_give(inherit->log);
    return status;
}

static int inherit_run(struct inherit *inherit, uint64_t epoch)
{
    uint32_t count;
    int status = log_reading_complete(inherit->log, inherit->session, inherit->reading,
                                      tree_name(inherit->tree), inherit->heirs, inherit->heir_count);
    if (status)
        return status;
    const struct log_found **sorted = latest(inherit, &count);
    if (sorted && !count)
        status = take_in(inherit, NULL, NULL, 0, epoch);
    uint64_t *sequences =
        sorted && count ? heap_allocate_zeros(&inherit->log->heap, count, sizeof *sequences) : NULL;
    if (sequences)
        status = again(inherit, sorted, sequences, count, epoch);
    else if (!sorted || count)
        status = no_memory(inherit);
    heap_free(&inherit->log->heap, sorted);
    heap_free(&inherit->log->heap, sequences);
    return status;
}

int log_inherit(struct log *log, struct tree_session *session, struct tree *tree,
                const struct log_heir *heirs, uint32_t count, struct format_key lower,
                const struct format_key *upper, uint64_t epoch)
{
    const uint64_t began = task_now();
    struct inherit inherit = {.log = log,
                              .session = session,
                              .tree = tree,
                              .lower = lower,
                              .upper = upper,
                              .heirs = heirs,
                              .heir_count = count,
                              .reading = log_reading_take(log, epoch, count)};
    assert(count <= LOG_READING_PROCESSES);
    (void)atomic_add_relaxed(&log->inheriting, 1); /* a hint for mergers */
    pool_session_begin(tree_session_pool(session));
    int status = inherit.reading ? inherit_run(&inherit, epoch) : no_memory(&inherit);
    (void)atomic_add_relaxed(&log->inheriting, (uint32_t)-1); /* as above */
    if (inherit.reading) /* also behind an error: what it has is all of some logs */
        log_reading_keep(log, inherit.reading);
    const uint64_t took = task_now() - began;
    log_count(&log->stats.inherit_ns, took);
    log_longest(&log->stats.inherit_longest_ns, took);
    return status;
}

int log_release_dead(struct log *log, struct tree_session *session, struct fabric_process gone)
{
    int first = 0;
    log_reading_drop(log);
    pool_session_begin(tree_session_pool(session));
    for (uint16_t n = 0; n < log->memory_nodes; n++) {
        int status = pool_log_release(tree_session_pool(session), n, gone);
        first = first ? first : status;
    }
    return first;
}
