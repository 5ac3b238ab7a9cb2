/*
 * sensitivity.h - how far the ratios that the benchmark is quoted for depend on what nobody has published:
 * every estimated and calibrated parameter of the simulator goes over its range (sim_params_basis), one at a
 * time, and then all of them together at the ends that are worst, and best, for each ratio.
 *
 * `banyan bench --sensitivity`. A ratio is that of one preset over another in one workload, one distribution
 * and one metric, and says how many times better the first is: throughput over throughput, or the other's p99
 * over its own. Called from a plain thread while the process has no other (bench/cells.h). Costs some
 * 2 x parameters x presets x workloads x distributions runs. The results do not depend on `jobs`.
 */
#ifndef BENCH_SENSITIVITY_H
#define BENCH_SENSITIVITY_H

#include "bench/cells.h"

#define SENSITIVITY_PAIRS_MAX      8
#define SENSITIVITY_PARAMETERS_MAX 64
#define SENSITIVITY_SEEDS          2 /* other seeds that the point is run with */

enum sensitivity_metric { SENSITIVITY_THROUGHPUT, SENSITIVITY_P99, SENSITIVITY_METRICS };
enum sensitivity_end { SENSITIVITY_LOW, SENSITIVITY_HIGH, SENSITIVITY_ENDS };
#define SENSITIVITY_STAYS (-1) /* in place of an end: the parameter keeps its value */

struct sensitivity_parameter {
    const struct sim_param_basis *basis; /* name and source */
    double value;                        /* in the point's runs */
    double ends[SENSITIVITY_ENDS];
};

struct sensitivity_pair {
    unsigned of, over; /* presets of the plan */
};

struct sensitivity_ratio {
    struct sensitivity_pair pair;
    unsigned workload, distribution;
    enum sensitivity_metric metric;
    double point, seeds[SENSITIVITY_SEEDS];
    double ends[SENSITIVITY_PARAMETERS_MAX][SENSITIVITY_ENDS]; /* one parameter at that end */
    /* What sensitivity_judge says of these: for each parameter the end with the lower and with the higher
     * ratio, or SENSITIVITY_STAYS where both ends gave no lower (no higher) one than the point. */
    int worst[SENSITIVITY_PARAMETERS_MAX], best[SENSITIVITY_PARAMETERS_MAX];
    double least, most;             /* of the point and all single ends */
    int least_by, most_by;          /* the parameter that gave it; SENSITIVITY_STAYS: none, it is the point */
    double pessimistic, optimistic; /* all parameters together at their worst, at their best */
};

struct sensitivity {
    const struct bench_plan *plan;
    struct sensitivity_pair pairs[SENSITIVITY_PAIRS_MAX];
    unsigned pair_count;
    struct sensitivity_parameter parameters[SENSITIVITY_PARAMETERS_MAX];
    unsigned parameter_count;
    /* Filled by the run: by pair, metric, workload, distribution. */
    struct sensitivity_ratio *ratios;
    unsigned ratio_count;
    size_t runs; /* how many cells it took */
};

/* "banyan/sherman,sherman/fg+": the presets go into the plan. BANYAN_EINVAL with a message. */
int sensitivity_add_pairs(struct sensitivity *sensitivity, struct bench_plan *plan, const char *names,
                          struct error *error);
/* The parameters that are varied: all that are estimated or calibrated, or those that `only` names, comma
 * separated, whatever their basis. BANYAN_EINVAL with a message that says what is possible. */
int sensitivity_choose(struct sensitivity *sensitivity, const struct sim_params *params, const char *only,
                       struct error *error);
/* Runs all; sensitivity_free also after a failure. `plan` must be checked and live as long. */
int sensitivity_run(struct sensitivity *sensitivity, const struct bench_plan *plan, unsigned jobs,
                    void (*progress)(void *context, size_t done, size_t count), void *context,
                    struct error *error);
void sensitivity_free(struct sensitivity *sensitivity);

/* Gives the parameter the value of that end. */
int sensitivity_set(struct sim_params *params, const struct sensitivity_parameter *parameter, int end,
                    struct error *error);
/* Fills worst to most_by from point and ends. */
void sensitivity_judge(struct sensitivity_ratio *ratio, unsigned parameter_count);
/* How far a parameter moves a ratio: the greater of the factors between its ends and the point, 1 or more. */
double sensitivity_effect(const struct sensitivity_ratio *ratio, unsigned parameter);

#endif
