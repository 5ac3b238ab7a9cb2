/*
 * merging.h - asking memory nodes to put what is logged into its leaves (MERGE: memory/walk_merge.c): the
 * owner's side (docs/internals/walks.md, W7 to W10). Private to src/tree/; called by apply.c, on tasks that
 * merge.
 *
 * An owner asks only with the leaf's lock held, as if it wrote the leaf itself, and holds it until the answer
 * is there. So an entry that was not merged, for whatever reason, is merged by the owner as ever.
 */
#ifndef TREE_MERGING_H
#define TREE_MERGING_H

#include "format/header.h"
#include "tree/logging.h"
#include "tree/tree.h"

struct tree_selectors;

/* Of a compute node; NULL (also without an error): its switches or its fabric want no such requests. */
int tree_merges_create(struct tree_selectors **merges, const struct fabric *fabric,
                       const struct tree_switches *switches, struct error *error);

/* What came of an entry. */
struct tree_merged {
    bool ended;              /* else the owner does it */
    bool located;            /* ... in this leaf: it need not look for it again */
    struct format_link leaf; /* then */
    int status;              /* 0: the leaf has it; BANYAN_EUNKNOWN: perhaps */
    bool existed;
    uint32_t old_length;
    uint8_t old[FORMAT_VALUE_MAX];
};
/* In no operation, with session->through and draining set: asks for those entries of a share (distinct keys,
 * TREE_LOG_APPLY_MAX at most) for which it is worth it. One round trip in all where the inner nodes of their
 * ways are cached. */
void tree_merges_ask(struct tree_session *session, struct tree *tree, const struct unmerged_merge *entries,
                     uint32_t count, struct tree_merged *merged);

/* The owner has merged by itself, and READs of leaves of that memory node took so long: once for a share. */
void tree_merges_read(const struct tree_session *session, gaddr node, uint64_t took_ns);

#endif
