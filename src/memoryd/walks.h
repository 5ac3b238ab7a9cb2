/*
 * walks.h - the daemon's threads that walk, and those that merge (memory/walk.h): the services WALK, and
 * MERGE with EXCHANGE, put a request into a bounded queue, and one of them carries it out. So I/O threads
 * never walk, and nothing that others want waits behind a walk. A request that finds the queue full is
 * answered BANYAN_EBUSY at once. The caller is answered out of order (memoryd_session_answer): its I/O thread
 * is woken when the walk is done.
 *
 * A compute node's end (G6): what it has in the queue is dropped when its connections leave, and the service
 * waits for its walks under way before the compute node counts as fenced: a MERGE or an EXCHANGE writes, and
 * must not do so when the next owner has the range.
 */
#ifndef MEMORYD_WALKS_H
#define MEMORYD_WALKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/service.h"

#define MEMORYD_WALK_THREADS_MAX 64u
/* Requests that wait, are under way, or whose answers wait to be sent. */
#define MEMORYD_WALKS_MAX 256u
/* Tickets of walks have one of these bits, those of the disk have neither. */
#define MEMORYD_WALK_TICKET  (UINT64_C(1) << 63)
#define MEMORYD_MERGE_TICKET (UINT64_C(1) << 62)
/* What its threads do. */
enum memoryd_walks_kind {
    MEMORYD_WALKS,            /* WALK */
    MEMORYD_WALKS_AND_MERGES, /* WALK, MERGE and EXCHANGE */
    MEMORYD_MERGES, /* MERGE and EXCHANGE: a queue of its own, so that no lookup waits behind merging */
};

struct error;
struct memoryd;
struct memoryd_walks;

/* BANYAN_ENOMEM. `threads`: 1 to MEMORYD_WALK_THREADS_MAX. Those that merge have the staging areas
 * (memory_node_staging) from `staging` on. */
int memoryd_walks_create(struct memoryd_walks **walks, struct memoryd *daemon, enum memoryd_walks_kind kind,
                         unsigned threads, unsigned staging, struct error *error);
void memoryd_walks_destroy(struct memoryd_walks *walks); /* stopped; NULL: does nothing */
int memoryd_walks_start(struct memoryd_walks *walks, struct error *error);
/* The threads end; what is in the queue stays there. NULL: does nothing. */
void memoryd_walks_stop(struct memoryd_walks *walks);

/* For memory_node_register. */
extern const struct memory_service memoryd_walk_service;

/* Whether the walk is done: then its status and the reply, which is the caller's to free (NULL: there is
 * none), and the ticket is gone. Any thread. */
bool memoryd_walks_take(struct memoryd_walks *walks, uint64_t ticket, int *status, uint8_t **reply,
                        size_t *length);
/* Nobody takes it any more. */
void memoryd_walks_drop(struct memoryd_walks *walks, uint64_t ticket);

#endif
