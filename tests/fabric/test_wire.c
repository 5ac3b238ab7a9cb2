/* test_wire.c - the first validation of what arrives: kinds, lengths and counts at the ends of their ranges.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "fabric/wire.h"

static bool valid(unsigned kind, uint32_t length, unsigned count)
{
    struct wire_header header = {.kind = (uint8_t)kind, .length = length, .count = (uint16_t)count};
    return wire_header_valid(&header);
}

static void test_heads(void **state)
{
    const uint32_t most = WIRE_LENGTH_MAX, command = sizeof(struct wire_command);
    assert_false(valid(0, 0, 0));
    assert_false(valid(WIRE_KINDS, 0, 0));
    assert_false(valid(255, 0, 0));
    for (unsigned kind = WIRE_GREETING; kind < WIRE_KINDS; kind++) {
        if (kind == WIRE_LIST || kind == WIRE_REPLY)
            continue;
        assert_true(valid(kind, 0, 0));
        assert_true(valid(kind, WIRE_SMALL_MAX, 0));
        assert_false(valid(kind, WIRE_SMALL_MAX + 1, 0));
        assert_false(valid(kind, 0, 1));
    }
    assert_false(valid(WIRE_LIST, command, 0));
    assert_true(valid(WIRE_LIST, command, 1));
    assert_false(valid(WIRE_LIST, command - 1, 1));
    assert_true(valid(WIRE_LIST, most, FABRIC_COMMANDS_MAX));
    assert_false(valid(WIRE_LIST, most + 1, FABRIC_COMMANDS_MAX));
    assert_false(valid(WIRE_LIST, most, FABRIC_COMMANDS_MAX + 1));
    assert_true(valid(WIRE_REPLY, 0, 0));
    assert_true(valid(WIRE_REPLY, most, FABRIC_COMMANDS_MAX));
    assert_false(valid(WIRE_REPLY, most + 1, 1));
    assert_false(valid(WIRE_REPLY, 0, FABRIC_COMMANDS_MAX + 1));
}

static void test_commands(void **state)
{
    static const struct {
        uint32_t operation, length, payload, result;
    } cases[] = {
        {FABRIC_READ, 1, 0, 1},
        {FABRIC_READ, FABRIC_LENGTH_MAX, 0, FABRIC_LENGTH_MAX},
        {FABRIC_READ, 0, UINT32_MAX, UINT32_MAX},
        {FABRIC_READ, FABRIC_LENGTH_MAX + 1, UINT32_MAX, UINT32_MAX},
        {FABRIC_WRITE, 1, 1, 0},
        {FABRIC_WRITE, FABRIC_LENGTH_MAX, FABRIC_LENGTH_MAX, 0},
        {FABRIC_WRITE, 0, UINT32_MAX, UINT32_MAX},
        {FABRIC_WRITE, UINT32_MAX, UINT32_MAX, UINT32_MAX},
        {FABRIC_CAS, 0, 24, 8},
        {FABRIC_FAA, 77, 8, 8},
        {FABRIC_FAA + 1, 8, UINT32_MAX, UINT32_MAX},
        {UINT32_MAX, 8, UINT32_MAX, UINT32_MAX},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wire_command command = {.operation = cases[i].operation, .length = cases[i].length};
        assert_int_equal(wire_command_payload(&command), cases[i].payload);
        assert_int_equal(wire_command_result(&command), cases[i].result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads), cmocka_unit_test(test_commands)};
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
