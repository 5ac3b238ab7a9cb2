/*
 * split.c - Leaf splits in an order that a cut list cannot harm: R3. One round trip to read the leaf, one to
 * write both halves where they share a memory node, else two; then the parent's (parent.c).
 *
 * Keys that are appended in a run go into whole leaves: the sibling gets as many of them as a bulk load would
 * give it, and so do further leaves behind it (chain.h). All are written before the mark. Until the leaf's
 * header names the sibling nothing leads to any of them; then each is as if it had been split off by itself
 * and its entry in the parent were to be posted yet. So R3 is as it is with one sibling.
 */
#include "tree/split.h"

#include <assert.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/chain.h"
#include "tree/entries.h"
#include "tree/index.h"
#include "tree/keyblocks.h"
#include "tree/owned_cache_use.h"
#include "tree/parent.h"
#include "tree/session.h"
#include "tree/subtree.h"

/* A header is at most this long (two fences of 255 bytes, rounded up). */
#define HEADER_MAX 576u

struct split {
    struct tree_session *session;
    struct tree *tree;
    struct format_link link;     /* of the leaf */
    struct format_header header; /* of the leaf, before */
    struct format_header right;  /* of the sibling */
    struct format_link sibling;
    struct format_key_copy separator;
    uint32_t count, kept; /* entries of the leaf; the first `kept` stay */
    gaddr block;          /* of the addition, where it is a long key; else GADDR_NULL */
    struct fabric_command block_write;
    uint32_t number;         /* the addition's slot if it stays in the leaf; else UINT32_MAX */
    bool moves;              /* nothing stays (R8) */
    struct tree_run *run;    /* goes with the addition, which is appended; NULL: nothing does */
    struct tree_chain chain; /* behind the sibling */
};

/* Where to cut. Keys appended at the right end, of the index or of a range (O3), leave a full leaf behind
 * instead of halves. */
static void choose_separator(struct split *split, const struct tree_addition *addition)
{
    const struct format_layout *layout = &split->tree->layout;
    const struct tree_leaf_entry *entries = split->session->entries;
    struct format_key last = entries[split->count - 1].key;
    bool append = addition && format_key_compare(addition->key, last) > 0 &&
                  (!split->header.has_upper || tree_rights_first(split->session, split->header.upper));
    split->kept = append ? split->count : split->count / 2;
    if (append && addition->run && tree_chain_fits(split->session, split->tree))
        split->run = addition->run;
    struct format_key right = append ? addition->key : entries[split->kept].key;
    format_key_store(&split->separator, tree_separator(layout, entries[split->kept - 1].key, right));
}

/* A border: what lies below the key stays. */
static void choose_border(struct split *split, struct format_key key)
{
    const struct tree_leaf_entry *entries = split->session->entries;
    while (split->kept < split->count && format_key_compare(entries[split->kept].key, key) < 0)
        split->kept++;
    format_key_store(&split->separator, key);
}

/* A block for the addition if it is a long key of the leaf (or sibling) with that lower fence. False if there
 * is none: the addition does without the split's help, and finds out itself. */
static bool block_take(struct split *split, gaddr leaf, struct format_key lower,
                       const struct tree_addition *addition)
{
    return !format_slot_needs_block(&split->tree->layout, lower, addition->key) ||
           !tree_key_block_prepare(split->session, &split->tree->layout, leaf, addition->key,
                                   &split->block_write, &split->block);
}

static void block_give_back(struct split *split, const struct tree_addition *addition)
{
    if (split->block != GADDR_NULL)
        pool_block_release(&split->session->pool, split->block, addition->key.length);
    split->block = GADDR_NULL;
}

/* The block's write is its own list's business unless that of its slot goes to the same memory node. */
static int block_write(struct split *split, gaddr leaf, struct fabric_command *writes, uint32_t *count)
{
    if (split->block == GADDR_NULL)
        return 0;
    if (gaddr_node(split->block) != gaddr_node(leaf))
        return pool_execute(&split->session->pool, gaddr_node(split->block), &split->block_write, 1);
    writes[(*count)++] = split->block_write;
    return 0;
}

/* Writes the sibling's image into session->spare. */
static int build_sibling(struct split *split, const struct tree_addition *addition, bool *added)
{
    struct tree_session *session = split->session;
    const struct format_layout *layout = &split->tree->layout;
    struct tree_leaf_entry *moved = session->entries + split->kept;
    uint32_t count = split->count - split->kept;
    split->right = split->header;
    split->right.lower = format_key_of(&split->separator);
    *added = addition && format_key_compare(addition->key, split->right.lower) >= 0 &&
             block_take(split, split->sibling.address, split->right.lower, addition);
    if (*added) /* behind the last: there is room even in a full leaf's array */
        moved[count++] =
            (struct tree_leaf_entry){.key = addition->key, .value = addition->value, .block = split->block};
    uint16_t node = gaddr_node(split->sibling.address);
    bool fits;
    const uint32_t own = count;
    if (*added && split->run)
        count += tree_chain_entries(session, split->tree, split->run, &split->right, moved + count,
                                    tree_chain_fill(layout) - 1);
    int status = tree_leaf_build(session, layout, node, TREE_TAG_TRIES, TREE_TAG_CHOICE, &split->right, moved,
                                 count, session->spare, &fits);
    if (!status && !fits && count > own) {
        count = own;
        status = tree_leaf_build(session, layout, node, TREE_TAG_TRIES, TREE_TAG_CHOICE, &split->right, moved,
                                 count, session->spare, &fits);
    }
    if (!status && fits && count > own)
        split->run->taken = count - own;
    if (!status && !fits && *added) {
        *added = false;
        status = tree_leaf_build(session, layout, node, TREE_TAG_TRIES, TREE_TAG_CHOICE, &split->right, moved,
                                 count - 1, session->spare, &fits);
    }
    if (!status && !fits)
        status = pool_fail(&session->pool, BANYAN_ENOSPC, "no tag lets %u entries fit a leaf of %u slots",
                           count, layout->slots);
    if (status)
        *added = false;
    if (!*added)
        block_give_back(split, addition);
    split->sibling.tag = split->right.tag;
    return status;
}

/* Checks anew what stays of fixed keys and values: many slots at once. */
static void slots_seal(const struct format_layout *layout, uint8_t *image,
                       const struct tree_leaf_entry *entries, uint32_t kept, uint32_t seed)
{
    uint32_t numbers[64];
    for (uint32_t run; kept; entries += run, kept -= run) {
        run = kept < 64 ? kept : 64;
        for (uint32_t i = 0; i < run; i++)
            numbers[i] = entries[i].number;
        format_slots_seal(layout, image, numbers, run, seed);
    }
}

/* The leaf's slots under its next version: the `kept` entries checked anew, all other slots emptied, nothing
 * moved. A slot's bytes change in its check alone (R3). */
static void narrow(const struct format_layout *layout, uint8_t *image, const struct tree_leaf_entry *entries,
                   uint32_t kept, uint32_t seed, uint16_t version, struct format_key lower)
{
    for (uint32_t number = 0; number < layout->buckets; number += 2) {
        struct format_bucket bucket;
        format_bucket_number(layout, number, &bucket);
        memcpy(image + bucket.version_offset, &version, sizeof version);
    }
    format_slots_clear(layout, image, seed);
    if (format_layout_plain(layout))
        slots_seal(layout, image, entries, kept, seed);
    else
        for (uint32_t i = 0; i < kept; i++)
            format_slot_renew(layout, image, entries[i].number, seed, lower);
}

/* The marked header is the final one but for its state: the session that finishes the split finds all that it
 * needs there.
 */
static void narrow_header(struct format_header *header, struct format_key separator,
                          struct format_link sibling)
{
    header->version++;
    header->has_upper = true;
    header->upper = separator;
    header->sibling = sibling;
}

/* A slot in the narrowed leaf for an addition that stays there, and its block: split->number. */
static void place_left(struct split *split, const struct tree_addition *addition)
{
    const struct format_layout *layout = &split->tree->layout;
    struct format_bucket bucket;
    split->number = UINT32_MAX;
    if (!addition || format_key_compare(addition->key, format_key_of(&split->separator)) >= 0)
        return;
    format_bucket_of(layout, split->header.tag, addition->key, &bucket);
    uint32_t seed = format_slot_seed(split->header.tag, (uint16_t)(split->header.version + 1));
    uint32_t number = format_bucket_free_slot(layout, split->session->image.bytes, &bucket, seed);
    if (number != UINT32_MAX && block_take(split, split->link.address, split->header.lower, addition))
        split->number = number;
}

/* The sibling, with the block that it names: on another memory node than the leaf in a list of its own. What
 * is left for the leaf's list is in `writes`. */
static int write_sibling(struct split *split, bool added, struct fabric_command *writes, uint32_t *count)
{
    struct tree_session *session = split->session;
    const struct format_layout *layout = &split->tree->layout;
    gaddr sibling = split->sibling.address;
    int status = added ? block_write(split, sibling, writes, count) : 0;
    if (status)
        return status;
    *count += tree_leaf_writes(session, layout, sibling, session->spare, writes + *count);
    if (gaddr_node(sibling) != gaddr_node(split->link.address)) {
        status = pool_execute(&session->pool, gaddr_node(sibling), writes, *count);
        *count = 0;
    }
    return status;
}

/* The sibling, and what was written behind it. */
static void siblings_release(struct split *split)
{
    struct tree_session *session = split->session;
    pool_release(&session->pool, split->sibling.address, split->tree->layout.geometry.leaf_bytes);
    tree_chain_release(session, split->tree, &split->chain);
}

/* Sibling, mark, slots, header, and the addition if it stays on the left: R3. The unlock follows in the same
 * list. */
static int write_split(struct split *split, struct tree_hold *hold, const struct tree_addition *addition,
                       bool *added)
{
    struct tree_session *session = split->session;
    const struct format_layout *layout = &split->tree->layout;
    const uint32_t header_bytes = layout->header_bytes, body = layout->geometry.leaf_bytes - header_bytes;
    gaddr leaf = split->link.address;
    uint8_t marked[HEADER_MAX], final[HEADER_MAX];
    struct fabric_command writes[9];
    uint32_t count = 0;

    int status = write_sibling(split, *added, writes, &count);
    if (!status && split->number != UINT32_MAX)
        status = block_write(split, leaf, writes, &count);
    if (status) {
        session->image.address = GADDR_NULL; /* narrowed already, and not written */
        tree_leaf_release(session, split->tree, hold, writes, 0);
        siblings_release(split); /* no link leads to them */
        block_give_back(split, addition);
        return status;
    }
    struct format_header header = split->header;
    struct format_key separator = format_key_of(&split->separator);
    assert(!*added || split->number == UINT32_MAX); /* the addition goes to one side */
    narrow_header(&header, separator, split->sibling);
    header.state = FORMAT_NODE_SPLITTING;
    format_header_encode(layout, &header, marked);
    header.state = split->moves ? FORMAT_NODE_DEAD : FORMAT_NODE_LIVE;
    format_header_encode(layout, &header, final);
    memcpy(session->image.bytes, final, header_bytes);
    memcpy(session->scratch, session->image.bytes, layout->geometry.leaf_bytes);
    writes[count++] = pool_write_command(leaf, marked, header_bytes);
    writes[count++] = pool_write_command(leaf + header_bytes, session->scratch + header_bytes, body);
    writes[count++] = pool_write_command(leaf, final, header_bytes);
    if (split->number != UINT32_MAX) {
        uint32_t number = split->number, seed = format_slot_seed(header.tag, header.version);
        format_slot_write(layout, session->image.bytes, number, seed, split->header.lower, split->block,
                          addition->key, addition->value);
        writes[count++] =
            pool_write_command(leaf + layout->slot_offset[number],
                               session->image.bytes + layout->slot_offset[number], layout->slot_bytes);
        *added = true;
    }
    if (*added && session->through)
        tree_owned_note_merged(session, split->tree,
                               split->number != UINT32_MAX ? split->link : split->sibling, addition->key,
                               addition->value, session->merge_met);
    status = tree_leaf_release(session, split->tree, hold, writes, count);
    if (status == BANYAN_EFENCED) { /* not done: still no link leads to them */
        siblings_release(split);
        block_give_back(split, addition);
    }
    return status;
}

/* Under the lock: takes the leaf's entries out of the image. */
static int entries_take(struct split *split)
{
    struct tree_session *session = split->session;
    const struct format_layout *layout = &split->tree->layout;
    /* The caller has validated the header, but the image may have been read again since, to be complete. */
    if (!format_header_decode(layout, session->image.bytes, &split->header))
        return pool_corrupt(&session->pool, split->link.address, "a leaf's header is malformed");
    int status = tree_leaf_entries(session, layout, session->image.bytes, &split->header, &split->count);
    return status == TREE_RESTART ? tree_leaf_corrupt(session, split->link.address) : status;
}

/* The sibling's lines, where it is mapped, are asked for before its image is built: they are cold. */
static void sibling_prefetch(const struct split *split)
{
    const uint32_t bytes = split->tree->layout.geometry.leaf_bytes;
    uint8_t *window = fabric_window(split->session->pool.fabric, split->sibling.address, bytes);
    for (uint32_t at = 0; window && at < bytes && at < 4096; at += 64)
        __builtin_prefetch(window + at, 1);
}

/* The entries of the leaves that the split has made. What has none is found by sibling links, and posted by
 * whoever meets it. */
static int siblings_post(struct split *split, uint64_t deaths)
{
    struct tree_session *session = split->session;
    struct tree *tree = split->tree;
    struct tree_child *leaves = split->chain.leaves;
    const uint32_t count = 1 + split->chain.count;
    uint32_t done = 0, posted;
    int status = 0;
    leaves[0] = (struct tree_child){format_key_of(&split->separator), split->sibling};
    for (; done < count && !status; done += posted)
        status = tree_parent_insert_fresh(session, tree, leaves + done, count - done, deaths, &posted);
    return status;
}

/* The leaf is cut by the addition, or at `border`. *posted: what became of the parent's entry. */
static int split_run(struct tree_session *session, struct tree *tree, struct format_link link,
                     struct tree_hold *hold, const struct tree_addition *addition,
                     const struct format_key *border, bool *added, int *posted)
{
    const struct format_layout *layout = &tree->layout;
    struct split split = {.session = session, .tree = tree, .link = link, .number = UINT32_MAX};
    *added = false;
    if (addition && addition->run)
        addition->run->taken = 0;
    int status = entries_take(&split);
    if (!status && split.count < 2 && !border)
        status = pool_corrupt(&session->pool, link.address, "a leaf's bucket is full and the leaf empty");
    if (!status)
        status =
            tree_sibling_allocate(session, tree, 0, link.address, split.header.lower, &split.sibling.address);
    if (status)
        return tree_leaf_release_with(session, tree, hold, status);
    task_charge(TASK_WORK_SPLIT, 1);
    sibling_prefetch(&split);
    uint16_t version = (uint16_t)(split.header.version + 1);
    if (border)
        choose_border(&split, *border);
    else
        choose_separator(&split, addition);
    /* The image is rewritten for good from here on; the header's fences must not point into what changes. */
    struct format_key_copy lower, upper;
    format_key_store(&lower, split.header.lower);
    format_key_store(&upper, split.header.upper);
    split.header.lower = format_key_of(&lower);
    split.header.upper = format_key_of(&upper);
    status = build_sibling(&split, addition, added);
    if (status) {
        pool_release(&session->pool, split.sibling.address, layout->geometry.leaf_bytes);
        return tree_leaf_release_with(session, tree, hold, status);
    }
    narrow(layout, session->image.bytes, session->entries, split.kept,
           format_slot_seed(split.header.tag, version), version, split.header.lower);
    if (!*added)
        place_left(&split, addition);
    if (split.run && split.run->taken)
        tree_chain_build(session, tree, split.run, addition->key, split.sibling, &split.right, session->spare,
                         &split.chain);
    const uint64_t deaths = tree_leaf_deaths(session);
    status = write_split(&split, hold, addition, added);
    if (status) {
        *added = false;
        return status;
    }
    session->stats.splits += 1 + split.chain.count;
    *posted = siblings_post(&split, deaths);
    if (*added && !*posted)
        tree_subtree_follow(session, tree, format_key_of(&lower));
    return 0;
}

int tree_split(struct tree_session *session, struct tree *tree, struct format_link link,
               struct tree_hold *hold, const struct tree_addition *addition, bool *added)
{
    int posted = 0, status = split_run(session, tree, link, hold, addition, NULL, added, &posted);
    return status ? status : posted == BANYAN_ENOSPC ? 0 : posted;
}

int tree_split_at(struct tree_session *session, struct tree *tree, struct format_link link,
                  struct tree_hold *hold, struct format_key key)
{
    bool added;
    int posted = 0, status = split_run(session, tree, link, hold, NULL, &key, &added, &posted);
    return status ? status : posted;
}

int tree_split_away(struct tree_session *session, struct tree *tree, struct format_link link,
                    struct tree_hold *hold, gaddr copy, struct format_key_copy *lower,
                    struct format_header *dead)
{
    const struct format_layout *layout = &tree->layout;
    struct split split = {.session = session,
                          .tree = tree,
                          .link = link,
                          .sibling = {.address = copy},
                          .number = UINT32_MAX,
                          .moves = true};
    struct format_key_copy upper;
    bool added = false;
    int status = entries_take(&split);
    if (!status) {
        task_charge(TASK_WORK_SPLIT, 1);
        /* As in split_run. */
        format_key_store(lower, split.header.lower);
        format_key_store(&upper, split.header.upper);
        split.header.lower = format_key_of(lower);
        split.header.upper = format_key_of(&upper);
        split.separator = *lower;
        status = build_sibling(&split, NULL, &added);
    }
    if (status) {
        pool_release(&session->pool, copy, layout->geometry.leaf_bytes);
        return tree_leaf_release_with(session, tree, hold, status);
    }
    const uint16_t version = (uint16_t)(split.header.version + 1);
    narrow(layout, session->image.bytes, session->entries, 0, format_slot_seed(split.header.tag, version),
           version, split.header.lower);
    tree_leaf_death(session);
    status = write_split(&split, hold, NULL, &added);
    if (status)
        return status;
    *dead = split.header;
    narrow_header(dead, format_key_of(lower), split.sibling);
    dead->state = FORMAT_NODE_DEAD;
    return 0;
}

/* Rewrites the image as the finished leaf, and the pool's leaf with it. Blocks of long keys that have moved
 * are still what they were: no session has met the sibling yet. */
static int finish(struct tree_session *session, struct tree *tree, struct format_link link)
{
    const struct format_layout *layout = &tree->layout;
    uint8_t *image = session->image.bytes;
    struct tree_leaf_entry *entries;
    struct format_header header;
    uint32_t count, kept = 0;
    if (!format_header_decode(layout, image, &header) || header.state != FORMAT_NODE_SPLITTING ||
        !header.has_upper)
        return pool_corrupt(&session->pool, link.address, "a half-split leaf's header is malformed");
    int status = tree_leaf_halves(session, layout, image, &header, &count);
    if (status == TREE_RESTART && session->stranger == GADDR_NULL)
        return pool_corrupt(&session->pool, link.address, "a half-split leaf has a slot of neither version");
    if (status)
        return status == TREE_RESTART ? tree_leaf_corrupt(session, link.address) : status;
    entries = session->entries;
    for (uint32_t i = 0; i < count; i++)
        if (format_key_compare(entries[i].key, header.upper) < 0)
            entries[kept++] = entries[i];
    if (format_header_moves(&header))
        tree_leaf_death(session);
    header.state = format_header_moves(&header) ? FORMAT_NODE_DEAD : FORMAT_NODE_LIVE;
    format_header_encode(layout, &header, image);
    narrow(layout, image, entries, kept, format_slot_seed(header.tag, header.version), header.version,
           header.lower);
    uint32_t body = layout->geometry.leaf_bytes - layout->header_bytes;
    struct fabric_command writes[2] = {
        pool_write_command(link.address + layout->header_bytes, image + layout->header_bytes, body),
        pool_write_command(link.address, image, layout->header_bytes)};
    return tree_leaf_execute(session, tree, link.address, writes, 2);
}

int tree_split_finish(struct tree_session *session, struct tree *tree, struct format_link link)
{
    int status = finish(session, tree, link);
    if (status)
        session->image.address = GADDR_NULL; /* the pool may not have what the image says */
    return status;
}
