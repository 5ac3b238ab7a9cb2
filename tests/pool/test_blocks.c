/*
 * test_blocks.c - blocks of real memory nodes in this process: what workers hold back and when they return
 * it, parts, and chunks that are emptied.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "pool/evacuate.h"
#include "pool/pool.h"
#include "pool/state.h"

#define NODES 2

struct rig {
    struct memory_node *nodes[NODES];
    struct fabric *fabric;
    struct pool *pool;
    struct pool_worker *workers[2];
    struct pool_session sessions[2];
};

static void rig_connect(struct rig *rig, const struct fabric_target *const *targets, unsigned nodes)
{
    struct error error = {0};
    rig->fabric = fabric_local_create(targets, (uint16_t)nodes, 1, &error);
    assert_non_null(rig->fabric);
    assert_int_equal(pool_create(&rig->pool, rig->fabric, POOL_COMBINE_ALL, &error), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pool_worker_create(&rig->workers[i], rig->pool, &error), 0);
        pool_session_init(&rig->sessions[i], rig->workers[i], NULL);
    }
}

static void rig_open(struct rig *rig, unsigned nodes, uint64_t pool_bytes)
{
    const struct fabric_target *targets[NODES];
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    for (unsigned i = 0; i < nodes; i++) {
        struct memory_options options = {.node = (uint16_t)i, .pool_bytes = pool_bytes, .lock_bytes = 4096};
        assert_int_equal(memory_node_create(&rig->nodes[i], &options, &error), 0);
        targets[i] = memory_node_target(rig->nodes[i]);
    }
    rig_connect(rig, targets, nodes);
}

static void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < 2; i++)
        pool_worker_destroy(rig->workers[i]);
    pool_destroy(rig->pool);
    fabric_close(rig->fabric);
    for (unsigned i = 0; i < NODES; i++)
        memory_node_destroy(rig->nodes[i]);
}

static struct memory_status_reply status_of(struct rig *rig, unsigned node)
{
    struct memory_status_reply status;
    memory_node_status(rig->nodes[node], &status);
    return status;
}

static void count_bytes(void *context, gaddr block, uint32_t bytes)
{
    (void)block;
    *(uint64_t *)context += bytes;
}

static uint64_t held(struct rig *rig, unsigned worker)
{
    uint64_t bytes = 0;
    pool_worker_each_free(rig->workers[worker], count_bytes, &bytes);
    return bytes;
}

/* ---- what is held back ---- */

/* However many sizes there are: a 256th of the pool, for both workers together, and one batch. */
static void little_is_held_back(void **state)
{
    struct rig rig;
    static gaddr blocks[8000];
    rig_open(&rig, 1, UINT64_C(64) << 20);
    const uint64_t keep = (UINT64_C(64) << 20) / 256 / 2;
    for (unsigned i = 0; i < 8000; i++) {
        assert_int_equal(pool_block_allocate(&rig.sessions[0], GADDR_NULL, 32 + i % 1200, &blocks[i]), 0);
        assert_in_range(held(&rig, 0), 0, keep + 64 * 1280);
    }
    for (unsigned i = 0; i < 8000; i++) {
        pool_block_release(&rig.sessions[0], blocks[i], 32 + i % 1200);
        assert_in_range(held(&rig, 0), 0, keep);
    }
    assert_int_equal(status_of(&rig, 0).bytes_used, held(&rig, 0));
    /* Nobody needs it for a while: it goes back. */
    for (unsigned i = 0; i < 3; i++) {
        assert_true(held(&rig, 0) > 0);
        pool_worker_idle(rig.workers[0]);
    }
    assert_int_equal(held(&rig, 0), 0);
    assert_int_equal(status_of(&rig, 0).blocks_used, 0);
    rig_close(&rig);
}

/* A worker that is busy with one memory node gives back what it holds of another. */
static void what_is_held_of_one_memory_node_goes_back(void **state)
{
    struct rig rig;
    gaddr block;
    rig_open(&rig, 2, UINT64_C(64) << 20);
    for (unsigned node = 0; node < 2; node++)
        assert_int_equal(
            pool_block_allocate_beside(&rig.sessions[0], gaddr_make((uint16_t)node, 64), 100, &block), 0);
    assert_true(status_of(&rig, 0).blocks_used > 1 && status_of(&rig, 1).blocks_used > 1);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pool_block_allocate_beside(&rig.sessions[0], gaddr_make(0, 64), 100, &block), 0);
        pool_worker_idle(rig.workers[0]);
    }
    assert_true(status_of(&rig, 0).blocks_used > 4);
    assert_int_equal(status_of(&rig, 1).blocks_used, 1);
    rig_close(&rig);
}

/* Returning in one call what has many sizes. */
static void one_call_for_many_sizes(void **state)
{
    struct rig rig;
    gaddr blocks[60];
    rig_open(&rig, 1, UINT64_C(256) << 20);
    for (unsigned i = 0; i < 60; i++) /* one of each size; the others of its batch go back */
        assert_int_equal(pool_block_allocate(&rig.sessions[0], GADDR_NULL, 32 * (i + 1), &blocks[i]), 0);
    pool_worker_return(rig.workers[0]);
    assert_int_equal(status_of(&rig, 0).blocks_used, 60);
    for (unsigned i = 0; i < 60; i++)
        pool_block_release(&rig.sessions[0], blocks[i], 32 * (i + 1));
    uint64_t frees = status_of(&rig, 0).frees_total;
    pool_worker_return(rig.workers[0]);
    assert_int_equal(status_of(&rig, 0).frees_total, frees + 60);
    assert_int_equal(status_of(&rig, 0).blocks_used, 0);
    rig_close(&rig);
}

/* A memory node whose network fails at the call `fails_at`. */
struct failing {
    const struct fabric_target *target;
    unsigned calls, fails_at;
};

static int failing_call(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                        size_t capacity, size_t *reply_length)
{
    struct failing *failing = owner;
    if (++failing->calls == failing->fails_at)
        return BANYAN_ENET;
    return failing->target->call(failing->target->owner, compute_id, request, length, reply, capacity,
                                 reply_length);
}

/* One block of a batch is none, so they are returned one by one; then the network fails. What was not sent is
 * kept, and what may have arrived is not used again. */
static void what_was_not_sent_is_kept(void **state)
{
    struct rig rig;
    gaddr blocks[6];
    rig_open(&rig, 1, UINT64_C(256) << 20);
    for (unsigned i = 0; i < 2; i++)
        pool_worker_destroy(rig.workers[i]);
    pool_destroy(rig.pool);
    fabric_close(rig.fabric);
    struct failing failing = {.target = memory_node_target(rig.nodes[0])};
    struct fabric_target target = *failing.target;
    const struct fabric_target *targets[] = {&target};
    target.call = failing_call;
    target.owner = &failing;
    rig_connect(&rig, targets, 1);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(pool_block_allocate(&rig.sessions[0], GADDR_NULL, 32 * (i + 1), &blocks[i]), 0);
    pool_worker_return(rig.workers[0]);
    assert_int_equal(held(&rig, 0), 0);
    pool_block_release(&rig.sessions[0], blocks[0] + 32 * 64, 32); /* only a corrupt link names such a one */
    for (unsigned i = 1; i < 6; i++)
        pool_block_release(&rig.sessions[0], blocks[i], 32 * (i + 1));
    failing.fails_at = failing.calls + 4; /* the batch, two of them, and the third of them */
    pool_worker_return(rig.workers[0]);
    assert_int_equal(held(&rig, 0), 32 * (4 + 5 + 6));
    assert_int_equal(status_of(&rig, 0).blocks_used, 1 + 4);
    pool_worker_return(rig.workers[0]);
    assert_int_equal(held(&rig, 0), 0);
    assert_int_equal(status_of(&rig, 0).blocks_used, 1 + 1);
    rig_close(&rig);
}

/* Takes data of one size until it is refused; how many. */
static uint32_t fill(struct rig *rig, unsigned worker, uint32_t bytes, gaddr *blocks, uint32_t most)
{
    uint32_t count = 0;
    while (count < most && !pool_block_allocate(&rig->sessions[worker], GADDR_NULL, bytes, &blocks[count]))
        count++;
    assert_true(count < most);
    assert_int_equal(rig->sessions[worker].error.code, BANYAN_ENOSPC);
    return count;
}

/* What the worker itself holds back in other sizes is returned before a block is refused. */
static void its_own_lists_come_first(void **state)
{
    struct rig rig;
    static gaddr blocks[30000];
    const uint32_t sizes[] = {1000, 32, 100000, 300, 5000, 64};
    rig_open(&rig, 2, UINT64_C(4) << 20);
    for (unsigned i = 0; i < 6; i++) {
        uint64_t block_bytes = memory_block_bytes(sizes[i]);
        uint32_t most = sizes[i] < 300 ? 10000 : 30000, count = 0;
        if (sizes[i] < 300) {
            for (; count < most; count++)
                assert_int_equal(pool_block_allocate(&rig.sessions[0], GADDR_NULL, sizes[i], &blocks[count]),
                                 0);
        } else {
            uint64_t there = 0;
            for (unsigned node = 0; node < 2; node++)
                there += status_of(&rig, node).bytes_free + status_of(&rig, node).bytes_used;
            count = fill(&rig, 0, sizes[i], blocks, most);
            /* All but the reserve, and what is left over in each half. */
            assert_in_range(count * block_bytes, there - there / 64 - 2 * 65536 - 2 * block_bytes, there);
        }
        while (count)
            pool_block_release(&rig.sessions[0], blocks[--count], sizes[i]);
    }
    rig_close(&rig);
}

struct other {
    struct rig *rig;
    uint32_t stop;
};

static void *idle_along(void *argument)
{
    struct other *other = argument;
    while (!__atomic_load_n(&other->stop, __ATOMIC_ACQUIRE)) { /* the end of the test */
        pool_worker_idle(other->rig->workers[1]);
        task_sleep(50000);
    }
    return NULL;
}

/* An allocation waits some milliseconds for other workers, which may not run for longer than that. */
static int allocate_in_the_end(struct rig *rig, gaddr *block)
{
    int status = BANYAN_ENOSPC;
    for (unsigned i = 0; i < 10000 && status == BANYAN_ENOSPC; i++) {
        status = pool_block_allocate(&rig->sessions[0], GADDR_NULL, 1024, block);
        if (status)
            task_sleep(1000000);
    }
    return status;
}

/* What other workers hold back is returned too. */
static void others_return_theirs(void **state)
{
    struct rig rig;
    struct other other = {.rig = &rig};
    static gaddr blocks[30000];
    gaddr theirs[8];
    pthread_t thread;
    rig_open(&rig, 1, UINT64_C(4) << 20);
    uint32_t before = fill(&rig, 0, 1024, blocks, 30000);
    for (unsigned i = 0; i < 8; i++)
        pool_block_release(&rig.sessions[0], blocks[--before], 1024);
    pool_worker_return(rig.workers[0]);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(pool_block_allocate(&rig.sessions[1], GADDR_NULL, 1024, &theirs[i]), 0);
    assert_int_equal(pool_block_allocate(&rig.sessions[0], GADDR_NULL, 1024, &blocks[before]), BANYAN_ENOSPC);
    for (unsigned i = 0; i < 4; i++)
        pool_block_release(&rig.sessions[1], theirs[i], 1024);
    /* However much it is that the other one still holds back. */
    assert_int_equal(pthread_create(&thread, NULL, idle_along, &other), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(allocate_in_the_end(&rig, &blocks[before++]), 0);
    assert_int_equal(pool_block_allocate(&rig.sessions[0], GADDR_NULL, 1024, &blocks[before]), BANYAN_ENOSPC);
    __atomic_store_n(&other.stop, 1, __ATOMIC_RELEASE); /* as above */
    pthread_join(thread, NULL);
    assert_int_equal(held(&rig, 1), 0);
    rig_close(&rig);
}

/* ---- parts ---- */

static int by_address(const void *one, const void *other)
{
    gaddr a = *(const gaddr *)one, b = *(const gaddr *)other;
    return (a > b) - (a < b);
}

static void parts_of_blocks(void **state)
{
    struct rig rig;
    static gaddr blocks[30000];
    gaddr part;
    uint32_t got = 0;
    rig_open(&rig, 2, UINT64_C(4) << 20);
    assert_int_equal(pool_block_allocate_part(&rig.sessions[0], GADDR_NULL, 100000, 1000, &part, &got), 0);
    assert_int_equal(got, memory_block_bytes(100000));
    pool_block_release(&rig.sessions[0], part, got);
    uint32_t count = fill(&rig, 0, 3000, blocks, 30000);
    while (!pool_block_allocate_part(&rig.sessions[0], GADDR_NULL, 3000, 32, &part, &got))
        assert_in_range(got, 32, 2999); /* what is left over at the ends */
    assert_int_equal(rig.sessions[0].error.code, BANYAN_ENOSPC);
    /* Every other block leaves holes of one size. */
    qsort(blocks, count, sizeof blocks[0], by_address);
    for (uint32_t i = 0; i < count; i += 2)
        pool_block_release(&rig.sessions[0], blocks[i], 3000);
    pool_worker_return(rig.workers[0]);
    assert_int_equal(pool_block_allocate(&rig.sessions[0], GADDR_NULL, 4000, &part), BANYAN_ENOSPC);
    assert_int_equal(pool_block_allocate_part(&rig.sessions[0], GADDR_NULL, 100000, 4000, &part, &got),
                     BANYAN_ENOSPC);
    for (uint32_t i = 0; i < count / 4; i++) {
        assert_int_equal(pool_block_allocate_part(&rig.sessions[0], GADDR_NULL, 100000, 1000, &part, &got),
                         0);
        assert_int_equal(got, memory_block_bytes(3000));
        blocks[2 * i] = part;
    }
    for (uint32_t i = 0; i < count / 4; i++)
        pool_block_release(&rig.sessions[0], blocks[2 * i], got);
    assert_int_equal(pool_block_allocate_part(&rig.sessions[0], GADDR_NULL, 100, 0, &part, &got),
                     BANYAN_EINVAL);
    assert_int_equal(pool_block_allocate_part(&rig.sessions[0], GADDR_NULL, 100, 101, &part, &got),
                     BANYAN_EINVAL);
    rig_close(&rig);
}

/* ---- emptying ---- */

/* Sparse chunks on both memory nodes; what lies in those that are emptied is moved, and they are empty then.
 */
static void chunks_are_emptied(void **state)
{
    struct rig rig;
    struct pool_evacuation *evacuation = NULL;
    static gaddr blocks[16000];
    uint32_t count = 0, moved = 0, kept = 0;
    rig_open(&rig, 2, UINT64_C(16) << 20);
    assert_int_equal(pool_evacuation_begin(&rig.sessions[0], &evacuation), 0);
    assert_null(evacuation); /* nothing is there */
    assert_int_equal(pool_evacuation_chunks(NULL), 0);
    assert_false(pool_evacuation_holds(NULL, gaddr_make(0, 1 << 20)));
    for (; count < 16000; count++)
        assert_int_equal(pool_block_allocate(&rig.sessions[0], GADDR_NULL, 1000, &blocks[count]), 0);
    for (uint32_t i = 0; i < count; i++)
        if (i % 3 == 0)
            blocks[kept++] = blocks[i];
        else
            pool_block_release(&rig.sessions[0], blocks[i], 1000);
    pool_worker_return(rig.workers[0]);
    uint64_t before = status_of(&rig, 0).chunks_used + status_of(&rig, 1).chunks_used;

    for (unsigned round = 0; round < 200; round++) {
        assert_int_equal(pool_evacuation_begin(&rig.sessions[0], &evacuation), 0);
        if (!evacuation)
            break;
        uint32_t chunks = pool_evacuation_chunks(evacuation);
        assert_int_equal(chunks, status_of(&rig, 0).chunks_emptying + status_of(&rig, 1).chunks_emptying);
        for (uint32_t i = 0; i < kept; i++)
            if (pool_evacuation_holds(evacuation, blocks[i])) {
                gaddr block;
                assert_int_equal(pool_block_allocate(&rig.sessions[0], GADDR_NULL, 1000, &block), 0);
                assert_false(pool_evacuation_holds(evacuation, block));
                pool_block_release(&rig.sessions[0], blocks[i], 1000);
                blocks[i] = block;
                moved++;
            }
        pool_worker_return(rig.workers[0]);
        assert_int_equal(pool_evacuation_renew(&rig.sessions[0], evacuation), 0);
        assert_int_equal(pool_evacuation_chunks(evacuation), 0);
        assert_int_equal(pool_evacuation_end(&rig.sessions[0], evacuation, true), 0);
    }
    assert_null(evacuation);
    uint64_t after = status_of(&rig, 0).chunks_used + status_of(&rig, 1).chunks_used;
    assert_true(moved > 0 && status_of(&rig, 0).chunks_emptied_total > 0);
    assert_in_range(after, before / 3, before / 2); /* a third of it is in use */
    for (uint32_t i = 0; i < kept; i++)
        pool_block_release(&rig.sessions[0], blocks[i], 1000);
    /* What was moved away counts as returned, else the other memory nodes would get all that comes. */
    assert_true(rig.workers[0]->allocated[0] == 0 && rig.workers[0]->allocated[1] == 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_is_held_back),
        cmocka_unit_test(one_call_for_many_sizes),
        cmocka_unit_test(what_is_held_of_one_memory_node_goes_back),
        cmocka_unit_test(its_own_lists_come_first),
        cmocka_unit_test(others_return_theirs),
        cmocka_unit_test(parts_of_blocks),
        cmocka_unit_test(chunks_are_emptied),
        cmocka_unit_test(what_was_not_sent_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
