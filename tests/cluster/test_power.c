/*
 * test_power.c - power is lost: all processes of a cluster are killed at full load, and the memory nodes'
 * pools are gone. What their journals have is read back with `banyan recover`, loaded into a new cluster, and
 * judged: at disk-always nothing that was acknowledged is missing, at disk-second each key has a value that
 * it had at the last sync or later, and in both nothing is there that was never written. Where everything has
 * two copies (--log-copies 2, --copies 2), one memory node's whole directory is gone as well, another one
 * each time, and still nothing is missing. (The page cache outlives a kill, so that nothing is called safe
 * before its sync is for test_disk.c to show.) Without arguments the short form; a soak gives some:
 * test_power ROUNDS SEED [lost]
 */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/random.h"
#include "cluster/load.h"
#include "cluster/model.h"
#include "cluster/process.h"
#include "cluster/talk.h"

#define NODES     2u /* or one more */
#define NODES_MAX 3u
#define COMPUTES  2u

struct run {
    struct scene scene;
    struct random random;
    const char *level, *memory;
    unsigned node_count;
    bool twice;    /* two copies of everything, and a disk less at each loss of power */
    bool patient;  /* a memory node that lives does not count as lost, however busy the machine is */
    unsigned lost; /* the memory node without a disk; NODES_MAX: none */
    struct process *nodes[NODES_MAX], *computes[COMPUTES];
    struct process *first; /* the compute node that was there first, and stays */
    struct process *saver; /* makes checkpoints */
    unsigned saves, saves_killed, restarts;
    unsigned life; /* of the cluster: each has directories of its own */
    uint64_t written, longest_recovery;
};

static struct process_result result;

/* ---- the cluster ---- */

static const char *directory(const struct run *run, unsigned life, unsigned node)
{
    return scene_path(&run->scene, "data-%u-%u", life, node);
}

static void node_start(struct run *run, unsigned node)
{
    static const char *const names[NODES_MAX] = {"memory-0", "memory-1", "memory-2"};
    const char *const *arguments = ARGUMENTS(
        "memory", "--listen", text_of("unix:%s", scene_path(&run->scene, "m%u.sock", node)), "--size", "160M",
        "--http", "127.0.0.1:0", "--data", directory(run, run->life, node), "--durability", run->level);
    if (run->nodes[node])
        process_restart(&run->scene, run->nodes[node], arguments);
    else
        run->nodes[node] = process_start(&run->scene, names[node], arguments);
}

static void memory_start(struct run *run)
{
    const char *list = keep("");
    for (unsigned i = 0; i < run->node_count; i++) {
        node_start(run, i);
        list = keep(text_of("%s%sunix:%s", list, i ? "," : "", scene_path(&run->scene, "m%u.sock", i)));
    }
    run->memory = list;
}

/* A compute node that a busy machine does not run for its lease is fenced, and a memory node that does not
 * answer within the time-out is left out: then there are frames of one copy, which recovery has to tell. No
 * test here is of that by time: where it is to happen a process is killed. */
#define LEASE "60000"

static const char *timeout_of(const struct run *run)
{
    return run->patient ? "60000" : "5000";
}

static void compute_start(struct run *run, struct process **process, const char *name, const char *socket,
                          bool format)
{
    const char *const *arguments =
        ARGUMENTS("compute", "--memory", run->memory, "--listen",
                  text_of("unix:%s", scene_path(&run->scene, "%s", socket)), "--threads", "2", "--copy",
                  "--log", "auto", "--log-copies", run->twice ? "2" : "1", "--idle-timeout", "0", "--lease",
                  LEASE, "--timeout", timeout_of(run), format ? "--format" : NULL);
    if (*process)
        process_restart(&run->scene, *process, arguments);
    else
        *process = process_start(&run->scene, name, arguments);
}

/* A new cluster. What is written before anybody owns anything waits for that. */
static void cluster_start(struct run *run)
{
    memory_start(run);
    compute_start(run, &run->first, "first", "first.sock", true);
}

static void computes_start(struct run *run)
{
    static const char *const names[COMPUTES] = {"compute-0", "compute-1"};
    for (unsigned i = 0; i < COMPUTES; i++)
        compute_start(run, &run->computes[i], names[i], text_of("c%u.sock", i), false);
}

/* ---- checkpoints ---- */

/* Parts of 4 KiB, so that both memory nodes have some of each checkpoint. */
static void save_begin(struct run *run)
{
    if (!run->saver)
        run->saver = process_place(&run->scene, "save");
    process_spawn(&run->scene, run->saver,
                  ARGUMENTS("save", "--memory", run->memory, "--copy", "--part-bytes", "4K", "--copies",
                            run->twice ? "2" : "1", "--lease", LEASE, "--timeout", timeout_of(run)));
}

static void save_end(struct run *run, bool killed)
{
    if (!run->saver || !run->saver->pid)
        return;
    const int code = killed ? process_kill(run->saver) : process_wait(run->saver);
    run->saves += !code;
    run->saves_killed += code != 0;
    if (!killed && code)
        fail_hard("save ended with %d", code);
}

static void memory_restart(struct run *run, unsigned node)
{
    process_kill(run->nodes[node]);
    node_start(run, node);
    run->restarts++;
}

/* Checkpoints that come to their end, or are killed in between, and memory nodes that begin a new life, whose
 * first pass copies what the journal, or the checkpoint, has already. */
static void disturb(struct run *run, struct load *load)
{
    for (uint64_t deeds = 1 + random_below(&run->random, 4); deeds > 0; deeds--) {
        /* While a memory node is away what is written has one copy, and may be lost with that. */
        if (random_below(&run->random, 3) == 0 && !run->twice)
            memory_restart(run, (unsigned)random_below(&run->random, run->node_count));
        load_advance(load, random_below(&run->random, 100));
        save_begin(run);
        if (random_below(&run->random, 2)) {
            load_advance(load, random_below(&run->random, 60));
            save_end(run, true);
        } else if (deeds > 1 || random_below(&run->random, 2)) {
            save_end(run, false);
        }
    }
}

static void power_off(struct run *run)
{
    struct process *all[COMPUTES + 1 + NODES_MAX] = {run->computes[0], run->computes[1], run->first};
    const unsigned count = COMPUTES + 1 + run->node_count;
    for (unsigned i = 0; i < run->node_count; i++)
        all[COMPUTES + 1 + i] = run->nodes[i];
    for (unsigned i = count; i > 0; i--)
        process_signal(all[i - 1], SIGKILL);
    for (unsigned i = 0; i < count; i++)
        process_wait(all[i]);
    save_end(run, true); /* one that was under way */
    for (unsigned i = 0; i < run->node_count; i++)
        if (unlink(text_of("%s/pool", directory(run, run->life, i))))
            fail_hard("there was no pool");
    if (run->twice) {
        run->lost = run->life % run->node_count;
        process_remove_folder(directory(run, run->life, run->lost));
    }
}

/* ---- recovery ---- */

/* All directories that are left. */
static const char *both(const struct run *run, unsigned life)
{
    const char *list = keep("");
    for (unsigned i = 0; i < run->node_count; i++)
        if (i != run->lost)
            list = keep(text_of("%s%s%s", list, *list ? "," : "", directory(run, life, i)));
    return list;
}

static void run_good(struct run *run, const char *const *arguments)
{
    process_run(&run->scene, NULL, arguments, &result);
    if (result.code)
        fail_hard("%s ended with %d: %s%s", arguments[0], result.code, result.output, result.error);
}

/* `file` NULL: it is only told what is there. */
static void recover_run(struct run *run, const char *file)
{
    const char *data = both(run, run->life), *lost = keep(text_of("%u", run->lost));
    if (run->lost == NODES_MAX)
        run_good(run, ARGUMENTS("recover", "--data", data, file ? "--output" : NULL, file));
    else
        run_good(run, ARGUMENTS("recover", "--data", data, "--lost", lost, file ? "--output" : NULL, file));
}

/* Before its clients find it where the old one was, the new cluster has what the journals have. */
static void recover(struct run *run)
{
    const char *file = keep(scene_path(&run->scene, "recovered-%u", run->life));
    const uint64_t began = now_ns();
    recover_run(run, NULL);
    if (!strstr(result.output, "changes"))
        fail_hard("recover tells: %s", result.output);
    printf("%s", result.output);
    recover_run(run, file);
    const uint64_t took = now_ns() - began;
    run->longest_recovery = took > run->longest_recovery ? took : run->longest_recovery;
    run->life++;
    run->lost = NODES_MAX;
    cluster_start(run);
    run_good(run, ARGUMENTS("load", "--to", address_text(run->first, 0), file));
    unlink(file);
}

/* ---- a run ---- */

static struct run *run_begin(const char *level, bool twice, bool patient, unsigned nodes)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        fail_hard("no memory");
    scene_open(&run->scene);
    run->level = level;
    run->twice = twice;
    run->patient = patient;
    run->node_count = nodes;
    run->lost = NODES_MAX;
    cluster_start(run);
    return run;
}

static void run_passed(struct run *run)
{
    run->scene.passed = true;
    scene_close(&run->scene);
    free(run);
}

/* ---- disk-always ---- */

static void always(unsigned rounds, uint64_t seed, bool twice, unsigned nodes)
{
    struct run *run = run_begin("disk-always", twice, true, nodes);
    struct load_figures figures[LOAD_SERVERS] = {0};
    random_seed(&run->random, seed);
    computes_start(run);
    const struct load_options options = {
        .servers = {process_address(run->computes[0], 0), process_address(run->computes[1], 0)},
        .threads = 4,
        .keys = 40,
        .seed = seed};
    struct load *load = load_start(&options);
    load_wait_divided(load);
    for (unsigned round = 0; round < rounds; round++) {
        load_advance(load, 100 + random_below(&run->random, 400));
        disturb(run, load);
        power_off(run);
        recover(run);
        computes_start(run);
        load_pause(load);
        load_verify(load);
        load_resume(load);
        load_next_epoch(load);
    }
    for (unsigned i = 0; i < LOAD_SERVERS; i++)
        load_figures(load, i, &figures[i]);
    load_stop(load);
    printf("%u losses of power, %u checkpoints, %u that were killed, %u restarts of memory nodes: %" PRIu64
           " operations, %" PRIu64 " of unknown outcome; recovery took %" PRIu64 " ms at most\n",
           rounds, run->saves, run->saves_killed, run->restarts,
           figures[0].operations + figures[1].operations, figures[0].unknown + figures[1].unknown,
           run->longest_recovery / 1000000);
    for (unsigned i = 0; i < COMPUTES; i++)
        if (process_stop(run->computes[i]))
            fail_hard("compute node %u ended with %d", i, run->computes[i]->code);
    if (process_stop(run->first))
        fail_hard("the first compute node ended with %d", run->first->code);
    for (unsigned i = 0; i < run->node_count; i++)
        if (process_stop(run->nodes[i]))
            fail_hard("memory node %u ended with %d", i, run->nodes[i]->code);
    run_passed(run);
}

/* ---- disk-second ---- */

#define SECOND_KEYS 64u

/* As it is now: INFO of a compute node is a second old. */
static uint64_t syncs_of(const struct process *node)
{
    char *page = http_get(process_http(node), "/metrics", "");
    const char *at = strstr(page, "\nbanyan_memory_disk_syncs_total ");
    if (!at)
        fail_hard("the memory node's metrics have no syncs: %s", page);
    const uint64_t figure = strtoull(strchr(at + 1, ' '), NULL, 10);
    free(page);
    return figure;
}

struct syncs {
    struct run *run;
    uint64_t until[NODES];
};

static bool synced(void *context)
{
    const struct syncs *syncs = context;
    for (unsigned i = 0; i < NODES; i++)
        if (syncs_of(syncs->run->nodes[i]) < syncs->until[i])
            return false;
    return true;
}

static void set_all(redisContext *client, uint64_t value)
{
    for (unsigned key = 0; key < SECOND_KEYS; key++)
        redisAppendCommand(client, "SET key-%u %" PRIu64, key, value);
    for (unsigned key = 0; key < SECOND_KEYS; key++) {
        redisReply *reply = NULL;
        if (redisGetReply(client, (void **)&reply) || reply->type != REDIS_REPLY_STATUS)
            fail_hard("SET: %s", reply ? reply->str : client->errstr);
        freeReplyObject(reply);
    }
}

/* Of each key there is a value that it had at the last sync that is known, or a later one. */
static void second(void **state)
{
    struct run *run = run_begin("disk-second", false, false, NODES);
    (void)state;
    computes_start(run);
    redisContext *writer = client_of(run->computes[0], 0);
    struct syncs syncs = {.run = run};
    uint64_t value = 1;
    for (; value <= 200; value++)
        set_all(writer, value);
    /* A pass that began behind this look ends with the second one that ends from now on. */
    for (unsigned i = 0; i < NODES; i++)
        syncs.until[i] = syncs_of(run->nodes[i]) + 2;
    const uint64_t safe = value - 1;
    wait_until(synced, &syncs, "two syncs of each memory node");
    for (unsigned i = 0; i < 50; i++, value++)
        set_all(writer, value);
    const uint64_t last = value - 1;
    redisFree(writer);
    power_off(run);
    recover(run);
    computes_start(run);
    redisContext *client = client_of(run->computes[1], 0);
    for (unsigned key = 0; key < SECOND_KEYS; key++) {
        const uint64_t found = strtoull(ask(client, "GET key-%u", key), NULL, 10);
        if (found < safe || found > last)
            fail_hard("key %u: %" PRIu64 ", and %" PRIu64 " was synced, %" PRIu64 " written last", key, found,
                      safe, last);
    }
    redisFree(client);
    run_passed(run);
}

static struct process *none_start(struct run *run, const char *name, const char *timeout, bool format)
{
    return process_start(&run->scene, name,
                         ARGUMENTS("compute", "--memory", run->memory, "--listen",
                                   text_of("unix:%s", scene_path(&run->scene, "%s.sock", name)), "--copy",
                                   "--own", "none", "--timeout", timeout, format ? "--format" : NULL));
}

/* The first moments of a cluster, and its last: where nobody owns anything nothing is changed, and what was
 * answered is on the disk, whoever was asked. */
static void what_nobody_owns(void **state)
{
    struct run *run = calloc(1, sizeof *run);
    struct process *none;
    (void)state;
    if (!run)
        fail_hard("no memory");
    scene_open(&run->scene);
    run->level = "disk-always";
    run->node_count = NODES;
    run->lost = NODES_MAX;
    memory_start(run);
    struct process *patient = none_start(run, "patient", "60000", true);
    none = none_start(run, "none", "2000", false); /* so long a change waits for an owner */
    redisContext *client = client_of(none, 0);
    assert_string_equal(ask(client, "GET before"), "(nil)");
    const char *refusal = ask(client, "SET before anybody");
    assert_contains(refusal, "CLUSTERDOWN memory nodes keep their data on a disk");
    assert_contains(refusal, "--own auto --log auto");
    redisContext *waiting = client_of(patient, 0);
    redisAppendCommand(waiting, "SET first moment");
    for (int sent = 0; !sent;)
        if (redisBufferWrite(waiting, &sent))
            fail_hard("SET: %s", waiting->errstr);
    compute_start(run, &run->first, "first", "first.sock", false);
    redisReply *reply = NULL;
    if (redisGetReply(waiting, (void **)&reply) || reply->type != REDIS_REPLY_STATUS)
        fail_hard("SET: %s", reply ? reply->str : waiting->errstr);
    freeReplyObject(reply);
    assert_string_equal(ask(waiting, "MSET a 1 b 2"), "OK");
    redisFree(waiting);
    process_run(&run->scene, NULL, ARGUMENTS("ranges", "share", "redis", "--memory", run->memory), &result);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, "of a shared range nobody logs anything");
    process_run(&run->scene, NULL, ARGUMENTS("check", "--memory", run->memory), &result);
    assert_contains(result.output,
                    "durability: disk-always: what was answered is on the memory nodes' disks");
    if (process_stop(run->first))
        fail_hard("the first compute node ended badly");
    assert_contains(ask(client, "SET a 2"), "CLUSTERDOWN memory nodes keep their data on a disk");
    assert_string_equal(ask(client, "GET a"), "1");
    redisFree(client);
    process_kill(none);
    process_kill(patient);
    for (unsigned i = 0; i < NODES; i++)
        process_kill(run->nodes[i]);

    const char *file = keep(scene_path(&run->scene, "redis.banyan"));
    run_good(run, ARGUMENTS("recover", "--data", both(run, 0)));
    assert_contains(result.output, "\nindex 'redis' (number ");
    assert_contains(result.output, "): 3 keys");
    run_good(run, ARGUMENTS("recover", "--data", both(run, 0), "--index", "redis", "--output", file));
    process_run(&run->scene, NULL,
                ARGUMENTS("recover", "--data", both(run, 0), "--index", "other", "--output", file), &result);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, "name no index 'other'");
    run->life++;
    cluster_start(run);
    run_good(run, ARGUMENTS("load", "--to", address_text(run->first, 0), file));
    client = client_of(run->first, 0);
    assert_string_equal(ask(client, "GET first"), "moment");
    assert_string_equal(ask(client, "DBSIZE"), "3");
    redisFree(client);
    if (process_stop(run->first) || process_stop(run->nodes[0]) || process_stop(run->nodes[1]))
        fail_hard("something ended badly");
    run->scene.passed = true;
    scene_close(&run->scene);
    free(run);
}

/* What would be acknowledged and come to no disk: a compute node without a log, a directory of what is gone.
 */
static void refusals(void **state)
{
    struct run *run = run_begin("disk-second", false, false, NODES);
    (void)state;
    process_run(&run->scene, NULL,
                ARGUMENTS("compute", "--memory", run->memory, "--listen",
                          text_of("unix:%s", scene_path(&run->scene, "c0.sock")), "--copy"),
                &result);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, "--log auto");
    process_run(&run->scene, NULL, ARGUMENTS("recover", "--data", both(run, 0)), &result);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, "in use by another process");
    if (process_stop(run->first) || process_stop(run->nodes[0]) || process_stop(run->nodes[1]))
        fail_hard("something ended badly");

    const char *one = keep(directory(run, 0, 0));
    process_run(&run->scene, NULL, ARGUMENTS("recover", "--data", one), &result);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, "2 memory nodes");
    const char *listen = keep(text_of("unix:%s", scene_path(&run->scene, "m0.sock")));
    process_run(&run->scene, NULL,
                ARGUMENTS("memory", "--listen", listen, "--data", one, "--durability", "process"), &result);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, one);
    unlink(text_of("%s/pool", one));
    process_run(&run->scene, NULL, ARGUMENTS("memory", "--listen", listen, "--size", "160M", "--data", one),
                &result);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, "the pool was lost");
    run_good(run, ARGUMENTS("recover", "--data", both(run, 0), "--json"));
    assert_contains(result.output, "\"memory_nodes\"");
    run_passed(run);
}

static void run_refused(struct run *run, const char *const *arguments, int code, const char *why)
{
    process_run(&run->scene, NULL, arguments, &result);
    assert_int_equal(result.code, code);
    if (!strstr(result.output, why) && !strstr(result.error, why))
        fail_hard("%s told: %s%s", why, result.output, result.error);
}

/* With one copy nobody knows what the lost disk had: that is told, and nothing is written before it is
 * accepted. */
static void what_had_one_copy(void **state)
{
    struct run *run = run_begin("disk-always", false, false, NODES);
    (void)state;
    redisContext *client = client_of(run->first, 0);
    for (unsigned i = 0; i < 64; i++) { /* what does not get shorter in a checkpoint */
        char value[900] = "";
        for (size_t at = 0; at + 17 < sizeof value; at += 16)
            snprintf(value + at, 17, "%016" PRIx64, random_mix(i * 1000 + at));
        assert_string_equal(ask(client, "SET key-%u %s", i, value), "OK");
    }
    save_begin(run);
    save_end(run, false);
    assert_string_equal(ask(client, "SET after save"), "OK");
    redisFree(client);
    if (process_stop(run->first) || process_stop(run->nodes[0]) || process_stop(run->nodes[1]))
        fail_hard("something ended badly");
    const char *file = keep(scene_path(&run->scene, "rest.banyan"));
    unsigned alone = 0, parts = 0;
    for (unsigned lost = 0; lost < NODES; lost++) {
        const char *data = keep(directory(run, 0, !lost)), *number = lost ? "1" : "0";
        run_refused(run, ARGUMENTS("recover", "--data", data), 2, keep(text_of("--lost %s", number)));
        run_refused(run, ARGUMENTS("recover", "--data", data, "--lost", number), 3, "disk is lost");
        parts += strstr(result.output, "LOST: part ") != NULL;
        alone += strstr(result.output, "has written changes with one copy") != NULL;
        run_refused(run, ARGUMENTS("recover", "--data", data, "--lost", number, "--output", file), 1,
                    "--accept-loss writes the rest");
        assert_int_not_equal(access(file, F_OK), 0);
        run_good(run,
                 ARGUMENTS("recover", "--data", data, "--lost", number, "--output", file, "--accept-loss"));
        assert_int_equal(access(file, F_OK), 0);
        unlink(file);
        run_refused(run, ARGUMENTS("recover", "--data", data, "--lost", number, "--json"), 3, "\"missing\"");
    }
    assert_true(alone > 0); /* of the memory node that has the last change */
    assert_true(parts > 0);
    run_refused(run, ARGUMENTS("recover", "--data", keep(both(run, 0)), "--lost", "1"), 2,
                "the directory of memory node 1 is given");
    run_refused(run, ARGUMENTS("recover", "--data", keep(directory(run, 0, 0)), "--lost", "2"), 2,
                "are no numbers of memory nodes");
    run_passed(run);
}

/* ---- a memory node that was away for a while ---- */

#define AWAY_KEYS    2000u /* their leaves lie on both memory nodes */
#define AWAY_CLIENTS 32u

static uint64_t degraded_of(redisContext *client)
{
    return info_figure(client, "log", "log_degraded");
}

static bool is_degraded(void *client)
{
    return degraded_of(client) > 0;
}

static bool away_reply(redisContext *client)
{
    redisReply *reply = NULL;
    if (redisGetReply(client, (void **)&reply))
        fail_hard("SET: %s", client->errstr);
    const bool done = reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    return done;
}

/* Sets all keys. False: a memory node is not there for all of them, or took no second copy. */
static bool away_set(void *context)
{
    redisContext *client = context;
    const uint64_t degraded = degraded_of(client);
    bool done = true;
    for (unsigned key = 0; key < AWAY_KEYS; key++)
        redisAppendCommand(client, "SET key-%u value", key);
    for (unsigned key = 0; key < AWAY_KEYS; key++)
        done &= away_reply(client);
    return done && degraded_of(client) == degraded;
}

static bool away_merged(void *client)
{
    return !info_figure(client, "log", "log_unmerged_keys") && !info_figure(client, "log", "log_lag_entries");
}

/* Memory node 1 goes, and some change gets one copy. Each client has one change under way, since those whose
 * first copy belongs there wait until it is there again, or fail. */
static void away_change(struct run *run, redisContext *other)
{
    redisContext *clients[AWAY_CLIENTS];
    for (unsigned i = 0; i < AWAY_CLIENTS; i++)
        clients[i] = client_of(run->first, 0);
    process_kill(run->nodes[1]);
    for (unsigned i = 0; i < AWAY_CLIENTS; i++) {
        redisAppendCommand(clients[i], "SET key-%u 1", i * (AWAY_KEYS / AWAY_CLIENTS));
        for (int sent = 0; !sent;)
            if (redisBufferWrite(clients[i], &sent))
                fail_hard("SET: %s", clients[i]->errstr);
    }
    wait_until(is_degraded, other, "a change with one copy");
    node_start(run, 1);
    for (unsigned i = 0; i < AWAY_CLIENTS; i++) {
        away_reply(clients[i]); /* it may have failed */
        redisFree(clients[i]);
    }
}

/* While memory node 1 was away changes had one copy, on a disk that is lost then; both disks are there again,
 * and the compute node goes on. A checkpoint has what had one copy: from then on nothing may be missing, and
 * before it whichever disk is lost that is told. */
static void what_had_one_copy_for_a_while(void **state)
{
    const bool saved = *(const bool *)*state;
    struct run *run = run_begin("disk-always", true, false, NODES);
    redisContext *client = client_of(run->first, 0);
    assert_true(away_set(client) && !is_degraded(client));
    wait_until(away_merged, client, "all to be merged, which makes the leaves");
    away_change(run, client);
    wait_until(away_set, client, "a second copy of each change");
    if (saved) {
        save_begin(run);
        save_end(run, false);
    }
    assert_true(away_set(client));
    redisFree(client);
    process_kill(run->first);
    for (unsigned i = 0; i < NODES; i++)
        process_kill(run->nodes[i]);
    for (unsigned lost = 0; lost < NODES; lost++) {
        const char *data = keep(directory(run, 0, !lost)), *number = lost ? "1" : "0";
        if (saved)
            run_good(run, ARGUMENTS("recover", "--data", data, "--lost", number));
        else
            run_refused(run, ARGUMENTS("recover", "--data", data, "--lost", number), 3,
                        "has written changes with one copy");
        assert_true(!saved == (strstr(result.output, "MISSING") != NULL));
    }
    run_passed(run);
}

static void acknowledged_writes(void **state)
{
    (void)state;
    always(2, 1, false, NODES);
}

static void a_disk_is_lost(void **state)
{
    (void)state;
    always(2, 1, true, NODES);
}

int main(int count, char **arguments)
{
    if (count >= 3) {
        const bool lost = count > 3 && !strcmp(arguments[3], "lost");
        const uint64_t seed = strtoull(arguments[2], NULL, 10);
        always((unsigned)strtoul(arguments[1], NULL, 10), seed, lost, lost ? NODES + seed % 2 : NODES);
        return 0;
    }
    static bool unsaved = false, saved = true;
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(what_had_one_copy_for_a_while, &unsaved),
                                       cmocka_unit_test_prestate(what_had_one_copy_for_a_while, &saved),
                                       cmocka_unit_test(acknowledged_writes),
                                       cmocka_unit_test(a_disk_is_lost),
                                       cmocka_unit_test(what_had_one_copy),
                                       cmocka_unit_test(second),
                                       cmocka_unit_test(what_nobody_owns),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
