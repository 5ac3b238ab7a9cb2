/* cluster.c - see cluster.h. LIST and SET cost a copy of some KiB, under the node's lock; any thread. */
#include "memory/cluster.h"

#include <string.h>

#include "base/crc32c.h"
#include "memory/node.h"

_Static_assert(sizeof(struct memory_cluster_place) <= MEMORY_CLUSTER_PLACE_BYTES, "a list fits its place");
_Static_assert(MEMORY_CLUSTER_OFFSET + 2 * MEMORY_CLUSTER_PLACE_BYTES <= MEMORY_LOCK_TABLE_OFFSET,
               "both places fit below the locks");
_Static_assert(MEMORY_CLUSTER == (int)WIRE_CLUSTER_LIST && MEMORY_CLUSTER_LAST == (int)WIRE_CLUSTER_SET,
               "the fabric asks by the numbers that memory/request.h has for them");
_Static_assert(MEMORY_JOURNALS == (int)WIRE_JOURNALS, "likewise");

/* ---- the places ---- */

static struct memory_cluster_place *place_of(const struct memory_node *node, unsigned which)
{
    uint8_t *at = node->target.pool + MEMORY_CLUSTER_OFFSET + which * MEMORY_CLUSTER_PLACE_BYTES;
    return (struct memory_cluster_place *)(void *)at;
}

static uint32_t check_of(const struct memory_cluster_place *place)
{
    return crc32c(0, &place->list, wire_cluster_bytes(place->list.count));
}

/* A copy of what stands there, if that is a list of this node's cluster. */
static bool place_read(const struct memory_node *node, unsigned which, struct memory_cluster_place *copy)
{
    memcpy(copy, place_of(node, which), sizeof *copy);
    return copy->list.count <= WIRE_CLUSTER_NODES_MAX && copy->check == check_of(copy) &&
           wire_cluster_valid(&copy->list, wire_cluster_bytes(copy->list.count)) &&
           copy->list.cluster_id == node->cluster_id && copy->list.generation != 0;
}

/* The one that counts; -1: there is none. */
static int newest(const struct memory_node *node, struct memory_cluster_place *copy)
{
    int found = -1;
    struct memory_cluster_place other;
    copy->list.generation = 0;
    for (int which = 0; which < 2; which++)
        if (place_read(node, (unsigned)which, &other) && other.list.generation > copy->list.generation) {
            *copy = other;
            found = which;
        }
    return found;
}

/* A process that dies here leaves a place without a check, or the whole of it: see cluster.h. */
static void place_write(struct memory_node *node, unsigned which, struct memory_cluster_place *next)
{
    struct memory_cluster_place *place = place_of(node, which);
    next->check = check_of(next);
    atomic_store_release(&place->check, ~next->check);
    /* A full fence: what was there counts no more before the first byte of the new one. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    memcpy(&place->list, &next->list, wire_cluster_bytes(next->list.count));
    atomic_store_release(&place->check, next->check); /* release: behind the list */
}

void memory_cluster_open(struct memory_node *node)
{
    struct memory_cluster_place copy;
    const uint32_t generation = newest(node, &copy) < 0 ? 0 : copy.list.generation;
    atomic_store_relaxed(&node->cluster_generation, generation); /* nothing uses the node yet */
}

void memory_cluster_clear(struct memory_node *node)
{
    atomic_store_relaxed(&node->cluster_generation, 0u); /* no compute node is connected */
}

uint32_t memory_node_cluster_generation(const struct memory_node *node)
{
    return atomic_load_acquire(&node->cluster_generation); /* acquire: the list is asked for after it */
}

/* ---- what may follow ---- */

static bool node_may_follow(const struct wire_cluster_node *now, const struct wire_cluster_node *next,
                            const char **why)
{
    const bool removed = now->state == WIRE_CLUSTER_REMOVED;
    *why = "a memory node's contents do not change by the list";
    if (now->instance != next->instance)
        return false;
    *why = "a memory node that was removed stays removed";
    if (removed && memcmp(now, next, sizeof *now) != 0)
        return false;
    *why = "a memory node leaves before it is removed";
    return removed || next->state != WIRE_CLUSTER_REMOVED || now->state == WIRE_CLUSTER_LEAVING;
}

bool memory_cluster_may_follow(const struct wire_cluster_list *now, const struct wire_cluster_list *next,
                               const char **why)
{
    *why = "a memory node's number stays its own";
    if (now != NULL && next->count < now->count)
        return false;
    for (uint32_t i = 0; now != NULL && i < now->count; i++)
        if (!node_may_follow(&now->nodes[i], &next->nodes[i], why))
            return false;
    *why = "a memory node that is new is a member";
    for (uint32_t i = now != NULL ? now->count : 0; i < next->count; i++)
        if (next->nodes[i].state != WIRE_CLUSTER_MEMBER)
            return false;
    return true;
}

/* ---- calls ---- */

static int reply_list(const struct memory_cluster_place *place, struct memory_call *call)
{
    const size_t length = wire_cluster_bytes(place->list.count);
    if (call->capacity < length)
        return BANYAN_EINVAL;
    memcpy(call->reply, &place->list, length);
    call->reply_length = length;
    return BANYAN_OK;
}

/* The node's lock is held. */
static int serve_list(struct memory_node *node, struct memory_call *call)
{
    struct memory_cluster_place copy;
    return newest(node, &copy) < 0 ? BANYAN_ENOTFOUND : reply_list(&copy, call);
}

/* The node's lock is held. */
static int serve_set(struct memory_node *node, struct memory_call *call)
{
    const size_t before = offsetof(struct wire_cluster_change, list);
    struct memory_cluster_place now, next = {0};
    const char *why;
    if (call->length < before + wire_cluster_bytes(0) || call->length > sizeof(struct wire_cluster_change))
        return BANYAN_EINVAL;
    memcpy(&next.list, (const uint8_t *)call->request + before, call->length - before);
    if (!wire_cluster_valid(&next.list, call->length - before) || node->number != 0 ||
        next.list.cluster_id != node->cluster_id)
        return BANYAN_EINVAL;
    const int which = newest(node, &now);
    if (next.list.generation != (which < 0 ? 0 : now.list.generation))
        return BANYAN_EBUSY;
    if (!memory_cluster_may_follow(which < 0 ? NULL : &now.list, &next.list, &why) ||
        call->capacity < wire_cluster_bytes(next.list.count))
        return BANYAN_EINVAL;
    next.list.generation++;
    place_write(node, which == 0, &next);
    /* release: a compute node that hears of it finds it */
    atomic_store_release(&node->cluster_generation, next.list.generation);
    return reply_list(&next, call);
}

static int serve(void *context, struct memory_call *call)
{
    struct memory_node *node = context;
    /* A change is an operator's: compute nodes only ask. */
    if (call->kind == WIRE_CLUSTER_SET && call->role != MEMORY_ROLE_FORMATTER)
        return BANYAN_ENOTSUP;
    spinlock_lock(&node->lock);
    int status = call->kind == WIRE_CLUSTER_SET ? serve_set(node, call) : serve_list(node, call);
    spinlock_unlock(&node->lock);
    return status;
}

const struct memory_service memory_cluster_service = {
    .name = "cluster", .roles = MEMORY_ROLES_ALL, .serve = serve};
