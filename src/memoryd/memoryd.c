/* memoryd.c - see memoryd.h: how a memory node's daemon is made, started, stopped and destroyed. */
#include "memoryd/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "memoryd/disk.h"
#include "memoryd/nic.h"
#include "memoryd/walks.h"

#define THREADS_MAX 64u
_Static_assert(THREADS_MAX <= MEMORY_STAGINGS, "each I/O thread has a staging area");

static void copy_options(struct memoryd *daemon, const struct memoryd_options *options)
{
    daemon->tls = options->tls;
    daemon->disk = options->disk;
    if (options->secret != NULL) {
        daemon->secret_length = options->secret_length;
        memcpy(daemon->secret, options->secret, options->secret_length);
    }
    daemon->lease_ms_min = options->lease_ms_min != 0 ? options->lease_ms_min : 100;
    daemon->lease_ms_max = options->lease_ms_max != 0 ? options->lease_ms_max : 60000;
    daemon->connections_max = options->connections_max != 0 ? options->connections_max : 4096;
    daemon->engine = (enum memory_engine)options->engine;
    daemon->busy_poll = options->busy_poll;
    daemon->started_at = task_now();
    daemon->instance = memory_node_instance(daemon->node);
    while (daemon->instance == 0)
        net_random(&daemon->instance, sizeof daemon->instance);
}

static int check_options(const struct memoryd_options *options, struct error *error)
{
    if (options->threads > THREADS_MAX)
        return error_set(error, BANYAN_EINVAL, "memory node: %u I/O threads; at most %u", options->threads,
                         THREADS_MAX);
    if (options->walk_threads > MEMORYD_WALK_THREADS_MAX)
        return error_set(error, BANYAN_EINVAL, "memory node: %u threads that walk; at most %u",
                         options->walk_threads, MEMORYD_WALK_THREADS_MAX);
    if (options->merge_threads > MEMORYD_WALK_THREADS_MAX)
        return error_set(error, BANYAN_EINVAL, "memory node: %u threads that merge; at most %u",
                         options->merge_threads, MEMORYD_WALK_THREADS_MAX);
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

static int open_listeners(struct memoryd *daemon, const struct memoryd_options *options, struct error *error)
{
    for (unsigned i = 0; i < options->listen_count; i++) {
        struct memoryd_listener *listener = &daemon->listeners[i];
        listener->address = options->listen[i];
        listener->fd = -1;
        int status = net_listen(&listener->address, options->unix_mode, &listener->fd, error);
        if (status)
            return status;
        daemon->listener_count++;
    }
    return BANYAN_OK;
}

static int make_loops(struct memoryd *daemon, const struct memoryd_engine *engine, unsigned count,
                      struct error *error)
{
    for (unsigned i = 0; i < count; i++) {
        int status = memoryd_loop_create(&daemon->loops[i], daemon, engine, error);
        if (status)
            return status;
        daemon->loops[i].staged = memory_node_staging(daemon->node, i);
        daemon->loop_count++;
    }
    return BANYAN_OK;
}

static void destroy_loops(struct memoryd *daemon)
{
    for (unsigned i = 0; i < daemon->loop_count; i++)
        memoryd_loop_destroy(&daemon->loops[i]);
    daemon->loop_count = 0;
}

/* The engine that was asked for; else io_uring, or epoll where the kernel refuses io_uring. */
static int choose_engine(struct memoryd *daemon, unsigned count, struct error *error)
{
    struct error refused = {0};
    if (daemon->engine == MEMORY_ENGINE_EPOLL)
        return make_loops(daemon, &memoryd_epoll, count, error);
    int status = make_loops(daemon, &memoryd_uring, count, &refused);
    if (!status)
        return status;
    destroy_loops(daemon);
    if (daemon->engine == MEMORY_ENGINE_IO_URING)
        return error_set(error, refused.code, "%s", refused.text);
    log_info("memory node: epoll instead of io_uring: %s", refused.text);
    return make_loops(daemon, &memoryd_epoll, count, error);
}

/* ---- the NIC ---- */

/* The address whose NIC serves the memory; NULL: none of the addresses is of TCP. */
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

static int open_nic(struct memoryd *daemon, const struct memoryd_options *options, struct error *error)
{
    struct sockaddr_storage place;
    const struct sockaddr *local;
    if (options->nic == NULL)
        return BANYAN_OK;
    if (memory_node_instance(daemon->node) != 0) /* what a NIC writes is not staged */
        return error_set(error, BANYAN_ENOTSUP,
                         "memory node: a pool in a file is not served over RDMA; leave out one of the two");
    int status = nic_place(options, &place, &local, error);
    return !status ? memoryd_nic_create(&daemon->nic, daemon->node, options->nic, local, error) : status;
}

const char *memoryd_nic(const struct memoryd *daemon)
{
    return daemon->nic != NULL ? memoryd_nic_text(daemon->nic) : NULL;
}

/* ---- life ---- */

static void register_services(struct memoryd *daemon)
{
    const uint32_t peers = MEMORY_PEERS_LAST - MEMORY_PEERS + 1;
    memory_node_register(daemon->node, &memoryd_peers_service, MEMORY_PEERS, peers, daemon);
    const uint32_t processes = MEMORY_PROCESSES_LAST - MEMORY_PROCESSES + 1;
    memory_node_register(daemon->node, &memoryd_processes_service, MEMORY_PROCESSES, processes, daemon);
    memory_node_register(daemon->node, &memoryd_staging_service, 0, 0, daemon);
    if (daemon->disk != NULL) {
        memory_node_register(daemon->node, &persist_disk_service, MEMORY_PERSIST, 2,
                             memoryd_disk_kept(daemon->disk));
        memory_node_register(daemon->node, &persist_disk_bring, MEMORY_BRING, 1,
                             memoryd_disk_kept(daemon->disk));
        memory_node_register(daemon->node, &persist_disk_journals, MEMORY_JOURNALS, 1,
                             memoryd_disk_kept(daemon->disk));
    }
    const uint32_t last = daemon->merges != NULL ? MEMORY_WALK_LAST : MEMORY_MERGE_LAST;
    if (daemon->walks != NULL)
        memory_node_register(daemon->node, &memoryd_walk_service, MEMORY_WALK, last - MEMORY_WALK + 1,
                             daemon->walks);
    if (daemon->merges != NULL)
        memory_node_register(daemon->node, &memoryd_walk_service, MEMORY_MERGE,
                             MEMORY_MERGE_LAST - MEMORY_MERGE + 1, daemon->merges);
    daemon->registered = true;
}

static void unregister_services(struct memoryd *daemon)
{
    if (!daemon->registered)
        return;
    if (daemon->merges != NULL)
        memory_node_unregister(daemon->node, &memoryd_walk_service, daemon->merges);
    if (daemon->walks != NULL)
        memory_node_unregister(daemon->node, &memoryd_walk_service, daemon->walks);
    if (daemon->disk != NULL) {
        memory_node_unregister(daemon->node, &persist_disk_journals, memoryd_disk_kept(daemon->disk));
        memory_node_unregister(daemon->node, &persist_disk_bring, memoryd_disk_kept(daemon->disk));
        memory_node_unregister(daemon->node, &persist_disk_service, memoryd_disk_kept(daemon->disk));
    }
    memory_node_unregister(daemon->node, &memoryd_staging_service, daemon);
    memory_node_unregister(daemon->node, &memoryd_processes_service, daemon);
    memory_node_unregister(daemon->node, &memoryd_peers_service, daemon);
}

/* Behind the areas of the I/O threads lie those of the threads that merge. */
static int make_walks(struct memoryd *daemon, const struct memoryd_options *options, unsigned threads,
                      struct error *error)
{
    const unsigned walk = options->walk_threads, merge = options->merge_threads;
    int status = BANYAN_OK;
    if (memory_node_staging(daemon->node, 0) != NULL && threads + walk + merge > MEMORY_STAGINGS)
        return error_set(error, BANYAN_EINVAL,
                         "memory node: %u I/O threads, %u that walk and %u that merge; with a pool in a file "
                         "at most %u together",
                         threads, walk, merge, MEMORY_STAGINGS);
    if (walk != 0)
        status =
            memoryd_walks_create(&daemon->walks, daemon,
                                 merge != 0 ? MEMORYD_WALKS : MEMORYD_WALKS_AND_MERGES, walk, threads, error);
    if (!status && merge != 0)
        status = memoryd_walks_create(&daemon->merges, daemon, MEMORYD_MERGES, merge, threads + walk, error);
    return status;
}

int memoryd_create(struct memoryd **made, struct memory_node *node, const struct memoryd_options *options,
                   struct error *error)
{
    *made = NULL;
    int status = check_options(options, error);
    if (status)
        return status;
    struct memoryd *daemon = calloc(1, sizeof *daemon);
    unsigned threads = options->threads != 0 ? options->threads : 1;
    if (daemon != NULL) {
        daemon->listeners = calloc(options->listen_count + 1, sizeof *daemon->listeners);
        daemon->loops = calloc(threads, sizeof *daemon->loops);
        daemon->keeper.epoll = daemon->keeper.wake = -1;
        daemon->node = node;
        daemon->target = memory_node_target(node);
    }
    if (daemon == NULL || daemon->listeners == NULL || daemon->loops == NULL) {
        status = error_set(error, BANYAN_ENOMEM, "no memory for a memory node's daemon");
    } else {
        copy_options(daemon, options);
        memoryd_groups_create(daemon);
        status = open_listeners(daemon, options, error);
    }
    if (!status)
        status = open_nic(daemon, options, error);
    if (!status)
        status = choose_engine(daemon, threads, error);
    if (!status)
        status = memoryd_keeper_create(daemon, error);
    if (!status)
        status = make_walks(daemon, options, threads, error);
    if (status) {
        memoryd_destroy(daemon);
        return status;
    }
    register_services(daemon);
    *made = daemon;
    return BANYAN_OK;
}

/* G8, D4: what this life of the home node answers about read leases of the last one must be true. Whoever
 * connects meanwhile waits. */
static void outlast_read_leases(struct memoryd *daemon)
{
    uint32_t ms = memory_node_kept_read_lease(daemon->node);
    uint64_t over_at = daemon->started_at + ms * UINT64_C(1000000), now = task_now();
    if (ms == 0)
        return;
    if (ms > 1000)
        log_info("memory node: waits until read leases of its last life are over, %u ms", ms);
    if (now < over_at)
        task_sleep(over_at - now);
    memory_node_keep_read_lease(daemon->node, 0);
}

int memoryd_start(struct memoryd *daemon, struct error *error)
{
    int status = BANYAN_OK;
    outlast_read_leases(daemon);
    daemon->started = true;
    if (daemon->disk != NULL)
        status = memoryd_disk_start(daemon->disk, daemon, error);
    if (!status && daemon->walks != NULL)
        status = memoryd_walks_start(daemon->walks, error);
    if (!status && daemon->merges != NULL)
        status = memoryd_walks_start(daemon->merges, error);
    for (unsigned i = 0; i < daemon->loop_count && !status; i++)
        status = thread_start(&daemon->loops[i].thread, memoryd_loop_main, &daemon->loops[i], error);
    if (!status)
        status = thread_start(&daemon->keeper.thread, memoryd_keeper_main, daemon, error);
    if (status) {
        memoryd_stop(daemon);
        memoryd_join(daemon);
        return status;
    }
    for (unsigned i = 0; i < daemon->listener_count; i++) {
        char text[NET_TEXT_MAX];
        log_info("memory node: listening on %s (%s)", net_address_format(&daemon->listeners[i].address, text),
                 memoryd_engine(daemon));
    }
    if (daemon->nic != NULL)
        log_info("memory node: serves RDMA by %s", memoryd_nic_text(daemon->nic));
    return BANYAN_OK;
}

void memoryd_stop(struct memoryd *daemon)
{
    /* release: see memoryd_keeper_main */
    atomic_store_release(&daemon->stopping, 1u);
    memoryd_keeper_wake(daemon);
    for (unsigned i = 0; i < daemon->loop_count; i++)
        memoryd_loop_wake(&daemon->loops[i]);
}

static void close_listeners(struct memoryd *daemon)
{
    for (unsigned i = 0; i < daemon->listener_count; i++) {
        if (daemon->listeners[i].fd < 0)
            continue;
        close(daemon->listeners[i].fd);
        if (daemon->listeners[i].address.kind == NET_UNIX)
            unlink(daemon->listeners[i].address.path);
        daemon->listeners[i].fd = -1;
    }
}

void memoryd_join(struct memoryd *daemon)
{
    if (daemon->joined || !daemon->started)
        return;
    thread_join(daemon->keeper.thread);
    for (unsigned i = 0; i < daemon->loop_count; i++)
        thread_join(daemon->loops[i].thread);
    memoryd_walks_stop(daemon->walks);
    memoryd_walks_stop(daemon->merges);
    memoryd_disk_stop(daemon->disk);
    daemon->joined = true;
    close_listeners(daemon);
    memoryd_groups_stop(daemon); /* compute nodes that joined while the threads ended */
    memoryd_groups_destroy(daemon);
}

void memoryd_destroy(struct memoryd *daemon)
{
    if (daemon == NULL)
        return;
    if (daemon->started) {
        memoryd_stop(daemon);
        memoryd_join(daemon);
    }
    if (daemon->listeners != NULL)
        close_listeners(daemon);
    if (daemon->loops != NULL)
        destroy_loops(daemon);
    if (!daemon->started && daemon->keeper.epoll >= 0)
        memoryd_groups_destroy(daemon);
    memoryd_keeper_destroy(daemon);
    unregister_services(daemon);
    memoryd_walks_destroy(daemon->walks);
    memoryd_walks_destroy(daemon->merges);
    memoryd_nic_destroy(daemon->nic);
    memset(daemon->secret, 0, sizeof daemon->secret);
    free(daemon->listeners);
    free(daemon->loops);
    free(daemon);
}

uint16_t memoryd_port(const struct memoryd *daemon, unsigned listener)
{
    return listener < daemon->listener_count ? daemon->listeners[listener].address.port : 0;
}

const char *memoryd_engine(const struct memoryd *daemon)
{
    return daemon->loops[0].engine->name;
}
