/*
 * layout.c - See layout.h. Pure computation on private copies: no round trip; only format_layout_init
 * allocates.
 */
#include "base/atomic.h"
#include "format/layout.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/crc32c.h"

/* ---- keys -----------------------------------------------------------------------------------------------
 */

int format_key_compare(struct format_key a, struct format_key b)
{
    uint32_t shorter = a.length < b.length ? a.length : b.length;
    int order = shorter ? memcmp(a.bytes, b.bytes, shorter) : 0;
    if (order)
        return order;
    return a.length < b.length ? -1 : a.length > b.length;
}

uint32_t format_key_common(struct format_key a, struct format_key b)
{
    uint32_t shorter = a.length < b.length ? a.length : b.length;
    uint32_t common = 0;
    while (common < shorter && a.bytes[common] == b.bytes[common])
        common++;
    return common;
}

void format_key_store(struct format_key_copy *copy, struct format_key key)
{
    assert(key.length <= FORMAT_KEY_MAX);
    copy->length = (uint16_t)key.length;
    if (key.length)
        memmove(copy->bytes, key.bytes, key.length);
}

uint64_t format_key_head(struct format_key key)
{
    uint64_t word = 0;
    if (key.length >= sizeof word)
        memcpy(&word, key.bytes, sizeof word);
    else if (key.length)
        memcpy(&word, key.bytes, key.length);
    return __builtin_bswap64(word);
}

uint64_t format_key_hash(struct format_key key)
{
    return XXH3_64bits(key.bytes, key.length);
}

/* ---- geometry ---- */

#define HEAD_BYTES 4u

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

/* An internal node should hold eight of the longest keys, and must hold four. Where nothing is asked for,
 * keys are as long as that allows. */
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

int format_geometry_complete(struct format_geometry *geometry, uint32_t atomic_write, struct error *error)
{
    bool variable = geometry->key_kind == FORMAT_KEY_VARIABLE, any_size = !geometry->internal_bytes;
    if (geometry->key_kind > FORMAT_KEY_VARIABLE)
        return error_set(error, BANYAN_EINVAL, "key kind %u is neither fixed nor variable",
                         geometry->key_kind);
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
    struct format_layout layout;
    int status = format_layout_init(&layout, geometry, error);
    if (!status)
        format_layout_free(&layout);
    return status;
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
    uint32_t room = layout->geometry.leaf_bytes - layout->header_bytes, target = variable ? 200 : 100;
    uint32_t slots = (target + layout->slot_bytes / 2) / layout->slot_bytes, overflow;
    slots = slots < 3 ? 3 : slots > 8 ? 8 : slots;
    while (overflow = variable ? slots + slots / 2 : slots,
           slots > 1 && HEAD_BYTES + (2 * slots + overflow) * layout->slot_bytes > room)
        slots--;
    layout->segment_slots = slots;
    layout->overflow_slots = overflow;
    layout->triple_slots = 2 * slots + overflow;
    layout->triple_bytes = HEAD_BYTES + layout->triple_slots * layout->slot_bytes;
    layout->triples = room / layout->triple_bytes;
    if (layout->triples == 1) { /* one triple: give it all the room there is */
        uint32_t fit = (room - HEAD_BYTES) / layout->slot_bytes;
        layout->segment_slots = fit / 3;
        layout->overflow_slots = fit - 2 * layout->segment_slots;
        layout->triple_slots = fit;
        layout->triple_bytes = HEAD_BYTES + fit * layout->slot_bytes;
    }
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
    if (layout->header_bytes + HEAD_BYTES + 4 * layout->slot_bytes > geometry->leaf_bytes)
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
    choose_segments(layout);
    if (layout->triples > FORMAT_BUCKETS_MAX / 2)
        layout->triples = FORMAT_BUCKETS_MAX / 2;
    layout->slots = layout->triples * layout->triple_slots;
    layout->buckets = 2 * layout->triples;
    layout->bucket_slots = layout->segment_slots + layout->overflow_slots;
    layout->bucket_bytes = HEAD_BYTES + layout->bucket_slots * layout->slot_bytes;
    layout->internal_entries =
        (geometry->internal_bytes - layout->header_bytes - FORMAT_BODY_CRC_BYTES) / layout->entry_bytes;
    layout->slot_offset = calloc(layout->slots, sizeof *layout->slot_offset);
    if (!layout->slot_offset)
        return error_set(error, BANYAN_ENOMEM, "no memory for a layout of %u slots", layout->slots);
    for (uint32_t i = 0; i < layout->slots; i++) {
        uint32_t triple = i / layout->triple_slots, within = i % layout->triple_slots;
        layout->slot_offset[i] = layout->header_bytes + triple * layout->triple_bytes +
                                 within * layout->slot_bytes +
                                 (within >= layout->segment_slots ? HEAD_BYTES : 0);
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

/* ---- header ---- */

#define FLAG_UPPER 1u

static bool keys_fixed(const struct format_layout *layout)
{
    return layout->geometry.key_kind == FORMAT_KEY_FIXED;
}

/* Bytes of the header that mean something; more than there are if its lengths are impossible. */
static uint32_t header_used(const struct format_layout *layout, const uint8_t *image)
{
    return keys_fixed(layout) ? layout->header_bytes : FORMAT_HEADER_FIXED + image[28] + image[29];
}

/* Fixed keys have the upper fence at a place of its own, variable ones right behind the lower. */
static uint32_t upper_offset(const struct format_layout *layout, uint32_t lower_length)
{
    return FORMAT_HEADER_FIXED + (keys_fixed(layout) ? layout->geometry.key_bytes : lower_length);
}

void format_header_settle(const struct format_layout *layout, const struct fabric_command *command)
{
    uint8_t *to = command->read.buffer;
    const uint8_t *from = command->read.data;
    if (from == to)
        return;
    if (keys_fixed(layout)) {
        atomic_copy_from(to, from, layout->header_bytes);
        return;
    }
    atomic_copy_from(to, from, FORMAT_HEADER_FIXED);
    uint32_t used = header_used(layout, to);
    if (used > FORMAT_HEADER_FIXED && used <= layout->header_bytes)
        atomic_copy_from(to + FORMAT_HEADER_FIXED, from + FORMAT_HEADER_FIXED, used - FORMAT_HEADER_FIXED);
}

bool format_header_decode(const struct format_layout *layout, const uint8_t *image,
                          struct format_header *header)
{
    uint32_t room = layout->geometry.key_bytes;
    memcpy(&header->tag, image + 4, 4);
    memcpy(&header->version, image + 8, 2);
    header->level = image[10];
    header->state = image[11];
    memcpy(&header->index, image + 12, 2);
    header->has_upper = image[15] & FLAG_UPPER;
    memcpy(&header->sibling.address, image + 16, 8);
    memcpy(&header->sibling.tag, image + 24, 4);
    header->lower = (struct format_key){image + FORMAT_HEADER_FIXED, image[28]};
    header->upper = (struct format_key){image + upper_offset(layout, image[28]), image[29]};
    memcpy(&header->count, image + 30, 2);
    if (header->state < FORMAT_NODE_LIVE || header->state > FORMAT_NODE_DEAD ||
        header->level > FORMAT_LEVEL_MAX || header->lower.length > room || header->upper.length > room)
        return false;
    /* Only the dead root of an index that was bulk-loaded names a successor without an upper fence (bulk.c).
     */
    if (header->has_upper != (header->sibling.address != GADDR_NULL) && header->state != FORMAT_NODE_DEAD)
        return false;
    return !header->has_upper || format_key_compare(header->lower, header->upper) < 0;
}

bool format_header_valid(const struct format_layout *layout, const uint8_t *image)
{
    uint32_t crc, used = header_used(layout, image);
    memcpy(&crc, image, 4);
    return used <= layout->header_bytes && crc == crc32c(0, image + 4, used - 4);
}

/* Over the header's crc too: a header and a body of different writes never pass together. And over what the
 * header leaves unused. The header must be valid, or just encoded. */
static uint32_t body_crc(const struct format_layout *layout, const uint8_t *image)
{
    uint32_t start = layout->header_bytes + FORMAT_BODY_CRC_BYTES, used = header_used(layout, image);
    uint32_t crc = crc32c(crc32c(0, image, 4), image + used, layout->header_bytes - used);
    return crc32c(crc, image + start, layout->geometry.internal_bytes - start);
}

bool format_internal_valid(const struct format_layout *layout, const uint8_t *image)
{
    uint32_t crc;
    memcpy(&crc, image + layout->header_bytes, 4);
    return format_header_valid(layout, image) && crc == body_crc(layout, image);
}

void format_header_encode(const struct format_layout *layout, const struct format_header *header,
                          uint8_t *image)
{
    assert(header->lower.length <= layout->geometry.key_bytes &&
           header->upper.length <= layout->geometry.key_bytes);
    struct format_key_copy lower, upper;
    format_key_store(&lower, header->lower);
    format_key_store(&upper, header->upper);
    memset(image, 0, layout->header_bytes);
    memcpy(image + 4, &header->tag, 4);
    memcpy(image + 8, &header->version, 2);
    image[10] = header->level;
    image[11] = header->state;
    memcpy(image + 12, &header->index, 2);
    image[15] = header->has_upper ? FLAG_UPPER : 0;
    memcpy(image + 16, &header->sibling.address, 8);
    memcpy(image + 24, &header->sibling.tag, 4);
    image[28] = (uint8_t)lower.length;
    image[29] = (uint8_t)upper.length;
    memcpy(image + 30, &header->count, 2);
    memcpy(image + FORMAT_HEADER_FIXED, lower.bytes, lower.length);
    memcpy(image + upper_offset(layout, lower.length), upper.bytes, upper.length);
    uint32_t crc = crc32c(0, image + 4, header_used(layout, image) - 4);
    memcpy(image, &crc, 4);
}

static void internal_seal(const struct format_layout *layout, uint8_t *image)
{
    uint32_t crc = body_crc(layout, image);
    memcpy(image + layout->header_bytes, &crc, 4);
}

int format_header_side(const struct format_header *header, struct format_key key)
{
    if (format_key_compare(key, header->lower) < 0)
        return -1;
    return header->has_upper && format_key_compare(key, header->upper) >= 0;
}

/* ---- leaf ---- */

void format_bucket_number(const struct format_layout *layout, uint32_t number, struct format_bucket *bucket)
{
    uint32_t triple = number / 2, side = number % 2;
    uint32_t base = layout->header_bytes + triple * layout->triple_bytes;
    uint32_t segment = layout->segment_slots * layout->slot_bytes;
    bucket->number = number;
    bucket->first = triple * layout->triple_slots + side * layout->segment_slots;
    bucket->count = layout->bucket_slots;
    bucket->head = base + segment;
    bucket->offset = side ? bucket->head : base;
    bucket->bytes = layout->bucket_bytes;
}

void format_bucket_of(const struct format_layout *layout, uint32_t tag, struct format_key key,
                      struct format_bucket *bucket)
{
    /* Salted with the tag, so that a tag can be chosen under which a leaf's keys spread well (bulk.c,
     * split.c). */
    uint64_t hash = XXH3_64bits_withSeed(key.bytes, key.length, tag);
    format_bucket_number(layout, (uint32_t)(((hash >> 32) * layout->buckets) >> 32), bucket);
}

uint32_t format_slot_seed(uint32_t tag, uint16_t version)
{
    uint64_t word = (uint64_t)tag | (uint64_t)version << 32;
    return crc32c(0, &word, sizeof word);
}

static uint32_t slot_check(const uint8_t *image)
{
    uint32_t check;
    memcpy(&check, image, 4);
    return check;
}

static uint32_t value_length(const struct format_layout *layout, const uint8_t *slot)
{
    return layout->geometry.value_variable ? slot[layout->value_offset] : layout->geometry.value_bytes;
}

/* The check of a long slot: of its key part as it lies, and the value. */
static uint32_t long_check(uint32_t seed, const uint8_t *bytes, struct format_key value)
{
    uint8_t length = (uint8_t)value.length;
    uint32_t crc = crc32c(seed, bytes + 4, 2 + FORMAT_LONG_PART_BYTES);
    crc = crc32c(crc, &length, sizeof length);
    return crc32c(crc, value.bytes, value.length) | 1u;
}

/* The check of a taken slot whose whole key is head + remainder. */
static uint32_t taken_check(const struct format_layout *layout, uint32_t seed, struct format_key head,
                            struct format_key remainder, struct format_key value)
{
    uint32_t crc = seed;
    if (layout->geometry.key_kind == FORMAT_KEY_VARIABLE) {
        uint8_t lengths[2] = {(uint8_t)(head.length + remainder.length), (uint8_t)value.length};
        crc = crc32c(crc, lengths, sizeof lengths);
        crc = crc32c(crc, head.bytes, head.length);
        crc = crc32c(crc, remainder.bytes, remainder.length);
        crc = crc32c(crc, value.bytes, value.length);
    } else if (remainder.bytes + remainder.length == value.bytes) {
        crc = crc32c(crc, remainder.bytes, remainder.length + value.length);
    } else {
        crc = crc32c(crc, remainder.bytes, remainder.length);
        crc = crc32c(crc, value.bytes, value.length);
    }
    return crc | 1u;
}

/* Splits a slot into its parts; false if its lengths are impossible. */
static bool slot_parse(const struct format_layout *layout, const uint8_t *bytes, struct format_slot *slot)
{
    uint32_t length = value_length(layout, bytes);
    if (length > layout->geometry.value_bytes)
        return false;
    slot->value = (struct format_key){bytes + layout->value_offset + layout->geometry.value_variable, length};
    slot->block = GADDR_NULL;
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED) {
        slot->head_length = 0;
        slot->remainder = (struct format_key){bytes + 4, layout->geometry.key_bytes};
        return true;
    }
    uint32_t key_length = bytes[4], remainder = bytes[5];
    if (remainder == FORMAT_SLOT_LONG && layout->long_keys) {
        memcpy(&slot->block, bytes + 6, sizeof slot->block);
        memcpy(&slot->hash, bytes + 14, sizeof slot->hash);
        slot->key_length = key_length;
        slot->head_length = 0;
        slot->remainder = (struct format_key){bytes + 6, 0};
        return key_length && key_length <= layout->geometry.key_bytes && slot->block != GADDR_NULL;
    }
    if (remainder > key_length || remainder > layout->geometry.inline_key_bytes || !key_length)
        return false;
    slot->head_length = key_length - remainder;
    slot->remainder = (struct format_key){bytes + 6, remainder};
    return true;
}

/* The check that a parsed slot should have; `front` begins with what the slot leaves out of its key. */
static uint32_t proven_check(const struct format_layout *layout, uint32_t seed, const uint8_t *bytes,
                             struct format_key front, const struct format_slot *slot)
{
    if (slot->block != GADDR_NULL)
        return long_check(seed, bytes, slot->value);
    struct format_key head = {front.bytes, slot->head_length};
    return taken_check(layout, seed, head, slot->remainder, slot->value);
}

enum format_slot_state format_slot_read(const struct format_layout *layout, const uint8_t *image,
                                        uint32_t number, uint32_t seed, struct format_key lower,
                                        struct format_slot *slot)
{
    const uint8_t *bytes = image + layout->slot_offset[number];
    uint32_t check = slot_check(bytes);
    if (check == format_slot_empty_check(seed))
        return FORMAT_SLOT_EMPTY;
    slot->number = number;
    if (!(check & 1u) || !slot_parse(layout, bytes, slot) || slot->head_length > lower.length)
        return FORMAT_SLOT_INVALID;
    return proven_check(layout, seed, bytes, lower, slot) == check ? FORMAT_SLOT_TAKEN : FORMAT_SLOT_INVALID;
}

bool format_bucket_find(const struct format_layout *layout, const uint8_t *image,
                        const struct format_bucket *bucket, uint32_t seed, struct format_key key,
                        struct format_slot *slot)
{
    bool fixed = layout->geometry.key_kind == FORMAT_KEY_FIXED, hashed = false;
    uint64_t wanted = 0, hash = 0;
    if (fixed)
        memcpy(&wanted, key.bytes, 8);
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        const uint8_t *bytes = image + layout->slot_offset[i];
        uint64_t head;
        memcpy(&head, bytes + 4, 8);
        if (fixed ? head != wanted : bytes[4] != key.length)
            continue;
        if (!slot_parse(layout, bytes, slot))
            continue;
        if (slot->block != GADDR_NULL) {
            hash = hashed ? hash : format_key_hash(key);
            hashed = true;
            if (slot->hash != hash)
                continue;
        } else if (memcmp(key.bytes + slot->head_length, slot->remainder.bytes,
                          key.length - slot->head_length)) {
            continue;
        }
        slot->number = i;
        if (slot_check(bytes) == proven_check(layout, seed, bytes, key, slot))
            return true;
    }
    return false;
}

uint32_t format_slot_checks(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                            uint32_t count, uint32_t seed, uint32_t checks[FORMAT_SLOT_RUN_MAX])
{
    /* Slots of a triple up to its head lie one behind the other, and so do those after it. */
    uint32_t within = first % layout->triple_slots;
    uint32_t run = (within < layout->segment_slots ? layout->segment_slots : layout->triple_slots) - within;
    run = run < count ? run : count;
    run = run < FORMAT_SLOT_RUN_MAX ? run : FORMAT_SLOT_RUN_MAX;
    crc32c_each(seed, image + layout->slot_offset[first] + 4, layout->slot_bytes, run,
                layout->geometry.key_bytes + layout->geometry.value_bytes, checks);
    for (uint32_t i = 0; i < run; i++)
        checks[i] |= 1u;
    return run;
}

static bool plain_valid(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                        uint32_t count, uint32_t seed)
{
    uint32_t empty = format_slot_empty_check(seed), checks[FORMAT_SLOT_RUN_MAX];
    for (uint32_t run; count; first += run, count -= run) {
        run = format_slot_checks(layout, image, first, count, seed, checks);
        for (uint32_t i = 0; i < run; i++) {
            uint32_t check = slot_check(image + layout->slot_offset[first + i]);
            if (check != empty && check != checks[i])
                return false;
        }
    }
    return true;
}

bool format_slots_valid(const struct format_layout *layout, const uint8_t *image, uint32_t first,
                        uint32_t count, uint32_t seed, struct format_key lower)
{
    struct format_slot slot;
    if (format_layout_plain(layout))
        return plain_valid(layout, image, first, count, seed);
    for (uint32_t i = first; i < first + count; i++)
        if (format_slot_read(layout, image, i, seed, lower, &slot) == FORMAT_SLOT_INVALID)
            return false;
    return true;
}

uint32_t format_slot_remainder(const struct format_layout *layout, struct format_key lower,
                               struct format_key key)
{
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        return key.length;
    return key.length - format_key_common(lower, key);
}

/* Returns the check. */
static uint32_t slot_write_long(uint8_t *bytes, uint32_t seed, gaddr block, struct format_key key,
                                struct format_key value)
{
    uint64_t hash = format_key_hash(key);
    bytes[4] = (uint8_t)key.length;
    bytes[5] = FORMAT_SLOT_LONG;
    memcpy(bytes + 6, &block, sizeof block);
    memcpy(bytes + 14, &hash, sizeof hash);
    return long_check(seed, bytes, value);
}

void format_slot_write(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                       struct format_key lower, gaddr block, struct format_key key, struct format_key value)
{
    uint8_t *bytes = image + layout->slot_offset[number], *to = bytes + layout->value_offset;
    uint32_t check;
    memset(bytes + 4, 0, layout->slot_bytes - 4);
    if (layout->geometry.value_variable)
        *to++ = (uint8_t)value.length;
    if (value.length)
        memcpy(to, value.bytes, value.length);
    if (block != GADDR_NULL) {
        assert(layout->long_keys);
        check = slot_write_long(bytes, seed, block, key, value);
    } else {
        uint32_t remainder = format_slot_remainder(layout, lower, key);
        struct format_key head = {key.bytes, key.length - remainder};
        struct format_key rest = {key.bytes + head.length, remainder};
        to = bytes + 4;
        if (layout->geometry.key_kind == FORMAT_KEY_VARIABLE) {
            assert(remainder <= layout->geometry.inline_key_bytes);
            *to++ = (uint8_t)key.length;
            *to++ = (uint8_t)remainder;
        }
        memcpy(to, rest.bytes, rest.length);
        check = taken_check(layout, seed, head, rest, value);
    }
    memcpy(bytes, &check, 4);
}

void format_slot_renew(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed,
                       struct format_key lower)
{
    uint8_t *bytes = image + layout->slot_offset[number];
    struct format_slot slot;
    if (!slot_parse(layout, bytes, &slot)) {
        assert(false); /* it was proven under another version */
        return;
    }
    uint32_t check = proven_check(layout, seed, bytes, lower, &slot);
    memcpy(bytes, &check, 4);
}

void format_slot_clear(const struct format_layout *layout, uint8_t *image, uint32_t number, uint32_t seed)
{
    uint32_t check = format_slot_empty_check(seed);
    memcpy(image + layout->slot_offset[number], &check, 4);
}

uint32_t format_bucket_free_slot(const struct format_layout *layout, const uint8_t *image,
                                 const struct format_bucket *bucket, uint32_t seed)
{
    uint32_t empty = format_slot_empty_check(seed), last = bucket->first + bucket->count - 1;
    for (uint32_t i = 0; i < bucket->count; i++) {
        /* A's own segment comes first, B's last; the shared overflow is for what is left over. */
        uint32_t number = bucket->number % 2 ? last - i : bucket->first + i;
        if (slot_check(image + layout->slot_offset[number]) == empty)
            return number;
    }
    return UINT32_MAX;
}

void format_leaf_format(const struct format_layout *layout, const struct format_header *header,
                        uint8_t *image)
{
    memset(image + layout->header_bytes, 0, layout->geometry.leaf_bytes - layout->header_bytes);
    format_header_encode(layout, header, image);
    uint32_t seed = format_slot_seed(header->tag, header->version);
    for (uint32_t i = 0; i < layout->slots; i++)
        format_slot_clear(layout, image, i, seed);
    for (uint32_t number = 0; number < layout->buckets; number += 2) {
        struct format_bucket bucket;
        format_bucket_number(layout, number, &bucket);
        memcpy(image + bucket.head, &header->version, sizeof header->version);
    }
}

/* ---- internal nodes ---- */

static const uint8_t *link_decode(const uint8_t *from, struct format_link *link)
{
    memcpy(&link->address, from, 8);
    memcpy(&link->tag, from + 8, 4);
    return from + 12;
}

static uint8_t *link_encode(uint8_t *to, struct format_link link)
{
    memcpy(to, &link.address, 8);
    memcpy(to + 8, &link.tag, 4);
    return to + 12;
}

static bool entry_decode(const struct format_layout *layout, const uint8_t *image, uint32_t number,
                         struct format_entry *entry)
{
    const uint8_t *from = image + layout->header_bytes + FORMAT_BODY_CRC_BYTES;
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED) {
        from += number * layout->entry_bytes;
        entry->key = (struct format_key){from, layout->geometry.key_bytes};
        link_decode(from + entry->key.length, &entry->link);
        return true;
    }
    uint16_t offset;
    memcpy(&offset, from + 2 * number, sizeof offset);
    if (offset < layout->header_bytes || offset + 13u > layout->geometry.internal_bytes ||
        offset + 13u + image[offset] > layout->geometry.internal_bytes ||
        image[offset] > layout->geometry.key_bytes)
        return false;
    entry->key = (struct format_key){image + offset + 1, image[offset]};
    link_decode(image + offset + 1 + entry->key.length, &entry->link);
    return true;
}

bool format_internal_decode(const struct format_layout *layout, const uint8_t *image,
                            const struct format_header *header,
                            struct format_entry entries[FORMAT_ENTRIES_MAX])
{
    uint32_t room = layout->geometry.internal_bytes - layout->header_bytes - FORMAT_BODY_CRC_BYTES;
    uint32_t least = layout->geometry.key_kind == FORMAT_KEY_FIXED ? layout->entry_bytes : 15u;
    if (!header->count || header->count > FORMAT_ENTRIES_MAX || header->count * least > room)
        return false;
    for (uint32_t i = 0; i < header->count; i++) {
        if (!entry_decode(layout, image, i, &entries[i]))
            return false;
        if (i && format_key_compare(entries[i - 1].key, entries[i].key) >= 0)
            return false;
        if (i && entries[i].link.address == GADDR_NULL)
            return false;
    }
    return !format_key_compare(entries[0].key, header->lower);
}

uint32_t format_internal_size(const struct format_layout *layout, const struct format_entry *entries,
                              uint32_t count)
{
    if (count > FORMAT_ENTRIES_MAX)
        return UINT32_MAX;
    uint32_t size = layout->header_bytes + FORMAT_BODY_CRC_BYTES;
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        return size + count * layout->entry_bytes;
    for (uint32_t i = 0; i < count; i++)
        size += 15 + entries[i].key.length;
    return size;
}

void format_internal_encode(const struct format_layout *layout, struct format_header *header,
                            const struct format_entry *entries, uint32_t count, uint8_t *image)
{
    assert(count && format_internal_size(layout, entries, count) <= layout->geometry.internal_bytes);
    header->count = (uint16_t)count;
    memset(image + layout->header_bytes, 0, layout->geometry.internal_bytes - layout->header_bytes);
    format_header_encode(layout, header, image);
    uint8_t *to = image + layout->header_bytes + FORMAT_BODY_CRC_BYTES;
    bool fixed = layout->geometry.key_kind == FORMAT_KEY_FIXED;
    uint8_t *offsets = to;
    if (!fixed)
        to += 2 * count;
    for (uint32_t i = 0; i < count; i++) {
        if (!fixed) {
            uint16_t offset = (uint16_t)(to - image);
            memcpy(offsets + 2 * i, &offset, sizeof offset);
            *to++ = (uint8_t)entries[i].key.length;
        }
        if (entries[i].key.length)
            memcpy(to, entries[i].key.bytes, entries[i].key.length);
        to = link_encode(to + entries[i].key.length, entries[i].link);
    }
    internal_seal(layout, image);
}
