/*
 * announce.h - the table of rights that a compute node has of an index, and the row of it that an operation
 * relies on (rule O1, docs/internals/ownership.md). Private to src/tree/; rights.h is what others see of it.
 *
 * A table never changes once it is installed. An operation announces the row that it relies on before it
 * touches a leaf (tree_rights_enter) and withdraws that at its end (tree_rights_leave): a store to its own
 * session and a look at the installed table, some nanoseconds. Whoever installs another table waits for the
 * announcements of rows whose right that takes away.
 *
 * ORDER. enter stores the announcement, then loads the installed table; adopt stores the table, then loads
 * the announcements. One of the two must see the other's store (Dekker): either the operation sees the new
 * table and begins again with it, or adopt sees the announcement and waits. What keeps the loads behind the
 * stores is a membarrier on adopt's side, which is seldom (base/membarrier.h), so that an operation pays no
 * fence. An announcement is also what keeps a table's memory: before it is verified, nothing of the table is
 * looked at.
 */
#ifndef TREE_ANNOUNCE_H
#define TREE_ANNOUNCE_H

#include "format/key.h"
#include "tree/rights.h"
#include "tree/session.h"

struct tree_row {
    struct format_key lower, upper; /* in the table's own memory */
    bool has_upper, logged, unkept; /* logged, unkept: rights.h, struct tree_rights_row */
    enum tree_right right;
    struct fabric_process owner;
    uint64_t epoch;
    bool drains;          /* MOVING, and this process's and logged until now: it may still merge there ... */
    uint64_t drain_epoch; /* ... and log again what is doubtful, under this epoch */
    uint64_t drain_incarnation; /* ... by lists under the incarnation in which it had the right */
};

struct tree_table {
    struct tree_table *older; /* that may still be announced */
    uint64_t version;
    uint64_t incarnation; /* atomic; that the map was fetched in (rights.h); only grows */
    bool lost;            /* some row's right is not the next table's; adopt's own */
    uint32_t count;       /* of rows, at least 1 */
    uint64_t *gone;       /* bits: rows whose right is lost; adopt's own */
    struct tree_row rows[];
};

/* Of one index, shared by all its handles on a compute node. */
struct tree_rights {
    struct tree_table *table; /* installed; never NULL. Release by adopt, acquire by operations */
    uint64_t version;         /* of `table`; atomic, for those who only ask */
    struct tree_compute *compute;
    struct tree_rights *next; /* of the compute node */
    uint32_t references;      /* handles */
    uint32_t entry;           /* of the catalogue */
    uint16_t generation;
    struct unmerged *unmerged; /* atomic: of its logged ranges; owned, NULL: nothing was logged yet */
    struct owned_cache *cache; /* of what this process owns, for all handles; owned, NULL: none */
};

/* The index's rights on this compute node, made as a whole shared (or owned, as the switch `ownership` says)
 * where no handle has them yet. NULL: no memory. */
struct tree_rights *tree_rights_acquire(struct tree_compute *compute, uint32_t entry, uint16_t generation);
void tree_rights_release(struct tree_rights *rights);
/* The cache of what this process owns of the index, made where it has none yet; NULL: the switches want none,
 * or there is no memory for it: then nothing is cached. */
struct owned_cache *tree_rights_cache(struct tree_rights *rights, const struct format_geometry *geometry);

/* Announces the row of the key, after tree_begin; returns the right that it gives. With TREE_OTHERS (whose
 * leaves may be read, not helped; session->owner) and TREE_MOVING nothing is announced. The operation's leaf
 * access is chosen by it, and so is the incarnation under which its lists go out: the table's, if that is the
 * older one. Announcements do not nest. */
enum tree_right tree_rights_enter(struct tree_session *session, struct tree *tree, struct format_key key);
/* The same for the row that holds what lies just below the key. */
enum tree_right tree_rights_enter_below(struct tree_session *session, struct tree *tree,
                                        struct format_key key);
/* Announces all rows at once, for what works on leaves of several; session->row is NULL then, and
 * tree_rights_switch chooses the access for each leaf. */
void tree_rights_enter_all(struct tree_session *session, struct tree *tree);
/* Within tree_rights_enter_all: the right to the key's row, and the access by it. */
enum tree_right tree_rights_switch(struct tree_session *session, struct tree *tree, struct format_key key);
/* Whether the row is another's and logged: then nothing of it is answered from the pool, and its owner is
 * asked. Behind one of the above. */
static inline bool tree_rights_ask(const struct tree_session *session)
{
    return session->logged && session->right == TREE_OTHERS;
}
/* tree_rights_enter_all, if this process may change every leaf of the index: else BANYAN_EBUSY with the owner
 * of one that it may not change, and nothing is announced. */
int tree_rights_enter_whole(struct tree_session *session, struct tree *tree);
/* Within it: whether all rows give the same right. */
bool tree_rights_alike(const struct tree_session *session);
/* The same question of an index that is known by its place in the catalogue; BANYAN_EBUSY. */
int tree_rights_whole(struct tree_session *session, uint32_t entry, uint16_t generation, const char *name);
/* Where the key's row ends (`down`: begins; of the row of keys below this one); false: nowhere. Nothing is
 * announced, before and after. */
bool tree_rights_end(struct tree_session *session, struct tree *tree, struct format_key key, bool down,
                     struct format_key_copy *end);
/* BANYAN_EFENCED, with a message: this process does not have the right that was asked of it. */
int tree_not_owned(struct tree_session *session, const struct tree *tree);
/* Where a list was refused because a connection was lost after the map was fetched (BANYAN_EFENCED): true,
 * and *status is TREE_WAIT. Before the announcement is withdrawn. */
bool tree_rights_stale(const struct tree_session *session, int *status);
/* Withdraws the announcement, if there is one. */
void tree_rights_leave(struct tree_session *session);

/* Whether the announced right covers a leaf with this lower fence: it may be changed as a whole, so what is
 * half done there may be finished. Not where a way that leads astray has met a leaf of another row. */
bool tree_rights_cover(const struct tree_session *session, struct format_key lower);
/* Whether it covers the left neighbour of a leaf with this lower fence, which is what unlinking changes. */
bool tree_rights_cover_below(const struct tree_session *session, struct format_key lower);
/* Whether an announced row is this process's own and covers a leaf with this lower fence: only such a leaf
 * may go into the cache. A way that leads astray may meet one of a row that is not. */
bool tree_rights_owns(const struct tree_session *session, struct format_key lower);
/* O3: whether a leaf with this lower fence is the first of a range, so that it must never die. */
bool tree_rights_first(const struct tree_session *session, struct format_key lower);
/* The row of the key in the announced table. */
const struct tree_row *tree_table_find(const struct tree_table *table, struct format_key key, bool below);

#endif
