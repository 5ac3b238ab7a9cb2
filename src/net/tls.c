/*
 * tls.c - what streams with TLS share: certificate, key and trusted authority, read from PEM files once.
 *
 * A struct net_tls is not changed after net_tls_create, so all threads may use it; it must outlive its
 * streams. A message names the file at fault. No session is ever resumed: nothing grows with the number of
 * peers.
 */
#include "tls_private.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/x509err.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An encrypted key must not make a daemon ask on its terminal. */
static int no_password(char *buffer, int size, int writing, void *context)
{
    (void)buffer, (void)size, (void)writing, (void)context;
    return 0;
}

/* OpenSSL's own message for a file that cannot be opened says too little. */
static int check_readable(const char *path, const char *what, struct error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    return error_set(error, errno == ENOENT ? BANYAN_ENOTFOUND : BANYAN_EINVAL, "%s file %.120s: %s", what,
                     path, strerror(errno));
}

static int refuse(const char *path, const char *what, const char *why, struct error *error)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    error_set(error, BANYAN_EINVAL, "%s file %.120s: %s%s%.60s", what, path, why, reason ? ": " : "",
              reason ? reason : "");
    ERR_clear_error();
    return BANYAN_EINVAL;
}

static int load_certificate(SSL_CTX *context, const struct net_tls_options *options, struct error *error)
{
    const char *certificate = options->certificate_file;
    const char *key = options->key_file ? options->key_file : certificate;
    int status = check_readable(certificate, "certificate", error);
    if (status)
        return status;
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1)
        return refuse(certificate, "certificate", "no certificate in PEM", error);
    status = check_readable(key, "key", error);
    if (status)
        return status;
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1) {
        if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH)
            return refuse(key, "key", "is not that of the certificate", error);
        return refuse(key, "key", "no private key in PEM (without a password)", error);
    }
    if (SSL_CTX_check_private_key(context) != 1)
        return refuse(key, "key", "is not that of the certificate", error);
    return 0;
}

static int load_authority(SSL_CTX *context, bool server, const char *path, struct error *error)
{
    int status = check_readable(path, "authority", error);
    if (status)
        return status;
    if (SSL_CTX_load_verify_file(context, path) != 1)
        return refuse(path, "authority", "no certificate in PEM", error);
    if (!server)
        return 0;
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path); /* tells clients what to send */
    if (!names)
        return refuse(path, "authority", "no certificate in PEM", error);
    SSL_CTX_set_client_CA_list(context, names);
    return 0;
}

static int check_options(bool server, const struct net_tls_options *options, struct error *error)
{
    if (server && !options->certificate_file)
        return error_set(error, BANYAN_EINVAL, "TLS: a server needs a certificate file");
    if (!server && !options->authority_file)
        return error_set(error, BANYAN_EINVAL, "TLS: a client needs an authority file to know servers by");
    if (options->require_peer && !options->authority_file)
        return error_set(error, BANYAN_EINVAL, "TLS: certificates of clients need an authority file");
    return 0;
}

static int context_fill(SSL_CTX *context, bool server, const struct net_tls_options *options,
                        struct error *error)
{
    int status = 0, verify = SSL_VERIFY_NONE;
    if (options->authority_file)
        verify = SSL_VERIFY_PEER | (options->require_peer ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(context, no_password);
    SSL_CTX_set_verify(context, verify, NULL);
    if (options->certificate_file)
        status = load_certificate(context, options, error);
    if (!status && options->authority_file)
        status = load_authority(context, server, options->authority_file, error);
    return status;
}

int net_tls_create(struct net_tls **tls, bool server, const struct net_tls_options *options,
                   struct error *error)
{
    *tls = NULL;
    int status = check_options(server, options, error);
    if (status)
        return status;
    ERR_clear_error();
    struct net_tls *made = calloc(1, sizeof *made);
    if (made) {
        made->context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
        made->method = net_stream_bio_method();
    }
    if (!made || !made->context || !made->method)
        status = error_set(error, BANYAN_ENOMEM, "TLS: this process has no memory left");
    else
        status = context_fill(made->context, server, options, error);
    if (status)
        net_tls_destroy(made);
    else
        *tls = made;
    return status;
}

void net_tls_destroy(struct net_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    free(tls);
}
