/* sensitivity_table.c - a sensitivity run as text, and what its writers share; see sensitivity_report.h. */
#include "bench/sensitivity_report.h"

#include <math.h>
#include <string.h>

#include "bench/report.h"

/* ---- shared ---- */

void sensitivity_pair_name(const struct sensitivity *sensitivity, struct sensitivity_pair pair, char *text,
                           size_t size)
{
    const struct bench_preset *presets = sensitivity->plan->presets;
    snprintf(text, size, "%s / %s", presets[pair.of].name, presets[pair.over].name);
}

static double greatest_effect(const struct sensitivity_ratio *ratios, unsigned count, unsigned parameter)
{
    double greatest = 1;
    for (unsigned i = 0; i < count; i++)
        greatest = fmax(greatest, sensitivity_effect(&ratios[i], parameter));
    return greatest;
}

void sensitivity_sort(const struct sensitivity *sensitivity, const struct sensitivity_ratio *ratios,
                      unsigned count, unsigned *order)
{
    double effects[SENSITIVITY_PARAMETERS_MAX];
    for (unsigned i = 0; i < sensitivity->parameter_count; i++) {
        unsigned at = i;
        effects[i] = greatest_effect(ratios, count, i);
        for (; at > 0 && effects[order[at - 1]] < effects[i]; at--) /* equal ones keep their order */
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* ---- the table ---- */

#define NAME_WIDTH   20
#define RANGE_WIDTH  20
#define COLUMN_WIDTH 17

static void print_ratio(FILE *file, int width, double value)
{
    if (isnan(value))
        fprintf(file, " %*s", width - 1, "-");
    else
        fprintf(file, " %*.*f", width - 1, value >= 99.995 ? 1 : 2, value);
}

/* "sherman:write-only" is "write-only" at the head of a column. */
static const char *short_name(const char *workload)
{
    const char *colon = strchr(workload, ':');
    const char *name = colon ? colon + 1 : workload;
    return strlen(name) < COLUMN_WIDTH ? name : "own mix";
}

static void print_head(const struct sensitivity *sensitivity, const struct sensitivity_ratio *ratios,
                       unsigned count, FILE *file)
{
    const struct bench_plan *plan = sensitivity->plan;
    char pair[160];
    sensitivity_pair_name(sensitivity, ratios->pair, pair, sizeof pair);
    fprintf(file, "\n%s, %s\n%-*s %-*s", pair,
            ratios->metric == SENSITIVITY_P99 ? "p99: how many times lower"
                                              : "throughput: how many times higher",
            NAME_WIDTH, "", RANGE_WIDTH, "");
    for (unsigned i = 0; i < count; i++)
        fprintf(file, " %*s", COLUMN_WIDTH - 1, short_name(plan->workloads[ratios[i].workload].name));
    fprintf(file, "\n%-*s %-*s", NAME_WIDTH, "parameter", RANGE_WIDTH, "value: low to high");
    for (unsigned i = 0; i < count; i++)
        fprintf(file, " %*s", COLUMN_WIDTH - 1,
                workload_distribution_names[plan->distributions[ratios[i].distribution]]);
    fprintf(file, "\n%-*s %-*s", NAME_WIDTH, "as it is", RANGE_WIDTH, "");
    for (unsigned i = 0; i < count; i++)
        print_ratio(file, COLUMN_WIDTH, ratios[i].point);
    for (unsigned seed = 0; seed < SENSITIVITY_SEEDS; seed++) {
        fprintf(file, "\n%-*s %-*s", NAME_WIDTH, seed ? "" : "other seeds", RANGE_WIDTH, "");
        for (unsigned i = 0; i < count; i++)
            print_ratio(file, COLUMN_WIDTH, ratios[i].seeds[seed]);
    }
    fputc('\n', file);
}

static void print_parameter(const struct sensitivity_parameter *parameter, unsigned index,
                            const struct sensitivity_ratio *ratios, unsigned count, FILE *file)
{
    char range[64];
    snprintf(range, sizeof range, "%g: %g to %g", parameter->value, parameter->ends[SENSITIVITY_LOW],
             parameter->ends[SENSITIVITY_HIGH]);
    fprintf(file, "%-*s %-*s", NAME_WIDTH, parameter->basis->name, RANGE_WIDTH, range);
    for (unsigned i = 0; i < count; i++) {
        print_ratio(file, COLUMN_WIDTH - 8, ratios[i].ends[index][SENSITIVITY_LOW]);
        print_ratio(file, 8, ratios[i].ends[index][SENSITIVITY_HIGH]);
    }
    fputc('\n', file);
}

static void print_by(const struct sensitivity *sensitivity, double value, int by, FILE *file)
{
    print_ratio(file, 10, value);
    fprintf(file, "  %-19s", by >= 0 ? sensitivity->parameters[by].basis->name : "");
}

static void print_bands(const struct sensitivity *sensitivity, FILE *file)
{
    const struct bench_plan *plan = sensitivity->plan;
    fprintf(file, "\nBands\n%-60s%9s%10s  %-19s%10s  %-19s%12s%12s\n", "", "point", "least", "by", "most",
            "by", "pessimistic", "optimistic");
    for (unsigned i = 0; i < sensitivity->ratio_count; i++) {
        const struct sensitivity_ratio *ratio = &sensitivity->ratios[i];
        char pair[160], text[320];
        sensitivity_pair_name(sensitivity, ratio->pair, pair, sizeof pair);
        snprintf(text, sizeof text, "%s, %s, %s, %s", pair, short_name(plan->workloads[ratio->workload].name),
                 workload_distribution_names[plan->distributions[ratio->distribution]],
                 sensitivity_metric_name(ratio->metric));
        fprintf(file, "%-60s", text);
        print_ratio(file, 9, ratio->point);
        print_by(sensitivity, ratio->least, ratio->least_by, file);
        print_by(sensitivity, ratio->most, ratio->most_by, file);
        print_ratio(file, 12, ratio->pessimistic);
        print_ratio(file, 12, ratio->optimistic);
        fputc('\n', file);
    }
}

void sensitivity_table(const struct sensitivity *sensitivity, FILE *file)
{
    char text[512], leaves[512];
    const struct bench_report report = {.config = &sensitivity->plan->config};
    report_configuration(&report, text, sizeof text);
    bench_plan_leaves(sensitivity->plan, leaves, sizeof leaves);
    unsigned columns = sensitivity->plan->workload_count * sensitivity->plan->distribution_count;
    fprintf(
        file,
        "%s; %zu runs\n%s\nEach parameter alone at the low and at the high end of its range, the others as "
        "they are; those first that move a ratio most.\n",
        text, sensitivity->runs, leaves);
    for (unsigned begin = 0; begin < sensitivity->ratio_count; begin += columns) {
        const struct sensitivity_ratio *ratios = &sensitivity->ratios[begin];
        unsigned order[SENSITIVITY_PARAMETERS_MAX];
        sensitivity_sort(sensitivity, ratios, columns, order);
        print_head(sensitivity, ratios, columns, file);
        for (unsigned i = 0; i < sensitivity->parameter_count; i++)
            print_parameter(&sensitivity->parameters[order[i]], order[i], ratios, columns, file);
    }
    print_bands(sensitivity, file);
    fputs("\nLeast and most: of one parameter at a time, and which one. Pessimistic and optimistic: all "
          "parameters together,\neach at the end that by itself gave that ratio its lowest, or highest, "
          "value; one that moved it only the other way stays.\n",
          file);
}
