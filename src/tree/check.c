/*
 * check.c - Walks a whole index and validates every node, link, slot and key block. One round trip a node,
 * and one more for a leaf with long keys; nothing else may write.
 *
 * The walk takes a level at a time, from the top, along the sibling links, and notes what a level names below
 * it. Where the visitor takes problems the walk continues behind them: a node that cannot be read is passed
 * by way of the next one that the level above names; what a damaged inner node named is reached by the
 * siblings of the level below. Each node is visited once, so that the walk ends in any tree. A read that is
 * refused after a lost connection is repeated. 24 bytes of memory a node.
 */
#include "tree/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "format/verdict.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/session.h"
#include "tree/subtree.h"

/* What the walk knows of an address. */
struct tree_walk_place {
    gaddr address;  /* GADDR_NULL: free */
    uint32_t named; /* its place among the links of the level above, from 1 on; 0: not named */
    enum { NOT_MET, MET, BAD } state;
};

int tree_walk_tell(struct tree_walk *walk, gaddr address, const char *what)
{
    int status = pool_corrupt(&walk->session->pool, address, what);
    walk->report->problems++;
    if (!walk->visitor->problem)
        return status;
    walk->visitor->problem(walk->visitor->context, walk->session->pool.error.text);
    return 0;
}

void tree_walk_count(struct tree_walk *walk, gaddr block, uint32_t bytes)
{
    walk->report->bytes += bytes;
    if (walk->visitor->node)
        walk->visitor->node(walk->visitor->context, block, bytes);
}

/* ---- places ---- */

static struct tree_walk_place *place_find(struct tree_walk_place *places, size_t capacity, gaddr address)
{
    size_t at = (size_t)random_mix(address) & (capacity - 1);
    while (places[at].address != GADDR_NULL && places[at].address != address)
        at = (at + 1) & (capacity - 1);
    return &places[at];
}

/* Valid until the next call. NULL: no memory, which is the session's error. */
static struct tree_walk_place *place_of(struct tree_walk *walk, gaddr address)
{
    if (2 * walk->place_count >= walk->place_capacity) {
        size_t capacity = walk->place_capacity ? 2 * walk->place_capacity : 1024;
        struct tree_walk_place *larger = calloc(capacity, sizeof *larger);
        if (!larger) {
            pool_fail_memory(&walk->session->pool);
            return NULL;
        }
        for (size_t i = 0; i < walk->place_capacity; i++)
            if (walk->places[i].address != GADDR_NULL)
                *place_find(larger, capacity, walk->places[i].address) = walk->places[i];
        free(walk->places);
        walk->places = larger;
        walk->place_capacity = capacity;
    }
    struct tree_walk_place *place = place_find(walk->places, walk->place_capacity, address);
    walk->place_count += place->address == GADDR_NULL;
    place->address = address;
    return place;
}

/* ---- one node ---- */

static uint32_t node_bytes(const struct tree_walk *walk, uint8_t level)
{
    const struct format_geometry *geometry = &walk->tree->layout.geometry;
    return level ? geometry->internal_bytes : geometry->leaf_bytes;
}

/* NULL, or what is wrong with a node of this verdict. Marked and dead ones are legal after a death. */
static const char *verdict_wrong(enum format_verdict verdict)
{
    switch (verdict) {
    case FORMAT_TORN:
        return "a node's header fails its check";
    case FORMAT_MALFORMED:
        return "a node's header is malformed";
    case FORMAT_OTHER:
        return "a link leads to a node of another tag";
    case FORMAT_LEVEL:
        return "a node is not on the level that its link says";
    default:
        return NULL;
    }
}

/* Reads a node and validates its header. *wrong: NULL, or what is wrong with the node or its link. */
static int node_read(struct tree_walk *walk, struct format_link link, uint8_t level, uint8_t *image,
                     struct format_header *header, const char **wrong)
{
    const struct format_layout *layout = &walk->tree->layout;
    struct tree_session *session = walk->session;
    *wrong = "a link leads outside of the pool";
    if (link.address == GADDR_NULL || !pool_knows(&session->pool, gaddr_node(link.address)))
        return 0;
    struct fabric_command read = pool_read_command(link.address, image, node_bytes(walk, level));
    int status;
    do
        status = pool_execute(&session->pool, gaddr_node(link.address), &read, 1);
    while (tree_again(session, NULL, &status));
    if (status)
        return tree_walk_damage(status) ? 0 : status;
    pool_read_settle(&read);
    *wrong = verdict_wrong(format_node_verdict(layout, image, link, walk->tree->index, level, header));
    return 0;
}

static void node_count(struct tree_walk *walk, gaddr node, uint8_t level, const struct format_header *header)
{
    walk->report->dead += header->state == FORMAT_NODE_DEAD;
    tree_walk_count(walk, node, node_bytes(walk, level));
}

static int below_append(struct tree_walk *walk, gaddr node, struct format_link link)
{
    struct tree_walk_place *place = place_of(walk, link.address);
    if (!place)
        return BANYAN_ENOMEM;
    if (place->named || place->state != NOT_MET)
        return tree_walk_tell(walk, node, "an inner node names a node that is named already");
    if (walk->below_count == walk->below_capacity) {
        size_t capacity = walk->below_capacity ? 2 * walk->below_capacity : 256;
        struct format_link *larger = realloc(walk->below, capacity * sizeof *larger);
        if (!larger)
            return pool_fail_memory(&walk->session->pool);
        walk->below = larger;
        walk->below_capacity = capacity;
    }
    walk->below[walk->below_count++] = link;
    place->named = (uint32_t)walk->below_count;
    return 0;
}

/* The entries of a node that fails its own check are good to find nodes by, for these prove themselves. */
static int internal_check(struct tree_walk *walk, gaddr node, const struct format_header *header)
{
    struct format_entry *entries = walk->session->internal;
    const struct format_layout *layout = &walk->tree->layout;
    const char *wrong = NULL;
    walk->report->internals++;
    bool decoded = format_internal_decode(layout, walk->image, header, entries);
    if (!format_internal_valid(layout, walk->image))
        wrong = "an inner node's entries fail their check";
    else if (!decoded)
        wrong = "an internal node's entries are malformed or out of order";
    int status = wrong ? tree_walk_tell(walk, node, wrong) : 0;
    walk->damaged = walk->damaged || wrong;
    const bool placed = tree_level_placed(walk->tree, header->level);
    for (uint32_t i = 0; !status && decoded && i < header->count; i++) {
        const bool links = placed && entries[i].link.address != GADDR_NULL;
        walk->report->subtree_links += links;
        walk->report->subtree_links_away += links && gaddr_node(entries[i].link.address) != gaddr_node(node);
        if (!wrong && header->has_upper && !format_header_moves(header) &&
            format_key_compare(entries[i].key, header->upper) >= 0)
            status = tree_walk_tell(walk, node, "an internal node's entry lies beyond its upper fence");
        if (!status && entries[i].link.address != GADDR_NULL)
            status = below_append(walk, node, entries[i].link);
    }
    return status;
}

/* ---- one level ---- */

/*
 * The next node to go on with that the level above names and that has not been met; address 0: none. Dead
 * ones may have left the chain of siblings already, which is what a crash leaves; they are counted here.
 */
static int level_resume(struct tree_walk *walk, uint8_t level, struct format_link *next)
{
    walk->resumed = true;
    walk->known = false;
    *next = (struct format_link){0};
    for (; walk->named_at < walk->named_count; walk->named_at++) {
        struct format_link link = walk->named[walk->named_at];
        struct tree_walk_place *place = place_of(walk, link.address);
        struct format_header header;
        const char *wrong;
        if (!place)
            return BANYAN_ENOMEM;
        if (place->state != NOT_MET)
            continue;
        int status = node_read(walk, link, level, walk->aside, &header, &wrong);
        if (status)
            return status;
        if (!wrong && header.state != FORMAT_NODE_DEAD) {
            *next = link;
            return 0;
        }
        place->state = wrong ? BAD : MET;
        if (wrong) {
            walk->damaged = walk->damaged || level;
            status = tree_walk_tell(walk, link.address, wrong);
        } else {
            node_count(walk, link.address, level, &header);
        }
        if (status)
            return status;
    }
    return 0;
}

/* The level above must name the nodes of this one in their order. Live ones may not be named yet: that too
 * is what a crash leaves, and traversers mend. */
static int named_match(struct tree_walk *walk, const struct tree_walk_place *place, struct format_link link)
{
    if (!place->named) {
        walk->report->missing_parents += !walk->damaged_above;
        return 0;
    }
    size_t at = place->named - 1u;
    if (at >= walk->named_count || walk->named[at].address != link.address)
        return 0; /* a link of a higher level: it has been told */
    if (!format_link_equal(walk->named[at], link))
        return tree_walk_tell(walk, link.address, "the level above names the node with another tag");
    if (walk->leftovers)
        return 0;
    bool early = at < walk->named_at;
    walk->named_at = early ? walk->named_at : at + 1;
    return early ? tree_walk_tell(walk, link.address, "the level above names the node in another order") : 0;
}

/* The siblings lead to a node that has been met. After damage that may be where two parts of them join. */
static int met_again(struct tree_walk *walk, uint8_t level, const struct tree_walk_place *place,
                     struct format_link link)
{
    struct format_header header;
    const char *wrong;
    if (place->state == BAD)
        return 0;
    int status = walk->resumed ? node_read(walk, link, level, walk->aside, &header, &wrong) : 0;
    if (status || (walk->resumed && !wrong && walk->known &&
                   !format_key_compare(header.lower, format_key_of(&walk->expected))))
        return status;
    return tree_walk_tell(walk, link.address, "the siblings of its level lead to the node a second time");
}

static int fences_check(struct tree_walk *walk, gaddr node, const struct format_header *header)
{
    int status = 0;
    if (walk->known && format_key_compare(header->lower, format_key_of(&walk->expected)))
        status = tree_walk_tell(walk, node, "a node does not begin where its left neighbour ends");
    if (!status && header->has_upper && format_key_compare(header->lower, header->upper) >= 0 &&
        !format_header_moves(header)) /* whose state that is has been looked at (format_header_decode) */
        status = tree_walk_tell(walk, node, "a node's fences are out of order");
    format_key_store(&walk->expected, header->upper);
    walk->known = true;
    return status;
}

/* *link becomes the next node's. */
static int node_visit(struct tree_walk *walk, uint8_t level, struct format_link *link)
{
    struct format_header header;
    const char *wrong;
    const gaddr node = link->address;
    struct tree_walk_place *place = place_of(walk, node);
    if (!place)
        return BANYAN_ENOMEM;
    int status;
    if (place->state != NOT_MET) {
        status = met_again(walk, level, place, *link);
        return status ? status : level_resume(walk, level, link);
    }
    status = node_read(walk, *link, level, walk->image, &header, &wrong);
    if (status)
        return status;
    if (wrong) {
        /* A sibling's link may be at fault rather than the node: then the level above leads to it yet. */
        size_t at = place->named ? place->named - 1u : walk->named_count;
        bool named_so = at < walk->named_count && format_link_equal(walk->named[at], *link);
        if (named_so || !place->named)
            place->state = BAD;
        if (named_so && !walk->leftovers && at >= walk->named_at)
            walk->named_at = at + 1;
        walk->damaged = walk->damaged || level;
        status = tree_walk_tell(walk, node, wrong);
        return status ? status : level_resume(walk, level, link);
    }
    place->state = MET;
    status = named_match(walk, place, *link);
    if (!status)
        status = fences_check(walk, node, &header);
    if (status)
        return status;
    *link = header.sibling;
    node_count(walk, node, level, &header);
    return level ? internal_check(walk, node, &header) : tree_walk_leaf(walk, node, &header);
}

static int level_walk(struct tree_walk *walk, uint8_t level)
{
    struct format_link link = walk->named[0];
    walk->named_at = 0;
    walk->resumed = walk->leftovers = walk->damaged = false;
    walk->known = !walk->damaged_above;
    format_key_store(&walk->expected, format_key_least(&walk->tree->layout));
    int status = 0;
    while (!status) {
        while (!status && link.address != GADDR_NULL)
            status = node_visit(walk, level, &link);
        if (!walk->leftovers)
            walk->named_at = 0;
        walk->leftovers = true;
        if (!status)
            status = level_resume(walk, level, &link);
        if (status || link.address == GADDR_NULL)
            break;
        status = tree_walk_tell(walk, link.address, "a live node is not among its level's siblings");
    }
    return status;
}

/* ---- all of it ---- */

static int walk_begin(struct tree_walk *walk, struct format_link root)
{
    uint32_t leaf = node_bytes(walk, 0), internal = node_bytes(walk, 1),
             bytes = leaf > internal ? leaf : internal;
    struct tree_walk_place *place = place_of(walk, root.address);
    walk->image = aligned_alloc(64, bytes);
    walk->aside = aligned_alloc(64, bytes);
    walk->named = malloc(sizeof *walk->named);
    if (!walk->image || !walk->aside || !walk->named || !place)
        return pool_fail_memory(&walk->session->pool);
    walk->named[walk->named_count++] = root;
    place->named = 1;
    return 0;
}

static int walk_levels(struct tree_walk *walk, uint8_t level)
{
    for (;; level--) {
        gaddr first = walk->named[0].address;
        int status = level_walk(walk, level);
        if (status || !level)
            return status;
        if (!walk->below_count) /* what is damaged has been told */
            return walk->damaged ? 0 : tree_walk_tell(walk, first, "a level names no nodes below it");
        free(walk->named);
        walk->named = walk->below;
        walk->named_count = walk->below_count;
        walk->below = NULL;
        walk->below_count = walk->below_capacity = 0;
        walk->damaged_above = walk->damaged_above || walk->damaged;
    }
}

int tree_check_all(struct tree_session *session, struct tree *tree, const struct tree_check_visitor *visitor,
                   struct tree_check_report *report)
{
    struct tree_walk walk = {.session = session, .tree = tree, .report = report, .visitor = visitor};
    struct format_link root;
    uint8_t level;
    memset(report, 0, sizeof *report);
    int status = tree_begin(session, tree);
    if (status)
        return status;
    tree_root_forget(tree);
    do
        status = tree_root_get(session, tree, &root, &level);
    while (tree_again(session, tree, &status));
    if (status == BANYAN_ECORRUPT && visitor->problem) { /* nothing else leads into the tree */
        report->problems++;
        visitor->problem(visitor->context, session->pool.error.text);
        return 0;
    }
    if (status)
        return status;
    report->height = level + 1u;
    status = walk_begin(&walk, root);
    if (!status)
        status = walk_levels(&walk, level);
    free(walk.places);
    free(walk.named);
    free(walk.below);
    free(walk.image);
    free(walk.aside);
    return status;
}

int tree_check(struct tree_session *session, struct tree *tree, struct tree_check_report *report,
               void (*visit_node)(void *, gaddr, uint32_t), void *context)
{
    const struct tree_check_visitor visitor = {.node = visit_node, .context = context};
    return tree_check_all(session, tree, &visitor, report);
}
