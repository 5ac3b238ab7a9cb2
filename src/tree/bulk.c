/*
 * bulk.c - Building an index from a sorted stream in parts, each by its own session. One round trip a leaf;
 * the levels above are built by tree_bulk_finish. On failure all nodes go back.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tree/access.h"
#include "tree/announce.h"
#include "tree/catalogue.h"
#include "tree/entries.h"
#include "tree/index.h"
#include "tree/keyblocks.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/session.h"
#include "tree/subtree.h"
#include "tree/turn.h"

/*
 * Each part writes its leaves one behind: a leaf can be written when its right neighbour's address, tag and
 * first key are known. A part's last leaf waits for the next part's first. The levels above are few, and
 * built in one go at the end.
 */
#define TAG_TRIES 16u

struct child {
    struct format_link link;
    struct format_key_copy *key; /* owned: the lower fence */
};

struct children {
    struct child *items;
    size_t count, capacity;
};

struct part {
    struct children leaves;
    uint8_t *last;                        /* owned: image of the newest leaf, not yet written */
    struct format_header header;          /* of it; fences point to `lower` */
    struct format_key_copy lower, newest; /* its fence; the part's last key */
    bool taken, begun, done;
    uint32_t run; /* leaves of the subtree at hand */
};

struct tree_bulk {
    struct tree *tree;
    unsigned parts;
    uint32_t per_leaf;
    uint64_t per_subtree; /* leaves, where subtrees are placed */
    double fill;
    struct part *part; /* [parts] */
};

/* ---- memory ---- */

static int child_append(struct tree_session *session, struct children *children, struct format_link link,
                        struct format_key key)
{
    if (children->count == children->capacity) {
        size_t capacity = children->capacity ? 2 * children->capacity : 64;
        struct child *larger = realloc(children->items, capacity * sizeof *larger);
        if (!larger)
            return pool_fail_memory(&session->pool);
        children->items = larger;
        children->capacity = capacity;
    }
    struct format_key_copy *copy = malloc(sizeof *copy - FORMAT_KEY_MAX + key.length);
    if (!copy)
        return pool_fail_memory(&session->pool);
    format_key_store(copy, key);
    children->items[children->count++] = (struct child){link, copy};
    return 0;
}

static void children_free(struct children *children)
{
    for (size_t i = 0; i < children->count; i++)
        free(children->items[i].key);
    free(children->items);
    *children = (struct children){0};
}

/* Gives back nodes that will never be linked. */
static void children_release(struct tree_session *session, const struct children *children, uint32_t bytes)
{
    for (size_t i = 0; i < children->count; i++)
        pool_release(&session->pool, children->items[i].link.address, bytes);
}

/* One command. It reads, or writes what no link leads to yet; so after a loss it is just run again. */
static int execute(struct tree_session *session, struct fabric_command *command)
{
    int status;
    do
        status = pool_execute(&session->pool, gaddr_node(command->address), command, 1);
    while (tree_again(session, NULL, &status));
    return status;
}

static void bulk_free(struct tree_bulk *bulk)
{
    for (unsigned i = 0; bulk->part && i < bulk->parts; i++) {
        children_free(&bulk->part[i].leaves);
        free(bulk->part[i].last);
    }
    free(bulk->part);
    free(bulk);
}

/* Leaves below one node of the level that is the highest of a placed subtree. */
static uint64_t leaves_per_subtree(const struct format_layout *layout, double fill)
{
    uint64_t children = (uint64_t)(layout->internal_entries * fill), leaves = 1;
    for (unsigned level = 1; level < layout->geometry.subtree_levels && leaves < UINT32_MAX; level++)
        leaves *= children > 2 ? children : 2;
    return leaves;
}

int tree_bulk_begin(struct tree_bulk **out, struct tree *tree, unsigned parts, double fill,
                    struct error *error)
{
    *out = NULL;
    if (!parts || parts > 65536)
        return error_set(error, BANYAN_EINVAL, "a bulk load has 1 to 65536 parts, not %u", parts);
    if (!(fill >= 0.1 && fill <= 1.0))
        return error_set(error, BANYAN_EINVAL, "a leaf's fill must be 0.1 to 1.0, not %g", fill);
    struct tree_bulk *bulk = calloc(1, sizeof *bulk);
    if (bulk) {
        bulk->tree = tree;
        bulk->parts = parts;
        bulk->fill = fill;
        bulk->per_leaf = (uint32_t)((double)tree->layout.slots * fill + 0.5);
        bulk->per_leaf = bulk->per_leaf ? bulk->per_leaf : 1;
        bulk->per_subtree = leaves_per_subtree(&tree->layout, fill);
        bulk->part = calloc(parts, sizeof *bulk->part);
    }
    if (!bulk || !bulk->part) {
        free(bulk);
        return error_set(error, BANYAN_ENOMEM, "no memory for a bulk load of %u parts", parts);
    }
    *out = bulk;
    return 0;
}

/* ---- leaves ---- */

struct loader {
    struct tree_session *session;
    struct tree_bulk *bulk;
    struct part *part;
    struct tree_leaf_entry *entries; /* owned: of the leaf being collected; keys and values in `bytes` */
    uint8_t *bytes;                  /* owned */
    uint32_t count;
    uint32_t carried;                /* the first so many have been given their blocks already */
    struct format_key_copy lower;    /* of the leaf being collected */
    struct format_key_copy previous; /* newest key */
};

static size_t entry_room(const struct format_layout *layout)
{
    return (size_t)layout->geometry.key_bytes + layout->geometry.value_bytes;
}

static int loader_init(struct loader *loader)
{
    const struct format_layout *layout = &loader->bulk->tree->layout;
    uint32_t room = loader->bulk->per_leaf;
    loader->entries = malloc(room * sizeof *loader->entries);
    loader->bytes = malloc(room * (entry_room(layout) + 1));
    loader->part->last = malloc(layout->geometry.leaf_bytes);
    if (!loader->entries || !loader->bytes || !loader->part->last)
        return pool_fail_memory(&loader->session->pool);
    return 0;
}

static void entry_store(struct loader *loader, struct format_key key, struct format_key value, gaddr block)
{
    struct tree_leaf_entry *entry = &loader->entries[loader->count];
    uint8_t *to = loader->bytes + loader->count * entry_room(&loader->bulk->tree->layout);
    loader->count++;
    memcpy(to, key.bytes, key.length);
    entry->key = (struct format_key){to, key.length};
    if (value.length)
        memcpy(to + key.length, value.bytes, value.length);
    entry->value = (struct format_key){to + key.length, value.length};
    entry->block = block;
}

/* Writes the part's newest leaf, now that its right neighbour is known (address 0: there is none). */
static int last_write(struct tree_session *session, struct tree *tree, struct part *part,
                      struct format_link sibling, struct format_key upper)
{
    gaddr leaf = part->leaves.items[part->leaves.count - 1].link.address;
    part->header.sibling = sibling;
    part->header.has_upper = sibling.address != GADDR_NULL;
    part->header.upper = upper;
    part->header.lower = format_key_of(&part->lower);
    format_header_encode(&tree->layout, &part->header, part->last);
    struct fabric_command write = pool_write_command(leaf, part->last, tree->layout.geometry.leaf_bytes);
    return execute(session, &write);
}

/* Gives back the blocks that a leaf's slots name. Whatever fails leaves them to an offline check. */
static void leaf_blocks_release(struct tree_session *session, const struct format_layout *layout,
                                struct format_link link, const uint8_t *image)
{
    struct format_header header;
    struct format_slot slot;
    if (!format_header_valid(layout, image) || !format_header_decode(layout, image, &header) ||
        header.tag != link.tag)
        return;
    uint32_t seed = format_slot_seed(header.tag, header.version);
    for (uint32_t i = 0; i < layout->slots; i++)
        if (format_slot_read(layout, image, i, seed, header.lower, &slot) == FORMAT_SLOT_TAKEN &&
            slot.block != GADDR_NULL)
            pool_block_release(&session->pool, slot.block, slot.key_length);
}

/* The load has failed: what its leaves name is in the leaves alone. The newest one is not written yet. */
static void part_blocks_release(struct tree_session *session, const struct format_layout *layout,
                                const struct part *part)
{
    for (size_t i = 0; i + 1 < part->leaves.count; i++) {
        gaddr leaf = part->leaves.items[i].link.address;
        struct fabric_command read =
            pool_read_command(leaf, session->image.bytes, layout->geometry.leaf_bytes);
        if (execute(session, &read))
            return;
        pool_read_settle(&read);
        leaf_blocks_release(session, layout, part->leaves.items[i].link, session->image.bytes);
    }
    if (part->leaves.count)
        leaf_blocks_release(session, layout, part->leaves.items[part->leaves.count - 1].link, part->last);
}

/* Blocks for the collected entries that are long keys of their leaf, and their keys in them: one round trip
 * for all. An entry that was carried on from the leaf before keeps the block that it has. */
static int blocks_make(struct loader *loader, gaddr leaf)
{
    const struct format_layout *layout = &loader->bulk->tree->layout;
    int status = 0;
    if (!layout->long_keys)
        return 0;
    uint32_t made = loader->carried;
    for (; made < loader->count && !status; made++) {
        struct tree_leaf_entry *entry = &loader->entries[made];
        if (format_slot_needs_block(layout, format_key_of(&loader->lower), entry->key))
            status = tree_key_block_allocate(loader->session, layout, leaf, entry->key.length, &entry->block);
    }
    if (!status)
        do
            status = tree_key_blocks_write(loader->session, loader->entries + loader->carried,
                                           loader->count - loader->carried);
        while (tree_again(loader->session, NULL, &status));
    loader->carried = made;
    return status;
}

/* A part failed: the blocks of entries that are in no leaf yet. */
static void pending_blocks_release(struct loader *loader)
{
    for (uint32_t i = 0; i < loader->count; i++)
        if (loader->entries[i].block != GADDR_NULL)
            pool_block_release(&loader->session->pool, loader->entries[i].block,
                               loader->entries[i].key.length);
}

/* Where subtrees are placed, a leaf goes beside the one before it, until a subtree is full; then another one
 * begins, as after a split. Parts that are loaded side by side begin on different memory nodes. */
static int leaf_allocate(struct loader *loader, gaddr *leaf)
{
    struct pool_session *pool = &loader->session->pool;
    struct part *part = loader->part;
    const struct tree *tree = loader->bulk->tree;
    uint16_t node;
    if (!tree_level_placed(tree, 0))
        return pool_allocate(pool, POOL_ANY_NODE, tree_node_bytes(tree, 0), leaf);
    if (part->begun && part->run < loader->bulk->per_subtree) {
        node = gaddr_node(part->leaves.items[part->leaves.count - 1].link.address);
    } else {
        node = tree_subtree_home(loader->session, tree);
        part->run = 0;
    }
    part->run++;
    if (node == POOL_ANY_NODE)
        return pool_allocate(pool, node, tree_node_bytes(tree, 0), leaf);
    return pool_allocate_beside(pool, node, tree_node_bytes(tree, 0), leaf);
}

/* Makes a leaf of as many of the collected entries as find room; the rest stays collected. */
static int leaf_close(struct loader *loader)
{
    struct tree_session *session = loader->session;
    struct tree *tree = loader->bulk->tree;
    const struct format_layout *layout = &tree->layout;
    struct part *part = loader->part;
    struct format_header header = {
        .state = FORMAT_NODE_LIVE, .index = tree->index, .lower = format_key_of(&loader->lower)};
    struct format_link link;
    uint32_t count = loader->count;
    int status = leaf_allocate(loader, &link.address);
    if (status)
        return status;
    status = blocks_make(loader, link.address);
    for (bool fits = false; !fits && !status;) { /* one entry, or none, always fits */
        do
            status = tree_leaf_build(session, layout, gaddr_node(link.address), TAG_TRIES, TAG_TRIES, &header,
                                     loader->entries, count, session->image.bytes, &fits);
        while (tree_again(session, NULL, &status));
        count -= !status && !fits;
    }
    link.tag = header.tag;
    if (!status && part->begun)
        status = last_write(session, tree, part, link, header.lower);
    if (!status)
        status = child_append(session, &part->leaves, link, header.lower);
    if (status) {
        pool_release(&session->pool, link.address, layout->geometry.leaf_bytes);
        return status;
    }
    part->begun = true;
    part->header = header;
    part->lower = loader->lower;
    memcpy(part->last, session->image.bytes, layout->geometry.leaf_bytes);
    uint32_t rest = loader->count - count;
    if (rest)
        format_key_store(&loader->lower,
                         tree_separator(layout, loader->entries[count - 1].key, loader->entries[count].key));
    loader->count = 0;
    loader->carried = rest;
    for (uint32_t i = 0; i < rest; i++) { /* to the front: never behind where it is read from */
        struct tree_leaf_entry entry = loader->entries[count + i];
        entry_store(loader, entry.key, entry.value, entry.block);
    }
    return 0;
}

static int entry_add(struct loader *loader, bool first, struct format_key key, struct format_key value)
{
    struct tree_session *session = loader->session;
    struct tree *tree = loader->bulk->tree;
    int status = tree_key_check(session, tree, key.bytes, key.length);
    if (!status)
        status = tree_value_check(session, tree, value.bytes, value.length);
    if (!status && !first && format_key_compare(format_key_of(&loader->previous), key) >= 0)
        status = pool_fail(&session->pool, BANYAN_EINVAL,
                           "index %s: the keys of a bulk load must ascend strictly", tree->name);
    while (!status && loader->count == loader->bulk->per_leaf)
        status = leaf_close(loader);
    if (status)
        return status;
    if (!loader->count && loader->part->begun)
        format_key_store(&loader->lower,
                         tree_separator(&tree->layout, format_key_of(&loader->previous), key));
    entry_store(loader, key, value, GADDR_NULL);
    format_key_store(&loader->previous, key);
    return 0;
}

int tree_bulk_part(struct tree_session *session, struct tree_bulk *bulk, unsigned number,
                   tree_bulk_next_function *next, void *context)
{
    if (number >= bulk->parts || bulk->part[number].taken)
        return pool_fail(&session->pool, BANYAN_EINVAL, "a bulk load of %u parts has no part %u to load",
                         bulk->parts, number);
    if (tree_wants_logs(session->compute))
        return pool_fail(&session->pool, BANYAN_ENOTSUP,
                         "index %s: memory nodes keep on their disks what owners log, and a bulk load logs "
                         "nothing: put the entries instead",
                         bulk->tree->name);
    struct loader loader = {.session = session, .bulk = bulk, .part = &bulk->part[number]};
    loader.part->taken = true;
    int status = tree_begin(session, bulk->tree);
    if (!status)
        status = loader_init(&loader);
    const void *key, *value;
    size_t key_length, length;
    bool first = true;
    while (!status && next(context, &key, &key_length, &value, &length)) {
        if (key_length > FORMAT_KEY_MAX || length > FORMAT_VALUE_MAX) {
            status =
                pool_fail(&session->pool, BANYAN_EKEYSIZE, "index %s: an entry of %zu+%zu bytes is too long",
                          bulk->tree->name, key_length, length);
            break;
        }
        struct format_key given = {key, (uint32_t)key_length};
        if (first) /* the leftmost leaf begins at the least key, another part's first at its own */
            format_key_store(&loader.lower, number ? given : format_key_least(&bulk->tree->layout));
        status = entry_add(&loader, first, given, (struct format_key){value, (uint32_t)length});
        first = false;
    }
    while (!status && loader.count)
        status = leaf_close(&loader);
    if (status && loader.entries)
        pending_blocks_release(&loader);
    free(loader.entries);
    free(loader.bytes);
    bulk->part[number].newest = loader.previous;
    bulk->part[number].done = !status;
    return status;
}

/* ---- joining ---- */

/* An empty leftmost leaf, where the first part brought nothing. */
static int leaf_leftmost(struct tree_session *session, struct tree_bulk *bulk)
{
    struct loader loader = {.session = session, .bulk = bulk, .part = &bulk->part[0]};
    free(loader.part->last);
    int status = loader_init(&loader);
    format_key_store(&loader.lower, format_key_least(&bulk->tree->layout));
    if (!status)
        status = leaf_close(&loader);
    free(loader.entries);
    free(loader.bytes);
    return status;
}

static struct part *part_after(struct tree_bulk *bulk, unsigned number)
{
    for (unsigned i = number; i < bulk->parts; i++)
        if (bulk->part[i].begun)
            return &bulk->part[i];
    return NULL;
}

/* Writes the parts' last leaves and moves all children into one array. */
static int leaves_join(struct tree_session *session, struct tree_bulk *bulk, struct children *all)
{
    int status = 0;
    for (unsigned i = 0; i < bulk->parts && !status; i++) {
        struct part *part = &bulk->part[i], *right = part_after(bulk, i + 1);
        if (!part->begun)
            continue;
        if (right) {
            struct format_key upper = format_key_of(right->leaves.items[0].key);
            if (format_key_compare(format_key_of(&part->lower), upper) >= 0 ||
                format_key_compare(format_key_of(&part->newest), upper) >= 0)
                return pool_fail(&session->pool, BANYAN_EINVAL,
                                 "index %s: part %u of the bulk load reaches into the next", bulk->tree->name,
                                 i);
            status = last_write(session, bulk->tree, part, right->leaves.items[0].link, upper);
        } else {
            status = last_write(session, bulk->tree, part, (struct format_link){0}, (struct format_key){0});
        }
    }
    for (unsigned i = 0; i < bulk->parts && !status; i++)
        for (size_t j = 0; j < bulk->part[i].leaves.count && !status; j++) {
            struct child *child = &bulk->part[i].leaves.items[j];
            status = child_append(session, all, child->link, format_key_of(child->key));
        }
    return status;
}

/* Whether the child lies on another memory node than the first one of its group, and so does what follows: a
 * subtree begins there. (A lone child that had to go elsewhere, since its memory node was full, is no end of
 * anything: else nodes with one child each would pile up.) */
static bool subtree_begins(const struct children *children, size_t start, size_t child)
{
    const uint16_t own = gaddr_node(children->items[start].link.address);
    const uint16_t node = gaddr_node(children->items[child].link.address);
    return node != own &&
           (child + 1 == children->count || gaddr_node(children->items[child + 1].link.address) == node);
}

/* How many of the children from `start` on make one node of the level at the given fill. */
static uint32_t group_size(const struct tree_bulk *bulk, uint8_t level, const struct children *children,
                           size_t start, struct format_entry *entries)
{
    const struct format_layout *layout = &bulk->tree->layout;
    const bool placed = tree_level_placed(bulk->tree, level);
    uint32_t header = layout->header_bytes;
    uint32_t limit = header + (uint32_t)((layout->geometry.internal_bytes - header) * bulk->fill);
    uint32_t count = 0;
    while (start + count < children->count && count < FORMAT_ENTRIES_MAX) {
        const struct child *child = &children->items[start + count];
        entries[count] = (struct format_entry){format_key_of(child->key), child->link};
        if (count >= 2 && format_internal_size(layout, entries, count + 1) > limit)
            break;
        if (placed && subtree_begins(children, start, start + count))
            return count;
        count++;
    }
    /* Not a lone child in the last node. */
    return start + count + 1 == children->count && count > 2 ? count - 1 : count;
}

static int level_build(struct tree_session *session, struct tree_bulk *bulk, uint8_t level,
                       const struct children *below, struct children *nodes)
{
    struct tree *tree = bulk->tree;
    const struct format_layout *layout = &tree->layout;
    struct format_entry *entries = session->internal;
    int status = 0;
    for (size_t start = 0; start < below->count && !status;) {
        struct format_link link;
        start += group_size(bulk, level, below, start, entries);
        status = tree_top_allocate(session, tree, level, entries[0].link.address, &link.address);
        if (status)
            break;
        do
            status = pool_take_tag(&session->pool, gaddr_node(link.address), &link.tag);
        while (tree_again(session, NULL, &status));
        if (!status)
            status = child_append(session, nodes, link, entries[0].key);
        if (status)
            pool_release(&session->pool, link.address, layout->geometry.internal_bytes);
    }
    size_t start = 0;
    for (size_t i = 0; i < nodes->count && !status; i++) {
        const struct child *node = &nodes->items[i];
        struct format_header header = {.tag = node->link.tag,
                                       .level = level,
                                       .state = FORMAT_NODE_LIVE,
                                       .index = tree->index,
                                       .lower = format_key_of(node->key)};
        if (i + 1 < nodes->count) {
            header.has_upper = true;
            header.upper = format_key_of(nodes->items[i + 1].key);
            header.sibling = nodes->items[i + 1].link;
        }
        uint32_t count = group_size(bulk, level, below, start, entries);
        start += count;
        format_internal_encode(layout, &header, entries, count, session->spare);
        struct fabric_command write =
            pool_write_command(node->link.address, session->spare, layout->geometry.internal_bytes);
        status = execute(session, &write);
    }
    return status;
}

/*
 * Under the old root leaf's lock: it is empty, it dies and names the new root, the root word changes. Between
 * the last two steps every session that meets the dead leaf takes the second (tree_unlink_finish), so a
 * loader that dies there has loaded the index.
 */
static int root_replace(struct tree_session *session, struct tree *tree, struct format_link root,
                        uint8_t level)
{
    const struct format_layout *layout = &tree->layout;
    struct format_link old;
    struct tree_hold hold;
    struct format_header header = {0};
    struct fabric_command writes[2];
    uint8_t old_level;
    uint32_t count = 0;
    bool swapped;
    int swap = 0;
    tree_root_forget(tree);
    int status = tree_root_get(session, tree, &old, &old_level);
    if (status)
        return status;
    if (old_level)
        return pool_fail(&session->pool, BANYAN_EBUSY,
                         "index %s is not empty: a bulk load needs an empty one", tree->name);
    status = tree_rights_enter_whole(session, tree);
    if (status)
        return status;
    tree_rights_switch(session, tree, format_key_least(layout));
    status = tree_leaf_lock(session, tree, old.address, false, NULL, 0, &hold);
    if (status)
        return status;
    status = tree_leaf_complete(session, tree, old.address);
    if (!status)
        status = tree_leaf_validate(session, tree, old, &header);
    if (!status)
        status = tree_leaf_entries(session, layout, session->image.bytes, &header, &count);
    if (!status && (count || header.has_upper))
        status = TREE_RESTART;
    if (!status) {
        header.state = FORMAT_NODE_DEAD;
        header.sibling = root;
        format_header_encode(layout, &header, session->image.bytes);
        writes[0] = pool_write_command(old.address, session->image.bytes, layout->header_bytes);
        status = pool_unknown(&session->pool, tree_leaf_execute(session, tree, old.address, writes, 1));
        if (!status) /* the index is loaded; if this fails, the next session that meets the dead leaf repeats
                        it */
            swap = tree_root_swap(session, tree, old.address, root.address, &swapped);
    }
    bool dropped = status == TREE_RESTART && header.index == (tree->index | TREE_INDEX_DROPPED);
    int released = tree_leaf_release(session, tree, &hold, writes, 0);
    if (dropped)
        return tree_dropped(session, tree);
    if (status == TREE_RESTART)
        return pool_fail(&session->pool, BANYAN_EBUSY,
                         "index %s is not empty: a bulk load needs an empty one", tree->name);
    if (status)
        return status;
    if (swap || tree_is_dropped(tree)) /* a drop finds the new root by the old one (drop.c) */
        return 0;
    tree_root_set(tree, root, level);
    if (!released) /* else our lock may still stand: a session may be about to change it */
        pool_release(&session->pool, old.address, layout->geometry.leaf_bytes);
    return 0;
}

int tree_bulk_finish(struct tree_session *session, struct tree_bulk *bulk)
{
    struct tree *tree = bulk->tree;
    const struct format_layout *layout = &tree->layout;
    struct children levels[32] = {0};
    uint8_t top = 0;
    int status = tree_begin(session, tree);
    for (unsigned i = 0; i < bulk->parts && !status; i++)
        if (!bulk->part[i].done)
            status = pool_fail(&session->pool, BANYAN_EINVAL,
                               "index %s: part %u of the bulk load was not loaded", tree->name, i);
    const struct part *anything = part_after(bulk, 0);
    /* Not where the first entry's key is the least that there is: nothing could lie before it. */
    if (!status && anything && !bulk->part[0].begun &&
        format_key_compare(format_key_least(layout), format_key_of(anything->leaves.items[0].key)) < 0)
        status = leaf_leftmost(session, bulk);
    if (!status && anything)
        status = leaves_join(session, bulk, &levels[0]);
    while (!status && levels[top].count > 1) {
        status = level_build(session, bulk, (uint8_t)(top + 1), &levels[top], &levels[top + 1]);
        top++;
    }
    struct tree_turn turn = {0};
    if (!status && anything)
        do {
            status = root_replace(session, tree, levels[top].items[0].link, top);
            if (tree_again(session, tree, &status))
                status = TREE_ANEW;
        } while (tree_turn_again(session, tree, &turn, &status));
    if (status && status != BANYAN_EUNKNOWN) {
        for (unsigned i = 0; i < bulk->parts && layout->long_keys; i++)
            part_blocks_release(session, layout, &bulk->part[i]);
        for (unsigned i = 0; i < bulk->parts; i++)
            children_release(session, &bulk->part[i].leaves, layout->geometry.leaf_bytes);
        for (unsigned i = 1; i <= top; i++)
            children_release(session, &levels[i], layout->geometry.internal_bytes);
    }
    for (unsigned i = 0; i <= top; i++)
        children_free(&levels[i]);
    bulk_free(bulk);
    return status;
}
