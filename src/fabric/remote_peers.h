/*
 * remote_peers.h - calls between compute nodes (peers.h) over connections of their own: what a fabric, an
 * endpoint and a connection keep for them.
 *
 *  peer_stream.c         what is said on a connection (peer_stream.h)
 *  remote_peers.c        what the backend implements of peers.h; an endpoint's end
 *  remote_peer_call.c    the side that calls
 *  remote_peer_serve.c   the side that is called, once an endpoint has the connection
 *  remote_peer_listen.c  listening, and a thread that lets callers in and hands them to endpoints
 *  remote_peer_socket.c  bytes between a stream and its socket
 *
 * An endpoint has one connection to each process that it calls, and those of callers that were handed to it.
 * All belong to the endpoint's owner, like its links: on a worker, messages gather while fibers run, leave
 * together in the turn hook, and watches bring the answers; a plain thread sends and polls by itself. What
 * other threads touch of an endpoint is guarded by its `lock`.
 */
#ifndef FABRIC_REMOTE_PEERS_H
#define FABRIC_REMOTE_PEERS_H

#include "base/atomic.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "fabric/peer_stream.h"

struct fabric_remote_options;
struct remote_endpoint;
struct remote_fabric;

extern const struct fabric_peer_ops remote_peer_ops;

/* ---- connections ---- */

#define REMOTE_PEER_BUCKETS 64u

struct peer_connection {
    struct worker_watch watch; /* first: the callback's argument */
    struct remote_fabric *remote;
    struct remote_endpoint *endpoint; /* NULL: no endpoint has it yet */
    struct net_stream *stream;
    struct peer_stream talk;
    struct peer_connection *next; /* of its list */
    struct peer_connection *next_dirty;
    bool dirty;

    /* the side that calls */
    struct peer_call *calls[REMOTE_PEER_BUCKETS]; /* sent, by id */
    struct peer_call *openers;                    /* that wait until it is open */
    uint64_t sent_id;
    uint64_t heard; /* how often bytes have come */

    /* the side that is called */
    uint32_t taken;  /* requests that were not replied to */
    uint32_t queued; /* of those, the ones that no task has received */
    bool paused;     /* it is not read: too much of it is under way */
    uint32_t dead;   /* atomic, written by the owner: closed; freed with the last reply */
    char from[NET_TEXT_MAX];
};

/* A request of ours, on its caller's stack. */
struct peer_call {
    struct task *task;                  /* NULL: a plain thread */
    struct fabric_process peer;         /* who is called */
    struct peer_call *next;             /* in its connection's bucket, or among the openers */
    struct peer_call *older, *newer;    /* those of the endpoint that wait, under its lock */
    bool listed;                        /* as above */
    struct peer_connection *connection; /* it waits for; NULL: none any more */
    uint64_t id, deadline, heard;
    uint64_t begin, end; /* of its message, in bytes ever put into the output */
    void *reply;
    size_t capacity, length;
    int status;
    bool opened, done;
    uint32_t expired; /* atomic: the heartbeat's thread found it too late */
};

/* A request of a peer; `bytes` hold it. */
struct peer_request {
    struct fabric_peer_request request; /* first */
    struct peer_connection *connection;
    struct peer_request *next;
    uint64_t id;
    uint8_t bytes[];
};

/* A task that waits for a request. */
struct peer_receiver {
    struct task *task;
    struct peer_receiver *next;
    bool listed;
};

/* ---- of an endpoint ---- */

struct remote_endpoint_peers {
    struct peer_connection *calling, *serving, *dirty;
    struct peer_request *first, *last; /* that no task has received */
    uint32_t queued;
    size_t queued_bytes;
    struct pollfd *polls; /* a plain thread's */
    size_t polls_capacity;
    uint32_t connections; /* atomic: of callers; a hint for sharing them out */
    bool serves;          /* under the fabric's lock: a task of it has asked for requests */

    struct spinlock lock; /* guards what follows */
    struct peer_connection *arrived;
    struct peer_receiver *receivers;
    struct peer_call *oldest, *newest;
    int event; /* wakes a plain thread that waits for requests; -1: none has */
};

void remote_endpoint_peers_open(struct remote_endpoint *endpoint);
void remote_endpoint_peers_close(struct remote_endpoint *endpoint);
/* The endpoint has got another owner, or has none: its connections are watched, or not. */
void remote_endpoint_peers_bind(struct remote_endpoint *endpoint);
void remote_endpoint_peers_unbind(struct remote_endpoint *endpoint);
/* The turn hook's part: sends what has gathered. */
void remote_endpoint_peers_turn(struct remote_endpoint *endpoint);
/* The heartbeat's: wakes callers whose time is over. */
void remote_endpoint_peers_expire(struct remote_endpoint *endpoint, uint64_t now);
/* Calls of the process have no time left. Any thread. */
void remote_endpoint_peers_forget(struct remote_endpoint *endpoint, struct fabric_process peer);
/* Wakes what waits for requests: one task, or all. Any thread. */
void remote_endpoint_peers_wake(struct remote_endpoint *endpoint, bool all);

/* ---- of a fabric ---- */

#define REMOTE_PEERS_KNOWN 64u

struct remote_peers {
    struct peer_self self;
    struct net_tls *tls;        /* for those who call over TCP; NULL: plain */
    struct net_address address; /* where it listens */
    char text[NET_TEXT_MAX];    /* what callers are told; "": it does not listen */
    int listener, event;
    struct thread *thread;
    uint32_t stopped, quit; /* atomic */
    uint32_t accepted;      /* atomic: connections of callers */
    /* under the fabric's lock: open connections that wait for an endpoint */
    struct peer_connection *ready;
    uint32_t ready_count;

    struct spinlock lock; /* guards what follows: what was learnt about others, for messages */
    struct peer_known {
        struct fabric_process process;
        char text[160];
    } known[REMOTE_PEERS_KNOWN];
    unsigned known_next;
};

void remote_peers_prepare(struct remote_peers *peers);
/* Listens as the options say, before memory nodes are joined: they are told where. `local`: our address
 * towards the home node. */
int remote_peers_listen(struct remote_fabric *remote, const struct fabric_remote_options *options,
                        const char *local, struct error *error);
/* Lets callers in, when all memory nodes have been joined. */
int remote_peers_start(struct remote_fabric *remote, struct error *error);
/* No endpoint is left. */
void remote_peers_close(struct remote_fabric *remote);
void remote_peers_wake(struct remote_peers *peers);
/* For messages: how the process can be reached, or why not. */
void remote_peers_note(struct remote_fabric *remote, struct fabric_process process, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- the two sides; on the endpoint's owner ---- */

int remote_peer_call(struct fabric_endpoint *base, struct fabric_process peer, const void *request,
                     size_t length, void *reply, size_t capacity, size_t *reply_length);
/* Ends the connection: every call of it fails. It is freed. */
void remote_peer_drop(struct peer_connection *connection, const char *why);
void remote_peer_calling_ready(struct worker_watch *watch, uint32_t events);

int remote_peer_receive(struct fabric_endpoint *base, struct fabric_peer_request **request);
void remote_peer_reply(struct fabric_endpoint *base, struct fabric_peer_request *request, int status,
                       const void *reply, size_t length);
/* Ends the connection: its requests that no task has received are dropped. It is freed, now or with the last
 * reply. */
void remote_peer_hang_up(struct peer_connection *connection, const char *why);
void remote_peer_serving_ready(struct worker_watch *watch, uint32_t events);
/* Sends, as far as the socket takes it; may end the connection. */
void remote_peer_serving_push(struct peer_connection *connection);

/* ---- bytes (remote_peer_socket.c) ---- */

/* Takes the socket over, also when it fails (NULL: no memory). */
struct peer_connection *peer_connection_create(struct remote_fabric *remote, int fd, struct net_tls *tls,
                                               bool called, struct fabric_process peer);
void peer_connection_free(struct peer_connection *connection);
/* Writes what the socket takes. False: it is broken, and talk.why says how. */
bool peer_connection_flush(struct peer_connection *connection);
/* Reads once. 1: bytes came; 0: none now; -1: it has ended, or is broken: talk.why. *more: there may be more
 * that no descriptor tells. */
int peer_connection_read(struct peer_connection *connection, bool *more);
/* Its output leaves in the endpoint's next turn. */
void peer_connection_dirty(struct peer_connection *connection);
void peer_connection_clean(struct peer_connection *connection);
/* epoll's events to wait for. */
uint32_t peer_connection_wants(const struct peer_connection *connection);
/* On a worker: makes the watch what it must be. False: it cannot be watched. */
bool peer_connection_watch(struct peer_connection *connection, worker_ready_function *ready);

#endif
