/*
 * resp_inline.c - inline requests: one line of words, some in quotes, as people type them; contract in
 * resp_parser.h.
 */
#include "server/resp_parser.h"

#include <string.h>

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

/* Decodes the escape at text[*at], a backslash that is not the last byte; moves *at to the escape's last
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

/* Writes the word at text[*at] without its quotes to text[begin..] and moves *at behind it. Returns its
 * length, or SIZE_MAX: the quotes are not balanced. In place: it writes no further than it has read. */
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
    if (zero) /* as in Redis, the line ends there */
        length = (size_t)(zero - line);
    for (size_t at = 0;;) {
        while (at < length && blank(line[at]))
            at++;
        if (at == length)
            return parser->count ? RESP_COMPLETE : RESP_EMPTY;
        size_t begin = at, bytes = inline_word(line, &at, length, begin);
        if (bytes == SIZE_MAX)
            return resp_parser_break(parser, "Protocol error: unbalanced quotes in request");
        if (parser->count == limits->arguments_max)
            return resp_parser_break_count(parser, limits);
        enum resp_status status = resp_parser_add(parser, begin, bytes);
        if (status != RESP_COMPLETE)
            return status;
    }
}

enum resp_status resp_parse_inline(struct resp_parser *parser, const struct resp_limits *limits, char *buffer,
                                   size_t length, size_t *consumed)
{
    const char *end = memchr(buffer + parser->at, '\n', length - parser->at);
    size_t line = end ? (size_t)(end - buffer) : length;
    if (line > limits->inline_max)
        return resp_parser_break(parser, "Protocol error: too big inline request");
    parser->at = line; /* searched so far */
    if (!end)
        return resp_parser_want(parser, length + 1);
    *consumed = line + 1;
    if (line && buffer[line - 1] == '\r')
        line--;
    enum resp_status status = inline_words(parser, limits, buffer, line);
    if (status == RESP_COMPLETE || status == RESP_EMPTY)
        resp_parser_finish(parser, buffer);
    return status;
}
