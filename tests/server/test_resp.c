/* test_resp.c - the RESP parser at every split point, its limits, inline requests as Redis reads them;
 * replies in RESP2 and RESP3. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "server/resp_parser.h"
#include "server/resp_writer.h"

static const struct resp_limits limits = {.bulk_max = 1 << 20, .arguments_max = 1024, .inline_max = 65536};

/* The arguments of the request, between bars. */
static void show(const struct resp_parser *parser, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < parser->count; i++)
        at += (size_t)snprintf(text + at, size - at, "%.*s|", (int)parser->arguments[i].length,
                               parser->arguments[i].bytes);
}

/* Feeds the text in two parts, each time in a new buffer, and asserts what comes out. */
static void check_split(const char *text, size_t length, size_t split, const char *expected)
{
    struct resp_parser parser;
    size_t consumed = 0;
    char shown[4096];
    resp_parser_init(&parser);
    char *first = malloc(split + 1), *whole = malloc(length);
    assert_true(first && whole);
    memcpy(first, text, split);
    enum resp_status status = resp_parse(&parser, &limits, first, split, &consumed);
    free(first);
    memcpy(whole, text, length);
    if (split < length) {
        assert_int_equal(status, RESP_MORE);
        assert_true(parser.wanted > split && parser.wanted <= length);
        status = resp_parse(&parser, &limits, whole, length, &consumed);
    } else {
        free(whole);
        whole = NULL;
    }
    assert_int_equal(status, RESP_COMPLETE);
    assert_int_equal(consumed, length);
    if (whole) {
        show(&parser, shown, sizeof shown);
        assert_string_equal(shown, expected);
    }
    free(whole);
    resp_parser_free(&parser);
}

static void test_split_points(void **state)
{
    (void)state;
    static const char *const requests[][2] = {
        {"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$12\r\nsome\r\nvalue\n\r\n", "SET|key|some\r\nvalue\n|"},
        {"*1\r\n$4\r\nPING\r\n", "PING|"},
        {"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "GET||"},
        {"PING\r\n", "PING|"},
        {"  set \"a b\"  'c d' \r\n", "set|a b|c d|"},
        {"get x\n", "get|x|"},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        for (size_t split = 0; split <= strlen(requests[i][0]); split++)
            check_split(requests[i][0], strlen(requests[i][0]), split, requests[i][1]);
}

/* One byte more at each call. */
static void test_byte_by_byte(void **state)
{
    (void)state;
    char text[] = "*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\nPING\r\n", shown[256];
    struct resp_parser parser;
    size_t consumed = 0, first = strlen(text) - 6, length = 0;
    resp_parser_init(&parser);
    while (length < first) {
        enum resp_status status = resp_parse(&parser, &limits, text, ++length, &consumed);
        assert_int_equal(status, length < first ? RESP_MORE : RESP_COMPLETE);
    }
    show(&parser, shown, sizeof shown);
    assert_string_equal(shown, "ECHO|0123456789|");
    assert_int_equal(resp_parse(&parser, &limits, text + first, 6, &consumed), RESP_COMPLETE);
    assert_int_equal(consumed, 6);
    resp_parser_free(&parser);
}

static enum resp_status parse(const char *text, size_t length, char *shown, size_t size, char *error)
{
    struct resp_parser parser;
    size_t consumed = 0;
    char *copy = malloc(length + 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    resp_parser_init(&parser);
    enum resp_status status = resp_parse(&parser, &limits, copy, length, &consumed);
    if (status == RESP_COMPLETE)
        show(&parser, shown, size);
    if (status == RESP_BROKEN)
        strcpy(error, parser.error);
    resp_parser_free(&parser);
    free(copy);
    return status;
}

static void test_inline(void **state)
{
    (void)state;
    /* Split as Redis's sdssplitargs() does; NULL: the quotes are not balanced. */
    static const char *const lines[][2] = {
        {"a  b\tc", "a|b|c|"},
        {"\"a\\x41\\n\\t\\\\\\\"\\q\"", "aA\n\t\\\"q|"},
        {"'a\\'b\\n'", "a'b\\n|"},
        {"\"\"", "|"},
        {"set k \"v\" x", "set|k|v|x|"},
        {"a\"b c\"", "ab c|"},
        {"\"a\\xzz\"", "axzz|"},
        {"\"a", NULL},
        {"'a", NULL},
        {"\"a\"b", NULL},
        {"'a'b", NULL},
        {"\"a\\", NULL},
    };
    char line[256], shown[256], error[128];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(line, sizeof line, "%s\r\n", lines[i][0]);
        enum resp_status status = parse(line, strlen(line), shown, sizeof shown, error);
        assert_int_equal(status, lines[i][1] ? RESP_COMPLETE : RESP_BROKEN);
        assert_string_equal(lines[i][1] ? shown : error,
                            lines[i][1] ? lines[i][1] : "Protocol error: unbalanced quotes in request");
    }
    assert_int_equal(parse("\r\n", 2, shown, sizeof shown, error), RESP_EMPTY);
    assert_int_equal(parse("   \n", 4, shown, sizeof shown, error), RESP_EMPTY);
    assert_int_equal(parse("*0\r\n", 4, shown, sizeof shown, error), RESP_EMPTY);
    assert_int_equal(parse("*-1\r\n", 5, shown, sizeof shown, error), RESP_EMPTY);
}

static void test_broken(void **state)
{
    (void)state;
    static const char *const broken[][2] = {
        {"*x\r\n", "Protocol error: invalid multibulk length"},
        {"*\r\n", "Protocol error: invalid multibulk length"},
        {"*01\r\n", "Protocol error: invalid multibulk length"},
        {"*1025\r\n", "Protocol error: invalid multibulk length"},
        {"*99999999999999999999\r\n", "Protocol error: invalid multibulk length"},
        {"*9223372036854775808\r\n", "Protocol error: invalid multibulk length"},
        {"*11111111111111111111111111111111111111", "Protocol error: too big mbulk count string"},
        {"*1\r\nPING", "Protocol error: expected '$', got 'P'"},
        {"*1\r\n\x01", "Protocol error: expected '$', got '?'"},
        {"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"},
        {"*1\r\n$x\r\n", "Protocol error: invalid bulk length"},
        {"*1\r\n$1048577\r\n", "Protocol error: invalid bulk length"},
        {"*1\r\n$1073741824\r\n", "Protocol error: invalid bulk length"},
        {"*1\r\n$11111111111111111111111111111111111111", "Protocol error: too big bulk count string"},
    };
    char shown[256], error[128];
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        assert_int_equal(parse(broken[i][0], strlen(broken[i][0]), shown, sizeof shown, error), RESP_BROKEN);
        assert_string_equal(error, broken[i][1]);
    }
    char *line = malloc(65538);
    assert_non_null(line);
    memset(line, 'x', 65538);
    assert_int_equal(parse(line, 65536, shown, sizeof shown, error), RESP_MORE);
    assert_int_equal(parse(line, 65538, shown, sizeof shown, error), RESP_BROKEN);
    assert_string_equal(error, "Protocol error: too big inline request");
    free(line);
}

static void test_strangers(void **state)
{
    (void)state;
    struct resp_limits strict = {
        .bulk_max = 16384, .arguments_max = 10, .inline_max = 65536, .unauthenticated = true};
    struct resp_parser parser;
    size_t consumed;
    char many[] = "*11\r\n", large[] = "*1\r\n$16385\r\n";
    resp_parser_init(&parser);
    assert_int_equal(resp_parse(&parser, &strict, many, 5, &consumed), RESP_BROKEN);
    assert_string_equal(parser.error, "Protocol error: unauthenticated multibulk length");
    resp_parser_init(&parser);
    assert_int_equal(resp_parse(&parser, &strict, large, strlen(large), &consumed), RESP_BROKEN);
    assert_string_equal(parser.error, "Protocol error: unauthenticated bulk length");
    resp_parser_free(&parser);
}

/* An announced number of arguments takes no memory before they arrive. */
static void test_announced(void **state)
{
    (void)state;
    struct resp_parser parser;
    size_t consumed;
    char text[] = "*1024\r\n$1\r\na\r\n";
    resp_parser_init(&parser);
    assert_int_equal(resp_parse(&parser, &limits, text, strlen(text), &consumed), RESP_MORE);
    assert_true(parser.capacity <= 16);
    resp_parser_free(&parser);
}

/* ---- replies ---- */

static void one_of_each(struct resp_writer *writer)
{
    resp_begin(writer);
    resp_simple(writer, "OK");
    resp_error(writer, "ERR line %s", "one\r\ntwo");
    resp_integer(writer, 0);
    resp_integer(writer, -12);
    resp_integer(writer, INT64_MIN);
    resp_bulk(writer, "a\0b", 3);
    resp_text(writer, "");
    resp_null(writer);
    resp_map(writer, 1);
    resp_set(writer, 2);
    resp_double(writer, 2.5);
    resp_double(writer, (double)INFINITY);
    resp_boolean(writer, true);
    resp_verbatim(writer, "text", 4);
    size_t mark = resp_array_open(writer);
    for (unsigned i = 0; i < 12; i++)
        resp_integer(writer, 7);
    resp_array_close(writer, mark, 12);
    resp_end(writer);
}

#define SEVENS ":7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n:7\r\n"
#define SAME_IN_BOTH                                                                                         \
    "+OK\r\n-ERR line one  two\r\n:0\r\n:-12\r\n:-9223372036854775808\r\n$3\r\na\0b\r\n$0\r\n\r\n"

static void test_replies(void **state)
{
    (void)state;
    static const char two[] =
        SAME_IN_BOTH "$-1\r\n*2\r\n*2\r\n$3\r\n2.5\r\n$3\r\ninf\r\n:1\r\n$4\r\ntext\r\n*12\r\n" SEVENS;
    static const char three[] =
        SAME_IN_BOTH "_\r\n%1\r\n~2\r\n,2.5\r\n,inf\r\n#t\r\n=8\r\ntxt:text\r\n*12\r\n" SEVENS;
    struct resp_writer writer;
    for (int protocol = 2; protocol <= 3; protocol++) {
        resp_writer_init(&writer, protocol, 0);
        one_of_each(&writer);
        assert_int_equal(writer.length, protocol == 2 ? sizeof two - 1 : sizeof three - 1);
        assert_memory_equal(writer.bytes, protocol == 2 ? two : three, writer.length);
        assert_int_equal(writer.errors, 1);
        resp_writer_free(&writer);
    }
}

static void test_reply_limit(void **state)
{
    (void)state;
    struct resp_writer writer;
    resp_writer_init(&writer, 2, 1000);
    resp_begin(&writer);
    resp_simple(&writer, "OK");
    resp_end(&writer);
    resp_begin(&writer);
    size_t mark = resp_array_open(&writer);
    for (unsigned i = 0; i < 1000; i++)
        resp_integer(&writer, i);
    resp_array_close(&writer, mark, 1000);
    assert_true(writer.overflow);
    resp_end(&writer);
    assert_false(writer.overflow);
    assert_memory_equal(writer.bytes, "+OK\r\n-ERR ", 10);
    assert_memory_equal(writer.bytes + writer.length - 2, "\r\n", 2);
    resp_begin(&writer); /* and the next reply is complete */
    size_t at = writer.length;
    resp_integer(&writer, 5);
    resp_end(&writer);
    assert_int_equal(writer.length, at + 4);
    resp_writer_free(&writer);
}

static char *refuse(struct resp_writer *writer, size_t capacity)
{
    return capacity <= 4096 ? realloc(writer->bytes, capacity) : NULL;
}

static void test_reply_refused(void **state)
{
    (void)state;
    struct resp_writer writer;
    char large[8192] = {0};
    resp_writer_init(&writer, 2, 0);
    writer.grow = refuse;
    resp_begin(&writer);
    resp_bulk(&writer, large, sizeof large);
    assert_true(writer.overflow);
    resp_end(&writer);
    assert_memory_equal(writer.bytes, "-ERR ", 5);
    assert_false(writer.overflow);
    resp_writer_free(&writer);
}

/* Bytes that are put to their place before are in the reply as others are; of a place that is not used, or
 * room that was only expected, nothing is left. */
static void test_bulk_in_place(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 9, 10, 999, 1000, 5000, 70000};
    struct resp_writer writer, plain;
    char *bytes = malloc(70000);
    assert_non_null(bytes);
    resp_writer_init(&writer, 2, 0);
    resp_writer_init(&plain, 2, 0);
    resp_begin(&writer);
    resp_begin(&plain);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(bytes, 'a' + (int)i, lengths[i]);
        if (i % 2)
            resp_expect(&writer, lengths[i] + 50);
        char *place = resp_bulk_place(&writer, lengths[i]);
        assert_non_null(place);
        memcpy(place, bytes, lengths[i]);
        if (i % 3 == 2) /* another reply after all */
            resp_bulk(&writer, "none", 4);
        else
            resp_bulk(&writer, place, lengths[i]);
        resp_bulk(&plain, i % 3 == 2 ? "none" : bytes, i % 3 == 2 ? 4 : lengths[i]);
    }
    resp_end(&writer);
    resp_end(&plain);
    assert_int_equal(writer.length, plain.length);
    assert_memory_equal(writer.bytes, plain.bytes, plain.length);
    free(bytes);
    resp_writer_free(&writer);
    resp_writer_free(&plain);
    resp_writer_init(&writer, 2, 0); /* where it may not grow */
    writer.grow = refuse;
    resp_begin(&writer);
    resp_expect(&writer, 8192);
    assert_false(writer.overflow);
    assert_null(resp_bulk_place(&writer, 8192));
    assert_true(writer.overflow);
    resp_end(&writer);
    assert_memory_equal(writer.bytes, "-ERR ", 5);
    resp_writer_free(&writer);
}

/* ---- lengths ---- */

#define LENGTH_MARKS  "0179-+ \r"
#define LENGTH_DIGITS 4u

/* What a length is by the protocol: digits up to the first CR, without leading zeros. -1: none. */
static int length_of(const char *text, size_t *end)
{
    int value = 0;
    *end = strcspn(text, "\r");
    if (!*end || (*text == '0' && *end > 1))
        return -1;
    for (size_t i = 0; i < *end; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

/* Every text of some marks, short and long lengths alike, is one or is refused; and says so only when all of
 * it is there. */
static void test_lengths(void **state)
{
    (void)state;
    static char text[16384];
    const size_t marks = sizeof LENGTH_MARKS - 1;
    for (unsigned number = 0; number < 4096; number++) {
        struct resp_parser parser;
        size_t consumed = 0, end;
        char *length = text + 5;
        memset(text, 'x', sizeof text);
        memcpy(text, "*1\r\n$", 5);
        for (unsigned i = 0, rest = number; i < LENGTH_DIGITS; i++, rest /= (unsigned)marks)
            length[i] = LENGTH_MARKS[rest % marks];
        memcpy(length + LENGTH_DIGITS, "\r\n", 2);
        const int value = length_of(length, &end);
        const size_t header = 5 + end + 2;
        resp_parser_init(&parser);
        for (size_t part = 5; part < header; part++)
            assert_int_equal(resp_parse(&parser, &limits, text, part, &consumed), RESP_MORE);
        if (value < 0) {
            assert_int_equal(resp_parse(&parser, &limits, text, sizeof text, &consumed), RESP_BROKEN);
        } else {
            assert_int_equal(resp_parse(&parser, &limits, text, header + (size_t)value + 1, &consumed),
                             RESP_MORE);
            assert_int_equal(resp_parse(&parser, &limits, text, header + (size_t)value + 2, &consumed),
                             RESP_COMPLETE);
            assert_int_equal(consumed, header + (size_t)value + 2);
            assert_int_equal(parser.arguments[0].length, value);
            assert_ptr_equal(parser.arguments[0].bytes, text + header);
        }
        resp_parser_free(&parser);
    }
}

/* A request of `count` arguments, most of them short; returns its length. */
static size_t request_draw(struct random *random, char *text)
{
    static const size_t lengths[] = {0, 1, 3, 9, 10, 16, 99, 100, 101, 999, 1000, 1001};
    const unsigned count = (unsigned)random_below(random, 12);
    size_t at = (size_t)sprintf(text, "*%u\r\n", count);
    for (unsigned i = 0; i < count; i++) {
        const size_t length = lengths[random_below(random, random_chance(random, 0.1) ? 12 : 6)];
        at += (size_t)sprintf(text + at, "$%zu\r\n", length);
        memset(text + at, 'a' + (int)i, length);
        memcpy(text + at + length, "\r\n", 2);
        at += length + 2;
    }
    return at;
}

/* Parses the text as it is, in a buffer that ends with it; the parser has room for `room` arguments at first.
 */
static enum resp_status parse_with_room(struct resp_parser *parser, uint32_t room,
                                        const struct resp_limits *bounds, const char *text, size_t length,
                                        char **copy, size_t *consumed)
{
    resp_parser_init(parser);
    parser->arguments = room ? calloc(room, sizeof *parser->arguments) : NULL;
    parser->capacity = room;
    *copy = malloc(length ? length : 1);
    assert_true(*copy && (parser->arguments || !room));
    memcpy(*copy, text, length);
    *consumed = 0;
    return resp_parse(parser, bounds, *copy, length, consumed);
}

/* A parser that has room for the arguments takes short requests the quick way, one without goes the long way:
 * both say the same of any text, and are left alike. */
static void test_short_requests(void **state)
{
    (void)state;
    static char text[16384];
    const struct resp_limits narrow = {.bulk_max = 99, .arguments_max = 4, .inline_max = 100};
    struct random random;
    unsigned complete = 0;
    random_seed(&random, 19);
    for (unsigned number = 0; number < 20000; number++) {
        size_t length = request_draw(&random, text), consumed[2];
        const struct resp_limits *bounds = random_chance(&random, 0.2) ? &narrow : &limits;
        const size_t header = length < 60 ? length : 60;
        for (uint64_t changes = random_below(&random, 3); changes && random_chance(&random, 0.5); changes--)
            text[random_below(&random, header)] = "*$0123456789\r\n- x"[random_below(&random, 17)];
        if (random_chance(&random, 0.3))
            length = (size_t)random_below(&random, length + 1);
        struct resp_parser parsers[2];
        char *copies[2];
        enum resp_status status[2];
        for (unsigned i = 0; i < 2; i++)
            status[i] =
                parse_with_room(&parsers[i], i ? 16 : 0, bounds, text, length, &copies[i], &consumed[i]);
        assert_int_equal(status[0], status[1]);
        assert_int_equal(parsers[0].expected, parsers[1].expected);
        assert_int_equal(parsers[0].at, parsers[1].at);
        assert_int_equal(parsers[0].wanted, parsers[1].wanted);
        assert_int_equal(parsers[0].bulk, parsers[1].bulk);
        if (status[0] == RESP_BROKEN)
            assert_string_equal(parsers[0].error, parsers[1].error);
        else
            assert_int_equal(consumed[0], consumed[1]);
        if (status[0] == RESP_COMPLETE) {
            complete++;
            assert_int_equal(parsers[0].count, parsers[1].count);
            for (uint32_t i = 0; i < parsers[0].count; i++) {
                assert_int_equal(parsers[0].arguments[i].length, parsers[1].arguments[i].length);
                assert_int_equal(parsers[0].arguments[i].bytes - copies[0],
                                 parsers[1].arguments[i].bytes - copies[1]);
            }
        }
        for (unsigned i = 0; i < 2; i++) {
            resp_parser_free(&parsers[i]);
            free(copies[i]);
        }
    }
    assert_true(complete > 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_requests), cmocka_unit_test(test_split_points),
        cmocka_unit_test(test_byte_by_byte),   cmocka_unit_test(test_inline),
        cmocka_unit_test(test_broken),         cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_announced),      cmocka_unit_test(test_replies),
        cmocka_unit_test(test_reply_limit),    cmocka_unit_test(test_reply_refused),
        cmocka_unit_test(test_bulk_in_place),  cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
