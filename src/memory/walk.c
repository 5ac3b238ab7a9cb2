/* walk.c - see walk.h. */
#include "memory/walk.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format/internal_node.h"
#include "format/verdict.h"
#include "memory/request.h"
#include "memory/walker.h"

/* How often a node is read that does not prove itself. A split's list is carried out in some microseconds. */
#define TRIES 8u
/* Siblings in a row: more than that is a chain that its readers have to mend (posting separators). */
#define SIDEWAYS_MAX 16u

/* One way down. */
struct way {
    struct format_key key;
    bool before; /* what lies just below the key is looked for */
    bool path;   /* its nodes are wanted */
    struct format_link link;
    uint8_t level;
    uint32_t entry, entries; /* of the last inner node, which is still in walker->image; entries 0: none */
};

/* ---- layouts ---- */

static bool geometry_sound(const struct memory_walk_geometry *asked, struct format_geometry *geometry)
{
    struct error error;
    if (asked->value_variable > 1 || asked->reserved)
        return false;
    *geometry = (struct format_geometry){.leaf_bytes = asked->leaf_bytes,
                                         .internal_bytes = asked->internal_bytes,
                                         .key_kind = asked->key_kind,
                                         .key_bytes = asked->key_bytes,
                                         .inline_key_bytes = asked->inline_key_bytes,
                                         .value_bytes = asked->value_bytes,
                                         .value_variable = asked->value_variable,
                                         .content = asked->content,
                                         .leaf_kind = asked->leaf_kind};
    struct format_geometry whole = *geometry;
    /* No node is longer than the largest that any fabric writes at once. An incomplete one is not ours. */
    return !format_geometry_complete(&whole, 4096, &error) && whole.leaf_bytes == geometry->leaf_bytes &&
           whole.internal_bytes == geometry->internal_bytes && whole.key_bytes == geometry->key_bytes &&
           whole.inline_key_bytes == geometry->inline_key_bytes;
}

static int find_layout(struct memory_walker *walker, const struct memory_walk_geometry *asked)
{
    struct format_geometry geometry;
    struct error error;
    for (uint32_t i = 0; i < WALKER_LAYOUTS; i++) {
        const struct walker_layout *known = &walker->layouts[i];
        if (!known->layout.slot_offset || memcmp(&known->geometry, asked, sizeof *asked) != 0)
            continue;
        walker->layout = &known->layout;
        return BANYAN_OK;
    }
    if (!geometry_sound(asked, &geometry))
        return BANYAN_EINVAL;
    struct walker_layout *known = &walker->layouts[walker->next_layout];
    format_layout_free(&known->layout);
    if (format_layout_init(&known->layout, &geometry, &error))
        return BANYAN_ENOMEM;
    known->geometry = *asked;
    walker->next_layout = (walker->next_layout + 1) % WALKER_LAYOUTS;
    walker->layout = &known->layout;
    return BANYAN_OK;
}

/* ---- reading nodes ---- */

/* What a walk reads of it: the node's own bytes, which others may be writing, or older ones (walk.h). */
static const uint8_t *node_read(const struct memory_walker *walker, gaddr address, uint32_t bytes)
{
    const uint8_t *now = walker_node(walker, address, bytes);
    const uint8_t *aged =
        now && walker->aged ? walker->aged(walker->aged_context, address, now, bytes) : NULL;
    return aged ? aged : now;
}

/* Between tries: a writer's list may be under way. */
static void pause(uint32_t try)
{
    for (uint32_t i = 0; i < 8u << try; i++)
        atomic_pause();
}

/* Acquire: what is read after a node is at least as new as what this node said (as behind a READ). */
static void copy(uint8_t *to, const uint8_t *shared, uint32_t bytes)
{
    atomic_copy_from(to, shared, bytes);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* ---- inner nodes ---- */

/* What a sound header means for the way; 0: the node is the way's. */
static enum memory_walk_outcome inner_judge(const struct memory_walker *walker, const struct way *way,
                                            const struct format_header *header)
{
    if (header->tag != way->link.tag || header->index != walker->index || header->state == FORMAT_NODE_DEAD)
        return MEMORY_WALK_STALE;
    return header->level != way->level ? MEMORY_WALK_ASTRAY : 0;
}

/* Reads the way's node into the image: 0, or why the walk ends here. */
static enum memory_walk_outcome inner_read(struct memory_walker *walker, const struct way *way,
                                           struct format_header *header)
{
    const struct format_layout *layout = walker->layout;
    const uint32_t bytes = layout->geometry.internal_bytes;
    const uint8_t *shared = node_read(walker, way->link.address, bytes);
    if (!shared)
        return MEMORY_WALK_CORRUPT;
    for (uint32_t try = 0; try < TRIES; try++) {
        walker_visit(walker);
        copy(walker->image, shared, bytes);
        if (!format_internal_valid(layout, walker->image)) {
            pause(try);
            continue;
        }
        if (!format_header_decode(layout, walker->image, header))
            return MEMORY_WALK_CORRUPT;
        enum memory_walk_outcome outcome = inner_judge(walker, way, header);
        if (!outcome && !format_internal_decode(layout, walker->image, header, walker->entries))
            return MEMORY_WALK_CORRUPT;
        return outcome;
    }
    /* Something else, a leaf perhaps, lies there whole. */
    if (format_header_valid(layout, walker->image) && format_header_decode(layout, walker->image, header) &&
        header->tag != way->link.tag)
        return MEMORY_WALK_STALE;
    return MEMORY_WALK_UNPROVEN;
}

/* -1: what is looked for lies left of the node, 1: right of it. */
static int side(const struct way *way, const struct format_header *header)
{
    int lower = format_key_compare(way->key, header->lower);
    if (way->before ? lower <= 0 : lower < 0)
        return -1;
    if (!header->has_upper)
        return 0;
    int upper = format_key_compare(way->key, header->upper);
    return way->before ? upper > 0 : upper >= 0;
}

/* The last entry whose key is at most the way's, or with `before` less than it. The first one always is. */
static uint32_t search(const struct memory_walker *walker, const struct way *way, uint32_t entries)
{
    uint32_t low = 0, high = entries;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        int order = format_key_compare(walker->entries[middle].key, way->key);
        if (way->before ? order < 0 : order <= 0)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- the reply ---- */

static void put_node(struct memory_walker *walker, struct format_link link, uint8_t level,
                     const uint8_t *image, uint32_t bytes)
{
    const struct memory_walk_node node = {
        .address = link.address, .tag = link.tag, .bytes = bytes, .level = level};
    uint8_t *to = walker->nodes + walker->nodes_used;
    walker->full |= sizeof node + bytes > walker->nodes_capacity - walker->nodes_used;
    if (walker->full)
        return;
    memcpy(to, &node, sizeof node);
    memcpy(to + sizeof node, image, bytes);
    walker->nodes_used += sizeof node + bytes;
    walker->node_count++;
}

static bool put_answer(struct memory_walker *walker, size_t at, enum memory_walk_outcome outcome,
                       const struct way *way, struct format_key value)
{
    const struct memory_walk_answer answer = {.address = way->link.address,
                                              .tag = way->link.tag,
                                              .outcome = (uint8_t)outcome,
                                              .level = way->level,
                                              .value_length = (uint8_t)value.length};
    walker_count(&walker->counts.answered, outcome <= MEMORY_WALK_ARRIVED);
    walker_count(&walker->counts.elsewhere, outcome == MEMORY_WALK_ELSEWHERE);
    memcpy(walker->reply + at, &answer, sizeof answer);
    return walker_put(walker, value.bytes, value.length);
}

/* ---- down ---- */

/* Follows inner nodes to the given level: 0 when the way's link is of that level and of this memory node. */
static enum memory_walk_outcome descend(struct memory_walker *walker, struct way *way, uint8_t down_to)
{
    uint32_t sideways = 0;
    for (;;) {
        struct format_header header;
        if (gaddr_node(way->link.address) != walker->number)
            return MEMORY_WALK_ELSEWHERE;
        if (way->level == down_to)
            return 0;
        enum memory_walk_outcome outcome = inner_read(walker, way, &header);
        if (outcome)
            return outcome;
        int where = side(way, &header);
        if (where < 0)
            return MEMORY_WALK_ASTRAY;
        if (way->path)
            put_node(walker, way->link, way->level, walker->image, walker->layout->geometry.internal_bytes);
        if (where > 0) {
            way->link = header.sibling;
            way->entries = 0;
            if (++sideways > SIDEWAYS_MAX)
                return MEMORY_WALK_FAR;
            continue;
        }
        way->entries = header.count;
        way->entry = search(walker, way, header.count);
        if (walker->entries[way->entry].link.address == GADDR_NULL)
            return MEMORY_WALK_GAP;
        way->link = walker->entries[way->entry].link;
        way->level--;
        sideways = 0;
    }
}

/* ---- a key in its leaf ---- */

/* One look at the leaf. */
static enum format_verdict point_look(struct memory_walker *walker, const struct format_point *point,
                                      const uint8_t *shared, struct format_header *header,
                                      struct format_slot *slot)
{
    const struct format_bucket *bucket = &point->bucket;
    walker_visit(walker);
    copy(walker->image + bucket->offset, shared + bucket->offset, bucket->bytes);
    enum format_verdict verdict =
        format_point_verdict(point, walker->image, FORMAT_SEEN_BUCKET, header, slot);
    if (verdict == FORMAT_HIT)
        return verdict;
    format_header_copy(walker->layout, walker->image, shared);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* as in copy */
    return format_point_verdict(point, walker->image, FORMAT_SEEN_HEADER, header, slot);
}

enum memory_walk_outcome walker_outcome(enum format_verdict verdict)
{
    switch (verdict) {
    case FORMAT_LIVE:
        return 0;
    case FORMAT_HIT:
        return MEMORY_WALK_HIT;
    case FORMAT_MISS:
        return MEMORY_WALK_MISS;
    case FORMAT_OTHER:
    case FORMAT_DEAD:
        return MEMORY_WALK_STALE;
    case FORMAT_LEVEL:
    case FORMAT_LEFT:
    case FORMAT_RIGHT:
        return MEMORY_WALK_ASTRAY;
    case FORMAT_MALFORMED:
        return MEMORY_WALK_CORRUPT;
    default: /* torn, or marked (R3, R7), in all tries */
        return MEMORY_WALK_UNPROVEN;
    }
}

/* 0: go on at the sibling, which is the way's link now. */
static enum memory_walk_outcome point_follow(struct way *way, enum format_verdict verdict,
                                             const struct format_header *header)
{
    if (verdict != FORMAT_RIGHT)
        return walker_outcome(verdict);
    way->link = header->sibling;
    return 0;
}

static bool again(enum format_verdict verdict)
{
    return verdict == FORMAT_TORN || verdict == FORMAT_SPLITTING || verdict == FORMAT_MERGING ||
           verdict == FORMAT_UNPROVEN;
}

/* The way has come to a leaf of this memory node. */
static enum memory_walk_outcome find(struct memory_walker *walker, struct way *way, struct format_slot *slot)
{
    const struct format_layout *layout = walker->layout;
    for (uint32_t sideways = 0; sideways <= SIDEWAYS_MAX; sideways++) {
        if (gaddr_node(way->link.address) != walker->number)
            return MEMORY_WALK_ELSEWHERE;
        const uint8_t *shared = node_read(walker, way->link.address, layout->geometry.leaf_bytes);
        if (!shared)
            return MEMORY_WALK_CORRUPT;
        struct format_point point;
        struct format_header header;
        format_point_set(&point, layout, way->link, walker->index, way->key);
        enum format_verdict verdict = point_look(walker, &point, shared, &header, slot);
        for (uint32_t try = 0; try < TRIES && again(verdict); try++) {
            pause(try);
            verdict = point_look(walker, &point, shared, &header, slot);
        }
        enum memory_walk_outcome outcome = point_follow(way, verdict, &header);
        if (outcome)
            return outcome;
    }
    return MEMORY_WALK_FAR;
}

/* ---- leaves for a scan ---- */

/* A copy that a scan can deliver (R5), or the last of some tries: the scan judges it itself. */
static void leaf_read(struct memory_walker *walker, struct format_link link, const uint8_t *shared)
{
    const struct format_layout *layout = walker->layout;
    struct format_header header;
    for (uint32_t try = 0; try < TRIES; try++) {
        walker_visit(walker);
        copy(walker->image, shared, layout->used_bytes);
        enum format_verdict verdict =
            format_node_verdict(layout, walker->image, link, walker->index, 0, &header);
        if (!again(verdict) && verdict != FORMAT_LIVE && verdict != FORMAT_FROZEN)
            return;
        if (!again(verdict) && format_slots_valid(layout, walker->image, 0, layout->slots,
                                                  format_slot_seed(header.tag, header.version), header.lower))
            return;
        pause(try);
    }
}

/* The leaves from the way's on that its parent names, as far as they lie here. The parent's entries are keys
 * in the image, which the leaves overwrite, but of links there are copies. */
static void put_leaves(struct memory_walker *walker, const struct way *way, uint32_t wanted)
{
    const uint32_t leaf_bytes = walker->layout->geometry.leaf_bytes, used = walker->layout->used_bytes;
    uint32_t entry = way->entry;
    for (uint32_t i = 0; i < wanted && !walker->full; i++) {
        const struct format_link link = way->entries ? walker->entries[entry].link : way->link;
        const uint8_t *shared = link.address != GADDR_NULL && gaddr_node(link.address) == walker->number
                                    ? node_read(walker, link.address, leaf_bytes)
                                    : NULL;
        if (!shared)
            return;
        leaf_read(walker, link, shared);
        put_node(walker, link, 0, walker->image, used);
        if (way->before ? entry == 0 : entry + 1 >= way->entries)
            return;
        entry = way->before ? entry - 1 : entry + 1;
    }
}

/* ---- requests ---- */

static bool take_way(const struct memory_walker *walker, const struct memory_walk_request *request,
                     struct walker_cursor *cursor, struct way *way)
{
    const struct format_geometry *geometry = &walker->layout->geometry;
    struct memory_walk_start start;
    if (!walker_take(cursor, &start, sizeof start) || start.reserved || cursor->left < start.key_length ||
        start.level > FORMAT_LEVEL_MAX || gaddr_node(start.address) != walker->number ||
        !walker_node(walker, start.address, start.level ? geometry->internal_bytes : geometry->leaf_bytes))
        return false;
    *way = (struct way){.key = {cursor->bytes, start.key_length},
                        .link = {.address = start.address, .tag = start.tag},
                        .level = start.level};
    cursor->bytes += start.key_length;
    cursor->left -= start.key_length;
    if (request->kind == MEMORY_WALK_FETCH)
        return start.level >= request->down_to;
    return geometry->key_kind == FORMAT_KEY_FIXED ? start.key_length == geometry->key_bytes
                                                  : start.key_length <= geometry->key_bytes;
}

static bool request_sound(const struct memory_walk_request *request)
{
    const bool find = request->kind != MEMORY_WALK_FETCH;
    const uint32_t most = find && request->kind != MEMORY_EXCHANGE ? MEMORY_WALK_KEYS_MAX : 1;
    return request->count && request->count <= most && request->path <= 1 && request->before <= 1 &&
           request->down_to <= FORMAT_LEVEL_MAX && request->leaves <= MEMORY_WALK_LEAVES &&
           !request->reserved && (!find || (!request->down_to && !request->leaves && !request->before)) &&
           (!request->leaves || !request->down_to);
}

static int walk_one(struct memory_walker *walker, const struct memory_walk_request *request, struct way *way)
{
    const bool fetch = request->kind == MEMORY_WALK_FETCH;
    const struct format_key none = {NULL, 0};
    struct format_slot slot = {0};
    const size_t at = walker->used;
    const struct memory_walk_answer room = {0};
    if (!walker_put(walker, &room, sizeof room))
        return BANYAN_EINVAL;
    enum memory_walk_outcome outcome = descend(walker, way, request->down_to);
    if (!outcome && fetch) {
        outcome = MEMORY_WALK_ARRIVED;
        put_leaves(walker, way, request->leaves);
    }
    if (!outcome)
        outcome = find(walker, way, &slot);
    return put_answer(walker, at, outcome, way, outcome == MEMORY_WALK_HIT ? slot.value : none)
               ? BANYAN_OK
               : BANYAN_EINVAL;
}

/* Nothing of an earlier walk is left; nodes have the room that answers leave. */
static int begin(struct memory_walker *walker, const struct memory_walk_request *request, void *reply,
                 size_t capacity)
{
    const size_t answers = sizeof(struct memory_walk_reply) +
                           request->count * (sizeof(struct memory_walk_answer) + FORMAT_VALUE_MAX);
    if (capacity < answers)
        return BANYAN_EINVAL;
    capacity = capacity < MEMORY_WALK_REPLY_MAX ? capacity : MEMORY_WALK_REPLY_MAX;
    walker->reply = reply;
    walker->capacity = capacity;
    walker->used = sizeof(struct memory_walk_reply);
    walker->nodes_capacity = capacity - answers;
    walker->nodes_used = walker->node_count = 0;
    walker->full = false;
    walker->visited = 0;
    walker->index = request->index;
    spinlock_lock(&walker->node->lock);
    walker->number = walker->node->number;
    spinlock_unlock(&walker->node->lock);
    return find_layout(walker, &request->geometry);
}

static int walk_all(struct memory_walker *walker, const struct memory_walk_request *request,
                    struct walker_cursor *cursor)
{
    const bool fetch = request->kind == MEMORY_WALK_FETCH;
    int status = BANYAN_OK;
    for (uint32_t i = 0; i < request->count && !status; i++) {
        struct way way;
        if (!take_way(walker, request, cursor, &way))
            return BANYAN_EINVAL;
        way.before = request->before;
        way.path = i == 0 && (fetch || request->path);
        status = walk_one(walker, request, &way);
    }
    return !status && cursor->left ? BANYAN_EINVAL : status;
}

static int walk(struct memory_walker *walker, struct walker_cursor *cursor, void *reply, size_t capacity,
                size_t *reply_length)
{
    struct memory_walk_request request;
    if (!walker_take(cursor, &request, sizeof request) ||
        (request.kind != MEMORY_WALK_FIND && request.kind != MEMORY_WALK_FETCH &&
         request.kind != MEMORY_MERGE && request.kind != MEMORY_EXCHANGE) ||
        !request_sound(&request))
        return BANYAN_EINVAL;
    const bool merge = request.kind == MEMORY_MERGE, writes = merge || request.kind == MEMORY_EXCHANGE;
    int status = begin(walker, &request, reply, capacity);
    if (!status)
        status = writes ? walker_merge(walker, &request, cursor) : walk_all(walker, &request, cursor);
    if (status)
        return status;
    const struct memory_walk_reply head = {
        .answers = request.count, .nodes = walker->node_count, .visited = walker->visited};
    memcpy(walker->reply, &head, sizeof head);
    walker_put(walker, walker->nodes, walker->nodes_used);
    *reply_length = walker->used;
    walker_count(merge ? &walker->counts.merges : &walker->counts.walks, 1);
    walker_count(merge ? &walker->counts.entries : &walker->counts.keys, request.count);
    walker_count(&walker->counts.nodes, walker->visited);
    return BANYAN_OK;
}

int memory_walk(struct memory_walker *walker, const void *request, size_t length, void *reply,
                size_t capacity, size_t *reply_length)
{
    struct walker_cursor cursor = {.bytes = request, .left = length};
    *reply_length = 0;
    int status = walk(walker, &cursor, reply, capacity, reply_length);
    walker_count(&walker->counts.refused, status == BANYAN_EINVAL);
    return status;
}

/* ---- life ---- */

struct memory_walker *memory_walker_create(struct memory_node *node)
{
    struct memory_walker *walker = aligned_alloc(64, (sizeof *walker + 63) / 64 * 64);
    if (!walker)
        return NULL;
    memset(walker, 0, sizeof *walker);
    walker->node = node;
    return walker;
}

void memory_walker_destroy(struct memory_walker *walker)
{
    for (uint32_t i = 0; walker && i < WALKER_LAYOUTS; i++)
        format_layout_free(&walker->layouts[i].layout);
    free(walker);
}

void memory_walker_writes(struct memory_walker *walker, struct wire_staging *staging)
{
    walker->writes = true;
    walker->staging = staging;
}

const struct memory_walk_counts *memory_walker_counts(const struct memory_walker *walker)
{
    return &walker->counts;
}

void memory_walker_age(struct memory_walker *walker, memory_walk_aged *aged, void *context)
{
    walker->aged = aged;
    walker->aged_context = context;
}

void memory_walker_between(struct memory_walker *walker, void (*between)(void *context), void *context)
{
    walker->between = between;
    walker->between_context = context;
}
