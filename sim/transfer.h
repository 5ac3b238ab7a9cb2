/*
 * transfer.h - lists that take effect by steps, where faults are on: what the fabric's contract allows and
 * hardware seldom shows. READs and WRITEs whose words move at several instants, lists spread over time,
 * atomics that queue, and the lists of a compute node that dies.
 *
 * An arriving list becomes a transfer: steps, each with its instant, planned once from the seeded random
 * streams and then followed event by event. No command takes effect before the NIC comes to it. WRITEs and
 * atomics keep their order within the list and from list to list of a connection (G1); a READ begins no
 * earlier than the commands before it, and those behind it need not wait. The words of a torn READ are
 * fetch.c's: its steps are its beginning and its end. Called from the event loop.
 */
#ifndef SIM_TRANSFER_H
#define SIM_TRANSFER_H

#include "fabric/fabric.h"
#include "sim/nic.h"
#include "sim/queue.h"
#include "sim/sim.h"

struct sim_compute;
struct sim_connection;
struct sim_fetch;

#define SIM_PARTS_MAX   8
#define SIM_READ_BEGINS 0 /* parts of a torn READ */
#define SIM_READ_ENDS   1

struct sim_step {
    sim_time time;
    uint64_t seed; /* which words belong to which part */
    uint16_t command;
    uint8_t part, parts;
    uint8_t shift;      /* words of a piece, as a power of two: 1 to 8 (one word to a cache line) */
    bool address_order; /* the parts are runs of pieces, the first part the first run */
};

struct sim_transfer {
    struct fabric_list *list;
    struct sim_connection *connection;
    sim_time ready, answer;     /* answer: not before, so that the connection's answers stay in order */
    struct sim_fetch **fetches; /* by command; behind the steps */
    uint32_t count, next;
    struct sim_step steps[];
};

/* faults.c: the faults of a memory node's NIC, before it serves the list. */
void sim_nic_trouble(struct sim *sim, struct sim_nic *nic, const struct fabric_list *list);

/* transfer_plan.c: a list arrives (`starts`: when the NIC comes to each of its commands; `ready`: when the
 * answer may leave at the earliest). The second frees a transfer and its fetches; the third the same, for
 * an event's object. */
void sim_transfer_start(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                        sim_time ready, const sim_time *starts);
void sim_transfer_free(struct sim *sim, struct sim_transfer *transfer);
void sim_transfer_drop(struct sim *sim, void *transfer);

/* transfer.c: the next step. When a connection or a node is fenced, short WRITEs that have begun are
 * finished, those to one memory node or to SIM_EVERY_NODE. */
#define SIM_EVERY_NODE UINT32_MAX
void sim_transfer_step(struct sim *sim, struct sim_compute *compute, void *transfer);
void sim_transfers_finish(struct sim *sim, const struct sim_compute *compute, uint32_t node);
/* A whole command, within bounds. */
void sim_run_command(struct sim *sim, uint16_t node, struct fabric_command *command);
/* A WRITE that may be left half done at its node's death, and the first words of it: fewer than all. */
bool sim_is_long_write(const struct sim *sim, const struct fabric_command *command);
void sim_run_prefix(struct sim *sim, uint16_t node, const struct fabric_command *command);

/* dead_list.c: a list of a dead node arrives. */
void sim_list_arrive_dead(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                          sim_time posted);

#endif
