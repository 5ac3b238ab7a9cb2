/* subcommands.c - see subcommands.h. */
#include "server/commands/subcommands.h"

#include <stdio.h>

void subcommand_reply_help(struct server_call *call, const char *name, const char *const *lines)
{
    char first[128];
    size_t count = 0;
    while (lines[count])
        count++;
    snprintf(first, sizeof first, "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", name);
    resp_array(call->reply, count + 3);
    resp_simple(call->reply, first);
    for (size_t i = 0; i < count; i++)
        resp_simple(call->reply, lines[i]);
    resp_simple(call->reply, "HELP");
    resp_simple(call->reply, "    Prints this help.");
}
