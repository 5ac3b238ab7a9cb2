/*
 * turn.h - what an operation does between its tries: it withdraws its announcement, waits where the range is
 * on its way to another owner or cannot be reached, asks for the read lease where its answer came from the
 * cache (O2), and begins again. Private to src/tree/; called by the operation's task, which holds no lock.
 *
 *     struct tree_turn turn = {0};
 *     do
 *         status = tree_rights_enter(...) <= TREE_OWNED ? try : forward;
 *     while (tree_turn_again(session, tree, &turn, &status));
 */
#ifndef TREE_TURN_H
#define TREE_TURN_H

#include "base/task.h"
#include "format/header.h"
#include "tree/tree.h"

struct tree_turn {
    uint64_t
        since; /* task_now when it first could not be done at once, or asked another process; 0: neither */
    const struct format_key *change; /* whose key's; NULL: the operation changes none */
};
/* Before another process is asked: the time-out counts from the first such call. */
static inline void tree_turn_ask(struct tree_turn *turn)
{
    if (!turn->since)
        turn->since = task_now();
}

/* What the layer above has announced of a change (struct tree_announcer) is withdrawn: before another process
 * is asked for it, or the range is waited for. */
void tree_turn_withdraw(struct tree_session *session, const struct tree *tree);
/* It is announced again, before the change, or the next one of a batch (`key` NULL: of all that are left), is
 * tried here. In no operation: may do whole ones. */
void tree_turn_announce(struct tree_session *session, const struct format_key *key);

/*
 * Withdraws the announcement of the right. True: the operation begins again, and *status is 0; else *status
 * is what it came to. TREE_ANEW: at once. TREE_FOREIGN: when the leaf that was in the way has been settled
 * under its own row's right, if this process has that. TREE_WAIT: when it is worth looking at the table
 * again. Costs nothing where the answer does not come from the cache.
 */
bool tree_turn_again(struct tree_session *session, struct tree *tree, struct tree_turn *turn, int *status);
/* O2. Whether the answer comes from the cache, and the read lease has lapsed. */
bool tree_lapsed(const struct tree_session *session);
/* Notes a leaf that is dead or half done and not covered by the announced row: TREE_FOREIGN. */
int tree_foreign(struct tree_session *session, struct format_link link, struct format_key lower);

#endif
