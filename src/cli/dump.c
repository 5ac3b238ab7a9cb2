/*
 * dump.c - `banyan dump`: all keys of a running server into a file, which `banyan load` reads, or which Redis
 * reads. A client like any other, while the server goes on: it reads a cut of the server's (CUT), or where
 * that has none to give, one RANGE after another.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/aof.h"
#include "archive/archive.h"
#include "base/clock.h"
#include "base/task.h"
#include "cli/client.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/output_file.h"

#define SECOND       UINT64_C(1000000000)
#define WAIT_SECONDS 30u /* for one reply, and for a range that nobody serves */
#define LIMIT_FIRST  256u
#define LIMIT_MOST   8192u
#define REPLY_LITTLE ((uint64_t)256 << 10)
#define REPLY_MUCH   ((uint64_t)4 << 20)
#define RETRY_NS     (SECOND / 10)

enum { DUMP_BANYAN, DUMP_AOF };
enum { CONSISTENT_AUTO, CONSISTENT_REQUIRE, CONSISTENT_OFF };

struct dump_settings {
    char *output, *password_file, *from, *to;
    uint32_t compress;
    int format, consistent;
    bool json;
};

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
        "All keys as they were at one moment: where the server can; or else fail; or key by key"),
    ROW("from", OPTION_TEXT, from, 0, 0, NULL, "KEY", "Keys from this one on; empty: from the first"),
    ROW("to", OPTION_TEXT, to, 0, 0, NULL, "KEY", "Keys before this one; empty: to the last"),
    ROW("password-file", OPTION_TEXT, password_file, 0, 0, NULL, "FILE", "First line: the server's password"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "Print what was written for programs"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "dump",
    .table = table,
    .arguments = "[ADDRESS]",
    .arguments_max = 1,
    .documentation =
        "Write all keys of a running server ('banyan serve', 'banyan compute') into a file.\v"
        "Without an address: 127.0.0.1:6379. The server goes on meanwhile. The file has all keys as they "
        "were "
        "at one moment of the dump, where the server is a 'banyan serve', which keeps for that what changes "
        "meanwhile (its cut-memory-max is the limit).\n\n"
        "The keys of a cluster are read key by key, which the command says: each is in the file with its "
        "value and "
        "its expiry as they were together at some moment of the dump; a key that was there all the time is "
        "not "
        "missing; keys that are written meanwhile may have their value of before or of after.\n\n"
        "`banyan load` reads the file. With --format aof so do Redis, and redis-cli --pipe.\n\n"
        "Examples:\n"
        "  banyan dump --output backup.banyan\n"
        "  banyan dump --output backup.banyan --compress 3 10.0.0.5:6379 --password-file secret\n"
        "  banyan dump --output backup.banyan --consistent require\n"
        "  banyan dump --format aof --output appendonly.aof\n"
        "  banyan dump --from user: --to 'user;' --output - | ssh elsewhere banyan load -\n\n"
        "Exit status: 0; 1 when the file could not be made; 2 when a setting makes no sense.",
};

struct dump {
    struct dump_settings settings;
    struct net_address address;
    char password[NET_SECRET_MAX + 1];
    redisContext *connection;
    struct archive_writer *writer; /* of the format banyan */
    struct output_file output;
    uint64_t keys, bytes;
    struct client_progress progress;
    uint32_t limit;
    char last[ARCHIVE_KEY_MAX + 2]; /* the lower bound of the next RANGE, as RANGE takes it */
    size_t last_length;
    bool cut; /* the server has a cut for this connection, and the keys come from it */
    bool ended;
};

/* ---- what the server says ---- */

static int entry_add(struct dump *dump, const struct archive_entry *entry, struct error *error)
{
    dump->keys++;
    dump->bytes += entry->key_length + entry->value_length;
    return dump->writer ? archive_add(dump->writer, entry, error)
                        : aof_write(entry, output_file_write, &dump->output, error);
}

static int strange(const char *what, struct error *error)
{
    return error_set(error, BANYAN_ECORRUPT, "the server's answer is not one of RANGE or CUT: %s", what);
}

/* Key, value and expiry by turns. */
static int entries_take(struct dump *dump, const redisReply *reply, struct error *error)
{
    uint64_t bytes = 0;
    int status = 0;
    if (reply->elements % 3)
        return strange("its entries have other than three parts", error);
    for (size_t i = 0; i < reply->elements && !status; i += 3) {
        const redisReply *key = reply->element[i], *value = reply->element[i + 1],
                         *expires = reply->element[i + 2];
        if (key->type != REDIS_REPLY_STRING || value->type != REDIS_REPLY_STRING ||
            expires->type != REDIS_REPLY_INTEGER || !key->len || key->len > ARCHIVE_KEY_MAX)
            return strange("an entry is not a key, a value and a number", error);
        const struct archive_entry entry = {.key = (const uint8_t *)key->str,
                                            .key_length = key->len,
                                            .value = (const uint8_t *)value->str,
                                            .value_length = value->len,
                                            .expires = expires->integer > 0 ? (uint64_t)expires->integer : 0};
        status = entry_add(dump, &entry, error);
        bytes += key->len + value->len;
        dump->last[0] = '(';
        memcpy(dump->last + 1, key->str, key->len);
        dump->last_length = key->len + 1;
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
    if (!strncmp(words, "CLUSTERDOWN", 11) && task_now() < asked_at + WAIT_SECONDS * SECOND) {
        task_sleep(RETRY_NS);
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

/* The cut has failed, and with it the file: the rest of that moment is not to be had. */
static int cut_lost(const char *words, struct error *error)
{
    char text[400];
    client_words(text, sizeof text, words);
    return error_set(error, BANYAN_ENET, "the server gave up the cut, and nothing is written: %s", text);
}

/* Sends a command, and gets its reply; NULL: the connection was lost. */
static redisReply *ask(struct dump *dump, int count, const char **arguments, const size_t *lengths,
                       struct error *error)
{
    redisReply *reply = redisCommandArgv(dump->connection, count, arguments, lengths);
    char text[120];
    if (!reply) {
        client_words(text, sizeof text, dump->connection->errstr);
        error_set(error, BANYAN_ENET, "the connection to the server was lost: %s", text);
    }
    return reply;
}

/* The upper bound, as RANGE takes it. */
static size_t bound_to(const struct dump *dump, char to[ARCHIVE_KEY_MAX + 2])
{
    const char *key = dump->settings.to;
    return (size_t)(key && key[0] ? snprintf(to, ARCHIVE_KEY_MAX + 2, "(%s", key)
                                  : snprintf(to, ARCHIVE_KEY_MAX + 2, "+"));
}

/* One RANGE, or one CUT NEXT. */
static int part_read(struct dump *dump, uint64_t *asked_at, struct error *error)
{
    char limit[16], to[ARCHIVE_KEY_MAX + 2];
    const size_t to_length = bound_to(dump, to);
    const size_t limit_length = (size_t)snprintf(limit, sizeof limit, "%u", dump->limit);
    const char *range[] = {"RANGE", dump->last, to, "LIMIT", limit, "WITHVALUES", "WITHEXPIRY"};
    const size_t range_lengths[] = {5, dump->last_length, to_length, 5, limit_length, 10, 10};
    const char *next[] = {"CUT", "NEXT", limit};
    const size_t next_lengths[] = {3, 4, limit_length};
    redisReply *reply =
        dump->cut ? ask(dump, 3, next, next_lengths, error) : ask(dump, 7, range, range_lengths, error);
    int status;
    if (!reply)
        return error->code;
    if (reply->type == REDIS_REPLY_ARRAY) {
        status = entries_take(dump, reply, error);
        *asked_at = task_now();
    } else if (reply->type == REDIS_REPLY_ERROR) {
        status = dump->cut ? cut_lost(reply->str, error) : refusal(dump, reply->str, *asked_at, error);
    } else {
        status = strange("it is no array", error);
    }
    freeReplyObject(reply);
    return status;
}

/* ---- the cut ---- */

/* What the server says to CUT OPEN. *again: it may have one in a moment. */
static int cut_answer(struct dump *dump, const redisReply *reply, bool *again, struct error *error)
{
    char text[300];
    *again = false;
    if (reply->type == REDIS_REPLY_STATUS) {
        dump->cut = true;
        return 0;
    }
    if (reply->type != REDIS_REPLY_ERROR)
        return strange("CUT OPEN is answered by neither a status nor an error", error);
    client_words(text, sizeof text, reply->str);
    *again = !strncmp(reply->str, "BUSY ", 5) || !strncmp(reply->str, "CLUSTERDOWN", 11);
    if (strncmp(reply->str, "NOCUT ", 6) && strncmp(reply->str, "ERR unknown command", 19))
        return error_set(error, BANYAN_ENET,
                         "the server refused a cut: %s. With --consistent off keys are read key by key",
                         text);
    if (dump->settings.consistent == CONSISTENT_REQUIRE)
        return error_set(error, BANYAN_ENOTSUP,
                         "the server cannot give all keys as they are at one moment (%s); without "
                         "--consistent require they are read key by key",
                         text);
    return 0; /* key by key then */
}

static int cut_open(struct dump *dump, struct error *error)
{
    const uint64_t begun = task_now();
    char to[ARCHIVE_KEY_MAX + 2];
    const size_t to_length = bound_to(dump, to);
    const char *arguments[] = {"CUT", "OPEN", dump->last, to};
    const size_t lengths[] = {3, 4, dump->last_length, to_length};
    for (;;) {
        bool again;
        redisReply *reply = ask(dump, 4, arguments, lengths, error);
        if (!reply)
            return error->code;
        int status = cut_answer(dump, reply, &again, error);
        freeReplyObject(reply);
        if (!again || task_now() - begun > WAIT_SECONDS * SECOND)
            return status;
        task_sleep(RETRY_NS);
    }
}

/* ---- the command ---- */

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
    dump->last_length = settings->from && settings->from[0]
                            ? (size_t)snprintf(dump->last, sizeof dump->last, "[%s", settings->from)
                            : (size_t)snprintf(dump->last, sizeof dump->last, "-");
    dump->limit = LIMIT_FIRST;
    int status = net_address_parse(&dump->address, arguments->count ? arguments->values[0] : "127.0.0.1:6379",
                                   6379, error);
    if (!status && settings->password_file)
        status = net_secret_read(settings->password_file, dump->password, &length, error);
    return status;
}

static int dump_all(struct dump *dump, struct error *error)
{
    uint64_t asked_at = task_now();
    int status = 0;
    if (dump->settings.consistent != CONSISTENT_OFF)
        status = cut_open(dump, error);
    if (!status && dump->settings.format == DUMP_BANYAN)
        status = archive_writer_create(&dump->writer, ARCHIVE_ORDERED | (dump->cut ? ARCHIVE_MOMENT : 0),
                                       clock_wall_ms(), (int)dump->settings.compress, output_file_write,
                                       &dump->output, error);
    while (!status && !dump->ended) {
        status = part_read(dump, &asked_at, error);
        client_progress(&dump->progress, dump->keys, dump->bytes, false);
    }
    if (!status && dump->writer)
        status = archive_finish(dump->writer, error);
    client_progress(&dump->progress, dump->keys, dump->bytes, true);
    return status ? status : output_file_publish(&dump->output, error);
}

static void result_print(const struct dump *dump)
{
    const double seconds = (double)(task_now() - dump->progress.begun_at) / 1e9;
    if (!dump->settings.json && !dump->output.temporary && dump->output.file != stdout)
        printf("%s: %" PRIu64 " keys, %s, %.1f MiB of keys and values in %.1f MiB\n", dump->settings.output,
               dump->keys, dump->cut ? "as they were at one moment" : "read key by key",
               (double)dump->bytes / 1048576, (double)dump->output.written / 1048576);
    if (!dump->settings.json)
        return;
    json_t *json = json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:f}", "output", dump->settings.output, "format",
                             formats[dump->settings.format], "consistent", dump->cut, "keys",
                             (json_int_t)dump->keys, "bytes", (json_int_t)dump->bytes, "written",
                             (json_int_t)dump->output.written, "seconds", seconds);
    json_dumpf(json, stdout, JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(json);
}

int command_dump(int argc, char **argv)
{
    char *values[1];
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
    if (!status) {
        dump->connection = client_connect(&dump->address, dump->password, WAIT_SECONDS, &error);
        status = dump->connection ? dump_all(dump, &error) : error.code;
    }
    if (!status)
        result_print(dump);
    output_file_close(&dump->output);
    if (dump->connection)
        redisFree(dump->connection);
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
