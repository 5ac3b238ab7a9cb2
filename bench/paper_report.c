/* paper_report.c - as text and JSON; see paper_report.h. */
#include "bench/paper_report.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include "bench/json_numbers.h"

/* ---- text ---- */

static bool selected(const struct paper_outcome *outcome, size_t index)
{
    return paper_selected(outcome->only, outcome->paper->numbers[index].figure);
}

static bool same_row(const struct paper_number *a, const struct paper_number *b)
{
    return !strcmp(a->figure, b->figure) && !strcmp(a->row, b->row);
}

/* Whether the row that begins at `index` has another number before it. */
static bool row_begins(const struct paper *paper, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (same_row(&paper->numbers[i], &paper->numbers[index]))
            return false;
    return true;
}

/* Three digits or so. */
static void number_text(double value, char *text, size_t size)
{
    double most = fabs(value);
    bool tiny = most > 0 && most < 0.01;
    snprintf(text, size, "%.*f", most >= 1000 ? 0 : most >= 100 ? 1 : tiny ? 5 : 2, value);
}

/* Of a percentage the deviation is in points: a percentage of a percentage says nothing. */
static void deviation_text(const struct paper_number *number, double ours, char *text, size_t size)
{
    bool points = !strcmp(number->unit, "%");
    double deviation = points ? ours - number->value : paper_deviation(ours, number->value);
    text[0] = '\0';
    if (!isnan(deviation))
        snprintf(text, size, ", %+.*f %s", fabs(deviation) < 10 ? 1 : 0, deviation, points ? "points" : "%");
}

static void print_cell(const struct paper_outcome *outcome, const struct paper_number *number, FILE *file)
{
    char ours_text[32] = "-", paper_text[64] = "", deviation[32];
    double ours = paper_ours(outcome, number);
    if (!isnan(ours))
        number_text(ours, ours_text, sizeof ours_text);
    deviation_text(number, ours, deviation, sizeof deviation);
    if (!isnan(number->value))
        snprintf(paper_text, sizeof paper_text, "(%.9g%s)", number->value, deviation);
    fprintf(file, " %9s %-17s", ours_text, paper_text);
}

/* Columns and units of the row that begins at `first`, as the line above it. */
static void heading_text(const struct paper *paper, size_t first, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = first; i < paper->count && used < size; i++) {
        const struct paper_number *number = &paper->numbers[i];
        char column[64];
        if (!same_row(number, &paper->numbers[first]))
            continue;
        snprintf(column, sizeof column, "%s%s%s", number->column, *number->unit != 'x' ? ", " : "",
                 *number->unit != 'x' ? number->unit : "");
        used += (size_t)snprintf(text + used, size - used, " %-27s", column);
    }
}

#define ROW_WIDTH 48

static void print_rows(const struct paper_outcome *outcome, const char *figure, FILE *file)
{
    const struct paper *paper = outcome->paper;
    char heading[400], before[400] = "";
    fprintf(file, "\n%s\n", figure);
    for (size_t i = 0; i < paper->count; i++) {
        if (strcmp(paper->numbers[i].figure, figure) || !row_begins(paper, i))
            continue;
        heading_text(paper, i, heading, sizeof heading);
        if (strcmp(heading, before))
            fprintf(file, "%-*s%s\n", ROW_WIDTH, "", heading);
        snprintf(before, sizeof before, "%s", heading);
        fprintf(file, "  %-*s", ROW_WIDTH - 2, paper->numbers[i].row);
        for (size_t j = i; j < paper->count; j++)
            if (same_row(&paper->numbers[i], &paper->numbers[j]))
                print_cell(outcome, &paper->numbers[j], file);
        fputc('\n', file);
    }
}

/* Whether the row's figure begins with it. */
static bool figure_begins(const struct paper *paper, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (!strcmp(paper->numbers[i].figure, paper->numbers[index].figure))
            return false;
    return true;
}

static struct bench_report report_of(const struct paper_outcome *outcome, const struct bench_config *config)
{
    return (struct bench_report){.config = config, .results = outcome->results, .count = outcome->count};
}

void paper_report_table(const struct paper_outcome *outcome, const struct bench_config *config, FILE *file)
{
    const struct paper *paper = outcome->paper;
    struct bench_report report = report_of(outcome, config);
    char text[512], leaves[512];
    report_leaves(&report, leaves, sizeof leaves);
    report_configuration(&report, text, sizeof text);
    fprintf(
        file,
        "%s\n%s\n%s%sScans count as operations by their entries. Ours, and in brackets what the paper states "
        "in its "
        "text or tables with our deviation from it; factors are ratios. Latencies are those of the whole "
        "workload, as the paper's are: the tables at the end have each kind of operation by itself.\n",
        paper->title, text, leaves, *leaves ? "\n" : "");
    if (paper->without)
        fprintf(file, "Not run: %s\n", paper->without);
    for (size_t i = 0; i < paper->count; i++)
        if (selected(outcome, i) && figure_begins(paper, i))
            print_rows(outcome, paper->numbers[i].figure, file);
    fprintf(file, "\nThe runs\n");
    report_table_groups(&report, file);
}

/* ---- JSON ---- */

static json_t *row_json(const struct paper_outcome *outcome, const struct paper_number *number)
{
    json_t *json = json_object();
    double ours = paper_ours(outcome, number);
    bool percentage = !strcmp(number->unit, "%");
    json_object_set_new(json, "figure", json_string(number->figure));
    json_object_set_new(json, "row", json_string(number->row));
    json_object_set_new(json, "column", json_string(number->column));
    json_object_set_new(json, "unit", json_string(number->unit));
    json_object_set_new(json, "paper", json_finite(number->value));
    json_object_set_new(json, "ours", json_finite(ours));
    json_object_set_new(json, "deviation_percent",
                        json_finite(percentage ? NAN : paper_deviation(ours, number->value)));
    json_object_set_new(json, "place", json_string(number->place));
    return json;
}

int paper_report_json(const struct paper_outcome *outcome, const struct bench_config *config, FILE *file)
{
    const struct paper *paper = outcome->paper;
    struct bench_report report = report_of(outcome, config);
    json_t *json = report_json_object(&report), *rows = json_array();
    for (size_t i = 0; i < paper->count; i++)
        if (selected(outcome, i))
            json_array_append_new(rows, row_json(outcome, &paper->numbers[i]));
    json_object_set_new(json, "paper", json_string(paper->name));
    if (paper->without)
        json_object_set_new(json, "without", json_string(paper->without));
    json_object_set_new(json, "rows", rows);
    return report_json_write(json, file);
}
