/*
 * speed.c - how fast the simulator itself runs, in real time: 176 client threads on 8 machines, each
 * operation three charges and one or three lists (a 1 KiB READ; half of the operations also lock, write and
 * unlock). Prints; asserts nothing. Usage: sim-speed [milliseconds of virtual time]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "base/task.h"

#include "fabric/fabric.h"
#include "sim/params.h"
#include "sim/sim.h"

#define MACHINES   8
#define THREADS    176
#define POOL_BYTES ((uint64_t)16 << 20)

struct client {
    struct fabric_endpoint *endpoint;
    struct random random;
    uint64_t operations, lists;
};

static uint64_t word_data[128];

static void execute(struct client *client, struct fabric_command *commands, uint16_t count)
{
    struct fabric_list list = {.node = gaddr_node(commands[0].address), .count = count, .commands = commands};
    struct fabric_list *lists[] = {&list};
    if (fabric_execute(client->endpoint, lists, 1, NULL))
        abort();
    client->lists++;
}

static void lock_and_write(struct client *client, gaddr address, gaddr lock, void *buffer)
{
    struct fabric_command take[] = {
        {.operation = FABRIC_CAS, .address = lock, .cas.compare = 0, .cas.swap = 1, .cas.mask = UINT64_MAX},
        {.operation = FABRIC_READ, .address = address, .length = 1024, .read.buffer = buffer},
    };
    do
        execute(client, take, 2);
    while (take[0].cas.old != 0);
    task_charge(TASK_WORK_LEAF, 64);
    struct fabric_command give[] = {
        {.operation = FABRIC_WRITE, .address = address, .length = 32, .write.data = word_data},
        {.operation = FABRIC_WRITE, .address = lock, .length = 8, .write.data = word_data},
    };
    execute(client, give, 2);
}

static void run_client(void *argument)
{
    struct client *client = argument;
    uint64_t buffer[128];
    for (;; client->operations++) {
        uint64_t draw = random_next(&client->random);
        uint16_t node = (uint16_t)(draw % MACHINES);
        uint64_t page = (draw >> 8) % (POOL_BYTES / 1024 - 1) + 1;
        gaddr address = gaddr_make(node, page * 1024),
              lock = gaddr_make(node, GADDR_LOCK_REGION | page % 8192 * 8);
        task_charge(TASK_WORK_OPERATION, 1);
        task_charge(TASK_WORK_SEARCH, 3);
        if (draw >> 63) {
            lock_and_write(client, address, lock, buffer);
            continue;
        }
        struct fabric_command read = {
            .operation = FABRIC_READ, .address = address, .length = 1024, .read.buffer = buffer};
        execute(client, &read, 1);
        task_charge(TASK_WORK_LEAF, 64);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **arguments)
{
    uint64_t milliseconds = count > 1 ? strtoull(arguments[1], NULL, 10) : 50;
    struct sim *sim = sim_create(NULL, NULL, 1, NULL);
    static struct fabric_target targets[MACHINES];
    static struct client clients[THREADS];
    if (!sim)
        return 1;
    for (int i = 0; i < MACHINES; i++) {
        targets[i] = (struct fabric_target){.pool = aligned_alloc(4096, POOL_BYTES),
                                            .pool_bytes = POOL_BYTES,
                                            .locks = calloc(8192, 8),
                                            .lock_bytes = 65536,
                                            .lock_width = 2};
        if (!targets[i].pool || !targets[i].locks)
            return 1;
        memset(targets[i].pool, 1, POOL_BYTES);
        if (sim_add_memory(sim, &targets[i], NULL) < 0 || sim_add_compute(sim, NULL) < 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        random_seed(&clients[i].random, (uint64_t)i);
        clients[i].endpoint = fabric_endpoint_open(sim_fabric(sim, i % MACHINES), NULL);
        if (!clients[i].endpoint ||
            sim_spawn(sim, i % MACHINES, (unsigned)(i / MACHINES), run_client, &clients[i], NULL) < 0)
            return 1;
    }
    double start = seconds();
    sim_run(sim, milliseconds * 1000000);
    double spent = seconds() - start;
    uint64_t operations = 0, lists = 0;
    for (int i = 0; i < THREADS; i++) {
        operations += clients[i].operations;
        lists += clients[i].lists;
    }
    printf(
        "%.1f M operations/s of virtual time; real: %.0f operations/s, %.0f ns per list, %.0f ns per event\n",
        (double)operations / ((double)milliseconds * 1e3), (double)operations / spent,
        spent * 1e9 / (double)lists, spent * 1e9 / (double)sim_events(sim));
    sim_destroy(sim);
    for (int i = 0; i < MACHINES; i++) {
        free(targets[i].pool);
        free(targets[i].locks);
    }
    return 0;
}
