/*
 * catalogue.h - an index's root word in the catalogue (catalogue.c), and what dropping an index (drop.c) asks
 * of the catalogue. Private to src/tree/. Each call is a part of an operation of the session: one round trip
 * where nothing else is said; the fabric's errors come through. docs/internals/tree.md, Dropping, has the
 * reasons.
 */
#ifndef TREE_CATALOGUE_H
#define TREE_CATALOGUE_H

#include "tree/tree.h"

/* An index number with this bit is that of a node whose index is being dropped (drop.c). */
#define TREE_INDEX_DROPPED 0x8000u

/* ---- an open index ---- */

/* BANYAN_ENOTFOUND: the index was dropped. */
int tree_root_read(struct tree_session *session, struct tree *tree, gaddr *root);
/* The root does not prove itself: the node is corrupt, unless the catalogue says that the index was dropped.
 */
int tree_root_doubt(struct tree_session *session, struct tree *tree, gaddr node, const char *what);
/* CAS of the root word; *swapped tells. Where it holds no root of this index, one round trip more tells
 * whether that was dropped (0: tree_is_dropped says so then) or the word is damaged (BANYAN_ECORRUPT). */
int tree_root_swap(struct tree_session *session, struct tree *tree, gaddr from, gaddr to, bool *swapped);
/* Remembers that the index was dropped, and says so: BANYAN_ENOTFOUND. No round trip. */
int tree_dropped(struct tree_session *session, struct tree *tree);

/* ---- dropping ---- */

/* Marks the index of this name as being dropped, by one CAS of its root word: from here on no session can
 * open it, its name is free, and no root of it can be swapped in any more. *found false: there is none. Costs
 * a walk through the catalogue, as the next does. */
int tree_condemn(struct tree_session *session, const char *name, bool *found);
/* The next index being dropped, of this name (NULL: of any), from entry *from on, which moves behind it.
 * *tree NULL: there is none; else the caller closes it. */
int tree_condemned_next(struct tree_session *session, const char *name, uint32_t *from, struct tree **tree);
/* Its root, or GADDR_NULL where all nodes are gone. BANYAN_ENOTFOUND, without a message: its drop has ended.
 */
int tree_condemned_root(struct tree_session *session, const struct tree *tree, gaddr *root);
/* CAS of its root; *swapped tells. */
int tree_condemned_swap(struct tree_session *session, const struct tree *tree, gaddr from, gaddr to,
                        bool *swapped);
/* All nodes are gone: the entry may be used again. Does nothing where that has been done. Three round trips.
 */
int tree_condemned_end(struct tree_session *session, const struct tree *tree);

#endif
