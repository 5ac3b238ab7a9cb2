/*
 * test_serve_power.c - `banyan serve --data` at its disk levels loses power again and again at full load:
 * nothing that was promised is lost, no key gets older than what was promised, and none holds what it never
 * held. Without arguments the short form; a soak gives some: test_serve_power LEVEL LIVES SEED [NODES]
 *
 * Power is lost as the pools lose it: the process is killed and the pools' files are removed, so that the
 * next start fills new ones from the directory `disk`. (That bytes which were not synced are lost is what the
 * simulated disk shows, tests/disk/ and tests/durable/; here they stay in the kernel.) Some lives end by
 * SIGKILL or SIGTERM with their pools kept; some end while they fill the pools, or while a checkpoint is
 * written.
 *
 * At disk-always each change is safe when it was answered; at disk-second when it was answered before any
 * client's WAITAOF 1 0 0 was begun that said 1. After a stop by SIGTERM all are. What a key may hold:
 * power_model.h.
 */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/thread.h"
#include "cluster/power_model.h"
#include "cluster/process.h"
#include "cluster/talk.h"

#define CLIENTS       4u
#define KEYS          64u   /* of each */
#define BATCH         16u   /* commands that a client sends at once, at most */
#define BALLAST       3000u /* keys that stay as they are, so that a start and a checkpoint take a while */
#define BALLAST_BYTES 1000u

struct run;
struct client {
    struct run *run;
    struct thread *thread;
    struct random random;
    redisContext *connection;
    struct spinlock lock;
    struct power_key keys[KEYS]; /* guarded by the lock while the clients run */
    uint64_t marks[CLIENTS][KEYS];
    uint32_t parked; /* atomic: in which life it waits for the next one */
    uint64_t waits;
};
struct run {
    struct scene scene;
    struct random random;
    struct process *server;
    struct net_address address;
    const char *directory, *listen, *nodes, *level;
    bool always;
    struct client clients[CLIENTS];
    uint32_t life, stop; /* atomic */
    uint64_t answered;   /* atomic */
    unsigned kills, stops, losses, cut_loads, cut_saves, behind;
};

static void nap(uint64_t microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(microseconds * 1000)}, NULL);
}

/* ---- clients ---- */

static bool is_safe_reply(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        fail_hard("WAITAOF: %s", reply->str);
    return reply->element[0]->integer == 1;
}

/* Of all keys of all clients. False: the connection is gone. */
static bool client_wait(struct client *client)
{
    struct run *run = client->run;
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client *other = &run->clients[i];
        spinlock_lock(&other->lock);
        for (unsigned k = 0; k < KEYS; k++)
            client->marks[i][k] = other->keys[k].acked;
        spinlock_unlock(&other->lock);
    }
    redisReply *reply = redisCommand(client->connection, "WAITAOF 1 0 0");
    if (!reply)
        return false;
    const bool safe = is_safe_reply(reply);
    freeReplyObject(reply);
    for (unsigned i = 0; i < CLIENTS && safe; i++) {
        struct client *other = &run->clients[i];
        spinlock_lock(&other->lock);
        for (unsigned k = 0; k < KEYS; k++)
            power_safe(&other->keys[k], client->marks[i][k]);
        spinlock_unlock(&other->lock);
    }
    client->waits += safe;
    return safe;
}

static struct power_key *client_send(struct client *client)
{
    struct power_key *key = &client->keys[random_below(&client->random, KEYS)];
    spinlock_lock(&client->lock);
    const bool full = power_full(key);
    if (!full)
        power_send(key, &client->random, client->connection);
    spinlock_unlock(&client->lock);
    return full ? NULL : key;
}

static bool client_answer(struct client *client, struct power_key *key)
{
    redisReply *reply = NULL;
    if (redisGetReply(client->connection, (void **)&reply) != REDIS_OK)
        return false;
    spinlock_lock(&client->lock);
    const char *wrong = power_answered(key, reply);
    if (client->run->always && power_changed(key))
        power_safe(key, key->acked);
    spinlock_unlock(&client->lock);
    if (wrong)
        fail_hard("a change was refused: %s", wrong);
    freeReplyObject(reply);
    atomic_add_relaxed(&client->run->answered, 1);
    return true;
}

/* False: the connection is gone. */
static bool client_batch(struct client *client)
{
    struct power_key *sent[BATCH];
    const unsigned most =
        random_chance(&client->random, 0.3) ? 1 : 1 + (unsigned)random_below(&client->random, BATCH);
    unsigned count = 0;
    bool full = false;
    for (; count < most && !full; count += !full) {
        sent[count] = client_send(client);
        full = !sent[count];
    }
    for (unsigned i = 0; i < count; i++)
        if (!client_answer(client, sent[i]))
            return false;
    return !(full || random_chance(&client->random, 0.05)) || client_wait(client);
}

static void client_main(void *context)
{
    struct client *client = context;
    struct run *run = client->run;
    uint32_t life = 0;
    while (!atomic_load_acquire(&run->stop)) {
        if (life == atomic_load_acquire(&run->life)) {
            atomic_store_release(&client->parked, life + 1);
            nap(500);
            continue;
        }
        life = atomic_load_acquire(&run->life);
        client->connection = client_try(&run->address); /* NULL: that life is over already */
        while (client->connection && client_batch(client))
            ;
        if (client->connection)
            redisFree(client->connection);
    }
}

static bool all_parked(void *context)
{
    struct run *run = context;
    bool parked = true;
    for (unsigned i = 0; i < CLIENTS; i++)
        parked &= atomic_load_acquire(&run->clients[i].parked) == run->life + 1;
    return parked;
}

struct goal {
    struct run *run;
    uint64_t answered;
};

static bool goal_reached(void *context)
{
    struct goal *goal = context;
    return atomic_load_relaxed(&goal->run->answered) >= goal->answered;
}

static void advance(struct run *run, uint64_t changes)
{
    struct goal goal = {run, atomic_load_relaxed(&run->answered) + changes};
    wait_until(goal_reached, &goal, "the clients to be answered");
}

/* ---- what is there ---- */

static void ballast_write(struct run *run)
{
    static char bytes[BALLAST_BYTES];
    redisContext *client = client_connect(&run->address);
    for (unsigned i = 0; i < BALLAST; i++) {
        memset(bytes, 'a' + (int)(i % 26), sizeof bytes);
        redisAppendCommand(client, "SET ballast.%u %b", i, bytes, sizeof bytes);
    }
    for (unsigned i = 0; i < BALLAST; i++) {
        redisReply *reply = NULL;
        if (redisGetReply(client, (void **)&reply) != REDIS_OK || strcmp(reply->str, "OK"))
            fail_hard("a SET at the beginning is not answered by OK");
        freeReplyObject(reply);
    }
    redisReply *reply = redisCommand(client, "WAITAOF 1 0 0");
    if (!reply || !is_safe_reply(reply))
        fail_hard("WAITAOF says that the disk has not what was written at the beginning");
    freeReplyObject(reply);
    redisFree(client);
}

static void ballast_verify(redisContext *client)
{
    for (unsigned i = 0; i < BALLAST; i++)
        redisAppendCommand(client, "GET ballast.%u", i);
    for (unsigned i = 0; i < BALLAST; i++) {
        redisReply *reply = NULL;
        if (redisGetReply(client, (void **)&reply) != REDIS_OK)
            fail_hard("no answer while all keys are read");
        if (reply->type != REDIS_REPLY_STRING || reply->len != BALLAST_BYTES ||
            reply->str[i % BALLAST_BYTES] != (char)('a' + i % 26))
            fail_hard("ballast.%u is lost", i);
        freeReplyObject(reply);
    }
}

/* While no client runs. `stopped`: the last life ended in order; `lost`: its pools are gone. */
static void verify(struct run *run, bool stopped, bool lost)
{
    redisContext *connection = client_connect(&run->address);
    unsigned long long present = BALLAST;
    for (unsigned i = 0; i < CLIENTS; i++)
        for (unsigned k = 0; k < KEYS; k++) {
            struct power_key *key = &run->clients[i].keys[k];
            redisReply *value = redisCommand(connection, "GET %s", key->name);
            redisReply *expires = redisCommand(connection, "PEXPIRETIME %s", key->name);
            if (!value || !expires || value->type == REDIS_REPLY_ERROR)
                fail_hard("no answer while all keys are read");
            const char *wrong =
                power_found(key, lost && !stopped ? key->safe : key->acked, lost, value, expires->integer);
            if (wrong)
                fail_hard("life %u, %s%s: %s", run->life, stopped ? "stopped" : "killed",
                          lost ? ", without power" : "", wrong);
            present += value->type != REDIS_REPLY_NIL;
            freeReplyObject(value);
            freeReplyObject(expires);
        }
    ballast_verify(connection);
    if (strtoull(ask(connection, "DBSIZE"), NULL, 10) != present)
        fail_hard("life %u: %s keys are there, and not %llu", run->life, ask(connection, "DBSIZE"), present);
    redisFree(connection);
}

/* ---- the server ---- */

static const char *const *server_arguments(const struct run *run)
{
    static const char *arguments[20];
    const char *const all[] = {
        "serve",    "--listen",       run->listen, "--data",         run->directory, "--threads",
        "2",        "--size",         "192M",      "--memory-nodes", run->nodes,     "--durability",
        run->level, "--idle-timeout", "0",         "--disk-limit",   "64M",          NULL};
    memcpy(arguments, all, sizeof all);
    return arguments;
}

static void pools_remove(struct run *run)
{
    for (unsigned i = 0; i < 3; i++)
        (void)unlink(text_of("%s/pool-%u", run->directory, i)); /* some nodes are not there */
}

/* A start that is killed as soon as it fills the pools, or a moment later. False: it had filled them. */
static bool load_cut(struct run *run)
{
    static struct process_result result;
    /* Where the mark came and went between two looks, the server's socket ends the wait. */
    const char *script = "mark=$1; socket=$2; shift 2; rm -f \"$socket\"; \"$@\" & server=$!\n"
                         "while [ ! -e \"$mark\" ] && [ ! -S \"$socket\" ] && kill -0 $server; do :; done\n"
                         "sleep \"$WAIT\"; kill -KILL $server; wait $server; [ -e \"$mark\" ]";
    const char *const *serve = server_arguments(run);
    const char *arguments[32] = {text_of("WAIT=0.%03u", (unsigned)random_below(&run->random, 12)),
                                 "sh",
                                 "-c",
                                 script,
                                 "sh",
                                 text_of("%s/disk/loading", run->directory),
                                 run->listen + strlen("unix:"),
                                 getenv("BANYAN_PROGRAM")};
    for (unsigned i = 0; serve[i]; i++)
        arguments[8 + i] = serve[i];
    process_run(&run->scene, "env", arguments, &result);
    run->cut_loads += result.code == 0;
    return result.code == 0;
}

static bool saving(struct run *run)
{
    glob_t found;
    const int status = glob(text_of("%s/disk/checkpoint-*", run->directory), 0, NULL, &found);
    const bool several = !status && found.gl_pathc > 1;
    globfree(&found);
    return several;
}

/* A checkpoint is begun; the life ends some time later. */
static void save(struct run *run)
{
    redisContext *connection = client_connect(&run->address);
    const char *told = ask(connection, "BGSAVE");
    if (strcmp(told, "Background saving started") && !strstr(told, "already in progress"))
        fail_hard("BGSAVE: %s", told);
    redisFree(connection);
    nap(random_below(&run->random, 20000));
}

static bool complete(struct run *run)
{
    redisContext *connection = client_connect(&run->address);
    const bool all = info_figure(connection, "persistence", "disk_complete");
    redisFree(connection);
    return all;
}

/* Returns whether it ended in order, with all on the disk. */
static bool life_end(struct run *run)
{
    bool stopped = random_chance(&run->random, 0.15), whole = false;
    if (stopped) {
        whole = complete(run);
        run->behind += !whole;
        if (process_stop(run->server))
            fail_hard("life %u: ended with %d after SIGTERM", run->life, run->server->code);
        run->stops++;
    } else {
        process_kill(run->server);
        run->kills++;
        run->cut_saves += saving(run);
    }
    wait_until(all_parked, run, "the clients to notice");
    return stopped && whole;
}

static void do_life(struct run *run)
{
    const bool lost = random_chance(&run->random, 0.6);
    advance(run, random_chance(&run->random, 0.3) ? 1 + random_below(&run->random, 20)
                                                  : random_below(&run->random, run->always ? 800 : 6000));
    if (random_chance(&run->random, 0.4))
        save(run);
    const bool stopped = life_end(run);
    if (lost) {
        pools_remove(run);
        run->losses++;
    }
    for (bool cut = lost && random_chance(&run->random, 0.5); cut; cut = random_chance(&run->random, 0.3)) {
        const bool within = load_cut(run);
        if (random_chance(&run->random, 0.5) || !within) /* what is filled would not be filled again */
            pools_remove(run);
    }
    process_restart(&run->scene, run->server, server_arguments(run));
    verify(run, stopped, lost);
    atomic_add_release(&run->life, 1);
}

/* ---- a run ---- */

static void run_begin(struct run *run, const char *level, uint64_t seed, const char *nodes)
{
    struct error error;
    scene_open(&run->scene);
    random_seed(&run->random, seed);
    run->nodes = nodes;
    run->level = level;
    run->always = !strcmp(level, "disk-always");
    run->directory = keep(scene_path(&run->scene, "data"));
    run->listen = keep(text_of("unix:%s", scene_path(&run->scene, "serve.sock")));
    run->server = process_start(&run->scene, "serve", server_arguments(run));
    run->address = process_address(run->server, 0);
    ballast_write(run);
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client *client = &run->clients[i];
        client->run = run;
        random_seed(&client->random, seed * 100 + i);
        for (unsigned k = 0; k < KEYS; k++)
            power_key_init(&client->keys[k], i, k);
        if (thread_start(&client->thread, client_main, client, &error))
            fail_hard("no thread for a client");
    }
    atomic_add_release(&run->life, 1);
}

static void run_end(struct run *run)
{
    static struct process_result result;
    uint64_t waits = 0;
    atomic_store_release(&run->stop, 1);
    if (process_stop(run->server))
        fail_hard("ended with %d after SIGTERM", run->server->code);
    for (unsigned i = 0; i < CLIENTS; i++) {
        thread_join(run->clients[i].thread);
        waits += run->clients[i].waits;
        for (unsigned k = 0; k < KEYS; k++)
            power_key_free(&run->clients[i].keys[k]);
    }
    process_run(&run->scene, NULL, ARGUMENTS("check", "--data", run->directory, "--reclaim"), &result);
    if (result.code || !strstr(result.output, "sound"))
        fail_hard("banyan check ended with %d: %s%s", result.code, result.output, result.error);
    printf("%s: %u kills, %u stops (%u before the disk was complete), %u losses of power, %u loads and %u "
           "checkpoints cut: %llu changes, %llu times safe\n",
           run->level, run->kills, run->stops, run->behind, run->losses, run->cut_loads, run->cut_saves,
           (unsigned long long)run->answered, (unsigned long long)waits);
    fflush(stdout);
    run->scene.passed = true;
    scene_close(&run->scene);
}

static void run_lives(const char *level, unsigned lives, uint64_t seed, const char *nodes)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        fail_hard("no memory");
    run_begin(run, level, seed, nodes);
    for (unsigned i = 0; i < lives; i++)
        do_life(run);
    run_end(run);
    free(run);
}

static void disk_second(void **state)
{
    (void)state;
    run_lives("disk-second", 30, 1, "1");
}

static void disk_always(void **state)
{
    (void)state;
    run_lives("disk-always", 24, 2, "2");
}

int main(int count, char **arguments)
{
    if (count >= 4) {
        run_lives(arguments[1], (unsigned)strtoul(arguments[2], NULL, 10), strtoull(arguments[3], NULL, 10),
                  count > 4 ? arguments[4] : "1");
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(disk_second), cmocka_unit_test(disk_always)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
