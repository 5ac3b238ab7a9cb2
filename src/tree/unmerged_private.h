/*
 * unmerged_private.h - the objects behind unmerged.h. Private to unmerged.c and unmerged_order.c.
 *
 * LOCKS. A node lies in the hash table of its shard, and what it holds is guarded by the shard's lock. It is
 * in the ordered list while it holds something; that list has a lock of its own, which is taken inside a
 * shard's, never the other way round. Who has found a node in the ordered list, in an epoch, takes its
 * shard's lock behind that, and looks whether it still is.
 */
#ifndef TREE_UNMERGED_PRIVATE_H
#define TREE_UNMERGED_PRIVATE_H

#include "base/atomic.h"
#include "base/random.h"
#include "base/wakeup.h"
#include "tree/unmerged.h"

#define UNMERGED_SHARDS 64u
#define UNMERGED_LEVELS 20u

struct unmerged_wait {
    struct unmerged_wait *next;
    void *work; /* NULL: its task does that itself */
    bool taken; /* another has done it */
    struct wakeup wakeup;
};

struct unmerged_value {
    bool present, deleted;
    bool leafed;  /* its leaf may have it already */
    bool fragile; /* pending: see unmerged_mark */
    bool ended; /* committed: a change has taken its place, and more of that change's frame are to come. What
                   it names is freed already, or by the merging under way; no other merging takes it */
    uint8_t length;
    uint64_t sequence; /* of what is committed or doubtful */
    uint8_t *bytes;    /* in the node's memory */
};

struct unmerged_node {
    struct unmerged_node *chain; /* of its bucket */
    uint64_t hash;
    /* guarded by the shard's lock: */
    struct unmerged_value committed, pending;
    const struct unmerged_frame *frame; /* of `pending`; NULL: it is doubtful */
    uint32_t index;                     /* in it, of what is pending */
    uint32_t waits;                     /* tasks in `waiting` */
    uint64_t doubtful; /* with `doubt`: the least sequence under which it may be in the log */
    struct unmerged_wait *waiting, **last; /* for the latch */
    struct wakeup *awaiting;               /* the latch's holder waits for the fate of what is pending */
    bool latched, merging;
    bool dropped;    /* while it was being merged: that must not reach the leaf */
    bool overtaken;  /* what is being merged is the key's no more, and its leaf had not got it before */
    bool doubt;      /* what is pending was in a frame that may have been written or not */
    bool listed;     /* also under the order's lock: in the ordered list */
    uint64_t merged; /* the sequence of what is being merged */
    uint16_t key_length;
    uint8_t levels;
    uint8_t met; /* by lookups, in rough steps */
    uint8_t *key;
    struct unmerged_node *next[]; /* `levels`; guarded by the order's lock */
};

struct unmerged_shard {
    struct spinlock lock;
    uint32_t count, capacity; /* capacity: of `buckets`, a power of two */
    struct unmerged_node **buckets;
};

struct unmerged {
    uint32_t value_bytes;
    uint64_t entries, bytes; /* atomic, relaxed: for statistics */
    struct unmerged_shard shards[UNMERGED_SHARDS];
    struct spinlock order;
    /* guarded by `order`: */
    struct random random;
    struct unmerged_node *stranded; /* taken away, and not freed yet */
    struct unmerged_node *heads[UNMERGED_LEVELS];
    uint32_t levels;
};

static inline struct unmerged_shard *unmerged_shard(struct unmerged *table, const struct unmerged_node *node)
{
    return &table->shards[node->hash % UNMERGED_SHARDS];
}
static inline struct format_key unmerged_key(const struct unmerged_node *node)
{
    return (struct format_key){node->key, node->key_length};
}

/* Under the shard's lock. */
static inline bool unmerged_mergeable(const struct unmerged_node *node)
{
    return node->committed.present && !node->committed.ended && !node->merging;
}

/* ---- unmerged_order.c; the shard's lock is held ---- */

void unmerged_list(struct unmerged *table, struct unmerged_node *node);
void unmerged_unlist(struct unmerged *table, struct unmerged_node *node);

/* ---- unmerged.c; the shard's lock is held ---- */

/* Takes the node away if it holds nothing and no task needs it. */
void unmerged_reap(struct unmerged *table, struct epoch_slot *slot, struct unmerged_node *node);
/* The committed value is being merged from now on. */
void unmerged_merge_of(struct unmerged_node *node, struct unmerged_merge *merge);
/* How many levels a new node gets. */
uint8_t unmerged_draw_levels(struct unmerged *table);

#endif
