/* test_order.c - the entries of random leaves in key order (tree/entries.h), against a plain sort of what was
 * put into them: by ranks, by bins and by merging, with keys that are alike in their first bytes, that lie
 * beyond the fence keys, or that stand in two slots. The same of a leaf's own bytes, whatever the leaf keeps
 * of the order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/random.h"
#include "format/leaf.h"
#include "tree/entries.h"
#include "tree/turn.h"

#define KEY_MAX   24u
#define SLOTS_MAX 2048u

struct leaf {
    struct format_layout layout;
    struct format_header header;
    uint8_t fences[2][KEY_MAX];
    uint8_t keys[SLOTS_MAX][KEY_MAX];
    uint32_t count;
    uint32_t numbers[SLOTS_MAX]; /* all slots, in random order: entry i stands in slot numbers[i] */
    uint8_t image[16384];
};

/* How the keys of a leaf lie. */
enum spread { EVEN, CLUSTERED, ALIKE, BEYOND, SPREADS };

static void key_make(struct random *random, enum spread spread, const struct leaf *leaf, uint8_t *key)
{
    const uint32_t length = leaf->layout.geometry.key_bytes;
    for (uint32_t i = 0; i < length; i++)
        key[i] = (uint8_t)random_next(random);
    if (spread == BEYOND) /* anywhere */
        return;
    key[0] = 0x40 | key[0] % 4; /* between the fences */
    if (spread == CLUSTERED && random_next(random) % 4)
        memset(key + 1, 7, 5);
    if (spread == ALIKE)
        memset(key + 1, 7, length > 8 ? 7 : 6);
}

static bool known(const struct leaf *leaf, const uint8_t *key)
{
    for (uint32_t i = 0; i < leaf->count; i++)
        if (!memcmp(leaf->keys[i], key, leaf->layout.geometry.key_bytes))
            return true;
    return false;
}

static void slot_put(struct leaf *leaf, uint32_t number, const uint8_t *key)
{
    uint8_t value[KEY_MAX];
    const struct format_geometry *geometry = &leaf->layout.geometry;
    memset(value, key[0] ^ 0x55, geometry->value_bytes);
    format_slot_write(&leaf->layout, leaf->image, number,
                      format_slot_seed(leaf->header.tag, leaf->header.version), leaf->header.lower,
                      GADDR_NULL, (struct format_key){key, geometry->key_bytes},
                      (struct format_key){value, geometry->value_bytes});
}

static void leaf_make(struct random *random, enum spread spread, uint32_t wanted, struct leaf *leaf)
{
    const uint32_t length = leaf->layout.geometry.key_bytes, slots = leaf->layout.slots;
    memset(leaf->fences, 0, sizeof leaf->fences);
    leaf->fences[0][0] = 0x40;
    leaf->fences[1][0] = 0x44;
    leaf->header = (struct format_header){.tag = (uint32_t)random_next(random),
                                          .version = (uint16_t)random_next(random),
                                          .state = FORMAT_NODE_LIVE,
                                          .has_upper = random_next(random) % 4 != 0,
                                          .lower = {leaf->fences[0], length}};
    if (leaf->header.has_upper)
        leaf->header.upper = (struct format_key){leaf->fences[1], length};
    format_leaf_format(&leaf->layout, &leaf->header, leaf->image);
    for (uint32_t i = 0; i < slots; i++)
        leaf->numbers[i] = i;
    for (uint32_t i = slots; i > 1; i--) {
        const uint32_t other = (uint32_t)(random_next(random) % i), number = leaf->numbers[i - 1];
        leaf->numbers[i - 1] = leaf->numbers[other];
        leaf->numbers[other] = number;
    }
    for (leaf->count = 0; leaf->count < wanted;) {
        uint8_t *key = leaf->keys[leaf->count];
        key_make(random, spread, leaf, key);
        if (known(leaf, key))
            continue;
        slot_put(leaf, leaf->numbers[leaf->count], key);
        leaf->count++;
    }
}

static int by_key(const void *a, const void *b)
{
    return memcmp(a, b, KEY_MAX);
}

/* The entries that the session gives are the leaf's. */
static void entries_check(struct tree_session *session, const struct leaf *leaf, const uint8_t *image,
                          uint32_t count)
{
    const uint32_t length = leaf->layout.geometry.key_bytes;
    assert_int_equal(count, leaf->count);
    for (uint32_t i = 0; i < count; i++) {
        struct tree_leaf_entry entry;
        tree_leaf_entry_at(session, &leaf->layout, image, i, &entry);
        assert_int_equal(entry.key.length, length);
        assert_memory_equal(entry.key.bytes, leaf->keys[i], length);
        assert_int_equal(entry.value.length, leaf->layout.geometry.value_bytes);
        assert_int_equal(entry.value.bytes[0], leaf->keys[i][0] ^ 0x55);
    }
}

static void order_check(struct tree_session *session, struct leaf *leaf)
{
    uint32_t count = 0;
    assert_int_equal(tree_leaf_order(session, &leaf->layout, leaf->image, &leaf->header, &count), 0);
    qsort(leaf->keys, leaf->count, KEY_MAX, by_key);
    entries_check(session, leaf, leaf->image, count);
}

/* What a leaf may keep of the order: nothing, anything, the order itself, and what is nearly the order. */
enum keeps { NOTHING, ANYTHING, ORDER, TWO_SWAPPED, ONE_TWICE, ONE_EMPTY, ONE_LACKING, KEEPS };

static void keep(struct random *random, const struct leaf *leaf, enum keeps keeps, const uint8_t *order,
                 uint8_t *kept)
{
    const uint32_t slots = leaf->layout.slots, count = leaf->count;
    memset(kept, 0, slots);
    if (keeps == NOTHING)
        return;
    for (uint32_t i = 0; i < slots; i++)
        kept[i] = keeps == ANYTHING ? (uint8_t)random_next(random) : i < count ? order[i] : 0xff;
    if (count < 2)
        return;
    const uint32_t at = (uint32_t)(random_next(random) % (count - 1));
    if (keeps == TWO_SWAPPED) {
        kept[at] = order[at + 1];
        kept[at + 1] = order[at];
    }
    if (keeps == ONE_TWICE)
        kept[at] = order[at + 1];
    if (keeps == ONE_EMPTY && count < slots)
        kept[at] = (uint8_t)leaf->numbers[count]; /* leaf->numbers begins with those that are taken */
    if (keeps == ONE_LACKING) {                   /* of a leaf that got a key since */
        memmove(kept + at, kept + at + 1, count - at - 1);
        kept[count - 1] = 0xff;
    }
}

/* Whatever the leaf keeps, the entries come in order, and it is told what to keep unless it keeps that. */
static void shared_check(struct random *random, struct tree_session *session, struct leaf *leaf)
{
    const struct format_layout *layout = &leaf->layout;
    const bool keeps_order = format_layout_keeps_order(layout);
    struct tree_kept_order kept = {{0}, false};
    uint8_t image[sizeof leaf->image], order[FORMAT_SIFTED_MAX];
    uint32_t count = 0;
    if (!format_layout_sifts(layout))
        return;
    assert_int_equal(tree_leaf_order(session, layout, leaf->image, &leaf->header, &count), 0);
    for (uint32_t i = 0; i < count; i++)
        order[i] = (uint8_t)session->order[i].number;
    for (unsigned keeps = 0; keeps < KEEPS; keeps++) {
        memset(image, 0x5a, sizeof image);
        if (keeps_order)
            keep(random, leaf, keeps, order, leaf->image + layout->used_bytes);
        count = 0;
        assert_int_equal(tree_leaf_order_shared(session, layout, leaf->image, image, &leaf->header,
                                                keeps_order ? &kept : NULL, &count),
                         0);
        entries_check(session, leaf, image, count);
        if (!keeps_order)
            continue;
        bool stale = false;
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(kept.numbers[i] % FORMAT_SIFTED_MAX, order[i]);
            stale |= leaf->image[layout->used_bytes + i] % FORMAT_SIFTED_MAX != order[i];
        }
        assert_int_equal(kept.stale, stale);
    }
}

/* Both ways say that this leaf may not be delivered. */
static void refused_check(struct tree_session *session, struct leaf *leaf)
{
    const struct format_layout *layout = &leaf->layout;
    uint8_t image[sizeof leaf->image];
    struct tree_kept_order kept;
    uint32_t count;
    assert_int_equal(tree_leaf_order(session, layout, leaf->image, &leaf->header, &count), TREE_RESTART);
    if (format_layout_sifts(layout))
        assert_int_equal(tree_leaf_order_shared(session, layout, leaf->image, image, &leaf->header,
                                                format_layout_keeps_order(layout) ? &kept : NULL, &count),
                         TREE_RESTART);
}

/* A key in two slots, and a slot whose check is another's: neither leaf may be delivered. */
static void refusals_check(struct random *random, struct tree_session *session, struct leaf *leaf)
{
    if (!leaf->count || leaf->count == leaf->layout.slots)
        return;
    const uint32_t free_slot = leaf->numbers[leaf->count];
    slot_put(leaf, free_slot, leaf->keys[random_next(random) % leaf->count]);
    refused_check(session, leaf);
    format_slot_clear(&leaf->layout, leaf->image, free_slot,
                      format_slot_seed(leaf->header.tag, leaf->header.version));
    const uint32_t slot = (uint32_t)(random_next(random) % leaf->layout.slots);
    leaf->image[leaf->layout.slot_offset[slot] + 1] ^= 0x10; /* of its check */
    refused_check(session, leaf);
}

static void leaves_check(uint32_t leaf_bytes, uint8_t key_bytes, uint8_t value_bytes, unsigned rounds)
{
    struct format_geometry geometry = {.leaf_bytes = leaf_bytes,
                                       .key_kind = FORMAT_KEY_FIXED,
                                       .key_bytes = key_bytes,
                                       .value_bytes = value_bytes};
    struct error error = {0};
    struct random random;
    struct leaf *leaf = calloc(1, sizeof *leaf);
    struct tree_session *session = calloc(1, sizeof *session);
    assert_non_null(leaf);
    assert_non_null(session);
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    assert_int_equal(format_layout_init(&leaf->layout, &geometry, &error), 0);
    assert_true(leaf->layout.slots <= SLOTS_MAX);
    random_seed(&random, leaf_bytes + key_bytes);
    for (unsigned round = 0; round < rounds; round++) {
        const uint32_t wanted = (uint32_t)(random_next(&random) % (leaf->layout.slots + 1));
        leaf_make(&random, round % SPREADS, wanted, leaf);
        order_check(session, leaf);
        shared_check(&random, session, leaf);
        leaf_make(&random, round % SPREADS, wanted, leaf);
        refusals_check(&random, session, leaf);
    }
    free(session->entries);
    free(session->order);
    free(session->keys);
    free(session);
    format_layout_free(&leaf->layout);
    free(leaf);
}

static void test_usual(void **state) /* 8-byte keys and values, by ranks */
{
    (void)state;
    leaves_check(1024, 8, 8, 3000);
}

static void test_other_sizes(void **state) /* keys that differ behind their heads, by ranks and by bins */
{
    (void)state;
    leaves_check(1024, 12, 4, 2000);
    leaves_check(1024, 12, 5, 2000);
    leaves_check(2048, 9, 8, 1000);
}

static void test_large(void **state) /* by merging */
{
    (void)state;
    leaves_check(16384, 12, 8, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usual),
        cmocka_unit_test(test_other_sizes),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
