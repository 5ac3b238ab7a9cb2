/*
 * record.h - how a value outside of the index lies in the pool: its record, a block of memory that begins
 * with a header, and for long values further blocks, the extents.
 *
 * Header:
 *   u64 hash         XXH3-64 of the header behind it, seeded with the block's address
 *   u64 stamp        different for each record ever written: no two headers are equal
 *   u64 expires      ms since 1970; 0: never
 *   u64 value hash   XXH3-64 of a value that follows in the block; 0 for one in extents
 *   u32 length       of the value
 *   u8 length        of the key
 *   key
 *   extents          {u64 address, u64 hash} each, where a block with the value would be longer than 64 KiB
 * Behind the header follows the value, unless it is in extents. Integers are little-endian and packed.
 *
 * Everything but the stamp, the expiry, the hashes and the addresses follows from the key and the reference
 * in the slot (value.h), so a reader knows how much it will read before it reads. The header proves itself
 * without the value. Pure, as header.h. docs/internals/records.md argues why a reader that validates a record
 * never gets a torn, foreign or older value.
 */
#ifndef FORMAT_RECORD_H
#define FORMAT_RECORD_H

#include "format/value.h"

#define FORMAT_EXTENT_BYTES        FABRIC_LENGTH_MAX /* of all but a value's last extent */
#define FORMAT_EXTENTS_MAX         64u
#define FORMAT_RECORD_HEADER_FIXED 37u
#define FORMAT_RECORD_HEADER_MAX   (FORMAT_RECORD_HEADER_FIXED + FORMAT_KEY_MAX + 16u * FORMAT_EXTENTS_MAX)

struct format_record {
    const void *key;
    size_t key_length;
    uint64_t stamp;
    uint64_t expires;
    const uint8_t *value; /* NULL: it is in extents, or the header alone was read */
    uint64_t length;      /* of the value */
};
struct format_extent {
    gaddr address;
    uint64_t hash;
};
enum format_part { FORMAT_PART_HEADER, FORMAT_PART_VALUE };

/* ---- sizes: `length` is the value's ---- */

/* 0: the value follows the header in its block. */
uint32_t format_record_extents(size_t key_length, uint64_t length);
uint32_t format_record_extent_bytes(uint64_t length, uint32_t number);
uint32_t format_record_header_bytes(size_t key_length, uint64_t length);
/* Of the block that begins with the header. */
uint32_t format_record_block_bytes(size_t key_length, uint64_t length);
/* What has to be read of that block for this part. */
uint32_t format_record_read_bytes(size_t key_length, const struct format_reference *reference,
                                  enum format_part part);

/* ---- writing ---- */

/* The whole block of a record without extents, as it will lie at `address`, and the reference to it. */
void format_record_encode(uint8_t *block, gaddr address, const struct format_record *record,
                          struct format_reference *reference);
/* With extents: first this, then each extent's address and hash, then the seal. */
void format_record_begin(uint8_t *header, const struct format_record *record);
void format_record_extent_set(uint8_t *header, size_t key_length, uint32_t number,
                              struct format_extent extent);
void format_record_seal(uint8_t *header, gaddr address, const struct format_record *record,
                        struct format_reference *reference);
/* Of a value, or of one of its extents. */
uint64_t format_record_hash(const uint8_t *bytes, size_t length);

/* ---- reading ---- */

/* True if the block, of which the part was read, is the record that the reference names, with this key. With
 * FORMAT_PART_VALUE a value in the block is validated too; one in extents never is, their hashes are for
 * that. record->value points into `block`. */
bool format_record_validate(const struct format_reference *reference, const void *key, size_t key_length,
                            enum format_part part, const uint8_t *block, struct format_record *record);
/* Of a valid header. */
struct format_extent format_record_extent(const uint8_t *header, size_t key_length, uint32_t number);

#endif
