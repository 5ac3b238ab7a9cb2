/*
 * command.c - COMMAND: what commands there are, their keys, and what they take. On a fiber; replies and
 * errors in the words of Redis 7.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "server/arguments.h"
#include "server/commands/documents.h"
#include "server/commands/functions.h"
#include "server/commands/subcommands.h"
#include "server/glob.h"
#include "server/replies.h"
#include "server/state.h"

/* ---- a command or a subcommand ---- */

#define FULL_NAME_MAX (2 * SERVER_COMMAND_NAME_MAX + 2)

struct subject {
    const struct server_command *command;
    const struct server_subcommand *sub; /* NULL: it is the command itself */
    char name[FULL_NAME_MAX];            /* "get", "client|list" */
    const struct command_document *document;
    int arity, first_key, last_key, key_step;
};

static void subject_set(struct subject *subject, const struct server_command *command,
                        const struct server_subcommand *sub)
{
    static const struct command_document nothing = {"", "", "", "", "", "", "", 0, 0, 0, ""};
    *subject = (struct subject){.command = command, .sub = sub, .arity = sub ? sub->arity : command->arity};
    int length = snprintf(subject->name, sizeof subject->name, "%s%s%s", command->name, sub ? "|" : "",
                          sub ? sub->name : "");
    for (int i = 0; i < length; i++)
        subject->name[i] = (char)tolower((unsigned char)subject->name[i]);
    const struct command_document *document = command_document_find(subject->name);
    subject->document = document ? document : &nothing;
    subject->first_key = sub ? subject->document->first_key : command->first_key;
    subject->last_key = sub ? subject->document->last_key : command->last_key;
    subject->key_step = sub ? subject->document->key_step : command->key_step;
}

static const struct server_subcommand *sub_find(const struct server_command *command, const char *name,
                                                size_t length)
{
    struct resp_argument text = {name, length};
    for (const struct server_subcommand *sub = command->subcommands; sub && sub->name; sub++)
        if (server_argument_is(&text, sub->name))
            return sub;
    return NULL;
}

/* By "name" or "name|sub". False: there is no such command. */
static bool subject_named(const struct server_call *call, const struct resp_argument *name,
                          struct subject *subject)
{
    const char *bar = name->length ? memchr(name->bytes, '|', name->length) : NULL;
    size_t length = bar ? (size_t)(bar - name->bytes) : name->length;
    const struct server_command *command =
        command_table_find(server_of(call)->table, name->bytes, length, NULL);
    const struct server_subcommand *sub =
        command && bar ? sub_find(command, bar + 1, name->length - length - 1) : NULL;
    if (!command || (bar && !sub))
        return false;
    subject_set(subject, command, sub);
    return true;
}

static size_t subs_count(const struct server_command *command)
{
    size_t count = 0;
    while (command->subcommands && command->subcommands[count].name)
        count++;
    return count;
}

/* ---- COMMAND, COMMAND INFO ---- */

/* The words of a text, up to its end or a semicolon: counted, and replied as a set of simple or bulk strings.
 */
static size_t words_count(const char *text)
{
    size_t count = *text != 0;
    for (; *text && *text != ';'; text++)
        count += *text == ' ';
    return count;
}

static void words_reply(struct resp_writer *reply, const char *text, const char *before, bool simple)
{
    char word[96];
    resp_set(reply, words_count(text));
    while (*text && *text != ';') {
        size_t length = strcspn(text, " ;");
        snprintf(word, sizeof word, "%s%.*s", before, (int)length, text);
        if (simple)
            resp_simple(reply, word);
        else
            resp_text(reply, word);
        text += length;
        text += *text == ' ';
    }
}

static void named_integer(struct resp_writer *reply, const char *name, int64_t value)
{
    resp_text(reply, name);
    resp_integer(reply, value);
}

/* What is done to the keys after the first one, if that is something else; or NULL. */
static const char *flags_of_rest(const struct subject *subject)
{
    const char *semicolon = strchr(subject->document->key_flags, ';');
    return semicolon ? semicolon + 1 : NULL;
}

/* Keys of which the same is done: from `first` on, to `last`, in steps. */
static void key_run_describe(struct resp_writer *reply, const char *flags, int first, int last, int step)
{
    resp_map(reply, 3);
    resp_text(reply, "flags");
    words_reply(reply, flags, "", true);
    resp_text(reply, "begin_search");
    resp_map(reply, 2);
    resp_text(reply, "type");
    resp_text(reply, "index");
    resp_text(reply, "spec");
    resp_map(reply, 1);
    named_integer(reply, "index", first);
    resp_text(reply, "find_keys");
    resp_map(reply, 2);
    resp_text(reply, "type");
    resp_text(reply, "range");
    resp_text(reply, "spec");
    resp_map(reply, 3);
    named_integer(reply, "lastkey", last < 0 ? last : last - first);
    named_integer(reply, "keystep", step);
    named_integer(reply, "limit", 0);
}

/* Where the keys stand. */
static void keys_describe(struct resp_writer *reply, const struct subject *subject)
{
    const char *flags = subject->document->key_flags, *rest = flags_of_rest(subject);
    int first = subject->first_key, last = subject->last_key, step = subject->key_step;
    resp_set(reply, !first ? 0 : rest ? 2 : 1);
    if (!first)
        return;
    key_run_describe(reply, flags, first, rest ? first : last, step);
    if (rest)
        key_run_describe(reply, rest, first + step, last, step);
}

static void subject_describe(struct resp_writer *reply, const struct subject *subject)
{
    size_t subs = subject->sub ? 0 : subs_count(subject->command);
    resp_array(reply, 10);
    resp_text(reply, subject->name);
    resp_integer(reply, subject->arity);
    words_reply(reply, subject->document->flags, "", true);
    resp_integer(reply, subject->first_key);
    resp_integer(reply, subject->last_key);
    resp_integer(reply, subject->key_step);
    words_reply(reply, subject->document->categories, "@", true);
    words_reply(reply, subject->document->tips, "", false);
    keys_describe(reply, subject);
    resp_set(reply, subs);
    for (size_t i = 0; i < subs; i++) {
        struct subject sub;
        subject_set(&sub, subject->command, &subject->command->subcommands[i]);
        subject_describe(reply, &sub);
    }
}

void command_command_run(struct server_call *call)
{
    const struct command_table *table = server_of(call)->table;
    resp_array(call->reply, command_table_count(table));
    for (unsigned i = 0; i < command_table_count(table); i++) {
        struct subject subject;
        subject_set(&subject, command_table_at(table, i), NULL);
        subject_describe(call->reply, &subject);
    }
}

static void command_count(struct server_call *call)
{
    resp_integer(call->reply, command_table_count(server_of(call)->table));
}

static void command_info(struct server_call *call)
{
    if (call->count == 2) {
        command_command_run(call);
        return;
    }
    resp_array(call->reply, call->count - 2);
    for (uint32_t i = 2; i < call->count; i++) {
        struct subject subject;
        if (subject_named(call, &call->arguments[i], &subject))
            subject_describe(call->reply, &subject);
        else
            resp_null(call->reply);
    }
}

/* ---- COMMAND LIST ---- */

struct filter {
    enum { FILTER_NONE, FILTER_MODULE, FILTER_CATEGORY, FILTER_PATTERN } kind;
    const struct resp_argument *value;
};

static bool filter_read(struct server_call *call, struct filter *filter)
{
    static const char *const kinds[] = {"", "MODULE", "ACLCAT", "PATTERN"};
    *filter = (struct filter){FILTER_NONE, NULL};
    if (call->count == 2)
        return true;
    for (unsigned kind = FILTER_MODULE; kind <= FILTER_PATTERN; kind++)
        if (call->count == 5 && server_argument_is(&call->arguments[2], "FILTERBY") &&
            server_argument_is(&call->arguments[3], kinds[kind])) {
            *filter = (struct filter){kind, &call->arguments[4]};
            return true;
        }
    server_reply_syntax(call);
    return false;
}

static bool filter_admits(const struct filter *filter, const struct subject *subject)
{
    const struct resp_argument *value = filter->value;
    if (filter->kind == FILTER_PATTERN)
        return glob_match_once(value->bytes, value->length, subject->name, strlen(subject->name), true);
    if (filter->kind != FILTER_CATEGORY)
        return filter->kind == FILTER_NONE;
    for (const char *at = subject->document->categories; *at;) {
        size_t length = strcspn(at, " ");
        if (length == value->length && strncasecmp(at, value->bytes, length) == 0)
            return true;
        at += length;
        at += *at == ' ';
    }
    return false;
}

static void command_list(struct server_call *call)
{
    const struct command_table *table = server_of(call)->table;
    struct filter filter;
    if (!filter_read(call, &filter))
        return;
    size_t mark = resp_array_open(call->reply), count = 0;
    for (unsigned i = 0; i < command_table_count(table); i++) {
        const struct server_command *command = command_table_at(table, i);
        for (size_t j = 0; j <= subs_count(command); j++) {
            struct subject subject;
            subject_set(&subject, command, j ? &command->subcommands[j - 1] : NULL);
            if (!filter_admits(&filter, &subject))
                continue;
            resp_text(call->reply, subject.name);
            count++;
        }
    }
    resp_array_close(call->reply, mark, count);
}

/* ---- COMMAND DOCS ---- */

static void named_text(struct resp_writer *reply, const char *name, const char *text)
{
    resp_text(reply, name);
    resp_text(reply, text);
}

static void subject_document(struct resp_writer *reply, const struct subject *subject)
{
    const struct command_document *document = subject->document;
    size_t subs = subject->sub ? 0 : subs_count(subject->command);
    resp_text(reply, subject->name);
    resp_map(reply, 3 + (size_t)(*document->syntax != 0) + (size_t)(subs != 0));
    named_text(reply, "summary", subject->sub ? document->summary : subject->command->summary);
    named_text(reply, "since", document->since);
    named_text(reply, "group", subject->command->group);
    if (*document->syntax) {
        resp_text(reply, "arguments");
        syntax_reply(reply, document->syntax);
    }
    if (!subs)
        return;
    resp_text(reply, "subcommands");
    resp_map(reply, subs);
    for (size_t i = 0; i < subs; i++) {
        struct subject sub;
        subject_set(&sub, subject->command, &subject->command->subcommands[i]);
        subject_document(reply, &sub);
    }
}

static void command_docs(struct server_call *call)
{
    const struct command_table *table = server_of(call)->table;
    struct subject subject;
    uint32_t found = 0;
    for (uint32_t i = 2; i < call->count; i++)
        found += subject_named(call, &call->arguments[i], &subject);
    resp_map(call->reply, call->count == 2 ? command_table_count(table) : found);
    for (unsigned i = 0; call->count == 2 && i < command_table_count(table); i++) {
        subject_set(&subject, command_table_at(table, i), NULL);
        subject_document(call->reply, &subject);
    }
    for (uint32_t i = 2; i < call->count; i++)
        if (subject_named(call, &call->arguments[i], &subject))
            subject_document(call->reply, &subject);
}

/* ---- COMMAND GETKEYS, GETKEYSANDFLAGS ---- */

/* What a command with these arguments does to the key, which is its first one or not. */
static const char *flags_now(const struct server_call *call, const struct subject *subject, bool first)
{
    const char *name = subject->command->name, *rest = flags_of_rest(subject);
    if (rest && !first)
        return rest;
    if (strcmp(name, "set") == 0) {
        for (uint32_t i = 5; i < call->count; i++)
            if (server_argument_is(&call->arguments[i], "GET"))
                return "RW access update";
        return "OW update";
    }
    if (strcmp(name, "bitfield") == 0) {
        for (uint32_t i = 4; i < call->count; i++)
            if (server_argument_is(&call->arguments[i], "SET") ||
                server_argument_is(&call->arguments[i], "INCRBY"))
                return "RW access update";
        return "RO access";
    }
    return subject->document->key_flags;
}

/* The command that arguments[2] and those after it are a call of. */
static bool subject_called(const struct server_call *call, struct subject *subject)
{
    const struct resp_argument *arguments = call->arguments + 2;
    const struct server_command *command =
        command_table_find(server_of(call)->table, arguments[0].bytes, arguments[0].length, NULL);
    if (!command)
        return false;
    const struct server_subcommand *sub = NULL;
    if (command->subcommands && call->count > 3) {
        sub = sub_find(command, arguments[1].bytes, arguments[1].length);
        if (!sub)
            return false;
    }
    subject_set(subject, command, sub);
    return true;
}

static void keys_reply(struct server_call *call, bool flags)
{
    struct subject subject;
    uint32_t count = call->count - 2;
    if (!subject_called(call, &subject)) {
        resp_error(call->reply, "ERR Invalid command specified");
    } else if (!subject.first_key) {
        resp_error(call->reply, "ERR The command has no key arguments");
    } else if (!command_arity_allows(subject.arity, count)) {
        resp_error(call->reply, "ERR Invalid number of arguments specified for command");
    } else {
        int last = subject.last_key < 0 ? (int)count + subject.last_key : subject.last_key;
        size_t mark = resp_array_open(call->reply), keys = 0;
        for (int i = subject.first_key; i <= last && i < (int)count; i += subject.key_step, keys++) {
            if (flags)
                resp_array(call->reply, 2);
            resp_bulk(call->reply, call->arguments[2 + i].bytes, call->arguments[2 + i].length);
            if (flags)
                words_reply(call->reply, flags_now(call, &subject, i == subject.first_key), "", true);
        }
        resp_array_close(call->reply, mark, keys);
    }
}

static void command_getkeys(struct server_call *call)
{
    keys_reply(call, false);
}

static void command_getkeysandflags(struct server_call *call)
{
    keys_reply(call, true);
}

static void command_help(struct server_call *call)
{
    static const char *const lines[] = {"(no subcommand)",
                                        "    Return details about all Banyan commands.",
                                        "COUNT",
                                        "    Return the total number of commands in this server.",
                                        "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
                                        "    Return the names of commands and subcommands.",
                                        "INFO [<command-name> ...]",
                                        "    Return details about multiple commands.",
                                        "DOCS [<command-name> ...]",
                                        "    Return documentation details about multiple commands.",
                                        "GETKEYS <full-command>",
                                        "    Return the keys from a full command.",
                                        "GETKEYSANDFLAGS <full-command>",
                                        "    Return the keys and the access flags from a full command.",
                                        NULL};
    subcommand_reply_help(call, "COMMAND", lines);
}

const struct server_subcommand command_subcommands[] = {
    {"COUNT", 2, command_count},      {"LIST", -2, command_list},
    {"INFO", -2, command_info},       {"DOCS", -2, command_docs},
    {"GETKEYS", -4, command_getkeys}, {"GETKEYSANDFLAGS", -4, command_getkeysandflags},
    {"HELP", 2, command_help},        {NULL, 0, NULL}};
