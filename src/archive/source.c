/* source.c - see source.h. */
#include "archive/source.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_FIRST ((size_t)256 << 10)

int source_open(struct source *source, const char *path, struct error *error)
{
    const bool standard = !strcmp(path, "-");
    *source = (struct source){.name = standard ? "standard input" : path, .descriptor = STDIN_FILENO};
    if (!standard)
        source->descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (source->descriptor < 0)
        return error_set(error, BANYAN_EINVAL, "%.160s cannot be opened: %s", path, strerror(errno));
    return 0;
}

void source_function(struct source *source, const char *name, source_read_function *read, void *context)
{
    *source = (struct source){.name = name, .descriptor = -1, .read = read, .context = context};
}

void source_memory(struct source *source, const char *name, const void *bytes, size_t length)
{
    *source = (struct source){.name = name,
                              .descriptor = -1,
                              .buffer = (uint8_t *)(uintptr_t)bytes,
                              .end = length,
                              .capacity = length};
}

void source_close(struct source *source)
{
    if (source->descriptor >= 0 || source->read)
        free(source->buffer);
    if (source->descriptor > STDIN_FILENO)
        close(source->descriptor);
    *source = (struct source){.descriptor = -1};
}

int source_corrupt(const struct source *source, uint64_t position, struct error *error, const char *format,
                   ...)
{
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return error_set(error, BANYAN_ECORRUPT, "%.60s, byte %" PRIu64 ": %s", source->name, position, text);
}

/* Room for more bytes behind those that are there. The buffer at most doubles what has come. */
static int make_room(struct source *source, struct error *error)
{
    if (source->begin > 0) {
        memmove(source->buffer, source->buffer + source->begin, source->end - source->begin);
        source->end -= source->begin;
        source->begin = 0;
    }
    if (source->end < source->capacity)
        return 0;
    size_t more = source->capacity ? source->capacity * 2 : BUFFER_FIRST;
    uint8_t *grown = realloc(source->buffer, more);
    if (!grown)
        return error_set(error, BANYAN_ENOMEM, "%.60s: no memory for %zu bytes of it", source->name, more);
    source->buffer = grown;
    source->capacity = more;
    return 0;
}

static int read_more(struct source *source, void *to, size_t room, size_t *got, struct error *error)
{
    if (source->read)
        return source->read(source->context, to, room, got, error);
    ssize_t more;
    do
        more = read(source->descriptor, to, room);
    while (more < 0 && errno == EINTR);
    if (more < 0)
        return error_set(error, BANYAN_EINVAL, "%.160s cannot be read: %s", source->name, strerror(errno));
    *got = (size_t)more;
    return 0;
}

/* Until `length` bytes are there, or the file has ended. */
static int fill(struct source *source, uint64_t length, struct error *error)
{
    while ((source->descriptor >= 0 || source->read) && source->end - source->begin < length) {
        size_t got = 0;
        int status = source->end < source->capacity ? 0 : make_room(source, error);
        if (!status)
            status =
                read_more(source, source->buffer + source->end, source->capacity - source->end, &got, error);
        if (status)
            return status;
        if (!got)
            break;
        source->end += got;
    }
    return 0;
}

int source_take(struct source *source, uint64_t length, const char *what, const uint8_t **bytes,
                struct error *error)
{
    int status = fill(source, length, error);
    if (status)
        return status;
    const size_t there = source->end - source->begin;
    if (there < length)
        return source_corrupt(source, source->position + there, error, "the file ends here, within %s", what);
    *bytes = source->buffer + source->begin;
    source->begin += (size_t)length;
    source->position += length;
    return 0;
}

int source_peek(struct source *source, size_t length, const uint8_t **bytes, size_t *available,
                struct error *error)
{
    int status = fill(source, length, error);
    *bytes = source->buffer + source->begin;
    *available = source->end - source->begin < length ? source->end - source->begin : length;
    return status;
}
