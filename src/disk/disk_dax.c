/*
 * disk_dax.c - see disk_dax.h.
 *
 * Of x86-64's three ways CLWB leaves the line in the cache, CLFLUSHOPT does not, and CLFLUSH also waits for
 * the ones before it. All are ordered behind stores to their own line, and SFENCE behind all of them. A
 * thread that the kernel moves to another processor has passed an instruction that orders as much.
 */
#include "disk/disk_dax.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#if defined(__x86_64__)
bool dax_has(enum dax_way way)
{
    unsigned a, b, c, d, features = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
        features = b;
    if (way == DAX_CLFLUSH)
        return __get_cpuid(1, &a, &b, &c, &d) && d >> 19 & 1;
    return (way == DAX_CLWB && features >> 24 & 1) || (way == DAX_CLFLUSHOPT && features >> 23 & 1);
}

void dax_flush(enum dax_way way, uint8_t *line)
{
    if (way == DAX_CLWB)
        __asm__ volatile("clwb %0" : "+m"(*line) : : "memory");
    else if (way == DAX_CLFLUSHOPT)
        __asm__ volatile("clflushopt %0" : "+m"(*line) : : "memory");
    else
        __asm__ volatile("clflush %0" : "+m"(*line) : : "memory");
}

void dax_fence(enum dax_way way)
{
    __asm__ volatile("sfence" : : : "memory");
}
#elif defined(__aarch64__)
#define HWCAP_DCPOP_BIT (1ul << 16)

bool dax_has(enum dax_way way)
{
    return way == DAX_CVAP && (getauxval(AT_HWCAP) & HWCAP_DCPOP_BIT) != 0;
}

/* DC CVAP, by its number: assemblers know the name in later versions of the architecture alone. */
void dax_flush(enum dax_way way, uint8_t *line)
{
    __asm__ volatile("sys #3, c7, c12, #1, %0" : : "r"(line) : "memory");
}

void dax_fence(enum dax_way way)
{
    __asm__ volatile("dsb sy" : : : "memory");
}
#else
bool dax_has(enum dax_way way)
{
    return false;
}

void dax_flush(enum dax_way way, uint8_t *line) {}

void dax_fence(enum dax_way way) {}
#endif

enum dax_way dax_way(void)
{
    enum dax_way way = DAX_CLWB;
    while (way != DAX_NONE && !dax_has(way))
        way++;
    return way;
}

uint8_t *dax_map(int descriptor, uint64_t bytes, bool any)
{
    const int flags = any ? MAP_SHARED : MAP_SHARED_VALIDATE | MAP_SYNC;
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    return start == MAP_FAILED ? NULL : start;
}

int dax_populate(uint8_t *start, uint64_t bytes)
{
    /* EINVAL: a kernel before 5.14, where each page's first store is a fault. */
    return madvise(start, bytes, MADV_POPULATE_WRITE) && errno != EINVAL ? errno : 0;
}

void dax_unmap(uint8_t *start, uint64_t bytes)
{
    int failed = munmap(start, bytes);
    assert(!failed);
    (void)failed;
}
