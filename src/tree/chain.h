/*
 * chain.h - leaves built whole of keys that are appended (split.h, struct tree_run), each linked to the next
 * one, and written before any link leads to the first. Private to src/tree/; part of a split, under the lock
 * of the leaf that is split, in a range of this process's that is mapped here. A leaf costs a block, some
 * tags and one WRITE.
 */
#ifndef TREE_CHAIN_H
#define TREE_CHAIN_H

#include "tree/entries.h"
#include "tree/index.h"
#include "tree/parent.h"
#include "tree/split.h"

#define TREE_CHAIN_MAX 32u

/* A split's sibling, and the leaves behind it, with their lower fences: these are keys in the run's items. */
struct tree_chain {
    uint32_t count;                                /* behind the sibling */
    struct tree_child leaves[1u + TREE_CHAIN_MAX]; /* [0], which is the split's own to set: the sibling */
};

/* Whether leaves can be written ahead of the split: not where each costs a round trip, nor where subtrees
 * have a place of their own. */
bool tree_chain_fits(const struct tree_session *session, const struct tree *tree);
/* So many entries a run gives to a leaf: as many as a bulk load does. */
static inline uint32_t tree_chain_fill(const struct format_layout *layout)
{
    return layout->slots - layout->slots / 5u;
}
/* The items of the run that come next and go to a leaf with this header, `most` at the most, as entries:
 * those in the row that the session relies on that need no block for their key. Returns how many. */
uint32_t tree_chain_entries(const struct tree_session *session, const struct tree *tree,
                            const struct tree_run *run, const struct format_header *header,
                            struct tree_leaf_entry *entries, uint32_t most);
/* Where the sibling that is to come before them is in `image`, and `header` is its header: builds and writes
 * the leaves for what is left of the run, and has the sibling's image name the first. run->taken grows by
 * what they hold. `last`: the greatest key of the sibling. Whatever fails leaves fewer leaves, or none. */
void tree_chain_build(struct tree_session *session, struct tree *tree, struct tree_run *run,
                      struct format_key last, struct format_link sibling, struct format_header *header,
                      uint8_t *image, struct tree_chain *chain);
/* No link leads to the first of them: gives all of them back. */
void tree_chain_release(struct tree_session *session, const struct tree *tree, struct tree_chain *chain);
/* What writes a new leaf's image, as it must be done where it is longer than can be written at once. Returns
 * how many commands. */
uint32_t tree_leaf_writes(const struct tree_session *session, const struct format_layout *layout, gaddr leaf,
                          const uint8_t *image, struct fabric_command *writes);

#endif
