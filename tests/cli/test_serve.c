/*
 * test_serve.c - `banyan serve` as people meet it first: where it listens, what it says of settings that make
 * no sense or that this machine cannot fulfil, and what it says at its end. The program is $BANYAN_PROGRAM.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cluster/process.h"

static struct process_result result;

static void refuses(struct scene *scene, const char *const *arguments, const char *part)
{
    process_run(scene, NULL, arguments, &result);
    if (result.code != 2 || !strstr(result.error, part))
        fail_msg("ended with %d, and not 2 and '%s': %s%s", result.code, part, result.output, result.error);
}

static void mistakes_are_told(void **state)
{
    struct scene *scene = *state;
    refuses(scene, ARGUMENTS("serve", "--threads", "-1"),
            "option threads: '-1' is not a whole number from 0 to 256\n");
    refuses(scene, ARGUMENTS("serve", "--threads=many"),
            "option threads: 'many' is not a whole number from 0 to 256\n");
    refuses(scene, ARGUMENTS("serve", "--threads", "257"),
            "option threads: 257 is not in the range 0 to 256\n");
    refuses(scene, ARGUMENTS("serve", "--idle-timeout", "x"),
            "option idle-timeout: 'x' is not a whole number from 0 to 1000000000 s\n");
    refuses(scene, ARGUMENTS("serve", "--size", "x"), "option size: 'x' is not a size");
    refuses(scene, ARGUMENTS("serve", "--size", "1M"), "option size: 1M is not in the range 16M to 64T\n");
    refuses(scene, ARGUMENTS("memory", "--size", "1M"), "option size: 1M is not in the range 16M to 64T\n");
    refuses(scene, ARGUMENTS("serve", "--port", "65536"),
            "option port: 65536 is not in the range 1 to 65535\n");
    refuses(scene, ARGUMENTS("serve", "--listen", "127.0.0.1:0", "--port", "7410"),
            "port: each address of listen has a port of its own, so this one counts nowhere");
    refuses(scene, ARGUMENTS("serve", "--listen", "70000"),
            "listen: address \"127.0.0.1:70000\": the port is not");
    refuses(scene, ARGUMENTS("compute", "--memory", "127.0.0.1:1", "--fabric-key", "key.pem"),
            "fabric-key is of no use without fabric-certificate");
    refuses(scene,
            ARGUMENTS("compute", "--memory", "127.0.0.1:1", "--fabric-key", "key.pem", "--fabric-authority",
                      "ca.pem"),
            "fabric-key is of no use without fabric-certificate");
    refuses(scene, ARGUMENTS("serve", "--log", "auto"),
            "log: the pool is this process's own memory, so a log would save no round trip");
    refuses(scene, ARGUMENTS("serve", "--log-copies", "2"), "log-copies");
    refuses(scene, ARGUMENTS("compute", "--log", "some"), "option log: 'some' is none of auto, none\n");
    refuses(scene, ARGUMENTS("compute", "--log-copies", "3"),
            "option log-copies: 3 is not in the range 1 to 2");
    refuses(scene, ARGUMENTS("compute", "--log-segment-bytes", "9M"),
            "option log-segment-bytes: 9M is not in the range 64K to 8M\n");
    refuses(scene, ARGUMENTS("compute", "--log-wait", "0"),
            "option log-wait: 0 is not in the range 1 to 600000 ms\n");
    refuses(scene, ARGUMENTS("compute", "--log-wait", "x"),
            "option log-wait: 'x' is not a whole number from 1 to 600000 ms\n");
    refuses(scene, ARGUMENTS("memory", "--log-bytes", "1K"),
            "1024 bytes for owners' logs: not from 512 KiB to half of the pool of 1073741824 bytes\n");
    refuses(scene, ARGUMENTS("memory", "--size", "64M", "--log-bytes", "60M"),
            "not from 512 KiB to half of the pool of 67108864 bytes\n");
    refuses(scene, ARGUMENTS("recover"), "no memory nodes are named: give --memory");
    refuses(scene, ARGUMENTS("recover", "--accept-loss=maybe"),
            "option accept-loss: 'maybe' is neither on nor off\n");
    refuses(scene, ARGUMENTS("recover", "--compute", "70000"),
            "option compute: 70000 is not in the range 0 to 65535");
    scene->passed = true;
}

/* What is told of the options of the owner's log. */
static void help_names_the_log(void **state)
{
    struct scene *scene = *state;
    static const char *const told[][2] = {{"compute", "--log=auto|none"},
                                          {"compute", "--log-copies=N"},
                                          {"compute", "--log-segment-bytes=BYTES"},
                                          {"compute", "--log-wait=ms"},
                                          {"memory", "--log-bytes=BYTES"},
                                          {"recover", "--accept-loss"},
                                          {"recover", "--compute=ID"},
                                          {"recover", "Exit status: 0 when nothing of a log"}};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        process_run(scene, NULL, ARGUMENTS(told[i][0], "--help"), &result);
        assert_int_equal(result.code, 0);
        if (!strstr(result.output, told[i][1]))
            fail_msg("banyan %s --help has no %s:\n%s", told[i][0], told[i][1], result.output);
    }
    scene->passed = true;
}

static void versions(void **state)
{
    struct scene *scene = *state;
    static const char *const commands[] = {"serve", "compute", "memory", "check"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        process_run(scene, NULL, ARGUMENTS(commands[i], "--version"), &result);
        assert_int_equal(result.code, 0);
        assert_memory_equal(result.output, "banyan 0.", 9);
    }
    scene->passed = true;
}

static void expect_pong(const struct net_address *address)
{
    redisContext *context = client_connect(address);
    redisReply *reply = redisCommand(context, "PING");
    assert_string_equal(reply->str, "PONG");
    freeReplyObject(reply);
    redisFree(context);
}

/* A port that is free now; the test's servers take it one after the other. */
static unsigned port_free(struct scene *scene)
{
    struct process *server =
        process_start(scene, "finder", ARGUMENTS("serve", "--size=64M", "--listen", "0"));
    struct net_address address = process_address(server, 0);
    assert_string_equal(address.host, "127.0.0.1"); /* a number alone is a port of this machine */
    expect_pong(&address);
    assert_int_equal(process_stop(server), 0);
    return address.port;
}

static void ports(void **state)
{
    struct scene *scene = *state;
    const char *port = strdup(text_of("%u", port_free(scene)));
    const char *const ways[][5] = {
        {"serve", "--size=64M", "--port", port, NULL},
        {"serve", "--size=64M", "--listen", port, NULL},
        {"serve", "--size=64M", "--listen=localhost", text_of("--port=%s", port), NULL}};
    struct process *server = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (server)
            process_restart(scene, server, ways[i]);
        else
            server = process_start(scene, "server", ways[i]);
        struct net_address address = process_address(server, 0);
        assert_int_equal(address.port, atoi(port));
        expect_pong(&address);
        assert_int_equal(process_stop(server), 0);
    }
    free((void *)(uintptr_t)port);
    scene->passed = true;
}

/* More than there is: a warning tells what happens, and it works. */
static void warnings(void **state)
{
    struct scene *scene = *state;
    struct process *server = process_start(
        scene, "large",
        ARGUMENTS("serve", "--listen", "0", "--size", "16T", "--threads", "200", "--fibers", "2"));
    struct net_address address = process_address(server, 0);
    expect_pong(&address);
    char *errors = process_errors(scene, server);
    assert_non_null(strstr(errors, "a pool of 16384.0 GiB is more than the "));
    assert_non_null(strstr(errors, "the system kills this process, with all that the pool holds"));
    assert_non_null(strstr(errors, "200 threads on "));
    assert_non_null(strstr(errors, "they take turns"));
    free(errors);
    assert_int_equal(process_stop(server), 0);
    server =
        process_start(scene, "small", ARGUMENTS("serve", "--listen", "0", "--size", "64M", "--threads", "1"));
    assert_int_equal(process_stop(server), 0);
    errors = process_errors(scene, server);
    assert_null(strstr(errors, "a pool of"));
    assert_null(strstr(errors, "they take turns"));
    free(errors);
    scene->passed = true;
}

static void expect_stored(redisContext *context, const char *key, const char *value, size_t length)
{
    redisReply *reply = redisCommand(context, "SET %s %b", key, value, length);
    if (reply->type != REDIS_REPLY_STATUS)
        fail_msg("SET of %zu bytes: %s", length, reply->str);
    freeReplyObject(reply);
    reply = redisCommand(context, "GET %s", key);
    assert_true(reply->type == REDIS_REPLY_STRING && reply->len == length);
    assert_memory_equal(reply->str, value, length);
    freeReplyObject(reply);
}

/* The least size that is accepted is one that works; what is less is refused, and the least is named. */
static void the_least_pool(void **state)
{
    struct scene *scene = *state;
    const size_t most = 8 << 20;
    char *value = malloc(most);
    assert_non_null(value);
    memset(value, 'v', most);
    refuses(scene, ARGUMENTS("serve", "--size", "16777215"), "is not in the range 16M to 64T\n");
    struct process *server =
        process_start(scene, "least", ARGUMENTS("serve", "--listen", "0", "--size", "16M"));
    struct net_address address = process_address(server, 0);
    redisContext *context = client_connect(&address);
    for (unsigned round = 0; round < 3; round++) { /* and again when everything was taken away */
        expect_stored(context, "a", value, 1);
        expect_stored(context, "b", value, 1000);
        expect_stored(context, "c", value, 100000);
        expect_stored(context, "d", value, most);
        redisReply *reply = redisCommand(context, "FLUSHALL");
        assert_int_equal(reply->type, REDIS_REPLY_STATUS);
        freeReplyObject(reply);
    }
    redisFree(context);
    free(value);
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

static void ends(void **state)
{
    struct scene *scene = *state;
    struct process *server = process_start(
        scene, "server", ARGUMENTS("serve", "--listen", "0", "--size", "64M", "--threads", "1"));
    assert_int_equal(process_stop(server), 0);
    char *errors = process_errors(scene, server);
    assert_non_null(strstr(errors, "stopping, as signal SIGTERM asks"));
    assert_non_null(strstr(errors, "stopped: all clients are closed; what the store held"));
    free(errors);
    server =
        process_start(scene, "other", ARGUMENTS("serve", "--listen", "0", "--size", "64M", "--threads", "1"));
    struct net_address address = process_address(server, 0);
    redisContext *context = client_connect(&address);
    redisReply *reply = redisCommand(context, "SHUTDOWN SAVE");
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    assert_null(redisCommand(context, "SHUTDOWN"));
    redisFree(context);
    assert_int_equal(process_wait(server), 0);
    errors = process_errors(scene, server);
    assert_non_null(strstr(errors, "stopping, as SHUTDOWN from 127.0.0.1:"));
    assert_non_null(strstr(errors, "stopped: all clients are closed; what the store held"));
    free(errors);
    struct process *memory =
        process_start(scene, "memory", ARGUMENTS("memory", "--listen", "0", "--size", "64M"));
    address = process_address(memory, 0);
    server = process_start(scene, "compute",
                           ARGUMENTS("compute", "--listen", "0", "--threads", "1", "--format", "--memory",
                                     text_of("%u", address.port))); /* a number alone here too */
    assert_int_equal(process_stop(server), 0);
    errors = process_errors(scene, server);
    assert_non_null(strstr(errors, "stopped: all clients are closed; the memory nodes keep the data"));
    free(errors);
    assert_int_equal(process_stop(memory), 0);
    errors = process_errors(scene, memory);
    assert_non_null(strstr(errors, "what this memory node holds is lost"));
    free(errors);
    scene->passed = true;
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, scene_set_up, scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(mistakes_are_told), TEST(help_names_the_log), TEST(versions), TEST(ports),
        TEST(warnings),          TEST(the_least_pool),     TEST(ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
