/*
 * floors.h - which entries of owners' logs a checkpoint that is scanned from now on makes unneeded (P12 of
 * docs/internals/durability.md). Private to src/save/.
 */
#ifndef SAVE_FLOORS_H
#define SAVE_FLOORS_H

#include "owner/owner.h"
#include "persist/table.h"

/* The greatest sequence of a process that stands before the positions of the journals. */
struct save_mark {
    uint64_t instance, sequence;
};
struct save_floors {
    struct owner *owner;
    struct tree_session *session;
    const struct save_mark *marks;
    uint32_t mark_count;
    uint64_t wait_ns;
    bool (*cancelled)(void *context);
    void *context;
};

/* Adds the floors to the table, whose indexes are there already. Waits until each owner has merged what
 * stands before the positions. BANYAN_ETIMEOUT, BANYAN_EABORT. */
int save_floors_take(const struct save_floors *floors, struct persist_table *table);

#endif
