/* examine.c - see examine.h. */
#include "log/examine.h"

#include <stdlib.h>
#include <string.h>

#include "pool/log.h"

struct examine {
    struct tree_session *session;
    struct fabric_process process;
    uint16_t memory_nodes;
    struct log_examination *found;
};

static int segment_count(void *context, const struct memory_log_segment *segment)
{
    struct examine *examine = context;
    examine->found->segments++;
    examine->found->segment_bytes += segment->bytes;
    return 0;
}

/* What each memory node says of the log. */
static int nodes_count(struct examine *examine)
{
    struct pool_session *pool = tree_session_pool(examine->session);
    struct memory_log_segments *page = malloc(sizeof *page);
    int status = page ? 0 : pool_fail_memory(pool);
    for (uint16_t node = 0; node < examine->memory_nodes && !status; node++) {
        status = pool_log_list_all(pool, node, examine->process, page, segment_count, examine);
        if (!status) {
            examine->found->nodes++;
            examine->found->nodes_gone += page->fenced;
        }
        status = status == BANYAN_ENOTFOUND ? 0 : status;
    }
    free(page);
    return status;
}

static void tell(struct log_examination *found, const struct log_reader *reader,
                 void (*visit)(void *context, const struct log_fault *fault), void *context)
{
    found->frames = reader->frames;
    found->entries = reader->entries;
    found->watermark = reader->watermark;
    found->sequence = reader->sequence;
    for (uint32_t i = 0; i < reader->fault_count; i++) {
        const struct log_fault *fault = &reader->faults[i];
        found->faults++;
        found->mended += fault->mended != NULL;
        found->lost_bytes += fault->mended ? 0 : fault->bytes;
        if (visit)
            visit(context, fault);
    }
}

int log_examine(struct tree_session *session, uint16_t memory_nodes, struct fabric_process process,
                void (*visit)(void *context, const struct log_fault *fault), void *context,
                struct log_examination *examination)
{
    struct examine examine = {
        .session = session, .process = process, .memory_nodes = memory_nodes, .found = examination};
    struct heap heap = {.first = NULL};
    struct log_reader reader = {
        .heap = &heap, .session = session, .process = process, .memory_nodes = memory_nodes, .whole = true};
    *examination = (struct log_examination){0};
    pool_session_begin(tree_session_pool(session));
    int status = nodes_count(&examine);
    if (!status && examination->nodes == examination->nodes_gone) {
        status = log_reader_run(&reader);
        if (!status)
            tell(examination, &reader, visit, context);
        log_reader_end(&reader);
    }
    heap_clear(&heap);
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
