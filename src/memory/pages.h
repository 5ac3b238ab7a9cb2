/*
 * pages.h - zeroed memory of any size from the kernel, taken page by page as it is touched.
 * Called when a memory node is created and destroyed; costs a few system calls, touches no page. Fails with
 * BANYAN_ENOMEM.
 */
#ifndef MEMORY_PAGES_H
#define MEMORY_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

struct pages {
    void *start; /* page aligned, 2 MiB aligned with huge pages; NULL: not mapped */
    size_t bytes;
    const char *kind; /* for messages: "explicit huge pages", "transparent huge pages", "plain pages" */
};

/* With `huge`: explicit huge pages where enough of them are reserved, else transparent ones, else plain
 * ones, and logs where it had to fall back. Without: plain pages. */
int pages_map(struct pages *pages, size_t bytes, bool huge, struct error *error);
/* Of pages that are not mapped: does nothing. */
void pages_unmap(struct pages *pages);

#endif
