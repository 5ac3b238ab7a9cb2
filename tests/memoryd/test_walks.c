/* test_walks.c - the daemon's threads that walk: their queue is bounded and says so at once, what a compute
 * node has in it goes with that one, answers come out of order, and what makes no sense is refused. (What
 * walks answer: tests/tree/test_walks.c, test_walk_worlds.c.) */
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
#include "format/leaf.h"
#include "memory/walk.h"
#include "memory/walk_message.h"
#include "memoryd/state.h"
#include "memoryd/walks.h"

#define LOOK_NS  UINT64_C(100000)
#define INSTANCE UINT64_C(101)
#define CALLS    8u

/* For a key of an index that is not there: the walk ends at its first node. */
static size_t make_request(uint8_t *bytes, size_t room, gaddr start)
{
    struct memory_walk_writer writer = {.bytes = bytes, .capacity = room};
    struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    struct error error;
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    const struct memory_walk_request request = {
        .kind = MEMORY_WALK_FIND, .index = 1, .count = 1, .geometry = memory_walk_geometry_of(&geometry)};
    assert_true(memory_walk_put(&writer, &request, sizeof request));
    assert_true(memory_walk_put_start(&writer, (struct format_link){start, 1}, 1,
                                      (struct format_key){(const uint8_t *)"12345678", 8}));
    return writer.length;
}

static void judge_reply(const void *reply, size_t length, gaddr start)
{
    struct memory_walk_reader reader;
    struct memory_walk_answer answer;
    const uint8_t *value;
    assert_true(memory_walk_read(&reader, reply, length));
    assert_true(memory_walk_read_answer(&reader, &answer, &value));
    assert_int_equal(answer.outcome, MEMORY_WALK_UNPROVEN); /* zeros are no node */
    assert_int_equal(answer.address, start);
}

/* ---- the queue, with threads that start when the test wants ---- */

struct queue {
    struct memory_node *node;
    struct memoryd daemon;
    struct memoryd_walks *walks;
    uint8_t request[256];
    size_t length;
    gaddr start;
};

static void queue_open(struct queue *queue)
{
    struct memory_options options = {.pool_bytes = 1 << 20};
    struct error error = {0};
    memset(queue, 0, sizeof *queue);
    assert_int_equal(memory_node_create(&queue->node, &options, &error), 0);
    queue->daemon.node = queue->node;
    assert_int_equal(
        memoryd_walks_create(&queue->walks, &queue->daemon, MEMORYD_WALKS_AND_MERGES, 2, 0, &error), 0);
    queue->start = MEMORY_FIRST_CHUNK(memory_node_target(queue->node)->lock_bytes);
    queue->length = make_request(queue->request, sizeof queue->request, queue->start);
}

static void queue_close(struct queue *queue)
{
    memoryd_walks_stop(queue->walks);
    memoryd_walks_destroy(queue->walks);
    memory_node_destroy(queue->node);
}

static int queue_ask(struct queue *queue, uint16_t compute_id, uint64_t *ticket)
{
    struct memory_call call = {.role = MEMORY_ROLE_DATA,
                               .compute_id = compute_id,
                               .request = queue->request,
                               .length = queue->length,
                               .defers = true};
    memcpy(&call.kind, queue->request, sizeof call.kind); /* as memory_node_serve does */
    int status = memoryd_walk_service.serve(queue->walks, &call);
    *ticket = call.ticket;
    return status;
}

static void take_good(struct queue *queue, uint64_t ticket)
{
    uint8_t *reply;
    size_t length;
    int status;
    while (!memoryd_walks_take(queue->walks, ticket, &status, &reply, &length))
        task_sleep(LOOK_NS);
    assert_int_equal(status, 0);
    judge_reply(reply, length, queue->start);
    free(reply);
}

static struct memory_status_reply queue_status(struct queue *queue)
{
    struct memory_status_reply status = {0};
    memoryd_walk_service.report(queue->walks, &status);
    return status;
}

static void full_queue_is_busy(void **state)
{
    static struct queue queue;
    uint64_t tickets[MEMORYD_WALKS_MAX], one;
    struct error error = {0};
    queue_open(&queue);
    for (unsigned i = 0; i < MEMORYD_WALKS_MAX; i++)
        assert_int_equal(queue_ask(&queue, 1, &tickets[i]), MEMORY_DEFERRED);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(queue_ask(&queue, 2, &one), BANYAN_EBUSY);
    assert_int_equal(queue_status(&queue).walk_busy_total, 3);
    assert_int_equal(memoryd_walks_start(queue.walks, &error), 0);
    for (unsigned i = 0; i < MEMORYD_WALKS_MAX; i++)
        take_good(&queue, tickets[i]);
    assert_int_equal(queue_ask(&queue, 2, &one), MEMORY_DEFERRED); /* there is room again */
    take_good(&queue, one);
    assert_int_equal(queue_status(&queue).walks_total, MEMORYD_WALKS_MAX + 1);
    assert_int_equal(queue_status(&queue).walk_threads, 2);
    assert_true(queue_status(&queue).walk_nodes_total >= MEMORYD_WALKS_MAX);
    queue_close(&queue);
}

static void fenced_compute_node_leaves_nothing(void **state)
{
    static struct queue queue;
    uint64_t fenced[CALLS], others[CALLS];
    struct error error = {0};
    queue_open(&queue);
    for (unsigned i = 0; i < CALLS; i++) {
        assert_int_equal(queue_ask(&queue, 1, &fenced[i]), MEMORY_DEFERRED);
        assert_int_equal(queue_ask(&queue, 2, &others[i]), MEMORY_DEFERRED);
    }
    memoryd_walks_drop(queue.walks, fenced[0]); /* its connection has gone before */
    memoryd_walks_drop(queue.walks, fenced[0]);
    assert_int_equal(memoryd_walks_start(queue.walks, &error), 0);
    memoryd_walk_service.fenced(queue.walks, 1);
    for (unsigned i = 0; i < CALLS; i++) { /* the tickets are nobody's any more */
        uint8_t *reply;
        size_t length;
        int status;
        assert_true(memoryd_walks_take(queue.walks, fenced[i], &status, &reply, &length));
        assert_int_equal(status, BANYAN_EINVAL);
        assert_null(reply);
        take_good(&queue, others[i]);
    }
    queue_close(&queue);
}

/* ---- a MERGE writes ---- */

#define SLOT_VALUE UINT64_C(0x1122334455667788)
#define LEAVES     (2 * CALLS)
#define LEAF_BYTES 4096u

/* An empty leaf, and a request to put a key into it. */
static size_t make_merge(gaddr leaf, uint8_t *bytes, size_t room, uint64_t value)
{
    struct memory_walk_writer writer = {.bytes = bytes, .capacity = room};
    struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    struct error error;
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    const struct memory_walk_request request = {
        .kind = MEMORY_MERGE, .index = 1, .count = 1, .geometry = memory_walk_geometry_of(&geometry)};
    const struct memory_merge_entry entry = {
        .leaf = leaf, .tag = 1, .key_length = 8, .value_length = sizeof value};
    assert_true(memory_walk_put(&writer, &request, sizeof request) &&
                memory_walk_put(&writer, &entry, sizeof entry) && memory_walk_put(&writer, "12345678", 8) &&
                memory_walk_put(&writer, &value, sizeof value));
    return writer.length;
}

static void make_leaf(struct queue *queue, gaddr leaf)
{
    struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    struct format_layout layout;
    struct error error;
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    assert_int_equal(format_layout_init(&layout, &geometry, &error), 0);
    const struct format_header header = {
        .tag = 1, .version = 1, .state = FORMAT_NODE_LIVE, .index = 1, .lower = format_key_least(&layout)};
    static uint8_t image[65536];
    format_leaf_format(&layout, &header, image);
    memcpy(memory_node_target(queue->node)->pool + gaddr_offset(leaf), image, geometry.leaf_bytes);
    format_layout_free(&layout);
}

/* G6: when the compute node counts as fenced nothing of it writes any more, and what waited in the queue
 * never does. The threads are at work on its requests, and on others', all the while. */
static void fenced_compute_node_writes_nothing(void **state)
{
    static struct queue queue;
    static uint8_t before[LEAVES * LEAF_BYTES];
    struct error error = {0};
    uint64_t ticket, written = 0;
    queue_open(&queue);
    for (unsigned i = 0; i < LEAVES;
         i++) /* one for each request, as an owner asks once at a time for a leaf */
        make_leaf(&queue, queue.start + i * LEAF_BYTES);
    const uint8_t *leaves = memory_node_target(queue.node)->pool + queue.start;
    memcpy(before, leaves, sizeof before);
    assert_int_equal(memoryd_walks_start(queue.walks, &error), 0);
    for (unsigned round = 0; round < 300; round++) {
        for (unsigned i = 0; i < LEAVES; i++) {
            queue.length = make_merge(queue.start + i * LEAF_BYTES, queue.request, sizeof queue.request,
                                      SLOT_VALUE + round * 100 + i);
            assert_int_equal(queue_ask(&queue, 1, &ticket), MEMORY_DEFERRED);
        }
        memoryd_walk_service.fenced(queue.walks, 1);
        memcpy(before, leaves, sizeof before);
        for (unsigned i = 0; i < CALLS; i++) { /* while the threads walk on */
            queue.length = make_request(queue.request, sizeof queue.request, queue.start);
            assert_int_equal(queue_ask(&queue, 2, &ticket), MEMORY_DEFERRED);
            memoryd_walks_drop(queue.walks, ticket);
            assert_memory_equal(before, leaves, sizeof before);
        }
        memoryd_walk_service.fenced(queue.walks, 2);
        assert_memory_equal(before, leaves, sizeof before);
        written = queue_status(&queue).merge_merged_total;
    }
    assert_true(written > 0 && written < 300 * LEAVES); /* some, and some were dropped in the queue */
    assert_int_equal(queue_status(&queue).merge_merged_total, queue_status(&queue).merges_total);
    queue_close(&queue);
}

/* A queue of its own: full of MERGEs, it turns away these and EXCHANGEs alone, and says that it is full. */
static void merges_have_their_own_queue(void **state)
{
    static struct queue queue;
    struct memoryd_walks *merges;
    struct error error = {0};
    queue_open(&queue);
    make_leaf(&queue, queue.start);
    assert_int_equal(memoryd_walks_create(&merges, &queue.daemon, MEMORYD_MERGES, 1, 0, &error), 0);
    struct memoryd_walks *walks = queue.walks;
    uint64_t ticket, tickets[MEMORYD_WALKS_MAX];
    queue.walks = merges;
    queue.length = make_merge(queue.start, queue.request, sizeof queue.request, 1);
    for (unsigned i = 0; i < MEMORYD_WALKS_MAX; i++) {
        assert_int_equal(queue_ask(&queue, 1, &tickets[i]), MEMORY_DEFERRED);
        assert_int_equal(tickets[i] & (MEMORYD_WALK_TICKET | MEMORYD_MERGE_TICKET), MEMORYD_MERGE_TICKET);
    }
    assert_int_equal(queue_ask(&queue, 1, &ticket), BANYAN_EBUSY);
    const uint32_t kind = MEMORY_EXCHANGE;
    memcpy(queue.request, &kind, sizeof kind);
    assert_int_equal(queue_ask(&queue, 1, &ticket), BANYAN_EBUSY);
    assert_int_equal(queue_status(&queue).merge_busy_total, 2);
    assert_int_equal(queue_status(&queue).walk_busy_total, 0);
    queue.walks = walks;
    queue.length = make_request(queue.request, sizeof queue.request, queue.start);
    assert_int_equal(queue_ask(&queue, 1, &ticket), MEMORY_DEFERRED);
    assert_int_equal(ticket & (MEMORYD_WALK_TICKET | MEMORYD_MERGE_TICKET), MEMORYD_WALK_TICKET);
    assert_int_equal(memoryd_walks_start(merges, &error), 0);
    for (unsigned i = 0; i < MEMORYD_WALKS_MAX; i++) {
        uint8_t *reply;
        size_t length;
        int status;
        while (!memoryd_walks_take(merges, tickets[i], &status, &reply, &length))
            task_sleep(LOOK_NS);
        assert_int_equal(status, 0);
        free(reply);
    }
    struct memory_status_reply status = {0};
    memoryd_walk_service.report(merges, &status);
    assert_int_equal(status.merge_threads, 1);
    assert_int_equal(status.walk_threads, 0);
    assert_int_equal(status.merges_total, MEMORYD_WALKS_MAX);
    memoryd_walks_stop(merges);
    memoryd_walks_destroy(merges);
    queue_close(&queue);
}

static void dropped_walks_give_their_places_back(void **state)
{
    static struct queue queue;
    struct error error = {0};
    uint64_t ticket;
    queue_open(&queue);
    assert_int_equal(memoryd_walks_start(queue.walks, &error), 0);
    for (unsigned i = 0; i < 20 * MEMORYD_WALKS_MAX; i++) {
        while (queue_ask(&queue, 1, &ticket) == BANYAN_EBUSY)
            task_sleep(LOOK_NS); /* its place is free when its turn has come */
        memoryd_walks_drop(queue.walks, ticket);
    }
    memoryd_walk_service.fenced(queue.walks, 1);
    for (unsigned i = 0; i < MEMORYD_WALKS_MAX; i++)
        assert_int_equal(queue_ask(&queue, 2, &ticket), MEMORY_DEFERRED);
    queue_close(&queue);
}

static void bad_calls_are_refused(void **state)
{
    static struct queue queue;
    uint64_t ticket;
    queue_open(&queue);
    queue.length = MEMORY_WALK_REQUEST_MAX + 1; /* longer than the buffer: it is not looked at */
    assert_int_equal(queue_ask(&queue, 1, &ticket), BANYAN_EINVAL);
    queue.length = 4;
    assert_int_equal(queue_ask(&queue, 0, &ticket), BANYAN_EINVAL);
    assert_int_equal(queue_status(&queue).walk_refused_total, 2);
    struct memory_call call = {
        .role = MEMORY_ROLE_DATA, .compute_id = 1, .request = queue.request, .length = 4};
    assert_int_equal(memoryd_walk_service.serve(queue.walks, &call), BANYAN_EBUSY); /* it cannot wait */
    queue_close(&queue);
}

/* ---- over a connection ---- */

static void ask(struct client *client, gaddr start, uint64_t id)
{
    uint8_t request[256];
    const size_t length = make_request(request, sizeof request, start);
    const struct wire_header head = {.length = (uint32_t)length, .kind = WIRE_CALL, .id = WIRE_DEFERRED | id};
    client_send(client, &head, sizeof head);
    client_send(client, request, length);
}

static void over_a_connection(void **state)
{
    static uint8_t reply[WIRE_SMALL_MAX];
    const struct site_options options = {.walk_threads = 2};
    const gaddr start = site_address(SITE_POOL / 2 / 4096 * 4096);
    struct site site;
    struct client control, data;
    bool seen[CALLS] = {false};
    assert_int_equal(site_open(&site, &options), 0);
    client_control(&control, &site.tcp, INSTANCE, 0);
    client_data(&data, &site.tcp, &control);
    for (unsigned i = 0; i < CALLS; i++)
        ask(&data, start, i);
    for (unsigned i = 0; i < CALLS; i++) { /* in any order */
        const struct wire_header head = client_take(&data, reply, sizeof reply);
        const uint64_t id = head.id & ~WIRE_DEFERRED;
        assert_int_equal(head.kind, WIRE_RESULT);
        assert_int_equal(head.status, 0);
        assert_true(id < CALLS && !seen[id]);
        seen[id] = true;
        judge_reply(reply, head.length, start);
    }
    /* Outside of the pool, and from one that may not. */
    ask(&data, start + SITE_POOL, 1);
    assert_int_equal(client_take(&data, reply, sizeof reply).status, BANYAN_EINVAL);
    ask(&control, start, 1);
    assert_int_equal(client_take(&control, reply, sizeof reply).status, BANYAN_ENOTSUP);
    const struct memory_status_reply status = site_status(&site);
    assert_int_equal(status.walks_total, CALLS);
    assert_int_equal(status.walk_refused_total, 1);
    /* A connection that goes with walks under way takes nothing along. */
    for (unsigned i = 0; i < CALLS; i++)
        ask(&data, start, i);
    client_close(&data);
    client_close(&control);
    site_wait_nodes(&site, 0);
    site_close(&site);
}

static void no_threads_no_walks(void **state)
{
    static uint8_t reply[WIRE_SMALL_MAX];
    const struct site_options options = {.walk_threads = 0};
    struct site site;
    struct client control, data;
    assert_int_equal(site_open(&site, &options), 0);
    client_control(&control, &site.tcp, INSTANCE, 0);
    client_data(&data, &site.tcp, &control);
    ask(&data, site_address(SITE_POOL / 2), 1);
    assert_int_equal(client_take(&data, reply, sizeof reply).status, BANYAN_ENOTSUP);
    client_close(&data);
    client_close(&control);
    site_close(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_queue_is_busy),
        cmocka_unit_test(fenced_compute_node_leaves_nothing),
        cmocka_unit_test(fenced_compute_node_writes_nothing),
        cmocka_unit_test(merges_have_their_own_queue),
        cmocka_unit_test(dropped_walks_give_their_places_back),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(over_a_connection),
        cmocka_unit_test(no_threads_no_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
