/* journal_format.h - the bytes of a journal's files (journal.h), and how they are read when it is opened. For
 * src/disk/, its tests and its fuzzer. Pure functions but for journal_read. */
#ifndef DISK_JOURNAL_FORMAT_H
#define DISK_JOURNAL_FORMAT_H

#include "disk/journal.h"

#define JOURNAL_NAME_BYTES 17u
#define JOURNAL_NUMBER_MAX 99999999u
/* Beyond all that can be written, and no sum of it with a file's length overflows. */
#define JOURNAL_POSITION_MAX (UINT64_C(1) << 62)

/* Where a file is made; it gets its own name when its header is on the disk. */
#define JOURNAL_NEW "journal.new"

struct journal_head {
    uint64_t cluster;
    uint32_t node, file;
    uint64_t begin, nonce;
};

void journal_name(char name[JOURNAL_NAME_BYTES], uint32_t number);
/* 0: it is no journal file's name. */
uint32_t journal_number(const char *name);

void journal_head_encode(const struct journal_head *head, uint8_t bytes[JOURNAL_HEADER_BYTES]);
/* NULL, or what is wrong; `version` is set if it alone is wrong, else it is 0. */
const char *journal_head_decode(struct journal_head *head, const uint8_t bytes[JOURNAL_HEADER_BYTES],
                                uint32_t *version);

/* All bytes of a record with so many of payload. */
static inline uint32_t journal_record_bytes(uint32_t length)
{
    return JOURNAL_RECORD_BYTES + ((length + 7) & ~7u);
}
/* Writes the record, but for the fields that journal_record_seal sets. */
void journal_record_put(uint8_t *to, uint8_t kind, const void *bytes, uint32_t length);
/* Returns its bytes. */
uint32_t journal_record_seal(uint8_t *record, uint64_t nonce, uint64_t position, uint64_t synced);

struct journal_view {
    uint8_t kind;
    uint32_t length, check; /* of the payload */
    uint64_t position, synced;
};
/* Whether a record of this file begins here; its payload is not looked at. */
bool journal_view_decode(struct journal_view *view, const uint8_t bytes[JOURNAL_RECORD_BYTES], uint64_t nonce,
                         uint64_t position);

/* A file of the journal, as it was found or begun. */
struct journal_file {
    uint32_t number;
    uint64_t begin;
};

/* What journal_open knows when it has read the files. */
struct journal_found {
    struct journal_file *files; /* owned by the caller then */
    uint32_t count;
    uint64_t end; /* where the next record goes */
};
/* Reads all files, cuts the torn tail, and makes safe what it told. */
int journal_read(struct disk *disk, const struct journal_options *options, struct journal_reader *reader,
                 struct journal_found *found, struct error *error);

#endif
