/* balance.c - `banyan balance`: where a cluster's bytes lie, and their way to other memory nodes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/task.h"
#include "cli/cluster_session.h"
#include "cli/command.h"
#include "store/balance.h"

#define NOBODY UINT32_MAX

struct balance_settings {
    struct cluster_fabric_settings fabric;
    bool run, quiet;
    char *drain_text, *keep_text;
    uint32_t drain, keep; /* what these say; NOBODY: they were not given */
    uint64_t rate;
    int log_level;
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
    ROW("quiet", OPTION_BOOL, quiet, 0, 0, NULL, NULL, "Tell no progress"),
    ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",
        "debug, info, warning or error; messages go to standard error"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "balance",
    .table = table,
    .documentation =
        "Tell how a cluster's bytes are spread over its memory nodes, and even them out, or empty one.\v"
        "Without --run nothing is changed: it prints what each memory node has and what would move. With it, "
        "nodes of all indexes move while clients go on, level by level; those of placed subtrees stay "
        "together. "
        "Leaves of ranges that compute nodes own are moved by their owners.\n\n"
        "--drain N moves everything off memory node N, records and long keys too. It is refused beforehand "
        "where N is the home node (0), where no other memory node hands out memory, and where the others "
        "have "
        "no room. Interrupted, the same command goes on. What stays is told with its reason: the first leaf "
        "of a "
        "range whose left neighbour is another owner's, and segments of owners' logs.\n\n"
        "Examples:\n"
        "  banyan balance --memory 127.0.0.1:7100,127.0.0.1:7101\n"
        "  banyan balance --memory 127.0.0.1:7100,127.0.0.1:7101 --run --rate 50000000\n"
        "  banyan balance --memory 127.0.0.1:7100,127.0.0.1:7101 --drain 1 --run\n"
        "  banyan balance --memory 127.0.0.1:7100,127.0.0.1:7101 --keep 1\n\n"
        "Exit status: 0 when it was done, or told; 1 when it was not, or something stayed that was to move, "
        "which is said with the reason; 2 when a setting makes no sense.",
};

static void print_nodes(const struct store_balance *balance)
{
    printf("%-6s %16s %16s %10s %16s\n", "memory", "bytes used", "bytes free", "nodes", "bytes of nodes");
    for (uint16_t i = 0; i < balance->count; i++) {
        const struct store_balance_node *node = &balance->nodes[i];
        printf("%-6u %16" PRIu64 " %16" PRIu64 " %10" PRIu64 " %16" PRIu64 "%s\n", i, node->bytes_used,
               node->bytes_free, node->nodes, node->node_bytes, node->draining ? "  hands out nothing" : "");
    }
}

/* Once a second. */
static void progress(void *context, const struct store_balance *balance)
{
    uint64_t *told = context;
    const uint64_t now = task_now();
    if (now - *told < UINT64_C(1000000000))
        return;
    *told = now;
    fprintf(stderr,
            "pass %u: %" PRIu64 " nodes looked at, %" PRIu64 " moved, %" PRIu64 " blocks of data, %" PRIu64
            " bytes\n",
            balance->passes + 1, balance->moved.nodes, balance->moved.outcomes[TREE_MOVE_DONE],
            balance->data_blocks, balance->moved.bytes + balance->data_bytes);
}

/* What was to move and has not. */
static uint64_t print_left(const struct store_balance *balance)
{
    static const struct {
        enum tree_move_outcome outcome;
        const char *what;
    } reasons[] = {
        {TREE_MOVE_FIRST, "first leaves of ranges, whose left neighbours are others'"},
        {TREE_MOVE_OTHERS, "leaves of others' ranges, which their owners do not move"},
        {TREE_MOVE_FULL, "found no room"},
        {TREE_MOVE_LATER, "were at work all the time"},
    };
    uint64_t left = 0;
    for (unsigned i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        const uint64_t count = balance->left[reasons[i].outcome];
        left += count;
        if (count)
            printf("not moved: %" PRIu64 " nodes: %s\n", count, reasons[i].what);
    }
    return left;
}

static int balance_run(struct store_balance *balance, bool *stayed)
{
    int status = store_balance_run(balance);
    if (status)
        return status;
    printf("moved: %" PRIu64 " nodes, %" PRIu64 " blocks of records and keys, %" PRIu64
           " bytes, in %u passes\n",
           balance->moved.outcomes[TREE_MOVE_DONE], balance->data_blocks,
           balance->moved.bytes + balance->data_bytes, balance->passes);
    *stayed = print_left(balance) > 0;
    if (balance->drain != POOL_ANY_NODE)
        printf("memory node %u has %" PRIu64 " bytes in use\n", balance->drain,
               balance->nodes[balance->drain].bytes_used);
    return 0;
}

static int balance_do(const struct balance_settings *settings, struct store_balance *balance, bool *stayed)
{
    int status = store_balance_look(balance);
    if (!status && settings->keep != NOBODY && settings->keep < balance->count) {
        status = pool_node_drain(tree_session_pool(balance->session), (uint16_t)settings->keep, false);
        if (!status)
            printf("memory node %u hands out memory\n", settings->keep);
        return status;
    }
    if (!status && settings->keep != NOBODY)
        return pool_fail(tree_session_pool(balance->session), BANYAN_EINVAL,
                         "there is no memory node %u: the cluster has %u", settings->keep, balance->count);
    if (!status)
        status = store_balance_check(balance);
    if (!status && settings->run)
        return balance_run(balance, stayed);
    if (!status)
        status = store_balance_plan(balance);
    if (status)
        return status;
    print_nodes(balance);
    printf("to move: %" PRIu64 " nodes, %" PRIu64 " bytes%s\n", balance->planned, balance->planned_bytes,
           balance->planned ? "; --run does it" : "");
    return 0;
}

static int run(const struct balance_settings *settings, bool *stayed, struct error *error)
{
    struct cluster_session session = {.fabric = NULL};
    uint64_t told = task_now();
    int status = cluster_session_open(&session, &settings->fabric, "banyan balance", error);
    if (!status)
        status = cluster_session_join(&session, error);
    if (!status) {
        struct store_balance balance = {.session = session.session,
                                        .owner = owner_process_owner(session.process),
                                        .drain = settings->drain == NOBODY ? POOL_ANY_NODE
                                                                           : (uint16_t)settings->drain,
                                        .bytes_per_second = settings->rate,
                                        .progress = settings->quiet ? NULL : progress,
                                        .context = &told};
        status = balance_do(settings, &balance, stayed);
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
    struct balance_settings settings = {.fabric = CLUSTER_FABRIC_DEFAULTS, .log_level = LOG_WARNING};
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
