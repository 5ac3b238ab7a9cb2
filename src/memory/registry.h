/*
 * registry.h - the table of a memory node's services, for the files of memory/ alone. Callers see service.h.
 *
 * The table changes only while nothing uses the node, so that it is read without a lock.
 */
#ifndef MEMORY_REGISTRY_H
#define MEMORY_REGISTRY_H

#include "base/atomic.h"
#include "memory/service.h"

struct memory_registration {
    const struct memory_service *service;
    void *context;
    uint32_t first, kinds;
};

struct memory_registry {
    struct memory_registration entries[MEMORY_SERVICES_MAX];
    uint32_t count;
    bool works; /* a service has background work */

    struct spinlock working; /* held by the one thread that works in the background; guards `next` */
    uint32_t next;           /* the entry whose turn it is */
};

/* The services that request.h lists for every memory node, with the node as their context. */
void memory_registry_fill(struct memory_node *node);
/* Every service adds what it counts. */
void memory_registry_report(const struct memory_registry *registry, struct memory_status_reply *status);

#endif
