/* remote_processes.c - see remote_processes.h. */
#include "fabric/remote_processes.h"

#include <stdlib.h>
#include <string.h>

#include "fabric/remote_fabric.h"

/* A fencing is under way for as long as the memory node needs to close connections, or to end a process. The
 * pauses between two questions begin with the first and double up to the second. */
#define FENCE_FIRST (REMOTE_MS / 10)
#define FENCE_LAST  (REMOTE_MS * 5)

static int ask(struct fabric_endpoint *base, uint16_t node, const struct wire_process_request *request,
               void *reply, size_t capacity, size_t *length)
{
    *length = 0;
    return remote_call(base, node, request, sizeof *request, reply, capacity, length);
}

static struct wire_process_request about(enum wire_process_kind kind, struct fabric_process process)
{
    return (struct wire_process_request){
        .kind = (uint32_t)kind, .compute_id = process.compute_id, .instance = process.instance};
}

static int ask_done(struct fabric_endpoint *base, uint16_t node, const struct wire_process_request *request,
                    struct wire_process_reply *reply)
{
    size_t length;
    int status = ask(base, node, request, reply, sizeof *reply, &length);
    return !status && length != sizeof *reply ? BANYAN_EVERSION : status;
}

int remote_fence(struct fabric_endpoint *base, uint16_t node, struct fabric_process process)
{
    const struct remote_fabric *remote = (const struct remote_fabric *)base->fabric;
    struct wire_process_request request = about(WIRE_PROCESS_FENCE, process);
    uint64_t pause = FENCE_FIRST, deadline = task_now() + remote->identity.timeout_ms * REMOTE_MS;
    for (;;) {
        struct wire_process_reply reply = {0};
        int status = ask_done(base, node, &request, &reply);
        if (status || reply.done == 1)
            return status;
        if (task_now() >= deadline)
            return BANYAN_ETIMEOUT;
        request.life = reply.life; /* it may join anew before the next question */
        task_sleep(pause);
        pause = pause * 2 < FENCE_LAST ? pause * 2 : FENCE_LAST;
    }
}

int remote_lease_over(struct fabric_endpoint *base, struct fabric_process process, bool *over)
{
    const struct wire_process_request request = about(WIRE_PROCESS_LEASE_OVER, process);
    struct wire_process_reply reply = {0};
    int status = ask_done(base, REMOTE_HOME, &request, &reply);
    *over = !status && reply.done == 1;
    return status;
}

static int compare(const void *a, const void *b)
{
    const struct wire_process *one = a, *two = b;
    return one->compute_id < two->compute_id ? -1 : one->compute_id > two->compute_id;
}

/* Those behind the id `after`, as many as one answer has, in ascending order. BANYAN_EVERSION: the answer
 * makes no sense. */
static int list_some(struct fabric_endpoint *base, uint16_t after, struct wire_process_list *list)
{
    const size_t head = offsetof(struct wire_process_list, processes);
    const struct wire_process_request request = {.kind = WIRE_PROCESS_LIST, .compute_id = after};
    size_t length;
    int status = ask(base, REMOTE_HOME, &request, list, sizeof *list, &length);
    if (status)
        return status;
    if (length < head || list->count > WIRE_PROCESSES_MAX || list->total < list->count ||
        length != head + list->count * sizeof list->processes[0] || (list->total > 0 && list->count == 0))
        return BANYAN_EVERSION;
    qsort(list->processes, list->count, sizeof list->processes[0], compare);
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->processes[i].compute_id <= after)
            return BANYAN_EVERSION;
        after = list->processes[i].compute_id;
    }
    return BANYAN_OK;
}

/* A process that is connected all the time is in exactly one of the answers. Each begins behind the one
 * before it, so there is an end to them. */
int remote_processes(struct fabric_endpoint *base, struct fabric_process *processes, uint32_t capacity,
                     uint32_t *count)
{
    struct wire_process_list *list = malloc(sizeof *list);
    uint16_t after = 0;
    bool more = true;
    int status = list == NULL ? BANYAN_ENOMEM : BANYAN_OK;
    *count = 0;
    while (!status && more) {
        status = list_some(base, after, list);
        for (uint32_t i = 0; !status && i < list->count; i++, ++*count) {
            after = list->processes[i].compute_id;
            if (*count < capacity)
                processes[*count] =
                    (struct fabric_process){.compute_id = after, .instance = list->processes[i].instance};
        }
        more = !status && list->count < list->total;
    }
    free(list);
    return status;
}

int remote_notify(struct fabric_endpoint *base, uint64_t number)
{
    size_t length;
    char nothing;
    const struct wire_process_request request = {.kind = WIRE_PROCESS_NOTIFY, .instance = number};
    return ask(base, REMOTE_HOME, &request, &nothing, sizeof nothing, &length);
}

int remote_peer_address(struct fabric_endpoint *base, struct fabric_process process,
                        struct net_address *address)
{
    char text[WIRE_PEER_MAX + 1] = "";
    size_t length;
    const struct wire_process_request request = about(WIRE_PROCESS_ADDRESS, process);
    int status = ask(base, REMOTE_HOME, &request, text, sizeof text - 1, &length);
    if (status)
        return status;
    text[length] = 0;
    return net_address_parse(address, text, 0, NULL);
}
