/* check_level.c - see check_level.h. */
#include "cli/check_level.h"

#include <limits.h>
#include <stdio.h>

#include "cli/data_directory.h"
#include "durable/durable.h"

static void set(struct check_level *level, const char *name, const char *text)
{
    level->name = name;
    snprintf(level->text, sizeof level->text, "%s", text);
}

static void of_files(const struct audit_report *report, struct check_level *level)
{
    level->name = report->memory_nodes_kept < report->memory_nodes ? "memory" : "process";
}

static void of_cluster(const struct audit_report *report, struct check_level *level)
{
    of_files(report, level);
    if (!report->memory_nodes_disk)
        return;
    if (report->memory_nodes_failed) {
        snprintf(level->text, sizeof level->text,
                 "THE DISKS OF %u OF %u MEMORY NODES HAVE FAILED: what was written since does not outlive "
                 "power",
                 report->memory_nodes_failed, report->memory_nodes);
        return;
    }
    if (report->memory_nodes_disk < report->memory_nodes) {
        snprintf(level->text, sizeof level->text, "only %u of %u memory nodes keep owners' logs on disks",
                 report->memory_nodes_disk, report->memory_nodes);
        return;
    }
    if (report->memory_nodes_always == report->memory_nodes)
        set(level, "disk-always", "what was answered is on the memory nodes' disks");
    else
        set(level, "disk-second",
            "what was answered is on the memory nodes' disks, but for the last second or two");
}

/* Whether it was each second or always, the files do not say. */
static void of_server(const struct audit_report *report, const char *data, struct check_level *level)
{
    struct durable_look look;
    char path[PATH_MAX];
    of_files(report, level);
    if (snprintf(path, sizeof path, "%s/" DATA_DISK, data) >= (int)sizeof path)
        return;
    durable_look(path, &look);
    if (look.loading)
        set(level, "disk", "the pools are to be made anew from disk/, at the next start with a disk level");
    else if (look.disowned)
        set(level, "process",
            "a server at level process was the last; disk/ is older, until a start with a disk level");
    else if (look.in_step)
        set(level, "disk", "disk/ has all that the pools hold");
    else if (look.journal)
        set(level, "disk",
            "the last server was killed: disk/ has what it promised, and all that the pools hold when a "
            "start with a disk level has made a checkpoint");
}

void check_level(const struct audit_report *report, const char *data, struct check_level *level)
{
    *level = (struct check_level){.name = "memory"};
    if (data && data[0])
        of_server(report, data, level);
    else
        of_cluster(report, level);
}
