/*
 * command.h - what a RESP command is: its entry in the table, the call that it gets, and how it replies.
 *
 * The agreement between the front end (client.c, server.c, admin.c) and the commands (strings.c, keys.c,
 * ranges.c). A command function runs on a fiber of the connection's worker; it may suspend. It writes exactly
 * one reply (resp.h), or, if it fails, one error reply. Its arguments stay valid and unchanged while it runs.
 */
#ifndef SERVER_COMMAND_H
#define SERVER_COMMAND_H

#include "server/resp_parser.h"
#include "server/resp_writer.h"
#include "store/store.h"

struct server_connection;
struct server_cursors;

struct server_call {
    struct server_connection *connection;
    struct store_session *store;
    struct resp_writer *reply;
    const struct resp_argument *arguments; /* [0] is the command's name as the client wrote it */
    uint32_t count;                        /* of arguments, name included; the arity has been checked */
    uint64_t now_ms;                       /* wall clock when the command began */
    const struct server_command *command;
    struct server_cursors *cursors; /* the server's; for SCAN */
    uint64_t hits, misses;          /* out: for INFO's keyspace_hits and keyspace_misses */
    /* Asked before memory of the command's own that may be large changes its size: it counts among the
     * clients' buffers. False: it may not grow. NULL: there is no account. */
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
/* The reply of a command that is a function of one key's entry alone: GET, STRLEN, TTL, ... A run of those in
 * a pipeline is answered from one store_multi_get. `value` NULL: no such key. It must not touch call->store.
 */
typedef void server_point_function(struct server_call *call, const struct store_value *value);

enum server_command_flags {
    SERVER_READONLY = 1,
    SERVER_WRITE = 2,
    SERVER_FAST = 4, /* O(1) or O(log n) */
    SERVER_ADMIN = 8,
    SERVER_NO_AUTH = 16,      /* allowed before AUTH */
    SERVER_POINT_VALUE = 32,  /* point function that wants the value's bytes */
    SERVER_POINT_LENGTH = 64, /* point function that wants length and expiry only */
    /* With exactly three arguments it stores the third under the second, whatever was there, and replies OK
     * (SET). A run of those in a pipeline is one store_multi_put. */
    SERVER_PUT = 128,
};
/* Longest name of a command or subcommand. */
#define SERVER_COMMAND_NAME_MAX 32u

struct server_command {
    const char *name; /* lower case, as COMMAND shows it */
    server_command_function *run;
    /* With SERVER_POINT_*: its key is arguments[1]; `run` may be NULL then. With both, `point` answers calls
     * of exactly two arguments (EXISTS of one key), `run` any. */
    server_point_function *point;
    int arity; /* as Redis: negative means at least; includes the name */
    uint32_t flags;
    int first_key, last_key, key_step; /* as COMMAND shows them; 0: none */
    const char *group;                 /* "string", "generic", "server", "connection", "range" */
    const char *summary;               /* one line */
};
/* Tables end with a NULL name. */
extern const struct server_command server_string_commands[]; /* strings.c */
extern const struct server_command server_key_commands[];    /* keys.c */
extern const struct server_command server_range_commands[];  /* ranges.c */
extern const struct server_command server_admin_commands[];  /* admin.c, connection commands too */

/* ---- the table of all commands, by name (command.c); read-only once made, any thread ---- */

struct command_table;
/* `tables`: NULL ends the list; each table ends with a NULL name. BANYAN_EINVAL names a command that is there
 * twice, or that can be run in no way. */
int command_table_create(struct command_table **table, const struct server_command *const *tables,
                         struct error *error);
void command_table_destroy(struct command_table *table);
unsigned command_table_count(const struct command_table *table);
const struct server_command *command_table_at(const struct command_table *table, unsigned index);
/* In any case of letters; NULL: unknown. *index (may be NULL): its place in the table. */
const struct server_command *command_table_find(const struct command_table *table, const char *name,
                                                size_t length, unsigned *index);
/* Whether an arity as Redis writes it allows so many arguments. */
static inline bool command_arity_allows(int arity, uint32_t count)
{
    return arity >= 0 ? count == (uint32_t)arity : count >= (uint32_t)-arity;
}
/* Runs one command on the calling fiber: a point function gets what its key holds. The arity has been
 * checked. */
void command_run(struct server_call *call);

#endif
