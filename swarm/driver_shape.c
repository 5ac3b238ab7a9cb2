/* driver_shape.c - keys and values as bytes, and their numbers back (contract: driver.h). */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swarm/driver.h"

/* Fixed keys: the number, big-endian, in the first eight bytes, then bytes made from it. Variable keys: a
 * prefix that many share, the number as text, and a tail whose length depends on it. */
size_t driver_key(const struct driver_shape *shape, uint64_t number, uint8_t key[FORMAT_KEY_MAX])
{
    if (shape->fixed_keys) {
        for (unsigned i = 0; i < 8; i++)
            key[i] = (uint8_t)(number >> (56 - 8 * i));
        for (unsigned i = 8; i < shape->key_bytes; i++)
            key[i] = (uint8_t)(random_mix(number) >> (i % 8 * 8));
        return shape->key_bytes;
    }
    int length = snprintf((char *)key, FORMAT_KEY_MAX, "k%012" PRIu64, number);
    uint64_t tail = random_mix(number) % 9;
    if (shape->long_keys && random_mix(number + 7) % 3 == 0)
        tail = random_mix(number) % (shape->key_bytes - 12u);
    for (unsigned i = 0; i < tail; i++)
        key[length++] = (uint8_t)('a' + i % 26);
    return (size_t)length;
}

uint64_t driver_key_number(const struct driver_shape *shape, const uint8_t *key, size_t length)
{
    uint64_t number = 0;
    uint8_t again[FORMAT_KEY_MAX];
    if (shape->fixed_keys) {
        for (unsigned i = 0; i < 8 && i < length; i++)
            number = number << 8 | key[i];
    } else {
        for (unsigned i = 1; i < 13 && i < length; i++)
            number = number * 10 + (uint64_t)(key[i] - '0');
    }
    size_t expected = driver_key(shape, number, again);
    return expected == length && memcmp(again, key, length) == 0 ? number : UINT64_MAX;
}

/* Length of a record: some fit the slot, some take blocks of a few sizes that are soon reused, some are
 * larger, some need pieces. */
static size_t record_length(uint64_t number)
{
    uint64_t mixed = random_mix(number ^ UINT64_C(0x1e46));
    uint64_t more = mixed >> 8;
    switch (mixed % 32) {
    case 0:
        return 66000 + more % (DRIVER_RECORD_MAX - 66000);
    case 1:
    case 2:
    case 3:
        return 1000 + more % 8000;
    default:
        return mixed % 2 ? 100 + more % 60 : 8 + more % 9;
    }
}

static size_t value_length(const struct driver_shape *shape, uint64_t number)
{
    if (shape->records)
        return record_length(number);
    size_t length = shape->value_bytes;
    return shape->value_variable && length > 8 ? 8 + random_mix(number) % (length - 7) : length;
}

static uint64_t value_word(uint64_t number, size_t at)
{
    return at ? random_mix(number * UINT64_C(0x9e3779b97f4a7c15) + at) : number;
}

size_t driver_value(const struct driver_shape *shape, uint64_t number, uint8_t *value)
{
    size_t length = value_length(shape, number);
    for (size_t at = 0; at < length; at += 8) {
        uint64_t word = htole64(value_word(number, at));
        memcpy(value + at, &word, length - at < 8 ? length - at : 8);
    }
    return length;
}

uint64_t driver_value_number(const struct driver_shape *shape, const uint8_t *value, size_t length)
{
    uint64_t number = 0;
    memcpy(&number, value, length < 8 ? length : 8);
    number = le64toh(number);
    if (!number || length != value_length(shape, number))
        return 0;
    for (size_t at = 8; at < length; at += 8) {
        uint64_t word = htole64(value_word(number, at));
        if (memcmp(value + at, &word, length - at < 8 ? length - at : 8) != 0)
            return 0;
    }
    return number;
}
