/* test_bell.c - rings that are kept, and a turn that two threads hand to each other by bells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/bell.h"
#include "base/thread.h"

static void test_rings_are_kept_as_one(void **state)
{
    struct bell bell = {.rung = false};
    (void)state;
    assert_false(bell_take(&bell));
    bell_ring(&bell);
    bell_ring(&bell);
    assert_true(bell_take(&bell));
    assert_false(bell_take(&bell));
    bell_ring(&bell);
    bell_wait(&bell); /* returns, or the test hangs */
    assert_false(bell_take(&bell));
}

enum { TURNS = 5000 };

struct table {
    struct bell bells[2];
    uint32_t turn; /* atomic: whose */
    uint64_t plain;
};

struct seat {
    struct table *table;
    unsigned number;
};

static void play(void *argument)
{
    struct seat *seat = argument;
    struct table *table = seat->table;
    for (int i = 0; i < TURNS; i++) {
        while (atomic_load_acquire(&table->turn) != seat->number) /* acquire: with `plain` */
            bell_wait(&table->bells[seat->number]);
        table->plain++;
        atomic_store_release(&table->turn, 1 - seat->number);
        bell_ring(&table->bells[1 - seat->number]);
    }
}

static void test_no_ring_is_lost(void **state)
{
    struct table table = {.turn = 0};
    struct seat seats[2] = {{&table, 0}, {&table, 1}};
    struct thread *threads[2];
    struct error error;
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(thread_start(&threads[i], play, &seats[i], &error), 0);
    for (int i = 0; i < 2; i++)
        thread_join(threads[i]);
    assert_int_equal(table.plain, 2 * TURNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rings_are_kept_as_one),
                                       cmocka_unit_test(test_no_ring_is_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
