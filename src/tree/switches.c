/*
 * switches.c - The switches of tree.h as an option table, and the paper's steps as presets of them.
 */
#include "tree/tree.h"

#include <stddef.h>
#include <string.h>

#include "format/header.h"

static const char *const combine_choices[] = {"off", "writes", "all", NULL};
static const char *const region_choices[] = {"onchip", "dram", NULL};
static const char *const release_choices[] = {"write", "faa", NULL};
static const char *const write_choices[] = {"slot", "node", NULL};
static const char *const read_choices[] = {"bucket", "leaf", NULL};
const char *const tree_cache_policies[] = {"inner", "dex", "dinomo", "banyan", NULL};
const char *const tree_walks_shares[] = {"auto", NULL}; /* TREE_WALKS_AUTO */
static const char *const ownership_choices[] = {"off", "all", NULL};

#define FIELD(name) offsetof(struct tree_switches, name)

const struct option_entry tree_switches_table[] = {
    {"combine", OPTION_CHOICE, FIELD(combine), 0, 0, combine_choices, NULL,
     "command combination: off, writes (write-back and unlock in one list: Sherman §4.5), all (lock and read "
     "too)"},
    {"lock-region", OPTION_CHOICE, FIELD(lock_region), 0, 0, region_choices, NULL,
     "where the global locks lie: onchip (the NIC's memory: Sherman §4.3) or dram (the memory node's)"},
    {"release", OPTION_CHOICE, FIELD(release), 0, 0, release_choices, NULL,
     "what frees a global lock: write (a WRITE of 0, or a CAS where the fabric does not promise that to be "
     "safe) or faa (an RDMA_FAA that takes the owner's id off: Sherman §3.1)"},
    {"local-locks", OPTION_BOOL, FIELD(local_locks), 0, 0, NULL, NULL,
     "a local lock with a first-come-first-served queue before each global one (Sherman §4.3)"},
    {"handover", OPTION_U32, FIELD(handover), 0, 1000000, NULL, NULL,
     "how often in a row a lock may pass to the next waiter of the same compute node (Sherman: 4; 0: never)"},
    {"snapshot", OPTION_BOOL, FIELD(snapshot), 0, 0, NULL, NULL,
     "hand the leaf's content over with the lock, so that the next holder need not read it"},
    {"delegate", OPTION_BOOL, FIELD(delegate), 0, 0, NULL, NULL,
     "a write that finds its leaf locked by another task of its compute node leaves its operation in the "
     "lock's queue, and the holder does it with its own (flat combining)"},
    {"write-unit", OPTION_CHOICE, FIELD(write_unit), 0, 0, write_choices, NULL,
     "what a change of one entry writes back: its slot (Sherman §4.4) or the whole node"},
    {"read-unit", OPTION_CHOICE, FIELD(read_unit), 0, 0, read_choices, NULL,
     "what a point read fetches: a bucket with its overflow, or the whole leaf"},
    {"node-check", OPTION_BOOL, FIELD(node_check), 0, 0, NULL, NULL,
     "one checksum over a leaf, as in FG (Sherman §3.1): a point read that fetches a whole leaf (read-unit "
     "leaf) checks all of it, and reads it again if any part does not fit; the simulator charges the CPU for "
     "a checksum of each leaf that is read or written as a whole"},
    {"cache-bytes", OPTION_U64, FIELD(cache_bytes), 0, 0, NULL, "bytes",
     "room for what one compute node caches of an index: internal nodes, and leaves and entries of ranges "
     "that it owns"},
    {"cache-lowest", OPTION_U32, FIELD(cache_lowest), 0, FORMAT_LEVEL_MAX, NULL, NULL,
     "the lowest level of internal nodes that is cached, counted from 1 right above the leaves; what lies "
     "below is read by each operation anew (Cell §4: 4, so that a small tree behaves as a much larger one "
     "would); 0 and 1: all are cached"},
    {"cache-policy", OPTION_CHOICE, FIELD(cache_policy), 0, 0, tree_cache_policies, NULL,
     "what is cached of owned ranges: inner (internal nodes only), dex (leaves too: DEX §5), dinomo (entries "
     "too: Dinomo §3.3) or banyan (leaves and entries, by the round trips that they save)"},
    {"admission", OPTION_DOUBLE, FIELD(admission), 0, 1, NULL, NULL,
     "cache-policy dex: how likely a leaf that was fetched is cached (DEX §5.4: 0.1)"},
    {"shortcuts-only", OPTION_BOOL, FIELD(shortcuts_only), 0, 0, NULL, NULL,
     "cache policies dinomo and banyan: values that need a round trip more than their place does are not "
     "cached, only where they are (Dinomo-S)"},
    {"ownership", OPTION_CHOICE, FIELD(ownership), 0, 0, ownership_choices, NULL,
     "whether this process has the right to all leaves of the indexes that it opens, and so takes no global "
     "locks for them: off, or all, which is right only where no other process uses the pool"},
    {"walks", OPTION_SHARE, FIELD(walks), 0, 100, tree_walks_shares, "auto|never|always|PERCENT",
     "ways whose levels are not cached are left to the memory node's CPU: never, always, so many percent of "
     "them, or auto, as it pays by what both ways took of late (Cell §2.5, DEX §6.1)"},
    {"merge-walks", OPTION_SHARE, FIELD(merge_walks), 0, 100, tree_walks_shares, "auto|never|always|PERCENT",
     "what an owner has logged is put into its leaves by the memory node's CPU (Dinomo §3.2): never, always, "
     "so "
     "many percent of it, or auto, as it pays by what both ways took of late"},
    {"exchange-walks", OPTION_SHARE, FIELD(exchange_walks), 0, 100, tree_walks_shares,
     "auto|never|always|PERCENT",
     "a change of a key whose leaf alone is not cached, in an owned range that is not logged, is made by the "
     "memory node's CPU (DEX §6): never, always, so many percent of them, or auto, as it pays by what both "
     "ways "
     "took of late"},
    {NULL, OPTION_END, 0, 0, 0, NULL, NULL, NULL},
};

struct preset {
    const char *name;
    int combine, region, release;
    bool local;
    uint32_t handover;
    bool snapshot, delegate;
    int write, read;
    bool check;
    enum format_leaf_kind leaf;
    int policy; /* enum tree_cache_policy */
};

/* FG as Sherman's Table 1 has it (§3.1), FG+ as its evaluation has it (§5.1: with an index cache, and locks
 * released by a WRITE, and nothing else changed); then each step of the ablation (§5.2) adds one technique to
 * the one before. The last of them, versions of two levels, replaces FG's checksum over the node. Leaves of
 * FG and Sherman split when they are full, and not before (docs/benchmarks.md, What the baseline is). */
static const struct preset presets[] = {
    {"fg", POOL_COMBINE_OFF, TREE_LOCKS_DRAM, TREE_RELEASE_FAA, false, 0, false, false, TREE_WRITE_NODE,
     TREE_READ_LEAF, true, FORMAT_LEAF_UNSORTED, TREE_CACHE_INNER},
    {"fg+", POOL_COMBINE_OFF, TREE_LOCKS_DRAM, TREE_RELEASE_WRITE, false, 0, false, false, TREE_WRITE_NODE,
     TREE_READ_LEAF, true, FORMAT_LEAF_UNSORTED, TREE_CACHE_INNER},
    {"+combine", POOL_COMBINE_WRITES, TREE_LOCKS_DRAM, TREE_RELEASE_WRITE, false, 0, false, false,
     TREE_WRITE_NODE, TREE_READ_LEAF, true, FORMAT_LEAF_UNSORTED, TREE_CACHE_INNER},
    {"+onchip", POOL_COMBINE_WRITES, TREE_LOCKS_ONCHIP, TREE_RELEASE_WRITE, false, 0, false, false,
     TREE_WRITE_NODE, TREE_READ_LEAF, true, FORMAT_LEAF_UNSORTED, TREE_CACHE_INNER},
    {"+hierarchical", POOL_COMBINE_WRITES, TREE_LOCKS_ONCHIP, TREE_RELEASE_WRITE, true, 4, false, false,
     TREE_WRITE_NODE, TREE_READ_LEAF, true, FORMAT_LEAF_UNSORTED, TREE_CACHE_INNER},
    {"sherman", POOL_COMBINE_WRITES, TREE_LOCKS_ONCHIP, TREE_RELEASE_WRITE, true, 4, false, false,
     TREE_WRITE_SLOT, TREE_READ_LEAF, false, FORMAT_LEAF_UNSORTED, TREE_CACHE_INNER},
    {"banyan", POOL_COMBINE_ALL, TREE_LOCKS_ONCHIP, TREE_RELEASE_WRITE, true, 4, true, true, TREE_WRITE_SLOT,
     TREE_READ_BUCKET, false, FORMAT_LEAF_HASHED, TREE_CACHE_BANYAN},
};
#define PRESETS (sizeof presets / sizeof *presets)

const char *const tree_switches_presets[] = {"fg",      "fg+",    "+combine", "+onchip", "+hierarchical",
                                             "sherman", "banyan", NULL};

enum format_leaf_kind tree_switches_leaf(const char *name)
{
    for (size_t i = 0; i < PRESETS; i++)
        if (!strcmp(presets[i].name, name))
            return presets[i].leaf;
    return FORMAT_LEAF_HASHED;
}

int tree_switches_preset(struct tree_switches *switches, const char *name, struct error *error)
{
    for (size_t i = 0; i < PRESETS; i++) {
        if (strcmp(presets[i].name, name))
            continue;
        switches->combine = presets[i].combine;
        switches->lock_region = presets[i].region;
        switches->release = presets[i].release;
        switches->local_locks = presets[i].local;
        switches->handover = presets[i].handover;
        switches->snapshot = presets[i].snapshot;
        switches->delegate = presets[i].delegate;
        switches->write_unit = presets[i].write;
        switches->read_unit = presets[i].read;
        switches->node_check = presets[i].check;
        switches->cache_policy = presets[i].policy;
        switches->cache_lowest = 0;
        switches->admission = 0.1;
        switches->shortcuts_only = false;
        switches->ownership = TREE_OWNERSHIP_OFF;
        switches->unlogged = false;
        switches->walks = switches->merge_walks = switches->exchange_walks = TREE_WALKS_NEVER;
        return 0;
    }
    return error_set(
        error, BANYAN_EINVAL,
        "no preset is named '%s': choose fg, fg+, +combine, +onchip, +hierarchical, sherman or banyan", name);
}
