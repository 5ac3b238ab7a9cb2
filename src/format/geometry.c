/*
 * geometry.c - See geometry.h.
 */
#include "format/geometry.h"

#include <stdlib.h>
#include <string.h>

const char *const format_leaf_kind_names[] = {"hashed", "unsorted", "dense", NULL};

#define SUBTREE_FILL 0.7

static uint32_t round_up(uint32_t value, uint32_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static bool power_of_two(uint32_t value)
{
    return value && !(value & (value - 1));
}

static uint32_t header_size(const struct format_geometry *geometry)
{
    return round_up(FORMAT_HEADER_FIXED + 2u * geometry->key_bytes, 64);
}

static uint32_t entry_size(const struct format_geometry *geometry)
{
    return (geometry->key_kind == FORMAT_KEY_VARIABLE ? 3u : 0u) + geometry->key_bytes + 12u;
}

/* Bytes of an internal node with so many of the longest keys. */
static uint32_t internal_size(const struct format_geometry *geometry, uint32_t entries)
{
    return header_size(geometry) + FORMAT_BODY_CRC_BYTES + entries * entry_size(geometry);
}

/* An internal node should hold eight of the longest keys, and must hold four. If the length of keys is not
 * given, keys may be as long as that allows. */
static void complete_variable(struct format_geometry *geometry, uint32_t atomic_write)
{
    bool any_length = !geometry->key_bytes, any_size = !geometry->internal_bytes;
    if (any_length)
        geometry->key_bytes = FORMAT_KEY_MAX;
    if (!geometry->inline_key_bytes)
        geometry->inline_key_bytes = 24;
    if (any_size)
        geometry->internal_bytes = 1024;
    while (any_size && geometry->internal_bytes < internal_size(geometry, 8) &&
           geometry->internal_bytes < 4096 && 2 * geometry->internal_bytes <= atomic_write)
        geometry->internal_bytes *= 2;
    while (any_length && internal_size(geometry, 4) > geometry->internal_bytes)
        geometry->key_bytes--;
}

static double subtree_children(const struct format_layout *layout)
{
    return SUBTREE_FILL * layout->internal_entries;
}

double format_subtree_bytes(const struct format_layout *layout, uint8_t levels)
{
    double bytes = layout->geometry.leaf_bytes;
    while (levels-- > 1)
        bytes *= subtree_children(layout);
    return bytes;
}

/* The number of levels whose subtree is nearest to FORMAT_SUBTREE_BYTES, by ratio. */
static uint8_t subtree_levels(const struct format_layout *layout)
{
    const double children = subtree_children(layout), wanted = (double)FORMAT_SUBTREE_BYTES;
    uint8_t levels = 1;
    double bytes;
    /* One level more is nearer while that is no further above than this one is below. */
    while (bytes = format_subtree_bytes(layout, levels),
           levels < FORMAT_SUBTREE_LEVELS_MAX && bytes * bytes * children < wanted * wanted)
        levels++;
    return levels;
}

int format_geometry_complete(struct format_geometry *geometry, uint32_t atomic_write, struct error *error)
{
    bool variable = geometry->key_kind == FORMAT_KEY_VARIABLE, any_size = !geometry->internal_bytes;
    if (geometry->key_kind > FORMAT_KEY_VARIABLE)
        return error_set(error, BANYAN_EINVAL, "key kind %u is neither fixed nor variable",
                         geometry->key_kind);
    if (geometry->leaf_kind > FORMAT_LEAF_KIND_LAST)
        return error_set(error, BANYAN_EINVAL, "leaf kind %u is neither hashed nor unsorted nor dense",
                         geometry->leaf_kind);
    if (!geometry->leaf_bytes)
        geometry->leaf_bytes = variable ? 4096 : 1024;
    if (variable)
        complete_variable(geometry, atomic_write);
    if (!geometry->internal_bytes)
        geometry->internal_bytes = 1024;
    if (geometry->content > FORMAT_CONTENT_STORE)
        return error_set(error, BANYAN_EINVAL, "values of an unknown kind (content %u)", geometry->content);
    if (variable && geometry->key_bytes > geometry->inline_key_bytes &&
        geometry->inline_key_bytes < FORMAT_LONG_PART_BYTES)
        return error_set(error, BANYAN_EINVAL,
                         "slots must hold at least %u bytes of a key where keys may be longer, not %u",
                         FORMAT_LONG_PART_BYTES, geometry->inline_key_bytes);
    if (!variable && geometry->key_bytes < 8)
        return error_set(error, BANYAN_EINVAL, "fixed keys must be 8 to 255 bytes, not %u",
                         geometry->key_bytes);
    if (!power_of_two(geometry->leaf_bytes) || geometry->leaf_bytes < 512 || geometry->leaf_bytes > 65536)
        return error_set(error, BANYAN_EINVAL, "leaf size %u is not a power of two from 512 to 65536",
                         geometry->leaf_bytes);
    if (!power_of_two(geometry->internal_bytes) || geometry->internal_bytes < 512 ||
        geometry->internal_bytes > 4096)
        return error_set(error, BANYAN_EINVAL, "internal node size %u is not a power of two from 512 to 4096",
                         geometry->internal_bytes);
    if (any_size && internal_size(geometry, 4) > atomic_write)
        return error_set(
            error, BANYAN_EINVAL,
            "keys of %u bytes need internal nodes of %u bytes, and the fabric writes at most %u at "
            "once (RDMA: the path MTU): ask for shorter keys or use larger packets",
            geometry->key_bytes, internal_size(geometry, 4), atomic_write);
    if (geometry->internal_bytes > atomic_write)
        return error_set(
            error, BANYAN_EINVAL,
            "internal node size %u exceeds the fabric's atomic write of %u bytes (RDMA: the path "
            "MTU): ask for less or use larger packets",
            geometry->internal_bytes, atomic_write);
    if (geometry->subtree_levels > FORMAT_SUBTREE_LEVELS_MAX &&
        geometry->subtree_levels != FORMAT_SUBTREE_DEFAULT)
        return error_set(error, BANYAN_EINVAL, "a placed subtree has at most %u levels, not %u",
                         FORMAT_SUBTREE_LEVELS_MAX, geometry->subtree_levels);
    struct format_layout layout;
    int status = format_layout_init(&layout, geometry, error);
    if (status)
        return status;
    if (geometry->subtree_levels == FORMAT_SUBTREE_DEFAULT)
        geometry->subtree_levels = subtree_levels(&layout);
    format_layout_free(&layout);
    return 0;
}

static uint32_t leaf_room(const struct format_layout *layout)
{
    return layout->geometry.leaf_bytes - layout->header_bytes;
}

static uint32_t triple_size(const struct format_layout *layout, uint32_t slots)
{
    return FORMAT_TRIPLE_VERSION + slots * layout->slot_bytes;
}

/* How many slots fit into so many bytes as one triple. */
static uint32_t triple_fit(const struct format_layout *layout, uint32_t bytes)
{
    return (bytes - FORMAT_TRIPLE_VERSION) / layout->slot_bytes;
}

static void set_triples(struct format_layout *layout, uint32_t triples, uint32_t segment, uint32_t overflow)
{
    layout->triples = triples;
    layout->segment_slots = segment;
    layout->overflow_slots = overflow;
    layout->triple_slots = 2 * segment + overflow;
    layout->triple_bytes = triple_size(layout, layout->triple_slots);
}

/* One triple, which has all the room there is. */
static void choose_one(struct format_layout *layout)
{
    uint32_t fit = triple_fit(layout, leaf_room(layout));
    set_triples(layout, 1, fit / 3, fit - 2 * (fit / 3));
}

/*
 * Fixed keys: about 100 bytes a segment, so that the papers' 16-byte entries get five slots in each and a
 * point read of 204 bytes. Variable keys: twice that, and a larger overflow. Their leaves are larger too, and
 * the more buckets a leaf has, the sooner one of them is full: with three slots of 40 bytes in each segment a
 * leaf of 4 KiB would have to be split at 0.59, with five and seven it is at 0.77.
 */
static void choose_segments(struct format_layout *layout)
{
    bool variable = layout->geometry.key_kind == FORMAT_KEY_VARIABLE;
    uint32_t room = leaf_room(layout), target = variable ? 200 : 100;
    uint32_t slots = (target + layout->slot_bytes / 2) / layout->slot_bytes, overflow;
    slots = slots < 3 ? 3 : slots > 8 ? 8 : slots;
    while (overflow = variable ? slots + slots / 2 : slots,
           slots > 1 && triple_size(layout, 2 * slots + overflow) > room)
        slots--;
    set_triples(layout, room / triple_size(layout, 2 * slots + overflow), slots, overflow);
    if (layout->triples == 1)
        choose_one(layout);
}

/* One triple whose buckets have no slots of their own: the overflow that they share is the leaf, so they are
 * one bucket, and every key's. */
static void choose_unsorted(struct format_layout *layout)
{
    set_triples(layout, 1, 0, triple_fit(layout, leaf_room(layout)));
    layout->buckets = 1;
}

static void choose_hashed(struct format_layout *layout)
{
    choose_segments(layout);
    if (layout->triples > FORMAT_BUCKETS_MAX / 2)
        layout->triples = FORMAT_BUCKETS_MAX / 2;
    layout->buckets = 2 * layout->triples;
}

/*
 * Fewer and larger triples: the more keys a bucket is for, the nearer to its mean is their number when the
 * leaf is nearly full. As many triples of 23 to 29 slots as leave the fewest slots unused; of two such
 * numbers the smaller one. The overflow is small, since a point read fetches it beside a segment. A leaf that
 * is too small for two such triples is one, as a hashed leaf of that size is.
 */
#define DENSE_OVERFLOW    5u
#define DENSE_SEGMENT_MIN 9u
#define DENSE_SEGMENT_MAX 12u

static void choose_dense(struct format_layout *layout)
{
    const uint32_t room = leaf_room(layout);
    choose_one(layout);
    uint32_t most = layout->triple_slots / (2 * DENSE_SEGMENT_MIN + DENSE_OVERFLOW), best = 0;
    if (most > FORMAT_BUCKETS_MAX / 2)
        most = FORMAT_BUCKETS_MAX / 2;
    for (uint32_t triples = 2; triples <= most; triples++) {
        uint32_t fit = triple_fit(layout, room / triples);
        uint32_t segment = fit < DENSE_OVERFLOW ? 0 : (fit - DENSE_OVERFLOW) / 2;
        if (segment > DENSE_SEGMENT_MAX)
            segment = DENSE_SEGMENT_MAX;
        if (segment < DENSE_SEGMENT_MIN || triples * (2 * segment + DENSE_OVERFLOW) <= best)
            continue;
        set_triples(layout, triples, segment, DENSE_OVERFLOW);
        best = triples * layout->triple_slots;
    }
    layout->buckets = 2 * layout->triples;
}

int format_layout_init(struct format_layout *layout, const struct format_geometry *geometry,
                       struct error *error)
{
    memset(layout, 0, sizeof *layout);
    layout->geometry = *geometry;
    bool variable = geometry->key_kind == FORMAT_KEY_VARIABLE;
    layout->long_keys = variable && geometry->key_bytes > geometry->inline_key_bytes;
    layout->header_bytes = header_size(geometry);
    layout->value_offset = 4 + (variable ? 2u + geometry->inline_key_bytes : geometry->key_bytes);
    layout->slot_bytes = round_up(layout->value_offset + geometry->value_variable + geometry->value_bytes, 4);
    layout->entry_bytes = entry_size(geometry);
    if (layout->header_bytes + FORMAT_TRIPLE_VERSION + 4 * layout->slot_bytes > geometry->leaf_bytes)
        return error_set(
            error, BANYAN_EINVAL,
            "leaf size %u cannot hold four slots of %u bytes and a header of %u: choose a larger leaf",
            geometry->leaf_bytes, layout->slot_bytes, layout->header_bytes);
    if (internal_size(geometry, 4) > geometry->internal_bytes)
        return error_set(
            error, BANYAN_EINVAL,
            "internal node size %u cannot hold four entries of %u bytes and a header of %u: choose a "
            "larger internal node or shorter keys",
            geometry->internal_bytes, layout->entry_bytes, layout->header_bytes);
    if (geometry->leaf_kind == FORMAT_LEAF_UNSORTED)
        choose_unsorted(layout);
    else if (geometry->leaf_kind == FORMAT_LEAF_DENSE)
        choose_dense(layout);
    else
        choose_hashed(layout);
    layout->slots = layout->triples * layout->triple_slots;
    layout->used_bytes = layout->header_bytes + layout->triples * layout->triple_bytes;
    layout->bucket_slots = layout->segment_slots + layout->overflow_slots;
    layout->bucket_bytes = FORMAT_TRIPLE_VERSION + layout->bucket_slots * layout->slot_bytes;
    layout->internal_entries =
        (geometry->internal_bytes - layout->header_bytes - FORMAT_BODY_CRC_BYTES) / layout->entry_bytes;
    layout->slot_offset = calloc(layout->slots, sizeof *layout->slot_offset);
    if (!layout->slot_offset)
        return error_set(error, BANYAN_ENOMEM, "no memory for a layout of %u slots", layout->slots);
    for (uint32_t i = 0; i < layout->slots; i++) {
        uint32_t triple = i / layout->triple_slots, within = i % layout->triple_slots;
        layout->slot_offset[i] = layout->header_bytes + triple * layout->triple_bytes +
                                 within * layout->slot_bytes +
                                 (within >= layout->segment_slots ? FORMAT_TRIPLE_VERSION : 0);
    }
    return 0;
}

void format_layout_free(struct format_layout *layout)
{
    free(layout->slot_offset);
    layout->slot_offset = NULL;
}

void format_geometry_shape(const struct format_geometry *geometry, struct format_geometry_shape *shape)
{
    struct format_layout layout;
    memset(shape, 0, sizeof *shape);
    if (format_layout_init(&layout, geometry, NULL))
        return;
    *shape = (struct format_geometry_shape){layout.slot_bytes, layout.slots, layout.bucket_bytes,
                                            layout.header_bytes, layout.internal_entries};
    format_layout_free(&layout);
}
