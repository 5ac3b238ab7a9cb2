/*
 * power_model.h - what a key may hold after its server was killed, or has lost its power, given what was
 * sent, what was answered, and what was said to be safe.
 *
 * One client writes a key, and its changes are carried out in the order in which they were sent. So what the
 * key may hold is what stands behind its n-th change, for some n: never less than the last one that is safe
 * (after a loss of power) or answered (after the end of the process), never more than the last one that was
 * sent. Changes are kept and repeated here, so a key may be overwritten, deleted, appended to, changed in its
 * middle, and given an expiry. Whoever calls sees to it that one thread at a time is in a key.
 */
#ifndef TESTS_CLUSTER_POWER_MODEL_H
#define TESTS_CLUSTER_POWER_MODEL_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/random.h"

#define POWER_CHANGES_MAX 96u
#define POWER_BYTES_MAX   (400u << 10)
#define POWER_NAME_MAX    64u

struct power_value {
    char *bytes; /* owned */
    uint32_t length;
    bool present;
    int64_t expires; /* ms since 1970; -1: never */
};
enum power_kind { POWER_SET, POWER_DELETE, POWER_APPEND, POWER_SPLICE, POWER_EXPIRE };
struct power_change {
    enum power_kind kind;
    uint64_t seed;
    uint32_t offset, length;
    int64_t expires;
};
struct power_key {
    char name[POWER_NAME_MAX];
    bool large;                                     /* its values may be */
    uint32_t tip;                                   /* bytes that it has at most, when all are carried out */
    struct power_value base;                        /* behind change number `first` */
    uint64_t first, safe, acked, issued;            /* numbers of changes, from 1 */
    struct power_change changes[POWER_CHANGES_MAX]; /* number n: at n % POWER_CHANGES_MAX */
};

void power_key_init(struct power_key *key, unsigned client, unsigned number);
void power_key_free(struct power_key *key);
/* No change more may be sent before some are safe. */
bool power_full(const struct power_key *key);
/* Sends a change. */
void power_send(struct power_key *key, struct random *random, redisContext *connection);
/* The oldest that was not answered is. NULL, or what is wrong with the answer. */
const char *power_answered(struct power_key *key, const redisReply *reply);
/* Whether the change that was answered last has changed the key: not if it deleted nothing, or gave nothing
 * an expiry. Such an answer waits for no disk, and says nothing of the changes before it. */
bool power_changed(const struct power_key *key);
/* All up to this number are safe. */
void power_safe(struct power_key *key, uint64_t number);

/* What was found, when the server is there again. `least`: the change that it has at least seen. `lost`:
 * power was, so that what is found is what the disk has. NULL, or what is wrong. */
const char *power_found(struct power_key *key, uint64_t least, bool lost, const redisReply *value,
                        int64_t expires);

#endif
