/* nodes.h - memory nodes as this compute node sees them: a fiber asks each of them about once a second. */
#ifndef SERVER_NODES_H
#define SERVER_NODES_H

#include "base/atomic.h"
#include "memory/memory.h"
#include "server/server.h"

struct server_node {
    struct spinlock lock; /* guards what follows */
    bool connected, asked;
    struct memory_status_reply status;
    char trouble[256];
};

/* Asks a memory node for its state now. On a fiber, with its session. One round trip. */
void server_node_ask(struct server *server, struct tree_session *session, unsigned number);
/* A fiber of thread 0. argument: struct server_thread. */
void nodes_main(void *thread);

#endif
