/* reader.c - see reader.h. */
#include "log/reader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "pool/log.h"

/* How often a segment of an owner that lives is read until its frames fit together. */
#define READS_MAX 4u
/* The first READ of a segment, and the next ones: as much as proves that one which is hardly used ends. */
#define READ_FIRST (FORMAT_LOG_SPAN + (256u << 10))
#define READ_NEXT  (2u << 20)

const char *const log_fault_names[] = {"region", "segment", "control block", NULL};

/* A segment as its header says it is; size 0: nothing was written into it, or nothing is known of it. */
struct log_reader_segment {
    struct memory_log_segment pool;
    struct format_log_segment header;
    const char *fault; /* of the header, as it lies in the pool */
    uint32_t known;    /* frames below are complete, as the segment behind it says */
    uint16_t node;
};

static struct pool_session *pool_of(const struct log_reader *reader)
{
    return tree_session_pool(reader->session);
}

static int no_memory(const struct log_reader *reader)
{
    return pool_fail_memory(pool_of(reader));
}

/* ---- single blocks ---- */

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

static const char *control_judge(const uint8_t bytes[FORMAT_LOG_BLOCK], struct fabric_process process,
                                 struct format_log_control *control)
{
    const char *fault = format_log_control_decode(bytes, control);
    if (!fault && !fabric_process_equal(control->owner, process))
        fault = "is another process's";
    return fault;
}

/* ---- faults ---- */

static int fault_note(struct log_reader *reader, const struct log_fault *fault)
{
    struct log_fault *grown =
        heap_grow(reader->heap, reader->faults, reader->fault_count, &reader->fault_capacity, sizeof *grown);
    if (!grown)
        return no_memory(reader);
    reader->faults = grown;
    grown[reader->fault_count++] = *fault;
    return 0;
}

const struct log_fault *log_reader_lost(const struct log_reader *reader)
{
    for (uint32_t i = 0; i < reader->fault_count; i++)
        if (!reader->faults[i].mended)
            return &reader->faults[i];
    return NULL;
}

/* ---- control blocks ---- */

/* *begun: it says something. One that does not was opened, and not begun: its one WRITE may be under way, or
 * was cut off by its process's end; then nothing can have been written to this memory node's segments. */
static int control_look(struct log_reader *reader, gaddr address, struct format_log_control *control,
                        const char **fault, bool *begun)
{
    for (uint32_t attempt = 0; attempt < READS_MAX; attempt++) {
        uint8_t bytes[FORMAT_LOG_BLOCK];
        *fault = NULL;
        *begun = false;
        int status = log_bytes_read(reader->session, address, bytes, sizeof bytes);
        if (status || log_block_empty(bytes))
            return status;
        *fault = control_judge(bytes, reader->process, control);
        *begun = !*fault;
        if (*begun)
            break;
    }
    return 0;
}

/* The greatest watermark that any memory node has: it is published on all before segments are used again. It
 * is asked for once, before anything is read: one that moves meanwhile must not take the later one of two
 * changes away. */
static int watermark_find(struct log_reader *reader, struct memory_log_segments *page)
{
    for (uint16_t n = 0; n < reader->memory_nodes; n++) {
        struct format_log_control control;
        const char *fault;
        bool begun = false;
        int status = pool_log_list(pool_of(reader), n, reader->process, UINT64_MAX, page);
        if (!status)
            status = control_look(reader, page->control, &control, &fault, &begun);
        if (status && status != BANYAN_ENOTFOUND)
            return status;
        reader->sound[n] = begun;
        reader->controls += begun;
        if (begun && control.watermark > reader->watermark)
            reader->watermark = control.watermark;
    }
    return 0;
}

/* Behind the listing of the memory node's segments: one that has a segment has a control block. */
static int control_check(struct log_reader *reader, uint16_t node, gaddr address, bool begun_segments)
{
    struct log_fault fault = {
        .kind = LOG_FAULT_CONTROL, .node = node, .address = address, .bytes = FORMAT_LOG_BLOCK};
    struct format_log_control control;
    bool begun;
    if (reader->sound[node])
        return 0;
    int status = control_look(reader, address, &control, &fault.what, &begun);
    if (!status && !fault.what && !begun && begun_segments)
        fault.what = "is empty, and segments were begun";
    return status || !fault.what ? status : fault_note(reader, &fault);
}

/* ---- segments ---- */

/* Its header, if it was lost and is known again. */
static const struct format_log_segment *header_known(const struct log_reader *reader, gaddr address)
{
    for (uint32_t i = 0; i < reader->known_count; i++)
        if (reader->known[i].pool.address == address)
            return &reader->known[i].header;
    return NULL;
}

/* An owner that lives may write it just now. */
static int header_read(struct log_reader *reader, struct log_reader_segment *segment)
{
    for (uint32_t attempt = 0; attempt < READS_MAX; attempt++) {
        uint8_t bytes[FORMAT_LOG_BLOCK];
        int status = log_bytes_read(reader->session, segment->pool.address, bytes, sizeof bytes);
        segment->header.size = 0;
        segment->fault = NULL;
        if (status)
            return status;
        if (log_block_empty(bytes)) /* taken, and not begun */
            break;
        segment->fault = log_segment_judge(bytes, reader->process, &segment->pool, &segment->header);
        if (!segment->fault)
            return 0;
    }
    const struct format_log_segment *known = header_known(reader, segment->pool.address);
    if (!known)
        return 0;
    segment->header = *known;
    segment->fault = segment->fault ? segment->fault : "is empty, and frames were written";
    return 0;
}

/* READs the segment up to where its frames end for certain: *used, its size from here on. */
static int segment_read(struct log_reader *reader, const struct log_reader_segment *segment,
                        struct format_log_segment *used)
{
    struct format_log_reach reach = FORMAT_LOG_REACH_FIRST;
    *used = segment->header;
    for (used->size = 0; used->size < segment->header.size;) {
        const uint32_t wanted = used->size ? READ_NEXT : READ_FIRST, left = segment->header.size - used->size;
        const uint32_t piece = wanted < left ? wanted : left;
        int status = log_bytes_read(reader->session, segment->pool.address + used->size,
                                    reader->bytes + used->size, piece);
        if (status)
            return status;
        used->size += piece;
        if (format_log_reach(&segment->header, reader->bytes, used->size, &reach) &&
            used->size >= segment->known)
            break;
    }
    return 0;
}

static void neighbour_set(struct log_neighbour *neighbour, const struct format_log_entry *entry)
{
    neighbour->there = true;
    neighbour->index = entry->index;
    neighbour->epoch = entry->epoch;
    neighbour->sequence = entry->sequence;
    format_key_store(&neighbour->key, entry->key);
}

/* The first and the last change of a whole frame. */
static void frame_ends(const struct format_log_view *view, struct log_neighbour *first,
                       struct log_neighbour *last)
{
    struct format_log_entry entry;
    uint32_t at = 0;
    *first = (struct log_neighbour){.there = false};
    while (format_log_frame_next(view, &at, &entry)) {
        if (!first->there)
            neighbour_set(first, &entry);
        neighbour_set(last, &entry);
    }
}

/* Regions below `limit`, and what stands on both sides of each. `merged`: below it all is merged. */
static int regions_note(struct log_reader *reader, const struct log_reader_segment *segment,
                        const struct format_log_segment *used, uint32_t limit, uint32_t merged)
{
    struct log_fault fault = {.kind = LOG_FAULT_REGION,
                              .node = segment->node,
                              .segment = segment->pool,
                              .nonce = segment->header.nonce,
                              .what = "was complete, and no whole frame is there"};
    struct log_neighbour first, last = {.there = false};
    uint32_t begin = 0;                     /* of the region that is open; 0: none */
    uint32_t waiting = reader->fault_count; /* the first that lacks what stands behind it */
    int status = 0;
    for (uint32_t at = FORMAT_LOG_BLOCK; at < used->size && !status;) {
        struct format_log_view view;
        const enum format_log_found found = format_log_frame_find(used, reader->bytes, at, &view);
        const uint32_t next = at + (found == FORMAT_LOG_NOTHING ? FORMAT_LOG_BLOCK : view.bytes);
        const bool whole = found == FORMAT_LOG_WHOLE;
        if (!whole && !begin && at < limit) {
            begin = at;
            fault.before = last;
        }
        if (begin && (whole || next >= limit)) {
            const uint32_t end = whole ? at : limit;
            fault.address = segment->pool.address + begin;
            fault.bytes = end - begin;
            fault.merged = merged <= begin ? 0 : merged < end ? merged - begin : fault.bytes;
            status = fault_note(reader, &fault);
            begin = 0;
        }
        if (whole && view.count) {
            frame_ends(&view, &first, &last);
            for (; waiting < reader->fault_count; waiting++)
                reader->faults[waiting].after = first;
        }
        at = next;
    }
    return status;
}

/* ---- what a segment holds ---- */

struct scanning {
    struct log_reader *reader;
    uint16_t node;
    uint32_t merged; /* below it all is merged */
    bool earlier;    /* and all of the segments before */
};

static int frame_visit(void *context, const struct format_log_view *frame)
{
    struct scanning *scanning = context;
    struct log_reader *reader = scanning->reader;
    /* L2: what stands below `committed` has smaller sequences. */
    if (frame->count && frame->committed && frame->first <= reader->watermark + 1) {
        scanning->earlier = true;
        if (frame->committed > scanning->merged)
            scanning->merged = frame->committed;
    }
    if (!log_copies_add(&reader->copies, frame))
        return no_memory(reader);
    return reader->visit ? reader->visit(reader->context, scanning->node, frame) : 0;
}

/* *before: what the segment says of the one before it, if it may be believed; else 0. *merged: all of it is;
 * afterwards, all that was before it is. */
static int segment_scan(struct log_reader *reader, struct log_reader_segment *segment, uint32_t *before,
                        bool *merged)
{
    struct scanning scanning = {.reader = reader, .node = segment->node, .merged = *merged ? UINT32_MAX : 0};
    struct format_log_scan scan;
    *before = 0;
    for (uint32_t attempt = 0;; attempt++) {
        const uint64_t nonce = segment->header.nonce;
        struct format_log_segment used;
        int status = segment_read(reader, segment, &used);
        if (!status)
            status = format_log_scan(&used, reader->bytes, segment->known, frame_visit, &scanning, &scan);
        if (status)
            return status;
        if (!scan.corrupt_regions)
            break;
        if (attempt == READS_MAX) {
            const uint32_t limit = scan.committed > segment->known ? scan.committed : segment->known;
            status =
                regions_note(reader, segment, &used, limit < used.size ? limit : used.size, scanning.merged);
            if (status)
                return status;
            break;
        }
        /* An owner that lives goes on: what was read first may be older than what was read last. */
        status = header_read(reader, segment);
        if (status)
            return status;
        if (!segment->header.size || segment->header.nonce != nonce)
            return 0; /* it is used again, so all it held is merged */
    }
    reader->frames += scan.frames;
    reader->entries += scan.entries;
    if (scan.sequence > reader->sequence)
        reader->sequence = scan.sequence;
    *before = scan.committed ? segment->header.before : 0;
    *merged |= scanning.earlier;
    return 0;
}

/* ---- the log of one memory node ---- */

static int segment_add(void *context, const struct memory_log_segment *pool)
{
    struct log_reader *reader = context;
    struct log_reader_segment *grown = heap_grow(reader->heap, reader->segments, reader->segment_count,
                                                 &reader->segment_capacity, sizeof *grown);
    if (!grown)
        return no_memory(reader);
    reader->segments = grown;
    grown[reader->segment_count++] = (struct log_reader_segment){.pool = *pool};
    return header_read(reader, &grown[reader->segment_count - 1]);
}

static int segment_compare(const void *a, const void *b)
{
    const struct log_reader_segment *one = a, *two = b;
    return one->header.number < two->header.number ? 1 : one->header.number > two->header.number ? -1 : 0;
}

/* The latest first: each says where the one before it ends. Those of which all is merged have nothing for
 * whoever inherits. */
static int stream_scan(struct log_reader *reader, struct log_reader_segment *segments, uint32_t count)
{
    bool merged = false;
    qsort(segments, count, sizeof *segments, segment_compare);
    for (uint32_t i = 0; i < count && (!merged || reader->whole); i++) {
        uint32_t before;
        if (!segments[i].header.size)
            continue;
        int status = segment_scan(reader, &segments[i], &before, &merged);
        if (status)
            return status;
        if (i + 1 < count && segments[i + 1].header.size &&
            segments[i + 1].header.number + 1 == segments[i].header.number)
            segments[i + 1].known = before;
    }
    return 0;
}

static int stream_read(struct log_reader *reader, uint16_t node, struct memory_log_segments *page)
{
    const uint32_t first = reader->segment_count;
    bool begun = false;
    int status = pool_log_list_all(pool_of(reader), node, reader->process, page, segment_add, reader);
    for (uint32_t i = first; i < reader->segment_count && !status; i++) {
        struct log_reader_segment *segment = &reader->segments[i];
        const struct log_fault fault = {.kind = LOG_FAULT_SEGMENT,
                                        .node = node,
                                        .segment = segment->pool,
                                        .address = segment->pool.address,
                                        .bytes = (uint32_t)segment->pool.bytes,
                                        .what = segment->fault};
        segment->node = node;
        begun |= segment->header.size || segment->fault;
        status = segment->fault ? fault_note(reader, &fault) : 0;
    }
    if (!status && reader->segment_count > first) {
        status = control_check(reader, node, page->control, begun);
        if (!status)
            status = stream_scan(reader, reader->segments + first, reader->segment_count - first);
    }
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

/* Everything once. What was found before is forgotten. */
static int read_all(struct log_reader *reader, struct memory_log_segments *page)
{
    reader->watermark = reader->frames = reader->entries = reader->sequence = 0;
    reader->fault_count = reader->segment_count = reader->controls = 0;
    reader->copies.count = 0;
    int status = watermark_find(reader, page);
    for (uint16_t n = 0; n < reader->memory_nodes && !status; n++)
        status = stream_read(reader, n, page);
    return status;
}

/* ---- headers that are lost ---- */

/* The other copy that a whole frame elsewhere has, where this segment's first frame stands: its segment is
 * this one. A segment that seems not to be begun may have been another one's place before: then all of that
 * is merged. */
static const struct log_copy *first_copy(struct log_reader *reader, const struct log_reader_segment *segment,
                                         uint32_t length)
{
    struct format_log_segment guess = {.size = length};
    struct format_log_view view;
    memcpy(&guess.nonce, reader->bytes + FORMAT_LOG_BLOCK + 8, sizeof guess.nonce);
    const struct log_copy *copy = guess.nonce ? log_copies_segment(&reader->copies, guess.nonce) : NULL;
    if (!copy || (!segment->fault && copy->last <= reader->watermark) ||
        format_log_frame_find(&guess, reader->bytes, FORMAT_LOG_BLOCK, &view) == FORMAT_LOG_NOTHING)
        return NULL;
    return copy;
}

/* *found: its header is known again. */
static int header_find(struct log_reader *reader, struct log_reader_segment *segment, bool *found)
{
    const uint64_t most = FORMAT_LOG_SEGMENT_MAX;
    const uint32_t size = (uint32_t)(segment->pool.bytes < most ? segment->pool.bytes : most);
    const uint32_t first = FORMAT_LOG_BLOCK + FORMAT_LOG_FRAME_MAX, length = size < first ? size : first;
    if (length < 2 * FORMAT_LOG_BLOCK)
        return 0;
    int status = log_bytes_read(reader->session, segment->pool.address, reader->bytes, length);
    const struct log_copy *copy = status ? NULL : first_copy(reader, segment, length);
    if (!copy)
        return status;
    struct log_reader_segment *grown =
        heap_grow(reader->heap, reader->known, reader->known_count, &reader->known_capacity, sizeof *grown);
    if (!grown)
        return no_memory(reader);
    reader->known = grown;
    grown[reader->known_count] = *segment;
    grown[reader->known_count++].header =
        (struct format_log_segment){.owner = reader->process,
                                    .number = copy->other.number,
                                    .nonce = copy->other.nonce,
                                    .size = size / FORMAT_LOG_BLOCK * FORMAT_LOG_BLOCK,
                                    .before = copy->other.before};
    *found = true;
    return 0;
}

/* Whether the segment's header was read. */
static bool segment_there(const struct log_reader *reader, uint64_t nonce)
{
    for (uint32_t i = 0; i < reader->segment_count; i++)
        if (reader->segments[i].header.size && reader->segments[i].header.nonce == nonce)
            return true;
    return false;
}

/* A frame that is not merged has its other copy in a segment of which nothing is known. Or that one failed.
 */
static bool segment_missing(const struct log_reader *reader)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < reader->copies.count; i++) {
        const struct log_copy *copy = &reader->copies.all[i];
        if (copy->last <= reader->watermark || copy->other.nonce == seen)
            continue;
        seen = copy->other.nonce;
        if (!segment_there(reader, seen))
            return true;
    }
    return false;
}

/* *found: some headers that are lost are known again, which were not. */
static int headers_find(struct log_reader *reader, bool *found)
{
    const bool missing = segment_missing(reader);
    int status = 0;
    *found = false;
    for (uint32_t i = 0; i < reader->segment_count && !status; i++) {
        struct log_reader_segment *segment = &reader->segments[i];
        if (!segment->header.size && (segment->fault || missing))
            status = header_find(reader, segment, found);
    }
    return status;
}

/* ---- all of it ---- */

/* Why nothing is lost by it; NULL: something may be. */
static const char *mended(struct log_reader *reader, const struct log_fault *fault)
{
    const uint32_t begin = (uint32_t)(fault->address - fault->segment.address);
    if (fault->kind == LOG_FAULT_CONTROL)
        return reader->controls ? "another memory node has a watermark that is as good" : NULL;
    if (fault->kind == LOG_FAULT_SEGMENT)
        return header_known(reader, fault->address) ? "frames on other memory nodes say what stood there"
                                                    : NULL;
    if (fault->merged == fault->bytes)
        return "all that stood there is merged";
    return log_copies_cover(&reader->copies, fault->nonce, begin + fault->merged, begin + fault->bytes)
               ? "other memory nodes have all that stood there"
               : NULL;
}

/* Until all headers that can be known are. */
static int read_known(struct log_reader *reader, struct memory_log_segments *page)
{
    bool again = true;
    int status = 0;
    while (again && !status) {
        status = read_all(reader, page);
        if (!status)
            status = headers_find(reader, &again);
    }
    for (uint32_t i = 0; i < reader->fault_count && !status; i++)
        reader->faults[i].mended = mended(reader, &reader->faults[i]);
    return status;
}

int log_reader_run(struct log_reader *reader)
{
    struct memory_log_segments *page = heap_allocate(reader->heap, sizeof *page);
    reader->copies.heap = reader->heap;
    if (!reader->bytes)
        reader->bytes = heap_allocate(reader->heap, FORMAT_LOG_SEGMENT_MAX);
    if (!reader->sound)
        reader->sound = heap_allocate_zeros(reader->heap, reader->memory_nodes, sizeof *reader->sound);
    int status = page && reader->bytes && reader->sound ? 0 : no_memory(reader);
    status = status ? status : read_known(reader, page);
    if (!status && !reader->whole &&
        log_reader_lost(reader)) { /* what is merged may tell a header that is lost */
        reader->whole = true;
        status = read_known(reader, page);
    }
    heap_free(reader->heap, page);
    return status;
}

void log_reader_end(struct log_reader *reader)
{
    log_copies_clear(&reader->copies);
    heap_free(reader->heap, reader->faults);
    heap_free(reader->heap, reader->segments);
    heap_free(reader->heap, reader->known);
    heap_free(reader->heap, reader->bytes);
    heap_free(reader->heap, reader->sound);
}
