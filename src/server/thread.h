/*
 * thread.h - a thread of the server: a worker with its connections and the fibers that run their commands.
 *
 * Each thread has a keeper, a fiber that sets the thread's sessions up, ticks ten times a second (idle
 * clients, published figures), and takes everything down at the end.
 */
#ifndef SERVER_THREAD_H
#define SERVER_THREAD_H

#include "base/histogram.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "pool/pool.h"
#include "server/counters.h"

#define SERVER_TICK_NS UINT64_C(100000000)

struct server_connection;
#define BUFFERS_SIZES 4u /* to which a buffer doubles, and which the thread keeps: 32 to 256 KiB */

struct server_fiber;

/* Spare buffers of one size, for buffers.c. Each one's first bytes are the next one's address. */
struct buffers_grown {
    char *first;
    unsigned count, least; /* least: so many were there at all times since the last trim */
};

struct server_thread {
    struct server *server;
    unsigned number;
    struct worker *worker;
    struct thread *thread;
    struct pool_worker *tree;
    struct server_fiber *fibers; /* options.fibers of them */
    struct server_fiber *idle;
    unsigned fibers_live; /* commands' and others' that must return before the sessions go */
    unsigned woken;       /* fibers on their way to the queue */
    struct server_connection *ready_first, *ready_last;
    struct server_connection *held_first, *held_last; /* whose replies wait for the disk, and no fiber yet */
    uint32_t held_commands;                           /* that they have run */
    struct server_connection *flush;                  /* those with output to send */
    struct server_connection *rest_first, *rest_last; /* those that have more to read than was read at once */
    struct server_connection *connections;
    struct worker_hook hook;
    char **spare; /* blocks of buffers */
    unsigned spare_count;
    struct buffers_grown grown[BUFFERS_SIZES];
    size_t grown_bytes; /* of all in `grown` */
    bool stopping;
    uint64_t idle_checked_ns;
    /* Any thread, relaxed: an upper bound for the bytes of its largest connection that may be evicted: each
     * growth raises it, and looking for a connection to evict corrects it. */
    uint64_t largest;
    uint32_t evicting; /* any thread: it has been asked to evict, and not begun */
    struct server_counters counters;
    struct server_command_counter *commands; /* by number in the table */
    /* For other threads, under the lock. */
    struct spinlock lock;
    struct histogram *latency, *latency_before; /* this and the last half minute */
    uint64_t latency_turned_ns;
    struct tree_stats tree_stats; /* of all its sessions, as of a moment ago */
};

/* Makes a thread of the server, which does not run yet. */
int server_thread_create(struct server_thread *thread, struct server *server, unsigned number,
                         struct error *error);
/* It must not run. */
void server_thread_destroy(struct server_thread *thread);
/* Runs the thread's worker until its end. argument: struct server_thread. */
void server_thread_main(void *thread);
/* On the thread, as a callback: no further commands. argument: struct server_thread. */
void server_thread_stop(void *thread);
/* Opens the sessions of a fiber of this thread. On failure too, what was opened is the caller's to close. */
int server_thread_open_session(struct server_thread *thread, struct tree_session **session,
                               struct store_session **store, struct error *error);

/* ---- sweep.c ---- */

/* A fiber of thread 0: removes expired entries bit by bit, and counts the keys as it goes. argument: struct
 * server_thread. */
void sweep_main(void *thread);

/* ---- visit.c ---- */

/* Calls the function on every thread of the server, and waits. From a fiber; the function runs as a callback,
 * on several threads at once. False: no memory, it was not called on all. */
bool server_each_thread(struct server *server, void (*function)(struct server_thread *, void *context),
                        void *context);

#endif
