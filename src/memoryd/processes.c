/*
 * processes.c - the service PROCESSES: what compute nodes ask about each other (fabric/peers.h, G7 and G8).
 * Which processes are connected, that one of them be fenced, whether its read lease is over, where it answers
 * its peers, and that all be told a number.
 *
 * On I/O threads, for the data connections of compute nodes alone. Holds the lock of the table of groups for
 * as long as a look at each group takes. Nothing waits: a fencing that takes time is asked about again.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/task.h"
#include "memoryd/group_state.h"
#include "memoryd/loop.h"

_Static_assert(MEMORY_PROCESSES == (int)WIRE_PROCESS_FENCE &&
                   MEMORY_PROCESSES_LAST == (int)WIRE_PROCESS_END - 1,
               "the fabric asks by the numbers that memory/request.h has for them");

/* ---- the table of groups ---- */

bool memoryd_groups_fence(struct memoryd *daemon, struct fabric_process process, uint64_t *life,
                          const char *why)
{
    struct memoryd_groups *groups = &daemon->groups;
    bool asked = *life != 0;
    spinlock_lock(&groups->lock);
    struct memoryd_group *group = memoryd_group_find(groups, process);
    bool left = group != NULL && (!asked || group->life == *life);
    if (left && !asked) {
        *life = group->life;
        memoryd_group_fence(groups, group, false, why);
    }
    spinlock_unlock(&groups->lock);
    if (left && !asked)
        memoryd_keeper_wake(daemon);
    return !left;
}

bool memoryd_groups_lease_over(struct memoryd *daemon, struct fabric_process process, uint64_t now)
{
    struct memoryd_groups *groups = &daemon->groups;
    bool over = true;
    spinlock_lock(&groups->lock);
    const struct memoryd_group *group = memoryd_group_find(groups, process);
    if (group != NULL && (group->state == GROUP_LIVE || group->state == GROUP_LEAVING))
        over = group->over_at != 0 && now >= group->over_at;
    else if (group != NULL)
        over = now >= memoryd_group_over_at(group);
    else
        for (const struct memoryd_departed *departed = groups->departed; departed != NULL;
             departed = departed->next)
            if (fabric_process_equal(departed->process, process))
                over = now >= departed->over_at;
    spinlock_unlock(&groups->lock);
    return over;
}

void memoryd_groups_notify(struct memoryd *daemon, uint64_t number)
{
    struct memoryd_groups *groups = &daemon->groups;
    spinlock_lock(&groups->lock);
    bool grows = number > groups->notice;
    if (grows)
        atomic_store_release(&groups->notice, number); /* release: what its caller did before is seen */
    spinlock_unlock(&groups->lock);
    for (unsigned i = 0; i < daemon->loop_count && grows; i++)
        memoryd_loop_wake(&daemon->loops[i]);
}

static bool listed(const struct memoryd_group *group, uint16_t after)
{
    return (group->state == GROUP_LIVE || group->state == GROUP_LEAVING) && group->compute_id > after;
}

/* The groups are in no order. Counted by the upper byte of their ids they tell how far a list may reach;
 * there are at most 256 of each, since no two groups have one id. */
void memoryd_groups_list(struct memoryd_groups *groups, uint16_t after, struct wire_process_list *list)
{
    uint32_t counts[256] = {0}, whole = 0, end = 0;
    list->count = list->total = 0;
    spinlock_lock(&groups->lock);
    for (const struct memoryd_group *group = groups->first; group != NULL; group = group->next)
        if (listed(group, after)) {
            counts[group->compute_id >> 8]++;
            list->total++;
        }
    while (end < 256 && whole + counts[end] <= WIRE_PROCESSES_MAX)
        whole += counts[end++];
    for (const struct memoryd_group *group = groups->first; group != NULL; group = group->next)
        if (listed(group, after) && (uint32_t)group->compute_id >> 8 < end) {
            assert(list->count < whole);
            list->processes[list->count++] =
                (struct wire_process){.instance = group->instance, .compute_id = group->compute_id};
        }
    spinlock_unlock(&groups->lock);
}

/* ---- calls ---- */

static int reply_done(struct memory_call *call, bool done, uint64_t life)
{
    struct wire_process_reply reply = {.done = done, .life = life};
    if (call->capacity < sizeof reply)
        return BANYAN_EINVAL;
    memcpy(call->reply, &reply, sizeof reply);
    call->reply_length = sizeof reply;
    return BANYAN_OK;
}

static int serve_fence(struct memoryd *daemon, struct fabric_process process, uint64_t life,
                       struct memory_call *call)
{
    char why[64];
    if (process.compute_id == call->compute_id) {
        /* A caller is connected, so its id is no other process's here. */
        struct memoryd_groups *groups = &daemon->groups;
        spinlock_lock(&groups->lock);
        bool itself = memoryd_group_find(groups, process) != NULL;
        spinlock_unlock(&groups->lock);
        return itself ? BANYAN_EINVAL : reply_done(call, true, 0);
    }
    snprintf(why, sizeof why, "compute node %u asked for it", (unsigned)call->compute_id);
    bool done = memoryd_groups_fence(daemon, process, &life, why);
    return reply_done(call, done, life);
}

static int serve_list(struct memoryd *daemon, uint16_t after, struct memory_call *call)
{
    struct wire_process_list list;
    memoryd_groups_list(&daemon->groups, after, &list);
    size_t length = offsetof(struct wire_process_list, processes) + list.count * sizeof list.processes[0];
    if (call->capacity < length)
        return BANYAN_EINVAL;
    memcpy(call->reply, &list, length);
    call->reply_length = length;
    return BANYAN_OK;
}

static int serve_address(struct memoryd *daemon, struct fabric_process process, struct memory_call *call)
{
    struct memoryd_groups *groups = &daemon->groups;
    char text[WIRE_PEER_MAX + 1] = "";
    spinlock_lock(&groups->lock);
    const struct memoryd_group *group = memoryd_group_find(groups, process);
    if (group != NULL && group->state == GROUP_LIVE)
        memcpy(text, group->answers, sizeof text);
    spinlock_unlock(&groups->lock);
    size_t length = strlen(text);
    if (length == 0 || call->capacity < length)
        return BANYAN_ENOTFOUND;
    memcpy(call->reply, text, length);
    call->reply_length = length;
    return BANYAN_OK;
}

static int serve(void *context, struct memory_call *call)
{
    struct memoryd *daemon = context;
    struct wire_process_request request;
    if (call->length != sizeof request)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    struct fabric_process process = {.compute_id = request.compute_id, .instance = request.instance};
    switch (call->kind) {
    case WIRE_PROCESS_FENCE:
        return serve_fence(daemon, process, request.life, call);
    case WIRE_PROCESS_LEASE_OVER:
        return reply_done(call, memoryd_groups_lease_over(daemon, process, task_now()), 0);
    case WIRE_PROCESS_LIST:
        return serve_list(daemon, request.compute_id, call);
    case WIRE_PROCESS_NOTIFY:
        memoryd_groups_notify(daemon, request.instance);
        return BANYAN_OK;
    default:
        assert(call->kind == WIRE_PROCESS_ADDRESS); /* it is registered for no other */
        return serve_address(daemon, process, call);
    }
}

const struct memory_service memoryd_processes_service = {
    .name = "processes", .roles = MEMORY_ROLE_DATA | MEMORY_ROLE_CONTROL, .serve = serve};
