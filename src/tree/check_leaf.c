/*
 * check_leaf.c - What a leaf holds, for the check of an index: slots, their buckets, keys against the fences,
 * key blocks. A sound leaf is taken as readers take it, with its key blocks read together; if that fails,
 * slot by slot, so that one damaged slot or key block does not hide the others. One task; a round trip where
 * there are long keys, and one for each of them in a damaged leaf.
 */
#include "tree/check.h"

#include <stdio.h>
#include <string.h>

#include "format/verdict.h"
#include "memory/memory.h"
#include "tree/entries.h"
#include "tree/index.h"
#include "tree/merge.h"
#include "tree/session.h"

/* ---- slot by slot ---- */

/* A variable key, put together at `room`; *good false if its block is none, which has been told. */
static int slot_key(struct tree_walk *walk, const struct format_header *header,
                    const struct format_slot *slot, uint8_t *room, struct format_key *key, bool *good)
{
    struct tree_session *session = walk->session;
    *key = (struct format_key){room, slot->prefix_length + slot->remainder.length};
    *good = true;
    if (slot->block == GADDR_NULL) {
        memcpy(room, header->lower.bytes, slot->prefix_length);
        memcpy(room + slot->prefix_length, slot->remainder.bytes, slot->remainder.length);
        return 0;
    }
    key->length = slot->key_length;
    struct fabric_command read = pool_read_command(slot->block, room, slot->key_length);
    int status;
    do
        status = !pool_knows(&session->pool, gaddr_node(slot->block))
                     ? BANYAN_ECORRUPT
                     : pool_execute(&session->pool, gaddr_node(slot->block), &read, 1);
    while (tree_again(session, NULL, &status));
    if (status && !tree_walk_damage(status))
        return status;
    if (!status)
        pool_read_settle(&read);
    *good = !status && format_key_hash(*key) == slot->hash;
    return *good ? 0
                 : tree_walk_tell(walk, slot->block, "a key block does not hold the key that its slot tells");
}

/* Decodes the slot into *entry; *taken false where there is nothing, or nothing good. */
static int slot_take(struct tree_walk *walk, gaddr node, const struct format_header *header, uint32_t number,
                     uint8_t *room, struct tree_leaf_entry *entry, bool *taken)
{
    const struct format_layout *layout = &walk->tree->layout;
    struct format_slot slot;
    bool marked = header->state == FORMAT_NODE_SPLITTING || header->state == FORMAT_NODE_MERGING;
    enum format_slot_state state = format_slot_read(
        layout, walk->image, number, format_slot_seed(header->tag, header->version), header->lower, &slot);
    if (state == FORMAT_SLOT_INVALID && marked)
        state = format_slot_read(layout, walk->image, number,
                                 format_slot_seed(header->tag, (uint16_t)(header->version - 1)),
                                 header->lower, &slot);
    bool variable = layout->geometry.key_kind == FORMAT_KEY_VARIABLE;
    *taken = false;
    if (state == FORMAT_SLOT_EMPTY ||
        (state == FORMAT_SLOT_INVALID && header->state == FORMAT_NODE_MERGING)) /* cut while it was written */
        return 0;
    if (state == FORMAT_SLOT_INVALID ||
        (variable && slot.block == GADDR_NULL &&
         slot.prefix_length + slot.remainder.length > layout->geometry.key_bytes)) {
        char what[64];
        snprintf(what, sizeof what, "the leaf's slot %u fails its check", number);
        return tree_walk_tell(walk, node, what);
    }
    *taken = true;
    *entry = (struct tree_leaf_entry){
        .key = slot.remainder, .value = slot.value, .block = slot.block, .number = number};
    return variable ? slot_key(walk, header, &slot, room, &entry->key, taken) : 0;
}

static bool held_already(const struct tree_session *session, uint32_t count, struct format_key key)
{
    for (uint32_t i = 0; i < count; i++)
        if (!format_key_compare(session->entries[i].key, key))
            return true;
    return false;
}

/* The leaf could not be decoded as a whole. The session's buffers are large enough since that was tried. */
static int slots_take(struct tree_walk *walk, gaddr node, const struct format_header *header, uint32_t *count)
{
    struct tree_session *session = walk->session;
    const struct format_layout *layout = &walk->tree->layout;
    uint32_t stride = (layout->geometry.key_bytes + 7u) & ~7u;
    int status = 0;
    *count = 0;
    for (uint32_t i = 0; !status && i < layout->slots; i++) {
        struct tree_leaf_entry *entry = &session->entries[*count];
        uint8_t *room =
            layout->geometry.key_kind == FORMAT_KEY_VARIABLE ? session->keys + (size_t)*count * stride : NULL;
        bool taken;
        status = slot_take(walk, node, header, i, room, entry, &taken);
        if (status || !taken)
            continue;
        if (header->state == FORMAT_NODE_LIVE && held_already(session, *count, entry->key))
            status = tree_walk_tell(walk, node, "a leaf holds a key twice");
        ++*count;
    }
    return status;
}

/* ---- validating ---- */

static int heads_check(struct tree_walk *walk, gaddr node, const struct format_header *header)
{
    const struct format_layout *layout = &walk->tree->layout;
    for (uint32_t number = 0; number < layout->buckets; number += 2) { /* two share a version */
        struct format_bucket bucket;
        format_bucket_number(layout, number, &bucket);
        if (format_bucket_version(walk->image, &bucket) != header->version)
            return tree_walk_tell(walk, node, "a bucket's version is not that of its leaf");
    }
    return 0;
}

static void block_count(struct tree_walk *walk, const struct tree_leaf_entry *entry)
{
    if (entry->block == GADDR_NULL)
        return;
    walk->report->key_blocks++;
    tree_walk_count(walk, entry->block, memory_block_bytes(entry->key.length));
}

static int entry_check(struct tree_walk *walk, gaddr node, const struct format_header *header,
                       const struct tree_leaf_entry *entry)
{
    const struct tree_check_visitor *visitor = walk->visitor;
    bool splits = header->state == FORMAT_NODE_SPLITTING, merges = header->state == FORMAT_NODE_MERGING;
    bool marked = splits || merges;
    int side = format_header_side(header, entry->key), status = 0;
    /* The sibling's by now, or still. */
    if (side > 0 && (splits || (merges && walk->emptied != header->sibling.address)))
        return 0;
    block_count(walk, entry);
    walk->report->entries++;
    if (side < 0 || (side > 0 && !merges))
        status = tree_walk_tell(walk, node, "a leaf holds a key outside of its fences");
    if (!status && !marked) {
        struct format_bucket bucket;
        format_bucket_of(&walk->tree->layout, header->tag, entry->key, &bucket);
        if (entry->number < bucket.first || entry->number >= bucket.first + bucket.count)
            status = tree_walk_tell(walk, node, "a leaf holds a key outside of its bucket");
    }
    if (!status && visitor->entry)
        status = visitor->entry(visitor->context, entry->key.bytes, entry->key.length, entry->value.bytes,
                                entry->value.length);
    return status;
}

/* Whether a merging leaf has all that its right neighbour held: then that is not what it was any more (R7).
 */
static int neighbour_check(struct tree_walk *walk, gaddr node, const struct format_header *header)
{
    struct tree_session *session = walk->session;
    const struct format_layout *layout = &walk->tree->layout;
    struct format_header right;
    struct fabric_command read =
        pool_read_command(header->sibling.address, walk->aside, layout->geometry.leaf_bytes);
    int status;
    do
        status = !pool_knows(&session->pool, gaddr_node(header->sibling.address))
                     ? BANYAN_ECORRUPT
                     : pool_execute(&session->pool, gaddr_node(header->sibling.address), &read, 1);
    while (tree_again(session, NULL, &status));
    if (status)
        return tree_walk_damage(status) ? 0 : status; /* it is told of the neighbour itself */
    pool_read_settle(&read);
    switch (format_node_verdict(layout, walk->aside, header->sibling, walk->tree->index, 0, &right)) {
    case FORMAT_FROZEN:
        if (!tree_merge_whole(layout, walk->aside, &right))
            walk->emptied = header->sibling.address;
        return 0;
    case FORMAT_DEAD:
        walk->emptied = header->sibling.address;
        return 0;
    default:
        return tree_walk_tell(walk, node, "the right neighbour of a merging leaf is neither frozen nor dead");
    }
}

int tree_walk_leaf(struct tree_walk *walk, gaddr node, const struct format_header *header)
{
    struct tree_session *session = walk->session;
    const struct format_layout *layout = &walk->tree->layout;
    uint32_t count;
    walk->report->leaves++;
    /* The next session that locks a marked leaf finishes it. */
    bool merges = header->state == FORMAT_NODE_MERGING;
    bool marked = header->state == FORMAT_NODE_SPLITTING || merges;
    bool emptied = header->state == FORMAT_NODE_FROZEN && walk->emptied == node;
    walk->report->marked += header->state == FORMAT_NODE_SPLITTING;
    walk->report->frozen += header->state == FORMAT_NODE_FROZEN;
    walk->emptied = GADDR_NULL;
    if (emptied) /* half, and what it held has been met */
        return 0;
    int status = merges ? neighbour_check(walk, node, header) : 0;
    if (status)
        return status;
    do
        status = marked ? tree_leaf_halves(session, layout, walk->image, header, &count)
                        : tree_leaf_entries(session, layout, walk->image, header, &count);
    while (tree_again(session, NULL, &status)); /* refused: a list that reads key blocks */
    if (status > 0)
        status = slots_take(walk, node, header, &count);
    if (!status && (header->state == FORMAT_NODE_LIVE || header->state == FORMAT_NODE_FROZEN))
        status = heads_check(walk, node, header);
    if (!status && header->state == FORMAT_NODE_DEAD && count)
        status = tree_walk_tell(walk, node, "a dead leaf holds entries");
    for (uint32_t i = 0; !status && i < count; i++)
        status = entry_check(walk, node, header, &session->entries[i]);
    return status;
}
