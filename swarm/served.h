/*
 * served.h - memory nodes of this process served over a network, and compute nodes that reach them there: a
 * world's (world.h) other fabric. The memory nodes stay within reach of the test, which looks at their locks
 * and blocks directly while no task is at work.
 *
 * $BANYAN_FABRIC says what worlds in real time run on: "local" or nothing: the memory itself; "tcp"; "unix",
 * whose pools are mapped; "rdma": the NIC that has the address $BANYAN_RDMA_ADDRESS. The test's
 * thread calls all of it. Nothing here is made for speed.
 */
#ifndef SWARM_SERVED_H
#define SWARM_SERVED_H

#include "base/error.h"
#include "fabric/fabric.h"
#include "memory/memory.h"

enum served_way { SERVED_LOCAL, SERVED_TCP, SERVED_UNIX, SERVED_RDMA };
/* Aborts when the variables make no sense: a suite that was to run over a NIC must not run without. */
enum served_way served_way(void);
/* Sets the options that memory nodes need to be served so: their lock width where it is 0, and no more memory
 * than a NIC may lock. */
int served_prepare(enum served_way way, struct memory_options *options, struct error *error);

struct served;
/* Serves nodes[0] to nodes[count - 1], which are numbered so, until served_stop. */
int served_start(struct served **served, enum served_way way, struct memory_node *const *nodes,
                 unsigned count, struct error *error);
/* One more compute node. */
int served_open(struct served *served, struct fabric **fabric, struct error *error);
/* When all fabrics are closed. NULL: does nothing. */
void served_stop(struct served *served);

#endif
