/*
 * put.h - puts of the items of one call: one by itself, and the first ones of a call whose keys ascend.
 * Private to src/tree/; called by multi.c, in no operation.
 */
#ifndef TREE_PUT_H
#define TREE_PUT_H

#include "tree/split.h"

/* What the item replaces (`old` NULL: nothing), if its caller wants to know. */
void tree_put_replaced(struct tree_item *item, const void *old, size_t length);
/* What an item's put does to its key: the context is the item. */
enum tree_verdict tree_put_change(void *context, const void *old, size_t old_length, void *value,
                                  size_t *length);
/* A tree_placed_function for an item that has one. */
void tree_put_placed(void *context);
/* By itself. `run` (may be NULL) may go with it (split.h). */
int tree_put_single(struct tree_session *session, struct tree *tree, struct tree_item *item,
                    struct tree_run *run);
/*
 * The first items of a call, or of what is left of one, if their keys ascend: those that go to one leaf share
 * the way down, its latch and its header, and those behind the last key of the index go into whole leaves. In
 * ranges of this process's that are mapped here. Returns how many are done, each with its status: none, or
 * fewer than would ascend, where a batch is as good.
 */
size_t tree_put_ascending(struct tree_session *session, struct tree *tree, struct tree_item *items,
                          size_t count);

#endif
