/* test_peers_conformance.c - the suite of peers.h on the simulator: without faults, with all of them, with
 * compute nodes whose tasks share one CPU thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "memory/memory.h"
#include "sim/params.h"
#include "sim/sim.h"
#include "tests/fabric/conformance.h"
#include "tests/fabric/conformance_peers.h"

#define LEASE_NS      3000000u
#define TIMEOUT_NS    2000000u
#define MEMBERSHIP_NS 5000000u /* after that the dead are fenced */

struct world {
    struct sim *sim;
    const struct sim_faults *faults;
    uint64_t seed;
    unsigned threads; /* of a compute node */
    struct memory_node *memory[CONFORMANCE_PEER_MEMORY];
    int computes[CONFORMANCE_PEERS_MAX];
    bool fenced;
};

static void lost(void *context, int compute, int memory)
{
    struct world *world = context;
    memory_node_release_locks(world->memory[memory], fabric_self(sim_fabric(world->sim, compute)).compute_id);
}

static int open_world(void *context, unsigned computes, struct fabric **fabrics)
{
    struct world *world = context;
    struct sim_params params;
    sim_params_default(&params);
    params.read_lease_ns = LEASE_NS;
    params.peer_timeout_ns = TIMEOUT_NS;
    world->fenced = false;
    world->sim = sim_create(&params, world->faults, world->seed++, NULL);
    assert_non_null(world->sim);
    for (uint16_t i = 0; i < CONFORMANCE_PEER_MEMORY; i++) {
        struct memory_options options = {.node = i,
                                         .pool_bytes = CONFORMANCE_POOL_BYTES,
                                         .chunk_bytes = CONFORMANCE_CHUNK_BYTES,
                                         .lock_bytes = CONFORMANCE_LOCK_BYTES};
        assert_int_equal(memory_node_create(&world->memory[i], &options, NULL), 0);
        assert_int_equal(sim_add_memory(world->sim, memory_node_target(world->memory[i]), NULL), i);
    }
    for (unsigned i = 0; i < computes; i++) {
        world->computes[i] = sim_add_compute(world->sim, NULL);
        fabrics[i] = sim_fabric(world->sim, world->computes[i]);
    }
    sim_on_loss(world->sim, lost, world);
    return 0;
}

static void run_tasks(void *context, const struct conformance_task *tasks, unsigned count)
{
    struct world *world = context;
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(sim_spawn(world->sim, world->computes[tasks[i].compute], i % world->threads,
                                   tasks[i].function, tasks[i].argument, NULL),
                         0);
    sim_run(world->sim, UINT64_MAX);
}

static void close_world(void *context)
{
    struct world *world = context;
    sim_destroy(world->sim);
    for (unsigned i = 0; i < CONFORMANCE_PEER_MEMORY; i++)
        memory_node_destroy(world->memory[i]);
}

static void lose_node(void *context, unsigned compute, uint16_t node)
{
    struct world *world = context;
    sim_cut(world->sim, world->computes[compute], node);
}

static void stall_node(void *context, unsigned compute, uint64_t ns)
{
    struct world *world = context;
    sim_stall_compute(world->sim, world->computes[compute], ns, UINT64_MAX);
}

static void dead_is_fenced(void *context)
{
    struct world *world = context;
    world->fenced = true;
    for (int i = 0; i < CONFORMANCE_PEER_MEMORY; i++)
        lost(world, world->computes[1], i);
}

static void kill_node(void *context, unsigned compute)
{
    struct world *world = context;
    assert_int_equal(compute, 1);
    sim_kill_compute(world->sim, world->computes[compute], MEMBERSHIP_NS, dead_is_fenced, world);
}

static int restart_node(void *context, unsigned compute, struct fabric **fabric)
{
    struct world *world = context;
    assert_true(world->fenced); /* a run ends when all events are through */
    world->computes[compute] = sim_restart_compute(world->sim, world->computes[compute], NULL);
    assert_true(world->computes[compute] >= 0);
    *fabric = sim_fabric(world->sim, world->computes[compute]);
    return 0;
}

static void cut_nodes(void *context, unsigned compute, unsigned other)
{
    struct world *world = context;
    assert_int_equal(sim_cut_peers(world->sim, world->computes[compute], world->computes[other]), 0);
}

static void heal_nodes(void *context, unsigned compute, unsigned other)
{
    struct world *world = context;
    sim_heal_peers(world->sim, world->computes[other], world->computes[compute]);
}

static void hide_node(void *context, unsigned compute)
{
    struct world *world = context;
    sim_hide_compute(world->sim, world->computes[compute], true);
}

static void conform(const struct sim_faults *faults, unsigned threads, uint64_t seed)
{
    struct world world = {.faults = faults, .seed = seed, .threads = threads};
    const struct conformance_way way = {
        .name = "sim",
        .context = &world,
        .rounds = 100,
        .read_lease_ns = LEASE_NS,
        .patience_ns = 100000000,
        .open = open_world,
        .run = run_tasks,
        .close = close_world,
        .lose = lose_node,
        .stall = stall_node,
        .kill = kill_node,
        .restart = restart_node,
        .cut = cut_nodes,
        .heal = heal_nodes,
        .hide = hide_node,
    };
    assert_int_equal(conformance_peers_run(&way), 0);
}

static void test_without_faults(void **state)
{
    (void)state;
    conform(NULL, 64, 1);
}

static void test_few_threads(void **state)
{
    (void)state;
    conform(NULL, 1, 2);
    conform(NULL, 2, 3);
}

/* But for messages that are lost: the suite's calls must succeed. */
static void test_with_faults(void **state)
{
    struct sim_faults faults;
    (void)state;
    sim_faults_hostile(&faults);
    faults.message_lose = 0;
    for (uint64_t seed = 10; seed < 13; seed++)
        conform(&faults, 64, seed * 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_faults),
        cmocka_unit_test(test_few_threads),
        cmocka_unit_test(test_with_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
