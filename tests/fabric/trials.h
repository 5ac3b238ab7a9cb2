/*
 * trials.h - random command lists that know what must come of them, for tests of backends and of their parts.
 *
 * A trial is modelled (trial_model) on memory of the test's own in the order in which the memory node will
 * run it, and judged when it is done. Trials under way together must have spaces that do not overlap, and the
 * queue that they go through must run them in order.
 */
#ifndef TESTS_FABRIC_TRIALS_H
#define TESTS_FABRIC_TRIALS_H

#include "base/random.h"
#include "fabric/fabric.h"

/* Where its commands may go. Offsets; multiples of 8. */
struct trial_space {
    uint16_t node;
    bool masked; /* CAS under a mask too */
    uint64_t pool_begin, pool_end, lock_begin, lock_end;
    uint64_t bad; /* an offset behind the pool's end, which one command in a hundred gets */
};

struct trial {
    struct fabric_list list;
    struct fabric_command commands[FABRIC_COMMANDS_MAX];
    struct fabric_command expected[FABRIC_COMMANDS_MAX];
    uint8_t *buffers[FABRIC_COMMANDS_MAX], *expected_buffers[FABRIC_COMMANDS_MAX];
    int expected_status;
};

/* One to 64 commands, mostly few and short; some lists have more bytes than a queue's ring. */
struct trial *trial_make(struct random *random, const struct trial_space *space);
void trial_model(struct trial *trial, const struct fabric_target *model);
/* Fails the test if list.status or a result is not the model's. Frees the trial. */
void trial_judge(struct trial *trial);

/* ---- single commands ---- */

static inline struct fabric_command read_of(gaddr address, void *buffer, uint32_t length)
{
    return (struct fabric_command){FABRIC_READ, length, address, .read = {.buffer = buffer}};
}
static inline struct fabric_command write_of(gaddr address, const void *data, uint32_t length)
{
    return (struct fabric_command){FABRIC_WRITE, length, address, .write = {.data = data}};
}
static inline struct fabric_command masked_of(gaddr address, uint64_t compare, uint64_t swap, uint64_t mask)
{
    return (struct fabric_command){FABRIC_CAS, 8, address,
                                   .cas = {.compare = compare, .swap = swap, .mask = mask}};
}
static inline struct fabric_command cas_of(gaddr address, uint64_t compare, uint64_t swap)
{
    return masked_of(address, compare, swap, UINT64_MAX);
}
/* Atomics have 8 bytes whatever their length says. */
static inline struct fabric_command faa_of(gaddr address, uint64_t add)
{
    return (struct fabric_command){FABRIC_FAA, 0, address, .faa = {.add = add}};
}

#endif
