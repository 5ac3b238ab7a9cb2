/* command.c - the table of commands by name, and how one is run; contract in command.h. */
#include "server/command.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/arguments.h"
#include "server/connection.h"
#include "server/replies.h"

/* ---- the table ---- */

struct table_entry {
    const struct server_command *command;
    uint64_t word; /* the name, if it is brief (name_word); else 0 */
    uint32_t hash, length;
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

/* A brief name, in lower case, as one word. Two words are equal where names of the same length are. */
static uint64_t name_word(const char *name, size_t length)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    uint64_t word = 0;
    if (length >= 4) {
        uint32_t first, last;
        memcpy(&first, name, sizeof first);
        memcpy(&last, name + length - sizeof last, sizeof last);
        word = first | (uint64_t)last << 8 * (length - sizeof last);
    } else if (length) {
        word = (unsigned char)name[0] | (uint64_t)(unsigned char)name[length / 2] << 8 * (length / 2) |
               (uint64_t)(unsigned char)name[length - 1] << 8 * (length - 1);
    }
    /* Bit 7 of each byte: whether its other seven bits are at least 'A', and whether they are above 'Z'. */
    const uint64_t low = word & 0x7f * each;
    const uint64_t from_a = low + (0x80 - 'A') * each, above_z = low + (0x7f - 'Z') * each;
    return word | ((from_a & ~above_z & ~word & 0x80 * each) >> 2);
}

static inline bool name_brief(size_t length)
{
    return length <= sizeof(uint64_t);
}

/* The hashes that the table goes by. */
static inline uint32_t word_hash(uint64_t word)
{
    return (uint32_t)(word * UINT64_C(0x9fb21c651e98df25) >> 32);
}

static int entry_add(struct command_table *table, const struct server_command *command, struct error *error)
{
    size_t length = strlen(command->name);
    if (length > SERVER_COMMAND_NAME_MAX || (!command->run && !command->point && !command->subcommands) ||
        (command->point && !(command->flags & (SERVER_POINT_VALUE | SERVER_POINT_LENGTH))))
        return error_set(error, BANYAN_EINVAL, "command %s cannot be run", command->name);
    if (command_table_find(table, command->name, length, NULL))
        return error_set(error, BANYAN_EINVAL, "command %s is there twice", command->name);
    const uint64_t word = name_brief(length) ? name_word(command->name, length) : 0;
    uint32_t hash = name_brief(length) ? word_hash(word) : name_hash(command->name, length);
    uint32_t at = hash & table->mask;
    while (table->slots[at])
        at = (at + 1) & table->mask;
    table->entries[table->count] =
        (struct table_entry){.command = command, .word = word, .hash = hash, .length = (uint32_t)length};
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
    while (size < total * 4) /* sparse, so that most names are found at the first place */
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

/* A name that is not brief. Not inlined, so that the search for brief ones saves no registers. */
static __attribute__((noinline)) const struct table_entry *long_find(const struct command_table *table,
                                                                     const char *name, size_t length)
{
    const uint32_t hash = name_hash(name, length);
    for (uint32_t at = hash & table->mask; table->slots[at]; at = (at + 1) & table->mask) {
        const struct table_entry *entry = &table->entries[table->slots[at] - 1];
        if (entry->hash == hash && entry->length == length &&
            strncasecmp(entry->command->name, name, length) == 0)
            return entry;
    }
    return NULL;
}

static inline const struct table_entry *brief_find(const struct command_table *table, const char *name,
                                                   size_t length)
{
    const uint64_t word = name_word(name, length);
    for (uint32_t at = word_hash(word) & table->mask; table->slots[at]; at = (at + 1) & table->mask) {
        const struct table_entry *entry = &table->entries[table->slots[at] - 1];
        if (entry->word == word && entry->length == length)
            return entry;
    }
    return NULL;
}

const struct server_command *command_table_find(const struct command_table *table, const char *name,
                                                size_t length, unsigned *index)
{
    if (length > SERVER_COMMAND_NAME_MAX)
        return NULL;
    const struct table_entry *entry =
        name_brief(length) ? brief_find(table, name, length) : long_find(table, name, length);
    if (!entry)
        return NULL;
    if (index)
        *index = (unsigned)(entry - table->entries);
    return entry->command;
}

/* ---- running ---- */

static void subcommand_run(struct server_call *call, const struct server_subcommand *list)
{
    for (; list->name; list++) {
        if (!server_argument_is(&call->arguments[1], list->name))
            continue;
        if (call->connection)
            call->connection->last_subcommand = list->name;
        if (command_arity_allows(list->arity, call->count))
            list->run(call);
        else
            server_reply_subcommand_arity(call, list->name);
        return;
    }
    server_reply_subcommand(call);
}

static struct store_part call_part(void *context, uint64_t whole)
{
    const struct server_call *call = context;
    return call->command->part(call->arguments, call->count, whole);
}

void command_run(struct server_call *call)
{
    const struct server_command *command = call->command;
    assert(command && command_arity_allows(command->arity, call->count));
    if (command->subcommands && (!command->run || call->count > 1)) {
        subcommand_run(call, command->subcommands);
        return;
    }
    if (command->run) {
        command->run(call);
        return;
    }
    const struct resp_argument *key = &call->arguments[1];
    struct store_value value;
    if (!server_argument_key(call, key))
        return;
    int status;
    if (command->part)
        status = store_get_part(call->store, key->bytes, key->length, call_part, call, &value);
    else if (command->flags & SERVER_POINT_VALUE)
        status = store_get(call->store, key->bytes, key->length, &value);
    else
        status = store_stat(call->store, key->bytes, key->length, &value);
    if (!status)
        command->point(call, &value);
    else if (status == BANYAN_ENOTFOUND)
        command->point(call, NULL);
    else
        server_reply_failure(call, status);
}
