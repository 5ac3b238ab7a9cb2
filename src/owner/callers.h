/*
 * callers.h - which calls of other processes are still waited for. A process that gives a call up tells its
 * own client that the outcome is unknown, and counts that; each later call of it bears the count. So whoever
 * serves an earlier one, which was held up meanwhile (a read lease that lapsed, a lock), finds that it is no
 * more waited for, and does not do it behind what the client has asked for since. Private to src/owner/.
 *
 * An entry for each compute id that has called, in pages of 4 KiB: 1 MiB at most. Any task; some nanoseconds.
 */
#ifndef OWNER_CALLERS_H
#define OWNER_CALLERS_H

#include "base/atomic.h"
#include "fabric/peers.h"

#define OWNER_CALLERS_PAGE  256u
#define OWNER_CALLERS_PAGES 256u

struct owner_caller {
    uint64_t instance, given_up;
};
struct owner_callers {
    struct spinlock lock;
    struct owner_caller *pages[OWNER_CALLERS_PAGES]; /* owned; NULL: none of these has called */
};

/* The process had given up so many calls when it sent this one. False: no memory. */
bool owner_callers_hear(struct owner_callers *callers, struct fabric_process from, uint64_t given_up);
/* Whether a call that was sent then is still waited for, as far as later ones have told. */
bool owner_callers_wait(struct owner_callers *callers, struct fabric_process from, uint64_t given_up);
void owner_callers_free(struct owner_callers *callers);

#endif
