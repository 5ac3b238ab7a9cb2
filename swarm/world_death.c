/* world_death.c - compute nodes of a simulated world die, and others take their places (contract: world.h).
 */
#include <stdlib.h>

#include "base/task.h"
#include "format/header.h"
#include "swarm/world_parts.h"
#include "swarm/world_saves.h"

/* A death or restart to come. Owned by the world, since it may never happen. */
struct world_event {
    struct world_event *next;
    struct world *world;
    unsigned compute;
    uint64_t lease_ns;
    unsigned waits; /* for the death of the node that is to be replaced */
};

static struct world_event *event_make(struct world *world, unsigned compute, uint64_t lease_ns)
{
    struct world_event *event = world_allocate(1, sizeof *event);
    *event =
        (struct world_event){.next = world->events, .world = world, .compute = compute, .lease_ns = lease_ns};
    world->events = event;
    return event;
}

void world_events_free(struct world *world)
{
    for (struct world_event *event = world->events, *next; event; event = next) {
        next = event->next;
        free(event);
    }
}

static uint16_t compute_id(const struct world *world, unsigned compute)
{
    return world->computes[compute].fabric->capabilities.compute_id;
}

struct marked_count {
    struct world *world;
    struct format_layout layout;
};

static void count_marked(void *context, gaddr block, uint32_t block_bytes)
{
    struct marked_count *count = context;
    struct world *world = count->world;
    struct format_header header;
    const uint8_t *bytes = memory_node_target(world->memory[gaddr_node(block)])->pool + gaddr_offset(block);
    if (block_bytes == world->options.geometry.leaf_bytes &&
        format_header_decode(&count->layout, bytes, &header) && header.level == 0) {
        world->marked_at_death += header.state == FORMAT_NODE_SPLITTING;
        world->merging_at_death += header.state == FORMAT_NODE_FROZEN || header.state == FORMAT_NODE_MERGING;
    }
}

static void count_all_marked(struct world *world)
{
    struct marked_count count = {.world = world};
    struct error error;
    if (format_layout_init(&count.layout, &world->options.geometry, &error))
        return;
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        memory_node_each_used(world->memory[i], count_marked, &count);
    format_layout_free(&count.layout);
}

static void after_fencing(void *argument)
{
    const struct world_event *death = argument;
    struct world *world = death->world;
    count_all_marked(world);
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        memory_node_release_locks(world->memory[i], compute_id(world, death->compute));
    world->computes[death->compute].dead = true;
    world_maybe_done(world);
}

static void die(void *argument)
{
    const struct world_event *death = argument;
    if (sim_compute_alive(death->world->sim, (int)death->compute))
        sim_kill_compute(death->world->sim, (int)death->compute, death->lease_ns, after_fencing, argument);
}

int world_kill_at(struct world *world, unsigned compute, uint64_t delay_ns, uint64_t lease_ns)
{
    struct world_event *death = event_make(world, compute, lease_ns);
    return sim_at(world->sim, sim_now(world->sim) + delay_ns, die, death);
}

void world_kill_at_effect(struct world *world, unsigned compute, uint64_t effects, uint64_t lease_ns)
{
    struct world_event *death = event_make(world, compute, lease_ns);
    sim_kill_compute_at(world->sim, (int)compute, effects, lease_ns, after_fencing, death);
}

/* The first task of a new compute node opens the index for all of them, then joins the run. */
static void join_run(struct world_task *task)
{
    struct world *world = task->world;
    struct world_compute *compute = &world->computes[task->compute];
    int status = BANYAN_ENET;
    while (status == BANYAN_ENET && !driver_stopped(&task->driver)) {
        status = compute->tree ? 0 : tree_open(task->session, "test", &compute->tree);
        if (!status)
            status = world_ranges_attach(task);
        if (status == BANYAN_ENET && world_lossy(world))
            task_sleep(world->setting.pause_ns);
        else if (world_session_status(task, status, "open"))
            return;
    }
    if (status || world_equip_tasks(world, task->compute) || world_ranges_start(world, task->compute) ||
        !world->function)
        return;
    for (unsigned i = 1; i < world_tasks_each(world); i++) {
        world->tasks[task->number + i].function = world->function;
        world->tasks[task->number + i].returned = false;
        if (world_spawn(world, task->number + i))
            world_fail(world, BANYAN_ENOMEM, "no memory for a task");
    }
    world->function(task);
}

static int restart(struct world *world, unsigned dead)
{
    unsigned number = world->compute_count;
    if (number == WORLD_COMPUTE_MAX || number == world->options.compute_nodes + world->options.restarts)
        return 0; /* as many as were asked for */
    int index = sim_restart_compute(world->sim, (int)dead, &world->error);
    if (index < 0)
        return index;
    struct world_compute *compute = &world->computes[number];
    world->computes[dead].replaced = true;
    compute->fabric = sim_fabric(world->sim, index);
    world->compute_count++;
    int status = world_build_compute(world, compute);
    for (unsigned i = 0; i < world_tasks_each(world) && !status; i++) {
        status = world_build_task(world, world->task_count++);
    }
    if (status)
        return status;
    world->tasks[number * world_tasks_each(world)].function = join_run;
    world->tasks[number * world_tasks_each(world)].returned = false;
    return world_spawn(world, number * world_tasks_each(world));
}

/* The node that is to be replaced may die later than planned, or never: the wait for it has an end. */
#define RESTART_WAITS   200u
#define RESTART_WAIT_NS 20000u

static void restart_now(void *argument)
{
    struct world_event *again = argument;
    struct world *world = again->world;
    bool alive = sim_compute_alive(world->sim, (int)again->compute);
    bool peace = world->setting.calm_ns || !world->function;
    if (world->computes[again->compute].replaced || driver_stopped(&world->tasks[0].driver) ||
        (alive && (peace || again->waits == RESTART_WAITS)))
        return;
    if (!world->computes[again->compute].dead) { /* its death is yet to come, or it is not fenced yet */
        again->waits += alive;
        if (sim_at(world->sim, sim_now(world->sim) + RESTART_WAIT_NS, restart_now, again))
            world_fail(world, BANYAN_ENOMEM, "no memory for an event");
        return;
    }
    /* The last place is kept for world_revive. */
    bool room = world->compute_count + 1 < world->options.compute_nodes + world->options.restarts;
    int status = room ? restart(world, again->compute) : 0;
    if (status)
        world_fail(world, status, "a compute node cannot be replaced: %s", error_name(status));
}

int world_restart_at(struct world *world, unsigned compute, uint64_t delay_ns)
{
    struct world_event *again = event_make(world, compute, 0);
    return sim_at(world->sim, sim_now(world->sim) + delay_ns, restart_now, again);
}

bool world_any_dead(const struct world *world)
{
    for (unsigned i = 0; i < world->compute_count; i++)
        if (world->computes[i].dead)
            return true;
    return false;
}

/* Lives, and has opened the index. */
static bool is_survivor(const struct world *world, unsigned compute)
{
    return !world->computes[compute].dead && world->tasks[compute * world_tasks_each(world)].tree;
}

bool world_process_lives(const struct world *world, struct fabric_process process)
{
    for (unsigned i = 0; i < world->compute_count; i++) {
        const struct fabric *fabric = world->computes[i].fabric;
        if (fabric && sim_compute_alive(world->sim, (int)i) &&
            fabric_process_equal(fabric_self(fabric), process))
            return true;
    }
    return false;
}

unsigned world_survivor(const struct world *world)
{
    unsigned survivor = 0;
    while (survivor + 1 < world->compute_count && !is_survivor(world, survivor))
        survivor++;
    return survivor * world_tasks_each(world);
}

int world_revive(struct world *world)
{
    if (is_survivor(world, world_survivor(world) / world_tasks_each(world)))
        return 0;
    unsigned last = world->compute_count - 1;
    while (last && world_saves_by(world, last) && !world->computes[last].dead)
        last--;
    int status = restart(world, last);
    if (status)
        return world_fail(world, status, "no compute node lives, and none can be replaced: %s",
                          error_name(status));
    /* A phase of its own: of the run before, the events may be few that were left to a cut of power. */
    sim_limit_events(world->sim, world->options.events_max);
    unsigned stuck = sim_run(world->sim, UINT64_MAX);
    if (world->options.ranges)
        stuck = world_unfinished(world);
    if (stuck)
        return world_fail_stuck(world, stuck, 0);
    return is_survivor(world, world_survivor(world) / world_tasks_each(world))
               ? world->error.code
               : world_fail(world, BANYAN_EBUSY, "no compute node lives, and no more can be replaced");
}
