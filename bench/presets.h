/*
 * presets.h - what a run compares: a preset of the tree's switches, whether ownership divides the key space,
 * and single settings that the preset's name adds.
 *
 * For the plan (plan.h) and the command line, from a plain thread. A name is
 *
 *     PRESET[@SETTING=VALUE]...          dex   dex@admission=1   sherman@threads=36 dex@cache=64M@threads=72
 *
 * SETTING: a switch of the tree (tree_switches_table), or
 *   own        none or static: the compute nodes own equal ranges (ownership.h)
 *   threads    of all compute nodes together: as many compute nodes as hold them, all but a single one full
 *   move       on: the last compute node owns nothing at first, and gets half of another's range during the
 *              run (map_sim.h; on sim, with ownership)
 *   servers    memory nodes, as --memory-nodes (on sim)
 *   cores      of each memory node, for calls and walks, as --sim rpc-cores (on sim)
 *   fail       on: the last compute node dies during the run (fail_sim.h; on sim, with ownership; clients
 *              draw all keys, as with --route any)
 *   log        1 or 2: what owners write goes to logs in so many copies first (log_sim.h; on sim, with
 *              ownership); 0: it is written through
 *   cache      bytes of a compute node's cache in place of the testbed's, at the testbed's number of keys; or
 *              per cent ("4%") of the bytes of all loaded keys and values
 *   values     bytes of values, as --value-bytes
 */
#ifndef BENCH_PRESETS_H
#define BENCH_PRESETS_H

#include "tree/tree.h"

/* Who may change which leaves: all compute nodes all (global locks), or each those of one of as many equal
 * ranges of keys. */
#define BENCH_VALUE_MAX 65000u /* bytes of a value */

enum bench_ownership { BENCH_SHARED, BENCH_OWNED };
extern const char *const bench_ownership_names[]; /* "none", "static", NULL */

struct bench_preset {
    char name[64]; /* as it was given */
    char base[32]; /* without settings */
    struct tree_switches switches;
    enum bench_ownership ownership;
    uint32_t threads;   /* of all compute nodes together; 0: as the configuration has it */
    uint32_t servers;   /* memory nodes; 0: as the configuration has it */
    uint32_t cores;     /* of each memory node; 0: as the configuration has it */
    uint64_t cache;     /* 0: the testbed's, or the share */
    double cache_share; /* of the bytes of keys and values, in per cent; 0: none */
    uint32_t values;    /* bytes of values; 0: as the configuration has it */
    bool move, fail;
    uint32_t log; /* copies of an owner's log; 0: none */
};

/* Fills the preset of this name; leaves switches.cache_bytes 0 unless a setting gives it. BANYAN_EINVAL, with
 * a message that says what is possible. */
int bench_preset_find(struct bench_preset *preset, const char *name, struct error *error);
/* Sets the settings of its name once more, over what has been set since. */
int bench_preset_settle(struct bench_preset *preset, struct error *error);
/* For lists: the i-th preset's name and a line about it (NULL where the tree's switches say all); NULL after
 * the last. Those of the tree come first. */
const char *bench_preset_name(size_t i, const char **about);
/* The leaf that the preset's indexes have (tree_switches_leaf). */
enum format_leaf_kind bench_preset_leaf(const struct bench_preset *preset);

#endif
