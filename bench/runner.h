/*
 * runner.h - runs one workload on one index and measures it: on threads of this machine, or in the simulator.
 *
 * bench_run() builds a fresh pool (memory nodes, index, loaded keys), warms up, measures, takes everything
 * down again. Called from a plain thread; a run costs the memory of its pool and the time of loading it.
 *
 * WHAT IS MEASURED. Every thread runs operations until the given number has been reached by all together;
 * there is no share per thread, so a slow one does not distort the rest. The window opens when the warm-up
 * operations are done and closes with the last operation wanted. An operation counts if it began and ended
 * within the window; its latency is the time between. Those still under way at the end run on to their end
 * and are not counted, but their number and the longest one's time are reported beside the quantiles, so that
 * a starving operation cannot hide. On `sim` time is virtual.
 */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include <stdbool.h>
#include <stdint.h>
#include "base/atomic.h"
#include "base/histogram.h"
#include "base/task.h"
#include "bench/presets.h"
#include "bench/workloads.h"
#include "fabric/verbs_options.h"
#include "net/net.h"
#include "sim/params.h"
#include "tree/tree.h"

/* TCP and UNIX: memory nodes in processes of their own, over loopback TCP or with their pools mapped. RDMA:
 * through NICs, to memory nodes that run already. */
enum bench_fabric { BENCH_LOCAL, BENCH_SIM, BENCH_TCP, BENCH_UNIX, BENCH_RDMA };
extern const char *const bench_fabric_names[];

struct bench_config {
    enum bench_fabric fabric;
    uint32_t memory_nodes, compute_nodes, threads, fibers; /* threads per compute node, fibers per thread */
    uint64_t keys, operations, warm_up, seed;
    uint32_t scan_length;
    uint32_t batch; /* operations that go together (batch.h); up to 1: none do */
    double fill, theta;
    uint64_t skew_of; /* zipfian and scrambled: shares as among so many loaded keys; 0: `keys` */
    uint64_t pool_bytes, chunk_bytes; /* 0: chosen from the rest */
    uint64_t log_bytes;               /* of each memory node, for owners' logs; 0: as it chooses */
    enum bench_ownership ownership;
    uint32_t log_copies; /* sim, with ownership: what owners write goes to their logs first, in so many
                            copies; 0: it is written through */
    bool move;           /* sim: the last compute node owns nothing, and gets half a range during the run */
    bool fail;           /* sim: the last compute node dies during the run (fail_sim.h) */
    bool route_any; /* with ownership: clients draw all keys, and their index forwards; else their node's own
                     */
    bool check;     /* walk the index after loading and after the run: proves it, and counts its bytes */
    bool pin;       /* local: keep thread i on CPU i */
    struct format_geometry geometry;
    uint32_t record_bytes; /* length of values that stand in records of a store (bench_config_values); 0: they
                              stand in the index's slots */
    struct sim_params sim;
    struct sim_faults faults;
    /* TCP, UNIX, RDMA: memory nodes that run already; every run formats them anew. NULL: starts its own. */
    const struct net_address *memory;
    const char *secret; /* theirs; NULL: none */
    size_t secret_length;
    struct net_tls *tls;      /* towards them; NULL: none */
    struct verbs_options nic; /* RDMA: ours */
    /* May be NULL: called now and then with a phase and how much of it is done, 0 to 1. */
    void (*progress)(void *context, const char *phase, double done);
    void *progress_context;
};

/* Values have so many bytes: in the slots where those have room, else in records. */
void bench_config_values(struct bench_config *config, uint32_t bytes);
static inline uint32_t bench_config_value_bytes(const struct bench_config *config)
{
    return config->record_bytes ? config->record_bytes : config->geometry.value_bytes;
}

/* Operations of one kind. */
struct bench_kind {
    uint64_t count;
    struct histogram *latency; /* ns; NULL where count is 0 */
    struct fabric_cost cost;
};

/* Operations that ended in each interval of the window. */
#define BENCH_INTERVAL_NS UINT64_C(500000)
struct bench_timeline {
    uint32_t *counts;
    size_t length, capacity;
};

/* With config->fail: a compute node dies when a quarter of config->operations have been measured, and so long
 * after it the window closes, whatever has been measured by then. */
#define BENCH_AFTER_NS UINT64_C(100000000)
struct bench_failure {
    uint64_t begin_ns;                /* since the window opened; 0: none died */
    uint32_t ranges;                  /* that it had */
    uint64_t unmerged, log_bytes;     /* keys in its log that no leaf had; bytes of its log to be READ */
    uint64_t served_ns;               /* since then, until all of its ranges were served again */
    uint64_t inherited;               /* entries that others took over from its log */
    struct histogram *before, *after; /* latencies of operations that ended before it, after it; ns */
    double before_mops, after_mops;   /* throughput until then, and from then on */
    double lowest_mops;               /* in one interval of the timeline */
    uint64_t halved_ns;               /* intervals with less than half of before_mops */
    uint64_t unknown;                 /* writes that its death left without an answer; begun again */
    uint64_t read_back;               /* keys that were looked up at the end (ledger.h) */
};

/* How much of the pool the index takes. */
struct bench_space {
    uint64_t entries; /* 0: not counted (check off) */
    uint64_t leaves;
    uint64_t height;      /* levels, that of the leaves among them */
    uint64_t index_bytes; /* nodes in use */
    uint64_t pool_bytes;  /* chunks handed out, less blocks given back */
};

struct bench_result {
    char preset[64];
    struct tree_switches switches; /* the preset's, with single switches set over it */
    enum bench_ownership ownership;
    uint32_t compute_nodes, threads; /* 0: a peer's, or no index's */
    uint8_t leaf_kind;               /* enum format_leaf_kind: of the index */
    uint32_t leaf_slots;             /* 0: a peer's */
    bool records;                    /* values stand in records */
    char workload[WORKLOAD_NAME_BYTES];
    char distribution[16];
    uint32_t scan_length;
    bool peer; /* not Banyan: costs per operation do not apply */
    uint64_t operations, window_ns;
    double throughput_mops;
    struct histogram *latency; /* all kinds */
    struct bench_kind kinds[WORKLOAD_KINDS];
    struct fabric_cost cost;
    uint64_t retries, cache_hits, cache_misses, splits, unlinks, handovers, snapshot_handovers, combined;
    uint64_t absent; /* lookups, updates, deletes of a key that was not there */
    uint64_t entries_scanned;
    uint64_t unfinished, unfinished_longest_ns;
    struct tree_cache_stats cache; /* of all compute nodes; counters: within the window, sizes: at its end */
    struct bench_space loaded, ended;
    struct fabric_capabilities capabilities; /* the fabric's */
    uint64_t trace_hash, events;             /* sim */
    struct bench_timeline timeline;          /* with config->move, config->fail */
    struct bench_failure failure;
    uint64_t move_begin_ns, move_ns; /* since the window opened; how long. 0: nothing was moved */
    bool logged;                     /* the rest: of the owners' logs */
    struct fabric_cost log_cost;     /* of merging; part of `cost` */
    uint64_t log_entries, log_commits, log_merged, log_bytes;
    uint64_t log_waits, log_wait_ns, log_wait_longest_ns;
    uint64_t log_held, log_held_ns, log_held_longest_ns, log_cycles, log_cycle_longest_ns;
    uint64_t log_lag_ns;                  /* at the end, of the compute node that is behind most */
    uint64_t log_lag, log_unmerged;       /* at the end: sequences above the watermarks, keys in the tables */
    uint64_t move_cached;                 /* bytes that the owner of the range had cached before */
    double load_seconds, measure_seconds; /* of real time */
};

int bench_run(const struct bench_config *config, const struct tree_switches *switches,
              struct workload_source *source, struct bench_result *result, struct error *error);
void bench_result_release(struct bench_result *result);

/* ---- for runners: the window, shared by all threads of a run ---- */

enum bench_phase { BENCH_WARMING, BENCH_MEASURING, BENCH_DONE };

struct bench_window {
    const struct bench_config *config;
    uint32_t phase;           /* atomic */
    uint32_t batch;           /* operations that a thread counts by itself before it tells the others */
    uint32_t cold;            /* atomic: clients that have not warmed their cache */
    uint32_t claimed;         /* atomic: not 0 once a client opens the window */
    uint64_t warmed, counted; /* atomic, relaxed */
    uint64_t begin_ns, end_ns;
    uint64_t died_ns; /* 0: no compute node has died */
    /* May be NULL: called when the window opens and when it closes, by the client that turns it. */
    void (*turned)(void *context, enum bench_phase phase);
    void *turned_context;
    struct spinlock *lock; /* guards error and failed */
    struct error error;
    bool failed;
};
struct bench_meter { /* of one thread; histograms made on first use */
    struct bench_window *window;
    uint64_t unreported;
    enum bench_phase phase; /* of those */
    struct bench_result *result;
};

void bench_window_init(struct bench_window *window, const struct bench_config *config, unsigned clients,
                       struct spinlock *lock);
/* Whether operations go on, and whether one that begins now may count. */
static inline enum bench_phase bench_window_phase(const struct bench_window *window)
{
    /* Acquire: a client that sees a phase sees the times written before it. */
    return (enum bench_phase)__atomic_load_n(&window->phase, __ATOMIC_ACQUIRE);
}
/* A client has warmed its cache; the window opens no earlier than all have. Each client calls it once. */
void bench_window_warm(struct bench_window *window);
/* One operation has ended: began in `phase` at begin_ns, ended at end_ns. */
void bench_meter_count(struct bench_meter *meter, enum bench_phase phase, enum workload_kind kind,
                       uint64_t begin_ns, uint64_t end_ns, const struct fabric_cost *cost);
/* What the window adds to a run's numbers of an index's cache: less what was counted before it opened. */
void bench_cache_begin(struct bench_result *result, const struct tree *tree);
void bench_cache_end(struct bench_result *result, const struct tree *tree);
/* Ends the run for all clients. */
void bench_window_fail(struct bench_window *window, const struct error *error);
/* Adds a thread's numbers to the run's and frees its histograms. */
void bench_result_merge(struct bench_result *into, struct bench_result *from);
/* Sets throughput from operations and window. */
void bench_result_complete(struct bench_result *result, const struct bench_window *window);

/* Other stores, compiled in where their library was found. */
struct bench_peer {
    const char *name;
    const char *settings; /* one line, for the report */
    int (*run)(const struct bench_config *config, struct workload_source *source, uint32_t batch,
               struct bench_result *result, struct error *error);
};
const struct bench_peer *bench_peer_find(const char *name, struct error *error);

#endif
