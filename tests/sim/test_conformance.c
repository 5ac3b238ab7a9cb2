/* test_conformance.c - the suite of every backend on the simulator, without faults and with all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sim/params.h"
#include "sim/sim.h"
#include "tests/fabric/conformance.h"

struct world {
    struct sim *sim;
    const struct sim_params *params; /* NULL: the default */
    const struct sim_faults *faults;
    uint64_t seed;
    unsigned threads; /* CPU threads that the tasks are spread over */
    struct fabric_target targets[CONFORMANCE_NODES_MAX];
};

static struct fabric *open_world(void *context, const struct fabric_target *const *targets, uint16_t count)
{
    struct world *world = context;
    world->sim = sim_create(world->params, world->faults, world->seed++, NULL);
    if (!world->sim)
        return NULL;
    for (uint16_t i = 0; i < count; i++) {
        world->targets[i] = *targets[i];
        if (world->params)
            world->targets[i].lock_width = world->params->lock_width;
        if (sim_add_memory(world->sim, &world->targets[i], NULL) < 0)
            return NULL;
    }
    if (sim_add_compute(world->sim, NULL) < 0)
        return NULL;
    return sim_fabric(world->sim, 0);
}

static void run_tasks(void *context, struct fabric *fabric, void (*const *functions)(void *),
                      void *const *arguments, unsigned count)
{
    struct world *world = context;
    (void)fabric;
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(sim_spawn(world->sim, 0, i % world->threads, functions[i], arguments[i], NULL), 0);
    sim_run(world->sim, UINT64_MAX);
}

static void close_world(void *context, struct fabric *fabric)
{
    struct world *world = context;
    fabric_close(fabric);
    sim_destroy(world->sim);
    world->sim = NULL;
}

static void conform(const struct sim_params *params, const struct sim_faults *faults, unsigned threads)
{
    struct world world = {.params = params, .faults = faults, .seed = 1, .threads = threads};
    const struct conformance_backend backend = {
        .name = "sim",
        .context = &world,
        .rounds = 500,
        .open = open_world,
        .run = run_tasks,
        .close = close_world,
    };
    assert_int_equal(conformance_run(&backend), 0);
}

static void test_without_faults(void **state)
{
    (void)state;
    conform(NULL, NULL, 64);
}

static void test_fibers_of_few_threads(void **state)
{
    (void)state;
    conform(NULL, NULL, 2);
}

static void test_with_every_fault(void **state)
{
    struct sim_faults faults;
    (void)state;
    sim_faults_hostile(&faults);
    conform(NULL, &faults, 64);
}

/* Locks of 8 bytes, released by atomics; CAS of whole words alone. */
static void test_on_soft_roce(void **state)
{
    struct sim_params params;
    struct sim_faults faults;
    (void)state;
    sim_params_default(&params);
    params.lock_width = 8;
    params.release_by_write = params.masked_cas = false;
    sim_faults_hostile(&faults);
    conform(&params, NULL, 64);
    conform(&params, &faults, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_faults),
        cmocka_unit_test(test_fibers_of_few_threads),
        cmocka_unit_test(test_with_every_fault),
        cmocka_unit_test(test_on_soft_roce),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
