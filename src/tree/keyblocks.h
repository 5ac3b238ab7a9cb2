/*
 * keyblocks.h - long keys, which stand in blocks of their own (docs/internals/tree.md, Long keys). Private to
 * src/tree/. All blocks of a leaf cost one round trip together. Fails with the fabric's errors and
 * BANYAN_ENOSPC.
 */
#ifndef TREE_KEYBLOCKS_H
#define TREE_KEYBLOCKS_H

#include "tree/entries.h"

/* Reads the keys of all entries that have a block to where their key.bytes say (8-byte aligned): one round
 * trip. TREE_RESTART if a block does not hold the key of the entry's slot in `image`: then session->stranger
 * names it. Without the leaf's lock that means that the leaf has changed. */
int tree_key_blocks_read(struct tree_session *session, const struct format_layout *layout,
                         const uint8_t *image, const struct tree_leaf_entry *entries, uint32_t count);
/* Writes the keys of all entries that have a block. */
int tree_key_blocks_write(struct tree_session *session, const struct tree_leaf_entry *entries,
                          uint32_t count);
/* A block for a long key of this leaf, on the leaf's memory node where that has room, and the command that
 * writes it, to be run before any that writes the slot. */
int tree_key_block_prepare(struct tree_session *session, const struct format_layout *layout, gaddr leaf,
                           struct format_key key, struct fabric_command *write, gaddr *block);
/* A leaf was not valid under its lock (TREE_RESTART): the error that names what is at fault. */
int tree_leaf_corrupt(struct tree_session *session, gaddr leaf);

#endif
