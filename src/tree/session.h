/*
 * session.h - a task's session with the tree, and the compute node it belongs to: buffers, and what the
 * operation under way has counted. Private to src/tree/. One task at a time uses a session; nothing here
 * makes a round trip.
 */
#ifndef TREE_SESSION_H
#define TREE_SESSION_H

#include "base/random.h"
#include "format/internal_node.h"
#include "format/leaf.h"
#include "memory/walk_message.h"
#include "tree/homes.h"
#include "tree/lock.h"
#include "tree/logging.h"
#include "tree/owned_cache.h"
#include "tree/owned_cache_waits.h"
#include "tree/rights.h"
#include "tree/tree.h"

/* Internal verdicts, never seen by callers of tree.h. */
#define TREE_RESTART   1  /* locate the node again, from what the cache now says */
#define TREE_SIDEWAYS  2  /* the path leads to the right sibling now: go on there */
#define TREE_DEAD      3  /* the node is dead: its header tells which node must be unlinked */
#define TREE_LOW       4  /* the tree has no such level */
#define TREE_ANSWERED  5  /* not locked: the holder of the lock was to do the operation (delegate.h) */
#define TREE_ANEW      6  /* the operation begins again, and looks up its right first (turn.h) */
#define TREE_FORWARD   7  /* the owner of the range has to do it */
#define TREE_FOREIGN   8  /* a leaf of another row is in the way, half done: session->foreign */
#define TREE_WAIT      9  /* the range is on its way to another owner, or its owner refused: later */
#define TREE_LAPSED    10 /* O2: it was answered from the cache, and the read lease has lapsed */
#define TREE_BY_LOCK   11 /* not done in place: the leaf's lock has to be taken (in_place.h) */
#define TREE_WALKED    12 /* session->finding has its answer */
#define TREE_EXCHANGED 13 /* a memory node has made the change, and the lock is given up */

/* How often one node is read again before its lock is taken, to tell a busy node from a corrupt one. */
#define TREE_PATIENCE 32u
/* Restarts of one operation before it gives up. */
#define TREE_RESTARTS_MAX 10000u
/* How often an operation meets what no stale link can lead to before it calls it corrupt. */
#define TREE_ASTRAY_MAX 3u

struct tree_access;
struct tree_apply;
struct tree_batch;
struct tree_drop;
struct tree_gather;
struct tree_leaf_entry;
struct crc32c_piece;
struct tree_lock_table;
struct tree_merges;
struct tree_merging;
struct tree_rights;
struct tree_row;
struct tree_finding;
struct tree_table;
struct tree_walks;

struct tree_compute {
    struct pool *pool; /* owned */
    struct tree_switches switches;
    struct tree_lock_table *locks;
    const struct tree_access *owned_access; /* how leaves of owned ranges are reached */
    bool membarrier;                        /* the kernel has it (announce.h) */
    struct spinlock lock;                   /* guards the two lists */
    struct tree_session *sessions;          /* all of them, for adopt */
    struct tree_rights *rights;             /* of the indexes that are open */
    uint64_t deaths;                        /* of leaves, by this process (parent.h); atomic */
    struct tree_forward forward;            /* set before any table names another owner */
    void *forward_context;
    struct tree_selectors *walks;     /* owned; NULL: memory nodes are not asked to walk */
    struct tree_selectors *merges;    /* owned; NULL: ... nor to merge */
    struct tree_selectors *exchanges; /* owned; NULL: ... nor to make clients' changes */
    struct homes homes;               /* of subtrees that begin */
    struct tree_log log;              /* set before any table has a logged row */
    void *log_context;
};

/* What is known of a leaf: bytes read under its lock, or handed over with it. */
struct tree_image {
    uint8_t *bytes;
    uint32_t capacity;
    gaddr address;                      /* GADDR_NULL: nothing is known */
    const struct format_layout *layout; /* of the leaf: of the handle that this session works with */
    bool header;
    uint64_t buckets[FORMAT_BUCKETS_MAX / 64];
};

/* A leaf that is half done, or dead, and not of the row that the operation relies on. */
struct tree_foreign {
    struct format_link link;
    struct format_key_copy lower;
};

/* A key that the writes to its leaf are about to change, and what it will hold. */
struct tree_note {
    struct format_key key, value;
    struct owned_place place;
    struct owned_mark mark; /* of a write under way */
    bool known;             /* `value` */
    bool placed;            /* `place` */
    bool merged;            /* `leaf`, `hits` */
    uint8_t hits;
    struct format_link leaf;
};
#define TREE_NOTES_MAX 50u /* a holder's own change and those that it does for others (delegate.h) */

struct tree_session {
    struct pool_session pool; /* the fabric, costs, last error */
    struct tree_compute *compute;
    /* The right of the operation under way (announce.h). */
    uintptr_t announced; /* atomic: the row, or the table, that it relies on; 0: none */
    const struct tree_table *table;
    const struct tree_row *row;
    const struct tree_access *access; /* how it reaches leaves */
    enum tree_right right;
    bool logged;                /* the row is (rights.h): its changes go into its owner's log ... */
    uint64_t log_epoch;         /* ... under its epoch */
    bool unkept;                /* no key of the row is changed: rights.h */
    bool wants_log;             /* the operation is a change that waits, as the row is */
    struct format_key_copy met; /* lower bound of the last row that was MOVING: tree_session_met */
    uint64_t met_epoch;
    bool through;  /* but for this session's now: it merges */
    bool draining; /* and may do so in rows that are on their way from this process ... */
    bool drains;   /* ... of which this is one */
    bool replaced; /* of the last change: tree_session_replaced */
    const struct fabric_command *ahead; /* tree_session_ahead */
    uint32_t ahead_count;
    bool ahead_done;
    const struct fabric_command *at_hand; /* tree_session_at_hand */
    uint32_t at_hand_count;
    struct owned_busy busy; /* of what it served: not to be told (owned_cache_use.h) */
    bool served;            /* the last read of a leaf came from the cache */
    uint32_t entry_hits;  /* of the entry that the last lookup found, or what the table of the log counts; 0:
                             none */
    uint64_t entry_draws; /* random numbers drawn to count hits with */
    struct tree_note notes[TREE_NOTES_MAX]; /* owned_cache_use.h */
    uint32_t note_count;
    struct {
        bool known;
        uint32_t length;
        uint8_t bytes[FORMAT_VALUE_MAX];
    } leaf_value;      /* what the cache knows of the leaf's value of the key that was logged last */
    uint8_t merge_met; /* of the entry that is merged by itself (unmerged.h) */
    bool cached; /* its answer rests on what this compute node knows, and no list has proven the right: O2 */
    struct fabric_process owner;        /* of a row that is another's */
    struct tree_foreign foreign;        /* TREE_FOREIGN */
    struct tree_announcer *announcers;  /* rights.h */
    struct tree_announcer *withdrawn;   /* of these; NULL: none is, or it has announced itself again */
    struct tree_session *next, *before; /* of the compute node's list */
    struct tree_stats stats;            /* the cost in it is counted by the session of the pool */
    struct tree_image image;            /* the leaf under way */
    uint8_t *scratch;                   /* a second node, or an internal one */
    uint32_t scratch_capacity;
    uint8_t *spare; /* a third: new siblings */
    uint32_t spare_capacity;
    uint8_t *wide; /* many leaves: scans and multi-gets */
    size_t wide_capacity;
    struct tree_finding *finding;       /* of the operation under way: walk.h; NULL: it wants a path */
    uint32_t leaves;                    /* with its path it wants so many, for the next tree_locate: walk.h */
    uint8_t *walk_request, *walk_reply; /* of walk.c; owned */
    uint32_t walk_request_capacity, walk_reply_capacity;
    struct tree_brought {
        struct memory_walk_reader rest; /* in walk_reply: what was not taken yet; zeros: nothing */
        uint64_t moment;                /* of before the request: owned_cache_use.h */
    } brought;                          /* leaves: walk.h */
    uint64_t walk_draws;
    struct tree_batch *batch;     /* of multi.c; owned */
    struct tree_apply *apply;     /* of apply.c; owned */
    struct tree_merging *merging; /* of merging.c; owned */
    uint64_t merge_draws, exchange_draws;
    struct fabric_command
        *list; /* FABRIC_COMMANDS_MAX: the list of a holder with others' operations; owned */
    struct tree_waiter waiter;
    uint32_t looks;                  /* of lock.c: how often it looks for a lock before it parks */
    struct unmerged_run run;         /* of the scan under way; owned */
    struct crc32c_piece *order;      /* of one leaf's entries; owned */
    struct tree_leaf_entry *entries; /* of one leaf, sorted; owned */
    uint8_t *keys;                   /* the entries' keys, where they must be put together; owned */
    uint32_t entries_capacity, keys_capacity;
    struct tree_gather *gather; /* of keyblocks.c; owned */
    struct tree_frame *passing; /* of locate.c: what the cache does not keep; owned */
    struct tree_drop *drop;     /* of drop.c, while it drops an index; owned */
    gaddr visited_block;        /* of the key of the entry that a scan is visiting */
    gaddr stranger;             /* key block that did not hold its slot's key when a leaf was last laid out */
    struct format_entry internal[FORMAT_ENTRIES_MAX + 1]; /* of the internal node in scratch */
    gaddr appended; /* newest child at the right end of an internal node: keys may be coming in order */
    struct random sample_random; /* of sample.c, as is the greatest weight met of late in that tree */
    double sample_weight;
    const struct tree *sample_tree; /* compared only: it may have been closed */
    uint32_t restarts;              /* of the operation under way */
    uint32_t walked;                /* sibling links followed, of the operation under way */
    uint32_t astray;                /* calls of tree_astray, of the operation under way */
    uint32_t aways;                 /* links to memory nodes that were removed, of the operation under way */
    uint32_t invalid; /* nodes that failed their check under their lock, of the operation under way */
    struct format_key_copy walked_past; /* upper fence key of the node that the path walked right from last */
    uint32_t miss_share;       /* of recent lookups, in 1/65536: tells whether to read the header at once */
    uint32_t entries_estimate; /* per leaf, times 16: moving average of what scans met */
};

/* ---- the operation under way ---- */

/* Begins an operation: no restarts, no image, buffers as large as the tree's nodes. BANYAN_ENOMEM. */
int tree_begin(struct tree_session *session, struct tree *tree);
/*
 * Whether the operation must begin again, because the compute node lost a connection since it began
 * (pool_session_again), or because what was cached of the tree led to a memory node that has been removed,
 * and is forgotten now (R6). Then *status is 0, and the image is no longer known. The operation must have
 * given up all its locks. False with TREE_WAIT: the map of rights must be fetched anew before that
 * (announce.h). `tree`: whose links it follows; NULL: those of the catalogue alone.
 */
bool tree_again(struct tree_session *session, struct tree *tree, int *status);
/* Counts a restart of the operation; BANYAN_ECORRUPT when there were too many. */
int tree_restart(struct tree_session *session, gaddr node);
/*
 * The way led to a node that lies left of the key, or on another level, or does not begin where its left
 * neighbour ends. A node's level and lower fence key never change, so no stale link leads to such a node:
 * counts a restart, and after TREE_ASTRAY_MAX of them answers BANYAN_ECORRUPT.
 */
int tree_astray(struct tree_session *session, gaddr node);
/*
 * A node failed its check although its lock is held. A new node is written without its own lock, since no
 * link leads to it yet; so a session that follows a stale link into reused memory may see it half written:
 * TREE_RESTART. A node that fails again and again is corrupt.
 */
int tree_invalid(struct tree_session *session, gaddr node, const char *what);

/* ---- buffers and arguments ---- */

/* Makes room in one of the session's buffers; what it held is lost. */
int tree_reserve(struct tree_session *session, uint8_t **buffer, uint32_t *capacity, uint32_t bytes);
/* The same for session->wide. A multiple of 64. */
int tree_reserve_wide(struct tree_session *session, size_t bytes);
/* drop.c: frees what a drop kept whose task ended in the middle of it. */
void tree_drop_abandon(struct tree_session *session);
/* Makes the session's buffers as large as the tree's nodes. */
int tree_buffers(struct tree_session *session, const struct tree *tree);
/* The CPU's work on what was read of a leaf, for runtimes that charge it: a bucket, whose slots each have a
 * check, or the whole leaf, as published indexes read it, whose entries are only compared. */
void tree_charge_bucket(const struct format_layout *layout);
void tree_charge_leaf(const struct tree_session *session, const struct format_layout *layout);
/* A checksum over a whole leaf: with the switch node-check, of each that is read or written as a whole. */
void tree_charge_checksum(const struct format_layout *layout);
/* BANYAN_EINVAL or BANYAN_EKEYSIZE, if this cannot be a key of the index. */
int tree_key_check(struct tree_session *session, struct tree *tree, const void *key, size_t length);
/* Whether a value of the index can have so many bytes. */
bool tree_value_fits(const struct tree *tree, size_t length);
/* BANYAN_EINVAL or BANYAN_EVALUESIZE, if this cannot be a value of the index. */
int tree_value_check(struct tree_session *session, struct tree *tree, const void *value, size_t length);

#endif
