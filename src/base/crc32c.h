/* crc32c.h - CRC32C (Castagnoli): SSE4.2 or ARMv8 CRC instructions where the CPU has them, else tables.
 * crc32c(0, ...) starts; pass a result on to continue. Standard form: crc32c(0, "123456789", 9) ==
 * 0xe3069283. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t length);
/* The same for `count` pieces of `length` bytes that lie `stride` bytes apart: results[i] continues `crc`
 * with piece i. Much faster than one call for each: the pieces' instructions overlap. */
void crc32c_each(uint32_t crc, const void *first, size_t stride, uint32_t count, size_t length,
                 uint32_t *results);
/* The portable form, for tests to compare with. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t length);
/* Which one crc32c() uses: "sse4.2", "armv8" or "portable". */
const char *crc32c_implementation(void);

#endif
