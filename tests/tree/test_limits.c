/*
 * test_limits.c - arguments that cannot be, limits that are met, memory that is short from the start, memory
 * nodes that answer nonsense: each an error with a message, after which all goes on.
 */
#include "rig.h"

#include <stdio.h>
#include <string.h>

#include "failing.h"
#include "fabric/local.h"
#include "tree/session.h"

static struct rig rig;

static void open_rig(void (*shape)(struct rig_options *options))
{
    struct rig_options options;
    rig_options_default(&options);
    if (shape)
        shape(&options);
    rig_open(&rig, &options);
}

/* Of our session: the status, and a message with it. */
static void expect(int line, int status, int wanted)
{
    const char *text = tree_session_error(rig.ours.session)->text;
    if (status != wanted || (status && !text[0]))
        fail_msg("line %d: %d instead of %d: %s", line, status, wanted, text);
}
#define EXPECT(call, wanted) expect(__LINE__, call, wanted)

/* ---- arguments ---- */

static bool never(void *context, const void **key, size_t *key_length, const void **value, size_t *length)
{
    (void)context;
    (void)key;
    (void)key_length;
    (void)value;
    (void)length;
    return false;
}

struct numbers {
    unsigned next, end, key_bytes, value_bytes;
    uint8_t key[300], value[300];
};

static bool numbers_next(void *context, const void **key, size_t *key_length, const void **value,
                         size_t *length)
{
    struct numbers *numbers = context;
    if (numbers->next == numbers->end)
        return false;
    rig_key(&rig, numbers->next++, numbers->key);
    *key = numbers->key;
    *value = numbers->value;
    *key_length = numbers->key_bytes ? numbers->key_bytes : 8;
    *length = numbers->value_bytes ? numbers->value_bytes : 8;
    return true;
}

static struct tree_bulk *begin(unsigned parts)
{
    struct tree_bulk *bulk = NULL;
    struct error error = {0};
    assert_int_equal(tree_bulk_begin(&bulk, rig.ours.tree, parts, 0.5, &error), 0);
    return bulk;
}

static void part(struct tree_bulk *bulk, unsigned number, unsigned from, unsigned end, int wanted)
{
    struct numbers numbers = {.next = from, .end = end};
    EXPECT(tree_bulk_part(rig.ours.session, bulk, number, numbers_next, &numbers), wanted);
}

static void bulk_loads_refuse_what_cannot_be(void **state)
{
    (void)state;
    open_rig(NULL);
    struct tree_session *session = rig.ours.session;
    struct error error = {0};
    struct tree_bulk *bulk = NULL;
    const double fills[] = {0.0, 0.05, 1.01, -1.0, 0.0 / 0.0};
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(tree_bulk_begin(&bulk, rig.ours.tree, 1, fills[i], &error), BANYAN_EINVAL);
        assert_null(bulk);
    }
    assert_int_equal(tree_bulk_begin(&bulk, rig.ours.tree, 0, 0.5, &error), BANYAN_EINVAL);
    assert_int_equal(tree_bulk_begin(&bulk, rig.ours.tree, 65537, 0.5, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "65537"));

    bulk = begin(2); /* a part that there is not, one twice, one not at all */
    EXPECT(tree_bulk_part(session, bulk, 2, never, NULL), BANYAN_EINVAL);
    part(bulk, 0, 1, 100, 0);
    EXPECT(tree_bulk_part(session, bulk, 0, never, NULL), BANYAN_EINVAL);
    EXPECT(tree_bulk_finish(session, bulk), BANYAN_EINVAL);

    bulk = begin(2); /* parts out of order */
    part(bulk, 0, 100, 200, 0);
    part(bulk, 1, 150, 300, 0);
    EXPECT(tree_bulk_finish(session, bulk), BANYAN_EINVAL);

    bulk = begin(2);
    part(bulk, 0, 100, 101, 0);
    part(bulk, 1, 0, 1, 0);
    EXPECT(tree_bulk_finish(session, bulk), BANYAN_EINVAL);

    for (unsigned way = 0; way < 4; way++) { /* entries of a wrong size */
        struct numbers numbers = {.end = 1,
                                  .key_bytes = way == 0   ? 300
                                               : way == 1 ? 9
                                                          : 8,
                                  .value_bytes = way == 2   ? 300
                                                 : way == 3 ? 7
                                                            : 8};
        bulk = begin(1);
        EXPECT(tree_bulk_part(session, bulk, 0, numbers_next, &numbers),
               way == 3 ? BANYAN_EVALUESIZE : BANYAN_EKEYSIZE);
        EXPECT(tree_bulk_finish(session, bulk), BANYAN_EINVAL);
    }

    bulk = begin(3); /* nothing at all; and a part in the middle without anything */
    for (unsigned i = 0; i < 3; i++)
        EXPECT(tree_bulk_part(session, bulk, i, never, NULL), 0);
    EXPECT(tree_bulk_finish(session, bulk), 0);
    bulk = begin(3);
    part(bulk, 0, 1, 50, 0);
    EXPECT(tree_bulk_part(session, bulk, 1, never, NULL), 0);
    part(bulk, 2, 60, 90, 0);
    EXPECT(tree_bulk_finish(session, bulk), 0);
    struct tree_check_report report;
    EXPECT(tree_check(session, rig.ours.tree, &report, NULL, NULL), 0);
    assert_int_equal(report.entries, 79);
    assert_int_equal(rig_account(&rig), 0);

    bulk = begin(1); /* it is not empty any more */
    part(bulk, 0, 1, 100, 0);
    EXPECT(tree_bulk_finish(session, bulk), BANYAN_EBUSY);
    assert_int_equal(rig_account(&rig), 0);
    rig_close(&rig);

    open_rig(NULL); /* a single leaf that is not empty */
    rig_fill(&rig, 5, 6, 1);
    bulk = begin(1);
    part(bulk, 0, 1, 100, 0);
    EXPECT(tree_bulk_finish(rig.ours.session, bulk), BANYAN_EBUSY);
    assert_int_equal(rig_account(&rig), 0);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

static enum tree_verdict never_called(void *context, const void *old, size_t old_length, void *value,
                                      size_t *length)
{
    (void)context;
    (void)old;
    (void)old_length;
    (void)value;
    (void)length;
    fail();
    return TREE_KEEP;
}

static void null_pointers_and_sizes_are_refused(void **state)
{
    (void)state;
    open_rig(NULL);
    rig_fill(&rig, 0, 3, 1);
    struct tree_session *session = rig.ours.session;
    uint8_t key[FORMAT_KEY_MAX], value[8];
    size_t length = sizeof value;
    rig_key(&rig, 1, key);
    EXPECT(tree_lookup(session, rig.ours.tree, NULL, 8, value, &length), BANYAN_EINVAL);
    EXPECT(tree_modify(session, rig.ours.tree, NULL, 8, never_called, NULL), BANYAN_EINVAL);
    EXPECT(tree_upsert(session, rig.ours.tree, key, 8, NULL, 8), BANYAN_EINVAL);
    length = 7;
    EXPECT(tree_lookup(session, rig.ours.tree, key, 8, value, &length), BANYAN_EVALUESIZE);
    assert_int_equal(length, 8);
    struct tree_item item = {.key = key, .key_length = 8, .value = value, .length = 7};
    EXPECT(tree_multi_get(session, rig.ours.tree, &item, 1), BANYAN_EVALUESIZE);
    length = 3;
    EXPECT(tree_sample(session, rig.ours.tree, value, &length), BANYAN_EKEYSIZE);
    gaddr block = GADDR_NULL;
    EXPECT(pool_block_allocate(&session->pool, GADDR_NULL, 0, &block), BANYAN_EINVAL);
    EXPECT(pool_block_allocate(&session->pool, GADDR_NULL, MEMORY_BLOCK_MAX + 1, &block), BANYAN_EINVAL);
    pool_block_release(&session->pool, GADDR_NULL, 100);
    pool_block_release(&session->pool, gaddr_make(0, 1 << 20), MEMORY_BLOCK_MAX + 1);
    pool_block_release(&session->pool, gaddr_make(9, 1 << 20), 100); /* there is no such memory node */
    struct tree *tree;
    EXPECT(tree_open(session, NULL, &tree), BANYAN_EINVAL);
    const uint8_t far[FORMAT_KEY_MAX + 1] = {0};
    for (unsigned i = 0; i < 2; i++) {
        const struct tree_range range = {
            .from = i ? NULL : far, .from_length = sizeof far, .to = i ? far : NULL, .to_length = sizeof far};
        EXPECT(tree_scan(session, rig.ours.tree, &range, NULL, NULL), BANYAN_EKEYSIZE);
    }
    pool_worker_destroy(NULL);
    pool_worker_abandon(NULL);
    tree_session_destroy(NULL);
    tree_compute_destroy(NULL);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

/* ---- limits ---- */

static void the_catalogue_fills_up(void **state)
{
    (void)state;
    open_rig(NULL);
    const struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512};
    char name[16];
    struct tree *tree;
    unsigned made = 1;
    int status;
    do {
        snprintf(name, sizeof name, "index %u", made);
        status = tree_create(rig.ours.session, name, &geometry, &tree);
        if (status)
            break;
        tree_close(tree);
    } while (++made < 1000);
    EXPECT(status, BANYAN_ENOSPC);
    assert_int_equal(made, 128);
    EXPECT(tree_open(rig.ours.session, "index 127", &tree), 0);
    tree_close(tree);
    EXPECT(tree_open(rig.ours.session, name, &tree), BANYAN_ENOTFOUND);
    rig_close(&rig);
}

static void hardly_any_cache(struct rig_options *options)
{
    options->cache_bytes = 1;
    options->geometry.key_bytes = 60;
}

static bool count_one(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    (void)key;
    (void)key_length;
    (void)value;
    (void)length;
    ++*(unsigned *)context;
    return true;
}

/* What does not fit the cache is fetched again and again, and found all the same. */
static void a_cache_may_be_too_small(void **state)
{
    (void)state;
    open_rig(hardly_any_cache);
    rig_fill(&rig, 0, 900, 1);
    const struct tree_range all = {.reverse = false};
    unsigned count = 0;
    EXPECT(tree_scan(rig.ours.session, rig.ours.tree, &all, count_one, &count), 0);
    assert_int_equal(count, 900);
    for (unsigned i = 0; i < 20; i++) {
        uint8_t key[60];
        size_t length = sizeof key;
        EXPECT(tree_sample(rig.ours.session, rig.ours.tree, key, &length), 0);
    }
    rig_judge(&rig, TROUBLE_NONE);
    struct tree_cache_stats stats;
    tree_cache_stats(rig.ours.tree, &stats);
    assert_true(stats.evictions > 0);
    assert_true(stats.frames <= 20);
    rig_close(&rig);
}

/* ---- memory nodes that are full ---- */

static void two_nodes_long(struct rig_options *options)
{
    rig_long_keyed(options);
    options->geometry.internal_bytes = 512;
}

static void fill_and_refuse(struct rig *one)
{
    rig_fill(one, 0, 420, 1);
    memory_node_refuse(one->nodes[0], UINT64_MAX);
}

static void fill_and_refuse_other(struct rig *one)
{
    rig_fill(one, 0, 420, 1);
    memory_node_refuse(one->nodes[1], UINT64_MAX);
}

static int inserts(struct rig *one)
{
    int worst = 0;
    for (unsigned i = 421; i < 500; i++) {
        uint8_t key[FORMAT_KEY_MAX];
        uint64_t value = i + 1;
        size_t length = rig_key(one, i, key);
        int status = tree_insert(one->ours.session, one->ours.tree, key, length, &value, sizeof value);
        rig_note(one, i, value, status);
        worst = worst ? worst : status;
    }
    return worst;
}

/* Leaves and what belongs to them come to lie apart: each list of the other memory node may fail by itself.
 */
static void siblings_on_another_memory_node(void **state)
{
    (void)state;
    static const struct rig_scenario scenarios[] = {
        {"first is full", rig_two_nodes, fill_and_refuse, inserts, NULL, {0, 3, 5, 7, 1, 1, 3, 5, 1}, 0},
        {"second is full",
         rig_two_nodes,
         fill_and_refuse_other,
         inserts,
         NULL,
         {0, 7, 11, 13, 1, 1, 5, 7, 1},
         0},
        {"first is full, long keys",
         two_nodes_long,
         fill_and_refuse,
         inserts,
         NULL,
         {0, 3, 5, 7, 1, 1, 3, 5, 1},
         0},
        {"second is full, long keys",
         two_nodes_long,
         fill_and_refuse_other,
         inserts,
         NULL,
         {0, 7, 11, 13, 2, 2, 5, 7, 1},
         0},
    };
    for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        rig_loop_all(&scenarios[i]);
}

/* From the n-th batch on there is no room anywhere: what fails has not been done, and reads and deletes go
 * on. */
static void full_at_every_step(void (*shape)(struct rig_options *))
{
    for (unsigned granted = 0, refused = 1; refused; granted++) {
        open_rig(shape);
        rig_fill(&rig, 0, 420, 1);
        refused = 0;
        for (unsigned i = 421; i < 700; i++) {
            uint8_t key[FORMAT_KEY_MAX];
            uint64_t value = i + 1;
            size_t length = rig_key(&rig, i, key);
            struct memory_status_reply reply;
            uint64_t handed = 0;
            for (unsigned node = 0; node < rig.options.nodes; node++) {
                memory_node_status(rig.nodes[node], &reply);
                handed += reply.allocations_total;
            }
            static uint64_t before;
            before = i == 421 ? handed : before;
            for (unsigned node = 0; node < rig.options.nodes; node++)
                memory_node_refuse(rig.nodes[node], handed - before >= 8 * granted ? UINT64_MAX : 0);
            int status = tree_insert(rig.ours.session, rig.ours.tree, key, length, &value, sizeof value);
            if (status != BANYAN_ENOSPC)
                EXPECT(status, 0);
            refused += status != 0;
            rig_note(&rig, i, value, status);
        }
        for (unsigned node = 0; node < rig.options.nodes; node++)
            memory_node_refuse(rig.nodes[node], 0);
        rig_judge(&rig, TROUBLE_NONE);
        rig_close(&rig);
        assert_true(granted < 100);
    }
}

static void pools_may_be_full_at_every_step(void **state)
{
    (void)state;
    full_at_every_step(NULL);
    full_at_every_step(two_nodes_long);
}

/* ---- memory that is short from the start ---- */

/* All of a compute node, used and taken down again. */
static int whole_life(void *context)
{
    const struct fabric_target *targets[1] = {memory_node_target(rig.nodes[0])};
    struct tree_switches switches = {.cache_bytes = 1 << 20};
    struct error error = {0};
    struct tree_compute *compute = NULL;
    struct pool_worker *worker = NULL;
    struct tree_session *session = NULL;
    struct tree *tree = NULL;
    struct store *store = NULL;
    struct store_session *stores = NULL;
    (void)context;
    tree_switches_preset(&switches, "banyan", &error);
    struct fabric *fabric = fabric_local_create(targets, 1, 7, &error);
    int status = fabric ? tree_compute_create(&compute, fabric, &switches, &error) : error.code;
    if (!status)
        status = pool_worker_create(&worker, tree_compute_pool(compute), &error);
    if (!status)
        status = tree_session_create(&session, compute, worker, &error);
    if (!status)
        status = store_open(&store, session, "life", true);
    if (!status)
        status = store_session_create(&stores, store, session, &error);
    if (!status)
        status = store_put(stores, "key", 3, "a value that is too long for a slot", 35, 0);
    if (!status)
        status = store_delete(stores, "key", 3);
    if (!status)
        status = tree_open(session, "rig", &tree);
    assert_true(!status || error.text[0] || tree_session_error(session)->text[0]);
    tree_close(tree);
    store_session_destroy(stores);
    store_close(store);
    tree_session_destroy(session);
    pool_worker_destroy(worker);
    tree_compute_destroy(compute);
    fabric_close(fabric);
    return status;
}

static void memory_may_be_short_from_the_start(void **state)
{
    (void)state;
    const struct failing_order order = {
        .calls = FAILING_MEMORY, .where = FAILING_HERE, .count = 1, .error = 12};
    open_rig(NULL);
    assert_true(failing_each(&order, whole_life, NULL, BANYAN_ENOMEM) > 15);
    rig_close(&rig);
}

/* ---- answers that make no sense ---- */

static unsigned nonsense;

static void spoil(void *context, void *reply, size_t *length)
{
    struct memory_allocate_reply *answer = reply;
    (void)context;
    switch (nonsense) {
    case 0:
        *length = 3;
        break;
    case 1:
        answer->count = 0;
        break;
    case 2:
        answer->count = MEMORY_BATCH_MAX + 1;
        break;
    case 3:
        *length -= 8;
        break;
    case 4:
        answer->blocks[answer->count - 1] = gaddr_make(5, 4096);
        break;
    default:
        answer->blocks[0] = GADDR_NULL;
        break;
    }
}

static void memory_nodes_may_answer_nonsense(void **state)
{
    (void)state;
    for (nonsense = 0; nonsense < 6; nonsense++) {
        gaddr block = GADDR_NULL;
        open_rig(NULL);
        rig_replies(&rig, spoil, NULL);
        EXPECT(pool_block_allocate(&rig.ours.session->pool, GADDR_NULL, 100, &block), BANYAN_ENET);
        rig_replies(&rig, NULL, NULL);
        EXPECT(pool_block_allocate(&rig.ours.session->pool, GADDR_NULL, 100, &block), 0);
        pool_block_release(&rig.ours.session->pool, block, 100);
        rig_close(&rig);
    }
}

/* ---- geometries ---- */

static void geometries_fill_in_what_is_left_open(void **state)
{
    (void)state;
    struct error error = {0};
    struct format_geometry geometry = {.key_kind = FORMAT_KEY_VARIABLE, .value_bytes = 8};
    assert_int_equal(format_geometry_complete(&geometry, 1024, &error), 0);
    assert_int_equal(geometry.internal_bytes, 1024); /* no more is written at once: keys must be shorter */
    assert_in_range(geometry.key_bytes, 60, FORMAT_KEY_MAX - 1);
    geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE, .value_bytes = 8};
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    assert_int_equal(geometry.key_bytes, FORMAT_KEY_MAX);
    geometry = (struct format_geometry){.key_bytes = 8, .value_bytes = 8, .internal_bytes = 4096};
    assert_int_equal(format_geometry_complete(&geometry, 1024, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "4096"));
    /* Long keys that were asked for: nodes as large as are written at once, or it says why not. */
    geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE, .key_bytes = 255, .value_bytes = 8};
    assert_int_equal(format_geometry_complete(&geometry, 1024, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "keys of 255 bytes need"));
    assert_non_null(strstr(error.text, "at most 1024"));
    geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE, .key_bytes = 255, .value_bytes = 8};
    assert_int_equal(format_geometry_complete(&geometry, 2048, &error), 0);
    assert_int_equal(geometry.internal_bytes, 2048);
    geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE, .value_bytes = 8};
    assert_int_equal(format_geometry_complete(&geometry, 2048, &error), 0);
    assert_int_equal(geometry.internal_bytes, 2048);
    assert_int_equal(geometry.key_bytes, FORMAT_KEY_MAX);
    /* Tiny entries in the largest leaves: more buckets than are used. */
    struct format_geometry_shape shape;
    geometry = (struct format_geometry){.key_bytes = 8, .value_bytes = 0, .leaf_bytes = 65536};
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    format_geometry_shape(&geometry, &shape);
    assert_true(shape.slots > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bulk_loads_refuse_what_cannot_be),
        cmocka_unit_test(null_pointers_and_sizes_are_refused),
        cmocka_unit_test(the_catalogue_fills_up),
        cmocka_unit_test(a_cache_may_be_too_small),
        cmocka_unit_test(siblings_on_another_memory_node),
        cmocka_unit_test(pools_may_be_full_at_every_step),
        cmocka_unit_test(memory_may_be_short_from_the_start),
        cmocka_unit_test(memory_nodes_may_answer_nonsense),
        cmocka_unit_test(geometries_fill_in_what_is_left_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
