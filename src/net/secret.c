/* secret.c - random bytes, proofs that the other end knows a secret, and files of secrets; see net.h. Any
 * thread. No message contains a secret. */
#include "net/net.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define LABEL_MAX  64u
#define SECRET_MIN 8u

void net_random(void *bytes, size_t length)
{
    uint8_t *at = bytes;
    while (length) {
        ssize_t got = getrandom(at, length, 0);
        if (got < 0 && errno != EINTR)
            abort(); /* without the system's generator nothing would be secret */
        if (got > 0) {
            at += got;
            length -= (size_t)got;
        }
    }
}

void net_proof(const void *secret, size_t secret_length, const char *label,
               const uint8_t first[NET_NONCE_BYTES], const uint8_t second[NET_NONCE_BYTES],
               uint8_t proof[NET_PROOF_BYTES])
{
    /* The label ends with a 0, which it cannot contain, so no two triples give the same bytes. */
    uint8_t text[LABEL_MAX + 1 + 2 * NET_NONCE_BYTES] = {0};
    size_t label_length = strnlen(label, LABEL_MAX);
    unsigned length = NET_PROOF_BYTES;
    memcpy(text, label, label_length);
    memcpy(text + label_length + 1, first, NET_NONCE_BYTES);
    memcpy(text + label_length + 1 + NET_NONCE_BYTES, second, NET_NONCE_BYTES);
    if (secret_length > NET_SECRET_MAX || !HMAC(EVP_sha256(), secret_length ? secret : "", (int)secret_length,
                                                text, label_length + 1 + 2 * NET_NONCE_BYTES, proof, &length))
        net_random(proof, NET_PROOF_BYTES); /* proves nothing, and the other end refuses */
}

bool net_equal(const void *a, const void *b, size_t length)
{
    return CRYPTO_memcmp(a, b, length) == 0;
}

/* The file's first bytes, at most `capacity`; BANYAN_EINVAL with a message. */
static int file_read(const char *path, char *bytes, size_t capacity, size_t *length, struct error *error)
{
    struct stat file;
    int status = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* no waiting for a FIFO */
    *length = 0;
    if (fd < 0)
        return error_set(error, errno == ENOENT ? BANYAN_ENOTFOUND : BANYAN_EINVAL, "secret file %.150s: %s",
                         path, strerror(errno));
    if (fstat(fd, &file) || !S_ISREG(file.st_mode))
        status = error_set(error, BANYAN_EINVAL, "secret file %.150s: not a regular file", path);
    else if (file.st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH))
        status =
            error_set(error, BANYAN_EINVAL,
                      "secret file %.150s: others than its owner may read or write it (chmod 600)", path);
    while (!status && *length < capacity) {
        ssize_t got = read(fd, bytes + *length, capacity - *length);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            status = error_set(error, BANYAN_EINVAL, "secret file %.150s: %s", path, strerror(errno));
        *length += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    return status;
}

int net_secret_read(const char *path, char secret[NET_SECRET_MAX + 1], size_t *length, struct error *error)
{
    char bytes[NET_SECRET_MAX + 2]; /* a longest line, and what ends it */
    size_t got;
    int status = file_read(path, bytes, sizeof bytes, &got, error);
    const char *newline = status ? NULL : memchr(bytes, '\n', got);
    size_t line = newline ? (size_t)(newline - bytes) : got;
    if (line && newline && bytes[line - 1] == '\r')
        line--;
    if (!status && (line < SECRET_MIN || line > NET_SECRET_MAX))
        status = error_set(error, BANYAN_EINVAL,
                           "secret file %.150s: its first line must have 8 to 1024 bytes", path);
    if (!status && memchr(bytes, 0, line))
        status =
            error_set(error, BANYAN_EINVAL, "secret file %.150s: its first line contains a 0 byte", path);
    if (!status) {
        memcpy(secret, bytes, line);
        secret[line] = 0;
        *length = line;
    }
    OPENSSL_cleanse(bytes, sizeof bytes);
    return status;
}
