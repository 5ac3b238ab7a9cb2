/* test_in_place.c - point changes in place (tree/in_place.h): what they do themselves, and what they leave to
 * the leaf's lock, with nothing done and nothing counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "base/thread.h"
#include "swarm/world.h"
#include "tree/announce.h"
#include "tree/cache.h"
#include "tree/in_place.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/logged.h"
#include "tree/session.h"

#define KEYS 300u

/* Even numbers exist. */
static void fill(struct world_task *task)
{
    for (uint64_t i = 0; i < KEYS && !task->world->error.code; i++)
        world_operate(task, HISTORY_INSERT, 2 * i, 0);
}

static void run(struct world_options *options, void (*function)(struct world_task *task))
{
    struct world world;
    int status = world_create(&world, options);
    status = status ? status : world_run_one(&world, 0, fill);
    status = status ? status : world_run_one(&world, 0, function);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

/* A change of one key, and what the function sees and wants. */
struct wish {
    enum tree_verdict verdict;
    uint8_t value[FORMAT_VALUE_MAX];
    size_t length;
    unsigned calls;
    bool existed;
};

static enum tree_verdict grant(void *context, const void *old, size_t old_length, void *value, size_t *length)
{
    struct wish *wish = context;
    wish->calls++;
    wish->existed = old;
    memcpy(value, wish->value, wish->length);
    *length = wish->length;
    return wish->verdict;
}

/* The operation under way on one key, up to its leaf. */
struct scene {
    struct tree_session *session;
    struct tree *tree;
    struct tree_path path;
    struct tree_in_place place;
    uint8_t key[FORMAT_KEY_MAX];
    uint32_t length;
    struct wish wish;
};

static void scene_set(struct scene *scene, struct world_task *task, uint64_t number)
{
    *scene = (struct scene){.session = task->session, .tree = task->tree};
    scene->length = (uint32_t)world_key(task->world, number, scene->key);
    scene->wish.verdict = TREE_PUT;
    scene->wish.length = world_value(task->world, 7, scene->wish.value);
    const struct format_key key = {scene->key, scene->length};
    assert_int_equal(tree_begin(scene->session, scene->tree), 0);
    assert_int_equal(tree_rights_enter(scene->session, scene->tree, key), TREE_OWNED);
    assert_ptr_equal(scene->session->access, &tree_access_direct);
    assert_int_equal(tree_locate(scene->session, scene->tree, key, false, 0, &scene->path), 0);
    assert_true(tree_in_place_find(scene->session, scene->tree, scene->path.link, key, true, &scene->place));
    tree_session_stats_reset(scene->session);
}

static int scene_change(struct scene *scene)
{
    return tree_in_place_change(scene->session, scene->tree, &scene->place, grant, NULL, &scene->wish);
}

static void scene_end(struct scene *scene)
{
    tree_rights_leave(scene->session);
}

/* Nothing done, nothing counted, and the latch is free again. */
static void left_to_the_lock(struct scene *scene)
{
    const uint32_t bytes = scene->tree->layout.geometry.leaf_bytes;
    uint8_t before[4096];
    assert_in_range(bytes, 1, sizeof before);
    memcpy(before, scene->place.spot.bytes, bytes);
    assert_int_equal(scene_change(scene), TREE_BY_LOCK);
    assert_memory_equal(scene->place.spot.bytes, before, bytes);
    assert_int_equal(tree_session_stats(scene->session)->cost.round_trips, 0);
    assert_int_equal(tree_session_stats(scene->session)->cost.reads, 0);
    assert_true(scene->session->access->enter(scene->session, &scene->place.spot));
    scene->session->access->abandon(&scene->place.spot);
}

static void plain_changes(struct world_task *task)
{
    struct scene scene;
    const struct fabric_cost *cost = &tree_session_stats(task->session)->cost;
    uint8_t value[FORMAT_VALUE_MAX];
    size_t length = sizeof value;
    scene_set(&scene, task, 100);
    assert_int_equal(scene_change(&scene), 0);
    assert_true(scene.wish.existed && scene.wish.calls == 1);
    assert_int_equal(cost->round_trips, 2);
    assert_int_equal(cost->reads, 2);
    assert_int_equal(cost->writes, 1);
    assert_int_equal(cost->bytes_written, scene.tree->layout.slot_bytes);
    struct format_slot slot;
    assert_true(tree_in_place_hit(scene.session, scene.tree, &scene.place, &slot));
    assert_memory_equal(slot.value.bytes, scene.wish.value, scene.wish.length);
    assert_int_equal(cost->round_trips, 3);
    assert_int_equal(cost->reads, 3);
    scene.wish.verdict = TREE_KEEP;
    assert_int_equal(scene_change(&scene), 0);
    assert_int_equal(cost->round_trips, 4);
    assert_int_equal(cost->writes, 1);
    scene_end(&scene);
    assert_int_equal(tree_lookup(task->session, task->tree, scene.key, scene.length, value, &length), 0);
    assert_memory_equal(value, scene.wish.value, length);
    /* Without the key: a free slot gets it; then it goes again. */
    scene_set(&scene, task, 101);
    assert_false(tree_in_place_hit(scene.session, scene.tree, &scene.place, &slot));
    assert_int_equal(cost->reads, 0);
    int status = scene_change(&scene);
    assert_false(scene.wish.existed);
    if (!status) { /* else its bucket is full */
        scene.wish.verdict = TREE_DELETE;
        assert_int_equal(scene_change(&scene), 0);
        assert_true(scene.wish.existed);
        assert_int_equal(cost->bytes_written, scene.tree->layout.slot_bytes + 4);
    }
    scene_end(&scene);
}

/* The way that words have to a slot is no other: a slot that was found answers as long as all of its bits are
 * right, and one whose bits are not is not counted. */
static void words_are_proven(struct scene *scene, const struct format_slot *slot)
{
    const struct format_layout *layout = &scene->tree->layout;
    uint8_t *bytes = scene->place.spot.bytes + layout->slot_offset[slot->number];
    uint64_t key, value, expected;
    if (!format_layout_words(layout))
        return;
    memcpy(&key, scene->key, sizeof key);
    memcpy(&expected, bytes + 12, sizeof expected);
    tree_session_stats_reset(scene->session);
    for (uint32_t bit = 0; bit < 8 * layout->slot_bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(
            scene->session->access->word(scene->session, scene->tree, scene->path.link, key, &value));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(tree_session_stats(scene->session)->cost.reads, 0);
    assert_true(scene->session->access->word(scene->session, scene->tree, scene->path.link, key, &value));
    assert_true(value == expected);
    assert_int_equal(tree_session_stats(scene->session)->cost.reads, 1);
    struct format_link other = scene->path.link;
    other.tag++; /* another node's slots prove nothing, wherever they lie */
    assert_false(scene->session->access->word(scene->session, scene->tree, other, key, &value));
}

static void unusual_changes(struct world_task *task)
{
    struct scene scene;
    struct tree_hold hold;
    struct format_header header;
    scene_set(&scene, task, 100);
    uint8_t *bytes = scene.place.spot.bytes;
    const struct format_layout *layout = &scene.tree->layout;
    /* A task has the lock. */
    assert_int_equal(tree_lock_owned(scene.session, scene.path.link.address, false, NULL, &hold), 0);
    assert_int_equal(scene_change(&scene), TREE_BY_LOCK);
    assert_int_equal(scene.wish.calls, 0);
    tree_unlock_owned(scene.session, &hold);
    /* The leaf is not live, or fails its check, or is another's. */
    uint8_t sound[4096];
    memcpy(sound, bytes, layout->geometry.leaf_bytes);
    for (int state = FORMAT_NODE_SPLITTING; state <= FORMAT_NODE_MERGING; state++) {
        assert_true(format_header_decode(layout, sound, &header));
        header.state = (uint8_t)state;
        format_header_encode(layout, &header, bytes);
        left_to_the_lock(&scene);
    }
    memcpy(bytes, sound, layout->geometry.leaf_bytes);
    bytes[8] ^= 1;
    left_to_the_lock(&scene);
    bytes[8] ^= 1;
    scene.place.point.link.tag++;
    left_to_the_lock(&scene);
    scene.place.point.link.tag--;
    assert_int_equal(scene.wish.calls, 0);
    /* The key's slot fails its check: it may be the key's, and nothing is decided on a guess. */
    struct format_slot slot;
    assert_true(tree_in_place_hit(scene.session, scene.tree, &scene.place, &slot));
    words_are_proven(&scene, &slot);
    tree_session_stats_reset(scene.session);
    bytes[layout->slot_offset[slot.number]] ^= 2;
    left_to_the_lock(&scene);
    assert_int_equal(scene.wish.calls, 0);
    bytes[layout->slot_offset[slot.number]] ^= 2;
    /* A value that the index cannot have. */
    scene.wish.length++;
    left_to_the_lock(&scene);
    scene.wish.length--;
    assert_int_equal(scene_change(&scene), 0);
    scene_end(&scene);
}

/* Keys are deleted in place until a bucket would be empty: that may be the leaf's end. */
static void last_of_a_bucket(struct world_task *task)
{
    bool left = false;
    for (uint64_t number = 0; number < 2 * KEYS && !left; number += 2) {
        struct scene scene;
        scene_set(&scene, task, number);
        scene.wish.verdict = TREE_DELETE;
        const struct format_layout *layout = &scene.tree->layout;
        const struct format_bucket *bucket = &scene.place.point.bucket;
        uint32_t taken = 0, check;
        for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
            memcpy(&check, scene.place.spot.bytes + layout->slot_offset[i], sizeof check);
            taken += check & 1u;
        }
        left = taken == 1;
        if (left)
            left_to_the_lock(&scene);
        else
            assert_int_equal(scene_change(&scene), 0);
        scene_end(&scene);
    }
    assert_true(left);
}

/* ---- two threads ---- */

/* Threads that share a CPU with others seldom meet: so they begin again until each has met the other's
 * changes so often, or to no avail for too long. */
#define ROUNDS 100000u
#define BURSTS 200u
#define MET    60000u
/* The same, where changes of one key are told. */
#define TOLD_BURSTS 8u

/* A thread that changes its own key, and looks at the other's each time. */
struct hand {
    struct world_task *task;
    uint64_t own, other; /* keys */
    struct hand *partner;
    uint32_t ready, done;      /* atomic */
    uint64_t rounds;           /* that it has done */
    uint64_t met;              /* changes of the other's that it has met, of all bursts */
    uint64_t seen[ROUNDS + 1]; /* of the other's key, behind each change of its own */
};

static bool hand_find(struct world_task *task, uint64_t number, uint8_t bytes[FORMAT_KEY_MAX],
                      struct tree_in_place *place)
{
    const struct format_key key = {bytes, (uint32_t)world_key(task->world, number, bytes)};
    struct tree_path path;
    return !tree_locate(task->session, task->tree, key, false, 0, &path) &&
           tree_in_place_find(task->session, task->tree, path.link, key, true, place);
}

static void hand_work(struct hand *hand, struct world_task *task)
{
    uint8_t own_key[FORMAT_KEY_MAX], other_key[FORMAT_KEY_MAX];
    struct tree_in_place own, other;
    struct format_slot slot;
    struct wish wish = {.verdict = TREE_PUT, .length = 8};
    bool found = hand_find(task, hand->own, own_key, &own) && hand_find(task, hand->other, other_key, &other);
    atomic_store_release(&hand->ready, 1); /* so that both work at the same time */
    while (!atomic_load_acquire(&hand->partner->ready))
        atomic_pause();
    /* Relaxed: `done` only says that there is no more to meet. */
    for (uint64_t round = 1; found && round <= ROUNDS && !atomic_load_relaxed(&hand->partner->done);
         round++) {
        memcpy(wish.value, &round, sizeof round);
        if (tree_in_place_change(task->session, task->tree, &own, grant, NULL, &wish))
            break;
        while (!tree_in_place_hit(task->session, task->tree, &other, &slot))
            ; /* torn: the other is at it */
        memcpy(&hand->seen[round], slot.value.bytes, sizeof round);
        hand->met += hand->seen[round] != hand->seen[round - 1];
        hand->rounds = round;
    }
}

static void hand_run(void *context)
{
    struct hand *hand = context;
    struct world_task task = *hand->task;
    struct tree_compute *compute = task.session->compute;
    struct pool_worker *worker;
    struct error error;
    uint8_t key[FORMAT_KEY_MAX];
    if (!pool_worker_create(&worker, tree_compute_pool(compute), &error)) {
        if (!tree_session_create(&task.session, compute, worker, &error)) {
            const struct format_key first = {key, (uint32_t)world_key(task.world, hand->own, key)};
            if (!tree_begin(task.session, task.tree) &&
                tree_rights_enter(task.session, task.tree, first) == TREE_OWNED)
                hand_work(hand, &task);
            tree_rights_leave(task.session);
            tree_session_destroy(task.session);
        }
        pool_worker_destroy(worker);
    }
    atomic_store_release(&hand->ready, 1);
    atomic_store_release(&hand->done, 1);
}

/* The hand's n-th change came before the other's m-th, or behind it: so one of the two looks behind them has
 * seen the other's change. Both are counted up, so the first change that was not seen tells the most. */
static void hand_judge(const struct hand *hand)
{
    const struct hand *partner = hand->partner;
    for (uint64_t round = 1; round <= hand->rounds; round++) {
        uint64_t next = hand->seen[round] + 1; /* not seen */
        assert_in_range(next, 1, partner->rounds + 1);
        if (next <= partner->rounds)
            assert_true(partner->seen[next] >= round);
    }
}

static void hands_begin(struct world_task *task, struct hand hands[2])
{
    const uint64_t zero = 0;
    struct scene scenes[2];
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t met = hands[i].met;
        hands[i] = (struct hand){.task = task, .partner = &hands[1 - i], .met = met};
        hands[i].own = i ? 2 * (KEYS - 1) : 0;
        hands[i].other = i ? 0 : 2 * (KEYS - 1);
        scene_set(&scenes[i], task, hands[i].own);
        assert_int_equal(scenes[i].wish.length, sizeof zero);
        memcpy(scenes[i].wish.value, &zero, sizeof zero);
        assert_int_equal(scene_change(&scenes[i]), 0);
        scene_end(&scenes[i]);
    }
    assert_true(scenes[0].path.link.address != scenes[1].path.link.address);
}

static void changes_are_seen_behind(struct world_task *task)
{
    static struct hand hands[2];
    struct thread *threads[2];
    struct error error;
    for (unsigned burst = 0; burst < BURSTS && (hands[0].met < MET || hands[1].met < MET); burst++) {
        hands_begin(task, hands);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(thread_start(&threads[i], hand_run, &hands[i], &error), 0);
        for (unsigned i = 0; i < 2; i++)
            thread_join(threads[i]);
        assert_int_equal(hands[0].rounds < hands[1].rounds ? hands[1].rounds : hands[0].rounds, ROUNDS);
        for (unsigned i = 0; i < 2; i++)
            hand_judge(&hands[i]);
    }
}

/* ---- what is told under the latch ---- */

/* A thread that changes a key which another one changes too, and looks at it where it is told so. */
struct teller {
    struct wish wish; /* first: the context of both functions */
    struct world_task *task;
    struct teller *partner;
    struct tree_in_place place;
    uint32_t ready, done; /* atomic */
    uint64_t told, wrong; /* wrong: the leaf had another value then */
    uint8_t image[4096];
};

static void tell(void *context)
{
    struct teller *teller = context;
    struct format_slot slot;
    teller->told++;
    if (!format_point_hit_in_place(&teller->place.point, teller->place.spot.bytes, teller->image, &slot) ||
        memcmp(slot.value.bytes, teller->wish.value, teller->wish.length) != 0)
        teller->wrong++;
}

static void teller_work(struct teller *teller, struct world_task *task)
{
    uint8_t key[FORMAT_KEY_MAX];
    teller->wish = (struct wish){.verdict = TREE_PUT, .length = 8};
    teller->wish.value[7] = teller < teller->partner; /* no value is the other's */
    const bool found = hand_find(task, 0, key, &teller->place);
    atomic_store_release(&teller->ready, 1); /* so that both work at the same time */
    while (!atomic_load_acquire(&teller->partner->ready))
        atomic_pause();
    /* Relaxed: `done` only says that the other one is at it no more. */
    for (uint32_t round = 1; found && round <= ROUNDS && !atomic_load_relaxed(&teller->partner->done);
         round++) {
        memcpy(teller->wish.value, &round, sizeof round);
        if (tree_in_place_change(task->session, task->tree, &teller->place, grant, tell, &teller->wish))
            break;
    }
}

static void teller_run(void *context)
{
    struct teller *teller = context;
    struct world_task task = *teller->task;
    struct tree_compute *compute = task.session->compute;
    struct pool_worker *worker;
    struct error error;
    uint8_t key[FORMAT_KEY_MAX];
    if (!pool_worker_create(&worker, tree_compute_pool(compute), &error)) {
        if (!tree_session_create(&task.session, compute, worker, &error)) {
            const struct format_key first = {key, (uint32_t)world_key(task.world, 0, key)};
            if (!tree_begin(task.session, task.tree) &&
                tree_rights_enter(task.session, task.tree, first) == TREE_OWNED)
                teller_work(teller, &task);
            tree_rights_leave(task.session);
            tree_session_destroy(task.session);
        }
        pool_worker_destroy(worker);
    }
    atomic_store_release(&teller->ready, 1);
    atomic_store_release(&teller->done, 1);
}

static void changes_are_told_in_order(struct world_task *task)
{
    static struct teller tellers[2];
    struct thread *threads[2];
    struct error error;
    for (unsigned burst = 0; burst < TOLD_BURSTS; burst++) {
        for (unsigned i = 0; i < 2; i++)
            tellers[i] = (struct teller){.task = task, .partner = &tellers[1 - i]};
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(thread_start(&threads[i], teller_run, &tellers[i], &error), 0);
        for (unsigned i = 0; i < 2; i++)
            thread_join(threads[i]);
        assert_true(tellers[0].told + tellers[1].told >= ROUNDS);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(tellers[i].wrong, 0);
    }
}

static void owned_options(struct world_options *options)
{
    world_options_default(options);
    options->owned = true;
}

static void what_is_plain_is_done(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    run(&options, plain_changes);
    options.geometry.key_kind = FORMAT_KEY_VARIABLE;
    options.geometry.key_bytes = 24;
    run(&options, plain_changes);
}

static void what_is_not_is_left(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    run(&options, unusual_changes);
    run(&options, last_of_a_bucket);
}

/* ---- lookups of the plain case, beside those of any other ---- */

#define DRAWN 20000u /* keys that are drawn from */

/* What a lookup came to. */
struct answer {
    int status;
    uint8_t value[FORMAT_VALUE_MAX];
    size_t length;
    struct tree_stats stats;
};

/* `any`: without the plain case's way. */
static void ask(struct world_task *task, struct format_key key, size_t room, bool any, struct answer *answer)
{
    struct tree_session *session = task->session;
    memset(answer, 0, sizeof *answer);
    answer->length = room;
    tree_session_stats_reset(session);
    if (any) {
        assert_int_equal(tree_begin(session, task->tree), 0);
        assert_int_equal(tree_rights_enter(session, task->tree, key), TREE_OWNED);
        answer->status = tree_lookup_leaf(session, task->tree, key, answer->value, &answer->length);
        tree_rights_leave(session);
    } else {
        answer->status =
            tree_lookup(session, task->tree, key.bytes, key.length, answer->value, &answer->length);
    }
    answer->stats = *tree_session_stats(session);
}

/* Where the cached way is the plain case's, it is that of any other; whether it is. */
static bool ways_agree(struct world_task *task, struct format_key key)
{
    struct tree_session *session = task->session;
    struct format_link leaf = {0};
    struct tree_path path;
    uint32_t frames;
    tree_session_stats_reset(session);
    assert_int_equal(tree_begin(session, task->tree), 0);
    assert_int_equal(tree_rights_enter(session, task->tree, key), TREE_OWNED);
    const bool cached = tree_locate_cached(session, task->tree, key, &leaf, &frames);
    assert_int_equal(tree_session_stats(session)->cache_hits, 0);
    assert_int_equal(tree_locate(session, task->tree, key, false, 0, &path), 0);
    if (cached) {
        assert_true(format_link_equal(leaf, path.link));
        assert_int_equal(tree_session_stats(session)->cache_hits, frames);
    }
    tree_rights_leave(session);
    return cached;
}

/* Several ways at once are those of one after the other. */
static void many_ways_agree(struct world_task *task, struct random *random)
{
    uint8_t bytes[TREE_LOCATE_MANY][FORMAT_KEY_MAX];
    struct format_key keys[TREE_LOCATE_MANY];
    struct format_link leaves[TREE_LOCATE_MANY];
    uint32_t frames[TREE_LOCATE_MANY], alone;
    const uint32_t count = 1 + (uint32_t)random_below(random, TREE_LOCATE_MANY);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t number = 2 * KEYS + random_below(random, DRAWN);
        const uint32_t length = (uint32_t)world_key(task->world, number, bytes[i]);
        keys[i] = (struct format_key){bytes[i], length};
    }
    tree_locate_cached_many(task->session, task->tree, keys, count, leaves, frames);
    for (uint32_t i = 0; i < count; i++) {
        struct format_link leaf;
        const bool cached = tree_locate_cached(task->session, task->tree, keys[i], &leaf, &alone);
        assert_int_equal(cached, leaves[i].address != GADDR_NULL);
        if (!cached)
            continue;
        assert_true(format_link_equal(leaf, leaves[i]));
        assert_int_equal(frames[i], alone);
    }
}

static void answers_agree(struct world_task *task, struct format_key key, size_t room, bool exists)
{
    struct answer plain, any;
    ask(task, key, room, false, &plain);
    ask(task, key, room, true, &any);
    assert_int_equal(plain.status, any.status);
    assert_int_equal(plain.status, !exists ? BANYAN_ENOTFOUND : room ? 0 : BANYAN_EVALUESIZE);
    if (exists) {
        assert_int_equal(plain.length, any.length);
        assert_memory_equal(plain.value, any.value, sizeof plain.value);
        assert_memory_equal(&plain.stats, &any.stats, sizeof plain.stats);
    }
}

/* Insertions and deletions, by which nodes split and die, and lookups of what is there and what is not. */
static void lookups_agree(struct world_task *task)
{
    static uint8_t there[DRAWN];
    const uint64_t seed = random_entropy();
    struct random random;
    uint32_t cached = 0, asked = 0;
    random_seed(&random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    memset(there, 0, sizeof there);
    for (unsigned i = 0; i < 2 * DRAWN; i++) {
        uint8_t bytes[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
        const uint64_t number = 2 * KEYS + random_below(&random, DRAWN);
        const struct format_key key = {bytes, (uint32_t)world_key(task->world, number, bytes)};
        const size_t length = world_value(task->world, i, value);
        uint8_t *exists = &there[number - 2 * KEYS];
        if (random_below(&random, 4)) {
            assert_int_equal(tree_upsert(task->session, task->tree, bytes, key.length, value, length), 0);
            *exists = 1;
        } else if (*exists) {
            assert_int_equal(tree_delete(task->session, task->tree, bytes, key.length), 0);
            *exists = 0;
        }
        if (i % 8)
            continue;
        const uint64_t other = random_below(&random, DRAWN);
        const struct format_key sought = {bytes, (uint32_t)world_key(task->world, 2 * KEYS + other, bytes)};
        cached += ways_agree(task, sought);
        answers_agree(task, sought, random_below(&random, 8) ? FORMAT_VALUE_MAX : 0, there[other]);
        asked++;
        if (asked % 8 == 0)
            many_ways_agree(task, &random);
    }
    assert_true(cached > asked / 2); /* else nothing much was compared */
}

static void what_is_found_plainly_is_what_is_found(void **state)
{
    static const uint8_t fixed[] = {8, 12, 15};
    struct world_options options;
    (void)state;
    owned_options(&options);
    options.geometry.leaf_bytes = options.geometry.internal_bytes = 512;
    for (unsigned i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        options.geometry.key_kind = FORMAT_KEY_FIXED;
        options.geometry.key_bytes = fixed[i];
        run(&options, lookups_agree);
    }
    options.geometry.key_kind = FORMAT_KEY_VARIABLE;
    options.geometry.key_bytes = 24;
    run(&options, lookups_agree);
}

/* In a frame's heads, in lines that are filled up as the cache does it. */
static void heads_are_found(void **state)
{
    const uint64_t seed = random_entropy();
    struct random random;
    (void)state;
    random_seed(&random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned round = 0; round < 20000; round++) {
        uint64_t heads[64 + TREE_HEADS_LINE], last = 0;
        const uint32_t count = 1 + (uint32_t)random_below(&random, 64);
        for (uint32_t i = 0; i < 64 + TREE_HEADS_LINE; i++)
            heads[i] = i < count ? last += random_below(&random, 3) : UINT64_MAX;
        if (!random_below(&random, 4))
            heads[count - 1] = UINT64_MAX;
        const uint64_t head = random_below(&random, 8) ? random_below(&random, last + 2) : UINT64_MAX;
        uint32_t expected = 0;
        for (uint32_t i = 1; i < count; i++)
            expected = heads[i] <= head ? i : expected;
        assert_int_equal(tree_heads_search(heads, count, head), expected);
    }
}

static void uses_no_place(struct world_task *task)
{
    assert_ptr_equal(task->session->compute->owned_access, &tree_access_owned);
}

/* Not where leaves are read or written whole, nor where commands may not share a list, nor where the fabric
 * claims not to map memory. */
static void only_where_it_costs_the_same(void **state)
{
    static const char *const presets[] = {"fg", "sherman"};
    struct world_options options;
    (void)state;
    owned_options(&options);
    for (unsigned i = 0; i < 2; i++) {
        options.preset = presets[i];
        run(&options, uses_no_place);
    }
    owned_options(&options);
    options.cache_policy = TREE_CACHE_DEX;
    run(&options, uses_no_place);
}

/* G4: what a change has stored can be seen before it returns, by every thread. */
static void what_is_done_can_be_seen(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    run(&options, changes_are_seen_behind);
}

/* K8: a change is told when it is in the leaf, and before another one can be. */
static void what_is_told_is_there(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    run(&options, changes_are_told_in_order);
}

/* ---- many puts in one call ---- */

#define PUT_CALL 200u
#define PUTS     3000u

/* Keys `first` on, in this order, each with its place in the order as value, so many in a call; 1: by calls
 * for one key. */
static void put_numbers(struct world_task *task, uint64_t first, const uint32_t order[PUTS], uint32_t in_call)
{
    static uint8_t keys[PUT_CALL][FORMAT_KEY_MAX], values[PUT_CALL][FORMAT_VALUE_MAX];
    struct tree_item items[PUT_CALL];
    for (uint32_t next = 0; next < PUTS;) {
        uint32_t count = 0;
        for (; count < in_call && next < PUTS; count++, next++) {
            items[count] = (struct tree_item){.key = keys[count], .value = values[count], .status = 99};
            items[count].key_length = world_key(task->world, first + order[next], keys[count]);
            items[count].length = world_value(task->world, next + 1, values[count]);
        }
        assert_int_equal(in_call > 1 ? tree_multi_put(task->session, task->tree, items, count)
                                     : tree_put(task->session, task->tree, items),
                         0);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(items[i].status, 0);
    }
}

static void put_numbers_are_there(struct world_task *task, uint64_t first, const uint32_t order[PUTS])
{
    for (uint32_t i = 0; i < PUTS; i++) {
        uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
        size_t length = sizeof value;
        const size_t key_length = world_key(task->world, first + order[i], key);
        assert_int_equal(tree_lookup(task->session, task->tree, key, key_length, value, &length), 0);
        assert_int_equal(world_value_number(task->world, value, length), i + 1);
    }
}

/* How many leaves these puts add. */
static uint64_t put_leaves(struct world_task *task, uint64_t first, const uint32_t order[PUTS],
                           uint32_t in_call)
{
    struct tree_check_report before, after;
    assert_int_equal(tree_check(task->session, task->tree, &before, NULL, NULL), 0);
    const uint64_t operations = tree_session_stats(task->session)->operations;
    put_numbers(task, first, order, in_call);
    assert_int_equal(tree_session_stats(task->session)->operations, operations + PUTS);
    put_numbers_are_there(task, first, order);
    assert_int_equal(tree_check(task->session, task->tree, &after, NULL, NULL), 0);
    assert_int_equal(after.entries, before.entries + PUTS);
    return after.leaves - before.leaves;
}

/* Ascending keys leave as few leaves behind as they do one by one, and all are there in any order. */
static void put_together(struct world_task *task)
{
    static uint32_t order[PUTS];
    const uint64_t seed = random_entropy();
    struct random random;
    random_seed(&random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t i = 0; i < PUTS; i++)
        order[i] = i;
    const uint64_t alone = put_leaves(task, 10000, order, 1),
                   together = put_leaves(task, 20000, order, PUT_CALL);
    assert_in_range(together, 1, alone + alone / 8); /* how full a leaf becomes depends on its tag */
    for (uint32_t i = PUTS; i-- > 1;) {
        const uint32_t other = (uint32_t)random_below(&random, i + 1), number = order[i];
        order[i] = order[other];
        order[other] = number;
    }
    put_leaves(task, 30000, order, 1 + (uint32_t)random_below(&random, PUT_CALL));
}

static void puts_in_one_call_fill_leaves(void **state)
{
    struct world_options options;
    (void)state;
    owned_options(&options);
    run(&options, put_together);
    options.geometry.key_kind = FORMAT_KEY_VARIABLE;
    options.geometry.key_bytes = 24;
    run(&options, put_together);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_plain_is_done),
        cmocka_unit_test(what_is_not_is_left),
        cmocka_unit_test(what_is_done_can_be_seen),
        cmocka_unit_test(what_is_told_is_there),
        cmocka_unit_test(only_where_it_costs_the_same),
        cmocka_unit_test(heads_are_found),
        cmocka_unit_test(puts_in_one_call_fill_leaves),
        cmocka_unit_test(what_is_found_plainly_is_what_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
