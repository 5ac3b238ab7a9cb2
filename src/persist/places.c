/* places.c - see places.h. */
#include "persist/places.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

#define PLACES_FIRST 64u

static uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static uint8_t *item_at(const struct places *places, uint64_t number)
{
    return places->items + number * places->item_bytes;
}

static bool is_free(const uint8_t *item)
{
    return !word_at(item);
}

/* Where the key stands, or is to stand. There is a free place. */
static uint8_t *look(const struct places *places, const uint8_t *key)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < places->key_bytes; i += 8)
        hash = random_mix(hash ^ word_at(key + i));
    for (;; hash++) {
        uint8_t *item = item_at(places, hash & (places->capacity - 1));
        if (is_free(item) || !memcmp(item, key, places->key_bytes))
            return item;
    }
}

static bool grow(struct places *places)
{
    struct places grown = *places;
    grown.capacity = places->capacity ? 2 * places->capacity : PLACES_FIRST;
    grown.items = calloc(grown.capacity, grown.item_bytes);
    if (!grown.items)
        return false;
    for (uint64_t i = 0; i < places->capacity; i++) {
        const uint8_t *item = item_at(places, i);
        if (!is_free(item))
            memcpy(look(&grown, item), item, grown.item_bytes);
    }
    free(places->items);
    *places = grown;
    return true;
}

void *places_find(const struct places *places, const void *key)
{
    uint8_t *item = places->count ? look(places, key) : NULL;
    return item && !is_free(item) ? item : NULL;
}

void *places_put(struct places *places, const void *key)
{
    assert(word_at(key) && places->key_bytes % 8 == 0 && places->item_bytes % 8 == 0 &&
           places->key_bytes <= places->item_bytes);
    if (3 * (places->count + 1) > 2 * places->capacity && !grow(places))
        return NULL;
    uint8_t *item = look(places, key);
    if (is_free(item)) {
        memcpy(item, key, places->key_bytes);
        places->count++;
    }
    return item;
}

void *places_next(const struct places *places, uint64_t *at)
{
    while (*at < places->capacity) {
        uint8_t *item = item_at(places, (*at)++);
        if (!is_free(item))
            return item;
    }
    return NULL;
}

void places_clear(struct places *places)
{
    free(places->items);
    places->items = NULL;
    places->capacity = places->count = 0;
}
