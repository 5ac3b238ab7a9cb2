/* test_histogram.c - the bound on the error at every scale, quantiles, merging and walking. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/histogram.h"
#include "base/random.h"

static void check_one(struct histogram *histogram, uint64_t value)
{
    histogram_reset(histogram);
    histogram_record(histogram, value);
    histogram_record(histogram, UINT64_MAX); /* so that the largest value does not cap the step */
    uint64_t reported = histogram_quantile(histogram, 0.5);
    assert_true(reported >= value);
    assert_true(reported - value <= value / 64);
}

static void test_error_is_bounded_everywhere(void **state)
{
    (void)state;
    struct histogram *histogram = histogram_create();
    for (uint64_t value = 0; value < 1000; value++)
        check_one(histogram, value);
    for (int bit = 10; bit < 64; bit++) {
        uint64_t power = UINT64_C(1) << bit;
        check_one(histogram, power - 1);
        check_one(histogram, power);
        check_one(histogram, power + power / 64 - 1);
        check_one(histogram, power + power / 64);
        check_one(histogram, power + power / 3);
    }
    histogram_destroy(histogram);
}

static void test_empty(void **state)
{
    (void)state;
    struct histogram *histogram = histogram_create();
    assert_int_equal(histogram_count(histogram), 0);
    assert_int_equal(histogram_quantile(histogram, 0.5), 0);
    assert_int_equal(histogram_max(histogram), 0);
    assert_true(histogram_mean(histogram) < 1e-300);
    histogram_destroy(histogram);
}

static void test_quantiles(void **state)
{
    (void)state;
    struct histogram *histogram = histogram_create();
    for (uint64_t value = 100; value >= 1; value--)
        histogram_record(histogram, value);
    assert_int_equal(histogram_count(histogram), 100);
    assert_int_equal(histogram_quantile(histogram, 0), 1);
    assert_int_equal(histogram_quantile(histogram, 0.01), 1);
    assert_int_equal(histogram_quantile(histogram, 0.5), 50);
    assert_int_equal(histogram_quantile(histogram, 0.99), 99);
    assert_int_equal(histogram_quantile(histogram, 1), 100);
    assert_int_equal(histogram_max(histogram), 100);
    assert_true(histogram_mean(histogram) > 50.499 && histogram_mean(histogram) < 50.501);
    histogram_destroy(histogram);
}

struct walk {
    uint64_t count, last;
    int steps;
};

static void walk(void *context, uint64_t upper, uint64_t count)
{
    struct walk *walked = context;
    if (walked->steps)
        assert_true(upper > walked->last);
    assert_true(count > 0);
    walked->last = upper;
    walked->count += count;
    walked->steps++;
}

static void test_merge_equals_recording_all(void **state)
{
    (void)state;
    struct histogram *a = histogram_create(), *b = histogram_create(), *all = histogram_create();
    struct random random;
    random_seed(&random, 9);
    for (int i = 0; i < 10000; i++) {
        uint64_t value = random_next(&random) >> random_below(&random, 64);
        histogram_record(i % 3 ? a : b, value);
        histogram_record(all, value);
    }
    histogram_merge(a, b);
    assert_int_equal(histogram_count(a), 10000);
    assert_true(histogram_max(a) == histogram_max(all));
    for (int i = 0; i <= 1000; i++)
        assert_true(histogram_quantile(a, i / 1000.0) == histogram_quantile(all, i / 1000.0));
    double ratio = histogram_mean(a) / histogram_mean(all);
    assert_true(ratio > 1 - 1e-9 && ratio < 1 + 1e-9);
    struct walk walked = {0};
    histogram_each(a, walk, &walked);
    assert_int_equal(walked.count, 10000);
    assert_true(walked.steps > 1000);
    histogram_destroy(a);
    histogram_destroy(b);
    histogram_destroy(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_is_bounded_everywhere),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_merge_equals_recording_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
