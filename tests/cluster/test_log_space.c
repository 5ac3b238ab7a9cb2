/*
 * test_log_space.c - keys with values of 1 KiB are overwritten as fast as it goes, with the owner's log: the
 * pool holds at most 1.3 times the bytes that live, and the configured log. Real processes: two memory nodes,
 * one compute node. Without arguments the short form; test_log_space MINUTES [KEYS] prints the pool's bytes
 * every ten seconds, and fails when they are too many.
 */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "base/atomic.h"
#include "base/random.h"
#include "cluster/process.h"
#include "cluster/talk.h"

#define SECOND       UINT64_C(1000000000)
#define CONNECTIONS  2u
#define WINDOW       64u
#define KEY_BYTES    16u
#define VALUE_BYTES  1024u
#define LOG_BYTES    (UINT64_C(32) << 20) /* of each memory node */
#define MEMORY_NODES 2u

struct work {
    struct process *compute;
    redisContext *client;
    uint32_t keys;
    uint64_t written; /* atomic: commands that were answered */
    uint32_t ended;   /* atomic */
    char wrong[200];  /* of any writer */
};

struct writer {
    struct work *work;
    struct random random;
    redisContext *client;
    pthread_t thread;
};

/* A window of SETs; false: an answer was an error. */
static bool window_write(struct writer *writer, uint64_t first, bool in_order)
{
    char key[KEY_BYTES + 1], value[VALUE_BYTES];
    bool right = true;
    for (unsigned i = 0; i < WINDOW; i++) {
        const uint64_t number =
            in_order ? (first + i) % writer->work->keys : random_below(&writer->random, writer->work->keys);
        snprintf(key, sizeof key, "%016" PRIx64, random_mix(number));
        memset(value, 'a' + (int)random_below(&writer->random, 26), sizeof value);
        (void)redisAppendCommand(writer->client, "SET %s %b", key, value, sizeof value);
    }
    for (unsigned i = 0; i < WINDOW; i++) {
        redisReply *reply = NULL;
        if (redisGetReply(writer->client, (void **)&reply) != REDIS_OK)
            fail_hard("the server has closed a connection");
        if (reply->type == REDIS_REPLY_ERROR) {
            snprintf(writer->work->wrong, sizeof writer->work->wrong, "%s", reply->str);
            right = false;
        }
        freeReplyObject(reply);
    }
    return right;
}

static void *writer_main(void *context)
{
    struct writer *writer = context;
    /* Relaxed: a flag, and a count; nothing else is looked at before the thread is joined. */
    while (!atomic_load_relaxed(&writer->work->ended) && window_write(writer, 0, false))
        (void)atomic_add_relaxed(&writer->work->written, WINDOW);
    return NULL;
}

/* Of all memory nodes. */
static uint64_t memory_figure(const char *info, const char *name)
{
    uint64_t sum = 0;
    unsigned nodes = 0;
    for (const char *at = info; (at = strstr(at, name)) != NULL; nodes++) {
        at += strlen(name);
        sum += strtoull(at, NULL, 10);
    }
    assert_int_equal(nodes, MEMORY_NODES);
    return sum;
}

static uint64_t pool_bytes(struct work *work)
{
    return memory_figure(ask(work->client, "INFO banyan"), ",used_bytes=");
}

/* What may be in the pool. */
static uint64_t bytes_allowed(const struct work *work)
{
    return (uint64_t)work->keys * (KEY_BYTES + VALUE_BYTES) * 13 / 10 + MEMORY_NODES * LOG_BYTES;
}

static void work_open(struct work *work, struct scene *scene, uint32_t keys)
{
    static const char *const names[] = {"memory-0", "memory-1"};
    const char *addresses[MEMORY_NODES];
    *work = (struct work){.keys = keys};
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        addresses[i] = address_text(
            process_start(scene, names[i],
                          ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "2G", "--chunk-size", "1M",
                                    "--log-bytes", text_of("%" PRIu64, LOG_BYTES))),
            0);
    work->compute =
        process_start(scene, "compute",
                      ARGUMENTS("compute", "--memory", text_of("%s,%s", addresses[0], addresses[1]),
                                "--listen", "127.0.0.1:0", "--log", "auto", "--format"));
    work->client = client_of(work->compute, 0);
    struct writer first = {.work = work, .client = work->client};
    random_seed(&first.random, 1);
    for (uint32_t i = 0; i < keys; i += WINDOW)
        if (!window_write(&first, i, true))
            fail_msg("SET: %s", work->wrong);
}

static void writers_start(struct work *work, struct writer writers[CONNECTIONS])
{
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        writers[i] = (struct writer){.work = work, .client = client_of(work->compute, 0)};
        random_seed(&writers[i].random, i + 2);
    }
    for (unsigned i = 0; i < CONNECTIONS; i++)
        assert_int_equal(pthread_create(&writers[i].thread, NULL, writer_main, &writers[i]), 0);
}

static void writers_end(struct work *work, struct writer writers[CONNECTIONS])
{
    atomic_store_relaxed(&work->ended, 1); /* see writer_main */
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
        redisFree(writers[i].client);
    }
    assert_string_equal(work->wrong, "");
}

static void overwriting_keeps_the_pool_small(void **state)
{
    struct scene *scene = *state;
    struct writer writers[CONNECTIONS];
    struct work work;
    uint64_t most = 0, looked = 0;
    work_open(&work, scene, 30000);
    writers_start(&work, writers);
    while (atomic_load_relaxed(&work.written) < 10 * (uint64_t)work.keys && !work.wrong[0]) {
        const uint64_t bytes = pool_bytes(&work);
        most = bytes > most ? bytes : most;
        looked++;
    }
    writers_end(&work, writers);
    printf("%" PRIu64 " writes of %u keys: at most %" PRIu64 " bytes in the pool, %" PRIu64 " allowed\n",
           work.written, work.keys, most, bytes_allowed(&work));
    assert_true(looked > 2);
    assert_true(most > (uint64_t)work.keys * VALUE_BYTES);
    assert_true(most <= bytes_allowed(&work));
    assert_contains(ask(work.client, "INFO log"), "log:kept");
    redisFree(work.client);
    assert_int_equal(process_stop(work.compute), 0);
    scene->passed = true;
}

static void tell(struct work *work, uint64_t since, uint64_t *most)
{
    const uint64_t bytes = pool_bytes(work), live = (uint64_t)work->keys * (KEY_BYTES + VALUE_BYTES);
    const uint64_t logs = memory_figure(ask(work->client, "INFO banyan"), ",log_bytes=");
    *most = bytes > *most ? bytes : *most;
    printf("%6.0f s: %" PRIu64
           " writes, %.1f MiB in the pool, %.1f of them segments; without them %.3f of the "
           "live bytes\n",
           (double)(now_ns() - since) / 1e9, atomic_load_relaxed(&work->written), (double)bytes / 1048576,
           (double)logs / 1048576, (double)(bytes - logs) / (double)live);
    fflush(stdout);
}

static int measure(uint64_t minutes, uint32_t keys)
{
    struct scene scene;
    struct writer writers[CONNECTIONS];
    struct work work;
    uint64_t most = 0;
    if (!minutes || !keys) {
        fprintf(stderr, "test_log_space takes minutes, and a number of keys\n");
        return 2;
    }
    scene_open(&scene);
    work_open(&work, &scene, keys);
    writers_start(&work, writers);
    const uint64_t begun = now_ns();
    for (uint64_t next = begun; now_ns() - begun < minutes * 60 * SECOND && !work.wrong[0];) {
        if (now_ns() < next) {
            (void)ask(work.client, "PING");
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
            continue;
        }
        tell(&work, begun, &most);
        if (most > bytes_allowed(&work))
            fail_hard("%" PRIu64 " bytes in the pool, %" PRIu64 " allowed", most, bytes_allowed(&work));
        next += 10 * SECOND;
    }
    writers_end(&work, writers);
    printf("at most %.1f MiB in the pool, %.1f allowed\n", (double)most / 1048576,
           (double)bytes_allowed(&work) / 1048576);
    redisFree(work.client);
    scene.passed = true;
    scene_close(&scene);
    return 0;
}

int main(int count, char **arguments)
{
    if (count > 1)
        return measure(strtoull(arguments[1], NULL, 10),
                       count > 2 ? (uint32_t)strtoul(arguments[2], NULL, 10) : 200000);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(overwriting_keeps_the_pool_small, scene_set_up, scene_tear_down),
    };
    return cmocka_run_group_tests_name("log_space", tests, NULL, NULL);
}
