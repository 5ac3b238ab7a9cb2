/*
 * group.h - leases (G6): which compute nodes are connected, under which id, with which connections;
 * and how one is fenced, so that its locks can be freed.
 *
 * A group is one life of one compute node at this memory node: its control connection, its data connections,
 * and, where it maps the pool, its process and its staging areas. Sessions join and leave on their I/O
 * threads; only the keeper's thread ends a group.
 *
 *   LIVE     it may join and do everything
 *   LEAVING  its control connection said goodbye; its data connections are expected to do the same
 *   FENCED   a connection was lost, a message malformed or the heartbeats missing: its sockets are shut down
 *   ENDED    it left in good order
 *
 * A FENCED or ENDED group with no connections left is taken apart by memoryd_groups_step: the process, if the
 * pool was mapped and the end was not orderly, must be dead; what it had staged is finished; its locks are
 * freed; its id is free again.
 */
#ifndef MEMORYD_GROUP_H
#define MEMORYD_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include "base/atomic.h"
#include "base/error.h"
#include "fabric/wire.h"
#include "memory/memory.h"

struct memoryd;
struct memoryd_session;
struct memoryd_group;
struct memoryd_nic_queue;

struct memoryd_groups {
    struct spinlock lock; /* guards all of this, every group, and the sessions' group links */
    struct memoryd_group *first;
    uint32_t count;
    uint16_t last_id;
    bool formatting;
    uint16_t number; /* this memory node's; changes with the format only */
    uint16_t node_count;
    uint64_t cluster_id;
    uint64_t fenced_total, locks_freed_total;
};

enum memoryd_leaving {
    MEMORYD_GOODBYE, /* an orderly end of this connection */
    MEMORYD_LOST,    /* closed without goodbye: its process may be about to die */
    MEMORYD_BROKEN,  /* malformed: not to be trusted any more */
};

void memoryd_groups_create(struct memoryd *daemon);
/* No thread is running any more. */
void memoryd_groups_destroy(struct memoryd *daemon);

/* A CONTROL or DATA hello: fills the welcome's ids and the session's group. BANYAN_EBUSY, BANYAN_EFENCED,
 * BANYAN_EINVAL, BANYAN_ENOTSUP, BANYAN_ENOMEM. */
int memoryd_group_join(struct memoryd_session *session, const struct wire_hello *hello,
                       struct wire_welcome *welcome, struct error *error);
/* Takes the session out of its group (of none: does nothing). From then on it must execute nothing more. */
void memoryd_group_leave(struct memoryd_session *session, enum memoryd_leaving how, const char *why);
/* The same for one whose queue pair could not be destroyed, so that something of it may still arrive: its
 * group is fenced as far as that goes, and never ends; its locks stay as they are. */
void memoryd_group_quarantine(struct memoryd_session *session, const char *why);
/* Fences the group of the session with this queue pair; NULL: of every one that has any. */
void memoryd_groups_break(struct memoryd *daemon, const struct memoryd_nic_queue *queue, const char *why);
void memoryd_group_heartbeat(struct memoryd_session *session, uint64_t now);
/* Relaxed: a hint that saves work; what makes fencing safe is that the locks wait for the last to leave. */
bool memoryd_group_fenced(const struct memoryd_session *session);
uint16_t memoryd_group_compute_id(const struct memoryd_session *session);

/* Formats the memory node unless a compute node is connected: BANYAN_EBUSY names it. */
int memoryd_groups_format(struct memoryd *daemon, const struct wire_format *format, struct error *error);

/* The keeper's: expires leases, takes groups apart. Returns when it wants to be called again at the latest,
 * on task_now()'s clock; UINT64_MAX: when woken. */
uint64_t memoryd_groups_step(struct memoryd *daemon, uint64_t now);
/* The keeper or an I/O thread was kept from running: no lease ends before the heartbeats that lie unread have
 * been read. Any thread. */
void memoryd_groups_forgive(struct memoryd *daemon, uint64_t now);
/* An I/O thread read nothing for so long: that time does not count. So little, that threads which wait again
 * and again do not keep the dead alive. Any thread. */
void memoryd_groups_prolong(struct memoryd *daemon, uint64_t now, uint64_t by);
/* The daemon stops: every group is fenced, nobody is killed. */
void memoryd_groups_stop(struct memoryd *daemon);

#endif
