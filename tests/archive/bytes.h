/*
 * bytes.h - files of keys in memory, for tests of their formats: bytes that grow, and what a reader has
 * found, as text. One thread; without memory the test program ends.
 */
#ifndef TESTS_ARCHIVE_BYTES_H
#define TESTS_ARCHIVE_BYTES_H

#include "archive/archive.h"

struct bytes {
    uint8_t *start; /* owned */
    size_t length, capacity;
};

void bytes_add(struct bytes *bytes, const void *from, size_t length);
void bytes_text(struct bytes *bytes, const char *text);
void bytes_free(struct bytes *bytes);
/* An archive_write_function whose context is a struct bytes. */
int bytes_write(void *context, const void *from, size_t length, struct error *error);
/* An archive_visit_function whose context is a struct bytes: adds "key=value@expiry ". */
int bytes_visit(void *context, const struct archive_entry *entry, struct error *error);

#endif
