/*
 * names.h - which indexes there are, on its way into the journal: from the catalogue in the pool of the
 * memory node that has it (format/catalogue.h), read beside those who change it, to INDEX records (format.h).
 *
 * A journal's beginning, and each begin anew, has all of them behind the record that says so; later records
 * say what has changed since. What is being dropped is gone. Private to src/persist/: the drain's thread
 * calls, and appends what it is given. A look costs a cache line of each entry
 * of the catalogue, 128 of them.
 */
#ifndef PERSIST_NAMES_H
#define PERSIST_NAMES_H

#include "fabric/fabric.h"
#include "persist/format.h"

struct persist_names;

/* The pool of memory node 0, or of memory node 1, which has a copy of the entries. NULL: no memory. */
struct persist_names *persist_names_create(const struct fabric_target *home);
void persist_names_destroy(struct persist_names *names);
/* A new look, from the first entry on. */
void persist_names_begin(struct persist_names *names);
/* The next record that is to be appended, until persist_names_written is told that it was. False: none. */
bool persist_names_next(struct persist_names *names, struct persist_index *index);
void persist_names_written(struct persist_names *names);
/* Whether the journal has this index's name, or had it once. */
bool persist_names_have(const struct persist_names *names, uint16_t number);
/* Files of the journal are going to be released: all are told anew. */
void persist_names_forget(struct persist_names *names);

#endif
