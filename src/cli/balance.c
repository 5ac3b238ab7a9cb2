/* balance.c - `banyan balance`: where a cluster's bytes lie, and their way to other memory nodes. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/task.h"
#include "cli/cluster_session.h"
#include "cli/command.h"
#include "store/balance.h"

#define NOBODY UINT32_MAX
/* For what compute nodes hold back of a memory node that is emptied: they return it after two seconds. */
#define WAIT_NS UINT64_C(6000000000)

struct balance_settings {
    struct cluster_fabric_settings fabric;
    bool run, quiet, json;
    char *drain_text, *keep_text;
    uint32_t drain, keep; /* what these say; NOBODY: they were not given */
    uint64_t rate;
    double measure;
    int log_level;
};

/* What is told in the end. */
struct told {
    bool ran, stayed;
};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct balance_settings, field), low, high, choices, unit, help                 \
    }
static const struct option_entry table[] = {
    CLUSTER_FABRIC_ROWS(struct balance_settings, fabric),
    ROW("run", OPTION_BOOL, run, 0, 0, NULL, NULL, "Move what is to move: without this it is only told"),
    ROW("drain", OPTION_TEXT, drain_text, 0, 0, NULL, "N",
        "Empty memory node N, which hands out no memory from then on"),
    ROW("keep", OPTION_TEXT, keep_text, 0, 0, NULL, "N",
        "Memory node N, which was to be emptied, hands out memory again"),
    ROW("rate", OPTION_U64, rate, 0, 1e15, NULL, "BYTES",
        "Bytes that are moved in a second, at most; 0: no limit"),
    ROW("measure", OPTION_DOUBLE, measure, 0, 60, NULL, "SECONDS",
        "Measure each memory node's load for so long, to tell it and to even it out; 0: do not"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "Print for programs, and tell no progress"),
    ROW("quiet", OPTION_BOOL, quiet, 0, 0, NULL, NULL, "Tell no progress; it is told on terminals alone"),
    ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",
        "debug, info, warning or error; messages go to standard error"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "balance",
    .table = table,
    .documentation =
        "Tell how a cluster's bytes are spread over its memory nodes, and even them out, or empty one.\v"
        "Without --run nothing is changed: it prints what each memory node has, its load, and what would "
        "move. With it, nodes and records of all indexes move while clients go on; nodes of placed subtrees "
        "stay together. Leaves of ranges that compute nodes own are moved by their owners. Bytes are evened "
        "out first; then the nodes of trees that most commands of a busy memory node work on go to idler "
        "ones.\n\n"
        "--drain N moves everything off memory node N, and waits up to 6 seconds for what compute nodes "
        "hold back of it. It is refused beforehand where N is the home node (0), where no other memory node "
        "hands out memory, and where the others have no room. Interrupted, the same command goes on. What "
        "stays is told with its reason; segments of owners' logs stay.\n\n"
        "Examples:\n"
        "  banyan balance --memory 127.0.0.1:7100,127.0.0.1:7101\n"
        "  banyan balance --memory 127.0.0.1:7100,127.0.0.1:7101 --run --rate 50000000\n"
        "  banyan balance --memory 127.0.0.1:7100,127.0.0.1:7101 --drain 1 --run\n"
        "  banyan balance --memory 127.0.0.1:7100,127.0.0.1:7101 --drain 1 --run --json\n"
        "  banyan balance --memory 127.0.0.1:7100,127.0.0.1:7101 --keep 1\n\n"
        "Exit status: 0 when it was done, or told; 1 when it was not, or something stayed that was to move, "
        "which is said with the reason (with --json in the fields left and rest_bytes); 2 when a setting "
        "makes no sense.",
};

static void print_nodes(const struct store_balance *balance)
{
    printf("%-6s %16s %16s %14s %10s %16s %12s\n", "memory", "bytes used", "bytes free", "of logs", "nodes",
           "bytes of nodes", "commands/s");
    for (uint16_t i = 0; i < balance->count; i++) {
        const struct store_balance_node *node = &balance->nodes[i];
        char load[24] = "-";
        if (!node->member)
            continue;
        if (node->commands_per_second >= 0)
            snprintf(load, sizeof load, "%.0f", node->commands_per_second);
        printf("%-6u %16" PRIu64 " %16" PRIu64 " %14" PRIu64 " %10" PRIu64 " %16" PRIu64 " %12s%s\n", i,
               node->bytes_used, node->bytes_free, node->log_bytes, node->nodes, node->node_bytes, load,
               node->draining ? "  hands out nothing" : "");
    }
}

/* Once a second. */
static void progress(void *context, const struct store_balance *balance)
{
    uint64_t *last = context;
    const uint64_t now = task_now();
    if (now - *last < UINT64_C(1000000000))
        return;
    *last = now;
    fprintf(stderr,
            "pass %u: %" PRIu64 " nodes looked at, %" PRIu64 " moved, %" PRIu64 " blocks of records, %" PRIu64
            " bytes\n",
            balance->passes + 1, balance->moved.nodes, balance->moved.outcomes[TREE_MOVE_DONE],
            balance->data_blocks, balance->moved.bytes + balance->data_bytes);
}

/* What nodes that were to move have come to, that have not. */
static const struct reason {
    enum tree_move_outcome outcome;
    const char *name, *what;
} reasons[] = {
    {TREE_MOVE_FIRST, "first", "first leaves of ranges, whose left neighbours are others'"},
    {TREE_MOVE_OTHERS, "others", "leaves of others' ranges, which their owners do not move"},
    {TREE_MOVE_FULL, "full", "found no room"},
    {TREE_MOVE_LATER, "busy", "were at work all the time, or their owners did not answer"},
};
#define REASONS (sizeof reasons / sizeof *reasons)

static uint64_t rest_of(const struct store_balance *balance)
{
    return balance->drain == POOL_ANY_NODE ? 0 : store_balance_rest(balance, balance->drain);
}

static bool something_stayed(const struct store_balance *balance)
{
    uint64_t left =
        balance->keys_left + balance->data_full + balance->data_left + balance->data_cut + rest_of(balance);
    for (unsigned i = 0; i < REASONS; i++)
        left += balance->left[reasons[i].outcome];
    return left > 0;
}

static void print_left(const struct store_balance *balance)
{
    for (unsigned i = 0; i < REASONS; i++)
        if (balance->left[reasons[i].outcome])
            printf("not moved: %" PRIu64 " nodes: %s\n", balance->left[reasons[i].outcome], reasons[i].what);
    if (balance->left[TREE_MOVE_FIRST] && balance->border_error.code)
        printf("  the last of these: %s\n", balance->border_error.text);
    if (balance->keys_left)
        printf("not moved: long keys of %" PRIu64 " leaves\n", balance->keys_left);
    if (balance->data_full)
        printf("not moved: %" PRIu64 " records: found no room\n", balance->data_full);
    if (balance->data_left)
        printf("not moved: %" PRIu64 " records, since the owners of their leaves, or memory nodes, did not "
               "answer\n",
               balance->data_left);
    if (balance->data_cut)
        printf("not tried: more records of %" PRIu64
               " indexes, since there was no answer too often in a row\n",
               balance->data_cut);
    if ((balance->data_left || balance->data_cut) && balance->data_error.code)
        printf("  the last of these: %s\n", balance->data_error.text);
}

/* Of all passes: nothing that stays, but something that may be lost, on any memory node. */
static void print_unknown(const struct store_balance *balance)
{
    if (balance->data_unknown)
        printf(
            "not known of %" PRIu64 " records whether they moved, since the answers of their leaves' owners "
            "are missing: their values are there, and blocks of each may be lost; 'banyan check --reclaim' "
            "finds these\n",
            balance->data_unknown);
}

static void print_run(const struct store_balance *balance)
{
    printf(
        "moved: %" PRIu64 " nodes, %" PRIu64 " blocks of records, long keys of %" PRIu64 " leaves, %" PRIu64
        " borders of ranges, %" PRIu64 " bytes, in %u passes; for load: %" PRIu64 " of the nodes\n",
        balance->moved.outcomes[TREE_MOVE_DONE], balance->data_blocks, balance->moved.keys[TREE_MOVE_DONE],
        balance->borders, balance->moved.bytes + balance->data_bytes, balance->passes, balance->load_moved);
    print_left(balance);
    print_unknown(balance);
    if (balance->drain == POOL_ANY_NODE)
        return;
    const struct store_balance_node *node = &balance->nodes[balance->drain];
    printf("memory node %u has %" PRIu64 " bytes in use, %" PRIu64 " of them owners' logs\n", balance->drain,
           node->bytes_used, node->log_bytes);
    if (rest_of(balance))
        printf(
            "the rest is held back by compute nodes, or was lost with some: 'banyan check --reclaim' finds "
            "what was lost\n");
}

static void print_all(const struct store_balance *balance, const struct told *told)
{
    if (told->ran) {
        print_run(balance);
        return;
    }
    const uint64_t some = balance->planned_bytes + balance->planned_data_bytes + balance->load_planned;
    print_nodes(balance);
    printf("to move: %" PRIu64 " nodes, %" PRIu64 " bytes of them, about %" PRIu64
           " bytes of records; for load: %" PRIu64 " nodes%s\n",
           balance->planned, balance->planned_bytes, balance->planned_data_bytes, balance->load_planned,
           some ? "; --run does it" : "");
}

/* ---- for programs ---- */

static json_t *nodes_json(const struct store_balance *balance)
{
    json_t *nodes = json_array();
    for (uint16_t i = 0; i < balance->count; i++) {
        const struct store_balance_node *node = &balance->nodes[i];
        if (!node->member)
            continue;
        json_array_append_new(
            nodes,
            json_pack("{s:i, s:I, s:I, s:I, s:b, s:I, s:I, s:o}", "node", (int)i, "bytes_used",
                      (json_int_t)node->bytes_used, "bytes_free", (json_int_t)node->bytes_free, "log_bytes",
                      (json_int_t)node->log_bytes, "draining", (int)node->draining, "nodes",
                      (json_int_t)node->nodes, "node_bytes", (json_int_t)node->node_bytes,
                      "commands_per_second",
                      node->commands_per_second < 0 ? json_null() : json_real(node->commands_per_second)));
    }
    return nodes;
}

static json_t *run_json(const struct store_balance *balance)
{
    json_t *left = json_object();
    for (unsigned i = 0; i < REASONS; i++)
        json_object_set_new(left, reasons[i].name,
                            json_integer((json_int_t)balance->left[reasons[i].outcome]));
    json_object_set_new(left, "keys", json_integer((json_int_t)balance->keys_left));
    json_object_set_new(left, "records", json_integer((json_int_t)balance->data_left));
    json_object_set_new(left, "records_full", json_integer((json_int_t)balance->data_full));
    json_object_set_new(left, "indexes", json_integer((json_int_t)balance->data_cut));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:o, s:I, s:I}", "nodes",
                     (json_int_t)balance->moved.outcomes[TREE_MOVE_DONE], "record_blocks",
                     (json_int_t)balance->data_blocks, "key_leaves",
                     (json_int_t)balance->moved.keys[TREE_MOVE_DONE], "borders", (json_int_t)balance->borders,
                     "load_nodes", (json_int_t)balance->load_moved, "bytes",
                     (json_int_t)(balance->moved.bytes + balance->data_bytes), "passes", (int)balance->passes,
                     "left", left, "records_unknown", (json_int_t)balance->data_unknown, "rest_bytes",
                     (json_int_t)rest_of(balance));
}

/* False: it could not be written. */
static bool print_json(const struct store_balance *balance, const struct told *told)
{
    json_t *all = json_pack("{s:o}", "memory_nodes", nodes_json(balance));
    if (told->ran)
        json_object_set_new(all, "moved", run_json(balance));
    else
        json_object_set_new(all, "to_move",
                            json_pack("{s:I, s:I, s:I, s:I}", "nodes", (json_int_t)balance->planned,
                                      "node_bytes", (json_int_t)balance->planned_bytes, "record_bytes",
                                      (json_int_t)balance->planned_data_bytes, "load_nodes",
                                      (json_int_t)balance->load_planned));
    json_object_set_new(all, "drain",
                        balance->drain == POOL_ANY_NODE ? json_null() : json_integer(balance->drain));
    json_object_set_new(all, "complete", json_boolean(told->ran && !told->stayed));
    int failed = json_dumpf(all, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;
    json_decref(all);
    return !failed;
}

/* ---- what is done ---- */

static int keep(const struct balance_settings *settings, struct store_balance *balance)
{
    struct pool_session *pool = tree_session_pool(balance->session);
    if (settings->keep >= balance->count)
        return pool_fail(pool, BANYAN_EINVAL, "there is no memory node %u: the cluster has %u",
                         settings->keep, balance->count);
    int status = pool_node_drain(pool, (uint16_t)settings->keep, false);
    if (!status && settings->json)
        printf("{\"kept\": %u}\n", settings->keep);
    else if (!status)
        printf("memory node %u hands out memory\n", settings->keep);
    return status;
}

static int balance_do(const struct balance_settings *settings, struct store_balance *balance,
                      struct told *told)
{
    int status = store_balance_look(balance);
    if (!status && settings->keep != NOBODY)
        return keep(settings, balance);
    if (!status)
        status = store_balance_check(balance);
    if (!status)
        status = settings->run ? store_balance_run(balance) : store_balance_plan(balance);
    if (status)
        return status;
    told->ran = settings->run;
    told->stayed = settings->run && something_stayed(balance);
    if (!settings->json)
        print_all(balance, told);
    else if (!print_json(balance, told))
        told->stayed = true; /* nobody is told what was done */
    return 0;
}

static int run(const struct balance_settings *settings, bool *stayed, struct error *error)
{
    struct cluster_session session = {.fabric = NULL};
    struct told told = {.ran = false};
    uint64_t progress_ns = task_now();
    const bool tells = !settings->quiet && !settings->json && isatty(STDERR_FILENO);
    int status = cluster_session_open(&session, &settings->fabric, "banyan balance", error);
    if (!status)
        status = cluster_session_join(&session, error);
    if (!status) {
        struct store_balance balance = {.session = session.session,
                                        .owner = owner_process_owner(session.process),
                                        .drain = settings->drain == NOBODY ? POOL_ANY_NODE
                                                                           : (uint16_t)settings->drain,
                                        .bytes_per_second = settings->rate,
                                        .wait_ns = WAIT_NS,
                                        .measure_ns = (uint64_t)(settings->measure * 1e9),
                                        .progress = tells ? progress : NULL,
                                        .context = &progress_ns};
        status = balance_do(settings, &balance, &told);
        *stayed = told.stayed;
        if (status)
            cluster_session_error(&session, status, error);
    }
    cluster_session_close(&session);
    return status;
}

/* The number of a memory node; NOBODY where there is no text. */
static int read_node(const char *option, const char *text, uint32_t *node, struct error *error)
{
    struct error why = {0};
    uint64_t number = 0;
    *node = NOBODY;
    if (!text || !*text)
        return 0;
    if (option_parse_count(text, &number, &why) || number >= POOL_ANY_NODE)
        return error_set(error, BANYAN_EINVAL, "--%s: '%.20s' is not the number of a memory node, from 0",
                         option, text);
    *node = (uint32_t)number;
    return 0;
}

int command_balance(int argc, char **argv)
{
    struct error error = {0};
    struct balance_settings settings = {
        .fabric = CLUSTER_FABRIC_DEFAULTS, .measure = 1, .log_level = LOG_WARNING};
    struct settings_arguments none = {.values = NULL};
    bool stayed = false;
    int status = settings_read(&command, &settings, argc, argv, &none, &error);
    log_set_level((enum log_level)settings.log_level);
    if (!status)
        status = read_node("drain", settings.drain_text, &settings.drain, &error);
    if (!status)
        status = read_node("keep", settings.keep_text, &settings.keep, &error);
    if (!status)
        status = run(&settings, &stayed, &error);
    option_free(table, &settings);
    if (status)
        return cluster_failed("balance", &error);
    return stayed ? COMMAND_FAILED : COMMAND_OK;
}
