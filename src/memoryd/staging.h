/*
 * staging.h - staging areas of mapped data connections (G5): shared pages in which a client puts a short
 * WRITE down before it copies it to its place, so that the memory node can finish the WRITE if the client
 * dies in the middle. The last part is a service of the memory node (memory/service.h): it answers no
 * requests, and finishes what a fenced compute node had staged before its locks are freed.
 *
 * Made and left on I/O threads, finished on the keeper's. The client writes the area as it likes: nothing in
 * it is believed.
 */
#ifndef MEMORYD_STAGING_H
#define MEMORYD_STAGING_H

#include <stdbool.h>
#include "base/atomic.h"
#include "base/error.h"
#include "fabric/target.h"
#include "fabric/wire.h"
#include "memory/service.h"

struct memoryd;

struct memoryd_staging {
    struct wire_staging *area;
    struct memoryd_staging *next; /* of those that were left */
    uint16_t compute_id;          /* that left it */
};

/* Areas of connections that are gone, of compute nodes that are being fenced. */
struct memoryd_left {
    struct spinlock lock; /* guards the list; taken last */
    struct memoryd_staging *first;
};

/* *descriptor: of the area, for the client; the caller closes it. */
int memoryd_staging_create(struct memoryd_staging **staging, int *descriptor, struct error *error);
/* NULL: does nothing. */
void memoryd_staging_destroy(struct memoryd_staging *staging);
/* The area's connection is gone, and its compute node is fenced: the area is kept until the process is dead
 * and the service is told so. Takes it over. */
void memoryd_staging_leave(struct memoryd *daemon, struct memoryd_staging *staging, uint16_t compute_id);
/* Destroys all that were left and not finished: their processes live on, and the daemon ends. */
void memoryd_staging_drop(struct memoryd *daemon);

/* Its context is the daemon. */
extern const struct memory_service memoryd_staging_service;

#endif
