/*
 * connection.h - inside the RESP server: the connection of one client.
 *
 * THREADS. A connection is touched by its thread alone: by callbacks and the turn hook (on the worker's
 * stack) and by the fiber that runs its commands, which may be suspended in the middle of a command;
 * `running` says so. While `running` is set its input buffer is only appended to, since arguments point into
 * it, and only the output before output.start is sent. To look at connections of other threads, visit those
 * threads (server_each_thread).
 *
 * LIFE. A closed connection is `dead` and stays in memory until nothing refers to it: no fiber runs it, no
 * queue holds it, no callback is looking at it (`held`). Errors of a connection close it; no other connection
 * notices.
 */
#ifndef SERVER_CONNECTION_H
#define SERVER_CONNECTION_H

#include "base/worker.h"
#include "net/net.h"
#include "server/resp_parser.h"
#include "server/resp_writer.h"
#include "server/thread.h"

/* With more bytes unsent, no further command of the connection is run, and nothing more is read from it. */
#define CONNECTION_OUTPUT_STOP (1u << 20)
#define CONNECTION_NAME_MAX    4096u

enum connection_reply { CONNECTION_REPLY_ON, CONNECTION_REPLY_OFF, CONNECTION_REPLY_SKIP };

struct server_connection {
    struct worker_watch watch; /* first: the callback gets this */
    struct server_thread *thread;
    struct net_stream *stream;
    struct server_connection *previous, *next; /* of the thread */
    struct server_connection *next_ready, *next_flush, *next_rest;
    struct server_connection *next_held; /* of those whose replies wait for the disk, or for a batch's end */
    /* Input: bytes [input_start, input_end) have not been parsed. */
    char *input;
    size_t input_start, input_end, input_capacity;
    struct resp_parser parser;
    /* Output: bytes [sent, output.length) have not been sent. */
    struct resp_writer output;
    size_t sent;
    size_t
        unsafe; /* while `running`: what is written from here on waits for the disk; SIZE_MAX: for nothing */
    uint64_t ticket;          /* and what it waits for (feed_wait) */
    enum resp_status sliced;  /* why its last slice ended */
    size_t arguments_counted; /* bytes of parser.arguments in the thread's account */
    size_t command_bytes;     /* that the command under way has reserved (eviction.h) */

    bool more;          /* its last read filled the buffer, so that more may be there */
    bool ready;         /* in the thread's queue */
    bool running;       /* a fiber has it */
    bool flushing;      /* in the list of connections with output */
    bool resting;       /* in the list of those that have more to read */
    uint8_t held;       /* callbacks that are looking at it */
    bool ended;         /* the peer sends no more */
    bool finishing;     /* no further command; close when all is sent */
    bool dead;          /* closed; freed when nothing refers to it */
    bool blocked;       /* waits for output to drain before it goes on */
    bool authenticated; /* has given the password */
    bool unix_socket;
    uint8_t reply; /* enum connection_reply */
    uint8_t skip;  /* replies to leave out: 2: the next command's; 1: this one's */
    bool no_evict, no_touch;
    bool multi; /* between MULTI and EXEC or DISCARD: commands are refused */

    uint64_t id, created_ns;
    uint64_t active_ns; /* last time that a command ran, or bytes came or went: a slow transfer is not idle */
    uint64_t commands, bytes_in, bytes_out;
    const char *last_command, *last_subcommand; /* NULL: it has none */
    struct store_cut *cut; /* owned; NULL: it has none. Touched by its commands, and when it is freed */
    size_t request_start;  /* where the request under way begins in the input, while `running` */
    /* When its slice began: */
    size_t slice_start;                     /* input_start */
    uint64_t slice_from;                    /* commands */
    char *name, *library, *library_version; /* NULL: none */
    char *peer;
};

/* ---- connection.c: life ---- */

/* On the thread. Takes the stream and `peer` over, also when it fails (false: no memory). */
bool connection_open(struct server_thread *thread, struct net_stream *stream, char *peer, bool unix_socket);
/* At once; it is freed when nothing refers to it any more, which may be during this call. */
void connection_close(struct server_connection *connection);
/* No more commands; closes when its output is sent. */
void connection_finish(struct server_connection *connection);
/* A broken protocol or an exceeded limit: replies an error and finishes. */
void connection_refuse(struct server_connection *connection, const char *text);
/* Between the two the connection is not freed; after the release it may be. */
void connection_hold(struct server_connection *connection);
void connection_release(struct server_connection *connection);
/* Asks the worker for the events that the connection can use now. */
void connection_watch(struct server_connection *connection);
/* The client's address as clients write it: without the scheme of Banyan's own settings. */
const char *connection_address(const struct server_connection *connection);
/* Bytes have come or gone, in this round of the worker. */
static inline void connection_touch(struct server_connection *connection)
{
    const uint64_t now = worker_round_ns(connection->thread->worker);
    if (now > connection->active_ns) /* a command may have run since */
        connection->active_ns = now;
}
/* Whether it may run commands that need the password. */
bool connection_authorized(const struct server_connection *connection);

/* ---- connection_input.c ---- */

/* Reads what is there now. The caller holds the connection. */
void connection_read(struct server_connection *connection);
/* The same, but the rest of a pipeline whose beginning has been read waits for its turn: a few rests are
 * read, and run, between two looks at all connections, so that others' requests do not wait for all of them.
 */
void connection_read_fairly(struct server_connection *connection);
/* Reads the next rests. By the turn hook. */
void connections_read_rests(struct server_thread *thread);
/* Reads what OpenSSL has decrypted while there was no room for it, since no event reports it, and the rest of
 * a pipeline. The caller holds the connection. */
void connection_read_pending(struct server_connection *connection);
/* Drops what has been parsed; an empty buffer goes back to the thread. Not while a fiber runs it. */
void connection_trim_input(struct server_connection *connection);

/* ---- connection_output.c ---- */

/* Bytes that have not been sent. */
size_t connection_unsent(const struct server_connection *connection);
/* A buffer for replies; false: no memory. */
bool connection_open_output(struct server_connection *connection);
/* Drops what has been sent; an empty buffer goes back to the thread. */
void connection_trim_output(struct server_connection *connection);
/* Sends what can be sent now. May close the connection. The caller holds it. */
void connection_flush(struct server_connection *connection);
/* The same while a fiber runs it and between two of its commands; where all is sent, the next reply begins at
 * the buffer's beginning. It may be dead afterwards, but stays. */
void connection_flush_answered(struct server_connection *connection);
/* Has it flushed by the thread's next turn. */
void connection_flush_later(struct server_connection *connection);
/* resp_writer.grow of a connection's output. */
char *connection_grow_output(struct resp_writer *output, size_t capacity);
/* The thread's turn hook: sends what its connections have gathered. */
void connections_turn(struct worker_hook *hook);

#endif
