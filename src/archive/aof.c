/* aof.c - see aof.h. */
#include "archive/aof.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LINE_MAX_BYTES 32u /* of a line with a number, its end included */

/* Commands of a transaction, or the one that is read: their arguments' bytes, and where each begins. */
struct kept {
    uint64_t position;
    uint32_t first, count; /* of the arguments */
};

struct aof {
    struct source *source;
    struct error *error;
    aof_visit_function *visit;
    void *context;
    struct aof_counts *counts;
    uint8_t *bytes; /* owned: of all that is kept */
    size_t used, capacity;
    struct aof_argument *arguments; /* owned; `bytes` are set when they are visited */
    size_t argument_count, argument_capacity;
    struct kept *kept; /* owned */
    size_t kept_count, kept_capacity;
    bool in_transaction;
    uint64_t transaction_at;
};

static int grow(struct aof *aof, void **items, size_t *capacity, size_t count, size_t item)
{
    if (count <= *capacity)
        return 0;
    size_t more = *capacity ? *capacity : 64;
    while (more < count)
        more *= 2;
    void *grown = realloc(*items, more * item);
    if (!grown)
        return error_set(aof->error, BANYAN_ENOMEM, "%.60s: no memory for a command", aof->source->name);
    *items = grown;
    *capacity = more;
    return 0;
}

/* ---- lines ---- */

/* One line up to its "\r\n", without going on. 1: the file ends before. */
static int line_peek(struct aof *aof, size_t most, const uint8_t **line, size_t *length)
{
    size_t available, want = LINE_MAX_BYTES;
    for (;;) {
        int status = source_peek(aof->source, want, line, &available, aof->error);
        if (status)
            return status;
        const uint8_t *end = memchr(*line, '\n', available);
        *length = end ? (size_t)(end - *line) + 1 : available;
        if (end)
            return 0;
        if (available < want)
            return 1;
        if (want >= most)
            return source_corrupt(aof->source, aof->source->position, aof->error, "a line is too long");
        want = want * 2 < most ? want * 2 : most;
    }
}

/* "*3\r\n". 1: the file ends before. */
static int number_read(struct aof *aof, char mark, uint64_t most, uint64_t *number)
{
    const uint64_t at = aof->source->position;
    const uint8_t *line;
    size_t length;
    int status = line_peek(aof, LINE_MAX_BYTES, &line, &length);
    if (status)
        return status;
    bool right = length >= 4 && line[0] == mark && line[length - 2] == '\r';
    *number = 0;
    for (size_t i = 1; right && i + 2 < length; i++) {
        right = line[i] >= '0' && line[i] <= '9' && *number <= most;
        *number = *number * 10 + (uint64_t)(line[i] - '0');
    }
    if (!right || *number > most)
        return source_corrupt(aof->source, at, aof->error,
                              "no command of Redis: '%c' and a number belong here", mark);
    return source_take(aof->source, length, "a command", &line, aof->error);
}

/* Redis may write the time between commands: "#TS:1700000000\r\n". 1: the file ends before. */
static int remarks_skip(struct aof *aof)
{
    const uint8_t *line;
    size_t length;
    int status;
    for (;;) {
        status = source_peek(aof->source, 1, &line, &length, aof->error);
        if (status || !length || *line != '#')
            return status;
        status = line_peek(aof, 1024, &line, &length);
        if (!status)
            status = source_take(aof->source, length, "a remark", &line, aof->error);
        if (status)
            return status;
    }
}

/* ---- commands ---- */

/* 1: the file ends before. */
static int argument_read(struct aof *aof)
{
    uint64_t length;
    size_t available;
    const uint8_t *bytes;
    int status = number_read(aof, '$', AOF_COMMAND_MAX, &length);
    if (status)
        return status;
    if (aof->used + length > AOF_COMMAND_MAX)
        return source_corrupt(aof->source, aof->source->position, aof->error,
                              "a command or a transaction of more than 1 GiB");
    status = source_peek(aof->source, (size_t)length + 2, &bytes, &available, aof->error);
    if (status || available < length + 2)
        return status ? status : 1;
    if (bytes[length] != '\r' || bytes[length + 1] != '\n')
        return source_corrupt(aof->source, aof->source->position + length, aof->error,
                              "an argument is longer than it says");
    void *kept = aof->bytes, *arguments = aof->arguments;
    status = grow(aof, &kept, &aof->capacity, aof->used + (size_t)length + 1, 1); /* never none at all */
    aof->bytes = kept;
    if (!status)
        status =
            grow(aof, &arguments, &aof->argument_capacity, aof->argument_count + 1, sizeof *aof->arguments);
    aof->arguments = arguments;
    if (status)
        return status;
    if (length)
        memcpy(aof->bytes + aof->used, bytes, (size_t)length);
    aof->used += (size_t)length;
    aof->arguments[aof->argument_count++] = (struct aof_argument){.length = (size_t)length};
    return source_take(aof->source, length + 2, "an argument", &bytes, aof->error);
}

/* Behind what is kept. 1: the file ends before. */
static int command_read(struct aof *aof)
{
    struct kept command = {.position = aof->source->position, .first = (uint32_t)aof->argument_count};
    uint64_t count;
    int status = number_read(aof, '*', AOF_ARGUMENTS_MAX, &count);
    if (!status && !count)
        return source_corrupt(aof->source, command.position, aof->error, "a command without a name");
    for (uint64_t i = 0; i < count && !status; i++)
        status = argument_read(aof);
    void *kept = aof->kept;
    if (!status)
        status = grow(aof, &kept, &aof->kept_capacity, aof->kept_count + 1, sizeof *aof->kept);
    aof->kept = kept;
    if (status)
        return status;
    command.count = (uint32_t)count;
    aof->kept[aof->kept_count++] = command;
    return 0;
}

static void kept_clear(struct aof *aof)
{
    aof->used = aof->argument_count = aof->kept_count = 0;
}

static int kept_visit(struct aof *aof)
{
    const uint8_t *at = aof->bytes;
    int status = 0;
    for (size_t i = 0; i < aof->argument_count; i++) {
        aof->arguments[i].bytes = at;
        at += aof->arguments[i].length;
    }
    for (size_t i = 0; i < aof->kept_count && !status; i++) {
        const struct aof_command command = {.position = aof->kept[i].position,
                                            .count = aof->kept[i].count,
                                            .arguments = aof->arguments + aof->kept[i].first,
                                            .in_transaction = aof->in_transaction};
        aof->counts->commands++;
        status = aof->visit(aof->context, &command, aof->error);
    }
    kept_clear(aof);
    return status;
}

/* Whether the command that was read last is this one. */
static bool last_is(const struct aof *aof, const char *name)
{
    const struct kept *last = &aof->kept[aof->kept_count - 1];
    const struct aof_argument *first = &aof->arguments[last->first];
    size_t behind = 0;
    for (uint32_t i = 0; i < last->count; i++)
        behind += first[i].length;
    return first->length == strlen(name) &&
           !strncasecmp((const char *)aof->bytes + aof->used - behind, name, first->length);
}

static int command_handle(struct aof *aof)
{
    const uint64_t at = aof->kept[aof->kept_count - 1].position;
    if (last_is(aof, "multi")) {
        if (aof->in_transaction)
            return source_corrupt(aof->source, at, aof->error, "a transaction within another");
        aof->in_transaction = true;
        aof->transaction_at = at;
        kept_clear(aof);
        return 0;
    }
    if (last_is(aof, "exec")) {
        if (!aof->in_transaction)
            return source_corrupt(aof->source, at, aof->error, "the end of a transaction that has not begun");
        aof->kept_count--;
        int status = kept_visit(aof);
        aof->in_transaction = false;
        return status;
    }
    return aof->in_transaction ? 0 : kept_visit(aof);
}

bool aof_begins(const uint8_t *bytes, size_t length)
{
    return length && (bytes[0] == '*' || bytes[0] == '#');
}

int aof_read(struct source *source, aof_visit_function *visit, void *context, struct aof_counts *counts,
             struct error *error)
{
    struct aof aof = {.source = source, .error = error, .visit = visit, .context = context, .counts = counts};
    const uint8_t *bytes;
    size_t available = 1;
    uint64_t at = source->position;
    int status = 0;
    while (!status) {
        status = remarks_skip(&aof);
        at = source->position;
        if (!status)
            status = source_peek(source, 1, &bytes, &available, error);
        if (status || !available)
            break;
        status = command_read(&aof);
        if (!status)
            status = command_handle(&aof);
    }
    if (status == 1 || (!status && aof.in_transaction)) {
        counts->cut = true;
        counts->cut_at = aof.in_transaction ? aof.transaction_at : at;
        status = 0;
    }
    free(aof.bytes);
    free(aof.arguments);
    free(aof.kept);
    return status;
}

/* ---- writing ---- */

static int argument_write(archive_write_function *write, void *context, const void *bytes, size_t length,
                          struct error *error)
{
    char line[LINE_MAX_BYTES];
    int status = write(context, line, (size_t)snprintf(line, sizeof line, "$%zu\r\n", length), error);
    if (!status && length)
        status = write(context, bytes, length, error);
    return status ? status : write(context, "\r\n", 2, error);
}

static int command_write(archive_write_function *write, void *context, const char *name,
                         const struct archive_entry *entry, const void *bytes, size_t length,
                         struct error *error)
{
    int status = write(context, "*3\r\n", 4, error);
    if (!status)
        status = argument_write(write, context, name, strlen(name), error);
    if (!status)
        status = argument_write(write, context, entry->key, entry->key_length, error);
    return status ? status : argument_write(write, context, bytes, length, error);
}

int aof_write(const struct archive_entry *entry, archive_write_function *write, void *context,
              struct error *error)
{
    char expires[24];
    int status = command_write(write, context, "SET", entry, entry->value, entry->value_length, error);
    if (status || !entry->expires)
        return status;
    const int length = snprintf(expires, sizeof expires, "%" PRIu64, entry->expires);
    return command_write(write, context, "PEXPIREAT", entry, expires, (size_t)length, error);
}
