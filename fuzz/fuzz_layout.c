/*
 * fuzz_layout.c - what is read from remote memory and validated before it is used: leaves, internal nodes,
 * the store's slots and record headers, and what dead clients have staged; made of arbitrary bytes in buffers
 * of exactly their size. In some inputs the checks are put right first, so that the code behind them is
 * reached.
 *
 * Oracle: headers, slots and nodes that pass are those, and only those, that a second, naive reading of
 * src/format/ accepts; what passes can be written again and reads as the same; a key in a slot is found by
 * its bucket; store slots round-trip to the byte.
 */
#include "base/crc32c.h"
#include "fuzz/fuzz.h"
#include "memory/memory.h"
#include "memoryd/staging.h"
#include "store/record.h"
#include "format/internal_node.h"
#include "format/leaf.h"
#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

/* ---- a second reading of src/format/ ---- */

static uint32_t naive_header_bytes(const struct format_geometry *geometry, const uint8_t *image)
{
    uint32_t all = (32u + 2u * geometry->key_bytes + 63) / 64 * 64;
    return geometry->key_kind == FORMAT_KEY_FIXED ? all : 32u + image[28] + image[29];
}

static void put_crc(uint8_t *image, uint32_t used)
{
    uint32_t crc = crc32c(0, image + 4, used - 4);
    memcpy(image, &crc, 4);
}

struct naive_slot {
    bool possible;
    uint8_t key[FORMAT_KEY_MAX];
    uint32_t key_length, value_length;
    const uint8_t *value;
    bool is_long;
    uint32_t check;
};

/* Takes the slot at `bytes` apart, and computes the check that it should have. */
static void naive_read(const struct format_layout *layout, const uint8_t *bytes, uint32_t seed,
                       struct format_key lower, struct naive_slot *slot)
{
    const struct format_geometry *geometry = &layout->geometry;
    bool fixed = geometry->key_kind == FORMAT_KEY_FIXED;
    uint32_t at = 4 + (fixed ? geometry->key_bytes : 2u + geometry->inline_key_bytes);
    *slot = (struct naive_slot){.value_length = geometry->value_variable ? bytes[at] : geometry->value_bytes};
    slot->value = bytes + at + geometry->value_variable;
    if (slot->value_length > geometry->value_bytes)
        return;
    uint8_t text[4 + 2 * FORMAT_KEY_MAX + 16]; /* what the check is of */
    uint32_t length = 0;
    slot->key_length = fixed ? geometry->key_bytes : bytes[4];
    slot->is_long = !fixed && geometry->key_bytes > geometry->inline_key_bytes && bytes[5] == 0xff;
    uint32_t rest = fixed ? geometry->key_bytes : bytes[5];
    if (slot->is_long) {
        gaddr block;
        memcpy(&block, bytes + 6, 8);
        if (!block || !slot->key_length || slot->key_length > geometry->key_bytes)
            return;
        memcpy(text, bytes + 4, 18);
        text[18] = (uint8_t)slot->value_length;
        length = 19;
    } else {
        uint32_t prefix = slot->key_length - rest;
        if (!slot->key_length || rest > slot->key_length ||
            rest > (fixed ? 255u : geometry->inline_key_bytes) || prefix > lower.length)
            return;
        memcpy(slot->key, lower.bytes, prefix);
        memcpy(slot->key + prefix, bytes + (fixed ? 4 : 6), rest);
        if (!fixed) {
            text[length++] = (uint8_t)slot->key_length;
            text[length++] = (uint8_t)slot->value_length;
        }
        memcpy(text + length, slot->key, slot->key_length);
        length += slot->key_length;
    }
    memcpy(text + length, slot->value, slot->value_length);
    slot->check = crc32c(seed, text, length + slot->value_length) | 1u;
    slot->possible = true;
}

/* ---- images: correct ones with some bytes changed, or arbitrary bytes ---- */

static struct format_key take_key(const struct format_layout *layout, struct fuzz_input *input, uint8_t *room,
                                  uint8_t number)
{
    uint32_t most = layout->geometry.key_bytes, length = most;
    memset(room, 'k', most);
    if (layout->geometry.key_kind == FORMAT_KEY_VARIABLE)
        length = 1 + fuzz_byte(input) % most;
    room[0] = number; /* ascending */
    return (struct format_key){room, length};
}

static void format_leaf(const struct format_layout *layout, struct format_header *header, uint8_t *image,
                        struct fuzz_input *input)
{
    uint8_t room[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    uint32_t seed = format_slot_seed(header->tag, header->version);
    format_leaf_format(layout, header, image);
    for (uint8_t count = fuzz_byte(input) % 32; count > 0; count--) {
        struct format_key key = take_key(layout, input, room, fuzz_byte(input));
        struct format_key text = {value, layout->geometry.value_bytes};
        gaddr block = format_slot_needs_block(layout, header->lower, key) ? 64u * count : GADDR_NULL;
        memset(value, count, sizeof value);
        format_slot_write(layout, image, fuzz_u16(input) % layout->slots, seed, header->lower, block, key,
                          text);
    }
}

static void format_internal(const struct format_layout *layout, struct format_header *header, uint8_t *image,
                            struct fuzz_input *input)
{
    static struct format_entry entries[FORMAT_ENTRIES_MAX];
    static uint8_t rooms[32][FORMAT_KEY_MAX];
    uint32_t count = 1;
    entries[0] = (struct format_entry){.key = header->lower, .link = {fuzz_byte(input), 1}};
    for (uint8_t wanted = fuzz_byte(input) % 32; count < wanted; count++) {
        entries[count] =
            (struct format_entry){.key = take_key(layout, input, rooms[count], (uint8_t)(1 + count)),
                                  .link = {1u + fuzz_byte(input), count}};
        if (format_internal_size(layout, entries, count + 1) > layout->geometry.internal_bytes)
            break;
    }
    format_internal_encode(layout, header, entries, count, image);
}

typedef void format_function(const struct format_layout *layout, struct format_header *header, uint8_t *image,
                             struct fuzz_input *input);

/* An image of exactly `bytes` bytes; `format` NULL: arbitrary ones. */
static uint8_t *take_image(const struct format_layout *layout, struct fuzz_input *input, uint32_t bytes,
                           format_function *format)
{
    static const uint8_t zeros[FORMAT_KEY_MAX];
    uint8_t *image = malloc(bytes), room[FORMAT_KEY_MAX];
    if (!format) {
        fuzz_take(input, image, bytes);
        return image;
    }
    uint8_t how = fuzz_byte(input);
    struct format_header header = {.tag = how, .version = how, .level = how & 1, .state = FORMAT_NODE_LIVE};
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        header.lower = (struct format_key){zeros, layout->geometry.key_bytes};
    if (how & 2) {
        header.has_upper = true;
        header.upper = take_key(layout, input, room, 0xff);
        header.sibling = (struct format_link){fuzz_byte(input) + 1u, 7};
    }
    format(layout, &header, image, input);
    for (uint8_t changes = fuzz_byte(input) % 16; changes > 0; changes--)
        image[fuzz_u16(input) % bytes] ^= fuzz_byte(input);
    return image;
}

/* ---- leaves ---- */

static void check_taken(const struct format_layout *layout, const uint8_t *image,
                        const struct format_slot *slot, const struct naive_slot *naive,
                        const struct format_header *header, uint32_t seed)
{
    fuzz_must((slot->block != GADDR_NULL) == naive->is_long, "slot %u: long or not", slot->number);
    fuzz_must(slot->value.length == naive->value_length && slot->value.bytes == naive->value,
              "slot %u: another value", slot->number);
    uint8_t *copy = malloc(layout->geometry.leaf_bytes);
    memcpy(copy, image, layout->geometry.leaf_bytes);
    format_slot_renew(layout, copy, slot->number, seed + 1, header->lower);
    struct format_slot again;
    fuzz_must(format_slot_read(layout, copy, slot->number, seed + 1, header->lower, &again) ==
                  FORMAT_SLOT_TAKEN,
              "slot %u: not taken after its renewal", slot->number);
    if (naive->is_long) {
        free(copy);
        return;
    }
    struct format_key key = {naive->key, naive->key_length};
    fuzz_must(slot->prefix_length + slot->remainder.length == key.length &&
                  !memcmp(slot->remainder.bytes, key.bytes + slot->prefix_length, slot->remainder.length),
              "slot %u: another key", slot->number);
    struct format_bucket bucket;
    struct format_slot found;
    uint32_t first = 2 * (slot->number / layout->triple_slots);
    for (uint32_t number = first; number < first + 2 && number < layout->buckets; number++) {
        format_bucket_number(layout, number, &bucket);
        if (slot->number < bucket.first || slot->number >= bucket.first + bucket.count)
            continue;
        fuzz_must(format_bucket_find(layout, image, &bucket, seed, key, &found),
                  "slot %u: not found by its key", slot->number);
        fuzz_must(found.number <= slot->number, "slot %u: a later one is found", slot->number);
    }
    if (format_slot_remainder(layout, header->lower, key) <= layout->geometry.inline_key_bytes ||
        layout->geometry.key_kind == FORMAT_KEY_FIXED) {
        format_slot_write(layout, copy, slot->number, seed, header->lower, GADDR_NULL, key, slot->value);
        fuzz_must(format_slot_read(layout, copy, slot->number, seed, header->lower, &again) ==
                      FORMAT_SLOT_TAKEN,
                  "slot %u: not taken after it was written", slot->number);
        fuzz_must(!format_key_compare(again.value, slot->value), "slot %u: wrote another value",
                  slot->number);
    }
    free(copy);
}

static void check_slots(const struct format_layout *layout, const uint8_t *image,
                        const struct format_header *header, uint32_t seed)
{
    bool all = true;
    for (uint32_t i = 0; i < layout->slots; i++) {
        const uint8_t *bytes = image + layout->slot_offset[i];
        struct naive_slot naive;
        struct format_slot slot;
        uint32_t check;
        memcpy(&check, bytes, 4);
        naive_read(layout, bytes, seed, header->lower, &naive);
        enum format_slot_state state = format_slot_read(layout, image, i, seed, header->lower, &slot),
                               expected = check == (seed & ~1u)                    ? FORMAT_SLOT_EMPTY
                                          : naive.possible && naive.check == check ? FORMAT_SLOT_TAKEN
                                                                                   : FORMAT_SLOT_INVALID;
        fuzz_must(state == expected, "slot %u: state %d instead of %d", i, (int)state, (int)expected);
        fuzz_must(format_slots_valid(layout, image, i, 1, seed, header->lower) ==
                      (state != FORMAT_SLOT_INVALID),
                  "slot %u: validity", i);
        all &= state != FORMAT_SLOT_INVALID;
        if (state == FORMAT_SLOT_TAKEN)
            check_taken(layout, image, &slot, &naive, header, seed);
    }
    fuzz_must(format_slots_valid(layout, image, 0, layout->slots, seed, header->lower) == all,
              "the slots' validity together");
}

static void mend_slots(const struct format_layout *layout, uint8_t *image, const struct format_header *header,
                       uint32_t seed, struct fuzz_input *choices)
{
    for (uint32_t i = 0; i < layout->slots; i++) {
        uint8_t *bytes = image + layout->slot_offset[i];
        uint8_t how = fuzz_byte(choices);
        struct naive_slot naive;
        naive_read(layout, bytes, seed, header->lower, &naive);
        uint32_t check = how % 4 ? naive.check : seed & ~1u;
        if (how % 8 != 7)
            memcpy(bytes, &check, 4);
    }
}

/* True if the header is valid and decodes. */
static bool check_header(const struct format_layout *layout, const uint8_t *image,
                         struct format_header *header)
{
    uint32_t used = naive_header_bytes(&layout->geometry, image), crc;
    memcpy(&crc, image, 4);
    bool valid = format_header_valid(layout, image);
    fuzz_must(valid == (used <= layout->header_bytes && crc == crc32c(0, image + 4, used - 4)),
              "the header's validity");
    if (!format_header_decode(layout, image, header) || !valid)
        return false;
    uint8_t *copy = malloc(layout->header_bytes);
    struct format_header again;
    format_header_encode(layout, header, copy);
    fuzz_must(format_header_valid(layout, copy) && format_header_decode(layout, copy, &again),
              "a header is no header when it is written again");
    fuzz_must(again.tag == header->tag && again.version == header->version && again.level == header->level &&
                  again.state == header->state && again.index == header->index &&
                  again.has_upper == header->has_upper && again.count == header->count &&
                  format_link_equal(again.sibling, header->sibling) &&
                  !format_key_compare(again.lower, header->lower) &&
                  !format_key_compare(again.upper, header->upper),
              "a header reads otherwise when it is written again");
    free(copy);
    return true;
}

static void check_leaf(const struct format_layout *layout, struct fuzz_input *input, bool mend, bool format)
{
    uint8_t *image = take_image(layout, input, layout->geometry.leaf_bytes, format ? format_leaf : NULL);
    struct format_header header;
    struct fuzz_input choices = {image, layout->geometry.leaf_bytes};
    uint32_t used = naive_header_bytes(&layout->geometry, image);
    if (mend && used <= layout->header_bytes)
        put_crc(image, used);
    if (check_header(layout, image, &header)) {
        uint32_t seed = format_slot_seed(header.tag, header.version);
        uint8_t *mended = malloc(layout->geometry.leaf_bytes);
        memcpy(mended, image, layout->geometry.leaf_bytes);
        format_header_decode(layout, mended, &header);
        if (mend)
            mend_slots(layout, mended, &header, seed, &choices);
        check_slots(layout, mended, &header, seed);
        free(mended);
    }
    free(image);
}

/* ---- internal nodes ---- */

static void check_internal(const struct format_layout *layout, struct fuzz_input *input, bool mend,
                           bool format)
{
    static struct format_entry entries[FORMAT_ENTRIES_MAX], again[FORMAT_ENTRIES_MAX];
    uint32_t bytes = layout->geometry.internal_bytes, start = layout->header_bytes + FORMAT_BODY_CRC_BYTES;
    uint8_t *image = take_image(layout, input, bytes, format ? format_internal : NULL), *copy = malloc(bytes);
    struct format_header header, second;
    uint32_t used = naive_header_bytes(&layout->geometry, image);
    if (mend && used <= layout->header_bytes) {
        put_crc(image, used);
        uint32_t crc = crc32c(crc32c(0, image, 4), image + used, layout->header_bytes - used);
        crc = crc32c(crc, image + start, bytes - start);
        memcpy(image + layout->header_bytes, &crc, 4);
        fuzz_must(format_internal_valid(layout, image), "a node with right checks is not valid");
    }
    if (check_header(layout, image, &header) && format_internal_decode(layout, image, &header, entries)) {
        for (uint32_t i = 0; i < header.count; i++) {
            fuzz_must(!i || format_key_compare(entries[i - 1].key, entries[i].key) < 0,
                      "entries out of order");
            fuzz_must(entries[i].key.bytes >= image &&
                          entries[i].key.bytes + entries[i].key.length <= image + bytes,
                      "an entry's key outside of the node");
        }
        /* Decoded entries may overlap: then they need not fit into a node. */
        if (format_internal_size(layout, entries, header.count) <= bytes) {
            format_internal_encode(layout, &header, entries, header.count, copy);
            fuzz_must(format_internal_valid(layout, copy) && format_header_decode(layout, copy, &second) &&
                          format_internal_decode(layout, copy, &second, again) &&
                          second.count == header.count,
                      "a node is no node when it is written again");
            for (uint32_t i = 0; i < header.count; i++)
                fuzz_must(!format_key_compare(entries[i].key, again[i].key) &&
                              format_link_equal(entries[i].link, again[i].link),
                          "entry %u reads otherwise when it is written again", i);
        }
    }
    free(image);
    free(copy);
}

/* ---- the store ---- */

static void check_store_slot(struct fuzz_input *input)
{
    size_t length = fuzz_byte(input);
    uint8_t *bytes = malloc(length ? length : 1);
    struct format_value slot;
    struct store_raw raw = {0}, given;
    fuzz_take(input, bytes, length);
    if (format_value_decode(bytes, length, &slot)) {
        const struct store_value value = {
            .bytes = slot.bytes, .length = slot.length, .expires = slot.expires};
        if (slot.record)
            store_slot_record(&raw, &slot.reference);
        else
            store_slot_inline(&raw, &value);
        fuzz_must(store_raw_equal(&raw, bytes, length), "a store's slot is another when it is written again");
    }
    store_raw_set(&given, bytes, length);
    fuzz_must(store_raw_equal(&given, bytes, length), "a raw slot is another");
    free(bytes);
}

/* Of a valid header: the pieces are a value of the reference's length, and only zeros are long. */
static void check_pieces(const uint8_t *header, size_t key_length, const struct format_reference *reference)
{
    uint32_t number = 0;
    for (uint64_t left = reference->length; left; number++) {
        fuzz_must(number < format_record_room_pieces(reference->room),
                  "more pieces than the header has room for");
        struct format_piece piece = format_record_piece(header, key_length, number);
        fuzz_must(piece.length && piece.length <= left, "a piece of %u bytes", piece.length);
        fuzz_must(format_piece_block_bytes(key_length, &piece) <= FORMAT_PIECE_MAX + FORMAT_KEY_MAX + 37u,
                  "a piece's block is too long");
        left -= piece.length;
    }
}

static void check_record(struct fuzz_input *input, bool mend)
{
    uint8_t key[STORE_KEY_MAX], how = fuzz_byte(input);
    size_t key_length = 1 + fuzz_byte(input) % STORE_KEY_MAX;
    struct format_reference reference = {.address = fuzz_u16(input) + 32u, .expires = how & 1};
    reference.room = how & 32 ? (uint8_t)(fuzz_byte(input) % (FORMAT_ROOM_MAX + 1)) : 0;
    reference.address &= ~UINT64_C(31);
    reference.length =
        how & 2 ? fuzz_byte(input)
                : fuzz_u32(input) % ((reference.room ? STORE_VALUE_MAX : FORMAT_RECORD_BLOCK_MAX) + 1);
    enum format_part part = how & 4 ? FORMAT_PART_VALUE : FORMAT_PART_HEADER;
    uint32_t bytes = format_record_read_bytes(key_length, &reference, part);
    uint32_t header = format_record_header_bytes(key_length, reference.room);
    fuzz_must(header <= bytes && bytes <= FABRIC_LENGTH_MAX, "a record's block of %u bytes, header %u", bytes,
              header);
    uint8_t *block = malloc(bytes);
    struct store_value value;
    fuzz_take(input, key, key_length);
    fuzz_take(input, block, bytes);
    bool whole = part == FORMAT_PART_VALUE && !reference.room;
    if (how & 8) { /* everything is right, except the checks */
        memcpy(block + 32, &reference.length, 4);
        block[36] = (uint8_t)key_length;
        memcpy(block + 37, key, key_length);
    }
    if (mend) {
        uint64_t hash = whole ? XXH3_64bits(block + header, reference.length) : 0;
        if (whole && !(how & 16))
            memcpy(block + 24, &hash, 8);
        hash = XXH3_64bits_withSeed(block + 8, header - 8, reference.address);
        memcpy(block, &hash, 8);
        reference.check = hash >> 27;
    }
    if (store_record_validate(&reference, key, key_length, part, block, &value)) {
        uint64_t expires;
        memcpy(&expires, block + 16, 8);
        fuzz_must(value.length == reference.length && value.expires == expires &&
                      !reference.expires == !expires,
                  "a record of another length or expiry is taken");
        fuzz_must(block[36] == key_length && !memcmp(block + 37, key, key_length),
                  "another key's record is taken");
        fuzz_must(!whole || value.bytes == block + header, "a record's value lies elsewhere");
        fuzz_must(mend, "a record without a right hash is taken");
        if (reference.room)
            check_pieces(block, key_length, &reference);
    } else if (!reference.room) {
        fuzz_must(!(mend && (how & 24) == 8) ||
                      !reference.expires == (block[16] || block[17] || block[18] || block[19] || block[20] ||
                                             block[21] || block[22] || block[23]),
                  "a right record is refused");
    }
    free(block);
}

/* ---- the staging area of a mapped client that died ---- */

#define POOL_BYTES  16384u
#define LOCKS_BYTES 512u

static void check_staging(struct fuzz_input *input)
{
    static struct memoryd_staging *staging;
    static uint8_t pool[POOL_BYTES], locks[LOCKS_BYTES];
    const struct fabric_target target = {
        .pool = pool, .pool_bytes = sizeof pool, .locks = locks, .lock_bytes = sizeof locks, .lock_width = 2};
    struct error error = {0};
    int descriptor = -1;
    if (!staging) {
        fuzz_must(!memoryd_staging_create(&staging, &descriptor, &error), "%s", error.text);
        close(descriptor);
    }
    struct wire_staging *area = staging->area;
    uint8_t how = fuzz_byte(input);
    area->marked = how & 1 ? WIRE_STAGED : fuzz_u64(input);
    area->offset = how & 2 ? fuzz_u64(input) : fuzz_u16(input);
    if (how & 4)
        area->offset |= GADDR_LOCK_REGION;
    area->length = how & 8 ? fuzz_u64(input) : fuzz_u16(input);
    memset(area->data, 'd', sizeof area->data);
    memset(pool, 0, sizeof pool);
    memset(locks, 0, sizeof locks);
    bool marked = area->marked == WIRE_STAGED, complaint;
    bool in_locks = area->offset & GADDR_LOCK_REGION;
    uint64_t at = area->offset & ~GADDR_LOCK_REGION, room = in_locks ? LOCKS_BYTES : POOL_BYTES;
    bool possible = area->length >= 1 && area->length <= WIRE_STAGING_DATA && at < room &&
                    area->length <= room - at &&
                    (at || in_locks || (how & 16)); /* null is no address on node 0 */
    bool done = memory_staging_finish(staging->area, &target, how & 16 ? 1 : 0, &complaint);
    fuzz_must(done == (marked && possible) && complaint == (marked && !possible),
              "staging: done %d, complaint %d", done, complaint);
    for (uint64_t i = 0; i < POOL_BYTES + LOCKS_BYTES; i++) {
        bool lock = i >= POOL_BYTES;
        uint64_t offset = lock ? i - POOL_BYTES : i;
        bool written = done && lock == in_locks && offset >= at && offset - at < area->length;
        fuzz_must((lock ? locks : pool)[offset] == (written ? 'd' : 0), "staging: byte %llu",
                  (unsigned long long)i);
    }
}

/* ---- */

static bool take_layout(struct fuzz_input *input, bool dense, struct format_layout *layout)
{
    static const uint8_t lengths[] = {8, 9, 16, 33, 64, 255}, values[] = {0, 1, 8, 17, 100, 255};
    uint8_t kind = fuzz_byte(input), size = fuzz_byte(input);
    struct format_geometry geometry = {.key_kind = kind & 1 ? FORMAT_KEY_VARIABLE : FORMAT_KEY_FIXED,
                                       .key_bytes = lengths[kind / 2 % 6],
                                       .value_variable = kind & 64,
                                       .inline_key_bytes = kind & 128 ? 16 : 24,
                                       .value_bytes = values[size % 6],
                                       .leaf_kind = size & 128 ? FORMAT_LEAF_UNSORTED
                                                    : dense    ? FORMAT_LEAF_DENSE
                                                               : FORMAT_LEAF_HASHED,
                                       .leaf_bytes = 512u << size / 8 % 4,
                                       .internal_bytes = 512u << size / 32 % 4};
    return !format_geometry_complete(&geometry, 4096, NULL) && !format_layout_init(layout, &geometry, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    struct format_layout layout;
    uint8_t what = fuzz_byte(&input);
    bool mend = what & 128;
    if (what % 4 == 0 && what & 32)
        check_staging(&input);
    else if (what % 4 == 0)
        check_store_slot(&input);
    else if (what % 4 == 1)
        check_record(&input, mend);
    else if (take_layout(&input, (what & 48) == 16, &layout)) {
        (what % 4 == 2 ? check_leaf : check_internal)(&layout, &input, mend, what & 64);
        format_layout_free(&layout);
    }
    return 0;
}
