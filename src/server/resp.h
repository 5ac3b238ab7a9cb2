/*
 * resp.h - the Redis serialization protocol: requests taken apart, replies put together. RESP2 and RESP3.
 *
 * The parser is incremental over the caller's buffer and copies nothing; it judges every length before it
 * believes it, and says what to do in Redis's words when the peer breaks the protocol. The writer appends to
 * a growing buffer of the connection's. Neither does I/O; both belong to the connection's thread.
 */
#ifndef SERVER_RESP_H
#define SERVER_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct resp_argument {
    const char *bytes; /* not terminated */
    size_t length;
};

/* ---- requests ---- */

struct resp_limits {
    uint64_t bulk_max;      /* bytes of one argument */
    uint32_t arguments_max; /* of one request; Redis: 1,048,576 */
    uint32_t inline_max;    /* bytes of an inline request: 65,536 */
    bool unauthenticated;   /* the limits are those of a peer without password: the errors say so */
};
enum resp_status {
    RESP_COMPLETE, /* one request is there */
    RESP_MORE,     /* bytes are missing; wanted says at least how many in all, where it is known */
    RESP_EMPTY,    /* an empty line or an array of no elements: skip `consumed` bytes */
    RESP_BROKEN,   /* the peer does not speak the protocol: reply `error`, close */
    RESP_NO_MEMORY,
};
/* Keeps its place between calls, so that a request that comes in small pieces is not parsed again from its
 * start. */
struct resp_parser {
    struct resp_argument *arguments; /* of the complete request; offsets while it is incomplete */
    uint32_t count, capacity;
    uint32_t expected; /* arguments of the request; 0: its first line has not been read */
    size_t at;         /* parsed so far, from the buffer's start */
    size_t wanted;
    int64_t bulk; /* of the argument under way; -1: its length has not been read */
    char error[128];
};
void resp_parser_init(struct resp_parser *parser);
void resp_parser_free(struct resp_parser *parser);
/* Forgets the incomplete request: the next call parses from the start of one. */
void resp_parser_restart(struct resp_parser *parser);
/* Takes the request that begins at buffer[0]; with RESP_COMPLETE and RESP_EMPTY *consumed says how long it
 * was, and the parser is ready for the next. The arguments point into the buffer, and stay in the parser
 * until its next call. The buffer may move between calls for one request. Inline requests with quotes are
 * rewritten in place, once they are complete. As in Redis, the two bytes behind a bulk are skipped, whatever
 * they are.
 */
enum resp_status resp_parse(struct resp_parser *parser, const struct resp_limits *limits, char *buffer,
                            size_t length, size_t *consumed);

/* ---- replies ---- */

struct resp_writer {
    char *bytes;
    size_t length, capacity;
    size_t start;     /* of the reply under way */
    size_t reply_max; /* it may not be longer; 0: no limit */
    int protocol;     /* 2 or 3 */
    bool overflow;    /* reply_max or memory ran out: the reply will be replaced by an error. After resp_end:
                       * there was no memory even for that; the connection must be closed */
    uint64_t errors;  /* error replies written so far */
    /* NULL, or asked before the buffer grows from one size to another: whoever owns it keeps accounts. False:
     * no more. */
    bool (*grow)(struct resp_writer *writer, size_t from, size_t to);
};
void resp_writer_init(struct resp_writer *writer, int protocol, size_t reply_max);
void resp_writer_free(struct resp_writer *writer);
/* Around each command: resp_end replaces a reply that overflowed by an error. */
void resp_begin(struct resp_writer *writer);
void resp_end(struct resp_writer *writer);

void resp_simple(struct resp_writer *writer, const char *text); /* +OK */
/* Bytes as they are: for replies that were put together elsewhere. */
void resp_raw(struct resp_writer *writer, const void *bytes, size_t length);
void resp_error(struct resp_writer *writer, const char *format,
                ...)                       /* -ERR ...: with its code word; line breaks */
    __attribute__((format(printf, 2, 3))); /* are made blanks */
void resp_integer(struct resp_writer *writer, int64_t value);
void resp_bulk(struct resp_writer *writer, const void *bytes, size_t length);
void resp_text(struct resp_writer *writer, const char *text); /* a bulk string of a C string */
void resp_null(struct resp_writer *writer);                   /* RESP2: null bulk */
void resp_array(struct resp_writer *writer, size_t count);
void resp_map(struct resp_writer *writer, size_t pairs); /* RESP2: an array of twice as many */
void resp_set(struct resp_writer *writer, size_t count); /* RESP2: an array */
void resp_double(struct resp_writer *writer, double value);
void resp_boolean(struct resp_writer *writer, bool value);                       /* RESP2: 1 or 0 */
void resp_verbatim(struct resp_writer *writer, const char *text, size_t length); /* txt; RESP2: bulk */
/* For replies whose number of elements is known only at the end: room for an array's head, filled in later.
 */
size_t resp_array_open(struct resp_writer *writer);
void resp_array_close(struct resp_writer *writer, size_t mark, size_t count);

#endif
