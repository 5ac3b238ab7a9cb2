/* config.c - CONFIG. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/subcommands.h"
#include "server/state.h"
#include "server/glob.h"
#include "server/replies.h"

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
    password_set(&server->password, text, length);
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
                       SERVER_SHOWN(&call->arguments[i]));
            return;
        }
    for (uint32_t i = 2; i < call->count; i += 2) {
        struct error error = {0};
        if (config_set_one(server, &call->arguments[i], &call->arguments[i + 1], &error)) {
            resp_error(call->reply, "ERR CONFIG SET failed (possibly related to argument '%.*s') - %s",
                       SERVER_SHOWN(&call->arguments[i]), error.text);
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
    subcommand_reply_help(call, "CONFIG", lines);
}

void config_run(struct server_call *call)
{
    static const struct subcommand list[] = {
        {"GET", -3, config_get},        {"SET", -4, config_set},  {"RESETSTAT", 2, config_resetstat},
        {"REWRITE", 2, config_rewrite}, {"HELP", 2, config_help}, {NULL, 0, NULL}};
    subcommand_run(call, list);
}
