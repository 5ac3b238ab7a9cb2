/* test_remote_peers_conformance.c - the suite of peers.h on memory nodes in processes of their own: over TCP,
 * through proxies that lose connections, hold heartbeats back, and cut compute nodes off from all others;
 * over Unix sockets; mapped; over RDMA; by fibers of workers and by plain threads. Usage:
 * test_remote_peers_conformance [NAME]: one test
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/task.h"
#include "conformance.h"
#include "conformance_peers.h"
#include "daemon.h"
#include "fabric/remote.h"
#include "peer_runners.h"

/* Longer than by default: what a lapse spoils is shown again, and most machines are less busy than that. */
#define READ_LEASE_MS 250u
#define MS            UINT64_C(1000000)
#define STALLS_MAX    32
/* Longer than a machine with much else to do keeps a memory node from running: what is not answered in time
 * is lost, and few cases wait for that. An emulated machine is slow to answer where many call. */
#define TIMEOUT_MS      3000u
#define RDMA_TIMEOUT_MS 15000u

struct street {
    bool local, mapped, proxied, rdma;
    struct daemon daemons[CONFORMANCE_PEER_MEMORY];
    struct proxy *proxies[CONFORMANCE_PEERS_MAX][CONFORMANCE_PEER_MEMORY];
    struct proxy *doors[CONFORMANCE_PEERS_MAX]; /* before each compute node's socket for the others */
    struct fabric *fabrics[CONFORMANCE_PEERS_MAX];
    struct stall {
        pthread_t thread;
        struct proxy *proxy;
        uint64_t ns;
    } stalls[STALLS_MAX];
    unsigned stalled;
};

static int open_one(struct street *street, unsigned compute)
{
    struct net_address nodes[CONFORMANCE_PEER_MEMORY];
    struct net_address door = {.kind = NET_UNIX};
    struct error error = {0};
    snprintf(door.path, sizeof door.path, "/tmp/banyan-peer-%d-%u.sock", (int)getpid(), compute);
    for (unsigned i = 0; i < CONFORMANCE_PEER_MEMORY; i++) {
        nodes[i] = street->local ? street->daemons[i].local : street->daemons[i].tcp;
        if (street->proxied) {
            street->proxies[compute][i] = proxy_start(&nodes[i]);
            nodes[i] = proxy_address(street->proxies[compute][i]);
            nodes[i].rdma = street->rdma;
        }
    }
    const struct fabric_remote_options options = {.nodes = nodes,
                                                  .count = CONFORMANCE_PEER_MEMORY,
                                                  .timeout_ms = street->rdma ? RDMA_TIMEOUT_MS : TIMEOUT_MS,
                                                  .lease_ms = 60000,
                                                  .read_lease_ms = READ_LEASE_MS,
                                                  .copy = !street->mapped,
                                                  .peers = true,
                                                  .peer_listen = street->proxied ? &door : NULL};
    int status = fabric_remote_open(&street->fabrics[compute], &options, &error);
    if (status)
        fprintf(stderr, "open: %s\n", error.text);
    else if (street->proxied)
        street->doors[compute] = proxy_before(&door);
    return status;
}

static int street_open(void *context, unsigned computes, struct fabric **fabrics)
{
    struct street *street = context;
    int status = 0;
    for (uint16_t i = 0; i < CONFORMANCE_PEER_MEMORY; i++) {
        const struct daemon_options options = {.number = i,
                                               .rdma = street->rdma,
                                               .pool_bytes = CONFORMANCE_POOL_BYTES,
                                               .chunk_bytes = CONFORMANCE_CHUNK_BYTES,
                                               .lock_bytes = CONFORMANCE_LOCK_BYTES};
        daemon_start(&street->daemons[i], &options);
    }
    for (unsigned i = 0; i < computes && !status; i++) {
        status = open_one(street, i);
        fabrics[i] = street->fabrics[i];
    }
    return status;
}

static void street_close(void *context)
{
    struct street *street = context;
    for (unsigned i = 0; i < street->stalled; i++)
        pthread_join(street->stalls[i].thread, NULL);
    street->stalled = 0;
    for (unsigned i = 0; i < CONFORMANCE_PEERS_MAX; i++) {
        if (street->fabrics[i] != NULL)
            fabric_close(street->fabrics[i]);
        if (street->doors[i] != NULL)
            proxy_stop(street->doors[i]);
        street->fabrics[i] = NULL;
        street->doors[i] = NULL;
        for (unsigned j = 0; j < CONFORMANCE_PEER_MEMORY; j++) {
            if (street->proxies[i][j] != NULL)
                proxy_stop(street->proxies[i][j]);
            street->proxies[i][j] = NULL;
        }
    }
    for (unsigned i = 0; i < CONFORMANCE_PEER_MEMORY; i++)
        daemon_kill(&street->daemons[i]);
}

static void street_lose(void *context, unsigned compute, uint16_t node)
{
    struct street *street = context;
    proxy_cut(street->proxies[compute][node]);
    proxy_open(street->proxies[compute][node]);
}

static void *stall_main(void *argument)
{
    const struct stall *stall = argument;
    task_sleep(stall->ns);
    proxy_hold(stall->proxy, false);
    return NULL;
}

/* What it sends to the home node stays on the way for so long. */
static void street_stall(void *context, unsigned compute, uint64_t ns)
{
    struct street *street = context;
    if (street->stalled == STALLS_MAX)
        abort();
    struct stall *stall = &street->stalls[street->stalled++];
    *stall = (struct stall){.proxy = street->proxies[compute][0], .ns = ns};
    proxy_hold(stall->proxy, true);
    if (pthread_create(&stall->thread, NULL, stall_main, stall) != 0)
        abort();
}

/* All its connections end, and none is made any more. No other process takes its place with its id: memory
 * nodes give that to nobody for long. Its calls of others would still be made, but in no case does one that
 * is killed call. */
static void street_kill(void *context, unsigned compute)
{
    struct street *street = context;
    for (unsigned i = 0; i < CONFORMANCE_PEER_MEMORY; i++)
        proxy_cut(street->proxies[compute][i]);
    proxy_cut(street->doors[compute]);
}

/* Others' calls of either do not come through; in the cases that cut, no third one calls them. */
static void street_cut(void *context, unsigned compute, unsigned other)
{
    struct street *street = context;
    proxy_cut(street->doors[compute]);
    proxy_cut(street->doors[other]);
}

static void street_heal(void *context, unsigned compute, unsigned other)
{
    struct street *street = context;
    proxy_open(street->doors[compute]);
    proxy_open(street->doors[other]);
}

static struct conformance_way way_of(struct street *street, const char *name, bool fibers)
{
    return (struct conformance_way){
        .name = name,
        .context = street,
        .rounds = 100,
        .read_lease_ns = READ_LEASE_MS * MS,
        .patience_ns = 60000 * MS,
        .busy = true,
        .open = street_open,
        .run = fibers ? conformance_peers_on_fibers : conformance_peers_on_threads,
        .close = street_close,
        .lose = street->proxied ? street_lose : NULL,
        .stall = street->proxied ? street_stall : NULL,
        .kill = street->proxied ? street_kill : NULL,
        .cut = street->proxied ? street_cut : NULL,
        .heal = street->proxied ? street_heal : NULL,
    };
}

static void tcp_fibers(void **state)
{
    struct street street = {.proxied = true};
    struct conformance_way way = way_of(&street, "tcp, fibers", true);
    assert_int_equal(conformance_peers_run(&way), 0);
}

/* What is about calls and notices. */
static void run_calls(const struct conformance_way *way)
{
    static const char *const parts[] = {"leases stay alive", "processes have", "notices", "calls of",
                                        "all call",          "servers",        "stopped", "nobody"};
    unsigned failed = 0;
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++)
        failed += conformance_peers_run_some(way, parts[i]);
    assert_int_equal(failed, 0);
}

static void unix_threads(void **state)
{
    struct street street = {.local = true};
    struct conformance_way way = way_of(&street, "unix, threads", false);
    run_calls(&way);
    assert_int_equal(conformance_peers_run_some(&way, "fencing"), 0);
}

/* Without fencing: a process that has mapped the pool is fenced by its death. */
static void unix_mapped(void **state)
{
    struct street street = {.local = true, .mapped = true};
    struct conformance_way way = way_of(&street, "mapped, fibers", true);
    run_calls(&way);
}

static void rdma_fibers(void **state)
{
    struct street street = {.proxied = true, .rdma = true};
    struct conformance_way way = way_of(&street, "rdma, fibers", true);
    way.rounds = 5; /* in an emulated machine */
    if (daemon_has_rdma())
        assert_int_equal(conformance_peers_run(&way), 0);
}

int main(int count, char **arguments)
{
    daemon_main(count, arguments);
    log_set_level(LOG_ERROR);
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_fibers),
        cmocka_unit_test(unix_threads),
        cmocka_unit_test(unix_mapped),
        cmocka_unit_test(rdma_fibers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
