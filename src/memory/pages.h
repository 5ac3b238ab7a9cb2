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
    int descriptor;   /* of shared pages, sealed against resizing; else -1. Of mapped pages only. */
    size_t unit;      /* what comes and goes as one: the size of a page */
    bool pinned;      /* a device writes to them: they are never given back while they are mapped */
};

/* The least multiple of `unit` that is not less. */
static inline size_t pages_round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* With `huge`: explicit huge pages where enough of them are reserved, else transparent ones, else plain
 * ones; logs what it falls back to. Without: plain pages. */
int pages_map(struct pages *pages, size_t bytes, bool huge, struct error *error);
/* The same as a file in memory that other processes can map; `name` shows in their memory maps. */
int pages_map_shared(struct pages *pages, const char *name, size_t bytes, bool huge, struct error *error);
/* All bytes are zero again, and take no memory until they are touched, unless they are pinned. While nothing
 * uses them. */
void pages_clear(struct pages *pages);
/* The same for a part of them. */
void pages_zero(struct pages *pages, size_t from, size_t bytes);
/* Gives the whole pages from byte `from` on back to the system, as far as it takes them: then they are zero
 * and take no memory until they are touched. Not of pinned ones. Others may read them meanwhile. */
void pages_release(struct pages *pages, size_t from, size_t bytes);
/* Of pages that are not mapped: does nothing. */
void pages_unmap(struct pages *pages);

#endif
