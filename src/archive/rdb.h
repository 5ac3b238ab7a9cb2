/*
 * rdb.h - Redis's snapshots (dump.rdb, and the base of its append-only files): the strings in them. What lies
 * in them of other types is stepped over, and counted.
 *
 * Versions 1 to 12 of the format, that is Redis 1.0 to 7.4 and what descends from it. One thread; holds the
 * longest value in memory.
 */
#ifndef ARCHIVE_RDB_H
#define ARCHIVE_RDB_H

#include <stdbool.h>
#include "archive/entry.h"
#include "archive/source.h"

#define RDB_VERSION_MAX 12u

struct rdb_options {
    uint64_t database; /* keys of this one alone */
};

struct rdb_counts {
    uint64_t strings;         /* that were visited */
    uint64_t others;          /* keys of other types, in the database */
    uint64_t other_databases; /* keys in others */
    uint64_t too_long;        /* strings whose key or value is too long for an entry */
    char example[64];         /* the first key of `others` or `too_long`, as far as it can be printed */
};

/* Whether the bytes begin such a file; 9 are enough. */
bool rdb_begins(const uint8_t *bytes, size_t length);
/* Reads up to the snapshot's end; in an append-only file commands may follow. Entries that have expired
 * meanwhile are visited like others. Errors: BANYAN_ECORRUPT, among them a wrong checksum, which is known
 * only at the end; BANYAN_EVERSION; BANYAN_ENOTSUP: it has something that cannot be stepped over. */
int rdb_read(struct source *source, const struct rdb_options *options, archive_visit_function *visit,
             void *context, struct rdb_counts *counts, struct error *error);

#endif
