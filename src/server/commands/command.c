/* command.c - COMMAND: what commands there are. On a fiber; errors in the words of Redis 7. */
#include <stdio.h>
#include <string.h>

#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/subcommands.h"
#include "server/state.h"
#include "server/glob.h"
#include "server/replies.h"

/* ---- COMMAND ---- */

static void command_flags(struct resp_writer *reply, const struct server_command *command)
{
    static const struct {
        uint32_t flag;
        const char *name;
    } names[] = {{SERVER_READONLY, "readonly"},
                 {SERVER_WRITE, "write"},
                 {SERVER_ADMIN, "admin"},
                 {SERVER_FAST, "fast"},
                 {SERVER_NO_AUTH, "no_auth"}};
    size_t count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        count += (command->flags & names[i].flag) != 0;
    resp_set(reply, count);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (command->flags & names[i].flag)
            resp_simple(reply, names[i].name);
}

static void command_describe(struct resp_writer *reply, const struct server_command *command)
{
    char category[64];
    resp_array(reply, 10);
    resp_text(reply, command->name);
    resp_integer(reply, command->arity);
    command_flags(reply, command);
    resp_integer(reply, command->first_key);
    resp_integer(reply, command->last_key);
    resp_integer(reply, command->key_step);
    snprintf(category, sizeof category, "@%s", command->group);
    resp_set(reply, 1);
    resp_simple(reply, category);
    for (unsigned i = 0; i < 3; i++) /* tips, key specifications, subcommands */
        resp_array(reply, 0);
}

static void command_document(struct resp_writer *reply, const struct server_command *command)
{
    resp_text(reply, command->name);
    resp_map(reply, 3);
    resp_text(reply, "summary");
    resp_text(reply, command->summary ? command->summary : "");
    resp_text(reply, "group");
    resp_text(reply, command->group);
    resp_text(reply, "arity");
    resp_integer(reply, command->arity);
}

void command_command_run(struct server_call *call)
{
    const struct command_table *table = server_of(call)->table;
    resp_array(call->reply, command_table_count(table));
    for (unsigned i = 0; i < command_table_count(table); i++)
        command_describe(call->reply, command_table_at(table, i));
}

static void command_count(struct server_call *call)
{
    resp_integer(call->reply, command_table_count(server_of(call)->table));
}

static void command_list(struct server_call *call)
{
    const struct command_table *table = server_of(call)->table;
    const struct resp_argument *pattern = NULL;
    bool none = false;
    if (call->count == 5 && server_argument_is(&call->arguments[2], "FILTERBY")) {
        pattern = &call->arguments[4];
        none = server_argument_is(&call->arguments[3], "MODULE");
        if (!none && !server_argument_is(&call->arguments[3], "PATTERN")) {
            server_reply_syntax(call);
            return;
        }
    } else if (call->count != 2) {
        server_reply_syntax(call);
        return;
    }
    size_t mark = resp_array_open(call->reply), count = 0;
    for (unsigned i = 0; !none && i < command_table_count(table); i++) {
        const char *name = command_table_at(table, i)->name;
        if (pattern && !glob_match_once(pattern->bytes, pattern->length, name, strlen(name), true))
            continue;
        resp_text(call->reply, name);
        count++;
    }
    resp_array_close(call->reply, mark, count);
}

static const struct server_command *command_named(const struct server_call *call, uint32_t argument)
{
    return command_table_find(server_of(call)->table, call->arguments[argument].bytes,
                              call->arguments[argument].length, NULL);
}

static void command_info(struct server_call *call)
{
    if (call->count == 2) {
        command_command_run(call);
        return;
    }
    resp_array(call->reply, call->count - 2);
    for (uint32_t i = 2; i < call->count; i++) {
        const struct server_command *command = command_named(call, i);
        if (command)
            command_describe(call->reply, command);
        else
            resp_null(call->reply);
    }
}

static void command_docs(struct server_call *call)
{
    const struct command_table *table = server_of(call)->table;
    uint32_t found = 0;
    for (uint32_t i = 2; i < call->count; i++)
        found += command_named(call, i) != NULL;
    resp_map(call->reply, call->count == 2 ? command_table_count(table) : found);
    for (unsigned i = 0; call->count == 2 && i < command_table_count(table); i++)
        command_document(call->reply, command_table_at(table, i));
    for (uint32_t i = 2; i < call->count; i++)
        if (command_named(call, i))
            command_document(call->reply, command_named(call, i));
}

static void command_getkeys(struct server_call *call)
{
    const struct server_command *command = command_named(call, 2);
    uint32_t count = call->count - 2;
    if (!command) {
        resp_error(call->reply, "ERR Invalid command specified");
    } else if (!command->first_key) {
        resp_error(call->reply, "ERR The command has no key arguments");
    } else if (!command_arity_allows(command->arity, count)) {
        resp_error(call->reply, "ERR Invalid number of arguments specified for command");
    } else {
        int last = command->last_key < 0 ? (int)count + command->last_key : command->last_key;
        size_t mark = resp_array_open(call->reply), keys = 0;
        for (int i = command->first_key; i <= last && i < (int)count; i += command->key_step, keys++)
            resp_bulk(call->reply, call->arguments[2 + i].bytes, call->arguments[2 + i].length);
        resp_array_close(call->reply, mark, keys);
    }
}

static void command_help(struct server_call *call)
{
    static const char *const lines[] = {"(no subcommand)",
                                        "    Return details about all Banyan commands.",
                                        "COUNT",
                                        "    Return the total number of commands in this server.",
                                        "LIST [FILTERBY PATTERN <pattern>]",
                                        "    Return the names of commands.",
                                        "INFO [<command-name> ...]",
                                        "    Return details about multiple commands.",
                                        "DOCS [<command-name> ...]",
                                        "    Return documentation details about multiple commands.",
                                        "GETKEYS <full-command>",
                                        "    Return the keys from a full command.",
                                        NULL};
    subcommand_reply_help(call, "COMMAND", lines);
}

const struct server_subcommand command_subcommands[] = {{"COUNT", 2, command_count},
                                                        {"LIST", -2, command_list},
                                                        {"INFO", -2, command_info},
                                                        {"DOCS", -2, command_docs},
                                                        {"GETKEYS", -3, command_getkeys},
                                                        {"HELP", 2, command_help},
                                                        {NULL, 0, NULL}};
