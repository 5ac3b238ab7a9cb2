/*
 * test_dump_load.c - `banyan dump` and `banyan load` with real servers: what is dumped is loaded, also into a
 * real redis-server, and what a real redis-server has written is loaded here. The program is $BANYAN_PROGRAM;
 * without a redis-server the tests that need one are skipped.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/random.h"
#include "cluster/talk.h"

#define KEYS   3000u
#define LATER  "4102444800000" /* 2100 */
#define BINARY 7u              /* each so many keys have bytes of any kind */

static struct process_result result;

/* ---- servers and their keys ---- */

static struct process *serve(struct scene *scene, const char *name)
{
    return process_start(scene, name, ARGUMENTS("serve", "--listen", "127.0.0.1:0", "--size", "256M"));
}

/* A redis-server of its own folder; NULL: there is none on this machine. What it has answered is in its file:
 * with a sync each second it puts the writing off while one is under way. */
static struct process *redis(struct scene *scene, const char *name, const char *append_only,
                             struct net_address *address)
{
    char path[96];
    snprintf(path, sizeof path, "%s", scene_path(scene, "%s.sock", name));
    if (access("/usr/bin/redis-server", X_OK))
        return NULL;
    struct process *process =
        process_start_other(scene, name, "redis-server",
                            ARGUMENTS("--port", "0", "--unixsocket", path, "--dir", scene->folder, "--save",
                                      "", "--appendonly", append_only, "--appendfsync", "no"));
    *address = (struct net_address){.kind = NET_UNIX};
    snprintf(address->path, sizeof address->path, "%s", path);
    redisContext *client;
    while ((client = client_connect(address)) && !strncmp(ask(client, "PING"), "-LOADING", 8))
        redisFree(client);
    redisFree(client);
    return process;
}

static size_t key_of(uint32_t number, char key[64])
{
    size_t length = (size_t)snprintf(key, 64, "key:%08" PRIx64, random_mix(number) >> 32);
    if (number % BINARY == 0) {
        memcpy(key + length, "\0\r\n\377", 4);
        length += 4;
    }
    return length;
}

static size_t value_of(uint32_t number, char *value)
{
    struct random random;
    random_seed(&random, number);
    size_t length = number % 100 == 1 ? 200000 + number : number % 40;
    for (size_t i = 0; i < length; i++)
        value[i] = (char)(number % BINARY == 0 ? random_next(&random) : 'a' + (i + number) % 26);
    return length;
}

static char value[300000];

static void keys_set(redisContext *client)
{
    char key[64];
    for (uint32_t i = 0; i < KEYS; i++) {
        const size_t key_length = key_of(i, key), length = value_of(i, value);
        redisReply *reply =
            i % 3 ? redisCommand(client, "SET %b %b", key, key_length, value, length)
                  : redisCommand(client, "SET %b %b PXAT %s", key, key_length, value, length, LATER);
        assert_non_null(reply);
        assert_string_equal(reply->str, "OK");
        freeReplyObject(reply);
    }
}

static void keys_check(redisContext *client)
{
    char key[64];
    assert_string_equal(ask(client, "DBSIZE"), text_of("%u", KEYS));
    for (uint32_t i = 0; i < KEYS; i++) {
        const size_t key_length = key_of(i, key), length = value_of(i, value);
        redisReply *reply = redisCommand(client, "GET %b", key, key_length);
        assert_int_equal(reply->type, REDIS_REPLY_STRING);
        assert_int_equal(reply->len, length);
        assert_memory_equal(reply->str, value, length);
        freeReplyObject(reply);
        reply = redisCommand(client, "PEXPIRETIME %b", key, key_length);
        assert_int_equal(reply->integer, i % 3 ? -1 : strtoll(LATER, NULL, 10));
        freeReplyObject(reply);
    }
}

/* ---- running the commands ---- */

static void run(struct scene *scene, int code, const char *part, const char *const *arguments)
{
    process_run(scene, NULL, arguments, &result);
    if (result.code != code || !(strstr(result.output, part) || strstr(result.error, part)))
        fail_msg("ended with %d, and not %d and '%s': %s%s", result.code, code, part, result.output,
                 result.error);
}

static const char *dump(struct scene *scene, const char *address, const char *name, const char *format,
                        const char *level)
{
    const char *path = keep(scene_path(scene, "%s", name));
    run(scene, 0, text_of("%u keys", KEYS),
        ARGUMENTS("dump", "--output", path, "--format", format, "--compress", level, address));
    return path;
}

static void test_round_trip(void **state)
{
    struct scene *scene = *state;
    struct process *from = serve(scene, "from"), *to = serve(scene, "to");
    redisContext *source = client_of(from, 0), *target = client_of(to, 0);
    const char *source_address = keep(address_text(from, 0)), *target_address = keep(address_text(to, 0));
    const char *const levels[] = {"0", "3"};
    keys_set(source);
    for (unsigned i = 0; i < 2; i++) {
        const char *file = dump(scene, source_address, "keys.banyan", "banyan", levels[i]);
        run(scene, 0, text_of("%u keys loaded", KEYS), ARGUMENTS("load", file, "--to", target_address));
        keys_check(target);
        assert_string_equal(ask(target, "FLUSHALL"), "OK");
    }
    const char *file = dump(scene, source_address, "keys.aof", "aof", "0");
    run(scene, 0, "commands loaded", ARGUMENTS("load", file, "--to", target_address));
    keys_check(target);
    /* Keys that are there: replaced, or kept. */
    char key[64];
    redisFree(source);
    key_of(1, key);
    assert_string_equal(ask(target, "SET %s other", key), "OK");
    file = dump(scene, source_address, "again.banyan", "banyan", "0");
    run(scene, 0, text_of("\"kept\": %u,", KEYS),
        ARGUMENTS("load", file, "--to", target_address, "--existing", "keep", "--json"));
    assert_string_equal(ask(target, "GET %s", key), "other");
    run(scene, 0, "loaded", ARGUMENTS("load", file, "--to", target_address));
    keys_check(target);
    redisFree(target);
    scene->passed = true;
}

static void test_ranges(void **state)
{
    struct scene *scene = *state;
    struct process *server = serve(scene, "server");
    redisContext *client = client_of(server, 0);
    const char *address = keep(address_text(server, 0)), *file = keep(scene_path(scene, "range.aof"));
    for (unsigned i = 0; i < 26; i++)
        assert_string_equal(ask(client, "SET %s %u", text_of("%c", 'a' + (int)i), i), "OK");
    run(scene, 0, "3 keys", ARGUMENTS("dump", address, "--output", file, "--from", "x"));
    run(scene, 0, "2 keys", ARGUMENTS("dump", address, "--output", file, "--to", "c"));
    run(scene, 0, "\"keys\": 2,",
        ARGUMENTS("dump", address, "--output", file, "--from", "d", "--to", "f", "--json"));
    run(scene, 0, "0 keys", ARGUMENTS("dump", address, "--output", file, "--from", "f", "--to", "d"));
    run(scene, 0, "0 keys read", ARGUMENTS("load", file, "--dry-run"));
    redisFree(client);
    scene->passed = true;
}

/* What the file says of itself, and the command of the file: the flags stand behind 12 bytes. */
static void consistent(struct scene *scene, const char *address, const char *how, const char *json, int flags)
{
    const char *file = keep(scene_path(scene, "consistent-%s.banyan", how));
    run(scene, 0, json, ARGUMENTS("dump", address, "--output", file, "--consistent", how, "--json"));
    FILE *stream = fopen(file, "r");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, 12, SEEK_SET), 0);
    assert_int_equal(fgetc(stream), flags);
    fclose(stream);
    run(scene, 0, "26 keys read", ARGUMENTS("load", file, "--dry-run"));
}

static void test_consistent(void **state)
{
    struct scene *scene = *state;
    struct process *server = serve(scene, "server");
    redisContext *client = client_of(server, 0);
    const char *address = keep(address_text(server, 0)), *file = keep(scene_path(scene, "some.aof"));
    for (unsigned i = 0; i < 26; i++)
        assert_string_equal(ask(client, "SET %s %u", text_of("%c", 'a' + (int)i), i), "OK");
    consistent(scene, address, "auto", "\"consistent\": true", 3);
    consistent(scene, address, "require", "\"consistent\": true", 3);
    consistent(scene, address, "off", "\"consistent\": false", 1);
    run(scene, 0, "26 keys, as they were at one moment", ARGUMENTS("dump", address, "--output", file));
    run(scene, 0, "26 keys, read key by key",
        ARGUMENTS("dump", address, "--output", file, "--consistent", "off"));
    assert_int_equal(info_figure(client, "stats", "cuts_opened"), 3);
    while (info_figure(client, "stats", "cuts_open")) /* the server notices that the program has ended */
        usleep(1000);
    redisFree(client);
    scene->passed = true;
}

/* A server whose changes wait for the disk behind the guard: a cut is opened beside them all the same. */
static void test_with_data(void **state)
{
    struct scene *scene = *state;
    struct process *server =
        process_start(scene, "server",
                      ARGUMENTS("serve", "--listen", "127.0.0.1:0", "--size", "256M", "--data",
                                scene_path(scene, "data"), "--durability", "disk-always"));
    redisContext *writer = client_of(server, 0), *reader = client_of(server, 0);
    const char *address = keep(address_text(server, 0)), *file = keep(scene_path(scene, "data.banyan"));
    assert_string_equal(ask(writer, "MSET a 1 b 2 c 3"), "OK");
    for (unsigned i = 0; i < 200; i++) /* not answered yet: changes are under way */
        assert_int_equal(redisAppendCommand(writer, "SET w%u x", i), REDIS_OK);
    int sent = 0;
    while (!sent)
        assert_int_equal(redisBufferWrite(writer, &sent), REDIS_OK);
    assert_string_equal(ask(reader, "CUT OPEN [a [c"), "OK");
    for (unsigned i = 0; i < 200; i++) {
        redisReply *reply;
        assert_int_equal(redisGetReply(writer, (void **)&reply), REDIS_OK);
        freeReplyObject(reply);
    }
    assert_string_equal(ask(writer, "DEL a b"), "2");
    redisReply *reply = redisCommand(reader, "CUT NEXT");
    assert_int_equal(reply->elements, 9);
    assert_string_equal(reply->element[1]->str, "1");
    freeReplyObject(reply);
    run(scene, 0, "201 keys, as they were at one moment", ARGUMENTS("dump", address, "--output", file));
    redisFree(writer);
    redisFree(reader);
    scene->passed = true;
}

/* Several servers change the keys of a cluster that nobody owns: they are read key by key, or not at all.
 * Owned ones: tests/cluster/test_dump.c. */
static void test_cluster(void **state)
{
    struct scene *scene = *state;
    struct process *memory =
        process_start(scene, "memory", ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    const char *pool = keep(address_text(memory, 0)), *file = keep(scene_path(scene, "cluster.banyan"));
    struct process *server = process_start(
        scene, "compute",
        ARGUMENTS("compute", "--memory", pool, "--listen", "127.0.0.1:0", "--own", "none", "--format"));
    redisContext *client = client_of(server, 0);
    const char *address = keep(address_text(server, 0));
    assert_string_equal(ask(client, "MSET a 1 b 2"), "OK");
    run(scene, 0, "2 keys, read key by key", ARGUMENTS("dump", address, "--output", file));
    run(scene, 1, "are changed by several servers",
        ARGUMENTS("dump", address, "--output", file, "--consistent", "require"));
    redisFree(client);
    scene->passed = true;
}

/* A file that was cut or changed is refused as a whole: the server is as before. */
static void test_damaged(void **state)
{
    struct scene *scene = *state;
    struct process *server = serve(scene, "server");
    redisContext *client = client_of(server, 0);
    const char *address = keep(address_text(server, 0));
    keys_set(client);
    const char *file = dump(scene, address, "keys.banyan", "banyan", "0");
    assert_string_equal(ask(client, "FLUSHALL"), "OK");
    FILE *stream = fopen(file, "r+");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, -1000, SEEK_END), 0);
    const int byte = fgetc(stream);
    assert_int_equal(fseek(stream, -1000, SEEK_END), 0);
    fputc(byte ^ 1, stream);
    fclose(stream);
    run(scene, 1, "the checksum of block", ARGUMENTS("load", file, "--to", address));
    assert_string_equal(ask(client, "DBSIZE"), "0");
    assert_int_equal(truncate(file, 5000), 0);
    run(scene, 1, "the file ends here", ARGUMENTS("load", file, "--to", address));
    assert_string_equal(ask(client, "DBSIZE"), "0");
    run(scene, 1, "no file of", ARGUMENTS("load", scene_write(scene, "text", "hello\n"), "--to", address));
    run(scene, 1, "cannot be opened", ARGUMENTS("load", "/nonexistent/file", "--to", address));
    run(scene, 1, "without a manifest", ARGUMENTS("load", scene->folder, "--to", address));
    redisFree(client);
    scene->passed = true;
}

static void test_mistakes(void **state)
{
    struct scene *scene = *state;
    const char *file = keep(scene_path(scene, "file"));
    run(scene, 2, "no file to write to", ARGUMENTS("dump"));
    run(scene, 2, "--compress is for",
        ARGUMENTS("dump", "--output", file, "--format", "aof", "--compress", "3"));
    run(scene, 2, "cannot both go", ARGUMENTS("dump", "--output", "-", "--json"));
    run(scene, 2, "option compress", ARGUMENTS("dump", "--output", file, "--compress", "20"));
    run(scene, 2, "no file to load", ARGUMENTS("load"));
    run(scene, 2, "option existing", ARGUMENTS("load", "file", "--existing", "some"));
    run(scene, 1, "Connection refused", ARGUMENTS("dump", "--output", file, "127.0.0.1:1"));
    assert_int_not_equal(access(file, F_OK), 0); /* nothing half made is left */
    run(scene, 1, "cannot be made", ARGUMENTS("dump", "--output", "/nonexistent/file", "127.0.0.1:1"));
    scene->passed = true;
}

static void test_commands(void **state)
{
    struct scene *scene = *state;
    struct process *server = serve(scene, "server");
    redisContext *client = client_of(server, 0);
    const char *address = keep(address_text(server, 0));
    const char *file = scene_write(scene, "some.aof",
                                   "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"
                                   "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"
                                   "*5\r\n$6\r\nMSETNX\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\nc\r\n$1\r\n3\r\n"
                                   "*3\r\n$6\r\nAPPEND\r\n$1\r\na\r\n$1\r\n5\r\n"
                                   "*3\r\n$5\r\nLPUSH\r\n$1\r\nl\r\n$1\r\n1\r\n"
                                   "*3\r\n$6\r\nRENAME\r\n$1\r\na\r\n$1\r\nz\r\n"
                                   "*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n"
                                   "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nother\r\n"
                                   "*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n$1\r\nb\r\n");
    run(scene, 3, "commands read", ARGUMENTS("load", file, "--dry-run"));
    assert_string_equal(ask(client, "DBSIZE"), "0");
    run(scene, 3, "LPUSH (1) RENAME (1)", ARGUMENTS("load", file, "--to", address));
    assert_contains(result.error, "ends within a command or a transaction");
    assert_contains(result.output, "1 of other databases");
    assert_string_equal(ask(client, "GET a"), "15");
    assert_string_equal(ask(client, "GET b"), "2");
    assert_string_equal(ask(client, "DBSIZE"), "3");
    file =
        scene_write(scene, "flush.aof", "*1\r\n$8\r\nFLUSHALL\r\n*3\r\n$3\r\nSET\r\n$1\r\nd\r\n$1\r\n1\r\n");
    run(scene, 1, "byte 0 of the file is a FLUSHALL", ARGUMENTS("load", file, "--to", address));
    assert_string_equal(ask(client, "DBSIZE"), "3");
    run(scene, 0, "2 commands", ARGUMENTS("load", file, "--to", address, "--flush"));
    assert_string_equal(ask(client, "DBSIZE"), "1");
    file = scene_write(scene, "wrong.aof",
                       "*3\r\n$3\r\nSET\r\n$1\r\nd\r\n$1\r\nx\r\n*2\r\n$4\r\nINCR\r\n$1\r\nd\r\n");
    run(scene, 1, "byte 27 of the file: the server refused: ERR value is not an integer",
        ARGUMENTS("load", file, "--to", address));
    redisFree(client);
    scene->passed = true;
}

/* ---- Redis ---- */

static void test_from_redis(void **state)
{
    struct scene *scene = *state;
    struct net_address address;
    struct process *other = redis(scene, "redis", "yes", &address), *server = serve(scene, "server");
    if (!other)
        skip();
    redisContext *from = client_connect(&address), *to = client_of(server, 0);
    const char *here = keep(address_text(server, 0)), *folder = keep(scene_path(scene, "appendonlydir"));
    keys_set(from);
    assert_string_equal(ask(from, "RPUSH list 1 2 3"), "3");
    assert_string_equal(ask(from, "SAVE"), "OK");
    run(scene, 3, "1 keys of other types", ARGUMENTS("load", scene_path(scene, "dump.rdb"), "--to", here));
    keys_check(to);
    assert_string_equal(ask(to, "FLUSHALL"), "OK");
    run(scene, 3, "commands were left out: RPUSH (1)", ARGUMENTS("load", folder, "--to", here));
    keys_check(to);
    assert_string_equal(ask(to, "FLUSHALL"), "OK");
    /* A base that is a snapshot, and commands behind it. */
    assert_string_equal(ask(from, "DEL list"), "1");
    assert_contains(ask(from, "BGREWRITEAOF"), "started");
    while (info_figure(from, "persistence", "aof_rewrite_in_progress"))
        usleep(10000);
    assert_string_equal(ask(from, "SET behind 1"), "OK");
    assert_string_equal(ask(from, "DEL behind"), "1");
    run(scene, 0, "(rdb)", ARGUMENTS("load", folder, "--to", here));
    keys_check(to);
    redisFree(from);
    redisFree(to);
    scene->passed = true;
}

static void test_to_redis(void **state)
{
    struct scene *scene = *state;
    struct net_address address;
    struct process *server = serve(scene, "server"), *other = redis(scene, "redis", "no", &address);
    if (!other)
        skip();
    redisContext *from = client_of(server, 0), *to = client_connect(&address);
    const char *here = keep(address_text(server, 0));
    keys_set(from);
    /* By loading. */
    run(scene, 0, "loaded",
        ARGUMENTS("load", dump(scene, here, "keys.banyan", "banyan", "0"), "--to",
                  keep(text_of("unix:%s", address.path))));
    keys_check(to);
    run(scene, 1, "no Banyan of this version",
        ARGUMENTS("dump", "--output", scene_path(scene, "none"), keep(text_of("unix:%s", address.path))));
    run(scene, 1, "cannot give all keys as they are at one moment",
        ARGUMENTS("dump", "--consistent", "require", "--output", scene_path(scene, "none"),
                  keep(text_of("unix:%s", address.path))));
    redisFree(to);
    process_kill(other);
    /* As a Redis's own file: it finds it at its start. */
    const char *file = dump(scene, here, "appendonly.aof", "aof", "0");
    process_run(scene, "redis-check-aof", ARGUMENTS(file), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "is valid");
    redis(scene, "redis-2", "yes", &address);
    to = client_connect(&address);
    keys_check(to);
    redisFree(to);
    redisFree(from);
    scene->passed = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(test_ranges, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(test_consistent, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(test_with_data, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(test_cluster, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(test_damaged, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(test_mistakes, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(test_commands, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(test_from_redis, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(test_to_redis, scene_set_up, scene_tear_down),
    };
    return cmocka_run_group_tests_name("dump and load", tests, NULL, NULL);
}
