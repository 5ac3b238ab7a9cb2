/*
 * test_floors.c - the floors of a checkpoint (save/floors.h, P12): they wait until each owner has merged what
 * stood before the positions of the journals, and are what it has merged then. The owner is this process
 * itself, by its entry in the map of ranges and the control block of its log; the test merges.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fabric/local.h"
#include "format/log.h"
#include "memory/memory.h"
#include "pool/log.h"
#include "save/floors.h"
#include "tree/tree.h"

#define EPOCH   3u
#define NOTED   10u /* the greatest sequence that stands before the positions */
#define EARLIER 5u  /* what is merged at first */
#define NEVER   UINT64_C(3600000000000)

struct rig {
    struct memory_node *memory;
    struct fabric_local_peers *peers;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct owner *owner;
    struct pool_log log;
    uint16_t index; /* its number */
    /* the waiting */
    unsigned looks;  /* so often it was asked whether it is to go on */
    uint64_t merges; /* what is merged from the second time on; 0: nothing more */
    bool cancelled;
};

static void good(struct rig *rig, int status)
{
    if (status)
        fail_msg("%d: %s", status, tree_session_error(rig->session)->text);
}

/* The owner has merged up to this sequence. */
static void merged(struct rig *rig, uint64_t sequence)
{
    const struct format_log_control control = {.owner = fabric_self(rig->fabric), .watermark = sequence};
    struct pool_session *pool = tree_session_pool(rig->session);
    uint8_t bytes[FORMAT_LOG_BLOCK];
    format_log_control_encode(&control, bytes);
    struct fabric_command write = pool_write_command(rig->log.control, bytes, sizeof bytes);
    pool_session_begin(pool);
    good(rig, pool_execute(pool, 0, &write, 1));
}

/* All of the index is this process's, by its log. */
static void range_put(struct rig *rig)
{
    const struct format_range range = {.number = rig->index,
                                       .state = FORMAT_RANGE_SETTLED,
                                       .owner = fabric_self(rig->fabric),
                                       .logged = true,
                                       .epoch = EPOCH,
                                       .version = EPOCH};
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
    struct tree *map;
    const size_t length = format_range_encode(&range, key, value);
    good(rig, tree_open(rig->session, OWNER_MAP_NAME, &map));
    good(rig, tree_upsert(rig->session, map, key, length, value, sizeof value));
    tree_close(map);
}

static void rig_open(struct rig *rig)
{
    static const struct format_geometry geometry = {
        .key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .internal_bytes = 512};
    const struct memory_options pool = {.pool_bytes = UINT64_C(16) << 20, .chunk_bytes = UINT64_C(1) << 20};
    struct error error = {0};
    struct tree_switches switches;
    struct owner_options options;
    struct tree *tree;
    *rig = (struct rig){.looks = 0};
    assert_int_equal(memory_node_create(&rig->memory, &pool, &error), 0);
    rig->peers = fabric_local_peers_create(&error);
    assert_non_null(rig->peers);
    const struct fabric_target *target = memory_node_target(rig->memory);
    rig->fabric = fabric_local_create_peer(rig->peers, &target, 1, 1, &error);
    assert_non_null(rig->fabric);
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 1u << 20;
    assert_int_equal(tree_compute_create(&rig->compute, rig->fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&rig->worker, tree_compute_pool(rig->compute), &error), 0);
    assert_int_equal(tree_session_create(&rig->session, rig->compute, rig->worker, &error), 0);
    good(rig, tree_format(rig->session));
    good(rig, tree_create(rig->session, "kept", &geometry, &tree));
    rig->index = (uint16_t)tree_number(tree);
    tree_close(tree);
    owner_options_default(&options);
    options.policy = OWNER_NONE;
    assert_int_equal(owner_create(&rig->owner, rig->compute, &options, &error), 0);
    good(rig, owner_join(rig->owner, rig->session));
    range_put(rig);
    good(rig, pool_log_open(tree_session_pool(rig->session), 0, &rig->log));
    merged(rig, EARLIER);
}

static void rig_close(struct rig *rig)
{
    good(rig, owner_leave(rig->owner, rig->session));
    owner_destroy(rig->owner);
    tree_session_destroy(rig->session);
    pool_worker_destroy(rig->worker);
    tree_compute_destroy(rig->compute);
    fabric_close(rig->fabric);
    fabric_local_peers_destroy(rig->peers);
    memory_node_destroy(rig->memory);
}

/* The owner merges while it is waited for. */
static bool looked(void *context)
{
    struct rig *rig = context;
    if (++rig->looks == 2 && rig->merges)
        merged(rig, rig->merges);
    return rig->cancelled;
}

static int take(struct rig *rig, uint64_t noted, uint64_t wait_ns, struct persist_table *table)
{
    const struct save_mark mark = {.instance = fabric_self(rig->fabric).instance, .sequence = noted};
    const struct save_floors floors = {.owner = rig->owner,
                                       .session = rig->session,
                                       .marks = &mark,
                                       .mark_count = 1,
                                       .wait_ns = wait_ns,
                                       .cancelled = looked,
                                       .context = rig};
    *table = (struct persist_table){.number = 1};
    struct persist_table_index *index = persist_table_index_add(table);
    assert_non_null(index);
    *index = (struct persist_table_index){.number = rig->index, .name = "kept"};
    rig->looks = 0;
    return save_floors_take(&floors, table);
}

static void floors_wait_for_what_was_noted(void **state)
{
    struct rig rig;
    struct persist_table table;
    static const struct format_key key = {(const uint8_t *)"somewhat", 8};
    (void)state;
    rig_open(&rig);
    rig.merges = NOTED + 2;
    good(&rig, take(&rig, NOTED, NEVER, &table));
    assert_int_equal(rig.looks, 2);
    /* What is above the floor may have come behind the scan. */
    assert_true(persist_table_covers(&table, rig.index, key, EPOCH, NOTED + 2));
    assert_false(persist_table_covers(&table, rig.index, key, EPOCH, NOTED + 3));
    assert_true(persist_table_covers(&table, rig.index, key, EPOCH - 1, NOTED + 3));
    persist_table_free(&table);
    /* Now there is nothing to wait for. */
    good(&rig, take(&rig, NOTED, 0, &table));
    assert_int_equal(rig.looks, 0);
    persist_table_free(&table);
    rig_close(&rig);
}

static void an_owner_that_does_not_merge_is_named(void **state)
{
    struct rig rig;
    struct persist_table table;
    (void)state;
    rig_open(&rig);
    assert_int_equal(take(&rig, NOTED, 0, &table), BANYAN_ETIMEOUT);
    const char *text = tree_session_error(rig.session)->text;
    assert_non_null(strstr(text, "compute node 1 does not merge its log: 5 of 10"));
    persist_table_free(&table);
    rig.cancelled = true;
    assert_int_equal(take(&rig, NOTED, NEVER, &table), BANYAN_EABORT);
    assert_int_equal(rig.looks, 1);
    persist_table_free(&table);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floors_wait_for_what_was_noted),
        cmocka_unit_test(an_owner_that_does_not_merge_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
