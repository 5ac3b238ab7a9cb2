/*
 * test_defrag.c - active defragmentation in a running server: sparse chunks are emptied while clients read
 * and write, only while it is switched on, at once after a write was refused; CONFIG and INFO tell.
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

#include "base/random.h"
#include "serving.h"

#define KEYS 40000u
#define LEFT 5u /* every so manieth key is left */

static struct serving serving;
static redisContext *client;

static int set_up(void **state)
{
    (void)state;
    serving_prepare(&serving, 2);
    serving.pool_bytes = UINT64_C(64) << 20;
    serving_start(&serving);
    client = redisConnect("127.0.0.1", serving_port(&serving, 0));
    return !client || client->err ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    redisFree(client);
    serving_end(&serving);
    return 0;
}

static redisReply *call(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(client, format, arguments);
    va_end(arguments);
    assert_non_null(reply);
    return reply;
}

static void expect_ok(redisReply *reply)
{
    assert_int_equal(reply->type, REDIS_REPLY_STATUS);
    assert_string_equal(reply->str, "OK");
    freeReplyObject(reply);
}

static uint64_t info(const char *field)
{
    redisReply *reply = call("INFO everything");
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\n%s:", field);
    const char *at = strstr(reply->str, wanted);
    assert_non_null(at);
    uint64_t value = strtoull(at + strlen(wanted), NULL, 10);
    freeReplyObject(reply);
    return value;
}

/* ---- values ---- */

static size_t length_of(unsigned number)
{
    return 200 + random_mix(number) % 1200;
}

static char letter_of(unsigned number)
{
    return (char)('a' + random_mix(number) / 7 % 26);
}

static void replies_drain(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        redisReply *reply = NULL;
        assert_int_equal(redisGetReply(client, (void **)&reply), REDIS_OK);
        assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
        freeReplyObject(reply);
    }
}

static void fill(void)
{
    char value[1400];
    for (unsigned i = 0; i < KEYS; i++) {
        memset(value, letter_of(i), sizeof value);
        redisAppendCommand(client, "SET key:%u %b", i, value, length_of(i));
        if (i % 200 == 199)
            replies_drain(200);
    }
}

static void delete_most(void)
{
    unsigned sent = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        if (random_mix(i) % LEFT == 0)
            continue;
        redisAppendCommand(client, "DEL key:%u", i);
        sent++;
    }
    replies_drain(sent);
}

static void expect_left(void)
{
    for (unsigned i = 0; i < KEYS; i += 3) {
        redisReply *reply = call("GET key:%u", i);
        if (random_mix(i) % LEFT) {
            assert_int_equal(reply->type, REDIS_REPLY_NIL);
        } else {
            assert_int_equal(reply->type, REDIS_REPLY_STRING);
            assert_int_equal(reply->len, length_of(i));
            for (size_t at = 0; at < reply->len; at++)
                assert_int_equal(reply->str[at], letter_of(i));
        }
        freeReplyObject(reply);
    }
}

/* ---- tests ---- */

static bool emptied(void *context)
{
    const uint64_t *before = context;
    expect_ok(call("SET busy %u", 1));
    return info("active_defrag_hits") > 0 && info("allocator_frag_bytes") < *before / 2;
}

static bool resting(void *context)
{
    (void)context;
    return info("active_defrag_running") == 0;
}

static void chunks_are_emptied(void **state)
{
    (void)state;
    expect_ok(call("CONFIG SET activedefrag no active-defrag-cycle-min 50 active-defrag-cycle-max 90 "
                   "active-defrag-ignore-bytes 1mb"));
    fill();
    delete_most();
    uint64_t fragmented = info("allocator_frag_bytes");
    assert_true(fragmented > UINT64_C(8) << 20);
    assert_int_equal(info("active_defrag_hits"), 0);
    assert_int_equal(info("total_active_defrag_time"), 0);
    expect_ok(call("CONFIG SET activedefrag yes"));
    assert_true(serving_until(emptied, &fragmented));
    expect_left();
    assert_true(info("active_defrag_key_hits") > 0);
    assert_true(info("active_defrag_key_misses") > 0);
    assert_true(info("active_defrag_bytes") > 0);
    assert_true(info("active_defrag_passes") > 0);
    expect_ok(call("CONFIG SET activedefrag no"));
    assert_true(serving_until(resting, NULL));
    expect_left();
}

static bool stored(void *context)
{
    redisReply *reply = call("SET long %b", context, (size_t)3000000);
    bool done = reply->type == REDIS_REPLY_STATUS;
    if (!done)
        assert_memory_equal(reply->str, "OOM ", 4);
    freeReplyObject(reply);
    return done;
}

/* The thresholds are not reached: it is the refusal that makes it work. */
static void a_refusal_makes_room(void **state)
{
    (void)state;
    char *value = calloc(1, 3000000);
    assert_non_null(value);
    memset(value, 'x', 3000000);
    expect_ok(call("CONFIG SET active-defrag-threshold-lower 1000 active-defrag-threshold-upper 1000"));
    unsigned count = 0;
    for (redisReply *reply;; count++) { /* full: a thousand bytes do not fit any more */
        reply = call("SET full:%u %b", count, value, (size_t)1000);
        bool done = reply->type == REDIS_REPLY_ERROR;
        freeReplyObject(reply);
        if (done)
            break;
    }
    for (unsigned i = 0; i < count; i += 4)
        freeReplyObject(call("DEL full:%u", i));
    assert_true(serving_until(stored, value));
    free(value);
}

static void expect_refused(const char *name, const char *value)
{
    redisReply *reply = call("CONFIG SET %s %s", name, value);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

static void expect_setting(const char *name, const char *value)
{
    redisReply *reply = call("CONFIG GET %s", name);
    assert_int_equal(reply->elements, 2);
    assert_string_equal(reply->element[1]->str, value);
    freeReplyObject(reply);
}

static void settings(void **state)
{
    (void)state;
    expect_setting("activedefrag", "yes");
    expect_setting("active-defrag-cycle-max", "5");
    expect_refused("activedefrag", "maybe");
    expect_refused("active-defrag-cycle-min", "0");
    expect_refused("active-defrag-cycle-max", "100");
    expect_refused("active-defrag-threshold-lower", "1001");
    expect_refused("active-defrag-ignore-bytes", "0");
    expect_ok(call("CONFIG SET active-defrag-ignore-bytes 64mb active-defrag-cycle-max 25 activedefrag NO"));
    expect_setting("active-defrag-ignore-bytes", "67108864");
    expect_setting("active-defrag-cycle-max", "25");
    expect_setting("activedefrag", "no");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(chunks_are_emptied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refusal_makes_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(settings, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
