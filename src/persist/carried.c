/* carried.c - see carried.h. */
#include "persist/carried.h"

#include <stdlib.h>

#include "persist/places.h"

struct part_key {
    gaddr address;
    uint64_t instance, first, offset;
};

struct part {
    struct part_key key;
    gaddr at;
    uint64_t length;
};

struct persist_carried {
    struct places parts; /* owned */
};

struct persist_carried *persist_carried_create(void)
{
    struct persist_carried *carried = calloc(1, sizeof *carried);
    if (carried)
        carried->parts =
            (struct places){.key_bytes = sizeof(struct part_key), .item_bytes = sizeof(struct part)};
    return carried;
}

void persist_carried_destroy(struct persist_carried *carried)
{
    if (!carried)
        return;
    places_clear(&carried->parts);
    free(carried);
}

void persist_carried_clear(struct persist_carried *carried)
{
    places_clear(&carried->parts);
}

bool persist_carried_add(struct persist_carried *carried, uint64_t instance, uint64_t first,
                         const struct format_log_part *part, gaddr at)
{
    const struct part_key key = {part->address, instance, first, part->offset};
    if (part->address == GADDR_NULL)
        return true; /* no record lies there */
    struct part *place = places_put(&carried->parts, &key);
    if (!place)
        return false;
    place->at = at;
    place->length = part->length;
    return true;
}

bool persist_carried_find(const struct persist_carried *carried, uint64_t instance, uint64_t first,
                          gaddr address, uint32_t offset, uint32_t *length, gaddr *at)
{
    const struct part_key key = {address, instance, first, offset};
    const struct part *place = address == GADDR_NULL ? NULL : places_find(&carried->parts, &key);
    if (!place)
        return false;
    *length = (uint32_t)place->length;
    *at = place->at;
    return true;
}
