/*
 * sensitivity_html.c - a sensitivity run as a page (page.h) of tornado plots, one for each ratio: a bar for
 * each parameter, from the ratio at its low end to the ratio at its high end, the longest first. See
 * sensitivity_report.h.
 */
#include "bench/sensitivity_report.h"

#include <math.h>

#include "bench/page.h"
#include "bench/report.h"

#define WIDTH       640.0
#define LABEL_RIGHT 150.0
#define BARS_LEFT   205.0
#define BARS_RIGHT  585.0
#define STEP        24.0
#define BAR_HEIGHT  13.0
#define ROWS_MOST   16
#define EFFECT_SEEN 1.005 /* parameters that move a ratio by less are not drawn */

struct plot {
    FILE *file;
    const struct sensitivity_ratio *ratio;
    double low, high; /* ratios at the left and the right */
    double y;         /* of the next row */
};

static double x_of(const struct plot *plot, double value)
{
    return BARS_LEFT + (BARS_RIGHT - BARS_LEFT) * (value - plot->low) / (plot->high - plot->low);
}

static void include_value(struct plot *plot, double value)
{
    if (!isfinite(value))
        return;
    plot->low = fmin(plot->low, value);
    plot->high = fmax(plot->high, value);
}

static void put_value(const struct plot *plot, double x, bool left, double value)
{
    fprintf(plot->file, "<text class=\"soft\" x=\"%.1f\" y=\"%g\"%s>", left ? x - 5 : x + 5,
            plot->y + STEP / 2 + 4, left ? " text-anchor=\"end\"" : "");
    page_number(plot->file, value);
    fputs("</text>", plot->file);
}

static void put_bar(const struct plot *plot, double from, double to, const char *color)
{
    double a = x_of(plot, from), b = x_of(plot, to);
    fprintf(plot->file, "<rect x=\"%.1f\" y=\"%g\" width=\"%.1f\" height=\"%g\" fill=\"var(--%s)\"/>",
            fmin(a, b), plot->y + (STEP - BAR_HEIGHT) / 2, fmax(fabs(b - a), 1), BAR_HEIGHT, color);
}

/* The values at the row's left and right end; the bars come before, since text stands on them. */
static void put_row(struct plot *plot, const char *name, double one, double other, const char *one_color,
                    const char *other_color)
{
    double point = plot->ratio->point;
    fprintf(plot->file, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">", LABEL_RIGHT, plot->y + STEP / 2 + 4);
    page_text(plot->file, name);
    fputs("</text>", plot->file);
    if (isfinite(one) && isfinite(other)) {
        /* The longer first, where both lie on one side of the point. */
        bool turned = fabs(one - point) < fabs(other - point);
        put_bar(plot, point, turned ? other : one, turned ? other_color : one_color);
        put_bar(plot, point, turned ? one : other, turned ? one_color : other_color);
        double least = fmin(fmin(one, other), point), most = fmax(fmax(one, other), point);
        put_value(plot, x_of(plot, least), true, least);
        put_value(plot, x_of(plot, most), false, most);
    }
    plot->y += STEP;
}

static unsigned rows_drawn(const struct sensitivity *sensitivity, const struct sensitivity_ratio *ratio,
                           const unsigned *order)
{
    unsigned rows = 0;
    while (rows < sensitivity->parameter_count && rows < ROWS_MOST &&
           sensitivity_effect(ratio, order[rows]) >= EFFECT_SEEN)
        rows++;
    return rows;
}

static void put_caption(const struct sensitivity *sensitivity, const struct sensitivity_ratio *ratio,
                        FILE *file)
{
    const struct bench_plan *plan = sensitivity->plan;
    fputs("<h3>", file);
    page_text(file, plan->workloads[ratio->workload].name);
    fprintf(file, ", %s: ", workload_distribution_names[plan->distributions[ratio->distribution]]);
    page_number(file, ratio->point);
    fputs("x, ", file);
    page_number(file, ratio->pessimistic);
    fputs(" to ", file);
    page_number(file, ratio->optimistic);
    fputs("</h3>", file);
}

static void put_tornado(const struct sensitivity *sensitivity, const struct sensitivity_ratio *ratio,
                        FILE *file)
{
    unsigned order[SENSITIVITY_PARAMETERS_MAX];
    sensitivity_sort(sensitivity, ratio, 1, order);
    unsigned rows = rows_drawn(sensitivity, ratio, order);
    struct plot plot = {.file = file, .ratio = ratio, .low = ratio->least, .high = ratio->most};
    include_value(&plot, ratio->pessimistic);
    include_value(&plot, ratio->optimistic);
    plot.high = plot.high > plot.low ? plot.high : plot.low + 1e-9;
    fputs("<div class=\"panel\">", file);
    put_caption(sensitivity, ratio, file);
    double height = STEP * (double)(rows + 1);
    fprintf(file,
            "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"Ratio by parameter\"><line class=\"axis\" "
            "x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%g\"/>",
            WIDTH, height, x_of(&plot, ratio->point), x_of(&plot, ratio->point), height);
    put_row(&plot, "all together", ratio->pessimistic, ratio->optimistic, "c4", "c4");
    for (unsigned i = 0; i < rows; i++)
        put_row(&plot, sensitivity->parameters[order[i]].basis->name, ratio->ends[order[i]][SENSITIVITY_LOW],
                ratio->ends[order[i]][SENSITIVITY_HIGH], "c1", "c3");
    fputs("</svg></div>", file);
}

static void put_parameters(const struct sensitivity *sensitivity, FILE *file)
{
    fputs("<section><h2>Parameters</h2><div class=\"panel wide\"><table><thead><tr><th>name</th>"
          "<th>basis</th><th>value</th><th>low</th><th>high</th><th>source</th></tr></thead><tbody>",
          file);
    for (unsigned i = 0; i < sensitivity->parameter_count; i++) {
        const struct sensitivity_parameter *parameter = &sensitivity->parameters[i];
        fputs("<tr><td>", file);
        page_text(file, parameter->basis->name);
        fprintf(file, "</td><td>%s</td><td>%g</td><td>%g</td><td>%g</td><td>",
                sim_basis_name(parameter->basis->basis), parameter->value, parameter->ends[SENSITIVITY_LOW],
                parameter->ends[SENSITIVITY_HIGH]);
        page_text(file, parameter->basis->source);
        fputs("</td></tr>", file);
    }
    fputs("</tbody></table></div></section>", file);
}

void sensitivity_html(const struct sensitivity *sensitivity, FILE *file)
{
    char text[512];
    const struct bench_report report = {.config = &sensitivity->plan->config};
    unsigned columns = sensitivity->plan->workload_count * sensitivity->plan->distribution_count;
    page_begin(file, "banyan bench --sensitivity");
    report_configuration(&report, text, sizeof text);
    fputs("<p>", file);
    page_text(file, text);
    fputs("<br>", file);
    bench_plan_leaves(sensitivity->plan, text, sizeof text);
    page_text(file, text);
    fputs("</p><p>Each bar is the ratio with one parameter at the low end (blue) and at the high end (amber) "
          "of "
          "its range, the others as they are. All together: every parameter at the end that is worst, and "
          "best, for this ratio.</p>",
          file);
    for (unsigned begin = 0; begin < sensitivity->ratio_count; begin += columns) {
        const struct sensitivity_ratio *ratios = &sensitivity->ratios[begin];
        sensitivity_pair_name(sensitivity, ratios->pair, text, sizeof text);
        fputs("<section><h2>", file);
        page_text(file, text);
        fprintf(file, ", %s</h2><div class=\"grid\">",
                ratios->metric == SENSITIVITY_P99 ? "p99: how many times lower"
                                                  : "throughput: how many times higher");
        for (unsigned i = 0; i < columns; i++)
            put_tornado(sensitivity, &ratios[i], file);
        fputs("</div></section>", file);
    }
    put_parameters(sensitivity, file);
    page_end(file);
}
