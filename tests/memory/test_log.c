/* test_log.c - owners' logs on a memory node: who may open, take, give and release, how much each gets, what
 * a fencing and a format leave; that its blocks are nobody else's to free or to move; random operations
 * against a reference; and requests that make no sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "memory/memory.h"

#define LOCKS UINT64_C(1024)
#define KIB   UINT64_C(1024)
#define MIB   (KIB * KIB)
#define LEAST ((uint64_t)MEMORY_LOG_SEGMENT_LEAST)
#define A     1u
#define B     2u
#define C     3u
#define MOVER 999u /* a compute node that empties chunks */

static struct memory_node *make_with(uint64_t room, uint64_t chunk_bytes, uint64_t log_bytes)
{
    struct memory_options options = {.pool_bytes = MEMORY_FIRST_CHUNK(LOCKS) + room,
                                     .chunk_bytes = chunk_bytes,
                                     .lock_bytes = LOCKS,
                                     .log_bytes = log_bytes};
    struct memory_node *node = NULL;
    struct error error = {0};
    if (memory_node_create(&node, &options, &error))
        fail_msg("%s", error.text);
    return node;
}

/* A pool of 64 MiB, of which 16 are for logs. */
static struct memory_node *make(void)
{
    return make_with(64 * MIB, 256 * KIB, 16 * MIB);
}

static int call_as(struct memory_node *node, uint16_t id, const void *request, size_t length, void *reply,
                   size_t capacity, size_t *reply_length)
{
    return memory_node_target(node)->call(node, id, request, length, reply, capacity, reply_length);
}

/* Process `id` has the instance 100 + id. */
static struct memory_board_process process_of(uint16_t id)
{
    return (struct memory_board_process){.instance = 100u + id, .compute_id = id};
}

static int ask(struct memory_node *node, uint16_t id, struct memory_log_request request,
               struct memory_log_reply *reply)
{
    size_t length;
    if (request.instance == 0)
        request.instance = 100u + id;
    int status = call_as(node, id, &request, sizeof request, reply, sizeof *reply, &length);
    assert_int_equal(length, status ? 0 : sizeof *reply);
    return status;
}

static int open_log(struct memory_node *node, uint16_t id, struct memory_log_reply *reply)
{
    return ask(node, id, (struct memory_log_request){.kind = MEMORY_LOG_OPEN}, reply);
}

static int take(struct memory_node *node, uint16_t id, uint64_t bytes, struct memory_log_reply *reply)
{
    return ask(node, id, (struct memory_log_request){.kind = MEMORY_LOG_TAKE, .bytes = bytes}, reply);
}

static struct memory_log_segment taken(struct memory_node *node, uint16_t id, uint64_t bytes)
{
    struct memory_log_reply reply;
    assert_int_equal(take(node, id, bytes, &reply), 0);
    assert_int_equal(reply.refusal, MEMORY_LOG_GRANTED);
    return reply.segment;
}

static uint32_t refusal(struct memory_node *node, uint16_t id, uint64_t bytes)
{
    struct memory_log_reply reply;
    assert_int_equal(take(node, id, bytes, &reply), 0);
    if (reply.refusal != MEMORY_LOG_GRANTED)
        assert_true(reply.segment.address == GADDR_NULL && reply.segment.bytes == 0);
    return reply.refusal;
}

static int give(struct memory_node *node, uint16_t id, struct memory_log_segment segment)
{
    struct memory_log_reply reply;
    return ask(node, id, (struct memory_log_request){.kind = MEMORY_LOG_GIVE, .segment = segment}, &reply);
}

static int release(struct memory_node *node, uint16_t id, uint16_t whose)
{
    struct memory_log_reply reply;
    return ask(node, id,
               (struct memory_log_request){.kind = MEMORY_LOG_RELEASE, .process = process_of(whose)}, &reply);
}

static int list(struct memory_node *node, uint16_t whose, uint64_t after, struct memory_log_segments *page)
{
    struct memory_log_request request = {
        .kind = MEMORY_LOG_LIST, .instance = 7, .after = after, .process = process_of(whose)};
    size_t length;
    memset(page, 0, sizeof *page);
    int status = call_as(node, C, &request, sizeof request, page, sizeof *page, &length);
    if (!status)
        assert_int_equal(length, offsetof(struct memory_log_segments, segments) +
                                     page->count * sizeof page->segments[0]);
    return status;
}

static struct memory_log_processes processes(struct memory_node *node, uint64_t after)
{
    struct memory_log_request request = {.kind = MEMORY_LOG_PROCESSES, .instance = 7, .after = after};
    struct memory_log_processes page = {0};
    size_t length;
    assert_int_equal(call_as(node, C, &request, sizeof request, &page, sizeof page, &length), 0);
    assert_int_equal(length, offsetof(struct memory_log_processes, processes) +
                                 page.count * sizeof page.processes[0]);
    return page;
}

static struct memory_status_reply status_of(struct memory_node *node)
{
    struct memory_status_reply status;
    memory_node_status(node, &status);
    return status;
}

static uint8_t *bytes_at(struct memory_node *node, gaddr address)
{
    return memory_node_target(node)->pool + gaddr_offset(address);
}

static bool zeros(const uint8_t *bytes, size_t length)
{
    while (length > 0 && *bytes == 0)
        bytes++, length--;
    return length == 0;
}

/* ---- the kinds ---- */

static void test_kinds(void **state)
{
    struct memory_node *node = make();
    struct memory_log_reply reply;
    struct memory_log_segments page;
    assert_int_equal(take(node, A, MIB, &reply), BANYAN_ENOTFOUND); /* not opened */
    assert_int_equal(list(node, A, 0, &page), BANYAN_ENOTFOUND);
    assert_int_equal(processes(node, 0).count, 0);

    assert_int_equal(open_log(node, A, &reply), 0);
    gaddr control = reply.control;
    assert_true(control != GADDR_NULL && gaddr_offset(control) % 64 == 0 && reply.segments == 0);
    assert_true(zeros(bytes_at(node, control), MEMORY_LOG_CONTROL_BYTES));
    bytes_at(node, control)[3] = 1;
    assert_int_equal(open_log(node, A, &reply), 0); /* again: nothing changes */
    assert_true(reply.control == control && bytes_at(node, control)[3] == 1);

    struct memory_log_segment first = taken(node, A, MIB), second = taken(node, A, 100 * KIB);
    assert_true(first.bytes == MIB && second.bytes == LEAST); /* rounded down */
    assert_true(first.number > 0 && second.number > first.number);
    assert_true(gaddr_offset(first.address) % 64 == 0 && gaddr_offset(second.address) % 64 == 0);
    assert_int_equal(list(node, A, 0, &page), 0);
    assert_true(page.count == 2 && page.total == 2 && page.control == control && !page.fenced);
    assert_int_equal(page.bytes, MIB + LEAST);
    assert_memory_equal(&page.segments[0], &first, sizeof first);
    assert_memory_equal(&page.segments[1], &second, sizeof second);
    assert_int_equal(list(node, A, first.number, &page), 0);
    assert_true(page.count == 1 && page.total == 2 && page.segments[0].number == second.number);

    struct memory_log_processes all = processes(node, 0);
    assert_true(all.count == 1 && all.total == 1 && all.used == MIB + LEAST && all.most == 16 * MIB);
    assert_true(all.processes[0].process.instance == 100 + A && all.processes[0].process.compute_id == A);
    assert_true(all.processes[0].segments == 2 && all.processes[0].bytes == MIB + LEAST &&
                all.processes[0].control == control && !all.processes[0].fenced);
    assert_int_equal(processes(node, all.processes[0].serial).count, 0);

    struct memory_status_reply status = status_of(node);
    assert_true(status.log_processes == 1 && status.log_segments == 2 && status.log_bytes == MIB + LEAST &&
                status.log_bytes_max == 16 * MIB);
    assert_true(status.blocks_used == 3 && status.bytes_used == MIB + LEAST + MEMORY_LOG_CONTROL_BYTES);

    assert_int_equal(give(node, A, first), 0);
    assert_int_equal(give(node, A, first), BANYAN_EINVAL); /* it is gone */
    assert_int_equal(status_of(node).log_bytes, LEAST);
    assert_int_equal(release(node, A, A), 0); /* its own */
    assert_int_equal(release(node, A, A), BANYAN_ENOTFOUND);
    status = status_of(node);
    assert_true(status.blocks_used == 0 && status.bytes_used == 0 && status.log_segments == 0 &&
                status.log_bytes == 0 && status.log_processes == 0);
    memory_node_destroy(node);
}

/* A new segment's header and a new control block are zero wherever they lie. */
static void test_zeros(void **state)
{
    struct memory_node *node = make();
    struct memory_log_reply reply;
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(open_log(node, A, &reply), 0);
        gaddr control = reply.control;
        assert_true(zeros(bytes_at(node, control), MEMORY_LOG_CONTROL_BYTES));
        struct memory_log_segment segment = taken(node, A, MIB);
        assert_true(zeros(bytes_at(node, segment.address), MEMORY_LOG_HEADER_BYTES));
        memset(bytes_at(node, control), 0xaa, MEMORY_LOG_CONTROL_BYTES);
        memset(bytes_at(node, segment.address), 0xaa, segment.bytes);
        assert_int_equal(release(node, A, A), 0);
    }
    memory_node_destroy(node);
}

static void test_wrong_callers(void **state)
{
    struct memory_node *node = make();
    struct memory_log_reply reply;
    assert_int_equal(open_log(node, A, &reply), 0);
    assert_int_equal(open_log(node, B, &reply), 0);
    struct memory_log_segment of_a = taken(node, A, MIB), of_b = taken(node, B, MIB);

    /* Another's segment is not given back, nor one with a wrong number, size or address. */
    assert_int_equal(give(node, B, of_a), BANYAN_EINVAL);
    struct memory_log_segment wrong = of_a;
    wrong.number = of_b.number;
    assert_int_equal(give(node, A, wrong), BANYAN_EINVAL);
    wrong = of_a, wrong.bytes -= LEAST;
    assert_int_equal(give(node, A, wrong), BANYAN_EINVAL);
    wrong = of_a, wrong.address += 64;
    assert_int_equal(give(node, A, wrong), BANYAN_EINVAL);
    wrong = of_a, wrong.address = of_b.address;
    assert_int_equal(give(node, A, wrong), BANYAN_EINVAL);

    /* Another instance of the same compute node has nothing of it. */
    struct memory_log_request request = {.kind = MEMORY_LOG_GIVE, .instance = 9, .segment = of_a};
    assert_int_equal(ask(node, A, request, &reply), BANYAN_ENOTFOUND);
    assert_int_equal(release(node, B, A), BANYAN_EBUSY); /* it is not fenced */
    assert_int_equal(release(node, B, C), BANYAN_ENOTFOUND);
    assert_int_equal(status_of(node).log_bytes, of_a.bytes + of_b.bytes);

    /* A new process with that compute id says that the old one is gone. */
    request = (struct memory_log_request){.kind = MEMORY_LOG_OPEN, .instance = 9};
    assert_int_equal(ask(node, A, request, &reply), 0);
    assert_int_equal(reply.segments, 0);
    assert_int_equal(give(node, A, of_a), BANYAN_ECONFLICT);
    assert_int_equal(release(node, B, A), 0);
    assert_int_equal(status_of(node).log_processes, 2);
    assert_int_equal(give(node, B, of_b), 0);
    memory_node_destroy(node);
}

static void test_fencing(void **state)
{
    struct memory_node *node = make();
    struct memory_log_reply reply;
    struct memory_log_segments page;
    assert_int_equal(open_log(node, A, &reply), 0);
    gaddr control = reply.control;
    assert_int_equal(open_log(node, B, &reply), 0);
    struct memory_log_segment segment = taken(node, A, MIB);
    bytes_at(node, segment.address)[0] = 7;
    bytes_at(node, control)[0] = 8;
    memory_node_release_locks(node, A);

    /* All of it is there, and may be read and released by others; the process itself must open again. */
    assert_int_equal(list(node, A, 0, &page), 0);
    assert_true(page.fenced == 1 && page.count == 1 && page.segments[0].address == segment.address);
    assert_true(bytes_at(node, segment.address)[0] == 7 && bytes_at(node, control)[0] == 8);
    assert_int_equal(processes(node, 0).processes[0].fenced, 1);
    assert_int_equal(processes(node, 0).processes[1].fenced, 0);
    assert_int_equal(take(node, A, MIB, &reply), BANYAN_ECONFLICT);
    assert_int_equal(give(node, A, segment), BANYAN_ECONFLICT);
    assert_int_equal(release(node, A, B), BANYAN_EBUSY);

    assert_int_equal(open_log(node, A, &reply), 0); /* it came back */
    assert_true(reply.control == control && reply.segments == 1 && reply.bytes == MIB);
    assert_true(bytes_at(node, control)[0] == 8);
    assert_int_equal(release(node, B, A), BANYAN_EBUSY);
    taken(node, A, MIB);
    memory_node_finish(node, A);
    assert_int_equal(release(node, B, A), 0);
    assert_int_equal(list(node, A, 0, &page), BANYAN_ENOTFOUND);
    assert_int_equal(status_of(node).blocks_used, 1); /* the other's control block */
    memory_node_destroy(node);
}

static void test_format(void **state)
{
    struct memory_node *node = make();
    struct memory_log_reply reply;
    struct error error;
    assert_int_equal(open_log(node, A, &reply), 0);
    struct memory_log_segment before = taken(node, A, MIB);
    assert_int_equal(memory_node_format(node, 77, 3, 5, &error), 0);
    struct memory_status_reply status = status_of(node);
    assert_true(status.log_processes == 0 && status.log_segments == 0 && status.log_bytes == 0 &&
                status.log_bytes_max == 16 * MIB && status.blocks_used == 0);
    assert_int_equal(take(node, A, MIB, &reply), BANYAN_ENOTFOUND);
    assert_int_equal(open_log(node, A, &reply), 0);
    assert_int_equal(gaddr_node(reply.control), 3);
    struct memory_log_segment after = taken(node, A, MIB);
    assert_true(gaddr_node(after.address) == 3 && after.number > before.number);
    memory_node_destroy(node);
}

/* ---- how much ---- */

static void test_sizes(void **state)
{
    struct memory_node *node = make_with(600 * MIB, 8 * MIB, 200 * MIB);
    struct memory_log_reply reply;
    assert_int_equal(open_log(node, A, &reply), 0);
    assert_int_equal(taken(node, A, UINT64_MAX).bytes, MEMORY_LOG_SEGMENT_MOST);
    assert_int_equal(taken(node, A, 0).bytes, LEAST);
    assert_int_equal(taken(node, A, 1).bytes, LEAST);
    assert_int_equal(taken(node, A, 3 * MIB + 1).bytes, 3 * MIB);
    memory_node_destroy(node);

    node = make();
    assert_int_equal(open_log(node, A, &reply), 0);
    assert_int_equal(taken(node, A, 8 * MIB).bytes, 2 * MIB);      /* an eighth */
    assert_int_equal(taken(node, A, 8 * MIB).bytes, 14 * MIB / 8); /* of what is left */
    assert_int_equal(taken(node, A, 8 * MIB).bytes, 12 * MIB / 8); /* 12.25 are left */
    memory_node_destroy(node);

    node = make_with(64 * MIB, 256 * KIB, 0);
    assert_int_equal(status_of(node).log_bytes_max, (64 * MIB + MEMORY_FIRST_CHUNK(LOCKS)) / 32);
    memory_node_destroy(node);
    node = make_with(1 * MIB, 64 * KIB, 0);
    assert_int_equal(status_of(node).log_bytes_max, (1 * MIB + MEMORY_FIRST_CHUNK(LOCKS)) / 4);
    memory_node_destroy(node);
}

static void test_options(void **state)
{
    static const uint64_t bad[] = {1, MEMORY_LOG_BYTES_LEAST - 1, 3 * MIB, UINT64_MAX};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct memory_options options = {.pool_bytes = 4 * MIB, .log_bytes = bad[i]};
        struct memory_node *node;
        struct error error = {0};
        assert_int_equal(memory_node_create(&node, &options, &error), BANYAN_EINVAL);
        assert_null(node);
        assert_non_null(strstr(error.text, "from 512 KiB to half of the pool"));
    }
}

/* One process takes all that it gets; another that comes later still gets its two segments. */
static void test_fairness(void **state)
{
    struct memory_node *node = make();
    struct memory_log_reply reply;
    uint64_t bytes = 0, last = 0, two = 0;
    unsigned count = 0;
    assert_int_equal(open_log(node, A, &reply), 0);
    while (take(node, A, 8 * MIB, &reply) == 0 && reply.refusal == MEMORY_LOG_GRANTED) {
        bytes += last = reply.segment.bytes;
        two += count < 2 ? last : 0;
        count++;
    }
    assert_int_equal(reply.refusal, MEMORY_LOG_NO_SHARE);
    assert_true(count > 2 && reply.segments == count && reply.bytes == bytes);
    assert_int_equal(bytes - two, 16 * MIB / 4); /* its share beyond its first two, all of it */
    assert_true(bytes <= 16 * MIB / 2);

    /* A second one gets its two, and more while half of all is not taken. */
    assert_int_equal(open_log(node, B, &reply), 0);
    assert_true(taken(node, B, 8 * MIB).bytes >= MIB);
    assert_true(taken(node, B, 8 * MIB).bytes >= 768 * KIB);
    assert_int_equal(refusal(node, B, 8 * MIB), MEMORY_LOG_NO_SHARE);

    /* So do many more, with ever less. */
    for (uint16_t id = C; id < C + 10; id++) {
        assert_int_equal(open_log(node, id, &reply), 0);
        taken(node, id, 8 * MIB);
        taken(node, id, 8 * MIB);
    }

    /* Then all is taken, to the last piece. */
    for (uint16_t id = 100; reply.refusal != MEMORY_LOG_NO_BUDGET; id++) {
        assert_true(id < 100 + 256);
        assert_int_equal(open_log(node, id, &reply), 0);
        assert_int_equal(take(node, id, 8 * MIB, &reply), 0);
    }
    assert_true(reply.used > 16 * MIB - LEAST && reply.used <= 16 * MIB && reply.most == 16 * MIB);
    assert_int_equal(status_of(node).log_bytes, reply.used);
    assert_int_equal(refusal(node, A, 8 * MIB), MEMORY_LOG_NO_BUDGET);

    /* What one gives another gets. */
    memory_node_finish(node, A);
    assert_int_equal(release(node, B, A), 0);
    assert_int_equal(refusal(node, B, 8 * MIB), MEMORY_LOG_NO_SHARE); /* half is taken still */
    assert_int_equal(open_log(node, 500, &reply), 0);
    assert_true(taken(node, 500, 8 * MIB).bytes >= 512 * KIB);
    memory_node_destroy(node);
}

static void test_bounds(void **state)
{
    struct memory_node *node = make_with(256 * MIB, 256 * KIB, 128 * MIB);
    struct memory_log_reply reply;
    struct memory_log_segments page;
    for (uint32_t id = 1; id <= MEMORY_LOG_PROCESSES_MAX; id++) {
        assert_int_equal(open_log(node, (uint16_t)id, &reply), 0);
        assert_int_equal(reply.refusal, MEMORY_LOG_GRANTED);
    }
    assert_int_equal(open_log(node, MEMORY_LOG_PROCESSES_MAX + 1, &reply), 0);
    assert_int_equal(reply.refusal, MEMORY_LOG_NO_PROCESS);
    assert_true(reply.control == GADDR_NULL);
    assert_int_equal(open_log(node, 7, &reply), 0); /* one that is there */
    assert_int_equal(reply.refusal, MEMORY_LOG_GRANTED);

    /* The pages name each process once, in order. */
    uint64_t after = 0;
    uint32_t told = 0;
    for (struct memory_log_processes some = processes(node, 0); some.count > 0; some = processes(node, after))
        for (uint32_t i = 0; i < some.count; i++) {
            assert_true(some.processes[i].serial > after && some.total == MEMORY_LOG_PROCESSES_MAX);
            assert_int_equal(some.processes[i].process.compute_id, ++told);
            after = some.processes[i].serial;
        }
    assert_int_equal(told, MEMORY_LOG_PROCESSES_MAX);

    /* Segments of one process: pages of them, and its share. */
    uint32_t count = 0;
    while (refusal(node, 9, 1) == MEMORY_LOG_GRANTED)
        count++;
    assert_int_equal(count, 2 + 128 * MIB / 4 / LEAST);
    after = 0;
    told = 0;
    do {
        assert_int_equal(list(node, 9, after, &page), 0);
        for (uint32_t i = 0; i < page.count; i++, told++) {
            assert_true(page.segments[i].number > after);
            after = page.segments[i].number;
        }
    } while (page.count == MEMORY_LOG_PAGE);
    assert_int_equal(told, count);
    memory_node_destroy(node);

    node = make_with(700 * MIB, 256 * KIB, 320 * MIB);
    assert_int_equal(open_log(node, A, &reply), 0);
    for (count = 0; refusal(node, A, 1) == MEMORY_LOG_GRANTED;)
        count++;
    assert_int_equal(count, MEMORY_LOG_SEGMENTS_MAX); /* less than its share */
    memory_node_destroy(node);
}

/* ---- in the pool ---- */

static int allocate(struct memory_node *node, uint32_t bytes, uint16_t purpose, gaddr *block)
{
    struct memory_allocate_request request = {
        .kind = MEMORY_ALLOCATE, .block_bytes = bytes, .want = 1, .purpose = purpose};
    struct memory_allocate_reply reply;
    size_t length;
    int status = call_as(node, A, &request, sizeof request, &reply, sizeof reply, &length);
    if (!status)
        *block = reply.blocks[0];
    return status;
}

static int free_block(struct memory_node *node, gaddr block, uint32_t bytes)
{
    struct memory_free_request request = {
        .kind = MEMORY_FREE, .block_bytes = bytes, .count = 1, .blocks = {block}};
    struct memory_free_reply reply;
    size_t length;
    return call_as(node, A, &request, sizeof request, &reply, sizeof reply, &length);
}

/* Only GIVE and RELEASE end a log's block. */
static void test_not_freed_by_others(void **state)
{
    struct memory_node *node = make();
    struct memory_log_reply reply;
    gaddr block;
    assert_int_equal(open_log(node, A, &reply), 0);
    gaddr control = reply.control;
    struct memory_log_segment segment = taken(node, A, 128 * KIB);
    assert_int_equal(allocate(node, 64, MEMORY_FOR_NODES, &block), 0);
    assert_true(memory_node_is_log(node, control) && memory_node_is_log(node, segment.address));
    assert_false(memory_node_is_log(node, block) || memory_node_is_log(node, segment.address + 64) ||
                 memory_node_is_log(node, 0) || memory_node_is_log(node, gaddr_make(1, 1 << 20)));
    assert_int_equal(free_block(node, control, MEMORY_LOG_CONTROL_BYTES), BANYAN_EINVAL);
    assert_int_equal(free_block(node, segment.address, 128 * KIB), BANYAN_EINVAL);
    assert_int_equal(free_block(node, block, 64), 0);
    assert_int_equal(give(node, A, segment), 0);
    assert_int_equal(release(node, A, A), 0);
    assert_int_equal(status_of(node).bytes_used, 0);

    /* The same granules serve others then. */
    assert_int_equal(allocate(node, 64, MEMORY_FOR_NODES, &block), 0);
    assert_true(block == control);
    assert_int_equal(free_block(node, block, 64), 0);
    memory_node_destroy(node);
}

static struct memory_evacuate_reply evacuate(struct memory_node *node, uint32_t kind, uint64_t evacuation)
{
    struct memory_evacuate_request request = {.kind = kind, .tried = 1, .evacuation = evacuation};
    struct memory_evacuate_reply reply = {0};
    size_t length;
    assert_int_equal(call_as(node, MOVER, &request, sizeof request, &reply, sizeof reply, &length), 0);
    return reply;
}

/* Segments fill whole chunks where they can, and a chunk with nothing but a segment is never emptied. */
static void test_whole_chunks(void **state)
{
    const uint64_t chunk = 256 * KIB;
    struct memory_node *node = make_with(64 * MIB, chunk, 16 * MIB);
    struct memory_log_reply reply;
    gaddr first = gaddr_make(0, MEMORY_FIRST_CHUNK(LOCKS)), block, some[64];
    assert_int_equal(open_log(node, A, &reply), 0);
    assert_int_equal(allocate(node, 1024, MEMORY_FOR_DATA, &block), 0); /* the highest chunk has data */
    struct memory_log_segment one = taken(node, A, MIB);
    assert_int_equal((one.address - first) % chunk, 0);
    assert_int_equal(one.address + one.bytes, first + 64 * MIB - chunk); /* right below it */

    /* Sparse chunks with data are chosen; those of segments are not. */
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(allocate(node, 64 * KIB, MEMORY_FOR_DATA, &some[i]), 0);
    struct memory_log_segment two = taken(node, A, MIB);
    for (unsigned i = 0; i < 64; i++)
        if (i % 4 != 1)
            assert_int_equal(free_block(node, some[i], 64 * KIB), 0);
    struct memory_evacuate_reply chosen = evacuate(node, MEMORY_EVACUATE_BEGIN, 0);
    assert_true(chosen.evacuation != 0 && chosen.count > 0);
    for (uint32_t i = 0; i < chosen.count; i++) {
        const struct memory_evacuate_range *range = &chosen.ranges[i];
        assert_true(range->to <= one.address || range->from >= one.address + one.bytes);
        assert_true(range->to <= two.address || range->from >= two.address + two.bytes);
    }
    evacuate(node, MEMORY_EVACUATE_END, chosen.evacuation);
    memory_node_destroy(node);
}

/* In a pool that is nearly full a segment takes what lies in one piece, and leaves the nodes' reserve alone.
 */
static void test_full_pool(void **state)
{
    struct memory_node *node = make_with(16 * MIB, 64 * KIB, 8 * MIB);
    struct memory_log_reply reply;
    gaddr block, last = 0, before = 0;
    assert_int_equal(open_log(node, A, &reply), 0);
    while (allocate(node, 96 * KIB, MEMORY_FOR_DATA, &block) == 0)
        before = last, last = block;
    while (allocate(node, 32 * KIB, MEMORY_FOR_DATA, &block) == 0)
        continue;
    assert_int_equal(refusal(node, A, MIB), MEMORY_LOG_NO_SPACE);
    assert_true(status_of(node).bytes_free >= 256 * KIB); /* the reserve: a 64th of the pool */
    assert_int_equal(free_block(node, last, 96 * KIB), 0);
    assert_int_equal(taken(node, A, MIB).bytes, LEAST);
    assert_int_equal(refusal(node, A, MIB), MEMORY_LOG_NO_SPACE);
    assert_int_equal(free_block(node, before, 96 * KIB), 0);
    assert_int_equal(taken(node, A, MIB).bytes, LEAST);
    assert_int_equal(allocate(node, 64 * KIB, MEMORY_FOR_NODES, &block), 0);
    memory_node_destroy(node);
}

/* Segments of 8 MiB where chunks are smaller, larger and just as large. */
static void test_long_runs(void **state)
{
    static const uint64_t chunks[] = {64 * KIB, 8 * MIB, 64 * MIB};
    for (unsigned i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        struct memory_node *node = make_with(256 * MIB, chunks[i], 128 * MIB);
        struct memory_log_reply reply;
        uint64_t all = 0;
        for (uint16_t id = 1; id <= 4; id++) {
            assert_int_equal(open_log(node, id, &reply), 0);
            for (unsigned times = 0; times < 2; times++) {
                struct memory_log_segment segment = taken(node, id, 8 * MIB);
                assert_int_equal(segment.bytes, 8 * MIB);
                memset(bytes_at(node, segment.address), id, segment.bytes);
                all += segment.bytes;
            }
        }
        assert_int_equal(status_of(node).log_bytes, all);
        for (uint16_t id = 1; id <= 4; id++)
            assert_int_equal(release(node, id, id), 0);
        assert_int_equal(status_of(node).bytes_used, 0);
        memory_node_destroy(node);
    }
}

/* ---- random operations against a reference ---- */

#define MODEL_PROCESSES 6u
#define MODEL_SEGMENTS  64u
#define MODEL_BLOCKS    64u

struct model_process {
    bool open, fenced;
    gaddr control;
    unsigned count;
    struct memory_log_segment segments[MODEL_SEGMENTS];
};

struct model {
    struct memory_node *node;
    struct random random;
    uint64_t most, numbers;
    struct model_process processes[MODEL_PROCESSES + 1]; /* by compute id */
    gaddr blocks[MODEL_BLOCKS];                          /* of others; 0: none */
    uint32_t block_bytes[MODEL_BLOCKS];
    uint64_t evacuation; /* 0: none is under way */
    unsigned evacuations;
};

static uint64_t model_bytes(const struct model_process *process, unsigned from)
{
    uint64_t bytes = 0;
    for (unsigned i = from; i < process->count; i++)
        bytes += process->segments[i].bytes;
    return bytes;
}

static uint64_t model_used(const struct model *model)
{
    uint64_t bytes = 0;
    for (unsigned id = 1; id <= MODEL_PROCESSES; id++)
        bytes += model_bytes(&model->processes[id], 0);
    return bytes;
}

static void model_take(struct model *model, uint16_t id)
{
    struct model_process *process = &model->processes[id];
    struct memory_log_reply reply;
    const uint64_t asked = random_below(&model->random, 3 * MIB), used = model_used(model);
    int expected = !process->open ? BANYAN_ENOTFOUND : process->fenced ? BANYAN_ECONFLICT : 0;
    assert_int_equal(take(model->node, id, asked, &reply), expected);
    if (expected)
        return;
    if (reply.refusal == MEMORY_LOG_NO_BUDGET)
        assert_true(model->most - used < LEAST);
    if (reply.refusal == MEMORY_LOG_NO_SHARE)
        assert_true(process->count >= 2 &&
                    (model_bytes(process, 2) + LEAST > model->most / 4 || used + LEAST > model->most / 2));
    if (reply.refusal != MEMORY_LOG_GRANTED)
        return;
    const struct memory_log_segment *segment = &reply.segment;
    assert_true(segment->bytes % LEAST == 0 && segment->bytes >= LEAST);
    assert_true(segment->bytes <= asked || segment->bytes == LEAST);
    assert_true(segment->bytes <= (model->most - used) / 8 || segment->bytes == LEAST);
    assert_true(segment->number > model->numbers);
    assert_true(process->count < MODEL_SEGMENTS);
    model->numbers = segment->number;
    process->segments[process->count++] = *segment;
    assert_true(model_used(model) <= model->most);
    if (process->count > 2)
        assert_true(model_bytes(process, 2) <= model->most / 4 && model_used(model) <= model->most / 2);
    memset(bytes_at(model->node, segment->address), (int)segment->number & 0xff, segment->bytes);
}

static void model_give(struct model *model, uint16_t id)
{
    struct model_process *process = &model->processes[id];
    if (process->count == 0)
        return;
    unsigned at = (unsigned)random_below(&model->random, process->count);
    struct memory_log_segment segment = process->segments[at];
    uint16_t caller = (uint16_t)(1 + random_below(&model->random, MODEL_PROCESSES));
    const struct model_process *asking = &model->processes[caller];
    int expected = !asking->open    ? BANYAN_ENOTFOUND
                   : asking->fenced ? BANYAN_ECONFLICT
                   : caller != id   ? BANYAN_EINVAL
                                    : 0;
    const uint8_t *bytes = bytes_at(model->node, segment.address);
    assert_true(bytes[0] == (segment.number & 0xff) && bytes[segment.bytes - 1] == (segment.number & 0xff));
    assert_int_equal(give(model->node, caller, segment), expected);
    if (expected)
        return;
    process->count--;
    memmove(&process->segments[at], &process->segments[at + 1],
            (process->count - at) * sizeof process->segments[0]);
}

static void model_release(struct model *model, uint16_t id, uint16_t caller)
{
    struct model_process *process = &model->processes[id];
    int expected = !process->open ? BANYAN_ENOTFOUND : caller != id && !process->fenced ? BANYAN_EBUSY : 0;
    assert_int_equal(release(model->node, caller, id), expected);
    if (!expected)
        *process = (struct model_process){0};
}

static void model_open(struct model *model, uint16_t id)
{
    struct model_process *process = &model->processes[id];
    struct memory_log_reply reply;
    assert_int_equal(open_log(model->node, id, &reply), 0);
    if (reply.refusal != MEMORY_LOG_GRANTED) {
        assert_int_equal(reply.refusal, MEMORY_LOG_NO_SPACE);
        assert_false(process->open);
        return;
    }
    assert_true(!process->open || process->control == reply.control);
    assert_int_equal(reply.segments, process->count);
    process->open = true;
    process->fenced = false;
    process->control = reply.control;
}

/* Others' blocks come and go among the logs'. */
static void model_block(struct model *model)
{
    unsigned at = (unsigned)random_below(&model->random, MODEL_BLOCKS);
    if (model->blocks[at] != GADDR_NULL) {
        assert_false(memory_node_is_log(model->node, model->blocks[at]));
        assert_int_equal(free_block(model->node, model->blocks[at], model->block_bytes[at]), 0);
        model->blocks[at] = GADDR_NULL;
        return;
    }
    uint32_t bytes = memory_block_bytes(1 + random_below(&model->random, MEMORY_BLOCK_MAX));
    if (random_below(&model->random, 2))
        bytes = memory_block_bytes(1 + random_below(&model->random, 2048));
    if (allocate(model->node, bytes, (uint16_t)random_below(&model->random, 2), &model->blocks[at]))
        model->blocks[at] = GADDR_NULL;
    model->block_bytes[at] = bytes;
}

/* Chunks are emptied meanwhile, and what is kept back is handed out as the last resort. */
static void model_evacuate(struct model *model)
{
    if (model->evacuation)
        evacuate(model->node, MEMORY_EVACUATE_END, model->evacuation);
    model->evacuation = model->evacuation ? 0 : evacuate(model->node, MEMORY_EVACUATE_BEGIN, 0).evacuation;
    model->evacuations += model->evacuation != 0;
}

static void count_log_block(void *context, gaddr block, uint32_t block_bytes)
{
    uint64_t *counts = context; /* blocks and bytes */
    struct memory_node *node = (struct memory_node *)(uintptr_t)counts[2];
    if (memory_node_is_log(node, block)) {
        counts[0]++;
        counts[1] += block_bytes;
    }
}

/* What the memory node says of all processes is what the reference has, and so are its blocks. */
static void model_compare(struct model *model)
{
    struct memory_status_reply status = status_of(model->node);
    struct memory_log_processes all = processes(model->node, 0);
    uint64_t opened = 0, segments = 0, counts[3] = {0, 0, (uintptr_t)model->node};
    for (uint16_t id = 1; id <= MODEL_PROCESSES; id++) {
        const struct model_process *process = &model->processes[id];
        struct memory_log_segments page;
        assert_int_equal(list(model->node, id, 0, &page), process->open ? 0 : BANYAN_ENOTFOUND);
        if (!process->open)
            continue;
        opened++;
        segments += process->count;
        assert_true(page.count == process->count && page.fenced == process->fenced &&
                    page.control == process->control && page.bytes == model_bytes(process, 0));
        assert_memory_equal(page.segments, process->segments, page.count * sizeof page.segments[0]);
        bool told = false;
        for (uint32_t i = 0; i < all.count; i++)
            told |= all.processes[i].process.compute_id == id &&
                    all.processes[i].segments == process->count && all.processes[i].fenced == process->fenced;
        assert_true(told);
    }
    assert_true(all.count == opened && all.used == model_used(model));
    assert_true(status.log_processes == opened && status.log_segments == segments &&
                status.log_bytes == model_used(model));
    memory_node_each_used(model->node, count_log_block, counts);
    assert_int_equal(counts[0], opened + segments);
    assert_int_equal(counts[1], model_used(model) + opened * MEMORY_LOG_CONTROL_BYTES);
}

static void model_step(struct model *model)
{
    uint16_t id = (uint16_t)(1 + random_below(&model->random, MODEL_PROCESSES));
    switch (random_below(&model->random, 17)) {
    case 0:
    case 1:
        model_open(model, id);
        break;
    case 2:
        memory_node_finish(model->node, id);
        model->processes[id].fenced = true; /* of one that is not open it means nothing */
        break;
    case 3:
        model_release(model, id, (uint16_t)(1 + random_below(&model->random, MODEL_PROCESSES)));
        break;
    case 4:
    case 5:
    case 6:
        model_give(model, id);
        break;
    case 16:
        model_evacuate(model);
        break;
    case 7:
    case 8:
    case 9:
    case 10:
        model_block(model);
        break;
    default:
        model_take(model, id);
    }
}

static void test_random(void **state)
{
    static const uint64_t chunks[] = {64 * KIB, 256 * KIB, 8 * MIB};
    unsigned evacuations = 0;
    for (unsigned seed = 0; seed < 6; seed++) {
        struct model model = {.most = 12 * MIB};
        model.node = make_with(32 * MIB, chunks[seed % 3], model.most);
        random_seed(&model.random, seed);
        for (unsigned step = 0; step < 4000; step++) {
            model_step(&model);
            if (step % 64 == 0)
                model_compare(&model);
        }
        model_compare(&model);
        for (uint16_t id = 1; id <= MODEL_PROCESSES; id++)
            model_release(&model, id, id);
        for (unsigned i = 0; i < MODEL_BLOCKS; i++)
            if (model.blocks[i] != GADDR_NULL)
                assert_int_equal(free_block(model.node, model.blocks[i], model.block_bytes[i]), 0);
        assert_int_equal(status_of(model.node).bytes_used, 0);
        memory_node_destroy(model.node);
        evacuations += model.evacuations;
    }
    assert_true(evacuations > 50);
}

/* ---- nonsense ---- */

static void test_nonsense(void **state)
{
    struct memory_node *node = make();
    struct memory_log_request request = {.kind = MEMORY_LOG_OPEN, .instance = 1};
    uint8_t reply[sizeof(struct memory_log_processes)];
    size_t length;
    for (uint32_t kind = MEMORY_LOG; kind <= MEMORY_LOG_LAST; kind++) {
        request.kind = kind;
        for (size_t bytes = sizeof kind; bytes < sizeof request; bytes++)
            assert_int_equal(call_as(node, A, &request, bytes, reply, sizeof reply, &length), BANYAN_EINVAL);
        assert_int_equal(call_as(node, 0, &request, sizeof request, reply, sizeof reply, &length),
                         BANYAN_EINVAL); /* of no compute node */
        struct memory_log_request nobody = request;
        nobody.instance = 0;
        assert_int_equal(call_as(node, A, &nobody, sizeof nobody, reply, sizeof reply, &length),
                         BANYAN_EINVAL);
        struct memory_call call = {.role = MEMORY_ROLE_MONITOR,
                                   .compute_id = A,
                                   .request = &request,
                                   .length = sizeof request,
                                   .reply = reply,
                                   .capacity = sizeof reply};
        assert_int_equal(memory_node_serve(node, &call), BANYAN_ENOTSUP);
    }
    /* Without room for the reply nothing is granted. */
    request.kind = MEMORY_LOG_OPEN;
    for (size_t room = 0; room < sizeof(struct memory_log_reply); room++)
        assert_int_equal(call_as(node, A, &request, sizeof request, reply, room, &length), BANYAN_EINVAL);
    assert_int_equal(status_of(node).log_processes, 0);
    request.kind = MEMORY_LOG_PROCESSES;
    assert_int_equal(call_as(node, A, &request, sizeof request, reply, sizeof reply - 1, &length),
                     BANYAN_EINVAL);
    memory_node_destroy(node);

    /* A memory node of no cluster keeps no log. */
    struct memory_options options = {.pool_bytes = 4 * MIB, .unformatted = true};
    struct error error;
    assert_int_equal(memory_node_create(&node, &options, &error), 0);
    request.kind = MEMORY_LOG_OPEN;
    assert_int_equal(call_as(node, A, &request, sizeof request, reply, sizeof reply, &length), BANYAN_EINVAL);
    memory_node_destroy(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),         cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_wrong_callers), cmocka_unit_test(test_fencing),
        cmocka_unit_test(test_format),        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_options),       cmocka_unit_test(test_fairness),
        cmocka_unit_test(test_bounds),        cmocka_unit_test(test_not_freed_by_others),
        cmocka_unit_test(test_whole_chunks),  cmocka_unit_test(test_full_pool),
        cmocka_unit_test(test_long_runs),     cmocka_unit_test(test_random),
        cmocka_unit_test(test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
