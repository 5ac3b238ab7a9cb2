/*
 * book.h - logs that only keep book: the hooks of struct owner_log for the compute nodes of a party, which
 * judge what src/owner/ calls. For some keys the book has the DEBTS: which processes' logs may have changes
 * of the key, by the epoch under which they had it, that are not merged. A process that has a logged key's
 * right is in debt; a flush pays; inheriting passes all debts on, and when the heirs are off the map the new
 * owner's is the only one.
 *
 * What is judged: whoever has a key's right has inherited all debts of it, each named with its epoch; nobody
 * shares a key, or reads it in the pool, while there are debts; a flush or a disowning comes when its process
 * has not the right; a log is released, and a dead one's given back, when it has no debt. Writes themselves
 * go through to the leaves here. The test's thread, in the simulator.
 */
#ifndef TESTS_OWNER_BOOK_H
#define TESTS_OWNER_BOOK_H

#include "owner/owner.h"

#define BOOK_KEYS  24u
#define BOOK_DEBTS 8u

struct party;

struct book_debt {
    struct fabric_process process;
    uint64_t epoch;
    bool gone;                  /* the log was let go */
    struct fabric_process copy; /* who has inherited it, under `copied` */
    uint64_t copied;
};
struct book_key {
    uint64_t number;
    struct book_debt debts[BOOK_DEBTS];
    unsigned count;
    struct fabric_process inherited; /* by this process, whose heirs the map may still name */
};
struct book {
    struct party *party;
    struct book_key keys[BOOK_KEYS];
    unsigned inherits, flushes, disowns, clears, releases, given_back; /* calls */
    unsigned fail_every; /* of the calls of inherit and flush, so many-th fails at first; 0: none */
    unsigned calls;
    struct book_side {
        struct book *book;
        unsigned compute;
    } sides[8];
};

/* Before the party's world runs. */
void book_open(struct book *book, struct party *party);
extern const struct owner_log book_log;
/* Judges the rights of all processes now. */
void book_look(struct book *book);

#endif
