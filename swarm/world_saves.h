/*
 * world_saves.h - a compute node of a simulated world with disks that makes checkpoints of the whole cluster
 * (save/save.h), again and again until world_calm: the product's own code, beside the load, as `banyan save`
 * makes them. For the files of a world (world_parts.h); there is none without options.disk.save_ns.
 *
 * It is the last of the compute nodes that a world begins with. It opens no index, has no range, keeps no
 * log, and its tasks do none of the work. It may die like the others; what takes its place is a compute node
 * like the others, and makes none. A checkpoint that cannot be made is no failure of the world: its
 * connections are lost, disks fail, memory nodes join while it is prepared. What those that count are good
 * for is judged when all is read back (world_disks.h).
 */
#ifndef SWARM_WORLD_SAVES_H
#define SWARM_WORLD_SAVES_H

#include "swarm/world_ranges.h"

/* Whether the compute node is that one. */
static inline bool world_saves_by(const struct world *world, unsigned compute)
{
    return world->options.disk.save_ns && compute + 1 == world->options.compute_nodes;
}
/* How many compute nodes open the index when the world begins. */
static inline unsigned world_openers(const struct world *world)
{
    return world->options.compute_nodes - (world->options.disk.save_ns > 0);
}
/* Its task: returns when the faults have stopped and the checkpoint under way has come to its end. */
void world_saves_make(struct world_keeper *keeper);

#endif
