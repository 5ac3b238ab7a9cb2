/*
 * verbs_works.h - from a command list to the work requests that do it, and from the bytes they brought back
 * to the list's results. For verbs_queue.c alone; no NIC is touched here.
 *
 * A list is validated first (verbs_list_validate): how much of it may be posted, how many requests and how
 * many bytes of registered memory ("place") that takes. Then it is built (verbs_list_build): what WRITEs
 * bring is copied into the place, or goes within the request where it is short. When the last request has
 * completed, verbs_list_take copies out what READs and atomics brought. The layout of the place follows from
 * the list and the rules alone, so nothing is remembered between.
 *
 * On the queue's owner; some nanoseconds a command, and the copies; nothing allocates, locks or waits.
 */
#ifndef FABRIC_VERBS_WORKS_H
#define FABRIC_VERBS_WORKS_H

#include "fabric/verbs_queue.h"

/* What a queue's device and the memory node's memory allow. */
struct verbs_rules {
    struct verbs_memory memory;
    uint64_t message; /* bytes of one request, at least VERBS_MESSAGE_MIN */
    uint32_t inlined; /* the longest WRITE that goes within its request */
    bool masked_cas;
};

/* A device with shorter messages is refused, so that no list needs more than VERBS_LIST_WORKS_MAX requests.
 * The InfiniBand specification requires 2 GiB; Soft-RoCE has 8 MiB. */
#define VERBS_MESSAGE_MIN    (UINT64_C(64) << 10)
#define VERBS_LIST_WORKS_MAX (FABRIC_COMMANDS_MAX + FABRIC_LIST_BYTES_MAX / (uint32_t)VERBS_MESSAGE_MIN)
_Static_assert(VERBS_LIST_WORKS_MAX <= VERBS_WORKS_MAX, "every list fits one post");

/* The most requests of one list on a device with messages of so many bytes. */
static inline uint32_t verbs_list_works_most(uint64_t message)
{
    return message >= FABRIC_LENGTH_MAX ? FABRIC_COMMANDS_MAX
                                        : FABRIC_COMMANDS_MAX + (uint32_t)(FABRIC_LIST_BYTES_MAX / message);
}

struct verbs_shape {
    uint32_t commands; /* that may be posted: those before the first bad one */
    uint32_t works;
    uint32_t inlined; /* of them: those whose bytes go within the request */
    uint32_t bytes;   /* of the place */
    int status;       /* of the list when those are done: 0 or BANYAN_EADDRESS */
};

/* 0; BANYAN_EADDRESS: already the first command is bad; BANYAN_ENOTSUP: a mask that the device cannot do. */
int verbs_list_validate(const struct verbs_rules *rules, const struct fabric_list *list,
                        struct verbs_shape *shape);
/* Writes shape->works requests; `key` is the place's. An id is the list's sequence and the command's index.
 */
void verbs_list_build(const struct verbs_rules *rules, const struct fabric_list *list,
                      const struct verbs_shape *shape, uint64_t sequence, uint8_t *place, uint32_t key,
                      struct verbs_work *works);
/* The first `commands` have been done: READs' bytes go to their buffers, atomics' old words to the commands.
 */
void verbs_list_take(const struct verbs_rules *rules, const struct fabric_list *list, uint32_t commands,
                     const uint8_t *place);

#define VERBS_ID_BITS 8 /* for the index */
_Static_assert(FABRIC_COMMANDS_MAX <= 1 << VERBS_ID_BITS, "an index fits an id");
static inline uint64_t verbs_id_sequence(uint64_t id)
{
    return id >> VERBS_ID_BITS;
}
static inline uint32_t verbs_id_command(uint64_t id)
{
    return (uint32_t)(id & ((1u << VERBS_ID_BITS) - 1));
}

#endif
