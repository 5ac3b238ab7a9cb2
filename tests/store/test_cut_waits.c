/*
 * test_cut_waits.c - B2 and B3 of changes that wait for another process: they hold up no opening of a cut,
 * and save for the cuts that were opened meanwhile before they are made here after all. One thread, one
 * process: keys from "m" on are another's, which never serves them, until this process takes them over in the
 * middle of a change.
 */
#include "logged_store.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/cut.h"
#include "store/slot.h"
#include "tree/rights.h"

#define THEIRS  3u  /* keys of the other's range */
#define MANY    40u /* more than tree_multi_put works on at once */
#define OLD     "old"
#define NEW     "new"
#define MIDDLE  "m"
#define KEY_MAX 16u

/* When the other's range becomes this process's, in the middle of a change that was sent to it. UNSENT: it is
 * on its way here from the beginning, so nothing is sent. SERVED: never, and the other one does it. */
enum moment { IN_THE_CALL, IN_THE_WAIT, BEHIND_SOME_WAITS, UNSENT, SERVED };

struct plan {
    enum moment moment;
    enum kind { PUT, DELETE, MODIFY, BATCH } kind;
};

struct side {
    struct processes processes;
    struct logged_store opened;
    struct store_session *second; /* on the session that hooks may use */
    struct plan plan;
    unsigned calls, waits, gained;
    struct store_cut *before,
        *behind;       /* of our range, opened in the call; of theirs, opened behind the move */
    char problem[200]; /* of a hook, which cannot fail the test itself */
};

/* ---- ranges ---- */

static void divide(struct side *side, enum tree_right theirs)
{
    struct process *process = side->opened.process;
    const uint64_t version = ++side->processes.version;
    const struct fabric_process other = {.compute_id = 9, .instance = 9};
    const struct tree_rights_row rows[] = {
        {.right = TREE_OWNED, .epoch = 1},
        {.lower = (const uint8_t *)MIDDLE,
         .lower_length = 1,
         .right = theirs,
         .owner = theirs == TREE_OTHERS ? other : (struct fabric_process){0},
         .epoch = 100 + version}};
    process_check(process, tree_rights_adopt(process->spare, process->tree, version,
                                             fabric_incarnation(process->fabric), rows, 2));
}

static void cut_open(struct side *side, bool theirs, struct store_cut **cut)
{
    const struct tree_range range = {.from = theirs ? MIDDLE : NULL,
                                     .from_length = theirs ? 1 : 0,
                                     .to = theirs ? NULL : MIDDLE,
                                     .to_length = theirs ? 0 : 1,
                                     .to_open = !theirs};
    if (store_cut_open_owned(side->second, &range, cut))
        snprintf(side->problem, sizeof side->problem, "no cut of %s: %.150s", theirs ? "theirs" : "ours",
                 tree_session_error(side->opened.process->spare)->text);
}

static void take_over(struct side *side)
{
    divide(side, TREE_OWNED);
    side->gained++;
    cut_open(side, true, &side->behind);
}

/* ---- what is asked of the other process ---- */

static void called(struct side *side)
{
    if (!side->calls++)
        cut_open(side, false, &side->before);
    if (side->plan.moment == IN_THE_CALL && !side->gained)
        take_over(side);
}

static int other_looks_up(void *context, struct tree_session *session, struct tree *tree,
                          struct fabric_process owner, const void *key, size_t key_length, bool settled,
                          void *value, size_t *length)
{
    called(context);
    return BANYAN_EFENCED;
}

static int other_exchanges(void *context, struct tree_session *session, struct tree *tree,
                           struct fabric_process owner, struct tree_exchange *exchange)
{
    called(context);
    return BANYAN_EFENCED;
}

static int other_does_many(void *context, struct tree_session *session, struct tree *tree,
                           struct fabric_process owner, struct tree_forwarded *items, uint32_t count)
{
    const struct side *side = context;
    called(context);
    for (uint32_t i = 0; i < count; i++)
        items[i].status = side->plan.moment == SERVED ? 0 : BANYAN_EFENCED;
    return 0;
}

static int wait_for(void *context, struct tree_session *session, struct tree *tree,
                    struct fabric_process owner, uint64_t since)
{
    struct side *side = context;
    const bool now = side->plan.moment == IN_THE_WAIT || side->waits == 2;
    if (!side->waits++ && side->plan.moment == UNSENT)
        cut_open(side, false, &side->before);
    if (now && !side->gained)
        take_over(side);
    return side->problem[0] ? BANYAN_EUNKNOWN : 0;
}

static const struct tree_forward forward = {
    .lookup = other_looks_up, .exchange = other_exchanges, .many = other_does_many, .wait = wait_for};

/* ---- keys ---- */

static const char *key_name(unsigned number, char text[KEY_MAX])
{
    if (number < THEIRS)
        snprintf(text, KEY_MAX, "theirs-%u", number);
    else
        snprintf(text, KEY_MAX, "a-%u", number);
    return text;
}

static int put(struct side *side, unsigned number, const char *value)
{
    char key[KEY_MAX];
    key_name(number, key);
    return store_put(side->opened.records, key, strlen(key), value, strlen(value), 0);
}

static enum store_verdict renew(void *context, const struct store_value *old, struct store_value *new)
{
    *new = (struct store_value){.bytes = (const uint8_t *)NEW, .length = strlen(NEW)};
    return STORE_PUT;
}

/* One of ours, then all of theirs. */
static int put_batch(struct side *side)
{
    struct store_item items[1 + THEIRS];
    char keys[1 + THEIRS][KEY_MAX];
    for (unsigned i = 0; i <= THEIRS; i++) {
        key_name(i ? i - 1 : THEIRS, keys[i]);
        items[i] = (struct store_item){.key = keys[i],
                                       .key_length = strlen(keys[i]),
                                       .value = {.bytes = (const uint8_t *)NEW, .length = strlen(NEW)}};
    }
    return store_multi_put(side->opened.records, items, 1 + THEIRS);
}

static int change(struct side *side)
{
    struct store_session *session = side->opened.records;
    char key[KEY_MAX];
    key_name(0, key);
    switch (side->plan.kind) {
    case PUT:
        return put(side, 0, NEW);
    case DELETE:
        return store_delete(session, key, strlen(key));
    case MODIFY:
        return store_modify(session, key, strlen(key), STORE_NEED_VALUE, renew, NULL, NULL, NULL);
    case BATCH:
        break;
    }
    return put_batch(side);
}

/* ---- what cuts hold ---- */

struct seen {
    unsigned old, new;
};

static bool count_entry(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct seen *seen = context;
    assert_int_equal(value->length, 3);
    if (memcmp(value->bytes, OLD, 3) == 0)
        seen->old++;
    else
        seen->new ++;
    return true;
}

static struct seen cut_read(struct side *side, struct store_cut *cut)
{
    struct seen seen = {0};
    bool ended = false;
    while (!ended)
        process_check(side->opened.process,
                      store_cut_next(side->opened.records, cut, 100, 1 << 20, count_entry, &seen, &ended));
    store_cut_close(cut);
    return seen;
}

/* ---- tests ---- */

static void side_open(struct side *side)
{
    struct error error = {0};
    processes_open(&side->processes, 1, 16 << 20);
    logged_store_begin(&side->opened, &side->processes, "cuts", 1);
    struct process *process = side->opened.process;
    tree_compute_set_forward(process->compute, &forward, side);
    assert_int_equal(store_session_create(&side->second, side->opened.store, process->spare, &error), 0);
    store_session_seed(side->second, 2);
    divide(side, TREE_OWNED);
    for (unsigned i = 0; i <= THEIRS; i++)
        process_check(process, put(side, i, OLD));
    divide(side, side->plan.moment == UNSENT ? TREE_MOVING : TREE_OTHERS);
}

static void side_close(struct side *side)
{
    store_session_destroy(side->second);
    logged_store_close(&side->opened);
    processes_close(&side->processes);
}

static void a_change_that_waits(void **state)
{
    struct side side = {.plan = *(const struct plan *)*state};
    side_open(&side);
    const int status = change(&side);
    assert_string_equal(side.problem, "");
    process_check(side.opened.process, status);
    assert_int_equal(side.gained, 1);
    /* Ours, opened while the change was with the other one: a batch has put its key of ours before. */
    const struct seen ours = cut_read(&side, side.before);
    assert_int_equal(ours.old, side.plan.kind == BATCH ? 0 : 1);
    assert_int_equal(ours.new, side.plan.kind == BATCH ? 1 : 0);
    /* Theirs, opened before it was made here. */
    const struct seen theirs = cut_read(&side, side.behind);
    assert_int_equal(theirs.old, THEIRS);
    assert_int_equal(theirs.new, 0);
    struct store_value value;
    const int found = store_get(side.opened.records, "theirs-0", 8, &value);
    assert_int_equal(found, side.plan.kind == DELETE ? BANYAN_ENOTFOUND : 0);
    if (!found)
        assert_memory_equal(value.bytes, NEW, 3);
    side_close(&side);
}

/* ---- what the tree promises to the layer above ---- */

struct heard {
    bool announced;
    unsigned withdrawn, again, of_batches;
};

static bool hear_withdrawn(void *context)
{
    struct heard *heard = context;
    const bool was = heard->announced;
    heard->withdrawn += was;
    heard->announced = false;
    return was;
}

static void hear_announced(void *context, const void *key, size_t key_length)
{
    struct heard *heard = context;
    heard->again += !heard->announced;
    heard->of_batches += !key;
    heard->announced = true;
}

/* A batch that is longer than what is worked on at once: the other process makes its beginning, and the rest
 * is put here, behind an announcement of all of it. */
static void a_long_batch_is_announced_again(void **state)
{
    struct side side = {.plan = {.moment = SERVED}};
    side_open(&side);
    struct process *process = side.opened.process;
    struct heard heard = {.announced = true};
    struct tree_announcer announcer = {
        .tree = process->tree, .withdraw = hear_withdrawn, .announce = hear_announced, .context = &heard};
    struct tree_item items[MANY];
    char keys[MANY][KEY_MAX], old[MANY][FORMAT_VALUE_MAX];
    struct store_raw raw;
    store_slot_inline(&raw, &(struct store_value){.bytes = (const uint8_t *)NEW, .length = 3});
    for (unsigned i = 0; i < MANY; i++) {
        key_name(i, keys[i]);
        items[i] = (struct tree_item){.key = keys[i],
                                      .key_length = strlen(keys[i]),
                                      .value = raw.bytes,
                                      .length = raw.length,
                                      .old = old[i]};
    }
    tree_session_add_announcer(process->session, &announcer);
    process_check(process, tree_multi_put(process->session, process->tree, items, MANY));
    assert_string_equal(side.problem, "");
    assert_true(heard.announced);
    assert_int_equal(heard.withdrawn, 1);
    assert_int_equal(heard.again, 1);
    assert_int_equal(heard.of_batches, 1);
    tree_session_remove_announcer(process->session, &announcer);
    store_cut_close(side.before);
    side_close(&side);
}

#define KINDS (BATCH + 1)
#define PLANS (KINDS * (UNSENT + 1))

int main(void)
{
    static struct plan plans[PLANS];
    static char names[PLANS][80];
    static const char *const kinds[] = {"a put", "a deletion", "a modification", "a batch"};
    static const char *const moments[] = {"taken over in the call", "taken over in the wait",
                                          "taken over behind some waits", "not sent at all"};
    struct CMUnitTest tests[PLANS + 1] = {cmocka_unit_test(a_long_batch_is_announced_again)};
    for (unsigned i = 0; i < PLANS; i++) {
        plans[i] = (struct plan){.moment = i / KINDS, .kind = i % KINDS};
        snprintf(names[i], sizeof names[i], "%s waits, %s", kinds[i % KINDS], moments[i / KINDS]);
        tests[1 + i] = (struct CMUnitTest){
            .name = names[i], .test_func = a_change_that_waits, .initial_state = &plans[i]};
    }
    return cmocka_run_group_tests_name("store_cut_waits", tests, NULL, NULL);
}
