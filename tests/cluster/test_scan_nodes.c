/*
 * test_scan_nodes.c - a SCAN whose calls go to one compute node and another in turn, one of which is killed
 * and started anew under way: its cursors mean the same to all of them. The program is $BANYAN_PROGRAM.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cluster/process.h"

#define KEYS 20000u

static void load(redisContext *context)
{
    for (unsigned i = 0; i < KEYS; i++)
        redisAppendCommand(context, "SET session:0000000000:%06u value-%u", i, i);
    for (unsigned i = 0; i < KEYS; i++) {
        void *reply;
        assert_int_equal(redisGetReply(context, &reply), REDIS_OK);
        assert_string_equal(((redisReply *)reply)->str, "OK");
        freeReplyObject(reply);
    }
}

/* One call; returns the next cursor, which the caller frees. */
static char *scan(redisContext *context, const char *cursor, unsigned *seen)
{
    redisReply *reply = redisCommand(context, "SCAN %s COUNT 100", cursor);
    assert_true(reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
    char *next = strdup(reply->element[0]->str);
    for (size_t i = 0; i < reply->element[1]->elements; i++)
        seen[strtoul(strrchr(reply->element[1]->element[i]->str, ':') + 1, NULL, 10)]++;
    freeReplyObject(reply);
    return next;
}

static void calls_to_any_node(void **state)
{
    static struct scene scene;
    static unsigned seen[KEYS];
    struct process *nodes[2];
    redisContext *contexts[2];
    unsigned calls = 0;
    (void)state;
    scene_open(&scene);
    struct process *memory = process_start(&scene, "memory",
                                           ARGUMENTS("memory", "--listen=127.0.0.1:0", "--size=256M")),
                   *other = process_start(&scene, "other",
                                          ARGUMENTS("memory", "--listen=127.0.0.1:0", "--size=256M"));
    struct net_address first = process_address(memory, 0), second = process_address(other, 0);
    const char *where = text_of("--memory=127.0.0.1:%u,127.0.0.1:%u", first.port, second.port);
    const char *const formats[] = {"compute", "--listen=127.0.0.1:0", "--threads=1", where, "--format", NULL};
    const char *const joins[] = {"compute", "--listen=127.0.0.1:0", "--threads=1", where, NULL};
    nodes[0] = process_start(&scene, "one", formats);
    nodes[1] = process_start(&scene, "two", joins);
    for (unsigned i = 0; i < 2; i++) {
        struct net_address address = process_address(nodes[i], 0);
        contexts[i] = client_connect(&address);
    }
    load(contexts[0]);
    char *cursor = strdup("0");
    do {
        if (calls == 50) {
            redisFree(contexts[1]);
            process_kill(nodes[1]);
            process_restart(&scene, nodes[1], joins);
            struct net_address address = process_address(nodes[1], 0);
            contexts[1] = client_connect(&address);
        }
        char *next = scan(contexts[calls % 2], cursor, seen);
        free(cursor);
        cursor = next;
        calls++;
    } while (strcmp(cursor, "0") != 0 && calls < KEYS);
    assert_string_equal(cursor, "0");
    assert_in_range(calls, 60, KEYS / 100 + 1);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(seen[i], 1);
    free(cursor);
    redisFree(contexts[0]);
    redisFree(contexts[1]);
    scene.passed = true;
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_to_any_node)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
