/*
 * config.c - CONFIG. On a fiber; errors in the words of Redis 7.
 *
 * CONFIG SET of several settings is one step: all values are checked before the first is applied, and
 * applying cannot fail. Two of them do not mix (server.settings_lock).
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/commands/subcommands.h"
#include "server/glob.h"
#include "server/replies.h"
#include "server/saves.h"
#include "server/state.h"
#include "store/cut.h"

/* A checked value. */
struct change {
    const struct own_setting *setting;
    int64_t number;
    const struct resp_argument *text;
};

/* What the server itself has. */
struct own_setting {
    const char *name;
    void (*get)(struct server *server, char *text, size_t size); /* NULL: must not be shown */
    /* NULL: cannot be changed. Checks change->text, and keeps its meaning in the change. */
    int (*check)(const struct server *server, struct change *change, struct error *error);
    void (*apply)(struct server *server, const struct change *change);
};

/* ---- the server's own settings ---- */

static int number_check(struct change *change, int64_t least, int64_t most, struct error *error)
{
    if (!server_integer_parse(change->text->bytes, change->text->length, &change->number))
        return error_set(error, BANYAN_EINVAL, "argument couldn't be parsed into an integer");
    if (change->number < least || change->number > most)
        return error_set(error, BANYAN_EINVAL, "argument must be between %lld and %lld inclusive",
                         (long long)least, (long long)most);
    return 0;
}

/* Bytes, as 1024, 64kb (powers of 1024) or 64k (powers of 1000), as in Redis. */
static int memory_check(struct change *change, int64_t least, int64_t most, struct error *error)
{
    static const struct {
        const char *name;
        int64_t factor;
    } units[] = {{"B", 1},        {"K", 1000},       {"KB", 1 << 10},         {"M", 1000 * 1000},
                 {"MB", 1 << 20}, {"G", 1000000000}, {"GB", INT64_C(1) << 30}};
    struct resp_argument digits = *change->text, unit;
    while (digits.length && (digits.bytes[digits.length - 1] < '0' || digits.bytes[digits.length - 1] > '9'))
        digits.length--;
    unit = (struct resp_argument){digits.bytes + digits.length, change->text->length - digits.length};
    int64_t factor = unit.length ? 0 : 1;
    for (size_t i = 0; !factor && i < sizeof units / sizeof *units; i++)
        factor = server_argument_is(&unit, units[i].name) ? units[i].factor : 0;
    if (!factor || !server_integer_parse(digits.bytes, digits.length, &change->number) || change->number < 0)
        return error_set(error, BANYAN_EINVAL, "argument must be a memory value");
    if (change->number < (least + factor - 1) / factor || change->number > most / factor)
        return error_set(error, BANYAN_EINVAL, "argument must be between %lld and %lld inclusive",
                         (long long)least, (long long)most);
    change->number *= factor;
    return 0;
}

static void get_timeout(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%llu", (unsigned long long)atomic_load_relaxed(&server->idle_timeout_s));
}

static int check_timeout(const struct server *server, struct change *change, struct error *error)
{
    (void)server;
    return number_check(change, 0, INT32_MAX, error);
}

static void apply_timeout(struct server *server, const struct change *change)
{
    atomic_store_relaxed(&server->idle_timeout_s, (uint64_t)change->number);
}

static void get_clients_max(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%llu", (unsigned long long)atomic_load_relaxed(&server->clients_max));
}

static int check_clients_max(const struct server *server, struct change *change, struct error *error)
{
    (void)server;
    return number_check(change, 1, UINT32_MAX, error);
}

static void apply_clients_max(struct server *server, const struct change *change)
{
    atomic_store_relaxed(&server->clients_max, (uint64_t)change->number);
}

static void get_value_max(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%llu", (unsigned long long)atomic_load_relaxed(&server->value_max));
}

static int check_value_max(const struct server *server, struct change *change, struct error *error)
{
    uint64_t most = server->options.query_buffer_max - 1024;
    return memory_check(change, 1024, (int64_t)(most < STORE_VALUE_MAX ? most : STORE_VALUE_MAX), error);
}

static void apply_value_max(struct server *server, const struct change *change)
{
    atomic_store_relaxed(&server->value_max, (uint64_t)change->number);
}

static void get_append_only(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%s", server_durability(server) >= FABRIC_KEPT_ON_DISK ? "yes" : "no");
}

static void get_append_sync(struct server *server, char *text, size_t size)
{
    const enum fabric_durability kept = server_durability(server);
    snprintf(text, size, "%s",
             kept < FABRIC_KEPT_ON_DISK           ? "no"
             : kept == FABRIC_KEPT_ON_DISK_ALWAYS ? "always"
                                                  : "everysec");
}

static int check_password(const struct server *server, struct change *change, struct error *error)
{
    (void)server;
    if (change->text->length > NET_SECRET_MAX)
        return error_set(error, BANYAN_EINVAL, "a password has at most %u bytes", NET_SECRET_MAX);
    return 0;
}

static void apply_password(struct server *server, const struct change *change)
{
    password_set(&server->password, change->text->bytes, change->text->length);
}

static void get_slower_than(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%lld", (long long)__atomic_load_n(&server->slowlog.slower_than, __ATOMIC_RELAXED));
}

static int check_slower_than(const struct server *server, struct change *change, struct error *error)
{
    (void)server;
    return number_check(change, -1, INT64_MAX, error);
}

static void apply_slower_than(struct server *server, const struct change *change)
{
    __atomic_store_n(&server->slowlog.slower_than, change->number, __ATOMIC_RELAXED);
}

static void get_slow_length(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%llu", (unsigned long long)atomic_load_relaxed(&server->slowlog.length_max));
}

static int check_slow_length(const struct server *server, struct change *change, struct error *error)
{
    (void)server;
    return number_check(change, 0, SLOWLOG_LENGTH_MAX, error);
}

/* What is beyond it goes when the next entry comes, as in Redis. */
static void apply_slow_length(struct server *server, const struct change *change)
{
    atomic_store_relaxed(&server->slowlog.length_max, (uint64_t)change->number);
}

static void get_defrag(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%s", atomic_load_relaxed(&server->defrag.active) ? "yes" : "no");
}

static int check_switch(const struct server *server, struct change *change, struct error *error)
{
    (void)server;
    change->number = server_argument_is(change->text, "YES");
    if (!change->number && !server_argument_is(change->text, "NO"))
        return error_set(error, BANYAN_EINVAL, "argument must be 'yes' or 'no'");
    return 0;
}

static void apply_defrag(struct server *server, const struct change *change)
{
    atomic_store_relaxed(&server->defrag.active, (uint64_t)change->number);
}

#define DEFRAG_NUMBER(field, kind, least, most)                                                              \
    static void get_##field(struct server *server, char *text, size_t size)                                  \
    {                                                                                                        \
        snprintf(text, size, "%llu", (unsigned long long)atomic_load_relaxed(&server->defrag.field));        \
    }                                                                                                        \
    static int check_##field(const struct server *server, struct change *change, struct error *error)        \
    {                                                                                                        \
        (void)server;                                                                                        \
        return kind##_check(change, least, most, error);                                                     \
    }                                                                                                        \
    static void apply_##field(struct server *server, const struct change *change)                            \
    {                                                                                                        \
        atomic_store_relaxed(&server->defrag.field, (uint64_t)change->number);                               \
    }
/* The bounds are Redis's. */
DEFRAG_NUMBER(ignore_bytes, memory, 1, INT64_MAX)
DEFRAG_NUMBER(threshold_lower, number, 0, 1000)
DEFRAG_NUMBER(threshold_upper, number, 0, 1000)
DEFRAG_NUMBER(cycle_min, number, 1, 99)
DEFRAG_NUMBER(cycle_max, number, 1, 99)

static void get_cut_memory(struct server *server, char *text, size_t size)
{
    struct store_cut_stats stats;
    store_cut_stats(server->store, &stats);
    snprintf(text, size, "%llu", (unsigned long long)stats.memory_max);
}

static int check_cut_memory(const struct server *server, struct change *change, struct error *error)
{
    (void)server;
    return memory_check(change, 1 << 20, INT64_C(1) << 40, error);
}

static void apply_cut_memory(struct server *server, const struct change *change)
{
    store_set_cut_memory_max(server->store, (uint64_t)change->number);
}

static void get_empty(struct server *server, char *text, size_t size)
{
    (void)server;
    snprintf(text, size, "%s", "");
}

static void get_directory(struct server *server, char *text, size_t size)
{
    snprintf(text, size, "%s", server->data ? server->data : "");
}

static void get_one(struct server *server, char *text, size_t size)
{
    (void)server;
    snprintf(text, size, "1");
}

static const struct own_setting own_settings[] = {
    {"timeout", get_timeout, check_timeout, apply_timeout},
    {"maxclients", get_clients_max, check_clients_max, apply_clients_max},
    {"proto-max-bulk-len", get_value_max, check_value_max, apply_value_max},
    {"slowlog-log-slower-than", get_slower_than, check_slower_than, apply_slower_than},
    {"slowlog-max-len", get_slow_length, check_slow_length, apply_slow_length},
    {"requirepass", NULL, check_password, apply_password},
    {"activedefrag", get_defrag, check_switch, apply_defrag},
    {"active-defrag-ignore-bytes", get_ignore_bytes, check_ignore_bytes, apply_ignore_bytes},
    {"active-defrag-threshold-lower", get_threshold_lower, check_threshold_lower, apply_threshold_lower},
    {"active-defrag-threshold-upper", get_threshold_upper, check_threshold_upper, apply_threshold_upper},
    {"active-defrag-cycle-min", get_cycle_min, check_cycle_min, apply_cycle_min},
    {"active-defrag-cycle-max", get_cycle_max, check_cycle_max, apply_cycle_max},
    {"cut-memory-max", get_cut_memory, check_cut_memory, apply_cut_memory},
    {"save", get_empty, NULL, NULL},
    {"appendonly", get_append_only, NULL, NULL},
    {"appendfsync", get_append_sync, NULL, NULL},
    {"dir", get_directory, NULL, NULL},
    {"databases", get_one, NULL, NULL},
};
#define OWN_SETTINGS (sizeof own_settings / sizeof *own_settings)

static const struct own_setting *own_find(const struct resp_argument *name)
{
    for (size_t i = 0; i < OWN_SETTINGS; i++)
        if (server_argument_is(name, own_settings[i].name))
            return &own_settings[i];
    return NULL;
}

/* Among those that the server was given to show (server_set_settings). */
static bool given_has(const struct server *server, const struct resp_argument *name)
{
    for (const struct server_setting *s = server->settings; s && s->name; s++)
        if (server_argument_is(name, s->name))
            return true;
    return false;
}

/* ---- CONFIG GET ---- */

static bool name_matches(const struct server_call *call, const char *name)
{
    for (uint32_t i = 2; i < call->count; i++)
        if (glob_match_once(call->arguments[i].bytes, call->arguments[i].length, name, strlen(name), true))
            return true;
    return false;
}

/* Replies the settings that match, or with `write` false only counts them. The server's own hide given ones
 * of the same name. */
static size_t matching(struct server_call *call, bool write)
{
    struct server *server = server_of(call);
    char value[1024];
    size_t pairs = 0;
    for (size_t i = 0; i < OWN_SETTINGS; i++) {
        if (!own_settings[i].get || !name_matches(call, own_settings[i].name))
            continue;
        pairs++;
        if (!write)
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
        if (!write)
            continue;
        s->get(s->context, value, sizeof value);
        resp_text(call->reply, s->name);
        resp_text(call->reply, value);
    }
    return pairs;
}

static void config_get(struct server_call *call)
{
    resp_map(call->reply, matching(call, false));
    matching(call, true);
}

/* ---- CONFIG SET ---- */

/* Checks one setting and its value. `earlier` changes were named before it. */
static int change_check(const struct server *server, struct change *change, const struct change *earlier,
                        size_t count, struct error *error)
{
    if (!change->setting || !change->setting->check)
        return error_set(error, BANYAN_ENOTSUP, "can't set immutable config");
    for (size_t i = 0; i < count; i++)
        if (earlier[i].setting == change->setting)
            return error_set(error, BANYAN_EINVAL, "duplicate parameter");
    return change->setting->check(server, change, error);
}

/* Fills the changes; no setting can be named twice. Replies and returns false at the first mistake. */
static bool changes_check(struct server_call *call, struct change changes[OWN_SETTINGS], size_t *count)
{
    const struct server *server = server_of(call);
    *count = 0;
    for (uint32_t i = 2; i < call->count; i += 2) {
        const struct resp_argument *name = &call->arguments[i];
        struct change change = {.setting = own_find(name), .text = name + 1};
        struct error error = {0};
        if (!change.setting && !given_has(server, name)) {
            resp_error(call->reply, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
                       SERVER_SHOWN(name));
            return false;
        }
        if (change_check(server, &change, changes, *count, &error)) {
            resp_error(call->reply, "ERR CONFIG SET failed (possibly related to argument '%.*s') - %s",
                       SERVER_SHOWN(name), error.text);
            return false;
        }
        assert(*count < OWN_SETTINGS);
        changes[(*count)++] = change;
    }
    return true;
}

static void config_set(struct server_call *call)
{
    struct server *server = server_of(call);
    struct change changes[OWN_SETTINGS];
    size_t count;
    if (call->count % 2) {
        server_reply_subcommand_arity(call, "SET");
        return;
    }
    if (!changes_check(call, changes, &count))
        return;
    spinlock_lock(&server->settings_lock);
    for (size_t i = 0; i < count; i++)
        changes[i].setting->apply(server, &changes[i]);
    spinlock_unlock(&server->settings_lock);
    resp_simple(call->reply, "OK");
}

/* ---- others ---- */

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

const struct server_subcommand config_subcommands[] = {
    {"GET", -3, config_get},        {"SET", -4, config_set},  {"RESETSTAT", 2, config_resetstat},
    {"REWRITE", 2, config_rewrite}, {"HELP", 2, config_help}, {NULL, 0, NULL}};
