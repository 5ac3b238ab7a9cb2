/*
 * test_serve_disk.c - the disk levels of `banyan serve --data` as people meet them: commands about saving,
 * and what INFO and CONFIG say; directories that are no such thing, of another store or another release; each
 * byte of small files damaged; a limit that is reached. The program is $BANYAN_PROGRAM. What kills and losses
 * of power leave is cluster/test_serve_kill.c's and cluster/test_serve_power.c's.
 */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "cluster/process.h"
#include "cluster/talk.h"

static struct process_result result;

#define SERVE(directory, ...)                                                                                \
    ARGUMENTS("serve", "--listen", "0", "--threads", "1", "--size", "64M", "--data", directory, __VA_ARGS__)

/* "[1,0]" of WAITAOF. */
static const char *wait_aof(redisContext *client, const char *arguments)
{
    redisReply *reply = redisCommand(client, text_of("WAITAOF %s", arguments));
    assert_non_null(reply);
    const char *text = "?";
    if (reply->type == REDIS_REPLY_ERROR)
        text = text_of("-%s", reply->str);
    else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        text = text_of("[%lld,%lld]", reply->element[0]->integer, reply->element[1]->integer);
    freeReplyObject(reply);
    return text;
}

static uint64_t figure(redisContext *client, const char *name)
{
    return info_figure(client, "persistence", name);
}

/* ---- commands ---- */

static void wrong_arguments(redisContext *client)
{
    static const char *const wrong[][2] = {
        {"1 0", "-ERR wrong number of arguments for 'waitaof' command"},
        {"x 0 0", "-ERR value is not an integer or out of range"},
        {"2 0 0", "-ERR value is out of range, value must between 0 and 1"},
        {"-1 0 0", "-ERR value is out of range, value must between 0 and 1"},
        {"0 -1 0", "-ERR value is out of range, must be positive"},
        {"0 0 -1", "-ERR timeout is negative"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_string_equal(wait_aof(client, wrong[i][0]), wrong[i][1]);
    assert_string_equal(ask(client, "BGSAVE NOW"), "-ERR syntax error");
    assert_string_equal(ask(client, "BGSAVE SCHEDULE SCHEDULE"), "-ERR syntax error");
    assert_string_equal(ask(client, "SAVE now"), "-ERR wrong number of arguments for 'save' command");
    assert_string_equal(ask(client, "LASTSAVE now"), "-ERR wrong number of arguments for 'lastsave' command");
    assert_string_equal(ask(client, "BGREWRITEAOF now"),
                        "-ERR wrong number of arguments for 'bgrewriteaof' command");
    assert_contains(ask(client, "CONFIG SET appendonly no"), "-ERR CONFIG SET failed");
    assert_contains(ask(client, "CONFIG SET appendfsync no"), "-ERR CONFIG SET failed");
}

static void nothing_to_save(struct scene *scene, const char *name, const char *const *arguments,
                            const char *durability)
{
    static const char *const saving[] = {"SAVE", "BGSAVE", "BGREWRITEAOF"};
    static const char nothing[] = "-ERR this server keeps nothing on a disk: start it, or its memory nodes, "
                                  "with --data and --durability "
                                  "disk-second or disk-always";
    const uint64_t before = clock_wall_ms() / 1000;
    struct process *server = process_start(scene, name, arguments);
    redisContext *client = client_of(server, 0);
    for (size_t i = 0; i < sizeof saving / sizeof *saving; i++)
        assert_string_equal(ask(client, "%s", saving[i]), nothing);
    assert_string_equal(ask(client, "BGSAVE SCHEDULE"), nothing);
    const uint64_t last = strtoull(ask(client, "LASTSAVE"), NULL, 10);
    assert_in_range(last, before, clock_wall_ms() / 1000); /* since when it runs */
    wrong_arguments(client);
    assert_string_equal(wait_aof(client, "1 0 0"),
                        "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
    assert_string_equal(wait_aof(client, "0 0 0"), "[0,0]");
    assert_string_equal(config_text(client, "appendonly"), "no");
    assert_string_equal(config_text(client, "appendfsync"), "no");
    assert_string_equal(config_text(client, "save"), "");
    char *text = info_text(client, "persistence");
    assert_contains(text, text_of("\ndurability:%s\r\n", durability));
    assert_contains(text, "\naof_enabled:0\r\n");
    assert_contains(text, "\nrdb_saves:0\r\n");
    assert_lacks(text, "disk_");
    free(text);
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
}

static void saving_without_a_disk(void **state)
{
    struct scene *scene = *state;
    nothing_to_save(scene, "memory", ARGUMENTS("serve", "--listen", "0", "--threads", "1", "--size", "64M"),
                    "memory");
    nothing_to_save(scene, "process", SERVE(keep(scene_path(scene, "data")), "--durability", "process"),
                    "process");
    scene->passed = true;
}

static bool saved(void *context)
{
    return !figure(context, "rdb_bgsave_in_progress");
}

static void save_ends(redisContext *client)
{
    wait_until(saved, client, "the checkpoint to be whole");
    assert_int_equal(figure(client, "disk_complete"), 1);
}

/* Both in one write; whether the second one's answer is `refused`, after `started`. Else a checkpoint has
 * come between the two. */
static bool at_once(redisContext *client, const char *first, const char *started, const char *second,
                    const char *refused)
{
    bool met = true;
    redisAppendCommand(client, first);
    redisAppendCommand(client, second);
    for (unsigned i = 0; i < 2; i++) {
        redisReply *reply = NULL;
        assert_int_equal(redisGetReply(client, (void **)&reply), REDIS_OK);
        met = !strcmp(reply->str, i ? refused : started);
        if (!met && (!i || reply->type == REDIS_REPLY_ERROR))
            fail_msg("%s is answered with %s", i ? second : first, reply->str);
        freeReplyObject(reply);
    }
    save_ends(client);
    return met;
}

/* The second comes while the first is under way, unless the machine keeps the server from running between the
 * two for as long as a checkpoint takes: then once more. How many checkpoints were begun. */
static unsigned two_at_once(redisContext *client, const char *first, const char *started, const char *second,
                            const char *refused)
{
    unsigned begun = 1;
    save_ends(client);
    for (unsigned i = 0; !at_once(client, first, started, second, refused); i++) {
        assert_true(i < 20);
        begun += 2;
    }
    return begun;
}

static void save_commands(redisContext *client)
{
    const char *saving = "Background saving started",
               *rewriting = "Background append only file rewriting started";
    save_ends(client);
    const uint64_t saves = figure(client, "rdb_saves"), before = clock_wall_ms() / 1000;
    assert_string_equal(ask(client, "SET a 1"), "OK");
    assert_true(figure(client, "rdb_changes_since_last_save") >= 1);
    assert_string_equal(ask(client, "SAVE"), "OK");
    assert_int_equal(figure(client, "rdb_saves"), saves + 1);
    assert_int_equal(figure(client, "rdb_changes_since_last_save"), 0);
    const uint64_t last = figure(client, "rdb_last_save_time");
    assert_in_range(last, before,
                    clock_wall_ms() / 1000); /* time() may lag some ms behind the server's clock */
    assert_int_equal(strtoull(ask(client, "LASTSAVE"), NULL, 10), last);
    assert_string_equal(ask(client, "DEL a"), "1");
    assert_string_equal(ask(client, "INCR b"), "1");
    assert_int_equal(figure(client, "rdb_changes_since_last_save"), 2);
    assert_string_equal(ask(client, "GET b"), "1");
    assert_int_equal(figure(client, "rdb_changes_since_last_save"), 2);
    unsigned begun = 1; /* SAVE */
    begun += two_at_once(client, "BGSAVE", saving, "BGSAVE", "ERR Background save already in progress");
    begun +=
        two_at_once(client, "BGSAVE SCHEDULE", saving, "SAVE", "ERR Background save already in progress");
    begun += two_at_once(client, "BGREWRITEAOF", rewriting, "BGREWRITEAOF",
                         "ERR Background append only file rewriting already in progress");
    assert_int_equal(figure(client, "rdb_saves"), saves + begun);
    assert_int_equal(figure(client, "rdb_changes_since_last_save"), 0);
}

static void many_keys(redisContext *client, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        redisAppendCommand(client, "SET key:%u value-%u", i, i);
    for (unsigned i = 0; i < count; i++) {
        redisReply *reply = NULL;
        assert_int_equal(redisGetReply(client, (void **)&reply), REDIS_OK);
        assert_string_equal(reply->str, "OK");
        freeReplyObject(reply);
    }
}

static void info_at(redisContext *client, const char *level, const char *sync)
{
    char *text = info_text(client, "persistence");
    assert_contains(text, text_of("\ndurability:%s\r\n", level));
    assert_contains(text, "\naof_enabled:1\r\n");
    assert_contains(text, "\nrdb_last_bgsave_status:ok\r\n");
    assert_contains(text, "\naof_last_write_status:ok\r\n");
    assert_contains(text, "\naof_last_bgrewrite_status:ok\r\n");
    assert_contains(text, "\ndisk_error:\r\n");
    free(text);
    assert_true(figure(client, "disk_syncs") > 0);
    assert_true(figure(client, "disk_bytes") > 0);
    assert_true(figure(client, "aof_base_size") > 0);
    assert_string_equal(config_text(client, "appendonly"), "yes");
    assert_string_equal(config_text(client, "appendfsync"), sync);
    assert_string_equal(config_text(client, "save"), "");
}

static void pools_remove(const char *directory)
{
    glob_t found;
    assert_int_equal(glob(text_of("%s/pool-*", directory), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        assert_int_equal(unlink(found.gl_pathv[i]), 0);
    globfree(&found);
}

static void saving_at_a_level(struct scene *scene, const char *level, const char *sync)
{
    static const char *const ends[] = {"SHUTDOWN SAVE", "SHUTDOWN NOSAVE", "SHUTDOWN"};
    const char *directory = keep(scene_path(scene, "data"));
    struct process *server = process_start(scene, "serve", SERVE(directory, "--durability", level));
    redisContext *client = client_of(server, 0);
    many_keys(client, 20000);
    assert_string_equal(wait_aof(client, "1 0 0"), "[1,0]");
    assert_string_equal(wait_aof(client, "0 0 0"), "[1,0]");
    assert_string_equal(wait_aof(client, "1 1 100"), "[1,0]"); /* there are no replicas to wait for */
    wrong_arguments(client);
    save_commands(client);
    info_at(client, level, sync);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) { /* each of them ends with all on the disk */
        assert_string_equal(ask(client, "SET end %u", (unsigned)i), "OK");
        assert_null(redisCommand(client, ends[i])); /* only constants */
        redisFree(client);
        assert_int_equal(process_wait(server), 0);
        pools_remove(directory);
        process_restart(scene, server, SERVE(directory, "--durability", level));
        client = client_of(server, 0);
        assert_string_equal(ask(client, "GET end"), text_of("%zu", i));
        assert_string_equal(ask(client, "GET key:19999"), "value-19999");
        assert_string_equal(ask(client, "DBSIZE"), "20002");
        assert_int_equal(figure(client, "disk_complete"), 1);
    }
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

static void saving_each_second(void **state)
{
    saving_at_a_level(*state, "disk-second", "everysec");
}

static void saving_always(void **state)
{
    saving_at_a_level(*state, "disk-always", "always");
}

/* ---- directories that are none ---- */

static void shell(struct scene *scene, const char *script, const char *argument)
{
    process_run(scene, "sh", ARGUMENTS("-c", script, "sh", argument), &result);
    if (result.code)
        fail_msg("%s: %s", script, result.error);
}

static void one_key_kept(struct scene *scene, const char *name, const char *directory)
{
    struct process *server = process_start(scene, name, SERVE(directory, NULL));
    redisContext *client = client_of(server, 0);
    assert_string_equal(ask(client, "SET whose %s", name), "OK");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
}

/* As a cut of the power leaves a pool whose bytes were never written: the disk says that there was a store.
 */
static void pools_that_power_emptied_are_filled(void **state)
{
    static const char *const deeds[] = {
        ": >\"$1\"/pool-0", ": >\"$1\"/pool-0; truncate -s 4096 \"$1\"/pool-0",
        "head -c 8 /dev/zero | dd of=\"$1\"/pool-0 bs=1 seek=1024 conv=notrunc" /* of no cluster */};
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "emptied"));
    one_key_kept(scene, "emptied", directory);
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++) {
        shell(scene, deeds[i], directory);
        struct process *server = process_start(scene, keep(text_of("again-%zu", i)), SERVE(directory, NULL));
        redisContext *client = client_of(server, 0);
        assert_string_equal(ask(client, "GET whose"), "emptied");
        redisFree(client);
        assert_int_equal(process_stop(server), 0);
    }
    scene->passed = true;
}

static void a_disk_of_another_store_is_refused(void **state)
{
    struct scene *scene = *state;
    const char *one = keep(scene_path(scene, "one")), *two = keep(scene_path(scene, "two"));
    one_key_kept(scene, "one", one);
    one_key_kept(scene, "two", two);
    shell(scene, "cd \"$1\" && mv one/disk one/aside && cp -a two/disk one/disk", scene->folder);
    assert_refused(scene, SERVE(one, NULL), "one/disk: the journal and the pools are of different stores",
                   "kept, copied and moved together");
    /* Nothing was changed. */
    shell(scene, "cd \"$1\" && rm -r one/disk && mv one/aside one/disk && rm one/pool-*", scene->folder);
    struct process *server = process_start(scene, "again", SERVE(one, NULL));
    redisContext *client = client_of(server, 0);
    assert_string_equal(ask(client, "GET whose"), "one");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

static void what_is_no_directory_is_refused(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    assert_int_equal(mkdir(directory, 0700), 0);
    shell(scene, "echo text > \"$1\"/disk", directory);
    assert_refused(scene, SERVE(directory, NULL), "data/disk is not a directory", "name one");
    assert_int_equal(access(text_of("%s/pool-0", directory), F_OK), -1); /* nothing was made */
    shell(scene, "rm \"$1\"/disk && ln -s nowhere \"$1\"/disk", directory);
    assert_refused(scene, SERVE(directory, NULL), "data/disk", "");
    scene->passed = true;
}

static void settings_that_make_no_sense(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    assert_refused(scene, ARGUMENTS("serve", "--listen", "0", "--durability", "disk-always"), "durability",
                   "give --data DIR");
    assert_refused(scene, ARGUMENTS("serve", "--listen", "0", "--durability", "process"), "durability",
                   "give --data DIR");
    assert_refused(scene, SERVE(directory, "--durability", "memory"), "durability",
                   "leave --data out for memory");
    assert_refused(scene, SERVE(directory, "--disk-limit", "63M"), "disk-limit: at least 64M", "");
    assert_refused(scene, SERVE(directory, "--disk-limit", "64M", "--durability", "process"), "disk-limit",
                   "disk-second");
    assert_int_equal(access(directory, F_OK), -1);
    scene->passed = true;
}

/* ---- damage ---- */

static long file_size(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return (long)status.st_size;
}

static void patch(const char *path, long at, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void peek(const char *path, long at, void *bytes, size_t length)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fread(bytes, 1, length, file), length);
    fclose(file);
}

/* Files of a kind: the number-th, or NULL. */
static const char *found(const char *directory, const char *pattern, size_t number)
{
    glob_t all;
    const char *path = NULL;
    if (!glob(text_of("%s/disk/%s", directory, pattern), 0, NULL, &all) && number < all.gl_pathc)
        path = keep(all.gl_pathv[number]);
    globfree(&all);
    return path;
}

/* The server's errors since `from` bytes of them. */
static const char *errors_since(struct scene *scene, struct process *server, size_t *from)
{
    static char text[16384];
    char *all = process_errors(scene, server);
    snprintf(text, sizeof text, "%s", all + (*from < strlen(all) ? *from : strlen(all)));
    *from = strlen(all);
    free(all);
    return text;
}

#define SMALL 20u /* keys */

/* Some keys in a checkpoint, some in a journal, one with a long value; the first life's files go to `aside`.
 */
static struct process *small_store(struct scene *scene, const char *directory)
{
    struct process *server = process_start(scene, "serve", SERVE(directory, NULL));
    redisContext *client = client_of(server, 0);
    for (unsigned i = 0; i < SMALL; i++) {
        assert_string_equal(ask(client, "SET key:%u first-%u", i, i), "OK");
        if (i == SMALL / 2)
            assert_string_equal(ask(client, "SAVE"), "OK");
        if (i % 4 == 3)
            assert_string_equal(wait_aof(client, "1 0 0"), "[1,0]");
    }
    assert_string_equal(ask(client, "SET key:1 second"), "OK");
    assert_string_equal(ask(client, "DEL key:2"), "1");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    shell(scene, "cd \"$1\" && mv disk ../aside && rm pool-*", directory);
    return server;
}

static bool small_store_whole(redisContext *client)
{
    bool whole = !strcmp(ask(client, "GET key:1"), "second") && !strcmp(ask(client, "GET key:2"), "(nil)");
    for (unsigned i = 3; i < SMALL; i++)
        whole &= !strcmp(ask(client, "GET key:%u", i), text_of("first-%u", i));
    return whole && !strcmp(ask(client, "DBSIZE"), text_of("%u", SMALL - 1));
}

struct damages {
    unsigned refused, harmless, cut;
};

/* What a start says of files that are damaged in one byte: file and byte, or it loses nothing, or, where the
 * byte belongs to what was written last, it says that it cuts that. */
static void damage_try(struct scene *scene, struct process *server, const char *directory, const char *file,
                       long at, struct damages *damages)
{
    static size_t told;
    uint8_t byte;
    shell(scene, "cd \"$1\" && rm -rf disk pool-* && cp -a ../aside disk", directory);
    const char *path = text_of("%s/disk/%s", directory, file);
    peek(path, at, &byte, 1);
    byte ^= (uint8_t)(1u << (at % 8));
    patch(path, at, &byte, 1);
    if (!process_try(scene, server, SERVE(directory, NULL))) {
        const char *said = errors_since(scene, server, &told);
        if (server->code != 1 || !strstr(said, file))
            fail_msg("byte %ld of %s: ended with %d: %s", at, file, server->code, said);
        if (!strstr(said, "byte") && !strstr(said, "version") && !strstr(said, "format"))
            fail_msg("byte %ld of %s: does not say where: %s", at, file, said);
        damages->refused++;
        return;
    }
    redisContext *client = client_of(server, 0);
    const bool whole = small_store_whole(client);
    redisFree(client);
    process_kill(server);
    const char *said = errors_since(scene, server, &told);
    if (!whole && !(strstr(said, "are a torn tail") && strstr(said, file)))
        fail_msg("byte %ld of %s: something is lost, and nothing is said: %s", at, file, said);
    damages->harmless += whole;
    damages->cut += !whole;
}

/* STEP=1: each byte. */
static void damage_is_told(void **state)
{
    struct scene *scene = *state;
    static const char *const patterns[] = {"manifest", "journal-*", "checkpoint-*"};
    const long step = getenv("STEP") ? strtol(getenv("STEP"), NULL, 10) : 23;
    const char *directory = keep(scene_path(scene, "data"));
    struct process *server = small_store(scene, directory);
    shell(scene, "cp -a \"$1\"/../aside \"$1\"/disk", directory);
    for (size_t kind = 0; kind < 3; kind++) {
        char names[8][64];
        size_t count = 0;
        for (const char *path; count < 8 && (path = found(directory, patterns[kind], count)); count++)
            snprintf(names[count], sizeof names[0], "%s", strrchr(path, '/') + 1);
        assert_true(count);
        for (size_t i = 0; i < count; i++) {
            struct damages damages = {0};
            const long size = file_size(text_of("%s/../aside/%s", directory, names[i]));
            for (long at = (long)i; at < size && at < 4096; at += step)
                damage_try(scene, server, directory, names[i], at, &damages);
            if (getenv("STEP"))
                print_message("%s, %ld bytes: %u refused, %u without harm, %u cut\n", names[i], size,
                              damages.refused, damages.harmless, damages.cut);
        }
    }
    scene->passed = true;
}

/* A later release's files: the header has its check in all versions. */
static void another_release_is_told(void **state)
{
    struct scene *scene = *state;
    static const struct {
        const char *pattern;
        uint32_t version; /* the first that this release does not know */
        const char *told;
    } kinds[] = {{"manifest", 3, "has format 3"}, {"journal-*", 2, "has format 2"}};
    const char *directory = keep(scene_path(scene, "data"));
    (void)small_store(scene, directory);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        uint8_t header[64];
        shell(scene, "cd \"$1\" && rm -rf disk pool-* && cp -a ../aside disk", directory);
        const char *path = found(directory, kinds[kind].pattern, 0);
        peek(path, 0, header, sizeof header);
        memcpy(header + 8, &kinds[kind].version, 4);
        const uint32_t check = crc32c(0, header, 60);
        memcpy(header + 60, &check, 4);
        patch(path, 0, header, sizeof header);
        assert_refused(scene, SERVE(directory, NULL), strrchr(path, '/') + 1, kinds[kind].told);
    }
    scene->passed = true;
}

#define LONG 300000u /* bytes of a value that stands in several records */

static void long_value(redisContext *client, const char *key, char fill)
{
    static char bytes[LONG];
    memset(bytes, fill, sizeof bytes);
    redisReply *reply = redisCommand(client, "SET %s %b", key, bytes, sizeof bytes);
    assert_string_equal(reply->str, "OK");
    freeReplyObject(reply);
    assert_string_equal(wait_aof(client, "1 0 0"), "[1,0]");
}

/* Power was lost between a long value and its entry: the next long value is not taken for its end. */
static void a_long_value_without_its_entry(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    struct process *server = process_start(scene, "serve", SERVE(directory, NULL));
    redisContext *client = client_of(server, 0);
    long_value(client, "cut", 'c');
    redisFree(client);
    process_kill(server);
    pools_remove(directory);
    const char *journal = found(directory, "journal-*", 0);
    assert_null(found(directory, "journal-*", 1));
    assert_int_equal(truncate(journal, file_size(journal) - 8), 0);
    for (unsigned i = 0; i < 2; i++) {
        process_restart(scene, server, SERVE(directory, NULL));
        client = client_of(server, 0);
        if (!i)
            long_value(client, "whole", 'w');
        assert_string_equal(ask(client, "EXISTS cut"), "0");
        assert_string_equal(ask(client, "STRLEN whole"), text_of("%u", LONG));
        assert_string_equal(ask(client, "GETRANGE whole 0 2"), "www");
        redisFree(client);
        process_kill(server);
        pools_remove(directory);
    }
    scene->passed = true;
}

/* ---- a limit ---- */

#define LIMIT     (64u << 20)
#define MANY      100000u /* keys */
#define PIPELINED 500u

static uint64_t used(const char *directory)
{
    glob_t all;
    uint64_t bytes = 0;
    struct stat status;
    assert_int_equal(glob(text_of("%s/disk/*", directory), 0, NULL, &all), 0);
    for (size_t i = 0; i < all.gl_pathc; i++)
        bytes +=
            stat(all.gl_pathv[i], &status) ? 0 : (uint64_t)status.st_size; /* some are removed meanwhile */
    globfree(&all);
    return bytes;
}

/* Writes so many keys from `first` on. How many were refused; each refusal is MISCONF. */
static unsigned overwrite(redisContext *client, unsigned first, size_t length, const char *fill)
{
    static char bytes[1000];
    unsigned refusals = 0;
    memset(bytes, fill[0], sizeof bytes);
    for (unsigned i = 0; i < PIPELINED; i++)
        redisAppendCommand(client, "SET key:%u %b", (first + i) % MANY, bytes, length);
    for (unsigned i = 0; i < PIPELINED; i++) {
        redisReply *reply = NULL;
        assert_int_equal(redisGetReply(client, (void **)&reply), REDIS_OK);
        if (reply->type == REDIS_REPLY_ERROR)
            assert_contains(reply->str, "MISCONF Errors writing to the disk: ");
        refusals += reply->type == REDIS_REPLY_ERROR;
        freeReplyObject(reply);
    }
    return refusals;
}

#define LIMITED(directory, limit)                                                                            \
    ARGUMENTS("serve", "--listen", "0", "--threads", "1", "--size", "512M", "--data", directory,             \
              "--disk-limit", limit)

static struct process *limited(struct scene *scene, const char *directory)
{
    return process_start(scene, "serve", LIMITED(directory, "64M"));
}

/* Journal and checkpoints make room for each other, for as long as it goes. */
static void overwriting_stays_within_a_limit(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    struct process *server = limited(scene, directory);
    redisContext *client = client_of(server, 0);
    for (unsigned i = 0; figure(client, "rdb_saves") < 3 || i < 6 * MANY; i += PIPELINED) {
        assert_int_equal(overwrite(client, i, 100, i / MANY % 2 ? "a" : "b"), 0);
        if (i % 10000 == 0)
            assert_true(used(directory) <= LIMIT);
    }
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    assert_true(used(directory) <= LIMIT);
    scene->passed = true;
}

/* Until the disk takes no more: what all keys would hold is more than the limit. */
static void fill(redisContext *client)
{
    char *text = info_text(client, "persistence");
    unsigned written = 0;
    for (; written < 20 * MANY &&
           !strstr(text, "\ndisk_error:the journal has all that the limit of 67108864 bytes leaves");
         written += PIPELINED) {
        (void)overwrite(client, written, 1000, "c");
        free(text);
        text = info_text(client, "persistence");
    }
    assert_contains(text, "\ndisk_error:the journal has all that the limit of 67108864 bytes leaves");
    assert_contains(text, "\naof_last_write_status:err\r\n");
    assert_contains(text, "\nrdb_last_bgsave_status:err\r\n");
    free(text);
}

/* What does not fit is refused, and what was answered before is there: at once, and behind a start with more
 * room. */
static void a_limit_that_is_reached_is_told(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    struct process *server = limited(scene, directory);
    redisContext *client = client_of(server, 0);
    fill(client);
    assert_true(used(directory) <= LIMIT);
    assert_contains(ask(client, "SET a 1"),
                    "-MISCONF Errors writing to the disk: the journal has all that the limit");
    assert_contains(ask(client, "BGSAVE"), "-ERR the journal has all that the limit");
    assert_string_equal(wait_aof(client, "1 0 0"), "[0,0]"); /* it is known that it cannot be */
    assert_string_equal(ask(client, "STRLEN key:0"), "1000");
    assert_string_equal(ask(client, "EXISTS a"), "0");
    const char *keys = keep(ask(client, "DBSIZE"));
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    char *errors = process_errors(scene, server);
    assert_contains(errors, "writes wait, and are refused, until there is room");
    /* The last pass may use all that the limit leaves. Where it does not say that this was too little, all is
     * there without the pools, too. */
    if (!strstr(errors, "the last changes may not be on the disk"))
        pools_remove(directory);
    free(errors);
    process_restart(scene, server, LIMITED(directory, "512M"));
    client = client_of(server, 0);
    assert_string_equal(ask(client, "DBSIZE"), keys);
    for (unsigned i = 0; i < 1000; i++)
        assert_string_equal(ask(client, "STRLEN key:%u", i), "1000");
    assert_string_equal(ask(client, "SET key:0 1"), "OK");
    assert_string_equal(wait_aof(client, "1 0 0"), "[1,0]"); /* the rest, too */
    redisFree(client);
    process_kill(server);
    pools_remove(directory);
    process_restart(scene, server, LIMITED(directory, "512M"));
    client = client_of(server, 0);
    assert_string_equal(ask(client, "DBSIZE"), keys);
    assert_string_equal(ask(client, "GET key:0"), "1");
    for (unsigned i = 1; i < 1000; i++)
        assert_string_equal(ask(client, "STRLEN key:%u", i), "1000");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, scene_set_up, scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(saving_without_a_disk),
                                       TEST(saving_each_second),
                                       TEST(saving_always),
                                       TEST(pools_that_power_emptied_are_filled),
                                       TEST(a_disk_of_another_store_is_refused),
                                       TEST(what_is_no_directory_is_refused),
                                       TEST(settings_that_make_no_sense),
                                       TEST(damage_is_told),
                                       TEST(another_release_is_told),
                                       TEST(a_long_value_without_its_entry),
                                       TEST(overwriting_stays_within_a_limit),
                                       TEST(a_limit_that_is_reached_is_told)};
    if (getenv("PART"))
        cmocka_set_test_filter(getenv("PART"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
