/*
 * test_failures.c - the store's failure loops: each call with the first chance of the network, the memory or
 * the compute node to fail, then with the second, and so on (rig.h). Records and pieces are part of it: none
 * has two owners, and every answer tells what was done.
 */
#include "rig.h"

#include <stdio.h>
#include <string.h>

#include "store/audit.h"
#include "store/defrag.h"

#define FAR UINT64_C(1000000000)

static void stores(struct rig_options *options)
{
    store_geometry(&options->geometry);
    options->geometry.key_bytes = 60;
    options->geometry.leaf_bytes = 2048;
    options->geometry.internal_bytes = 1024;
    options->pool_bytes = 8 << 20;
    options->chunk_bytes = 128 << 10;
    options->nodes = 2;
    options->store = true;
}

static void fill(struct rig *rig)
{
    rig_fill(rig, 0, 60, 1);
}

static int worst(int status, int one)
{
    return status ? status : one;
}

static int not_there(int status)
{
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

/* Only one key is used at a time, so a static one is enough. */
static const void *key_of(const struct rig *rig, unsigned number, size_t *length)
{
    static uint8_t key[FORMAT_KEY_MAX];
    *length = rig_key(rig, number, key);
    return key;
}

/* ---- one key ---- */

static int get(struct rig *rig, unsigned number)
{
    size_t length;
    const void *key = key_of(rig, number, &length);
    struct store_value value;
    int status = store_get(rig->ours.store_session, key, length, &value);
    if (!status)
        assert_int_equal(rig_number(&value), rig->entries[number].after);
    if (status == BANYAN_ENOTFOUND)
        assert_int_equal(rig->entries[number].after, 0);
    return not_there(status);
}

static int stat(struct rig *rig, unsigned number)
{
    size_t length;
    const void *key = key_of(rig, number, &length);
    struct store_value value;
    int status = store_stat(rig->ours.store_session, key, length, &value);
    if (!status)
        assert_int_equal(value.length, rig_size(rig->entries[number].after));
    return not_there(status);
}

static int put(struct rig *rig, unsigned number, uint64_t after, uint64_t expires)
{
    size_t length;
    const void *key = key_of(rig, number, &length);
    int status = store_put(rig->ours.store_session, key, length, rig_bytes(after), rig_size(after), expires);
    rig_note(rig, number, after, status);
    return status;
}

static int drop(struct rig *rig, unsigned number)
{
    size_t length;
    const void *key = key_of(rig, number, &length);
    int status = store_delete(rig->ours.store_session, key, length);
    if (status == BANYAN_ENOTFOUND)
        assert_int_equal(rig->entries[number].after, 0);
    rig_note(rig, number, 0, not_there(status));
    return not_there(status);
}

enum modification { REPLACE, EXPIRE, REMOVE, LEAVE };
struct modify {
    enum modification what;
    uint64_t after;
};

static enum store_verdict modify_change(void *context, const struct store_value *old, struct store_value *new)
{
    const struct modify *modify = context;
    switch (modify->what) {
    case REPLACE:
        *new = (struct store_value){.bytes = rig_bytes(modify->after), .length = rig_size(modify->after)};
        return STORE_PUT;
    case EXPIRE:
        new->expires = FAR;
        return old ? STORE_PUT : STORE_KEEP;
    case REMOVE:
        return STORE_REMOVE;
    default:
        return STORE_KEEP;
    }
}

static int modify(struct rig *rig, unsigned number, enum modification what, enum store_need need)
{
    size_t length;
    const void *key = key_of(rig, number, &length);
    struct modify modify = {what, number + 1001};
    struct store_value old;
    bool existed;
    uint64_t before = rig->entries[number].after;
    int status =
        store_modify(rig->ours.store_session, key, length, need, modify_change, &modify, &old, &existed);
    if (!status) {
        assert_int_equal(existed, before != 0);
        assert_int_equal(old.length, before ? rig_size(before) : 0);
    }
    rig_note(rig, number, what == REPLACE ? modify.after : what == REMOVE ? 0 : before, status);
    return status;
}

static int points(struct rig *rig)
{
    static const unsigned reads[] = {0, 2, 4, 6, 11, 100};
    int status = 0;
    for (unsigned i = 0; i < sizeof reads / sizeof *reads; i++) {
        status = worst(status, get(rig, reads[i]));
        status = worst(status, stat(rig, reads[i]));
    }
    return status;
}

/* From each size to each other, and back to nothing. */
static int changes(struct rig *rig)
{
    int status = put(rig, 20, 700, 0);              /* 21: a record, to pieces */
    status = worst(status, put(rig, 27, 100, 0));   /* pieces to inline */
    status = worst(status, put(rig, 28, 303, FAR)); /* inline to record */
    status = worst(status, put(rig, 29, 303, 0));   /* record to record */
    status = worst(status, put(rig, 80, 1404, 0));  /* nothing to pieces */
    status = worst(status, put(rig, 81, 1001, FAR));
    status = worst(status, drop(rig, 34));
    status = worst(status, drop(rig, 35));
    status = worst(status, drop(rig, 11));
    status = worst(status, drop(rig, 90));
    return status;
}

static int modifications(struct rig *rig)
{
    static const unsigned numbers[] = {40, 41, 42, 43, 47, 48, 59}; /* of every size */
    int status = 0;
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        status = worst(status, modify(rig, numbers[i], EXPIRE, STORE_NEED_LENGTH));
    status = worst(status, modify(rig, 0, REPLACE, STORE_NEED_VALUE));
    status = worst(status, modify(rig, 2, REPLACE, STORE_NEED_VALUE));
    status = worst(status, modify(rig, 7, REPLACE, STORE_NEED_LENGTH));
    status = worst(status, modify(rig, 5, REMOVE, STORE_NEED_VALUE));
    status = worst(status, modify(rig, 11, REMOVE, STORE_NEED_LENGTH));
    status = worst(status, modify(rig, 20, LEAVE, STORE_NEED_VALUE));
    status = worst(status, modify(rig, 19, REPLACE, STORE_NEED_VALUE));
    status = worst(status, modify(rig, 95, REPLACE, STORE_NEED_VALUE));
    status = worst(status, modify(rig, 96, REMOVE, STORE_NEED_VALUE));
    return status;
}

/* ---- many keys ---- */

#define MANY 40u
static struct {
    struct store_item items[MANY];
    uint8_t keys[MANY][FORMAT_KEY_MAX];
    uint8_t values[MANY][66000];
} many;

static int many_puts(struct rig *rig)
{
    memset(many.items, 0, sizeof many.items);
    for (unsigned i = 0; i < MANY; i++) {
        uint64_t after = 2001 + i;
        memcpy(many.values[i], rig_bytes(after), rig_size(after));
        many.items[i] = (struct store_item){.key = many.keys[i],
                                            .key_length = rig_key(rig, 30 + i, many.keys[i]),
                                            .value = {.bytes = many.values[i], .length = rig_size(after)}};
    }
    int status = store_multi_put(rig->ours.store_session, many.items, MANY);
    for (unsigned i = 0; i < MANY; i++)
        rig_note(rig, 30 + i, 2001 + i, many.items[i].status);
    return status;
}

static int many_gets(struct rig *rig)
{
    int worst_status = 0;
    for (unsigned values = 0; values < 2; values++) {
        memset(many.items, 0, sizeof many.items);
        for (unsigned i = 0; i < MANY; i++)
            many.items[i] =
                (struct store_item){.key = many.keys[i], .key_length = rig_key(rig, 30 + i, many.keys[i])};
        int status = store_multi_get(rig->ours.store_session, many.items, MANY, values);
        for (unsigned i = 0; i < MANY; i++) {
            assert_true(status || !not_there(many.items[i].status));
            if (!many.items[i].status && values)
                assert_int_equal(rig_number(&many.items[i].value), rig->entries[30 + i].after);
            if (many.items[i].status == BANYAN_ENOTFOUND)
                assert_int_equal(rig->entries[30 + i].after, 0);
        }
        worst_status = worst(worst_status, status);
    }
    return worst_status;
}

/* ---- ranges ---- */

static bool visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    const uint8_t *bytes = key;
    (void)key_length;
    if (value->bytes)
        rig_number(value);
    assert_int_equal(bytes[2], 0);
    ++*(unsigned *)context;
    return true;
}

/* After a failure with an unknown outcome, an entry exists or not. */
static void count_is_plausible(const struct rig *rig, uint64_t count)
{
    unsigned least = 0, unsure = 0;
    for (unsigned i = 0; i < rig->entry_count; i++) {
        const struct rig_entry *entry = &rig->entries[i];
        bool open = entry->status == BANYAN_EUNKNOWN && !entry->before != !entry->after;
        unsure += open;
        least += !open && (entry->status ? entry->before : entry->after);
    }
    assert_in_range(count, least, least + unsure);
}

static int scans(struct rig *rig)
{
    int worst_status = 0;
    for (unsigned way = 0; way < 4; way++) {
        const struct tree_range all = {.reverse = way & 1};
        unsigned seen = 0;
        int status = store_scan(rig->ours.store_session, &all, way & 2 ? STORE_SCAN_VALUES : STORE_SCAN_KEYS,
                                visit, &seen);
        if (!status)
            count_is_plausible(rig, seen);
        worst_status = worst(worst_status, status);
    }
    const struct tree_range all = {.limit = 0};
    uint64_t count = 0;
    int status = store_count(rig->ours.store_session, &all, &count);
    if (!status)
        count_is_plausible(rig, count);
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = sizeof key;
    status = worst(status, store_sample(rig->ours.store_session, key, &length));
    return worst(worst_status, status);
}

static int delete_range(struct rig *rig)
{
    uint8_t from[FORMAT_KEY_MAX], to[FORMAT_KEY_MAX];
    const struct tree_range range = {.from = from,
                                     .from_length = rig_key(rig, 10, from),
                                     .to = to,
                                     .to_length = rig_key(rig, 40, to),
                                     .to_open = true};
    uint64_t count = 0;
    int status = store_delete_range(rig->ours.store_session, &range, &count);
    if (!status)
        assert_int_equal(count, 30);
    for (unsigned i = 10; i < 40; i++)
        rig_note(rig, i, 0, status ? BANYAN_EUNKNOWN : 0);
    return status;
}

/* ---- expiry ---- */

/* Every second key has expired: it counts as absent for every call, before the sweep and after it. */
static void fill_expired(struct rig *rig)
{
    fill(rig);
    for (unsigned i = 0; i < 60; i += 2) {
        size_t length;
        uint64_t value = i == 20 ? 700 : i + 1; /* pieces among them */
        const void *key = key_of(rig, i, &length);
        assert_int_equal(
            store_put(rig->others.store_session, key, length, rig_bytes(value), rig_size(value), 2000), 0);
        rig->entries[i] = (struct rig_entry){0};
    }
    rig->now_ms = 3000;
}

static int sweep(struct rig *rig)
{
    struct store_sweep sweep = {.cursor_length = 0};
    int status = 0;
    for (unsigned i = 0; i < 6 && !sweep.passes && !status; i++)
        status = store_sweep_step(rig->ours.store_session, &sweep, 25);
    if (!status) {
        assert_int_equal(sweep.passes, 1);
        assert_in_range(sweep.last_pass_removed, 0, 30);
    }
    return status;
}

static int expired_points(struct rig *rig)
{
    int status = get(rig, 0);
    status = worst(status, get(rig, 2));
    status = worst(status, get(rig, 6));
    status = worst(status, get(rig, 20));
    status = worst(status, stat(rig, 8));
    status = worst(status, drop(rig, 14));
    status = worst(status, drop(rig, 26));
    status = worst(status, drop(rig, 34));
    status = worst(status, modify(rig, 30, REPLACE, STORE_NEED_VALUE));
    status = worst(status, modify(rig, 32, LEAVE, STORE_NEED_LENGTH));
    status = worst(status, modify(rig, 38, LEAVE, STORE_NEED_VALUE));
    status = worst(status, put(rig, 40, 606, 0));
    return worst(status, scans(rig));
}

/* ---- moving ---- */

static bool every(void *context, gaddr block)
{
    (void)context;
    return gaddr_offset(block) != 0;
}

/* No key changes, whatever the walk comes to. */
static int moves(struct rig *rig)
{
    struct store_defrag defrag = {.chosen = every};
    bool any, done = false;
    int status = store_defrag_begin(rig->ours.store_session, &defrag, &any);
    assert_true(any);
    for (unsigned steps = 0; !done && steps < 8; steps++)
        status = worst(status, store_defrag_step(rig->ours.store_session, &defrag, 20, &done));
    assert_true(done || status);
    if (!status && defrag.counts.unanswered) /* what was passed over has to be explained too */
        return defrag.counts.unknown ? BANYAN_EUNKNOWN : BANYAN_ENET;
    if (!status) {
        assert_in_range(defrag.counts.hits, 30, 200);
        assert_in_range(defrag.counts.misses, 0, 1); /* a read that led nowhere */
    }
    return status;
}

/* ---- checking ---- */

static int check(struct rig *rig)
{
    struct store_check_report report;
    int status = store_check(rig->ours.store_session, &report, NULL, NULL);
    if (!status)
        assert_int_equal(report.tree.entries, 60);
    return status;
}

static void no_problem(void *context, const char *text)
{
    (void)context;
    fail_msg("%s", text);
}

/* A compute node has died and left blocks behind; no other holds any. */
static void leave_blocks(struct rig *rig)
{
    fill(rig);
    rig_trouble(rig, TROUBLE_DEATH, 30);
    changes(rig);
    rig_mend(rig);
    assert_true(rig_dead(rig));
    for (unsigned i = 0; i < rig->entry_count; i++) {
        uint64_t is = rig_look(rig, i);
        rig->entries[i] = (struct rig_entry){is, is, 0};
    }
    rig_replace_ours(rig);
    rig_replace_others(rig);
}

static int reclaim(struct rig *rig)
{
    const struct audit_options options = {.reclaim = true, .problem = no_problem};
    struct audit_report report;
    int status = audit_run(rig->ours.session, &options, &report);
    if (!status) {
        assert_int_equal(report.problems, 0);
        assert_true(report.blocks_lost > 0);
        assert_int_equal(report.blocks_lost, report.blocks_reclaimed);
    }
    return status;
}

/* The next audit finds the blocks that were not returned. */
static void reclaimed(struct rig *rig, int status, enum trouble kind)
{
    if (rig_dead(rig))
        rig_replace_ours(rig);
    if (status) {
        const struct audit_options options = {.reclaim = true, .problem = no_problem};
        struct audit_report report;
        assert_int_equal(audit_run(rig->ours.session, &options, &report), 0);
    }
    assert_int_equal(rig_account(rig), 0);
    rig_judge(rig, kind);
}

/* ---- opening ---- */

static int open_store(struct rig *rig)
{
    struct store *store = NULL;
    int status = store_open(&store, rig->ours.session, "new", true);
    assert_true(!status == (store != NULL));
    store_close(store);
    return status;
}

static void opened(struct rig *rig, int status, enum trouble kind)
{
    struct store *store = NULL;
    (void)status;
    assert_int_equal(store_open(&store, rig->others.session, "new", true), 0);
    store_close(store);
    rig_locks_are_free(rig);
    assert_int_equal(store_open(&store, rig->others.session, "new", false), 0);
    store_close(store);
    assert_int_equal(store_open(&store, rig->others.session, "older", false), BANYAN_ENOTFOUND);
}

/* Of many chances to fail some are left out, different ones for each trouble. */
#define SOME                                                                                                 \
    {                                                                                                        \
        0, 5, 7, 17, 3, 3, 3, 7, 1                                                                           \
    }

static void loop(struct rig_scenario scenario)
{
    scenario.options = stores;
    rig_loop_all(&scenario);
}

static void points_survive(void **state)
{
    (void)state;
    loop((struct rig_scenario){.name = "points", .prepare = fill, .act = points, .stride = SOME});
    loop((struct rig_scenario){.name = "changes", .prepare = fill, .act = changes, .stride = SOME});
    loop((struct rig_scenario){
        .name = "modifications", .prepare = fill, .act = modifications, .stride = SOME});
}

static void many_keys_survive(void **state)
{
    (void)state;
    loop((struct rig_scenario){.name = "many puts", .prepare = fill, .act = many_puts, .stride = SOME});
    loop((struct rig_scenario){.name = "many gets", .prepare = fill, .act = many_gets, .stride = SOME});
}

static void ranges_survive(void **state)
{
    (void)state;
    loop((struct rig_scenario){.name = "scans", .prepare = fill, .act = scans, .stride = SOME});
    loop((struct rig_scenario){.name = "delete range", .prepare = fill, .act = delete_range, .stride = SOME});
}

static void expiry_survives(void **state)
{
    (void)state;
    loop((struct rig_scenario){.name = "sweep", .prepare = fill_expired, .act = sweep, .stride = SOME});
    loop((struct rig_scenario){
        .name = "expired points", .prepare = fill_expired, .act = expired_points, .stride = SOME});
}

static void moves_survive(void **state)
{
    (void)state;
    loop((struct rig_scenario){.name = "moves", .prepare = fill, .act = moves, .stride = SOME});
}

static void checks_survive(void **state)
{
    (void)state;
    loop((struct rig_scenario){.name = "check", .prepare = fill, .act = check, .stride = SOME});
    loop((struct rig_scenario){
        .name = "reclaim",
        .prepare = leave_blocks,
        .act = reclaim,
        .judge = reclaimed,
        .stride = SOME,
        .without = 1u << TROUBLE_ADDRESS, /* a wild address is a problem to report */
    });
    loop((struct rig_scenario){
        .name = "open", .prepare = fill, .act = open_store, .judge = opened, .stride = SOME});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_survive), cmocka_unit_test(many_keys_survive),
        cmocka_unit_test(ranges_survive), cmocka_unit_test(expiry_survives),
        cmocka_unit_test(moves_survive),  cmocka_unit_test(checks_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
