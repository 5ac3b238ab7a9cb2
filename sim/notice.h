/*
 * notice.h - notices (fabric/peers.h): numbers that the home node sends to the compute nodes that are
 * connected to it, one message each; and who listens. Called from the event loop.
 */
#ifndef SIM_NOTICE_H
#define SIM_NOTICE_H

#include <stdint.h>

struct sim;
struct sim_compute;
struct sim_link;
struct sim_notice;

/* The home node sends the number to all. A message that this process has no memory for is lost. */
void sim_notices_send(struct sim *sim, uint64_t number);
/* The event: a notice comes to the compute node. Frees it. */
void sim_notice_arrive(struct sim *sim, struct sim_compute *compute, struct sim_notice *notice);
/* The compute node knows that it has lost its connection to the home node: who listens is told, and again
 * when it has another. */
void sim_notices_home(struct sim *sim, struct sim_link *link);

#endif
