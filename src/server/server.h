/*
 * server.h - the RESP server of a compute node: serves any Redis client, over TCP, TLS and Unix sockets.
 *
 * Called by the command line (`banyan serve`, `banyan compute`) and tests. The server starts its own threads;
 * each is a worker (base/worker.h) with its share of the connections, a tree worker, and fibers that run
 * commands. In reading order: resp_parser.h and resp_writer.h (requests, replies), connection.h (one client),
 * fiber.h (running its requests), command.h (the table of commands), commands/ (the commands), thread.h,
 * listeners.h, state.h (the server).
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "durable/durable.h"
#include "net/net.h"
#include "owner/process.h"
#include "server/saves.h"
#include "store/store.h"

struct server;

#define SERVER_STORE_NAME "redis"

struct server_options {
    const struct net_address *listen; /* copied */
    unsigned listen_count;
    const struct net_address *listen_tls;
    unsigned listen_tls_count;
    unsigned unix_mode;   /* file mode of Unix sockets; 0: 0700 */
    struct net_tls *tls;  /* for listen_tls */
    const char *password; /* NULL: none. Copied; never shown */
    bool tls_clients; /* `tls` requires a certificate of every client: protected mode admits such clients */
    bool protected_mode;        /* without a password, refuse peers of other machines, as Redis does */
    unsigned threads;           /* 0: one per CPU */
    unsigned fibers;            /* commands under way per thread; 0: 64 */
    uint32_t clients_max;       /* 0: 10,000 */
    uint64_t value_max;         /* longest argument accepted; 0: STORE_VALUE_MAX */
    uint64_t query_buffer_max;  /* unparsed bytes of a client; 0: value_max + 64 KiB */
    uint64_t output_buffer_max; /* longest reply to one command; 0: 256 MiB */
    uint64_t cut_memory_max;    /* what all cuts of the store together may keep; 0: 256 MiB */
    uint64_t client_memory_max; /* buffers of all clients together; 0: 1 GiB. Beyond it the client with the
                                   largest is closed. The values of commands under way have a limit of the
                                   same size, at least 256 MiB; a command that would exceed it fails */
    uint32_t idle_timeout_s;    /* close clients that are idle for so long; 0: never */
    uint32_t
        sweep_entries; /* that the expiry sweep looks at per 100 ms, on one thread; 0: 256; UINT32_MAX: off */
    bool no_defrag;    /* sparse chunks are not emptied until CONFIG SET activedefrag yes */
    bool busy_poll;    /* never sleep: for benchmarks */
    struct owner_process *owner; /* the process's part in the ownership of ranges; NULL: no cluster */
    const char
        *data; /* the directory in which this process keeps its memory nodes' pools; NULL: none. Copied */
    /* What outlives power: attached; the server starts it, and tells it of all that its clients change.
     * Whoever gave it stops it when server_join has returned. NULL: nothing does. */
    struct durable *durable;
    struct server_saver saver; /* of a cluster's checkpoints; `begin` NULL: there is none */
    bool alone;                /* no other process can reach the pool: cuts of the store hold (store/cut.h) */
    bool owns_all;             /* `compute` owns each index that it opens (switch `ownership`); for figures */
    void (*tick)(void *context); /* NULL, or called by the first thread ten times a second; must not wait */
    void *tick_context;
};

/* A setting that CONFIG GET shows beside the server's own, as text. A NULL name ends a table. */
struct server_setting {
    const char *name;
    void (*get)(void *context, char *text, size_t size);
    void *context;
};

/* Opens the store "redis", creating it if it is missing, and listens; serves from server_start on. `compute`
 * and the fabric stay the caller's. BANYAN_EBUSY, BANYAN_EINVAL and BANYAN_ENET name the address. */
int server_create(struct server **server, struct tree_compute *compute, const struct server_options *options,
                  struct error *error);
/* Optional, before server_start; `settings` must stay. */
void server_set_settings(struct server *server, const struct server_setting *settings);
int server_start(struct server *server, struct error *error);
/* No new clients from now on; those that there are go on. Any thread, after server_start. */
void server_refuse(struct server *server);
/* Any thread, also one that waits for signals. SHUTDOWN does the same. */
void server_stop(struct server *server);
/* Waits for all threads. */
void server_join(struct server *server);
void server_destroy(struct server *server);
/* The server's password, for its pages over HTTP (http.h). Valid until server_destroy. */
struct server_password;
struct server_password *server_password(struct server *server);
/* As it was given. */
struct durable *server_durable(const struct server *server);
/* The port of listener number i, which the system has chosen for port 0. */
uint16_t server_port(const struct server *server, unsigned i);

/* What threads count. `each` has them all, for sums. */
struct server_counters {
    union {
        struct {
            uint64_t clients, clients_total, clients_rejected, clients_evicted;
            uint64_t commands, hits, misses, errors, bytes_in, bytes_out;
            uint64_t blocks;       /* buffers of one block in use */
            uint64_t large;        /* bytes of larger buffers */
            uint64_t input_errors; /* connections that broke the protocol */
        };
        uint64_t each[13];
    };
};
/* What this process may write: with others, under locks of all; everything, since it has the pool to itself;
 * what the map of ranges says. */
enum server_ownership { SERVER_SHARES, SERVER_OWNS_ALL, SERVER_OWNS_RANGES };
extern const char *const server_ownership_names[];
/* Figures of all threads together. Any thread. */
struct server_stats {
    struct server_counters counters;
    uint64_t uptime_s, expired_total;
    uint64_t client_memory; /* bytes of all clients' buffers */
    uint64_t keys;          /* counted by the last complete sweep */
    uint64_t keys_age_s;    /* age of `keys`; UINT64_MAX: no sweep has been completed */
    struct tree_stats tree;
    struct store_stats store;
    struct tree_cache_stats cache;
    enum server_ownership ownership;
    struct owner_stats owner;                                 /* where ownership is SERVER_OWNS_RANGES */
    bool logs;                                                /* this process keeps a log */
    struct log_stats log;                                     /* with `logs` */
    uint64_t latency_us_p50, latency_us_p99, latency_us_p999; /* of commands, over the last minute or so */
};
void server_stats(struct server *server, struct server_stats *stats);
/* What this process caches of the index: inner nodes, and of ranges that it owns leaves and entries. */
enum server_cache_kind {
    SERVER_CACHE_INNER,
    SERVER_CACHE_LEAVES,
    SERVER_CACHE_ENTRIES,
    SERVER_CACHE_VALUES,
    SERVER_CACHE_KINDS
};
extern const char *const server_cache_names[]; /* "inner", "leaves", "entries", "values" */
/* Hits and misses of inner nodes are those of clients' commands alone. */
struct tree_cache_kind server_cache_kind(const struct server_stats *stats, enum server_cache_kind kind);
/* Calls `visit` for each command that was called at least once. */
void server_each_command(struct server *server,
                         void (*visit)(void *context, const char *name, uint64_t calls, uint64_t nanoseconds,
                                       uint64_t failed),
                         void *context);
/* A memory node as this compute node sees it, refreshed about once a second. */
struct server_memory_state {
    uint16_t node;
    bool connected;
    struct memory_status_reply *status;  /* NULL: it has never answered */
    struct tree_walks_figures walks;     /* of this compute node there, now */
    struct tree_walks_figures exchanges; /* likewise */
    char trouble[256];
};
unsigned server_memory_nodes(const struct server *server);
/* Whether there is one of the number. */
bool server_memory_is(const struct server *server, unsigned node);
void server_memory_state(struct server *server, unsigned node, struct server_memory_state *state,
                         struct memory_status_reply *status);

#endif
