/* pieces.c - see pieces.h. */
#include "persist/pieces.h"

#include <assert.h>
#include <stdlib.h>

#include "persist/places.h"

struct piece {
    gaddr address;
    uint64_t hash;
    uint64_t there; /* 0: not any more */
};

struct persist_pieces {
    struct places pieces; /* owned */
};

struct persist_pieces *persist_pieces_create(void)
{
    struct persist_pieces *pieces = calloc(1, sizeof *pieces);
    if (pieces)
        pieces->pieces = (struct places){.key_bytes = sizeof(gaddr), .item_bytes = sizeof(struct piece)};
    return pieces;
}

void persist_pieces_destroy(struct persist_pieces *pieces)
{
    if (!pieces)
        return;
    places_clear(&pieces->pieces);
    free(pieces);
}

bool persist_pieces_have(const struct persist_pieces *pieces, gaddr address, uint64_t hash)
{
    const struct piece *piece = places_find(&pieces->pieces, &address);
    return piece && piece->there && piece->hash == hash;
}

bool persist_pieces_add(struct persist_pieces *pieces, gaddr address, uint64_t hash)
{
    assert(address != GADDR_NULL);
    struct piece *piece = places_put(&pieces->pieces, &address);
    if (piece) {
        piece->hash = hash;
        piece->there = 1;
    }
    return piece;
}

void persist_pieces_drop(struct persist_pieces *pieces, gaddr address)
{
    struct piece *piece = places_find(&pieces->pieces, &address);
    if (piece)
        piece->there = 0;
}

void persist_pieces_clear(struct persist_pieces *pieces)
{
    places_clear(&pieces->pieces);
}
