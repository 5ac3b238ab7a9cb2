/*
 * rig.h - two compute nodes over the same memory nodes on one thread, in a time of their own: ours, whose
 * fabric fails at a chosen command of a chosen list, and the others', which always works and tells what is
 * left. For tests that let everything fail that can fail, one after the other (failure loops).
 *
 * The failures are those that fabric.h allows: a list that is cut and whose outcome is unknown, one that is
 * refused, one that is not even posted, a compute node that dies; with them the memory node frees our locks,
 * as it does when it has fenced us. cmocka's asserts fail the test at once.
 */
#ifndef TESTS_TREE_RIG_H
#define TESTS_TREE_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "memory/memory.h"
#include "store/store.h"
#include "tree/tree.h"

enum trouble {
    TROUBLE_NONE,
    TROUBLE_LOSS,    /* cut before its n-th command, or answered in vain: ENET; mended at once */
    TROUBLE_OUTAGE,  /* the same, and the memory node is away until rig_mend */
    TROUBLE_TIMEOUT, /* as LOSS, with ETIMEOUT */
    TROUBLE_REFUSAL, /* the connection was lost before: EFENCED, nothing of it is done; mended at once */
    TROUBLE_MEMORY,  /* the fabric has no memory for it: ENOMEM, nothing of it is done */
    TROUBLE_ADDRESS, /* a READ leads nowhere: EADDRESS, what stands before it is done */
    TROUBLE_DEATH,   /* nothing of ours arrives any more, from some command on */
    TROUBLE_SHORT,   /* an allocation of ours fails (failing.h), with all that is on this thread */
    TROUBLES
};
const char *trouble_name(enum trouble kind);

#define RIG_NODES     2u /* of most tests */
#define RIG_NODES_MAX 4u
#define RIG_KEYS      4096u

struct rig_side {
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session, *spare; /* `spare` made the tree known: `session` has not met it yet */
    struct tree *tree;
    struct store *store; /* with options.store */
    struct store_session *store_session;
};

/* What stands under a key. Values are numbers, 0: nothing. */
struct rig_entry {
    uint64_t before, after; /* of what is tried under trouble */
    int status;             /* what that came to */
};

struct rig_options {
    const char *preset; /* NULL: banyan */
    struct format_geometry geometry;
    uint32_t atomic_write; /* 0: the local fabric's */
    uint64_t pool_bytes, chunk_bytes, cache_bytes;
    unsigned nodes;
    bool store, no_index;
};

struct rig_fabric;
struct rig {
    struct rig_options options;
    struct memory_node *nodes[RIG_NODES_MAX];
    struct rig_fabric *trouble;
    struct rig_side ours, others;
    struct rig_entry entries[RIG_KEYS];
    unsigned entry_count; /* those that are judged */
    uint64_t now_ms;      /* that the stores take for the time */
    void *context;        /* the test's */
};

void rig_options_default(struct rig_options *options);
/* Shapes that several tests go through: changes of the default. */
void rig_two_nodes(struct rig_options *options);
void rig_long_keyed(struct rig_options *options);   /* some keys do not fit a slot; two nodes */
void rig_large_leaves(struct rig_options *options); /* longer than what is written at once */
void rig_open(struct rig *rig, const struct rig_options *options);
void rig_close(struct rig *rig);

/* The n-th chance from now on, from 1, of our fabric to fail in this way. */
void rig_trouble(struct rig *rig, enum trouble kind, uint64_t at);
/* No trouble from now on; whether there was. What was lost is there again, but for the dead. */
bool rig_mend(struct rig *rig);
bool rig_dead(const struct rig *rig);
/* Replies of memory nodes go through this (NULL: they do not). */
void rig_replies(struct rig *rig, void (*change)(void *context, void *reply, size_t *length), void *context);
/* Our compute node goes away and comes back as another process of the same name: nothing known, nothing held.
 */
void rig_replace_ours(struct rig *rig);
/* The others give all back that they hold free, and come back. */
void rig_replace_others(struct rig *rig);

size_t rig_key(const struct rig *rig, unsigned number, uint8_t key[FORMAT_KEY_MAX]);
/* Values of stores: some fit the slot, some are records, some have pieces. Static; fails if they are not so.
 */
size_t rig_size(uint64_t value);
const uint8_t *rig_bytes(uint64_t value);
uint64_t rig_number(const struct store_value *value);
/* The others put value `number` + 1 under these keys. */
void rig_fill(struct rig *rig, unsigned from, unsigned to, unsigned step);
/* The others look: what stands under the key, 0: nothing. */
uint64_t rig_look(struct rig *rig, unsigned number);
/* Notes that ours were about to make it `after`, and what that came to. */
void rig_note(struct rig *rig, unsigned number, uint64_t after, int status);
/*
 * After rig_mend. Every key holds what it should (what failed without doubt has not been done), the index is
 * sound, no lock is held, no block is in two hands; ours can read and write everything, if they live; and all
 * that still once more. Returns how many bytes are lost: in no index and in no free list.
 */
uint64_t rig_judge(struct rig *rig, enum trouble kind);
/* The parts of it that need no keys. */
uint64_t rig_account(struct rig *rig);
void rig_locks_are_free(struct rig *rig);

/* ---- failure loops ---- */

struct rig_scenario {
    const char *name;
    void (*options)(struct rig_options *options); /* may be NULL */
    void (*prepare)(struct rig *rig);             /* may be NULL */
    /* Under trouble. Returns the worst that it met, after it was noted. */
    int (*act)(struct rig *rig);
    void (*judge)(struct rig *rig, int status, enum trouble kind); /* may be NULL: rig_judge */
    unsigned stride[TROUBLES];                                     /* 0: 1 */
    unsigned without; /* troubles that it is not tried with, 1 << kind or-ed */
};
/* Tries the scenario with trouble at each of its chances, until one was met no more. */
void rig_loop(const struct rig_scenario *scenario, enum trouble kind);
void rig_loop_all(const struct rig_scenario *scenario);

#endif
