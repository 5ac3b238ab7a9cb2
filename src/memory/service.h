/*
 * service.h - services: what a memory node's CPU does for compute nodes besides reading and writing its
 * memory.
 *
 * A service answers a range of request kinds, may work in the background, and finishes what a compute node
 * left behind when that one was fenced. Every memory node has the services that request.h lists; a daemon
 * registers more (memoryd/status.c, memoryd/staging.c). The daemon's I/O threads, the simulator and the
 * process-local fabric serve from the same table.
 *
 * ADDING ONE: a file with a struct memory_service, and a line in request.h's list. If only some memory nodes
 * have it, whatever makes them registers it by memory_node_register.
 */
#ifndef MEMORY_SERVICE_H
#define MEMORY_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memory_node;
struct memory_status_reply;

/* What a caller is to the memory node. One bit each, so that a service names all that may call it. */
enum memory_role {
    MEMORY_ROLE_DATA = 1,      /* a compute node's endpoint, in this process or another */
    MEMORY_ROLE_CONTROL = 2,   /* a compute node's lease connection */
    MEMORY_ROLE_MONITOR = 4,   /* asks how things are, holds no lease */
    MEMORY_ROLE_FORMATTER = 8, /* makes the memory node part of a new cluster */
};
#define MEMORY_ROLES_ALL                                                                                     \
    (MEMORY_ROLE_DATA | MEMORY_ROLE_CONTROL | MEMORY_ROLE_MONITOR | MEMORY_ROLE_FORMATTER)

struct memory_call {
    enum memory_role role;
    uint16_t compute_id; /* 0: of no compute node */
    const void *request; /* of any alignment; nothing in it has been validated */
    size_t length;
    void *reply; /* of any alignment */
    size_t capacity;
    /* set by memory_node_serve and by the service */
    uint32_t kind;
    size_t reply_length; /* 0 unless the call succeeds */
    /* Where the caller can be answered later: `serve` may set the ticket, by which the service is asked what
     * came of it, and return MEMORY_DEFERRED. */
    bool defers;
    unsigned thread; /* which of the daemon's I/O threads calls, and is to be told then */
    uint64_t ticket;
};
#define MEMORY_DEFERRED 1

/* Every function may be NULL: then the service does nothing of the kind. `context` is that of its
 * registration. */
struct memory_service {
    const char *name; /* for messages */
    unsigned roles;   /* enum memory_role, or-ed: others get BANYAN_ENOTSUP */
    /* Answers one call of its range. On any thread, on several at once; must not wait. 0 or a negative error,
     * which goes to the caller; BANYAN_EINVAL: the request makes no sense. */
    int (*serve)(void *context, struct memory_call *call);
    /* How long the memory node's CPU works on such a call, ns, beyond what every RPC costs (receiving, a
     * short step, replying: rpc_ns of the simulator). A model: the simulator charges it when the request
     * arrives. */
    uint64_t (*cost_ns)(void *context, const struct memory_call *call);
    /* Works in the background until it has nothing more to do or *budget_ns is used up: takes the modelled
     * cost of what it did off *budget_ns, and returns whether more is to do. Any thread, never on two at
     * once; must not wait. It is called after calls, and again as long as it returns true. */
    bool (*work)(void *context, uint64_t *budget_ns);
    /* The compute node was fenced, or has left: nothing of it can arrive any more (G6), and its id is not
     * given away yet. Its locks are still taken; they are freed when every service's function has returned.
     * On one thread. */
    void (*fenced)(void *context, uint16_t compute_id);
    /* Adds what it counts to a status whose other fields are filled in. Any thread. */
    void (*report)(void *context, struct memory_status_reply *status);
};

#define MEMORY_SERVICES_MAX 20u

/* The node has the service from now on: for the `kinds` kinds from `first` on, none of which another service
 * answers; kinds 0: it answers none. The service and its context live until memory_node_unregister, or until
 * the node is destroyed. Both: while nothing uses the node. */
void memory_node_register(struct memory_node *node, const struct memory_service *service, uint32_t first,
                          uint32_t kinds, void *context);
/* Of the same service with the same context. */
void memory_node_unregister(struct memory_node *node, const struct memory_service *service, void *context);

/* Answers the call: 0, a negative error, or MEMORY_DEFERRED. Any thread; nothing waits. */
int memory_node_serve(struct memory_node *node, struct memory_call *call);
/* Lets services work in the background, at a modelled cost of about *budget_ns, which is taken off it. True:
 * more is to do, call again. Any thread; costs nothing if no service has background work. */
bool memory_node_work(struct memory_node *node, uint64_t *budget_ns);
/* The compute node is fenced (struct memory_service, fenced): services finish what they have of it. For a
 * memory node whose locks a NIC frees; memory_node_release_locks does this itself. */
void memory_node_finish(struct memory_node *node, uint16_t compute_id);

#endif
