/* load.c - see load.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/sim/load.h"

#include "base/task.h"

void load_run(void *argument)
{
    struct load *load = argument;
    uint64_t buffer[128];
    for (;;) {
        struct fabric_command command = load->command;
        struct fabric_list list = {.node = gaddr_node(command.address), .count = 1, .commands = &command};
        struct fabric_list *lists[] = {&list};
        if (command.operation == FABRIC_READ)
            command.read.buffer = buffer;
        if (command.operation == FABRIC_WRITE)
            command.write.data = buffer;
        uint64_t before = task_now();
        assert_int_equal(fabric_execute(load->endpoint, lists, 1, NULL), 0);
        uint64_t spent = task_now() - before;
        load->slowest = spent > load->slowest ? spent : load->slowest;
        load->done++;
    }
}

void load_spawn(struct cluster *cluster, struct load *load, unsigned compute, unsigned thread)
{
    load->endpoint = cluster->endpoints[compute];
    assert_int_equal(sim_spawn(cluster->sim, (int)compute, thread, load_run, load, NULL), 0);
}

double load_rate(const struct sim_params *params, const struct fabric_command *commands, unsigned count,
                 unsigned computes)
{
    struct cluster cluster;
    struct load loads[256];
    uint64_t done = 0;
    cluster_create(&cluster, 1, computes, params, NULL, 1);
    for (unsigned i = 0; i < count; i++) {
        loads[i] = (struct load){.command = commands[i]};
        load_spawn(&cluster, &loads[i], i % computes, i / computes);
    }
    sim_run(cluster.sim, RUN_NS);
    for (unsigned i = 0; i < count; i++)
        done += loads[i].done;
    cluster_destroy(&cluster);
    return (double)done * 1e9 / RUN_NS;
}

void load_fill(struct fabric_command *commands, unsigned count, enum fabric_operation operation,
               uint32_t length, uint64_t offset, uint64_t stride)
{
    for (unsigned i = 0; i < count; i++) {
        commands[i] = (struct fabric_command){
            .operation = operation, .length = length, .address = gaddr_make(0, offset + i * stride)};
        if (operation == FABRIC_FAA)
            commands[i].faa.add = 1;
    }
}

uint64_t load_idle_ns(const struct sim_params *params)
{
    return params->post_ns + params->command_ns + params->doorbell_ns + 4 * params->nic_ns +
           2 * params->wire_ns + params->pcie_write_ns + params->poll_ns;
}

void load_assert_limit(double rate, double limit)
{
    if (!(rate > 0.95 * limit && rate <= limit * 1.001))
        fail_msg("%.3g a second instead of %.3g", rate, limit);
}

void load_assert_near(double value, double expected)
{
    if (!(value > 0.97 * expected && value < 1.03 * expected))
        fail_msg("%.4g instead of %.4g", value, expected);
}
