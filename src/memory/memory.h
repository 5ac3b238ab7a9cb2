/*
 * memory.h - a memory node: a pool, a lock region, and the few things its CPU does by RPC.
 *
 * Pool layout: bytes 0..4095 the node's own header (struct memory_header), 4096..65535 the catalogue area (on
 * node 0: superblock and named indexes, owned by src/tree/catalogue.c), from MEMORY_LOCK_TABLE_OFFSET
 * lock_bytes of locks in the node's DRAM (switch --lock-region dram), then chunks. A chunk is handed out by
 * RPC for nodes of one size; compute nodes cut it up themselves (Sherman §4.2, two-stage allocation) and
 * return nodes they no longer need, which are handed out again before any fresh chunk is.
 */
#ifndef MEMORY_MEMORY_H
#define MEMORY_MEMORY_H

#include "fabric/fabric.h"

#define MEMORY_MAGIC                   UINT64_C(0x4e41594e41420001)
#define MEMORY_CATALOGUE_OFFSET        4096u
#define MEMORY_LOCK_TABLE_OFFSET       65536u
#define MEMORY_FIRST_CHUNK(lock_bytes) (MEMORY_LOCK_TABLE_OFFSET + (lock_bytes))
#define MEMORY_CHUNK_BYTES             (UINT64_C(8) << 20)
#define MEMORY_LOCK_BYTES              (UINT64_C(256) << 10)

/* At pool offset 0. */
struct memory_header {
    uint64_t magic;
    uint64_t pool_bytes;
    uint64_t chunk_bytes;
    uint64_t node;     /* this memory node's number */
    uint64_t next_tag; /* FAA by compute nodes: takes a run of tags; the low 32 bits count */
};
#define MEMORY_NEXT_TAG_OFFSET 32u

struct memory_options {
    uint16_t node;
    uint64_t pool_bytes;  /* multiple of 8, at least MEMORY_FIRST_CHUNK + one chunk */
    uint64_t chunk_bytes; /* power of two, 64 KiB to 1 GiB; 0: MEMORY_CHUNK_BYTES */
    uint64_t lock_bytes;  /* multiple of 8; 0: MEMORY_LOCK_BYTES */
    uint32_t lock_width;  /* 2 or 8; 0: 2 */
    bool huge_pages;      /* try explicit then transparent huge pages; falls back and logs it */
};

/* Requests and replies, in host byte order (the backends that cross machines are little-endian alike). */
enum memory_request_kind { MEMORY_ALLOCATE = 1, MEMORY_FREE = 2, MEMORY_STATUS = 3 };
#define MEMORY_BATCH_MAX 64

struct memory_allocate_request {
    uint32_t kind;
    uint32_t node_bytes;
    uint32_t want;
    uint32_t reserved;
};
struct memory_allocate_reply {
    uint32_t count; /* recycled nodes in nodes[]; when 0, chunk is set */
    uint32_t reserved;
    gaddr chunk; /* a fresh chunk of chunk_bytes, cut it into nodes of node_bytes */
    uint64_t chunk_bytes;
    gaddr nodes[MEMORY_BATCH_MAX];
};
struct memory_free_request {
    uint32_t kind;
    uint32_t node_bytes;
    uint32_t count;
    uint32_t reserved;
    gaddr nodes[MEMORY_BATCH_MAX];
};
struct memory_status_request {
    uint32_t kind;
    uint32_t reserved;
};
struct memory_status_reply {
    uint64_t pool_bytes, chunk_bytes, chunks_total, chunks_used;
    uint64_t nodes_returned; /* nodes on the free lists now */
    uint64_t frees_total, recycled_total;
};

struct memory_node;

int memory_node_create(struct memory_node **node, const struct memory_options *options, struct error *error);
void memory_node_destroy(struct memory_node *node);
const struct fabric_target *memory_node_target(const struct memory_node *node);
/* The compute node is fenced already (G6): clears every lock word that bears its id, in the lock region
 * and in the DRAM lock table. Returns how many. */
uint64_t memory_node_release_locks(struct memory_node *node, uint16_t compute_id);
void memory_node_status(struct memory_node *node, struct memory_status_reply *status);
/* Makes the next allocations fail with BANYAN_ENOSPC (faults), count of them; UINT64_MAX for ever. */
void memory_node_refuse(struct memory_node *node, uint64_t count);
/* For accounting checks: calls visit for each chunk handed out (address, node_bytes) and then each returned
 * node. */
void memory_node_each_chunk(struct memory_node *node, void (*visit)(void *, gaddr chunk, uint32_t node_bytes),
                            void *context);
void memory_node_each_free(struct memory_node *node, void (*visit)(void *, gaddr node, uint32_t node_bytes),
                           void *context);

#endif
