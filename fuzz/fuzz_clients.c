/*
 * fuzz_clients.c - two or three compute nodes at once on the simulator: each has a program of its own in the
 * input, with waits between its operations, so that the input chooses how they come between each other; the
 * simulator's faults, a death and a restart too.
 *
 * Oracle: the history of all is linearizable key by key (swarm/linearize.h), scans included; all come
 * to an end; the index is sound, and every block has one owner (but those that the dead have taken along).
 */
#include "fuzz/fuzz.h"
#include "swarm/world.h"

#define TASKS_MAX  4u
#define KEYS       48u
#define OPERATIONS 120u /* of one task */

static struct fuzz_input programs[TASKS_MAX];

static void do_many(struct world_task *task, struct fuzz_input *input, bool writes)
{
    uint64_t keys[8];
    size_t count = 0;
    uint8_t first = fuzz_byte(input) % KEYS, step = (uint8_t)(1 + fuzz_byte(input) % 7);
    for (; count < 8; count++)
        keys[count] = (first + count * step) % KEYS;
    driver_many(&task->driver, writes, keys, count);
}

static void do_scan(struct world_task *task, struct fuzz_input *input)
{
    uint8_t low = fuzz_byte(input) % KEYS, how = fuzz_byte(input);
    static struct driver_scan scans[TASKS_MAX]; /* too large for a fiber's stack */
    struct driver_scan *scan = &scans[task->number % TASKS_MAX];
    *scan = (struct driver_scan){
        .low = low, .high = low + 1u + how % 40, .reverse = how & 64, .limit = how & 128 ? 5 : 0};
    driver_scan(&task->driver, scan);
}

/* Keys one after the other: leaves split, and empty. */
static void do_run(struct world_task *task, struct fuzz_input *input, enum history_kind kind)
{
    uint8_t first = fuzz_byte(input), count = fuzz_byte(input) % 24;
    for (unsigned i = 0; i < count && !driver_stopped(&task->driver); i++)
        world_operate(task, kind, (first + i) % KEYS, 0);
}

static void work(struct world_task *task)
{
    struct fuzz_input *input = &programs[task->number % TASKS_MAX];
    for (unsigned i = 0; i < OPERATIONS && input->length && !driver_stopped(&task->driver); i++) {
        uint8_t what = fuzz_byte(input), key = what / 16 * 3u;
        static const enum history_kind kinds[] = {HISTORY_GET,    HISTORY_PUT,    HISTORY_INSERT,
                                                  HISTORY_UPDATE, HISTORY_DELETE, HISTORY_MODIFY,
                                                  HISTORY_GET,    HISTORY_DELETE};
        switch (what % 16) {
        case 8:
            do_many(task, input, true);
            break;
        case 9:
            do_many(task, input, false);
            break;
        case 10:
            do_scan(task, input);
            break;
        case 11:
            do_run(task, input, HISTORY_PUT);
            break;
        case 12:
            do_run(task, input, HISTORY_DELETE);
            break;
        case 13:
            task_sleep(fuzz_byte(input) * UINT64_C(200));
            break;
        case 14:
            world_operate(task, HISTORY_CAS, key, fuzz_byte(input));
            break;
        default:
            world_operate(task, kinds[what % 8], key, 0);
            break;
        }
    }
}

static void read_all(struct world_task *task)
{
    for (uint64_t key = 0; key < KEYS; key++)
        world_operate(task, HISTORY_GET, key, 0);
}

static void take_options(struct fuzz_input *input, struct world_options *options)
{
    uint8_t shape = fuzz_byte(input), how = fuzz_byte(input);
    static const uint8_t values[] = {8, 8, 17, 40};
    world_options_default(options);
    options->simulated = true;
    options->seed = fuzz_u16(input);
    options->geometry.leaf_bytes = 512;
    options->geometry.internal_bytes = 512;
    options->geometry.value_bytes = values[shape % 4];
    options->geometry.value_variable = shape & 4;
    options->geometry.leaf_kind = how & 128 ? FORMAT_LEAF_UNSORTED : FORMAT_LEAF_HASHED;
    if (shape & 8) {
        options->geometry.key_kind = FORMAT_KEY_VARIABLE;
        options->geometry.key_bytes = 60;
        options->geometry.inline_key_bytes = 16;
        options->geometry.leaf_bytes = options->geometry.internal_bytes = 1024;
        options->long_keys = true;
    }
    options->compute_nodes = 2 + (shape & 16) / 16;
    options->fibers = shape & 32 && !(shape & 16) ? 2 : 1;
    options->memory_nodes = 1 + (shape & 64) / 64;
    options->unlock_by_atomic = shape & 128;
    options->random_switches = how & 1;
    options->preset = tree_switches_presets[how / 2 % 7];
    options->cache_bytes = how & 16 ? 16384 : 1u << 20;
    options->lock_bytes = how & 32 ? 64 : 8192; /* locks that many nodes share */
    options->pool_bytes = 8u << 20;
    options->restarts = 1;
    if (how & 64)
        sim_faults_hostile(&options->faults);
    options->faults.lose = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    struct world_options options;
    struct world world;
    if (length > 2048)
        return 0;
    take_options(&input, &options);
    uint8_t death = fuzz_byte(&input), when = fuzz_byte(&input);
    if ((death & 28) == 4 && options.geometry.leaf_kind == FORMAT_LEAF_HASHED)
        options.geometry.leaf_kind = FORMAT_LEAF_DENSE;
    int status = world_create(&world, &options);
    unsigned tasks = options.compute_nodes * options.fibers;
    for (unsigned i = 0; i < TASKS_MAX; i++)
        programs[i] = (struct fuzz_input){0};
    for (unsigned i = 0; i < tasks; i++) {
        size_t from = input.length * i / tasks, to = input.length * (i + 1) / tasks;
        programs[i] = (struct fuzz_input){input.bytes + from, to - from};
    }
    if (!status && death & 1 && when)
        world_kill_at_effect(&world, 1, when * (1u + death / 32), 100000);
    if (!status && (death & 3) == 3)
        status = world_restart_at(&world, 1, 200000 + when * UINT64_C(1000));
    if (!status)
        status = world_run(&world, work);
    if (!status)
        status = world_run_one(&world, world_survivor(&world), read_all);
    if (!status)
        status = world_check(&world, NULL);
    if (!status)
        status = world_linearize(&world);
    fuzz_must(!status, "world: %d: %s", status, world.error.text);
    world_destroy(&world);
    return 0;
}
