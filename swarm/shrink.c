/* shrink.c - see shrink.h. */
#include "swarm/shrink.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DICE_DEFAULT 3u
#define DICE_MAX     64u

struct shrink {
    const struct swarm_shrink_options *options;
    struct swarm_plan plan;       /* fails, as small as it is by now; owned */
    struct swarm_outcome outcome; /* of it */
    struct swarm_outcome first;   /* of the plan as it was given: others must be like it */
    uint32_t attempts, dice;
    uint64_t next_dice;
    double deadline;
    bool over, improved;
    int status;
    struct error *error;
};

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- trying ---- */

struct attempt {
    struct shrink *shrink;
    struct swarm_plan plans[1 + DICE_MAX]; /* the same with other dice */
    struct swarm_outcome outcomes[1 + DICE_MAX];
    bool alike[1 + DICE_MAX];
};

/* A wrong answer may become another one: which of them is noticed first is a matter of luck. */
static bool is_wrong_answer(int status)
{
    return status == BANYAN_ECONFLICT || status == BANYAN_ECORRUPT;
}

static bool is_alike(const struct swarm_outcome *a, const struct swarm_outcome *b)
{
    if (a->end != b->end || a->end != SWARM_FAILED)
        return a->end == b->end;
    return a->result.status == b->result.status ||
           (is_wrong_answer(a->result.status) && is_wrong_answer(b->result.status));
}

static int attempt_plan(void *context, uint64_t number, struct swarm_plan *plan, struct error *error)
{
    const struct attempt *attempt = context;
    return swarm_plan_copy(plan, &attempt->plans[number], error);
}

static bool attempt_report(void *context, const struct swarm_outcome *outcome)
{
    struct attempt *attempt = context;
    attempt->outcomes[outcome->seed] = *outcome;
    attempt->alike[outcome->seed] = is_alike(outcome, &attempt->shrink->first);
    attempt->shrink->attempts++;
    return !attempt->alike[outcome->seed];
}

static int attempt_run(struct attempt *attempt, uint32_t count)
{
    struct shrink *shrink = attempt->shrink;
    const struct swarm_shrink_options *options = shrink->options;
    const struct swarm_farm farm = {.from = 0,
                                    .to = count - 1,
                                    .jobs = options->jobs ? options->jobs : 1,
                                    .seconds_max = options->seconds_max,
                                    .bytes_max = options->bytes_max,
                                    .watch = options->watch,
                                    .plan = attempt_plan,
                                    .report = attempt_report,
                                    .context = attempt};
    return swarm_farm_run(&farm, shrink->error);
}

static void take(struct shrink *shrink, const struct attempt *attempt, uint32_t number)
{
    free(shrink->plan.skip);
    shrink->plan = attempt->plans[number];
    shrink->plan.skip = attempt->plans[number].skip ? strdup(attempt->plans[number].skip) : NULL;
    if (attempt->plans[number].skip && !shrink->plan.skip)
        abort();
    shrink->outcome = attempt->outcomes[number];
    shrink->outcome.seed = shrink->plan.seed;
    shrink->improved = true;
}

static bool is_over(struct shrink *shrink)
{
    const struct swarm_shrink_options *options = shrink->options;
    shrink->over = shrink->over || shrink->status ||
                   (shrink->deadline > 0 && seconds_now() > shrink->deadline) ||
                   (options->attempts_max && shrink->attempts >= options->attempts_max);
    return shrink->over;
}

/* Whether the plan fails as the first one does, by its own dice or by others; then it is the plan from now
 * on. Of several the first, so that the outcome does not depend on which process is faster. */
static bool try(struct shrink *shrink, const struct swarm_plan *plan)
{
    struct error why;
    if (is_over(shrink) || swarm_plan_check(plan, &why))
        return false;
    struct attempt *attempt = calloc(1, sizeof *attempt);
    if (!attempt)
        abort();
    attempt->shrink = shrink;
    uint32_t count = 1 + shrink->dice, at = 0;
    for (uint32_t i = 0; i < count; i++) {
        attempt->plans[i] = *plan; /* borrows the skip */
        attempt->plans[i].dice = i ? shrink->next_dice + i : plan->dice;
    }
    shrink->status = attempt_run(attempt, count);
    while (at < count && !attempt->alike[at])
        at++;
    bool found = !shrink->status && at < count;
    if (found)
        take(shrink, attempt, at);
    shrink->next_dice += shrink->dice;
    free(attempt);
    return found;
}

__attribute__((format(printf, 2, 3))) static void tell(struct shrink *shrink, const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (shrink->options->progress)
        shrink->options->progress(shrink->options->context, text, &shrink->plan, shrink->attempts);
}

/* ---- rounds that are left out, when the cluster's shape changes ---- */

static uint32_t task_of(const struct swarm_plan *plan, uint32_t compute, uint32_t thread, uint32_t fiber)
{
    return (compute * plan->threads + thread) * plan->fibers + fiber;
}

/* Each task that remains leaves out the rounds that it left out before. */
static void skip_carry(struct swarm_plan *plan, const struct swarm_plan *before)
{
    struct swarm_skip old, new;
    struct error error;
    plan->skip = NULL;
    if (!before->skip || swarm_skip_parse(&old, before, &error))
        return;
    new = (struct swarm_skip){.tasks = plan->compute_nodes * plan->threads * plan->fibers,
                              .rounds = plan->rounds};
    new.words = calloc(((uint64_t) new.tasks *new.rounds + 63) / 64, 8);
    if (!new.words)
        abort();
    for (uint32_t task = 0; task < old.tasks; task++) {
        uint32_t fiber = task % before->fibers, thread = task / before->fibers % before->threads,
                 compute = task / before->fibers / before->threads;
        if (fiber >= plan->fibers || thread >= plan->threads || compute >= plan->compute_nodes)
            continue;
        for (uint32_t round = 0; round < plan->rounds && round < old.rounds; round++)
            if (swarm_skip_has(&old, task, round))
                swarm_skip_set(&new, task_of(plan, compute, thread, fiber), round, true);
    }
    plan->skip = swarm_skip_format(&new);
    swarm_skip_free(&old);
    swarm_skip_free(&new);
}

/* Tries the plan with other fields; `what` says which. */
static bool try_changed(struct shrink *shrink, struct swarm_plan *plan, const char *what)
{
    skip_carry(plan, &shrink->plan);
    bool found = try(shrink, plan);
    free(plan->skip);
    if (found)
        tell(shrink, "%s", what);
    return found;
}

/* ---- fields ---- */

struct part {
    const struct option_entry *table;
    size_t offset;
};
static const struct part parts[] = {
    {sim_faults_table, offsetof(struct swarm_plan, faults)},
    {swarm_plan_table, 0},
    {tree_switches_table, offsetof(struct swarm_plan, switches)},
    {sim_params_table, offsetof(struct swarm_plan, params)},
};

/* The simplest values of fields whose default is not the simplest. */
static const struct simplest {
    const char *name, *value;
} simplest[] = {{"compute-nodes", "1"}, {"hot", "0"},    {"scans", "0"},
                {"multis", "0"},        {"merges", "0"}, {"node-moves", "0"},
                {"drains", "0"},        {"joins", "0"},  {"disk-save-ns", "0"}};

/* Fields by which the run is judged, and those that numbers_shrink and rounds_shrink reduce. */
static const char *const kept[] = {"seed", "dice", "skip", "rounds", "keys", "events", "patience-ns"};

static bool is_kept(const char *name)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (!strcmp(name, kept[i]))
            return true;
    return false;
}

static void simplest_value(const struct part *part, const struct option_entry *entry,
                           const struct swarm_plan *usual, char *value, size_t size)
{
    option_format(entry, (const char *)usual + part->offset, value, size);
    for (size_t i = 0; i < sizeof simplest / sizeof simplest[0]; i++)
        if (!strcmp(entry->name, simplest[i].name))
            snprintf(value, size, "%s", simplest[i].value);
}

static void fields_shrink(struct shrink *shrink)
{
    struct swarm_plan usual;
    swarm_plan_default(&usual);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (const struct option_entry *entry = parts[i].table; entry->kind != OPTION_END; entry++) {
            char now[64], value[64], what[160];
            struct error error;
            struct swarm_plan plan = shrink->plan;
            option_format(entry, (const char *)&shrink->plan + parts[i].offset, now, sizeof now);
            simplest_value(&parts[i], entry, &usual, value, sizeof value);
            if (is_kept(entry->name) || !strcmp(now, value) ||
                swarm_plan_set(&plan, entry->name, value, &error))
                continue;
            snprintf(what, sizeof what, "%s = %s, was %s", entry->name, value, now);
            try_changed(shrink, &plan, what);
        }
}

/* All at once, before they are tried one by one. */
static void calm_shrink(struct shrink *shrink)
{
    struct swarm_plan plan = shrink->plan;
    bool mishaps = plan.kills || plan.stalls || plan.cuts || plan.refusals;
    if (!mishaps && !sim_faults_any(&plan.faults))
        return;
    sim_faults_none(&plan.faults);
    plan.kills = plan.restarts = plan.stalls = plan.cuts = plan.refusals = 0;
    if (try_changed(shrink, &plan, "no faults at all") || !mishaps)
        return;
    plan = shrink->plan;
    plan.kills = plan.restarts = plan.stalls = plan.cuts = plan.refusals = 0;
    try_changed(shrink, &plan, "nothing happens to nodes and connections");
}

/* ---- numbers ---- */

static const struct number {
    const char *name;
    uint64_t minimum, step;
} numbers[] = {{"compute-nodes", 1, 1}, {"memory-nodes", 1, 1}, {"threads", 1, 1}, {"fibers", 1, 1},
               {"kills", 0, 1},         {"restarts", 0, 1},     {"stalls", 0, 1},  {"cuts", 0, 1},
               {"refusals", 0, 1},      {"rounds", 1, 1},       {"keys", 40, 4},   {"hot", 0, 5},
               {"scans", 0, 5},         {"multis", 0, 5},       {"moves", 0, 5},   {"change-ns", 0, 10000}};

static uint64_t number_of(const struct swarm_plan *plan, const char *name)
{
    const struct option_entry *entry = option_find(swarm_plan_table, name);
    uint32_t small;
    uint64_t large;
    if (entry->kind == OPTION_U32) {
        memcpy(&small, (const char *)plan + entry->offset, sizeof small);
        return small;
    }
    memcpy(&large, (const char *)plan + entry->offset, sizeof large);
    return large;
}

static bool try_number(struct shrink *shrink, const struct number *number, uint64_t value)
{
    struct swarm_plan plan = shrink->plan;
    struct error error;
    char text[24], what[120];
    snprintf(text, sizeof text, "%" PRIu64, value);
    snprintf(what, sizeof what, "%s = %" PRIu64 ", was %" PRIu64, number->name, value,
             number_of(&shrink->plan, number->name));
    if (swarm_plan_set(&plan, number->name, text, &error))
        return false;
    if (plan.window * 2 > plan.keys)
        plan.window = plan.keys / 2;
    return try_changed(shrink, &plan, what);
}

/* The least first, then bisecting. */
static void numbers_shrink(struct shrink *shrink)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct number *number = &numbers[i];
        uint64_t low = number->minimum, high = number_of(&shrink->plan, number->name);
        if (high <= low || try_number(shrink, number, low))
            continue;
        while (high - low > number->step) {
            uint64_t middle = low + (high - low) / 2 / number->step * number->step;
            if (middle == low)
                break;
            if (try_number(shrink, number, middle))
                high = middle;
            else
                low = middle;
        }
    }
}

/* ---- rounds ---- */

struct rounds {
    uint32_t *tasks, *numbers; /* owned: rounds still carried out, the latest last */
    uint32_t count;
};

static void rounds_of(const struct swarm_plan *plan, struct rounds *rounds)
{
    struct swarm_skip skip;
    struct error error;
    if (swarm_skip_parse(&skip, plan, &error))
        abort(); /* the plan has been checked */
    uint64_t most = (uint64_t)skip.tasks * skip.rounds + 1;
    *rounds = (struct rounds){.tasks = calloc(most, sizeof *rounds->tasks),
                              .numbers = calloc(most, sizeof *rounds->numbers)};
    if (!rounds->tasks || !rounds->numbers)
        abort();
    for (uint32_t round = 0; round < skip.rounds; round++)
        for (uint32_t task = 0; task < skip.tasks; task++)
            if (!swarm_skip_has(&skip, task, round)) {
                rounds->tasks[rounds->count] = task;
                rounds->numbers[rounds->count++] = round;
            }
    swarm_skip_free(&skip);
}

static void rounds_free(struct rounds *rounds)
{
    free(rounds->tasks);
    free(rounds->numbers);
}

/* Leaves out rounds [from, to) of these, or all of one task. */
static bool try_without(struct shrink *shrink, const struct rounds *rounds, uint32_t from, uint32_t to,
                        uint32_t task)
{
    struct swarm_plan plan = shrink->plan;
    struct swarm_skip skip = {.tasks = plan.compute_nodes * plan.threads * plan.fibers,
                              .rounds = plan.rounds};
    skip.words = calloc(((uint64_t)skip.tasks * skip.rounds + 63) / 64, 8);
    if (!skip.words)
        abort();
    memset(skip.words, 0xff, ((uint64_t)skip.tasks * skip.rounds + 63) / 64 * 8);
    for (uint32_t i = 0; i < rounds->count; i++)
        if ((i < from || i >= to) && rounds->tasks[i] != task)
            swarm_skip_set(&skip, rounds->tasks[i], rounds->numbers[i], false);
    plan.skip = swarm_skip_format(&skip);
    swarm_skip_free(&skip);
    bool found = try(shrink, &plan);
    free(plan.skip);
    return found;
}

static void tasks_shrink(struct shrink *shrink)
{
    uint32_t tasks = shrink->plan.compute_nodes * shrink->plan.threads * shrink->plan.fibers;
    for (uint32_t task = 0; task < tasks; task++) {
        struct rounds rounds;
        bool there = false;
        rounds_of(&shrink->plan, &rounds);
        for (uint32_t i = 0; i < rounds.count; i++)
            there = there || rounds.tasks[i] == task;
        if (there && try_without(shrink, &rounds, 0, 0, task))
            tell(shrink, "nothing of task %u", task);
        rounds_free(&rounds);
    }
}

/* One sweep that leaves out `size` rounds at a time, from the last on. */
static void rounds_sweep(struct shrink *shrink, uint32_t size)
{
    struct rounds rounds;
    rounds_of(&shrink->plan, &rounds);
    uint32_t before = rounds.count;
    for (uint32_t end = rounds.count; end > 0;) {
        uint32_t from = end > size ? end - size : 0;
        if (try_without(shrink, &rounds, from, end, UINT32_MAX)) {
            rounds_free(&rounds);
            rounds_of(&shrink->plan, &rounds);
        }
        end = from;
    }
    if (rounds.count < before)
        tell(shrink, "%u rounds are left, were %u", rounds.count, before);
    rounds_free(&rounds);
}

static uint32_t rounds_left(const struct shrink *shrink)
{
    struct rounds rounds;
    rounds_of(&shrink->plan, &rounds);
    uint32_t count = rounds.count;
    rounds_free(&rounds);
    return count;
}

static void rounds_shrink(struct shrink *shrink)
{
    tasks_shrink(shrink);
    for (uint32_t size = (rounds_left(shrink) + 1) / 2; size > 0 && !is_over(shrink); size /= 2)
        rounds_sweep(shrink, size);
}

/* ---- all of it ---- */

static int first_run(struct shrink *shrink)
{
    struct attempt *attempt = calloc(1, sizeof *attempt);
    if (!attempt)
        abort();
    attempt->shrink = shrink;
    attempt->plans[0] = shrink->plan;
    int status = attempt_run(attempt, 1);
    shrink->outcome = shrink->first = attempt->outcomes[0];
    shrink->outcome.seed = shrink->plan.seed;
    free(attempt);
    if (!status && shrink->first.end == SWARM_SOUND)
        status =
            error_set(shrink->error, BANYAN_ENOTFOUND, "seed %" PRIu64 " does not fail", shrink->plan.seed);
    return status;
}

int swarm_shrink(struct swarm_plan *plan, const struct swarm_shrink_options *options,
                 struct swarm_outcome *outcome, struct error *error)
{
    struct shrink shrink = {.options = options,
                            .dice = options->dice ? options->dice : DICE_DEFAULT,
                            .deadline = options->minutes > 0 ? seconds_now() + options->minutes * 60 : 0,
                            .error = error};
    if (shrink.dice > DICE_MAX)
        shrink.dice = DICE_MAX;
    int status = swarm_plan_copy(&shrink.plan, plan, error);
    status = status ? status : first_run(&shrink);
    do {
        shrink.improved = false;
        if (status || is_over(&shrink))
            break;
        calm_shrink(&shrink);
        numbers_shrink(&shrink);
        fields_shrink(&shrink);
        rounds_shrink(&shrink);
    } while (shrink.improved);
    *outcome = shrink.outcome;
    swarm_plan_free(plan);
    *plan = shrink.plan;
    return status ? status : shrink.status;
}
