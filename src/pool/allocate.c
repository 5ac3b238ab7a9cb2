/*
 * allocate.c - Blocks and tags (Sherman §4.2, two-stage allocation), for nodes of the tree and for data. A
 * block costs nothing until its worker has used up those of its size, then one RPC for a batch; a tag costs
 * one FAA in 1,024. Fails with BANYAN_ENOSPC when no memory node has room, even after the workers of this
 * process have returned what they hold back.
 */
#include "pool/state.h"

#include <assert.h>
#include <string.h>

#include "base/task.h"

#define TAG_RUN 1024u
/* While their memory node cannot be reached, a worker keeps so many batches of free blocks of one size;
 * what comes then is left to an offline check. */
#define BATCHES_MAX 64u
/* How many more bytes one memory node may have given than the least used one before it is passed over. */
#define IMBALANCE_MAX (256u << 10)
/* How often, and how long, a worker without space looks whether others have returned some; after it has done
 * so in vain the next one waits not before so long. */
#define WAITS      10u
#define WAIT_NS    UINT64_C(500000)
#define WAIT_AGAIN UINT64_C(1000000000)

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- asking memory nodes ---- */

static bool reply_good(const struct memory_allocate_reply *reply, size_t length, uint16_t node,
                       const struct memory_allocate_request *request)
{
    const size_t start = offsetof(struct memory_allocate_reply, blocks);
    if (length < start || !reply->count || reply->count > request->want ||
        length < start + reply->count * sizeof(gaddr))
        return false;
    if (reply->block_bytes != request->block_bytes &&
        (!request->least_bytes || reply->count > 1 || reply->block_bytes < request->least_bytes ||
         reply->block_bytes > request->block_bytes ||
         memory_block_index(reply->block_bytes) == MEMORY_BLOCK_SIZES))
        return false;
    for (uint32_t i = 0; i < reply->count; i++)
        if (gaddr_node(reply->blocks[i]) != node || !gaddr_offset(reply->blocks[i]) ||
            gaddr_offset(reply->blocks[i]) % MEMORY_BLOCK_MIN)
            return false;
    return true;
}

/* One RPC. */
static int ask(struct pool_session *session, uint16_t node, const struct memory_allocate_request *request,
               struct memory_allocate_reply *reply)
{
    size_t length;
    int status = fabric_call(session->endpoint, node, request, sizeof *request, reply, sizeof *reply, &length,
                             session->cost);
    if (status) /* EFENCED: no connection; an operation must not begin again at once for that */
        return status == BANYAN_EFENCED ? BANYAN_ENET : status;
    if (!reply_good(reply, length, node, request))
        return BANYAN_ENET;
    session->worker->kept[node].keep = reply->keep * (uint64_t)MEMORY_KEEP_UNIT;
    return 0;
}

static int arena_fetch(struct pool_session *session, uint16_t node, enum memory_purpose purpose,
                       uint32_t bytes, struct pool_arena *arena)
{
    struct pool_worker *worker = session->worker;
    const struct pool_kept *kept = &worker->kept[node];
    /* A batch is a small part of what may be kept: there may be many sizes. */
    uint64_t keep = pool_keep_bytes(worker, node) / 4 / bytes;
    struct memory_allocate_request request = {.kind = MEMORY_ALLOCATE,
                                              .block_bytes = bytes,
                                              .want = (uint16_t)(keep < arena->batch ? keep : arena->batch),
                                              .purpose = (uint16_t)purpose};
    struct memory_allocate_reply reply;
    request.want = request.want ? request.want : 1;
    if (kept->bytes + request.want * (uint64_t)bytes > pool_keep_bytes(worker, node) &&
        kept->bytes > kept->retry)
        pool_lists_return(worker, node, false, session->cost);
    /* First: what is handed out and cannot be remembered would be lost. */
    if (!pool_arena_reserve(arena, arena->count + request.want + 2 * pool_batch_max(bytes)))
        return BANYAN_ENOMEM;
    int status = ask(session, node, &request, &reply);
    if (status)
        return status;
    if (!pool_arena_reserve(arena, arena->count + reply.count)) /* other tasks have freed blocks meanwhile */
        return BANYAN_ENOMEM;
    for (uint32_t i = reply.count; i-- > 0;) /* the first is used first */
        pool_arena_push(worker, node, bytes, arena, reply.blocks[i]);
    arena->batch = lesser(2 * arena->batch, pool_batch_max(bytes));
    return 0;
}

/* Only one task of the worker at a time: a second batch would only wait for the first to be used up. */
static int arena_refill(struct pool_session *session, uint16_t node, enum memory_purpose purpose,
                        uint32_t bytes, struct pool_arena *arena)
{
    if (arena->refilling) {
        task_sleep(1000);
        return 0;
    }
    arena->refilling = true;
    int status = arena_fetch(session, node, purpose, bytes, arena);
    arena->refilling = false;
    return status;
}

/* ---- one memory node ---- */

/* What is asked for. */
struct wish {
    enum memory_purpose purpose;
    uint32_t bytes, least; /* sizes; the least is as large unless a smaller block will do */
    bool beside;           /* on the preferred memory node, whatever the others have given */
};

static int allocate_whole(struct pool_session *session, uint16_t node, const struct wish *wish, gaddr *block)
{
    struct pool_arena *arena = pool_arena_get(session->worker, node, wish->purpose, wish->bytes);
    int status = arena ? 0 : BANYAN_ENOMEM;
    while (!status && !arena->count)
        status = arena_refill(session, node, wish->purpose, wish->bytes, arena);
    if (!status)
        *block = pool_arena_pop(session->worker, node, wish->bytes, arena);
    return status;
}

static int allocate_part(struct pool_session *session, uint16_t node, const struct wish *wish, gaddr *block,
                         uint32_t *got)
{
    const struct memory_allocate_request request = {.kind = MEMORY_ALLOCATE,
                                                    .block_bytes = wish->bytes,
                                                    .want = 1,
                                                    .purpose = (uint16_t)wish->purpose,
                                                    .least_bytes = wish->least};
    struct memory_allocate_reply reply;
    int status = ask(session, node, &request, &reply);
    if (status)
        return status;
    *block = reply.blocks[0];
    *got = reply.block_bytes;
    return 0;
}

/* ---- all memory nodes ---- */

/* Whether anything new is to be put there. */
static bool takes(const struct pool_worker *worker, uint16_t node)
{
    return fabric_membership(worker->pool->fabric, node) == FABRIC_MEMBER;
}

static uint16_t least_used(const struct pool_worker *worker)
{
    uint16_t least = 0; /* the home node is always there */
    for (uint16_t node = 1; node < worker->memory_nodes; node++)
        if (worker->allocated[node] < worker->allocated[least] && takes(worker, node))
            least = node;
    return least;
}

/* From `preferred` on, until one has room. */
static int try_nodes(struct pool_session *session, uint16_t preferred, const struct wish *wish, bool part,
                     gaddr *block, uint32_t *got)
{
    struct pool_worker *worker = session->worker;
    int status = BANYAN_ENOSPC;
    uint16_t node = preferred;
    *got = wish->bytes;
    for (uint16_t i = 0; i < worker->memory_nodes && status == BANYAN_ENOSPC; i++) {
        node = (uint16_t)((preferred + i) % worker->memory_nodes);
        if (!takes(worker, node))
            continue;
        status = part ? allocate_part(session, node, wish, block, got)
                      : allocate_whole(session, node, wish, block);
    }
    if (!status)
        worker->allocated[node] += *got;
    return status && status != BANYAN_ENOSPC ? pool_node_failed(session, status, node, "allocating a block")
                                             : status;
}

/* Bytes that the other workers of the process hold back. */
static uint64_t held_by_others(const struct pool_worker *worker)
{
    struct pool *pool = worker->pool;
    uint64_t held = 0;
    spinlock_lock(&pool->lock);
    for (const struct pool_worker *other = pool->workers; other; other = other->next)
        if (other != worker)
            held += atomic_load_relaxed(&other->held); /* as of some moment */
    spinlock_unlock(&pool->lock);
    return held;
}

static int try_both(struct pool_session *session, uint16_t preferred, const struct wish *wish, gaddr *block,
                    uint32_t *got)
{
    int status = try_nodes(session, preferred, wish, false, block, got);
    if (status == BANYAN_ENOSPC && wish->least < wish->bytes)
        status = try_nodes(session, preferred, wish, true, block, got);
    return status;
}

/* The others are asked to return what they hold back; some of them may not run for a while, so the wait is
 * short. */
static int wait_for_others(struct pool_session *session, uint16_t preferred, const struct wish *wish,
                           gaddr *block, uint32_t *got)
{
    struct pool *pool = session->worker->pool;
    int status = BANYAN_ENOSPC;
    if (!held_by_others(session->worker))
        return status;
    atomic_add_relaxed(&pool->shorts, 1); /* a hint, see pool_lists_mind */
    session->worker->shorts_seen = atomic_load_relaxed(&pool->shorts);
    uint64_t waited = atomic_load_relaxed(&pool->waited_at), now = task_now(); /* at worst two wait */
    if (waited && now < waited + WAIT_AGAIN)
        return status;
    for (unsigned i = 0; status == BANYAN_ENOSPC && i < WAITS && held_by_others(session->worker); i++) {
        task_sleep(WAIT_NS);
        status = try_both(session, preferred, wish, block, got);
    }
    if (status == BANYAN_ENOSPC)
        atomic_store_relaxed(&pool->waited_at, now);
    return status;
}

static int allocate(struct pool_session *session, uint16_t preferred, const struct wish *wish, gaddr *block,
                    uint32_t *got)
{
    struct pool_worker *worker = session->worker;
    uint16_t least = least_used(worker);
    pool_lists_mind(worker);
    if (preferred >= worker->memory_nodes ||
        (!wish->beside && worker->allocated[preferred] > worker->allocated[least] + IMBALANCE_MAX))
        preferred = least;
    int status = try_nodes(session, preferred, wish, false, block, got);
    if (status == BANYAN_ENOSPC && worker->held) {
        pool_worker_return(worker);
        status = try_nodes(session, preferred, wish, false, block, got);
    }
    if (status == BANYAN_ENOSPC && wish->least < wish->bytes)
        status = try_nodes(session, preferred, wish, true, block, got);
    if (status == BANYAN_ENOSPC)
        status = wait_for_others(session, preferred, wish, block, got);
    if (status == BANYAN_ENOSPC)
        return pool_fail(session, status, "all %u memory nodes are full: no block of %u bytes left",
                         worker->memory_nodes, wish->least);
    return status;
}

static void release(struct pool_session *session, enum memory_purpose purpose, gaddr block, uint32_t bytes)
{
    struct pool_worker *worker = session->worker;
    uint16_t node = gaddr_node(block);
    if (!pool_knows(session, node))
        return; /* only a corrupt link names such a node: there is nothing to free */
    pool_lists_mind(worker);
    worker->allocated[node] -= worker->allocated[node] < bytes ? worker->allocated[node] : bytes;
    if (worker->emptying_count && pool_ranges_hold(worker->emptying, worker->emptying_count, block) &&
        pool_lists_leave(worker, node, purpose, bytes, block, session->cost))
        return;
    struct pool_arena *arena = pool_arena_get(worker, node, purpose, bytes);
    const uint32_t batch = pool_batch_max(bytes);
    if (!arena || arena->count >= BATCHES_MAX * batch ||
        (arena->count == arena->capacity && !pool_arena_reserve(arena, arena->count + batch)))
        return; /* no memory to remember it in: an offline check reclaims it */
    pool_arena_push(worker, node, bytes, arena, block);
    const struct pool_kept *kept = &worker->kept[node];
    if (kept->bytes > pool_keep_bytes(worker, node) && kept->bytes > kept->retry)
        pool_lists_return(worker, node, false, session->cost);
}

/* ---- the calls of pool.h ---- */

int pool_allocate(struct pool_session *session, uint16_t preferred, uint32_t bytes, gaddr *block)
{
    const struct wish wish = {.purpose = MEMORY_FOR_NODES, .bytes = bytes, .least = bytes};
    uint32_t got;
    return allocate(session, preferred, &wish, block, &got);
}

int pool_allocate_beside(struct pool_session *session, uint16_t node, uint32_t bytes, gaddr *block)
{
    const struct wish wish = {.purpose = MEMORY_FOR_NODES, .bytes = bytes, .least = bytes, .beside = true};
    uint32_t got;
    return allocate(session, node, &wish, block, &got);
}

void pool_release(struct pool_session *session, gaddr block, uint32_t bytes)
{
    release(session, MEMORY_FOR_NODES, block, bytes);
}

static int allocate_data(struct pool_session *session, gaddr near, bool beside, uint32_t bytes,
                         uint32_t least, gaddr *block, uint32_t *got)
{
    const struct wish wish = {.purpose = MEMORY_FOR_DATA,
                              .bytes = memory_block_bytes(bytes),
                              .least = memory_block_bytes(least),
                              .beside = beside};
    if (!bytes || !wish.bytes)
        return pool_fail(session, BANYAN_EINVAL, "a block has 1 to %u bytes, not %u", MEMORY_BLOCK_MAX,
                         bytes);
    return allocate(session, near ? gaddr_node(near) : POOL_ANY_NODE, &wish, block, got);
}

int pool_block_allocate(struct pool_session *session, gaddr near, uint32_t bytes, gaddr *block)
{
    uint32_t got;
    return allocate_data(session, near, false, bytes, bytes, block, &got);
}

int pool_block_allocate_beside(struct pool_session *session, gaddr near, uint32_t bytes, gaddr *block)
{
    uint32_t got;
    return allocate_data(session, near, true, bytes, bytes, block, &got);
}

int pool_block_allocate_part(struct pool_session *session, gaddr near, uint32_t bytes, uint32_t least,
                             gaddr *block, uint32_t *got)
{
    if (!least || least > bytes)
        return pool_fail(session, BANYAN_EINVAL, "a part has 1 to %u bytes, not %u", bytes, least);
    return allocate_data(session, near, false, bytes, least, block, got);
}

/* Past the worker's lists: one block of that memory node alone. */
static int ask_for_staging(struct pool_session *session, uint16_t node, uint32_t bytes, gaddr *block)
{
    const struct memory_allocate_request request = {.kind = MEMORY_ALLOCATE,
                                                    .block_bytes = memory_block_bytes(bytes),
                                                    .want = 1,
                                                    .purpose = MEMORY_FOR_STAGING};
    struct memory_allocate_reply reply;
    int status = ask(session, node, &request, &reply);
    if (status)
        return pool_node_failed(session, status, node, "allocating a block for a while");
    *block = reply.blocks[0];
    session->worker->allocated[node] += request.block_bytes;
    return 0;
}

int pool_block_allocate_staging(struct pool_session *session, uint16_t node, uint32_t bytes, gaddr *block)
{
    int status = pool_block_allocate_beside(session, gaddr_make(node, MEMORY_BLOCK_MIN), bytes, block);
    if (!status && gaddr_node(*block) == node)
        return 0;
    if (!status)
        pool_block_release(session, *block, bytes);
    return !status || status == BANYAN_ENOSPC ? ask_for_staging(session, node, bytes, block) : status;
}

void pool_block_release(struct pool_session *session, gaddr block, uint32_t bytes)
{
    uint32_t block_bytes = memory_block_bytes(bytes);
    if (block && block_bytes)
        release(session, MEMORY_FOR_DATA, block, block_bytes);
}

void pool_worker_weigh(struct pool_worker *worker, uint16_t node, uint64_t bytes)
{
    if (node < worker->memory_nodes)
        worker->allocated[node] = bytes;
}

/* ---- memory nodes that are emptied ---- */

int pool_node_status(struct pool_session *session, uint16_t node, struct memory_status_reply *status)
{
    const struct memory_status_request request = {.kind = MEMORY_STATUS};
    size_t length;
    int failed = pool_call(session, node, &request, sizeof request, status, sizeof *status, &length);
    if (!failed && length < sizeof *status)
        failed = BANYAN_ENET;
    return failed ? pool_node_failed(session, failed, node, "asking for its status") : 0;
}

int pool_node_heat(struct pool_session *session, uint16_t node, uint64_t from, struct memory_heat_reply *heat)
{
    const struct memory_heat_request request = {.kind = MEMORY_HEAT, .from = from};
    size_t length;
    int status = pool_call(session, node, &request, sizeof request, heat, sizeof *heat, &length);
    const size_t fixed = offsetof(struct memory_heat_reply, places);
    /* Samples of before would be asked for without end. */
    if (!status && (length < fixed || heat->count > MEMORY_HEAT_MOST || heat->first < from ||
                    length < fixed + heat->count * sizeof heat->places[0]))
        status = BANYAN_ENET;
    return status ? pool_node_failed(session, status, node, "asking what its commands work on") : 0;
}

int pool_node_drain(struct pool_session *session, uint16_t node, bool on)
{
    const struct memory_drain_request request = {.kind = MEMORY_DRAIN, .on = on};
    uint8_t reply[8];
    size_t length;
    int status = pool_call(session, node, &request, sizeof request, reply, sizeof reply, &length);
    if (status)
        return pool_node_failed(session, status, node, "DRAIN");
    pool_lists_return(session->worker, node, true, session->cost);
    return 0;
}

/* ---- tags ---- */

int pool_take_tag(struct pool_session *session, uint16_t node, uint32_t *tag)
{
    struct pool_tags *tags = &session->worker->tags[node];
    while (!tags->left) {
        struct fabric_command command = {.operation = FABRIC_FAA,
                                         .address = gaddr_make(node, MEMORY_NEXT_TAG_OFFSET),
                                         .faa = {.add = TAG_RUN}};
        int status = pool_execute(session, node, &command, 1);
        if (status)
            return status;
        tags->next = (uint32_t)command.faa.old;
        tags->left = TAG_RUN;
    }
    tags->left--;
    *tag = tags->next++;
    return *tag ? 0 : pool_take_tag(session, node, tag); /* 0 is no tag */
}
