/*
 * trace.h - a failing run as text for a person: the last operations on the key or node that
 * the failure is about, in virtual time, one column for each fiber that takes part, with the commands that
 * they sent and their results.
 *
 * The plan is run again (twice: first to learn what the failure is about), each time in a process of its own
 * within the given bounds, and recorded in memory shared with it: a run that crashes or is stopped leaves
 * its records so far. Watching changes nothing: it is the same run, with the same hash. The caller's process
 * must have one thread. docs/internals/swarm.md says how a trace is read.
 */
#ifndef SWARM_TRACE_H
#define SWARM_TRACE_H

#include <stdio.h>

#include "swarm/farm.h"

struct swarm_trace_options {
    uint32_t rows_max; /* 0: 200; the last of those chosen */
    bool all;          /* all operations, not only those that concern the failure */
    double seconds_max;
    uint64_t bytes_max;
    const struct swarm_watch *watch; /* sees the run too, in its process. NULL: none */
};

/* Of a plan that does not fail the last operations of all are shown. 0, BANYAN_EABORT (interrupted), or an
 * error of this process's own. */
int swarm_trace_run(const struct swarm_plan *plan, const struct swarm_trace_options *options, FILE *out,
                    struct swarm_outcome *outcome, struct error *error);

#endif
