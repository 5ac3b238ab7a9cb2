/*
 * conformance_party.h - what the parts of the suite of peers.h share: a trial of one case, its tasks, and
 * waiting. Inside of the suite (conformance_peers.h).
 */
#ifndef TESTS_FABRIC_CONFORMANCE_PARTY_H
#define TESTS_FABRIC_CONFORMANCE_PARTY_H

#include "base/atomic.h"
#include "base/random.h"
#include "base/task.h"
#include "conformance_peers.h"

/* What a case needs of a way. */
enum party_need {
    PARTY_LEASES = 1, /* read leases that lapse, and fencing */
    PARTY_LOSE = 2,
    PARTY_STALL = 4,
    PARTY_KILL = 8,
    PARTY_RESTART = 16,
    PARTY_CUT = 32,
    PARTY_HIDE = 64,
    PARTY_TIMEOUT = 128, /* calls that are not answered fail */
    PARTY_NO_LEASES = 256
};

struct party {
    const struct conformance_way *way;
    unsigned computes, rounds;
    struct fabric *fabrics[CONFORMANCE_PEERS_MAX];
    struct fabric_process processes[CONFORMANCE_PEERS_MAX];
    struct spinlock lock;
    bool failed; /* tasks give up when it is set; relaxed: the text is read after all have ended */
    char text[400];
    /* for the cases; shared by their tasks, each by atomics or the lock */
    uint64_t served, stage, heard, numbers[4];
};

struct guest {
    struct party *party;
    unsigned compute, index; /* index: among the tasks of its run */
    void (*body)(struct guest *);
    struct fabric *fabric;
    struct fabric_process self;
    struct fabric_endpoint *endpoint;
    struct fabric_cost cost;
    struct random random;
    uint8_t *room;       /* for replies; the party's, since the task may be killed */
    bool returned, dead; /* dead: its compute node was killed */
};

__attribute__((format(printf, 2, 3))) void party_fail(struct party *party, const char *format, ...);

/* In a function returning void: a failed check ends it. */
#define CHECK(party, condition, ...)                                                                         \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            party_fail((party), __FILE_NAME__ ":" LINE_TEXT(__LINE__) ": " __VA_ARGS__);                     \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)
#define LINE_TEXT(line)    LINE_TEXT_OF(line)
#define LINE_TEXT_OF(line) #line

/* Tasks of one run: so many of each body, on the given compute node. */
struct party_part {
    unsigned compute, count;
    void (*body)(struct guest *);
};
void party_run(struct party *party, const struct party_part *parts, unsigned count);

/* A part has come to a stage, or has died trying; waiting for it. False: it never came. */
void party_reach(struct party *party, uint64_t stage);
bool party_await(struct guest *guest, uint64_t stage);
/* Sleeps a little while condition(guest, context) is false. False: it was so for the way's patience. */
bool party_until(struct guest *guest, bool (*condition)(struct guest *, void *), void *context);
/* A part of the read lease to sleep for. */
void party_sleep_leases(const struct guest *guest, double leases);

/* Answers until it is stopped: by the request's bytes, each one more; `served` counts. The first byte 0xff is
 * a question for an error: the second is its status's opposite, and the rest the reply; alone, for a reply
 * that is longer than any may be. */
void party_serve(struct guest *guest);
/* Calls the peer with `length` bytes from the guest's dice and checks the answer. Returns the status. */
int party_call(struct guest *guest, struct fabric_process peer, size_t length);
/* Statuses of calls that nobody has answered. */
bool party_unanswered(int status);

struct party_case {
    const char *name;
    unsigned computes, needs;
    void (*function)(struct party *);
};
extern const struct party_case party_call_cases[], party_lease_cases[]; /* end with a NULL name */

#endif
