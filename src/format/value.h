/*
 * value.h - what a store keeps as the index's value of a key: a short value itself, or a reference to a
 * record (record.h).
 *
 *   byte 0: kind
 *   inline           the value's bytes
 *   inline, expires  u64 expiry, the value's bytes
 *   record           u64 address of the record, u64: 27 bits of the value's length, 37 of the header's hash
 *   record, expires  the same; the kind tells a reader that the record's header says when
 *
 * Blocks begin at multiples of 32. The 5 low bits of a record's address are its `room`: 0 if the value
 * follows the record's header in its block, else the number of pieces that its header has room for, as
 * format_record_room_pieces has it. So the length of a value, and how much has to be read of its record's
 * block, are known before the record is read. Integers are little-endian. Pure, as header.h.
 */
#ifndef FORMAT_VALUE_H
#define FORMAT_VALUE_H

#include "fabric/fabric.h"
#include "format/geometry.h"

#define FORMAT_RECORD_VALUE_MAX (UINT64_C(64) << 20) /* bytes of a value that a record can hold */
#define FORMAT_REFERENCE_BYTES  17u                  /* what the index's values must have room for */
#define FORMAT_RECORD_BLOCK_MAX 65536u               /* header and value in one block */
#define FORMAT_ROOM_MAX         22u

/* What a slot says of a record. */
struct format_reference {
    gaddr address;
    uint64_t check;  /* upper bits of the hash in the record's header */
    uint32_t length; /* of the value: with `room` and the key's length it gives every other size */
    uint8_t room;    /* 0: the value follows the header; else it is in pieces */
    bool expires;    /* the record's header says when */
};

struct format_value {
    bool record;
    uint32_t length;      /* of the value */
    uint64_t expires;     /* inline values: ms since 1970; 0: never */
    const uint8_t *bytes; /* inline values */
    struct format_reference reference;
};

/* False if no store wrote these bytes. value->bytes points into them. */
bool format_value_decode(const uint8_t *bytes, size_t length, struct format_value *value);
/* Bytes that the value takes inline. */
static inline uint64_t format_value_inline_bytes(uint64_t length, uint64_t expires)
{
    return length + (expires ? 9 : 1);
}
/* Both return the number of bytes written. */
uint8_t format_value_encode_inline(uint8_t *to, const uint8_t *bytes, size_t length, uint64_t expires);
uint8_t format_value_encode_reference(uint8_t *to, const struct format_reference *reference);
/* The part of a header's hash that references carry. */
uint64_t format_reference_check(uint64_t hash);

#endif
