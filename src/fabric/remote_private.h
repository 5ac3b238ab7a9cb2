/*
 * remote_private.h - what the files of the remote backend share.
 *
 *  remote.c         opening and closing a fabric and its endpoints; format, ask; the operations' entry
 *  remote_dial.c    opening one connection: greeting, hello, welcome, descriptors
 *  remote_link.c    an endpoint's data connection: messages out, answers in, who waits for them
 *  remote_nic.c    lists that go through a NIC beside the data connection
 *  remote_lease.c   groups of connections that live and die together: heartbeats, losses, mending
 *
 * GROUPS. The connections to one memory node form a group (wire.h), numbered by node->group: odd while the
 * group lives, even while there is none. Whoever notices a loss ends the group (remote_node_lose): it makes
 * the number even, THEN raises the fabric's incarnation (release), and remembers the new incarnation as the
 * node's `since`. The next group is opened only after that, and gets the next odd number.
 *
 * WHY NOTHING OF AN OPERATION REACHES TWO GROUPS. Say group g was opened when node->since was s, and its end
 * raised the incarnation to e, which is what group g + 2 has as its `since`. An operation's number I never
 * changes. A list of it is posted on a connection of g only if both hold at that moment:
 *   (1) s <= I                     the link compares its own copy of s, taken over together with the socket;
 *   (2) node->group == g           read with acquire order just before posting.
 * If I >= e, the operation read the incarnation after g's end had raised it, so by the release it sees
 * node->group != g: (2) refuses. If I < e, (1) refuses on g + 2 and on all that follow. So all lists of one
 * operation that are posted to one memory node are posted to one group, the one with s <= I < e, and what
 * the memory node does on behalf of that group is over when it frees the group's locks (G6): a command of an
 * operation that lost a lock cannot be run after another has taken it. A list whose group ends after the
 * check is posted to the dead group, and goes nowhere or is run before the locks are freed. Lists without a
 * number (0) are promised nothing.
 *
 * MAPPED pools are written by the CPU, which no closed socket stops: a list that passed the check may still
 * be running when its group has ended. Therefore no new group is opened for such a node until every list that
 * was running when the group ended has run to its end (remote_quiesce); the memory node does not free the
 * locks of a live process before it says hello again, or is dead.
 *
 * THREADS. A link belongs to its endpoint's owner (a worker or a plain thread), but for what `lock` guards.
 * Two threads of the fabric's own serve all of it: the heartbeat sends heartbeats, notices silence and cuts
 * dead groups' sockets, and never waits for a connection to open; the reconnect opens connections, and may.
 */
#ifndef FABRIC_REMOTE_PRIVATE_H
#define FABRIC_REMOTE_PRIVATE_H

#include <poll.h>

#include "base/atomic.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "fabric/fabric.h"
#include "fabric/remote.h"
#include "fabric/verbs_queue.h"
#include "fabric/wire.h"
#include "net/net.h"

#define REMOTE_MS          UINT64_C(1000000) /* ns */
#define REMOTE_INPUT_BYTES (UINT32_C(128) << 10)

/* ---- remote_dial.c ---- */

/* Who we are, to every memory node. */
struct remote_identity {
    struct net_tls *tls;
    const char *secret; /* NULL: none */
    size_t secret_length;
    char name[WIRE_NAME_MAX + 1];
    uint32_t lease_ms, timeout_ms;
    bool map; /* pools over Unix sockets */
    uint64_t instance;
};
struct remote_wish {
    enum wire_role role;
    uint16_t compute_id;
    uint64_t group_key;
};
struct remote_dialed {
    struct net_stream *stream;
    struct wire_welcome welcome;
    int descriptors[2]; /* mapped: CONTROL: pool, lock region; DATA: staging, -1 */
};
/* From options; copies nothing but the name. */
void remote_identity_set(struct remote_identity *identity, const struct fabric_remote_options *options);
/* Waits at most timeout_ns. The message names the memory node. */
int remote_dial(const struct remote_identity *identity, const struct net_address *address,
                const struct remote_wish *wish, uint64_t timeout_ns, struct remote_dialed *dialed,
                struct error *error);
void remote_dialed_drop(struct remote_dialed *dialed); /* without a goodbye */
/* Says goodbye and closes; waits 100 ms at most. NULL: does nothing. */
void remote_hang_up(struct net_stream *stream);
/* All of it, by `deadline` (task_now). Messages do not name the memory node. */
int remote_send(struct net_stream *stream, const void *data, size_t length, uint64_t deadline,
                struct error *error);
int remote_receive(struct net_stream *stream, void *data, size_t length, uint64_t deadline,
                   struct error *error);
/* What to say of a memory node that belongs to no cluster. */
int remote_empty_error(const struct net_address *address, struct error *error);

/* ---- the fabric ---- */

struct remote_fabric;
struct remote_endpoint;

struct remote_node {
    struct remote_fabric *fabric;
    struct net_address address;
    char text[NET_TEXT_MAX];
    uint16_t number;
    /* Fixed by the first connection. */
    uint64_t cluster_id, instance, pool_bytes, lock_bytes;
    uint32_t lease_ms, round_trip_ns;
    uint8_t lock_width;
    bool mapped;
    struct fabric_target target; /* where mapped */
    /* rdma://: the NIC that leads there, and what the memory node's says (WIRE_NIC_*); NULL: none */
    const struct verbs_device *device;
    uint16_t mtu; /* bytes: the memory node's */
    uint8_t promises;

    uint64_t group; /* atomic, see above; changes under `lock` */
    uint64_t since; /* atomic; changes under `lock` while group is even */

    struct spinlock lock;       /* guards what follows */
    struct net_stream *control; /* used and freed by the heartbeat; set by the reconnect; its socket is shut
                                   down by remote_node_lose */
    uint64_t group_key;
    uint64_t losses;
    char trouble[256];

    /* the heartbeat's */
    uint64_t beat_due, unanswered_since; /* 0: every heartbeat was answered */
    bool silent;                         /* mapped: and it was said */
    uint32_t beats_unsent;               /* bytes of the heartbeat that the socket has not taken */
    struct wire_header echo;
    uint32_t echo_have;
    /* the reconnect's */
    uint64_t retry_at, retry_delay;
};

/* A fiber that waits until a link's output has shrunk. */
struct remote_waiter {
    struct task *task;
    struct remote_waiter *next;
    bool waiting;
};

/* One execute or call on its way. */
struct remote_wait {
    struct task *task; /* NULL: a plain thread, which pumps by itself */
    uint32_t left;
};

/* What a list that is under way on a link has beside it. */
struct FABRIC_LIST_STATE_STRUCT remote_list {
    struct fabric_list *next; /* in the link's chain: behind those that wait for an answer, or for room */
    struct remote_wait *wait;
    uint32_t sent; /* stream: commands in its message */
    bool waiting;  /* NIC: it waits for room in the queue */
};
FABRIC_LIST_STATE(remote_list)

/* What a link stands on. They change together. */
struct remote_ground {
    struct net_stream *stream;
    struct wire_staging *staging; /* mapped pools */
    struct verbs_queue *queue;    /* NICs */
    uint64_t group, since;        /* 0: never connected */
};

struct remote_link {
    struct worker_watch watch; /* first: the callback's argument */
    struct remote_endpoint *endpoint;
    struct remote_node *node;
    struct remote_ground ground; /* the owner's; changed under `lock` */

    /* output: bytes begin to end are to be sent */
    uint8_t *out;
    size_t out_begin, out_end, out_capacity;
    bool dirty; /* in the endpoint's list of links to flush */
    struct remote_link *next_dirty;
    struct remote_waiter *waiters;

    /* requests under way, in order: lists, and calls, which are lists of no commands within a remote_call */
    struct fabric_list *first, *last;
    uint64_t sent_id, answered_id;
    uint32_t left_behind; /* calls that nobody waits for any more (mapped pools) */

    /* NICs */
    struct worker_watch nic_watch;
    struct fabric_list *waiting_first, *waiting_last; /* for room in the queue */
    bool armed;

    /* the answer that is arriving */
    struct wire_header head;
    uint32_t head_have, body_left;
    uint32_t command, offset; /* where in the list, and in that command's result */

    /* For the heartbeat, which judges silence: relaxed. */
    uint32_t outstanding, progress;
    uint32_t seen_progress; /* the heartbeat's */
    uint64_t seen_at;

    struct spinlock lock;       /* guards `fresh`, `mending`, and every change of `ground` */
    struct remote_ground fresh; /* opened by the reconnect, for the owner to take; stream NULL: none */
    bool mending;
    uint64_t retry_at, retry_delay; /* the reconnect's */
};

struct remote_endpoint {
    struct fabric_endpoint endpoint;
    struct worker_hook hook;
    struct worker *worker; /* that has the hook and the watches; NULL: none */
    struct remote_link *dirty;
    uint64_t runs;                /* atomic: odd while a list runs on a mapped pool */
    uint64_t seen_runs;           /* the reconnect's */
    uint8_t *input;               /* what was read last; answers are copied out at once */
    struct pollfd *polls;         /* two a link: its stream, its NIC */
    uint64_t idle_since, spin_ns; /* NICs: since when nothing came while lists are under way; 0: not so */
    struct remote_endpoint *next; /* of the fabric; under its lock */
    uint16_t count;
    struct remote_link links[];
};

/* A NIC, and the address of ours by which it was chosen. */
struct remote_device {
    struct remote_device *next;
    struct verbs_device *device;
    struct sockaddr_storage local;
};

struct remote_fabric {
    struct fabric fabric;
    struct remote_identity identity;
    struct verbs_options nic;
    char *nic_name;                /* owned: NIC.device */
    struct remote_device *devices; /* made while the fabric is opened */
    char *secret;                  /* owned copy */
    uint64_t incarnation;          /* atomic, from 1 */
    bool membarrier;               /* the kernel has it: lists on mapped pools need no fence of their own */
    struct spinlock lock;          /* guards `endpoints` */
    struct remote_endpoint *endpoints;
    uint32_t quit; /* atomic */
    int heartbeat_event, reconnect_event;
    struct pollfd *polls; /* the heartbeat's */
    struct thread *heartbeat, *reconnect;
    uint16_t count;
    struct remote_node nodes[]; /* by number */
};

/* ---- remote_lease.c ---- */

/* Ends the group, if it is still the node's. Any thread. */
void remote_node_lose(struct remote_node *node, uint64_t group, const char *why);
/* Makes a dialed control connection the node's new group. Takes the stream over. */
void remote_node_join(struct remote_node *node, struct remote_dialed *dialed);
/* BANYAN_OK if the welcome is from the memory node that we know. */
int remote_node_same(const struct remote_node *node, const struct wire_welcome *welcome, struct error *error);
/* Opens a data connection of the node's present group. */
int remote_ground_open(struct remote_node *node, uint64_t timeout_ns, struct remote_ground *ground,
                       struct error *error);
void remote_ground_close(struct remote_ground *ground, bool goodbye);
/* Says goodbye when the last heartbeat's echo has come, or 100 ms later: an echo that meets a closed socket
 * would make a loss of it. When no thread of the fabric runs. */
void remote_node_leave(struct remote_node *node);
/* The heartbeat before the first group, the reconnect when all memory nodes have joined. */
int remote_heartbeat_start(struct remote_fabric *remote, struct error *error);
int remote_reconnect_start(struct remote_fabric *remote, struct error *error);
/* Those that run. They may be started again. */
void remote_threads_stop(struct remote_fabric *remote);
void remote_event_set(int event);
/* Whether membarrier() works here; asks for it once. */
bool remote_membarrier_register(void);

/* ---- remote_link.c ---- */

/* Posts a list; what is refused at once gets its status and is not waited for. */
void remote_link_post(struct remote_link *link, struct fabric_list *list, struct remote_wait *wait);
int remote_link_call(struct remote_link *link, const void *request, size_t length, void *reply,
                     size_t capacity, size_t *reply_length);
/* Whether something numbered so may be posted now: BANYAN_OK, BANYAN_ENET or BANYAN_EFENCED. Takes over what
 * the reconnect opened. */
int remote_link_admit_slow(struct remote_link *link, uint64_t incarnation);
static inline int remote_link_admit(struct remote_link *link, uint64_t incarnation)
{
    /* acquire: condition (2) at the top */
    if (__builtin_expect(link->ground.group != atomic_load_acquire(&link->node->group), 0))
        return remote_link_admit_slow(link, incarnation);
    return __builtin_expect(incarnation != 0 && incarnation < link->ground.since, 0) ? BANYAN_EFENCED
                                                                                     : BANYAN_OK;
}
/* The connection is of no use any more: drops it and fails what is under way. */
void remote_link_fail(struct remote_link *link, const char *why);
/* A list of it is done. */
void remote_link_complete(struct remote_link *link, struct fabric_list *list, int status);
/* A plain thread's: sends, receives, waits for something once. */
void remote_endpoint_pump(struct remote_endpoint *endpoint);
/* Makes the endpoint the calling thread's: its worker's, or nobody's. */
int remote_endpoint_bind(struct remote_endpoint *endpoint);
void remote_endpoint_unbind(struct remote_endpoint *endpoint);
void remote_endpoint_wait(struct remote_endpoint *endpoint, struct remote_wait *wait);
/* Of an endpoint that nobody uses any more. */
void remote_link_close(struct remote_link *link);

/* ---- remote_nic.c ---- */

/* Opens the NIC that leads to the memory node, if that is not done yet: node->device. */
int remote_nic_open(struct remote_node *node, const struct remote_dialed *dialed, struct error *error);
void remote_nics_close(struct remote_fabric *remote);
int remote_nic_validate(const struct remote_node *node, const struct wire_welcome *welcome,
                        struct error *error);
/* A queue pair for a data connection that was welcomed. The message does not name the memory node. */
int remote_nic_attach(const struct remote_node *node, struct net_stream *stream, uint64_t deadline,
                      struct verbs_queue **queue, struct error *error);
/* Tries the way to the memory node and sets its round_trip_ns. */
int remote_nic_probe(struct remote_node *node, struct error *error);
void remote_nic_post(struct remote_link *link, struct fabric_list *list, struct remote_wait *wait);
/* Completes what is done; returns how many, or that the link failed. */
uint32_t remote_nic_poll(struct remote_link *link);
/* A link's queue goes: its lists end with BANYAN_ENET, whoever waits for room tries again. */
void remote_nic_drop(struct remote_link *link, struct verbs_queue *queue);
/* The endpoint's hook. */
void remote_nic_turn(struct remote_endpoint *endpoint);
bool remote_nic_awake(struct worker_hook *hook);
/* Whether the worker hears of the link's queue. */
bool remote_nic_watched(struct remote_link *link);
/* A plain thread's: polls for a while, then arms. True: something is done, do not wait. */
bool remote_nic_pump(struct remote_endpoint *endpoint);
/* The queue's descriptor was readable. */
void remote_nic_told(struct remote_link *link);

#endif
