/*
 * test_clients.c - one server, ten thousand connections, and clients that behave badly: the others' commands
 * are answered all the while.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/random.h"
#include "cluster/process.h"

#define CLIENTS    10000u
#define SPARE      200u /* descriptors that both sides need besides */
#define SECOND     UINT64_C(1000000000)
#define PATIENCE   (30 * SECOND) /* with a reply to a good client; far more than it needs */
#define BIG_BYTES  100000u
#define BIG_VALUES 200u

struct fixture {
    struct scene scene;
    struct process *serve;
    struct net_address address;
    redisContext *good;
    unsigned asked;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    scene_open(&fixture->scene);
    fixture->serve = process_start(&fixture->scene, "serve",
                                   ARGUMENTS("serve", "--listen",
                                             text_of("unix:%s", scene_path(&fixture->scene, "s.sock")),
                                             "--size", "128M", "--threads", "2", "--clients-max", "10100",
                                             "--reply-max", "16M", "--client-memory-max", "64M"));
    fixture->address = process_address(fixture->serve, 0);
    fixture->good = client_connect(&fixture->address);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    redisFree(fixture->good);
    scene_close(&fixture->scene);
    free(fixture);
    return 0;
}

/* A good client writes and reads, and does not wait long. */
static void good_works(struct fixture *fixture)
{
    uint64_t began = now_ns();
    unsigned number = fixture->asked++;
    redisReply *reply = redisCommand(fixture->good, "SET good%u %u", number % 50, number);
    assert_non_null(reply);
    assert_string_equal(reply->str, "OK");
    freeReplyObject(reply);
    reply = redisCommand(fixture->good, "GET good%u", number % 50);
    assert_non_null(reply);
    assert_string_equal(reply->str, text_of("%u", number));
    freeReplyObject(reply);
    assert_true(now_ns() - began < PATIENCE);
}

static void end(struct fixture *fixture)
{
    for (int i = 0; i < 20; i++)
        good_works(fixture);
    assert_int_equal(process_stop(fixture->serve), 0);
    fixture->scene.passed = true;
}

static int open_raw(const struct fixture *fixture)
{
    struct error error;
    int fd;
    if (net_connect(&fixture->address, 10 * SECOND, &fd, &error))
        fail_hard("%s", error.text);
    return fd;
}

/* As much as goes in; a closed connection ends it too. Returns what went in. */
static size_t push(int fd, const char *bytes, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t put = send(fd, bytes + done, length - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put <= 0)
            break;
        done += (size_t)put;
    }
    return done;
}

/* ---- ten thousand ---- */

static bool enough_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < CLIENTS + SPARE && limit.rlim_max >= CLIENTS + SPARE) {
        limit.rlim_cur = CLIENTS + SPARE;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur >= CLIENTS + SPARE;
}

static void expect_reply(int fd, const char *wanted)
{
    char buffer[64] = "";
    size_t used = 0;
    while (used < strlen(wanted)) {
        if (net_wait(fd, POLLIN, 60 * SECOND))
            fail_msg("no reply, wanted %s", wanted);
        ssize_t got = recv(fd, buffer + used, sizeof buffer - 1 - used, MSG_DONTWAIT);
        if (got <= 0 && errno != EAGAIN)
            fail_msg("the connection ended, wanted %s", wanted);
        used += got > 0 ? (size_t)got : 0;
    }
    assert_string_equal(buffer, wanted);
}

static void say(int fd, const char *text)
{
    assert_int_equal(push(fd, text, strlen(text)), strlen(text));
}

static void test_many(void **state)
{
    struct fixture *fixture = *state;
    if (!enough_descriptors()) {
        print_message("SKIPPED: this needs %u file descriptors (ulimit -n)\n", CLIENTS + SPARE);
        fixture->scene.passed = true;
        skip();
    }
    int *fds = malloc(CLIENTS * sizeof *fds);
    for (unsigned i = 0; i < CLIENTS; i++) {
        fds[i] = open_raw(fixture);
        if (i % 500 == 0)
            good_works(fixture);
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        say(fds[i], text_of("SET many%u %u\r\n", i, i));
    good_works(fixture);
    for (unsigned i = 0; i < CLIENTS; i++)
        expect_reply(fds[i], "+OK\r\n");
    for (unsigned i = 0; i < CLIENTS; i++)
        say(fds[i], text_of("GET many%u\r\n", (i + 1) % CLIENTS));
    for (unsigned i = 0; i < CLIENTS; i++) {
        const char *value = text_of("%u", (i + 1) % CLIENTS);
        expect_reply(fds[i], text_of("$%zu\r\n%s\r\n", strlen(value), value));
    }
    redisReply *reply = redisCommand(fixture->good, "INFO clients");
    assert_non_null(strstr(reply->str, text_of("connected_clients:%u", CLIENTS + 1)));
    freeReplyObject(reply);
    for (unsigned i = 0; i < CLIENTS; i++)
        close(fds[i]);
    free(fds);
    end(fixture);
}

/* ---- bad clients ---- */

/* Asks for far more than it ever reads: its commands stop being read, and the memory for it is limited. */
static void test_never_reads(void **state)
{
    struct fixture *fixture = *state;
    char *big = malloc(BIG_BYTES);
    memset(big, 'x', BIG_BYTES);
    redisReply *reply = redisCommand(fixture->good, "SET big %b", big, (size_t)BIG_BYTES);
    assert_string_equal(reply->str, "OK");
    freeReplyObject(reply);
    int fds[5];
    for (unsigned i = 0; i < 5; i++)
        fds[i] = open_raw(fixture);
    for (unsigned round = 0; round < 100; round++) {
        for (unsigned i = 0; i < 5; i++)
            for (unsigned j = 0; j < BIG_VALUES; j++)
                push(fds[i], "GET big\r\n", 9);
        good_works(fixture);
    }
    char *status = NULL, line[256];
    size_t kilobytes = 0;
    FILE *file = fopen(text_of("/proc/%d/status", fixture->serve->pid), "r");
    while ((status = fgets(line, sizeof line, file)))
        if (sscanf(line, "VmRSS: %zu", &kilobytes) == 1)
            break;
    fclose(file);
    print_message("the server holds %zu MB while five clients ask for 10 GB and read nothing\n",
                  kilobytes / 1024);
    assert_true(kilobytes > 0 && kilobytes < 1500000); /* 10 GB were asked for */
    for (unsigned i = 0; i < 5; i++)
        close(fds[i]);
    free(big);
    end(fixture);
}

/* Announces a gigabyte, and sends some of it. */
static void test_long_bulk(void **state)
{
    struct fixture *fixture = *state;
    static const char *const heads[] = {"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1073741824\r\n",
                                        "*1\r\n$1073741824\r\n", "*1073741824\r\n$1\r\n",
                                        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$67108864\r\n"};
    char *bytes = calloc(1, 1 << 20);
    int fds[4];
    for (unsigned i = 0; i < 4; i++) {
        fds[i] = open_raw(fixture);
        say(fds[i], heads[i]);
    }
    for (unsigned round = 0; round < 40; round++) {
        for (unsigned i = 0; i < 4; i++)
            push(fds[i], bytes, 1 << 20);
        good_works(fixture);
    }
    for (unsigned i = 0; i < 3; i++) {
        char reply[128] = "";
        assert_int_equal(net_wait(fds[i], POLLIN, 60 * SECOND), 0);
        ssize_t got = recv(fds[i], reply, sizeof reply - 1, MSG_DONTWAIT);
        if (got > 0)
            assert_non_null(strstr(reply, "-ERR Protocol error: invalid "));
    }
    for (unsigned i = 0; i < 4; i++)
        close(fds[i]);
    free(bytes);
    end(fixture);
}

static void test_garbage(void **state)
{
    struct fixture *fixture = *state;
    struct random random;
    random_seed(&random, 42);
    for (unsigned round = 0; round < 300; round++) {
        char bytes[4096];
        size_t length = 1 + random_below(&random, sizeof bytes - 1);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (char)random_next(&random);
        if (round % 3 == 0)
            memcpy(bytes, "*2\r\n$3\r\n", length < 8 ? length : 8);
        int fd = open_raw(fixture);
        push(fd, bytes, length);
        if (round % 2)
            shutdown(fd, SHUT_WR);
        if (round % 10 == 0)
            good_works(fixture);
        close(fd);
    }
    end(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_never_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_bulk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_garbage, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
