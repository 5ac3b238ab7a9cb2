/* test_places.c - the table of places (persist/places.h): keys of one word and of several, against a list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/random.h"
#include "persist/places.h"

#define ITEMS 5000u

struct item {
    uint64_t key[3], value, other;
};

/* Keys that differ in one word alone, the first of which is never 0. */
static void key_draw(struct random *random, uint64_t key[3])
{
    key[0] = 1 + random_below(random, 10);
    key[1] = random_below(random, 40);
    key[2] = random_below(random, 40);
}

static uint32_t number_of(const uint64_t key[3], uint32_t words)
{
    uint32_t number = (uint32_t)key[0];
    for (uint32_t i = 1; i < words; i++)
        number = number * 40 + (uint32_t)key[i];
    return number;
}

static void run(uint32_t words)
{
    static uint64_t known[11 * 40 * 40];
    struct places places = {.key_bytes = 8 * words, .item_bytes = sizeof(struct item)};
    struct random random;
    uint64_t count = 0, met = 0, at = 0;
    const struct item *item;
    memset(known, 0, sizeof known);
    random_seed(&random, words);
    for (uint32_t i = 1; i <= ITEMS; i++) {
        uint64_t key[3];
        key_draw(&random, key);
        uint64_t *value = &known[number_of(key, words)];
        struct item *found = places_find(&places, key);
        assert_int_equal(found != NULL, *value != 0);
        if (found)
            assert_int_equal(found->value, *value);
        struct item *put = places_put(&places, key);
        assert_non_null(put);
        assert_memory_equal(put->key, key, 8 * words);
        assert_int_equal(put->value, *value);
        assert_int_equal(put->other, 0);
        count += !*value;
        put->value = *value = i;
        assert_int_equal(places.count, count);
        assert_true(3 * places.count <= 2 * places.capacity);
    }
    while ((item = places_next(&places, &at))) {
        assert_int_equal(item->value, known[number_of(item->key, words)]);
        met++;
    }
    assert_int_equal(met, count);
    places_clear(&places);
    assert_null(places_find(&places, &(uint64_t[3]){1, 0, 0}));
    assert_int_equal(places.count, 0);
}

static void against_a_list(void **state)
{
    (void)state;
    for (uint32_t words = 1; words <= 3; words++)
        run(words);
}

/* A key that was never put is not found, in a table without items and in one with some. */
static void strangers(void **state)
{
    struct places places = {.key_bytes = 8, .item_bytes = 16};
    uint64_t key = 7, other = 8, at = 0;
    (void)state;
    assert_null(places_find(&places, &key));
    assert_null(places_next(&places, &at));
    assert_non_null(places_put(&places, &key));
    assert_null(places_find(&places, &other));
    assert_non_null(places_find(&places, &key));
    places_clear(&places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_a_list), cmocka_unit_test(strangers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
