/* subcommands.h - HELP's reply of commands that consist of subcommands (CLIENT, CONFIG, ...). On the
 * command's fiber. */
#ifndef SERVER_COMMANDS_SUBCOMMANDS_H
#define SERVER_COMMANDS_SUBCOMMANDS_H

#include "server/command.h"

/* The reply of HELP. `lines` ends with NULL; the first and last lines, which Redis adds, are added. */
void subcommand_reply_help(struct server_call *call, const char *name, const char *const *lines);

#endif
