/* access_direct.h - what tree_access_direct has beyond tree_access_owned. Private to access_owned.c. */
#ifndef TREE_ACCESS_DIRECT_H
#define TREE_ACCESS_DIRECT_H

#include "tree/access.h"

bool tree_direct_find(struct tree_session *session, struct tree *tree, gaddr leaf, bool change,
                      struct tree_spot *spot);
void tree_direct_prefetch(const struct tree_spot *spot, const struct format_bucket *bucket);
void tree_direct_count_read(struct tree_session *session, const struct tree *tree);
bool tree_direct_word(struct tree_session *session, const struct tree *tree, struct format_link link,
                      uint64_t key, uint64_t *value);
void tree_direct_count_leaves(struct tree_session *session, const struct tree *tree, uint32_t count);
void tree_direct_keep_order(struct tree_session *session, const struct tree *tree, struct format_link link,
                            const uint8_t *numbers, uint32_t count);
bool tree_direct_enter(struct tree_session *session, struct tree_spot *spot);
void tree_direct_abandon(struct tree_spot *spot);
void tree_direct_leave(struct tree_session *session, const struct tree *tree, struct tree_spot *spot,
                       const uint8_t *image, uint32_t offset, uint32_t length, tree_placed_function *placed,
                       void *context);
void tree_direct_store(struct tree_session *session, const struct tree *tree, const struct tree_spot *spot,
                       const uint8_t *image, uint32_t offset, uint32_t length);
void tree_direct_done(struct tree_spot *spot);

#endif
