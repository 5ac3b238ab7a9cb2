/* test_glob.c - patterns against texts; and no pattern takes exponential time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "server/glob.h"

static bool match(const char *pattern, const char *text, bool any_case)
{
    return glob_match_once(pattern, strlen(pattern), text, strlen(text), any_case);
}
#define YES(pattern, text) assert_true(match(pattern, text, false))
#define NO(pattern, text)  assert_false(match(pattern, text, false))

static void examples(void **state)
{
    YES("*", "");
    YES("*", "anything");
    YES("", "");
    NO("", "a");
    NO("a", "");
    YES("abc", "abc");
    NO("abc", "ab");
    NO("ab", "abc");
    YES("a?c", "abc");
    NO("a?c", "ac");
    YES("a*c", "ac");
    YES("a*c", "abbbc");
    NO("a*c", "abbb");
    YES("a**c", "abc");
    YES("*b*", "abc");
    YES("*a*b*a*", "xxaxxbxxaxx");
    NO("*a*b*a*", "xxaxxbxx");
    YES("*.c", "a.c.c");
    YES("h[ae]llo", "hello");
    NO("h[ae]llo", "hillo");
    YES("h[^e]llo", "hallo");
    NO("h[^e]llo", "hello");
    YES("h[a-c]llo", "hbllo");
    NO("h[a-c]llo", "hdllo");
    YES("h[c-a]llo", "hbllo");
    YES("\\*", "*");
    NO("\\*", "a");
    YES("a\\", "a\\");
    YES("[\\]]", "]");
    YES("[\\-a]", "-");
    YES("[a-", "a");
    YES("[a-", "-");
    YES("[abc", "b");
    NO("[", "[");
    NO("[]", "]");
    YES("[^]", "x");
    YES("[^", "x");
    YES("[a-]x", "]"); /* the range from a to ], and x */
    YES("[*?]", "?");
    NO("[*?]", "a");
    YES("[\x80-\xff]", "\xc3");
    NO("ABC", "abc");
}

static void cases(void **state)
{
    assert_true(match("ABC", "abc", true));
    assert_true(match("a[B-D]e", "aCE", true));
    assert_true(match("a[b-d]e", "aCe", true));
    assert_false(match("[^a]", "A", true));
    assert_false(match("[^A]", "a", true));
    assert_true(match("[^a]", "B", true));
    assert_true(match("MAX*", "maxmemory", true));
}

static void binary(void **state)
{
    assert_true(glob_match_once("a\0*", 3, "a\0b", 3, false));
    assert_false(glob_match_once("a\0*", 3, "ab", 2, false));
    assert_true(glob_match_once("[\0]", 3, "\0", 1, false));
    assert_true(glob_match_once("?", 1, "\0", 1, false));
}

static void prefixes(void **state)
{
    static const struct {
        const char *pattern, *prefix;
        bool whole;
    } table[] = {{"abc*", "abc", false}, {"abc", "abc", true}, {"*", "", false},     {"a\\*b?", "a*b", false},
                 {"[ab]c", "", false},   {"", "", true},       {"a[b]c", "a", false}};
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
        struct glob *glob = glob_create(table[i].pattern, strlen(table[i].pattern), false);
        uint8_t prefix[GLOB_SINGLES_MAX];
        bool whole;
        assert_non_null(glob);
        assert_int_equal(glob_prefix(glob, prefix, &whole), strlen(table[i].prefix));
        assert_memory_equal(prefix, table[i].prefix, strlen(table[i].prefix));
        assert_int_equal(whole, table[i].whole);
        assert_int_equal(glob_matches_all(glob), strcmp(table[i].pattern, "*") == 0);
        glob_destroy(glob);
    }
}

/* Each of these would take plain recursion practically forever. */
static void hostile(void **state)
{
    char pattern[4096] = "", text[256];
    memset(text, 'a', 255);
    for (unsigned i = 0; i < 100; i++)
        strcat(pattern, "a*");
    strcat(pattern, "b");
    for (unsigned i = 0; i < 1000; i++)
        assert_false(glob_match_once(pattern, strlen(pattern), text, 255, false));
    for (unsigned i = 0; i < 200; i++)
        memcpy(pattern + 20 * i, "*[a-zaaaaaaaaaaaaaa]", 20);
    assert_true(glob_match_once(pattern, 4000, text, 255, false));
    assert_false(glob_match_once(pattern, 4000, text, 199, false));
    /* Longer than any text. */
    size_t long_bytes = 8u << 20;
    char *long_pattern = malloc(long_bytes);
    assert_non_null(long_pattern);
    memset(long_pattern, '?', long_bytes);
    assert_false(glob_match_once(long_pattern, long_bytes, text, 255, false));
    memset(long_pattern, '*', long_bytes);
    assert_true(glob_match_once(long_pattern, long_bytes, text, 255, false));
    memset(long_pattern, 'a', long_bytes);
    long_pattern[0] = '[';
    assert_true(glob_match_once(long_pattern, long_bytes, text, 1, false));
    free(long_pattern);
}

/* Compares with the definition, written as plain recursion. */
static bool slow(const char *pattern, const char *text)
{
    if (*pattern == '*')
        return slow(pattern + 1, text) || (*text && slow(pattern, text + 1));
    if (!*pattern)
        return !*text;
    return *text && (*pattern == '?' || *pattern == *text) && slow(pattern + 1, text + 1);
}

static void random_patterns(void **state)
{
    struct random random;
    random_seed(&random, 7);
    unsigned matched = 0;
    for (unsigned round = 0; round < 100000; round++) {
        char pattern[9] = "", text[13] = "";
        for (uint64_t i = random_below(&random, sizeof pattern); i > 0; i--)
            pattern[i - 1] = "ab*?*"[random_below(&random, 5)];
        for (uint64_t i = random_below(&random, sizeof text); i > 0; i--)
            text[i - 1] = "ab"[random_below(&random, 2)];
        bool wanted = slow(pattern, text);
        matched += wanted;
        if (match(pattern, text, false) != wanted)
            fail_msg("'%s' against '%s'", pattern, text);
    }
    assert_in_range(matched, 1000, 99000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples), cmocka_unit_test(cases),   cmocka_unit_test(binary),
        cmocka_unit_test(prefixes), cmocka_unit_test(hostile), cmocka_unit_test(random_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
