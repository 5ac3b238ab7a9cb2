/* test_processes.c - what compute nodes ask the daemon about each other (processes.c), by hand: read leases
 * at the home node and their ends, fencing on request, lists, notices, addresses; and what makes no sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/task.h"
#include "client.h"
#include "memoryd/group_state.h"

#define MS         UINT64_C(1000000)
#define LONG_LEASE 60000u
#define READ_LEASE 400u
#define ONE        UINT64_C(101) /* instances */
#define TWO        UINT64_C(202)

/* A site that is memory node 0. */
static void open_home(struct site *site)
{
    const struct site_options options = {.unformatted = true, .threads = 2};
    const struct wire_format format = {.cluster_id = 77, .number = 0, .node_count = 1};
    struct client formatter;
    assert_int_equal(site_open(site, &options), 0);
    client_connect(&formatter, &site->tcp);
    struct wire_hello hello = client_hello(&formatter, WIRE_FORMATTER, NULL);
    assert_int_equal(client_say_hello(&formatter, &hello, NULL), 0);
    client_message(&formatter, WIRE_FORMAT, 3, &format, sizeof format);
    assert_int_equal(client_take(&formatter, NULL, 0).status, 0);
    client_goodbye(&formatter);
}

/* 0 or the code of the refusal. id 0: the daemon chooses. */
static int join(struct client *control, const struct site *site, uint64_t instance, uint16_t id, bool again,
                const char *peer)
{
    client_connect(control, &site->tcp);
    struct wire_hello hello = client_hello(control, WIRE_CONTROL, NULL);
    hello.instance = instance;
    hello.compute_id = id;
    hello.lease_ms = LONG_LEASE;
    hello.read_lease_ms = READ_LEASE;
    hello.again = again;
    memcpy(hello.peer, peer, strlen(peer));
    int status = client_say_hello(control, &hello, NULL);
    if (status)
        client_close(control);
    else
        assert_int_equal(control->welcome.read_lease_ms, READ_LEASE);
    return status;
}

static int ask_life(struct client *data, enum wire_process_kind kind, uint16_t id, uint64_t instance,
                    uint64_t *life)
{
    const struct wire_process_request request = {
        .kind = (uint32_t)kind, .compute_id = id, .instance = instance, .life = *life};
    struct wire_process_reply reply;
    size_t length = 0;
    int status = client_call(data, &request, sizeof request, &reply, sizeof reply, &length);
    if (status)
        return status;
    assert_int_equal(length, sizeof reply);
    assert_true(reply.done <= 1);
    *life = reply.life;
    return reply.done ? 1 : 0;
}

/* 1: yes; 0: no; else the status. */
static int ask(struct client *data, enum wire_process_kind kind, uint16_t id, uint64_t instance)
{
    uint64_t life = 0;
    return ask_life(data, kind, id, instance, &life);
}

/* Fences it, and waits until nothing of it is left. */
static void fence(struct client *data, uint16_t id, uint64_t instance)
{
    uint64_t life = 0, deadline = task_now() + CLIENT_LIMIT;
    int done;
    while ((done = ask_life(data, WIRE_PROCESS_FENCE, id, instance, &life)) == 0) {
        assert_true(task_now() < deadline);
        task_sleep(MS / 5);
    }
    assert_int_equal(done, 1);
}

static void await_over(struct client *data, uint16_t id, uint64_t instance)
{
    uint64_t deadline = task_now() + CLIENT_LIMIT;
    int over;
    while ((over = ask(data, WIRE_PROCESS_LEASE_OVER, id, instance)) == 0) {
        assert_true(task_now() < deadline);
        task_sleep(MS / 5);
    }
    assert_int_equal(over, 1);
}

/* ---- read leases ---- */

/* A lease lasts for as long as the welcome says from the last heartbeat on, whatever has become of its
 * holder. */
static void test_lasts(void **state)
{
    struct site site;
    struct client one, two, data;
    open_home(&site);
    for (unsigned how = 0; how < 3; how++) {
        assert_int_equal(join(&one, &site, ONE + how, 0, false, ""), 0);
        assert_int_equal(join(&two, &site, TWO, 0, false, ""), 0);
        client_data(&data, &site.tcp, &two);
        uint16_t id = one.welcome.compute_id;
        task_sleep(20 * MS); /* so that a lease from the welcome on would be a shorter one */
        uint64_t sent = task_now();
        client_heartbeat(&one);
        assert_int_equal(ask(&data, WIRE_PROCESS_LEASE_OVER, id, ONE + how), 0);
        if (how == 0)
            fence(&data, id, ONE);
        else if (how == 1)
            client_goodbye(&one);
        else
            client_close(&one); /* a lost connection */
        await_over(&data, id, ONE + how);
        assert_true(task_now() - sent >= READ_LEASE * MS);
        assert_int_equal(ask(&data, WIRE_PROCESS_LEASE_OVER, id, ONE + how), 1);
        if (how == 0)
            client_close(&one);
        client_goodbye(&data);
        client_goodbye(&two);
        site_wait_nodes(&site, 0);
    }
    site_close(&site);
}

/* Its id is nobody else's before, and the process itself may come again at once. */
static void test_ids(void **state)
{
    struct site site;
    struct client one, two, three, data;
    open_home(&site);
    assert_int_equal(join(&one, &site, ONE, 0, false, ""), 0);
    assert_int_equal(join(&two, &site, TWO, 0, false, ""), 0);
    client_data(&data, &site.tcp, &two);
    uint16_t id = one.welcome.compute_id;
    client_heartbeat(&one);
    fence(&data, id, ONE);
    client_close(&one);
    uint64_t deadline = task_now() + CLIENT_LIMIT;
    int status;
    while ((status = join(&three, &site, ONE + 1, id, false, "")) == BANYAN_EBUSY)
        assert_true(task_now() < deadline);
    assert_int_equal(status, 0);
    assert_int_equal(ask(&data, WIRE_PROCESS_LEASE_OVER, id, ONE), 1);
    assert_int_equal(ask(&data, WIRE_PROCESS_LEASE_OVER, id, ONE + 1), 0);
    fence(&data, id, ONE + 1);
    client_close(&three);
    /* The same process, before or after the end of its lease: what it had then is what is asked about. */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(join(&three, &site, ONE + 1, id, true, ""), 0);
        client_heartbeat(&three);
        await_over(&data, id, ONE + 1);
        client_heartbeat(&three);
        assert_int_equal(ask(&data, WIRE_PROCESS_LEASE_OVER, id, ONE + 1), 1);
        fence(&data, id, ONE + 1);
        client_close(&three);
        if (i == 0)
            await_over(&data, id, ONE + 1);
    }
    assert_int_equal(ask(&data, WIRE_PROCESS_LEASE_OVER, id, UINT64_C(999)), 1); /* nobody knows it */
    client_close(&data);
    client_close(&two);
    site_close(&site);
}

/* ---- fencing ---- */

static void test_fences(void **state)
{
    struct site site;
    struct client one, two, one_data, data;
    uint64_t life = 0, other = 0;
    open_home(&site);
    assert_int_equal(join(&one, &site, ONE, 0, false, ""), 0);
    assert_int_equal(join(&two, &site, TWO, 0, false, ""), 0);
    client_data(&one_data, &site.tcp, &one);
    client_data(&data, &site.tcp, &two);
    uint16_t id = one.welcome.compute_id, own = two.welcome.compute_id;
    site_set_lock(&site, 3, id);
    assert_int_equal(ask(&data, WIRE_PROCESS_FENCE, own, TWO), BANYAN_EINVAL);
    assert_int_equal(ask(&data, WIRE_PROCESS_FENCE, own, TWO + 1), 1);
    assert_int_equal(ask(&data, WIRE_PROCESS_FENCE, id, ONE + 1), 1);
    assert_int_equal(ask(&data, WIRE_PROCESS_FENCE, own, ONE), 1);
    life = 4711; /* a life that is over: nothing happens to the present one */
    assert_int_equal(ask_life(&data, WIRE_PROCESS_FENCE, id, ONE, &life), 1);
    client_heartbeat(&one);
    life = 0;
    int done = ask_life(&data, WIRE_PROCESS_FENCE, id, ONE, &life);
    assert_true(life != 0 && done == 0);
    assert_true(client_closed(&one) && client_closed(&one_data));
    client_close(&one);
    client_close(&one_data);
    uint64_t deadline = task_now() + CLIENT_LIMIT;
    while (ask_life(&data, WIRE_PROCESS_FENCE, id, ONE, &life) == 0)
        assert_true(task_now() < deadline);
    assert_int_equal(site_lock(&site, 3), 0);
    assert_int_equal(join(&one, &site, ONE, id, true, ""), 0); /* its next life */
    assert_int_equal(ask_life(&data, WIRE_PROCESS_FENCE, id, ONE, &life), 1);
    client_heartbeat(&one);
    assert_int_equal(ask_life(&data, WIRE_PROCESS_FENCE, id, ONE, &other), 0);
    assert_true(other > life);
    client_close(&one);
    client_close(&data);
    client_close(&two);
    site_close(&site);
}

/* ---- lists, addresses, nonsense ---- */

static int call_bytes(struct client *client, const void *request, size_t length, size_t *reply_length,
                      char reply[WIRE_SMALL_MAX])
{
    *reply_length = 0;
    return client_call(client, request, length, reply, WIRE_SMALL_MAX, reply_length);
}

/* More than one answer has room for: the least ids first, and each once. */
static void test_long_lists(void **state)
{
    static struct memoryd_group groups[10000];
    static struct wire_process_list list;
    struct memoryd_groups all = {0};
    uint32_t connected = 0;
    for (uint32_t i = 0; i < 10000; i++) { /* from 1 to 60,000, in no order; some are fenced */
        const uint32_t at = i * 7919 % 10000;
        groups[i] = (struct memoryd_group){.next = all.first,
                                           .compute_id = (uint16_t)(at < 5000 ? at + 1 : 60001 - (at - 5000)),
                                           .instance = 1 + at,
                                           .state = at % 10 == 3   ? GROUP_FENCED
                                                    : at % 10 == 4 ? GROUP_LEAVING
                                                                   : GROUP_LIVE};
        connected += groups[i].state != GROUP_FENCED;
        all.first = &groups[i];
    }
    uint16_t after = 0;
    for (uint32_t told = 0; told < connected;) {
        uint16_t last = 0;
        memoryd_groups_list(&all, after, &list);
        assert_int_equal(list.total, connected - told);
        assert_in_range(list.count, 1, WIRE_PROCESSES_MAX);
        for (uint32_t i = 0; i < list.count; i++) {
            const struct wire_process *process = &list.processes[i];
            assert_true(process->compute_id > after);
            last = process->compute_id > last ? process->compute_id : last;
        }
        uint32_t there = 0; /* between the two ids: none was passed over */
        for (uint32_t i = 0; i < 10000; i++)
            there += groups[i].state != GROUP_FENCED && groups[i].compute_id > after &&
                     groups[i].compute_id <= last;
        assert_int_equal(list.count, there);
        told += list.count;
        after = last;
    }
    memoryd_groups_list(&all, after, &list);
    assert_true(list.count == 0 && list.total == 0);
}

static void test_answers(void **state)
{
    struct site site;
    struct client one, two, data, monitor;
    static char reply[WIRE_SMALL_MAX];
    size_t length;
    open_home(&site);
    assert_int_equal(join(&one, &site, ONE, 0, false, "tcp://10.0.0.1:7\n1"), 0);
    assert_int_equal(join(&two, &site, TWO, 0, false, ""), 0);
    client_data(&data, &site.tcp, &two);
    client_monitor(&monitor, &site.tcp);
    struct wire_process_request request = {.kind = WIRE_PROCESS_LIST};
    assert_int_equal(call_bytes(&data, &request, sizeof request, &length, reply), 0);
    struct wire_process_list list = {0};
    memcpy(&list, reply, length);
    assert_true(list.count == 2 && list.total == 2);
    assert_int_equal(length, offsetof(struct wire_process_list, processes) + 2 * sizeof list.processes[0]);

    request.compute_id = one.welcome.compute_id; /* those behind it */
    assert_int_equal(call_bytes(&data, &request, sizeof request, &length, reply), 0);
    memcpy(&list, reply, length);
    assert_true(list.count == 1 && list.total == 1);
    assert_int_equal(list.processes[0].compute_id, two.welcome.compute_id);

    request = (struct wire_process_request){
        .kind = WIRE_PROCESS_ADDRESS, .compute_id = one.welcome.compute_id, .instance = ONE};
    assert_int_equal(call_bytes(&data, &request, sizeof request, &length, reply), 0);
    assert_int_equal(length, 16); /* up to what cannot be printed */
    assert_memory_equal(reply, "tcp://10.0.0.1:7", 16);
    request.instance = TWO;
    assert_int_equal(call_bytes(&data, &request, sizeof request, &length, reply), BANYAN_ENOTFOUND);
    request.compute_id = two.welcome.compute_id;
    assert_int_equal(call_bytes(&data, &request, sizeof request, &length, reply), BANYAN_ENOTFOUND);

    for (uint32_t kind = WIRE_PROCESS_FENCE; kind < WIRE_PROCESS_END; kind++) {
        uint8_t bytes[64] = {0};
        memcpy(bytes, &kind, sizeof kind);
        for (size_t bad = sizeof kind; bad < sizeof bytes; bad++)
            if (bad != sizeof request)
                assert_int_equal(call_bytes(&data, bytes, bad, &length, reply), BANYAN_EINVAL);
        assert_int_equal(call_bytes(&monitor, bytes, sizeof request, &length, reply), BANYAN_ENOTSUP);
    }
    client_close(&one);
    client_close(&data);
    client_close(&two);
    client_close(&monitor);
    site_close(&site);
}

/* ---- notices ---- */

static void notify(struct client *data, uint64_t number)
{
    const struct wire_process_request request = {.kind = WIRE_PROCESS_NOTIFY, .instance = number};
    size_t length = 0;
    char reply[8];
    assert_int_equal(client_call(data, &request, sizeof request, reply, sizeof reply, &length), 0);
}

/* Those that are connected are told the greatest, in ascending order, also one that does not read for long;
 * and one that joins later. */
static void test_notices(void **state)
{
    struct site site;
    struct client one, two, data;
    const uint64_t last = 3000;
    open_home(&site);
    assert_int_equal(join(&one, &site, ONE, 0, false, ""), 0);
    client_data(&data, &site.tcp, &one);
    for (uint64_t number = 1; number <= last; number++)
        notify(&data, number);
    notify(&data, 7);
    assert_int_equal(join(&two, &site, TWO, 0, false, ""), 0);
    struct client *told[] = {&one, &two};
    for (unsigned i = 0; i < 2; i++) {
        uint64_t heard = 0;
        client_message(told[i], WIRE_HEARTBEAT, 5, NULL, 0);
        while (heard != last) {
            struct wire_header head = client_take(told[i], NULL, 0);
            if (head.kind == WIRE_HEARTBEAT)
                continue;
            assert_true(head.kind == WIRE_NOTICE && head.length == 0 && head.id > heard);
            heard = head.id;
        }
    }
    client_close(&one);
    client_close(&two);
    client_close(&data);
    site_close(&site);
}

/* ---- lists of memory nodes ---- */

static void beat(struct client *client, uint32_t generation)
{
    const struct wire_header head = {.kind = WIRE_HEARTBEAT, .generation = generation, .id = 1};
    client_send(client, &head, sizeof head);
    const struct wire_header echo = client_take(client, NULL, 0);
    assert_int_equal(echo.kind, WIRE_HEARTBEAT);
}

/* The status tells which list of memory nodes all compute nodes go by that are connected, or a newer one. */
static void test_oldest_list(void **state)
{
    (void)state;
    struct site site;
    struct client one, two;
    open_home(&site);
    assert_true(site_status(&site).list_heard == UINT64_MAX);
    assert_int_equal(join(&one, &site, ONE, 0, false, ""), 0);
    assert_int_equal(site_status(&site).list_heard, 0);
    beat(&one, 5);
    assert_int_equal(site_status(&site).list_heard, 5);
    assert_int_equal(join(&two, &site, TWO, 0, false, ""), 0);
    assert_int_equal(site_status(&site).list_heard, 0); /* it has not said yet */
    beat(&two, 4);
    assert_int_equal(site_status(&site).list_heard, 4);
    beat(&two, 6);
    assert_int_equal(site_status(&site).list_heard, 5);
    client_goodbye(&one);
    site_wait_nodes(&site, 1);
    assert_int_equal(site_status(&site).list_heard, 6);
    client_goodbye(&two);
    site_close(&site);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lasts),       cmocka_unit_test(test_ids),        cmocka_unit_test(test_fences),
        cmocka_unit_test(test_answers),     cmocka_unit_test(test_long_lists), cmocka_unit_test(test_notices),
        cmocka_unit_test(test_oldest_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
