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
#include "memory/walk_message.h"
#include "tree/locate.h"
#include "tree/tree.h"

/* What an operation on one key asks for while it is located: set as session->finding. tree_locate then
 * returns TREE_WALKED once there is an answer. Without one it goes on as ever.
 *
 * Leaves that are wanted, from the key's on, are set as session->leaves: where the way is walked, tree_locate
 * returns it as ever, and tree_walk_brought has all of them, or the first. */
struct tree_finding {
    bool later;  /* do not ask: TREE_WALKED as soon as something is missing, with what that is */
    bool admits; /* the leaf is wanted instead where the cache of owned ranges would admit it */
    /* the answer */
    uint64_t moment;         /* in owned ranges: of before the request (owned_cache_use.h) */
    bool found;              /* else the key is not in the index */
    struct format_link link; /* of its leaf; `later`: the first node that is not cached ... */
    uint8_t level;           /* ... and its level */
    uint32_t length;
    uint8_t value[FORMAT_VALUE_MAX];
};

/* What one descent has decided: once for each memory node, or a way that is read would be asked for again at
 * each of its levels, and what is asked for in the end would have been read in part. Zeroed at its begin. */
struct tree_walk_choice {
    uint64_t draw;
    uint16_t node; /* that it reads from */
    bool drawn, reads;
};

/* The nodes from this link on, of levels `at` down to `level` + 1, are not cached, and the key's node of
 * `level` is wanted: whether to ask for the rest of the way. `reads`: how many reads, one after the other,
 * that would save. */
bool tree_walk_wanted(struct tree_session *session, gaddr node, uint32_t reads,
                      struct tree_walk_choice *choice);
/* Asks for the key. True: `finding` has the answer. The way's nodes may have been installed in the cache
 * also without one: then bit l of *levels is set where one of level l was. */
bool tree_walk_find(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t at,
                    struct format_key key, struct tree_finding *finding, uint32_t *levels);
/* Asks for the way down to `level`, and installs it. Which levels were. */
uint32_t tree_walk_fetch(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t at,
                         uint8_t level, struct format_key key, bool before);
/* Asks for the way to the key's leaf, or with `before` to what lies just below the key, and for so many
 * leaves from there on, in that direction. True: *path leads to the first, and tree_walk_brought has it.
 * *levels: as tree_walk_find. */
bool tree_walk_bring(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t at,
                     struct format_key key, bool before, uint32_t leaves, struct tree_path *path,
                     uint32_t *levels);
/* Copies the next leaf that the session's last tree_locate has brought into `to`, which has room for a leaf:
 * as a READ of it since *moment would have. False: the next one is not under this link, or there is none;
 * then there is none any more. */
bool tree_walk_brought(struct tree_session *session, const struct tree *tree, struct format_link link,
                       uint8_t *to, uint64_t *moment);
/* Which leaves those are, without taking them: the next one's link and header, whose bounds lie in what was
 * brought. *at: zeroed for the first. False: there is none, or it does not prove itself. */
bool tree_walk_look(const struct tree_session *session, const struct tree *tree,
                    struct memory_walk_reader *at, struct format_link *link, struct format_header *header);

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
