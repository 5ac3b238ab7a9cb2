/*
 * remote_place.c - opening a fabric, first part: every memory node that was named is asked who it is, and
 * gets its place. Where the home node is among them and keeps a list of memory nodes (wire.h), those that the
 * list has beside the named ones are asked too, at the listed addresses; else those that were named must be
 * one whole cluster. Each is named once.
 *
 * Called by remote.c; remote_place_listed by the thread that learns of new memory nodes. Waits for each
 * memory node, at most the time-out. Validates what the welcomes and the list say.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/remote_fabric.h"

/* What came of asking one that was named. */
struct found {
    struct wire_welcome welcome;
    struct error error; /* code 0: it answered */
};

static int place_validate(const struct remote_fabric *remote, const struct net_address *address,
                          const struct wire_welcome *welcome, bool listed, struct error *error)
{
    char text[NET_TEXT_MAX], other[NET_TEXT_MAX];
    net_address_format(address, text);
    if (!listed && welcome->node_count != 0 && welcome->node_count != remote->count)
        return error_set(
            error, BANYAN_EINVAL,
            "memory node %.100s is one of a cluster of %u, but %u were named: name all of them, or "
            "the home node, which knows them",
            text, (unsigned)welcome->node_count, (unsigned)remote->count);
    if (welcome->node >= (listed ? remote->most : remote->count))
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

/* The home node's list, if it keeps one: else list->count is 0. */
static int ask_list(const struct remote_fabric *remote, const struct net_address *address,
                    const struct remote_dialed *dialed, struct wire_cluster_list *list, struct error *error)
{
    char text[NET_TEXT_MAX];
    struct error inner = {0};
    int status = remote_cluster_ask(dialed->stream, list,
                                    task_now() + remote->identity.timeout_ms * REMOTE_MS, &inner);
    if (status == BANYAN_ENOTFOUND) {
        list->count = 0;
        return BANYAN_OK;
    }
    if (!status && list->cluster_id != dialed->welcome.cluster_id)
        status = error_set(&inner, BANYAN_EVERSION, "its list of memory nodes is another cluster's");
    return status ? error_set(error, status, "memory node %.100s: %s", net_address_format(address, text),
                              inner.text)
                  : BANYAN_OK;
}

/* Asks the memory node at `address` who it is; the home node for its list too, unless `list` is NULL. An
 * empty one is an error. */
static int ask_node(struct remote_fabric *remote, const struct net_address *address,
                    struct wire_welcome *welcome, struct wire_cluster_list *list, struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_MONITOR};
    struct remote_dialed dialed;
    int status = remote_dial(&remote->identity, address, &wish, remote->identity.timeout_ms * REMOTE_MS,
                             &dialed, error);
    if (status)
        return status;
    *welcome = dialed.welcome;
    if (welcome->cluster_id == 0)
        status = remote_empty_error(address, error);
    else if (welcome->node == REMOTE_HOME && list != NULL) {
        net_local_host(net_stream_fd(dialed.stream), remote->local_host);
        if (welcome->generation != 0)
            status = ask_list(remote, address, &dialed, list, error);
    }
    remote_hang_up(dialed.stream);
    dialed.stream = NULL;
    remote_dialed_drop(&dialed);
    return status;
}

/* Gives the memory node at `address` its place. `listed` NULL: there is no list. */
static int place_node(struct remote_fabric *remote, const struct net_address *address,
                      const struct wire_welcome *welcome, const struct wire_cluster_node *listed,
                      struct error *error)
{
    char text[NET_TEXT_MAX];
    int status = place_validate(remote, address, welcome, listed != NULL, error);
    if (!status && listed != NULL && listed->instance != welcome->instance)
        status =
            error_set(error, BANYAN_EINVAL,
                      "memory node %.100s is number %u of the cluster, but what it holds is not what its "
                      "number held",
                      net_address_format(address, text), (unsigned)welcome->node);
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

int remote_place_listed(struct remote_fabric *remote, uint16_t number, const struct wire_cluster_node *listed,
                        struct error *error)
{
    struct net_address address;
    struct wire_welcome welcome;
    int status = net_address_parse(&address, listed->address, 0, error);
    if (!status)
        status = ask_node(remote, &address, &welcome, NULL, error);
    if (!status && welcome.node != number)
        status = error_set(error, BANYAN_EINVAL,
                           "memory node %.100s is number %u of its cluster, but the home node has it as "
                           "number %u",
                           listed->address, (unsigned)welcome.node, (unsigned)number);
    return status ? status : place_node(remote, &address, &welcome, listed, error);
}

/* ---- all that were named, and all that are listed ---- */

/* Without a list each that was named must have answered. */
static int place_named(struct remote_fabric *remote, const struct net_address *addresses,
                       const struct found *found, uint16_t count, struct error *error)
{
    int status = BANYAN_OK;
    remote->count = count;
    for (uint16_t i = 0; i < count && !status; i++)
        status = found[i].error.code ? error_set(error, found[i].error.code, "%s", found[i].error.text)
                                     : place_node(remote, &addresses[i], &found[i].welcome, NULL, error);
    for (uint16_t i = 0; i < count && !status; i++)
        atomic_store_relaxed(&remote->nodes[i].membership, (uint32_t)FABRIC_MEMBER); /* no thread yet */
    return status;
}

/* One that was named and has left the cluster, which is passed by: a process may be started with the
 * addresses of before. */
static bool has_left(const struct wire_cluster_list *list, const struct net_address *address,
                     const struct found *found)
{
    char text[NET_TEXT_MAX];
    const struct wire_welcome *welcome = &found->welcome;
    if (!found->error.code)
        return welcome->cluster_id == list->cluster_id && welcome->node < list->count &&
               list->nodes[welcome->node].state == WIRE_CLUSTER_REMOVED;
    net_address_format(address, text);
    bool left = false;
    for (uint32_t i = 0; i < list->count;
         i++) /* its number may have got another address, or that another number */
        if (!strcmp(list->nodes[i].address, text))
            left = list->nodes[i].state == WIRE_CLUSTER_REMOVED;
    return left;
}

static int place_one(struct remote_fabric *remote, const struct wire_cluster_list *list,
                     const struct net_address *address, const struct found *found, struct error *error)
{
    char text[NET_TEXT_MAX];
    const uint16_t number = found->welcome.node;
    if (has_left(list, address, found)) {
        log_warning("memory node %s was named, but has left the cluster", net_address_format(address, text));
        return BANYAN_OK;
    }
    if (found->error.code)
        return error_set(error, found->error.code, "%s", found->error.text);
    if (found->welcome.cluster_id != list->cluster_id)
        return error_set(error, BANYAN_EINVAL, "memory nodes %.80s and %.80s belong to different clusters",
                         list->nodes[REMOTE_HOME].address, net_address_format(address, text));
    if (number >= list->count)
        return error_set(
            error, BANYAN_EINVAL,
            "memory node %.100s is number %u of the cluster, but the home node has only %u: it has not "
            "joined yet",
            net_address_format(address, text), (unsigned)number, list->count);
    return place_node(remote, address, &found->welcome, &list->nodes[number], error);
}

static int place_all(struct remote_fabric *remote, const struct wire_cluster_list *list,
                     const struct net_address *addresses, const struct found *found, uint16_t count,
                     struct error *error)
{
    int status = BANYAN_OK;
    remote->count = (uint16_t)list->count;
    for (uint16_t i = 0; i < count && !status; i++)
        status = place_one(remote, list, &addresses[i], &found[i], error);
    for (uint16_t i = 0; i < list->count && !status; i++) {
        const enum fabric_membership state = remote_cluster_state(&list->nodes[i]);
        if (state != FABRIC_NO_MEMBER && remote->nodes[i].fabric == NULL)
            status = remote_place_listed(remote, i, &list->nodes[i], error);
        atomic_store_relaxed(&remote->nodes[i].membership, (uint32_t)state); /* no thread yet */
    }
    remote->cluster.generation = remote->cluster.known = list->generation;
    return status;
}

/* Asks those that were named, up to the first that does not answer once it is known that there is no list: it
 * is in the way then, and waiting for others as long would only delay saying so. */
static void ask_named(struct remote_fabric *remote, const struct net_address *addresses, struct found *found,
                      uint16_t count, struct wire_cluster_list *list)
{
    bool home = false, failed = false;
    for (uint16_t i = 0; i < count && !(home && failed && list->count == 0); i++) {
        struct found *one = &found[i];
        ask_node(remote, &addresses[i], &one->welcome, list, &one->error);
        failed |= one->error.code != 0;
        home |= !one->error.code && one->welcome.node == REMOTE_HOME;
    }
}

/* All of them are asked first: "this one is empty" says more than "the others are too few". */
int remote_place_nodes(struct remote_fabric *remote, const struct net_address *addresses, uint16_t count,
                       struct error *error)
{
    struct found *found = calloc(count, sizeof *found);
    struct wire_cluster_list *list = calloc(1, sizeof *list);
    int status = BANYAN_OK;
    if (found == NULL || list == NULL) {
        status = error_set(error, BANYAN_ENOMEM, "no memory to ask %u memory nodes", (unsigned)count);
    } else {
        ask_named(remote, addresses, found, count, list);
        status = list->count != 0 ? place_all(remote, list, addresses, found, count, error)
                                  : place_named(remote, addresses, found, count, error);
    }
    free(list);
    free(found);
    return status;
}
