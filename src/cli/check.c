/* check.c - `banyan check`: proves every index of a cluster and accounts for every block of its memory. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "cli/check_level.h"
#include "cli/cluster_session.h"
#include "cli/command.h"
#include "pool/pool.h"
#include "store/audit.h"

struct check_settings {
    struct cluster_fabric_settings fabric;
    char *data;
    bool reclaim, json, quiet;
    int log_level;
};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct check_settings, field), low, high, choices, unit, help                   \
    }
static const struct option_entry table[] = {
    CLUSTER_FABRIC_ROWS(struct check_settings, fabric),
    ROW("data", OPTION_TEXT, data, 0, 0, NULL, "DIR",
        "Instead of a cluster: the data directory of a 'banyan serve' that does not run"),
    ROW("reclaim", OPTION_BOOL, reclaim, 0, 0, NULL, NULL,
        "Give memory back that compute nodes lost when they died; no other compute node may be connected"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "Print the result for programs"),
    ROW("quiet", OPTION_BOOL, quiet, 0, 0, NULL, NULL, "No progress on the terminal"),
    ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",
        "debug, info, warning or error; messages go to standard error"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "check",
    .table = table,
    .documentation =
        "Walk every index of a cluster, prove every node and record, and account for all memory.\v"
        "No client may write meanwhile. Memory that is handed out but reachable from nowhere counts as lost: "
        "what "
        "compute nodes had taken when they died, and, while others are connected, what these hold ready. "
        "The walk goes on behind what is broken; what it does not reach then may not be lost, so nothing is "
        "given back. Logs of owners are in use; --reclaim gives back those of compute nodes that are gone if "
        "no range needs them, and, while others are left, nothing else: values may be named by these alone. "
        "Compute nodes may own ranges meanwhile: the check only reads, and compares the map of "
        "ranges "
        "too.\n\n"
        "Examples:\n"
        "  banyan check --memory 127.0.0.1:7100,127.0.0.1:7101\n"
        "  banyan check --memory unix:/run/banyan/memory.sock --reclaim\n"
        "  banyan check --memory 127.0.0.1:7100 --json\n"
        "  banyan check --data /var/lib/banyan --reclaim\n\n"
        "Exit status: 0 when all is well; 1 when an invariant is broken, memory is lost (and was not given "
        "back) "
        "or the check could not be made; 2 when a setting makes no sense.",
};

struct check {
    struct check_settings settings;
    struct cluster_session cluster;
    json_t *problems; /* of --json */
    json_t *logs;     /* of --json */
    bool terminal;
};

static void tell_problem(void *context, const char *text)
{
    struct check *check = context;
    if (check->problems)
        json_array_append_new(check->problems, json_string(text));
    else
        printf("BROKEN: %s\n", text);
}

static void tell_progress(void *context, const char *what)
{
    const struct check *check = context;
    if (check->terminal)
        fprintf(stderr, "\r\033[Kchecking: %s", what);
}

static void tell_log(void *context, const struct audit_log *log)
{
    struct check *check = context;
    const char *state = log->nodes_fenced == log->nodes ? "gone" : "connected";
    if (check->logs)
        json_array_append_new(
            check->logs,
            json_pack("{s:i, s:I, s:I, s:I, s:b}", "compute_node", (int)log->process.compute_id, "instance",
                      (json_int_t)log->process.instance, "segments", (json_int_t)log->segments, "bytes",
                      (json_int_t)log->bytes, "gone", log->nodes_fenced == log->nodes));
    else
        printf("log of compute node %u (%s): %" PRIu64 " segment%s, %" PRIu64 " bytes\n",
               (unsigned)log->process.compute_id, state, log->segments, log->segments == 1 ? "" : "s",
               log->bytes);
}

static const char *lost_name(const struct audit_report *report)
{
    if (report->blocks_reclaimed)
        return "given back";
    if (report->lost_unjudged)
        return "not reached, so lost or behind what is broken";
    if (report->compute_nodes)
        return "lost, or held ready by connected compute nodes";
    if (report->log_processes > report->logs_released)
        return "lost, or named by logs alone; kept until a compute node has merged these";
    return "lost";
}

static void print_text(const struct check *check, const struct audit_report *report)
{
    struct check_level level;
    check_level(report, check->settings.data, &level);
    printf("%" PRIu64 " index%s: %" PRIu64 " entries in %" PRIu64 " leaves and %" PRIu64
           " inner nodes, %" PRIu64 " values in records%s\n",
           report->indexes, report->indexes == 1 ? "" : "es", report->entries, report->leaves,
           report->internals, report->values_record, report->expired ? ", some of them expired" : "");
    printf("memory: %" PRIu64 " blocks (%" PRIu64 " bytes) in use\n", report->blocks_used,
           report->bytes_used);
    if (report->memory_nodes_kept > 0)
        printf("durability: %s: %s%sthe pools of %u of %u memory nodes lie in files\n", level.name,
               level.text, level.text[0] ? "; " : "", report->memory_nodes_kept, report->memory_nodes);
    if (report->map)
        printf("ownership: %" PRIu64 " ranges in the map\n", report->map_entries);
    if (report->subtree_links)
        printf("placement: %" PRIu64 " links within subtrees, %" PRIu64
               " of them lead to another memory node\n",
               report->subtree_links, report->subtree_links_away);
    if (report->marked || report->dead || report->frozen || report->missing_parents)
        printf("half done by compute nodes that died, to be finished by the next operation there: %" PRIu64
               " splits, %" PRIu64 " removals, %" PRIu64 " merges, %" PRIu64 " missing entries\n",
               report->marked, report->dead, report->frozen, report->missing_parents);
    if (report->half_dropped)
        printf("half dropped: %" PRIu32 " index%s; --reclaim, or `banyan drop` with its name, ends that\n",
               report->half_dropped, report->half_dropped == 1 ? "" : "es");
    if (report->logs_released)
        printf("logs given back, since no range needs them: %" PRIu64 "\n", report->logs_released);
    if (report->blocks_lost)
        printf("%s: %" PRIu64 " blocks (%" PRIu64 " bytes)%s\n", lost_name(report), report->blocks_lost,
               report->bytes_lost,
               report->blocks_reclaimed || report->compute_nodes || report->lost_unjudged ||
                       report->log_processes > report->logs_released
                   ? ""
                   : "; --reclaim gives them back");
    if (report->problems)
        printf("broken: %" PRIu64 " problem%s\n", report->problems, report->problems == 1 ? "" : "s");
    else
        printf("sound\n");
}

static int print_json(const struct check *check, const struct audit_report *report)
{
    struct check_level level;
    check_level(report, check->settings.data, &level);
    json_t *json = json_pack(
        "{s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, "
        "s:b, "
        "s:I, s:O, s:I, s:I, s:O, s:I, s:I}",
        "sound", !report->problems, "durability", level.name, "indexes", (json_int_t)report->indexes,
        "entries", (json_int_t)report->entries, "leaves", (json_int_t)report->leaves, "inner_nodes",
        (json_int_t)report->internals, "record_values", (json_int_t)report->values_record, "expired",
        (json_int_t)report->expired, "half_splits", (json_int_t)report->marked, "half_removals",
        (json_int_t)report->dead, "half_merges", (json_int_t)report->frozen, "missing_entries",
        (json_int_t)report->missing_parents, "half_dropped", (json_int_t)report->half_dropped, "bytes_used",
        (json_int_t)report->bytes_used, "blocks_lost", (json_int_t)report->blocks_lost, "bytes_lost",
        (json_int_t)report->bytes_lost, "lost_judged", !report->lost_unjudged, "blocks_reclaimed",
        (json_int_t)report->blocks_reclaimed, "compute_nodes", (json_int_t)report->compute_nodes, "map",
        report->map, "ranges", (json_int_t)report->map_entries, "problems", check->problems, "log_bytes",
        (json_int_t)report->log_bytes, "logs_released", (json_int_t)report->logs_released, "logs",
        check->logs, "subtree_links", (json_int_t)report->subtree_links, "subtree_links_away",
        (json_int_t)report->subtree_links_away);
    int failed = !json || json_dumpf(json, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;
    json_decref(json);
    return failed ? COMMAND_FAILED : COMMAND_OK;
}

static int open_session(struct check *check, struct error *error)
{
    const struct check_settings *settings = &check->settings;
    if (!settings->data || !settings->data[0])
        return cluster_session_open(&check->cluster, &settings->fabric, "banyan check", error);
    if (settings->fabric.memory && settings->fabric.memory[0])
        return error_set(error, BANYAN_EINVAL, "data and memory: the check is of one of them");
    return cluster_session_open_data(&check->cluster, settings->data, error);
}

/* The map's entries against each other and against the indexes; behind the audit, since this process's keeper
 * may write to the map once it has joined. */
static int check_map(struct check *check, struct audit_report *report, struct error *error)
{
    uint32_t count = 0;
    int status = cluster_session_join(&check->cluster, error);
    if (status == BANYAN_ECORRUPT) {
        tell_problem(check, error->text);
        report->problems++;
        return 0;
    }
    if (status)
        return status;
    status = owner_check(owner_process_owner(check->cluster.process), check->cluster.session, tell_problem,
                         check, &count);
    report->problems += count;
    if (status)
        cluster_session_error(&check->cluster, status, error);
    return status;
}

static int run(struct check *check, struct audit_report *report, struct error *error)
{
    const struct audit_options options = {.reclaim = check->settings.reclaim,
                                          .problem = tell_problem,
                                          .progress = tell_progress,
                                          .log = tell_log,
                                          .context = check};
    check->terminal = isatty(STDERR_FILENO) && !check->settings.quiet;
    check->problems = check->settings.json ? json_array() : NULL;
    check->logs = check->settings.json ? json_array() : NULL;
    int status = open_session(check, error);
    if (!status) {
        status = audit_run(check->cluster.session, &options, report);
        if (status == BANYAN_EBUSY && report->compute_nodes)
            error_set(error, status,
                      "%" PRIu64
                      " other compute nodes are connected: --reclaim could take from them what they "
                      "hold ready; stop them first",
                      report->compute_nodes);
        else if (status)
            cluster_session_error(&check->cluster, status, error);
        else if (report->map)
            status = check_map(check, report, error);
        if (check->terminal)
            fputs("\r\033[K", stderr);
    }
    return status;
}

int command_check(int argc, char **argv)
{
    struct error error = {0};
    struct audit_report report = {0};
    struct check check = {.settings = {.fabric = CLUSTER_FABRIC_DEFAULTS, .log_level = LOG_WARNING}};
    int status = settings_read(&command, &check.settings, argc, argv, NULL, &error);
    log_set_level((enum log_level)check.settings.log_level);
    if (!status)
        status = run(&check, &report, &error);
    int result = COMMAND_OK;
    if (status)
        result = cluster_failed("check", &error);
    else if (!check.settings.json)
        print_text(&check, &report);
    else
        result = print_json(&check, &report);
    bool lost = report.blocks_lost > report.blocks_reclaimed && !report.compute_nodes &&
                report.log_processes == report.logs_released;
    cluster_session_close(&check.cluster);
    json_decref(check.problems);
    json_decref(check.logs);
    option_free(table, &check.settings);
    return result ? result : report.problems || lost ? COMMAND_FAILED : COMMAND_OK;
}
