/*
 * slot.h - what a key's slot in the index holds: a short value, or a reference to a record. Private to
 * src/store/. Pure functions; nothing here trusts the bytes.
 */
#ifndef STORE_SLOT_H
#define STORE_SLOT_H

#include "store/store.h"

#define STORE_SLOT_RECORD_BYTES 17u /* what a geometry must have room for */

/* What a slot says of a record. */
struct store_reference {
    gaddr address;
    uint64_t check;  /* upper bits of the head's hash */
    uint32_t length; /* of the value: with the key's it gives every other size */
    bool expires;    /* when, stands in the record's head */
};

struct store_slot {
    bool record;
    uint32_t length;  /* of the value */
    uint64_t expires; /* inline values; 0: never */
    const uint8_t *bytes;
    struct store_reference reference;
};

/* A slot's bytes as they stand in the index, or that there is none. */
struct store_raw {
    bool present;
    uint8_t length;
    uint8_t bytes[FORMAT_VALUE_MAX];
};

/* False if no store wrote this. slot->bytes points into `bytes`. */
bool store_slot_decode(const uint8_t *bytes, size_t length, struct store_slot *slot);
bool store_slot_fits(const struct store *store, uint64_t length, uint64_t expires);
void store_slot_inline(struct store_raw *raw, const struct store_value *value);
void store_slot_record(struct store_raw *raw, const struct store_reference *reference);
/* The part of a head's hash that references carry. */
uint64_t store_slot_check(uint64_t hash);
void store_raw_set(struct store_raw *raw, const void *bytes, size_t length); /* bytes NULL: none */
bool store_raw_equal(const struct store_raw *raw, const void *bytes, size_t length);

#endif
