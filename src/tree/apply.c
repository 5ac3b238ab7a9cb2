/*
 * apply.c - Merging: entries of the table go to their leaves (L5 of docs/internals/log.md), by the ways that
 * changes of owned ranges go anyway: batches of puts (multi.c), and deletes one by one. Two round trips for
 * the puts of a share; or one for all of it, where memory nodes do it (merging.c). What a merging takes out
 * of a slot is released to the layer above.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tree/announce.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/logged.h"
#include "tree/merging.h"

/* ---- one entry ---- */

struct one {
    const struct unmerged_merge *merge;
    bool existed;
    size_t old_length;
    uint8_t old[FORMAT_VALUE_MAX];
};

static enum tree_verdict one_change(void *context, const void *old, size_t old_length, void *value,
                                    size_t *length)
{
    struct one *one = context;
    one->existed = old;
    one->old_length = old_length;
    if (old_length)
        memcpy(one->old, old, old_length);
    if (one->merge->deleted)
        return TREE_DELETE;
    if (one->merge->length)
        memcpy(value, one->merge->value, one->merge->length);
    *length = one->merge->length;
    return TREE_PUT;
}

/* What the leaf held is gone, unless it is what it holds now: the entry was merged before, by a process that
 * could not say so. */
static void release(struct tree_session *session, struct tree *tree, const struct unmerged_merge *merge,
                    const void *old, size_t old_length)
{
    if (!tree->values.released || (!merge->deleted && old_length == merge->length &&
                                   (!old_length || !memcmp(old, merge->value, old_length))))
        return;
    tree->values.released(tree->values_context, session, merge->key.bytes, merge->key.length, old, old_length,
                          merge->deleted ? NULL : merge->value, merge->deleted ? 0 : merge->length);
}

/* Of these errors it is certain that nothing was done: the range is on its way, or what was to be merged was
 * dropped with it; or a split finds no room. */
static enum unmerged_end end_of(int status)
{
    if (status == BANYAN_EFENCED || status == BANYAN_ENOSPC || status == BANYAN_ENOMEM)
        return UNMERGED_NOT_DONE;
    return status ? UNMERGED_PERHAPS : UNMERGED_DONE;
}

/* The merging of an entry has ended. What it did not bring to the leaf may be nobody's by now (S3). */
static void merging_end(struct tree_session *session, struct tree *tree, const struct unmerged_merge *merge,
                        int status)
{
    struct format_key_copy key;
    session->stats.unfinished += status == BANYAN_EUNKNOWN;
    format_key_store(&key, merge->key); /* the table's is gone with the entry */
    if (unmerged_merged(tree_log_table(tree), session->pool.epoch, merge, end_of(status)) &&
        !merge->deleted && tree->values.released)
        tree->values.released(tree->values_context, session, key.bytes, key.length, merge->value,
                              merge->length, NULL, 0);
}

int tree_logged_merge_one(struct tree_session *session, struct tree *tree, const struct unmerged_merge *merge)
{
    struct one one = {.merge = merge};
    const struct fabric_command *ahead = session->ahead;
    const uint32_t ahead_count = session->ahead_count;
    session->through = true;
    session->ahead_count = 0;
    session->merge_met = merge->met;
    int status = tree_change_leaf(session, tree, merge->key, one_change, &one);
    session->through = false;
    session->ahead = ahead;
    session->ahead_count = ahead_count;
    if (!status && one.existed)
        release(session, tree, merge, one.old, one.old_length);
    merging_end(session, tree, merge, status);
    return status;
}

/* ---- many ---- */

struct tree_apply {
    struct unmerged_merge merges[TREE_LOG_APPLY_MAX];
    struct tree_item items[TREE_LOG_APPLY_MAX];
    uint8_t old[TREE_LOG_APPLY_MAX][FORMAT_VALUE_MAX];
    struct tree_merged merged[TREE_LOG_APPLY_MAX]; /* by memory nodes */
};

static void apply_puts(struct tree_session *session, struct tree *tree, struct tree_apply *apply,
                       uint32_t count)
{
    uint32_t puts = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct unmerged_merge *merge = &apply->merges[i];
        if (!merge->deleted && !apply->merged[i].ended)
            apply->items[puts++] =
                (struct tree_item){.key = merge->key.bytes,
                                   .key_length = merge->key.length,
                                   .value = merge->value,
                                   .length = merge->length,
                                   .old = apply->old[i],
                                   .met = merge->met,
                                   .leaf = apply->merged[i].located ? &apply->merged[i].leaf : NULL};
    }
    if (puts)
        (void)tree_multi_put(session, tree, apply->items, puts); /* each item has its status */
}

/* A memory node has merged the entry, or may have. */
static int apply_merged(struct tree_session *session, struct tree *tree, const struct unmerged_merge *merge,
                        const struct tree_merged *merged)
{
    if (!merged->status && merged->existed)
        release(session, tree, merge, merged->old, merged->old_length);
    return merged->status;
}

static int apply_delete(struct tree_session *session, struct tree *tree, const struct unmerged_merge *merge)
{
    struct one one = {.merge = merge};
    int status = tree_modify_here(session, tree, merge->key.bytes, merge->key.length, one_change, &one);
    if (!status && one.existed)
        release(session, tree, merge, one.old, one.old_length);
    return status;
}

/* The walk's next entries are this task's. */
static uint32_t apply_take(struct tree_session *session, struct unmerged *table, struct tree_log_walk *walk,
                           struct unmerged_merge *merges, uint32_t limit)
{
    uint32_t count = 0;
    spinlock_lock(&walk->lock);
    const struct format_key begin = format_key_of(&walk->from);
    if (!walk->end)
        count = unmerged_take(table, session->pool.epoch, &begin, walk->to, merges, limit, &walk->from,
                              &walk->least, &walk->end);
    spinlock_unlock(&walk->lock);
    return count;
}

static void apply_tell(struct tree_log_walk *walk, uint64_t least, uint32_t done, uint32_t merged,
                       uint32_t there)
{
    spinlock_lock(&walk->lock);
    if (least < walk->least)
        walk->least = least;
    walk->done += done;
    walk->merged += merged;
    walk->there += there;
    spinlock_unlock(&walk->lock);
}

int tree_log_apply(struct tree_session *session, struct tree *tree, struct tree_log_walk *walk,
                   uint32_t limit)
{
    struct unmerged *table = tree_log_table(tree);
    uint64_t least = UINT64_MAX;
    uint32_t merged = 0, by_nodes = 0;
    int first = 0;
    if (!table) {
        spinlock_lock(&walk->lock);
        walk->end = true;
        spinlock_unlock(&walk->lock);
        return 0;
    }
    if (limit > TREE_LOG_APPLY_MAX)
        limit = TREE_LOG_APPLY_MAX;
    if (!session->apply) /* kept: a task may end in the middle of a call */
        session->apply = calloc(1, sizeof *session->apply);
    struct tree_apply *apply = session->apply;
    if (!apply)
        return pool_fail_memory(&session->pool);
    const uint32_t count = apply_take(session, table, walk, apply->merges, limit);
    session->through = session->draining = true;
    tree_merges_ask(session, tree, apply->merges, count, apply->merged);
    apply_puts(session, tree, apply, count);
    for (uint32_t i = 0, put = 0; i < count; i++) {
        struct unmerged_merge *merge = &apply->merges[i];
        const struct tree_merged *there = &apply->merged[i];
        const struct tree_item *item = merge->deleted || there->ended ? NULL : &apply->items[put++];
        int status = there->ended ? apply_merged(session, tree, merge, there)
                     : item       ? item->status
                                  : apply_delete(session, tree, merge);
        if (!status && item && item->existed)
            release(session, tree, merge, item->old, item->old_length);
        if (status && merge->sequence < least)
            least = merge->sequence;
        merged += !status;
        by_nodes += there->ended && !status;
        first = first ? first : status;
        merging_end(session, tree, merge, status);
    }
    session->through = session->draining = false;
    apply_tell(walk, least, count, merged, by_nodes);
    return first;
}

/* ---- keys whose last frame may have been written or not ---- */

int tree_log_settle(struct tree_session *session, struct tree *tree)
{
    struct unmerged *table = tree_log_table(tree);
    struct format_key_copy key = {0}, last = {.length = UINT16_MAX};
    int status = 0;
    session->draining = true;
    while (table && !status && unmerged_doubtful(table, session->pool.epoch, &key)) {
        bool same = last.length == key.length && !memcmp(last.bytes, key.bytes, key.length);
        last = key;
        status = same ? BANYAN_EFENCED /* the range is not this process's any more */
                      : tree_modify_here(session, tree, key.bytes, key.length, tree_keep, NULL);
    }
    session->draining = false;
    return status;
}
