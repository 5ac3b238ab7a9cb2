/* carried.c - see carried.h: open addressing, at most two of three places taken. */
#include "persist/carried.h"

#include <stdlib.h>

#include "base/random.h"

#define PLACES_FIRST 64u

struct place {
    uint64_t instance, first;
    gaddr address, at; /* GADDR_NULL: free */
    uint32_t offset, length;
};

struct persist_carried {
    struct place *places; /* owned; NULL: none */
    uint64_t capacity, count;
};

struct persist_carried *persist_carried_create(void)
{
    return calloc(1, sizeof(struct persist_carried));
}

void persist_carried_destroy(struct persist_carried *carried)
{
    if (!carried)
        return;
    free(carried->places);
    free(carried);
}

void persist_carried_clear(struct persist_carried *carried)
{
    if (!carried->count)
        return;
    free(carried->places);
    *carried = (struct persist_carried){0};
}

/* Where the part stands, or is to stand. There is a free place. */
static struct place *find(const struct persist_carried *carried, const struct place *part)
{
    const uint64_t hash = random_mix(part->address + part->offset) ^ random_mix(part->first ^ part->instance);
    uint64_t at = hash & (carried->capacity - 1);
    for (;; at = (at + 1) & (carried->capacity - 1)) {
        struct place *place = &carried->places[at];
        if (place->address == GADDR_NULL ||
            (place->address == part->address && place->offset == part->offset &&
             place->first == part->first && place->instance == part->instance))
            return place;
    }
}

static bool grow(struct persist_carried *carried)
{
    struct persist_carried grown = {.capacity = carried->capacity ? 2 * carried->capacity : PLACES_FIRST,
                                    .count = carried->count};
    grown.places = calloc(grown.capacity, sizeof *grown.places);
    if (!grown.places)
        return false;
    for (uint64_t i = 0; i < carried->capacity; i++)
        if (carried->places[i].address != GADDR_NULL)
            *find(&grown, &carried->places[i]) = carried->places[i];
    free(carried->places);
    *carried = grown;
    return true;
}

bool persist_carried_add(struct persist_carried *carried, uint64_t instance, uint64_t first,
                         const struct format_log_part *part, gaddr at)
{
    const struct place made = {.instance = instance,
                               .first = first,
                               .address = part->address,
                               .at = at,
                               .offset = part->offset,
                               .length = part->length};
    if (part->address == GADDR_NULL)
        return true; /* no record lies there */
    if (3 * (carried->count + 1) > 2 * carried->capacity && !grow(carried))
        return false;
    struct place *place = find(carried, &made);
    carried->count += place->address == GADDR_NULL;
    *place = made;
    return true;
}

bool persist_carried_find(const struct persist_carried *carried, uint64_t instance, uint64_t first,
                          gaddr address, uint32_t offset, uint32_t *length, gaddr *at)
{
    const struct place wanted = {.instance = instance, .first = first, .address = address, .offset = offset};
    if (!carried->capacity || address == GADDR_NULL)
        return false;
    const struct place *place = find(carried, &wanted);
    *length = place->length;
    *at = place->at;
    return place->address != GADDR_NULL;
}
