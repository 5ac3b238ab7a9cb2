/*
 * peer_stream.h - what two compute nodes say to each other over a connection of their own (peers.h), without
 * its socket: bytes come in, messages come out, and the other way round.
 *
 * Used by fabric/remote_peer*.c, and by the fuzzer, on the thread that owns the stream. Nothing here waits. A
 * peer's bytes can bring about PEER_BROKEN at worst; they never make the input grow beyond one message, nor
 * the output at all.
 *
 * OPENING. As with memory nodes (wire.h): the side that was called speaks first, with a nonce; the caller
 * answers with its own nonce, proof of the shared secret, and who it is and whom it wants; the other side
 * with its own proof, or with a refusal. Before that no message but the one that is due is taken.
 *
 * REQUESTS go one way only, from the side that called. Each has a number of the caller's, which its REPLY
 * bears too, and replies come in any order. UNSERVED means: no task has seen the request, and none will.
 *
 * Little-endian throughout; both ends are little-endian machines, so structs travel as they lie in memory.
 */
#ifndef FABRIC_PEER_STREAM_H
#define FABRIC_PEER_STREAM_H

#include "fabric/peers.h"
#include "fabric/wire.h"

#define PEER_MAGIC UINT32_C(0x52505942) /* "BYPR" */

/* In wire_header's `kind`. */
enum peer_kind {
    PEER_GREETING = 1, /* called: struct wire_greeting, with PEER_MAGIC */
    PEER_HELLO,        /* caller: struct peer_hello */
    PEER_WELCOME,      /* called: struct peer_welcome */
    PEER_REFUSE,       /* called: text; the status says why too */
    PEER_REQUEST,      /* caller: bytes */
    PEER_REPLY,        /* called: bytes; the status is the task's */
    PEER_UNSERVED,     /* called: nothing */
};
struct peer_hello {
    uint32_t magic, version;
    uint8_t nonce[NET_NONCE_BYTES];
    uint8_t proof[NET_PROOF_BYTES]; /* net_proof(secret, "banyan peer client", its nonce, ours) */
    uint64_t cluster_id;
    uint64_t from_instance, to_instance;
    uint16_t from_id, to_id;
    uint32_t reserved;
};
struct peer_welcome {
    uint8_t proof[NET_PROOF_BYTES]; /* net_proof(secret, "banyan peer server", the caller's nonce, ours) */
};

/* Who this process is to its peers. */
struct peer_self {
    struct fabric_process process;
    uint64_t cluster_id;
    const void *secret; /* NULL: none */
    size_t secret_length;
};

/* What is due next from the other side. */
enum peer_stage { PEER_GREETING_DUE, PEER_HELLO_DUE, PEER_WELCOME_DUE, PEER_OPEN, PEER_OVER };

struct peer_stream {
    const struct peer_self *self;
    bool called; /* this is the side that was called */
    enum peer_stage stage;
    struct fabric_process peer;        /* who the other side is, or (the caller, until it is open) must be */
    uint8_t nonce[NET_NONCE_BYTES];    /* ours */
    uint8_t expected[NET_PROOF_BYTES]; /* the caller: the other side's proof */
    uint8_t *in, *out;
    size_t in_begin, in_end, in_capacity;
    size_t in_need; /* bytes of the next message, as far as known */
    size_t out_begin, out_end, out_capacity;
    uint64_t out_put; /* bytes that were ever put into the output */
    int refusal;      /* PEER_REFUSED: why */
    char why[200];    /* PEER_BROKEN, PEER_REFUSED */
};

struct peer_message {
    uint8_t kind; /* REQUEST; REPLY or UNSERVED */
    int status;
    uint64_t id;
    const uint8_t *bytes; /* until the next call of peer_stream_room */
    size_t length;
};

enum peer_event {
    PEER_MORE,    /* more input is needed */
    PEER_OPENED,  /* the opening has ended well */
    PEER_MESSAGE, /* *message is set */
    PEER_REFUSED, /* either side refused: send what output there is, and close */
    PEER_BROKEN,  /* close at once */
};

/* `self` must stay. called: `peer` is not looked at. */
void peer_stream_begin(struct peer_stream *stream, const struct peer_self *self, bool called,
                       struct fabric_process peer);
void peer_stream_end(struct peer_stream *stream);

/* Where input may be put, and how much; what was put there is told by peer_stream_received. NULL: no memory.
 */
uint8_t *peer_stream_room(struct peer_stream *stream, size_t *capacity);
void peer_stream_received(struct peer_stream *stream, size_t length);
enum peer_event peer_stream_next(struct peer_stream *stream, struct peer_message *message);

/* Puts a message into the output. False: no memory. Only when it is open. */
bool peer_stream_send(struct peer_stream *stream, enum peer_kind kind, uint64_t id, int status,
                      const void *bytes, size_t length);
static inline size_t peer_stream_unsent(const struct peer_stream *stream)
{
    return stream->out_end - stream->out_begin;
}
/* `length` bytes from out + out_begin on are gone. */
void peer_stream_sent(struct peer_stream *stream, size_t length);

#endif
