/*
 * stage.h - processes that divide an index, in the hands of a test: all on its thread, without keepers, each
 * over a fabric in which the test decides who is connected, who hears what, who is fenced and when a read
 * lease is over. For the order of the steps of src/owner/, one by one.
 *
 * Time is the stage's own: it passes where the thread sleeps, by as much, and a little with each look at it.
 * However busy the machine, nothing is waited for longer than the steps take.
 *
 * A step is met by a hook: a call of a memory node, a list, a notice, a question about a lease. In a hook
 * other processes do whole operations, with their second session; the process under way does none.
 */
#ifndef TESTS_OWNER_STAGE_H
#define TESTS_OWNER_STAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/task.h"
#include "memory/memory.h"
#include "owner/board.h"
#include "owner/state.h"
#include "wrapper.h"

#define STAGE_NODES  2u
#define STAGE_ACTORS 3u
#define STAGE_KEYS   40u
#define STAGE_ALL    ((1u << STAGE_ACTORS) - 1)
#define STAGE_BIT(x) (1u << (x))

enum { A, B, C };

struct stage;

struct actor {
    struct wrapper wrapper; /* first */
    struct stage *stage;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session, *second; /* the second one's: for what is done in a hook, and for calls */
    struct tree *tree;
    struct owner *owner;
    uint64_t since[STAGE_NODES]; /* lists of an earlier incarnation are refused there */
    unsigned number, lists;      /* lists: how many were run */
    unsigned fenced;             /* a bit for each memory node at which another had it fenced */
    unsigned failing;            /* of its lists of READs so many are not done, and come to `failure` */
    int failure;
    bool cut; /* its calls of the board are not answered any more */
    bool attached;
};

struct stage {
    struct task task; /* the thread's while the stage is open; first */
    struct task *before;
    uint64_t now;
    const struct owner_log *log; /* NULL: none keeps one */
    struct memory_node *nodes[STAGE_NODES];
    struct actor *actors[STAGE_ACTORS];
    unsigned connected;   /* bits: whom the home node says are there */
    unsigned deaf;        /* bits: who adopts nothing when a notice goes out */
    unsigned lease_asks;  /* whether a read lease is over */
    unsigned lease_needs; /* so many times it is not */
    unsigned served;      /* peer calls */
    bool lose_replies;    /* of peer calls: they are served, and not answered */
    unsigned resumed;     /* read leases */

    /* Hooks, NULL or the test's. The board's calls, before and after them; status is what the call came to.
     */
    void (*before_call)(struct actor *actor, const struct memory_board_request *request);
    void (*after_call)(struct actor *actor, const struct memory_board_request *request);
    void (*after_list)(struct actor *actor);
    void (*notified)(struct stage *stage, uint64_t version);
    void (*lease_asked)(struct stage *stage, struct actor *holder);
    bool (*lease_alive)(struct stage *stage); /* NULL: they are */
    void (*fencing)(struct stage *stage, struct actor *actor, unsigned node);
    void (*resuming)(struct actor *actor, uint64_t incarnation);
};

/* An index of STAGE_KEYS keys, which all have attached: shared as a whole. Hooks are not set. */
void stage_open(struct stage *stage);
/* The same, and all keep logs with these hooks, whose context is the actor. */
void stage_open_logged(struct stage *stage, const struct owner_log *log);
void stage_close(struct stage *stage);

/* The actor's connections are lost, and there again; its locks are freed, and the board's. */
void stage_lose(struct actor *actor);
size_t stage_key(uint64_t number, uint8_t key[8]);
int stage_put(struct actor *actor, uint64_t number, uint8_t what);
/* The value, or a negative error. */
int stage_get(struct actor *actor, uint64_t number);
/* The range that has the key becomes `to`'s; NULL: shared. */
int stage_move(struct actor *actor, uint64_t number, const struct actor *to);
int stage_split(struct actor *actor, uint64_t number);
enum tree_right stage_right(const struct actor *actor, uint64_t number, uint64_t *incarnation);
struct memory_board_reply stage_board(struct actor *actor);

/* The map as it is in the pool, by the actor's second session. */
struct stage_ranges {
    uint32_t count, moving, split, shared, of[STAGE_ACTORS];
    uint64_t sum; /* of everything that the entries say: two that differ are two maps */
};
void stage_look(struct actor *actor, struct stage_ranges *ranges);

#endif
