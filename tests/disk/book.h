/*
 * book.h - what a test has appended to a journal, to compare with what a later life reads. A record's kind
 * and bytes follow from its number, which no other record of the test has. One thread; a difference fails the
 * test.
 */
#ifndef TESTS_DISK_BOOK_H
#define TESTS_DISK_BOOK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "disk/disk_simulated.h"
#include "disk/journal.h"

#define BOOK_CLUSTER UINT64_C(0x1122334455667788)
#define BOOK_NODE    3u
#define BOOK_MAX     512u

struct page {
    uint32_t number, length;
    uint64_t position, end;
};
struct book {
    struct page pages[BOOK_MAX];
    uint32_t count;
    uint32_t next; /* number of the next record */
    uint64_t safe; /* what was promised */
};

/* Small files, so that they end often. */
struct journal_options book_options(uint64_t from);
/* Appends a record of that length; its status. */
int book_append(struct book *book, struct journal *journal, uint32_t length, struct error *error);
/* Syncs, and notes what is promised then; its status. */
int book_sync(struct book *book, struct journal *journal, struct error *error);

/* What an opening tells, compared with a book. */
struct reading {
    const struct book *book;
    uint64_t from, end; /* the end of what was told so far */
    uint32_t told, lost;
    uint64_t lost_from, lost_to; /* the last region */
    bool losses;                 /* regions may be left out */
    const char *wrong;           /* NULL: nothing */
    struct journal_reader reader;
};
void reading_begin(struct reading *reading, const struct book *book, uint64_t from);
/* Opens the journal, which must go well, and tell all that was promised, in order, and nothing else. What it
 * told is promised then: the book ends where it ends. */
struct journal *book_open(struct book *book, struct disk *disk, const struct journal_options *options);
/* The same, with what is wrong instead of a failed test; NULL: nothing. The text is static. */
const char *book_try(struct book *book, struct disk *disk, const struct journal_options *options,
                     struct journal **journal);

bool file_there(struct disk *disk, const char *name);
/* All bytes of a file; the caller's. */
uint8_t *file_read(struct disk *disk, const char *name, size_t *length);
/* The file has these bytes, and no others. It is made if it is not there. */
void file_write(struct disk *disk, const char *name, const void *bytes, size_t length);
struct disk *disk_make(uint64_t seed);

#endif
