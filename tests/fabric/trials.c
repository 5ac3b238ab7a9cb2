/* trials.c - see trials.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <string.h>

#include "fabric/target.h"
#include "trials.h"

#define LENGTH_LARGE 200000

static gaddr place(const struct trial_space *space, struct random *random, uint32_t *length)
{
    uint64_t begin = space->pool_begin, end = space->pool_end, region = 0;
    if (random_chance(random, 0.3)) {
        begin = space->lock_begin;
        end = space->lock_end;
        region = GADDR_LOCK_REGION;
        *length = 8;
    }
    uint64_t steps = (end - begin - *length) / 8 + 1;
    return gaddr_make(space->node, region | (begin + 8 * random_below(random, steps)));
}

static void set_command(struct trial *trial, unsigned index, const struct trial_space *space,
                        struct random *random, uint32_t length_max)
{
    struct fabric_command *command = &trial->commands[index];
    uint32_t length = (uint32_t)random_below(random, random_chance(random, 0.6) ? 64 : length_max) + 1;
    gaddr address = place(space, random, &length);
    uint8_t *buffer = calloc(1, length);
    trial->buffers[index] = buffer;
    trial->expected_buffers[index] = calloc(1, length);
    assert_true(buffer != NULL && trial->expected_buffers[index] != NULL);
    *command = (struct fabric_command){.length = length, .address = address};
    switch (random_below(random, 4)) {
    case 0:
        command->operation = FABRIC_READ;
        command->read.buffer = buffer;
        break;
    case 1:
        command->operation = FABRIC_WRITE;
        command->write.data = buffer;
        for (uint32_t i = 0; i < length; i++)
            buffer[i] = (uint8_t)random_next(random);
        break;
    case 2:
        command->operation = FABRIC_CAS;
        command->cas.compare = random_below(random, 3);
        command->cas.swap = random_below(random, 3);
        command->cas.mask = space->masked && random_chance(random, 0.5) ? 0xffff : UINT64_MAX;
        break;
    default:
        command->operation = FABRIC_FAA;
        command->faa.add = random_below(random, 3);
    }
    if (random_chance(random, 0.01))
        command->address = gaddr_make(space->node, space->bad + 8 * random_below(random, 100));
}

struct trial *trial_make(struct random *random, const struct trial_space *space)
{
    struct trial *trial = calloc(1, sizeof *trial);
    uint32_t length_max = random_chance(random, 0.02)  ? LENGTH_LARGE
                          : random_chance(random, 0.2) ? 8000
                                                       : 500;
    unsigned most = length_max == LENGTH_LARGE ? 20 : FABRIC_COMMANDS_MAX;
    unsigned count = 1 + (unsigned)random_below(
                             random, length_max < LENGTH_LARGE && random_chance(random, 0.7) ? 3 : most);
    assert_non_null(trial);
    trial->list =
        (struct fabric_list){.node = space->node, .count = (uint16_t)count, .commands = trial->commands};
    for (unsigned i = 0; i < count; i++)
        set_command(trial, i, space, random, length_max);
    return trial;
}

void trial_model(struct trial *trial, const struct fabric_target *model)
{
    memcpy(trial->expected, trial->commands, sizeof trial->expected);
    for (unsigned i = 0; i < trial->list.count && !trial->expected_status; i++) {
        struct fabric_command *command = &trial->expected[i];
        if (command->operation == FABRIC_READ)
            command->read.buffer = trial->expected_buffers[i];
        trial->expected_status = fabric_target_execute(model, command);
    }
}

void trial_judge(struct trial *trial)
{
    assert_int_equal(trial->list.status, trial->expected_status);
    for (unsigned i = 0; i < trial->list.count; i++) {
        const struct fabric_command *command = &trial->commands[i], *expected = &trial->expected[i];
        if (command->operation == FABRIC_READ)
            assert_memory_equal(trial->buffers[i], trial->expected_buffers[i], command->length);
        else if (command->operation == FABRIC_CAS)
            assert_int_equal(command->cas.old, expected->cas.old);
        else if (command->operation == FABRIC_FAA)
            assert_int_equal(command->faa.old, expected->faa.old);
        free(trial->buffers[i]);
        free(trial->expected_buffers[i]);
    }
    free(trial);
}
