/* test_task.c - the task of a plain thread: identity, permits, and handing a turn back and forth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>
#include "base/atomic.h"
#include "base/task.h"
#include "base/thread.h"

static void test_self_is_stable_and_own(void **state)
{
    (void)state;
    struct task *self = task_self();
    assert_non_null(self);
    assert_ptr_equal(self, task_self());
    struct task other = {self->ops};
    task_set_self(&other);
    assert_ptr_equal(task_self(), &other);
    task_set_self(NULL);
    assert_ptr_equal(task_self(), self);
}

static void test_permit_is_stored_once(void **state)
{
    (void)state;
    task_unpark(task_self());
    task_unpark(task_self());
    task_park(); /* returns, or the test hangs */
}

static void test_time_and_sleep(void **state)
{
    (void)state;
    uint64_t before = task_now();
    task_sleep(2000000);
    uint64_t after = task_now();
    assert_true(after - before >= 2000000);
    task_yield();
    task_charge(TASK_WORK_OPERATION, 1);
    assert_true(task_now() >= after);
}

enum { TURNS = 5000 };

struct table {
    struct task *players[2];
    uint32_t turn; /* whose; the release/acquire pair carries `plain` */
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
    atomic_store_release(&table->players[seat->number], task_self());
    struct task *other;
    while (!(other = atomic_load_acquire(&table->players[1 - seat->number])))
        task_yield();
    for (int i = 0; i < TURNS; i++) {
        while (atomic_load_acquire(&table->turn) != seat->number)
            task_park();
        table->plain++;
        atomic_store_release(&table->turn, 1 - seat->number);
        task_unpark(other);
    }
    /* Both stay until the other is done with this one's task. */
    atomic_store_release(&table->players[seat->number], NULL);
    while (atomic_load_acquire(&table->players[1 - seat->number]))
        task_yield();
}

static void test_no_wake_up_is_lost(void **state)
{
    (void)state;
    struct table table = {0};
    struct seat seats[2] = {{&table, 0}, {&table, 1}};
    struct thread *threads[2];
    struct error error;
    for (int i = 0; i < 2; i++)
        assert_int_equal(thread_start(&threads[i], play, &seats[i], &error), 0);
    for (int i = 0; i < 2; i++)
        thread_join(threads[i]);
    assert_int_equal(table.plain, 2 * TURNS);
}

static void tell_task(void *argument)
{
    *(struct task **)argument = task_self();
}

/* A waker may be that late: the thread saw its condition without having to park, and ended. */
static void test_unpark_after_the_thread_ended(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct task *task = NULL;
        struct thread *thread;
        struct error error;
        assert_int_equal(thread_start(&thread, tell_task, &task, &error), 0);
        thread_join(thread);
        assert_non_null(task);
        task_unpark(task);
    }
}

static void lower(void *argument)
{
    int *values = argument;
    values[0] = getpriority(PRIO_PROCESS, 0);
    values[1] = thread_lower(5) ? -1 : getpriority(PRIO_PROCESS, 0);
    values[2] = thread_lower(100) ? -1 : getpriority(PRIO_PROCESS, 0);
}

/* A thread that stands back does so alone. */
static void test_lower(void **state)
{
    const int before = getpriority(PRIO_PROCESS, 0);
    int values[3] = {0};
    struct thread *thread;
    struct error error = {0};
    (void)state;
    assert_int_equal(thread_start(&thread, lower, values, &error), 0);
    thread_join(thread);
    assert_int_equal(values[0], before);
    assert_int_equal(values[1], before < 14 ? before + 5 : 19);
    assert_int_equal(values[2], 19);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self_is_stable_and_own), cmocka_unit_test(test_permit_is_stored_once),
        cmocka_unit_test(test_time_and_sleep),         cmocka_unit_test(test_lower),
        cmocka_unit_test(test_no_wake_up_is_lost),     cmocka_unit_test(test_unpark_after_the_thread_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
