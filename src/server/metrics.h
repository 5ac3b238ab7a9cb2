/*
 * metrics.h - the metrics of a compute node and of a memory node in Prometheus's text format. Each call reads
 * the statistics of server.h, or of the memory node, once. Any thread.
 */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include <stdio.h>

#include "memory/memory.h"
#include "server/server.h"

/* A memory node gives its status by a function, so that this layer does not depend on the daemon. */
struct metrics_memory_source {
    void (*status)(void *owner, struct memory_status_reply *status);
    void *owner;
    const char *address; /* for the status page's title */
};

/* http_page.write's; context: struct server. */
void metrics_compute(void *server, FILE *out);
/* The same; context: struct metrics_memory_source. */
void metrics_memory(void *source, FILE *out);

#endif
