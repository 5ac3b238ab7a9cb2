/*
 * top.h - what the files of `banyan top` share: top.c is the command and its loop, top_servers.c asks servers
 * for their INFO, top_view.c prints. One thread.
 */
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include <hiredis/hiredis.h>
#include "cli/cluster.h"

#define TOP_SERVERS_MAX      32u
#define TOP_MEMORY_NODES_MAX 96u
#define TOP_CACHE_KINDS      4u

struct top_settings {
    char *password_file;
    uint32_t interval_ms;
    bool once, json;
};

/* What one INFO said, and when. */
struct top_sample {
    uint64_t at; /* ns */
    uint64_t clients, commands, hits, misses, errors, bytes_in, bytes_out, operations, round_trips, keys;
    uint64_t p50, p99;
    uint64_t owned, ranges, forwards, served, lapses, pauses;
    uint64_t cache_budget; /* bytes */
    struct top_cache {
        uint64_t bytes, hits, misses;
    } cache[TOP_CACHE_KINDS];
    struct top_log {
        bool kept;
        uint64_t unmerged, lag_ms, entries, commits, bytes, waits, full, inherited, degraded;
    } log;
    char ownership[8]; /* "ranges", "all", "none"; "" of a server that has none of this */
    bool keys_known;
};
struct top_memory {
    bool known, connected, rdma;
    uint64_t used, pool, compute_nodes, fenced, queue_pairs, log_bytes, log_segments;
    /* of the server's own walks there (docs/internals/walks.md): their share, and what a walk takes, and a
     * READ; 0: not measured */
    double walk_percent, walk_us, read_us;
};
struct top_server {
    const char *name;
    struct net_address address;
    redisContext *connection;
    struct top_sample now, before;
    bool alive;
    char trouble[128];
    unsigned memory_nodes;
    struct top_memory memory[TOP_MEMORY_NODES_MAX];
};
struct top {
    struct top_settings settings;
    char password[NET_SECRET_MAX + 1];
    struct top_server servers[TOP_SERVERS_MAX];
    unsigned count;
};

/* ---- top_servers.c ---- */

/* As in the names of INFO: "inner", "leaves", "entries". */
extern const char *const top_cache_names[TOP_CACHE_KINDS];

/* Connects where there is no connection, and asks. Waits at most some seconds; a server that does not answer
 * is not alive, and says why. */
void top_server_poll(const struct top *top, struct top_server *server);

/* ---- top_view.c ---- */

void top_print(const struct top *top);
/* Returns the exit status. */
int top_print_json(const struct top *top);

#endif
