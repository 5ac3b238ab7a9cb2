#include "tests/net/certificates.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

static bool add_extension(X509 *x509, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, x509, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool added = extension && X509_add_ext(x509, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static bool fill(X509 *x509, EVP_PKEY *key, X509 *issuer, const char *common_name, const char *names,
                 bool authority)
{
    uint64_t serial = 0;
    if (RAND_bytes((unsigned char *)&serial, sizeof serial) != 1)
        return false;
    X509_NAME *name = X509_get_subject_name(x509);
    return X509_set_version(x509, X509_VERSION_3) == 1 &&
           ASN1_INTEGER_set_uint64(X509_get_serialNumber(x509), serial >> 1) == 1 &&
           X509_set_pubkey(x509, key) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)common_name, -1, -1,
                                      0) == 1 &&
           X509_set_issuer_name(x509, X509_get_subject_name(issuer)) == 1 &&
           add_extension(x509, issuer, NID_basic_constraints,
                         authority ? "critical,CA:TRUE" : "critical,CA:FALSE") &&
           (!authority || add_extension(x509, issuer, NID_key_usage, "critical,keyCertSign,cRLSign")) &&
           (!names || add_extension(x509, issuer, NID_subject_alt_name, names));
}

bool certificate_make(struct certificate *made, const struct certificate *authority, const char *common_name,
                      const char *alternative_names, long from, long to)
{
    made->x509 = X509_new();
    made->key = EVP_EC_gen("P-256");
    const struct certificate *signer = authority ? authority : made;
    if (made->x509 && made->key && X509_gmtime_adj(X509_getm_notBefore(made->x509), from) &&
        X509_gmtime_adj(X509_getm_notAfter(made->x509), to) &&
        fill(made->x509, made->key, signer->x509, common_name, alternative_names, !authority) &&
        X509_sign(made->x509, signer->key, EVP_sha256()) > 0)
        return true;
    certificate_free(made);
    return false;
}

bool certificate_write(const struct certificate *certificate, const char *certificate_path,
                       const char *key_path)
{
    bool written = true;
    if (certificate_path) {
        FILE *file = fopen(certificate_path, "w");
        written = file && PEM_write_X509(file, certificate->x509) == 1;
        written = file && fclose(file) == 0 && written;
    }
    if (written && key_path) {
        FILE *file = fopen(key_path, "a");
        written = file && chmod(key_path, 0600) == 0 &&
                  PEM_write_PrivateKey(file, certificate->key, NULL, NULL, 0, NULL, NULL) == 1;
        written = file && fclose(file) == 0 && written;
    }
    return written;
}

void certificate_free(struct certificate *certificate)
{
    X509_free(certificate->x509);
    EVP_PKEY_free(certificate->key);
    *certificate = (struct certificate){0};
}
