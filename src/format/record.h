/*
 * record.h - how a value outside of the index lies in the pool: its record, a block of memory that begins
 * with a header, and for long values further blocks, the pieces.
 *
 * Header:
 *   u64 hash         XXH3-64 of the header behind it, seeded with the block's address
 *   u64 stamp        different for each record ever written: no two headers are equal
 *   u64 expires      ms since 1970; 0: never
 *   u64 value hash   XXH3-64 of a value that follows in the block; of one in pieces: how many it has
 *   u32 length       of the value
 *   u8 length        of the key
 *   key
 *   pieces           {u64 place, u64 hash, u32 length} each, and zeros to the end of the header's room
 * Behind the header follows the value, unless it is in pieces. Integers are little-endian and packed.
 *
 * A piece is a run of the value's bytes, at most FORMAT_PIECE_MAX; their order is the value's. Its place is
 * the address of its block, or 0 for a run of zeros of any length, which has no block. Where the lowest bit
 * of the place is set, the block is one that a record of the same key was written to: the piece stands behind
 * that record's header, of which nothing is used any more.
 *
 * Everything but the stamp, the expiry, the hashes and the pieces follows from the key and the reference in
 * the slot (value.h), so a reader knows how much it will read before it reads. The header proves itself
 * without the value. Pure, as header.h. docs/internals/records.md argues why a reader that validates a record
 * never gets a torn, foreign or older value.
 */
#ifndef FORMAT_RECORD_H
#define FORMAT_RECORD_H

#include "format/value.h"

#define FORMAT_PIECE_MAX           65536u /* bytes of a piece that has a block */
#define FORMAT_PIECES_MAX          3072u  /* of one value: the room of FORMAT_ROOM_MAX */
#define FORMAT_PIECE_ENTRY         20u    /* bytes of a piece in the header */
#define FORMAT_RECORD_HEADER_FIXED 37u
#define FORMAT_RECORD_HEADER_MAX                                                                             \
    (FORMAT_RECORD_HEADER_FIXED + FORMAT_KEY_MAX + FORMAT_PIECE_ENTRY * FORMAT_PIECES_MAX)

struct format_record {
    const void *key;
    size_t key_length;
    uint64_t stamp;
    uint64_t expires;
    const uint8_t *value; /* NULL: it is in pieces, or the header alone was read */
    uint64_t length;      /* of the value */
    uint64_t value_hash;  /* of a value that follows the header */
    uint32_t pieces;      /* 0: the value follows the header */
};
struct format_piece {
    gaddr block; /* GADDR_NULL: zeros */
    uint64_t hash;
    uint32_t length;
    bool behind; /* a record's header of the same key */
};
enum format_part { FORMAT_PART_HEADER, FORMAT_PART_VALUE };

/* ---- sizes: `length` is the value's ---- */

/* Whether the value is too long to follow its header. A shorter one may lie in pieces too. */
bool format_record_long(size_t key_length, uint64_t length);
/* Pieces are at most so long where a value is cut anew: a longer value has longer ones, so that its header
 * stays small. */
uint32_t format_record_grain(uint64_t length);
/* The least room for so many pieces (1 to FORMAT_PIECES_MAX), and for how many a room (1 to FORMAT_ROOM_MAX)
 * suffices. */
uint8_t format_record_room(uint32_t pieces);
uint32_t format_record_room_pieces(uint8_t room);
uint32_t format_record_header_bytes(size_t key_length, uint8_t room);
/* Of the block that begins with the header. */
uint32_t format_record_block_bytes(size_t key_length, const struct format_reference *reference);
/* The same of a record whose value follows its header. */
static inline uint32_t format_record_whole_bytes(size_t key_length, uint64_t length)
{
    return FORMAT_RECORD_HEADER_FIXED + (uint32_t)key_length + (uint32_t)length;
}
/* What has to be read of that block for this part. */
uint32_t format_record_read_bytes(size_t key_length, const struct format_reference *reference,
                                  enum format_part part);
/* Of the piece's block; 0 where it has none. */
uint32_t format_piece_block_bytes(size_t key_length, const struct format_piece *piece);
/* Where the piece's bytes begin. */
gaddr format_piece_address(size_t key_length, const struct format_piece *piece);

/* ---- writing ---- */

/* The header, and the reference to it, of a record whose value follows it and has the hash
 * record->value_hash. */
void format_record_encode_header(uint8_t *header, gaddr address, const struct format_record *record,
                                 struct format_reference *reference);
/* The whole block of a record whose value follows the header, as it will lie at `address`, and the reference
 * to it. */
void format_record_encode(uint8_t *block, gaddr address, const struct format_record *record,
                          struct format_reference *reference);
/* With pieces (record->pieces of them): first this, then each piece, then the seal. */
void format_record_begin(uint8_t *header, const struct format_record *record);
void format_record_piece_set(uint8_t *header, size_t key_length, uint32_t number,
                             const struct format_piece *piece);
void format_record_seal(uint8_t *header, gaddr address, const struct format_record *record,
                        struct format_reference *reference);
/* Of a value, or of one of its pieces. */
uint64_t format_record_hash(const uint8_t *bytes, size_t length);
/* The same of one that is copied, in one pass: out of memory that others may write meanwhile, or into memory
 * that others may read. It is the hash of the copy. */
uint64_t format_record_copy_from(uint8_t *to, const uint8_t *shared, size_t length);
uint64_t format_record_copy_to(uint8_t *shared, const uint8_t *from, size_t length);

/* ---- reading ---- */

/* True if the block, of which the part was read, is the record that the reference names, with this key. With
 * FORMAT_PART_VALUE a value in the block is validated too; one in pieces never is, their hashes are for that,
 * but their lengths are possible ones and come to the value's. record->value points into `block`. */
bool format_record_validate(const struct format_reference *reference, const void *key, size_t key_length,
                            enum format_part part, const uint8_t *block, struct format_record *record);
/* Of a valid header. */
struct format_piece format_record_piece(const uint8_t *header, size_t key_length, uint32_t number);

#endif
