/*
 * batch.h - the entries of many slots resolved together, their records read in few round trips. Private to
 * src/store/.
 */
#ifndef STORE_BATCH_H
#define STORE_BATCH_H

#include "store/record.h"
#include "store/transfer.h"

struct store_entry {
    const uint8_t *key, *raw; /* the caller's, or in the arena */
    size_t key_length, raw_length;
    gaddr key_block; /* of a long key that a scan met; else GADDR_NULL */
    uint32_t item;   /* of store_multi_get: its number */
    int status;      /* 0, BANYAN_ENOTFOUND (expired), STORE_STALE (to be fetched by itself), or an error */
    bool large;      /* with STORE_STALE: because its value is in pieces */
    struct format_value slot;
    struct store_value value;
};
#define STORE_BATCH_ENTRIES 256u
/* Bytes of records that a batch of a scan holds. */
#define STORE_BATCH_BYTES ((size_t)4 << 20)
struct store_batch {
    struct store_entry entries[STORE_BATCH_ENTRIES];
    uint32_t count;
    uint32_t posted; /* commands below */
    struct fabric_command commands[STORE_TRANSFER_MAX];
    int statuses[STORE_TRANSFER_MAX];
    uint32_t owners[STORE_TRANSFER_MAX];
};
/* NULL when memory is short. */
struct store_batch *store_batch_get(struct store_session *session);
/* Resolves the batch's entries whose status is 0, their round trips together; values go to the arena. */
void store_batch_resolve(struct store_session *session, uint64_t now, enum format_part part);

#endif
