/*
 * slot.h - a private copy of what a key's slot in the index held, to be compared with what it holds later.
 * Private to src/store/. format/value.h says what the bytes mean.
 */
#ifndef STORE_SLOT_H
#define STORE_SLOT_H

#include "format/value.h"
#include "store/store.h"

struct store_raw {
    bool present; /* else the key has no slot */
    uint8_t length;
    uint8_t bytes[FORMAT_VALUE_MAX];
};

/* Whether the value goes into the slot itself. */
bool store_slot_fits(const struct store *store, uint64_t length, uint64_t expires);
/* The value must fit. */
void store_slot_inline(struct store_raw *raw, const struct store_value *value);
void store_slot_record(struct store_raw *raw, const struct format_reference *reference);
void store_raw_set(struct store_raw *raw, const void *bytes, size_t length); /* bytes NULL: no slot */
bool store_raw_equal(const struct store_raw *raw, const void *bytes, size_t length);

#endif
