/* members.c - `banyan members`: a cluster's memory nodes, and how one joins or leaves. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/task.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "fabric/wire.h"
#include "memory/request.h"

#define MILLISECOND UINT64_C(1000000)
/* The memory node whose disk has a copy of the catalogue (docs/internals/durability.md, P9). */
#define CATALOGUE_COPY 1u

struct members_settings {
    struct cluster_fabric_settings fabric;
    char *join, *leave_text, *stay_text;
    uint32_t wait_s;
    int log_level;
};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct members_settings, field), low, high, choices, unit, help                 \
    }
static const struct option_entry table[] = {
    CLUSTER_FABRIC_ROWS(struct members_settings, fabric),
    ROW("join", OPTION_TEXT, join, 0, 0, NULL, "ADDRESS",
        "The memory node there, which belongs to no cluster, becomes one of this one"),
    ROW("leave", OPTION_TEXT, leave_text, 0, 0, NULL, "N",
        "Memory node N, which was emptied, is one of the cluster no more"),
    ROW("stay", OPTION_TEXT, stay_text, 0, 0, NULL, "N", "Memory node N, which began to leave, does not"),
    ROW("wait", OPTION_U32, wait_s, 0, 86400, NULL, "s",
        "How long --leave waits until compute nodes have taken their logs away"),
    ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",
        "debug, info, warning or error; messages go to standard error"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "members",
    .table = table,
    .documentation =
        "List a cluster's memory nodes, let one join, or leave.\v"
        "The home node, memory node 0, keeps the list; --memory must name it, and need name no other. "
        "Compute "
        "nodes that run learn of a change within a second, and clients notice nothing.\n\n"
        "--join ADDRESS: start it as any memory node (banyan memory), then let it join. It must be as the "
        "others are: the same lock words, a lock region as large, the same durability. Members "
        "that keep journals note it on their disks first, so that 'banyan recover' asks for its --data "
        "directory too; if one cannot, none joins. From then on compute "
        "nodes use it; 'banyan balance --run' moves what there is. ADDRESS is how compute nodes reach it.\n\n"
        "--leave N: empty it first ('banyan balance --drain N --run'). It is refused beforehand where N is "
        "the "
        "home node, or hands out memory still. Then compute nodes take away what they have there, which is "
        "waited for, and N can be stopped; one that is not empty in time stays. Interrupted, the same "
        "command "
        "goes on; --stay N takes it back. Its number is given to no other memory node. If it has a disk, "
        "keep its --data directory until the next checkpoint (banyan save): a recovery needs it.\n\n"
        "Examples:\n"
        "  banyan members --memory 127.0.0.1:7100\n"
        "  banyan members --memory 127.0.0.1:7100 --join 127.0.0.1:7103\n"
        "  banyan members --memory 127.0.0.1:7100 --leave 2\n\n"
        "Exit status: 0 when it was done; 1 when it was not, which is said with the reason; 2 when a setting "
        "makes no sense.",
};

static const char *state_name(uint8_t state)
{
    return state == WIRE_CLUSTER_MEMBER ? "member" : state == WIRE_CLUSTER_LEAVING ? "leaves" : "removed";
}

static void list_print(const struct wire_cluster_list *list)
{
    printf("list %" PRIu32 " of cluster %016" PRIx64 "\n%-6s %-8s %s\n", list->generation, list->cluster_id,
           "memory", "state", "address");
    for (uint32_t i = 0; i < list->count; i++)
        printf("%-6u %-8s %s\n", i, state_name(list->nodes[i].state), list->nodes[i].address);
}

static int number_parse(const char *setting, const char *text, uint16_t *number, struct error *error)
{
    char *end;
    const unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || value >= WIRE_CLUSTER_NODES_MAX)
        return error_set(error, BANYAN_EINVAL, "%s: '%.40s' is not the number of a memory node", setting,
                         text);
    *number = (uint16_t)value;
    return 0;
}

/* ---- joining ---- */

static int join(const struct members_settings *settings, const struct cluster_fabric *cluster,
                struct wire_cluster_list *list, struct error *error)
{
    struct cluster_addresses joining;
    int status = cluster_addresses_parse(&joining, "join", settings->join, 7100, error);
    if (!status && joining.count != 1)
        status = error_set(error, BANYAN_EINVAL, "join: one address is wanted");
    if (!status)
        status = fabric_remote_join(&cluster->options, &joining.list[0], list, error);
    if (!status)
        printf("memory node %u has joined: %s\n", list->count - 1, list->nodes[list->count - 1].address);
    return status;
}

/* ---- leaving ---- */

/* Where the home node is named alone, the memory node is asked at its listed address. */
static int status_ask(const struct cluster_fabric *cluster, const struct wire_cluster_list *list,
                      uint16_t number, struct memory_status_reply *reply, struct error *error)
{
    const struct memory_status_request request = {.kind = MEMORY_STATUS};
    struct fabric_remote_options options = cluster->options;
    struct net_address address;
    size_t length = 0;
    int status = net_address_parse(&address, list->nodes[number].address, 0, error);
    options.nodes = &address;
    options.count = 1;
    if (!status)
        status = fabric_remote_ask(&options, number, &request, sizeof request, reply, sizeof *reply, &length,
                                   error);
    if (!status && length < sizeof *reply)
        status = error_set(error, BANYAN_EVERSION, "memory node %u tells its status in another way", number);
    return status;
}

/* Nothing is changed where it cannot be done. *disk: it has one. */
static int leave_check(const struct cluster_fabric *cluster, const struct wire_cluster_list *list,
                       uint16_t number, bool *disk, struct error *error)
{
    struct memory_status_reply reply;
    if (number >= list->count || list->nodes[number].state == WIRE_CLUSTER_REMOVED)
        return error_set(error, BANYAN_EINVAL, "there is no memory node %u", number);
    if (number == 0)
        return error_set(error, BANYAN_EINVAL, "memory node 0 is the home node, and cannot leave");
    int status = status_ask(cluster, list, number, &reply, error);
    *disk = !status && reply.durability >= FABRIC_KEPT_ON_DISK;
    /* Also where nothing is in use: a compute node that has not heard yet could put something there. */
    if (!status && !reply.draining)
        status =
            error_set(error, BANYAN_EBUSY,
                      "memory node %u was not emptied: %" PRIu64
                      " bytes are in use, and it hands out more; run banyan balance --drain %u --run first",
                      number, reply.bytes_used, number);
    if (!status && number == CATALOGUE_COPY && *disk)
        status =
            error_set(error, BANYAN_ENOTSUP,
                      "memory node %u cannot leave: its disk has the copy of the catalogue that outlives the "
                      "home node's",
                      number);
    return status;
}

static int not_empty(const struct memory_status_reply *reply, uint16_t number, bool known,
                     struct error *error)
{
    if (!known)
        return error_set(error, BANYAN_ETIMEOUT,
                         "not all compute nodes have heard that memory node %u leaves, and it stays: one of "
                         "them may not reach the home node, or be of an earlier version",
                         number);
    return error_set(error, BANYAN_ETIMEOUT,
                     "memory node %u still has %" PRIu64 " bytes in use, %" PRIu64
                     " of them of logs, and stays: banyan balance --drain %u --run empties it; what "
                     "processes that are gone have left there ends by banyan check --reclaim",
                     number, reply->bytes_used, reply->log_bytes, number);
}

/* Compute nodes take away what they have there. One that has not heard that it leaves could still log there,
 * though nothing is in use: so that counts only if it is found behind a look at which all had heard. */
static int empty_wait(const struct cluster_fabric *cluster, const struct wire_cluster_list *list,
                      uint16_t number, uint32_t wait_s, struct error *error)
{
    const uint64_t deadline = task_now() + wait_s * 1000 * MILLISECOND;
    struct memory_status_reply reply;
    bool known = false, before;
    for (;;) {
        int status = status_ask(cluster, list, number, &reply, error);
        before = known;
        known = !status && reply.list_heard >= list->generation;
        if (status || (before && known && reply.bytes_used == 0 && reply.log_segments == 0))
            return status;
        if (task_now() >= deadline)
            return not_empty(&reply, number, known, error);
        task_sleep(50 * MILLISECOND);
    }
}

static int leave(const struct members_settings *settings, const struct cluster_fabric *cluster,
                 struct wire_cluster_list *list, struct error *error)
{
    uint16_t number = 0;
    bool disk = false;
    int status = number_parse("leave", settings->leave_text, &number, error);
    if (!status)
        status = fabric_remote_list(&cluster->options, list, error);
    if (!status)
        status = leave_check(cluster, list, number, &disk, error);
    if (!status)
        status = fabric_remote_set_state(&cluster->options, number, WIRE_CLUSTER_LEAVING, list, error);
    if (!status)
        status = empty_wait(cluster, list, number, settings->wait_s, error);
    if (status == BANYAN_ETIMEOUT) {
        struct error ignored = {0};
        fabric_remote_set_state(&cluster->options, number, WIRE_CLUSTER_MEMBER, list, &ignored);
    }
    if (!status)
        status = fabric_remote_set_state(&cluster->options, number, WIRE_CLUSTER_REMOVED, list, error);
    if (!status)
        printf("memory node %u has left, and can be stopped: %s\n", number, list->nodes[number].address);
    /* The entries of its logs are merged, into memory: its journal alone may have them on a disk. */
    if (!status && disk)
        printf("keep its --data directory: 'banyan recover --data' needs its journal until a checkpoint "
               "(banyan save) has been made without it\n");
    return status;
}

static int stay(const struct members_settings *settings, const struct cluster_fabric *cluster,
                struct wire_cluster_list *list, struct error *error)
{
    uint16_t number = 0;
    int status = number_parse("stay", settings->stay_text, &number, error);
    if (!status)
        status = fabric_remote_set_state(&cluster->options, number, WIRE_CLUSTER_MEMBER, list, error);
    if (!status)
        printf("memory node %u stays: %s\n", number, list->nodes[number].address);
    return status;
}

/* ---- the command ---- */

static int run(const struct members_settings *settings, struct error *error)
{
    struct cluster_fabric cluster;
    struct wire_cluster_list *list = calloc(1, sizeof *list);
    const int wishes =
        (settings->join != NULL) + (settings->leave_text != NULL) + (settings->stay_text != NULL);
    int status = cluster_fabric_prepare(&cluster, &settings->fabric, error);
    if (!status && list == NULL)
        status = error_set(error, BANYAN_ENOMEM, "no memory for the list of memory nodes");
    if (!status && wishes > 1)
        status = error_set(error, BANYAN_EINVAL, "one of --join, --leave and --stay at a time");
    if (status)
        ;
    else if (settings->join)
        status = join(settings, &cluster, list, error);
    else if (settings->leave_text)
        status = leave(settings, &cluster, list, error);
    else if (settings->stay_text)
        status = stay(settings, &cluster, list, error);
    else if (!(status = fabric_remote_list(&cluster.options, list, error)))
        list_print(list);
    free(list);
    cluster_fabric_close(&cluster);
    return status;
}

int command_members(int argc, char **argv)
{
    struct members_settings settings = {
        .fabric = CLUSTER_FABRIC_DEFAULTS, .wait_s = 60, .log_level = LOG_WARNING};
    struct error error = {0};
    int status = settings_read(&command, &settings, argc, argv, NULL, &error);
    log_set_level((enum log_level)settings.log_level);
    if (!status)
        status = run(&settings, &error);
    option_free(table, &settings);
    return status ? cluster_failed("members", &error) : COMMAND_OK;
}
