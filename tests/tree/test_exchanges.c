/*
 * test_exchanges.c - W13, W14 (docs/internals/walks.md): changes that an owner leaves to a memory node, from
 * the leaf's link. Random ones against what the keys hold, under each policy of the cache, while another task
 * of the owner reads the leaf before and after the memory node writes; what the owner then caches; the leaf's
 * lock; requests that were turned away, and answers that are lost, or make no sense.
 *
 * The local backend on one thread, whose memory nodes walk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/options.h"
#include "base/random.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "memory/walk.h"
#include "memory/walk_message.h"
#include "tree/lock.h"
#include "tree/session.h"
#include "tree/tree.h"
#include "wrapper.h"

#define KEYS  4000u
#define NODES 2u

enum fate {
    DONE,
    REFUSED,     /* with `refusal`: nothing is done */
    LOST_BEFORE, /* the connection is lost before the memory node has the request ... */
    LOST_BEHIND, /* ... or when it has made the change, before the answer */
    NONSENSE,    /* the change is made, and the answer says something else */
};

/* Of the answer to a change that was made. */
enum nonsense {
    OTHER_SLOT,   /* one that the leaf does not have */
    OTHER_WALK,   /* that a walk has arrived, which only another request can be told */
    LEFT_WRITTEN, /* that more than a slot would have to be written, and that one was */
    TWO_ANSWERS,  /* and a second one is missing */
    A_NODE,       /* and a node is missing */
    LONGER,       /* and something follows it */
    CUT,
    NOT_OF_VALUES, /* a value of no such length */
    NONSENSES
};

struct exchanging {
    struct wrapper wrapper; /* first */
    struct memory_walker *walkers[NODES];
    struct scene *scene; /* NULL: nobody looks */
    enum fate fate;
    enum nonsense nonsense;
    int refusal;
    bool written;       /* by the last request */
    unsigned exchanges; /* requests */
};

struct scene {
    struct memory_node *memory[NODES];
    struct exchanging *exchanging;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session, *other;
    struct tree *tree;
    struct random random;
    uint64_t values[KEYS]; /* 0: not there */
    uint64_t last;         /* that was written */
    unsigned number;       /* of the operation under way */
    uint64_t now;          /* what its key is to hold */
    bool passed;           /* the memory node has answered */
    unsigned locked;       /* leaves whose locks were held */
};

/* ---- the other task ---- */

/* Keys in a row lie in one leaf. */
static void key_make(uint64_t number, uint8_t key[8])
{
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(number * 7919 >> (56 - 8 * i));
}

static uint64_t look_up(struct scene *scene, struct tree_session *session, unsigned number)
{
    uint8_t key[8];
    uint64_t value = 0;
    size_t length = sizeof value;
    key_make(number, key);
    const int status = tree_lookup(session, scene->tree, key, 8, &value, &length);
    assert_true(!status || status == BANYAN_ENOTFOUND);
    assert_true(status || length == 8);
    return status ? 0 : value;
}

/* Around the change: it reads the key, and its neighbours, so that it would cache what it reads. */
static void look_around(struct scene *scene)
{
    const uint64_t found = look_up(scene, scene->other, scene->number);
    if (found != scene->values[scene->number] && (!scene->passed || found != scene->now))
        fail_msg("key %u: %" PRIu64 " was found while it holds %" PRIu64 " or %" PRIu64, scene->number, found,
                 scene->values[scene->number], scene->now);
    const unsigned beside = (scene->number + 1) % KEYS;
    assert_int_equal(look_up(scene, scene->other, beside), scene->values[beside]);
}

/* W7: the owner holds the leaf's lock, so that the other task does not get it. */
static void look_at_lock(struct scene *scene, const struct fabric_call *call)
{
    struct memory_merge_entry entry;
    struct tree_hold hold;
    memcpy(&entry, (const uint8_t *)call->request + sizeof(struct memory_walk_request), sizeof entry);
    if (tree_lock_try_local(scene->other, entry.leaf, true, &hold))
        fail_msg("a memory node is asked to write a leaf whose lock nobody holds");
    scene->locked++;
}

/* ---- the fabric ---- */

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    return wrapper_pass(endpoint, list, list->count);
}

static struct memory_walk_answer answer_of(const struct fabric_call *call)
{
    struct memory_walk_answer answer;
    memcpy(&answer, (const uint8_t *)call->reply + sizeof(struct memory_walk_reply), sizeof answer);
    return answer;
}

static void make_nonsense(struct fabric_call *call, enum nonsense nonsense)
{
    struct memory_walk_answer answer = answer_of(call);
    struct memory_walk_reply head;
    uint8_t *reply = call->reply;
    memcpy(&head, reply, sizeof head);
    if (nonsense == OTHER_SLOT)
        answer.tag = 4000000;
    if (nonsense == OTHER_WALK || nonsense == LEFT_WRITTEN) {
        answer.outcome = nonsense == OTHER_WALK ? MEMORY_WALK_ARRIVED : MEMORY_WALK_MORE;
        answer.tag = nonsense == OTHER_WALK ? UINT32_MAX : 1;
        answer.value_length = 0;
        call->reply_length = sizeof head + sizeof answer;
    }
    if (nonsense == NOT_OF_VALUES) {
        answer.outcome = MEMORY_WALK_HIT;
        answer.value_length = 7;
        call->reply_length = sizeof head + sizeof answer + 7;
    }
    head.answers = (uint16_t)(head.answers + (nonsense == TWO_ANSWERS));
    head.nodes = (uint16_t)(head.nodes + (nonsense == A_NODE));
    call->reply_length = call->reply_length + (nonsense == LONGER) - (nonsense == CUT);
    assert_true(call->reply_length <= call->capacity);
    memcpy(reply, &head, sizeof head);
    memcpy(reply + sizeof head, &answer, sizeof answer);
}

static void pass(struct exchanging *exchanging, struct fabric_call *call)
{
    struct scene *scene = exchanging->scene;
    if (scene) {
        look_at_lock(scene, call);
        scene->passed = false;
        look_around(scene);
    }
    call->status = memory_walk(exchanging->walkers[call->node], call->request, call->length, call->reply,
                               call->capacity, &call->reply_length);
    exchanging->written =
        !call->status && answer_of(call).outcome <= MEMORY_WALK_MISS && answer_of(call).tag != UINT32_MAX;
    if (scene) {
        scene->passed = true;
        look_around(scene);
    }
}

static void exchange(struct exchanging *exchanging, struct fabric_call *call)
{
    exchanging->exchanges++;
    exchanging->written = false;
    if (exchanging->fate == REFUSED || exchanging->fate == LOST_BEFORE) {
        call->status = exchanging->fate == REFUSED ? exchanging->refusal : BANYAN_ENET;
        return;
    }
    pass(exchanging, call);
    if (exchanging->fate == NONSENSE && exchanging->written)
        make_nonsense(call, exchanging->nonsense);
    if (exchanging->fate == LOST_BEHIND)
        call->status = BANYAN_ENET;
}

static void exchanging_calls(struct fabric_endpoint *endpoint, struct fabric_call *const *calls,
                             uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct memory_walk_request *request = calls[i]->request;
        assert_int_equal(request->kind, MEMORY_EXCHANGE);
        exchange((struct exchanging *)endpoint->fabric, calls[i]);
    }
}

static const struct fabric_ops exchanging_ops = {
    .execute = wrapper_execute,
    .call = wrapper_call,
    .calls = exchanging_calls,
    .endpoint_open = wrapper_endpoint_open,
    .endpoint_close = wrapper_endpoint_close,
    .close = wrapper_close,
    .incarnation = wrapper_incarnation,
};

/* ---- an owner ---- */

static void compute_open(struct scene *scene, const char *settings, int exchanges)
{
    const struct fabric_target *targets[NODES];
    struct tree_switches switches = {0};
    struct error error = {0};
    for (unsigned i = 0; i < NODES; i++)
        targets[i] = memory_node_target(scene->memory[i]);
    scene->exchanging = calloc(1, sizeof *scene->exchanging);
    assert_non_null(scene->exchanging);
    wrapper_init(&scene->exchanging->wrapper, &exchanging_ops, run_list,
                 fabric_local_create(targets, NODES, 1, &error));
    for (unsigned i = 0; i < NODES; i++) {
        assert_non_null(scene->exchanging->walkers[i] = memory_walker_create(scene->memory[i]));
        memory_walker_writes(scene->exchanging->walkers[i], NULL);
    }
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 24 << 10;
    assert_int_equal(option_set_list(tree_switches_table, &switches, settings, &error), 0);
    switches.exchange_walks = exchanges;
    switches.ownership = TREE_OWNERSHIP_ALL;
    assert_int_equal(
        tree_compute_create(&scene->compute, &scene->exchanging->wrapper.fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&scene->worker, tree_compute_pool(scene->compute), &error), 0);
    assert_int_equal(tree_session_create(&scene->session, scene->compute, scene->worker, &error), 0);
    assert_int_equal(tree_session_create(&scene->other, scene->compute, scene->worker, &error), 0);
}

static void compute_close(struct scene *scene)
{
    tree_close(scene->tree);
    tree_session_destroy(scene->session);
    tree_session_destroy(scene->other);
    pool_worker_destroy(scene->worker);
    tree_compute_destroy(scene->compute);
    for (unsigned i = 0; i < NODES; i++)
        memory_walker_destroy(scene->exchanging->walkers[i]);
    fabric_close(&scene->exchanging->wrapper.fabric);
}

/* An index of which two of three keys are there, and an owner of it that has cached the ways to all leaves.
 */
static void scene_open(struct scene *scene, const char *settings, uint8_t leaf_kind, int exchanges)
{
    const struct format_geometry geometry = {
        .key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .internal_bytes = 512, .leaf_kind = leaf_kind};
    struct error error = {0};
    memset(scene, 0, sizeof *scene);
    random_seed(&scene->random, 17);
    for (uint16_t i = 0; i < NODES; i++) {
        const struct memory_options options = {.node = i, .pool_bytes = 16 << 20, .chunk_bytes = 64 << 10};
        assert_int_equal(memory_node_create(&scene->memory[i], &options, &error), 0);
    }
    compute_open(scene, settings, TREE_WALKS_NEVER);
    assert_int_equal(tree_format(scene->session), 0);
    assert_int_equal(tree_create(scene->session, "exchanged", &geometry, &scene->tree), 0);
    for (unsigned i = 0; i < KEYS; i++) {
        const unsigned number = i * 1543 % KEYS;
        uint8_t key[8];
        if (number % 3 == 0)
            continue;
        key_make(number, key);
        scene->values[number] = ++scene->last;
        assert_int_equal(
            tree_upsert(scene->session, scene->tree, key, 8, &scene->values[number], sizeof(uint64_t)), 0);
    }
    compute_close(scene);
    compute_open(scene, settings, exchanges);
    assert_int_equal(tree_open(scene->session, "exchanged", &scene->tree), 0);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(look_up(scene, scene->session, i), scene->values[i]);
}

static void scene_close(struct scene *scene)
{
    compute_close(scene);
    for (unsigned i = 0; i < NODES; i++)
        memory_node_destroy(scene->memory[i]);
}

static void all_of_it(struct scene *scene)
{
    struct tree_check_report report;
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(look_up(scene, scene->session, i), scene->values[i]);
    assert_int_equal(tree_check(scene->session, scene->tree, &report, NULL, NULL), 0);
}

/* ---- changes ---- */

enum kind { UPSERT, INSERT, UPDATE, DELETE, SWAP /* if it holds what it does */, SWAP_WRONG, PUT, KINDS };

/* What the key holds behind it, and the status. */
static int expected_of(const struct scene *scene, enum kind kind, uint64_t *now)
{
    const uint64_t held = scene->values[scene->number];
    *now = held;
    if (kind == INSERT && held)
        return BANYAN_EEXIST;
    if (kind != UPSERT && kind != PUT && kind != INSERT && !held)
        return BANYAN_ENOTFOUND;
    if (kind == SWAP_WRONG)
        return BANYAN_ECONFLICT;
    *now = kind == DELETE ? 0 : scene->last + 1;
    return 0;
}

static int put(struct scene *scene, const uint8_t key[8], uint64_t value)
{
    uint64_t old = 0;
    struct tree_item item = {
        .key = key, .key_length = 8, .value = &value, .length = sizeof value, .old = (uint8_t *)&old};
    const int status = tree_put(scene->session, scene->tree, &item);
    if (!status) { /* it is told what it has replaced */
        assert_int_equal(item.existed, scene->values[scene->number] != 0);
        assert_int_equal(old, scene->values[scene->number]);
    }
    return status;
}

static int run(struct scene *scene, enum kind kind)
{
    struct tree_session *session = scene->session;
    struct tree *tree = scene->tree;
    const uint64_t value = ++scene->last;
    const uint64_t held = kind == SWAP ? scene->values[scene->number] : UINT64_MAX;
    uint8_t key[8];
    key_make(scene->number, key);
    switch (kind) {
    case UPSERT:
        return tree_upsert(session, tree, key, 8, &value, 8);
    case INSERT:
        return tree_insert(session, tree, key, 8, &value, 8);
    case UPDATE:
        return tree_update(session, tree, key, 8, &value, 8);
    case DELETE:
        return tree_delete(session, tree, key, 8);
    case PUT:
        return put(scene, key, value);
    default:
        return tree_compare_and_set(session, tree, key, 8, &held, 8, &value, 8);
    }
}

static void change(struct scene *scene, unsigned number, enum kind kind)
{
    scene->number = number;
    const int wanted = expected_of(scene, kind, &scene->now);
    const int status = run(scene, kind);
    if (status != wanted)
        fail_msg("change %u of key %u: status %d, not %d", kind, number, status, wanted);
    scene->values[number] = scene->now;
    assert_int_equal(look_up(scene, scene->session, number), scene->values[number]);
    const unsigned beside = (number + KEYS - 1) % KEYS;
    assert_int_equal(look_up(scene, scene->other, beside), scene->values[beside]);
}

static void changed(const char *settings, uint8_t leaf_kind)
{
    struct scene *scene = malloc(sizeof *scene);
    assert_non_null(scene);
    scene_open(scene, settings, leaf_kind, TREE_WALKS_ALWAYS);
    scene->exchanging->scene = scene;
    for (unsigned round = 0; round < 5000; round++) {
        /* In spells of growing and of shrinking, so that leaves split, and die. */
        const bool shrinks = round % 1000 > 400;
        const enum kind kind = shrinks && random_chance(&scene->random, 0.9)
                                   ? DELETE
                                   : (enum kind)random_below(&scene->random, KINDS);
        const unsigned span =
            random_chance(&scene->random, 0.5) ? 100 : KEYS; /* few leaves, which become empty */
        change(scene, (round / 1000 * 300 + (unsigned)random_below(&scene->random, span)) % KEYS, kind);
    }
    const struct tree_stats *stats = tree_session_stats(scene->session);
    print_message("%s: %" PRIu64 " requests, %" PRIu64 " answered, %" PRIu64 " splits, %" PRIu64 " unlinks\n",
                  settings, stats->exchanges, stats->exchanges_answered, stats->splits, stats->unlinks);
    assert_true(stats->exchanges_answered > 500 && stats->splits > 0 && stats->unlinks > 0);
    assert_int_equal(scene->locked, stats->exchanges);
    scene->exchanging->scene = NULL;
    all_of_it(scene);
    scene_close(scene);
    free(scene);
}

static void changes_are_made_there(void **state)
{
    (void)state;
    changed("cache-policy=inner", FORMAT_LEAF_HASHED);
    changed("cache-policy=dex,admission=1", FORMAT_LEAF_HASHED);
    changed("cache-policy=dex,admission=0.3", FORMAT_LEAF_UNSORTED);
    changed("cache-policy=dinomo", FORMAT_LEAF_HASHED);
    changed("cache-policy=banyan", FORMAT_LEAF_HASHED);
}

/* ---- what it costs ---- */

static uint64_t trips(struct scene *scene, enum kind kind)
{
    const uint64_t before = tree_session_stats(scene->session)->cost.round_trips;
    uint64_t now;
    const int status = run(scene, kind);
    assert_int_equal(status, expected_of(scene, kind, &now));
    return tree_session_stats(scene->session)->cost.round_trips - before;
}

/* One round trip where the way is cached and the leaf is not, for each kind of change; and for one whose
 * condition is not met, too. */
static void one_round_trip(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (int walks = TREE_WALKS_NEVER; walks <= TREE_WALKS_ALWAYS; walks += TREE_WALKS_ALWAYS) {
            struct scene *scene = malloc(sizeof *scene);
            assert_non_null(scene);
            scene_open(scene, "cache-policy=inner", FORMAT_LEAF_HASHED, walks);
            const bool writes = kind != INSERT && kind != SWAP_WRONG; /* the key is there */
            for (unsigned number = 1; number < 300; number += 30) {
                scene->number = number;
                const uint64_t wanted = walks || !writes ? 1 : 2;
                assert_int_equal(trips(scene, (enum kind)kind), wanted);
            }
            assert_int_equal(scene->exchanging->exchanges, walks ? 10 : 0);
            scene_close(scene);
            free(scene);
        }
}

/* ---- what goes wrong ---- */

static void refusals_have_done_nothing(void **state)
{
    static const int refusals[] = {BANYAN_EBUSY, BANYAN_ENOTSUP, BANYAN_EINVAL};
    (void)state;
    for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct scene *scene = malloc(sizeof *scene);
        assert_non_null(scene);
        scene_open(scene, "cache-policy=inner", FORMAT_LEAF_HASHED, TREE_WALKS_ALWAYS);
        scene->exchanging->fate = REFUSED;
        scene->exchanging->refusal = refusals[i];
        for (unsigned number = 0; number < 100; number++)
            change(scene, number, (enum kind)(number % KINDS));
        const struct tree_stats *stats = tree_session_stats(scene->session);
        assert_int_equal(stats->exchanges_answered, 0);
        assert_int_equal(stats->exchanges_busy, refusals[i] == BANYAN_EBUSY ? stats->exchanges : 0);
        /* One that does not make changes is not asked again at once. */
        assert_in_range(stats->exchanges, 1, refusals[i] == BANYAN_EBUSY ? 100 : NODES);
        all_of_it(scene);
        scene_close(scene);
        free(scene);
    }
}

/* W14: nobody knows whether the change was made. The client is told so, it is asked for once, and what the
 * key holds is not believed to be known. */
static void doubtful(enum fate fate, enum nonsense nonsense, enum kind kind, const char *settings)
{
    struct scene *scene = malloc(sizeof *scene);
    unsigned doubts = 0;
    assert_non_null(scene);
    scene_open(scene, settings, FORMAT_LEAF_HASHED, TREE_WALKS_ALWAYS);
    scene->exchanging->nonsense = nonsense;
    for (unsigned number = 1; number < KEYS; number += 97) {
        scene->number = number;
        const uint64_t held = look_up(scene, scene->session, number);
        const unsigned before = scene->exchanging->exchanges;
        const uint64_t commands = tree_session_stats(scene->session)->cost.writes;
        scene->exchanging->fate = fate;
        uint64_t now;
        const int wanted = expected_of(scene, kind, &now), status = run(scene, kind);
        scene->exchanging->fate = DONE;
        assert_in_range(scene->exchanging->exchanges - before, 0, 1);
        if (status == BANYAN_EUNKNOWN) {
            doubts++;
            assert_int_equal(scene->exchanging->exchanges - before, 1);
            assert_int_equal(tree_session_stats(scene->session)->cost.writes, commands);
        } else {
            assert_int_equal(status, wanted);
        }
        const bool made = status == BANYAN_EUNKNOWN ? scene->exchanging->written : !status;
        scene->values[number] = made ? now : held;
        const uint64_t found = look_up(scene, scene->session, number);
        if (found != scene->values[number])
            fail_msg("fate %u, %u, change %u of key %u, status %d: %" PRIu64 " is found in place of %" PRIu64,
                     fate, nonsense, kind, number, status, found, scene->values[number]);
        assert_int_equal(look_up(scene, scene->other, number), scene->values[number]);
    }
    assert_true(doubts > 10);
    all_of_it(scene);
    scene_close(scene);
    free(scene);
}

static void nobody_knows(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < KINDS; kind++) {
        doubtful(LOST_BEFORE, 0, (enum kind)kind, "cache-policy=inner");
        doubtful(LOST_BEHIND, 0, (enum kind)kind, "cache-policy=inner");
    }
    doubtful(LOST_BEFORE, 0, UPSERT, "cache-policy=dinomo");
    doubtful(LOST_BEHIND, 0, UPSERT, "cache-policy=dinomo");
    doubtful(LOST_BEHIND, 0, DELETE, "cache-policy=dinomo");
}

static void answers_make_no_sense(void **state)
{
    (void)state;
    for (unsigned nonsense = 0; nonsense < NONSENSES; nonsense++)
        for (unsigned kind = 0; kind < KINDS; kind++)
            if (kind != SWAP_WRONG) /* which is never made */
                doubtful(NONSENSE, (enum nonsense)nonsense, (enum kind)kind, "cache-policy=inner");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_round_trip),
        cmocka_unit_test(changes_are_made_there),
        cmocka_unit_test(refusals_have_done_nothing),
        cmocka_unit_test(nobody_knows),
        cmocka_unit_test(answers_make_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
