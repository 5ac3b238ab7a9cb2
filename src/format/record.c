/*
 * record.c - See record.h.
 */
#include "format/record.h"

#include <assert.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/xxh3.h"

/* The lowest bit of a piece's place. */
#define PLACE_BEHIND UINT64_C(1)
#define PLACE_LOW    UINT64_C(31)

#define GRAIN_SMALL  32768u
#define GRAIN_LENGTH (UINT64_C(16) << 20) /* of the longest value that is cut into small pieces */

enum {
    AT_HASH = 0,
    AT_STAMP = 8,
    AT_EXPIRES = 16,
    AT_VALUE_HASH = 24,
    AT_LENGTH = 32,
    AT_PIECES = AT_VALUE_HASH,
    AT_KEY_LENGTH = 36,
    AT_KEY = FORMAT_RECORD_HEADER_FIXED,
};

static uint64_t load64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void store64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static uint64_t header_hash(gaddr address, const uint8_t *header, uint32_t bytes)
{
    return XXH3_64bits_withSeed(header + AT_STAMP, bytes - AT_STAMP, address);
}

/* ---- sizes ---- */

bool format_record_long(size_t key_length, uint64_t length)
{
    return FORMAT_RECORD_HEADER_FIXED + key_length + length > FORMAT_RECORD_BLOCK_MAX;
}

uint32_t format_record_grain(uint64_t length)
{
    return length <= GRAIN_LENGTH ? GRAIN_SMALL : FORMAT_PIECE_MAX;
}

/* 2, 3, 4, 6, 8, 12, ... 2048, 3072. */
uint32_t format_record_room_pieces(uint8_t room)
{
    assert(room && room <= FORMAT_ROOM_MAX);
    unsigned step = room - 1u;
    return (2 + (step & 1)) << (step >> 1);
}

uint8_t format_record_room(uint32_t pieces)
{
    uint8_t room = 1;
    assert(pieces && pieces <= FORMAT_PIECES_MAX);
    while (format_record_room_pieces(room) < pieces)
        room++;
    return room;
}

uint32_t format_record_header_bytes(size_t key_length, uint8_t room)
{
    return FORMAT_RECORD_HEADER_FIXED + (uint32_t)key_length +
           (room ? FORMAT_PIECE_ENTRY * format_record_room_pieces(room) : 0);
}

uint32_t format_record_block_bytes(size_t key_length, const struct format_reference *reference)
{
    uint32_t header = format_record_header_bytes(key_length, reference->room);
    return reference->room ? header : header + reference->length;
}

uint32_t format_record_read_bytes(size_t key_length, const struct format_reference *reference,
                                  enum format_part part)
{
    return part == FORMAT_PART_VALUE ? format_record_block_bytes(key_length, reference)
                                     : format_record_header_bytes(key_length, reference->room);
}

uint32_t format_piece_block_bytes(size_t key_length, const struct format_piece *piece)
{
    if (piece->block == GADDR_NULL)
        return 0;
    return piece->behind ? format_record_whole_bytes(key_length, piece->length) : piece->length;
}

gaddr format_piece_address(size_t key_length, const struct format_piece *piece)
{
    return piece->block + (piece->behind ? FORMAT_RECORD_HEADER_FIXED + key_length : 0);
}

/* ---- writing ---- */

uint64_t format_record_hash(const uint8_t *bytes, size_t length)
{
    return xxh3(bytes, length);
}

uint64_t format_record_copy_from(uint8_t *to, const uint8_t *shared, size_t length)
{
    return xxh3_copy_from(to, shared, length);
}

uint64_t format_record_copy_to(uint8_t *shared, const uint8_t *from, size_t length)
{
    return xxh3_copy_to(shared, from, length);
}

static uint8_t record_room(const struct format_record *record)
{
    return record->pieces ? format_record_room(record->pieces) : 0;
}

void format_record_begin(uint8_t *header, const struct format_record *record)
{
    uint32_t length = (uint32_t)record->length;
    assert(record->key_length && record->key_length <= FORMAT_KEY_MAX &&
           record->length <= FORMAT_RECORD_VALUE_MAX);
    store64(header + AT_STAMP, record->stamp);
    store64(header + AT_EXPIRES, record->expires);
    store64(header + AT_PIECES, record->pieces);
    memcpy(header + AT_LENGTH, &length, sizeof length);
    header[AT_KEY_LENGTH] = (uint8_t)record->key_length;
    memcpy(header + AT_KEY, record->key, record->key_length);
    if (record->pieces)
        memset(header + AT_KEY + record->key_length + FORMAT_PIECE_ENTRY * record->pieces, 0,
               FORMAT_PIECE_ENTRY * (format_record_room_pieces(record_room(record)) - record->pieces));
}

void format_record_piece_set(uint8_t *header, size_t key_length, uint32_t number,
                             const struct format_piece *piece)
{
    uint8_t *entry = header + AT_KEY + key_length + FORMAT_PIECE_ENTRY * number;
    assert(piece->length && !(piece->block & PLACE_LOW));
    assert(piece->block ? piece->length <= FORMAT_PIECE_MAX : !piece->hash && !piece->behind);
    store64(entry, piece->block | (piece->behind ? PLACE_BEHIND : 0));
    store64(entry + 8, piece->hash);
    memcpy(entry + 16, &piece->length, 4);
}

void format_record_seal(uint8_t *header, gaddr address, const struct format_record *record,
                        struct format_reference *reference)
{
    uint8_t room = record_room(record);
    uint64_t hash = header_hash(address, header, format_record_header_bytes(record->key_length, room));
    store64(header + AT_HASH, hash);
    *reference = (struct format_reference){.address = address,
                                           .check = format_reference_check(hash),
                                           .length = (uint32_t)record->length,
                                           .room = room,
                                           .expires = record->expires != 0};
}

void format_record_encode_header(uint8_t *header, gaddr address, const struct format_record *record,
                                 struct format_reference *reference)
{
    assert(!record->pieces && !format_record_long(record->key_length, record->length));
    format_record_begin(header, record);
    store64(header + AT_VALUE_HASH, record->value_hash);
    format_record_seal(header, address, record, reference);
}

void format_record_encode(uint8_t *block, gaddr address, const struct format_record *record,
                          struct format_reference *reference)
{
    uint8_t *value = block + AT_KEY + record->key_length;
    struct format_record hashed = *record;
    hashed.value_hash = format_record_copy_to(value, record->value, record->length);
    format_record_encode_header(block, address, &hashed, reference);
}

/* ---- reading ---- */

struct format_piece format_record_piece(const uint8_t *header, size_t key_length, uint32_t number)
{
    const uint8_t *entry = header + AT_KEY + key_length + FORMAT_PIECE_ENTRY * number;
    uint64_t place = load64(entry);
    struct format_piece piece = {
        .block = place & ~PLACE_LOW, .hash = load64(entry + 8), .behind = place & PLACE_BEHIND};
    memcpy(&piece.length, entry + 16, 4);
    return piece;
}

/* Whether the header's pieces are such as a writer makes, so that their sum is the value. */
static bool pieces_good(const struct format_reference *reference, const uint8_t *header,
                        struct format_record *record)
{
    uint64_t pieces = load64(header + AT_PIECES), sum = 0;
    if (!pieces || pieces > format_record_room_pieces(reference->room))
        return false;
    for (uint32_t i = 0; i < pieces; i++) {
        struct format_piece piece = format_record_piece(header, record->key_length, i);
        if (!piece.length || (piece.block ? piece.length > FORMAT_PIECE_MAX : piece.behind))
            return false;
        sum += piece.length;
    }
    record->pieces = (uint32_t)pieces;
    return sum == reference->length;
}

bool format_record_validate(const struct format_reference *reference, const void *key, size_t key_length,
                            enum format_part part, const uint8_t *block, struct format_record *record)
{
    uint32_t length, header = format_record_header_bytes(key_length, reference->room);
    uint64_t hash = load64(block + AT_HASH);
    if (format_reference_check(hash) != reference->check ||
        hash != header_hash(reference->address, block, header))
        return false;
    memcpy(&length, block + AT_LENGTH, sizeof length);
    *record = (struct format_record){.key = key,
                                     .key_length = key_length,
                                     .stamp = load64(block + AT_STAMP),
                                     .expires = load64(block + AT_EXPIRES),
                                     .length = length};
    if (length != reference->length || block[AT_KEY_LENGTH] != key_length ||
        memcmp(block + AT_KEY, key, key_length) || (record->expires != 0) != reference->expires)
        return false;
    if (reference->room)
        return pieces_good(reference, block, record);
    record->value_hash = load64(block + AT_VALUE_HASH);
    if (part == FORMAT_PART_HEADER)
        return true;
    record->value = block + header;
    return format_record_hash(record->value, length) == record->value_hash;
}
