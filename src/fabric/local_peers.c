/* local_peers.c - see local_peers.h. */
#include "fabric/local_peers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"

struct fabric_local_peers {
    struct spinlock lock; /* guards all below, and all of the members but `notice` */
    uint64_t instances;
    struct local_member *members;
};

/* A call: on its caller's stack, which waits until it is done. */
struct local_request {
    struct fabric_peer_request request; /* first, so that the call is found from it */
    struct task *caller;
    void *reply;
    size_t capacity, reply_length;
    int status;
    bool done;
    struct local_request *next;
};

/* A task in fabric_peer_receive: on its stack. */
struct local_receiver {
    struct task *task;
    struct local_request *request;
    bool over; /* `request` is set, or it was stopped */
    struct local_receiver *next;
};

/* ---- groups ---- */

struct fabric_local_peers *fabric_local_peers_create(struct error *error)
{
    struct fabric_local_peers *peers = calloc(1, sizeof *peers);
    if (!peers)
        error_set(error, BANYAN_ENOMEM, "no memory for a group of local fabrics");
    return peers;
}

void fabric_local_peers_destroy(struct fabric_local_peers *peers)
{
    assert(!peers || !peers->members);
    free(peers);
}

int local_member_join(struct local_member *member, struct fabric_local_peers *peers, uint16_t compute_id,
                      struct error *error)
{
    spinlock_lock(&peers->lock);
    struct local_member **place = &peers->members;
    while (*place && (*place)->process.compute_id < compute_id)
        place = &(*place)->next;
    bool taken = *place && (*place)->process.compute_id == compute_id;
    if (!taken) {
        member->process = (struct fabric_process){.instance = ++peers->instances, .compute_id = compute_id};
        member->peers = peers;
        member->next = *place;
        *place = member;
    }
    spinlock_unlock(&peers->lock);
    if (taken)
        return error_set(error, BANYAN_EEXIST, "local fabric: a compute node of this group has id %u already",
                         compute_id);
    return BANYAN_OK;
}

/* The request is over: its caller may leave as soon as the lock is free. */
static void request_end(struct local_request *request, int status)
{
    request->status = status;
    request->done = true;
    task_unpark(request->caller);
}

/* With the lock held. */
static void member_stop(struct local_member *member)
{
    member->stopped = true;
    while (member->waiting_first) {
        struct local_receiver *receiver = member->waiting_first;
        member->waiting_first = receiver->next;
        receiver->over = true;
        task_unpark(receiver->task);
    }
    while (member->first) {
        struct local_request *request = member->first;
        member->first = request->next;
        request_end(request, BANYAN_ENET);
    }
}

void local_member_leave(struct local_member *member)
{
    struct fabric_local_peers *peers = member->peers;
    spinlock_lock(&peers->lock);
    assert(!member->waiting_first); /* a fabric is closed when none of its tasks uses it any more */
    member_stop(member);
    struct local_member **place = &peers->members;
    while (*place != member)
        place = &(*place)->next;
    *place = member->next;
    spinlock_unlock(&peers->lock);
}

/* With the lock held. NULL: there is no such process. */
static struct local_member *member_find(const struct fabric_local_peers *peers, struct fabric_process process)
{
    struct local_member *member = peers->members;
    while (member && !fabric_process_equal(member->process, process))
        member = member->next;
    return member;
}

static struct fabric_process local_self(const struct fabric *fabric)
{
    return local_member_of(fabric)->process;
}

/* ---- the lease: compute nodes of one process live and die together ---- */

static bool local_lease_alive(const struct fabric *fabric)
{
    return true;
}

static uint64_t local_lease_lapses(const struct fabric *fabric)
{
    return 0;
}

static void local_lease_resume(struct fabric *fabric, uint64_t incarnation) {}

static bool is_member(const struct fabric *fabric, struct fabric_process process)
{
    struct fabric_local_peers *peers = local_member_of(fabric)->peers;
    spinlock_lock(&peers->lock);
    bool found = member_find(peers, process) != NULL;
    spinlock_unlock(&peers->lock);
    return found;
}

/* Threads of this process cannot be kept from memory that they have mapped. */
static int local_fence(struct fabric_endpoint *endpoint, uint16_t node, struct fabric_process process)
{
    return is_member(endpoint->fabric, process) ? BANYAN_ENOTSUP : BANYAN_OK;
}

/* A process that has closed its fabric is through with it. */
static int local_lease_over(struct fabric_endpoint *endpoint, struct fabric_process process, bool *over)
{
    *over = !is_member(endpoint->fabric, process);
    return BANYAN_OK;
}

static int local_processes(struct fabric_endpoint *endpoint, struct fabric_process *processes,
                           uint32_t capacity, uint32_t *count)
{
    struct fabric_local_peers *peers = local_member_of(endpoint->fabric)->peers;
    spinlock_lock(&peers->lock);
    for (const struct local_member *member = peers->members; member; member = member->next) {
        if (*count < capacity)
            processes[*count] = member->process;
        ++*count;
    }
    spinlock_unlock(&peers->lock);
    return BANYAN_OK;
}

/* ---- notices ---- */

static int local_notify(struct fabric_endpoint *endpoint, uint64_t number)
{
    struct fabric_local_peers *peers = local_member_of(endpoint->fabric)->peers;
    spinlock_lock(&peers->lock);
    for (struct local_member *member = peers->members; member; member = member->next) {
        if (number <= atomic_load_relaxed(&member->notice)) /* written under the lock alone */
            continue;
        /* release: what the notifier did before is seen by who looks at the notice */
        atomic_store_release(&member->notice, number);
        if (member->heard)
            member->heard(member->heard_context);
    }
    spinlock_unlock(&peers->lock);
    return BANYAN_OK;
}

static uint64_t local_notice(const struct fabric *fabric)
{
    return atomic_load_acquire(&local_member_of(fabric)->notice); /* acquire: as in local_notify */
}

static void local_notice_listen(struct fabric *fabric, void (*heard)(void *), void *context)
{
    struct local_member *member = local_member_of(fabric);
    spinlock_lock(&member->peers->lock);
    member->heard = heard;
    member->heard_context = context;
    spinlock_unlock(&member->peers->lock);
}

/* ---- peer calls ---- */

/* With the lock held: to the task that has waited longest, else into the queue. */
static void request_deliver(struct local_member *member, struct local_request *request)
{
    struct local_receiver *receiver = member->waiting_first;
    if (receiver) {
        member->waiting_first = receiver->next;
        receiver->request = request;
        receiver->over = true;
        task_unpark(receiver->task);
        return;
    }
    if (member->first)
        member->last->next = request;
    else
        member->first = request;
    member->last = request;
}

/* Waits for the flag, which another task sets with the lock held. Without a time-out: the other task is one
 * of this process, so it does its part, or its process stops. */
static void await(struct spinlock *lock, const bool *flag)
{
    for (;;) {
        spinlock_lock(lock);
        bool set = *flag;
        spinlock_unlock(lock);
        if (set)
            return;
        task_park();
    }
}

static int local_peer_call(struct fabric_endpoint *endpoint, struct fabric_process peer, const void *bytes,
                           size_t length, void *reply, size_t capacity, size_t *reply_length)
{
    const struct local_member *self = local_member_of(endpoint->fabric);
    struct fabric_local_peers *peers = self->peers;
    struct local_request request = {
        .request = {.from = self->process, .bytes = bytes, .length = length},
        .caller = task_self(),
        .reply = reply,
        .capacity = capacity,
    };
    spinlock_lock(&peers->lock);
    struct local_member *member = member_find(peers, peer);
    bool reached = member && !member->stopped;
    if (reached)
        request_deliver(member, &request);
    spinlock_unlock(&peers->lock);
    if (!reached)
        return BANYAN_EFENCED;
    await(&peers->lock, &request.done);
    *reply_length = request.reply_length;
    return request.status;
}

static int local_peer_receive(struct fabric_endpoint *endpoint, struct fabric_peer_request **request)
{
    struct local_member *member = local_member_of(endpoint->fabric);
    struct local_receiver receiver = {.task = task_self()};
    spinlock_lock(&member->peers->lock);
    if (member->stopped || member->first) {
        receiver.over = true;
        receiver.request = member->first;
        if (member->first)
            member->first = member->first->next;
    } else {
        if (member->waiting_first)
            member->waiting_last->next = &receiver;
        else
            member->waiting_first = &receiver;
        member->waiting_last = &receiver;
    }
    spinlock_unlock(&member->peers->lock);
    await(&member->peers->lock, &receiver.over);
    if (!receiver.request)
        return BANYAN_EABORT;
    *request = &receiver.request->request;
    return BANYAN_OK;
}

static void local_peer_reply(struct fabric_endpoint *endpoint, struct fabric_peer_request *asked, int status,
                             const void *reply, size_t length)
{
    struct fabric_local_peers *peers = local_member_of(endpoint->fabric)->peers;
    struct local_request *request = (struct local_request *)asked;
    if (length > request->capacity) {
        status = BANYAN_EINVAL;
        length = 0;
    }
    if (length)
        memcpy(request->reply, reply, length); /* the caller's, which waits */
    request->reply_length = length;
    spinlock_lock(&peers->lock);
    request_end(request, status);
    spinlock_unlock(&peers->lock);
}

static void local_peer_stop(struct fabric *fabric)
{
    struct local_member *member = local_member_of(fabric);
    spinlock_lock(&member->peers->lock);
    member_stop(member);
    spinlock_unlock(&member->peers->lock);
}

static void local_peer_describe(const struct fabric *fabric, struct fabric_process peer, char *text,
                                size_t size)
{
    struct fabric_local_peers *peers = local_member_of(fabric)->peers;
    spinlock_lock(&peers->lock);
    const struct local_member *member = member_find(peers, peer);
    bool stopped = member && member->stopped;
    spinlock_unlock(&peers->lock);
    snprintf(text, size,
             member ? stopped ? "compute node %u of this process has stopped to answer its peers"
                              : "compute node %u of this process"
                    : "compute node %u of this process has closed its fabric",
             peer.compute_id);
}

const struct fabric_peer_ops local_peer_operations = {
    .self = local_self,
    .lease_alive = local_lease_alive,
    .lease_lapses = local_lease_lapses,
    .lease_resume = local_lease_resume,
    .fence = local_fence,
    .lease_over = local_lease_over,
    .processes = local_processes,
    .notify = local_notify,
    .notice = local_notice,
    .notice_listen = local_notice_listen,
    .call = local_peer_call,
    .receive = local_peer_receive,
    .reply = local_peer_reply,
    .stop = local_peer_stop,
    .describe = local_peer_describe,
};
