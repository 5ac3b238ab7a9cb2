/* test_error.c - codes, messages that are cut or wrapped, and a sentence for every code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/error.h"

static void test_set_fills_and_returns(void **state)
{
    (void)state;
    struct error error = {0};
    assert_int_equal(error_set(&error, BANYAN_ENET, "node %d: %s", 7, "gone"), BANYAN_ENET);
    assert_int_equal(error.code, BANYAN_ENET);
    assert_string_equal(error.text, "node 7: gone");
    error_clear(&error);
    assert_int_equal(error.code, BANYAN_OK);
    assert_string_equal(error.text, "");
}

static void test_null_is_allowed(void **state)
{
    (void)state;
    assert_int_equal(error_set(NULL, BANYAN_EBUSY, "%s", "x"), BANYAN_EBUSY);
}

static void test_long_message_is_cut(void **state)
{
    (void)state;
    char text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct error error;
    memset(&error, 0x55, sizeof error);
    error_set(&error, BANYAN_EINVAL, "%s", text);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_memory_equal(error.text, text, sizeof error.text - 1);
}

static void test_every_code_has_its_own_name(void **state)
{
    (void)state;
    for (int a = BANYAN_EVERSION; a <= BANYAN_OK; a++) {
        assert_non_null(error_name(a));
        for (int b = BANYAN_EVERSION; b < a; b++)
            assert_string_not_equal(error_name(a), error_name(b));
    }
    assert_non_null(error_name(12345));
    assert_non_null(error_name(-12345));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_fills_and_returns),
        cmocka_unit_test(test_null_is_allowed),
        cmocka_unit_test(test_long_message_is_cut),
        cmocka_unit_test(test_every_code_has_its_own_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
