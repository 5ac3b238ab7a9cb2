/* keeper_private.h - what keeper.c and checkpoint.c share. Private to src/durable/. */
#ifndef DURABLE_KEEPER_PRIVATE_H
#define DURABLE_KEEPER_PRIVATE_H

#include "durable/keeper.h"

#define KEEPER_BATCH 64u

struct keeper {
    struct keeper_parts parts;
    uint8_t *record; /* owned: JOURNAL_LENGTH_MAX; entries that are not appended yet */
    uint32_t used;
    /* Names whose values are to be read: entries of the feed. */
    uint8_t *names; /* owned */
    uint64_t names_used, names_room, names_count;
    /* The same of the last pass, which has read them; `doubt`: it has failed, and these are not all. */
    uint8_t *past; /* owned */
    uint64_t past_used, past_room, past_count;
    bool doubt;
    /* Where the entry is that is looked at, in what the pass has taken; those before `from` are in records
     * that are appended. */
    struct keeper_place {
        unsigned lane;
        uint32_t offset;
    } at, from;
    /* Those before record_from are in records that are appended; batch_from: where the batch began that is
     * copied. */
    uint64_t record_from, batch_from;
    bool beyond;                       /* the pass may take more of the limit than is the journal's */
    bool at_once;                      /* the pass does not suspend between two batches */
    uint8_t **seen;                    /* owned; the entry that stands for its key, by the key's hash */
    uint64_t seen_room, seen_capacity; /* room: a power of two */
    uint64_t checkpoint;               /* the number of the last one that was begun: no name is used twice */
    struct keeper_stats stats;         /* atomic, relaxed */
};

#endif
