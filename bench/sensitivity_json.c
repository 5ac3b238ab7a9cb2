/* sensitivity_json.c - a sensitivity run for programs; see sensitivity_report.h, and docs/benchmarks.md for
 * the names. */
#include "bench/sensitivity_report.h"

#include "bench/config_json.h"
#include "bench/json_numbers.h"
#include "bench/report.h"

static json_t *parameter_json(const struct sensitivity_parameter *parameter)
{
    json_t *json = json_object();
    json_object_set_new(json, "name", json_string(parameter->basis->name));
    json_object_set_new(json, "basis", json_string(sim_basis_name(parameter->basis->basis)));
    json_object_set_new(json, "source", json_string(parameter->basis->source));
    json_object_set_new(json, "value", json_finite(parameter->value));
    json_object_set_new(json, "low", json_finite(parameter->ends[SENSITIVITY_LOW]));
    json_object_set_new(json, "high", json_finite(parameter->ends[SENSITIVITY_HIGH]));
    return json;
}

/* What one extreme of the band is, and which parameter gave it (null: none, it is the point). */
static json_t *extreme_json(const struct sensitivity *sensitivity, double value, int by)
{
    json_t *json = json_object();
    json_object_set_new(json, "ratio", json_finite(value));
    json_object_set_new(json, "by",
                        by >= 0 ? json_string(sensitivity->parameters[by].basis->name) : json_null());
    return json;
}

/* All parameters together at the chosen ends: the ratio, and the values of those that moved. */
static json_t *together_json(const struct sensitivity *sensitivity, double value, const int *ends)
{
    json_t *json = json_object(), *values = json_object();
    for (unsigned i = 0; i < sensitivity->parameter_count; i++)
        if (ends[i] >= 0)
            json_object_set_new(values, sensitivity->parameters[i].basis->name,
                                json_finite(sensitivity->parameters[i].ends[ends[i]]));
    json_object_set_new(json, "ratio", json_finite(value));
    json_object_set_new(json, "values", values);
    return json;
}

static json_t *singles_json(const struct sensitivity *sensitivity, const struct sensitivity_ratio *ratio)
{
    json_t *json = json_array();
    unsigned order[SENSITIVITY_PARAMETERS_MAX];
    sensitivity_sort(sensitivity, ratio, 1, order);
    for (unsigned i = 0; i < sensitivity->parameter_count; i++) {
        json_t *row = json_object();
        json_object_set_new(row, "name", json_string(sensitivity->parameters[order[i]].basis->name));
        json_object_set_new(row, "low", json_finite(ratio->ends[order[i]][SENSITIVITY_LOW]));
        json_object_set_new(row, "high", json_finite(ratio->ends[order[i]][SENSITIVITY_HIGH]));
        json_array_append_new(json, row);
    }
    return json;
}

static json_t *ratio_json(const struct sensitivity *sensitivity, const struct sensitivity_ratio *ratio)
{
    const struct bench_plan *plan = sensitivity->plan;
    json_t *json = json_object(), *seeds = json_array();
    for (unsigned i = 0; i < SENSITIVITY_SEEDS; i++)
        json_array_append_new(seeds, json_finite(ratio->seeds[i]));
    json_object_set_new(json, "of", json_string(plan->presets[ratio->pair.of].name));
    json_object_set_new(json, "over", json_string(plan->presets[ratio->pair.over].name));
    json_object_set_new(json, "workload", json_string(plan->workloads[ratio->workload].name));
    json_object_set_new(json, "distribution",
                        json_string(workload_distribution_names[plan->distributions[ratio->distribution]]));
    json_object_set_new(json, "metric", json_string(sensitivity_metric_name(ratio->metric)));
    json_object_set_new(json, "point", json_finite(ratio->point));
    json_object_set_new(json, "other_seeds", seeds);
    json_object_set_new(json, "least", extreme_json(sensitivity, ratio->least, ratio->least_by));
    json_object_set_new(json, "most", extreme_json(sensitivity, ratio->most, ratio->most_by));
    json_object_set_new(json, "pessimistic", together_json(sensitivity, ratio->pessimistic, ratio->worst));
    json_object_set_new(json, "optimistic", together_json(sensitivity, ratio->optimistic, ratio->best));
    json_object_set_new(json, "parameters", singles_json(sensitivity, ratio));
    return json;
}

/* Which preset ran on which kind of leaf. */
static json_t *leaves_json(const struct bench_plan *plan)
{
    json_t *json = json_object();
    for (unsigned i = 0; i < plan->preset_count; i++) {
        struct bench_config config;
        bench_plan_config(plan, &plan->presets[i], &config);
        json_object_set_new(json, plan->presets[i].name,
                            json_string(format_leaf_kind_names[config.geometry.leaf_kind]));
    }
    return json;
}

int sensitivity_json(const struct sensitivity *sensitivity, FILE *file)
{
    json_t *json = json_object(), *parameters = json_array(), *ratios = json_array();
    for (unsigned i = 0; i < sensitivity->parameter_count; i++)
        json_array_append_new(parameters, parameter_json(&sensitivity->parameters[i]));
    for (unsigned i = 0; i < sensitivity->ratio_count; i++)
        json_array_append_new(ratios, ratio_json(sensitivity, &sensitivity->ratios[i]));
    json_object_set_new(json, "config", config_json(&sensitivity->plan->config));
    json_object_set_new(json, "leaves", leaves_json(sensitivity->plan));
    json_object_set_new(json, "runs", json_unsigned(sensitivity->runs));
    json_object_set_new(json, "parameters", parameters);
    json_object_set_new(json, "ratios", ratios);
    return report_json_write(json, file);
}
