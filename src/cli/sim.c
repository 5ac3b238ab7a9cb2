/* sim.c - `banyan sim`: clusters drawn from seeds, in the simulator, with every fault, judged. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "bench/json_numbers.h"
#include "cli/command.h"
#include "cli/settings.h"
#include "swarm/farm.h"
#include "swarm/shrink.h"
#include "swarm/trace.h"

#define SHRINK_MINUTES 5 /* a race that hits seldom would be shrunk for hours */

struct sim_settings {
    char *seed, *seeds, *replay, *set, *save;
    double minutes, timeout;
    uint32_t jobs, rows;
    uint64_t memory;
    bool shrink, trace, fail_fast, json, quiet, plan, fields;
};

#define ROW(name, kind, field, low, high, unit, help)                                                        \
    {                                                                                                        \
        name, kind, offsetof(struct sim_settings, field), low, high, NULL, unit, help                        \
    }
static const struct option_entry table[] = {
    ROW("seed", OPTION_TEXT, seed, 0, 0, "N", "Run this seed alone; if it fails, print its trace"),
    ROW("seeds", OPTION_TEXT, seeds, 0, 0, "FROM-TO", "Run these seeds"),
    ROW("minutes", OPTION_DOUBLE, minutes, 0, 1e6, "M",
        "Run fresh seeds for so long (or end --seeds, or --shrink, then)"),
    ROW("replay", OPTION_TEXT, replay, 0, 0, "FILE", "Run a plan that --save, --shrink or --plan wrote"),
    ROW("set", OPTION_TEXT, set, 0, 0, "NAME=VALUE,...", "Change these fields of every plan; see --fields"),
    ROW("jobs", OPTION_U32, jobs, 1, 256, NULL, "Runs at once; by default one for each CPU"),
    ROW("shrink", OPTION_BOOL, shrink, 0, 0, NULL,
        "Reduce a failing plan (--seed or --replay) to a minimal one"),
    ROW("save", OPTION_TEXT, save, 0, 0, "FILE",
        "Write the plan that failed (of several the lowest seed's), shrunk or not, to this file"),
    ROW("trace", OPTION_BOOL, trace, 0, 0, NULL,
        "Print the trace of a failure: by default with --seed and --replay"),
    ROW("rows", OPTION_U32, rows, 10, 1000000, NULL, "Rows of a trace, at most"),
    ROW("fail-fast", OPTION_BOOL, fail_fast, 0, 0, NULL, "Start no seed after a failure"),
    ROW("timeout", OPTION_DOUBLE, timeout, 0.1, 1e6, "SECONDS",
        "A run that takes longer is stopped and counts as failed"),
    ROW("memory-max", OPTION_U64, memory, 1 << 20, 1e15, "BYTES",
        "A run that takes more memory is stopped and counts as failed"),
    ROW("plan", OPTION_BOOL, plan, 0, 0, NULL, "Print the plan of --seed or --replay, and run nothing"),
    ROW("fields", OPTION_BOOL, fields, 0, 0, NULL, "List the fields of plans, and run nothing"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, "Print one JSON object for each seed, and one at the end"),
    ROW("quiet", OPTION_BOOL, quiet, 0, 0, NULL, "Print failures and the summary only"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "sim",
    .table = table,
    .documentation =
        "Run whole clusters in a simulation that is crueller than any network, and judge every answer.\v"
        "Each seed draws a cluster: its shape, its index, which techniques are on, the costs of the "
        "hardware, "
        "which faults it shows and how often, the work of its clients. The index code is the product's own. "
        "Every answer must fit one order of all operations; at the end every acknowledged write must be "
        "there, every node sound, every block of memory owned once, no lock held. The same seed and program "
        "give the same run.\n\n"
        "Without --seed, --seeds, --minutes or --replay: fresh seeds for one minute.\n\n"
        "Examples:\n"
        "  banyan sim --minutes 10\n"
        "  banyan sim --seeds 1-1000 --jobs 4 --fail-fast\n"
        "  banyan sim --seed 4711 --shrink --save 4711.plan\n"
        "  banyan sim --replay 4711.plan\n"
        "  banyan sim --seeds 1-200 --set torn-reads=0,records=on\n\n"
        "Exit status: 0 when all runs were sound; 1 when one was not, or the runs could not be made; 2 when "
        "a "
        "setting makes no sense.",
};

struct sim_run {
    struct sim_settings settings;
    struct swarm_plan replayed;   /* with --replay */
    struct world_disks_met disks; /* sums */
    uint64_t runs, failures, operations, events, virtual_ns, splits, unlinks, merges, node_moves, drained,
        removed, logs_ended, merged_there, exchanged, merging, deaths, restarts, losses, longest_ns;
    uint64_t first_failed; /* the lowest seed of those that failed */
    double begun, busy;    /* wall clock; of the runs, added up */
};

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- plans ---- */

/* A drawn plan with another disk is drawn further: it needs more than that one field. */
static int set_one(const struct sim_run *run, struct swarm_plan *plan, const char *name, const char *value,
                   struct error *error)
{
    int status = swarm_plan_set(plan, name, value, error);
    if (!status && !run->settings.replay && !strcmp(name, "disk"))
        swarm_plan_draw_disk(plan, plan->disk);
    return status;
}

/* "name=value,name=value", each set over the value that the seed drew. */
static int set_all(const struct sim_run *run, struct swarm_plan *plan, struct error *error)
{
    char *copy = run->settings.set ? strdup(run->settings.set) : NULL, *rest = copy, *field;
    int status = 0;
    while (!status && (field = strsep(&rest, ","))) {
        char *equals = strchr(field, '=');
        if (equals)
            *equals = 0;
        status = equals ? set_one(run, plan, field, equals + 1, error)
                        : error_set(error, BANYAN_EINVAL, "--set wants NAME=VALUE, not '%.60s'", field);
    }
    free(copy);
    return status ? status : swarm_plan_check(plan, error);
}

static int make_plan(void *context, uint64_t seed, struct swarm_plan *plan, struct error *error)
{
    const struct sim_run *run = context;
    if (run->settings.replay) {
        int status = swarm_plan_copy(plan, &run->replayed, error);
        return status ? status : set_all(run, plan, error);
    }
    swarm_plan_draw(plan, seed);
    return set_all(run, plan, error);
}

/* ---- telling ---- */

static void tell_json(const struct swarm_outcome *outcome)
{
    const struct swarm_result *result = &outcome->result;
    json_t *json = json_pack(
        "{s:o, s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:I}",
        "seed", json_unsigned(outcome->seed), "end", swarm_end_name(outcome->end), "what", result->what,
        "words", outcome->words, "seconds", outcome->seconds, "operations", (json_int_t)result->operations,
        "events", (json_int_t)result->events, "virtual_ns", (json_int_t)result->virtual_ns, "splits",
        (json_int_t)result->splits, "unlinks", (json_int_t)result->unlinks, "merges",
        (json_int_t)result->merges, "node_moves", (json_int_t)result->node_moves, "drained",
        (json_int_t)result->drained, "removed", (json_int_t)result->removed, "deaths",
        (json_int_t)result->deaths, "restarts", (json_int_t)result->restarts, "losses",
        (json_int_t)result->losses, "unknown", (json_int_t)result->unknown, "lost_bytes",
        (json_int_t)result->lost_bytes, "unfinished", (json_int_t)result->unfinished, "longest_ns",
        (json_int_t)result->longest_ns, "hash", (json_int_t)(result->hash >> 1));
    if (json && json_dumpf(json, stdout, JSON_COMPACT) == 0)
        putchar('\n');
    json_decref(json);
}

static void tell_text(const struct sim_run *run, const struct swarm_outcome *outcome)
{
    const struct swarm_result *result = &outcome->result;
    struct swarm_plan plan;
    struct error error;
    char words[320] = "";
    if (make_plan((void *)run, outcome->seed, &plan, &error) == 0)
        swarm_plan_describe(&plan, words, sizeof words);
    swarm_plan_free(&plan);
    if (outcome->end == SWARM_SOUND) {
        printf("seed %" PRIu64 ": ok, %" PRIu64 " operations, %" PRIu64 " us, %" PRIu64 " splits, %" PRIu64
               " unlinks, %" PRIu64 " merges, %" PRIu64 " deaths, %" PRIu64 " losses (%s)\n",
               outcome->seed, result->operations, result->virtual_ns / 1000, result->splits, result->unlinks,
               result->merges, result->deaths, result->losses, words);
        return;
    }
    printf("seed %" PRIu64 ": %s: %s (%s)\n", outcome->seed, swarm_end_name(outcome->end), result->what,
           words);
    if (*outcome->words)
        printf("  it said: %s\n", outcome->words);
    if (run->settings.replay)
        printf("  again: banyan sim --replay %s", run->settings.replay);
    else
        printf("  again: banyan sim --seed %" PRIu64, outcome->seed);
    if (run->settings.set)
        printf(" --set %s", run->settings.set);
    putchar('\n');
}

static void add_disks(struct world_disks_met *sum, const struct world_disks_met *one)
{
    sum->rounds += one->rounds;
    sum->failed += one->failed;
    sum->persists += one->persists;
    sum->cuts += one->cuts;
    sum->off += one->off;
    sum->gone += one->gone;
    sum->joined += one->joined;
    sum->saved += one->saved;
    sum->saved_beside += one->saved_beside;
    sum->over += one->over;
    sum->kept.changes += one->kept.changes;
    sum->kept.committed += one->kept.committed;
    sum->kept.keys += one->kept.keys;
    sum->kept.recovered += one->kept.recovered;
    sum->kept.sure += one->kept.sure;
    sum->kept.whole += one->kept.whole;
    sum->kept.later += one->kept.later;
    sum->kept.spared += one->kept.spared;
    sum->kept.missed += one->kept.missed;
}

static bool report(void *context, const struct swarm_outcome *outcome)
{
    struct sim_run *run = context;
    const struct swarm_result *result = &outcome->result;
    bool failed = outcome->end != SWARM_SOUND;
    run->runs++;
    run->busy += outcome->seconds;
    run->operations += result->operations;
    run->events += result->events;
    run->virtual_ns += result->virtual_ns;
    run->splits += result->splits;
    run->unlinks += result->unlinks;
    run->merges += result->merges;
    run->node_moves += result->node_moves;
    run->drained += result->drained;
    run->removed += result->removed;
    run->logs_ended += result->logs_ended;
    run->merged_there += result->merged_there;
    run->exchanged += result->exchanged;
    run->merging += result->merging_at_death;
    run->deaths += result->deaths;
    run->restarts += result->restarts;
    run->losses += result->losses;
    add_disks(&run->disks, &result->disks);
    if (result->longest_ns > run->longest_ns)
        run->longest_ns = result->longest_ns;
    if (failed && (!run->failures++ || outcome->seed < run->first_failed))
        run->first_failed = outcome->seed;
    bool told = failed || !run->settings.quiet;
    if (told && run->settings.json)
        tell_json(outcome);
    else if (told)
        tell_text(run, outcome);
    fflush(stdout);
    return true;
}

static void summarize(const struct sim_run *run)
{
    double minutes = (seconds_now() - run->begun) / 60, busy = run->busy / 60;
    uint64_t each = busy > 0 ? (uint64_t)((double)run->operations / busy) : 0;
    if (run->settings.json) {
        printf("{\"runs\":%" PRIu64 ",\"failures\":%" PRIu64 ",\"operations\":%" PRIu64
               ",\"operations_per_minute_and_job\":%" PRIu64 ",\"minutes\":%.3f}\n",
               run->runs, run->failures, run->operations, each, minutes);
        return;
    }
    printf("%" PRIu64 " runs, %" PRIu64 " failed; %" PRIu64 " operations in %.1f minutes (%" PRIu64
           " a minute and job), %" PRIu64 " splits, %" PRIu64 " unlinks, %" PRIu64 " merges (%" PRIu64
           " leaves half merged at a death), %" PRIu64 " nodes moved, %" PRIu64
           " memory nodes emptied and judged, of which %" PRIu64 " left (%" PRIu64
           " logs of dead compute nodes were ended for that), %" PRIu64 " entries of logs merged and %" PRIu64
           " changes made by memory nodes, %" PRIu64 " deaths, %" PRIu64 " restarts, %" PRIu64
           " lost connections; longest operation after the faults %" PRIu64 " us\n",
           run->runs, run->failures, run->operations, minutes, each, run->splits, run->unlinks, run->merges,
           run->merging, run->node_moves, run->drained, run->removed, run->logs_ended, run->merged_there,
           run->exchanged, run->deaths, run->restarts, run->losses, run->longest_ns / 1000);
    if (run->disks.cuts) {
        const struct world_disks_met *disks = &run->disks;
        printf("disks: %" PRIu64 " rounds, %" PRIu64 " that failed, %" PRIu64 " waits; power was cut %" PRIu64
               " times, of %" PRIu64 " memory nodes; %" PRIu64 " changes were logged, %" PRIu64
               " committed; of %" PRIu64 " keys something was promised, %" PRIu64 " had more; %" PRIu64
               " were read back; %" PRIu64 " acknowledged writes were looked for, %" PRIu64
               " histories ended with what was read back\n",
               disks->rounds, disks->failed, disks->persists, disks->cuts, disks->off, disks->kept.changes,
               disks->kept.committed, disks->kept.keys, disks->kept.later, disks->kept.recovered,
               disks->kept.sure, disks->kept.whole);
    }
    if (run->disks.joined)
        printf("%" PRIu64 " memory nodes joined beside disks, where all others have noted it\n",
               run->disks.joined);
    if (run->disks.saved)
        printf("%" PRIu64 " checkpoints were made, %" PRIu64 " of them while a memory node joined; %" PRIu64
               " worlds were read back over one\n",
               run->disks.saved, run->disks.saved_beside, run->disks.over);
    if (run->disks.gone)
        printf("%" PRIu64 " times a disk was gone as well: of %" PRIu64
               " keys something was promised all the same, and of %" PRIu64
               " the newest value was said to be missing\n",
               run->disks.gone, run->disks.kept.spared, run->disks.kept.missed);
    if (run->failures)
        printf("first failing seed: %" PRIu64 "\n", run->first_failed);
}

static void list_fields(void)
{
    static const struct option_entry *const tables[] = {swarm_plan_table, tree_switches_table,
                                                        sim_faults_table, sim_params_table};
    static const char *const names[] = {"cluster, index, workload", "switches", "faults", "hardware"};
    for (size_t i = 0; i < 4; i++) {
        printf("%s:\n", names[i]);
        for (const struct option_entry *entry = tables[i]; entry->kind != OPTION_END; entry++) {
            printf("  %-20s %s", entry->name, entry->help);
            for (const char *const *choice = entry->choices; choice && *choice; choice++)
                printf("%s%s", choice == entry->choices ? ": " : ", ", *choice);
            printf("%s%s%s\n", entry->unit ? " (" : "", entry->unit ? entry->unit : "",
                   entry->unit ? ")" : "");
        }
    }
}

/* ---- one failure, closely ---- */

static void tell_shrunk(void *context, const char *what, const struct swarm_plan *plan, uint32_t attempts)
{
    const struct sim_run *run = context;
    if (!run->settings.json && !run->settings.quiet)
        fprintf(stderr, "shrinking, %u runs so far: %s\n", attempts, what);
}

static int save(const struct sim_run *run, const struct swarm_plan *plan, struct error *error)
{
    FILE *file = run->settings.save ? fopen(run->settings.save, "we") : NULL;
    if (!run->settings.save)
        return 0;
    int status = file ? swarm_plan_write(plan, file) : BANYAN_EINVAL;
    if (file && fclose(file))
        status = BANYAN_ENOSPC;
    return status ? error_set(error, status, "%s: %s", run->settings.save, strerror(errno)) : 0;
}

static int look_closely(struct sim_run *run, uint64_t seed, struct error *error)
{
    struct swarm_plan plan;
    struct swarm_outcome outcome;
    int status = make_plan(run, seed, &plan, error);
    if (!status && run->settings.shrink) {
        const struct swarm_shrink_options options = {
            .jobs = run->settings.jobs,
            .minutes = run->settings.minutes > 0 ? run->settings.minutes : SHRINK_MINUTES,
            .seconds_max = run->settings.timeout,
            .bytes_max = run->settings.memory,
            .progress = tell_shrunk,
            .context = run};
        status = swarm_shrink(&plan, &options, &outcome, error);
        if (!status && !run->settings.json) {
            printf("\nshrunk to this plan: %s: %s\n\n", swarm_end_name(outcome.end), outcome.result.what);
            swarm_plan_write(&plan, stdout);
        }
    }
    status = status ? status : save(run, &plan, error);
    bool one = run->settings.seed || run->settings.replay; /* else the trace has to be asked for */
    if (!status && !run->settings.json && (one || run->settings.trace)) {
        const struct swarm_trace_options options = {.rows_max = run->settings.rows,
                                                    .seconds_max = run->settings.timeout,
                                                    .bytes_max = run->settings.memory};
        putchar('\n');
        status = swarm_trace_run(&plan, &options, stdout, &outcome, error);
    }
    swarm_plan_free(&plan);
    return status;
}

/* ---- the command ---- */

static int read_number(const char *text, const char **end, uint64_t *number)
{
    char *after;
    errno = 0;
    if (*text < '0' || *text > '9')
        return BANYAN_EINVAL;
    *number = strtoull(text, &after, 10);
    *end = after;
    return errno ? BANYAN_EINVAL : 0;
}

static int seeds_of(struct sim_run *run, struct swarm_farm *farm, struct error *error)
{
    struct sim_settings *settings = &run->settings;
    const char *end;
    if (!!settings->seed + !!settings->seeds + !!settings->replay > 1)
        return error_set(error, BANYAN_EINVAL, "give one of --seed, --seeds and --replay");
    farm->minutes = settings->minutes;
    if (settings->replay) {
        farm->from = farm->to = run->replayed.seed;
    } else if (settings->seed) {
        if (read_number(settings->seed, &end, &farm->from) || *end)
            return error_set(error, BANYAN_EINVAL, "--seed: '%.60s' is no number", settings->seed);
        farm->to = farm->from;
    } else if (settings->seeds) {
        if (read_number(settings->seeds, &end, &farm->from) || *end != '-' ||
            read_number(end + 1, &end, &farm->to) || *end || farm->from > farm->to)
            return error_set(error, BANYAN_EINVAL, "--seeds wants FROM-TO, such as 1-1000, not '%.60s'",
                             settings->seeds);
    } else {
        farm->from = random_entropy() >> 24;
        farm->to = UINT64_MAX;
        farm->minutes = farm->minutes > 0 ? farm->minutes : 1;
    }
    return 0;
}

static int run_all(struct sim_run *run, struct error *error)
{
    struct sim_settings *settings = &run->settings;
    struct swarm_farm farm = {.jobs = settings->jobs,
                              .seconds_max = settings->timeout,
                              .bytes_max = settings->memory,
                              .fail_fast = settings->fail_fast,
                              .plan = make_plan,
                              .report = report,
                              .context = run};
    struct swarm_plan plan;
    if (settings->replay && swarm_plan_read(&run->replayed, settings->replay, error))
        return BANYAN_EINVAL;
    int status = seeds_of(run, &farm, error);
    if (status)
        return status;
    status = make_plan(run, farm.from, &plan, error); /* a wrong --set is told once */
    if (!status && settings->plan)
        swarm_plan_write(&plan, stdout);
    swarm_plan_free(&plan);
    if (status || settings->plan)
        return status;
    bool one = farm.from == farm.to;
    if (settings->json && (settings->trace || (settings->shrink && !settings->save)))
        return error_set(error, BANYAN_EINVAL, "--json tells of runs, without %s",
                         settings->trace ? "--trace" : "what --shrink finds: give --save, too");
    if (settings->shrink && !one)
        return error_set(error, BANYAN_EINVAL, "--shrink wants one failure: --seed or --replay");
    run->begun = seconds_now();
    status = swarm_farm_run(&farm, error);
    if (!status && run->failures && (one || settings->trace || settings->save))
        status = look_closely(run, run->first_failed, error);
    if (!one || settings->json)
        summarize(run);
    if (status && status != BANYAN_EABORT) {
        fprintf(stderr, "banyan sim: %s\n", error->text);
        run->failures++;
    } else if (status) {
        run->failures += !run->failures;
    }
    return 0;
}

int command_sim(int argc, char **argv)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct sim_run run = {.settings = {.timeout = 120,
                                       .memory = UINT64_C(2) << 30,
                                       .rows = 200,
                                       .jobs = cpus < 1     ? 1
                                               : cpus > 256 ? 256
                                                            : (uint32_t)cpus}};
    struct error error = {0};
    swarm_plan_default(&run.replayed);
    int status = settings_read(&command, &run.settings, argc, argv, NULL, &error);
    if (!status && run.settings.fields)
        list_fields();
    else if (!status)
        status = run_all(&run, &error);
    if (status)
        fprintf(stderr, "banyan sim: %s\n", error.text);
    option_free(table, &run.settings);
    swarm_plan_free(&run.replayed);
    return status ? COMMAND_USAGE : run.failures ? COMMAND_FAILED : COMMAND_OK;
}
