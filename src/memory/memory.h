/*
 * memory.h - a memory node: a pool, a lock region, and the services of its CPU (service.h; request.h is the
 * list of what they are asked).
 *
 * Pool layout: bytes 0..4095 the node's own header (struct memory_header), 4096..65535 the catalogue area (on
 * node 0: superblock and named indexes, owned by src/tree/catalogue.c), from MEMORY_LOCK_TABLE_OFFSET
 * lock_bytes of locks in the node's DRAM (switch --lock-region dram), then chunks. A chunk is cut into
 * blocks of one size: tree nodes (powers of two) or record blocks (memory_block_bytes). Blocks are handed out
 * in batches by RPC, and returned the same way; lower addresses are handed out first. (Sherman §4.2 has the
 * same two stages, and gives a whole chunk; with a batch a compute node that dies loses at most a batch of
 * each size.) A chunk whose blocks are all free may be cut anew for another size.
 */
#ifndef MEMORY_MEMORY_H
#define MEMORY_MEMORY_H

#include "fabric/fabric.h"
#include "memory/request.h"
#include "memory/service.h"

#define MEMORY_MAGIC             UINT64_C(0x4e41594e41420001)
#define MEMORY_CATALOGUE_OFFSET  4096u
#define MEMORY_LOCK_TABLE_OFFSET 65536u
/* A multiple of 64 whatever the lock region's size: so is every block of 64 bytes or more. */
#define MEMORY_FIRST_CHUNK(lock_bytes)                                                                       \
    ((MEMORY_LOCK_TABLE_OFFSET + (uint64_t)(lock_bytes) + 63u) & ~UINT64_C(63))
#define MEMORY_CHUNK_BYTES (UINT64_C(8) << 20)
#define MEMORY_LOCK_BYTES  (UINT64_C(256) << 10)

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
    uint64_t pool_bytes;  /* multiple of 8, at least MEMORY_FIRST_CHUNK + one chunk */
    uint64_t chunk_bytes; /* power of two, 64 KiB to 1 GiB; 0: MEMORY_CHUNK_BYTES */
    uint64_t lock_bytes;  /* multiple of 8; 0: MEMORY_LOCK_BYTES */
    uint32_t lock_width;  /* 2 or 8; 0: 2 */
    bool huge_pages;      /* try explicit then transparent huge pages; falls back and logs it */
    bool shared;          /* the pool and the lock region are memfds that other processes can map */
    bool unformatted; /* it belongs to no cluster until memory_node_format (a daemon's). Else it is formatted
                         as `node` of a cluster of unknown size (cluster_id 1, node_count 0) */
};

/* ---- block sizes ---- */

#define MEMORY_BLOCK_MIN 32u
#define MEMORY_BLOCK_MAX (1u << 20)
/* The size of the block that holds so many bytes (1 to MEMORY_BLOCK_MAX): a multiple of 32; beyond 128 bytes
 * at most a quarter more than asked for (four sizes for each doubling). Powers of two are sizes. 0: too
 * large. */
uint32_t memory_block_bytes(uint64_t bytes);
#define MEMORY_BLOCK_SIZES 56u
/* Sizes are numbered from 0 in ascending order; MEMORY_BLOCK_SIZES if it is no size. */
unsigned memory_block_index(uint32_t block_bytes);
uint32_t memory_block_size(unsigned index);

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
 * nothing uses it. */
int memory_node_format(struct memory_node *node, uint64_t cluster_id, uint16_t number, uint16_t node_count,
                       struct error *error);
/* From now on its pages stay where they are, since a NIC writes to them: a format fills them with zeros (some
 * seconds for each 10 GiB) instead of giving them back to the system. */
void memory_node_pin(struct memory_node *node);
/* Descriptors of pool and lock region, -1 if not `shared`. Owned by the node; sealed against resizing. */
int memory_node_pool_descriptor(const struct memory_node *node);
int memory_node_locks_descriptor(const struct memory_node *node);
/* Makes the next `count` allocations fail with BANYAN_ENOSPC, for tests; UINT64_MAX: all of them. */
void memory_node_refuse(struct memory_node *node, uint64_t count);
/* Calls visit for each block that is handed out, for checks of accounts. visit may call the node. */
void memory_node_each_used(struct memory_node *node, void (*visit)(void *, gaddr block, uint32_t block_bytes),
                           void *context);

#endif
