/* client.c - see client.h. */
#include "cli/client.h"

#include <stdio.h>
#include <string.h>
#include <sys/time.h>

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
