/*
 * test_rights_load.c - ranges that are given from one compute node to another, shared and taken back again
 * and again while all tasks work on all keys: every history is judged, and the index is sound in the end. On
 * threads; made for the thread sanitizer too.
 *
 * The map is in the hand of one thread, which has all nodes adopt each version: first that a range is on its
 * way, then whose it is. Bounds come and go, with their borders.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "base/task.h"
#include "base/thread.h"
#include "owners.h"
#include "swarm/churn_world.h"
#include "tree/session.h"

#define NODES  2u
#define BOUNDS 8u
#define TASKS  16u
/* Who may change a range. */
#define SHARED NODES
#define MOVING (NODES + 1)

/* A task's sessions at all compute nodes, for what it asks of their owners. */
struct visitor {
    const struct tree_session *own;
    struct owners_way way;
    struct pool_worker *workers[NODES];
};

struct load {
    struct world world;
    struct visitor visitors[TASKS]; /* of the world's tasks; the last one is the map's thread's */
    struct random random;
    uint64_t keys, version, epoch, moves;
    bool present[BOUNDS];
    unsigned owners[BOUNDS]; /* of the range from this bound to the next one that is present */
    uint64_t epochs[BOUNDS];
    bool stop;
    int status;
    struct error error;
};

/* ---- forwarding ---------------------------------------------------------------------------------- */

static struct owners_way *way_of(struct load *load, const struct tree_session *session)
{
    for (unsigned i = 0; i < TASKS; i++)
        if (load->visitors[i].own == session)
            return &load->visitors[i].way;
    abort(); /* a session that the test has not made */
}

static int ask_lookup(void *context, struct tree_session *session, struct tree *tree,
                      struct fabric_process owner, const void *key, size_t key_length, bool settled,
                      void *value, size_t *length)
{
    return owners_lookup(way_of(context, session), session, owner, key, key_length, settled, value, length);
}

static int ask_exchange(void *context, struct tree_session *session, struct tree *tree,
                        struct fabric_process owner, struct tree_exchange *exchange)
{
    return owners_exchange(way_of(context, session), session, owner, exchange);
}

static int ask_wait(void *context, struct tree_session *session, struct tree *tree,
                    struct fabric_process owner, uint64_t since)
{
    struct owners_way *way = way_of(context, session);
    way->waits++;
    task_sleep(20000);
    return 0;
}

static const struct tree_forward forward = {.lookup = ask_lookup, .exchange = ask_exchange, .wait = ask_wait};

static void visitor_open(struct load *load, struct visitor *visitor, const struct tree_session *own)
{
    struct error error;
    visitor->own = own;
    for (unsigned i = 0; i < NODES; i++) {
        struct world_compute *compute = &load->world.computes[i];
        struct owners_peer *peer = &visitor->way.peers[i];
        assert_int_equal(
            pool_worker_create(&visitor->workers[i], tree_compute_pool(compute->compute), &error), 0);
        assert_int_equal(tree_session_create(&peer->session, compute->compute, visitor->workers[i], &error),
                         0);
        peer->tree = compute->tree;
        peer->process = fabric_self(compute->fabric);
    }
    visitor->way.count = NODES;
}

static void visitor_close(struct visitor *visitor)
{
    for (unsigned i = 0; i < NODES; i++) {
        tree_session_destroy(visitor->way.peers[i].session);
        pool_worker_destroy(visitor->workers[i]);
    }
}

/* ---- the map ------------------------------------------------------------------------------------- */

static uint64_t bound_key(const struct load *load, unsigned bound)
{
    return load->keys * bound / BOUNDS + bound;
}

static int adopt_at(struct load *load, unsigned node)
{
    struct owners_peer *peers = load->visitors[TASKS - 1].way.peers;
    struct tree_rights_row rows[BOUNDS];
    uint8_t keys[BOUNDS][FORMAT_KEY_MAX];
    uint32_t count = 0;
    for (unsigned i = 0; i < BOUNDS; i++) {
        if (!load->present[i])
            continue;
        struct tree_rights_row *row = &rows[count++];
        unsigned owner = load->owners[i];
        *row = (struct tree_rights_row){.lower = keys[i], .epoch = load->epochs[i]};
        if (i)
            row->lower_length = (uint32_t)world_key(&load->world, bound_key(load, i), keys[i]);
        row->right = owner == SHARED   ? TREE_SHARED
                     : owner == MOVING ? TREE_MOVING
                     : owner == node   ? TREE_OWNED
                                       : TREE_OTHERS;
        if (row->right == TREE_OTHERS)
            row->owner = peers[owner].process;
    }
    return tree_rights_adopt(peers[node].session, peers[node].tree, load->version,
                             fabric_incarnation(load->world.computes[node].fabric), rows, count);
}

/* Those who lose something first, or the others first: both are right. */
static int adopt_all(struct load *load)
{
    unsigned first = (unsigned)random_below(&load->random, NODES);
    load->version++;
    int status = adopt_at(load, first);
    for (unsigned i = 1; i < NODES && !status; i++)
        status = adopt_at(load, (first + i) % NODES);
    return status;
}

static unsigned bound_before(const struct load *load, unsigned bound)
{
    while (!load->present[--bound])
        ;
    return bound;
}

/* A bound more: adopted, then its border is made. */
static int bound_add(struct load *load, unsigned bound)
{
    uint8_t key[FORMAT_KEY_MAX];
    unsigned before = bound_before(load, bound);
    load->present[bound] = true;
    load->owners[bound] = load->owners[before];
    load->epochs[bound] = load->epochs[before];
    int status = adopt_all(load);
    unsigned maker =
        load->owners[bound] == SHARED ? (unsigned)random_below(&load->random, NODES) : load->owners[bound];
    struct owners_peer *peer = &load->visitors[TASKS - 1].way.peers[maker];
    size_t length = world_key(&load->world, bound_key(load, bound), key);
    return status ? status : tree_border_make(peer->session, peer->tree, key, length);
}

static int bound_remove(struct load *load, unsigned bound)
{
    unsigned before = bound_before(load, bound);
    if (load->owners[bound] != load->owners[before])
        return 0;
    load->present[bound] = false;
    load->epochs[before] = ++load->epoch;
    return adopt_all(load);
}

static int range_move(struct load *load, unsigned bound, unsigned owner)
{
    load->owners[bound] = MOVING;
    load->epochs[bound] = ++load->epoch;
    int status = adopt_all(load);
    load->owners[bound] = owner;
    atomic_add_relaxed(&load->moves, 1);
    return status ? status : adopt_all(load);
}

static int map_change(struct load *load)
{
    unsigned bound = (unsigned)random_below(&load->random, BOUNDS);
    if (!load->present[bound])
        return bound_add(load, bound);
    if (bound && random_chance(&load->random, 0.2))
        return bound_remove(load, bound);
    return range_move(load, bound, (unsigned)random_below(&load->random, NODES + 1));
}

static void map_work(void *context)
{
    struct load *load = context;
    while (!load->status && !atomic_load_acquire(&load->stop)) {
        load->status = map_change(load);
        task_sleep(random_below(&load->random, 50000));
    }
    for (unsigned i = 0; i < BOUNDS && !load->status; i++) /* all are shared again */
        if (load->present[i])
            load->status = range_move(load, i, SHARED);
}

/* ---- a run --------------------------------------------------------------------------------------- */

static int run_work(struct load *load, struct churn *churn)
{
    struct thread *map;
    struct tree_check_report report = {0};
    struct error error;
    int status = churn_world_fill(&load->world, churn);
    if (status)
        return status;
    assert_int_equal(thread_start(&map, map_work, load, &error), 0);
    for (unsigned round = 0; !status && round < 20; round++) { /* until much has moved */
        status = churn_world_work(&load->world, churn);
        if (atomic_load_relaxed(&load->moves) > 30)
            break;
    }
    atomic_store_release(&load->stop, true);
    thread_join(map);
    for (unsigned i = 0; i < NODES; i++)
        if (load->status && !load->error.code)
            load->error = *tree_session_error(load->visitors[TASKS - 1].way.peers[i].session);
    uint64_t lookups = 0, exchanges = 0, waits = 0;
    for (unsigned i = 0; i < TASKS; i++) {
        if (!load->visitors[i].own)
            continue;
        lookups += load->visitors[i].way.lookups;
        exchanges += load->visitors[i].way.exchanges;
        waits += load->visitors[i].way.waits;
        visitor_close(&load->visitors[i]);
    }
    print_message("%" PRIu64 " versions, %" PRIu64 " ranges moved, %" PRIu64 " lookups and %" PRIu64
                  " changes asked of owners, %" PRIu64 " waits\n",
                  load->version, load->moves, lookups, exchanges, waits);
    status = status ? status : load->status;
    status = status ? status : churn_world_verify(&load->world, churn, &report);
    if (!status && (report.dead || report.marked || report.frozen))
        status = world_fail(&load->world, BANYAN_ECORRUPT, "something is left unfinished");
    assert_true(status || (load->moves > 30 && exchanges > 30));
    return status;
}

static void run(unsigned threads, const struct format_geometry *geometry, struct churn *churn)
{
    static const char map; /* whose address stands for the map's thread */
    struct load load = {.keys = churn->keys, .present = {true}};
    struct world_options options;
    world_options_default(&options);
    options.seed = world_seed(threads * 31 + geometry->leaf_bytes);
    options.compute_nodes = NODES;
    options.threads = threads;
    options.memory_nodes = 2;
    options.geometry = *geometry;
    random_seed(&load.random, options.seed);
    int status = world_create(&load.world, &options);
    if (!status) {
        assert_true(load.world.task_count < TASKS);
        for (unsigned i = 0; i < NODES; i++) {
            load.owners[i] = SHARED;
            tree_compute_set_forward(load.world.computes[i].compute, &forward, &load);
        }
        for (unsigned i = 0; i < load.world.task_count; i++)
            visitor_open(&load, &load.visitors[i], load.world.tasks[i].session);
        visitor_open(&load, &load.visitors[TASKS - 1], (const void *)&map);
        status = run_work(&load, churn);
    }
    struct error error = load.world.error.code ? load.world.error : load.error;
    world_destroy(&load.world);
    if (status)
        fail_msg("%d: %s; BANYAN_SEED=%" PRIu64, status, error.text, options.seed);
}

static const struct format_geometry small = {
    .key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .internal_bytes = 512};
static const struct format_geometry long_keys = {.key_kind = FORMAT_KEY_VARIABLE,
                                                 .key_bytes = 60,
                                                 .inline_key_bytes = 16,
                                                 .value_bytes = 16,
                                                 .leaf_bytes = 1024,
                                                 .internal_bytes = 1024};

static void ranges_move_under_load(void **state)
{
    struct churn churn = {.keys = 1200,
                          .window = 80,
                          .rounds = world_rounds(3000),
                          .hot = 10,
                          .scans = 3,
                          .multis = 6,
                          .merges = 3};
    run(2, &small, &churn);
    run(4, &small, &churn);
}

static void ranges_with_long_keys_move(void **state)
{
    struct churn churn = {.keys = 800,
                          .window = 60,
                          .rounds = world_rounds(2000),
                          .hot = 10,
                          .scans = 3,
                          .multis = 6,
                          .merges = 3};
    run(3, &long_keys, &churn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_move_under_load),
        cmocka_unit_test(ranges_with_long_keys_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
