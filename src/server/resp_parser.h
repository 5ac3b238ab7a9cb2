/*
 * resp_parser.h - requests of the Redis serialization protocol, taken apart: arrays of bulk strings, and
 * inline requests. The syntax is the same in RESP2 and RESP3.
 *
 * Called by a connection's pipeline, on the connection's thread. The parser is incremental over the caller's
 * buffer and copies nothing. It checks every length against the limits before it uses it, and reports a
 * broken request with Redis's error text. It does no I/O; only the array of arguments is allocated.
 */
#ifndef SERVER_RESP_PARSER_H
#define SERVER_RESP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct resp_argument {
    const char *bytes; /* not terminated */
    size_t length;
};

struct resp_limits {
    uint64_t bulk_max;      /* bytes of one argument */
    uint32_t arguments_max; /* of one request; Redis: 1,048,576 */
    uint32_t inline_max;    /* bytes of an inline request: 65,536 */
    bool unauthenticated;   /* these are the limits before AUTH: error texts say so */
};
enum resp_status {
    RESP_COMPLETE, /* one request is there */
    RESP_MORE,     /* bytes are missing; `wanted` is a lower bound for all bytes of the request */
    RESP_EMPTY,    /* an empty line or an array of no elements: skip `consumed` bytes */
    RESP_BROKEN,   /* the request violates the protocol: reply `error`, close */
    RESP_NO_MEMORY,
};
/* Keeps its place between calls, so that a request that arrives in small pieces is parsed once. */
struct resp_parser {
    struct resp_argument *arguments; /* of the complete request; offsets while it is incomplete */
    uint32_t count, capacity;
    uint32_t expected; /* arguments of the request; 0: its first line has not been read */
    size_t at;         /* parsed so far, from the buffer's start */
    size_t wanted;
    int64_t bulk; /* length of the argument under way; -1: it has not been read */
    char error[128];
};
void resp_parser_init(struct resp_parser *parser);
void resp_parser_free(struct resp_parser *parser);
/* Forgets the incomplete request: the next call parses from the start of a request. The arguments stay. */
void resp_parser_restart(struct resp_parser *parser);
/* Parses the request that begins at buffer[0]. With RESP_COMPLETE and RESP_EMPTY *consumed is its length, and
 * the parser is ready for the next one. The arguments point into the buffer, and stay in the parser until its
 * next call. The buffer may move between calls for one request. Quotes of an inline request are removed in
 * place once it is complete. As in Redis, the two bytes after a bulk string are skipped, whatever they are.
 */
enum resp_status resp_parse(struct resp_parser *parser, const struct resp_limits *limits, char *buffer,
                            size_t length, size_t *consumed);

/* ---- shared by resp_parser.c and resp_inline.c ---- */

/* Sets the parser's error text; returns RESP_BROKEN. */
enum resp_status resp_parser_break(struct resp_parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* More arguments than the limits allow. */
enum resp_status resp_parser_break_count(struct resp_parser *parser, const struct resp_limits *limits);
/* Sets `wanted`; returns RESP_MORE. */
enum resp_status resp_parser_want(struct resp_parser *parser, size_t wanted);
/* Adds an argument at an offset of the buffer. RESP_COMPLETE or RESP_NO_MEMORY. */
enum resp_status resp_parser_add(struct resp_parser *parser, size_t offset, size_t length);
/* The request is complete: its arguments' offsets become pointers into the buffer. */
void resp_parser_finish(struct resp_parser *parser, const char *buffer);
/* resp_inline.c: a request that does not begin with '*'. */
enum resp_status resp_parse_inline(struct resp_parser *parser, const struct resp_limits *limits, char *buffer,
                                   size_t length, size_t *consumed);

#endif
