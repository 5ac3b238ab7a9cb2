/*
 * value.c - See value.h.
 */
#include "format/value.h"

#include <assert.h>
#include <string.h>

enum value_kind { VALUE_INLINE = 1, VALUE_INLINE_EXPIRES = 2, VALUE_RECORD = 3, VALUE_RECORD_EXPIRES = 4 };

#define LENGTH_BITS 27
#define ROOM_MASK   UINT64_C(31) /* of an address: blocks begin at multiples of 32 */

uint64_t format_reference_check(uint64_t hash)
{
    return hash >> LENGTH_BITS;
}

static bool decode_inline(const uint8_t *bytes, size_t length, struct format_value *value)
{
    size_t front = bytes[0] == VALUE_INLINE ? 1 : 9;
    if (length < front)
        return false;
    *value = (struct format_value){.length = (uint32_t)(length - front), .bytes = bytes + front};
    if (front == 9)
        memcpy(&value->expires, bytes + 1, 8);
    return front == 1 || value->expires;
}

static bool decode_record(const uint8_t *bytes, size_t length, struct format_value *value)
{
    uint64_t word;
    if (length != FORMAT_REFERENCE_BYTES)
        return false;
    *value = (struct format_value){.record = true, .reference.expires = bytes[0] == VALUE_RECORD_EXPIRES};
    memcpy(&word, bytes + 1, 8);
    value->reference.address = word & ~ROOM_MASK;
    value->reference.room = (uint8_t)(word & ROOM_MASK);
    memcpy(&word, bytes + 9, 8);
    value->length = (uint32_t)(word & ((UINT64_C(1) << LENGTH_BITS) - 1));
    value->reference.length = value->length;
    value->reference.check = word >> LENGTH_BITS;
    return value->reference.address && value->reference.room <= FORMAT_ROOM_MAX &&
           value->length <= (value->reference.room ? FORMAT_RECORD_VALUE_MAX : FORMAT_RECORD_BLOCK_MAX);
}

bool format_value_decode(const uint8_t *bytes, size_t length, struct format_value *value)
{
    if (!length)
        return false;
    switch (bytes[0]) {
    case VALUE_INLINE:
    case VALUE_INLINE_EXPIRES:
        return decode_inline(bytes, length, value);
    case VALUE_RECORD:
    case VALUE_RECORD_EXPIRES:
        return decode_record(bytes, length, value);
    default:
        return false;
    }
}

uint8_t format_value_encode_inline(uint8_t *to, const uint8_t *bytes, size_t length, uint64_t expires)
{
    size_t front = expires ? 9 : 1;
    assert(front + length <= FORMAT_VALUE_MAX);
    to[0] = expires ? VALUE_INLINE_EXPIRES : VALUE_INLINE;
    if (expires)
        memcpy(to + 1, &expires, 8);
    if (length)
        memcpy(to + front, bytes, length);
    return (uint8_t)(front + length);
}

uint8_t format_value_encode_reference(uint8_t *to, const struct format_reference *reference)
{
    assert(reference->address != GADDR_NULL && reference->length <= FORMAT_RECORD_VALUE_MAX);
    assert(!(reference->address & ROOM_MASK) && reference->room <= FORMAT_ROOM_MAX);
    uint64_t word = reference->length | reference->check << LENGTH_BITS;
    uint64_t place = reference->address | reference->room;
    to[0] = reference->expires ? VALUE_RECORD_EXPIRES : VALUE_RECORD;
    memcpy(to + 1, &place, 8);
    memcpy(to + 9, &word, 8);
    return FORMAT_REFERENCE_BYTES;
}
