/*
 * disk_simulated.h - a disk of memory whose power is cut: another implementation of disk.h, for tests and
 * simulated clusters. It keeps all that disk.h promises, and nothing more.
 *
 * Besides the bytes that are read it knows those that lie on the platter, and all that was not synced yet:
 * each write's sectors, each change of a file's length, each change of a name. disk_simulated_cut makes of it
 * the disk that the next life finds: of each sector, of each length any one version since the last sync, of
 * the changes of names any, in their order. Sectors that a file's length covers and that were never written
 * back hold zeros, or, with `stale`, what an earlier file had there.
 *
 * With `memory` it is persistent memory (disk_map). What is stored in a mapped file is in lines of a cache,
 * of 64 bytes, each of which may reach the medium at any time; a cut leaves of each aligned 8 bytes any
 * version since the last fence that came behind their flush. A flush alone brings nothing, nor does a fence
 * alone.
 *
 * Everything follows from the seed. One thread, or fibers of one thread. Calls take the time that the options
 * say, by task_sleep, which is virtual time in a simulator's fiber.
 */
#ifndef DISK_DISK_SIMULATED_H
#define DISK_DISK_SIMULATED_H

#include "disk/disk.h"

struct disk_simulated_options {
    uint64_t seed;
    uint64_t capacity; /* bytes of all files; 0: no limit */
    uint64_t limit;    /* as of a real one */
    bool stale, memory;
    uint64_t sync_ns, call_ns; /* a sync, any other call */
};

/* The calls that fail. A write that fails leaves a part; a sync that fails writes back some sectors and
 * forgets that the others were written; one of the names forgets nothing, since file systems keep their own
 * changes in order. */
enum disk_fault { DISK_FAULT_WRITE, DISK_FAULT_SYNC, DISK_FAULT_NAMES, DISK_FAULTS };
#define DISK_FAULT_FOR_EVER UINT32_MAX

/* NULL: no memory. */
struct disk *disk_simulated_create(const struct disk_simulated_options *options);
/* From now on `after` calls of that kind go well, and then `times` fail. */
void disk_simulated_fail(struct disk *disk, enum disk_fault fault, uint32_t after, uint32_t times);
/* As if another process had opened it, in the same boot: nothing is cut, nothing fails any more, and there is
 * room. */
void disk_simulated_restart(struct disk *disk);
/* The room for all files, from now on. */
void disk_simulated_capacity(struct disk *disk, uint64_t capacity);
/* How long calls take from now on. */
void disk_simulated_latency(struct disk *disk, uint64_t sync_ns, uint64_t call_ns);
/* Changes bits of a byte, as it is read and on the platter. BANYAN_ENOTFOUND: there is no such byte. */
int disk_simulated_flip(struct disk *disk, const char *name, uint64_t offset, uint8_t bits);

/* Called behind each call that changes something, before it returns. It may cut, and look at nothing else. */
typedef void disk_simulated_watch_function(void *context, struct disk *disk);
void disk_simulated_watch(struct disk *disk, disk_simulated_watch_function *watch, void *context);

/* A new disk, as a cut at this moment may leave it; drawn from the seed, another one each time. The old disk
 * goes on. NULL: no memory. */
struct disk *disk_simulated_cut(struct disk *disk);
/* A new disk, as it is when the process has been killed at this moment: all that was written is there. */
struct disk *disk_simulated_killed(struct disk *disk);
/* How many different cuts there may be; UINT64_MAX: more than can be counted, or no memory to. */
uint64_t disk_simulated_states(struct disk *disk);
/* The cut with that number, below disk_simulated_states. 0: nothing survives but what was synced; the last:
 * everything does. */
struct disk *disk_simulated_state(struct disk *disk, uint64_t number);
/* Calls that have synced something, or tried to. */
uint64_t disk_simulated_syncs(const struct disk *disk);

#endif
