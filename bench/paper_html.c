/* paper_html.c - a paper's numbers and ours as bars; see paper_report.h. */
#include <math.h>
#include <string.h>
#include "bench/page.h"
#include "bench/paper_report.h"

#define LABEL_WIDTH 190.0
#define BAR_WIDTH   270.0
#define BAR_HEIGHT  11.0
#define STEP        32.0

/* A plot: the numbers of one figure with the same first part of the row's name, up to a comma, and the same
 * column. 0: the name has no parts. */
static size_t part_length(const struct paper_number *number)
{
    size_t length = strcspn(number->row, ",");
    return number->row[length] ? length : 0;
}

static bool same_plot(const struct paper_number *a, const struct paper_number *b)
{
    return !strcmp(a->figure, b->figure) && !strcmp(a->column, b->column) && !strcmp(a->unit, b->unit) &&
           part_length(a) == part_length(b) && !strncmp(a->row, b->row, part_length(a));
}

static bool plot_begins(const struct paper *paper, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (same_plot(&paper->numbers[i], &paper->numbers[index]))
            return false;
    return true;
}

struct plot {
    const struct paper_outcome *outcome;
    FILE *file;
    double least, most; /* of all values above 0 */
    size_t rows;
};

static void measure(struct plot *plot, double value)
{
    if (value > 0) {
        plot->least = fmin(plot->least, value);
        plot->most = fmax(plot->most, value);
    }
}

static bool logarithmic(const struct plot *plot)
{
    return plot->most > 50 * plot->least;
}

static double width_of(const struct plot *plot, double value)
{
    if (!(value > 0))
        return 1;
    if (!logarithmic(plot))
        return fmax(1, BAR_WIDTH * value / plot->most);
    double decades = log10(plot->most / plot->least);
    return fmax(1, BAR_WIDTH * (0.05 + 0.95 * log10(value / plot->least) / decades));
}

static void put_bar(const struct plot *plot, double y, double value, const char *color, const char *whose)
{
    double width = width_of(plot, value);
    fprintf(plot->file, "<rect x=\"%g\" y=\"%g\" width=\"%.1f\" height=\"%g\" rx=\"2\" fill=\"var(%s)\"/>",
            LABEL_WIDTH, y, width, BAR_HEIGHT, color);
    fprintf(plot->file, "<text class=\"soft\" x=\"%.1f\" y=\"%g\">", LABEL_WIDTH + width + 6, y + 10);
    page_number(plot->file, value);
    fprintf(plot->file, "%s</text>", whose);
}

static void put_row(const struct plot *plot, const struct paper_number *number, double y)
{
    double ours = paper_ours(plot->outcome, number);
    const char *name = number->row + part_length(number);
    name += strspn(name, ", ");
    fprintf(plot->file, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">", LABEL_WIDTH - 8, y + 16);
    page_text(plot->file, *name ? name : number->row);
    fputs("</text>", plot->file);
    if (!isnan(ours))
        put_bar(plot, y + 2, ours, "--c1", "");
    if (!isnan(number->value))
        put_bar(plot, y + 3 + BAR_HEIGHT, number->value, "--c0", " (paper)");
}

static bool shown(const struct plot *plot, const struct paper_number *number)
{
    return !isnan(number->value) || !isnan(paper_ours(plot->outcome, number));
}

/* "write-only: throughput, Mops" */
static void plot_title(const struct plot *plot, const struct paper_number *like, char *title, size_t size)
{
    bool factor = !strcmp(like->unit, "x");
    snprintf(title, size, "%.*s%s%s%s%s%s", (int)part_length(like), like->row, part_length(like) ? ": " : "",
             like->column, factor ? "" : ", ", factor ? "" : like->unit,
             logarithmic(plot) ? " (logarithmic)" : "");
}

static void put_plot(const struct paper_outcome *outcome, size_t first, FILE *file)
{
    const struct paper *paper = outcome->paper;
    const struct paper_number *like = &paper->numbers[first];
    struct plot plot = {.outcome = outcome, .file = file, .least = INFINITY};
    char title[200];
    for (size_t i = first; i < paper->count; i++) {
        const struct paper_number *number = &paper->numbers[i];
        if (!same_plot(number, like) || !shown(&plot, number))
            continue;
        measure(&plot, number->value);
        measure(&plot, paper_ours(outcome, number));
        plot.rows++;
    }
    if (!plot.rows)
        return;
    plot_title(&plot, like, title, sizeof title);
    fputs("<div class=\"panel\"><h3>", file);
    page_text(file, title);
    fprintf(file, "</h3><svg viewBox=\"0 0 560 %g\" role=\"img\" aria-label=\"", STEP * (double)plot.rows);
    page_text(file, title);
    fputs("\">", file);
    double y = 0;
    for (size_t i = first; i < paper->count; i++)
        if (same_plot(&paper->numbers[i], like) && shown(&plot, &paper->numbers[i])) {
            put_row(&plot, &paper->numbers[i], y);
            y += STEP;
        }
    fputs("</svg></div>", file);
}

void paper_report_html(const struct paper_outcome *outcome, const struct bench_config *config, FILE *file)
{
    const struct paper *paper = outcome->paper;
    struct bench_report report = {.config = config, .results = outcome->results, .count = outcome->count};
    char text[512];
    const char *figure = "";
    report_configuration(&report, text, sizeof text);
    page_begin(file, paper->title);
    fputs("<p>", file);
    page_text(file, text);
    fputs("<br>", file);
    report_leaves(&report, text, sizeof text);
    page_text(file, text);
    fputs("</p><p>Ours, and below it in grey what the paper states in its text and tables.</p>", file);
    if (paper->without) {
        fputs("<p>Not run: ", file);
        page_text(file, paper->without);
        fputs("</p>", file);
    }
    for (size_t i = 0; i < paper->count; i++) {
        const struct paper_number *number = &paper->numbers[i];
        if (!paper_selected(outcome->only, number->figure) || !plot_begins(paper, i))
            continue;
        if (strcmp(figure, number->figure))
            fprintf(file, "%s<section><h2>%s</h2><div class=\"grid\">", *figure ? "</div></section>" : "",
                    number->figure);
        figure = number->figure;
        put_plot(outcome, i, file);
    }
    fputs(*figure ? "</div></section>" : "", file);
    report_html_groups(&report, file);
    page_end(file);
}
