/*
 * party.h - a simulated cluster whose compute nodes divide an index's key range (src/owner/), for tests: each
 * compute node has a keeper, a ticker, serving tasks and workers, on one CPU thread of the world.
 *
 * Everything that its workers do is recorded and judged (world_linearize). The test's thread.
 */
#ifndef TESTS_OWNER_PARTY_H
#define TESTS_OWNER_PARTY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "book.h"
#include "owner/state.h"
#include "swarm/world.h"

#define PARTY_SERVERS 2u
#define PARTY_WORKERS 2u
#define PARTY_TASKS   (2u + PARTY_SERVERS + PARTY_WORKERS) /* of a compute node */
#define PARTY_MAX     8u

struct party {
    struct world world;
    struct owner *owners[PARTY_MAX];
    struct owner_options options;
    struct book *book; /* NULL: no logs; else all compute nodes can inherit */
    unsigned logging;  /* with `book`: bits of those that keep a log */
    uint64_t keys;
    unsigned working; /* workers that have not returned, of living compute nodes */
    bool over;        /* a script ended */
    /* what the workers do; the first one of a compute node runs `script` instead, if there is one */
    void (*script[PARTY_MAX])(struct world_task *task, struct party *party);
    unsigned rounds; /* operations of a worker */
    bool until_over; /* ... or until the script of the first compute node has ended */
    void *context;
    uint64_t longest_ns; /* operation of any worker */
    uint64_t ended_ns;
};

void party_options(struct world_options *options, uint64_t seed, unsigned computes);
/* Creates the world, and attaches the index everywhere. */
void party_open(struct party *party, const struct world_options *options, uint64_t keys);
/* Runs keepers, servers and workers until the workers have returned. */
void party_run(struct party *party);
/* Every key is there or not as the history says; the index and the map are sound, nothing moves any more. */
void party_judge(struct party *party);
void party_close(struct party *party);

static inline struct party *party_of(const struct world_task *task)
{
    return task->world->context;
}
static inline struct owner *party_owner(const struct world_task *task)
{
    return party_of(task)->owners[task->compute];
}
struct fabric_process party_process(const struct party *party, unsigned compute);
/* Fails the world with the session's message if the status is not 0. */
bool party_good(struct world_task *task, int status, const char *what);
/* One operation on a drawn key. */
void party_operate(struct world_task *task);
/* As map keys: 8 bytes. */
size_t party_key(const struct party *party, uint64_t number, uint8_t key[FORMAT_KEY_MAX]);

/* The map as the survivor sees it. */
struct party_ranges {
    uint32_t count, moving, split, of[PARTY_MAX], shared, strangers, heirs;
};
void party_look(struct world_task *task, struct party_ranges *ranges);

#endif
