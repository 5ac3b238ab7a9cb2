/* top_view.c - what `banyan top` prints: a table of servers and memory nodes, or JSON. */
#include "cli/top.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "cli/command.h"

static double rate(const struct top_server *server, uint64_t now, uint64_t before)
{
    double seconds = (double)(server->now.at - server->before.at) / 1e9;
    return server->before.at && seconds > 0 && now >= before ? (double)(now - before) / seconds : 0;
}

static double per_operation(const struct top_server *server)
{
    const struct top_sample *now = &server->now, *before = &server->before;
    /* Less than before: another server answers there now. */
    return now->operations > before->operations && now->round_trips >= before->round_trips
               ? (double)(now->round_trips - before->round_trips) /
                     (double)(now->operations - before->operations)
               : 0;
}

static double share(uint64_t hits, uint64_t hits_before, uint64_t misses, uint64_t misses_before)
{
    if (hits < hits_before || misses < misses_before)
        return 0;
    double found = (double)(hits - hits_before), wanted = found + (double)(misses - misses_before);
    return wanted > 0 ? 100.0 * found / wanted : 0;
}

static double hit_share(const struct top_server *server)
{
    const struct top_sample *now = &server->now, *before = &server->before;
    return share(now->hits, before->hits, now->misses, before->misses);
}

static double cache_share(const struct top_server *server, unsigned kind)
{
    const struct top_cache *now = &server->now.cache[kind], *before = &server->before.cache[kind];
    return share(now->hits, before->hits, now->misses, before->misses);
}

static void print_server(const struct top_server *server)
{
    if (!server->alive) {
        printf("%-28.28s %s\n", server->name, server->trouble);
        return;
    }
    char keys[24] = "-";
    if (server->now.keys_known)
        snprintf(keys, sizeof keys, "%" PRIu64, server->now.keys);
    printf("%-28.28s %7" PRIu64 " %10.0f %6.1f %7" PRIu64 " %7" PRIu64 " %6.2f %9.2f %9.2f %8.0f %12s\n",
           server->name, server->now.clients, rate(server, server->now.commands, server->before.commands),
           hit_share(server), server->now.p50, server->now.p99, per_operation(server),
           rate(server, server->now.bytes_in, server->before.bytes_in) / 1e6,
           rate(server, server->now.bytes_out, server->before.bytes_out) / 1e6,
           rate(server, server->now.errors, server->before.errors), keys);
}

static bool divides(const struct top_server *server)
{
    return server->alive && !strcmp(server->now.ownership, "ranges");
}

static bool logs(const struct top_server *server)
{
    return server->alive && server->now.log.kept;
}

static double entries_per_commit(const struct top_server *server)
{
    const struct top_log *now = &server->now.log, *before = &server->before.log;
    return now->commits > before->commits && now->entries >= before->entries
               ? (double)(now->entries - before->entries) / (double)(now->commits - before->commits)
               : 0;
}

static void head_log(void)
{
    printf("\n%-28s %10s %8s %10s %8s %8s %8s %8s %9s %8s\n", "log", "unmerged", "lag ms", "commits/s",
           "entries", "MB/s", "waits", "OOM", "inherited", "degraded");
}

static void print_log(const struct top_server *server)
{
    const struct top_log *now = &server->now.log, *before = &server->before.log;
    printf("%-28.28s %10" PRIu64 " %8" PRIu64 " %10.0f %8.1f %8.2f %8" PRIu64 " %8" PRIu64 " %9" PRIu64
           " %8" PRIu64 "\n",
           server->name, now->unmerged, now->lag_ms, rate(server, now->commits, before->commits),
           entries_per_commit(server), rate(server, now->bytes, before->bytes) / 1e6, now->waits, now->full,
           now->inherited, now->degraded);
}

static void head_ownership(void)
{
    printf("\n%-28s %8s %8s %10s %10s %8s %8s\n", "ownership", "owned", "ranges", "asked/s", "served/s",
           "lapses", "pauses");
}

static void print_ownership(const struct top_server *server)
{
    printf("%-28.28s %8" PRIu64 " %8" PRIu64 " %10.0f %10.0f %8" PRIu64 " %8" PRIu64 "\n", server->name,
           server->now.owned, server->now.ranges, rate(server, server->now.forwards, server->before.forwards),
           rate(server, server->now.served, server->before.served), server->now.lapses, server->now.pauses);
}

static void head_cache(void)
{
    printf("\n%-28s %10s %11s %6s %11s %6s %11s %6s %11s %6s\n", "cache", "MiB of", "inner MiB", "hit %",
           "leaves MiB", "hit %", "entries MiB", "hit %", "values MiB", "hit %");
}

/* What it caches, and how much of what was wanted was there. */
static void print_cache(const struct top_server *server)
{
    printf("%-28.28s %10.1f", server->name, (double)server->now.cache_budget / 1048576);
    for (unsigned kind = 0; kind < TOP_CACHE_KINDS; kind++)
        printf(" %11.1f %6.1f", (double)server->now.cache[kind].bytes / 1048576, cache_share(server, kind));
    putchar('\n');
}

/* Nothing where no server is one of those. */
static void print_those(const struct top *top, bool (*those)(const struct top_server *), void (*head)(void),
                        void (*line)(const struct top_server *))
{
    bool begun = false;
    for (unsigned i = 0; i < top->count; i++) {
        if (!those(&top->servers[i]))
            continue;
        if (!begun)
            head();
        begun = true;
        line(&top->servers[i]);
    }
}

static void print_memory(const struct top *top)
{
    const struct top_server *teller = NULL;
    for (unsigned i = 0; i < top->count && !teller; i++)
        if (top->servers[i].alive && top->servers[i].memory_nodes)
            teller = &top->servers[i];
    if (!teller)
        return;
    printf("\n%-12s %-12s %12s %12s %6s %9s %8s %7s\n", "memory node", "state", "used MiB", "pool MiB",
           "full", "logs MiB", "computes", "fenced");
    for (unsigned i = 0; i < teller->memory_nodes; i++) {
        const struct top_memory *line = &teller->memory[i];
        if (!line->known)
            continue;
        printf("%-12u %-12s %12.1f %12.1f %5.1f%% %9.1f %8" PRIu64 " %7" PRIu64 "\n", i,
               !line->connected ? "LOST"
               : line->rdma     ? "RDMA"
                                : "connected",
               (double)line->used / 1048576, (double)line->pool / 1048576,
               line->pool ? 100.0 * (double)line->used / (double)line->pool : 0.0,
               (double)line->log_bytes / 1048576, line->compute_nodes, line->fenced);
    }
}

/* What each server's selectors know of the memory nodes that they have measured. */
static void print_walks(const struct top *top)
{
    bool begun = false;
    for (unsigned i = 0; i < top->count; i++)
        for (unsigned node = 0; top->servers[i].alive && node < top->servers[i].memory_nodes; node++) {
            const struct top_memory *line = &top->servers[i].memory[node];
            if (line->walk_us == 0 && line->read_us == 0)
                continue;
            if (!begun)
                printf("\n%-28s %12s %8s %9s %9s\n", "walks of", "memory node", "share", "walk us",
                       "READ us");
            begun = true;
            printf("%-28.28s %12u %7.1f%% %9.1f %9.1f\n", top->servers[i].name, node, line->walk_percent,
                   line->walk_us, line->read_us);
        }
}

void top_print(const struct top *top)
{
    printf("%-28s %7s %10s %6s %7s %7s %6s %9s %9s %8s %12s\n", "server", "clients", "ops/s", "hit %",
           "p50 us", "p99 us", "trips", "in MB/s", "out MB/s", "err/s", "keys");
    for (unsigned i = 0; i < top->count; i++)
        print_server(&top->servers[i]);
    print_those(top, divides, head_ownership, print_ownership);
    print_those(top, logs, head_log, print_log);
    print_those(top, divides, head_cache, print_cache);
    print_memory(top);
    print_walks(top);
    fflush(stdout);
}

static json_t *cache_json(const struct top_server *server)
{
    json_t *json = json_pack("{s:I}", "budget_bytes", (json_int_t)server->now.cache_budget);
    for (unsigned kind = 0; kind < TOP_CACHE_KINDS; kind++)
        json_object_set_new(json, top_cache_names[kind],
                            json_pack("{s:I, s:f}", "bytes", (json_int_t)server->now.cache[kind].bytes,
                                      "hit_percent", cache_share(server, kind)));
    return json;
}

static json_t *log_json(const struct top_server *server)
{
    const struct top_log *now = &server->now.log, *before = &server->before.log;
    return json_pack("{s:b, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "kept", now->kept, "unmerged_keys",
                     (json_int_t)now->unmerged, "lag_ms", (json_int_t)now->lag_ms, "commits_per_second",
                     rate(server, now->commits, before->commits), "entries_per_commit",
                     entries_per_commit(server), "bytes_per_second", rate(server, now->bytes, before->bytes),
                     "waits", (json_int_t)now->waits, "full", (json_int_t)now->full, "inherited",
                     (json_int_t)now->inherited, "degraded", (json_int_t)now->degraded);
}

static json_t *memory_json(const struct top_memory *memory, unsigned number)
{
    return json_pack("{s:i, s:b, s:I, s:I, s:b, s:I, s:I, s:I, s:f, s:f, s:f}", "node", (int)number,
                     "connected", memory->connected, "used_bytes", (json_int_t)memory->used, "pool_bytes",
                     (json_int_t)memory->pool, "rdma", memory->rdma, "queue_pairs",
                     (json_int_t)memory->queue_pairs, "log_bytes", (json_int_t)memory->log_bytes,
                     "log_segments", (json_int_t)memory->log_segments, "walk_percent", memory->walk_percent,
                     "walk_us", memory->walk_us, "read_us", memory->read_us);
}

static json_t *server_json(const struct top_server *server)
{
    if (!server->alive)
        return json_pack("{s:s, s:b, s:s}", "server", server->name, "alive", 0, "trouble", server->trouble);
    json_t *memory = json_array();
    for (unsigned i = 0; i < server->memory_nodes; i++)
        if (server->memory[i].known)
            json_array_append_new(memory, memory_json(&server->memory[i], i));
    return json_pack(
        "{s:s, s:b, s:I, s:f, s:f, s:I, s:I, s:f, s:I, s:o, s:s, s:I, s:I, s:f, s:f, s:I, s:I, s:o, s:o}",
        "server", server->name, "alive", 1, "clients", (json_int_t)server->now.clients,
        "operations_per_second", rate(server, server->now.commands, server->before.commands), "hit_percent",
        hit_share(server), "latency_us_p50", (json_int_t)server->now.p50, "latency_us_p99",
        (json_int_t)server->now.p99, "round_trips_per_operation", per_operation(server), "commands_total",
        (json_int_t)server->now.commands, "memory_nodes", memory, "ownership", server->now.ownership,
        "ranges_owned", (json_int_t)server->now.owned, "ranges", (json_int_t)server->now.ranges,
        "forwarded_per_second", rate(server, server->now.forwards, server->before.forwards),
        "served_per_second", rate(server, server->now.served, server->before.served), "read_lease_lapses",
        (json_int_t)server->now.lapses, "read_lease_pauses", (json_int_t)server->now.pauses, "cache",
        cache_json(server), "log", log_json(server));
}

int top_print_json(const struct top *top)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < top->count; i++)
        json_array_append_new(list, server_json(&top->servers[i]));
    int failed = json_dumpf(list, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;
    json_decref(list);
    return failed ? COMMAND_FAILED : COMMAND_OK;
}
