/* served.c - see served.h. */
#include "swarm/served.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/remote.h"
#include "fabric/verbs_options.h"
#include "memoryd/memoryd.h"

/* Machines that tests run on may be slow, and emulated: slowness must not get a compute node fenced. */
#define LEASE_MS   30000u
#define TIMEOUT_MS 60000u
/* A NIC's pool is locked in memory as a whole, where others take pages as they are used. */
#define POOL_BYTES_MAX (UINT64_C(192) << 20)

static const struct verbs_options any_nic;

struct served {
    enum served_way way;
    unsigned count;
    struct memoryd **servers;
    struct net_address *addresses;
};

static const char *nic_address(void)
{
    const char *address = getenv("BANYAN_RDMA_ADDRESS");
    if (address != NULL && address[0] != 0)
        return address;
    fprintf(stderr, "BANYAN_FABRIC=rdma: BANYAN_RDMA_ADDRESS must say the address of a NIC with RDMA\n");
    abort();
}

enum served_way served_way(void)
{
    static const char *const names[] = {"local", "tcp", "unix", "rdma"};
    const char *wanted = getenv("BANYAN_FABRIC");
    if (wanted == NULL || wanted[0] == 0)
        return SERVED_LOCAL;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(wanted, names[i]) == 0)
            return (enum served_way)i;
    fprintf(stderr, "BANYAN_FABRIC: '%s' is none of local, tcp, unix, rdma\n", wanted);
    abort();
}

static void listen_on(enum served_way way, unsigned number, struct net_address *address)
{
    static unsigned sockets;
    *address = (struct net_address){.kind = way == SERVED_UNIX ? NET_UNIX : NET_TCP};
    if (way == SERVED_UNIX)
        snprintf(address->path, sizeof address->path, "/tmp/banyan-served-%ld-%u-%u.sock", (long)getpid(),
                 sockets++, number);
    else
        snprintf(address->host, sizeof address->host, "%s", way == SERVED_RDMA ? nic_address() : "127.0.0.1");
    address->rdma = way == SERVED_RDMA;
}

int served_prepare(enum served_way way, struct memory_options *options, struct error *error)
{
    options->shared = way == SERVED_UNIX;
    if (way != SERVED_RDMA)
        return BANYAN_OK;
    if (options->pool_bytes > POOL_BYTES_MAX)
        options->pool_bytes = POOL_BYTES_MAX;
    if (options->lock_width != 0)
        return BANYAN_OK;
    struct net_address address;
    listen_on(way, 0, &address);
    const struct memoryd_options server = {.listen = &address, .listen_count = 1, .nic = &any_nic};
    return memoryd_locks(&server, options, error);
}

static int serve(struct served *served, unsigned number, struct memory_node *node, struct error *error)
{
    struct net_address *address = &served->addresses[number];
    const struct memoryd_options options = {.listen = address,
                                            .listen_count = 1,
                                            .walk_threads = 2,
                                            .nic = served->way == SERVED_RDMA ? &any_nic : NULL};
    listen_on(served->way, number, address);
    int status = memoryd_create(&served->servers[number], node, &options, error);
    if (!status)
        status = memoryd_start(served->servers[number], error);
    if (!status && address->kind == NET_TCP)
        address->port = memoryd_port(served->servers[number], 0);
    return status;
}

int served_start(struct served **made, enum served_way way, struct memory_node *const *nodes, unsigned count,
                 struct error *error)
{
    struct served *served = calloc(1, sizeof *served);
    int status = BANYAN_OK;
    if (served == NULL)
        abort();
    served->way = way;
    served->count = count;
    served->servers = calloc(count, sizeof(struct memoryd *));
    served->addresses = calloc(count, sizeof *served->addresses);
    if (served->servers == NULL || served->addresses == NULL)
        abort();
    for (unsigned i = 0; i < count && !status; i++)
        status = serve(served, i, nodes[i], error);
    *made = served;
    return status;
}

int served_open(struct served *served, struct fabric **fabric, struct error *error)
{
    const struct fabric_remote_options options = {.nodes = served->addresses,
                                                  .count = (uint16_t)served->count,
                                                  .lease_ms = LEASE_MS,
                                                  .timeout_ms = TIMEOUT_MS};
    return fabric_remote_open(fabric, &options, error);
}

void served_stop(struct served *served)
{
    if (served == NULL)
        return;
    for (unsigned i = 0; i < served->count; i++) {
        if (served->servers[i] == NULL)
            continue;
        memoryd_stop(served->servers[i]);
        memoryd_join(served->servers[i]);
        memoryd_destroy(served->servers[i]);
    }
    free(served->servers);
    free(served->addresses);
    free(served);
}
