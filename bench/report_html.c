/* report_html.c - results as one page that stands alone (page.h); see report.h. */
#include <math.h>
#include <string.h>
#include "bench/page.h"
#include "bench/report.h"

/* Runs of one preset have one colour: that of the first. */
static size_t first_like(const struct bench_result *results, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (!strcmp(results[i].preset, results[index].preset))
            return i;
    return index;
}

static void put_color(FILE *file, const struct bench_result *results, size_t index)
{
    fprintf(file, "var(--c%zu)", first_like(results, index) % 8);
}

/* ---- bars ---- */

typedef double report_measure(const struct bench_result *result);

static double throughput(const struct bench_result *result)
{
    return result->throughput_mops;
}
static double round_trips(const struct bench_result *r)
{
    return report_per_operation(r, r->cost.round_trips);
}
static double reads(const struct bench_result *r)
{
    return report_per_operation(r, r->cost.reads);
}
static double writes(const struct bench_result *r)
{
    return report_per_operation(r, r->cost.writes);
}
static double atomics(const struct bench_result *r)
{
    return report_per_operation(r, r->cost.atomics);
}
static double bytes_read(const struct bench_result *r)
{
    return report_per_operation(r, r->cost.bytes_read);
}
static double bytes_written(const struct bench_result *r)
{
    return report_per_operation(r, r->cost.bytes_written);
}

#define LABEL_WIDTH 170.0
#define BAR_WIDTH   300.0
#define BAR_STEP    24.0
#define TALL_STEP   42.0

static void put_bars(FILE *file, const struct bench_result *results, size_t count, report_measure *measure,
                     const char *title, double bar_step, bool peers)
{
    double most = 0, y = 0;
    for (size_t i = 0; i < count; i++)
        if (peers || !results[i].peer)
            most = fmax(most, measure(&results[i]));
    fprintf(file, "<h3>%s</h3><svg viewBox=\"0 0 560 %g\" role=\"img\" aria-label=\"%s\">", title,
            bar_step * (double)count, title);
    for (size_t i = 0; i < count; i++) {
        if (!peers && results[i].peer)
            continue;
        double value = measure(&results[i]), width = most > 0 ? BAR_WIDTH * value / most : 0;
        fprintf(file, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">", LABEL_WIDTH - 8,
                y + bar_step / 2 + 2.5);
        page_text(file, results[i].preset);
        fprintf(file, "</text><rect x=\"%g\" y=\"%g\" width=\"%.1f\" height=\"%g\" rx=\"3\" fill=\"",
                LABEL_WIDTH, y + 3, fmax(width, 1), bar_step - 9);
        put_color(file, results, i);
        fprintf(file, "\"/><text class=\"soft\" x=\"%.1f\" y=\"%g\">", LABEL_WIDTH + width + 8,
                y + bar_step / 2 + 2.5);
        page_number(file, value);
        fputs("</text>", file);
        y += bar_step;
    }
    fputs("</svg>", file);
}

/* ---- latency curves ---- */

/* Across: log of the latency. Up: how many operations are that fast, on a scale of nines, as the tail is what
 * matters. */
struct curve {
    FILE *file;
    double low, high; /* log10 of ns */
    uint64_t total, sum;
    bool begun;
};

#define PLOT_LEFT   58.0
#define PLOT_TOP    10.0
#define PLOT_WIDTH  482.0
#define PLOT_HEIGHT 220.0
#define MOST_NINES  4.0

static double x_of(const struct curve *curve, double nanoseconds)
{
    return PLOT_LEFT + PLOT_WIDTH * (log10(fmax(nanoseconds, 1)) - curve->low) / (curve->high - curve->low);
}

static double y_of(double fraction)
{
    double nines = fraction < 1 ? -log10(1 - fraction) : MOST_NINES;
    return PLOT_TOP + PLOT_HEIGHT * (1 - fmin(nines, MOST_NINES) / MOST_NINES);
}

static void put_point(void *context, uint64_t upper, uint64_t count)
{
    struct curve *curve = context;
    double x = x_of(curve, (double)upper);
    fprintf(curve->file, "%c%.1f %.1f", curve->begun ? 'L' : 'M', x,
            y_of((double)curve->sum / (double)curve->total));
    curve->begun = true;
    curve->sum += count;
    fprintf(curve->file, "L%.1f %.1f", x, y_of((double)curve->sum / (double)curve->total));
}

static void put_axes(FILE *file, const struct curve *curve)
{
    static const double levels[] = {0, 0.5, 0.9, 0.99, 0.999, 0.9999};
    static const char *const names[] = {"0", "50%", "90%", "99%", "99.9%", "99.99%"};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        fprintf(
            file,
            "<line class=\"axis\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"soft\" x=\"%g\" "
            "y=\"%.1f\" text-anchor=\"end\">%s</text>",
            PLOT_LEFT, PLOT_LEFT + PLOT_WIDTH, y_of(levels[i]), y_of(levels[i]), PLOT_LEFT - 5,
            y_of(levels[i]) + 4, names[i]);
    for (double at = ceil(curve->low - 1e-9); at <= curve->high + 1e-9; at += 1) {
        double ns = pow(10, at), x = x_of(curve, ns);
        const char *unit = ns >= 1e9 ? "s" : ns >= 1e6 ? "ms" : ns >= 1e3 ? "µs" : "ns";
        double scale = ns >= 1e9 ? 1e9 : ns >= 1e6 ? 1e6 : ns >= 1e3 ? 1e3 : 1;
        fprintf(file,
                "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\"/><text class=\"soft\" "
                "x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%g %s</text>",
                x, x, PLOT_TOP, PLOT_TOP + PLOT_HEIGHT, x, PLOT_TOP + PLOT_HEIGHT + 17, ns / scale, unit);
    }
}

static void put_legend(FILE *file, const struct bench_result *results, size_t count)
{
    size_t shown = 0;
    for (size_t i = 0; i < count; i++) {
        if (first_like(results, i) != i)
            continue;
        double x = PLOT_LEFT + 162.0 * (double)(shown % 3);
        double y = PLOT_TOP + PLOT_HEIGHT + 40 + 18.0 * (double)(shown / 3);
        shown++;
        fprintf(file, "<rect x=\"%g\" y=\"%g\" width=\"11\" height=\"11\" rx=\"2\" fill=\"", x, y - 10);
        put_color(file, results, i);
        fprintf(file, "\"/><text x=\"%g\" y=\"%g\">", x + 16, y);
        page_text(file, results[i].preset);
        fputs("</text>", file);
    }
}

static void put_latency(FILE *file, const struct bench_result *results, size_t count)
{
    double low = 1e18, high = 1;
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, (double)histogram_quantile(results[i].latency, 0));
        high = fmax(high, (double)histogram_max(results[i].latency));
    }
    struct curve plain = {
        .file = file, .low = floor(log10(fmax(low, 1))), .high = ceil(log10(fmax(high, 10)))};
    if (plain.high <= plain.low)
        plain.high = plain.low + 1;
    fprintf(file,
            "<h3>Latency: share of operations that took at most so long</h3><svg viewBox=\"0 0 560 %g\" "
            "role=\"img\" "
            "aria-label=\"Latency distribution\">",
            PLOT_TOP + PLOT_HEIGHT + 36 + 18.0 * (double)((count + 2) / 3));
    put_axes(file, &plain);
    for (size_t i = 0; i < count; i++) {
        struct curve curve = plain;
        curve.total = histogram_count(results[i].latency);
        if (!curve.total)
            continue;
        fputs("<path fill=\"none\" stroke-width=\"2\" stroke=\"", file);
        put_color(file, results, i);
        fputs("\" d=\"", file);
        histogram_each(results[i].latency, put_point, &curve);
        fputs("\"/>", file);
    }
    put_legend(file, results, count);
    fputs("</svg>", file);
}

/* ---- table ---- */

static void put_cell(FILE *file, double value)
{
    fputs("<td>", file);
    page_number(file, value);
    fputs("</td>", file);
}

static void put_quantiles(FILE *file, const struct histogram *latency)
{
    static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++)
        put_cell(file, report_quantile_us(latency, quantiles[i]));
}

/* Retries and the cache's hits are not known of a kind. */
static void put_kind_costs(FILE *file, const struct bench_kind *kind)
{
    const double of = (double)kind->count;
    put_cell(file, (double)kind->cost.round_trips / of);
    put_cell(file, (double)kind->cost.reads / of);
    put_cell(file, (double)kind->cost.writes / of);
    put_cell(file, (double)kind->cost.atomics / of);
    put_cell(file, (double)kind->cost.rpcs / of);
    put_cell(file, (double)kind->cost.bytes_read / of);
    put_cell(file, (double)kind->cost.bytes_written / of);
    fputs("<td colspan=\"2\"></td>", file);
}

static void put_row(FILE *file, const struct bench_result *result)
{
    fputs("<tr><td>", file);
    page_text(file, result->preset);
    fputs("</td>", file);
    put_cell(file, result->throughput_mops);
    put_quantiles(file, result->latency);
    if (result->peer) {
        fputs("<td colspan=\"9\"></td>", file);
    } else {
        put_cell(file, round_trips(result));
        put_cell(file, reads(result));
        put_cell(file, writes(result));
        put_cell(file, atomics(result));
        put_cell(file, report_per_operation(result, result->cost.rpcs));
        put_cell(file, bytes_read(result));
        put_cell(file, bytes_written(result));
        put_cell(file, report_per_operation(result, result->retries));
        put_cell(file, 100 * report_cache_hit(result));
    }
    put_cell(file, report_bytes_per_entry(result->ended.index_bytes, result->ended.entries));
    fputs("</tr>", file);
}

/* Of a workload of several kinds: its quantiles alone say nothing about any of them. */
static void put_kinds(FILE *file, const struct bench_result *result)
{
    for (int kind = 0; kind < WORKLOAD_KINDS && report_mixed(result); kind++) {
        const struct bench_kind *of_kind = &result->kinds[kind];
        if (!of_kind->count)
            continue;
        fprintf(file, "<tr><td class=\"soft\">&emsp;%s</td>", workload_kind_names[kind]);
        put_cell(file, report_kind_mops(result, kind));
        put_quantiles(file, of_kind->latency);
        if (result->peer)
            fputs("<td colspan=\"9\"></td>", file);
        else
            put_kind_costs(file, of_kind);
        fputs("<td></td></tr>", file);
    }
}

static void put_table(FILE *file, const struct bench_result *results, size_t count)
{
    fputs("<div class=\"panel wide\"><table><thead><tr><th>preset</th><th>Mops</th><th>p50 µs</th><th>p90 "
          "µs</th><th>p99 "
          "µs</th><th>p99.9 µs</th><th>round "
          "trips</th><th>reads</th><th>writes</th><th>atomics</th><th>RPCs</th>"
          "<th>B read</th><th>B written</th><th>retries</th><th>cache "
          "%</th><th>B/entry</th></tr></thead>"
          "<tbody>",
          file);
    for (size_t i = 0; i < count; i++) {
        put_row(file, &results[i]);
        put_kinds(file, &results[i]);
    }
    fputs("</tbody></table></div>", file);
}

/* ---- the page ---- */

static void put_costs(FILE *file, const struct bench_result *results, size_t count)
{
    static const struct {
        report_measure *measure;
        const char *title;
    } costs[] = {
        {round_trips, "Round trips per operation"},
        {bytes_read, "Bytes read per operation"},
        {bytes_written, "Bytes written per operation"},
        {reads, "READs per operation"},
        {writes, "WRITEs per operation"},
        {atomics, "Atomics per operation"},
    };
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        fputs("<div class=\"panel\">", file);
        put_bars(file, results, count, costs[i].measure, costs[i].title, BAR_STEP, false);
        fputs("</div>", file);
    }
}

static void put_group(FILE *file, const struct bench_result *results, size_t count)
{
    bool any_banyan = false;
    for (size_t i = 0; i < count; i++)
        any_banyan |= !results[i].peer;
    fputs("<section><h2>", file);
    page_text(file, results->workload);
    fprintf(file, ", %s", results->distribution);
    if (report_scans(results))
        fprintf(file, ", scans of %u", results->scan_length);
    fputs("</h2><div class=\"grid\"><div class=\"panel\">", file);
    put_bars(file, results, count, throughput, "Throughput, million operations per second",
             count <= 8 ? TALL_STEP : BAR_STEP, true);
    fputs("</div><div class=\"panel\">", file);
    put_latency(file, results, count);
    fputs("</div>", file);
    put_table(file, results, count);
    if (any_banyan)
        put_costs(file, results, count);
    fputs("</div></section>", file);
}

void report_html_groups(const struct bench_report *report, FILE *file)
{
    for (size_t begin = 0, end; begin < report->count; begin = end) {
        end = report_group_end(report, begin);
        put_group(file, &report->results[begin], end - begin);
    }
}

void report_html(const struct bench_report *report, FILE *file)
{
    char text[512];
    report_configuration(report, text, sizeof text);
    page_begin(file, "banyan bench");
    fputs("<p>", file);
    page_text(file, text);
    fputs("<br>", file);
    report_leaves(report, text, sizeof text);
    page_text(file, text);
    fputs("</p>", file);
    if (report->peer_settings) {
        fputs("<p>Peer: ", file);
        page_text(file, report->peer_settings);
        fputs("</p>", file);
    }
    report_html_groups(report, file);
    page_end(file);
}
