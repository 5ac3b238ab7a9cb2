/*
 * slot.c - what a key's slot in the index holds. Pure functions; nothing here trusts the bytes.
 *
 *   byte 0: kind
 *   inline           the value's bytes
 *   inline, expires  u64 expiry, the value's bytes
 *   record           u64 address of its head, u64: 27 bits of the value's length, 37 of the head's hash
 *   record, expires  the same; the kind tells a reader that it must look into the head
 *
 * The length of a value is thus known without reading it. Integers are little-endian.
 */
#include "store/slot.h"
#include "store/session.h"

#include <string.h>

enum slot_kind { SLOT_INLINE = 1, SLOT_INLINE_EXPIRES = 2, SLOT_RECORD = 3, SLOT_RECORD_EXPIRES = 4 };

#define LENGTH_BITS 27

uint64_t store_slot_check(uint64_t hash)
{
    return hash >> LENGTH_BITS;
}

static bool decode_inline(const uint8_t *bytes, size_t length, struct store_slot *slot)
{
    size_t head = bytes[0] == SLOT_INLINE ? 1 : 9;
    if (length < head)
        return false;
    *slot = (struct store_slot){.length = (uint32_t)(length - head), .bytes = bytes + head};
    if (head == 9)
        memcpy(&slot->expires, bytes + 1, 8);
    return head == 1 || slot->expires;
}

static bool decode_record(const uint8_t *bytes, size_t length, struct store_slot *slot)
{
    uint64_t word;
    if (length != STORE_SLOT_RECORD_BYTES)
        return false;
    *slot = (struct store_slot){.record = true, .reference.expires = bytes[0] == SLOT_RECORD_EXPIRES};
    memcpy(&slot->reference.address, bytes + 1, 8);
    memcpy(&word, bytes + 9, 8);
    slot->length = (uint32_t)(word & ((UINT64_C(1) << LENGTH_BITS) - 1));
    slot->reference.length = slot->length;
    slot->reference.check = word >> LENGTH_BITS;
    return slot->reference.address && slot->length <= STORE_VALUE_MAX;
}

bool store_slot_decode(const uint8_t *bytes, size_t length, struct store_slot *slot)
{
    if (!length)
        return false;
    switch (bytes[0]) {
    case SLOT_INLINE:
    case SLOT_INLINE_EXPIRES:
        return decode_inline(bytes, length, slot);
    case SLOT_RECORD:
    case SLOT_RECORD_EXPIRES:
        return decode_record(bytes, length, slot);
    default:
        return false;
    }
}

bool store_slot_fits(const struct store *store, uint64_t length, uint64_t expires)
{
    return length + (expires ? 9 : 1) <= store->slot_bytes;
}

void store_slot_inline(struct store_raw *raw, const struct store_value *value)
{
    size_t head = value->expires ? 9 : 1;
    raw->present = true;
    raw->length = (uint8_t)(head + value->length);
    raw->bytes[0] = value->expires ? SLOT_INLINE_EXPIRES : SLOT_INLINE;
    if (value->expires)
        memcpy(raw->bytes + 1, &value->expires, 8);
    if (value->length)
        memcpy(raw->bytes + head, value->bytes, value->length);
}

void store_slot_record(struct store_raw *raw, const struct store_reference *reference)
{
    uint64_t word = reference->length | reference->check << LENGTH_BITS;
    raw->present = true;
    raw->length = STORE_SLOT_RECORD_BYTES;
    raw->bytes[0] = reference->expires ? SLOT_RECORD_EXPIRES : SLOT_RECORD;
    memcpy(raw->bytes + 1, &reference->address, 8);
    memcpy(raw->bytes + 9, &word, 8);
}

void store_raw_set(struct store_raw *raw, const void *bytes, size_t length)
{
    raw->present = bytes != NULL;
    raw->length = (uint8_t)length;
    if (bytes && length)
        memcpy(raw->bytes, bytes, length);
}

bool store_raw_equal(const struct store_raw *raw, const void *bytes, size_t length)
{
    if (!bytes || !raw->present)
        return !bytes && !raw->present;
    return raw->length == length && !memcmp(raw->bytes, bytes, length);
}
