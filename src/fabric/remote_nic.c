/*
 * remote_nic.c - memory nodes that are reached through a NIC (`rdma://`): lists go through a queue
 * pair (verbs_queue.h) beside the data connection, which keeps calls, and whose end is the queue pair's end.
 *
 * Everything here runs on the endpoint's owner, but for opening (remote_nic_attach: the thread that opens an
 * endpoint, or the reconnect). On a worker, the turn hook polls; while lists are under way and the worker has
 * nothing else to do it goes on polling for `spin_us`, then arms the queues and sleeps until their
 * descriptors tell. A plain thread does the same in remote_nic_pump. Once warm, posting and polling neither
 * allocate nor lock nor call the system.
 *
 * WHY NOTHING REACHES TWO GROUPS: remote_private.h's two conditions are asked just before a list is posted,
 * and a queue pair belongs to the group of its data connection: the memory node destroys its end before it
 * frees the group's locks (G6), so what was posted to a dead group goes nowhere.
 */
#include "fabric/remote_private.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "fabric/verbs_queue.h"

#define PROBE_READS 8u
#define MTU_MIN     256u /* the specification's smallest */

/* ---- devices ---- */

static bool same_place(const struct sockaddr_storage *one, const struct sockaddr_storage *other)
{
    const struct sockaddr_in *four = (const void *)one, *other_four = (const void *)other;
    const struct sockaddr_in6 *six = (const void *)one, *other_six = (const void *)other;
    if (one->ss_family != other->ss_family)
        return false;
    if (one->ss_family == AF_INET)
        return four->sin_addr.s_addr == other_four->sin_addr.s_addr;
    return one->ss_family == AF_INET6 &&
           memcmp(&six->sin6_addr, &other_six->sin6_addr, sizeof six->sin6_addr) == 0;
}

int remote_nic_open(struct remote_node *node, const struct remote_dialed *dialed, struct error *error)
{
    struct remote_fabric *remote = node->fabric;
    struct sockaddr_storage local = {0};
    socklen_t length = sizeof local;
    struct error inner = {0};
    if (node->device != NULL) /* from an earlier try for a compute id */
        return BANYAN_OK;
    if (getsockname(net_stream_fd(dialed->stream), (struct sockaddr *)&local, &length) != 0)
        local.ss_family = AF_UNSPEC;
    struct remote_device *device = remote->devices;
    while (device != NULL && !same_place(&device->local, &local))
        device = device->next;
    if (device == NULL) {
        device = calloc(1, sizeof *device);
        if (device == NULL)
            return error_set(error, BANYAN_ENOMEM, "no memory for a NIC");
        device->local = local;
        int status =
            verbs_device_open(&device->device, &remote->nic,
                              local.ss_family != AF_UNSPEC ? (const struct sockaddr *)&local : NULL, &inner);
        if (status) {
            free(device);
            return error_set(error, status, "memory node %.100s: %s", node->text, inner.text);
        }
        device->next = remote->devices;
        remote->devices = device;
    }
    node->device = device->device;
    return BANYAN_OK;
}

void remote_nics_close(struct remote_fabric *remote)
{
    while (remote->devices != NULL) {
        struct remote_device *device = remote->devices;
        remote->devices = device->next;
        verbs_device_close(device->device);
        free(device);
    }
}

/* What the memory node says of its NIC, and needs of ours. */
int remote_nic_validate(const struct remote_node *node, const struct wire_welcome *welcome,
                        struct error *error)
{
    if (welcome->nic != 1)
        return error_set(error, BANYAN_EVERSION, "memory node %.100s does not say that it serves RDMA",
                         node->text);
    if (welcome->nic_mtu < MTU_MIN ||
        (welcome->lock_width == 2 && !(welcome->nic_promises & WIRE_NIC_MASKED_CAS)))
        return error_set(
            error, BANYAN_EVERSION,
            "memory node %.100s describes an impossible NIC: an MTU of %u bytes, lock words of %u, "
            "promises 0x%x",
            node->text, (unsigned)welcome->nic_mtu, (unsigned)welcome->lock_width,
            (unsigned)welcome->nic_promises);
    if (welcome->lock_width == 2 && !node->device->features.masked_cas)
        return error_set(error, BANYAN_ENOTSUP,
                         "memory node %.80s has lock words of 2 bytes, for which device %.40s lacks a masked "
                         "compare-and-swap; start the memory nodes with --lock-width 8",
                         node->text, node->device->name);
    return BANYAN_OK;
}

/* ---- attaching ---- */

static int exchange(struct net_stream *stream, const struct wire_nic *ours, struct wire_nic *theirs,
                    uint64_t deadline, struct error *error)
{
    struct {
        struct wire_header head;
        struct wire_nic nic;
    } message = {.head = {.length = sizeof message.nic, .kind = WIRE_ATTACH}, .nic = *ours};
    char sentence[sizeof error->text] = "";
    int status = remote_send(stream, &message, sizeof message, deadline, error);
    if (!status)
        status = remote_receive(stream, &message.head, sizeof message.head, deadline, error);
    if (status)
        return status;
    const struct wire_header *head = &message.head;
    bool refused = wire_header_valid(head) && head->kind == WIRE_ATTACHED && head->status &&
                   head->length < sizeof sentence;
    if (refused) {
        status = remote_receive(stream, sentence, head->length, deadline, error);
        for (char *at = sentence; *at != 0; at++)
            *at = (unsigned char)*at < ' ' || *at == 127 ? '?' : *at;
        return status ? status : error_set(error, head->status, "its NIC: %s", sentence);
    }
    if (!wire_header_valid(head) || head->kind != WIRE_ATTACHED || head->length != sizeof *theirs)
        return error_set(error, BANYAN_EVERSION, "it answers an end of a queue pair with something else");
    return remote_receive(stream, theirs, sizeof *theirs, deadline, error);
}

int remote_nic_attach(const struct remote_node *node, struct net_stream *stream, uint64_t deadline,
                      struct verbs_queue **queue, struct error *error)
{
    struct wire_nic theirs;
    int status = verbs_queue_create(queue, node->device, error);
    if (status)
        return status;
    status = exchange(stream, verbs_queue_end(*queue), &theirs, deadline, error);
    if (!status) {
        const struct verbs_memory memory = {.pool_address = theirs.pool_address,
                                            .pool_bytes = node->pool_bytes,
                                            .lock_address = theirs.lock_address,
                                            .lock_bytes = node->lock_bytes,
                                            .pool_key = theirs.pool_key,
                                            .lock_key = theirs.lock_key};
        status = verbs_queue_connect(*queue, &theirs, &memory, error);
    }
    if (!status)
        return BANYAN_OK;
    verbs_queue_destroy(*queue, NULL, NULL);
    *queue = NULL;
    return status;
}

/* ---- completing ---- */

static void list_done(void *owner, struct fabric_list *list, int status)
{
    struct remote_link *link = owner;
    /* relaxed, both: hints for the heartbeat */
    atomic_store_relaxed(&link->outstanding, link->outstanding - 1);
    atomic_store_relaxed(&link->progress, link->progress + 1);
    remote_link_complete(link, list, status);
}

/* WAITING FOR ROOM. Lists wait in a chain. The first may try when something is done, and stays the first
 * until it is posted or refused, which lets the next one try: so short lists do not pass a long one for ever.
 */

static void room_wake(struct fabric_list *list)
{
    remote_list(list)->waiting = false;
    task_unpark(remote_list(list)->wait->task);
}

/* The first list is posted or refused: the next may try. */
static void room_leave(struct remote_link *link)
{
    link->waiting_first = remote_list(link->waiting_first)->next;
    if (link->waiting_first == NULL)
        link->waiting_last = NULL;
    else
        room_wake(link->waiting_first);
}

/* On a plain thread nobody else is there. */
static void room_wait(struct remote_link *link, struct fabric_list *list)
{
    struct remote_endpoint *endpoint = link->endpoint;
    if (endpoint->worker == NULL) {
        remote_endpoint_pump(endpoint);
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
        remote_list(list)->next = NULL; /* it may come to wait again */
        room_wake(list);
        list = next;
    }
}

uint32_t remote_nic_poll(struct remote_link *link)
{
    struct verbs_queue *queue = link->ground.queue;
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
    if (link->waiting_first != NULL) /* behind those who were here before */
        room_wait(link, list);
    for (;;) {
        /* From here on nothing suspends: what was admitted is posted to the same queue. */
        status = remote_link_admit(link, list->incarnation);
        if (!status)
            status = verbs_queue_post(link->ground.queue, list);
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
            remote_nic_poll(link); /* it broke: says so to all */
    }
    if (link->waiting_first == list)
        room_leave(link);
}

/* ---- sleeping ---- */

/* Asks the queues that have lists under way to tell when they have something. True: one of them has already.
 */
static bool arm_all(struct remote_endpoint *endpoint)
{
    uint32_t done = 0;
    for (uint16_t i = 0; i < endpoint->count; i++) {
        struct remote_link *link = &endpoint->links[i];
        if (link->ground.queue == NULL || verbs_queue_under_way(link->ground.queue) == 0)
            continue;
        if (!link->armed)
            verbs_queue_arm(link->ground.queue);
        link->armed = true;
        done += remote_nic_poll(link);
    }
    return done > 0;
}

static bool under_way(const struct remote_endpoint *endpoint)
{
    for (uint16_t i = 0; i < endpoint->count; i++)
        if (endpoint->links[i].ground.queue != NULL &&
            verbs_queue_under_way(endpoint->links[i].ground.queue) > 0)
            return true;
    return false;
}

bool remote_nic_awake(struct worker_hook *hook)
{
    struct remote_endpoint *endpoint =
        (struct remote_endpoint *)((char *)hook - offsetof(struct remote_endpoint, hook));
    if (!under_way(endpoint)) {
        endpoint->idle_since = 0;
        return false;
    }
    uint64_t now = task_now();
    if (endpoint->idle_since == 0)
        endpoint->idle_since = now;
    if (now - endpoint->idle_since < endpoint->spin_ns)
        return true;
    return arm_all(endpoint); /* false: a descriptor tells */
}

void remote_nic_turn(struct remote_endpoint *endpoint)
{
    for (uint16_t i = 0; i < endpoint->count; i++)
        remote_nic_poll(&endpoint->links[i]);
}

void remote_nic_told(struct remote_link *link)
{
    link->armed = false;
    verbs_queue_awake(link->ground.queue);
    remote_nic_poll(link);
}

static void nic_ready(struct worker_watch *watch, uint32_t events)
{
    (void)events;
    remote_nic_told((struct remote_link *)((char *)watch - offsetof(struct remote_link, nic_watch)));
}

bool remote_nic_watched(struct remote_link *link)
{
    return link->ground.queue == NULL || link->nic_watch.worker != NULL ||
           !worker_watch_add(link->endpoint->worker, &link->nic_watch,
                             verbs_queue_descriptor(link->ground.queue), EPOLLIN, nic_ready);
}

/* Of a link with lists under way. A worker hears of it from the connection, which it looks at while it polls;
 * a plain thread does not look. */
static bool group_ended(const struct remote_endpoint *endpoint)
{
    for (uint16_t i = 0; i < endpoint->count; i++) {
        const struct remote_link *link = &endpoint->links[i];
        if (link->ground.queue == NULL || verbs_queue_under_way(link->ground.queue) == 0)
            continue;
        /* acquire: as everywhere */
        if (link->ground.group != atomic_load_acquire(&link->node->group))
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
        for (uint16_t i = 0; i < endpoint->count; i++)
            done += remote_nic_poll(&endpoint->links[i]);
        if (done > 0)
            return true;
    } while (task_now() - begin < endpoint->spin_ns && !group_ended(endpoint));
    return arm_all(endpoint);
}

/* ---- the first look ---- */

static void probe_done(void *owner, struct fabric_list *list, int status)
{
    bool *done = owner;
    list->status = status;
    *done = true;
}

/* One READ. Nobody else uses the queue. */
static int probe_once(struct verbs_queue *queue, uint16_t number, uint64_t deadline, struct error *error)
{
    uint64_t word;
    struct fabric_command read = {.operation = FABRIC_READ,
                                  .length = sizeof word,
                                  .address = gaddr_make(number, sizeof word),
                                  .read.buffer = &word};
    struct fabric_list list = {.node = number, .count = 1, .commands = &read};
    bool done = false;
    int status = verbs_queue_post(queue, &list);
    while (!status && !done && verbs_queue_broken(queue) == NULL && task_now() < deadline)
        verbs_queue_poll(queue, probe_done, &done);
    if (!status && done)
        return list.status;
    const char *broken = verbs_queue_broken(queue);
    status = error_set(error, status ? status : BANYAN_ENET, "%.200s",
                       broken != NULL ? broken
                       : !status      ? "its NIC does not answer in time"
                                      : "its pool is too short for a header");
    verbs_queue_destroy(queue, probe_done, &done); /* the list is ours again */
    return status;
}

/* Reads the memory node's header through a queue pair: a fabric that cannot get there says so when it is
 * opened, not when it is used. The shortest READ is what a round trip costs. */
int remote_nic_probe(struct remote_node *node, struct error *error)
{
    uint64_t timeout = node->fabric->identity.timeout_ms * REMOTE_MS, shortest = UINT32_MAX;
    uint64_t deadline = task_now() + timeout;
    struct remote_ground ground = {0};
    struct error inner = {0};
    int status = remote_ground_open(node, timeout, &ground, error);
    if (status)
        return status;
    for (unsigned i = 0; i < PROBE_READS && !status; i++) {
        uint64_t begin = task_now();
        status = probe_once(ground.queue, node->number, deadline, &inner);
        uint64_t took = task_now() - begin;
        shortest = took < shortest ? took : shortest;
    }
    if (status) {
        ground.queue = NULL; /* destroyed */
        error_set(error, status, "memory node %.100s: %s", node->text, inner.text);
    }
    remote_ground_close(&ground, true);
    node->round_trip_ns = (uint32_t)shortest;
    return status;
}
