/*
 * chain.c - see chain.h.
 */
#include "tree/chain.h"

#include <assert.h>

#include "tree/access.h"
#include "tree/announce.h"
#include "tree/session.h"
#include "tree/subtree.h"

bool tree_chain_fits(const struct tree_session *session, const struct tree *tree)
{
    return session->row && session->right == TREE_OWNED && session->access->enter && !session->through &&
           !session->logged && !tree_level_placed(tree, 0);
}

uint32_t tree_leaf_writes(const struct tree_session *session, const struct format_layout *layout, gaddr leaf,
                          const uint8_t *image, struct fabric_command *writes)
{
    const uint32_t header_bytes = layout->header_bytes, leaf_bytes = layout->geometry.leaf_bytes;
    if (leaf_bytes <= fabric_capabilities(session->pool.fabric)->atomic_write) {
        writes[0] = pool_write_command(leaf, image, leaf_bytes);
        return 1;
    }
    /* Header last: should this list be cut, a torn leaf still shows its old header to old links. */
    writes[0] = pool_write_command(leaf + header_bytes, image + header_bytes, leaf_bytes - header_bytes);
    writes[1] = pool_write_command(leaf, image, header_bytes);
    return 2;
}

static struct format_key item_key(const struct tree_item *item)
{
    return (struct format_key){item->key, (uint32_t)item->key_length};
}

/* Whether the key is of the row that the session relies on, and so of the leaf that is split. */
static bool key_below(const struct tree_session *session, const struct format_header *header,
                      struct format_key key)
{
    const struct tree_row *row = session->row;
    if (row->has_upper && format_key_compare(key, row->upper) >= 0)
        return false;
    /* A leaf that is appended to ends where a row does, or a row ends within it whose border is not made yet.
     */
    assert(!header->has_upper || format_key_compare(key, header->upper) < 0);
    return true;
}

uint32_t tree_chain_entries(const struct tree_session *session, const struct tree *tree,
                            const struct tree_run *run, const struct format_header *header,
                            struct tree_leaf_entry *entries, uint32_t most)
{
    uint32_t count = 0;
    for (size_t i = run->taken; i < run->count && count < most; i++) {
        const struct tree_item *item = &run->items[i];
        const struct format_key key = item_key(item);
        if (!key_below(session, header, key) || format_slot_needs_block(&tree->layout, header->lower, key))
            break;
        entries[count++] = (struct tree_leaf_entry){
            .key = key, .value = {item->value, (uint32_t)item->length}, .block = GADDR_NULL};
    }
    return count;
}

/* A leaf that waits for its right neighbour's link. */
struct pending {
    struct format_link link;
    struct format_header *header;
    uint8_t *image;
};

static int pending_write(struct tree_session *session, const struct tree *tree, const struct pending *leaf)
{
    struct fabric_command writes[2];
    const uint32_t count = tree_leaf_writes(session, &tree->layout, leaf->link.address, leaf->image, writes);
    return pool_execute(&session->pool, gaddr_node(leaf->link.address), writes, count);
}

static void lines_prefetch(struct tree_session *session, const struct tree *tree, gaddr leaf)
{
    const uint32_t bytes = tree->layout.geometry.leaf_bytes;
    uint8_t *window = fabric_window(session->pool.fabric, leaf, bytes);
    for (uint32_t at = 0; window && at < bytes && at < 4096; at += 64)
        __builtin_prefetch(window + at, 1);
}

/* The next leaf, with what comes next of the run; false: there is none. `header` has the fences. */
static bool leaf_make(struct tree_session *session, struct tree *tree, struct tree_run *run,
                      const struct pending *before, struct pending *leaf)
{
    /* Behind those of the leaf that is split, and of its sibling, which is built already. */
    struct tree_leaf_entry *entries = session->entries + tree->layout.slots;
    bool fits = false;
    uint32_t count =
        tree_chain_entries(session, tree, run, leaf->header, entries, tree_chain_fill(&tree->layout));
    if (!count || tree_sibling_allocate(session, tree, 0, before->link.address, leaf->header->lower,
                                        &leaf->link.address))
        return false;
    lines_prefetch(session, tree, leaf->link.address);
    if (tree_leaf_build(session, &tree->layout, gaddr_node(leaf->link.address), TREE_TAG_TRIES,
                        TREE_TAG_CHOICE, leaf->header, entries, count, leaf->image, &fits) ||
        !fits) {
        pool_release(&session->pool, leaf->link.address, tree->layout.geometry.leaf_bytes);
        return false;
    }
    leaf->link.tag = leaf->header->tag;
    run->taken += count;
    return true;
}

/* `before` ends where `leaf` begins. */
static void leaf_link(const struct tree *tree, const struct pending *before, const struct pending *leaf)
{
    before->header->has_upper = true;
    before->header->upper = leaf->header->lower;
    before->header->sibling = leaf->link;
    format_header_encode(&tree->layout, before->header, before->image);
}

void tree_chain_build(struct tree_session *session, struct tree *tree, struct tree_run *run,
                      struct format_key last, struct format_link sibling, struct format_header *header,
                      uint8_t *image, struct tree_chain *chain)
{
    const struct format_layout *layout = &tree->layout;
    const size_t room = (layout->geometry.leaf_bytes + 63u) & ~63u, taken = run->taken;
    const struct format_header end = *header; /* the last leaf of them ends as this one did */
    struct format_header headers[2];
    struct pending before = {sibling, header, image};
    int status = 0;
    chain->count = 0;
    if (run->taken == run->count || tree_reserve_wide(session, 2 * room))
        return;
    while (!status && chain->count < TREE_CHAIN_MAX && run->taken < run->count) {
        struct format_header *fresh = &headers[chain->count % 2];
        struct pending leaf = {.header = fresh, .image = session->wide + chain->count % 2 * room};
        const struct format_key previous = run->taken ? item_key(&run->items[run->taken - 1]) : last;
        *fresh = end;
        fresh->lower = tree_separator(layout, previous, item_key(&run->items[run->taken]));
        if (!leaf_make(session, tree, run, &before, &leaf))
            break;
        leaf_link(tree, &before, &leaf);
        if (chain->count)
            status = pending_write(session, tree, &before);
        chain->leaves[++chain->count] = (struct tree_child){fresh->lower, leaf.link};
        before = leaf;
    }
    if (!status && chain->count)
        status = pending_write(session, tree, &before);
    if (!status)
        return;
    tree_chain_release(session, tree, chain);
    run->taken = taken;
    *header = end;
    format_header_encode(layout, header, image);
}

void tree_chain_release(struct tree_session *session, const struct tree *tree, struct tree_chain *chain)
{
    for (uint32_t i = 1; i <= chain->count; i++)
        pool_release(&session->pool, chain->leaves[i].link.address, tree->layout.geometry.leaf_bytes);
    chain->count = 0;
}
