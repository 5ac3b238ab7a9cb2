/*
 * test_node.c - what the maker of a checkpoint hears of a memory node that refuses an action (save/node.h).
 * The fabric is a local one whose calls the test answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fabric/local.h"
#include "memory/memory.h"
#include "save/node.h"

enum { OURS = 3, ANOTHERS = 4 };

static int refusal;     /* of actions */
static uint16_t holder; /* what a look tells; 0: nobody */
static int look_status;
static unsigned looks, actions;

static int answer(struct fabric_endpoint *endpoint, uint16_t node, const void *bytes, size_t length,
                  void *reply, size_t capacity, size_t *reply_length)
{
    struct memory_save_request request;
    (void)endpoint;
    (void)node;
    assert_int_equal(length, sizeof request);
    memcpy(&request, bytes, sizeof request);
    assert_int_equal(request.kind, MEMORY_SAVE);
    if (request.action != MEMORY_SAVE_LOOK) {
        actions++;
        return refusal;
    }
    looks++;
    const struct memory_save_reply said = {.state = MEMORY_SAVE_IDLE, .holder = holder};
    *reply_length = offsetof(struct memory_save_reply, marks);
    assert_true(capacity >= *reply_length);
    memcpy(reply, &said, *reply_length);
    return look_status;
}

/* An action that is refused so, and what a look tells then. */
static int act(struct pool_session *session, int status, uint16_t held_by, int look)
{
    struct save_node node = {.node = 0, .taken = true};
    struct memory_save_request request = {.action = MEMORY_SAVE_WRITE, .number = 1};
    refusal = status;
    holder = held_by;
    look_status = look;
    looks = actions = 0;
    session->error = (struct error){0};
    const int heard = save_node_send(session, &node, &request);
    assert_int_equal(actions, 1);
    assert_false(node.sent);
    assert_int_equal(session->error.code, heard);
    assert_non_null(strstr(session->error.text, "memory node 0"));
    return heard;
}

static void who_was_fenced_hears_so(void **state)
{
    const struct memory_options pool = {.pool_bytes = UINT64_C(8) << 20, .chunk_bytes = UINT64_C(1) << 20};
    struct error error = {0};
    struct memory_node *memory;
    struct pool *handle;
    struct pool_worker *worker;
    struct pool_session session;
    (void)state;
    assert_int_equal(memory_node_create(&memory, &pool, &error), 0);
    const struct fabric_target *target = memory_node_target(memory);
    struct fabric *fabric = fabric_local_create(&target, 1, OURS, &error);
    assert_non_null(fabric);
    const struct fabric_ops *real = fabric->ops;
    struct fabric_ops ops = *real;
    ops.call = answer;
    fabric->ops = &ops;
    assert_int_equal(pool_create(&handle, fabric, POOL_COMBINE_ALL, &error), 0);
    assert_int_equal(pool_worker_create(&worker, handle, &error), 0);
    pool_session_init(&session, worker, NULL);

    assert_int_equal(act(&session, BANYAN_EINVAL, 0, 0), BANYAN_EFENCED);
    assert_non_null(strstr(session.error.text, "fenced"));
    assert_int_equal(act(&session, BANYAN_EBUSY, ANOTHERS, 0), BANYAN_EFENCED);
    assert_int_equal(looks, 1);
    /* What is refused for another reason is told as it is. */
    assert_int_equal(act(&session, BANYAN_EINVAL, OURS, 0), BANYAN_EINVAL);
    assert_non_null(strstr(session.error.text, "a part"));
    assert_int_equal(act(&session, BANYAN_EINVAL, 0, BANYAN_ETIMEOUT), BANYAN_EINVAL);
    assert_non_null(strstr(session.error.text, "a part"));
    assert_int_equal(act(&session, BANYAN_ENOSPC, 0, 0), BANYAN_ENOSPC);
    assert_int_equal(looks, 0);

    pool_worker_destroy(worker);
    pool_destroy(handle);
    fabric->ops = real;
    fabric_close(fabric);
    memory_node_destroy(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_was_fenced_hears_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
