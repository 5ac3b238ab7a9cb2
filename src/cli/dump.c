/*
 * dump.c - `banyan dump`: all keys of a running server into a file, which `banyan load` reads, or which Redis
 * reads. A client like any other, while the server goes on: it reads a cut of the server's (CUT); of a
 * cluster, a cut of each range (dump_ranges.c); or where there is none to be had, one RANGE after another.
 */
#include "cli/dump.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/aof.h"
#include "base/clock.h"
#include "base/task.h"
#include "cli/cluster.h"
#include "cli/command.h"

#define SECOND       UINT64_C(1000000000)
#define LIMIT_FIRST  256u
#define LIMIT_MOST   8192u
#define REPLY_LITTLE ((uint64_t)256 << 10)
#define REPLY_MUCH   ((uint64_t)4 << 20)

static const char *const formats[] = {"banyan", "aof", NULL};
static const char *const consistents[] = {"auto", "require", "off", NULL};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct dump_settings, field), low, high, choices, unit, help                    \
    }
static const struct option_entry table[] = {
    ROW("output", OPTION_TEXT, output, 0, 0, NULL, "FILE",
        "Where to; it appears when it is whole. -: standard output"),
    ROW("format", OPTION_CHOICE, format, 0, 0, formats, "FORMAT",
        "banyan: checksums, what `banyan load` reads fastest; aof: an append-only file of Redis"),
    ROW("compress", OPTION_U32, compress, 0, ARCHIVE_LEVEL_MAX, NULL, "LEVEL", "By Zstandard; 0: not"),
    ROW("consistent", OPTION_CHOICE, consistent, 0, 0, consistents, "auto|require|off",
        "Keys as they were at one moment, in a cluster each range: where that can be; or else fail; or not"),
    ROW("from", OPTION_TEXT, from, 0, 0, NULL, "KEY", "Keys from this one on; empty: from the first"),
    ROW("to", OPTION_TEXT, to, 0, 0, NULL, "KEY", "Keys before this one; empty: to the last"),
    ROW("password-file", OPTION_TEXT, password_file, 0, 0, NULL, "FILE", "First line: the server's password"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "Print what was written for programs"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "dump",
    .table = table,
    .arguments = "[ADDRESS...]",
    .arguments_max = DUMP_SERVERS_MAX,
    .documentation =
        "Write all keys of a running server ('banyan serve'), or of a cluster ('banyan compute'), into a "
        "file.\v"
        "Without an address: 127.0.0.1:6379. The servers go on meanwhile. The file has all keys as they were "
        "at one moment of the dump, where the server is a 'banyan serve', which keeps for that what changes "
        "meanwhile (its cut-memory-max is the limit).\n\n"
        "Of a cluster give the addresses of all servers. Each range of keys that one of them owns is then in "
        "the file as it was at one moment, each range at a moment of its own. Where a range moves to another "
        "server, or its server ends, it is read again from the one that owns it then.\n\n"
        "Ranges that no server owns, or one that was not named, are read key by key, which the command says: "
        "each key is in the file with its value and its expiry as they were together at some moment of the "
        "dump; a key that was there all the time is not missing; keys that are written meanwhile may have "
        "their value of before or of after.\n\n"
        "`banyan load` reads the file. With --format aof so do Redis, and redis-cli --pipe.\n\n"
        "Examples:\n"
        "  banyan dump --output backup.banyan\n"
        "  banyan dump --output backup.banyan --compress 3 10.0.0.5:6379 --password-file secret\n"
        "  banyan dump --output backup.banyan --consistent require\n"
        "  banyan dump --output backup.banyan 10.0.0.5:6379 10.0.0.6:6379 10.0.0.7:6379\n"
        "  banyan dump --format aof --output appendonly.aof\n"
        "  banyan dump --from user: --to 'user;' --output - | ssh elsewhere banyan load -\n\n"
        "Exit status: 0; 1 when the file could not be made; 2 when a setting makes no sense.",
};

/* ---- what the server says ---- */

static int entry_add(struct dump *dump, const struct archive_entry *entry, struct error *error)
{
    dump->keys++;
    dump->bytes += entry->key_length + entry->value_length;
    return dump->writer ? archive_add(dump->writer, entry, error)
                        : aof_write(entry, output_file_write, &dump->output, error);
}

int dump_strange(const char *what, struct error *error)
{
    return error_set(error, BANYAN_ECORRUPT, "the server's answer is not one of RANGE or CUT: %s", what);
}

/* Key, value and expiry by turns. */
static int entries_take(struct dump *dump, const redisReply *reply, struct error *error)
{
    uint64_t bytes = 0;
    int status = 0;
    if (reply->elements % 3)
        return dump_strange("its entries have other than three parts", error);
    for (size_t i = 0; i < reply->elements && !status; i += 3) {
        const redisReply *key = reply->element[i], *value = reply->element[i + 1],
                         *expires = reply->element[i + 2];
        if (key->type != REDIS_REPLY_STRING || value->type != REDIS_REPLY_STRING ||
            expires->type != REDIS_REPLY_INTEGER || !key->len || key->len > ARCHIVE_KEY_MAX)
            return dump_strange("an entry is not a key, a value and a number", error);
        const struct archive_entry entry = {.key = (const uint8_t *)key->str,
                                            .key_length = key->len,
                                            .value = (const uint8_t *)value->str,
                                            .value_length = value->len,
                                            .expires = expires->integer > 0 ? (uint64_t)expires->integer : 0};
        status = entry_add(dump, &entry, error);
        bytes += key->len + value->len;
        dump->last.bytes[0] = '(';
        memcpy(dump->last.bytes + 1, key->str, key->len);
        dump->last.length = key->len + 1;
    }
    dump->ended = dump->cut ? !reply->elements : reply->elements < (size_t)dump->limit * 3;
    if (bytes < REPLY_LITTLE && dump->limit < LIMIT_MOST)
        dump->limit *= 2;
    else if (bytes > REPLY_MUCH && dump->limit > 1)
        dump->limit /= 2;
    return status;
}

/* An error that the server has replied. 0: ask again. */
static int refusal(struct dump *dump, const char *words, uint64_t asked_at, struct error *error)
{
    char text[160];
    if (!strncmp(words, "ERR the range's reply is longer", 31) && dump->limit > 1) {
        dump->limit /= 2;
        return 0;
    }
    if (!strncmp(words, "CLUSTERDOWN", 11) && task_now() < asked_at + DUMP_WAIT_SECONDS * SECOND) {
        task_sleep(DUMP_RETRY_NS);
        return 0;
    }
    client_words(text, sizeof text, words);
    if (!strncmp(words, "ERR unknown command", 19) || !strncmp(words, "ERR syntax error", 16))
        return error_set(
            error, BANYAN_ENOTSUP,
            "the server cannot be dumped (%.60s): it is no Banyan of this version. Of a Redis: give its "
            "dump.rdb to `banyan load`",
            text);
    return error_set(error, BANYAN_ENET, "the server refused: %s", text);
}

/* The cut has failed, and with it the part: the rest of that moment is not to be had. */
static int cut_lost(const char *words, struct error *error)
{
    char text[400];
    const bool moved = !strncmp(words, "NOCUT ", 6) || !strncmp(words, "CLUSTERDOWN", 11);
    client_words(text, sizeof text, words);
    return error_set(error, moved ? BANYAN_EFENCED : BANYAN_ENET,
                     "the server gave up the cut, and nothing is written: %s", text);
}

bool dump_lost(const struct dump *dump)
{
    return !dump->server->connection || dump->server->connection->err;
}

redisReply *dump_ask(struct dump *dump, int count, const char **arguments, const size_t *lengths,
                     struct error *error)
{
    redisContext *connection = dump->server->connection;
    redisReply *reply = redisCommandArgv(connection, count, arguments, lengths);
    char text[120];
    if (!reply) {
        client_words(text, sizeof text, connection->errstr);
        error_set(error, BANYAN_ENET, "the connection to the server was lost: %s", text);
    }
    return reply;
}

/* One RANGE, or one CUT NEXT. */
static int piece_read(struct dump *dump, uint64_t *asked_at, struct error *error)
{
    char limit[16];
    const size_t limit_length = (size_t)snprintf(limit, sizeof limit, "%u", dump->limit);
    const char *range[] = {"RANGE", dump->last.bytes, dump->to.bytes, "LIMIT",
                           limit,   "WITHVALUES",     "WITHEXPIRY"};
    const size_t range_lengths[] = {5, dump->last.length, dump->to.length, 5, limit_length, 10, 10};
    const char *next[] = {"CUT", "NEXT", limit};
    const size_t next_lengths[] = {3, 4, limit_length};
    redisReply *reply = dump->cut ? dump_ask(dump, 3, next, next_lengths, error)
                                  : dump_ask(dump, 7, range, range_lengths, error);
    int status;
    if (!reply)
        return error->code;
    if (reply->type == REDIS_REPLY_ARRAY) {
        status = entries_take(dump, reply, error);
        *asked_at = task_now();
    } else if (reply->type == REDIS_REPLY_ERROR) {
        status = dump->cut ? cut_lost(reply->str, error) : refusal(dump, reply->str, *asked_at, error);
    } else {
        status = dump_strange("it is no array", error);
    }
    freeReplyObject(reply);
    return status;
}

int dump_part(struct dump *dump, struct error *error)
{
    uint64_t asked_at = task_now();
    int status = 0;
    dump->ended = false;
    while (!status && !dump->ended) {
        status = piece_read(dump, &asked_at, error);
        client_progress(&dump->progress, dump->keys, dump->bytes, false);
    }
    return status;
}

/* ---- the cut ---- */

static int opening_judge(const redisReply *reply, enum dump_opening *opening, char words[300],
                         struct error *error)
{
    *opening = DUMP_OPENED;
    words[0] = 0;
    if (reply->type == REDIS_REPLY_STATUS)
        return 0;
    if (reply->type != REDIS_REPLY_ERROR)
        return dump_strange("CUT OPEN is answered by neither a status nor an error", error);
    client_words(words, 300, reply->str);
    *opening = DUMP_LATER;
    if (!strncmp(reply->str, "BUSY ", 5) || !strncmp(reply->str, "CLUSTERDOWN", 11))
        return 0;
    *opening = DUMP_NONE;
    if (!strncmp(reply->str, "NOCUT ", 6) || !strncmp(reply->str, "ERR unknown command", 19))
        return 0;
    return error_set(error, BANYAN_ENET,
                     "the server refused a cut: %s. With --consistent off keys are read key by key", words);
}

int dump_cut_open(struct dump *dump, enum dump_opening *opening, char words[300], struct error *error)
{
    const char *arguments[] = {"CUT", "OPEN", dump->last.bytes, dump->to.bytes};
    const size_t lengths[] = {3, 4, dump->last.length, dump->to.length};
    redisReply *reply = dump_ask(dump, 4, arguments, lengths, error);
    if (!reply)
        return error->code;
    int status = opening_judge(reply, opening, words, error);
    freeReplyObject(reply);
    return status;
}

/* Of all keys, from the only server. */
static int cut_open(struct dump *dump, char words[300], struct error *error)
{
    const uint64_t begun = task_now();
    for (;;) {
        enum dump_opening opening;
        int status = dump_cut_open(dump, &opening, words, error);
        dump->cut = !status && opening == DUMP_OPENED;
        if (status || opening != DUMP_LATER)
            return status;
        if (task_now() - begun > DUMP_WAIT_SECONDS * SECOND)
            return error_set(error, BANYAN_EBUSY,
                             "the server refused a cut: %s. With --consistent off keys are read key by key",
                             words);
        task_sleep(DUMP_RETRY_NS);
    }
}

/* ---- the command ---- */

/* A key, or where there is none, the bound that leaves none out. */
static void bound_set(struct dump_bound *bound, char sign, const char *key, const char *none)
{
    bound->length = key && key[0] ? (size_t)snprintf(bound->bytes, sizeof bound->bytes, "%c%s", sign, key)
                                  : (size_t)snprintf(bound->bytes, sizeof bound->bytes, "%s", none);
}

static int prepare(struct dump *dump, const struct settings_arguments *arguments, struct error *error)
{
    const struct dump_settings *settings = &dump->settings;
    size_t length = 0;
    if (!settings->output || !settings->output[0])
        return error_set(error, BANYAN_EINVAL, "no file to write to: give --output FILE, or --output -");
    if (settings->json && !strcmp(settings->output, "-"))
        return error_set(error, BANYAN_EINVAL, "--json and the file cannot both go to standard output");
    if (settings->compress && settings->format == DUMP_AOF)
        return error_set(error, BANYAN_EINVAL,
                         "--compress is for --format banyan: Redis reads no compressed file");
    if ((settings->from && strlen(settings->from) > ARCHIVE_KEY_MAX) ||
        (settings->to && strlen(settings->to) > ARCHIVE_KEY_MAX))
        return error_set(error, BANYAN_EINVAL, "--from and --to are keys of at most %u bytes",
                         ARCHIVE_KEY_MAX);
    bound_set(&dump->last, '[', settings->from, "-");
    bound_set(&dump->to, '(', settings->to, "+");
    dump->limit = LIMIT_FIRST;
    int status = 0;
    dump->server = dump->servers;
    dump->server_count = arguments->count ? arguments->count : 1;
    for (unsigned i = 0; i < dump->server_count && !status; i++)
        status = net_address_parse(&dump->servers[i].address,
                                   arguments->count ? arguments->values[i] : "127.0.0.1:6379", 6379, error);
    if (!status && settings->password_file)
        status = net_secret_read(settings->password_file, dump->password, &length, error);
    return status;
}

static int connect_all(struct dump *dump, struct error *error)
{
    int status = 0;
    for (unsigned i = 0; i < dump->server_count && !status; i++) {
        struct dump_server *server = &dump->servers[i];
        server->connection = client_connect(&server->address, dump->password, DUMP_WAIT_SECONDS, error);
        status = server->connection ? 0 : error->code;
    }
    return status;
}

static int writer_make(struct dump *dump, struct error *error)
{
    if (dump->settings.format != DUMP_BANYAN)
        return 0;
    return archive_writer_create(&dump->writer, ARCHIVE_ORDERED | (dump->cut ? ARCHIVE_MOMENT : 0),
                                 clock_wall_ms(), (int)dump->settings.compress, output_file_write,
                                 &dump->output, error);
}

/* From one server, all at one moment or key by key. */
static int dump_whole(struct dump *dump, struct error *error)
{
    int status = dump_part(dump, error);
    dump->moments = dump->cut;
    dump->plain_parts = !dump->cut;
    dump->plain_keys = dump->cut ? 0 : dump->keys;
    return status;
}

static int dump_all(struct dump *dump, struct error *error)
{
    const bool wanted = dump->settings.consistent != CONSISTENT_OFF;
    char words[300] = "";
    int status = 0;
    if (wanted && dump->server_count == 1)
        status = cut_open(dump, words, error);
    const bool ranges = wanted && (dump->server_count > 1 || !strncmp(words, "NOCUT ", 6));
    if (!status && wanted && !ranges && !dump->cut && dump->settings.consistent == CONSISTENT_REQUIRE)
        status = error_set(error, BANYAN_ENOTSUP,
                           "the server cannot give all keys as they are at one moment (%s); without "
                           "--consistent require they are read key by key",
                           words);
    if (!status)
        status = writer_make(dump, error);
    if (!status)
        status = ranges ? dump_ranges(dump, error) : dump_whole(dump, error);
    if (!status && dump->writer)
        status = archive_finish(dump->writer, error);
    client_progress(&dump->progress, dump->keys, dump->bytes, true);
    return status ? status : output_file_publish(&dump->output, error);
}

/* How the keys were read. */
static void manner_text(const struct dump *dump, char text[200])
{
    if (!dump->moments)
        snprintf(text, 200, "read key by key");
    else if (dump->cut)
        snprintf(text, 200, "as they were at one moment");
    else if (!dump->plain_parts)
        snprintf(text, 200, "in %" PRIu64 " ranges, each as it was at one moment", dump->moments);
    else
        snprintf(text, 200,
                 "in %" PRIu64 " ranges, each as it was at one moment, but for %" PRIu64 " keys of %" PRIu64
                 " more, which were read key by key",
                 dump->moments, dump->plain_keys, dump->plain_parts);
}

static void result_print(const struct dump *dump)
{
    const double seconds = (double)(task_now() - dump->progress.begun_at) / 1e9;
    char manner[200];
    manner_text(dump, manner);
    if (!dump->settings.json && !dump->output.temporary && dump->output.file != stdout)
        printf("%s: %" PRIu64 " keys, %s, %.1f MiB of keys and values in %.1f MiB\n", dump->settings.output,
               dump->keys, manner, (double)dump->bytes / 1048576, (double)dump->output.written / 1048576);
    if (dump->unnamed)
        fprintf(stderr,
                "banyan dump: some ranges belong to servers that were not named; give the addresses of "
                "all servers of the cluster, and each range is as it was at one moment\n");
    if (!dump->settings.json)
        return;
    json_t *json =
        json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "output", dump->settings.output,
                  "format", formats[dump->settings.format], "consistent", !dump->plain_parts, "moments",
                  (json_int_t)dump->moments, "ranges_by_key", (json_int_t)dump->plain_parts, "keys_by_key",
                  (json_int_t)dump->plain_keys, "keys", (json_int_t)dump->keys, "bytes",
                  (json_int_t)dump->bytes, "written", (json_int_t)dump->output.written, "seconds", seconds);
    json_dumpf(json, stdout, JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(json);
}

static void servers_close(struct dump *dump)
{
    for (unsigned i = 0; i < dump->server_count; i++) {
        freeReplyObject(dump->servers[i].ranges);
        redisFree(dump->servers[i].connection);
    }
}

int command_dump(int argc, char **argv)
{
    char *values[DUMP_SERVERS_MAX];
    struct settings_arguments arguments = {.values = values};
    struct error error = {0};
    struct dump *dump = calloc(1, sizeof *dump);
    if (!dump)
        return COMMAND_FAILED;
    int status = settings_read(&command, &dump->settings, argc, argv, &arguments, &error);
    if (!status)
        status = prepare(dump, &arguments, &error);
    const int usage = status;
    if (!status)
        status = output_file_open(&dump->output, dump->settings.output, &error);
    dump->progress.begun_at = task_now();
    if (!status)
        status = connect_all(dump, &error);
    if (!status)
        status = dump_all(dump, &error);
    if (!status)
        result_print(dump);
    output_file_close(&dump->output);
    servers_close(dump);
    archive_writer_destroy(dump->writer);
    explicit_bzero(dump->password, sizeof dump->password);
    option_free(table, &dump->settings);
    free(dump);
    if (usage)
        return cluster_failed("dump", &error);
    if (status)
        fprintf(stderr, "banyan dump: %s\n", error.text);
    return status ? COMMAND_FAILED : COMMAND_OK;
}
