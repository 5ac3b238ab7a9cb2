/*
 * fence.c - the end of groups (G6): leases run out, and a group that is over is reaped, in this order: its
 * connections are gone; its process is dead, if it had mapped the pool; services finish what they have of it;
 * its locks are freed; its id is free.
 *
 * All of it on the keeper's thread. Only this file frees groups, so the keeper may look at a group without
 * the table's lock once no session can join it any more.
 */
#include "memoryd/group_state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "memoryd/nic.h"
#include "memoryd/process.h"

#define MILLISECOND UINT64_C(1000000)
/* A dying process closes its sockets a moment before it is dead: so long it may take. */
#define GRACE (200 * MILLISECOND)
/* The death of a killed process wakes the keeper; in case that is missed, the keeper looks so often. */
#define LOOK_AGAIN (50 * MILLISECOND)
/* A NIC that failed to free locks is asked again after so long. */
#define NIC_PAUSE (1000 * MILLISECOND)

void memoryd_groups_create(struct memoryd *daemon)
{
    struct memory_status_reply status;
    memory_node_status(daemon->node, &status);
    daemon->groups = (struct memoryd_groups){.number = (uint16_t)status.node,
                                             .node_count = (uint16_t)status.node_count,
                                             .cluster_id = status.cluster_id,
                                             .last_id = memory_node_kept_id(daemon->node)};
}

static void earlier(uint64_t *deadline, uint64_t other)
{
    if (other < *deadline)
        *deadline = other;
}

/* After the keeper or an I/O thread could not run, a lease lasts at least so long, so that the heartbeats
 * that wait in the sockets are read. */
#define FORGIVEN (50 * MILLISECOND)

/* The table's lock is held. */
static void check_lease(struct memoryd_groups *groups, struct memoryd_group *group, uint64_t now,
                        uint64_t *deadline)
{
    char why[96];
    uint64_t end = group->heartbeat_at + group->lease_ms * MILLISECOND;
    if (now < end) {
        earlier(deadline, end);
        return;
    }
    if (group->state == GROUP_LEAVING)
        snprintf(why, sizeof why, "it said goodbye, but kept a data connection");
    else
        snprintf(why, sizeof why, "no heartbeat for its lease of %u ms", group->lease_ms);
    memoryd_group_fence(groups, group, false, why);
}

/* True when the process can no longer write. */
static bool process_gone(struct memoryd *daemon, struct memoryd_group *group, uint64_t now,
                         uint64_t *deadline)
{
    if (!group->mapped || group->own || group->state == GROUP_ENDED || memoryd_process_dead(group->pidfd))
        return true;
    if (atomic_load_acquire(&daemon->stopping))
        return false;
    if (!group->watched) {
        /* If this fails, the keeper still looks again and again. */
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
        epoll_ctl(daemon->keeper.epoll, EPOLL_CTL_ADD, group->pidfd, &event);
        group->watched = true;
    }
    if (group->patient && now < group->fenced_at + GRACE) {
        earlier(deadline, group->fenced_at + GRACE);
        return false;
    }
    if (!group->killed)
        log_warning(
            "memory node %u: killing process %d of compute node %u (%s), which has the pool mapped: %s",
            (unsigned)daemon->groups.number, group->pid, (unsigned)group->compute_id, group->name,
            group->why);
    group->killed = true;
    memoryd_process_kill(group->pidfd);
    earlier(deadline, now + LOOK_AGAIN);
    return false;
}

/* Its read lease may still run, although nothing else is left of it. The table's lock is held. */
static void remember(struct memoryd_groups *groups, struct memoryd_group *group)
{
    struct memoryd_departed *departed = group->departed;
    uint64_t over_at = memoryd_group_over_at(group);
    if (group->read_lease_ms == 0 || task_now() >= over_at)
        return;
    *departed =
        (struct memoryd_departed){.next = groups->departed,
                                  .process = {.compute_id = group->compute_id, .instance = group->instance},
                                  .over_at = over_at};
    groups->departed = departed;
    group->departed = NULL;
}

/* Those whose read leases are over are forgotten, and their ids free. The table's lock is held. */
static void forget_departed(struct memoryd_groups *groups, uint64_t now, uint64_t *deadline)
{
    for (struct memoryd_departed **link = &groups->departed; *link != NULL;) {
        struct memoryd_departed *departed = *link;
        if (now < departed->over_at) {
            earlier(deadline, departed->over_at);
            link = &departed->next;
        } else {
            *link = departed->next;
            free(departed);
        }
    }
}

static void drop_group(struct memoryd *daemon, struct memoryd_group *group, uint64_t freed)
{
    struct memoryd_groups *groups = &daemon->groups;
    assert(group->connections == 0 && group->sessions == NULL);
    spinlock_lock(&groups->lock);
    struct memoryd_group **link = &groups->first;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    groups->count--;
    groups->locks_freed_total += freed;
    remember(groups, group);
    spinlock_unlock(&groups->lock);
    if (group->pidfd >= 0)
        close(group->pidfd);
    free(group->departed);
    free(group);
}

/* Services finish what they have of the group, then its locks are freed. False: not yet (see nic_locks.c). */
static bool free_locks(struct memoryd *daemon, struct memoryd_group *group, uint64_t now, uint64_t *deadline)
{
    struct error error = {0};
    if (group->quarantined)
        return false;
    if (daemon->nic == NULL) {
        group->freed = memory_node_release_locks(daemon->node, group->compute_id);
        return true;
    }
    if (!group->finished)
        memory_node_finish(daemon->node, group->compute_id);
    group->finished = true;
    if (now >= group->reap_at) {
        if (!memoryd_nic_release_locks(daemon->nic, group->compute_id, &group->freed, &error))
            return true;
        group->reap_at = now + NIC_PAUSE;
        log_error("memory node %u: the locks of compute node %u are not freed yet: %s",
                  (unsigned)daemon->groups.number, (unsigned)group->compute_id, error.text);
    }
    earlier(deadline, group->reap_at);
    return false;
}

/* The group is over, none of its connections is left, and its process can no longer write. */
static void reap(struct memoryd *daemon, struct memoryd_group *group, uint64_t now, uint64_t *deadline)
{
    assert(group->state == GROUP_FENCED || group->state == GROUP_ENDED);
    if (!free_locks(daemon, group, now, deadline))
        return;
    uint64_t freed = group->freed;
    if (group->state == GROUP_FENCED)
        log_warning("memory node %u: compute node %u was fenced: %s (%s): %s; %llu locks freed",
                    (unsigned)daemon->groups.number, (unsigned)group->compute_id, group->name, group->peer,
                    group->why, (unsigned long long)freed);
    else
        log_info("memory node %u: compute node %u disconnected: %s (%s); %llu locks freed",
                 (unsigned)daemon->groups.number, (unsigned)group->compute_id, group->name, group->peer,
                 (unsigned long long)freed);
    drop_group(daemon, group, freed);
}

uint64_t memoryd_groups_step(struct memoryd *daemon, uint64_t now)
{
    struct memoryd_groups *groups = &daemon->groups;
    uint64_t deadline = UINT64_MAX;
    /* acquire: see attach.c */
    if (atomic_load_acquire(&daemon->attaching) != 0)
        memoryd_groups_forgive(daemon, now);
    spinlock_lock(&groups->lock);
    for (struct memoryd_group *group = groups->first, *next; group != NULL; group = next) {
        if (group->state == GROUP_LIVE || group->state == GROUP_LEAVING)
            check_lease(groups, group, now, &deadline);
        bool over = group->state == GROUP_FENCED || group->state == GROUP_ENDED;
        uint32_t connections = group->connections;
        next =
            group
                ->next; /* stays so: others only put groups in before the first, this thread takes them out */
        if (!over)
            continue;
        spinlock_unlock(&groups->lock);
        if (process_gone(daemon, group, now, &deadline) && connections == 0)
            reap(daemon, group, now, &deadline);
        spinlock_lock(&groups->lock);
    }
    forget_departed(groups, now, &deadline);
    spinlock_unlock(&groups->lock);
    return deadline;
}

void memoryd_groups_forgive(struct memoryd *daemon, uint64_t now)
{
    struct memoryd_groups *groups = &daemon->groups;
    spinlock_lock(&groups->lock);
    for (struct memoryd_group *group = groups->first; group != NULL; group = group->next) {
        uint64_t least = now + FORGIVEN - group->lease_ms * MILLISECOND;
        if (least <= now && group->heartbeat_at < least) /* a lease shorter than that is left alone */
            group->heartbeat_at = least;
    }
    spinlock_unlock(&groups->lock);
}

void memoryd_groups_prolong(struct memoryd *daemon, uint64_t now, uint64_t by)
{
    struct memoryd_groups *groups = &daemon->groups;
    spinlock_lock(&groups->lock);
    for (struct memoryd_group *group = groups->first; group != NULL; group = group->next)
        if (group->heartbeat_at < now)
            group->heartbeat_at += by < now - group->heartbeat_at ? by : now - group->heartbeat_at;
    spinlock_unlock(&groups->lock);
}

void memoryd_groups_stop(struct memoryd *daemon)
{
    struct memoryd_groups *groups = &daemon->groups;
    spinlock_lock(&groups->lock);
    for (struct memoryd_group *group = groups->first; group != NULL; group = group->next)
        memoryd_group_fence(groups, group, true, "the memory node stops");
    spinlock_unlock(&groups->lock);
}

/* A group whose process lives on with the pool mapped keeps its locks: the process may still write what they
 * guard. No other compute node can take a lock here any more. */
void memoryd_groups_destroy(struct memoryd *daemon)
{
    struct memoryd_groups *groups = &daemon->groups;
    memoryd_groups_step(daemon, task_now());
    while (groups->first != NULL)
        drop_group(daemon, groups->first, 0);
    uint64_t ignored = UINT64_MAX;
    forget_departed(groups, UINT64_MAX, &ignored);
    memoryd_staging_drop(daemon);
}
