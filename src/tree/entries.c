/*
 * entries.c - A leaf's entries in key order, and leaves built from entries. Local work, but for long keys
 * (keyblocks.c): one round trip where a leaf has any. Buffers are the session's.
 */
#include "tree/entries.h"

#include <stdlib.h>
#include <string.h>

#include "tree/keyblocks.h"
#include "tree/session.h"

struct format_key tree_separator(const struct format_layout *layout, struct format_key left,
                                 struct format_key right)
{
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        return right;
    uint32_t common = format_key_common(left, right);
    return (struct format_key){right.bytes, common < right.length ? common + 1 : right.length};
}

/* ---- a leaf's entries in order ---- */

#define BINS      64u  /* of the first pass */
#define SORT_FAST 128u /* entries that it is made for */

/* What is being sorted: entries of `entries`, or where that is NULL slots of `image` (fixed keys and values).
 */
struct sorting {
    const struct format_layout *layout;
    const uint8_t *image;
    const struct tree_leaf_entry *entries;
    bool repeated; /* a key stood there twice */
};

static struct format_key key_at(const struct sorting *sorting, uint32_t at)
{
    if (sorting->entries)
        return sorting->entries[at].key;
    return (struct format_key){sorting->image + sorting->layout->slot_offset[at] + 4,
                               sorting->layout->geometry.key_bytes};
}

static bool precedes(struct sorting *sorting, struct tree_leaf_order a, struct tree_leaf_order b)
{
    if (a.head != b.head)
        return a.head < b.head;
    int order = format_key_compare(key_at(sorting, a.at), key_at(sorting, b.at));
    sorting->repeated |= !order;
    return order < 0;
}

static void sort_insertion(struct sorting *sorting, struct tree_leaf_order *order, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct tree_leaf_order moving = order[i];
        uint32_t at = i;
        for (; at && precedes(sorting, moving, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = moving;
    }
}

/* Into bins by the heads' leading bits, then by insertion: keys of one leaf are seldom far from evenly
 * spread, and it is right if they are. */
static void sort_fast(struct sorting *sorting, struct tree_leaf_order *order, uint32_t count)
{
    struct tree_leaf_order unsorted[SORT_FAST];
    uint8_t starts[BINS + 1] = {0};
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t head = order[i].head;
        unsorted[i] = order[i];
        least = head < least ? head : least;
        most = head > most ? head : most;
    }
    unsigned bits = most > least ? 64u - (unsigned)__builtin_clzll(most - least) : 0;
    unsigned shift = bits > 6 ? bits - 6 : 0;
    for (uint32_t i = 0; i < count; i++)
        starts[((unsorted[i].head - least) >> shift) + 1]++;
    for (uint32_t bin = 0; bin < BINS; bin++)
        starts[bin + 1] = (uint8_t)(starts[bin + 1] + starts[bin]);
    for (uint32_t i = 0; i < count; i++)
        order[starts[(unsorted[i].head - least) >> shift]++] = unsorted[i];
    sort_insertion(sorting, order, count);
}

/* Large leaves: merges ever longer runs, back and forth between the array and the room behind it. */
static void sort_merge(struct sorting *sorting, struct tree_leaf_order *order, uint32_t count,
                       struct tree_leaf_order *room)
{
    for (uint32_t start = 0; start < count; start += 16)
        sort_insertion(sorting, order + start, count - start < 16 ? count - start : 16);
    for (uint32_t width = 16; width < count; width *= 2) {
        for (uint32_t start = 0; start < count; start += 2 * width) {
            uint32_t middle = start + width < count ? start + width : count;
            uint32_t end = middle + width < count ? middle + width : count;
            for (uint32_t left = start, right = middle, to = start; to < end; to++) {
                bool take = right < end && (left == middle || precedes(sorting, order[right], order[left]));
                room[to] = take ? order[right++] : order[left++];
            }
        }
        memcpy(order, room, count * sizeof *order);
    }
}

static int entries_reserve(struct tree_session *session, const struct format_layout *layout)
{
    if (session->entries_capacity < layout->slots) {
        struct tree_leaf_entry *larger = malloc(2 * layout->slots * sizeof *larger); /* sorted, unsorted */
        if (!larger)
            return pool_fail_memory(&session->pool);
        struct tree_leaf_order *order = malloc(2 * layout->slots * sizeof *order); /* and room to merge in */
        if (!order) {
            free(larger);
            return pool_fail_memory(&session->pool);
        }
        free(session->entries);
        free(session->order);
        session->entries = larger;
        session->order = order;
        session->entries_capacity = layout->slots;
    }
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        return 0;
    return tree_reserve(session, &session->keys, &session->keys_capacity,
                        layout->slots * ((layout->geometry.key_bytes + 7u) & ~7u));
}

/* Fixed keys and values: the checks of many slots are computed in one go, and the slots themselves are the
 * entries. TREE_RESTART if one is invalid. */
static int collect_fixed(const struct format_layout *layout, const uint8_t *image, uint32_t seed,
                         struct tree_leaf_order *order, uint32_t *count)
{
    const uint32_t empty = format_slot_empty_check(seed);
    uint32_t found = 0, checks[FORMAT_SLOT_RUN_MAX];
    for (uint32_t first = 0, run; first < layout->slots; first += run) {
        const uint8_t *slot = image + layout->slot_offset[first];
        run = format_slot_checks(layout, image, first, layout->slots - first, seed, checks);
        for (uint32_t i = 0; i < run; i++, slot += layout->slot_bytes) {
            uint32_t check;
            uint64_t head;
            memcpy(&check, slot, sizeof check);
            if (check == empty)
                continue;
            if (check != checks[i])
                return TREE_RESTART;
            memcpy(&head, slot + 4, sizeof head); /* fixed keys have eight bytes or more */
            order[found++] = (struct tree_leaf_order){__builtin_bswap64(head), first + i};
        }
    }
    *count = found;
    return 0;
}

/* A variable key put together; a long one's bytes are left to tree_key_blocks_read. Returns where the next
 * key may begin. */
static uint8_t *entry_key(struct tree_leaf_entry *entry, const struct format_slot *slot,
                          struct format_key lower, uint8_t *keys)
{
    bool whole = slot->block == GADDR_NULL;
    uint32_t length = whole ? slot->prefix_length + slot->remainder.length : slot->key_length;
    if (whole) {
        memcpy(keys, lower.bytes, slot->prefix_length);
        memcpy(keys + slot->prefix_length, slot->remainder.bytes, slot->remainder.length);
    }
    entry->key = (struct format_key){keys, length};
    return keys + ((length + 7u) & ~7u); /* what is read from the pool is read to aligned places */
}

/* A leaf's taken slots in the order of the slots; each may be valid under any of the seeds. In a leaf that is
 * merging (R7) a slot that is valid under none got an entry of the right neighbour in part: it is left out.
 */
static int collect(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                   const struct format_header *header, const uint32_t *seeds, uint32_t seed_count,
                   struct tree_leaf_entry *entries, uint32_t *count)
{
    uint32_t found = 0, blocks = 0;
    uint8_t *keys = session->keys;
    session->stranger = GADDR_NULL;
    for (uint32_t i = 0; i < layout->slots; i++) {
        struct format_slot slot;
        enum format_slot_state state = FORMAT_SLOT_INVALID;
        for (uint32_t seed = 0; seed < seed_count && state == FORMAT_SLOT_INVALID; seed++)
            state = format_slot_read(layout, image, i, seeds[seed], header->lower, &slot);
        if (state == FORMAT_SLOT_INVALID && header->state != FORMAT_NODE_MERGING)
            return TREE_RESTART;
        if (state != FORMAT_SLOT_TAKEN)
            continue;
        struct tree_leaf_entry *entry = &entries[found++];
        entry->key = slot.remainder;
        if (layout->geometry.key_kind == FORMAT_KEY_VARIABLE) {
            if (slot.prefix_length + slot.remainder.length > layout->geometry.key_bytes)
                return TREE_RESTART;
            keys = entry_key(entry, &slot, header->lower, keys);
        }
        entry->value = slot.value;
        entry->block = slot.block;
        entry->number = i;
        blocks += slot.block != GADDR_NULL;
    }
    *count = found;
    return blocks ? tree_key_blocks_read(session, layout, image, entries, found) : 0;
}

int tree_leaf_halves(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                     const struct format_header *header, uint32_t *count)
{
    const uint32_t seeds[2] = {format_slot_seed(header->tag, (uint16_t)(header->version - 1)),
                               format_slot_seed(header->tag, header->version)};
    int status = entries_reserve(session, layout);
    return status ? status : collect(session, layout, image, header, seeds, 2, session->entries, count);
}

int tree_leaf_order(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                    const struct format_header *header, uint32_t *count)
{
    int status = entries_reserve(session, layout);
    if (status)
        return status;
    struct tree_leaf_entry *unsorted = session->entries + layout->slots;
    uint32_t seed = format_slot_seed(header->tag, header->version);
    status = format_layout_plain(layout) ? collect_fixed(layout, image, seed, session->order, count)
                                         : collect(session, layout, image, header, &seed, 1, unsorted, count);
    if (status)
        return status;
    for (uint32_t i = 0; i < *count && !format_layout_plain(layout); i++) {
        unsorted[i].head = format_key_head(unsorted[i].key);
        session->order[i] = (struct tree_leaf_order){unsorted[i].head, i};
    }
    struct sorting sorting = {layout, image, format_layout_plain(layout) ? NULL : unsorted, false};
    if (*count <= SORT_FAST)
        sort_fast(&sorting, session->order, *count);
    else
        sort_merge(&sorting, session->order, *count, session->order + layout->slots);
    /* A key deleted and put again elsewhere while the leaf was read may stand in two slots, each valid by
     * itself. */
    return sorting.repeated ? TREE_RESTART : 0;
}

int tree_leaf_entries(struct tree_session *session, const struct format_layout *layout, const uint8_t *image,
                      const struct format_header *header, uint32_t *count)
{
    int status = tree_leaf_order(session, layout, image, header, count);
    for (uint32_t i = 0; !status && i < *count; i++)
        tree_leaf_entry_at(session, layout, image, i, &session->entries[i]);
    return status;
}

/* ---- building ---- */

/* Where each entry goes under this tag: its number is set. Returns how many slots are left to the bucket that
 * has least; negative if they are fewer than `wanted`. */
static int place_all(const struct format_layout *layout, uint32_t tag, const struct tree_leaf_entry *entries,
                     uint32_t count, int wanted, uint32_t *numbers)
{
    uint16_t own[FORMAT_BUCKETS_MAX] = {0}, overflow[FORMAT_BUCKETS_MAX / 2] = {0};
    int least = (int)layout->bucket_slots;
    for (uint32_t i = 0; i < count && least >= wanted; i++) {
        struct format_bucket bucket;
        format_bucket_of(layout, tag, entries[i].key, &bucket);
        uint32_t triple = bucket.number / 2, side = bucket.number % 2;
        uint32_t base = triple * layout->triple_slots;
        if (own[bucket.number] < layout->segment_slots)
            numbers[i] =
                base + (side ? layout->segment_slots + layout->overflow_slots : 0) + own[bucket.number]++;
        else if (overflow[triple] < layout->overflow_slots)
            numbers[i] = base + layout->segment_slots + overflow[triple]++;
        else
            return -1;
        /* Of a triple's two buckets the one that has put an entry into the overflow has no more than the
         * other. */
        int left = (int)(layout->bucket_slots - own[bucket.number]) - overflow[triple];
        least = left < least ? left : least;
    }
    return least >= wanted ? least : -1;
}

/* What the bucket that has least would have left if the entries were spread evenly, but for one. */
static int nearly_even(const struct format_layout *layout, uint32_t count)
{
    int triple = ((int)layout->slots - (int)count) / (int)layout->triples;
    int bucket = (int)layout->bucket_slots - (int)(count / layout->buckets);
    return (triple < bucket ? triple : bucket) - 1;
}

/* Takes tags until the entries fit, `tries` at most, and `choice` tags at least unless one spreads them
 * nearly evenly: the one that leaves the bucket that is the fullest most room. Sets header->tag and the
 * numbers; *fits false: there is none. `room`: for as many numbers again. */
static int choose_tag(struct tree_session *session, const struct format_layout *layout, uint16_t node,
                      unsigned tries, unsigned choice, struct format_header *header,
                      const struct tree_leaf_entry *entries, uint32_t count, uint32_t *numbers,
                      uint32_t *room, bool *fits)
{
    const int enough = nearly_even(layout, count);
    int best = -1, status = 0;
    for (unsigned try = 0; try < (best < 0 || tries < choice ? tries : choice); try++) {
        uint32_t tag;
        status = pool_take_tag(&session->pool, node, &tag);
        if (status)
            break;
        int left = place_all(layout, tag, entries, count, best + 1, room);
        if (left < 0)
            continue;
        best = left;
        header->tag = tag;
        memcpy(numbers, room, count * sizeof *numbers);
        if (best >= enough)
            break;
    }
    *fits = !status && best >= 0;
    return status;
}

int tree_leaf_build(struct tree_session *session, const struct format_layout *layout, uint16_t node,
                    unsigned tries, unsigned choice, struct format_header *header,
                    const struct tree_leaf_entry *entries, uint32_t count, uint8_t *image, bool *fits)
{
    uint32_t small[256];
    uint32_t *numbers = count <= 128 ? small : malloc(2 * count * sizeof *numbers);
    *fits = false;
    if (!numbers)
        return pool_fail_memory(&session->pool);
    int status = choose_tag(session, layout, node, tries, choice, header, entries, count, numbers,
                            numbers + count, fits);
    if (!status && *fits) {
        header->version = 0;
        format_leaf_format(layout, header, image);
        uint32_t seed = format_slot_seed(header->tag, header->version);
        for (uint32_t i = 0; i < count; i++)
            format_slot_write(layout, image, numbers[i], seed, header->lower, entries[i].block,
                              entries[i].key, entries[i].value);
    }
    if (numbers != small)
        free(numbers);
    return status;
}
