/* test_fiber.c - switching, nesting, floating-point state, many fibers, dropping them, and the guard page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fenv.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fiber.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static void count_to_three(void *argument)
{
    int *value = argument;
    for (int i = 1; i <= 3; i++) {
        *value = i;
        assert_non_null(fiber_current());
        fiber_suspend();
    }
    *value = 4;
}

static void test_resume_and_suspend(void **state)
{
    (void)state;
    int value = 0;
    struct fiber *fiber = fiber_create(count_to_three, &value, 0);
    assert_non_null(fiber);
    assert_null(fiber_current());
    for (int i = 1; i <= 3; i++) {
        assert_true(fiber_resume(fiber));
        assert_int_equal(value, i);
        assert_null(fiber_current());
    }
    assert_false(fiber_resume(fiber));
    assert_int_equal(value, 4);
    fiber_destroy(fiber);
}

struct nest {
    int depth, visits;
    struct fiber *self;
};

static void nest(void *argument)
{
    struct nest *outer = argument;
    outer->visits++;
    if (outer->depth == 0)
        return;
    struct nest inner = {.depth = outer->depth - 1};
    inner.self = fiber_create(nest, &inner, 0);
    fiber_suspend();
    while (fiber_resume(inner.self)) {
        assert_ptr_equal(fiber_current(), outer->self);
        fiber_suspend();
    }
    outer->visits += inner.visits;
    fiber_destroy(inner.self);
}

static void test_fibers_resume_fibers(void **state)
{
    (void)state;
    struct nest outer = {.depth = 10};
    outer.self = fiber_create(nest, &outer, 0);
    int resumes = 0;
    while (fiber_resume(outer.self))
        resumes++;
    assert_int_equal(outer.visits, 11);
    assert_int_equal(resumes, 10); /* every level suspends once, all the way out */
    fiber_destroy(outer.self);
}

static void use_stack(int levels)
{
    volatile unsigned char bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(levels + (int)i);
    if (levels > 0)
        use_stack(levels - 1);
    else
        fiber_suspend();
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], (unsigned char)(levels + (int)i));
}

static void go_deep(void *argument)
{
    use_stack(*(int *)argument);
}

static void test_deep_stacks_survive(void **state)
{
    (void)state;
    int levels = 200;
    struct fiber *fibers[4];
    for (int i = 0; i < 4; i++) {
        fibers[i] = fiber_create(go_deep, &levels, 4u << 20);
        assert_true(fiber_resume(fibers[i]));
    }
    for (int i = 3; i >= 0; i--) {
        assert_false(fiber_resume(fibers[i]));
        fiber_destroy(fibers[i]);
    }
}

static void sum_fractions(void *argument)
{
    double *result = argument;
    double a = 0, b = 1, c = 2, d = 3;
    for (int i = 1; i <= 100; i++) {
        a += 1.0 / i;
        b *= 1.01;
        c -= 0.5 / i;
        d = d / 1.001 + a;
        fiber_suspend();
    }
    *result = a + b + c + d;
}

static double sum_fractions_at_once(void)
{
    double a = 0, b = 1, c = 2, d = 3;
    for (int i = 1; i <= 100; i++) {
        a += 1.0 / i;
        b *= 1.01;
        c -= 0.5 / i;
        d = d / 1.001 + a;
    }
    return a + b + c + d;
}

static void test_floating_point_survives(void **state)
{
    (void)state;
    double results[3] = {0}, expected = sum_fractions_at_once();
    struct fiber *fibers[3];
    for (int i = 0; i < 3; i++)
        fibers[i] = fiber_create(sum_fractions, &results[i], 0);
    int live = 3;
    while (live) {
        live = 0;
        for (int i = 0; i < 3; i++)
            if (!(results[i] > 0))
                live += fiber_resume(fibers[i]);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(results[i] > expected - 1e-9 && results[i] < expected + 1e-9);
        fiber_destroy(fibers[i]);
    }
}

static void round_upward(void *argument)
{
    int *mode = argument;
    fesetround(FE_UPWARD);
    fiber_suspend();
    *mode = fegetround();
}

/* The rounding mode belongs to the fiber that set it. */
static void test_rounding_mode_is_each_ones_own(void **state)
{
    (void)state;
    int mode = -1, before = fegetround();
    struct fiber *fiber = fiber_create(round_upward, &mode, 0);
    fiber_resume(fiber);
    int between = fegetround();
    fesetround(FE_TOWARDZERO);
    fiber_resume(fiber);
    int after = fegetround();
    fesetround(before);
    fiber_destroy(fiber);
    assert_int_equal(between, before);
    assert_int_equal(mode, FE_UPWARD);
    assert_int_equal(after, FE_TOWARDZERO);
}

static void add_twice(void *argument)
{
    ++*(int *)argument;
    fiber_suspend();
    ++*(int *)argument;
}

static void test_many_fibers(void **state)
{
    (void)state;
    /* ThreadSanitizer knows a few thousand threads and fibers at most. */
    const int number = SANITIZED ? 1000 : 10000;
    struct fiber **fibers = calloc((size_t)number, sizeof(struct fiber *));
    int sum = 0;
    for (int i = 0; i < number; i++) {
        fibers[i] = fiber_create(add_twice, &sum, 0);
        assert_non_null(fibers[i]);
    }
    for (int i = 0; i < number; i++)
        assert_true(fiber_resume(fibers[i]));
    assert_int_equal(sum, number);
    for (int i = 0; i < number; i++)
        assert_false(fiber_resume(fibers[i]));
    assert_int_equal(sum, 2 * number);
    for (int i = 0; i < number; i++)
        fiber_destroy(fibers[i]);
    free(fibers);
}

static void suspend_with_frames(void *argument)
{
    volatile char bytes[2000];
    memset((void *)(uintptr_t)bytes, 1, sizeof bytes);
    *(const volatile char **)argument = bytes;
    for (;;)
        fiber_suspend();
}

static long peak_kilobytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Fibers that never ran and fibers in the middle of their work; the next owner of the memory may use all of
 * it. */
static void test_destroy_while_suspended(void **state)
{
    (void)state;
    const volatile char *seen = NULL;
    long before = 0;
    for (int round = 0; round < 2000; round++) {
        struct fiber *fresh = fiber_create(suspend_with_frames, &seen, 0);
        fiber_destroy(fresh);
        struct fiber *fiber = fiber_create(suspend_with_frames, &seen, 0);
        assert_true(fiber_resume(fiber));
        assert_true(fiber_resume(fiber));
        assert_non_null(seen);
        fiber_destroy(fiber);
        if (round == 100)
            before = peak_kilobytes();
    }
    assert_true(peak_kilobytes() - before < 20000);
}

static void fall_through(void *argument)
{
    volatile char bytes[512];
    bytes[0] = 1;
    if (bytes[0]) /* always, but the compiler cannot know */
        fall_through(argument);
    bytes[1] = bytes[0];
}

static void overflow_in_child(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGSEGV, SIG_DFL);
    struct fiber *fiber = fiber_create(fall_through, NULL, 16384);
    fiber_resume(fiber);
    _exit(0);
}

static void test_overflow_hits_the_guard(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        overflow_in_child();
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_and_suspend),
        cmocka_unit_test(test_fibers_resume_fibers),
        cmocka_unit_test(test_deep_stacks_survive),
        cmocka_unit_test(test_floating_point_survives),
        cmocka_unit_test(test_rounding_mode_is_each_ones_own),
        cmocka_unit_test(test_many_fibers),
        cmocka_unit_test(test_destroy_while_suspended),
        cmocka_unit_test(test_overflow_hits_the_guard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
