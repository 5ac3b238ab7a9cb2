/*
 * logged.h - changes and reads of keys in ranges that are owned and logged (logging.h). Private to src/tree/.
 * In an operation that has announced such a row.
 */
#ifndef TREE_LOGGED_H
#define TREE_LOGGED_H

#include "tree/logging.h"
#include "tree/session.h"

/* Whether changes of the row that the session has announced (or chosen: tree_rights_switch) go into the log.
 */
bool tree_logs(const struct tree_session *session);

/* The session merges, and what it merges of the key has left the table with the key's range. */
bool tree_merge_void(const struct tree_session *session, struct tree *tree, struct format_key key);

/* What the table has of the key: it is asked before the pool and the cache are (L4). Its answer rests on what
 * this process knows (O2). session->entry_hits becomes how often lookups found the key there. */
enum unmerged_found tree_logged_find(struct tree_session *session, struct tree *tree, struct format_key key,
                                     uint8_t *value, uint32_t *length);

/* A change of one key. `blind`: the function need not be told what the key holds where only its leaf knows.
 */
struct tree_logged_change {
    struct format_key key;
    tree_modify_function *function;
    void *context;
    bool blind;
    bool here; /* the function runs on this task only */
};
/* Decides on the change and puts it into the frame that is open; tree_logged_commit then waits for that. 0,
 * an error, or a verdict of turn.h; then nothing of it was done. Round trips: those of a lookup, where the
 * change is not blind and nothing of the key is known here. May wait for other changes of the key. */
int tree_logged_append(struct tree_session *session, struct tree *tree,
                       const struct tree_logged_change *change, struct tree_logged *logged);
int tree_logged_commit(struct tree_session *session, struct tree_logged *logged);

/* lookup.c: as tree_lookup_try, of the leaf alone. */
int tree_lookup_leaf(struct tree_session *session, struct tree *tree, struct format_key key, void *value,
                     size_t *length);
/* apply.c: puts the entry into its leaf, in the operation under way; what that takes out of the slot is
 * released, and the merging has ended. 0, an error, or a verdict of turn.h. */
int tree_logged_merge_one(struct tree_session *session, struct tree *tree,
                          const struct unmerged_merge *merge);
/* modify.c: a change of the key's leaf, in the operation under way, whatever the row says of logging. As
 * above. */
int tree_change_leaf(struct tree_session *session, struct tree *tree, struct format_key key,
                     tree_modify_function *function, void *context);

#endif
