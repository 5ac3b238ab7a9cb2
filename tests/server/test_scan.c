/*
 * test_scan.c - many clients that scan at once, on a real server: every one of them comes to its end and is
 * given every key, however many others scan, whatever they leave unfinished, and by whichever connection each
 * of its calls comes.
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

#include "serving.h"

#define KEYS     150000u
#define CLIENTS  12u
#define PIPELINE 1000u

/* Names as programs make them: a long common beginning, then a number. */
#define PREFIX "customer:profile:eu-central-1:00000000"

struct reader {
    int fd;
    char bytes[65536];
    size_t at, end;
};

static char reader_byte(struct reader *reader)
{
    if (reader->at == reader->end) {
        ssize_t got = read(reader->fd, reader->bytes, sizeof reader->bytes);
        assert_true(got > 0);
        reader->at = 0;
        reader->end = (size_t)got;
    }
    return reader->bytes[reader->at++];
}

/* One line without its end; "*2" and the like. */
static void reader_line(struct reader *reader, char *line, size_t size)
{
    size_t length = 0;
    for (char c; (c = reader_byte(reader)) != '\n';)
        if (c != '\r') {
            assert_true(length + 1 < size);
            line[length++] = c;
        }
    line[length] = 0;
}

static uint64_t reader_number(struct reader *reader, char kind)
{
    char line[64];
    reader_line(reader, line, sizeof line);
    assert_int_equal(*line, kind);
    return strtoull(line + 1, NULL, 10);
}

struct client {
    struct reader readers[2]; /* connections, of which it uses either */
    uint64_t cursor;
    unsigned calls;
    bool done;
    uint8_t *seen;
};

static void load(const struct serving *serving)
{
    struct reader *reader = calloc(1, sizeof *reader);
    char *text = malloc(PIPELINE * 128), line[16];
    assert_true(reader && text);
    reader->fd = serving_connect(serving);
    for (unsigned i = 0; i < KEYS;) {
        size_t length = 0;
        for (unsigned j = 0; j < PIPELINE; j++, i++)
            length += (size_t)sprintf(text + length, "SET " PREFIX "%06u 1\r\n",
                                      (unsigned)((uint64_t)i * 7919 % KEYS));
        assert_true(serving_send(reader->fd, text, length));
        for (unsigned j = 0; j < PIPELINE; j++) {
            reader_line(reader, line, sizeof line);
            assert_string_equal(line, "+OK");
        }
    }
    close(reader->fd);
    free(reader);
    free(text);
}

static struct reader *client_reader(struct client *client)
{
    return &client->readers[client->calls % 2];
}

static void client_ask(struct client *client, unsigned count)
{
    char text[64];
    snprintf(text, sizeof text, "SCAN %llu COUNT %u\r\n", (unsigned long long)client->cursor, count);
    assert_true(serving_say(client_reader(client)->fd, text));
}

static void client_receive(struct client *client)
{
    struct reader *reader = client_reader(client);
    char line[128];
    assert_int_equal(reader_number(reader, '*'), 2);
    reader_number(reader, '$');
    reader_line(reader, line, sizeof line);
    client->cursor = strtoull(line, NULL, 10);
    for (uint64_t keys = reader_number(reader, '*'); keys; keys--) {
        assert_int_equal(reader_number(reader, '$'), sizeof PREFIX - 1 + 6);
        reader_line(reader, line, sizeof line);
        unsigned number = (unsigned)strtoul(line + sizeof PREFIX - 1, NULL, 10);
        assert_true(number < KEYS);
        client->seen[number] = 1;
    }
    client->calls++;
    client->done = !client->cursor;
    assert_true(client->calls < KEYS);
}

/* Every other client scans with a small COUNT; one begins scan after scan and finishes none. */
static void scan_together(struct client *clients, struct reader *idle)
{
    for (unsigned left = CLIENTS; left;) {
        char text[64];
        for (unsigned i = 0; i < 20; i++) {
            assert_true(serving_say(idle->fd, "SCAN 0 COUNT 1\r\n"));
            assert_int_equal(reader_number(idle, '*'), 2);
            reader_number(idle, '$');
            reader_line(idle, text, sizeof text);
            assert_string_not_equal(text, "0");
            for (uint64_t lines = 2 * reader_number(idle, '*'); lines; lines--)
                reader_line(idle, text, sizeof text);
        }
        for (unsigned i = 0; i < CLIENTS; i++)
            if (!clients[i].done)
                client_ask(&clients[i], i % 2 ? 10 : 1000);
        for (unsigned i = 0; i < CLIENTS; i++)
            if (!clients[i].done) {
                client_receive(&clients[i]);
                left -= clients[i].done;
            }
    }
}

static void test_scans_together(void **state)
{
    static struct serving serving;
    (void)state;
    struct client *clients = calloc(CLIENTS, sizeof *clients);
    struct reader *idle = calloc(1, sizeof *idle);
    assert_true(clients && idle);
    serving_prepare(&serving, 2);
    serving_start(&serving);
    load(&serving);
    idle->fd = serving_connect(&serving);
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i].seen = calloc(KEYS, 1);
        assert_non_null(clients[i].seen);
        for (unsigned j = 0; j < 2; j++)
            clients[i].readers[j].fd = serving_connect(&serving);
    }
    scan_together(clients, idle);
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_null(memchr(clients[i].seen, 0, KEYS));
        free(clients[i].seen);
        close(clients[i].readers[0].fd);
        close(clients[i].readers[1].fd);
    }
    close(idle->fd);
    free(idle);
    free(clients);
    serving_end(&serving);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scans_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
