/*
 * command.h - what a RESP command is: its entry in the table, the call that it gets, and how it replies.
 *
 * This is the agreement between connections (fiber.h) and the commands (commands/). A command function runs
 * on a fiber of the connection's thread; it may suspend. It writes exactly one reply (resp_writer.h), or, if
 * it fails, one error reply (replies.h). Its arguments (arguments.h) stay valid and unchanged while it runs.
 */
#ifndef SERVER_COMMAND_H
#define SERVER_COMMAND_H

#include "server/resp_parser.h"
#include "server/resp_writer.h"
#include "store/store.h"

struct server_connection;

struct server_call {
    struct server_connection *connection;
    struct store_session *store;
    struct resp_writer *reply;
    const struct resp_argument *arguments; /* [0] is the command's name as the client wrote it */
    uint32_t count;                        /* of arguments, including the name; it satisfies the arity */
    uint64_t now_ms;                       /* wall clock when the command began */
    const struct server_command *command;
    bool ran;              /* it passed all checks before it, and has been run */
    uint64_t hits, misses; /* out: for INFO's keyspace_hits and keyspace_misses */
    /* Asked before the command resizes memory of its own that may be large: it counts among the clients'
     * buffers, and is given back before the command ends. False: it may not grow. NULL: there is no account.
     */
    bool (*reserve)(struct server_call *call, size_t from, size_t to);
};
/* Counts one key looked up. */
static inline void server_call_count(struct server_call *call, bool found)
{
    if (found)
        call->hits++;
    else
        call->misses++;
}
typedef void server_command_function(struct server_call *call);
/* Replies for a command whose reply depends on one key's entry alone: GET, STRLEN, TTL, ... Consecutive
 * commands of this kind in a pipeline are answered from one store_multi_get. `value` NULL: no such key. The
 * function must not touch call->store. */
typedef void server_point_function(struct server_call *call, const struct store_value *value);

/* The part of a value of `whole` bytes that a point function's reply depends on, by the request's arguments:
 * value->bytes has that part alone then, value->whole the value's length. It may be asked before the
 * arguments have been judged. */
typedef struct store_part server_part_function(const struct resp_argument *arguments, uint32_t count,
                                               uint64_t whole);

/* Whether the request does no more than to store a value under arguments[1], whatever that holds, and to
 * reply OK: then *value is that value. All else, errors too, is left to `run`, which would do and reply the
 * same. Consecutive requests of this kind are one store_multi_put. */
typedef bool server_put_function(const struct resp_argument *arguments, uint32_t count, uint64_t now_ms,
                                 struct store_value *value);

enum server_command_flags {
    SERVER_READONLY = 1,
    SERVER_WRITE = 2,
    SERVER_FAST = 4, /* O(1) or O(log n) */
    SERVER_ADMIN = 8,
    SERVER_NO_AUTH = 16,      /* allowed before AUTH */
    SERVER_POINT_VALUE = 32,  /* has a point function, which needs the value's bytes */
    SERVER_POINT_LENGTH = 64, /* has a point function, which needs length and expiry only */
    SERVER_POINT_BULK = 128,  /* with SERVER_POINT_VALUE: its reply to a value is that, as one bulk string */
    SERVER_IN_MULTI = 256,    /* runs between MULTI and EXEC too */
};
/* Longest name of a command or subcommand. */
#define SERVER_COMMAND_NAME_MAX 32u

struct server_command {
    const char *name; /* lower case, as COMMAND shows it */
    server_command_function *run;
    /* With SERVER_POINT_*; the key is arguments[1]. `run` may be NULL then. With both, `point` may answer
     * calls of exactly two arguments (EXISTS of one key), and `run` answers any. */
    server_point_function *point;
    int arity; /* as in Redis: it counts the name, and a negative one means at least so many */
    uint32_t flags;
    int first_key, last_key, key_step; /* as COMMAND shows them; 0: none */
    const char *group;                 /* "string", "generic", "server", "connection", "range" */
    const char *summary;               /* one line */
    /* Of a command that consists of them; ends with a NULL name. `run` may be NULL then. */
    const struct server_subcommand *subcommands;
    server_part_function *part; /* with SERVER_POINT_VALUE; NULL: the whole value */
    server_put_function *put;   /* NULL: never a plain put */
};
struct server_subcommand {
    const char *name; /* upper case */
    int arity;        /* as in struct server_command; it counts the command's name too */
    server_command_function *run;
};
/* Tables end with a NULL name. */
extern const struct server_command server_string_commands[]; /* commands/strings.c */
extern const struct server_command server_bit_commands[];    /* commands/bits.c */
extern const struct server_command server_key_commands[];    /* commands/keys.c */
extern const struct server_command server_range_commands[];  /* commands/ranges.c */
extern const struct server_command
    server_admin_commands[]; /* commands/server.c, with those about connections */

/* ---- the table of all commands, by name (command.c); read-only once made, any thread ---- */

struct command_table;
/* `tables`: NULL ends the list; each table ends with a NULL name. BANYAN_EINVAL: a command that is named
 * twice or has no function; the message names it. */
int command_table_create(struct command_table **table, const struct server_command *const *tables,
                         struct error *error);
void command_table_destroy(struct command_table *table);
unsigned command_table_count(const struct command_table *table);
const struct server_command *command_table_at(const struct command_table *table, unsigned index);
/* In any case of letters; NULL: unknown. *index (may be NULL): its place in the table. */
const struct server_command *command_table_find(const struct command_table *table, const char *name,
                                                size_t length, unsigned *index);
/* Whether the arity, as in struct server_command, allows `count` arguments. */
static inline bool command_arity_allows(int arity, uint32_t count)
{
    return arity >= 0 ? count == (uint32_t)arity : count >= (uint32_t)-arity;
}
/* Runs one command on the calling fiber; a point function gets what its key holds. The caller has checked the
 * arity. */
void command_run(struct server_call *call);

#endif
