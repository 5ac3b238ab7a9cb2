/*
 * remote_node.c - how a memory node's group of connections begins and ends. remote_node.h says why nothing
 * gets from one group into the next. Any thread; nothing waits.
 */
#include "fabric/remote_node.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "fabric/remote_fabric.h"

void remote_node_lose(struct remote_node *node, uint64_t group, const char *why)
{
    char text[sizeof node->trouble];
    snprintf(text, sizeof text, "lost the connection to memory node %.100s: %s", node->text, why);
    spinlock_lock(&node->lock);
    bool ours = node->group == group && remote_group_lives(group);
    if (ours) {
        /* release; and the incarnation only after it: remote_node.h (WHY NOTHING ...) rests on this order */
        atomic_store_release(&node->group, group + 1);
        uint64_t since = __atomic_add_fetch(&node->fabric->incarnation, 1, __ATOMIC_ACQ_REL);
        atomic_store_relaxed(&node->since, since); /* published by the next group's number */
        node->losses++;
        memcpy(node->trouble, text, sizeof text);
        if (node->number == REMOTE_HOME)
            remote_lease_lose(&node->fabric->lease);
        if (node->control != NULL) /* so that the memory node ends the group too */
            shutdown(net_stream_fd(node->control), SHUT_RDWR);
    }
    spinlock_unlock(&node->lock);
    if (!ours)
        return;
    log_warning("%s", text);
    remote_event_set(node->fabric->heartbeat_event);
    if (node->number == REMOTE_HOME)
        remote_notices_tell(&node->fabric->notices);
}

void remote_node_join(struct remote_node *node, struct remote_dialed *dialed, uint64_t sent)
{
    bool again = node->group > 0, home = node->number == REMOTE_HOME; /* no other thread opens groups */
    node->beat_due = node->unanswered_since = node->beat_echoed = 0;
    node->beat = (struct wire_header){.kind = WIRE_HEARTBEAT};
    node->silent = false;
    node->beats_unsent = node->echo_have = 0;
    spinlock_lock(&node->lock);
    assert(!remote_group_lives(node->group) && node->control == NULL); /* one group at a time */
    node->control = dialed->stream;
    atomic_store_relaxed(&node->durability, dialed->welcome.durability); /* published by the group's number */
    node->group_key = dialed->welcome.group_key;
    node->trouble[0] = 0;
    if (home)
        remote_lease_begin(&node->fabric->lease, dialed->welcome.read_lease_ms, sent, again);
    /* release: a thread that sees the number sees the group's `since` */
    atomic_store_release(&node->group, node->group + 1);
    spinlock_unlock(&node->lock);
    dialed->stream = NULL;
    if (home && again)
        remote_notices_tell(&node->fabric->notices);
}

void remote_node_trouble(struct remote_node *node, const char *text)
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
                         "memory node %.100s is now number %u of another cluster; restart this compute node",
                         node->text, (unsigned)welcome->node);
    if (welcome->instance != node->instance)
        return error_set(
            error, BANYAN_EINVAL,
            "memory node %.80s was restarted and lost its contents; run `banyan compute --format` "
            "once to make a new, empty cluster",
            node->text);
    if (welcome->atomic_write != node->atomic_write)
        return error_set(error, BANYAN_EVERSION,
                         "memory node %.100s cuts other writes than it did before; restart this compute node",
                         node->text);
    return BANYAN_OK;
}
