/* shrink.c - see shrink.h. */
#include "swarm/shrink.h"

int swarm_shrink(struct swarm_plan *plan, const struct swarm_shrink_options *options,
                 struct swarm_outcome *outcome, struct error *error)
{
    return swarm_farm_one(plan, options->seconds_max, options->bytes_max, outcome, error);
}
