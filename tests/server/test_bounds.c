/* test_bounds.c - ranges read out of the text of their bounds, compared with the definition, key by key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include "base/random.h"
#include "server/bounds.h"

static struct resp_argument text(const char *bytes)
{
    return (struct resp_argument){.bytes = bytes, .length = strlen(bytes)};
}

static enum bounds_verdict read_bounds(const char *low, const char *high, struct tree_range *range)
{
    struct resp_argument a = text(low), b = text(high);
    return bounds_read(&a, &b, range);
}

static void forms(void **state)
{
    struct tree_range range;
    static const char *const invalid[] = {"", "a", "*", "--", "++", "-a", "+a", " [a", "]a", "{a"};
    for (unsigned i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        assert_int_equal(read_bounds(invalid[i], "+", &range), BOUNDS_INVALID);
        assert_int_equal(read_bounds("-", invalid[i], &range), BOUNDS_INVALID);
        assert_int_equal(read_bounds("+", invalid[i], &range), BOUNDS_INVALID); /* empty, but for that */
    }
    assert_int_equal(read_bounds("-", "+", &range), BOUNDS_RANGE);
    assert_null(range.from);
    assert_null(range.to);
    assert_int_equal(read_bounds("[a", "(b", &range), BOUNDS_RANGE);
    assert_int_equal(range.from_length, 1);
    assert_memory_equal(range.from, "a", 1);
    assert_memory_equal(range.to, "b", 1);
    assert_false(range.from_open);
    assert_true(range.to_open);
    assert_int_equal(read_bounds("[", "+", &range), BOUNDS_RANGE);
    assert_null(range.from);
    assert_int_equal(read_bounds("(", "+", &range), BOUNDS_RANGE);
    assert_null(range.from);
    static const char *const empty[][2] = {{"+", "-"},   {"+", "+"},   {"-", "-"},   {"+", "[a"},
                                           {"[a", "-"},  {"-", "["},   {"-", "("},   {"[b", "[a"},
                                           {"(a", "[a"}, {"[a", "(a"}, {"(a", "(a"}, {"[ab", "[a"}};
    for (unsigned i = 0; i < sizeof empty / sizeof *empty; i++)
        assert_int_equal(read_bounds(empty[i][0], empty[i][1], &range), BOUNDS_EMPTY);
    assert_int_equal(read_bounds("[a", "[a", &range), BOUNDS_RANGE);
}

static int order(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int compared = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return compared ? compared : (a_length > b_length) - (a_length < b_length);
}

static bool in_range(const struct tree_range *range, const char *key, size_t length)
{
    int from = range->from ? order(key, length, range->from, range->from_length) : 1;
    int to = range->to ? order(key, length, range->to, range->to_length) : -1;
    return (from > 0 || (from == 0 && !range->from_open)) && (to < 0 || (to == 0 && !range->to_open));
}

static bool in_bounds(const struct resp_argument *low, const struct resp_argument *high, const char *key,
                      size_t length)
{
    int from = order(key, length, low->bytes + 1, low->length - 1);
    int to = order(key, length, high->bytes + 1, high->length - 1);
    return (from > 0 || (from == 0 && *low->bytes == '[')) && (to < 0 || (to == 0 && *high->bytes == '['));
}

/* Lengths on both sides of the longest key. */
static void long_bounds(void **state)
{
    struct random random;
    random_seed(&random, 3);
    unsigned inside = 0;
    for (unsigned round = 0; round < 200000; round++) {
        char low[300], high[300], key[255];
        struct resp_argument a = {low, 1 + 252 + random_below(&random, 6)};
        struct resp_argument b = {high, 1 + 252 + random_below(&random, 6)};
        size_t length = 252 + random_below(&random, 4);
        memset(low, 'm', sizeof low);
        memset(high, 'm', sizeof high);
        memset(key, 'm', sizeof key);
        low[0] = "[("[random_below(&random, 2)];
        high[0] = "[("[random_below(&random, 2)];
        if (random_chance(&random, 0.3))
            low[250 + random_below(&random, 8)] = (char)('l' + random_below(&random, 3));
        if (random_chance(&random, 0.3))
            high[250 + random_below(&random, 8)] = (char)('l' + random_below(&random, 3));
        if (random_chance(&random, 0.3))
            key[249 + random_below(&random, 6)] = (char)('l' + random_below(&random, 3));
        struct tree_range range;
        enum bounds_verdict verdict = bounds_read(&a, &b, &range);
        bool wanted = in_bounds(&a, &b, key, length);
        inside += wanted;
        assert_true(range.from_length <= STORE_KEY_MAX && range.to_length <= STORE_KEY_MAX);
        assert_int_equal(verdict == BOUNDS_RANGE && in_range(&range, key, length), wanted);
    }
    assert_in_range(inside, 2000, 198000);
}

static void beside(void **state)
{
    struct tree_range range;
    char key[300];
    memset(key, 'k', sizeof key);
    for (size_t length = 0; length < sizeof key; length++) {
        struct resp_argument argument = {key, length};
        assert_int_equal(bounds_beside(&argument, false, &range), BOUNDS_RANGE);
        assert_int_equal(range.limit, 1);
        assert_false(range.reverse);
        for (size_t other = 1; other <= 255; other++)
            assert_int_equal(in_range(&range, key, other), other > length);
        enum bounds_verdict verdict = bounds_beside(&argument, true, &range);
        assert_int_equal(verdict, length ? BOUNDS_RANGE : BOUNDS_EMPTY);
        assert_true(range.reverse);
        for (size_t other = 1; length && other <= 255; other++)
            assert_int_equal(in_range(&range, key, other), other < length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(long_bounds),
                                       cmocka_unit_test(beside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
