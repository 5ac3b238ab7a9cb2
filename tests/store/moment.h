/*
 * moment.h - judges whether what was seen of many keys is what they held together at one moment, while
 * clients changed them: for tests of cuts (store/cut.h). A client changes keys of its own, one change after
 * the other, and notes each; the judge looks for a moment that fits all clients at once.
 *
 * A client belongs to one task; the stamps are any task's. moment_judge is called when no client is at work.
 */
#ifndef TESTS_STORE_MOMENT_H
#define TESTS_STORE_MOMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOMENT_KEYS  48u /* of each client */
#define MOMENT_BATCH 4u

struct moment_change {
    uint32_t count; /* of keys, which change at once */
    uint32_t keys[MOMENT_BATCH];
    uint64_t values[MOMENT_BATCH]; /* 0: the key is absent */
    uint64_t begun, ended;         /* stamps */
};

struct moment_client {
    struct moment_change *changes; /* owned */
    size_t count, capacity;
    uint64_t values[MOMENT_KEYS]; /* as it has changed them */
};

/* What was seen. */
struct moment_view {
    uint64_t opened_from, opened_to; /* stamps, around the call that chose the moment */
    uint64_t (*values)[MOMENT_KEYS]; /* [clients]; owned */
};

/* Stamps grow; *clock is shared by all tasks. */
uint64_t moment_stamp(uint64_t *clock);
/* Notes a change that is about to be made; aborts when memory is short. */
struct moment_change *moment_begin(struct moment_client *client, uint64_t *clock);
void moment_add(struct moment_client *client, uint32_t key, uint64_t value);
void moment_end(struct moment_client *client, uint64_t *clock);
/* Notes a change that another client has noted, behind all that this one has. */
void moment_copy(struct moment_client *client, const struct moment_change *change);
void moment_client_free(struct moment_client *client);

/* Whether there is a moment between the view's stamps at which all clients' keys held what was seen. Else
 * *wrong says of which client no moment fits (== count: each fits by itself, and not together). */
bool moment_judge(const struct moment_client *clients, unsigned count, const struct moment_view *view,
                  unsigned *wrong);

#endif
