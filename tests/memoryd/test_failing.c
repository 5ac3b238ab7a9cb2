/* test_failing.c - memory nodes and their daemon when the system refuses: no memory, no pages, no
 * descriptors, no threads, sockets that break or move a byte at a time. What is being made ends with an
 * error and leaves nothing behind; what runs goes on, and loses the connection concerned at most. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "failing.h"
#include "memory/pages.h"
#include "client.h"

#define OFFSET UINT64_C(1048576) /* somewhere in the pool */
#define FOR_GOOD(what, code)                                                                                 \
    (&(struct failing_order){.calls = (what), .where = FAILING_HERE, .error = (code)})
#define ONE(what, code)                                                                                      \
    (&(struct failing_order){.calls = (what), .where = FAILING_HERE, .count = 1, .error = (code)})

/* ---- pages ---- */

#define BYTES      ((size_t)3 << 20)
#define AUTO_BYTES ((size_t)129 << 20) /* enough for huge pages between its ends */

struct mapping {
    bool shared;
    enum pages_huge huge;
    size_t bytes;
};

static int map_one(const struct mapping *mapping, struct pages *pages, struct error *error)
{
    const struct pages_chunks chunks = {.first = 320u << 10, .bytes = PAGES_HUGE_BYTES, .count = 64};
    if (mapping->shared)
        return pages_map_shared(pages, "test", mapping->bytes, mapping->huge == PAGES_HUGE, error);
    return pages_map_pool(pages, mapping->bytes, mapping->huge, &chunks, error);
}

/* Maps, uses, clears and unmaps. */
static int map_attempt(void *context)
{
    const struct mapping *mapping = context;
    struct pages pages;
    struct error error = {0};
    char told[32];
    int status = map_one(mapping, &pages, &error);
    if (status) {
        snprintf(told, sizeof told, "%zu bytes", mapping->bytes);
        assert_null(pages.start);
        assert_int_equal(error.code, status);
        assert_non_null(strstr(error.text, told));
        pages_clear(&pages); /* as of any that are not mapped */
        pages_unmap(&pages);
        return status;
    }
    assert_true(pages.bytes >= mapping->bytes);
    assert_int_equal(pages.descriptor >= 0, mapping->shared);
    uint8_t *bytes = pages.start;
    bytes[0] = bytes[pages.bytes - 1] = 7;
    pages_clear(&pages);
    assert_int_equal(bytes[0], 0);
    assert_int_equal(bytes[pages.bytes - 1], 0);
    pages_unmap(&pages);
    assert_null(pages.start);
    return BANYAN_OK;
}

#define OF_PAGES                                                                                             \
    (FAILING_MMAP | FAILING_MEMFD | FAILING_FTRUNCATE | FAILING_FCNTL | FAILING_FOPEN | FAILING_MADVISE |    \
     FAILING_FALLOCATE)

static void test_pages(void **state)
{
    struct mapping mapping;
    for (unsigned i = 0; i < 5; i++) {
        mapping = (struct mapping){.shared = i % 2 == 1, .huge = i / 2, .bytes = i < 4 ? BYTES : AUTO_BYTES};
        /* One failure: instead of huge pages there are plain ones, and pages can be cleared in another way.
         */
        unsigned failed = failing_each(ONE(OF_PAGES, ENOMEM), map_attempt, &mapping, BANYAN_ENOMEM);
        if (mapping.huge == PAGES_PLAIN)
            assert_int_equal(failed, mapping.shared ? 4 : 1);
        else /* where no huge pages are reserved, shared ones have failed once already */
            assert_true(failed == 0 || (failed == 4 && mapping.shared));
        failed = failing_each(FOR_GOOD(OF_PAGES, ENOMEM), map_attempt, &mapping, BANYAN_ENOMEM);
        assert_true(failed >= (mapping.shared ? 4u : 1u));
    }
}

/* ---- a memory node ---- */

static int node_attempt(void *context)
{
    const struct memory_options *options = context;
    struct error error = {0};
    struct memory_node *node;
    int status = memory_node_create(&node, options, &error);
    if (!status)
        memory_node_destroy(node);
    else
        assert_true(error.code == status && error.text[0] != 0);
    return status;
}

static void test_node(void **state)
{
    struct memory_options options = {
        .pool_bytes = SITE_POOL, .chunk_bytes = 64u << 10, .lock_bytes = SITE_LOCKS};
    for (unsigned shared = 0; shared < 2; shared++) {
        options.shared = shared == 1;
        assert_true(
            failing_each(ONE(FAILING_MEMORY | OF_PAGES, ENOMEM), node_attempt, &options, BANYAN_ENOMEM) >= 5);
        assert_true(failing_each(FOR_GOOD(FAILING_MEMORY | OF_PAGES, ENOMEM), node_attempt, &options,
                                 BANYAN_ENOMEM) >= 5);
    }
}

/* ---- a daemon is made ---- */

static struct memory_node *make_node(void)
{
    struct memory_options options = {
        .node = SITE_NODE, .pool_bytes = SITE_POOL, .chunk_bytes = 64u << 10, .lock_bytes = SITE_LOCKS};
    struct memory_node *node;
    assert_int_equal(memory_node_create(&node, &options, NULL), BANYAN_OK);
    return node;
}

struct making {
    struct memory_node *node;
    int engine;
};

static int memoryd_attempt(void *context)
{
    const struct making *making = context;
    struct net_address listen[2] = {{.kind = NET_TCP, .host = "127.0.0.1"}, {.kind = NET_UNIX}};
    struct memoryd_options options = {
        .listen = listen, .listen_count = 2, .threads = 3, .engine = making->engine};
    struct memoryd *daemon;
    struct error error = {0};
    snprintf(listen[1].path, sizeof listen[1].path, "/tmp/banyan-test-%d-f.sock", (int)getpid());
    int status = memoryd_create(&daemon, making->node, &options, &error);
    if (!status) {
        assert_true(memoryd_port(daemon, 0) != 0);
        assert_int_equal(memoryd_port(daemon, 2), 0);
        status = memoryd_start(daemon, &error);
        memoryd_destroy(daemon);
    } else {
        assert_null(daemon);
    }
    assert_int_not_equal(access(listen[1].path, F_OK), 0);
    if (status)
        assert_true(error.code == status && error.text[0] != 0);
    return status;
}

static void test_making_a_daemon(void **state)
{
    const unsigned any =
        FAILING_MEMORY | FAILING_EVENTFD | FAILING_EPOLL_CREATE | FAILING_EPOLL_CTL | FAILING_THREAD;
    struct making making = {make_node(), MEMORY_ENGINE_EPOLL};
    assert_true(failing_each(ONE(any, ENOMEM), memoryd_attempt, &making, BANYAN_ENOMEM) >= 12);
    assert_true(failing_each(FOR_GOOD(any, ENOMEM), memoryd_attempt, &making, BANYAN_ENOMEM) >= 12);
    assert_int_equal(failing_each(ONE(FAILING_SOCKET, EMFILE), memoryd_attempt, &making, BANYAN_ENOMEM), 2);
    /* Without io_uring's rings it takes epoll, if it may choose. */
    making.engine = MEMORY_ENGINE_AUTO;
    assert_int_equal(failing_each(ONE(FAILING_URING, ENOSYS), memoryd_attempt, &making, BANYAN_ENOTSUP), 0);
    assert_int_equal(failing_each(FOR_GOOD(FAILING_URING, EPERM), memoryd_attempt, &making, BANYAN_ENOTSUP),
                     0);
    making.engine = MEMORY_ENGINE_IO_URING;
    int status = memoryd_attempt(&making);
    if (!status) {
        /* An older kernel knows none of the better flags. */
        assert_int_equal(failing_each(ONE(FAILING_URING, EINVAL), memoryd_attempt, &making, BANYAN_ENOTSUP),
                         0);
        assert_int_equal(failing_each(ONE(FAILING_URING, EPERM), memoryd_attempt, &making, BANYAN_ENOTSUP),
                         3);
        assert_true(failing_each(ONE(any, ENOMEM), memoryd_attempt, &making, BANYAN_ENOMEM) >= 12);
    } else {
        assert_int_equal(status, BANYAN_ENOTSUP);
        print_message("SKIPPED: the kernel refuses io_uring\n");
    }
    memory_node_destroy(making.node);
}

/* ---- a daemon that serves ---- */

static int engine;

static bool open_site(struct site *site, struct site_options options)
{
    options.engine = engine;
    client_use_tls(NULL);
    if (!site_open(site, &options))
        return true;
    print_message("SKIPPED: the kernel refuses io_uring\n");
    return false;
}

struct conversation {
    struct site *site;
    const struct net_address *address;
    bool map;
};

/* False: refused or closed. Descriptors that come along are closed. */
static bool introduce(struct client *client, const struct conversation *talk, struct wire_hello hello,
                      const struct client *control)
{
    struct wire_header head;
    if (!client_try_connect(client, talk->address))
        return false;
    struct wire_hello said = client_hello(client, hello.role, NULL);
    said.map = talk->map;
    said.instance = 11;
    said.lease_ms = 60000;
    if (control != NULL) {
        said.compute_id = control->welcome.compute_id;
        said.group_key = control->welcome.group_key;
    }
    client_message(client, WIRE_HELLO, 0, &said, sizeof said);
    if (!client_try_take(client, &head, &client->welcome, sizeof client->welcome) ||
        head.kind != WIRE_WELCOME)
        return false;
    if (client->welcome.mapped == 0)
        return true;
    int descriptors[2] = {-1, -1};
    unsigned count = hello.role == WIRE_CONTROL ? 2 : 1;
    if (net_receive_descriptors(client->fd, descriptors, count, CLIENT_LIMIT, NULL))
        return false;
    for (unsigned i = 0; i < count; i++)
        close(descriptors[i]);
    return true;
}

/* Lists large and small, and a call. */
static bool work(struct client *data)
{
    static uint8_t bytes[300000], seen[300000];
    struct script script = {0};
    struct wire_header head;
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply status;
    bytes[0] = bytes[299999] = 5;
    script_write(&script, site_address(OFFSET), bytes, sizeof bytes);
    script_read(&script, site_address(OFFSET), sizeof seen);
    script_send(&script, data, 1);
    script_faa(&script, site_address(OFFSET), 1);
    script_send(&script, data, 2);
    if (!client_try_take(data, &head, seen, sizeof seen))
        return false;
    assert_true(head.kind == WIRE_REPLY && !head.status && head.id == 1);
    assert_memory_equal(bytes, seen, sizeof bytes);
    if (!client_try_take(data, &head, seen, sizeof seen))
        return false;
    assert_true(head.kind == WIRE_REPLY && !head.status && head.id == 2);
    client_message(data, WIRE_CALL, 5, &ask, sizeof ask);
    if (!client_try_take(data, &head, &status, sizeof status))
        return false;
    assert_true(head.kind == WIRE_RESULT && !head.status && head.length == sizeof status);
    return true;
}

static bool converse(const struct conversation *talk, struct client *control, struct client *data,
                     struct client *formatter)
{
    struct wire_header head;
    struct wire_format format = {.cluster_id = 3, .node_count = 1};
    char sentence[256];
    if (!introduce(control, talk, (struct wire_hello){.role = WIRE_CONTROL}, NULL) ||
        !introduce(data, talk, (struct wire_hello){.role = WIRE_DATA}, control) || !work(data) ||
        !client_try_heartbeat(control) ||
        !introduce(formatter, talk, (struct wire_hello){.role = WIRE_FORMATTER}, NULL))
        return false;
    client_message(formatter, WIRE_FORMAT, 3, &format, sizeof format);
    if (!client_try_take(formatter, &head, sentence, sizeof sentence))
        return false;
    assert_true(head.kind == WIRE_RESULT && head.status == BANYAN_EBUSY);
    client_goodbye(formatter);
    client_goodbye(data);
    client_goodbye(control);
    return true;
}

/* A client's whole life, after which the memory node is as before, however it ended. */
static int conversation_attempt(void *context)
{
    const struct conversation *talk = context;
    struct client control = {.fd = -1}, data = {.fd = -1}, formatter = {.fd = -1};
    bool well = converse(talk, &control, &data, &formatter);
    client_close(&formatter);
    client_close(&data);
    client_close(&control);
    site_wait_connections(talk->site, 0);
    site_wait_nodes(talk->site, 0);
    return well ? BANYAN_OK : BANYAN_ENET;
}

/* On the daemon's threads, not on this one. */
static unsigned theirs(unsigned calls, int error, struct conversation *talk)
{
    return failing_each(
        &(struct failing_order){.calls = calls, .where = FAILING_ELSEWHERE, .count = 1, .error = error},
        conversation_attempt, talk, BANYAN_ENET);
}

static void test_serving(void **state)
{
    struct site site;
    if (!open_site(&site, (struct site_options){.threads = 1, .shared = true}))
        return;
    struct conversation talk = {&site, &site.tcp, false};
    assert_true(theirs(FAILING_MEMORY, ENOMEM, &talk) >= 12);
    assert_true(theirs(FAILING_RECV | FAILING_SEND, ECONNRESET, &talk) >= 3);
    failing_each(&(struct failing_order){.calls = FAILING_EPOLL_CTL,
                                         .where = FAILING_ELSEWHERE,
                                         .detail = EPOLL_CTL_ADD,
                                         .count = 1,
                                         .error = ENOSPC},
                 conversation_attempt, &talk, BANYAN_ENET);
    assert_int_equal(theirs(FAILING_FCNTL, EINVAL, &talk), 0); /* it goes on with readiness */
    talk.address = &site.local;
    assert_true(theirs(FAILING_MEMORY, ENOMEM, &talk) >= 12);
    talk.map = true;
    assert_true(theirs(FAILING_MEMORY, ENOMEM, &talk) >= 12);
    assert_true(theirs(FAILING_MEMFD | FAILING_FTRUNCATE | FAILING_FCNTL | FAILING_MMAP, ENOMEM, &talk) >= 4);
    assert_int_equal(theirs(FAILING_SENDMSG, EPIPE, &talk), 2);
    site_close(&site);
}

/* Sockets that move a few bytes at a time deliver everything. */
static void test_crumbs(void **state)
{
    struct site site;
    if (!open_site(&site, (struct site_options){.threads = 1}))
        return;
    struct conversation talk = {&site, &site.tcp, false};
    failing_begin(&(struct failing_order){
        .calls = FAILING_RECV | FAILING_SEND, .where = FAILING_ELSEWHERE, .bytes = 7});
    assert_int_equal(conversation_attempt(&talk), BANYAN_OK);
    assert_true(failing_end() > 20);
    site_close(&site);
}

/* No descriptor is left for another connection: it pauses, and goes on when there are some. */
static void test_accept_pauses(void **state)
{
    struct site site;
    struct client first, second;
    if (!open_site(&site, (struct site_options){0}))
        return;
    client_control(&first, &site.tcp, 1, 400); /* a lease to keep meanwhile */
    failing_begin(&(struct failing_order){
        .calls = FAILING_ACCEPT, .where = FAILING_ELSEWHERE, .count = 3, .error = EMFILE});
    client_monitor(&second, &site.local);
    assert_int_equal(failing_end(), 3);
    client_goodbye(&second);
    client_close(&first);
    site_wait_nodes(&site, 0);
    site_close(&site);
}

/* A process that the memory node could not kill does not get the pool. */
static void test_not_killable(void **state)
{
    struct site site;
    struct client client;
    char sentence[256];
    if (!open_site(&site, (struct site_options){.shared = true}))
        return;
    failing_begin(&(struct failing_order){.calls = FAILING_SYSCALL,
                                          .where = FAILING_ELSEWHERE,
                                          .detail = SYS_pidfd_send_signal,
                                          .error = EPERM});
    client_connect(&client, &site.local);
    struct wire_hello hello = client_hello(&client, WIRE_CONTROL, NULL);
    hello.map = 1;
    hello.instance = 1;
    assert_int_equal(client_say_hello(&client, &hello, sentence), BANYAN_ENOTSUP);
    assert_non_null(strstr(sentence, "may not signal it"));
    assert_int_equal(failing_end(), 1);
    client_close(&client);
    site_close(&site);
}

/* Large buffers of connections that went quiet are given back, or kept where that fails; the connections go
 * on. */
static void test_quiet(void **state)
{
    struct site site;
    struct client control, data;
    if (!open_site(&site, (struct site_options){.threads = 1}))
        return;
    client_control(&control, &site.tcp, 1, 60000);
    client_data(&data, &site.tcp, &control);
    for (unsigned round = 0; round < 2; round++) {
        uint64_t deadline = task_now() + CLIENT_LIMIT;
        assert_true(work(&data));
        /* First it fails, then it is only seen. */
        failing_begin(&(struct failing_order){.calls = FAILING_MEMORY,
                                              .where = FAILING_ELSEWHERE,
                                              .first = round == 0 ? 1 : UINT32_MAX,
                                              .error = ENOMEM});
        while (failing_seen() == 0) {
            assert_true(task_now() < deadline);
            task_sleep(1000000);
        }
        failing_end();
    }
    assert_true(work(&data));
    client_goodbye(&data);
    client_goodbye(&control);
    site_close(&site);
}

/* A connection that could not be watched for its output would wait for ever: it is closed instead. */
static void test_not_watched(void **state)
{
    struct site site;
    struct client control, data;
    struct script script = {0};
    if (engine != MEMORY_ENGINE_EPOLL || !open_site(&site, (struct site_options){.threads = 1}))
        return;
    client_control(&control, &site.tcp, 1, 60000);
    client_data(&data, &site.tcp, &control);
    failing_begin(&(struct failing_order){.calls = FAILING_EPOLL_CTL,
                                          .where = FAILING_ELSEWHERE,
                                          .detail = EPOLL_CTL_MOD,
                                          .count = 1,
                                          .error = ENOMEM});
    /* More than the sockets hold, so the daemon must wait until some of it is taken. */
    for (unsigned list = 0; list < 4; list++) {
        for (unsigned i = 0; i < 15; i++)
            script_read(&script, site_address(OFFSET), 256u << 10);
        script_send(&script, &data, list);
    }
    uint64_t deadline = task_now() + CLIENT_LIMIT;
    while (failing_met() == 0) {
        assert_true(task_now() < deadline);
        task_sleep(1000000);
    }
    assert_true(client_closed(&data));
    assert_true(client_closed(&control)); /* its compute node is fenced */
    failing_end();
    client_close(&data);
    client_close(&control);
    site_wait_nodes(&site, 0);
    assert_int_equal(site_status(&site).fenced_total, 1);
    site_close(&site);
}

/* A ring that cannot be enabled: the daemon stops, and says why. */
static void test_ring_not_enabled(void **state)
{
    struct site site;
    struct net_address at;
    struct error error;
    int fd = -1;
    if (engine != MEMORY_ENGINE_IO_URING)
        return;
    failing_begin(&(struct failing_order){.calls = FAILING_SYSCALL,
                                          .where = FAILING_ELSEWHERE,
                                          .detail = SYS_io_uring_register,
                                          .error = EACCES});
    if (open_site(&site, (struct site_options){.threads = 1})) {
        at = site.tcp;
        memoryd_join(site.daemon); /* by itself */
        assert_int_equal(net_connect(&at, CLIENT_LIMIT, &fd, &error), BANYAN_ENET);
        assert_int_equal(failing_met(), 1);
        site_close(&site);
    }
    failing_end();
}

int main(void)
{
    const struct CMUnitTest making[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_node),
        cmocka_unit_test(test_making_a_daemon),
    };
    const struct CMUnitTest serving[] = {
        cmocka_unit_test(test_serving),       cmocka_unit_test(test_crumbs),
        cmocka_unit_test(test_accept_pauses), cmocka_unit_test(test_not_killable),
        cmocka_unit_test(test_quiet),         cmocka_unit_test(test_ring_not_enabled),
        cmocka_unit_test(test_not_watched),
    };
    log_set_level(getenv("TEST_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    int failed = cmocka_run_group_tests_name("making", making, NULL, NULL);
    engine = MEMORY_ENGINE_EPOLL;
    failed += cmocka_run_group_tests_name("serving, epoll", serving, NULL, NULL);
    engine = MEMORY_ENGINE_IO_URING;
    failed += cmocka_run_group_tests_name("serving, io_uring", serving, NULL, NULL);
    return failed;
}
