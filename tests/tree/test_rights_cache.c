/*
 * test_rights_cache.c - what a process may answer from what it knows of its ranges: only while its read lease
 * lives (O2), nothing of before a range was lost (O1), and of a write what the pool has (O5). Two compute
 * nodes over the local backend; the first caches, the second is the successor. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/atomic.h"
#include "base/error.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "owners.h"
#include "side.h"
#include "stepper.h"
#include "tree/announce.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/owned_cache_private.h"
#include "tree/owned_cache_use.h"
#include "tree/session.h"

#define VALUE_BYTES 80u
#define KEYS        8u
#define KEY         5u    /* what all is about */
#define TRIES       2000u /* until a tenth of them has got something into the cache, for sure */

enum { A, B, SIDES };

struct rig {
    struct memory_node *memory;
    struct side sides[SIDES];
    struct owners_way way; /* of A to B */
    const struct fabric_ops *plain;
    struct fabric_ops ops;      /* A's, with a read lease */
    struct tree_session *other; /* A's second one */
    uint64_t version;
};

/* The lease of A, which the fabric's functions ask for. */
static struct lease {
    struct rig *rig;
    bool lapsed;
    bool lost; /* it comes back when the range is B's, and B has written */
    unsigned pauses;
} lease;

static bool lease_alive(const struct fabric *fabric)
{
    return !lease.lapsed;
}

static struct fabric_process lease_self(const struct fabric *fabric)
{
    return (struct fabric_process){.instance = 1, .compute_id = fabric->capabilities.compute_id};
}

static const struct fabric_peer_ops peers = {.self = lease_self, .lease_alive = lease_alive};

/* ---- the rig ---- */

static void adopt(struct rig *rig, unsigned side, unsigned owner, uint64_t epoch)
{
    const struct side *s = &rig->sides[side];
    struct tree_rights_row row = {.epoch = epoch, .right = side == owner ? TREE_OWNED : TREE_OTHERS};
    if (side != owner)
        row.owner = fabric_self(rig->sides[owner].fabric);
    assert_int_equal(tree_rights_adopt(s->session, s->tree, rig->version, 1, &row, 1), 0);
}

static void give_to(struct rig *rig, unsigned owner)
{
    rig->version++;
    for (unsigned i = 0; i < SIDES; i++)
        adopt(rig, i, owner, rig->version);
}

static size_t key_make(uint64_t number, uint8_t key[8])
{
    memset(key, 0, 8);
    key[7] = (uint8_t)number;
    return 8;
}

static int put(const struct side *side, uint64_t number, uint8_t what)
{
    uint8_t key[8], value[VALUE_BYTES];
    memset(value, what, sizeof value);
    return tree_upsert(side->session, side->tree, key, key_make(number, key), value, sizeof value);
}

static int get_by(struct tree_session *session, struct tree *tree, uint64_t number)
{
    uint8_t key[8], value[VALUE_BYTES];
    size_t length = sizeof value;
    int status = tree_lookup(session, tree, key, key_make(number, key), value, &length);
    return status ? status : value[0];
}

static int pause_lease(void *context, struct tree_session *session, struct tree *tree)
{
    lease.pauses++;
    lease.lapsed = false;
    if (lease.lost) {
        give_to(lease.rig, B);
        assert_int_equal(put(&lease.rig->sides[B], KEY, 2), 0);
    }
    return 0;
}

/* The range is A's, and each key holds 1. */
static void rig_open(struct rig *rig, enum tree_cache_policy policy, enum tree_read_unit unit)
{
    const struct format_geometry geometry = {
        .key_bytes = 8, .value_bytes = VALUE_BYTES, .leaf_bytes = 2048, .internal_bytes = 1024};
    struct memory_options options = {.pool_bytes = 16 << 20};
    struct tree_forward forward = owners_forward;
    struct error error = {0};
    *rig = (struct rig){0};
    lease = (struct lease){.rig = rig};
    assert_int_equal(memory_node_create(&rig->memory, &options, &error), 0);
    for (uint16_t i = 0; i < SIDES; i++) {
        struct side *side = &rig->sides[i];
        side_open(side, rig->memory, (uint16_t)(i + 1), unit);
        side->compute->switches.cache_policy = (int)policy;
        if (i) {
            assert_int_equal(tree_open(side->session, "cached", &side->tree), 0);
        } else {
            assert_int_equal(tree_format(side->session), 0);
            assert_int_equal(tree_create(side->session, "cached", &geometry, &side->tree), 0);
        }
    }
    struct side *a = &rig->sides[A], *b = &rig->sides[B];
    assert_int_equal(tree_session_create(&rig->other, a->compute, a->worker, &error), 0);
    rig->plain = a->fabric->ops;
    rig->ops = *rig->plain;
    rig->ops.peers = &peers;
    a->fabric->ops = &rig->ops;
    rig->way.count = 1;
    rig->way.peers[0] = (struct owners_peer){fabric_self(b->fabric), b->session, b->tree};
    forward.pause = pause_lease;
    tree_compute_set_forward(a->compute, &forward, &rig->way);
    give_to(rig, A);
    for (uint64_t key = 1; key <= KEYS; key++)
        assert_int_equal(put(a, key, 1), 0);
}

/* entries: how many keys the index has in the end. */
static void rig_close_as(struct rig *rig, uint64_t entries)
{
    struct tree_check_report report;
    tree_session_destroy(rig->other);
    rig->sides[A].fabric->ops = rig->plain;
    lease = (struct lease){0};
    if (entries) {
        assert_int_equal(tree_check(rig->sides[B].session, rig->sides[B].tree, &report, NULL, NULL), 0);
        assert_int_equal(report.entries, entries);
    }
    for (unsigned i = 0; i < SIDES; i++)
        side_close(&rig->sides[i], false);
    memory_node_destroy(rig->memory);
}

static void rig_close(struct rig *rig)
{
    rig_close_as(rig, KEYS);
}

/* ---- the read lease (O2) ---- */

static int by_lookup(struct rig *rig)
{
    return get_by(rig->sides[A].session, rig->sides[A].tree, KEY);
}

static bool see(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    if (((const uint8_t *)key)[7] == KEY)
        *(int *)context = *(const uint8_t *)value;
    return true;
}

static int by_scan(struct rig *rig)
{
    const struct tree_range all = {0};
    int seen = 0;
    int status = tree_scan(rig->sides[A].session, rig->sides[A].tree, &all, see, &seen);
    return status ? status : seen;
}

/* By and by what it wants is in the cache. From then on the answer is what the successor has written: it
 * waits for the lease, and finds that the range is gone. */
static void needs_the_lease(enum tree_cache_policy policy, enum tree_read_unit unit, int read(struct rig *))
{
    struct rig rig;
    rig_open(&rig, policy, unit);
    lease.lost = true;
    for (unsigned i = 0; i < TRIES && !lease.pauses; i++) {
        lease.lapsed = true;
        int seen = read(&rig);
        assert_int_equal(seen, lease.pauses ? 2 : 1);
    }
    assert_int_equal(lease.pauses, 1);
    rig_close(&rig);
}

static void entries_need_the_lease(void **state)
{
    needs_the_lease(TREE_CACHE_DINOMO, TREE_READ_BUCKET, by_lookup);
}

static void leaves_need_the_lease(void **state)
{
    needs_the_lease(TREE_CACHE_DEX, TREE_READ_BUCKET, by_lookup);
    needs_the_lease(TREE_CACHE_DEX, TREE_READ_LEAF, by_lookup);
}

static void scans_need_the_lease(void **state)
{
    needs_the_lease(TREE_CACHE_DEX, TREE_READ_BUCKET, by_scan);
}

/* ---- an image that comes with a lock ---- */

struct turns {
    struct rig *rig;
    bool begun;
    uint8_t saw;
    int first, second;
};

static enum tree_verdict write_late(void *context, const void *old, size_t old_length, void *value,
                                    size_t *length)
{
    struct turns *turns = context;
    turns->begun = true;
    for (unsigned i = 0; i < 50; i++) /* to where the other waits for the lock */
        task_yield();
    memset(value, 3, VALUE_BYTES);
    *length = VALUE_BYTES;
    return TREE_PUT;
}

static enum tree_verdict keep(void *context, const void *old, size_t old_length, void *value, size_t *length)
{
    struct turns *turns = context;
    turns->saw = old ? *(const uint8_t *)old : 0;
    return TREE_KEEP;
}

static void go_first(void *context)
{
    struct turns *turns = context;
    uint8_t key[8];
    turns->first = tree_modify_here(turns->rig->sides[A].session, turns->rig->sides[A].tree, key,
                                    key_make(KEY, key), write_late, turns);
}

static void go_second(void *context)
{
    struct turns *turns = context;
    uint8_t key[8];
    while (!turns->begun)
        task_yield();
    turns->second =
        tree_modify_here(turns->rig->other, turns->rig->sides[A].tree, key, key_make(KEY, key), keep, turns);
}

/* The second one changes nothing, so no list of its proves the right. */
static void images_need_the_lease(void **state)
{
    struct rig rig;
    rig_open(&rig, TREE_CACHE_INNER, TREE_READ_BUCKET);
    struct turns turns = {.rig = &rig};
    struct worker *worker = worker_create();
    assert_non_null(worker);
    lease.lapsed = true;
    assert_int_equal(worker_spawn(worker, go_first, &turns), 0);
    assert_int_equal(worker_spawn(worker, go_second, &turns), 0);
    worker_run(worker);
    worker_destroy(worker);
    assert_int_equal(turns.first, 0);
    assert_int_equal(turns.second, 0);
    assert_int_equal(turns.saw, 3);
    assert_int_equal(lease.pauses, 1);
    rig_close(&rig);
}

/* ---- what is done ---- */

#define MANY 60u /* keys; several leaves */

static int drop(struct rig *rig, uint64_t number)
{
    uint8_t key[8];
    return tree_delete(rig->sides[A].session, rig->sides[A].tree, key, key_make(number, key));
}

struct emptying {
    struct rig *rig;
    uint64_t key, deaths; /* deaths: of leaves, before the key was deleted */
};

static bool empties(const struct fabric_list *list, void *context)
{
    const struct emptying *emptying = context;
    return emptying->rig->sides[A].compute->deaths != emptying->deaths;
}

/* A's other task looks for another key of the dead leaf, and unlinks it. */
static void unlink_meanwhile(void *context)
{
    const struct emptying *emptying = context;
    struct rig *rig = emptying->rig;
    assert_int_equal(get_by(rig->other, rig->sides[A].tree, MANY), BANYAN_ENOTFOUND);
    lease.lapsed = true;
}

/* A delete that has emptied its leaf finds in the cache that the leaf is unlinked: no list of its stands
 * behind that, and the lease has lapsed. But its own list has proven the right. */
static void a_done_delete_is_not_done_again(void **state)
{
    struct rig rig;
    rig_open(&rig, TREE_CACHE_DEX, TREE_READ_BUCKET);
    struct side *a = &rig.sides[A];
    for (uint64_t key = KEYS + 1; key <= MANY; key++)
        assert_int_equal(put(a, key, 1), 0);
    for (unsigned i = 0; i < TRIES; i++)
        assert_int_equal(get_by(a->session, a->tree, i % MANY + 1), 1);
    struct emptying emptying = {.rig = &rig, .key = MANY, .deaths = a->compute->deaths};
    stepper_hold_answer(a->fabric, empties, unlink_meanwhile, &emptying);
    for (; !stepper_met(a->fabric); emptying.key--)
        assert_int_equal(drop(&rig, emptying.key), 0);
    assert_true(lease.lapsed); /* and was not asked about */
    assert_int_equal(lease.pauses, 0);
    lease.lapsed = false;
    rig_close_as(&rig, emptying.key);
}

/* ---- unknown outcomes ---- */

static bool writes(const struct fabric_list *list, void *context)
{
    for (uint16_t i = 0; i < list->count; i++)
        if (list->commands[i].operation == FABRIC_WRITE)
            return true;
    return false;
}

static void wait_until_cached(struct rig *rig)
{
    for (unsigned i = 0; i < TRIES && !lease.pauses; i++) {
        lease.lapsed = true;
        assert_int_equal(by_lookup(rig), 1);
    }
    assert_int_equal(lease.pauses, 1);
    lease.lapsed = false;
}

/* The leaf was taken from the cache, and whether the write is done is not known. */
static void what_is_unknown_is_not_done_again(void **state)
{
    struct rig rig;
    rig_open(&rig, TREE_CACHE_DEX, TREE_READ_BUCKET);
    wait_until_cached(&rig);
    lease.lapsed = true;
    stepper_kill(rig.sides[A].fabric, writes, 1, NULL);
    assert_int_equal(put(&rig.sides[A], KEY, 4), BANYAN_EUNKNOWN);
    assert_int_equal(lease.pauses, 1);
    rig.version++;
    adopt(&rig, B, B, rig.version);
    assert_int_equal(get_by(rig.sides[B].session, rig.sides[B].tree, KEY), 4);
    rig_close(&rig);
}

/* ---- ranges that were away (O1) ---- */

/* told: A adopts that the range is B's; else it hears of it only by the epoch, when the range is A's again.
 */
static void away_and_back(enum tree_cache_policy policy, bool told)
{
    struct rig rig;
    rig_open(&rig, policy, TREE_READ_BUCKET);
    wait_until_cached(&rig);
    for (unsigned i = 0; i < TRIES; i++) /* the keys beside it too */
        assert_int_equal(get_by(rig.sides[A].session, rig.sides[A].tree, i % KEYS + 1), 1);
    rig.version++;
    adopt(&rig, B, B, rig.version);
    if (told)
        adopt(&rig, A, B, rig.version);
    for (uint64_t key = 1; key <= KEYS; key++)
        assert_int_equal(put(&rig.sides[B], key, 2), 0);
    give_to(&rig, A);
    for (uint64_t key = 1; key <= KEYS; key++)
        assert_int_equal(get_by(rig.sides[A].session, rig.sides[A].tree, key), 2);
    rig_close(&rig);
}

static void a_range_that_was_away_is_not_the_same(void **state)
{
    for (unsigned told = 0; told < 2; told++) {
        away_and_back(TREE_CACHE_DEX, told);
        away_and_back(TREE_CACHE_DINOMO, told);
    }
}

/* ---- ranges that grow ---- */

#define BORDER 40u /* A has what lies below, and what lies above from some version on */

/* The next version: A's range of before and (parts) one above it, the last of them under this epoch. */
static void adopt_parts(struct rig *rig, unsigned parts, uint64_t epoch, bool logged)
{
    uint8_t border[8];
    const struct side *a = &rig->sides[A];
    const struct tree_rights_row rows[2] = {
        {.right = TREE_OWNED, .epoch = parts == 2 ? 1 : epoch, .logged = logged},
        {.lower = border,
         .lower_length = (uint32_t)key_make(BORDER, border),
         .right = TREE_OWNED,
         .epoch = epoch,
         .logged = logged}};
    rig->version++;
    assert_int_equal(tree_rights_adopt(a->session, a->tree, rig->version, 1, rows, parts), 0);
    while (tree_rights_sweep(a->session, a->tree)) /* of what it takes from earlier rights */
        ;
}

/* Whether A answers for the key from its cache. */
static bool answers_from_cache(struct rig *rig)
{
    const struct side *a = &rig->sides[A];
    tree_session_stats_reset(a->session);
    assert_int_equal(get_by(a->session, a->tree, KEY), 1);
    return !tree_session_stats(a->session)->cost.round_trips;
}

/* Whether A answers for the key from its cache still when its range has grown, since the map gives all of it
 * the later part's epoch. known: A had adopted the version in which it got that part; else it had not heard
 * of it. */
static bool kept_by_growth(enum tree_cache_policy policy, bool known, bool logged)
{
    struct rig rig;
    uint8_t border[8];
    rig_open(&rig, policy, TREE_READ_BUCKET);
    const struct side *a = &rig.sides[A];
    assert_int_equal(tree_border_make(a->session, a->tree, border, (uint32_t)key_make(BORDER, border)), 0);
    adopt_parts(&rig, 2, 1, logged);
    for (unsigned tries = 0; !answers_from_cache(&rig); tries++)
        assert_true(tries < TRIES);
    const uint64_t got = rig.version + 1;
    if (known)
        adopt_parts(&rig, 2, got, logged);
    else
        rig.version++;
    adopt_parts(&rig, 1, got, logged);
    const bool kept = answers_from_cache(&rig);
    rig_close(&rig);
    return kept;
}

static void a_range_that_has_grown_is_the_same(void **state)
{
    static const enum tree_cache_policy policies[] = {TREE_CACHE_DEX, TREE_CACHE_DINOMO, TREE_CACHE_BANYAN};
    for (unsigned i = 0; i < sizeof policies / sizeof *policies; i++) {
        assert_true(kept_by_growth(policies[i], true, false));
        assert_false(kept_by_growth(policies[i], false, false));
        assert_false(kept_by_growth(policies[i], true, true)); /* changes were logged under the epoch */
    }
}

/* What is cached of a lost range goes by sweeps, and a range that was never lost stays. */
static void what_is_lost_is_swept(void **state)
{
    static const enum tree_cache_policy policies[] = {TREE_CACHE_DEX, TREE_CACHE_DINOMO};
    for (unsigned i = 0; i < 2; i++) {
        struct rig rig;
        struct tree_cache_stats stats = {0};
        rig_open(&rig, policies[i], TREE_READ_BUCKET);
        wait_until_cached(&rig);
        assert_false(tree_rights_sweep(rig.sides[A].session, rig.sides[A].tree));
        rig.version++;
        adopt(&rig, B, B, rig.version);
        adopt(&rig, A, B, rig.version);
        tree_cache_stats(rig.sides[A].tree, &stats);
        assert_true(stats.leaves.count || policies[i] == TREE_CACHE_DINOMO);
        assert_true(tree_rights_sweep(rig.sides[A].session, rig.sides[A].tree));
        while (tree_rights_sweep(rig.sides[A].session, rig.sides[A].tree))
            ;
        tree_cache_stats(rig.sides[A].tree, &stats);
        assert_int_equal(stats.leaves.count, 0);
        assert_int_equal(stats.leaves.bytes, 0);
        give_to(&rig, A);
        assert_int_equal(get_by(rig.sides[A].session, rig.sides[A].tree, KEY), 1);
        rig_close(&rig);
    }
}

/* ---- ways that lead astray ---- */

/* A has what lies below the border, B the rest. */
static void divide(struct rig *rig)
{
    uint8_t border[8];
    const struct side *a = &rig->sides[A];
    assert_int_equal(tree_border_make(a->session, a->tree, border, (uint32_t)key_make(BORDER, border)), 0);
    rig->version++;
    for (unsigned i = 0; i < SIDES; i++) {
        const struct side *s = &rig->sides[i];
        struct tree_rights_row rows[SIDES] = {{0}, {.lower = border, .lower_length = sizeof border}};
        for (unsigned row = 0; row < SIDES; row++) {
            rows[row].epoch = rig->version;
            rows[row].right = row == i ? TREE_OWNED : TREE_OTHERS;
            if (row != i)
                rows[row].owner = fabric_self(rig->sides[row].fabric);
        }
        assert_int_equal(tree_rights_adopt(s->session, s->tree, rig->version, 1, rows, SIDES), 0);
    }
}

static void begin_in_own_range(struct side *side)
{
    uint8_t own[8];
    const struct format_key key = {own, (uint32_t)key_make(1, own)};
    assert_int_equal(tree_begin(side->session, side->tree), 0);
    assert_int_equal(tree_rights_enter(side->session, side->tree, key), TREE_OWNED);
}

static struct format_link leaf_of(struct side *side, uint64_t number)
{
    uint8_t key[8];
    struct tree_path path;
    const struct format_key sought = {key, (uint32_t)key_make(number, key)};
    assert_int_equal(tree_locate(side->session, side->tree, sought, false, 0, &path), 0);
    return path.link;
}

/* How many leaves are admitted to A's cache while an operation of A's first range READs the leaf that the key
 * leads to, again and again. */
static uint64_t admitted(struct rig *rig, uint64_t number)
{
    struct side *a = &rig->sides[A];
    struct tree_cache_stats before = {0}, after = {0};
    tree_cache_stats(a->tree, &before);
    for (unsigned i = 0; i < TRIES; i++) {
        begin_in_own_range(a);
        const gaddr leaf = leaf_of(a, number).address;
        struct fabric_command read =
            pool_read_command(leaf, a->session->image.bytes, a->tree->layout.geometry.leaf_bytes);
        assert_int_equal(tree_owned_read(a->session, a->tree, leaf, &read, 1), 0);
        tree_rights_leave(a->session);
    }
    tree_cache_stats(a->tree, &after);
    return after.leaves.count - before.leaves.count;
}

/* O5. A stale way may lead to a leaf that is another's by now. */
static void leaves_of_others_are_not_admitted(void **state)
{
    struct rig rig;
    rig_open(&rig, TREE_CACHE_DEX, TREE_READ_LEAF);
    for (uint64_t key = KEYS + 1; key <= MANY; key++)
        assert_int_equal(put(&rig.sides[A], key, 1), 0);
    divide(&rig);
    assert_int_equal(admitted(&rig, MANY), 0);
    assert_int_equal(admitted(&rig, 1), 1);
    rig_close_as(&rig, MANY);
}

static bool reads_a_leaf(const struct fabric_list *list, void *context)
{
    const struct rig *rig = context;
    return list->count == 1 && list->commands[0].operation == FABRIC_READ &&
           list->commands[0].length == rig->sides[A].tree->layout.geometry.leaf_bytes;
}

static void write_by_owner(void *context)
{
    const struct rig *rig = context;
    static uint8_t what;
    assert_int_equal(put(&rig->sides[B], MANY, ++what), 0);
}

/* A's lock keeps B from nothing, so a slot that is cut in a READ under it proves nothing (O1). */
static void leaves_of_others_are_not_judged(void **state)
{
    struct rig rig;
    unsigned cut = 0;
    rig_open(&rig, TREE_CACHE_INNER, TREE_READ_LEAF);
    struct side *a = &rig.sides[A];
    for (uint64_t key = KEYS + 1; key <= MANY; key++)
        assert_int_equal(put(a, key, 1), 0);
    divide(&rig);
    for (uint32_t at = 8; at < a->tree->layout.geometry.leaf_bytes; at += 8) {
        begin_in_own_range(a);
        const struct format_link link = leaf_of(a, MANY);
        stepper_tear(a->fabric, reads_a_leaf, 0, at, write_by_owner, &rig);
        const int status = tree_leaf_settle(a->session, a->tree, link);
        assert_true(stepper_met(a->fabric));
        assert_true(!status || status == TREE_RESTART);
        cut += status == TREE_RESTART;
        tree_rights_leave(a->session);
    }
    assert_true(cut > 0);
    rig_close_as(&rig, MANY);
}

/* ---- writes under way (O5) ---- */

/* A lookup at the writer's compute node while a write is under way: it may wait for the write, or read the
 * pool. */
struct beside {
    struct rig *rig;
    struct thread *thread;
    uint64_t key;
    int value;
    uint32_t done; /* atomic */
};

static void ask_beside(void *context)
{
    struct beside *beside = context;
    struct side *side = &beside->rig->sides[A];
    struct pool_worker *worker;
    struct tree_session *session;
    struct error error;
    assert_int_equal(pool_worker_create(&worker, tree_compute_pool(side->compute), &error), 0);
    assert_int_equal(tree_session_create(&session, side->compute, worker, &error), 0);
    beside->value = get_by(session, side->tree, beside->key);
    tree_session_destroy(session);
    pool_worker_destroy(worker);
    atomic_store_release(&beside->done, 1); /* with the value */
}

static void look_beside(void *context)
{
    struct beside *beside = context;
    struct rig *rig = beside->rig;
    struct error error;
    assert_int_equal(thread_start(&beside->thread, ask_beside, beside, &error), 0);
    for (unsigned i = 0; i < 50 && !atomic_load_acquire(&beside->done); i++)
        task_sleep(1000000);
    assert_int_equal(get_by(rig->sides[B].session, rig->sides[B].tree, KEY), 1);
    if (atomic_load_acquire(&beside->done))
        assert_int_equal(beside->value, 1);
}

static void a_value_is_told_when_the_pool_has_it(void **state)
{
    static const enum tree_cache_policy policies[] = {TREE_CACHE_DEX, TREE_CACHE_DINOMO};
    for (unsigned i = 0; i < 2; i++) {
        struct rig rig;
        rig_open(&rig, policies[i], TREE_READ_BUCKET);
        wait_until_cached(&rig);
        struct beside beside = {.rig = &rig, .key = KEY};
        stepper_hold(rig.sides[A].fabric, writes, look_beside, &beside);
        assert_int_equal(put(&rig.sides[A], KEY, 6), 0);
        assert_true(stepper_met(rig.sides[A].fabric));
        thread_join(beside.thread);
        assert_true(beside.value == 1 || beside.value == 6);
        assert_int_equal(get_by(rig.other, rig.sides[A].tree, KEY), 6);
        rig_close(&rig);
    }
}

/* Whether a lookup waits for a write of A's. */
static bool some_wait(struct rig *rig)
{
    struct owned_waits *waits = &rig->sides[A].tree->owned->waits;
    bool found = false;
    for (unsigned i = 0; i < OWNED_WAIT_LISTS; i++) {
        spinlock_lock(&waits->lists[i].lock);
        for (const struct owned_mark *mark = waits->lists[i].marks; mark; mark = mark->next)
            found = found || mark->waits;
        spinlock_unlock(&waits->lists[i].lock);
    }
    return found;
}

/* The pool has the value, another process has seen it, and the writer has not heard that it is done. */
static void look_behind(void *context)
{
    struct beside *beside = context;
    struct rig *rig = beside->rig;
    struct error error;
    assert_int_equal(get_by(rig->sides[B].session, rig->sides[B].tree, beside->key), 6);
    assert_int_equal(thread_start(&beside->thread, ask_beside, beside, &error), 0);
    while (!atomic_load_acquire(&beside->done) && !some_wait(rig))
        task_sleep(100000);
}

static void what_another_has_seen_is_told(enum tree_cache_policy policy, uint64_t key)
{
    struct rig rig;
    rig_open(&rig, policy, TREE_READ_BUCKET);
    wait_until_cached(&rig);
    struct beside beside = {.rig = &rig, .key = key};
    stepper_hold_answer(rig.sides[A].fabric, writes, look_behind, &beside);
    assert_int_equal(put(&rig.sides[A], key, 6), 0);
    assert_true(stepper_met(rig.sides[A].fabric));
    thread_join(beside.thread);
    assert_int_equal(beside.value, 6);
    rig_close_as(&rig, key > KEYS ? KEYS + 1 : KEYS);
}

/* A new value, and a key that was not there. */
static void nothing_older_is_told_than_another_has_seen(void **state)
{
    static const enum tree_cache_policy policies[] = {TREE_CACHE_DEX, TREE_CACHE_DINOMO, TREE_CACHE_BANYAN};
    for (unsigned i = 0; i < 3; i++) {
        what_another_has_seen_is_told(policies[i], KEY);
        what_another_has_seen_is_told(policies[i], KEYS + 1);
    }
}

/* ---- what a miss costs (Dinomo's equation 1) ---- */

/* By B, which knows nothing of the index yet; the first key is found on the way from the root. */
static void misses_tell_what_they_cost(void **state)
{
    struct rig rig;
    rig_open(&rig, TREE_CACHE_DINOMO, TREE_READ_BUCKET);
    struct side *b = &rig.sides[B];
    give_to(&rig, B);
    const struct owned_cache *cache = b->tree->owned;
    const uint64_t before = cache->miss_cost;
    tree_session_stats_reset(b->session);
    assert_int_equal(get_by(b->session, b->tree, KEY), 1);
    const uint64_t round_trips = tree_session_stats(b->session)->cost.round_trips;
    assert_true(round_trips > 1);
    assert_int_equal(cache->miss_cost, before - before / 64 + round_trips * 1024 / 64);
    const uint64_t learned = cache->miss_cost;
    assert_int_equal(get_by(b->session, b->tree, KEY), 1); /* from the cache */
    assert_int_equal(tree_session_stats(b->session)->cost.round_trips, round_trips);
    assert_int_equal(cache->miss_cost, learned);
    rig_close(&rig);
}

/* ---- the end of an index ---- */

static void a_dropped_index_answers_nothing(void **state)
{
    static const enum tree_cache_policy policies[] = {TREE_CACHE_DEX, TREE_CACHE_DINOMO};
    for (unsigned i = 0; i < 2; i++) {
        struct rig rig;
        rig_open(&rig, policies[i], TREE_READ_BUCKET);
        struct side *a = &rig.sides[A];
        wait_until_cached(&rig);
        assert_int_equal(tree_drop(a->session, "cached", NULL, NULL), 0);
        assert_true(get_by(a->session, a->tree, KEY) < 0);
        assert_true(get_by(rig.other, a->tree, KEY) < 0);
        rig_close_as(&rig, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_need_the_lease),
        cmocka_unit_test(leaves_need_the_lease),
        cmocka_unit_test(scans_need_the_lease),
        cmocka_unit_test(images_need_the_lease),
        cmocka_unit_test(a_done_delete_is_not_done_again),
        cmocka_unit_test(what_is_unknown_is_not_done_again),
        cmocka_unit_test(a_range_that_was_away_is_not_the_same),
        cmocka_unit_test(a_range_that_has_grown_is_the_same),
        cmocka_unit_test(what_is_lost_is_swept),
        cmocka_unit_test(leaves_of_others_are_not_admitted),
        cmocka_unit_test(leaves_of_others_are_not_judged),
        cmocka_unit_test(a_value_is_told_when_the_pool_has_it),
        cmocka_unit_test(nothing_older_is_told_than_another_has_seen),
        cmocka_unit_test(misses_tell_what_they_cost),
        cmocka_unit_test(a_dropped_index_answers_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
