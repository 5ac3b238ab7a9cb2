/*
 * store.h - keys with values of any size (to 64 MiB) and expiry, over an index whose slots hold short values
 * themselves and references to records for the rest (docs/internals/records.md).
 *
 * Called by the RESP server (src/server/), the C API (src/api/) and `banyan check`. A struct store is shared
 * by all threads of a compute node; a session belongs to one task (fiber or thread). Everything is
 * linearizable per key. An entry whose expiry has passed counts as absent everywhere, and is removed when it
 * is met or swept up.
 *
 * COST, in round trips with a warm cache: a short value (STORE_INLINE_MAX bytes; 8 where it expires) is read
 * with 1 and written with 2. A longer one stands in a record: read with 2, written with 3 (the record is
 * written first). One of more than about 64 KiB stands in a record's pieces: read with 3, written with 3,
 * and 1 more to free the value that it replaces if that had pieces; beyond 4 MiB with 1 more for each further
 * 128 pieces. Allocation: one RPC for a batch of blocks (pool_block_allocate). format/record.h says how
 * records lie in the pool, docs/internals/records.md why their readers are safe.
 *
 * Every call returns 0 or a negative banyan_error; the message is tree_session_error(session's tree session).
 * BANYAN_EUNKNOWN: the write may have taken effect.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "format/value.h"
#include "tree/tree.h"

#define STORE_VALUE_MAX  FORMAT_RECORD_VALUE_MAX /* 64 MiB */
#define STORE_KEY_MAX    FORMAT_KEY_MAX
#define STORE_INLINE_MAX 16u /* longest value kept in the slot of the default geometry */
/* Bytes of values that one store_multi_get returns, unless a single value is longer. The items beyond get
 * BANYAN_ENOMEM; the caller asks for them again. */
#define STORE_MULTI_BYTES_MAX (UINT64_C(4) << 20)

struct owner;
struct store;
struct store_entry;
struct store_value;
struct store_session;

/* ---- life ---- */

/* The geometry of a store's index as a program makes it: variable keys, 16 bytes of a key's remainder and 17
 * of value in the slot (the first of them is the kind of the rest). The fabric limits the length of keys,
 * since internal nodes hold whole keys and are written at once: 255 bytes where its atomic_write is at least
 * 2,048, some 140 where it is 1,024. */
void store_geometry(struct format_geometry *geometry);
/* Opens the named index as a store, whatever its geometry; with `create`, creates it if it does not exist,
 * with that geometry but for its leaves, which are dense: an entry takes a tenth less memory, and a point
 * read, which costs the server no round trip where it owns the key, fetches some more. BANYAN_ENOTFOUND,
 * BANYAN_EINVAL (it holds plain values). */
int store_open(struct store **store, struct tree_session *session, const char *name, bool create);
/* Makes a store of an open tree, which store_close closes. */
int store_wrap(struct store **store, struct tree *tree, struct error *error);
/* Limits the bytes of all sessions' buffers together, 1 MiB of each session not counted. A call that needs
 * more fails with BANYAN_ENOMEM. By default there is no limit. */
void store_set_memory_max(struct store *store, uint64_t bytes);
/* Its sessions must have been destroyed. */
void store_close(struct store *store);
struct tree *store_tree(const struct store *store);
/* Drops an index of any content, with its records where it is a store: see tree_drop for what others see of
 * it, and for the errors. */
int store_drop(struct tree_session *session, const char *name);
/* The same where compute nodes own ranges (owner.h): the index is made shared first, and taken off the map
 * afterwards. Of an attached tree, which stays open and attached; then of a name, of an index that this
 * process does not have open (`owner` may be NULL). BANYAN_EINVAL: it is the map itself. */
int store_drop_owned(struct tree_session *session, struct owner *owner, struct tree *tree);
int store_drop_name(struct tree_session *session, struct owner *owner, const char *name);
/* Ends all drops that were begun and not ended; *count: how many. */
int store_drop_finish(struct tree_session *session, uint32_t *count);

/* The tree session stays the caller's, and may be used between calls. */
int store_session_create(struct store_session **session, struct store *store,
                         struct tree_session *tree_session, struct error *error);
void store_session_destroy(struct store_session *session);
/* Bytes of the longest key. */
uint32_t store_key_max(const struct store_session *session);
struct tree_session *store_session_tree(const struct store_session *session);
/* Scans, counts and deletes of ranges call this before each of their batches: true ends them with
 * BANYAN_EABORT; the batches before are done. NULL, the default: they are never ended. */
void store_session_set_cancel(struct store_session *session, bool (*cancelled)(void *context), void *context);
/* Called for each key that a call of this session has changed, or may have changed, when that is in the pool
 * and before the call returns; on the session's task, which holds no lock, so it may suspend. Not for values
 * that were moved and are the same. NULL, the default: nothing is told. */
typedef void store_changed_function(void *context, const void *key, size_t key_length);
void store_session_set_changed(struct store_session *session, store_changed_function *changed, void *context);
/* Called in its stead, with its context, where the session knows the value that the key has got, and nothing
 * else has changed the key since: under the latch of the key's leaf. So of one key these calls of all
 * sessions come in the order of its changes. It must not suspend, nor use any store, and takes some hundred
 * instructions at most. False: it has noted nothing, and `changed` is called when the latch is free. NULL,
 * the default: that is always so. */
typedef bool store_placed_function(void *context, const void *key, size_t key_length,
                                   const struct store_value *value);
void store_session_set_placed(struct store_session *session, store_placed_function *placed);
/* Ends the results of the last call, and frees their memory if it is large, as the next call would do too. */
void store_session_rest(struct store_session *session);
/* For simulations: the session's stamps of records and random waits come from this seed. No two sessions of
 * an index may ever have the same. By default the seed is from the system's entropy. */
void store_session_seed(struct store_session *session, uint64_t seed);
/* The clock that expiries are compared with, in milliseconds since 1970; each call reads it once. Default:
 * CLOCK_REALTIME; tests and simulations set their own. */
void store_set_clock(struct store *store, uint64_t (*now)(void *context), void *context);

/* ---- one key ---- */

struct store_value {
    const uint8_t *bytes; /* NULL where only the length was asked for */
    size_t length;
    uint64_t expires; /* ms since 1970; 0: never */
    size_t whole;     /* where bytes are a part of the value: the length of the whole */
};
/* The session owns the value, which is valid until its next call. BANYAN_ENOTFOUND. */
int store_get(struct store_session *session, const void *key, size_t key_length, struct store_value *value);
/* Without reading the value itself (bytes NULL): one round trip for short values, at most two for others. */
int store_stat(struct store_session *session, const void *key, size_t key_length, struct store_value *value);

/* Stores whether the key exists or not. expires 0: never. */
int store_put(struct store_session *session, const void *key, size_t key_length, const void *bytes,
              size_t length, uint64_t expires);
/* BANYAN_ENOTFOUND. */
int store_delete(struct store_session *session, const void *key, size_t key_length);

enum store_verdict { STORE_KEEP, STORE_PUT, STORE_REMOVE };
/*
 * Read, decide and write as one atomic step. The function may be called several times, each time with what
 * the key holds then (NULL: nothing), and must depend on that and its context alone; it may allocate, but not
 * suspend nor use the session, since it may run under a lock. For STORE_PUT it fills *new; new->bytes must
 * stay valid until store_modify returns (memory of the context's, or `old->bytes`).
 *
 * It may be called ON ANOTHER THREAD of this process, by a task that holds the lock, while the calling task
 * waits (tree_modify in tree.h). So it may touch its context and what belongs to its own task alone: no
 * thread-local state, and nothing of a thread, such as its counters or the account of its clients' memory.
 * store_modify_here calls it on the calling task only, for functions that need more.
 */
typedef enum store_verdict store_modify_function(void *context, const struct store_value *old,
                                                 struct store_value *new);
enum store_need {
    STORE_NEED_VALUE,  /* the function looks at old->bytes */
    STORE_NEED_LENGTH, /* at its length and expiry only: bytes is NULL then, and a long value need not be
                        * read; STORE_PUT with new->bytes NULL keeps the value and changes its expiry only (an
                        * empty value needs bytes that are not NULL) */
};
/* *old_value (may be NULL) gets the value before the step that took effect, valid until the session's next
 * call (bytes with STORE_NEED_VALUE only); *existed (may be NULL) tells whether there was one. */
int store_modify(struct store_session *session, const void *key, size_t key_length, enum store_need need,
                 store_modify_function *function, void *context, struct store_value *old_value,
                 bool *existed);
int store_modify_here(struct store_session *session, const void *key, size_t key_length, enum store_need need,
                      store_modify_function *function, void *context, struct store_value *old_value,
                      bool *existed);

/* ---- parts of a value ---- */

/* A run of a value's bytes. */
struct store_part {
    uint64_t offset, length;
};
/* Chooses a part of a value of `whole` bytes; what lies behind its end is cut off. It depends on its
 * arguments alone, and may be called several times. */
typedef struct store_part store_choose_function(void *context, uint64_t whole);
/* Reads the part, and of a long value no more than the pieces that it touches (format/record.h): of values in
 * pieces one round trip for the header and one for up to 128 pieces. value->length is that of the part,
 * value->whole that of the value. BANYAN_ENOTFOUND. */
int store_get_part(struct store_session *session, const void *key, size_t key_length,
                   store_choose_function *choose, void *context, struct store_value *value);

#define STORE_AT_END UINT64_MAX
struct store_edit {
    uint64_t offset, length;
    bool blind; /* the function that changes the bytes overwrites all of them, and looks at none */
};
/*
 * Read, decide and write a part of a value as one atomic step. `aim` says which part, of a value of `whole`
 * bytes (not existed: 0); it may begin behind the end, then zeros fill the gap. `change` gets the part's
 * bytes, zeros where the value has none, and changes them in place. Either ends the step by STORE_KEEP, else
 * it returns STORE_PUT. A part of 0 bytes changes nothing, but a key that does not exist gets an empty value.
 * The expiry stays. Both may be called several times, and must depend on their arguments and the context
 * alone; they may not suspend nor use the session, since they may run under a lock.
 *
 * COST: values of up to 8 KiB are written as a whole. Of longer ones the pieces that the part touches are
 * read and written, and the header that names all pieces: 1 round trip for the slot, 1 for the header, 1 for
 * the pieces, 1 to write, 2 for the exchange. Allocates room for the part and the pieces that it touches.
 */
struct store_editor {
    enum store_verdict (*aim)(void *context, bool existed, uint64_t whole, struct store_edit *edit);
    enum store_verdict (*change)(void *context, const struct store_edit *edit, uint8_t *bytes);
    void *context;
};
/* *whole gets the length of the value afterwards; *existed (may be NULL) whether there was one.
 * BANYAN_EVALUESIZE: the value would be too long. */
int store_edit(struct store_session *session, const void *key, size_t key_length,
               const struct store_editor *editor, uint64_t *whole, bool *existed);
/* Writes bytes over a part of the value, or with STORE_AT_END behind it. */
int store_splice(struct store_session *session, const void *key, size_t key_length, uint64_t offset,
                 const void *bytes, size_t length, uint64_t *whole);

/* ---- many keys ---- */

struct store_item {
    const void *key;
    size_t key_length;
    struct store_value value;      /* get: out, the session owns the bytes; put: in */
    int status;                    /* out: 0, BANYAN_ENOTFOUND, or an error */
    store_choose_function *choose; /* get of values: a part of it, as store_get_part; NULL: the whole */
    void *context;                 /* of `choose` */
    bool leave;                    /* get of values: see store_item_read */
    struct store_entry *left;      /* get, out: not NULL: the value is still where it was found */
};
/* Round trips overlap. Without `values` only lengths and expiries are read. Each item has its own status; the
 * return value is 0 unless some status is neither 0 nor BANYAN_ENOTFOUND. */
int store_multi_get(struct store_session *session, struct store_item *items, size_t count, bool values);
/*
 * Where the pool is mapped here, store_multi_get leaves values outside of slots where they are, if the item
 * says `leave` and it is one of at most STORE_LEAVE_MAX: item->value has the length alone then, and
 * item->left is not NULL. The caller has each such value copied to a place of its own, with room for
 * item->value.length bytes, so that it is copied once. Status and value are then what store_multi_get would
 * have told, at the time of this call: value.bytes is `room`, or the session's where the key has another
 * value by now, perhaps a longer one; then this call may suspend. No other call of the session may come in
 * between.
 */
#define STORE_LEAVE_MAX 256u
void store_item_read(struct store_session *session, struct store_item *item, void *room);
/* Puts the items' values, with their expiries. Not one transaction: each item takes effect by itself. */
int store_multi_put(struct store_session *session, struct store_item *items, size_t count);

/* ---- ranges ---- */

enum store_scan_flags { STORE_SCAN_KEYS = 0, STORE_SCAN_VALUES = 1 };
/* Entries in key order, as from tree_scan, but visit runs outside of any lock and may take its time; it must
 * not use this session. Expired entries are left out. Without STORE_SCAN_VALUES value->bytes is NULL and
 * value->length is that of the value. */
typedef bool store_visit_function(void *context, const void *key, size_t key_length,
                                  const struct store_value *value);
int store_scan(struct store_session *session, const struct tree_range *range, unsigned flags,
               store_visit_function *visit, void *context);
/* Each entry is counted as of some instant of the call. Reads whole leaves: about one round trip for some
 * thousand entries. */
int store_count(struct store_session *session, const struct tree_range *range, uint64_t *count);
/* Not one transaction: each key is deleted by itself. *count: how many were. */
int store_delete_range(struct store_session *session, const struct tree_range *range, uint64_t *count);
/* For scans in many calls by clients that keep nothing but a number, and of which nothing is kept here. A
 * place (1 to 2^63 - 1; below 2^53 for the first 128 GiB of a single memory node's pool) names a leaf of the
 * index, and means the same on all compute nodes of a cluster. store_place_after: the first place after the
 * key, and the bound where it begins: keys before the bound lie before the place. BANYAN_ENOTFOUND: all keys
 * after this one lie before the next place, which is the end. One round trip. */
int store_place_after(struct store_session *session, const void *key, size_t key_length, uint64_t *place,
                      struct tree_place_bound *bound);
/* The bound where the place begins, the same as when it was made. `place` may be any number. One round trip.
 * BANYAN_ENOTFOUND: the place was never made, or its leaf has left the index and something else lies there.
 */
int store_place_find(struct store_session *session, uint64_t place, struct tree_place_bound *bound);
/* A random key, all about equally likely; *length in: room, out: its length. BANYAN_ENOTFOUND: the store is
 * empty. */
int store_sample(struct store_session *session, void *key, size_t *length);

/* ---- bulk load ---- */

/* As tree.h has it, with values of any length: an index that is empty is made of ascending streams. A load
 * that fails leaves the index empty; the records that it had written stay until `check --reclaim`. */
struct store_bulk;
/* The next entry, which stays valid until the next call; false: the part ends. */
typedef bool store_bulk_next_function(void *context, const void **key, size_t *key_length,
                                      struct store_value *value);
int store_bulk_begin(struct store_bulk **bulk, struct store *store, unsigned parts, double fill,
                     struct error *error);
/* A round trip for each leaf, and for each value that does not fit into a slot. */
int store_bulk_part(struct store_session *session, struct store_bulk *bulk, unsigned part,
                    store_bulk_next_function *next, void *context);
/* Frees bulk, also on error. */
int store_bulk_finish(struct store_session *session, struct store_bulk *bulk);

/* ---- expiry ---- */

struct store_sweep {
    uint8_t cursor[FORMAT_KEY_MAX]; /* the last key looked at; cursor_length 0: a pass begins */
    size_t cursor_length;
    uint64_t seen, removed; /* so far in this pass */
    uint64_t last_pass_keys, last_pass_removed, passes;
};
/* Looks at up to `entries` entries from the cursor on and removes those that have expired. */
int store_sweep_step(struct store_session *session, struct store_sweep *sweep, uint32_t entries);

/* ---- counters of all sessions of a store together; any thread ---- */

struct store_stats {
    uint64_t records_written, records_freed, bytes_written, bytes_freed;
    uint64_t record_retries; /* a record was overwritten while it was read */
    uint64_t expired;        /* entries removed because they had expired */
    uint64_t memory;         /* of the sessions' buffers now: see store_set_memory_max */
};
void store_stats(const struct store *store, struct store_stats *stats);

/* ---- checking ---- */

struct store_check_report {
    struct tree_check_report tree;
    uint64_t values_inline, values_record, record_blocks, record_bytes, expired;
    uint64_t problems; /* broken invariants met, of index and records */
};
/* Either may be NULL. */
struct store_check_visitor {
    void (*block)(void *context, gaddr block, uint32_t bytes); /* every block in use, nodes and records */
    void (*problem)(void *context,
                    const char *text); /* a sentence for each problem, with its address or key */
    void *context;
};
/* tree_check_all, and every record: its hashes, key and length. Nothing else may write meanwhile. 0 when the
 * walk was made, whatever it found. Without `problem` it ends at the first problem, with BANYAN_ECORRUPT. */
int store_check_all(struct store_session *session, const struct store_check_visitor *visitor,
                    struct store_check_report *report);
/* The same without `problem`: BANYAN_ECORRUPT names the first problem. */
int store_check(struct store_session *session, struct store_check_report *report,
                void (*visit_block)(void *context, gaddr block, uint32_t bytes), void *context);

#endif
