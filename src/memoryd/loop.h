/*
 * loop.h - the I/O threads of the memory daemon, their engines, and connections: a session with its socket.
 *
 * A loop is one thread with an engine; a connection belongs to one loop for its whole life. There are two
 * ways of moving bytes, which share all code but that at the socket:
 *  - readiness: the engine tells that a descriptor is ready, and the connection reads and writes by
 * net_stream. With every engine; for TLS, and for every connection until its hello has been answered;
 *  - completion: the engine itself receives into the session's input and sends from connection->sending, and
 * tells when it has. With io_uring, for plain sockets.
 */
#ifndef MEMORYD_LOOP_H
#define MEMORYD_LOOP_H

#include "memoryd/session.h"

struct memoryd_loop;
struct memoryd_connection;

struct memoryd_engine {
    const char *name;
    /* On the thread that makes the daemon. BANYAN_ENOTSUP: the kernel does not have it. */
    int (*create)(struct memoryd_loop *loop, struct error *error);
    void (*destroy)(struct memoryd_loop *loop);
    /* This and all that follow: on the loop's thread. */
    int (*begin)(struct memoryd_loop *loop, struct error *error);
    /* A new connection. BANYAN_ENOMEM: it must be closed. */
    int (*add)(struct memoryd_loop *loop, struct memoryd_connection *connection);
    /* The connection will be told when what it waits for has happened. Called at the end of each of its
     * turns. Where that fails the connection is closed, and may be gone. */
    void (*arm)(struct memoryd_connection *connection);
    /* The session's input is empty and larger than it need be; a receive into it may be under way. */
    void (*shrink)(struct memoryd_connection *connection);
    /* Waits for events and hands them to the connections; timeout 0: does not wait. */
    void (*wait)(struct memoryd_loop *loop, uint64_t timeout_ns);
    /* The connection's socket is shut down. True: it may be freed now. False: the engine frees it by
     * memoryd_connection_free when none of its operations is under way any more. */
    bool (*remove)(struct memoryd_connection *connection);
};
extern const struct memoryd_engine memoryd_epoll;
extern const struct memoryd_engine memoryd_uring;

struct memoryd_connection {
    struct memoryd_session session;
    struct net_stream *stream;
    struct memoryd_loop *loop;
    struct memoryd_connection *next, *previous;             /* of the loop */
    struct memoryd_connection *timed_next, *timed_previous; /* with a time limit, the earliest first */
    uint64_t deadline;                                      /* 0: none */
    bool completion;
    bool welcomed;   /* the welcome, with its descriptors, is on its way */
    bool paused;     /* the session waits for its output to go */
    bool ending;     /* it is closed when its output has been sent */
    bool gone;       /* left its loop */
    bool large;      /* its input was larger than it need be, and empty, at the last tidying */
    uint32_t events; /* epoll: what was asked for */
    unsigned flying; /* io_uring: operations under way, one bit each */
    struct memoryd_buffer sending;
};

struct memoryd_loop {
    struct memoryd *daemon;
    const struct memoryd_engine *engine;
    void *state; /* the engine's */
    struct thread *thread;
    int wake; /* eventfd: a connection is in the inbox, or the daemon stops */
    struct spinlock inbox_lock;
    struct memoryd_connection *inbox; /* by timed_next */
    struct memoryd_connection *first, *timed_first, *timed_last;
    uint32_t timed_count;
    uint32_t flying;     /* connections that are closed, and that the engine has not freed yet */
    uint64_t tidy_at;    /* when buffers are looked at again */
    uint64_t noticed;    /* the last notice that its connections were told */
    uint64_t settled;    /* up to here they were told what the disk has (memoryd_disk_settled) */
    uint64_t walked;     /* atomic: walks of its connections that are done, so far ... */
    uint64_t walks_told; /* ... of which they were told */
    struct memoryd_counts counts;
    struct wire_staging *staged; /* its own area (D3); NULL: the pool dies with the process */
};

int memoryd_loop_create(struct memoryd_loop *loop, struct memoryd *daemon,
                        const struct memoryd_engine *engine, struct error *error);
void memoryd_loop_destroy(struct memoryd_loop *loop);
void memoryd_loop_main(void *loop);
void memoryd_loop_wake(struct memoryd_loop *loop);
/* Any thread: a walk of one of its connections is done. */
void memoryd_loop_walked(struct memoryd_loop *loop);
/* Any thread: the connection is the loop's from now on. */
void memoryd_loop_give(struct memoryd_loop *loop, struct memoryd_connection *connection);
/* The engine's: the eventfd became readable. */
void memoryd_loop_woken(struct memoryd_loop *loop);

/* ---- connections (connection.c) ---- */

/* Owns the socket from now on, also when it fails (NULL: no memory). */
struct memoryd_connection *memoryd_connection_create(struct memoryd *daemon, struct memoryd_loop *loop,
                                                     int fd, const struct memoryd_listener *listener,
                                                     const char *peer);
void memoryd_connection_free(struct memoryd_connection *connection);
/* Readiness: reads and writes what the descriptor is ready for. */
void memoryd_connection_ready(struct memoryd_connection *connection);
/* Completion: `count` bytes are in the session's input; 0: the peer has closed; < 0: an errno. */
void memoryd_connection_received(struct memoryd_connection *connection, int count);
/* Completion: `count` bytes of connection->sending have been sent; < 0: an errno. */
void memoryd_connection_sent(struct memoryd_connection *connection, int count);
/* Closes it: leaves its group and its loop. */
void memoryd_connection_close(struct memoryd_connection *connection, enum memoryd_leaving how,
                              const char *why);
/* Closes it by its time limit. */
void memoryd_connection_expire(struct memoryd_connection *connection);
/* Sends the greatest notice, if it is for this connection, and answers that waited for the disk. May close
 * it. */
void memoryd_connection_tell(struct memoryd_connection *connection);
/* Gives memory of idle buffers back. */
void memoryd_connection_tidy(struct memoryd_connection *connection);
/* For engines. Readiness: epoll's events to wait for. */
uint32_t memoryd_connection_wants(const struct memoryd_connection *connection);
/* 1: input is wanted, and there is room for it; 0: not now; -1: it had to be closed, and may be gone. */
int memoryd_connection_input_room(struct memoryd_connection *connection);
/* Completion: moves finished output to `sending`, which must be empty. 1: there is something to send; 0:
 * there is not; -1: closed, and may be gone. */
int memoryd_connection_output(struct memoryd_connection *connection);

/* ---- for connection.c ---- */

void memoryd_loop_remove(struct memoryd_connection *connection);
void memoryd_loop_set_deadline(struct memoryd_connection *connection, uint64_t deadline);

#endif
