/*
 * cached.c - See cached.h. The words of a reference are those of the slot: address, length and check.
 */
#include "store/cached.h"

static struct tree_reference name_of(const void *key, size_t key_length,
                                     const struct format_reference *reference)
{
    uint8_t bytes[FORMAT_REFERENCE_BYTES];
    struct tree_reference name = {.key = format_record_hash(key, key_length)};
    format_value_encode_reference(bytes, reference);
    memcpy(name.words, bytes + 1, sizeof name.words);
    return name;
}

/* Behind an offer of what the reference names. */
static void forget_old(struct store_session *session, const void *key, size_t key_length,
                       const struct tree_reference *name)
{
    uint8_t bytes[FORMAT_VALUE_MAX];
    uint32_t length;
    struct format_value slot;
    if (!tree_value_now(session->tree, session->store->tree, key, key_length, bytes, &length))
        return;
    if (format_value_decode(bytes, length, &slot) && slot.record) {
        const struct tree_reference now = name_of(key, key_length, &slot.reference);
        if (now.words[0] == name->words[0] && now.words[1] == name->words[1])
            return;
    }
    tree_value_forget(session->tree, session->store->tree, name);
}

bool store_cached_find(struct store_session *session, const void *key, size_t key_length,
                       const struct format_reference *reference, uint8_t *room, struct store_value *value)
{
    const struct tree_reference name = name_of(key, key_length, reference);
    uint64_t expires;
    if (reference->room ||
        !tree_value_find(session->tree, session->store->tree, &name, room, reference->length, &expires))
        return false;
    if (reference->expires != (expires != 0)) /* a damaged slot: what it refers to tells */
        return false;
    *value = (struct store_value){.bytes = room, .length = reference->length, .expires = expires};
    return true;
}

void store_cached_offer(struct store_session *session, const void *key, size_t key_length,
                        const struct format_reference *reference, const struct store_value *value,
                        bool looked_up)
{
    const struct tree_reference name = name_of(key, key_length, reference);
    if (reference->room)
        return;
    tree_value_offer(session->tree, session->store->tree, &name, value->bytes, reference->length,
                     value->expires, looked_up, NULL);
    forget_old(session, key, key_length, &name);
}

void store_cached_replace(struct store_session *session, const void *key, size_t key_length,
                          const struct format_reference *reference, const struct store_value *value,
                          const struct store_raw *old)
{
    const struct tree_reference name = name_of(key, key_length, reference);
    struct tree_reference before;
    struct format_value slot;
    struct store_raw cached;
    if (reference->room)
        return;
    if (!old->present) { /* the leaf of a logged range has it, perhaps */
        uint32_t length = 0;
        cached.present = tree_value_before(session->tree, cached.bytes, &length);
        cached.length = (uint8_t)length;
        old = &cached;
    }
    bool replaces = old->present && format_value_decode(old->bytes, old->length, &slot) && slot.record;
    if (replaces)
        before = name_of(key, key_length, &slot.reference);
    tree_value_offer(session->tree, session->store->tree, &name, value->bytes, reference->length,
                     value->expires, false, replaces ? &before : NULL);
    forget_old(session, key, key_length, &name);
}

void store_cached_forget(struct store_session *session, const void *key, size_t key_length,
                         const struct format_reference *reference)
{
    const struct tree_reference name = name_of(key, key_length, reference);
    if (!reference->room && session->store->tree) /* drop.c has none: nothing of the index is cached here */
        tree_value_forget(session->tree, session->store->tree, &name);
}
