/*
 * walk_merge.c - MERGE (request.h): the owner of a range has its logged entries put into their leaves by this
 * memory node's CPU; and EXCHANGE, by which it has one change of a client made so, if the key holds what that
 * expects. Of each entry's leaf one slot is changed, as by a change in place (tree/in_place.c), and
 * by nothing less than a WRITE: by the same stores, and staged where the pool outlives this process (G5).
 *
 * The owner holds the leaf's lock until it has the answer, so nobody else writes in the leaf, and one look at
 * it is enough: a leaf that does not prove itself was left so by a death, and is the owner's to mend. What
 * needs more than one slot (R3, R4 and R7 have an order of writes to keep) is not done here either: a full
 * bucket, a long key that is new, and the last entry of a bucket, with which the leaf may have to go.
 */
#include <assert.h>

#include "fabric/local_run.h"
#include "format/verdict.h"
#include "memory/request.h"
#include "memory/walk_message.h"
#include "memory/walker.h"

struct entry {
    struct format_link leaf;
    struct format_key key, value;
    bool deleted;
    enum memory_expectation expects; /* MERGE: anything */
    struct format_key expected;
};

/* What became of an entry: the answer. */
struct merged {
    enum memory_walk_outcome outcome;
    struct format_slot slot; /* HIT: where the key was, and what it held: in the image, or in `old` */
    uint32_t number;         /* of the slot that was written; UINT32_MAX: none */
    gaddr block;             /* of the key, if the slot names one, or did before the key was deleted */
    uint8_t old[FORMAT_VALUE_MAX];
};

/* ---- requests ---- */

static bool sound(const struct memory_walker *walker, const struct entry *entry)
{
    const struct format_geometry *geometry = &walker->layout->geometry;
    if (gaddr_node(entry->leaf.address) != walker->number ||
        !walker_node(walker, entry->leaf.address, geometry->leaf_bytes))
        return false;
    /* A slot with a key of no bytes would be valid for nobody. */
    if (geometry->key_kind == FORMAT_KEY_FIXED
            ? entry->key.length != geometry->key_bytes
            : !entry->key.length || entry->key.length > geometry->key_bytes)
        return false;
    if (entry->deleted)
        return !entry->value.length;
    return geometry->value_variable ? entry->value.length <= geometry->value_bytes
                                    : entry->value.length == geometry->value_bytes;
}

/* The next entry; its key and value stay in the request. */
static bool take_entry(const struct memory_walker *walker, struct walker_cursor *cursor, struct entry *entry)
{
    struct memory_merge_entry head;
    if (!walker_take(cursor, &head, sizeof head) || head.deleted > 1 || head.reserved ||
        cursor->left < (size_t)head.key_length + head.value_length)
        return false;
    *entry = (struct entry){.leaf = {.address = head.leaf, .tag = head.tag},
                            .key = {cursor->bytes, head.key_length},
                            .value = {cursor->bytes + head.key_length, head.value_length},
                            .deleted = head.deleted};
    cursor->bytes += (size_t)head.key_length + head.value_length;
    cursor->left -= (size_t)head.key_length + head.value_length;
    return sound(walker, entry);
}

/* The same with what its key must hold, if the request says that. */
static bool take(const struct memory_walker *walker, const struct memory_walk_request *request,
                 struct walker_cursor *cursor, struct entry *entry)
{
    struct memory_exchange_expected head;
    if (!take_entry(walker, cursor, entry))
        return false;
    if (request->kind == MEMORY_MERGE)
        return true;
    if (!walker_take(cursor, &head, sizeof head) || head.expects >= MEMORY_EXPECTATIONS || head.reserved ||
        (head.length && head.expects != MEMORY_EXPECT_VALUE) || cursor->left < head.length)
        return false;
    entry->expects = (enum memory_expectation)head.expects;
    entry->expected = (struct format_key){cursor->bytes, head.length};
    cursor->bytes += head.length;
    cursor->left -= head.length;
    return true;
}

/* ---- the leaf ---- */

/* The word-wise stores of a WRITE. For tests: what comes between two of them. */
static void store_apart(struct memory_walker *walker, uint8_t *to, const uint8_t *from, uint32_t length)
{
    for (uint32_t done = 0, piece; done < length; done += piece) {
        piece = 8 - (uint32_t)((uintptr_t)(to + done) % 8);
        piece = piece < length - done ? piece : length - done;
        walker->between(walker->between_context);
        atomic_copy_to(to + done, from + done, piece);
    }
    walker->between(walker->between_context);
}

static void store(struct memory_walker *walker, gaddr leaf, uint8_t *shared, uint32_t offset, uint32_t length)
{
    const struct fabric_command write = {.operation = FABRIC_WRITE,
                                         .length = length,
                                         .address = leaf + offset,
                                         .write = {.data = walker->image + offset}};
    if (walker->between)
        store_apart(walker, shared + offset, walker->image + offset, length);
    else
        local_write(shared + offset, &write, walker->staging);
    walker->stored = true;
}

static enum memory_walk_outcome put_slot(struct memory_walker *walker, const struct entry *entry,
                                         const struct format_point *point, const struct format_header *header,
                                         uint8_t *shared, struct merged *merged)
{
    const struct format_layout *layout = walker->layout;
    const uint32_t seed = format_slot_seed(header->tag, header->version);
    const bool found = merged->outcome == MEMORY_WALK_HIT;
    const uint32_t number =
        found ? merged->slot.number : format_bucket_free_slot(layout, walker->image, &point->bucket, seed);
    if (number == UINT32_MAX || (!found && format_slot_needs_block(layout, header->lower, entry->key)))
        return MEMORY_WALK_MORE;
    merged->block = found ? merged->slot.block : GADDR_NULL;
    format_slot_write(layout, walker->image, number, seed, header->lower, merged->block, entry->key,
                      entry->value);
    store(walker, entry->leaf.address, shared, layout->slot_offset[number], layout->slot_bytes);
    merged->number = number;
    return merged->outcome;
}

/* Whether the bucket, which is in the image, has a key beside the one in this slot. */
static bool others_taken(const struct memory_walker *walker, const struct format_bucket *bucket,
                         uint32_t seed, uint32_t number)
{
    const uint32_t empty = format_slot_empty_check(seed);
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        uint32_t check;
        memcpy(&check, walker->image + walker->layout->slot_offset[i], sizeof check);
        if (i != number && check != empty)
            return true;
    }
    return false;
}

static enum memory_walk_outcome clear_slot(struct memory_walker *walker, const struct entry *entry,
                                           const struct format_point *point,
                                           const struct format_header *header, uint8_t *shared,
                                           struct merged *merged)
{
    const struct format_layout *layout = walker->layout;
    const struct format_bucket *bucket = &point->bucket;
    const uint32_t seed = format_slot_seed(header->tag, header->version), number = merged->slot.number;
    if (merged->outcome == MEMORY_WALK_MISS)
        return MEMORY_WALK_MISS;
    atomic_copy_from(walker->image + bucket->offset, shared + bucket->offset, bucket->bytes);
    if (!others_taken(walker, bucket, seed, number))
        return MEMORY_WALK_MORE;
    format_slot_clear(layout, walker->image, number, seed);
    store(walker, entry->leaf.address, shared, layout->slot_offset[number], 4);
    merged->number = number;
    merged->block = merged->slot.block;
    return MEMORY_WALK_HIT;
}

static enum memory_walk_outcome merge(struct memory_walker *walker, const struct entry *entry,
                                      struct merged *merged)
{
    const struct format_layout *layout = walker->layout;
    uint8_t *shared = walker_node(walker, entry->leaf.address, layout->geometry.leaf_bytes);
    struct format_header header;
    struct format_point point;
    walker_visit(walker);
    format_header_copy(layout, walker->image, shared);
    __atomic_thread_fence(
        __ATOMIC_ACQUIRE); /* what the header says was written before it (as behind a READ) */
    enum memory_walk_outcome outcome =
        walker_outcome(format_node_verdict(layout, walker->image, entry->leaf, walker->index, 0, &header));
    if (outcome)
        return outcome;
    format_point_set(&point, layout, entry->leaf, walker->index, entry->key);
    enum format_verdict verdict =
        format_point_verdict_in_place(&point, shared, walker->image, &header, &merged->slot);
    if (verdict != FORMAT_HIT && verdict != FORMAT_MISS)
        return walker_outcome(verdict);
    merged->outcome = verdict == FORMAT_HIT ? MEMORY_WALK_HIT : MEMORY_WALK_MISS;
    if (verdict == FORMAT_HIT) { /* the slot's bytes are about to change, in the image too */
        memcpy(merged->old, merged->slot.value.bytes, merged->slot.value.length);
        merged->slot.value.bytes = merged->old;
    }
    if (!memory_expectation_met(entry->expects, entry->expected, verdict == FORMAT_HIT, merged->slot.value))
        return merged->outcome;
    return entry->deleted ? clear_slot(walker, entry, &point, &header, shared, merged)
                          : put_slot(walker, entry, &point, &header, shared, merged);
}

/* ---- all entries ---- */

static void answer(struct memory_walker *walker, const struct memory_walk_request *request,
                   const struct merged *merged)
{
    const bool value = merged->outcome == MEMORY_WALK_HIT && request->path;
    const struct memory_walk_answer told = {.address = merged->block,
                                            .tag = merged->number,
                                            .outcome = (uint8_t)merged->outcome,
                                            .value_length = value ? (uint8_t)merged->slot.value.length : 0};
    const bool fits =
        walker_put(walker, &told, sizeof told) && walker_put(walker, merged->old, told.value_length);
    assert(fits); /* the reply has room for the longest answers: memory_walk */
    (void)fits;
    walker_count(request->kind == MEMORY_MERGE ? &walker->counts.merged : &walker->counts.answered,
                 merged->outcome <= MEMORY_WALK_MISS);
}

/* The entries' leaves lie anywhere in memory: each is on its way to this core while the request is looked at
 * and others are merged. */
static void fetch_ahead(const struct memory_walker *walker, const struct entry *entry)
{
    const struct format_layout *layout = walker->layout;
    const uint8_t *shared = walker_node(walker, entry->leaf.address, layout->geometry.leaf_bytes);
    struct format_point point;
    format_point_set(&point, layout, entry->leaf, walker->index, entry->key);
    __builtin_prefetch(shared);
    for (uint32_t at = 0; at < point.bucket.bytes; at += 64)
        __builtin_prefetch(shared + point.bucket.offset + at);
    __builtin_prefetch(shared + point.bucket.offset + point.bucket.bytes - 1);
}

int walker_merge(struct memory_walker *walker, const struct memory_walk_request *request,
                 struct walker_cursor *cursor)
{
    struct walker_cursor look = *cursor;
    struct entry entry;
    for (uint32_t i = 0; i < request->count; i++) {
        if (!take(walker, request, &look, &entry))
            return BANYAN_EINVAL;
        fetch_ahead(walker, &entry);
    }
    if (look.left)
        return BANYAN_EINVAL;
    if (!walker->writes)
        return BANYAN_ENOTSUP;
    walker->stored = false;
    for (uint32_t i = 0; i < request->count; i++) {
        struct merged merged = {.number = UINT32_MAX};
        (void)take(walker, request, cursor, &entry);
        merged.outcome = merge(walker, &entry, &merged);
        answer(walker, request, &merged);
    }
    if (walker->stored) /* all of it can be seen before the answer can (G4) */
        fabric_target_fence();
    return BANYAN_OK;
}
