/*
 * test_serve_kill.c - `banyan serve --data` is killed again and again at full load, and started again:
 * nothing that was acknowledged is lost, nothing is there that was never written, expiries stay, and every
 * block is accounted for, at every level of durability. Without arguments the short form; a soak gives some:
 * test_serve_kill KILLS SEED [NODES [LEVEL]]. What a loss of power costs is test_serve_power.c's.
 *
 * The load is that of load.h, whose clients know what each key may hold, both of its servers being the same
 * process; a client that sends its commands sixteen at a time; and keys with expiries, of this thread.
 */
#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/random.h"
#include "base/thread.h"
#include "cluster/load.h"
#include "cluster/model.h"
#include "cluster/process.h"
#include "cluster/talk.h"

#define BATCH       16u
#define BATCH_KEYS  200u
#define BATCH_OWNER 500u /* no client of the load has this number */
#define VOLATILE    8u   /* keys with an expiry, each round */

struct batcher {
    struct net_address server;
    struct thread *thread;
    struct random random;
    struct model_value values[BATCH_KEYS];
    char *bytes;
    redisContext *connection;
    uint32_t stop, pause, parked;
    uint64_t acked;
};

struct run {
    struct scene scene;
    struct random random;
    struct process *server;
    struct net_address address;
    const char *directory, *listen, *nodes, *level;
    struct load *load;
    struct batcher batcher;
    unsigned round, kills, stops;
    uint64_t lost, lost_bytes, reclaimed, entries;
};

static void nap(uint64_t microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(microseconds * 1000)}, NULL);
}

/* ---- sixteen at a time ---- */

static void batch_reconnect(struct batcher *batcher)
{
    if (batcher->connection)
        redisFree(batcher->connection);
    batcher->connection = client_connect(&batcher->server);
}

static bool batch_read(redisContext *connection, struct model_value *value)
{
    char name[MODEL_NAME_MAX];
    size_t length = model_value_name(name, value->owner, value->number);
    redisReply *reply = redisCommand(connection, "GET %b", name, length);
    if (!reply)
        return false;
    if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_NIL)
        fail_hard("GET %s: %s", name, reply->str);
    const char *wrong =
        model_value_read(value, reply->type == REDIS_REPLY_NIL ? NULL : reply->str, reply->len);
    if (wrong)
        fail_hard("key %s of the batches: %s", name, wrong);
    freeReplyObject(reply);
    return true;
}

/* Sends a write of each of the keys; those behind the first that is not answered are of unknown outcome. */
static void batch_write(struct batcher *batcher, uint32_t first)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        struct model_value *value = &batcher->values[(first + i) % BATCH_KEYS];
        bool delete = random_chance(&batcher->random, 0.1);
        char name[MODEL_NAME_MAX];
        size_t length = model_value_name(name, value->owner, value->number);
        size_t bytes = model_value_begin(value, delete ? NULL : batcher->bytes);
        if (delete)
            redisAppendCommand(batcher->connection, "DEL %b", name, length);
        else
            redisAppendCommand(batcher->connection, "SET %b %b", name, length, batcher->bytes, bytes);
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        redisReply *reply = NULL;
        if (redisGetReply(batcher->connection, (void **)&reply) != REDIS_OK) {
            batch_reconnect(batcher);
            return;
        }
        if (reply->type == REDIS_REPLY_ERROR)
            fail_hard("a write of a batch: %s", reply->str);
        freeReplyObject(reply);
        model_value_acked(&batcher->values[(first + i) % BATCH_KEYS]);
        atomic_add_relaxed(&batcher->acked, 1);
    }
}

static void batch_run(void *argument)
{
    struct batcher *batcher = argument;
    batch_reconnect(batcher);
    while (!atomic_load_relaxed(&batcher->stop)) {
        bool pause = atomic_load_acquire(&batcher->pause);
        uint32_t first = (uint32_t)random_below(&batcher->random, BATCH_KEYS);
        atomic_store_release(&batcher->parked, pause);
        if (pause) {
            nap(1000);
            continue;
        }
        bool read = true;
        for (uint32_t i = 0; i < BATCH && read; i++)
            if (model_value_full(&batcher->values[(first + i) % BATCH_KEYS]))
                read = batch_read(batcher->connection, &batcher->values[(first + i) % BATCH_KEYS]);
        if (read)
            batch_write(batcher, first);
        else
            batch_reconnect(batcher);
    }
    redisFree(batcher->connection);
}

static bool batch_parked(void *context)
{
    return atomic_load_acquire(&((struct batcher *)context)->parked);
}

static bool batch_goes_on(void *context)
{
    return !batch_parked(context);
}

static void batch_start(struct run *run, uint64_t seed)
{
    struct batcher *batcher = &run->batcher;
    struct error error;
    batcher->server = run->address;
    batcher->bytes = malloc(MODEL_VALUE_MAX);
    random_seed(&batcher->random, seed + 1000);
    for (uint32_t i = 0; i < BATCH_KEYS; i++)
        model_value_init(&batcher->values[i], BATCH_OWNER, i);
    if (!batcher->bytes || thread_start(&batcher->thread, batch_run, batcher, &error))
        fail_hard("no thread for batches");
}

/* ---- expiries ---- */

/* In ms since 1970: some years ahead, another one for each key. */
static long long volatile_expiry(unsigned round, unsigned i)
{
    return 4000000000000LL + 1000000LL * round + 7777 * i;
}

static void volatile_write(struct run *run)
{
    redisContext *client = client_connect(&run->address);
    for (unsigned i = 0; i < VOLATILE; i++) {
        const char *told = ask(client, "SET e.%u.%u value-%u%s PXAT %lld", run->round, i, i,
                               i % 2 ? text_of("%0300u", i) : "", volatile_expiry(run->round, i));
        if (strcmp(told, "OK"))
            fail_hard("SET with an expiry: %s", told);
    }
    ask(client, "SET gone.%u soon PX 1", run->round);
    redisFree(client);
}

static void volatile_verify(struct run *run)
{
    redisContext *client = client_connect(&run->address);
    for (unsigned round = 0; round <= run->round; round++) {
        for (unsigned i = 0; i < VOLATILE; i++) {
            const char *told = ask(client, "PEXPIRETIME e.%u.%u", round, i);
            if (strtoll(told, NULL, 10) != volatile_expiry(round, i))
                fail_hard("e.%u.%u expires at %s, and not at %lld", round, i, told,
                          volatile_expiry(round, i));
            told = ask(client, "GET e.%u.%u", round, i);
            const char *wanted = text_of("value-%u%s", i, i % 2 ? text_of("%0300u", i) : "");
            if (strcmp(told, wanted))
                fail_hard("e.%u.%u is %s", round, i, told);
            told = ask(client, "TYPE e.%u.%u", round, i);
            if (strcmp(told, "string"))
                fail_hard("e.%u.%u is of type %s", round, i, told);
        }
        if (strcmp(ask(client, "EXISTS gone.%u", round), "0"))
            fail_hard("gone.%u has expired, and is there", round);
    }
    redisFree(client);
}

/* ---- the server ---- */

static const char *const *server_arguments(const struct run *run)
{
    static const char *arguments[16];
    const char *const all[] = {"serve",        "--listen",       run->listen, "--data",
                               run->directory, "--threads",      "2",         "--memory-nodes",
                               run->nodes,     "--size",         "192M",      "--durability",
                               run->level,     "--idle-timeout", "0",         NULL};
    memcpy(arguments, all, sizeof all);
    return arguments;
}

static void server_start_again(struct run *run)
{
    process_restart(&run->scene, run->server, server_arguments(run));
}

/* Everybody waits. */
static void pause_all(struct run *run)
{
    load_pause(run->load);
    atomic_store_release(&run->batcher.pause, 1u);
    wait_until(batch_parked, &run->batcher, "the batches to pause");
}

static void resume_all(struct run *run)
{
    load_resume(run->load);
    atomic_store_release(&run->batcher.pause, 0u);
    wait_until(batch_goes_on, &run->batcher, "the batches to go on");
}

static void verify_values(struct run *run)
{
    load_verify(run->load);
    redisContext *client = client_connect(&run->address);
    for (uint32_t i = 0; i < BATCH_KEYS; i++)
        if (!batch_read(client, &run->batcher.values[i]))
            fail_hard("no answer while all values are read");
    redisFree(client);
    volatile_verify(run);
}

static uint64_t number_of(const json_t *json, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(json, name));
}

/* While no server runs. `lossless`: no block may be lost. */
static void check(struct run *run, bool reclaim, bool lossless)
{
    static struct process_result result;
    process_run(&run->scene, NULL,
                ARGUMENTS("check", "--json", "--data", run->directory, reclaim ? "--reclaim" : NULL),
                &result);
    json_t *json = json_loads(result.output, 0, NULL);
    if (!json || !json_is_true(json_object_get(json, "sound")) || result.code > (lossless ? 0 : 1))
        fail_hard("round %u: banyan check ended with %d:\n%s%s", run->round, result.code, result.output,
                  result.error);
    run->entries = number_of(json, "entries");
    if (reclaim) {
        run->lost += number_of(json, "blocks_lost");
        run->lost_bytes += number_of(json, "bytes_lost");
        run->reclaimed += number_of(json, "blocks_reclaimed");
    } else if (lossless && number_of(json, "blocks_lost")) {
        fail_hard("round %u: %" PRIu64 " blocks are lost", run->round, number_of(json, "blocks_lost"));
    }
    json_decref(json);
}

/* All values; then, while it is stopped, all blocks; then all values again. */
static void verify(struct run *run, bool killed)
{
    pause_all(run);
    verify_values(run);
    if (killed)
        process_kill(run->server);
    else if (process_stop(run->server))
        fail_hard("round %u: ended with %d after SIGTERM", run->round, run->server->code);
    check(run, false, false);
    check(run, true, true);
    check(run, false, true);
    server_start_again(run);
    verify_values(run);
    resume_all(run);
}

/* ---- a run ---- */

static void do_round(struct run *run)
{
    volatile_write(run);
    load_advance(run->load, 20 + random_below(&run->random, 300));
    nap(random_below(&run->random, 3000));
    if (random_chance(&run->random, 0.85)) {
        process_kill(run->server);
        run->kills++;
    } else {
        if (process_stop(run->server))
            fail_hard("round %u: ended with %d after SIGTERM", run->round, run->server->code);
        run->stops++;
    }
    server_start_again(run);
    volatile_verify(run);
    load_next_epoch(run->load);
}

static void run_begin(struct run *run, uint64_t seed, const char *nodes, const char *level)
{
    scene_open(&run->scene);
    random_seed(&run->random, seed);
    run->nodes = nodes;
    run->level = level;
    run->directory = keep(scene_path(&run->scene, "data"));
    run->listen = keep(text_of("unix:%s", scene_path(&run->scene, "serve.sock")));
    run->server = process_start(&run->scene, "serve", server_arguments(run));
    run->address = process_address(run->server, 0);
    const struct load_options options = {
        .servers = {run->address, run->address}, .threads = 3, .keys = 120, .seed = seed};
    run->load = load_start(&options);
    batch_start(run, seed);
}

static void run_end(struct run *run)
{
    struct load_figures a, b;
    verify(run, true);
    verify(run, false);
    load_figures(run->load, 0, &a);
    load_figures(run->load, 1, &b);
    atomic_store_relaxed(&run->batcher.stop, 1u);
    thread_join(run->batcher.thread);
    load_stop(run->load);
    if (process_stop(run->server))
        fail_hard("ended with %d after SIGTERM", run->server->code);
    if (run->lost != run->reclaimed)
        fail_hard("%" PRIu64 " blocks were lost, %" PRIu64 " given back", run->lost, run->reclaimed);
    printf("%u kills, %u stops: %" PRIu64 " operations, %" PRIu64 " in batches, %" PRIu64
           " connections lost, %" PRIu64 " entries, %" PRIu64 " blocks (%" PRIu64
           " bytes) lost and given back\n",
           run->kills, run->stops, a.operations + b.operations, run->batcher.acked,
           a.disconnected + b.disconnected, run->entries, run->lost, run->lost_bytes);
    fflush(stdout);
    free(run->batcher.bytes);
    run->scene.passed = true;
    scene_close(&run->scene);
}

static void run_kills(unsigned rounds, uint64_t seed, const char *nodes, const char *level)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        fail_hard("no memory");
    run_begin(run, seed, nodes, level);
    for (; run->round < rounds; run->round++) {
        do_round(run);
        if (run->round % 25 == 24)
            verify(run, random_chance(&run->random, 0.5));
    }
    run->round--;
    run_end(run);
    free(run);
}

static void one_memory_node(void **state)
{
    (void)state;
    run_kills(8, 1, "1", "process");
}

static void two_memory_nodes(void **state)
{
    (void)state;
    run_kills(4, 2, "2", "process");
}

static void disk_second(void **state)
{
    (void)state;
    run_kills(4, 3, "1", "disk-second");
}

static void disk_always(void **state)
{
    (void)state;
    run_kills(4, 4, "2", "disk-always");
}

int main(int count, char **arguments)
{
    if (count >= 3) {
        run_kills((unsigned)strtoul(arguments[1], NULL, 10), strtoull(arguments[2], NULL, 10),
                  count > 3 ? arguments[3] : "1", count > 4 ? arguments[4] : "disk-second");
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_memory_node), cmocka_unit_test(two_memory_nodes),
                                       cmocka_unit_test(disk_second), cmocka_unit_test(disk_always)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
