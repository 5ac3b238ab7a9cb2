/*
 * window.h - which pieces of a value are written anew when a part of it is changed. Private to src/store/.
 * Pure: it looks at lengths alone.
 *
 * A window is the run of bytes that is written anew: the changed ones, and the rest of the pieces that they
 * touch. Zeros around it stay zeros without a block if they are a grain at least. Pieces beside the window
 * join it while they are small, or no longer than twice what is written anyway, so that a value that grows by
 * small appends has few pieces, and each of its bytes is written a number of times that is bounded by the
 * logarithm of the grain. Where a value has come to more than twice the pieces that it needs nevertheless, a
 * change also merges two small neighbours elsewhere.
 */
#ifndef STORE_WINDOW_H
#define STORE_WINDOW_H

#include "format/record.h"

/* A shorter piece beside the window always joins it. */
#define WINDOW_PIECE_MIN 4096u
/* Values of up to so many bytes are written anew as a whole. */
#define WINDOW_WHOLE_MAX 8192u

struct window {
    uint64_t start, length;              /* of the bytes written anew */
    uint32_t first, end;                 /* old pieces that leave the value: first to end - 1 */
    uint64_t zeros_before, zeros_behind; /* runs of zeros beside the window, in place of old pieces */
    uint32_t merge;                      /* pieces merge and merge + 1 become one; UINT32_MAX: none do */
    uint32_t grain;
};

/* The change of `length` bytes at `offset` in a value of these pieces. The value may end before it, but it
 * may not be empty. */
void window_choose(const struct format_piece *pieces, uint32_t count, uint64_t offset, uint64_t length,
                   struct window *window);

#endif
