/*
 * test_commands.c - the commands about keys, one by one: replies, errors, binary and empty values, expiry,
 * cursors, ranges, limits. Called directly over a store on the local fabric. test_commands_redis.c compares
 * them with a real Redis.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

#define OK               "+OK\r\n"
#define NIL              "$-1\r\n"
#define SYNTAX           "-ERR syntax error\r\n"
#define NOT_INT          "-ERR value is not an integer or out of range\r\n"
#define ARITY(name)      "-ERR wrong number of arguments for '" name "' command\r\n"
#define BAD_EXPIRE(name) "-ERR invalid expire time in '" name "' command\r\n"

/* ---- strings ---- */

static void get_and_set(void **state)
{
    EXPECT("GET a", NIL);
    EXPECT("SET a 1", OK);
    EXPECT("GET a", "$1\r\n1\r\n");
    EXPECT("get a", "$1\r\n1\r\n");
    EXPECT("SET a \"\"", OK);
    EXPECT("GET a", "$0\r\n\r\n");
    EXPECT("STRLEN a", ":0\r\n");
    EXPECT("SET \"k\\x00\\r\\n\" \"v\\x00\\xff\\r\\n\"", OK);
    EXPECT("GET \"k\\x00\\r\\n\"", "$5\r\nv\0\xff\r\n\r\n");
    EXPECT("GET \"k\\x00\\r\"", NIL);
    EXPECT("STRLEN \"k\\x00\\r\\n\"", ":5\r\n");
    EXPECT("GET", ARITY("get"));
    EXPECT("GET a b", ARITY("get"));
    EXPECT("SET a", ARITY("set"));
    EXPECT("GET \"\"", "-ERR a key has 1 to 255 bytes, this one has 0\r\n");
    EXPECT("SET \"\" x", "-ERR a key has 1 to 255 bytes, this one has 0\r\n");
    EXPECT("SETNX a 2", ":0\r\n");
    EXPECT("SETNX b 2", ":1\r\n");
    EXPECT("GETSET b 3", "$1\r\n2\r\n");
    EXPECT("GETSET c 3", NIL);
    EXPECT("GETDEL c", "$1\r\n3\r\n");
    EXPECT("GETDEL c", NIL);
    commands.reply.protocol = 3;
    EXPECT("GET c", "_\r\n");
    EXPECT("GETDEL c", "_\r\n");
    EXPECT("SET c 1 XX", "_\r\n");
    EXPECT("MGET b c", "*2\r\n$1\r\n3\r\n_\r\n");
}

static void set_options(void **state)
{
    EXPECT("SET a 1 XX", NIL);
    EXPECT("SET a 1 NX", OK);
    EXPECT("SET a 2 nx", NIL);
    EXPECT("SET a 2 xx", OK);
    EXPECT("SET a 3 GET", "$1\r\n2\r\n");
    EXPECT("SET a 4 NX GET", "$1\r\n3\r\n");
    EXPECT("GET a", "$1\r\n3\r\n");
    EXPECT("SET b 4 NX GET", NIL);
    EXPECT("GET b", "$1\r\n4\r\n");
    EXPECT("SET c 4 XX GET", NIL);
    EXPECT("GET c", NIL);
    EXPECT("SET a 1 NX XX", SYNTAX);
    EXPECT("SET a 1 XX NX", SYNTAX);
    EXPECT("SET a 1 EX", SYNTAX);
    EXPECT("SET a 1 EX 10 PX 10", SYNTAX);
    EXPECT("SET a 1 EX 10 KEEPTTL", SYNTAX);
    EXPECT("SET a 1 KEEPTTL EXAT 10", SYNTAX);
    EXPECT("SET a 1 PERSIST", SYNTAX);
    EXPECT("SET a 1 2", SYNTAX);
    EXPECT("SET a 1 EX x", NOT_INT);
    EXPECT("SET a 1 EX 1.5", NOT_INT);
    EXPECT("SET a 1 EX 0", BAD_EXPIRE("set"));
    EXPECT("SET a 1 PX -1", BAD_EXPIRE("set"));
    EXPECT("SET a 1 EX 9223372036854775807", BAD_EXPIRE("set"));
    EXPECT("SET a 1 PX 9223372036854775807", BAD_EXPIRE("set"));
    EXPECT("SET a 1 EXAT 9223372036854776", BAD_EXPIRE("set"));
    EXPECT("SETEX a 0 1", BAD_EXPIRE("setex"));
    EXPECT("PSETEX a 0 1", BAD_EXPIRE("psetex"));
    EXPECT("SETEX a x 1", NOT_INT);
    EXPECT("GET a", "$1\r\n3\r\n");
    EXPECT("SET a 1 EX 10", OK);
    EXPECT("PTTL a", ":10000\r\n");
    EXPECT("SET a 2 KEEPTTL", OK);
    EXPECT("PTTL a", ":10000\r\n");
    EXPECT("SET a 2 PX 1234 XX GET", "$1\r\n2\r\n");
    EXPECT("PTTL a", ":1234\r\n");
    EXPECT("SET a 2 EXAT 2000", OK);
    EXPECT("PTTL a", ":1000000\r\n");
    EXPECT("SET a 2 PXAT 1000001", OK);
    EXPECT("PTTL a", ":1\r\n");
    EXPECT("SET a 2 EX 5 EX 6", OK);
    EXPECT("TTL a", ":6\r\n");
    EXPECT("SET a 2", OK);
    EXPECT("TTL a", ":-1\r\n");
    EXPECT("SET a 2 PXAT 999999", OK); /* long ago */
    EXPECT("GET a", NIL);
    EXPECT("SET b 2 PXAT 999999 GET", "$1\r\n4\r\n");
    EXPECT("EXISTS b", ":0\r\n");
    EXPECT("SETEX a 7 v", OK);
    EXPECT("TTL a", ":7\r\n");
    EXPECT("PSETEX a 7 v", OK);
    EXPECT("PTTL a", ":7\r\n");
    EXPECT("GETSET a w", "$1\r\nv\r\n");
    EXPECT("TTL a", ":-1\r\n");
}

static void getex(void **state)
{
    EXPECT("GETEX a EX 0", NIL); /* as in Redis, a bad expiry of a key that does not exist is no error */
    EXPECT("SET a v", OK);
    EXPECT("GETEX a", "$1\r\nv\r\n");
    EXPECT("GETEX a EX 0", BAD_EXPIRE("getex"));
    EXPECT("GETEX a EX x", NOT_INT);
    EXPECT("GETEX a NX", SYNTAX);
    EXPECT("GETEX a KEEPTTL", SYNTAX);
    EXPECT("GETEX a EX 10 PERSIST", SYNTAX);
    EXPECT("GETEX a EX 10", "$1\r\nv\r\n");
    EXPECT("TTL a", ":10\r\n");
    EXPECT("GETEX a", "$1\r\nv\r\n");
    EXPECT("TTL a", ":10\r\n");
    EXPECT("GETEX a PERSIST", "$1\r\nv\r\n");
    EXPECT("TTL a", ":-1\r\n");
    EXPECT("GETEX a PXAT 1000100", "$1\r\nv\r\n");
    EXPECT("PTTL a", ":100\r\n");
    EXPECT("GETEX a PXAT 1000", "$1\r\nv\r\n");
    EXPECT("GET a", NIL);
}

static void many_keys(void **state)
{
    EXPECT("MSET a 1 b 2 a 3", OK);
    EXPECT("MGET a b c a", "*4\r\n$1\r\n3\r\n$1\r\n2\r\n$-1\r\n$1\r\n3\r\n");
    assert_int_equal(commands.hits, 3);
    assert_int_equal(commands.misses, 1);
    EXPECT("MSET a 1 b", ARITY("mset"));
    EXPECT("MSET a", ARITY("mset"));
    EXPECT("MSET a 9 \"\" 1", "-ERR a key has 1 to 255 bytes, this one has 0\r\n");
    EXPECT("MGET a \"\"", "-ERR a key has 1 to 255 bytes, this one has 0\r\n");
    EXPECT("GET a", "$1\r\n3\r\n");
    EXPECT("MSETNX a 1", ":0\r\n");
    EXPECT("MSETNX n 1", ":1\r\n");
    EXPECT("MSETNX a 1 b", ARITY("msetnx"));
    EXPECT("MSETNX x 1 y 1",
           "-ERR MSETNX of more than one key is not possible: keys cannot be set together atomically\r\n");
    EXPECT("EXISTS a b c a", ":3\r\n");
    EXPECT("EXISTS a", ":1\r\n");
    EXPECT("EXISTS c", ":0\r\n");
    EXPECT("TOUCH a c b", ":2\r\n");
    EXPECT("DEL a a c", ":1\r\n");
    EXPECT("UNLINK a b", ":1\r\n");
    EXPECT("DEL", ARITY("del"));
    EXPECT("DEL n \"\"", "-ERR a key has 1 to 255 bytes, this one has 0\r\n");
    EXPECT("EXISTS n", ":1\r\n");
    EXPECT("TYPE n", "+string\r\n");
    EXPECT("TYPE a", "+none\r\n");
}

static void many_batches(void **state)
{
    struct resp_argument arguments[401];
    char keys[200][8], values[200][120];
    arguments[0] = (struct resp_argument){"mset", 4};
    for (unsigned i = 0; i < 200; i++) {
        int key = snprintf(keys[i], sizeof keys[i], "k%u", i);
        int value = snprintf(values[i], sizeof values[i], "%0*u", 1 + (int)(i % 100), i);
        arguments[1 + 2 * i] = (struct resp_argument){keys[i], (size_t)key};
        arguments[2 + 2 * i] = (struct resp_argument){values[i], (size_t)value};
    }
    commands_run(&commands, arguments, 401);
    assert_memory_equal(commands.reply.bytes, OK, commands.reply.length);
    arguments[0] = (struct resp_argument){"mget", 4};
    for (unsigned i = 0; i < 200; i++)
        arguments[1 + i] = (struct resp_argument){keys[199 - i], strlen(keys[199 - i])};
    commands_run(&commands, arguments, 201);
    size_t at = 0;
    struct resp_argument bulk;
    for (unsigned i = 0; i < 200; i++) {
        assert_true(commands_bulk(&commands, &at, &bulk));
        assert_int_equal(bulk.length, strlen(values[199 - i]));
        assert_memory_equal(bulk.bytes, values[199 - i], bulk.length);
    }
    assert_int_equal(at, commands.reply.length);
    arguments[0] = (struct resp_argument){"exists", 6};
    commands_run(&commands, arguments, 201);
    assert_memory_equal(commands.reply.bytes, ":200\r\n", commands.reply.length);
}

static void parts(void **state)
{
    EXPECT("SET a \"Hello World\"", OK);
    EXPECT("GETRANGE a 0 4", "$5\r\nHello\r\n");
    EXPECT("SUBSTR a -5 -1", "$5\r\nWorld\r\n");
    EXPECT("GETRANGE a 0 -1", "$11\r\nHello World\r\n");
    EXPECT("GETRANGE a -100 100", "$11\r\nHello World\r\n");
    EXPECT("GETRANGE a 5 2", "$0\r\n\r\n");
    EXPECT("GETRANGE a -1 -5", "$0\r\n\r\n");
    EXPECT("GETRANGE a 11 20", "$0\r\n\r\n");
    EXPECT("GETRANGE a -9223372036854775808 9223372036854775807", "$11\r\nHello World\r\n");
    EXPECT("GETRANGE missing 0 1", "$0\r\n\r\n");
    EXPECT("GETRANGE a x 1", NOT_INT);
    EXPECT("GETRANGE a 0 1.0", NOT_INT);
    EXPECT("APPEND a !", ":12\r\n");
    EXPECT("APPEND b \"\"", ":0\r\n");
    EXPECT("EXISTS b", ":1\r\n");
    EXPECT("APPEND a \"\"", ":12\r\n");
    EXPECT("SETRANGE a 6 Redis", ":12\r\n");
    EXPECT("GET a", "$12\r\nHello Redis!\r\n");
    EXPECT("SETRANGE c 3 x", ":4\r\n");
    EXPECT("GET c", "$4\r\n\0\0\0x\r\n");
    EXPECT("SETRANGE d 3 \"\"", ":0\r\n");
    EXPECT("EXISTS d", ":0\r\n");
    EXPECT("SETRANGE c 100 \"\"", ":4\r\n");
    EXPECT("SETRANGE c -1 x", "-ERR offset is out of range\r\n");
    EXPECT("SETRANGE c z x", NOT_INT);
    EXPECT("SETRANGE c 67108864 x", "-ERR string exceeds maximum allowed size (64MB)\r\n");
    EXPECT("SETRANGE c 9223372036854775807 x", "-ERR string exceeds maximum allowed size (64MB)\r\n");
    EXPECT("SETRANGE c 67108863 x", ":67108864\r\n");
    EXPECT("STRLEN c", ":67108864\r\n");
    EXPECT("APPEND c x", "-ERR string exceeds maximum allowed size (64MB)\r\n");
    EXPECT("GETRANGE c 3 3", "$1\r\nx\r\n");
    EXPECT("GETRANGE c -2 -1", "$2\r\n\0x\r\n");
    EXPECT("EXPIRE a 10", ":1\r\n");
    EXPECT("APPEND a x", ":13\r\n");
    EXPECT("SETRANGE a 0 J", ":13\r\n");
    EXPECT("TTL a", ":10\r\n");
}

static void integers(void **state)
{
    static const char *const not_numbers[] = {"\"\"",
                                              "abc",
                                              "\" 1\"",
                                              "\"1 \"",
                                              "01",
                                              "+1",
                                              "-0",
                                              "1.0",
                                              "-",
                                              "0x1",
                                              "9223372036854775808",
                                              "-9223372036854775809",
                                              "\"1\\x00\""};
    EXPECT("INCR a", ":1\r\n");
    EXPECT("INCRBY a 41", ":42\r\n");
    EXPECT("DECR a", ":41\r\n");
    EXPECT("DECRBY a 50", ":-9\r\n");
    EXPECT("INCRBY a -1", ":-10\r\n");
    EXPECT("GET a", "$3\r\n-10\r\n");
    EXPECT("DECR b", ":-1\r\n");
    EXPECT("INCRBY a x", NOT_INT);
    EXPECT("INCRBY a 9223372036854775808", NOT_INT);
    EXPECT("DECRBY a -9223372036854775808", "-ERR decrement would overflow\r\n");
    EXPECT("SET a 9223372036854775807", OK);
    EXPECT("INCR a", "-ERR increment or decrement would overflow\r\n");
    EXPECT("DECRBY a 9223372036854775807", ":0\r\n");
    EXPECT("SET a -9223372036854775808", OK);
    EXPECT("DECR a", "-ERR increment or decrement would overflow\r\n");
    EXPECT("INCRBY a 9223372036854775807", ":-1\r\n");
    for (unsigned i = 0; i < sizeof not_numbers / sizeof *not_numbers; i++) {
        char line[64];
        snprintf(line, sizeof line, "SET a %s", not_numbers[i]);
        EXPECT(line, OK);
        EXPECT("INCR a", NOT_INT);
    }
    EXPECT("SET a 5 EX 10", OK);
    EXPECT("INCR a", ":6\r\n");
    EXPECT("TTL a", ":10\r\n");
}

static void floats(void **state)
{
    EXPECT("INCRBYFLOAT a 10.50", "$4\r\n10.5\r\n");
    EXPECT("INCRBYFLOAT a 0.1", "$4\r\n10.6\r\n");
    EXPECT("INCRBYFLOAT a -5", "$3\r\n5.6\r\n");
    EXPECT("SET a 5.0e3", OK);
    EXPECT("INCRBYFLOAT a 2.0e2", "$4\r\n5200\r\n");
    EXPECT("INCRBYFLOAT a -5200", "$1\r\n0\r\n");
    EXPECT("INCRBYFLOAT a -0", "$1\r\n0\r\n");
    EXPECT("INCRBYFLOAT a x", "-ERR value is not a valid float\r\n");
    EXPECT("INCRBYFLOAT a nan", "-ERR value is not a valid float\r\n");
    EXPECT("INCRBYFLOAT a \"\"", "-ERR value is not a valid float\r\n");
    EXPECT("INCRBYFLOAT a \" 1\"", "-ERR value is not a valid float\r\n");
    EXPECT("INCRBYFLOAT a \"1 \"", "-ERR value is not a valid float\r\n");
    EXPECT("INCRBYFLOAT a \"1\\x00\"", "-ERR value is not a valid float\r\n");
    EXPECT("INCRBYFLOAT a inf", "-ERR increment would produce NaN or Infinity\r\n");
    EXPECT("INCRBYFLOAT a 1e99999", "-ERR value is not a valid float\r\n");
    EXPECT("SET a abc", OK);
    EXPECT("INCRBYFLOAT a 1", "-ERR value is not a valid float\r\n");
    EXPECT("SET a 1 EX 10", OK);
    EXPECT("INCRBYFLOAT a 1.5", "$3\r\n2.5\r\n");
    EXPECT("TTL a", ":10\r\n");
    EXPECT("SET a 1e4900", OK);
    assert_true(commands_line(&commands, "INCRBYFLOAT a 1e4900"));
    assert_memory_equal(commands.reply.bytes, "$4901\r\n2", 8);
}

/* ---- keys ---- */

static void expiry(void **state)
{
    EXPECT("EXPIRE a 10", ":0\r\n");
    EXPECT("TTL a", ":-2\r\n");
    EXPECT("PTTL a", ":-2\r\n");
    EXPECT("EXPIRETIME a", ":-2\r\n");
    EXPECT("PEXPIRETIME a", ":-2\r\n");
    EXPECT("SET a v", OK);
    EXPECT("PTTL a", ":-1\r\n");
    EXPECT("PEXPIRETIME a", ":-1\r\n");
    EXPECT("PERSIST a", ":0\r\n");
    EXPECT("PERSIST b", ":0\r\n");
    EXPECT("EXPIRE a 10", ":1\r\n");
    EXPECT("PEXPIRETIME a", ":1010000\r\n");
    EXPECT("EXPIRETIME a", ":1010\r\n");
    commands_now(&commands, 1009400);
    EXPECT("TTL a", ":1\r\n");
    EXPECT("PTTL a", ":600\r\n");
    EXPECT("GET a", "$1\r\nv\r\n");
    commands_now(&commands, 1009600);
    EXPECT("TTL a", ":0\r\n");
    commands_now(&commands, 1010001);
    EXPECT("TTL a", ":-2\r\n");
    EXPECT("GET a", NIL);
    EXPECT("EXISTS a", ":0\r\n");
    EXPECT("DEL a", ":0\r\n");
    EXPECT("SET a v NX", OK);
    EXPECT("PEXPIRE a 1500", ":1\r\n");
    EXPECT("TTL a", ":2\r\n");
    EXPECT("PERSIST a", ":1\r\n");
    EXPECT("TTL a", ":-1\r\n");
    EXPECT("EXPIREAT a 2000", ":1\r\n");
    EXPECT("PEXPIRETIME a", ":2000000\r\n");
    EXPECT("PEXPIREAT a 2000001", ":1\r\n");
    EXPECT("PEXPIRETIME a", ":2000001\r\n");
    EXPECT("GET a", "$1\r\nv\r\n");
    EXPECT("EXPIRE a -1", ":1\r\n");
    EXPECT("GET a", NIL);
    EXPECT("SET a v", OK);
    EXPECT("EXPIRE a x", NOT_INT);
    EXPECT("EXPIRE a 9223372036854775807", BAD_EXPIRE("expire"));
    EXPECT("EXPIREAT a -9223372036854775808", BAD_EXPIRE("expireat"));
    EXPECT("PEXPIRE a 9223372036854775807", BAD_EXPIRE("pexpire"));
    EXPECT("PEXPIREAT a 9223372036854775807", ":1\r\n");
    EXPECT("PEXPIRETIME a", ":9223372036854775807\r\n");
    EXPECT("EXPIRE a", ARITY("expire"));
}

static void expiry_conditions(void **state)
{
    EXPECT("SET a v", OK);
    EXPECT("EXPIRE a 10 XX", ":0\r\n");
    EXPECT("EXPIRE a 10 GT", ":0\r\n");
    EXPECT("EXPIRE a 10 NX", ":1\r\n");
    EXPECT("EXPIRE a 20 nx", ":0\r\n");
    EXPECT("EXPIRE a 20 XX", ":1\r\n");
    EXPECT("EXPIRE a 20 GT", ":0\r\n");
    EXPECT("EXPIRE a 19 GT", ":0\r\n");
    EXPECT("EXPIRE a 21 GT XX", ":1\r\n");
    EXPECT("EXPIRE a 21 LT", ":0\r\n");
    EXPECT("EXPIRE a 20 LT", ":1\r\n");
    EXPECT("TTL a", ":20\r\n");
    EXPECT("EXPIRE a 10 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n");
    EXPECT("EXPIRE a 10 GT NX", "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n");
    EXPECT("EXPIRE a 10 GT LT", "-ERR GT and LT options at the same time are not compatible\r\n");
    EXPECT("EXPIRE a 10 YY", "-ERR Unsupported option YY\r\n");
    EXPECT("EXPIRE a x YY", "-ERR Unsupported option YY\r\n");
    EXPECT("PERSIST a", ":1\r\n");
    EXPECT("EXPIRE a 30 LT", ":1\r\n");
    EXPECT("EXPIRE a -5 GT", ":0\r\n");
    EXPECT("EXPIRE a -5 LT", ":1\r\n");
    EXPECT("EXISTS a", ":0\r\n");
}

/* A change of its expiry leaves a long value as it is. */
static void expiry_of_long_values(void **state)
{
    struct resp_argument set[] = {{"set", 3}, {"k", 1}, {NULL, 100000}};
    char *bytes = malloc(100000);
    assert_non_null(bytes);
    memset(bytes, 'x', 100000);
    set[2].bytes = bytes;
    commands_run(&commands, set, 3);
    EXPECT("EXPIRE k 10", ":1\r\n");
    EXPECT("STRLEN k", ":100000\r\n");
    EXPECT("GETRANGE k 99998 -1", "$2\r\nxx\r\n");
    EXPECT("PERSIST k", ":1\r\n");
    EXPECT("TTL k", ":-1\r\n");
    EXPECT("APPEND k y", ":100001\r\n");
    EXPECT("GETRANGE k 99999 -1", "$2\r\nxy\r\n");
    free(bytes);
}

static void keys_and_patterns(void **state)
{
    EXPECT("KEYS *", "*0\r\n");
    EXPECT("RANDOMKEY", NIL);
    EXPECT("MSET one 1 two 2 three 3 \"t*\" 4", OK);
    EXPECT("KEYS *", "*4\r\n$3\r\none\r\n$2\r\nt*\r\n$5\r\nthree\r\n$3\r\ntwo\r\n");
    EXPECT("KEYS t*", "*3\r\n$2\r\nt*\r\n$5\r\nthree\r\n$3\r\ntwo\r\n");
    EXPECT("KEYS t\\*", "*1\r\n$2\r\nt*\r\n");
    EXPECT("KEYS *o*", "*2\r\n$3\r\none\r\n$3\r\ntwo\r\n");
    EXPECT("KEYS one", "*1\r\n$3\r\none\r\n");
    EXPECT("KEYS on", "*0\r\n");
    EXPECT("KEYS \"\"", "*0\r\n");
    EXPECT("SET \"\\xff\\xff\" 5", OK);
    EXPECT("SET \"\\xff\" 5", OK);
    EXPECT("KEYS \"\\xff*\"", "*2\r\n$1\r\n\xff\r\n$2\r\n\xff\xff\r\n");
    EXPECT("KEYS \"\\xff\\xff*\"", "*1\r\n$2\r\n\xff\xff\r\n");
    EXPECT("FLUSHDB X", SYNTAX);
    EXPECT("FLUSHALL ASYNC SYNC", SYNTAX);
    EXPECT("DEL one two three \"\\xff\" \"\\xff\\xff\"", ":5\r\n");
    EXPECT("RANDOMKEY", "$2\r\nt*\r\n");
    EXPECT("FLUSHDB async", OK);
    EXPECT("KEYS *", "*0\r\n");
    EXPECT("SET a 1", OK);
    EXPECT("FLUSHALL", OK);
    EXPECT("GET a", NIL);
}

/* ---- SCAN ---- */

/* Fills and scans: each key is named kNNN. */
static void fill(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char line[32];
        snprintf(line, sizeof line, "SET k%03u %u", i, i);
        EXPECT(line, OK);
    }
}

/* One step: returns the next cursor; the keys given are in the reply from *at on (commands_bulk). */
static uint64_t scan_next(uint64_t cursor, const char *options, size_t *at)
{
    char line[128];
    struct resp_argument bulk;
    snprintf(line, sizeof line, "SCAN %llu %s", (unsigned long long)cursor, options);
    assert_true(commands_line(&commands, line));
    assert_memory_equal(commands.reply.bytes, "*2\r\n", 4);
    *at = 0;
    assert_true(commands_bulk(&commands, at, &bulk));
    return strtoull(bulk.bytes, NULL, 10);
}

/* The same with keys of fill(): counts those given in seen[]. */
static uint64_t scan_step(uint64_t cursor, const char *options, unsigned *seen, unsigned *given)
{
    size_t at;
    struct resp_argument bulk;
    uint64_t next = scan_next(cursor, options, &at);
    *given = 0;
    while (commands_bulk(&commands, &at, &bulk)) {
        assert_int_equal(bulk.length, 4);
        seen[strtoul(bulk.bytes + 1, NULL, 10)]++;
        ++*given;
    }
    assert_int_equal(at, commands.reply.length);
    return next;
}

static unsigned scan_all(const char *options, unsigned *seen)
{
    uint64_t cursor = 0;
    unsigned steps = 0, given;
    do {
        cursor = scan_step(cursor, options, seen, &given);
        steps++;
    } while (cursor && steps < 2000);
    return steps;
}

static void scans(void **state)
{
    unsigned seen[1000] = {0}, given;
    EXPECT("SCAN 0", "*2\r\n$1\r\n0\r\n*0\r\n");
    fill(1000);
    /* Whole leaves: in some steps, but not in one. */
    assert_in_range(scan_all("", seen), 10, 100);
    assert_in_range(scan_all("COUNT 1", seen), 10, 1000);
    assert_in_range(scan_all("COUNT 333", seen), 2, 4);
    assert_int_equal(scan_all("COUNT 9223372036854775807", seen), 1);
    assert_in_range(scan_all("TYPE string MATCH *", seen), 10, 100);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(seen[i], 5);
    memset(seen, 0, sizeof seen);
    assert_in_range(scan_all("MATCH k05*", seen), 1, 2); /* only the range of that prefix is read */
    assert_in_range(scan_all("MATCH *7", seen), 10, 100);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(seen[i], (i / 10 == 5) + (i % 10 == 7));
    EXPECT("SCAN 0 TYPE hash", "*2\r\n$1\r\n0\r\n*0\r\n");
    EXPECT("SCAN 0 MATCH \"\"", "*2\r\n$1\r\n0\r\n*0\r\n");
    EXPECT("SCAN 0 COUNT 0", SYNTAX);
    EXPECT("SCAN 0 COUNT", SYNTAX);
    EXPECT("SCAN 0 COUNT x", NOT_INT);
    EXPECT("SCAN 0 SOME 1", SYNTAX);
    EXPECT("SCAN", ARITY("scan"));
    /* A cursor used twice goes on at the same place; with another pattern, in the part of its range after
     * that place. */
    uint64_t cursor = scan_step(0, "COUNT 500", seen, &given);
    unsigned first = given;
    assert_in_range(first, 500, 600);
    memset(seen, 0, sizeof seen);
    scan_step(cursor, "COUNT 20", seen, &given);
    scan_step(cursor, "COUNT 20", seen, &given);
    assert_int_equal(seen[first - 1], 0);
    assert_int_equal(seen[first], 2);
    assert_int_equal(scan_step(cursor, "MATCH k03*", seen, &given), 0);
    assert_int_equal(given, 0);
    assert_int_equal(scan_step(cursor, "MATCH k499", seen, &given), 0);
    assert_int_equal(given, 0);
    scan_step(cursor, "MATCH k4*", seen, &given);
    assert_int_equal(given, 0);
    assert_int_equal(scan_step(cursor, "MATCH k8* COUNT 300", seen, &given), 0);
    assert_int_equal(given, 100);
}

/* What Redis takes for a cursor is one here, and what it refuses is refused; a number that no call has given
 * is a place that is gone. */
static void scans_with_any_cursor(void **state)
{
    static const char *const good[] = {"0",
                                       "-1",
                                       "1",
                                       "+1",
                                       "01",
                                       "\"\"",
                                       "4194304",
                                       "9223372036854775807",
                                       "4398046511104",
                                       "18446744073709551615",
                                       "281474976710656"};
    static const char *const bad[] = {"x",
                                      "\" 1\"",
                                      "\"1 \"",
                                      "0x1",
                                      "+",
                                      "18446744073709551616",
                                      "99999999999999999999999999999999999999999999999999999999999999999"};
    unsigned seen[1000] = {0}, given;
    char line[160];
    fill(1000);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        size_t at = 0;
        struct resp_argument bulk = {0};
        snprintf(line, sizeof line, "SCAN %s COUNT 5", good[i]);
        assert_true(commands_line(&commands, line));
        assert_true(commands_bulk(&commands, &at, &bulk) && commands_bulk(&commands, &at, &bulk));
        assert_memory_equal(bulk.bytes, "k000", 4); /* from the beginning */
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "SCAN %s", bad[i]);
        EXPECT(line, "-ERR invalid cursor\r\n");
    }
    uint64_t cursor = scan_step(0, "COUNT 5", seen, &given);
    for (unsigned bit = 0; bit < 63; bit++) /* places that lie elsewhere, or tags of other leaves */
        scan_step(cursor ^ UINT64_C(1) << bit, "COUNT 5", seen, &given);
}

/* While keys are deleted and added, those that stay are given, and the scan ends. */
static void scans_of_a_changing_store(void **state)
{
    unsigned seen[3000] = {0}, given, steps = 0;
    uint64_t cursor = 0;
    char line[32];
    for (unsigned i = 1000; i < 3000; i += 2) {
        snprintf(line, sizeof line, "SET k%03u x", i % 1000);
        EXPECT(line, OK);
    }
    do {
        cursor = scan_step(cursor, "COUNT 7", seen, &given);
        for (unsigned i = 0; i < 20; i++) { /* odd keys come and go, before the scan and behind it */
            snprintf(line, sizeof line, "SET k%03u x", (20 * steps + 2 * i + 1) * 7 % 1000);
            EXPECT(line, OK);
            snprintf(line, sizeof line, "DEL k%03u", (20 * steps + 2 * i + 501) * 7 % 1000);
            assert_true(commands_line(&commands, line));
        }
        steps++;
    } while (cursor && steps < 500);
    assert_int_equal(cursor, 0);
    for (unsigned i = 0; i < 1000; i += 2)
        assert_true(seen[i] >= 1);
    assert_in_range(steps, 5, 200);
}

/* Leaves that a cursor names leave the index, and their memory is used again: what stays is given all the
 * same, if need be from the beginning on. */
static void scans_whose_place_is_gone(void **state)
{
    unsigned given, steps = 0, met = 0;
    char line[64];
    static unsigned seen[1000];
    memset(seen, 0, sizeof seen);
    fill(1000);
    uint64_t cursor = scan_step(0, "COUNT 300", seen, &given);
    EXPECT("DELRANGE [k010 (k990", ":980\r\n");
    uint64_t dead = scan_step(cursor, "COUNT 300", seen, &given); /* dead, with all that it says */
    assert_int_equal(dead, 0);
    assert_int_equal(given, 10);
    for (unsigned i = 0; i < 3000; i++) { /* leaves anew */
        snprintf(line, sizeof line, "SET z%05u x", i);
        EXPECT(line, OK);
    }
    do {
        size_t at;
        struct resp_argument bulk;
        cursor = scan_next(cursor, "COUNT 100", &at);
        while (commands_bulk(&commands, &at, &bulk))
            met += bulk.length == 6 && *bulk.bytes == 'z';
    } while (cursor && ++steps < 1000);
    assert_int_equal(cursor, 0);
    assert_int_equal(met, 3000);
}

/* Long keys that begin alike, as names with a prefix do, and differ in their last bytes only. */
static void scans_of_keys_that_begin_alike(void **state)
{
    static unsigned seen[5000];
    unsigned steps = 0;
    uint64_t cursor = 0;
    char line[400], prefix[240];
    memset(prefix, 'u', sizeof prefix - 1);
    prefix[sizeof prefix - 1] = 0;
    memset(seen, 0, sizeof seen);
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(line, sizeof line, "SET %s:%010u x", prefix, i * 7919 % 5000);
        EXPECT(line, OK);
    }
    do {
        size_t at;
        struct resp_argument bulk;
        cursor = scan_next(cursor, "COUNT 10 MATCH uuu*[0-9]", &at);
        assert_true(cursor < UINT64_C(1) << 53);
        while (commands_bulk(&commands, &at, &bulk))
            seen[strtoul(bulk.bytes + sizeof prefix, NULL, 10)]++;
    } while (cursor && ++steps < 1000);
    assert_int_equal(cursor, 0);
    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(seen[i], 1);
}

/* ---- ranges ---- */

#define BAD_BOUND                                                                                            \
    "-ERR min or max not valid string range item: a bound is [key (with that key), (key (without it), - or " \
    "+\r\n"

static void ranges(void **state)
{
    EXPECT("RANGE - +", "*0\r\n");
    EXPECT("MSET a 1 b 2 c 3 d 4", OK);
    EXPECT("RANGE - +", "*4\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n");
    EXPECT("RANGE [b [c", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n");
    EXPECT("RANGE (b [c KEYS", "*1\r\n$1\r\nc\r\n");
    EXPECT("RANGE [b (c", "*1\r\n$1\r\nb\r\n");
    EXPECT("RANGE (b (c", "*0\r\n");
    EXPECT("RANGE (a + LIMIT 2", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n");
    EXPECT("RANGE - + LIMIT 0", "*0\r\n");
    EXPECT("RANGE + - REV LIMIT 3", "*3\r\n$1\r\nd\r\n$1\r\nc\r\n$1\r\nb\r\n");
    EXPECT("RANGE (c [a REV", "*2\r\n$1\r\nb\r\n$1\r\na\r\n");
    EXPECT("RANGE [a (c REV", "*0\r\n");
    EXPECT("RANGE [c [a", "*0\r\n");
    EXPECT("RANGE - [b VALUES", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    EXPECT("RANGE - [b WITHVALUES", "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n");
    EXPECT("RANGE - [b withvalues rev limit 1", "*0\r\n");
    EXPECT("RANGE + [b withvalues rev limit 1", "*2\r\n$1\r\nd\r\n$1\r\n4\r\n");
    EXPECT("RANGE - [b WITHEXPIRY", "*4\r\n$1\r\na\r\n:-1\r\n$1\r\nb\r\n:-1\r\n");
    EXPECT("RANGE a [b", BAD_BOUND);
    EXPECT("RANGE - b", BAD_BOUND);
    EXPECT("RANGE - + LIMIT", SYNTAX);
    EXPECT("RANGE - + LIMIT x", NOT_INT);
    EXPECT("RANGE - + LIMIT -1", "-ERR value is out of range, must be positive\r\n");
    EXPECT("RANGE - + SOME", SYNTAX);
    EXPECT("RANGE -", ARITY("range"));
    EXPECT("RANGECOUNT - +", ":4\r\n");
    EXPECT("RANGECOUNT (a (d", ":2\r\n");
    EXPECT("RANGECOUNT + -", ":0\r\n");
    EXPECT("RANGECOUNT x -", BAD_BOUND);
    EXPECT("RANGECOUNT -", ARITY("rangecount"));
    EXPECT("NEXTKEY a", "$1\r\nb\r\n");
    EXPECT("NEXTKEY aa", "$1\r\nb\r\n");
    EXPECT("NEXTKEY \"\"", "$1\r\na\r\n");
    EXPECT("NEXTKEY d", NIL);
    EXPECT("PREVKEY d", "$1\r\nc\r\n");
    EXPECT("PREVKEY zz", "$1\r\nd\r\n");
    EXPECT("PREVKEY a", NIL);
    EXPECT("PREVKEY \"\"", NIL);
    EXPECT("NEXTKEY", ARITY("nextkey"));
    commands.reply.protocol = 3;
    EXPECT("RANGE - [b WITHVALUES", "*2\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$1\r\nb\r\n$1\r\n2\r\n");
    EXPECT("NEXTKEY d", "_\r\n");
    commands.reply.protocol = 2;
    EXPECT("SET \"b\\x00\" \"\"", OK);
    EXPECT("RANGE (b (c WITHVALUES", "*2\r\n$2\r\nb\0\r\n$0\r\n\r\n");
    EXPECT("PEXPIRE c 5", ":1\r\n");
    EXPECT("RANGE [c [c WITHEXPIRY WITHVALUES", "*3\r\n$1\r\nc\r\n$1\r\n3\r\n:1000005\r\n");
    EXPECT("RANGE [c [c VALUES WITHEXPIRY", "*2\r\n$1\r\n3\r\n:1000005\r\n");
    commands.reply.protocol = 3;
    EXPECT("RANGE [c [c WITHEXPIRY WITHVALUES", "*1\r\n*3\r\n$1\r\nc\r\n$1\r\n3\r\n:1000005\r\n");
    EXPECT("RANGE [c [c WITHEXPIRY", "*1\r\n*2\r\n$1\r\nc\r\n:1000005\r\n");
    commands.reply.protocol = 2;
    commands_now(&commands, 1000006);
    EXPECT("RANGECOUNT - +", ":4\r\n");
    EXPECT("NEXTKEY \"b\\x00\"", "$1\r\nd\r\n");
    EXPECT("DELRANGE [b +", ":3\r\n");
    EXPECT("DELRANGE [b +", ":0\r\n");
    EXPECT("DELRANGE + [b", ":0\r\n");
    EXPECT("DELRANGE q +", BAD_BOUND);
    EXPECT("RANGE - + WITHVALUES", "*2\r\n$1\r\na\r\n$1\r\n1\r\n");
}

/* ---- limits ---- */

static void replies_too_long(void **state)
{
    fill(500);
    commands.reply.reply_max = 2000;
    EXPECT("RANGE - +", "-ERR the range's reply is longer than 2000 bytes, which is this server's limit: use "
                        "LIMIT, and go on behind the last key\r\n");
    assert_true(commands_line(&commands, "KEYS *"));
    assert_memory_equal(commands.reply.bytes, "-ERR", 4);
    assert_true(commands_line(&commands, "RANGE - + LIMIT 150"));
    assert_memory_equal(commands.reply.bytes, "*150\r\n", 6);
    unsigned seen[1000] = {0};
    assert_in_range(scan_all("COUNT 500", seen), 4, 12); /* COUNT is a hint */
    for (unsigned i = 0; i < 500; i++)
        assert_int_equal(seen[i], 1);
    commands.reply.reply_max = 100;
    assert_true(
        commands_line(&commands, "MGET k001 k002 k003 k004 k005 k006 k007 k008 k009 k010 k011 k012 k013"));
    assert_memory_equal(commands.reply.bytes, "-ERR", 4);
    commands.reply.reply_max = 0;
}

/* Keys of `most` bytes are the longest. */
static void expect_longest(unsigned most)
{
    char key[256], line[400], reply[400];
    memset(key, 'k', sizeof key);
    snprintf(line, sizeof line, "SET %.*s v", (int)most, key);
    EXPECT(line, OK);
    snprintf(line, sizeof line, "GET %.*s", (int)most, key);
    EXPECT(line, "$1\r\nv\r\n");
    static const char *const words[] = {"GET %.*s",      "SET %.*s v",      "DEL %.*s",     "EXISTS %.*s a",
                                        "APPEND %.*s v", "INCR %.*s",       "TTL %.*s",     "EXPIRE %.*s 1",
                                        "GETDEL %.*s",   "GETEX %.*s EX 1", "MSET %.*s 1",  "MGET a %.*s",
                                        "PERSIST %.*s",  "SETNX %.*s v",    "GETSET %.*s v"};
    int length =
        snprintf(reply, sizeof reply, "-ERR a key has 1 to %u bytes, this one has %u\r\n", most, most + 1);
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(line, sizeof line, words[i], (int)most + 1, key);
#pragma GCC diagnostic pop
        commands_expect(&commands, line, reply, (size_t)length, __FILE__, __LINE__);
    }
    snprintf(line, sizeof line, "PREVKEY %.*s", 256, key);
    assert_true(commands_line(&commands, line));
    assert_int_equal(commands.reply.length, 6 + most + 2);
    snprintf(line, sizeof line, "NEXTKEY %.*s", 256, key);
    EXPECT(line, NIL);
    snprintf(line, sizeof line, "RANGECOUNT [%.*s +", 256, key);
    EXPECT(line, ":0\r\n");
    snprintf(line, sizeof line, "RANGECOUNT - (%.*s", 256, key);
    EXPECT(line, ":1\r\n");
    snprintf(line, sizeof line, "RANGECOUNT - (%.*s", (int)most + 1, key);
    EXPECT(line, ":1\r\n");
    snprintf(line, sizeof line, "RANGECOUNT (%.*s +", (int)most, key);
    EXPECT(line, ":0\r\n");
}

static void keys_too_long(void **state)
{
    expect_longest(255);
}

/* On a fabric that writes less atomically, as RDMA with a small MTU, inner nodes are smaller, and so are
 * keys. */
static void keys_on_small_packets(void **state)
{
    static const struct {
        uint32_t atomic_write, longest;
    } cases[] = {{1024, 144}, {2048, 255}, {4096, 255}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(commands_destroy(&commands));
        commands_create(&commands, 0, cases[i].atomic_write);
        expect_longest(cases[i].longest);
        char line[400], prefix[140];
        memset(prefix, 'p', sizeof prefix);
        for (unsigned n = 0; n < 2000; n++) { /* inner nodes of some levels */
            snprintf(line, sizeof line, "SET %.*s%04u %u", (int)sizeof prefix, prefix, n, n);
            EXPECT(line, OK);
        }
        snprintf(line, sizeof line, "RANGECOUNT [%.*s +", (int)sizeof prefix, prefix);
        EXPECT(line, ":2000\r\n");
        snprintf(line, sizeof line, "GET %.*s1234", (int)sizeof prefix, prefix);
        EXPECT(line, "$4\r\n1234\r\n");
    }
}

static void hits_are_counted(void **state)
{
    static const char *const reads[] = {"GET %s",  "STRLEN %s", "GETRANGE %s 0 1", "EXISTS %s",   "TTL %s",
                                        "TYPE %s", "MGET %s",   "GETEX %s",        "SET %s v GET"};
    EXPECT("SET there v", OK);
    for (unsigned i = 0; i < sizeof reads / sizeof *reads; i++)
        for (unsigned there = 0; there < 2; there++) {
            char line[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(line, sizeof line, reads[i], there ? "there" : "missing");
#pragma GCC diagnostic pop
            assert_true(commands_line(&commands, line));
            assert_int_equal(commands.hits, there);
            assert_int_equal(commands.misses, !there);
        }
}

/* With a full pool writes fail with an error that says so, nothing is lost, and writes succeed when there is
 * room again. */
static void full_pool(void **state)
{
    struct resp_argument arguments[] = {{"set", 3}, {NULL, 0}, {NULL, 300000}, {"NX", 2}};
    char *value = malloc(300000), key[16];
    unsigned stored = 0;
    commands_destroy(&commands);
    commands_create(&commands, UINT64_C(24) << 20, 0);
    assert_non_null(value);
    memset(value, 'x', 300000);
    arguments[1].bytes = key;
    arguments[2].bytes = value;
    for (; stored < 1000; stored++) {
        arguments[1].length = (size_t)snprintf(key, sizeof key, "k%u", stored);
        commands_run(&commands, arguments, stored % 2 ? 3 : 4);
        if (*commands.reply.bytes == '-')
            break;
    }
    assert_in_range(stored, 50, 170);
    assert_memory_equal(commands.reply.bytes, "-OOM ", 5);
    char line[64];
    snprintf(line, sizeof line, "EXISTS k%u", stored);
    EXPECT(line, ":0\r\n");
    arguments[0] = (struct resp_argument){"mset", 4};
    commands_run(&commands, arguments, 3);
    assert_memory_equal(commands.reply.bytes, "-OOM ", 5);
    arguments[0] = (struct resp_argument){"append", 6};
    commands_run(&commands, arguments, 3);
    assert_memory_equal(commands.reply.bytes, "-OOM ", 5);
    EXPECT("GETRANGE k7 299998 -1", "$2\r\nxx\r\n");
    EXPECT("SET short v", OK);
    EXPECT("DEL k0 k1 k2 k3 k4 k5 k6 k7 k8 k9", ":10\r\n");
    commands_run(&commands, arguments, 3);
    EXPECT(line, ":1\r\n");
    free(value);
}

/* docs/resp.md names every command, those about the server too. */
static void all_are_documented(void **state)
{
    static const struct server_command *const tables[] = {server_string_commands, server_bit_commands,
                                                          server_key_commands, server_range_commands,
                                                          server_admin_commands};
    static char text[65536];
    FILE *file = fopen(DOCUMENT, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (unsigned t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct server_command *command = tables[t]; command->name; command++) {
            char name[40];
            snprintf(name, sizeof name, "`%s`", command->name);
            if (!strcasestr(text, name))
                fail_msg("%s is not in %s", name, DOCUMENT);
            assert_true(command->summary && *command->summary);
        }
}

/* The table's answer is that of a comparison with all names, letters of either case. */
static const struct server_command *named(const char *name, size_t length)
{
    for (unsigned i = 0; i < command_table_count(commands.table); i++) {
        const struct server_command *command = command_table_at(commands.table, i);
        if (strlen(command->name) == length && !memchr(name, 0, length) &&
            !strncasecmp(command->name, name, length))
            return command;
    }
    return NULL;
}

/* Every name in either case, and every name with any byte of it replaced by another one. */
static void names_are_told_apart(void **state)
{
    (void)state;
    for (unsigned i = 0; i < command_table_count(commands.table); i++) {
        char name[SERVER_COMMAND_NAME_MAX + 2] = {0};
        const struct server_command *command = command_table_at(commands.table, i);
        const size_t length = strlen(command->name);
        unsigned index = UINT32_MAX;
        for (size_t j = 0; j < length; j++)
            name[j] = (char)(j % 2 ? toupper(command->name[j]) : command->name[j]);
        assert_ptr_equal(command_table_find(commands.table, name, length, &index), command);
        assert_int_equal(index, i);
        assert_ptr_equal(command_table_find(commands.table, name, length + 1, NULL), NULL); /* a zero byte */
        for (size_t j = 0; j < length; j++) {
            const char right = name[j];
            for (unsigned byte = 0; byte < 256; byte++) {
                name[j] = (char)byte;
                assert_ptr_equal(command_table_find(commands.table, name, length, NULL), named(name, length));
            }
            name[j] = right;
            assert_ptr_equal(command_table_find(commands.table, name, j, NULL), named(name, j));
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(get_and_set),
        TEST(set_options),
        TEST(getex),
        TEST(many_keys),
        TEST(many_batches),
        TEST(parts),
        TEST(integers),
        TEST(floats),
        TEST(expiry),
        TEST(expiry_conditions),
        TEST(expiry_of_long_values),
        TEST(keys_and_patterns),
        TEST(scans),
        TEST(scans_of_a_changing_store),
        TEST(scans_with_any_cursor),
        TEST(scans_whose_place_is_gone),
        TEST(scans_of_keys_that_begin_alike),
        TEST(ranges),
        TEST(replies_too_long),
        TEST(keys_too_long),
        TEST(keys_on_small_packets),
        TEST(hits_are_counted),
        TEST(full_pool),
        cmocka_unit_test(all_are_documented),
        TEST(names_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
