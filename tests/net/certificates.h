/*
 * certificates.h - certificates for tests, made when they are needed (P-256; some milliseconds each).
 *
 * One thread at a time. Failures return false; what was made is freed with certificate_free().
 */
#ifndef TESTS_NET_CERTIFICATES_H
#define TESTS_NET_CERTIFICATES_H

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stdbool.h>

struct certificate {
    X509 *x509;
    EVP_PKEY *key;
};

/* authority NULL: an authority, signed by itself. alternative_names as "DNS:localhost,IP:127.0.0.1", or NULL.
 * Valid from and to so many seconds from now. */
bool certificate_make(struct certificate *made, const struct certificate *authority, const char *common_name,
                      const char *alternative_names, long from, long to);
/* PEM; NULL paths are left out, both may be the same file. */
bool certificate_write(const struct certificate *certificate, const char *certificate_path,
                       const char *key_path);
void certificate_free(struct certificate *certificate);

#endif
