/*
 * client.h - a connection to a server that speaks Redis's protocol, for commands that are its clients.
 */
#ifndef CLI_CLIENT_H
#define CLI_CLIENT_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"
#include "net/net.h"

/* Connects, and gives the password unless it is empty. `seconds`: the most that anything on this connection
 * waits. NULL, and the error: BANYAN_ENET, BANYAN_EINVAL (the password is wrong). The caller frees it by
 * redisFree. */
redisContext *client_connect(const struct net_address *address, const char *password, unsigned seconds,
                             struct error *error);
/* How far a command is that moves keys between a server and a file. */
struct client_progress {
    uint64_t begun_at, told_at; /* task_now's; the caller sets the first */
};
/* On a terminal: a line on standard error, four times a second and at the `end`. */
void client_progress(struct client_progress *progress, uint64_t keys, uint64_t bytes, bool end);
/* A server's words, made fit for a terminal: what cannot be printed becomes '?'. */
void client_words(char *to, size_t size, const char *from);

#endif
