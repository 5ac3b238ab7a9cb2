/*
 * test_ownership.c - compute nodes of real processes that divide the key ranges of one index: joining,
 * leaving, dying, hanging, being out of each other's reach, and `banyan ranges`. One scene for each test.
 * Without arguments the short form. test_ownership kill|cut|stop ROUNDS measures how soon the ranges of an
 * owner answer writes again that is killed, cut off from the memory nodes, or stopped; test_ownership move
 * ROUNDS how long half of an owner's ranges move under load, and how long requests wait then.
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
#include <unistd.h>
#include <cmocka.h>
#include "cluster/load.h"
#include "cluster/process.h"
#include "cluster/proxy.h"
#include "cluster/talk.h"

#define SECOND   UINT64_C(1000000000)
#define KEYS     3000
#define COMPUTES 3

static struct process_result result; /* of the last process_run: too large for a stack */

/* ---- a cluster ---- */

struct cluster {
    struct scene *scene;
    char memory[2 * NET_TEXT_MAX + 2]; /* both memory nodes */
    char far[2 * NET_TEXT_MAX + 2]; /* how compute node 1 reaches them, with `proxies`; "": as the others */
    const char *lease;              /* of compute node 1, in ms; NULL: as the others */
    struct proxy *proxies[2];
    struct process *computes[COMPUTES];
    redisContext *clients[COMPUTES];
};

static void cluster_open(struct cluster *cluster, struct scene *scene)
{
    static const char *const names[] = {"memory-0", "memory-1"};
    const char *addresses[2];
    memset(cluster, 0, sizeof *cluster);
    cluster->scene = scene;
    for (unsigned i = 0; i < 2; i++)
        addresses[i] = address_text(
            process_start(scene, names[i], ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "128M")),
            0);
    snprintf(cluster->memory, sizeof cluster->memory, "%s,%s", addresses[0], addresses[1]);
}

static const char *memory_of(const struct cluster *cluster, unsigned number)
{
    return number == 1 && cluster->far[0] ? cluster->far : cluster->memory;
}

/* One that a busy machine does not eat up: those that die are noticed by their connections. */
static const char *lease_of(const struct cluster *cluster, unsigned number)
{
    return number == 1 && cluster->lease ? cluster->lease : "20000";
}

static void compute_start(struct cluster *cluster, unsigned number, const char *more, const char *value)
{
    static const char *const names[] = {"compute-0", "compute-1", "compute-2"};
    const char *const *arguments =
        ARGUMENTS("compute", "--memory", memory_of(cluster, number), "--listen",
                  text_of("unix:%s", scene_path(cluster->scene, "c%u.sock", number)), "--threads", "1",
                  number ? "--no-format" : "--format", more ? more : "--lease",
                  more ? value : lease_of(cluster, number));
    if (cluster->computes[number])
        process_restart(cluster->scene, cluster->computes[number], arguments);
    else
        cluster->computes[number] = process_start(cluster->scene, names[number], arguments);
    cluster->clients[number] = client_of(cluster->computes[number], 0);
}

static void compute_again(struct cluster *cluster, unsigned number)
{
    redisFree(cluster->clients[number]);
    process_restart(cluster->scene, cluster->computes[number],
                    ARGUMENTS("compute", "--memory", memory_of(cluster, number), "--listen",
                              text_of("unix:%s", scene_path(cluster->scene, "c%u.sock", number)), "--threads",
                              "1", "--lease", lease_of(cluster, number)));
    cluster->clients[number] = client_of(cluster->computes[number], 0);
}

static uint64_t figure(redisContext *client, const char *name)
{
    return info_figure(client, "ownership", name);
}

static void set(redisContext *client, int key, const char *value)
{
    const char *said = ask(client, "SET key:%06d %s", key, value);
    if (strcmp(said, "OK") != 0)
        fail_msg("SET key:%06d: %s", key, said);
}

static void fill(redisContext *client)
{
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(redisAppendCommand(client, "SET key:%06d first-%d", i, i), REDIS_OK);
    for (int i = 0; i < KEYS; i++) {
        redisReply *reply = NULL;
        assert_int_equal(redisGetReply(client, (void **)&reply), REDIS_OK);
        assert_string_equal(reply->str, "OK");
        freeReplyObject(reply);
    }
}

struct dividing {
    struct cluster *cluster;
    unsigned count; /* computes 0 .. count - 1 */
};

/* Each owns some, and together all. */
static bool divided(void *context)
{
    struct dividing *dividing = context;
    uint64_t sum = 0;
    for (unsigned i = 0; i < dividing->count; i++) {
        uint64_t owned = figure(dividing->cluster->clients[i], "ownership_ranges_owned");
        if (!owned)
            return false;
        sum += owned;
    }
    for (unsigned i = 0; i < dividing->count; i++)
        if (figure(dividing->cluster->clients[i], "ownership_ranges") != sum)
            return false;
    return true;
}

static void wait_divided(struct cluster *cluster, unsigned count)
{
    struct dividing dividing = {cluster, count};
    wait_until(divided, &dividing, "each compute node to own a share of the ranges");
}

static void cluster_start(struct cluster *cluster, struct scene *scene, unsigned count)
{
    cluster_open(cluster, scene);
    compute_start(cluster, 0, NULL, NULL);
    fill(cluster->clients[0]);
    for (unsigned i = 1; i < count; i++)
        compute_start(cluster, i, NULL, NULL);
    wait_divided(cluster, count);
}

static void cluster_close(struct cluster *cluster)
{
    for (unsigned i = 0; i < COMPUTES; i++)
        if (cluster->clients[i])
            redisFree(cluster->clients[i]);
    cluster->scene->passed = true;
}

static void run_ranges(struct cluster *cluster, const char *a, const char *b, const char *c, const char *d,
                       const char *e)
{
    process_run(cluster->scene, NULL, ARGUMENTS("ranges", "--memory", cluster->memory, a, b, c, d, e),
                &result);
}

static json_t *list_ranges(struct cluster *cluster)
{
    run_ranges(cluster, "list", "redis", "--json", "--keys", NULL);
    if (result.code)
        fail_msg("banyan ranges: %d\n%s%s", result.code, result.output, result.error);
    json_t *json = json_loads(result.output, 0, NULL);
    assert_non_null(json);
    return json;
}

static unsigned id_of(struct cluster *cluster, unsigned number)
{
    return (unsigned)figure(cluster->clients[number], "ownership_compute_id");
}

/* The lower bound, which is a key, of a range of the compute node; not the first range's, which is no key. */
static const char *key_owned(struct cluster *cluster, unsigned id)
{
    json_t *json = list_ranges(cluster), *range;
    const char *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(json, "ranges"), i, range)
    {
        json_t *owner = json_object_get(range, "owner");
        const char *from = json_string_value(json_object_get(range, "from"));
        if (from[0] && !strcmp(json_string_value(json_object_get(range, "state")), "settled") &&
            json_integer_value(json_object_get(owner, "id")) == (json_int_t)id)
            found = keep(from);
    }
    json_decref(json);
    if (!found)
        fail_msg("compute node %u owns no range with a bound:\n%s", id, result.output);
    return found;
}

static void demand_sound(struct cluster *cluster)
{
    process_run(cluster->scene, NULL, ARGUMENTS("check", "--memory", cluster->memory), &result);
    if (result.code)
        fail_msg("check: %d\n%s%s", result.code, result.output, result.error);
    assert_contains(result.output, "sound");
    assert_contains(result.output, "ranges in the map");
}

/* ---- tests ---- */

/* Every node reads and writes every key, whoever owns it, and answers for all of them together. */
static void test_any_node(void **state)
{
    struct cluster cluster;
    cluster_start(&cluster, *state, 3);
    for (int i = 0; i < KEYS; i += 7) {
        set(cluster.clients[i % 3], i, text_of("second-%d", i));
        for (unsigned at = 0; at < 3; at++)
            assert_string_equal(ask(cluster.clients[at], "GET key:%06d", i), text_of("second-%d", i));
    }
    assert_string_equal(ask(cluster.clients[1], "APPEND key:000001 x"), "8");
    assert_string_equal(ask(cluster.clients[2], "INCRBY counter 5"), "5");
    assert_string_equal(ask(cluster.clients[0], "INCRBY counter 5"), "10");
    assert_string_equal(ask(cluster.clients[1], "DEL counter"), "1");
    assert_string_equal(ask(cluster.clients[0], "SETNX key:000002 x"), "0");
    uint64_t forwarded = 0, served = 0;
    for (unsigned at = 0; at < 3; at++) {
        redisContext *client = cluster.clients[at];
        assert_string_equal(ask(client, "DBSIZE"), text_of("%d", KEYS));
        assert_string_equal(ask(client, "RANGECOUNT [key:000100 (key:002900"), "2800");
        assert_contains(ask(client, "RANDOMKEY"), "key:");
        redisReply *reply = redisCommand(client, "MGET key:000003 key:001500 key:002999");
        assert_int_equal(reply->elements, 3);
        assert_string_equal(reply->element[0]->str, "first-3");
        assert_string_equal(reply->element[2]->str, "first-2999");
        freeReplyObject(reply);
        reply = redisCommand(client, "KEYS key:*");
        assert_int_equal(reply->elements, KEYS);
        for (size_t i = 1; i < reply->elements; i++)
            assert_true(strcmp(reply->element[i - 1]->str, reply->element[i]->str) < 0);
        freeReplyObject(reply);
        forwarded += figure(client, "forwarded_writes");
        served += figure(client, "served_writes");
    }
    assert_true(forwarded > 0);
    assert_true(served > 0);
    demand_sound(&cluster); /* while they own ranges: it only reads */
    assert_string_equal(ask(cluster.clients[1], "DELRANGE [key:000000 (key:001000"), "1000");
    assert_string_equal(ask(cluster.clients[2], "FLUSHALL"), "OK");
    for (unsigned at = 0; at < 3; at++)
        assert_string_equal(ask(cluster.clients[at], "DBSIZE"), "0");
    cluster_close(&cluster);
}

/* A node that is asked to end gives its ranges away first: nobody has to take them over. */
static void test_leave(void **state)
{
    struct cluster cluster;
    cluster_start(&cluster, *state, 2);
    assert_int_equal(process_stop(cluster.computes[1]), 0);
    char *said = process_errors(cluster.scene, cluster.computes[1]);
    assert_contains(said, "were given away");
    free(said);
    struct dividing dividing = {&cluster, 1};
    wait_until(divided, &dividing, "the one that stays to own all ranges");
    assert_int_equal(figure(cluster.clients[0], "ownership_takeovers"), 0);
    for (int i = 0; i < KEYS; i += 5)
        set(cluster.clients[0], i, "third");
    compute_again(&cluster, 1); /* and gets a share again */
    wait_divided(&cluster, 2);
    assert_string_equal(ask(cluster.clients[1], "GET key:000005"), "third");
    assert_string_equal(ask(cluster.clients[1], "SHUTDOWN"), "(no reply: Server closed the connection)");
    assert_int_equal(process_wait(cluster.computes[1]), 0);
    wait_until(divided, &dividing, "the one that stays to own all ranges after SHUTDOWN");
    assert_int_equal(figure(cluster.clients[0], "ownership_takeovers"), 0);
    uint64_t ranges = figure(cluster.clients[0], "ownership_ranges");
    assert_int_equal(process_stop(cluster.computes[0]), 0); /* nobody is left to take them */
    compute_again(&cluster, 0);
    wait_until(divided, &dividing, "the first one to come back to own all ranges");
    assert_int_equal(figure(cluster.clients[0], "ownership_ranges"), ranges);
    assert_string_equal(ask(cluster.clients[0], "GET key:000005"), "third");
    cluster_close(&cluster);
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *what, uint64_t *times, unsigned count)
{
    qsort(times, count, sizeof *times, compare_times);
    printf("%s %.1f ms (median of %u; %.1f to %.1f)\n", what, (double)times[count / 2] / 1e6, count,
           (double)times[0] / 1e6, (double)times[count - 1] / 1e6);
}

/* What is done to an owner; the process is killed in the end, and started anew. */
enum fate { FATE_KILL, FATE_CUT, FATE_STOP };
static const char *const fates[] = {"kill", "cut", "stop", NULL};

static void befall(struct cluster *cluster, enum fate fate)
{
    if (fate == FATE_KILL)
        process_kill(cluster->computes[1]);
    if (fate == FATE_STOP)
        process_signal(cluster->computes[1], SIGSTOP);
    for (unsigned i = 0; i < 2 && fate == FATE_CUT; i++) { /* and it does not come back */
        proxy_hold(cluster->proxies[i], true);
        proxy_cut(cluster->proxies[i]);
    }
}

static void mend(struct cluster *cluster, enum fate fate)
{
    for (unsigned i = 0; i < 2 && fate == FATE_CUT; i++)
        proxy_hold(cluster->proxies[i], false);
    if (fate != FATE_KILL)
        process_kill(cluster->computes[1]);
    compute_again(cluster, 1);
    wait_divided(cluster, 2);
}

/* Appends until that is done for certain; returns how many more times it may have been done. */
static unsigned append_surely(struct cluster *cluster, const char *key)
{
    unsigned unknown = 0;
    uint64_t limit = now_ns() + 60 * SECOND;
    for (;;) {
        const char *said = ask(cluster->clients[0], "APPEND %s !", key);
        if (said[0] != '-')
            return unknown;
        bool down = !strncmp(said, "-CLUSTERDOWN ", 13);
        if (now_ns() > limit || (!down && strncmp(said, "-UNKNOWN ", 9) != 0))
            fail_msg("APPEND %s: %s", key, said);
        unknown += !down;
    }
}

/* The ranges of an owner that is gone answer again, to writes too, and nothing of what it acknowledged is
 * lost. */
static void lose_owners(struct cluster *cluster, enum fate fate, unsigned rounds)
{
    uint64_t *times = calloc(rounds, sizeof *times);
    assert_non_null(times);
    for (unsigned i = 0; i < rounds; i++) {
        const char *key = key_owned(cluster, id_of(cluster, 1)), *value = keep(text_of("round-%u", i));
        assert_string_equal(ask(cluster->clients[1], "SET %s %s", key, value), "OK");
        befall(cluster, fate);
        uint64_t begun = now_ns();
        unsigned unknown = append_surely(cluster, key);
        times[i] = now_ns() - begun;
        const char *said = ask(cluster->clients[0], "GET %s", key);
        size_t length = strlen(value), more = strlen(said) < length ? 0 : strlen(said) - length;
        if (strncmp(said, value, length) != 0 || more < 1 || more > 1 + unknown ||
            strspn(said + length, "!") != more)
            fail_msg("%s holds '%s' after '%s' and an APPEND, with %u of unknown outcome", key, said, value,
                     unknown);
        mend(cluster, fate);
    }
    print_times(text_of("%s: the owner's range answers a write again after", fates[fate]), times, rounds);
    assert_true(figure(cluster->clients[0], "ownership_takeovers") > 0);
    free(times);
}

static void test_kill(void **state)
{
    struct cluster cluster;
    cluster_start(&cluster, *state, 2);
    lose_owners(&cluster, FATE_KILL, 5);
    demand_sound(&cluster);
    cluster_close(&cluster);
}

/* Asks until memory nodes can be reached: what is refused before was not done. `format` has one %s. */
static const char *ask_while_down(redisContext *client, const char *format, const char *key)
{
    const uint64_t limit = now_ns() + 60 * SECOND;
    const char *said;
    do
        said = ask(client, format, key);
    while (!strncmp(said, "-CLUSTERDOWN ", 13) && now_ns() < limit);
    return said;
}

/* ms: longer than a busy machine keeps a process from running */
#define HANGING_LEASE "3000"

/* An owner that hangs is fenced when its lease is over; its ranges are others' then, and when it goes on it
 * answers with what they have written. */
static void test_hang(void **state)
{
    struct cluster cluster;
    cluster_open(&cluster, *state);
    compute_start(&cluster, 0, NULL, NULL);
    fill(cluster.clients[0]);
    compute_start(&cluster, 1, "--lease", HANGING_LEASE);
    wait_divided(&cluster, 2);
    const char *key = key_owned(&cluster, id_of(&cluster, 1));
    assert_string_equal(ask(cluster.clients[1], "SET %s before", key), "OK");
    assert_string_equal(ask(cluster.clients[1], "GET %s", key), "before");
    process_signal(cluster.computes[1], SIGSTOP);
    uint64_t begun = now_ns();
    const char *said;
    do /* the fabric's time-out may end it before the lease does */
        said = ask(cluster.clients[0], "SET %s meanwhile", key);
    while (!strncmp(said, "-CLUSTERDOWN", 12) && now_ns() - begun < 60 * SECOND);
    printf("a hanging owner's range answers a write again after %.1f ms; its lease is " HANGING_LEASE " ms\n",
           (double)(now_ns() - begun) / 1e6);
    if (!strncmp(said, "-UNKNOWN", 8)) /* it may have been done before the hang */
        said = ask(cluster.clients[0], "SET %s meanwhile", key);
    assert_string_equal(said, "OK");
    process_signal(cluster.computes[1], SIGCONT);
    /* It finds its connections lost, and opens them again. */
    assert_string_equal(ask_while_down(cluster.clients[1], "GET %s", key), "meanwhile");
    assert_string_equal(ask_while_down(cluster.clients[1], "APPEND %s !", key), "10");
    wait_divided(&cluster, 2);
    assert_string_equal(ask(cluster.clients[0], "GET %s", key), "meanwhile!");
    cluster_close(&cluster);
}

/* A write that its owner does not hear of: refused by the owner's name (or of unknown outcome, where it was
 * sent) within the time-out of 4 s and what a busy machine takes. */
static void set_far(struct cluster *cluster, const char *key, const char *value, const char *wanted,
                    unsigned id)
{
    uint64_t begun = now_ns();
    const char *answer = ask(cluster->clients[0], "SET %s %s", key, value);
    uint64_t took = now_ns() - begun;
    if (strncmp(answer, wanted, strlen(wanted)) != 0 || !strstr(answer, text_of("compute node %u ", id)) ||
        took > 30 * SECOND)
        fail_msg("SET %s: '%s' after %.1f ms, wanted '%s' and compute node %u", key, answer,
                 (double)took / 1e6, wanted, id);
}

/* An owner that lives, and that other nodes cannot call: reads of its ranges go on, writes are refused in
 * time, by its name; all other ranges go on. */
static void test_out_of_reach(void **state)
{
    struct cluster cluster;
    cluster_open(&cluster, *state);
    const char *path = keep(scene_path(cluster.scene, "peer.sock"));
    compute_start(&cluster, 0, "--timeout", "4000");
    fill(cluster.clients[0]);
    compute_start(&cluster, 1, "--peers", keep(text_of("unix:%s", path)));
    struct proxy *proxy = proxy_start_before(path);
    wait_divided(&cluster, 2);
    const unsigned id = id_of(&cluster, 1);
    const char *key = key_owned(&cluster, id), *other = key_owned(&cluster, id_of(&cluster, 0));
    assert_string_equal(ask(cluster.clients[1], "SET %s near", key), "OK");
    proxy_hold(proxy, true);
    assert_string_equal(ask(cluster.clients[0], "GET %s", key), "near");
    set_far(&cluster, key, "far", "-CLUSTERDOWN ", id); /* there is no connection yet */
    assert_string_equal(ask(cluster.clients[0], "GET %s", key), "near");
    assert_string_equal(ask(cluster.clients[0], "SET %s far", other), "OK");
    assert_string_equal(ask(cluster.clients[1], "SET %s far", other), "OK");
    assert_true(figure(cluster.clients[0], "ranges_unreachable") > 0);
    proxy_hold(proxy, false);
    assert_string_equal(ask(cluster.clients[0], "SET %s again", key), "OK");
    assert_string_equal(ask(cluster.clients[1], "GET %s", key), "again");
    proxy_hold(proxy, true);
    set_far(&cluster, key, "once", "-UNKNOWN ", id);
    proxy_hold(proxy, false);
    assert_string_equal(ask(cluster.clients[0], "SET %s more", key), "OK");
    assert_string_equal(ask(cluster.clients[1], "GET %s", key), "more");
    proxy_cut(proxy);
    assert_string_equal(ask(cluster.clients[0], "APPEND %s !", key), "5");
    assert_int_equal(figure(cluster.clients[0], "ownership_takeovers"), 0);
    cluster_close(&cluster);
    proxy_stop(proxy);
}

/* A node that answers no calls would keep the others from writing what it owned. */
static void test_mute(void **state)
{
    struct cluster cluster;
    cluster_start(&cluster, *state, 1);
    compute_start(&cluster, 1, "--peers", "off");
    char *said = process_errors(cluster.scene, cluster.computes[1]);
    assert_contains(said, "other compute nodes cannot forward to this one (peers is off): it owns no ranges");
    free(said);
    set(cluster.clients[1], 1, "mute");
    assert_string_equal(ask(cluster.clients[0], "GET key:000001"), "mute");
    assert_int_equal(figure(cluster.clients[1], "ownership_ranges_owned"), 0);
    assert_true(figure(cluster.clients[1], "forwarded_writes") > 0);
    cluster_close(&cluster);
}

static void test_ranges(void **state)
{
    struct cluster cluster;
    cluster_start(&cluster, *state, 2);
    unsigned first = id_of(&cluster, 0);
    json_t *json = list_ranges(&cluster), *range;
    size_t i, count = json_array_size(json_object_get(json, "ranges"));
    json_int_t keys = 0;
    json_array_foreach(json_object_get(json, "ranges"), i, range)
    {
        keys += json_integer_value(json_object_get(range, "keys"));
        assert_string_equal(json_string_value(json_object_get(range, "index")), "redis");
        assert_true(json_is_object(json_object_get(range, "owner")));
    }
    assert_int_equal(keys, KEYS);
    assert_int_equal(json_array_size(json_object_get(json, "processes")), 3); /* with the one that asks */
    json_decref(json);
    run_ranges(&cluster, "split", "redis", "key:001234x", NULL, NULL);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "begins at key:001234x now");
    json = list_ranges(&cluster);
    assert_int_equal(json_array_size(json_object_get(json, "ranges")), count + 1);
    json_decref(json);
    run_ranges(&cluster, "move", "redis", "key:001234x", "--to", keep(text_of("%u", first)));
    assert_int_equal(result.code, 0);
    assert_contains(result.output, text_of("compute node %u", first));
    run_ranges(&cluster, "list", NULL, NULL, NULL, NULL);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "key:001234x");
    assert_contains(result.output, "COMPUTE");
    assert_string_equal(ask(cluster.clients[1], "SET key:001234xyz 1"), "OK");
    run_ranges(&cluster, "share", "redis", "key:001234x", NULL, NULL);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "became shared");
    run_ranges(&cluster, "list", NULL, NULL, NULL, NULL);
    assert_contains(result.output, "shared");
    assert_string_equal(ask(cluster.clients[0], "SET key:001234xyz 2"), "OK");
    assert_string_equal(ask(cluster.clients[1], "GET key:001234xyz"), "2");
    run_ranges(&cluster, "move", "redis", "--to", keep(text_of("%u", first)), NULL);
    assert_int_equal(result.code, 0);
    run_ranges(&cluster, "merge", "redis", "key:001234x", NULL, NULL);
    assert_int_equal(result.code, 0);
    run_ranges(&cluster, "list", "redis", NULL, NULL, NULL);
    assert_lacks(result.output, "key:001234x");
    for (int key = 0; key < KEYS; key += 100)
        set(cluster.clients[1], key, "moved");
    demand_sound(&cluster);
    process_run(cluster.scene, NULL,
                ARGUMENTS("top", "--once", "--json", address_text(cluster.computes[0], 0)), &result);
    assert_contains(result.output, "\"ownership\": \"ranges\"");
    assert_contains(result.output, "\"budget_bytes\": 67108864");
    cluster_close(&cluster);
}

/* What is cached of owned ranges is counted by kind: one key that is read over and over is a hit of its leaf,
 * or of its entry. */
static void expect_cached(redisContext *client)
{
    unsigned long long leaves = 0, entries = 0;
    for (unsigned i = 0; i < 50; i++)
        assert_string_equal(ask(client, "GET key:000007"), "first-7");
    const char *info = ask(client, "INFO cache"), *line = strstr(info, "\ncache_leaves:");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "\ncache_leaves:bytes=%*u,hits=%llu", &leaves), 1);
    line = strstr(info, "\ncache_entries:");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "\ncache_entries:bytes=%*u,hits=%llu", &entries), 1);
    if (leaves + entries < 20)
        fail_msg("of 50 lookups %llu found a leaf and %llu an entry: %s", leaves, entries, info);
}

static void test_views(void **state)
{
    struct cluster cluster;
    cluster_open(&cluster, *state);
    compute_start(&cluster, 0, "--http", "127.0.0.1:0");
    fill(cluster.clients[0]);
    expect_cached(cluster.clients[0]);
    const char *address = process_http(cluster.computes[0]);
    char *page = http_get(address, "/", NULL), *metrics = http_get(address, "/metrics", NULL);
    assert_contains(page, "<h2>Ownership</h2>");
    assert_contains(metrics, "banyan_ownership{kind=\"ranges\"} 1");
    assert_contains(metrics, "\nbanyan_ranges_owned ");
    assert_contains(metrics, "\nbanyan_read_lease_lapses_total ");
    assert_contains(metrics, "\nbanyan_cache_hits_total{kind=\"leaves\"} ");
    assert_contains(page, "<h2>Cache of the index");
    free(page);
    free(metrics);
    assert_contains(ask(cluster.clients[0], "CONFIG GET own"), "(array)");
    process_run(cluster.scene, NULL, ARGUMENTS("top", "--once", address_text(cluster.computes[0], 0)),
                &result);
    assert_contains(result.output, "ownership");
    assert_contains(result.output, "lapses");
    assert_contains(result.output, "entries MiB");
    assert_int_equal(process_stop(cluster.computes[0]), 0);
    redisFree(cluster.clients[0]);
    cluster.clients[0] = NULL;
    struct process *serve =
        process_start(cluster.scene, "serve", ARGUMENTS("serve", "--listen", "127.0.0.1:0", "--size", "64M"));
    redisContext *client = client_of(serve, 0);
    assert_contains(ask(client, "INFO ownership"), "ownership:all");
    redisFree(client);
    process_stop(serve);
    process_restart(cluster.scene, serve,
                    ARGUMENTS("serve", "--listen", "127.0.0.1:0", "--size", "64M", "--own", "none"));
    client = client_of(serve, 0);
    assert_contains(ask(client, "INFO ownership"), "ownership:none");
    redisFree(client);
    cluster_close(&cluster);
}

/* Each of these is told what is possible, and nothing is done. */
static void refuse(struct scene *scene, const char *const *arguments, int code, const char *wanted)
{
    process_run(scene, NULL, arguments, &result);
    if (result.code != code || !strstr(result.error, wanted))
        fail_msg("%s %s: %d, wanted %d with '%s'\n%s", arguments[0], arguments[1], result.code, code, wanted,
                 result.error);
}

static void test_bad_input(void **state)
{
    struct cluster cluster;
    struct scene *scene = *state;
    cluster_start(&cluster, scene, 1);
    const char *memory = cluster.memory;
#define COMPUTE(...) ARGUMENTS("compute", "--memory", memory, "--listen", "127.0.0.1:0", __VA_ARGS__)
#define RANGES(...)  ARGUMENTS("ranges", "--memory", memory, __VA_ARGS__)
    refuse(scene, COMPUTE("--own", "some"), 2, "auto");
    refuse(scene, COMPUTE("--read-lease", "5"), 2, "10");
    refuse(scene, COMPUTE("--read-lease", "50000"), 2, "10");
    refuse(scene, COMPUTE("--peer-threads", "0"), 2, "1");
    refuse(scene, COMPUTE("--cache-policy", "lru"), 2, "dinomo");
    refuse(scene, COMPUTE("--admission", "1.5"), 2, "0 to 1");
    refuse(scene, COMPUTE("--cache-size", "1"), 2, "cache-size");
    refuse(scene, COMPUTE("--peers", "no such host:x"), 2, "peers");
    refuse(scene, COMPUTE("--peers", "0.0.0.0:0"), 2, "open to the network");
    refuse(scene, ARGUMENTS("serve", "--own", "some"), 2, "none");
    refuse(scene, RANGES("fly"), 2, "split");
    refuse(scene, RANGES("split", "redis"), 2, "a key");
    refuse(scene, RANGES("split", "redis", "a\\y"), 2, "hexadecimal");
    for (int length = 254; length <= 256; length++) { /* 255: the longest key; a bound has two bytes less */
        refuse(scene, RANGES("split", "redis", keep(text_of("%0*d", length, 7))), 2, "is longer than");
        refuse(scene, RANGES("merge", "redis", keep(text_of("%0*d", length, 7))), 2, "is longer than");
    }
    refuse(scene, RANGES("split", "nosuch", "a"), 1, "no index named 'nosuch'");
    refuse(scene, RANGES("split", "banyan:ranges", "a"), 2, "map");
    refuse(scene, RANGES("list", "nosuch"), 1, "nosuch");
    refuse(scene, RANGES("merge", "redis", "no-range-begins-here"), 1, "");
    refuse(scene, RANGES("move", "redis"), 2, "--to");
    refuse(scene, RANGES("move", "redis", "--to", "70000"), 2, "65535");
    refuse(scene, RANGES("move", "redis", "--to", "999"), 1, "999");
    refuse(scene, RANGES("share", "redis", "--to", "1"), 2, "share");
    refuse(scene, RANGES("list", "--part", "500"), 2, "move and share");
    refuse(scene, ARGUMENTS("ranges"), 2, "memory");
    refuse(scene, ARGUMENTS("drop", "--memory", memory, "--yes", "banyan:ranges"), 2, "map");
#undef COMPUTE
#undef RANGES
    assert_string_equal(ask(cluster.clients[0], "GET key:000001"), "first-1");
    cluster_close(&cluster);
}

/* ---- measuring ---- */

static void put_far(struct cluster *cluster)
{
    for (unsigned i = 0; i < 2; i++) {
        char one[NET_TEXT_MAX];
        struct net_address address = process_address(&cluster->scene->processes[i], 0);
        size_t used = strlen(cluster->far);
        cluster->proxies[i] = proxy_start(&address);
        address = proxy_address(cluster->proxies[i]);
        snprintf(cluster->far + used, sizeof cluster->far - used, "%s%s", i ? "," : "",
                 net_address_format(&address, one));
    }
}

static void measure_fate(struct cluster *cluster, struct scene *scene, enum fate fate, unsigned rounds)
{
    cluster_open(cluster, scene);
    if (fate == FATE_CUT)
        put_far(cluster);
    if (fate == FATE_STOP)
        cluster->lease = "1000";
    compute_start(cluster, 0, NULL, NULL);
    fill(cluster->clients[0]);
    compute_start(cluster, 1, NULL, NULL);
    wait_divided(cluster, 2);
    lose_owners(cluster, fate, rounds);
}

static uint64_t longest_of(struct load *load)
{
    uint64_t longest = 0;
    for (unsigned i = 0; i < LOAD_SERVERS; i++) {
        struct load_figures figures;
        load_figures(load, i, &figures);
        if (figures.refused + figures.unknown + figures.disconnected)
            fail_msg("requests failed: %s", figures.refusal);
        longest = figures.longest_ns > longest ? figures.longest_ns : longest;
    }
    return longest;
}

/* Half of what `from` owns becomes `to`'s; returns how long the transfer took. */
static uint64_t move_half(struct cluster *cluster, const char *from, const char *to)
{
    process_run(cluster->scene, NULL,
                ARGUMENTS("ranges", "--memory", cluster->memory, "move", "redis", "--from", from, "--part",
                          "500", "--to", to),
                &result);
    const char *took = strstr(result.output, ", in ");
    if (result.code || !took)
        fail_msg("move: %d\n%s%s", result.code, result.output, result.error);
    return (uint64_t)(strtod(took + strlen(", in "), NULL) * 1e6);
}

/* Half of one compute node's ranges go to the other one, then half of that one's, and so on, while clients of
 * both are served; what the clients know of their keys tells whether something was lost. */
static void measure_move(struct cluster *cluster, struct scene *scene, unsigned rounds)
{
    uint64_t *times = calloc(rounds, sizeof *times), *waits = calloc(rounds, sizeof *waits),
             *calm = calloc(rounds, sizeof *calm);
    assert_true(times && waits && calm);
    cluster_start(cluster, scene, 2);
    const struct load_options options = {
        .servers = {process_address(cluster->computes[0], 0), process_address(cluster->computes[1], 0)},
        .threads = 3,
        .keys = 120,
        .seed = 1};
    struct load *load = load_start(&options);
    load_advance(load, 1000);
    for (unsigned i = 0; i < rounds; i++) {
        const char *from = keep(text_of("%u", id_of(cluster, i % 2)));
        const char *to = keep(text_of("%u", id_of(cluster, 1 - i % 2)));
        load_forget_longest(load);
        load_advance(load, 200);
        calm[i] = longest_of(load);
        load_forget_longest(load);
        times[i] = move_half(cluster, from, to);
        load_advance(load, 200);
        waits[i] = longest_of(load);
        load_next_epoch(load);
    }
    load_pause(load);
    load_verify(load);
    load_stop(load);
    print_times("move: half of an owner's ranges were the other's after", times, rounds);
    print_times("move: the longest request of a round took", waits, rounds);
    print_times("move: the longest request of 200 at each server without a move took", calm, rounds);
    free(times);
    free(waits);
    free(calm);
}

static int measure(const char *what, const char *rounds)
{
    struct scene scene;
    struct cluster cluster;
    const char *const *fate = fates;
    const unsigned count = (unsigned)strtoul(rounds, NULL, 10);
    while (*fate && strcmp(*fate, what) != 0)
        fate++;
    if (!count || (!*fate && strcmp(what, "move") != 0)) {
        fprintf(stderr, "test_ownership takes kill, cut, stop or move, and a number of rounds\n");
        return 2;
    }
    scene_open(&scene);
    if (*fate)
        measure_fate(&cluster, &scene, (enum fate)(fate - fates), count);
    else
        measure_move(&cluster, &scene, count);
    cluster_close(&cluster);
    scene_close(&scene);
    for (unsigned i = 0; i < 2; i++)
        proxy_stop(cluster.proxies[i]);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scene_set_up, scene_tear_down)

int main(int count, char **arguments)
{
    if (count == 3)
        return measure(arguments[1], arguments[2]);
    const struct CMUnitTest tests[] = {
        TEST(test_any_node),     TEST(test_leave), TEST(test_kill),      TEST(test_hang),  TEST(test_ranges),
        TEST(test_out_of_reach), TEST(test_mute),  TEST(test_bad_input), TEST(test_views),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests_name("ownership", tests, NULL, NULL);
}
