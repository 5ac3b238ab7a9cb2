/* test_clients.c - clients that misbehave, and very many of them: limits hold, and other clients do not
 * notice. Each test asks a well-behaved client in between. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/random.h"
#include "base/task.h"
#include "base/worker.h"
#include "server/state.h"
#include "server/thread.h"
#include "serving.h"

static void say_expect(int fd, const char *request, const char *reply)
{
    assert_true(serving_say(fd, request));
    serving_expect(fd, reply);
}

/* ---- very many ---- */

#define MANY 10000u

static bool descriptors_raise(uint64_t count)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur >= count;
}

/* Runs in a process of its own, so that each end's descriptors count in one process only. It checks without
 * assertions: a failed one would run the other tests in this process. */
static bool many_expect(int fd, const char *text)
{
    char got[64] = {0};
    return serving_receive(fd, got, strlen(text)) && strcmp(got, text) == 0;
}

static bool many_clients(int commands, int reports)
{
    static int fds[MANY];
    char request[64], byte;
    uint16_t port;
    if (read(commands, &port, sizeof port) != sizeof port)
        return false;
    for (unsigned i = 0; i < MANY; i++) {
        fds[i] = serving_connect_port(port);
        if (!serving_say(fds[i], "PING\r\n"))
            return false;
    }
    for (unsigned i = 0; i < MANY; i++)
        if (!many_expect(fds[i], "+PONG\r\n"))
            return false;
    if (write(reports, "", 1) != 1 || read(commands, &byte, 1) != 1)
        return false;
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(request, sizeof request, "SET k%u %u\r\nSTRLEN k%u\r\n", i, i + 10000, i);
        if (!serving_say(fds[i], request))
            return false;
    }
    for (unsigned i = 0; i < MANY; i++)
        if (!many_expect(fds[i], "+OK\r\n:5\r\n"))
            return false;
    return true;
}

static bool many_idle(void *context)
{
    struct server_stats stats = serving_stats(context);
    return stats.counters.clients == MANY && stats.client_memory == 0; /* idle clients own no buffers */
}

static bool one_rejected(void *context)
{
    return serving_stats(context).counters.clients_rejected == 1;
}

static void test_many(void **state)
{
    (void)state;
    struct serving serving;
    int commands[2], reports[2], status;
    char rest[64];
    if (!descriptors_raise(MANY + 200)) {
        print_message("skipped: the system does not allow a process %u open files\n", MANY + 200);
        skip();
    }
    assert_true(pipe(commands) == 0 && pipe(reports) == 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        close(commands[1]); /* so that it ends when this process ends */
        close(reports[0]);
        _exit(many_clients(commands[0], reports[1]) ? 0 : 1);
    }
    close(commands[0]);
    close(reports[1]);
    serving_prepare(&serving, 2);
    serving_start(&serving);
    uint16_t port = serving_port(&serving, 0);
    assert_int_equal(write(commands[1], &port, sizeof port), sizeof port);
    assert_int_equal(read(reports[0], rest, 1), 1);  /* all clients have been answered */
    assert_true(serving_until(many_idle, &serving)); /* a reply may arrive before its buffer is freed */
    int one = serving_connect(&serving);             /* one client too many */
    serving_expect_end(one, rest, sizeof rest);
    assert_string_equal(rest, "-ERR max number of clients reached\r\n");
    close(one);
    assert_true(serving_until(one_rejected, &serving));
    assert_int_equal(write(commands[1], "", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(commands[1]);
    close(reports[0]);
    serving_end(&serving);
}

static bool no_clients(void *context)
{
    struct server_stats stats = serving_stats(context); /* each thread counts for itself */
    return stats.counters.clients == 0 && stats.client_memory == 0;
}

/* Every client that connected was taken and has left: one that still waits to be accepted counts nowhere. */
enum { COMERS = 400 };
static bool all_came_and_went(void *context)
{
    struct server_stats stats = serving_stats(context);
    return stats.counters.clients_total + stats.counters.clients_rejected == COMERS && no_clients(context);
}

/* Clients come and go, in the middle of requests and of replies. */
static void test_come_and_go(void **state)
{
    (void)state;
    static const char text[] =
        "SET a 1\r\nGET a\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\nDEBUG SLEEP 0.001\r\nKEYS *\r\n";
    struct serving serving;
    struct random random;
    random_seed(&random, 11);
    serving_prepare(&serving, 2);
    serving_start(&serving);
    for (unsigned i = 0; i < COMERS; i++) {
        int fd = serving_connect(&serving);
        serving_send(fd, text, random_below(&random, sizeof text));
        if (random_below(&random, 2)) { /* with a reset */
            struct linger linger = {.l_onoff = 1};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        }
        close(fd);
    }
    assert_true(serving_until(all_came_and_went, &serving));
    assert_int_equal(serving_stats(&serving).client_memory, 0);
    serving_end(&serving);
}

/* ---- clients that have sent all their requests ---- */

/* The end of the input is noticed while the last commands run: the client gets the replies, then the server
 * closes. */
static void expect_closed_after(const struct serving *serving, const char *request, size_t length,
                                size_t expected)
{
    char rest[16];
    char *reply = malloc(expected);
    int fd = serving_connect(serving);
    assert_non_null(reply);
    assert_true(serving_send(fd, request, length));
    shutdown(fd, SHUT_WR);
    assert_true(serving_receive(fd, reply, expected));
    assert_int_equal(serving_expect_end(fd, rest, sizeof rest), 0);
    close(fd);
    free(reply);
}

static void test_half_closed(void **state)
{
    (void)state;
    enum { LARGE = 2 << 20, SLICE = 256 };
    struct serving serving;
    char *request = malloc(LARGE + 64);
    assert_non_null(request);
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int good = serving_connect(&serving);
    /* As many commands as one slice has. */
    size_t length = 0;
    for (unsigned i = 0; i + 1 < SLICE; i++)
        length += (size_t)sprintf(request + length, "PING\r\n");
    length += (size_t)sprintf(request + length, "DEBUG SLEEP 0.1\r\n");
    expect_closed_after(&serving, request, length, 7 * (SLICE - 1) + 5);
    /* More output than may be unsent while commands of the client run. */
    length = (size_t)sprintf(request, "*3\r\n$3\r\nSET\r\n$1\r\nl\r\n$%d\r\n", LARGE);
    memset(request + length, 'x', LARGE);
    memcpy(request + length + LARGE, "\r\n", 2);
    assert_true(serving_send(good, request, length + LARGE + 2));
    serving_expect(good, "+OK\r\n");
    length = (size_t)sprintf(request, "DEBUG SLEEP 0.1\r\nGET l\r\nPING\r\n");
    expect_closed_after(&serving, request, length, 5 + 10 + LARGE + 2 + 7);
    close(good);
    assert_true(serving_until(no_clients, &serving));
    free(request);
    serving_end(&serving);
}

/* ---- clients that break the rules ---- */

static void expect_refused(const struct serving *serving, const char *request, size_t length,
                           const char *error)
{
    char rest[512];
    int fd = serving_connect(serving);
    serving_send(fd, request, length);
    serving_expect_end(fd, rest, sizeof rest);
    assert_string_equal(rest, error);
    close(fd);
}

static void test_garbage(void **state)
{
    (void)state;
    struct serving serving;
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int good = serving_connect(&serving);
    static const char *const broken[][2] = {
        {"*1\r\n$1073741824\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
        {"*2\r\nxyz", "-ERR Protocol error: expected '$', got 'x'\r\n"},
        {"*-9999999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
        {"*2000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
        {"SET a \"b\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"},
        {"PING\r\n*x\r\n", "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        expect_refused(&serving, broken[i][0], strlen(broken[i][0]), broken[i][1]);
        say_expect(good, "PING\r\n", "+PONG\r\n");
    }
    char *line = malloc(65600);
    assert_non_null(line);
    memset(line, 'x', 65600);
    int fd = serving_connect(&serving);
    serving_send(fd, line, 65600);
    char rest[512];
    serving_expect_end(fd, rest,
                       sizeof rest); /* the reply may be lost, since the server closes with input unread */
    close(fd);
    free(line);
    /* Random bytes: the server closes the connection or waits for more, and goes on serving. */
    struct random random;
    random_seed(&random, 3);
    for (unsigned i = 0; i < 200; i++) {
        uint8_t bytes[300];
        for (size_t j = 0; j < sizeof bytes; j++)
            bytes[j] = (uint8_t)(random_below(&random, 4) ? random_below(&random, 256)
                                                          : (uint64_t) "*$\r\n1"[random_below(&random, 5)]);
        fd = serving_connect(&serving);
        serving_send(fd, bytes, sizeof bytes);
        shutdown(fd, SHUT_WR);
        serving_expect_end(fd, rest, sizeof rest);
        close(fd);
    }
    say_expect(good, "PING\r\n", "+PONG\r\n");
    close(good);
    serving_end(&serving);
}

/* Incomplete requests hold up their own connection only. */
static void test_half_requests(void **state)
{
    (void)state;
    enum { HALVES = 200 };
    struct serving serving;
    int fds[HALVES];
    serving_prepare(&serving, 1);
    serving.options.fibers = 2;
    serving_start(&serving);
    for (unsigned i = 0; i < HALVES; i++) {
        fds[i] = serving_connect(&serving);
        assert_true(serving_say(fds[i], "*2\r\n$3\r\nGET\r\n$10\r\nab"));
    }
    int good = serving_connect(&serving);
    say_expect(good, "PING\r\n", "+PONG\r\n");
    for (unsigned i = 0; i < HALVES; i++)
        say_expect(fds[i], "cdefghij\r\n", "$-1\r\n");
    for (unsigned i = 0; i < HALVES; i++)
        close(fds[i]);
    close(good);
    serving_end(&serving);
}

struct watched {
    struct serving *serving;
    uint64_t limit;
};

static bool many_bytes_out(void *context)
{
    const struct watched *watched = context;
    return serving_stats(watched->serving).counters.bytes_out >= watched->limit;
}

/* A client asks for a gigabyte and reads nothing: no more of its commands run than the limit on output
 * allows, and when it begins to read it gets everything, in order. */
static void test_never_reads(void **state)
{
    (void)state;
    enum { VALUE = 100000, ASKED = 10000, READ = 300 };
    struct serving serving;
    char head[64], expected[64];
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int fd = serving_connect(&serving), good = serving_connect(&serving);
    char *value = malloc(VALUE + 64), *requests = malloc(ASKED * 8 + 1);
    assert_true(value && requests);
    size_t length = (size_t)sprintf(value, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n", VALUE);
    memset(value + length, 'v', VALUE);
    memcpy(value + length + VALUE, "\r\n", 2);
    assert_true(serving_send(good, value, length + VALUE + 2));
    serving_expect(good, "+OK\r\n");
    for (unsigned i = 0; i < ASKED; i++)
        memcpy(requests + 7 * i, "GET a\r\n", 8);
    assert_true(serving_send(fd, requests, 7 * ASKED));
    struct watched watched = {&serving, 1 << 20};
    assert_true(serving_until(many_bytes_out, &watched));
    for (unsigned i = 0; i < 200; i++)
        say_expect(good, "PING\r\n", "+PONG\r\n");
    /* The limit may be unsent, and the replies of one batch of reads. */
    assert_true(serving_stats(&serving).client_memory < UINT64_C(32) << 20);
    assert_true(serving_stats(&serving).counters.commands < ASKED / 2);
    int expects = snprintf(expected, sizeof expected, "$%d\r\n", VALUE);
    for (unsigned i = 0; i < READ; i++) {
        assert_true(serving_receive(fd, head, (size_t)expects));
        assert_memory_equal(head, expected, (size_t)expects);
        assert_true(serving_receive(fd, value, VALUE + 2));
        assert_int_equal(value[VALUE - 1], 'v');
    }
    close(fd);
    say_expect(good, "PING\r\n", "+PONG\r\n");
    close(good);
    free(value);
    free(requests);
    serving_end(&serving);
}

/* A pipeline of large reads is answered in order. Its requests could be looked up together, yet no more
 * replies wait at once than the limit on output and one value. */
static void test_large_replies(void **state)
{
    (void)state;
    enum { VALUE = 8 << 20, ROUNDS = 20 };
    static const char round[] = "*2\r\n$3\r\nGET\r\n$1\r\na\r\nGET b\r\nGET \"b\"\r\nSTRLEN a\r\nGET a\r\n"
                                "*3\r\n$4\r\nMGET\r\n$1\r\nb\r\n$1\r\na\r\n";
    struct serving serving;
    char head[64], *value = malloc(VALUE + 64);
    assert_non_null(value);
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int fd = serving_connect(&serving), good = serving_connect(&serving);
    size_t length = (size_t)sprintf(value, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n", VALUE);
    memset(value + length, 'v', VALUE);
    memcpy(value + length + VALUE, "\r\n", 2);
    assert_true(serving_send(good, value, length + VALUE + 2));
    serving_expect(good, "+OK\r\n");
    say_expect(good, "SET b w\r\n", "+OK\r\n");
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_true(serving_say(fd, round));
    snprintf(head, sizeof head, "$%d\r\n", VALUE);
    for (unsigned i = 0; i < 3 * ROUNDS; i++) {
        if (i % 3 == 1)
            serving_expect(fd, "$1\r\nw\r\n$1\r\nw\r\n:8388608\r\n");
        if (i % 3 == 2)
            serving_expect(fd, "*2\r\n$1\r\nw\r\n");
        say_expect(good, "PING\r\n", "+PONG\r\n");
        assert_true(serving_stats(&serving).client_memory < UINT64_C(40) << 20);
        serving_expect(fd, head);
        assert_true(serving_receive(fd, value, VALUE + 2));
        assert_int_equal(value[0], 'v');
        assert_memory_equal(value + VALUE - 1, "v\r\n", 3);
    }
    close(fd);
    close(good);
    free(value);
    serving_end(&serving);
}

static bool some_evicted(void *context)
{
    return serving_stats(context).counters.clients_evicted >= 1;
}

static bool within_limit(void *context)
{
    return serving_stats(context).client_memory <= 12u << 20;
}

/* All clients' buffers together are limited: the largest clients are closed. */
static void test_memory_limit(void **state)
{
    (void)state;
    enum { GREEDY = 8, ANNOUNCED = 4 << 20, SENT = 3 << 20 };
    struct serving serving;
    int fds[GREEDY];
    char *bytes = calloc(1, SENT), head[64], rest[512];
    assert_non_null(bytes);
    serving_prepare(&serving, 1);
    serving.options.client_memory_max = 12 << 20;
    serving_start(&serving);
    int good = serving_connect(&serving);
    int length = snprintf(head, sizeof head, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n", ANNOUNCED);
    for (unsigned i = 0; i < GREEDY; i++) {
        fds[i] = serving_connect(&serving);
        serving_send(fds[i], head, (size_t)length);
        serving_send(fds[i], bytes, SENT); /* the server may close in the middle of it */
        say_expect(good, "PING\r\n", "+PONG\r\n");
    }
    assert_true(serving_until(some_evicted, &serving));
    assert_true(serving_until(within_limit,
                              &serving)); /* a client is counted as evicted before its buffers are freed */
    for (unsigned i = 0; i < GREEDY; i++)
        close(fds[i]);
    /* A single request that is too long. */
    serving_end(&serving);
    serving_prepare(&serving, 1);
    serving.options.value_max = 1 << 20;
    serving.options.query_buffer_max = 64 << 10;
    serving_start(&serving);
    int fd = serving_connect(&serving);
    assert_true(serving_say(fd, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n"));
    serving_send(fd, bytes, 100000);
    serving_expect_end(fd, rest, sizeof rest);
    close(fd);
    close(good);
    free(bytes);
    serving_end(&serving);
}

/* A short request can make a long value, which costs little; a value grows without a buffer for all of it. */
static void test_command_memory(void **state)
{
    (void)state;
    enum { PIECE = 1 << 20, OFFSET = 40000000 };
    struct serving serving;
    char text[128], *piece = calloc(1, PIECE + 1);
    assert_non_null(piece);
    memset(piece, 'x', PIECE);
    serving_prepare(&serving, 1);
    serving.options.client_memory_max = 8 << 20;
    serving_start(&serving);
    int fd = serving_connect(&serving), good = serving_connect(&serving);
    snprintf(text, sizeof text, "SETRANGE a %d x\r\n", OFFSET);
    say_expect(fd, text, ":40000001\r\n");
    say_expect(fd, "STRLEN a\r\n", ":40000001\r\n");
    say_expect(fd, "GETRANGE a 40000000 -1\r\n", "$1\r\nx\r\n");
    say_expect(fd, "DEL a\r\n", ":1\r\n");
    /* A value that grows by APPEND needs no more than what is appended, until it is as long as a value can
     * be. */
    size_t length = 0;
    for (bool full = false; !full; length += PIECE) {
        snprintf(text, sizeof text, "*3\r\n$6\r\nAPPEND\r\n$1\r\na\r\n$%d\r\n", PIECE);
        assert_true(serving_say(fd, text) && serving_send(fd, piece, PIECE) && serving_say(fd, "\r\n"));
        assert_true(serving_receive(fd, text, 1));
        full = text[0] == '-';
        assert_true(full == (length == STORE_VALUE_MAX));
        if (full)
            serving_expect(fd, "ERR string exceeds maximum allowed size (64MB)\r\n");
        while (!full && text[0] != '\n')
            assert_true(serving_receive(fd, text, 1));
    }
    assert_int_equal(length, STORE_VALUE_MAX + PIECE);
    say_expect(good, "PING\r\n", "+PONG\r\n");
    close(fd);
    close(good);
    assert_true(serving_until(no_clients, &serving)); /* and all memory was given back */
    free(piece);
    serving_end(&serving);
}

static void test_reply_limit(void **state)
{
    (void)state;
    struct serving serving;
    char rest[128] = {0};
    serving_prepare(&serving, 1);
    serving.options.output_buffer_max = 1000;
    serving_start(&serving);
    int fd = serving_connect(&serving);
    assert_true(serving_say(fd, "COMMAND\r\n"));
    assert_true(serving_receive(fd, rest, 4));
    assert_memory_equal(rest, "-ERR", 4);
    while (serving_receive(fd, rest, 1) && rest[0] != '\n')
        ;
    say_expect(fd, "PING\r\n", "+PONG\r\n");
    close(fd);
    serving_end(&serving);
}

/* Idle clients are closed, others stay. */
static void test_idle_timeout(void **state)
{
    (void)state;
    struct serving serving;
    char rest[64];
    serving_prepare(&serving, 1);
    serving.options.idle_timeout_s = 4; /* longer than a busy machine keeps this thread from its pings */
    serving_start(&serving);
    int silent = serving_connect(&serving), good = serving_connect(&serving);
    struct pollfd wait = {.fd = silent, .events = POLLIN};
    while (poll(&wait, 1, 100) == 0)
        say_expect(good, "PING\r\n", "+PONG\r\n");
    assert_int_equal(serving_expect_end(silent, rest, sizeof rest), 0);
    say_expect(good, "PING\r\n", "+PONG\r\n");
    close(silent);
    close(good);
    serving_end(&serving);
}

/* ---- a thread that stood still ---- */

struct stall {
    struct serving *serving;
    int fd;           /* of the client */
    uint32_t go;      /* atomic: the next tick begins it */
    bool begun, said; /* by the server's thread */
};

/* Keeps the whole thread from running. */
static void stand_still(uint64_t ns)
{
    const uint64_t until = task_now() + ns;
    for (uint64_t now; (now = task_now()) < until;)
        nanosleep(&(struct timespec){.tv_nsec = until - now < 100000000 ? (long)(until - now) : 100000000},
                  NULL);
}

/* A fiber of the server's thread, in the round after a tick. It stands still until the next tick is due,
 * which then runs behind it in the round that reads the client's first bytes; and there for longer than idle
 * clients may stay, while the client sends the rest. */
static void stall_main(void *argument)
{
    struct stall *stall = argument;
    atomic_store_relaxed(&stall->serving->server->idle_timeout_s, UINT64_C(1)); /* a setting */
    stall->said = serving_say(stall->fd, "01234");
    stand_still(SERVER_TICK_NS + SERVER_TICK_NS / 2);
    task_yield();
    stall->said = stall->said && serving_say(stall->fd, "56789\r\n");
    stand_still(UINT64_C(1500000000));
}

static void stall_tick(void *context)
{
    struct stall *stall = context;
    if (!atomic_load_acquire(&stall->go) || stall->begun) /* acquire: the client's socket */
        return;
    stall->begun = !worker_spawn(worker_current(), stall_main, stall);
}

/* A client is not idle for the time in which the server did not look at what it had sent. */
static void test_stalled_server(void **state)
{
    (void)state;
    struct serving serving;
    struct stall stall = {.serving = &serving};
    serving_prepare(&serving, 1);
    serving.options.tick = stall_tick;
    serving.options.tick_context = &stall;
    serving_start(&serving);
    stall.fd = serving_connect(&serving);
    /* The bytes that are wanted still are waited for by no fiber. */
    say_expect(stall.fd, "PING\r\n*2\r\n$4\r\nECHO\r\n$10\r\n", "+PONG\r\n");
    atomic_store_release(&stall.go, 1u); /* release: the client is there */
    serving_expect(stall.fd, "$10\r\n0123456789\r\n");
    close(stall.fd);
    serving_end(&serving);
    assert_true(stall.begun && stall.said);
}

/* A request that arrives slowly, and a reply that is read slowly, keep their connections open longer than the
 * time-out for idle ones. */
static void test_slow_transfers(void **state)
{
    (void)state;
    enum { VALUE = 48 << 20, PIECE = 320 << 10, SLOW = 150 };
    struct serving serving;
    char rest[64], *value = malloc(VALUE + 64);
    assert_non_null(value);
    serving_prepare(&serving, 1);
    serving.options.idle_timeout_s = 4; /* longer than a busy machine keeps this thread from its pieces */
    serving_start(&serving);
    int reader = serving_connect(&serving);
    size_t length = (size_t)sprintf(value, "*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$%d\r\n", VALUE);
    memset(value + length, 'v', VALUE);
    memcpy(value + length + VALUE, "\r\n", 2);
    assert_true(serving_send(reader, value, length + VALUE + 2));
    serving_expect(reader, "+OK\r\n");
    say_expect(reader, "GET b\r\n", "$50331648\r\n");
    int writer = serving_connect(&serving);
    assert_true(serving_say(writer, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$150\r\n"));
    int silent = serving_connect(&serving);
    struct pollfd wait = {.fd = silent, .events = POLLIN};
    size_t sent = 0, got = 0;
    while (poll(&wait, 1, 100) == 0) {
        assert_true(sent < SLOW && got + PIECE <= VALUE);
        assert_true(serving_send(writer, "x", 1));
        sent++;
        assert_true(serving_receive(reader, value, PIECE));
        got += PIECE;
    }
    assert_int_equal(serving_expect_end(silent, rest, sizeof rest), 0);
    for (; sent < SLOW; sent++)
        assert_true(serving_send(writer, "x", 1));
    say_expect(writer, "\r\n", "+OK\r\n");
    assert_true(serving_receive(reader, value, VALUE - got));
    serving_expect(reader, "\r\n");
    close(silent);
    close(writer);
    close(reader);
    free(value);
    serving_end(&serving);
}

/* How much of a CPU's time the process uses while a client pings now and then, at about half a second: in
 * percent. */
static long percent_used(int good)
{
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    const uint64_t from = task_now(), until = from + UINT64_C(500000000);
    while (task_now() < until) {
        say_expect(good, "PING\r\n", "+PONG\r\n");
        task_sleep(20000000);
    }
    getrusage(RUSAGE_SELF, &after);
    const uint64_t took = task_now() - from;
    const long used_us =
        (after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec - before.ru_stime.tv_sec) *
            1000000 +
        (after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec - before.ru_stime.tv_usec);
    return used_us / (long)(took / 100000);
}

/* Without free descriptors connections wait, the server does not spin, and it accepts them when there are
 * some again. */
static void test_no_descriptors(void **state)
{
    (void)state;
    enum { WAITING = 20 };
    struct serving serving;
    struct rlimit before, tight;
    int fds[WAITING];
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int good = serving_connect(&serving);
    say_expect(good, "PING\r\n", "+PONG\r\n");
    for (unsigned i = 0; i < WAITING; i++)
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
    getrlimit(RLIMIT_NOFILE, &before);
    int next = dup(good);
    tight = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
    close(next);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    struct net_address address = {.kind = NET_TCP, .host = "127.0.0.1", .port = serving_port(&serving, 0)};
    (void)address;
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    assert_int_equal(getpeername(good, (struct sockaddr *)&name, &length), 0);
    for (unsigned i = 0; i < WAITING; i++)
        assert_int_equal(connect(fds[i], (struct sockaddr *)&name, length), 0);
    /* One that spins does so all the time; what a busy machine counts as used, it does not. */
    unsigned busy = 0;
    while (percent_used(good) >= 50)
        assert_true(++busy < 5);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (unsigned i = 0; i < WAITING; i++) {
        say_expect(fds[i], "PING\r\n", "+PONG\r\n");
        close(fds[i]);
    }
    close(good);
    serving_end(&serving);
}

/* ---- clients of several threads ---- */

static bool hogs_full(void *context)
{
    return serving_stats(context).client_memory >= 16u << 20;
}

/* Clients of another thread fill the limit: they are closed, not the small one that needs a little. */
static void test_hogs_elsewhere(void **state)
{
    (void)state;
    enum { HOGS = 8, SENT = 3 << 19, LENGTH = 600000 };
    struct serving serving;
    int fds[2 * HOGS];
    char *text = malloc(SENT);
    assert_non_null(text);
    memset(text, 'x', SENT);
    serving_prepare(&serving, 2);
    serving.options.client_memory_max = 33u << 19;
    serving_start(&serving);
    int good = serving_connect(&serving); /* connections go to the threads in turn */
    for (unsigned i = 0; i < 2 * HOGS; i++)
        fds[i] = serving_connect(&serving);
    for (unsigned i = 0; i < 2 * HOGS; i += 2) {
        assert_true(serving_say(fds[i], "*2\r\n$4\r\nECHO\r\n$4000000\r\n"));
        assert_true(serving_send(fds[i], text, SENT));
    }
    assert_true(serving_until(hogs_full, &serving));
    /* The other thread may get to it only when there is room again: then the client asks once more. */
    for (unsigned round = 0; round < 3 || (round < 500 && !some_evicted(&serving)); round++) {
        char *reply = calloc(1, LENGTH + 1);
        assert_non_null(reply);
        assert_true(serving_say(good, "*2\r\n$4\r\nECHO\r\n$600000\r\n"));
        assert_true(serving_send(good, text, LENGTH) && serving_say(good, "\r\n"));
        serving_expect(good, "$600000\r\n");
        assert_true(serving_receive(good, reply, LENGTH));
        assert_memory_equal(reply, text, LENGTH);
        serving_expect(good, "\r\n");
        free(reply);
    }
    assert_true(some_evicted(&serving));
    for (unsigned i = 0; i < 2 * HOGS; i++)
        close(fds[i]);
    close(good);
    free(text);
    serving_end(&serving);
}

/* ---- long commands ---- */

enum { KEYS = 20000, LOOKS = 8000 };

static void keys_load(int fd, char *text)
{
    for (unsigned i = 0; i < KEYS; i += 1000) {
        size_t length = (size_t)sprintf(text, "MSET");
        for (unsigned key = i; key < i + 1000; key++)
            length += (size_t)sprintf(text + length, " k%05u v", key);
        sprintf(text + length, "\r\n");
        say_expect(fd, text, "+OK\r\n");
    }
}

/* Whether one look at both keys found the first deleted and the last not yet. */
static bool seen_between(const char *replies)
{
    for (unsigned i = 0; i < LOOKS; i++)
        if (memcmp(replies + 8 * i, ":0\r\n:1\r\n", 8) == 0)
            return true;
    return false;
}

/* A FLUSHALL lets other clients of its thread run after each batch, also where memory is mapped. */
static void test_long_command(void **state)
{
    (void)state;
    struct serving serving;
    char *text = malloc(40 * LOOKS), *replies = malloc(8 * LOOKS);
    bool seen = false;
    assert_true(text && replies);
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int flusher = serving_connect(&serving), other = serving_connect(&serving);
    for (unsigned round = 0; round < 20 && !seen; round++) { /* the looks may come too early or too late */
        keys_load(other, text);
        size_t length = 0;
        for (unsigned i = 0; i < LOOKS; i++)
            length += (size_t)sprintf(text + length, "EXISTS k00000\r\nEXISTS k%05d\r\n", KEYS - 1);
        assert_true(serving_say(flusher, "FLUSHALL\r\n"));
        assert_true(serving_send(other, text, length));
        assert_true(serving_receive(other, replies, 8 * LOOKS));
        serving_expect(flusher, "+OK\r\n");
        seen = seen_between(replies);
    }
    assert_true(seen);
    close(flusher);
    close(other);
    free(text);
    free(replies);
    serving_end(&serving);
}

static bool alone(void *context)
{
    return serving_stats(context).counters.clients == 1;
}

/* A client that is closed in the middle of its FLUSHALL deletes no further keys. */
static void test_killed_command(void **state)
{
    (void)state;
    struct serving serving;
    char *text = malloc(16 * KEYS), reply[32];
    long left = 0;
    assert_non_null(text);
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int other = serving_connect(&serving);
    for (unsigned round = 0; round < 20 && (left == 0 || left == KEYS);
         round++) { /* it may be killed too early or too late */
        keys_load(other, text);
        int flusher = serving_connect(&serving);
        assert_true(serving_say(flusher, "CLIENT ID\r\n"));
        size_t length = 0;
        do
            assert_true(serving_receive(flusher, reply + length, 1));
        while (reply[length++] != '\n');
        reply[length] = 0;
        assert_true(serving_say(flusher, "FLUSHALL\r\n"));
        sprintf(text, "CLIENT KILL ID %ld\r\n", strtol(reply + 1, NULL, 10));
        say_expect(other, text, ":1\r\n");
        assert_true(serving_until(alone, &serving));
        close(flusher);
        assert_true(serving_say(other, "DBSIZE\r\n"));
        length = 0;
        do
            assert_true(serving_receive(other, reply + length, 1));
        while (reply[length++] != '\n');
        left = strtol(reply + 1, NULL, 10);
    }
    assert_true(left > 0 && left < KEYS);
    close(other);
    free(text);
    serving_end(&serving);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),           cmocka_unit_test(test_come_and_go),
        cmocka_unit_test(test_half_closed),    cmocka_unit_test(test_hogs_elsewhere),
        cmocka_unit_test(test_long_command),   cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_half_requests),  cmocka_unit_test(test_never_reads),
        cmocka_unit_test(test_memory_limit),   cmocka_unit_test(test_reply_limit),
        cmocka_unit_test(test_idle_timeout),   cmocka_unit_test(test_stalled_server),
        cmocka_unit_test(test_no_descriptors), cmocka_unit_test(test_slow_transfers),
        cmocka_unit_test(test_killed_command), cmocka_unit_test(test_large_replies),
        cmocka_unit_test(test_command_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
