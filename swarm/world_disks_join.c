/*
 * world_disks_join.c - memory nodes that join a simulated world with disks (world_disks.h), as operators let
 * them (fabric/remote_grow.c): all members note it on their disks, the home node last; then it is listed;
 * then they note that. Steps are events, since there is no operator whose task could wait; one join after
 * another.
 */
#include "fabric/wire.h"
#include "swarm/world_disks.h"
#include "swarm/world_disks_parts.h"
#include "swarm/world_parts.h"

/* How soon an operator looks again. */
#define LOOK_NS UINT64_C(50000)

static void step(void *argument);

static void step_later(struct world_disks *disks)
{
    struct world *world = disks->world;
    if (sim_at(world->sim, sim_now(world->sim) + LOOK_NS, step, disks))
        world_fail(world, BANYAN_ENOMEM, "no memory for an event");
}

/* What the member says of a note, which it begins to make. */
static int member_tell(struct world_disks *disks, unsigned member, bool *stands)
{
    const unsigned number = disks->joining;
    const struct wire_journals_request request = {.kind = WIRE_JOURNALS,
                                                  .nodes = number + 1,
                                                  .token = disks->each[number].token,
                                                  .joined = disks->listed};
    struct wire_journals_reply reply = {0};
    struct memory_call call = {.role = MEMORY_ROLE_FORMATTER,
                               .request = &request,
                               .length = sizeof request,
                               .reply = &reply,
                               .capacity = sizeof reply};
    const int status = memory_node_serve(disks->world->memory[member], &call);
    *stands = !status && reply.stands;
    return status;
}

/* Whether all have noted it. In the order in which they are told: behind one that has not no other is. */
static int members_tell(struct world_disks *disks, bool *all)
{
    int status = 0;
    *all = true;
    for (unsigned member = disks->joining; member-- > 0 && *all && !status;)
        if (!disks->world->removed || member != disks->world->removed)
            status = member_tell(disks, member, all);
    return status;
}

static void next_begin(struct world_disks *disks)
{
    disks->joining = 0;
    disks->listed = false;
    if (!disks->joins_wanted)
        return;
    disks->joins_wanted--;
    disks->joining = disks->members;
    step_later(disks);
}

/* A member whose disk has failed notes nothing any more: none joins from then on. */
static void step(void *argument)
{
    struct world_disks *disks = argument;
    struct world *world = disks->world;
    bool all = false;
    if (world->off || !disks->joining)
        return;
    int status = members_tell(disks, &all);
    if (status == BANYAN_EBUSY) { /* a checkpoint is prepared there, over what its manifest says */
        all = false;
        status = 0;
    }
    if (status && status != BANYAN_EEXIST) {
        disks->joins_wanted = 0;
        next_begin(disks);
    } else if (status) {
        world_fail(world, status, "memory node %u joins, and its number is another one's", disks->joining);
    } else if (!all) {
        step_later(disks);
    } else if (disks->listed) {
        disks->met.joined++;
        next_begin(disks);
    } else if (sim_memory_join(world->sim, (int)disks->joining, 2 * world->options.faults.lease_ns)) {
        world_fail(world, BANYAN_ENOMEM, "no memory for a memory node that joins");
    } else {
        disks->members++;
        disks->listed = true;
        step_later(disks);
    }
}

void world_disks_join(struct world *world)
{
    struct world_disks *disks = world->disks;
    disks->joins_wanted++;
    if (!disks->joining)
        next_begin(disks);
}
