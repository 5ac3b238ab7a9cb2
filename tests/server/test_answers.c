/*
 * test_answers.c - answers about the server and its connections: the same bytes as a real redis-server's,
 * where there is one to compare with, and what only this server says. SLOWLOG, MULTI, CLIENT, COMMAND,
 * figures that are of now.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "redis.h"
#include "serving.h"

static struct serving serving;
static struct redis redis, ours;
static bool redis_there;

/* ---- the same as Redis ---- */

/* Sent in this order over one connection each. */
static const char *const same[] = {
    /* transactions: all but the errors of the commands themselves */
    "EXEC", "DISCARD", "MULTI", "MULTI", "WATCH a", "nope", "set", "EXEC", "EXEC", "MULTI", "DISCARD",
    "MULTI x", "MULTI", "RESET", "EXEC", "WATCH", "UNWATCH", "UNWATCH 1", "MULTI", "set", "DISCARD",
    /* errors */
    "CLIENT", "CLIENT NOPE", "CLIENT ID 2", "CLIENT KILL TYPE wrong", "CLIENT LIST TYPE wrong",
    "CLIENT LIST TYPE replica", "CLIENT LIST ID x", "CLIENT LIST ID", "CLIENT KILL ID 0",
    "CLIENT KILL USER nope", "CLIENT KILL FOO bar", "CLIENT KILL SKIPME maybe", "CLIENT KILL TYPE",
    "CLIENT KILL TYPE slave", "CLIENT KILL TYPE pubsub", "WAIT -1 abc", "WAIT abc 1", "WAIT -1 1",
    "WAIT 0 -1", "WAIT 0 0", "CONFIG SET timeout x", "CONFIG SET timeout 010", "CONFIG SET timeout -1",
    "CONFIG SET timeout 1.5", "CONFIG SET timeout 99999999999", "CONFIG SET timeout", "CONFIG SET nope 1",
    "CONFIG SET timeout 1 timeout 2", "CONFIG SET maxclients x", "CONFIG SET maxclients 0",
    "CONFIG SET databases 3", "CONFIG SET proto-max-bulk-len x", "CONFIG SET proto-max-bulk-len 1mb",
    "CONFIG GET proto-max-bulk-len", "CONFIG SET proto-max-bulk-len 2m", "CONFIG GET proto-max-bulk-len",
    "CONFIG GET slowlog-max-len", "CONFIG GET slowlog-log*", "CONFIG SET slowlog-log-slower-than x",
    "CONFIG SET slowlog-log-slower-than -5", "CONFIG SET slowlog-max-len x", "SHUTDOWN foo",
    "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT", "SHUTDOWN ABORT NOW", "SELECT x", "SELECT 16", "SELECT -1",
    "SLOWLOG", "SLOWLOG GET -2", "SLOWLOG GET x", "SLOWLOG GET 1 2", "SLOWLOG FOO", "SLOWLOG HELP",
    "SLOWLOG LEN x", "OBJECT FREQ a", "COMMAND INFO nope", "COMMAND DOCS nope", "COMMAND GETKEYS",
    "COMMAND GETKEYS nope a", "COMMAND GETKEYS ping a", "COMMAND GETKEYS get a b",
    "COMMAND GETKEYS mset a b c d", "COMMAND GETKEYS memory usage k", "COMMAND GETKEYS object encoding k",
    "COMMAND LIST foo", "COMMAND LIST FILTERBY foo x", "COMMAND LIST FILTERBY PATTERN",
    "COMMAND LIST FILTERBY MODULE x", "COMMAND LIST FILTERBY ACLCAT nope",
    "COMMAND LIST FILTERBY ACLCAT @read", "COMMAND GETKEYSANDFLAGS", "COMMAND GETKEYSANDFLAGS ping",
    "COMMAND GETKEYSANDFLAGS nope a", "COMMAND GETKEYSANDFLAGS ping a", "COMMAND GETKEYSANDFLAGS get a b",
    "COMMAND GETKEYSANDFLAGS get a", "COMMAND GETKEYSANDFLAGS set a b", "COMMAND GETKEYSANDFLAGS set a b get",
    "COMMAND GETKEYSANDFLAGS mset a b c d", "COMMAND GETKEYSANDFLAGS bitop and d a b",
    "COMMAND GETKEYSANDFLAGS bitop not d", "COMMAND GETKEYS bitop and d a b",
    "COMMAND GETKEYSANDFLAGS bitfield a get u8 0", "COMMAND GETKEYSANDFLAGS bitfield a set u8 0 1",
    "COMMAND GETKEYSANDFLAGS del a b", "COMMAND GETKEYSANDFLAGS getex a",
    "COMMAND GETKEYSANDFLAGS object freq a", "COMMAND GETKEYS watch a b", "COMMAND GETKEYS memory nope a",
    "COMMAND INFO get \"client|list\" nope \"client|nope\"", "COMMAND INFO \"memory|usage\" mset scan",
    "COMMAND DOCS nope nope", "COMMAND DOCS \"client|nope\"",
    /* how values are kept */
    "SET a 1", "OBJECT ENCODING a", "MEMORY USAGE a SAMPLES -1", "MEMORY USAGE a SAMPLES x",
    "MEMORY USAGE a SAMPLES", "MEMORY USAGE a FOO 1", "MEMORY USAGE nope SAMPLES -1",
    "SET a -9223372036854775808", "OBJECT ENCODING a", "SET a 9223372036854775808", "OBJECT ENCODING a",
    "SET a -0", "OBJECT ENCODING a", "SET a 01", "OBJECT ENCODING a", "SET a \"\"", "OBJECT ENCODING a",
    "SET a 12345678901234567890123456789012345678901234", "OBJECT ENCODING a",
    "SET a 123456789012345678901234567890123456789012345", "OBJECT ENCODING a", "OBJECT ENCODING nope",
    /* scans */
    "SCAN x", "SCAN 0x1", "SCAN 18446744073709551616", "SCAN 0 COUNT 0", "SCAN 0 COUNT x", "SCAN 0 FOO x",
    /* passwords of any byte */
    "CONFIG SET requirepass \"a\\x00b\\nc\\xff\"", "AUTH \"a\\x00b\\nc\"", "AUTH \"a\\x00b\\nc\\xff\"",
    "AUTH default \"a\\x00b\\nc\\xff\"", "CONFIG SET requirepass \"\"", "AUTH x",
    /* the slow log: it has nothing, however busy the machine is */
    "CONFIG SET slowlog-log-slower-than -1", "SLOWLOG RESET", "SLOWLOG LEN", "SLOWLOG GET",
    "CONFIG SET slowlog-max-len 5"};

static void compare_same(void **state)
{
    (void)state;
    if (!redis_there)
        skip();
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        redis_say(&redis, same[i]);
        redis_say(&ours, same[i]);
        if (redis.length == ours.length && memcmp(redis.bytes, ours.bytes, redis.length) == 0)
            continue;
        fail_msg("%s\nredis: %.*s\nours:  %.*s", same[i], (int)redis.length, redis.bytes, (int)ours.length,
                 ours.bytes);
    }
}

/* The bulk strings of a flat array, from *at on. */
static bool next_name(const struct redis *reply, size_t *at, char *name, size_t size)
{
    const char *bytes = reply->bytes + *at, *end = reply->bytes + reply->length;
    if (*at == 0)
        bytes = (const char *)memchr(bytes, '\n', reply->length) + 1;
    if (bytes >= end)
        return false;
    size_t length = strtoul(bytes + 1, (char **)&bytes, 10);
    assert_true(length < size);
    memcpy(name, bytes + 2, length);
    name[length] = 0;
    *at = (size_t)(bytes + 2 + length + 2 - reply->bytes);
    return true;
}

/* Of every command and subcommand that Redis has too: arity, flags, keys, categories, tips. */
static void compare_commands(void **state)
{
    /* Those that consist of others do not have all of Redis's; three have notes about their keys there. */
    static const char different[] =
        " client command config debug memory object latency slowlog set getex bitfield ";
    struct redis list = {.fd = ours.fd};
    char name[80], line[120];
    unsigned compared = 0;
    size_t at = 0;
    (void)state;
    if (!redis_there)
        skip();
    redis_say(&list, "COMMAND LIST");
    redis_say(&redis, "HELLO 3");
    redis_say(&ours, "HELLO 3");
    while (next_name(&list, &at, name, sizeof name)) {
        snprintf(line, sizeof line, " %s ", name);
        if (strstr(different, line))
            continue;
        snprintf(line, sizeof line, "COMMAND INFO \"%s\"", name);
        redis_say(&redis, line);
        redis_say(&ours, line);
        if (strncmp(redis.bytes, "*1\r\n_", 5) == 0) /* Redis does not have it */
            continue;
        if (redis.length != ours.length || memcmp(redis.bytes, ours.bytes, redis.length) != 0)
            fail_msg("%s\nredis: %.*s\nours:  %.*s", line, (int)redis.length, redis.bytes, (int)ours.length,
                     ours.bytes);
        compared++;
    }
    assert_in_range(compared, 90, 150);
    redis_say(&redis, "HELLO 2");
    redis_say(&ours, "HELLO 2");
    free(list.bytes);
}

/* ---- what only this server says ---- */

static void expect(const char *line, const char *reply)
{
    redis_say(&ours, line);
    if (ours.length != strlen(reply) || memcmp(ours.bytes, reply, ours.length) != 0)
        fail_msg("%s\nwanted: %s\ngot:    %.*s", line, reply, (int)ours.length, ours.bytes);
}

/* The reply to the line has this text in it. */
static void expect_in(const char *line, const char *text)
{
    redis_say(&ours, line);
    if (!memmem(ours.bytes, ours.length, text, strlen(text)))
        fail_msg("%s\nwanted: ... %s ...\ngot:    %.*s", line, text, (int)ours.length, ours.bytes);
}

/* Nothing of a transaction happens, in one pipeline as step by step; other connections are not concerned. */
static void transactions(void **state)
{
    static const char refused[] =
        "-ERR transactions are not supported: 'set' was not done, as nothing is until "
        "EXEC or DISCARD\r\n";
    char wanted[1024];
    int fd = serving_connect(&serving);
    (void)state;
    assert_true(
        serving_say(fd, "SET t before\r\nMULTI\r\nSET t after\r\nSET u after\r\nEXEC\r\nMGET t u\r\n"));
    snprintf(wanted, sizeof wanted,
             "+OK\r\n+OK\r\n%s%s-EXECABORT Transaction discarded because of previous errors.\r\n"
             "*2\r\n$6\r\nbefore\r\n$-1\r\n",
             refused, refused);
    serving_expect(fd, wanted);
    assert_true(
        serving_say(fd, "MULTI\r\nSET t after\r\nGET t\r\nSHUTDOWN NOSAVE\r\nFLUSHALL\r\nSELECT 0\r\n"));
    snprintf(wanted, sizeof wanted, "+OK\r\n%s", refused);
    serving_expect(fd, wanted);
    expect("GET t", "$6\r\nbefore\r\n");
    for (unsigned i = 0; i < 4; i++) {
        char line[160] = "";
        for (size_t at = 0; !at || line[at - 1] != '\n'; at++)
            assert_true(serving_receive(fd, line + at, 1));
        assert_memory_equal(line, "-ERR transactions", 17);
    }
    assert_true(
        serving_say(fd, "DISCARD\r\nGET t\r\nMULTI\r\nRESET\r\nGET t\r\nWATCH t\r\nMULTI\r\nQUIT\r\n"));
    serving_expect(fd, "+OK\r\n$6\r\nbefore\r\n+OK\r\n+RESET\r\n$6\r\nbefore\r\n"
                       "-ERR WATCH is not supported, as transactions are not\r\n+OK\r\n+OK\r\n");
    char rest[16];
    assert_int_equal(serving_expect_end(fd, rest, sizeof rest), 0);
    close(fd);
}

static void clients(void **state)
{
    (void)state;
    expect_in("CLIENT SETNAME me", "+OK");
    expect_in("CLIENT LIST", " qbuf=13 ");
    expect_in("CLIENT LIST", " cmd=client|list ");
    expect_in("CLIENT LIST", " argv-mem=10 ");
    expect_in("CLIENT INFO", " cmd=client|info ");
    int fd = serving_connect(&serving);
    assert_true(serving_say(fd, "CLIENT SETNAME other\r\nMULTI\r\n"));
    serving_expect(fd, "+OK\r\n+OK\r\n");
    expect_in("CLIENT LIST", " name=other ");
    expect_in("CLIENT LIST", " flags=x db=0 sub=0 psub=0 ssub=0 multi=0 qbuf=0 ");
    close(fd);
}

static void documents(void **state)
{
    struct redis list = {.fd = ours.fd};
    char name[80], line[120];
    size_t at = 0;
    (void)state;
    redis_say(&list, "COMMAND LIST");
    redis_say(&ours, "HELLO 3");
    while (
        next_name(&list, &at, name, sizeof name)) { /* each is there, and of arguments where it takes some */
        snprintf(line, sizeof line, "COMMAND DOCS \"%s\"", name);
        redis_say(&ours, line);
        assert_memory_equal(ours.bytes, "%1\r\n$", 5);
        assert_null(memmem(ours.bytes, ours.length, "$5\r\nsince\r\n$0", 14));
        assert_null(memmem(ours.bytes, ours.length, "$7\r\nsummary\r\n$0", 16));
        snprintf(line, sizeof line, "COMMAND INFO \"%s\"", name);
        redis_say(&ours, line);
        assert_null(memmem(ours.bytes, ours.length, "*1\r\n_", 5));
    }
    expect(
        "COMMAND DOCS range",
        "%1\r\n$5\r\nrange\r\n%4\r\n$7\r\nsummary\r\n$43\r\nKeys or values between two bounds, in order\r\n"
        "$5\r\nsince\r\n$5\r\n0.1.0\r\n$5\r\ngroup\r\n$5\r\nrange\r\n$9\r\narguments\r\n*6\r\n"
        "%2\r\n$4\r\nname\r\n$5\r\nstart\r\n$4\r\ntype\r\n$6\r\nstring\r\n"
        "%2\r\n$4\r\nname\r\n$3\r\nend\r\n$4\r\ntype\r\n$6\r\nstring\r\n"
        "%4\r\n$4\r\nname\r\n$5\r\ncount\r\n$4\r\ntype\r\n$7\r\ninteger\r\n$5\r\ntoken\r\n$5\r\nLIMIT\r\n"
        "$5\r\nflags\r\n~1\r\n+optional\r\n"
        "%4\r\n$4\r\nname\r\n$3\r\nrev\r\n$4\r\ntype\r\n$10\r\npure-token\r\n$5\r\ntoken\r\n$3\r\nREV\r\n"
        "$5\r\nflags\r\n~1\r\n+optional\r\n"
        "%4\r\n$4\r\nname\r\n$4\r\nwhat\r\n$4\r\ntype\r\n$5\r\noneof\r\n$5\r\nflags\r\n~1\r\n+optional\r\n"
        "$9\r\narguments\r\n*3\r\n"
        "%3\r\n$4\r\nname\r\n$4\r\nkeys\r\n$4\r\ntype\r\n$10\r\npure-token\r\n$5\r\ntoken\r\n$4\r\nKEYS\r\n"
        "%3\r\n$4\r\nname\r\n$6\r\nvalues\r\n$4\r\ntype\r\n$10\r\npure-token\r\n$5\r\ntoken\r\n$6\r\nVALUES"
        "\r\n"
        "%3\r\n$4\r\nname\r\n$10\r\nwithvalues\r\n$4\r\ntype\r\n$10\r\npure-token\r\n$5\r\ntoken\r\n$10\r\n"
        "WITHVALUES\r\n"
        "%4\r\n$4\r\nname\r\n$10\r\nwithexpiry\r\n$4\r\ntype\r\n$10\r\npure-token\r\n$5\r\ntoken\r\n$10\r\n"
        "WITHEXPIRY\r\n$5\r\nflags\r\n~1\r\n+optional\r\n");
    /* The destination is the first of its kinds of keys, the sources are the second. */
    expect(
        "COMMAND DOCS bitop",
        "%1\r\n$5\r\nbitop\r\n%4\r\n$7\r\nsummary\r\n$57\r\nSets a key to AND, OR, XOR or NOT of the values "
        "of others\r\n$5\r\nsince\r\n$5\r\n2.6.0\r\n$5\r\ngroup\r\n$6\r\nbitmap\r\n$9\r\narguments\r\n*3\r\n"
        "%2\r\n$4\r\nname\r\n$9\r\noperation\r\n$4\r\ntype\r\n$6\r\nstring\r\n"
        "%3\r\n$4\r\nname\r\n$7\r\ndestkey\r\n$4\r\ntype\r\n$3\r\nkey\r\n$14\r\nkey_spec_index\r\n:0\r\n"
        "%4\r\n$4\r\nname\r\n$3\r\nkey\r\n$4\r\ntype\r\n$3\r\nkey\r\n$14\r\nkey_spec_index\r\n:1\r\n"
        "$5\r\nflags\r\n~1\r\n+multiple\r\n");
    redis_say(&ours, "HELLO 2");
    char head[16];
    redis_say(&ours, "COMMAND COUNT");
    int count = atoi(ours.bytes + 1);
    redis_say(&ours, "COMMAND");
    snprintf(head, sizeof head, "*%d\r\n*10\r\n", count);
    assert_memory_equal(ours.bytes, head, strlen(head));
    redis_say(&ours, "COMMAND DOCS");
    snprintf(head, sizeof head, "*%d\r\n$", 2 * count);
    assert_memory_equal(ours.bytes, head, strlen(head));
    expect("COMMAND LIST FILTERBY PATTERN slow*",
           "*5\r\n$7\r\nslowlog\r\n$11\r\nslowlog|get\r\n$11\r\nslowlog|len\r\n$13\r\nslowlog|reset\r\n"
           "$12\r\nslowlog|help\r\n");
    expect("COMMAND LIST FILTERBY ACLCAT transaction",
           "*5\r\n$5\r\nmulti\r\n$4\r\nexec\r\n$7\r\ndiscard\r\n$5\r\nwatch\r\n$7\r\nunwatch\r\n");
    expect("COMMAND GETKEYS range - +", "-ERR The command has no key arguments\r\n");
    free(list.bytes);
}

static void slow_log(void **state)
{
    (void)state;
    char line[1200] = "MSET";
    for (unsigned i = 0; i < 40; i++)
        strcat(line, " x");
    expect("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 4", "+OK\r\n");
    expect("SLOWLOG RESET", "+OK\r\n");
    redis_say(&ours, "CLIENT SETNAME me");
    redis_say(&ours, line);
    expect_in("SLOWLOG GET 1", "*32\r\n$4\r\nMSET\r\n");
    redis_say(&ours, line);
    expect_in("SLOWLOG GET 1", "$1\r\nx\r\n$23\r\n... (10 more arguments)\r\n$");
    expect_in("SLOWLOG GET 1", "$2\r\nme\r\n");
    assert_true(ours.bytes[1] == '1');
    memset(line, 'y', 209);
    memcpy(line, "ECHO ", 5);
    line[205] = 0;
    redis_say(&ours, line);
    expect_in("SLOWLOG GET -1", "yyy... (72 more bytes)\r\n");
    redis_say(&ours, "AUTH name \"secret word\"");
    redis_say(&ours, "HELLO 2 AUTH name \"secret word\"");
    redis_say(&ours, "CONFIG SET timeout 0 requirepass \"\"");
    redis_say(&ours, "SLOWLOG GET -1");
    assert_int_equal(ours.bytes[1], '4'); /* as many as it may have */
    assert_null(memmem(ours.bytes, ours.length, "secret", 6));
    assert_non_null(memmem(ours.bytes, ours.length, "(redacted)", 10));
    redis_say(&ours, "nope");
    redis_say(&ours, "set");
    redis_say(&ours, "SLOWLOG GET 1"); /* what was refused at once did not run */
    assert_non_null(memmem(ours.bytes, ours.length, "$7\r\nSLOWLOG\r\n", 13));
    /* A pipeline's commands, done together or not, each are an entry. */
    expect("CONFIG SET slowlog-max-len 100", "+OK\r\n");
    expect("SLOWLOG RESET", "+OK\r\n");
    int fd = serving_connect(&serving);
    assert_true(serving_say(fd, "SET p 1\r\nSET q 1\r\nGET p\r\nGET q\r\nSTRLEN p\r\n"));
    serving_expect(fd, "+OK\r\n+OK\r\n$1\r\n1\r\n$1\r\n1\r\n:1\r\n");
    expect("SLOWLOG LEN", ":6\r\n");
    expect("CONFIG SET slowlog-log-slower-than -1", "+OK\r\n");
    expect("SLOWLOG RESET", "+OK\r\n");
    assert_true(serving_say(fd, "GET p\r\n"));
    serving_expect(fd, "$1\r\n1\r\n");
    expect("SLOWLOG LEN", ":0\r\n");
    expect("SLOWLOG GET", "*0\r\n");
    expect("CONFIG SET slowlog-max-len 10001", "-ERR CONFIG SET failed (possibly related to argument "
                                               "'slowlog-max-len') - argument must be between 0 "
                                               "and 10000 inclusive\r\n");
    expect("CONFIG SET slowlog-log-slower-than 3600000000", "+OK\r\n");
    expect("PING", "+PONG\r\n");
    expect("SLOWLOG LEN", ":0\r\n");
    close(fd);
}

/* Readers of the log, and those who fill and empty it, at once. */
static void slow_log_together(void **state)
{
    enum { CLIENTS = 8, ROUNDS = 300 };
    struct redis clients[CLIENTS] = {{.fd = 0}};
    (void)state;
    expect("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 50", "+OK\r\n");
    for (unsigned i = 0; i < CLIENTS; i++)
        clients[i].fd = serving_connect(&serving);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < CLIENTS; i++) /* all are under way, on two threads */
            assert_true(
                serving_say(clients[i].fd, i == 0 ? "SLOWLOG RESET\r\n" : "SLOWLOG GET -1\r\nPING\r\n"));
        serving_expect(clients[0].fd, "+OK\r\n");
        for (unsigned i = 1; i < CLIENTS; i++) {
            clients[i].length = 0;
            redis_receive(&clients[i], 2);
            assert_memory_equal(clients[i].bytes + clients[i].length - 7, "+PONG\r\n", 7);
        }
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        close(clients[i].fd);
        free(clients[i].bytes);
    }
    expect("CONFIG SET slowlog-log-slower-than 10000 slowlog-max-len 128", "+OK\r\n");
}

static uint64_t used_memory(void)
{
    redis_say(&ours, "INFO memory");
    const char *at = memmem(ours.bytes, ours.length, "used_memory:", 12);
    assert_non_null(at);
    return strtoull(at + 12, NULL, 10);
}

/* Not those of a second ago. (Blocks come from the memory node some at a time.) */
static void figures_of_now(void **state)
{
    static char line[60000];
    (void)state;
    expect("FLUSHALL", "+OK\r\n");
    memset(line, 'v', sizeof line - 1);
    memcpy(line, "SET big00 ", 10);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t before = used_memory();
        for (unsigned j = 0; j < 40; j++) {
            line[7] = (char)('0' + i);
            line[8] = (char)('0' + j);
            expect(line, "+OK\r\n");
        }
        assert_true(used_memory() >= before + 1200000);
    }
}

static void shutdown_without_a_file(void **state)
{
    (void)state;
    expect(
        "SHUTDOWN SAVE",
        "-ERR Errors trying to SHUTDOWN: there is no file to save to. SHUTDOWN NOSAVE stops this server\r\n");
    expect(
        "SHUTDOWN NOW SAVE",
        "-ERR Errors trying to SHUTDOWN: there is no file to save to. SHUTDOWN NOSAVE stops this server\r\n");
    expect("PING", "+PONG\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compare_same),
        cmocka_unit_test(compare_commands),
        cmocka_unit_test(documents),
        cmocka_unit_test(transactions),
        cmocka_unit_test(clients),
        cmocka_unit_test(slow_log),
        cmocka_unit_test(slow_log_together),
        cmocka_unit_test(figures_of_now),
        cmocka_unit_test(shutdown_without_a_file),
    };
    redis_there = redis_start(&redis);
    if (!redis_there)
        printf("there is no redis-server of version 7 here to compare with\n");
    serving_prepare(&serving, 2);
    serving_start(&serving);
    ours.fd = serving_connect(&serving);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close(ours.fd);
    free(ours.bytes);
    serving_end(&serving);
    redis_stop(&redis);
    return failed;
}
