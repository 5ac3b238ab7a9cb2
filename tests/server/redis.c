/* redis.c - see redis.h. */
#include "redis.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"

#define REDIS_MAJOR "redis_version:7."
#define PATIENCE_MS 20000

static void redis_exec(const struct redis *redis)
{
    int output = open("/dev/null", O_RDWR);
    dup2(output, 1);
    dup2(output, 2);
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", redis->path, "--save", "",
           "--appendonly", "no", "--daemonize", "no", "--dir", redis->folder, (char *)NULL);
    _exit(127);
}

static bool redis_connect(struct redis *redis)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, redis->path, sizeof address.sun_path - 1);
    redis->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (redis->fd < 0)
        return false;
    if (!connect(redis->fd, (struct sockaddr *)&address, sizeof address))
        return true;
    close(redis->fd);
    redis->fd = -1;
    return false;
}

bool redis_start(struct redis *redis)
{
    memset(redis, 0, sizeof *redis);
    redis->fd = -1;
    snprintf(redis->folder, sizeof redis->folder, "/tmp/banyan-redis-XXXXXX");
    assert_non_null(mkdtemp(redis->folder));
    snprintf(redis->path, sizeof redis->path, "%s/redis.sock", redis->folder);
    redis->process = fork();
    assert_true(redis->process >= 0);
    if (!redis->process)
        redis_exec(redis);
    uint64_t begin = clock_wall_ms();
    while (!redis_connect(redis) && clock_wall_ms() - begin < PATIENCE_MS) {
        int status;
        if (waitpid(redis->process, &status, WNOHANG) == redis->process) {
            redis->process = 0;
            return false;
        }
        poll(NULL, 0, 10);
    }
    assert_true(redis->fd >= 0);
    redis_say(redis, "INFO server");
    return memmem(redis->bytes, redis->length, REDIS_MAJOR, strlen(REDIS_MAJOR)) != NULL;
}

void redis_stop(struct redis *redis)
{
    if (redis->fd >= 0)
        close(redis->fd);
    if (redis->process > 0) {
        kill(redis->process, SIGKILL);
        waitpid(redis->process, NULL, 0);
    }
    unlink(redis->path);
    rmdir(redis->folder);
    free(redis->bytes);
}

static void redis_write(struct redis *redis, const char *bytes, size_t length)
{
    while (length) {
        ssize_t sent = write(redis->fd, bytes, length);
        assert_true(sent > 0);
        bytes += sent;
        length -= (size_t)sent;
    }
}

/* The place after the reply that begins at `at`; 0 while it is incomplete. */
static size_t reply_end(const char *bytes, size_t length, size_t at)
{
    const char *line = at < length ? memchr(bytes + at, '\n', length - at) : NULL;
    if (!line)
        return 0;
    size_t next = (size_t)(line - bytes) + 1;
    long long count = strtoll(bytes + at + 1, NULL, 10);
    switch (bytes[at]) {
    case '$':
    case '=':
        next += count < 0 ? 0 : (size_t)count + 2;
        return next <= length ? next : 0;
    case '%':
        count *= 2; /* fallthrough */
    case '*':
    case '~':
        for (long long i = 0; i < count && next; i++)
            next = reply_end(bytes, length, next);
        return next;
    default:
        return next;
    }
}

void redis_receive(struct redis *redis, unsigned replies)
{
    size_t end = 0;
    redis->length = 0;
    for (unsigned i = 0; i < replies;) {
        if (redis->capacity - redis->length < 4096) {
            redis->capacity = redis->capacity * 2 + 8192;
            redis->bytes = realloc(redis->bytes, redis->capacity);
            assert_non_null(redis->bytes);
        }
        struct pollfd wait = {.fd = redis->fd, .events = POLLIN};
        assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
        ssize_t got = read(redis->fd, redis->bytes + redis->length, redis->capacity - redis->length);
        assert_true(got > 0);
        redis->length += (size_t)got;
        for (size_t next; i < replies && (next = reply_end(redis->bytes, redis->length, end)); i++)
            end = next;
    }
    assert_int_equal(end, redis->length);
}

void redis_run(struct redis *redis, const struct resp_argument *arguments, uint32_t count)
{
    char head[32];
    redis_write(redis, head, (size_t)snprintf(head, sizeof head, "*%u\r\n", count));
    for (uint32_t i = 0; i < count; i++) {
        redis_write(redis, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", arguments[i].length));
        redis_write(redis, arguments[i].bytes, arguments[i].length);
        redis_write(redis, "\r\n", 2);
    }
    redis_receive(redis, 1);
}

/* In one write: of two, the second would wait for the acknowledgement of the first. */
void redis_say(struct redis *redis, const char *line)
{
    size_t length = strlen(line);
    char *request = malloc(length + 2);
    assert_non_null(request);
    memcpy(request, line, length);
    memcpy(request + length, "\r\n", 2);
    redis_write(redis, request, length + 2);
    free(request);
    redis_receive(redis, 1);
}
