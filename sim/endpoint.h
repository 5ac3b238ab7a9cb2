/*
 * endpoint.h - the connections of an endpoint: its order of arrivals, effects and answers at each memory
 * node. Made by fabric_sim.c, used by lists and calls.
 */
#ifndef SIM_ENDPOINT_H
#define SIM_ENDPOINT_H

#include "fabric/fabric.h"
#include "sim/queue.h"

/* From one endpoint to one memory node: delivers in order, and remembers that it was cut. */
struct sim_connection {
    sim_time last_arrival, last_effect, last_answer, last_return; /* last_answer: of lists with faults */
    struct sim_pair *pair;
    bool cut;
};

struct sim_endpoint {
    struct fabric_endpoint endpoint;
    struct sim_compute *compute;
    struct sim_connection **connections; /* by memory node, made on first use */
    uint32_t connection_count;
    struct sim_endpoint *next, *previous;
};

struct sim_cpu;

/* The endpoint's connection, which `cpu` uses; NULL: no memory. */
struct sim_connection *sim_connection_make(struct sim_endpoint *endpoint, struct sim_cpu *cpu, uint16_t node);
static inline struct sim_connection *sim_connection_get(struct sim_endpoint *endpoint, struct sim_cpu *cpu,
                                                        uint16_t node)
{
    if (node < endpoint->connection_count && endpoint->connections[node])
        return endpoint->connections[node];
    return sim_connection_make(endpoint, cpu, node);
}

#endif
