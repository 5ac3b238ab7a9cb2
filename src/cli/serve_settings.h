/* serve_settings.h - the settings of `banyan serve` and `banyan compute`, which share those of the server. */
#ifndef CLI_SERVE_SETTINGS_H
#define CLI_SERVE_SETTINGS_H

#include "cli/cluster.h"

#define SERVE_PORT      6379u /* where Redis is */
#define SERVE_NODES_MAX 64u   /* memory nodes in one process */

enum serve_own { SERVE_OWN_AUTO, SERVE_OWN_NONE };
enum serve_log { SERVE_LOG_AUTO, SERVE_LOG_NONE };
enum serve_durability { SERVE_AUTO, SERVE_MEMORY, SERVE_PROCESS, SERVE_DISK_SECOND, SERVE_DISK_ALWAYS };

struct serve_settings {
    char *listen, *tls_listen, *password_file, *certificate, *key, *authority, *http;
    uint32_t port, threads, fibers, clients_max, idle_timeout_s, sweep_entries;
    uint64_t value_max, output_max, client_memory_max, cut_memory_max, cache_bytes;
    bool tls_clients, protected_mode, busy_poll, defrag;
    int log_level;
    int own; /* enum serve_own */
    int log; /* enum serve_log */
    /* serve */
    char *data, *pools;
    int durability; /* enum serve_durability; AUTO until it is known */
    uint64_t disk_limit;
    uint32_t memory_nodes; /* 0: what the data directory has, else 1 */
    uint64_t size;         /* 0: the same, else MEMORY_POOL_BYTES */
    uint64_t log_bytes;
    int huge_pages; /* enum pages_huge */
    /* compute */
    struct cluster_fabric_settings fabric;
    bool format;
    uint32_t read_lease_ms, peer_threads, log_copies, log_wait_ms;
    uint64_t log_segment_bytes;
    char *peers;
    int cache_policy; /* enum tree_cache_policy */
    double admission;
    int walks;       /* TREE_WALKS_NEVER to TREE_WALKS_AUTO */
    int merge_walks; /* likewise */
    int exchange_walks;
};

extern const struct settings_command serve_settings_serve, serve_settings_compute;
void serve_settings_default(struct serve_settings *settings);

#endif
