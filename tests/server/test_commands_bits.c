/*
 * test_commands_bits.c - BITOP: lengths, absent keys, empty results, a destination among its sources, long
 * values, errors, and what happens without memory. Called directly over a store on the local fabric;
 * test_commands_redis.c compares all commands about bits with a real Redis.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "commands.h"

static struct commands commands;

static int set_up(void **state)
{
    commands_create(&commands, 0, 0);
    return 0;
}

static int tear_down(void **state)
{
    return commands_destroy(&commands) ? 0 : -1;
}

#define OK     "+OK\r\n"
#define NIL    "$-1\r\n"
#define SYNTAX "-ERR syntax error\r\n"

static void short_values(void **state)
{
    EXPECT("SET a \"\\xff\\x0f\\x33\"", OK);
    EXPECT("SET b \"\\x0f\\xf0\"", OK);
    EXPECT("BITOP AND d a b", ":3\r\n");
    EXPECT("GET d", "$3\r\n\x0f\x00\x00\r\n");
    EXPECT("BITOP and d b a", ":3\r\n");
    EXPECT("GET d", "$3\r\n\x0f\x00\x00\r\n");
    EXPECT("BITOP Or d b a", ":3\r\n");
    EXPECT("GET d", "$3\r\n\xff\xff\x33\r\n");
    EXPECT("BITOP XOR d a b", ":3\r\n");
    EXPECT("GET d", "$3\r\n\xf0\xff\x33\r\n");
    EXPECT("BITOP not d b", ":2\r\n");
    EXPECT("GET d", "$2\r\n\xf0\x0f\r\n");
    EXPECT("BITOP OR d nope nope a", ":3\r\n");
    EXPECT("GET d", "$3\r\n\xff\x0f\x33\r\n");
    EXPECT("BITOP AND d nope a", ":3\r\n");
    EXPECT("GET d", "$3\r\n\x00\x00\x00\r\n");
    EXPECT("BITOP AND d a nope", ":3\r\n");
    EXPECT("GET d", "$3\r\n\x00\x00\x00\r\n");
    EXPECT("BITOP XOR d a a", ":3\r\n");
    EXPECT("GET d", "$3\r\n\x00\x00\x00\r\n");
    EXPECT("BITOP XOR a a b", ":3\r\n"); /* its own source */
    EXPECT("GET a", "$3\r\n\xf0\xff\x33\r\n");
    EXPECT("BITOP NOT a a", ":3\r\n");
    EXPECT("GET a", "$3\r\n\x0f\x00\xcc\r\n");
    EXPECT("BITOP OR d nope a b", ":3\r\n");
    assert_int_equal(commands.hits, 2);
    assert_int_equal(commands.misses, 1);
}

/* The destination loses its expiry, and is gone where there is nothing to store. */
static void destinations(void **state)
{
    EXPECT("SET a x", OK);
    EXPECT("SET e \"\"", OK);
    EXPECT("SET d old EX 100", OK);
    EXPECT("BITOP OR d a", ":1\r\n");
    EXPECT("TTL d", ":-1\r\n");
    EXPECT("BITOP XOR d nope e", ":0\r\n");
    EXPECT("EXISTS d", ":0\r\n");
    EXPECT("BITOP NOT d nope", ":0\r\n");
    EXPECT("EXISTS d", ":0\r\n");
    EXPECT("SET a x PX 100", OK);
    commands_now(&commands, commands.now_ms + 1000);
    EXPECT("BITOP OR d a", ":0\r\n");
    EXPECT("EXISTS d", ":0\r\n");
}

static void errors(void **state)
{
    EXPECT("SET d kept", OK);
    EXPECT("BITOP AND d", "-ERR wrong number of arguments for 'bitop' command\r\n");
    EXPECT("BITOP NAND d a", SYNTAX);
    EXPECT("BITOP \"\" d a", SYNTAX);
    EXPECT("BITOP \"and\\x00\" d a", SYNTAX);
    EXPECT("BITOP NOT d a b", "-ERR BITOP NOT must be called with a single source key.\r\n");
    EXPECT("BITOP OR \"\" a", "-ERR a key has 1 to 255 bytes, this one has 0\r\n");
    EXPECT("BITOP OR d a \"\"", "-ERR a key has 1 to 255 bytes, this one has 0\r\n");
    EXPECT("GET d", "$4\r\nkept\r\n");
}

/* ---- long values ---- */

#define SOURCES     24u /* more than one batch of them */
#define LENGTH_MOST (600u << 10)

struct source {
    char name[8];
    uint8_t *bytes;
    size_t length;
};

static void source_make(struct source *source, unsigned number, struct random *random)
{
    snprintf(source->name, sizeof source->name, "s%u", number);
    source->length = number % 5 == 4 ? 0 : random_below(random, LENGTH_MOST) >> number % 7;
    source->bytes = malloc(LENGTH_MOST);
    assert_non_null(source->bytes);
    for (size_t i = 0; i < source->length; i++)
        source->bytes[i] = (uint8_t)random_below(random, 256);
    memset(source->bytes + source->length, 0, LENGTH_MOST - source->length);
    struct resp_argument set[] = {
        {"SET", 3}, {source->name, strlen(source->name)}, {(char *)source->bytes, source->length}};
    if (source->length) /* the empty ones do not exist */
        commands_run(&commands, set, 3);
}

static uint8_t byte_of(const char *operation, const struct source *sources, unsigned count, size_t at)
{
    uint8_t byte = sources[0].bytes[at];
    for (unsigned i = 1; i < count; i++)
        byte = (uint8_t)(*operation == 'A'   ? byte & sources[i].bytes[at]
                         : *operation == 'O' ? byte | sources[i].bytes[at]
                                             : byte ^ sources[i].bytes[at]);
    return *operation == 'N' ? (uint8_t)~byte : byte;
}

static void check_result(const char *operation, const struct source *sources, unsigned count)
{
    struct resp_argument arguments[SOURCES + 3] = {{"BITOP", 5}, {operation, strlen(operation)}, {"d", 1}};
    struct resp_argument get[] = {{"GET", 3}, {"d", 1}}, bulk;
    size_t length = 0, at = 0;
    char reply[32];
    for (unsigned i = 0; i < count; i++) {
        arguments[i + 3] = (struct resp_argument){sources[i].name, strlen(sources[i].name)};
        length = sources[i].length > length ? sources[i].length : length;
    }
    commands_run(&commands, arguments, count + 3);
    size_t digits = (size_t)snprintf(reply, sizeof reply, ":%zu\r\n", length);
    assert_int_equal(commands.reply.length, digits);
    assert_memory_equal(commands.reply.bytes, reply, digits);
    commands_run(&commands, get, 2);
    assert_true(commands_bulk(&commands, &at, &bulk));
    assert_int_equal(bulk.length, length);
    for (size_t i = 0; i < length; i++)
        if ((uint8_t)bulk.bytes[i] != byte_of(operation, sources, count, i))
            fail_msg("%s of %u sources: byte %zu", operation, count, i);
}

static void long_values(void **state)
{
    static struct source sources[SOURCES];
    struct random random;
    random_seed(&random, 1);
    for (unsigned i = 0; i < SOURCES; i++)
        source_make(&sources[i], i, &random);
    check_result("NOT", sources, 1);
    for (unsigned count = 1; count <= SOURCES; count += count < 3 ? 1 : 7) {
        check_result("AND", sources, count);
        check_result("OR", sources, count);
        check_result("XOR", sources, count);
    }
    for (unsigned i = 0; i < SOURCES; i++)
        free(sources[i].bytes);
}

/* ---- memory ---- */

static size_t reserved, reserve_most;

static bool reserve(struct server_call *call, size_t from, size_t to)
{
    if (reserved - from + to > reserve_most)
        return false;
    reserved += to - from;
    return true;
}

/* The result counts while the command runs; where it may not grow the destination stays as it is. */
static void memory(void **state)
{
    EXPECT("SETRANGE a 99999 x", ":100000\r\n");
    EXPECT("SETRANGE b 199999 x", ":200000\r\n");
    EXPECT("SET d kept", OK);
    commands.reserve = reserve;
    reserve_most = 199999;
    EXPECT("BITOP OR d a b", "-OOM no memory for 'bitop'\r\n");
    assert_int_equal(reserved, 0);
    EXPECT("GET d", "$4\r\nkept\r\n");
    EXPECT("BITOP OR d a", ":100000\r\n");
    assert_int_equal(reserved, 0);
    reserve_most = 200000;
    EXPECT("BITOP OR d a b", ":200000\r\n");
    assert_int_equal(reserved, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {TEST(short_values), TEST(destinations), TEST(errors),
                                       TEST(long_values), TEST(memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
