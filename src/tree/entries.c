#include "tree/state.h"

#include <stdlib.h>

struct tree_key tree_separator(const struct tree_layout *layout, struct tree_key left, struct tree_key right)
{
    if (layout->geometry.key_kind == TREE_KEY_FIXED)
        return right;
    uint32_t common = tree_key_common(left, right);
    return (struct tree_key){right.bytes, common < right.length ? common + 1 : right.length};
}

/* ---- a leaf's entries in order ---- */

static int entry_compare(const void *left, const void *right)
{
    const struct tree_leaf_entry *a = left, *b = right;
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    return tree_key_compare(a->key, b->key);
}

static void entries_sort(struct tree_leaf_entry *entries, uint32_t count)
{
    if (count > 96) {
        qsort(entries, count, sizeof *entries, entry_compare);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        struct tree_leaf_entry entry = entries[i];
        uint32_t at = i;
        while (at && entry_compare(&entry, &entries[at - 1]) < 0) {
            entries[at] = entries[at - 1];
            at--;
        }
        entries[at] = entry;
    }
}

static int entries_reserve(struct tree_session *session, const struct tree_layout *layout)
{
    if (session->entries_capacity < layout->slots) {
        struct tree_leaf_entry *larger = malloc(layout->slots * sizeof *larger);
        if (!larger)
            return tree_fail_memory(session);
        free(session->entries);
        session->entries = larger;
        session->entries_capacity = layout->slots;
    }
    if (layout->geometry.key_kind == TREE_KEY_FIXED)
        return 0;
    return tree_reserve(session, &session->keys, &session->keys_capacity,
                        layout->slots * layout->geometry.key_bytes);
}

int tree_leaf_entries(struct tree_session *session, const struct tree_layout *layout, const uint8_t *image,
                      const struct tree_header *header, uint32_t *count)
{
    int status = entries_reserve(session, layout);
    if (status)
        return status;
    bool fixed = layout->geometry.key_kind == TREE_KEY_FIXED;
    uint32_t seed = tree_slot_seed(header->tag, header->version), found = 0;
    uint8_t *keys = session->keys;
    for (uint32_t i = 0; i < layout->slots; i++) {
        struct tree_slot slot;
        enum tree_slot_state state = tree_slot_read(layout, image, i, seed, header->lower, &slot);
        if (state == TREE_SLOT_INVALID)
            return TREE_RESTART;
        if (state == TREE_SLOT_EMPTY)
            continue;
        struct tree_leaf_entry *entry = &session->entries[found++];
        entry->key = slot.remainder;
        if (!fixed) {
            uint32_t length = slot.head_length + slot.remainder.length;
            if (length > layout->geometry.key_bytes)
                return TREE_RESTART;
            memcpy(keys, header->lower.bytes, slot.head_length);
            memcpy(keys + slot.head_length, slot.remainder.bytes, slot.remainder.length);
            entry->key = (struct tree_key){keys, length};
            keys += length;
        }
        entry->head = tree_key_head(entry->key);
        entry->value = slot.value;
        entry->number = i;
    }
    entries_sort(session->entries, found);
    *count = found;
    return 0;
}

/* ---- building ---- */

/* Where each entry goes under this tag: its number is set. False if a bucket and its overflow are full. */
static bool place_all(const struct tree_layout *layout, uint32_t tag, const struct tree_leaf_entry *entries,
                      uint32_t count, uint32_t *numbers)
{
    uint8_t own[TREE_BUCKETS_MAX] = {0}, overflow[TREE_BUCKETS_MAX / 2] = {0};
    for (uint32_t i = 0; i < count; i++) {
        struct tree_bucket bucket;
        tree_bucket_of(layout, tag, entries[i].key, &bucket);
        uint32_t triple = bucket.number / 2, side = bucket.number % 2;
        uint32_t base = triple * layout->triple_slots;
        if (own[bucket.number] < layout->segment_slots)
            numbers[i] =
                base + (side ? layout->segment_slots + layout->overflow_slots : 0) + own[bucket.number]++;
        else if (overflow[triple] < layout->overflow_slots)
            numbers[i] = base + layout->segment_slots + overflow[triple]++;
        else
            return false;
    }
    return true;
}

int tree_leaf_build(struct tree_session *session, const struct tree_layout *layout, uint16_t node,
                    unsigned tries, struct tree_header *header, const struct tree_leaf_entry *entries,
                    uint32_t count, uint8_t *image, bool *fits)
{
    uint32_t small[128];
    uint32_t *numbers = count <= 128 ? small : malloc(count * sizeof *numbers);
    if (!numbers)
        return tree_fail_memory(session);
    int status = 0;
    *fits = false;
    for (unsigned try = 0; try < tries && !*fits && !status; try++) {
        status = tree_take_tag(session, node, &header->tag);
        if (!status)
            *fits = place_all(layout, header->tag, entries, count, numbers);
    }
    if (!status && *fits) {
        header->version = 0;
        tree_leaf_format(layout, header, image);
        uint32_t seed = tree_slot_seed(header->tag, header->version);
        for (uint32_t i = 0; i < count; i++)
            tree_slot_write(layout, image, numbers[i], seed,
                            tree_slot_remainder(layout, header->lower, entries[i].key), entries[i].key,
                            entries[i].value);
    }
    if (numbers != small)
        free(numbers);
    return status;
}
