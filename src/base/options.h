/*
 * options.h - tables of named, documented, bounded settings over a plain struct.
 * The simulator's NIC model, the tree's switches and the benchmark's options are such tables:
 * one place gives the name, the range, the default, the unit and the help text.
 */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

enum option_kind {
    OPTION_BOOL,   /* bool; on|off|true|false|yes|no|1|0 */
    OPTION_SWITCH, /* int: the same (0: off, 1: on), or one of choices: the numbers from 2 on */
    OPTION_U32,    /* uint32_t */
    OPTION_U64,    /* uint64_t; takes 64K, 8M, 2G (powers of 1024) */
    OPTION_DOUBLE, /* double */
    OPTION_CHOICE, /* int (an enum): index into choices */
    OPTION_SHARE,  /* int: a whole number of percent, `never` (the minimum), `always` (the maximum), or one of
                      choices: the numbers behind the maximum */
    OPTION_TEXT,   /* char *, owned by the struct (option_free); NULL: not set */
    OPTION_END
};

struct option_entry {
    const char *name; /* as written by the user: lower case, words joined by - */
    enum option_kind kind;
    size_t offset;              /* offsetof the field */
    double minimum, maximum;    /* of numbers; both 0: the kind's own range */
    const char *const *choices; /* NULL-terminated, of OPTION_SWITCH, OPTION_CHOICE and OPTION_SHARE */
    const char *unit;           /* "ns", "bytes", ... or NULL */
    const char *help;           /* one sentence, with its source where it is a model parameter */
};

/* Sets one field from text; BANYAN_EINVAL with a message that names option, value and range. */
int option_set(const struct option_entry *table, void *object, const char *name, const char *value,
               struct error *error);
/* The same for "name=value,name=value". */
int option_set_list(const struct option_entry *table, void *object, const char *list, struct error *error);
/* Prints the field's value as option_set would take it. */
void option_format(const struct option_entry *entry, const void *object, char *text, size_t size);
/* Frees the struct's texts and sets them to NULL. */
void option_free(const struct option_entry *table, void *object);
const struct option_entry *option_find(const struct option_entry *table, const char *name);
/* "10M" style sizes; suffixes K M G T are powers of 1024 (bytes). Counts in benchmarks use
 * option_parse_count. */
int option_parse_size(const char *text, uint64_t *value, struct error *error);
/* "10M" style counts; suffixes k/K m/M g/G are powers of 1000. */
int option_parse_count(const char *text, uint64_t *value, struct error *error);
/* The text without the blanks around it; it is cut in place. For readers of `name = value` files. */
char *option_trim(char *text);

#endif
