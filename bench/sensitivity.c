/* sensitivity.c - see sensitivity.h. */
#include "bench/sensitivity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A set of values for all parameters, and a seed: what a cell runs with. */
struct setting {
    int ends[SENSITIVITY_PARAMETERS_MAX];
    uint64_t seed;
};

struct run {
    struct sensitivity *sensitivity;
    struct bench_cells *cells;
    struct setting *settings;
    struct bench_cell *list;
    size_t count, room; /* of the list and of the settings, which stand beside each other */
    void (*progress)(void *context, size_t done, size_t count);
    void *context;
    size_t done; /* cells of the list that have run */
    unsigned jobs;
};

static struct setting point_setting(const struct run *run)
{
    struct setting setting = {.seed = run->sensitivity->plan->config.seed};
    for (unsigned i = 0; i < SENSITIVITY_PARAMETERS_MAX; i++)
        setting.ends[i] = SENSITIVITY_STAYS;
    return setting;
}

/* An end at which the parameter stands anyway is none, so that its cell is the point's. */
static void move_to_end(const struct run *run, struct setting *setting, unsigned parameter, int end)
{
    const struct sensitivity_parameter *of = &run->sensitivity->parameters[parameter];
    bool differs = end >= 0 && (of->ends[end] < of->value || of->ends[end] > of->value);
    setting->ends[parameter] = differs ? end : SENSITIVITY_STAYS;
}

static bool same_setting(const struct setting *a, const struct setting *b)
{
    return a->seed == b->seed && !memcmp(a->ends, b->ends, sizeof a->ends);
}

static bool make_room(struct run *run)
{
    if (run->count < run->room)
        return true;
    size_t room = run->room * 2 + 64;
    struct bench_cell *list = realloc(run->list, room * sizeof *list);
    if (!list)
        return false;
    run->list = list;
    struct setting *settings = realloc(run->settings, room * sizeof *settings);
    if (!settings)
        return false;
    run->settings = settings;
    run->room = room;
    return true;
}

/* The cell, which is put into the list at the first call; NULL: no memory. Good until the next call. */
static const struct bench_cell *cell_for(struct run *run, const struct setting *setting, unsigned preset,
                                         unsigned workload, unsigned distribution)
{
    for (size_t i = 0; i < run->count; i++) {
        const struct bench_cell *cell = &run->list[i];
        if (cell->preset == preset && cell->workload == workload && cell->distribution == distribution &&
            same_setting(&run->settings[i], setting))
            return cell;
    }
    if (!make_room(run))
        return NULL;
    const struct sensitivity *sensitivity = run->sensitivity;
    struct bench_cell *cell = &run->list[run->count];
    *cell = (struct bench_cell){.preset = preset,
                                .workload = workload,
                                .distribution = distribution,
                                .seed = setting->seed,
                                .sim = sensitivity->plan->config.sim};
    for (unsigned i = 0; i < sensitivity->parameter_count; i++) {
        const struct sensitivity_parameter *parameter = &sensitivity->parameters[i];
        if (setting->ends[i] >= 0) /* add_parameter has tried it */
            sensitivity_set(&cell->sim, parameter, setting->ends[i], NULL);
    }
    run->settings[run->count++] = *setting;
    return cell;
}

/* The ratio with that setting, where its two cells have run; else NAN, and they are put into the list. */
static int ask(struct run *run, const struct sensitivity_ratio *ratio, const struct setting *setting,
               double *value)
{
    struct bench_cell_outcome outcomes[2];
    for (int i = 0; i < 2; i++) {
        const struct bench_cell *cell = cell_for(run, setting, i ? ratio->pair.over : ratio->pair.of,
                                                 ratio->workload, ratio->distribution);
        if (!cell)
            return BANYAN_ENOMEM;
        outcomes[i] = cell->outcome;
    }
    *value = NAN;
    if (!outcomes[0].done || !outcomes[1].done)
        return 0;
    double upper = outcomes[0].throughput_mops, lower = outcomes[1].throughput_mops;
    if (ratio->metric == SENSITIVITY_P99) {
        upper = outcomes[1].p99_us;
        lower = outcomes[0].p99_us;
    }
    *value = lower > 0 ? upper / lower : NAN;
    return 0;
}

/* The point, other seeds, and each parameter at each end. */
static int ask_singles(struct run *run)
{
    struct sensitivity *sensitivity = run->sensitivity;
    int status = 0;
    for (unsigned i = 0; i < sensitivity->ratio_count; i++) {
        struct sensitivity_ratio *ratio = &sensitivity->ratios[i];
        struct setting setting = point_setting(run);
        status = ask(run, ratio, &setting, &ratio->point);
        for (unsigned j = 0; j < SENSITIVITY_SEEDS && !status; j++) {
            setting.seed++;
            status = ask(run, ratio, &setting, &ratio->seeds[j]);
        }
        for (unsigned j = 0; j < sensitivity->parameter_count * SENSITIVITY_ENDS && !status; j++) {
            unsigned parameter = j / SENSITIVITY_ENDS, end = j % SENSITIVITY_ENDS;
            setting = point_setting(run);
            move_to_end(run, &setting, parameter, (int)end);
            status = ask(run, ratio, &setting, &ratio->ends[parameter][end]);
        }
        if (status)
            break;
    }
    return status;
}

/* Of each ratio, all parameters at their worst, and all at their best. */
static int ask_together(struct run *run)
{
    struct sensitivity *sensitivity = run->sensitivity;
    int status = 0;
    for (unsigned i = 0; i < sensitivity->ratio_count && !status; i++) {
        struct sensitivity_ratio *ratio = &sensitivity->ratios[i];
        struct setting worst = point_setting(run), best = worst;
        for (unsigned j = 0; j < sensitivity->parameter_count; j++) {
            move_to_end(run, &worst, j, ratio->worst[j]);
            move_to_end(run, &best, j, ratio->best[j]);
        }
        status = ask(run, ratio, &worst, &ratio->pessimistic);
        if (!status)
            status = ask(run, ratio, &best, &ratio->optimistic);
    }
    return status;
}

static void show_progress(void *context, size_t done, size_t count)
{
    const struct run *run = context;
    if (run->progress)
        run->progress(run->context, run->done + done, run->done + count);
}

/* Runs what was asked for, and asks again, for the values. */
static int answer(struct run *run, int (*asked)(struct run *), struct error *error)
{
    int status = asked(run);
    if (status)
        return error_set(error, status, "no memory for the runs");
    status = bench_cells_run(run->cells, run->list + run->done, run->count - run->done, run->jobs,
                             show_progress, run, error);
    run->done = run->count;
    return status ? status : asked(run);
}

static int make_ratios(struct sensitivity *sensitivity, struct error *error)
{
    const struct bench_plan *plan = sensitivity->plan;
    size_t most = (size_t)sensitivity->pair_count * SENSITIVITY_METRICS * plan->workload_count *
                  plan->distribution_count;
    sensitivity->ratios = calloc(most, sizeof *sensitivity->ratios);
    if (!sensitivity->ratios)
        return error_set(error, BANYAN_ENOMEM, "no memory for %zu ratios", most);
    for (unsigned i = 0; i < most; i++) {
        unsigned rest = i;
        struct sensitivity_ratio *ratio = &sensitivity->ratios[sensitivity->ratio_count++];
        ratio->distribution = rest % plan->distribution_count;
        rest /= plan->distribution_count;
        ratio->workload = rest % plan->workload_count;
        rest /= plan->workload_count;
        ratio->metric = rest % SENSITIVITY_METRICS ? SENSITIVITY_P99 : SENSITIVITY_THROUGHPUT;
        ratio->pair = sensitivity->pairs[rest / SENSITIVITY_METRICS];
    }
    return 0;
}

int sensitivity_run(struct sensitivity *sensitivity, const struct bench_plan *plan, unsigned jobs,
                    void (*progress)(void *context, size_t done, size_t count), void *context,
                    struct error *error)
{
    struct run run = {.sensitivity = sensitivity, .jobs = jobs, .progress = progress, .context = context};
    sensitivity->plan = plan;
    int status = make_ratios(sensitivity, error);
    if (!status) {
        run.cells = bench_cells_open(plan, error);
        status = run.cells ? 0 : error->code;
    }
    if (!status)
        status = answer(&run, ask_singles, error);
    for (unsigned i = 0; i < sensitivity->ratio_count && !status; i++)
        sensitivity_judge(&sensitivity->ratios[i], sensitivity->parameter_count);
    if (!status)
        status = answer(&run, ask_together, error);
    sensitivity->runs = run.count;
    bench_cells_close(run.cells);
    free(run.list);
    free(run.settings);
    return status;
}

void sensitivity_free(struct sensitivity *sensitivity)
{
    free(sensitivity->ratios);
    *sensitivity = (struct sensitivity){0};
}
