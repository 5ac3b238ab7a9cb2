/* resp_writer.c - the writer of replies; contract in resp_writer.h. */
#include "server/resp_writer.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

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
    char *larger = writer->grow ? writer->grow(writer, capacity) : realloc(writer->bytes, capacity);
    if (!larger)
        return false;
    writer->bytes = larger;
    writer->capacity = capacity;
    return true;
}

/* The place for `bytes` more bytes. NULL: there is none, and the reply overflows. */
static inline char *room(struct resp_writer *writer, size_t bytes)
{
    assert(writer->start <= writer->length && writer->length <= writer->capacity);
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
    static const char text[] =
        "-ERR the reply is longer than this server's limit (reply-max), or there is no memory for it\r\n";
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

/* Writes a number in decimal; returns its length. */
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
static size_t header_write(char *at, char mark, int64_t value)
{
    at[0] = mark;
    size_t length = 2;
    if (value >= 0 && value <= 9)
        at[1] = (char)('0' + value);
    else
        length = 1 + digits(at + 1, value);
    at[length] = '\r';
    at[length + 1] = '\n';
    return length + 2;
}

static void header(struct resp_writer *writer, char mark, int64_t value)
{
    char *at = room(writer, 24);
    if (at)
        writer->length += header_write(at, mark, value);
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
    header(writer, ':', value);
}

/* The header of a bulk string, which is no part of the reply yet. Returns where the bytes go, or NULL. */
static inline char *bulk_begin(struct resp_writer *writer, size_t length)
{
    char *at = length <= SIZE_MAX / 2 ? room(writer, length + 26) : NULL;
    return at ? at + header_write(at, '$', (int64_t)length) : NULL;
}

char *resp_bulk_place(struct resp_writer *writer, size_t length)
{
    return bulk_begin(writer, length);
}

void resp_expect(struct resp_writer *writer, size_t bytes)
{
    if (bytes > writer->capacity - writer->length && bytes <= SIZE_MAX / 2)
        (void)writer_grow(writer, bytes); /* else it grows, or overflows, when the bytes come */
}

void resp_bulk(struct resp_writer *writer, const void *bytes, size_t length)
{
    char *at = bulk_begin(writer, length);
    if (!at)
        return;
    if (at != bytes)
        bytes_copy(at, bytes, length);
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
    header(writer, '*', (int64_t)count);
}

void resp_map(struct resp_writer *writer, size_t pairs)
{
    if (writer->protocol >= 3)
        header(writer, '%', (int64_t)pairs);
    else
        header(writer, '*', (int64_t)pairs * 2);
}

void resp_set(struct resp_writer *writer, size_t count)
{
    header(writer, writer->protocol >= 3 ? '~' : '*', (int64_t)count);
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
    header(writer, '=', (int64_t)length + 4);
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
    assert(mark >= writer->start && mark + OPEN_BYTES <= writer->length);
    char text[OPEN_BYTES];
    size_t length = header_write(text, '*', (int64_t)count), rest = mark + OPEN_BYTES;
    memcpy(writer->bytes + mark, text, length);
    memmove(writer->bytes + mark + length, writer->bytes + rest, writer->length - rest);
    writer->length -= OPEN_BYTES - length;
}
