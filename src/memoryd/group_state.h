/* group_state.h - what group.c and fence.c share: a group. See group.h. */
#ifndef MEMORYD_GROUP_STATE_H
#define MEMORYD_GROUP_STATE_H

#include "memoryd/session.h"

enum group_state { GROUP_LIVE, GROUP_LEAVING, GROUP_FENCED, GROUP_ENDED };

struct memoryd_group {
    struct memoryd_group *next;
    struct memoryd_session *sessions;
    uint32_t connections;
    uint32_t fenced; /* atomic; the state, for those who look without the lock */
    enum group_state state;
    uint16_t compute_id;
    uint64_t instance, key;
    uint32_t lease_ms;
    uint64_t joined_at, heartbeat_at, fenced_at;

    bool nic;         /* its lists go through the NIC */
    bool quarantined; /* a queue pair of it could not be destroyed: it is never reaped */
    bool finished;    /* services have finished what they had of it; a NIC frees its locks */
    uint64_t freed;   /* locks of it, so far */
    uint64_t reap_at; /* not before: the NIC failed to free its locks */

    bool mapped;
    bool own;     /* mapped by this very process (tests): it cannot be killed */
    bool patient; /* its process may be about to die: wait a moment before killing it */
    bool killed, watched;
    int pidfd, pid;

    char name[WIRE_NAME_MAX + 1];
    char peer[128];
    char why[160];
};

/* The table's lock is held. `patient`: only a socket has been closed. */
void memoryd_group_fence(struct memoryd_groups *groups, struct memoryd_group *group, bool patient,
                         const char *why);

#endif
