/*
 * journal.h - files to which records are appended, and which tell the next life all that was promised.
 *
 * The caller is one thread, which appends, syncs and releases. A record is a kind and up to
 * JOURNAL_LENGTH_MAX bytes, opaque here; its position is how many bytes of records stand before it since the
 * journal began. A record is safe when journal_sync has returned a position above its own. The rules (D7 to
 * D16) and why they hold at every cut: docs/internals/durability.md.
 *
 * Cost: an append copies the record; a sync is one write with one sync of the file behind it, and two syncs
 * more where a new file begins (the last one is full). Memory: the buffer, and while it is opened at most 1
 * MiB beside it.
 *
 * FILES `journal-NNNNNNNN`, numbered from 1. All numbers are little-endian.
 *
 *   header  0  8  "BNYNJRNL"
 *           8  4  version: 1
 *          12  4  the memory node's number
 *          16  8  the cluster
 *          24  4  the file's number
 *          28  4  0
 *          32  8  position of its first record
 *          40  8  nonce: drawn anew for each file
 *          48 12  0
 *          60  4  CRC32C of the bytes before; it stays here in all versions
 *   record  0  4  CRC32C of the nonce and of the bytes from 4 to 31
 *           4  4  CRC32C of the payload
 *           8  4  bytes of the payload
 *          12  1  kind, not 0
 *          13  3  0
 *          16  8  its position
 *          24  8  synced: a position up to which all was safe when this record was written
 *          32     payload, then zeros up to a multiple of 8
 *
 * So a record that an earlier use of the file has left, or that stands in another place, is not taken for
 * one.
 */
#ifndef DISK_JOURNAL_H
#define DISK_JOURNAL_H

#include "disk/disk.h"

#define JOURNAL_VERSION      1u
#define JOURNAL_HEADER_BYTES 64u
#define JOURNAL_RECORD_BYTES 32u
#define JOURNAL_LENGTH_MAX   (128u << 10)
#define JOURNAL_FILE_BYTES   (UINT64_C(64) << 20)
#define JOURNAL_BUFFER_BYTES (4u << 20)

struct journal;

struct journal_options {
    uint64_t cluster;
    uint32_t node;
    uint64_t from;       /* nothing before it is needed any more; a position that journal_sync has returned */
    uint64_t file_bytes; /* a file ends before it is longer; 0: JOURNAL_FILE_BYTES */
    uint32_t buffer_bytes; /* what may be appended between two syncs; 0: JOURNAL_BUFFER_BYTES */
    uint64_t seed;         /* of the nonces; 0: from the system */
    bool accept_loss;      /* go on over what is corrupt or missing */
};

struct journal_record {
    uint8_t kind;
    uint32_t length;
    const uint8_t *bytes;
    uint64_t position, end; /* the next one's position */
    uint32_t file;          /* its number */
    uint64_t offset;        /* in the file */
};
/* A result other than 0 ends the opening and is returned. */
typedef int journal_visit_function(void *context, const struct journal_record *record, struct error *error);
/* For visitors that do not take a record at once: the opening has told all records, or meets an error of its
 * own behind those that it has told, and nothing is changed yet. A result other than 0 is of an earlier
 * record, and is returned in place of the opening's own error. May be called several times. */
typedef int journal_settle_function(void *context, struct error *error);

/* What an opening has found, beside records. */
struct journal_report {
    uint64_t records, cut_bytes; /* the torn tail's */
    uint32_t files, lost;        /* regions that were lost, with accept_loss */
};
/* With accept_loss: all between these positions is lost; `why` names file and offset. */
typedef void journal_loss_function(void *context, uint64_t from, uint64_t to, const char *why);

struct journal_reader {
    journal_visit_function *visit; /* any may be NULL */
    journal_settle_function *settle;
    journal_loss_function *loss;
    void *context;
    struct journal_report report; /* set */
};

/*
 * Reads the files, and begins a new one behind them; if there is no room for it, the first sync begins it.
 * When it returns 0, all records that it told are safe, also from a loss of power. When it fails, the records
 * that it has told do not count.
 *
 * It cuts the torn tail: bytes behind the last whole record, which no record says to be promised.
 * BANYAN_ECORRUPT: something that was promised is missing or damaged; accept_loss goes on over it. The
 * damaged files stay as they are until they are released, and every opening until then wants accept_loss.
 * BANYAN_EVERSION; BANYAN_EINVAL: files of another cluster or memory node; and the errors of disk.h.
 */
int journal_open(struct journal **journal, struct disk *disk, const struct journal_options *options,
                 struct journal_reader *reader, struct error *error);
/* Drops what is not synced. NULL: does nothing. */
void journal_close(struct journal *journal);

/* Whether the buffer has room for a record of that length; else sync first. */
bool journal_has_room(const struct journal *journal, uint32_t length);
/* Copies a record. BANYAN_EBUSY: the buffer has no room for it. */
int journal_append(struct journal *journal, uint8_t kind, const void *bytes, uint32_t length,
                   uint64_t *position, struct error *error);
/*
 * Writes and syncs all that was appended; all before `safe` is safe then, also when it fails. BANYAN_ENOSPC:
 * there is no room, and the rest is still in the buffer: release something and sync again. Any other error
 * ends the promise: all calls fail with it from then on, until the journal is opened by another process.
 */
int journal_sync(struct journal *journal, uint64_t *safe, struct error *error);
/* Removes the files that lie wholly before the position. The caller has seen to it that each opening from now
 * on is given at least this position as `from`, also after a cut. The last file stays. */
int journal_release(struct journal *journal, uint64_t position, struct error *error);

uint64_t journal_begin(const struct journal *journal); /* of the first file */
uint64_t journal_end(const struct journal *journal);   /* of what was appended */
uint64_t journal_safe(const struct journal *journal);

#endif
