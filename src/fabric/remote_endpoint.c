/*
 * remote_endpoint.c - opening and closing endpoints, and binding them to the thread that uses them
 * (remote_endpoint.h).
 *
 * Opening waits for a data connection to each memory node, at most the time-out for each; a memory node that
 * cannot be reached then is the reconnect's to try again. Closing waits for the reconnect to leave the
 * endpoint.
 */
#include "fabric/remote_endpoint.h"

#include <assert.h>
#include <stdlib.h>

#include "fabric/remote_nic.h"

static void endpoint_free(struct remote_endpoint *endpoint)
{
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++)
        remote_link_close(&endpoint->links[i]);
    remote_endpoint_peers_close(endpoint);
    free(endpoint->input);
    free(endpoint->polls);
    free(endpoint);
}

void remote_endpoint_extend(struct remote_endpoint *endpoint)
{
    struct remote_fabric *remote = (struct remote_fabric *)endpoint->endpoint.fabric;
    const uint16_t count = remote_count(remote);
    for (uint16_t i = endpoint->count; i < count; i++) {
        struct remote_link *link = &endpoint->links[i];
        link->endpoint = endpoint;
        link->node = &remote->nodes[i];
        link->seen_at = task_now();
    }
    atomic_store_release(&endpoint->count, count); /* release: pairs with remote_endpoint_count */
}

struct fabric_endpoint *remote_endpoint_open(struct fabric *fabric, struct error *error)
{
    struct remote_fabric *remote = (struct remote_fabric *)fabric;
    struct remote_endpoint *endpoint = calloc(1, sizeof *endpoint + remote->most * sizeof endpoint->links[0]);
    if (endpoint != NULL) {
        remote_endpoint_peers_open(endpoint);
        endpoint->input = malloc(REMOTE_INPUT_BYTES);
        endpoint->polls = calloc(2u * remote->most, sizeof *endpoint->polls);
    }
    if (endpoint == NULL || endpoint->input == NULL || endpoint->polls == NULL) {
        if (endpoint != NULL)
            endpoint_free(endpoint);
        error_set(error, BANYAN_ENOMEM, "no memory for an endpoint of %u memory nodes",
                  (unsigned)remote_count(remote));
        return NULL;
    }
    endpoint->endpoint.fabric = fabric;
    remote_endpoint_extend(endpoint);
    for (uint16_t i = 0; i < endpoint->count; i++) {
        struct remote_link *link = &endpoint->links[i];
        if (link->node->device != NULL)
            endpoint->spin_ns = link->node->device->options.spin_us * UINT64_C(1000);
        /* If it cannot be reached now, the reconnect tries again. */
        if (atomic_load_relaxed(&link->node->membership)) /* a hint: its links are watched over either way */
            remote_transport_open(link->node, remote->identity.timeout_ms * REMOTE_MS, &link->transport,
                                  NULL);
    }
    spinlock_lock(&remote->lock);
    remote_endpoint_extend(endpoint); /* a memory node may have joined meanwhile */
    endpoint->next = remote->endpoints;
    remote->endpoints = endpoint;
    spinlock_unlock(&remote->lock);
    for (uint16_t i = 0; i < remote_count(remote); i++)
        if (remote->nodes[i].reconnect_event >= 0)
            remote_event_set(remote->nodes[i].reconnect_event);
    return &endpoint->endpoint;
}

/* Takes it out of the fabric's list, where the fabric's threads find it. False: the reconnect is at one of
 * its links. */
static bool endpoint_forget(struct remote_fabric *remote, struct remote_endpoint *endpoint)
{
    bool reconnecting = false;
    spinlock_lock(&remote->lock);
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++)
        reconnecting |= endpoint->links[i].reconnecting;
    for (struct remote_endpoint **at = &remote->endpoints; !reconnecting && *at != NULL; at = &(*at)->next)
        if (*at == endpoint) {
            *at = endpoint->next;
            break;
        }
    spinlock_unlock(&remote->lock);
    return !reconnecting;
}

void remote_endpoint_close(struct fabric_endpoint *base)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    struct remote_fabric *remote = (struct remote_fabric *)base->fabric;
    while (!endpoint_forget(remote, endpoint))
        task_sleep(REMOTE_MS);
    remote_endpoint_unbind(endpoint);
    endpoint_free(endpoint);
}

/* ---- the owner ---- */

static void endpoint_gone(struct worker_hook *hook)
{
    remote_endpoint_unbind(remote_endpoint_of_hook(hook));
}

void remote_endpoint_unbind(struct remote_endpoint *endpoint)
{
    if (endpoint->worker == NULL)
        return;
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++) {
        worker_watch_remove(&endpoint->links[i].watch);
        worker_watch_remove(&endpoint->links[i].nic_watch);
        endpoint->links[i].dirty = false;
    }
    endpoint->dirty = NULL;
    remote_endpoint_peers_unbind(endpoint);
    worker_hook_remove(endpoint->worker, &endpoint->hook);
    endpoint->worker = NULL;
}

void remote_endpoint_bind(struct remote_endpoint *endpoint)
{
    struct worker *here = worker_current();
    if (endpoint->worker == here)
        return;
    remote_endpoint_unbind(endpoint);
    if (here == NULL)
        return;
    endpoint->worker = here;
    endpoint->hook = (struct worker_hook){.turn = remote_endpoint_turn,
                                          .gone = endpoint_gone,
                                          .awake = endpoint->spin_ns != 0 ? remote_nic_awake : NULL};
    worker_hook_add(here, &endpoint->hook);
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++) {
        /* One owner at a time: nothing is under way but calls that were left behind, and their answers go to
         * the new owner. */
        assert(endpoint->links[i].first == NULL || endpoint->links[i].left_behind > 0);
        remote_link_watch(&endpoint->links[i]);
    }
    remote_endpoint_peers_bind(endpoint);
}
