/*
 * world_drain.h - what `banyan balance` does (store/balance.h), by a task of a world: a memory node is
 * emptied or all are evened out, beside all that the other tasks do and that is done to them; and in peace a
 * memory node is emptied while nothing goes wrong, and judged. For the files of a world.
 */
#ifndef SWARM_WORLD_DRAIN_H
#define SWARM_WORLD_DRAIN_H

#include "swarm/world.h"

/* Draws what is done from the dice: mostly a memory node is emptied, and mostly taken back afterwards. A
 * cluster that has no room for it, or one memory node, is left as it is. */
int world_drain_any(struct world_task *task, uint64_t dice);
/* All memory nodes hand out memory again, without a word on the network: faults are over. */
void world_drain_calm(struct world *world);

/*
 * After world_calm, world_revive and world_end_losses: one task empties this memory node while the others
 * work
 * (`work`), then once more while none does, when all have returned the blocks that they hold
 * back. world->setting.patience_ns bounds what an operation waits meanwhile. Then nothing of the index, of
 * its records and of the map lies there, and no worker holds any of it: 0, or the world has failed. Nothing
 * where the others have no room. *done: it was emptied.
 */
int world_drain_judged(struct world *world, uint16_t node,
                       void (*work)(void *context, struct world_task *task), void *context, bool *done);

#endif
