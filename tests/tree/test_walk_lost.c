/*
 * test_walk_lost.c - W5 (docs/internals/walks.md): a walk belongs to the incarnation in which its operation
 * began. The connection is lost between an operation's beginning and its walk, at each of its lists: no
 * memory node may walk for it then, and the operation begins again.
 *
 * A fabric of one compute node over the local backend, on one thread, whose memory node walks. An incarnation
 * ends with the answer of a chosen list.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include "fabric/local.h"
#include "memory/memory.h"
#include "memory/walk.h"
#include "tree/tree.h"
#include "wrapper.h"

#define KEYS 3000u

struct lossy {
    struct wrapper wrapper;
    struct memory_node *memory; /* that has fenced the compute node then */
    struct memory_walker *walker;
    uint64_t since;   /* the incarnation that stands; older ones are refused */
    unsigned lists;   /* so far */
    unsigned lost_at; /* with the answer of this list the connection is lost; 0: it stays */
    unsigned served, refused;
};

struct scene {
    struct memory_node *memory;
    struct lossy *lossy;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree;
};

/* ---- the fabric ---- */

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct lossy *lossy = (struct lossy *)endpoint->fabric;
    if (list->incarnation && list->incarnation < lossy->since)
        return BANYAN_EFENCED;
    const int status = wrapper_pass(endpoint, list, list->count);
    if (++lossy->lists == lossy->lost_at) {
        lossy->since = ++lossy->wrapper.incarnation;
        memory_node_release_locks(lossy->memory, lossy->wrapper.fabric.capabilities.compute_id);
    }
    return status;
}

static void lossy_calls(struct fabric_endpoint *endpoint, struct fabric_call *const *calls, uint32_t count)
{
    struct lossy *lossy = (struct lossy *)endpoint->fabric;
    for (uint32_t i = 0; i < count; i++) {
        struct fabric_call *call = calls[i];
        const bool stale = call->incarnation && call->incarnation < lossy->since;
        lossy->refused += stale;
        lossy->served += !stale;
        call->status = stale ? BANYAN_EFENCED
                             : memory_walk(lossy->walker, call->request, call->length, call->reply,
                                           call->capacity, &call->reply_length);
    }
}

static const struct fabric_ops lossy_ops = {
    .execute = wrapper_execute,
    .call = wrapper_call,
    .calls = lossy_calls,
    .endpoint_open = wrapper_endpoint_open,
    .endpoint_close = wrapper_endpoint_close,
    .close = wrapper_close,
    .incarnation = wrapper_incarnation,
};

/* ---- a compute node ---- */

static void key_make(uint64_t number, uint8_t key[8])
{
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(number * 7919 >> (56 - 8 * i));
}

/* A compute node that has cached nothing, and leaves all ways to the memory node. */
static void compute_open(struct scene *scene)
{
    const struct fabric_target *target = memory_node_target(scene->memory);
    struct tree_switches switches = {0};
    struct error error = {0};
    scene->lossy = calloc(1, sizeof *scene->lossy);
    assert_non_null(scene->lossy);
    wrapper_init(&scene->lossy->wrapper, &lossy_ops, run_list, fabric_local_create(&target, 1, 1, &error));
    scene->lossy->memory = scene->memory;
    scene->lossy->walker = memory_walker_create(scene->memory);
    assert_non_null(scene->lossy->walker);
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 1 << 20;
    switches.walks = TREE_WALKS_ALWAYS;
    assert_int_equal(tree_compute_create(&scene->compute, &scene->lossy->wrapper.fabric, &switches, &error),
                     0);
    assert_int_equal(pool_worker_create(&scene->worker, tree_compute_pool(scene->compute), &error), 0);
    assert_int_equal(tree_session_create(&scene->session, scene->compute, scene->worker, &error), 0);
}

static void compute_close(struct scene *scene)
{
    tree_close(scene->tree);
    tree_session_destroy(scene->session);
    pool_worker_destroy(scene->worker);
    tree_compute_destroy(scene->compute);
    memory_walker_destroy(scene->lossy->walker);
    fabric_close(&scene->lossy->wrapper.fabric);
}

static void scene_open(struct scene *scene)
{
    const struct memory_options options = {.pool_bytes = 4 << 20, .chunk_bytes = 64 << 10};
    const struct format_geometry geometry = {
        .key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .internal_bytes = 512};
    struct error error = {0};
    assert_int_equal(memory_node_create(&scene->memory, &options, &error), 0);
    compute_open(scene);
    assert_int_equal(tree_format(scene->session), 0);
    assert_int_equal(tree_create(scene->session, "lost", &geometry, &scene->tree), 0);
    for (uint64_t i = 0; i < KEYS; i++) {
        uint8_t key[8];
        key_make(i, key);
        assert_int_equal(tree_upsert(scene->session, scene->tree, key, 8, &i, 8), 0);
    }
    compute_close(scene);
}

/* ---- the test ---- */

struct operation {
    const char *name;
    int (*run)(struct scene *scene, uint64_t number);
};

static int lookup(struct scene *scene, uint64_t number)
{
    uint8_t key[8];
    uint64_t value = 0;
    size_t length = sizeof value;
    key_make(number, key);
    const int status = tree_lookup(scene->session, scene->tree, key, 8, &value, &length);
    assert_true(status || value == number);
    return status;
}

/* Of one key, since each key of a batch is a beginning of its own. */
static int multi_get(struct scene *scene, uint64_t number)
{
    uint8_t key[8];
    uint64_t value = 0;
    struct tree_item item = {.key = key, .key_length = 8, .value = &value, .length = sizeof value};
    key_make(number, key);
    const int status = tree_multi_get(scene->session, scene->tree, &item, 1);
    assert_true(status || value == number);
    return status;
}

static int upsert(struct scene *scene, uint64_t number)
{
    uint8_t key[8];
    key_make(number, key);
    return tree_upsert(scene->session, scene->tree, key, 8, &number, 8);
}

static void no_walk_outlives_its_connection(void **state)
{
    (void)state;
    const struct operation operations[] = {{"lookup", lookup}, {"multi-get", multi_get}, {"upsert", upsert}};
    struct scene scene;
    scene_open(&scene);
    for (unsigned which = 0; which < 3; which++) {
        unsigned refused = 0;
        for (unsigned at = 1;; at++) {
            compute_open(&scene);
            assert_int_equal(tree_open(scene.session, "lost", &scene.tree), 0);
            struct lossy *lossy = scene.lossy;
            const unsigned before = lossy->lists;
            lossy->lost_at = before + at;
            assert_int_equal(operations[which].run(&scene, 1234), 0);
            const bool lost = lossy->lists >= lossy->lost_at;
            /* Until the walk nothing but its request is refused: it is the first to be posted. */
            refused += lossy->refused;
            if (lossy->refused)
                assert_int_equal(lossy->served, 1);
            compute_close(&scene);
            if (!lost)
                break;
        }
        if (!refused)
            fail_msg("%s: no walk was refused", operations[which].name);
    }
    memory_node_destroy(scene.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_walk_outlives_its_connection)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
