/*
 * connection.h - inside the RESP server: a connection, the thread that it belongs to, the fibers that run its
 * commands, and the server that holds them together. Used by client.c, server.c and the commands about
 * connections and the server itself (connection.c, admin.c, info.c); nobody else.
 *
 * THREADS. A client is touched by its thread alone: by callbacks and the turn hook (on the worker's stack)
 * and by the fiber that runs it, which may be suspended in the middle of a command; `running` says so. While
 * it is set its input buffer is only appended to, since arguments point into it, and of its output only what
 * stands before output.start is sent. Counters are written by their thread alone, with relaxed stores that
 * any thread may load: each is exact by itself, and nobody draws conclusions from two of them together.
 * Whoever wants to look at the clients of other threads goes there (server_each_thread).
 */
#ifndef SERVER_CLIENT_H
#define SERVER_CLIENT_H

#include "base/atomic.h"
#include "base/histogram.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "memory/memory.h"
#include "server/command.h"
#include "server/server.h"

/* Buffers begin with a block of this size; spare blocks are kept by the thread. */
#define CLIENT_BLOCK_BYTES 16384u
/* With so many bytes unsent no further command of a client is run, and nothing more is read from it. */
#define CLIENT_OUTPUT_STOP (1u << 20)
/* Commands of one client in a row, before others get their turn. */
#define CLIENT_SLICE 256u
/* Point reads, or plain SETs, of a pipeline that are done together. */
#define CLIENT_BATCH_MAX     64u
#define CLIENT_BATCH_ARGS    4u
#define CLIENT_NAME_MAX      4096u
#define SERVER_REDIS_VERSION "7.0.0" /* whose behaviour is followed; clients look at it */

enum client_reply { CLIENT_REPLY_ON, CLIENT_REPLY_OFF, CLIENT_REPLY_SKIP };

struct server_client {
    struct worker_watch watch; /* first: the callback gets this */
    struct server_thread *thread;
    struct net_stream *stream;
    struct server_client *previous, *next; /* of the thread */
    struct server_client *next_ready, *next_flush;
    /* Input: bytes [start, end) have not been parsed. */
    char *input;
    size_t input_start, input_end, input_capacity;
    struct resp_parser parser;
    /* Output: bytes [sent, output.length) have not been sent. */
    struct resp_writer output;
    size_t sent;
    size_t arguments_counted; /* bytes of parser.arguments in the thread's account */

    bool ready;         /* in the thread's queue */
    bool running;       /* a fiber has it */
    bool flushing;      /* in the list of those with output */
    uint8_t held;       /* by callbacks that are still looking at it */
    bool ended;         /* the peer sends no more */
    bool finishing;     /* no further command; close when all is sent */
    bool dead;          /* close as soon as no fiber has it */
    bool blocked;       /* waits for output to drain before it goes on */
    bool authenticated; /* has given the password */
    bool unix_socket;
    uint8_t reply; /* enum client_reply */
    uint8_t skip;  /* replies to leave out: 2: the next command's; 1: this one's */
    bool no_evict, no_touch;

    uint64_t id, created_ns;
    uint64_t active_ns; /* a command was run last, or bytes came or went: a slow transfer is not silent */
    uint64_t commands, bytes_in, bytes_out;
    const char *last_command;
    char *name, *library, *library_version; /* NULL: none */
    char *peer;
};

/* One of a thread's pool; each runs one client at a time. */
struct server_fiber {
    struct server_thread *thread;
    struct task *task;
    struct tree_session *session;
    struct store_session *store;
    struct server_client *client; /* that it runs */
    struct server_fiber *next_idle;
    bool idle;
    uint64_t clock_ns, clock_ms; /* wall clock as last read, and when */
    uint32_t latencies;
    uint64_t latency[CLIENT_SLICE]; /* of this slice's commands, ns */
    uint32_t batch_count;
    uint32_t batch_kind; /* client.c's */
    struct client_request {
        const struct server_command *command;
        unsigned index;
        uint32_t count;
        size_t start; /* where it begins in the client's input */
        struct resp_argument arguments[CLIENT_BATCH_ARGS];
    } batch[CLIENT_BATCH_MAX];
    struct store_item items[CLIENT_BATCH_MAX];
};

struct server_command_counter {
    uint64_t calls, nanoseconds, failed;
};
struct server_counters {
    uint64_t clients, clients_total, clients_rejected, clients_evicted;
    uint64_t commands, hits, misses, errors, bytes_in, bytes_out;
    uint64_t blocks;       /* buffers of one block in use */
    uint64_t large;        /* bytes of larger buffers */
    uint64_t input_errors; /* peers that broke the protocol */
};
/* By the owner of the counter alone. */
static inline void counter_add(uint64_t *counter, uint64_t by)
{
    atomic_store_relaxed(counter, atomic_load_relaxed(counter) + by);
}

struct server_thread {
    struct server *server;
    unsigned number;
    struct worker *worker;
    struct thread *thread;
    struct tree_worker *tree;
    struct server_fiber *fibers;
    struct server_fiber *idle;
    unsigned fibers_live; /* commands' and others' that must return before the sessions go */
    unsigned woken;       /* fibers on their way to the queue */
    struct server_client *ready_head, *ready_tail;
    struct server_client *flush;
    struct server_client *clients;
    struct worker_hook hook;
    char **spare; /* blocks */
    unsigned spare_count;
    bool stopping;
    bool quiet; /* counted among the server's threads whose fibers are gone */
    uint64_t idle_checked_ns;
    /* Any thread, relaxed: the bytes of its largest client that may be evicted, or more: each growth raises
     * it, and looking for a client to evict corrects it. */
    uint64_t largest;
    uint32_t evicting; /* any thread: it has been asked to evict, and not begun */
    struct server_counters counters;
    struct server_command_counter *commands; /* by number in the table */
    /* For other threads, under the lock. */
    struct spinlock lock;
    struct histogram *latency, *latency_before; /* this and the last half minute */
    uint64_t latency_turned_ns;
    struct tree_stats tree_stats; /* of all its sessions, as of a moment ago */
};

struct server_listener {
    struct worker_watch watch; /* first */
    struct server *server;
    struct net_address address;
    int fd;
    bool tls, watched;
};

/* What this node's fibers learn of a memory node. */
struct server_node {
    struct spinlock lock; /* guards what follows */
    bool connected, asked;
    struct memory_status_reply status;
    char trouble[256];
};

struct server {
    struct tree_compute *compute;
    struct fabric *fabric;
    struct server_options options; /* completed; pointers in it are not used after server_create */
    struct net_tls *tls;
    struct store *store;
    struct command_table *table;
    struct server_cursors *cursors; /* SCAN's */
    const struct server_setting *settings;
    struct server_listener *listeners;
    unsigned listener_count;
    struct server_thread *threads;
    unsigned thread_count;
    unsigned next_thread;                  /* gets the next connection; thread 0's */
    uint64_t sampled_ns, sampled_commands; /* thread 0's */
    uint64_t accept_retry_ns; /* listeners rest until then: no descriptors were left; thread 0's */
    uint64_t started_ns;
    uint64_t started_ms; /* wall clock */
    char run_id[41];
    struct server_node *nodes;
    unsigned node_count;
    /* Any thread, relaxed unless said otherwise. */
    uint64_t next_client;                            /* ids */
    uint64_t clients;                                /* connected, or on their way to their thread */
    uint64_t clients_max, value_max, idle_timeout_s; /* may be set at run time */
    uint64_t commands_per_second;                    /* sampled by thread 0 */
    uint64_t keys, keys_at_ns;                       /* of the last complete sweep; 0: none yet */
    uint32_t stopping;      /* release/acquire: what was done before server_stop is seen */
    uint32_t quiet_threads; /* release/acquire: their fibers are gone */
    uint32_t started_threads;
    /* The password, under its lock; `guarded` can be asked without. */
    struct spinlock password_lock;
    uint32_t guarded;
    uint32_t password_length;
    char password[NET_SECRET_MAX];
    /* Starting: threads report here. */
    struct spinlock start_lock;
    struct task *starter;
    struct error start_error;
};

/* ---- client.c ---- */

/* On the client's thread. Takes the stream and `peer` over, also when it fails (false: no memory). */
bool client_open(struct server_thread *thread, struct net_stream *stream, char *peer, bool unix_socket);
/* At once, or when its fiber has let go of it. */
void client_close(struct server_client *client);
/* No more commands; closes when its output is sent. */
void client_finish(struct server_client *client);
/* Bytes of its buffers. */
uint64_t client_memory(const struct server_client *client);
/* A fiber of the pool: runs clients until the thread stops. argument: struct server_fiber. */
void client_fiber_main(void *fiber);
/* The command that a fiber runs may end: nobody gets its reply, or the server stops. argument: struct
 * server_fiber. */
bool client_fiber_cancelled(void *fiber);
/* The thread's turn hook: sends what was gathered. */
void client_turn(struct worker_hook *hook);
/* Closes the largest clients until all clients' memory is within its limit; has those of other threads closed
 * that are larger than this one's. */
void client_evict(struct server_thread *thread);
/* Frees the spare blocks. */
void client_spare_free(struct server_thread *thread);

/* ---- server.c ---- */

/* Calls the function on every thread of the server, and waits. From a fiber; the function runs as a callback,
 * the threads' calls possibly at once. False: no memory, it was not called on all. */
bool server_each_thread(struct server *server, void (*function)(struct server_thread *, void *context),
                        void *context);
/* Buffers of all clients together. */
uint64_t server_client_memory(const struct server *server);
/* In constant time. */
bool server_password_check(struct server *server, const char *text, size_t length);
void server_password_set(struct server *server, const char *text, size_t length);
/* Brings the figures up to date that are gathered from time to time. From a fiber. */
void server_refresh(struct server *server);
void server_counters_sum(const struct server *server, struct server_counters *sum);
void server_counters_reset(struct server *server);

static inline struct server *server_of(const struct server_call *call)
{
    return call->client->thread->server;
}

#endif
