/* text.c - see text.h. */
#include "server/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_add(struct text *text, const char *format, ...)
{
    va_list arguments;
    while (!text->failed) {
        size_t room = text->capacity - text->length;
        va_start(arguments, format);
        int printed = vsnprintf(text->bytes ? text->bytes + text->length : NULL, room, format, arguments);
        va_end(arguments);
        if (printed >= 0 && (size_t)printed < room) {
            text->length += (size_t)printed;
            return;
        }
        size_t capacity = text->capacity * 2 + (printed > 0 ? (size_t)printed : 0) + 256;
        char *larger = realloc(text->bytes, capacity);
        if (larger) {
            text->bytes = larger;
            text->capacity = capacity;
        }
        text->failed = !larger || printed < 0;
    }
}

void text_free(struct text *text)
{
    free(text->bytes);
    memset(text, 0, sizeof *text);
}
