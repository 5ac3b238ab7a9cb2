/*
 * remote_dial.c - opening one connection to a memory node: connect, greeting, hello, welcome, and the
 * descriptors that follow it where the pool is mapped. Both sides prove that they know the secret, if there
 * is one; see wire.h.
 *
 * Called where a fabric or an endpoint is opened and by the reconnect's thread. Waits, at most as long as it
 * is told. Whatever the other end says is validated before it is used. Every message names the memory node.
 */
#include "fabric/remote_dial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/task.h"

#define GOODBYE_NS (100 * REMOTE_MS)

void remote_identity_set(struct remote_identity *identity, const struct fabric_remote_options *options)
{
    char host[64] = "";
    *identity = (struct remote_identity){
        .tls = options->tls,
        .secret = options->secret,
        .secret_length = options->secret != NULL ? options->secret_length : 0,
        .lease_ms = options->lease_ms != 0 ? options->lease_ms : 2000,
        .timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : 5000,
        .read_lease_ms = options->read_lease_ms != 0 ? options->read_lease_ms : 50,
        .map = !options->copy,
    };
    gethostname(host, sizeof host - 1);
    if (options->name != NULL)
        snprintf(identity->name, sizeof identity->name, "%s", options->name);
    else
        snprintf(identity->name, sizeof identity->name, "%.48s:%ld", host, (long)getpid());
    net_random(&identity->instance, sizeof identity->instance);
    if (identity->instance == 0)
        identity->instance = 1;
}

/* ---- bytes ---- */

/* After NET_AGAIN, NET_END or NET_FAILED. BANYAN_OK: try again. */
static int stream_wait(struct net_stream *stream, enum net_status status, bool write, uint64_t deadline,
                       struct error *error)
{
    if (status == NET_END)
        return error_set(error, BANYAN_ENET, "it closed the connection");
    if (status == NET_FAILED)
        return error_set(error, BANYAN_ENET, "%s", net_stream_error(stream));
    uint64_t now = task_now();
    if (now >= deadline || net_wait(net_stream_fd(stream), net_stream_wants(stream, write), deadline - now))
        return error_set(error, BANYAN_ETIMEOUT, "it does not answer in time");
    return BANYAN_OK;
}

int remote_send(struct net_stream *stream, const void *data, size_t length, uint64_t deadline,
                struct error *error)
{
    int status = BANYAN_OK;
    for (size_t at = 0; at < length && !status;) {
        size_t written = 0;
        enum net_status result = net_stream_write(stream, (const uint8_t *)data + at, length - at, &written);
        if (result == NET_OK)
            at += written;
        else
            status = stream_wait(stream, result, true, deadline, error);
    }
    return status;
}

int remote_receive(struct net_stream *stream, void *data, size_t length, uint64_t deadline,
                   struct error *error)
{
    int status = BANYAN_OK;
    for (size_t at = 0; at < length && !status;) {
        size_t got = 0;
        enum net_status result = net_stream_read(stream, (uint8_t *)data + at, length - at, &got);
        if (result == NET_OK)
            at += got;
        else
            status = stream_wait(stream, result, false, deadline, error);
    }
    return status;
}

/* ---- the handshake ---- */

static int refused(const struct wire_header *header, struct net_stream *stream, uint64_t deadline,
                   struct error *error)
{
    struct {
        int32_t code;
        char text[200];
    } refusal = {0};
    uint32_t length = header->length < sizeof refusal - 1 ? header->length : (uint32_t)sizeof refusal - 1;
    if (length < sizeof refusal.code)
        return error_set(error, BANYAN_ENET, "it refused, without a reason");
    int status = remote_receive(stream, &refusal, length, deadline, error);
    if (status)
        return status;
    for (char *at = refusal.text; *at != 0; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
    int code = refusal.code < 0 && refusal.code >= ERROR_CODE_LOWEST ? refusal.code : BANYAN_ENET;
    return error_set(error, code, "%s", refusal.text[0] != 0 ? refusal.text : error_name(code));
}

static int expect(struct net_stream *stream, enum wire_kind kind, void *body, uint32_t length,
                  uint64_t deadline, struct error *error)
{
    struct wire_header header;
    int status = remote_receive(stream, &header, sizeof header, deadline, error);
    if (status)
        return status;
    if (wire_header_valid(&header) && header.kind == WIRE_REFUSE)
        return refused(&header, stream, deadline, error);
    if (!wire_header_valid(&header) || header.kind != kind || header.length != length)
        return error_set(error, BANYAN_EVERSION,
                         "what answers there is not a Banyan memory node, or one of another version");
    return remote_receive(stream, body, length, deadline, error);
}

static int greeting_validate(const struct remote_identity *identity, const struct wire_greeting *greeting,
                             struct error *error)
{
    if (greeting->magic != WIRE_MAGIC)
        return error_set(error, BANYAN_EVERSION, "what answers there is not a Banyan memory node");
    if (greeting->version != WIRE_VERSION)
        return error_set(error, BANYAN_EVERSION,
                         "it speaks version %u of the protocol, this program version %u: install the same "
                         "version of Banyan at both ends",
                         greeting->version, WIRE_VERSION);
    if (greeting->secret_wanted != 0 && identity->secret == NULL)
        return error_set(error, BANYAN_EINVAL, "it asks for a secret, and none was given");
    return BANYAN_OK;
}

static void fill_hello(struct wire_hello *hello, const struct remote_identity *identity,
                       const struct remote_wish *wish, const struct net_address *address,
                       const uint8_t *nonce)
{
    *hello = (struct wire_hello){
        .magic = WIRE_MAGIC,
        .version = WIRE_VERSION,
        .role = (uint32_t)wish->role,
        .map = identity->map && address->kind == NET_UNIX &&
               (wish->role == WIRE_CONTROL || wish->role == WIRE_DATA),
        .nic = address->rdma && (wish->role == WIRE_CONTROL || wish->role == WIRE_DATA),
        .lease_ms = identity->lease_ms,
        .compute_id = wish->compute_id,
        .instance = identity->instance,
        .group_key = wish->group_key,
        .read_lease_ms = identity->read_lease_ms,
        .again = wish->again,
    };
    memcpy(hello->name, identity->name, sizeof hello->name);
    if (wish->role == WIRE_CONTROL)
        memcpy(hello->peer, identity->peer, sizeof hello->peer);
    net_random(hello->nonce, sizeof hello->nonce);
    if (identity->secret != NULL)
        net_proof(identity->secret, identity->secret_length, "banyan client", nonce, hello->nonce,
                  hello->proof);
}

static int shake_hands(const struct remote_identity *identity, const struct net_address *address,
                       const struct remote_wish *wish, struct remote_dialed *dialed, bool *introduced,
                       uint64_t deadline, struct error *error)
{
    struct wire_greeting greeting;
    struct {
        struct wire_header header;
        struct wire_hello hello;
    } message = {.header = {.length = sizeof(struct wire_hello), .kind = WIRE_HELLO}};
    int status = expect(dialed->stream, WIRE_GREETING, &greeting, sizeof greeting, deadline, error);
    if (!status)
        status = greeting_validate(identity, &greeting, error);
    if (status)
        return status;
    fill_hello(&message.hello, identity, wish, address, greeting.nonce);
    *introduced = true;
    status = remote_send(dialed->stream, &message, sizeof message, deadline, error);
    if (!status)
        status =
            expect(dialed->stream, WIRE_WELCOME, &dialed->welcome, sizeof dialed->welcome, deadline, error);
    if (status || identity->secret == NULL)
        return status;
    uint8_t proof[NET_PROOF_BYTES];
    net_proof(identity->secret, identity->secret_length, "banyan server", message.hello.nonce, greeting.nonce,
              proof);
    if (!net_equal(proof, dialed->welcome.proof, sizeof proof))
        return error_set(error, BANYAN_EINVAL, "it does not prove that it knows the secret");
    return BANYAN_OK;
}

static int take_descriptors(const struct remote_wish *wish, struct remote_dialed *dialed, uint64_t deadline,
                            struct error *error)
{
    uint64_t now = task_now();
    if (dialed->welcome.mapped == 0 || dialed->welcome.cluster_id == 0)
        return BANYAN_OK;
    return net_receive_descriptors(net_stream_fd(dialed->stream), dialed->descriptors,
                                   wish->role == WIRE_CONTROL ? 2 : 1, now < deadline ? deadline - now : 0,
                                   error);
}

int remote_dial(const struct remote_identity *identity, const struct net_address *address,
                const struct remote_wish *wish, uint64_t timeout_ns, struct remote_dialed *dialed,
                struct error *error)
{
    char text[NET_TEXT_MAX];
    struct error inner = {0};
    uint64_t deadline = task_now() + timeout_ns;
    int fd = -1;
    bool introduced = false;
    *dialed = (struct remote_dialed){.descriptors = {-1, -1}};
    int status = net_connect(address, timeout_ns, &fd, &inner);
    if (status)
        return error_set(error, status, "memory node %.100s: %s", net_address_format(address, text),
                         inner.text);
    bool tcp = address->kind == NET_TCP;
    dialed->stream = net_stream_create(fd, tcp ? identity->tls : NULL, false, tcp ? address->host : NULL);
    if (dialed->stream == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a connection");
    status = shake_hands(identity, address, wish, dialed, &introduced, deadline, &inner);
    if (!status)
        status = take_descriptors(wish, dialed, deadline, &inner);
    if (!status)
        return BANYAN_OK;
    if (introduced) { /* it may have let us in: closed without a goodbye, it would fence the whole compute
                         node */
        remote_hang_up(dialed->stream);
        dialed->stream = NULL;
    }
    remote_dialed_drop(dialed);
    return error_set(error, status, "memory node %.100s: %s", net_address_format(address, text), inner.text);
}

void remote_dialed_drop(struct remote_dialed *dialed)
{
    net_stream_destroy(dialed->stream);
    dialed->stream = NULL;
    for (unsigned i = 0; i < 2; i++) {
        if (dialed->descriptors[i] >= 0)
            close(dialed->descriptors[i]);
        dialed->descriptors[i] = -1;
    }
}

int remote_converse(struct net_stream *stream, enum wire_kind kind, const void *request, size_t length,
                    void *reply, size_t capacity, size_t *reply_length, uint64_t deadline,
                    struct error *error)
{
    struct wire_header header = {.length = (uint32_t)length, .kind = (uint8_t)kind, .id = 1};
    *reply_length = 0;
    int status = remote_send(stream, &header, sizeof header, deadline, error);
    if (!status)
        status = remote_send(stream, request, length, deadline, error);
    if (!status)
        status = remote_receive(stream, &header, sizeof header, deadline, error);
    if (status)
        return status;
    if (!wire_header_valid(&header) || header.kind != WIRE_RESULT)
        return error_set(error, BANYAN_EVERSION, "it answers a request with something that is no result");
    if (header.length > capacity)
        return error_set(error, BANYAN_EINVAL, "its answer of %u bytes is longer than expected",
                         header.length);
    status = remote_receive(stream, reply, header.length, deadline, error);
    if (status)
        return status;
    *reply_length = header.length;
    return header.status;
}

void remote_hang_up(struct net_stream *stream)
{
    struct wire_header goodbye = {.kind = WIRE_GOODBYE};
    if (stream == NULL)
        return;
    remote_send(stream, &goodbye, sizeof goodbye, task_now() + GOODBYE_NS, NULL);
    net_stream_destroy(stream);
}

int remote_empty_error(const struct net_address *address, struct error *error)
{
    char text[NET_TEXT_MAX];
    return error_set(error, BANYAN_EINVAL,
                     "memory node %.80s is empty: it was never formatted, or was restarted and lost its "
                     "contents; run `banyan compute --format` once to make a new, empty cluster",
                     net_address_format(address, text));
}
