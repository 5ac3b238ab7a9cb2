/*
 * remote_link.c - an endpoint's connection to one memory node: whether a list may be posted on it, sending
 * what was put together, and its end (remote_link.h). On the endpoint's owner.
 *
 * A connection that breaks, or whose other end says what makes no sense, ends its whole group
 * (remote_node_lose) and completes all that is under way on it with BANYAN_ENET.
 */
#include "fabric/remote_link.h"

#include <assert.h>
#include <sys/epoll.h>

#include "fabric/remote_nic.h"

#define OUTPUT_HIGH (UINT32_C(2) << 20) /* with more than this unsent, posting waits */
#define OUTPUT_KEEP (UINT32_C(1) << 20) /* a larger buffer is freed when it is empty */

static void wake_waiters(struct remote_link *link)
{
    while (link->waiters != NULL) {
        struct remote_waiter *waiter = link->waiters;
        link->waiters = waiter->next;
        waiter->waiting = false;
        task_unpark(waiter->task);
    }
}

static void link_reset(struct remote_link *link)
{
    link->out_begin = link->out_end = 0;
    link->sent_id = link->answered_id = 0;
    link->answer_have = link->body_left = 0;
    link->command = link->offset = 0;
}

void remote_link_fail(struct remote_link *link, const char *why)
{
    struct remote_transport old = link->transport;
    if (old.group == 0)
        return;
    remote_node_lose(link->node, old.group, why);
    worker_watch_remove(&link->watch);
    worker_watch_remove(&link->nic_watch);
    spinlock_lock(&link->lock);
    link->transport = (struct remote_transport){0};
    spinlock_unlock(&link->lock);
    struct verbs_queue *queue = old.queue;
    old.queue = NULL;
    remote_transport_close(&old, false);
    link_reset(link);
    struct fabric_list *list = link->first;
    link->first = link->last = NULL;
    while (list != NULL) {
        struct fabric_list *next = remote_list(list)->next;
        atomic_store_relaxed(&link->outstanding,
                             link->outstanding - 1); /* relaxed: a hint for the heartbeat */
        remote_link_complete(link, list, BANYAN_ENET);
        list = next;
    }
    list = link->deferred;
    link->deferred = NULL;
    while (list != NULL) {
        struct fabric_list *next = remote_list(list)->next;
        remote_link_complete(link, list, BANYAN_ENET);
        list = next;
    }
    wake_waiters(link);
    if (queue != NULL)
        remote_nic_drop(link, queue);
    assert(link->outstanding == 0);
}

/* ---- sending ---- */

static bool link_flush(struct remote_link *link)
{
    while (remote_link_unsent(link) > 0) {
        size_t written = 0;
        enum net_status status = net_stream_write(link->transport.stream, link->out + link->out_begin,
                                                  remote_link_unsent(link), &written);
        if (status == NET_AGAIN)
            break;
        if (status != NET_OK)
            return false;
        link->out_begin += written;
    }
    if (remote_link_unsent(link) == 0) {
        link->out_begin = link->out_end = 0;
        if (link->out_capacity > OUTPUT_KEEP) {
            free(link->out);
            link->out = NULL;
            link->out_capacity = 0;
        }
    }
    if (link->waiters != NULL && remote_link_unsent(link) <= OUTPUT_HIGH / 2)
        wake_waiters(link);
    return true;
}

void remote_link_push(struct remote_link *link)
{
    if (link->transport.stream == NULL)
        return;
    if (remote_link_unsent(link) > 0 && !link_flush(link))
        remote_link_fail(link, net_stream_error(link->transport.stream));
    else if (link->watch.worker != NULL)
        worker_watch_change(&link->watch,
                            net_stream_wants(link->transport.stream, remote_link_unsent(link) > 0));
}

void remote_link_wait_room(struct remote_link *link)
{
    while (__builtin_expect(remote_link_unsent(link) > OUTPUT_HIGH, 0)) {
        if (link->endpoint->worker == NULL) {
            remote_endpoint_pump(link->endpoint, REMOTE_POLL_MS);
            continue;
        }
        struct remote_waiter waiter = {.task = task_self(), .next = link->waiters, .waiting = true};
        link->waiters = &waiter; // cppcheck-suppress autoVariables ; it leaves the list before we go on
        while (waiter.waiting)
            task_park();
    }
}

/* ---- taking over ---- */

bool remote_link_watched(struct remote_link *link)
{
    struct remote_endpoint *endpoint = link->endpoint;
    if (endpoint->worker == NULL || link->transport.stream == NULL)
        return true;
    return (link->watch.worker != NULL ||
            !worker_watch_add(endpoint->worker, &link->watch, net_stream_fd(link->transport.stream), EPOLLIN,
                              remote_link_ready)) &&
           remote_nic_watched(link);
}

/* On a mapped pool only calls need the watch, and each tries again to have it: the connection must not end,
 * since the memory node would kill this process. */
void remote_link_watch(struct remote_link *link)
{
    if (!remote_link_watched(link) && !link->node->mapped)
        remote_link_fail(link, "no memory to watch it");
}

int remote_link_admit_slow(struct remote_link *link, uint64_t incarnation)
{
    struct remote_node *node = link->node;
    struct remote_transport fresh = {0};
    remote_endpoint_bind(link->endpoint);
    /* acquire: condition (2) of remote_node.h; an odd number brings the group's `since` along */
    uint64_t group = atomic_load_acquire(&node->group);
    if (link->transport.group != group) {
        remote_link_fail(link, "its group ended"); /* for completing its lists: the group has ended already,
                                                      so this is not reported */
        spinlock_lock(&link->lock);
        if (link->fresh.group == group) {
            fresh = link->fresh;
            assert(link->first == NULL && link->out_begin == link->out_end); /* the old one left nothing */
            link->fresh = (struct remote_transport){0};
            link->transport = fresh;
        }
        spinlock_unlock(&link->lock);
        if (fresh.group != 0)
            remote_link_watch(link);
    }
    if (link->transport.group != group)
        return incarnation != 0 && incarnation < atomic_load_relaxed(&node->since) ? BANYAN_EFENCED
                                                                                   : BANYAN_ENET;
    return incarnation != 0 && incarnation < link->transport.since ? BANYAN_EFENCED : BANYAN_OK;
}

void remote_link_close(struct remote_link *link)
{
    while (link->first != NULL) { /* calls that were left behind, whose answers never came */
        struct fabric_list *list = link->first;
        link->first = remote_list(list)->next;
        assert(remote_list_call(list) != NULL && remote_list_call(list)->left_behind);
        remote_link_complete(link, list, BANYAN_ENET);
    }
    assert(link->waiting_first == NULL && link->deferred == NULL);
    assert(link->transport.queue == NULL || verbs_queue_under_way(link->transport.queue) == 0);
    /* acquire: a group that still lives gets a goodbye; a dead one's socket is dead too */
    bool alive = link->transport.group == atomic_load_acquire(&link->node->group);
    remote_transport_close(&link->transport, alive);
    bool fresh_alive = link->fresh.group == atomic_load_acquire(&link->node->group); /* as above */
    remote_transport_close(&link->fresh, fresh_alive);
    free(link->out);
}
