/*
 * fuzz_commands.c - the commands about keys (strings, numbers, bits, expiry, ranges, SCAN), each with
 * arguments out of the input: few keys, options right and wrong, numbers at their limits, globs, bounds,
 * cursors; over a small store whose clock the input moves. RESP2 and RESP3.
 *
 * Oracle: each command gives exactly one well-formed reply; different commands about one key agree (GET,
 * STRLEN, EXISTS, PTTL, RANGE); at the end SCAN, RANGECOUNT and RANGE give the same keys, the store is sound,
 * and every block has one owner.
 */
#include "fuzz/fuzz_replies.h"
#include "fuzz/fuzz_rig.h"
#include "server/command.h"
#include "server/replies.h"

#define COMMANDS_MAX  200u
#define ARGUMENTS_MAX 12u
#define REPLY_MAX     (UINT64_C(8) << 20)

struct trial {
    struct rig rig;
    struct fuzz_input input;
    struct resp_writer reply;
    struct command_table *table;
    uint64_t last_cursor;
};

/* ---- one command ---- */

static const char *run(struct trial *trial, const struct resp_argument *arguments, uint32_t count)
{
    struct server_call call = {.store = trial->rig.store_session,
                               .reply = &trial->reply,
                               .arguments = arguments,
                               .count = count,
                               .now_ms = trial->rig.now_ms};
    trial->reply.length = 0;
    resp_begin(&trial->reply);
    call.command = command_table_find(trial->table, arguments[0].bytes, arguments[0].length, NULL);
    if (!call.command)
        server_reply_unknown(&call);
    else if (!command_arity_allows(call.command->arity, count))
        server_reply_arity(&call);
    else
        command_run(&call);
    resp_end(&trial->reply);
    fuzz_must(!trial->reply.overflow, "no memory for a reply");
    const char *begin = trial->reply.bytes, *end = begin + trial->reply.length;
    fuzz_must(trial->reply.length && fuzz_reply_end(begin, end, trial->reply.protocol, 0) == end,
              "'%.*s' is answered with '%.200s'", (int)arguments[0].length, arguments[0].bytes, begin);
    return begin;
}

/* The same with texts; the reply is valid until the next command. */
static const char *ask(struct trial *trial, const char *name, const struct resp_argument *key,
                       const char *more)
{
    struct resp_argument arguments[3] = {{.bytes = name, .length = strlen(name)}, *key};
    if (more)
        arguments[2] = (struct resp_argument){.bytes = more, .length = strlen(more)};
    return run(trial, arguments, more ? 3 : 2);
}

static bool is_null(const char *reply)
{
    return !strncmp(reply, "$-1", 3) || *reply == '_';
}

/* Different commands agree about a key. */
static void judge_key(struct trial *trial, const struct resp_argument *key)
{
    if (*ask(trial, "STRLEN", key, NULL) == '-')
        return; /* no key */
    long long length = strtoll(trial->reply.bytes + 1, NULL, 10);
    bool there = *ask(trial, "EXISTS", key, NULL) == ':' && trial->reply.bytes[1] == '1';
    fuzz_must(there || !length, "STRLEN tells %lld bytes of a key that is not there", length);
    const char *reply = ask(trial, "GET", key, NULL);
    fuzz_must(there == !is_null(reply), "GET and EXISTS differ");
    fuzz_must(!there || strtoll(reply + 1, NULL, 10) == length, "GET and STRLEN differ");
    long long left = strtoll(ask(trial, "PTTL", key, NULL) + 1, NULL, 10);
    fuzz_must(there ? left >= -1 : left == -2, "PTTL tells %lld of a key that is %sthere", left,
              there ? "" : "not ");
    long long when = strtoll(ask(trial, "PEXPIRETIME", key, NULL) + 1, NULL, 10);
    fuzz_must(left < 0 ? when == left : when == left + (long long)trial->rig.now_ms,
              "PTTL %lld, PEXPIRETIME %lld", left, when);
}

/* ---- arguments out of the input ---- */

static const char *const words[] = {"0",
                                    "1",
                                    "-1",
                                    "2",
                                    "100",
                                    "1000",
                                    "5",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "0.5",
                                    "1e4000",
                                    "nan",
                                    "inf",
                                    "-0",
                                    "+",
                                    "-",
                                    "[k",
                                    "(k",
                                    "[k\xff",
                                    "EX",
                                    "PX",
                                    "EXAT",
                                    "PXAT",
                                    "NX",
                                    "XX",
                                    "GT",
                                    "LT",
                                    "GET",
                                    "KEEPTTL",
                                    "PERSIST",
                                    "MATCH",
                                    "COUNT",
                                    "TYPE",
                                    "string",
                                    "LIMIT",
                                    "REV",
                                    "KEYS",
                                    "VALUES",
                                    "WITHVALUES",
                                    "WITHEXPIRY",
                                    "SYNC",
                                    "ASYNC",
                                    "k*",
                                    "[^a]*",
                                    "*",
                                    "REPLACE",
                                    "",
                                    "abc",
                                    "70000",
                                    "536870911",
                                    "AND",
                                    "NOT",
                                    "SET",
                                    "INCRBY",
                                    "i13"};

static struct resp_argument take_argument(struct trial *trial, char *room, size_t capacity)
{
    uint8_t how = fuzz_byte(&trial->input);
    size_t length;
    if (how < 96) { /* few keys, some long */
        length = how % 12 == 11 ? 255u + how / 32 : 1u + how % 12 / 4;
        memset(room, 'k', length);
        room[0] = (char)('k' + how % 4 / 3);
        room[length - 1] = (char)('a' + how % 12);
    } else if (how < 96 + sizeof words / sizeof *words * 2) {
        const char *word = words[(how - 96u) / 2];
        length = strlen(word);
        memcpy(room, word, length);
    } else if (how < 210) {
        length = (size_t)snprintf(room, capacity, "%llu", (unsigned long long)trial->last_cursor);
    } else if (how < 220) {
        length = 10u + 8u * fuzz_byte(&trial->input);
        memset(room, how, length);
    } else if (how < 235) {
        length = (size_t)snprintf(room, capacity, "%lld", (long long)(int16_t)fuzz_u16(&trial->input));
    } else {
        length = how % 16;
        fuzz_take(&trial->input, room, length);
    }
    return (struct resp_argument){.bytes = fuzz_text(room, length), .length = length};
}

/* So many keys that SCAN does not give all of them at once. */
static void fill(struct trial *trial, uint8_t count)
{
    for (unsigned i = 0; i < count; i++) {
        char key[16];
        const struct resp_argument arguments[] = {
            {.bytes = "SET", .length = 3},
            {.bytes = key, .length = (size_t)snprintf(key, sizeof key, "k%u", i * 7)},
            {.bytes = key, .length = 2}};
        run(trial, arguments, 3);
    }
}

static void step(struct trial *trial)
{
    struct resp_argument arguments[ARGUMENTS_MAX];
    static char room[8192];
    uint8_t which = fuzz_byte(&trial->input), count = fuzz_byte(&trial->input) % (ARGUMENTS_MAX - 1);
    const struct server_command *command =
        command_table_at(trial->table, which % command_table_count(trial->table));
    if (which == 254) {
        fill(trial, (uint8_t)(count * 5));
        return;
    }
    if (which == 255) {
        trial->rig.now_ms += count * UINT64_C(300);
        return;
    }
    uint32_t least = (uint32_t)(command->arity < 0 ? -command->arity : command->arity);
    if (command->arity > 0 && count < 9) /* mostly as many as its arity asks for */
        count = (uint8_t)(least - 1);
    else if (count < 9 && count + 1u < least)
        count = (uint8_t)(least - 1);
    arguments[0] = (struct resp_argument){.bytes = command->name, .length = strlen(command->name)};
    for (uint32_t i = 1; i <= count; i++)
        arguments[i] = take_argument(trial, room, sizeof room);
    const char *reply = run(trial, arguments, 1u + count);
    if (!strcmp(command->name, "scan") && *reply == '*') /* *2, then the cursor as a bulk */
        trial->last_cursor = strtoull(strchr(strchr(reply + 1, '\n') + 1, '\n') + 1, NULL, 10);
    if (command->first_key && count >= command->first_key && command->flags & SERVER_WRITE)
        judge_key(trial, &arguments[command->first_key]);
    for (uint32_t i = 1; i <= count; i++)
        free((void *)(uintptr_t)arguments[i].bytes);
}

/* ---- the end ---- */

/* How many keys SCAN meets. */
static uint64_t scan_all(struct trial *trial)
{
    char cursor[32] = "0";
    uint64_t met = 0;
    for (unsigned rounds = 0;; rounds++) {
        fuzz_must(rounds < 10000, "SCAN has no end");
        const struct resp_argument arguments[] = {{.bytes = "SCAN", .length = 4},
                                                  {.bytes = cursor, .length = strlen(cursor)}};
        const char *at = run(trial, arguments, 2);
        at = strchr(strchr(at, '\n') + 1, '\n') + 1;
        snprintf(cursor, sizeof cursor, "%.*s", (int)strcspn(at, "\r"), at);
        met += strtoull(strchr(at, '*') + 1, NULL, 10);
        if (!strcmp(cursor, "0"))
            return met;
    }
}

static void judge_end(struct trial *trial)
{
    struct store_check_report report = {0};
    struct rig_blocks blocks = {0};
    struct resp_argument low = {.bytes = "-", .length = 1};
    uint64_t count = strtoull(ask(trial, "RANGECOUNT", &low, "+") + 1, NULL, 10), met = scan_all(trial);
    fuzz_must(count == met, "SCAN tells %llu keys, RANGECOUNT %llu", (unsigned long long)met,
              (unsigned long long)count);
    int status = store_check(trial->rig.store_session, &report, rig_blocks_add, &blocks);
    fuzz_must(!status, "check: %s", tree_session_error(trial->rig.session)->text);
    fuzz_must(report.tree.entries - report.expired == count, "check: %llu entries, RANGECOUNT %llu",
              (unsigned long long)(report.tree.entries - report.expired), (unsigned long long)count);
    rig_account(&trial->rig, &blocks);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static const struct server_command *const tables[] = {server_string_commands, server_bit_commands,
                                                          server_key_commands, server_range_commands, NULL};
    static struct command_table *table;
    struct error error = {0};
    struct trial trial = {.input = {bytes, length}};
    struct rig_options options;
    if (!table)
        fuzz_must(!command_table_create(&table, tables, &error), "%s", error.text);
    trial.table = table;
    rig_options_default(&options);
    store_geometry(&options.geometry);
    options.records = true;
    options.chunk_bytes = UINT64_C(1) << 20;
    options.pool_bytes = UINT64_C(32) << 20;
    rig_create(&trial.rig, &options);
    trial.rig.now_ms = 1700000000000;
    resp_writer_init(&trial.reply, 2 + fuzz_byte(&trial.input) % 2, REPLY_MAX);
    for (unsigned i = 0; i < COMMANDS_MAX && trial.input.length; i++)
        step(&trial);
    judge_end(&trial);
    resp_writer_free(&trial.reply);
    rig_destroy(&trial.rig, false);
    return 0;
}
