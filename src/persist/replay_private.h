/* replay_private.h - what replay.c keeps, and replay_value.c reads. Private to src/persist/. */
#ifndef PERSIST_REPLAY_PRIVATE_H
#define PERSIST_REPLAY_PRIVATE_H

#include "format/key.h"
#include "format/record.h"
#include "persist/replay.h"

#define REPLAY_DISKS_MAX 64u
#define REPLAY_INDEXES   (UINT16_MAX + 1)
#define REPLAY_BLOCK_MAX FORMAT_RECORD_BLOCK_MAX

/* Bytes in a file of a journal; length 0: a run of zeros. */
struct replay_place {
    uint16_t disk;
    uint32_t file, length;
    uint64_t offset, hash; /* hash: of the bytes of a value that stands for itself */
};

/* The block that was last copied from an address of the pool. */
struct replay_block {
    gaddr address;        /* GADDR_NULL: a free place of the table */
    uint64_t first, hash; /* its first 8 bytes; of all its bytes */
    struct replay_place place;
};

struct replay_key {
    struct replay_key *chain;
    uint64_t hash, epoch, sequence; /* sequence 0: no entry was taken yet */
    /* The newest entry whose record was not there when it was read; sequence 0: none. And that record's
     * memory node. */
    uint64_t missed_epoch, missed_sequence;
    struct replay_place *places; /* owned: of the record, then of its pieces; or of the value's parts; NULL:
                                    the value is short */
    uint16_t index, length;
    bool present; /* false: deleted */
    bool plain;   /* a value that stands for itself, in so many places, and is not what a slot holds */
    uint32_t plain_length, plain_places;
    uint64_t expires;                 /* of a plain one */
    uint8_t value_length, value_room; /* of a short value, or of what a slot holds; room in 8 bytes */
    uint8_t *value;                   /* the replay's */
    uint8_t key[];
};

struct replay_index {
    struct persist_index index; /* its name is below */
    char name[UINT8_MAX + 1];
};

struct replay_chunk {
    struct replay_chunk *next;
    _Alignas(16) uint8_t bytes[];
};

/* Keys in order. `part`: 8 bytes of the key, behind the bytes that all keys begin with. They tell most keys
 * apart without a look at the key itself. */
struct replay_sorted {
    uint64_t part;
    struct replay_key *key;
};

struct persist_replay {
    struct disk *disks[REPLAY_DISKS_MAX]; /* borrowed */
    bool lost[REPLAY_DISKS_MAX];          /* by the memory nodes' numbers */
    uint16_t disk_count, disk;            /* disk: of the records that come */
    uint16_t names_disk;                  /* of those that name indexes: the first that was opened */
    bool begun;                           /* names_disk is known */
    const struct persist_table *table;    /* of the checkpoint; NULL: there is none */
    struct replay_key **buckets;          /* owned */
    uint64_t keys, capacity;
    struct replay_chunk *chunks; /* owned: where keys and short values lie, the newest first */
    size_t chunk_used;
    struct replay_sorted *sorted; /* owned */
    uint64_t sorted_count, sorted_at;
    uint64_t order; /* entries of VALUES records so far */
    /* Parts of the long value whose entry is to come, from part_first on, and perhaps of others before it. */
    struct replay_place *parts; /* owned */
    uint32_t part_first, part_count, part_capacity;
    uint64_t part_bytes;
    struct replay_block *blocks; /* owned: open addressing */
    uint64_t block_count, block_capacity;
    struct persist_replay_process *processes;               /* owned */
    uint32_t process_count, process_capacity, process_last; /* last: that was met last */
    struct replay_index **indexes; /* owned: [REPLAY_INDEXES], by number; NULL: none was named */
    uint8_t *header;               /* owned: FORMAT_RECORD_HEADER_MAX */
    uint8_t *bytes;                /* owned: of the value that is told */
    uint64_t bytes_capacity;
    struct disk_file *file; /* NULL: none is open */
    uint16_t file_disk;
    uint32_t file_number;
    struct persist_replay_stats stats;
};

const struct replay_block *replay_block_find(const struct persist_replay *replay, gaddr address);
/* False: no memory. */
bool replay_block_add(struct persist_replay *replay, const struct replay_block *block);
void replay_blocks_free(struct persist_replay *replay);
/* Reads the place's bytes from the file. */
int replay_read(struct persist_replay *replay, const struct replay_place *place, uint8_t *to,
                struct error *error);
/* entry's value and expiry; the bytes are the replay's until the next call. */
int replay_value(struct persist_replay *replay, const struct replay_key *key, struct archive_entry *entry,
                 struct error *error);
void replay_value_free(struct persist_replay *replay);

/* Memory that lives as long as the replay; NULL: there is none. */
void *replay_allocate(struct persist_replay *replay, size_t bytes);
/* A copy in the key. False: no memory. */
bool replay_key_keep(struct persist_replay *replay, struct replay_key *key, const uint8_t *bytes,
                     uint8_t length);
/* Drops what the key has; the caller fills in what counts from now on. */
void replay_key_clear(struct replay_key *key);
/* The key's place, made where it has none; NULL: no memory. */
struct replay_key *replay_key_get(struct persist_replay *replay, uint16_t index, struct format_key key);
/* Records that name indexes (replay_index.c). */
int replay_index_take(struct persist_replay *replay, const struct journal_record *record,
                      struct error *error);
void replay_indexes_free(struct persist_replay *replay);
/* Records that hold whole values (replay_plain.c). */
int replay_plain_bytes(struct persist_replay *replay, const struct journal_record *record,
                       struct error *error);
int replay_plain_values(struct persist_replay *replay, const struct journal_record *record,
                        struct error *error);

#endif
