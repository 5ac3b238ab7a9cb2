/*
 * checkpoint.h - reads back a cluster's checkpoint from the memory nodes' directories, with what their
 * journals have laid over it (docs/internals/durability.md, P11 to P15). For `banyan recover`.
 *
 * One thread. Opening reads each part once, to find a copy of it that is whole; telling reads it once more.
 */
#ifndef PERSIST_CHECKPOINT_H
#define PERSIST_CHECKPOINT_H

#include "persist/replay.h"
#include "persist/table.h"

struct persist_checkpoint;

/* What a memory node's directory says: of the checkpoint that counts there, and of one that is prepared; 0:
 * there is none. */
struct persist_checkpoint_claim {
    bool there; /* the directory */
    uint32_t node;
    uint64_t committed, prepared;
};
struct persist_checkpoint_source {
    uint64_t number;           /* which one: persist_checkpoint_choose */
    struct disk *const *disks; /* by the memory nodes' numbers; NULL: it is not there. Borrowed */
    uint16_t count;
    /* Before parts are looked for: whether the directories that are there are enough. May be NULL; an error
     * ends the opening. */
    int (*enough)(void *context, const struct persist_table *table, struct error *error);
    /* Called for a part of which no copy is whole, or there; NULL: that is BANYAN_ECORRUPT. */
    void (*lost)(void *context, const char *why);
    void *context;
    const struct persist_checkpoint_claim
        *claims; /* of the directories that are there; for the opening alone */
    uint16_t claim_count;
};

/* Which checkpoint counts for all (P13); 0: none does. */
uint64_t persist_checkpoint_choose(const struct persist_checkpoint_claim *claims, uint16_t count);
/* Whether a checkpoint that its maker has left counts: one memory node has it as its last, so all that took
 * part had prepared it, and any other one has joined since; or all have prepared it. */
bool persist_checkpoint_counts(const struct persist_checkpoint_claim *claims, uint16_t count,
                               uint64_t number);
/* Whether all that took part in it have it. BANYAN_ECORRUPT: one that did has not; the message names it. */
int persist_checkpoint_judge(const struct persist_table *table, const struct persist_checkpoint_claim *claims,
                             uint16_t count, struct error *error);

/* BANYAN_ECORRUPT: what the above says; the table, or a part, is damaged or missing. */
int persist_checkpoint_open(struct persist_checkpoint **checkpoint,
                            const struct persist_checkpoint_source *source, struct error *error);
void persist_checkpoint_close(struct persist_checkpoint *checkpoint);
const struct persist_table *persist_checkpoint_table(const struct persist_checkpoint *checkpoint);
/* All keys with their values, ascending by index and key: the replay's, and of the others those of the
 * checkpoint (NULL: there is none). May be called again. Not 0 from `visit` ends it. */
int persist_checkpoint_all(struct persist_checkpoint *checkpoint, struct persist_replay *replay,
                           persist_replay_visit *visit, void *context, struct error *error);

#endif
