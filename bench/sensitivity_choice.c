/* sensitivity_choice.c - what is compared, what is varied, and which end of a range is the worst (contract:
 * sensitivity.h). */
#include "bench/sensitivity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is varied ---- */

static int find_preset(struct bench_plan *plan, const char *name, unsigned *index, struct error *error)
{
    for (*index = 0; *index < plan->preset_count; ++*index)
        if (!strcmp(plan->presets[*index].name, name))
            return 0;
    return bench_plan_add_presets(plan, name, error);
}

static int add_pair(struct sensitivity *sensitivity, struct bench_plan *plan, char *text, struct error *error)
{
    struct sensitivity_pair pair;
    char *slash = strchr(text, '/');
    if (!slash)
        return error_set(error, BANYAN_EINVAL, "--of: '%.60s' is not a pair of presets, like banyan/sherman",
                         text);
    if (sensitivity->pair_count == SENSITIVITY_PAIRS_MAX)
        return error_set(error, BANYAN_EINVAL, "--of: at most %d pairs", SENSITIVITY_PAIRS_MAX);
    *slash = 0;
    int status = find_preset(plan, text, &pair.of, error);
    if (!status)
        status = find_preset(plan, slash + 1, &pair.over, error);
    if (!status && pair.of == pair.over)
        status = error_set(error, BANYAN_EINVAL, "--of: '%.60s' over itself is always 1", text);
    if (!status)
        sensitivity->pairs[sensitivity->pair_count++] = pair;
    return status;
}

int sensitivity_add_pairs(struct sensitivity *sensitivity, struct bench_plan *plan, const char *names,
                          struct error *error)
{
    char *copy = strdup(names), *rest = copy;
    int status = copy ? 0 : error_set(error, BANYAN_ENOMEM, "no memory");
    while (!status && rest)
        status = add_pair(sensitivity, plan, strsep(&rest, ","), error);
    free(copy);
    return status;
}

static double get_value(const struct sim_params *params, const char *name)
{
    const struct option_entry *entry = option_find(sim_params_table, name);
    const char *field = (const char *)params + entry->offset;
    if (entry->kind == OPTION_BOOL)
        return *(const bool *)field;
    return entry->kind == OPTION_U32 ? *(const uint32_t *)(const void *)field
                                     : *(const double *)(const void *)field;
}

int sensitivity_set(struct sim_params *params, const struct sensitivity_parameter *parameter, int end,
                    struct error *error)
{
    char text[40];
    snprintf(text, sizeof text, "%.9g", parameter->ends[end]);
    return option_set(sim_params_table, params, parameter->basis->name, text, error);
}

static int add_parameter(struct sensitivity *sensitivity, const struct sim_params *params,
                         const struct sim_param_basis *basis, struct error *error)
{
    struct sensitivity_parameter parameter = {
        .basis = basis, .value = get_value(params, basis->name), .ends = {basis->low, basis->high}};
    for (unsigned i = 0; i < sensitivity->parameter_count; i++)
        if (sensitivity->parameters[i].basis == basis)
            return error_set(error, BANYAN_EINVAL, "--only: '%s' is named twice", basis->name);
    if (sensitivity->parameter_count == SENSITIVITY_PARAMETERS_MAX)
        return error_set(error, BANYAN_EINVAL, "more than %d parameters to vary", SENSITIVITY_PARAMETERS_MAX);
    for (int end = 0; end < SENSITIVITY_ENDS; end++) {
        struct sim_params trial = *params;
        int status = sensitivity_set(&trial, &parameter, end, error);
        if (!status)
            status = sim_params_check(&trial, error);
        if (status)
            return status;
    }
    sensitivity->parameters[sensitivity->parameter_count++] = parameter;
    return 0;
}

static int refuse_name(const char *name, struct error *error)
{
    return error_set(error, BANYAN_EINVAL,
                     "--only: '%.40s' is not a parameter with a range, as wire-ns is one; --sim help shows "
                     "those that have one, and the range",
                     name);
}

static int add_named(struct sensitivity *sensitivity, const struct sim_params *params, const char *only,
                     struct error *error)
{
    char *copy = strdup(only), *rest = copy;
    int status = copy ? 0 : error_set(error, BANYAN_ENOMEM, "no memory");
    while (!status && rest) {
        const char *name = strsep(&rest, ",");
        const struct sim_param_basis *basis = sim_param_basis_find(name);
        status = basis && basis->low < basis->high ? add_parameter(sensitivity, params, basis, error)
                                                   : refuse_name(name, error);
    }
    free(copy);
    return status;
}

int sensitivity_choose(struct sensitivity *sensitivity, const struct sim_params *params, const char *only,
                       struct error *error)
{
    if (only)
        return add_named(sensitivity, params, only, error);
    int status = 0;
    for (const struct sim_param_basis *row = sim_params_basis; row->name && !status; row++)
        if (row->basis != SIM_PUBLISHED && row->low < row->high)
            status = add_parameter(sensitivity, params, row, error);
    return status;
}

/* ---- judging ---- */

void sensitivity_judge(struct sensitivity_ratio *ratio, unsigned parameter_count)
{
    ratio->least = ratio->most = ratio->point;
    ratio->least_by = ratio->most_by = SENSITIVITY_STAYS;
    for (unsigned i = 0; i < parameter_count; i++) {
        double low = ratio->point, high = low;
        ratio->worst[i] = ratio->best[i] = SENSITIVITY_STAYS;
        for (int end = 0; end < SENSITIVITY_ENDS; end++) {
            double value = ratio->ends[i][end];
            if (value < low) {
                low = value;
                ratio->worst[i] = end;
            }
            if (value > high) {
                high = value;
                ratio->best[i] = end;
            }
        }
        if (low < ratio->least) {
            ratio->least = low;
            ratio->least_by = (int)i;
        }
        if (high > ratio->most) {
            ratio->most = high;
            ratio->most_by = (int)i;
        }
    }
}

double sensitivity_effect(const struct sensitivity_ratio *ratio, unsigned parameter)
{
    double effect = 1;
    for (int end = 0; end < SENSITIVITY_ENDS; end++) {
        double value = ratio->ends[parameter][end];
        if (value > 0 && ratio->point > 0)
            effect = fmax(effect, value > ratio->point ? value / ratio->point : ratio->point / value);
    }
    return effect;
}
