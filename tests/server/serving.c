/* serving.c - see serving.h. */
#include "serving.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"

static void must(int status, const struct error *error)
{
    if (!status)
        return;
    fprintf(stderr, "the test's server: %s\n", error->text);
    abort();
}

void serving_prepare(struct serving *serving, unsigned threads)
{
    memset(serving, 0, sizeof *serving);
    log_set_level(LOG_ERROR);
    strcpy(serving->addresses[0].host, "127.0.0.1");
    serving->options.listen = serving->addresses;
    serving->options.listen_count = 1;
    serving->options.threads = threads;
    serving->pool_bytes = UINT64_C(1) << 30;
    serving->options.protected_mode = true;
    serving->options.alone = true;
}

static void session_begin(struct serving *serving, struct pool_worker **worker, struct tree_session **session)
{
    struct error error = {0};
    must(pool_worker_create(worker, tree_compute_pool(serving->compute), &error), &error);
    must(tree_session_create(session, serving->compute, *worker, &error), &error);
}

static void session_end(struct pool_worker *worker, struct tree_session *session)
{
    tree_session_destroy(session);
    pool_worker_destroy(worker);
}

struct format_geometry serving_geometry(struct serving *serving)
{
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree;
    session_begin(serving, &worker, &session);
    must(tree_open(session, SERVER_STORE_NAME, &tree), tree_session_error(session));
    const struct format_geometry geometry = *tree_geometry(tree);
    tree_close(tree);
    session_end(worker, session);
    return geometry;
}

void serving_create(struct serving *serving)
{
    struct error error = {0};
    struct memory_options memory = {.pool_bytes = serving->pool_bytes};
    struct tree_switches switches;
    must(memory_node_create(&serving->memory, &memory, &error), &error);
    const struct fabric_target *target = memory_node_target(serving->memory);
    serving->fabric = fabric_local_create(&target, 1, 1, &error);
    must(serving->fabric ? 0 : error.code, &error);
    tree_switches_preset(&switches, "banyan", &error);
    switches.cache_bytes = 64u << 20;
    must(tree_compute_create(&serving->compute, serving->fabric, &switches, &error), &error);
    struct pool_worker *worker;
    struct tree_session *session;
    session_begin(serving, &worker, &session);
    must(tree_format(session), tree_session_error(session));
    if (serving->made_before) {
        struct tree *tree;
        must(tree_create(session, SERVER_STORE_NAME, serving->made_before, &tree),
             tree_session_error(session));
        tree_close(tree);
    }
    session_end(worker, session);
    must(server_create(&serving->server, serving->compute, &serving->options, &error), &error);
}

void serving_start(struct serving *serving)
{
    struct error error = {0};
    serving_create(serving);
    must(server_start(serving->server, &error), &error);
}

void serving_end(struct serving *serving)
{
    server_stop(serving->server);
    server_join(serving->server);
    server_destroy(serving->server);
    tree_compute_destroy(serving->compute);
    fabric_close(serving->fabric);
    memory_node_destroy(serving->memory);
}

uint16_t serving_port(const struct serving *serving, unsigned listener)
{
    return server_port(serving->server, listener);
}

int serving_connect_port(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval limit = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

int serving_connect(const struct serving *serving)
{
    return serving_connect_port(serving_port(serving, 0));
}

bool serving_send(int fd, const void *bytes, size_t length)
{
    for (size_t sent = 0; sent < length;) {
        ssize_t once = send(fd, (const char *)bytes + sent, length - sent, MSG_NOSIGNAL);
        if (once < 0 && errno == EINTR)
            continue;
        if (once <= 0)
            return false;
        sent += (size_t)once;
    }
    return true;
}

bool serving_say(int fd, const char *text)
{
    return serving_send(fd, text, strlen(text));
}

bool serving_receive(int fd, void *bytes, size_t length)
{
    for (size_t got = 0; got < length;) {
        ssize_t once = recv(fd, (char *)bytes + got, length - got, 0);
        if (once < 0 && errno == EINTR) /* it was stopped, as by a debugger */
            continue;
        if (once <= 0)
            return false;
        got += (size_t)once;
    }
    return true;
}

void serving_expect(int fd, const char *text)
{
    size_t length = strlen(text);
    char *got = calloc(1, length + 1);
    assert_non_null(got);
    serving_receive(fd, got, length);
    assert_string_equal(got, text);
    free(got);
}

size_t serving_expect_end(int fd, char *text, size_t size)
{
    size_t length = 0;
    for (;;) {
        char rest[4096];
        ssize_t once = recv(fd, rest, sizeof rest, 0);
        if (once < 0 && errno == EINTR)
            continue;
        if (once < 0)
            assert_int_equal(errno, ECONNRESET); /* not the time-out */
        if (once <= 0)
            break;
        for (ssize_t i = 0; i < once && length + 1 < size; i++)
            text[length++] = rest[i];
    }
    text[length] = 0;
    return length;
}

bool serving_until(bool (*condition)(void *context), void *context)
{
    for (unsigned i = 0; i < 20000; i++) {
        if (condition(context))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

struct server_stats serving_stats(const struct serving *serving)
{
    struct server_stats stats;
    server_stats(serving->server, &stats);
    return stats;
}
