/* test_ranks.c - ranks of random numbers, by vectors and number by number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/random.h"
#include "base/ranks.h"

static void test_plain(void **state)
{
    (void)state;
    const uint16_t numbers[] = {7, 0xffff, 0, 7, 0x8000, 0x7fff};
    const uint16_t expected[] = {1, 5, 0, 1, 4, 3};
    uint16_t ranks[6];
    ranks_plain(numbers, 6, ranks);
    assert_memory_equal(ranks, expected, sizeof expected);
}

static void test_forms_agree(void **state)
{
    (void)state;
#if RANKS_VECTORS
    struct random random;
    random_seed(&random, 11);
    for (unsigned round = 0; round < 20000; round++) {
        const uint32_t count = (uint32_t)(random_next(&random) % (RANKS_MAX + 1));
        const unsigned shift = (unsigned)(random_next(&random) % 16); /* few numbers: many are equal */
        uint16_t numbers[RANKS_MAX], ranks[RANKS_MAX], expected[RANKS_MAX];
        for (uint32_t i = 0; i < RANKS_MAX; i++)
            numbers[i] = (uint16_t)(random_next(&random) << shift >> (random_next(&random) % 2 ? shift : 0));
        ranks_plain(numbers, count, expected);
        ranks_find(numbers, count, ranks);
        assert_memory_equal(ranks, expected, count * sizeof *ranks);
    }
#else
    skip();
#endif
}

static void test_names_itself(void **state)
{
    (void)state;
    const char *name = ranks_implementation();
    assert_true(RANKS_VECTORS ? !strcmp(name, "avx2") || !strcmp(name, "vectors") : !strcmp(name, "none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_forms_agree),
        cmocka_unit_test(test_names_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
