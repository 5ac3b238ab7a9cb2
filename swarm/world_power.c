/* world_power.c - see world_disks.h: power is cut, and what is left is read back. */
#include <inttypes.h>

#include "disk/manifest.h"
#include "persist/checkpoint.h"
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

/* How many memory nodes a recovery asks for: as memory node 0 says, or, where its disk is lost, the others
 * that are given (`banyan recover`). Those that had not joined are none of them, by memory node 0. */
static unsigned nodes_wanted(struct world_disks *disks)
{
    unsigned wanted = 0;
    struct error error = {0};
    for (unsigned i = 0; i < disks->world->options.memory_nodes; i++) {
        struct manifest manifest;
        if (disks->each[i].gone)
            continue;
        int status = manifest_read(disks->each[i].left, &manifest, &error);
        if (status)
            world_fail(disks->world, status, "power: a manifest cannot be read: %s", error.text);
        if (status)
            return 0;
        wanted = manifest.nodes > wanted ? manifest.nodes : wanted;
        manifest_free(&manifest);
        if (i == 0)
            break;
    }
    return wanted;
}

/* The disks that are left, by their numbers: their machines have power again. */
static unsigned disks_left(struct world_disks *disks, struct world_disk **all, struct disk **left)
{
    const unsigned most = disks->world->options.memory_nodes;
    unsigned count = 0;
    for (unsigned i = 0; i < most; i++) {
        struct world_disk *disk = &disks->each[i];
        if (disk->gone)
            continue;
        if (!disk->left) {
            world_fail(disks->world, BANYAN_ENOMEM, "no memory for what is left of a disk");
            return 0;
        }
        disk_simulated_restart(disk->left);
        disk_simulated_latency(disk->left, 0, 0);
    }
    const unsigned wanted = nodes_wanted(disks);
    for (unsigned i = 0; i < most && i < wanted; i++)
        if (!disks->each[i].gone) {
            all[count] = &disks->each[i];
            left[count++] = disks->each[i].left;
        }
    return count;
}

/* No directory that is read is refused for what another one has noted of its memory node. */
static int notes_check(struct world_disks *disks, struct world_disk *const *all, unsigned count)
{
    struct error error = {0};
    struct manifest manifest;
    int status = 0;
    for (unsigned i = 0; i < count && !status; i++) {
        status = manifest_read(all[i]->left, &manifest, &error);
        if (status)
            return world_fail(disks->world, status, "power: a manifest cannot be read: %s", error.text);
        for (unsigned j = 0; j < count && !status; j++)
            if (manifest_join_denies(&manifest.joins[all[j]->number], all[j]->token, !all[i]->number))
                status =
                    world_fail(disks->world, BANYAN_ECORRUPT,
                               "power: memory node %u has noted that the directory of %u is another one's",
                               all[i]->number, all[j]->number);
        manifest_free(&manifest);
    }
    return status;
}

/* What the directories say of checkpoints (P13), by which one is chosen, and whether all that it takes is
 * there. NULL, with 0: none counts. */
static int checkpoint_open(struct world_disks *disks, struct world_disk *const *all, unsigned count,
                           struct persist_checkpoint **checkpoint, struct error *error)
{
    struct persist_checkpoint_claim claims[WORLD_MEMORY_MAX] = {{0}};
    struct disk *numbered[WORLD_MEMORY_MAX] = {NULL};
    *checkpoint = NULL;
    for (unsigned i = 0; i < count; i++) {
        struct manifest manifest, prepared;
        int status = manifest_read(all[i]->left, &manifest, error);
        if (status)
            return status;
        numbered[all[i]->number] = all[i]->left;
        claims[i] = (struct persist_checkpoint_claim){
            .there = true, .node = all[i]->number, .committed = manifest.checkpoint};
        status = manifest_read_prepared(all[i]->left, &manifest, &prepared, error);
        manifest_free(&manifest);
        if (status && status != BANYAN_ENOTFOUND)
            return status;
        if (status)
            continue;
        claims[i].prepared = prepared.checkpoint;
        manifest_free(&prepared);
    }
    const struct persist_checkpoint_source source = {.number =
                                                         persist_checkpoint_choose(claims, (uint16_t)count),
                                                     .disks = numbered,
                                                     .count = WORLD_MEMORY_MAX,
                                                     .claims = claims,
                                                     .claim_count = (uint16_t)count};
    return source.number ? persist_checkpoint_open(checkpoint, &source, error) : 0;
}

/* Whoever reads back needs the journal of each memory node that is there, and says of none that it had left
 * before the checkpoint, but of the one that has. */
static int members_check(struct world_disks *disks, struct world_disk *const *all, unsigned count,
                         const struct persist_table *table)
{
    const struct world *world = disks->world;
    for (unsigned i = 0; i < count; i++)
        if (persist_table_left(table, all[i]->number) && all[i]->number != world->removed)
            return world_fail(disks->world, BANYAN_ECORRUPT,
                              "power: the checkpoint says that memory node %u had left", all[i]->number);
    return 0;
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
    struct persist_checkpoint *checkpoint;
    struct persist_replay *replay = NULL;
    struct error error = {0};
    const unsigned count = disks_left(disks, all, left);
    if (world->error.code || notes_check(disks, all, count))
        return world->error.code;
    int status = checkpoint_open(disks, all, count, &checkpoint, &error);
    if (!status)
        status = persist_replay_create(&replay, left, (uint16_t)count, &error);
    if (!status)
        tell_lost(disks, replay);
    if (!status && checkpoint)
        status = members_check(disks, all, count, persist_checkpoint_table(checkpoint));
    disks->met.over += checkpoint && !cut_again;
    if (!status && checkpoint)
        persist_replay_over(replay, persist_checkpoint_table(checkpoint));
    for (unsigned i = 0; i < count && !status; i++)
        status = journal_read(all[i], replay, (uint16_t)i, &journals[i], &error);
    if (status)
        world_fail(world, status, "power: what is on the disks cannot be read: %s", error.text);
    else if (!cut_again)
        status = world_kept_judge(disks->kept, checkpoint, replay, disks->met.gone > 0, &disks->met.kept);
    persist_checkpoint_close(checkpoint);
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
