/*
 * test_lost.c - what an operation may still believe when the memory node has fenced its compute node, and the
 * compute node does not know yet: exact interleavings that the simulator does not make, since there an answer
 * never arrives after the loss.
 *
 * A fabric of two compute nodes over the local backend, on one thread. The first is fenced at a chosen list:
 * its locks are freed, the second compute node does something, and only then the list's answer comes in. The
 * next list is lost with the connection, and from then on the first compute node counts a new incarnation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include "base/task.h"
#include "base/worker.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "tree/rights.h"
#include "tree/session.h"
#include "wrapper.h"

#define NODES    2u
#define SESSIONS 4u

struct lossy {
    struct wrapper wrapper;
    uint64_t since;
    bool armed, broken;
    uint64_t passed; /* lists that were not refused */
    int call_status; /* of all calls. 0: served and answered; BANYAN_ENET: served alone; else neither */
    unsigned calls;
    bool deaf;     /* without a connection to `node`, while the group lives */
    uint16_t node; /* that fences us */
    /* Whether the fencing is due at this list. */
    bool (*due)(const struct fabric_list *list);
    bool before; /* the list is run after it; else before */
    void (*fenced)(void *context);
    void *context;
};

struct side {
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *sessions[SESSIONS];
    struct tree *tree;
};
struct rig {
    struct memory_node *nodes[NODES];
    struct side ours, others;
    struct lossy *lossy;
};

/* ---- the fabric ---- */

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct lossy *lossy = (struct lossy *)endpoint->fabric;
    if (list->node == lossy->node && list->incarnation != 0 && list->incarnation < lossy->since)
        return BANYAN_EFENCED;
    if (list->node == lossy->node && lossy->broken) {
        lossy->broken = false;
        lossy->since = ++lossy->wrapper.incarnation;
        return BANYAN_ENET;
    }
    bool due = lossy->armed && lossy->due(list);
    if (list->node == lossy->node && lossy->deaf)
        return BANYAN_ENET;
    if (due)
        lossy->armed = false;
    if (due && lossy->before)
        lossy->fenced(lossy->context);
    lossy->passed++;
    int status = wrapper_pass(endpoint, list, list->count);
    if (due && !lossy->before)
        lossy->fenced(lossy->context);
    if (due)
        lossy->broken = true;
    return status;
}

static int lossy_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                      void *reply, size_t capacity, size_t *reply_length)
{
    struct lossy *lossy = (struct lossy *)endpoint->fabric;
    lossy->calls++;
    if (lossy->call_status && lossy->call_status != BANYAN_ENET)
        return lossy->call_status;
    int status = wrapper_call(endpoint, node, request, length, reply, capacity, reply_length);
    return lossy->call_status ? lossy->call_status : status;
}

static void lossy_give_up(struct fabric_endpoint *endpoint, uint16_t node)
{
    struct lossy *lossy = (struct lossy *)endpoint->fabric;
    if (node != lossy->node || !lossy->deaf)
        return;
    lossy->deaf = false;
    lossy->since = ++lossy->wrapper.incarnation;
    lossy->fenced(lossy->context);
}

static const struct fabric_ops lossy_ops = {
    .execute = wrapper_execute,
    .call = lossy_call,
    .endpoint_open = wrapper_endpoint_open,
    .endpoint_close = wrapper_endpoint_close,
    .close = wrapper_close,
    .incarnation = wrapper_incarnation,
    .give_up = lossy_give_up,
};

/* ---- the rig ---- */

static void side_open(struct side *side, struct fabric *fabric, bool delegate)
{
    struct tree_switches switches = {.cache_bytes = 1 << 20};
    struct error error = {0};
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.delegate = delegate;
    side->fabric = fabric;
    assert_int_equal(tree_compute_create(&side->compute, fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&side->worker, tree_compute_pool(side->compute), &error), 0);
    for (unsigned i = 0; i < SESSIONS; i++)
        assert_int_equal(tree_session_create(&side->sessions[i], side->compute, side->worker, &error), 0);
}

static void side_close(struct side *side)
{
    tree_close(side->tree);
    for (unsigned i = 0; i < SESSIONS; i++)
        tree_session_destroy(side->sessions[i]);
    pool_worker_destroy(side->worker);
    tree_compute_destroy(side->compute);
    fabric_close(side->fabric);
}

static void rig_open_as(struct rig *rig, const struct format_geometry *geometry, bool delegate)
{
    const struct fabric_target *targets[NODES];
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    for (uint16_t i = 0; i < NODES; i++) {
        struct memory_options options = {.node = i, .pool_bytes = 4 << 20, .chunk_bytes = 64 << 10};
        assert_int_equal(memory_node_create(&rig->nodes[i], &options, &error), 0);
        targets[i] = memory_node_target(rig->nodes[i]);
    }
    rig->lossy = calloc(1, sizeof *rig->lossy);
    assert_non_null(rig->lossy);
    wrapper_init(&rig->lossy->wrapper, &lossy_ops, run_list, fabric_local_create(targets, NODES, 1, &error));
    rig->lossy->context = rig;
    side_open(&rig->ours, &rig->lossy->wrapper.fabric, delegate);
    side_open(&rig->others, fabric_local_create(targets, NODES, 2, &error), delegate);
    assert_int_equal(tree_format(rig->ours.sessions[0]), 0);
    assert_int_equal(tree_create(rig->ours.sessions[0], "lost", geometry, &rig->ours.tree), 0);
    assert_int_equal(tree_open(rig->others.sessions[0], "lost", &rig->others.tree), 0);
}

static void rig_open(struct rig *rig, const struct format_geometry *geometry)
{
    rig_open_as(rig, geometry, true);
}

static void rig_close(struct rig *rig)
{
    side_close(&rig->ours);
    side_close(&rig->others);
    for (unsigned i = 0; i < NODES; i++)
        memory_node_destroy(rig->nodes[i]);
}

/* ---- a decision by an image that is out of date ----------------------------------------------------- */

/*
 * A holds a lock, B has queued up behind it. A writes, and when the answer is on its way we are fenced.
 * The other compute node deletes the key, and is told so. THEN C and D of ours ask for the same key, and
 * queue up too. A hears that it was done, and hands lock and image over to B, which finds the key there and
 * hands them on to C: that one must not believe the image. Or B decides for C and D, whose operations it
 * finds in the queue: no more may they.
 */
struct late {
    struct rig *rig;
    bool held, fenced;
    unsigned queueing;
    int statuses[SESSIONS];
};
static struct late *late_running;

static const uint8_t late_key[8] = "the key";

static void yield_often(void)
{
    for (unsigned i = 0; i < 100; i++) /* to where the others wait for the lock */
        task_yield();
}

static bool writes_or_locks(const struct fabric_list *list)
{
    struct late *late = late_running;
    if (list->commands[0].operation == FABRIC_CAS && !late->held) {
        late->held = true;
        yield_often();
    }
    return list->commands[0].operation == FABRIC_WRITE;
}

static void late_fenced(void *context)
{
    struct late *late = context;
    struct rig *rig = late->rig;
    assert_int_equal(memory_node_release_locks(rig->nodes[0], 1), 1);
    assert_int_equal(tree_delete(rig->others.sessions[0], rig->others.tree, late_key, sizeof late_key), 0);
    late->fenced = true;
    while (late->queueing < 2)
        task_yield();
    yield_often();
}

static void late_first(void *context)
{
    struct late *late = context;
    uint64_t value = 2;
    late->statuses[0] = tree_upsert(late->rig->ours.sessions[0], late->rig->ours.tree, late_key,
                                    sizeof late_key, &value, sizeof value);
}

static void late_insert(struct late *late, unsigned number)
{
    uint64_t value = 3;
    late->statuses[number] = tree_insert(late->rig->ours.sessions[number], late->rig->ours.tree, late_key,
                                         sizeof late_key, &value, sizeof value);
}

static enum tree_verdict insert(void *context, const void *old, size_t old_length, void *value,
                                size_t *length)
{
    bool *found = context;
    *found = old;
    memset(value, 3, 8);
    *length = 8;
    return old ? TREE_KEEP : TREE_PUT;
}

/* Whatever is delegated: this one waits for the lock itself. */
static void late_second(void *context)
{
    struct late *late = context;
    bool found = false;
    while (!late->held)
        task_yield();
    int status = tree_modify_here(late->rig->ours.sessions[1], late->rig->ours.tree, late_key,
                                  sizeof late_key, insert, &found);
    late->statuses[1] = !status && found ? BANYAN_EEXIST : status;
}

static void late_other(void *context)
{
    struct late *late = context;
    while (!late->fenced)
        task_yield();
    late_insert(late, 2 + late->queueing++);
}

static void no_decision_by_an_image(bool delegate)
{
    void (*const functions[SESSIONS])(void *) = {late_first, late_second, late_other, late_other};
    const struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    struct rig rig;
    struct late late = {.rig = &rig};
    uint64_t value = 1;
    rig_open_as(&rig, &geometry, delegate);
    for (unsigned i = 0; i < SESSIONS; i++) /* each session has its buffers, the root is known */
        assert_int_equal(
            tree_upsert(rig.ours.sessions[i], rig.ours.tree, late_key, sizeof late_key, &value, sizeof value),
            0);
    late_running = &late;
    rig.lossy->node = 0;
    rig.lossy->due = writes_or_locks;
    rig.lossy->fenced = late_fenced;
    rig.lossy->context = &late;
    rig.lossy->armed = true;
    struct worker *worker = worker_create();
    assert_non_null(worker);
    for (unsigned i = 0; i < SESSIONS; i++)
        assert_int_equal(worker_spawn(worker, functions[i], &late), 0);
    worker_run(worker);
    worker_destroy(worker);
    assert_true(late.fenced);
    assert_int_equal(late.statuses[0], 0);
    /* B began before the deletion: it may have met the key, or have been refused. */
    assert_true(late.statuses[1] == BANYAN_EEXIST || late.statuses[1] == BANYAN_ENET);
    assert_int_not_equal(late.statuses[2], BANYAN_EEXIST);
    assert_true(late.statuses[2] == BANYAN_ENET || late.statuses[3] == BANYAN_ENET ||
                late.statuses[1] == BANYAN_ENET);
    if (delegate) /* B heard it for both */
        assert_true(late.statuses[2] == BANYAN_ENET && late.statuses[3] == BANYAN_ENET);
    else
        assert_true(late.statuses[2] == 0 || late.statuses[3] == 0);
    assert_int_equal(tree_session_stats(rig.ours.sessions[1])->combined, delegate ? 2 : 0);
    rig_close(&rig);
}

static void no_decision_by_an_image_of_a_lost_lock(void **state)
{
    (void)state;
    no_decision_by_an_image(false);
}

static void no_decision_for_others_by_an_image_of_a_lost_lock(void **state)
{
    (void)state;
    no_decision_by_an_image(true);
}

/* ---- a lock that its holder has no connection to free ------------------------------------------------ */

static bool goes_deaf(const struct fabric_list *list)
{
    struct lossy *lossy = late_running->rig->lossy;
    lossy->deaf |= list->commands[0].operation == FABRIC_WRITE;
    return false;
}

static void deaf_fenced(void *context)
{
    struct rig *rig = context;
    assert_int_equal(memory_node_release_locks(rig->nodes[0], 1), 1);
    rig->lossy->armed = false;
}

static void a_lock_is_given_up(void **state)
{
    (void)state;
    const struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    struct rig rig;
    struct late late = {.rig = &rig};
    uint64_t value = 1;
    rig_open(&rig, &geometry);
    late_running = &late;
    assert_int_equal(
        tree_upsert(rig.ours.sessions[0], rig.ours.tree, late_key, sizeof late_key, &value, sizeof value), 0);
    rig.lossy->node = 0;
    rig.lossy->due = goes_deaf;
    rig.lossy->fenced = deaf_fenced;
    rig.lossy->armed = true;
    value = 2;
    /* The list that was to write and unlock never went out, and no other does: not done, or not known. */
    int status =
        tree_upsert(rig.ours.sessions[0], rig.ours.tree, late_key, sizeof late_key, &value, sizeof value);
    assert_true(status == BANYAN_EUNKNOWN || status == BANYAN_ENET);
    assert_false(rig.lossy->armed); /* it was given up, and its word freed */
    assert_int_equal(tree_delete(rig.others.sessions[0], rig.others.tree, late_key, sizeof late_key), 0);
    assert_int_equal(
        tree_insert(rig.ours.sessions[0], rig.ours.tree, late_key, sizeof late_key, &value, sizeof value), 0);
    rig_close(&rig);
}

/* ---- free blocks of a memory node that cannot be reached ---------------------------------------------- */

#define BLOCK_BYTES  1024u
#define BATCH_BLOCKS 64u                /* of this size */
#define BLOCKS       (3 * BATCH_BLOCKS) /* of one memory node: it takes turns when it gave 256 KiB more */
#define KEPT_MAX     (64 * BATCH_BLOCKS)

static void count_block(void *context, gaddr block, uint32_t bytes)
{
    unsigned *count = context;
    *count += bytes == BLOCK_BYTES && gaddr_node(block) == 0;
}

static unsigned free_blocks(struct rig *rig)
{
    unsigned count = 0;
    pool_worker_each_free(rig->ours.worker, count_block, &count);
    return count;
}

static void free_blocks_are_kept_while_it_is_away(void **state)
{
    (void)state;
    const struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    static gaddr blocks[BLOCKS];
    struct rig rig;
    rig_open(&rig, &geometry);
    struct tree_session *session = rig.ours.sessions[0];
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_int_equal(pool_allocate(&session->pool, 0, BLOCK_BYTES, &blocks[i]), 0);
    unsigned before = free_blocks(&rig);

    rig.lossy->call_status = BANYAN_EFENCED;
    rig.lossy->calls = 0;
    for (unsigned i = 0; i < BLOCKS; i++)
        pool_release(&session->pool, blocks[i], BLOCK_BYTES);
    assert_int_equal(free_blocks(&rig), before + BLOCKS);
    assert_in_range(rig.lossy->calls, 1, 5); /* not one for each */
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_int_equal(pool_allocate(&session->pool, 0, BLOCK_BYTES, &blocks[i]), 0);
    gaddr more;
    while (free_blocks(&rig) > 0)
        assert_int_equal(pool_allocate(&session->pool, 0, BLOCK_BYTES, &more), 0);
    /* Not one that the operation begins again for. */
    assert_int_equal(pool_allocate(&session->pool, 0, BLOCK_BYTES, &more), BANYAN_ENET);

    for (unsigned i = 0; i < BLOCKS; i++)
        pool_release(&session->pool, blocks[i], BLOCK_BYTES);
    rig.lossy->call_status = 0; /* it is back: the surplus goes there; what is no block is forgotten */
    for (unsigned i = 0; i < BATCH_BLOCKS; i++)
        pool_release(&session->pool, gaddr_make(0, (1 << 20) + 32 + i * BLOCK_BYTES), BLOCK_BYTES);
    rig.lossy->call_status = BANYAN_EFENCED;
    assert_in_range(free_blocks(&rig), 1, BATCH_BLOCKS - 1);

    for (unsigned i = 0; i < 2 * KEPT_MAX; i++) /* but not without end; these are not in use */
        pool_release(&session->pool, gaddr_make(0, (2 << 20) + i * UINT64_C(64)), BLOCK_BYTES);
    assert_int_equal(free_blocks(&rig), KEPT_MAX);
    rig_close(&rig);
}

/* ---- free blocks whose return is not known ----------------------------------------------------------- */

struct wanted {
    gaddr block;
    bool found;
};

static void look_for_block(void *context, gaddr block, uint32_t bytes)
{
    struct wanted *wanted = context;
    wanted->found |= block == wanted->block;
}

/* The memory node has them back, and gives them to others; we have not heard of it. */
static void blocks_that_may_have_been_returned_are_not_used(void **state)
{
    (void)state;
    const struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    static gaddr blocks[BLOCKS];
    struct rig rig;
    rig_open(&rig, &geometry);
    for (unsigned i = 0; i < BLOCKS; i++)
        assert_int_equal(pool_allocate(&rig.ours.sessions[0]->pool, 0, BLOCK_BYTES, &blocks[i]), 0);
    rig.lossy->call_status = BANYAN_ENET;
    rig.lossy->calls = 0;
    for (unsigned i = 0; i < BLOCKS; i++)
        pool_release(&rig.ours.sessions[0]->pool, blocks[i], BLOCK_BYTES);
    rig.lossy->call_status = 0;
    assert_true(rig.lossy->calls > 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct wanted wanted = {0};
        assert_int_equal(pool_allocate(&rig.others.sessions[0]->pool, 0, BLOCK_BYTES, &wanted.block), 0);
        pool_worker_each_free(rig.ours.worker, look_for_block, &wanted);
        assert_false(wanted.found);
    }
    rig_close(&rig);
}

/* ---- a key block that is another's ------------------------------------------------------------------- */

/*
 * Key blocks lie on memory node 1, leaves on 0. We hold a leaf's lock and are about to read its blocks when 0
 * fences us. The other compute node deletes an entry of the leaf, and uses its block for something else. What
 * we find there is no corruption: the leaf is not ours any more.
 */
#define LONG_BYTES 200u

static size_t long_key(unsigned number, uint8_t key[LONG_BYTES])
{
    memset(key, 'k', LONG_BYTES);
    key[0] = (uint8_t)(number * 37u);
    key[1] = (uint8_t)number;
    return LONG_BYTES;
}

static bool reads_blocks(const struct fabric_list *list)
{
    return list->node == 1 && list->commands[0].operation == FABRIC_READ &&
           list->commands[0].length == LONG_BYTES;
}

static void block_fenced(void *context)
{
    struct rig *rig = context;
    struct tree_session *session = rig->others.sessions[0];
    uint8_t key[LONG_BYTES], noise[LONG_BYTES];
    gaddr block;
    assert_int_equal(memory_node_release_locks(rig->nodes[0], 1), 1);
    assert_int_equal(tree_delete(session, rig->others.tree, key, long_key(0, key)), 0);
    memset(noise, 0xaa, sizeof noise);
    assert_int_equal(pool_block_allocate(&session->pool, gaddr_make(1, 8), LONG_BYTES, &block), 0);
    assert_int_equal(gaddr_node(block), 1); /* the one that the key had */
    memcpy(memory_node_target(rig->nodes[1])->pool + gaddr_offset(block), noise, sizeof noise);
}

static void a_reused_block_of_a_lost_leaf_is_no_corruption(void **state)
{
    (void)state;
    const struct format_geometry geometry = {.key_kind = FORMAT_KEY_VARIABLE, .value_bytes = 8};
    struct rig rig;
    uint8_t key[LONG_BYTES];
    uint64_t value = 1;
    rig_open(&rig, &geometry);
    rig.lossy->node = 0;
    rig.lossy->due = reads_blocks;
    rig.lossy->before = true;
    rig.lossy->fenced = block_fenced;
    memory_node_refuse(rig.nodes[0], UINT64_MAX); /* all from here on goes to 1 */
    rig.lossy->armed = true;
    for (unsigned i = 0; rig.lossy->armed; i++) {
        assert_true(i < 250);
        int status =
            tree_upsert(rig.ours.sessions[0], rig.ours.tree, key, long_key(i, key), &value, sizeof value);
        if (status)
            print_message("%s\n", tree_session_error(rig.ours.sessions[0])->text);
        assert_true(status == 0 || status == BANYAN_ENET);
    }
    struct tree_check_report report;
    assert_int_equal(tree_check(rig.others.sessions[0], rig.others.tree, &report, NULL, NULL), 0);
    rig_close(&rig);
}

/* ---- a table of rights belongs to an incarnation (rights.h) ----------------------------------------- */

struct refetch {
    struct rig *rig;
    bool gone;        /* the map says that the others have taken the index over */
    unsigned unasked; /* calls of wait that change nothing */
    unsigned waits, exchanges;
};

static int refetch_adopt(struct refetch *refetch, uint64_t version, enum tree_right right)
{
    struct side *ours = &refetch->rig->ours;
    struct tree_rights_row row = {.right = right, .epoch = right == TREE_OTHERS ? 2 : 1};
    if (right == TREE_OTHERS)
        row.owner = fabric_self(refetch->rig->others.fabric);
    return tree_rights_adopt(ours->sessions[1], ours->tree, version, fabric_incarnation(ours->fabric), &row,
                             1);
}

static int refetch_wait(void *context, struct tree_session *session, struct tree *tree,
                        struct fabric_process owner, uint64_t since)
{
    struct refetch *refetch = context;
    assert_int_equal(owner.instance, 0); /* it is not known whose the range is */
    if (refetch->waits++ < refetch->unasked)
        return 0;
    return refetch->gone ? refetch_adopt(refetch, 2, TREE_OTHERS) : refetch_adopt(refetch, 1, TREE_OWNED);
}

static int refetch_exchange(void *context, struct tree_session *session, struct tree *tree,
                            struct fabric_process owner, struct tree_exchange *exchange)
{
    struct refetch *refetch = context;
    assert_int_equal(owner.compute_id, 2);
    refetch->exchanges++;
    return tree_upsert(refetch->rig->others.sessions[0], refetch->rig->others.tree, exchange->key,
                       exchange->key_length, exchange->value, exchange->length);
}

static uint64_t refetch_look(struct rig *rig)
{
    uint64_t value = 0;
    size_t length = sizeof value;
    assert_int_equal(
        tree_lookup(rig->others.sessions[0], rig->others.tree, late_key, sizeof late_key, &value, &length),
        0);
    return value;
}

static void refetch_run(bool gone, bool batch)
{
    const struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    const struct tree_forward forward = {.wait = refetch_wait, .exchange = refetch_exchange};
    struct rig rig;
    rig_open(&rig, &geometry);
    struct refetch refetch = {.rig = &rig, .gone = gone, .unasked = 5};
    struct tree_session *session = rig.ours.sessions[0];
    uint64_t value = 1;
    rig.lossy->node = 0;
    tree_compute_set_forward(rig.ours.compute, &forward, &refetch);
    assert_int_equal(refetch_adopt(&refetch, 1, TREE_OWNED), 0);
    assert_int_equal(tree_upsert(session, rig.ours.tree, late_key, sizeof late_key, &value, sizeof value), 0);
    rig.lossy->since = ++rig.lossy->wrapper.incarnation; /* the connection was lost, and is there again */
    value = 2;
    struct tree_item item = {
        .key = late_key, .key_length = sizeof late_key, .value = &value, .length = sizeof value};
    const uint64_t passed = rig.lossy->passed;
    assert_int_equal(
        batch ? tree_multi_put(session, rig.ours.tree, &item, 1)
              : tree_upsert(session, rig.ours.tree, late_key, sizeof late_key, &value, sizeof value),
        0);
    assert_int_equal(refetch.waits, 6);
    assert_int_equal(refetch.exchanges, gone);
    /* Nothing of ours went out before the map was read again; nothing at all where it has another owner. */
    if (gone)
        assert_int_equal(rig.lossy->passed, passed);
    assert_int_equal(refetch_look(&rig), 2);
    assert_int_equal(tree_rights_version(rig.ours.tree), gone ? 2 : 1);
    rig_close(&rig);
}

static void a_table_is_fetched_anew_after_a_loss(void **state)
{
    for (unsigned i = 0; i < 4; i++)
        refetch_run(i & 1, i & 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_decision_by_an_image_of_a_lost_lock),
        cmocka_unit_test(no_decision_for_others_by_an_image_of_a_lost_lock),
        cmocka_unit_test(a_lock_is_given_up),
        cmocka_unit_test(free_blocks_are_kept_while_it_is_away),
        cmocka_unit_test(blocks_that_may_have_been_returned_are_not_used),
        cmocka_unit_test(a_reused_block_of_a_lost_leaf_is_no_corruption),
        cmocka_unit_test(a_table_is_fetched_anew_after_a_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
