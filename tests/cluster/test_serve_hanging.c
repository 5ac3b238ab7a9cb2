/*
 * test_serve_hanging.c - a disk that does not answer a sync at disk-always, and a `banyan serve` that is
 * asked to end meanwhile (K7): it says what it waits for, a second signal ends it at once, and where the disk
 * answers after all it ends in order. What was changed is there in each case. hanging.c is the disk.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cluster/process.h"
#include "cluster/talk.h"

struct run {
    struct scene scene;
    struct process *server;
    const char *hanging, *met; /* files: see hanging.c */
};

static void start(struct run *run)
{
    const char *const *arguments = ARGUMENTS(
        "serve", "--listen", text_of("unix:%s", scene_path(&run->scene, "serve.sock")), "--size", "64M",
        "--threads", "1", "--data", scene_path(&run->scene, "data"), "--durability", "disk-always");
    if (run->server)
        process_restart(&run->scene, run->server, arguments);
    else
        run->server = process_start(&run->scene, "serve", arguments);
}

static bool is_met(void *context)
{
    return !access(((const struct run *)context)->met, F_OK);
}

static bool is_told(void *context)
{
    const struct run *run = context;
    char *errors = process_errors(&run->scene, run->server);
    const bool told = errors && strstr(errors, "still stopping, for ") &&
                      strstr(errors, "has not answered for ") && strstr(errors, "A second signal ends");
    free(errors);
    return told;
}

static void file_make(const char *name)
{
    FILE *file = fopen(name, "w");
    if (!file || fclose(file))
        fail_hard("%s cannot be made", name);
}

/* A change is under way, and the disk does not answer. */
static void hang(struct run *run, redisContext *client)
{
    file_make(run->hanging);
    redisAppendCommand(client, "SET key later");
    for (int sent = 0; !sent;)
        if (redisBufferWrite(client, &sent))
            fail_hard("SET: %s", client->errstr);
    wait_until(is_met, run, "a sync that hangs");
}

static void end(struct run *run, int signal)
{
    process_signal(run->server, signal);
    wait_until(is_told, run, "the server says what it waits for");
}

static void a_sync_hangs(void **state)
{
    const int signal = *(const int *)*state;
    struct run run = {.server = NULL};
    scene_open(&run.scene);
    run.hanging = keep(scene_path(&run.scene, "hanging"));
    run.met = keep(text_of("%s.met", run.hanging));
    run.scene.environment[0] = keep(text_of("BANYAN_HANGING=%s", run.hanging));
    run.scene.environment[1] = keep(text_of("LD_PRELOAD=%s", getenv("BANYAN_HANGING_LIBRARY")));
    start(&run);
    redisContext *client = client_of(run.server, 0);
    assert_string_equal(ask(client, "SET key first"), "OK");
    assert_string_equal(ask(client, "SET other first"), "OK");
    hang(&run, client);
    end(&run, signal);
    if (signal == SIGINT) { /* once more: it does not wait */
        process_signal(run.server, signal);
        assert_int_equal(process_wait(run.server), 128 + signal);
        unlink(run.hanging);
    } else {
        unlink(run.hanging);
        assert_int_equal(process_wait(run.server), 0);
    }
    redisFree(client);
    start(&run);
    client = client_of(run.server, 0);
    assert_string_equal(ask(client, "GET other"), "first");
    assert_string_equal(ask(client, "GET key"), "later"); /* it was in the pool when the sync hung */
    redisFree(client);
    assert_int_equal(process_stop(run.server), 0);
    run.scene.passed = true;
    scene_close(&run.scene);
}

int main(void)
{
    static int term = SIGTERM, interrupt = SIGINT;
    const char *options = getenv("ASAN_OPTIONS"); /* a sanitizer wants to be the first library */
    if (options)
        setenv("ASAN_OPTIONS", text_of("%s:verify_asan_link_order=0", options), 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(a_sync_hangs, &term),
                                       cmocka_unit_test_prestate(a_sync_hangs, &interrupt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
