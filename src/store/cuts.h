/*
 * cuts.h - the cuts of a store (cut.h) and the guards of its sessions (guard.h), inside struct store. Private
 * to src/store/.
 */
#ifndef STORE_CUTS_H
#define STORE_CUTS_H

#include "base/atomic.h"
#include "store/cut.h"
#include "store/cut_table.h"
#include "tree/rights.h"

/* WITHDRAWN: the change waits for another process, and makes nothing here before it is ANNOUNCED again. */
enum store_guard_state { STORE_GUARD_IDLE, STORE_GUARD_ANNOUNCED, STORE_GUARD_WITHDRAWN };

/* Of one session: whether a change of its is under way. In a list of the store. */
struct store_guard {
    struct store_guard *previous, *next; /* under struct store_cuts's lock */
    uint32_t changing;                   /* enum store_guard_state; atomic: see guard.h */
    const struct tree_item *items;       /* of a batch; NULL: the change is of one key, or there is none */
    size_t count;
    struct tree_announcer announcer; /* around waits for other processes; unused in a guest's */
};

enum store_cut_state { STORE_CUT_FREE, STORE_CUT_TAKEN, STORE_CUT_OPEN };

struct store_bound {
    bool open; /* without the key itself */
    size_t length;
    uint8_t key[FORMAT_KEY_MAX];
};

struct store_cut {
    struct store *store;
    struct spinlock lock;
    /* Guarded by the lock; `low` is changed by store_cut_next alone, which reads it without. */
    uint32_t state;           /* enum store_cut_state; atomic, so that it may be looked at before */
    uint64_t generation;      /* of the slot: grows as it is taken */
    struct store_bound low;   /* what lies below has been passed; length 0: nothing has */
    struct store_bound high;  /* length 0: none */
    struct store_bound first; /* `low` as it was at the opening */
    bool ended;               /* all has been passed */
    bool owned;               /* of a range that this process has for itself among others ... */
    uint64_t epoch;           /* ... under this epoch; both set before it is open */
    struct error error;       /* why it has failed */
    struct store_cut_table table;
    /* Set before it is open. */
    uint64_t time; /* the store's clock at the moment of the cut */
};

/* Bits of `state`. */
#define STORE_CUTS_OPENING 0x80000000u /* a cut is being opened: no change may begin */

struct store_cuts {
    bool membarrier;
    uint32_t state; /* atomic: how many slots are taken, and STORE_CUTS_OPENING */
    struct spinlock lock;
    struct store_guard *guards;   /* guarded by the lock */
    bool opening;                 /* guarded by the lock: a task opens a cut */
    struct store_session *guests; /* guarded by the lock; owned: see guest.c */
    struct store_saved *garbage;  /* guarded by the lock: lists of what cuts had saved that are over */
    struct store_cut slots[STORE_CUTS_MAX];
    uint64_t memory, memory_max;                  /* atomic, relaxed: sums and limits order nothing */
    uint64_t opened, failed, saved, held_longest; /* atomic, relaxed: statistics */
};

void store_cuts_init(struct store *store);
/* Before the store is freed. */
void store_cuts_end(struct store *store);
void store_guard_add(struct store_cuts *cuts, struct store_guard *guard);
void store_guard_remove(struct store_cuts *cuts, struct store_guard *guard);
/* The session's tree withdraws its announcements from now on, and announces changes again. */
void store_guard_attach(struct store_session *session);
/* No more; does nothing where they were never attached. */
void store_guard_detach(struct store_session *session);
/* What the store does around changes that its process makes for others (guest.c); the context is the store.
 */
extern const struct tree_served store_served;
/* Before the store is freed, when no change is made for others any more. */
void store_guests_end(struct store *store);
/* Under the cut's lock: whether a key is in its range and has not been passed. */
bool store_cut_wants(const struct store_cut *cut, const void *key, size_t key_length);
/* Ends an open cut for a reason. Not under its lock. A cut that is not open, or of another generation, stays
 * as it is. */
void store_cut_fail(struct store_cut *cut, uint64_t generation, const struct error *error);

#endif
