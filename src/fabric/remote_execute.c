/*
 * remote_execute.c - fabric_execute and fabric_call on memory nodes in other processes: what is mapped is run
 * here and now, everything else is posted and waited for.
 *
 * On the endpoint's owner. A list to a mapped pool costs some nanoseconds more than on the local backend: the
 * check of its group, and the staging of WRITEs.
 */
#include <assert.h>

#include "base/membarrier.h"
#include "fabric/local_run.h"
#include "fabric/remote_nic.h"

/* A mapped pool needs a data connection only for its staging area, for what takes more than one store. If the
 * memory node has no connection left for an endpoint, that may still do a single atomic or a single word,
 * such as a lock's release, because the group lives: conditions (1) and (2) of remote_node.h hold with the
 * node's own `since`. `since` may be of a later group than the one read just before; but an operation that
 * began after that group's start cannot have read the older number. */
static int admit_word(const struct remote_node *node, const struct fabric_list *list)
{
    const struct fabric_command *command = &list->commands[0];
    const uint8_t *where = (const uint8_t *)(uintptr_t)gaddr_offset(command->address);
    if (list->count != 1 || list->incarnation == 0 || command->operation == FABRIC_READ ||
        (command->operation == FABRIC_WRITE && !local_one_store(where, command->length)))
        return BANYAN_ENET;
    if (atomic_load_acquire(&node->group) % 2 == 0) /* acquire: condition (2); and the group's `since` */
        return BANYAN_ENET;
    /* relaxed: published by the group's number */
    return list->incarnation < atomic_load_relaxed(&node->since) ? BANYAN_EFENCED : BANYAN_OK;
}

static inline int run_mapped(struct remote_endpoint *endpoint, struct remote_link *link,
                             struct fabric_list *list)
{
    const struct remote_fabric *remote = (const struct remote_fabric *)endpoint->endpoint.fabric;
    uint64_t runs = endpoint->runs;
    assert(runs % 2 == 0); /* one list at a time: nothing suspends below */
    /* This store comes before the look at the group; the reconnect looks at `runs` after it has seen the
     * group ended. Its membarrier orders both sides, as a fence here would (remote_reconnect.c, quiesce). */
    atomic_store_relaxed(&endpoint->runs, runs + 1);
    membarrier_light(remote->membarrier);
    int status = remote_link_admit(link, list->incarnation);
    if (__builtin_expect(status == BANYAN_ENET, 0))
        status = admit_word(link->node, list);
    if (__builtin_expect(!status, 1)) {
        if (local_waits(list))
            local_prefetch(&link->node->target, list);
        status = local_run(&link->node->target, list, link->transport.staging);
    } else {
        list->status = status;
    }
    atomic_store_release(&endpoint->runs, runs + 2); /* release: the list is done */
    return status;
}

/* Lists to several memory nodes, or to one that is not mapped. Messages are posted first, so that they travel
 * while mapped lists are run. */
static int execute_any(struct remote_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count)
{
    remote_endpoint_bind(endpoint);
    struct remote_wait wait = {.task = endpoint->worker != NULL ? task_self() : NULL};
    for (uint32_t i = 0; i < count; i++) {
        struct remote_link *link = &endpoint->links[lists[i]->node];
        if (link->node->device != NULL)
            remote_nic_post(link, lists[i], &wait);
        else if (!link->node->mapped)
            remote_link_post(link, lists[i], &wait);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct remote_link *link = &endpoint->links[lists[i]->node];
        if (link->node->mapped)
            run_mapped(endpoint, link, lists[i]);
    }
    remote_endpoint_wait(endpoint, &wait);
    for (uint32_t i = 0; i < count; i++)
        if (lists[i]->status)
            return lists[i]->status;
    return BANYAN_OK;
}

int remote_execute(struct fabric_endpoint *base, struct fabric_list *const *lists, uint32_t count)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    int status;
    if (count == 1 && endpoint->links[lists[0]->node].node->mapped)
        status = run_mapped(endpoint, &endpoint->links[lists[0]->node], lists[0]);
    else
        status = execute_any(endpoint, lists, count);
    /* acquire: loads from what these READs returned in place come after loads for earlier lists */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return status;
}

int remote_call(struct fabric_endpoint *base, uint16_t node, const void *request, size_t length, void *reply,
                size_t capacity, size_t *reply_length)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    return remote_link_call(&endpoint->links[node], request, length, reply, capacity, reply_length);
}

int remote_persist(struct fabric_endpoint *base, const uint16_t *nodes, uint32_t count, int *statuses)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    struct remote_call *calls = calloc(count, sizeof *calls);
    const struct wire_persist_request request = {.kind = WIRE_PERSIST};
    int first = BANYAN_OK;
    if (calls == NULL) {
        for (uint32_t i = 0; i < count; i++)
            statuses[i] = BANYAN_ENOMEM;
        return BANYAN_ENOMEM;
    }
    remote_endpoint_bind(endpoint);
    struct remote_wait wait = {.task = endpoint->worker != NULL ? task_self() : NULL};
    for (uint32_t i = 0; i < count; i++) {
        struct remote_link *link = &endpoint->links[nodes[i]];
        calls[i].list.status =
            link->node->mapped ? BANYAN_ENOTSUP /* a pool in a file is not mapped */
                               : remote_link_call_later(link, &calls[i], 0, &request, sizeof request, &wait);
    }
    remote_endpoint_wait(endpoint, &wait);
    for (uint32_t i = 0; i < count; i++) {
        statuses[i] = calls[i].list.status;
        first = !first ? statuses[i] : first;
    }
    free(calls);
    return first;
}

static void post_call(struct remote_endpoint *endpoint, struct fabric_call *call, struct remote_call *posted,
                      struct remote_wait *wait)
{
    struct remote_link *link = &endpoint->links[call->node];
    *posted = (struct remote_call){.reply = call->reply, .capacity = call->capacity};
    posted->list.status = link->node->mapped ? BANYAN_ENOTSUP
                                             : remote_link_call_later(link, posted, call->incarnation,
                                                                      call->request, call->length, wait);
}

static void take_call(struct fabric_call *call, const struct remote_call *posted)
{
    call->status = posted->list.status;
    call->reply_length = !call->status ? posted->length : 0;
}

#define CALLS_TOGETHER 8u

void remote_calls(struct fabric_endpoint *base, struct fabric_call *const *calls, uint32_t count)
{
    struct remote_endpoint *endpoint = (struct remote_endpoint *)base;
    struct remote_call posted[CALLS_TOGETHER];
    remote_endpoint_bind(endpoint);
    for (uint32_t from = 0; from < count; from += CALLS_TOGETHER) {
        uint32_t together = count - from < CALLS_TOGETHER ? count - from : CALLS_TOGETHER;
        struct remote_wait wait = {.task = endpoint->worker != NULL ? task_self() : NULL};
        for (uint32_t i = 0; i < together; i++)
            post_call(endpoint, calls[from + i], &posted[i], &wait);
        remote_endpoint_wait(endpoint, &wait);
        for (uint32_t i = 0; i < together; i++)
            take_call(calls[from + i], &posted[i]);
    }
}

enum fabric_durability remote_durability(const struct fabric *fabric, uint16_t node)
{
    const struct remote_fabric *remote = (const struct remote_fabric *)fabric;
    /* relaxed: stored before the group's number, which a task that has posted a list there has seen */
    const uint32_t said = atomic_load_relaxed(&remote->nodes[node].durability);
    return said < FABRIC_DURABILITIES ? (enum fabric_durability)said : FABRIC_KEPT_IN_MEMORY;
}
