/* test_lease.c - leases of the memory daemon (G6), with each engine: when a compute node is fenced, that its
 * locks are freed then and not before, and under which id it may come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "memoryd/group_state.h"
#include "client.h"

static int engine;

#define OFFSET     UINT64_C(1048576)
#define MS         UINT64_C(1000000)
#define LONG_LEASE 60000u /* ms: does not run out in a test, unless by pass() */
#define REST       150u   /* ms: what a test leaves of a lease that is to run out */

static bool open_site(struct site *site, struct site_options options)
{
    options.engine = engine;
    if (!site_open(site, &options))
        return true;
    print_message("SKIPPED: the kernel refuses io_uring\n");
    return false;
}

/* So many ms of every lease pass at once; what is left of them passes as it does. */
static void pass(struct site *site, uint64_t ms)
{
    struct memoryd_groups *groups = &site->daemon->groups;
    spinlock_lock(&groups->lock);
    for (struct memoryd_group *group = groups->first; group != NULL; group = group->next)
        group->heartbeat_at -= ms * MS;
    spinlock_unlock(&groups->lock);
    memoryd_keeper_wake(site->daemon); /* it waits for an end that is earlier now */
}

/* A compute node without heartbeats: all its connections are closed and its locks are freed, another's are
 * not. */
static void test_silence(void **state)
{
    struct site site;
    struct client silent, data[3], other;
    if (!open_site(&site, (struct site_options){0}))
        return;
    client_control(&other, &site.tcp, 1, LONG_LEASE);
    client_control(&silent, &site.tcp, 3, 1);
    assert_int_equal(silent.welcome.lease_ms, 100); /* the least there is */
    client_goodbye(&silent);
    client_control(&silent, &site.tcp, 2, LONG_LEASE);
    site_set_lock(&site, 8, silent.welcome.compute_id);
    site_set_lock(&site, 9, other.welcome.compute_id);
    for (unsigned i = 0; i < 3; i++)
        client_data(&data[i], i == 1 ? &site.local : &site.tcp, &silent);
    pass(&site, LONG_LEASE / 2);
    client_heartbeat(&other);
    assert_int_equal(site_lock(&site, 8), silent.welcome.compute_id); /* not before */
    pass(&site, LONG_LEASE / 2 - REST);
    for (unsigned i = 0; i < 3; i++)
        assert_true(client_closed(&data[i]));
    assert_true(client_closed(&silent));
    site_wait_nodes(&site, 1);
    assert_int_equal(site_lock(&site, 8), 0);
    assert_int_equal(site_lock(&site, 9), other.welcome.compute_id);
    assert_int_equal(site_status(&site).locks_freed_total, 1);
    client_heartbeat(&other);
    for (unsigned i = 0; i < 3; i++)
        client_close(&data[i]);
    client_close(&silent);
    client_goodbye(&other);
    site_close(&site);
}

static uint64_t heartbeat_at(struct site *site)
{
    struct memoryd_groups *groups = &site->daemon->groups;
    spinlock_lock(&groups->lock);
    uint64_t at = groups->first->heartbeat_at;
    spinlock_unlock(&groups->lock);
    return at;
}

/* The time in which an I/O thread read nothing is added to leases, and never more: a thread that waits again
 * and again keeps no lease alive. */
static void test_prolonged(void **state)
{
    struct site site;
    struct client control;
    if (!open_site(&site, (struct site_options){0}))
        return;
    client_control(&control, &site.tcp, 2, LONG_LEASE);
    const uint64_t begin = heartbeat_at(&site); /* it sends none */
    memoryd_groups_prolong(site.daemon, begin + 5000, 0);
    assert_int_equal(heartbeat_at(&site), begin);
    for (unsigned i = 1; i <= 3; i++) {
        memoryd_groups_prolong(site.daemon, begin + 5000, 1500);
        assert_int_equal(heartbeat_at(&site), begin + i * 1500);
    }
    memoryd_groups_prolong(site.daemon, begin + 5000, 1500);
    assert_int_equal(heartbeat_at(&site), begin + 5000);
    memoryd_groups_prolong(site.daemon, begin + 4000, UINT64_MAX); /* two threads: it is later already */
    assert_int_equal(heartbeat_at(&site), begin + 5000);
    client_goodbye(&control);
    site_close(&site);
}

/* Heartbeats keep a compute node connected for several of its leases. */
static void test_heartbeats(void **state)
{
    struct site site;
    struct client control;
    if (!open_site(&site, (struct site_options){0}))
        return;
    client_control(&control, &site.tcp, 2, LONG_LEASE);
    site_set_lock(&site, 8, control.welcome.compute_id);
    for (unsigned i = 0; i < 9; i++) { /* six leases */
        pass(&site, LONG_LEASE / 3 * 2);
        client_heartbeat(&control);
        assert_int_equal(site_lock(&site, 8), control.welcome.compute_id);
    }
    client_goodbye(&control);
    site_wait_nodes(&site, 0);
    assert_int_equal(site_lock(&site, 8), 0); /* an orderly end frees the locks that it forgot */
    assert_int_equal(site_status(&site).fenced_total, 0);
    site_close(&site);
}

/* Any connection lost without a goodbye fences the whole group. */
static void lose(struct site *site, bool lose_control, const struct net_address *address)
{
    struct client control, data[2];
    uint64_t fenced = site_status(site).fenced_total;
    client_control(&control, address, 3, LONG_LEASE);
    client_data(&data[0], address, &control);
    client_data(&data[1], address, &control);
    site_set_lock(site, 100, control.welcome.compute_id);
    client_close(lose_control ? &control : &data[0]);
    assert_true(client_closed(&data[1]));
    site_wait_nodes(site, 0);
    assert_int_equal(site_lock(site, 100), 0);
    assert_int_equal(site_status(site).fenced_total, fenced + 1);
    client_close(&control);
    client_close(&data[0]);
    client_close(&data[1]);
    site_wait_connections(site, 0);
}

static void test_lost_connections(void **state)
{
    struct site site;
    if (!open_site(&site, (struct site_options){0}))
        return;
    lose(&site, false, &site.tcp);
    lose(&site, true, &site.tcp);
    lose(&site, false, &site.local);
    lose(&site, true, &site.local);
    site_close(&site);
}

/* A list that is cut ends between two commands, and the lock that it took is freed after it. */
static void test_cut_list(void **state)
{
    struct site site;
    struct client control, data;
    struct script script = {0};
    uint64_t ones = UINT64_MAX, now;
    if (!open_site(&site, (struct site_options){0}))
        return;
    client_control(&control, &site.tcp, 3, LONG_LEASE);
    client_data(&data, &site.tcp, &control);
    script_cas(&script, site_address(GADDR_LOCK_REGION + 16), 0, control.welcome.compute_id, 0xffff);
    script_write(&script, site_address(OFFSET), &ones, 8);
    script_write(&script, site_address(OFFSET + 8), &ones, 8);
    struct wire_header head = {.kind = WIRE_LIST, .length = (uint32_t)script.length, .count = script.count};
    client_send(&data, &head, sizeof head);
    client_send(&data, script.bytes, script.length - 1);
    site_wait_lock(&site, 8, control.welcome.compute_id);
    client_close(&data);
    site_wait_nodes(&site, 0);
    assert_int_equal(site_lock(&site, 8), 0);
    now = site_word(&site, OFFSET);
    assert_int_equal(now, ones);
    now = site_word(&site, OFFSET + 8);
    assert_int_equal(now, 0);
    free(script.bytes);
    client_close(&control);
    site_close(&site);
}

/* Goodbyes may be seen in any order, since different threads read them. */
static void test_goodbyes(void **state)
{
    struct site site;
    struct client control, data[2], late;
    struct wire_hello hello;
    if (!open_site(&site, (struct site_options){0}))
        return;
    for (unsigned order = 0; order < 2; order++) {
        client_control(&control, &site.tcp, 3, LONG_LEASE);
        client_data(&data[0], &site.tcp, &control);
        client_data(&data[1], &site.local, &control);
        client_goodbye(&data[0]);
        client_goodbye(order == 0 ? &data[1] : &control);
        assert_int_equal(site_status(&site).compute_nodes, 1);
        if (order == 1) { /* no data connection joins a group that is being left */
            client_connect(&late, &site.tcp);
            hello = client_hello(&late, WIRE_DATA, NULL);
            hello.instance = control.hello.instance;
            hello.compute_id = control.welcome.compute_id;
            hello.group_key = control.welcome.group_key;
            assert_int_equal(client_say_hello(&late, &hello, NULL), BANYAN_EFENCED);
            client_close(&late);
        }
        client_goodbye(order == 0 ? &control : &data[1]);
        site_wait_nodes(&site, 0);
    }
    assert_int_equal(site_status(&site).fenced_total, 0);
    /* but a data connection that stays behind has one lease for it */
    client_control(&control, &site.tcp, 3, LONG_LEASE);
    client_data(&data[0], &site.tcp, &control);
    client_goodbye(&control);
    pass(&site, LONG_LEASE - REST);
    assert_true(client_closed(&data[0]));
    client_close(&data[0]);
    site_wait_nodes(&site, 0);
    assert_int_equal(site_status(&site).fenced_total, 1);
    site_close(&site);
}

/* A client that gives up its hello and says goodbye does not fence its compute node, also when it is gone
 * before the welcome or the descriptors could be sent. */
static void test_gives_up(void **state)
{
    struct site site;
    struct client control, data;
    char sentence[256];
    if (!open_site(&site, (struct site_options){.shared = true}))
        return;
    for (uint32_t map = 0; map < 2; map++) {
        int descriptors[2] = {-1, -1};
        client_connect(&control, &site.local);
        struct wire_hello hello = client_hello(&control, WIRE_CONTROL, NULL);
        hello.instance = 3;
        hello.lease_ms = LONG_LEASE;
        hello.map = map;
        assert_int_equal(client_say_hello(&control, &hello, sentence), 0);
        assert_int_equal(control.welcome.mapped, map);
        if (map == 1)
            assert_int_equal(net_receive_descriptors(control.fd, descriptors, 2, CLIENT_LIMIT, NULL), 0);
        for (unsigned i = 0; i < 300; i++) {
            struct {
                struct wire_header head;
                struct wire_hello hello;
                struct wire_header goodbye;
            } both = {.head = {.kind = WIRE_HELLO, .length = sizeof both.hello},
                      .goodbye = {.kind = WIRE_GOODBYE}};
            client_connect(&data, &site.local);
            both.hello = client_hello(&data, WIRE_DATA, NULL);
            both.hello.instance = hello.instance;
            both.hello.compute_id = control.welcome.compute_id;
            both.hello.group_key = control.welcome.group_key;
            both.hello.map = map;
            client_send(&data, &both, sizeof both);
            client_close(&data);
        }
        site_wait_connections(&site, 1);
        client_heartbeat(&control);
        client_goodbye(&control);
        site_wait_nodes(&site, 0);
        for (unsigned i = 0; i < 2 && map == 1; i++)
            close(descriptors[i]);
    }
    assert_int_equal(site_status(&site).fenced_total, 0);
    site_close(&site);
}

static int ask_id(struct site *site, struct client *client, uint64_t instance, uint16_t id,
                  char sentence[256])
{
    client_connect(client, &site->tcp);
    struct wire_hello hello = client_hello(client, WIRE_CONTROL, NULL);
    hello.instance = instance;
    hello.compute_id = id;
    hello.lease_ms = LONG_LEASE;
    return client_say_hello(client, &hello, sentence);
}

static void test_ids(void **state)
{
    struct site site;
    struct client first, second, third;
    char sentence[256];
    if (!open_site(&site, (struct site_options){0}))
        return;
    assert_int_equal(ask_id(&site, &first, 1, 0, sentence), BANYAN_OK);
    assert_int_equal(ask_id(&site, &second, 2, 0, sentence), BANYAN_OK);
    assert_int_equal(first.welcome.compute_id, 1);
    assert_int_equal(second.welcome.compute_id, 2);
    assert_int_equal(ask_id(&site, &third, 3, 2, sentence), BANYAN_EBUSY);
    assert_non_null(strstr(sentence, "compute node 2"));
    client_close(&third);
    client_goodbye(&second);
    site_wait_nodes(&site, 1);
    assert_int_equal(ask_id(&site, &third, 3, 0, sentence), BANYAN_OK);
    assert_int_equal(third.welcome.compute_id, 3); /* not the one that has just become free */
    assert_int_equal(ask_id(&site, &second, 2, 2, sentence), BANYAN_OK);
    assert_int_equal(second.welcome.compute_id, 2);
    client_goodbye(&third);
    site_wait_nodes(&site, 2);
    assert_int_equal(ask_id(&site, &third, 4, 65535, sentence), BANYAN_OK);
    client_goodbye(&third);
    client_goodbye(&second);
    client_goodbye(&first);
    site_wait_nodes(&site, 0);
    site_close(&site);
}

/* A lease that is too short or too long becomes the shortest or longest that the memory node grants. */
static void test_lengths(void **state)
{
    struct site site;
    struct client client;
    if (!open_site(&site, (struct site_options){.lease_ms_min = 500}))
        return;
    client_control(&client, &site.tcp, 1, 1);
    assert_int_equal(client.welcome.lease_ms, 500);
    client_goodbye(&client);
    client_control(&client, &site.tcp, 2, UINT32_MAX);
    assert_int_equal(client.welcome.lease_ms, 60000);
    client_goodbye(&client);
    client_control(&client, &site.tcp, 3, 0);
    assert_int_equal(client.welcome.lease_ms, 2000);
    client_goodbye(&client);
    site_close(&site);
}

/* A compute node connects anew while its last life is still connected: that one is fenced, then it is let in.
 */
static void test_connects_anew(void **state)
{
    struct site site;
    struct client old, data, fresh;
    char sentence[256];
    if (!open_site(&site, (struct site_options){0}))
        return;
    client_control(&old, &site.tcp, 9, LONG_LEASE);
    client_data(&data, &site.tcp, &old);
    site_set_lock(&site, 8, old.welcome.compute_id);
    int status = ask_id(&site, &fresh, 9, old.welcome.compute_id, sentence);
    assert_int_equal(status, BANYAN_EBUSY);
    assert_non_null(strstr(sentence, "again"));
    assert_true(client_closed(&data));
    assert_true(client_closed(&old));
    for (uint64_t end = task_now() + CLIENT_LIMIT; status == BANYAN_EBUSY && task_now() < end;) {
        client_close(&fresh);
        status = ask_id(&site, &fresh, 9, old.welcome.compute_id, sentence);
    }
    assert_int_equal(status, BANYAN_OK);
    assert_int_equal(fresh.welcome.compute_id, old.welcome.compute_id);
    assert_int_equal(site_lock(&site, 8), 0);
    assert_int_not_equal(fresh.welcome.group_key, old.welcome.group_key);
    client_close(&old);
    client_close(&data);
    client_goodbye(&fresh);
    site_close(&site);
}

static int join_as(struct site *site, const struct client *control, struct wire_hello change)
{
    struct client client;
    client_connect(&client, &site->tcp);
    struct wire_hello hello = client_hello(&client, WIRE_DATA, NULL);
    hello.instance = control->hello.instance + change.instance;
    hello.compute_id = (uint16_t)(control->welcome.compute_id + change.compute_id);
    hello.group_key = control->welcome.group_key ^ change.group_key;
    int status = client_say_hello(&client, &hello, NULL);
    if (!status)
        client_goodbye(&client);
    client_close(&client);
    return status;
}

/* No data connection joins a group without its key. */
static void test_keys(void **state)
{
    struct site site;
    struct client control, data;
    if (!open_site(&site, (struct site_options){0}))
        return;
    client_control(&control, &site.tcp, 9, LONG_LEASE);
    assert_int_not_equal(control.welcome.group_key, 0);
    assert_int_equal(join_as(&site, &control, (struct wire_hello){0}), BANYAN_OK);
    assert_int_equal(join_as(&site, &control, (struct wire_hello){.group_key = 1}), BANYAN_EFENCED);
    assert_int_equal(join_as(&site, &control, (struct wire_hello){.instance = 1}), BANYAN_EFENCED);
    assert_int_equal(join_as(&site, &control, (struct wire_hello){.compute_id = 1}), BANYAN_EFENCED);
    assert_int_equal(site_status(&site).fenced_total, 0);
    client_data(&data, &site.tcp, &control);
    client_close(&data);
    assert_true(client_closed(&control));
    assert_int_equal(join_as(&site, &control, (struct wire_hello){0}), BANYAN_EFENCED);
    client_close(&control);
    site_close(&site);
}

/* Compute nodes come, take locks and are lost, again and again; no group and no lock of them stays. */
static void test_churn(void **state)
{
    enum { ROUNDS = 60, WIDE = 4 };
    struct site site;
    struct client control[WIDE], data[WIDE];
    uint8_t body[64];
    if (!open_site(&site, (struct site_options){.threads = 3}))
        return;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < WIDE; i++) {
            struct script script = {0};
            client_control(&control[i], i % 2 ? &site.tcp : &site.local, 1 + round * WIDE + i, LONG_LEASE);
            client_data(&data[i], i / 2 ? &site.tcp : &site.local, &control[i]);
            script_cas(&script, site_address(GADDR_LOCK_REGION + i * 8), 0, control[i].welcome.compute_id,
                       UINT64_MAX);
            script_send(&script, &data[i], round);
            assert_int_equal(client_take(&data[i], body, sizeof body).count, 1);
            assert_int_equal(site_lock(&site, i * 4), control[i].welcome.compute_id);
        }
        for (unsigned i = 0; i < WIDE; i++) {
            client_close(i % 2 ? &control[i] : &data[i]);
            client_close(i % 2 ? &data[i] : &control[i]);
        }
        site_wait_nodes(&site, 0);
        for (unsigned i = 0; i < WIDE; i++)
            assert_int_equal(site_lock(&site, i * 4), 0);
    }
    struct memory_status_reply status = site_status(&site);
    assert_int_equal(status.fenced_total, ROUNDS * WIDE);
    assert_int_equal(status.locks_freed_total, ROUNDS * WIDE);
    site_wait_connections(&site, 0);
    site_close(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_heartbeats),
        cmocka_unit_test(test_lost_connections),
        cmocka_unit_test(test_cut_list),
        cmocka_unit_test(test_goodbyes),
        cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_prolonged),
        cmocka_unit_test(test_connects_anew),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_churn),
    };
    int failed = 0;
    log_set_level(getenv("TEST_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    engine = MEMORY_ENGINE_EPOLL;
    failed += cmocka_run_group_tests_name("leases, epoll", tests, NULL, NULL);
    engine = MEMORY_ENGINE_IO_URING;
    failed += cmocka_run_group_tests_name("leases, io_uring", tests, NULL, NULL);
    return failed;
}
