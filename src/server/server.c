/*
 * server.c - the server's creation, start and end; contract in server.h. A server consists of threads
 * (thread.h) with connections (connection.h) and fibers that run their commands (fiber.h), and of listeners
 * (listeners.h).
 */
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/log.h"
#include "pool/pool.h"
#include "server/buffers.h"
#include "server/state.h"
#include "store/cut.h"

#define OUTPUT_MAX    (UINT64_C(256) << 20)
#define CLIENT_MEMORY (UINT64_C(1) << 30)
/* Least limit for the values of commands under way. */
#define VALUES_MEMORY   (4 * STORE_VALUE_MAX)
#define DESCRIPTORS_OWN 64u /* that this process needs beside its clients' */

static void options_complete(struct server_options *options)
{
    if (!options->threads)
        options->threads = cpus_count();
    if (!options->fibers)
        options->fibers = 64;
    if (!options->clients_max)
        options->clients_max = 10000;
    if (!options->value_max)
        options->value_max = STORE_VALUE_MAX;
    if (!options->query_buffer_max)
        options->query_buffer_max = options->value_max + 65536;
    if (options->query_buffer_max < BUFFER_BLOCK_BYTES)
        options->query_buffer_max = BUFFER_BLOCK_BYTES;
    if (!options->output_buffer_max)
        options->output_buffer_max = OUTPUT_MAX;
    if (!options->client_memory_max)
        options->client_memory_max = CLIENT_MEMORY;
    if (!options->sweep_entries)
        options->sweep_entries = 256;
}

/* Raises the limit of open files as far as the system allows: clients need them. */
static void descriptors_raise(uint64_t clients_max)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) || getrlimit(RLIMIT_NOFILE, &limit))
            return;
    }
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < clients_max + DESCRIPTORS_OWN)
        log_warning(
            "the system allows this process %llu open files: too few for %llu clients (see ulimit -n)",
            (unsigned long long)limit.rlim_cur, (unsigned long long)clients_max);
}

/* Before the store's first operation. */
static int ranges_attach(struct server *server, struct error *error)
{
    return owner_process_attach(server->options.owner, store_tree(server->store), error);
}

/* Opens the store with a session of its own, which is not needed afterwards. */
static int store_attach(struct server *server, struct error *error)
{
    struct pool_worker *worker = NULL;
    struct tree_session *session = NULL;
    int status = pool_worker_create(&worker, tree_compute_pool(server->compute), error);
    if (!status)
        status = tree_session_create(&session, server->compute, worker, error);
    if (!status) {
        status = store_open(&server->store, session, SERVER_STORE_NAME, true);
        if (status)
            error_set(error, status, "%s", tree_session_error(session)->text);
        else
            status = ranges_attach(server, error);
        if (!status)
            store_set_memory_max(server->store, server->options.client_memory_max > VALUES_MEMORY
                                                    ? server->options.client_memory_max
                                                    : VALUES_MEMORY);
        if (!status && server->options.cut_memory_max)
            store_set_cut_memory_max(server->store, server->options.cut_memory_max);
    }
    tree_session_destroy(session);
    pool_worker_destroy(worker);
    return status;
}

static int threads_create(struct server *server, struct error *error)
{
    int status =
        server->options.durable ? durable_start(server->options.durable, server->options.threads, error) : 0;
    if (status)
        return status;
    server->threads = calloc(server->options.threads, sizeof *server->threads);
    if (!server->threads)
        return error_set(error, BANYAN_ENOMEM, "no memory for threads");
    for (unsigned i = 0; !status && i < server->options.threads; i++)
        status = server_thread_create(&server->threads[server->threads_made++], server, i, error);
    server->thread_count = server->threads_made;
    return status;
}

static void run_id_make(char text[41])
{
    uint8_t bytes[20];
    net_random(bytes, sizeof bytes);
    for (unsigned i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static int server_fill(struct server *server, struct tree_compute *compute,
                       const struct server_options *options, struct error *error)
{
    static const struct server_command *const tables[] = {server_string_commands, server_bit_commands,
                                                          server_key_commands,    server_range_commands,
                                                          server_admin_commands,  NULL};
    slowlog_init(&server->slowlog);
    server->compute = compute;
    server->fabric = pool_fabric(tree_compute_pool(compute));
    server->options = *options;
    options_complete(&server->options);
    server->tls = options->tls;
    server->node_most = fabric_memory_nodes_most(server->fabric);
    server->clients_max = server->options.clients_max;
    server->value_max = server->options.value_max;
    server_defrag_init(&server->defrag, !server->options.no_defrag);
    server->idle_timeout_s = options->idle_timeout_s;
    server->started_ns = server->sampled_ns = task_now();
    server->started_s = clock_wall_ms() / 1000;
    run_id_make(server->run_id);
    if (options->password && strlen(options->password) > NET_SECRET_MAX)
        return error_set(error, BANYAN_EINVAL, "a password has at most %u bytes", NET_SECRET_MAX);
    if (options->password)
        password_set(&server->password, options->password, strlen(options->password));
    server->nodes = calloc(server->node_most, sizeof *server->nodes);
    server->data = options->data ? strdup(options->data) : NULL;
    if (!server->nodes || (options->data && !server->data))
        return error_set(error, BANYAN_ENOMEM, "no memory for a server");
    descriptors_raise(server->clients_max);
    int status = command_table_create(&server->table, tables, error);
    if (!status)
        status = store_attach(server, error);
    if (!status)
        status = threads_create(server, error);
    return status ? status : listeners_open(server, options, error);
}

int server_create(struct server **out, struct tree_compute *compute, const struct server_options *options,
                  struct error *error)
{
    *out = NULL;
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return error_set(error, BANYAN_ENOMEM, "no memory for a server");
    int status = server_fill(server, compute, options, error);
    if (status)
        server_destroy(server);
    else
        *out = server;
    return status;
}

void server_set_settings(struct server *server, const struct server_setting *settings)
{
    server->settings = settings;
}

static void store_give_up(struct server *server)
{
    struct error error = {0};
    if (!server->store)
        return;
    if (owner_process_detach(server->options.owner, store_tree(server->store), &error))
        log_debug("ranges of index '%s' are left to others: %s", SERVER_STORE_NAME, error.text);
    store_close(server->store);
}

void server_destroy(struct server *server)
{
    if (!server)
        return;
    listeners_close(server);
    for (unsigned i = 0; i < server->threads_made; i++)
        server_thread_destroy(&server->threads[i]);
    free(server->threads);
    store_give_up(server);
    command_table_destroy(server->table);
    slowlog_destroy(&server->slowlog);
    free(server->nodes);
    free(server->data);
    free(server->listeners.list);
    password_destroy(&server->password);
    free(server);
}

struct server_password *server_password(struct server *server)
{
    return &server->password;
}

struct durable *server_durable(const struct server *server)
{
    return server->options.durable;
}

uint16_t server_port(const struct server *server, unsigned i)
{
    return i < server->listeners.count ? server->listeners.list[i].address.port : 0;
}

int server_start(struct server *server, struct error *error)
{
    int status = 0;
    unsigned started = 0;
    server->starter = task_self();
    while (!status && started < server->thread_count) {
        status = thread_start(&server->threads[started].thread, server_thread_main, &server->threads[started],
                              error);
        started += !status;
    }
    if (status) { /* the threads that have started must not wait for others */
        server->thread_count = started;
        server_stop(server);
    }
    /* Acquire: pairs with start_report. */
    while (atomic_load_acquire(&server->started_threads) < started)
        task_park();
    if (!status && server->start_error.code)
        status = error_set(error, server->start_error.code, "%s", server->start_error.text);
    if (status) {
        server_stop(server);
        server_join(server);
    }
    return status;
}

static void refuse(void *argument)
{
    struct server_thread *thread = argument;
    listeners_close(thread->server);
}

void server_refuse(struct server *server)
{
    worker_post(server->threads[0].worker, refuse,
                &server->threads[0]); /* without memory clients still come */
}

void server_stop(struct server *server)
{
    /* Release: a thread that sees it sees what the caller did before. */
    if (__atomic_exchange_n(&server->stopping, 1u, __ATOMIC_ACQ_REL))
        return;
    if (server->options.durable)
        durable_end(server->options.durable);
    for (unsigned i = 0; i < server->thread_count;
         i++) /* without memory for it, the next tick sees `stopping` */
        worker_post(server->threads[i].worker, server_thread_stop, &server->threads[i]);
}

void server_join(struct server *server)
{
    for (unsigned i = 0; i < server->thread_count; i++) {
        if (server->threads[i].thread)
            thread_join(server->threads[i].thread);
        server->threads[i].thread = NULL;
    }
}
