/*
 * resp.c - the parser of requests (multibulk and inline) and the writer of replies; contract in resp.h.
 *
 * The parser keeps offsets while a request is incomplete, since the buffer may move, and turns them into
 * pointers at its end. The array of arguments grows with the arguments that have really come, never with the
 * number that the peer has announced.
 */
#include "server/resp.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- requests ---- */

/* No length has more digits than fit here; a longer line is no length. */
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

static enum resp_status broken(struct resp_parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static enum resp_status broken(struct resp_parser *parser, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(parser->error, sizeof parser->error, format, arguments);
    va_end(arguments);
    return RESP_BROKEN;
}

static enum resp_status more(struct resp_parser *parser, size_t wanted)
{
    parser->wanted = wanted;
    return RESP_MORE;
}

/* The arguments of the request stay. */
void resp_parser_restart(struct resp_parser *parser)
{
    parser->expected = 0;
    parser->at = 0;
    parser->wanted = 0;
    parser->bulk = -1;
}

static enum resp_status argument_add(struct resp_parser *parser, size_t offset, size_t length)
{
    if (parser->count == parser->capacity) {
        uint32_t capacity = parser->capacity ? parser->capacity * 2 : 8;
        struct resp_argument *larger = realloc(parser->arguments, capacity * sizeof *larger);
        if (!larger)
            return RESP_NO_MEMORY;
        parser->arguments = larger;
        parser->capacity = capacity;
    }
    /* An offset, until the request is complete. */
    parser->arguments[parser->count++] =
        (struct resp_argument){.bytes = (const char *)(uintptr_t)offset, .length = length};
    return RESP_COMPLETE;
}

static void arguments_place(struct resp_parser *parser, const char *buffer)
{
    for (uint32_t i = 0; i < parser->count; i++)
        parser->arguments[i].bytes = buffer + (uintptr_t)parser->arguments[i].bytes;
}

/* A whole decimal number, as Redis reads lengths: no sign but '-', no leading zeros. */
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

/* The number between buffer[at + 1] and CR LF; *next is behind them. RESP_EMPTY: it is no number. */
static enum resp_status number_line(const char *buffer, size_t length, size_t at, int64_t *value,
                                    size_t *next)
{
    const char *line = buffer + at + 1;
    size_t room = length - at - 1;
    const char *end = memchr(line, '\r', room < NUMBER_LINE_MAX ? room : NUMBER_LINE_MAX);
    if (!end)
        return room < NUMBER_LINE_MAX ? RESP_MORE : RESP_BROKEN;
    if ((size_t)(end - buffer) + 2 > length)
        return RESP_MORE;
    *next = (size_t)(end - buffer) + 2;
    return number_read(line, (size_t)(end - line), value) ? RESP_COMPLETE : RESP_EMPTY;
}

static enum resp_status multibulk_head(struct resp_parser *parser, const struct resp_limits *limits,
                                       const char *buffer, size_t length)
{
    int64_t count = 0;
    size_t next = 0;
    enum resp_status status = number_line(buffer, length, 0, &count, &next);
    if (status == RESP_MORE)
        return more(parser, length + 1);
    if (status == RESP_BROKEN)
        return broken(parser, "Protocol error: too big mbulk count string");
    if (status == RESP_EMPTY)
        return broken(parser, "Protocol error: invalid multibulk length");
    if (count > (int64_t)limits->arguments_max)
        return broken(parser, limits->unauthenticated ? "Protocol error: unauthenticated multibulk length"
                                                      : "Protocol error: invalid multibulk length");
    parser->at = next;
    if (count <= 0)
        return RESP_EMPTY;
    parser->expected = (uint32_t)count;
    return RESP_COMPLETE;
}

static enum resp_status bulk_head(struct resp_parser *parser, const struct resp_limits *limits,
                                  const char *buffer, size_t length)
{
    int64_t bulk = 0;
    size_t next = 0;
    if (parser->at == length)
        return more(parser, length + 4); /* $0, two line ends, less what may be left out */
    if (buffer[parser->at] != '$') {
        unsigned char got = (unsigned char)buffer[parser->at];
        return broken(parser, "Protocol error: expected '$', got '%c'", got >= 32 && got < 127 ? got : '?');
    }
    enum resp_status status = number_line(buffer, length, parser->at, &bulk, &next);
    if (status == RESP_MORE)
        return more(parser, length + 1);
    if (status == RESP_BROKEN)
        return broken(parser, "Protocol error: too big bulk count string");
    if (status == RESP_EMPTY || bulk < 0)
        return broken(parser, "Protocol error: invalid bulk length");
    if ((uint64_t)bulk > limits->bulk_max)
        return broken(parser, limits->unauthenticated ? "Protocol error: unauthenticated bulk length"
                                                      : "Protocol error: invalid bulk length");
    parser->at = next;
    parser->bulk = bulk;
    return RESP_COMPLETE;
}

static enum resp_status multibulk(struct resp_parser *parser, const struct resp_limits *limits, char *buffer,
                                  size_t length, size_t *consumed)
{
    enum resp_status status =
        parser->expected ? RESP_COMPLETE : multibulk_head(parser, limits, buffer, length);
    while (status == RESP_COMPLETE && parser->count < parser->expected) {
        if (parser->bulk < 0)
            status = bulk_head(parser, limits, buffer, length);
        if (status != RESP_COMPLETE)
            break;
        size_t bytes = (size_t)parser->bulk;
        if (length - parser->at < bytes + 2)
            return more(parser, parser->at + bytes + 2);
        status = argument_add(parser, parser->at, bytes);
        if (status == RESP_COMPLETE) {
            parser->at += bytes + 2;
            parser->bulk = -1;
        }
    }
    if (status != RESP_COMPLETE && status != RESP_EMPTY)
        return status;
    arguments_place(parser, buffer);
    *consumed = parser->at;
    resp_parser_restart(parser);
    return status;
}

static int hexadecimal(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* What the escape at text[*at] (a backslash, with something behind it) stands for; moves *at to its last
 * byte. */
static char escape(const char *text, size_t *at, size_t length)
{
    if (text[*at + 1] == 'x' && *at + 3 < length && hexadecimal(text[*at + 2]) >= 0 &&
        hexadecimal(text[*at + 3]) >= 0) {
        *at += 3;
        return (char)(hexadecimal(text[*at - 1]) * 16 + hexadecimal(text[*at]));
    }
    *at += 1;
    switch (text[*at]) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return text[*at];
    }
}

/* One word from text[*at] on, written without its quotes to text[begin..]; its length, or SIZE_MAX: quotes
 * are not balanced. What is written never overtakes what is read. */
static size_t inline_word(char *text, size_t *at, size_t length, size_t begin)
{
    size_t end = begin, i = *at;
    char quote = 0;
    for (; i < length; i++) {
        char c = text[i];
        if (quote == '"' && c == '\\' && i + 1 < length) {
            text[end++] = escape(text, &i, length);
        } else if (quote == '\'' && c == '\\' && i + 1 < length && text[i + 1] == '\'') {
            text[end++] = '\'';
            i++;
        } else if (quote && c == quote) {
            if (i + 1 < length && !blank(text[i + 1]))
                return SIZE_MAX; /* a closing quote must end the word */
            quote = 0;
            i++;
            break;
        } else if (quote) {
            text[end++] = c;
        } else if (blank(c) || !c) {
            break;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else {
            text[end++] = c;
        }
    }
    *at = i;
    return quote ? SIZE_MAX : end - begin;
}

static enum resp_status inline_words(struct resp_parser *parser, const struct resp_limits *limits, char *line,
                                     size_t length)
{
    const char *zero = memchr(line, 0, length);
    if (zero) /* Redis's line ends there */
        length = (size_t)(zero - line);
    for (size_t at = 0;;) {
        while (at < length && blank(line[at]))
            at++;
        if (at == length)
            return parser->count ? RESP_COMPLETE : RESP_EMPTY;
        size_t begin = at, bytes = inline_word(line, &at, length, begin);
        if (bytes == SIZE_MAX)
            return broken(parser, "Protocol error: unbalanced quotes in request");
        if (parser->count == limits->arguments_max)
            return broken(parser, limits->unauthenticated ? "Protocol error: unauthenticated multibulk length"
                                                          : "Protocol error: invalid multibulk length");
        enum resp_status status = argument_add(parser, begin, bytes);
        if (status != RESP_COMPLETE)
            return status;
    }
}

static enum resp_status inline_request(struct resp_parser *parser, const struct resp_limits *limits,
                                       char *buffer, size_t length, size_t *consumed)
{
    const char *end = memchr(buffer + parser->at, '\n', length - parser->at);
    size_t line = end ? (size_t)(end - buffer) : length;
    if (line > limits->inline_max)
        return broken(parser, "Protocol error: too big inline request");
    parser->at = line; /* searched so far */
    if (!end)
        return more(parser, length + 1);
    *consumed = line + 1;
    if (line && buffer[line - 1] == '\r')
        line--;
    enum resp_status status = inline_words(parser, limits, buffer, line);
    if (status == RESP_COMPLETE || status == RESP_EMPTY) {
        arguments_place(parser, buffer);
        resp_parser_restart(parser);
    }
    return status;
}

enum resp_status resp_parse(struct resp_parser *parser, const struct resp_limits *limits, char *buffer,
                            size_t length, size_t *consumed)
{
    if (!length)
        return more(parser, 1);
    if (!parser->expected && !parser->at)
        parser->count = 0;
    if (parser->expected || buffer[0] == '*')
        return multibulk(parser, limits, buffer, length, consumed);
    return inline_request(parser, limits, buffer, length, consumed);
}

/* ---- replies ---- */

#define WRITER_FIRST 1024u

void resp_writer_init(struct resp_writer *writer, int protocol, size_t reply_max)
{
    memset(writer, 0, sizeof *writer);
    writer->protocol = protocol;
    writer->reply_max = reply_max;
}

void resp_writer_free(struct resp_writer *writer)
{
    free(writer->bytes);
    writer->bytes = NULL;
    writer->length = writer->capacity = writer->start = 0;
}

static bool writer_grow(struct resp_writer *writer, size_t bytes)
{
    size_t capacity = writer->capacity ? writer->capacity : WRITER_FIRST;
    while (capacity - writer->length < bytes) {
        if (capacity > SIZE_MAX / 2)
            return false;
        capacity *= 2;
    }
    if (writer->grow && !writer->grow(writer, writer->capacity, capacity))
        return false;
    char *larger = realloc(writer->bytes, capacity);
    if (!larger) {
        if (writer->grow)
            writer->grow(writer, capacity, writer->capacity);
        return false;
    }
    writer->bytes = larger;
    writer->capacity = capacity;
    return true;
}

/* Room for so many bytes at the end, NULL: the reply is lost. */
static inline char *room(struct resp_writer *writer, size_t bytes)
{
    if (writer->overflow)
        return NULL;
    if ((writer->reply_max && bytes > writer->reply_max - (writer->length - writer->start)) ||
        (bytes > writer->capacity - writer->length && !writer_grow(writer, bytes))) {
        writer->overflow = true;
        return NULL;
    }
    return writer->bytes + writer->length;
}

void resp_begin(struct resp_writer *writer)
{
    writer->start = writer->length;
    writer->overflow = false;
}

void resp_end(struct resp_writer *writer)
{
    if (!writer->overflow)
        return;
    static const char text[] = "-ERR the reply is longer than this server's output-buffer-max allows\r\n";
    writer->length = writer->start;
    if (writer->capacity - writer->length < sizeof text && !writer_grow(writer, sizeof text))
        return; /* overflow stays set */
    memcpy(writer->bytes + writer->length, text, sizeof text - 1);
    writer->length += sizeof text - 1;
    writer->errors++;
    writer->overflow = false;
}

void resp_raw(struct resp_writer *writer, const void *bytes, size_t length)
{
    char *at = room(writer, length);
    if (!at)
        return;
    if (length)
        memcpy(at, bytes, length);
    writer->length += length;
}

/* The digits of a number; returns how many. */
static size_t digits(char text[21], int64_t value)
{
    char reversed[20];
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t count = 0, at = 0;
    do
        reversed[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        text[at++] = '-';
    while (count)
        text[at++] = reversed[--count];
    return at;
}

/* "<mark><number>\r\n": at most 24 bytes. */
static size_t head_write(char *at, char mark, int64_t value)
{
    at[0] = mark;
    size_t length = 1 + digits(at + 1, value);
    at[length] = '\r';
    at[length + 1] = '\n';
    return length + 2;
}

static void head(struct resp_writer *writer, char mark, int64_t value)
{
    char *at = room(writer, 24);
    if (at)
        writer->length += head_write(at, mark, value);
}

void resp_simple(struct resp_writer *writer, const char *text)
{
    size_t length = strlen(text);
    char *at = room(writer, length + 3);
    if (!at)
        return;
    at[0] = '+';
    memcpy(at + 1, text, length);
    at[length + 1] = '\r';
    at[length + 2] = '\n';
    writer->length += length + 3;
}

void resp_error(struct resp_writer *writer, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int printed = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t length = printed < 0 ? 0 : (size_t)printed < sizeof text ? (size_t)printed : sizeof text - 1;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\r' || text[i] == '\n')
            text[i] = ' ';
    writer->errors++;
    char *at = room(writer, length + 3);
    if (!at)
        return;
    at[0] = '-';
    memcpy(at + 1, text, length);
    memcpy(at + 1 + length, "\r\n", 2);
    writer->length += length + 3;
}

void resp_integer(struct resp_writer *writer, int64_t value)
{
    head(writer, ':', value);
}

void resp_bulk(struct resp_writer *writer, const void *bytes, size_t length)
{
    char *at = length <= SIZE_MAX / 2 ? room(writer, length + 26) : NULL;
    if (!at)
        return;
    at += head_write(at, '$', (int64_t)length);
    if (length)
        memcpy(at, bytes, length);
    memcpy(at + length, "\r\n", 2);
    writer->length = (size_t)(at - writer->bytes) + length + 2;
}

void resp_text(struct resp_writer *writer, const char *text)
{
    resp_bulk(writer, text, strlen(text));
}

void resp_null(struct resp_writer *writer)
{
    if (writer->protocol >= 3)
        resp_raw(writer, "_\r\n", 3);
    else
        resp_raw(writer, "$-1\r\n", 5);
}

void resp_array(struct resp_writer *writer, size_t count)
{
    head(writer, '*', (int64_t)count);
}

void resp_map(struct resp_writer *writer, size_t pairs)
{
    if (writer->protocol >= 3)
        head(writer, '%', (int64_t)pairs);
    else
        head(writer, '*', (int64_t)pairs * 2);
}

void resp_set(struct resp_writer *writer, size_t count)
{
    head(writer, writer->protocol >= 3 ? '~' : '*', (int64_t)count);
}

void resp_double(struct resp_writer *writer, double value)
{
    char text[40];
    if (isnan(value))
        strcpy(text, "nan");
    else if (isinf(value))
        strcpy(text, value > 0 ? "inf" : "-inf");
    else
        snprintf(text, sizeof text, "%.17g", value);
    if (writer->protocol < 3) {
        resp_text(writer, text);
        return;
    }
    resp_raw(writer, ",", 1);
    resp_raw(writer, text, strlen(text));
    resp_raw(writer, "\r\n", 2);
}

void resp_boolean(struct resp_writer *writer, bool value)
{
    if (writer->protocol >= 3)
        resp_raw(writer, value ? "#t\r\n" : "#f\r\n", 4);
    else
        resp_integer(writer, value);
}

void resp_verbatim(struct resp_writer *writer, const char *text, size_t length)
{
    if (writer->protocol < 3) {
        resp_bulk(writer, text, length);
        return;
    }
    head(writer, '=', (int64_t)length + 4);
    resp_raw(writer, "txt:", 4);
    resp_raw(writer, text, length);
    resp_raw(writer, "\r\n", 2);
}

#define OPEN_BYTES 24u

size_t resp_array_open(struct resp_writer *writer)
{
    size_t mark = writer->length;
    char *at = room(writer, OPEN_BYTES);
    if (at) {
        memset(at, ' ', OPEN_BYTES);
        writer->length += OPEN_BYTES;
    }
    return mark;
}

void resp_array_close(struct resp_writer *writer, size_t mark, size_t count)
{
    if (writer->overflow)
        return;
    char text[OPEN_BYTES];
    size_t length = head_write(text, '*', (int64_t)count), rest = mark + OPEN_BYTES;
    memcpy(writer->bytes + mark, text, length);
    memmove(writer->bytes + mark + length, writer->bytes + rest, writer->length - rest);
    writer->length -= OPEN_BYTES - length;
}
