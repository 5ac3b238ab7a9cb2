/*
 * remote_place.c - opening a fabric, first part: every memory node that was named is asked who it is, and
 * gets its place. They must be one whole cluster, each named once.
 *
 * Called by remote.c. Waits for each memory node, at most the time-out. Validates what the welcomes say.
 */
#include <stdlib.h>

#include "fabric/remote_fabric.h"

static int place_validate(const struct remote_fabric *remote, const struct net_address *address,
                          const struct wire_welcome *welcome, struct error *error)
{
    char text[NET_TEXT_MAX], other[NET_TEXT_MAX];
    net_address_format(address, text);
    if (welcome->node_count != 0 && welcome->node_count != remote->count)
        return error_set(error, BANYAN_EINVAL,
                         "memory node %.100s is one of a cluster of %u, but %u were named: name all of them",
                         text, (unsigned)welcome->node_count, (unsigned)remote->count);
    if (welcome->node >= remote->count)
        return error_set(
            error, BANYAN_EINVAL,
            "memory node %.100s is number %u of its cluster, but only %u were named: name all of "
            "them",
            text, (unsigned)welcome->node, (unsigned)remote->count);
    const struct remote_node *taken = &remote->nodes[welcome->node];
    if (taken->fabric != NULL)
        return error_set(error, BANYAN_EINVAL,
                         "memory nodes %.80s and %.80s are both number %u: one of them is named twice, or "
                         "belongs to another cluster",
                         net_address_format(&taken->address, other), text, (unsigned)welcome->node);
    for (uint16_t i = 0; i < remote->count; i++)
        if (remote->nodes[i].fabric != NULL && remote->nodes[i].cluster_id != welcome->cluster_id)
            return error_set(error, BANYAN_EINVAL,
                             "memory nodes %.80s and %.80s belong to different clusters",
                             net_address_format(&remote->nodes[i].address, other), text);
    return BANYAN_OK;
}

static int memory_validate(const struct remote_fabric *remote, const struct net_address *address,
                           const struct wire_welcome *welcome, struct error *error)
{
    char text[NET_TEXT_MAX];
    net_address_format(address, text);
    if (welcome->pool_bytes == 0 || welcome->lock_bytes == 0 || welcome->pool_bytes % 8 != 0 ||
        welcome->lock_bytes % 8 != 0 || welcome->pool_bytes > GADDR_LOCK_REGION ||
        welcome->lock_bytes > GADDR_LOCK_REGION || (welcome->lock_width != 2 && welcome->lock_width != 8) ||
        (welcome->atomic_write != 0 && welcome->atomic_write < FABRIC_ATOMIC_WRITE_LEAST))
        return error_set(error, BANYAN_EVERSION,
                         "memory node %.100s says that its memory is of an impossible size", text);
    for (uint16_t i = 0; i < remote->count; i++)
        if (remote->nodes[i].fabric != NULL && remote->nodes[i].lock_width != welcome->lock_width)
            return error_set(
                error, BANYAN_EINVAL, "memory node %.80s has lock words of %u bytes, %.80s of %u", text,
                (unsigned)welcome->lock_width, remote->nodes[i].text, (unsigned)remote->nodes[i].lock_width);
    return BANYAN_OK;
}

/* Asks the memory node at `address` who it is. An empty one is an error. */
static int ask_node(struct remote_fabric *remote, const struct net_address *address,
                    struct wire_welcome *welcome, struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_MONITOR};
    struct remote_dialed dialed;
    int status = remote_dial(&remote->identity, address, &wish, remote->identity.timeout_ms * REMOTE_MS,
                             &dialed, error);
    if (status)
        return status;
    *welcome = dialed.welcome;
    if (welcome->node == REMOTE_HOME)
        net_local_host(net_stream_fd(dialed.stream), remote->local_host);
    remote_hang_up(dialed.stream);
    dialed.stream = NULL;
    remote_dialed_drop(&dialed);
    return welcome->cluster_id == 0 ? remote_empty_error(address, error) : BANYAN_OK;
}

/* Gives the memory node at `address` its place. */
static int place_node(struct remote_fabric *remote, const struct net_address *address,
                      const struct wire_welcome *welcome, struct error *error)
{
    int status = place_validate(remote, address, welcome, error);
    if (!status)
        status = memory_validate(remote, address, welcome, error);
    if (status)
        return status;
    struct remote_node *node = &remote->nodes[welcome->node];
    node->fabric = remote;
    node->address = *address;
    net_address_format(address, node->text);
    node->number = welcome->node;
    node->cluster_id = welcome->cluster_id;
    node->instance = welcome->instance;
    node->pool_bytes = welcome->pool_bytes;
    node->lock_bytes = welcome->lock_bytes;
    node->lock_width = welcome->lock_width;
    node->atomic_write = welcome->atomic_write;
    node->durability = welcome->durability;
    return BANYAN_OK;
}

/* All of them are asked first: "this one is empty" says more than "the others are too few". */
int remote_place_nodes(struct remote_fabric *remote, const struct net_address *addresses, struct error *error)
{
    struct wire_welcome *welcomes = calloc(remote->count, sizeof *welcomes);
    if (welcomes == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory to ask %u memory nodes", (unsigned)remote->count);
    int status = BANYAN_OK;
    for (uint16_t i = 0; i < remote->count && !status; i++)
        status = ask_node(remote, &addresses[i], &welcomes[i], error);
    for (uint16_t i = 0; i < remote->count && !status; i++)
        status = place_node(remote, &addresses[i], &welcomes[i], error);
    free(welcomes);
    return status;
}
