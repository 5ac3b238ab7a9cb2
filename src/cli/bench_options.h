/*
 * bench_options.h - the options of `banyan bench` as argp has them: those of a fixed table, and the tree's
 * switches, which become options by themselves, from tree_switches_table.
 */
#ifndef CLI_BENCH_OPTIONS_H
#define CLI_BENCH_OPTIONS_H

#include <argp.h>

enum bench_option_key {
    KEY_WORKLOAD = 256,
    KEY_MIX,
    KEY_FABRIC,
    KEY_MEMORY_NODES,
    KEY_COMPUTE_NODES,
    KEY_THREADS,
    KEY_FIBERS,
    KEY_KEYS,
    KEY_KEY_BYTES,
    KEY_VALUE_BYTES,
    KEY_LEAF,
    KEY_LEAF_BYTES,
    KEY_INTERNAL_BYTES,
    KEY_SUBTREE_LEVELS,
    KEY_FILL,
    KEY_DISTRIBUTION,
    KEY_THETA,
    KEY_SKEW_OF,
    KEY_SCAN_LENGTH,
    KEY_BATCH,
    KEY_OPERATIONS,
    KEY_WARM_UP,
    KEY_SEED,
    KEY_PRESET,
    KEY_OWN,
    KEY_ROUTE,
    KEY_SIM,
    KEY_FAULTS,
    KEY_POOL_BYTES,
    KEY_CHUNK_BYTES,
    KEY_LOG_BYTES,
    KEY_NO_CHECK,
    KEY_PIN,
    KEY_MEMORY,
    KEY_SECRET_FILE,
    KEY_CERTIFICATE,
    KEY_KEY,
    KEY_AUTHORITY,
    KEY_RDMA_DEVICE,
    KEY_RDMA_GID,
    KEY_RDMA_SPIN,
    KEY_JSON,
    KEY_REPORT,
    KEY_SENSITIVITY,
    KEY_OF,
    KEY_ONLY,
    KEY_JOBS,
    KEY_PAPER,
    KEY_TESTBED,
    KEY_PEER,
    KEY_PEER_BATCH,
    KEY_PAIRS,
    KEY_LIST,
    KEY_QUIET,
    KEY_SWITCH,              /* + index in tree_switches_table */
    KEY_NO_SWITCH = 0x10000, /* + the same, for bool switches */
};

#define BENCH_OPTIONS_MAX 192

/* Help texts and names that are made up live in `texts`. */
struct bench_options {
    struct argp_option options[BENCH_OPTIONS_MAX];
    char texts[BENCH_OPTIONS_MAX][320];
    unsigned count, text_count;
};

/* Fills a list of zeroes. */
void bench_options_make(struct bench_options *list);
/* The option's name, for messages; "" of a switch. */
const char *bench_option_name(int key);
extern const char bench_documentation[];

/* bench_complete.c: gives what the options left open its defaults, and checks the whole. Ends the process
 * with a message where it makes no sense. */
struct bench_request;
void bench_request_complete(struct bench_request *request, struct argp_state *state);

#endif
