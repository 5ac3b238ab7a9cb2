/* pages.c - see pages.h. */
#include "memory/pages.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static void *map_anonymous(size_t bytes, int flags)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

/* Without MAP_NORESERVE: the kernel must say now whether it has the huge pages, not by a signal later. */
static bool map_explicit(struct pages *pages, size_t bytes)
{
    size_t whole = round_up(bytes, HUGE_PAGE_BYTES);
    void *start = map_anonymous(whole, MAP_HUGETLB | MAP_HUGE_2MB);
    if (start == NULL)
        return false;
    *pages = (struct pages){start, whole, "explicit huge pages"};
    return true;
}

/* madvise() also succeeds where the administrator has switched transparent huge pages off. */
static bool transparent_allowed(void)
{
    char text[128] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file == NULL)
        return false;
    bool read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    return read && strstr(text, "[never]") == NULL;
}

static bool map_transparent(struct pages *pages, size_t bytes)
{
    size_t whole = round_up(bytes, HUGE_PAGE_BYTES);
    if (!transparent_allowed())
        return false;
    uint8_t *start = map_anonymous(whole + HUGE_PAGE_BYTES, MAP_NORESERVE);
    if (start == NULL)
        return false;
    /* Cut off what lies before the first boundary and what is left over at the end. */
    size_t before = (HUGE_PAGE_BYTES - (uintptr_t)start % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (before > 0)
        munmap(start, before);
    if (before < HUGE_PAGE_BYTES)
        munmap(start + before + whole, HUGE_PAGE_BYTES - before);
    if (madvise(start + before, whole, MADV_HUGEPAGE) != 0) {
        munmap(start + before, whole);
        return false;
    }
    *pages = (struct pages){start + before, whole, "transparent huge pages"};
    return true;
}

static bool map_plain(struct pages *pages, size_t bytes)
{
    size_t whole = round_up(bytes, 4096);
    void *start = map_anonymous(whole, MAP_NORESERVE);
    if (start == NULL)
        return false;
    *pages = (struct pages){start, whole, "plain pages"};
    return true;
}

int pages_map(struct pages *pages, size_t bytes, bool huge, struct error *error)
{
    *pages = (struct pages){0};
    if (huge) {
        if (map_explicit(pages, bytes))
            return BANYAN_OK;
        log_info("no explicit huge pages for %zu MiB (%s), trying transparent ones", bytes >> 20,
                 strerror(errno));
        if (map_transparent(pages, bytes))
            return BANYAN_OK;
        log_info("no transparent huge pages for %zu MiB, taking plain pages", bytes >> 20);
    }
    if (map_plain(pages, bytes))
        return BANYAN_OK;
    return error_set(error, BANYAN_ENOMEM, "cannot map %zu bytes: %s", bytes, strerror(errno));
}

void pages_unmap(struct pages *pages)
{
    if (pages->start != NULL)
        munmap(pages->start, pages->bytes);
    *pages = (struct pages){0};
}
