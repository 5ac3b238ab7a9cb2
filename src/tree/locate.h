/*
 * locate.h - from a key to the node that covers it, by way of the node cache, and the root that every way
 * begins at. Private to src/tree/. One round trip for each frame that is not cached, two where the root is
 * not known. What the cache says may be stale (R6): a path is right or stale, and the node's own header
 * tells. Fails with the fabric's errors, BANYAN_ENOTFOUND (the index was dropped) and BANYAN_ECORRUPT.
 */
#ifndef TREE_LOCATE_H
#define TREE_LOCATE_H

#include "format/header.h"
#include "tree/tree.h"

struct tree_path {
    struct format_link link;   /* the node looked for, as far as the cache knows: it may have split since */
    struct format_link parent; /* the internal node that named it; address 0: it is the root */
    bool direct;               /* parent's entry leads to it, no sibling link was followed */
    bool fresh;                /* parent was fetched by this very call */
    bool walked;               /* tree_path_right led here, from a node that ends at session->walked_past */
};
/* The node of `level` that covers the key, or with `before` what lies just below it. TREE_LOW: the tree is
 * not that high. With session->finding, of which it takes notice once, it may be TREE_WALKED instead
 * (walk.h). */
int tree_locate(struct tree_session *session, struct tree *tree, struct format_key key, bool before,
                uint8_t level, struct tree_path *path);
/*
 * The same for a leaf, by cached frames that name each other: false says nothing, and nothing is counted. The
 * leaf's link alone is told, so a caller for whom it is stale begins again with tree_locate. Does not wait.
 * *frames: how many were searched, for tree_locate_count if the operation goes on with the link.
 */
bool tree_locate_cached(struct tree_session *session, struct tree *tree, struct format_key key,
                        struct format_link *leaf, uint32_t *frames);
/*
 * The same for several keys, one level of all after the other, so that what they wait for overlaps.
 * leaves[i].address is GADDR_NULL where it would have been false; frames[i] else is for tree_locate_count.
 */
#define TREE_LOCATE_MANY 32u
void tree_locate_cached_many(struct tree_session *session, struct tree *tree, const struct format_key *keys,
                             uint32_t count, struct format_link *leaves, uint32_t *frames);
void tree_locate_count(struct tree_session *session, uint32_t frames);
/* The path led astray (to a dead or reused node): forgets the frame, or the root, that named it. */
void tree_path_forget(struct tree_session *session, struct tree *tree, const struct tree_path *path);
/* The path's node has split: continues at its sibling, forgets the stale parent, and where a fresh parent did
 * not know of the sibling, posts the missing entry. `upper` is the node's upper fence key. */
int tree_path_right(struct tree_session *session, struct tree *tree, struct tree_path *path,
                    struct format_key upper, struct format_link sibling, uint8_t level);
struct tree_frame;
/* In an epoch. The frame of a node that the last tree_locate of this session came by, a path's parent mostly:
 * in the cache or, of a level that the cache does not keep, until the session's next tree_locate. NULL: it
 * has left the cache. */
struct tree_frame *tree_frame_find(struct tree_session *session, struct tree *tree, struct format_link link);
/* Frees what the last tree_locate has left. */
void tree_passing_free(struct tree_frame *passing);
/* Fetches an internal node into the cache; where the cache does not keep its level, into *passing, which the
 * caller frees (tree_frame_free), else NULL. 0, TREE_RESTART (another node lies there now, or a dead
 * one), or an error. */
int tree_frame_fetch(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t level,
                     struct tree_frame **passing);

/* False: not known. No round trips. */
bool tree_root_known(struct tree *tree, struct format_link *root, uint8_t *level);
/* The root and its level, read where they are not known. */
int tree_root_get(struct tree_session *session, struct tree *tree, struct format_link *root, uint8_t *level);
void tree_root_set(struct tree *tree, struct format_link root, uint8_t level);
void tree_root_forget(struct tree *tree);

#endif
