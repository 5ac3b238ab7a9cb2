/*
 * state.h - the objects behind tree.h, and the functions that its files share. Private to src/tree/.
 *
 * File by file, in reading order:
 *   session    objects, buffers                          lock       HOCL: local queues over global words
 *   access     how leaves are reached and changed      access_one_sided  ... by READ, WRITE and locks
 *   cache      frames of internal nodes                  locate     from a key to the node that covers it
 *   lookup     point reads (R1, R2)                      modify     point writes
 *   entries    a leaf's entries in key order             keyblocks  long keys
 *   split      leaf splits (R3)                          parent     entries of internal nodes
 *   unlink     empty nodes leave the tree (R4)           scan       ranges (R5)
 *   multi      many keys at once                         bulk       building from a sorted stream
 *   catalogue  named indexes and their roots             check      walking everything
 *   drop       an index and all that it holds go away   sample     a random key
 */
#ifndef TREE_STATE_H
#define TREE_STATE_H

#include "base/atomic.h"
#include "base/epoch.h"
#include "base/random.h"
#include "base/task.h"
#include "format/internal_node.h"
#include "format/leaf.h"
#include "format/verdict.h"
#include "tree/tree.h"

/* Internal verdicts, never seen by callers of tree.h. */
#define TREE_RESTART  1 /* look for the node again, from what the cache now says */
#define TREE_DEAD     3 /* the node is dead: its header tells who is to be unlinked */
#define TREE_SIDEWAYS 2 /* the path leads to the right sibling now: go on there */
#define TREE_LOW      4 /* the tree has no such level */

/* Reads of one node done again before its lock is taken to tell a busy node from a corrupt one. */
#define TREE_PATIENCE 32u
/* Restarts of one operation before it gives up: only a tree that leads in circles needs so many. */
#define TREE_RESTARTS_MAX 10000u

struct tree_local_lock;
struct tree_access;
struct tree_cache;
struct tree_gather;

struct tree_compute {
    struct pool *pool; /* owned */
    struct tree_switches switches;
    struct tree_lock_table *locks;
};

/* A lock held, or about to be. */
struct tree_hold {
    gaddr word;     /* of the 8 bytes that hold the lock */
    uint32_t shift; /* of the lock within them */
    uint64_t mask;
    struct tree_local_lock *local;
    uint64_t incarnation; /* under which the word is taken: of the operation that holds the lock */
    bool global;          /* the lock word is ours already: handed over */
    bool unheard;         /* handed over, and no list has been run under it yet: it may be lost (locks.md) */
    bool handing;         /* release passes it on */
};

/* What is known of a leaf: bytes read under its lock, or handed over with it. */
struct tree_image {
    uint8_t *bytes;
    uint32_t capacity;
    gaddr address; /* GADDR_NULL: nothing is known */
    bool header;
    uint64_t buckets[FORMAT_BUCKETS_MAX / 64];
};

struct tree_waiter {
    struct tree_session *session;
    struct task *task;
    struct tree_waiter *next;
    gaddr node;           /* that the waiter wants to change */
    uint64_t incarnation; /* of its operation */
    uint32_t granted;     /* set with release ordering by the releaser, read with acquire by the waiter */
    bool handed, snapshot;
};

struct tree_leaf_entry {
    uint64_t head; /* of the key: sorts all but a few */
    struct format_key key, value;
    gaddr block;     /* of a long key; else GADDR_NULL */
    uint32_t number; /* of its slot */
};

/* Where in its leaf an entry is, by key order. */
struct tree_leaf_order {
    uint64_t head;
    uint32_t at;
};

struct tree_session {
    struct pool_session pool; /* the fabric, costs, last error */
    struct tree_compute *compute;
    struct tree_stats stats; /* all but the cost, which the pool's session counts */
    struct tree_image image; /* the leaf under way */
    uint8_t *scratch;        /* a second node, or an internal one */
    uint32_t scratch_capacity;
    uint8_t *spare; /* a third: new siblings */
    uint32_t spare_capacity;
    uint8_t *wide; /* many leaves: scans and multi-gets */
    size_t wide_capacity;
    struct tree_batch *batch; /* of multi.c; owned */
    struct tree_waiter waiter;
    struct tree_leaf_order *order;   /* of one leaf's entries; owned */
    struct tree_leaf_entry *entries; /* of one leaf, sorted */
    uint8_t *keys;                   /* theirs, where they must be put together */
    uint32_t entries_capacity, keys_capacity;
    struct tree_gather *gather; /* of keyblocks.c; owned */
    gaddr stranger;             /* key block that did not hold its slot's key when a leaf was last laid out */
    struct format_entry internal[FORMAT_ENTRIES_MAX + 1]; /* of the internal node in scratch */
    gaddr appended; /* newest child at the right end of an internal node: keys may be coming in order */
    struct random sample_random; /* of sample.c, with the greatest weight met of late in that tree */
    double sample_weight;
    const struct tree *sample_tree; /* compared only: it may be gone */
    uint32_t restarts;              /* of the operation under way */
    uint32_t walked;                /* sibling links followed, of the operation under way */
    uint32_t invalid;    /* nodes that failed their check under their lock, of the operation under way */
    uint32_t miss_share; /* of the lookups of late, in 1/65536: is the header worth reading at once? */
    uint32_t entries_estimate; /* per leaf, times 16: moving average of what scans met */
};

struct tree {
    struct tree_compute *compute;
    const struct tree_access *access; /* how leaves are reached and changed (access.h) */
    struct format_layout layout;
    char name[TREE_NAME_MAX + 1];
    uint32_t entry;      /* its number in the catalogue */
    uint16_t generation; /* of the entry: earlier indexes of it have been dropped */
    uint16_t index;      /* in the header of each node: from the entry and its generation */
    bool dropped;        /* relaxed: somebody of this compute node has seen that; never false again */
    gaddr root_word;     /* in the catalogue */
    struct spinlock root_lock;
    struct format_link root; /* under root_lock; address 0: not known */
    uint8_t root_level;
    struct tree_cache *cache;
};

/* ---- session.c ---- */

/*
 * The operation under way came to *status: true if it is to be done again from its start. It is where it was
 * refused because it began before a loss: EFENCED says that what it was about has not been done, for every
 * list with its effect is the last that it posts. Begins it anew, with *status 0. Ends by itself: each time
 * takes another loss. All locks must have been given up.
 */
bool tree_again(struct tree_session *session, int *status);
/*
 * A node failed its check although its lock is held. A new node is written without its own lock (nobody knows
 * it yet), so who follows a stale link into reused memory may see it half written: TREE_RESTART. A node that
 * does so again and again is corrupt.
 */
int tree_invalid(struct tree_session *session, gaddr node, const char *what);
/* Counts a restart of the operation; BANYAN_ECORRUPT when there were too many. */
int tree_restart(struct tree_session *session, gaddr node);
/* Makes room in one of the session's buffers. */
int tree_reserve(struct tree_session *session, uint8_t **buffer, uint32_t *capacity, uint32_t bytes);
/* The same for session->wide. A multiple of 64. */
int tree_reserve_wide(struct tree_session *session, size_t bytes);
int tree_begin(struct tree_session *session, struct tree *tree);
/* The session's buffers are as large as the tree's nodes. */
int tree_buffers(struct tree_session *session, const struct tree *tree);
int tree_key_check(struct tree_session *session, struct tree *tree, const void *key, size_t length);
int tree_value_check(struct tree_session *session, struct tree *tree, const void *value, size_t length);

/* ---- lock.c ---- */

#define TREE_LOCK_READS_MAX 3u /* that tree_lock runs with the CAS */
struct tree_lock_table;
struct tree_lock_table *tree_lock_table_create(void);
void tree_lock_table_destroy(struct tree_lock_table *table);
/* Takes the lock of a node and runs `reads` (of the same memory node) once it is held: together with the CAS
 * where everything is combined. With `wanted` the releaser may hand over its image of this leaf: then
 * hold->global is set, image->address is `node`, and the reads are left to the caller. 0 with the lock held,
 * or an error without. */
int tree_lock(struct tree_session *session, gaddr node, bool wanted, struct fabric_command *reads,
              uint32_t count, struct tree_hold *hold);
/* Takes the local lock if nobody has it. For callers that hold other locks already. */
bool tree_lock_try_local(struct tree_session *session, gaddr node, struct tree_hold *hold);
void tree_lock_abandon_local(struct tree_session *session, struct tree_hold *hold);
/* A list whose first command was `lock` failed: frees the lock if that command had taken it before. */
void tree_lock_give_back(struct tree_session *session, const struct tree_hold *hold,
                         const struct fabric_command *lock, int status);
/* Where the node's global lock is; others may share it. */
gaddr tree_lock_name(const struct tree_session *session, gaddr node);
struct fabric_command tree_lock_command(const struct tree_session *session, const struct tree_hold *hold);
/* Runs `writes` (room for one more command is needed behind them) and releases the lock, in the same list, or
 * hands it over with the session's image. The error of the writes is returned; the lock is given up in any
 * case. */
int tree_unlock(struct tree_session *session, struct tree_hold *hold, struct fabric_command *writes,
                uint32_t count);
/* Gives the lock up with nothing written and passes `verdict` on, unless the release failed. What looks
 * corrupt may be a leaf that is not ours any more (another memory node's answers do not tell), so then the
 * lock is not handed over: the answer to its release says whether it was held. */
int tree_unlock_with(struct tree_session *session, struct tree_hold *hold, int verdict);
/* A list of the caller's own, whose last command was the unlock, came to `status`: sees to it that the lock
 * is free, and gives up the local one. */
void tree_lock_abandon(struct tree_session *session, struct tree_hold *hold, int status);
struct fabric_command tree_unlock_command(const struct tree_session *session, const struct tree_hold *hold);

/* ---- cache.c ---- */

#define TREE_PREFIX_MAX 40u

/*
 * A decoded copy of an internal node. Immutable but for `children` and `used`; read between epoch_enter and
 * epoch_leave. What a descent needs comes first, and the heads follow the struct: a search touches few cache
 * lines.
 */
struct tree_frame {
    struct format_link link;
    uint8_t level;
    bool has_upper;
    bool whole; /* keys are eight bytes: heads are all there is to compare */
    uint16_t count;
    uint32_t common;                 /* bytes that all keys but the first share: of `prefix` */
    uint32_t used;                   /* the cache's clock when it was last used */
    uint64_t lower_head, upper_head; /* of the fences' first eight bytes */
    const struct format_link *links;
    struct tree_frame **children; /* [count], swizzled, NULL where unknown; NULL array on level 1 */
    uint8_t prefix[TREE_PREFIX_MAX];
    /* seldom needed */
    struct format_link sibling;
    struct format_key lower, upper;
    const uint8_t *image;
    /* the cache's own, under its lock */
    struct tree_frame *parent;
    struct tree_frame *next;
    uint32_t parent_entry, place, bytes, cached_children;
    /* [count]: of each key but the first, the eight bytes behind the common ones */
    uint64_t heads[] __attribute__((aligned(64)));
};

struct tree_cache *tree_cache_create(uint64_t bytes, const struct format_layout *layout);
void tree_cache_destroy(struct tree_cache *cache);
/* In an epoch. NULL when it is not cached under this tag. */
struct tree_frame *tree_cache_find(struct tree_cache *cache, struct format_link link);
/*
 * Decodes a valid image into a frame and publishes it in place of an older one; false if the node is
 * malformed or memory short. `entries` is room to work in, FORMAT_ENTRIES_MAX of them: too much for a fiber's
 * stack.
 */
bool tree_cache_install(struct tree_cache *cache, struct epoch_slot *slot, gaddr address,
                        const uint8_t *image, struct format_entry *entries);
void tree_cache_forget(struct tree_cache *cache, struct epoch_slot *slot, struct format_link link);
/* In an epoch: the frame was used. */
void tree_cache_touch(struct tree_cache *cache, struct tree_frame *frame);
/* In an epoch: remembers that entry `entry` of parent leads to child. */
void tree_cache_swizzle(struct tree_cache *cache, struct tree_frame *parent, uint32_t entry,
                        struct tree_frame *child);
void tree_cache_count(const struct tree_cache *cache, struct tree_cache_stats *stats);
/* The entry whose range holds the key (before: what lies just below the key), if the key is within the
 * frame; the first one if it lies left of it, the last one if right. */
uint32_t tree_frame_search(const struct format_layout *layout, const struct tree_frame *frame,
                           struct format_key key, bool before);
struct format_key tree_frame_key(const struct format_layout *layout, const struct tree_frame *frame,
                                 uint32_t entry);

/* ---- locate.c ---- */

struct tree_path {
    struct format_link link;   /* the node looked for, as far as the cache knows: it may have split since */
    struct format_link parent; /* the internal node that named it; address 0: it is the root */
    bool direct;               /* parent's entry leads to it, no sibling link was followed */
    bool fresh;                /* parent was fetched by this very call */
};
/* The node of `level` that covers the key, or with `before` what lies just below it. TREE_LOW: the tree is
 * not that high. BANYAN_ENOTFOUND: the index was dropped. */
int tree_locate(struct tree_session *session, struct tree *tree, struct format_key key, bool before,
                uint8_t level, struct tree_path *path);
/* Fetches an internal node into the cache. 0, TREE_RESTART (another node lies there now, or a dead one), or
 * an error. */
int tree_frame_fetch(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t level);
/* The path led astray (dead or reused node): forgets what named it. */
void tree_path_forget(struct tree_session *session, struct tree *tree, const struct tree_path *path);
/* The path's node has split: continues at its sibling, forgets the stale parent, and where a fresh parent did
 * not know of the sibling, posts the missing entry. `upper` is the node's upper fence. */
int tree_path_right(struct tree_session *session, struct tree *tree, struct tree_path *path,
                    struct format_key upper, struct format_link sibling, uint8_t level);
/* The smallest key there is: lower fence of leftmost nodes. */
struct format_key format_key_least(const struct format_layout *layout);
int tree_root_get(struct tree_session *session, struct tree *tree, struct format_link *root, uint8_t *level);
void tree_root_set(struct tree *tree, struct format_link root, uint8_t level);
void tree_root_forget(struct tree *tree);

/* ---- entries.c ---- */

/* Decodes a leaf's taken slots into session->entries in key order; keys point into the image or into
 * session->keys. 0 with *count, TREE_RESTART if a slot is not valid under the header's version (R5), or
 * BANYAN_ENOMEM. */
int tree_leaf_entries(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                      const struct format_header *header, uint32_t *count);
/* Of a leaf marked as splitting: its entries under either version, in no order, into session->entries; fixed
 * keys too point into the image. */
int tree_leaf_halves(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                     const struct format_header *header, uint32_t *count);
/* The same, without laying the entries out: tree_leaf_entry_at gives them one by one, in key order. */
int tree_leaf_order(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                    const struct format_header *header, uint32_t *count);
static inline void tree_leaf_entry_at(const struct tree_session *session, const struct format_layout *layout,
                                      const uint8_t *image, uint32_t number, struct tree_leaf_entry *entry)
{
    struct tree_leaf_order order = session->order[number];
    if (!format_layout_plain(layout)) {
        *entry = session->entries[layout->slots + order.at];
        return;
    }
    const uint8_t *key = image + layout->slot_offset[order.at] + 4;
    entry->head = order.head;
    entry->number = order.at;
    entry->key = (struct format_key){key, layout->geometry.key_bytes};
    entry->block = GADDR_NULL;
    entry->value = (struct format_key){key + layout->geometry.key_bytes, layout->geometry.value_bytes};
}
/* Tags tried for one leaf. With two thirds of its slots taken, about two tags in three will do. */
#define TREE_TAG_TRIES 512u
/* Builds a leaf in `image` under a fresh tag of that memory node with which all entries find room in their
 * buckets; sets header->tag and version. *fits false: none of so many tags would do. */
int tree_leaf_build(struct tree_session *session, const struct format_layout *layout, uint16_t node,
                    unsigned tries, struct format_header *header, const struct tree_leaf_entry *entries,
                    uint32_t count, uint8_t *image, bool *fits);
/* The shortest key that is greater than `left` and at most `right`: a prefix of right (fixed keys: right
 * itself). */
struct format_key tree_separator(const struct format_layout *layout, struct format_key left,
                                 struct format_key right);

/* ---- keyblocks.c ---- */

/* Reads the keys of all entries that have a block to where their key.bytes say (8-byte aligned): one round
 * trip. TREE_RESTART if a block does not hold the key of the entry's slot in `image`: then session->stranger
 * names it. Without the leaf's lock that means that the leaf has changed. */
int tree_key_blocks_read(struct tree_session *session, const struct format_layout *layout,
                         const uint8_t *image, const struct tree_leaf_entry *entries, uint32_t count);
/* Writes the keys of all entries that have a block. */
int tree_key_blocks_write(struct tree_session *session, const struct tree_leaf_entry *entries,
                          uint32_t count);
/* A block for a long key of this leaf, on the leaf's memory node where that has room, and the command that
 * writes it, to be run before any that writes the slot. */
int tree_key_block_prepare(struct tree_session *session, gaddr leaf, struct format_key key,
                           struct fabric_command *write, gaddr *block);
/* A leaf was not valid under its lock (TREE_RESTART): the error that names what is at fault. */
int tree_leaf_corrupt(struct tree_session *session, gaddr leaf);

/* ---- modify.c, split.c, parent.c, unlink.c ---- */

/* Under the leaf's lock: completes the image (all buckets, header). */
int tree_leaf_complete(struct tree_session *session, struct tree *tree, gaddr leaf);
/* A leaf's header, read with the right to change it: 0, TREE_RESTART (another node, dead, torn), or corrupt.
 */
int tree_leaf_validate(struct tree_session *session, struct tree *tree, struct format_link link,
                       struct format_header *header);
/* Under the lock of a leaf marked as splitting, whose image is complete: finishes it in memory and in the
 * pool (R3). The lock stays held. */
int tree_split_finish(struct tree_session *session, struct tree *tree, struct format_link link);
/* Takes the leaf's lock, finishes a split if there is one and lets go: for readers that met a mark for long.
 */
int tree_leaf_settle(struct tree_session *session, struct tree *tree, struct format_link link);
struct tree_addition {
    struct format_key key, value;
};
/* Under the lock, image complete and valid: splits, puts the addition (may be NULL key: none) where it
 * belongs if there is room, *added tells, and releases the lock. Posts the separator to the parent. */
int tree_split(struct tree_session *session, struct tree *tree, struct format_link link,
               struct tree_hold *hold, const struct tree_addition *addition, bool *added);
/* Locks the internal node of `level` that covers the key (before: what lies just below it), its image in
 * session->scratch, and decodes it into *header and session->internal. TREE_LOW: the tree is not that high.
 */
int tree_internal_lock(struct tree_session *session, struct tree *tree, struct format_key key, bool before,
                       uint8_t level, struct tree_path *path, struct tree_hold *hold,
                       struct format_header *header);
/* The separator and its link appear on `level`; a no-op if they are there. Grows the tree where it is not
 * that high. */
int tree_parent_insert(struct tree_session *session, struct tree *tree, uint8_t level,
                       struct format_key separator, struct format_link link);
/* The link to a dead node disappears from `level`, and who made it disappear frees the node; a no-op if it is
 * gone. */
int tree_parent_drop(struct tree_session *session, struct tree *tree, uint8_t level, struct format_key lower,
                     struct format_link link);
/* The node is dead: extends its left neighbour over it, drops it from its parent, frees it. Idempotent,
 * anybody may call it. `image` is the dead node's (valid) header. */
int tree_unlink_finish(struct tree_session *session, struct tree *tree, struct format_link link,
                       const struct format_header *header);

/* ---- catalogue.c ---- */

/* An index number with this bit is that of a node whose index is being dropped (drop.c). */
#define TREE_INDEX_DROPPED 0x8000u
/* BANYAN_ENOTFOUND: the index was dropped. */
int tree_root_read(struct tree_session *session, struct tree *tree, gaddr *root);
/* The root does not prove itself: the node is corrupt, unless the catalogue says that the index was dropped.
 */
int tree_root_doubt(struct tree_session *session, struct tree *tree, gaddr node, const char *what);
/* Remembers that the index was dropped, and says so: BANYAN_ENOTFOUND. */
int tree_dropped(struct tree_session *session, struct tree *tree);
bool tree_is_dropped(const struct tree *tree);
/* CAS of the root word; *swapped tells. */
int tree_root_swap(struct tree_session *session, struct tree *tree, gaddr from, gaddr to, bool *swapped);

#endif
