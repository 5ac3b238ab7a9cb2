/* world_drain.c - see world_drain.h. */
#include "swarm/world_drain.h"

#include <inttypes.h>
#include <stdio.h>

#include "memory/request.h"
#include "owner/logs.h"
#include "pool/log.h"
#include "store/balance.h"
#include "swarm/world_parts.h"
#include "swarm/world_ranges.h"

static struct store_balance balance_of(struct world_task *task, uint16_t drain)
{
    const struct world_compute *compute = &task->world->computes[task->compute];
    return (struct store_balance){.session = task->session,
                                  .owner = compute->keepers ? compute->keepers->owner : NULL,
                                  .tree = task->tree,
                                  .store = compute->store,
                                  .drain = drain};
}

int world_drain_any(struct world_task *task, uint64_t dice)
{
    const unsigned nodes = task->world->options.memory_nodes;
    const bool evens = nodes > 1 && dice % 4 == 0, stays = dice / 4 % 4 == 0;
    const uint16_t node = evens ? POOL_ANY_NODE : (uint16_t)(1 + dice / 16 % (nodes > 1 ? nodes - 1 : 1));
    struct store_balance balance = balance_of(task, node);
    if (nodes < 2)
        return 0;
    int status = store_balance_look(&balance);
    if (!status)
        status = store_balance_run(&balance);
    task->driver.unknown += balance.data_unknown;
    /* Others may empty the last one but this, or take its room. */
    if ((status == BANYAN_EINVAL || status == BANYAN_ENOSPC) && !balance.passes)
        return 0;
    if (!evens && !stays) {
        struct pool_session *pool = tree_session_pool(task->session);
        pool_session_begin(pool);
        int back = pool_node_drain(pool, node, false);
        status = status ? status : back;
    }
    return status ? status : balance.data_error.code; /* the driver judges whether that may be */
}

void world_drain_calm(struct world *world)
{
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        memory_node_drain(world->memory[i], false);
}

/* ---- in peace ---- */

struct judged {
    struct world *world;
    void (*work)(void *context, struct world_task *task);
    void *context;
    uint16_t node;
    unsigned drainer; /* the task */
    bool idle;        /* no other task works */
    bool refused;     /* the others have no room */
    struct store_balance_node last;
    gaddr found; /* a block there that something uses */
};

static void drain_here(struct world_task *task, struct judged *judged)
{
    struct store_balance balance = balance_of(task, judged->node);
    int status = store_balance_look(&balance);
    if (!status && store_balance_check(&balance)) {
        judged->refused = true;
        return;
    }
    if (!status)
        status = store_balance_run(&balance);
    task->driver.unknown += balance.data_unknown;
    if (status == BANYAN_ENOSPC && task->world->options.accept_full) {
        judged->refused = true;
        return;
    }
    if (world_session_status(task, status, "empty a memory node") || !judged->idle)
        return;
    const uint64_t left = balance.left[TREE_MOVE_FIRST] + balance.left[TREE_MOVE_OTHERS] +
                          balance.left[TREE_MOVE_FULL] + balance.left[TREE_MOVE_LATER] + balance.keys_left +
                          balance.data_left + balance.data_cut;
    judged->last = balance.nodes[judged->node];
    if (left && !task->world->options.accept_full)
        world_fail(task->world, BANYAN_EBUSY,
                   "%" PRIu64 " nodes stay on memory node %u, of them %" PRIu64
                   " as the first of a range (%.60s), %" PRIu64 " of others, %" PRIu64
                   " without room, and long keys of %" PRIu64 " leaves",
                   left, judged->node, balance.left[TREE_MOVE_FIRST], balance.border_error.text,
                   balance.left[TREE_MOVE_OTHERS], balance.left[TREE_MOVE_FULL], balance.keys_left);
    judged->refused = left > 0 || balance.data_full; /* no run of free blocks is as long as a record */
}

static void drain_or_work(struct world_task *task)
{
    struct judged *judged = task->world->context;
    if (task->number == judged->drainer)
        drain_here(task, judged);
    else if (!judged->idle)
        judged->work(judged->context, task);
}

/* Each worker's blocks go back, by one task of its thread. */
static void give_back(struct world_task *task)
{
    if (!task->fiber)
        pool_worker_return(task->world->computes[task->compute].workers[task->thread]);
}

static void settle(struct world_task *task)
{
    world_ranges_settle(task);
}

static void block_note(void *context, gaddr block, uint32_t bytes)
{
    struct judged *judged = context;
    (void)bytes;
    if (gaddr_node(block) == judged->node)
        judged->found = block;
}

static void look(struct world_task *task)
{
    struct judged *judged = task->world->context;
    struct store_check_report report = {0};
    int status = task->store_session
                     ? store_check(task->store_session, &report, block_note, judged)
                     : tree_check(task->session, task->tree, &report.tree, block_note, judged);
    if (!world_session_status(task, status, "check"))
        world_ranges_check(task, block_note, judged);
}

static int judge(struct judged *judged)
{
    struct world *world = judged->world;
    char text[GADDR_TEXT_BYTES];
    int status = world_run_one(world, judged->drainer, look);
    if (!status && judged->found)
        return world_fail(world, BANYAN_ECORRUPT, "memory node %u was emptied, and %s is in use",
                          judged->node, gaddr_format(judged->found, text));
    for (unsigned i = 0; i < world->compute_count && !status; i++)
        for (unsigned thread = 0; thread < world->options.threads && !world->computes[i].dead; thread++)
            pool_worker_each_free(world->computes[i].workers[thread], block_note, judged);
    if (!status && judged->found)
        return world_fail(world, BANYAN_ECORRUPT, "memory node %u was emptied, and a worker holds %s",
                          judged->node, gaddr_format(judged->found, text));
    return status;
}

/* ---- and leaves ---- */

/* Each compute node hears of a change within this. */
#define HEAR_NS UINT64_C(200000)
#define LOOK_NS UINT64_C(50000)

/* No new thing is put there any more: every compute node that lives knows that it leaves. */
static bool all_know(const struct world *world, uint16_t node)
{
    bool known = true;
    for (unsigned i = 0; i < world->compute_count; i++)
        known &= !sim_compute_alive(world->sim, (int)i) ||
                 fabric_membership(world->computes[i].fabric, node) == FABRIC_LEAVING;
    return known;
}

/* As `check --reclaim` does (store/audit.h): the logs of a process that is gone are given back, on all memory
 * nodes, if no range needs them. */
static int log_end(struct world_task *task, struct fabric_process process)
{
    struct world *world = task->world;
    bool named = true;
    int status =
        world_process_lives(world, process) ? 0 : owner_logs_named(task->session, &process, 1, &named);
    for (uint16_t i = 0; i < world->options.memory_nodes && !named && !status; i++)
        status = pool_log_release(tree_session_pool(task->session), i, process);
    if (status == BANYAN_EBUSY) /* it is not fenced there yet */
        return 0;
    world->logs_ended += !named && !status;
    return status;
}

static int logs_end(struct world_task *task, uint16_t node)
{
    struct pool_session *pool = tree_session_pool(task->session);
    struct memory_log_processes page;
    int status = pool_log_processes(pool, node, 0, &page); /* a world has fewer than a page of them */
    for (uint32_t i = 0; i < page.count && !status; i++) {
        const struct memory_board_process *process = &page.processes[i].process;
        status = log_end(
            task, (struct fabric_process){.instance = process->instance, .compute_id = process->compute_id});
    }
    return status;
}

/* Owners give their logs there back, now that it leaves; those of the dead are ended. */
static void logs_await(struct world_task *task)
{
    struct world *world = task->world;
    struct judged *judged = world->context;
    struct pool_session *pool = tree_session_pool(task->session);
    const uint64_t deadline = task_now() + HEAR_NS + world->setting.patience_ns;
    struct memory_status_reply reply = {0};
    bool known;
    int status;
    do {
        task_sleep(LOOK_NS);
        pool_session_begin(pool);
        status = logs_end(task, judged->node);
        if (!status)
            status = pool_node_status(pool, judged->node, &reply);
        known = all_know(world, judged->node);
    } while (!status && (reply.log_bytes || !known) && task_now() < deadline);
    if (world_session_status(task, status, "look at a memory node that leaves"))
        return;
    judged->refused = !known;
    if (reply.log_bytes && known)
        world_fail(world, BANYAN_EBUSY, "memory node %u leaves, and has %" PRIu64 " bytes of logs still",
                   judged->node, reply.log_bytes);
}

static void work_on(struct world_task *task)
{
    const struct judged *judged = task->world->context;
    judged->work(judged->context, task);
}

/* It leaves and is removed; what compute nodes have cached leads there still while they work on. */
static int leave(struct judged *judged)
{
    struct world *world = judged->world;
    if (sim_memory_leave(world->sim, judged->node, false, HEAR_NS))
        return world_fail(world, BANYAN_ENOMEM, "no memory for a memory node that leaves");
    int status = world_run_one(world, judged->drainer, logs_await);
    if (judged->refused)
        return status;
    world->removed = status ? 0 : judged->node;
    if (!status && sim_memory_leave(world->sim, judged->node, true, HEAR_NS))
        status = world_fail(world, BANYAN_ENOMEM, "no memory for a memory node that is removed");
    world->mended = false; /* as beside the drain */
    if (!status)
        status = world_run(world, work_on);
    return status ? status : world_run(world, settle);
}

int world_drain_judged(struct world *world, uint16_t node,
                       void (*work)(void *context, struct world_task *task), void *context, bool *done)
{
    struct judged judged = {
        .world = world, .work = work, .context = context, .node = node, .drainer = world_survivor(world)};
    void *before = world->context;
    int status = 0;
    *done = false;
    for (unsigned i = 0; i < 2 && !status && !judged.refused; i++) {
        judged.idle = i > 0;
        /* Ranges change hands, so owners may be found not to answer in time. */
        world->mended = judged.idle;
        world->context = &judged;
        status = world_run(world, drain_or_work);
        if (!status)
            status = world_run(world, settle);
        if (!status)
            status = world_run(world, give_back);
    }
    if (!status && !judged.refused) {
        status = judge(&judged);
        *done = !status;
    }
    if (*done && world->options.simulated)
        status = leave(&judged);
    world->context = before;
    world->mended = true;
    world_drain_calm(world);
    return status;
}
