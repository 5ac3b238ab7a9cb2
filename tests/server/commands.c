/* commands.c - see commands.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "commands.h"
#include "server/replies.h"

void commands_create(struct commands *commands, uint64_t pool_bytes, uint32_t atomic_write)
{
    static const struct server_command *const tables[] = {server_string_commands, server_bit_commands,
                                                          server_key_commands, server_range_commands, NULL};
    struct world_options options;
    struct error error = {0};
    memset(commands, 0, sizeof *commands);
    stores_options_default(&options);
    options.memory_nodes = 2;
    options.atomic_write = atomic_write;
    options.pool_bytes = pool_bytes ? pool_bytes : UINT64_C(512) << 20;
    assert_int_equal(stores_create(&commands->stores, &options), 0);
    assert_int_equal(command_table_create(&commands->table, tables, &error), 0);
    resp_writer_init(&commands->reply, 2, 0);
    commands_now(commands, 1000000);
}

bool commands_destroy(struct commands *commands)
{
    int status = stores_check(&commands->stores, NULL);
    if (status)
        fprintf(stderr, "%s\n", commands->stores.world.error.text);
    resp_writer_free(&commands->reply);
    command_table_destroy(commands->table);
    stores_destroy(&commands->stores);
    return !status;
}

void commands_now(struct commands *commands, uint64_t now_ms)
{
    commands->now_ms = now_ms;
    stores_now(&commands->stores, now_ms);
}

void commands_run(struct commands *commands, const struct resp_argument *arguments, uint32_t count)
{
    struct server_call call = {.store = commands->stores.world.tasks[0].store_session,
                               .reply = &commands->reply,
                               .arguments = arguments,
                               .count = count,
                               .now_ms = commands->now_ms,
                               .reserve = commands->reserve};
    call.command = command_table_find(commands->table, arguments[0].bytes, arguments[0].length, NULL);
    commands->reply.length = 0;
    resp_begin(&commands->reply);
    if (!call.command)
        server_reply_unknown(&call);
    else if (!command_arity_allows(call.command->arity, count))
        server_reply_arity(&call);
    else
        command_run(&call);
    resp_end(&commands->reply);
    commands->hits = call.hits;
    commands->misses = call.misses;
}

static unsigned hex(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)(tolower(c) - 'a' + 10);
}

/* Decodes one word into `out`; returns the place after it. */
static const char *word(const char *at, char *out, size_t *length)
{
    bool quoted = *at == '"';
    *length = 0;
    for (at += quoted; *at && (quoted ? *at != '"' : *at != ' '); at++) {
        char c = *at;
        if (quoted && c == '\\') {
            c = *++at;
            if (c == 'x') {
                c = (char)(hex(at[1]) << 4 | hex(at[2]));
                at += 2;
            } else {
                c = c == 'n' ? '\n' : c == 'r' ? '\r' : c;
            }
        }
        out[(*length)++] = c;
    }
    return at + (quoted && *at == '"');
}

bool commands_line(struct commands *commands, const char *line)
{
    struct resp_argument arguments[COMMANDS_ARGUMENTS];
    char *text = malloc(strlen(line) + COMMANDS_ARGUMENTS), *at = text;
    uint32_t count = 0;
    assert_non_null(text);
    while (*line == ' ')
        line++;
    while (*line && count < COMMANDS_ARGUMENTS) {
        size_t length;
        line = word(line, at, &length);
        arguments[count++] = (struct resp_argument){.bytes = at, .length = length};
        at += length;
        while (*line == ' ')
            line++;
    }
    if (count)
        commands_run(commands, arguments, count);
    free(text);
    return count && !*line;
}

static void print_bytes(const char *what, const char *bytes, size_t length)
{
    fprintf(stderr, "  %s: ", what);
    for (size_t i = 0; i < length && i < 600; i++)
        if (bytes[i] >= 32 && bytes[i] < 127)
            fputc(bytes[i], stderr);
        else
            fprintf(stderr, "\\x%02x", (unsigned char)bytes[i]);
    fputc('\n', stderr);
}

void commands_expect(struct commands *commands, const char *line, const char *reply, size_t length,
                     const char *file, int line_number)
{
    assert_true(commands_line(commands, line));
    const struct resp_writer *got = &commands->reply;
    if (got->length == length && memcmp(got->bytes, reply, length) == 0)
        return;
    fprintf(stderr, "%s:%d: %s\n", file, line_number, line);
    print_bytes("wanted", reply, length);
    print_bytes("got   ", got->bytes, got->length);
    _fail(file, line_number);
}

bool commands_bulk(const struct commands *commands, size_t *at, struct resp_argument *bulk)
{
    const char *bytes = commands->reply.bytes;
    if (*at < commands->reply.length && bytes[*at] == '*')
        *at = (size_t)((const char *)memchr(bytes + *at, '\n', commands->reply.length - *at) - bytes) + 1;
    if (*at >= commands->reply.length || bytes[*at] != '$')
        return false;
    char *end;
    bulk->length = strtoul(bytes + *at + 1, &end, 10);
    bulk->bytes = end + 2;
    *at = (size_t)(bulk->bytes - bytes) + bulk->length + 2;
    return true;
}
