/*
 * archive.h - Banyan's own file of keys: what `banyan dump` writes and `banyan load` reads.
 * docs/operations.md tells the format to programs that read it.
 *
 * All numbers are little-endian. A header of 32 bytes, blocks, and an end:
 *
 *   header  0  8  "BANYANKV"
 *           8  4  version: 1
 *          12  4  flags: 1: the keys ascend, byte by byte, and none stands twice; 2: all
 *                keys are as they were together at one moment
 *          16  8  when the file was begun: ms since 1970
 *          24  8  XXH3 (64 bits) of the bytes before
 *   block   0  4  "BLCK"
 *           4  4  its number, from 0
 *           8  4  bytes of it that follow this header
 *          12  4  bytes of its entries
 *          16  4  entries
 *          20  4  0: they stand as they are; 1: compressed by Zstandard
 *          24  8  XXH3 of these 24 bytes and, seeded with that, of what follows
 *   end     a block of 0 entries, with 16 bytes: all entries, and the bytes of them in all blocks
 *
 * An entry is three numbers as in LEB128 (length of the key, length of the value, expiry in ms since 1970 or
 * 0), the key, and the value. So each byte of a file is covered by a checksum, and a file that was cut short
 * has no end.
 *
 * A block has entries of 1 MiB, or one entry that is longer. One thread; a writer and a reader hold a block
 * or two each in memory.
 */
#ifndef ARCHIVE_ARCHIVE_H
#define ARCHIVE_ARCHIVE_H

#include <stdbool.h>
#include "archive/entry.h"
#include "archive/source.h"

#define ARCHIVE_VERSION     1u
#define ARCHIVE_ORDERED     1u
#define ARCHIVE_MOMENT      2u
#define ARCHIVE_LEVEL_MAX   19
#define ARCHIVE_HEADER      32u
#define ARCHIVE_BLOCK_BYTES (1u << 20)

struct archive_writer;
struct archive_totals {
    uint64_t entries, bytes; /* bytes of the entries */
    uint64_t written;        /* bytes of the file */
};

/* level 0: nothing is compressed; 1 to ARCHIVE_LEVEL_MAX: as Zstandard's. The header goes out with the first
 * block. */
int archive_writer_create(struct archive_writer **writer, uint32_t flags, uint64_t created_ms, int level,
                          archive_write_function *write, void *context, struct error *error);
void archive_writer_destroy(struct archive_writer *writer);
/* BANYAN_EINVAL: the key or value is too long, or, with ARCHIVE_ORDERED, the key does not ascend. */
int archive_add(struct archive_writer *writer, const struct archive_entry *entry, struct error *error);
/* Where a file may be cut back to. */
struct archive_mark {
    struct archive_totals totals;
    uint32_t number;
    bool begun;
    size_t last_length;
    uint8_t last[ARCHIVE_KEY_MAX];
};
/* Writes out what was added, and notes how far the file is. */
int archive_mark(struct archive_writer *writer, struct archive_mark *mark, struct error *error);
/* What was added since is forgotten. The caller cuts the file back to mark->totals.written bytes. */
void archive_rewind(struct archive_writer *writer, const struct archive_mark *mark);
/* Without it the file is not whole. */
int archive_finish(struct archive_writer *writer, struct error *error);
void archive_totals(const struct archive_writer *writer, struct archive_totals *totals);

/* Whether the bytes begin such a file; 8 are enough. */
bool archive_begins(const uint8_t *bytes, size_t length);
/* Reads the whole file: `visit` gets only entries of blocks whose checksum is right. Behind the end nothing
 * may follow. BANYAN_ECORRUPT; BANYAN_EVERSION: of a version that this program does not know. */
int archive_read(struct source *source, archive_visit_function *visit, void *context,
                 struct archive_totals *totals, struct error *error);

#endif
