/*
 * process.h - a real process's part in dividing key ranges: its struct owner (owner.h), the threads of that,
 * and a session for what is done outside of clients' operations. For programs and the C library; simulations
 * make these parts themselves.
 *
 * Every process that opens indexes of a cluster has one, whether it wants ranges or not. The functions that
 * say so ask the memory nodes; they may be called by any thread, and wait for each other.
 */
#ifndef OWNER_PROCESS_H
#define OWNER_PROCESS_H

#include "owner/owner.h"

struct owner_process;

/* Makes it, starts `threads` threads (at least 1) with `fibers` serving fibers each, and joins the others of
 * the cluster. Costs round trips to the home node, and the map's. */
int owner_process_open(struct owner_process **process, struct tree_compute *compute,
                       const struct owner_options *options, unsigned threads, unsigned fibers,
                       struct error *error);
/* Stops the threads, and takes this process off the board: no operation of it may be under way any more, nor
 * begin. What is still attached is detached; ranges are given away by owner_process_leave alone. A round trip
 * to the home node. NULL is ignored. */
void owner_process_close(struct owner_process *process);
/* NULL for NULL. */
struct owner *owner_process_owner(const struct owner_process *process);

/* As the functions of owner.h. NULL for the process: nothing is to be done, 0. */
int owner_process_attach(struct owner_process *process, struct tree *tree, struct error *error);
int owner_process_detach(struct owner_process *process, struct tree *tree, struct error *error);
int owner_process_balance(struct owner_process *process, struct error *error);
/* owner_release: what it has goes to others. */
int owner_process_leave(struct owner_process *process, struct error *error);

#endif
