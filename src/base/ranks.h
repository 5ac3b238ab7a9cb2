/*
 * ranks.h - where each of a few numbers stands in their order, by comparing all with all in vector registers:
 * a few hundred instructions without a branch that depends on the numbers. For leaves whose entries are
 * sorted at every scan.
 *
 * Pure, any thread, cannot fail. Built without vector code (meson -Dvectors=false) only ranks_plain is there,
 * and RANKS_VECTORS is 0: then other ways to sort are quicker.
 */
#ifndef BASE_RANKS_H
#define BASE_RANKS_H

#include <stdint.h>

#ifndef RANKS_VECTORS
#define RANKS_VECTORS 1
#endif

#define RANKS_MAX 64u

/* ranks[i]: how many of the first `count` numbers are less than numbers[i]. Equal numbers have equal ranks.
 * `count` is at most RANKS_MAX; the numbers behind `count` are overwritten, and the ranks there mean
 * nothing. */
#if RANKS_VECTORS
void ranks_find(uint16_t numbers[RANKS_MAX], uint32_t count, uint16_t ranks[RANKS_MAX]);
#endif
/* The same, number by number. */
void ranks_plain(const uint16_t *numbers, uint32_t count, uint16_t *ranks);
/* What ranks_find uses: "avx2", "vectors" of what the build may take for granted, or "none". */
const char *ranks_implementation(void);

#endif
