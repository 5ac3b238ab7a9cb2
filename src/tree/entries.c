#include "tree/state.h"

#include <stdlib.h>

#include "base/crc32c.h"

#define RUN_MAX 64u /* slots whose checks are computed together */

struct tree_key tree_separator(const struct tree_layout *layout, struct tree_key left, struct tree_key right)
{
    if (layout->geometry.key_kind == TREE_KEY_FIXED)
        return right;
    uint32_t common = tree_key_common(left, right);
    return (struct tree_key){right.bytes, common < right.length ? common + 1 : right.length};
}

/* ---- a leaf's entries in order ---- */

/* Sorting moves these instead of the entries. */
struct order {
    uint64_t head;
    uint32_t at;
};
#define BINS      128u /* of the first pass */
#define SORT_FAST 128u /* entries that it is made for */

static bool precedes(const struct tree_leaf_entry *entries, struct order a, struct order b)
{
    if (a.head != b.head)
        return a.head < b.head;
    return tree_key_compare(entries[a.at].key, entries[b.at].key) < 0;
}

/* Into bins by the heads' leading bits, then by insertion: keys of one leaf are seldom far from evenly
 * spread, and it is right if they are. */
static void order_fast(const struct tree_leaf_entry *entries, struct order *order, uint32_t count)
{
    struct order unsorted[SORT_FAST];
    uint8_t starts[BINS + 1] = {0};
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t head = entries[i].head;
        unsorted[i] = (struct order){head, i};
        least = head < least ? head : least;
        most = head > most ? head : most;
    }
    unsigned bits = most > least ? 64u - (unsigned)__builtin_clzll(most - least) : 0;
    unsigned shift = bits > 7 ? bits - 7 : 0;
    for (uint32_t i = 0; i < count; i++)
        starts[((unsorted[i].head - least) >> shift) + 1]++;
    for (uint32_t bin = 0; bin < BINS; bin++)
        starts[bin + 1] = (uint8_t)(starts[bin + 1] + starts[bin]);
    for (uint32_t i = 0; i < count; i++)
        order[starts[(unsorted[i].head - least) >> shift]++] = unsorted[i];
    for (uint32_t i = 1; i < count; i++) {
        struct order moving = order[i];
        uint32_t at = i;
        for (; at && precedes(entries, moving, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = moving;
    }
}

static int entry_compare(const void *left, const void *right)
{
    const struct tree_leaf_entry *a = left, *b = right;
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    return tree_key_compare(a->key, b->key);
}

/* From `unsorted` into `entries`. */
static void entries_sort(struct tree_leaf_entry *unsorted, struct tree_leaf_entry *entries, uint32_t count)
{
    if (count > SORT_FAST) {
        memcpy(entries, unsorted, count * sizeof *entries);
        qsort(entries, count, sizeof *entries, entry_compare);
        return;
    }
    struct order order[SORT_FAST];
    order_fast(unsorted, order, count);
    for (uint32_t i = 0; i < count; i++)
        entries[i] = unsorted[order[i].at];
}

static int entries_reserve(struct tree_session *session, const struct tree_layout *layout)
{
    if (session->entries_capacity < layout->slots) {
        struct tree_leaf_entry *larger = malloc(2 * layout->slots * sizeof *larger); /* sorted, unsorted */
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

/* Fixed keys and values: the checks of many slots are computed in one go. TREE_RESTART if one is invalid. */
static int collect_fixed(const struct tree_layout *layout, const uint8_t *image, uint32_t seed,
                         struct tree_leaf_entry *entries, uint32_t *count)
{
    const uint32_t key_bytes = layout->geometry.key_bytes, value_bytes = layout->geometry.value_bytes;
    const uint32_t empty = tree_slot_empty_check(seed);
    uint32_t found = 0, checks[RUN_MAX];
    for (uint32_t first = 0, run; first < layout->slots; first += run) {
        /* Slots of a triple up to its head lie one behind the other, and so do those after it. */
        uint32_t within = first % layout->triple_slots;
        run = within < layout->segment_slots ? layout->segment_slots - within : layout->triple_slots - within;
        run = run < RUN_MAX ? run : RUN_MAX;
        const uint8_t *slot = image + layout->slot_offset[first];
        crc32c_each(seed, slot + 4, layout->slot_bytes, run, key_bytes + value_bytes, checks);
        for (uint32_t i = 0; i < run; i++, slot += layout->slot_bytes) {
            uint32_t check;
            memcpy(&check, slot, sizeof check);
            if (check == empty)
                continue;
            if (check != (checks[i] | 1u))
                return TREE_RESTART;
            struct tree_leaf_entry *entry = &entries[found++];
            entry->key = (struct tree_key){slot + 4, key_bytes};
            entry->value = (struct tree_key){slot + 4 + key_bytes, value_bytes};
            entry->head = tree_key_head(entry->key);
            entry->number = first + i;
        }
    }
    *count = found;
    return 0;
}

static int collect(struct tree_session *session, const struct tree_layout *layout, const uint8_t *image,
                   const struct tree_header *header, uint32_t seed, struct tree_leaf_entry *entries,
                   uint32_t *count)
{
    uint32_t found = 0;
    uint8_t *keys = session->keys;
    for (uint32_t i = 0; i < layout->slots; i++) {
        struct tree_slot slot;
        enum tree_slot_state state = tree_slot_read(layout, image, i, seed, header->lower, &slot);
        if (state == TREE_SLOT_INVALID)
            return TREE_RESTART;
        if (state == TREE_SLOT_EMPTY)
            continue;
        struct tree_leaf_entry *entry = &entries[found++];
        entry->key = slot.remainder;
        if (layout->geometry.key_kind == TREE_KEY_VARIABLE) {
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
    *count = found;
    return 0;
}

int tree_leaf_entries(struct tree_session *session, const struct tree_layout *layout, const uint8_t *image,
                      const struct tree_header *header, uint32_t *count)
{
    int status = entries_reserve(session, layout);
    if (status)
        return status;
    struct tree_leaf_entry *unsorted = session->entries + layout->slots;
    uint32_t seed = tree_slot_seed(header->tag, header->version);
    bool plain = layout->geometry.key_kind == TREE_KEY_FIXED && !layout->geometry.value_variable;
    status = plain ? collect_fixed(layout, image, seed, unsorted, count)
                   : collect(session, layout, image, header, seed, unsorted, count);
    if (status)
        return status;
    entries_sort(unsorted, session->entries, *count);
    /* A key deleted and put again elsewhere while the leaf was read may stand in two slots, each valid by
     * itself. */
    for (uint32_t i = 1; i < *count; i++)
        if (session->entries[i].head == session->entries[i - 1].head &&
            !tree_key_compare(session->entries[i].key, session->entries[i - 1].key))
            return TREE_RESTART;
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
