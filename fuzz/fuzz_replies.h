/* fuzz_replies.h - whether bytes are exactly one RESP reply: a plain recursive reading of the protocol, for
 * servers' answers. */
#ifndef FUZZ_REPLIES_H
#define FUZZ_REPLIES_H

#include "fuzz/fuzz.h"

#define FUZZ_REPLY_DEPTH 12u

/* The end of the first line within the bytes; NULL: there is none. */
static inline const char *fuzz_line_end(const char *at, const char *end)
{
    const char *line = at < end ? memchr(at, '\r', (size_t)(end - at)) : NULL;
    return line && line + 1 < end && line[1] == '\n' ? line : NULL;
}

/* The place after the reply at `at`; NULL: it is no reply. protocol 0: RESP2 or RESP3. */
static inline const char *fuzz_reply_end(const char *at, const char *end, int protocol, unsigned depth)
{
    const char *line = fuzz_line_end(at + 1, end);
    if (at >= end || !line || depth > FUZZ_REPLY_DEPTH || memchr(at, '\n', (size_t)(line - at)))
        return NULL;
    char kind = *at, *number_end;
    long long number = strtoll(at + 1, &number_end, 10);
    bool is_number = number_end == line && line > at + 1;
    at = line + 2;
    switch (kind) {
    case '+':
    case '-':
        return at;
    case ':':
        return is_number ? at : NULL;
    case '$':
    case '=':
        if (!is_number || number < -1 || (kind == '=' && protocol == 2))
            return NULL;
        if (number < 0)
            return protocol != 3 ? at : NULL;
        return end - at >= number + 2 && !memcmp(at + number, "\r\n", 2) ? at + number + 2 : NULL;
    case '_':
    case '#':
    case ',':
    case '(':
        return protocol != 2 ? at : NULL;
    case '*':
    case '%':
    case '~':
    case '>':
        if (!is_number || number < -1 || (kind != '*' && protocol == 2))
            return NULL;
        for (long long i = kind == '%' ? 2 * number : number; at && i > 0; i--)
            at = fuzz_reply_end(at, end, protocol, depth + 1);
        return at;
    default:
        return NULL;
    }
}

#endif
