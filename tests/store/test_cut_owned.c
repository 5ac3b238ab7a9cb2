/*
 * test_cut_owned.c - B7: what was read of a cut is given out only if the process had the range all the time,
 * under one epoch. The range moves away while a call reads, also one that reads to the end, and comes back.
 * One thread.
 */
#include "logged_store.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/cut.h"

#define KEYS 20u

/* What becomes of the range while the cut is read. */
enum event { STAYS, MOVES, COMES_BACK };

struct reading {
    struct processes processes;
    struct logged_store side;
    enum event event;
    unsigned entries;
};

static bool entry_take(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct reading *reading = context;
    struct process *process = reading->side.process;
    (void)key, (void)key_length;
    assert_int_equal(value->length, 5);
    if (++reading->entries != KEYS / 2 || reading->event == STAYS)
        return true;
    if (reading->event == COMES_BACK)
        process_own(&reading->processes, process); /* under another epoch */
    else
        process_moving(&reading->processes, process);
    return true;
}

static void open_all(struct reading *reading)
{
    const struct memory_options memory = {.pool_bytes = 64 << 20, .log_bytes = 16 << 20};
    processes_open_as(&reading->processes, 1, &memory);
    logged_store_open(&reading->side, &reading->processes, "cuts", 1);
    for (unsigned i = 0; i < KEYS; i++) {
        char key[16];
        const int length = snprintf(key, sizeof key, "key-%02u", i);
        process_check(reading->side.process,
                      store_put(reading->side.records, key, (size_t)length, "value", 5, 0));
    }
}

static void the_range_is_asked_for_behind_the_reading(void **state)
{
    struct reading reading = {.event = *(const enum event *)*state};
    const struct tree_range all = {.from = NULL};
    struct store_cut *cut;
    bool ended;
    open_all(&reading);
    struct store_session *session = reading.side.records;
    process_check(reading.side.process, store_cut_open_owned(session, &all, &cut));
    const int status = store_cut_next(session, cut, 2 * KEYS, 1 << 20, entry_take, &reading, &ended);
    assert_int_equal(status, reading.event == STAYS ? 0 : BANYAN_EFENCED);
    assert_int_equal(ended, reading.event == STAYS);
    assert_true(reading.entries >= KEYS / 2);
    if (reading.event != STAYS) /* and it stays so */
        assert_int_equal(store_cut_next(session, cut, 1, 1, entry_take, &reading, &ended), BANYAN_EFENCED);
    store_cut_close(cut);
    if (reading.event == MOVES)
        process_own(&reading.processes, reading.side.process);
    logged_store_close(&reading.side);
    processes_close(&reading.processes);
}

int main(void)
{
    static enum event stays = STAYS, moves = MOVES, comes_back = COMES_BACK;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(the_range_is_asked_for_behind_the_reading, &stays),
        cmocka_unit_test_prestate(the_range_is_asked_for_behind_the_reading, &moves),
        cmocka_unit_test_prestate(the_range_is_asked_for_behind_the_reading, &comes_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
