/*
 * forward.h - operations on ranges that are another compute node's: what its owner is asked to do (rights.h,
 * struct tree_forward). Private to src/tree/. Called by the operation's task behind tree_rights_enter, which
 * said TREE_OTHERS: nothing is announced. A peer call each. TREE_WAIT: the owner refused, or cannot be
 * reached; nothing was done.
 */
#ifndef TREE_FORWARD_H
#define TREE_FORWARD_H

#include "format/key.h"
#include "tree/rights.h"

/* `settled`: as tree_lookup_settled_here. */
int tree_forward_lookup(struct tree_session *session, struct tree *tree, struct format_key key, bool settled,
                        void *value, size_t *length);
int tree_forward_exchange(struct tree_session *session, struct tree *tree, struct tree_exchange *exchange);
/* Has the owner deliver entries, as tree_forward.scan does. */
int tree_forward_scan(struct tree_session *session, struct tree *tree, const struct tree_range *range,
                      tree_visit_function *visit, void *context, struct tree_scan_end *end);
/* Reads (one-sided, a round trip; of a logged range by a call too), decides by the function, and has the
 * owner exchange what was read for what was decided; again with what the owner found, if that was something
 * else. */
int tree_forward_modify(struct tree_session *session, struct tree *tree, struct format_key key,
                        tree_modify_function *function, void *context);
/* lookup.c: one try at reading the key, by the right that was entered; *length in: capacity. Copies the
 * value. BANYAN_ENOTFOUND without a message, and the verdicts of turn.h. */
int tree_lookup_try(struct tree_session *session, struct tree *tree, struct format_key key, void *value,
                    size_t *length);

#endif
