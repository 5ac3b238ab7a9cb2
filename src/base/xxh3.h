/*
 * xxh3.h - XXH3-64 without a seed, the hash that proves values: by vectors of 32 bytes where the CPU has
 * AVX2, else as the library xxHash was compiled. And the same while bytes are copied, in one pass over them.
 *
 * Which way is taken never changes the result. Pure, any thread, cannot fail. Built without vector code
 * (meson -Dvectors=false) XXH3_VECTORS is 0, and all goes by the library.
 */
#ifndef BASE_XXH3_H
#define BASE_XXH3_H

#include <stddef.h>
#include <stdint.h>

#ifndef XXH3_VECTORS
#define XXH3_VECTORS 1
#endif

uint64_t xxh3(const void *bytes, size_t length);
/* atomic_copy_long_from and atomic_copy_long_to, and the hash of what has been copied: even where the source
 * changes meanwhile it is that of the bytes in `to`, or in `shared`. */
uint64_t xxh3_copy_from(void *to, const void *shared, size_t length);
uint64_t xxh3_copy_to(void *shared, const void *from, size_t length);
/* The library's, for tests to compare with. */
uint64_t xxh3_plain(const void *bytes, size_t length);
/* Which one the others use for long runs of bytes: "avx2" or "plain". */
const char *xxh3_implementation(void);

#endif
