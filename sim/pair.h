/*
 * pair.h - queue pairs: what a NIC keeps of each CPU thread's connection to each memory node, and the
 * doorbells by which threads hand over lists.
 *
 * A pair is made when an endpoint of the thread first posts to the memory node, shared by all endpoints of
 * the thread, and let go with the last of them; a fenced compute node's pairs end with it. It counts at both
 * ends' NICs. Called by tasks that post, and from the event loop. Making one takes memory; all else cannot
 * fail and costs some nanoseconds.
 */
#ifndef SIM_PAIR_H
#define SIM_PAIR_H

#include "sim/state.h"

struct sim_compute;
struct sim_cpu;

/* One store at a time: the threads that share it spin. */
struct sim_doorbell {
    sim_time free;
    const struct sim_cpu *holder; /* the last to use it */
    uint32_t threads;             /* that share it */
    uint32_t waiting;             /* of them, when the last one came */
};

struct sim_pair {
    uint32_t endpoints;
    struct sim_doorbell *doorbell; /* NULL: no other thread's posts use it */
};

/* One more endpoint of the thread uses its pair with the memory node; NULL: no memory. */
struct sim_pair *sim_pair_take(struct sim_compute *compute, struct sim_cpu *cpu, uint16_t node);
void sim_pair_drop(const struct sim_compute *compute, struct sim_pair *pair, uint16_t node);
/* The compute node is fenced: no NIC keeps anything of it. */
void sim_pairs_end(const struct sim_compute *compute);
/* Frees what the thread has. */
void sim_pairs_free(struct sim_cpu *cpu);

/* How much longer a post takes the thread, since others use the doorbell. */
sim_time sim_doorbell_ring(const struct sim *sim, struct sim_pair *pair, const struct sim_cpu *cpu);

/* How long the NIC takes to read a connection's state over PCIe, where it is not in its cache: of c
 * connections in use, a message meets its own there with probability cache / c. */
sim_time sim_state_read(struct sim *sim, struct sim_nic *nic);
static inline sim_time sim_state_time(struct sim *sim, struct sim_nic *nic)
{
    return nic->connections > sim->model.connection_cache ? sim_state_read(sim, nic) : 0;
}

#endif
