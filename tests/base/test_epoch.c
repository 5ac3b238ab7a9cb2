/* test_epoch.c - when callbacks run and when they must not, and readers racing a reclaiming writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <stdbool.h>
#include "base/atomic.h"
#include "base/epoch.h"
#include "base/random.h"
#include "base/task.h"
#include "base/thread.h"

static void count(void *object, void *context)
{
    (void)object;
    (*(unsigned *)context)++;
}

static void retire_many(struct epoch_slot *slot, unsigned number, unsigned *freed)
{
    for (unsigned i = 0; i < number; i++)
        epoch_retire(slot, count, NULL, freed);
}

static void test_destroy_runs_everything(void **state)
{
    (void)state;
    struct epoch_domain *domain = epoch_domain_create();
    struct epoch_slot *slot = epoch_slot_acquire(domain);
    unsigned freed = 0;
    retire_many(slot, 1000, &freed);
    epoch_domain_destroy(domain);
    assert_int_equal(freed, 1000);
}

/* Without readers the backlog stays small: memory is bounded. */
static void test_backlog_is_bounded(void **state)
{
    (void)state;
    struct epoch_domain *domain = epoch_domain_create();
    struct epoch_slot *slot = epoch_slot_acquire(domain);
    unsigned freed = 0;
    for (unsigned i = 1; i <= 10000; i++) {
        epoch_enter(slot);
        epoch_retire(slot, count, NULL, &freed);
        epoch_leave(slot);
        assert_true(i - freed <= 512);
    }
    epoch_domain_destroy(domain);
    assert_int_equal(freed, 10000);
}

static void test_reader_holds_back_what_it_may_see(void **state)
{
    (void)state;
    struct epoch_domain *domain = epoch_domain_create();
    struct epoch_slot *reader = epoch_slot_acquire(domain), *writer = epoch_slot_acquire(domain);
    unsigned freed = 0;
    epoch_enter(reader);
    epoch_enter(reader); /* nests */
    retire_many(writer, 1000, &freed);
    assert_int_equal(freed, 0);
    epoch_leave(reader);
    retire_many(writer, 1000, &freed);
    assert_int_equal(freed, 0);
    epoch_leave(reader);
    retire_many(writer, 1000, &freed);
    assert_true(freed >= 2000);
    epoch_domain_destroy(domain);
    assert_int_equal(freed, 3000);
}

static void test_own_section_holds_back_too(void **state)
{
    (void)state;
    struct epoch_domain *domain = epoch_domain_create();
    struct epoch_slot *slot = epoch_slot_acquire(domain);
    unsigned freed = 0;
    epoch_enter(slot);
    retire_many(slot, 1000, &freed);
    assert_int_equal(freed, 0);
    epoch_leave(slot);
    epoch_domain_destroy(domain);
    assert_int_equal(freed, 1000);
}

static void test_released_slots_lose_nothing(void **state)
{
    (void)state;
    struct epoch_domain *domain = epoch_domain_create();
    unsigned freed = 0;
    for (int i = 0; i < 100; i++) {
        struct epoch_slot *slot = epoch_slot_acquire(domain);
        assert_non_null(slot);
        retire_many(slot, 10, &freed);
        epoch_slot_release(slot);
    }
    epoch_domain_destroy(domain);
    assert_int_equal(freed, 1000);
}

struct chain {
    struct epoch_slot *slot;
    unsigned freed, left;
};

static void free_and_retire(void *object, void *context)
{
    (void)object;
    struct chain *chain = context;
    chain->freed++;
    if (chain->left) {
        chain->left--;
        epoch_retire(chain->slot, free_and_retire, NULL, chain);
    }
}

/* A callback may retire what hung on its object: each runs once, none is lost. */
static void test_callback_may_retire(void **state)
{
    (void)state;
    struct epoch_domain *domain = epoch_domain_create();
    struct chain chain = {.slot = epoch_slot_acquire(domain), .left = 5000};
    for (int i = 0; i < 1000; i++)
        epoch_retire(chain.slot, free_and_retire, NULL, &chain);
    epoch_domain_destroy(domain);
    assert_int_equal(chain.freed, 6000);
    assert_int_equal(chain.left, 0);
}

enum { CELLS = 8, READERS = 3, CHANGES = 20000 };
#define ALIVE UINT64_C(0x600dc0de600dc0de)
#define DEAD  UINT64_C(0xdeaddeaddeaddead)

struct object {
    uint64_t mark;
};

struct stress {
    struct epoch_domain *domain;
    struct object *cells[CELLS];
    uint32_t stop, started;
    uint64_t bad;
    uint64_t freed; /* the writer's */
};

static void object_free(void *pointer, void *context)
{
    struct object *object = pointer;
    struct stress *stress = context;
    /* Marked first: a reader that still comes sees it even without a sanitizer. */
    atomic_store_relaxed(&object->mark, DEAD);
    stress->freed++;
    free(object);
}

static void read_on(void *argument)
{
    struct stress *stress = argument;
    struct epoch_slot *slot = epoch_slot_acquire(stress->domain);
    struct random random;
    random_seed(&random, (uint64_t)(uintptr_t)slot);
    atomic_add_relaxed(&stress->started, 1u);
    while (!atomic_load_acquire(&stress->stop)) {
        epoch_enter(slot);
        struct object *object = atomic_load_acquire(&stress->cells[random_below(&random, CELLS)]);
        for (int i = 0; i < 20; i++)
            if (atomic_load_relaxed(&object->mark) != ALIVE)
                atomic_add_relaxed(&stress->bad, 1u);
        epoch_leave(slot);
    }
    epoch_slot_release(slot);
}

static struct object *object_make(void)
{
    struct object *object = malloc(sizeof *object);
    assert_non_null(object);
    object->mark = ALIVE;
    return object;
}

static void test_freed_memory_is_never_seen(void **state)
{
    (void)state;
    struct stress stress = {.domain = epoch_domain_create()};
    struct epoch_slot *slot = epoch_slot_acquire(stress.domain);
    struct thread *threads[READERS];
    struct error error;
    for (int i = 0; i < CELLS; i++)
        stress.cells[i] = object_make();
    for (int i = 0; i < READERS; i++)
        assert_int_equal(thread_start(&threads[i], read_on, &stress, &error), 0);
    while (atomic_load_acquire(&stress.started) < READERS)
        task_yield();
    /* And until some have been freed while they read, not only at the end: on a busy machine that takes
     * longer. */
    unsigned i = 0;
    for (; i < CHANGES || !stress.freed; i++) {
        struct object *old = stress.cells[i % CELLS];
        atomic_store_release(&stress.cells[i % CELLS], object_make());
        epoch_retire(slot, object_free, old, &stress);
        if (i % 64 == 0)
            task_yield(); /* readers must get a turn where there are few CPUs */
    }
    atomic_store_release(&stress.stop, 1u);
    for (int reader = 0; reader < READERS; reader++)
        thread_join(threads[reader]);
    assert_int_equal(stress.bad, 0);
    epoch_domain_destroy(stress.domain);
    assert_int_equal(stress.freed, i);
    for (int cell = 0; cell < CELLS; cell++)
        free(stress.cells[cell]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destroy_runs_everything),
        cmocka_unit_test(test_backlog_is_bounded),
        cmocka_unit_test(test_reader_holds_back_what_it_may_see),
        cmocka_unit_test(test_own_section_holds_back_too),
        cmocka_unit_test(test_released_slots_lose_nothing),
        cmocka_unit_test(test_callback_may_retire),
        cmocka_unit_test(test_freed_memory_is_never_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
