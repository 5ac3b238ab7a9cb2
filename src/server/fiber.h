/*
 * fiber.h - a fiber that runs commands: each thread has a pool of them, and each runs one connection at a
 * time, up to a slice of commands, its complete requests in order.
 *
 * Runs of point reads in a pipeline are looked up together, and runs of SETs without conditions are done
 * together, so that their round trips overlap, or where the pool is mapped their cache misses (measured there
 * with a million keys: 0.65 instead of 1.05 us of CPU for a GET in a pipeline of 16). The client sees one
 * order, its own; another client may see a later SET of a run before an earlier one of another key.
 *
 * In a server that has its pool to itself (options.alone) the batch goes on over connections that are ready
 * together, so that requests without pipelining are batched too. Elsewhere it does not: a request that waits,
 * for a lock or for an owner that has died, would hold up the clients of all others of its batch.
 */
#ifndef SERVER_FIBER_H
#define SERVER_FIBER_H

#include "server/command.h"
#include "server/connection.h"

/* Commands of one connection in a row, before other connections get their turn. */
#define FIBER_SLICE 256u
/* Commands whose replies wait for the disk together, at most a slice more. */
#define FIBER_HELD 4096u
/* Point reads, or SETs without conditions, that are done together. */
#define FIBER_BATCH_MAX  64u
#define FIBER_BATCH_ARGS 5u /* arguments of a request in a batch, at most: SET with EX has five */
/* A connection whose slice took more bytes of requests does not wait for others to join its batch. */
#define FIBER_JOIN_BYTES 16384u
/* So many bytes of replies are sent when their slice ends, fewer by the thread's next turn. */
#define FIBER_SEND_AT_ONCE 8192u
/* So many bytes of long values are gathered before they are sent in the middle of a slice. */
#define FIBER_REPLIES_GATHERED 65536u

/* What requests of one batch have in common. */
enum fiber_batch_kind {
    FIBER_BATCH_NONE = 0, /* the request runs by itself */
    FIBER_BATCH_VALUES = SERVER_POINT_VALUE,
    FIBER_BATCH_LENGTHS = SERVER_POINT_LENGTH,
    FIBER_BATCH_PUTS = 1,
};

struct server_request {
    struct server_connection *connection;
    const struct server_command *command;             /* NULL: unknown */
    unsigned index;                                   /* in the table */
    uint32_t count;                                   /* of arguments */
    size_t start;                                     /* where it begins in the connection's input */
    struct resp_argument arguments[FIBER_BATCH_ARGS]; /* in a batch alone, as the next ones */
    struct store_value put;                           /* of FIBER_BATCH_PUTS */
    bool valid;                                       /* its key is, so that it has an item */
};

struct server_fiber {
    struct server_thread *thread;
    struct task *task;
    struct tree_session *session;
    struct store_session *store;
    struct feed_writer changes;           /* where the disk hears of what its commands change */
    struct server_connection *connection; /* that it runs; NULL also while it does a batch of several */
    /* Their slices are over but for what is in the batch. */
    struct server_connection *joined_first, *joined_last;
    struct server_fiber *next_idle;
    bool idle;
    uint64_t clock_ns;            /* when the wall clock was last read */
    uint64_t wall_ahead_ns;       /* how far it was ahead of task_now then, modulo 2^64 */
    uint64_t wall_of_ns, wall_ms; /* what fiber_wall_ms was last asked, and has told; wall_ms 0: never */
    uint32_t answered;            /* commands, since it let others go on */
    uint64_t went_on_ns; /* when it was done with its last connection; 0: it has let others go on since */
    uint32_t latencies;
    /* Of this slice's commands, and of those that joined it, ns. */
    uint64_t latency[FIBER_SLICE + FIBER_BATCH_MAX];
    uint32_t batch_count;
    enum fiber_batch_kind batch_kind;
    struct server_request batch[FIBER_BATCH_MAX + 1]; /* behind those of the batch: the one at hand */
    struct store_item items[FIBER_BATCH_MAX];
};

/* ---- fiber.c ---- */

/* Runs connections until the thread stops. argument: struct server_fiber. */
void fiber_main(void *fiber);
/* Whether the command that a fiber runs may end: its connection is closed, or the server stops. argument:
 * struct server_fiber. */
bool fiber_cancelled(void *fiber);

/* All requests of the connection that were in the batch have their replies: if it has joined it, its slice is
 * over. Long replies go then, while the processor still has them, and its client need not wait for the
 * others'. In the order in which connections have joined. */
void fiber_joined_answered(struct server_fiber *fiber, struct server_connection *connection, uint64_t now);
/* The batch that connections have joined is done: the slices of all that are left are over. */
void fiber_joined_over(struct server_fiber *fiber, uint64_t now);

/* ---- execute.c: one command ---- */

/* Whether it would change data, and the disk takes no changes. */
bool fiber_refuses(const struct server_fiber *fiber, const struct server_command *command);
/* Runs a request by itself, and replies. Returns the time at its end; `begin` is that at its beginning. */
uint64_t fiber_execute(struct server_fiber *fiber, const struct server_request *request,
                       const struct resp_argument *arguments, uint64_t begin);
/* The wall clock at `now`. */
uint64_t fiber_wall_at(struct server_fiber *fiber, uint64_t now);
/* The same, which most requests of a batch ask at one time. */
static inline uint64_t fiber_wall_ms(struct server_fiber *fiber, uint64_t now)
{
    return fiber->wall_of_ns == now && fiber->wall_ms ? fiber->wall_ms : fiber_wall_at(fiber, now);
}
/* The call of a request. */
struct server_call fiber_call(struct server_fiber *fiber, const struct server_request *request,
                              const struct resp_argument *arguments, uint64_t now);
/* Before each command's reply; returns what fiber_end_reply wants as `errors`. */
uint64_t fiber_begin_reply(struct server_connection *connection);
/* After each command's reply: counts it, and drops it if the client wants none. */
void fiber_end_reply(struct server_fiber *fiber, const struct server_call *call, unsigned index,
                     uint64_t errors, uint64_t nanoseconds);

/* ---- batch.c: requests that go together ---- */

/* Runs the request that has just been parsed, or puts it into the batch. It began at `start` of the
 * connection's input. *now is the time, which is moved on. */
void fiber_take_request(struct server_fiber *fiber, size_t start, uint64_t *now);
/* Does the batch, and answers its requests in order. Where their values were too much at once, the input of
 * each of their connections begins with the first request that has no reply yet, and false tells so of the
 * connection that the fiber runs; those that have joined it run again (connection.sliced). */
bool fiber_finish_batch(struct server_fiber *fiber, uint64_t *now);

#endif
