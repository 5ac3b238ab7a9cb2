/*
 * metrics.h - what a compute node and a memory node tell about themselves over HTTP: metrics in Prometheus's
 * text format, and a plain page for people. No logic: reads the statistics of server.h and memoryd/memoryd.h.
 * Any thread; each call reads the counters once.
 */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include <stdio.h>
#include "memory/memory.h"
#include "server/server.h"

/* http_page.write's; context: struct server. */
void metrics_compute(void *server, FILE *out);
void metrics_compute_page(void *server, FILE *out);

/* Memory nodes give their status by a function, so that this layer needs not know the daemon. */
struct metrics_memory_source {
    void (*status)(void *owner, struct memory_status_reply *status);
    void *owner;
    const char *address; /* for the page's title */
};
/* context: struct metrics_memory_source. */
void metrics_memory(void *source, FILE *out);
void metrics_memory_page(void *source, FILE *out);

#endif
