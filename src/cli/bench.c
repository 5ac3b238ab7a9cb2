/*
 * bench.c - `banyan bench`: reads the command line into a plan (bench_request.h), runs it and writes the
 * reports.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "bench/paper_report.h"
#include "cli/bench_request.h"
#include "cli/command.h"

struct terminal {
    char what[256];
    bool on;
};

static void show_begun(void *context, const char *what)
{
    struct terminal *terminal = context;
    snprintf(terminal->what, sizeof terminal->what, "%s", what);
    if (terminal->on)
        fprintf(stderr, "\r\033[K%s", terminal->what);
}

static void show_progress(void *context, const char *phase, double done)
{
    const struct terminal *terminal = context;
    if (terminal->on)
        fprintf(stderr, "\r\033[K%s: %s %3.0f %%", terminal->what, phase, done * 100);
}

int bench_output_open(const char *name, FILE **file)
{
    if (!name)
        return 0;
    *file = strcmp(name, "-") ? fopen(name, "w") : stdout;
    if (*file)
        return 0;
    fprintf(stderr, "banyan bench: cannot write '%s': %m\n", name);
    return COMMAND_FAILED;
}

/* Closes; a full disk shows here at the latest. */
int bench_output_close(const char *name, FILE *file)
{
    if (!file)
        return 0;
    int failed = ferror(file) | (file == stdout ? fflush(file) : fclose(file));
    if (failed)
        fprintf(stderr, "banyan bench: writing '%s' failed\n", name);
    return failed ? COMMAND_FAILED : 0;
}

void bench_output_keep(FILE *json, FILE *html)
{
    if (json)
        fflush(json);
    if (html)
        fflush(html);
}

/* What has run. */
struct outcome {
    struct bench_result *results;
    size_t count;
    struct paper_outcome paper; /* instead, with --paper */
};

static int write_reports(const struct bench_request *request, const struct outcome *outcome, FILE *json,
                         FILE *html)
{
    const struct bench_plan *plan = &request->plan;
    struct bench_report report = {
        .config = &plan->config, .results = outcome->results, .count = outcome->count};
    report.peer_settings = plan->peer ? plan->peer->settings : NULL;
    FILE *text = json == stdout || html == stdout ? stderr : stdout;
    int failed = json ? report_json(&report, json) != 0 : 0;
    if (html)
        report_html(&report, html);
    bench_output_keep(json, html);
    report_table(&report, text);
    if (plan->peer)
        report_pairs(&report, text);
    return failed ? COMMAND_FAILED : 0;
}

static int write_paper(const struct bench_request *request, const struct outcome *outcome, FILE *json,
                       FILE *html)
{
    const struct bench_config *config = &request->plan.config;
    FILE *text = json == stdout || html == stdout ? stderr : stdout;
    int failed = json ? paper_report_json(&outcome->paper, config, json) != 0 : 0;
    if (html)
        paper_report_html(&outcome->paper, config, html);
    bench_output_keep(json, html);
    paper_report_table(&outcome->paper, config, text);
    return failed ? COMMAND_FAILED : 0;
}

static int run_plan(const struct bench_request *request, struct outcome *outcome, struct error *error)
{
    if (request->paper)
        return paper_run(&request->plan, request->paper, request->only, &outcome->paper, error);
    return bench_plan_run(&request->plan, &outcome->results, &outcome->count, error);
}

static int run_request(struct bench_request *request)
{
    FILE *json = NULL, *html = NULL;
    struct terminal terminal = {.on = !request->quiet && isatty(STDERR_FILENO)};
    struct bench_plan *plan = &request->plan;
    struct outcome outcome = {.results = NULL};
    struct error error = {0};
    plan->begun = show_begun;
    plan->begun_context = &terminal;
    plan->config.progress = terminal.on ? show_progress : NULL;
    plan->config.progress_context = &terminal;
    int exit_code = bench_output_open(request->json, &json);
    if (!exit_code)
        exit_code = bench_output_open(request->report, &html);
    int status = exit_code ? 0 : run_plan(request, &outcome, &error);
    if (terminal.on)
        fputs("\r\033[K", stderr);
    if (!exit_code && outcome.count)
        exit_code = write_reports(request, &outcome, json, html);
    if (!exit_code && outcome.paper.count)
        exit_code = write_paper(request, &outcome, json, html);
    if (status) {
        fprintf(stderr, "banyan bench: %s: %s%s\n", terminal.what,
                error.text[0] ? error.text : error_name(status),
                status == BANYAN_ENOSPC ? "; give more with --pool-bytes" : "");
        exit_code = COMMAND_FAILED;
    }
    exit_code |= bench_output_close(request->json, json) | bench_output_close(request->report, html);
    bench_results_free(outcome.results, outcome.count);
    paper_outcome_free(&outcome.paper);
    return exit_code;
}

int command_bench(int argc, char **argv)
{
    struct bench_request *request = calloc(1, sizeof *request);
    if (!request)
        return COMMAND_FAILED;
    log_set_level(LOG_WARNING); /* notes about pages would only stand in the progress */
    bench_request_read(request, argc, argv);
    int exit_code;
    if (request->sensitive)
        exit_code = bench_sensitivity_run(request);
    else
        exit_code = run_request(request);
    bench_request_free(request);
    free(request);
    if ((fflush(stdout) | ferror(stdout)) && !exit_code) { /* a table that is not whole is no result */
        fputs("banyan bench: writing to standard output failed\n", stderr);
        exit_code = COMMAND_FAILED;
    }
    return exit_code;
}
