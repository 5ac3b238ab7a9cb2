/* world_saves.c - see world_saves.h. */
#include "swarm/world_saves.h"

#include "base/task.h"
#include "save/save.h"
#include "swarm/world_disks_parts.h"
#include "swarm/world_parts.h"

/* For merging, and for a disk: memory nodes and owners that are gone answer later, or never. */
#define WAIT_NS UINT64_C(20000000)

static bool goes_on(const struct world *world)
{
    return !world->setting.calm_ns && !world->setting.failed && !world->off;
}

static bool cancelled(void *context)
{
    const struct world *world = context;
    return world->setting.failed || world->off;
}

/* What says that the code under test is wrong, whatever goes wrong around it. BANYAN_EINVAL is what a maker
 * hears that was fenced and cannot ask who holds the memory node: that one has dropped what it had begun. */
static bool impossible(int status)
{
    return status == BANYAN_ECORRUPT || status == BANYAN_EADDRESS;
}

static void save(struct world_keeper *keeper)
{
    struct world_keepers *keepers = keeper->keepers;
    struct world *world = keepers->world;
    const struct save_options options = {.copies = 1 + (uint32_t)random_below(&keepers->random, 2),
                                         .part_bytes = UINT64_C(512) << random_below(&keepers->random, 10),
                                         .wait_ns = WAIT_NS,
                                         .cancelled = cancelled,
                                         .context = world};
    struct save_stats stats;
    struct error error = {0};
    const unsigned members = world->disks->members;
    const int status = save_make(keepers->owner, keeper->session, &options, &stats, &error);
    /* As one of a process that ends: nothing of a memory node that is emptied is held back. */
    pool_worker_return(world->computes[keepers->compute].workers[0]);
    world->disks->met.saved += !status;
    world->disks->met.saved_beside += !status && world->disks->members != members;
    if (impossible(status))
        world_fail(world, status, "a checkpoint: %s", error.text);
}

void world_saves_make(struct world_keeper *keeper)
{
    struct world_keepers *keepers = keeper->keepers;
    struct world *world = keepers->world;
    while (goes_on(world)) {
        task_sleep(1 + random_below(&keepers->random, 2 * world->options.disk.save_ns));
        if (goes_on(world) && world->function)
            save(keeper);
    }
}
