/*
 * session.h - one connection's conversation, without its socket: bytes come in, the hello is checked, lists
 * are run on the pool, calls are answered, and bytes go out.
 *
 * Called by connection.c on the connection's I/O thread, and by the fuzzer. Nothing here waits, except for
 * the kernel when a queue pair is made (attach.c); a step runs every command whose bytes are all there. The
 * worst that a peer's bytes can bring about is SESSION_BROKEN; they never make the buffers grow beyond one
 * command of input and two lists of output.
 */
#ifndef MEMORYD_SESSION_H
#define MEMORYD_SESSION_H

#include "memoryd/buffer.h"
#include "memoryd/staging.h"
#include "memoryd/state.h"

/* No new message is begun while more than this is unsent. */
#define SESSION_OUTPUT_PAUSE (4u << 20)
/* Room for input: before the hello is accepted, after it, and for connections that send lists. */
#define SESSION_INPUT_HELLO 4096u
#define SESSION_INPUT_SMALL 8192u
#define SESSION_INPUT_LISTS 65536u
#define SESSION_OUTPUT_KEEP 65536u

enum session_result {
    SESSION_MORE,        /* it needs more input: session->need bytes in all */
    SESSION_PAUSED,      /* it waits for output to be sent; call again then */
    SESSION_DESCRIPTORS, /* send all output, then session->descriptors, then call again */
    SESSION_ENDED,       /* goodbye, or refused: send the output and close */
    SESSION_FENCED,      /* its compute node was fenced: close at once */
    SESSION_BROKEN,      /* session->why: close at once */
};

/* Calls of one connection that wait for the disk or for a walk, at most; more get BANYAN_EBUSY. */
#define SESSION_WAITS 64u
struct session_wait {
    uint64_t id, ticket;
};

/* The list that is being received. */
struct session_list {
    uint32_t left;   /* bytes of the message that have not been taken yet; 0: there is no list */
    uint32_t volume; /* bytes of READs and WRITEs so far */
    uint16_t count, run;
    int32_t status;
    uint64_t id;
    bool pending; /* a store may not be visible to everyone yet (G1, G4) */
};

struct memoryd_session {
    struct memoryd *daemon;
    struct memoryd_counts *counts; /* of its thread */
    struct wire_staging *staged;   /* of its thread; NULL: WRITEs need no staging (D3) */
    struct memoryd_buffer in, out;
    unsigned thread; /* which of the daemon's */
    size_t need;     /* bytes that `in` must hold for the next step */
    size_t unsent;   /* output that is no longer in `out` but on its way (the connection's) */
    bool open;       /* the hello was accepted */
    bool worked;     /* a list, a call or a queue pair was begun */
    bool over;       /* nothing is executed any more */
    uint8_t nonce[NET_NONCE_BYTES];
    uint32_t role;    /* enum wire_role, once open */
    uint16_t number;  /* of the memory node, once open */
    bool nic;         /* its lists go through the NIC */
    bool attached;    /* it has asked for a queue pair */
    uint64_t noticed; /* the last notice that it was told */
    struct session_list list;
    uint32_t unnoted; /* commands since one's address was noted (memory/heat.h) */
    struct session_wait waits[SESSION_WAITS];
    uint32_t wait_count;

    int fd; /* for shutting it down; -1: none (fuzzer) */
    bool is_unix;
    bool mapped;
    int pidfd, pid;         /* of a Unix socket's peer; -1, 0 */
    int descriptors[2];     /* SESSION_DESCRIPTORS */
    bool descriptors_owned; /* closed when they have been sent */
    unsigned descriptor_count;
    struct memoryd_staging *staging;

    /* guarded by the lock of the table of groups */
    struct memoryd_nic_queue *queue; /* NULL: none. Set and cleared by its own thread alone */
    struct memoryd_group *group;
    struct memoryd_session *group_next, *group_previous;

    char peer[NET_TEXT_MAX]; /* address */
    char name[WIRE_NAME_MAX + 1];
    char why[160];
};

/* Puts the greeting into the output. false: no memory. The session owns its pidfd, which is set before. */
bool memoryd_session_begin(struct memoryd_session *session, struct memoryd *daemon,
                           struct memoryd_counts *counts, int fd, const char *peer);
enum session_result memoryd_session_run(struct memoryd_session *session);
/* The descriptors have been sent. */
void memoryd_session_descriptors_sent(struct memoryd_session *session);
/* Puts the greatest notice into the output if this is a compute node's control connection, and has not been
 * told it, and takes its output. False: no memory. */
bool memoryd_session_notice(struct memoryd_session *session);
/* Puts the answers to calls that waited for the disk, or for a walk, into the output, as far as they are
 * known and no reply to a list has begun. False: no memory. */
bool memoryd_session_answer(struct memoryd_session *session);
/* The connection is gone, or its end is certain: destroys its queue pair, then leaves its group. May be
 * called twice. */
void memoryd_session_leave(struct memoryd_session *session, enum memoryd_leaving how, const char *why);
/* Frees everything that the session owns. */
void memoryd_session_finish(struct memoryd_session *session);
static inline bool memoryd_session_paused(const struct memoryd_session *session)
{
    return session->out.ready - session->out.start + session->unsent > SESSION_OUTPUT_PAUSE;
}

/* ---- between the parts of a session ---- */

enum session_result memoryd_session_broken(struct memoryd_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* hello.c: a HELLO of `length` bytes. */
enum session_result memoryd_session_hello(struct memoryd_session *session, const struct wire_header *head,
                                          const void *bytes);
/* call.c: a CALL of `length` bytes. */
enum session_result memoryd_session_call(struct memoryd_session *session, const struct wire_header *head,
                                         const void *bytes);
/* list.c: a LIST's header has been taken; and every step of it. SESSION_MORE with list.left == 0: it has been
 * answered. */
enum session_result memoryd_session_list_begin(struct memoryd_session *session,
                                               const struct wire_header *head);
enum session_result memoryd_session_list_step(struct memoryd_session *session);
/* attach.c: an ATTACH of `length` bytes; and the end of its queue pair, false: it could not be destroyed. */
enum session_result memoryd_session_attach(struct memoryd_session *session, const struct wire_header *head,
                                           const void *bytes);
bool memoryd_session_detach(struct memoryd_session *session);
/* A whole message into the output. false: no memory. */
bool memoryd_session_send(struct memoryd_session *session, enum wire_kind kind, int32_t status, uint64_t id,
                          const void *bytes, size_t length);

#endif
