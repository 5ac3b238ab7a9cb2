/*
 * test_owner_local.c - compute nodes of this process, on real threads, divide an index; maps that contradict
 * themselves; and the end of an index whose ranges have owners.
 *
 * Each worker writes keys of its own, so it knows what it must read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/random.h"
#include "base/task.h"
#include "base/thread.h"
#include "fabric/local.h"
#include "memory/memory.h"
#include "memory/request.h"
#include "owner/owner.h"
#include "owner/process.h"
#include "swarm/world.h"
#include "tree/session.h"

#define SIDES    3u
#define KEYS     3000u /* of all workers */
#define MOVES    60u
#define LIMIT_NS UINT64_C(20000000000) /* much more than anything takes */

struct side {
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree;
    struct owner *owner;
    struct owner_threads *threads;
};

struct rig {
    struct memory_node *memory;
    struct fabric_local_peers *peers;
    struct side sides[SIDES];
    int policy; /* of its owners */
    bool over;  /* atomic */
};

static const struct format_geometry geometry = {
    .key_bytes = 8, .value_bytes = 80, .leaf_bytes = 512, .internal_bytes = 512};

static void good(const struct side *side, int status)
{
    if (status)
        fail_msg("%d: %s", status, tree_session_error(side->session)->text);
}

static size_t key_of(uint32_t number, uint8_t key[8])
{
    memset(key, 0, 8);
    key[5] = (uint8_t)(number >> 16);
    key[6] = (uint8_t)(number >> 8);
    key[7] = (uint8_t)number;
    return 8;
}

/* ---- calls that fail while the connection lives on, as on a mapped pool whose memory node hangs ---- */

struct failing {
    struct fabric_ops ops;
    int (*call)(struct fabric_endpoint *, uint16_t, const void *, size_t, void *, size_t, size_t *);
    uint32_t kind;     /* atomic: the next call of this kind fails; 0: none */
    bool served;       /* ... and is served before */
    uint32_t held;     /* atomic: ... and waits as long as this is 1 */
    uint64_t versions; /* ... if it tells of this version or a later one */
};
static struct failing failing[SIDES + 1]; /* the last one is the guest */
static uint32_t guest_locks;              /* atomic: so often it asked for the map's lock */

static int failing_call(struct fabric_endpoint *endpoint, uint16_t node, const void *bytes, size_t length,
                        void *reply, size_t capacity, size_t *reply_length)
{
    struct failing *one = &failing[endpoint->fabric->capabilities.compute_id - 1u];
    struct memory_board_request request = {0};
    memcpy(&request, bytes, length < sizeof request ? length : sizeof request);
    uint32_t kind = request.kind;
    if (kind == MEMORY_BOARD_LOCK && one == &failing[SIDES])
        atomic_add_relaxed(&guest_locks, 1u); /* a count */
    bool fails = kind == atomic_load_acquire(&one->kind) && request.version >= one->versions &&
                 __atomic_compare_exchange_n(&one->kind, &kind, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    while (fails && atomic_load_acquire(&one->held))
        task_sleep(100000);
    int status =
        fails && !one->served ? 0 : one->call(endpoint, node, bytes, length, reply, capacity, reply_length);
    return fails ? BANYAN_ENET : status;
}

static void failing_prepare(struct fabric *fabric)
{
    struct failing *one = &failing[fabric->capabilities.compute_id - 1u];
    *one = (struct failing){.ops = *fabric->ops, .call = fabric->ops->call};
    one->ops.call = failing_call;
    fabric->ops = &one->ops;
}

/* The next such call of the compute node fails. */
static void fail_call(unsigned side, uint32_t kind, bool served, uint64_t versions)
{
    failing[side].served = served;
    failing[side].versions = versions;
    atomic_store_release(&failing[side].kind, kind);
}

/* ---- the rig ---- */

static void side_open(struct rig *rig, unsigned number)
{
    struct side *side = &rig->sides[number];
    const struct fabric_target *target = memory_node_target(rig->memory);
    struct tree_switches switches;
    struct owner_options options;
    struct error error = {0};
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 8u << 20;
    owner_options_default(&options);
    options.tick_ns = 5000000;
    options.policy = rig->policy;
    options.balance_ns = 0; /* where a test says so */
    side->fabric = fabric_local_create_peer(rig->peers, &target, 1, (uint16_t)(number + 1), &error);
    assert_non_null(side->fabric);
    failing_prepare(side->fabric);
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

static void rig_open_willing(struct rig *rig, int policy)
{
    struct memory_options options = {.pool_bytes = 32 << 20, .chunk_bytes = 64 << 10};
    struct error error = {0};
    *rig = (struct rig){.policy = policy};
    assert_int_equal(memory_node_create(&rig->memory, &options, &error), 0);
    rig->peers = fabric_local_peers_create(&error);
    assert_non_null(rig->peers);
    for (unsigned i = 0; i < SIDES; i++)
        side_open(rig, i);
}

static void rig_open(struct rig *rig)
{
    rig_open_willing(rig, OWNER_NONE);
}

static void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i]);
    fabric_local_peers_destroy(rig->peers);
    memory_node_destroy(rig->memory);
}

/* ---- under load ---- */

struct job {
    struct rig *rig;
    unsigned number;
    uint64_t operations;
    char trouble[300];
    uint8_t values[KEYS]; /* of its keys: what must be read; 0: nothing */
};

static bool operate(struct job *job, struct tree_session *session, struct random *random)
{
    struct tree *tree = job->rig->sides[job->number].tree;
    uint32_t number = (uint32_t)random_below(random, KEYS / SIDES) * SIDES + job->number;
    uint8_t key[8], value[80] = {0}, expected = job->values[number];
    size_t key_length = key_of(number, key), length = sizeof value;
    int status;
    switch (random_below(random, 4)) {
    case 0:
        job->values[number] = value[0] = (uint8_t)(1 + random_below(random, 255));
        status = tree_upsert(session, tree, key, key_length, value, sizeof value);
        break;
    case 1:
        job->values[number] = 0;
        status = tree_delete(session, tree, key, key_length);
        status = status == (expected ? 0 : BANYAN_ENOTFOUND) ? 0 : BANYAN_ECORRUPT;
        break;
    default:
        status = tree_lookup(session, tree, key, key_length, value, &length);
        status = status ? (status == BANYAN_ENOTFOUND && !expected ? 0 : status)
                        : (value[0] == expected ? 0 : BANYAN_ECORRUPT);
    }
    job->operations++;
    if (status)
        snprintf(job->trouble, sizeof job->trouble, "key %u, expected %u, read %u: %d: %s", number, expected,
                 value[0], status, tree_session_error(session)->text);
    return !status;
}

static void run_job(void *context)
{
    struct job *job = context;
    struct side *side = &job->rig->sides[job->number];
    struct pool_worker *worker;
    struct tree_session *session;
    struct random random;
    random_seed(&random, world_seed(7) + job->number);
    if (pool_worker_create(&worker, tree_compute_pool(side->compute), NULL) ||
        tree_session_create(&session, side->compute, worker, NULL)) {
        snprintf(job->trouble, sizeof job->trouble, "no memory");
        return;
    }
    while (operate(job, session, &random) && !atomic_load_relaxed(&job->rig->over))
        ; /* one at least: on a busy machine it may begin when the ranges have moved */
    tree_session_destroy(session);
    pool_worker_destroy(worker);
}

static void change(struct rig *rig, struct random *random)
{
    struct side *side = &rig->sides[random_below(random, SIDES)];
    const unsigned to = (unsigned)random_below(random, SIDES + 1);
    uint8_t key[8];
    size_t length = key_of((uint32_t)(1 + random_below(random, 9)) * (KEYS / 10), key);
    struct owner_selection selection = {.tree = side->tree, .key = key, .key_length = length, .keyed = true};
    struct fabric_process process = {0};
    int status;
    if (to < SIDES)
        process = fabric_self(rig->sides[to].fabric);
    switch (random_below(random, 4)) {
    case 0:
        status = owner_split(side->owner, side->session, side->tree, key, length);
        break;
    case 1:
        status = owner_merge(side->owner, side->session, side->tree, key, length);
        if (status == BANYAN_ENOTFOUND || status == BANYAN_ECONFLICT)
            status = 0;
        break;
    default:
        status = owner_move(side->owner, side->session, &selection, process, NULL);
    }
    good(side, status);
}

static void ranges_move_between_threads(void **state)
{
    struct rig rig;
    static struct job jobs[SIDES];
    struct thread *threads[SIDES];
    struct error error = {0};
    struct random random;
    struct tree_check_report report;
    rig_open(&rig);
    random_seed(&random, world_seed(7));
    for (unsigned i = 0; i < SIDES; i++) {
        jobs[i] = (struct job){.rig = &rig, .number = i};
        assert_int_equal(thread_start(&threads[i], run_job, &jobs[i], &error), 0);
    }
    for (unsigned i = 0; i < world_rounds(MOVES); i++)
        change(&rig, &random);
    atomic_store_relaxed(&rig.over, true);
    for (unsigned i = 0; i < SIDES; i++)
        thread_join(threads[i]);
    for (unsigned i = 0; i < SIDES; i++) {
        if (jobs[i].trouble[0])
            fail_msg("worker %u: %s", i, jobs[i].trouble);
        assert_true(jobs[i].operations > 0);
    }
    /* every other compute node reads the same */
    for (uint32_t number = 0; number < KEYS; number++) {
        const struct side *side = &rig.sides[(number + 1) % SIDES];
        uint8_t key[8], value[80], expected = jobs[number % SIDES].values[number];
        size_t length = sizeof value;
        int status = tree_lookup(side->session, side->tree, key, key_of(number, key), value, &length);
        assert_int_equal(status, expected ? 0 : BANYAN_ENOTFOUND);
        assert_true(!expected || value[0] == expected);
    }
    good(&rig.sides[0], tree_check(rig.sides[0].session, rig.sides[0].tree, &report, NULL, NULL));
    rig_close(&rig);
}

/* ---- a map that contradicts itself ---- */

static void put_entry(const struct side *side, struct tree *map, const struct format_range *range)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
    size_t length = format_range_encode(range, key, value);
    good(side, tree_upsert(side->session, map, key, length, value, sizeof value));
}

static void count_problem(void *context, const char *text)
{
    if (strstr(text, "least key"))
        ++*(unsigned *)context;
}

static void a_broken_map_is_named(void **state)
{
    struct rig rig;
    struct tree *map, *sound;
    uint8_t key[8], value[80] = {1};
    size_t length = sizeof value;
    unsigned named = 0;
    uint32_t count;
    rig_open(&rig);
    struct side *side = &rig.sides[0], *other = &rig.sides[1];
    good(side, tree_create(side->session, "sound", &geometry, &sound));
    good(side, owner_attach(side->owner, side->session, sound));
    good(side, tree_open(side->session, OWNER_MAP_NAME, &map));
    assert_true(owner_is_map(tree_name(map)));
    assert_int_equal(owner_attach(side->owner, side->session, map), BANYAN_EINVAL);

    /* a range in the middle, and none before it */
    struct format_range range = {.number = tree_number(side->tree), .lower_length = 8};
    key_of(100, range.lower);
    put_entry(side, map, &range);
    good(side, owner_check(side->owner, side->session, count_problem, &named, &count));
    assert_int_equal(named, 1);
    assert_int_equal(count, 1);
    /* a change of another index publishes a version: all fetch the map, and see it */
    good(side, owner_split(side->owner, side->session, sound, key, key_of(50, key)));
    while (tree_rights_version(other->tree) < tree_rights_version(sound))
        task_sleep(100000);
    /* no change is made of what cannot be understood */
    key_of(100, key);
    assert_int_equal(owner_merge(side->owner, side->session, side->tree, key, 8), BANYAN_ECORRUPT);
    assert_non_null(strstr(tree_session_error(side->session)->text, "'test'"));
    assert_int_equal(owner_split(side->owner, side->session, side->tree, key, 8), BANYAN_ECORRUPT);
    key_of(50, key);
    int status = tree_lookup(other->session, other->tree, key, 8, value, &length);
    assert_int_equal(status, BANYAN_ECORRUPT);
    assert_non_null(strstr(tree_session_error(other->session)->text, "'test'"));
    assert_non_null(strstr(tree_session_error(other->session)->text, "least key"));
    length = sizeof value;
    assert_int_equal(tree_lookup(side->session, sound, key, 8, value, &length), BANYAN_ENOTFOUND);
    good(side, tree_upsert(side->session, sound, key, 8, value, sizeof value));

    /* mended: everything goes on */
    range.lower_length = 0;
    memset(range.lower, 0, sizeof range.lower);
    put_entry(side, map, &range);
    good(side, owner_merge(side->owner, side->session, sound, key, 8));
    while (tree_rights_version(other->tree) < tree_rights_version(sound))
        task_sleep(100000);
    length = sizeof value;
    assert_int_equal(tree_lookup(other->session, other->tree, key, 8, value, &length), BANYAN_ENOTFOUND);
    tree_close(map);
    good(side, owner_detach(side->owner, side->session, sound));
    tree_close(sound);
    rig_close(&rig);
}

struct broken {
    struct side *side;
    uint64_t told[2]; /* so often each of the two entries was named; else: `trouble` */
    char trouble[300];
    bool over; /* atomic */
};

static void use_broken(void *context)
{
    struct broken *broken = context;
    struct side *side = broken->side;
    while (!atomic_load_relaxed(&broken->over) && !broken->trouble[0]) {
        uint8_t key[8], value[80];
        size_t length = sizeof value;
        int status = tree_lookup(side->session, side->tree, key, key_of(50, key), value, &length);
        const char *text = tree_session_error(side->session)->text;
        const char *first = strstr(text, "from 0x0000000000000064 "),
                   *second = strstr(text, "from 0x00000000000000c8 ");
        if (status != BANYAN_ECORRUPT || !strstr(text, "least key") || !(first || second))
            snprintf(broken->trouble, sizeof broken->trouble, "%d: %s", status, text);
        broken->told[second != NULL]++;
    }
}

/* Operations that wait read the trouble while the next version of the map says something else. */
static void what_is_broken_changes(void **state)
{
    struct rig rig;
    struct tree *map, *sound;
    struct thread *thread;
    struct error error = {0};
    uint8_t key[8];
    rig_open(&rig);
    struct side *side = &rig.sides[0], *other = &rig.sides[1];
    struct broken broken = {.side = other};
    good(side, tree_create(side->session, "sound", &geometry, &sound));
    good(side, owner_attach(side->owner, side->session, sound));
    good(side, tree_open(side->session, OWNER_MAP_NAME, &map));
    for (uint32_t i = 0; i < 10; i++) {
        struct format_range range = {.number = tree_number(side->tree), .lower_length = 8};
        uint8_t entry[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
        key_of(i % 2 ? 100 : 200, range.lower);
        size_t length = format_range_encode(&range, entry, value);
        int status = tree_delete(side->session, map, entry, length);
        assert_true(!status || (!i && status == BANYAN_ENOTFOUND));
        key_of(i % 2 ? 200 : 100, range.lower);
        put_entry(side, map, &range);
        good(side, owner_split(side->owner, side->session, sound, key, key_of(50 + i, key)));
        while (tree_rights_version(other->tree) < tree_rights_version(sound))
            task_sleep(100000);
        if (!i)
            assert_int_equal(thread_start(&thread, use_broken, &broken, &error), 0);
    }
    atomic_store_relaxed(&broken.over, true);
    thread_join(thread);
    if (broken.trouble[0])
        fail_msg("%s", broken.trouble);
    assert_true(broken.told[0] + broken.told[1] > 0);
    tree_close(map);
    good(side, owner_detach(side->owner, side->session, sound));
    tree_close(sound);
    rig_close(&rig);
}

/* A user's index that has the map's name. */
static void another_map_is_refused(void **state)
{
    struct memory_options options = {.pool_bytes = 32 << 20, .chunk_bytes = 64 << 10};
    struct rig rig = {0};
    struct side *side = &rig.sides[0];
    struct owner_options defaults;
    struct tree_switches switches;
    struct error error = {0};
    assert_int_equal(memory_node_create(&rig.memory, &options, &error), 0);
    const struct fabric_target *target = memory_node_target(rig.memory);
    rig.peers = fabric_local_peers_create(&error);
    side->fabric = fabric_local_create_peer(rig.peers, &target, 1, 1, &error);
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 1u << 20;
    assert_int_equal(tree_compute_create(&side->compute, side->fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&side->worker, tree_compute_pool(side->compute), &error), 0);
    assert_int_equal(tree_session_create(&side->session, side->compute, side->worker, &error), 0);
    good(side, tree_format(side->session));
    good(side, tree_create(side->session, OWNER_MAP_NAME, &geometry, &side->tree));
    owner_options_default(&defaults);
    defaults.policy = 7;
    assert_int_equal(owner_create(&side->owner, side->compute, &defaults, &error), BANYAN_EINVAL);
    defaults.policy = OWNER_AUTO;
    defaults.ranges = 0;
    assert_int_equal(owner_create(&side->owner, side->compute, &defaults, &error), BANYAN_EINVAL);
    defaults.ranges = 1;
    assert_int_equal(owner_create(&side->owner, side->compute, &defaults, &error), 0);
    assert_int_equal(owner_join(side->owner, side->session), BANYAN_EVERSION);
    side_close(side);
    fabric_local_peers_destroy(rig.peers);
    memory_node_destroy(rig.memory);
}

/* ---- the end of an index ---- */

static void count_entry(void *context, const struct owner_range *range)
{
    unsigned *counts = context;
    counts[range->state]++;
}

static void an_index_is_closed_before_it_is_dropped(void **state)
{
    struct rig rig;
    uint8_t key[8], value[80] = {1};
    unsigned counts[FORMAT_RANGE_STATES] = {0};
    rig_open(&rig);
    struct side *side = &rig.sides[0], *other = &rig.sides[1];
    struct owner_selection all = {.tree = other->tree};
    for (uint32_t number = 0; number < 300; number++)
        good(side, tree_upsert(side->session, side->tree, key, key_of(number, key), value, sizeof value));
    good(side, owner_split(side->owner, side->session, side->tree, key, key_of(100, key)));
    good(other, owner_take(other->owner, other->session, &all, NULL));
    good(side, owner_close(side->owner, side->session, side->tree));
    good(side, owner_list(side->owner, side->session, count_entry, counts));
    assert_int_equal(counts[FORMAT_RANGE_CLOSED], 1);
    assert_int_equal(counts[FORMAT_RANGE_SETTLED], 0);
    assert_int_equal(owner_take(other->owner, other->session, &all, NULL), BANYAN_ENOTFOUND);
    assert_int_equal(owner_split(other->owner, other->session, other->tree, key, 8), BANYAN_EBUSY);
    good(side, owner_close(side->owner, side->session, side->tree));
    good(side, tree_drop(side->session, "test", NULL, NULL));
    good(side, owner_forget(side->owner, side->session, side->tree));
    memset(counts, 0, sizeof counts);
    good(side, owner_list(side->owner, side->session, count_entry, counts));
    assert_int_equal(counts[FORMAT_RANGE_CLOSED], 0);
    rig_close(&rig);
}

/* Its handles stay attached until they are closed, and keepers balance meanwhile. */
static void nobody_takes_a_dropped_index(void **state)
{
    struct rig rig;
    unsigned counts[FORMAT_RANGE_STATES] = {0};
    rig_open_willing(&rig, OWNER_AUTO);
    struct side *side = &rig.sides[0], *other = &rig.sides[1];
    good(side, owner_balance(side->owner, side->session));
    good(side, owner_list(side->owner, side->session, count_entry, counts));
    assert_int_equal(counts[FORMAT_RANGE_SETTLED], 1); /* an empty index is taken */
    good(side, owner_close(side->owner, side->session, side->tree));
    good(side, tree_drop(side->session, "test", NULL, NULL));
    good(side, owner_forget(side->owner, side->session, side->tree));
    good(side, owner_balance(side->owner, side->session));
    good(other, owner_balance(other->owner, other->session));
    memset(counts, 0, sizeof counts);
    good(side, owner_list(side->owner, side->session, count_entry, counts));
    assert_int_equal(counts[FORMAT_RANGE_SETTLED], 0);
    rig_close(&rig);
}

static void find_owner(void *context, const struct owner_range *range)
{
    *(struct fabric_process *)context = range->owner;
}

/* What is shared stays so: an index that programs open and close would have no owners in the end. */
static void what_is_detached_goes_to_others(void **state)
{
    struct rig rig;
    struct fabric_process owner = {0};
    rig_open_willing(&rig, OWNER_AUTO);
    struct side *side = &rig.sides[0];
    good(side, owner_balance(side->owner, side->session));
    good(side, owner_detach(side->owner, side->session, side->tree));
    good(side, owner_list(side->owner, side->session, find_owner, &owner));
    assert_true(fabric_process_equal(owner, fabric_self(rig.sides[1].fabric)) ||
                fabric_process_equal(owner, fabric_self(rig.sides[2].fabric)));
    rig_close(&rig);
}

/* The last process with the policy that closes the index leaves its ranges to the next one that comes; what
 * was shared by a command stays shared. */
static void what_nobody_wanted_is_taken(void **state)
{
    struct rig rig;
    struct fabric_process owner = {0};
    rig_open_willing(&rig, OWNER_AUTO);
    struct side *side = &rig.sides[0];
    const struct fabric_process self = fabric_self(side->fabric);
    const struct owner_selection all = {.tree = side->tree};
    for (unsigned i = 1; i < SIDES; i++) /* not willing from here on */
        good(&rig.sides[i], owner_release(rig.sides[i].owner, rig.sides[i].session));
    good(side, owner_balance(side->owner, side->session));
    good(side, owner_detach(side->owner, side->session, side->tree));
    good(side, owner_list(side->owner, side->session, find_owner, &owner));
    assert_int_equal(owner.compute_id, 0);
    good(side, owner_attach(side->owner, side->session, side->tree));
    good(side, owner_balance(side->owner, side->session));
    good(side, owner_list(side->owner, side->session, find_owner, &owner));
    assert_true(fabric_process_equal(owner, self));
    good(side, owner_share(side->owner, side->session, &all, NULL));
    good(side, owner_balance(side->owner, side->session));
    good(side, owner_list(side->owner, side->session, find_owner, &owner));
    assert_int_equal(owner.compute_id, 0);
    rig_close(&rig);
}

/* ---- calls that were lost ---- */

static void a_lost_call_does_not_keep_the_lock(void **state)
{
    struct rig rig;
    uint8_t key[8];
    rig_open(&rig);
    struct side *side = &rig.sides[0], *other = &rig.sides[1];
    fail_call(1, MEMORY_BOARD_UNLOCK, false, 0);
    good(other, owner_split(other->owner, other->session, other->tree, key, key_of(100, key)));
    assert_int_equal(atomic_load_acquire(&failing[1].kind), 0);
    good(side, owner_split(side->owner, side->session, side->tree, key, key_of(200, key)));
    fail_call(1, MEMORY_BOARD_LOCK, true, 0);
    int status = owner_split(other->owner, other->session, other->tree, key, key_of(300, key));
    assert_int_equal(status, BANYAN_ENET);
    good(side, owner_split(side->owner, side->session, side->tree, key, key_of(400, key)));
    rig_close(&rig);
}

#define HELD_NS UINT64_C(20000000000) /* at most */

/* The held call goes on when the figures are there; a test whose figures wait for the call ends too. */
static void let_go_late(void *context)
{
    const uint32_t *figures = context; /* acquire: the look at `held` was before */
    for (uint64_t begun = task_now(); !atomic_load_acquire(figures) && task_now() - begun < HELD_NS;)
        task_sleep(100000);
    atomic_store_release(&failing[1].held, 0);
}

static void what_was_adopted_is_reported_in_the_end(void **state)
{
    struct rig rig;
    rig_open(&rig);
    struct side *side = &rig.sides[0], *other = &rig.sides[1];
    struct owner_selection all = {.tree = other->tree};
    good(other, owner_take(other->owner, other->session, &all, NULL));
    all.tree = side->tree;
    fail_call(1, MEMORY_BOARD_ENTER, false, tree_rights_version(other->tree) + 1);
    good(side, owner_take(side->owner, side->session, &all, NULL));
    assert_int_equal(atomic_load_acquire(&failing[1].kind), 0);
    rig_close(&rig);
}

/* As while the home node hangs. */
static void figures_do_not_wait_for_the_map(void **state)
{
    struct rig rig;
    struct owner_stats stats;
    uint8_t key[8];
    rig_open(&rig);
    struct side *side = &rig.sides[0], *other = &rig.sides[1];
    struct owner_selection all = {.tree = other->tree};
    good(other, owner_take(other->owner, other->session, &all, NULL));
    owner_stats(other->owner, &stats);
    assert_int_equal(stats.owned, 1);
    atomic_store_release(&failing[1].held, 1);
    fail_call(1, MEMORY_BOARD_ENTER, true, tree_rights_version(other->tree) + 2); /* of the settled split */
    good(side, owner_split(side->owner, side->session, side->tree, key, key_of(100, key)));
    while (atomic_load_acquire(&failing[1].kind))
        task_sleep(100000);
    struct thread *thread;
    struct error error = {0};
    uint32_t figures = 0; /* atomic: they are there */
    assert_int_equal(thread_start(&thread, let_go_late, &figures, &error), 0);
    owner_stats(other->owner, &stats);
    assert_int_equal(atomic_load_acquire(&failing[1].held), 1); /* they did not wait for it */
    atomic_store_release(&figures, 1u);                         /* release: see let_go_late */
    assert_int_equal(stats.owned, 2);
    assert_int_equal(stats.ranges, 2);
    thread_join(thread);
    rig_close(&rig);
}

/* ---- who is on the board ---- */

struct census {
    uint32_t count;
    bool named; /* compute node SIDES + 1 is among them */
};

static void count_member(void *context, const struct owner_member *member)
{
    struct census *census = context;
    census->count++;
    census->named = census->named || member->process.compute_id == SIDES + 1;
}

static struct census board_census(const struct side *side)
{
    struct census census = {0};
    good(side, owner_members(side->owner, side->session, count_member, &census));
    return census;
}

/* Another compute node, as programs and the C library are one; it opens no index. */
static int guest_open(struct rig *rig, struct fabric **fabric, struct tree_compute **compute,
                      struct owner_process **process, struct error *error)
{
    const struct fabric_target *target = memory_node_target(rig->memory);
    struct tree_switches switches;
    struct owner_options options;
    owner_options_default(&options);
    assert_int_equal(tree_switches_preset(&switches, "banyan", error), 0);
    *fabric = fabric_local_create_peer(rig->peers, &target, 1, SIDES + 1, error);
    assert_non_null(*fabric);
    failing_prepare(*fabric);
    assert_int_equal(tree_compute_create(compute, *fabric, &switches, error), 0);
    return owner_process_open(process, *compute, &options, NULL, 1, 1, error);
}

static void a_process_that_ends_takes_itself_off_the_board(void **state)
{
    struct rig rig;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct owner_process *process;
    struct error error = {0};
    rig_open(&rig);
    if (guest_open(&rig, &fabric, &compute, &process, &error))
        fail_msg("%s", error.text);
    assert_true(board_census(&rig.sides[0]).named);
    assert_int_equal(owner_process_leave(process, &error), 0);
    owner_process_close(process);
    assert_false(board_census(&rig.sides[0]).named);
    tree_compute_destroy(compute);
    fabric_close(fabric);
    rig_close(&rig);
}

/* A call of the board by a process that was killed since: nobody is connected under such an instance. */
static struct memory_board_reply call_dead(const struct side *side, uint32_t kind, uint64_t number,
                                           uint64_t grant)
{
    struct memory_board_request request = {.kind = kind, .instance = 1000000 + number, .grant = grant};
    struct memory_board_reply reply = {0};
    size_t length;
    good(side, pool_call(tree_session_pool(side->session), 0, &request, sizeof request, &reply, sizeof reply,
                         &length));
    return reply;
}

static void enter_the_dead(const struct side *side, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        call_dead(side, MEMORY_BOARD_ENTER, first + i, 0);
}

static void the_dead_leave_room_on_the_board(void **state)
{
    struct rig rig;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct owner_process *process;
    struct error error = {0};
    rig_open(&rig);
    struct side *side = &rig.sides[0];
    const uint32_t alive = board_census(side).count;
    enter_the_dead(side, 0, MEMORY_BOARD_MEMBERS_MAX - alive);
    if (guest_open(&rig, &fabric, &compute, &process, &error)) /* it makes itself room */
        fail_msg("%s", error.text);
    owner_process_close(process);
    tree_compute_destroy(compute);
    fabric_close(fabric);
    enter_the_dead(side, MEMORY_BOARD_MEMBERS_MAX, 300);
    while (board_census(side).count > alive + 64) /* a keeper finds them */
        task_sleep(1000000);
    rig_close(&rig);
}

struct guest {
    struct rig *rig;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct owner_process *process;
    struct error error;
    int status;
    bool returned; /* atomic */
};

static void guest_come(void *context)
{
    struct guest *guest = context;
    guest->status = guest_open(guest->rig, &guest->fabric, &guest->compute, &guest->process, &guest->error);
    atomic_store_release(&guest->returned, true); /* release: what came of it */
}

/* Nobody can be taken off a full board while the map is being changed: who comes then waits for that. */
static void a_full_board_is_waited_for(void **state)
{
    struct rig rig;
    struct memory_board_reply reply;
    struct thread *thread;
    struct error error = {0};
    struct guest guest = {.rig = &rig};
    rig_open(&rig);
    struct side *side = &rig.sides[0];
    while (reply = call_dead(side, MEMORY_BOARD_LOCK, 0, 0), !reply.grant)
        task_sleep(100000);
    enter_the_dead(side, 0, MEMORY_BOARD_MEMBERS_MAX - board_census(side).count);
    atomic_store_relaxed(&guest_locks, 0u);
    assert_int_equal(thread_start(&thread, guest_come, &guest, &error), 0);
    /* its keeper's and its own; acquire: the thread has returned, which is too early */
    while (atomic_load_relaxed(&guest_locks) < 10 && !atomic_load_acquire(&guest.returned))
        task_sleep(100000);
    call_dead(side, MEMORY_BOARD_UNLOCK, 0, reply.grant);
    thread_join(thread);
    if (guest.status)
        fail_msg("%s", guest.error.text);
    owner_process_close(guest.process);
    tree_compute_destroy(guest.compute);
    fabric_close(guest.fabric);
    rig_close(&rig);
}

/* ---- threads without memory ---- */

static uint32_t sessions_fail, sessions_failed; /* atomic */

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    if (size != sizeof(struct tree_session) ||
        !atomic_load_acquire(&sessions_fail)) /* acquire: of the test */
        return __real_calloc(count, size);
    atomic_add_relaxed(&sessions_failed, 1u); /* a count */
    return NULL;
}

/* A keeper that gets no session at first is there as soon as there is memory: others wait for it. */
static void a_keeper_needs_memory_only_later(void **state)
{
    struct rig rig;
    struct error error = {0};
    rig_open(&rig);
    struct side *side = &rig.sides[0], *other = &rig.sides[1];
    struct owner_selection all = {.tree = other->tree};
    owner_threads_stop(side->threads);
    good(side, owner_detach(side->owner, side->session, side->tree));
    owner_destroy(side->owner);
    struct owner_options options;
    owner_options_default(&options);
    options.tick_ns = 5000000;
    assert_int_equal(owner_create(&side->owner, side->compute, &options, &error), 0);
    good(side, owner_attach(side->owner, side->session, side->tree));
    atomic_store_release(&sessions_fail, 1u); /* release: before the threads */
    assert_int_equal(owner_threads_start(&side->threads, side->owner, 1, 2, &error), 0);
    for (uint64_t limit = task_now() + LIMIT_NS; atomic_load_relaxed(&sessions_failed) < 10;) {
        assert_true(task_now() < limit);
        task_sleep(100000);
    }
    atomic_store_release(&sessions_fail, 0u);
    good(other, owner_take(other->owner, other->session, &all, NULL)); /* of a shared range: all adopt it */
    while (tree_rights_version(side->tree) < tree_rights_version(other->tree))
        task_sleep(100000);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_move_between_threads),
        cmocka_unit_test(a_broken_map_is_named),
        cmocka_unit_test(what_is_broken_changes),
        cmocka_unit_test(another_map_is_refused),
        cmocka_unit_test(an_index_is_closed_before_it_is_dropped),
        cmocka_unit_test(nobody_takes_a_dropped_index),
        cmocka_unit_test(what_is_detached_goes_to_others),
        cmocka_unit_test(what_nobody_wanted_is_taken),
        cmocka_unit_test(a_lost_call_does_not_keep_the_lock),
        cmocka_unit_test(what_was_adopted_is_reported_in_the_end),
        cmocka_unit_test(figures_do_not_wait_for_the_map),
        cmocka_unit_test(a_process_that_ends_takes_itself_off_the_board),
        cmocka_unit_test(the_dead_leave_room_on_the_board),
        cmocka_unit_test(a_full_board_is_waited_for),
        cmocka_unit_test(a_keeper_needs_memory_only_later),
    };
    return cmocka_run_group_tests_name("owner on threads", tests, NULL, NULL);
}
