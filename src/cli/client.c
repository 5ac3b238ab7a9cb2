/* client.c - see client.h. */
#include "cli/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/task.h"

#define TOLD_NS UINT64_C(250000000)

void client_progress(struct client_progress *progress, uint64_t keys, uint64_t bytes, bool end)
{
    const uint64_t now = task_now();
    if (!isatty(STDERR_FILENO) || (!end && now < progress->told_at + TOLD_NS))
        return;
    progress->told_at = now;
    const double seconds = (double)(now - progress->begun_at) / 1e9 + 1e-9;
    fprintf(stderr, "\r%" PRIu64 " keys, %.1f MiB, %.0f keys/s \033[K%s", keys, (double)bytes / 1048576,
            (double)keys / seconds, end ? "\n" : "");
}

void client_words(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "it answers with something else");
    for (char *at = to; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
}

static redisContext *refused(redisContext *connection, const struct net_address *address, int code,
                             const char *why, struct error *error)
{
    char text[NET_TEXT_MAX], words[120];
    client_words(words, sizeof words, why);
    error_set(error, code, "%s: %s", net_address_format(address, text), words);
    if (connection)
        redisFree(connection);
    return NULL;
}

redisContext *client_connect(const struct net_address *address, const char *password, unsigned seconds,
                             struct error *error)
{
    const struct timeval limit = {.tv_sec = seconds};
    redisContext *connection = address->kind == NET_UNIX
                                   ? redisConnectUnixWithTimeout(address->path, limit)
                                   : redisConnectWithTimeout(address->host, address->port, limit);
    if (!connection || connection->err)
        return refused(connection, address, BANYAN_ENET, connection ? connection->errstr : "no memory",
                       error);
    redisSetTimeout(connection, limit);
    if (!password[0])
        return connection;
    redisReply *reply = redisCommand(connection, "AUTH %s", password);
    if (reply && reply->type != REDIS_REPLY_ERROR) {
        freeReplyObject(reply);
        return connection;
    }
    refused(connection, address, reply ? BANYAN_EINVAL : BANYAN_ENET,
            reply ? reply->str : "no answer to AUTH", error);
    freeReplyObject(reply);
    return NULL;
}
