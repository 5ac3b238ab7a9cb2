/*
 * keys.h - a store that a test changes at random through several sessions, and what each of its keys has
 * held: what a disk that keeps the store may hold follows from that. Two stores of one local fabric, so that
 * what a disk gives back has a place beside what it was made from.
 *
 * One thread. Each operation knows before it begins what it is to come to, so that whatever happens inside of
 * it (a pass of a keeper, a cut of the power) may leave its values, or those before. A difference fails the
 * test.
 */
#ifndef TESTS_DURABLE_KEYS_H
#define TESTS_DURABLE_KEYS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/random.h"
#include "durable/feed.h"
#include "memory/memory.h"
#include "store/store.h"

#define KEYS       48u
#define SIDES      4u /* sessions that change keys */
#define VERSIONS   256u
#define VALUE_MAX  (300u << 10)
#define KEYS_AHEAD 100u /* versions that one operation may add to a key, at most */

/* What a key has held; bytes NULL: nothing. */
struct version {
    uint8_t *bytes; /* owned */
    size_t length;
    uint64_t expires;
    uint64_t
        ticket; /* of the feed: safe behind that pass; 0: its operation has not returned, or it never was */
    bool safe;  /* whatever the ticket says */
};

struct known {
    uint8_t key[255];
    size_t length;
    struct version versions[VERSIONS]; /* the last one counts */
    unsigned count;
    bool marked; /* since keys_step began */
    bool fresh;  /* got a version since then */
};

struct keys;
/* A session has changed a key: what feed_mark is to a server. The key's versions are there, without tickets.
 */
typedef void keys_changed_function(struct keys *keys, struct feed_writer *writer, const void *key,
                                   size_t length);

/* The same under the latch of the key's leaf, with the value: what feed_mark_value is to a server. */
typedef bool keys_placed_function(struct keys *keys, struct feed_writer *writer, const void *key,
                                  size_t length, const struct store_value *value);

struct side {
    struct keys *keys;
    struct feed_writer writer;
};

struct place {
    char name[24];
    struct store *store;
    struct store_session *sessions[SIDES], *reader, *scanner;
    struct tree_session *trees[SIDES + 2];
};

struct keys {
    struct random random;
    struct memory_node *memory;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *tree;            /* for what is done to whole stores */
    struct place places[2], *live, *back; /* each of the two is one of the places */
    unsigned made;                        /* stores so far: none gets another one's name */
    struct side sides[SIDES];
    unsigned side_count;
    struct known known[KEYS];
    uint64_t now_ms; /* the stores' clock */
    uint8_t *bytes;  /* VALUE_MAX, twice */
    bool longs;      /* values of more than 64 KiB now and then */
    keys_changed_function *changed;
    keys_placed_function *placed; /* NULL: it notes nothing */
    void *context;
    uint64_t operations, writes;
};

void keys_open(struct keys *keys, uint64_t seed, unsigned sides);
void keys_close(struct keys *keys);
uint64_t keys_below(struct keys *keys, uint64_t bound);
void keys_good(int status, const struct error *error);
void keys_check(struct store_session *session, int status);

/* One operation of one session; each key that it changed must have been marked. */
void keys_step(struct keys *keys);
/* What the key holds now; NULL: nothing. */
const struct version *keys_last(const struct keys *keys, unsigned number);
/* The least version that may be lost no more; `feed` may be NULL. */
unsigned keys_floor(const struct keys *keys, unsigned number, const struct feed *feed);
/* Forgets what lies below the floors. */
void keys_trim(struct keys *keys, const struct feed *feed);
/* What is safe now stays so when the feed is gone, and nothing else is. */
void keys_settle(struct keys *keys, const struct feed *feed);
/* Some key has little room for versions. */
bool keys_crowded(const struct keys *keys);

/* Versions from..to, both included. */
struct span {
    unsigned from, to;
};
/* The store has of each key a version of its span, and no other keys. */
void keys_judge(struct keys *keys, struct store_session *session, const struct span spans[KEYS]);
/* The store is what is known; it takes the other one's place, which is empty then. */
void keys_adopt(struct keys *keys);
/* Another store, which was never used, has its place. */
void keys_empty(struct keys *keys, struct place *place);

#endif
