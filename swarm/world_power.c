/* world_power.c - see world_disks.h: power is cut, and what is left is read back. */
#include <inttypes.h>

#include "disk/manifest.h"
#include "swarm/world_disks_parts.h"
#include "swarm/world_parts.h"

void world_power_cut_at(struct world *world, uint64_t events, bool whole)
{
    struct world_disks *disks = world->disks;
    if (!disks || world->off || (disks->cut_due && !whole))
        return;
    disks->cut_due = true;
    disks->whole = disks->whole || whole;
    sim_limit_events(world->sim, events + 1);
}

/* ---- who loses it ---- */

/* Any of the compute nodes die together, perhaps for others to take their places. */
static void computes_die(struct world *world)
{
    struct random *random = &world->disks->random;
    const uint64_t lease = world->options.faults.lease_ns;
    const unsigned count = world->compute_count;
    for (unsigned i = 0; i < count; i++) {
        if (!sim_compute_alive(world->sim, (int)i) || random_chance(random, 0.4))
            continue;
        world_kill_at(world, i, 0, lease);
        world_restart_at(world, i, lease + random_below(random, 2 * lease + 1));
    }
}

/* What the next life finds of a disk whose power is cut; of one whose process is killed. NULL: the memory
 * node ends in order. */
static struct disk *disk_left(struct world_disk *disk, bool cut)
{
    struct random *random = &disk->disks->random;
    if (cut && random_chance(random, 0.2))
        return disk_simulated_state(disk->disk, 0);
    if (cut)
        return disk_simulated_cut(disk->disk);
    return random_chance(random, 0.5) ? disk_simulated_killed(disk->disk) : NULL;
}

static void everybody_ends(struct world *world)
{
    world->off = true;
    for (unsigned i = 0; i < world->compute_count; i++) {
        sim_kill_compute(world->sim, (int)i, 1, NULL, NULL);
        world->computes[i].dead = true;
    }
}

/* One of the disks is lost, with all that is on it. */
static void disk_lose(struct world_disks *disks)
{
    const struct world_options *options = &disks->world->options;
    if (!options->disk.gone || options->disk.level != WORLD_DISK_ALWAYS || options->memory_nodes < 2)
        return;
    struct world_disk *disk = &disks->each[random_below(&disks->random, options->memory_nodes)];
    disk_close(disk->left);
    disk->left = NULL;
    disk->gone = true;
    disks->met.gone++;
}

void world_power_off(struct world *world)
{
    struct world_disks *disks = world->disks;
    const unsigned count = world->options.memory_nodes;
    const uint64_t sure = random_below(&disks->random, count); /* at least this one */
    everybody_ends(world);
    disks->met.cuts++;
    for (unsigned i = 0; i < count; i++) {
        struct world_disk *disk = &disks->each[i];
        const bool cut = i == sure || random_chance(&disks->random, 0.5);
        disks->met.off += cut;
        disk->left = disk_left(disk, cut);
        world_disk_finish(disk);
        if (!disk->left)
            world_disk_round(disk);
        world_disk_close(disk);
        if (!disk->left) {
            disk->left = disk->disk;
            disk->disk = NULL;
        }
    }
    disk_lose(disks);
}

bool world_power_cut(struct world *world, bool *again)
{
    struct world_disks *disks = world->disks;
    *again = false;
    if (!disks || !disks->cut_due)
        return false;
    disks->cut_due = false;
    sim_limit_events(world->sim, world->options.events_max);
    const bool compute = random_chance(&disks->random, 0.25);
    /* Others take their places; in peace nobody dies (world_calm). */
    if (compute && !disks->whole && world->function && !disks->calm) {
        disks->met.cuts++;
        computes_die(world);
        *again = true;
        return false;
    }
    world_power_off(world);
    return true;
}

bool world_power_missed(struct world *world)
{
    struct world_disks *disks = world->disks;
    const bool missed = disks && disks->cut_due && disks->whole;
    if (disks)
        disks->cut_due = disks->whole = false;
    return missed;
}

/* ---- what is left ---- */

/* As the turn-th of them. */
static int journal_read(struct world_disk *disk, struct persist_replay *replay, uint16_t turn,
                        struct journal **journal, struct error *error)
{
    struct manifest manifest;
    struct journal_reader reader = {.visit = persist_replay_record, .context = replay};
    int status = manifest_read(disk->left, &manifest, error);
    if (status)
        return status;
    const struct journal_options options = {.cluster = manifest.cluster,
                                            .node = manifest.node,
                                            .from = manifest.position,
                                            .seed = 1 + random_next(&disk->random) / 2};
    manifest_free(&manifest);
    persist_replay_next(replay, turn);
    return journal_open(journal, disk->left, &options, &reader, error);
}

/* The disks that are left, by their numbers: their machines have power again. */
static unsigned disks_left(struct world_disks *disks, struct world_disk **all, struct disk **left)
{
    unsigned count = 0;
    for (unsigned i = 0; i < disks->world->options.memory_nodes; i++) {
        struct world_disk *disk = &disks->each[i];
        if (disk->gone)
            continue;
        all[count] = disk;
        left[count++] = disk->left;
        if (!disk->left)
            world_fail(disks->world, BANYAN_ENOMEM, "no memory for what is left of a disk");
        else
            disk_simulated_restart(disk->left);
        if (disk->left)
            disk_simulated_latency(disk->left, 0, 0);
    }
    return count;
}

static void tell_lost(const struct world_disks *disks, struct persist_replay *replay)
{
    bool gone[WORLD_MEMORY_MAX];
    for (unsigned i = 0; i < WORLD_MEMORY_MAX; i++)
        gone[i] = disks->each[i].gone;
    persist_replay_lost(replay, gone, WORLD_MEMORY_MAX);
}

/* Opens all journals; judges them, unless power is cut once more behind the opening. */
static int read_back(struct world_disks *disks, bool cut_again)
{
    struct world *world = disks->world;
    struct world_disk *all[WORLD_MEMORY_MAX];
    struct disk *left[WORLD_MEMORY_MAX] = {NULL};
    struct journal *journals[WORLD_MEMORY_MAX] = {NULL};
    struct persist_replay *replay;
    struct error error = {0};
    const unsigned count = disks_left(disks, all, left);
    if (world->error.code)
        return world->error.code;
    int status = persist_replay_create(&replay, left, (uint16_t)count, &error);
    if (!status)
        tell_lost(disks, replay);
    for (unsigned i = 0; i < count && !status; i++)
        status = journal_read(all[i], replay, (uint16_t)i, &journals[i], &error);
    if (status)
        world_fail(world, status, "power: the journals cannot be read: %s", error.text);
    else if (!cut_again)
        status = world_kept_judge(disks->kept, replay, disks->met.gone > 0, &disks->met.kept);
    persist_replay_destroy(replay);
    for (unsigned i = 0; i < count; i++)
        journal_close(journals[i]);
    return status;
}

int world_power_judge(struct world *world)
{
    struct world_disks *disks = world->disks;
    int status = 0;
    if (random_chance(&disks->random, 0.3)) {
        status = read_back(disks, true);
        for (unsigned i = 0; i < world->options.memory_nodes && !status; i++) {
            struct disk *cut = disks->each[i].gone ? NULL : disk_simulated_cut(disks->each[i].left);
            disk_close(disks->each[i].left);
            disks->each[i].left = cut;
        }
    }
    return status ? status : read_back(disks, false);
}
