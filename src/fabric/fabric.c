/*
 * fabric.c - what is the same for every backend: lists are checked, counted and handed on.
 *
 * Called by everything above the fabric, on any task; costs a few nanoseconds on top of the backend. A
 * list that is refused here never reaches the backend and is not counted; a list that is posted is
 * counted whole, whatever becomes of it.
 */
#include "fabric/fabric.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabric/wire.h"

/* The checks that only some lists need: of a long list, that its bytes fit; on hardware without masked CAS,
 * that there is none. A single length that is too long is left for the backend, where it ends the list. */
static bool list_fits(const struct fabric_list *list, bool masked_cas)
{
    uint64_t bytes = 0;
    for (uint16_t i = 0; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        if (command->operation == FABRIC_READ || command->operation == FABRIC_WRITE)
            bytes += command->length <= FABRIC_LENGTH_MAX ? command->length : 0;
        else if (command->operation == FABRIC_CAS && command->cas.mask != UINT64_MAX && !masked_cas)
            return false;
    }
    return bytes <= FABRIC_LIST_BYTES_MAX;
}

/* This many commands cannot have too many bytes. */
#define SHORT_LIST (FABRIC_LIST_BYTES_MAX / FABRIC_LENGTH_MAX)

static inline bool list_valid(const struct fabric_list *list, const struct fabric *fabric)
{
    const struct fabric_capabilities *capabilities = &fabric->capabilities;
    if (!fabric_membership(fabric, list->node) || list->count - 1u >= FABRIC_COMMANDS_MAX)
        return false;
    return __builtin_expect(list->count <= SHORT_LIST && capabilities->masked_cas, 1) ||
           list_fits(list, capabilities->masked_cas);
}

/* Counted in registers: on an in-process backend this is a good part of what a list costs. */
static inline void count_list(struct fabric_cost *cost, const struct fabric_list *list)
{
    uint64_t reads = 0, writes = 0, read = 0, written = 0;
    const struct fabric_command *end = list->commands + list->count;
    for (const struct fabric_command *command = list->commands; command < end; command++) {
        if (command->operation == FABRIC_READ) {
            reads++;
            read += command->length;
        } else if (command->operation == FABRIC_WRITE) {
            writes++;
            written += command->length;
        }
    }
    uint64_t atomics = list->count - reads - writes;
    cost->lists++;
    cost->reads += reads;
    cost->writes += writes;
    cost->atomics += atomics;
    cost->bytes_read += read;
    cost->bytes_written += written + 8 * atomics;
}

static inline int post(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count,
                       struct fabric_cost *cost)
{
    if (cost != NULL) {
        cost->round_trips++;
        for (uint32_t i = 0; i < count; i++)
            count_list(cost, lists[i]);
    }
    return endpoint->fabric->ops->execute(endpoint, lists, count);
}

/* At least one list cannot be posted: refuses those, and posts the others together. */
static int execute_valid(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count,
                         struct fabric_cost *cost)
{
    struct fabric *fabric = endpoint->fabric;
    struct fabric_list **valid = malloc(count * sizeof *valid);
    uint32_t valid_count = 0;
    int status = BANYAN_OK;

    for (uint32_t i = 0; i < count; i++) {
        if (!list_valid(lists[i], fabric) &&
            (!fabric_learn(fabric, lists[i]->node) || !list_valid(lists[i], fabric)))
            lists[i]->status = BANYAN_EINVAL;
        else if (valid == NULL)
            lists[i]->status = BANYAN_ENOMEM;
        else
            valid[valid_count++] = lists[i];
    }
    if (valid_count > 0)
        post(endpoint, valid, valid_count, cost);
    free(valid);
    for (uint32_t i = 0; i < count && !status; i++)
        status = lists[i]->status;
    return status;
}

int fabric_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count,
                   struct fabric_cost *cost)
{
    /* One good list is the common case, and on an in-process backend it takes a few nanoseconds. */
    if (__builtin_expect(count == 1 && list_valid(lists[0], endpoint->fabric), 1)) {
        if (cost != NULL) {
            cost->round_trips++;
            count_list(cost, lists[0]);
        }
        return endpoint->fabric->ops->execute(endpoint, lists, 1);
    }
    if (count == 0)
        return BANYAN_OK;
    for (uint32_t i = 0; i < count; i++)
        if (__builtin_expect(!list_valid(lists[i], endpoint->fabric), 0))
            return execute_valid(endpoint, lists, count, cost);
    return post(endpoint, lists, count, cost);
}

int fabric_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                void *reply, size_t capacity, size_t *reply_length, struct fabric_cost *cost)
{
    *reply_length = 0;
    if (!fabric_membership(endpoint->fabric, node) && !fabric_learn(endpoint->fabric, node))
        return BANYAN_EINVAL;
    if (cost != NULL) {
        cost->round_trips++;
        cost->rpcs++;
    }
    return endpoint->fabric->ops->call(endpoint, node, request, length, reply, capacity, reply_length);
}

void fabric_calls(struct fabric_endpoint *endpoint, struct fabric_call *const *calls, uint32_t count,
                  struct fabric_cost *cost)
{
    bool offered = fabric_calls_offered(endpoint->fabric);
    for (uint32_t i = 0; i < count; i++) {
        calls[i]->reply_length = 0;
        calls[i]->status = BANYAN_ENOTSUP;
        offered &= fabric_membership(endpoint->fabric, calls[i]->node) != FABRIC_NO_MEMBER;
    }
    if (count == 0 || !offered)
        return;
    if (cost != NULL) {
        cost->round_trips++;
        cost->rpcs += count;
    }
    endpoint->fabric->ops->calls(endpoint, calls, count);
    for (uint32_t i = 0; i < count && cost != NULL; i++) {
        cost->bytes_written += calls[i]->length;
        cost->bytes_read += calls[i]->reply_length;
    }
}

enum fabric_durability fabric_durability(const struct fabric *fabric, uint16_t node)
{
    return fabric->ops->durability != NULL && fabric_membership(fabric, node)
               ? fabric->ops->durability(fabric, node)
               : FABRIC_KEPT_IN_MEMORY;
}

bool fabric_logs_on_disk(const struct fabric *fabric)
{
    bool disk = false;
    for (uint16_t node = 0; node < fabric_memory_nodes(fabric) && !disk; node++)
        disk = fabric_durability(fabric, node) >= FABRIC_KEPT_ON_DISK;
    return disk;
}

/* One after the other, where nothing has to be waited for. */
static int persist_by_calls(struct fabric_endpoint *endpoint, const uint16_t *nodes, uint32_t count,
                            int *statuses)
{
    const struct wire_persist_request request = {.kind = WIRE_PERSIST};
    uint64_t reply;
    size_t length;
    int status = BANYAN_OK;
    for (uint32_t i = 0; i < count; i++) {
        statuses[i] = endpoint->fabric->ops->call(endpoint, nodes[i], &request, sizeof request, &reply,
                                                  sizeof reply, &length);
        status = !status ? statuses[i] : status;
    }
    return status;
}

int fabric_persist(struct fabric_endpoint *endpoint, const uint16_t *nodes, uint32_t count, int *statuses,
                   struct fabric_cost *cost)
{
    for (uint32_t i = 0; i < count; i++)
        if (!fabric_membership(endpoint->fabric, nodes[i]))
            return BANYAN_EINVAL;
    if (count == 0)
        return BANYAN_OK;
    if (cost != NULL) {
        cost->round_trips++;
        cost->rpcs += count;
    }
    if (endpoint->fabric->ops->persist != NULL)
        return endpoint->fabric->ops->persist(endpoint, nodes, count, statuses);
    return persist_by_calls(endpoint, nodes, count, statuses);
}

bool fabric_learn(struct fabric *fabric, uint16_t node)
{
    return fabric_membership(fabric, node) ||
           (fabric->ops->cluster != NULL && node < fabric_memory_nodes_most(fabric) &&
            fabric->ops->cluster->learn(fabric, node));
}

bool fabric_refresh(struct fabric *fabric)
{
    return fabric->ops->cluster == NULL || fabric->ops->cluster->refresh(fabric);
}

struct fabric_endpoint *fabric_endpoint_open(struct fabric *fabric, struct error *error)
{
    struct fabric_endpoint *endpoint = fabric->ops->endpoint_open(fabric, error);
    assert(endpoint == NULL || endpoint->fabric == fabric);
    return endpoint;
}

void fabric_endpoint_close(struct fabric_endpoint *endpoint)
{
    if (endpoint != NULL)
        endpoint->fabric->ops->endpoint_close(endpoint);
}

void fabric_close(struct fabric *fabric)
{
    if (fabric != NULL)
        fabric->ops->close(fabric);
}

uint64_t fabric_incarnation(const struct fabric *fabric)
{
    return fabric->ops->incarnation ? fabric->ops->incarnation(fabric) : 1;
}

void fabric_trouble(const struct fabric *fabric, uint16_t node, char *text, size_t size)
{
    if (size > 0)
        text[0] = 0;
    if (fabric->ops->trouble && fabric_membership(fabric, node))
        fabric->ops->trouble(fabric, node, text, size);
}

void fabric_give_up(struct fabric_endpoint *endpoint, uint16_t node)
{
    if (endpoint->fabric->ops->give_up && fabric_membership(endpoint->fabric, node))
        endpoint->fabric->ops->give_up(endpoint, node);
}

void fabric_cost_add(struct fabric_cost *into, const struct fabric_cost *from)
{
    into->round_trips += from->round_trips;
    into->lists += from->lists;
    into->reads += from->reads;
    into->writes += from->writes;
    into->atomics += from->atomics;
    into->rpcs += from->rpcs;
    into->peer_calls += from->peer_calls;
    into->bytes_read += from->bytes_read;
    into->bytes_written += from->bytes_written;
}

char *gaddr_format(gaddr address, char text[GADDR_TEXT_BYTES])
{
    uint64_t offset = gaddr_offset(address);
    if (address == GADDR_NULL)
        snprintf(text, GADDR_TEXT_BYTES, "null");
    else
        snprintf(text, GADDR_TEXT_BYTES, "%u:%s0x%llx", (unsigned)gaddr_node(address),
                 offset & GADDR_LOCK_REGION ? "lock:" : "",
                 (unsigned long long)(offset & ~GADDR_LOCK_REGION));
    return text;
}
