/* test_ledger.c - what a key may hold when a run with a failure is over (bench/ledger.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/error.h"
#include "bench/ledger.h"
#include "bench/workloads.h"

#define SLOTS 6u

static struct ledger *create(void)
{
    struct ledger *ledger = NULL;
    struct error error = {0};
    assert_int_equal(ledger_create(&ledger, SLOTS, &error), 0);
    return ledger;
}

static bool allows(const struct ledger *ledger, uint64_t slot, uint64_t salt, size_t length)
{
    uint8_t value[64];
    workload_value(slot, salt, value, length);
    return ledger_allows(ledger, slot, value, length);
}

static void a_replaced_value_is_a_loss(void **state)
{
    (void)state;
    static const size_t lengths[] = {8, 12, 64};
    for (size_t i = 0; i < 3; i++) {
        struct ledger *ledger = create();
        assert_true(allows(ledger, 2, 0, lengths[i])); /* as it was loaded */
        uint64_t first = ledger_begin(ledger), second = ledger_begin(ledger);
        ledger_acknowledge(ledger, first, 2, 10, 20);
        assert_true(allows(ledger, 2, first, lengths[i]));
        assert_false(allows(ledger, 2, 0, lengths[i]));
        assert_true(allows(ledger, 3, 0, lengths[i])); /* another key */
        ledger_acknowledge(ledger, second, 2, 21, 30);
        assert_true(allows(ledger, 2, second, lengths[i]));
        assert_false(allows(ledger, 2, first, lengths[i]));
        ledger_destroy(ledger);
    }
}

static void writes_that_overlap_have_no_order(void **state)
{
    (void)state;
    struct ledger *ledger = create();
    uint64_t first = ledger_begin(ledger), second = ledger_begin(ledger), last = ledger_begin(ledger);
    ledger_acknowledge(ledger, second, 0, 15, 18); /* within the first */
    ledger_acknowledge(ledger, first, 0, 10, 20);
    assert_true(allows(ledger, 0, first, 8) && allows(ledger, 0, second, 8));
    ledger_acknowledge(ledger, last, 0, 19, 40); /* behind the second, not the first */
    assert_true(allows(ledger, 0, first, 8) && allows(ledger, 0, last, 8));
    assert_false(allows(ledger, 0, second, 8));
    ledger_destroy(ledger);
}

/* It may have been made at any time since it began. */
static void a_write_without_an_answer_may_stand(void **state)
{
    (void)state;
    struct ledger *ledger = create();
    uint64_t unknown = ledger_begin(ledger), again = ledger_begin(ledger);
    assert_true(allows(ledger, 5, unknown, 8) && allows(ledger, 5, 0, 8));
    ledger_acknowledge(ledger, again, 5, 100, 110);
    assert_true(allows(ledger, 5, unknown, 8) && allows(ledger, 5, again, 8));
    assert_false(allows(ledger, 5, 0, 8));
    ledger_destroy(ledger);
}

static void what_was_never_written_is_refused(void **state)
{
    (void)state;
    struct ledger *ledger = create();
    const uint64_t salt = UINT64_C(0x0000000900000009);
    assert_false(allows(ledger, 1, salt, 8));
    assert_false(allows(ledger, SLOTS, 0, 8));
    assert_false(allows(ledger, 1, 0, 7));
    for (unsigned i = 0; i < 10000; i++) /* it grows */
        assert_true(ledger_begin(ledger) > 0);
    assert_true(allows(ledger, 1, salt, 8));
    ledger_destroy(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replaced_value_is_a_loss),
        cmocka_unit_test(writes_that_overlap_have_no_order),
        cmocka_unit_test(a_write_without_an_answer_may_stand),
        cmocka_unit_test(what_was_never_written_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
