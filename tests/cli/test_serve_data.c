/*
 * test_serve_data.c - `banyan serve --data` as people meet it: a store that is there again, what it says of
 * itself, and what it refuses: a directory that another process has, that is not its own or not of these
 * settings, that cannot be made or written, that is damaged, or that has no room. The program is
 * $BANYAN_PROGRAM. What a kill leaves is cluster/test_serve_kill.c's.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "cluster/process.h"
#include "cluster/talk.h"
#include "memory/keep_file.h"
#include "memory/memory.h"

static struct process_result result;

#define SERVE(directory, ...)                                                                                \
    ARGUMENTS("serve", "--listen", "0", "--threads", "1", "--data", directory, __VA_ARGS__)

static void assert_said(struct process *server, const char *part)
{
    /* the first line */
    assert_contains(text_of("%.*s", (int)strcspn(server->said, "\n"), server->said), part);
}

static void without_it_data_end(void **state)
{
    struct scene *scene = *state;
    struct process *server =
        process_start(scene, "serve", ARGUMENTS("serve", "--listen", "0", "--threads", "1", "--size", "64M"));
    assert_said(server, "; data end with this process (--data DIR keeps them)");
    redisContext *client = client_of(server, 0);
    char *text = info_text(client, "persistence");
    assert_contains(text, "\ndurability:memory\r\n");
    assert_contains(text, "\ndata_directory:\r\n");
    free(text);
    assert_string_equal(config_text(client, "dir"), "");
    assert_contains(ask(client, "SHUTDOWN SAVE"), "there is no file to save to");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

struct level {
    const char *name, *append, *sync; /* append, sync: what CONFIG GET says in the words of Redis */
};

/* `asked`: what the setting durability is given; NULL: nothing. */
static void there_again(struct scene *scene, const char *asked, const struct level *level)
{
    const char *directory = keep(scene_path(scene, "data"));
    const char *const *first =
        SERVE(directory, "--size", "64M", "--memory-nodes", "3", asked ? "--durability" : NULL, asked);
    const char *const *again = SERVE(directory, asked ? "--durability" : NULL, asked);
    struct process *server = process_start(scene, "serve", first);
    assert_said(server, text_of("; data in %s, durability %s", directory, level->name));
    redisContext *client = client_of(server, 0);
    for (unsigned i = 0; i < 300; i++)
        assert_string_equal(ask(client, "SET key:%u value-%u", i, i), "OK");
    assert_string_equal(ask(client, "SET expires soon PXAT 4000000000123"), "OK");
    assert_string_equal(ask(client, "SETRANGE long 150000 end"), "150003");
    assert_string_equal(ask(client, "INCRBY number 41"), "41");
    char *text = info_text(client, "persistence");
    assert_contains(text, text_of("\ndurability:%s\r\n", level->name));
    assert_contains(text, text_of("\ndata_directory:%s\r\n", directory));
    assert_contains(text, text_of("\naof_enabled:%d\r\n", !strcmp(level->append, "yes")));
    free(text);
    assert_string_equal(config_text(client, "dir"), directory);
    assert_string_equal(config_text(client, "data"), directory);
    assert_string_equal(config_text(client, "durability"), level->name);
    assert_string_equal(config_text(client, "appendonly"), level->append);
    assert_string_equal(config_text(client, "appendfsync"), level->sync);
    assert_string_equal(config_text(client, "save"), "");
    redisFree(client);
    for (unsigned way = 0; way < 3; way++) { /* SIGTERM, SIGKILL, SHUTDOWN */
        if (way == 1) {
            assert_int_equal(process_kill(server), 128 + 9);
        } else if (way == 0) {
            assert_int_equal(process_stop(server), 0);
        } else {
            client = client_of(server, 0);
            assert_null(redisCommand(client, "SHUTDOWN SAVE"));
            redisFree(client);
            assert_int_equal(process_wait(server), 0);
        }
        char *errors = process_errors(scene, server);
        if (way == 0)
            assert_contains(errors, text_of("what the store holds stays in %s", directory));
        free(errors);
        process_restart(scene, server, again); /* the sizes are the directory's */
        assert_contains(server->said, "3 memory nodes");
        errors = process_errors(scene, server);
        if (way == 0)
            assert_lacks(errors, "did not end in order");
        else if (way == 1)
            assert_contains(errors, "its last process did not end in order");
        free(errors);
        client = client_of(server, 0);
        assert_string_equal(config_text(client, "memory-nodes"), "3");
        assert_string_equal(config_text(client, "size"), "67108864");
        for (unsigned i = 0; i < 300; i++)
            assert_string_equal(ask(client, "GET key:%u", i), text_of("value-%u", i));
        assert_string_equal(ask(client, "PEXPIRETIME expires"), "4000000000123");
        assert_string_equal(ask(client, "GETRANGE long 149999 -1"), "");
        assert_string_equal(ask(client, "STRLEN long"), "150003");
        assert_string_equal(ask(client, "INCRBY number 1"), text_of("%u", 42 + way));
        assert_string_equal(ask(client, "DBSIZE"), "303");
        redisFree(client);
    }
    assert_int_equal(process_stop(server), 0);
    process_run(scene, NULL, ARGUMENTS("check", "--data", directory, "--reclaim"), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "1 index: 303 entries");
    assert_contains(result.output, "the pools of 3 of 3 memory nodes lie in files");
    assert_contains(result.output, strcmp(level->name, "process")
                                       ? "\ndurability: disk: disk/ has all that the pools hold; "
                                       : "\ndurability: process: the pools of 3");
    assert_contains(result.output, "sound");
    process_run(scene, NULL, ARGUMENTS("check", "--data", directory), &result);
    assert_int_equal(result.code, 0);
    assert_lacks(result.output, "lost");
    scene->passed = true;
}

static void checked(struct scene *scene, const char *directory, const char *level, const char *text)
{
    process_run(scene, NULL, ARGUMENTS("check", "--data", directory), &result);
    assert_contains(result.output, text_of("\ndurability: %s: %s", level, text));
    process_run(scene, NULL, ARGUMENTS("check", "--data", directory, "--json"), &result);
    assert_contains(result.output, text_of("\n  \"durability\": \"%s\",", level));
}

static bool complete(void *client)
{
    return info_figure(client, "persistence", "disk_complete") > 0;
}

/* Until the disk has all that the pools hold. */
static void complete_await(const struct process *server)
{
    redisContext *client = client_of(server, 0);
    wait_until(complete, client, "the checkpoint that tells the disk all that the pools hold");
    redisFree(client);
}

/* The level is that of what is there: what a kill has left, and what a life at level process has changed. */
static void a_check_tells_the_level(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    struct process *server = process_start(scene, "serve", SERVE(directory, "--size", "32M"));
    assert_int_equal(process_stop(server), 0);
    checked(scene, directory, "disk", "disk/ has all that the pools hold");
    process_restart(scene, server, SERVE(directory, "--durability", "disk-second"));
    assert_int_equal(process_kill(server), 128 + 9);
    checked(scene, directory, "disk", "the last server was killed");
    process_restart(scene, server, SERVE(directory, "--durability", "process"));
    assert_int_equal(process_stop(server), 0);
    checked(scene, directory, "process", "a server at level process was the last");
    process_restart(scene, server, SERVE(directory, "--durability", "disk-second"));
    complete_await(server);
    assert_int_equal(process_stop(server), 0);
    checked(scene, directory, "disk", "disk/ has all that the pools hold");
    scene->passed = true;
}

static void data_are_there_again(void **state)
{
    there_again(*state, NULL, &(struct level){"disk-second", "yes", "everysec"});
}

static void data_are_there_again_at_level_process(void **state)
{
    there_again(*state, "process", &(struct level){"process", "no", "no"});
}

static void data_are_there_again_at_level_always(void **state)
{
    there_again(*state, "disk-always", &(struct level){"disk-always", "yes", "always"});
}

static void other_settings_are_refused(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    struct process *server =
        process_start(scene, "serve", SERVE(directory, "--size", "64M", "--memory-nodes", "2"));
    redisContext *client = client_of(server, 0);
    assert_string_equal(ask(client, "SET a 1"), "OK");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    assert_refused(scene, SERVE(directory, "--memory-nodes", "3"), "was made with 2 memory nodes, not 3",
                   "leave the setting out, or name an empty directory");
    assert_refused(scene, SERVE(directory, "--size", "128M"),
                   "was made with a pool of bytes: 67108864, not 134217728", "leave the setting out");
    assert_refused(scene, SERVE(directory, "--log-bytes", "1M"), "bytes for owners' logs",
                   "leave the setting out");
    assert_refused(scene, SERVE(directory, "--threads", "57"), "threads: with --data at most 56", "");
    process_restart(scene, server, SERVE(directory, "--size", "64M", "--memory-nodes", "2"));
    client = client_of(server, 0);
    assert_string_equal(ask(client, "GET a"), "1");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

static void one_process_at_a_time(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    struct process *server = process_start(scene, "serve", SERVE(directory, "--size", "64M"));
    const char *whose = keep(text_of("(%d, as it says)", (int)server->pid));
    assert_refused(scene, SERVE(directory, NULL), "is in use by another process", whose);
    assert_refused(scene, ARGUMENTS("check", "--data", directory), "is in use by another process", whose);
    redisContext *client = client_of(server, 0);
    assert_string_equal(ask(client, "SET still here"), "OK");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

/* Killed while it makes, formats or fills the directory: the next one goes on from there. */
static void first_starts_may_be_cut(void **state)
{
    struct scene *scene = *state;
    struct process *server = NULL;
    for (unsigned i = 0; i < 12; i++) {
        const char *directory = keep(scene_path(scene, "data-%u", i));
        process_run(scene, "timeout",
                    ARGUMENTS("-s", "KILL", text_of("0.%03u", 5 + i * i), getenv("BANYAN_PROGRAM"), "serve",
                              "--listen", "0", "--threads", "1", "--data", directory, "--size", "32M",
                              "--memory-nodes", "4"),
                    &result);
        const char *const *again = SERVE(directory, "--size", "32M", "--memory-nodes", "4");
        if (server)
            process_restart(scene, server, again);
        else
            server = process_start(scene, "serve", again);
        redisContext *client = client_of(server, 0);
        assert_string_equal(ask(client, "SET a 1"), "OK");
        assert_string_equal(ask(client, "DBSIZE"), "1");
        redisFree(client);
        assert_int_equal(process_stop(server), 0);
        process_run(scene, NULL, ARGUMENTS("check", "--data", directory, "--reclaim"), &result);
        assert_int_equal(result.code, 0);
    }
    scene->passed = true;
}

/* ---- directories that are none ---- */

static void foreign_directories_are_refused(void **state)
{
    struct scene *scene = *state;
    const char *other = keep(scene_path(scene, "other"));
    assert_int_equal(mkdir(other, 0700), 0);
    fclose(fopen(text_of("%s/dump.rdb", other), "w"));
    assert_refused(scene, SERVE(other, NULL), "has no pool-0, but other things (dump.rdb)",
                   "name an empty directory");
    assert_int_equal(access(text_of("%s/pool-0", other), F_OK), -1); /* nothing was made */
    assert_refused(scene, ARGUMENTS("check", "--data", other), "has no pool-0", "has kept anything there");
    assert_refused(scene, SERVE(keep(scene_write(scene, "file", "text\n")), NULL), "file is not a directory",
                   "");
    assert_refused(scene, ARGUMENTS("check", "--data", keep(scene_path(scene, "nowhere"))), "nowhere", "");
    assert_int_equal(access(scene_path(scene, "nowhere"), F_OK), -1);
    assert_refused(scene, SERVE(keep(scene_path(scene, "no/such/parent")), NULL), "cannot be made",
                   "No such file or directory");
    scene->passed = true;
}

/* A pool of `banyan memory` has a map of ranges in it, and perhaps logs. */
static void pools_of_a_cluster_are_refused(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    assert_int_equal(mkdir(directory, 0700), 0);
    struct process *memory = process_start(scene, "memory",
                                           ARGUMENTS("memory", "--listen", "0", "--size", "64M",
                                                     "--pool-file", keep(text_of("%s/pool-0", directory))));
    struct process *compute = process_start(scene, "compute",
                                            ARGUMENTS("compute", "--listen", "0", "--threads", "1",
                                                      "--format", "--memory", address_text(memory, 0)));
    assert_int_equal(process_stop(compute), 0);
    assert_int_equal(process_stop(memory), 0);
    assert_refused(scene, SERVE(directory, NULL), "pool-0 is memory node 0 of a cluster of 1",
                   "start it with 'banyan memory --pool-file'");
    scene->passed = true;
}

static void pools_of_other_directories_are_refused(void **state)
{
    struct scene *scene = *state;
    const char *one = keep(scene_path(scene, "one")), *two = keep(scene_path(scene, "two"));
    const char *const directories[] = {one, two};
    for (unsigned i = 0; i < 2; i++) {
        struct process *server = process_start(scene, i ? "two" : "one",
                                               SERVE(directories[i], "--size", "32M", "--memory-nodes", "2"));
        assert_int_equal(process_stop(server), 0);
    }
    assert_int_equal(rename(text_of("%s/pool-1", one), text_of("%s/pool-2", two)), 0);
    assert_refused(scene, SERVE(two, NULL), "has a pool-2, but its store has 2 memory nodes", "move away");
    assert_int_equal(rename(text_of("%s/pool-2", two), text_of("%s/pool-1", two)), 0);
    assert_refused(scene, SERVE(two, NULL), "pool-1 does not belong to pool-0", "moved together");
    scene->passed = true;
}

/* ---- damage ---- */

static void flip(const char *path, off_t at)
{
    uint8_t byte;
    int file = open(path, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(file, &byte, 1, at), 1);
    close(file);
}

/* Bytes of the first page, one at a time, and what is said of each (memory/keep.h). */
static void damage_is_told(void **state)
{
    struct scene *scene = *state;
    static const struct {
        off_t at;
        const char *told;
    } bytes[] = {{0, "is not a pool of Banyan"},
                 {12, "has format "},
                 {20, "is damaged: its header"},
                 {1024, "is damaged: a word of its first page"},
                 {1032, "is damaged: which cluster it is of"}};
    const char *directory = keep(scene_path(scene, "data")), *pool = keep(text_of("%s/pool-0", directory));
    struct process *server = process_start(scene, "serve", SERVE(directory, "--size", "32M"));
    redisContext *client = client_of(server, 0);
    assert_string_equal(ask(client, "SET a 1"), "OK");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        flip(pool, bytes[i].at);
        assert_refused(scene, SERVE(directory, NULL), bytes[i].told, pool);
        flip(pool, bytes[i].at);
    }
    process_restart(scene, server, SERVE(directory, NULL)); /* nothing of it was changed */
    client = client_of(server, 0);
    assert_string_equal(ask(client, "GET a"), "1");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

/* What the file says of the machine's start becomes another one. */
static void restart_machine(const char *pool)
{
    flip(pool, KEEP_WORDS_OFFSET + offsetof(struct keep_words, boot));
}

/* The data outlive the machine where the server was stopped before, or where they are on a disk. */
static struct process *went_down(struct scene *scene, const char *level)
{
    const char *directory = keep(scene_path(scene, "data")), *pool = keep(text_of("%s/pool-0", directory));
    struct process *server =
        process_start(scene, "serve", SERVE(directory, "--size", "32M", "--durability", level));
    redisContext *client = client_of(server, 0);
    assert_string_equal(ask(client, "SET a 1"), "OK");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    restart_machine(pool);
    process_restart(scene, server, SERVE(directory, "--durability", level));
    client = client_of(server, 0);
    assert_string_equal(ask(client, "GET a"), "1");
    redisFree(client);
    process_kill(server);
    restart_machine(pool);
    return server;
}

static void a_machine_that_went_down_is_told(void **state)
{
    struct scene *scene = *state;
    went_down(scene, "process");
    assert_refused(scene, SERVE(keep(scene_path(scene, "data")), "--durability", "process"),
                   "was in use when its machine went down", "move it away to begin with an empty pool");
    scene->passed = true;
}

static void a_machine_that_went_down_costs_nothing_on_a_disk(void **state)
{
    struct scene *scene = *state;
    struct process *server = went_down(scene, "disk-always");
    const char *directory = keep(scene_path(scene, "data"));
    assert_refused(scene, SERVE(directory, "--durability", "process"),
                   "the pools are lost, and what they held is in",
                   "start with --durability disk-second or disk-always");
    process_restart(scene, server, SERVE(directory, "--durability", "disk-always"));
    char *errors = process_errors(scene, server);
    assert_contains(
        errors, text_of("the pools are made anew from the checkpoint and the journal in %s/disk", directory));
    assert_contains(errors, "1 keys were loaded in ");
    free(errors);
    redisContext *client = client_of(server, 0);
    assert_string_equal(ask(client, "GET a"), "1");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

/* The catalogue's superblock is gone: it is not written anew over what there is. */
static void a_catalogue_is_not_written_twice(void **state)
{
    struct scene *scene = *state;
    static const uint8_t zeros[16];
    const char *directory = keep(scene_path(scene, "data"));
    struct process *server = process_start(scene, "serve", SERVE(directory, "--size", "32M"));
    redisContext *client = client_of(server, 0);
    assert_string_equal(ask(client, "SET a 1"), "OK");
    redisFree(client);
    assert_int_equal(process_stop(server), 0);
    int file = open(text_of("%s/pool-0", directory), O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    uint64_t at;
    assert_int_equal(pread(file, &at, sizeof at, offsetof(struct keep_header, at[KEEP_POOL])), sizeof at);
    assert_int_equal(pwrite(file, zeros, sizeof zeros, (off_t)at + MEMORY_CATALOGUE_OFFSET), sizeof zeros);
    close(file);
    assert_refused(scene, SERVE(directory, NULL), "is damaged: there are data in its pools, and no catalogue",
                   directory);
    scene->passed = true;
}

/* ---- no room, no right ---- */

static void a_full_file_system_is_told(void **state)
{
    struct scene *scene = *state;
    const char *directory = keep(scene_path(scene, "data"));
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 8 << 20; /* of each file of this process's children */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_refused(scene, SERVE(directory, "--size", "64M"), "pool-0: its file system does not give it",
                   "File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    /* What it left is no obstacle, and may be made with other sizes. */
    struct process *server = process_start(scene, "serve", SERVE(directory, "--size", "32M"));
    assert_int_equal(process_stop(server), 0);
    scene->passed = true;
}

/* As a user to whom nothing is permitted; the scene's folder is this process's, which may be root. */
static void refused_to_others(struct scene *scene, const char *directory, const char *level, const char *part,
                              const char *why)
{
    const char *program = getenv("BANYAN_PROGRAM");
    if (geteuid() != 0) {
        assert_refused(scene, SERVE(directory, "--durability", level), part, why);
        return;
    }
    process_run(scene, "/usr/bin/setpriv",
                ARGUMENTS("--reuid", "65534", "--clear-groups", program, "serve", "--listen", "0",
                          "--threads", "1", "--data", directory, "--durability", level),
                &result);
    if (strstr(result.error, "failed to execute")) /* its folder is closed to others */
        skip();
    assert_contains(result.error, part);
    assert_contains(result.error, why);
}

static void what_cannot_be_written_is_told(void **state)
{
    struct scene *scene = *state;
    const char *parent = keep(scene_path(scene, "parent")), *directory = keep(text_of("%s/data", parent));
    scene->passed = true; /* where it is skipped; else a failure shows by itself */
    assert_int_equal(chmod(scene->folder, 0755), 0);
    assert_int_equal(mkdir(parent, 0555), 0);
    refused_to_others(scene, directory, "process", "cannot be made", "Permission denied");
    refused_to_others(scene, directory, "disk-second", "cannot be made", "Permission denied");
    assert_int_equal(chmod(parent, 0755), 0);
    assert_int_equal(mkdir(directory, 0555), 0);
    refused_to_others(scene, directory, "process", "pool-0 cannot be opened", "Permission denied");
    refused_to_others(scene, directory, "disk-second", "/disk: no permission to make it",
                      "name another directory");
    assert_int_equal(chmod(directory, 0755), 0);
    struct process *server =
        process_start(scene, "serve", SERVE(directory, "--size", "32M", "--durability", "process"));
    assert_int_equal(process_stop(server), 0);
    assert_int_equal(chmod(text_of("%s/pool-0", directory), 0444), 0);
    refused_to_others(scene, directory, "process", "pool-0 cannot be opened", "Permission denied");
    assert_int_equal(chmod(text_of("%s/pool-0", directory), 0600), 0);
    process_restart(scene, server, SERVE(directory, NULL));
    assert_int_equal(process_stop(server), 0);
    refused_to_others(scene, directory, "disk-second", "/disk: no permission to read it",
                      "name another directory");
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, scene_set_up, scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(without_it_data_end),
                                       TEST(data_are_there_again),
                                       TEST(data_are_there_again_at_level_process),
                                       TEST(data_are_there_again_at_level_always),
                                       TEST(a_check_tells_the_level),
                                       TEST(other_settings_are_refused),
                                       TEST(one_process_at_a_time),
                                       TEST(first_starts_may_be_cut),
                                       TEST(foreign_directories_are_refused),
                                       TEST(pools_of_a_cluster_are_refused),
                                       TEST(pools_of_other_directories_are_refused),
                                       TEST(damage_is_told),
                                       TEST(a_machine_that_went_down_is_told),
                                       TEST(a_machine_that_went_down_costs_nothing_on_a_disk),
                                       TEST(a_catalogue_is_not_written_twice),
                                       TEST(a_full_file_system_is_told),
                                       TEST(what_cannot_be_written_is_told)};
    if (getenv("PART"))
        cmocka_set_test_filter(getenv("PART"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
