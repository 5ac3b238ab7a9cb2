/*
 * test_defrag.c - moving what belongs to a key to other blocks (store/defrag.h), step by step: values,
 * expiries and keys stay as they are, whatever happens to the key between the moment at which it is met and
 * the exchange stands, and every block has one owner afterwards. One thread; a second session is the other
 * client.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/defrag.h"
#include "stores.h"

#define KEYS 40u

static struct stores stores;
static struct store_session *session, *other;

static int set_up(void **state)
{
    struct world_options options;
    (void)state;
    stores_options_default(&options);
    options.memory_nodes = 2;
    options.fibers = 2;
    assert_int_equal(stores_create(&stores, &options), 0);
    session = stores.world.tasks[0].store_session;
    other = stores.world.tasks[1].store_session;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    int status = stores_check(&stores, NULL);
    if (status)
        fprintf(stderr, "%s\n", stores.world.error.text);
    stores_destroy(&stores);
    return status ? -1 : 0;
}

/* ---- keys ---- */

/* Every third key is too long for a slot. */
static size_t key_of(unsigned number, char key[128])
{
    return (size_t)snprintf(key, 128, "%03u%s", number,
                            number % 3 ? "" : "-which-is-too-long-to-stand-in-a-slot-of-the-index");
}

static size_t length_of(unsigned number)
{
    static const size_t lengths[] = {0, 9, 16, 17, 40, 300, 4096, 65000, 66000, 1500000};
    return number == KEYS - 1 ? 9000000 /* takes more than one exchange */ : lengths[number % 10];
}

static uint64_t expiry_of(unsigned number)
{
    return number % 4 == 3 ? 5000 + number : 0;
}

static void put(struct store_session *by, unsigned number, uint64_t content, uint64_t expires)
{
    char key[128];
    size_t length = length_of(number);
    uint8_t *bytes = malloc(length + 1);
    assert_non_null(bytes);
    stores_fill(content, bytes, length);
    assert_int_equal(store_put(by, key, key_of(number, key), bytes, length, expires), 0);
    free(bytes);
}

static void fill(void)
{
    for (unsigned i = 0; i < KEYS; i++)
        put(other, i, i, expiry_of(i));
}

static void expect(unsigned number, uint64_t content, uint64_t expires)
{
    char key[128];
    struct store_value value;
    assert_int_equal(store_get(other, key, key_of(number, key), &value), 0);
    assert_int_equal(value.length, length_of(number));
    assert_int_equal(value.expires, expires);
    assert_true(stores_filled(content, value.bytes, value.length));
}

static void expect_all(void)
{
    for (unsigned i = 0; i < KEYS; i++)
        expect(i, i, expiry_of(i));
}

static void expect_sound(void)
{
    struct store_check_report report;
    if (stores_check(&stores, &report))
        fail_msg("%s", stores.world.error.text);
    assert_int_equal(report.problems, 0);
}

/* ---- passes ---- */

static bool every(void *context, gaddr block)
{
    (void)block;
    ++*(unsigned *)context;
    return true;
}

static bool none(void *context, gaddr block)
{
    (void)block;
    ++*(unsigned *)context;
    return false;
}

/* A pass with so many entries a step. Returns the worst status. */
static int pass(struct store_defrag *defrag, uint32_t entries)
{
    bool any, done = false;
    int worst = store_defrag_begin(session, defrag, &any);
    assert_true(any);
    for (unsigned steps = 0; !done; steps++) {
        int status = store_defrag_step(session, defrag, entries, &done);
        worst = worst ? worst : status;
        assert_true(steps < 1000);
    }
    return worst;
}

static void everything_moves(void **state)
{
    (void)state;
    unsigned asked = 0;
    fill();
    for (uint32_t entries = 1; entries <= 64; entries *= 8) {
        struct store_defrag defrag = {.chosen = every, .chosen_context = &asked};
        struct store_check_report before;
        assert_int_equal(stores_check(&stores, &before), 0);
        assert_int_equal(pass(&defrag, entries), 0);
        assert_int_equal(defrag.counts.passes, 1);
        assert_int_equal(defrag.counts.entries, KEYS);
        assert_int_equal(defrag.counts.misses, 0);
        if (entries == 1) /* later, pieces that others have freed are cut in another way */
            assert_int_equal(defrag.counts.hits, before.record_blocks + before.tree.key_blocks);
        /* values of 0, 9 (4 of them expire) and 16 bytes under short keys need no block */
        assert_int_equal(defrag.counts.key_hits + defrag.counts.key_misses, KEYS);
        assert_in_range(defrag.counts.key_hits, KEYS * 7 / 10, KEYS - 1);
        expect_all();
        expect_sound();
    }
}

static bool half(void *context, gaddr block)
{
    return random_mix(block ^ *(uint64_t *)context) & 1;
}

/* Of values in pieces some stay where they are. */
static void half_of_it_moves(void **state)
{
    (void)state;
    fill();
    for (uint64_t salt = 1; salt <= 8; salt++) {
        struct store_defrag defrag = {.chosen = half, .chosen_context = &salt};
        assert_int_equal(pass(&defrag, 256), 0);
        assert_true(defrag.counts.hits > KEYS);
        expect_all();
        expect_sound();
    }
}

static void what_is_not_chosen_stays(void **state)
{
    (void)state;
    unsigned asked = 0;
    struct store_stats before, after;
    struct store_defrag defrag = {.chosen = none, .chosen_context = &asked};
    fill();
    store_stats(stores.world.computes[0].store, &before);
    assert_int_equal(pass(&defrag, 256), 0);
    store_stats(stores.world.computes[0].store, &after);
    assert_true(asked > KEYS / 2);
    assert_int_equal(defrag.counts.hits, 0);
    assert_int_equal(defrag.counts.key_misses, KEYS);
    assert_int_equal(after.records_written, before.records_written);
    expect_all();
}

/* ---- others change the key meanwhile ---- */

enum meddling { PUT_OTHER, PUT_SAME, EXPIRE_LATER, DELETE_IT, DELETE_AND_PUT };

struct meddler {
    enum meddling what;
    bool done[KEYS];
    unsigned next; /* the key that is asked about: keys are met in order */
};

static enum store_verdict later(void *context, const struct store_value *old, struct store_value *new)
{
    (void)context;
    assert_non_null(old);
    *new = (struct store_value){.expires = 7777};
    return STORE_PUT;
}

static void meddle(struct meddler *meddler, unsigned number)
{
    char key[128], taker[128];
    size_t length = key_of(number, key);
    switch (meddler->what) {
    case PUT_OTHER:
        put(other, number, number + 1000, 0);
        break;
    case PUT_SAME:
        put(other, number, number, expiry_of(number));
        break;
    case EXPIRE_LATER:
        assert_int_equal(store_modify(other, key, length, STORE_NEED_LENGTH, later, NULL, NULL, NULL), 0);
        break;
    case DELETE_AND_PUT:
        assert_int_equal(store_delete(other, key, length), 0);
        memcpy(taker, key, length); /* takes the block of a long key, so that the key gets another */
        taker[0] = 'z';
        assert_int_equal(store_put(other, taker, length, "", 0, 0), 0);
        put(other, number, number + 1000, 0);
        assert_int_equal(store_delete(other, taker, length), 0);
        break;
    case DELETE_IT:
        assert_int_equal(store_delete(other, key, length), 0);
    }
}

static unsigned meddled; /* the key whose move is under way */

/* Asked about a block of the key that the walk has met: between its scan and its exchange. */
static bool chosen_and_changed(void *context, gaddr block)
{
    struct meddler *meddler = context;
    (void)block;
    if (!meddler->done[meddled]) {
        meddler->done[meddled] = true;
        meddle(meddler, meddled);
    }
    return true;
}

static void expect_meddled(enum meddling what, unsigned number)
{
    char key[128];
    struct store_value value;
    if (what == DELETE_IT)
        assert_int_equal(store_get(other, key, key_of(number, key), &value), BANYAN_ENOTFOUND);
    else if (what == PUT_SAME)
        expect(number, number, expiry_of(number));
    else if (what == EXPIRE_LATER)
        expect(number, number, 7777);
    else
        expect(number, number + 1000, 0);
}

static void changes_stand(void **state)
{
    (void)state;
    for (enum meddling what = PUT_OTHER; what <= DELETE_AND_PUT; what++) {
        struct meddler meddler = {.what = what};
        fill();
        for (unsigned i = 0; i < KEYS; i++) {
            struct store_defrag defrag = {.chosen = chosen_and_changed, .chosen_context = &meddler};
            bool done;
            meddled = i;
            if (i > 0)
                defrag.cursor_length = key_of(i - 1, (char *)defrag.cursor);
            assert_int_equal(store_defrag_step(session, &defrag, 1, &done), 0);
            if (!meddler.done[i])
                continue; /* no block of it lies outside */
            if (what != DELETE_IT)
                expect_meddled(what, i);
            assert_true(defrag.counts.misses >= 1 || i % 3 == 0);
        }
        for (unsigned i = 0; i < KEYS; i++)
            if (meddler.done[i])
                expect_meddled(what, i);
            else
                expect(i, i, expiry_of(i));
        expect_sound();
    }
}

/* ---- expiries ---- */

static void what_expired_is_removed(void **state)
{
    (void)state;
    unsigned asked = 0;
    struct store_defrag defrag = {.chosen = every, .chosen_context = &asked};
    struct store_check_report report;
    fill();
    stores_now(&stores, 6000);
    assert_int_equal(pass(&defrag, 16), 0);
    for (unsigned i = 0; i < KEYS; i++)
        if (!expiry_of(i))
            expect(i, i, 0);
    assert_int_equal(stores_check(&stores, &report), 0);
    assert_in_range(report.tree.entries, KEYS * 3 / 4, KEYS - 8); /* records are; values in slots are swept */
}

/* ---- no room ---- */

static void without_room_it_ends(void **state)
{
    (void)state;
    unsigned asked = 0;
    fill();
    for (unsigned i = 0; i < stores.world.options.memory_nodes; i++)
        memory_node_refuse(stores.world.memory[i], UINT64_MAX);
    /* What the worker holds back is used up first. Keys that find no room do not keep others from moving. */
    struct store_defrag refused = {.refused = 0};
    for (unsigned i = 0; i < 100 && (i == 0 || refused.counts.hits > 0); i++) {
        refused = (struct store_defrag){.chosen = every, .chosen_context = &asked};
        assert_int_equal(pass(&refused, 256), 0);
    }
    assert_true(refused.counts.hits == 0 && refused.refused > KEYS / 4);
    assert_true(refused.counts.misses >= refused.refused);
    /* Until so many have found none that it is in vain. */
    bool any, done = false;
    assert_int_equal(store_defrag_begin(session, &refused, &any), 0);
    refused.refused = STORE_DEFRAG_REFUSED_MAX - 10;
    assert_int_equal(store_defrag_step(session, &refused, KEYS, &done), BANYAN_ENOSPC);
    assert_true(done && refused.refused == STORE_DEFRAG_REFUSED_MAX);
    for (unsigned i = 0; i < stores.world.options.memory_nodes; i++)
        memory_node_refuse(stores.world.memory[i], 0);
    expect_all();
    struct store_defrag defrag = {.chosen = every, .chosen_context = &asked};
    assert_int_equal(pass(&defrag, 256), 0);
    expect_all();
}

/* ---- nothing to do ---- */

static void nothing_to_empty(void **state)
{
    (void)state;
    struct store_defrag defrag = {.chosen = NULL};
    bool any = true, done = false;
    assert_int_equal(store_defrag_begin(session, &defrag, &any), 0);
    assert_false(any);
    assert_int_equal(store_defrag_step(session, &defrag, 10, &done), 0);
    assert_true(done);
    store_defrag_end(session, &defrag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(half_of_it_moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_chosen_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changes_stand, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_expired_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_room_it_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_to_empty, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
