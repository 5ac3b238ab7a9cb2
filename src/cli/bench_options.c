/* bench_options.c - see bench_options.h. */
#include "cli/bench_options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tree/tree.h"

static const struct argp_option fixed_options[] = {
    {0, 0, 0, 0, "What to run:", 1},
    {"workload", KEY_WORKLOAD, "NAMES", 0,
     "Workloads, comma separated, or 'all'; --list shows them (default: read-intensive)", 1},
    {"mix", KEY_MIX, "OP=SHARE,...", 0,
     "A workload of your own: lookup, upsert, insert (new keys), update, delete, scan, modify", 1},
    {"distribution", KEY_DISTRIBUTION, "NAMES", 0,
     "uniform, zipfian (hot keys spread over the key space), scrambled (as YCSB does it, by a hash); comma "
     "separated (default: zipfian)",
     1},
    {"theta", KEY_THETA, "X", 0, "Skew of zipfian and scrambled, 0 to 4 (default: 0.99)", 1},
    {"skew-of", KEY_SKEW_OF, "N", 0,
     "Give the hottest keys of zipfian and scrambled the shares that they have with --keys N, like 1G; N is "
     "at "
     "least --keys (default: 0, those of --keys)",
     1},
    {"keys", KEY_KEYS, "N", 0, "Keys loaded before the run (default: 1M)", 1},
    {"key-bytes", KEY_KEY_BYTES, "N", 0, "Length of keys, 8 to 255 (default: 8)", 1},
    {"value-bytes", KEY_VALUE_BYTES, "N", 0,
     "Length of values, 0 to 65,000 (default: 8); from 256 on they stand in records of a store, on local and "
     "sim",
     1},
    {"fill", KEY_FILL, "X", 0, "How full the loaded leaves are (default: 0.8)", 1},
    {"scan-length", KEY_SCAN_LENGTH, "N", 0, "Entries of a scan (default: 100)", 1},
    {"batch", KEY_BATCH, "N", 0,
     "Operations that a client draws at once, up to 1024: those of a kind are one multi-get or multi-put. Of "
     "lookups, upserts, inserts and updates (default: 1, each goes alone)",
     1},
    {"operations", KEY_OPERATIONS, "N", 0, "Operations to measure (default: 1M, on sim 200k)", 1},
    {"warm-up", KEY_WARM_UP, "N", 0, "Operations before those (default: a tenth as many)", 1},
    {"seed", KEY_SEED, "N", 0, "Seed of all random choices (default: 1)", 1},
    {0, 0, 0, 0, "Where to run it:", 2},
    {"fabric", KEY_FABRIC, "NAME", 0,
     "local (this process, real time), sim (virtual time), or to memory nodes in processes of their own: "
     "tcp, "
     "unix, which maps their pools, or rdma, through NICs (default: local)",
     2},
    {"memory", KEY_MEMORY, "URI,...", 0,
     "On tcp, unix and rdma, memory nodes that run already; each run FORMATS them (default, but for rdma: "
     "starts "
     "its own)",
     2},
    {"secret-file", KEY_SECRET_FILE, "FILE", 0, "First line: the secret of those memory nodes", 2},
    {"fabric-certificate", KEY_CERTIFICATE, "FILE", 0, "TLS towards them: our certificate (PEM)", 2},
    {"fabric-key", KEY_KEY, "FILE", 0, "TLS: its private key (PEM)", 2},
    {"fabric-authority", KEY_AUTHORITY, "FILE", 0,
     "TLS: who signs the memory nodes' certificates (PEM); turns TLS on", 2},
    {"rdma-device", KEY_RDMA_DEVICE, "NAME", 0, "On rdma, the NIC (default: the one that owns the address)",
     2},
    {"rdma-gid", KEY_RDMA_GID, "INDEX", 0, "On rdma, the port's GID (default: chosen)", 2},
    {"rdma-spin", KEY_RDMA_SPIN, "US", 0,
     "On rdma, a thread that waits polls so long before it sleeps (default: 50)", 2},
    {"memory-nodes", KEY_MEMORY_NODES, "N", 0, "Memory nodes (default: 1, on sim 8)", 2},
    {"compute-nodes", KEY_COMPUTE_NODES, "N", 0, "Compute nodes (default: 1, on sim 8)", 2},
    {"threads", KEY_THREADS, "N", 0, "Threads of each compute node (default: 1, on sim 22)", 2},
    {"fibers", KEY_FIBERS, "N", 0, "Fibers of each thread (default: 1)", 2},
    {"leaf", KEY_LEAF, "preset|hashed|unsorted|dense", 0,
     "Where in a leaf an entry may stand: in the bucket of its key, in any slot, as in Sherman, or in one of "
     "fewer and larger buckets; each preset has its own (default: preset)",
     2},
    {"leaf-bytes", KEY_LEAF_BYTES, "N", 0, "Bytes of a leaf (default: 1024)", 2},
    {"internal-bytes", KEY_INTERNAL_BYTES, "N", 0, "Bytes of an inner node (default: 1024)", 2},
    {"subtree-levels", KEY_SUBTREE_LEVELS, "N", 0,
     "Levels of the subtrees that lie on one memory node each, 0 to 7; auto: of about 64 MiB (default: 0, "
     "nodes are spread)",
     2},
    {"pool-bytes", KEY_POOL_BYTES, "N", 0, "Memory of each memory node (default: enough for the run)", 2},
    {"chunk-bytes", KEY_CHUNK_BYTES, "N", 0,
     "Bytes that a memory node hands out at a time (default: 8M, 1M with more than 16 threads)", 2},
    {"log-bytes", KEY_LOG_BYTES, "N", 0,
     "What the segments of owners' logs may take of a memory node's pool (default: a 32nd of it)", 2},
    {"testbed", KEY_TESTBED, "NAME", 0,
     "On sim, the cluster that a paper measured on: sherman, dex, cell, dinomo (--list says what they are); "
     "options given as well change single values",
     2},
    {"sim", KEY_SIM, "NAME=VALUE,...", 0, "Parameters of the simulated hardware; --sim help lists them", 2},
    {"faults", KEY_FAULTS, "NAME=VALUE,...", 0,
     "Faults of the simulated network, 'none' or 'hostile'; --faults help lists them", 2},
    {"pin", KEY_PIN, 0, 0, "On local, keep each thread on a CPU of its own", 2},
    {"no-check", KEY_NO_CHECK, 0, 0, "Do not walk and prove the whole index after loading and after the run",
     2},
    {0, 0, 0, 0, "Techniques to compare:", 3},
    {"preset", KEY_PRESET, "NAMES", 0,
     "Presets of the switches below, comma separated, or 'all' of Sherman's evaluation; --list shows them. "
     "Settings may follow, as in dex@threads=36@cache=64M (default: banyan)",
     3},
    {"own", KEY_OWN, "preset|none|static", 0,
     "Who changes which leaves: every compute node all (none), or each those of one of as many equal ranges "
     "of "
     "keys (static); each preset has its own (default: preset)",
     3},
    {"route", KEY_ROUTE, "owner|any", 0,
     "With ownership, the keys that a compute node's clients draw: those of its own range, as in DEX's "
     "evaluation (owner), or all, so that operations are forwarded (any) (default: owner)",
     3},
    {"paper", KEY_PAPER, "NAME", 0,
     "Run what a paper's evaluation states numbers for, on sim and its testbed, and print ours beside them: "
     "sherman, dex, dinomo, cell. Scans count as operations by their entries. Options "
     "given as well change single values",
     3},
    {"sensitivity", KEY_SENSITIVITY, 0, 0,
     "How far ratios of presets depend on what is not published: on sim, 8 memory and 8 compute nodes of 22 "
     "threads, 1M keys, 100k operations a run; every estimated and calibrated parameter of --sim goes over "
     "its range, one at a time and all together. Options given as well change that",
     3},
    {"of", KEY_OF, "PRESET/PRESET,...", 0, "With --sensitivity, the ratios (default: banyan/sherman)", 3},
    {"only", KEY_ONLY, "NAMES", 0,
     "With --paper, the figures, comma separated, like table1,fig5 (default: all); with "
     "--sensitivity, the parameters that are varied (default: all that are estimated or calibrated)",
     3},
    {"jobs", KEY_JOBS, "N", 0, "With --sensitivity, runs at one time (default: one for each CPU)", 3},
    {0, 0, 0, 0, "Switches, set over every preset:", 4},
    {0, 0, 0, 0, "Comparing with other stores:", 5},
    {"peer", KEY_PEER, "NAME", 0, "Run the same on another store in turns: lmdb", 5},
    {"peer-batch", KEY_PEER_BATCH, "N", 0, "Also with N writes in one of its transactions (default: 1000)",
     5},
    {"pairs", KEY_PAIRS, "N", 0, "Turns (default: 3)", 5},
    {0, 0, 0, 0, "Output:", 6},
    {"json", KEY_JSON, "FILE", 0,
     "Write the results for programs; - is standard output (the table then goes to standard error)", 6},
    {"report", KEY_REPORT, "FILE.html", 0, "Write a page with plots that needs nothing else", 6},
    {"quiet", KEY_QUIET, 0, 0, "No progress on the terminal", 6},
    {"list", KEY_LIST, 0, 0, "List workloads, presets and testbeds, and exit", 6},
};

#define FIXED_COUNT (sizeof fixed_options / sizeof fixed_options[0])

#define GROUP_SWITCHES 4

const char bench_documentation[] =
    "Measure the index: throughput, latency, and what each operation costs in round trips, commands and "
    "bytes.\v"
    "Counts take k, M, G (powers of 1000), sizes K, M, G (powers of 1024).\n\n"
    "Examples:\n"
    "  banyan bench --workload write-intensive --keys 1M\n"
    "  banyan bench --fabric sim --workload write-intensive --preset fg+,sherman,banyan\n"
    "  banyan bench --fabric sim --workload ycsb:a --preset sherman --handover 0\n"
    "  banyan bench --mix lookup=90,insert=10 --value-bytes 100 --json result.json\n"
    "  banyan bench --workload read-only --batch 16 --distribution uniform\n"
    "  banyan bench --workload range-reverse --scan-length 10\n"
    "  banyan bench --peer lmdb --workload read-only --distribution uniform\n"
    "  banyan bench --paper sherman --only fig5,fig6 --report sherman.html\n"
    "  banyan bench --fabric sim --testbed dex --workload dex:read-only\n"
    "  banyan bench --sensitivity --of banyan/sherman,sherman/fg+ --report bands.html\n\n"
    "Exit status: 0, 1 when a run failed, 2 when an option makes no sense.";

const char *bench_option_name(int key)
{
    for (size_t i = 0; i < FIXED_COUNT; i++)
        if (fixed_options[i].key == key)
            return fixed_options[i].name;
    return "";
}

static const char *keep_text(struct bench_options *list, const char *format, const char *a, const char *b)
{
    char *text = list->texts[list->text_count++];
    snprintf(text, sizeof list->texts[0], format, a, b);
    return text;
}

static void add_switch(struct bench_options *list, int index)
{
    const struct option_entry *entry = &tree_switches_table[index];
    char choices[200] = "";
    for (size_t i = 0; entry->choices && entry->choices[i]; i++) {
        size_t used = strlen(choices);
        snprintf(choices + used, sizeof choices - used, "%s%s", i ? "|" : "", entry->choices[i]);
    }
    bool flag = entry->kind == OPTION_BOOL;
    list->options[list->count++] = (struct argp_option){
        .name = entry->name,
        .key = KEY_SWITCH + index,
        .arg = flag ? "on|off"
                    : keep_text(list, "%s%s",
                                entry->kind == OPTION_SHARE ? entry->unit
                                : entry->choices            ? choices
                                                            : "N",
                                ""),
        .flags = flag ? OPTION_ARG_OPTIONAL : 0,
        .doc = entry->help,
        .group = GROUP_SWITCHES,
    };
    if (flag)
        list->options[list->count++] = (struct argp_option){
            .name = keep_text(list, "no-%s%s", entry->name, ""),
            .key = KEY_NO_SWITCH + index,
            .doc = keep_text(list, "The same as --%s=off%s", entry->name, ""),
            .group = GROUP_SWITCHES,
        };
}

void bench_options_make(struct bench_options *list)
{
    for (size_t i = 0; i < FIXED_COUNT; i++) {
        list->options[list->count++] = fixed_options[i];
        bool switches = !fixed_options[i].name && fixed_options[i].group == GROUP_SWITCHES;
        for (int j = 0; switches && tree_switches_table[j].kind != OPTION_END; j++)
            add_switch(list, j);
    }
}
