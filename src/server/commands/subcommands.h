/* subcommands.h - commands that consist of subcommands (CLIENT, CONFIG, ...): choosing one, and HELP's reply.
 * On the command's fiber. */
#ifndef SERVER_COMMANDS_SUBCOMMANDS_H
#define SERVER_COMMANDS_SUBCOMMANDS_H

#include "server/command.h"

struct subcommand {
    const char *name; /* upper case; NULL ends the list */
    int arity;        /* as in struct server_command; it counts the command's name too */
    server_command_function *run;
};
/* Runs the subcommand that arguments[1] names, or replies an error. */
void subcommand_run(struct server_call *call, const struct subcommand *list);
/* The reply of HELP. `lines` ends with NULL; the first and last lines, which Redis adds, are added. */
void subcommand_reply_help(struct server_call *call, const char *name, const char *const *lines);

#endif
