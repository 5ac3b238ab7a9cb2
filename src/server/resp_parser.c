/*
 * resp_parser.c - requests as arrays of bulk strings (multibulk, in Redis's errors); contract in
 * resp_parser.h.
 *
 * The parser keeps offsets while a request is incomplete, since the buffer may move, and turns them into
 * pointers at its end. The array of arguments grows with the arguments that have arrived, never with the
 * number that the client has announced.
 */
#include "server/resp_parser.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every valid length with its sign and line end fits here. */
#define NUMBER_LINE_MAX 32u

void resp_parser_init(struct resp_parser *parser)
{
    memset(parser, 0, sizeof *parser);
    parser->bulk = -1;
}

void resp_parser_free(struct resp_parser *parser)
{
    free(parser->arguments);
    resp_parser_init(parser);
}

enum resp_status resp_parser_break(struct resp_parser *parser, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(parser->error, sizeof parser->error, format, arguments);
    va_end(arguments);
    return RESP_BROKEN;
}

enum resp_status resp_parser_break_count(struct resp_parser *parser, const struct resp_limits *limits)
{
    return resp_parser_break(parser, limits->unauthenticated
                                         ? "Protocol error: unauthenticated multibulk length"
                                         : "Protocol error: invalid multibulk length");
}

enum resp_status resp_parser_want(struct resp_parser *parser, size_t wanted)
{
    parser->wanted = wanted;
    return RESP_MORE;
}

void resp_parser_restart(struct resp_parser *parser)
{
    parser->expected = 0;
    parser->at = 0;
    parser->wanted = 0;
    parser->bulk = -1;
}

enum resp_status resp_parser_add(struct resp_parser *parser, size_t offset, size_t length)
{
    if (parser->count == parser->capacity) {
        uint32_t capacity = parser->capacity ? parser->capacity * 2 : 8;
        struct resp_argument *larger = realloc(parser->arguments, capacity * sizeof *larger);
        if (!larger)
            return RESP_NO_MEMORY;
        parser->arguments = larger;
        parser->capacity = capacity;
    }
    /* Stays an offset until the request is complete. */
    parser->arguments[parser->count++] =
        (struct resp_argument){.bytes = (const char *)(uintptr_t)offset, .length = length};
    return RESP_COMPLETE;
}

void resp_parser_finish(struct resp_parser *parser, const char *buffer)
{
    assert(!parser->expected || parser->count == parser->expected);
    for (uint32_t i = 0; i < parser->count; i++)
        parser->arguments[i].bytes = buffer + (uintptr_t)parser->arguments[i].bytes;
    resp_parser_restart(parser);
}

/* A decimal integer, as Redis reads lengths: no sign but '-', no leading zeros. */
static bool number_read(const char *text, size_t length, int64_t *value)
{
    bool negative = length && *text == '-';
    uint64_t number = 0;
    if (negative) {
        text++;
        length--;
    }
    if (!length || length > 19 || (*text == '0' && (length > 1 || negative)))
        return false;
    for (size_t i = 0; i < length; i++) {
        unsigned digit = (unsigned char)text[i] - (unsigned)'0';
        if (digit > 9)
            return false;
        number = number * 10 + digit; /* 19 digits fit in 64 bits */
    }
    if (number > (uint64_t)INT64_MAX)
        return false;
    *value = negative ? -(int64_t)number : (int64_t)number;
    return true;
}

/* A number of up to three digits, the length of most arguments, without a search for its end. RESP_EMPTY: it
 * may be any other, or none, which number_line tells. */
static inline enum resp_status number_short(const char *line, size_t room, int64_t *value, size_t *length)
{
    unsigned number = 0;
    for (size_t i = 0; i < 4 && i + 2 <= room; i++) {
        const unsigned digit = (unsigned char)line[i] - (unsigned)'0';
        if (digit <= 9 && (i == 0 || number)) {
            number = number * 10 + digit;
            continue;
        }
        if (line[i] != '\r' || !i)
            break;
        *value = number;
        *length = i + 2;
        return RESP_COMPLETE;
    }
    return RESP_EMPTY;
}

/* Reads the number between buffer[at + 1] and CR LF; *next is the place after them. RESP_EMPTY: it is no
 * number. */
static enum resp_status number_line(const char *buffer, size_t length, size_t at, int64_t *value,
                                    size_t *next)
{
    const char *line = buffer + at + 1;
    size_t room = length - at - 1, whole;
    if (number_short(line, room, value, &whole) == RESP_COMPLETE) {
        *next = at + 1 + whole;
        return RESP_COMPLETE;
    }
    const char *end = memchr(line, '\r', room < NUMBER_LINE_MAX ? room : NUMBER_LINE_MAX);
    if (!end)
        return room < NUMBER_LINE_MAX ? RESP_MORE : RESP_BROKEN;
    if ((size_t)(end - buffer) + 2 > length)
        return RESP_MORE;
    *next = (size_t)(end - buffer) + 2;
    return number_read(line, (size_t)(end - line), value) ? RESP_COMPLETE : RESP_EMPTY;
}

static enum resp_status multibulk_header(struct resp_parser *parser, const struct resp_limits *limits,
                                         const char *buffer, size_t length)
{
    int64_t count = 0;
    size_t next = 0;
    enum resp_status status = number_line(buffer, length, 0, &count, &next);
    if (status == RESP_MORE)
        return resp_parser_want(parser, length + 1);
    if (status == RESP_BROKEN)
        return resp_parser_break(parser, "Protocol error: too big mbulk count string");
    if (status == RESP_EMPTY)
        return resp_parser_break(parser, "Protocol error: invalid multibulk length");
    if (count > (int64_t)limits->arguments_max)
        return resp_parser_break_count(parser, limits);
    parser->at = next;
    if (count <= 0)
        return RESP_EMPTY;
    parser->expected = (uint32_t)count;
    return RESP_COMPLETE;
}

static enum resp_status bulk_header(struct resp_parser *parser, const struct resp_limits *limits,
                                    const char *buffer, size_t length)
{
    int64_t bulk = 0;
    size_t next = 0;
    if (parser->at == length)
        return resp_parser_want(parser, length + 4); /* "$0" CR LF: the shortest that can follow */
    if (buffer[parser->at] != '$') {
        unsigned char got = (unsigned char)buffer[parser->at];
        return resp_parser_break(parser, "Protocol error: expected '$', got '%c'",
                                 got >= 32 && got < 127 ? got : '?');
    }
    enum resp_status status = number_line(buffer, length, parser->at, &bulk, &next);
    if (status == RESP_MORE)
        return resp_parser_want(parser, length + 1);
    if (status == RESP_BROKEN)
        return resp_parser_break(parser, "Protocol error: too big bulk count string");
    if (status == RESP_EMPTY || bulk < 0)
        return resp_parser_break(parser, "Protocol error: invalid bulk length");
    if ((uint64_t)bulk > limits->bulk_max)
        return resp_parser_break(parser, limits->unauthenticated
                                             ? "Protocol error: unauthenticated bulk length"
                                             : "Protocol error: invalid bulk length");
    parser->at = next;
    parser->bulk = bulk;
    return RESP_COMPLETE;
}

static enum resp_status multibulk(struct resp_parser *parser, const struct resp_limits *limits, char *buffer,
                                  size_t length, size_t *consumed)
{
    enum resp_status status =
        parser->expected ? RESP_COMPLETE : multibulk_header(parser, limits, buffer, length);
    while (status == RESP_COMPLETE && parser->count < parser->expected) {
        if (parser->bulk < 0)
            status = bulk_header(parser, limits, buffer, length);
        if (status != RESP_COMPLETE)
            break;
        size_t bytes = (size_t)parser->bulk;
        if (length - parser->at < bytes + 2)
            return resp_parser_want(parser, parser->at + bytes + 2);
        status = resp_parser_add(parser, parser->at, bytes);
        if (status == RESP_COMPLETE) {
            parser->at += bytes + 2;
            parser->bulk = -1;
        }
    }
    if (status != RESP_COMPLETE && status != RESP_EMPTY)
        return status;
    *consumed = parser->at;
    resp_parser_finish(parser, buffer);
    return status;
}

/* ---- short requests ---- */

/* The shortest argument: "$0" CR LF CR LF. */
#define ARGUMENT_MIN 6u

/* A length of up to three digits between at[1] and CR LF; six bytes are there, which is the longest. Returns
 * what is behind it; NULL: it is another one, or none. */
static inline const char *length_short(const char *at, size_t *value)
{
    unsigned number = (unsigned char)at[1] - (unsigned)'0';
    if (at[0] != '$' || number > 9)
        return NULL;
    for (at += 2; *at != '\r'; at++) {
        const unsigned digit = (unsigned char)*at - (unsigned)'0';
        if (digit > 9 || !number || number > 99)
            return NULL;
        number = number * 10 + digit;
    }
    *value = number;
    return at + 2;
}

/* What multibulk does with a request of up to nine arguments that is there as a whole, each of them shorter
 * than 1,000 bytes, in a third of its instructions. False: it is another one; nothing has been done. */
static bool multibulk_short(struct resp_parser *parser, const struct resp_limits *limits, const char *buffer,
                            size_t length, size_t *consumed)
{
    const uint32_t count = length > 4 ? (unsigned char)buffer[1] - (uint32_t)'0' : 0;
    if (!count || count > 9 || buffer[2] != '\r' || count > parser->capacity || count > limits->arguments_max)
        return false;
    const char *at = buffer + 4, *const end = buffer + length;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes;
        if ((size_t)(end - at) < ARGUMENT_MIN || !(at = length_short(at, &bytes)) ||
            (size_t)(end - at) < bytes + 2 || bytes > limits->bulk_max)
            return false;
        parser->arguments[i] = (struct resp_argument){.bytes = at, .length = bytes};
        at += bytes + 2;
    }
    parser->count = count;
    parser->wanted = 0;
    *consumed = (size_t)(at - buffer);
    return true;
}

enum resp_status resp_parse(struct resp_parser *parser, const struct resp_limits *limits, char *buffer,
                            size_t length, size_t *consumed)
{
    assert(parser->at <= length); /* the buffer only grows while a request is incomplete */
    if (!length)
        return resp_parser_want(parser, 1);
    if (!parser->expected && !parser->at) {
        if (*buffer == '*' && multibulk_short(parser, limits, buffer, length, consumed))
            return RESP_COMPLETE;
        parser->count = 0;
    }
    if (parser->expected || buffer[0] == '*')
        return multibulk(parser, limits, buffer, length, consumed);
    return resp_parse_inline(parser, limits, buffer, length, consumed);
}
