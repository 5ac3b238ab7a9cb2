/* bytes.c - see bytes.h. */
#include "bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bytes_add(struct bytes *bytes, const void *from, size_t length)
{
    if (bytes->length + length + 1 > bytes->capacity) {
        bytes->capacity = (bytes->length + length + 1) * 2;
        bytes->start = realloc(bytes->start, bytes->capacity);
        if (!bytes->start)
            abort();
    }
    if (length)
        memcpy(bytes->start + bytes->length, from, length);
    bytes->length += length;
    bytes->start[bytes->length] = 0;
}

void bytes_text(struct bytes *bytes, const char *text)
{
    bytes_add(bytes, text, strlen(text));
}

void bytes_free(struct bytes *bytes)
{
    free(bytes->start);
    *bytes = (struct bytes){0};
}

int bytes_write(void *context, const void *from, size_t length, struct error *error)
{
    (void)error;
    bytes_add(context, from, length);
    return 0;
}

int bytes_visit(void *context, const struct archive_entry *entry, struct error *error)
{
    char expires[32];
    (void)error;
    bytes_add(context, entry->key, entry->key_length);
    bytes_text(context, "=");
    bytes_add(context, entry->value, entry->value_length);
    snprintf(expires, sizeof expires, "@%" PRIu64 " ", entry->expires);
    bytes_text(context, expires);
    return 0;
}
