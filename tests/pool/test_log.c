/*
 * test_log.c - owners' logs on memory nodes as a compute node asks for them: one scene over the local fabric
 * and the simulated one, the messages, and answers of memory nodes that make no sense.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/local.h"
#include "memory/memory.h"
#include "pool/log.h"
#include "sim/params.h"
#include "sim/sim.h"

#define NODES 2u
#define MIB   (UINT64_C(1) << 20)
#define LOGS  (8 * MIB)

/* What compute node `side` of a rig is. */
struct side {
    struct rig *rig;
    struct fabric *fabric;
    struct pool *pool;
    struct pool_worker *worker;
    struct pool_session session;
    struct fabric_cost cost;
};

struct rig {
    struct memory_node *nodes[NODES];
    struct fabric_target targets[NODES]; /* as the fabric sees them */
    struct side sides[2];
    struct sim *sim; /* NULL: the local fabric */
    unsigned failures;
};

static void nodes_make(struct rig *rig)
{
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    for (unsigned i = 0; i < NODES; i++) {
        const struct memory_options options = {
            .node = (uint16_t)i, .pool_bytes = 32 * MIB, .lock_bytes = 4096, .log_bytes = LOGS};
        assert_int_equal(memory_node_create(&rig->nodes[i], &options, &error), 0);
        rig->targets[i] = *memory_node_target(rig->nodes[i]);
    }
}

static void side_open(struct rig *rig, unsigned number, struct fabric *fabric)
{
    struct side *side = &rig->sides[number];
    struct error error = {0};
    assert_non_null(fabric);
    side->rig = rig;
    side->fabric = fabric;
    assert_int_equal(pool_create(&side->pool, fabric, POOL_COMBINE_ALL, &error), 0);
    assert_int_equal(pool_worker_create(&side->worker, side->pool, &error), 0);
    pool_session_init(&side->session, side->worker, &side->cost);
    pool_session_begin(&side->session);
}

static void rig_open_local(struct rig *rig)
{
    const struct fabric_target *targets[NODES];
    struct error error = {0};
    nodes_make(rig);
    for (unsigned i = 0; i < NODES; i++)
        targets[i] = &rig->targets[i];
    for (unsigned i = 0; i < 2; i++)
        side_open(rig, i, fabric_local_create(targets, NODES, (uint16_t)(i + 1), &error));
}

static void rig_open_simulated(struct rig *rig)
{
    struct sim_params params;
    struct error error = {0};
    nodes_make(rig);
    sim_params_default(&params);
    rig->sim = sim_create(&params, NULL, 1, &error);
    assert_non_null(rig->sim);
    for (unsigned i = 0; i < NODES; i++)
        assert_int_equal(sim_add_memory(rig->sim, &rig->targets[i], &error), i);
    for (unsigned i = 0; i < 2; i++) {
        int compute = sim_add_compute(rig->sim, &error);
        assert_true(compute >= 0);
        side_open(rig, i, sim_fabric(rig->sim, compute));
    }
}

static void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < 2; i++) {
        pool_worker_destroy(rig->sides[i].worker);
        pool_destroy(rig->sides[i].pool);
        if (!rig->sim)
            fabric_close(rig->sides[i].fabric);
    }
    if (rig->sim)
        sim_destroy(rig->sim);
    for (unsigned i = 0; i < NODES; i++)
        memory_node_destroy(rig->nodes[i]);
}

/* ---- the scene; on any kind of stack, so nothing is thrown ---- */

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, side->session.error.text);   \
            side->rig->failures++;                                                                           \
        }                                                                                                    \
    } while (0)

static struct fabric_process process_of(const struct side *side)
{
    return fabric_self(side->fabric);
}

/* A process opens, takes, lists, gives and ends its log, on each memory node. */
static void own_log(struct side *side)
{
    struct pool_session *session = &side->session;
    struct memory_log_segment first, second;
    struct memory_log_segments page;
    struct memory_log_processes processes;
    struct pool_log log, again;
    for (uint16_t node = 0; node < NODES; node++) {
        uint64_t rpcs = side->cost.rpcs;
        EXPECT(pool_log_take(session, node, MIB, &first) == BANYAN_ENOTFOUND);
        EXPECT(pool_log_open(session, node, &log) == 0 && log.segments == 0 && log.bytes == 0);
        EXPECT(gaddr_node(log.control) == node);
        EXPECT(pool_log_take(session, node, MIB, &first) == 0 && first.bytes == MIB);
        EXPECT(pool_log_take(session, node, 1, &second) == 0 && second.bytes == MEMORY_LOG_SEGMENT_LEAST);
        EXPECT(gaddr_node(first.address) == node && gaddr_node(second.address) == node);
        EXPECT(pool_log_open(session, node, &again) == 0 && again.control == log.control &&
               again.segments == 2 && again.bytes == first.bytes + second.bytes);
        EXPECT(pool_log_list(session, node, process_of(side), 0, &page) == 0 && page.count == 2 &&
               page.segments[1].address == second.address && page.control == log.control);
        EXPECT(pool_log_processes(session, node, 0, &processes) == 0 && processes.count == 1 &&
               processes.processes[0].process.instance == process_of(side).instance &&
               processes.used == log.bytes + first.bytes + second.bytes && processes.most == LOGS);
        EXPECT(pool_log_give(session, node, &first) == 0);
        EXPECT(pool_log_give(session, node, &first) == BANYAN_EINVAL);
        EXPECT(pool_log_release(session, node, process_of(side)) == 0);
        EXPECT(pool_log_release(session, node, process_of(side)) == 0); /* nothing is left */
        EXPECT(pool_log_list(session, node, process_of(side), 0, &page) == BANYAN_ENOTFOUND);
        EXPECT(side->cost.rpcs == rpcs + 12);
    }
}

/* What one wrote another one finds, and releases when it was fenced. Each plays its part when it is called.
 */
static struct memory_log_segment left;

static void leave(struct side *side)
{
    struct pool_log log;
    const uint64_t word = 77;
    EXPECT(pool_log_open(&side->session, 1, &log) == 0);
    EXPECT(pool_log_take(&side->session, 1, MIB, &left) == 0);
    struct fabric_command write = pool_write_command(left.address + 64, &word, sizeof word);
    EXPECT(pool_execute(&side->session, 1, &write, 1) == 0);
}

static void too_early(struct side *side)
{
    EXPECT(pool_log_release(&side->session, 1, process_of(&side->rig->sides[0])) == BANYAN_EBUSY);
    EXPECT(strstr(side->session.error.text, "memory node 1: the process was not fenced there"));
}

static void after_the_fencing(struct side *side)
{
    struct memory_log_segment segment;
    EXPECT(pool_log_take(&side->session, 1, MIB, &segment) == BANYAN_ECONFLICT);
    EXPECT(pool_log_give(&side->session, 1, &left) == BANYAN_ECONFLICT);
}

static void succeed(struct side *side)
{
    const struct fabric_process gone = process_of(&side->rig->sides[0]);
    struct memory_log_segments page;
    uint64_t found = 0;
    EXPECT(pool_log_list(&side->session, 1, gone, 0, &page) == 0 && page.fenced == 1 && page.count == 1 &&
           page.segments[0].address == left.address);
    struct fabric_command read = pool_read_command(left.address + 64, &found, sizeof found);
    EXPECT(pool_execute(&side->session, 1, &read, 1) == 0);
    pool_read_settle(&read);
    EXPECT(found == 77);
    EXPECT(pool_log_release(&side->session, 1, gone) == 0);
}

static void begin_anew(struct side *side)
{
    struct pool_log log;
    EXPECT(pool_log_open(&side->session, 1, &log) == 0 && log.segments == 0);
    EXPECT(pool_log_release(&side->session, 1, process_of(side)) == 0);
}

/* All that is to be had, and then a message that says why there is no more. */
static void full_log(struct side *side)
{
    struct memory_log_segment segment;
    struct pool_log log;
    int status = pool_log_open(&side->session, 0, &log);
    EXPECT(status == 0);
    for (unsigned i = 0; !status && i < 1000; i++)
        status = pool_log_take(&side->session, 0, MEMORY_LOG_SEGMENT_MOST, &segment);
    EXPECT(status == BANYAN_ENOSPC && strstr(side->session.error.text, "memory node 0") &&
           strstr(side->session.error.text, "its share") && strstr(side->session.error.text, "--log-bytes"));
    EXPECT(pool_log_open(&side->session, 1, &log) == 0);
    for (uint32_t bytes = MEMORY_BLOCK_MAX; bytes >= 1024;) { /* the pool is full of others' */
        const struct memory_allocate_request request = {
            .kind = MEMORY_ALLOCATE, .block_bytes = bytes, .want = 1, .purpose = MEMORY_FOR_DATA};
        struct memory_allocate_reply reply;
        size_t length;
        if (pool_call(&side->session, 1, &request, sizeof request, &reply, sizeof reply, &length))
            bytes /= 2;
    }
    EXPECT(pool_log_take(&side->session, 1, MIB, &segment) == BANYAN_ENOSPC &&
           strstr(side->session.error.text, "memory node 1: its pool has no room"));
}

/* Another process that has all its share does not keep this one from having two segments. */
static void own_log_beside_another(struct side *side)
{
    struct memory_log_segment segment;
    struct pool_log log;
    EXPECT(pool_log_open(&side->session, 0, &log) == 0);
    EXPECT(pool_log_take(&side->session, 0, MEMORY_LOG_SEGMENT_MOST, &segment) == 0 &&
           segment.bytes >= MIB / 4);
    EXPECT(pool_log_take(&side->session, 0, MEMORY_LOG_SEGMENT_MOST, &segment) == 0 &&
           segment.bytes >= MIB / 4);
}

struct part {
    void (*play)(struct side *);
    struct side *side;
};

static void play_part(void *argument)
{
    const struct part *part = argument;
    part->play(part->side);
}

/* On a task of that compute node, to its end. */
static void play(struct rig *rig, unsigned number, void (*function)(struct side *))
{
    struct part part = {.play = function, .side = &rig->sides[number]};
    struct error error = {0};
    if (rig->sim) {
        assert_int_equal(sim_spawn(rig->sim, (int)number, 0, play_part, &part, &error), 0);
        assert_int_equal(sim_run(rig->sim, UINT64_MAX), 0);
    } else {
        play_part(&part);
    }
    assert_int_equal(rig->failures, 0);
}

static void scene(struct rig *rig)
{
    play(rig, 0, own_log);
    play(rig, 0, leave);
    play(rig, 1, too_early);
    memory_node_release_locks(rig->nodes[1], process_of(&rig->sides[0]).compute_id);
    play(rig, 0, after_the_fencing);
    play(rig, 1, succeed);
    play(rig, 0, begin_anew);
    play(rig, 0, full_log);
    play(rig, 1, own_log_beside_another);
}

static void over_the_local_fabric(void **state)
{
    struct rig rig;
    rig_open_local(&rig);
    scene(&rig);
    rig_close(&rig);
}

static void over_the_simulated_fabric(void **state)
{
    struct rig rig;
    rig_open_simulated(&rig);
    scene(&rig);
    assert_true(sim_now(rig.sim) > 0);
    rig_close(&rig);
}

/* ---- memory nodes that lie ---- */

/* Changes the reply of the next call; the length may be changed too. */
static struct lie {
    struct memory_node *node;
    void (*spoil)(uint8_t *reply, size_t *length, uint64_t choice);
    uint64_t choice;
} lie;

static int lying_call(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                      size_t capacity, size_t *reply_length)
{
    int status =
        memory_node_target(owner)->call(owner, compute_id, request, length, reply, capacity, reply_length);
    if (!status && lie.spoil)
        lie.spoil(reply, reply_length, lie.choice);
    return status;
}

static void expect_nonsense(const struct pool_session *session, int status)
{
    assert_int_equal(status, BANYAN_ECORRUPT);
    assert_string_equal(session->error.text, "memory node 1 gives impossible answers about logs");
}

static void spoil_change(uint8_t *bytes, size_t *length, uint64_t choice)
{
    struct memory_log_reply *reply = (struct memory_log_reply *)(void *)bytes;
    switch (choice) {
    case 0:
        *length -= 1;
        break;
    case 1:
        reply->refusal = MEMORY_LOG_REFUSALS;
        break;
    case 2:
        reply->segments = MEMORY_LOG_SEGMENTS_MAX + 1;
        break;
    case 3:
        reply->control = gaddr_make(0, 1 << 20);
        break;
    case 4:
        reply->control += 8;
        break;
    case 5:
        reply->control = gaddr_make(1, 64);
        break;
    case 6:
        reply->segment.address = gaddr_make(0, 1 << 20);
        break;
    case 7:
        reply->segment.address += 32;
        break;
    case 8:
        reply->segment.address = gaddr_make(1, GADDR_LOCK_REGION - 64);
        break;
    case 9:
        reply->segment.bytes += 64;
        break;
    case 10:
        reply->segment.bytes = 0;
        break;
    case 11:
        reply->segment.bytes = MEMORY_LOG_SEGMENT_MOST + MEMORY_LOG_SEGMENT_LEAST;
        break;
    case 12:
        reply->segment.number = 0;
        break;
    default:
        reply->control = GADDR_NULL;
    }
}

/* What pages of segments and of processes have alike: choices 0 to 5. */
static void spoil_page(uint32_t *count, uint32_t *total, uint32_t most, size_t *length, uint64_t choice)
{
    switch (choice) {
    case 0:
        *length = 8;
        break;
    case 1:
        *length -= 1;
        break;
    case 2:
        (*count)++;
        break;
    case 3:
        *count = MEMORY_LOG_PAGE + 1;
        break;
    case 4:
        *total = *count - 1;
        break;
    default:
        *total = most + 1;
    }
}

static void spoil_list(uint8_t *bytes, size_t *length, uint64_t choice)
{
    struct memory_log_segments *page = (struct memory_log_segments *)(void *)bytes;
    switch (choice) {
    default:
        spoil_page(&page->count, &page->total, MEMORY_LOG_SEGMENTS_MAX, length, choice);
        break;
    case 6:
        page->fenced = 2;
        break;
    case 7:
        page->control = GADDR_NULL;
        break;
    case 8:
        page->segments[1].number = page->segments[0].number;
        break;
    case 9:
        page->segments[1].bytes = 1;
        break;
    case 10:
        page->segments[0].address = gaddr_make(0, 1 << 20);
        break;
    case 11:
        page->segments[0].number = 0;
    }
}

static void spoil_processes(uint8_t *bytes, size_t *length, uint64_t choice)
{
    struct memory_log_processes *page = (struct memory_log_processes *)(void *)bytes;
    switch (choice) {
    default:
        spoil_page(&page->count, &page->total, MEMORY_LOG_PROCESSES_MAX, length, choice);
        break;
    case 6:
        page->processes[0].serial = 0;
        break;
    case 7:
        page->processes[0].process.instance = 0;
        break;
    case 8:
        page->processes[0].process.compute_id = 0;
        break;
    case 9:
        page->processes[0].segments = MEMORY_LOG_SEGMENTS_MAX + 1;
        break;
    case 10:
        page->processes[0].fenced = 2;
        break;
    case 11:
        page->processes[0].control = gaddr_make(0, 1 << 20);
    }
}

static void answers_are_validated(void **state)
{
    struct rig rig;
    struct memory_log_segment segment;
    struct memory_log_segments page;
    struct memory_log_processes processes;
    struct pool_log log;
    const struct fabric_target *targets[NODES];
    struct error error = {0};
    nodes_make(&rig);
    for (unsigned i = 0; i < NODES; i++) {
        rig.targets[i].call = lying_call;
        targets[i] = &rig.targets[i];
    }
    for (unsigned i = 0; i < 2; i++)
        side_open(&rig, i, fabric_local_create(targets, NODES, (uint16_t)(i + 1), &error));
    struct pool_session *session = &rig.sides[0].session;
    const struct fabric_process self = process_of(&rig.sides[0]);

    lie = (struct lie){.spoil = spoil_change};
    for (lie.choice = 0; lie.choice <= 5; lie.choice++)
        expect_nonsense(session, pool_log_open(session, 1, &log));
    lie.choice = 99;
    expect_nonsense(session, pool_log_open(session, 1, &log));
    for (lie.choice = 0; lie.choice <= 12; lie.choice++) {
        expect_nonsense(session, pool_log_take(session, 1, MEMORY_LOG_SEGMENT_LEAST, &segment));
        lie.spoil = NULL;
        assert_int_equal(pool_log_list(session, 1, self, 0, &page), 0);
        for (uint32_t i = page.count > 2 ? 2 : page.count; i < page.count; i++)
            assert_int_equal(pool_log_give(session, 1, &page.segments[i]), 0);
        lie.spoil = spoil_change;
    }
    lie = (struct lie){.spoil = spoil_list};
    for (; lie.choice <= 11; lie.choice++)
        expect_nonsense(session, pool_log_list(session, 1, self, 0, &page));
    lie = (struct lie){.spoil = spoil_processes};
    for (; lie.choice <= 11; lie.choice++)
        expect_nonsense(session, pool_log_processes(session, 1, 0, &processes));
    lie = (struct lie){0};
    assert_int_equal(pool_log_processes(session, 1, 0, &processes), 0);
    assert_int_equal(pool_log_release(session, 1, self), 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_the_local_fabric),
        cmocka_unit_test(over_the_simulated_fabric),
        cmocka_unit_test(answers_are_validated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
