/*
 * params.h - what the simulated hardware costs, and which faults it shows: two option tables; and where each
 * cost comes from.
 *
 * Every field is settable by name through base/options.h (sim_params_table, sim_faults_table).
 * sim_params_basis gives the source of each default and the range within which it may lie. Plain data: fill
 * with the default function, change what the experiment is about, hand to sim_create, which copies it.
 * docs/internals/simulator.md has the reasoning.
 */
#ifndef SIM_PARAMS_H
#define SIM_PARAMS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/options.h"

struct sim_params {
    /* the NIC and the network */
    bool shared_nic;           /* compute node i and memory node i are one machine with one NIC */
    bool block_responses;      /* a conflicting atomic also holds up responses that arrive at that NIC */
    double bandwidth;          /* Gb/s, each direction */
    double message_rate_in;    /* million messages per second */
    double message_rate_out;   /* million messages per second */
    uint32_t header_bytes;     /* on the wire, per packet */
    uint32_t mtu;              /* payload bytes of one packet */
    uint32_t inline_bytes;     /* WRITE payload that travels with the command over PCIe */
    uint32_t doorbell_ns;      /* from the CPU's store to the NIC having the command */
    uint32_t nic_ns;           /* one pass through one NIC */
    uint32_t wire_ns;          /* cables and switch, one way */
    uint32_t pcie_read_ns;     /* one DMA read */
    uint32_t pcie_write_ns;    /* one DMA write until a polling CPU sees it */
    double pcie_bandwidth;     /* Gb/s of a payload's bytes */
    double dma_read_rate;      /* million PCIe reads per second; 0: not limited */
    uint32_t dma_read_bytes;   /* bytes that one PCIe read asks for at most */
    uint32_t connection_cache; /* connections whose state a NIC holds; 0: all */
    uint32_t doorbells;        /* of a compute node, which its threads share; 0: each thread has its own */
    uint32_t doorbell_hold_ns; /* a post holds the doorbell for so long */
    uint32_t jitter_ns;        /* mean of an exponential, added once each way */
    /* atomics */
    uint32_t atomic_fetch_ns;     /* PCIe read of an atomic on host memory: the bucket is busy */
    uint32_t atomic_writeback_ns; /* PCIe write of the new value: the bucket is busy for so much longer */
    double chip_rate;             /* million atomics per second on the NIC's own memory */
    uint32_t chip_ns;             /* an access to the NIC's own memory: the bucket is busy */
    /* the NIC's capabilities: struct fabric_capabilities */
    uint32_t atomic_write; /* bytes that a WRITE takes effect for as a whole at death */
    uint32_t lock_width;   /* 2 or 8; for the maker of the memory nodes: theirs counts */
    bool release_by_write, masked_cas;
    /* the memory node's CPU */
    uint32_t rpc_cores, rpc_ns;
    uint32_t walk_ns, walk_node_ns; /* for the maker of the memory nodes: what their walks cost ... */
    uint32_t merge_entry_ns;        /* ... and their merging */
    /* between compute nodes (fabric/peers.h) */
    uint32_t receive_ns;      /* CPU time to take one message of another compute node */
    uint32_t read_lease_ns;   /* G7 */
    uint32_t peer_timeout_ns; /* a peer call that is not answered fails after so long */
    /* the client's CPU */
    uint32_t post_ns;        /* per list */
    uint32_t command_ns;     /* per command */
    uint32_t poll_ns;        /* per wait */
    uint32_t operation_ns;   /* TASK_WORK_OPERATION */
    uint32_t search_ns;      /* TASK_WORK_SEARCH, per node */
    double leaf_ns;          /* TASK_WORK_LEAF, per slot */
    double slot_check_ns;    /* TASK_WORK_CHECK, per slot */
    uint32_t split_ns;       /* TASK_WORK_SPLIT, per node */
    uint32_t handover_ns;    /* TASK_WORK_HANDOVER, per wake-up */
    double line_transfer_ns; /* TASK_WORK_LINE, per cache line */
    double line_copy_ns;     /* TASK_WORK_COPY, per cache line */
    double sort_ns;          /* TASK_WORK_SORT, per entry */
    double visit_ns;         /* TASK_WORK_VISIT, per entry */
    double checksum_ns;      /* TASK_WORK_CHECKSUM, per cache line */
    uint32_t yield_ns;       /* one task_yield; not 0, or loops that yield would stop time */
    uint32_t clock_ns;       /* one task_now; the same reason */
};

struct sim_faults {
    double torn_reads;  /* probability that a READ fetches its words at many instants */
    double torn_writes; /* probability that a WRITE stores its words at several instants */
    uint32_t tear_window_ns;
    bool address_order; /* torn words move in ascending order of their addresses, as published indexes
                           assume */
    double spread;      /* probability that a list's commands take effect at different instants */
    uint32_t list_spread_ns;
    double late;         /* probability that a request is delayed */
    double late_replies; /* probability that an answer is delayed */
    uint32_t late_ns;
    double stall; /* probability, per arriving list, that the memory node's NIC stops serving */
    uint32_t stall_ns;
    double atomic_queue; /* probability, per arriving atomic, that many others queue before it */
    uint32_t atomic_queue_ns;
    double fiber_stall; /* probability, per resumption of a task, that it comes late */
    uint32_t fiber_stall_ns;
    double thread_stall; /* ... that its CPU thread stands still */
    uint32_t thread_stall_ns;
    double compute_stall; /* ... that all threads of its compute node stand still */
    uint32_t compute_stall_ns;
    uint32_t
        lease_ns; /* a compute node that stands still for longer is fenced; where sim_on_loss was called */
    double lose;  /* probability, per arriving list, that the connection of its compute node is lost; where
                     sim_on_loss was called */
    uint32_t lose_ns;    /* longest time until the compute node knows, and until it is connected again */
    double message_lose; /* probability that a notice, a peer's request or its reply never comes */
    double message_late; /* ... that it is delayed */
    uint32_t message_late_ns;
    double clock_drift; /* by how much clocks may run fast or slow, of which leases are counted; 0.01 apart is
                           what they allow for */
};

/* Where a cost's default comes from, and within which range the truth plausibly lies. */
enum sim_basis {
    SIM_PUBLISHED,  /* stated or measured in the source, for hardware of this kind */
    SIM_CALIBRATED, /* fitted to Sherman's Table 1, and to nothing else */
    SIM_ESTIMATE    /* no source states it; the source column gives the reason of the range */
};
struct sim_param_basis {
    const char *name; /* as in sim_params_table */
    enum sim_basis basis;
    double low, high; /* both within the table's own range, the default between them */
    const char *source;
};
/* One row for each parameter that is a cost or a doubt of the model; ends with a NULL name. What is none (the
 * machines' layout, the NIC's capabilities) has no row. */
extern const struct sim_param_basis sim_params_basis[];
/* NULL: the parameter has no row. */
const struct sim_param_basis *sim_param_basis_find(const char *name);
/* "published", "calibrated", "estimate". */
const char *sim_basis_name(enum sim_basis basis);

extern const struct option_entry sim_params_table[];
extern const struct option_entry sim_faults_table[];

void sim_params_default(struct sim_params *params);
/* No faults at all: the fast path. */
void sim_faults_none(struct sim_faults *faults);
/* Everything that the fabric's contract allows, often: for tests of the layers above. */
void sim_faults_hostile(struct sim_faults *faults);
/* Whether every number is within its table's range, for structs that were not filled through the table: 0, or
 * BANYAN_EINVAL with a message that names the parameter. sim_create asks. */
int sim_params_check(const struct sim_params *params, struct error *error);
int sim_faults_check(const struct sim_faults *faults, struct error *error);
bool sim_faults_any(const struct sim_faults *faults);

#endif
