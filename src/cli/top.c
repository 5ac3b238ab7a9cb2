/*
 * top.c - `banyan top`: a live view of running servers, from their INFO. On a terminal it redraws until q is
 * pressed; in a pipe, or with --once, it prints one view and ends.
 */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <termios.h>
#include <unistd.h>
#include "base/log.h"
#include "base/task.h"
#include "cli/cluster.h"
#include "cli/command.h"

#define SERVERS_MAX      32u
#define MEMORY_NODES_MAX 64u
#define CONNECT_SECONDS  2

struct top_settings {
    char *password_file;
    uint32_t interval_ms;
    bool once, json;
};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct top_settings, field), low, high, choices, unit, help                     \
    }
static const struct option_entry table[] = {
    ROW("interval", OPTION_U32, interval_ms, 100, 600000, NULL, "ms", "Between two views"),
    ROW("once", OPTION_BOOL, once, 0, 0, NULL, NULL, "Print one view and end"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "One view for programs"),
    ROW("password-file", OPTION_TEXT, password_file, 0, 0, NULL, "FILE", "First line: the servers' password"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "top",
    .table = table,
    .arguments = "[ADDRESS...]",
    .arguments_max = SERVERS_MAX,
    .documentation =
        "Watch servers ('banyan serve', 'banyan compute'): operations, latency, round trips, memory.\v"
        "Without an address: 127.0.0.1:6379. Rates are of the time since the view before; in the first view, "
        "of an interval.\n\n"
        "Examples:\n"
        "  banyan top\n"
        "  banyan top 127.0.0.1:6379 127.0.0.1:6380 --interval 500\n"
        "  banyan top --once --json unix:/tmp/banyan.sock\n\n"
        "Exit status: 0; 1 when a server does not answer in --once; 2 when a setting makes no sense.",
};

/* What one INFO said, and when. */
struct sample {
    uint64_t at; /* ns */
    uint64_t clients, commands, hits, misses, errors, bytes_in, bytes_out, operations, round_trips, keys;
    uint64_t p50, p99;
    bool keys_known;
};
struct memory_line {
    bool known, connected, rdma;
    uint64_t used, pool, compute_nodes, fenced, queue_pairs;
};
struct watched {
    const char *name;
    struct net_address address;
    redisContext *connection;
    struct sample now, before;
    bool alive;
    char trouble[128];
    unsigned memory_nodes;
    struct memory_line memory[MEMORY_NODES_MAX];
};
struct top {
    struct top_settings settings;
    char password[NET_SECRET_MAX + 1];
    struct watched servers[SERVERS_MAX];
    unsigned count;
};

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

/* "connected=1,used_bytes=5" */
static uint64_t part(const char *line, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = line; at && *at && *at != '\r' && *at != '\n'; at = strpbrk(at, ",\r\n")) {
        at += *at == ',';
        if (!strncmp(at, name, length) && at[length] == '=')
            return strtoull(at + length + 1, NULL, 10);
    }
    return 0;
}

static void read_memory(struct watched *server, const char *info)
{
    for (server->memory_nodes = 0; server->memory_nodes < MEMORY_NODES_MAX; server->memory_nodes++) {
        char name[32];
        snprintf(name, sizeof name, "memory_node%u", server->memory_nodes);
        const char *line = find_field(info, name);
        if (!line)
            return;
        server->memory[server->memory_nodes] =
            (struct memory_line){.known = true,
                                 .connected = part(line, "connected"),
                                 .used = part(line, "used_bytes"),
                                 .pool = part(line, "pool_bytes"),
                                 .compute_nodes = part(line, "compute_nodes"),
                                 .rdma = part(line, "rdma"),
                                 .queue_pairs = part(line, "queue_pairs"),
                                 .fenced = part(line, "fenced")};
    }
}

static void read_info(struct watched *server, const char *info)
{
    const char *keyspace = find_field(info, "db0");
    server->before = server->now;
    server->now = (struct sample){
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
    read_memory(server, info);
}

/* ---- talking to a server ---- */

/* `why` may be a server's own words: any bytes, or none. What is left of them is for a terminal and for JSON.
 */
static void lose(struct watched *server, const char *why)
{
    snprintf(server->trouble, sizeof server->trouble, "%s", why ? why : "it answers with something else");
    for (char *at = server->trouble; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    server->alive = false;
    if (server->connection)
        redisFree(server->connection);
    server->connection = NULL;
}

static bool reach(const struct top *top, struct watched *server)
{
    struct timeval limit = {.tv_sec = CONNECT_SECONDS};
    if (server->connection)
        return true;
    server->connection = server->address.kind == NET_UNIX
                             ? redisConnectUnixWithTimeout(server->address.path, limit)
                             : redisConnectWithTimeout(server->address.host, server->address.port, limit);
    if (!server->connection || server->connection->err) {
        lose(server, server->connection ? server->connection->errstr : "no memory");
        return false;
    }
    redisSetTimeout(server->connection, limit);
    if (top->password[0]) {
        redisReply *reply = redisCommand(server->connection, "AUTH %s", top->password);
        bool refused = !reply || reply->type == REDIS_REPLY_ERROR;
        if (refused)
            lose(server, reply ? reply->str : "no answer to AUTH");
        freeReplyObject(reply);
        return !refused;
    }
    return true;
}

static void poll_server(const struct top *top, struct watched *server)
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

/* ---- a view ---- */

static double rate(const struct watched *server, uint64_t now, uint64_t before)
{
    double seconds = (double)(server->now.at - server->before.at) / 1e9;
    return server->before.at && seconds > 0 && now >= before ? (double)(now - before) / seconds : 0;
}

static double per_operation(const struct watched *server)
{
    const struct sample *now = &server->now, *before = &server->before;
    /* Less than before: another server answers there now. */
    return now->operations > before->operations && now->round_trips >= before->round_trips
               ? (double)(now->round_trips - before->round_trips) /
                     (double)(now->operations - before->operations)
               : 0;
}

static double hit_share(const struct watched *server)
{
    const struct sample *now = &server->now, *before = &server->before;
    if (now->hits < before->hits || now->misses < before->misses)
        return 0;
    uint64_t hits = now->hits - before->hits, misses = now->misses - before->misses;
    return hits || misses ? 100.0 * (double)hits / ((double)hits + (double)misses) : 0;
}

static void print_server(const struct watched *server)
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

static void print_memory(const struct top *top)
{
    const struct watched *teller = NULL;
    for (unsigned i = 0; i < top->count && !teller; i++)
        if (top->servers[i].alive && top->servers[i].memory_nodes)
            teller = &top->servers[i];
    if (!teller)
        return;
    printf("\n%-12s %-12s %12s %12s %6s %8s %7s\n", "memory node", "state", "used MiB", "pool MiB", "full",
           "computes", "fenced");
    for (unsigned i = 0; i < teller->memory_nodes; i++) {
        const struct memory_line *line = &teller->memory[i];
        printf("%-12u %-12s %12.1f %12.1f %5.1f%% %8" PRIu64 " %7" PRIu64 "\n", i,
               !line->connected ? "LOST"
               : line->rdma     ? "RDMA"
                                : "connected",
               (double)line->used / 1048576, (double)line->pool / 1048576,
               line->pool ? 100.0 * (double)line->used / (double)line->pool : 0.0, line->compute_nodes,
               line->fenced);
    }
}

static void print_view(const struct top *top)
{
    printf("%-28s %7s %10s %6s %7s %7s %6s %9s %9s %8s %12s\n", "server", "clients", "ops/s", "hit %",
           "p50 us", "p99 us", "trips", "in MB/s", "out MB/s", "err/s", "keys");
    for (unsigned i = 0; i < top->count; i++)
        print_server(&top->servers[i]);
    print_memory(top);
    fflush(stdout);
}

static json_t *server_json(const struct watched *server)
{
    if (!server->alive)
        return json_pack("{s:s, s:b, s:s}", "server", server->name, "alive", 0, "trouble", server->trouble);
    json_t *memory = json_array();
    for (unsigned i = 0; i < server->memory_nodes; i++)
        json_array_append_new(memory,
                              json_pack("{s:i, s:b, s:I, s:I, s:b, s:I}", "node", (int)i, "connected",
                                        server->memory[i].connected, "used_bytes",
                                        (json_int_t)server->memory[i].used, "pool_bytes",
                                        (json_int_t)server->memory[i].pool, "rdma", server->memory[i].rdma,
                                        "queue_pairs", (json_int_t)server->memory[i].queue_pairs));
    return json_pack("{s:s, s:b, s:I, s:f, s:f, s:I, s:I, s:f, s:I, s:o}", "server", server->name, "alive", 1,
                     "clients", (json_int_t)server->now.clients, "operations_per_second",
                     rate(server, server->now.commands, server->before.commands), "hit_percent",
                     hit_share(server), "latency_us_p50", (json_int_t)server->now.p50, "latency_us_p99",
                     (json_int_t)server->now.p99, "round_trips_per_operation", per_operation(server),
                     "commands_total", (json_int_t)server->now.commands, "memory_nodes", memory);
}

static int print_json(const struct top *top)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < top->count; i++)
        json_array_append_new(list, server_json(&top->servers[i]));
    int failed = json_dumpf(list, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;
    json_decref(list);
    return failed ? COMMAND_FAILED : COMMAND_OK;
}

/* ---- the loop ---- */

static void poll_all(struct top *top)
{
    for (unsigned i = 0; i < top->count; i++)
        poll_server(top, &top->servers[i]);
}

/* Waits for a key or the interval's end; true when it was q, or the input has ended. */
static bool asked_to_quit(uint32_t interval_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char key = 0;
    if (poll(&input, 1, (int)interval_ms) <= 0)
        return false;
    return read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == 3;
}

static void watch(struct top *top)
{
    struct termios old, raw;
    bool terminal = !tcgetattr(STDIN_FILENO, &old);
    if (terminal) {
        raw = old;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout); /* a screen of our own, without cursor */
    do {
        poll_all(top);
        fputs("\033[H\033[2J", stdout);
        print_view(top);
        fputs("\nq quits\n", stdout);
        fflush(stdout);
    } while (!asked_to_quit(top->settings.interval_ms));
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (terminal)
        tcsetattr(STDIN_FILENO, TCSANOW, &old);
}

static int view_once(struct top *top)
{
    int status = COMMAND_OK;
    poll_all(top);
    task_sleep((uint64_t)top->settings.interval_ms * 1000000);
    poll_all(top);
    if (top->settings.json)
        status = print_json(top);
    else
        print_view(top);
    for (unsigned i = 0; i < top->count; i++)
        if (!top->servers[i].alive)
            status = COMMAND_FAILED;
    return status;
}

static int prepare(struct top *top, const struct settings_arguments *arguments, struct error *error)
{
    static const char *const usual = "127.0.0.1:6379";
    size_t length = 0;
    int status = 0;
    top->count = arguments->count ? arguments->count : 1;
    for (unsigned i = 0; !status && i < top->count; i++) {
        top->servers[i].name = arguments->count ? arguments->values[i] : usual;
        status = net_address_parse(&top->servers[i].address, top->servers[i].name, 6379, error);
    }
    if (!status && top->settings.password_file)
        status = net_secret_read(top->settings.password_file, top->password, &length, error);
    return status;
}

int command_top(int argc, char **argv)
{
    char *values[SERVERS_MAX];
    struct settings_arguments arguments = {.values = values};
    struct error error = {0};
    struct top *top = calloc(1, sizeof *top);
    if (!top)
        return COMMAND_FAILED;
    int result = COMMAND_OK;
    top->settings.interval_ms = 1000;
    int status = settings_read(&command, &top->settings, argc, argv, &arguments, &error);
    if (!status)
        status = prepare(top, &arguments, &error);
    if (!status && (top->settings.once || top->settings.json || !isatty(STDOUT_FILENO)))
        result = view_once(top);
    else if (!status)
        watch(top);
    for (unsigned i = 0; i < top->count; i++)
        if (top->servers[i].connection)
            redisFree(top->servers[i].connection);
    explicit_bzero(top->password, sizeof top->password);
    option_free(table, &top->settings);
    free(top);
    return status ? cluster_failed("top", &error) : result;
}
