/* group_state.h - a group, for group.c, fence.c and status.c. See group.h. */
#ifndef MEMORYD_GROUP_STATE_H
#define MEMORYD_GROUP_STATE_H

#include "memoryd/session.h"

enum group_state { GROUP_LIVE, GROUP_LEAVING, GROUP_FENCED, GROUP_ENDED };

struct memoryd_group {
    struct memoryd_group *next;
    struct memoryd_session *sessions;
    uint32_t connections;
    uint32_t fenced; /* atomic: whether the state is GROUP_FENCED, for threads that look without the lock */
    enum group_state state;
    uint16_t compute_id;
    uint64_t instance, key;
    uint32_t lease_ms;
    uint64_t life; /* its number among all groups that ever joined, from 1 */
    uint64_t joined_at, heartbeat_at, fenced_at;
    uint32_t generation; /* of the list of memory nodes by which it goes; 0: it has not said */

    /* the home node's (G7); 0 elsewhere */
    uint32_t read_lease_ms;
    uint64_t beat_at; /* when the last heartbeat was taken, unlike heartbeat_at never prolonged */
    uint64_t over_at; /* when the read lease of its process's earlier life ends; 0: this is its first */
    struct memoryd_departed *departed; /* what will remember it */
    char answers[WIRE_PEER_MAX + 1];   /* where it answers peers; "": nowhere */

    bool nic;         /* its lists go through the NIC */
    bool quarantined; /* a queue pair of it could not be destroyed: it is never reaped */
    bool finished;    /* services have finished what they had of it (only with a NIC, which may have to try
                         again) */
    uint64_t freed;   /* how many of its locks are freed so far */
    uint64_t reap_at; /* it is not reaped before: the NIC failed to free its locks */

    bool mapped;
    bool own;     /* mapped by this very process (tests), which is not killed */
    bool patient; /* its process may be dying: it gets a moment before it is killed */
    bool killed, watched;
    int pidfd, pid;

    char name[WIRE_NAME_MAX + 1];
    char peer[128];
    char why[160];
};

/* The end of a fenced group's read lease. The table's lock is held. */
static inline uint64_t memoryd_group_over_at(const struct memoryd_group *group)
{
    return group->beat_at + group->read_lease_ms * UINT64_C(1000000);
}
struct memoryd_group *memoryd_group_find(const struct memoryd_groups *groups, struct fabric_process process);

/* Does nothing to a group that is over. The table's lock is held. `patient`: only a socket has been closed.
 */
void memoryd_group_fence(struct memoryd_groups *groups, struct memoryd_group *group, bool patient,
                         const char *why);

#endif
