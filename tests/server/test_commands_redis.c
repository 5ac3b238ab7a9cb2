/*
 * test_commands_redis.c - random commands, sent to a real redis-server and run here: the replies must be
 * equal byte for byte, in RESP2 and in RESP3, errors included. Redis is started by the test on a Unix socket
 * in a temporary folder; where it is not installed the test says so and is skipped.
 *
 * Few keys, so that commands meet each other's values, and values that are numbers, nearly numbers and bytes.
 * Times are far away or long past. KEYS is compared as a set, SCAN run to its end and compared with KEYS,
 * times that depend on the clock within some seconds. BANYAN_SEED replays a run, BANYAN_ROUNDS makes it
 * longer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/random.h"
#include "commands.h"
#include "redis.h"

#define SKIP_STATUS    77 /* what meson shows as skipped */
#define CLOCK_SLACK_MS 5000

/* ---- random commands ---- */

#define LITERAL(text)                                                                                        \
    {                                                                                                        \
        text, sizeof(text) - 1                                                                               \
    }
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct resp_argument keys[] = {
    LITERAL("a"),        LITERAL("b"),
    LITERAL("c"),        LITERAL("key:1"),
    LITERAL("key:10"),   LITERAL("k\0b"),
    LITERAL("\xff\xfe"), LITERAL("a longer key, of more than sixteen bytes")};
static const struct resp_argument values[] = {
    LITERAL(""),
    LITERAL("0"),
    LITERAL("1"),
    LITERAL("-7"),
    LITERAL("10"),
    LITERAL("007"),
    LITERAL("+1"),
    LITERAL("-0"),
    LITERAL("9223372036854775807"),
    LITERAL("-9223372036854775808"),
    LITERAL("9223372036854775808"),
    LITERAL("4611686018427387904"),
    LITERAL("3.14"),
    LITERAL("-0.5"),
    LITERAL("1e3"),
    LITERAL("5.0e-20"),
    LITERAL("1e4932"),
    LITERAL("1e5000"),
    LITERAL("-1e4932"),
    LITERAL("1e-5000"),
    LITERAL("inf"),
    LITERAL("-inf"),
    LITERAL("nan"),
    LITERAL("0x10"),
    LITERAL("0.1"),
    LITERAL("1234567.0000001"),
    LITERAL(" 1"),
    LITERAL("1 "),
    LITERAL("1\0"),
    LITERAL("abc"),
    LITERAL("Hello World"),
    LITERAL("\r\n\0\xff"),
    LITERAL("exactly 16 bytes"),
    LITERAL("seventeen bytes !"),
    LITERAL("a value that does not fit in a slot of the index, and so has a record of its own somewhere")};
static const struct resp_argument numbers[] = {LITERAL("0"),
                                               LITERAL("1"),
                                               LITERAL("-1"),
                                               LITERAL("2"),
                                               LITERAL("5"),
                                               LITERAL("-3"),
                                               LITERAL("100"),
                                               LITERAL("-100"),
                                               LITERAL("300"),
                                               LITERAL("9223372036854775807"),
                                               LITERAL("-9223372036854775808"),
                                               LITERAL("9223372036854775808"),
                                               LITERAL("x"),
                                               LITERAL(""),
                                               LITERAL("1.5"),
                                               LITERAL("01")};
static const struct resp_argument past[] = {LITERAL("0"),
                                            LITERAL("-1"),
                                            LITERAL("-1000"),
                                            LITERAL("x"),
                                            LITERAL(""),
                                            LITERAL("9223372036854775807"),
                                            LITERAL("-9223372036854775808"),
                                            LITERAL("9223372036854775"),
                                            LITERAL("1.5")};
static const struct resp_argument patterns[] = {
    LITERAL("*"),        LITERAL("a*"),     LITERAL("key:*"),   LITERAL("?"),   LITERAL("[ab]"),
    LITERAL("[^a]"),     LITERAL("k?b"),    LITERAL("*1*"),     LITERAL("a"),   LITERAL("\xff*"),
    LITERAL("k[\0-z]*"), LITERAL("*[0-9]"), LITERAL("key\\:1"), LITERAL("[a-"), LITERAL("")};
static const struct resp_argument set_options[] = {LITERAL("NX"),      LITERAL("xx"),      LITERAL("GET"),
                                                   LITERAL("KEEPTTL"), LITERAL("PERSIST"), LITERAL("LT"),
                                                   LITERAL("ex"),      LITERAL("")};
static const struct resp_argument set_times[] = {LITERAL("EX"), LITERAL("px"), LITERAL("EXAT"),
                                                 LITERAL("PXAT")};
static const struct resp_argument expire_options[] = {LITERAL("NX"), LITERAL("XX"), LITERAL("GT"),
                                                      LITERAL("LT"), LITERAL("gt"), LITERAL("QQ")};
static const struct resp_argument bit_offsets[] = {LITERAL("0"),
                                                   LITERAL("1"),
                                                   LITERAL("7"),
                                                   LITERAL("8"),
                                                   LITERAL("100"),
                                                   LITERAL("130"),
                                                   LITERAL("5"),
                                                   LITERAL("63"),
                                                   LITERAL("1000"),
                                                   LITERAL("77777"),
                                                   LITERAL("-1"),
                                                   LITERAL("x"),
                                                   LITERAL("#1"),
                                                   LITERAL("#3"),
                                                   LITERAL("#x"),
                                                   LITERAL("4294967296"),
                                                   LITERAL(""),
                                                   LITERAL("12"),
                                                   LITERAL("9223372036854775807"),
                                                   LITERAL("31")};
static const struct resp_argument bit_values[] = {LITERAL("0"), LITERAL("1"), LITERAL("1"), LITERAL("0"),
                                                  LITERAL("1"), LITERAL("2"), LITERAL("x"), LITERAL("-1")};
static const struct resp_argument indexes[] = {
    LITERAL("0"),  LITERAL("1"),     LITERAL("2"),       LITERAL("5"),
    LITERAL("9"),  LITERAL("17"),    LITERAL("-1"),      LITERAL("-2"),
    LITERAL("-9"), LITERAL("-1000"), LITERAL("100"),     LITERAL("x"),
    LITERAL("8"),  LITERAL("15"),    LITERAL("1000000"), LITERAL("9223372036854775807")};
static const struct resp_argument index_units[] = {LITERAL("BIT"), LITERAL("byte"), LITERAL("bit"),
                                                   LITERAL("BYTE"), LITERAL("bits")};
static const struct resp_argument field_names[] = {LITERAL("GET"), LITERAL("SET"), LITERAL("incrby"),
                                                   LITERAL("PUT")};
static const struct resp_argument bit_operations[] = {
    LITERAL("AND"), LITERAL("or"),  LITERAL("XOR"), LITERAL("NOT"),  LITERAL("and"),
    LITERAL("Or"),  LITERAL("xor"), LITERAL("not"), LITERAL("nand"), LITERAL("")};
static const struct resp_argument field_overflows[] = {LITERAL("OVERFLOW"), LITERAL("overflow")};
static const struct resp_argument overflow_kinds[] = {LITERAL("WRAP"), LITERAL("sat"),  LITERAL("FAIL"),
                                                      LITERAL("SAT"),  LITERAL("fail"), LITERAL("none")};
static const struct resp_argument field_types[] = {
    LITERAL("u8"), LITERAL("i8"),  LITERAL("u1"),  LITERAL("i1"),  LITERAL("u63"), LITERAL("i64"),
    LITERAL("u5"), LITERAL("i13"), LITERAL("u32"), LITERAL("i63"), LITERAL("u64"), LITERAL("i65"),
    LITERAL("u0"), LITERAL("x8"),  LITERAL("i"),   LITERAL("u16"), LITERAL("i2")};
static const struct resp_argument field_values[] = {LITERAL("0"),
                                                    LITERAL("1"),
                                                    LITERAL("-1"),
                                                    LITERAL("127"),
                                                    LITERAL("128"),
                                                    LITERAL("255"),
                                                    LITERAL("256"),
                                                    LITERAL("-128"),
                                                    LITERAL("-129"),
                                                    LITERAL("1000000007"),
                                                    LITERAL("x"),
                                                    LITERAL("9223372036854775807"),
                                                    LITERAL("-9223372036854775808"),
                                                    LITERAL("3")};

/* What a command's arguments are, a letter each; in capitals: the reply is compared in another way.
 * k key, v value, n number, r a relative time in seconds, m in ms, t an absolute one in seconds, u in ms,
 * o any options of SET or GETEX, e any of EXPIRE, p pattern, B the number of a bit, b a bit, i an index, U a
 * unit of indexes, f operations of BITFIELD, W one of BITOP, + the letter before again, up to 3 times. */
static const struct {
    const char *name, *arguments;
    enum { SAME, NEAR, NEAR_MS, AS_SET } compare;
    unsigned weight;
} shapes[] = {
    {"GET", "k", SAME, 8},         {"SET", "kv", SAME, 8},
    {"SET", "kvo", SAME, 12},      {"SETNX", "kv", SAME, 3},
    {"SETEX", "krv", SAME, 3},     {"PSETEX", "kmv", SAME, 3},
    {"GETSET", "kv", SAME, 3},     {"GETDEL", "k", SAME, 2},
    {"GETEX", "ko", SAME, 6},      {"MGET", "k+", SAME, 3},
    {"MSET", "kvkv", SAME, 2},     {"MSET", "kv", SAME, 1},
    {"MSET", "kvk", SAME, 1},      {"MSETNX", "kv", SAME, 2},
    {"STRLEN", "k", SAME, 3},      {"APPEND", "kv", SAME, 4},
    {"GETRANGE", "knn", SAME, 4},  {"SUBSTR", "knn", SAME, 1},
    {"SETRANGE", "kOv", SAME, 4},  {"INCR", "k", SAME, 4},
    {"DECR", "k", SAME, 3},        {"INCRBY", "kn", SAME, 4},
    {"DECRBY", "kn", SAME, 4},     {"INCRBYFLOAT", "kv", SAME, 8},
    {"DEL", "k+", SAME, 3},        {"UNLINK", "k+", SAME, 1},
    {"EXISTS", "k+", SAME, 3},     {"TYPE", "k", SAME, 2},
    {"TOUCH", "k+", SAME, 2},      {"EXPIRE", "kre", SAME, 4},
    {"PEXPIRE", "kme", SAME, 4},   {"EXPIREAT", "kte", SAME, 4},
    {"PEXPIREAT", "kue", SAME, 4}, {"PERSIST", "k", SAME, 3},
    {"TTL", "k", NEAR, 4},         {"PTTL", "k", NEAR_MS, 4},
    {"EXPIRETIME", "k", NEAR, 4},  {"PEXPIRETIME", "k", NEAR_MS, 4},
    {"KEYS", "p", AS_SET, 3},      {"FLUSHDB", "", SAME, 1},
    {"FLUSHALL", "v", SAME, 1},    {"SETBIT", "kBb", SAME, 6},
    {"GETBIT", "kB", SAME, 4},     {"BITCOUNT", "k", SAME, 2},
    {"BITCOUNT", "kii", SAME, 3},  {"BITCOUNT", "kiiU", SAME, 4},
    {"BITPOS", "kb", SAME, 2},     {"BITPOS", "kbi", SAME, 2},
    {"BITPOS", "kbii", SAME, 3},   {"BITPOS", "kbiiU", SAME, 4},
    {"BITFIELD", "kf", SAME, 8},   {"BITFIELD_RO", "kf", SAME, 3},
    {"BITCOUNT", "ki", SAME, 1},   {"GETRANGE", "kii", SAME, 2},
    {"BITOP", "Wkk+", SAME, 6},    {"BITOP", "Wkk", SAME, 4},
};

struct stream {
    struct random random;
    uint64_t number; /* of commands so far */
    uint32_t count;
    struct resp_argument arguments[COMMANDS_ARGUMENTS];
    char texts[COMMANDS_ARGUMENTS][32]; /* of numbers made here */
};

static bool chance(struct stream *stream, double probability)
{
    return random_chance(&stream->random, probability);
}

static void add(struct stream *stream, struct resp_argument argument)
{
    stream->arguments[stream->count++] = argument;
}
#define ADD_ONE_OF(stream, array) add(stream, (array)[random_below(&(stream)->random, COUNT(array))])

/* Now and then a time that is past, or no time at all; else one far away, and never the same twice, since no
 * comparison of two times may depend on the millisecond. */
static void add_time(struct stream *stream, bool absolute, bool seconds)
{
    if (chance(stream, 0.25)) {
        ADD_ONE_OF(stream, past);
        return;
    }
    uint64_t time = 100000 + stream->number * 7919 % 1000003 * 10;
    time += absolute ? UINT64_C(4000000000) : 0;
    char *text = stream->texts[stream->count];
    int length =
        snprintf(text, sizeof stream->texts[0], "%llu", (unsigned long long)(seconds ? time : time * 1000));
    add(stream, (struct resp_argument){text, (size_t)length});
}

static void add_set_options(struct stream *stream)
{
    for (uint64_t i = random_below(&stream->random, 4); i > 0; i--) {
        if (chance(stream, 0.55)) {
            ADD_ONE_OF(stream, set_options);
            continue;
        }
        uint64_t unit = random_below(&stream->random, COUNT(set_times));
        add(stream, set_times[unit]);
        if (chance(stream, 0.97))
            add_time(stream, unit >= 2, unit % 2 == 0);
    }
}

/* One operation of BITFIELD, now and then a wrong one. */
static void add_field(struct stream *stream)
{
    uint64_t kind = random_below(&stream->random, 10);
    if (kind < 3) {
        ADD_ONE_OF(stream, field_overflows);
        if (chance(stream, 0.95))
            ADD_ONE_OF(stream, overflow_kinds);
        return;
    }
    add(stream, kind < 5   ? field_names[0]
                : kind < 7 ? field_names[1]
                : kind < 9 ? field_names[2]
                           : field_names[3]);
    ADD_ONE_OF(stream, field_types);
    ADD_ONE_OF(stream, bit_offsets);
    if (kind >= 5 && chance(stream, 0.97))
        ADD_ONE_OF(stream, field_values);
}

static void add_argument(struct stream *stream, char kind)
{
    static const struct resp_argument offsets[] = {LITERAL("0"),  LITERAL("1"), LITERAL("7"), LITERAL("200"),
                                                   LITERAL("-1"), LITERAL("x"), LITERAL("")};
    switch (kind) {
    case 'k':
        ADD_ONE_OF(stream, keys);
        break;
    case 'v':
        ADD_ONE_OF(stream, values);
        break;
    case 'n':
        ADD_ONE_OF(stream, numbers);
        break;
    case 'O':
        ADD_ONE_OF(stream, offsets);
        break;
    case 'p':
        ADD_ONE_OF(stream, patterns);
        break;
    case 'B':
        ADD_ONE_OF(stream, bit_offsets);
        break;
    case 'b':
        ADD_ONE_OF(stream, bit_values);
        break;
    case 'i':
        ADD_ONE_OF(stream, indexes);
        break;
    case 'U':
        ADD_ONE_OF(stream, index_units);
        break;
    case 'W':
        ADD_ONE_OF(stream, bit_operations);
        break;
    case 'f':
        for (uint64_t i = random_below(&stream->random, 4); i > 0; i--)
            add_field(stream);
        break;
    case 'r':
    case 'm':
        add_time(stream, false, kind == 'r');
        break;
    case 't':
    case 'u':
        add_time(stream, true, kind == 't');
        break;
    case 'o':
        add_set_options(stream);
        break;
    case 'e':
        while (chance(stream, 0.35) && stream->count < 8)
            ADD_ONE_OF(stream, expire_options);
        break;
    default:
        for (uint64_t i = random_below(&stream->random, 4); i > 0; i--)
            ADD_ONE_OF(stream, keys);
    }
}

/* Returns the number of its shape. */
static unsigned command_make(struct stream *stream)
{
    unsigned total = 0, shape = 0;
    for (unsigned i = 0; i < COUNT(shapes); i++)
        total += shapes[i].weight;
    uint64_t drawn = random_below(&stream->random, total);
    while (drawn >= shapes[shape].weight)
        drawn -= shapes[shape++].weight;
    stream->number++;
    stream->count = 0;
    add(stream, (struct resp_argument){shapes[shape].name, strlen(shapes[shape].name)});
    for (const char *kind = shapes[shape].arguments; *kind; kind++)
        add_argument(stream, *kind);
    if (stream->count > 1 && chance(stream, 0.01))
        stream->count--;
    else if (chance(stream, 0.01))
        ADD_ONE_OF(stream, keys); /* no key is empty, since Redis has such keys */
    return shape;
}

/* ---- comparing ---- */

static int compare_bulks(const void *a, const void *b)
{
    const struct resp_argument *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* The sorted elements of an array of bulks; -1: it is something else. */
static int bulks_of(const char *bytes, size_t length, struct resp_argument *bulks, int capacity)
{
    if (*bytes != '*')
        return -1;
    int count = atoi(bytes + 1);
    size_t at = (size_t)((const char *)memchr(bytes, '\n', length) - bytes) + 1;
    if (count > capacity)
        return -1;
    for (int i = 0; i < count; i++) {
        char *end;
        bulks[i].length = strtoul(bytes + at + 1, &end, 10);
        bulks[i].bytes = end + 2;
        at = (size_t)(end + 2 - bytes) + bulks[i].length + 2;
    }
    qsort(bulks, (size_t)count, sizeof *bulks, compare_bulks);
    return count;
}

static bool same_set(const char *a, size_t a_length, const char *b, size_t b_length)
{
    struct resp_argument left[64], right[64];
    int count = bulks_of(a, a_length, left, 64);
    if (count < 0 || count != bulks_of(b, b_length, right, 64))
        return false;
    for (int i = 0; i < count; i++)
        if (compare_bulks(&left[i], &right[i]))
            return false;
    return true;
}

static bool replies_agree(const struct redis *redis, const struct resp_writer *reply, int compare)
{
    if (redis->length == reply->length && memcmp(redis->bytes, reply->bytes, reply->length) == 0)
        return true;
    if (compare == AS_SET)
        return same_set(redis->bytes, redis->length, reply->bytes, reply->length);
    if (compare == SAME || *redis->bytes != ':' || *reply->bytes != ':')
        return false;
    long long a = strtoll(redis->bytes + 1, NULL, 10), b = strtoll(reply->bytes + 1, NULL, 10);
    long long slack = compare == NEAR_MS ? CLOCK_SLACK_MS : CLOCK_SLACK_MS / 1000;
    return a > 1000 && b > 1000 && llabs(a - b) <= slack;
}

static void print_bytes(const char *what, const char *bytes, size_t length)
{
    fprintf(stderr, "  %s ", what);
    for (size_t i = 0; i < length && i < 300; i++)
        if (bytes[i] >= 32 && bytes[i] < 127)
            fputc(bytes[i], stderr);
        else
            fprintf(stderr, "\\x%02x", (unsigned char)bytes[i]);
    fputc('\n', stderr);
}

static void report(const struct stream *stream, const struct redis *redis, const struct resp_writer *reply,
                   int protocol, uint64_t seed)
{
    fprintf(stderr, "command %llu, RESP%d, BANYAN_SEED=%llu\n", (unsigned long long)stream->number, protocol,
            (unsigned long long)seed);
    for (uint32_t i = 0; i < stream->count; i++)
        print_bytes("argument", stream->arguments[i].bytes, stream->arguments[i].length);
    print_bytes("redis:", redis->bytes, redis->length);
    print_bytes("here: ", reply->bytes, reply->length);
}

static struct resp_argument word(const char *text)
{
    return (struct resp_argument){text, strlen(text)};
}

/* SCAN, step by step, gives the same keys as Redis's KEYS. */
static void compare_scan(struct commands *commands, struct redis *redis)
{
    struct resp_argument all[] = {word("KEYS"), word("*")}, bulk, wanted[64];
    redis_run(redis, all, 2);
    int count = bulks_of(redis->bytes, redis->length, wanted, 64), given = 0;
    char cursor[32] = "0";
    do {
        struct resp_argument scan[] = {word("SCAN"), word(cursor), word("COUNT"), word("3")};
        commands_run(commands, scan, 4);
        size_t at = 0;
        assert_true(commands_bulk(commands, &at, &bulk));
        assert_true(bulk.length < sizeof cursor);
        memcpy(cursor, bulk.bytes, bulk.length);
        cursor[bulk.length] = 0;
        for (; commands_bulk(commands, &at, &bulk); given++)
            assert_true(given < count && compare_bulks(&bulk, &wanted[given]) == 0);
    } while (strcmp(cursor, "0") != 0);
    assert_int_equal(given, count);
}

static uint64_t environment(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

static struct redis redis;

static void random_commands(int protocol, uint64_t seed, uint64_t rounds)
{
    static struct commands commands;
    static struct stream stream;
    struct resp_argument hello[] = {word("HELLO"), word(protocol == 3 ? "3" : "2")},
                         flush[] = {word("FLUSHALL")};
    uint64_t errors = 0, nulls = 0;
    commands_create(&commands, 0, 0);
    commands.reply.protocol = protocol;
    redis_run(&redis, hello, 2);
    redis_run(&redis, flush, 1);
    memset(&stream, 0, sizeof stream);
    random_seed(&stream.random, seed * 2 + (uint64_t)protocol % 2);
    for (uint64_t i = 0; i < rounds; i++) {
        unsigned shape = command_make(&stream);
        commands_now(&commands, clock_wall_ms());
        redis_run(&redis, stream.arguments, stream.count);
        commands_run(&commands, stream.arguments, stream.count);
        if (!replies_agree(&redis, &commands.reply, (int)shapes[shape].compare)) {
            report(&stream, &redis, &commands.reply, protocol, seed);
            fail();
        }
        errors += *redis.bytes == '-';
        nulls += *redis.bytes == '_' || memcmp(redis.bytes, "$-1", 3) == 0;
        if (i % 100 == 99)
            compare_scan(&commands, &redis);
    }
    /* The stream of commands is worth something: it meets errors, absent keys, and values. */
    assert_in_range(errors, rounds / 20, rounds / 2);
    assert_in_range(nulls, rounds / 100, rounds / 2);
    assert_true(commands_destroy(&commands));
}

static void resp2(void **state)
{
    random_commands(2, environment("BANYAN_SEED", 1), 20000 * environment("BANYAN_ROUNDS", 1));
}

static void resp3(void **state)
{
    random_commands(3, environment("BANYAN_SEED", 1), 20000 * environment("BANYAN_ROUNDS", 1));
}

static struct resp_argument random_text(struct random *random, char *room, size_t least, size_t most)
{
    static const char letters[] = "aabbc-]^\\[*?***[[";
    size_t length = least + random_below(random, most - least + 1);
    for (size_t i = 0; i < length; i++)
        room[i] = letters[random_below(random, sizeof letters - 1)];
    return (struct resp_argument){room, length};
}

/* KEYS with random patterns of the characters that mean something in patterns. */
static void random_patterns(void **state)
{
    static struct commands commands;
    struct random random;
    struct resp_argument flush[] = {word("FLUSHALL")}, hello[] = {word("HELLO"), word("2")};
    uint64_t matched = 0;
    commands_create(&commands, 0, 0);
    random_seed(&random, environment("BANYAN_SEED", 1));
    redis_run(&redis, hello, 2);
    redis_run(&redis, flush, 1);
    for (unsigned i = 0; i < 60; i++) {
        char key[8];
        struct resp_argument set[] = {word("SET"), random_text(&random, key, 1, 6), word("v")};
        redis_run(&redis, set, 3);
        commands_run(&commands, set, 3);
    }
    for (uint64_t i = 0; i < 10000 * environment("BANYAN_ROUNDS", 1); i++) {
        char pattern[16];
        struct resp_argument list[] = {word("KEYS"), random_text(&random, pattern, 0, 8)};
        redis_run(&redis, list, 2);
        commands_run(&commands, list, 2);
        matched += redis.bytes[1] != '0';
        if (!same_set(redis.bytes, redis.length, commands.reply.bytes, commands.reply.length)) {
            print_bytes("pattern", list[1].bytes, list[1].length);
            print_bytes("redis:", redis.bytes, redis.length);
            print_bytes("here: ", commands.reply.bytes, commands.reply.length);
            fail();
        }
    }
    assert_true(matched > 1000);
    assert_true(commands_destroy(&commands));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(resp2), cmocka_unit_test(resp3),
                                       cmocka_unit_test(random_patterns)};
    signal(SIGPIPE, SIG_IGN);
    bool there = redis_start(&redis);
    if (!there)
        printf("SKIPPED: there is no redis-server of version 7 here to compare with\n");
    int failed = there ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
    redis_stop(&redis);
    return there ? failed : SKIP_STATUS;
}
