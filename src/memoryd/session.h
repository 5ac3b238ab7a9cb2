/*
 * session.h - one connection's conversation, without its socket: bytes go in, bytes come out, and in
 * between the hello is judged, lists are run on the pool, calls are answered.
 *
 * Called by connection.c on the connection's I/O thread, and by the fuzzer. Nothing here waits; a step
 * runs every command that is wholly there. Nothing that a peer sends makes it fail worse than by
 * SESSION_BROKEN, or makes its buffers grow beyond one command of input and two lists of output.
 */
#ifndef MEMORY_SERVER_SESSION_H
#define MEMORY_SERVER_SESSION_H

#include "memoryd/buffer.h"
#include "memoryd/staging.h"
#include "memoryd/state.h"

/* No new message is begun while more than this is unsent. */
#define SESSION_OUTPUT_PAUSE (4u << 20)
/* Room for input: before the hello is accepted, behind it, and of connections that send lists. */
#define SESSION_INPUT_HELLO 4096u
#define SESSION_INPUT_SMALL 8192u
#define SESSION_INPUT_LISTS 65536u
#define SESSION_OUTPUT_KEEP 65536u

enum session_result {
    SESSION_MORE,        /* it needs more input: session->need bytes in all */
    SESSION_PAUSED,      /* it waits for output to be sent; call again then */
    SESSION_DESCRIPTORS, /* send all output, then session->descriptors, then call again */
    SESSION_ENDED,       /* goodbye, or refused: send the output and close */
    SESSION_FENCED,      /* its compute node was: close at once */
    SESSION_BROKEN,      /* session->why: close at once */
};

/* The list that is being received. */
struct session_list {
    uint32_t left;   /* bytes of the message that have not been taken yet; 0: there is no list */
    uint32_t volume; /* of READs and WRITEs so far */
    uint16_t count, run;
    int32_t status;
    uint64_t id;
    bool pending; /* a store may not be seen by all yet (G1, G4) */
};

struct server_session {
    struct memory_server *server;
    struct server_counts *counts; /* of its thread */
    struct server_buffer in, out;
    size_t need;   /* bytes that `in` must hold for the next step */
    size_t unsent; /* output that is no longer in `out` but on its way (the connection's) */
    bool open;     /* the hello was accepted */
    bool worked;   /* a list or call of it was begun */
    bool over;     /* nothing is executed any more */
    uint8_t nonce[NET_NONCE_BYTES];
    uint32_t role;   /* enum wire_role, once open */
    uint16_t number; /* of the memory node, once open */
    bool card;       /* its lists go through the network card */
    bool attached;   /* it has asked for a queue pair */
    struct session_list list;

    int fd; /* for shutting it down; -1: none (fuzzer) */
    bool is_unix;
    bool mapped;
    int pidfd, pid;         /* of a Unix socket's peer; -1, 0 */
    int descriptors[2];     /* SESSION_DESCRIPTORS */
    bool descriptors_owned; /* closed when they have been sent */
    unsigned descriptor_count;
    struct server_staging *staging;

    /* the group table's, under its lock */
    struct server_card_queue *queue; /* NULL: none. Set and cleared by its own thread alone */
    struct server_group *group;
    struct server_session *group_next, *group_previous;

    char peer[NET_TEXT_MAX]; /* address */
    char name[WIRE_NAME_MAX + 1];
    char why[160];
};

/* Puts the greeting into the output. false: no memory. Takes pidfd over. */
bool server_session_begin(struct server_session *session, struct memory_server *server,
                          struct server_counts *counts, int fd, const char *peer);
enum session_result server_session_run(struct server_session *session);
/* The descriptors have been sent. */
void server_session_descriptors_sent(struct server_session *session);
/* The connection is gone: destroys its queue pair, then leaves the group. May be called twice. */
void server_session_leave(struct server_session *session, enum server_leaving how, const char *why);
/* Frees everything that the session owns. */
void server_session_finish(struct server_session *session);
static inline bool server_session_paused(const struct server_session *session)
{
    return session->out.ready - session->out.start + session->unsent > SESSION_OUTPUT_PAUSE;
}

/* ---- between the parts of a session ---- */

enum session_result server_session_broken(struct server_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* hello.c: a HELLO of `length` bytes. */
enum session_result server_session_hello(struct server_session *session, const struct wire_head *head,
                                         const void *bytes);
/* list.c: a LIST's head has been taken; and every step of it. SESSION_MORE with list.left == 0: it has
 * been answered. */
enum session_result server_session_list_begin(struct server_session *session, const struct wire_head *head);
enum session_result server_session_list_step(struct server_session *session);
/* attach.c: an ATTACH of `length` bytes; the end of its queue pair: false when that is not certain. */
enum session_result server_session_attach(struct server_session *session, const struct wire_head *head,
                                          const void *bytes);
bool server_session_detach(struct server_session *session);
/* A whole message into the output. false: no memory. */
bool server_session_send(struct server_session *session, enum wire_kind kind, int32_t status, uint64_t id,
                         const void *bytes, size_t length);

#endif
