/*
 * client.h - a connection to a server that speaks Redis's protocol, for commands that are its clients.
 */
#ifndef CLI_CLIENT_H
#define CLI_CLIENT_H

#include <hiredis/hiredis.h>
#include "base/error.h"
#include "net/net.h"

/* Connects, and gives the password unless it is empty. `seconds`: the most that anything on this connection
 * waits. NULL, and the error: BANYAN_ENET, BANYAN_EINVAL (the password is wrong). The caller frees it by
 * redisFree. */
redisContext *client_connect(const struct net_address *address, const char *password, unsigned seconds,
                             struct error *error);
/* A server's words, made fit for a terminal: what cannot be printed becomes '?'. */
void client_words(char *to, size_t size, const char *from);

#endif
