/*
 * node.h - compute nodes and memory nodes of a simulated cluster: made by sim.c, killed by death.c, held up
 * by stall.c; the memory nodes' CPUs are cores.c's.
 */
#ifndef SIM_NODE_H
#define SIM_NODE_H

#include "fabric/fabric.h"
#include "sim/lease.h"
#include "sim/nic.h"
#include "sim/peer.h"
#include "sim/queue.h"
#include "sim/sim.h"

struct sim_compute {
    struct fabric fabric;
    struct sim_link **links; /* by memory node, made on first use */
    /* Bits of memory nodes (members.h): those that it does not know of, and those of which it has heard that
     * they leave, or were removed. */
    uint64_t unknown, leaving, removed;
    uint32_t link_count;
    uint64_t incarnation;
    struct sim *sim;
    struct sim_nic *nic;
    uint16_t index, machine; /* machine: the order of sim_add_compute; a restarted process has that of the one
                                before */
    bool owns_nic;           /* else it is the memory node's, or that of the process before */
    bool dead, fenced, replaced;
    bool cut; /* dead, and nothing of it takes effect any more, but for short WRITEs that have begun */
    uint64_t effects; /* 0: it lives on; else it dies just before so many more, with lease_ns, on_fenced */
    uint64_t lease_ns;
    sim_time death, stalled_from, stalled_until;
    uint32_t live_tasks;
    struct sim_cpu *cpus;
    struct sim_doorbell *doorbells; /* params.doorbells of them, made on first use */
    uint32_t pairs_made;
    struct sim_endpoint *endpoints;
    void (*on_fenced)(void *);
    void *on_fenced_argument;
    struct sim_lease lease;
    struct sim_mailbox mailbox;
    uint64_t notice;
    void (*heard)(void *); /* fabric_notice_listen */
    void *heard_context;
};

struct sim_memory {
    const struct fabric_target *target;
    struct sim_nic *nic;
    sim_time *core_free;       /* params.rpc_cores of them */
    bool works;                /* a SIM_EVENT_WORK is pending */
    bool absent;               /* it has not joined yet */
    bool leaving, removed;     /* by the home node's list */
    struct sim_fetch *fetches; /* READs that are being fetched word by word */
    sim_time stalled_until;    /* its NIC serves nothing */
    struct sim_later later;    /* all zero: it answers at once */
    struct sim_call *waiting;  /* calls that are answered later, in the order of their coming */
};

/* sim.c: one more compute node, or NULL with the error set. */
struct sim_compute *sim_compute_make(struct sim *sim, uint16_t machine, struct sim_nic *nic,
                                     struct error *error);

/* fabric_sim.c: sets up the compute node's fabric; tells all fabrics about the memory nodes that there are;
 * frees the fabric's endpoints and links. */
void sim_fabric_init(struct sim_compute *compute);
void sim_fabric_refresh(struct sim *sim);
void sim_fabric_free(struct sim_compute *compute);

/* peers.c: the operations of fabric/peers.h; the process, which may be dead, or NULL where there never was
 * such a one. */
extern const struct fabric_peer_ops sim_peer_operations;
struct sim_compute *sim_process_find(const struct sim *sim, struct fabric_process process);

/* cores.c: a call that is there at `start` takes the memory node's CPU; returns when it is served. */
struct sim_call;
sim_time sim_core_serve(const struct sim *sim, const struct sim_memory *memory, uint16_t compute_id,
                        const struct sim_call *call, sim_time start);
/* A call is served, after which there may be background work; the event of that work. */
void sim_core_work_begin(struct sim *sim, uint16_t node);
void sim_core_work(struct sim *sim, uint16_t node);

/* death.c: false: the node dies just before this effect. */
bool sim_effect_counted(struct sim *sim, struct sim_compute *compute);
static inline bool sim_effect_happens(struct sim *sim, struct sim_compute *compute)
{
    return compute->effects == 0 || sim_effect_counted(sim, compute);
}
/* The dead node's lease ends. */
void sim_compute_fence(struct sim *sim, struct sim_compute *compute);

#endif
