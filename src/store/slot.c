/*
 * slot.c - See slot.h.
 */
#include "store/slot.h"
#include "store/session.h"

#include <assert.h>
#include <string.h>

bool store_slot_fits(const struct store *store, uint64_t length, uint64_t expires)
{
    return format_value_inline_bytes(length, expires) <= store->slot_bytes;
}

void store_slot_inline(struct store_raw *raw, const struct store_value *value)
{
    assert(format_value_inline_bytes(value->length, value->expires) <= sizeof raw->bytes);
    raw->present = true;
    raw->length = format_value_encode_inline(raw->bytes, value->bytes, value->length, value->expires);
}

void store_slot_record(struct store_raw *raw, const struct format_reference *reference)
{
    raw->present = true;
    raw->length = format_value_encode_reference(raw->bytes, reference);
}

void store_raw_set(struct store_raw *raw, const void *bytes, size_t length)
{
    assert(length <= sizeof raw->bytes);
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
