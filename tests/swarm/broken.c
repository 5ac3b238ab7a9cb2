/* broken.c - see broken.h. */
#include "broken.h"

#include <stdlib.h>
#include <string.h>

/* Of this process's one run: a subject has no context of its own. */
static const struct broken *how;
static struct subject_ops ops;
static unsigned put_count, of_task[256];

static void spoil(void *context, gaddr block, uint32_t bytes)
{
    struct world *world = context;
    uint8_t *at = memory_node_target(world->memory[gaddr_node(block)])->pool + gaddr_offset(block);
    if (bytes == world->options.geometry.leaf_bytes)
        memset(at, 0x5a, 4); /* its check */
}

static void break_down(struct world_task *task)
{
    switch (how->kind) {
    case BROKEN_DIES:
        abort();
    case BROKEN_HANGS:
        for (volatile unsigned turns = 0;; turns++)
            ;
    case BROKEN_EATS:
        for (;;) {
            void *volatile room = malloc(1 << 20);
            if (room)
                memset(room, 1, 1 << 20);
        }
    case BROKEN_SPOILS:
        memory_node_each_used(task->world->memory[0], spoil, task->world);
        break;
    case BROKEN_NOT:
    case BROKEN_LIES:
        break;
    }
}

static int one(void *session, struct subject_call *call)
{
    struct world_task *task = session;
    uint64_t key = driver_key_number(&task->world->setting.shape, call->key, call->key_length);
    if (call->kind != HISTORY_PUT || (how->key != UINT64_MAX && how->key != key))
        return subject_tree.one(session, call);
    if (how->kind == BROKEN_LIES)
        return ++of_task[task->number] % 2 == 0 ? 0 : subject_tree.one(session, call);
    if (++put_count == 3)
        break_down(task);
    return subject_tree.one(session, call);
}

static void begin(void *context, struct world *world)
{
    how = context;
    put_count = 0;
    memset(of_task, 0, sizeof of_task);
    ops = subject_tree;
    ops.one = one;
    for (unsigned i = 0; i < world->task_count && how->kind != BROKEN_NOT; i++)
        world->tasks[i].driver.subject = &ops;
}

struct swarm_watch broken_watch(const struct broken *broken)
{
    return (struct swarm_watch){.begin = begin, .context = (void *)(uintptr_t)broken};
}

void broken_plan(struct swarm_plan *plan)
{
    swarm_plan_default(plan);
    plan->seed = 7;
    plan->compute_nodes = 2;
    plan->fibers = 2;
    plan->keys = 80;
    plan->window = 10;
    plan->rounds = 80;
    plan->hot = 80;
    plan->faults.torn_reads = plan->faults.torn_writes = plan->faults.spread = 0.3;
    plan->faults.tear_window_ns = plan->faults.list_spread_ns = 1000;
    plan->faults.fiber_stall = 0.01;
    plan->faults.fiber_stall_ns = 20000;
}
