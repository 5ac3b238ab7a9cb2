/* world_ranges_change.c - a task that changes who owns what, again and again until world_calm: ranges are
 * split, merged, taken, given away and shared, one change at a time (contract: world_ranges.h). */
#include "base/task.h"
#include "swarm/world_parts.h"
#include "swarm/world_saves.h"

/* Keys of tests are small numbers. */
#define KEYS 512u

static struct fabric_process any_process(struct world_keepers *keepers)
{
    struct world *world = keepers->world;
    unsigned compute = (unsigned)random_below(&keepers->random, world->compute_count);
    if (world_saves_by(world, compute)) /* it has not opened the index */
        compute = 0;
    return fabric_self(world->computes[compute].fabric);
}

static int change(struct world_keepers *keepers, struct tree_session *session, struct tree *tree)
{
    uint8_t key[FORMAT_KEY_MAX];
    uint64_t number = random_below(&keepers->random, KEYS), dice = random_below(&keepers->random, 100);
    size_t length = world_key(keepers->world, number, key);
    struct owner_selection selection = {.tree = tree, .key = key, .key_length = length, .keyed = true};
    if (random_chance(&keepers->random, 0.2))
        selection.keyed = false;
    if (dice < 30)
        return owner_split(keepers->owner, session, tree, key, length);
    if (dice < 40)
        return owner_merge(keepers->owner, session, tree, key, length);
    if (dice < 60)
        return owner_take(keepers->owner, session, &selection, NULL);
    if (dice < 70)
        return owner_share(keepers->owner, session, &selection, NULL);
    if (dice < 74)
        return owner_balance(keepers->owner, session);
    return owner_move(keepers->owner, session, &selection, any_process(keepers), NULL);
}

/* What a change may come to: the map is another's at the moment, there is nothing of the kind, or something
 * could not be reached. */
static bool expected(int status)
{
    switch (status) {
    case 0:
    case BANYAN_ENOTFOUND:
    case BANYAN_ECONFLICT:
    case BANYAN_EINVAL:
    case BANYAN_EKEYSIZE:
    case BANYAN_EBUSY:
    case BANYAN_ENET:
    case BANYAN_ETIMEOUT:
    case BANYAN_EUNKNOWN:
    case BANYAN_EFENCED:
    case BANYAN_ENOSPC:
        return true;
    default:
        return false;
    }
}

void world_ranges_change(struct world_keeper *keeper)
{
    struct world_keepers *keepers = keeper->keepers;
    struct world *world = keepers->world;
    struct tree *tree = world->tasks[keepers->compute * world_tasks_each(world)].tree;
    while (world->options.change_ns && !world->setting.calm_ns && !world->setting.failed) {
        task_sleep(1 + random_below(&keepers->random, 2 * world->options.change_ns));
        if (world->setting.calm_ns || !world->function)
            continue;
        int status = change(keepers, keeper->session, tree);
        keepers->changes += status == 0;
        keepers->failed += status != 0;
        if (!expected(status))
            world_fail(world, status, "changing who owns what: %s: %s", error_name(status),
                       tree_session_error(keeper->session)->text);
    }
}
