/* node.c - see node.h. */
#include "save/node.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/task.h"

#define LOOK_FIRST_NS UINT64_C(50000)
#define LOOK_MOST_NS  UINT64_C(2000000)

static int call_failed(struct pool_session *session, const struct save_node *node,
                       const struct memory_save_request *request, int status)
{
    static const char *const actions[] = {
        [MEMORY_SAVE_LOOK] = "a look",          [MEMORY_SAVE_TAKE] = "its beginning",
        [MEMORY_SAVE_LEAVE] = "its end",        [MEMORY_SAVE_BEGIN] = "the positions",
        [MEMORY_SAVE_WRITE] = "a part",         [MEMORY_SAVE_END] = "a part's end",
        [MEMORY_SAVE_PREPARE] = "preparing it", [MEMORY_SAVE_COMMIT] = "commit",
        [MEMORY_SAVE_DROP] = "dropping it"};
    char what[96];
    snprintf(what, sizeof what, "memory node %u: a checkpoint: %s", (unsigned)node->node,
             actions[request->action]);
    return pool_node_failed(session, status, node->node, what);
}

int save_node_call(struct pool_session *session, struct save_node *node, struct memory_save_request *request)
{
    const size_t least = offsetof(struct memory_save_reply, marks);
    struct memory_save_reply reply;
    size_t length = 0;
    request->kind = MEMORY_SAVE;
    int status = pool_call(session, node->node, request, sizeof *request, &reply, sizeof reply, &length);
    if (status)
        return call_failed(session, node, request, status);
    if (length < least || reply.count > MEMORY_SAVE_MARKS ||
        length < least + reply.count * sizeof reply.marks[0] || reply.state > MEMORY_SAVE_PREPARED)
        return pool_fail(session, BANYAN_ECORRUPT,
                         "memory node %u: what it says of its part in a checkpoint makes no sense",
                         (unsigned)node->node);
    memcpy(&node->said, &reply, length);
    return 0;
}

/* Whether this compute node has lost the memory node, which refuses what it asks for since: it was fenced
 * there (P11), and is connected again. */
static bool lost(struct pool_session *session, struct save_node *node)
{
    struct memory_save_request look = {.action = MEMORY_SAVE_LOOK};
    return !save_node_call(session, node, &look) &&
           node->said.holder != fabric_capabilities(session->fabric)->compute_id;
}

int save_node_send(struct pool_session *session, struct save_node *node, struct memory_save_request *request)
{
    int status = save_node_call(session, node, request);
    node->sent = !status;
    if (status != BANYAN_EINVAL && status != BANYAN_EBUSY)
        return status;
    const struct error refused = session->error;
    if (lost(session, node))
        return pool_fail(session, BANYAN_EFENCED,
                         "memory node %u: this compute node was fenced there while it made a checkpoint",
                         (unsigned)node->node);
    session->error = refused;
    return status;
}

int save_node_wait(struct pool_session *session, struct save_node *node, uint64_t wait_ns)
{
    const uint64_t began = task_now();
    uint64_t pause = LOOK_FIRST_NS;
    while (node->sent) {
        struct memory_save_request look = {.action = MEMORY_SAVE_LOOK};
        int status = save_node_call(session, node, &look);
        if (status)
            return status;
        if (!node->said.busy)
            break;
        if (task_now() - began >= wait_ns)
            return pool_fail(session, BANYAN_ETIMEOUT,
                             "memory node %u: its disk takes too long for a checkpoint",
                             (unsigned)node->node);
        task_sleep(pause);
        pause = pause < LOOK_MOST_NS ? 2 * pause : pause;
    }
    const bool sent = node->sent;
    node->sent = false;
    if (sent && node->said.status)
        return pool_fail(session, node->said.status,
                         "memory node %u could not do its part in a checkpoint; its log says why",
                         (unsigned)node->node);
    return 0;
}

int save_node_act(struct pool_session *session, struct save_node *node, struct memory_save_request *request,
                  uint64_t wait_ns)
{
    int status = save_node_send(session, node, request);
    return status ? status : save_node_wait(session, node, wait_ns);
}
