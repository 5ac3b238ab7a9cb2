/*
 * staging.h - staging areas of mapped data connections (G5): shared pages in which a client puts a
 * short WRITE down before it copies it to its place, so that the memory node can finish it if the client dies
 * in the middle.
 *
 * Made on I/O threads, finished by the keeper's thread. The client writes the area as it likes: nothing in it
 * is believed.
 */
#ifndef MEMORYD_STAGING_H
#define MEMORYD_STAGING_H

#include <stdbool.h>
#include "base/error.h"
#include "fabric/target.h"
#include "fabric/wire.h"

struct memoryd_staging {
    struct wire_staging *area;
    struct memoryd_staging *next;
};

/* *descriptor: of the area, for the client; the caller closes it. */
int memoryd_staging_create(struct memoryd_staging **staging, int *descriptor, struct error *error);
void memoryd_staging_destroy(struct memoryd_staging *staging);
/* The client cannot write any more. true: something was marked and has been put in its place; false: nothing
 * was marked, or what was marked is not possible (`complaint` is then true). */
bool memoryd_staging_finish(const struct memoryd_staging *staging, const struct fabric_target *target,
                            uint16_t number, bool *complaint);

#endif
