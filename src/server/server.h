/*
 * server.h - the RESP server of a compute node: any Redis client, over TCP, TLS and Unix sockets.
 *
 * Called by the command line (`banyan serve`, `banyan compute`) and tests. The server starts its own threads;
 * each is a worker (base/worker.h) with its own listeners' share of the connections, its tree worker, and
 * fibers that run commands. In reading order: resp (parsing requests, writing replies), client (a connection:
 * buffers, limits, its pipeline), command (the table of commands), strings, keys, ranges, admin (the
 * commands), server (threads).
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "net/net.h"
#include "store/store.h"

struct server;

struct server_options {
    const struct net_address *listen; /* copied */
    unsigned listen_count;
    const struct net_address *listen_tls;
    unsigned listen_tls_count;
    unsigned unix_mode;   /* of Unix sockets' files; 0: 0700 */
    struct net_tls *tls;  /* for listen_tls */
    const char *password; /* NULL: none. Copied, and never shown */
    bool tls_clients;     /* tls asks every client for a certificate: protected mode lets these in */
    bool protected_mode;  /* without password, refuse peers that are not on this machine, as Redis does */
    unsigned threads;     /* 0: one per CPU */
    unsigned fibers;      /* commands under way per thread; 0: 64 */
    uint32_t clients_max; /* 0: 10,000 */
    uint64_t value_max;   /* longest bulk accepted; 0: STORE_VALUE_MAX */
    uint64_t query_buffer_max; /* unparsed bytes of a client; 0: value_max + 64 KiB... at least one command */
    uint64_t output_buffer_max; /* one command's reply may not be longer; 0: 256 MiB */
    uint64_t client_memory_max; /* buffers of all clients together; 0: 1 GiB. Beyond it the largest is closed.
                                 * So much again, 256 MiB at least, may the values of commands under way have:
                                 * what is beyond that gets an error */
    uint32_t idle_timeout_s;    /* close clients that are silent for so long; 0: never */
    uint32_t
        sweep_entries; /* looked at by the expiry sweep per 100 ms, on one thread; 0: 256; UINT32_MAX: off */
    bool busy_poll;    /* never sleep: for benchmarks */
};

/* A setting that CONFIG GET shows beside the server's own, as text. A NULL name ends a table. */
struct server_setting {
    const char *name;
    void (*get)(void *context, char *text, size_t size);
    void *context;
};

/* Opens (creating it where it is missing) the store "redis" and listens; serves from server_start on.
 * `compute` and the fabric stay the caller's. BANYAN_EBUSY, BANYAN_EINVAL, BANYAN_ENET with the address at
 * fault. */
int server_create(struct server **server, struct tree_compute *compute, const struct server_options *options,
                  struct error *error);
/* Optional, before server_start; `settings` must stay. */
void server_set_settings(struct server *server, const struct server_setting *settings);
int server_start(struct server *server, struct error *error);
/* From any thread and from signal handlers' threads: SHUTDOWN does the same. */
void server_stop(struct server *server);
/* Waits for all threads. */
void server_join(struct server *server);
void server_destroy(struct server *server);
/* The server's password, for other ways to its figures. Until server_destroy; any thread. */
struct server_password;
struct server_password *server_password(struct server *server);
/* The port of listener number i, for port 0. */
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
/* All threads together; any thread. */
struct server_stats {
    struct server_counters counters;
    uint64_t uptime_s, expired_total;
    uint64_t client_memory; /* bytes of all clients' buffers */
    uint64_t keys;          /* counted by the last complete sweep */
    uint64_t keys_age_s;    /* how long ago; UINT64_MAX: not yet */
    struct tree_stats tree;
    struct store_stats store;
    struct tree_cache_stats cache;
    uint64_t latency_us_p50, latency_us_p99, latency_us_p999; /* of commands, over the last minute or so */
};
void server_stats(struct server *server, struct server_stats *stats);
/* Per command: calls `visit` for each that was called at least once. */
void server_each_command(struct server *server,
                         void (*visit)(void *context, const char *name, uint64_t calls, uint64_t nanoseconds,
                                       uint64_t failed),
                         void *context);
/* Memory nodes as this compute node sees them, refreshed about each second by one of its fibers. */
struct server_memory_state {
    uint16_t node;
    bool connected;
    struct memory_status_reply *status; /* NULL: never asked with success */
    char trouble[256];
};
unsigned server_memory_nodes(struct server *server);
void server_memory_state(struct server *server, unsigned node, struct server_memory_state *state,
                         struct memory_status_reply *status);

#endif
