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
    bool lacks;                  /* something is not carried: each frame from then on is marked (P18) */
};

static void uncarried(struct inherit *inherit, uint32_t entries)
{
    log_uncarried(inherit->log, entries);
    inherit->lacks = true;
}

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

/* What all second copies that leave in one wait carry, or one record: frames under way have little room in
 * all (FORMAT_LOG_SPAN), and a batch's are beside them. */
#define CARRIED_MOST (192u << 10)

struct again {
    struct format_log_frame frames[FRAMES];
    struct log_records records[FRAMES]; /* that their second copies carry; their node */
    uint32_t carried;                   /* bytes of all */
    uint32_t brought;                   /* entries with values in pieces, which were brought to this node */
    uint16_t home, brought_node;
    struct fabric_command writes[2 * FRAMES][2];
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

/* What goes before the frame's copy on this memory node. */
static uint32_t carried_bytes(const struct inherit *inherit, const struct again *again, uint32_t frame,
                              uint16_t node)
{
    const uint32_t carried = again->records[frame].carriers.used, copies = again->copies[frame];
    return copies && fabric_durability(inherit->log->fabric, node) >= FABRIC_KEPT_ON_DISK ? carried : 0;
}

static int place_reserve(struct inherit *inherit, struct again *again, uint32_t frame, uint16_t node)
{
    struct log_stream *stream = &inherit->log->streams[node];
    struct log_place *place = &again->places[frame][again->copies[frame]];
    const uint32_t length = format_log_frame_bytes(&again->frames[frame]);
    uint32_t carried = carried_bytes(inherit, again, frame, node);
    if (carried && !log_stream_fits(stream, carried + length))
        carried = 0;
    int status = log_stream_reserve(stream, inherit->session, carried + length, true, NULL, place);
    if (status == BANYAN_EINVAL && carried) {
        carried = 0;
        status = log_stream_reserve(stream, inherit->session, length, true, NULL, place);
    }
    if (status)
        return status;
    place->carried = carried;
    if (carried_bytes(inherit, again, frame, node) != carried)
        uncarried(inherit, again->frames[frame].count);
    again->copies[frame]++;
    return 0;
}

/* Room for a copy of the frame, on the first memory node from `node` on that is there, up to `last`. */
static int copy_reserve(struct inherit *inherit, struct again *again, uint32_t frame, uint32_t node,
                        uint32_t last)
{
    const struct log *log = inherit->log;
    const uint32_t count = log_nodes(log);
    int status = BANYAN_ENET;
    for (; node <= last && is_away(status); node++)
        if (log_takes(log, node % count))
            status = place_reserve(inherit, again, frame, (uint16_t)(node % count));
    return status;
}

/* Room for the frame, and for its copy: where another memory node is there (L8). */
static int again_reserve(struct inherit *inherit, struct again *again, uint32_t frame, uint32_t node)
{
    struct log *log = inherit->log;
    int status = copy_reserve(inherit, again, frame, node, node);
    if (status || log->options.copies < 2 || log_nodes(log) < 2)
        return status;
    status = copy_reserve(inherit, again, frame, node + 1, node + log_nodes(log) - 1);
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
                       struct fabric_command *writes)
{
    struct log_place *place = &again->places[frame][copy];
    const struct format_log_carriers *carriers = &again->records[frame].carriers;
    const gaddr address = place->segment->pool.address;
    uint16_t count = 0;
    struct format_log_frame sealed = again->frames[frame];
    if (copy) {
        memcpy(again->second[frame], sealed.bytes, sealed.used);
        sealed.bytes = again->second[frame];
    }
    log_stream_seal(place, again->copies[frame] > 1 ? &again->places[frame][!copy] : NULL, &sealed);
    if (place->carried) {
        format_log_carriers_seal(carriers, place->segment->nonce, place->position, place->committed,
                                 sealed.first);
        writes[count++] = pool_write_command(address + place->position, carriers->bytes, place->carried);
    }
    writes[count++] =
        pool_write_command(address + log_place_frame(place), sealed.bytes, place->bytes - place->carried);
    *list = (struct fabric_list){.node = place->stream->node, .count = count, .commands = writes};
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

/* P16. What the disks that get the frames do not have of the values: a second one that pieces were not
 * brought to; and records, where the memory node is away that has them. */
static void again_doubt(struct inherit *inherit, const struct again *again, uint32_t frames, uint32_t node)
{
    const bool away = node != again->home && (again->carried || again->brought);
    uint32_t elsewhere = 0, entries = 0;
    for (uint32_t i = 0; i < frames; i++) {
        entries += again->frames[i].count;
        if (again->copies[i] > 1 && again->places[i][1].stream->node != again->brought_node)
            elsewhere = again->brought;
    }
    if (away || elsewhere)
        uncarried(inherit, away ? entries : elsewhere);
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
    if (!status)
        again_doubt(inherit, again, frames, node);
    for (uint32_t i = 0; i < frames; i++) {
        if (!status)
            again_draw(inherit->log, &again->frames[i]);
        if (!status && (again->copies[i] < 2 || inherit->lacks))
            log_alone(inherit->log);
        for (uint32_t copy = 0; copy < again->copies[i]; copy++, used++) {
            lists[used] = &again->lists[used];
            if (!status)
                again_seal(again, i, copy, lists[used], again->writes[used]);
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
    const uint32_t all = log_nodes(inherit->log);
    int status = again_try(inherit, again, frames, node);
    for (uint32_t other = 1; other <= all && (is_away(status) || status == BANYAN_EFENCED); other++) {
        pool_session_begin(tree_session_pool(inherit->session));
        status = again_try(inherit, again, frames, (node + other) % all);
    }
    return status;
}

/* P3: an entry comes to the disk to which its record does, in whichever stream it lay. */
static uint16_t home_of(const struct inherit *inherit, const struct log_found *found)
{
    const struct format_key value = log_found_value(inherit->reading, found);
    struct tree_logged_entry entry = {.key = key_of(inherit, found), .value = value};
    if (!found->deleted)
        tree_logged_record(inherit->tree, &entry);
    return entry.record_bytes && pool_on_disk(tree_session_pool(inherit->session), gaddr_node(entry.record))
               ? gaddr_node(entry.record)
               : found->node;
}

/* Pieces of the value are brought to the disks. */
static int entry_bring(struct inherit *inherit, struct again *again, struct tree_logged_entry *entry)
{
    int status = log_bring(inherit->log, inherit->session, again->home, entry);
    if (status)
        return status;
    if (entry->brought == POOL_ANY_NODE || (again->brought && again->brought_node != entry->brought)) {
        uncarried(inherit, 1);
        return 0;
    }
    again->brought_node = entry->brought;
    again->brought++;
    return 0;
}

/* What the entry, which is in this frame, names. */
static int entry_carry(struct inherit *inherit, struct again *again, uint32_t frame,
                       struct tree_logged_entry *entry)
{
    if (!entry->record_bytes)
        return 0;
    again->carried += entry->record_bytes;
    if (!log_records_add(&again->records[frame], entry->record, entry->record_bytes))
        return no_memory(inherit);
    return entry->in_pieces ? entry_bring(inherit, again, entry) : 0;
}

/* Into the last frame, or the next one; *frame: which. False: none has room. */
static bool entry_add(struct again *again, struct format_log_entry *entry, uint32_t *frame)
{
    entry->sequence = again->frames[*frame].count + 1; /* until they are drawn */
    if (format_log_frame_add(&again->frames[*frame], entry))
        return true;
    if (*frame + 1 == FRAMES)
        return false;
    ++*frame;
    format_log_frame_begin(&again->frames[*frame], again->bytes[*frame], sizeof again->bytes[0]);
    entry->sequence = 1;
    bool added = format_log_frame_add(&again->frames[*frame], entry);
    assert(added);
    (void)added;
    return true;
}

/* Fills frames with entries of one memory node, from *next on, as many as leave in one wait. */
static int again_fill(struct inherit *inherit, struct again *again, const struct log_found *const *sorted,
                      uint32_t count, uint64_t epoch, uint32_t *next, uint32_t *frames)
{
    const bool carries = log_carries(inherit->log);
    uint32_t frame = 0;
    int status = 0;
    format_log_frame_begin(again->frames, again->bytes[0], sizeof again->bytes[0]);
    for (; *next < count && !status; ++*next) {
        const struct log_found *found = sorted[*next];
        if (home_of(inherit, found) != again->home)
            continue;
        struct tree_logged_entry entry = {
            .key = key_of(inherit, found), .value = log_found_value(inherit->reading, found), .again = true};
        struct format_log_entry fresh = {.kind = found->deleted ? FORMAT_LOG_DELETE : FORMAT_LOG_PUT,
                                         .index = tree_number(inherit->tree),
                                         .epoch = epoch,
                                         .key = entry.key,
                                         .value = entry.value.bytes,
                                         .value_length = found->value_length};
        if (carries && !found->deleted)
            tree_logged_record(inherit->tree, &entry);
        if (again->carried && again->carried + entry.record_bytes > CARRIED_MOST)
            break;
        if (!entry_add(again, &fresh, &frame))
            break;
        status = entry_carry(inherit, again, frame, &entry);
    }
    *frames = frame + 1;
    return status;
}

/* Records that cannot be read, since their memory node is away, are not carried. */
static int records_read(struct inherit *inherit, struct again *again, uint32_t frames)
{
    int status = 0;
    for (uint32_t i = 0; i < frames && !status; i++) {
        status = log_records_read(&again->records[i], inherit->session);
        if (!is_away(status) && status != BANYAN_EFENCED)
            continue;
        pool_session_begin(tree_session_pool(inherit->session));
        uncarried(inherit, again->frames[i].count);
        status = 0;
    }
    return status;
}

/* The entries of one memory node, from *next on, as many as leave in one wait. */
static int again_some(struct inherit *inherit, struct again *again, const struct log_found *const *sorted,
                      uint64_t *sequences, uint32_t count, uint64_t epoch, uint16_t node, uint32_t *next)
{
    const uint32_t from = *next;
    uint32_t frames, frame = 0;
    again->home = node;
    again->carried = again->brought = 0;
    int status = again_fill(inherit, again, sorted, count, epoch, next, &frames);
    if (!status)
        status = records_read(inherit, again, frames);
    if (!status && again->frames[0].count)
        status = again_send(inherit, again, frames, node);
    for (uint32_t i = from, at = 0; i < *next && !status; i++) { /* the same walk */
        if (home_of(inherit, sorted[i]) != node)
            continue;
        if (at == again->frames[frame].count) {
            frame++;
            at = 0;
        }
        sequences[i] = again->frames[frame].first + at++;
    }
    for (uint32_t i = 0; i < frames; i++)
        log_records_clear(&again->records[i]);
    return status;
}

static int log_again(struct inherit *inherit, const struct log_found *const *sorted, uint64_t *sequences,
                     uint32_t count, uint64_t epoch)
{
    struct again *again = heap_allocate_zeros(&inherit->log->heap, 1, sizeof *again);
    int status = again ? 0 : no_memory(inherit);
    for (uint32_t i = 0; again && i < FRAMES; i++)
        again->records[i].heap = &inherit->log->heap;
    for (uint16_t node = 0; node < log_nodes(inherit->log) && !status; node++)
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

/* A process may have logged on a memory node that has joined, and of which this one has not heard yet: the
 * home node's list has it, since the other one had it from there. */
static int nodes_know(const struct log *log, struct tree_session *session)
{
    return fabric_refresh(log->fabric) ? 0
                                       : pool_fail(tree_session_pool(session), BANYAN_ENET,
                                                   "the memory nodes that may have a log are not all known");
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
    int status = nodes_know(log, session);
    pool_session_begin(tree_session_pool(session));
    if (!status)
        status = inherit.reading ? inherit_run(&inherit, epoch) : no_memory(&inherit);
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
    log_reading_drop(log);
    int first = nodes_know(log, session);
    pool_session_begin(tree_session_pool(session));
    for (uint16_t n = 0; n < log_nodes(log); n++) {
        int status = pool_log_release(tree_session_pool(session), n, gone);
        first = first ? first : status;
    }
    return first;
}
