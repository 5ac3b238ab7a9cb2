/* verbs_works.c - see verbs_works.h. */
#include "fabric/verbs_works.h"

#include <assert.h>
#include <string.h>

static bool atomic_command(const struct fabric_command *command)
{
    return command->operation == FABRIC_CAS || command->operation == FABRIC_FAA;
}

/* Where the command's bytes are at the memory node; the same checks as fabric_target_locate's. */
static bool locate(const struct verbs_memory *memory, const struct fabric_command *command, uint16_t node,
                   uint64_t *remote, uint32_t *key)
{
    uint64_t offset = gaddr_offset(command->address);
    uint64_t length = command->length;
    uint64_t bytes = memory->pool_bytes, base = memory->pool_address;
    *key = memory->pool_key;
    if (offset & GADDR_LOCK_REGION) {
        offset ^= GADDR_LOCK_REGION;
        bytes = memory->lock_bytes;
        base = memory->lock_address;
        *key = memory->lock_key;
    }
    if (atomic_command(command)) {
        if (offset % 8 != 0)
            return false;
        length = 8;
    } else if (command->operation != FABRIC_READ && command->operation != FABRIC_WRITE) {
        return false;
    }
    /* length - 1 wraps for 0. The sum cannot: the offset is below 2^47. */
    if (length - 1 >= FABRIC_LENGTH_MAX || offset + length > bytes || command->address == GADDR_NULL ||
        gaddr_node(command->address) != node)
        return false;
    *remote = base + offset;
    return true;
}

static bool within_request(const struct verbs_rules *rules, const struct fabric_command *command)
{
    return command->operation == FABRIC_WRITE && command->length <= rules->inlined;
}

/* Bytes of the place that a good command takes. Multiples of 8: atomics want their word aligned. */
static uint32_t place_of(const struct verbs_rules *rules, const struct fabric_command *command)
{
    if (atomic_command(command))
        return 8;
    return within_request(rules, command) ? 0 : (command->length + 7) & ~7u;
}

int verbs_list_validate(const struct verbs_rules *rules, const struct fabric_list *list,
                        struct verbs_shape *shape)
{
    *shape = (struct verbs_shape){.status = BANYAN_OK};
    assert(list->count - 1u < FABRIC_COMMANDS_MAX);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        uint64_t remote;
        uint32_t key;
        if (!locate(&rules->memory, command, list->node, &remote, &key)) {
            shape->status = BANYAN_EADDRESS;
            break;
        }
        if (command->operation == FABRIC_CAS && command->cas.mask != UINT64_MAX && !rules->masked_cas)
            return BANYAN_ENOTSUP;
        shape->commands++;
        shape->inlined += within_request(rules, command);
        shape->bytes += place_of(rules, command);
        shape->works += atomic_command(command) || command->length <= rules->message
                            ? 1
                            : (uint32_t)((command->length + rules->message - 1) / rules->message);
    }
    /* fabric_execute lets no longer list through. */
    assert(shape->bytes <= FABRIC_LIST_BYTES_MAX + 8 * FABRIC_COMMANDS_MAX);
    assert(shape->works <= verbs_list_works_most(rules->message));
    return shape->commands > 0 ? BANYAN_OK : shape->status;
}

static void set_atomic(struct verbs_work *work, const struct fabric_command *command)
{
    work->length = 8;
    if (command->operation == FABRIC_FAA) {
        work->swap = command->faa.add;
        return;
    }
    work->compare = command->cas.compare;
    work->swap = command->cas.swap;
    work->mask = command->cas.mask;
    work->masked = command->cas.mask != UINT64_MAX;
}

/* Cuts `whole` into as many requests as the NIC's longest message demands; returns the place behind the last.
 */
static struct verbs_work *split(struct verbs_work *work, const struct verbs_work *whole, uint64_t message)
{
    for (uint32_t done = 0; done < whole->length; work++) {
        uint32_t left = whole->length - done;
        *work = *whole;
        work->remote += done;
        work->local += done;
        work->length = left <= message ? left : (uint32_t)message;
        done += work->length;
    }
    return work;
}

void verbs_list_build(const struct verbs_rules *rules, const struct fabric_list *list,
                      const struct verbs_shape *shape, uint64_t sequence, uint8_t *place, uint32_t key,
                      struct verbs_work *works)
{
    struct verbs_work *work = works;
    for (uint32_t i = 0; i < shape->commands; i++) {
        const struct fabric_command *command = &list->commands[i];
        struct verbs_work whole = {
            .id = sequence << VERBS_ID_BITS | i,
            .operation = command->operation,
            .length = command->length,
            .local = (uint64_t)(uintptr_t)place,
            .local_key = key,
        };
        bool good = locate(&rules->memory, command, list->node, &whole.remote, &whole.remote_key);
        assert(good);
        (void)good;
        if (atomic_command(command)) {
            set_atomic(&whole, command);
        } else if (within_request(rules, command)) {
            whole.inlined = true;
            whole.local = (uint64_t)(uintptr_t)command->write.data;
        } else if (command->operation == FABRIC_WRITE) {
            memcpy(place, command->write.data, command->length);
        }
        place += place_of(rules, command);
        work = split(work, &whole, rules->message);
    }
    assert(work == works + shape->works);
    /* The queue pair does its requests in order, so when the last one is done all are. */
    work[-1].signalled = true;
}

void verbs_list_take(const struct verbs_rules *rules, const struct fabric_list *list, uint32_t commands,
                     const uint8_t *place)
{
    for (uint32_t i = 0; i < commands; i++) {
        struct fabric_command *command = &list->commands[i];
        if (command->operation == FABRIC_READ) {
            memcpy(command->read.buffer, place, command->length);
            command->read.data = command->read.buffer;
        } else if (command->operation == FABRIC_CAS) {
            memcpy(&command->cas.old, place, 8);
        } else if (command->operation == FABRIC_FAA) {
            memcpy(&command->faa.old, place, 8);
        }
        place += place_of(rules, command);
    }
}
