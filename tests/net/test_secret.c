/* test_secret.c - secrets' files, and proofs of them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "net/net.h"

static char directory[64], path[128];

static int set_up(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/test_secret.XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/secret", directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static void file_make(const void *bytes, size_t length, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), length);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void taken(const char *text, size_t text_length, const char *expected)
{
    char secret[NET_SECRET_MAX + 1];
    size_t length;
    struct error error = {0};
    file_make(text, text_length, 0600);
    if (net_secret_read(path, secret, &length, &error))
        fail_msg("%s", error.text);
    assert_int_equal(length, strlen(expected));
    assert_string_equal(secret, expected);
}

static void refused(int code, const char *why)
{
    char secret[NET_SECRET_MAX + 1];
    size_t length;
    struct error error = {0};
    assert_int_equal(net_secret_read(path, secret, &length, &error), code);
    assert_non_null(strstr(error.text, path));
    if (!strstr(error.text, why))
        fail_msg("refused with: %s", error.text);
    assert_null(strstr(error.text, "tr0mbone"));
}

static void test_files(void **state)
{
    (void)state;
    char longest[NET_SECRET_MAX + 8];
    taken("tr0mbone", 8, "tr0mbone");
    taken("tr0mbone\n", 9, "tr0mbone");
    taken("tr0mbone\r\nsecond line\n", 22, "tr0mbone");
    taken(" spaces are kept ", 17, " spaces are kept ");
    memset(longest, 's', sizeof longest);
    longest[NET_SECRET_MAX] = 0;
    taken(longest, NET_SECRET_MAX, longest);
    longest[NET_SECRET_MAX] = '\n';
    file_make(longest, NET_SECRET_MAX + 1, 0400);
    char secret[NET_SECRET_MAX + 1];
    size_t length;
    assert_int_equal(net_secret_read(path, secret, &length, NULL), 0);
    assert_int_equal(length, NET_SECRET_MAX);
    assert_int_equal(secret[NET_SECRET_MAX], 0);
    longest[NET_SECRET_MAX] = 's';
    file_make(longest, NET_SECRET_MAX + 1, 0600);
    refused(BANYAN_EINVAL, "8 to 1024");
}

static void test_bad_files(void **state)
{
    (void)state;
    unlink(path);
    refused(BANYAN_ENOTFOUND, "No such file");
    file_make("", 0, 0600);
    refused(BANYAN_EINVAL, "8 to 1024");
    file_make("1234567\n90123456", 16, 0600);
    refused(BANYAN_EINVAL, "8 to 1024");
    file_make("tr0mbone\0more", 13, 0600);
    refused(BANYAN_EINVAL, "0 byte");
    const mode_t modes[] = {0640, 0604, 0620, 0602, 0644, 0666};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        file_make("tr0mbone\n", 9, modes[i]);
        refused(BANYAN_EINVAL, "others than its owner");
    }
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    refused(BANYAN_EINVAL, "not a regular file");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not be waited for */
    refused(BANYAN_EINVAL, "not a regular file");
}

static void test_proofs(void **state)
{
    (void)state;
    uint8_t a[NET_NONCE_BYTES], b[NET_NONCE_BYTES], proof[NET_PROOF_BYTES], other[NET_PROOF_BYTES];
    net_random(a, sizeof a);
    net_random(b, sizeof b);
    assert_false(net_equal(a, b, sizeof a));
    assert_true(net_equal(a, a, sizeof a));
    net_proof("tr0mbone", 8, "client", a, b, proof);
    net_proof("tr0mbone", 8, "client", a, b, other);
    assert_true(net_equal(proof, other, sizeof proof));
    net_proof("tr0mbond", 8, "client", a, b, other);
    assert_false(net_equal(proof, other, sizeof proof));
    net_proof("tr0mbone", 8, "server", a, b, other);
    assert_false(net_equal(proof, other, sizeof proof));
    net_proof("tr0mbone", 8, "client", b, a, other);
    assert_false(net_equal(proof, other, sizeof proof));
    net_proof("", 0, "client", a, b, other); /* no secret is a secret that all know */
    net_proof(NULL, 0, "client", a, b, proof);
    assert_true(net_equal(proof, other, sizeof proof));
}

/* Computed with Python's hmac: key "tr0mbone", "client\0", 32 times 0x01, 32 times 0x02. */
static void test_proof_is_hmac(void **state)
{
    (void)state;
    static const uint8_t expected[NET_PROOF_BYTES] = {
        0x80, 0x51, 0x0d, 0xd9, 0xd0, 0x78, 0xac, 0x0b, 0xd4, 0x29, 0x15, 0x7c, 0xb0, 0x82, 0xea, 0x5a,
        0xc8, 0x67, 0x3e, 0x5f, 0x5f, 0x72, 0x56, 0x9b, 0x98, 0x45, 0x77, 0x07, 0x4d, 0xd2, 0xb5, 0xf9};
    uint8_t first[NET_NONCE_BYTES], second[NET_NONCE_BYTES], proof[NET_PROOF_BYTES];
    memset(first, 1, sizeof first);
    memset(second, 2, sizeof second);
    net_proof("tr0mbone", 8, "client", first, second, proof);
    assert_memory_equal(proof, expected, sizeof expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_files, set_up, tear_down),
        cmocka_unit_test(test_proofs),
        cmocka_unit_test(test_proof_is_hmac),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
