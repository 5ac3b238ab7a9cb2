/* server.c - see server.h: how a memory node's daemon comes to life and ends. */
#include "memoryd/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "memoryd/nic.h"

#define THREADS_MAX 64u

static void copy_options(struct memoryd *server, const struct memoryd_options *options)
{
    server->tls = options->tls;
    if (options->secret != NULL) {
        server->secret_length = options->secret_length;
        memcpy(server->secret, options->secret, options->secret_length);
    }
    server->lease_ms_min = options->lease_ms_min != 0 ? options->lease_ms_min : 100;
    server->lease_ms_max = options->lease_ms_max != 0 ? options->lease_ms_max : 60000;
    server->connections_max = options->connections_max != 0 ? options->connections_max : 4096;
    server->engine = (enum memory_engine)options->engine;
    server->busy_poll = options->busy_poll;
    server->started_at = task_now();
    net_random(&server->instance, sizeof server->instance);
}

static int check_options(const struct memoryd_options *options, struct error *error)
{
    if (options->threads > THREADS_MAX)
        return error_set(error, BANYAN_EINVAL, "memory node: %u I/O threads; at most %u", options->threads,
                         THREADS_MAX);
    if (options->secret != NULL && options->secret_length - 1 >= NET_SECRET_MAX)
        return error_set(error, BANYAN_EINVAL, "memory node: a secret of %zu bytes; 1 to %u",
                         options->secret_length, NET_SECRET_MAX);
    if (options->lease_ms_max != 0 && options->lease_ms_min > options->lease_ms_max)
        return error_set(error, BANYAN_EINVAL, "memory node: leases of at least %u and at most %u ms",
                         options->lease_ms_min, options->lease_ms_max);
    if (options->engine < MEMORY_ENGINE_AUTO || options->engine > MEMORY_ENGINE_EPOLL)
        return error_set(error, BANYAN_EINVAL, "memory node: there is no engine %d", options->engine);
    return BANYAN_OK;
}

static int open_listeners(struct memoryd *server, const struct memoryd_options *options, struct error *error)
{
    for (unsigned i = 0; i < options->listen_count; i++) {
        struct memoryd_listener *listener = &server->listeners[i];
        listener->address = options->listen[i];
        listener->fd = -1;
        int status = net_listen(&listener->address, options->unix_mode, &listener->fd, error);
        if (status)
            return status;
        server->listener_count++;
    }
    return BANYAN_OK;
}

static int make_loops(struct memoryd *server, const struct memoryd_engine *engine, unsigned count,
                      struct error *error)
{
    for (unsigned i = 0; i < count; i++) {
        int status = memoryd_loop_create(&server->loops[i], server, engine, error);
        if (status)
            return status;
        server->loop_count++;
    }
    return BANYAN_OK;
}

static void destroy_loops(struct memoryd *server)
{
    for (unsigned i = 0; i < server->loop_count; i++)
        memoryd_loop_destroy(&server->loops[i]);
    server->loop_count = 0;
}

/* The engine that was asked for, or the best that there is. */
static int choose_engine(struct memoryd *server, unsigned count, struct error *error)
{
    struct error refused = {0};
    if (server->engine == MEMORY_ENGINE_EPOLL)
        return make_loops(server, &memoryd_epoll, count, error);
    int status = make_loops(server, &memoryd_uring, count, &refused);
    if (!status)
        return status;
    destroy_loops(server);
    if (server->engine == MEMORY_ENGINE_IO_URING)
        return error_set(error, refused.code, "%s", refused.text);
    log_info("memory node: epoll instead of io_uring: %s", refused.text);
    return make_loops(server, &memoryd_epoll, count, error);
}

/* ---- the NIC ---- */

/* The address whose NIC serves the memory; NULL: none of TCP. */
static const struct net_address *nic_address(const struct memoryd_options *options)
{
    const struct net_address *first = NULL;
    for (unsigned i = 0; i < options->listen_count; i++) {
        const struct net_address *address = &options->listen[i];
        if (address->kind == NET_TCP && address->rdma)
            return address;
        if (address->kind == NET_TCP && first == NULL)
            first = address;
    }
    return first;
}

static int nic_place(const struct memoryd_options *options, struct sockaddr_storage *place,
                     const struct sockaddr **local, struct error *error)
{
    const struct net_address *address = nic_address(options);
    *local = NULL;
    if (address == NULL)
        return BANYAN_OK;
    *local = (const struct sockaddr *)place;
    return net_address_resolve(address, place, error);
}

int memoryd_locks(const struct memoryd_options *options, struct memory_options *memory, struct error *error)
{
    struct sockaddr_storage place;
    const struct sockaddr *local;
    uint32_t width = 0;
    uint64_t bytes = 0;
    if (options->nic == NULL)
        return BANYAN_OK; /* memory_node_create has its own defaults */
    int status = nic_place(options, &place, &local, error);
    if (!status)
        status = memoryd_nic_locks(options->nic, local, &width, &bytes, error);
    memory->lock_width = memory->lock_width != 0 ? memory->lock_width : width;
    memory->lock_bytes = memory->lock_bytes != 0 ? memory->lock_bytes : bytes;
    return status;
}

static int open_nic(struct memoryd *server, const struct memoryd_options *options, struct error *error)
{
    struct sockaddr_storage place;
    const struct sockaddr *local;
    if (options->nic == NULL)
        return BANYAN_OK;
    int status = nic_place(options, &place, &local, error);
    return !status ? memoryd_nic_create(&server->nic, server->node, options->nic, local, error) : status;
}

const char *memoryd_nic(const struct memoryd *server)
{
    return server->nic != NULL ? memoryd_nic_text(server->nic) : NULL;
}

/* ---- life ---- */

static void register_services(struct memoryd *server)
{
    const uint32_t peers = MEMORY_PEERS_LAST - MEMORY_PEERS + 1;
    memory_node_register(server->node, &memoryd_peers_service, MEMORY_PEERS, peers, server);
    memory_node_register(server->node, &memoryd_staging_service, 0, 0, server);
    server->registered = true;
}

static void unregister_services(struct memoryd *server)
{
    if (!server->registered)
        return;
    memory_node_unregister(server->node, &memoryd_staging_service, server);
    memory_node_unregister(server->node, &memoryd_peers_service, server);
}

int memoryd_create(struct memoryd **made, struct memory_node *node, const struct memoryd_options *options,
                   struct error *error)
{
    *made = NULL;
    int status = check_options(options, error);
    if (status)
        return status;
    struct memoryd *server = calloc(1, sizeof *server);
    unsigned threads = options->threads != 0 ? options->threads : 1;
    if (server != NULL) {
        server->listeners = calloc(options->listen_count + 1, sizeof *server->listeners);
        server->loops = calloc(threads, sizeof *server->loops);
        server->keeper.epoll = server->keeper.wake = -1;
        server->node = node;
        server->target = memory_node_target(node);
    }
    if (server == NULL || server->listeners == NULL || server->loops == NULL) {
        status = error_set(error, BANYAN_ENOMEM, "no memory for a memory node's daemon");
    } else {
        copy_options(server, options);
        memoryd_groups_create(server);
        status = open_listeners(server, options, error);
    }
    if (!status)
        status = open_nic(server, options, error);
    if (!status)
        status = choose_engine(server, threads, error);
    if (!status)
        status = memoryd_keeper_create(server, error);
    if (status) {
        memoryd_destroy(server);
        return status;
    }
    register_services(server);
    *made = server;
    return BANYAN_OK;
}

int memoryd_start(struct memoryd *server, struct error *error)
{
    int status = BANYAN_OK;
    server->started = true;
    for (unsigned i = 0; i < server->loop_count && !status; i++)
        status = thread_start(&server->loops[i].thread, memoryd_loop_main, &server->loops[i], error);
    if (!status)
        status = thread_start(&server->keeper.thread, memoryd_keeper_main, server, error);
    if (status) {
        memoryd_stop(server);
        memoryd_join(server);
        return status;
    }
    for (unsigned i = 0; i < server->listener_count; i++) {
        char text[NET_TEXT_MAX];
        log_info("memory node: listening on %s (%s)", net_address_format(&server->listeners[i].address, text),
                 memoryd_engine(server));
    }
    if (server->nic != NULL)
        log_info("memory node: serves RDMA by %s", memoryd_nic_text(server->nic));
    return BANYAN_OK;
}

void memoryd_stop(struct memoryd *server)
{
    /* release: see memoryd_keeper_main */
    atomic_store_release(&server->stopping, 1u);
    memoryd_keeper_wake(server);
    for (unsigned i = 0; i < server->loop_count; i++)
        memoryd_loop_wake(&server->loops[i]);
}

static void close_listeners(struct memoryd *server)
{
    for (unsigned i = 0; i < server->listener_count; i++) {
        if (server->listeners[i].fd < 0)
            continue;
        close(server->listeners[i].fd);
        if (server->listeners[i].address.kind == NET_UNIX)
            unlink(server->listeners[i].address.path);
        server->listeners[i].fd = -1;
    }
}

void memoryd_join(struct memoryd *server)
{
    if (server->joined || !server->started)
        return;
    thread_join(server->keeper.thread);
    for (unsigned i = 0; i < server->loop_count; i++)
        thread_join(server->loops[i].thread);
    server->joined = true;
    close_listeners(server);
    memoryd_groups_stop(server); /* whoever came while the threads ended */
    memoryd_groups_destroy(server);
}

void memoryd_destroy(struct memoryd *server)
{
    if (server == NULL)
        return;
    if (server->started) {
        memoryd_stop(server);
        memoryd_join(server);
    }
    if (server->listeners != NULL)
        close_listeners(server);
    if (server->loops != NULL)
        destroy_loops(server);
    if (!server->started && server->keeper.epoll >= 0)
        memoryd_groups_destroy(server);
    memoryd_keeper_destroy(server);
    unregister_services(server);
    memoryd_nic_destroy(server->nic);
    memset(server->secret, 0, sizeof server->secret);
    free(server->listeners);
    free(server->loops);
    free(server);
}

uint16_t memoryd_port(const struct memoryd *server, unsigned listener)
{
    return listener < server->listener_count ? server->listeners[listener].address.port : 0;
}

const char *memoryd_engine(const struct memoryd *server)
{
    return server->loops[0].engine->name;
}
