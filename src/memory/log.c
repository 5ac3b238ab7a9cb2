/*
 * log.c - the service LOG: control blocks and segments of owners' logs (request.h says what each kind does,
 * docs/internals/log.md what for).
 *
 * WHOSE THEY ARE. A process takes and gives for itself alone: its compute id is that of its connection, its
 * instance is what it says, as with BOARD. A fencing changes nothing but a mark: what the process has written
 * is what a successor reads. From then on others may release it, and it cannot take or give before it has
 * opened its log again.
 *
 * WHO GETS HOW MUCH. All segments together have at most `most` bytes (--log-bytes). A process's first two
 * segments (with two, one is written while the other one is merged) get what is asked, at most an eighth of
 * what is left, and at least MEMORY_LOG_SEGMENT_LEAST while so much is left: so later processes get smaller
 * segments rather than none. Further segments get what is left of a quarter of `most` for this process, and
 * of half of `most` for all: the other half is never taken by third segments, however many one process would
 * like.
 *
 * All of it is kept (keep.h), but for the marks of a fencing, since who opens a kept node fences everyone.
 * Each call is one change.
 *
 * Any thread. A call holds the node's spin lock for a look through the processes and one's segments; TAKE for
 * a step for each chunk of the pool besides.
 */
#include "memory/log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "memory/node.h"

#define CAPACITY_FIRST 4u
#define FIRST_SEGMENTS 2u
#define BUDGET_SHARE   32u

_Static_assert(MEMORY_LOG_SEGMENT_MOST % MEMORY_LOG_SEGMENT_LEAST == 0, "sizes are multiples of the least");

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t memory_log_bytes(uint64_t pool_bytes)
{
    uint64_t share = pool_bytes / BUDGET_SHARE;
    return share >= MEMORY_LOG_BYTES_LEAST ? share : lesser(MEMORY_LOG_BYTES_LEAST, pool_bytes / 4);
}

/* ---- records ---- */

static bool same(const struct memory_board_process *a, const struct memory_board_process *b)
{
    return a->instance == b->instance && a->compute_id == b->compute_id;
}

static struct memory_log_record *find(struct memory_log *log, const struct memory_board_process *process)
{
    for (uint32_t i = 0; i < log->count; i++)
        if (same(&log->records[i].process, process))
            return &log->records[i];
    return NULL;
}

/* Room for one more; false: no memory. `item` bytes each. */
static bool reserve(void **items, uint32_t count, uint32_t *capacity, size_t item)
{
    if (count < *capacity)
        return true;
    uint32_t more = *capacity ? *capacity * 2 : CAPACITY_FIRST;
    void *grown = realloc(*items, more * item);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = more;
    return true;
}

static void forget(struct memory_log *log, struct memory_log_record *record)
{
    size_t after = (size_t)(&log->records[log->count] - (record + 1));
    assert(record->count == 0 && record->bytes == 0);
    free(record->segments);
    memmove(record, record + 1, after * sizeof *record);
    log->count--;
}

void memory_log_clear(struct memory_log *log)
{
    for (uint32_t i = 0; i < log->count; i++)
        free(log->records[i].segments);
    free(log->records);
    *log = (struct memory_log){.keep = log->keep, .most = log->most};
}

/* ---- slots ---- */

static void set(struct memory_log *log, uint64_t *word, uint64_t value)
{
    keep_set(&log->keep->node, word, value);
}

/* A slot is what its serial says: the others of its words may be anything in a free one. There is one: there
 * are as many as records can be, and as segments fit into `most`. */
static struct keep_process *process_slot(struct memory_log *log, uint64_t serial,
                                         const struct memory_board_process *process, gaddr control)
{
    struct keep_process *slot = log->keep->processes;
    while (slot->serial != 0)
        slot++;
    set(log, &slot->serial, serial);
    slot->process = *process;
    slot->control = control;
    return slot;
}

static struct keep_segment *segment_slot(struct memory_log *log, uint64_t serial,
                                         const struct memory_log_segment *segment)
{
    uint32_t slots = log->keep->layout.segments;
    while (log->keep->segments[log->next % slots].serial != 0)
        log->next++;
    struct keep_segment *slot = &log->keep->segments[log->next++ % slots];
    set(log, &slot->serial, serial);
    slot->segment = *segment;
    return slot;
}

/* ---- blocks ---- */

static void block_zero(struct memory_node *node, gaddr block, uint32_t bytes)
{
    static const uint8_t zeros[MEMORY_LOG_CONTROL_BYTES];
    assert(bytes <= sizeof zeros);
    /* Atomic: an address from an earlier time may be read meanwhile. */
    atomic_copy_to(node->target.pool + gaddr_offset(block), zeros, bytes);
}

static void block_give(struct memory_node *node, gaddr block, uint64_t bytes)
{
    bool given = blocks_log_give(node->blocks, gaddr_offset(block) - memory_node_first_chunk(node), bytes);
    assert(given); /* FREE does not take it, and only what was handed out stands in the records */
    (void)given;
}

/* ---- OPEN ---- */

/* Only one process at a time has the compute id: another one that has a log here is gone. */
static void supersede(struct memory_log *log, const struct memory_board_process *caller)
{
    for (uint32_t i = 0; i < log->count; i++)
        if (log->records[i].process.compute_id == caller->compute_id &&
            log->records[i].process.instance != caller->instance)
            log->records[i].fenced = true;
}

static int open_new(struct memory_node *node, const struct memory_board_process *caller,
                    struct memory_log_reply *reply)
{
    struct memory_log *log = &node->log;
    uint64_t offset;
    if (log->count == MEMORY_LOG_PROCESSES_MAX) {
        reply->refusal = MEMORY_LOG_NO_PROCESS;
        return BANYAN_OK;
    }
    void *records = log->records;
    bool room = reserve(&records, log->count, &log->capacity, sizeof *log->records);
    log->records = records;
    if (!room)
        return BANYAN_ENOMEM;
    if (!blocks_log_control(node->blocks, MEMORY_LOG_CONTROL_BYTES, &offset)) {
        reply->refusal = MEMORY_LOG_NO_SPACE;
        return BANYAN_OK;
    }
    gaddr control = memory_node_block_address(node, offset);
    block_zero(node, control, MEMORY_LOG_CONTROL_BYTES);
    set(log, &log->keep->log->serials, log->keep->log->serials + 1);
    log->records[log->count++] =
        (struct memory_log_record){.process = *caller,
                                   .serial = log->keep->log->serials,
                                   .control = control,
                                   .slot = process_slot(log, log->keep->log->serials, caller, control)};
    return BANYAN_OK;
}

static int open_log(struct memory_node *node, const struct memory_board_process *caller,
                    struct memory_log_reply *reply)
{
    struct memory_log_record *record = find(&node->log, caller);
    supersede(&node->log, caller);
    if (record == NULL)
        return open_new(node, caller, reply);
    record->fenced = false;
    return BANYAN_OK;
}

/* ---- TAKE ---- */

/* Bytes of segments beyond the process's first two. */
static uint64_t further_bytes(const struct memory_log_record *record)
{
    uint64_t bytes = record->bytes;
    for (uint32_t i = 0; i < record->count && i < FIRST_SEGMENTS; i++)
        bytes -= record->segments[i]->segment.bytes;
    return bytes;
}

/* What the process may have now for a segment of at most `asked` bytes; 0: nothing, see *refusal. */
static uint64_t grant(const struct memory_log *log, const struct memory_log_record *record, uint64_t asked,
                      uint32_t *refusal)
{
    const uint64_t least = MEMORY_LOG_SEGMENT_LEAST, left = log->most - log->used;
    uint64_t most = lesser(asked, MEMORY_LOG_SEGMENT_MOST);
    assert(log->used <= log->most);
    *refusal = MEMORY_LOG_NO_BUDGET;
    if (left < least)
        return 0;
    most = lesser(most, left / 8);
    most = most > least ? most : least;
    if (record->count >= FIRST_SEGMENTS) {
        uint64_t own = further_bytes(record), share = log->most / 4, half = log->most / 2;
        *refusal = MEMORY_LOG_NO_SHARE;
        if (record->count == MEMORY_LOG_SEGMENTS_MAX)
            return 0;
        most = lesser(most, own < share ? share - own : 0);
        most = lesser(most, log->used < half ? half - log->used : 0);
    }
    return most / least * least;
}

static int take(struct memory_node *node, struct memory_log_record *record, uint64_t asked,
                struct memory_log_reply *reply)
{
    struct memory_log *log = &node->log;
    uint64_t offset, bytes, most = grant(log, record, asked, &reply->refusal);
    if (most == 0)
        return BANYAN_OK;
    if (most > node->chunk_bytes) /* whole chunks, so that it shares none with others' blocks (blocks.h) */
        most -= most % node->chunk_bytes;
    void *segments = record->segments;
    bool room = reserve(&segments, record->count, &record->capacity, sizeof *record->segments);
    record->segments = segments;
    if (!room)
        return BANYAN_ENOMEM;
    reply->refusal = MEMORY_LOG_NO_SPACE;
    if (!blocks_log_take(node->blocks, most, MEMORY_LOG_SEGMENT_LEAST, MEMORY_LOG_SEGMENT_LEAST, &offset,
                         &bytes))
        return BANYAN_OK;
    reply->refusal = MEMORY_LOG_GRANTED;
    set(log, &log->keep->log->numbers, log->keep->log->numbers + 1);
    reply->segment = (struct memory_log_segment){.address = memory_node_block_address(node, offset),
                                                 .bytes = bytes,
                                                 .number = log->keep->log->numbers};
    block_zero(node, reply->segment.address, MEMORY_LOG_HEADER_BYTES);
    record->segments[record->count++] = segment_slot(log, record->serial, &reply->segment);
    record->bytes += bytes;
    log->used += bytes;
    log->segments++;
    assert(log->used <= log->most);
    return BANYAN_OK;
}

/* ---- GIVE and RELEASE ---- */

static void drop_segment(struct memory_node *node, struct memory_log_record *record, uint32_t at)
{
    struct memory_log_segment segment = record->segments[at]->segment;
    block_give(node, segment.address, segment.bytes);
    set(&node->log, &record->segments[at]->serial, 0);
    record->count--;
    memmove(&record->segments[at], &record->segments[at + 1],
            (record->count - at) * sizeof record->segments[0]);
    assert(record->bytes >= segment.bytes && node->log.used >= segment.bytes && node->log.segments > 0);
    record->bytes -= segment.bytes;
    node->log.used -= segment.bytes;
    node->log.segments--;
}

static int give(struct memory_node *node, struct memory_log_record *record,
                const struct memory_log_segment *segment)
{
    uint32_t at = 0;
    while (at < record->count && record->segments[at]->segment.number != segment->number)
        at++;
    if (at == record->count || record->segments[at]->segment.address != segment->address ||
        record->segments[at]->segment.bytes != segment->bytes)
        return BANYAN_EINVAL;
    drop_segment(node, record, at);
    return BANYAN_OK;
}

static int release(struct memory_node *node, const struct memory_board_process *caller,
                   const struct memory_board_process *process)
{
    struct memory_log_record *record = find(&node->log, process);
    if (record == NULL)
        return BANYAN_ENOTFOUND;
    if (!record->fenced && !same(caller, process))
        return BANYAN_EBUSY;
    while (record->count > 0)
        drop_segment(node, record, record->count - 1);
    block_give(node, record->control, MEMORY_LOG_CONTROL_BYTES);
    set(&node->log, &record->slot->serial, 0);
    forget(&node->log, record);
    return BANYAN_OK;
}

/* ---- LIST and PROCESSES ---- */

static int list(const struct memory_log_record *record, struct memory_call *call, uint64_t after)
{
    struct memory_log_segments reply;
    if (record == NULL)
        return BANYAN_ENOTFOUND;
    if (call->capacity < sizeof reply)
        return BANYAN_EINVAL;
    memset(&reply, 0, sizeof reply);
    reply.total = record->count;
    reply.fenced = record->fenced;
    reply.control = record->control;
    reply.bytes = record->bytes;
    for (uint32_t i = 0; i < record->count && reply.count < MEMORY_LOG_PAGE; i++)
        if (record->segments[i]->segment.number > after)
            reply.segments[reply.count++] = record->segments[i]->segment;
    call->reply_length =
        offsetof(struct memory_log_segments, segments) + reply.count * sizeof reply.segments[0];
    memcpy(call->reply, &reply, call->reply_length);
    return BANYAN_OK;
}

static int processes(const struct memory_log *log, struct memory_call *call, uint64_t after)
{
    struct memory_log_processes reply;
    if (call->capacity < sizeof reply)
        return BANYAN_EINVAL;
    memset(&reply, 0, sizeof reply);
    reply.total = log->count;
    reply.used = log->used;
    reply.most = log->most;
    for (uint32_t i = 0; i < log->count && reply.count < MEMORY_LOG_PAGE; i++) {
        const struct memory_log_record *record = &log->records[i];
        if (record->serial > after)
            reply.processes[reply.count++] = (struct memory_log_process){.process = record->process,
                                                                         .serial = record->serial,
                                                                         .control = record->control,
                                                                         .bytes = record->bytes,
                                                                         .segments = record->count,
                                                                         .fenced = record->fenced};
    }
    call->reply_length =
        offsetof(struct memory_log_processes, processes) + reply.count * sizeof reply.processes[0];
    memcpy(call->reply, &reply, call->reply_length);
    return BANYAN_OK;
}

/* ---- calls ---- */

/* OPEN, TAKE, GIVE and RELEASE. */
static int change(struct memory_node *node, uint32_t kind, const struct memory_board_process *caller,
                  const struct memory_log_request *request, struct memory_log_reply *reply)
{
    if (kind == MEMORY_LOG_OPEN)
        return open_log(node, caller, reply);
    if (kind == MEMORY_LOG_RELEASE)
        return release(node, caller, &request->process);
    struct memory_log_record *record = find(&node->log, caller);
    if (record == NULL)
        return BANYAN_ENOTFOUND;
    if (record->fenced)
        return BANYAN_ECONFLICT;
    assert(kind == MEMORY_LOG_TAKE || kind == MEMORY_LOG_GIVE); /* the registration has no other kind */
    return kind == MEMORY_LOG_TAKE ? take(node, record, request->bytes, reply)
                                   : give(node, record, &request->segment);
}

static int serve_change(struct memory_node *node, struct memory_call *call,
                        const struct memory_board_process *caller, const struct memory_log_request *request)
{
    struct memory_log_reply reply = {0};
    if (call->capacity < sizeof reply) /* first: what is granted must reach its owner */
        return BANYAN_EINVAL;
    keep_begin(&node->keep.node);
    int status = change(node, call->kind, caller, request, &reply);
    keep_end(&node->keep.node);
    if (status)
        return status;
    const struct memory_log_record *record = find(&node->log, caller);
    if (record != NULL) {
        reply.segments = record->count;
        reply.bytes = record->bytes;
        reply.control = record->control;
    }
    reply.used = node->log.used;
    reply.most = node->log.most;
    memcpy(call->reply, &reply, sizeof reply);
    call->reply_length = sizeof reply;
    return BANYAN_OK;
}

static int serve(void *context, struct memory_call *call)
{
    struct memory_node *node = context;
    struct memory_log_request request;
    if (call->length < sizeof request || call->compute_id == 0)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    const struct memory_board_process caller = {.instance = request.instance, .compute_id = call->compute_id};
    if (request.instance == 0)
        return BANYAN_EINVAL;
    int status = BANYAN_EINVAL;
    spinlock_lock(&node->lock);
    if (node->cluster_id != 0) {
        if (call->kind == MEMORY_LOG_LIST)
            status = list(find(&node->log, &request.process), call, request.after);
        else if (call->kind == MEMORY_LOG_PROCESSES)
            status = processes(&node->log, call, request.after);
        else
            status = serve_change(node, call, &caller, &request);
    }
    spinlock_unlock(&node->lock);
    return status;
}

static void fenced(void *context, uint16_t compute_id)
{
    struct memory_node *node = context;
    spinlock_lock(&node->lock);
    for (uint32_t i = 0; i < node->log.count; i++)
        if (node->log.records[i].process.compute_id == compute_id)
            node->log.records[i].fenced = true;
    spinlock_unlock(&node->lock);
}

/* ---- as it was kept ---- */

static int by_serial(const void *a, const void *b)
{
    const struct memory_log_record *left = a, *right = b;
    return (left->serial > right->serial) - (left->serial < right->serial);
}

static int by_number(const void *a, const void *b)
{
    const struct keep_segment *const *left = a, *const *right = b;
    uint64_t one = (*left)->segment.number, other = (*right)->segment.number;
    return (one > other) - (one < other);
}

static int no_memory(struct error *error)
{
    return error_set(error, BANYAN_ENOMEM, "no memory for the logs of a memory node");
}

static int contradiction(const struct memory_node *node, const void *slot, struct error *error)
{
    const uint8_t *base = node->keep.pages.start, *at = slot;
    return error_set(
        error, BANYAN_ECORRUPT,
        "pool file %s is damaged: its account of owners' logs contradicts that of its blocks (at "
        "byte %llu); move it away to begin with an empty pool",
        keep_name(&node->keep), (unsigned long long)(at - base));
}

static bool has_block(const struct memory_node *node, gaddr address, uint64_t bytes)
{
    return gaddr_node(address) == node->number && gaddr_offset(address) >= memory_node_first_chunk(node) &&
           blocks_log_has(node->blocks, gaddr_offset(address) - memory_node_first_chunk(node), bytes);
}

static int open_process(struct memory_node *node, struct keep_process *slot, struct error *error)
{
    struct memory_log *log = &node->log;
    void *records = log->records;
    bool room = reserve(&records, log->count, &log->capacity, sizeof *log->records);
    log->records = records;
    if (!room)
        return no_memory(error);
    if (!has_block(node, slot->control, MEMORY_LOG_CONTROL_BYTES))
        return contradiction(node, slot, error);
    log->records[log->count++] = (struct memory_log_record){.process = slot->process,
                                                            .serial = slot->serial,
                                                            .control = slot->control,
                                                            .fenced = true, /* D4 */
                                                            .slot = slot};
    return BANYAN_OK;
}

static int open_segment(struct memory_node *node, struct keep_segment *slot, struct error *error)
{
    struct memory_log *log = &node->log;
    const struct memory_log_record key = {.serial = slot->serial};
    struct memory_log_record *record =
        log->count > 0 ? bsearch(&key, log->records, log->count, sizeof key, by_serial) : NULL;
    if (record == NULL || record->count == MEMORY_LOG_SEGMENTS_MAX ||
        slot->segment.bytes > log->most - log->used ||
        !has_block(node, slot->segment.address, slot->segment.bytes))
        return contradiction(node, slot, error);
    void *segments = record->segments;
    bool room = reserve(&segments, record->count, &record->capacity, sizeof *record->segments);
    record->segments = segments;
    if (!room)
        return no_memory(error);
    record->segments[record->count++] = slot;
    record->bytes += slot->segment.bytes;
    log->used += slot->segment.bytes;
    log->segments++;
    return BANYAN_OK;
}

int memory_log_open(struct memory_node *node, struct error *error)
{
    struct memory_log *log = &node->log;
    int status = BANYAN_OK;
    log->keep = &node->keep;
    if (keep_checked(&node->keep, KEEP_USED_SINCE) == 0)
        return BANYAN_OK;
    for (uint32_t i = 0; i < MEMORY_LOG_PROCESSES_MAX && !status; i++)
        if (node->keep.processes[i].serial != 0)
            status = open_process(node, &node->keep.processes[i], error);
    if (log->count > 0)
        qsort(log->records, log->count, sizeof *log->records, by_serial);
    for (uint32_t i = 0; i < node->keep.layout.segments && !status; i++)
        if (node->keep.segments[i].serial != 0)
            status = open_segment(node, &node->keep.segments[i], error);
    for (uint32_t i = 0; i < log->count; i++)
        if (log->records[i].count > 0)
            qsort(log->records[i].segments, log->records[i].count, sizeof(struct keep_segment *), by_number);
    /* Every block of a log has a slot: else there are more of them. */
    if (!status && log->count + log->segments != blocks_log_count(node->blocks))
        status = contradiction(node, node->keep.processes, error);
    return status;
}

static void report(void *context, struct memory_status_reply *status)
{
    struct memory_node *node = context;
    spinlock_lock(&node->lock);
    status->log_processes = node->log.count;
    status->log_segments = node->log.segments;
    status->log_bytes = node->log.used;
    status->log_bytes_max = node->log.most;
    spinlock_unlock(&node->lock);
}

const struct memory_service memory_log_service = {
    .name = "log", .roles = MEMORY_ROLE_DATA, .serve = serve, .fenced = fenced, .report = report};
