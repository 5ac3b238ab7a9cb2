/* test_atomic.c - copies at every alignment and length, words that never tear, and mutual exclusion. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/atomic.h"
#include "base/task.h"
#include "base/thread.h"

enum { ROOM = 96, LIMIT = 64 };

/* The shared side is a heap block of exactly the bytes in use, so that a sanitizer sees any byte too many. */
static void copy_and_check(size_t shared_offset, size_t own_offset, size_t length, int outward)
{
    unsigned char *shared = malloc(shared_offset + length + 1);
    unsigned char own[ROOM], expected[ROOM];
    assert_non_null(shared);
    memset(own, 0xee, sizeof own);
    for (size_t i = 0; i <= shared_offset + length; i++)
        shared[i] = (unsigned char)(i + 1);
    shared[shared_offset + length] = 0xdd;
    if (outward) {
        for (size_t i = 0; i < length; i++)
            own[own_offset + i] = (unsigned char)(200 - i);
        atomic_copy_to(shared + shared_offset, own + own_offset, length);
        assert_memory_equal(shared + shared_offset, own + own_offset, length);
        for (size_t i = 0; i < shared_offset; i++)
            assert_int_equal(shared[i], i + 1);
    } else {
        memset(expected, 0xee, sizeof expected);
        memcpy(expected + own_offset, shared + shared_offset, length);
        atomic_copy_from(own + own_offset, shared + shared_offset, length);
        assert_memory_equal(own, expected, sizeof own);
    }
    assert_int_equal(shared[shared_offset + length], 0xdd);
    free(shared);
}

static void test_copy_every_alignment_and_length(void **state)
{
    (void)state;
    for (size_t shared = 0; shared < 8; shared++)
        for (size_t own = 0; own < 8; own++)
            for (size_t length = 0; length <= LIMIT; length++) {
                copy_and_check(shared, own, length, 0);
                copy_and_check(shared, own, length, 1);
            }
}

/* The bytes, no more, and nothing beside them, in both directions. */
static void test_long_copies(void **state)
{
    enum { LONGEST = 300, AROUND = 16 };
    unsigned char own[AROUND + LONGEST + AROUND], expected[sizeof own];
    (void)state;
    for (size_t offset = 0; offset < AROUND; offset += 3)
        for (size_t length = 0; length <= LONGEST; length += length < 140 ? 1 : 7) {
            unsigned char *shared = malloc(offset + length + 1);
            assert_non_null(shared);
            for (size_t i = 0; i < offset + length; i++)
                shared[i] = (unsigned char)(3 * i + length);
            memset(own, 0xee, sizeof own);
            memset(expected, 0xee, sizeof expected);
            memcpy(expected + AROUND, shared + offset, length);
            atomic_copy_long_from(own + AROUND, shared + offset, length);
            assert_memory_equal(own, expected, sizeof own);
            memset(shared, 0xdd, offset + length + 1);
            atomic_copy_long_to(shared + offset, own + AROUND, length);
            assert_memory_equal(shared + offset, own + AROUND, length);
            for (size_t i = 0; i < offset; i++)
                assert_int_equal(shared[i], 0xdd);
            assert_int_equal(shared[offset + length], 0xdd);
            free(shared);
        }
}

enum { WORDS = 9, ROUNDS = 20000, THREADS = 4 };

struct board {
    uint64_t words[WORDS];
    uint32_t stop;
};

/* Writes words whose eight bytes are all the same. */
static void scribble(void *argument)
{
    struct board *board = argument;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        unsigned char bytes[sizeof board->words + 1];
        memset(bytes, (int)(round & 0xff), sizeof bytes);
        atomic_copy_to(board->words, bytes + 1,
                       sizeof board->words); /* an unaligned source must not tear either */
    }
    atomic_store_release(&board->stop, 1u);
}

static void test_words_do_not_tear(void **state)
{
    (void)state;
    struct board board = {0};
    struct thread *writer;
    struct error error;
    assert_int_equal(thread_start(&writer, scribble, &board, &error), 0);
    while (!atomic_load_acquire(&board.stop)) {
        unsigned char bytes[sizeof board.words + 1];
        atomic_copy_from(bytes + 1, board.words, sizeof board.words);
        for (size_t word = 0; word < WORDS; word++)
            for (size_t i = 1; i < 8; i++)
                assert_int_equal(bytes[1 + 8 * word + i], bytes[1 + 8 * word]);
    }
    thread_join(writer);
}

struct guarded {
    struct spinlock lock;
    uint64_t count; /* plain: only the lock protects it */
};

static void add_many(void *argument)
{
    struct guarded *guarded = argument;
    for (int i = 0; i < ROUNDS; i++) {
        spinlock_lock(&guarded->lock);
        guarded->count++;
        spinlock_unlock(&guarded->lock);
    }
}

static void test_spinlock_excludes(void **state)
{
    (void)state;
    struct guarded guarded = {0};
    struct thread *threads[THREADS];
    struct error error;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(thread_start(&threads[i], add_many, &guarded, &error), 0);
    for (int i = 0; i < THREADS; i++)
        thread_join(threads[i]);
    assert_int_equal(guarded.count, THREADS * ROUNDS);
}

static void test_spinlock_try(void **state)
{
    (void)state;
    struct spinlock lock = {0};
    assert_true(spinlock_try(&lock));
    assert_false(spinlock_try(&lock));
    spinlock_unlock(&lock);
    assert_true(spinlock_try(&lock));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy_every_alignment_and_length),
        cmocka_unit_test(test_long_copies),
        cmocka_unit_test(test_words_do_not_tear),
        cmocka_unit_test(test_spinlock_excludes),
        cmocka_unit_test(test_spinlock_try),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
