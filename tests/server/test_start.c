/*
 * test_start.c - a server whose threads cannot all be started: server_start says so, the threads that run
 * end, and server_destroy frees what was made for all of them (the sanitizer of the build sees what is left).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "failing.h"
#include "serving.h"

static void threads_that_do_not_start(void **state)
{
    enum { THREADS = 4 };
    (void)state;
    for (unsigned first = 1; first <= THREADS; first++) {
        struct serving serving;
        struct error error = {0};
        serving_prepare(&serving, THREADS);
        serving_create(&serving);
        failing_begin(&(struct failing_order){
            .calls = FAILING_THREAD, .where = FAILING_HERE, .first = first, .error = EAGAIN});
        int status = server_start(serving.server, &error);
        assert_int_equal(failing_end(), 1);
        assert_true(status < 0 && error.text[0]);
        serving_end(&serving);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_that_do_not_start)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
