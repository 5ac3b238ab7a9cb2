/* pieces.c - see pieces.h: open addressing, at most two of three places taken. */
#include "persist/pieces.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

#define PLACES_FIRST 64u

struct place {
    gaddr address; /* GADDR_NULL: free */
    uint64_t hash;
};

struct persist_pieces {
    struct place *places; /* owned; NULL: none */
    uint64_t capacity, count;
};

struct persist_pieces *persist_pieces_create(void)
{
    return calloc(1, sizeof(struct persist_pieces));
}

void persist_pieces_destroy(struct persist_pieces *pieces)
{
    if (!pieces)
        return;
    free(pieces->places);
    free(pieces);
}

/* Where the address stands, or is to stand. There is a free place. */
static struct place *find(const struct persist_pieces *pieces, gaddr address)
{
    uint64_t at = random_mix(address) & (pieces->capacity - 1);
    while (pieces->places[at].address != GADDR_NULL && pieces->places[at].address != address)
        at = (at + 1) & (pieces->capacity - 1);
    return &pieces->places[at];
}

bool persist_pieces_have(const struct persist_pieces *pieces, gaddr address, uint64_t hash)
{
    if (!pieces->capacity)
        return false;
    const struct place *place = find(pieces, address);
    return place->address == address && place->hash == hash;
}

static bool grow(struct persist_pieces *pieces)
{
    struct persist_pieces grown = {.capacity = pieces->capacity ? 2 * pieces->capacity : PLACES_FIRST,
                                   .count = pieces->count};
    grown.places = calloc(grown.capacity, sizeof *grown.places);
    if (!grown.places)
        return false;
    for (uint64_t i = 0; i < pieces->capacity; i++)
        if (pieces->places[i].address != GADDR_NULL)
            *find(&grown, pieces->places[i].address) = pieces->places[i];
    free(pieces->places);
    *pieces = grown;
    return true;
}

bool persist_pieces_add(struct persist_pieces *pieces, gaddr address, uint64_t hash)
{
    assert(address != GADDR_NULL);
    if (3 * (pieces->count + 1) > 2 * pieces->capacity && !grow(pieces))
        return false;
    struct place *place = find(pieces, address);
    pieces->count += place->address == GADDR_NULL;
    *place = (struct place){address, hash};
    return true;
}

void persist_pieces_clear(struct persist_pieces *pieces)
{
    free(pieces->places);
    *pieces = (struct persist_pieces){0};
}
