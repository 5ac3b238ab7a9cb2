/*
 * test_owner_unkept.c - where memory nodes say that they keep logs on disks nobody changes a range that
 * nobody logs (owner/unkept.h): changes wait for an owner with a log, and fail with what is to be done. Two
 * compute nodes of this process on real threads; their logs are hooks that do nothing, since it is the right
 * to change that is looked at here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/task.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "owner/owner.h"

#define SIDES    2u
#define NEVER_NS UINT64_C(600000000000)
#define LIMIT_NS UINT64_C(20000000000) /* much more than anything takes */

struct side {
    struct fabric *fabric;
    struct fabric_ops ops; /* of its fabric */
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree;
    struct owner *owner;
    struct owner_threads *threads;
};

static struct memory_node *memory;
static struct fabric_local_peers *peers;
static struct side sides[SIDES];
static int disk;          /* atomic: enum fabric_durability of the memory node */
static unsigned persists; /* how often it was asked */

static const struct format_geometry geometry = {
    .key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .internal_bytes = 512};

static void good(const struct side *side, int status)
{
    if (status)
        fail_msg("%s: %s", error_name(status), tree_session_error(side->session)->text);
}

/* ---- a log that keeps nothing ---- */

static int log_inherit(void *context, struct tree_session *session, struct tree *tree,
                       const struct format_heir *heirs, uint32_t heir_count, struct format_key lower,
                       const struct format_key *upper, uint64_t epoch)
{
    (void)context, (void)session, (void)tree, (void)heirs, (void)heir_count, (void)lower, (void)upper;
    (void)epoch;
    return 0;
}

static void log_range(void *context, struct tree *tree, struct format_key lower,
                      const struct format_key *upper, uint64_t epoch)
{
    (void)context, (void)tree, (void)lower, (void)upper, (void)epoch;
}

static int log_flush(void *context, struct tree_session *session, struct tree *tree, struct format_key lower,
                     const struct format_key *upper)
{
    (void)context, (void)session, (void)tree, (void)lower, (void)upper;
    return 0;
}

static void log_hurry(void *context, bool on)
{
    (void)context, (void)on;
}

static void log_released(void *context, struct tree *tree, uint64_t version)
{
    (void)context, (void)tree, (void)version;
}

static void log_dropped(void *context, struct tree *tree)
{
    (void)context, (void)tree;
}

static int log_release_dead(void *context, struct tree_session *session, struct fabric_process gone)
{
    (void)context, (void)session, (void)gone;
    return 0;
}

static const struct owner_log no_log = {.inherit = log_inherit,
                                        .cleared = log_range,
                                        .flush = log_flush,
                                        .hurry = log_hurry,
                                        .disown = log_range,
                                        .released = log_released,
                                        .dropped = log_dropped,
                                        .release_dead = log_release_dead};

/* ---- the rig ---- */

static enum fabric_durability durability_of(const struct fabric *fabric, uint16_t node)
{
    (void)fabric, (void)node;
    return (enum fabric_durability)atomic_load_acquire(&disk);
}

static int persist(struct fabric_endpoint *endpoint, const uint16_t *nodes, uint32_t count, int *statuses)
{
    (void)endpoint, (void)nodes;
    memset(statuses, 0, count * sizeof *statuses);
    persists++;
    return 0;
}

/* `logs`: it keeps a log, and wants ranges. */
static void side_open(unsigned number, bool logs, uint64_t timeout_ns)
{
    struct side *side = &sides[number];
    const struct fabric_target *target = memory_node_target(memory);
    struct tree_switches switches;
    struct owner_options options;
    struct error error = {0};
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    owner_options_default(&options);
    options.tick_ns = 5000000;
    options.timeout_ns = timeout_ns;
    options.policy = logs ? OWNER_AUTO : OWNER_NONE;
    options.log = logs;
    options.balance_ns = NEVER_NS; /* what is taken before was taken since changes need it */
    side->fabric = fabric_local_create_peer(peers, &target, 1, (uint16_t)(number + 1), &error);
    assert_non_null(side->fabric);
    side->ops = *side->fabric->ops;
    side->ops.durability = durability_of;
    side->ops.persist = persist;
    side->fabric->ops = &side->ops;
    assert_int_equal(tree_compute_create(&side->compute, side->fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&side->worker, tree_compute_pool(side->compute), &error), 0);
    assert_int_equal(tree_session_create(&side->session, side->compute, side->worker, &error), 0);
    if (!number) {
        good(side, tree_format(side->session));
        good(side, tree_create(side->session, "test", &geometry, &side->tree));
    } else {
        good(side, tree_open(side->session, "test", &side->tree));
    }
    assert_int_equal(owner_create(&side->owner, side->compute, &options, &error), 0);
    if (logs)
        owner_set_log(side->owner, &no_log, NULL);
    good(side, owner_attach(side->owner, side->session, side->tree));
    assert_int_equal(owner_threads_start(&side->threads, side->owner, 1, 2, &error), 0);
}

static void side_close(struct side *side)
{
    owner_threads_stop(side->threads);
    good(side, owner_leave(side->owner, side->session));
    owner_destroy(side->owner);
    tree_close(side->tree);
    tree_session_destroy(side->session);
    pool_worker_destroy(side->worker);
    tree_compute_destroy(side->compute);
    fabric_close(side->fabric);
}

static void rig_open(enum fabric_durability level, bool first_logs, bool second_logs, uint64_t timeout_ns)
{
    const struct memory_options options = {.pool_bytes = 32 << 20, .chunk_bytes = 64 << 10};
    struct error error = {0};
    atomic_store_release(&disk, (int)level);
    persists = 0;
    assert_int_equal(memory_node_create(&memory, &options, &error), 0);
    peers = fabric_local_peers_create(&error);
    assert_non_null(peers);
    side_open(0, first_logs, timeout_ns);
    side_open(1, second_logs, timeout_ns);
}

static void rig_close(void)
{
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&sides[i]);
    fabric_local_peers_destroy(peers);
    memory_node_destroy(memory);
}

static int put(struct side *side, uint64_t key, uint64_t value)
{
    return tree_upsert(side->session, side->tree, &key, sizeof key, &value, sizeof value);
}

static uint64_t get(struct side *side, uint64_t key)
{
    uint64_t value = 0;
    size_t length = sizeof value;
    int status = tree_lookup(side->session, side->tree, &key, sizeof key, &value, &length);
    if (status != BANYAN_ENOTFOUND)
        good(side, status);
    return value;
}

static void owner_note(void *context, const struct owner_range *range)
{
    *(struct owner_range *)context = *range;
}

static struct owner_range range_now(struct side *side)
{
    struct owner_range range = {0};
    good(side, owner_list(side->owner, side->session, owner_note, &range));
    return range;
}

static void await_owner(struct side *side, const struct side *wanted)
{
    const struct fabric_process process = fabric_self(wanted->fabric);
    const uint64_t until = task_now() + LIMIT_NS;
    while (!fabric_process_equal(range_now(side).owner, process)) {
        assert_true(task_now() < until);
        task_sleep(1000000);
    }
}

static void refused(struct side *side, int status, int wanted, const char *text)
{
    assert_int_equal(status, wanted);
    assert_non_null(strstr(tree_session_error(side->session)->text, text));
}

/* ---- the tests ---- */

#define SOON_NS UINT64_C(30000000)

/* Changes of all kinds; what is read is read at once. */
static void without_an_owner_nothing_is_changed(void **state)
{
    uint64_t keys[3] = {1, 2, 3}, values[3] = {7, 8, 9};
    struct tree_item items[3];
    uint64_t value = 5;
    (void)state;
    rig_open(FABRIC_KEPT_ON_DISK, false, false, SOON_NS);
    struct side *side = &sides[0];
    for (unsigned i = 0; i < 3; i++)
        items[i] = (struct tree_item){
            .key = &keys[i], .key_length = 8, .value = &values[i], .length = 8, .status = 0};
    const char *remedy = "start a compute node with --own auto --log auto";
    const uint64_t began = task_now();
    refused(side, put(side, 1, 1), BANYAN_ENET, remedy);
    assert_true(task_now() - began >= SOON_NS);
    refused(side, tree_insert(side->session, side->tree, &keys[0], 8, &value, 8), BANYAN_ENET, remedy);
    refused(side, tree_delete(side->session, side->tree, &keys[0], 8), BANYAN_ENET, remedy);
    refused(side, tree_multi_put(side->session, side->tree, items, 3), BANYAN_ENET, remedy);
    assert_true(tree_rights_unkept(side->session, side->tree, &keys[0], 8));
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(items[i].status, BANYAN_ENET);
        assert_int_equal(get(&sides[1], keys[i]), 0);
    }
    atomic_store_release(&disk, FABRIC_KEPT_IN_FILE); /* at level process the same is done */
    good(side, owner_split(side->owner, side->session, side->tree, &keys[2], 8)); /* a new table */
    assert_false(tree_rights_unkept(side->session, side->tree, &keys[0], 8));
    good(side, put(side, 1, 1));
    assert_int_equal(get(&sides[1], 1), 1);
    rig_close();
}

/* No error, though the change came first; and nothing waits for the next look at everybody's shares. */
static void changes_wait_for_an_owner(void **state)
{
    (void)state;
    rig_open(FABRIC_KEPT_ON_DISK_ALWAYS, false, true, LIMIT_NS);
    good(&sides[0], put(&sides[0], 1, 1));
    good(&sides[1], put(&sides[1], 1ull << 60, 2));
    await_owner(&sides[0], &sides[1]);
    assert_true(range_now(&sides[0]).logged);
    assert_int_equal(get(&sides[0], 1ull << 60), 2);
    rig_close();
}

/* They do not become shared, nor another's who would log nothing. */
static void ranges_stay_with_those_who_log(void **state)
{
    struct owner_selection all = {.tree = NULL};
    (void)state;
    rig_open(FABRIC_KEPT_ON_DISK, true, false, LIMIT_NS);
    struct side *side = &sides[0], *other = &sides[1];
    await_owner(side, side);
    refused(other, owner_share(other->owner, other->session, &all, NULL), BANYAN_ENOTSUP, "shared range");
    refused(other, owner_take(other->owner, other->session, &all, NULL), BANYAN_ENOTSUP,
            "this process keeps no log");
    refused(side, owner_move(side->owner, side->session, &all, fabric_self(other->fabric), NULL),
            BANYAN_ENOTSUP, "keeps no log");
    await_owner(side, side);
    good(other, put(other, 4, 44));
    rig_close();
}

/* What was shared on purpose, or given to who logs nothing, before memory nodes promised anything. */
static void what_nobody_logs_is_taken(void **state)
{
    struct owner_selection all = {.tree = NULL};
    (void)state;
    rig_open(FABRIC_KEPT_IN_FILE, true, false, LIMIT_NS);
    struct side *side = &sides[0], *other = &sides[1];
    good(other, put(other, 1, 1));
    good(other, owner_take(other->owner, other->session, &all, NULL));
    good(other, owner_share(other->owner, other->session, &all, NULL));
    atomic_store_release(&disk, FABRIC_KEPT_ON_DISK);
    await_owner(side, side);
    atomic_store_release(&disk, FABRIC_KEPT_IN_FILE);
    good(other, owner_take(other->owner, other->session, &all, NULL));
    assert_false(range_now(side).logged);
    atomic_store_release(&disk, FABRIC_KEPT_ON_DISK);
    await_owner(side, side);
    assert_true(range_now(side).logged);
    good(other, put(other, 1, 2));
    assert_int_equal(get(side, 1), 2);
    rig_close();
}

/* FLUSHALL of another process: who waits for an owner learns that there is no index any more. */
static void a_dropped_index_is_not_waited_for(void **state)
{
    (void)state;
    rig_open(FABRIC_KEPT_ON_DISK, false, false, LIMIT_NS);
    struct side *side = &sides[0], *other = &sides[1];
    good(side, owner_close(side->owner, side->session, side->tree));
    good(side, tree_drop(side->session, "test", NULL, NULL));
    good(side, owner_forget(side->owner, side->session, side->tree));
    refused(other, put(other, 1, 1), BANYAN_ENOTFOUND, "was dropped");
    rig_close();
}

/* The catalogue's change is on the disk before it is told of; an index that no map gave a table, as where
 * there is no owner at all, is as one that nobody owns; and nothing is loaded beside the log. */
static void the_catalogue_and_what_has_no_map(void **state)
{
    struct tree *tree = NULL;
    struct tree_bulk *bulk;
    struct error error = {0};
    uint64_t key = 1, value = 1;
    (void)state;
    rig_open(FABRIC_KEPT_ON_DISK, false, false, SOON_NS);
    struct side *side = &sides[0];
    const unsigned before = persists;
    assert_true(before > 0);
    good(side, tree_create(side->session, "other", &geometry, &tree));
    assert_int_equal(persists, before + 1);
    refused(side, tree_upsert(side->session, tree, &key, 8, &value, 8), BANYAN_ENET, "has none");
    assert_int_equal(tree_bulk_begin(&bulk, tree, 1, 0.8, &error), 0);
    refused(side, tree_bulk_part(side->session, bulk, 0, NULL, NULL), BANYAN_ENOTSUP, "put the entries");
    assert_int_not_equal(tree_bulk_finish(side->session, bulk), 0);
    good(side, tree_drop(side->session, "other", NULL, NULL));
    assert_int_equal(persists, before + 2);
    tree_close(tree);
    rig_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_an_owner_nothing_is_changed),
        cmocka_unit_test(changes_wait_for_an_owner),
        cmocka_unit_test(ranges_stay_with_those_who_log),
        cmocka_unit_test(what_nobody_logs_is_taken),
        cmocka_unit_test(a_dropped_index_is_not_waited_for),
        cmocka_unit_test(the_catalogue_and_what_has_no_map),
    };
    return cmocka_run_group_tests_name("ranges that nobody logs", tests, NULL, NULL);
}
