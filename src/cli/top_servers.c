/*
 * top_servers.c - asks servers for their INFO and takes it apart. What a server sends is not trusted: unknown
 * fields are left out, missing ones are 0, and its words are made fit for a terminal.
 */
#include "cli/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/task.h"
#include "cli/client.h"

#define CONNECT_SECONDS 2

/* ---- INFO ---- */

static const char *find_field(const char *info, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = info; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, length) && line[length] == ':')
            return line + length + 1;
    }
    return NULL;
}

static uint64_t field(const char *info, const char *name)
{
    const char *value = find_field(info, name);
    return value ? strtoull(value, NULL, 10) : 0;
}

/* Of letters; "" if it is missing or something else. */
static void word(const char *info, const char *name, char *text, size_t size)
{
    const char *value = find_field(info, name);
    size_t length = value ? strspn(value, "abcdefghijklmnopqrstuvwxyz") : 0;
    snprintf(text, size, "%.*s", (int)(length < size ? length : 0), value ? value : "");
}

/* "connected=1,used_bytes=5" */
static const char *find_part(const char *line, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = line; at && *at && *at != '\r' && *at != '\n'; at = strpbrk(at, ",\r\n")) {
        at += *at == ',';
        if (!strncmp(at, name, length) && at[length] == '=')
            return at + length + 1;
    }
    return NULL;
}

static uint64_t part(const char *line, const char *name)
{
    const char *value = find_part(line, name);
    return value ? strtoull(value, NULL, 10) : 0;
}

/* 0 for what is no number that could be meant. */
static double part_real(const char *line, const char *name)
{
    const char *text = find_part(line, name);
    const double value = text ? strtod(text, NULL) : 0;
    return value >= 0 && value < 1e15 ? value : 0;
}

static void read_memory(struct top_server *server, const char *info)
{
    server->memory_nodes = 0;
    for (unsigned i = 0; i < TOP_MEMORY_NODES_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "memory_node%u", i);
        const char *line = find_field(info, name);
        server->memory[i] = (struct top_memory){.known = false}; /* a number may be of none any more */
        if (!line)
            continue;
        server->memory_nodes = i + 1;
        server->memory[i] = (struct top_memory){.known = true,
                                                .connected = part(line, "connected"),
                                                .used = part(line, "used_bytes"),
                                                .pool = part(line, "pool_bytes"),
                                                .compute_nodes = part(line, "compute_nodes"),
                                                .rdma = part(line, "rdma"),
                                                .queue_pairs = part(line, "queue_pairs"),
                                                .log_bytes = part(line, "log_bytes"),
                                                .log_segments = part(line, "log_segments"),
                                                .walk_percent = 100 * part_real(line, "walk_share"),
                                                .walk_us = part_real(line, "walk_usec"),
                                                .read_us = part_real(line, "walk_read_usec"),
                                                .fenced = part(line, "fenced")};
    }
}

const char *const top_cache_names[TOP_CACHE_KINDS] = {"inner", "leaves", "entries", "values"};

static void read_cache(struct top_server *server, const char *info)
{
    server->now.cache_budget = field(info, "cache_budget_bytes");
    for (unsigned i = 0; i < TOP_CACHE_KINDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "cache_%s", top_cache_names[i]);
        const char *line = find_field(info, name);
        server->now.cache[i] = (struct top_cache){
            .bytes = part(line, "bytes"), .hits = part(line, "hits"), .misses = part(line, "misses")};
    }
}

static void read_log(struct top_server *server, const char *info)
{
    char kept[8];
    word(info, "log", kept, sizeof kept);
    server->now.log = (struct top_log){.kept = !strcmp(kept, "kept"),
                                       .unmerged = field(info, "log_unmerged_keys"),
                                       .lag_ms = field(info, "log_lag_msec"),
                                       .entries = field(info, "log_entries"),
                                       .commits = field(info, "log_commits"),
                                       .bytes = field(info, "log_bytes_written"),
                                       .waits = field(info, "log_waits"),
                                       .full = field(info, "log_full"),
                                       .inherited = field(info, "log_inherited"),
                                       .degraded = field(info, "log_degraded")};
}

static void read_info(struct top_server *server, const char *info)
{
    const char *keyspace = find_field(info, "db0");
    server->before = server->now;
    server->now = (struct top_sample){
        .at = task_now(),
        .clients = field(info, "connected_clients"),
        .commands = field(info, "total_commands_processed"),
        .hits = field(info, "keyspace_hits"),
        .misses = field(info, "keyspace_misses"),
        .errors = field(info, "total_error_replies"),
        .bytes_in = field(info, "total_net_input_bytes"),
        .bytes_out = field(info, "total_net_output_bytes"),
        .operations = field(info, "index_operations"),
        .round_trips = field(info, "round_trips"),
        .p50 = field(info, "latency_usec_p50"),
        .p99 = field(info, "latency_usec_p99"),
        .keys_known = keyspace != NULL,
        .keys = keyspace ? part(keyspace, "keys") : 0,
    };
    word(info, "ownership", server->now.ownership, sizeof server->now.ownership);
    server->now.owned = field(info, "ownership_ranges_owned");
    server->now.ranges = field(info, "ownership_ranges");
    server->now.forwards =
        field(info, "forwarded_lookups") + field(info, "forwarded_writes") + field(info, "forwarded_scans");
    server->now.served =
        field(info, "served_lookups") + field(info, "served_writes") + field(info, "served_scans");
    server->now.lapses = field(info, "read_lease_lapses");
    server->now.pauses = field(info, "read_lease_pauses");
    read_cache(server, info);
    read_log(server, info);
    read_memory(server, info);
}

/* ---- talking to a server ---- */

/* `why` may be a server's own words, or NULL. */
static void lose(struct top_server *server, const char *why)
{
    client_words(server->trouble, sizeof server->trouble, why);
    server->alive = false;
    if (server->connection)
        redisFree(server->connection);
    server->connection = NULL;
}

static bool reach(const struct top *top, struct top_server *server)
{
    struct error error = {0};
    if (server->connection)
        return true;
    server->connection = client_connect(&server->address, top->password, CONNECT_SECONDS, &error);
    if (!server->connection)
        lose(server, error.text);
    return server->connection != NULL;
}

void top_server_poll(const struct top *top, struct top_server *server)
{
    if (!reach(top, server))
        return;
    redisReply *reply = redisCommand(server->connection, "INFO all");
    if (reply && reply->type == REDIS_REPLY_STRING) {
        server->alive = true;
        read_info(server, reply->str);
    } else {
        lose(server, reply ? reply->str : server->connection->errstr);
    }
    freeReplyObject(reply);
}
