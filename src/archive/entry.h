/*
 * entry.h - a key with its value, as files of keys hold it: Banyan's own (archive.h), Redis's snapshots
 * (rdb.h) and Redis's logs of commands (aof.h).
 */
#ifndef ARCHIVE_ENTRY_H
#define ARCHIVE_ENTRY_H

#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

#define ARCHIVE_KEY_MAX   255u
#define ARCHIVE_VALUE_MAX (64u << 20)

struct archive_entry {
    const uint8_t *key, *value;
    size_t key_length, value_length;
    uint64_t expires; /* ms since 1970; 0: never */
};

/* What a reader finds, in the file's order. The bytes are the reader's, valid during the call. Not 0 ends the
 * reading with this status; then the function has filled in the error. */
typedef int archive_visit_function(void *context, const struct archive_entry *entry, struct error *error);
/* Takes bytes of a file that is written. Not 0 ends the writing with this status; then the function has
 * filled in the error. */
typedef int archive_write_function(void *context, const void *bytes, size_t length, struct error *error);

#endif
