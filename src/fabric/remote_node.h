/*
 * remote_node.h - one memory node as a compute node sees it, and the groups of its connections.
 *
 * GROUPS. The connections to one memory node form a group (wire.h), numbered by node->group: odd while the
 * group lives, even while there is none. The thread that notices a loss ends the group (remote_node_lose): it
 * makes the number even, THEN raises the fabric's incarnation (release), and keeps the new incarnation as the
 * node's `since`. The next group is opened only after that, and gets the next odd number.
 *
 * WHY NOTHING OF AN OPERATION REACHES TWO GROUPS. Say group g was opened when node->since was s, and its end
 * raised the incarnation to e, which is what group g + 2 has as its `since`. An operation's number I never
 * changes. A list of it is posted on a connection of g only if both conditions hold at that moment:
 *   (1) s <= I                     the link compares its own copy of s, taken over together with the socket;
 *   (2) node->group == g           read with acquire order just before posting.
 * If I >= e, the operation read the incarnation after g's end had raised it, so by the release it sees
 * node->group != g, and (2) refuses. If I < e, (1) refuses on g + 2 and on all that follow. So all lists of
 * one operation that are posted to one memory node are posted to one group, the one with s <= I < e, and the
 * memory node has finished all it does for that group when it frees the group's locks (G6): a command of an
 * operation that lost a lock cannot be run after another compute node has taken it. A list whose group ends
 * after the check is posted to the dead group: it is lost, or run before the locks are freed. Lists without a
 * number (0) are promised nothing.
 *
 * MAPPED pools are written by the CPU, and closing a socket does not stop it: a list that passed the check
 * may still be running when its group has ended. Therefore no new group is opened for such a node before
 * every list that was running when the group ended has come to its end (remote_reconnect.c, quiesce). The
 * memory node frees the locks of a live process only when that says hello again, or when it is dead.
 */
#ifndef FABRIC_REMOTE_NODE_H
#define FABRIC_REMOTE_NODE_H

#include "base/atomic.h"
#include "base/thread.h"
#include "fabric/remote_dial.h"

struct remote_fabric;
struct verbs_device;

/* So many heartbeats may be under way before the oldest one's echo counts for nothing. */
#define REMOTE_BEATS 64u
/* Memory node 0 (peers.h). */
#define REMOTE_HOME 0u

struct remote_node {
    struct remote_fabric *fabric;
    struct net_address address;
    char text[NET_TEXT_MAX]; /* the address, for messages */
    uint16_t number;
    /* Fixed by the first connection. */
    uint64_t cluster_id, instance, pool_bytes, lock_bytes;
    uint32_t lease_ms, round_trip_ns;
    uint8_t lock_width;
    uint32_t atomic_write; /* what its welcome says; 0: it cuts no WRITE */
    uint32_t durability;   /* atomic; what its last welcome says */
    bool mapped;
    struct fabric_target target; /* where mapped */
    /* rdma:// (NULL: none): our NIC that leads there, and the MTU (bytes) and the promises (WIRE_NIC_*) of
     * the memory node's */
    const struct verbs_device *device;
    uint16_t mtu;
    uint8_t promises;

    uint32_t membership; /* atomic: enum fabric_membership */

    uint64_t group; /* atomic, see above; changes under `lock` */
    uint64_t since; /* atomic; changes under `lock` while group is even */

    struct spinlock lock; /* guards what follows, up to `trouble` */
    /* Set by the thread that opens the group; used and freed by the heartbeat's. remote_node_lose shuts its
     * socket down. */
    struct net_stream *control;
    uint64_t group_key;
    uint64_t losses;
    char trouble[256];

    /* the heartbeat's */
    uint64_t beat_due, unanswered_since; /* 0: every heartbeat was answered */
    uint64_t beat_echoed;                /* the number of the last heartbeat that was answered */
    struct wire_header beat;             /* the last heartbeat, with its number */
    uint64_t beat_sent[REMOTE_BEATS];    /* when number % REMOTE_BEATS was sent, clock_boot_ns */
    bool silent;                         /* mapped: `trouble` says that it does not answer */
    uint32_t beats_unsent;               /* bytes of the heartbeat that the socket has not taken */
    struct wire_header echo;
    uint32_t echo_have; /* bytes of it */
    /* the reconnect's */
    struct thread *reconnect;
    int reconnect_event; /* wakes it; -1: there is none */
    uint64_t retry_at, retry_delay;
};

/* Whether a group with this number lives. */
static inline bool remote_group_lives(uint64_t group)
{
    return group % 2 == 1;
}

/* Ends the group, if it is still the node's; `why` is for the log and for fabric_trouble. Any thread. */
void remote_node_lose(struct remote_node *node, uint64_t group, const char *why);
/* Makes a dialed control connection the node's new group. Takes the stream over. A heartbeat that went out on
 * it at `sent` (clock_boot_ns; 0: none) was echoed. */
void remote_node_join(struct remote_node *node, struct remote_dialed *dialed, uint64_t sent);
/* BANYAN_OK if the welcome is from the memory node that we know: same cluster, number and contents. */
int remote_node_same(const struct remote_node *node, const struct wire_welcome *welcome, struct error *error);
/* What fabric_trouble says of the node from now on; "": nothing. */
void remote_node_trouble(struct remote_node *node, const char *text);

#endif
