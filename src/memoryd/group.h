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
 * A FENCED or ENDED group with no connections left is taken apart by server_groups_step: the process, if the
 * pool was mapped and the end was not orderly, must be dead; what it had staged is finished; its locks are
 * freed; its id is free again.
 */
#ifndef MEMORY_SERVER_GROUP_H
#define MEMORY_SERVER_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include "base/atomic.h"
#include "base/error.h"
#include "fabric/wire.h"
#include "memory/memory.h"

struct memory_server;
struct server_session;
struct server_group;
struct server_card_queue;

struct server_groups {
    struct spinlock lock; /* guards all of this, every group, and the sessions' group links */
    struct server_group *first;
    uint32_t count;
    uint16_t last_id;
    bool formatting;
    uint16_t number; /* this memory node's; changes with the format only */
    uint16_t node_count;
    uint64_t cluster_id;
    uint64_t fenced_total, locks_freed_total;
};

enum server_leaving {
    SERVER_GOODBYE, /* an orderly end of this connection */
    SERVER_LOST,    /* closed without goodbye: its process may be about to die */
    SERVER_BROKEN,  /* malformed: not to be trusted any more */
};

void server_groups_create(struct memory_server *server);
/* No thread is running any more. */
void server_groups_destroy(struct memory_server *server);

/* A CONTROL or DATA hello: fills the welcome's ids and the session's group. BANYAN_EBUSY, BANYAN_EFENCED,
 * BANYAN_EINVAL, BANYAN_ENOTSUP, BANYAN_ENOMEM. */
int server_group_join(struct server_session *session, const struct wire_hello *hello,
                      struct wire_welcome *welcome, struct error *error);
/* Takes the session out of its group (of none: does nothing). From then on it must execute nothing more. */
void server_group_leave(struct server_session *session, enum server_leaving how, const char *why);
/* The same for one whose queue pair could not be destroyed, so that something of it may still arrive: its
 * group is fenced as far as that goes, and never ends; its locks stay as they are. */
void server_group_haunt(struct server_session *session, const char *why);
/* Fences the group of the session with this queue pair; NULL: of every one that has any. */
void server_groups_break(struct memory_server *server, const struct server_card_queue *queue,
                         const char *why);
void server_group_heartbeat(struct server_session *session, uint64_t now);
/* Relaxed: a hint that saves work; what makes fencing safe is that the locks wait for the last to leave. */
bool server_group_fenced(const struct server_session *session);
uint16_t server_group_compute_id(const struct server_session *session);

/* Formats the memory node unless a compute node is connected: BANYAN_EBUSY names it. */
int server_groups_format(struct memory_server *server, const struct wire_format *format, struct error *error);
void server_groups_peers(struct memory_server *server, uint32_t skip, struct memory_peers_reply *reply);

/* The keeper's: expires leases, takes groups apart. Returns when it wants to be called again at the latest,
 * on task_now()'s clock; UINT64_MAX: when woken. */
uint64_t server_groups_step(struct memory_server *server, uint64_t now);
/* The keeper or an I/O thread was kept from running: no lease ends before the heartbeats that lie unread have
 * been read. Any thread. */
void server_groups_forgive(struct memory_server *server, uint64_t now);
/* An I/O thread read nothing for so long: that time does not count. So little, that threads which wait again
 * and again do not keep the dead alive. Any thread. */
void server_groups_prolong(struct memory_server *server, uint64_t now, uint64_t by);
/* The server stops: every group is fenced, nobody is killed. */
void server_groups_stop(struct memory_server *server);

#endif
