/* tls_private.h - what tls.c (contexts from files) and stream.c (connections) share. */
#ifndef NET_TLS_PRIVATE_H
#define NET_TLS_PRIVATE_H

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "net/net.h"

struct net_tls {
    SSL_CTX *context;
    BIO_METHOD *method; /* reads and writes a stream's socket; its data are the struct net_stream */
};

/* stream.c: a BIO over a socket that never raises SIGPIPE. NULL: no memory. */
BIO_METHOD *net_stream_bio_method(void);

#endif
