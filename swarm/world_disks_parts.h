/*
 * world_disks_parts.h - the disks of a simulated world as their two files know them: world_disks.c, and
 * world_power.c, which cuts their power.
 */
#ifndef SWARM_WORLD_DISKS_PARTS_H
#define SWARM_WORLD_DISKS_PARTS_H

#include "base/fiber.h"
#include "base/task.h"
#include "disk/disk_simulated.h"
#include "persist/disk.h"
#include "swarm/world_disks.h"

#define WORLD_DISK_CLUSTER UINT64_C(0xd15c)

struct world_disk {
    struct task task; /* of its fiber; first */
    struct world_disks *disks;
    unsigned number;              /* of its memory node */
    struct disk *disk;            /* owned */
    struct disk *left;            /* owned: what the next life finds; NULL: there is power */
    struct persist_disk *service; /* owned */
    struct fiber *fiber;          /* owned; NULL: it has ended */
    struct random random;
    uint64_t token; /* of its directory */
    bool registered;
    bool gone;      /* the disk is lost: nothing is left of it */
    bool idle;      /* it waits for the next round, or for somebody to ask */
    bool asked;     /* somebody has */
    bool hurries;   /* it is to end, and takes no time */
    uint64_t until; /* what it waits for */
    uint64_t syncs; /* rounds that had ended well */
    uint64_t slow_until, full_until, full_bytes;
};

struct world_disks {
    struct world *world;
    struct world_disk each[WORLD_MEMORY_MAX];
    struct world_kept *kept; /* owned */
    struct random random;
    unsigned members;      /* memory nodes that there have been: the others are to join */
    unsigned joining;      /* the number of one that joins; 0: none does */
    unsigned joins_wanted; /* others after it */
    bool listed;           /* it is one of them by now */
    bool calm;
    bool cut_due, whole; /* power is cut when the run's events are used up; of memory nodes too */
    struct world_disks_met met;
};

void world_disk_round(struct world_disk *disk);
/* Its fiber ends, behind the round under way. Then its service ends. */
void world_disk_finish(struct world_disk *disk);
void world_disk_close(struct world_disk *disk);

#endif
