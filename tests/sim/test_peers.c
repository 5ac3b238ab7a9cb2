/* test_peers.c - what compute nodes ask of each other and of the home node, in virtual time: peer calls and
 * what becomes of them, notices, the read lease and fencing, under deaths, cuts, stalls and drifting clocks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/task.h"
#include "fabric/peers.h"
#include "tests/sim/cluster.h"

#define LEASE_NS 3000000u

struct party {
    struct cluster cluster;
    unsigned served;
};

static struct fabric *fabric_of(struct party *party, int compute)
{
    return sim_fabric(party->cluster.sim, compute);
}

static struct fabric_process process_of(struct party *party, int compute)
{
    return fabric_self(fabric_of(party, compute));
}

/* Answers each request with its bytes, and its length as the status's opposite. */
static void serve(struct party *party, int compute)
{
    struct fabric_endpoint *endpoint = party->cluster.endpoints[compute];
    struct fabric_peer_request *request;
    while (!fabric_peer_receive(endpoint, &request)) {
        party->served++;
        fabric_peer_reply(endpoint, request, -(int)request->length, request->bytes, request->length);
    }
}

static void serve_one(void *argument)
{
    serve(argument, 1);
}

static int call(struct party *party, int from, struct fabric_process peer, size_t length)
{
    uint8_t request[256], reply[256];
    size_t reply_length = 77;
    memset(request, (int)length, sizeof request);
    int status = fabric_peer_call(party->cluster.endpoints[from], peer, request, length, reply, sizeof reply,
                                  &reply_length, NULL);
    if (status == -(int)length) {
        assert_int_equal(reply_length, length);
        assert_memory_equal(request, reply, length);
    } else {
        assert_int_equal(reply_length, 0);
    }
    return status;
}

static void call_some(void *argument)
{
    struct party *party = argument;
    uint64_t before = task_now();
    for (size_t length = 1; length <= 200; length++)
        assert_int_equal(call(party, 0, process_of(party, 1), length), -(int)length);
    uint64_t each = (task_now() - before) / 200;
    assert_in_range(each, 1500, 6000); /* two messages and a switch of tasks */
    assert_int_equal(call(party, 0, (struct fabric_process){.instance = 9, .compute_id = 2}, 5),
                     BANYAN_EFENCED);
    fabric_peer_stop(fabric_of(party, 1));
}

static void test_calls_are_served(void **state)
{
    (void)state;
    struct party party = {0};
    cluster_create(&party.cluster, 1, 2, NULL, NULL, 1);
    assert_int_equal(sim_spawn(party.cluster.sim, 1, 0, serve_one, &party, NULL), 0);
    assert_int_equal(sim_spawn(party.cluster.sim, 0, 0, call_some, &party, NULL), 0);
    assert_int_equal(sim_run(party.cluster.sim, UINT64_MAX), 0);
    assert_int_equal(party.served, 200);
    assert_true(sim_now(party.cluster.sim) < 2000000); /* the timer of the calls does not count */
    cluster_destroy(&party.cluster);
}

static void fence_other(void *argument)
{
    struct party *party = argument;
    struct fabric_endpoint *endpoint = party->cluster.endpoints[0];
    struct fabric_process other = process_of(party, 1), processes[2];
    uint32_t count;
    bool over = true;
    assert_int_equal(fabric_processes(endpoint, processes, 2, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_true(fabric_process_equal(processes[1], other));
    task_sleep(10 * LEASE_NS);
    assert_true(fabric_lease_alive(fabric_of(party, 0)) && fabric_lease_alive(fabric_of(party, 1)));
    assert_int_equal(fabric_lease_lapses(fabric_of(party, 1)), 0);
    assert_int_equal(fabric_lease_over(endpoint, other, &over, NULL), 0);
    assert_false(over);
    assert_int_equal(fabric_fence(endpoint, 0, other, NULL), 0);
    uint64_t fenced = task_now(), dead = 0;
    while (!over) {
        if (!fabric_lease_alive(fabric_of(party, 1)) && !dead)
            dead = task_now();
        assert_int_equal(fabric_lease_over(endpoint, other, &over, NULL), 0);
    }
    assert_true(dead > 0);
    assert_in_range(task_now() - fenced, LEASE_NS * 6 / 10, LEASE_NS + 20000);
    task_sleep(LEASE_NS);
    assert_false(fabric_lease_alive(fabric_of(party, 1)));
    fabric_lease_resume(fabric_of(party, 1), fabric_incarnation(fabric_of(party, 1)));
    assert_true(fabric_lease_alive(fabric_of(party, 1)));
    assert_int_equal(fabric_notify(endpoint, 12, NULL), 0);
    task_sleep(20000);
    assert_int_equal(fabric_notice(fabric_of(party, 0)), 12);
    assert_int_equal(fabric_notice(fabric_of(party, 1)), 12);
}

static void test_a_fenced_lease_ends(void **state)
{
    (void)state;
    struct party party = {0};
    struct sim_params params;
    sim_params_default(&params);
    params.read_lease_ns = LEASE_NS;
    cluster_create(&party.cluster, 1, 2, &params, NULL, 1);
    assert_int_equal(sim_spawn(party.cluster.sim, 0, 0, fence_other, &party, NULL), 0);
    assert_int_equal(sim_run(party.cluster.sim, UINT64_MAX), 0);
    assert_int_equal(sim_losses(party.cluster.sim), 1);
    cluster_destroy(&party.cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_served),
        cmocka_unit_test(test_a_fenced_lease_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
