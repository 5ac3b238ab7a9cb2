/* group.c - see group.h: how sessions join and leave groups, and how a group is fenced. fence.c reaps it. */
#include "memoryd/group_state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "memoryd/disk.h"
#include "memoryd/nic.h"
#include "memoryd/process.h"

#define LEASE_DEFAULT_MS      2000u
#define READ_LEASE_DEFAULT_MS 50u
#define READ_LEASE_MIN_MS     5u

/* ---- the table; its lock is held ---- */

static struct memoryd_group *find_id(const struct memoryd_groups *groups, uint16_t compute_id)
{
    struct memoryd_group *group = groups->first;
    while (group != NULL && group->compute_id != compute_id)
        group = group->next;
    return group;
}

static struct memoryd_group *find_instance(const struct memoryd_groups *groups, uint64_t instance)
{
    struct memoryd_group *group = groups->first;
    while (group != NULL && group->instance != instance)
        group = group->next;
    return group;
}

struct memoryd_group *memoryd_group_find(const struct memoryd_groups *groups, struct fabric_process process)
{
    struct memoryd_group *group = find_instance(groups, process.instance);
    return group != NULL && group->compute_id == process.compute_id ? group : NULL;
}

/* Where the chain names the process that departed with this id; the chain's end: none did. */
static struct memoryd_departed **find_departed(struct memoryd_groups *groups, uint16_t compute_id)
{
    struct memoryd_departed **link = &groups->departed;
    while (*link != NULL && (*link)->process.compute_id != compute_id)
        link = &(*link)->next;
    return link;
}

/* Ascending, so that an id is not given away soon after its last compute node ended; 0: all are in use. */
static uint16_t choose_id(struct memoryd_groups *groups)
{
    for (uint32_t tries = 0; tries < UINT16_MAX; tries++) {
        groups->last_id = groups->last_id == UINT16_MAX ? 1 : (uint16_t)(groups->last_id + 1);
        if (find_id(groups, groups->last_id) == NULL && *find_departed(groups, groups->last_id) == NULL)
            return groups->last_id;
    }
    return 0;
}

static void link_session(struct memoryd_group *group, struct memoryd_session *session)
{
    assert(session->group == NULL && group->state == GROUP_LIVE);
    session->group = group;
    session->group_previous = NULL;
    session->group_next = group->sessions;
    if (group->sessions != NULL)
        group->sessions->group_previous = session;
    group->sessions = session;
    group->connections++;
}

static void unlink_session(struct memoryd_group *group, struct memoryd_session *session)
{
    assert(session->group == group && group->connections > 0 && group->state != GROUP_ENDED);
    if (session->group_previous != NULL)
        session->group_previous->group_next = session->group_next;
    else
        group->sessions = session->group_next;
    if (session->group_next != NULL)
        session->group_next->group_previous = session->group_previous;
    session->group = NULL;
    session->group_next = session->group_previous = NULL;
    group->connections--;
}

void memoryd_group_fence(struct memoryd_groups *groups, struct memoryd_group *group, bool patient,
                         const char *why)
{
    if (group->state == GROUP_FENCED || group->state == GROUP_ENDED)
        return;
    assert(group->state == GROUP_LIVE || group->state == GROUP_LEAVING);
    group->state = GROUP_FENCED;
    group->patient = patient;
    group->fenced_at = task_now();
    snprintf(group->why, sizeof group->why, "%s", why);
    groups->fenced_total++;
    atomic_store_relaxed(&group->fenced, 1u); /* a hint (group.h) */
    /* A session unlinks itself before its descriptor is closed, so these are its own. */
    for (struct memoryd_session *session = group->sessions; session != NULL; session = session->group_next)
        shutdown(session->fd, SHUT_RDWR);
}

/* ---- joining ---- */

static struct memoryd_group *make_group(struct memoryd_session *session, const struct wire_hello *hello)
{
    const struct memoryd *daemon = session->daemon;
    struct memoryd_group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return NULL;
    group->departed = calloc(1, sizeof *group->departed);
    if (group->departed == NULL) {
        free(group);
        return NULL;
    }
    uint32_t lease_ms = hello->lease_ms != 0 ? hello->lease_ms : LEASE_DEFAULT_MS;
    if (lease_ms < daemon->lease_ms_min)
        lease_ms = daemon->lease_ms_min;
    if (lease_ms > daemon->lease_ms_max)
        lease_ms = daemon->lease_ms_max;
    group->lease_ms = lease_ms;
    group->instance = hello->instance;
    group->joined_at = group->heartbeat_at = group->beat_at = task_now();
    group->pidfd = -1;
    do
        net_random(&group->key, sizeof group->key);
    while (group->key == 0);
    snprintf(group->name, sizeof group->name, "%s", session->name);
    snprintf(group->peer, sizeof group->peer, "%.*s", (int)sizeof group->peer - 1, session->peer);
    for (size_t i = 0; i < WIRE_PEER_MAX && hello->peer[i] > ' ' && hello->peer[i] < 127; i++)
        group->answers[i] = hello->peer[i];
    return group;
}

static void free_group(struct memoryd_group *group)
{
    free(group->departed);
    free(group);
}

/* The home node's: how long its read lease is, and when that of its earlier life ends. */
static void set_read_lease(struct memory_node *node, struct memoryd_groups *groups,
                           struct memoryd_group *group, const struct wire_hello *hello)
{
    uint32_t wanted = hello->read_lease_ms != 0 ? hello->read_lease_ms : READ_LEASE_DEFAULT_MS;
    if (wanted < READ_LEASE_MIN_MS)
        wanted = READ_LEASE_MIN_MS;
    group->read_lease_ms = wanted < group->lease_ms ? wanted : group->lease_ms;
    if (group->read_lease_ms > memory_node_kept_read_lease(node)) /* before it is granted (D4) */
        memory_node_keep_read_lease(node, group->read_lease_ms);
    struct memoryd_departed **link = find_departed(groups, group->compute_id), *before = *link;
    if (before != NULL) { /* check_control has looked whose it is */
        assert(before->process.instance == group->instance);
        *link = before->next;
        group->over_at = before->over_at;
        free(before);
    } else if (hello->again == 1) { /* not remembered any more: it is over */
        group->over_at = group->joined_at;
    }
}

/* Whether a compute node may join; its id in group->compute_id. */
static int check_control(struct memoryd_groups *groups, struct memoryd_group *group,
                         const struct wire_hello *hello, const struct wire_welcome *welcome,
                         struct error *error)
{
    struct memoryd_group *other = find_instance(groups, hello->instance);
    if (other != NULL) {
        /* By connecting anew it says that its last connections are gone. But fencing a process that maps the
         * pool means killing it, so such a group must lose its lease first. */
        if (!other->mapped)
            memoryd_group_fence(groups, other, true, "it connected anew");
        return error_set(
            error, BANYAN_EBUSY,
            "this compute node's last connections (as number %u) are not yet taken down; try again",
            (unsigned)other->compute_id);
    }
    if (groups->formatting || groups->cluster_id != welcome->cluster_id)
        return error_set(error, BANYAN_EBUSY, "the memory node is being formatted; try again");
    other = hello->compute_id != 0 ? find_id(groups, hello->compute_id) : NULL;
    if (other != NULL)
        return error_set(error, BANYAN_EBUSY, "compute node %u is connected already: %s (%s)%s",
                         (unsigned)other->compute_id, other->name, other->peer,
                         other->state == GROUP_LIVE ? "" : ", and is being taken down; try again");
    const struct memoryd_departed *departed =
        hello->compute_id != 0 ? *find_departed(groups, hello->compute_id) : NULL;
    if (departed != NULL && departed->process.instance != hello->instance)
        return error_set(error, BANYAN_EBUSY,
                         "the last process that was compute node %u may still answer from what it has "
                         "cached; try again",
                         (unsigned)hello->compute_id);
    group->compute_id = hello->compute_id != 0 ? hello->compute_id : choose_id(groups);
    if (group->compute_id == 0)
        return error_set(error, BANYAN_EBUSY, "all ids of compute nodes are in use");
    return BANYAN_OK;
}

static void fill_ids(const struct memoryd_group *group, struct wire_welcome *welcome)
{
    welcome->lease_ms = group->lease_ms;
    welcome->read_lease_ms = group->read_lease_ms;
    welcome->compute_id = group->compute_id;
    welcome->group_key = group->key;
}

static int join_control(struct memoryd_session *session, const struct wire_hello *hello,
                        struct wire_welcome *welcome, struct error *error)
{
    struct memoryd_groups *groups = &session->daemon->groups;
    struct memoryd_group *group = make_group(session, hello);
    if (group == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for another compute node");
    spinlock_lock(&groups->lock);
    int status = check_control(groups, group, hello, welcome, error);
    if (!status) {
        if (welcome->node == 0)
            set_read_lease(session->daemon->node, groups, group, hello);
        memory_node_keep_id(session->daemon->node, groups->last_id);
        group->nic = session->nic;
        group->mapped = session->mapped;
        group->pid = session->pid;
        group->own = session->mapped && session->pid == (int)getpid();
        if (session->mapped) {
            group->pidfd = session->pidfd;
            session->pidfd = -1;
        }
        group->life = ++groups->lives;
        group->next = groups->first;
        groups->first = group;
        groups->count++;
        link_session(group, session);
        fill_ids(group, welcome);
    }
    spinlock_unlock(&groups->lock);
    if (status)
        free_group(group);
    memoryd_keeper_wake(session->daemon); /* there is a new lease, or a group to reap */
    return status;
}

static int check_data(const struct memoryd_session *session, const struct memoryd_group *group,
                      const struct wire_hello *hello, struct error *error)
{
    if (group == NULL || group->state != GROUP_LIVE || group->instance != hello->instance ||
        !net_equal(&group->key, &hello->group_key, sizeof group->key))
        return error_set(error, BANYAN_EFENCED, "there is no such lease of compute node %u (any more)",
                         (unsigned)hello->compute_id);
    if (session->nic != group->nic)
        return error_set(error, BANYAN_EINVAL,
                         "compute node %u: a data connection %s a NIC, where its control connection "
                         "is %s",
                         (unsigned)hello->compute_id, session->nic ? "with" : "without",
                         group->nic ? "with one" : "without");
    if (session->mapped && (!group->mapped || group->pid != session->pid))
        return error_set(error, BANYAN_EINVAL,
                         "compute node %u: a data connection of process %d to map the pool, which %s",
                         (unsigned)hello->compute_id, session->pid,
                         group->mapped ? "another process has mapped" : "its control connection has not");
    return BANYAN_OK;
}

static int join_data(struct memoryd_session *session, const struct wire_hello *hello,
                     struct wire_welcome *welcome, struct error *error)
{
    struct memoryd_groups *groups = &session->daemon->groups;
    spinlock_lock(&groups->lock);
    struct memoryd_group *group = find_id(groups, hello->compute_id);
    int status = check_data(session, group, hello, error);
    if (!status) {
        link_session(group, session);
        fill_ids(group, welcome);
    }
    spinlock_unlock(&groups->lock);
    return status;
}

int memoryd_group_join(struct memoryd_session *session, const struct wire_hello *hello,
                       struct wire_welcome *welcome, struct error *error)
{
    if (hello->role == WIRE_CONTROL)
        return join_control(session, hello, welcome, error);
    return join_data(session, hello, welcome, error);
}

/* ---- leaving ---- */

/* The session said goodbye. */
static void left_orderly(struct memoryd_group *group, const struct memoryd_session *session)
{
    if (group->state == GROUP_LIVE && session->role == WIRE_CONTROL) {
        group->state = GROUP_LEAVING;
        group->heartbeat_at = task_now(); /* the data connections have a lease from now on to follow */
    }
    if (group->state == GROUP_LEAVING && group->connections == 0)
        group->state = GROUP_ENDED;
}

void memoryd_group_leave(struct memoryd_session *session, enum memoryd_leaving how, const char *why)
{
    struct memoryd_groups *groups = &session->daemon->groups;
    struct memoryd_group *group = session->group; /* set and cleared by this thread alone */
    if (group == NULL)
        return;
    spinlock_lock(&groups->lock);
    unlink_session(group, session);
    if (how == MEMORYD_GOODBYE)
        left_orderly(group, session);
    else
        memoryd_group_fence(groups, group, how == MEMORYD_LOST, why);
    /* What is staged there is finished when the process is dead (staging.h). */
    if (session->staging != NULL && group->state == GROUP_FENCED) {
        memoryd_staging_leave(session->daemon, session->staging, group->compute_id);
        session->staging = NULL;
    }
    bool over = group->state != GROUP_LIVE;
    spinlock_unlock(&groups->lock);
    if (over)
        memoryd_keeper_wake(session->daemon); /* not `group`: the keeper may have freed it already */
}

void memoryd_group_quarantine(struct memoryd_session *session, const char *why)
{
    struct memoryd_groups *groups = &session->daemon->groups;
    struct memoryd_group *group = session->group;
    assert(group != NULL); /* only a data connection has a queue pair */
    spinlock_lock(&groups->lock);
    group->quarantined = true;
    spinlock_unlock(&groups->lock);
    log_error("memory node %u: a queue pair of compute node %u could not be destroyed: its locks stay taken "
              "until this memory node is started anew",
              (unsigned)session->number, (unsigned)group->compute_id);
    memoryd_group_leave(session, MEMORYD_BROKEN, why);
}

static bool has_queue(const struct memoryd_group *group, const struct memoryd_nic_queue *queue)
{
    const struct memoryd_session *session = group->sessions;
    while (session != NULL && (queue == NULL ? session->queue == NULL : session->queue != queue))
        session = session->group_next;
    return session != NULL;
}

void memoryd_groups_break(struct memoryd *daemon, const struct memoryd_nic_queue *queue, const char *why)
{
    struct memoryd_groups *groups = &daemon->groups;
    spinlock_lock(&groups->lock);
    for (struct memoryd_group *group = groups->first; group != NULL; group = group->next)
        if (has_queue(group, queue))
            memoryd_group_fence(groups, group, false, why);
    spinlock_unlock(&groups->lock);
}

bool memoryd_group_heartbeat(struct memoryd_session *session, uint32_t generation, uint64_t now)
{
    struct memoryd_groups *groups = &session->daemon->groups;
    struct memoryd_group *group = session->group;
    if (group == NULL)
        return true;
    spinlock_lock(&groups->lock);
    bool fenced = group->state == GROUP_FENCED; /* under the lock: G7 allows no echo after the fencing */
    if (!fenced) {
        group->heartbeat_at = group->beat_at = now;
        group->generation = generation;
    }
    spinlock_unlock(&groups->lock);
    return !fenced;
}

bool memoryd_group_fenced(const struct memoryd_session *session)
{
    return session->group != NULL && atomic_load_relaxed(&session->group->fenced) != 0;
}

uint16_t memoryd_group_compute_id(const struct memoryd_session *session)
{
    return session->group != NULL ? session->group->compute_id : 0;
}

/* ---- format ---- */

int memoryd_groups_format(struct memoryd *daemon, const struct wire_format *format, struct error *error)
{
    struct memoryd_groups *groups = &daemon->groups;
    int status = BANYAN_OK;
    if (format->cluster_id == 0 || format->number >= format->node_count)
        return error_set(error, BANYAN_EINVAL, "no format as number %u of %u of cluster %llx",
                         (unsigned)format->number, (unsigned)format->node_count,
                         (unsigned long long)format->cluster_id);
    spinlock_lock(&groups->lock);
    if (groups->first != NULL)
        status = error_set(error, BANYAN_EBUSY, "compute node %u is connected: %s (%s)",
                           (unsigned)groups->first->compute_id, groups->first->name, groups->first->peer);
    else if (groups->formatting)
        status = error_set(error, BANYAN_EBUSY, "it is being formatted already");
    else
        groups->formatting = true; /* no compute node joins meanwhile */
    spinlock_unlock(&groups->lock);
    if (status)
        return status;

    status = memoryd_disk_may_format(daemon->disk, error);
    if (!status)
        status =
            memory_node_format(daemon->node, format->cluster_id, format->number, format->node_count, error);
    if (!status)
        status = memoryd_disk_format(daemon->disk, error);
    if (!status && daemon->nic != NULL)
        status = memoryd_nic_format(daemon->nic, error);
    spinlock_lock(&groups->lock);
    if (!status) {
        atomic_store_relaxed(&groups->notice, UINT64_C(0)); /* relaxed: no compute node is connected */
        groups->number = format->number;
        groups->node_count = format->node_count;
        groups->cluster_id = format->cluster_id;
    }
    groups->formatting = false;
    spinlock_unlock(&groups->lock);
    return status;
}
