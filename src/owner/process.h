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

#include "log/log.h"
#include "owner/owner.h"

struct owner_process;

/* Makes it, starts `threads` threads (at least 1) with `fibers` serving fibers each, and joins the others of
 * the cluster. `log`: of the log that this process keeps, which has a thread more, for merging; NULL: it
 * keeps none. `log` of the owner's options is set here. Costs round trips to the home node, and the map's. */
int owner_process_open(struct owner_process **process, struct tree_compute *compute,
                       const struct owner_options *options, const struct log_options *log, unsigned threads,
                       unsigned fibers, struct error *error);
/* Stops the threads, and takes this process off the board: no operation of it may be under way any more, nor
 * begin. What is still attached is detached; ranges are given away by owner_process_leave alone. The log
 * is closed: its segments go back to the memory nodes, unless others have to inherit from them. Round trips
 * to the memory nodes. NULL is ignored. */
void owner_process_close(struct owner_process *process);
/* NULL for NULL. */
struct owner *owner_process_owner(const struct owner_process *process);
/* NULL: the process keeps none; or for NULL. */
struct log *owner_process_log(const struct owner_process *process);

/* As the functions of owner.h. NULL for the process: nothing is to be done, 0. */
int owner_process_attach(struct owner_process *process, struct tree *tree, struct error *error);
int owner_process_detach(struct owner_process *process, struct tree *tree, struct error *error);
int owner_process_balance(struct owner_process *process, struct error *error);
/* owner_release: what it has goes to others. */
int owner_process_leave(struct owner_process *process, struct error *error);

#endif
