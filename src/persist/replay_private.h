/* replay_private.h - what a replay keeps, for the files that make it. Private to src/persist/. */
#ifndef PERSIST_REPLAY_PRIVATE_H
#define PERSIST_REPLAY_PRIVATE_H

#include "format/key.h"
#include "format/record.h"
#include "persist/places.h"
#include "persist/replay.h"

#define REPLAY_DISKS_MAX  64u
#define REPLAY_INDEXES    (UINT16_MAX + 1)
#define REPLAY_BLOCK_MAX  FORMAT_RECORD_BLOCK_MAX
#define REPLAY_SHARDS_MAX PERSIST_REPLAY_THREADS_MAX
#define REPLAY_APART      128u /* bytes between what different threads write, so that they share no line */

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

/* A piece that was brought (P17): by its place in the pool and the hash of its bytes. */
struct replay_piece {
    gaddr address;
    uint64_t hash;
    struct replay_place place;
};

struct replay_key {
    struct replay_key *next;  /* the one that was made behind it */
    uint64_t epoch, sequence; /* sequence 0: no entry was taken yet */
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

/* Of the table of keys; open addressing. */
struct replay_slot {
    uint64_t hash;
    struct replay_key *key; /* NULL: the slot is free */
};

/* Keys in order. `part`: 8 bytes of the key, behind the bytes that all keys begin with. They tell most keys
 * apart without a look at the key itself. */
struct replay_sorted {
    uint64_t part;
    struct replay_key *key;
};

/* The keys whose hashes fall to it (replay_shard_of), and the memory in which they lie. One thread at a time
 * touches it. */
struct replay_shard {
    _Alignas(REPLAY_APART) struct replay_slot *slots; /* owned: [capacity], of which `keys` are taken */
    uint64_t keys, capacity;
    struct replay_key *first, *last; /* in the order in which they were made, as they lie in memory */
    uint32_t common;                 /* bytes that all its keys begin with */
    bool several;                    /* its keys are of more than one index */
    bool placed;                     /* a key had places, which have to be freed one by one */
    struct replay_chunk *chunks;     /* owned: where keys and short values lie, the newest first */
    size_t chunk_used;
    uint64_t entries; /* of VALUES records that were its */
    /* While keys are sorted: where the shard's are in the arrays, and how many. */
    uint64_t sorted_from, sorted_count;
};

/* A VALUES record as it is taken: now, or later by other threads. */
struct replay_given {
    struct journal_record record;
    uint16_t disk;
    uint64_t order;             /* VALUES records up to this one */
    struct replay_place *parts; /* owned: of the long value that its first entry has; NULL: it has none */
    uint32_t part_count;
    bool parts_bad; /* it has one, and its parts are not as long as it says */
};

struct persist_replay {
    struct disk *disks[REPLAY_DISKS_MAX]; /* borrowed */
    bool lost[REPLAY_DISKS_MAX];          /* by the memory nodes' numbers */
    uint16_t disk_count, disk;            /* disk: of the records that come */
    uint16_t names_disk;                  /* of those that name indexes: the first that was opened */
    bool begun;                           /* names_disk is known */
    const struct persist_table *table;    /* of the checkpoint; NULL: there is none */
    struct replay_shard *shards;          /* owned: [shard_count] */
    uint32_t shard_count;
    struct replay_threads *threads; /* owned: that take VALUES records; NULL: the calling one does */
    bool alone;                     /* from now on the calling thread takes them */
    struct error failure;           /* the first of the threads; no error: none */
    struct replay_sorted *sorted;   /* owned */
    uint64_t sorted_count, sorted_at;
    uint64_t order; /* VALUES records so far */
    /* Parts of the long value whose entry is to come, from part_first on, and perhaps of others before it. */
    struct replay_place *parts; /* owned */
    uint32_t part_first, part_count, part_capacity;
    uint64_t part_bytes;
    struct replay_block *blocks; /* owned: open addressing */
    uint64_t block_count, block_capacity;
    struct places brought;                                  /* owned: struct replay_piece */
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
/* Where the piece's bytes stand, whether its block was copied or brought; NULL: nowhere. */
const struct replay_place *replay_piece_find(const struct persist_replay *replay, gaddr address,
                                             const struct format_piece *piece);
/* False: no memory. */
bool replay_piece_add(struct persist_replay *replay, const struct replay_block *block);
/* Reads the place's bytes from the file. */
int replay_read(struct persist_replay *replay, const struct replay_place *place, uint8_t *to,
                struct error *error);
/* entry's value and expiry; the bytes are the replay's until the next call. */
int replay_value(struct persist_replay *replay, const struct replay_key *key, struct archive_entry *entry,
                 struct error *error);
void replay_value_free(struct persist_replay *replay);

/* ---- keys (replay_keys.c) ---- */

/* As malloc, in huge pages where it is much and the system has them: what is read here and there in hundreds
 * of megabytes would else wait for the translation of its addresses, too. */
void *replay_large(size_t bytes);
/* As calloc, at a multiple of REPLAY_APART; `bytes` is one. */
void *replay_apart(size_t bytes);
/* So many, without keys, in place of those that there are, which have none. False: no memory, and nothing is
 * changed. */
bool replay_shards_make(struct persist_replay *replay, uint32_t count);
/* Memory that lives as long as the replay; NULL: there is none. */
void *replay_allocate(struct replay_shard *shard, size_t bytes);
/* A copy in the key. False: no memory. */
bool replay_key_keep(struct replay_shard *shard, struct replay_key *key, const uint8_t *bytes,
                     uint8_t length);
/* Drops what the key has; the caller fills in what counts from now on. */
void replay_key_clear(struct replay_key *key);
/* The places become the key's, which has none. NULL: none. */
void replay_key_place(struct replay_shard *shard, struct replay_key *key, struct replay_place *places);
uint64_t replay_key_hash(uint16_t index, struct format_key key);
/* Whose key it is. By the upper half of the hash, as a shard's table goes by the lower one. */
static inline struct replay_shard *replay_shard_of(const struct persist_replay *replay, uint64_t hash)
{
    return &replay->shards[(hash >> 32) * replay->shard_count >> 32];
}
/* The key's place in its shard, made where it has none; NULL: no memory. */
struct replay_key *replay_key_get(struct replay_shard *shard, uint16_t index, struct format_key key,
                                  uint64_t hash);
/* A table of millions of keys lies in no cache. So keys are looked for in groups of at most so many: what
 * replay_key_get will read of each is asked for before the first is read. */
#define REPLAY_AHEAD 32u
void replay_keys_ahead(const struct persist_replay *replay, const uint64_t *hashes, uint32_t count);
void replay_keys_free(struct persist_replay *replay);

/* ---- their order (replay_order.c) ---- */

/* Asks for the memory of keys that come soon. */
void replay_order_ahead(const struct persist_replay *replay);

/* Records that name indexes (replay_index.c). */
int replay_index_take(struct persist_replay *replay, const struct journal_record *record,
                      struct error *error);
void replay_indexes_free(struct persist_replay *replay);
/* Records that hold whole values (replay_plain.c). */
int replay_plain_bytes(struct persist_replay *replay, const struct journal_record *record,
                       struct error *error);
/* Takes the record, or gives it to the threads, whose errors replay_threads_settle tells. */
int replay_plain_values(struct persist_replay *replay, const struct journal_record *record,
                        struct error *error);
/* Takes the entries of a VALUES record that are this shard's; NULL: all. What is wrong with a record is found
 * whichever shard asks. */
int replay_plain_take(struct persist_replay *replay, struct replay_given *given, struct replay_shard *only,
                      struct error *error);
/* The message of an error in a record, with file and offset. Returns `status`. */
int replay_record_bad(const struct persist_replay *replay, uint16_t disk, const struct journal_record *record,
                      int status, const struct error *reason, struct error *error);

/* ---- threads (replay_threads.c) ---- */

/* Copies the record for the threads, which are started where they do not run; given->parts is theirs. An
 * error is of the calling thread alone. */
int replay_threads_give(struct persist_replay *replay, const struct replay_given *given, struct error *error);
/* Whether a thread has met an error. */
bool replay_threads_failed(const struct persist_replay *replay);
/* Waits until they have taken all that they were given, and ends them; tells the error of the record that
 * came first, at each call. */
int replay_threads_settle(struct persist_replay *replay, struct error *error);
/* Calls function(context, shard) for the numbers of all shards, each on a thread of its own, the first on the
 * calling one, and waits for all. If a thread cannot be started, some were not called. */
int replay_threads_each(struct persist_replay *replay, void (*function)(void *context, uint32_t shard),
                        void *context, struct error *error);

#endif
