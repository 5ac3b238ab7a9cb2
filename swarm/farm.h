/*
 * farm.h - many runs, each in a process of its own: an assertion, a signal, endless memory or endless time
 * breaks one seed's run alone.
 *
 * The caller's process forks for every seed; it must have one thread. Costs about a millisecond a seed beside
 * the run.
 */
#ifndef SWARM_FARM_H
#define SWARM_FARM_H

#include "swarm/run.h"

enum swarm_end {
    SWARM_SOUND,
    SWARM_FAILED,  /* the judges found something: result.what */
    SWARM_CRASHED, /* the process ended by a signal, or without a word */
    SWARM_TIMEOUT, /* ran for longer than seconds_max */
    SWARM_MEMORY,  /* took more than bytes_max */
};
const char *swarm_end_name(enum swarm_end end);

struct swarm_outcome {
    uint64_t seed;
    enum swarm_end end;
    struct swarm_result result; /* all 0 but `what` where the process ended before it had one */
    char words[600];            /* the end of its standard error */
    double seconds;
};

struct swarm_farm {
    uint64_t from, to; /* seeds, both included; UINT64_MAX: without end */
    unsigned jobs;     /* at once; 1 to 256 */
    double minutes;    /* starts no seed after that; 0: no limit */
    double seconds_max;
    uint64_t bytes_max;
    bool fail_fast;                  /* starts no seed after a failure */
    const struct swarm_watch *watch; /* of every run, in its own process; NULL: none */
    /* The plan of a seed, to be freed by swarm_plan_free. Called in the seed's own process. */
    int (*plan)(void *context, uint64_t seed, struct swarm_plan *plan, struct error *error);
    /* For each seed that has ended, in the caller's process. False: no more. */
    bool (*report)(void *context, const struct swarm_outcome *outcome);
    void *context;
};

/* All seeds; a SIGINT or SIGTERM ends it early, once those under way are killed. 0, BANYAN_EABORT (ended
 * early), or an error of this process's own. */
int swarm_farm_run(const struct swarm_farm *farm, struct error *error);
/* One plan in a process of its own; watch may be NULL. */
int swarm_farm_one(const struct swarm_plan *plan, const struct swarm_watch *watch, double seconds_max,
                   uint64_t bytes_max, struct swarm_outcome *outcome, struct error *error);

#endif
