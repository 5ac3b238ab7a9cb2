/*
 * catalogue.h - what dropping an index (drop.c) asks of the catalogue. Private to src/tree/. Each call is a
 * part of an operation of the session; the fabric's errors come through. The reasoning stands in
 * docs/internals/tree.md, Dropping.
 */
#ifndef TREE_CATALOGUE_H
#define TREE_CATALOGUE_H

#include "tree/state.h"

/* Marks the index of this name as being dropped, by one CAS of its root word: from here on nobody can open
 * it, its name is free, and no root of it can be swapped in any more. *found false: there is none. */
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
/* All nodes are gone: the entry may be used again. Does nothing where that has been done. */
int tree_condemned_end(struct tree_session *session, const struct tree *tree);

#endif
