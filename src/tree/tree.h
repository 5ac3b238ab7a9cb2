/*
 * tree.h - the index: named, ordered maps in the pool of the memory nodes, read and written by any number of
 * compute nodes at once with one-sided operations. Design: Sherman (SIGMOD'22), made correct for reads in any
 * order; the reasoning (R1 to R7) stands in docs/internals/tree.md.
 *
 * OBJECTS
 *   tree_compute  one per compute node: switches, local lock table, shared by its workers. Thread-safe.
 *   tree_session  one per task (fiber) of a pool_worker (pool.h): buffers, counters. One task at a time.
 *   tree          an open index of a compute node, with its node cache. Shared by all its sessions.
 *                 Thread-safe.
 *
 * KEYS are byte strings in memcmp order. Every call that can fail returns 0 or a negative banyan_error and
 * leaves the message in tree_session_error(session).
 */
#ifndef TREE_TREE_H
#define TREE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/options.h"
#include "format/geometry.h"
#include "pool/pool.h"

#define TREE_NAME_MAX 63u

/* ---- switches: each technique can be turned off at run time ---- */

enum tree_lock_region { TREE_LOCKS_ONCHIP, TREE_LOCKS_DRAM };
enum tree_write_unit { TREE_WRITE_SLOT, TREE_WRITE_NODE };
enum tree_read_unit { TREE_READ_BUCKET, TREE_READ_LEAF };
enum tree_release { TREE_RELEASE_WRITE, TREE_RELEASE_FAA };
/* What a compute node caches of ranges that it owns, beside inner nodes, and how it chooses (docs/internals/
 * ownership.md, The cache). */
enum tree_cache_policy {
    TREE_CACHE_INNER,  /* nothing */
    TREE_CACHE_DEX,    /* leaves, as in DEX (section 5) */
    TREE_CACHE_DINOMO, /* entries: values and shortcuts, as in Dinomo (DAC, section 3.3) */
    TREE_CACHE_BANYAN, /* all: what saves most round trips for its bytes */
};
enum tree_ownership { TREE_OWNERSHIP_OFF, TREE_OWNERSHIP_ALL };
/* How many of the ways whose levels are not cached are left to memory nodes: percent, or by the selector. */
#define TREE_WALKS_NEVER  0
#define TREE_WALKS_ALWAYS 100
#define TREE_WALKS_AUTO   101

struct tree_switches {
    int combine; /* enum pool_combine: off; writes: write-back + unlock (the paper); all: lock + read too */
    int lock_region;   /* enum tree_lock_region */
    int release;       /* enum tree_release: the command that frees a global lock */
    bool local_locks;  /* local lock table with first-come-first-served queues */
    uint32_t handover; /* handovers of a lock in a row; 0: off */
    bool snapshot;     /* hand the node's content over with the lock */
    bool delegate;     /* leave a write to the holder of the lock that it waits for (flat combining) */
    bool unlogged;     /* where memory nodes keep on disks what owners log, change also what nobody logs, so
                          that it comes to no disk: for simulations and experiments */
    int write_unit;    /* enum tree_write_unit */
    int read_unit;     /* enum tree_read_unit */
    bool node_check;   /* a point read that fetches a whole leaf wants the whole of it to fit together */
    uint64_t cache_bytes;  /* all that one compute node caches of an index */
    uint32_t cache_lowest; /* the lowest level of internal nodes that is cached; 0, 1: all are */
    int cache_policy;      /* enum tree_cache_policy */
    double admission;      /* cache policy dex: how likely a leaf that was fetched is cached */
    bool shortcuts_only;   /* cache policies dinomo and banyan: no values that cost more than a shortcut */
    int ownership;   /* enum tree_ownership; all: every index that is opened is this process's (rights.h) */
    int walks;       /* TREE_WALKS_NEVER to TREE_WALKS_ALWAYS, TREE_WALKS_AUTO */
    int merge_walks; /* the same, of what is logged and left to memory nodes to merge */
    int exchange_walks; /* the same, of changes whose leaf alone is not cached */
};
extern const struct option_entry tree_switches_table[];
/* Of enum tree_cache_policy, NULL-terminated. */
extern const char *const tree_cache_policies[];
/* Choices of an OPTION_SHARE of walks, from 0 to 100 percent. */
extern const char *const tree_walks_shares[];
/* "fg", "fg+", "+combine", "+onchip", "+hierarchical", "sherman", "banyan"; leaves cache_bytes alone.
 * BANYAN_EINVAL with the list. */
int tree_switches_preset(struct tree_switches *switches, const char *name, struct error *error);
/* The leaf that the preset's authors built. It belongs to an index's geometry and no switch can change it, so
 * an index that is made to measure the preset is given it. Any other name: hashed. */
enum format_leaf_kind tree_switches_leaf(const char *name);
/* NULL-terminated; from the second on in the order of the paper's ablation. */
extern const char *const tree_switches_presets[];

/* ---- life ---- */

struct format_link;
struct tree_compute;
struct tree_session;
struct tree;

int tree_compute_create(struct tree_compute **compute, struct fabric *fabric,
                        const struct tree_switches *switches, struct error *error);
void tree_compute_destroy(struct tree_compute *compute); /* after its trees, workers and sessions */
/* The handle on the pool that the compute node's workers are made of (pool_worker_create). Owned by it. */
struct pool *tree_compute_pool(const struct tree_compute *compute);
/* The worker must be of this compute node's pool. */
int tree_session_create(struct tree_session **session, struct tree_compute *compute,
                        struct pool_worker *worker, struct error *error);
void tree_session_destroy(struct tree_session *session);
/* What the layers above need for blocks, lists and calls of their own under this session's costs, incarnation
 * and last error (pool.h). Every operation of tree.h begins with pool_session_begin. */
struct pool_session *tree_session_pool(struct tree_session *session);
const struct error *tree_session_error(const struct tree_session *session);

/* Writes an empty catalogue to memory node 0; all that was there is gone. */
int tree_format(struct tree_session *session);
/* Whether tree_format was done to its end, and memory node 0 is not as it was made. BANYAN_ECORRUPT,
 * BANYAN_EVERSION: what is there is no catalogue of ours. */
int tree_formatted(struct tree_session *session, bool *formatted);
int tree_create(struct tree_session *session, const char *name, const struct format_geometry *geometry,
                struct tree **tree);
/* BANYAN_ENOTFOUND; BANYAN_ENOTSUP: it was made on a fabric with a larger atomic_write, and needs that. */
int tree_open(struct tree_session *session, const char *name, struct tree **tree);
void tree_close(struct tree *tree);
/*
 * Drops the index of this name with all that it holds. From its first step on no session can open it, and the
 * name is free. The memory comes back with the call: what others still have open stays safe to use, finds
 * nothing (BANYAN_ENOTFOUND, at the latest when the call returns) and is to be closed. `visit` (may be NULL)
 * gets every entry that goes, each leaf's once no session can find them any more, to free what they name; it
 * may use the session's lists and blocks, but start no operation of an index. Costs two round trips a node,
 * and 8 bytes of memory for each node of a level.
 *
 * BANYAN_ENOTFOUND: there is no such index. BANYAN_EBUSY: a range of it is another compute node's, or on its
 * way to one (rights.h), which the message names. After another error it may be half dropped: called again,
 * this goes on, and BANYAN_ENOTFOUND then says that nothing was left to do. BANYAN_EUNKNOWN: the network
 * failed after the first step. BANYAN_ECORRUPT: a damaged node hides what is behind it.
 */
typedef void tree_drop_function(void *context, const struct tree *tree, const void *key, size_t key_length,
                                const void *value, size_t length);
int tree_drop(struct tree_session *session, const char *name, tree_drop_function *visit, void *context);
/* Ends all drops that were begun and not ended; *count: how many. */
int tree_drop_finish(struct tree_session *session, tree_drop_function *visit, void *context, uint32_t *count);
/* How many there are. */
int tree_drop_count(struct tree_session *session, uint32_t *count);
const struct format_geometry *tree_geometry(const struct tree *tree);
/* Whether an operation of this compute node has found that the index was dropped. */
bool tree_is_dropped(const struct tree *tree);
/* Visits the catalogue's index names; not those of indexes that are being dropped. */
int tree_list(struct tree_session *session,
              void (*visit)(void *context, const char *name, const struct format_geometry *), void *context);

/* ---- point operations ---- */

/* *length in: capacity of value, out: the value's length. BANYAN_ENOTFOUND; BANYAN_EVALUESIZE if it does not
 * fit. */
int tree_lookup(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                void *value, size_t *length);
int tree_insert(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                const void *value, size_t length); /* BANYAN_EEXIST */
int tree_update(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                const void *value, size_t length); /* BANYAN_ENOTFOUND */
int tree_upsert(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                const void *value, size_t length);
int tree_delete(struct tree_session *session, struct tree *tree, const void *key,
                size_t key_length); /* ENOTFOUND */
/* BANYAN_ENOTFOUND, BANYAN_ECONFLICT (the value is not `expected`). */
int tree_compare_and_set(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                         const void *expected, size_t expected_length, const void *value, size_t length);

/* modify: called under the node's lock, once or more (after a restart), must not suspend. old is NULL when
 * there is no such key, and valid during the call. Returns what shall be done; for TREE_PUT it has written
 * the new value (at most the geometry's value_bytes) and *length.
 *
 * It may be called ON ANOTHER THREAD of this process, by a task that holds the lock (switch `delegate`),
 * while the calling task waits. So it may touch its context and what belongs to its own task alone: no
 * thread-local state, no session, no worker, nothing that another task changes without an atomic. tree_modify
 * sees all that it has written. tree_modify_here calls it on the calling task only, for functions that need
 * more. */
enum tree_verdict { TREE_KEEP, TREE_PUT, TREE_DELETE };
typedef enum tree_verdict tree_modify_function(void *context, const void *old, size_t old_length, void *value,
                                               size_t *length);
int tree_modify(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                tree_modify_function *function, void *context);
int tree_modify_here(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                     tree_modify_function *function, void *context);

/* ---- many keys at once: their round trips overlap ---- */

struct tree_item {
    const void *key;
    size_t key_length;
    void *value;
    size_t length; /* get: capacity in, length out; put: the value */
    int status;    /* out */
    /* put: NULL, or room for the geometry's value_bytes: gets the value that was replaced, if the caller is
     * the one that has to release what it names (logging.h: where the range is logged, a merging may have
     * to). All are to be believed where the status is 0. */
    void *old;
    size_t old_length; /* out */
    bool existed;      /* out; with `old` only */
    /* put: NULL, or a WRITE that must be done before the put takes effect, as tree_session_ahead. */
    const struct fabric_command *ahead;
    bool ahead_done; /* out: as tree_session_ahead_done */
    uint8_t met;     /* put, of what is merged (logging.h): how often the key was looked up, else 0 */
    /* put: NULL, or called at most once: where the put is done in place (tree/in_place.h), when it is in the
     * leaf, which nothing else can change before the call returns. It must not suspend, nor use the tree. A
     * put that is done in another way does not call it. */
    void (*placed)(void *context, struct tree_item *item);
    void *placed_context;
    /* put, of what is merged: NULL, or the key's leaf, which was located a moment ago. */
    const struct format_link *leaf;
};
int tree_multi_get(struct tree_session *session, struct tree *tree, struct tree_item *items, size_t count);
/* Upserts, each by itself; those of one key in the items' order. */
int tree_multi_put(struct tree_session *session, struct tree *tree, struct tree_item *items, size_t count);

/* ---- scans ---- */

struct tree_range {
    const void *from;
    size_t from_length;
    bool from_open; /* NULL from: unbounded; open: the bound itself is left out */
    const void *to;
    size_t to_length;
    bool to_open;
    bool reverse;   /* from the upper bound downwards */
    uint64_t limit; /* 0: none */
};
/* Entries in key order (descending if reverse). Return false from visit to stop. Key and value are valid
 * during the call only; visit must not use the session, and its task starts no
 * operation of an index meanwhile (whoever takes the range away waits for this scan: rights.h). Each leaf is
 * a consistent state; the scan as a whole is not one snapshot. */
typedef bool tree_visit_function(void *context, const void *key, size_t key_length, const void *value,
                                 size_t length);
int tree_scan(struct tree_session *session, struct tree *tree, const struct tree_range *range,
              tree_visit_function *visit, void *context);

/* While a scan's visit runs: the block that holds the entry's key; GADDR_NULL where its slot does. */
gaddr tree_scan_key_block(const struct tree_session *session);
/* Gives a long key another block, if it still lies in `block`; the entry stays as it is. *moved tells whether
 * it did. As tree_modify, an unknown outcome is BANYAN_EUNKNOWN: then neither block is freed. */
int tree_key_block_move(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                        gaddr block, bool *moved);

/* ---- places: where a scan may go on later, in a few bytes however long the keys are ---- */

/* A leaf. The key that it begins with never changes, whatever is inserted, removed, split or merged. */
struct tree_place {
    gaddr address;
    uint32_t tag;
};
struct tree_place_bound {
    size_t length;
    uint8_t bytes[FORMAT_KEY_MAX];
};
/* The leaf that begins next after the key, and the key that it begins with (which need not exist): all keys
 * of the index from there on are of that leaf or of later ones. One round trip. BANYAN_ENOTFOUND: the key's
 * leaf is the last. */
int tree_place_after(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                     struct tree_place *place, struct tree_place_bound *bound);
/* What the place's leaf begins with, also where it has left the index since. Of the tag only the bits of
 * `mask` are compared. The place may be of any origin: nothing but its leaf's header is read. One round trip.
 * BANYAN_ENOTFOUND: the leaf has left the index and its memory has been used for something else. */
int tree_place_find(struct tree_session *session, struct tree *tree, const struct tree_place *place,
                    uint32_t mask, struct tree_place_bound *bound);

/* A key of the index, each about equally likely; *length in: room, out: its length. BANYAN_ENOTFOUND: the
 * index is empty (or so sparse that none was met in many tries). */
int tree_sample(struct tree_session *session, struct tree *tree, void *key, size_t *length);

/* ---- sparse leaves ---- */

/* Where a walk over an index's leaves stands; all zeros: at its beginning. Good for one index. */
struct tree_merge_cursor {
    uint16_t length;
    uint8_t key[255];
};
struct tree_merge_report {
    uint32_t leaves; /* looked at */
    uint32_t merges; /* leaves that were given up: their entries are their left neighbours' now */
    bool ended;      /* the walk came to the end of the index, and begins anew with the next step */
};
/*
 * A step of a background walk: looks at leaves from the cursor on, about `budget` of them (one parent's at
 * least, up to 32), merges neighbours that fit into one together with room to spare, and moves the cursor.
 * Any number of sessions may walk, while others read and write. Leaves that no parent names together are left
 * as they are: those to both sides of an inner node's border, so one leaf for each lowest inner node stays.
 *
 * A round trip for up to 32 leaves, and five for each merge (eight where the two lie on different memory
 * nodes, one more with long keys). After an error the report tells what was done, the cursor is where it
 * was, and the walk may go on: BANYAN_ENET and BANYAN_EUNKNOWN leave no more undone than a death would;
 * BANYAN_EFENCED: a connection was lost, and who owns which range is not known anew yet (rights.h).
 */
int tree_merge_step(struct tree_session *session, struct tree *tree, struct tree_merge_cursor *cursor,
                    uint32_t budget, struct tree_merge_report *report);

/* ---- moving nodes ---- */

enum tree_move_outcome {
    TREE_MOVE_DONE,
    TREE_MOVE_THERE,     /* it lies there already */
    TREE_MOVE_ELSEWHERE, /* it does not lie where it was to be moved from; or there is no such level */
    TREE_MOVE_FIRST,     /* a leaf, the first of a range of the map of rights: it stays (rule O3) */
    TREE_MOVE_OTHERS,    /* a leaf of a range that is another compute node's to change */
    TREE_MOVE_FULL,      /* no room where it was to go */
    TREE_MOVE_LATER /* others were at work on it all the time, its range is on its way to another owner, its
                     * owner did not answer (and may have moved it all the same), or long keys get their new
                     * blocks on `from` again */
};
struct tree_move {
    const void *key; /* that the node's range holds; length 0: the least */
    uint32_t key_length;
    uint8_t level;
    uint16_t from; /* only if it lies on this memory node; POOL_ANY_NODE: wherever it lies */
    uint16_t to; /* POOL_ANY_NODE, of a leaf: it stays, and the blocks of its long keys leave `from`. Where it
                  * lies: it stays, and what is half done of it is finished */
    bool here;   /* asked for by a compute node that has not the right: nobody else is asked */
    enum tree_move_outcome outcome; /* out, where 0 is returned */
};
/*
 * Moves the node of this level whose range holds the key to another memory node (R8), while others read and
 * write it. Any number of sessions may, at once. What its slots refer to stays where it is. About eight round
 * trips: its keys cannot be changed during three of them. BANYAN_ENET, BANYAN_EUNKNOWN: what was begun is
 * ended by the session that meets it next. BANYAN_ENOSPC: it had to be split for it, and there is no room for
 * that.
 */
int tree_move_node(struct tree_session *session, struct tree *tree, struct tree_move *move);
/*
 * The walk over all nodes of an index, from its leaves upwards, that moves them. `where` says on which memory
 * node a node of so many bytes should lie that lies at `node` now: POOL_ANY_NODE, where it is. The highest
 * node of its subtree has this tag, as long as it is not moved itself, which it is last: a choice by the tag
 * keeps subtrees together. Of an index that is spread that is the node itself.
 */
struct tree_move_choice {
    uint16_t (*where)(void *context, gaddr node, uint32_t bytes, uint32_t top_tag);
    void *context;
    bool keys; /* the blocks of long keys leave `keys_from`, wherever their leaves lie */
    bool all;  /* nodes that no parent names yet are met as well: all are read, and what deaths and lost
                * connections have left undone is done. A round trip more for each step */
    uint16_t keys_from;
    /* Of a leaf that is the first of a range, and stays (TREE_MOVE_FIRST): the key that it begins with. May
     * be NULL. */
    void (*first)(void *context, const void *key, size_t key_length);
};
/* Where it stands; all zeros: at the beginning. Good for one index. */
struct tree_move_walk {
    uint8_t level;
    uint16_t length;
    bool ended;
    uint8_t again; /* looks at the nodes at hand */
    uint8_t key[255];
};
struct tree_move_report { /* added up */
    uint64_t nodes;       /* looked at */
    uint64_t outcomes[TREE_MOVE_LATER + 1];
    uint64_t bytes;                     /* of those moved */
    uint64_t keys[TREE_MOVE_LATER + 1]; /* leaves with long keys' blocks that were to go */
};
/* A step: nodes of one parent, 16 at most. After an error the walk may go on where it was. */
int tree_move_step(struct tree_session *session, struct tree *tree, struct tree_move_walk *walk,
                   const struct tree_move_choice *choice, struct tree_move_report *report);

/* ---- bulk load ---- */

/* Builds the index from a strictly ascending stream; the index must be empty, and none of its ranges another
 * compute node's (else tree_bulk_finish says BANYAN_EBUSY). The stream is cut into `parts` that are loaded by
 * one call of tree_bulk_part each, in parallel from different sessions (threads, compute nodes), and joined
 * by tree_bulk_finish. Nothing of it is logged, so tree_bulk_part says BANYAN_ENOTSUP where memory nodes keep
 * on disks what is. */
struct tree_bulk;
/* Called again and again for the part's next entry; false at its end. */
typedef bool tree_bulk_next_function(void *context, const void **key, size_t *key_length, const void **value,
                                     size_t *length);
int tree_bulk_begin(struct tree_bulk **bulk, struct tree *tree, unsigned parts, double fill,
                    struct error *error);
int tree_bulk_part(struct tree_session *session, struct tree_bulk *bulk, unsigned part,
                   tree_bulk_next_function *next, void *context);
int tree_bulk_finish(struct tree_session *session, struct tree_bulk *bulk); /* frees bulk, also on error */

/* ---- counters -------------------------------------------------------------------------------------------
 */

struct tree_stats {
    struct fabric_cost cost; /* everything this session did */
    uint64_t operations;
    uint64_t retries;                  /* reads and lock attempts that were repeated */
    uint64_t cache_hits, cache_misses; /* internal nodes wanted: found in the node cache or fetched */
    uint64_t splits, unlinks, merges, moves, handovers, snapshot_handovers;
    uint64_t unfinished; /* changes that were done, while an error left the parent's entry of their split, or
                            the rest of their unlinking, to the next session that meets it; and those of
                            unknown outcome that no operation tells of: entries of the log that are
                            merged, and borders that were cut short */
    uint64_t combined;   /* operations of other tasks that this one did under its lock */
    uint64_t walks;      /* requests to memory nodes to go down the tree */
    uint64_t walks_answered;     /* keys that these have answered */
    uint64_t walks_busy;         /* requests that were turned away */
    uint64_t merge_calls;        /* requests to memory nodes to merge what was logged */
    uint64_t merge_answered;     /* entries that these have merged */
    uint64_t merge_busy;         /* requests that were turned away */
    uint64_t exchanges;          /* requests to memory nodes to make a change in a leaf */
    uint64_t exchanges_answered; /* those that ended there: the change was made, or its condition not met */
    uint64_t exchanges_busy;     /* requests that were turned away */
};
/* They go on counting: copy what is to stay. */
const struct tree_stats *tree_session_stats(const struct tree_session *session);
void tree_session_stats_reset(struct tree_session *session);
/* What is known of walks at one memory node. */
struct tree_walks_figures {
    uint64_t walk_ns, read_ns; /* what a walk takes, and a READ: moving averages; 0: not measured */
    double share;              /* of walks, as it stands */
    uint64_t walks, reads;     /* decisions so far */
};
void tree_walks_figures(const struct tree_compute *compute, uint16_t node,
                        struct tree_walks_figures *figures);
/* The same of changes there: `walk_ns` is what a request takes, `read_ns` half of what the READ and the WRITE
 * take that it saves. */
void tree_exchanges_figures(const struct tree_compute *compute, uint16_t node,
                            struct tree_walks_figures *figures);
struct tree_cache_kind {
    uint64_t hits, misses; /* misses: wanted, and not found */
    uint64_t count, bytes;
    uint64_t admissions, evictions;
};
struct tree_cache_stats {
    uint64_t budget; /* bytes, for all that is cached */
    /* inner nodes; each session counts its own hits and misses (struct tree_stats) */
    uint64_t frames, bytes, admissions, evictions;
    /* of owned ranges: */
    struct tree_cache_kind leaves, entries; /* entries.count: 0 unless asked for (it looks at all of them) */
    struct tree_cache_kind values;          /* to which slots refer */
    uint64_t shortcut_hits;                 /* of entries.hits: they cost one round trip */
    uint64_t promotions, demotions;         /* between shortcut and value (policy dinomo) */
    uint64_t placed; /* of entries.hits: changes that knew their slot by them, and READ nothing */
    uint64_t busy;   /* met a write under way, and read the pool instead */
};
void tree_cache_stats(const struct tree *tree, struct tree_cache_stats *stats);

/* ---- what slots refer to: values.c ---- */

/*
 * A store keeps what does not fit into a slot elsewhere, under a reference in the slot (content
 * FORMAT_CONTENT_STORE). Such values are cached beside leaves and entries, within their budget.
 *
 * What a reference names must never change, and no other value may ever get it: whoever has it from the slot
 * has the value. So nothing is told of a change of ranges, and nothing is dropped for one. From the task that
 * works with the session, outside of the index's operations. No round trips. Where nothing is cached (memory
 * is mapped, policies inner and dex) nothing is found, and nothing is kept.
 */
struct tree_reference {
    uint64_t words[2]; /* as they stand in the slot */
    uint64_t key;      /* a hash of its key */
};
/* True: the value, of this length, and what was given with it. */
bool tree_value_find(struct tree_session *session, const struct tree *tree,
                     const struct tree_reference *reference, void *to, uint32_t length, uint64_t *note);
/* A put in a logged range is not told what the key's leaf holds. Right after it: what the cache knows of
 * that, with FORMAT_VALUE_MAX bytes of room. */
bool tree_value_before(const struct tree_session *session, void *value, uint32_t *length);
/* It was READ and validated, `looked_up`: right after this session's lookup of its key. Or it was written in
 * place of the value that `before` names (NULL: of none), right after this session's put of it. Where there
 * is no room it is let in only if it saves more than what must go. */
void tree_value_offer(struct tree_session *session, const struct tree *tree,
                      const struct tree_reference *reference, const void *bytes, uint32_t length,
                      uint64_t note, bool looked_up, const struct tree_reference *before);
/* What the key's slot holds by now, as far as that is known here; with room as above. To be asked behind an
 * offer: another task may have replaced the value, and forgotten it, before it was offered, and then it has
 * to be forgotten again, or it takes up room. False: nothing is known. */
bool tree_value_now(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                    void *value, uint32_t *length);
/* Nobody can come by the reference any more. */
void tree_value_forget(struct tree_session *session, const struct tree *tree,
                       const struct tree_reference *reference);

/* ---- checking ---- */

struct tree_check_report {
    uint64_t entries, leaves, internals, height, bytes; /* bytes: of nodes and key blocks */
    uint64_t key_blocks;
    uint64_t dead, marked;    /* unlinked-but-not-dropped and half-split nodes met (legal after a crash) */
    uint64_t frozen;          /* leaves whose merge was not ended (legal after a crash) */
    uint64_t missing_parents; /* nodes reachable by sibling links only (legal after a crash) */
    /* Where subtrees are placed: links within them, and how many of those lead to another memory node (legal:
     * one was full). */
    uint64_t subtree_links, subtree_links_away;
    uint64_t problems; /* broken invariants met */
};
/* All of them may be NULL; none may start an operation of the index. */
struct tree_check_visitor {
    void (*node)(void *context, gaddr node, uint32_t bytes); /* every node and key block in use */
    /* Every entry, leaf by leaf. May read blocks with pool_lists_execute. Other than 0 ends the check. */
    int (*entry)(void *context, const void *key, size_t key_length, const void *value, size_t length);
    /* A sentence for each broken invariant, with its address; the walk goes on behind it where it can. */
    void (*problem)(void *context, const char *text);
    void *context;
};
/* Walks the whole index (nothing else may write): fences, order, links, levels, tags, checks. 0 when the walk
 * was made, whatever it found. Lost connections do not end it. Without `problem` it ends at the first fault,
 * with BANYAN_ECORRUPT. */
int tree_check_all(struct tree_session *session, struct tree *tree, const struct tree_check_visitor *visitor,
                   struct tree_check_report *report);
/* The same where only soundness is asked: BANYAN_ECORRUPT names the first node at fault. */
int tree_check(struct tree_session *session, struct tree *tree, struct tree_check_report *report,
               void (*visit_node)(void *context, gaddr node, uint32_t bytes), void *context);
#endif
