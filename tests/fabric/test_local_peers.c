/* test_local_peers.c - compute nodes of one process beside each other: the suite of peers.h on the local
 * backend, on threads and on the fibers of workers, and what is true of this backend alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "conformance.h"
#include "conformance_peers.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "peer_runners.h"

struct house {
    struct memory_node *memory[CONFORMANCE_PEER_MEMORY];
    struct fabric_local_peers *peers;
    struct fabric *fabrics[CONFORMANCE_PEERS_MAX];
    const struct fabric_target *targets[CONFORMANCE_PEER_MEMORY];
};

static int house_open(void *context, unsigned computes, struct fabric **fabrics)
{
    struct house *house = context;
    struct error error = {0};
    *house = (struct house){.peers = fabric_local_peers_create(&error)};
    for (uint16_t i = 0; i < CONFORMANCE_PEER_MEMORY && !error.code; i++) {
        struct memory_options options = {.node = i,
                                         .pool_bytes = CONFORMANCE_POOL_BYTES,
                                         .chunk_bytes = CONFORMANCE_CHUNK_BYTES,
                                         .lock_bytes = CONFORMANCE_LOCK_BYTES};
        if (!memory_node_create(&house->memory[i], &options, &error))
            house->targets[i] = memory_node_target(house->memory[i]);
    }
    /* in another order than that of their ids */
    for (unsigned i = 0; i < computes && !error.code; i++)
        fabrics[i] = house->fabrics[i] =
            fabric_local_create_peer(house->peers, house->targets, CONFORMANCE_PEER_MEMORY,
                                     (uint16_t)(1 + (i + 2) % CONFORMANCE_PEERS_MAX), &error);
    return error.code;
}

static void house_close(void *context)
{
    struct house *house = context;
    for (unsigned i = 0; i < CONFORMANCE_PEERS_MAX; i++)
        fabric_close(house->fabrics[i]);
    fabric_local_peers_destroy(house->peers);
    for (unsigned i = 0; i < CONFORMANCE_PEER_MEMORY; i++)
        memory_node_destroy(house->memory[i]);
}

static const struct conformance_way plain = {
    .rounds = 500,
    .patience_ns = UINT64_C(60000000000),
    .peers_never_time_out = true,
    .open = house_open,
    .close = house_close,
};

static void peers_on_threads(void **state)
{
    struct conformance_way way = plain;
    struct house house;
    way.context = &house;
    way.name = "local, threads";
    way.run = conformance_peers_on_threads;
    assert_int_equal(conformance_peers_run(&way), 0);
}

static void peers_on_fibers(void **state)
{
    struct conformance_way way = plain;
    struct house house;
    way.context = &house;
    way.name = "local, fibers";
    way.run = conformance_peers_on_fibers;
    assert_int_equal(conformance_peers_run(&way), 0);
}

/* An id is another process's when its fabric was closed and the next one created. */
static void ids_are_taken_once(void **state)
{
    struct house house;
    struct fabric *fabrics[2];
    struct error error = {0};
    struct fabric_process first, listed[3];
    uint32_t count;
    bool over = false;
    assert_int_equal(house_open(&house, 2, fabrics), 0);
    first = fabric_self(fabrics[1]);
    assert_null(fabric_local_create_peer(house.peers, house.targets, 1, first.compute_id, &error));
    assert_int_equal(error.code, BANYAN_EEXIST);
    assert_non_null(strstr(error.text, "has id 4 already"));

    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabrics[0], NULL);
    assert_non_null(endpoint);
    fabric_close(fabrics[1]);
    assert_int_equal(fabric_lease_over(endpoint, first, &over, NULL), 0);
    assert_true(over);
    assert_int_equal(fabric_fence(endpoint, 0, first, NULL), 0);
    char text[100];
    fabric_peer_describe(fabrics[0], first, text, sizeof text);
    assert_string_equal(text, "compute node 4 of this process has closed its fabric");

    house.fabrics[1] = fabric_local_create_peer(house.peers, house.targets, 1, first.compute_id, &error);
    assert_non_null(house.fabrics[1]);
    assert_false(fabric_process_equal(fabric_self(house.fabrics[1]), first));
    assert_int_equal(fabric_processes(endpoint, listed, 3, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_true(fabric_process_equal(listed[1], fabric_self(house.fabrics[1])));
    fabric_peer_describe(fabrics[0], listed[1], text, sizeof text);
    assert_string_equal(text, "compute node 4 of this process");
    fabric_peer_stop(house.fabrics[1]);
    fabric_peer_describe(fabrics[0], listed[1], text, sizeof text);
    assert_string_equal(text, "compute node 4 of this process has stopped to answer its peers");
    fabric_endpoint_close(endpoint);
    house_close(&house);
}

/* A fabric that was created by itself has nobody beside it, and says so without a backend. */
static void alone(void **state)
{
    struct house house;
    struct fabric *fabrics[1];
    assert_int_equal(house_open(&house, 1, fabrics), 0);
    struct fabric *fabric = fabric_local_create(house.targets, 1, 9, NULL);
    assert_non_null(fabric);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    struct fabric_process self = fabric_self(fabric), other = fabric_self(fabrics[0]), listed = {0};
    struct fabric_peer_request *request;
    uint32_t count = 0;
    size_t length;
    bool over = true;
    char text[20] = "x";
    assert_null(fabric->ops->peers);
    assert_int_equal(self.compute_id, 9);
    assert_true(fabric_lease_alive(fabric));
    assert_int_equal(fabric_lease_lapses(fabric), 0);
    fabric_lease_resume(fabric, 1);
    assert_int_equal(fabric_fence(endpoint, 0, other, NULL), BANYAN_ENOTSUP);
    assert_int_equal(fabric_lease_over(endpoint, self, &over, NULL), 0);
    assert_false(over);
    assert_int_equal(fabric_processes(endpoint, &listed, 1, &count, NULL), 0);
    assert_true(count == 1 && fabric_process_equal(listed, self));
    assert_int_equal(fabric_notify(endpoint, 5, NULL), 0);
    assert_int_equal(fabric_notice(fabric), 0);
    fabric_notice_listen(fabric, NULL, NULL);
    assert_int_equal(fabric_peer_call(endpoint, other, "a", 1, text, 1, &length, NULL), BANYAN_EFENCED);
    assert_int_equal(fabric_peer_receive(endpoint, &request), BANYAN_ENOTSUP);
    fabric_peer_stop(fabric);
    fabric_peer_describe(fabric, other, text, sizeof text);
    assert_string_equal(text, "");
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    house_close(&house);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_on_threads),
        cmocka_unit_test(peers_on_fibers),
        cmocka_unit_test(ids_are_taken_once),
        cmocka_unit_test(alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
