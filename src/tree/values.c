/*
 * values.c - Cached values to which slots refer, for the store above; contract in tree.h. No round trips.
 */
#include <string.h>

#include "tree/logging.h"
#include "tree/owned_cache_use.h"

bool tree_value_find(struct tree_session *session, const struct tree *tree,
                     const struct tree_reference *reference, void *to, uint32_t length, uint64_t *note)
{
    return tree->owned && owned_cache_value(tree->owned, session->pool.epoch, reference, to, length, note,
                                            tree_owned_draw(session));
}

bool tree_value_before(const struct tree_session *session, void *value, uint32_t *length)
{
    if (!session->leaf_value.known)
        return false;
    *length = session->leaf_value.length;
    memcpy(value, session->leaf_value.bytes, *length);
    return true;
}

void tree_value_offer(struct tree_session *session, const struct tree *tree,
                      const struct tree_reference *reference, const void *bytes, uint32_t length,
                      uint64_t note, bool looked_up, const struct tree_reference *before)
{
    struct epoch_slot *slot = session->pool.epoch;
    uint32_t hits = looked_up || before ? session->entry_hits : 0;
    if (!tree->owned)
        return;
    if (before && owned_cache_replace_value(tree->owned, slot, before, reference, bytes, length, note,
                                            tree_owned_draw(session), &hits))
        return;
    owned_cache_offer_value(tree->owned, slot, reference, bytes, length, note, hits);
}

bool tree_value_now(struct tree_session *session, struct tree *tree, const void *key_bytes, size_t key_length,
                    void *value, uint32_t *length)
{
    const struct format_key key = {key_bytes, (uint32_t)key_length};
    struct unmerged *table = tree_log_table(tree);
    uint32_t hits;
    *length = 0;
    if (table && unmerged_find(table, key, value, length, 0, NULL) != UNMERGED_NONE)
        return true; /* deleted: nothing */
    return tree->owned && owned_cache_peek(tree->owned, session->pool.epoch, key, value, length, &hits);
}

void tree_value_forget(struct tree_session *session, const struct tree *tree,
                       const struct tree_reference *reference)
{
    uint32_t hits;
    if (tree->owned)
        owned_cache_drop_value(tree->owned, session->pool.epoch, reference, &hits);
}
