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

/* Of parts that stand apart, as of all of them in a row. */
static void test_parts(void **state)
{
    (void)state;
    unsigned char bytes[128], apart[4][64];
    struct random random;
    random_seed(&random, 7);
    for (unsigned round = 0; round < 5000; round++) {
        struct crc32c_part parts[4];
        const uint32_t count = (uint32_t)random_below(&random, 5), start = (uint32_t)random_next(&random);
        size_t whole = 0;
        for (uint32_t i = 0; i < count; i++) {
            const size_t length = (size_t)random_below(&random, 30), from = (size_t)random_below(&random, 9);
            for (size_t j = 0; j < length; j++)
                bytes[whole + j] = apart[i][from + j] = (unsigned char)random_next(&random);
            parts[i] = (struct crc32c_part){apart[i] + from, length};
            whole += length;
        }
        assert_int_equal(crc32c_parts(start, parts, count), crc32c_portable(start, bytes, whole));
    }
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

/* What crc32c_sift says, piece by piece. */
static uint32_t sift_plainly(uint32_t crc, const unsigned char *base, const uint32_t *places, uint32_t count,
                             size_t length, uint32_t empty, struct crc32c_piece *taken)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *piece = base + places[i];
        uint32_t stored;
        memcpy(&stored, piece, 4);
        if (stored == empty)
            continue;
        if (stored != (crc32c_portable(crc, piece + 4, length) | 1u))
            return CRC32C_NONE;
        taken[found] = (struct crc32c_piece){.number = i};
        for (unsigned byte = 0; byte < 8; byte++)
            taken[found].head = taken[found].head << 8 | piece[4 + byte];
        found++;
    }
    return found;
}

/* A piece that is empty or taken; one in `wrong` has a bit of its crc changed. */
static void piece_make(struct random *random, uint32_t crc, uint32_t empty, unsigned char *piece,
                       uint32_t length, uint32_t wrong)
{
    for (uint32_t byte = 0; byte < length; byte++)
        piece[4 + byte] = (unsigned char)random_next(random);
    uint32_t stored = random_next(random) % 4 ? crc32c_portable(crc, piece + 4, length) | 1u : empty;
    if (random_next(random) % wrong == 0)
        stored ^= 1u << random_next(random) % 32;
    memcpy(piece, &stored, 4);
}

/* Pieces in a row, some empty, some with a wrong crc: all lengths from 8 on, the usual one most often. */
static void test_sift(void **state)
{
    (void)state;
    enum { PIECES = 48, LENGTH_MAX = 40 };
    unsigned char bytes[PIECES * (LENGTH_MAX + 4)];
    struct random random;
    random_seed(&random, 7);
    unsigned refused = 0, all = 0;
    for (unsigned round = 0; round < 4000; round++) {
        const uint32_t length = random_next(&random) % 2 ? 16 : 8 + (uint32_t)random_next(&random) % 33;
        const uint32_t count = (uint32_t)random_next(&random) % (PIECES + 1);
        const uint32_t crc = (uint32_t)random_next(&random), empty = crc & ~1u;
        uint32_t places[PIECES];
        for (uint32_t i = 0; i < count; i++) {
            places[i] = i * (length + 4);
            piece_make(&random, crc, empty, bytes + places[i], length, 100);
        }
        struct crc32c_piece taken[PIECES] = {0}, expected[PIECES] = {0};
        const uint32_t found = crc32c_sift(crc, bytes, places, count, length, empty, taken);
        assert_int_equal(found, sift_plainly(crc, bytes, places, count, length, empty, expected));
        refused += found == CRC32C_NONE;
        all += found == count;
        for (uint32_t i = 0; found != CRC32C_NONE && i < found; i++) {
            assert_int_equal(taken[i].number, expected[i].number);
            assert_true(taken[i].head == expected[i].head);
        }
    }
    assert_true(refused > 100 && all > 10);
}

/* The same of bytes that are copied meanwhile, in places with gaps between them that stay as they are. */
static void test_sift_shared(void **state)
{
    (void)state;
    enum { LENGTH_MAX = 40, STRIDE = 48 };
    uint64_t room[CRC32C_SHARED_MAX * STRIDE / 8], copied[CRC32C_SHARED_MAX * STRIDE / 8];
    unsigned char *bytes = (unsigned char *)room, *copy = (unsigned char *)copied;
    struct random random;
    random_seed(&random, 9);
    unsigned refused = 0, all = 0;
    for (unsigned round = 0; round < 4000; round++) {
        const uint32_t length = random_next(&random) % 2 ? 16 : 8 + (uint32_t)random_next(&random) % 33;
        const uint32_t count = (uint32_t)random_next(&random) % (CRC32C_SHARED_MAX + 1);
        const uint32_t crc = (uint32_t)random_next(&random), empty = crc & ~1u;
        uint32_t places[CRC32C_SHARED_MAX];
        for (uint32_t i = 0; i < count; i++) {
            places[i] = i * STRIDE + 4 * (uint32_t)(random_next(&random) % 2);
            piece_make(&random, crc, empty, bytes + places[i], length, 200);
        }
        struct crc32c_piece expected[CRC32C_SHARED_MAX] = {0};
        uint64_t taken, bits = 0;
        memset(copy, 0xa5, sizeof copied);
        const bool right = crc32c_sift_shared(crc, bytes, copy, places, count, length, empty, &taken);
        const uint32_t found = sift_plainly(crc, bytes, places, count, length, empty, expected);
        assert_int_equal(right, found != CRC32C_NONE);
        refused += !right;
        all += count && found == count;
        for (uint32_t i = 0; i < count; i++) {
            assert_memory_equal(copy + places[i] + 4, bytes + places[i] + 4, length);
            assert_int_equal(copy[places[i]], 0xa5);
            if (places[i] + 4 + length < sizeof copied)
                assert_int_equal(copy[places[i] + 4 + length], 0xa5);
        }
        for (uint32_t i = 0; right && i < found; i++)
            bits |= UINT64_C(1) << expected[i].number;
        assert_true(!right || taken == bits);
    }
    assert_true(refused > 100 && all > 10);
}

/* A key among pieces of which some have the same, are empty, or have a wrong crc. */
static void test_find_shared(void **state)
{
    (void)state;
    enum { PIECES = 20, STRIDE = 24 };
    uint32_t room[PIECES * STRIDE / 4 + 1];
    unsigned char *bytes = (unsigned char *)room;
    struct random random;
    random_seed(&random, 10);
    unsigned taken = 0, refused = 0, absent = 0;
    for (unsigned round = 0; round < 8000; round++) {
        const uint64_t front = random_next(&random);
        const uint32_t crc = crc32c_portable(0, &front, sizeof front);
        const uint32_t count = (uint32_t)random_next(&random) % (PIECES + 1);
        uint32_t places[PIECES], last = UINT32_MAX;
        uint64_t key, rest = 0, found = 0;
        for (uint32_t i = 0; i < count; i++) {
            places[i] = i * STRIDE + 4 * (uint32_t)(random_next(&random) % 2);
            piece_make(&random, crc, crc & ~1u, bytes + places[i], 16, 8);
        }
        if (count && random_next(&random) % 4)
            memcpy(&key, bytes + places[random_next(&random) % count] + 4, sizeof key);
        else
            key = random_next(&random);
        if (count && random_next(&random) % 4 == 0) /* with its crc or another's */
            memcpy(bytes + places[random_next(&random) % count] + 4, &key, sizeof key);
        for (uint32_t i = 0; i < count; i++)
            last = memcmp(bytes + places[i] + 4, &key, sizeof key) ? last : i;
        bool sound = false;
        if (last != UINT32_MAX) {
            uint32_t stored;
            memcpy(&stored, bytes + places[last], sizeof stored);
            memcpy(&rest, bytes + places[last] + 12, sizeof rest);
            sound = stored == (crc32c_portable(crc, bytes + places[last] + 4, 16) | 1u);
        }
        assert_int_equal(crc32c_find_shared(front, bytes, places, count, key, &found), sound);
        assert_true(!sound || found == rest);
        taken += sound;
        refused += last != UINT32_MAX && !sound;
        absent += last == UINT32_MAX;
    }
    assert_true(taken > 1000 && refused > 1000 && absent > 1000);
}

/* Any pieces, in any order: each is taken then, and nothing else has changed. */
static void test_seal(void **state)
{
    (void)state;
    enum { PIECES = 48, LENGTH_MAX = 40 };
    unsigned char bytes[PIECES * (LENGTH_MAX + 4)], before[sizeof bytes];
    struct random random;
    random_seed(&random, 8);
    for (unsigned round = 0; round < 1000; round++) {
        const uint32_t length = random_next(&random) % 2 ? 16 : 8 + (uint32_t)random_next(&random) % 33;
        const uint32_t crc = (uint32_t)random_next(&random);
        uint32_t places[PIECES], count = 0;
        for (size_t i = 0; i < sizeof bytes; i++)
            before[i] = bytes[i] = (unsigned char)random_next(&random);
        for (uint32_t i = PIECES; i--;)
            if (random_next(&random) % 2)
                places[count++] = i * (length + 4);
        crc32c_seal(crc, bytes, places, count, length);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t expected = crc32c_portable(crc, before + places[i] + 4, length) | 1u;
            memcpy(before + places[i], &expected, 4);
        }
        assert_memory_equal(bytes, before, sizeof bytes);
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
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_forms_agree),
        cmocka_unit_test(test_continues),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_sift),
        cmocka_unit_test(test_sift_shared),
        cmocka_unit_test(test_find_shared),
        cmocka_unit_test(test_seal),
        cmocka_unit_test(test_names_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
