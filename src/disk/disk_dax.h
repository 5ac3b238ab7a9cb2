/*
 * disk_dax.h - persistent memory as the kernel and the processor have it: a file on a file system with DAX,
 * mapped so that its pages are the medium itself. For disk_real.c.
 *
 * A mapping with MAP_SYNC promises that the file system knows of each block before it can be stored to, so
 * what is left of a sync is the processor's part: to bring the lines of its cache to the medium, and to wait
 * until they are there. A kernel, a file system or a device that cannot promise that refuses the mapping.
 *
 * A page that the medium cannot read or write any more (a machine check) ends the process by SIGBUS, and so
 * does a file that somebody has made shorter.
 */
#ifndef DISK_DISK_DAX_H
#define DISK_DISK_DAX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a line is flushed, the best way first. */
enum dax_way { DAX_CLWB, DAX_CLFLUSHOPT, DAX_CLFLUSH, DAX_CVAP, DAX_NONE };

/* DAX_NONE: this processor has none for a program. */
enum dax_way dax_way(void);
/* Whether this processor has it. */
bool dax_has(enum dax_way way);
/* NULL: as errno says, EOPNOTSUPP where the file lies in no persistent memory. `any`: without MAP_SYNC. */
uint8_t *dax_map(int descriptor, uint64_t bytes, bool any);
/* Its pages are there, to be stored to. 0, or an errno. */
int dax_populate(uint8_t *start, uint64_t bytes);
void dax_unmap(uint8_t *start, uint64_t bytes);
/* Some nanoseconds; the line is on its way. */
void dax_flush(enum dax_way way, uint8_t *line);
/* Waits until all lines are on the medium that this thread has flushed. */
void dax_fence(enum dax_way way);

#endif
