/*
 * shrink.h - makes a failing plan small: fewer faults, nodes, keys and operations, as long as it still fails.
 *
 * Each step tries simpler plans, some of them at once, each in a process of its own, and goes on from the
 * first that fails in the same way (the same end; a wrong answer may become another wrong answer). A part
 * that is left out shifts everything that follows, so each plan is tried with other dice for network and
 * faults too (swarm_plan.dice). The caller's process must have one thread.
 */
#ifndef SWARM_SHRINK_H
#define SWARM_SHRINK_H

#include "swarm/farm.h"

struct swarm_shrink_options {
    unsigned jobs;         /* at once */
    double minutes;        /* no new attempt after that; 0: no limit */
    uint32_t attempts_max; /* runs; 0: no limit */
    uint32_t dice;         /* other dice tried with each reduction; 0: 3 */
    double seconds_max;    /* of one run */
    uint64_t bytes_max;
    const struct swarm_watch *watch; /* of every run, in its process; NULL: none */
    /* After each improvement: the change in words, and the plan as it is now. May be NULL. */
    void (*progress)(void *context, const char *what, const struct swarm_plan *plan, uint32_t attempts);
    void *context;
};

/* The plan becomes smaller, and *outcome that of its run; a plan that does not fail stays as it is. 0,
 * BANYAN_ENOTFOUND (it does not fail), BANYAN_EABORT (interrupted: the plan is the smallest so far), or an
 * error of this process's own. */
int swarm_shrink(struct swarm_plan *plan, const struct swarm_shrink_options *options,
                 struct swarm_outcome *outcome, struct error *error);

#endif
