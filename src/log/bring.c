/*
 * bring.c - Pieces of a long value are brought to the disks that will have its entry (P17 of
 * docs/internals/durability.md). A frame's second copy carries the header of a value in pieces, as it carries
 * other records (carry.c); the pieces are too long for a log. So before the entry goes into a frame its owner
 * asks the second memory node which of them its journal lacks, READs those, WRITEs them to a block of that
 * one's pool, and has them taken (BRING of memory/request.h). The same goes for pieces that lie elsewhere
 * than the header, and the first memory node.
 *
 * Costs a READ of the header and a call for each memory node and 256 pieces; and for what is lacking, in
 * steps of 256 KiB, a READ, a WRITE and a call. The block is given back at once. Pieces that this process
 * has just written itself are neither READ nor asked for (tree_session_at_hand).
 */
#include <string.h>

#include "base/task.h"
#include "format/record.h"
#include "log/state.h"
#include "memory/request.h"

#define STAGED_MAX    (256u << 10)
#define BUSY_FIRST_NS (50 * MICROSECOND)
#define BUSY_LAST_NS  (5 * MILLISECOND)

struct bring {
    struct log *log;
    struct tree_session *session;
    size_t key_length;
    uint8_t *header; /* owned */
    uint32_t pieces;
    uint8_t *bytes; /* owned: STAGED_MAX */
    struct memory_bring_request request;
    struct memory_bring_reply reply;
    struct memory_bring_piece asked[MEMORY_BRING_MAX];
    struct fabric_command reads[FABRIC_COMMANDS_MAX];
};

static struct pool_session *pool_of(const struct bring *bring)
{
    return tree_session_pool(bring->session);
}

/* ---- one memory node's calls ---- */

static int bring_call(struct bring *bring, uint16_t node)
{
    const uint64_t began = task_now();
    const size_t bytes = offsetof(struct memory_bring_request, pieces) +
                         bring->request.count * sizeof bring->request.pieces[0];
    uint64_t pause = BUSY_FIRST_NS;
    for (;;) {
        size_t length;
        int status = pool_call(pool_of(bring), node, &bring->request, bytes, &bring->reply,
                               sizeof bring->reply, &length);
        if (!status)
            return length == sizeof bring->reply ? 0 : BANYAN_EINVAL;
        if (status != BANYAN_EBUSY)
            return status;
        if (task_now() - began > bring->log->options.wait_ns)
            return pool_node_failed(pool_of(bring), BANYAN_ENOSPC, node,
                                    "the log: its disk does not take a long value; bringing that");
        task_sleep(pause);
        pause = pause < BUSY_LAST_NS ? 2 * pause : pause;
    }
}

static bool is_missing(const struct bring *bring, uint32_t number)
{
    return bring->reply.missing[number / 64] >> (number % 64) & 1;
}

static const void *at_hand(const struct bring *bring, const struct memory_bring_piece *piece)
{
    return tree_session_find_at_hand(bring->session, piece->address, piece->length);
}

/* The pieces of the request come into bring->bytes, one behind the other: those are READ that this process
 * has not just written. */
static int pieces_read(struct bring *bring)
{
    struct fabric_command *reads = bring->reads;
    uint32_t at = 0, posted = 0;
    int status = 0;
    for (uint32_t i = 0; i < bring->request.count && !status; i++) {
        const struct memory_bring_piece *piece = &bring->request.pieces[i];
        const uint16_t node = gaddr_node(piece->address);
        const void *bytes = at_hand(bring, piece);
        if (bytes)
            memcpy(bring->bytes + at, bytes, piece->length);
        else
            reads[posted++] = pool_read_command(piece->address, bring->bytes + at, piece->length);
        at += piece->length;
        if (!posted || (i + 1 < bring->request.count && gaddr_node(piece[1].address) == node))
            continue;
        status = pool_execute(pool_of(bring), node, reads, posted);
        for (uint32_t n = 0; n < posted && !status; n++)
            pool_read_settle(&reads[n]);
        posted = 0;
    }
    return status;
}

/* Those pieces of the request, which the memory node lacks. */
static int pieces_stage(struct bring *bring, uint16_t node)
{
    struct pool_session *pool = pool_of(bring);
    uint32_t length = 0, at = 0;
    gaddr block;
    for (uint32_t i = 0; i < bring->request.count; i++)
        length += bring->request.pieces[i].length;
    int status = pieces_read(bring);
    if (!status)
        status = pool_block_allocate_staging(pool, node, length, &block);
    /* No room there: then the value is not brought, and told as one that has one copy. The write itself needs
     * no room there. */
    if (status == BANYAN_ENOSPC)
        return BANYAN_EBUSY;
    if (status)
        return status;
    struct fabric_command write = pool_write_command(block, bring->bytes, length);
    status = pool_execute(pool, node, &write, 1);
    const bool late = status == BANYAN_ENET || status == BANYAN_ETIMEOUT || status == BANYAN_EFENCED;
    for (uint32_t i = 0; i < bring->request.count; i++) {
        bring->request.pieces[i].staged = block + at;
        at += bring->request.pieces[i].length;
    }
    if (!status)
        status = bring_call(bring, node);
    if (!late) /* else the WRITE may come yet */
        pool_block_release(pool, block, length);
    for (uint32_t i = 0; i < bring->request.count && !status; i++)
        status = is_missing(bring, i) ? BANYAN_ENOTFOUND : 0;
    if (!status)
        log_count(&bring->log->stats.brought, length);
    return status;
}

/* Of the pieces that were asked for, those that are missing, as many together as are staged at once. */
static int missing_bring(struct bring *bring, uint16_t node)
{
    struct memory_bring_piece *asked = bring->asked;
    const struct memory_bring_reply told = bring->reply;
    const uint32_t count = bring->request.count;
    uint32_t bytes = 0;
    int status = 0;
    memcpy(asked, bring->request.pieces, count * sizeof *asked);
    bring->request.count = 0;
    for (uint32_t i = 0; i < count && !status; i++) {
        if (!(told.missing[i / 64] >> (i % 64) & 1))
            continue;
        if (bytes + asked[i].length > STAGED_MAX || bring->request.count == FABRIC_COMMANDS_MAX) {
            status = pieces_stage(bring, node);
            bring->request.count = bytes = 0;
        }
        bring->request.pieces[bring->request.count++] = asked[i];
        bytes += asked[i].length;
    }
    return status || !bring->request.count ? status : pieces_stage(bring, node);
}

/* Which pieces of the request are missing. Those that were just written are: that needs no question. */
static int pieces_ask(struct bring *bring, uint16_t node)
{
    bool fresh = true;
    for (uint32_t i = 0; i < bring->request.count && fresh; i++)
        fresh = at_hand(bring, &bring->request.pieces[i]);
    if (!fresh)
        return bring_call(bring, node);
    memset(&bring->reply, 0xff, sizeof bring->reply);
    return 0;
}

/* How long the entry may take until it is in a frame, and the frame in the pool: for room, then for batches
 * that are under way. */
static uint32_t hold_ms(const struct log *log)
{
    const uint64_t most = log->options.wait_ns / MILLISECOND + MEMORY_BRING_HOLD_MS;
    return most < MEMORY_BRING_HOLD_MS_MAX ? (uint32_t)most : MEMORY_BRING_HOLD_MS_MAX;
}

/* All pieces of the header that lie elsewhere; *any: there are some. */
static int node_bring(struct bring *bring, uint16_t node, bool *any)
{
    int status = 0;
    *any = false;
    for (uint32_t i = 0; i < bring->pieces && !status;) {
        bring->request.kind = MEMORY_BRING;
        bring->request.count = 0;
        for (; i < bring->pieces && bring->request.count < MEMORY_BRING_MAX; i++) {
            const struct format_piece piece = format_record_piece(bring->header, bring->key_length, i);
            if (piece.block == GADDR_NULL || gaddr_node(piece.block) == node)
                continue;
            bring->request.pieces[bring->request.count++] =
                (struct memory_bring_piece){.address = format_piece_address(bring->key_length, &piece),
                                            .hash = piece.hash,
                                            .length = piece.length,
                                            .hold_ms = hold_ms(bring->log)};
        }
        if (!bring->request.count)
            continue;
        *any = true;
        status = pieces_ask(bring, node);
        if (!status)
            status = missing_bring(bring, node);
    }
    return status;
}

/* The same. Pieces that a memory node has taken, and has not written yet, end with its process: where no
 * commit waits for its disk this does. */
static int node_bring_safe(struct bring *bring, uint16_t node)
{
    uint32_t at;
    bool any;
    int status = node_bring(bring, node, &any);
    return status || !any || fabric_durability(bring->log->fabric, node) != FABRIC_KEPT_ON_DISK
               ? status
               : log_persist(bring->log, bring->session, &node, 1, &at);
}

/* ---- an entry ---- */

static int header_fetch(struct bring *bring, const struct tree_logged_entry *entry)
{
    const void *bytes = tree_session_find_at_hand(bring->session, entry->record, entry->record_bytes);
    if (bytes) {
        memcpy(bring->header, bytes, entry->record_bytes);
        return 0;
    }
    struct fabric_command read = pool_read_command(entry->record, bring->header, entry->record_bytes);
    int status = pool_execute(pool_of(bring), gaddr_node(entry->record), &read, 1);
    if (!status)
        pool_read_settle(&read);
    return status;
}

/* 1: the header is not what the entry's value names: nobody can read it. */
static int header_read(struct bring *bring, const struct tree_logged_entry *entry)
{
    struct heap *heap = &bring->log->heap;
    struct format_value value;
    struct format_record record;
    bring->key_length = entry->key.length;
    bring->header = heap_allocate(heap, entry->record_bytes);
    bring->bytes = heap_allocate(heap, STAGED_MAX);
    if (!bring->header || !bring->bytes)
        return pool_fail_memory(pool_of(bring));
    int status = header_fetch(bring, entry);
    if (status)
        return status;
    if (!format_value_decode(entry->value.bytes, entry->value.length, &value) ||
        !format_record_validate(&value.reference, entry->key.bytes, entry->key.length, FORMAT_PART_HEADER,
                                bring->header, &record))
        return 1;
    bring->pieces = record.pieces;
    return 0;
}

/* The operation ends with it: as for a frame whose second copy finds no room. A value that is
 * doubtful has to be logged again all the same. */
static bool is_serious(const struct tree_logged_entry *entry, int status)
{
    return status == BANYAN_EFENCED ||
           (!entry->again && (status == BANYAN_ENOSPC || status == BANYAN_ENOMEM));
}

static int nodes_bring(struct bring *bring, uint16_t home, uint16_t *brought)
{
    struct log *log = bring->log;
    for (uint32_t attempt = 0; attempt + 1 < log_nodes(log); attempt++) {
        const uint16_t node = log_copy_node(log, home, attempt);
        if (fabric_durability(log->fabric, node) < FABRIC_KEPT_ON_DISK)
            continue;
        int status = node_bring_safe(bring, node);
        if (!status)
            *brought = node;
        if (status != BANYAN_ENET && status != BANYAN_ETIMEOUT)
            return status;
    }
    return 0;
}

int log_bring(struct log *log, struct tree_session *session, uint16_t home, struct tree_logged_entry *entry)
{
    entry->brought = POOL_ANY_NODE;
    if (!entry->in_pieces || !log_carries(log))
        return 0;
    struct bring *bring = heap_allocate_zeros(&log->heap, 1, sizeof *bring);
    if (!bring)
        return pool_fail_memory(tree_session_pool(session));
    bring->log = log;
    bring->session = session;
    int status = header_read(bring, entry);
    if (!status && fabric_durability(log->fabric, home) >= FABRIC_KEPT_ON_DISK)
        status = node_bring_safe(bring, home);
    if (!status)
        status = nodes_bring(bring, home, &entry->brought);
    heap_free(&log->heap, bring->header);
    heap_free(&log->heap, bring->bytes);
    heap_free(&log->heap, bring);
    return is_serious(entry, status) ? status : 0;
}
