/*
 * carried.h - records that second copies of frames carry (format/log.h, carriers): where their parts stand in
 * segments of this memory node, so that the drain reads there what lies in another one's pool. One thread.
 *
 * What is noted counts for one pass. 48 bytes for each part.
 */
#ifndef PERSIST_CARRIED_H
#define PERSIST_CARRIED_H

#include "format/log.h"

struct persist_carried;

/* NULL: no memory. */
struct persist_carried *persist_carried_create(void);
void persist_carried_destroy(struct persist_carried *carried);
/* Forgets all. */
void persist_carried_clear(struct persist_carried *carried);
/* A part of a record of the frame of this process that begins with this sequence, whose bytes stand at `at`
 * of the pool. False: no memory. */
bool persist_carried_add(struct persist_carried *carried, uint64_t instance, uint64_t first,
                         const struct format_log_part *part, gaddr at);
/* The part that begins at this byte of the record. False: it was not met. */
bool persist_carried_find(const struct persist_carried *carried, uint64_t instance, uint64_t first,
                          gaddr address, uint32_t offset, uint32_t *length, gaddr *at);

#endif
