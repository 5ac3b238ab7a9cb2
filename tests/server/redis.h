/*
 * redis.h - a real redis-server, started on a Unix socket in a temporary folder, and requests to it, or to
 * any other server: for tests that compare. The test's thread; failures of the machinery fail the test.
 */
#ifndef TESTS_SERVER_REDIS_H
#define TESTS_SERVER_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "server/resp_parser.h"

struct redis {
    char folder[64], path[96];
    pid_t process;
    int fd;
    char *bytes; /* of the last reply */
    size_t length, capacity;
};
/* False: there is no redis-server of version 7 on this machine. */
bool redis_start(struct redis *redis);
void redis_stop(struct redis *redis);
/* Sends one request, and receives its reply: redis->bytes. With nothing but redis->fd set, of any server. */
void redis_run(struct redis *redis, const struct resp_argument *arguments, uint32_t count);
/* The same of an inline request. */
void redis_say(struct redis *redis, const char *line);
/* Receives exactly so many replies. */
void redis_receive(struct redis *redis, unsigned replies);

#endif
