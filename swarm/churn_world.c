/* churn_world.c - see churn_world.h. */
#include "swarm/churn_world.h"

#include <inttypes.h>
#include <stdio.h>

static void work(struct world_task *task)
{
    const struct churn *churn = task->world->context;
    const struct churn_place place = {.task = task->number, .tasks = task->world->first_count};
    churn_task(&task->driver, churn, &place);
}

static void fill(struct world_task *task)
{
    churn_fill(&task->driver, task->world->context);
}

static void read_all(struct world_task *task)
{
    churn_read_all(&task->driver, task->world->context);
}

int churn_world_fill(struct world *world, struct churn *churn)
{
    churn->seed = world->options.seed;
    world->context = churn;
    return world_run_one(world, 0, fill);
}

int churn_world_work(struct world *world, struct churn *churn)
{
    world->context = churn;
    return world_run(world, work);
}

int churn_world_verify(struct world *world, struct churn *churn, struct tree_check_report *report)
{
    world->context = churn;
    int status = world_run_one(world, world_survivor(world), read_all);
    if (!status)
        status = world_linearize(world);
    return status ? status : world_check(world, report);
}

void churn_total_add(struct churn_total *total, const struct world *world,
                     const struct tree_check_report *report)
{
    struct tree_stats stats;
    struct world_met met;
    world_stats(world, &stats);
    world_met(world, &met);
    total->runs++;
    for (unsigned i = 0; i < world->task_count; i++)
        total->recorded += world->tasks[i].log.count;
    total->operations += stats.operations;
    total->retries += stats.retries;
    total->splits += stats.splits;
    total->unlinks += stats.unlinks;
    total->merges += stats.merges;
    total->handovers += stats.handovers;
    total->snapshot_handovers += stats.snapshot_handovers;
    total->combined += stats.combined;
    total->cache_misses += stats.cache_misses;
    total->dead += report->dead;
    total->marked += report->marked;
    total->missing_parents += report->missing_parents;
    total->marked_at_death += world->marked_at_death;
    total->merging_at_death += world->merging_at_death;
    total->losses += world->sim ? sim_losses(world->sim) : 0;
    total->unreachable += met.unreachable;
    total->unknown += met.unknown;
}

void churn_total_print(const struct churn_total *total, const char *name)
{
    printf("%s: %" PRIu64 " runs, %" PRIu64 " operations (%" PRIu64 " recorded), %" PRIu64
           " retries, %" PRIu64 " splits, %" PRIu64 " unlinks, %" PRIu64 " merges, %" PRIu64
           " handovers (%" PRIu64 " with snapshot), %" PRIu64 " combined, %" PRIu64
           " cache misses; left behind: %" PRIu64 " dead, %" PRIu64 " marked, %" PRIu64
           " without parent, %" PRIu64 " half split and %" PRIu64
           " half merged at a death; connections lost: %" PRIu64 ", with %" PRIu64
           " operations not done and %" PRIu64 " unknown\n",
           name, total->runs, total->operations, total->recorded, total->retries, total->splits,
           total->unlinks, total->merges, total->handovers, total->snapshot_handovers, total->combined,
           total->cache_misses, total->dead, total->marked, total->missing_parents, total->marked_at_death,
           total->merging_at_death, total->losses, total->unreachable, total->unknown);
}

int churn_world_run(struct world *world, struct churn *churn, struct churn_total *total)
{
    int status = churn_world_fill(world, churn);
    if (!status)
        status = churn_world_work(world, churn);
    struct tree_check_report report = {0};
    if (!status)
        status = churn_world_verify(world, churn, &report);
    if (!status && (report.dead || report.marked || report.frozen || report.missing_parents))
        status = world_fail(world, BANYAN_ECORRUPT,
                            "unfinished without any death: %" PRIu64 " dead, %" PRIu64 " marked, %" PRIu64
                            " frozen, %" PRIu64 " without parent",
                            report.dead, report.marked, report.frozen, report.missing_parents);
    churn_total_add(total, world, &report);
    return status;
}
