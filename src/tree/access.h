/*
 * access.h - leaf access: how a leaf's bytes are reached and changed. Lookups, changes, scans, splits and
 * unlinks decide what happens to a leaf (by the verdicts of format/verdict.h); the access of its index
 * decides how.
 *
 * Which one an operation uses follows from its right to the leaf's range (rights.h): in a shared range it is
 * one-sided, under global locks (access_one_sided.c), and so are reads of ranges that are another's; in a
 * range that this process owns it needs no global lock (access_owned.c), and where the leaves are mapped here
 * as well no list either (access_direct.c). Having another machine do the work
 * needs a file of its own.
 *
 * COMMANDS describe bytes: READ and WRITE with the addresses of the pool, in the order in which they must
 * take effect (R3 depends on it). An access that has the leaf elsewhere applies them there. Commands for
 * other addresses of the same memory node may stand among them (a new sibling, a long key's block): those go
 * to the pool.
 *
 * What does not go through here: leaves that no link leads to yet (a split's sibling on another memory node,
 * bulk load's leaves: plain WRITEs), inner nodes and the catalogue (shared by all compute nodes, whatever
 * serves the leaves: lock.h), the check of an index (it looks at what lies in the pool), and batches of puts
 * (multi.c: they combine the locks, reads and writes of many leaves in shared lists; operations of
 * others are taken from the queues of lock.c).
 */
#ifndef TREE_ACCESS_H
#define TREE_ACCESS_H

#include "tree/session.h"

/* A leaf whose own bytes are at hand, with the right to change them or without. */
struct tree_spot {
    gaddr leaf;
    uint8_t *bytes; /* others read them meanwhile, and where there is no right to them also write them */
    struct tree_lock_shard *latch; /* the right; NULL: none */
};

struct tree_access {
    const char *name;
    /* Reads parts of one leaf without a right to it: the bytes may be any mixture of old and new words (G2).
     */
    int (*read)(struct tree_session *session, struct tree *tree, gaddr leaf, struct fabric_command *reads,
                uint32_t count);
    /* The same for several leaves, whose reads overlap. The first error, without a message; each list has its
     * status. */
    int (*read_many)(struct tree_session *session, struct tree *tree, struct fabric_list *const *lists,
                     uint32_t count);
    /* Takes the right to change the leaf, and runs the reads once it is held. With `wanted`,
     * session->waiter.snapshot may come back set: then the leaf's image came with the right, and the reads
     * are left to the caller. 0 with the right held, or an error without. */
    int (*lock)(struct tree_session *session, struct tree *tree, gaddr leaf, bool wanted,
                struct fabric_command *reads, uint32_t count, struct tree_hold *hold);
    /* The same with `wanted`, for an operation that the holder of the right may do instead (delegate.h):
     * TREE_ANSWERED says that it was to. `operation` may be NULL. */
    int (*lock_or_leave)(struct tree_session *session, struct tree *tree, gaddr leaf,
                         struct tree_operation *operation, struct fabric_command *reads, uint32_t count,
                         struct tree_hold *hold);
    /* With the right held: more reads, or writes that must be done before the right ends. */
    int (*execute)(struct tree_session *session, struct tree *tree, gaddr leaf,
                   struct fabric_command *commands, uint32_t count);
    /* Runs the writes (room for one more command is needed behind them) and gives the right up, in any case.
     */
    int (*release)(struct tree_session *session, struct tree *tree, struct tree_hold *hold,
                   struct fabric_command *writes, uint32_t count);
    /* Gives the right up with nothing written and passes `verdict` on, unless the release failed. */
    int (*release_with)(struct tree_session *session, struct tree *tree, struct tree_hold *hold, int verdict);

    /* IN PLACE, without commands; all NULL where leaves are not mapped here. Nothing can
     * fail or be lost on the way. */

    /* The leaf's own bytes, without a right to them; false: no such bytes. This and prefetch ask for what a
     * read of the bucket, or a change in it, will touch, so that its cache misses overlap. */
    bool (*find)(struct tree_session *session, struct tree *tree, gaddr leaf, bool change,
                 struct tree_spot *spot);
    void (*prefetch)(const struct tree_spot *spot, const struct format_bucket *bucket);
    /* The bucket was read without a right: counts what the list would have cost. */
    void (*count_read)(struct tree_session *session, const struct tree *tree);
    /* So many leaves were found for a scan, on one memory node or several: the same for their lists. */
    void (*count_leaves)(struct tree_session *session, const struct tree *tree, uint32_t count);
    /* Has the leaf keep the order of its entries as a scan has found it (format/leaf.h), so many bytes of it.
     * Nothing happens where the right to the leaf is not free at once, or the leaf is not live any more. */
    void (*keep_order)(struct tree_session *session, const struct tree *tree, struct format_link link,
                       const uint8_t *numbers, uint32_t count);
    /* Takes the right to change what was found; false: not free at once. Until it is given up the task must
     * not suspend. */
    bool (*enter)(struct tree_session *session, struct tree_spot *spot);
    /* Gives it up with nothing done, and counts nothing. */
    void (*abandon)(struct tree_spot *spot);
    /* Stores `length` bytes of `image` at their place in the leaf, visible to all before the right is given
     * up; 0: none. With `placed` (may be NULL) that is called in between. Counts what the lists would have
     * cost that read header and bucket and write this. */
    void (*leave)(struct tree_session *session, const struct tree *tree, struct tree_spot *spot,
                  const uint8_t *image, uint32_t offset, uint32_t length, tree_placed_function *placed,
                  void *context);
    /* Of several changes under one right: stores one of them, and counts as `leave` does. */
    void (*store)(struct tree_session *session, const struct tree *tree, const struct tree_spot *spot,
                  const uint8_t *image, uint32_t offset, uint32_t length);
    /* Gives the right up behind them: all is visible to all. */
    void (*done)(struct tree_spot *spot);
    /* R1, of a point read from its beginning to its end, for an index whose keys and values are words
     * (format_layout_words): true, with the value, and counted; false says nothing, and counts nothing. */
    bool (*word)(struct tree_session *session, const struct tree *tree, struct format_link link, uint64_t key,
                 uint64_t *value);
};

extern const struct tree_access tree_access_one_sided, tree_access_owned, tree_access_direct;

/* Whether leaves of owned ranges can be reached in place: the fabric has windows, and the switches want no
 * whole leaves, nor commands in lists of their own, which would cost what nothing here counts. */
bool tree_access_in_place(const struct fabric *fabric, const struct tree_switches *switches);

static inline int tree_leaf_read(struct tree_session *session, struct tree *tree, gaddr leaf,
                                 struct fabric_command *reads, uint32_t count)
{
    return session->access->read(session, tree, leaf, reads, count);
}
static inline int tree_leaves_read(struct tree_session *session, struct tree *tree,
                                   struct fabric_list *const *lists, uint32_t count)
{
    return session->access->read_many(session, tree, lists, count);
}
static inline int tree_leaf_lock(struct tree_session *session, struct tree *tree, gaddr leaf, bool wanted,
                                 struct fabric_command *reads, uint32_t count, struct tree_hold *hold)
{
    return session->access->lock(session, tree, leaf, wanted, reads, count, hold);
}
static inline int tree_leaf_lock_or_leave(struct tree_session *session, struct tree *tree, gaddr leaf,
                                          struct tree_operation *operation, struct fabric_command *reads,
                                          uint32_t count, struct tree_hold *hold)
{
    return session->access->lock_or_leave(session, tree, leaf, operation, reads, count, hold);
}
static inline int tree_leaf_execute(struct tree_session *session, struct tree *tree, gaddr leaf,
                                    struct fabric_command *commands, uint32_t count)
{
    return session->access->execute(session, tree, leaf, commands, count);
}
static inline int tree_leaf_release(struct tree_session *session, struct tree *tree, struct tree_hold *hold,
                                    struct fabric_command *writes, uint32_t count)
{
    return session->access->release(session, tree, hold, writes, count);
}
static inline int tree_leaf_release_with(struct tree_session *session, struct tree *tree,
                                         struct tree_hold *hold, int verdict)
{
    return session->access->release_with(session, tree, hold, verdict);
}

#endif
