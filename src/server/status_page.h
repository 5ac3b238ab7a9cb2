/*
 * status_page.h - the figures of a compute node and of a memory node as a page for people, in HTML. Each call
 * reads the statistics once. Any thread.
 */
#ifndef SERVER_STATUS_PAGE_H
#define SERVER_STATUS_PAGE_H

#include "server/metrics.h"

/* http_page.write's; context: struct server. */
void status_page_compute(void *server, FILE *out);
/* The same; context: struct metrics_memory_source. */
void status_page_memory(void *source, FILE *out);

#endif
