/*
 * resp_writer.h - replies of the Redis serialization protocol, RESP2 and RESP3, appended to a growing buffer.
 *
 * Called by commands and connections, on the connection's thread. No I/O. A reply that is longer than
 * reply_max, or for which there is no memory, is replaced by an error when it ends.
 */
#ifndef SERVER_RESP_WRITER_H
#define SERVER_RESP_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct resp_writer {
    char *bytes;
    size_t length, capacity;
    size_t start;     /* of the reply under way */
    size_t reply_max; /* longest reply; 0: no limit */
    int protocol;     /* 2 or 3 */
    /* reply_max or memory was exceeded: resp_end will replace the reply by an error. Still set after
     * resp_end: there was no memory for the error either; the connection must be closed. */
    bool overflow;
    uint64_t errors; /* error replies written so far */
    /* Its owner's realloc, who keeps an account, or spare memory: the buffer with room for so many bytes,
     * which has all that was written. NULL: it may not grow, and stays as it is. May be NULL itself. */
    char *(*grow)(struct resp_writer *writer, size_t capacity);
};
void resp_writer_init(struct resp_writer *writer, int protocol, size_t reply_max);
void resp_writer_free(struct resp_writer *writer);
/* Called before and after each command: resp_end replaces a reply that overflowed by an error. */
void resp_begin(struct resp_writer *writer);
void resp_end(struct resp_writer *writer);

void resp_simple(struct resp_writer *writer, const char *text); /* +OK */
/* Bytes as they are, for replies that were put together elsewhere. */
void resp_raw(struct resp_writer *writer, const void *bytes, size_t length);
/* -ERR ...: the format begins with the code word; line breaks become blanks. */
void resp_error(struct resp_writer *writer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void resp_integer(struct resp_writer *writer, int64_t value);
void resp_bulk(struct resp_writer *writer, const void *bytes, size_t length);
/* Where a bulk string of this length will have its bytes, if it is the next thing that is written: bytes that
 * are put there before need not be copied by resp_bulk, which tells by their address. NULL: there is no room,
 * and the reply overflows. */
char *resp_bulk_place(struct resp_writer *writer, size_t length);
/* Makes room for so many bytes at once, if there is memory for them: a buffer that grows bit by bit is copied
 * again and again. */
void resp_expect(struct resp_writer *writer, size_t bytes);
void resp_text(struct resp_writer *writer, const char *text); /* a bulk string of a C string */
void resp_null(struct resp_writer *writer);                   /* RESP2: null bulk */
void resp_array(struct resp_writer *writer, size_t count);
void resp_map(struct resp_writer *writer, size_t pairs); /* RESP2: an array of twice as many */
void resp_set(struct resp_writer *writer, size_t count); /* RESP2: an array */
void resp_double(struct resp_writer *writer, double value);
void resp_boolean(struct resp_writer *writer, bool value);                       /* RESP2: 1 or 0 */
void resp_verbatim(struct resp_writer *writer, const char *text, size_t length); /* txt; RESP2: bulk */
/* For an array whose number of elements is known only at its end: resp_array_open leaves room for the header,
 * resp_array_close fills it in. */
size_t resp_array_open(struct resp_writer *writer);
void resp_array_close(struct resp_writer *writer, size_t mark, size_t count);

#endif
