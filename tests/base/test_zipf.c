/* test_zipf.c - the normalizing sum against the direct one, frequencies against probabilities, and the
 * scramble. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include "base/random.h"
#include "base/zipf.h"

static void check_sum(uint64_t items, double theta)
{
    struct zipf zipf;
    zipf_init(&zipf, items, theta);
    long double sum = 0;
    for (uint64_t i = items; i >= 1; i--)
        sum += powl((long double)i, -(long double)theta);
    assert_true(fabsl(zipf.zetan / sum - 1) < 1e-9L);
}

static void test_sum_is_accurate(void **state)
{
    (void)state;
    check_sum(1, 0.99);
    check_sum(2, 0.5);
    check_sum(1000, 0.99);
    check_sum(1000001, 0.99); /* one term beyond a round number */
    check_sum(2000000, 0.2);
}

/* Against the sum term by term, at both sides of where the formula begins, below, at and above theta 1, and
 * at both sides of a bound that is not 0. */
static void test_sums_are_exact(void **state)
{
    (void)state;
    static const double thetas[] = {0, 0.2, 0.5, 0.99, 1 - 1e-9, 1, 1 + 1e-9, 1.2, 2.5, ZIPF_THETA_MAX};
    static const uint64_t bounds[][2] = {{0, 1},     {0, 2},      {0, 127},       {0, 128},        {0, 129},
                                         {0, 1000},  {0, 200000}, {1, 200000},    {100, 130},      {127, 128},
                                         {128, 129}, {128, 400},  {5000, 200000}, {199999, 200000}};
    for (size_t t = 0; t < sizeof thetas / sizeof *thetas; t++)
        for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
            long double sum = 0;
            for (uint64_t i = bounds[b][1]; i > bounds[b][0]; i--)
                sum += powl((long double)i, -(long double)thetas[t]);
            long double ours = zipf_sum(bounds[b][0], bounds[b][1], thetas[t]);
            if (fabsl(ours / sum - 1) > 1e-12L)
                fail_msg("theta %.10g, %llu to %llu: %.17Lg instead of %.17Lg", thetas[t],
                         (unsigned long long)bounds[b][0], (unsigned long long)bounds[b][1], ours, sum);
        }
    assert_true(zipf_sum(7, 7, 0.99) == 0);
}

/* The shares of the hottest ten, one by one, and of the hottest thousand together, are those among many
 * items; what is left falls evenly on the rest. */
static void check_matched(uint64_t items, double theta, uint64_t of, uint64_t least)
{
    enum { DRAWS = 500000, FIRST = 10, TOP = 1000 };
    struct zipf zipf;
    struct random random;
    random_seed(&random, 11);
    zipf_init_matched(&zipf, items, theta, of);
    unsigned counts[FIRST] = {0}, top = 0, beyond = 0, middle = 0;
    uint64_t first = zipf.own < FIRST ? zipf.own : FIRST, top_bound = zipf.own < TOP ? zipf.own : TOP;
    uint64_t half = zipf.own + (items - zipf.own) / 2;
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t rank = zipf_next(&zipf, &random);
        assert_true(rank < items);
        if (rank < FIRST)
            counts[rank]++;
        top += rank < top_bound;
        beyond += rank >= zipf.own;
        middle += rank >= zipf.own && rank < half;
    }
    double zeta = zipf_sum(0, of, theta), chi = 0, left = DRAWS;
    assert_true(zipf.own >= least);
    for (unsigned i = 0; i < first; i++) {
        double expected = pow(i + 1, -theta) / zeta * DRAWS;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
        left -= expected;
        assert_true(fabs(zipf_probability(&zipf, i) * DRAWS / expected - 1) < 1e-9);
    }
    double others = DRAWS;
    for (unsigned i = 0; i < first; i++)
        others -= counts[i];
    chi += left > 1 ? (others - left) * (others - left) / left : 0;
    assert_true(chi < 29.6); /* 10 degrees of freedom, 0.1 % */
    double share = zipf_sum(0, top_bound, theta) / zeta;
    assert_true(fabs(top - share * DRAWS) <= 5 * sqrt(share * (1 - share) * DRAWS) + 1);
    double rest = zipf_sum(zipf.own, of, theta) / zeta;
    assert_true(fabs(beyond - rest * DRAWS) <= 5 * sqrt(rest * DRAWS) + 1);
    assert_true(fabs(middle - beyond / 2.0) <= 5 * sqrt(beyond) + 1);
    /* Nothing gets more than what is hotter, and it would with a greater bound. */
    if (zipf.own && zipf.own < items) {
        double each = rest / (double)(items - zipf.own);
        assert_true(each <= zipf_probability(&zipf, zipf.own - 1));
        double last = pow((double)zipf.own + 1, -theta) / zeta;
        assert_true(zipf.own + 1 == items || (rest - last) / (double)(items - zipf.own - 1) > last);
    }
}

static void test_matched_shares(void **state)
{
    (void)state;
    static const double thetas[] = {0.5, 0.99, 1, 1.3, ZIPF_THETA_MAX};
    for (size_t t = 0; t < sizeof thetas / sizeof *thetas; t++) {
        /* Flat and for many more, few keys are hotter than the average of those that are there. */
        check_matched(1000000, thetas[t], UINT64_C(1000000000), thetas[t] < 0.9 ? 100 : 1000);
        check_matched(1000000, thetas[t], 1000000, 1000000);
        check_matched(1000000, thetas[t], 1000001, 1000);
        check_matched(20000, thetas[t], ZIPF_OF_MAX, thetas[t] < 0.9 ? 0 : 100);
    }
}

/* Sherman's workloads draw from half as many keys again as are loaded: 5.4 % of the operations go to the
 * hottest with ten million loaded, 4.15 % with a billion. */
static void test_the_hottest_key(void **state)
{
    (void)state;
    struct zipf plain, matched;
    zipf_init(&plain, 15000000, 0.99);
    zipf_init_matched(&matched, 15000000, 0.99, UINT64_C(1500000000));
    assert_true(fabs(zipf_probability(&plain, 0) - 0.054) < 0.0005);
    assert_true(fabs(zipf_probability(&matched, 0) - 0.0415) < 0.00005);
    zipf_init_matched(&matched, 1, 0.99, UINT64_C(1000000000));
    struct random random;
    random_seed(&random, 1);
    assert_int_equal(zipf_next(&matched, &random), 0);
    assert_true(zipf_probability(&matched, 0) == 1);
}

/* Beyond what can be added up here: the sum grows by the integral's share, to first order 1/x^theta a
 * term. */
/* Steeper than YCSB's method can be: frequencies against probabilities. */
static void test_steep(void **state)
{
    (void)state;
    static const double thetas[] = {1, 1.2, 2.5, ZIPF_THETA_MAX};
    struct random random;
    random_seed(&random, 7);
    for (size_t t = 0; t < sizeof thetas / sizeof *thetas; t++)
        for (uint64_t items = 1; items <= 10000; items *= 100) {
            enum { DRAWS = 200000, LOOKED_AT = 8 };
            struct zipf zipf;
            unsigned counts[LOOKED_AT] = {0};
            zipf_init(&zipf, items, thetas[t]);
            for (unsigned i = 0; i < DRAWS; i++) {
                uint64_t rank = zipf_next(&zipf, &random);
                assert_true(rank < items);
                if (rank < LOOKED_AT)
                    counts[rank]++;
            }
            for (uint64_t rank = 0; rank < LOOKED_AT && rank < items; rank++) {
                double expected = zipf_probability(&zipf, rank) * DRAWS;
                assert_true(fabs(counts[rank] - expected) < 5 * sqrt(expected) + 1);
            }
        }
}

static void test_sum_of_very_many(void **state)
{
    (void)state;
    struct zipf small, large;
    zipf_init(&small, UINT64_C(1000000000), 0.99);
    zipf_init(&large, UINT64_C(1000001000), 0.99);
    double step = (large.zetan - small.zetan) / 1000, expected = pow(1e9, -0.99);
    assert_true(fabs(step / expected - 1) < 1e-3);
}

static void test_probabilities_add_up(void **state)
{
    (void)state;
    struct zipf zipf;
    zipf_init(&zipf, 5000, 0.9);
    double sum = 0;
    for (uint64_t rank = 0; rank < 5000; rank++)
        sum += zipf_probability(&zipf, rank);
    assert_true(fabs(sum - 1) < 1e-9);
}

static void test_small_and_uniform(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 4);
    for (uint64_t items = 1; items <= 4; items++) {
        unsigned counts[4] = {0};
        struct zipf zipf;
        zipf_init(&zipf, items, 0.99);
        for (int i = 0; i < 40000; i++) {
            uint64_t rank = zipf_next(&zipf, &random);
            assert_true(rank < items);
            counts[rank]++;
            assert_true(zipf_next_scrambled(&zipf, &random) < items);
        }
        assert_true(items == 1 || counts[1] > 0);
    }
    enum { CELLS = 51 };
    unsigned counts[CELLS] = {0};
    struct zipf uniform;
    zipf_init(&uniform, CELLS, 0);
    for (int i = 0; i < 510000; i++)
        counts[zipf_next(&uniform, &random)]++;
    double sum = 0;
    for (int i = 0; i < CELLS; i++)
        sum += (counts[i] - 10000.0) * (counts[i] - 10000.0) / 10000.0;
    assert_true(sum < 86.7); /* 50 degrees of freedom, 0.1 % */
}

/* The first two ranks are exact by construction; further down the method is an approximation, good to some
 * percent of the probability of a range. */
static void test_frequencies(void **state)
{
    (void)state;
    enum { ITEMS = 100000, DRAWS = 1000000 };
    struct zipf zipf;
    zipf_init(&zipf, ITEMS, 0.99);
    struct random random;
    random_seed(&random, 6);
    static unsigned counts[ITEMS];
    for (int i = 0; i < DRAWS; i++)
        counts[zipf_next(&zipf, &random)]++;
    for (uint64_t rank = 0; rank < 2; rank++) {
        double expected = DRAWS * zipf_probability(&zipf, rank);
        assert_true(fabs(counts[rank] - expected) < 4 * sqrt(expected));
    }
    for (uint64_t first = 2; first < ITEMS; first *= 4) {
        double expected = 0, drawn = 0;
        for (uint64_t rank = first; rank < 4 * first && rank < ITEMS; rank++) {
            expected += DRAWS * zipf_probability(&zipf, rank);
            drawn += counts[rank];
        }
        assert_true(fabs(drawn / expected - 1) < 0.15);
    }
}

/* FNV-1a, 64 bits, of eight zero bytes is a known constant: there the hottest rank goes. */
static void test_scramble(void **state)
{
    (void)state;
    enum { ITEMS = 1000, DRAWS = 200000 };
    struct zipf zipf;
    zipf_init(&zipf, ITEMS, 0.99);
    struct random random;
    random_seed(&random, 8);
    static unsigned counts[ITEMS];
    for (int i = 0; i < DRAWS; i++)
        counts[zipf_next_scrambled(&zipf, &random)]++;
    size_t hottest = 0, touched = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        touched += counts[i] > 0;
        if (counts[i] > counts[hottest])
            hottest = i;
    }
    assert_int_equal(hottest, UINT64_C(0xa8c7f832281a39c5) % ITEMS);
    assert_true(touched > ITEMS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_exact),
        cmocka_unit_test(test_matched_shares),
        cmocka_unit_test(test_the_hottest_key),
        cmocka_unit_test(test_sum_is_accurate),
        cmocka_unit_test(test_steep),
        cmocka_unit_test(test_sum_of_very_many),
        cmocka_unit_test(test_probabilities_add_up),
        cmocka_unit_test(test_small_and_uniform),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_scramble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
