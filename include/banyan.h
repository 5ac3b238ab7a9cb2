/*
 * banyan.h - the C API of Banyan, an ordered key-value store on disaggregated memory.
 *
 * The program opens a pool of memory nodes, in its own process or a cluster's, and keeps indexes in it: maps
 * from byte-string keys, in memcmp order, to byte-string values. Any number of threads, and of programs on
 * the same cluster, read and write at once.
 *
 *     struct banyan *banyan;
 *     struct banyan_session *session;
 *     struct banyan_index *index;
 *     banyan_open(&banyan, NULL);                    (or options.uri = "tcp://host:7100,host:7101")
 *     banyan_session_open(banyan, &session);
 *     banyan_index_create(session, "phones", NULL, &index);
 *     banyan_put(session, index, "ada", 3, "1815", 4);
 *
 * OBJECTS, AND WHICH THREAD MAY USE THEM
 *
 *   struct banyan: the pool. Any thread. A pool of this process lives until it is closed; nothing is kept on
 *   disk.
 *
 *   struct banyan_session: buffers, counters, the last error. One thread at a time: open one for each thread.
 *
 *   struct banyan_index: an open index. Any thread, each with its own session.
 *
 *   struct banyan_iterator: belongs to the session that it was opened with.
 *
 *   struct banyan_bulk: shared by the sessions that load its parts.
 *
 * Close them in the reverse order. A handle that is still in use is not closed: BANYAN_EBUSY. After its close
 * call has succeeded a handle must not be used again. A close call that is given NULL does nothing and
 * succeeds.
 *
 * ERRORS
 *
 * Functions return BANYAN_OK or a negative enum banyan_error. banyan_strerror() explains the code;
 * banyan_session_error() gives the message of the session's last failure, which names the thing at fault.
 * NULL where an object, key or result is wanted gives BANYAN_EINVAL; a length out of range gives
 * BANYAN_EINVAL, BANYAN_EKEYSIZE or BANYAN_EVALUESIZE. A value may be NULL if its length is 0.
 *
 * ATOMICITY
 *
 * Every single-key operation is atomic and linearizable: it takes effect at one moment between its call and
 * its return, for all threads alike. Operations on many keys, iterators and bulk loads are not one
 * transaction.
 *
 * STRUCTS THAT MAY GROW
 *
 * They begin with struct_bytes, which the program sets to the struct's sizeof. Other fields at 0 mean the
 * default. The library reads or fills no more than struct_bytes. A struct that is longer than the library
 * knows is accepted as long as the unknown rest is zero.
 *
 * COST
 *
 * A point read costs one round trip when the inner nodes are in the node cache; an uncontended write costs
 * two or three. On other machines a round trip takes some microseconds. A pool of this process counts round
 * trips in the same way (banyan_session_stats), so a program can be measured before it meets a network.
 */
#ifndef BANYAN_H
#define BANYAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BANYAN_API __attribute__((visibility("default")))
#else
#define BANYAN_API
#endif

#define BANYAN_VERSION_MAJOR  0
#define BANYAN_VERSION_MINOR  1
#define BANYAN_VERSION_PATCH  0
#define BANYAN_KEY_MAX        255u        /* bytes */
#define BANYAN_VALUE_MAX      (64u << 20) /* bytes */
#define BANYAN_SLOT_VALUE_MAX 255u        /* bytes: longer values are records, see struct banyan_geometry */
#define BANYAN_NAME_MAX       63u         /* bytes of an index's name, without the terminating 0 */

/* Every function that can fail returns 0 (BANYAN_OK) or one of these. */
#ifndef BANYAN_ERROR_CODES /* the library's own files may have them already */
#define BANYAN_ERROR_CODES
enum banyan_error {
    BANYAN_OK = 0,
    BANYAN_ENOTFOUND = -1,  /* the key, index or node does not exist */
    BANYAN_EEXIST = -2,     /* the key or index exists already */
    BANYAN_EINVAL = -3,     /* an argument is out of its range */
    BANYAN_EKEYSIZE = -4,   /* the key's length is not one that the index's geometry allows */
    BANYAN_EVALUESIZE = -5, /* the value's length is not one that the index's geometry allows */
    BANYAN_ENOSPC = -6,     /* a memory node's pool is exhausted; the index stays usable */
    BANYAN_ENOMEM = -7,     /* this process has no memory left */
    BANYAN_ECORRUPT = -8,   /* a node in the pool does not prove itself; the message names its address */
    BANYAN_EADDRESS = -9,   /* a remote address or length is out of range or misaligned */
    BANYAN_ENET = -10,      /* a memory node cannot be reached */
    BANYAN_ETIMEOUT = -11,  /* an operation took longer than its limit */
    BANYAN_EFENCED = -12,   /* this compute node was declared dead and fenced off */
    BANYAN_EUNKNOWN = -13,  /* the operation may or may not have taken effect */
    BANYAN_ENOTSUP = -14,   /* not supported by this build, backend or index */
    BANYAN_EBUSY = -15,     /* the object is in use */
    BANYAN_ECONFLICT = -16, /* compare-and-set found another value */
    BANYAN_EABORT = -17,    /* a callback refused the change */
    BANYAN_EVERSION = -18,  /* the pool was written by an incompatible version */
};
#endif

/* A constant sentence for a code; for an unknown code too. Never NULL. */
BANYAN_API const char *banyan_strerror(int code);
/* The library's version, as "0.1.0"; the numbers go where the pointers, unless NULL, point. */
BANYAN_API const char *banyan_version(int *major, int *minor, int *patch);

/* ---- the pool ------------------------------------------------------------------------------------ */

struct banyan;
struct banyan_session;
struct banyan_index;
struct banyan_iterator;
struct banyan_bulk;

/* Which key ranges of indexes this process wants to own: those that it alone writes, without locks, and whose
 * leaves and entries it may keep in its cache. */
enum banyan_own {
    BANYAN_OWN_DEFAULT = 0, /* a pool of this process: all; a cluster: none */
    BANYAN_OWN_NONE = 1,
    BANYAN_OWN_AUTO = 2, /* a cluster: a share of each open index, which grows and shrinks with the number of
                            processes that want one; a pool of this process: all */
};

/* What is cached of ranges that this process owns, beside inner nodes. A pool that is mapped into the process
 * is read as fast as a cache, so only inner nodes are cached there. */
enum banyan_cache_policy {
    BANYAN_CACHE_DEFAULT = 0, /* BANYAN_CACHE_ALL */
    BANYAN_CACHE_INNER = 1,   /* nothing */
    BANYAN_CACHE_LEAVES = 2,  /* whole leaves, as in DEX */
    BANYAN_CACHE_ENTRIES = 3, /* entries, or where they lie, as in Dinomo */
    BANYAN_CACHE_ALL = 4,     /* leaves and entries: those that save most round trips for their bytes */
};

/* Whether this process keeps a log in the pool: writes of the ranges that it owns go there, many in one round
 * trip, are safe when they are acknowledged, and are merged into the index behind that. */
enum banyan_log {
    BANYAN_LOG_DEFAULT = 0, /* none */
    BANYAN_LOG_NONE = 1,
    BANYAN_LOG_AUTO = 2, /* a cluster whose memory nodes are reached by messages or a NIC, with
                            BANYAN_OWN_AUTO: one; a pool that is mapped into the process: none, since writes
                            cost no round trip there */
};

struct banyan_options {
    size_t struct_bytes;   /* sizeof(struct banyan_options) */
    uint32_t memory_nodes; /* 1 to 1024. 0: 1 */
    uint32_t huge_pages;   /* 1: try huge pages for the pool, fall back to ordinary ones. 2: transparent ones,
                              where the system has them, for what lies between its first and its last 32 MiB,
                              as `banyan serve` does. 0: don't */
    uint64_t
        pool_bytes; /* of each memory node, taken from the system as it is used. 0: 1 GiB. At least 16 MiB */
    uint64_t cache_bytes; /* room for all that is cached of each open index. 0: 64 MiB */
    char *message;        /* if banyan_open fails, its message goes here. NULL: nowhere */
    size_t message_bytes; /* room at message, with the terminating 0 */
    /* Where the pool is. NULL or "local:": memory nodes of this process, empty, gone when it is closed.
     * "tcp://host:port,tcp://host:port" (or "host:port"): a cluster's memory nodes (`banyan memory`), all of
     * them. "unix:/path": the same on this machine, the pool being mapped into this process; a process that
     * hangs for longer than the lease is then killed by the memory node, so do not stop it in a debugger.
     * "rdma://host:port": through a NIC (InfiniBand, RoCE), to memory nodes that serve RDMA. The
     * fields below are for clusters, those from memory_nodes to pool_bytes are not. */
    const char *uri;
    uint32_t copy;     /* 1: do not map the pool of a unix: address, send messages */
    uint32_t format;   /* 1: make a new, empty cluster of these memory nodes first: all they hold is lost */
    uint32_t lease_ms; /* 100 to 60,000. 0: 2,000. A program that is silent for longer is fenced: it loses its
                          locks */
    uint32_t
        timeout_ms; /* 100 to 600,000. 0: 5,000. A memory node that is silent for longer counts as lost */
    const char *secret_file; /* first line: the secret that the memory nodes want. NULL: none */
    const char *certificate_file, *key_file; /* PEM, for mutual TLS. NULL: none */
    const char
        *authority_file; /* PEM: the authority that signs the memory nodes' certificates. NULL: no TLS */
    /* For rdma: addresses. TLS guards the control connections; what NICs transfer is never encrypted. */
    const char *rdma_device;     /* as `rdma link` names it. NULL: the one that owns our address */
    uint32_t rdma_port;          /* of the device, from 1. 0: chosen */
    uint32_t rdma_gid;           /* the index of the port's GID, plus 1. 0: chosen */
    uint32_t rdma_traffic_class; /* 0 to 255: RoCE v2's DSCP * 4 + ECN */
    uint32_t rdma_spin_us;       /* a thread that waits polls its NIC so long before it sleeps. 0: 50 */
    /* Ownership of key ranges. In a cluster the library has threads of its own, which keep the map of ranges
     * and serve other processes' operations on the ranges that are owned here. */
    uint32_t own;           /* enum banyan_own */
    uint32_t read_lease_ms; /* 10 to 10,000. 0: 50. So long after its last heartbeat this process may answer
                               from what it has cached of its ranges */
    const char
        *peers; /* where other processes reach this one, as "host:port"; "off": nowhere. NULL: chosen */
    uint32_t peer_threads;      /* 1 to 64. 0: 1 */
    uint32_t cache_policy;      /* enum banyan_cache_policy */
    uint32_t cache_admission;   /* BANYAN_CACHE_LEAVES: of 1,000 leaves that were read, so many come into the
                                   cache; 1 to 1,000. 0: 100 */
    uint32_t log;               /* enum banyan_log */
    uint32_t log_copies;        /* 1 or 2 memory nodes have an entry before its write returns. 0: 1 */
    uint32_t log_segment_bytes; /* 64 KiB to 8 MiB; memory nodes may grant less. 0: 8 MiB */
    uint32_t log_wait_ms; /* 1 to 600,000. 0: 5,000. A write for which the log has no room waits so long for
                             merging, then it is BANYAN_ENOSPC */
    uint32_t walks; /* clusters: how many of the searches whose inner nodes are not cached are left to the
                       memory nodes' CPUs. 0: as it pays; 1 to 100: percent; BANYAN_WALKS_NEVER */
};
#define BANYAN_WALKS_NEVER UINT32_MAX

/* Opens a pool. options may be NULL: all defaults, an empty pool in this process. BANYAN_EINVAL,
 * BANYAN_ENOMEM; for clusters BANYAN_ENET, BANYAN_ETIMEOUT, BANYAN_EVERSION, and BANYAN_EBUSY (format while
 * others are connected). */
BANYAN_API int banyan_open(struct banyan **banyan, const struct banyan_options *options);
/* Frees the pool and all that is in it; a cluster's is only left. Closing an index gives the ranges of it
 * that this process owns to others, before; what they could not be given is taken over when this process is
 * gone. BANYAN_EBUSY while a session or an index is open. */
BANYAN_API int banyan_close(struct banyan *banyan);

struct banyan_pool_status {
    size_t struct_bytes; /* in: sizeof(struct banyan_pool_status) */
    uint64_t memory_nodes;
    uint64_t pool_bytes;  /* all memory nodes together */
    uint64_t chunk_bytes; /* the pool is handed out in chunks of this size */
    uint64_t chunks_total, chunks_used;
    uint64_t blocks_used, bytes_used; /* handed out: part of an index, or held ready by a session */
    uint64_t bytes_free_in_chunks;    /* of chunks in use */
};
/* Any thread. */
BANYAN_API int banyan_pool_status(struct banyan *banyan, struct banyan_pool_status *status);

/* The key ranges of the indexes that are open here, and this process's part in them. All 0 in a pool of this
 * process, which has no ranges. */
struct banyan_ownership_stats {
    size_t struct_bytes;   /* in: sizeof(struct banyan_ownership_stats) */
    uint64_t ranges_owned; /* by this process */
    uint64_t ranges;       /* all */
    uint64_t map_version;  /* of the map of ranges, as this process has adopted it */
    uint64_t transfers,
        ranges_moved;   /* transfers that this process began and ended, ranges that they moved */
    uint64_t takeovers; /* ranges of dead processes that were taken over */
    uint64_t forwarded_lookups, forwarded_writes; /* asked of other processes */
    uint64_t served_lookups, served_writes;       /* done for other processes */
    uint64_t unreachable; /* operations that failed since their range's owner could not be reached */
    uint64_t read_lease_lapses;
    uint64_t read_lease_pauses; /* operations that waited for the read lease */
};
/* Since the pool was opened. Any thread. */
BANYAN_API int banyan_ownership_stats(struct banyan *banyan, struct banyan_ownership_stats *stats);

/* ---- sessions ------------------------------------------------------------------------------------- */

BANYAN_API int banyan_session_open(struct banyan *banyan, struct banyan_session **session);
/* BANYAN_EBUSY while an iterator of the session is open. */
BANYAN_API int banyan_session_close(struct banyan_session *session);
/* The message of the last call that failed; "" if none did. Valid until the session's next call. Never
 * NULL. */
BANYAN_API const char *banyan_session_error(const struct banyan_session *session);

struct banyan_session_stats {
    size_t struct_bytes; /* in: sizeof(struct banyan_session_stats) */
    uint64_t operations;
    uint64_t round_trips;            /* waits for memory nodes */
    uint64_t reads, writes, atomics; /* commands sent to memory nodes */
    uint64_t rpcs;                   /* calls to a memory node's processor (allocation) */
    uint64_t bytes_read, bytes_written;
    uint64_t retries;                  /* reads or lock attempts done again */
    uint64_t cache_hits, cache_misses; /* inner nodes found in the node cache, or fetched */
    uint64_t splits, unlinks;          /* nodes split, nodes removed */
};
/* What the session has done since it was opened, or since banyan_session_stats_reset. */
BANYAN_API int banyan_session_stats(const struct banyan_session *session, struct banyan_session_stats *stats);
BANYAN_API int banyan_session_stats_reset(struct banyan_session *session);

/* ---- indexes ---------------------------------------------------------------------------------------- */

/* Fixed when an index is created. */
struct banyan_geometry {
    size_t struct_bytes; /* sizeof(struct banyan_geometry) */
    /* Fixed keys: exactly, 8 to 255. Variable keys: at most, 1 to 255; 0: as many as the network allows,
     * which is 255, or some 140 on RDMA with an MTU below 2,048. */
    uint32_t key_bytes;
    uint32_t key_variable; /* 0: all keys have key_bytes bytes; 1: variable */
    /* Exactly, or at most if value_variable. Up to 255: kept in the index's slots. Above, to 64 MiB (keys and
     * values must be variable): values of up to 16 bytes lie in the slots, longer ones are records of their
     * own, one more round trip away. */
    uint32_t value_bytes;
    uint32_t value_variable;   /* 0 or 1 */
    uint32_t leaf_bytes;       /* power of two, 512 to 65536. 0: 1024; with variable keys 4096 */
    uint32_t internal_bytes;   /* power of two, 512 to 4096. 0: 1024; keys above 64 bytes: 4096, but
                                * no more than is written at once: on RDMA, the path MTU */
    uint32_t inline_key_bytes; /* variable keys: the longest remainder kept in a slot; what is longer has a
                                  block of its own. At least 16 where key_bytes is more. 0: 24 */
    /* Levels of the subtrees whose nodes lie on one memory node together, 1 to 7. 0: nodes are spread over
     * all memory nodes. BANYAN_SUBTREE_DEFAULT: so many that a subtree has about 64 MiB. */
    uint32_t subtree_levels;
    uint32_t leaf_kind; /* BANYAN_LEAF_... */
    uint32_t reserved;  /* 0 */
};
#define BANYAN_SUBTREE_DEFAULT 255u
/* Dense leaves hold more entries before they are full, so that keys in random order take about a tenth less
 * memory; a read of one key fetches some more of them: 284 bytes in place of 204 where keys and values have
 * 8. Unsorted leaves are for comparisons: a read fetches the whole of one. */
#define BANYAN_LEAF_HASHED   0u
#define BANYAN_LEAF_UNSORTED 1u
#define BANYAN_LEAF_DENSE    2u

/* Creates an index and opens it. geometry may be NULL: variable keys, key_bytes 0, and variable values up to
 * 64 MiB in records: such as the RESP server's own, which is the index "redis", but for that one's dense
 * leaves. BANYAN_EEXIST, BANYAN_EINVAL (name or geometry), BANYAN_ENOSPC. */
BANYAN_API int banyan_index_create(struct banyan_session *session, const char *name,
                                   const struct banyan_geometry *geometry, struct banyan_index **index);
/* BANYAN_ENOTFOUND; BANYAN_ENOTSUP: its internal nodes are larger than what this network writes at once. */
BANYAN_API int banyan_index_open(struct banyan_session *session, const char *name,
                                 struct banyan_index **index);
/* Closes the handle; the index and its contents stay in the pool. No other thread may be using the handle.
 * BANYAN_EBUSY while an iterator or a bulk load of it is open. */
BANYAN_API int banyan_index_close(struct banyan_index *index);
/* Drops an index with all that it holds. It cannot be opened any more, and its name is free. Handles that are
 * open, here or elsewhere, stay valid and find nothing: reads and writes get BANYAN_ENOTFOUND, at the latest
 * when this call has returned; close them. BANYAN_ENOTFOUND: there is no such index. After any other error
 * the index may be half dropped: call again, or give its memory back with `banyan check --reclaim`.
 * BANYAN_EUNKNOWN: the network failed after the first step. */
BANYAN_API int banyan_index_drop(struct banyan_session *session, const char *name);
/* What this process caches of an index, whatever handles it has open. */
struct banyan_cache_stats {
    size_t struct_bytes;   /* in: sizeof(struct banyan_cache_stats) */
    uint64_t budget_bytes; /* for all of it */
    /* Inner nodes. Each session counts its own hits and misses: banyan_session_stats. */
    uint64_t inner_nodes, inner_bytes, inner_admissions, inner_evictions;
    /* Leaves of ranges that this process owns. */
    uint64_t leaves, leaf_bytes, leaf_hits, leaf_misses, leaf_admissions, leaf_evictions;
    /* Entries of such ranges. */
    uint64_t entry_bytes, entry_hits, entry_misses, entry_admissions, entry_evictions;
    uint64_t shortcut_hits; /* of entry_hits: the entry had the value's place, not the value */
    uint64_t busy;          /* met a write under way, and read the pool instead */
    /* Values that are too long for a slot, of indexes of records. */
    uint64_t values, value_bytes, value_hits, value_misses, value_admissions, value_evictions;
};
/* Since the index was opened. Any thread. */
BANYAN_API int banyan_index_cache_stats(const struct banyan_index *index, struct banyan_cache_stats *stats);
/* The geometry with the defaults filled in. */
BANYAN_API int banyan_index_geometry(const struct banyan_index *index, struct banyan_geometry *geometry);
/* Calls visit with the name of every index of the pool, open or not. "banyan:ranges", the map of a cluster's
 * ranges, is none of them, and no program can use it. */
BANYAN_API int banyan_index_list(struct banyan_session *session,
                                 void (*visit)(void *context, const char *name), void *context);

/* ---- one key ------------------------------------------------------------------------------------------ */

/* Copies the key's value. *length: in the room at value, out the value's length, also when it does not fit
 * (BANYAN_EVALUESIZE; value is then undefined). BANYAN_ENOTFOUND. */
BANYAN_API int banyan_get(struct banyan_session *session, struct banyan_index *index, const void *key,
                          size_t key_length, void *value, size_t *length);
/* Stores the value whether the key exists or not. BANYAN_ENOSPC leaves the index as it was. */
BANYAN_API int banyan_put(struct banyan_session *session, struct banyan_index *index, const void *key,
                          size_t key_length, const void *value, size_t length);
/* The same, until a moment in milliseconds since 1970: from then on the key does not exist. Every other store
 * of the key makes it last for ever. Indexes of records only, else BANYAN_ENOTSUP. */
BANYAN_API int banyan_put_until(struct banyan_session *session, struct banyan_index *index, const void *key,
                                size_t key_length, const void *value, size_t length, uint64_t expires_ms);
/* Stores a key that must not exist: BANYAN_EEXIST. */
BANYAN_API int banyan_insert(struct banyan_session *session, struct banyan_index *index, const void *key,
                             size_t key_length, const void *value, size_t length);
/* Replaces the value of a key that must exist: BANYAN_ENOTFOUND. */
BANYAN_API int banyan_update(struct banyan_session *session, struct banyan_index *index, const void *key,
                             size_t key_length, const void *value, size_t length);
/* BANYAN_ENOTFOUND. */
BANYAN_API int banyan_delete(struct banyan_session *session, struct banyan_index *index, const void *key,
                             size_t key_length);
/* Stores value if the key's value is `expected`, byte for byte. BANYAN_ECONFLICT if it is another,
 * BANYAN_ENOTFOUND. */
BANYAN_API int banyan_compare_and_set(struct banyan_session *session, struct banyan_index *index,
                                      const void *key, size_t key_length, const void *expected,
                                      size_t expected_length, const void *value, size_t length);

/* What a modify function wants done. */
enum banyan_verdict {
    BANYAN_KEEP = 0,   /* nothing; the call returns BANYAN_OK */
    BANYAN_STORE = 1,  /* store the new value */
    BANYAN_REMOVE = 2, /* delete the key (if it exists) */
    BANYAN_REFUSE = 3, /* nothing; the call returns BANYAN_EABORT */
};
/* Gets the key's value, or old == NULL if there is none; for BANYAN_STORE it writes the new one to value and
 * its length to *length, which holds the room at value on entry. It runs with the node locked, and may be run
 * again: it must be short, must not call this library, and must depend on nothing but its arguments. It runs
 * on the thread that called banyan_modify. The room is the geometry's value_bytes. */
typedef enum banyan_verdict banyan_modify_function(void *context, const void *old, size_t old_length,
                                                   void *value, size_t *length);
/* Read, decide and write as one atomic step. */
BANYAN_API int banyan_modify(struct banyan_session *session, struct banyan_index *index, const void *key,
                             size_t key_length, banyan_modify_function *function, void *context);

/* ---- many keys: their round trips overlap -------------------------------------------------------- */

struct banyan_item {
    const void *key;
    size_t key_length;
    void *value;   /* get: room for the value; put: the value */
    size_t length; /* get: in the room, out the value's length; put: the value's length */
    int status;    /* out: this item's result */
};
/* Every item is tried, in no particular order, and has its own status. Returns BANYAN_OK if each status is
 * BANYAN_OK or BANYAN_ENOTFOUND, else the first other status. */
BANYAN_API int banyan_multi_get(struct banyan_session *session, struct banyan_index *index,
                                struct banyan_item *items, size_t count);
BANYAN_API int banyan_multi_put(struct banyan_session *session, struct banyan_index *index,
                                struct banyan_item *items, size_t count);

/* ---- iterators ----------------------------------------------------------------------------------- */

struct banyan_range {
    size_t struct_bytes; /* sizeof(struct banyan_range) */
    const void *from;    /* lower bound; NULL: from the first key */
    size_t from_length;
    const void *to; /* upper bound; NULL: to the last key */
    size_t to_length;
    uint32_t from_exclusive, to_exclusive; /* 1: the bound itself is left out */
    uint32_t reverse;                      /* 1: descending, from the upper bound */
};
/* range may be NULL: everything, ascending. The bounds are copied. A bound may be any key of 0 to 255 bytes
 * in an index of variable keys, and must have the keys' length in an index of fixed ones. */
BANYAN_API int banyan_iterator_open(struct banyan_session *session, struct banyan_index *index,
                                    const struct banyan_range *range, struct banyan_iterator **iterator);
/* The next entry; BANYAN_ENOTFOUND at the end, or when the index was dropped meanwhile. Key and value are
 * valid until the iterator's next call; any of the four result pointers may be NULL. Entries are fetched some
 * at a time, up to 256, each leaf as it was at one moment; changes made meanwhile may be seen or not, but no
 * entry comes twice or out of order, and one that is there all the time is not missed. Other calls of the
 * session are allowed between two calls. After another error than BANYAN_ENOTFOUND the call may be repeated.
 */
BANYAN_API int banyan_iterator_next(struct banyan_iterator *iterator, const void **key, size_t *key_length,
                                    const void **value, size_t *length);
BANYAN_API int banyan_iterator_close(struct banyan_iterator *iterator);

/* ---- bulk load ----------------------------------------------------------------------------------- */

/* Fills an empty index from a strictly ascending stream, much faster than by puts. The stream is cut into
 * `parts`; each is loaded by one banyan_bulk_part call, in any order or in parallel by threads with sessions
 * of their own, and every key of a part is below every key of the next. No other call may use the index
 * meanwhile. fill is the share of a node that is filled, above 0 to 1; 0: 0.8. Not for indexes of records:
 * BANYAN_ENOTSUP. */
BANYAN_API int banyan_bulk_begin(struct banyan_session *session, struct banyan_index *index, unsigned parts,
                                 double fill, struct banyan_bulk **bulk);
/* Sets the part's next entry, which must stay valid until the next call; returns 1, or 0 at the part's
 * end. */
typedef int banyan_bulk_function(void *context, const void **key, size_t *key_length, const void **value,
                                 size_t *length);
/* BANYAN_ENOTSUP: a cluster whose memory nodes keep on their disks what is logged; a bulk load logs nothing,
 * so put the entries instead. */
BANYAN_API int banyan_bulk_part(struct banyan_session *session, struct banyan_bulk *bulk, unsigned part,
                                banyan_bulk_function *next, void *context);
/* Joins the parts and frees bulk, also when it fails. */
BANYAN_API int banyan_bulk_finish(struct banyan_session *session, struct banyan_bulk *bulk);

#ifdef __cplusplus
}
#endif
#endif
