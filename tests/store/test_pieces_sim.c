/*
 * test_pieces_sim.c - parts of values on a simulated cluster: tasks of several compute nodes write, read and
 * change cells of a few long values, append to another, and change expiries, on a hostile network; then
 * compute nodes die at any moment, or connections are lost. Each cell is a register that must be
 * linearizable; each read of the log is a prefix of its end that has all that was appended before; every
 * block of the pool has one owner.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "simulated.h"

#define VALUES    3u
#define CELLS     5u
#define ENTRY     600u /* bytes of an entry of the log: its number, and others that follow from it */
#define NOTES_MAX 20000u

/* Of each value: whole pieces between the cells, some of them zeros without a block; one block; a slot. */
static const uint64_t strides[VALUES] = {39000, 1500, 3};

static uint64_t cell_offset(uint64_t value, uint64_t cell)
{
    return value == 2 ? 0 : cell * strides[value];
}

static uint64_t cells_of(uint64_t value)
{
    return value == 2 ? 1 : CELLS;
}

/* What one operation on the log did. */
struct note {
    uint64_t begin, end; /* end 0: it was never answered */
    uint64_t number;     /* appended; 0: it is a read */
    uint64_t count, sum; /* read: so many entries, of whose numbers this is the sum */
    int status;
};

struct work {
    unsigned rounds;
    struct note *notes; /* of all tasks */
    uint32_t noted;     /* the simulator has one thread */
    uint64_t numbers;
    uint8_t *rooms; /* ENTRY for each task */
};

static struct work *work_of(struct world_task *task)
{
    return stores_of(task)->context;
}

static size_t key_make(uint64_t value, char *key)
{
    return (size_t)sprintf(key, "value%" PRIu64 "%s", value,
                           value == 1 ? "-of-a-longer-name-than-16-bytes" : "");
}

/* As in test_sim.c: an operation that was not done leaves the history, one of unknown outcome stays open. */
static bool conclude(struct world_task *task, size_t place, int status, uint64_t result, const char *what)
{
    struct world *world = task->world;
    if (status == BANYAN_ENET && world_lossy(world)) {
        history_drop(&task->log, place);
        task_sleep(2000);
        return false;
    }
    if (status == BANYAN_EUNKNOWN && world_lossy(world))
        return false;
    if (status && status != BANYAN_ENOTFOUND) {
        world_fail(world, status, "%s: %d: %s", what, status, tree_session_error(task->session)->text);
        return false;
    }
    history_end(&task->log, place, status, result);
    return true;
}

/* ---- cells ---- */

static uint64_t register_of(uint64_t value, uint64_t cell)
{
    return value * 16 + cell;
}

static void do_write(struct world_task *task, uint64_t value, uint64_t cell)
{
    char key[80];
    size_t length = key_make(value, key);
    uint64_t number = history_value(&task->world->history), whole;
    size_t place = history_begin(&task->log, HISTORY_PUT, register_of(value, cell), number, 0);
    int status =
        store_splice(stores_session(task), key, length, cell_offset(value, cell), &number, 8, &whole);
    conclude(task, place, status, 0, "write");
}

static struct store_part chosen(void *context, uint64_t whole)
{
    return *(const struct store_part *)context;
}

/* What a cell holds: 0 is nothing. */
static uint64_t cell_number(const uint8_t *bytes, uint64_t length)
{
    uint64_t number = 0;
    memcpy(&number, bytes, length < 8 ? length : 8);
    return number;
}

static void do_read(struct world_task *task, uint64_t value, uint64_t cell)
{
    char key[80];
    struct store_part part = {cell_offset(value, cell), 8};
    struct store_value got;
    size_t length = key_make(value, key);
    size_t place = history_begin(&task->log, HISTORY_GET, register_of(value, cell), 0, 0);
    int status = store_get_part(stores_session(task), key, length, chosen, &part, &got);
    uint64_t number = status ? 0 : cell_number(got.bytes, got.length);
    conclude(task, place, !status && !number ? BANYAN_ENOTFOUND : status, number, "read");
}

static void do_read_all(struct world_task *task, uint64_t value)
{
    char key[80];
    struct store_value got;
    size_t places[CELLS], length = key_make(value, key);
    for (uint64_t cell = 0; cell < cells_of(value); cell++)
        places[cell] = history_begin(&task->log, HISTORY_GET, register_of(value, cell), 0, 0);
    int status = store_get(stores_session(task), key, length, &got);
    for (uint64_t cell = 0; cell < cells_of(value); cell++) {
        uint64_t at = cell_offset(value, cell);
        uint64_t number = status || at >= got.length ? 0 : cell_number(got.bytes + at, got.length - at);
        conclude(task, places[cell], !status && !number ? BANYAN_ENOTFOUND : status, number, "read of all");
    }
}

struct swap {
    uint64_t offset, seen, number;
};

static enum store_verdict swap_aim(void *context, bool existed, uint64_t whole, struct store_edit *edit)
{
    const struct swap *swap = context;
    *edit = (struct store_edit){.offset = swap->offset, .length = 8};
    return STORE_PUT;
}

static enum store_verdict swap_change(void *context, const struct store_edit *edit, uint8_t *bytes)
{
    struct swap *swap = context;
    swap->seen = cell_number(bytes, 8);
    memcpy(bytes, &swap->number, 8);
    return STORE_PUT;
}

static void do_swap(struct world_task *task, uint64_t value, uint64_t cell)
{
    char key[80];
    struct swap swap = {.offset = cell_offset(value, cell), .number = history_value(&task->world->history)};
    const struct store_editor editor = {swap_aim, swap_change, &swap};
    size_t length = key_make(value, key);
    uint64_t whole;
    size_t place = history_begin(&task->log, HISTORY_MODIFY, register_of(value, cell), swap.number, 0);
    int status = store_edit(stores_session(task), key, length, &editor, &whole, NULL);
    conclude(task, place, status, swap.seen, "swap");
}

/* The value stays: the history does not change. */
static enum store_verdict expiry_change(void *context, const struct store_value *old, struct store_value *new)
{
    if (!old)
        return STORE_KEEP;
    new->expires = old->expires ? 0 : UINT64_C(1) << 42;
    return STORE_PUT;
}

static void do_expiry(struct world_task *task, uint64_t value)
{
    char key[80];
    size_t length = key_make(value, key);
    int status =
        store_modify(stores_session(task), key, length, STORE_NEED_LENGTH, expiry_change, NULL, NULL, NULL);
    if (status && !(world_lossy(task->world) && (status == BANYAN_ENET || status == BANYAN_EUNKNOWN)))
        world_fail(task->world, status, "expiry: %d: %s", status, tree_session_error(task->session)->text);
}

/* ---- the log ---- */

static struct note *note_begin(struct world_task *task, uint64_t number)
{
    struct work *work = work_of(task);
    assert_true(work->noted < NOTES_MAX);
    struct note *note = &work->notes[work->noted++];
    *note = (struct note){.begin = task_now(), .number = number};
    return note;
}

static void note_end(struct world_task *task, struct note *note, int status)
{
    bool lossy = world_lossy(task->world);
    note->status = status;
    if (status == BANYAN_EUNKNOWN && lossy)
        return;
    note->end = task_now();
    if (status && !(status == BANYAN_ENET && lossy) && !(status == BANYAN_ENOTFOUND && !note->number))
        world_fail(task->world, status, "log: %d: %s", status, tree_session_error(task->session)->text);
}

static void do_append(struct world_task *task)
{
    struct work *work = work_of(task);
    uint8_t *bytes = work->rooms + task->number * ENTRY;
    uint64_t number = ++work->numbers, whole;
    memcpy(bytes, &number, 8);
    stores_fill(number, bytes + 8, ENTRY - 8);
    struct note *note = note_begin(task, number);
    note_end(task, note, store_splice(stores_session(task), "log", 3, STORE_AT_END, bytes, ENTRY, &whole));
}

static void do_read_log(struct world_task *task)
{
    struct store_value got;
    struct note *note = note_begin(task, 0);
    int status = store_get(stores_session(task), "log", 3, &got);
    for (uint64_t at = 0; !status && at < got.length; at += ENTRY, note->count++) {
        uint64_t number = cell_number(got.bytes + at, 8);
        if (got.length - at < ENTRY || !stores_filled(number, got.bytes + at + 8, ENTRY - 8))
            world_fail(task->world, BANYAN_ECORRUPT, "log: entry %" PRIu64 " is torn", note->count);
        note->sum += random_mix(number);
    }
    note_end(task, note, status);
}

static void note_fail(struct world *world, const struct note *note, const char *what)
{
    world_fail(world, BANYAN_ECORRUPT,
               "log: %s (number %" PRIu64 ", count %" PRIu64 ", from %" PRIu64 " to %" PRIu64 ")", what,
               note->number, note->count, note->begin, note->end);
}

/* Each append stands in the log once, if it was done; what ended before another began stands before it; each
 * read saw a prefix, with all that had ended before it, and nothing that began after it. */
static void log_judge(struct world_task *task)
{
    struct work *work = work_of(task);
    struct world *world = task->world;
    struct store_value got = {.length = 0};
    uint64_t *place = calloc(work->numbers + 1, sizeof *place);
    int status = store_get(stores_session(task), "log", 3, &got);
    const uint64_t count = got.length / ENTRY;
    uint64_t *sums = calloc(count + 1, sizeof *sums), *began = calloc(count + 1, sizeof *began);
    assert_true(place && sums && began);
    if (status && status != BANYAN_ENOTFOUND)
        world_fail(world, status, "log: the last read: %d", status);
    for (uint64_t i = 0; i < count && !world->error.code; i++) {
        uint64_t number = cell_number(got.bytes + i * ENTRY, 8);
        if (!number || number > work->numbers || place[number] ||
            !stores_filled(number, got.bytes + i * ENTRY + 8, ENTRY - 8))
            world_fail(world, BANYAN_ECORRUPT, "log: entry %" PRIu64 " is another's, or there twice", i);
        else
            place[number] = i + 1;
        sums[i + 1] = sums[i] + random_mix(number);
    }
    for (uint32_t i = 0; i < work->noted && !world->error.code; i++) {
        const struct note *note = &work->notes[i];
        if (note->number && place[note->number])
            began[place[note->number] - 1] = note->begin;
        if (note->number && note->end && !note->status != (place[note->number] != 0))
            note_fail(world, note, "an append that was done is missing, or one that failed is there");
        if (!note->number && note->end && !note->status &&
            (note->count > count || note->sum != sums[note->count]))
            note_fail(world, note, "a read was no prefix");
    }
    /* The latest begin among the first entries: whatever ended before it must stand among them. */
    uint64_t latest = 0;
    for (uint64_t i = 0; i < count; i++) {
        latest = began[i] > latest ? began[i] : latest;
        began[i] = latest;
    }
    for (uint32_t i = 0; i < work->noted && !world->error.code; i++) {
        const struct note *note = &work->notes[i];
        if (!note->end || note->status)
            continue;
        uint64_t before = note->number ? place[note->number] - 1 : note->count;
        if (before && began[before - 1] > note->end)
            note_fail(world, note, "what began later stands before it");
    }
    for (uint32_t i = 0; i < work->noted && !world->error.code; i++)
        for (uint32_t j = 0; j < work->noted && !work->notes[i].number; j++) {
            const struct note *read = &work->notes[i], *append = &work->notes[j];
            if (append->number && append->end && !append->status && append->end < read->begin && read->end &&
                !read->status && place[append->number] > read->count)
                note_fail(world, read, "an append that had ended was not seen");
        }
    free(place);
    free(sums);
    free(began);
}

/* ---- worlds ---- */

static void work(struct world_task *task)
{
    for (unsigned i = 0; i < work_of(task)->rounds && !task->world->error.code; i++) {
        uint64_t value = random_below(&task->random, VALUES), kind = random_below(&task->random, 100),
                 cell = random_below(&task->random, cells_of(value));
        if (kind < 25)
            do_write(task, value, cell);
        else if (kind < 45)
            do_read(task, value, cell);
        else if (kind < 55)
            do_read_all(task, value);
        else if (kind < 70)
            do_swap(task, value, cell);
        else if (kind < 75)
            do_expiry(task, value);
        else if (kind < 92)
            do_append(task);
        else
            do_read_log(task);
    }
}

static void last_reads(struct world_task *task)
{
    for (uint64_t value = 0; value < VALUES; value++)
        for (uint64_t cell = 0; cell < cells_of(value); cell++)
            do_read(task, value, cell);
    log_judge(task);
}

static struct simulated_total total;

static void options_for(struct world_options *options, uint64_t seed)
{
    struct random random;
    random_seed(&random, seed ^ UINT64_C(0x91ece5));
    simulated_options(options, &random, seed);
    if (random_chance(&random, 0.5))
        options->params.atomic_write = 4096;
}

enum fault { NO_FAULT, DEATHS, LOSSES };

static void run_world(uint64_t seed, enum fault fault)
{
    struct stores stores;
    struct world_options options;
    struct store_check_report report = {0};
    options_for(&options, seed);
    if (fault == LOSSES)
        simulated_options_losses(&options, seed);
    int status = stores_create(&stores, &options);
    struct world *world = &stores.world;
    struct work plan = {.rounds = 60,
                        .notes = calloc(NOTES_MAX, sizeof *plan.notes),
                        .rooms = calloc(world->task_count + 1, ENTRY)};
    assert_true(plan.notes && plan.rooms);
    stores.context = &plan;
    if (!status && fault == DEATHS)
        status = simulated_kill(world, seed);
    if (!status)
        status = fault == LOSSES ? simulated_run_losses(world, work, &total) : world_run(world, work);
    status = status ? status : world_run_one(world, world_survivor(world), last_reads);
    status = status ? status : stores_check(&stores, &report);
    status = status ? status : world_linearize(world);
    if (!status && fault == NO_FAULT && world->lost_bytes)
        status = world_fail(world, BANYAN_ECORRUPT, "%" PRIu64 " bytes are lost", world->lost_bytes);
    if (!status)
        simulated_count(&total, &stores);
    total.entries += plan.numbers;
    struct error error = world->error;
    stores_destroy(&stores);
    free(plan.notes);
    free(plan.rooms);
    if (status)
        fail_msg("fault %d: %d: %s; replay: BANYAN_SEED=%" PRIu64 " test_pieces_sim", fault, status,
                 error.text, seed);
}

static void linearizable(void **state)
{
    for (unsigned round = 0; round < world_rounds(40); round++)
        run_world(world_seed(100 + round), NO_FAULT);
    for (unsigned round = 0; round < world_rounds(3); round++)
        run_world(world_fresh_seed() + round, NO_FAULT);
}

static void survives_deaths(void **state)
{
    for (unsigned round = 0; round < world_rounds(80); round++)
        run_world(world_seed(1000 + round), DEATHS);
    for (unsigned round = 0; round < world_rounds(3); round++)
        run_world(world_fresh_seed() + 1000 + round, DEATHS);
}

static void survives_losses(void **state)
{
    for (unsigned round = 0; round < world_rounds(80); round++)
        run_world(world_seed(2000 + round), LOSSES);
}

static void did_something(void **state)
{
    printf("runs %" PRIu64 ", records written %" PRIu64 ", freed %" PRIu64 ", retries %" PRIu64
           ", entries %" PRIu64 ", deaths %" PRIu64 ", losses %" PRIu64 ", bytes lost %" PRIu64 "\n",
           total.runs, total.written, total.freed, total.retries, total.entries, total.deaths, total.losses,
           total.lost_bytes);
    if (getenv("BANYAN_SEED") || world_rounds(100) < 100)
        return;
    assert_true(total.written > 50 * total.runs && total.retries > total.runs / 4);
    assert_true(total.deaths > 20 && total.losses > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linearizable),
        cmocka_unit_test(survives_deaths),
        cmocka_unit_test(survives_losses),
        cmocka_unit_test(did_something),
    };
    return cmocka_run_group_tests_name("store_pieces_sim", tests, NULL, NULL);
}
