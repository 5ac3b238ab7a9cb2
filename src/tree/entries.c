/*
 * entries.c - A leaf's entries in key order, and leaves built from entries. Local work, but for long keys
 * (keyblocks.c): one round trip where a leaf has any. Buffers are the session's.
 */
#include "tree/entries.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/ranks.h"
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
#define SORT_FAST 128u /* entries that this is made for */

/* What is being sorted: entries of `entries`, or where that is NULL slots of `image` (fixed keys and values).
 */
struct sorting {
    const struct format_layout *layout;
    const uint8_t *image;
    const struct tree_leaf_entry *entries;
    const struct format_header *header; /* whose fence keys hold all of them, but for a rare key */
    bool repeated;                      /* a key stood there twice */
};

static struct format_key key_at(const struct sorting *sorting, uint32_t at)
{
    if (sorting->entries)
        return sorting->entries[at].key;
    return (struct format_key){sorting->image + sorting->layout->slot_offset[at] + 4,
                               sorting->layout->geometry.key_bytes};
}

static bool precedes(struct sorting *sorting, struct crc32c_piece a, struct crc32c_piece b)
{
    if (a.head != b.head)
        return a.head < b.head;
    int order = format_key_compare(key_at(sorting, a.number), key_at(sorting, b.number));
    sorting->repeated |= !order;
    return order < 0;
}

/* Not inlined: the loop around it, which seldom calls it, keeps its registers. */
static __attribute__((noinline)) void insert_one(struct sorting *sorting, struct crc32c_piece *order,
                                                 uint32_t at)
{
    const struct crc32c_piece moving = order[at];
    for (; at && precedes(sorting, moving, order[at - 1]); at--)
        order[at] = order[at - 1];
    order[at] = moving;
}

/* Quick where nearly all stand in order already. */
static void sort_insertion(struct sorting *sorting, struct crc32c_piece *order, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (order[i - 1].head >= order[i].head)
            insert_one(sorting, order, i);
}

/* What the heads lie between: a hint, by which the first pass spreads them. */
struct span {
    uint64_t least;
    unsigned bits; /* of the difference between the greatest head and the least */
};

static struct span heads_span(const struct sorting *sorting, const struct crc32c_piece *order, uint32_t count)
{
    const struct format_header *header = sorting->header;
    uint64_t least = format_key_head(header->lower), most = least;
    if (header->has_upper)
        most = format_key_head(header->upper);
    else
        for (uint32_t i = 0; i < count; i++)
            most = order[i].head > most ? order[i].head : most;
    return (struct span){least, most > least ? 64u - (unsigned)__builtin_clzll(most - least) : 0};
}

#if RANKS_VECTORS
#define RANK_INDEX_BITS 6u
#define RANK_BITS       (16u - RANK_INDEX_BITS)
_Static_assert(RANKS_MAX == 1u << RANK_INDEX_BITS, "so many entries can be told apart by a few bits");

/* All are compared with all, by the leading bits of their heads, and where these are equal by where they
 * stand; then by insertion: keys of one leaf are seldom far from evenly spread, and it is right if they are.
 * Sorts as sort_bins does. */
static void sort_ranks(struct sorting *sorting, const struct crc32c_piece *unsorted,
                       struct crc32c_piece *order, uint32_t count)
{
    uint16_t numbers[RANKS_MAX], ranks[RANKS_MAX];
    const struct span span = heads_span(sorting, unsorted, count);
    const unsigned shift = span.bits > RANK_BITS ? span.bits - RANK_BITS : 0;
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = (uint16_t)((unsorted[i].head - span.least) >> shift << RANK_INDEX_BITS | i);
    ranks_find(numbers, count, ranks);
    for (uint32_t i = 0; i < count; i++)
        order[ranks[i]] = unsorted[i];
    sort_insertion(sorting, order, count);
}
#endif

static uint32_t bin_of(struct span span, uint64_t head)
{
    const unsigned shift = span.bits > 6 ? span.bits - 6 : 0;
    return (uint32_t)((head - span.least) >> shift) & (BINS - 1);
}

/* Into bins by the heads' leading bits, then by insertion: keys of one leaf are seldom far from evenly
 * spread, and it is right if they are. */
static void sort_bins(struct sorting *sorting, const struct crc32c_piece *unsorted,
                      struct crc32c_piece *order, uint32_t count)
{
    uint8_t starts[BINS + 1] = {0};
    const struct span span = heads_span(sorting, unsorted, count);
    for (uint32_t i = 0; i < count; i++)
        starts[bin_of(span, unsorted[i].head) + 1]++;
    for (uint32_t bin = 0; bin < BINS; bin++)
        starts[bin + 1] = (uint8_t)(starts[bin + 1] + starts[bin]);
    for (uint32_t i = 0; i < count; i++)
        order[starts[bin_of(span, unsorted[i].head)]++] = unsorted[i];
    sort_insertion(sorting, order, count);
}

/* Large leaves: merges ever longer runs, back and forth between the array and the room where they stood
 * unsorted. */
static void sort_merge(struct sorting *sorting, struct crc32c_piece *room, struct crc32c_piece *order,
                       uint32_t count)
{
    memcpy(order, room, count * sizeof *order);
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
        struct crc32c_piece *order = malloc(2 * layout->slots * sizeof *order); /* sorted, unsorted */
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

/* What stands in `unsorted` may be overwritten. */
static void sort(struct sorting *sorting, struct crc32c_piece *unsorted, struct crc32c_piece *order,
                 uint32_t count)
{
#if RANKS_VECTORS
    if (count <= RANKS_MAX) {
        sort_ranks(sorting, unsorted, order, count);
        return;
    }
#endif
    if (count <= SORT_FAST)
        sort_bins(sorting, unsorted, order, count);
    else
        sort_merge(sorting, unsorted, order, count);
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
    struct crc32c_piece *heads = session->order + layout->slots;
    const uint32_t seed = format_slot_seed(header->tag, header->version);
    const bool plain = format_layout_plain(layout);
    if (plain) {
        *count = format_slots_taken(layout, image, seed, heads);
        status = *count == CRC32C_NONE ? TREE_RESTART : 0;
    } else {
        status = collect(session, layout, image, header, &seed, 1, unsorted, count);
    }
    if (status)
        return status;
    for (uint32_t i = 0; i < *count && !plain; i++) {
        unsorted[i].head = format_key_head(unsorted[i].key);
        heads[i] = (struct crc32c_piece){unsorted[i].head, i};
    }
    struct sorting sorting = {layout, image, plain ? NULL : unsorted, header, false};
    sort(&sorting, heads, session->order, *count);
    /* A key deleted and put again elsewhere while the leaf was read may stand in two slots, each valid by
     * itself. */
    return sorting.repeated ? TREE_RESTART : 0;
}

/* Of a key in the image, `at` its slot. */
static inline uint64_t head_at(const uint8_t *image, uint32_t at)
{
    uint64_t head;
    memcpy(&head, image + at + 4, sizeof head);
    return __builtin_bswap64(head);
}

/* Whether these numbers of slots are the order of all that are taken, which then is written: they are as
 * many, and as their heads ascend, no slot comes twice. False says nothing. */
static bool order_by_numbers(const struct format_layout *layout, const uint8_t *image, const uint8_t *numbers,
                             uint64_t taken, uint32_t count, struct crc32c_piece *order)
{
    const uint32_t *places = layout->slot_offset;
    uint64_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t number = numbers[i] % FORMAT_SIFTED_MAX;
        if (!(taken >> number & 1u))
            return false;
        const uint64_t head = head_at(image, places[number]);
        if (head <= last && i)
            return false;
        order[i].head = last = head;
        order[i].number = number;
    }
    return true;
}

/* Says what the leaf should keep, if it does not keep that already. */
static void order_keep(const struct crc32c_piece *order, uint32_t count, struct tree_kept_order *kept)
{
    for (uint32_t i = 0; i < count; i++) {
        kept->stale |= kept->numbers[i] != order[i].number;
        kept->numbers[i] = (uint8_t)order[i].number;
    }
}

int tree_leaf_order_shared(struct tree_session *session, const struct format_layout *layout,
                           const uint8_t *shared, uint8_t *image, const struct format_header *header,
                           struct tree_kept_order *kept, uint32_t *count)
{
    uint64_t taken;
    int status = entries_reserve(session, layout);
    if (status)
        return status;
    if (!format_slots_take(layout, shared, image, format_slot_seed(header->tag, header->version), &taken))
        return TREE_RESTART;
    *count = (uint32_t)__builtin_popcountll(taken);
    if (kept) {
        kept->stale = false;
        atomic_copy_from(kept->numbers, shared + layout->used_bytes, layout->slots);
        if (order_by_numbers(layout, image, kept->numbers, taken, *count, session->order))
            return 0;
    }
    struct crc32c_piece *unsorted = session->order + layout->slots, *next = unsorted;
    for (uint64_t left = taken; left; left &= left - 1) {
        const uint32_t number = (uint32_t)__builtin_ctzll(left);
        *next++ = (struct crc32c_piece){head_at(image, layout->slot_offset[number]), number};
    }
    struct sorting sorting = {layout, image, NULL, header, false};
    sort(&sorting, unsorted, session->order, *count);
    if (kept)
        order_keep(session->order, *count, kept);
    return sorting.repeated ? TREE_RESTART : 0; /* as above */
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

/* How many of a bucket's entries stand in the overflow, if it holds so many. */
static uint32_t beyond_segment(const struct format_layout *layout, uint32_t held)
{
    return held > layout->segment_slots ? held - layout->segment_slots : 0;
}

/* Each entry's bucket under this tag. Returns how many slots are left to the bucket that has least; -1 if
 * they do not fit. */
static int buckets_find(const struct format_layout *layout, uint32_t tag,
                        const struct tree_leaf_entry *entries, uint32_t count, uint32_t *buckets)
{
    uint16_t held[FORMAT_BUCKETS_MAX + 1]; /* an unsorted leaf has half a triple */
    memset(held, 0, (layout->buckets + 1) * sizeof *held);
    for (uint32_t i = 0; i < count; i++) {
        buckets[i] = format_bucket_index(layout, tag, entries[i].key);
        held[buckets[i]]++;
    }
    uint32_t least = layout->bucket_slots;
    for (uint32_t triple = 0; triple < layout->triples; triple++) {
        const uint16_t *sides = held + 2 * triple;
        const uint32_t fuller = sides[0] > sides[1] ? sides[0] : sides[1];
        const uint32_t overflow = beyond_segment(layout, sides[0]) + beyond_segment(layout, sides[1]);
        if (overflow > layout->overflow_slots)
            return -1;
        const uint32_t left = layout->bucket_slots - overflow - (fuller - beyond_segment(layout, fuller));
        least = left < least ? left : least;
    }
    return (int)least;
}

/* Where each entry goes: the numbers of buckets become numbers of slots. */
static void slots_number(const struct format_layout *layout, uint32_t count, uint32_t *numbers)
{
    uint16_t own[FORMAT_BUCKETS_MAX], overflow[FORMAT_BUCKETS_MAX / 2 + 1];
    memset(own, 0, layout->buckets * sizeof *own);
    memset(overflow, 0, layout->triples * sizeof *overflow);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bucket = numbers[i], triple = bucket / 2, side = bucket % 2;
        const uint32_t base = triple * layout->triple_slots;
        if (own[bucket] < layout->segment_slots)
            numbers[i] = base + (side ? layout->segment_slots + layout->overflow_slots : 0) + own[bucket]++;
        else
            numbers[i] = base + layout->segment_slots + overflow[triple]++;
    }
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
        int left = buckets_find(layout, tag, entries, count, room);
        if (left <= best)
            continue;
        best = left;
        header->tag = tag;
        memcpy(numbers, room, count * sizeof *numbers);
        if (best >= enough)
            break;
    }
    *fits = !status && best >= 0;
    if (*fits)
        slots_number(layout, count, numbers);
    return status;
}

/* The entries into their slots of a new leaf. */
static void slots_write(const struct format_layout *layout, const struct format_header *header,
                        const struct tree_leaf_entry *entries, uint32_t count, const uint32_t *numbers,
                        uint8_t *image)
{
    const uint32_t seed = format_slot_seed(header->tag, header->version);
    if (!format_layout_plain(layout)) {
        for (uint32_t i = 0; i < count; i++)
            format_slot_write(layout, image, numbers[i], seed, header->lower, entries[i].block,
                              entries[i].key, entries[i].value);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        format_slot_place(layout, image, numbers[i], entries[i].key, entries[i].value);
    format_slots_seal(layout, image, numbers, count, seed);
}

/* The order that the leaf keeps, if it can: the entries come in it. */
static void order_write(const struct format_layout *layout, const uint32_t *numbers, uint32_t count,
                        uint8_t *image)
{
    uint8_t *kept = image + layout->used_bytes;
    if (!format_layout_keeps_order(layout))
        return;
    for (uint32_t i = 0; i < count; i++)
        kept[i] = (uint8_t)numbers[i];
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
        slots_write(layout, header, entries, count, numbers, image);
        order_write(layout, numbers, count, image);
    }
    if (numbers != small)
        free(numbers);
    return status;
}
