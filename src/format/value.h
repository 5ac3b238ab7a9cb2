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
 * The length of a value is thus known without reading its record. Integers are little-endian. Pure, as
 * header.h.
 */
#ifndef FORMAT_VALUE_H
#define FORMAT_VALUE_H

#include "fabric/fabric.h"
#include "format/geometry.h"

#define FORMAT_RECORD_VALUE_MAX (UINT64_C(64) << 20) /* bytes of a value that a record can hold */
#define FORMAT_REFERENCE_BYTES  17u                  /* what the index's values must have room for */

/* What a slot says of a record. */
struct format_reference {
    gaddr address;
    uint64_t check;  /* upper bits of the hash in the record's header */
    uint32_t length; /* of the value: with the key's length it gives every other size */
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
