/*
 * command.c - the table of commands by name, how one is run, and the replies that many of them share, in the
 * words of Redis 7. Contract in command.h.
 */
#include "server/command.h"
#include "server/commands/many_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the table ---- */

#define NAME_MAX_BYTES 32u

struct table_entry {
    const struct server_command *command;
    uint32_t hash;
};
struct command_table {
    struct table_entry *entries;
    unsigned count;
    uint16_t *slots; /* open addressing: number of the entry plus 1 */
    uint32_t mask;
};

static inline char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static uint32_t name_hash(const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)lower(name[i])) * 16777619u;
    return hash ^ hash >> 15;
}

static int entry_add(struct command_table *table, const struct server_command *command, struct error *error)
{
    size_t length = strlen(command->name);
    if (length > NAME_MAX_BYTES || (!command->run && !command->point) ||
        (command->point && !(command->flags & (SERVER_POINT_VALUE | SERVER_POINT_LENGTH))))
        return error_set(error, BANYAN_EINVAL, "command %s cannot be run", command->name);
    if (command_table_find(table, command->name, length, NULL))
        return error_set(error, BANYAN_EINVAL, "command %s is there twice", command->name);
    uint32_t hash = name_hash(command->name, length), at = hash & table->mask;
    while (table->slots[at])
        at = (at + 1) & table->mask;
    table->entries[table->count] = (struct table_entry){.command = command, .hash = hash};
    table->slots[at] = (uint16_t)++table->count;
    return 0;
}

int command_table_create(struct command_table **out, const struct server_command *const *tables,
                         struct error *error)
{
    unsigned total = 0;
    int status = 0;
    *out = NULL;
    for (const struct server_command *const *t = tables; *t; t++)
        for (const struct server_command *c = *t; c->name; c++)
            total++;
    struct command_table *table = calloc(1, sizeof *table);
    uint32_t size = 64;
    while (size < total * 4) /* sparse, so that most names are found at once */
        size *= 2;
    if (table) {
        table->mask = size - 1;
        table->entries = calloc(total + 1, sizeof *table->entries);
        table->slots = calloc(size, sizeof *table->slots);
    }
    if (!table || !table->entries || !table->slots)
        status = error_set(error, BANYAN_ENOMEM, "no memory for the table of commands");
    for (const struct server_command *const *t = tables; !status && *t; t++)
        for (const struct server_command *c = *t; !status && c->name; c++)
            status = entry_add(table, c, error);
    if (status)
        command_table_destroy(table);
    else
        *out = table;
    return status;
}

void command_table_destroy(struct command_table *table)
{
    if (!table)
        return;
    free(table->entries);
    free(table->slots);
    free(table);
}

unsigned command_table_count(const struct command_table *table)
{
    return table->count;
}

const struct server_command *command_table_at(const struct command_table *table, unsigned index)
{
    return table->entries[index].command;
}

const struct server_command *command_table_find(const struct command_table *table, const char *name,
                                                size_t length, unsigned *index)
{
    if (length > NAME_MAX_BYTES)
        return NULL;
    uint32_t hash = name_hash(name, length);
    for (uint32_t at = hash & table->mask; table->slots[at]; at = (at + 1) & table->mask) {
        const struct table_entry *entry = &table->entries[table->slots[at] - 1];
        if (entry->hash != hash || strncasecmp(entry->command->name, name, length) != 0 ||
            entry->command->name[length])
            continue;
        if (index)
            *index = (unsigned)(entry - table->entries);
        return entry->command;
    }
    return NULL;
}

/* ---- running ---- */

void command_run(struct server_call *call)
{
    const struct server_command *command = call->command;
    if (command->run) {
        command->run(call);
        return;
    }
    const struct resp_argument *key = &call->arguments[1];
    struct store_value value;
    if (!server_argument_key(call, key))
        return;
    int status = command->flags & SERVER_POINT_VALUE
                     ? store_get(call->store, key->bytes, key->length, &value)
                     : store_stat(call->store, key->bytes, key->length, &value);
    if (!status)
        command->point(call, &value);
    else if (status == BANYAN_ENOTFOUND)
        command->point(call, NULL);
    else
        server_reply_failure(call, status);
}

/* ---- common replies ---- */

void server_reply_syntax(struct server_call *call)
{
    resp_error(call->reply, "ERR syntax error");
}

void server_reply_not_integer(struct server_call *call)
{
    resp_error(call->reply, "ERR value is not an integer or out of range");
}

void server_reply_arity(struct server_call *call)
{
    resp_error(call->reply, "ERR wrong number of arguments for '%s' command", call->command->name);
}

void server_reply_failure(struct server_call *call, int status)
{
    const char *text = tree_session_error(store_session_tree(call->store))->text;
    if (!*text || tree_session_error(store_session_tree(call->store))->code != status)
        text = error_name(status);
    switch (status) {
    case BANYAN_EKEYSIZE:
        resp_error(call->reply, "ERR a key has 1 to %u bytes", store_key_max(call->store));
        break;
    case BANYAN_EVALUESIZE:
        resp_error(call->reply, "ERR string exceeds maximum allowed size (%llu bytes)",
                   (unsigned long long)STORE_VALUE_MAX);
        break;
    case BANYAN_EABORT: /* see client_fiber_cancelled: whoever reads this sees the server stop */
        resp_error(call->reply, "ERR the server stops, and '%s' ended before it was done",
                   call->command->name);
        break;
    case BANYAN_ENOSPC:
    case BANYAN_ENOMEM:
        resp_error(call->reply, "OOM %s", text);
        break;
    case BANYAN_ENET:
    case BANYAN_ETIMEOUT:
    case BANYAN_EFENCED:
        resp_error(call->reply, "CLUSTERDOWN %s", text);
        break;
    case BANYAN_EUNKNOWN:
        resp_error(call->reply, "UNKNOWN the write may have taken effect: %s", text);
        break;
    default:
        resp_error(call->reply, "ERR %s", text);
    }
}

/* As Redis quotes what it does not know: the first 128 bytes, line breaks made blanks. */
void server_reply_unknown(struct server_call *call)
{
    char text[512];
    const struct resp_argument *name = &call->arguments[0];
    size_t at = 0;
    for (uint32_t i = 1; i < call->count && at < 128; i++) {
        const struct resp_argument *argument = &call->arguments[i];
        int bytes = (int)(argument->length < 128 - at ? argument->length : 128 - at);
        at += (size_t)snprintf(text + at, sizeof text - at, "'%.*s' ", bytes, argument->bytes);
    }
    text[at] = 0;
    resp_error(call->reply, "ERR unknown command '%.*s', with args beginning with: %s",
               (int)(name->length < 128 ? name->length : 128), name->bytes, text);
}

void server_reply_subcommand(struct server_call *call)
{
    const struct resp_argument *name = &call->arguments[1];
    char upper[NAME_MAX_BYTES + 1];
    size_t i = 0;
    for (; i < NAME_MAX_BYTES && call->command->name[i]; i++)
        upper[i] = (char)(call->command->name[i] >= 'a' && call->command->name[i] <= 'z'
                              ? call->command->name[i] - 32
                              : call->command->name[i]);
    upper[i] = 0;
    resp_error(call->reply, "ERR unknown subcommand '%.*s'. Try %s HELP.",
               (int)(name->length < 128 ? name->length : 128), name->bytes, upper);
}

void server_reply_subcommand_arity(struct server_call *call, const char *subcommand)
{
    char text[NAME_MAX_BYTES + 1];
    size_t i = 0;
    for (; i < NAME_MAX_BYTES && subcommand[i]; i++)
        text[i] = lower(subcommand[i]);
    text[i] = 0;
    resp_error(call->reply, "ERR wrong number of arguments for '%s|%s' command", call->command->name, text);
}

/* ---- arguments ---- */

bool server_argument_is(const struct resp_argument *argument, const char *name)
{
    size_t length = strlen(name);
    return argument->length == length && strncasecmp(argument->bytes, name, length) == 0;
}

bool server_argument_integer(struct server_call *call, const struct resp_argument *argument, int64_t *value)
{
    if (data_integer(argument->bytes, argument->length, value))
        return true;
    server_reply_not_integer(call);
    return false;
}

bool server_argument_key(struct server_call *call, const struct resp_argument *argument)
{
    uint32_t most = store_key_max(call->store);
    if (argument->length >= 1 && argument->length <= most)
        return true;
    resp_error(call->reply, "ERR a key has 1 to %u bytes, this one has %zu", most, argument->length);
    return false;
}
