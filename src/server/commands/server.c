/*
 * admin.c - the commands about the server itself (COMMAND, CONFIG, MEMORY, ...) and the table of those and of
 * the connection's. On a fiber; errors in the words of Redis 7.
 */
#include "server/commands/functions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "server/glob.h"

static struct server *server_of(const struct server_call *call)
{
    return call->client->thread->server;
}

/* For messages: at most 128 bytes of an argument. */
#define SHOWN(argument) (int)((argument)->length < 128 ? (argument)->length : 128), (argument)->bytes

/* ---- subcommands ---- */

struct subcommand {
    const char *name; /* upper case */
    int arity;
    server_command_function *run;
};

static void subcommand_run(struct server_call *call, const struct subcommand *list)
{
    for (; list->name; list++) {
        if (!server_argument_is(&call->arguments[1], list->name))
            continue;
        if (command_arity_allows(list->arity, call->count))
            list->run(call);
        else
            server_reply_subcommand_arity(call, list->name);
        return;
    }
    server_reply_subcommand(call);
}

void admin_reply_help(struct server_call *call, const char *name, const char *const *lines)
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
    resp_simple(call->reply, "    Print this help.");
}

static void reply_ok(struct server_call *call)
{
    resp_simple(call->reply, "OK");
}

static void reply_nothing(struct server_call *call)
{
    resp_array(call->reply, 0);
}

static void reply_zero(struct server_call *call)
{
    resp_integer(call->reply, 0);
}

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

static void command_all(struct server_call *call)
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
        command_all(call);
        return;
    }
    resp_array(call->reply, call->count - 2);
    for (uint32_t i = 2; i < call->count; i++) {
        const struct server_command *command = command_named(call, i);
        if (command)
            command_describe(call->reply, command);
        else if (call->reply->protocol >= 3)
            resp_null(call->reply);
        else
            resp_raw(call->reply, "*-1\r\n", 5);
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
    admin_reply_help(call, "COMMAND", lines);
}

static void run_command(struct server_call *call)
{
    static const struct subcommand list[] = {{"COUNT", 2, command_count},
                                             {"LIST", -2, command_list},
                                             {"INFO", -2, command_info},
                                             {"DOCS", -2, command_docs},
                                             {"GETKEYS", -3, command_getkeys},
                                             {"HELP", 2, command_help},
                                             {NULL, 0, NULL}};
    if (call->count == 1)
        command_all(call);
    else
        subcommand_run(call, list);
}

/* ---- CONFIG ---- */

/* What the server itself has; get is NULL for what must not be shown, set for what cannot be changed. */
struct own_setting {
    const char *name;
    void (*get)(struct server *server, char *text, size_t size);
    int (*set)(struct server *server, const char *text, size_t length, struct error *error);
};

static int number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *value, struct error *error)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || number < least || number > most)
        return error_set(error, BANYAN_EINVAL, "argument must be between %llu and %llu inclusive",
                         (unsigned long long)least, (unsigned long long)most);
    *value = number;
    return 0;
}

static void get_timeout(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%llu", (unsigned long long)atomic_load_relaxed(&server->idle_timeout_s));
}

static int set_number(uint64_t *place, const char *text, uint64_t least, uint64_t most, struct error *error)
{
    uint64_t value = 0;
    int status = number_parse(text, least, most, &value, error);
    if (!status)
        atomic_store_relaxed(place, value);
    return status;
}

static int set_timeout(struct server *server, const char *text, size_t length, struct error *error)
{
    (void)length;
    return set_number(&server->idle_timeout_s, text, 0, UINT32_MAX, error);
}

static void get_clients_max(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%llu", (unsigned long long)atomic_load_relaxed(&server->clients_max));
}

static int set_clients_max(struct server *server, const char *text, size_t length, struct error *error)
{
    (void)length;
    return set_number(&server->clients_max, text, 1, UINT32_MAX, error);
}

static void get_value_max(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%llu", (unsigned long long)atomic_load_relaxed(&server->value_max));
}

static int set_value_max(struct server *server, const char *text, size_t length, struct error *error)
{
    (void)length;
    uint64_t most = server->options.query_buffer_max - 1024;
    return set_number(&server->value_max, text, 1024, most < STORE_VALUE_MAX ? most : STORE_VALUE_MAX, error);
}

static int set_password(struct server *server, const char *text, size_t length, struct error *error)
{
    if (length > NET_SECRET_MAX)
        return error_set(error, BANYAN_EINVAL, "a password has at most %u bytes", NET_SECRET_MAX);
    server_password_set(server, text, length);
    return 0;
}

static void get_empty(struct server *server, char *text, size_t size)
{
    (void)server;
    snprintf(text, size, "%s", "");
}

static void get_no(struct server *server, char *text, size_t size)
{
    (void)server;
    snprintf(text, size, "no");
}

static void get_one(struct server *server, char *text, size_t size)
{
    (void)server;
    snprintf(text, size, "1");
}

static const struct own_setting own_settings[] = {
    {"timeout", get_timeout, set_timeout},
    {"maxclients", get_clients_max, set_clients_max},
    {"proto-max-bulk-len", get_value_max, set_value_max},
    {"requirepass", NULL, set_password},
    {"save", get_empty, NULL},
    {"appendonly", get_no, NULL},
    {"databases", get_one, NULL},
};
#define OWN_SETTINGS (sizeof own_settings / sizeof *own_settings)

static bool name_matches(const struct server_call *call, const char *name)
{
    for (uint32_t i = 2; i < call->count; i++)
        if (glob_match_once(call->arguments[i].bytes, call->arguments[i].length, name, strlen(name), true))
            return true;
    return false;
}

static const struct own_setting *own_find(const struct resp_argument *name)
{
    for (size_t i = 0; i < OWN_SETTINGS; i++)
        if (server_argument_is(name, own_settings[i].name))
            return &own_settings[i];
    return NULL;
}

/* Of the caller's; the server's own come first. */
static const struct server_setting *given_find(const struct server *server, const struct resp_argument *name)
{
    for (const struct server_setting *s = server->settings; s && s->name; s++)
        if (server_argument_is(name, s->name))
            return s;
    return NULL;
}

static void config_get(struct server_call *call)
{
    struct server *server = server_of(call);
    char value[1024];
    size_t pairs = 0;
    for (unsigned pass = 0; pass < 2; pass++) { /* count, then write */
        if (pass)
            resp_map(call->reply, pairs);
        for (size_t i = 0; i < OWN_SETTINGS; i++) {
            if (!own_settings[i].get || !name_matches(call, own_settings[i].name))
                continue;
            pairs++;
            if (!pass)
                continue;
            own_settings[i].get(server, value, sizeof value);
            resp_text(call->reply, own_settings[i].name);
            resp_text(call->reply, value);
        }
        for (const struct server_setting *s = server->settings; s && s->name; s++) {
            struct resp_argument name = {.bytes = s->name, .length = strlen(s->name)};
            if (own_find(&name) || !name_matches(call, s->name))
                continue;
            pairs++;
            if (!pass)
                continue;
            s->get(s->context, value, sizeof value);
            resp_text(call->reply, s->name);
            resp_text(call->reply, value);
        }
    }
}

/* Sets one; 0, or BANYAN_ENOTFOUND. */
static int config_set_one(struct server *server, const struct resp_argument *name,
                          const struct resp_argument *value, struct error *error)
{
    const struct own_setting *own = own_find(name);
    const struct server_setting *given = own ? NULL : given_find(server, name);
    if (!own && !given)
        return error_set(error, BANYAN_ENOTFOUND, "no such setting");
    if (own ? !own->set : !given->set)
        return error_set(error, BANYAN_ENOTSUP, "can't set immutable config");
    if (memchr(value->bytes, 0, value->length))
        return error_set(error, BANYAN_EINVAL, "the value has a zero byte");
    char *text = strndup(value->bytes, value->length);
    if (!text)
        return error_set(error, BANYAN_ENOMEM, "no memory for the value");
    int status = own ? own->set(server, text, value->length, error) : given->set(given->context, text, error);
    explicit_bzero(text, value->length); /* it may be a password */
    free(text);
    return status;
}

static void config_set(struct server_call *call)
{
    struct server *server = server_of(call);
    if (call->count % 2) {
        server_reply_subcommand_arity(call, "SET");
        return;
    }
    for (uint32_t i = 2; i < call->count; i += 2)
        if (!own_find(&call->arguments[i]) && !given_find(server, &call->arguments[i])) {
            resp_error(call->reply, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
                       SHOWN(&call->arguments[i]));
            return;
        }
    for (uint32_t i = 2; i < call->count; i += 2) {
        struct error error = {0};
        if (config_set_one(server, &call->arguments[i], &call->arguments[i + 1], &error)) {
            resp_error(call->reply, "ERR CONFIG SET failed (possibly related to argument '%.*s') - %s",
                       SHOWN(&call->arguments[i]), error.text);
            return;
        }
    }
    resp_simple(call->reply, "OK");
}

static void config_resetstat(struct server_call *call)
{
    server_counters_reset(server_of(call));
    resp_simple(call->reply, "OK");
}

static void config_rewrite(struct server_call *call)
{
    resp_error(call->reply, "ERR The server is running without a config file");
}

static void config_help(struct server_call *call)
{
    static const char *const lines[] = {"GET <pattern>",
                                        "    Return parameters matching the glob-like <pattern> and their "
                                        "values.",
                                        "SET <directive> <value>",
                                        "    Set the configuration <directive> to <value>.",
                                        "RESETSTAT",
                                        "    Reset statistics reported by the INFO command.",
                                        NULL};
    admin_reply_help(call, "CONFIG", lines);
}

static void run_config(struct server_call *call)
{
    static const struct subcommand list[] = {
        {"GET", -3, config_get},        {"SET", -4, config_set},  {"RESETSTAT", 2, config_resetstat},
        {"REWRITE", 2, config_rewrite}, {"HELP", 2, config_help}, {NULL, 0, NULL}};
    subcommand_run(call, list);
}

/* ---- DBSIZE, TIME, WAIT ---- */

static void run_dbsize(struct server_call *call)
{
    static const struct tree_range all = {0};
    uint64_t count = 0;
    int status = store_count(call->store, &all, &count);
    if (status)
        server_reply_failure(call, status);
    else
        resp_integer(call->reply, (int64_t)count);
}

static void run_time(struct server_call *call)
{
    char text[32];
    uint64_t now = clock_wall_ms();
    resp_array(call->reply, 2);
    snprintf(text, sizeof text, "%llu", (unsigned long long)(now / 1000));
    resp_text(call->reply, text);
    snprintf(text, sizeof text, "%llu", (unsigned long long)(now % 1000 * 1000));
    resp_text(call->reply, text);
}

static void run_wait(struct server_call *call)
{
    int64_t replicas, timeout;
    if (!server_argument_integer(call, &call->arguments[1], &replicas) ||
        !server_argument_integer(call, &call->arguments[2], &timeout))
        return;
    if (timeout < 0)
        resp_error(call->reply, "ERR timeout is negative");
    else
        resp_integer(call->reply, 0); /* there are no replicas to wait for */
}

/* ---- DEBUG, SHUTDOWN ---- */

static void debug_sleep(struct server_call *call)
{
    char text[64] = "", *end;
    const struct resp_argument *argument = &call->arguments[2];
    memcpy(text, argument->bytes, argument->length < sizeof text - 1 ? argument->length : sizeof text - 1);
    double seconds = strtod(text, &end);
    if (end == text || *end || !isfinite(seconds) || seconds < 0 || seconds > 3600) {
        resp_error(call->reply, "ERR the time to sleep must be from 0 to 3600 seconds");
        return;
    }
    const struct server_thread *thread = call->client->thread;
    uint64_t now = task_now(), until = now + (uint64_t)(seconds * 1e9);
    while (now < until && !thread->stopping && !call->client->dead) {
        task_sleep(until - now < 100000000 ? until - now : 100000000);
        now = task_now();
    }
    resp_simple(call->reply, "OK");
}

static void debug_help(struct server_call *call)
{
    static const char *const lines[] = {"SLEEP <seconds>",
                                        "    Let this connection, and nobody else, wait for <seconds>. "
                                        "Decimals allowed.",
                                        NULL};
    admin_reply_help(call, "DEBUG", lines);
}

static void run_debug(struct server_call *call)
{
    static const struct subcommand list[] = {
        {"SLEEP", 3, debug_sleep}, {"HELP", 2, debug_help}, {NULL, 0, NULL}};
    subcommand_run(call, list);
}

static void run_shutdown(struct server_call *call)
{
    for (uint32_t i = 1; i < call->count; i++) {
        const struct resp_argument *option = &call->arguments[i];
        if (server_argument_is(option, "ABORT") && call->count == 2) {
            resp_error(call->reply, "ERR No shutdown in progress.");
            return;
        }
        if (!server_argument_is(option, "NOSAVE") && !server_argument_is(option, "SAVE") &&
            !server_argument_is(option, "NOW") && !server_argument_is(option, "FORCE")) {
            server_reply_syntax(call);
            return;
        }
    }
    client_finish(call->client); /* as in Redis, the end of the connection is the reply */
    server_stop(server_of(call));
}

/* ---- MEMORY, OBJECT ---- */

/* What the key holds, without its bytes. False: there is none, or an error; both have been replied. */
static bool key_stat(struct server_call *call, const struct resp_argument *key, struct store_value *value)
{
    if (!server_argument_key(call, key))
        return false;
    int status = store_stat(call->store, key->bytes, key->length, value);
    if (status == BANYAN_ENOTFOUND)
        resp_null(call->reply);
    else if (status)
        server_reply_failure(call, status);
    return !status;
}

/* Its slot, and the block of its record where it has one. */
static void memory_usage(struct server_call *call)
{
    struct store_value value;
    struct format_geometry_shape shape;
    int64_t samples;
    if (call->count != 3 && (call->count != 5 || !server_argument_is(&call->arguments[3], "SAMPLES"))) {
        server_reply_syntax(call);
        return;
    }
    if (call->count == 5 && !server_argument_integer(call, &call->arguments[4], &samples))
        return;
    if (!key_stat(call, &call->arguments[2], &value))
        return;
    format_geometry_shape(tree_geometry(store_tree(server_of(call)->store)), &shape);
    uint64_t bytes = shape.slot_bytes;
    if (value.length > STORE_INLINE_MAX) {
        uint32_t block = value.length < MEMORY_BLOCK_MAX ? memory_block_bytes(value.length) : 0;
        bytes += block ? block : value.length;
    }
    resp_integer(call->reply, (int64_t)bytes);
}

static void memory_doctor(struct server_call *call)
{
    struct text text = {0};
    for (unsigned i = 0; i < server_of(call)->node_count; i++) {
        struct server_memory_state state;
        struct memory_status_reply status = {0};
        server_memory_state(server_of(call), i, &state, &status);
        if (!state.connected)
            text_add(&text, "Memory node %u cannot be reached: %s\n", i, state.trouble);
        else if (status.bytes_used > status.pool_bytes / 10 * 9)
            text_add(&text, "Memory node %u is more than 90%% full.\n", i);
    }
    resp_verbatim(call->reply, text.length ? text.bytes : "Nothing is wrong.\n",
                  text.length ? text.length : strlen("Nothing is wrong.\n"));
    text_free(&text);
}

static void memory_help(struct server_call *call)
{
    static const char *const lines[] = {
        "DOCTOR", "    Return what is wrong with the memory nodes.", "USAGE <key> [SAMPLES <count>]",
        "    Return the bytes that <key> and its value take in the pool.", NULL};
    admin_reply_help(call, "MEMORY", lines);
}

static void run_memory(struct server_call *call)
{
    static const struct subcommand list[] = {
        {"USAGE", -3, memory_usage}, {"DOCTOR", 2, memory_doctor}, {"HELP", 2, memory_help}, {NULL, 0, NULL}};
    subcommand_run(call, list);
}

static bool is_integer(const struct store_value *value)
{
    const char *text = (const char *)value->bytes;
    size_t length = value->length, sign = length && *text == '-';
    if (length == sign || length > 19 || (text[sign] == '0' && length > 1))
        return false;
    for (size_t i = sign; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return true;
}

/* The names that Redis has for how it keeps strings: tools look at them. */
static void object_encoding(struct server_call *call)
{
    const struct resp_argument *key = &call->arguments[2];
    struct store_value value;
    if (!key_stat(call, key, &value))
        return;
    if (value.length > 44) {
        resp_text(call->reply, "raw");
        return;
    }
    int status = store_get(call->store, key->bytes, key->length, &value);
    if (status == BANYAN_ENOTFOUND)
        resp_null(call->reply);
    else if (status)
        server_reply_failure(call, status);
    else
        resp_text(call->reply, is_integer(&value) ? "int" : value.length > 44 ? "raw" : "embstr");
}

static void object_number(struct server_call *call, int64_t number)
{
    struct store_value value;
    if (key_stat(call, &call->arguments[2], &value))
        resp_integer(call->reply, number);
}

static void object_refcount(struct server_call *call)
{
    object_number(call, 1);
}

static void object_idletime(struct server_call *call)
{
    object_number(call, 0);
}

static void object_freq(struct server_call *call)
{
    resp_error(call->reply, "ERR An LFU maxmemory policy is not selected, access frequency not tracked.");
}

static void object_help(struct server_call *call)
{
    static const char *const lines[] = {"ENCODING <key>",
                                        "    Return the kind of internal representation used in order to "
                                        "store the value associated with a <key>.",
                                        "REFCOUNT <key>",
                                        "    Return 1: nothing is shared.",
                                        "IDLETIME <key>",
                                        "    Return 0: no times of last use are kept.",
                                        NULL};
    admin_reply_help(call, "OBJECT", lines);
}

static void run_object(struct server_call *call)
{
    static const struct subcommand list[] = {
        {"ENCODING", 3, object_encoding}, {"REFCOUNT", 3, object_refcount}, {"IDLETIME", 3, object_idletime},
        {"FREQ", 3, object_freq},         {"HELP", 2, object_help},         {NULL, 0, NULL}};
    subcommand_run(call, list);
}

/* ---- LATENCY, SLOWLOG: asked for by tools; there is nothing to tell ---- */

static void latency_help(struct server_call *call)
{
    static const char *const lines[] = {"LATEST",
                                        "    Return an empty list: INFO and the metrics have the latencies.",
                                        "HISTORY <event>",
                                        "    Return an empty list.",
                                        "RESET [<event> ...]",
                                        "    Return 0.",
                                        NULL};
    admin_reply_help(call, "LATENCY", lines);
}

static void run_latency(struct server_call *call)
{
    static const struct subcommand list[] = {{"LATEST", 2, reply_nothing},
                                             {"HISTORY", 3, reply_nothing},
                                             {"RESET", -2, reply_zero},
                                             {"HELP", 2, latency_help},
                                             {NULL, 0, NULL}};
    subcommand_run(call, list);
}

static void slowlog_help(struct server_call *call)
{
    static const char *const lines[] = {"GET [<count>]",
                                        "    Return an empty list: no slow commands are kept.",
                                        "LEN",
                                        "    Return 0.",
                                        "RESET",
                                        "    Does nothing.",
                                        NULL};
    admin_reply_help(call, "SLOWLOG", lines);
}

static void run_slowlog(struct server_call *call)
{
    static const struct subcommand list[] = {{"GET", -2, reply_nothing},
                                             {"LEN", 2, reply_zero},
                                             {"RESET", 2, reply_ok},
                                             {"HELP", 2, slowlog_help},
                                             {NULL, 0, NULL}};
    subcommand_run(call, list);
}

/* ---- the table ---- */

#define FREE (SERVER_NO_AUTH | SERVER_FAST)

const struct server_command server_admin_commands[] = {
    {"ping", connection_ping, NULL, -1, SERVER_FAST, 0, 0, 0, "connection", "Ping the server"},
    {"echo", connection_echo, NULL, 2, SERVER_FAST, 0, 0, 0, "connection", "Echo the given string"},
    {"quit", connection_quit, NULL, -1, FREE, 0, 0, 0, "connection", "Close the connection"},
    {"reset", connection_reset, NULL, 1, FREE, 0, 0, 0, "connection", "Reset the connection"},
    {"hello", connection_hello, NULL, -1, FREE, 0, 0, 0, "connection", "Handshake, and choice of protocol"},
    {"auth", connection_auth, NULL, -2, FREE, 0, 0, 0, "connection", "Authenticate to the server"},
    {"select", connection_select, NULL, 2, SERVER_FAST, 0, 0, 0, "connection",
     "Change the selected database: there is only 0"},
    {"client", connection_client, NULL, -2, SERVER_ADMIN, 0, 0, 0, "connection",
     "Commands about client connections"},
    {"command", run_command, NULL, -1, 0, 0, 0, 0, "server", "Details about all commands"},
    {"info", info_command, NULL, -1, 0, 0, 0, 0, "server", "Information and statistics about the server"},
    {"config", run_config, NULL, -2, SERVER_ADMIN, 0, 0, 0, "server", "Settings of the running server"},
    {"dbsize", run_dbsize, NULL, 1, SERVER_READONLY, 0, 0, 0, "server", "Count the keys"},
    {"time", run_time, NULL, 1, SERVER_FAST, 0, 0, 0, "server", "The server's time"},
    {"debug", run_debug, NULL, -2, SERVER_ADMIN, 0, 0, 0, "server", "DEBUG SLEEP"},
    {"shutdown", run_shutdown, NULL, -1, SERVER_ADMIN, 0, 0, 0, "server", "Stop this compute node"},
    {"memory", run_memory, NULL, -2, SERVER_READONLY, 2, 2, 1, "server", "Memory used by keys"},
    {"object", run_object, NULL, -2, SERVER_READONLY, 2, 2, 1, "generic", "Inspect how a key is kept"},
    {"latency", run_latency, NULL, -2, SERVER_ADMIN, 0, 0, 0, "server", "Empty: see INFO"},
    {"slowlog", run_slowlog, NULL, -2, SERVER_ADMIN, 0, 0, 0, "server", "Empty: none is kept"},
    {"wait", run_wait, NULL, 3, 0, 0, 0, 0, "generic", "Wait for replicas: there are none"},
    {0}};
