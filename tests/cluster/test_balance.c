/*
 * test_balance.c - `banyan balance` on a cluster of real processes: what it tells, what it refuses, a memory
 * node that is emptied beside two compute nodes that divide the ranges, until nothing is there, taken back,
 * and evened out; and the same with deaths at several places of it: of the process that moves, of an owner of
 * ranges, and of both. (store_drain_sim has deaths at each of their commands.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "cluster/process.h"
#include "cluster/talk.h"

#define KEYS 3000u

static struct process_result result;

static void balance(struct scene *scene, const char *memory, const char *one, const char *two,
                    const char *three)
{
    process_run(scene, NULL, ARGUMENTS("balance", "--memory", memory, one, two, three), &result);
}

/* Of one that was spawned; less than a pipe holds. */
static void result_of(struct process *balancer)
{
    result.code = process_wait(balancer);
    const ssize_t length = read(balancer->output, result.output, sizeof result.output - 1);
    assert_true(length >= 0);
    result.output[length] = '\0';
}

static json_int_t figure_of(const char *object, const char *name)
{
    json_t *told = json_loads(result.output, 0, NULL);
    const json_int_t figure = json_integer_value(json_object_get(json_object_get(told, object), name));
    json_decref(told);
    return figure;
}

static void refused(struct scene *scene, const char *memory, const char *one, const char *two,
                    const char *part)
{
    balance(scene, memory, one, two, NULL);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, part);
}

/* Some are too long for a slot. */
static const char *key_of(unsigned number)
{
    return number % 3 ? text_of("key%05u", number)
                      : text_of("key%05u-of-those-that-are-too-long-for-a-slot-and-lie-in-a-block", number);
}

static void keys_set(redisContext *client)
{
    char value[500];
    memset(value, 'v', sizeof value);
    value[sizeof value - 1] = '\0';
    for (unsigned i = 0; i < KEYS; i++)
        assert_string_equal(ask(client, "SET %s %u-%s", key_of(i), i, value), "OK");
}

static void expect_all(redisContext *client)
{
    for (unsigned i = 0; i < KEYS; i++)
        assert_string_equal(ask(client, "GETRANGE %s 0 %d", key_of(i), (int)strlen(text_of("%u", i))),
                            text_of("%u-", i));
}

/* ---- a cluster ---- */

struct cluster {
    struct scene *scene;
    struct process *nodes[3], *computes[2];
    redisContext *clients[2];
    const char *memory, *log;
    bool owner;      /* compute node 1 alone owns ranges, and is fenced for its silence */
    uint64_t wanted; /* bytes in use on memory node 2 */
};

static uint64_t figure_at(const char *line, const char *name)
{
    const char *at = line ? strstr(line, name) : NULL;
    assert_non_null(at);
    return strtoull(at + strlen(name), NULL, 10);
}

/* What memory node 2 has in use beside logs, as a compute node knows; 0: it cannot ask it just now. */
static uint64_t used_there(struct cluster *cluster)
{
    char *text = info_text(cluster->clients[0], "banyan");
    const char *line = strstr(text, "memory_node2:");
    const uint64_t used = figure_at(line, "used_bytes=") - figure_at(line, "log_bytes=");
    free(text);
    return used;
}

static bool is_known(void *context)
{
    struct cluster *cluster = context;
    return (cluster->wanted = used_there(cluster)) > 0;
}

static bool is_less(void *context)
{
    struct cluster *cluster = context;
    const uint64_t used = used_there(cluster);
    return used && used <= cluster->wanted;
}

static bool divided(void *context)
{
    struct cluster *cluster = context;
    for (unsigned i = cluster->owner; i < 2; i++)
        if (!info_figure(cluster->clients[i], "ownership", "ownership_ranges_owned"))
            return false;
    return true;
}

static void compute_start(struct cluster *cluster, unsigned i, bool again)
{
    const char *const *arguments =
        ARGUMENTS("compute", "--memory", cluster->memory, "--listen", "127.0.0.1:0", "--log",
                  cluster->log ? cluster->log : "none", "--own", cluster->owner && !i ? "none" : "auto",
                  "--lease", cluster->owner && i ? "3000" : "20000", i || again ? NULL : "--format");
    if (again)
        process_restart(cluster->scene, cluster->computes[i], arguments);
    else
        cluster->computes[i] = process_start(cluster->scene, keep(text_of("compute-%u", i)), arguments);
    cluster->clients[i] = client_of(cluster->computes[i], 0);
}

static void cluster_open(struct cluster *cluster, struct scene *scene)
{
    cluster->scene = scene;
    for (unsigned i = 0; i < 3; i++)
        cluster->nodes[i] = process_start(scene, keep(text_of("memory-%u", i)),
                                          ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    cluster->memory = keep(text_of("%s,%s,%s", address_text(cluster->nodes[0], 0),
                                   address_text(cluster->nodes[1], 0), address_text(cluster->nodes[2], 0)));
    for (unsigned i = 0; i < 2; i++) {
        compute_start(cluster, i, false);
        if (!i)
            keys_set(cluster->clients[0]);
    }
    wait_until(divided, cluster, "the compute nodes have ranges");
}

static void cluster_close(struct cluster *cluster, struct scene *scene, bool emptied)
{
    for (unsigned i = 0; i < 2; i++) {
        redisFree(cluster->clients[i]);
        assert_int_equal(process_stop(cluster->computes[i]), 0);
    }
    process_run(scene, NULL, ARGUMENTS("check", "--memory", cluster->memory, "--reclaim"), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "sound");
    if (emptied) { /* whatever was lost with those that were killed is there no more */
        process_run(scene, NULL,
                    ARGUMENTS("balance", "--memory", cluster->memory, "--drain", "2", "--run", "--json"),
                    &result);
        assert_int_equal(result.code, 0);
        assert_contains(result.output, "\"complete\": true");
        assert_contains(result.output, "\"rest_bytes\": 0");
        process_run(scene, NULL, ARGUMENTS("check", "--memory", cluster->memory, "--json"), &result);
        assert_contains(result.output, "\"sound\": true");
        assert_contains(result.output, "\"blocks_lost\": 0,");
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(process_stop(cluster->nodes[i]), 0);
}

/* ---- what is done ---- */

static void a_memory_node_is_emptied(void **state)
{
    struct scene *scene = *state;
    struct cluster cluster = {.wanted = 0};
    cluster_open(&cluster, scene);
    const char *memory = cluster.memory;

    process_run(scene, NULL, ARGUMENTS("balance", "--memory", memory, "--measure", "0.2"), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "to move:");
    assert_contains(result.output, "commands/s");
    assert_string_equal(result.error, ""); /* no terminal, no progress */
    process_run(scene, NULL, ARGUMENTS("balance", "--memory", memory, "--measure", "0", "--json"), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "\"commands_per_second\": null");
    assert_contains(result.output, "\"to_move\"");
    assert_contains(result.output, "\"complete\": false");
    refused(scene, memory, "--drain", "0", "home");
    refused(scene, memory, "--drain", "7", "7");
    refused(scene, memory, "--drain", "x", "is not the number of a memory node");
    refused(scene, memory, "--keep", "7", "there is no memory node 7");

    /* Beside two that are at work, and hold some of it back: it waits for that. */
    process_run(scene, NULL, ARGUMENTS("balance", "--memory", memory, "--drain", "2", "--run", "--json"),
                &result);
    if (result.code)
        fail_msg("%s%s", result.output, result.error);
    assert_contains(result.output, "\"rest_bytes\": 0");
    assert_contains(result.output, "\"complete\": true");
    expect_all(cluster.clients[1]);
    keys_set(cluster.clients[1]);
    process_run(scene, NULL, ARGUMENTS("balance", "--memory", memory, "--measure", "0"), &result);
    assert_contains(result.output, "hands out nothing");
    balance(scene, memory, "--keep", "2", NULL);
    assert_int_equal(result.code, 0);
    balance(scene, memory, "--run", NULL, NULL);
    assert_in_range(result.code, 0, 1); /* a first leaf of a range may stay */
    assert_contains(result.output, "moved: ");
    expect_all(cluster.clients[0]);
    cluster_close(&cluster, scene, false);
    scene->passed = true;
}

#define DEATHS 3u

static bool is_known_of(void *context)
{
    void *const *both = context;
    return is_known(both[0]);
}

/* One that has ended may have left nothing there. */
static bool is_known_or_ended(void *context)
{
    void *const *both = context;
    return is_known_of(context) || process_ended(both[1]);
}

/* While nobody looked more may have left than an eighth; and what was lost with those that were killed stays.
 */
static bool is_less_or_ended(void *context)
{
    void *const *both = context;
    return is_less(both[0]) || process_ended(both[1]);
}

/* The owner dies, or what moves, or both, whenever an eighth more has left; an owner comes back. What they
 * had begun is ended by those that meet it, and the process that moves goes on without the owner. */
static void killed_it_is_finished(void **state, bool mover, bool owner, const char *log)
{
    struct scene *scene = *state;
    struct cluster cluster = {.log = log};
    cluster_open(&cluster, scene);
    struct process *balancer = process_place(scene, "balance");
    wait_until(is_known, &cluster, "memory node 2 tells what it has");
    const uint64_t part = cluster.wanted / 8;
    void *both[] = {&cluster, balancer};
    for (unsigned i = 0; i < DEATHS; i++) {
        wait_until(mover || !i ? is_known_of : is_known_or_ended, both, "memory node 2 tells what it has");
        cluster.wanted -= part < cluster.wanted ? part : cluster.wanted;
        if (mover || !i)
            process_spawn(scene, balancer,
                          ARGUMENTS("balance", "--memory", cluster.memory, "--drain", "2", "--run", "--rate",
                                    mover ? "1000000" : "300000"));
        wait_until(is_less_or_ended, both, "something has left memory node 2");
        if (process_ended(balancer)) {
            assert_true(i > 0);
            mover = false; /* it needs no other one */
            break;
        }
        if (owner) {
            redisFree(cluster.clients[1]);
            process_kill(cluster.computes[1]);
        }
        if (mover)
            assert_int_equal(process_kill(balancer), 128 + SIGKILL);
        expect_all(cluster.clients[owner ? 0 : i % 2]);
        if (owner)
            compute_start(&cluster, 1, true);
    }
    if (mover)
        balance(scene, cluster.memory, "--drain", "2", "--run");
    else
        result_of(balancer);
    assert_in_range(result.code, 0, 1); /* 1: blocks were lost with those that were killed */
    assert_contains(result.output, "memory node 2 has");
    assert_lacks(result.output, "not moved");
    assert_lacks(result.output, "not tried");
    expect_all(cluster.clients[1]);
    cluster_close(&cluster, scene, true);
    scene->passed = true;
}

static void the_mover_killed_it_is_finished(void **state)
{
    killed_it_is_finished(state, true, false, NULL);
}

static void an_owner_killed_it_is_finished(void **state)
{
    killed_it_is_finished(state, false, true, NULL);
}

static void both_killed_it_is_finished(void **state)
{
    killed_it_is_finished(state, true, true, "auto");
}

/* What was asked of the owner when it stopped has no known outcome; what is asked later waits until its
 * ranges are another's. */
static void what_a_stopped_owner_leaves_unknown_is_told(void **state)
{
    struct scene *scene = *state;
    struct cluster cluster = {.owner = true};
    cluster_open(&cluster, scene);
    struct process *balancer = process_place(scene, "balance");
    wait_until(is_known, &cluster, "memory node 2 tells what it has");
    cluster.wanted -= cluster.wanted / 3; /* all nodes, for which the owner was asked, and some records */
    process_spawn(scene, balancer,
                  ARGUMENTS("balance", "--memory", cluster.memory, "--drain", "2", "--run", "--json",
                            "--rate", "300000"));
    wait_until(is_less, &cluster, "something has left memory node 2");
    process_signal(cluster.computes[1], SIGSTOP);
    result_of(balancer);
    assert_in_range(result.code, 0, 1); /* 1: blocks that the owner held back */
    assert_true(figure_of("moved", "records_unknown") > 0);
    assert_contains(result.output, "\"records\": 0,");
    assert_contains(result.output, "\"indexes\": 0\n");
    redisFree(cluster.clients[1]);
    process_kill(cluster.computes[1]);
    expect_all(cluster.clients[0]);
    compute_start(&cluster, 1, true);
    cluster_close(&cluster, scene, true);
    scene->passed = true;
}

/* ---- load ---- */

#define HOT 8u /* keys, each in a leaf of its own */
#define PLAIN                                                                                                \
    12000u /* keys, so many that some hot leaves are no more than a twentieth of a memory node's bytes */
#define AT_ONCE 256u /* commands of a client */

static const char *plain_key(char set, unsigned number)
{
    return text_of("%c%05u", set, number);
}

static void plain_keys_set(redisContext *client, char set, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_string_equal(ask(client, "SET %s %06u", plain_key(set, i), i), "OK");
}

/* A process that writes the hot keys for ever. */
static pid_t load_begin(const struct process *compute)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child)
        return child;
    redisContext *client = client_of(compute, 0);
    for (unsigned i = 0;; i++) {
        redisReply *reply = NULL;
        for (unsigned j = 0; j < AT_ONCE; j++)
            redisAppendCommand(client, "SET %s %06u", plain_key('a', (i + j) % HOT * (PLAIN / HOT)), j);
        for (unsigned j = 0; j < AT_ONCE; j++) {
            if (redisGetReply(client, (void **)&reply) != REDIS_OK)
                _exit(0); /* the compute node ends */
            freeReplyObject(reply);
        }
    }
}

static double commands_of(unsigned node)
{
    json_t *told = json_loads(result.output, 0, NULL);
    const double commands = json_real_value(
        json_object_get(json_array_get(json_object_get(told, "memory_nodes"), node), "commands_per_second"));
    json_decref(told);
    return commands;
}

/* All that is written lies on one of two memory nodes that have as many bytes. */
static void load_is_evened_out(void **state)
{
    struct scene *scene = *state;
    struct process *nodes[2];
    for (unsigned i = 0; i < 2; i++)
        nodes[i] = process_start(scene, keep(text_of("memory-%u", i)),
                                 ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    const char *memory = keep(text_of("%s,%s", address_text(nodes[0], 0), address_text(nodes[1], 0)));
    struct process *compute = process_start(
        scene, "compute",
        ARGUMENTS("compute", "--memory", memory, "--listen", "127.0.0.1:0", "--threads", "1", "--format"));
    redisContext *client = client_of(compute, 0);
    balance(scene, memory, "--drain", "1", "--run");
    assert_int_equal(result.code, 0);
    plain_keys_set(client, 'a', PLAIN);
    balance(scene, memory, "--keep", "1", NULL);
    plain_keys_set(client, 'b', PLAIN);

    const pid_t load = load_begin(compute);
    /* Whenever the load has begun, and for as long as it takes to meet the hot leaves a few times: memory
     * nodes note one command of 61. */
    unsigned tenths = 5; /* of a second; at the end twice of what was needed */
    do {
        balance(scene, memory, "--json", "--measure", text_of("%u.%u", tenths / 10, tenths % 10));
        assert_int_equal(result.code, 0);
        tenths = commands_of(0) < 1000 || tenths > 200 ? tenths : 2 * tenths;
    } while (commands_of(0) < 1000 || !figure_of("to_move", "load_nodes"));
    assert_true(commands_of(1) < commands_of(0) / 4);
    assert_true(figure_of("to_move", "load_nodes") > 0);
    /* A run moves what it has met in its own measuring, which is less than is hot where the clients did
     * little then: so again, until both memory nodes have their share. */
    json_int_t moved = 0;
    do {
        process_run(scene, NULL,
                    ARGUMENTS("balance", "--memory", memory, "--json", "--run", "--measure",
                              text_of("%u.%u", tenths / 10, tenths % 10)),
                    &result);
        assert_in_range(result.code, 0, 1);
        moved += figure_of("moved", "load_nodes");
        do /* for as long as it takes the clients to do something */
            balance(scene, memory, "--json", "--measure", text_of("%u.%u", tenths / 10, tenths % 10));
        while (commands_of(0) + commands_of(1) < 1000);
    } while (commands_of(1) <= commands_of(0) / 3);
    assert_true(moved > 0);
    kill(load, SIGKILL);
    assert_int_equal(waitpid(load, NULL, 0), load);
    for (unsigned i = 0; i < PLAIN; i++)
        assert_string_equal(ask(client, "STRLEN %s", plain_key('a', i)), "6");
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    process_run(scene, NULL, ARGUMENTS("check", "--memory", memory), &result);
    assert_contains(result.output, "sound");
    scene->passed = true;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_memory_node_is_emptied, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(the_mover_killed_it_is_finished, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(an_owner_killed_it_is_finished, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(both_killed_it_is_finished, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(what_a_stopped_owner_leaves_unknown_is_told, scene_set_up,
                                        scene_tear_down),
        cmocka_unit_test_setup_teardown(load_is_evened_out, scene_set_up, scene_tear_down),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
