/* test_log.c - owners' logs on a real daemon: what a process has there when its connection is lost, when it
 * comes back, and when it says goodbye. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "client.h"
#include "memory/memory.h"

#define ONE UINT64_C(101) /* instances */
#define TWO UINT64_C(202)

struct compute {
    struct client control, data;
    uint64_t instance;
};

static void compute_open(struct compute *compute, const struct site *site, uint64_t instance)
{
    compute->instance = instance;
    client_control(&compute->control, &site->tcp, instance, 0);
    client_data(&compute->data, &site->tcp, &compute->control);
}

/* As a process connects again that has lost its connection. */
static void compute_return(struct compute *compute, const struct site *site, uint16_t id)
{
    client_connect(&compute->control, &site->tcp);
    struct wire_hello hello = client_hello(&compute->control, WIRE_CONTROL, NULL);
    hello.instance = compute->instance;
    hello.compute_id = id;
    hello.again = true;
    assert_int_equal(client_say_hello(&compute->control, &hello, NULL), 0);
    assert_int_equal(compute->control.welcome.compute_id, id);
    client_data(&compute->data, &site->tcp, &compute->control);
}

static void compute_lose(struct compute *compute)
{
    client_close(&compute->data);
    client_close(&compute->control);
}

static struct memory_board_process process_of(const struct compute *compute)
{
    return (struct memory_board_process){.instance = compute->instance,
                                         .compute_id = compute->control.welcome.compute_id};
}

static int ask(struct compute *compute, struct memory_log_request request, struct memory_log_reply *reply)
{
    size_t length = 0;
    request.instance = compute->instance;
    memset(reply, 0, sizeof *reply);
    int status = client_call(&compute->data, &request, sizeof request, reply, sizeof *reply, &length);
    assert_int_equal(length, status ? 0 : sizeof *reply);
    return status;
}

static int simple(struct compute *compute, uint32_t kind, struct memory_log_reply *reply)
{
    return ask(compute, (struct memory_log_request){.kind = kind, .bytes = MEMORY_LOG_SEGMENT_LEAST}, reply);
}

static int release(struct compute *compute, struct memory_board_process process)
{
    struct memory_log_reply reply;
    return ask(compute, (struct memory_log_request){.kind = MEMORY_LOG_RELEASE, .process = process}, &reply);
}

static struct memory_log_segments list(struct compute *compute, struct memory_board_process process)
{
    const struct memory_log_request request = {
        .kind = MEMORY_LOG_LIST, .instance = compute->instance, .process = process};
    struct memory_log_segments page = {0};
    size_t length = 0;
    int status = client_call(&compute->data, &request, sizeof request, &page, sizeof page, &length);
    if (status)
        page.total = UINT32_MAX;
    else
        assert_int_equal(length, offsetof(struct memory_log_segments, segments) +
                                     page.count * sizeof page.segments[0]);
    return page;
}

/* A process that is lost leaves its log, bytes and all; it gets it back when it opens it again. */
static void test_lost_process(void **state)
{
    const struct site_options options = {.threads = 2};
    struct site site;
    struct compute one, two;
    struct memory_log_reply reply;
    struct script script = {0};
    const uint64_t word = 0x1234567;
    assert_int_equal(site_open(&site, &options), 0);
    compute_open(&one, &site, ONE);
    compute_open(&two, &site, TWO);
    assert_int_equal(simple(&one, MEMORY_LOG_OPEN, &reply), 0);
    gaddr control = reply.control;
    assert_int_equal(simple(&one, MEMORY_LOG_TAKE, &reply), 0);
    assert_int_equal(reply.refusal, MEMORY_LOG_GRANTED);
    struct memory_log_segment segment = reply.segment;
    assert_int_equal(gaddr_node(segment.address), SITE_NODE);
    script_write(&script, segment.address + 64, &word, sizeof word);
    script_send(&script, &one.data, 5);
    assert_int_equal(client_take(&one.data, NULL, 0).status, 0);
    struct memory_board_process gone = process_of(&one);
    assert_int_equal(release(&two, gone), BANYAN_EBUSY);

    compute_lose(&one);
    site_wait_nodes(&site, 1);
    struct memory_log_segments page = list(&two, gone);
    assert_true(page.count == 1 && page.fenced == 1 && page.control == control &&
                page.segments[0].address == segment.address);
    assert_memory_equal(site_pool(&site, gaddr_offset(segment.address) + 64), &word, sizeof word);
    assert_int_equal(site_status(&site).log_segments, 1);

    compute_return(&one, &site, gone.compute_id); /* it was not dead */
    assert_int_equal(simple(&one, MEMORY_LOG_TAKE, &reply), BANYAN_ECONFLICT);
    assert_int_equal(simple(&one, MEMORY_LOG_OPEN, &reply), 0);
    assert_true(reply.control == control && reply.segments == 1);
    assert_int_equal(release(&two, gone), BANYAN_EBUSY);
    compute_lose(&one);
    site_wait_nodes(&site, 1);
    assert_int_equal(release(&two, gone), 0);
    assert_int_equal(site_status(&site).log_segments, 0);
    site_close(&site);
}

/* A goodbye is a fencing too: what the process did not release others may. */
static void test_goodbye(void **state)
{
    const struct site_options options = {.threads = 1};
    struct site site;
    struct compute one, two;
    struct memory_log_reply reply;
    assert_int_equal(site_open(&site, &options), 0);
    compute_open(&one, &site, ONE);
    compute_open(&two, &site, TWO);
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(simple(round ? &two : &one, MEMORY_LOG_OPEN, &reply), 0);
        assert_int_equal(simple(round ? &two : &one, MEMORY_LOG_TAKE, &reply), 0);
    }
    assert_int_equal(release(&two, process_of(&two)), 0); /* its own */
    client_close(&one.data);
    client_goodbye(&one.control);
    site_wait_nodes(&site, 1);
    assert_int_equal(site_status(&site).log_processes, 1);
    assert_int_equal(release(&two, process_of(&one)), 0);
    assert_int_equal(list(&two, process_of(&one)).total, UINT32_MAX);
    assert_int_equal(site_status(&site).log_bytes, 0);
    site_close(&site);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_process),
        cmocka_unit_test(test_goodbye),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
