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

/* A fiber of thread 0. argument: struct server_thread. */
void nodes_main(void *thread);

#endif
