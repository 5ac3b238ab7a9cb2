/* recover.c - `banyan recover`: the logs that compute nodes have left when they ended, what is corrupt in
 * them, and the acceptance of what is lost. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cli/cluster_session.h"
#include "cli/command.h"
#include "cli/ranges.h"
#include "cli/recover_disk.h"
#include "log/examine.h"
#include "pool/log.h"
#include "pool/pool.h"

#define RECOVER_CORRUPT 3

struct recover_settings {
    struct cluster_fabric_settings fabric;
    char *data, *output, *lost;
    uint32_t compute;
    char *index;
    bool accept_loss, json;
    int log_level;
};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct recover_settings, field), low, high, choices, unit, help                 \
    }
static const struct option_entry table[] = {
    CLUSTER_FABRIC_ROWS(struct recover_settings, fabric),
    ROW("compute", OPTION_U32, compute, 0, 65535, NULL, "ID",
        "Only logs of compute nodes that had this id; 0: of all that are gone"),
    ROW("data", OPTION_TEXT, data, 0, 0, NULL, "DIR,...",
        "Instead of a cluster's logs, the journals in the data directories of memory nodes that do not run: "
        "all of a cluster's, comma separated"),
    ROW("output", OPTION_TEXT, output, 0, 0, NULL, "FILE",
        "With --data: write what the journals have into this file, which 'banyan load' reads"),
    ROW("lost", OPTION_TEXT, lost, 0, 0, NULL, "NUMBER,...",
        "With --data: memory nodes whose disks are lost, so that no directory of them is given"),
    ROW("index", OPTION_TEXT, index, 0, 0, NULL, "NAME",
        "With --output: which index, where the journals have several: its name, or its number"),
    ROW("accept-loss", OPTION_BOOL, accept_loss, 0, 0, NULL, NULL,
        "Serve what is left without what is corrupt: WHAT STOOD THERE IS LOST"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "Print the result for programs"),
    ROW("log-level", OPTION_CHOICE, log_level, 0, 0, cluster_log_levels, "LEVEL",
        "debug, info, warning or error; messages go to standard error"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "recover",
    .table = table,
    .documentation =
        "Show the logs that compute nodes have left when they ended, and what is corrupt in them.\v"
        "Whoever takes over the ranges of a compute node that is gone reads its log first. What was being "
        "written when it ended is cut. Where memory has lost what it had acknowledged, the ranges are not "
        "served: no key of them can be trusted. For each such place this names the memory node, the address, "
        "the bytes, and the changes before and behind it. Where all that stood there was merged, or another "
        "memory node has it (--log-copies 2), the place is recoverable: nothing is lost, the ranges are "
        "served, and there is nothing to be done.\n\n"
        "--accept-loss says that the ranges are to be served without that. It prints what is lost, as above; "
        "the compute node that has taken the ranges over serves them within some seconds. A key whose change "
        "was lost has the value of before. Nothing else is given up, and what is not corrupt stays.\n\n"
        "With --data it reads what outlived power: the journals of all memory nodes of a cluster, in the "
        "directories that they were started with (banyan memory --data), none of which may run. Without "
        "--output it tells what is there; what stands behind the last record that was promised is cut, as "
        "a memory node's start does, and nothing else is changed. Of each key the newest value counts that "
        "is wholly there. With --accept-loss it goes on over what is damaged or missing, and tells it.\n\n"
        "A memory node that has lost its disk, or whose directory is damaged, is named with --lost. What was "
        "logged in two copies (--log-copies 2) and saved in two (--copies 2) is then read from the other "
        "memory nodes. What is missing is told, and also what may be: where a compute node has written "
        "changes with one copy, nobody knows which of them the lost disk alone had. Nothing is written then "
        "without --accept-loss.\n\n"
        "Examples:\n"
        "  banyan recover --data /srv/banyan/0,/srv/banyan/1\n"
        "  banyan recover --data /srv/banyan/0,/srv/banyan/1 --output all.banyan && banyan load all.banyan\n"
        "  banyan recover --data /srv/banyan/0,/srv/banyan/1 --index orders --output orders.banyan\n"
        "  banyan recover --data /srv/banyan/0,/srv/banyan/2 --lost 1\n"
        "  banyan recover --memory 127.0.0.1:7100,127.0.0.1:7101\n"
        "  banyan recover --memory 127.0.0.1:7100 --compute 3 --accept-loss\n"
        "  banyan recover --memory unix:/run/banyan/memory.sock --json\n\n"
        "Exit status: 0 when nothing of a log is lost, or its loss was accepted; 3 when something is, or may "
        "be; 1 when "
        "the logs could not be read, or a loss could not be accepted; 2 when a setting makes no sense.",
};

/* A range of the map that names a process. */
struct named {
    uint16_t number; /* of the index */
    uint8_t lower[OWNER_BOUND_MAX];
    uint32_t lower_length;
    struct fabric_process owner;
    uint32_t heir_count;
    struct format_heir heirs[FORMAT_RANGE_HEIRS_MAX];
};

/* The map has numbers of indexes. */
struct numbered {
    char name[TREE_NAME_MAX + 1];
    uint16_t number;
};

struct recover {
    struct recover_settings settings;
    struct cluster_session cluster;
    uint16_t memory_nodes;
    struct fabric_process *processes; /* owned */
    uint32_t process_count;
    struct named *ranges; /* owned */
    uint32_t range_count;
    struct numbered *indexes; /* owned */
    uint32_t index_count;
    bool no_memory;
    json_t *json;     /* of --json: the logs */
    json_t *one;      /* of the log that is looked at; borrowed */
    uint32_t corrupt; /* places, in all logs */
    uint32_t mended;  /* of them, those by which nothing is lost */
    uint32_t accepted;
    /* while a loss is accepted */
    struct fabric_process process;
    struct log_fault *faults; /* owned */
    uint32_t fault_count;
};

/* ---- gathering ---- */

static int process_add(struct recover *recover, struct fabric_process process)
{
    if (recover->settings.compute && process.compute_id != recover->settings.compute)
        return 0;
    for (uint32_t i = 0; i < recover->process_count; i++)
        if (fabric_process_equal(recover->processes[i], process))
            return 0;
    struct fabric_process *grown = realloc(recover->processes, (recover->process_count + 1) * sizeof *grown);
    if (!grown)
        return pool_fail_memory(tree_session_pool(recover->cluster.session));
    recover->processes = grown;
    grown[recover->process_count++] = process;
    return 0;
}

static int processes_gather(struct recover *recover)
{
    struct pool_session *pool = tree_session_pool(recover->cluster.session);
    struct memory_log_processes *page = malloc(sizeof *page);
    int status = page ? 0 : pool_fail_memory(pool);
    for (uint16_t node = 0; node < recover->memory_nodes && !status; node++)
        for (uint64_t after = 0; !status;) {
            status = pool_log_processes(pool, node, after, page);
            for (uint32_t i = 0; i < page->count && !status; i++) {
                const struct memory_log_process *at = &page->processes[i];
                after = at->serial;
                status = process_add(recover, (struct fabric_process){.compute_id = at->process.compute_id,
                                                                      .instance = at->process.instance});
            }
            if (page->count < MEMORY_LOG_PAGE)
                break;
        }
    free(page);
    return status;
}

static void range_add(void *context, const struct owner_range *range)
{
    struct recover *recover = context;
    struct named *grown =
        recover->no_memory ? NULL : realloc(recover->ranges, (recover->range_count + 1) * sizeof *grown);
    recover->no_memory |= !grown;
    if (!grown)
        return;
    recover->ranges = grown;
    struct named *named = &grown[recover->range_count++];
    *named = (struct named){.number = range->number,
                            .lower_length = range->lower_length,
                            .owner = range->owner,
                            .heir_count = range->heir_count};
    memcpy(named->lower, range->lower, range->lower_length);
    memcpy(named->heirs, range->heirs, sizeof named->heirs);
}

static void index_add(void *context, const char *name, const struct format_geometry *geometry)
{
    struct recover *recover = context;
    (void)geometry;
    if (owner_is_map(name))
        return;
    struct numbered *grown =
        recover->no_memory ? NULL : realloc(recover->indexes, (recover->index_count + 1) * sizeof *grown);
    recover->no_memory |= !grown;
    if (!grown)
        return;
    recover->indexes = grown;
    snprintf(grown[recover->index_count++].name, sizeof grown->name, "%s", name);
}

static int indexes_gather(struct recover *recover)
{
    struct tree_session *session = recover->cluster.session;
    int status = tree_list(session, index_add, recover);
    for (uint32_t i = 0; i < recover->index_count && !status; i++) {
        struct tree *tree = NULL;
        status = tree_open(session, recover->indexes[i].name, &tree);
        if (!status)
            recover->indexes[i].number = tree_number(tree);
        else if (status == BANYAN_ENOTFOUND) /* dropped meanwhile */
            status = 0;
        tree_close(tree);
    }
    return status;
}

/* ---- telling ---- */

static const char *index_name(const struct recover *recover, uint16_t number)
{
    for (uint32_t i = 0; i < recover->index_count; i++)
        if (recover->indexes[i].number == number)
            return recover->indexes[i].name;
    return NULL;
}

static json_t *neighbour_json(const struct recover *recover, const struct log_neighbour *neighbour)
{
    char key[RANGES_KEY_TEXT];
    const char *name = index_name(recover, neighbour->index);
    if (!neighbour->there)
        return json_null();
    ranges_key_format(neighbour->key.bytes, neighbour->key.length, key);
    return json_pack("{s:s?, s:s, s:I, s:I}", "index", name, "key", key, "epoch",
                     (json_int_t)neighbour->epoch, "sequence", (json_int_t)neighbour->sequence);
}

static void neighbour_print(const struct recover *recover, const char *where,
                            const struct log_neighbour *neighbour)
{
    char key[RANGES_KEY_TEXT];
    const char *name = index_name(recover, neighbour->index);
    if (!neighbour->there) {
        printf("      %s: nothing\n", where);
        return;
    }
    ranges_key_format(neighbour->key.bytes, neighbour->key.length, key);
    printf("      %s: change %" PRIu64 ", of key '%s' of index %s\n", where, neighbour->sequence, key,
           name ? name : "(dropped)");
}

static void fault_tell(struct recover *recover, const struct log_fault *fault)
{
    char address[GADDR_TEXT_BYTES];
    gaddr_format(fault->address, address);
    if (recover->one) {
        json_array_append_new(json_object_get(recover->one, "corrupt"),
                              json_pack("{s:s, s:i, s:s, s:I, s:b, s:s, s:o, s:o}", "kind",
                                        log_fault_names[fault->kind], "memory_node", (int)fault->node,
                                        "address", address, "bytes", (json_int_t)fault->bytes, "lost",
                                        !fault->mended, "what", fault->what, "before",
                                        neighbour_json(recover, &fault->before), "after",
                                        neighbour_json(recover, &fault->after)));
        return;
    }
    printf("    %s: memory node %u, %s at %s, %" PRIu32 " bytes: %s\n",
           fault->mended ? "RECOVERABLE" : "CORRUPT", (unsigned)fault->node, log_fault_names[fault->kind],
           address, fault->bytes, fault->what);
    if (fault->mended)
        printf("      %s: nothing is lost\n", fault->mended);
    else if (fault->kind == LOG_FAULT_CONTROL)
        printf("      changes that were merged already may come back in place of later ones\n");
    if (fault->kind != LOG_FAULT_REGION)
        return;
    neighbour_print(recover, "before it", &fault->before);
    neighbour_print(recover, "behind it", &fault->after);
    if (!fault->mended && fault->before.there && fault->after.there &&
        fault->after.sequence > fault->before.sequence + 1)
        printf("      so changes between %" PRIu64 " and %" PRIu64 " may have stood there\n",
               fault->before.sequence, fault->after.sequence);
}

/* A range of the map that needs the log, and what it waits for. */
static void range_tell(struct recover *recover, const struct named *range, bool owned)
{
    char lower[RANGES_KEY_TEXT], who[OWNER_TEXT_BYTES];
    const char *known = index_name(recover, range->number), *name = known ? known : "(dropped)";
    ranges_key_format(range->lower, range->lower_length, lower);
    owner_describe(owner_process_owner(recover->cluster.process), range->owner, who);
    if (recover->one)
        json_array_append_new(json_object_get(recover->one, "ranges"),
                              json_pack("{s:s, s:s, s:b, s:i}", "index", name, "from", lower, "taken_over",
                                        !owned, "owner", (int)range->owner.compute_id));
    else if (owned)
        printf("    index %s from '%s': not taken over yet\n", name, lower);
    else
        printf("    index %s from '%s': taken over by %s, which has not inherited the log yet\n", name, lower,
               who);
}

static uint32_t ranges_tell(struct recover *recover, struct fabric_process process)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < recover->range_count; i++) {
        const struct named *range = &recover->ranges[i];
        const bool owned = fabric_process_equal(range->owner, process);
        bool needs = owned;
        for (uint32_t k = 0; k < range->heir_count; k++)
            needs |= fabric_process_equal(range->heirs[k].process, process);
        if (needs)
            range_tell(recover, range, owned);
        count += needs;
    }
    return count;
}

/* ---- looking, and accepting ---- */

static void fault_keep(void *context, const struct log_fault *fault)
{
    struct recover *recover = context;
    struct log_fault *grown =
        recover->no_memory ? NULL : realloc(recover->faults, (recover->fault_count + 1) * sizeof *grown);
    recover->no_memory |= !grown;
    if (!grown)
        return;
    recover->faults = grown;
    grown[recover->fault_count++] = *fault;
}

static int examine(struct recover *recover, struct tree_session *session, struct log_examination *found)
{
    recover->fault_count = 0;
    int status = log_examine(session, recover->memory_nodes, recover->process, fault_keep, recover, found);
    if (!status && recover->no_memory)
        status = pool_fail_memory(tree_session_pool(session));
    return status;
}

/* Under the map's lock: what was found before may have been given back, or accepted, since. */
static int accept(void *context, struct tree_session *session)
{
    struct recover *recover = context;
    struct log_examination found;
    int status = examine(recover, session, &found);
    if (!status && found.nodes_gone < found.nodes)
        status = pool_fail(tree_session_pool(session), BANYAN_EBUSY, "compute node %u is there again",
                           (unsigned)recover->process.compute_id);
    for (uint32_t i = 0; i < recover->fault_count && !status; i++) {
        if (recover->faults[i].mended)
            continue;
        status = log_accept(session, recover->process, &found, &recover->faults[i]);
        if (!status) {
            fault_tell(recover, &recover->faults[i]);
            recover->accepted++;
        }
    }
    return status;
}

static void head_tell(struct recover *recover, const struct log_examination *found, bool gone)
{
    if (recover->json) {
        recover->one =
            json_pack("{s:i, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:[], s:[], s:b}", "compute_node",
                      (int)recover->process.compute_id, "instance", (json_int_t)recover->process.instance,
                      "gone", gone, "segments", (json_int_t)found->segments, "bytes",
                      (json_int_t)found->segment_bytes, "entries", (json_int_t)found->entries, "watermark",
                      (json_int_t)found->watermark, "last", (json_int_t)found->sequence, "ranges", "corrupt",
                      "accepted", recover->settings.accept_loss && found->faults > found->mended);
        json_array_append_new(recover->json, recover->one);
        return;
    }
    printf("log of compute node %u (instance %" PRIx64 "), %s: %" PRIu64 " segment%s, %" PRIu64 " bytes",
           (unsigned)recover->process.compute_id, recover->process.instance, gone ? "gone" : "connected",
           found->segments, found->segments == 1 ? "" : "s", found->segment_bytes);
    if (gone)
        printf("; %" PRIu64 " changes, the last one %" PRIu64 ", merged up to %" PRIu64, found->entries,
               found->sequence, found->watermark);
    putchar('\n');
}

static int process_look(struct recover *recover)
{
    struct owner *owner = owner_process_owner(recover->cluster.process);
    struct log_examination found;
    int status = examine(recover, recover->cluster.session, &found);
    if (status || !found.nodes) /* it was given back meanwhile */
        return status;
    const bool gone = found.nodes_gone == found.nodes;
    head_tell(recover, &found, gone);
    const uint32_t ranges = ranges_tell(recover, recover->process);
    if (!recover->json && gone && !ranges)
        printf("    no range needs it; `banyan check --reclaim` gives it back\n");
    recover->corrupt += found.faults;
    recover->mended += found.mended;
    const bool accepts = gone && recover->settings.accept_loss && found.faults > found.mended;
    for (uint32_t i = 0; i < recover->fault_count; i++)
        if (!accepts || recover->faults[i].mended)
            fault_tell(recover, &recover->faults[i]);
    return accepts ? owner_locked(owner, recover->cluster.session, accept, recover) : 0;
}

/* ---- all of it ---- */

static int look(struct recover *recover, struct error *error)
{
    struct owner *owner = owner_process_owner(recover->cluster.process);
    struct tree_session *session = recover->cluster.session;
    recover->memory_nodes = fabric_memory_nodes(recover->cluster.fabric);
    pool_session_begin(tree_session_pool(session));
    int status = processes_gather(recover);
    if (!status)
        status = indexes_gather(recover);
    if (!status)
        status = owner_list(owner, session, range_add, recover);
    if (!status && recover->no_memory)
        status = pool_fail_memory(tree_session_pool(session));
    for (uint32_t i = 0; i < recover->process_count && !status; i++) {
        recover->process = recover->processes[i];
        status = process_look(recover);
    }
    if (status)
        cluster_session_error(&recover->cluster, status, error);
    return status;
}

static int report(const struct recover *recover)
{
    const bool left = recover->corrupt - recover->mended > recover->accepted;
    if (recover->json) {
        json_t *json = json_pack("{s:b, s:i, s:i, s:i, s:O}", "sound", !left, "corrupt",
                                 (int)recover->corrupt, "recoverable", (int)recover->mended, "accepted",
                                 (int)recover->accepted, "logs", recover->json);
        int failed = !json || json_dumpf(json, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;
        json_decref(json);
        if (failed)
            return COMMAND_FAILED;
    } else if (!recover->process_count) {
        puts(recover->settings.compute ? "no compute node of this id has left a log"
                                       : "no compute node has a log");
    } else if (recover->accepted) {
        printf("accepted: %" PRIu32 " place%s; the ranges are served without what is named CORRUPT above\n",
               recover->accepted, recover->accepted == 1 ? "" : "s");
    } else if (left) {
        const uint32_t lost = recover->corrupt - recover->mended;
        printf("corrupt: %" PRIu32 " place%s; ranges that need these logs are not served. --accept-loss has "
               "them served without what stood there\n",
               lost, lost == 1 ? "" : "s");
    } else if (recover->mended) {
        printf("recoverable: %" PRIu32 " place%s; nothing is lost, and all ranges are served\n",
               recover->mended, recover->mended == 1 ? "" : "s");
    } else {
        puts("nothing is corrupt");
    }
    return left ? RECOVER_CORRUPT : COMMAND_OK;
}

int command_recover(int argc, char **argv)
{
    struct error error = {0};
    struct recover recover = {.settings = {.fabric = CLUSTER_FABRIC_DEFAULTS, .log_level = LOG_WARNING}};
    int result = COMMAND_FAILED;
    int status = settings_read(&command, &recover.settings, argc, argv, NULL, &error);
    log_set_level((enum log_level)recover.settings.log_level);
    if (!status && (recover.settings.data || recover.settings.output || recover.settings.lost)) {
        const struct recover_disk_settings disk = {.directories = recover.settings.data,
                                                   .output = recover.settings.output,
                                                   .index = recover.settings.index,
                                                   .lost = recover.settings.lost,
                                                   .accept_loss = recover.settings.accept_loss,
                                                   .json = recover.settings.json};
        bool doubtful;
        status = recover_disk(&disk, &doubtful, &error);
        result = status ? result : doubtful ? RECOVER_CORRUPT : COMMAND_OK;
    } else if (!status) {
        recover.json = recover.settings.json ? json_array() : NULL;
        status = cluster_session_open(&recover.cluster, &recover.settings.fabric, "banyan recover", &error);
        if (!status)
            status = cluster_session_join(&recover.cluster, &error);
        if (!status)
            status = look(&recover, &error);
        if (!status)
            result = report(&recover);
        cluster_session_close(&recover.cluster);
    }
    if (status)
        result = cluster_failed("recover", &error);
    free(recover.processes);
    free(recover.ranges);
    free(recover.indexes);
    free(recover.faults);
    json_decref(recover.json);
    option_free(table, &recover.settings);
    return result;
}
