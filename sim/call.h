/*
 * call.h - a call under way to a memory node: posted by a task, then followed event by event. Called from
 * tasks (the call itself) and from the event loop.
 */
#ifndef SIM_CALL_H
#define SIM_CALL_H

#include "fabric/fabric.h"
#include "sim/message.h"

/* One fabric_call: on its caller's stack. */
struct sim_call {
    struct sim_waiter own, *waiter; /* the call's own, or one for several calls */
    struct sim_connection *connection;
    uint16_t node;
    uint32_t known;       /* its link's losses when it was posted */
    uint64_t incarnation; /* of its operation; 0: any */
    int status;
    const void *request;
    size_t length;
    void *reply;
    size_t capacity, *reply_length;
    /* What the memory node itself does about processes (home.c); NULL: the call is for its services. */
    int (*serve)(struct sim *sim, struct sim_compute *caller, struct sim_call *call);
    void *context; /* of `serve` */
    /* while it waits (struct sim_later) */
    struct sim_compute *caller;
    struct sim_call *next;
    uint64_t ticket;
};

/* Sends the call, of which node, request, reply and what serves it are set, and suspends the calling task
 * until it is over. `call` is the caller's and may be on its stack. */
int sim_call_run(struct sim_endpoint *endpoint, struct sim_call *call);
/* fabric_call and fabric_calls of the simulated fabric. */
int sim_backend_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                     void *reply, size_t capacity, size_t *reply_length);
void sim_backend_calls(struct fabric_endpoint *endpoint, struct fabric_call *const *calls, uint32_t count);
/* The events: the request arrives (`posted`: when it was); the memory node's core has served it; the reply is
 * there. */
void sim_call_request(struct sim *sim, struct sim_compute *compute, struct sim_call *call, sim_time posted);
void sim_call_served(struct sim *sim, struct sim_compute *compute, struct sim_call *call);
void sim_call_reply(struct sim *sim, struct sim_compute *compute, struct sim_call *call);

#endif
