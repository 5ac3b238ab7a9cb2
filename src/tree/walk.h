/*
 * walk.h - asking memory nodes to walk (memory/walk.h) instead of reading level after level: the client's
 * side (docs/internals/walks.md). Private to src/tree/; called by the operation's task, outside of epochs.
 *
 * Whatever a walk comes to, it is no error of the operation: where it gives no answer, for whatever reason,
 * the caller reads as if it had not been asked, and meets there what is in the way.
 */
#ifndef TREE_WALK_H
#define TREE_WALK_H

#include "format/header.h"
#include "memory/request.h"
#include "tree/tree.h"

struct tree_walks;

/* Of a compute node; NULL (also without an error): its switches or its fabric want no walks. */
int tree_walks_create(struct tree_walks **walks, const struct fabric *fabric,
                      const struct tree_switches *switches, struct error *error);
void tree_walks_destroy(struct tree_walks *walks); /* NULL: does nothing */

/* What an operation on one key asks for while it is located: set as session->finding. tree_locate then
 * returns TREE_WALKED once there is an answer. Without one it goes on as ever. */
struct tree_finding {
    bool later; /* do not ask: TREE_WALKED as soon as something is missing, with what that is */
    /* the answer */
    bool found;              /* else the key is not in the index */
    struct format_link link; /* of its leaf; `later`: the first node that is not cached ... */
    uint8_t level;           /* ... and its level */
    uint32_t length;
    uint8_t value[FORMAT_VALUE_MAX];
};

/* The nodes from this link on, of levels `at` down to `level` + 1, are not cached, and the key's node of
 * `level` is wanted: whether to ask for the rest of the way. `reads`: how many reads, one after the other,
 * that would save. */
bool tree_walk_wanted(struct tree_session *session, gaddr node, uint32_t reads);
/* Asks for the key. True: `finding` has the answer. The way's nodes may have been installed in the cache
 * also without one: then bit l of *levels is set where one of level l was. */
bool tree_walk_find(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t at,
                    struct format_key key, struct tree_finding *finding, uint32_t *levels);
/* Asks for the way down to `level`, and installs it. Which levels were. */
uint32_t tree_walk_fetch(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t at,
                         uint8_t level, struct format_key key, bool before);

/* Several keys, each from where something is missing on: one request for each memory node, together. */
#define TREE_WALK_KEYS 32u
struct tree_walk_key {
    struct format_key key;
    struct tree_finding finding; /* link, level: where to begin; then its answer */
    bool answered;               /* out */
};
void tree_walk_find_many(struct tree_session *session, struct tree *tree, struct tree_walk_key *const *keys,
                         uint32_t count);

/* A READ of one node of the tree took from `began` on (task_now; 0: nothing is noted). */
void tree_walk_read(struct tree_session *session, gaddr node, uint64_t began);
/* The time, if it is of use. */
uint64_t tree_walk_began(const struct tree_session *session);

#endif
