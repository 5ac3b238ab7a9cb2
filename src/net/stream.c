/*
 * stream.c - a non-blocking stream of bytes over a socket, plain or with TLS; see net.h.
 *
 * Belongs to one thread. Nothing waits, nothing raises SIGPIPE. A call costs one system call when plain; with
 * TLS, a few. Once a stream has failed, it stays failed, with the first error.
 */
#include "tls_private.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define DRAIN_BYTES 4096u
#define DRAIN_TIMES 16

struct net_stream {
    int fd;
    SSL *ssl; /* NULL: plain */
    bool failed;
    bool established; /* the handshake is done */
    bool end_of_file; /* the socket has no more bytes */
    int system_error; /* the errno of the socket's last failure under TLS */
    uint32_t read_wants, write_wants;
    char *host;    /* that must match, for the message; NULL: none */
    char *subject; /* NULL: none */
    struct error error;
};

static enum net_status fail(struct net_stream *stream)
{
    assert(!stream->failed && stream->error.code); /* fails once, with its reason */
    stream->failed = true;
    return NET_FAILED;
}

static enum net_status fail_system(struct net_stream *stream, int number)
{
    error_set(&stream->error, BANYAN_ENET, "%s", strerror(number));
    return fail(stream);
}

/* ---- the socket under OpenSSL ---- */

static int bio_write(BIO *bio, const char *data, int length)
{
    struct net_stream *stream = BIO_get_data(bio);
    ssize_t sent;
    BIO_clear_retry_flags(bio);
    if (length <= 0)
        return 0;
    do
        sent = send(stream->fd, data, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno == EAGAIN)
        BIO_set_retry_write(bio);
    else if (sent < 0)
        stream->system_error = errno;
    return (int)sent;
}

static int bio_read(BIO *bio, char *buffer, int capacity)
{
    struct net_stream *stream = BIO_get_data(bio);
    ssize_t got;
    BIO_clear_retry_flags(bio);
    if (capacity <= 0)
        return 0;
    do
        got = recv(stream->fd, buffer, (size_t)capacity, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    else if (got < 0)
        stream->system_error = errno;
    else if (got == 0)
        stream->end_of_file = true;
    return (int)got;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    struct net_stream *stream = BIO_get_data(bio);
    (void)number, (void)pointer;
    if (command == BIO_CTRL_EOF)
        return stream->end_of_file;
    return command == BIO_CTRL_FLUSH; /* nothing is held back */
}

BIO_METHOD *net_stream_bio_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "stream");
    if (!method)
        return NULL;
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_ctrl(method, bio_control);
    return method;
}

/* ---- TLS ---- */

/* A client's: the certificate must be of this host, and a name (no literal) is sent to the server. */
static bool expect_host(SSL *ssl, const char *host)
{
    uint8_t literal[16];
    if (inet_pton(AF_INET, host, literal) == 1 || inet_pton(AF_INET6, host, literal) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static bool tls_begin(struct net_stream *stream, struct net_tls *tls, bool server, const char *host)
{
    stream->ssl = SSL_new(tls->context);
    BIO *bio = stream->ssl ? BIO_new(tls->method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    SSL_set_bio(stream->ssl, bio, bio); /* takes the one reference */
    if (server) {
        SSL_set_accept_state(stream->ssl);
        return true;
    }
    SSL_set_connect_state(stream->ssl);
    if (!host || !*host)
        return true;
    stream->host = strdup(host);
    return stream->host && expect_host(stream->ssl, host);
}

/* The common name in the verified certificate; a name that contains a 0 counts as none. */
static char *read_subject(SSL *ssl)
{
    X509 *certificate = SSL_get0_peer_certificate(ssl);
    if (!certificate || SSL_get_verify_result(ssl) != X509_V_OK ||
        SSL_get_verify_mode(ssl) == SSL_VERIFY_NONE)
        return NULL;
    X509_NAME *name = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
    if (at < 0)
        return NULL;
    unsigned char *text = NULL;
    int length = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
    char *subject = NULL;
    if (length > 0 && !memchr(text, 0, (size_t)length))
        subject = strndup((char *)text, (size_t)length);
    OPENSSL_free(text);
    return subject;
}

/* A call of either kind may end the handshake. What the other kind waited for was the handshake's, and may
 * never come now: a write that waited for the peer's flight can go on, though the read after it took that
 * flight. */
static void note_established(struct net_stream *stream)
{
    if (stream->established || !SSL_is_init_finished(stream->ssl))
        return;
    stream->established = true;
    stream->read_wants = EPOLLIN;
    stream->write_wants = EPOLLOUT;
    stream->subject = read_subject(stream->ssl);
}

static void explain_certificate(struct net_stream *stream)
{
    long result = SSL_get_verify_result(stream->ssl);
    if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH)
        error_set(&stream->error, BANYAN_ENET, "TLS: the peer's certificate is not that of \"%.120s\"",
                  stream->host ? stream->host : "");
    else
        error_set(&stream->error, BANYAN_ENET, "TLS: the peer's certificate is refused: %s",
                  X509_verify_cert_error_string(result));
}

static void explain_protocol(struct net_stream *stream)
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code);
    const char *text = ERR_reason_error_string(code);
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        explain_certificate(stream);
    else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        error_set(&stream->error, BANYAN_ENET, "TLS: the peer has sent no certificate, and one is required");
    else if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
        error_set(&stream->error, BANYAN_ENET, "TLS: the peer closed the connection %s",
                  stream->established ? "without saying so" : "during the handshake");
    else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)
        error_set(&stream->error, BANYAN_ENET, "TLS: the peer does not speak TLS (%s)", text);
    else if (reason > SSL_AD_REASON_OFFSET)
        error_set(&stream->error, BANYAN_ENET, "TLS: the peer refuses: %s", text ? text : "alert");
    else
        error_set(&stream->error, BANYAN_ENET, "TLS: %s", text ? text : "the peer breaks the protocol");
}

/* Why a call of OpenSSL has moved no bytes. */
static enum net_status tls_status(struct net_stream *stream, int result, uint32_t *wants)
{
    switch (SSL_get_error(stream->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        *wants = EPOLLIN;
        return NET_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        *wants = EPOLLOUT;
        return NET_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return NET_END;
    case SSL_ERROR_SYSCALL:
        if (stream->system_error)
            error_set(&stream->error, BANYAN_ENET, "%s", strerror(stream->system_error));
        else
            error_set(&stream->error, BANYAN_ENET, "TLS: the peer closed the connection without saying so");
        break;
    default:
        explain_protocol(stream);
    }
    ERR_clear_error();
    return fail(stream);
}

static enum net_status tls_read(struct net_stream *stream, void *buffer, size_t capacity, size_t *length)
{
    ERR_clear_error(); /* SSL_get_error would report errors that other calls left behind */
    stream->read_wants = EPOLLIN;
    int result = SSL_read_ex(stream->ssl, buffer, capacity, length);
    note_established(stream);
    return result == 1 ? NET_OK : tls_status(stream, result, &stream->read_wants);
}

static enum net_status tls_write(struct net_stream *stream, const void *data, size_t length, size_t *written)
{
    ERR_clear_error();
    stream->write_wants = EPOLLOUT;
    int result = SSL_write_ex(stream->ssl, data, length, written);
    note_established(stream);
    enum net_status status = result == 1 ? NET_OK : tls_status(stream, result, &stream->write_wants);
    /* The peer's goodbye says nothing about our bytes; the state of the socket does. */
    if (status == NET_END)
        return fail_system(stream, stream->system_error ? stream->system_error : EPIPE);
    return status;
}

/* Says goodbye. After a failed handshake the alert that tells the peer why is still under way: bytes left
 * unread would make the kernel reset the connection and drop it. */
static void tls_end(struct net_stream *stream)
{
    ERR_clear_error();
    if (stream->established && !stream->failed) {
        SSL_shutdown(stream->ssl);
    } else if (stream->failed) {
        char ignored[DRAIN_BYTES];
        shutdown(stream->fd, SHUT_WR);
        for (int i = 0; i < DRAIN_TIMES; i++)
            if (recv(stream->fd, ignored, sizeof ignored, MSG_DONTWAIT) <= 0)
                break;
    }
    ERR_clear_error();
}

/* ---- streams ---- */

struct net_stream *net_stream_create(int fd, struct net_tls *tls, bool server, const char *host)
{
    struct net_stream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        close(fd);
        return NULL;
    }
    stream->fd = fd;
    stream->read_wants = EPOLLIN;
    stream->write_wants = EPOLLOUT;
    if (tls && !tls_begin(stream, tls, server, host)) {
        ERR_clear_error();
        net_stream_destroy(stream);
        return NULL;
    }
    return stream;
}

void net_stream_destroy(struct net_stream *stream)
{
    if (!stream)
        return;
    if (stream->ssl) {
        tls_end(stream);
        SSL_free(stream->ssl);
    }
    close(stream->fd);
    free(stream->host);
    free(stream->subject);
    free(stream);
}

int net_stream_fd(const struct net_stream *stream)
{
    return stream->fd;
}

enum net_status net_stream_read(struct net_stream *stream, void *buffer, size_t capacity, size_t *length)
{
    *length = 0;
    if (stream->failed)
        return NET_FAILED;
    if (capacity == 0)
        return NET_OK;
    if (stream->ssl)
        return tls_read(stream, buffer, capacity, length);
    ssize_t got;
    do
        got = recv(stream->fd, buffer, capacity, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN ? NET_AGAIN : fail_system(stream, errno);
    *length = (size_t)got;
    return got ? NET_OK : NET_END;
}

enum net_status net_stream_write(struct net_stream *stream, const void *data, size_t length, size_t *written)
{
    *written = 0;
    if (stream->failed)
        return NET_FAILED;
    if (length == 0)
        return NET_OK;
    if (stream->ssl)
        return tls_write(stream, data, length, written);
    ssize_t sent;
    do
        sent = send(stream->fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return errno == EAGAIN ? NET_AGAIN : fail_system(stream, errno);
    *written = (size_t)sent;
    return NET_OK;
}

uint32_t net_stream_wants(const struct net_stream *stream, bool write)
{
    return stream->read_wants | (write ? stream->write_wants : 0);
}

bool net_stream_pending(const struct net_stream *stream)
{
    return stream->ssl && SSL_pending(stream->ssl) > 0;
}

const char *net_stream_error(const struct net_stream *stream)
{
    return stream->error.text;
}

const char *net_stream_subject(const struct net_stream *stream)
{
    return stream->subject ? stream->subject : "";
}
