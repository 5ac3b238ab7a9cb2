/*
 * commands.h - commands called directly, for tests: a store on the local fabric, a clock that the test sets,
 * and no network. One at a time per process, on the test's thread.
 */
#ifndef TESTS_SERVER_COMMANDS_H
#define TESTS_SERVER_COMMANDS_H

#include "server/command.h"
#include "stores.h"

#define COMMANDS_ARGUMENTS 64u

struct commands {
    struct stores stores;
    struct command_table *table;
    struct resp_writer reply;
    uint64_t now_ms;
    uint64_t hits, misses; /* of the last command */
    /* server_call.reserve of the commands; NULL, the default: none */
    bool (*reserve)(struct server_call *call, size_t from, size_t to);
};
/* Aborts the test on failure. pool_bytes: of each of two memory nodes; 0: room for some of the longest
 * values. atomic_write: what the fabric claims to have; 0: what it has. */
void commands_create(struct commands *commands, uint64_t pool_bytes, uint32_t atomic_write);
/* Checks the store first: false if it is not sound, or blocks are lost. */
bool commands_destroy(struct commands *commands);
/* The clock of the store and of the commands. */
void commands_now(struct commands *commands, uint64_t now_ms);
/* Runs one command as a connection does; the reply is commands->reply. */
void commands_run(struct commands *commands, const struct resp_argument *arguments, uint32_t count);
/* The same of a line: words, or "words in quotes" with \" \\ \r \n \xHH. Returns whether it could be read. */
bool commands_line(struct commands *commands, const char *line);
/* Runs the line; fails the test at `file`:`line_number` unless the reply is these bytes. */
void commands_expect(struct commands *commands, const char *line, const char *reply, size_t length,
                     const char *file, int line_number);
#define EXPECT(line, reply) commands_expect(&commands, line, reply, sizeof(reply) - 1, __FILE__, __LINE__)

/* The elements of a flat array of bulks in the last reply, from `at` on; false at its end. */
bool commands_bulk(const struct commands *commands, size_t *at, struct resp_argument *bulk);

#endif
