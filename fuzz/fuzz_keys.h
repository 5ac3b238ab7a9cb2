/*
 * fuzz_keys.h - keys out of the input for the fuzzers of ordered maps: few bytes of input, but all that makes
 * a difference to an index: short and longest ones, none and too long ones, equal prefixes, 0x00 and 0xff,
 * neighbours of each other, runs of numbers, and again and again those that are there already.
 */
#ifndef FUZZ_KEYS_H
#define FUZZ_KEYS_H

#include "fuzz/fuzz.h"
#include "swarm/reference.h"

#define FUZZ_KEY_ROOM 300u /* more than any key may have */

struct fuzz_key {
    size_t length;
    uint8_t bytes[FUZZ_KEY_ROOM];
};

/* What keys of a map look like. */
struct fuzz_keys {
    size_t longest;  /* FORMAT_KEY_MAX at most */
    bool fixed;      /* all have `longest` bytes */
    uint8_t padding; /* of fixed keys */
};

/* A number as 4 bytes behind `shared` equal ones: so do runs of keys come about. */
static inline void fuzz_key_number(const struct fuzz_keys *keys, struct fuzz_key *key, uint8_t prefix,
                                   size_t shared, uint32_t number)
{
    key->length = keys->longest;
    memset(key->bytes, keys->padding, sizeof key->bytes);
    if (keys->longest < 4) {
        key->bytes[0] = (uint8_t)number;
        key->length = 1;
        return;
    }
    shared = shared < keys->longest - 4 ? shared : keys->longest - 4;
    memset(key->bytes, prefix, shared);
    for (size_t i = 0; i < 4; i++)
        key->bytes[shared + i] = (uint8_t)(number >> (24 - 8 * i));
    if (!keys->fixed)
        key->length = shared + 4;
}

/* Beside one that is there. */
static inline void fuzz_key_neighbour(struct fuzz_input *input, struct fuzz_key *key)
{
    uint8_t how = fuzz_byte(input);
    if (how % 4 == 0 && key->length < FUZZ_KEY_ROOM)
        key->bytes[key->length++] = how / 4;
    else if (how % 4 == 1 && key->length)
        key->length -= 1 + how / 4 % key->length;
    else if (key->length)
        key->bytes[how / 4 % key->length] =
            (uint8_t)(key->bytes[how / 4 % key->length] + (how & 1 ? 1 : 255));
}

/* Mostly such that the map takes it; see fuzz_key_fits. */
static inline void fuzz_take_key(struct fuzz_input *input, const struct fuzz_keys *keys,
                                 const struct reference *there, struct fuzz_key *key)
{
    uint8_t how = fuzz_byte(input);
    const struct reference_entry *entry =
        there->count ? there->entries[fuzz_u16(input) % there->count] : NULL;
    *key = (struct fuzz_key){0};
    switch (entry ? how % 8 : 2 + how % 6) {
    case 0:
    case 1:
        key->length = entry->key_length;
        memcpy(key->bytes, entry->bytes, key->length);
        if (how % 8 == 1)
            fuzz_key_neighbour(input, key);
        break;
    case 2: /* short */
        key->length = how / 8 % 5;
        fuzz_take(input, key->bytes, key->length);
        break;
    case 3: /* what many have in common */
        key->length = fuzz_byte(input);
        memset(key->bytes, "a\0\xffz"[how / 8 % 4], key -> length);
        if (key->length)
            key->bytes[key->length - 1] = fuzz_byte(input);
        break;
    case 4: /* the longest, and beyond */
        key->length = how < 240 ? keys->longest : keys->longest + 1u;
        memset(key->bytes, how & 64 ? 0xff : 0, key->length);
        fuzz_take(input, key->bytes + (how & 128 ? key->length - 2 : 0), 2);
        break;
    case 5:
        key->length = fuzz_byte(input) % (keys->longest + 1);
        fuzz_take(input, key->bytes, key->length);
        break;
    default:
        fuzz_key_number(keys, key, how, how / 8, fuzz_u16(input));
        return;
    }
    if (keys->fixed && how < 250) {
        if (key->length < keys->longest)
            memset(key->bytes + key->length, keys->padding, keys->longest - key->length);
        key->length = keys->longest;
    } else if (key->length > keys->longest && how < 250) {
        key->length = keys->longest;
    }
}

static inline bool fuzz_key_fits(const struct fuzz_keys *keys, const struct fuzz_key *key)
{
    return keys->fixed ? key->length == keys->longest : key->length && key->length <= keys->longest;
}

#endif
