/*
 * pieces.h - reading values that lie in pieces. Private to src/store/. Costs a round trip for each
 * STORE_TRANSFER_MAX pieces; fails with STORE_STALE where a piece is not what its header says, and with the
 * fabric's errors.
 */
#ifndef STORE_PIECES_H
#define STORE_PIECES_H

#include "format/record.h"
#include "store/session.h"

/* The pieces of the header in session->header, which is valid, as an array; it stays until the session's next
 * read of a record. NULL when memory is short. */
const struct format_piece *store_pieces_load(struct store_session *session, size_t key_length,
                                             uint32_t count);
/* The number of the piece that holds the byte at `offset` of the value, and in *start where that piece
 * begins. The offset lies in the value. */
uint32_t store_pieces_find(const struct format_piece *pieces, uint32_t count, uint64_t offset,
                           uint64_t *start);
/* How much room store_pieces_read needs for these pieces. */
uint64_t store_pieces_room(const struct format_piece *pieces, uint32_t count);
/* Reads pieces that follow each other into `room` (8-byte aligned), and checks their hashes. Pieces that lie
 * wholly in [skip, skip_end), counted from the first one's begin, are left out: their bytes are undefined. */
int store_pieces_read(struct store_session *session, size_t key_length, const struct format_piece *pieces,
                      uint32_t count, uint64_t skip, uint64_t skip_end, uint8_t *room);
/* Releases the block of a piece that no header names any more. Returns its bytes. */
uint32_t store_piece_free(struct store_session *session, size_t key_length, const struct format_piece *piece);

#endif
