/* dead_list.c - a list of a dead compute node arrives: it is cut somewhere, or becomes a transfer that is
 * (contract: transfer.h). */
#include "fabric/target.h"
#include "sim/endpoint.h"
#include "sim/link.h"
#include "sim/list.h"
#include "sim/node.h"
#include "sim/observe.h"
#include "sim/state.h"
#include "sim/transfer.h"

/* All at once, cut somewhere, where no faults are on. */
static void run_cut(struct sim *sim, struct fabric_list *list)
{
    const struct fabric_target *target = sim->memories[list->node].target;
    struct sim_connection *connection = sim_list(list)->connection;
    uint32_t cut = (uint32_t)random_below(&sim->dice[SIM_DIE_DEATH], list->count + 1u);
    connection->cut = cut < list->count;
    for (uint32_t i = 0; i < list->count && i <= cut; i++) {
        struct fabric_command *command = &list->commands[i];
        if (!fabric_command_of_node(command, list->node) || fabric_bounds_check(target, command))
            return;
        if (i < cut && command->operation != FABRIC_READ) {
            sim_run_command(sim, list->node, command);
            sim_see_list(sim, SIM_EFFECT, sim_list_task(list), list, i, 1, 0);
        } else if (i == cut && sim_is_long_write(sim, command)) {
            sim_run_prefix(sim, list->node, command);
        }
    }
}

void sim_list_arrive_dead(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                          sim_time posted)
{
    const struct sim_connection *connection = sim_list(list)->connection;
    if (compute->cut || connection->cut || posted > compute->death || sim_list_stale(compute, list))
        return;
    if (!sim->faulty) {
        run_cut(sim, list);
        return;
    }
    sim_time starts[FABRIC_COMMANDS_MAX];
    for (uint16_t i = 0; i < list->count; i++)
        starts[i] = sim->now;
    sim_transfer_start(sim, compute, list, sim->now, starts);
}
