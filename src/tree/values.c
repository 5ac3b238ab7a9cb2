/*
 * values.c - Cached values to which slots refer, for the store above; contract in tree.h. No round trips.
 */
#include "tree/owned_cache_use.h"

bool tree_value_find(struct tree_session *session, const struct tree *tree,
                     const struct tree_reference *reference, void *to, uint32_t length, uint64_t *note)
{
    return tree->owned && owned_cache_value(tree->owned, session->pool.epoch, reference, to, length, note,
                                            tree_owned_draw(session));
}

void tree_value_offer(struct tree_session *session, const struct tree *tree,
                      const struct tree_reference *reference, const void *bytes, uint32_t length,
                      uint64_t note, bool looked_up, const struct tree_reference *before)
{
    struct epoch_slot *slot = session->pool.epoch;
    uint32_t hits = looked_up ? session->entry_hits : 0;
    if (!tree->owned)
        return;
    if (before && owned_cache_drop_value(tree->owned, slot, before, &hits))
        hits++; /* it makes room for this one, which is met as often */
    owned_cache_offer_value(tree->owned, slot, reference, bytes, length, note, hits);
}

void tree_value_forget(struct tree_session *session, const struct tree *tree,
                       const struct tree_reference *reference)
{
    uint32_t hits;
    if (tree->owned)
        owned_cache_drop_value(tree->owned, session->pool.epoch, reference, &hits);
}
