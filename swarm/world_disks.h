/*
 * world_disks.h - memory nodes of a simulated world that have disks: the product's own journals and rounds
 * (persist/disk.h) on simulated disks, as events of the simulator; what goes wrong with the disks; and the
 * end of a world whose power is cut. For the files of a world (world_parts.h); nothing here does anything in
 * a world without options.disk.
 *
 * A disk's rounds are a fiber of its own, in virtual time, beside the simulator's tasks: it belongs to no
 * compute node. It makes a round each options.disk.round_ns, and as soon as somebody asks. A sync takes about
 * options.disk.sync_ns, now and then ten times that, or a hundred times.
 *
 * JOINS (options.joins). A memory node that is to join has its disk, and its journal, from the beginning, as
 * of a cluster of which it is the last one. It is listed when all members have noted it (JOURNALS), which
 * they do in rounds as well; where a member's disk has failed none joins any more. What is read back in the
 * end are the journals of those that memory node 0's manifest counts.
 *
 * CHECKPOINTS (options.disk.save_ns) are made by a compute node of its own: world_saves.h.
 *
 * POWER. When power is cut, any of the machines lose it. Are they compute nodes alone, they die at that
 * instant, all together. If a memory node is among them the world ends there: of what its disk had not synced
 * any part is left; the others' processes are killed, or end in order, with one more round. Then all journals
 * are opened and read back, over the checkpoint that counts, and judged (world_kept.h). A world that comes to
 * its end ends in the same way. With options.disk.gone one of the disks is lost as well: the other journals
 * are read back (P16).
 */
#ifndef SWARM_WORLD_DISKS_H
#define SWARM_WORLD_DISKS_H

#include "swarm/world.h"
#include "swarm/world_kept.h"

/* The memory nodes are there; they become a cluster with journals. */
int world_disks_build(struct world *world);
/* The simulator is there. */
int world_disks_start(struct world *world);
/* The book; NULL: the world has no disks. */
struct world_kept *world_disks_kept(const struct world *world);
/* No fault any more: disks are fast, and have room. */
void world_disks_calm(struct world *world);
/* One more memory node is to join, as soon as all members have noted it on their disks; if one cannot, none
 * does. */
void world_disks_join(struct world *world);

enum world_disk_fault { WORLD_DISK_SLOW, WORLD_DISK_FULL, WORLD_DISK_FAILS };
/* Something goes wrong with one of the disks: it is slow, or full, for `ns`, or a write or a sync fails. */
void world_disks_fault(struct world *world, enum world_disk_fault fault, uint64_t ns);

/* Power is cut after so many events of the simulator from now on, if the run under way lasts as long.
 * `whole`: memory nodes lose it. */
void world_power_cut_at(struct world *world, uint64_t events, bool whole);
/* The run under way has stopped since its events were used up: whether that is such a cut. True: the world
 * has ended. False: the run may go on, if *again. */
bool world_power_cut(struct world *world, bool *again);
/* The run is over before that: whether memory nodes were to lose power. It is called off. */
bool world_power_missed(struct world *world);
/* At the end of a world that has lived until now. */
void world_power_off(struct world *world);
/* Behind either: reads back and judges. 0, or the world has failed. */
int world_power_judge(struct world *world);
void world_disks_free(struct world *world);

struct world_disks_met {
    uint64_t rounds, failed, persists; /* rounds that ended well, and not; calls */
    uint64_t cuts, off, gone;          /* of power; memory nodes that lost it, or their disk */
    uint64_t joined;                   /* memory nodes, of which all members have noted that */
    uint64_t saved, saved_beside;      /* checkpoints that were made; those while a memory node joined */
    uint64_t over;                     /* worlds that were read back over a checkpoint */
    struct world_kept_met kept;
};
void world_disks_met(const struct world *world, struct world_disks_met *met);

#endif
