/* crc32c.h - CRC32C (Castagnoli): SSE4.2 or ARMv8 CRC instructions where the CPU has them, else tables.
 * crc32c(0, ...) starts; pass a result on to continue. Standard form: crc32c(0, "123456789", 9) ==
 * 0xe3069283. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t length);
/* The same of several pieces, as if they stood one behind the other. */
struct crc32c_part {
    const void *bytes;
    size_t length;
};
uint32_t crc32c_parts(uint32_t crc, const struct crc32c_part *parts, uint32_t count);
/* Of `count` pieces that carry their own crc: at base + places[i] four bytes, then `length` bytes, eight or
 * more. A piece is empty if its four bytes are `empty`, an even number, and taken if they are the crc of the
 * bytes behind them, continued from `crc`, with the lowest bit set. Writes the taken ones, in order, and
 * returns how many they are; CRC32C_NONE if any piece is neither. Without a branch on what a piece is;
 * `taken` has room for all. */
struct crc32c_piece {
    uint64_t head; /* the first eight of the bytes, the first of them the most significant */
    uint32_t number;
};
#define CRC32C_NONE UINT32_MAX
uint32_t crc32c_sift(uint32_t crc, const void *base, const uint32_t *places, uint32_t count, size_t length,
                     uint32_t empty, struct crc32c_piece *taken);
/* The same of memory that others may be writing: copies what the crc of each piece covers to its place behind
 * `copy`, and judges the copy. Pieces begin at multiples of 4, and are at most CRC32C_SHARED_MAX. Bit i of
 * *taken says whether piece i is. False if any is neither empty nor taken. Quick with 16 bytes behind each
 * crc. */
#define CRC32C_SHARED_MAX 64u
bool crc32c_sift_shared(uint32_t crc, const void *shared, void *copy, const uint32_t *places, uint32_t count,
                        size_t length, uint32_t empty, uint64_t *taken);
/* Looks for a key of eight bytes among such pieces, 16 bytes behind each crc, that others may be writing.
 * True: the last one that begins with `wanted` is taken, by the crc of the eight bytes `front` and then its
 * own; *rest is what stands behind the key. False says nothing. All that is judged is read once. */
bool crc32c_find_shared(uint64_t front, const void *shared, const uint32_t *places, uint32_t count,
                        uint64_t wanted, uint64_t *rest);
/* Gives each of such pieces the crc that makes it a taken one. */
void crc32c_seal(uint32_t crc, void *base, const uint32_t *places, uint32_t count, size_t length);
/* The portable form, for tests to compare with. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t length);
/* Which one crc32c() uses: "sse4.2", "armv8" or "portable". */
const char *crc32c_implementation(void);

#endif
