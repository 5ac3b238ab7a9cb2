/* test_random.c - reference outputs, ranges, and distributions by chi-square with fixed seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/random.h"

/* splitmix64 from seed 1234567, as its authors publish it; the state after seeding is its first four
 * outputs. */
static void test_seed_is_splitmix64(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 1234567);
    assert_true(random.state[0] == UINT64_C(6457827717110365317));
    assert_true(random.state[1] == UINT64_C(3203168211198807973));
    assert_true(random.state[2] == UINT64_C(9817491932198370423));
    assert_true(random.state[3] == UINT64_C(4593380528125082431));
}

/* xoshiro256** from state 1, 2, 3, 4: known first outputs. */
static void test_next_is_xoshiro(void **state)
{
    (void)state;
    struct random random = {{1, 2, 3, 4}};
    static const uint64_t expected[] = {11520, 0, 1509978240, 1215971899390074240};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_true(random_next(&random) == expected[i]);
}

static double chi_square(const unsigned *counts, unsigned cells, double expected)
{
    double sum = 0;
    for (unsigned i = 0; i < cells; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return sum;
}

static void test_below_is_uniform(void **state)
{
    (void)state;
    enum { CELLS = 101, DRAWS = 1010000 };
    unsigned counts[CELLS] = {0};
    struct random random;
    random_seed(&random, 1);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t value = random_below(&random, CELLS);
        assert_true(value < CELLS);
        counts[value]++;
    }
    /* 100 degrees of freedom: 0.1 % lie above 149.4, 0.1 % below 61.9. */
    double sum = chi_square(counts, CELLS, (double)DRAWS / CELLS);
    assert_true(sum > 61.9 && sum < 149.4);
}

/* With bound 3 * 2^62 a plain modulo would hit the lowest third twice as often. */
static void test_below_has_no_bias_at_large_bounds(void **state)
{
    (void)state;
    enum { DRAWS = 300000 };
    const uint64_t third = UINT64_C(1) << 62;
    unsigned counts[3] = {0};
    struct random random;
    random_seed(&random, 2);
    for (int i = 0; i < DRAWS; i++)
        counts[random_below(&random, 3 * third) / third]++;
    assert_true(chi_square(counts, 3, DRAWS / 3.0) < 13.8); /* 2 degrees, 0.1 % */
}

static void test_edges(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 0);
    for (int i = 0; i < 1000; i++) {
        assert_true(random_below(&random, 1) == 0);
        double unit = random_unit(&random);
        assert_true(unit >= 0 && unit < 1);
        assert_false(random_chance(&random, 0));
        assert_true(random_chance(&random, 1));
    }
}

static void test_chance(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 3);
    int hits = 0;
    for (int i = 0; i < 100000; i++)
        hits += random_chance(&random, 0.25);
    assert_in_range(hits, 25000 - 550, 25000 + 550); /* 4 standard deviations */
}

static void test_mix_spreads(void **state)
{
    (void)state;
    /* One flipped input bit flips half of the output bits on average. */
    uint64_t flipped = 0;
    for (uint64_t i = 1; i <= 1000; i++)
        for (int bit = 0; bit < 64; bit++)
            flipped += (uint64_t)__builtin_popcountll(random_mix(i) ^ random_mix(i ^ UINT64_C(1) << bit));
    double mean = (double)flipped / 64000;
    assert_true(mean > 31.9 && mean < 32.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed_is_splitmix64),
        cmocka_unit_test(test_next_is_xoshiro),
        cmocka_unit_test(test_below_is_uniform),
        cmocka_unit_test(test_below_has_no_bias_at_large_bounds),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_chance),
        cmocka_unit_test(test_mix_spreads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
