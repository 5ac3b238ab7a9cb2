/*
 * remote_threads.c - starting, waking and stopping the remote backend's threads. Each waits in poll(), and
 * an eventfd wakes it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/task.h"
#include "fabric/remote_fabric.h"

void remote_event_set(int event)
{
    uint64_t one = 1;
    ssize_t length = write(event, &one, sizeof one);
    (void)length; /* fails only if the counter is full, and then the event is set already */
}

void remote_event_wait(struct pollfd *polls, nfds_t count, uint64_t due)
{
    uint64_t now = task_now(), times;
    uint64_t left = now < due ? due - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};
    if (ppoll(polls, count, &timeout, NULL) > 0 && polls[0].revents != 0) {
        ssize_t length = read(polls[0].fd, &times, sizeof times);
        (void)length; /* resets the event; how often it was set does not matter */
    }
}

static bool event_open(int *event)
{
    *event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *event >= 0;
}

static void event_close(int *event)
{
    if (*event >= 0)
        close(*event);
    *event = -1;
}

int remote_heartbeat_start(struct remote_fabric *remote, struct error *error)
{
    /* The cluster's event too: an echo that the heartbeat thread receives may set it. */
    bool events = event_open(&remote->heartbeat_event) && event_open(&remote->cluster.event);
    for (uint16_t i = 0; i < remote_count(remote) && events; i++)
        events = event_open(&remote->nodes[i].reconnect_event);
    if (!events)
        return error_set(error, BANYAN_ENOMEM, "no descriptors for the fabric's threads: %s",
                         strerror(errno));
    remote->polls = calloc(remote->most + 1u, sizeof *remote->polls);
    if (remote->polls == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for the fabric's threads");
    return thread_start(&remote->heartbeat, remote_heartbeat_main, remote, error);
}

int remote_reconnect_start(struct remote_fabric *remote, struct error *error)
{
    int status = BANYAN_OK;
    for (uint16_t i = 0; i < remote_count(remote) && !status; i++)
        if (remote->nodes[i].fabric != NULL)
            status = remote_reconnect_start_node(&remote->nodes[i], error);
    return status;
}

int remote_reconnect_start_node(struct remote_node *node, struct error *error)
{
    if (node->reconnect_event < 0 && !event_open(&node->reconnect_event))
        return error_set(error, BANYAN_ENOMEM, "no descriptors for the fabric's threads: %s",
                         strerror(errno));
    return node->reconnect != NULL ? BANYAN_OK
                                   : thread_start(&node->reconnect, remote_reconnect_main, node, error);
}

int remote_cluster_start(struct remote_fabric *remote, struct error *error)
{
    return thread_start(&remote->cluster.thread, remote_cluster_main, remote, error);
}

void remote_cluster_stop(struct remote_fabric *remote)
{
    if (remote->cluster.event >= 0)
        remote_event_set(remote->cluster.event);
    thread_join(remote->cluster.thread);
    remote->cluster.thread = NULL;
}

void remote_threads_stop(struct remote_fabric *remote)
{
    atomic_store_release(&remote->quit, 1u); /* release: pairs with the threads' loops */
    remote_cluster_stop(remote);             /* it could start others */
    if (remote->heartbeat_event >= 0)
        remote_event_set(remote->heartbeat_event);
    for (uint16_t i = 0; i < remote_count(remote); i++)
        if (remote->nodes[i].reconnect_event >= 0)
            remote_event_set(remote->nodes[i].reconnect_event);
    thread_join(remote->heartbeat);
    remote->heartbeat = NULL;
    for (uint16_t i = 0; i < remote_count(remote); i++) {
        struct remote_node *node = &remote->nodes[i];
        thread_join(node->reconnect);
        node->reconnect = NULL;
        event_close(&node->reconnect_event);
    }
    event_close(&remote->heartbeat_event);
    event_close(&remote->cluster.event);
    free(remote->polls);
    remote->polls = NULL;
    atomic_store_relaxed(&remote->quit, 0u); /* relaxed: no thread runs that would read it */
}
