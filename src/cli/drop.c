/* drop.c - `banyan drop`: an index of a cluster goes away with all that it holds. */
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "cli/cluster_session.h"
#include "cli/command.h"
#include "store/store.h"

#define INDEXES_MAX 64u

struct drop_settings {
    struct cluster_fabric_settings fabric;
    bool yes;
    int log_level;
};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct drop_settings, field), low, high, choices, unit, help                    \
    }
static const struct option_entry table[] = {
    CLUSTER_FABRIC_ROWS(struct drop_settings, fabric),
    ROW("yes", OPTION_BOOL, yes, 0, 0, NULL, NULL, "Do it: without this nothing is dropped"),
    ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",
        "debug, info, warning or error; messages go to standard error"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "drop",
    .table = table,
    .arguments = "INDEX...",
    .arguments_max = INDEXES_MAX,
    .documentation =
        "Drop indexes of a cluster with all that they hold, and give their memory back.\v"
        "There is no way back. The index cannot be opened from then on, and its name is free. Programs that "
        "have it open keep running: they find nothing in it, and their writes are refused. The index of "
        "Redis's clients is named 'redis'; a compute node that serves it must be started anew.\n\n"
        "A drop that was interrupted is ended by the same command, or by 'banyan check --reclaim'.\n\n"
        "Examples:\n"
        "  banyan drop --memory 127.0.0.1:7100,127.0.0.1:7101 --yes orders\n"
        "  banyan drop --memory unix:/run/banyan/memory.sock --yes orders customers\n\n"
        "Exit status: 0 when all of them were dropped; 1 when one was not, which is said with the reason; 2 "
        "when a setting makes no sense, or --yes is missing.",
};

struct names {
    char text[400];
    size_t used;
};

static void name_add(void *context, const char *name, const struct format_geometry *geometry)
{
    struct names *names = context;
    (void)geometry;
    if (owner_is_map(name))
        return;
    int length = snprintf(names->text + names->used, sizeof names->text - names->used, "%s%s",
                          names->used ? ", " : "", name);
    if (length > 0 && (size_t)length < sizeof names->text - names->used)
        names->used += (size_t)length;
}

/* There is no such index: which are there? */
static void tell_names(const struct cluster_session *session, struct error *error)
{
    struct names names = {.used = 0};
    char said[sizeof error->text];
    if (tree_list(session->session, name_add, &names))
        return;
    snprintf(said, sizeof said, "%s", error->text);
    if (names.used)
        error_set(error, BANYAN_ENOTFOUND, "%s; there are: %s", said, names.text);
    else
        error_set(error, BANYAN_ENOTFOUND, "%s, nor any other", said);
}

static int drop(const struct cluster_session *session, const char *name, struct error *error)
{
    int status = store_drop_name(session->session, owner_process_owner(session->process), name);
    if (!status) {
        printf("index '%s' was dropped\n", name);
        return 0;
    }
    cluster_session_error(session, status, error);
    if (status == BANYAN_ENOTFOUND)
        tell_names(session, error);
    return status;
}

static int run(const struct drop_settings *settings, const struct settings_arguments *names,
               struct error *error)
{
    struct cluster_session session = {.fabric = NULL};
    int status = 0;
    if (!names->count)
        return error_set(error, BANYAN_EINVAL, "no index is named");
    if (!settings->yes)
        return error_set(error, BANYAN_EINVAL,
                         "nothing was dropped: give --yes to confirm that index '%.63s'%s goes away with all "
                         "that it holds",
                         names->values[0], names->count > 1 ? ", and each of the others," : "");
    status = cluster_session_open(&session, &settings->fabric, "banyan drop", error);
    if (!status)
        status = cluster_session_join(&session, error);
    for (unsigned i = 0; !status && i < names->count; i++)
        status = drop(&session, names->values[i], error);
    cluster_session_close(&session);
    return status;
}

int command_drop(int argc, char **argv)
{
    struct error error = {0};
    char *values[INDEXES_MAX];
    struct settings_arguments names = {.values = values};
    struct drop_settings settings = {.fabric = CLUSTER_FABRIC_DEFAULTS, .log_level = LOG_WARNING};
    int status = settings_read(&command, &settings, argc, argv, &names, &error);
    log_set_level((enum log_level)settings.log_level);
    if (!status)
        status = run(&settings, &names, &error);
    option_free(table, &settings);
    return status ? cluster_failed("drop", &error) : COMMAND_OK;
}
