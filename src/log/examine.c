/* examine.c - see examine.h. */
#include "log/examine.h"

#include <stdlib.h>
#include <string.h>

#include "log/copies.h"
#include "log/state.h"

const char *const log_fault_names[] = {"region", "segment", "control block", NULL};

struct examine {
    struct tree_session *session;
    struct fabric_process process;
    uint16_t memory_nodes, node;
    void (*visit)(void *context, const struct log_fault *fault);
    void *context;
    struct log_examination *found;
    uint8_t *bytes; /* FORMAT_LOG_SEGMENT_MAX; owned */
    /* owned: told when all memory nodes were looked at, since one may have what another has lost */
    struct log_fault *faults;
    uint32_t fault_count;
    struct log_copies copies;
    bool no_memory;
};

struct segment {
    struct memory_log_segment pool;
    struct format_log_segment header; /* size 0: nothing can be read of it, or nothing is there */
};

static void note(struct examine *examine, const struct log_fault *fault)
{
    struct log_fault *grown = realloc(examine->faults, (examine->fault_count + 1) * sizeof *grown);
    examine->no_memory |= !grown;
    if (!grown)
        return;
    examine->faults = grown;
    grown[examine->fault_count++] = *fault;
}

static void tell(struct examine *examine, struct log_fault *fault)
{
    if (fault->kind == LOG_FAULT_REGION && fault->after.there)
        fault->elsewhere =
            log_copies_elsewhere(&examine->copies, fault->node,
                                 fault->before.there ? fault->before.sequence : examine->found->watermark,
                                 fault->after.sequence, fault->bytes);
    examine->found->faults++;
    examine->found->elsewhere += fault->elsewhere;
    examine->found->lost_bytes += fault->elsewhere ? 0 : fault->bytes;
    if (examine->visit)
        examine->visit(examine->context, fault);
}

/* ---- regions ---- */

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

/* Regions below `limit`, and what stands on both sides of each. */
static void regions_note(struct examine *examine, const struct segment *segment, uint32_t limit)
{
    struct log_fault fault = {.kind = LOG_FAULT_REGION,
                              .node = examine->node,
                              .segment = segment->pool,
                              .nonce = segment->header.nonce,
                              .what = "was complete, and no whole frame is there"};
    struct log_neighbour first, last = {.there = false};
    uint32_t begin = 0, end = 0; /* of the region that is open; 0: none */
    for (uint32_t at = FORMAT_LOG_BLOCK; at < segment->header.size;) {
        struct format_log_view view;
        const enum format_log_found found =
            format_log_frame_find(&segment->header, examine->bytes, at, &view);
        if (found != FORMAT_LOG_WHOLE) {
            const uint32_t step = found == FORMAT_LOG_TORN ? view.bytes : FORMAT_LOG_BLOCK;
            if (at < limit && !begin) {
                begin = at;
                fault.before = last;
            }
            at += step;
            if (begin && begin < limit && at <= limit)
                end = at;
            else if (begin && end < limit)
                end = limit;
            continue;
        }
        frame_ends(&view, &first, &last);
        if (begin && first.there) {
            fault.address = segment->pool.address + begin;
            fault.bytes = end - begin;
            fault.after = first;
            note(examine, &fault);
            begin = end = 0;
        }
        at += view.bytes;
    }
    if (begin) {
        fault.address = segment->pool.address + begin;
        fault.bytes = end - begin;
        fault.after = (struct log_neighbour){.there = false};
        note(examine, &fault);
    }
}

/* ---- segments ---- */

/* The changes of all frames that are whole. */
static void frames_note(struct examine *examine, const struct segment *segment)
{
    for (uint32_t at = FORMAT_LOG_BLOCK; at < segment->header.size;) {
        struct format_log_view view;
        const enum format_log_found found =
            format_log_frame_find(&segment->header, examine->bytes, at, &view);
        if (found == FORMAT_LOG_WHOLE && !log_copies_add(&examine->copies, examine->node, &view))
            examine->no_memory = true;
        at += found == FORMAT_LOG_NOTHING ? FORMAT_LOG_BLOCK : view.bytes;
    }
}

static int header_read(struct examine *examine, struct segment *segment)
{
    uint8_t bytes[FORMAT_LOG_BLOCK];
    int status = log_bytes_read(examine->session, segment->pool.address, bytes, sizeof bytes);
    segment->header.size = 0;
    if (status || log_block_empty(bytes)) /* taken, and not begun */
        return status;
    const char *what = log_segment_judge(bytes, examine->process, &segment->pool, &segment->header);
    const struct log_fault fault = {.kind = LOG_FAULT_SEGMENT,
                                    .node = examine->node,
                                    .segment = segment->pool,
                                    .address = segment->pool.address,
                                    .bytes = (uint32_t)segment->pool.bytes,
                                    .what = what};
    if (what)
        note(examine, &fault);
    return 0;
}

static int segment_read(struct examine *examine, const struct segment *segment, uint32_t known,
                        uint32_t *before)
{
    struct format_log_scan scan;
    int status =
        log_bytes_read(examine->session, segment->pool.address, examine->bytes, segment->header.size);
    if (status)
        return status;
    (void)format_log_scan(&segment->header, examine->bytes, known, NULL, NULL, &scan);
    examine->found->frames += scan.frames;
    examine->found->entries += scan.entries;
    if (scan.sequence > examine->found->sequence)
        examine->found->sequence = scan.sequence;
    frames_note(examine, segment);
    if (scan.corrupt_regions)
        regions_note(examine, segment, scan.committed > known ? scan.committed : known);
    *before = scan.committed ? segment->header.before : 0;
    return 0;
}

static int segment_compare(const void *a, const void *b)
{
    const struct segment *one = a, *two = b;
    return one->header.number < two->header.number ? 1 : one->header.number > two->header.number ? -1 : 0;
}

/* The latest first: each says where the one before it ends. */
static int segments_read(struct examine *examine, struct segment *segments, uint32_t count)
{
    int status = 0;
    uint32_t before = 0;
    for (uint32_t i = 0; i < count && !status; i++)
        status = header_read(examine, &segments[i]);
    if (status)
        return status;
    if (count)
        qsort(segments, count, sizeof *segments, segment_compare);
    for (uint32_t i = 0; i < count && !status; i++) {
        const bool follows = i && segments[i - 1].header.size &&
                             segments[i].header.number + 1 == segments[i - 1].header.number;
        if (segments[i].header.size)
            status = segment_read(examine, &segments[i], follows ? before : 0, &before);
    }
    return status;
}

/* ---- one memory node ---- */

static int control_read(struct examine *examine, gaddr address)
{
    struct format_log_control control;
    uint8_t bytes[FORMAT_LOG_BLOCK];
    int status = log_bytes_read(examine->session, address, bytes, sizeof bytes);
    if (status || log_block_empty(bytes)) /* opened, and not begun */
        return status;
    const char *what = log_control_judge(bytes, examine->process, &control);
    const struct log_fault fault = {.kind = LOG_FAULT_CONTROL,
                                    .node = examine->node,
                                    .address = address,
                                    .bytes = FORMAT_LOG_BLOCK,
                                    .what = what};
    if (what)
        note(examine, &fault);
    else if (control.watermark > examine->found->watermark)
        examine->found->watermark = control.watermark;
    return 0;
}

struct stream {
    struct pool_session *pool;
    struct segment *segments; /* owned */
    uint32_t count, capacity;
};

static int stream_add(void *context, const struct memory_log_segment *segment)
{
    struct stream *stream = context;
    if (stream->count == stream->capacity) {
        const uint32_t capacity = stream->capacity ? 2 * stream->capacity : 16;
        struct segment *grown = realloc(stream->segments, capacity * sizeof *grown);
        if (!grown)
            return pool_fail_memory(stream->pool);
        stream->segments = grown;
        stream->capacity = capacity;
    }
    stream->segments[stream->count++] = (struct segment){.pool = *segment};
    return 0;
}

static void node_count(struct log_examination *found, const struct memory_log_segments *page,
                       const struct stream *stream)
{
    found->nodes++;
    found->nodes_gone += page->fenced;
    found->segments += stream->count;
    for (uint32_t i = 0; i < stream->count; i++)
        found->segment_bytes += stream->segments[i].pool.bytes;
}

/* With `read`: what lies there as well. */
static int node_examine(struct examine *examine, bool read)
{
    struct stream stream = {.pool = tree_session_pool(examine->session)};
    struct memory_log_segments *page = malloc(sizeof *page);
    int status =
        page ? pool_log_list_all(stream.pool, examine->node, examine->process, page, stream_add, &stream)
             : pool_fail_memory(stream.pool);
    if (!status && !read)
        node_count(examine->found, page, &stream);
    if (!status && read)
        status = control_read(examine, page->control);
    if (!status && read)
        status = segments_read(examine, stream.segments, stream.count);
    free(page);
    free(stream.segments);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

int log_examine(struct tree_session *session, uint16_t memory_nodes, struct fabric_process process,
                void (*visit)(void *context, const struct log_fault *fault), void *context,
                struct log_examination *examination)
{
    struct examine examine = {.session = session,
                              .process = process,
                              .memory_nodes = memory_nodes,
                              .visit = visit,
                              .context = context,
                              .found = examination,
                              .bytes = malloc(FORMAT_LOG_SEGMENT_MAX)};
    int status = examine.bytes ? 0 : pool_fail_memory(tree_session_pool(session));
    *examination = (struct log_examination){0};
    pool_session_begin(tree_session_pool(session));
    for (examine.node = 0; examine.node < memory_nodes && !status; examine.node++)
        status = node_examine(&examine, false);
    const bool gone = examination->nodes == examination->nodes_gone;
    for (examine.node = 0; examine.node < memory_nodes && !status && gone; examine.node++)
        status = node_examine(&examine, true);
    if (!status && examine.no_memory)
        status = pool_fail_memory(tree_session_pool(session));
    for (uint32_t i = 0; i < examine.fault_count && !status; i++)
        tell(&examine, &examine.faults[i]);
    log_copies_free(&examine.copies);
    free(examine.faults);
    free(examine.bytes);
    return status;
}

/* ---- accepting ---- */

static int busy(struct tree_session *session, struct fabric_process process, const char *what)
{
    return pool_fail(tree_session_pool(session), BANYAN_EBUSY, "the log of compute node %u: %s",
                     (unsigned)process.compute_id, what);
}

/* The memory node still keeps it for the process, which is gone. */
static int still_there(struct tree_session *session, struct fabric_process process,
                       const struct log_fault *fault)
{
    struct memory_log_segments *page = malloc(sizeof *page);
    const uint64_t after = fault->segment.number ? fault->segment.number - 1 : UINT64_MAX;
    int status = page ? pool_log_list(tree_session_pool(session), fault->node, process, after, page)
                      : pool_fail_memory(tree_session_pool(session));
    if (status == BANYAN_ENOTFOUND)
        status = busy(session, process, "it was given back meanwhile");
    if (!status && !page->fenced)
        status = busy(session, process, "its process is there again");
    if (!status && fault->kind == LOG_FAULT_CONTROL && page->control != fault->address)
        status = busy(session, process, "its control block is another one by now");
    if (!status && fault->kind != LOG_FAULT_CONTROL &&
        (!page->count || page->segments[0].number != fault->segment.number ||
         page->segments[0].address != fault->segment.address))
        status = busy(session, process, "the segment was given back meanwhile");
    free(page);
    return status;
}

static int bytes_write(struct tree_session *session, gaddr address, const uint8_t *bytes, uint32_t length)
{
    while (length) {
        const uint32_t piece = length < FABRIC_LENGTH_MAX ? length : FABRIC_LENGTH_MAX;
        struct fabric_command write = pool_write_command(address, bytes, piece);
        int status = pool_execute(tree_session_pool(session), gaddr_node(address), &write, 1);
        if (status)
            return status;
        address += piece;
        bytes += piece;
        length -= piece;
    }
    return 0;
}

static int region_cover(struct tree_session *session, struct fabric_process process,
                        const struct log_fault *fault)
{
    uint8_t header[FORMAT_LOG_BLOCK];
    struct format_log_segment segment;
    int status = log_bytes_read(session, fault->segment.address, header, sizeof header);
    if (!status &&
        (log_segment_judge(header, process, &fault->segment, &segment) || segment.nonce != fault->nonce))
        status = busy(session, process, "the segment is in use again");
    uint8_t *frames = status ? NULL : malloc(fault->bytes);
    if (!status && !frames)
        status = pool_fail_memory(tree_session_pool(session));
    for (uint32_t at = 0; at < fault->bytes && !status; at += FORMAT_LOG_BLOCK) {
        struct format_log_frame frame;
        format_log_frame_begin(&frame, frames + at, FORMAT_LOG_BLOCK);
        (void)format_log_frame_seal(&frame, fault->nonce,
                                    (uint32_t)(fault->address - fault->segment.address) + at, 0);
    }
    if (!status)
        status = bytes_write(session, fault->address, frames, fault->bytes);
    free(frames);
    return status;
}

int log_accept(struct tree_session *session, struct fabric_process process,
               const struct log_examination *examination, const struct log_fault *fault)
{
    uint8_t bytes[FORMAT_LOG_BLOCK] = {0};
    pool_session_begin(tree_session_pool(session));
    int status = still_there(session, process, fault);
    if (status)
        return status;
    if (fault->kind == LOG_FAULT_REGION)
        return region_cover(session, process, fault);
    if (fault->kind == LOG_FAULT_CONTROL) {
        const struct format_log_control control = {.owner = process, .watermark = examination->watermark};
        format_log_control_encode(&control, bytes);
    }
    return bytes_write(session, fault->address, bytes, sizeof bytes);
}
