/*
 * fuzz_top.c - `banyan top` on what a server tells: the text of INFO, any at all, twice in a row, printed as
 * a table and as JSON; and the errors that servers answer with.
 *
 * Oracle: the fields are those that a plain line by line reading finds; the JSON can be parsed, and has an
 * entry for each server; the table holds no byte that a terminal would take for a command.
 */
#include "cli/client.c"
#include "cli/top_servers.c" /* their parts are their own */
#include "cli/top_view.c"

#include "fuzz/fuzz.h"

/* The first line's number behind "name:", as strtoull reads it. */
static uint64_t naive_field(const char *info, const char *name)
{
    size_t length = strlen(name);
    for (;;) {
        size_t line = strcspn(info, "\n");
        if (line > length && !strncmp(info, name, length) && info[length] == ':')
            return strtoull(info + length + 1, NULL, 10);
        if (!info[line])
            return 0;
        info += line + 1;
    }
}

static void check_fields(const struct top_server *server, const char *info)
{
    fuzz_must(server->now.clients == naive_field(info, "connected_clients"), "connected_clients");
    fuzz_must(server->now.commands == naive_field(info, "total_commands_processed"), "commands");
    fuzz_must(server->now.p99 == naive_field(info, "latency_usec_p99"), "latency_usec_p99");
    fuzz_must(server->memory_nodes <= TOP_MEMORY_NODES_MAX, "%u memory nodes", server->memory_nodes);
}

/* Whatever `print` prints. The caller's. */
static char *capture(int (*print)(const struct top *top), const struct top *top)
{
    char *text = NULL;
    size_t length = 0;
    FILE *old = stdout, *file = open_memstream(&text, &length);
    fuzz_must(file, "no memory");
    stdout = file;
    print(top);
    stdout = old;
    fclose(file);
    fuzz_must(strlen(text) == length, "a 0 byte is printed");
    return text;
}

static int table_print(const struct top *top)
{
    top_print(top);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct top top;
    struct fuzz_input input = {bytes, length};
    if (length > 16384)
        return 0;
    memset(&top, 0, sizeof top);
    top.count = 2;
    top.servers[0].name = "first";
    top.servers[1].name = "second";
    char *first = fuzz_take_text(&input), *second = fuzz_take_text(&input), *why = fuzz_take_text(&input);
    read_info(&top.servers[0], first);
    read_info(&top.servers[0], second);
    check_fields(&top.servers[0], second);
    top.servers[0].alive = true;
    lose(&top.servers[1], why);
    char *text = capture(table_print, &top);
    for (const char *at = text; *at; at++)
        fuzz_must((unsigned char)*at >= ' ' || *at == '\n', "byte %02x is printed", (unsigned char)*at);
    free(text);
    text = capture(top_print_json, &top);
    json_t *list = json_loads(text, 0, NULL);
    fuzz_must(json_array_size(list) == 2, "the JSON has %zu servers", json_array_size(list));
    json_decref(list);
    free(text);
    free(first);
    free(second);
    free(why);
    return 0;
}
