/*
 * check.h - what the two halves of the check share: check.c walks the levels of an index, check_leaf.c
 * validates what a leaf holds. Private to them. One task, while nothing else writes.
 */
#ifndef TREE_CHECK_H
#define TREE_CHECK_H

#include "format/header.h"
#include "format/key.h"
#include "tree/tree.h"

struct tree_walk_place;

/* Level by level from the top, along the sibling links, beside the links that the level above holds. */
struct tree_walk {
    struct tree_session *session;
    struct tree *tree;
    struct tree_check_report *report;
    const struct tree_check_visitor *visitor;
    uint8_t *image;            /* owned: the node at hand */
    uint8_t *aside;            /* owned: another node, read while that one is needed */
    struct format_link *named; /* owned: links that the level above holds, in key order */
    size_t named_count, named_at;
    struct format_link *below; /* owned: links that this level holds */
    size_t below_count, below_capacity;
    struct tree_walk_place *places; /* owned: all nodes named or met so far, by address */
    size_t place_count, place_capacity;
    struct format_key_copy expected; /* lower fence of the next node, if `known` */
    bool known;
    bool resumed;   /* the siblings did not lead through this level by themselves */
    bool leftovers; /* their chain has ended: what is left are nodes that it does not pass */
    gaddr emptied;  /* the right neighbour of the merging leaf at hand, if that has all of its entries (R7) */
    bool damaged, damaged_above; /* an inner node of this level, or of the one above, may hide entries */
};

/* A broken invariant of the node or block: 0 where the visitor hears of it and the walk goes on, else
 * BANYAN_ECORRUPT. Either way it is the session's error. */
int tree_walk_tell(struct tree_walk *walk, gaddr address, const char *what);
void tree_walk_count(struct tree_walk *walk, gaddr block, uint32_t bytes);
/* Damage of this address alone, or something that ends the check (a lost connection, no memory)? */
static inline bool tree_walk_damage(int status)
{
    return status == BANYAN_ECORRUPT || status == BANYAN_EADDRESS || status == BANYAN_EINVAL;
}
/* Validates a leaf's slots and key blocks: its image is in walk->image, and its header is proven. */
int tree_walk_leaf(struct tree_walk *walk, gaddr node, const struct format_header *header);

#endif
