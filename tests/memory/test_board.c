/* test_board.c - the board of a memory node: its version, its lock and what a fencing leaves of it, its
 * members; and requests that make no sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "memory/memory.h"

#define LOCKS UINT64_C(1024)
#define A     1u
#define B     2u
#define C     3u

static struct memory_node *make(void)
{
    struct memory_options options = {
        .pool_bytes = MEMORY_FIRST_CHUNK(LOCKS) + (64u << 10), .chunk_bytes = 64u << 10, .lock_bytes = LOCKS};
    struct memory_node *node = NULL;
    struct error error = {0};
    if (memory_node_create(&node, &options, &error))
        fail_msg("%s", error.text);
    return node;
}

/* Process `id` has the instance 100 + id. */
static int ask_as(struct memory_node *node, uint16_t id, struct memory_board_request *request,
                  struct memory_board_reply *reply)
{
    struct memory_call call = {.role = MEMORY_ROLE_DATA,
                               .compute_id = id,
                               .request = request,
                               .length = sizeof *request,
                               .reply = reply,
                               .capacity = sizeof *reply};
    if (!request->instance)
        request->instance = 100u + id;
    int status = memory_node_serve(node, &call);
    assert_int_equal(call.reply_length, status ? 0 : sizeof *reply);
    return status;
}

static int simple(struct memory_node *node, uint16_t id, uint32_t kind, uint64_t grant, uint64_t version,
                  struct memory_board_reply *reply)
{
    struct memory_board_request request = {.kind = kind, .grant = grant, .version = version};
    return ask_as(node, id, &request, reply);
}

static struct memory_board_members members(struct memory_node *node, uint32_t skip);

static uint64_t serial_of(struct memory_node *node, uint16_t id)
{
    struct memory_board_members told = members(node, 0);
    for (uint32_t i = 0; i < told.count; i++)
        if (told.members[i].process.compute_id == id)
            return told.members[i].serial;
    return 0;
}

static int clean(struct memory_node *node, uint16_t id, uint64_t grant, uint16_t whom, uint64_t serial)
{
    struct memory_board_reply reply;
    struct memory_board_request request = {.kind = MEMORY_BOARD_CLEAN,
                                           .grant = grant,
                                           .serial = serial,
                                           .process = {.instance = 100u + whom, .compute_id = whom}};
    return ask_as(node, id, &request, &reply);
}

static uint64_t take(struct memory_node *node, uint16_t id, struct memory_board_reply *reply)
{
    assert_int_equal(simple(node, id, MEMORY_BOARD_LOCK, 0, 0, reply), 0);
    return reply->grant;
}

static struct memory_board_members members(struct memory_node *node, uint32_t skip)
{
    struct memory_board_members told = {0};
    struct memory_board_request request = {.kind = MEMORY_BOARD_MEMBERS, .instance = 1, .skip = skip};
    struct memory_call call = {.role = MEMORY_ROLE_DATA,
                               .compute_id = A,
                               .request = &request,
                               .length = sizeof request,
                               .reply = &told,
                               .capacity = sizeof told};
    assert_int_equal(memory_node_serve(node, &call), 0);
    assert_int_equal(call.reply_length,
                     offsetof(struct memory_board_members, members) + told.count * sizeof told.members[0]);
    return told;
}

static void test_lock_and_version(void **state)
{
    struct memory_node *node = make();
    struct memory_board_reply reply;
    uint64_t first = take(node, A, &reply);
    assert_true(first != 0 && reply.version == 0 && reply.orphan.instance == 0);
    assert_int_equal(take(node, B, &reply), 0);
    assert_int_equal(reply.holder.compute_id, A);
    assert_int_equal(reply.holder.instance, 100 + A);

    /* Publishing is the holder's, one step at a time, and may be repeated. */
    assert_int_equal(simple(node, B, MEMORY_BOARD_PUBLISH, first, 1, &reply), BANYAN_ECONFLICT);
    assert_int_equal(simple(node, A, MEMORY_BOARD_PUBLISH, first + 1, 1, &reply), BANYAN_ECONFLICT);
    assert_int_equal(simple(node, A, MEMORY_BOARD_PUBLISH, first, 2, &reply), BANYAN_EINVAL);
    assert_int_equal(simple(node, A, MEMORY_BOARD_PUBLISH, first, 1, &reply), 0);
    assert_int_equal(simple(node, A, MEMORY_BOARD_PUBLISH, first, 1, &reply), 0);
    assert_int_equal(reply.version, 1);

    /* The holder that asks again (its reply was lost) gets a grant of its own: the old one frees nothing. */
    uint64_t second = take(node, A, &reply);
    assert_true(second > first);
    assert_int_equal(simple(node, A, MEMORY_BOARD_UNLOCK, first, 0, &reply), 0);
    assert_int_equal(take(node, B, &reply), 0);
    assert_int_equal(simple(node, B, MEMORY_BOARD_UNLOCK, second, 0, &reply), 0); /* not its own */
    assert_int_equal(take(node, B, &reply), 0);
    assert_int_equal(simple(node, A, MEMORY_BOARD_UNLOCK, second, 0, &reply), 0);
    assert_true(take(node, B, &reply) > second);
    memory_node_destroy(node);
}

/* Another process of the same compute id has nothing of the first one's. */
static void test_instances(void **state)
{
    struct memory_node *node = make();
    struct memory_board_reply reply;
    uint64_t grant = take(node, A, &reply);
    struct memory_board_request request = {.kind = MEMORY_BOARD_LOCK, .instance = 7};
    assert_int_equal(ask_as(node, A, &request, &reply), 0);
    assert_int_equal(reply.grant, 0);
    request = (struct memory_board_request){
        .kind = MEMORY_BOARD_PUBLISH, .instance = 7, .grant = grant, .version = 1};
    assert_int_equal(ask_as(node, A, &request, &reply), BANYAN_ECONFLICT);
    memory_node_destroy(node);
}

static void test_orphan(void **state)
{
    struct memory_node *node = make();
    struct memory_board_reply reply;
    uint64_t of_a = take(node, A, &reply);
    memory_node_finish(node, C); /* another's end changes nothing */
    assert_int_equal(take(node, B, &reply), 0);
    memory_node_finish(node, A);
    assert_int_equal(simple(node, A, MEMORY_BOARD_PUBLISH, of_a, 1, &reply), BANYAN_ECONFLICT);

    uint64_t of_b = take(node, B, &reply);
    assert_int_equal(reply.orphan.compute_id, A);
    assert_int_equal(reply.orphan.instance, 100 + A);
    assert_int_equal(simple(node, B, MEMORY_BOARD_PUBLISH, of_b, 1, &reply), BANYAN_ECONFLICT);

    /* B is fenced before it has fenced A: A is the one that the next must fence. */
    memory_node_finish(node, B);
    uint64_t of_c = take(node, C, &reply);
    assert_int_equal(reply.orphan.compute_id, A);
    assert_int_equal(clean(node, B, of_b, A, 0), BANYAN_ECONFLICT);
    assert_int_equal(clean(node, C, of_c, 0, 0), BANYAN_EINVAL);
    assert_int_equal(clean(node, C, of_c, B, 0), 0); /* not the orphan */
    assert_int_equal(simple(node, C, MEMORY_BOARD_PUBLISH, of_c, 1, &reply), BANYAN_ECONFLICT);
    assert_int_equal(clean(node, C, of_c, A, 0), 0);
    assert_int_equal(simple(node, C, MEMORY_BOARD_PUBLISH, of_c, 1, &reply), 0);
    assert_int_equal(reply.orphan.instance, 0);

    /* C may have written since, so it is what is told of C's end. */
    memory_node_finish(node, C);
    of_c = take(node, C, &reply); /* it came back itself */
    assert_int_equal(reply.orphan.compute_id, C);
    assert_int_equal(clean(node, C, of_c, C, 0), 0);
    assert_int_equal(simple(node, C, MEMORY_BOARD_PUBLISH, of_c, 2, &reply), 0);
    memory_node_destroy(node);
}

static void enter(struct memory_node *node, uint16_t id, uint64_t version, uint16_t willing, int wanted)
{
    struct memory_board_reply reply;
    struct memory_board_request request = {
        .kind = MEMORY_BOARD_ENTER, .version = version, .willing = willing};
    assert_int_equal(ask_as(node, id, &request, &reply), wanted);
}

static void enter_logs(struct memory_node *node, uint16_t id, uint32_t logs, int wanted)
{
    struct memory_board_reply reply;
    struct memory_board_request request = {.kind = MEMORY_BOARD_ENTER, .logs = logs};
    assert_int_equal(ask_as(node, id, &request, &reply), wanted);
}

static void test_members(void **state)
{
    struct memory_node *node = make();
    struct memory_board_reply reply;
    enter(node, A, 0, 1, 0);
    enter(node, B, 0, 0, 0);
    enter(node, A, 1, 1, BANYAN_EINVAL); /* not published */
    uint64_t grant = take(node, A, &reply);
    assert_int_equal(simple(node, A, MEMORY_BOARD_PUBLISH, grant, 1, &reply), 0);
    enter(node, A, 1, 0, 0);
    enter(node, A, 0, 0, 0); /* late: the number stays */

    struct memory_board_members told = members(node, 0);
    assert_int_equal(told.count, 2);
    assert_int_equal(told.total, 2);
    assert_int_equal(told.version, 1);
    assert_int_equal(told.members[0].process.compute_id, A);
    assert_int_equal(told.members[0].adopted, 1);
    assert_int_equal(told.members[0].willing, 0);
    assert_int_equal(told.members[1].process.compute_id, B);
    assert_int_equal(told.members[1].adopted, 0);
    assert_int_equal(told.members[1].logs, MEMORY_BOARD_NO_LOG);
    enter_logs(node, B, MEMORY_BOARD_LOGS, 0);
    assert_int_equal(members(node, 0).members[1].logs, MEMORY_BOARD_LOGS);
    assert_int_equal(members(node, 0).members[0].logs, MEMORY_BOARD_NO_LOG);
    enter_logs(node, B, MEMORY_BOARD_LOG_KINDS, BANYAN_EINVAL);
    assert_int_equal(members(node, 0).members[1].logs, MEMORY_BOARD_LOGS);
    enter_logs(node, B, MEMORY_BOARD_INHERITS, 0);
    assert_int_equal(members(node, 0).members[1].logs, MEMORY_BOARD_INHERITS);
    assert_int_equal(members(node, 1).count, 1);
    assert_int_equal(members(node, 2).count, 0);
    assert_int_equal(members(node, UINT32_MAX).count, 0);

    /* A member that is fenced here may write elsewhere: it stays until it leaves, or is fenced everywhere. */
    memory_node_finish(node, B);
    assert_int_equal(members(node, 0).count, 2);
    uint64_t serial = serial_of(node, B);
    enter(node, B, 1, 0, 0); /* it comes back while it is being fenced: it stays */
    assert_int_equal(clean(node, A, grant, B, serial), 0);
    assert_int_equal(members(node, 0).count, 2);
    serial = serial_of(node, B);
    assert_int_equal(clean(node, A, grant, B, serial), 0);
    assert_int_equal(clean(node, A, grant, B, serial), 0);
    assert_int_equal(members(node, 0).count, 1);
    assert_int_equal(simple(node, A, MEMORY_BOARD_LEAVE, 0, 0, &reply), 0);
    assert_int_equal(simple(node, A, MEMORY_BOARD_LEAVE, 0, 0, &reply), 0);
    assert_int_equal(members(node, 0).count, 0);
    memory_node_destroy(node);
}

static void test_many_members(void **state)
{
    struct memory_node *node = make();
    for (uint16_t id = 1; id <= MEMORY_BOARD_MEMBERS_MAX; id++)
        enter(node, id, 0, 1, 0);
    enter(node, MEMORY_BOARD_MEMBERS_MAX + 1, 0, 1, BANYAN_ENOSPC);
    enter(node, 9, 0, 0, 0); /* who is there may change */
    uint32_t seen = 0;
    for (;;) {
        struct memory_board_members told = members(node, seen);
        assert_int_equal(told.total, MEMORY_BOARD_MEMBERS_MAX);
        if (!told.count)
            break;
        for (uint32_t i = 0; i < told.count; i++)
            assert_int_equal(told.members[i].process.compute_id, ++seen);
    }
    assert_int_equal(seen, MEMORY_BOARD_MEMBERS_MAX);

    /* Formatted anew, it is empty; what was granted before counts no more. */
    struct error error = {0};
    struct memory_board_reply reply;
    uint64_t grant = take(node, A, &reply);
    assert_int_equal(simple(node, A, MEMORY_BOARD_PUBLISH, grant, 1, &reply), 0);
    assert_int_equal(memory_node_format(node, 5, 0, 1, &error), 0);
    assert_int_equal(members(node, 0).total, 0);
    assert_int_equal(simple(node, A, MEMORY_BOARD_PUBLISH, grant, 1, &reply), BANYAN_ECONFLICT);
    assert_true(take(node, B, &reply) > grant);
    assert_int_equal(reply.version, 0);
    memory_node_destroy(node);
}

static void test_nonsense(void **state)
{
    struct memory_node *node = make();
    struct memory_board_members room;
    struct memory_board_request request = {.instance = 1};
    struct memory_call call = {.role = MEMORY_ROLE_DATA,
                               .compute_id = A,
                               .request = &request,
                               .length = sizeof request,
                               .reply = &room,
                               .capacity = sizeof room};
    for (uint32_t kind = MEMORY_BOARD; kind <= MEMORY_BOARD_LAST; kind++) {
        request.kind = kind;
        struct memory_call one = call;
        one.length = sizeof request - 1;
        assert_int_equal(memory_node_serve(node, &one), BANYAN_EINVAL);
        one = call;
        one.capacity = sizeof(struct memory_board_reply) - 1;
        assert_int_equal(memory_node_serve(node, &one), BANYAN_EINVAL);
        one = call;
        one.compute_id = 0;
        assert_int_equal(memory_node_serve(node, &one), BANYAN_EINVAL);
        one = call;
        one.role = MEMORY_ROLE_MONITOR;
        assert_int_equal(memory_node_serve(node, &one), BANYAN_ENOTSUP);
        request.instance = 0;
        assert_int_equal(memory_node_serve(node, &call), BANYAN_EINVAL);
        request.instance = 1;
    }
    request.kind = MEMORY_BOARD_MEMBERS;
    call.capacity = sizeof room - 1;
    assert_int_equal(memory_node_serve(node, &call), BANYAN_EINVAL);
    memory_node_destroy(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lock_and_version), cmocka_unit_test(test_instances),
        cmocka_unit_test(test_orphan),           cmocka_unit_test(test_members),
        cmocka_unit_test(test_many_members),     cmocka_unit_test(test_nonsense),
    };
    return cmocka_run_group_tests_name("board", tests, NULL, NULL);
}
