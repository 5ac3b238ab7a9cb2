/*
 * brought.h - pieces of long values that lie in other memory nodes' pools, and that owners bring to this
 * one's disk before they log an entry whose header names them (BRING, memory/request.h;
 * docs/internals/durability.md, P17): which of them the journal has, and those that wait for it.
 *
 * Calls of compute nodes come on any thread, and do not wait; they cost a copy and a hash of what they bring.
 * The disk's thread (drain.h) takes what waits, and looks up what entries name.
 *
 * Of a piece that was brought, or asked for, an entry is to come. Until that is in the journal the piece is
 * open: a checkpoint that begins meanwhile may not cover the entry, so the journal is kept from its oldest
 * open piece on (persist_brought_forget). An entry that never comes holds it over one checkpoint, and over
 * others for as long as the owner has said that the entry may take (`hold_ms` of the request).
 *
 * Memory: 48 bytes for each piece that was brought since the last checkpoint; and what waits, 8 MiB at most.
 * When a checkpoint begins all pieces are looked at, while calls spin: some 10 ns for each.
 */
#ifndef PERSIST_BROUGHT_H
#define PERSIST_BROUGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "fabric/fabric.h"

#define PERSIST_BROUGHT_WAITS_MAX ((size_t)8 << 20) /* bytes of pieces that wait for the disk */

struct persist_brought;

/* The memory nodes whose pools the drain reads; NULL where one is not of this process. Borrowed. NULL: no
 * memory. */
struct persist_brought *persist_brought_create(const struct fabric_target *const *targets, uint16_t count);
void persist_brought_destroy(struct persist_brought *brought);

/* Any thread. A BRING request, of which nothing was validated; its errors are BRING's. `reply` has room for a
 * struct memory_bring_reply. */
int persist_brought_call(struct persist_brought *brought, const void *request, size_t length, void *reply,
                         size_t *reply_length);

/* ---- the disk's thread ---- */

struct persist_brought_piece {
    struct persist_brought_piece *next;
    gaddr address;
    uint64_t hash;
    uint32_t length;
    uint8_t bytes[];
};
/* The piece that has waited longest; NULL: none waits. Any thread may add others meanwhile. */
const struct persist_brought_piece *persist_brought_first(struct persist_brought *brought);
/* That one stands at this position of the journal, and waits no more. */
void persist_brought_written(struct persist_brought *brought, uint64_t position);

enum persist_brought_state { PERSIST_BROUGHT_NOT, PERSIST_BROUGHT_WAITS, PERSIST_BROUGHT_WRITTEN };
/* What an entry names. WRITTEN: one entry less is to come of the piece. */
enum persist_brought_state persist_brought_named(struct persist_brought *brought, gaddr address,
                                                 uint64_t hash);
/* The journal's beginning up to here is going to be released: what was brought has to be brought again.
 * `looked`: task_now when the last pass began; entries of frames that stood in the pool then have been named.
 * Returns the position from which on it must stay instead, if that is less. */
uint64_t persist_brought_forget(struct persist_brought *brought, uint64_t position, uint64_t looked);

#endif
