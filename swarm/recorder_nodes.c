/* recorder_nodes.c - see recorder_nodes.h. */
#include "swarm/recorder_nodes.h"

#include <inttypes.h>
#include <string.h>

#include "format/leaf.h"
#include "swarm/recorder_state.h"

/* A key, or as much of one as a separator has kept of it: "k" and some digits. */
static void add_fence(struct recorder *recorder, struct record *record, struct format_key key)
{
    const struct driver_shape *shape = &recorder->world->setting.shape;
    uint64_t number = shape->fixed_keys ? driver_key_number(shape, key.bytes, key.length) : 0;
    for (uint32_t i = 1; i < 13 && !shape->fixed_keys; i++)
        number = number * 10 + (i < key.length ? (uint64_t)(key.bytes[i] - '0') : 0);
    if (key.length && number != UINT64_MAX)
        record_add(record, "%" PRIu64, number);
}

static void add_header(struct recorder *recorder, struct record *record, const struct format_header *header)
{
    static const char *const states[] = {"state 0", "live", "splitting", "dead", "frozen", "merging"};
    record_add(record, " ver %u ", header->version);
    if (header->state < sizeof states / sizeof *states)
        record_add(record, "%s", states[header->state]);
    else
        record_add(record, "state %u", header->state);
    record_add(record, " [");
    add_fence(recorder, record, header->lower);
    record_add(record, "..");
    if (header->has_upper)
        add_fence(recorder, record, header->upper);
    record_add(record, ")");
}

static void add_value(struct recorder *recorder, struct record *record, struct format_key value)
{
    const struct driver_shape *shape = &recorder->world->setting.shape;
    uint64_t number = shape->records ? 0 : driver_value_number(shape, value.bytes, value.length);
    if (number)
        record_add(record, " = v%" PRIu64, number);
    else
        record_add(record, shape->records ? " is there" : " = a broken value");
}

/* What these bytes of the leaf say about the key to a reader that takes them for this leaf's. */
static void add_key(struct recorder *recorder, struct record *record, const struct recorder_place *place,
                    const struct format_bucket *bucket, bool reads)
{
    const uint8_t *image = recorder->image;
    uint32_t seed = format_slot_seed(place->header.tag, format_bucket_version(image, bucket)), invalid = 0;
    struct format_slot slot;
    record_add(record, ": ");
    if (format_bucket_find(&recorder->layout, image, bucket, seed, recorder->key, &slot)) {
        record_add(record, "%" PRIu64, recorder->recording->focus.key);
        add_value(recorder, record, slot.value);
        if (reads)
            record_add(record, " in slot %u", slot.number);
        return;
    }
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++)
        invalid += format_slot_read(&recorder->layout, image, i, seed, place->header.lower, &slot) ==
                   FORMAT_SLOT_INVALID;
    record_add(record, "no %" PRIu64, recorder->recording->focus.key);
    if (invalid)
        record_add(record, ", %u slots invalid", invalid);
}

static bool overlaps(uint32_t a, uint32_t a_bytes, uint32_t b, uint32_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static void add_slot(struct recorder *recorder, struct record *record, const struct recorder_place *place,
                     const struct format_slot *slot)
{
    uint8_t bytes[2 * FORMAT_KEY_MAX];
    struct format_key lower = place->header.lower;
    if (slot->block != GADDR_NULL) {
        record_add(record, " a long key");
    } else {
        uint32_t head = slot->prefix_length < lower.length ? slot->prefix_length : lower.length;
        memcpy(bytes, lower.bytes, head);
        memcpy(bytes + head, slot->remainder.bytes, slot->remainder.length);
        record_add(record, " %" PRIu64,
                   driver_key_number(&recorder->world->setting.shape, bytes, head + slot->remainder.length));
    }
    add_value(recorder, record, slot->value);
}

/* Without a key to look for: the contents of the slots that the command is about. */
static void add_slots(struct recorder *recorder, struct record *record, const struct recorder_place *place,
                      uint32_t length)
{
    const struct format_layout *layout = &recorder->layout;
    uint32_t states[3] = {0}, seed = format_slot_seed(place->header.tag, place->header.version);
    struct format_slot slot, taken = {0};
    for (uint32_t i = 0; i < layout->slots; i++) {
        if (!overlaps(place->offset, length, layout->slot_offset[i], layout->slot_bytes))
            continue;
        enum format_slot_state state =
            format_slot_read(layout, recorder->image, i, seed, place->header.lower, &slot);
        states[state]++;
        if (state == FORMAT_SLOT_TAKEN)
            taken = slot;
    }
    uint32_t all = states[0] + states[1] + states[2];
    if (all == 1 && states[FORMAT_SLOT_TAKEN]) {
        record_add(record, ":");
        add_slot(recorder, record, place, &taken);
    } else if (all == 1) {
        record_add(record, states[FORMAT_SLOT_EMPTY] ? ": empty" : ": invalid");
    } else if (all) {
        record_add(record, ": %u taken", states[FORMAT_SLOT_TAKEN]);
        if (states[FORMAT_SLOT_INVALID])
            record_add(record, ", %u invalid", states[FORMAT_SLOT_INVALID]);
    }
}

/* Under which child the node's bytes say that the key is. */
static void add_child(struct recorder *recorder, struct record *record, const struct format_header *header)
{
    struct format_entry *entries = recorder->entries;
    uint32_t at = 0;
    if (!format_internal_valid(&recorder->layout, recorder->image) ||
        !format_internal_decode(&recorder->layout, recorder->image, header, entries)) {
        record_add(record, ": torn");
        return;
    }
    while (at < header->count && format_key_compare(entries[at].key, recorder->key) <= 0)
        at++;
    if (at == 0)
        return;
    const struct format_link *link = &entries[at - 1].link;
    record_add(record, ": %" PRIu64 " under ", recorder->recording->focus.key);
    if (link->address == GADDR_NULL)
        record_add(record, "the left neighbour (a gap)");
    else
        recorder_add_name(recorder, record,
                          &(struct recorder_place){.kind = PLACE_BLOCK, .block = link->address});
}

/* What part of a leaf a command is about. */
void recorder_add_part(struct recorder *recorder, struct record *record, const struct recorder_place *place,
                       uint32_t length)
{
    const struct format_layout *layout = &recorder->layout;
    struct format_bucket bucket;
    uint32_t from = place->offset;
    if (from == 0 && length >= place->bytes)
        return;
    if (from == 0 && length <= layout->header_bytes) {
        record_add(record, " header");
        return;
    }
    for (uint32_t i = 0; i < layout->buckets && place->kind == PLACE_LEAF; i++) {
        format_bucket_number(layout, i, &bucket);
        if (bucket.offset == from && bucket.bytes == length) {
            record_add(record, " bucket %u", i);
            return;
        }
    }
    for (uint32_t i = 0; i < layout->slots && place->kind == PLACE_LEAF; i++)
        if (from == layout->slot_offset[i] && length <= layout->slot_bytes) {
            record_add(record, length == 4 ? " check of slot %u" : " slot %u", i);
            return;
        }
    record_add(record, " %u+%u", from, length);
}

/* Copies into the recorder's image the bytes that a READ has brought, or those in memory since the WRITE. */
static void image_take(struct recorder *recorder, const struct recorder_place *place,
                       const struct fabric_command *command, bool last)
{
    memcpy(recorder->image, place->now, place->bytes);
    if (command->operation == FABRIC_READ && last && place->offset + command->length <= place->bytes)
        memcpy(recorder->image + place->offset, command->read.data, command->length);
}

/* Whether the command's bytes are those of the slot that the key is in. */
static bool is_slot_of_key(const struct recorder *recorder, const struct recorder_place *place,
                           uint32_t length, const struct format_bucket *bucket)
{
    struct format_slot slot;
    uint32_t seed = format_slot_seed(place->header.tag, format_bucket_version(recorder->image, bucket));
    return format_bucket_find(&recorder->layout, recorder->image, bucket, seed, recorder->key, &slot) &&
           overlaps(place->offset, length, recorder->layout.slot_offset[slot.number],
                    recorder->layout.slot_bytes);
}

/* What the command's part of the node says: about the node, about slots of other keys, and about the key. */
void recorder_tell_node(struct recorder *recorder, struct recorder_place *place,
                        const struct fabric_command *command, struct record *about_node,
                        struct record *about_slots, struct record *about_key)
{
    const struct format_layout *layout = &recorder->layout;
    bool has_key = recorder->recording->focus.has_key, headed = false;
    struct format_bucket bucket;
    struct format_header header;
    uint32_t length = command->length;
    image_take(recorder, place, command, true);
    if (place->offset == 0 && length >= FORMAT_HEADER_FIXED) {
        headed = format_header_decode(layout, recorder->image, &header);
        if (headed)
            add_header(recorder, about_node, &header);
        if (!format_header_valid(layout, recorder->image))
            record_add(about_node, " torn");
    }
    if (!place->decoded)
        return;
    if (place->kind == PLACE_INTERNAL) {
        if (has_key && headed && length >= place->bytes)
            add_child(recorder, about_key, &header);
        return;
    }
    format_bucket_of(layout, place->header.tag, recorder->key, &bucket);
    bool writes = command->operation == FABRIC_WRITE;
    bool all = place->offset <= bucket.offset && place->offset + length >= bucket.offset + bucket.bytes;
    bool some = overlaps(place->offset, length, bucket.offset, bucket.bytes);
    bool key = has_key && (writes ? some : all),
         own_slot = key && is_slot_of_key(recorder, place, length, &bucket);
    if ((writes && !own_slot && length <= layout->slot_bytes) || !has_key ||
        recorder_is_focus(recorder, place, command))
        add_slots(recorder, about_slots, place, length);
    if (key)
        add_key(recorder, about_key, place, &bucket, !writes);
}
