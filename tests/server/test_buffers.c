/*
 * test_buffers.c - the buffers of connections (server/buffers.h): which that have grown a thread keeps, and
 * for how long; and long values in pipelines, whose requests and replies make them grow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/random.h"
#include "server/buffers.h"
#include "serving.h"

static void thread_make(struct server_thread *thread)
{
    *thread = (struct server_thread){.spare = calloc(BUFFERS_SPARE_MAX, sizeof *thread->spare)};
    assert_non_null(thread->spare);
}

static size_t class_bytes(unsigned size)
{
    return (size_t)BUFFER_BLOCK_BYTES << (size + 1);
}

/* A block that has grown to this class, and what was in the block. */
static char *grown_to(struct server_thread *thread, unsigned size)
{
    char *buffer = buffer_take(thread);
    assert_non_null(buffer);
    memset(buffer, 'a' + (int)size, BUFFER_BLOCK_BYTES);
    char *larger = buffer_grow(thread, buffer, BUFFER_BLOCK_BYTES, BUFFER_BLOCK_BYTES, class_bytes(size));
    assert_non_null(larger);
    for (unsigned i = 0; i < BUFFER_BLOCK_BYTES; i++)
        assert_int_equal(larger[i], 'a' + (int)size);
    return larger;
}

/* The same memory serves again; the account is of what is in use. */
static void what_has_grown_is_taken_again(void **state)
{
    struct server_thread thread;
    (void)state;
    thread_make(&thread);
    for (unsigned size = 0; size < BUFFERS_SIZES; size++) {
        char *first = grown_to(&thread, size);
        assert_int_equal(thread.counters.large, class_bytes(size));
        buffer_give(&thread, first, class_bytes(size));
        assert_int_equal(thread.counters.large, 0);
        assert_int_equal(thread.counters.blocks, 0);
        assert_int_equal(thread.grown[size].count, 1);
        char *second = grown_to(&thread, size);
        assert_ptr_equal(second, first);
        buffer_give(&thread, second, class_bytes(size));
    }
    /* Of no such size, or larger: back to the allocator. */
    const size_t before = thread.grown_bytes;
    char *odd = buffer_grow(&thread, NULL, 0, 0, 50000);
    assert_non_null(odd);
    odd = buffer_grow(&thread, odd, 0, 50000, 4 * class_bytes(BUFFERS_SIZES));
    assert_non_null(odd);
    assert_int_equal(thread.counters.large, 4 * class_bytes(BUFFERS_SIZES));
    buffer_give(&thread, odd, 4 * class_bytes(BUFFERS_SIZES));
    assert_int_equal(thread.counters.large, 0);
    assert_int_equal(thread.grown_bytes, before);
    buffers_free_spare(&thread);
    assert_int_equal(thread.grown_bytes, 0);
}

/* Kept while they are used between two trims; and all of them together have a limit. */
static void what_lies_unused_goes(void **state)
{
    enum { MANY = 80 };
    struct server_thread thread;
    char *buffers[MANY];
    const unsigned last = BUFFERS_SIZES - 1;
    (void)state;
    thread_make(&thread);
    for (unsigned i = 0; i < MANY; i++)
        buffers[i] = grown_to(&thread, last);
    for (unsigned i = 0; i < MANY; i++)
        buffer_give(&thread, buffers[i], class_bytes(last));
    assert_int_equal(thread.grown_bytes, BUFFERS_GROWN_MAX);
    const unsigned kept = thread.grown[last].count;
    assert_int_equal(kept, BUFFERS_GROWN_MAX / class_bytes(last));
    buffers_trim(&thread); /* they were in use before it */
    assert_int_equal(thread.grown[last].count, kept);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 3; i++)
            buffers[i] = grown_to(&thread, last);
        for (unsigned i = 0; i < 3; i++)
            buffer_give(&thread, buffers[i], class_bytes(last));
        buffers_trim(&thread);
        assert_int_equal(thread.grown[last].count, 3); /* as many as were in use at once */
    }
    buffers_trim(&thread);
    assert_int_equal(thread.grown_bytes, 0);
    buffers_free_spare(&thread);
}

/* ---- long values ---- */

#define CLIENTS   3u
#define VALUES    40u
#define VALUE_MAX 30000u

struct client {
    int fd;
    char *request, *reply;
    size_t asked, answered;
};

static void put_bulk(char *to, size_t *length, const char *bytes, size_t count)
{
    *length += (size_t)sprintf(to + *length, "$%zu\r\n", count);
    memcpy(to + *length, bytes, count);
    *length += count;
    memcpy(to + *length, "\r\n", 2);
    *length += 2;
}

/* All values of the client are set, then fetched, in one pipeline. */
static void pipeline_make(struct client *client, unsigned number, struct random *random)
{
    static char values[VALUES][VALUE_MAX];
    size_t lengths[VALUES];
    char key[16];
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < VALUES; i++) {
            const size_t key_length = (size_t)snprintf(key, sizeof key, "c%u-%u", number, i);
            client->asked += (size_t)sprintf(client->request + client->asked,
                                             pass ? "*2\r\n$3\r\nGET\r\n" : "*3\r\n$3\r\nSET\r\n");
            put_bulk(client->request, &client->asked, key, key_length);
            if (pass) {
                put_bulk(client->reply, &client->answered, values[i], lengths[i]);
                continue;
            }
            lengths[i] = 1 + (size_t)random_below(random, i % 3 ? VALUE_MAX - 1 : 10);
            for (size_t at = 0; at < lengths[i]; at++)
                values[i][at] = (char)random_below(random, 256);
            put_bulk(client->request, &client->asked, values[i], lengths[i]);
            client->answered += (size_t)sprintf(client->reply + client->answered, "+OK\r\n");
        }
}

static bool holds_no_input(void *context)
{
    static char list[8192];
    int fd = *(int *)context;
    size_t length = 0;
    assert_true(serving_say(fd, "CLIENT LIST\r\n"));
    unsigned long there = 0;
    while (length < 2 || memcmp(list + length - 2, "\r\n", 2) != 0)
        assert_true(serving_receive(fd, list + length++, 1));
    assert_int_equal(sscanf(list, "$%lu", &there), 1);
    assert_true(there + 2 < sizeof list);
    assert_true(serving_receive(fd, list, there + 2));
    list[there] = 0;
    unsigned idle = 0; /* all but the one that asks */
    for (const char *at = list; (at = strstr(at, " qbuf=0 qbuf-free=0 ")) != NULL; at++)
        idle++;
    return idle == CLIENTS;
}

static void long_values_in_pipelines(void **state)
{
    struct serving serving;
    struct client clients[CLIENTS];
    struct random random;
    (void)state;
    random_seed(&random, 11);
    serving_prepare(&serving, 1);
    serving_start(&serving);
    for (unsigned c = 0; c < CLIENTS; c++) {
        const size_t most = 2 * VALUES * (VALUE_MAX + 100);
        clients[c] =
            (struct client){.fd = serving_connect(&serving), .request = malloc(most), .reply = malloc(most)};
        assert_true(clients[c].request && clients[c].reply);
        pipeline_make(&clients[c], c, &random);
    }
    for (size_t sent[CLIENTS] = {0}, rest = 1; rest;) {
        rest = 0;
        for (unsigned c = 0; c < CLIENTS; c++) { /* pieces that end anywhere */
            const size_t left = clients[c].asked - sent[c], piece = 1 + (size_t)random_below(&random, 100000);
            assert_true(
                serving_send(clients[c].fd, clients[c].request + sent[c], left < piece ? left : piece));
            sent[c] += left < piece ? left : piece;
            rest += clients[c].asked - sent[c];
        }
    }
    for (unsigned c = 0; c < CLIENTS; c++) {
        char *got = malloc(clients[c].answered);
        assert_non_null(got);
        assert_true(serving_receive(clients[c].fd, got, clients[c].answered));
        assert_memory_equal(got, clients[c].reply, clients[c].answered);
        free(got);
    }
    int watcher = serving_connect(&serving);
    assert_true(serving_until(holds_no_input, &watcher)); /* idle connections own no buffer */
    close(watcher);
    for (unsigned c = 0; c < CLIENTS; c++) {
        close(clients[c].fd);
        free(clients[c].request);
        free(clients[c].reply);
    }
    serving_end(&serving);
}

/* Of a pipeline no more than a block is read before its first request is answered: so none waits until all of
 * another's have been read. */
static void the_first_request_waits_for_no_rest(void **state)
{
    enum { LENGTH = 10000, REQUESTS = 30, ROUNDS = 50 };
    static char pipeline[REQUESTS * (LENGTH + 64)], value[LENGTH], line[1024];
    struct serving serving;
    size_t length = (size_t)sprintf(pipeline, "*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n");
    (void)state;
    memset(value, 'v', sizeof value);
    for (unsigned i = 0; i < REQUESTS - 1; i++) {
        length += (size_t)sprintf(pipeline + length, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n");
        put_bulk(pipeline, &length, value, sizeof value);
    }
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int fd = serving_connect(&serving);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned long there = 0, unparsed = 0, room = 0;
        assert_true(serving_send(fd, pipeline, length));
        for (size_t at = 0; !at || line[at - 1] != '\n'; at++)
            assert_true(at < sizeof line && serving_receive(fd, line + at, 1));
        assert_int_equal(sscanf(line, "$%lu", &there), 1);
        assert_true(there + 2 < sizeof line && serving_receive(fd, line, there + 2));
        line[there] = 0;
        const char *shown = strstr(line, " qbuf=");
        assert_non_null(shown);
        assert_int_equal(sscanf(shown, " qbuf=%lu qbuf-free=%lu", &unparsed, &room), 2);
        assert_true(unparsed + room <= BUFFER_BLOCK_BYTES);
        for (unsigned i = 0; i < REQUESTS - 1; i++)
            serving_expect(fd, "+OK\r\n");
    }
    close(fd);
    serving_end(&serving);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_grown_is_taken_again), cmocka_unit_test(what_lies_unused_goes),
        cmocka_unit_test(long_values_in_pipelines), cmocka_unit_test(the_first_request_waits_for_no_rest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
