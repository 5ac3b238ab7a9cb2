/*
 * stores.h - a world (swarm/world.h) whose index is a store: one struct store for each compute node, one
 * session for each task, and a clock that the test sets.
 *
 * Called by the test's thread, except stores_session and stores_now, which tasks call.
 */
#ifndef TESTS_STORE_STORES_H
#define TESTS_STORE_STORES_H

#include "store/store.h"
#include "swarm/world.h"

struct stores {
    struct world world; /* its context is the struct stores */
    void *context;      /* the test's own */
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
    return task->store_session;
}
void stores_now(struct stores *stores, uint64_t now_ms);

/* world_check_store. */
int stores_check(struct stores *stores, struct store_check_report *report);

/* A value of `length` bytes that can be recognized, since it follows from the number. */
void stores_fill(uint64_t number, uint8_t *bytes, size_t length);
bool stores_filled(uint64_t number, const uint8_t *bytes, size_t length);

#endif
