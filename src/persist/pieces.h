/*
 * pieces.h - which pieces of long values a journal has: the hash of what was last copied from each place. A
 * change of a long value names pieces of the one before, which need not be copied again. One thread.
 */
#ifndef PERSIST_PIECES_H
#define PERSIST_PIECES_H

#include "fabric/fabric.h"

struct persist_pieces;

/* NULL: no memory. */
struct persist_pieces *persist_pieces_create(void);
void persist_pieces_destroy(struct persist_pieces *pieces);
bool persist_pieces_have(const struct persist_pieces *pieces, gaddr address, uint64_t hash);
/* False: no memory. What was there before is forgotten. */
bool persist_pieces_add(struct persist_pieces *pieces, gaddr address, uint64_t hash);
/* Something else was copied from there. */
void persist_pieces_drop(struct persist_pieces *pieces, gaddr address);
void persist_pieces_clear(struct persist_pieces *pieces);

#endif
