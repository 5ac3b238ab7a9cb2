/*
 * test_cut.c - CUT in a running server: what it replies, whose it is, its limit; and what it holds while many
 * clients change keys through servers of one and of several threads, must be what all of them held together
 * at one moment. For the thread sanitizer too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "base/atomic.h"
#include "base/random.h"
#include "base/task.h"
#include "base/thread.h"
#include "moment.h"
#include "serving.h"

static struct serving serving;

static void begin(unsigned threads, bool alone)
{
    serving_prepare(&serving, threads);
    serving.pool_bytes = UINT64_C(256) << 20;
    serving.options.alone = alone;
    serving_start(&serving);
}

static redisContext *client_open(void)
{
    redisContext *client = redisConnect("127.0.0.1", serving_port(&serving, 0));
    if (!client || client->err)
        abort();
    return client;
}

/* The reply as one of 8 texts: "OK", "7", "(nil)", "-ERR ...", "[a b 7]". */
static void text_of(const redisReply *reply, char *text, size_t size)
{
    size_t length = strlen(text);
    if (reply->type == REDIS_REPLY_INTEGER)
        snprintf(text + length, size - length, "%lld", reply->integer);
    else if (reply->type == REDIS_REPLY_NIL)
        snprintf(text + length, size - length, "(nil)");
    else if (reply->type != REDIS_REPLY_ARRAY)
        snprintf(text + length, size - length, "%s%s", reply->type == REDIS_REPLY_ERROR ? "-" : "",
                 reply->str);
    else {
        strcat(text, "[");
        for (size_t i = 0; i < reply->elements; i++) {
            strcat(text, i ? " " : "");
            text_of(reply->element[i], text, size);
        }
        strcat(text, "]");
    }
}

static const char *ask(redisContext *client, const char *format, ...)
{
    static char text[4096];
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(client, format, arguments);
    va_end(arguments);
    assert_non_null(reply);
    *text = 0;
    text_of(reply, text, sizeof text);
    freeReplyObject(reply);
    return text;
}

#define EXPECT(client, wanted, ...) assert_string_equal(ask(client, __VA_ARGS__), wanted)
#define CONTAINS(client, part, ...) assert_non_null(strstr(ask(client, __VA_ARGS__), part))

static uint64_t figure(redisContext *client, const char *name)
{
    redisReply *reply = redisCommand(client, "INFO stats");
    assert_non_null(reply);
    const char *at = strstr(reply->str, name);
    assert_non_null(at);
    const uint64_t value = strtoull(at + strlen(name) + 1, NULL, 10);
    freeReplyObject(reply);
    return value;
}

static bool none_left(void *client)
{
    return !figure(client, "cuts_open") && !figure(client, "cut_memory");
}

/* ---- replies ---- */

static void replies(void **state)
{
    begin(2, true);
    redisContext *a = client_open(), *b = client_open();
    CONTAINS(a, "-ERR this connection has no cut", "CUT NEXT");
    EXPECT(a, "0", "CUT CLOSE");
    CONTAINS(a, "-ERR unknown subcommand", "CUT OTHER");
    CONTAINS(a, "wrong number of arguments", "CUT OPEN -");
    CONTAINS(a, "-ERR min or max", "CUT OPEN a b");
    CONTAINS(a, "OPEN", "CUT HELP");
    EXPECT(b, "OK", "MSET a 1 b 2 c 3 d 4");
    EXPECT(b, "OK", "SET e 5 PXAT 4102444800000");
    EXPECT(a, "OK", "CUT OPEN");
    CONTAINS(a, "-ERR count should be", "CUT NEXT 0");
    CONTAINS(a, "-ERR value is not an integer", "CUT NEXT x");
    EXPECT(b, "4", "DEL a b c d");
    EXPECT(b, "OK", "SET f 6");
    EXPECT(a, "[a 1 -1 b 2 -1]", "CUT NEXT 2");
    EXPECT(a, "[c 3 -1 d 4 -1 e 5 4102444800000]", "CUT NEXT");
    EXPECT(a, "[]", "CUT NEXT");
    EXPECT(a, "[]", "CUT NEXT");
    EXPECT(a, "1", "CUT CLOSE");
    EXPECT(a, "OK", "CUT OPEN (e [f");
    EXPECT(a, "[f 6 -1]", "CUT NEXT");
    EXPECT(a, "OK", "CUT OPEN (f (f"); /* instead of the one before */
    EXPECT(a, "[]", "CUT NEXT");
    EXPECT(a, "OK", "CUT OPEN [z [a");
    EXPECT(a, "[]", "CUT NEXT");
    assert_int_equal(figure(b, "cuts_open"), 1);
    EXPECT(a, "RESET", "RESET");
    assert_true(serving_until(none_left, b));
    CONTAINS(a, "-ERR this connection has no cut", "CUT NEXT");
    redisFree(a);
    redisFree(b);
    serving_end(&serving);
}

static void others_write_too(void **state)
{
    begin(1, false);
    redisContext *a = client_open();
    CONTAINS(a, "-NOCUT ", "CUT OPEN");
    redisFree(a);
    serving_end(&serving);
}

/* Clients that are gone leave no cut behind; no more than four are open at once. */
static void ends_with_the_connection(void **state)
{
    redisContext *clients[4], *other;
    begin(2, true);
    other = client_open();
    EXPECT(other, "OK", "MSET a 1 b 2 c 3");
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 4; i++) {
            clients[i] = client_open();
            EXPECT(clients[i], "OK", "CUT OPEN");
            EXPECT(clients[i], "[a 1 -1]", "CUT NEXT 1");
        }
        CONTAINS(other, "-BUSY 4 cuts are open", "CUT OPEN");
        EXPECT(other, "1", "DEL b");
        EXPECT(other, "OK", "SET b 2");
        assert_true(figure(other, "cut_memory") > 0);
        for (unsigned i = 0; i < 4; i++)
            redisFree(clients[i]);
        assert_true(serving_until(none_left, other));
    }
    redisFree(other);
    serving_end(&serving);
}

static void memory_limit(void **state)
{
    static char value[200000];
    begin(2, true);
    redisContext *a = client_open(), *b = client_open();
    memset(value, 'v', sizeof value);
    for (unsigned i = 0; i < 10; i++)
        EXPECT(b, "OK", "SET key%u %b", i, value, sizeof value);
    EXPECT(b, "OK", "CONFIG SET cut-memory-max 1mb");
    EXPECT(b, "[cut-memory-max 1048576]", "CONFIG GET cut-memory-max");
    EXPECT(a, "OK", "CUT OPEN");
    for (unsigned i = 0; i < 10; i++)
        EXPECT(b, "OK", "SET key%u other", i);
    assert_int_equal(figure(b, "cuts_failed"), 1);
    CONTAINS(a, "-OOM the cut was given up", "CUT NEXT");
    CONTAINS(a, "-ERR this connection has no cut", "CUT NEXT");
    assert_true(serving_until(none_left, b));
    redisFree(a);
    redisFree(b);
    serving_end(&serving);
}

/* All keys go at once, while they are read. */
static void flushed(void **state)
{
    unsigned keys = 0, parts = 0;
    begin(2, true);
    redisContext *a = client_open(), *b = client_open();
    for (unsigned i = 0; i < 5000; i++)
        redisAppendCommand(b, "SET key%05u %u%s", i * 7919 % 5000, i,
                           i % 10 ? "" : "-long-enough-for-a-record");
    for (unsigned i = 0; i < 5000; i++) {
        redisReply *reply;
        assert_int_equal(redisGetReply(b, (void **)&reply), REDIS_OK);
        freeReplyObject(reply);
    }
    EXPECT(a, "OK", "CUT OPEN");
    for (bool ended = false; !ended; parts++) {
        redisReply *reply = redisCommand(a, "CUT NEXT 300");
        assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
        for (size_t i = 0; i < reply->elements; i += 3) {
            char wanted[16];
            snprintf(wanted, sizeof wanted, "key%05u", keys++);
            assert_string_equal(reply->element[i]->str, wanted);
        }
        ended = !reply->elements;
        freeReplyObject(reply);
        if (parts == 2)
            EXPECT(b, "OK", "FLUSHALL");
    }
    assert_int_equal(keys, 5000);
    EXPECT(b, "0", "DBSIZE");
    redisFree(a);
    assert_true(serving_until(none_left, b));
    redisFree(b);
    serving_end(&serving);
}

/* ---- many clients ---- */

#define WRITERS 4u
#define READERS 2u
#define CUTS    6u /* of each reader */
#define FILLERS 3000u

struct load {
    uint64_t clock;
    uint32_t reading; /* atomic: readers that are not done */
    struct moment_client clients[WRITERS];
    struct moment_view views[READERS * CUTS];
    uint32_t broken; /* atomic */
};
struct hand {
    struct load *load;
    unsigned number;
    struct thread *thread;
};

static void complain(struct load *load, const char *what, const char *more)
{
    fprintf(stderr, "%s: %s\n", what, more ? more : "the connection is lost");
    atomic_store_relaxed(&load->broken, 1u); /* read when all threads have ended */
}

static void send_one(struct load *load, redisContext *client, int count, const char *const *arguments,
                     const size_t *lengths)
{
    redisReply *reply = redisCommandArgv(client, count, (const char **)(uintptr_t)arguments, lengths);
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        complain(load, *arguments, reply ? reply->str : NULL);
    freeReplyObject(reply);
}

/* A value is a number of 8 digits, and x behind it. */
static size_t value_make(struct random *random, uint64_t number, char *value)
{
    const uint64_t draw = random_below(random, 40);
    const size_t length = draw == 0 ? 80000 : draw < 10 ? 100 + 10 * draw : 8;
    snprintf(value, 9, "%08u", (unsigned)number);
    memset(value + 8, 'x', length - 8);
    return length;
}

static void write_one(struct hand *hand, redisContext *client, struct random *random, char *value)
{
    struct load *load = hand->load;
    struct moment_client *moments = &load->clients[hand->number];
    char keys[MOMENT_BATCH][32], numbers[MOMENT_BATCH][16];
    const char *arguments[2 * MOMENT_BATCH + 1] = {"MSET"};
    size_t lengths[2 * MOMENT_BATCH + 1] = {4};
    const uint64_t kind = random_below(random, 100);
    const unsigned count = kind < 10 ? MOMENT_BATCH : 1;
    const uint32_t first = (uint32_t)random_below(random, MOMENT_KEYS);
    moment_begin(moments, &load->clock);
    for (unsigned i = 0; i < count; i++) {
        const uint32_t key = (first + 11 * i) % MOMENT_KEYS;
        const uint64_t number = moments->count * MOMENT_BATCH + i;
        moment_add(moments, key, kind >= 80 ? 0 : number);
        arguments[2 * i + 1] = keys[i];
        lengths[2 * i + 1] =
            (size_t)snprintf(keys[i], sizeof *keys, "%02u/%u/%02u", key % 10, hand->number, key);
        arguments[2 * i + 2] = numbers[i];
        lengths[2 * i + 2] = (size_t)snprintf(numbers[i], sizeof *numbers, "%08u", (unsigned)number);
    }
    if (kind >= 10 && kind < 50) {
        lengths[2] = value_make(random, moments->count * MOMENT_BATCH, value);
        arguments[2] = value;
    }
    if (kind < 10) {
        send_one(load, client, 2 * (int)count + 1, arguments, lengths);
    } else if (kind < 50) {
        const char *const set[] = {"SET", keys[0], value, "PX", "100000000"};
        const size_t set_lengths[] = {3, lengths[1], lengths[2], 2, 9};
        send_one(load, client, kind % 2 ? 3 : 5, set, set_lengths);
    } else if (kind < 80) {
        const char *const splice[] = {"SETRANGE", keys[0], "0", numbers[0]};
        const size_t splice_lengths[] = {8, lengths[1], 1, lengths[2]};
        send_one(load, client, 4, splice, splice_lengths);
    } else {
        const char *const drop[] = {kind < 90 ? "DEL" : "GETDEL", keys[0]};
        const size_t drop_lengths[] = {strlen(drop[0]), lengths[1]};
        send_one(load, client, 2, drop, drop_lengths);
    }
    moment_end(moments, &load->clock);
}

static void write_on(void *context)
{
    struct hand *hand = context;
    struct random random;
    redisContext *client = client_open();
    char *value = malloc(100000);
    random_seed(&random, hand->number + 1);
    while (atomic_load_relaxed(&hand->load->reading) && !client->err) /* a hint that it is over */
        write_one(hand, client, &random, value);
    free(value);
    redisFree(client);
}

static void view_add(struct load *load, struct moment_view *view, const redisReply *key,
                     const redisReply *value)
{
    unsigned lane, writer, number;
    bool right = value->len >= 8;
    for (size_t i = 8; i < value->len; i++)
        right = right && value->str[i] == 'x';
    if (strstr(key->str, "filler"))
        return;
    if (!right || sscanf(key->str, "%u/%u/%u", &lane, &writer, &number) != 3 || writer >= WRITERS ||
        number >= MOMENT_KEYS) {
        complain(load, "this key or its value is of nobody", key->str);
        return;
    }
    char digits[9] = "";
    memcpy(digits, value->str, 8);
    view->values[writer][number] = strtoull(digits, NULL, 10);
}

static void cut_read(struct load *load, redisContext *client, struct moment_view *view)
{
    size_t elements = 1;
    view->values = calloc(WRITERS, sizeof *view->values);
    view->opened_from = moment_stamp(&load->clock);
    redisReply *reply = redisCommand(client, "CUT OPEN");
    view->opened_to = moment_stamp(&load->clock);
    if (!reply || reply->type != REDIS_REPLY_STATUS)
        complain(load, "CUT OPEN", reply ? reply->str : NULL);
    freeReplyObject(reply);
    while (elements) {
        reply = redisCommand(client, "CUT NEXT 100");
        elements = reply && reply->type == REDIS_REPLY_ARRAY ? reply->elements : 0;
        if (!reply || reply->type != REDIS_REPLY_ARRAY)
            complain(load, "CUT NEXT", reply ? reply->str : NULL);
        for (size_t i = 0; i + 2 < elements; i += 3)
            view_add(load, view, reply->element[i], reply->element[i + 1]);
        freeReplyObject(reply);
    }
}

/* Opens a cut, begins to read it, and is gone. */
static void vanish(void)
{
    redisContext *client = client_open();
    freeReplyObject(redisCommand(client, "CUT OPEN"));
    freeReplyObject(redisCommand(client, "CUT NEXT 10"));
    redisAppendCommand(client, "CUT NEXT 1000");
    int done = 0;
    while (!done && redisBufferWrite(client, &done) == REDIS_OK)
        ;
    redisFree(client);
}

static void read_on(void *context)
{
    struct hand *hand = context;
    redisContext *client = client_open();
    for (unsigned i = 0; i < CUTS && !client->err; i++) {
        cut_read(hand->load, client, &hand->load->views[hand->number * CUTS + i]);
        if (!hand->number)
            vanish();
    }
    redisFree(client);
    atomic_add_relaxed(&hand->load->reading, (uint32_t)-1); /* as above */
}

static void one_moment(unsigned threads)
{
    struct load load = {.reading = READERS};
    struct hand hands[WRITERS + READERS];
    struct error error = {0};
    bool right = true;
    begin(threads, true);
    redisContext *client = client_open();
    for (unsigned i = 0; i < FILLERS; i++)
        EXPECT(client, "OK", "SET %02u/filler/%u filler", i % 10, i);
    for (unsigned i = 0; i < WRITERS + READERS; i++) {
        hands[i] = (struct hand){.load = &load, .number = i < WRITERS ? i : i - WRITERS};
        assert_int_equal(thread_start(&hands[i].thread, i < WRITERS ? write_on : read_on, &hands[i], &error),
                         0);
    }
    for (unsigned i = 0; i < WRITERS + READERS; i++)
        thread_join(hands[i].thread);
    for (unsigned i = 0; i < READERS * CUTS; i++) {
        unsigned wrong = 0;
        if (load.views[i].values && !moment_judge(load.clients, WRITERS, &load.views[i], &wrong)) {
            fprintf(stderr, "cut %u is of no moment: client %u of %u\n", i, wrong, WRITERS);
            right = false;
        }
        free(load.views[i].values);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        moment_client_free(&load.clients[i]);
    assert_true(right && !load.broken);
    assert_true(figure(client, "cut_values_saved") > 0);
    assert_true(serving_until(none_left, client));
    redisFree(client);
    serving_end(&serving);
}

static void one_thread(void **state)
{
    one_moment(1);
}

static void three_threads(void **state)
{
    one_moment(3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies),
        cmocka_unit_test(others_write_too),
        cmocka_unit_test(ends_with_the_connection),
        cmocka_unit_test(memory_limit),
        cmocka_unit_test(flushed),
        cmocka_unit_test(one_thread),
        cmocka_unit_test(three_threads),
    };
    return cmocka_run_group_tests_name("server_cut", tests, NULL, NULL);
}
