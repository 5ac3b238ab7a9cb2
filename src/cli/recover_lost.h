/*
 * recover_lost.h - `banyan recover --data --lost`: memory nodes whose disks are gone, and what can be said of
 * what they had (docs/internals/durability.md, P16). One thread.
 */
#ifndef CLI_RECOVER_LOST_H
#define CLI_RECOVER_LOST_H

#include <jansson.h>
#include <stdio.h>

#include "persist/replay.h"
#include "persist/table.h"

#define RECOVER_NODES_MAX 64u

struct recover_lost {
    bool nodes[RECOVER_NODES_MAX];
    uint16_t count;  /* of them */
    uint32_t doubts; /* what is missing, or may be */
    json_t *told;    /* owned; of --json: the doubts, else NULL */
    FILE *to;        /* where they are told else */
};

/* The numbers in `text` (NULL: none), comma separated, of a cluster of so many memory nodes. BANYAN_EINVAL:
 * the list makes no sense. */
int recover_lost_read(struct recover_lost *lost, const char *text, uint32_t nodes, struct error *error);
/* `given`: those whose directories are there; `table`: of the checkpoint (NULL: there is none), before which
 * some may have left, of which nothing is needed. BANYAN_EINVAL: the list has one that is there, or leaves
 * one out that is not, and no loss is accepted. */
int recover_lost_check(struct recover_lost *lost, uint32_t nodes, const bool *given,
                       const struct persist_table *table, bool accept_loss, struct error *error);
/* Tells one thing that is missing, or may be. */
void recover_lost_tell(struct recover_lost *lost, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Behind the reading of all journals: tells what is missing, or may be. */
void recover_lost_judge(struct recover_lost *lost, const struct persist_replay *replay);

#endif
