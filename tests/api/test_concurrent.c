/*
 * test_concurrent.c - threads with sessions of their own: parallel bulk load, then writers beside an
 * iterator. In a pool of this process; with $BANYAN_URI on the memory nodes there, which it formats.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "banyan.h"

enum { PARTS = 4, PART_KEYS = 3000 };

struct part {
    struct banyan *banyan;
    struct banyan_index *index;
    struct banyan_bulk *bulk;
    unsigned number;
    uint64_t next;
    unsigned char key[8];
    uint64_t value;
    int status;
};

static void key_make(unsigned char key[8], uint64_t number)
{
    for (int i = 0; i < 8; i++)
        key[i] = (unsigned char)(number >> (56 - 8 * i));
}

static int part_next(void *context, const void **key, size_t *key_length, const void **value, size_t *length)
{
    struct part *part = context;
    if (part->next == PART_KEYS)
        return 0;
    /* Even numbers are loaded; the odd ones are for the writers. */
    part->value = ((uint64_t)part->number * PART_KEYS + part->next++) * 2;
    key_make(part->key, part->value);
    *key = part->key;
    *key_length = 8;
    *value = &part->value;
    *length = 8;
    return 1;
}

static void *part_load(void *argument)
{
    struct part *part = argument;
    struct banyan_session *session = NULL;
    part->status = banyan_session_open(part->banyan, &session);
    if (!part->status)
        part->status = banyan_bulk_part(session, part->bulk, part->number, part_next, part);
    banyan_session_close(session);
    return NULL;
}

static void *part_write(void *argument)
{
    struct part *part = argument;
    struct banyan_session *session = NULL;
    part->status = banyan_session_open(part->banyan, &session);
    for (uint64_t i = 0; i < PART_KEYS && !part->status; i++) {
        uint64_t number = ((uint64_t)part->number * PART_KEYS + i) * 2 + 1;
        key_make(part->key, number);
        part->status = banyan_put(session, part->index, part->key, 8, &number, 8);
    }
    banyan_session_close(session);
    return NULL;
}

static void parts_start(struct part *parts, pthread_t *threads, void *(*function)(void *))
{
    for (unsigned i = 0; i < PARTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, function, &parts[i]), 0);
}

static void parts_join(struct part *parts, pthread_t *threads)
{
    for (unsigned i = 0; i < PARTS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(parts[i].status, BANYAN_OK);
    }
}

/* Ascending without repetition; every even number is there, each value is its key. Returns the entries
 * met. */
static uint64_t walk(struct banyan_session *session, struct banyan_index *index)
{
    struct banyan_iterator *iterator;
    const void *key, *value;
    size_t key_length, length;
    uint64_t count = 0, even = 0, previous = 0, number;
    unsigned char expected[8];
    int status;
    assert_int_equal(banyan_iterator_open(session, index, NULL, &iterator), BANYAN_OK);
    while (!(status = banyan_iterator_next(iterator, &key, &key_length, &value, &length))) {
        assert_int_equal(key_length, 8);
        assert_int_equal(length, 8);
        memcpy(&number, value, 8);
        key_make(expected, number);
        assert_memory_equal(key, expected, 8);
        assert_true(count == 0 || number > previous);
        if (number % 2 == 0)
            assert_int_equal(number, 2 * even++);
        previous = number;
        count++;
    }
    assert_int_equal(status, BANYAN_ENOTFOUND);
    assert_int_equal(even, (uint64_t)PARTS * PART_KEYS);
    assert_int_equal(banyan_iterator_close(iterator), BANYAN_OK);
    return count;
}

static void test_load_and_write(void **state)
{
    struct banyan_options options = {
        .struct_bytes = sizeof options, .memory_nodes = 2, .pool_bytes = 128u << 20};
    const char *uri = getenv("BANYAN_URI");
    if (uri)
        options = (struct banyan_options){.struct_bytes = sizeof options, .uri = uri, .format = 1};
    struct banyan_geometry geometry = {.struct_bytes = sizeof geometry, .key_bytes = 8, .value_bytes = 8};
    struct banyan *banyan;
    struct banyan_session *session;
    struct banyan_index *index;
    struct banyan_bulk *bulk;
    struct part parts[PARTS];
    pthread_t threads[PARTS];
    (void)state;
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_OK);
    assert_int_equal(banyan_session_open(banyan, &session), BANYAN_OK);
    assert_int_equal(banyan_index_create(session, "numbers", &geometry, &index), BANYAN_OK);
    assert_int_equal(banyan_bulk_begin(session, index, PARTS, 0, &bulk), BANYAN_OK);
    memset(parts, 0, sizeof parts);
    for (unsigned i = 0; i < PARTS; i++) {
        parts[i].banyan = banyan;
        parts[i].index = index;
        parts[i].bulk = bulk;
        parts[i].number = i;
    }
    parts_start(parts, threads, part_load);
    parts_join(parts, threads);
    assert_int_equal(banyan_index_close(index), BANYAN_EBUSY);
    assert_int_equal(banyan_bulk_finish(session, bulk), BANYAN_OK);
    assert_int_equal(walk(session, index), (uint64_t)PARTS * PART_KEYS);
    parts_start(parts, threads, part_write);
    for (int i = 0; i < 3; i++)
        walk(session, index);
    parts_join(parts, threads);
    assert_int_equal(walk(session, index), 2u * PARTS * PART_KEYS);
    assert_int_equal(banyan_index_close(index), BANYAN_OK);
    assert_int_equal(banyan_session_close(session), BANYAN_OK);
    assert_int_equal(banyan_close(banyan), BANYAN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_load_and_write)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
