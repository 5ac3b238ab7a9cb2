/*
 * status.c - the service PEERS, and the daemon's part of STATUS: who is connected, and what was served.
 *
 * On I/O threads, and any that asks for the node's status. Holds the lock of the table of groups for some
 * reads.
 */
#include <string.h>

#include "base/task.h"
#include "memoryd/group_state.h"
#include "memoryd/loop.h"
#include "memoryd/nic.h"

static uint64_t milliseconds_since(uint64_t then, uint64_t now)
{
    return now > then ? (now - then) / 1000000 : 0;
}

static void fill_peer(struct memory_peer *peer, const struct memoryd_group *group, uint64_t now)
{
    *peer = (struct memory_peer){.compute_id = group->compute_id,
                                 .mapped = group->mapped,
                                 .connections = group->connections,
                                 .connected_ms = milliseconds_since(group->joined_at, now),
                                 .heartbeat_ms = milliseconds_since(group->heartbeat_at, now)};
    memcpy(peer->name, group->name, sizeof peer->name);
    memcpy(peer->address, group->peer, sizeof peer->address);
}

static void fill_peers(struct memoryd_groups *groups, uint32_t skip, struct memory_peers_reply *reply)
{
    uint64_t now = task_now();
    reply->count = 0;
    spinlock_lock(&groups->lock);
    reply->total = groups->count;
    for (const struct memoryd_group *group = groups->first; group != NULL; group = group->next) {
        if (skip > 0) {
            skip--;
            continue;
        }
        if (reply->count == MEMORY_PEERS_MAX)
            break;
        fill_peer(&reply->peers[reply->count++], group, now);
    }
    spinlock_unlock(&groups->lock);
}

static int serve_peers(void *context, struct memory_call *call)
{
    struct memoryd *daemon = context;
    struct memory_peers_request request;
    struct memory_peers_reply reply;
    if (call->length < sizeof request || call->capacity < sizeof reply)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    fill_peers(&daemon->groups, request.skip, &reply);
    call->reply_length = offsetof(struct memory_peers_reply, peers) + reply.count * sizeof reply.peers[0];
    memcpy(call->reply, &reply, call->reply_length);
    return BANYAN_OK;
}

static void report(void *context, struct memory_status_reply *status)
{
    struct memoryd *daemon = context;
    struct memoryd_groups *groups = &daemon->groups;
    status->uptime_ms = milliseconds_since(daemon->started_at, task_now());
    status->nic = daemon->nic != NULL;
    status->nic_queues = daemon->nic != NULL ? memoryd_nic_queues(daemon->nic) : 0;
    status->connections = atomic_load_relaxed(&daemon->connections); /* a count */
    for (unsigned i = 0; i < daemon->loop_count; i++) {
        const struct memoryd_counts *counts = &daemon->loops[i].counts;
        status->lists_total += atomic_load_relaxed(&counts->lists);
        status->commands_total += atomic_load_relaxed(&counts->commands);
        status->bytes_read_total += atomic_load_relaxed(&counts->bytes_read);
        status->bytes_written_total += atomic_load_relaxed(&counts->bytes_written);
    }
    spinlock_lock(&groups->lock);
    status->compute_nodes = groups->count;
    status->fenced_total = groups->fenced_total;
    status->locks_freed_total = groups->locks_freed_total;
    for (const struct memoryd_group *group = groups->first; group != NULL; group = group->next)
        if (group->generation < status->list_heard)
            status->list_heard = group->generation;
    spinlock_unlock(&groups->lock);
}

const struct memory_service memoryd_peers_service = {
    .name = "peers", .roles = MEMORY_ROLES_ALL, .serve = serve_peers, .report = report};
