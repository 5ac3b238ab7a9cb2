/*
 * drop.c - An index goes away with all that it holds. Level by level from the root downwards, every node is
 * killed in place; when a level is dead the root word moves down to the next one, and then the level's blocks
 * go back. Two round trips a node. One task; any number of compute nodes may use the index, or drop it too,
 * at the same time. A drop that stops anywhere is continued from the root word. docs/internals/tree.md,
 * Dropping, has the reasons.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/task.h"
#include "format/verdict.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/catalogue.h"
#include "tree/logging.h"
#include "tree/entries.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/owned_cache.h"
#include "tree/session.h"
#include "tree/turn.h"

/* Of one level. */
struct nodes {
    gaddr *items; /* owned */
    size_t count, capacity;
};

struct named {
    struct format_link *items; /* owned */
    size_t count, capacity;
};

struct tree_drop {
    struct tree_session *session;
    struct tree *tree;
    tree_drop_function *visit;
    void *context;
    struct nodes killed;       /* of the level under way: to be freed once the root word has left it */
    struct named named, below; /* by the level above, by the level under way */
    uint8_t named_level;       /* the level of `named` */
};

static int nodes_append(struct tree_drop *drop, gaddr node)
{
    struct nodes *nodes = &drop->killed;
    if (nodes->count == nodes->capacity) {
        size_t capacity = nodes->capacity ? 2 * nodes->capacity : 256;
        gaddr *larger = realloc(nodes->items, capacity * sizeof *larger);
        if (!larger)
            return pool_fail_memory(&drop->session->pool);
        nodes->items = larger;
        nodes->capacity = capacity;
    }
    nodes->items[nodes->count++] = node;
    return 0;
}

static int below_append(struct tree_drop *drop, struct format_link link)
{
    struct named *below = &drop->below;
    if (below->count == below->capacity) {
        size_t capacity = below->capacity ? 2 * below->capacity : 256;
        struct format_link *larger = realloc(below->items, capacity * sizeof *larger);
        if (!larger)
            return pool_fail_memory(&drop->session->pool);
        below->items = larger;
        below->capacity = capacity;
    }
    below->items[below->count++] = link;
    return 0;
}

static void drop_free(struct tree_drop *drop)
{
    free(drop->killed.items);
    free(drop->named.items);
    free(drop->below.items);
    tree_close(drop->tree);
    free(drop);
}

void tree_drop_abandon(struct tree_session *session)
{
    if (session->drop)
        drop_free(session->drop);
    session->drop = NULL;
}

static uint32_t node_bytes(const struct tree_drop *drop, uint8_t level)
{
    const struct format_geometry *geometry = &drop->tree->layout.geometry;
    return level ? geometry->internal_bytes : geometry->leaf_bytes;
}

/* ---- killing one node ---- */

static bool header_ours(const struct tree *tree, const struct format_header *header)
{
    return (header->index & ~TREE_INDEX_DROPPED) == tree->index;
}

/* Whether the node may still change: neither a drop nor an unlink has been there. */
static bool header_alive(const struct tree *tree, const struct format_header *header)
{
    return header->index == tree->index && header->state != FORMAT_NODE_DEAD;
}

/* Validates a node under its lock: 0 with the header, TREE_RESTART (another node lies there), or corrupt. A
 * node that another drop has marked is ours too. */
static int node_validate(struct tree_drop *drop, struct format_link link, uint8_t level, const uint8_t *image,
                         struct format_header *header)
{
    const struct format_layout *layout = &drop->tree->layout;
    enum format_verdict verdict = format_node_verdict(layout, image, link, drop->tree->index, level, header);
    if (verdict == FORMAT_OTHER && header_ours(drop->tree, header))
        verdict = format_node_verdict(layout, image, link, header->index, level, header);
    if (verdict == FORMAT_TORN)
        return tree_invalid(drop->session, link.address, "a node's header fails its check");
    if (verdict == FORMAT_MALFORMED)
        return pool_corrupt(&drop->session->pool, link.address, "a node's header is malformed");
    if (verdict == FORMAT_OTHER)
        return TREE_RESTART;
    if (verdict == FORMAT_LEVEL)
        return pool_corrupt(&drop->session->pool, link.address,
                            "a node is not on the level that its link says");
    return 0;
}

/* Notes the node's children, and marks it as dropped; *sibling is the node to its right. */
static int internal_kill(struct tree_drop *drop, struct format_link link, uint8_t level,
                         struct format_link *sibling)
{
    struct tree_session *session = drop->session;
    const struct format_layout *layout = &drop->tree->layout;
    struct format_entry *entries = session->internal;
    struct format_header header;
    struct tree_hold hold;
    struct fabric_command writes[2],
        read = pool_read_command(link.address, session->scratch, layout->geometry.internal_bytes);
    int status = tree_lock(session, link.address, false, &read, 1, &hold);
    if (status)
        return status;
    pool_read_settle(&read);
    session->image.address = GADDR_NULL;
    status = node_validate(drop, link, level, session->scratch, &header);
    if (!status && (!format_internal_valid(layout, session->scratch) ||
                    !format_internal_decode(layout, session->scratch, &header, entries)))
        status = pool_corrupt(&session->pool, link.address, "an internal node's entries fail their check");
    for (uint32_t i = 0; !status && i < header.count; i++)
        if (entries[i].link.address != GADDR_NULL)
            status = below_append(drop, entries[i].link);
    if (status)
        return tree_unlock_with(session, &hold, status);
    *sibling = header.sibling;
    if (!header_alive(drop->tree, &header))
        return tree_unlock(session, &hold, writes, 0);
    header.index |= TREE_INDEX_DROPPED;
    format_internal_encode(layout, &header, entries, header.count, session->spare);
    writes[0] = pool_write_command(link.address, session->spare, layout->geometry.internal_bytes);
    return tree_unlock(session, &hold, writes, 1);
}

/*
 * Under the lock of a live leaf, its image complete: its entries go to session->entries, and the image is
 * emptied. What a damaged leaf names cannot be told: that is left to an offline check.
 */
static int leaf_empty(struct tree_drop *drop, const struct format_header *header, uint32_t *count)
{
    struct tree_session *session = drop->session;
    const struct format_layout *layout = &drop->tree->layout;
    uint8_t *image = session->image.bytes;
    int status = tree_leaf_entries(session, layout, image, header, count);
    if (status == TREE_RESTART) {
        *count = 0;
        status = 0;
    }
    uint32_t seed = format_slot_seed(header->tag, header->version);
    for (uint32_t i = 0; !status && i < layout->slots; i++)
        format_slot_clear(layout, image, i, seed); /* the check alone: the entries still point to the rest */
    return status;
}

/* No session finds the entries any more: what they name is freed. */
static void entries_release(struct tree_drop *drop, uint32_t count)
{
    struct tree_session *session = drop->session;
    for (uint32_t i = 0; i < count; i++) {
        const struct tree_leaf_entry *entry = &session->entries[i];
        if (drop->visit)
            drop->visit(drop->context, drop->tree, entry->key.bytes, entry->key.length, entry->value.bytes,
                        entry->value.length);
        if (entry->block != GADDR_NULL)
            pool_block_release(&session->pool, entry->block, entry->key.length);
    }
}

/* Under the lock: the image is complete, and what is half done is finished. */
static int leaf_settle(struct tree_drop *drop, struct format_link link, struct format_header *header)
{
    struct tree_session *session = drop->session;
    int status = node_validate(drop, link, 0, session->image.bytes, header);
    if (status || !header_alive(drop->tree, header))
        return status;
    return tree_leaf_mend(session, drop->tree, link, header);
}

/*
 * The right to the leaf, and the access by it: of its row, which its lower fence tells; that never changes,
 * so it may be read without a right. Where all rows are alike there is nothing to read.
 */
static int leaf_enter(struct tree_drop *drop, struct format_link link)
{
    struct tree_session *session = drop->session;
    const struct format_layout *layout = &drop->tree->layout;
    struct format_key lower = format_key_least(layout);
    struct format_header header;
    int status = tree_rights_enter_whole(session, drop->tree);
    if (!status && drop->tree->owned) /* what it says of keys that go would be found for ever */
        owned_cache_stop(drop->tree->owned, session->pool.epoch);
    if (!status && !tree_rights_alike(session)) {
        struct fabric_command read = pool_read_command(link.address, session->scratch, layout->header_bytes);
        status = pool_execute(&session->pool, gaddr_node(link.address), &read, 1);
        if (status)
            return status;
        pool_read_settle(&read);
        if (!format_header_valid(layout, session->scratch) ||
            !format_header_decode(layout, session->scratch, &header))
            return tree_invalid(session, link.address, "a leaf's header fails its check");
        lower = header.lower;
    }
    if (!status)
        tree_rights_switch(session, drop->tree, lower);
    return status;
}

/* Empties the leaf, in writes that leave it valid wherever they are cut, then marks it as dropped. */
static int leaf_kill(struct tree_drop *drop, struct format_link link, struct format_link *sibling)
{
    struct tree_session *session = drop->session;
    const struct format_layout *layout = &drop->tree->layout;
    const uint32_t header_bytes = layout->header_bytes;
    struct format_header header;
    struct tree_hold hold;
    uint32_t count;
    uint8_t *image = session->image.bytes;
    struct fabric_command writes[3],
        read = pool_read_command(link.address, image, layout->geometry.leaf_bytes);
    int status = leaf_enter(drop, link);
    if (!status)
        status = tree_leaf_lock(session, drop->tree, link.address, false, &read, 1, &hold);
    if (status)
        return status;
    pool_read_settle(&read);
    session->image.address = GADDR_NULL;
    status = leaf_settle(drop, link, &header);
    session->image.address = GADDR_NULL; /* a waiter of ours must not be given this image */
    if (!status)
        *sibling = header.sibling;
    if (status || !header_alive(drop->tree, &header))
        return tree_leaf_release_with(session, drop->tree, &hold, status);
    status = leaf_empty(drop, &header, &count);
    if (status)
        return tree_leaf_release_with(session, drop->tree, &hold, status);
    header.index |= TREE_INDEX_DROPPED;
    /* A frozen leaf (R7) holds all of its entries: its left neighbour has been killed, and was not merging.
     */
    header.state = FORMAT_NODE_LIVE;
    format_header_encode(layout, &header, image);
    writes[0] = pool_write_command(link.address + header_bytes, image + header_bytes,
                                   layout->geometry.leaf_bytes - header_bytes);
    writes[1] = pool_write_command(link.address, image, header_bytes);
    status = tree_leaf_release(session, drop->tree, &hold, writes, 2);
    if (!status) /* else the slots may still be there */
        entries_release(drop, count);
    return status;
}

static int node_kill(struct tree_drop *drop, struct format_link link, uint8_t level,
                     struct format_link *sibling)
{
    if (link.address == GADDR_NULL || !pool_knows(&drop->session->pool, gaddr_node(link.address)))
        return pool_corrupt(&drop->session->pool, link.address, "a link leads outside of the pool");
    int status = level ? internal_kill(drop, link, level, sibling) : leaf_kill(drop, link, sibling);
    tree_rights_stale(drop->session, &status);
    tree_rights_leave(drop->session);
    return status ? status : nodes_append(drop, link.address);
}

/* ---- one level ---- */

/* From its leftmost node along the siblings. Splits may go on to the right of where we are; not behind us. */
static int chain_kill(struct tree_drop *drop, struct format_link first, uint8_t level)
{
    struct format_link link = first, next, seen = first;
    int status = 0;
    for (uint64_t length = 1, turn = 2; !status && link.address != GADDR_NULL; link = next, length++) {
        status = node_kill(drop, link, level, &next);
        if (!status && format_link_equal(next, seen))
            status = pool_corrupt(&drop->session->pool, link.address, "siblings lead in a circle");
        if (length == turn) { /* a circle of whatever length comes by here in the end */
            seen = link;
            turn *= 2;
        }
    }
    return status;
}

static int address_order(const void *left, const void *right)
{
    gaddr a = *(const gaddr *)left, b = *(const gaddr *)right;
    return a < b ? -1 : a > b;
}

/*
 * What the level above named and its siblings do not lead to: dead nodes whose entry in their parent was
 * still due to be dropped. The parent is dropped, so no other session can free them. One that cannot be read
 * stays for an offline check.
 */
static int named_kill(struct tree_drop *drop, uint8_t level)
{
    struct nodes *killed = &drop->killed;
    struct format_link sibling;
    size_t chain = killed->count;
    int status = 0;
    if (!drop->named.count || drop->named_level != level)
        return 0;
    qsort(killed->items, chain, sizeof *killed->items, address_order);
    for (size_t i = 0; !status && i < drop->named.count; i++) {
        const gaddr *node = &drop->named.items[i].address;
        if (bsearch(node, killed->items, chain, sizeof *node, address_order))
            continue;
        status = node_kill(drop, drop->named.items[i], level, &sibling);
        if (status == TREE_RESTART || status == BANYAN_ECORRUPT)
            status = 0;
    }
    return status;
}

static void level_release(struct tree_drop *drop, uint8_t level)
{
    for (size_t i = 0; i < drop->killed.count; i++)
        pool_release(&drop->session->pool, drop->killed.items[i], node_bytes(drop, level));
}

/* The level is dead: the root word goes on to `next`. The session that moves it frees the level; others that
 * drop the same index find it moved. */
static int level_leave(struct tree_drop *drop, gaddr from, gaddr next, uint8_t level)
{
    bool swapped;
    int status = tree_condemned_swap(drop->session, drop->tree, from, next, &swapped);
    if (status)
        return status;
    if (swapped)
        level_release(drop, level);
    struct named named = drop->named;
    drop->named = drop->below;
    drop->below = named;
    drop->named_level = (uint8_t)(level - 1);
    if (!swapped)
        drop->named.count = 0; /* it may be of a level that is gone */
    drop->session->restarts = drop->session->invalid = 0;
    return 0;
}

/* Where the drop stands: the leftmost node of a level. *root address 0: no node is left. */
static int level_find(struct tree_drop *drop, struct format_link *root, struct format_header *header)
{
    struct tree_session *session = drop->session;
    const struct format_layout *layout = &drop->tree->layout;
    for (unsigned attempt = 0; attempt <= TREE_PATIENCE; attempt++) {
        gaddr again;
        int status = tree_condemned_root(session, drop->tree, &root->address);
        if (status || root->address == GADDR_NULL)
            return status;
        struct fabric_command read = pool_read_command(root->address, session->scratch, layout->header_bytes);
        status = pool_execute(&session->pool, gaddr_node(root->address), &read, 1);
        if (status)
            return status;
        pool_read_settle(&read);
        bool good = format_header_valid(layout, session->scratch) &&
                    format_header_decode(layout, session->scratch, header) &&
                    header_ours(drop->tree, header) &&
                    !format_key_compare(header->lower, format_key_least(layout));
        root->tag = header->tag;
        /* What the word still names has not been freed: this was the node's header, and its tag proves it. */
        status = tree_condemned_root(session, drop->tree, &again);
        if (status || (good && again == root->address))
            return status;
        task_yield();
    }
    return pool_corrupt(&session->pool, root->address, "the root's header fails its check");
}

/* The root leaf that a bulk load has replaced, but for the root word: it names the new root. */
static bool root_replaced(const struct tree *tree, const struct format_header *header)
{
    return header->index == tree->index && header->state == FORMAT_NODE_DEAD && !header->has_upper &&
           header->sibling.address != GADDR_NULL;
}

/* Kills the level at which the drop stands. BANYAN_ENOTFOUND: all is done. */
static int level_drop(struct tree_drop *drop)
{
    struct format_link root;
    struct format_header header;
    int status = level_find(drop, &root, &header);
    if (!status && root.address == GADDR_NULL) {
        status = tree_condemned_end(drop->session, drop->tree);
        return status ? status : BANYAN_ENOTFOUND;
    }
    if (status)
        return status;
    drop->killed.count = drop->below.count = 0;
    const uint8_t level = header.level;
    if (root_replaced(drop->tree, &header)) {
        status = nodes_append(drop, root.address);
        return status ? status : level_leave(drop, root.address, header.sibling.address, level);
    }
    status = chain_kill(drop, root, level);
    gaddr next =
        drop->below.count ? drop->below.items[0].address : GADDR_NULL; /* the leftmost node's first */
    if (!status)
        status = named_kill(drop, level);
    if (!status && level && next == GADDR_NULL)
        status = pool_corrupt(&drop->session->pool, root.address, "a level names no nodes below it");
    return status ? status : level_leave(drop, root.address, next, level);
}

/* ---- all of it ---- */

/* An index that is being dropped: goes on until nothing of it is left. Closes the tree. The session owns what
 * this keeps: a task may end in the middle of a call. */
static int index_drop(struct tree_session *session, struct tree *tree, tree_drop_function *visit,
                      void *context)
{
    struct tree_drop *drop = calloc(1, sizeof *drop);
    if (!drop) {
        tree_close(tree);
        return pool_fail_memory(&session->pool);
    }
    assert(!session->drop);
    *drop = (struct tree_drop){.session = session, .tree = tree, .visit = visit, .context = context};
    session->drop = drop;
    int status = tree_begin(session, tree);
    struct tree_turn turn = {0};
    while (!status) {
        status = level_drop(drop);
        if (status == TREE_RESTART) /* another task drops it too, and is ahead of us */
            status = tree_restart(session, tree->root_word);
        tree_again(session, tree, &status);
        tree_turn_again(session, tree, &turn, &status);
    }
    tree_drop_abandon(session);
    return status == BANYAN_ENOTFOUND ? 0 : pool_unknown(&session->pool, status);
}

/* Of this name, or all. *count: how many. */
static int condemned_drop(struct tree_session *session, const char *name, tree_drop_function *visit,
                          void *context, uint32_t *count)
{
    struct tree *tree;
    uint32_t from = 0;
    int status;
    *count = 0;
    do {
        do
            status = tree_condemned_next(session, name, &from, &tree);
        while (tree_again(session, NULL, &status));
        if (status || !tree)
            break;
        status = index_drop(session, tree, visit, context);
        ++*count;
    } while (!status);
    pool_worker_return(session->pool.worker); /* other workers may need what this one would keep */
    return status;
}

int tree_drop(struct tree_session *session, const char *name, tree_drop_function *visit, void *context)
{
    uint32_t count;
    bool found;
    int status;
    pool_session_begin(&session->pool);
    do
        status = tree_condemn(session, name, &found);
    while (tree_again(session, NULL, &status));
    if (status)
        return status;
    status = condemned_drop(session, name, visit, context, &count);
    if (found)
        status = pool_unknown(&session->pool, status);
    if (!status && !found && !count)
        return pool_fail(&session->pool, BANYAN_ENOTFOUND, "there is no index named '%s'", name);
    return status ? status : tree_catalogue_persist(session);
}

int tree_drop_finish(struct tree_session *session, tree_drop_function *visit, void *context, uint32_t *count)
{
    pool_session_begin(&session->pool);
    return condemned_drop(session, NULL, visit, context, count);
}

int tree_drop_count(struct tree_session *session, uint32_t *count)
{
    struct tree *tree = NULL;
    uint32_t from = 0;
    int status;
    *count = 0;
    pool_session_begin(&session->pool);
    do {
        do
            status = tree_condemned_next(session, NULL, &from, &tree);
        while (tree_again(session, NULL, &status));
        *count += tree != NULL;
        tree_close(tree);
    } while (!status && tree);
    return status;
}
