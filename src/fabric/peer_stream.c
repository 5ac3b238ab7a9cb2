/* peer_stream.c - see peer_stream.h. */
#include "fabric/peer_stream.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct peer_hello) == 40 + NET_NONCE_BYTES + NET_PROOF_BYTES,
               "peer_hello has no holes");
_Static_assert(FABRIC_PEER_BYTES_MAX <= WIRE_SMALL_MAX, "a request is one message");

#define ROOM_STRANGER 512u /* no longer than what a stranger may send */
#define ROOM_OPEN     16384u
#define OUT_FIRST     4096u
#define OUT_KEEP      (1u << 20) /* a larger buffer is freed when it is empty */
#define REFUSAL_MAX   160u

static enum peer_event over(struct peer_stream *stream, enum peer_event event, int code, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));
static enum peer_event over(struct peer_stream *stream, enum peer_event event, int code, const char *format,
                            ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(stream->why, sizeof stream->why, format, arguments);
    va_end(arguments);
    stream->refusal = code;
    stream->stage = PEER_OVER;
    return event;
}

/* ---- output ---- */

static bool out_reserve(struct peer_stream *stream, size_t length)
{
    size_t have = peer_stream_unsent(stream);
    if (stream->out_capacity - stream->out_end >= length)
        return true;
    if (stream->out_capacity - have < length || have > stream->out_capacity / 2) {
        size_t capacity = stream->out_capacity != 0 ? stream->out_capacity * 2 : OUT_FIRST;
        while (capacity - have < length)
            capacity *= 2;
        uint8_t *grown = malloc(capacity);
        if (grown == NULL)
            return false;
        if (have > 0)
            memcpy(grown, stream->out + stream->out_begin, have);
        free(stream->out);
        stream->out = grown;
        stream->out_capacity = capacity;
    } else {
        memmove(stream->out, stream->out + stream->out_begin, have);
    }
    stream->out_begin = 0;
    stream->out_end = have;
    return true;
}

static bool put(struct peer_stream *stream, enum peer_kind kind, uint64_t id, int status, const void *bytes,
                size_t length)
{
    struct wire_header head = {.length = (uint32_t)length, .kind = (uint8_t)kind, .status = status, .id = id};
    if (!out_reserve(stream, sizeof head + length))
        return false;
    memcpy(stream->out + stream->out_end, &head, sizeof head);
    if (length > 0)
        memcpy(stream->out + stream->out_end + sizeof head, bytes, length);
    stream->out_end += sizeof head + length;
    stream->out_put += sizeof head + length;
    return true;
}

bool peer_stream_send(struct peer_stream *stream, enum peer_kind kind, uint64_t id, int status,
                      const void *bytes, size_t length)
{
    assert(stream->stage == PEER_OPEN && length <= FABRIC_PEER_BYTES_MAX);
    assert(stream->called ? kind == PEER_REPLY || kind == PEER_UNSERVED : kind == PEER_REQUEST);
    return put(stream, kind, id, status, bytes, length);
}

void peer_stream_sent(struct peer_stream *stream, size_t length)
{
    assert(length <= peer_stream_unsent(stream));
    stream->out_begin += length;
    if (peer_stream_unsent(stream) > 0)
        return;
    stream->out_begin = stream->out_end = 0;
    if (stream->out_capacity > OUT_KEEP) {
        free(stream->out);
        stream->out = NULL;
        stream->out_capacity = 0;
    }
}

/* ---- the opening ---- */

static void prove(const struct peer_self *self, const char *label, const uint8_t *first,
                  const uint8_t *second, uint8_t proof[NET_PROOF_BYTES])
{
    memset(proof, 0, NET_PROOF_BYTES);
    if (self->secret != NULL)
        net_proof(self->secret, self->secret_length, label, first, second, proof);
}

void peer_stream_begin(struct peer_stream *stream, const struct peer_self *self, bool called,
                       struct fabric_process peer)
{
    *stream = (struct peer_stream){.self = self,
                                   .called = called,
                                   .stage = called ? PEER_HELLO_DUE : PEER_GREETING_DUE,
                                   .in_need = sizeof(struct wire_header)};
    net_random(stream->nonce, sizeof stream->nonce);
    if (!called) {
        stream->peer = peer;
        return;
    }
    struct wire_greeting greeting = {
        .magic = PEER_MAGIC, .version = WIRE_VERSION, .secret_wanted = self->secret != NULL};
    memcpy(greeting.nonce, stream->nonce, sizeof greeting.nonce);
    if (!put(stream, PEER_GREETING, 0, 0, &greeting, sizeof greeting))
        over(stream, PEER_BROKEN, BANYAN_ENOMEM, "no memory for a greeting");
}

void peer_stream_end(struct peer_stream *stream)
{
    free(stream->in);
    free(stream->out);
    stream->in = stream->out = NULL;
}

static enum peer_event take_greeting(struct peer_stream *stream, const uint8_t *bytes)
{
    const struct peer_self *self = stream->self;
    struct wire_greeting greeting;
    memcpy(&greeting, bytes, sizeof greeting);
    if (greeting.magic != PEER_MAGIC)
        return over(stream, PEER_BROKEN, BANYAN_EVERSION, "what answers there is no compute node of Banyan");
    if (greeting.version != WIRE_VERSION)
        return over(stream, PEER_BROKEN, BANYAN_EVERSION,
                    "it speaks version %u of the protocol, this program version %u", greeting.version,
                    WIRE_VERSION);
    if (greeting.secret_wanted != 0 && self->secret == NULL)
        return over(stream, PEER_BROKEN, BANYAN_EINVAL, "it asks for a secret, and none was given");
    struct peer_hello hello = {.magic = PEER_MAGIC,
                               .version = WIRE_VERSION,
                               .cluster_id = self->cluster_id,
                               .from_instance = self->process.instance,
                               .from_id = self->process.compute_id,
                               .to_instance = stream->peer.instance,
                               .to_id = stream->peer.compute_id};
    memcpy(hello.nonce, stream->nonce, sizeof hello.nonce);
    prove(self, "banyan peer client", greeting.nonce, stream->nonce, hello.proof);
    prove(self, "banyan peer server", stream->nonce, greeting.nonce, stream->expected);
    if (!put(stream, PEER_HELLO, 0, 0, &hello, sizeof hello))
        return over(stream, PEER_BROKEN, BANYAN_ENOMEM, "no memory for a hello");
    stream->stage = PEER_WELCOME_DUE;
    return PEER_MORE;
}

static enum peer_event refuse(struct peer_stream *stream, int code, const char *why)
{
    bool told = put(stream, PEER_REFUSE, 0, code, why, strlen(why));
    return over(stream, told ? PEER_REFUSED : PEER_BROKEN, code, "%s", why);
}

static enum peer_event take_hello(struct peer_stream *stream, const uint8_t *bytes)
{
    const struct peer_self *self = stream->self;
    struct peer_hello hello;
    struct peer_welcome welcome;
    uint8_t proof[NET_PROOF_BYTES];
    memcpy(&hello, bytes, sizeof hello);
    if (hello.magic != PEER_MAGIC || hello.version != WIRE_VERSION)
        return refuse(stream, BANYAN_EVERSION, "the other side speaks another version of the protocol");
    prove(self, "banyan peer client", stream->nonce, hello.nonce, proof);
    if (self->secret != NULL && !net_equal(proof, hello.proof, sizeof proof))
        return refuse(stream, BANYAN_EINVAL, "the shared secret is missing or not the same");
    const struct fabric_process wanted = {.compute_id = hello.to_id, .instance = hello.to_instance};
    if (hello.cluster_id != self->cluster_id || !fabric_process_equal(wanted, self->process))
        return refuse(stream, BANYAN_EFENCED, "this is another process than the one that was called");
    stream->peer = (struct fabric_process){.compute_id = hello.from_id, .instance = hello.from_instance};
    prove(self, "banyan peer server", hello.nonce, stream->nonce, welcome.proof);
    if (!put(stream, PEER_WELCOME, 0, 0, &welcome, sizeof welcome))
        return over(stream, PEER_BROKEN, BANYAN_ENOMEM, "no memory for a welcome");
    stream->stage = PEER_OPEN;
    return PEER_OPENED;
}

static enum peer_event take_welcome(struct peer_stream *stream, const struct wire_header *head,
                                    const uint8_t *bytes)
{
    struct peer_welcome welcome;
    char text[REFUSAL_MAX + 1] = "";
    if (head->kind == PEER_REFUSE) {
        memcpy(text, bytes, head->length);
        for (char *at = text; *at != 0; at++)
            if ((unsigned char)*at < ' ' || *at == 127)
                *at = '?';
        return over(stream, PEER_REFUSED, head->status ? head->status : BANYAN_ENET, "it refused: %s", text);
    }
    memcpy(&welcome, bytes, sizeof welcome);
    if (stream->self->secret != NULL && !net_equal(stream->expected, welcome.proof, sizeof welcome.proof))
        return over(stream, PEER_BROKEN, BANYAN_EINVAL, "it does not prove that it knows the secret");
    stream->stage = PEER_OPEN;
    return PEER_OPENED;
}

/* ---- input ---- */

uint8_t *peer_stream_room(struct peer_stream *stream, size_t *capacity)
{
    size_t held = stream->in_end - stream->in_begin;
    size_t least = stream->stage == PEER_OPEN ? ROOM_OPEN : ROOM_STRANGER;
    size_t whole = stream->in_need > least ? stream->in_need : least;
    if (held == 0)
        stream->in_begin = stream->in_end = 0;
    if (stream->in_capacity - stream->in_begin < stream->in_need ||
        stream->in_capacity - stream->in_end < least / 4) {
        if (stream->in_begin > 0)
            memmove(stream->in, stream->in + stream->in_begin, held);
        stream->in_begin = 0;
        stream->in_end = held;
        /* The next message, or more than one, has room; what is held is less than the next message. */
        size_t wanted = whole > held + least / 4 ? whole : held + least / 4;
        if (stream->in_capacity < wanted) {
            uint8_t *grown = realloc(stream->in, wanted);
            if (grown == NULL)
                return NULL;
            stream->in = grown;
            stream->in_capacity = wanted;
        }
    }
    *capacity = stream->in_capacity - stream->in_end;
    return stream->in + stream->in_end;
}

void peer_stream_received(struct peer_stream *stream, size_t length)
{
    assert(length <= stream->in_capacity - stream->in_end);
    stream->in_end += length;
}

/* Whether the other side may send such a message now. */
static bool possible(const struct peer_stream *stream, const struct wire_header *head)
{
    bool judged = head->kind == PEER_REPLY || head->kind == PEER_REFUSE;
    if (head->status > 0 || head->status < (judged ? ERROR_CODE_LOWEST : 0) || head->count != 0)
        return false;
    switch (stream->stage) {
    case PEER_GREETING_DUE:
        return head->kind == PEER_GREETING && head->length == sizeof(struct wire_greeting);
    case PEER_HELLO_DUE:
        return head->kind == PEER_HELLO && head->length == sizeof(struct peer_hello);
    case PEER_WELCOME_DUE:
        return head->kind == PEER_REFUSE
                   ? head->length <= REFUSAL_MAX
                   : head->kind == PEER_WELCOME && head->length == sizeof(struct peer_welcome);
    case PEER_OPEN:
        if (stream->called)
            return head->kind == PEER_REQUEST && head->length - 1u < FABRIC_PEER_BYTES_MAX;
        return head->kind == PEER_UNSERVED
                   ? head->length == 0
                   : head->kind == PEER_REPLY && head->length <= FABRIC_PEER_BYTES_MAX;
    default:
        return false;
    }
}

enum peer_event peer_stream_next(struct peer_stream *stream, struct peer_message *message)
{
    for (;;) {
        size_t held = stream->in_end - stream->in_begin;
        struct wire_header head;
        if (stream->stage == PEER_OVER)
            return PEER_BROKEN;
        stream->in_need = sizeof head;
        if (held < sizeof head)
            return PEER_MORE;
        memcpy(&head, stream->in + stream->in_begin, sizeof head);
        if (!possible(stream, &head))
            return over(stream, PEER_BROKEN, BANYAN_ENET, "message kind %u of %u bytes where none is due",
                        (unsigned)head.kind, head.length);
        stream->in_need = sizeof head + head.length;
        if (held < stream->in_need)
            return PEER_MORE;
        const uint8_t *bytes = stream->in + stream->in_begin + sizeof head;
        stream->in_begin += stream->in_need;
        stream->in_need = sizeof head;
        enum peer_event event = PEER_MESSAGE;
        if (stream->stage == PEER_GREETING_DUE)
            event = take_greeting(stream, bytes);
        else if (stream->stage == PEER_HELLO_DUE)
            event = take_hello(stream, bytes);
        else if (stream->stage == PEER_WELCOME_DUE)
            event = take_welcome(stream, &head, bytes);
        else
            *message = (struct peer_message){.kind = head.kind,
                                             .status = head.status,
                                             .id = head.id,
                                             .bytes = bytes,
                                             .length = head.length};
        if (event != PEER_MORE)
            return event;
    }
}
