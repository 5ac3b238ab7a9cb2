/*
 * remote_nic.c - posting lists to a NIC, completing them, and sleeping until they are done (remote_nic.h).
 *
 * Everything here runs on the endpoint's owner. On a worker the turn hook polls; while lists are under way
 * and the worker has nothing else to do, it goes on polling for `spin_us`, then arms the queues and sleeps
 * until their descriptors tell. A plain thread does the same in remote_nic_pump. Once warm, posting and
 * polling neither allocate nor lock nor call the system.
 *
 * WHY NOTHING REACHES TWO GROUPS. The two conditions of remote_node.h are checked just before a list is
 * posted, and a queue pair belongs to the group of its data connection: the memory node destroys its end
 * before it frees the group's locks (G6), so that a list that was posted to a dead group has no effect.
 */
#include "fabric/remote_nic.h"

#include <stdio.h>
#include <sys/epoll.h>

/* ---- completing ---- */

static void list_done(void *owner, struct fabric_list *list, int status)
{
    struct remote_link *link = owner;
    /* relaxed, both: hints for the heartbeat */
    atomic_store_relaxed(&link->outstanding, link->outstanding - 1);
    atomic_store_relaxed(&link->progress, link->progress + 1);
    remote_link_complete(link, list, status);
}

/* WAITING FOR ROOM. Lists wait in a chain. The first one tries again when something is done, and stays the
 * first until it is posted or refused; then the next one tries. So a long list is not passed by short ones
 * for ever. */

static void room_wake(struct fabric_list *list)
{
    remote_list(list)->waiting = false;
    task_unpark(remote_list(list)->wait->task);
}

/* The first list was posted or refused: the next one tries. */
static void room_leave(struct remote_link *link)
{
    link->waiting_first = remote_list(link->waiting_first)->next;
    if (link->waiting_first == NULL)
        link->waiting_last = NULL;
    else
        room_wake(link->waiting_first);
}

/* A plain thread is alone on its endpoint and does not queue. */
static void room_wait(struct remote_link *link, struct fabric_list *list)
{
    struct remote_endpoint *endpoint = link->endpoint;
    if (endpoint->worker == NULL) {
        remote_endpoint_pump(endpoint, REMOTE_POLL_MS);
        return;
    }
    if (link->waiting_first == NULL) {
        link->waiting_first = link->waiting_last = list;
    } else if (link->waiting_first != list) {
        remote_list(link->waiting_last)->next = list;
        link->waiting_last = list;
    }
    remote_list(list)->waiting = true;
    while (remote_list(list)->waiting)
        task_park();
}

void remote_nic_drop(struct remote_link *link, struct verbs_queue *queue)
{
    struct fabric_list *list = link->waiting_first;
    verbs_queue_destroy(queue, list_done, link);
    link->armed = false;
    link->waiting_first = link->waiting_last = NULL;
    while (list != NULL) {
        struct fabric_list *next = remote_list(list)->next;
        remote_list(list)->next = NULL; /* it may wait again */
        room_wake(list);
        list = next;
    }
}

uint32_t remote_nic_poll(struct remote_link *link)
{
    struct verbs_queue *queue = link->transport.queue;
    if (queue == NULL)
        return 0;
    uint32_t done = verbs_queue_under_way(queue) > 0 ? verbs_queue_poll(queue, list_done, link) : 0;
    if (done > 0) {
        link->endpoint->idle_since = 0;
        if (link->waiting_first != NULL)
            room_wake(link->waiting_first);
    }
    const char *broken = verbs_queue_broken(queue);
    if (__builtin_expect(broken != NULL, 0)) {
        char why[256];
        snprintf(why, sizeof why, "%s", broken);
        remote_link_fail(link, why);
        return done + 1;
    }
    return done;
}

/* ---- posting ---- */

void remote_nic_post(struct remote_link *link, struct fabric_list *list, struct remote_wait *wait)
{
    int status;
    *remote_list(list) = (struct remote_list){.wait = wait};
    if (link->waiting_first != NULL) /* behind those that came earlier */
        room_wait(link, list);
    for (;;) {
        /* Nothing suspends from here on, so a list is posted to the queue on which it was admitted. */
        status = remote_link_admit(link, list->incarnation);
        if (!status)
            status = verbs_queue_post(link->transport.queue, list);
        if (status != BANYAN_EBUSY)
            break;
        room_wait(link, list);
    }
    if (!status) {
        wait->left++;
        /* relaxed: a hint for the heartbeat */
        atomic_store_relaxed(&link->outstanding, link->outstanding + 1);
    } else {
        list->status = status;
        if (status == BANYAN_ENET)
            remote_nic_poll(link); /* the queue broke: fails the link, and with it all its lists */
    }
    if (link->waiting_first == list)
        room_leave(link);
}

/* ---- sleeping ---- */

/* Arms the queues that have lists under way, so that their descriptors will tell. True: something was done
 * already. */
static bool arm_all(struct remote_endpoint *endpoint)
{
    uint32_t done = 0;
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++) {
        struct remote_link *link = &endpoint->links[i];
        if (link->transport.queue == NULL || verbs_queue_under_way(link->transport.queue) == 0)
            continue;
        if (!link->armed)
            verbs_queue_arm(link->transport.queue);
        link->armed = true;
        done += remote_nic_poll(link);
    }
    return done > 0;
}

static bool under_way(const struct remote_endpoint *endpoint)
{
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++)
        if (endpoint->links[i].transport.queue != NULL &&
            verbs_queue_under_way(endpoint->links[i].transport.queue) > 0)
            return true;
    return false;
}

bool remote_nic_awake(struct worker_hook *hook)
{
    struct remote_endpoint *endpoint = remote_endpoint_of_hook(hook);
    if (!under_way(endpoint)) {
        endpoint->idle_since = 0;
        return false;
    }
    uint64_t now = task_now();
    if (endpoint->idle_since == 0)
        endpoint->idle_since = now;
    if (now - endpoint->idle_since < endpoint->spin_ns)
        return true;
    return arm_all(endpoint); /* false: a descriptor will tell */
}

void remote_nic_turn(struct remote_endpoint *endpoint)
{
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++)
        remote_nic_poll(&endpoint->links[i]);
}

void remote_nic_told(struct remote_link *link)
{
    link->armed = false;
    verbs_queue_awake(link->transport.queue);
    remote_nic_poll(link);
}

static void nic_watch_ready(struct worker_watch *watch, uint32_t events)
{
    (void)events;
    remote_nic_told((struct remote_link *)((char *)watch - offsetof(struct remote_link, nic_watch)));
}

bool remote_nic_watched(struct remote_link *link)
{
    return link->transport.queue == NULL || link->nic_watch.worker != NULL ||
           !worker_watch_add(link->endpoint->worker, &link->nic_watch,
                             verbs_queue_descriptor(link->transport.queue), EPOLLIN, nic_watch_ready);
}

/* Whether the group of a link with lists under way has ended. A worker learns it from the connection, whose
 * descriptor it looks at while it polls; a plain thread that polls here does not. */
static bool group_ended(const struct remote_endpoint *endpoint)
{
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++) {
        const struct remote_link *link = &endpoint->links[i];
        if (link->transport.queue == NULL || verbs_queue_under_way(link->transport.queue) == 0)
            continue;
        /* acquire: condition (2) of remote_node.h */
        if (link->transport.group != atomic_load_acquire(&link->node->group))
            return true;
    }
    return false;
}

bool remote_nic_pump(struct remote_endpoint *endpoint)
{
    if (!under_way(endpoint))
        return false;
    uint64_t begin = task_now();
    do {
        uint32_t done = 0;
        for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++)
            done += remote_nic_poll(&endpoint->links[i]);
        if (done > 0)
            return true;
    } while (task_now() - begin < endpoint->spin_ns && !group_ended(endpoint));
    return arm_all(endpoint);
}
