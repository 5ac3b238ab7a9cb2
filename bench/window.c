/* window.c - which operations of a run count, and how their numbers come together; see runner.h. */
#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "bench/runner.h"

/* The longest batch, up to `most`, of which both warm-up and measuring are made of whole ones: so that one
 * client alone counts the very operations that it was asked for. */
static uint32_t whole_batch(const struct bench_config *config, uint32_t most)
{
    const uint64_t warm_up = config->warm_up ? config->warm_up : 1;
    uint32_t batch = most;
    while (config->operations % batch || warm_up % batch)
        batch--;
    return batch;
}

void bench_window_init(struct bench_window *window, const struct bench_config *config, unsigned clients,
                       struct spinlock *lock)
{
    uint64_t batch = config->operations / (clients * UINT64_C(64)) + 1;
    *window = (struct bench_window){.config = config, .lock = lock};
    /* In the simulator one thread runs everything, and a counter costs no cache line. */
    window->batch = config->fabric == BENCH_SIM ? 1 : (uint32_t)(batch < 64 ? batch : 64);
    if (clients == 1)
        window->batch = whole_batch(config, window->batch);
    window->cold = clients;
}

void bench_window_warm(struct bench_window *window)
{
    /* Release: the window opens only after this client's cache warming. */
    __atomic_fetch_sub(&window->cold, 1u, __ATOMIC_RELEASE);
}

void bench_window_fail(struct bench_window *window, const struct error *error)
{
    spinlock_lock(window->lock);
    if (!window->failed) {
        window->failed = true;
        window->error = *error;
    }
    spinlock_unlock(window->lock);
    /* Release: a client that sees the end sees the error. */
    atomic_store_release(&window->phase, (uint32_t)BENCH_DONE);
}

static void report_progress(const struct bench_window *window, const char *phase, uint64_t before,
                            uint64_t after, uint64_t total)
{
    const struct bench_config *config = window->config;
    if (config->progress && total && before * 100 / total != after * 100 / total)
        config->progress(config->progress_context, phase, after < total ? (double)after / (double)total : 1);
}

/* Whether the window closes with this operation, the last of so many. */
static bool is_last(const struct bench_window *window, uint64_t before, uint64_t number, uint64_t now)
{
    const struct bench_config *config = window->config;
    if (config->fail)
        return window->died_ns && now >= window->died_ns + BENCH_AFTER_NS;
    return before < config->operations && before + number >= config->operations;
}

/* Tells the others about operations done, and turns the phase when the number is reached: one thread sees the
 * counter cross it. The counters' adds are relaxed; the phase's release orders the times before it. */
static void report(struct bench_window *window, enum bench_phase phase, uint64_t number, uint64_t now)
{
    const struct bench_config *config = window->config;
    if (phase == BENCH_WARMING) {
        uint64_t before = atomic_add_relaxed(&window->warmed, number);
        report_progress(window, "warming up", before, before + number, config->warm_up);
        /* Acquire: the other side of bench_window_warm. The window opens once, by the client that claims it
         * first. */
        if (before + number < config->warm_up || atomic_load_acquire(&window->cold) ||
            __atomic_exchange_n(&window->claimed, 1u, __ATOMIC_RELAXED))
            return;
        if (window->turned)
            window->turned(window->turned_context, BENCH_MEASURING);
        window->begin_ns = now;
        uint32_t expected = BENCH_WARMING; /* a failure may have ended the run meanwhile: do not undo that */
        __atomic_compare_exchange_n(&window->phase, &expected, (uint32_t)BENCH_MEASURING, false,
                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
        return;
    }
    uint64_t before = atomic_add_relaxed(&window->counted, number);
    report_progress(window, "measuring", before, before + number, config->operations);
    if (is_last(window, before, number, now)) {
        window->end_ns = now;
        if (window->turned)
            window->turned(window->turned_context, BENCH_DONE);
        atomic_store_release(&window->phase, (uint32_t)BENCH_DONE);
    }
}

static void record_latency(struct histogram **of, uint64_t latency)
{
    if (!*of)
        *of = histogram_create();
    if (*of)
        histogram_record(*of, latency);
}

static void record(struct bench_result *result, enum workload_kind kind, uint64_t latency,
                   const struct fabric_cost *cost)
{
    struct bench_kind *of_kind = &result->kinds[kind];
    record_latency(&of_kind->latency, latency);
    of_kind->count++;
    result->operations++;
    if (cost)
        fabric_cost_add(&of_kind->cost, cost);
}

/* Without memory the interval stays empty: the rest of the result does not depend on it. */
static void count_interval(struct bench_timeline *timeline, uint64_t since_ns)
{
    size_t interval = since_ns / BENCH_INTERVAL_NS;
    if (interval >= timeline->capacity) {
        size_t capacity = interval * 2 + 64;
        uint32_t *grown = realloc(timeline->counts, capacity * sizeof *grown);
        if (!grown)
            return;
        memset(grown + timeline->capacity, 0, (capacity - timeline->capacity) * sizeof *grown);
        timeline->counts = grown;
        timeline->capacity = capacity;
    }
    timeline->length = interval + 1 > timeline->length ? interval + 1 : timeline->length;
    timeline->counts[interval]++;
}

void bench_meter_count(struct bench_meter *meter, enum bench_phase phase, enum workload_kind kind,
                       uint64_t begin_ns, uint64_t end_ns, const struct fabric_cost *cost)
{
    struct bench_window *window = meter->window;
    uint64_t latency = end_ns > begin_ns ? end_ns - begin_ns : 0;
    if (phase == BENCH_MEASURING) {
        if (bench_window_phase(window) == BENCH_DONE) {
            meter->result->unfinished++;
            if (latency > meter->result->unfinished_longest_ns)
                meter->result->unfinished_longest_ns = latency;
            return;
        }
        record(meter->result, kind, latency, cost);
        if (window->config->fail)
            record_latency(window->died_ns ? &meter->result->failure.after : &meter->result->failure.before,
                           latency);
        if (window->config->move || window->config->fail)
            count_interval(&meter->result->timeline, end_ns - window->begin_ns);
    }
    if (meter->phase != phase) { /* counts of the warm-up that were not reported are not needed any more */
        meter->phase = phase;
        meter->unreported = 0;
    }
    if (++meter->unreported < window->batch)
        return;
    report(window, phase, meter->unreported, end_ns);
    meter->unreported = 0;
}

static void take_kind(struct tree_cache_kind *into, const struct tree_cache_kind *kind)
{
    into->hits -= kind->hits;
    into->misses -= kind->misses;
    into->admissions -= kind->admissions;
    into->evictions -= kind->evictions;
}

static void add_kind(struct tree_cache_kind *into, const struct tree_cache_kind *kind)
{
    into->hits += kind->hits;
    into->misses += kind->misses;
    into->admissions += kind->admissions;
    into->evictions += kind->evictions;
    into->count += kind->count;
    into->bytes += kind->bytes;
}

void bench_cache_begin(struct bench_result *result, const struct tree *tree)
{
    struct tree_cache_stats stats = {0};
    tree_cache_stats(tree, &stats);
    take_kind(&result->cache.leaves, &stats.leaves);
    take_kind(&result->cache.entries, &stats.entries);
    take_kind(&result->cache.values, &stats.values);
    result->cache.admissions -= stats.admissions;
    result->cache.evictions -= stats.evictions;
    result->cache.shortcut_hits -= stats.shortcut_hits;
    result->cache.promotions -= stats.promotions;
    result->cache.demotions -= stats.demotions;
    result->cache.busy -= stats.busy;
}

void bench_cache_end(struct bench_result *result, const struct tree *tree)
{
    struct tree_cache_stats stats = {0};
    tree_cache_stats(tree, &stats);
    add_kind(&result->cache.leaves, &stats.leaves);
    add_kind(&result->cache.entries, &stats.entries);
    add_kind(&result->cache.values, &stats.values);
    result->cache.frames += stats.frames;
    result->cache.bytes += stats.bytes;
    result->cache.admissions += stats.admissions;
    result->cache.evictions += stats.evictions;
    result->cache.shortcut_hits += stats.shortcut_hits;
    result->cache.promotions += stats.promotions;
    result->cache.demotions += stats.demotions;
    result->cache.busy += stats.busy;
}

static void merge_histogram(struct histogram **into, struct histogram **from)
{
    if (!*from)
        return;
    if (!*into) {
        *into = *from;
    } else {
        histogram_merge(*into, *from);
        histogram_destroy(*from);
    }
    *from = NULL;
}

void bench_result_merge(struct bench_result *into, struct bench_result *from)
{
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++) {
        into->kinds[kind].count += from->kinds[kind].count;
        fabric_cost_add(&into->kinds[kind].cost, &from->kinds[kind].cost);
        merge_histogram(&into->kinds[kind].latency, &from->kinds[kind].latency);
    }
    into->operations += from->operations;
    into->retries += from->retries;
    into->cache_hits += from->cache_hits;
    into->cache_misses += from->cache_misses;
    into->splits += from->splits;
    into->unlinks += from->unlinks;
    into->handovers += from->handovers;
    into->snapshot_handovers += from->snapshot_handovers;
    into->combined += from->combined;
    into->absent += from->absent;
    into->entries_scanned += from->entries_scanned;
    into->unfinished += from->unfinished;
    if (from->unfinished_longest_ns > into->unfinished_longest_ns)
        into->unfinished_longest_ns = from->unfinished_longest_ns;
}

void bench_result_complete(struct bench_result *result, const struct bench_window *window)
{
    if (!result->latency)
        result->latency = histogram_create();
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++) {
        if (result->latency && result->kinds[kind].latency)
            histogram_merge(result->latency, result->kinds[kind].latency);
        fabric_cost_add(&result->cost, &result->kinds[kind].cost);
    }
    result->window_ns = window->end_ns > window->begin_ns ? window->end_ns - window->begin_ns : 1;
    result->throughput_mops = (double)result->operations * 1e3 / (double)result->window_ns;
}

void bench_result_release(struct bench_result *result)
{
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++)
        if (result->kinds[kind].latency)
            histogram_destroy(result->kinds[kind].latency);
    if (result->latency)
        histogram_destroy(result->latency);
    if (result->failure.before)
        histogram_destroy(result->failure.before);
    if (result->failure.after)
        histogram_destroy(result->failure.after);
    free(result->timeline.counts);
    memset(result, 0, sizeof *result);
}
