/* stats.c - the server's figures, out of those of its threads; contracts in counters.h and server.h. */
#include <string.h>

#include "server/buffers.h"
#include "server/command.h"
#include "server/fiber.h"
#include "server/state.h"

static void stats_add(struct tree_stats *sum, const struct tree_stats *stats)
{
    fabric_cost_add(&sum->cost, &stats->cost);
    sum->operations += stats->operations;
    sum->retries += stats->retries;
    sum->cache_hits += stats->cache_hits;
    sum->cache_misses += stats->cache_misses;
    sum->splits += stats->splits;
    sum->unlinks += stats->unlinks;
    sum->handovers += stats->handovers;
    sum->snapshot_handovers += stats->snapshot_handovers;
    sum->unfinished += stats->unfinished;
    sum->combined += stats->combined;
    sum->walks += stats->walks;
    sum->walks_answered += stats->walks_answered;
    sum->walks_busy += stats->walks_busy;
    sum->exchanges += stats->exchanges;
    sum->exchanges_answered += stats->exchanges_answered;
    sum->exchanges_busy += stats->exchanges_busy;
}

void server_thread_publish(struct server_thread *thread)
{
    struct tree_stats sum = {0};
    for (unsigned i = 0; thread->fibers && i < thread->server->options.fibers; i++)
        if (thread->fibers[i].session)
            stats_add(&sum, tree_session_stats(thread->fibers[i].session));
    spinlock_lock(&thread->lock);
    thread->tree_stats = sum;
    spinlock_unlock(&thread->lock);
}

void server_sample_rate(struct server *server, uint64_t now)
{
    struct server_counters sum;
    if (now - server->sampled_ns < 10 * SERVER_TICK_NS)
        return;
    server_counters_sum(server, &sum);
    uint64_t commands = sum.commands > server->sampled_commands ? sum.commands - server->sampled_commands : 0;
    atomic_store_relaxed(&server->commands_per_second,
                         (uint64_t)((double)commands * 1e9 / (double)(now - server->sampled_ns)));
    server->sampled_commands = sum.commands;
    server->sampled_ns = now;
}

uint64_t server_client_memory(const struct server *server)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < server->thread_count; i++)
        sum += atomic_load_relaxed(&server->threads[i].counters.blocks) * BUFFER_BLOCK_BYTES +
               atomic_load_relaxed(&server->threads[i].counters.large);
    return sum;
}

_Static_assert(sizeof(struct server_counters) == sizeof((struct server_counters){0}.each),
               "`each` has every counter");

void server_counters_sum(const struct server *server, struct server_counters *sum)
{
    memset(sum, 0, sizeof *sum);
    for (unsigned i = 0; i < server->thread_count; i++)
        for (size_t j = 0; j < sizeof sum->each / sizeof *sum->each; j++)
            sum->each[j] += atomic_load_relaxed(&server->threads[i].counters.each[j]);
}

static void counters_reset(struct server_thread *thread, void *context)
{
    struct server_counters *counters = &thread->counters;
    (void)context;
    uint64_t *const cleared[] = {&counters->clients_total,
                                 &counters->clients_rejected,
                                 &counters->clients_evicted,
                                 &counters->commands,
                                 &counters->hits,
                                 &counters->misses,
                                 &counters->errors,
                                 &counters->bytes_in,
                                 &counters->bytes_out,
                                 &counters->input_errors};
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++)
        atomic_store_relaxed(cleared[i], 0);
    for (unsigned i = 0; i < command_table_count(thread->server->table); i++) {
        atomic_store_relaxed(&thread->commands[i].calls, 0);
        atomic_store_relaxed(&thread->commands[i].nanoseconds, 0);
        atomic_store_relaxed(&thread->commands[i].failed, 0);
    }
    spinlock_lock(&thread->lock);
    histogram_reset(thread->latency);
    histogram_reset(thread->latency_before);
    spinlock_unlock(&thread->lock);
}

void server_counters_reset(struct server *server)
{
    server_each_thread(server, counters_reset, NULL);
}

static void publish(struct server_thread *thread, void *context)
{
    (void)context;
    server_thread_publish(thread);
}

void server_refresh(struct server *server)
{
    server_each_thread(server, publish, NULL);
}

const char *const server_ownership_names[] = {"none", "all", "ranges"};

static void latencies_sum(struct server *server, struct server_stats *stats)
{
    struct histogram *sum = histogram_create();
    if (!sum)
        return;
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct server_thread *thread = &server->threads[i];
        spinlock_lock(&thread->lock);
        histogram_merge(sum, thread->latency);
        histogram_merge(sum, thread->latency_before);
        spinlock_unlock(&thread->lock);
    }
    stats->latency_us_p50 = histogram_quantile(sum, 0.5) / 1000;
    stats->latency_us_p99 = histogram_quantile(sum, 0.99) / 1000;
    stats->latency_us_p999 = histogram_quantile(sum, 0.999) / 1000;
    histogram_destroy(sum);
}

void server_stats(struct server *server, struct server_stats *stats)
{
    uint64_t now = task_now(), keys_at = atomic_load_relaxed(&server->keys_at_ns);
    memset(stats, 0, sizeof *stats);
    server_counters_sum(server, &stats->counters);
    stats->uptime_s = (now - server->started_ns) / UINT64_C(1000000000);
    stats->client_memory = server_client_memory(server);
    stats->keys = atomic_load_relaxed(&server->keys);
    stats->keys_age_s = keys_at ? (now > keys_at ? now - keys_at : 0) / UINT64_C(1000000000) : UINT64_MAX;
    for (unsigned i = 0; i < server->thread_count; i++) {
        spinlock_lock(&server->threads[i].lock);
        struct tree_stats tree = server->threads[i].tree_stats;
        spinlock_unlock(&server->threads[i].lock);
        stats_add(&stats->tree, &tree);
    }
    store_stats(server->store, &stats->store);
    stats->expired_total = stats->store.expired;
    tree_cache_stats(store_tree(server->store), &stats->cache);
    latencies_sum(server, stats);
    stats->ownership = server->options.owner      ? SERVER_OWNS_RANGES
                       : server->options.owns_all ? SERVER_OWNS_ALL
                                                  : SERVER_SHARES;
    if (server->options.owner)
        owner_stats(owner_process_owner(server->options.owner), &stats->owner);
    const struct log *log = owner_process_log(server->options.owner);
    stats->logs = log != NULL;
    if (log)
        log_stats(log, &stats->log);
}

const char *const server_cache_names[] = {"inner", "leaves", "entries", "values"};

struct tree_cache_kind server_cache_kind(const struct server_stats *stats, enum server_cache_kind kind)
{
    const struct tree_cache_stats *cache = &stats->cache;
    if (kind == SERVER_CACHE_LEAVES)
        return cache->leaves;
    if (kind == SERVER_CACHE_ENTRIES)
        return cache->entries;
    if (kind == SERVER_CACHE_VALUES)
        return cache->values;
    return (struct tree_cache_kind){.hits = stats->tree.cache_hits,
                                    .misses = stats->tree.cache_misses,
                                    .count = cache->frames,
                                    .bytes = cache->bytes,
                                    .admissions = cache->admissions,
                                    .evictions = cache->evictions};
}

void server_each_command(struct server *server,
                         void (*visit)(void *context, const char *name, uint64_t calls, uint64_t nanoseconds,
                                       uint64_t failed),
                         void *context)
{
    for (unsigned i = 0; i < command_table_count(server->table); i++) {
        uint64_t calls = 0, nanoseconds = 0, failed = 0;
        for (unsigned t = 0; t < server->thread_count; t++) {
            const struct server_command_counter *counter = &server->threads[t].commands[i];
            calls += atomic_load_relaxed(&counter->calls);
            nanoseconds += atomic_load_relaxed(&counter->nanoseconds);
            failed += atomic_load_relaxed(&counter->failed);
        }
        if (calls)
            visit(context, command_table_at(server->table, i)->name, calls, nanoseconds, failed);
    }
}
