/*
 * test_balance.c - `banyan balance` on a cluster of real processes: what it tells, what it refuses, a memory
 * node that is emptied beside a compute node that owns all ranges, taken back, and evened out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cluster/process.h"
#include "cluster/talk.h"

#define KEYS 3000u

static struct process_result result;

static void balance(struct scene *scene, const char *memory, const char *one, const char *two,
                    const char *three)
{
    process_run(scene, NULL, ARGUMENTS("balance", "--memory", memory, one, two, three), &result);
}

static void refused(struct scene *scene, const char *memory, const char *one, const char *two,
                    const char *part)
{
    balance(scene, memory, one, two, NULL);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, part);
}

static void keys_set(redisContext *client)
{
    char value[500];
    memset(value, 'v', sizeof value);
    value[sizeof value - 1] = '\0';
    for (unsigned i = 0; i < KEYS; i++)
        assert_string_equal(ask(client, "SET key%05u %u-%s", i, i, value), "OK");
}

static void expect_all(redisContext *client)
{
    for (unsigned i = 0; i < KEYS; i++)
        assert_string_equal(ask(client, "GETRANGE key%05u 0 %d", i, (int)strlen(text_of("%u", i))),
                            text_of("%u-", i));
}

static void a_memory_node_is_emptied(void **state)
{
    struct scene *scene = *state;
    struct process *nodes[3];
    for (unsigned i = 0; i < 3; i++)
        nodes[i] = process_start(scene, keep(text_of("memory-%u", i)),
                                 ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    const char *memory = keep(
        text_of("%s,%s,%s", address_text(nodes[0], 0), address_text(nodes[1], 0), address_text(nodes[2], 0)));
    struct process *compute = process_start(
        scene, "compute", ARGUMENTS("compute", "--memory", memory, "--listen", "127.0.0.1:0", "--format"));
    redisContext *client = client_of(compute, 0);
    keys_set(client);

    balance(scene, memory, NULL, NULL, NULL);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "to move:");
    refused(scene, memory, "--drain", "0", "home");
    refused(scene, memory, "--drain", "7", "7");
    refused(scene, memory, "--drain", "x", "is not the number of a memory node");
    refused(scene, memory, "--keep", "7", "there is no memory node 7");

    /* What compute nodes hold in readiness may stay: then the exit status says so. */
    balance(scene, memory, "--drain", "2", "--run");
    assert_in_range(result.code, 0, 1);
    assert_contains(result.output, "memory node 2 has");
    expect_all(client);
    keys_set(client);
    balance(scene, memory, NULL, NULL, NULL);
    assert_contains(result.output, "hands out nothing");
    balance(scene, memory, "--keep", "2", NULL);
    assert_int_equal(result.code, 0);
    balance(scene, memory, "--run", NULL, NULL); /* the first leaf of a range may stay */
    assert_in_range(result.code, 0, 1);
    assert_contains(result.output, "moved: ");
    expect_all(client);

    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    process_run(scene, NULL, ARGUMENTS("check", "--memory", memory, "--reclaim"), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "sound");
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(process_stop(nodes[i]), 0);
    scene->passed = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_memory_node_is_emptied, scene_set_up, scene_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
