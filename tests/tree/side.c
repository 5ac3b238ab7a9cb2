/* side.c - see side.h. */
#include "side.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "stepper.h"

#define SIDE_NODES_MAX 4u

void side_open(struct side *side, struct memory_node *memory, uint16_t id, enum tree_read_unit read_unit)
{
    side_open_over(side, &memory, 1, id, read_unit);
}

void side_open_over(struct side *side, struct memory_node *const *memories, unsigned count, uint16_t id,
                    enum tree_read_unit read_unit)
{
    struct tree_switches switches = {.cache_bytes = 1 << 20};
    struct error error = {0};
    const struct fabric_target *targets[SIDE_NODES_MAX];
    assert_true(count <= SIDE_NODES_MAX);
    for (unsigned i = 0; i < count; i++)
        targets[i] = memory_node_target(memories[i]);
    side->id = id;
    side->fabric = stepper_create(targets, (uint16_t)count, id);
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.read_unit = (int)read_unit;
    assert_int_equal(tree_compute_create(&side->compute, side->fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&side->worker, tree_compute_pool(side->compute), &error), 0);
    assert_int_equal(tree_session_create(&side->session, side->compute, side->worker, &error), 0);
}

void side_close(struct side *side, bool lives)
{
    tree_close(side->tree);
    tree_session_destroy(side->session);
    if (lives)
        pool_worker_destroy(side->worker);
    else
        pool_worker_abandon(side->worker);
    tree_compute_destroy(side->compute);
    fabric_close(side->fabric);
}

static void count_block(void *context, gaddr block, uint32_t bytes)
{
    (void)block;
    (void)bytes;
    ++*(uint64_t *)context;
}

uint64_t side_lost(struct side *sides, unsigned count, struct memory_node *const *memories, unsigned nodes,
                   struct tree *tree, struct tree_check_report *report)
{
    struct tree_session *eyes = sides[count - 1].session;
    uint64_t owned = 0, used = 0;
    if (tree && tree_check(eyes, tree, report, count_block, &owned))
        fail_msg("%s", tree_session_error(eyes)->text);
    for (unsigned i = 0; i < count; i++)
        pool_worker_each_free(sides[i].worker, count_block, &owned);
    for (unsigned i = 0; i < nodes; i++) {
        struct memory_status_reply status;
        memory_node_status(memories[i], &status);
        used += status.blocks_used;
    }
    assert_true(owned <= used);
    return used - owned;
}

void side_account(struct side *sides, unsigned count, struct memory_node *memory, struct tree *tree,
                  uint64_t others, struct tree_check_report *report)
{
    assert_int_equal(side_lost(sides, count, &memory, 1, tree, report), others);
}
