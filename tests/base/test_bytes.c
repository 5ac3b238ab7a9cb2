/* test_bytes.c - short copies and comparisons, at all short lengths and places: no byte too few or too many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/bytes.h"

#define LENGTH_MAX 40u

/* Both ends of the source are the ends of its memory, which the sanitizer watches. */
static void copies(void **state)
{
    (void)state;
    for (size_t length = 0; length <= LENGTH_MAX; length++) {
        unsigned char *from = malloc(length ? length : 1), to[LENGTH_MAX + 2], expected[LENGTH_MAX + 2];
        assert_non_null(from);
        for (size_t i = 0; i < length; i++)
            from[i] = (unsigned char)(i * 5 + 1);
        memset(to, 0xee, sizeof to);
        memcpy(expected, to, sizeof to);
        memcpy(expected + 1, from, length);
        bytes_copy(to + 1, from, length);
        assert_memory_equal(to, expected, sizeof to);
        free(from);
    }
}

/* Any byte that differs counts, and none behind the end. */
static void comparisons(void **state)
{
    (void)state;
    for (size_t length = 0; length <= LENGTH_MAX; length++) {
        unsigned char *left = malloc(length ? length : 1), right[LENGTH_MAX + 1] = {0};
        assert_non_null(left);
        for (size_t i = 0; i < length; i++)
            left[i] = right[i] = (unsigned char)(i * 7 + 3);
        assert_true(bytes_equal(left, right, length));
        for (size_t i = 0; i < length; i++) {
            right[i] ^= 0x10;
            assert_false(bytes_equal(left, right, length));
            right[i] ^= 0x10;
        }
        free(left);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies), cmocka_unit_test(comparisons)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
