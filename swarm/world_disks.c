/* world_disks.c - see world_disks.h: disks and their rounds, while there is power. */
#include "swarm/world_disks.h"

#include <stdlib.h>

#include "base/log.h"
#include "disk/manifest.h"
#include "swarm/world_disks_parts.h"
#include "swarm/world_parts.h"

#define STACK_BYTES ((size_t)256 * 1024)
/* A disk that is full has room for so much more, at most. */
#define FULL_ROOM 4096u
#define SLOW_MAX  UINT64_C(20000000)

/* ---- the fiber ---- */

static struct world_disk *disk_of(struct task *task)
{
    return (struct world_disk *)task;
}

static uint64_t now_of(const struct world_disk *disk)
{
    return sim_now(disk->disks->world->sim);
}

static void fiber_go(struct world_disk *disk)
{
    task_set_self(&disk->task);
    const bool more = fiber_resume(disk->fiber);
    task_set_self(NULL);
    if (!more) {
        fiber_destroy(disk->fiber);
        disk->fiber = NULL;
    }
}

/* The time that it waits for may have come; or what it waits for has. */
static void wake(void *argument)
{
    struct world_disk *disk = argument;
    const bool asked = disk->idle && disk->asked;
    if (disk->fiber && (asked || now_of(disk) >= disk->until))
        fiber_go(disk);
}

static void wake_at(struct world_disk *disk, uint64_t time)
{
    struct world *world = disk->disks->world;
    if (sim_at(world->sim, time, wake, disk))
        world_fail(world, BANYAN_ENOMEM, "no memory for an event");
}

static void sleep_here(struct task *task, uint64_t nanoseconds)
{
    struct world_disk *disk = disk_of(task);
    if (disk->hurries)
        return;
    disk->until = now_of(disk) + nanoseconds;
    wake_at(disk, disk->until);
    while (!disk->hurries && now_of(disk) < disk->until)
        fiber_suspend();
}

static void yield_here(struct task *task)
{
    sleep_here(task, 100);
}

static uint64_t now_here(struct task *task)
{
    return now_of(disk_of(task));
}

static void unpark_here(struct task *task)
{
    (void)task; /* it parks by sleeping */
}

static const struct task_ops disk_operations = {
    .park = yield_here, .unpark = unpark_here, .yield = yield_here, .sleep = sleep_here, .now = now_here};

/* ---- rounds ---- */

static uint64_t sync_time(struct world_disk *disk)
{
    const struct world_disk_options *options = &disk->disks->world->options.disk;
    uint64_t time = options->sync_ns / 2 + random_below(&disk->random, options->sync_ns + 1);
    const double dice = random_unit(&disk->random);
    if (dice < options->slow / 10 && !disk->disks->calm)
        time *= 100;
    else if (dice < options->slow || now_of(disk) < disk->slow_until)
        time *= 10;
    return time < SLOW_MAX ? time : SLOW_MAX;
}

void world_disk_round(struct world_disk *disk)
{
    struct memory_status_reply told;
    struct world_disks *disks = disk->disks;
    const uint64_t sync = disk->hurries ? 0 : sync_time(disk);
    const bool full = now_of(disk) < disk->full_until && !disk->hurries;
    disk_simulated_latency(disk->disk, sync, sync / 20);
    disk_simulated_capacity(disk->disk, full ? disk->full_bytes : 0);
    disk->asked = false;
    const uint64_t began = world_kept_round_begin(disks->kept, disk->number);
    persist_disk_round(disk->service);
    memory_node_status(disks->world->memory[disk->number], &told);
    if (disk->left) /* it ends only so that nothing of it is left: power was cut before */
        return;
    disks->met.rounds += told.disk_syncs_total > disk->syncs;
    disks->met.failed += told.disk_syncs_total == disk->syncs;
    if (told.disk_syncs_total > disk->syncs)
        world_kept_round_end(disks->kept, disk->number, began);
    disk->syncs = told.disk_syncs_total;
}

static void disk_main(void *argument)
{
    struct world_disk *disk = argument;
    while (!disk->hurries) {
        disk->until = now_of(disk) + disk->disks->world->options.disk.round_ns;
        wake_at(disk, disk->until);
        disk->idle = true;
        while (!disk->asked && !disk->hurries && now_of(disk) < disk->until)
            fiber_suspend();
        disk->idle = false;
        if (!disk->hurries)
            world_disk_round(disk);
    }
}

void world_disk_finish(struct world_disk *disk)
{
    disk->hurries = true;
    if (disk->disk)
        disk_simulated_latency(disk->disk, 0, 0);
    while (disk->fiber)
        fiber_go(disk);
}

/* ---- the service, as the simulator asks it ---- */

static void asked(void *context)
{
    struct world_disk *disk = context;
    disk->disks->met.persists++;
    disk->asked = true;
    if (disk->idle)
        wake_at(disk, now_of(disk));
}

static void settled(void *context)
{
    const struct world_disk *disk = context;
    sim_settled(disk->disks->world->sim, (int)disk->number);
}

static int later_call(void *context, uint16_t compute_id, const void *request, size_t length, void *reply,
                      size_t capacity, size_t *reply_length, uint64_t *ticket)
{
    const struct world_disk *disk = context;
    struct memory_call call = {.role = MEMORY_ROLE_DATA,
                               .compute_id = compute_id,
                               .request = request,
                               .length = length,
                               .reply = reply,
                               .capacity = capacity,
                               .defers = true};
    int status = memory_node_serve(disk->disks->world->memory[disk->number], &call);
    *reply_length = call.reply_length;
    *ticket = call.ticket;
    return status == MEMORY_DEFERRED ? SIM_LATER : status;
}

static bool later_outcome(void *context, uint64_t ticket, int *status)
{
    const struct world_disk *disk = context;
    return persist_disk_outcome(disk->service, ticket, status);
}

/* ---- what goes wrong ---- */

void world_disks_fault(struct world *world, enum world_disk_fault fault, uint64_t ns)
{
    struct world_disks *disks = world->disks;
    if (!disks || disks->calm)
        return;
    struct random *random = &disks->random;
    struct world_disk *disk = &disks->each[random_below(random, world->options.memory_nodes)];
    const uint64_t until = sim_now(world->sim) + ns;
    switch (fault) {
    case WORLD_DISK_SLOW:
        disk->slow_until = until;
        break;
    case WORLD_DISK_FULL:
        disk->full_until = until;
        disk->full_bytes = disk_used(disk->disk) + 1 + random_below(random, FULL_ROOM);
        break;
    case WORLD_DISK_FAILS: {
        const enum disk_fault kind = random_below(random, 4) ? DISK_FAULT_SYNC : DISK_FAULT_WRITE;
        const uint32_t times = random_below(random, 2) ? 1 : DISK_FAULT_FOR_EVER;
        disk_simulated_fail(disk->disk, kind, (uint32_t)random_below(random, 4), times);
        break;
    }
    }
}

void world_disks_calm(struct world *world)
{
    if (!world->disks)
        return;
    world->disks->calm = true;
    for (unsigned i = 0; i < world->options.memory_nodes; i++) {
        world->disks->each[i].slow_until = 0;
        world->disks->each[i].full_until = 0;
    }
}

/* ---- life ---- */

static int disk_build(struct world_disks *disks, unsigned number)
{
    struct world *world = disks->world;
    struct world_disk *disk = &disks->each[number];
    const struct disk_simulated_options simulated = {.seed = random_next(&disks->random),
                                                     .stale = random_chance(&disks->random, 0.5)};
    disk->disks = disks;
    disk->number = number;
    disk->task.ops = &disk_operations;
    random_seed(&disk->random, random_next(&disks->random));
    disk->disk = disk_simulated_create(&simulated);
    if (!disk->disk)
        return world_fail(world, BANYAN_ENOMEM, "no memory for a simulated disk");
    /* Short files, so that they end often. */
    const struct persist_disk_options options = {.disk = disk->disk,
                                                 .always = world->options.disk.level == WORLD_DISK_ALWAYS,
                                                 .file_bytes = UINT64_C(262144)
                                                               << random_below(&disks->random, 3),
                                                 .seed = 1 + random_next(&disks->random) / 2};
    struct memory_node *node = world->memory[number];
    struct error error = {0};
    /* One that joins later is formatted as the last one of those that there are then. */
    const unsigned count = number < disks->members ? disks->members : number + 1;
    struct manifest manifest;
    int status = memory_node_format(node, WORLD_DISK_CLUSTER, (uint16_t)number, (uint16_t)count, &error);
    if (!status)
        status = persist_disk_create(&disk->service, node, &options, &error);
    if (!status)
        status = manifest_read(disk->disk, &manifest, &error);
    if (status)
        return world_fail(world, status, "a disk: %s", error.text);
    disk->token = manifest.token;
    manifest_free(&manifest);
    persist_disk_listen(disk->service,
                        &(struct persist_disk_listener){.asked = asked, .settled = settled, .context = disk});
    memory_node_register(node, &persist_disk_service, MEMORY_PERSIST, 2, disk->service);
    memory_node_register(node, &persist_disk_bring, MEMORY_BRING, 1, disk->service);
    memory_node_register(node, &persist_disk_journals, MEMORY_JOURNALS, 1, disk->service);
    disk->registered = true;
    return 0;
}

int world_disks_build(struct world *world)
{
    int status = 0;
    if (!world->options.disk.level)
        return 0;
    struct world_disks *disks = world_allocate(1, sizeof *disks);
    disks->world = world;
    disks->members = world->options.memory_nodes - world->options.joins;
    world->disks = disks;
    log_set_level((enum log_level)(LOG_ERROR + 1)); /* disks that fail are no news here */
    random_seed(&disks->random,
                random_mix(world->options.seed ^ UINT64_C(0x6469736b)) ^ random_mix(world->options.dice + 1));
    disks->kept = world_kept_create(world);
    for (unsigned i = 0; i < world->options.memory_nodes && !status; i++)
        status = disk_build(disks, i);
    return status;
}

int world_disks_start(struct world *world)
{
    struct world_disks *disks = world->disks;
    for (unsigned i = 0; disks && i < world->options.memory_nodes; i++) {
        struct world_disk *disk = &disks->each[i];
        const struct sim_later later = {.call = later_call,
                                        .outcome = later_outcome,
                                        .durability = persist_disk_level(disk->service),
                                        .context = disk};
        sim_answer_later(world->sim, (int)i, &later);
        disk->fiber = fiber_create(disk_main, disk, STACK_BYTES);
        if (!disk->fiber)
            return world_fail(world, BANYAN_ENOMEM, "no memory for the fiber of a disk");
        disk->until = sim_now(world->sim);
        wake_at(disk, disk->until);
    }
    return world->error.code;
}

struct world_kept *world_disks_kept(const struct world *world)
{
    return world->disks ? world->disks->kept : NULL;
}

void world_disk_close(struct world_disk *disk)
{
    struct memory_node *node = disk->disks->world->memory[disk->number];
    if (disk->registered) {
        memory_node_unregister(node, &persist_disk_journals, disk->service);
        memory_node_unregister(node, &persist_disk_bring, disk->service);
        memory_node_unregister(node, &persist_disk_service, disk->service);
    }
    disk->registered = false;
    persist_disk_destroy(disk->service);
    disk->service = NULL;
}

void world_disks_free(struct world *world)
{
    struct world_disks *disks = world->disks;
    if (!disks)
        return;
    for (unsigned i = 0; i < world->options.memory_nodes; i++) {
        world_disk_finish(&disks->each[i]);
        world_disk_close(&disks->each[i]);
        disk_close(disks->each[i].disk);
        disk_close(disks->each[i].left);
    }
    world_kept_destroy(disks->kept);
    free(disks);
    world->disks = NULL;
}

void world_disks_met(const struct world *world, struct world_disks_met *met)
{
    *met = world->disks ? world->disks->met : (struct world_disks_met){0};
}
