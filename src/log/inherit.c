/*
 * inherit.c - What an earlier owner has logged of a range and not merged (L7 of docs/internals/log.md): its
 * segments are READ, entries above its watermark are sorted out, and logged again. Costs the READs of what is
 * used of its segments, and as many WRITEs as what is logged again has frames, some in a wait. Takes memory
 * for one segment, and for all entries that are not merged.
 *
 * A process that dies leaves many ranges, which one transfer gives to others under one epoch. Their next
 * owner reads its log once: the READING is kept from the first range to the last, until heirs are taken off.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/task.h"
#include "log/state.h"
#include "tree/rights.h"

/* How often a segment of an owner that lives is read until its frames fit together. */
#define READS_MAX 4u
/* Frames that leave in one wait. */
#define FRAMES 8u
/* Of a reading. */
#define PROCESSES_MAX 16u
/* The first READ of a segment, and the next ones: as much as proves that one which is hardly used ends. */
#define READ_FIRST (FORMAT_LOG_SPAN + (256u << 10))
#define READ_NEXT  (2u << 20)

struct found {
    uint64_t epoch, sequence;
    uint32_t at;          /* of key and value in the bytes */
    uint16_t index, node; /* its number; in whose stream it lay */
    uint8_t key_length, value_length;
    uint8_t process; /* of the reading */
    bool deleted;
};

/* What the logs of some processes have above their watermarks, of all ranges. It was read behind the transfer
 * by which this process got the ranges of `epoch`: what the logs have of these does not grow any more. */
struct log_reading {
    uint64_t epoch;
    struct fabric_process processes[PROCESSES_MAX];
    uint32_t process_count;
    struct found *entries; /* owned; sorted: by index and key, of one key the latest first */
    uint32_t count, capacity;
    uint8_t *bytes; /* owned */
    uint32_t used, room;
};

struct inherit {
    struct log *log;
    struct tree_session *session;
    struct tree *tree;
    struct format_key lower;
    const struct format_key *upper;
    const struct log_heir *heirs;
    uint32_t heir_count;
    struct log_reading *reading; /* owned */
    /* of the process that is read */
    struct fabric_process process;
    uint64_t watermark;
    uint16_t node;
    uint8_t *segment; /* FORMAT_LOG_SEGMENT_MAX; owned; NULL: nothing is read */
};

static int no_memory(struct inherit *inherit)
{
    return pool_fail_memory(tree_session_pool(inherit->session));
}

/* ---- reading ---- */

int log_bytes_read(struct tree_session *session, gaddr from, uint8_t *to, uint32_t length)
{
    struct pool_session *pool = tree_session_pool(session);
    while (length) {
        struct fabric_command reads[4];
        uint32_t count = 0;
        for (; length && count < 4; count++) {
            uint32_t piece = length < FABRIC_LENGTH_MAX ? length : FABRIC_LENGTH_MAX;
            reads[count] = pool_read_command(from, to, piece);
            from += piece;
            to += piece;
            length -= piece;
        }
        int status = pool_execute(pool, gaddr_node(reads[0].address), reads, count);
        if (status)
            return status;
        for (uint32_t i = 0; i < count; i++)
            pool_read_settle(&reads[i]);
    }
    return 0;
}

bool log_block_empty(const uint8_t bytes[FORMAT_LOG_BLOCK])
{
    static const uint8_t zeros[FORMAT_LOG_BLOCK];
    return !memcmp(bytes, zeros, sizeof zeros);
}

const char *log_segment_judge(const uint8_t bytes[FORMAT_LOG_BLOCK], struct fabric_process process,
                              const struct memory_log_segment *pool, struct format_log_segment *header)
{
    const char *fault = format_log_segment_decode(bytes, header);
    if (!fault && (!fabric_process_equal(header->owner, process) || header->size > pool->bytes))
        fault = "is another process's, or longer than what the memory node has handed out";
    if (fault)
        header->size = 0;
    return fault;
}

const char *log_control_judge(const uint8_t bytes[FORMAT_LOG_BLOCK], struct fabric_process process,
                              struct format_log_control *control)
{
    const char *fault = format_log_control_decode(bytes, control);
    if (!fault && !fabric_process_equal(control->owner, process))
        fault = "is another process's";
    return fault;
}

/* Room for one more entry, and its bytes. */
static bool reading_reserve(struct log *log, struct log_reading *reading, uint32_t bytes)
{
    if (reading->count == reading->capacity) {
        const uint32_t capacity = reading->capacity ? 2 * reading->capacity : 1024;
        struct found *entries = heap_resize(&log->heap, reading->entries, capacity * sizeof *entries);
        if (!entries)
            return false;
        reading->entries = entries;
        reading->capacity = capacity;
    }
    if (reading->room - reading->used < bytes) {
        const uint32_t room = reading->room ? 2 * reading->room : 64u << 10;
        uint8_t *grown = heap_resize(&log->heap, reading->bytes, room);
        if (!grown)
            return false;
        reading->bytes = grown;
        reading->room = room;
    }
    return true;
}

static int entry_keep(void *context, const struct format_log_entry *entry)
{
    struct inherit *inherit = context;
    struct log_reading *reading = inherit->reading;
    const uint32_t bytes = entry->key.length + entry->value_length;
    if (entry->sequence <= inherit->watermark)
        return 0;
    if (!reading_reserve(inherit->log, reading, bytes))
        return no_memory(inherit);
    reading->entries[reading->count++] = (struct found){.epoch = entry->epoch,
                                                        .sequence = entry->sequence,
                                                        .at = reading->used,
                                                        .index = entry->index,
                                                        .node = inherit->node,
                                                        .key_length = (uint8_t)entry->key.length,
                                                        .value_length = entry->value_length,
                                                        .process = (uint8_t)reading->process_count,
                                                        .deleted = entry->kind == FORMAT_LOG_DELETE};
    memcpy(reading->bytes + reading->used, entry->key.bytes, entry->key.length);
    if (entry->value_length)
        memcpy(reading->bytes + reading->used + entry->key.length, entry->value, entry->value_length);
    reading->used += bytes;
    return 0;
}

/* A segment as its header says it is; size 0: nothing was written into it. */
struct listed {
    struct memory_log_segment pool;
    struct format_log_segment header;
    uint32_t known; /* frames below are complete, as the segment behind it says */
};

/* A block that is named in the memory node's list does not prove itself. */
static int block_fault(struct inherit *inherit, const char *name, gaddr address, const char *fault)
{
    return pool_fail(
        tree_session_pool(inherit->session), BANYAN_ECORRUPT,
        "index %s: %s of the log of compute node %u at %016llx %s; the range is not served before "
        "the loss is accepted (banyan recover)",
        tree_name(inherit->tree), name, inherit->process.compute_id, (unsigned long long)address, fault);
}

/* An owner that lives may write it just now. */
static int header_read(struct inherit *inherit, struct listed *listed)
{
    const char *fault = NULL;
    for (uint32_t attempt = 0; attempt < READS_MAX; attempt++) {
        uint8_t bytes[FORMAT_LOG_BLOCK];
        int status = log_bytes_read(inherit->session, listed->pool.address, bytes, sizeof bytes);
        listed->header.size = 0;
        if (status || log_block_empty(bytes)) /* taken, and not begun */
            return status;
        fault = log_segment_judge(bytes, inherit->process, &listed->pool, &listed->header);
        if (!fault)
            return 0;
    }
    return block_fault(inherit, "a segment", listed->pool.address, fault);
}

static int segment_fault(struct inherit *inherit, const struct listed *listed,
                         const struct format_log_scan *scan)
{
    return pool_fail(
        tree_session_pool(inherit->session), BANYAN_ECORRUPT,
        "index %s: the log of compute node %u is corrupt at %016llx: %u bytes, in all %u bytes of "
        "the segment; the range is not served before their loss is accepted (banyan recover)",
        tree_name(inherit->tree), inherit->process.compute_id,
        (unsigned long long)(listed->pool.address + scan->corrupt_first), scan->corrupt_first_bytes,
        scan->corrupt_bytes);
}

/* READs the segment up to where its frames end for certain: *used, its size from here on. */
static int segment_read(struct inherit *inherit, const struct listed *listed, struct format_log_segment *used)
{
    struct format_log_reach reach = FORMAT_LOG_REACH_FIRST;
    *used = listed->header;
    for (used->size = 0; used->size < listed->header.size;) {
        const uint32_t wanted = used->size ? READ_NEXT : READ_FIRST, left = listed->header.size - used->size;
        const uint32_t piece = wanted < left ? wanted : left;
        int status = log_bytes_read(inherit->session, listed->pool.address + used->size,
                                    inherit->segment + used->size, piece);
        if (status)
            return status;
        used->size += piece;
        if (format_log_reach(&listed->header, inherit->segment, used->size, &reach) &&
            used->size >= listed->known)
            break;
    }
    return 0;
}

/* *before: what the segment says of the one before it, if it may be believed; else 0. */
static int segment_scan(struct inherit *inherit, struct listed *listed, uint32_t *before)
{
    struct format_log_scan scan;
    *before = 0;
    for (uint32_t attempt = 0;; attempt++) {
        const uint64_t nonce = listed->header.nonce;
        const uint32_t count = inherit->reading->count, used = inherit->reading->used;
        struct format_log_segment read;
        int status = segment_read(inherit, listed, &read);
        if (!status)
            status = format_log_scan(&read, inherit->segment, listed->known, entry_keep, inherit, &scan);
        if (status)
            return status;
        if (!scan.corrupt_regions)
            break;
        /* An owner that lives goes on: what was read first may be older than what was read last. */
        inherit->reading->count = count;
        inherit->reading->used = used;
        status = header_read(inherit, listed);
        if (status)
            return status;
        if (!listed->header.size || listed->header.nonce != nonce)
            return 0; /* it is used again, so all it held is merged */
        if (attempt == READS_MAX)
            return segment_fault(inherit, listed, &scan);
    }
    *before = scan.committed ? listed->header.before : 0;
    return 0;
}

static int listed_compare(const void *a, const void *b)
{
    const struct listed *one = a, *two = b;
    return one->header.number < two->header.number ? 1 : one->header.number > two->header.number ? -1 : 0;
}

static int segments_scan(struct inherit *inherit, struct listed *segments, uint32_t count)
{
    if (count)
        qsort(segments, count, sizeof *segments, listed_compare); /* the latest first */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t before;
        if (!segments[i].header.size)
            continue;
        int status = segment_scan(inherit, &segments[i], &before);
        if (status)
            return status;
        if (i + 1 < count && segments[i + 1].header.size &&
            segments[i + 1].header.number + 1 == segments[i].header.number)
            segments[i + 1].known = before;
    }
    return 0;
}

struct stream {
    struct inherit *inherit;
    struct listed *segments; /* owned */
    uint32_t count, capacity;
};

static int stream_add(void *context, const struct memory_log_segment *segment)
{
    struct stream *stream = context;
    struct inherit *inherit = stream->inherit;
    if (stream->count == stream->capacity) {
        const uint32_t capacity = stream->capacity ? 2 * stream->capacity : 16;
        struct listed *grown = heap_resize(&inherit->log->heap, stream->segments, capacity * sizeof *grown);
        if (!grown)
            return no_memory(inherit);
        stream->segments = grown;
        stream->capacity = capacity;
    }
    struct listed *listed = &stream->segments[stream->count++];
    *listed = (struct listed){.pool = *segment};
    return header_read(inherit, listed);
}

/* All segments of the process on one memory node; also after an error they are the caller's to free. */
static int stream_list(struct inherit *inherit, struct stream *stream)
{
    struct memory_log_segments *page = heap_allocate(&inherit->log->heap, sizeof *page);
    *stream = (struct stream){.inherit = inherit};
    int status = page ? pool_log_list_all(tree_session_pool(inherit->session), inherit->node,
                                          inherit->process, page, stream_add, stream)
                      : no_memory(inherit);
    heap_free(&inherit->log->heap, page);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

/* The control block that the page tells of; zeros: it was not begun. Its one WRITE may be under way, or was
 * cut off by its process's end: then nothing can have been written to this memory node's segments. */
static int control_read(struct inherit *inherit, struct memory_log_segments *page, uint16_t node,
                        struct format_log_control *control)
{
    const gaddr address = page->control;
    const char *fault = NULL;
    for (uint32_t attempt = 0; attempt < READS_MAX; attempt++) {
        uint8_t bytes[FORMAT_LOG_BLOCK];
        *control = (struct format_log_control){0};
        int status = log_bytes_read(inherit->session, address, bytes, sizeof bytes);
        if (status || log_block_empty(bytes))
            return status;
        fault = log_control_judge(bytes, inherit->process, control);
        if (!fault)
            return 0;
    }
    *control = (struct format_log_control){0};
    int status = pool_log_list(tree_session_pool(inherit->session), node, inherit->process, 0, page);
    if (status || !page->count)
        return status;
    return block_fault(inherit, "the control block", address, fault);
}

/* The greatest that any memory node has: it is published before segments are used again. */
static int watermark_find(struct inherit *inherit)
{
    struct pool_session *pool = tree_session_pool(inherit->session);
    struct memory_log_segments *page = heap_allocate(&inherit->log->heap, sizeof *page);
    int status = page ? 0 : no_memory(inherit);
    inherit->watermark = 0;
    for (uint16_t n = 0; n < inherit->log->memory_nodes && !status; n++) {
        struct format_log_control control = {0};
        status = pool_log_list(pool, n, inherit->process, UINT64_MAX, page);
        if (status == BANYAN_ENOTFOUND) {
            status = 0;
            continue;
        }
        if (!status)
            status = control_read(inherit, page, n, &control);
        if (!status && control.watermark > inherit->watermark)
            inherit->watermark = control.watermark;
    }
    heap_free(&inherit->log->heap, page);
    return status;
}

static int streams_read(struct inherit *inherit)
{
    int status = watermark_find(inherit);
    for (uint16_t n = 0; n < inherit->log->memory_nodes && !status; n++) {
        struct stream stream;
        inherit->node = n;
        status = stream_list(inherit, &stream);
        if (!status)
            status = segments_scan(inherit, stream.segments, stream.count);
        heap_free(&inherit->log->heap, stream.segments);
    }
    return status;
}

/* Adds what the process's log has to the reading; all of it, or nothing. */
static int process_read(struct inherit *inherit)
{
    struct log_reading *reading = inherit->reading;
    const uint32_t count = reading->count, used = reading->used;
    if (!inherit->segment)
        inherit->segment = heap_allocate(&inherit->log->heap, FORMAT_LOG_SEGMENT_MAX);
    int status = inherit->segment ? streams_read(inherit) : no_memory(inherit);
    if (status) {
        reading->count = count;
        reading->used = used;
    } else {
        reading->processes[reading->process_count++] = inherit->process;
    }
    return status;
}

/* ---- sorting out ---- */

static struct format_key key_of(const struct inherit *inherit, const struct found *entry)
{
    return (struct format_key){inherit->reading->bytes + entry->at, entry->key_length};
}

static int found_compare(const void *a, const void *b, void *bytes)
{
    const struct found *one = a, *two = b;
    if (one->index != two->index)
        return one->index < two->index ? -1 : 1;
    const struct format_key left = {(const uint8_t *)bytes + one->at, one->key_length};
    const struct format_key right = {(const uint8_t *)bytes + two->at, two->key_length};
    int order = format_key_compare(left, right);
    if (order)
        return order;
    if (one->epoch != two->epoch)
        return one->epoch < two->epoch ? 1 : -1;
    return one->sequence < two->sequence ? 1 : one->sequence > two->sequence ? -1 : 0;
}

static int reading_find(const struct log_reading *reading, struct fabric_process process)
{
    for (uint32_t i = 0; i < reading->process_count; i++)
        if (fabric_process_equal(reading->processes[i], process))
            return (int)i;
    return -1;
}

/* All heirs of the range are in the reading then. */
static int reading_complete(struct inherit *inherit)
{
    struct log_reading *reading = inherit->reading;
    const uint32_t before = reading->process_count;
    int status = 0;
    for (uint32_t i = 0; i < inherit->heir_count && !status; i++) {
        inherit->process = inherit->heirs[i].process; /* may be an heir twice */
        if (reading_find(reading, inherit->process) < 0)
            status = process_read(inherit);
    }
    if (reading->process_count > before && reading->count)
        qsort_r(reading->entries, reading->count, sizeof *reading->entries, found_compare, reading->bytes);
    return status;
}

/* Whether its process is an heir under the epoch; else it is of another time. */
static bool entry_counts(const struct inherit *inherit, const struct found *entry)
{
    for (uint32_t i = 0; i < inherit->heir_count; i++)
        if (reading_find(inherit->reading, inherit->heirs[i].process) == entry->process &&
            inherit->heirs[i].epoch == entry->epoch)
            return true;
    return false;
}

static bool entry_below(const struct inherit *inherit, const struct found *entry)
{
    const uint16_t index = tree_number(inherit->tree);
    return entry->index < index ||
           (entry->index == index && format_key_compare(key_of(inherit, entry), inherit->lower) < 0);
}

static bool entry_above(const struct inherit *inherit, const struct found *entry)
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
static const struct found **latest(struct inherit *inherit, uint32_t *count)
{
    const struct log_reading *reading = inherit->reading;
    const uint32_t begin = range_begin(inherit);
    uint32_t end = begin;
    while (end < reading->count && !entry_above(inherit, &reading->entries[end]))
        end++;
    const struct found **all = heap_allocate(&inherit->log->heap, (end - begin + 1) * sizeof *all);
    *count = 0;
    for (uint32_t i = begin; i < end && all; i++) {
        const struct found *entry = &reading->entries[i];
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
    struct log_place places[2 * FRAMES];
    uint32_t lists_used;
    uint8_t bytes[FRAMES][FORMAT_LOG_FRAME_MAX / 2], copies[FRAMES][FORMAT_LOG_FRAME_MAX / 2];
};

static int again_place(struct inherit *inherit, struct again *again, struct format_log_frame *frame,
                       uint8_t *bytes, uint16_t node)
{
    struct log_place *place = &again->places[again->lists_used];
    struct format_log_frame sealed = *frame;
    const uint32_t length = format_log_frame_bytes(frame);
    int status = log_stream_reserve(&inherit->log->streams[node], inherit->session, length, true, place);
    if (status)
        return status;
    sealed.bytes = bytes;
    log_stream_seal(place, &sealed);
    again->writes[again->lists_used] =
        pool_write_command(place->segment->pool.address + place->position, bytes, length);
    again->lists[again->lists_used] =
        (struct fabric_list){.node = node, .count = 1, .commands = &again->writes[again->lists_used]};
    again->lists_used++;
    return 0;
}

/* Writes the frames that are filled. */
static int again_send(struct inherit *inherit, struct again *again, uint32_t frames, uint16_t node)
{
    struct log *log = inherit->log;
    struct fabric_list *lists[2 * FRAMES];
    int status = 0;
    again->lists_used = 0;
    for (uint32_t i = 0; i < frames && !status; i++) {
        status = again_place(inherit, again, &again->frames[i], again->bytes[i], node);
        if (status || log->options.copies < 2 || log->memory_nodes < 2)
            continue;
        memcpy(again->copies[i], again->bytes[i], again->frames[i].used);
        status = again_place(inherit, again, &again->frames[i], again->copies[i],
                             (uint16_t)((node + 1u) % log->memory_nodes));
    }
    const uint32_t used = again->lists_used;
    for (uint32_t i = 0; i < used; i++) {
        lists[i] = &again->lists[i];
        lists[i]->status = status;
    }
    if (!status)
        status = pool_lists_execute(tree_session_pool(inherit->session), lists, used);
    for (uint32_t i = 0; i < used; i++)
        log_stream_landed(&again->places[i], !status && !lists[i]->status);
    return status;
}

/* The entries of one memory node's frames, from *next on, as many as leave in one wait. */
static int again_some(struct inherit *inherit, struct again *again, const struct found *const *sorted,
                      uint64_t *sequences, uint32_t count, uint64_t epoch, uint16_t node, uint32_t *next)
{
    struct log *log = inherit->log;
    uint32_t frames = 0;
    format_log_frame_begin(&again->frames[0], again->bytes[0], sizeof again->bytes[0]);
    for (; *next < count; ++*next) {
        const struct found *entry = sorted[*next];
        if (entry->node != node)
            continue;
        struct format_log_entry fresh = {.kind = entry->deleted ? FORMAT_LOG_DELETE : FORMAT_LOG_PUT,
                                         .index = tree_number(inherit->tree),
                                         .epoch = epoch,
                                         .key = key_of(inherit, entry),
                                         .value = inherit->reading->bytes + entry->at + entry->key_length,
                                         .value_length = entry->value_length};
        fresh.sequence = log_draw(log, 1);
        sequences[*next] = fresh.sequence;
        if (format_log_frame_add(&again->frames[frames], &fresh))
            continue;
        if (frames + 1 == FRAMES)
            break; /* it gets another number with the next frames */
        frames++;
        format_log_frame_begin(&again->frames[frames], again->bytes[frames], sizeof again->bytes[frames]);
        bool added = format_log_frame_add(&again->frames[frames], &fresh);
        assert(added);
        (void)added;
    }
    return again->frames[0].count ? again_send(inherit, again, frames + 1, node) : 0;
}

static int log_again(struct inherit *inherit, const struct found *const *sorted, uint64_t *sequences,
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

static int table_fill(struct inherit *inherit, const struct found *const *sorted, const uint64_t *sequences,
                      uint32_t count)
{
    struct unmerged *table = tree_log_table_make(inherit->tree);
    bool filled = table;
    for (uint32_t i = 0; i < count && filled; i++) {
        const struct found *entry = sorted[i];
        const struct format_key value = {inherit->reading->bytes + entry->at + entry->key_length,
                                         entry->value_length};
        filled = unmerged_adopt(table, key_of(inherit, entry), entry->deleted ? NULL : &value, sequences[i]);
    }
    return filled ? 0 : no_memory(inherit);
}

/* ---- all of it ---- */

/* What was taken over is in the table, and nothing has passed it. Until the heirs are off the map this
 * process's later changes of the range must be found beside theirs. */
static int take_in(struct inherit *inherit, const struct found *const *sorted, const uint64_t *sequences,
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
static int again(struct inherit *inherit, const struct found *const *sorted, uint64_t *sequences,
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
    int status = reading_complete(inherit);
    if (status)
        return status;
    const struct found **sorted = latest(inherit, &count);
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

/* ---- the reading that is kept ---- */

static void reading_free(struct log *log, struct log_reading *reading)
{
    if (!reading)
        return;
    heap_free(&log->heap, reading->entries);
    heap_free(&log->heap, reading->bytes);
    heap_free(&log->heap, reading);
}

/* From here on it is the caller's; NULL: none is kept. */
static struct log_reading *reading_take(struct log *log)
{
    spinlock_lock(&log->lock);
    struct log_reading *reading = log->reading;
    log->reading = NULL;
    spinlock_unlock(&log->lock);
    return reading;
}

void log_reading_drop(struct log *log)
{
    reading_free(log, reading_take(log));
}

static void reading_keep(struct log *log, struct log_reading *reading)
{
    spinlock_lock(&log->lock);
    const bool kept = !log->reading;
    if (kept)
        log->reading = reading;
    spinlock_unlock(&log->lock);
    if (!kept)
        reading_free(log, reading);
}

/* One in which there is room for these heirs: that of the transfer, or a new one. NULL: no memory. */
static struct log_reading *reading_of(struct log *log, uint64_t epoch, uint32_t heirs)
{
    struct log_reading *reading = reading_take(log);
    if (reading && reading->epoch == epoch && reading->process_count + heirs <= PROCESSES_MAX)
        return reading;
    reading_free(log, reading);
    reading = heap_allocate_zeros(&log->heap, 1, sizeof *reading);
    if (reading)
        reading->epoch = epoch;
    return reading;
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
                              .reading = reading_of(log, epoch, count)};
    assert(count <= PROCESSES_MAX);
    (void)atomic_add_relaxed(&log->inheriting, 1); /* a hint for mergers */
    pool_session_begin(tree_session_pool(session));
    int status = inherit.reading ? inherit_run(&inherit, epoch) : no_memory(&inherit);
    (void)atomic_add_relaxed(&log->inheriting, (uint32_t)-1); /* as above */
    heap_free(&log->heap, inherit.segment);
    if (status)
        reading_free(log, inherit.reading);
    else
        reading_keep(log, inherit.reading);
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
