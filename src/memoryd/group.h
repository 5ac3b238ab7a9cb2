/*
 * group.h - leases (G6): which compute nodes are connected, under which id, with which connections; and how
 * one is fenced, so that its locks can be freed.
 *
 * A group is one life of one compute node at this memory node: its control connection, its data connections,
 * and, where it maps the pool, its process. Sessions join and leave on their I/O threads; only the keeper's
 * thread reaps a group.
 *
 *   LIVE     data connections may join, and everything is served
 *   LEAVING  its control connection said goodbye; its data connections have one lease to do the same
 *   FENCED   a connection was lost, a message malformed or the heartbeats missing: its sockets are shut down
 *   ENDED    all its connections said goodbye
 *
 * LIVE becomes LEAVING or FENCED, LEAVING becomes FENCED or ENDED; FENCED and ENDED are final. A FENCED or
 * ENDED group with no connections left is reaped by memoryd_groups_step: its process, if the pool was mapped
 * and the end was not orderly, must be dead; services finish what they have of it (memory/service.h); its
 * locks are freed; its id is free again.
 *
 * READ LEASES (G7). Memory node 0 is the home node. There a group has a read lease beside, which lasts from
 * the last heartbeat that was taken; a group that is fenced has none taken any more. The end of the lease of
 * a group that was reaped is remembered until it has come (struct memoryd_departed), and its id is not given
 * to another process before. A process that has joined anew is asked about by its earlier life: `over_at` of
 * its group.
 */
#ifndef MEMORYD_GROUP_H
#define MEMORYD_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include "base/atomic.h"
#include "base/error.h"
#include "fabric/peers.h"
#include "fabric/wire.h"
#include "memory/memory.h"

struct memoryd;
struct memoryd_session;
struct memoryd_group;
struct memoryd_nic_queue;

/* A process that was reaped at the home node while its read lease could still run. At most one for each id.
 */
struct memoryd_departed {
    struct memoryd_departed *next;
    struct fabric_process process;
    uint64_t over_at; /* task_now's */
};

struct memoryd_groups {
    struct spinlock lock; /* guards all of this, every group, and the sessions' group links */
    struct memoryd_group *first;
    uint32_t count;
    struct memoryd_departed *departed;
    uint64_t lives;  /* groups that ever joined */
    uint64_t notice; /* atomic: the greatest number that was announced; changes under the lock */
    uint16_t last_id;
    bool formatting;
    uint16_t number; /* this memory node's; changes with the format only */
    uint16_t node_count;
    uint64_t cluster_id;
    uint64_t fenced_total, locks_freed_total;
};

enum memoryd_leaving {
    MEMORYD_GOODBYE, /* an orderly end of this connection */
    MEMORYD_LOST,    /* closed without goodbye: its process may be dying, and gets a moment for it */
    MEMORYD_BROKEN,  /* a malformed message, or the daemon cannot go on with it: its process gets no moment */
};

void memoryd_groups_create(struct memoryd *daemon);
/* No thread is running any more. */
void memoryd_groups_destroy(struct memoryd *daemon);

/* A CONTROL or DATA hello: fills in the welcome's ids and the session's group. BANYAN_EBUSY, BANYAN_EFENCED,
 * BANYAN_EINVAL, BANYAN_ENOTSUP, BANYAN_ENOMEM. */
int memoryd_group_join(struct memoryd_session *session, const struct wire_hello *hello,
                       struct wire_welcome *welcome, struct error *error);
/* Takes the session out of its group, if it is in one. From then on it must execute nothing more. */
void memoryd_group_leave(struct memoryd_session *session, enum memoryd_leaving how, const char *why);
/* The same for a session whose queue pair could not be destroyed, so that commands of it may still arrive:
 * its group is fenced, but never reaped, and its locks stay taken. */
void memoryd_group_quarantine(struct memoryd_session *session, const char *why);
/* Fences the group of the session with this queue pair; NULL: every group that has a queue pair. */
void memoryd_groups_break(struct memoryd *daemon, const struct memoryd_nic_queue *queue, const char *why);
/* False: the group is fenced, and nothing is echoed. `generation`: of the list of memory nodes by which the
 * compute node goes. */
bool memoryd_group_heartbeat(struct memoryd_session *session, uint32_t generation, uint64_t now);
/* Relaxed: a hint that saves work. Fencing is safe because locks are freed only when the last session has
 * left. */
bool memoryd_group_fenced(const struct memoryd_session *session);
uint16_t memoryd_group_compute_id(const struct memoryd_session *session);

/* ---- what compute nodes ask about each other (processes.c); any thread, nothing waits ---- */

/* *life 0: fences the process if it is connected, and names that life of it. Else only looks. True: nothing
 * of that life is left here (G8). */
bool memoryd_groups_fence(struct memoryd *daemon, struct fabric_process process, uint64_t *life,
                          const char *why);
/* The home node's. */
bool memoryd_groups_lease_over(struct memoryd *daemon, struct fabric_process process, uint64_t now);
/* The home node's: the processes with a greater id than `after`; all of them, or those with the least ids. */
void memoryd_groups_list(struct memoryd_groups *groups, uint16_t after, struct wire_process_list *list);
/* The greatest number grows, and all I/O threads are woken to tell it. */
void memoryd_groups_notify(struct memoryd *daemon, uint64_t number);

/* Formats the memory node unless a compute node is connected: BANYAN_EBUSY names it. */
int memoryd_groups_format(struct memoryd *daemon, const struct wire_format *format, struct error *error);

/* On the keeper's thread: ends leases, reaps groups. Returns when it must be called again at the latest, on
 * task_now()'s clock; UINT64_MAX: when the keeper is woken. */
uint64_t memoryd_groups_step(struct memoryd *daemon, uint64_t now);
/* The keeper or an I/O thread was kept from running: no lease ends before it has had time to read the
 * heartbeats that wait in the sockets. Any thread. */
void memoryd_groups_forgive(struct memoryd *daemon, uint64_t now);
/* An I/O thread read nothing for `by` ns: leases last that much longer, and no more, so that I/O threads that
 * wait again and again do not keep a dead compute node's lease alive. Any thread. */
void memoryd_groups_prolong(struct memoryd *daemon, uint64_t now, uint64_t by);
/* The daemon stops: every group is fenced, no process is killed. */
void memoryd_groups_stop(struct memoryd *daemon);

#endif
