/*
 * remote_reconnect.c - the threads that open connections anew, one for each memory node, so that none waits
 * for another one's answers: first a control connection, where there is none, which begins a new group, with
 * delays from 10 ms to 1 s between its tries; then a data connection for each endpoint, which its owner takes
 * when it next needs it (remote_link_admit).
 *
 * They are started when all memory nodes have joined.
 */
#include "base/log.h"
#include "base/membarrier.h"
#include "base/task.h"
#include "fabric/remote_nic.h"

#define DELAY_FIRST (10 * REMOTE_MS)
#define DELAY_LAST  (1000 * REMOTE_MS)
#define DIAL_NS     (1000 * REMOTE_MS) /* one try to open a connection, at most */

/* Waits until every list that began to run on mapped memory before the node's group ended has come to its
 * end; where other memory nodes' groups end meanwhile, perhaps a little longer. After the membarrier this
 * thread sees each endpoint's store to `runs`, or the endpoint sees the ended group, as with a fence in each
 * list. */
static void quiesce(struct remote_fabric *remote)
{
    bool running = true, first = true;
    membarrier_all(remote->membarrier);
    while (running && !atomic_load_acquire(&remote->quit)) { /* acquire: pairs with remote_threads_stop */
        running = false;
        spinlock_lock(&remote->lock);
        for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL;
             endpoint = endpoint->next) {
            uint64_t runs = atomic_load_acquire(&endpoint->runs); /* acquire: what the list did is over */
            if (first)
                endpoint->seen_runs = runs;
            /* An endpoint that was opened after the first look has 0 here, or the number of an earlier wait;
             * it is not waited for. */
            running |= runs % 2 == 1 && runs == endpoint->seen_runs;
        }
        spinlock_unlock(&remote->lock);
        first = false;
        if (running)
            task_sleep(REMOTE_MS / 10);
    }
}

static uint64_t delay_next(uint64_t delay)
{
    return delay == 0 ? DELAY_FIRST : delay * 2 > DELAY_LAST ? DELAY_LAST : delay * 2;
}

static uint64_t dial_timeout(const struct remote_fabric *remote)
{
    uint64_t timeout = remote->identity.timeout_ms * REMOTE_MS;
    return timeout < DIAL_NS ? timeout : DIAL_NS;
}

static int reconnect_node(struct remote_node *node, struct error *error)
{
    struct remote_fabric *remote = node->fabric;
    struct remote_wish wish = {
        .role = WIRE_CONTROL, .compute_id = remote->fabric.capabilities.compute_id, .again = true};
    struct remote_dialed dialed;
    if (node->mapped)
        quiesce(remote);
    int status = remote_dial(&remote->identity, &node->address, &wish, dial_timeout(remote), &dialed, error);
    if (status)
        return status;
    status = remote_node_same(node, &dialed.welcome, error);
    if (!status && (dialed.welcome.mapped != 0) != node->mapped)
        status = error_set(error, BANYAN_ENET, "memory node %.100s does not share its pool as it did before",
                           node->text);
    if (!status && node->device != NULL)
        status = remote_nic_validate(node, &dialed.welcome, error);
    if (status) {
        remote_hang_up(dialed.stream);
        dialed.stream = NULL;
    } else {
        remote_node_join(node, &dialed, 0);
        log_info("connected to memory node %s again", node->text);
        remote_event_set(remote->heartbeat_event);
    }
    remote_dialed_drop(&dialed); /* the descriptors: the same memory is mapped already */
    return status;
}

/* Opens a control connection where there is none. *due: not before the next try. */
static void reconnect_control(struct remote_node *node, uint64_t *due)
{
    struct error error = {0};
    spinlock_lock(&node->lock);
    /* Not before the first lease, and not to a memory node that was removed. acquire: as in remote_cluster.c
     */
    const bool down = node->group % 2 == 0 && node->control == NULL && node->group != 0 &&
                      atomic_load_acquire(&node->membership) != FABRIC_NO_MEMBER;
    spinlock_unlock(&node->lock);
    if (!down)
        return;
    if (task_now() >= node->retry_at) {
        int status = reconnect_node(node, &error);
        node->retry_delay = !status ? 0 : delay_next(node->retry_delay);
        node->retry_at = task_now() + node->retry_delay;
        if (!status)
            return;
        remote_node_trouble(node, error.text);
    }
    if (node->retry_at < *due)
        *due = node->retry_at;
}

/* Whether to open a connection of the group for the link now; *due: not before the next try. What was refused
 * in one group does not delay the next one. Under the fabric's lock. */
static bool link_broken(struct remote_link *link, uint64_t group, uint64_t now, uint64_t *due)
{
    spinlock_lock(&link->lock);
    const bool broken = link->transport.group != group && link->fresh.group != group;
    spinlock_unlock(&link->lock);
    if (link->retry_group != group) {
        link->retry_group = group;
        link->retry_at = link->retry_delay = 0;
    }
    if (broken && now < link->retry_at && link->retry_at < *due)
        *due = link->retry_at;
    return broken && now >= link->retry_at;
}

/* Finds a link to the node, if that has a living group, to which neither the link's transport nor its fresh
 * one belongs. It is marked `reconnecting`, so that its endpoint is not closed meanwhile. */
static struct remote_link *find_broken(struct remote_node *node, uint64_t *due)
{
    struct remote_fabric *remote = node->fabric;
    struct remote_link *found = NULL;
    const uint64_t now = task_now();
    const uint64_t group = atomic_load_acquire(&node->group); /* acquire: condition (2) of remote_node.h */
    if (!remote_group_lives(group))
        return NULL;
    spinlock_lock(&remote->lock);
    for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL && found == NULL;
         endpoint = endpoint->next)
        if (node->number < endpoint->count && link_broken(&endpoint->links[node->number], group, now, due))
            found = &endpoint->links[node->number];
    if (found != NULL)
        found->reconnecting = true;
    spinlock_unlock(&remote->lock);
    return found;
}

static void reconnect_links(struct remote_node *node, uint64_t *due)
{
    struct remote_fabric *remote = node->fabric;
    struct remote_link *link;
    /* acquire: pairs with remote_threads_stop */
    while (!atomic_load_acquire(&remote->quit) && (link = find_broken(node, due)) != NULL) {
        struct remote_transport fresh = {0}, old = {0};
        struct error error = {0};
        int status = remote_transport_open(node, dial_timeout(remote), &fresh, &error);
        remote_node_trouble(node, error.text); /* "" if it succeeded */
        link->retry_delay = !status ? 0 : delay_next(link->retry_delay);
        link->retry_at = task_now() + link->retry_delay;
        if (!status) {
            spinlock_lock(&link->lock);
            old = link->fresh;
            link->fresh = fresh;
            spinlock_unlock(&link->lock);
            remote_transport_close(&old, false);
        }
        spinlock_lock(&remote->lock);
        link->reconnecting = false;
        spinlock_unlock(&remote->lock);
    }
}

void remote_reconnect_main(void *argument)
{
    struct remote_node *node = argument;
    struct pollfd event = {.fd = node->reconnect_event, .events = POLLIN};
    /* acquire: pairs with remote_threads_stop */
    while (!atomic_load_acquire(&node->fabric->quit)) {
        uint64_t due = task_now() + DELAY_LAST;
        reconnect_control(node, &due);
        reconnect_links(node, &due);
        remote_event_wait(&event, 1, due);
    }
}
