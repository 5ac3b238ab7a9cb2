/* admin.h - the commands about connections and the server itself, between their files: connection.c (PING to
 * CLIENT), info.c (INFO), admin.c (the rest, and the table of them all). */
#ifndef SERVER_ADMIN_H
#define SERVER_ADMIN_H

#include "server/connection.h"

/* connection.c */
server_command_function connection_ping, connection_echo, connection_quit, connection_reset, connection_hello,
    connection_auth, connection_select, connection_client;
/* info.c */
server_command_function info_command;

/* A text that is put together bit by bit, bounded by memory alone. */
struct text {
    char *bytes;
    size_t length, capacity;
    bool failed; /* no memory: it is cut */
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);
/* The reply of a HELP subcommand: `lines` ends with NULL; the lines that Redis puts around are added. */
void admin_reply_help(struct server_call *call, const char *name, const char *const *lines);

#endif
