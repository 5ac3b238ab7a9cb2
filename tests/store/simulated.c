/* simulated.c - see simulated.h. */
#include "simulated.h"

#include "sim/sim.h"

void simulated_options(struct world_options *options, struct random *random, uint64_t seed)
{
    stores_options_default(options);
    options->simulated = true;
    options->seed = seed;
    options->memory_nodes = 1 + (unsigned)random_below(random, 2);
    options->compute_nodes = 2 + (unsigned)random_below(random, 2);
    options->threads = 1 + (unsigned)random_below(random, 2);
    options->fibers = 1 + (unsigned)random_below(random, 3);
    options->pool_bytes = UINT64_C(32) << 20;
    sim_faults_hostile(&options->faults);
}

void simulated_options_losses(struct world_options *options, uint64_t seed)
{
    options->faults.lose = 0.03 / (double)(1 + seed % 30);
    options->faults.lose_ns = 1000u << seed % 8;
}

int simulated_kill(struct world *world, uint64_t seed)
{
    struct random random;
    int status = 0;
    random_seed(&random, seed ^ UINT64_C(0xdead));
    for (unsigned i = 1; i < world->options.compute_nodes && !status; i++)
        status = world_kill_at(world, i, 1000 + random_below(&random, 1500000),
                               20000 + random_below(&random, 200000));
    return status;
}

int simulated_run_losses(struct world *world, void (*work)(struct world_task *task),
                         struct simulated_total *total)
{
    world_begin_losses(world);
    int status = world_run(world, work);
    status = status ? status : world_end_losses(world);
    total->losses += world->sim ? sim_losses(world->sim) : 0;
    return status;
}

void simulated_count(struct simulated_total *total, const struct stores *stores)
{
    const struct world *world = &stores->world;
    struct store_stats stats;
    for (unsigned i = 0; i < world->options.compute_nodes; i++) {
        store_stats(world->computes[i].store, &stats);
        total->written += stats.records_written;
        total->freed += stats.records_freed;
        total->retries += stats.record_retries;
        total->deaths += world->computes[i].dead;
    }
    total->runs++;
    total->lost_bytes += world->lost_bytes;
}
