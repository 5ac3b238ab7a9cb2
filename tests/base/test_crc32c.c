/* test_crc32c.c - published vectors, and the instructions against the portable form at all lengths and
 * alignments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/crc32c.h"
#include "base/random.h"

typedef uint32_t function(uint32_t crc, const void *data, size_t length);

/* From RFC 3720, appendix B.4, and the usual check value. */
static void check_vectors(function *crc)
{
    unsigned char bytes[32] = {0};
    assert_int_equal(crc(0, "", 0), 0);
    assert_int_equal(crc(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(crc(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc(0, bytes, 32), 0x62a8ab43u);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(crc(0, bytes, 32), 0x46dd794eu);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (unsigned char)(31 - i);
    assert_int_equal(crc(0, bytes, 32), 0x113fdb5cu);
}

static void test_vectors(void **state)
{
    (void)state;
    check_vectors(crc32c);
    check_vectors(crc32c_portable);
}

static void test_forms_agree(void **state)
{
    (void)state;
    unsigned char bytes[300];
    struct random random;
    random_seed(&random, 5);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)random_next(&random);
    for (size_t offset = 0; offset < 16; offset++)
        for (size_t length = 0; length <= 256; length++) {
            uint32_t start = (uint32_t)random_next(&random);
            assert_int_equal(crc32c(start, bytes + offset, length),
                             crc32c_portable(start, bytes + offset, length));
        }
}

static void test_continues(void **state)
{
    (void)state;
    unsigned char bytes[64];
    for (unsigned i = 0; i < 64; i++)
        bytes[i] = (unsigned char)(i * 37 + 1);
    for (size_t cut = 0; cut <= 64; cut++)
        assert_int_equal(crc32c(crc32c(0, bytes, cut), bytes + cut, 64 - cut), crc32c(0, bytes, 64));
}

static void test_every_bit_counts(void **state)
{
    (void)state;
    unsigned char bytes[32] = {0};
    uint32_t plain = crc32c(0, bytes, 32);
    for (unsigned bit = 0; bit < 256; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(crc32c(0, bytes, 32), plain);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void test_names_itself(void **state)
{
    (void)state;
    const char *name = crc32c_implementation();
    assert_true(!strcmp(name, "sse4.2") || !strcmp(name, "armv8") || !strcmp(name, "portable"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),      cmocka_unit_test(test_forms_agree),
        cmocka_unit_test(test_continues),    cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_names_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
