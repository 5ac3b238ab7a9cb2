/*
 * remote_lease.c - groups of connections that live and die together: how they begin, how their loss is
 * noticed, and how they are opened anew (remote_private.h says why nothing gets from one into the next).
 *
 * The heartbeat's thread sends heartbeats on all control connections four times a lease, reads them back, and
 * ends a group when a connection breaks or is silent for the time-out while an answer is due. It cuts the
 * dead group's sockets, by which their owners notice. The reconnect's thread opens control connections again,
 * with delays from 10 ms to 1 s, then a data connection for each endpoint, which its owner takes when it next
 * needs one. remote_node_lose may be called on any thread.
 *
 * While a fabric is being opened the heartbeat is there already, and keeps the leases of the memory nodes
 * that have joined while others let us wait; the reconnect is not.
 */
#include "fabric/remote_private.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

#define DELAY_FIRST (10 * REMOTE_MS)
#define DELAY_LAST  (1000 * REMOTE_MS)
#define LEAVE_NS    (100 * REMOTE_MS)
#define DIAL_NS     (1000 * REMOTE_MS) /* one attempt to open a connection anew, at most */

/* ---- the end of a group, and the beginning of one ---- */

void remote_node_lose(struct remote_node *node, uint64_t group, const char *why)
{
    char text[sizeof node->trouble];
    snprintf(text, sizeof text, "lost the connection to memory node %.100s: %s", node->text, why);
    spinlock_lock(&node->lock);
    bool ours = node->group == group && group % 2 == 1;
    if (ours) {
        /* release, and the incarnation after it: the order that remote_private.h argues with */
        atomic_store_release(&node->group, group + 1);
        uint64_t since = __atomic_add_fetch(&node->fabric->incarnation, 1, __ATOMIC_ACQ_REL);
        atomic_store_relaxed(&node->since, since); /* published by the next group's number */
        node->losses++;
        memcpy(node->trouble, text, sizeof text);
        if (node->control != NULL) /* the memory node must let go of all of the group */
            shutdown(net_stream_fd(node->control), SHUT_RDWR);
    }
    spinlock_unlock(&node->lock);
    if (!ours)
        return;
    log_warning("%s", text);
    remote_event_set(node->fabric->heartbeat_event);
}

void remote_node_join(struct remote_node *node, struct remote_dialed *dialed)
{
    node->beat_due = node->unanswered_since = 0;
    node->silent = false;
    node->beats_unsent = node->echo_have = 0;
    spinlock_lock(&node->lock);
    node->control = dialed->stream;
    node->group_key = dialed->welcome.group_key;
    node->trouble[0] = 0;
    /* release: who sees the number sees the group's `since` */
    atomic_store_release(&node->group, node->group + 1);
    spinlock_unlock(&node->lock);
    dialed->stream = NULL;
}

static void set_trouble(struct remote_node *node, const char *text)
{
    spinlock_lock(&node->lock);
    snprintf(node->trouble, sizeof node->trouble, "%s", text);
    spinlock_unlock(&node->lock);
}

int remote_node_same(const struct remote_node *node, const struct wire_welcome *welcome, struct error *error)
{
    if (welcome->cluster_id == 0)
        return remote_empty_error(&node->address, error);
    if (welcome->cluster_id != node->cluster_id || welcome->node != node->number)
        return error_set(error, BANYAN_EINVAL,
                         "memory node %.100s now is number %u of another cluster; restart this compute node",
                         node->text, (unsigned)welcome->node);
    if (welcome->instance != node->instance)
        return error_set(
            error, BANYAN_EINVAL,
            "memory node %.80s was restarted and lost its contents; run `banyan compute --format` "
            "once to make a new, empty cluster",
            node->text);
    return BANYAN_OK;
}

/* ---- data connections ---- */

static int map_staging(int descriptor, struct wire_staging **staging, struct error *error)
{
    struct stat file;
    if (fstat(descriptor, &file) != 0 || file.st_size < (off_t)sizeof **staging)
        return error_set(error, BANYAN_ENET, "its staging area is too small");
    void *mapped = mmap(NULL, sizeof **staging, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED)
        return error_set(error, BANYAN_ENOMEM, "its staging area cannot be mapped: %s", strerror(errno));
    *staging = mapped;
    return BANYAN_OK;
}

int remote_ground_open(struct remote_node *node, uint64_t timeout_ns, struct remote_ground *ground,
                       struct error *error)
{
    struct remote_fabric *remote = node->fabric;
    struct remote_wish wish = {.role = WIRE_DATA, .compute_id = remote->fabric.capabilities.compute_id};
    struct remote_dialed dialed;
    struct error inner = {0};
    spinlock_lock(&node->lock);
    struct remote_ground opened = {.group = node->group, .since = node->since};
    wish.group_key = node->group_key;
    spinlock_unlock(&node->lock);
    if (opened.group % 2 == 0)
        return error_set(error, BANYAN_ENET, "memory node %.100s is not connected", node->text);
    uint64_t deadline = task_now() + timeout_ns;
    int status = remote_dial(&remote->identity, &node->address, &wish, timeout_ns, &dialed, error);
    if (status)
        return status;
    if ((dialed.welcome.mapped != 0) != node->mapped)
        status = error_set(&inner, BANYAN_ENET, "it maps its pool now and then only");
    else if (node->mapped)
        status = map_staging(dialed.descriptors[0], &opened.staging, &inner);
    else if (node->device != NULL)
        status = remote_nic_attach(node, dialed.stream, deadline, &opened.queue, &inner);
    if (status) {
        remote_hang_up(dialed.stream); /* it was let in: without a goodbye it would cost the group */
        dialed.stream = NULL;
        remote_dialed_drop(&dialed);
        return error_set(error, status, "memory node %.100s: %s", node->text, inner.text);
    }
    opened.stream = dialed.stream;
    dialed.stream = NULL;
    remote_dialed_drop(&dialed);
    *ground = opened;
    return BANYAN_OK;
}

void remote_ground_close(struct remote_ground *ground, bool goodbye)
{
    if (ground->stream != NULL && goodbye)
        remote_hang_up(ground->stream);
    else if (ground->stream != NULL)
        net_stream_destroy(ground->stream);
    if (ground->staging != NULL)
        munmap(ground->staging, sizeof *ground->staging);
    verbs_queue_destroy(ground->queue, NULL, NULL); /* nothing is under way on it */
    *ground = (struct remote_ground){0};
}

/* ---- events ---- */

void remote_event_set(int event)
{
    uint64_t one = 1;
    ssize_t length = write(event, &one, sizeof one);
    (void)length; /* fails only when the counter is at its end: then it is readable anyway */
}

static void event_wait(struct pollfd *polls, nfds_t count, uint64_t due)
{
    uint64_t now = task_now(), times;
    uint64_t left = now < due ? due - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};
    if (ppoll(polls, count, &timeout, NULL) > 0 && polls[0].revents != 0) {
        ssize_t length = read(polls[0].fd, &times, sizeof times);
        (void)length; /* only makes it unreadable again */
    }
}

/* ---- the heartbeat ---- */

/* Shuts the sockets of the node's dead groups, so that their owners notice. */
static void cut_links(struct remote_node *node)
{
    struct remote_fabric *remote = node->fabric;
    uint64_t group = atomic_load_acquire(&node->group); /* acquire: as everywhere */
    spinlock_lock(&remote->lock);
    for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL; endpoint = endpoint->next) {
        struct remote_link *link = &endpoint->links[node->number];
        spinlock_lock(&link->lock);
        if (link->ground.stream != NULL && link->ground.group < group)
            shutdown(net_stream_fd(link->ground.stream), SHUT_RDWR);
        spinlock_unlock(&link->lock);
    }
    spinlock_unlock(&remote->lock);
}

/* NULL: well. */
static const char *send_beat(struct remote_node *node, struct net_stream *control, uint64_t now)
{
    static const struct wire_header beat = {.kind = WIRE_HEARTBEAT};
    if (now >= node->beat_due && node->beats_unsent == 0) {
        node->beats_unsent = sizeof beat;
        node->beat_due = now + node->lease_ms * REMOTE_MS / 4;
        if (node->unanswered_since == 0)
            node->unanswered_since = now;
    }
    while (node->beats_unsent > 0) {
        size_t written = 0;
        enum net_status status = net_stream_write(control, (const uint8_t *)(&beat + 1) - node->beats_unsent,
                                                  node->beats_unsent, &written);
        if (status == NET_AGAIN)
            break;
        if (status != NET_OK)
            return net_stream_error(control);
        node->beats_unsent -= (uint32_t)written;
    }
    return NULL;
}

static const char *receive_echo(struct remote_node *node, struct net_stream *control)
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
        node->unanswered_since = 0;
        if (node->echo.kind != WIRE_HEARTBEAT || node->echo.length != 0)
            return "it answered a heartbeat with something else";
    }
}

/* A mapped pool needs no daemon for lists, and must not be let go while this process lives (remote_link.c,
 * call_mapped): its silence is told, and nothing else is done. */
static void tell_silence(struct remote_node *node, bool silent)
{
    char text[sizeof node->trouble] = "";
    if (silent == node->silent)
        return;
    node->silent = silent;
    if (silent)
        snprintf(text, sizeof text, "memory node %.100s does not answer; what needs no answer works on",
                 node->text);
    set_trouble(node, text);
}

/* Returns what to wait for. */
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
        remote_event_set(node->fabric->reconnect_event);
        return nothing;
    }
    const char *trouble = receive_echo(node, control);
    if (trouble == NULL)
        trouble = send_beat(node, control, now);
    bool silent = trouble == NULL && node->unanswered_since != 0 &&
                  now - node->unanswered_since > node->fabric->identity.timeout_ms * REMOTE_MS;
    if (node->mapped)
        tell_silence(node, silent);
    else if (silent)
        trouble = "it does not answer";
    if (trouble != NULL) {
        remote_node_lose(node, group, trouble); /* which makes us come back at once */
        return nothing;
    }
    if (node->beat_due < *due)
        *due = node->beat_due;
    uint32_t wants = net_stream_wants(control, node->beats_unsent > 0);
    return (struct pollfd){.fd = net_stream_fd(control),
                           .events =
                               (short)((wants & EPOLLIN ? POLLIN : 0) | (wants & EPOLLOUT ? POLLOUT : 0))};
}

/* Ends the group of a link that has waited too long for an answer. */
static void heartbeat_link(struct remote_link *link, uint64_t now, bool late)
{
    /* relaxed: a look from outside; what is missed now is seen the next time */
    uint32_t progress = atomic_load_relaxed(&link->progress);
    if (link->node->mapped) /* calls, which watch their time themselves */
        return;
    if (atomic_load_relaxed(&link->outstanding) == 0 || progress != link->seen_progress || late) {
        link->seen_progress = progress;
        link->seen_at = now;
        return;
    }
    /* Not as a difference: an endpoint that was opened since our look at the clock is ahead of it. */
    if (now < link->seen_at + link->node->fabric->identity.timeout_ms * REMOTE_MS)
        return;
    spinlock_lock(&link->lock);
    uint64_t group = link->ground.group;
    spinlock_unlock(&link->lock);
    remote_node_lose(link->node, group, "it does not answer in time");
}

static void heartbeat_main(void *argument)
{
    struct remote_fabric *remote = argument;
    uint64_t tick = remote->identity.timeout_ms * REMOTE_MS / 8, last = task_now();
    struct pollfd *polls = remote->polls;
    tick = tick < 2 * REMOTE_MS ? 2 * REMOTE_MS : tick > 250 * REMOTE_MS ? 250 * REMOTE_MS : tick;
    polls[0] = (struct pollfd){.fd = remote->heartbeat_event, .events = POLLIN};
    /* acquire: the other side of remote_threads_stop */
    while (!atomic_load_acquire(&remote->quit)) {
        uint64_t now = task_now(), due = now + tick;
        bool late = now - last > 4 * tick; /* this process was stopped: nobody else's fault */
        last = now;
        for (uint16_t i = 0; i < remote->count; i++)
            polls[i + 1] = heartbeat_node(&remote->nodes[i], now, &due);
        spinlock_lock(&remote->lock);
        for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL;
             endpoint = endpoint->next)
            for (uint16_t i = 0; i < endpoint->count; i++)
                heartbeat_link(&endpoint->links[i], now, late);
        spinlock_unlock(&remote->lock);
        event_wait(polls, remote->count + 1u, due);
    }
}

/* ---- the reconnect ---- */

bool remote_membarrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* Waits until no list runs on mapped memory that began before the node's group ended. The barrier makes every
 * thread's store to `runs` visible to us, or our store to `group` visible to its check, as a fence in each
 * list would. */
static void quiesce(struct remote_fabric *remote)
{
    bool running = true, first = true;
    if (remote->membarrier)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    /* seq_cst: the other side's fence where there is no membarrier */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    while (running && !atomic_load_acquire(&remote->quit)) { /* acquire: as in the loops */
        running = false;
        spinlock_lock(&remote->lock);
        for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL;
             endpoint = endpoint->next) {
            uint64_t runs = atomic_load_acquire(&endpoint->runs); /* acquire: the list is over */
            if (first)
                endpoint->seen_runs = runs;
            /* An endpoint that was opened meanwhile has 0 here, or an earlier wait's number: not ours. */
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
    struct remote_wish wish = {.role = WIRE_CONTROL, .compute_id = remote->fabric.capabilities.compute_id};
    struct remote_dialed dialed;
    if (node->mapped)
        quiesce(remote);
    int status = remote_dial(&remote->identity, &node->address, &wish, dial_timeout(remote), &dialed, error);
    if (status)
        return status;
    status = remote_node_same(node, &dialed.welcome, error);
    if (!status && (dialed.welcome.mapped != 0) != node->mapped)
        status =
            error_set(error, BANYAN_ENET, "memory node %.100s does not share its pool as before", node->text);
    if (!status && node->device != NULL)
        status = remote_nic_validate(node, &dialed.welcome, error);
    if (status) {
        remote_hang_up(dialed.stream);
        dialed.stream = NULL;
    } else {
        remote_node_join(node, &dialed);
        log_info("connected to memory node %s again", node->text);
        remote_event_set(remote->heartbeat_event);
    }
    remote_dialed_drop(&dialed); /* the descriptors: the same memory is mapped already */
    return status;
}

static void reconnect_nodes(struct remote_fabric *remote, uint64_t *due)
{
    for (uint16_t i = 0; i < remote->count; i++) {
        struct remote_node *node = &remote->nodes[i];
        struct error error = {0};
        spinlock_lock(&node->lock);
        bool down = node->group % 2 == 0 && node->control == NULL;
        spinlock_unlock(&node->lock);
        if (!down)
            continue;
        if (task_now() >= node->retry_at) {
            int status = reconnect_node(node, &error);
            node->retry_delay = !status ? 0 : delay_next(node->retry_delay);
            node->retry_at = task_now() + node->retry_delay;
            if (!status)
                continue;
            set_trouble(node, error.text);
        }
        if (node->retry_at < *due)
            *due = node->retry_at;
    }
}

/* A link whose node has a group that neither it nor what waits for its owner belongs to; marked as being
 * mended, which keeps its endpoint. */
static struct remote_link *find_broken(struct remote_fabric *remote, uint64_t *due)
{
    struct remote_link *found = NULL;
    uint64_t now = task_now();
    spinlock_lock(&remote->lock);
    for (struct remote_endpoint *endpoint = remote->endpoints; endpoint != NULL && found == NULL;
         endpoint = endpoint->next)
        for (uint16_t i = 0; i < endpoint->count && found == NULL; i++) {
            struct remote_link *link = &endpoint->links[i];
            uint64_t group = atomic_load_acquire(&link->node->group); /* acquire: as everywhere */
            spinlock_lock(&link->lock);
            if (group % 2 == 1 && link->ground.group != group && link->fresh.group != group) {
                if (now >= link->retry_at)
                    found = link;
                else if (link->retry_at < *due)
                    *due = link->retry_at;
            }
            spinlock_unlock(&link->lock);
        }
    if (found != NULL)
        found->mending = true;
    spinlock_unlock(&remote->lock);
    return found;
}

static void reconnect_links(struct remote_fabric *remote, uint64_t *due)
{
    struct remote_link *link;
    /* acquire: as in the loops */
    while (!atomic_load_acquire(&remote->quit) && (link = find_broken(remote, due)) != NULL) {
        struct remote_ground fresh = {0}, old = {0};
        struct error error = {0};
        int status = remote_ground_open(link->node, dial_timeout(remote), &fresh, &error);
        set_trouble(link->node, error.text); /* "" when it went well */
        link->retry_delay = !status ? 0 : delay_next(link->retry_delay);
        link->retry_at = task_now() + link->retry_delay;
        if (!status) {
            spinlock_lock(&link->lock);
            old = link->fresh;
            link->fresh = fresh;
            spinlock_unlock(&link->lock);
            remote_ground_close(&old, false);
        }
        spinlock_lock(&remote->lock);
        link->mending = false;
        spinlock_unlock(&remote->lock);
    }
}

static void reconnect_main(void *argument)
{
    struct remote_fabric *remote = argument;
    struct pollfd event = {.fd = remote->reconnect_event, .events = POLLIN};
    /* acquire: the other side of remote_threads_stop */
    while (!atomic_load_acquire(&remote->quit)) {
        uint64_t due = task_now() + DELAY_LAST;
        reconnect_nodes(remote, &due);
        reconnect_links(remote, &due);
        event_wait(&event, 1, due);
    }
}

/* ---- both ---- */

int remote_heartbeat_start(struct remote_fabric *remote, struct error *error)
{
    remote->heartbeat_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    remote->reconnect_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (remote->heartbeat_event < 0 || remote->reconnect_event < 0)
        return error_set(error, BANYAN_ENOMEM, "no descriptors for the fabric's threads: %s",
                         strerror(errno));
    remote->polls = calloc(remote->count + 1u, sizeof *remote->polls);
    if (remote->polls == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for the fabric's threads");
    return thread_start(&remote->heartbeat, heartbeat_main, remote, error);
}

int remote_reconnect_start(struct remote_fabric *remote, struct error *error)
{
    return thread_start(&remote->reconnect, reconnect_main, remote, error);
}

void remote_threads_stop(struct remote_fabric *remote)
{
    atomic_store_release(&remote->quit, 1u); /* release: all that the threads should find is there */
    if (remote->heartbeat_event >= 0)
        remote_event_set(remote->heartbeat_event);
    if (remote->reconnect_event >= 0)
        remote_event_set(remote->reconnect_event);
    thread_join(remote->heartbeat);
    thread_join(remote->reconnect);
    if (remote->heartbeat_event >= 0)
        close(remote->heartbeat_event);
    if (remote->reconnect_event >= 0)
        close(remote->reconnect_event);
    remote->heartbeat = remote->reconnect = NULL;
    remote->heartbeat_event = remote->reconnect_event = -1;
    free(remote->polls);
    remote->polls = NULL;
    atomic_store_relaxed(&remote->quit, 0u); /* relaxed: nobody is there */
}

/* Gets on with the last heartbeat and its echo. True while they are wanted, and may still come. */
static bool last_echo(struct remote_node *node)
{
    return (node->beats_unsent == 0 || send_beat(node, node->control, 0) == NULL) &&
           receive_echo(node, node->control) == NULL &&
           (node->beats_unsent > 0 || node->unanswered_since != 0);
}

void remote_node_leave(struct remote_node *node)
{
    uint64_t now, deadline = task_now() + LEAVE_NS;
    while (node->control != NULL && node->group % 2 == 1 && node->unanswered_since != 0 && last_echo(node) &&
           (now = task_now()) < deadline)
        net_wait(net_stream_fd(node->control), net_stream_wants(node->control, node->beats_unsent > 0),
                 deadline - now);
    if (node->beats_unsent > 0) /* a goodbye in the middle of a heartbeat is none */
        net_stream_destroy(node->control);
    else
        remote_hang_up(node->control);
    node->control = NULL;
}
