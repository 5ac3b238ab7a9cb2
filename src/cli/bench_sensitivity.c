/* bench_sensitivity.c - `banyan bench --sensitivity`: completes its request, runs it, shows how far it is and
 * writes the reports (contract: bench_request.h). */
#include <stdio.h>
#include <unistd.h>

#include "base/task.h"
#include "bench/sensitivity_report.h"
#include "cli/bench_request.h"
#include "cli/command.h"

int bench_sensitivity_complete(struct bench_request *request, struct error *error)
{
    struct bench_plan *plan = &request->plan;
    if (!request->sensitive) {
        const char *option = request->of ? "of" : request->only ? "only" : request->jobs ? "jobs" : NULL;
        return option ? error_set(error, BANYAN_EINVAL, "--%s: only with --sensitivity%s", option,
                                  request->only ? " or --paper" : "")
                      : 0;
    }
    if (plan->config.fabric != BENCH_SIM)
        return error_set(error, BANYAN_EINVAL,
                         "--sensitivity varies what the simulator assumes: leave --fabric out, or sim");
    if (plan->preset_count)
        return error_set(error, BANYAN_EINVAL, "--sensitivity compares two presets: name them by --of");
    int status = sensitivity_add_pairs(&request->sensitivity, plan,
                                       request->of ? request->of : "banyan/sherman", error);
    return status ? status
                  : sensitivity_choose(&request->sensitivity, &plan->config.sim, request->only, error);
}

/* ---- progress ---- */

struct shown {
    bool on;
    uint64_t begin_ns; /* of the runs */
};

static void show_loading(void *context, const char *preset)
{
    const struct shown *shown = context;
    if (shown->on)
        fprintf(stderr, "\r\033[Kloading the keys of %s", preset);
}

static void show_runs(void *context, size_t done, size_t count)
{
    struct shown *shown = context;
    if (!shown->on)
        return;
    uint64_t now = task_now();
    if (!shown->begin_ns)
        shown->begin_ns = now;
    double seconds = (double)(now - shown->begin_ns) / 1e9;
    fprintf(stderr, "\r\033[K%zu of %zu runs", done, count);
    if (seconds >= 1)
        fprintf(stderr, ", about %.0f s left", seconds / (double)done * (double)(count - done));
}

/* ---- the run ---- */

static int write_reports(const struct bench_request *request, FILE *json, FILE *html)
{
    int failed = json ? sensitivity_json(&request->sensitivity, json) != 0 : 0;
    if (html)
        sensitivity_html(&request->sensitivity, html);
    bench_output_keep(json, html);
    sensitivity_table(&request->sensitivity, json == stdout || html == stdout ? stderr : stdout);
    return failed ? COMMAND_FAILED : 0;
}

int bench_sensitivity_run(struct bench_request *request)
{
    FILE *json = NULL, *html = NULL;
    struct shown shown = {.on = !request->quiet && isatty(STDERR_FILENO)};
    struct error error = {0};
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned jobs = request->jobs ? (unsigned)request->jobs : cpus > 0 ? (unsigned)cpus : 1;
    request->plan.begun = show_loading;
    request->plan.begun_context = &shown;
    int exit_code = bench_output_open(request->json, &json);
    if (!exit_code)
        exit_code = bench_output_open(request->report, &html);
    if (!exit_code) {
        int status = sensitivity_run(&request->sensitivity, &request->plan, jobs, show_runs, &shown, &error);
        if (shown.on)
            fputs("\r\033[K", stderr);
        if (status)
            fprintf(stderr, "banyan bench: %s%s\n", error.text[0] ? error.text : error_name(status),
                    status == BANYAN_ENOSPC ? "; give more with --pool-bytes" : "");
        exit_code = status ? COMMAND_FAILED : write_reports(request, json, html);
    }
    return exit_code | bench_output_close(request->json, json) | bench_output_close(request->report, html);
}
