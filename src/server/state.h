/* state.h - the server itself: what its parts, each with a header of its own, have in common. */
#ifndef SERVER_STATE_H
#define SERVER_STATE_H

#include "server/command.h"
#include "server/connection.h"
#include "server/defrag.h"
#include "server/listeners.h"
#include "server/nodes.h"
#include "server/password.h"
#include "server/slowlog.h"
#include "server/thread.h"

#define SERVER_REDIS_VERSION "7.0.0" /* whose behaviour is followed; clients look at it */

struct server {
    struct tree_compute *compute;
    struct fabric *fabric;
    struct server_options options; /* completed; pointers in it are not used after server_create */
    struct net_tls *tls;
    struct store *store;
    struct command_table *table;
    const struct server_setting *settings;
    char *data; /* owned; NULL: this process keeps nothing */
    struct server_listeners listeners;
    struct server_thread *threads;
    unsigned threads_made; /* to be destroyed */
    unsigned thread_count; /* that run, or are to */
    struct server_node *nodes;
    unsigned node_most; /* of `nodes`: memory nodes may join (server_memory_nodes) */
    struct server_password password;
    struct server_slowlog slowlog;
    struct server_defrag defrag;
    struct spinlock settings_lock;  /* held while CONFIG SET applies its changes */
    uint64_t started_ns, started_s; /* started_s: since 1970 */
    char run_id[41];
    uint64_t sampled_ns, sampled_commands; /* thread 0's */
    /* Any thread; relaxed unless said otherwise. */
    uint64_t next_client;                            /* ids */
    uint64_t clients;                                /* connected, or on their way to their thread */
    uint64_t clients_max, value_max, idle_timeout_s; /* may be set at run time */
    uint64_t commands_per_second;                    /* sampled by thread 0 */
    uint64_t keys, keys_at_ns;                       /* of the last complete sweep; 0: none yet */
    uint32_t stopping;      /* release/acquire: what was done before server_stop is seen */
    uint32_t quiet_threads; /* release/acquire: those whose fibers have returned */
    uint32_t started_threads;
    /* Starting: threads report here, under the lock. */
    struct spinlock start_lock;
    struct task *starter;
    struct error start_error;
};

/* The server that runs a command. */
static inline struct server *server_of(const struct server_call *call)
{
    return call->connection->thread->server;
}

#endif
