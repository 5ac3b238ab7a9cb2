/* memory.c - `banyan memory`: one memory node as a daemon. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/signals.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/machine.h"
#include "memoryd/memoryd.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/status_page.h"

struct memory_settings {
    char *listen, *secret_file, *certificate, *key, *authority, *http, *pool_file;
    uint64_t size, chunk, locks, logs;
    uint32_t threads, lease_ms_max, connections_max;
    int engine, log_level, lock_width;
    bool huge_pages, busy_poll, rdma;
    struct cluster_rdma_settings nic;
};

static const char *const engines[] = {"auto", "io_uring", "epoll", NULL};
static const char *const lock_widths[] = {"auto", "2", "8", NULL};
static const uint32_t lock_width_bytes[] = {0, 2, 8};

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
    ROW("threads", OPTION_U32, threads, 1, 64, NULL, "N", "I/O threads"),
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
        "nodes reconnect by themselves. A new memory node belongs to no cluster until 'banyan compute "
        "--format' "
        "makes one.\n\n"
        "Every setting is also read from the environment (BANYAN_SIZE) and from a file (--config); the "
        "command "
        "line comes first, then the environment.\n\n"
        "Examples:\n"
        "  banyan memory --listen 127.0.0.1:7100 --size 4G\n"
        "  banyan memory --listen 127.0.0.1:7100 --size 4G --pool-file /dev/shm/banyan.pool\n"
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
    struct memory_node *node;
    struct memoryd *server;
    struct metrics_memory_source source;
    struct http_page pages[3];
    struct server_password password; /* of the pages: the secret, unless only this machine reaches them */
    struct http *http;
    char address[NET_TEXT_MAX];
};

static void on_signal(void *context, int number)
{
    const struct daemon *daemon = context;
    log_info("stopping, as signal %s asks; what this memory node holds %s%s",
             number == SIGINT ? "SIGINT" : "SIGTERM", daemon->settings.pool_file ? "stays in " : "is lost",
             daemon->settings.pool_file ? daemon->settings.pool_file : "");
    memoryd_stop(daemon->server);
}

static void node_status(void *owner, struct memory_status_reply *status)
{
    memory_node_status(owner, status);
}

static int prepare(struct daemon *daemon, struct error *error)
{
    const struct memory_settings *settings = &daemon->settings;
    int status = cluster_addresses_parse(&daemon->listen, "listen", settings->listen, 7100, error);
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
    return settings->size || settings->pool_file ? settings->size : MEMORY_POOL_BYTES;
}

static int start(struct daemon *daemon, struct error *error)
{
    const struct memory_settings *settings = &daemon->settings;
    struct memory_options memory = {.pool_bytes = pool_bytes(settings) & ~UINT64_C(4095),
                                    .pool_file = settings->pool_file,
                                    .chunk_bytes = settings->chunk,
                                    .lock_bytes = settings->locks & ~UINT64_C(7),
                                    .log_bytes = settings->logs,
                                    .lock_width = lock_width_bytes[settings->lock_width],
                                    .huge_pages = settings->huge_pages,
                                    .shared = settings->pool_file == NULL,
                                    .unformatted = true};
    struct memoryd_options options = {.listen = daemon->listen.list,
                                      .listen_count = daemon->listen.count,
                                      .tls = daemon->tls,
                                      .secret = daemon->secret_length ? daemon->secret : NULL,
                                      .secret_length = daemon->secret_length,
                                      .threads = settings->threads,
                                      .lease_ms_max = settings->lease_ms_max,
                                      .connections_max = settings->connections_max,
                                      .engine = settings->engine,
                                      .busy_poll = settings->busy_poll,
                                      .nic = wants_nic(daemon) ? &daemon->nic : NULL};
    machine_warn_pool(pool_bytes(settings));
    int status = memoryd_locks(&options, &memory, error);
    if (!status)
        status = memory_node_create(&daemon->node, &memory, error);
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
    if (daemon->settings.pool_file)
        printf("banyan memory: durability process: the pool lies in %s\n", daemon->settings.pool_file);
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
        status = signals_start(&signals, on_signal, daemon, error);
        if (status)
            memoryd_stop(daemon->server);
        memoryd_join(daemon->server);
        signals_stop(signals);
    }
    http_stop(daemon->http);
    memoryd_destroy(daemon->server);
    memory_node_destroy(daemon->node);
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
