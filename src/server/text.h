/* text.h - a text that is written piece by piece, and bounded by memory alone. Of its caller's thread. */
#ifndef SERVER_TEXT_H
#define SERVER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* All zero: empty. */
struct text {
    char *bytes; /* terminated; NULL while it is empty */
    size_t length, capacity;
    bool failed; /* there was no memory: the end is missing */
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

#endif
