/* plan_fields.c - the fields of a plan as tables of names and ranges (contract: plan.h, plan_fields.h). */
#include "swarm/plan_fields.h"

#include "swarm/world.h"

const char *const swarm_plan_key_kinds[] = {"fixed", "variable", NULL};

static const char *const patterns[] = {"window", "uniform", "tide", "patch", NULL};

const char *const swarm_plan_disks[] = {"none", "second", "always", NULL};

#define FIELD(name) offsetof(struct swarm_plan, name)

#define ENTRY(name, kind, field, minimum, maximum, choices, unit, help)                                      \
    {                                                                                                        \
        name, kind, FIELD(field), minimum, maximum, choices, unit, help                                      \
    }

const struct option_entry swarm_plan_table[] = {
    ENTRY("seed", OPTION_U64, seed, 0, 0, NULL, NULL, "what everything random in the run comes from"),
    ENTRY("dice", OPTION_U64, dice, 0, 0, NULL, NULL,
          "other luck in network and faults with the same workload; 0: the seed's own"),
    ENTRY("memory-nodes", OPTION_U32, memory_nodes, 1, WORLD_MEMORY_MAX, NULL, NULL, "memory nodes"),
    ENTRY("compute-nodes", OPTION_U32, compute_nodes, 1, 8, NULL, NULL, "compute nodes"),
    ENTRY("threads", OPTION_U32, threads, 1, 8, NULL, NULL, "threads of each compute node"),
    ENTRY("fibers", OPTION_U32, fibers, 1, 64, NULL, NULL, "tasks of each thread"),
    ENTRY("pool-bytes", OPTION_U64, pool_bytes, 1 << 16, 1 << 30, NULL, "bytes", "of each memory node"),
    ENTRY("chunk-bytes", OPTION_U64, chunk_bytes, 0, 0, NULL, "bytes", "that the pool is handed out in"),
    ENTRY("lock-bytes", OPTION_U64, lock_bytes, 0, 0, NULL, "bytes",
          "of locks in each memory node; 0: its default"),
    ENTRY("unlock-by-atomic", OPTION_BOOL, unlock_by_atomic, 0, 0, NULL, NULL,
          "the NIC does not promise that a WRITE may release a lock"),
    ENTRY("records", OPTION_BOOL, records, 0, 0, NULL, NULL,
          "a store above the index, with values of any size"),
    ENTRY("key-kind", OPTION_CHOICE, key_kind, 0, 0, swarm_plan_key_kinds, NULL,
          "keys of one length or of any"),
    ENTRY("key-bytes", OPTION_U32, key_bytes, 8, 255, NULL, "bytes", "of keys, or at most"),
    ENTRY("inline-key-bytes", OPTION_U32, inline_key_bytes, 0, 255, NULL, "bytes",
          "longest remainder kept in a slot"),
    ENTRY("value-bytes", OPTION_U32, value_bytes, 8, 255, NULL, "bytes", "of values, or at most"),
    ENTRY("value-variable", OPTION_BOOL, value_variable, 0, 0, NULL, NULL, "values of any length up to that"),
    ENTRY("long-keys", OPTION_BOOL, long_keys, 0, 0, NULL, NULL, "a third of the keys are long"),
    ENTRY("leaf-bytes", OPTION_U32, leaf_bytes, 0, 65536, NULL, "bytes", "of a leaf; 0: the default"),
    ENTRY("leaf-kind", OPTION_CHOICE, leaf_kind, 0, 0, format_leaf_kind_names, NULL,
          "an entry goes to the bucket of its key, to any slot of its leaf, or to one of fewer buckets"),
    ENTRY("internal-bytes", OPTION_U32, internal_bytes, 0, 4096, NULL, "bytes",
          "of an internal node; 0: the default"),
    ENTRY("subtree-levels", OPTION_U32, subtree_levels, 0, 7, NULL, NULL,
          "of subtrees that lie on one memory node; 0: nodes are spread"),
    ENTRY("walk-busy", OPTION_U32, walk_busy, 0, 100, NULL, "percent",
          "of walks that memory nodes turn away"),
    ENTRY("walk-aged", OPTION_U32, walk_aged, 0, 100, NULL, "percent",
          "of walks that take their time: their first nodes are older than the rest"),
    ENTRY("kills", OPTION_U32, kills, 0, 100, NULL, NULL, "compute nodes that die"),
    ENTRY("kill-at-effect", OPTION_BOOL, kill_at_effect, 0, 0, NULL, NULL,
          "they die between two commands of a list, else at any instant"),
    ENTRY("restarts", OPTION_U32, restarts, 0, 16, NULL, NULL,
          "dead compute nodes that are replaced, at most"),
    ENTRY("stalls", OPTION_U32, stalls, 0, 100, NULL, NULL,
          "compute nodes that stand still, some past their lease"),
    ENTRY("cuts", OPTION_U32, cuts, 0, 100, NULL, NULL, "connections that are cut"),
    ENTRY("joins", OPTION_U32, joins, 0, 7, NULL, NULL,
          "memory nodes that join while all goes on: the last of them"),
    ENTRY("refusals", OPTION_U32, refusals, 0, 100, NULL, NULL,
          "times that a memory node refuses to hand out memory"),
    ENTRY("ranges", OPTION_BOOL, ranges, 0, 0, NULL, NULL, "compute nodes divide the key ranges among them"),
    ENTRY("log", OPTION_BOOL, log, 0, 0, NULL, NULL, "with ranges: owners keep logs, and merge them"),
    ENTRY("mergers", OPTION_U32, mergers, 1, 3, NULL, NULL, "tasks that merge such a log"),
    ENTRY("change-ns", OPTION_U64, change_ns, 0, 1e12, NULL, "ns",
          "each compute node changes who owns what so often; 0: never"),
    ENTRY("disk", OPTION_CHOICE, disk, 0, 0, swarm_plan_disks, NULL,
          "memory nodes copy owners' logs to disks; power is cut, and the disks are read back"),
    ENTRY("disk-round-ns", OPTION_U64, disk_round_ns, 1000, 1e12, NULL, "ns", "a disk is synced so often"),
    ENTRY("disk-sync-ns", OPTION_U64, disk_sync_ns, 1000, 1e9, NULL, "ns", "a sync takes about so long"),
    ENTRY("disk-slow", OPTION_DOUBLE, disk_slow, 0, 1, NULL, NULL,
          "probability that a sync takes ten times that"),
    ENTRY("disk-spells", OPTION_U32, disk_spells, 0, 100, NULL, NULL,
          "times that a disk is slow for a while"),
    ENTRY("disk-fulls", OPTION_U32, disk_fulls, 0, 100, NULL, NULL, "times that a disk is full for a while"),
    ENTRY("disk-fails", OPTION_BOOL, disk_fails, 0, 0, NULL, NULL,
          "a write or a sync of a disk fails, and power is cut soon"),
    ENTRY("disk-gone", OPTION_BOOL, disk_gone, 0, 0, NULL, NULL,
          "with disk = always and several memory nodes: one of the disks is gone when power is cut"),
    ENTRY("disk-save-ns", OPTION_U64, disk_save_ns, 0, 1e12, NULL, "ns",
          "with disks: a compute node more makes a checkpoint of all so often; 0: there is none"),
    ENTRY("power-rounds", OPTION_U32, power_rounds, 0, 4e9, NULL, NULL,
          "power is cut when the tasks have done so many together; 0: at the end"),
    ENTRY("power-events", OPTION_U32, power_events, 0, 4e9, NULL, NULL, "... and so many events later"),
    ENTRY("span-ns", OPTION_U64, span_ns, 1000, 1e12, NULL, "ns",
          "virtual time within which these things happen"),
    ENTRY("keys", OPTION_U64, keys, 40, 1e6, NULL, NULL, "the key space"),
    ENTRY("window", OPTION_U64, window, 1, 1e6, NULL, NULL, "keys in the moving window"),
    ENTRY("pattern", OPTION_CHOICE, pattern, 0, 0, patterns, NULL,
          "what happens in the changing part of the keys"),
    ENTRY("rounds", OPTION_U32, rounds, 1, 1e6, NULL, NULL, "operations of each task"),
    ENTRY("hot", OPTION_U32, hot, 0, 100, NULL, "%", "operations on four hot keys"),
    ENTRY("scans", OPTION_U32, scans, 0, 100, NULL, "%", "operations that are scans"),
    ENTRY("multis", OPTION_U32, multis, 0, 100, NULL, "%", "operations on many keys at once"),
    ENTRY("moves", OPTION_U32, moves, 0, 100, NULL, "%", "operations that move records and keys elsewhere"),
    ENTRY("merges", OPTION_U32, merges, 0, 100, NULL, "%", "rounds that merge sparse leaves instead"),
    ENTRY("node-moves", OPTION_U32, node_moves, 0, 100, NULL, "%",
          "rounds that move a node to another memory node instead"),
    ENTRY(
        "drains", OPTION_U32, drains, 0, 100, NULL, NULL,
        "times that a task empties a memory node or evens all out; then one is emptied in peace, and judged"),
    ENTRY("disjoint", OPTION_BOOL, disjoint, 0, 0, NULL, NULL, "each task writes keys of its own only"),
    ENTRY("patience-ns", OPTION_U64, patience_ns, 0, 0, NULL, "ns",
          "longest operation once the faults have stopped"),
    ENTRY("events", OPTION_U64, events, 1000, 1e15, NULL, NULL,
          "of the simulator, in one phase of the run, at most"),
    ENTRY("skip", OPTION_TEXT, skip, 0, 0, NULL, NULL, "rounds left out: task:from-to task:from-to ..."),
    {.name = NULL, .kind = OPTION_END},
};

const struct swarm_plan_part swarm_plan_parts[SWARM_PLAN_PARTS] = {
    {swarm_plan_table, 0},
    {tree_switches_table, FIELD(switches)},
    {sim_faults_table, FIELD(faults)},
    {sim_params_table, FIELD(params)},
};

int swarm_plan_set(struct swarm_plan *plan, const char *name, const char *value, struct error *error)
{
    for (size_t i = 0; i < SWARM_PLAN_PARTS; i++) {
        const struct swarm_plan_part *part = &swarm_plan_parts[i];
        if (option_find(part->table, name))
            return option_set(part->table, (char *)plan + part->offset, name, value, error);
    }
    return error_set(error, BANYAN_EINVAL, "a plan has no field '%.40s'; 'banyan sim --fields' lists them",
                     name);
}
