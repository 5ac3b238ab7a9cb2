/*
 * memory.h - a memory node: a pool, a lock region, and the services of its CPU (service.h; request.h is the
 * list of what they are asked).
 *
 * Pool layout: bytes 0..4095 the node's own header (struct memory_header), 4096..40959 the catalogue area (on
 * node 0: superblock and named indexes, owned by src/tree/catalogue.c), 40960..65535 the list of memory nodes
 * (on node 0: cluster.h), from MEMORY_LOCK_TABLE_OFFSET
 * lock_bytes of locks in the node's DRAM (switch --lock-region dram), then blocks (blocks.h): nodes of the
 * tree from the low end up, data (records, their pieces, key blocks) from the high end down. Blocks are
 * handed out in batches by RPC, and returned the same way. (Sherman §4.2 has the same two stages, and gives a
 * chunk of one size at a time; with a batch a compute node that dies loses at most a batch of each size, and
 * no size pins space that others could use.)
 */
#ifndef MEMORY_MEMORY_H
#define MEMORY_MEMORY_H

#include "fabric/fabric.h"
#include "memory/pages.h"
#include "memory/request.h"
#include "memory/service.h"

#define MEMORY_MAGIC             UINT64_C(0x4e41594e41420001)
#define MEMORY_CATALOGUE_OFFSET  4096u
#define MEMORY_CLUSTER_OFFSET    40960u
#define MEMORY_LOCK_TABLE_OFFSET 65536u
/* A multiple of 64 whatever the lock region's size: so is every block of 64 bytes or more. */
#define MEMORY_FIRST_CHUNK(lock_bytes)                                                                       \
    ((MEMORY_LOCK_TABLE_OFFSET + (uint64_t)(lock_bytes) + 63u) & ~UINT64_C(63))
#define MEMORY_CHUNK_MOST      (UINT64_C(8) << 20)
#define MEMORY_LOCK_BYTES      (UINT64_C(256) << 10)
#define MEMORY_LOG_BYTES_LEAST (UINT64_C(512) << 10)
#define MEMORY_POOL_BYTES      (UINT64_C(1) << 30)
#define MEMORY_RETURN_MS       10000u
#define MEMORY_RETURN_NEVER    UINT32_MAX

/* At pool offset 0. */
struct memory_header {
    uint64_t magic;
    uint64_t pool_bytes;
    uint64_t chunk_bytes;
    uint64_t node;       /* this memory node's number */
    uint64_t next_tag;   /* FAA by compute nodes: takes a run of tags; the low 32 bits count */
    uint64_t cluster_id; /* 0: never formatted */
    uint64_t node_count; /* of the cluster */
};
#define MEMORY_NEXT_TAG_OFFSET 32u

struct memory_options {
    uint16_t node;
    uint64_t pool_bytes;  /* multiple of 8, at least MEMORY_FIRST_CHUNK + one chunk. With a pool_file 0 may
                             stand  here: what the file has, MEMORY_POOL_BYTES if it is new */
    uint64_t chunk_bytes; /* power of two, 64 KiB to 1 GiB; 0: memory_chunk_bytes */
    uint64_t lock_bytes;  /* multiple of 8; 0: MEMORY_LOCK_BYTES */
    uint32_t lock_width;  /* 2 or 8; 0: 2 */
    uint64_t log_bytes; /* what segments of owners' logs may have, 512 KiB to half the pool; 0: a 32nd of the
                           pool (memory_log_bytes) */
    uint32_t return_ms; /* how long a chunk is not used before it goes back to the system (memory_node_trim);
                           0: MEMORY_RETURN_MS */
    enum pages_huge huge_pages; /* PAGES_AUTO: none where the pool is `shared` or in a file */
    bool shared;                /* the pool and the lock region are memfds that other processes can map */
    const char *pool_file; /* NULL: none. The pool, and all that the memory node must know, lies in this file,
                              which is made if it is not there: what it holds outlives the process
                              (durability.md). The sizes that it was made with hold; those above must be the
                              same or 0. It is not `shared` then, and never goes back to the system */
    bool unformatted; /* it belongs to no cluster until memory_node_format (a daemon's). Else it is formatted
                         as `node` of a cluster of unknown size (cluster_id 1, node_count 0) */
};

/* ---- block sizes ---- */

#define MEMORY_BLOCK_MIN 32u
#define MEMORY_BLOCK_MAX (1u << 20)
/* The size of the block that holds so many bytes (1 to MEMORY_BLOCK_MAX): a multiple of 32; beyond 1 KiB
 * at most a sixteenth more than asked for (sixteen sizes for each doubling). Powers of two are sizes. 0: too
 * large. */
uint32_t memory_block_bytes(uint64_t bytes);
/* The largest size that is not more than `bytes`; 0: there is none. */
uint32_t memory_block_within(uint64_t bytes);
#define MEMORY_BLOCK_SIZES 192u
/* Sizes are numbered from 0 in ascending order; MEMORY_BLOCK_SIZES if it is no size. */
unsigned memory_block_index(uint32_t block_bytes);
uint32_t memory_block_size(unsigned index);

/* ---- the node ---- */

/* What a pool of that size is accounted by, unless the options say otherwise: about a 512th of it, 64 KiB to
 * MEMORY_CHUNK_MOST. */
uint64_t memory_chunk_bytes(uint64_t pool_bytes);

struct memory_node;

int memory_node_create(struct memory_node **node, const struct memory_options *options, struct error *error);
void memory_node_destroy(struct memory_node *node);
const struct fabric_target *memory_node_target(const struct memory_node *node);
/* The compute node is fenced already (G6): lets services finish what they have of it (memory_node_finish),
 * then clears every lock word that bears its id, in the lock region and in the DRAM lock table. Returns how
 * many. */
uint64_t memory_node_release_locks(struct memory_node *node, uint16_t compute_id);
/* What STATUS answers. Any thread. */
void memory_node_status(struct memory_node *node, struct memory_status_reply *status);
/* Makes it number `number` of a new cluster: everything in it is gone, as if it had just been created. While
 * nothing uses it. With a file: if the process ends in the middle it belongs to no cluster afterwards. */
int memory_node_format(struct memory_node *node, uint64_t cluster_id, uint16_t number, uint16_t node_count,
                       struct error *error);
/* From now on its pages stay where they are, since a NIC writes to them: a format fills them with zeros (some
 * seconds for each 10 GiB) instead of giving them back to the system. */
void memory_node_pin(struct memory_node *node);
/* Gives chunks that have not been used for a while back to the system, about `most_bytes` in one call (some
 * hundred microseconds for each MiB), and ends evacuations that are not renewed. True: there is more to give
 * back. For what keeps the node alive to call once a second or more often, on one thread at a time; `now` is
 * task_now(). */
bool memory_node_trim(struct memory_node *node, uint64_t now, uint64_t most_bytes);
/* Of what the memory node holds: random, made with its file; 0: it has no file. */
uint64_t memory_node_instance(const struct memory_node *node);
/* Of a pool file that was used: whether power took what was in it. The machine went down while it was in use,
 * which memory_node_create refuses; or nothing is in it now. */
bool memory_pool_file_lost_power(const char *path);
/* Its last process did not end in order, so that blocks may be handed out to which nothing leads. False
 * without a file. */
bool memory_node_was_cut(const struct memory_node *node);
/* How a node with a file stages WRITEs (G5), each thread that carries some out in an area of its own, below
 * MEMORY_STAGINGS. NULL: it has no file, and WRITEs need no staging. */
#define MEMORY_STAGINGS 64u
struct wire_staging;
struct wire_staging *memory_node_staging(struct memory_node *node, unsigned thread);
/* Executes a marked WRITE, which is validated like any; its writer cannot write any more. True if there was
 * one; *complaint: it is impossible. */
bool memory_staging_finish(const struct wire_staging *area, const struct fabric_target *target,
                           uint16_t number, bool *complaint);
/* What the daemon's next life must know. Any thread; 0 without a file. The last compute id that was chosen,
 * and the longest read lease that was granted, ms. */
uint16_t memory_node_kept_id(const struct memory_node *node);
void memory_node_keep_id(struct memory_node *node, uint16_t compute_id);
uint32_t memory_node_kept_read_lease(const struct memory_node *node);
void memory_node_keep_read_lease(struct memory_node *node, uint32_t ms);
/* The generation of the list of memory nodes that this one keeps; 0: it keeps none. Any thread. */
uint32_t memory_node_cluster_generation(const struct memory_node *node);
/* Descriptors of pool and lock region, -1 if not `shared`. Owned by the node; sealed against resizing. */
int memory_node_pool_descriptor(const struct memory_node *node);
int memory_node_locks_descriptor(const struct memory_node *node);
/* Makes the next `count` allocations fail with BANYAN_ENOSPC, for tests; UINT64_MAX: all of them. */
void memory_node_refuse(struct memory_node *node, uint64_t count);
/* As the request DRAIN does. */
void memory_node_drain(struct memory_node *node, bool on);
/* Calls visit for each block that is handed out, for checks of accounts. visit may call the node. */
void memory_node_each_used(struct memory_node *node, void (*visit)(void *, gaddr block, uint32_t block_bytes),
                           void *context);

/* Whether the block that begins there is of an owner's log (LOG): a control block or a segment. */
bool memory_node_is_log(struct memory_node *node, gaddr block);

/* The block that is handed out and has the byte at `address`; false: none has. */
bool memory_node_find_used(struct memory_node *node, gaddr address, gaddr *block, uint32_t *block_bytes);

#endif
