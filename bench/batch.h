/*
 * batch.h - a client's operations in batches: so many are drawn together, and those of one kind are one
 * multi-get or multi-put of the index (tree.h). For lookups, upserts, inserts and updates of values that
 * stand in slots; inserts and updates are puts then, which look for no key that must be there or must not.
 *
 * Used by client.c, on the client's task. A batch costs two arrays of its operations, with their keys and
 * values. An operation's latency is that of the call it was part of, since its caller has the answer only
 * then; what a call costs is counted once.
 */
#ifndef BENCH_BATCH_H
#define BENCH_BATCH_H

#include "bench/client.h"

#define BENCH_BATCH_MAX 1024u

struct bench_batch;

/* Whether the workload's operations can go in batches. */
bool bench_batch_takes(const struct workload *workload);
/* NULL: no memory. */
struct bench_batch *bench_batch_create(const struct bench_config *config);
/* NULL: does nothing. */
void bench_batch_destroy(struct bench_batch *batch);
/* Draws, performs and counts config->batch operations. False: the run has failed (bench_window_fail).
 * *waited: a call made a round trip. */
bool bench_batch_step(struct bench_batch *batch, struct bench_client *client, enum bench_phase phase,
                      bool *waited);

#endif
