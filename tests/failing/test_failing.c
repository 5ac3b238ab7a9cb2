/* test_failing.c - the shim itself: what is ordered fails, on the threads and calls that were meant. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "banyan.h"
#include "base/error.h"
#include "base/histogram.h"
#include "base/thread.h"
#include "failing.h"

static void test_counts(void **none)
{
    struct failing_order order = {.calls = FAILING_MEMORY, .first = 2, .count = 2, .error = ENOMEM};
    void *volatile blocks[4];
    failing_begin(&order);
    for (unsigned i = 0; i < 4; i++) {
        errno = 0;
        blocks[i] = malloc(8);
        assert_int_equal(blocks[i] == NULL, i == 1 || i == 2);
        assert_int_equal(errno, blocks[i] == NULL ? ENOMEM : 0);
    }
    assert_int_equal(failing_met(), 2);
    assert_int_equal(failing_end(), 2);
    for (unsigned i = 0; i < 4; i++)
        free(blocks[i]);

    order.count = 0; /* for good */
    failing_begin(&order);
    for (unsigned i = 0; i < 4; i++)
        blocks[i] = calloc(1, 8);
    assert_int_equal(failing_end(), 3);
    free(blocks[0]);
    void *volatile again = malloc(8);
    assert_non_null(again);
    free(again);
}

/* The product's libraries are met too. */
static void test_in_libraries(void **none)
{
    failing_begin(&(struct failing_order){.calls = FAILING_MEMORY, .error = ENOMEM});
    struct histogram *histogram = histogram_create();
    assert_int_equal(failing_end(), 1);
    assert_null(histogram);
}

static void ask_elsewhere(void *argument)
{
    *(long *)argument = syscall(SYS_getppid);
}

static long from_thread(void)
{
    struct thread *thread;
    long answer = 0;
    assert_int_equal(thread_start(&thread, ask_elsewhere, &answer, NULL), BANYAN_OK);
    thread_join(thread);
    return answer;
}

static void test_threads_and_details(void **none)
{
    struct failing_order order = {
        .calls = FAILING_SYSCALL, .where = FAILING_HERE, .detail = SYS_getppid, .error = EPERM};
    failing_begin(&order);
    assert_int_equal(syscall(SYS_getppid), -1);
    assert_int_equal(syscall(SYS_getpid), getpid());
    assert_int_equal(from_thread(), getppid());
    assert_int_equal(failing_end(), 1);
    order.where = FAILING_ELSEWHERE;
    failing_begin(&order);
    assert_int_equal(syscall(SYS_getppid), getppid());
    assert_int_equal(from_thread(), -1);
    assert_int_equal(failing_end(), 1);
}

static void test_short(void **none)
{
    char bytes[8] = "";
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    failing_begin(&(struct failing_order){.calls = FAILING_SEND | FAILING_RECV, .bytes = 3});
    assert_int_equal(send(pair[0], "abcdef", 6, 0), 3);
    assert_int_equal(send(pair[0], "def", 2, 0), 2);
    assert_int_equal(recv(pair[1], bytes, sizeof bytes, 0), 3);
    assert_int_equal(failing_end(), 3);
    assert_int_equal(recv(pair[1], bytes + 3, 5, 0), 2);
    assert_string_equal(bytes, "abcde");
    close(pair[0]);
    close(pair[1]);
}

/* Needs two blocks, and can do without a third. */
static int attempt(void *context)
{
    unsigned *attempts = context;
    void *volatile first = malloc(8), *volatile second = malloc(8), *volatile third = malloc(8);
    int status = first != NULL && second != NULL ? BANYAN_OK : BANYAN_ENOMEM;
    free(first);
    free(second);
    free(third);
    ++*attempts;
    return status;
}

static void test_each(void **none)
{
    unsigned attempts = 0;
    assert_int_equal(
        failing_each(&(struct failing_order){.calls = FAILING_MEMORY, .count = 1, .error = ENOMEM}, attempt,
                     &attempts, BANYAN_ENOMEM),
        2);
    assert_int_equal(attempts, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_in_libraries),
        cmocka_unit_test(test_threads_and_details),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_each),
    };
    return cmocka_run_group_tests_name("failing", tests, NULL, NULL);
}
