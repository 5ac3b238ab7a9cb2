/*
 * check.c - Walks a whole index and judges every node, link, slot and key block. One round trip a node, and
 * one more for a leaf with long keys; nobody else may write.
 */
#include "tree/state.h"

#include <stdlib.h>

#include "memory/memory.h"

/* Walks level by level from the top, along the sibling links, beside the links that the level above holds. */
struct walk {
    struct tree_session *session;
    struct tree *tree;
    struct tree_check_report *report;
    void (*visit)(void *context, gaddr node, uint32_t bytes);
    void *context;
    uint8_t *image;          /* owned: the node at hand */
    struct tree_link *named; /* owned: links that the level above holds, in key order */
    size_t named_count, named_at;
    struct tree_link *below; /* owned: links that this level holds */
    size_t below_count, below_capacity;
};

static uint32_t node_bytes(const struct walk *walk, uint8_t level)
{
    const struct tree_geometry *geometry = &walk->tree->layout.geometry;
    return level ? geometry->internal_bytes : geometry->leaf_bytes;
}

static int node_read(struct walk *walk, struct tree_link link, uint8_t level, struct tree_header *header)
{
    const struct tree_layout *layout = &walk->tree->layout;
    struct tree_session *session = walk->session;
    if (link.address == GADDR_NULL || gaddr_node(link.address) >= session->worker->memory_nodes)
        return tree_corrupt(session, link.address, "a link leads outside of the pool");
    struct fabric_command read = tree_read_command(link.address, walk->image, node_bytes(walk, level));
    int status = tree_execute(session, gaddr_node(link.address), &read, 1);
    if (status)
        return status;
    tree_read_settle(&read);
    if (level ? !tree_internal_valid(layout, walk->image) : !tree_header_valid(layout, walk->image))
        return tree_corrupt(session, link.address, "a node fails its check");
    if (!tree_header_decode(layout, walk->image, header))
        return tree_corrupt(session, link.address, "a node's header is malformed");
    if (header->tag != link.tag || header->index != walk->tree->index)
        return tree_corrupt(session, link.address, "a link leads to a node of another tag");
    if (header->level != level)
        return tree_corrupt(session, link.address, "a node is not on the level that its link says");
    return 0;
}

static void node_count(struct walk *walk, gaddr node, uint8_t level)
{
    walk->report->bytes += node_bytes(walk, level);
    if (walk->visit)
        walk->visit(walk->context, node, node_bytes(walk, level));
}

static int below_append(struct walk *walk, struct tree_link link)
{
    if (walk->below_count == walk->below_capacity) {
        size_t capacity = walk->below_capacity ? 2 * walk->below_capacity : 256;
        struct tree_link *larger = realloc(walk->below, capacity * sizeof *larger);
        if (!larger)
            return tree_fail_memory(walk->session);
        walk->below = larger;
        walk->below_capacity = capacity;
    }
    walk->below[walk->below_count++] = link;
    return 0;
}

static int internal_check(struct walk *walk, gaddr node, const struct tree_header *header)
{
    struct tree_entry *entries = walk->session->internal;
    if (!tree_internal_decode(&walk->tree->layout, walk->image, header, entries))
        return tree_corrupt(walk->session, node, "an internal node's entries are malformed or out of order");
    int status = 0;
    for (uint32_t i = 0; i < header->count && !status; i++) {
        if (header->has_upper && tree_key_compare(entries[i].key, header->upper) >= 0)
            return tree_corrupt(walk->session, node, "an internal node's entry lies beyond its upper fence");
        if (entries[i].link.address != GADDR_NULL)
            status = below_append(walk, entries[i].link);
    }
    walk->report->internals++;
    return status;
}

static void block_count(struct walk *walk, const struct tree_leaf_entry *entry)
{
    if (entry->block == GADDR_NULL)
        return;
    uint32_t bytes = memory_block_bytes(entry->key.length);
    walk->report->key_blocks++;
    walk->report->bytes += bytes;
    if (walk->visit)
        walk->visit(walk->context, entry->block, bytes);
}

/* Whoever locks it next finishes it. What has moved belongs to the sibling by now. */
static int marked_check(struct walk *walk, gaddr node, const struct tree_header *header)
{
    struct tree_session *session = walk->session;
    uint32_t count;
    walk->report->marked++;
    int status = tree_leaf_halves(session, &walk->tree->layout, walk->image, header, &count);
    if (status)
        return status < 0 ? status : tree_leaf_corrupt(session, node);
    for (uint32_t i = 0; i < count; i++)
        if (tree_header_side(header, session->entries[i].key) <= 0)
            block_count(walk, &session->entries[i]);
    return 0;
}

static int leaf_check(struct walk *walk, gaddr node, const struct tree_header *header)
{
    struct tree_session *session = walk->session;
    const struct tree_layout *layout = &walk->tree->layout;
    walk->report->leaves++;
    if (header->state == TREE_NODE_SPLITTING)
        return marked_check(walk, node, header);
    uint32_t count;
    int status = tree_leaf_entries(session, layout, walk->image, header, &count);
    if (status)
        return status < 0 ? status : tree_leaf_corrupt(session, node);
    for (uint32_t i = 0; i < count; i++) {
        const struct tree_leaf_entry *entry = &session->entries[i];
        struct tree_bucket bucket;
        tree_bucket_of(layout, header->tag, entry->key, &bucket);
        if (tree_header_side(header, entry->key))
            return tree_corrupt(session, node, "a leaf holds a key outside of its fences");
        if (entry->number < bucket.first || entry->number >= bucket.first + bucket.count)
            return tree_corrupt(session, node, "a leaf holds a key outside of its bucket");
        if (i && !tree_key_compare(session->entries[i - 1].key, entry->key))
            return tree_corrupt(session, node, "a leaf holds a key twice");
        block_count(walk, entry);
    }
    if (header->state == TREE_NODE_DEAD && count)
        return tree_corrupt(session, node, "a dead leaf holds entries");
    walk->report->entries += count;
    return 0;
}

/* The level above must name the nodes of this one in their order. Dead ones may have left the chain already,
 * live ones may not be named yet: both are what a crash leaves, and traversers mend. */
static int named_match(struct walk *walk, struct tree_link link, uint8_t level)
{
    while (walk->named_at < walk->named_count) {
        struct tree_link expected = walk->named[walk->named_at];
        if (tree_link_equal(expected, link)) {
            walk->named_at++;
            return 0;
        }
        struct tree_header header;
        if (link.address == GADDR_NULL || expected.address != link.address) {
            int status = node_read(walk, expected, level, &header);
            if (status)
                return status;
            if (header.state == TREE_NODE_DEAD) {
                walk->report->dead++;
                node_count(walk, expected.address, level);
                walk->named_at++;
                continue;
            }
        }
        break;
    }
    if (link.address != GADDR_NULL)
        walk->report->missing_parents++;
    else if (walk->named_at < walk->named_count)
        return tree_corrupt(walk->session, walk->named[walk->named_at].address,
                            "a live node is not among its level's siblings");
    return 0;
}

static int level_walk(struct walk *walk, struct tree_link first, uint8_t level)
{
    struct tree_session *session = walk->session;
    struct tree_key_copy expected;
    tree_key_store(&expected, tree_key_least(&walk->tree->layout));
    walk->named_at = 0;
    int status = 0;
    for (struct tree_link link = first; !status && link.address != GADDR_NULL;) {
        struct tree_header header;
        status = named_match(walk, link, level);
        if (!status)
            status = node_read(walk, link, level, &header);
        if (status)
            return status;
        if (tree_key_compare(header.lower, tree_key_of(&expected)))
            return tree_corrupt(session, link.address, "a node does not begin where its left neighbour ends");
        if (header.has_upper && tree_key_compare(header.lower, header.upper) >= 0)
            return tree_corrupt(session, link.address, "a node's fences are out of order");
        walk->report->dead += header.state == TREE_NODE_DEAD;
        node_count(walk, link.address, level);
        status =
            level ? internal_check(walk, link.address, &header) : leaf_check(walk, link.address, &header);
        tree_key_store(&expected, header.upper);
        link = header.sibling;
    }
    return status ? status : named_match(walk, (struct tree_link){0}, level);
}

int tree_check(struct tree_session *session, struct tree *tree, struct tree_check_report *report,
               void (*visit_node)(void *, gaddr, uint32_t), void *context)
{
    struct tree_link root;
    uint8_t level;
    memset(report, 0, sizeof *report);
    int status = tree_begin(session, tree);
    if (status)
        return status;
    tree_root_forget(tree);
    status = tree_root_get(session, tree, &root, &level);
    if (status)
        return status;
    struct walk walk = {
        .session = session, .tree = tree, .report = report, .visit = visit_node, .context = context};
    uint32_t bytes =
        node_bytes(&walk, 0) > node_bytes(&walk, 1) ? node_bytes(&walk, 0) : node_bytes(&walk, 1);
    walk.image = aligned_alloc(64, bytes);
    if (!walk.image)
        return tree_fail_memory(session);
    report->height = level + 1u;
    walk.named = malloc(sizeof *walk.named);
    if (walk.named)
        walk.named[walk.named_count++] = root;
    else
        status = tree_fail_memory(session);
    for (struct tree_link first = root; !status; level--) {
        status = level_walk(&walk, first, level);
        if (status || !level)
            break;
        if (!walk.below_count) {
            status = tree_corrupt(session, first.address, "a level names no nodes below it");
            break;
        }
        free(walk.named);
        walk.named = walk.below;
        walk.named_count = walk.below_count;
        first = walk.named[0];
        walk.below = NULL;
        walk.below_count = walk.below_capacity = 0;
    }
    free(walk.named);
    free(walk.below);
    free(walk.image);
    return status;
}
