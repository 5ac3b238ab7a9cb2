/*
 * layout.h - a value in pieces on its way into a record: pieces that an older header of the key named are
 * kept, others are cut out of given bytes and get blocks, and in the end a header that names all of them is
 * written. Private to src/store/.
 *
 * New blocks are the layout's until a slot refers to the header (S1); store_layout_withdraw releases them. A
 * session has one layout at a time. Cutting costs the allocation of blocks, of the sizes that there are, and
 * the hash of the bytes; writing one round trip for each STORE_TRANSFER_MAX blocks. BANYAN_ENOSPC,
 * BANYAN_ENOMEM, the network's errors.
 */
#ifndef STORE_LAYOUT_H
#define STORE_LAYOUT_H

#include "format/record.h"
#include "store/session.h"

struct store_layout {
    struct store_session *session;
    const void *key;
    size_t key_length;
    uint64_t expires, length;
    uint32_t count;
    uint32_t to_come; /* pieces to be kept that have not been added yet: the header must have room for them */
    gaddr header;
    uint32_t header_bytes;
    uint64_t written; /* bytes, once all of it has been */
    uint64_t hashed;  /* bytes since the worker's other tasks had their turn */
};

void store_layout_begin(struct store_layout *layout, struct store_session *session, const void *key,
                        size_t key_length, uint64_t expires);
/* Adds what follows in the value. Zeros that follow zeros become one piece. */
int store_layout_keep(struct store_layout *layout, const struct format_piece *pieces, uint32_t count);
int store_layout_zeros(struct store_layout *layout, uint64_t length);
/* The bytes must stay until store_layout_write has returned. */
int store_layout_cut(struct store_layout *layout, const uint8_t *bytes, uint64_t length, uint32_t grain);
/* Writes the new pieces and the header. After an error nothing is left to withdraw: the new blocks are
 * released, or kept back where the network failed. */
int store_layout_write(struct store_layout *layout, struct format_reference *reference);
/* Behind it, until the session's next layout: the WRITEs that were done, in session->at_hand; how many. 0: no
 * memory. Their bytes are those that were given, and session->output. */
uint32_t store_layout_at_hand(struct store_layout *layout);
/* Releases the new blocks, to which no slot refers. */
void store_layout_withdraw(struct store_layout *layout);

#endif
