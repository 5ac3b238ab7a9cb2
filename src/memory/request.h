/*
 * request.h - the requests that a memory node's CPU answers: their kinds, and how they and their replies lie
 * in memory. In host byte order: the backends that cross machines are little-endian alike.
 *
 * Every request begins with its kind, a uint32_t.
 */
#ifndef MEMORY_REQUEST_H
#define MEMORY_REQUEST_H

#include "fabric/fabric.h"

/*
 * THE LIST of kinds, and the registration of the services that answer them (service.h): OWN names a service
 * of every memory node, OTHER stands for one that only some have, which register it themselves. A kind of
 * this list that a memory node has no service for is BANYAN_ENOTSUP there; a kind that is not in it is
 * BANYAN_EINVAL. A number is never
 * given to another kind, so that a peer of another release gets an error, not an answer to something else.
 */
#define MEMORY_KINDS(OWN, OTHER)                                                                             \
    /* first kind, its number, how many kinds, the service */                                                \
    OWN(MEMORY_ALLOCATE, 1, 1, memory_allocate_service)                                                      \
    OWN(MEMORY_FREE, 2, 1, memory_free_service)                                                              \
    OWN(MEMORY_STATUS, 3, 1, memory_status_service)                                                          \
    OWN(MEMORY_USAGE, 4, 1, memory_usage_service)                                                            \
    OTHER(MEMORY_PEERS, 5, 1) /* the daemon's: memoryd/status.c */

#define MEMORY_KIND_OWN(name, number, kinds, service) name = (number), name##_LAST = (number) + (kinds)-1,
#define MEMORY_KIND_OTHER(name, number, kinds)        name = (number), name##_LAST = (number) + (kinds)-1,
enum memory_request_kind { MEMORY_KINDS(MEMORY_KIND_OWN, MEMORY_KIND_OTHER) };

#define MEMORY_BATCH_MAX 64

struct memory_allocate_request {
    uint32_t kind;
    uint32_t block_bytes;
    uint32_t want; /* 1 to MEMORY_BATCH_MAX */
    uint32_t reserved;
};
/* BANYAN_ENOSPC when there is not one block. */
struct memory_allocate_reply {
    uint32_t count; /* 1 to want */
    uint32_t reserved;
    gaddr blocks[MEMORY_BATCH_MAX];
};
struct memory_free_request {
    uint32_t kind;
    uint32_t block_bytes;
    uint32_t count;
    uint32_t reserved;
    gaddr blocks[MEMORY_BATCH_MAX];
};
struct memory_status_request {
    uint32_t kind;
    uint32_t reserved;
};
struct memory_status_reply {
    uint64_t pool_bytes, chunk_bytes, chunks_total, chunks_used;
    uint64_t blocks_used, bytes_used; /* handed out and not returned */
    uint64_t bytes_free_in_chunks;    /* of chunks in use, not handed out */
    uint64_t frees_total, allocations_total;
    uint64_t refusals_total; /* allocations that found no room */
    uint64_t cluster_id, node, node_count;
    /* added by the daemon's services; 0 in a process without one */
    uint64_t uptime_ms, compute_nodes, connections, fenced_total, locks_freed_total;
    uint64_t lists_total, commands_total, bytes_read_total, bytes_written_total;
    uint64_t nic, nic_queues; /* 1: it serves RDMA; queue pairs of compute nodes, whose traffic is in none of
                                 the counts above */
};
/* Which blocks of a chunk are handed out: for `banyan check`. */
struct memory_usage_request {
    uint32_t kind;
    uint32_t chunk; /* 0 to chunks_total - 1 */
    uint32_t first; /* block of the chunk, a multiple of 64 */
    uint32_t reserved;
};
#define MEMORY_USAGE_WORDS 4096u
struct memory_usage_reply {
    gaddr chunk;
    uint32_t block_bytes; /* 0: the chunk is not in use */
    uint32_t blocks;      /* that the chunk has */
    uint32_t words;       /* of bits that follow: one bit a block from `first` on, set if handed out */
    uint32_t reserved;
    uint64_t bits[MEMORY_USAGE_WORDS]; /* only `words` of them are sent */
};
/* Who is connected. */
struct memory_peers_request {
    uint32_t kind;
    uint32_t skip; /* so many peers, which earlier replies have named */
};
#define MEMORY_PEERS_MAX 64u
struct memory_peers_reply {
    uint32_t count, total;
    struct memory_peer {
        uint16_t compute_id;
        uint8_t mapped, reserved;
        uint32_t connections;
        uint64_t connected_ms; /* ago */
        uint64_t heartbeat_ms; /* the last, ago */
        char name[64], address[128];
    } peers[MEMORY_PEERS_MAX]; /* only `count` of them are sent */
};

#endif
