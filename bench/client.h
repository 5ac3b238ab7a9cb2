/*
 * client.h - one task of a benchmark that asks the index, alike on a thread, a fiber or a simulated
 * fiber.
 */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include "bench/ledger.h"
#include "bench/runner.h"

struct bench_batch;
struct store;
struct store_session;

struct bench_client {
    const struct bench_config *config;
    struct bench_window *window;
    struct bench_meter *meter; /* its thread's */
    struct tree_session *session;
    struct tree *tree;
    struct store *store; /* of the tree, where values stand in records; else NULL */
    struct store_session *records;
    uint8_t *value;            /* a long one, of the operation under way; malloc'ed */
    struct ledger *ledger;     /* of all clients; NULL: nothing is read back */
    struct bench_batch *batch; /* NULL: operations go one by one */
    struct workload_generator generator;
    unsigned number, of; /* among the clients of its compute node */
};

/* Until the window is done: touches its share of the inner nodes (of its generator's part, if it keeps to
 * one; of the working set, if that is a range), so that the node cache is warm, then draws and performs
 * operations. An error ends the run through bench_window_fail. */
void bench_client_run(struct bench_client *client);
/* With a ledger, when no client writes any more: looks up every `step`-th of the loaded keys, from the
 * `first`, and fails the run where an acknowledged write is not there. */
void bench_client_read_back(struct bench_client *client, uint64_t first, uint64_t step);
/* Where values stand in records: the store of an open tree, which closes that (store_close); once for a
 * compute node. */
int bench_store_open(struct store **store, const struct bench_config *config, struct tree *tree,
                     struct error *error);
/* Closes the store, or a tree without one; both may be NULL. */
void bench_store_close(struct store *store, struct tree *tree);
/* Destroys the client's sessions and its batch, if there are any. */
void bench_client_close(struct bench_client *client);
struct fabric_cost bench_cost_difference(const struct fabric_cost *before, const struct fabric_cost *after);
/* What a session has done meanwhile, beside its costs. */
void bench_stats_add(struct bench_result *result, const struct tree_stats *before,
                     const struct tree_stats *after);
/* The seed of a run's n-th client. */
uint64_t bench_client_seed(const struct bench_config *config, unsigned n);

#endif
