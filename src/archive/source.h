/*
 * source.h - a file that is read from its beginning to its end, or bytes in memory: with a buffer that grows
 * as bytes come, so that a length that the file only claims costs no memory.
 *
 * For the readers of this folder; one thread. Errors name the file and the place in it.
 */
#ifndef ARCHIVE_SOURCE_H
#define ARCHIVE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

/* Up to `length` of the next bytes; *got 0: the end. An error has its message. */
typedef int source_read_function(void *context, void *buffer, size_t length, size_t *got,
                                 struct error *error);

struct source {
    const char *name; /* for messages; the caller's */
    int descriptor;   /* -1: bytes in memory, or what `read` gives */
    source_read_function *read;
    void *context;
    uint8_t *buffer; /* owned, unless it is the caller's bytes */
    size_t begin, end, capacity;
    uint64_t position; /* in the file, of what begins at `begin` */
};

/* "-": standard input. BANYAN_EINVAL. */
int source_open(struct source *source, const char *path, struct error *error);
/* What a function reads. */
void source_function(struct source *source, const char *name, source_read_function *read, void *context);
/* The bytes must stay as they are. */
void source_memory(struct source *source, const char *name, const void *bytes, size_t length);
void source_close(struct source *source);

/* The next `length` bytes, and goes on behind them; valid until the next call. `what` they are is for the
 * message where the file ends before: BANYAN_ECORRUPT. BANYAN_EINVAL: the file cannot be read. BANYAN_ENOMEM.
 */
int source_take(struct source *source, uint64_t length, const char *what, const uint8_t **bytes,
                struct error *error);
/* At most `length` of the next bytes, without going on; fewer at the file's end. Valid until the next call.
 */
int source_peek(struct source *source, size_t length, const uint8_t **bytes, size_t *available,
                struct error *error);
/* BANYAN_ECORRUPT with a message that begins with the file and the place `position`. */
int source_corrupt(const struct source *source, uint64_t position, struct error *error, const char *format,
                   ...) __attribute__((format(printf, 4, 5)));

#endif
