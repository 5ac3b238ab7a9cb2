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

static void test_round_trip(void **state)
{
    struct format_range ranges[] = {
        make("", FORMAT_RANGE_SETTLED, none, none), make("", FORMAT_RANGE_CLOSED, none, none),
        make("key", FORMAT_RANGE_SETTLED, a, none), make("key", FORMAT_RANGE_SPLIT, a, none),
        make("key", FORMAT_RANGE_MOVING, a, b),     make("key", FORMAT_RANGE_MOVING, none, b),
        make("key", FORMAT_RANGE_MOVING, a, none),  make("key", FORMAT_RANGE_SETTLED, b, none),
        make("key", FORMAT_RANGE_MOVING, a, none),  make("key", FORMAT_RANGE_SETTLED, none, none),
    };
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
    uint32_t crc = crc32c(crc32c(0, key, length), value, 40);
    memcpy(value + 40, &crc, 4);
    return format_range_decode(key, length, value, sizeof value, &range);
}

static void test_impossible(void **state)
{
    assert_null(decode_forged(0, 1));
    assert_string_equal(decode_forged(0, 2), "is of another version of Banyan");
    assert_string_equal(decode_forged(1, FORMAT_RANGE_STATES), "has a state that there is not");
    assert_string_equal(decode_forged(1, FORMAT_RANGE_SETTLED), "has a next owner and does not move");
    assert_string_equal(decode_forged(2, 0), "names a process by half");
    assert_string_equal(decode_forged(16, 0), "names a process by half");
    assert_string_equal(decode_forged(6, 1), "is unclaimed and has an owner");
    assert_string_equal(decode_forged(6, 2), "fails its check");
    assert_string_equal(decode_forged(7, 1), "fails its check");
    assert_string_equal(decode_forged(24, 7), "has an epoch that is later than its version");
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
    assert_true(format_range_compare(&first, &moving) < 0 && format_range_compare(&split, &moving) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_neighbours),
    };
    return cmocka_run_group_tests_name("range", tests, NULL, NULL);
}
