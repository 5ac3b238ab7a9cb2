/* test_options.c - every kind read, printed and refused; lists; sizes and counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/options.h"

struct settings {
    bool fast;
    uint32_t width;
    uint64_t bytes, any;
    double rate;
    int mode, pages;
};

static const char *const modes[] = {"local", "remote", NULL};
static const char *const beside[] = {"auto", "later", NULL};
static const struct option_entry table[] = {
    {"fast", OPTION_BOOL, offsetof(struct settings, fast), 0, 0, NULL, NULL, "go fast"},
    {"width", OPTION_U32, offsetof(struct settings, width), 1, 64, NULL, "slots", "how wide"},
    {"bytes", OPTION_U64, offsetof(struct settings, bytes), 1024, 1e12, NULL, "bytes", "how large"},
    {"any", OPTION_U64, offsetof(struct settings, any), 0, 0, NULL, NULL, "any number"},
    {"rate", OPTION_DOUBLE, offsetof(struct settings, rate), -1, 2.5, NULL, "ns", "how often"},
    {"mode", OPTION_CHOICE, offsetof(struct settings, mode), 0, 0, modes, NULL, "where"},
    {"pages", OPTION_SWITCH, offsetof(struct settings, pages), 0, 0, beside, NULL, "which"},
    {NULL, OPTION_END, 0, 0, 0, NULL, NULL, NULL},
};

static void accept(struct settings *settings, const char *name, const char *value)
{
    struct error error = {0};
    int code = option_set(table, settings, name, value, &error);
    if (code)
        fail_msg("%s=%s: %s", name, value, error.text);
}

static void refuse(const char *name, const char *value)
{
    struct settings settings, before;
    memset(&settings, 0, sizeof settings);
    before = settings;
    struct error error = {0};
    if (option_set(table, &settings, name, value, &error) != BANYAN_EINVAL)
        fail_msg("%s=%s was taken", name, value);
    assert_int_equal(error.code, BANYAN_EINVAL);
    assert_memory_equal(&settings, &before, sizeof settings);
    assert_non_null(strstr(error.text, name));
    if (!option_find(table, name))
        assert_non_null(strstr(error.text, "width")); /* what there is instead */
    else
        assert_non_null(strstr(error.text, value));
    assert_int_equal(option_set(table, &settings, name, value, NULL), BANYAN_EINVAL);
}

static void test_values_are_taken(void **state)
{
    (void)state;
    struct settings settings = {0};
    static const char *const on[] = {"on", "true", "yes", "1"}, *const off[] = {"off", "false", "no", "0"};
    for (int i = 0; i < 4; i++) {
        accept(&settings, "fast", on[i]);
        assert_true(settings.fast);
        accept(&settings, "fast", off[i]);
        assert_false(settings.fast);
        accept(&settings, "pages", on[i]);
        assert_int_equal(settings.pages, 1);
        accept(&settings, "pages", off[i]);
        assert_int_equal(settings.pages, 0);
    }
    accept(&settings, "pages", "auto");
    assert_int_equal(settings.pages, 2);
    accept(&settings, "pages", "later");
    assert_int_equal(settings.pages, 3);
    accept(&settings, "width", "1");
    accept(&settings, "width", "64");
    assert_int_equal(settings.width, 64);
    accept(&settings, "bytes", "8M");
    assert_int_equal(settings.bytes, 8 << 20);
    accept(&settings, "bytes", "64K");
    assert_int_equal(settings.bytes, 64 << 10);
    accept(&settings, "any", "9007199254740993"); /* more digits than a double has */
    assert_true(settings.any == UINT64_C(9007199254740993));
    accept(&settings, "any", "18446744073709551615");
    assert_true(settings.any == UINT64_MAX);
    accept(&settings, "rate", "-0.25");
    assert_true(settings.rate < -0.249 && settings.rate > -0.251);
    accept(&settings, "mode", "remote");
    assert_int_equal(settings.mode, 1);
}

static void test_nonsense_is_refused(void **state)
{
    (void)state;
    refuse("fast", "maybe");
    refuse("width", "0");
    refuse("width", "65");
    refuse("width", "-1");
    refuse("width", "4294967297"); /* 1 after cutting to 32 bits */
    refuse("width", "7x");
    refuse("bytes", "1023");
    refuse("bytes", "2T");
    refuse("any", "18446744073709551616");
    refuse("any", "-5");
    refuse("any", "99999999T");
    refuse("rate", "2.6");
    refuse("rate", "nan");
    refuse("rate", "inf");
    refuse("rate", "1 2");
    refuse("mode", "elsewhere");
    refuse("pages", "maybe");
    refuse("pages", "2");
    refuse("unheard-of", "1");
    struct settings settings = {0};
    for (const struct option_entry *entry = table; entry->kind != OPTION_END; entry++)
        assert_int_equal(option_set(table, &settings, entry->name, "", NULL), BANYAN_EINVAL);
}

static void test_messages_name_the_range(void **state)
{
    (void)state;
    struct settings settings = {0};
    struct error error;
    option_set(table, &settings, "width", "65", &error);
    assert_non_null(strstr(error.text, "1"));
    assert_non_null(strstr(error.text, "64"));
    assert_non_null(strstr(error.text, "slots"));
    option_set(table, &settings, "mode", "elsewhere", &error);
    assert_non_null(strstr(error.text, "local"));
    assert_non_null(strstr(error.text, "remote"));
}

static void test_lists(void **state)
{
    (void)state;
    struct settings settings = {0};
    struct error error = {0};
    assert_int_equal(option_set_list(table, &settings, "", &error), 0);
    assert_int_equal(option_set_list(table, &settings, "fast=on,width=7,mode=remote", &error), 0);
    assert_true(settings.fast && settings.width == 7 && settings.mode == 1);
    assert_int_equal(option_set_list(table, &settings, "width=9,fast", &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "fast"));
    assert_int_equal(option_set_list(table, &settings, "width=9,rate=17", &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "rate"));
}

/* What option_format prints, option_set reads back as the same value. */
static void test_format_and_set_agree(void **state)
{
    (void)state;
    static const double rates[] = {0, 0.1, 0.1 + 0.2, 1.0 / 3, -1, 2.5, 1e-300, 123456789e-9};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        struct settings from = {true, 33, UINT64_C(999999999999), UINT64_C(9007199254740993), rates[i], 1, 2},
                        to = {0};
        for (const struct option_entry *entry = table; entry->kind != OPTION_END; entry++) {
            char text[64];
            option_format(entry, &from, text, sizeof text);
            accept(&to, entry->name, text);
        }
        assert_true(to.fast == from.fast && to.width == from.width && to.bytes == from.bytes &&
                    to.any == from.any && to.mode == from.mode && to.pages == from.pages);
        assert_memory_equal(&to.rate, &from.rate, sizeof to.rate);
    }
}

static void test_whole_numbers_are_printed_in_full(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{80, "80"},
                 {0, "0"},
                 {-1, "-1"},
                 {100, "100"},
                 {-0.0, "-0"},
                 {2.5, "2.5"},
                 {1e12, "1000000000000"},
                 {1e300, "1e+300"},
                 {0.1, "0.1"}};
    const struct option_entry *rate = option_find(table, "rate");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings settings = {.rate = cases[i].value};
        char text[64];
        option_format(rate, &settings, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

static void test_sizes_and_counts(void **state)
{
    (void)state;
    uint64_t value = 0;
    assert_int_equal(option_parse_size("10M", &value, NULL), 0);
    assert_int_equal(value, 10 << 20);
    assert_int_equal(option_parse_size("3T", &value, NULL), 0);
    assert_true(value == UINT64_C(3) << 40);
    assert_int_equal(option_parse_count("10M", &value, NULL), 0);
    assert_int_equal(value, 10000000);
    assert_int_equal(option_parse_count("5k", &value, NULL), 0);
    assert_int_equal(value, 5000);
    assert_int_equal(option_parse_count("2g", &value, NULL), 0);
    assert_true(value == UINT64_C(2000000000));
    static const char *const bad[] = {"",
                                      "K",
                                      "0x10",
                                      " 5",
                                      "+5",
                                      "1e",
                                      "5-3",
                                      "1e30",
                                      "-1",
                                      "1X",
                                      "1KX",
                                      "99999999999999999999",
                                      "99999999999G"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct error error = {0};
        assert_int_equal(option_parse_size(bad[i], &value, &error), BANYAN_EINVAL);
        assert_non_null(strstr(error.text, bad[i]));
        assert_int_equal(option_parse_count(bad[i], &value, NULL), BANYAN_EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_taken),
        cmocka_unit_test(test_nonsense_is_refused),
        cmocka_unit_test(test_messages_name_the_range),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_format_and_set_agree),
        cmocka_unit_test(test_whole_numbers_are_printed_in_full),
        cmocka_unit_test(test_sizes_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
