/*
 * stores.h - a world (swarm/world.h) whose index is a store: one struct store a compute node, one session a
 * task, a clock that the test sets, and accounting of every block of the pool.
 *
 * The test's thread calls all of it, but stores_session and stores_now, which tasks call.
 */
#ifndef TESTS_STORE_STORES_H
#define TESTS_STORE_STORES_H

#include "store/store.h"
#include "swarm/world.h"

struct stores {
    struct world world; /* its context is the struct stores */
    struct store *stores[WORLD_COMPUTE_MAX];
    struct store_session **sessions; /* by task */
    uint64_t now_ms;                 /* atomic: what the stores take for the time */
    void *context;                   /* the test's own */
};

/* As world_options_default, with a store's geometry and chunks that hold the largest blocks. */
void stores_options_default(struct world_options *options);
/* Aborts the test on failure of the world itself. */
int stores_create(struct stores *stores, const struct world_options *options);
void stores_destroy(struct stores *stores);
static inline struct stores *stores_of(struct world_task *task)
{
    return task->world->context;
}
static inline struct store_session *stores_session(struct world_task *task)
{
    return stores_of(task)->sessions[task->number];
}
void stores_now(struct stores *stores, uint64_t now_ms);

/* store_check, and every block that the memory nodes have handed out is exactly one of: the index's, a
 * record's, held back by a worker. With dead compute nodes blocks may be nobody's, but none two owners'. */
int stores_check(struct stores *stores, struct store_check_report *report);
/* Bytes of blocks handed out that are nobody's: what the last stores_check met. */
uint64_t stores_lost(const struct stores *stores);

/* A value of so many bytes that can be recognized: derived from the number. */
void stores_fill(uint64_t number, uint8_t *bytes, size_t length);
bool stores_filled(uint64_t number, const uint8_t *bytes, size_t length);

#endif
