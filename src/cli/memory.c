/* memory.c - `banyan memory`: one memory node as a daemon. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/log.h"
#include "base/signals.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "disk/manifest.h"
#include "memoryd/disk.h"
#include "memoryd/memoryd.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/status_page.h"

/* A process that was killed lets go of its files when its last thread is gone. */
#define LOCK_WAIT_NS UINT64_C(5000000000)

struct memory_settings {
    char *listen, *secret_file, *certificate, *key, *authority, *http, *pool_file, *data;
    uint64_t size, chunk, locks, logs, disk_limit;
    uint32_t threads, walk_threads, merge_threads, lease_ms_max, connections_max;
    int engine, log_level, lock_width, durability;
    bool huge_pages, busy_poll, rdma;
    struct cluster_rdma_settings nic;
};

static const char *const engines[] = {"auto", "io_uring", "epoll", NULL};
static const char *const lock_widths[] = {"auto", "2", "8", NULL};
static const uint32_t lock_width_bytes[] = {0, 2, 8};

enum { DURABILITY_DEFAULT, DURABILITY_PROCESS, DURABILITY_SECOND, DURABILITY_ALWAYS };
static const char *const durabilities[] = {"default", "process", "disk-second", "disk-always", NULL};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct memory_settings, field), low, high, choices, unit, help                  \
    }
static const struct option_entry table[] = {
    ROW("listen", OPTION_TEXT, listen, 0, 0, NULL, "ADDRESS,...",
        "Where compute nodes connect: host:port, rdma://host:port or unix:/path, comma separated"),
    ROW("size", OPTION_U64, size, 16 << 20, 0x1p46, NULL, "BYTES",
        "Size of the pool, as 4G; taken from the system as it is used, but with RDMA or a pool file at once. "
        "Default: that of the pool file if it has one, else 1G"),
    ROW("pool-file", OPTION_TEXT, pool_file, 0, 0, NULL, "FILE",
        "Keep the pool in this file, so that it outlives the process; made if it is not there. Not with "
        "RDMA"),
    ROW("data", OPTION_TEXT, data, 0, 0, NULL, "DIR",
        "Keep the pool in DIR/pool, and what compute nodes log in a journal in DIR, which outlives power; "
        "made if it is not there. Not with RDMA"),
    ROW("durability", OPTION_CHOICE, durability, 0, 0, durabilities, "process|disk-second|disk-always",
        "With --data, what is written outlives: process: the process, without a journal; disk-second: power, "
        "but for the last second; disk-always: power, when it is acknowledged. default: disk-second"),
    ROW("disk-limit", OPTION_U64, disk_limit, 0, 0x1p50, NULL, "BYTES",
        "What the journal may take on the disk; beyond it writes wait, then fail. 0: what the disk has"),
    ROW("threads", OPTION_U32, threads, 1, 64, NULL, "N", "I/O threads"),
    ROW("walk-threads", OPTION_U32, walk_threads, 0, 64, NULL, "N",
        "Threads that go down indexes for compute nodes that have not cached the way (see --walks there); "
        "0: none"),
    ROW("merge-threads", OPTION_U32, merge_threads, 0, 64, NULL, "N",
        "Threads that do nothing but put what compute nodes have logged into its leaves for them (see "
        "--merge-walks there); 0: those that walk do it"),
    ROW("engine", OPTION_CHOICE, engine, 0, 0, engines, "auto|io_uring|epoll",
        "How the threads do their I/O"),
    ROW("secret-file", OPTION_TEXT, secret_file, 0, 0, NULL, "FILE",
        "First line: the secret that compute nodes must prove"),
    ROW("tls-certificate", OPTION_TEXT, certificate, 0, 0, NULL, "FILE",
        "TLS on TCP addresses: this node's certificate (PEM)"),
    ROW("tls-key", OPTION_TEXT, key, 0, 0, NULL, "FILE", "TLS: its private key (PEM)"),
    ROW("tls-authority", OPTION_TEXT, authority, 0, 0, NULL, "FILE",
        "TLS: only clients whose certificates this authority (PEM) signed are let in"),
    ROW("lease-max", OPTION_U32, lease_ms_max, 100, 600000, NULL, "ms",
        "The longest lease a compute node gets"),
    ROW("connections-max", OPTION_U32, connections_max, 8, 1e6, NULL, "N", "Connections at once"),
    ROW("http", OPTION_TEXT, http, 0, 0, NULL, "ADDRESS",
        "Serve /metrics and a status page here; off if empty"),
    ROW("chunk-size", OPTION_U64, chunk, 0, 1 << 30, NULL, "BYTES",
        "Space is accounted, emptied and given back to the system by chunks of this many bytes, a power of "
        "two; 0: by the size of the pool"),
    ROW("lock-bytes", OPTION_U64, locks, 0, 1 << 30, NULL, "BYTES",
        "Size of the lock region; 0: 256K, or what fits the NIC's own memory"),
    ROW("log-bytes", OPTION_U64, logs, 0, 0x1p45, NULL, "BYTES",
        "What the segments of owners' logs may take of the pool, 512K to half of it; 0: a 32nd of it"),
    ROW("lock-width", OPTION_CHOICE, lock_width, 0, 0, lock_widths, "auto|2|8",
        "Bytes of a lock; 8 where NICs cannot take locks of 2, which is what auto asks this node's"),
    ROW("huge-pages", OPTION_BOOL, huge_pages, 0, 0, NULL, NULL,
        "Huge pages for the pool where there are some"),
    ROW("busy-poll", OPTION_BOOL, busy_poll, 0, 0, NULL, NULL, "Never sleep, for lowest latency"),
    ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",
        "debug, info, warning or error; messages go to standard error"),
    ROW("rdma", OPTION_BOOL, rdma, 0, 0, NULL, NULL,
        "Serve the memory through a NIC with RDMA, and in no other way; an address rdma://host:port "
        "says the same"),
    CLUSTER_RDMA_ROWS(struct memory_settings, nic),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "memory",
    .table = table,
    .documentation =
        "Serve a pool of memory to compute nodes.\v"
        "The pool is memory: what it holds is gone when the process ends, unless --pool-file keeps it: then "
        "a "
        "memory node that was killed, or stopped for an upgrade, goes on when it is started again, and "
        "compute "
        "nodes reconnect by themselves. With --data what compute nodes log outlives power too: 'banyan "
        "recover "
        "--data' reads it. A new memory node belongs to no cluster until 'banyan compute "
        "--format' "
        "makes one.\n\n"
        "Every setting is also read from the environment (BANYAN_SIZE) and from a file (--config); the "
        "command "
        "line comes first, then the environment.\n\n"
        "Examples:\n"
        "  banyan memory --listen 127.0.0.1:7100 --size 4G\n"
        "  banyan memory --listen 127.0.0.1:7100 --size 4G --pool-file /dev/shm/banyan.pool\n"
        "  banyan memory --listen 127.0.0.1:7100 --size 4G --data /srv/banyan/0 --durability disk-always\n"
        "  banyan memory --listen unix:/run/banyan/memory.sock,127.0.0.1:7100\n"
        "  banyan memory --listen 0.0.0.0:7100 --tls-certificate node.pem --tls-authority ca.pem\n"
        "  banyan memory --listen rdma://10.0.0.1:7100 --secret-file secret --size 64G --huge-pages\n\n"
        "Exit status: 0 after SIGINT or SIGTERM, 1 when it could not start, 2 when a setting makes no sense.",
};

struct daemon {
    struct memory_settings settings;
    struct cluster_addresses listen, http_address;
    struct verbs_options nic;
    char secret[NET_SECRET_MAX + 1];
    size_t secret_length;
    struct net_tls *tls;
    char pool_path[PATH_MAX]; /* of --data */
    struct disk *directory;   /* NULL: without --data */
    struct memory_node *node;
    struct memoryd_disk *disk; /* NULL: no journal */
    struct memoryd *server;
    struct metrics_memory_source source;
    struct http_page pages[3];
    struct server_password password; /* of the pages: the secret, unless only this machine reaches them */
    struct http *http;
    char address[NET_TEXT_MAX];
};

/* NULL: it does not outlive the process. */
static const char *pool_file(const struct daemon *daemon)
{
    return daemon->settings.data ? daemon->pool_path : daemon->settings.pool_file;
}

static void on_signal(void *context, int number)
{
    const struct daemon *daemon = context;
    const char *file = pool_file(daemon);
    log_info("stopping, as signal %s asks; what this memory node holds %s%s",
             number == SIGINT ? "SIGINT" : "SIGTERM", file ? "stays in " : "is lost", file ? file : "");
    memoryd_stop(daemon->server);
}

static void node_status(void *owner, struct memory_status_reply *status)
{
    memory_node_status(owner, status);
}

/* ---- --data ---- */

static bool wants_journal(const struct memory_settings *settings)
{
    return settings->data && settings->durability != DURABILITY_PROCESS;
}

static int data_check(const struct memory_settings *settings, struct error *error)
{
    if (settings->data && settings->pool_file)
        return error_set(error, BANYAN_EINVAL, "give --data or --pool-file: --data keeps the pool too");
    if (!settings->data && settings->durability != DURABILITY_DEFAULT)
        return error_set(error, BANYAN_EINVAL, "durability %s: give the directory with --data",
                         durabilities[settings->durability]);
    if (!wants_journal(settings) && settings->disk_limit)
        return error_set(error, BANYAN_EINVAL, "disk-limit bounds a journal, and there is none");
    return 0;
}

static int prepare(struct daemon *daemon, struct error *error)
{
    const struct memory_settings *settings = &daemon->settings;
    int status = data_check(settings, error);
    if (!status)
        status = cluster_addresses_parse(&daemon->listen, "listen", settings->listen, 7100, error);
    if (!status)
        status = cluster_rdma_prepare(&daemon->nic, &settings->nic, error);
    if (!status)
        status = cluster_addresses_parse(&daemon->http_address, "http", settings->http, 0, error);
    if (!status && !daemon->listen.count)
        status = error_set(error, BANYAN_EINVAL, "nowhere to listen: give --listen");
    if (!status && daemon->http_address.count > 1)
        status = error_set(error, BANYAN_EINVAL, "http: one address is enough");
    if (!status && settings->secret_file)
        status = net_secret_read(settings->secret_file, daemon->secret, &daemon->secret_length, error);
    if (!status)
        status = cluster_server_tls(&daemon->tls, settings->certificate, settings->key, settings->authority,
                                    settings->authority != NULL, error);
    if (!status)
        status =
            cluster_guard(&daemon->listen, daemon->secret_length || (daemon->tls && settings->authority),
                          "the memory", "give secret-file, or tls-certificate with tls-authority", error);
    if (!status)
        status = cluster_guard(&daemon->http_address, daemon->secret_length, "HTTP",
                               "give secret-file; its secret is then the page's password", error);
    return status;
}

/* A journal that is not gone on with has a gap, over which nothing can be read back; one whose pool is gone
 * is to be read back first. Before a pool is made. */
static int journal_check(const struct daemon *daemon, bool pool_there, struct error *error)
{
    struct manifest manifest;
    const char *path = daemon->settings.data;
    int status = manifest_read(daemon->directory, &manifest, error);
    if (status)
        return status == BANYAN_ENOTFOUND ? 0 : status;
    if (!wants_journal(&daemon->settings))
        status = error_set(error, BANYAN_EINVAL,
                           "%.100s has a journal, which durability process would leave behind: start with "
                           "disk-second or disk-always",
                           path);
    else if (!pool_there)
        status = error_set(error, BANYAN_EINVAL,
                           "%.100s has the journal of memory node %u of cluster %016llx, but no pool: the "
                           "pool was lost. 'banyan recover --data' reads what the journal has; start this "
                           "memory node with another directory",
                           path, (unsigned)manifest.node, (unsigned long long)manifest.cluster);
    manifest_free(&manifest);
    return status;
}

/* The directory is this process's from here on. */
static int data_open(struct daemon *daemon, struct error *error)
{
    const struct memory_settings *settings = &daemon->settings;
    struct disk_real_options options = {.limit = settings->disk_limit, .lock_wait = LOCK_WAIT_NS};
    struct stat pool;
    if (!settings->data)
        return 0;
    if (snprintf(daemon->pool_path, sizeof daemon->pool_path, "%s/pool", settings->data) >=
        (int)sizeof daemon->pool_path)
        return error_set(error, BANYAN_EINVAL, "data: the directory's name is too long");
    const bool pool_there = stat(daemon->pool_path, &pool) == 0;
    if (pool_there && options.limit) /* the pool counts among the files */
        options.limit += (uint64_t)pool.st_size;
    int status = disk_real_open(&daemon->directory, settings->data, &options, error);
    return status ? status : journal_check(daemon, pool_there, error);
}

static int journal_start(struct daemon *daemon, struct error *error)
{
    const struct persist_disk_options options = {.disk = daemon->directory,
                                                 .always = daemon->settings.durability == DURABILITY_ALWAYS};
    return wants_journal(&daemon->settings)
               ? memoryd_disk_create(&daemon->disk, daemon->node, &options, error)
               : 0;
}

/* ---- the daemon ---- */

/* An address that says rdma:// speaks for the memory node: what a NIC serves, nothing else does. */
static bool wants_nic(const struct daemon *daemon)
{
    bool wanted = daemon->settings.rdma;
    for (unsigned i = 0; i < daemon->listen.count; i++)
        wanted |= daemon->listen.list[i].rdma;
    return wanted;
}

/* 0: what the file has. */
static uint64_t pool_bytes(const struct memory_settings *settings)
{
    return settings->size || settings->pool_file || settings->data ? settings->size : MEMORY_POOL_BYTES;
}

static int start(struct daemon *daemon, struct error *error)
{
    const struct memory_settings *settings = &daemon->settings;
    struct memory_options memory = {.pool_bytes = pool_bytes(settings) & ~UINT64_C(4095),
                                    .pool_file = pool_file(daemon),
                                    .chunk_bytes = settings->chunk,
                                    .lock_bytes = settings->locks & ~UINT64_C(7),
                                    .log_bytes = settings->logs,
                                    .lock_width = lock_width_bytes[settings->lock_width],
                                    .huge_pages = settings->huge_pages ? PAGES_HUGE : PAGES_PLAIN,
                                    .shared = pool_file(daemon) == NULL,
                                    .unformatted = true};
    struct memoryd_options options = {.listen = daemon->listen.list,
                                      .listen_count = daemon->listen.count,
                                      .tls = daemon->tls,
                                      .secret = daemon->secret_length ? daemon->secret : NULL,
                                      .secret_length = daemon->secret_length,
                                      .threads = settings->threads,
                                      .walk_threads = settings->walk_threads,
                                      .merge_threads = settings->merge_threads,
                                      .lease_ms_max = settings->lease_ms_max,
                                      .connections_max = settings->connections_max,
                                      .engine = settings->engine,
                                      .busy_poll = settings->busy_poll,
                                      .nic = wants_nic(daemon) ? &daemon->nic : NULL};
    machine_warn_pool(pool_bytes(settings));
    int status = data_open(daemon, error);
    if (!status)
        status = memoryd_locks(&options, &memory, error);
    if (!status)
        status = memory_node_create(&daemon->node, &memory, error);
    if (!status)
        status = journal_start(daemon, error);
    options.disk = daemon->disk;
    if (!status)
        status = memoryd_create(&daemon->server, daemon->node, &options, error);
    return status ? status : memoryd_start(daemon->server, error);
}

static int start_http(struct daemon *daemon, struct error *error)
{
    daemon->source = (struct metrics_memory_source){node_status, daemon->node, daemon->address};
    daemon->pages[0] =
        (struct http_page){"/metrics", "text/plain; version=0.0.4", metrics_memory, &daemon->source};
    daemon->pages[1] =
        (struct http_page){"/", "text/html; charset=utf-8", status_page_memory, &daemon->source};
    struct net_address *address = &daemon->http_address.list[0];
    if (!daemon->http_address.count)
        return 0;
    if (!net_address_loopback(address))
        password_set(&daemon->password, daemon->secret, daemon->secret_length);
    return http_start(&daemon->http, address, daemon->pages, &daemon->password, error);
}

/* One line that people and scripts can wait for: the process serves from now on. */
static void announce(struct daemon *daemon)
{
    printf("banyan memory: %.1f GiB at",
           (double)memory_node_target(daemon->node)->pool_bytes / (double)(1 << 30));
    for (unsigned i = 0; i < daemon->listen.count; i++) {
        if (daemon->listen.list[i].kind == NET_TCP) {
            daemon->listen.list[i].port = memoryd_port(daemon->server, i);
            daemon->listen.list[i].rdma = memoryd_nic(daemon->server) != NULL;
        }
        net_address_format(&daemon->listen.list[i], daemon->address);
        printf("%s %s", i ? "," : "", daemon->address);
    }
    printf(" (%s%s)\n", memoryd_engine(daemon->server), daemon->tls ? ", TLS" : "");
    if (daemon->disk)
        printf("banyan memory: durability %s: the pool lies in %s, the journal beside it\n",
               durabilities[daemon->settings.durability == DURABILITY_ALWAYS ? DURABILITY_ALWAYS
                                                                             : DURABILITY_SECOND],
               pool_file(daemon));
    else if (pool_file(daemon))
        printf("banyan memory: durability process: the pool lies in %s\n", pool_file(daemon));
    if (memoryd_nic(daemon->server))
        printf("banyan memory: RDMA by %s\n", memoryd_nic(daemon->server));
    if (daemon->http) {
        char text[NET_TEXT_MAX];
        net_address_format(&daemon->http_address.list[0], text);
        printf("banyan memory: status page at http://%s/\n", strncmp(text, "tcp://", 6) ? text : text + 6);
    }
    fflush(stdout);
}

static int run(struct daemon *daemon, struct error *error)
{
    struct signals *signals = NULL;
    signals_block();
    int status = prepare(daemon, error);
    if (!status && daemon->http_address.count)
        net_address_format(&daemon->listen.list[0], daemon->address);
    if (!status)
        status = start(daemon, error);
    if (!status)
        status = start_http(daemon, error);
    if (!status) {
        announce(daemon);
        status = signals_start(&signals, &(struct signals_calls){.asked = on_signal}, daemon, error);
        if (status)
            memoryd_stop(daemon->server);
        memoryd_join(daemon->server);
        signals_stop(signals);
    }
    http_stop(daemon->http);
    memoryd_destroy(daemon->server);
    memoryd_disk_destroy(daemon->disk);
    memory_node_destroy(daemon->node);
    disk_close(daemon->directory);
    net_tls_destroy(daemon->tls);
    password_destroy(&daemon->password);
    explicit_bzero(daemon->secret, sizeof daemon->secret);
    return status;
}

int command_memory(int argc, char **argv)
{
    struct error error = {0};
    struct daemon *daemon = calloc(1, sizeof *daemon);
    if (!daemon)
        return COMMAND_FAILED;
    daemon->settings = (struct memory_settings){.listen = strdup("127.0.0.1:7100"),
                                                .threads = 1,
                                                .walk_threads = 1,
                                                .lease_ms_max = 60000,
                                                .connections_max = 4096,
                                                .nic = CLUSTER_RDMA_DEFAULTS,
                                                .log_level = LOG_INFO};
    int status = settings_read(&command, &daemon->settings, argc, argv, NULL, &error);
    log_set_level((enum log_level)daemon->settings.log_level);
    if (!status)
        status = run(daemon, &error);
    option_free(table, &daemon->settings);
    free(daemon);
    return status ? cluster_failed("memory", &error) : COMMAND_OK;
}
