/*
 * fetch.h - READs whose words are fetched at instants of their own. Called from the event loop.
 */
#ifndef SIM_FETCH_H
#define SIM_FETCH_H

#include "fabric/fabric.h"
#include "sim/queue.h"
#include "sim/sim.h"

struct sim_compute;
struct sim_fetch;

/* A READ within bounds begins: its words are fetched from now to now + window. NULL: no memory, the whole
 * READ has taken place at once. */
struct sim_fetch *sim_fetch_begin(struct sim *sim, const struct sim_compute *compute, uint16_t node,
                                  struct fabric_command *command, uint64_t seed, sim_time window);
/* It ends; `deliver`: the words that are left are fetched. */
void sim_fetch_end(struct sim *sim, struct sim_fetch *fetch, bool deliver);
/* These bytes are about to be changed. */
void sim_fetch_before(struct sim *sim, uint16_t node, const uint8_t *where, uint32_t length);
/* Any byte of the memory node may be about to change; of all memory nodes. */
void sim_fetch_settle(struct sim *sim, uint16_t node);
void sim_fetch_settle_all(struct sim *sim);

#endif
