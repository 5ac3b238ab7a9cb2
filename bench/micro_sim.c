/* micro_sim.c - see micro_sim.h. */
#include "bench/micro_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/zipf.h"
#include "bench/runner_sim.h"

#define LOCKS      10240                 /* Sherman 3.2.2 */
#define CHIP_BYTES (UINT64_C(256) << 10) /* of on-chip memory: Sherman 4.3 */
#define CHIP_LISTS 16
#define READ_BYTES (UINT64_C(64) << 20)

struct micro_client {
    struct micro_run *run;
    struct fabric_endpoint *endpoint;
    struct random random;
};

struct micro_run {
    const struct micro_sim *micro;
    struct bench_config config;
    struct sim *sim;
    struct fabric_target target;
    struct zipf zipf;
    struct permutation ranks; /* so that the hot locks lie apart */
    struct bench_window window;
    struct spinlock lock;
    struct bench_meter meter;
    struct micro_client *clients;
    unsigned computes, client_count;
};

void micro_sim_name(const struct micro_sim *micro, char *name, size_t size)
{
    if (micro->kind == MICRO_SIM_LOCKS)
        snprintf(name, size, "locks, theta %g", micro->theta);
    else if (micro->kind == MICRO_SIM_CHIP)
        snprintf(name, size, "CAS on the NIC's memory");
    else
        snprintf(name, size, "READ of %u bytes, idle", micro->bytes);
}

/* ---- one operation ---- */

/* Each command is a list of its own: within a list a command waits for the one before it. */
static int execute(struct micro_client *client, struct fabric_command *commands, unsigned count,
                   struct fabric_cost *cost)
{
    struct fabric_list list[CHIP_LISTS], *lists[CHIP_LISTS];
    for (unsigned i = 0; i < count; i++) {
        list[i] = (struct fabric_list){
            .node = gaddr_node(commands[i].address), .count = 1, .commands = &commands[i]};
        lists[i] = &list[i];
    }
    return fabric_execute(client->endpoint, lists, count, cost);
}

static int lock_and_unlock(struct micro_client *client, struct fabric_cost *cost)
{
    const struct micro_run *run = client->run;
    uint64_t number = permutation_apply(&run->ranks, zipf_next(&run->zipf, &client->random));
    gaddr address = gaddr_make(0, 4096 + number * 8);
    struct fabric_command command;
    int status;
    do {
        command = (struct fabric_command){
            .operation = FABRIC_CAS, .address = address, .cas = {.swap = 1, .mask = UINT64_MAX}};
        status = execute(client, &command, 1, cost);
    } while (!status && command.cas.old && bench_window_phase(&run->window) != BENCH_DONE);
    if (status || command.cas.old)
        return status;
    command =
        (struct fabric_command){.operation = FABRIC_FAA, .address = address, .faa = {.add = UINT64_MAX}};
    return execute(client, &command, 1, cost);
}

static int swap_on_chip(struct micro_client *client, struct fabric_cost *cost)
{
    struct fabric_command commands[CHIP_LISTS];
    for (unsigned i = 0; i < CHIP_LISTS; i++) {
        uint64_t offset = random_below(&client->random, CHIP_BYTES / 8) * 8;
        commands[i] = (struct fabric_command){.operation = FABRIC_CAS,
                                              .address = gaddr_make(0, GADDR_LOCK_REGION | offset),
                                              .cas = {.swap = 0, .mask = UINT64_MAX}};
    }
    return execute(client, commands, CHIP_LISTS, cost);
}

static int read_somewhere(struct micro_client *client, struct fabric_cost *cost, void *buffer)
{
    uint32_t bytes = client->run->micro->bytes;
    uint64_t offset = random_below(&client->random, (READ_BYTES - bytes) / 64) * 64;
    struct fabric_command command = {.operation = FABRIC_READ,
                                     .length = bytes,
                                     .address = gaddr_make(0, offset),
                                     .read = {.buffer = buffer}};
    return execute(client, &command, 1, cost);
}

/* ---- tasks in virtual time ---- */

static void fail(struct micro_run *run, int status)
{
    struct error error = {0};
    error_set(&error, status, "the experiment's commands: %s", error_name(status));
    bench_window_fail(&run->window, &error);
}

static void client_task(void *argument)
{
    struct micro_client *client = argument;
    struct micro_run *run = client->run;
    enum micro_sim_kind kind = run->micro->kind;
    enum workload_kind counted = kind == MICRO_SIM_READ ? WORKLOAD_LOOKUP : WORKLOAD_UPDATE;
    void *buffer = kind == MICRO_SIM_READ ? aligned_alloc(64, (run->micro->bytes + 63) / 64 * 64) : NULL;
    enum bench_phase phase;
    int status = kind == MICRO_SIM_READ && !buffer ? BANYAN_ENOMEM : 0;
    bench_window_warm(&run->window);
    while (!status && (phase = bench_window_phase(&run->window)) != BENCH_DONE) {
        struct fabric_cost cost = {0};
        uint64_t begin = task_now();
        if (kind == MICRO_SIM_LOCKS)
            status = lock_and_unlock(client, &cost);
        else if (kind == MICRO_SIM_CHIP)
            status = swap_on_chip(client, &cost);
        else
            status = read_somewhere(client, &cost, buffer);
        uint64_t end = task_now();
        unsigned operations = kind == MICRO_SIM_CHIP ? CHIP_LISTS : 1;
        for (unsigned i = 0; i < operations && !status; i++)
            bench_meter_count(&run->meter, phase, counted, begin, end, i ? NULL : &cost);
    }
    free(buffer);
    if (status)
        fail(run, status);
}

/* ---- the world ---- */

static int refuse_call(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                       size_t capacity, size_t *reply_length)
{
    *reply_length = 0;
    return BANYAN_EINVAL;
}

static int build_target(struct micro_run *run, struct error *error)
{
    struct fabric_target *target = &run->target;
    *target = (struct fabric_target){.pool_bytes = READ_BYTES,
                                     .lock_bytes = CHIP_BYTES,
                                     .lock_width = run->config.sim.lock_width,
                                     .call = refuse_call};
    target->pool = aligned_alloc(4096, target->pool_bytes);
    target->locks = aligned_alloc(4096, target->lock_bytes);
    if (!target->pool || !target->locks)
        return error_set(error, BANYAN_ENOMEM, "no memory for a memory node");
    memset(target->pool, 0, target->pool_bytes);
    memset(target->locks, 0, target->lock_bytes);
    int number = sim_add_memory(run->sim, target, error);
    return number < 0 ? number : 0;
}

static int build_clients(struct micro_run *run, struct error *error)
{
    const struct bench_config *config = &run->config;
    run->clients = calloc(run->client_count, sizeof *run->clients);
    if (!run->clients)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u clients", run->client_count);
    for (unsigned i = 0; i < run->computes; i++) {
        int compute = sim_add_compute(run->sim, error);
        if (compute < 0)
            return compute;
    }
    for (unsigned i = 0; i < run->client_count; i++) {
        struct micro_client *client = &run->clients[i];
        int compute = (int)(i / config->threads);
        client->run = run;
        random_seed(&client->random, random_mix(config->seed + i + 1));
        client->endpoint = fabric_endpoint_open(sim_fabric(run->sim, compute), error);
        if (!client->endpoint)
            return error && error->code ? error->code : BANYAN_ENOMEM;
        int status = sim_spawn(run->sim, compute, i % config->threads, client_task, client, error);
        if (status)
            return status;
    }
    return 0;
}

static void close_run(struct micro_run *run)
{
    for (unsigned i = 0; run->clients && i < run->client_count; i++)
        if (run->clients[i].endpoint)
            fabric_endpoint_close(run->clients[i].endpoint);
    if (run->sim)
        sim_destroy(run->sim);
    free(run->target.pool);
    free(run->target.locks);
    free(run->clients);
}

/* How many clients, and operations enough for a percentile without spending minutes on each. */
static void size_run(struct micro_run *run)
{
    struct bench_config *config = &run->config;
    run->computes = config->compute_nodes > 1 ? config->compute_nodes - 1 : 1;
    if (run->micro->kind == MICRO_SIM_READ) {
        run->computes = config->threads = 1;
        config->operations = config->operations < 2000 ? config->operations : 2000;
    } else if (run->micro->kind == MICRO_SIM_LOCKS) {
        config->operations = (config->operations + 3) / 4;
    }
    config->warm_up = config->operations / 10;
    run->client_count = run->computes * config->threads;
    config->sim.shared_nic = false;
    config->fabric = BENCH_SIM;
}

int micro_sim_run(const struct bench_config *config, const struct micro_sim *micro,
                  struct bench_result *result, struct error *error)
{
    struct micro_run run = {.micro = micro, .config = *config};
    size_run(&run);
    micro_sim_name(micro, result->workload, sizeof result->workload);
    snprintf(result->preset, sizeof result->preset, "-");
    snprintf(result->distribution, sizeof result->distribution, "%s",
             micro->kind == MICRO_SIM_LOCKS ? "zipfian" : "uniform");
    zipf_init(&run.zipf, LOCKS, micro->theta);
    permutation_init(&run.ranks, LOCKS, random_mix(config->seed));
    run.meter = (struct bench_meter){.window = &run.window, .result = result};
    bench_window_init(&run.window, &run.config, run.client_count, &run.lock);
    run.sim = sim_create(&run.config.sim, &config->faults, config->seed, error);
    int status = run.sim ? 0 : error && error->code ? error->code : BANYAN_EINVAL;
    if (!status)
        status = build_target(&run, error);
    if (!status)
        status = build_clients(&run, error);
    uint64_t begin = task_now();
    if (!status)
        status = bench_sim_run(run.sim, &run.window, "measuring", error);
    result->measure_seconds = (double)(task_now() - begin) / 1e9;
    bench_sim_complete(result, &run.window, run.sim);
    close_run(&run);
    return status;
}
