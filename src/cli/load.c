/*
 * load.c - `banyan load`: the keys of a file into a running server: of a file that `banyan dump` has written,
 * of a snapshot of Redis (RDB), or of its append-only files (AOF). A client like any other.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/aof.h"
#include "archive/archive.h"
#include "archive/rdb.h"
#include "base/clock.h"
#include "base/task.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/load_send.h"

#define SECOND         UINT64_C(1000000000)
#define LOAD_LEFT_OUT  3 /* exit status */
#define FILES_MAX      1024u
#define COMMANDS_NAMED 16u /* kinds of commands that were left out, by name */

enum { EXISTING_REPLACE, EXISTING_KEEP };

struct load_settings {
    char *to, *password_file;
    uint32_t database;
    int existing;
    bool flush, dry_run, json;
};

static const char *const existings[] = {"replace", "keep", NULL};

#define ROW(name, kind, field, low, high, choices, unit, help)                                               \
    {                                                                                                        \
        name, kind, offsetof(struct load_settings, field), low, high, choices, unit, help                    \
    }
static const struct option_entry table[] = {
    ROW("to", OPTION_TEXT, to, 0, 0, NULL, "ADDRESS", "The server; 127.0.0.1:6379"),
    ROW("existing", OPTION_CHOICE, existing, 0, 0, existings, "WHAT",
        "Keys that the server has: replace them, or keep them as they are"),
    ROW("database", OPTION_U32, database, 0, UINT32_MAX, NULL, "N", "Of Redis's databases, this one alone"),
    ROW("flush", OPTION_BOOL, flush, 0, 0, NULL, NULL,
        "FLUSHALL and FLUSHDB in an append-only file are done: THE SERVER LOSES ALL THAT IT HAS"),
    ROW("dry-run", OPTION_BOOL, dry_run, 0, 0, NULL, NULL, "Read and count; no server is asked"),
    ROW("password-file", OPTION_TEXT, password_file, 0, 0, NULL, "FILE", "First line: the server's password"),
    ROW("json", OPTION_BOOL, json, 0, 0, NULL, NULL, "Print what was loaded for programs"),
    {.kind = OPTION_END},
};

static const struct settings_command command = {
    .name = "load",
    .table = table,
    .arguments = "FILE",
    .arguments_max = 1,
    .documentation =
        "Load a file of keys into a running server ('banyan serve', 'banyan compute', or a Redis).\v"
        "FILE is what `banyan dump` has written, or a snapshot of Redis (dump.rdb), or an append-only file "
        "of it: "
        "appendonly.aof, or the directory appendonlydir with its manifest. What it is is seen from its first "
        "bytes. -: "
        "standard input. Keys that have expired are left out.\n\n"
        "A file is first read as a whole, so a damaged one changes nothing on the server; standard input is "
        "loaded as it "
        "comes. Loading may be repeated. Banyan has strings: lists, sets, hashes, sorted sets and streams of "
        "a Redis are "
        "left out, and counted.\n\n"
        "Examples:\n"
        "  banyan load backup.banyan\n"
        "  banyan load /var/lib/redis/dump.rdb --to 127.0.0.1:6380\n"
        "  banyan load /var/lib/redis/appendonlydir --existing keep\n"
        "  banyan load --dry-run --json backup.banyan\n\n"
        "Exit status: 0 when all is loaded; 3 when something in the file was left out; 1 when the file is "
        "damaged, or the "
        "server refused; 2 when a setting makes no sense.",
};

struct load {
    struct load_settings settings;
    const char *path;
    struct net_address address;
    char password[NET_SECRET_MAX + 1];
    struct load_sender sender;
    char *files[FILES_MAX]; /* owned: in the order in which they are read */
    unsigned file_count;
    const char *format; /* of the first file */
    /* of one reading */
    uint64_t database; /* the one that an append-only file's commands are for */
    uint64_t now_ms, keys, expired, bytes;
    struct rdb_counts rdb;
    uint64_t commands_left_out;
    struct {
        char name[24];
        uint64_t count;
    } left_out[COMMANDS_NAMED];
    uint64_t cut_at;
    bool cut;
    struct client_progress progress;
    const struct source *source; /* that is being read */
};

/* Of the reading that sends; the first one only looks at the file. */
static void progress_tell(struct load *load, bool end)
{
    if (load->sender.connection)
        client_progress(&load->progress, load->keys, load->bytes, end);
}

/* ---- entries ---- */

static int entry_load(void *context, const struct archive_entry *entry, struct error *error)
{
    struct load *load = context;
    char expires[24];
    const char *arguments[6] = {"SET", (const char *)entry->key, (const char *)entry->value};
    size_t lengths[6] = {3, entry->key_length, entry->value_length};
    int count = 3;
    if (entry->expires && entry->expires <= load->now_ms) {
        load->expired++;
        return 0;
    }
    if (entry->expires) {
        arguments[count] = "PXAT";
        lengths[count++] = 4;
        arguments[count] = expires;
        lengths[count++] = (size_t)snprintf(expires, sizeof expires, "%" PRIu64, entry->expires);
    }
    if (load->settings.existing == EXISTING_KEEP) {
        arguments[count] = "NX";
        lengths[count++] = 2;
    }
    load->keys++;
    load->bytes += entry->key_length + entry->value_length;
    progress_tell(load, false);
    return load_send(&load->sender, count, arguments, lengths, load->source->position, true, error);
}

/* ---- commands of an append-only file ---- */

enum treatment { TREAT_SEND, TREAT_SELECT, TREAT_FLUSH, TREAT_MSETNX, TREAT_LEAVE_OUT };

static bool is(const struct aof_argument *argument, const char *name)
{
    return argument->length == strlen(name) &&
           !strncasecmp((const char *)argument->bytes, name, argument->length);
}

static enum treatment treatment_of(const struct aof_command *aof)
{
    static const char *const sent[] = {
        "set",      "setnx",  "setex",  "psetex",  "getset",   "getdel",      "getex",  "mset",     "append",
        "setrange", "incr",   "decr",   "incrby",  "decrby",   "incrbyfloat", "setbit", "bitfield", "bitop",
        "del",      "unlink", "expire", "pexpire", "expireat", "pexpireat",   "persist"};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        if (is(aof->arguments, sent[i]))
            return TREAT_SEND;
    return is(aof->arguments, "select")                                      ? TREAT_SELECT
           : is(aof->arguments, "flushall") || is(aof->arguments, "flushdb") ? TREAT_FLUSH
           : is(aof->arguments, "msetnx")                                    ? TREAT_MSETNX
                                                                             : TREAT_LEAVE_OUT;
}

static void leave_out(struct load *load, const struct aof_argument *name)
{
    char text[sizeof load->left_out[0].name];
    unsigned i = 0;
    snprintf(text, sizeof text, "%.*s", (int)(name->length < sizeof text ? name->length : sizeof text - 1),
             (const char *)name->bytes);
    for (char *at = text; *at; at++)
        *at = *at > ' ' && *at < 127 ? *at : '?';
    load->commands_left_out++;
    while (i < COMMANDS_NAMED && load->left_out[i].count && strcasecmp(load->left_out[i].name, text))
        i++;
    if (i == COMMANDS_NAMED)
        return;
    memcpy(load->left_out[i].name, text, sizeof text);
    load->left_out[i].count++;
}

static int command_send(struct load *load, const struct aof_command *aof, const char *name,
                        struct error *error)
{
    const char **arguments = malloc(aof->count * sizeof *arguments);
    size_t *lengths = malloc(aof->count * sizeof *lengths);
    int status = BANYAN_ENOMEM;
    for (uint32_t i = 0; arguments && lengths && i < aof->count; i++) {
        arguments[i] = (const char *)aof->arguments[i].bytes;
        lengths[i] = aof->arguments[i].length;
        load->bytes += lengths[i];
    }
    if (arguments && lengths) {
        if (name) {
            arguments[0] = name;
            lengths[0] = strlen(name);
        }
        status = load_send(&load->sender, (int)aof->count, arguments, lengths, aof->position, false, error);
    } else {
        error_set(error, status, "no memory for a command of %u arguments", aof->count);
    }
    free(arguments);
    free(lengths);
    return status;
}

static int select_database(struct load *load, const struct aof_command *aof, struct error *error)
{
    char text[24], *end;
    const size_t length = aof->count == 2 ? aof->arguments[1].length : 0;
    snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : 0),
             length ? (const char *)aof->arguments[1].bytes : "");
    load->database = strtoull(text, &end, 10);
    if (!text[0] || *end || text[0] == '-')
        return error_set(error, BANYAN_ECORRUPT, "byte %" PRIu64 ": SELECT of no database", aof->position);
    return 0;
}

static int aof_command_load(void *context, const struct aof_command *aof, struct error *error)
{
    struct load *load = context;
    const enum treatment treatment = treatment_of(aof);
    if (treatment == TREAT_SELECT)
        return select_database(load, aof, error);
    const bool all = is(aof->arguments, "flushall");
    if (load->database != load->settings.database && !(treatment == TREAT_FLUSH && all)) {
        load->rdb.other_databases++;
        return 0;
    }
    if (treatment == TREAT_LEAVE_OUT) {
        leave_out(load, aof->arguments);
        return 0;
    }
    if (treatment == TREAT_FLUSH && !load->settings.flush)
        return error_set(error, BANYAN_EBUSY,
                         "byte %" PRIu64
                         " of the file is a %s: --flush does it, so the server loses all that it has; or "
                         "let Redis rewrite the file (BGREWRITEAOF)",
                         aof->position, all ? "FLUSHALL" : "FLUSHDB");
    load->keys++;
    progress_tell(load, false);
    /* It was in the file because it set all of them. */
    return command_send(load, aof, treatment == TREAT_MSETNX ? "MSET" : NULL, error);
}

/* ---- files ---- */

static int stray(const struct source *source, struct error *error)
{
    return source_corrupt(source, source->position, error,
                          source->position
                              ? "something follows that is no command of Redis"
                              : "this is no file of `banyan dump`, no snapshot and no append-only file of "
                                "Redis");
}

static int commands_read(struct load *load, struct source *source, bool last, struct error *error)
{
    struct aof_counts counts = {0};
    int status = aof_read(source, aof_command_load, load, &counts, error);
    load->cut = counts.cut;
    load->cut_at = counts.cut_at;
    if (!status && counts.cut && !last)
        return source_corrupt(source, counts.cut_at, error,
                              "the file ends within a command, though others follow it");
    return status;
}

static int source_load(struct load *load, struct source *source, bool last, struct error *error)
{
    const uint8_t *bytes;
    size_t available;
    const struct rdb_options options = {.database = load->settings.database};
    int status = source_peek(source, 9, &bytes, &available, error);
    if (status)
        return status;
    const bool banyan = archive_begins(bytes, available), rdb = rdb_begins(bytes, available);
    if (!load->format)
        load->format = banyan ? "banyan" : rdb ? "rdb" : "aof";
    if (banyan)
        return archive_read(source, entry_load, load, NULL, error);
    if (rdb)
        status = rdb_read(source, &options, entry_load, load, &load->rdb, error);
    if (!status)
        status = source_peek(source, 1, &bytes, &available, error);
    if (status || (rdb && !available))
        return status;
    return aof_begins(bytes, available) ? commands_read(load, source, last, error) : stray(source, error);
}

/* Reads all files, and sends what is in them if there is a connection. */
static int files_read(struct load *load, struct error *error)
{
    load->now_ms = clock_wall_ms();
    load->database = load->keys = load->expired = load->bytes = load->commands_left_out = 0;
    load->rdb = (struct rdb_counts){0};
    memset(load->left_out, 0, sizeof load->left_out);
    int status = 0;
    for (unsigned i = 0; i < load->file_count && !status; i++) {
        struct source source;
        status = source_open(&source, load->files[i], error);
        load->source = &source;
        if (!status)
            status = source_load(load, &source, i + 1 == load->file_count, error);
        load->source = NULL;
        source_close(&source);
    }
    if (!status)
        status = load_finish(&load->sender, error);
    progress_tell(load, true);
    return status;
}

static int file_add(struct load *load, const char *folder, const char *name, struct error *error)
{
    char *path = NULL;
    if (load->file_count == FILES_MAX)
        return error_set(error, BANYAN_EINVAL, "%.120s names more than %u files", load->path, FILES_MAX);
    if (asprintf(&path, "%s%s%s", folder, *folder ? "/" : "", name) < 0)
        return error_set(error, BANYAN_ENOMEM, "no memory for a file's name");
    load->files[load->file_count++] = path;
    return 0;
}

/* Lines "file appendonly.aof.1.base.rdb seq 1 type b": the base, then what came after it, in their order. */
static int manifest_read(struct load *load, const char *folder, const char *path, struct error *error)
{
    char line[1100], name[1025], type;
    unsigned long long sequence;
    FILE *file = fopen(path, "re");
    int status = 0;
    if (!file)
        return error_set(error, BANYAN_EINVAL, "%.160s cannot be opened: %s", path, strerror(errno));
    while (!status && fgets(line, sizeof line, file)) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if ((sscanf(line, "file \"%1024[^\"]\" seq %llu type %c", name, &sequence, &type) != 3 &&
             sscanf(line, "file %1024s seq %llu type %c", name, &sequence, &type) != 3) ||
            strchr(name, '/') || !strcmp(name, ".."))
            status =
                error_set(error, BANYAN_ECORRUPT, "%.120s is no manifest of Redis's append-only files", path);
        else if (type != 'h') /* history: Redis is about to delete it */
            status = file_add(load, folder, name, error);
    }
    fclose(file);
    if (!status && !load->file_count)
        return error_set(error, BANYAN_ECORRUPT, "%.160s names no file", path);
    return status;
}

static int directory_read(struct load *load, struct error *error)
{
    static const char ending[] = ".manifest";
    DIR *directory = opendir(load->path);
    char *manifest = NULL;
    int status = 0;
    if (!directory)
        return error_set(error, BANYAN_EINVAL, "%.160s cannot be read: %s", load->path, strerror(errno));
    for (const struct dirent *entry; !status && (entry = readdir(directory));) {
        const size_t length = strlen(entry->d_name);
        if (length <= sizeof ending - 1 || strcmp(entry->d_name + length - (sizeof ending - 1), ending) != 0)
            continue;
        if (manifest)
            status = error_set(error, BANYAN_EINVAL, "%.160s has more than one manifest", load->path);
        else if (asprintf(&manifest, "%s/%s", load->path, entry->d_name) < 0)
            status = error_set(error, BANYAN_ENOMEM, "no memory for a file's name");
    }
    closedir(directory);
    if (!status && !manifest)
        status =
            error_set(error, BANYAN_EINVAL,
                      "%.120s is a directory without a manifest of Redis's append-only files", load->path);
    if (!status)
        status = manifest_read(load, load->path, manifest, error);
    free(manifest);
    return status;
}

/* *twice: the files can be read again. */
static int files_find(struct load *load, bool *twice, struct error *error)
{
    struct stat about;
    *twice = false;
    if (!strcmp(load->path, "-"))
        return file_add(load, "", load->path, error);
    if (stat(load->path, &about))
        return error_set(error, BANYAN_EINVAL, "%.160s cannot be opened: %s", load->path, strerror(errno));
    *twice = S_ISDIR(about.st_mode) || S_ISREG(about.st_mode);
    return S_ISDIR(about.st_mode) ? directory_read(load, error) : file_add(load, "", load->path, error);
}

/* ---- the command ---- */

static int prepare(struct load *load, const struct settings_arguments *arguments, struct error *error)
{
    size_t length = 0;
    if (!arguments->count)
        return error_set(error, BANYAN_EINVAL, "no file to load: banyan load FILE");
    load->path = arguments->values[0];
    int status = net_address_parse(&load->address, load->settings.to ? load->settings.to : "127.0.0.1:6379",
                                   6379, error);
    if (!status && load->settings.password_file)
        status = net_secret_read(load->settings.password_file, load->password, &length, error);
    return status;
}

static int load_all(struct load *load, struct error *error)
{
    bool twice;
    int status = files_find(load, &twice, error);
    if (!status && (twice || load->settings.dry_run))
        status = files_read(load, error);
    if (status || load->settings.dry_run)
        return status;
    load->sender = (struct load_sender){.answered_at = task_now()};
    load->sender.connection = client_connect(&load->address, load->password, LOAD_WAIT_SECONDS, error);
    load->progress.begun_at = task_now();
    return load->sender.connection ? files_read(load, error) : error->code;
}

static uint64_t left_out(const struct load *load)
{
    return load->rdb.others + load->rdb.too_long + load->commands_left_out;
}

static void json_print(const struct load *load, double seconds)
{
    json_t *names = json_object();
    for (unsigned i = 0; i < COMMANDS_NAMED && load->left_out[i].count; i++)
        json_object_set_new(names, load->left_out[i].name, json_integer((json_int_t)load->left_out[i].count));
    json_t *json = json_pack(
        "{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:o}, s:b, s:f}", "format",
        load->format ? load->format : "", "dry_run", load->settings.dry_run, "read", (json_int_t)load->keys,
        "loaded", (json_int_t)(load->settings.dry_run ? 0 : load->sender.done), "kept",
        (json_int_t)load->sender.kept, "expired", (json_int_t)load->expired, "other_databases",
        (json_int_t)load->rdb.other_databases, "left_out", "other_types", (json_int_t)load->rdb.others,
        "too_long", (json_int_t)load->rdb.too_long, "commands", (json_int_t)load->commands_left_out,
        "by_command", names, "cut", load->cut, "seconds", seconds);
    json_dumpf(json, stdout, JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(json);
}

static void result_print(const struct load *load)
{
    const double seconds = load->progress.begun_at ? (double)(task_now() - load->progress.begun_at) / 1e9 : 0;
    if (load->settings.json) {
        json_print(load, seconds);
        return;
    }
    printf("%s (%s): %" PRIu64 " %s %s, %.1f MiB", load->path, load->format ? load->format : "empty",
           load->settings.dry_run ? load->keys : load->sender.done,
           load->format && !strcmp(load->format, "aof") ? "commands" : "keys",
           load->settings.dry_run ? "read" : "loaded", (double)load->bytes / 1048576);
    if (load->sender.kept)
        printf(", %" PRIu64 " kept as they were", load->sender.kept);
    if (load->expired)
        printf(", %" PRIu64 " have expired", load->expired);
    if (load->rdb.other_databases)
        printf(", %" PRIu64 " of other databases", load->rdb.other_databases);
    putchar('\n');
}

/* What is in the file and not on the server. */
static void warnings_print(const struct load *load)
{
    if (load->rdb.others + load->rdb.too_long)
        fprintf(stderr,
                "banyan load: %" PRIu64 " keys of other types and %" PRIu64
                " strings that are too long (keys to %u bytes, values to 64 MiB) were left out, the first is "
                "%s\n",
                load->rdb.others, load->rdb.too_long, ARCHIVE_KEY_MAX, load->rdb.example);
    if (load->commands_left_out) {
        fprintf(stderr, "banyan load: %" PRIu64 " commands were left out:", load->commands_left_out);
        for (unsigned i = 0; i < COMMANDS_NAMED && load->left_out[i].count; i++)
            fprintf(stderr, " %s (%" PRIu64 ")", load->left_out[i].name, load->left_out[i].count);
        fputc('\n', stderr);
    }
    if (load->cut)
        fprintf(stderr,
                "banyan load: the file ends within a command or a transaction, from byte %" PRIu64
                " on it was left out, as Redis does\n",
                load->cut_at);
}

int command_load(int argc, char **argv)
{
    char *values[1];
    struct settings_arguments arguments = {.values = values};
    struct error error = {0};
    struct load *load = calloc(1, sizeof *load);
    if (!load)
        return COMMAND_FAILED;
    int status = settings_read(&command, &load->settings, argc, argv, &arguments, &error);
    if (!status)
        status = prepare(load, &arguments, &error);
    const int usage = status;
    if (!status)
        status = load_all(load, &error);
    if (!status) {
        result_print(load);
        warnings_print(load);
    } else if (!usage && load->sender.done && load->sender.connection) {
        fprintf(stderr, "banyan load: stopped behind %" PRIu64 " keys or commands that took effect\n",
                load->sender.done);
    }
    const bool whole = !left_out(load) && !load->cut;
    load_sender_close(&load->sender);
    for (unsigned i = 0; i < load->file_count; i++)
        free(load->files[i]);
    explicit_bzero(load->password, sizeof load->password);
    option_free(table, &load->settings);
    free(load);
    if (usage)
        return cluster_failed("load", &error);
    if (status)
        fprintf(stderr, "banyan load: %s\n", error.text);
    return status ? COMMAND_FAILED : whole ? COMMAND_OK : LOAD_LEFT_OUT;
}
