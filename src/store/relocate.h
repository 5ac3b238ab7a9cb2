/*
 * relocate.h - moves what belongs to one key to other blocks: its record, its pieces, its key block. Private
 * to src/store/.
 */
#ifndef STORE_RELOCATE_H
#define STORE_RELOCATE_H

#include "store/batch.h"
#include "store/defrag.h"

/* Whether the status says that the owner of the key's leaf, or a memory node, did not answer, or not in time.
 * It may answer later, or another compute node in its place. */
bool store_relocation_unanswered(int status);

struct store_relocation {
    uint64_t now;
    bool (*chosen)(void *context, gaddr block); /* what is to be moved; answers alike throughout a call */
    void *context;
    struct store_defrag_counts *counts;
};

/* Moves the chosen blocks of an entry, as the slot was when the entry was met; nothing is done if it has
 * changed since. BANYAN_ENOSPC: there is no room to move to. What store_relocation_unanswered names: the
 * value is where it was, or has moved, and the next walk finds it. */
int store_relocate(struct store_session *session, const struct store_relocation *relocation,
                   const struct store_entry *entry);

#endif
