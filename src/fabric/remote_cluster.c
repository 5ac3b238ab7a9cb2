/*
 * remote_cluster.c - see remote_cluster.h. Its thread waits for memory nodes, at most the time-out for each;
 * no other thread of the fabric waits for it. A task that asks looks four times a millisecond whether it was
 * answered: that happens when a memory node has just joined, and when a process is fenced.
 */
#include "fabric/remote_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/task.h"
#include "fabric/remote_nic.h"

#define RETRY_NS (200 * REMOTE_MS) /* after a memory node that could not be connected to */
#define LOOK_NS  (REMOTE_MS / 4)

/* ---- the list ---- */

int remote_cluster_call(struct net_stream *stream, const void *request, size_t bytes,
                        struct wire_cluster_list *list, uint64_t deadline, struct error *error)
{
    size_t length = 0;
    int status =
        remote_converse(stream, WIRE_CALL, request, bytes, list, sizeof *list, &length, deadline, error);
    if (!status && !wire_cluster_valid(list, length))
        status = error_set(error, BANYAN_EVERSION, "its list of memory nodes makes no sense");
    if (status)
        *list = (struct wire_cluster_list){.count = 0};
    return status;
}

int remote_cluster_ask(struct net_stream *stream, struct wire_cluster_list *list, uint64_t deadline,
                       struct error *error)
{
    const struct wire_cluster_request request = {.kind = WIRE_CLUSTER_LIST};
    int status = remote_cluster_call(stream, &request, sizeof request, list, deadline, error);
    if (status && status != BANYAN_ENOTFOUND && !error->code)
        error_set(error, status, "it does not tell its list of memory nodes: %s", error_name(status));
    return status;
}

enum fabric_membership remote_cluster_state(const struct wire_cluster_node *listed)
{
    return listed->state == WIRE_CLUSTER_MEMBER    ? FABRIC_MEMBER
           : listed->state == WIRE_CLUSTER_LEAVING ? FABRIC_LEAVING
                                                   : FABRIC_NO_MEMBER;
}

static int fetch(struct remote_fabric *remote, struct wire_cluster_list *list, struct error *error)
{
    const struct remote_node *home = &remote->nodes[REMOTE_HOME];
    const struct remote_wish wish = {.role = WIRE_MONITOR};
    const uint64_t timeout = remote->identity.timeout_ms * REMOTE_MS;
    struct remote_dialed dialed;
    struct error inner = {0};
    int status = remote_dial(&remote->identity, &home->address, &wish, timeout, &dialed, error);
    if (status)
        return status;
    status = remote_node_same(home, &dialed.welcome, error);
    if (!status) {
        status = remote_cluster_ask(dialed.stream, list, task_now() + timeout, &inner);
        if (!status && list->cluster_id != home->cluster_id)
            status = error_set(&inner, BANYAN_EVERSION, "its list of memory nodes is another cluster's");
        if (status && status != BANYAN_ENOTFOUND)
            error_set(error, status, "memory node %.100s: %s", home->text, inner.text);
    }
    remote_hang_up(dialed.stream);
    dialed.stream = NULL;
    remote_dialed_drop(&dialed);
    return status;
}

/* ---- a memory node that joins ---- */

/* What this fabric's tasks count on must stay true. */
static int fits(const struct remote_fabric *remote, const struct remote_node *node, struct error *error)
{
    const struct fabric_capabilities *capabilities = &remote->fabric.capabilities;
    uint32_t write = node->atomic_write != 0 ? node->atomic_write : FABRIC_LENGTH_MAX;
    if (node->mapped && write > WIRE_STAGING_DATA)
        write = WIRE_STAGING_DATA;
    if (node->device != NULL && write > node->mtu)
        write = node->mtu;
    const char *lacks =
        node->lock_bytes < capabilities->lock_region_bytes ? "its lock region is smaller"
        : write < capabilities->atomic_write               ? "it cuts shorter writes"
        : node->device != NULL && capabilities->release_by_write &&
                !(node->promises & WIRE_NIC_RELEASE_BY_WRITE)
            ? "its NIC releases no lock by a write"
        : node->device != NULL && capabilities->masked_cas && !(node->promises & WIRE_NIC_MASKED_CAS)
            ? "its NIC has no masked compare-and-swap"
            : NULL;
    return lacks == NULL ? BANYAN_OK
                         : error_set(error, BANYAN_EINVAL,
                                     "memory node %.100s has joined, but %s than those of this compute "
                                     "node's other memory nodes: it cannot be used",
                                     node->text, lacks);
}

/* Every endpoint has a link there from now on. */
static void extend(struct remote_fabric *remote, uint16_t number)
{
    spinlock_lock(&remote->lock);
    if (number >= remote->count)
        atomic_store_release(&remote->count, (uint16_t)(number + 1)); /* release: pairs with remote_count */
    for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL; endpoint = endpoint->next)
        remote_endpoint_extend(endpoint);
    spinlock_unlock(&remote->lock);
}

static bool connected(struct remote_link *link, uint64_t group)
{
    spinlock_lock(&link->lock);
    const bool connected = link->fresh.group == group || link->transport.group == group;
    spinlock_unlock(&link->lock);
    return connected;
}

/* Waits until every endpoint has a data connection, as the node's reconnect opens them; one that gets none in
 * time is without it, as after a loss. */
static void wait_for_links(struct remote_fabric *remote, const struct remote_node *node)
{
    const uint64_t deadline = task_now() + remote->identity.timeout_ms * REMOTE_MS;
    const uint64_t group = atomic_load_acquire(&node->group); /* acquire: as condition (2) of remote_node.h */
    bool all = false;
    while (!all && remote_group_lives(group) && task_now() < deadline &&
           !atomic_load_acquire(&remote->quit)) { /* acquire: pairs with remote_threads_stop */
        all = true;
        spinlock_lock(&remote->lock);
        for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL;
             endpoint = endpoint->next)
            all &= connected(&endpoint->links[node->number], group);
        spinlock_unlock(&remote->lock);
        if (!all)
            task_sleep(LOOK_NS);
    }
}

/* From nothing to a living group; begun again it goes on where it failed. */
static int connect_node(struct remote_fabric *remote, uint16_t number, const struct wire_cluster_node *listed,
                        struct error *error)
{
    struct remote_node *node = &remote->nodes[number];
    uint16_t id = remote->fabric.capabilities.compute_id;
    int status = node->fabric == NULL ? remote_place_listed(remote, number, listed, error) : BANYAN_OK;
    if (!status && node->address.rdma && remote->devices == NULL)
        status = error_set(error, BANYAN_EINVAL,
                           "memory node %.100s has joined, but this compute node reaches none over RDMA: it "
                           "cannot be used",
                           node->text);
    if (status)
        return status;
    status = remote_reconnect_start_node(node, error);
    extend(remote, number);          /* behind its event, which endpoints set; also where that failed */
    if (!status && node->group == 0) /* only this thread gives it its first one */
        status = remote_lease_node(node, &id, true, error);
    return status ? status : fits(remote, node, error);
}

static int join(struct remote_fabric *remote, uint16_t number, const struct wire_cluster_node *listed,
                struct error *error)
{
    struct remote_node *node = &remote->nodes[number];
    uint16_t *memory_nodes = &remote->fabric.capabilities.memory_nodes;
    int status = connect_node(remote, number, listed, error);
    if (status)
        return status;
    remote_event_set(node->reconnect_event);
    wait_for_links(remote, node);
    /* release, both: what belongs to it is there */
    atomic_store_release(&node->membership, (uint32_t)remote_cluster_state(listed));
    if (number >= *memory_nodes)
        atomic_store_release(memory_nodes, (uint16_t)(number + 1));
    log_info("memory node %u has joined: %s", (unsigned)number, node->text);
    return BANYAN_OK;
}

/* ---- taking a list over ---- */

static int take_one(struct remote_fabric *remote, uint16_t number, const struct wire_cluster_node *listed,
                    struct error *error)
{
    struct remote_node *node = &remote->nodes[number];
    const enum fabric_membership state = remote_cluster_state(listed);
    const uint32_t now = atomic_load_relaxed(&node->membership); /* this thread alone changes it */
    if (now == (uint32_t)state)
        return BANYAN_OK;
    if (now == FABRIC_NO_MEMBER)
        return join(remote, number, listed, error);
    atomic_store_release(&node->membership, (uint32_t)state); /* release: for symmetry with `join` */
    log_info("memory node %u %s: %s", (unsigned)number,
             state == FABRIC_NO_MEMBER ? "was removed"
             : state == FABRIC_LEAVING ? "leaves"
                                       : "stays",
             node->text);
    return BANYAN_OK;
}

/* 0, or the first failure; the other memory nodes are taken over all the same. */
static int take_list(struct remote_fabric *remote, const struct wire_cluster_list *list, struct error *error)
{
    int first = BANYAN_OK;
    for (uint16_t i = 0; i < list->count; i++) {
        struct error one = {0};
        int status = take_one(remote, i, &list->nodes[i], &one);
        if (status && !first)
            first = error_set(error, status, "%s", one.text);
    }
    if (!first)
        remote->cluster.generation = list->generation;
    /* release: a task that looks from now on finds what the list says of those that are known */
    atomic_store_release(&remote->cluster.known, list->generation);
    remote_event_set(remote->heartbeat_event); /* memory nodes are told at once */
    return first;
}

static int look(struct remote_fabric *remote, struct wire_cluster_list *list, struct error *error)
{
    int status = fetch(remote, list, error);
    if (status == BANYAN_ENOTFOUND) /* a cluster without a list neither grows nor shrinks */
        return BANYAN_OK;
    if (!status && list->generation != remote->cluster.generation)
        status = take_list(remote, list, error);
    return status;
}

/* Each complaint once, until there is another one. */
static void complain(struct remote_cluster *cluster, const char *text)
{
    if (text[0] && strcmp(text, cluster->complaint) != 0)
        log_warning("the list of memory nodes: %s", text);
    snprintf(cluster->complaint, sizeof cluster->complaint, "%s", text);
}

static bool asked(const struct remote_cluster *cluster)
{
    /* acquire, both: what the list says is at least as new as the question, and the echo */
    const uint32_t heard = atomic_load_acquire(&cluster->heard);
    return atomic_load_acquire(&cluster->asked) != cluster->answered ||
           (heard != 0 && heard != cluster->generation);
}

void remote_cluster_main(void *argument)
{
    struct remote_fabric *remote = argument;
    struct remote_cluster *cluster = &remote->cluster;
    struct wire_cluster_list *list = malloc(sizeof *list);
    struct pollfd event = {.fd = cluster->event, .events = POLLIN};
    uint64_t retry_at = 0;
    /* acquire: pairs with remote_threads_stop */
    while (!atomic_load_acquire(&remote->quit)) {
        const uint32_t question = atomic_load_acquire(&cluster->asked); /* acquire: as in `asked` */
        const bool question_is_new = question != cluster->answered;
        if (asked(cluster) && (question_is_new || task_now() >= retry_at)) {
            struct error error = {0};
            int status = list == NULL ? error_set(&error, BANYAN_ENOMEM, "no memory for it")
                                      : look(remote, list, &error);
            complain(cluster, status ? error.text : "");
            retry_at = status ? task_now() + RETRY_NS : 0;
            if (!status) /* release, both: what the tasks see then is what was taken over */
                atomic_store_release(&cluster->succeeded, question);
            atomic_store_release(&cluster->answered, question);
        }
        remote_event_wait(&event, 1, task_now() + (asked(cluster) ? RETRY_NS : 1000 * REMOTE_MS));
    }
    free(list);
}

void remote_cluster_hear(struct remote_fabric *remote, uint32_t generation)
{
    struct remote_cluster *cluster = &remote->cluster;
    if (generation == 0 || generation == atomic_load_relaxed(&cluster->heard)) /* this thread alone sets it */
        return;
    atomic_store_release(&cluster->heard, generation); /* release: pairs with `asked` */
    if (cluster->event >= 0)
        remote_event_set(cluster->event);
}

/* ---- tasks that ask ---- */

static bool newer(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) >= 0;
}

/* The question's number, once it was answered or time is up. */
static uint32_t question_put(struct remote_fabric *remote)
{
    struct remote_cluster *cluster = &remote->cluster;
    const uint64_t deadline = task_now() + 2 * remote->identity.timeout_ms * REMOTE_MS;
    const uint32_t question = __atomic_add_fetch(&cluster->asked, 1, __ATOMIC_ACQ_REL);
    remote_event_set(cluster->event);
    /* acquire: what was taken over for the answer */
    while (!newer(atomic_load_acquire(&cluster->answered), question) && task_now() < deadline)
        task_sleep(LOOK_NS);
    return question;
}

static enum fabric_membership cluster_membership(const struct fabric *fabric, uint16_t node)
{
    const struct remote_fabric *remote = (const struct remote_fabric *)fabric;
    /* acquire: what belongs to it is there */
    return (enum fabric_membership)atomic_load_acquire(&remote->nodes[node].membership);
}

static bool cluster_learn(struct fabric *fabric, uint16_t node)
{
    struct remote_fabric *remote = (struct remote_fabric *)fabric;
    question_put(remote);
    return fabric_membership(&remote->fabric, node) != FABRIC_NO_MEMBER;
}

static bool cluster_refresh(struct fabric *fabric)
{
    struct remote_fabric *remote = (struct remote_fabric *)fabric;
    const uint32_t question = question_put(remote);
    return newer(atomic_load_acquire(&remote->cluster.succeeded), question); /* acquire: as above */
}

const struct fabric_cluster_ops remote_cluster_ops = {
    .membership = cluster_membership, .learn = cluster_learn, .refresh = cluster_refresh};
