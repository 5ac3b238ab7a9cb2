/*
 * test_twins.c - what is quick in src/format/ against what is plain, on random input: keys that are compared
 * by heads, buckets of short keys, misses of points in place that are proven in one pass, variable keys that
 * are found in place, slots that are written together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "format/verdict.h"

#define KEY_MAX 24u

/* ---- keys ---- */

static int sign(int order)
{
    return (order > 0) - (order < 0);
}

/* Few different bytes, so that many keys begin alike, or are prefixes of one another. */
static struct format_key key_random(struct random *random, uint8_t *bytes)
{
    static const uint8_t some[4] = {0, 1, 0x80, 0xff};
    const uint32_t length = (uint32_t)random_next(random) % (KEY_MAX + 1);
    const bool alike = random_next(random) % 2;
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = alike && i < 9 ? 7 : some[random_next(random) % 4];
    return (struct format_key){bytes, length};
}

static void keys_compared_by_heads(void **state)
{
    (void)state;
    struct random random;
    unsigned seen[3] = {0};
    random_seed(&random, 1);
    for (unsigned round = 0; round < 100000; round++) {
        uint8_t bytes[2][KEY_MAX];
        const struct format_key a = key_random(&random, bytes[0]), b = key_random(&random, bytes[1]);
        const int order = sign(format_key_compare(a, b));
        assert_int_equal(order, sign(format_key_compare_bytes(a, b)));
        assert_int_equal(order, -sign(format_key_compare(b, a)));
        seen[order + 1]++;
    }
    assert_true(seen[0] > 1000 && seen[1] > 100 && seen[2] > 1000);
}

/* Keys of eight bytes have a hash of their own, which is the same. */
static void buckets_of_eight_bytes(void **state)
{
    (void)state;
    struct random random;
    random_seed(&random, 3);
    for (unsigned round = 0; round < 100000; round++) {
        const uint64_t bytes = round < 100 ? round : random_next(&random);
        const uint32_t tag = round % 100 < 10 ? round % 100 : (uint32_t)random_next(&random);
        const struct format_key key = {(const uint8_t *)&bytes, sizeof bytes};
        assert_true(format_bucket_hash_eight(tag, key.bytes) == format_bucket_hash(tag, key));
    }
}

/* ---- points in place ---- */

struct leaf {
    struct format_layout layout;
    struct format_header header;
    uint8_t least[KEY_MAX];
    uint8_t image[4096] __attribute__((aligned(8)));
};

static const struct format_link here = {.address = 4096, .tag = 77};

/* One of some hundred, of which many have the same head. */
static struct format_key key_of(const struct leaf *leaf, uint32_t number, uint8_t *bytes)
{
    const uint32_t length = leaf->layout.geometry.key_bytes;
    memset(bytes, 3, length);
    bytes[5] = (uint8_t)(number % 16);
    bytes[length - 1] = (uint8_t)(number / 16);
    return (struct format_key){bytes, length};
}

/* The geometry is completed, and so are the leaf's offsets; the rest of it is zeros. */
static void leaf_lay_out(struct leaf *leaf, struct format_geometry *geometry)
{
    struct error error = {0};
    memset(leaf, 0, sizeof *leaf);
    assert_int_equal(format_geometry_complete(geometry, 4096, &error), 0);
    assert_int_equal(format_layout_init(&leaf->layout, geometry, &error), 0);
    assert_in_range(geometry->leaf_bytes, 256, sizeof leaf->image);
}

static void leaf_open(struct leaf *leaf, uint8_t key_bytes, uint8_t value_bytes, enum format_leaf_kind kind)
{
    struct format_geometry geometry = {.key_kind = FORMAT_KEY_FIXED,
                                       .leaf_kind = (uint8_t)kind,
                                       .key_bytes = key_bytes,
                                       .value_bytes = value_bytes};
    leaf_lay_out(leaf, &geometry);
}

/* Any part of the slots taken, and now and then one damaged. */
static void leaf_fill(struct leaf *leaf, struct random *random)
{
    const struct format_layout *layout = &leaf->layout;
    leaf->header = (struct format_header){.tag = here.tag,
                                          .version = (uint16_t)random_next(random),
                                          .state = FORMAT_NODE_LIVE,
                                          .lower = {leaf->least, layout->geometry.key_bytes}};
    format_leaf_format(layout, &leaf->header, leaf->image);
    const uint32_t seed = format_slot_seed(leaf->header.tag, leaf->header.version);
    const uint32_t wanted = (uint32_t)random_next(random) % layout->slots;
    for (uint32_t i = 0; i < wanted; i++) {
        struct format_bucket bucket;
        uint8_t bytes[KEY_MAX], value[KEY_MAX] = {0};
        const struct format_key key = key_of(leaf, (uint32_t)random_next(random) % 256, bytes);
        format_bucket_of(layout, here.tag, key, &bucket);
        const uint32_t number = format_bucket_free_slot(layout, leaf->image, &bucket, seed);
        struct format_slot slot;
        if (number != UINT32_MAX && !format_bucket_find(layout, leaf->image, &bucket, seed, key, &slot))
            format_slot_write(layout, leaf->image, number, seed, leaf->header.lower, GADDR_NULL, key,
                              (struct format_key){value, layout->geometry.value_bytes});
    }
    if (random_next(random) % 4 == 0) {
        const uint32_t number = (uint32_t)random_next(random) % layout->slots;
        leaf->image[layout->slot_offset[number] + random_next(random) % layout->slot_bytes] ^= 0x10;
    }
}

static enum format_verdict point_check(const struct leaf *leaf, uint32_t number)
{
    uint8_t bytes[KEY_MAX], image[4096] __attribute__((aligned(8)));
    const struct format_key key = key_of(leaf, number, bytes);
    struct format_point point;
    struct format_slot plain = {.number = UINT32_MAX}, quick = plain;
    memset(image, 0xee, sizeof image);
    format_point_set(&point, &leaf->layout, here, 0, key);
    const enum format_verdict verdict =
        format_point_verdict_locked(&point, leaf->image, &leaf->header, &plain);
    assert_int_equal(format_point_verdict_in_place(&point, leaf->image, image, &leaf->header, &quick),
                     verdict);
    if (verdict == FORMAT_HIT)
        assert_int_equal(quick.number, plain.number);
    const uint32_t seed = format_slot_seed(here.tag, leaf->header.version);
    if (verdict == FORMAT_MISS) /* what a put goes by next */
        assert_int_equal(format_bucket_free_slot(&leaf->layout, image, &point.bucket, seed),
                         format_bucket_free_slot(&leaf->layout, leaf->image, &point.bucket, seed));
    /* Also where the key stands in a slot, which the search in place would find before. */
    memset(image, 0xee, sizeof image);
    if (format_layout_sifts(&leaf->layout) &&
        format_slots_lack_shared(&leaf->layout, leaf->image, image, point.bucket.first, point.bucket.count,
                                 seed, format_key_head(key)))
        assert_int_equal(verdict, FORMAT_MISS);
    if (format_slots_lack(&leaf->layout, leaf->image, point.bucket.first, point.bucket.count, seed,
                          format_key_head(key)))
        assert_int_equal(verdict, FORMAT_MISS);
    return verdict;
}

static void misses_in_place_in_one_pass(void **state)
{
    (void)state;
    static const uint8_t sizes[][2] = {{8, 8}, {8, 12}, {16, 8}, {9, 3}, {24, 20}};
    struct random random;
    struct leaf leaf;
    random_seed(&random, 2);
    for (unsigned kind = 0; kind < 3 * sizeof sizes / sizeof *sizes; kind++) {
        unsigned seen[3] = {0};
        leaf_open(&leaf, sizes[kind / 3][0], sizes[kind / 3][1], (enum format_leaf_kind)(kind % 3));
        for (unsigned round = 0; round < 100; round++) {
            leaf_fill(&leaf, &random);
            for (uint32_t number = 0; number < 256; number++) {
                const enum format_verdict verdict = point_check(&leaf, number);
                seen[verdict == FORMAT_HIT ? 0 : verdict == FORMAT_MISS ? 1 : 2]++;
            }
        }
        assert_true(seen[0] > 100 && seen[1] > 100 && seen[2] > 100);
        format_layout_free(&leaf.layout);
    }
}

/* ---- variable keys in place ---- */

/* Of some hundred of all lengths, many of which end alike; some do not begin as the leaf's lower fence key.
 */
static struct format_key variable_key(uint32_t number, uint8_t *bytes)
{
    const uint32_t length = 1 + number % KEY_MAX;
    memset(bytes, 3, length);
    bytes[length / 2] = (uint8_t)(3 + number / KEY_MAX % 4);
    bytes[length - 1] = (uint8_t)(3 + number / KEY_MAX / 4 % 3);
    return (struct format_key){bytes, length};
}

static void variable_open(struct leaf *leaf)
{
    struct format_geometry geometry = {.key_kind = FORMAT_KEY_VARIABLE,
                                       .key_bytes = KEY_MAX,
                                       .inline_key_bytes = 16,
                                       .value_bytes = 17,
                                       .value_variable = true};
    leaf_lay_out(leaf, &geometry);
}

/* As leaf_fill; keys with more than their slot holds have blocks, which nobody reads here. */
static void variable_fill(struct leaf *leaf, struct random *random)
{
    const struct format_layout *layout = &leaf->layout;
    memset(leaf->least, 3, sizeof leaf->least);
    leaf->header = (struct format_header){.tag = here.tag,
                                          .version = (uint16_t)random_next(random),
                                          .state = FORMAT_NODE_LIVE,
                                          .lower = {leaf->least, (uint32_t)random_below(random, 6)}};
    format_leaf_format(layout, &leaf->header, leaf->image);
    const uint32_t seed = format_slot_seed(leaf->header.tag, leaf->header.version);
    for (uint32_t wanted = (uint32_t)random_below(random, layout->slots); wanted; wanted--) {
        struct format_bucket bucket;
        struct format_slot slot;
        uint8_t bytes[KEY_MAX], value[KEY_MAX];
        const struct format_key key = variable_key((uint32_t)random_below(random, 288), bytes);
        memset(value, (int)wanted, sizeof value);
        format_bucket_of(layout, here.tag, key, &bucket);
        const uint32_t number = format_bucket_free_slot(layout, leaf->image, &bucket, seed);
        const gaddr block =
            format_slot_needs_block(layout, leaf->header.lower, key) ? 64 * (gaddr)wanted : GADDR_NULL;
        if (number != UINT32_MAX && !format_bucket_find(layout, leaf->image, &bucket, seed, key, &slot))
            format_slot_write(layout, leaf->image, number, seed, leaf->header.lower, block, key,
                              (struct format_key){value, (uint32_t)random_below(random, 18)});
    }
    if (random_next(random) % 2) { /* damaged, in its lengths as often as elsewhere */
        const uint32_t number = (uint32_t)random_below(random, layout->slots);
        const uint64_t at = random_below(random, random_next(random) % 2 ? 8 : layout->slot_bytes);
        leaf->image[layout->slot_offset[number] + at] ^= (uint8_t)(1u << random_below(random, 8));
    }
}

/* The search in the leaf's own bytes finds what the search in a copy of it finds, and nothing else. */
static void variable_keys_in_place(void **state)
{
    (void)state;
    struct random random;
    struct leaf leaf;
    unsigned hits = 0, long_hits = 0, misses = 0;
    random_seed(&random, 6);
    variable_open(&leaf);
    for (unsigned round = 0; round < 300; round++) {
        variable_fill(&leaf, &random);
        for (uint32_t number = 0; number < 288; number++) {
            uint8_t bytes[KEY_MAX], image[4096] __attribute__((aligned(8)));
            struct format_point point;
            struct format_slot plain = {.number = UINT32_MAX}, quick = plain;
            format_point_set(&point, &leaf.layout, here, 0, variable_key(number, bytes));
            memset(image, 0xee, sizeof image);
            const bool found =
                format_bucket_find(&leaf.layout, leaf.image, &point.bucket,
                                   format_slot_seed(here.tag, leaf.header.version), point.key, &plain);
            assert_int_equal(format_point_hit_in_place(&point, leaf.image, image, &quick), found);
            misses += !found;
            if (!found)
                continue;
            hits++;
            long_hits += plain.block != GADDR_NULL;
            assert_int_equal(quick.number, plain.number);
            assert_int_equal(quick.prefix_length, plain.prefix_length);
            assert_true(quick.block == plain.block);
            assert_int_equal(quick.value.length, plain.value.length);
            assert_memory_equal(quick.value.bytes, plain.value.bytes, plain.value.length);
            assert_int_equal(quick.value.bytes - image, plain.value.bytes - leaf.image);
        }
    }
    assert_true(hits > 5000 && long_hits > 200 && misses > 5000);
    format_layout_free(&leaf.layout);
}

/* ---- many slots at once ---- */

/* Written one by one, and placed and sealed together; then all of them under another seed. */
static void many_slots_at_once(void **state)
{
    (void)state;
    static const uint8_t sizes[][2] = {{8, 8}, {8, 12}, {16, 0}, {9, 3}, {24, 20}};
    struct random random;
    struct leaf leaf;
    random_seed(&random, 4);
    for (unsigned round = 0; round < 500; round++) {
        const uint8_t *size = sizes[round % (sizeof sizes / sizeof *sizes)];
        leaf_open(&leaf, size[0], size[1], (enum format_leaf_kind)(round % 3));
        uint8_t quick[sizeof leaf.image];
        uint32_t numbers[sizeof leaf.image / 12], count = 0;
        const uint32_t next = (uint32_t)random_next(&random);
        leaf.header = (struct format_header){.tag = here.tag, .lower = {leaf.least, size[0]}};
        format_leaf_format(&leaf.layout, &leaf.header, leaf.image);
        memcpy(quick, leaf.image, sizeof quick);
        const uint32_t seed = format_slot_seed(here.tag, 0);
        for (uint32_t number = leaf.layout.slots; number--;) {
            uint8_t bytes[KEY_MAX], value[KEY_MAX];
            if (random_next(&random) % 4 == 0)
                continue;
            const struct format_key key = key_of(&leaf, number, bytes);
            memset(value, (int)(number + round), sizeof value);
            format_slot_write(&leaf.layout, leaf.image, number, seed, leaf.header.lower, GADDR_NULL, key,
                              (struct format_key){value, size[1]});
            format_slot_place(&leaf.layout, quick, number, key, (struct format_key){value, size[1]});
            numbers[count++] = number;
        }
        format_slots_seal(&leaf.layout, quick, numbers, count, seed);
        assert_memory_equal(quick, leaf.image, sizeof quick);
        for (uint32_t i = 0; i < count; i++) {
            struct format_slot slot;
            uint8_t bytes[KEY_MAX];
            assert_int_equal(
                format_slot_read(&leaf.layout, quick, numbers[i], seed, leaf.header.lower, &slot),
                FORMAT_SLOT_TAKEN);
            assert_memory_equal(slot.remainder.bytes, key_of(&leaf, numbers[i], bytes).bytes, size[0]);
            for (uint32_t byte = 0; byte < size[1]; byte++)
                assert_int_equal(slot.value.bytes[byte], (uint8_t)(numbers[i] + round));
        }
        for (uint32_t i = 0; i < leaf.layout.slots; i++)
            format_slot_clear(&leaf.layout, leaf.image, i, next);
        for (uint32_t i = 0; i < count; i++)
            format_slot_renew(&leaf.layout, leaf.image, numbers[i], next, leaf.header.lower);
        format_slots_clear(&leaf.layout, quick, next);
        format_slots_seal(&leaf.layout, quick, numbers, count, next);
        assert_memory_equal(quick, leaf.image, sizeof quick);
        format_layout_free(&leaf.layout);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_compared_by_heads),      cmocka_unit_test(buckets_of_eight_bytes),
        cmocka_unit_test(misses_in_place_in_one_pass), cmocka_unit_test(variable_keys_in_place),
        cmocka_unit_test(many_slots_at_once),
    };
    return cmocka_run_group_tests_name("twins", tests, NULL, NULL);
}
