/* serve_settings.c - See serve_settings.h. */
#include "cli/serve_settings.h"

#include <string.h>
#include "base/log.h"
#include "memory/pages.h"
#include "memory/request.h"
#include "store/cut.h"
#include "store/store.h"
#include "tree/tree.h"

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct serve_settings, field), low, high, choices, unit, help                   \
    }
#define SERVER_ROWS                                                                                          \
    ROW("listen", OPTION_TEXT, listen, 0, 0, NULL, "ADDRESS,...",                                            \
        "Where Redis clients connect: host:port, host, port or unix:/path, comma separated"),                \
        ROW("port", OPTION_U32, port, 1, 65535, NULL, "N",                                                   \
            "Port of the addresses in listen that name none"),                                               \
        ROW("tls-listen", OPTION_TEXT, tls_listen, 0, 0, NULL, "ADDRESS,...", "The same, with TLS"),         \
        ROW("tls-certificate", OPTION_TEXT, certificate, 0, 0, NULL, "FILE",                                 \
            "TLS: the server's certificate (PEM)"),                                                          \
        ROW("tls-key", OPTION_TEXT, key, 0, 0, NULL, "FILE", "TLS: its private key (PEM)"),                  \
        ROW("tls-authority", OPTION_TEXT, authority, 0, 0, NULL, "FILE",                                     \
            "TLS: the authority that signs clients' certificates (PEM)"),                                    \
        ROW("tls-clients", OPTION_BOOL, tls_clients, 0, 0, NULL, NULL,                                       \
            "TLS: let in only clients with a certificate that tls-authority signed"),                        \
        ROW("password-file", OPTION_TEXT, password_file, 0, 0, NULL, "FILE",                                 \
            "First line: the password that clients give with AUTH"),                                         \
        ROW("protected-mode", OPTION_BOOL, protected_mode, 0, 0, NULL, NULL,                                 \
            "Without a password, serve clients of this machine only"),                                       \
        ROW("http", OPTION_TEXT, http, 0, 0, NULL, "ADDRESS",                                                \
            "Serve /metrics and a status page here; off if empty"),                                          \
        ROW("threads", OPTION_U32, threads, 0, 256, NULL, "N",                                               \
            "Threads that serve clients; 0: one for each CPU"),                                              \
        ROW("fibers", OPTION_U32, fibers, 0, 4096, NULL, "N", "Commands under way on each thread; 0: 64"),   \
        ROW("clients-max", OPTION_U32, clients_max, 1, 1e6, NULL, "N", "Clients at once"),                   \
        ROW("value-max", OPTION_U64, value_max, 1024, STORE_VALUE_MAX, NULL, "BYTES",                        \
            "Longest value accepted"),                                                                       \
        ROW("reply-max", OPTION_U64, output_max, 65536, 0x1p36, NULL, "BYTES",                               \
            "Longest reply to one command"),                                                                 \
        ROW("client-memory-max", OPTION_U64, client_memory_max, 1 << 20, 0x1p40, NULL, "BYTES",              \
            "Buffers of all clients together; beyond it the one with most is closed"),                       \
        ROW("cut-memory-max", OPTION_U64, cut_memory_max, 1 << 20, 0x1p40, NULL, "BYTES",                    \
            "What is kept for dumps under way of keys that change meanwhile; beyond it they fail"),          \
        ROW("idle-timeout", OPTION_U32, idle_timeout_s, 0, 1e9, NULL, "s",                                   \
            "Close clients that are silent for so long; 0: never"),                                          \
        ROW("sweep-entries", OPTION_U32, sweep_entries, 0, UINT32_MAX, NULL, "N",                            \
            "Entries looked at for expiry every 100 ms; 0: 256"),                                            \
        ROW("cache-size", OPTION_U64, cache_bytes, 1 << 20, 0x1p40, NULL, "BYTES",                           \
            "Room for what is cached of the index: inner nodes, and leaves and entries of owned ranges"),    \
        ROW("activedefrag", OPTION_BOOL, defrag, 0, 0, NULL, NULL,                                           \
            "Empty sparse chunks of the pool in the background"),                                            \
        ROW("busy-poll", OPTION_BOOL, busy_poll, 0, 0, NULL, NULL, "Never sleep, for lowest latency"),       \
        ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",                        \
            "debug, info, warning or error; messages go to standard error")

static const char *const own_names[] = {"auto", "none", NULL};
static const char *const log_names[] = {"auto", "none", NULL};

static const char *const durability_names[] = {"auto",        "memory",      "process",
                                               "disk-second", "disk-always", NULL};

static const char *const huge_names[] = {"auto", NULL}; /* PAGES_AUTO */

static const struct option_entry serve_table[] = {
    SERVER_ROWS,
    ROW("own", OPTION_CHOICE, own, 0, 0, own_names, "auto|none",
        "auto: this process owns all keys, as no other can reach them; none: it locks as if others could"),
    ROW("log", OPTION_CHOICE, log, 0, 0, log_names, "none",
        "Only none: the owner's log is for banyan compute; here a write costs no round trip"),
    ROW("data", OPTION_TEXT, data, 0, 0, NULL, "DIR",
        "Keep the data in files of this directory, so that they outlive the process, however it ends; made "
        "if it is not there"),
    ROW("pools", OPTION_TEXT, pools, 0, 0, NULL, "DIR",
        "With --data: where the pools' files lie, if not there too. On tmpfs (/dev/shm/banyan) nothing of "
        "them is ever written to a disk; a disk level fills them again when the machine was restarted"),
    ROW("durability", OPTION_CHOICE, durability, 0, 0, durability_names, "LEVEL",
        "What acknowledged writes outlive: memory (nothing), process (the process's end), disk-second (power "
        "too, but for the last second), disk-always (power; an answer waits for the disk). Default, auto: "
        "disk-second with --data, else memory"),
    ROW("disk-limit", OPTION_U64, disk_limit, 0, 0x1p50, NULL, "BYTES",
        "With a disk level: what journal and checkpoints may take, at least 64M; 0: what the disk has"),
    ROW("memory-nodes", OPTION_U32, memory_nodes, 1, SERVE_NODES_MAX, NULL, "N",
        "Memory nodes in this process. Default: as many as the data directory has, else 1"),
    ROW("size", OPTION_U64, size, 16 << 20, 0x1p46, NULL, "BYTES",
        "Pool of each memory node, as 4G; taken from the system as it is used, but with --data at once. "
        "Default: that of the data directory if it has one, else 1G"),
    ROW("log-bytes", OPTION_U64, log_bytes, 0, 0x1p45, NULL, "BYTES",
        "What the segments of the owner's log may take of each pool, 512K to half of it; 0: a 32nd of it"),
    ROW("huge-pages", OPTION_SWITCH, huge_pages, 0, 0, huge_names, "auto|on|off",
        "Huge pages for the pool where there are some: on: all of it, in reserved ones first; auto: "
        "transparent ones, for what lies between its first and its last 32 MiB"),
    {.kind = OPTION_END},
};

static const struct option_entry compute_table[] = {
    SERVER_ROWS,
    CLUSTER_FABRIC_ROWS(struct serve_settings, fabric),
    ROW("own", OPTION_CHOICE, own, 0, 0, own_names, "auto|none",
        "auto: take a share of the key ranges, which no other compute node writes then; none: own no ranges"),
    ROW("read-lease", OPTION_U32, read_lease_ms, 10, 10000, NULL, "ms",
        "So long after its last heartbeat this process may answer from what it has cached of its ranges"),
    ROW("peers", OPTION_TEXT, peers, 0, 0, NULL, "ADDRESS",
        "Where other compute nodes reach this one; else an address is chosen; off: nowhere"),
    ROW("peer-threads", OPTION_U32, peer_threads, 1, 64, NULL, "N",
        "Threads that serve other compute nodes and keep the ranges"),
    ROW("log", OPTION_CHOICE, log, 0, 0, log_names, "auto|none",
        "auto: writes of owned ranges go into a log in the pool, many in one round trip, and are merged "
        "behind; none: each goes to its leaf"),
    ROW("log-copies", OPTION_U32, log_copies, 1, 2, NULL, "N",
        "So many memory nodes have an entry of the log before its write is answered"),
    ROW("log-segment-bytes", OPTION_U64, log_segment_bytes, MEMORY_LOG_SEGMENT_LEAST, MEMORY_LOG_SEGMENT_MOST,
        NULL, "BYTES", "Segments of the log that are asked for; memory nodes may grant less"),
    ROW("log-wait", OPTION_U32, log_wait_ms, 1, 600000, NULL, "ms",
        "A write for which the log has no room waits so long for merging, then it is refused with OOM"),
    ROW("cache-policy", OPTION_CHOICE, cache_policy, 0, 0, tree_cache_policies, "inner|dex|dinomo|banyan",
        "What is cached of owned ranges: nothing but inner nodes, leaves too, entries too, or all by use"),
    ROW("walks", OPTION_SHARE, walks, 0, 100, tree_walks_shares, "auto|never|always|PERCENT",
        "Searches whose inner nodes are not cached are left to the memory nodes' CPUs: never, always, so "
        "many "
        "percent of them, or as it pays"),
    ROW("merge-walks", OPTION_SHARE, merge_walks, 0, 100, tree_walks_shares, "auto|never|always|PERCENT",
        "What this process has logged is merged into its leaves by the memory nodes' CPUs: never, always, so "
        "many percent of it, or as it pays"),
    ROW("exchange-walks", OPTION_SHARE, exchange_walks, 0, 100, tree_walks_shares,
        "auto|never|always|PERCENT",
        "Changes of this process's own keys whose leaf alone is not cached are made by the memory nodes' "
        "CPUs: never, always, so many percent of them, or as it pays"),
    ROW("admission", OPTION_DOUBLE, admission, 0, 1, NULL, "P",
        "cache-policy dex: how likely a leaf that was read comes into the cache"),
    ROW("format", OPTION_BOOL, format, 0, 0, NULL, NULL,
        "Make a new, empty cluster of the memory nodes first: ALL THAT THEY HOLD IS LOST"),
    {.kind = OPTION_END},
};

#define SETTINGS_TEXT                                                                                        \
    "Every setting is also read from the environment (BANYAN_CLIENTS_MAX) and from a file (--config); the "  \
    "command line comes first, then the environment.\n\n"
#define STATUS_TEXT                                                                                          \
    "Exit status: 0 after SIGINT, SIGTERM or SHUTDOWN, 1 when it could not start, 2 when a setting makes "   \
    "no sense."

const struct settings_command serve_settings_serve = {
    .name = "serve",
    .table = serve_table,
    .documentation =
        "Serve an ordered key-value store to Redis clients, all in this one process.\v"
        "The store is memory: what it holds is gone when the process ends, unless --data keeps it: then a "
        "server that was killed, or stopped, goes on where it was when it is started again. What a loss of "
        "power may cost is said by --durability.\n\n" SETTINGS_TEXT "Examples:\n"
        "  banyan serve\n"
        "  banyan serve --data /var/lib/banyan\n"
        "  banyan serve --data /var/lib/banyan --durability disk-always --disk-limit 20G\n"
        "  banyan serve --port 7000\n"
        "  banyan serve --listen 127.0.0.1:7000,unix:/tmp/banyan.sock --size 8G --threads 4\n"
        "  banyan serve --listen 0.0.0.0:6379 --password-file /etc/banyan/password\n\n" STATUS_TEXT,
};

const struct settings_command serve_settings_compute = {
    .name = "compute",
    .table = compute_table,
    .documentation =
        "Serve Redis clients from a cluster of memory nodes. Any number of compute nodes serve the same "
        "data.\v"
        "The compute node keeps nothing: it may be killed at any moment, and what it had acknowledged is "
        "there.\n\n" SETTINGS_TEXT "Examples:\n"
        "  banyan memory --listen 127.0.0.1:7100 &\n"
        "  banyan compute --memory 127.0.0.1:7100 --format            # the first one\n"
        "  banyan compute --memory 127.0.0.1:7100 --listen 127.0.0.1:6380\n"
        "  banyan compute --memory unix:/run/banyan/memory.sock       # maps the pool\n\n" STATUS_TEXT,
};

void serve_settings_default(struct serve_settings *settings)
{
    *settings = (struct serve_settings){.listen = strdup("127.0.0.1"),
                                        .port = SERVE_PORT,
                                        .clients_max = 10000,
                                        .value_max = STORE_VALUE_MAX,
                                        .output_max = UINT64_C(256) << 20,
                                        .client_memory_max = UINT64_C(1) << 30,
                                        .cut_memory_max = STORE_CUT_MEMORY_MAX,
                                        .cache_bytes = UINT64_C(64) << 20,
                                        .protected_mode = true,
                                        .defrag = true,
                                        .huge_pages = PAGES_AUTO,
                                        .log_level = LOG_INFO,
                                        .cache_policy = TREE_CACHE_BANYAN,
                                        .admission = 0.1,
                                        .walks = TREE_WALKS_AUTO,
                                        .merge_walks = TREE_WALKS_NEVER,
                                        .exchange_walks = TREE_WALKS_NEVER,
                                        .own = SERVE_OWN_AUTO,
                                        .log = SERVE_LOG_NONE,
                                        .log_copies = 1,
                                        .log_segment_bytes = MEMORY_LOG_SEGMENT_MOST,
                                        .log_wait_ms = 5000,
                                        .read_lease_ms = 50,
                                        .peer_threads = 1,
                                        .fabric = CLUSTER_FABRIC_DEFAULTS};
}
