/* save.c - `banyan save`: a checkpoint of a cluster whose memory nodes keep journals. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include "archive/archive.h"
#include "base/log.h"
#include "base/task.h"
#include "cli/client.h"
#include "cli/cluster_save.h"
#include "cli/command.h"

struct save_settings {
    struct cluster_fabric_settings fabric;
    uint32_t copies, compress;
    uint64_t part_bytes;
    bool if_due, json;
    int log_level;
};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct save_settings, field), low, high, choices, unit, help                    \
    }
static const struct option_entry table[] = {
    CLUSTER_FABRIC_ROWS(struct save_settings, fabric),
    ROW("copies", OPTION_U32, copies, 1, 2, NULL, "N",
        "Memory nodes that get each part: 2 as with --log-copies 2, so that one of them may lose its disk"),
    ROW("compress", OPTION_U32, compress, 0, ARCHIVE_LEVEL_MAX, NULL, "LEVEL", "By Zstandard; 0: not"),
    ROW("part-bytes", OPTION_U64, part_bytes, 1, 1e12, NULL, "BYTES",
        "A part ends behind so many, and the next one goes to another memory node"),
    ROW("if-due", OPTION_BOOL, if_due, 0, 0, NULL, NULL,
        "Only if a memory node wants one, since its journal is long: for timers"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "Print what was made for programs"),
    ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",
        "debug, info, warning or error; messages go to standard error"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "save",
    .table = table,
    .documentation =
        "Make a checkpoint of a cluster whose memory nodes keep their data on disks.\v"
        "All keys of all indexes go to the memory nodes' disks, beside the load, and what their journals "
        "have "
        "from before is removed. 'banyan compute' does the same by itself when a journal has become long, "
        "and "
        "for BGSAVE; this is for clusters without one, for timers, and before copies of the directories are "
        "taken. It counts when all memory nodes have it; if this command is ended before, the checkpoint of "
        "before stays.\n\n"
        "Examples:\n"
        "  banyan save --memory 10.0.0.1:7100,10.0.0.2:7100 --secret-file secret\n"
        "  banyan save --memory 127.0.0.1:7100 --if-due --json\n"
        "  banyan save --memory 127.0.0.1:7100,127.0.0.1:7101 --copies 2 --compress 3\n\n"
        "Exit status: 0 when it was made, or none was due; 1 when it could not be made; 2 when a setting "
        "makes "
        "no sense.",
};

static void progress(void *context, uint64_t keys, uint64_t bytes)
{
    client_progress(context, keys, bytes, false);
}

static int tell(const struct save_settings *settings, bool made, const struct save_stats *stats,
                double seconds, struct error *error)
{
    if (!settings->json) {
        if (made)
            printf("checkpoint %" PRIu64 ": %" PRIu64 " keys of %" PRIu64 " indexes, %.1f MiB in %" PRIu64
                   " parts, %.1f s\n",
                   stats->number, stats->keys, stats->indexes, (double)stats->bytes / 1048576, stats->parts,
                   seconds);
        else
            printf("no checkpoint is due\n");
        return 0;
    }
    json_t *json = json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:f}", "made", (int)made, "number",
                             (json_int_t)stats->number, "keys", (json_int_t)stats->keys, "indexes",
                             (json_int_t)stats->indexes, "bytes", (json_int_t)stats->bytes, "parts",
                             (json_int_t)stats->parts, "seconds", seconds);
    const bool printed = json && !json_dumpf(json, stdout, JSON_REAL_PRECISION(6)) && putchar('\n') != EOF;
    json_decref(json);
    return printed ? 0 : error_set(error, BANYAN_EINVAL, "the result cannot be printed");
}

static int run(const struct save_settings *settings, struct error *error)
{
    struct client_progress shown = {.begun_at = task_now()};
    const struct save_options options = {.copies = settings->copies,
                                         .part_bytes = settings->part_bytes,
                                         .level = (int)settings->compress,
                                         .progress = progress,
                                         .context = &shown};
    struct save_stats stats;
    bool made;
    int status = cluster_save(&settings->fabric, &options, settings->if_due, &made, &stats, error);
    client_progress(&shown, stats.keys, stats.bytes, true);
    if (status)
        return status;
    return tell(settings, made, &stats, (double)(task_now() - shown.begun_at) / 1e9, error);
}

int command_save(int argc, char **argv)
{
    struct error error = {0};
    struct save_settings settings = {.fabric = CLUSTER_FABRIC_DEFAULTS,
                                     .copies = 1,
                                     .part_bytes = UINT64_C(64) << 20,
                                     .log_level = LOG_WARNING};
    int status = settings_read(&command, &settings, argc, argv, NULL, &error);
    log_set_level((enum log_level)settings.log_level);
    if (!status)
        status = run(&settings, &error);
    option_free(table, &settings);
    return status ? cluster_failed("save", &error) : COMMAND_OK;
}
