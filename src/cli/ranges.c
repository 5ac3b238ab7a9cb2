/*
 * ranges.c - `banyan ranges`: shows who owns which key range of a cluster's indexes, and splits, merges,
 * moves and shares ranges by hand.
 */
#include "cli/ranges.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/task.h"
#include "cli/command.h"

struct ranges_settings {
    struct cluster_fabric_settings fabric;
    uint32_t to, from, part;
    bool json, keys;
    int log_level;
};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct ranges_settings, field), low, high, choices, unit, help                  \
    }
static const struct option_entry table[] = {
    CLUSTER_FABRIC_ROWS(struct ranges_settings, fabric),
    ROW("to", OPTION_U32, to, 0, 65535, NULL, "ID", "move: the compute node that gets the ranges"),
    ROW("from", OPTION_U32, from, 0, 65535, NULL, "ID",
        "move, share: only ranges of this compute node; 0: of any, and shared ones"),
    ROW("part", OPTION_U32, part, 0, 1000, NULL, "PER-MILLE",
        "move, share: of the ranges that match, so many in 1,000, evenly; 0: all"),
    ROW("keys", OPTION_BOOL, keys, 0, 0, NULL, NULL,
        "list: count the keys of each range, by a walk over them"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "list: print for programs"),
    ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",
        "debug, info, warning or error; messages go to standard error"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "ranges",
    .table = table,
    .arguments =
        "[list [INDEX]]\nsplit INDEX KEY\nmerge INDEX KEY\nmove INDEX [KEY] --to ID\nshare INDEX [KEY]",
    .arguments_max = 3,
    .documentation =
        "Show which compute node owns which key range, and divide the ranges by hand.\v"
        "list shows every range with its lower bound, and the processes that take part. split cuts the range "
        "that has the key there. merge joins the range that begins at the key with the one to its left, "
        "which "
        "must have the same owner. move gives the range that has the key, or without a key all ranges of the "
        "index, to the compute node --to; share makes them shared, so that every compute node writes "
        "them.\n\n"
        "A key is written as the list shows it: printable bytes as they are, a backslash as \\\\, any other "
        "byte as \\xHH.\n\n"
        "Compute nodes with --own auto go on balancing: what is moved by hand stays where it is until one of "
        "them has much less than its share.\n\n"
        "Examples:\n"
        "  banyan ranges --memory 127.0.0.1:7100\n"
        "  banyan ranges --memory 127.0.0.1:7100 --json\n"
        "  banyan ranges split redis user:5000 --memory 127.0.0.1:7100\n"
        "  banyan ranges move redis user:5000 --to 3 --memory 127.0.0.1:7100\n"
        "  banyan ranges move redis --from 2 --part 500 --to 3 --memory 127.0.0.1:7100\n"
        "  banyan ranges share redis user:7000 --memory 127.0.0.1:7100\n\n"
        "Exit status: 0 when it was done; 1 when it could not be; 2 when a setting or an argument makes no "
        "sense.",
};

struct ranges {
    struct ranges_settings settings;
    struct settings_arguments arguments;
    struct cluster_session cluster;
    struct owner *owner;
    uint8_t key[FORMAT_KEY_MAX];
    size_t key_length;
    bool keyed;
};

/* ---- what is to be done ---- */

static int split(struct ranges *ranges, struct tree *tree)
{
    int status = owner_split(ranges->owner, ranges->cluster.session, tree, ranges->key, ranges->key_length);
    if (!status)
        printf("a range of index '%s' begins at %s now\n", tree_name(tree), ranges->arguments.values[2]);
    return status;
}

static int merge(struct ranges *ranges, struct tree *tree)
{
    int status = owner_merge(ranges->owner, ranges->cluster.session, tree, ranges->key, ranges->key_length);
    if (!status)
        printf("no range of index '%s' begins at %s any more\n", tree_name(tree),
               ranges->arguments.values[2]);
    return status;
}

struct wanted {
    uint32_t id;
    struct fabric_process found;
};

static void member_find(void *context, const struct owner_member *member)
{
    struct wanted *wanted = context;
    if (member->process.compute_id == wanted->id && (member->alive || !wanted->found.compute_id))
        wanted->found = member->process;
}

static int find_process(struct ranges *ranges, uint32_t id, struct fabric_process *process)
{
    char names[300];
    struct wanted wanted = {.id = id};
    int status = owner_members(ranges->owner, ranges->cluster.session, member_find, &wanted);
    *process = wanted.found;
    if (status || wanted.found.compute_id)
        return status;
    ranges_members_text(&ranges->cluster, names, sizeof names);
    return pool_fail(tree_session_pool(ranges->cluster.session), BANYAN_ENOTFOUND,
                     "no process with compute id %u takes part in the ownership of ranges; connected: %s", id,
                     names);
}

static int select_ranges(struct ranges *ranges, struct tree *tree, struct owner_selection *selection)
{
    *selection = (struct owner_selection){.tree = tree,
                                          .key = ranges->key,
                                          .key_length = ranges->key_length,
                                          .keyed = ranges->keyed,
                                          .owned = ranges->settings.from != 0,
                                          .per_mille = ranges->settings.part};
    return selection->owned ? find_process(ranges, ranges->settings.from, &selection->owner) : 0;
}

static int move(struct ranges *ranges, struct tree *tree)
{
    struct owner_selection selection;
    struct fabric_process to = {0};
    char text[OWNER_TEXT_BYTES];
    uint32_t moved = 0;
    int status = select_ranges(ranges, tree, &selection);
    if (!status)
        status = find_process(ranges, ranges->settings.to, &to);
    const uint64_t begun = task_now();
    if (!status)
        status = owner_move(ranges->owner, ranges->cluster.session, &selection, to, &moved);
    if (!status)
        printf("%u range%s of index '%s' became those of %s, in %.1f ms\n", moved, moved == 1 ? "" : "s",
               tree_name(tree), owner_describe(ranges->owner, to, text), (double)(task_now() - begun) / 1e6);
    return status;
}

static int share(struct ranges *ranges, struct tree *tree)
{
    struct owner_selection selection;
    uint32_t moved = 0;
    int status = select_ranges(ranges, tree, &selection);
    if (!status)
        status = owner_share(ranges->owner, ranges->cluster.session, &selection, &moved);
    if (!status)
        printf("%u range%s of index '%s' became shared\n", moved, moved == 1 ? "" : "s", tree_name(tree));
    return status;
}

static const struct deed {
    const char *name;
    unsigned least, most;                       /* arguments behind the name */
    int (*run)(struct ranges *, struct tree *); /* NULL: the list */
} deeds[] = {{"list", 0, 1, NULL},
             {"split", 2, 2, split},
             {"merge", 2, 2, merge},
             {"move", 1, 2, move},
             {"share", 1, 2, share}};

/* ---- the command ---- */

static int understand(struct ranges *ranges, const struct deed **deed, struct error *error)
{
    const struct settings_arguments *arguments = &ranges->arguments;
    const char *name = arguments->count ? arguments->values[0] : "list";
    unsigned given = arguments->count ? arguments->count - 1 : 0;
    *deed = NULL;
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (!strcmp(name, deeds[i].name))
            *deed = &deeds[i];
    if (!*deed)
        return error_set(error, BANYAN_EINVAL, "'%.40s' is none of: list, split, merge, move, share", name);
    if (given < (*deed)->least || given > (*deed)->most)
        return error_set(error, BANYAN_EINVAL, "%s wants %s", name,
                         (*deed)->most == 1    ? "at most the name of an index"
                         : (*deed)->least == 2 ? "the name of an index and a key"
                                               : "the name of an index, and a key or none");
    if ((*deed)->run == move && !ranges->settings.to)
        return error_set(error, BANYAN_EINVAL, "move wants --to: the id of a compute node, which list shows");
    if ((*deed)->run != move && ranges->settings.to)
        return error_set(error, BANYAN_EINVAL, "to: %s moves nothing to a compute node", name);
    if ((*deed)->run != move && (*deed)->run != share && (ranges->settings.from || ranges->settings.part))
        return error_set(error, BANYAN_EINVAL, "from and part are for move and share");
    if ((*deed)->run && (ranges->settings.json || ranges->settings.keys))
        return error_set(error, BANYAN_EINVAL, "json and keys are for list");
    if ((*deed)->run && owner_is_map(arguments->values[1]))
        return error_set(error, BANYAN_EINVAL, "index '%s' is the map itself, which is always shared",
                         arguments->values[1]);
    ranges->keyed = given == 2;
    return ranges->keyed ? ranges_key_parse(arguments->values[2], ranges->key, &ranges->key_length, error)
                         : 0;
}

static int change(struct ranges *ranges, const struct deed *deed, struct error *error)
{
    struct tree *tree = NULL;
    struct tree_session *session = ranges->cluster.session;
    int status = tree_open(session, ranges->arguments.values[1], &tree);
    if (!status)
        status = owner_attach(ranges->owner, session, tree);
    if (!status)
        status = deed->run(ranges, tree);
    if (status) /* before the next call on the session */
        cluster_session_error(&ranges->cluster, status, error);
    if (tree)
        owner_detach(ranges->owner, session, tree);
    tree_close(tree);
    return status;
}

static int run(struct ranges *ranges, struct error *error)
{
    const struct deed *deed;
    int status = understand(ranges, &deed, error);
    if (status)
        return status;
    status = cluster_session_open(&ranges->cluster, &ranges->settings.fabric, "banyan ranges", error);
    if (!status)
        status = cluster_session_join(&ranges->cluster, error);
    if (status)
        return status;
    ranges->owner = owner_process_owner(ranges->cluster.process);
    const struct ranges_list_options list = {
        .index = ranges->arguments.count > 1 ? ranges->arguments.values[1] : NULL,
        .json = ranges->settings.json,
        .count = ranges->settings.keys};
    if (deed->run)
        return change(ranges, deed, error);
    status = ranges_list(&ranges->cluster, &list);
    if (status)
        cluster_session_error(&ranges->cluster, status, error);
    return status;
}

int command_ranges(int argc, char **argv)
{
    struct error error = {0};
    char *values[3];
    struct ranges ranges = {.settings = {.fabric = CLUSTER_FABRIC_DEFAULTS, .log_level = LOG_WARNING},
                            .arguments = {.values = values}};
    int status = settings_read(&command, &ranges.settings, argc, argv, &ranges.arguments, &error);
    log_set_level((enum log_level)ranges.settings.log_level);
    if (!status)
        status = run(&ranges, &error);
    cluster_session_close(&ranges.cluster);
    option_free(table, &ranges.settings);
    return status ? cluster_failed("ranges", &error) : COMMAND_OK;
}
