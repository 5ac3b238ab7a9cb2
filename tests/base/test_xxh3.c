/* test_xxh3.c - the ways to hash, with and without a copy, agree at every alignment and length; and the hash
 * of a copy is that of the copied bytes whatever becomes of their source. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/atomic.h"
#include "base/random.h"
#include "base/thread.h"
#include "base/xxh3.h"

/* What xxHash's own documentation and programs tell. */
static void test_known(void **state)
{
    (void)state;
    unsigned char zeros[2048] = {0};
    assert_true(xxh3("", 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(xxh3("abc", 3) == xxh3_plain("abc", 3));
    assert_true(xxh3(zeros, 1) == UINT64_C(0xc44bdff4074eecdb));
    assert_true(xxh3(zeros, sizeof zeros) == xxh3_plain(zeros, sizeof zeros));
}

/* Blocks of exactly the bytes in use and some before them, so that a sanitizer sees any byte too many. */
static void agree(struct random *random, size_t from_offset, size_t to_offset, size_t length)
{
    unsigned char *from = malloc(from_offset + length + 1), *to = malloc(to_offset + length + 1);
    assert_non_null(from);
    assert_non_null(to);
    for (size_t i = 0; i < from_offset + length; i++)
        from[i] = (unsigned char)(random_next(random) >> 32);
    const uint64_t expected = xxh3_plain(from + from_offset, length);
    assert_true(xxh3(from + from_offset, length) == expected);
    for (unsigned way = 0; way < 2; way++) {
        memset(to, 0xdd, to_offset + length + 1);
        const uint64_t hash = way ? xxh3_copy_to(to + to_offset, from + from_offset, length)
                                  : xxh3_copy_from(to + to_offset, from + from_offset, length);
        assert_true(hash == expected);
        assert_memory_equal(to + to_offset, from + from_offset, length);
        for (size_t i = 0; i < to_offset; i++)
            assert_int_equal(to[i], 0xdd);
        assert_int_equal(to[to_offset + length], 0xdd);
    }
    free(from);
    free(to);
}

static void test_ways_agree(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 5);
    for (size_t length = 0; length <= 1200;
         length++) /* each way of the hash, and all ends of its first block */
        agree(&random, length % 33, length % 9, length);
    for (size_t blocks = 2; blocks < 5; blocks++)
        for (size_t around = 0; around < 6; around++)
            agree(&random, around, 2 * around, 1024 * blocks - 3 + around);
    for (unsigned round = 0; round < 200; round++)
        agree(&random, random_next(&random) % 64, random_next(&random) % 64, random_next(&random) % 70000);
}

enum { LENGTH = 4096 + 77, ROUNDS = 2000 };

struct board {
    unsigned char bytes[LENGTH];
    uint32_t stop, rounds;
};

/* Writes another byte everywhere, again and again, and tells how often. */
static void scribble(void *argument)
{
    struct board *board = argument;
    unsigned char bytes[LENGTH];
    for (unsigned round = 0; !atomic_load_acquire(&board->stop); round++) {
        memset(bytes, (int)(round & 0xff), sizeof bytes);
        atomic_copy_to(board->bytes, bytes, sizeof bytes);
        atomic_store_relaxed(&board->rounds, round);
    }
}

static void test_source_changes_meanwhile(void **state)
{
    (void)state;
    static struct board board;
    static unsigned char copy[LENGTH];
    struct thread *writer;
    struct error error;
    assert_int_equal(thread_start(&writer, scribble, &board, &error), 0);
    for (unsigned round = 0; round < ROUNDS || atomic_load_relaxed(&board.rounds) < ROUNDS; round++) {
        const uint64_t hash = xxh3_copy_from(copy, board.bytes, LENGTH);
        assert_true(hash == xxh3_plain(copy, LENGTH));
    }
    atomic_store_release(&board.stop, 1u);
    thread_join(writer);
}

/* The same of the last bytes, of which some are hashed a second time. Here the copy lies so little before its
 * source that it overwrites those, once it has copied them. */
static void test_copy_changes_its_source(void **state)
{
    (void)state;
    unsigned char bytes[64 + 2048 + 64];
    struct random random;
    random_seed(&random, 7);
    for (unsigned way = 0; way < 2; way++)
        for (size_t length = 1024 + 1; length <= 2048 + 64; length++) {
            unsigned char *from = bytes + 64, *to = from - (64 - ((length - 1) % 64 + 1));
            for (size_t i = 0; i < sizeof bytes; i++)
                bytes[i] = (unsigned char)(random_next(&random) >> 32);
            const uint64_t before = xxh3_plain(from, length);
            const uint64_t hash = way ? xxh3_copy_to(to, from, length) : xxh3_copy_from(to, from, length);
            assert_true(hash == before && hash == xxh3_plain(to, length));
        }
}

static void test_names_itself(void **state)
{
    (void)state;
    const char *name = xxh3_implementation();
    assert_true(!strcmp(name, "plain") || (XXH3_VECTORS && !strcmp(name, "avx2")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_ways_agree),
        cmocka_unit_test(test_source_changes_meanwhile),
        cmocka_unit_test(test_copy_changes_its_source),
        cmocka_unit_test(test_names_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
