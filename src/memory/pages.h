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

#define PAGES_HUGE_BYTES ((size_t)2 << 20)
/* Of PAGES_AUTO: so much at either end of the chunks stays plain. A small store begins at both of them (nodes
 * at the low one, data at the high one), and the huge page that either has come to would be half empty. */
#define PAGES_PLAIN_ENDS ((size_t)32 << 20)

struct pages {
    void *start; /* page aligned, 2 MiB aligned with explicit huge pages; NULL: not mapped */
    size_t bytes;
    const char *kind; /* for messages: "explicit huge pages", "transparent huge pages", "plain pages" */
    int descriptor;   /* of shared pages, sealed against resizing; else -1. Of mapped pages only. */
    size_t unit;      /* what comes and goes as one: the size of a page */
    size_t whole;     /* the size of the largest pages among them: less of one does not go back by itself */
    bool pinned;      /* a device writes to them: they are never given back while they are mapped */
};

enum pages_huge { /* banyan_options.huge_pages has these numbers */
                  PAGES_PLAIN,
                  PAGES_HUGE, /* all: explicit huge pages where enough of them are reserved, else transparent
                                 ones */
                  PAGES_AUTO, /* transparent ones, if chunks are whole huge pages, and between
                                 PAGES_PLAIN_ENDS alone */
};

/* The parts of a pool that go back to the system one by one. */
struct pages_chunks {
    size_t first; /* where the first of them begins in the pool */
    size_t bytes, count;
};

/* The least multiple of `unit` that is not less. */
static inline size_t pages_round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Plain pages. */
int pages_map(struct pages *pages, size_t bytes, struct error *error);
/* A pool. Where it may have transparent huge pages its first chunk begins at a boundary of theirs, so that
 * chunks of 2 MiB, or a multiple of that, are whole huge pages. Where the system has no huge pages, or does
 * not allow them, they are plain; PAGES_HUGE logs that. */
int pages_map_pool(struct pages *pages, size_t bytes, enum pages_huge huge, const struct pages_chunks *chunks,
                   struct error *error);
/* Plain pages as a file in memory that other processes can map; `name` shows in their memory maps. With
 * `huge`: explicit huge pages, or whatever the system gives to such files. */
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
