/*
 * serve.c - `banyan serve` and `banyan compute`: a RESP server, over memory nodes in this very process, or
 * over those of a cluster. The two share all settings of the server.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cpus.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/task.h"
#include "cli/command.h"
#include "cli/data_directory.h"
#include "cli/machine.h"
#include "cli/serve_owner.h"
#include "cli/serve_saver.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "pool/pool.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/status_page.h"

#define TRIM_BYTES       (UINT64_C(16) << 20) /* of each pool, ten times a second */
#define DISK_LIMIT_LEAST (UINT64_C(64) << 20)
#define EMBEDDED_ID      1u /* the process is its own pool's only compute node */

_Static_assert(SERVE_NODES_MAX == DATA_NODES_MAX, "as many in files as in memory");

struct process {
    struct serve_settings settings;
    const struct settings_command *command;
    struct cluster_addresses listen, tls_listen, http_address;
    char password[NET_SECRET_MAX + 1];
    size_t password_length;
    struct net_tls *tls;
    struct memory_node *nodes[SERVE_NODES_MAX]; /* without a data directory */
    struct data_directory data;
    struct durable *durable;   /* level disk; else NULL */
    struct serve_saver *saver; /* of a cluster whose memory nodes keep journals; else NULL */
    struct store *durable_store;
    bool load; /* the pools are new, and are filled from the disk */
    bool terminal;
    struct cluster_fabric cluster;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct serve_owner owner;
    struct server *server;
    struct server_setting *shown; /* of the table, for CONFIG GET */
    struct process_setting {
        const struct option_entry *entry;
        const void *object;
    } * shown_contexts;
    struct http_page pages[3];
    struct http *http;
};

/* ---- getting ready ---- */

/* The memory nodes are this process's own. */
static bool embedded(const struct process *process)
{
    return process->command == &serve_settings_serve;
}

/* The pools lie in files. */
static bool kept(const struct process *process)
{
    return process->settings.data && process->settings.data[0];
}

/* A port that no address uses is a mistake of the user's, who expects that it counts. */
static int parse_listen(struct process *process, struct error *error)
{
    const struct serve_settings *settings = &process->settings;
    const uint16_t port = (uint16_t)settings->port, other = port == 1 ? 2 : 1;
    struct cluster_addresses again;
    int status = cluster_addresses_parse(&process->listen, "listen", settings->listen, other, error);
    again = process->listen;
    if (!status)
        status = cluster_addresses_parse(&process->listen, "listen", settings->listen, port, error);
    if (!status)
        status =
            cluster_addresses_parse(&process->tls_listen, "tls-listen", settings->tls_listen, 6379, error);
    bool used = port == SERVE_PORT || !process->listen.count;
    for (unsigned i = 0; !status && i < process->listen.count; i++)
        used |= process->listen.list[i].port != again.list[i].port;
    if (!status && !used)
        status = error_set(error, BANYAN_EINVAL,
                           "port: each address of listen has a port of its own, so this one counts nowhere");
    return status;
}

/* Each thread stages its writes in a place of its own, and there are only so many. */
static int limit_threads(struct process *process, struct error *error)
{
    struct serve_settings *settings = &process->settings;
    if (!kept(process))
        return 0;
    if (!settings->threads)
        settings->threads = cpus_count() < DATA_THREADS_MAX ? 0 : DATA_THREADS_MAX;
    if (settings->threads <= DATA_THREADS_MAX)
        return 0;
    return error_set(error, BANYAN_EINVAL, "threads: with --data at most %u", DATA_THREADS_MAX);
}

/* Where the pools' files are. */
static const char *pools_path(const struct process *process)
{
    const char *pools = process->settings.pools;
    return pools && pools[0] ? pools : process->settings.data;
}

/* Where journal and checkpoints are. */
static void disk_directory(const struct process *process, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/" DATA_DISK, process->settings.data);
}

static bool on_disk(const struct process *process)
{
    return process->settings.durability >= SERVE_DISK_SECOND;
}

static int choose_durability(struct process *process, struct error *error)
{
    struct serve_settings *settings = &process->settings;
    if (settings->durability == SERVE_AUTO)
        settings->durability = kept(process) ? SERVE_DISK_SECOND : SERVE_MEMORY;
    if (settings->durability > SERVE_MEMORY && !kept(process))
        return error_set(error, BANYAN_EINVAL, "durability: this level needs a directory: give --data DIR");
    if (settings->pools && settings->pools[0] && !kept(process))
        return error_set(error, BANYAN_EINVAL, "pools: only with --data DIR");
    if (settings->durability == SERVE_MEMORY && kept(process))
        return error_set(
            error, BANYAN_EINVAL,
            "durability: with --data at least level process is kept; leave --data out for memory");
    if (settings->disk_limit && (!on_disk(process) || settings->disk_limit < DISK_LIMIT_LEAST))
        return error_set(error, BANYAN_EINVAL,
                         "disk-limit: at least 64M, and with a durability of disk-second or disk-always");
    return 0;
}

static int prepare(struct process *process, struct error *error)
{
    const struct serve_settings *settings = &process->settings;
    int status = parse_listen(process, error);
    if (!status)
        status = choose_durability(process, error);
    if (!status)
        status = limit_threads(process, error);
    if (!status && embedded(process) && settings->log == SERVE_LOG_AUTO)
        status = error_set(error, BANYAN_EINVAL,
                           "log: the pool is this process's own memory, so a log would save no round trip, "
                           "and would end with it; give none (banyan compute can keep one)");
    if (!status)
        status = cluster_addresses_parse(&process->http_address, "http", settings->http, 0, error);
    if (!status && !process->listen.count && !process->tls_listen.count)
        status = error_set(error, BANYAN_EINVAL, "nowhere to listen: give --listen or --tls-listen");
    if (!status && process->http_address.count > 1)
        status = error_set(error, BANYAN_EINVAL, "http: one address is enough");
    if (!status && settings->password_file)
        status =
            net_secret_read(settings->password_file, process->password, &process->password_length, error);
    if (!status && process->tls_listen.count && !settings->certificate)
        status = error_set(error, BANYAN_EINVAL, "tls-listen needs tls-certificate");
    if (!status)
        status = cluster_server_tls(&process->tls, settings->certificate, settings->key, settings->authority,
                                    settings->tls_clients, error);
    return status;
}

static int guard(const struct process *process, struct error *error)
{
    bool password = process->password_length,
         clients = process->settings.tls_clients && process->settings.authority;
    const char *remedy =
        "give password-file, or serve clients with certificates by tls-listen and tls-clients";
    int status = cluster_guard(&process->listen, password, "the server", remedy, error);
    if (!status)
        status = cluster_guard(&process->tls_listen, password || clients, "the server", remedy, error);
    if (!status)
        status = cluster_guard(&process->http_address, password, "HTTP",
                               "give password-file; its password is then the page's", error);
    return status;
}

/* ---- the fabric ---- */

/* Opens the directory on the disk, and sees whether the pools hold all that it has. */
static int open_disk(struct process *process, struct data_wishes *wishes, struct error *error)
{
    const struct serve_settings *settings = &process->settings;
    const struct durable_options options = {.always = settings->durability == SERVE_DISK_ALWAYS,
                                            .limit_bytes = settings->disk_limit};
    struct durable_shape shape;
    char path[PATH_MAX];
    int status = data_directory_make(settings->data, error);
    if (status)
        return status;
    disk_directory(process, path);
    status = durable_open(&process->durable, path, &options, error);
    if (status || !durable_cluster(process->durable))
        return status;
    process->load = durable_loading(process->durable) || data_directory_lost(pools_path(process));
    wishes->cluster = durable_cluster(process->durable);
    wishes->anew = process->load;
    if (process->load && durable_shape(process->durable, &shape)) {
        wishes->pool_bytes = wishes->pool_bytes ? wishes->pool_bytes : shape.pool_bytes;
        wishes->memory_nodes = wishes->memory_nodes ? wishes->memory_nodes : shape.memory_nodes;
    }
    return process->load ? durable_load_begin(process->durable, error) : 0;
}

/* At level process the disk is told nothing: what it holds gets old. */
static int disown_disk(const struct process *process, struct error *error)
{
    char path[PATH_MAX];
    disk_directory(process, path);
    if (access(path, F_OK))
        return 0;
    if (data_directory_lost(pools_path(process)))
        return error_set(error, BANYAN_EINVAL,
                         "data directory %s: the pools are lost, and what they held is in %s: start with "
                         "--durability disk-second or disk-always",
                         process->settings.data, path);
    log_warning(
        "what is changed at level process is not in %s: a start with a disk level brings that up to date",
        path);
    return durable_disown(path, error);
}

static int open_kept(struct process *process, struct error *error)
{
    struct serve_settings *settings = &process->settings;
    struct data_wishes wishes = {.memory_nodes = settings->memory_nodes,
                                 .pool_bytes = settings->size & ~UINT64_C(4095),
                                 .log_bytes = settings->log_bytes,
                                 .huge_pages = settings->huge_pages == PAGES_HUGE};
    struct data_directory *data = &process->data;
    int status = on_disk(process) ? open_disk(process, &wishes, error) : disown_disk(process, error);
    if (!status)
        status = data_directory_open(data, pools_path(process), &wishes, error);
    if (status)
        return status;
    settings->memory_nodes = data->count; /* for CONFIG GET */
    settings->size = data->targets[0]->pool_bytes;
    process->fabric = fabric_local_create(data->targets, (uint16_t)data->count, EMBEDDED_ID, error);
    return process->fabric ? 0 : error->code;
}

static int open_embedded(struct process *process, struct error *error)
{
    const struct fabric_target *targets[SERVE_NODES_MAX];
    if (kept(process))
        return open_kept(process, error);
    if (!process->settings.memory_nodes)
        process->settings.memory_nodes = 1;
    if (!process->settings.size)
        process->settings.size = MEMORY_POOL_BYTES;
    uint32_t count = process->settings.memory_nodes;
    machine_warn_pool(process->settings.size * count);
    for (uint32_t i = 0; i < count; i++) {
        struct memory_options options = {.node = (uint16_t)i,
                                         .pool_bytes = process->settings.size & ~UINT64_C(4095),
                                         .log_bytes = process->settings.log_bytes,
                                         .huge_pages = (enum pages_huge)process->settings.huge_pages};
        int status = memory_node_create(&process->nodes[i], &options, error);
        if (status)
            return status;
        targets[i] = memory_node_target(process->nodes[i]);
    }
    process->fabric = fabric_local_create(targets, (uint16_t)count, EMBEDDED_ID, error);
    return process->fabric ? 0 : error->code;
}

static int open_cluster(struct process *process, struct error *error)
{
    int status = cluster_fabric_prepare(&process->cluster, &process->settings.fabric, error);
    process->cluster.options.read_lease_ms = process->settings.read_lease_ms;
    if (!status)
        status = cluster_peers_prepare(&process->cluster, &process->settings.fabric, process->settings.peers,
                                       &process->owner.mute, error);
    if (!status && process->settings.format)
        status = fabric_remote_format(&process->cluster.options, error);
    return status ? status : fabric_remote_open(&process->fabric, &process->cluster.options, error);
}

/* Pools that are kept have a catalogue, unless the first start ended before it wrote one. */
static int write_kept_catalogue(struct process *process, struct tree_session *session)
{
    bool formatted = false;
    int status = tree_formatted(session, &formatted);
    if (status || formatted)
        return status;
    if (process->data.used)
        return pool_fail(tree_session_pool(session), BANYAN_ECORRUPT,
                         "data directory %s is damaged: there are data in its pools, and no catalogue in "
                         "pool-0; nothing is changed",
                         process->settings.data);
    return tree_format(session);
}

/* Calls the function with a session of its own, which is not needed afterwards. */
static int with_session(struct process *process,
                        int (*function)(struct process *process, struct tree_session *session),
                        struct error *error)
{
    struct pool_worker *worker = NULL;
    struct tree_session *session = NULL;
    int status = pool_worker_create(&worker, tree_compute_pool(process->compute), error);
    if (!status)
        status = tree_session_create(&session, process->compute, worker, error);
    if (!status) {
        status = function(process, session);
        if (status)
            *error = *tree_session_error(session);
    }
    tree_session_destroy(session);
    pool_worker_destroy(worker);
    return status;
}

/* Writes an empty catalogue: to a fresh pool. */
static int write_catalogue(struct process *process, struct tree_session *session)
{
    return kept(process) ? write_kept_catalogue(process, session) : tree_format(session);
}

/* The keeper's own handle of the store. */
static int open_durable_store(struct process *process, struct tree_session *session)
{
    return store_open(&process->durable_store, session, SERVER_STORE_NAME, true);
}

static void tell_loading(void *context, const struct recovery_progress *progress)
{
    const struct process *process = context;
    if (process->terminal)
        fprintf(stderr, "\r\033[Kloading: %llu keys (the checkpoint has %llu)",
                (unsigned long long)progress->keys, (unsigned long long)progress->of);
}

/* Attaches the pools to the disk, and fills them from it if they are new. */
static int attach_disk(struct process *process, struct error *error)
{
    const uint64_t begun = task_now();
    uint64_t keys = 0;
    int status = with_session(process, open_durable_store, error);
    const struct durable_pools pools = {
        .cluster = process->data.cluster,
        .compute = process->compute,
        .store = process->durable_store,
        .load = process->load,
        .fresh = !process->load && !process->data.used,
        .shape = {.memory_nodes = process->data.count, .pool_bytes = process->settings.size},
        .threads = cpus_count(),
        .progress = tell_loading,
        .context = process};
    if (!status && process->load)
        log_info(
            "data directory %s: the pools are made anew from the checkpoint and the journal in %s/" DATA_DISK,
            process->settings.data, process->settings.data);
    if (!status)
        status = durable_attach(process->durable, &pools, &keys, error);
    if (process->load && process->terminal)
        fprintf(stderr, "\r\033[K");
    if (!status && process->load)
        log_info("%llu keys were loaded in %.1f s", (unsigned long long)keys,
                 (double)(task_now() - begun) / 1e9);
    return status;
}

static int open_pool(struct process *process, struct error *error)
{
    struct tree_switches switches = {0};
    machine_warn_threads(process->settings.threads);
    int status = embedded(process) ? open_embedded(process, error) : open_cluster(process, error);
    if (!status)
        status = tree_switches_preset(&switches, "banyan", error);
    switches.cache_bytes = process->settings.cache_bytes;
    switches.cache_policy = process->settings.cache_policy;
    switches.admission = process->settings.admission;
    switches.walks = process->settings.walks;
    switches.merge_walks = process->settings.merge_walks;
    switches.exchange_walks = process->settings.exchange_walks;
    if (embedded(process) && process->settings.own == SERVE_OWN_AUTO)
        switches.ownership = TREE_OWNERSHIP_ALL;
    if (!status)
        status = tree_compute_create(&process->compute, process->fabric, &switches, error);
    if (!status && (embedded(process) || process->settings.format))
        status = with_session(process, write_catalogue, error);
    if (!status && process->durable)
        status = attach_disk(process, error);
    if (!status && !embedded(process))
        status = serve_owner_open(&process->owner, process->compute, &process->settings, error);
    return status;
}

/* ---- the server ---- */

static void setting_get(void *context, char *text, size_t size)
{
    const struct process_setting *setting = context;
    option_format(setting->entry, setting->object, text, size);
}

/* CONFIG GET shows every setting; none of them holds a secret, only files that do. */
static int show_settings(struct process *process, struct error *error)
{
    unsigned count = 0;
    while (process->command->table[count].kind != OPTION_END)
        count++;
    process->shown = calloc(count + 1, sizeof *process->shown);
    process->shown_contexts = calloc(count + 1, sizeof *process->shown_contexts);
    if (!process->shown || !process->shown_contexts)
        return error_set(error, BANYAN_ENOMEM, "no memory for the settings");
    for (unsigned i = 0; i < count; i++) {
        process->shown_contexts[i] =
            (struct process_setting){&process->command->table[i], &process->settings};
        process->shown[i] = (struct server_setting){.name = process->command->table[i].name,
                                                    .get = setting_get,
                                                    .context = &process->shown_contexts[i]};
    }
    server_set_settings(process->server, process->shown);
    return 0;
}

/* Memory that pools in this process have not used for a while goes back to the system, some milliseconds'
 * worth at a time. */
static void tick(void *context)
{
    struct process *process = context;
    serve_owner_tick(&process->owner);
    struct memory_node *const *nodes = kept(process) ? process->data.nodes : process->nodes;
    for (unsigned i = 0; i < SERVE_NODES_MAX && nodes[i]; i++)
        memory_node_trim(nodes[i], task_now(), TRIM_BYTES);
}

static int start_server(struct process *process, struct error *error)
{
    const struct serve_settings *settings = &process->settings;
    struct server_options options = {
        .listen = process->listen.list,
        .listen_count = process->listen.count,
        .listen_tls = process->tls_listen.list,
        .listen_tls_count = process->tls_listen.count,
        .tls = process->tls,
        .tls_clients = settings->tls_clients && settings->authority,
        .password = process->password_length ? process->password : NULL,
        .protected_mode = settings->protected_mode,
        .threads = settings->threads,
        .fibers = settings->fibers,
        .clients_max = settings->clients_max,
        .value_max = settings->value_max,
        .output_buffer_max = settings->output_max,
        .client_memory_max = settings->client_memory_max,
        .cut_memory_max = settings->cut_memory_max,
        .idle_timeout_s = settings->idle_timeout_s,
        .sweep_entries = settings->sweep_entries,
        .no_defrag = !settings->defrag,
        .busy_poll = settings->busy_poll,
        .owner = process->owner.process,
        .data = kept(process) ? process->settings.data : NULL,
        .durable = process->durable,
        .alone = embedded(process),
        .owns_all = embedded(process) && settings->own == SERVE_OWN_AUTO,
        .tick = tick,
        .tick_context = process,
    };
    if (process->saver)
        options.saver = (struct server_saver){serve_saver_begin, serve_saver_look, process->saver};
    int status = server_create(&process->server, process->compute, &options, error);
    if (!status)
        status = show_settings(process, error);
    return status ? status : server_start(process->server, error);
}

static int start_http(struct process *process, struct error *error)
{
    if (!process->http_address.count)
        return 0;
    process->pages[0] =
        (struct http_page){"/metrics", "text/plain; version=0.0.4", metrics_compute, process->server};
    process->pages[1] =
        (struct http_page){"/", "text/html; charset=utf-8", status_page_compute, process->server};
    struct net_address *address = &process->http_address.list[0];
    return http_start(&process->http, address, process->pages, server_password(process->server), error);
}

/* One line that people and scripts can wait for: the process serves from now on. */
static void announce(struct process *process)
{
    const char *name = process->command->name;
    char text[NET_TEXT_MAX];
    printf("banyan %s: serving Redis clients at", name);
    for (unsigned i = 0; i < process->listen.count + process->tls_listen.count; i++) {
        bool tls = i >= process->listen.count;
        struct net_address *address =
            tls ? &process->tls_listen.list[i - process->listen.count] : &process->listen.list[i];
        if (address->kind == NET_TCP)
            address->port = server_port(process->server, i);
        printf("%s %s%s", i ? "," : "", net_address_format(address, text), tls ? " (TLS)" : "");
    }
    const struct fabric_capabilities *capabilities = fabric_capabilities(process->fabric);
    const unsigned memory_nodes = fabric_memory_nodes(process->fabric); /* one may join at any time */
    printf("; fabric %s, %u memory node%s", capabilities->backend, memory_nodes,
           memory_nodes == 1 ? "" : "s");
    if (kept(process))
        printf("; data in %s, durability %s\n", process->settings.data,
               !on_disk(process)                                   ? "process"
               : process->settings.durability == SERVE_DISK_ALWAYS ? "disk-always"
                                                                   : "disk-second");
    else
        printf("%s\n", embedded(process) ? "; data end with this process (--data DIR keeps them)" : "");
    if (process->http) {
        net_address_format(&process->http_address.list[0], text);
        printf("banyan %s: status page at http://%s/\n", name, strncmp(text, "tcp://", 6) ? text : text + 6);
    }
    fflush(stdout);
}

static void on_signal(void *context, int number)
{
    struct process *process = context;
    log_info("stopping, as signal %s asks", number == SIGINT ? "SIGINT" : "SIGTERM");
    serve_owner_leave(&process->owner, process->server);
}

/* What keeps the process, where it is the disk. */
static void on_late(void *context, uint64_t waited_ns)
{
    const struct process *process = context;
    const uint64_t waits = process->durable ? durable_waits(process->durable) : 0;
    if (waits)
        log_warning(
            "still stopping, for %llu s: the disk of %s has not answered for %llu s. What was changed "
            "last is in the pools, and not safe from a loss of power yet. A second signal ends the "
            "process at once; the next start tells the disk",
            (unsigned long long)(waited_ns / 1000000000), process->settings.data,
            (unsigned long long)(waits / 1000000000));
}

static const struct signals_calls signals_calls = {.asked = on_signal, .late = on_late};

/* Says what has become of the data. */
static void tell_end(const struct process *process)
{
    struct server_stats stats;
    server_stats(process->server, &stats);
    if (process->command != &serve_settings_serve)
        log_info("stopped: all clients are closed; the memory nodes keep the data");
    else if (kept(process))
        log_info("stopped: all clients are closed; what the store holds stays in %s", process->settings.data);
    else if (stats.keys_age_s == UINT64_MAX)
        log_info(
            "stopped: all clients are closed; what the store held is gone, as it was this process's memory");
    else
        log_info("stopped: all clients are closed; what the store held (%llu keys when last counted) is "
                 "gone, as it was this process's memory",
                 (unsigned long long)stats.keys);
}

static void close_all(struct process *process)
{
    http_stop(process->http);
    server_destroy(process->server);
    serve_saver_destroy(process->saver);
    serve_owner_close(&process->owner);
    durable_close(process->durable);
    store_close(process->durable_store);
    if (process->compute)
        tree_compute_destroy(process->compute);
    fabric_close(process->fabric);
    cluster_fabric_close(&process->cluster);
    for (unsigned i = 0; i < SERVE_NODES_MAX; i++)
        memory_node_destroy(process->nodes[i]);
    data_directory_close(&process->data);
    net_tls_destroy(process->tls);
    free(process->shown);
    free(process->shown_contexts);
    explicit_bzero(process->password, sizeof process->password);
}

static void stop_disk(const struct process *process)
{
    struct error error = {0};
    if (process->durable && durable_stop(process->durable, &error))
        log_error("%s: the last changes may not be on the disk: %s. They are in the pools, and the next "
                  "start tells the disk",
                  process->settings.data, error.text);
}

static int run(struct process *process, struct error *error)
{
    struct signals *signals = NULL;
    signals_block();
    process->terminal = isatty(STDERR_FILENO);
    int status = prepare(process, error);
    if (!status)
        status = guard(process, error);
    if (!status)
        status = open_pool(process, error);
    if (!status && !embedded(process))
        status = serve_saver_start(&process->saver, process->compute, &process->settings, error);
    if (!status)
        status = start_server(process, error);
    if (!status)
        status = start_http(process, error);
    if (!status) {
        serve_owner_start(&process->owner, process->server);
        announce(process);
        status = signals_start(&signals, &signals_calls, process, error);
    }
    if (process->server) {
        if (status)
            server_stop(process->server);
        server_join(process->server);
        serve_saver_stop(process->saver);
        serve_owner_end(&process->owner);
        stop_disk(process);
        if (!status)
            tell_end(process);
    }
    signals_stop(signals);
    close_all(process);
    return status;
}

static int command_run(const struct settings_command *command, int argc, char **argv)
{
    struct error error = {0};
    struct process *process = calloc(1, sizeof *process);
    if (!process)
        return COMMAND_FAILED;
    process->command = command;
    serve_settings_default(&process->settings);
    int status = settings_read(command, &process->settings, argc, argv, NULL, &error);
    log_set_level((enum log_level)process->settings.log_level);
    if (!status)
        status = run(process, &error);
    option_free(command->table, &process->settings);
    free(process);
    return status ? cluster_failed(command->name, &error) : COMMAND_OK;
}

int command_serve(int argc, char **argv)
{
    return command_run(&serve_settings_serve, argc, argv);
}

int command_compute(int argc, char **argv)
{
    return command_run(&serve_settings_compute, argc, argv);
}
