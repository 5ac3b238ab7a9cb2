/*
 * net.h - sockets as the fabric and the servers need them: addresses, listening, connecting, and non-blocking
 * streams of bytes with TLS where it is wanted (OpenSSL).
 *
 * Called by src/fabric/ (the remote backend), src/memoryd/, src/server/ and the command line. It has no
 * thread of its own. An object belongs to the thread that uses it; a struct net_tls may be shared by all.
 * Only net_connect, net_wait, the passing of descriptors and name look-ups wait. Errors carry a message that
 * names the address, the peer or the file.
 */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

/* ---- addresses ---- */

#define NET_HOST_MAX 255u
#define NET_PATH_MAX 107u
#define NET_TEXT_MAX 320u

enum net_kind { NET_TCP, NET_UNIX };
struct net_address {
    enum net_kind kind;
    char host[NET_HOST_MAX + 1]; /* TCP: a name or a literal; "*" or "" when listening: every interface */
    uint16_t port;               /* TCP; 0 when listening: the system chooses */
    bool rdma;                   /* TCP: "rdma://": lists go through NICs, beside the connection */
    char path[NET_PATH_MAX + 1]; /* UNIX */
};
/* "unix:/run/banyan.sock", "tcp://host:port", "rdma://host:port", "host:port", "host", "[::1]:7100".
 * default_port 0: the text must have a port. BANYAN_EINVAL names the text. */
int net_address_parse(struct net_address *address, const char *text, uint16_t default_port,
                      struct error *error);
/* Writes it as net_address_parse takes it. Returns text. */
char *net_address_format(const struct net_address *address, char text[NET_TEXT_MAX]);
/* Unix sockets, 127.0.0.0/8, ::1 and "localhost": reachable from this machine alone. */
bool net_address_loopback(const struct net_address *address);

struct sockaddr_storage;
/* Where net_listen would listen: the first address that the name has, IPv4 before IPv6. TCP alone.
 * BANYAN_ENET, BANYAN_ENOMEM. */
int net_address_resolve(const struct net_address *address, struct sockaddr_storage *name,
                        struct error *error);

/* ---- sockets: all non-blocking and close-on-exec, TCP_NODELAY and keep-alive set ---- */

/* TCP: SO_REUSEADDR. UNIX: a socket file without a listener is replaced, one in use is BANYAN_EBUSY;
 * the file gets `mode` (0: 0700). With port 0 address->port is set to the one that was chosen. A name stands
 * for its IPv4 address if it has one; every interface is IPv6's and IPv4's. BANYAN_EBUSY, BANYAN_EINVAL (no
 * permission, no such folder), BANYAN_ENET, BANYAN_ENOMEM. */
int net_listen(struct net_address *address, unsigned mode, int *fd, struct error *error);
/* Takes one waiting connection; *fd -1 if there is none. `peer` (may be NULL) gets its address as text. */
int net_accept(int listener, int *fd, char peer[NET_TEXT_MAX], struct error *error);
/* Waits at most timeout_ns. Every address that the name has is tried. BANYAN_ENET, BANYAN_ETIMEOUT. */
int net_connect(const struct net_address *address, uint64_t timeout_ns, int *fd, struct error *error);
/* Begins to connect, and waits for nothing. The host must be a literal. Whether it succeeds shows when the
 * descriptor is used; until then it is not ready. BANYAN_EINVAL (a name), BANYAN_ENET, BANYAN_ENOMEM. */
int net_connect_begin(const struct net_address *address, int *fd, struct error *error);
/* The address of this machine that the TCP socket is bound to, as a literal; "" for other sockets. */
void net_local_host(int fd, char host[NET_HOST_MAX + 1]);
/* The process at the other end of a Unix socket, as a pidfd of it (-1 where unknown), its pid and user id. */
int net_peer_process(int fd, int *pidfd, int *pid, uint32_t *uid, struct error *error);
/* Sends one byte with descriptors attached, and receives them; on blocking or non-blocking Unix sockets,
 * waiting at most timeout_ns. */
int net_send_descriptors(int fd, const int *descriptors, unsigned count, uint64_t timeout_ns,
                         struct error *error);
int net_receive_descriptors(int fd, int *descriptors, unsigned count, uint64_t timeout_ns,
                            struct error *error);

/* ---- TLS ---- */

struct net_tls;
struct net_tls_options {
    const char *certificate_file; /* PEM, with its chain; server: needed. client: for mutual TLS */
    const char *key_file;         /* PEM; NULL: in certificate_file */
    const char
        *authority_file; /* PEM: the authority that signs the other side's certificates. client: needed */
    bool require_peer;   /* server: refuse clients without a certificate signed by the authority */
};
/* TLS 1.2 or later. The message names the file at fault (missing, unreadable, not PEM, key does not match).
 */
int net_tls_create(struct net_tls **tls, bool server, const struct net_tls_options *options,
                   struct error *error);
/* Its streams must be gone. */
void net_tls_destroy(struct net_tls *tls);

/* ---- streams ---- */

enum net_status {
    NET_OK,     /* some bytes were moved */
    NET_AGAIN,  /* nothing now: wait for net_stream_wants() */
    NET_END,    /* the peer has closed, in order */
    NET_FAILED, /* net_stream_error() says why */
};
struct net_stream;
/* Takes the socket over, also when it fails (NULL: no memory). tls NULL: plain. `host` (client with TLS, may
 * be NULL) must match the server's certificate; NULL: the chain alone is checked. The handshake runs within
 * the first reads and writes. */
struct net_stream *net_stream_create(int fd, struct net_tls *tls, bool server, const char *host);
void net_stream_destroy(struct net_stream *stream); /* closes the socket */
int net_stream_fd(const struct net_stream *stream);
enum net_status net_stream_read(struct net_stream *stream, void *buffer, size_t capacity, size_t *length);
/* May take fewer bytes than were given. After NET_AGAIN the same bytes must be offered again, at the same or
 * another address. */
enum net_status net_stream_write(struct net_stream *stream, const void *data, size_t length, size_t *written);
/* EPOLLIN and/or EPOLLOUT: what to wait for before a call that said NET_AGAIN is worth repeating; `write`
 * says whether the caller has something to write. Asked after the last call of either kind, since a read that
 * ends the handshake of TLS changes what a write waits for. */
uint32_t net_stream_wants(const struct net_stream *stream, bool write);
/* With TLS: decrypted bytes wait within the stream, and the descriptor may not become readable for them. */
bool net_stream_pending(const struct net_stream *stream);
/* Waits until the descriptor is ready for `events` (EPOLLIN, EPOLLOUT): for plain threads without a worker.
 * BANYAN_OK or BANYAN_ETIMEOUT. */
int net_wait(int fd, uint32_t events, uint64_t timeout_ns);
const char *net_stream_error(const struct net_stream *stream);
/* The subject's common name of the peer's verified certificate; "" if there is none. */
const char *net_stream_subject(const struct net_stream *stream);

/* ---- proofs of a shared secret ---- */

#define NET_NONCE_BYTES 32u
#define NET_PROOF_BYTES 32u
/* From the system's generator. */
void net_random(void *bytes, size_t length);
/* HMAC-SHA256 of label, first and second nonce. */
void net_proof(const void *secret, size_t secret_length, const char *label,
               const uint8_t first[NET_NONCE_BYTES], const uint8_t second[NET_NONCE_BYTES],
               uint8_t proof[NET_PROOF_BYTES]);
/* In constant time. */
bool net_equal(const void *a, const void *b, size_t length);
/* Reads a secret from a file: its first line, at least 8 and at most 1,024 bytes. Refuses a file that anyone
 * but its owner may read or write. `secret` gets a terminating 0. */
#define NET_SECRET_MAX 1024u
int net_secret_read(const char *path, char secret[NET_SECRET_MAX + 1], size_t *length, struct error *error);

#endif
