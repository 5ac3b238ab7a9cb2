/*
 * remote_heartbeat.c - the thread that keeps the leases: it sends heartbeats on all control connections four
 * times a lease, to the home node three times a read lease (G7), reads them back, and ends a group when a
 * connection breaks, or is silent for the time-out while an answer is due. It shuts the dead group's sockets
 * down, by which their owners notice.
 *
 * It runs while a fabric is being opened, too: it keeps the leases of the memory nodes that have joined while
 * others are waited for.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/task.h"
#include "fabric/remote_fabric.h"

#define LEAVE_NS (100 * REMOTE_MS)

/* Shuts the sockets of the node's dead groups down, so that their owners notice. */
static void cut_links(struct remote_node *node)
{
    struct remote_fabric *remote = node->fabric;
    uint64_t group = atomic_load_acquire(&node->group); /* acquire: pairs with the release in remote_node.c */
    spinlock_lock(&remote->lock);
    for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL; endpoint = endpoint->next) {
        struct remote_link *link = &endpoint->links[node->number];
        spinlock_lock(&link->lock);
        if (link->transport.stream != NULL && link->transport.group < group)
            shutdown(net_stream_fd(link->transport.stream), SHUT_RDWR);
        spinlock_unlock(&link->lock);
    }
    spinlock_unlock(&remote->lock);
}

static uint64_t beat_period(const struct remote_node *node)
{
    uint64_t period = node->lease_ms * REMOTE_MS / 4;
    if (node->number != REMOTE_HOME)
        return period;
    uint64_t read_lease = node->fabric->lease.ns / 3;
    return read_lease != 0 && read_lease < period ? read_lease : period;
}

/* Sends a heartbeat when it is due, or another list of memory nodes is to be told, or the rest of one. NULL,
 * or what went wrong. */
static const char *send_beat(struct remote_node *node, struct net_stream *control, uint64_t now)
{
    const uint32_t known = atomic_load_acquire(&node->fabric->cluster.known); /* as it is stored */
    if ((now >= node->beat_due || known != node->beat.generation) && node->beats_unsent == 0) {
        node->beats_unsent = sizeof node->beat;
        node->beat_due = now + beat_period(node);
        node->beat.id++;
        node->beat.generation = known;
        node->beat_sent[node->beat.id % REMOTE_BEATS] = clock_boot_ns(); /* before its first byte leaves */
        if (node->unanswered_since == 0)
            node->unanswered_since = now;
    }
    while (node->beats_unsent > 0) {
        size_t written = 0;
        enum net_status status = net_stream_write(
            control, (const uint8_t *)(&node->beat + 1) - node->beats_unsent, node->beats_unsent, &written);
        if (status == NET_AGAIN)
            break;
        if (status != NET_OK)
            return net_stream_error(control);
        node->beats_unsent -= (uint32_t)written;
    }
    return NULL;
}

/* An echo or a notice is complete. NULL, or what is wrong with it. */
static const char *take_echo(struct remote_node *node, uint64_t group)
{
    const struct wire_header *echo = &node->echo;
    if (echo->kind == WIRE_NOTICE && echo->length == 0 && node->number == REMOTE_HOME) {
        remote_notices_take(&node->fabric->notices, echo->id);
        return NULL;
    }
    if (echo->kind != WIRE_HEARTBEAT || echo->length != 0)
        return "it answered a heartbeat with something else";
    if (echo->id <= node->beat_echoed || echo->id > node->beat.id)
        return "it answered a heartbeat that was not sent";
    if (node->number == REMOTE_HOME)
        remote_cluster_hear(node->fabric, echo->generation);
    node->unanswered_since = 0;
    node->beat_echoed = echo->id;
    if (node->number == REMOTE_HOME && node->beat.id - echo->id < REMOTE_BEATS)
        remote_lease_echo(node, group, node->beat_sent[echo->id % REMOTE_BEATS]);
    return NULL;
}

/* Reads echoes. NULL, or what went wrong. */
static const char *receive_echo(struct remote_node *node, uint64_t group, struct net_stream *control)
{
    for (;;) {
        size_t length = 0;
        enum net_status status = net_stream_read(control, (uint8_t *)&node->echo + node->echo_have,
                                                 sizeof node->echo - node->echo_have, &length);
        if (status == NET_AGAIN)
            return NULL;
        if (status != NET_OK)
            return status == NET_END ? "it closed the connection" : net_stream_error(control);
        node->echo_have += (uint32_t)length;
        if (node->echo_have < sizeof node->echo)
            continue;
        node->echo_have = 0;
        const char *wrong = take_echo(node, group);
        if (wrong != NULL)
            return wrong;
    }
}

/* A mapped pool needs no daemon for lists, and its connection must not be given up while this process lives
 * (remote_request.c, call_mapped). So its silence is told (fabric_trouble), and nothing else is done. */
static void tell_silence(struct remote_node *node, bool silent)
{
    char text[sizeof node->trouble] = "";
    if (silent == node->silent)
        return;
    node->silent = silent;
    if (silent)
        snprintf(text, sizeof text,
                 "memory node %.100s does not answer; only operations that need an answer fail", node->text);
    remote_node_trouble(node, text);
}

/* One step for one node. Returns what to wait for. */
static struct pollfd heartbeat_node(struct remote_node *node, uint64_t now, uint64_t *due)
{
    struct pollfd nothing = {.fd = -1};
    spinlock_lock(&node->lock);
    struct net_stream *control = node->control;
    uint64_t group = node->group;
    if (group % 2 == 0)
        node->control = NULL;
    spinlock_unlock(&node->lock);
    if (control == NULL)
        return nothing;
    if (group % 2 == 0) {
        cut_links(node);
        net_stream_destroy(control);
        remote_event_set(node->reconnect_event);
        return nothing;
    }
    const char *trouble = receive_echo(node, group, control);
    if (trouble == NULL)
        trouble = send_beat(node, control, now);
    bool silent = trouble == NULL && node->unanswered_since != 0 &&
                  now - node->unanswered_since > node->fabric->identity.timeout_ms * REMOTE_MS;
    if (node->mapped)
        tell_silence(node, silent);
    else if (silent)
        trouble = "it does not answer";
    if (trouble != NULL) {
        remote_node_lose(node, group, trouble); /* sets the event: this thread comes back at once */
        return nothing;
    }
    if (node->beat_due < *due)
        *due = node->beat_due;
    uint32_t wants = net_stream_wants(control, node->beats_unsent > 0);
    return (struct pollfd){.fd = net_stream_fd(control),
                           .events =
                               (short)((wants & EPOLLIN ? POLLIN : 0) | (wants & EPOLLOUT ? POLLOUT : 0))};
}

/* Ends the group of a link that has waited too long for an answer. `late`: this thread itself was kept from
 * running. */
static void heartbeat_link(struct remote_link *link, uint64_t now, bool late)
{
    /* relaxed: hints; what is missed now is seen the next time */
    uint32_t progress = atomic_load_relaxed(&link->progress);
    if (atomic_load_relaxed(&link->outstanding) == 0 || progress != link->seen_progress || late) {
        link->seen_progress = progress;
        link->seen_at = now;
        return;
    }
    /* Not as a difference: an endpoint that was opened after `now` was read has a later seen_at. */
    if (now < link->seen_at + link->node->fabric->identity.timeout_ms * REMOTE_MS)
        return;
    spinlock_lock(&link->lock);
    uint64_t group = link->transport.group;
    spinlock_unlock(&link->lock);
    /* Not before: a node that joins is still being connected to, and says only then whether it is mapped.
     * What is under way has a transport, which came under the lock. Where it is mapped only calls are under
     * way, and they watch their time themselves. */
    if (!link->node->mapped)
        remote_node_lose(link->node, group, "it does not answer in time");
}

void remote_heartbeat_main(void *argument)
{
    struct remote_fabric *remote = argument;
    uint64_t tick = remote->identity.timeout_ms * REMOTE_MS / 8, last = task_now();
    struct pollfd *polls = remote->polls;
    tick = tick < 2 * REMOTE_MS ? 2 * REMOTE_MS : tick > 250 * REMOTE_MS ? 250 * REMOTE_MS : tick;
    polls[0] = (struct pollfd){.fd = remote->heartbeat_event, .events = POLLIN};
    /* acquire: pairs with remote_threads_stop */
    while (!atomic_load_acquire(&remote->quit)) {
        uint64_t now = task_now(), due = now + tick;
        bool late = now - last > 4 * tick; /* this process was stopped, and the silence is its own */
        last = now;
        const uint16_t count = remote_count(remote);
        for (uint16_t i = 0; i < count; i++)
            polls[i + 1] = heartbeat_node(&remote->nodes[i], now, &due);
        spinlock_lock(&remote->lock);
        for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL;
             endpoint = endpoint->next) {
            for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++)
                heartbeat_link(&endpoint->links[i], now, late);
            remote_endpoint_peers_expire(endpoint, now);
        }
        spinlock_unlock(&remote->lock);
        remote_event_wait(polls, count + 1u, due);
    }
}

/* ---- the last one ---- */

/* Sends the rest of the last heartbeat and reads its echo. True while it is missing and may still come. */
static bool last_echo(struct remote_node *node)
{
    return (node->beats_unsent == 0 || send_beat(node, node->control, 0) == NULL) &&
           receive_echo(node, node->group, node->control) == NULL &&
           (node->beats_unsent > 0 || node->unanswered_since != 0);
}

void remote_node_leave(struct remote_node *node)
{
    uint64_t now, deadline = task_now() + LEAVE_NS;
    while (node->control != NULL && node->group % 2 == 1 && node->unanswered_since != 0 && last_echo(node) &&
           (now = task_now()) < deadline)
        net_wait(net_stream_fd(node->control), net_stream_wants(node->control, node->beats_unsent > 0),
                 deadline - now);
    if (node->beats_unsent > 0) /* within a heartbeat a goodbye would not be read as one */
        net_stream_destroy(node->control);
    else
        remote_hang_up(node->control);
    node->control = NULL;
}
