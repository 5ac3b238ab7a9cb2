/* floors.c - see floors.h. */
#include "save/floors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "format/log.h"
#include "pool/log.h"
#include "tree/tree.h"

#define LOOK_NS UINT64_C(5000000)

/* A process with ranges, or with a log. */
struct process {
    uint64_t instance, watermark;
    uint16_t compute_id;
    bool logs;
};
struct taking {
    const struct save_floors *floors;
    struct persist_table *table;
    uint64_t *owners; /* owned: of each floor the owner's instance; 0: none that logs */
    uint32_t room;
    struct process *processes; /* owned: with a log */
    uint32_t process_count, process_room;
    uint64_t epoch; /* the greatest of all ranges */
    bool memory, moving;
};

static struct pool_session *pool_of(const struct taking *taking)
{
    return tree_session_pool(taking->floors->session);
}

/* ---- the map ---- */

static bool owners_room(struct taking *taking)
{
    if (taking->table->floor_count < taking->room)
        return true;
    const uint32_t room = taking->room ? 2 * taking->room : 64;
    uint64_t *grown = realloc(taking->owners, room * sizeof *grown);
    if (!grown)
        return false;
    taking->owners = grown;
    taking->room = room;
    return true;
}

static void range_visit(void *context, const struct owner_range *range)
{
    struct taking *taking = context;
    if (range->epoch > taking->epoch)
        taking->epoch = range->epoch;
    if (range->state == FORMAT_RANGE_SPLIT) /* no border yet */
        return;
    taking->moving |= range->state == FORMAT_RANGE_MOVING;
    struct persist_table_floor *floor =
        !taking->memory && owners_room(taking) ? persist_table_floor_add(taking->table) : NULL;
    if (!floor) {
        taking->memory = true;
        return;
    }
    floor->index = range->number;
    floor->lower_length = (uint8_t)range->lower_length;
    memcpy(floor->lower, range->lower, range->lower_length);
    floor->epoch = range->epoch;
    floor->sequence = UINT64_MAX;
    taking->owners[taking->table->floor_count - 1] =
        range->logged && range->owner.compute_id ? range->owner.instance : 0;
}

static int map_read(void *context, struct tree_session *session)
{
    struct taking *taking = context;
    taking->table->floor_count = 0;
    taking->epoch = 0;
    taking->moving = taking->memory = false;
    return owner_list(taking->floors->owner, session, range_visit, taking);
}

/* Of one moment: no range moves while it is read. */
static int map_take(struct taking *taking)
{
    const uint64_t began = task_now();
    for (;;) {
        int status = owner_locked(taking->floors->owner, taking->floors->session, map_read, taking);
        if (!status && taking->memory)
            status = pool_fail_memory(pool_of(taking));
        if (status || !taking->moving)
            return status;
        if (task_now() - began >= taking->floors->wait_ns)
            return pool_fail(pool_of(taking), BANYAN_ETIMEOUT,
                             "a range of the cluster does not come to its owner");
        task_sleep(LOOK_NS);
    }
}

/* Indexes that the map does not have: each entry of them is of an earlier epoch, and all of it is merged. */
static int rest_take(struct taking *taking)
{
    struct persist_table *table = taking->table;
    const uint32_t listed = table->floor_count;
    for (uint32_t i = 0; i < table->index_count; i++) {
        bool there = false;
        for (uint32_t j = 0; j < listed && !there; j++)
            there = table->floors[j].index == table->indexes[i].number;
        if (there)
            continue;
        struct persist_table_floor *floor = owners_room(taking) ? persist_table_floor_add(table) : NULL;
        if (!floor)
            return pool_fail_memory(pool_of(taking));
        floor->index = table->indexes[i].number;
        floor->epoch = taking->epoch;
        floor->sequence = UINT64_MAX;
        taking->owners[table->floor_count - 1] = 0;
    }
    return 0;
}

/* ---- how far each owner has merged ---- */

static struct process *process_find(const struct taking *taking, uint64_t instance)
{
    for (uint32_t i = 0; i < taking->process_count; i++)
        if (taking->processes[i].instance == instance)
            return &taking->processes[i];
    return NULL;
}

static struct process *process_add(struct taking *taking, uint64_t instance)
{
    if (taking->process_count == taking->process_room) {
        const uint32_t room = taking->process_room ? 2 * taking->process_room : 16;
        struct process *grown = realloc(taking->processes, room * sizeof *grown);
        if (!grown)
            return NULL;
        taking->processes = grown;
        taking->process_room = room;
    }
    struct process *process = &taking->processes[taking->process_count++];
    *process = (struct process){.instance = instance};
    return process;
}

static int control_take(struct taking *taking, const struct memory_log_process *listed)
{
    struct pool_session *pool = pool_of(taking);
    uint8_t bytes[FORMAT_LOG_BLOCK];
    struct format_log_control control;
    struct process *process = process_find(taking, listed->process.instance);
    if (!process)
        process = process_add(taking, listed->process.instance);
    if (!process)
        return pool_fail_memory(pool);
    process->compute_id = listed->process.compute_id;
    process->logs = true;
    if (listed->control == GADDR_NULL)
        return 0;
    struct fabric_command read = pool_read_command(listed->control, bytes, sizeof bytes);
    int status = pool_execute(pool, gaddr_node(listed->control), &read, 1);
    if (status)
        return pool_list_failed(pool, status, &read, 1);
    pool_read_settle(&read);
    /* One that says nothing was not begun, or is damaged; another memory node's counts then. */
    if (!format_log_control_decode(bytes, &control) && control.owner.instance == process->instance &&
        control.watermark > process->watermark)
        process->watermark = control.watermark;
    return 0;
}

static int watermarks_read(struct taking *taking)
{
    struct pool_session *pool = pool_of(taking);
    struct memory_log_processes *page = malloc(sizeof *page);
    int status = page ? 0 : pool_fail_memory(pool);
    pool_session_begin(pool);
    for (uint16_t node = 0; node < pool->memory_nodes && !status; node++) {
        uint64_t after = 0;
        if (!fabric_membership(pool->fabric, node))
            continue;
        do {
            status = pool_log_processes(pool, node, after, page);
            for (uint32_t i = 0; i < page->count && !status; i++) {
                after = page->processes[i].serial;
                status = control_take(taking, &page->processes[i]);
            }
        } while (!status && page->count == MEMORY_LOG_PAGE);
    }
    free(page);
    return status;
}

static uint64_t mark_of(const struct save_floors *floors, uint64_t instance)
{
    for (uint32_t i = 0; i < floors->mark_count; i++)
        if (floors->marks[i].instance == instance)
            return floors->marks[i].sequence;
    return 0;
}

/* An owner that has not merged yet what stands before the positions; NULL: all have. */
static const struct process *behind(const struct taking *taking)
{
    for (uint32_t i = 0; i < taking->table->floor_count; i++) {
        const struct process *process = taking->owners[i] ? process_find(taking, taking->owners[i]) : NULL;
        if (process && process->watermark < mark_of(taking->floors, process->instance))
            return process;
    }
    return NULL;
}

static int watermarks_wait(struct taking *taking)
{
    const struct save_floors *floors = taking->floors;
    const uint64_t began = task_now();
    for (;;) {
        int status = watermarks_read(taking);
        const struct process *late = status ? NULL : behind(taking);
        if (status || !late)
            return status;
        if (floors->cancelled && floors->cancelled(floors->context))
            return pool_fail(pool_of(taking), BANYAN_EABORT, "it was cancelled");
        if (task_now() - began >= floors->wait_ns)
            return pool_fail(pool_of(taking), BANYAN_ETIMEOUT,
                             "compute node %u does not merge its log: %" PRIu64 " of %" PRIu64,
                             (unsigned)late->compute_id, late->watermark, mark_of(floors, late->instance));
        task_sleep(LOOK_NS);
    }
}

static void sequences_set(struct taking *taking)
{
    for (uint32_t i = 0; i < taking->table->floor_count; i++) {
        if (!taking->owners[i])
            continue;
        const struct process *process = process_find(taking, taking->owners[i]);
        if (process)
            taking->table->floors[i].sequence = process->watermark;
        else if (!mark_of(taking->floors, taking->owners[i])) /* it has logged nothing yet */
            taking->table->floors[i].sequence = 0;
        /* Else its log was given back, so others have inherited all of it. */
    }
}

int save_floors_take(const struct save_floors *floors, struct persist_table *table)
{
    struct taking taking = {.floors = floors, .table = table};
    int status = map_take(&taking);
    if (!status)
        status = rest_take(&taking);
    if (!status)
        status = watermarks_wait(&taking);
    if (!status) {
        sequences_set(&taking);
        persist_table_sort(table);
    }
    free(taking.owners);
    free(taking.processes);
    return status;
}
