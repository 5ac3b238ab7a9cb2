/*
 * test_commands_concurrent.c - the commands about keys from many fibers on several threads at once, on small
 * stacks as in the server: atomic steps are atomic, ranges and scans survive.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "base/thread.h"
#include "commands.h"

const struct server_command *const server_data_tables[] = {server_string_commands, server_bit_commands,
                                                           server_key_commands, server_range_commands, NULL};
#define ROUNDS  300u
#define THREADS 3u
#define FIBERS  4u
#define TASKS   (THREADS * FIBERS)

/* What all tasks share. */
struct shared {
    struct stores stores;
    struct command_table *table;
    uint64_t set_first; /* relaxed counters, read when the tasks have ended */
    uint64_t got_deleted;
};
static struct shared shared;

static void run(struct world_task *task, struct resp_writer *reply, const char *line)
{
    struct resp_argument arguments[8];
    uint32_t count = 0;
    for (const char *at = line; *at && count < 8; at += strspn(at, " ")) {
        arguments[count++] = (struct resp_argument){at, strcspn(at, " ")};
        at += arguments[count - 1].length;
    }
    struct server_call call = {.store = stores_session(task),
                               .reply = reply,
                               .arguments = arguments,
                               .count = count,
                               .now_ms = 1000000};
    call.command = command_table_find(shared.table, arguments[0].bytes, arguments[0].length, NULL);
    reply->length = 0;
    resp_begin(reply);
    command_run(&call);
    resp_end(reply);
    if (reply->length == reply->capacity || *reply->bytes == '-') {
        world_fail(task->world, BANYAN_EABORT, "%s: %.*s", line, (int)reply->length, reply->bytes);
        return;
    }
    reply->bytes[reply->length] = 0;
}

/* Commands that are one atomic step. */
static void atomic_steps(struct world_task *task)
{
    struct resp_writer reply;
    char line[64];
    resp_writer_init(&reply, 2, 0);
    for (unsigned i = 0; i < ROUNDS && !task->world->error.code; i++) {
        run(task, &reply, "INCR counter");
        run(task, &reply, "INCRBYFLOAT float 0.5");
        run(task, &reply, i % 2 ? "DECRBY other 3" : "INCRBY other 5");
        run(task, &reply, "APPEND text 0123456789");
        snprintf(line, sizeof line, "SETNX once:%u v", i);
        run(task, &reply, line);
        if (strcmp(reply.bytes, ":1\r\n") == 0)
            atomic_add_relaxed(&shared.set_first, 1);
        snprintf(line, sizeof line, "SET queue:%u v NX", i % 7);
        run(task, &reply, line);
        bool set = *reply.bytes == '+';
        snprintf(line, sizeof line, "GETDEL queue:%u", i % 7);
        run(task, &reply, line);
        /* Each success of SET NX is taken by one GETDEL, or is still there at the end. */
        uint64_t taken = *reply.bytes == '$' && reply.bytes[1] == '1';
        atomic_add_relaxed(&shared.got_deleted, taken - set);
    }
    resp_writer_free(&reply);
}

/* Long numbers and patterns on a fiber's stack, while keys are added and deleted. */
static void stacks(struct world_task *task)
{
    struct resp_writer reply;
    char line[64];
    resp_writer_init(&reply, 2, 0);
    for (unsigned i = 0; i < ROUNDS / 10 && !task->world->error.code; i++) {
        snprintf(line, sizeof line, "SET n:%u:%u 1e4900", task->number, i);
        run(task, &reply, line);
        snprintf(line, sizeof line, "INCRBYFLOAT n:%u:%u 1e4900", task->number, i);
        run(task, &reply, line);
        run(task, &reply, "KEYS *:[0-9]*:1");
        run(task, &reply, "SCAN 0 MATCH n:*:?* COUNT 50");
        run(task, &reply, "RANGE - + LIMIT 20 VALUES");
        run(task, &reply, "MGET a b c n:0:0 n:1:1 n:2:2 counter");
        snprintf(line, sizeof line, "DELRANGE [n:%u: (n:%u; ", task->number, task->number);
        if (i % 8 == 7)
            run(task, &reply, line);
    }
    resp_writer_free(&reply);
}

/* Each task walks all keys by SCAN while the others do. */
static void scans(struct world_task *task)
{
    struct resp_writer reply;
    char line[64], cursor[32] = "0";
    uint64_t given = 0;
    resp_writer_init(&reply, 2, 0);
    do {
        snprintf(line, sizeof line, "SCAN %s MATCH once:* COUNT 7", cursor);
        run(task, &reply, line);
        const char *at = strchr(reply.bytes + 4, '\n') + 1;
        snprintf(cursor, sizeof cursor, "%.*s", (int)strcspn(at, "\r"), at);
        given += strtoull(strchr(at, '*') + 1, NULL, 10);
    } while (strcmp(cursor, "0") != 0 && !task->world->error.code);
    if (given != ROUNDS)
        world_fail(task->world, BANYAN_EABORT, "SCAN gave %llu keys", (unsigned long long)given);
    resp_writer_free(&reply);
}

static void expect(struct world_task *task, struct resp_writer *reply, const char *line, const char *wanted)
{
    run(task, reply, line);
    if (strcmp(reply->bytes, wanted) != 0)
        world_fail(task->world, BANYAN_EABORT, "%s: %s instead of %s", line, reply->bytes, wanted);
}

static void totals(struct world_task *task)
{
    struct resp_writer reply;
    char text[64], number[32];
    resp_writer_init(&reply, 2, 0);
    int length = snprintf(number, sizeof number, "%u", TASKS * ROUNDS);
    snprintf(text, sizeof text, "$%d\r\n%s\r\n", length, number);
    expect(task, &reply, "GET counter", text);
    length = snprintf(number, sizeof number, "%u", TASKS * ROUNDS / 2);
    snprintf(text, sizeof text, "$%d\r\n%s\r\n", length, number);
    expect(task, &reply, "GET float", text);
    length = snprintf(number, sizeof number, "%u", TASKS * ROUNDS);
    snprintf(text, sizeof text, "$%d\r\n%s\r\n", length, number); /* as often +5 as -3 */
    expect(task, &reply, "GET other", text);
    snprintf(text, sizeof text, ":%u\r\n", TASKS * ROUNDS * 10);
    expect(task, &reply, "STRLEN text", text);
    snprintf(text, sizeof text, ":%llu\r\n", (unsigned long long)(0 - shared.got_deleted));
    expect(task, &reply, "RANGECOUNT [queue: (queue;", text);
    if (shared.set_first != ROUNDS)
        world_fail(task->world, BANYAN_EABORT, "SETNX succeeded %llu times",
                   (unsigned long long)shared.set_first);
    resp_writer_free(&reply);
}

static void commands_together(void **state)
{
    struct world_options options;
    struct error error = {0};
    stores_options_default(&options);
    options.memory_nodes = 2;
    options.threads = THREADS;
    options.fibers = FIBERS;
    options.pool_bytes = UINT64_C(256) << 20;
    memset(&shared, 0, sizeof shared);
    assert_int_equal(stores_create(&shared.stores, &options), 0);
    stores_now(&shared.stores, 1000000);
    assert_int_equal(command_table_create(&shared.table, server_data_tables, &error), 0);
    struct world *world = &shared.stores.world;
    int status = world_run(world, atomic_steps);
    status = status ? status : world_run_one(world, 0, totals);
    status = status ? status : world_run(world, scans);
    status = status ? status : world_run(world, stacks);
    status = status ? status : stores_check(&shared.stores, NULL);
    if (status || world->error.code)
        fail_msg("%d: %s", status, world->error.text);
    command_table_destroy(shared.table);
    stores_destroy(&shared.stores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(commands_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
