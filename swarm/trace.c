/* trace.c - see trace.h. */
#include "swarm/trace.h"

int swarm_trace_run(const struct swarm_plan *plan, const struct swarm_trace_options *options, FILE *out,
                    struct swarm_outcome *outcome, struct error *error)
{
    return swarm_farm_one(plan, options->seconds_max, options->bytes_max, outcome, error);
}
