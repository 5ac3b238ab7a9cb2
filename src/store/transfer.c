/*
 * transfer.c - independent READs or WRITEs in one round trip: grouped by memory node into lists that the
 * fabric accepts, all executed together. Called by the store's other files; fails with the fabric's errors.
 */
#include "store/transfer.h"

#include <assert.h>
#include <stdlib.h>

#define REFUSALS_MAX 16u

struct store_transfer {
    struct fabric_command prepared[STORE_TRANSFER_MAX]; /* the caller's */
    struct fabric_command commands[STORE_TRANSFER_MAX];
    uint32_t origins[STORE_TRANSFER_MAX]; /* of each command: its number in the caller's array */
    struct fabric_list lists[STORE_TRANSFER_MAX];
    struct fabric_list *pointers[STORE_TRANSFER_MAX];
    bool taken[STORE_TRANSFER_MAX]; /* by number in the caller's array */
};

/* A READ has no data if its list stopped before it. */
static int command_settle(struct fabric_command *command, int status)
{
    if (status || command->operation != FABRIC_READ)
        return status;
    if (!command->read.data)
        return BANYAN_EADDRESS;
    if (command->read.data != command->read.buffer)
        atomic_copy_from(command->read.buffer, command->read.data, command->length);
    return 0;
}

static int transfer_one(struct store_session *session, struct fabric_command *command)
{
    struct fabric_list list = {.node = gaddr_node(command->address), .count = 1, .commands = command};
    struct fabric_list *lists[1] = {&list};
    if (command->operation == FABRIC_READ)
        command->read.data = NULL;
    int status = pool_lists_execute(tree_session_pool(session->tree), lists, 1);
    return command_settle(command, status);
}

/* Fills the next list: the command `first` and, of those not taken yet, its memory node's that fit. */
static uint32_t list_fill(struct store_transfer *transfer, const struct fabric_command *commands,
                          uint32_t first, uint32_t count, struct fabric_list *list, uint32_t used)
{
    uint64_t bytes = 0;
    *list = (struct fabric_list){.node = gaddr_node(commands[first].address),
                                 .commands = &transfer->commands[used]};
    for (uint32_t i = first; i < count && list->count < FABRIC_COMMANDS_MAX; i++) {
        if (transfer->taken[i] || gaddr_node(commands[i].address) != list->node ||
            (list->count && bytes + commands[i].length > FABRIC_LIST_BYTES_MAX))
            continue;
        transfer->taken[i] = true;
        transfer->origins[used] = i;
        transfer->commands[used] = commands[i];
        if (commands[i].operation == FABRIC_READ)
            transfer->commands[used].read.data = NULL;
        bytes += commands[i].length;
        used++;
        list->count++;
    }
    return used;
}

static int transfer_many(struct store_session *session, const struct fabric_command *commands, uint32_t count,
                         int *statuses)
{
    struct store_transfer *transfer = session->transfer;
    uint32_t used = 0, lists = 0;
    memset(transfer->taken, 0, sizeof transfer->taken);
    for (uint32_t i = 0; i < count; i++)
        if (!transfer->taken[i]) {
            used = list_fill(transfer, commands, i, count, &transfer->lists[lists], used);
            transfer->pointers[lists] = &transfer->lists[lists];
            lists++;
        }
    assert(used == count && lists <= count);
    int status = pool_lists_execute(tree_session_pool(session->tree), transfer->pointers, lists);
    for (uint32_t list = 0, at = 0; list < lists; list++)
        for (uint32_t i = 0; i < transfer->lists[list].count; i++, at++) {
            int one = command_settle(&transfer->commands[at], status ? transfer->lists[list].status : 0);
            if (statuses)
                statuses[transfer->origins[at]] = one;
            if (!status)
                status = one;
        }
    return status;
}

static bool refused(int status, const int *statuses, uint32_t count)
{
    bool any = status == BANYAN_EFENCED;
    for (uint32_t i = 0; status && statuses && i < count; i++)
        any = any || statuses[i] == BANYAN_EFENCED;
    return any;
}

static struct store_transfer *transfer_get(struct store_session *session)
{
    if (!session->transfer) /* the session owns it: a simulated task may end within the call */
        session->transfer = malloc(sizeof *session->transfer);
    session->transfer_used = true;
    return session->transfer;
}

struct fabric_command *store_transfer_commands(struct store_session *session)
{
    struct store_transfer *transfer = transfer_get(session);
    return transfer ? transfer->prepared : NULL;
}

int store_transfer(struct store_session *session, struct fabric_command *commands, uint32_t count,
                   int *statuses)
{
    assert(count && count <= STORE_TRANSFER_MAX);
    if (count > 1 && !transfer_get(session)) {
        for (uint32_t i = 0; i < count && statuses; i++)
            statuses[i] = BANYAN_ENOMEM;
        return store_fail_memory(session);
    }
    /* Lists refused because a connection was lost (BANYAN_EFENCED) are begun again: reads change nothing, and
     * writes go to blocks that no slot refers to. */
    int status = 0;
    for (unsigned attempt = 0; attempt < REFUSALS_MAX; attempt++) {
        pool_session_begin(tree_session_pool(session->tree));
        if (count > 1)
            status = transfer_many(session, commands, count, statuses);
        else
            status = transfer_one(session, commands);
        if (count == 1 && statuses)
            statuses[0] = status;
        if (!refused(status, statuses, count))
            break;
        task_yield();
    }
    return status;
}
