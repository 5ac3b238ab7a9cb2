/* Keys as `banyan ranges` prints and reads them: every byte comes back, and nothing else is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cli/ranges.h"

static void test_round_trip(void **state)
{
    uint8_t key[FORMAT_KEY_MAX], back[FORMAT_KEY_MAX];
    char text[RANGES_KEY_TEXT];
    size_t length;
    (void)state;
    for (unsigned i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)(255 - i);
    for (size_t wanted = 0; wanted <= sizeof key; wanted += 5) {
        assert_int_equal(ranges_key_parse(ranges_key_format(key, wanted, text), back, &length, NULL), 0);
        assert_int_equal(length, wanted);
        assert_memory_equal(back, key, wanted);
        for (const char *at = text; *at; at++)
            assert_true(*at > ' ' && *at <= '~');
    }
    assert_string_equal(ranges_key_format("a\\ b\n", 5, text), "a\\\\\\x20b\\x0a");
    assert_int_equal(ranges_key_parse("\\xAf\\x0b", back, &length, NULL), 0);
    assert_int_equal(length, 2);
    assert_memory_equal(back, "\xaf\x0b", 2);
}

static void test_refused(void **state)
{
    static const char *const wrong[] = {"\\", "\\a", "\\x", "\\x1", "\\xg0", "\\x0g", "a\\X00"};
    uint8_t key[FORMAT_KEY_MAX];
    char text[FORMAT_KEY_MAX + 2];
    size_t length;
    struct error error = {0};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(ranges_key_parse(wrong[i], key, &length, &error), BANYAN_EINVAL);
    memset(text, 'k', sizeof text);
    text[FORMAT_KEY_MAX] = 0;
    assert_int_equal(ranges_key_parse(text, key, &length, &error), 0);
    text[FORMAT_KEY_MAX] = 'k';
    text[FORMAT_KEY_MAX + 1] = 0;
    assert_int_equal(ranges_key_parse(text, key, &length, &error), BANYAN_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("cli-ranges-key", tests, NULL, NULL);
}
