/* pages.c - see pages.h. */
#include "memory/pages.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

static size_t small_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void *map_anonymous(size_t bytes, int flags)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

/* Without MAP_NORESERVE: the kernel must say now whether it has the huge pages, not by a signal later. */
static bool map_explicit(struct pages *pages, size_t bytes)
{
    size_t whole = pages_round_up(bytes, PAGES_HUGE_BYTES);
    void *start = map_anonymous(whole, MAP_HUGETLB | MAP_HUGE_2MB);
    if (start == NULL)
        return false;
    *pages = (struct pages){.start = start,
                            .bytes = whole,
                            .kind = "explicit huge pages",
                            .descriptor = -1,
                            .unit = PAGES_HUGE_BYTES,
                            .whole = PAGES_HUGE_BYTES};
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

/* Bytes of a pool, from its begin on. */
struct part {
    size_t from, to;
};

/* What of the pool PAGES_AUTO gives huge pages: whole chunks, which are whole huge pages. Else none. */
static struct part part_between(const struct pages_chunks *chunks)
{
    size_t plain = pages_round_up(PAGES_PLAIN_ENDS, chunks->bytes), all = chunks->bytes * chunks->count;
    if (chunks->first % small_page() != 0 || chunks->bytes % PAGES_HUGE_BYTES != 0 || all <= 2 * plain)
        return (struct part){0};
    return (struct part){chunks->first + plain, chunks->first + all - plain};
}

/* Maps so that byte `boundary` is the first of a huge page, or as near behind that as a page can be. */
static uint8_t *map_placed(size_t bytes, size_t boundary)
{
    size_t lead = boundary / small_page() * small_page();
    uint8_t *room = map_anonymous(bytes + PAGES_HUGE_BYTES, MAP_NORESERVE);
    if (room == NULL)
        return NULL;
    /* Cut off what lies before that place and what is left over at the end. */
    size_t before = (PAGES_HUGE_BYTES - ((uintptr_t)room + lead) % PAGES_HUGE_BYTES) % PAGES_HUGE_BYTES;
    if (before > 0)
        munmap(room, before);
    munmap(room + before + bytes, PAGES_HUGE_BYTES - before);
    return room + before;
}

static bool map_transparent(struct pages *pages, size_t bytes, size_t boundary, struct part part,
                            const char *kind)
{
    size_t whole = pages_round_up(bytes, small_page());
    if (part.to == 0 || !transparent_allowed())
        return false;
    uint8_t *start = map_placed(whole, boundary);
    if (start == NULL)
        return false;
    if (madvise(start + part.from, part.to - part.from, MADV_HUGEPAGE) != 0) {
        munmap(start, whole);
        return false;
    }
    *pages = (struct pages){.start = start,
                            .bytes = whole,
                            .kind = kind,
                            .descriptor = -1,
                            .unit = small_page(),
                            .whole = PAGES_HUGE_BYTES};
    return true;
}

static bool map_plain(struct pages *pages, size_t bytes)
{
    size_t whole = pages_round_up(bytes, small_page());
    void *start = map_anonymous(whole, MAP_NORESERVE);
    if (start == NULL)
        return false;
    *pages = (struct pages){.start = start,
                            .bytes = whole,
                            .kind = "plain pages",
                            .descriptor = -1,
                            .unit = small_page(),
                            .whole = small_page()};
    return true;
}

int pages_map(struct pages *pages, size_t bytes, struct error *error)
{
    *pages = (struct pages){0};
    if (map_plain(pages, bytes))
        return BANYAN_OK;
    return error_set(error, BANYAN_ENOMEM, "cannot map %zu bytes: %s", bytes, strerror(errno));
}

static bool map_huge(struct pages *pages, size_t bytes, const struct pages_chunks *chunks)
{
    if (map_explicit(pages, bytes))
        return true;
    log_info("no explicit huge pages for %zu MiB (%s), trying transparent ones", bytes >> 20,
             strerror(errno));
    if (map_transparent(pages, bytes, chunks->first, (struct part){0, pages_round_up(bytes, small_page())},
                        "transparent huge pages"))
        return true;
    log_info("no transparent huge pages for %zu MiB, taking plain pages", bytes >> 20);
    return false;
}

int pages_map_pool(struct pages *pages, size_t bytes, enum pages_huge huge, const struct pages_chunks *chunks,
                   struct error *error)
{
    *pages = (struct pages){0};
    if (huge == PAGES_HUGE && map_huge(pages, bytes, chunks))
        return BANYAN_OK;
    if (huge == PAGES_AUTO && map_transparent(pages, bytes, chunks->first, part_between(chunks),
                                              "plain pages at its ends, transparent huge pages between"))
        return BANYAN_OK;
    return pages_map(pages, bytes, error);
}

/* ---- shared ---- */

/* A file in memory, sealed at its size: a process that cut it short would make every other one that maps it
 * fail at its next access. Its pages are not reserved, so a pool takes no memory before it is used. */
static int file_make(const char *name, size_t bytes, unsigned flags)
{
    int descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (descriptor < 0)
        return -1;
    if (ftruncate(descriptor, (off_t)bytes) == 0 &&
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return descriptor;
    int cause = errno;
    close(descriptor);
    errno = cause;
    return -1;
}

static bool map_file(struct pages *pages, const char *name, size_t bytes, unsigned flags, const char *kind)
{
    size_t whole = pages_round_up(bytes, flags & MFD_HUGETLB ? PAGES_HUGE_BYTES : 4096);
    int descriptor = file_make(name, whole, flags);
    if (descriptor < 0)
        return false;
    /* Explicit huge pages are reserved by this very call, or it fails. */
    void *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (start == MAP_FAILED) {
        int cause = errno;
        close(descriptor);
        errno = cause;
        return false;
    }
    *pages = (struct pages){.start = start,
                            .bytes = whole,
                            .kind = kind,
                            .descriptor = descriptor,
                            .unit = flags & MFD_HUGETLB ? PAGES_HUGE_BYTES : small_page()};
    pages->whole = pages->unit;
    return true;
}

int pages_map_shared(struct pages *pages, const char *name, size_t bytes, bool huge, struct error *error)
{
    *pages = (struct pages){0};
    if (huge) {
        if (map_file(pages, name, bytes, MFD_HUGETLB | MFD_HUGE_2MB, "explicit huge pages, shared"))
            return BANYAN_OK;
        log_info("no explicit huge pages for %zu MiB of shared memory (%s), trying transparent ones",
                 bytes >> 20, strerror(errno));
    }
    if (!map_file(pages, name, bytes, 0, "plain pages, shared"))
        return error_set(error, BANYAN_ENOMEM, "cannot map %zu bytes of shared memory: %s", bytes,
                         strerror(errno));
    /* The kernel's shmem_enabled decides about this, and does not tell. */
    if (huge)
        madvise(pages->start, pages->bytes, MADV_HUGEPAGE);
    return BANYAN_OK;
}

/* ---- both ---- */

void pages_clear(struct pages *pages)
{
    int status;
    if (pages->start == NULL)
        return;
    if (pages->pinned)
        status = -1;
    else if (pages->descriptor >= 0)
        status =
            fallocate(pages->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)pages->bytes);
    else
        status = madvise(pages->start, pages->bytes, MADV_DONTNEED);
    if (status != 0) /* pinned; and old kernels refuse it for explicit huge pages */
        memset(pages->start, 0, pages->bytes);
}

void pages_zero(struct pages *pages, size_t from, size_t bytes)
{
    uint8_t *start = pages->start;
    size_t first = pages_round_up(from, pages->unit), end = (from + bytes) / pages->unit * pages->unit;
    if (pages->pinned || pages->descriptor >= 0 || end <= first ||
        madvise(start + first, end - first, MADV_DONTNEED) != 0) {
        memset(start + from, 0, bytes);
        return;
    }
    memset(start + from, 0, first - from);
    memset(start + end, 0, from + bytes - end);
}

void pages_release(struct pages *pages, size_t from, size_t bytes)
{
    size_t start = pages_round_up(from, pages->unit), end = (from + bytes) / pages->unit * pages->unit;
    assert(!pages->pinned && from + bytes <= pages->bytes);
    if (end <= start)
        return;
    if (pages->descriptor >= 0)
        (void)fallocate(pages->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
                        (off_t)(end - start));
    else /* old kernels refuse it for explicit huge pages: they stay */
        (void)madvise((uint8_t *)pages->start + start, end - start, MADV_DONTNEED);
}

void pages_unmap(struct pages *pages)
{
    if (pages->start == NULL)
        return;
    munmap(pages->start, pages->bytes);
    if (pages->descriptor >= 0)
        close(pages->descriptor);
    *pages = (struct pages){0};
}
