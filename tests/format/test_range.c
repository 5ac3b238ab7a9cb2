/* test_range.c - entries of the map of ranges: what was encoded comes back, what was damaged does not, and
 * which entries may stand behind each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "format/range.h"

static const struct fabric_process a = {.instance = 77, .compute_id = 1},
                                   b = {.instance = 78, .compute_id = 9};

static struct format_range make(const char *lower, enum format_range_state state, struct fabric_process owner,
                                struct fabric_process next)
{
    struct format_range range = {.number = 0x1234,
                                 .state = (uint8_t)state,
                                 .lower_length = (uint8_t)strlen(lower),
                                 .owner = owner,
                                 .next = next,
                                 .epoch = 5,
                                 .version = 6};
    memcpy(range.lower, lower, strlen(lower));
    return range;
}

static const struct fabric_process none;

/* The owner may be among its own heirs, and a process twice. */
static void name_heirs(struct format_range *range, uint8_t count)
{
    const struct format_heir heirs[] = {
        {a, 0}, {{.instance = UINT64_MAX, .compute_id = UINT16_MAX}, 3}, {a, 4}};
    range->heir_count = count;
    memcpy(range->heirs, heirs, count * sizeof heirs[0]);
}

static void test_round_trip(void **state)
{
    struct format_range ranges[] = {
        make("", FORMAT_RANGE_SETTLED, none, none), make("", FORMAT_RANGE_CLOSED, none, none),
        make("key", FORMAT_RANGE_SETTLED, a, none), make("key", FORMAT_RANGE_SPLIT, a, none),
        make("key", FORMAT_RANGE_MOVING, a, b),     make("key", FORMAT_RANGE_MOVING, none, b),
        make("key", FORMAT_RANGE_MOVING, a, none),  make("key", FORMAT_RANGE_SETTLED, b, none),
        make("key", FORMAT_RANGE_MOVING, a, none),  make("key", FORMAT_RANGE_SETTLED, none, none),
        make("key", FORMAT_RANGE_SETTLED, a, none), make("key", FORMAT_RANGE_MOVING, a, b),
        make("key", FORMAT_RANGE_MOVING, a, none),
    };
    ranges[5].logged_next = ranges[11].logged_next = true;
    ranges[10].logged = ranges[11].logged = ranges[12].logged = ranges[11].inherited = true;
    name_heirs(&ranges[10], 1);
    name_heirs(&ranges[11], FORMAT_RANGE_HEIRS_MAX);
    ranges[8].unclaimed = ranges[9].unclaimed = true;
    ranges[7].lower_length = FORMAT_RANGE_LOWER_MAX;
    memset(ranges[7].lower, 255, FORMAT_RANGE_LOWER_MAX);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
        struct format_range back;
        size_t length = format_range_encode(&ranges[i], key, value);
        assert_int_equal(length, 2u + ranges[i].lower_length);
        assert_null(format_range_decode(key, length, value, sizeof value, &back));
        assert_memory_equal(&back, &ranges[i], sizeof back);
        /* any bit that is another one, in the key too */
        for (size_t bit = 0; bit < 8 * sizeof value; bit++) {
            value[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_non_null(format_range_decode(key, length, value, sizeof value, &back));
            value[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t bit = 0; bit < 8 * length; bit++) {
            key[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_non_null(format_range_decode(key, length, value, sizeof value, &back));
            key[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t shorter = 0; shorter < sizeof value; shorter++)
            assert_non_null(format_range_decode(key, length, value, shorter, &back));
        assert_non_null(format_range_decode(key, 1, value, sizeof value, &back));
    }
}

/* With a check that fits. */
static const char *decode_forged(uint8_t at, uint8_t byte)
{
    struct format_range range = make("key", FORMAT_RANGE_MOVING, a, b);
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
    size_t length = format_range_encode(&range, key, value);
    value[at] = byte;
    uint32_t crc = crc32c(crc32c(0, key, length), value, 96);
    memcpy(value + 96, &crc, 4);
    return format_range_decode(key, length, value, sizeof value, &range);
}

static void test_impossible(void **state)
{
    assert_null(decode_forged(0, 2));
    assert_string_equal(decode_forged(0, 1), "is of another version of Banyan");
    assert_string_equal(decode_forged(0, 3), "is of another version of Banyan");
    assert_string_equal(decode_forged(1, FORMAT_RANGE_STATES), "has a state that there is not");
    assert_string_equal(decode_forged(1, FORMAT_RANGE_SETTLED), "has a next owner and does not move");
    assert_string_equal(decode_forged(2, 0), "names a process by half");
    assert_string_equal(decode_forged(16, 0), "names a process by half");
    assert_string_equal(decode_forged(6, 1), "is unclaimed and has an owner");
    assert_null(decode_forged(6, 2));
    assert_null(decode_forged(6, 6));
    assert_string_equal(decode_forged(6, 4),
                        "is inherited, and there is nothing to inherit or no one who does");
    assert_null(decode_forged(6, 8));
    assert_string_equal(decode_forged(6, 16), "fails its check");
    assert_string_equal(decode_forged(7, 1), "fails its check");
    assert_string_equal(decode_forged(46, 1), "fails its check");
    assert_string_equal(decode_forged(40, 1), "names a process by half");
    assert_string_equal(decode_forged(64, 1), "names a process by half");
    assert_string_equal(decode_forged(72, 1), "has an heir that had it later");
    assert_string_equal(decode_forged(24, 7), "has an epoch that is later than its version");
}

/* What encoding does not refuse, and decoding must. */
static const char *decode_made(struct format_range *range)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
    struct format_range back;
    size_t length = format_range_encode(range, key, value);
    return format_range_decode(key, length, value, sizeof value, &back);
}

static void test_impossible_heirs(void **state)
{
    struct format_range range = make("key", FORMAT_RANGE_SETTLED, none, none);
    range.logged = true;
    assert_string_equal(decode_made(&range), "is logged and has no owner");
    range.logged = false;
    range.logged_next = true;
    assert_string_equal(decode_made(&range), "is to be logged and has no next owner");
    range.logged_next = false;
    name_heirs(&range, 1);
    assert_string_equal(decode_made(&range), "has heirs and no owner");
    range.owner = b;
    assert_null(decode_made(&range)); /* its owner keeps no log, and has not merged yet */
    name_heirs(&range, 2);
    range.heirs[1].epoch = 0;
    assert_string_equal(decode_made(&range), "has heirs in disorder");
    range.heirs[1].epoch = 5;
    assert_string_equal(decode_made(&range), "has an heir that had it later");
    range.heirs[1].epoch = 4;
    assert_null(decode_made(&range));
    range.heirs[0].process = none;
    assert_string_equal(decode_made(&range), "has a gap among its heirs");

    range = make("key", FORMAT_RANGE_MOVING, a, b);
    name_heirs(&range, 2);
    assert_string_equal(decode_made(&range), "has heirs and moves without them");
    range.inherited = true;
    assert_null(decode_made(&range));
    range.next = none;
    assert_string_equal(decode_made(&range),
                        "is inherited, and there is nothing to inherit or no one who does");
    range.inherited = false;
    assert_string_equal(decode_made(&range), "has heirs and moves without them");
    range.heir_count = 0;
    range.logged = true;
    assert_null(decode_made(&range)); /* its owner merges before it gives the range up */
    range = make("key", FORMAT_RANGE_SETTLED, a, none);
    range.logged = range.inherited = true;
    assert_string_equal(decode_made(&range),
                        "is inherited, and there is nothing to inherit or no one who does");
}

static void test_neighbours(void **state)
{
    const struct format_range first = make("", FORMAT_RANGE_SETTLED, a, none),
                              closed = make("", FORMAT_RANGE_CLOSED, none, none),
                              moving = make("b", FORMAT_RANGE_MOVING, a, b),
                              split = make("c", FORMAT_RANGE_SPLIT, a, none),
                              others = make("c", FORMAT_RANGE_SPLIT, b, none);
    assert_null(format_range_follows(NULL, &first));
    assert_null(format_range_follows(NULL, &closed));
    assert_non_null(format_range_follows(NULL, &moving));
    struct format_range early = make("", FORMAT_RANGE_SPLIT, a, none);
    assert_non_null(format_range_follows(NULL, &early));
    assert_null(format_range_follows(&first, &moving));
    assert_null(format_range_follows(&first, &split));
    assert_non_null(format_range_follows(&first, &others));
    assert_non_null(format_range_follows(&moving, &split));
    assert_non_null(format_range_follows(&closed, &moving));
    assert_non_null(format_range_follows(&split, &moving)); /* not ascending */
    struct format_range logged = first, half = split;
    logged.logged = true;
    assert_non_null(format_range_follows(&logged, &split));
    half.logged = true;
    assert_null(format_range_follows(&logged, &half));
    name_heirs(&logged, 1);
    assert_non_null(format_range_follows(&logged, &half));
    name_heirs(&half, 2);
    assert_non_null(format_range_follows(&logged, &half));
    name_heirs(&logged, 2);
    assert_null(format_range_follows(&logged, &half));
    assert_true(format_range_compare(&first, &moving) < 0 && format_range_compare(&split, &moving) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_impossible_heirs),
        cmocka_unit_test(test_neighbours),
    };
    return cmocka_run_group_tests_name("range", tests, NULL, NULL);
}
