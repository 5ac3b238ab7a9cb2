/* nodes.c - see nodes.h. */
#include "server/nodes.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "pool/pool.h"
#include "server/state.h"

void server_node_ask(struct server *server, struct tree_session *session, unsigned number)
{
    struct server_node *node = &server->nodes[number];
    struct memory_status_request request = {.kind = MEMORY_STATUS};
    struct memory_status_reply reply = {0};
    char trouble[sizeof node->trouble] = "";
    size_t length = 0;
    int status = pool_call(tree_session_pool(session), (uint16_t)number, &request, sizeof request, &reply,
                           sizeof reply, &length);
    if (status) {
        fabric_trouble(server->fabric, (uint16_t)number, trouble, sizeof trouble);
        if (!trouble[0])
            snprintf(trouble, sizeof trouble, "%s", tree_session_error(session)->text);
    }
    spinlock_lock(&node->lock);
    node->connected = !status;
    if (!status) {
        node->asked = true;
        node->status = reply;
    }
    memcpy(node->trouble, trouble, sizeof trouble);
    spinlock_unlock(&node->lock);
}

void nodes_main(void *argument)
{
    struct server_thread *thread = argument;
    struct tree_session *session = NULL;
    if (tree_session_create(&session, thread->server->compute, thread->tree, NULL))
        log_error("no memory to ask memory nodes for their state");
    for (unsigned i = 0; session && !thread->stopping; i++) {
        if (server_memory_is(thread->server, i))
            server_node_ask(thread->server, session, i);
        if (i + 1 < server_memory_nodes(thread->server))
            continue;
        i = UINT_MAX; /* from the first again */
        for (unsigned tick = 0; tick < 10 && !thread->stopping; tick++)
            task_sleep(SERVER_TICK_NS);
    }
    tree_session_destroy(session);
    assert(thread->fibers_live);
    thread->fibers_live--;
}

unsigned server_memory_nodes(const struct server *server)
{
    return fabric_memory_nodes(server->fabric);
}

bool server_memory_is(const struct server *server, unsigned node)
{
    return fabric_membership(server->fabric, (uint16_t)node) != FABRIC_NO_MEMBER;
}

void server_memory_state(struct server *server, unsigned number, struct server_memory_state *state,
                         struct memory_status_reply *status)
{
    struct server_node *node = &server->nodes[number];
    memset(state, 0, sizeof *state);
    state->node = (uint16_t)number;
    tree_walks_figures(server->compute, state->node, &state->walks);
    tree_exchanges_figures(server->compute, state->node, &state->exchanges);
    spinlock_lock(&node->lock);
    state->connected = node->connected;
    memcpy(state->trouble, node->trouble, sizeof state->trouble);
    if (node->asked)
        *status = node->status;
    state->status = node->asked ? status : NULL;
    spinlock_unlock(&node->lock);
}
