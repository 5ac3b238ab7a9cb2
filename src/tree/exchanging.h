/*
 * exchanging.h - asking a memory node to make one change in a leaf (EXCHANGE: memory/walk_merge.c): the
 * owner's side (docs/internals/walks.md, W13 and W14). Private to src/tree/; called by modify.c, on the
 * operation's task, with the leaf's local lock held and nothing of the leaf known.
 *
 * It takes one round trip in place of two, the READ of the key's bucket and the WRITE of its slot. Where the
 * memory node has not made the change, and that is certain, the owner makes it as ever.
 */
#ifndef TREE_EXCHANGING_H
#define TREE_EXCHANGING_H

#include "format/header.h"
#include "tree/tree.h"

struct tree_exchange;
struct tree_selectors;

/* Whether a key that holds this (NULL: nothing) holds what the exchange expects, whoever makes it. */
bool tree_exchange_met(const struct tree_exchange *exchange, const void *old, size_t length);

/* Of a compute node; NULL (also without an error): its switches or its fabric want no such requests. */
int tree_exchanges_create(struct tree_selectors **exchanges, const struct fabric *fabric,
                          const struct tree_switches *switches, struct error *error);

/* Whether memory nodes may be asked for this in the operation under way, which has announced its right.
 * NULL: no. */
bool tree_exchanges_on(const struct tree_session *session, const struct tree_exchange *exchange);
/* Whether it is worth it to ask for a change of this leaf: it is not cached, the cache is full, and the
 * selector of its memory node says so. */
bool tree_exchanges_wanted(struct tree_session *session, const struct tree *tree, gaddr leaf);

/* What came of it. */
struct tree_exchanged {
    int status;   /* 0: as told here; BANYAN_EUNKNOWN, with a message: the change was made, or not */
    bool existed; /* the key held something: `old`; whether that was expected says if the change was made */
    uint32_t old_length;
    uint8_t old[FORMAT_VALUE_MAX];
};
/* False: it did not end there, and nothing was done. One round trip. */
bool tree_exchanges_ask(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                        const struct tree_exchange *exchange, struct tree_exchanged *exchanged);

/* Before the owner makes the change by itself: the time, if what that takes is of use; else 0. And when it
 * has made it in a leaf of that memory node, by a READ and a WRITE: for the selector each took half of the
 * time. */
uint64_t tree_exchanges_began(const struct tree_session *session);
void tree_exchanges_read(const struct tree_session *session, gaddr node, uint64_t began);

#endif
