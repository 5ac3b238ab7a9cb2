/*
 * test_verdict.c - every verdict of format/verdict.h, for fixed and variable keys in hashed, unsorted and
 * dense leaves: each leaf is built, changed and sealed by the functions that writers use.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/random.h"
#include "format/verdict.h"

#define TAG     77u
#define VERSION 5u
#define INDEX   0x0103u

static const struct format_link link_here = {.address = 4096, .tag = TAG};
static const struct format_link sibling = {.address = 8192, .tag = TAG + 1};

/* A leaf whose range is ["b...", "m..."), with the keys "c...", "f...", "k...". */
struct leaf {
    struct format_layout layout;
    struct format_header header;
    uint8_t image[4096] __attribute__((aligned(8)));
    uint32_t key_bytes; /* of the keys that the tests use */
};

/* A letter, repeated. */
static struct format_key key_at(const struct leaf *leaf, char letter)
{
    static uint8_t keys[256][FORMAT_KEY_MAX];
    memset(keys[(uint8_t)letter], letter, leaf->key_bytes);
    return (struct format_key){keys[(uint8_t)letter], leaf->key_bytes};
}

static struct format_key value_of(const struct leaf *leaf)
{
    static const uint8_t value[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    return (struct format_key){value, leaf->layout.geometry.value_bytes};
}

static uint32_t seed_of(const struct leaf *leaf, uint16_t version)
{
    return format_slot_seed(leaf->header.tag, version);
}

static void leaf_put(struct leaf *leaf, char letter)
{
    struct format_bucket bucket;
    struct format_key key = key_at(leaf, letter);
    format_bucket_of(&leaf->layout, TAG, key, &bucket);
    uint32_t seed = seed_of(leaf, leaf->header.version);
    uint32_t number = format_bucket_free_slot(&leaf->layout, leaf->image, &bucket, seed);
    assert_int_not_equal(number, UINT32_MAX);
    format_slot_write(&leaf->layout, leaf->image, number, seed, leaf->header.lower, GADDR_NULL, key,
                      value_of(leaf));
}

static void leaf_open_keys(struct leaf *leaf, enum format_key_kind kind, enum format_leaf_kind leaf_kind,
                           uint8_t key_bytes)
{
    struct format_geometry geometry = {
        .key_kind = (uint8_t)kind, .leaf_kind = (uint8_t)leaf_kind, .key_bytes = key_bytes, .value_bytes = 8};
    struct error error = {0};
    memset(leaf, 0, sizeof *leaf);
    assert_int_equal(format_geometry_complete(&geometry, 4096, &error), 0);
    assert_int_equal(format_layout_init(&leaf->layout, &geometry, &error), 0);
    assert_in_range(geometry.leaf_bytes, 512, sizeof leaf->image);
    leaf->key_bytes = kind == FORMAT_KEY_FIXED ? 8 : 11;
    leaf->header = (struct format_header){.tag = TAG,
                                          .version = VERSION,
                                          .state = FORMAT_NODE_LIVE,
                                          .index = INDEX,
                                          .has_upper = true,
                                          .sibling = sibling,
                                          .lower = key_at(leaf, 'b'),
                                          .upper = key_at(leaf, 'm')};
    format_leaf_format(&leaf->layout, &leaf->header, leaf->image);
    leaf_put(leaf, 'c');
    leaf_put(leaf, 'f');
    leaf_put(leaf, 'k');
}

static void leaf_open(struct leaf *leaf, enum format_key_kind kind, enum format_leaf_kind leaf_kind)
{
    leaf_open_keys(leaf, kind, leaf_kind, kind == FORMAT_KEY_FIXED ? 8 : 20);
}

static void leaf_close(struct leaf *leaf)
{
    format_layout_free(&leaf->layout);
}

/* Writes the changed header. */
static void leaf_seal(struct leaf *leaf)
{
    format_header_encode(&leaf->layout, &leaf->header, leaf->image);
}

static void leaf_rightmost(struct leaf *leaf)
{
    leaf->header.has_upper = false;
    leaf->header.upper = (struct format_key){0};
    leaf->header.sibling = (struct format_link){0};
    leaf_seal(leaf);
}

static const struct {
    enum format_key_kind key;
    enum format_leaf_kind leaf_kind;
} kinds[] = {{FORMAT_KEY_FIXED, FORMAT_LEAF_HASHED},   {FORMAT_KEY_VARIABLE, FORMAT_LEAF_HASHED},
             {FORMAT_KEY_FIXED, FORMAT_LEAF_UNSORTED}, {FORMAT_KEY_VARIABLE, FORMAT_LEAF_UNSORTED},
             {FORMAT_KEY_FIXED, FORMAT_LEAF_DENSE},    {FORMAT_KEY_VARIABLE, FORMAT_LEAF_DENSE}};
#define EACH_KIND(leaf)                                                                                      \
    for (unsigned kind = 0; kind < 6 && (leaf_open(leaf, kinds[kind].key, kinds[kind].leaf_kind), true);     \
         leaf_close(leaf), kind++)

/* ---- nodes ---- */

static enum format_verdict node_verdict(const struct leaf *leaf, struct format_header *header)
{
    memset(header, 0xee, sizeof *header);
    return format_node_verdict(&leaf->layout, leaf->image, link_here, INDEX, 0, header);
}

static void a_live_node_is_its_links(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    {
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_LIVE);
        assert_int_equal(header.tag, TAG);
        assert_int_equal(header.version, VERSION);
        assert_true(format_link_equal(header.sibling, sibling));
        assert_int_equal(format_key_compare(header.lower, key_at(&leaf, 'b')), 0);
        assert_int_equal(format_key_compare(header.upper, key_at(&leaf, 'm')), 0);
    }
}

static void a_changed_byte_is_torn(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    {
        const uint32_t used = format_header_used(&leaf.layout, leaf.image);
        for (uint32_t at = 0; at < used; at++) {
            leaf.image[at] ^= 0x40;
            assert_int_equal(node_verdict(&leaf, &header), FORMAT_TORN);
            assert_int_equal(header.tag, 0); /* callers look at a header that was not decoded */
            assert_int_equal(header.state, 0);
            assert_int_equal(header.index, 0);
            leaf.image[at] ^= 0x40;
        }
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_LIVE);
    }
}

static void an_impossible_header_is_malformed(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    {
        leaf.header.state = FORMAT_NODE_MERGING + 1;
        leaf_seal(&leaf);
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_MALFORMED);
        leaf.header.state = FORMAT_NODE_LIVE;
        leaf.header.level = FORMAT_LEVEL_MAX + 1;
        leaf_seal(&leaf);
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_MALFORMED);
    }
}

static void another_tag_or_index_is_another_node(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    {
        leaf.header.tag = TAG + 1;
        leaf_seal(&leaf);
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_OTHER);
        assert_int_equal(header.tag, TAG + 1);
        leaf.header.tag = TAG;
        leaf.header.index = INDEX ^ 0x8000u; /* marked as dropped */
        leaf.header.state = FORMAT_NODE_DEAD;
        leaf.header.level = 1;
        leaf_seal(&leaf);
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_OTHER);
    }
}

static void level_and_state_are_told(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    {
        leaf.header.state = FORMAT_NODE_DEAD;
        leaf.header.level = 1;
        leaf_seal(&leaf);
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_LEVEL);
        assert_int_equal(format_node_verdict(&leaf.layout, leaf.image, link_here, INDEX, 1, &header),
                         FORMAT_DEAD);
        leaf.header.level = 0;
        leaf_seal(&leaf);
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_DEAD);
        leaf.header.state = FORMAT_NODE_SPLITTING;
        leaf_seal(&leaf);
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_SPLITTING);
        leaf.header.state = FORMAT_NODE_MERGING;
        leaf_seal(&leaf);
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_MERGING);
        leaf.header.state = FORMAT_NODE_FROZEN;
        leaf_seal(&leaf);
        assert_int_equal(node_verdict(&leaf, &header), FORMAT_FROZEN);
    }
}

/* ---- points ---- */

/* Where keys and values are words, the shortest way finds the same, NULL or the key's slot. */
static void word_alike(const struct leaf *leaf, const struct format_point *point,
                       const struct format_slot *slot)
{
    uint64_t key, value;
    if (!format_layout_words(&leaf->layout))
        return;
    memcpy(&key, point->key.bytes, sizeof key);
    const bool found =
        format_word_in_place(&leaf->layout, point->link.tag, &point->bucket, leaf->image, key, &value);
    assert_int_equal(found, slot != NULL);
    if (found)
        assert_memory_equal(&value, slot->value.bytes, sizeof value);
}

static enum format_verdict point_verdict(const struct leaf *leaf, char letter, enum format_seen seen,
                                         struct format_header *header)
{
    struct format_point point;
    struct format_slot slot = {.number = UINT32_MAX};
    format_point_set(&point, &leaf->layout, link_here, INDEX, key_at(leaf, letter));
    memset(header, 0xee, sizeof *header);
    enum format_verdict verdict = format_point_verdict(&point, leaf->image, seen, header, &slot);
    if (verdict == FORMAT_HIT) {
        assert_in_range(slot.number, point.bucket.first, point.bucket.first + point.bucket.count - 1);
        assert_int_equal(slot.value.length, 8);
        assert_memory_equal(slot.value.bytes, value_of(leaf).bytes, 8);
    }
    if (seen & FORMAT_SEEN_BUCKET) { /* the same for the leaf's own bytes */
        uint8_t image[4096];
        struct format_slot placed;
        assert_int_equal(format_point_hit_in_place(&point, leaf->image, image, &placed),
                         verdict == FORMAT_HIT);
        word_alike(leaf, &point, verdict == FORMAT_HIT ? &slot : NULL);
    }
    return verdict;
}

static bool untouched(const struct format_header *header)
{
    struct format_header before;
    memset(&before, 0xee, sizeof before);
    return !memcmp(header, &before, sizeof before);
}

static void a_hit_needs_the_bucket_alone(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    {
        assert_int_equal(point_verdict(&leaf, 'f', FORMAT_SEEN_BUCKET, &header), FORMAT_HIT);
        assert_true(untouched(&header));
        assert_int_equal(point_verdict(&leaf, 'f', FORMAT_SEEN_BOTH, &header), FORMAT_HIT);
        assert_true(untouched(&header));
        memset(leaf.image, 0, leaf.layout.header_bytes); /* whatever the header says (R1) */
        assert_int_equal(point_verdict(&leaf, 'f', FORMAT_SEEN_BOTH, &header), FORMAT_HIT);
    }
}

static void without_the_header_a_miss_is_unproven(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    {
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BUCKET, &header), FORMAT_UNPROVEN);
        assert_true(untouched(&header));
    }
}

static void a_miss_needs_header_and_slots(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    {
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_HEADER, &header), FORMAT_MISS);
        assert_int_equal(header.tag, TAG);
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BOTH, &header), FORMAT_MISS);
    }
}

/* The bucket was looked through before: only its slots' validity counts now. */
static void behind_the_bucket_a_hit_is_not_looked_for(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    assert_int_equal(point_verdict(&leaf, 'f', FORMAT_SEEN_HEADER, &header), FORMAT_MISS);
}

/* Keys that differ little: a run of one of three letters, and a tail of up to three others. */
static struct format_key key_drawn(struct random *random, uint8_t bytes[FORMAT_KEY_MAX])
{
    const uint32_t tail = (uint32_t)random_below(random, 4),
                   length = 1 + tail + (uint32_t)random_below(random, 40);
    memset(bytes, 'b' + (int)random_below(random, 3), length);
    for (uint32_t i = length - tail; i < length; i++)
        bytes[i] = (uint8_t)('b' + random_below(random, 3));
    return (struct format_key){bytes, length};
}

static bool found_alike(const struct leaf *leaf, struct format_key key)
{
    struct format_bucket bucket;
    struct format_slot copied = {.number = UINT32_MAX}, placed = {.number = UINT32_MAX};
    uint8_t image[4096];
    const uint32_t seed = seed_of(leaf, leaf->header.version);
    format_bucket_of(&leaf->layout, TAG, key, &bucket);
    const bool found = format_bucket_find(&leaf->layout, leaf->image, &bucket, seed, key, &copied);
    assert_int_equal(
        format_bucket_find_shared(&leaf->layout, leaf->image, image, &bucket, seed, key, &placed), found);
    if (found)
        assert_int_equal(copied.number, placed.number);
    return found;
}

/* Most slots are passed over by a few of their bytes there. */
static void in_place_is_found_what_a_copy_has(void **state)
{
    (void)state;
    const uint64_t seed = random_entropy();
    struct random random;
    uint32_t found = 0, blocks = 0, whole = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    random_seed(&random, seed);
    for (unsigned round = 0; round < 200; round++) {
        struct leaf leaf;
        uint8_t bytes[FORMAT_KEY_MAX];
        leaf_open_keys(&leaf, FORMAT_KEY_VARIABLE, FORMAT_LEAF_HASHED, 50);
        const uint32_t check = seed_of(&leaf, VERSION);
        for (unsigned i = 0; i < 30; i++) {
            struct format_bucket bucket;
            const struct format_key key = key_drawn(&random, bytes);
            format_bucket_of(&leaf.layout, TAG, key, &bucket);
            const uint32_t number = format_bucket_free_slot(&leaf.layout, leaf.image, &bucket, check);
            const bool block = format_slot_needs_block(&leaf.layout, leaf.header.lower, key);
            if (number == UINT32_MAX || found_alike(&leaf, key))
                continue;
            format_slot_write(&leaf.layout, leaf.image, number, check, leaf.header.lower,
                              block ? 4096 : GADDR_NULL, key, value_of(&leaf));
            assert_true(found_alike(&leaf, key));
            blocks += block;
            whole += !block && !format_slot_remainder(&leaf.layout, leaf.header.lower, key);
        }
        for (unsigned i = 0; i < 200; i++)
            found += found_alike(&leaf, key_drawn(&random, bytes));
        leaf_close(&leaf);
    }
    assert_true(found && blocks && whole);
}

/* Two slots of the key's bucket have it, of which one fails its check: a reader may meet that where a key was
 * deleted and put again. */
static void twice_but_once_valid(struct leaf *leaf, struct random *random, struct format_key key)
{
    struct format_bucket bucket;
    uint32_t numbers[2];
    const uint32_t check = seed_of(leaf, VERSION);
    format_bucket_of(&leaf->layout, TAG, key, &bucket);
    for (unsigned i = 0; i < 2; i++) {
        numbers[i] = format_bucket_free_slot(&leaf->layout, leaf->image, &bucket, check);
        if (numbers[i] == UINT32_MAX)
            return;
        format_slot_write(&leaf->layout, leaf->image, numbers[i], check, leaf->header.lower, GADDR_NULL, key,
                          value_of(leaf));
    }
    uint8_t *damaged = leaf->image + leaf->layout.slot_offset[numbers[random_below(random, 2)]];
    damaged[1] ^= 1;
    assert_true(found_alike(leaf, key));
}

/* Keys whose last words are mostly the same, so that these tell little. */
static void in_place_keys_with_one_tail_are_told_apart(void **state)
{
    (void)state;
    const uint64_t seed = random_entropy();
    struct random random;
    uint32_t found = 0, missed = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    random_seed(&random, seed);
    for (unsigned round = 0; round < 200; round++) {
        struct leaf leaf;
        leaf_open_keys(&leaf, FORMAT_KEY_FIXED, FORMAT_LEAF_HASHED, 8);
        const uint32_t check = seed_of(&leaf, VERSION);
        for (unsigned i = 0; i < 200; i++) {
            struct format_bucket bucket;
            uint8_t bytes[8];
            const struct format_key key = {bytes, sizeof bytes};
            for (unsigned at = 0; at < sizeof bytes; at++)
                bytes[at] = (uint8_t)('b' + (at < 4 || at == 7 ? random_below(&random, 3) : 0));
            format_bucket_of(&leaf.layout, TAG, key, &bucket);
            const uint32_t number = format_bucket_free_slot(&leaf.layout, leaf.image, &bucket, check);
            if (found_alike(&leaf, key)) {
                found++;
                continue;
            }
            missed++;
            if (number == UINT32_MAX)
                continue;
            if (random_below(&random, 8)) {
                format_slot_write(&leaf.layout, leaf.image, number, check, leaf.header.lower, GADDR_NULL, key,
                                  value_of(&leaf));
                assert_true(found_alike(&leaf, key));
            } else {
                twice_but_once_valid(&leaf, &random, key);
            }
        }
        leaf_close(&leaf);
    }
    assert_true(found && missed);
}

static void each_slot_of_the_bucket_must_be_valid(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    struct format_bucket bucket;
    EACH_KIND(&leaf)
    {
        format_bucket_of(&leaf.layout, TAG, key_at(&leaf, 'd'), &bucket);
        for (uint32_t number = 0; number < leaf.layout.slots; number++) {
            bool ours = number >= bucket.first && number < bucket.first + bucket.count;
            uint8_t *check = leaf.image + leaf.layout.slot_offset[number];
            check[2] ^= 1;
            assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BOTH, &header),
                             ours ? FORMAT_TORN : FORMAT_MISS);
            assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_HEADER, &header),
                             ours ? FORMAT_TORN : FORMAT_MISS);
            check[2] ^= 1;
        }
    }
}

/* A header of the next version over slots of this one, and a bucket of the next one under this header. */
static void versions_must_be_one(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    struct format_bucket bucket;
    EACH_KIND(&leaf)
    {
        leaf.header.version = VERSION + 1;
        leaf_seal(&leaf);
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BOTH, &header), FORMAT_TORN);
        assert_int_equal(point_verdict(&leaf, 'f', FORMAT_SEEN_BOTH, &header), FORMAT_HIT);
        leaf.header.version = VERSION;
        leaf_seal(&leaf);
        format_bucket_of(&leaf.layout, TAG, key_at(&leaf, 'd'), &bucket);
        leaf.image[bucket.version_offset]++;
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BOTH, &header), FORMAT_TORN);
    }
}

static void a_slot_of_another_version_is_no_hit(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    struct format_bucket bucket;
    EACH_KIND(&leaf)
    {
        format_bucket_of(&leaf.layout, TAG, key_at(&leaf, 'f'), &bucket);
        leaf.image[bucket.version_offset]++;
        assert_int_equal(point_verdict(&leaf, 'f', FORMAT_SEEN_BUCKET, &header), FORMAT_UNPROVEN);
        assert_int_equal(point_verdict(&leaf, 'f', FORMAT_SEEN_BOTH, &header), FORMAT_TORN);
    }
}

/* What keeps the header from proving a miss is the verdict. */
static void a_point_hears_what_the_header_says(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_header header;
    EACH_KIND(&leaf)
    {
        assert_int_equal(point_verdict(&leaf, 'a', FORMAT_SEEN_BOTH, &header), FORMAT_LEFT);
        assert_int_equal(point_verdict(&leaf, 'b', FORMAT_SEEN_BOTH, &header), FORMAT_MISS);
        assert_int_equal(point_verdict(&leaf, 'l', FORMAT_SEEN_BOTH, &header), FORMAT_MISS);
        assert_int_equal(point_verdict(&leaf, 'm', FORMAT_SEEN_BOTH, &header), FORMAT_RIGHT);
        assert_int_equal(point_verdict(&leaf, 'z', FORMAT_SEEN_HEADER, &header), FORMAT_RIGHT);
        assert_true(format_link_equal(header.sibling, sibling));
        leaf_rightmost(&leaf);
        assert_int_equal(point_verdict(&leaf, 'z', FORMAT_SEEN_HEADER, &header), FORMAT_MISS);
        leaf.header.state = FORMAT_NODE_SPLITTING; /* before the key's side: the link must not be followed */
        leaf.header.has_upper = true;
        leaf.header.upper = key_at(&leaf, 'm');
        leaf.header.sibling = sibling;
        leaf_seal(&leaf);
        assert_int_equal(point_verdict(&leaf, 'z', FORMAT_SEEN_BOTH, &header), FORMAT_SPLITTING);
        leaf.header.state = FORMAT_NODE_MERGING; /* R7: nor is its miss an answer */
        leaf_seal(&leaf);
        assert_int_equal(point_verdict(&leaf, 'l', FORMAT_SEEN_BOTH, &header), FORMAT_MERGING);
        leaf.header.state = FORMAT_NODE_FROZEN; /* to readers as good as a live one */
        leaf_seal(&leaf);
        assert_int_equal(point_verdict(&leaf, 'l', FORMAT_SEEN_BOTH, &header), FORMAT_MISS);
        assert_int_equal(point_verdict(&leaf, 'z', FORMAT_SEEN_BOTH, &header), FORMAT_RIGHT);
        leaf.header.state = FORMAT_NODE_DEAD;
        leaf_seal(&leaf);
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BOTH, &header), FORMAT_DEAD);
        leaf.header.level = 1;
        leaf_seal(&leaf);
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BOTH, &header), FORMAT_LEVEL);
        leaf.header.index++;
        leaf_seal(&leaf);
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BOTH, &header), FORMAT_OTHER);
        leaf.header.state = 0;
        leaf_seal(&leaf);
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BOTH, &header), FORMAT_MALFORMED);
        leaf.image[0] ^= 1;
        assert_int_equal(point_verdict(&leaf, 'd', FORMAT_SEEN_BOTH, &header), FORMAT_TORN);
    }
}

/* ---- points, with the right to change the leaf ---- */

/* The leaf's own bytes say what a copy of them says, and what they say it by is in the image. */
static void in_place_as_by_copy(const struct leaf *leaf, const struct format_point *point,
                                enum format_verdict verdict, const struct format_slot *slot)
{
    uint8_t image[4096] __attribute__((aligned(8)));
    struct format_slot placed = {.number = UINT32_MAX};
    memset(image, 0xee, sizeof image);
    assert_int_equal(format_point_verdict_in_place(point, leaf->image, image, &leaf->header, &placed),
                     verdict);
    assert_int_equal(placed.number, slot->number);
    if (verdict == FORMAT_HIT) {
        assert_in_range((uintptr_t)placed.value.bytes, (uintptr_t)image, (uintptr_t)image + sizeof image - 8);
        assert_memory_equal(placed.value.bytes, slot->value.bytes, slot->value.length);
    }
}

static enum format_verdict locked_verdict(const struct leaf *leaf, char letter)
{
    struct format_point point;
    struct format_slot slot = {.number = UINT32_MAX};
    format_point_set(&point, &leaf->layout, link_here, INDEX, key_at(leaf, letter));
    enum format_verdict verdict = format_point_verdict_locked(&point, leaf->image, &leaf->header, &slot);
    if (verdict == FORMAT_HIT)
        assert_memory_equal(slot.value.bytes, value_of(leaf).bytes, 8);
    in_place_as_by_copy(leaf, &point, verdict, &slot);
    return verdict;
}

static void under_the_lock(void **state)
{
    (void)state;
    struct leaf leaf;
    struct format_bucket bucket;
    EACH_KIND(&leaf)
    {
        assert_int_equal(locked_verdict(&leaf, 'f'), FORMAT_HIT);
        assert_int_equal(locked_verdict(&leaf, 'd'), FORMAT_MISS);
        assert_int_equal(locked_verdict(&leaf, 'a'), FORMAT_LEFT);
        assert_int_equal(locked_verdict(&leaf, 'm'), FORMAT_RIGHT);
        /* The header's version counts, not the bucket's: the latter is not read anew. */
        format_bucket_of(&leaf.layout, TAG, key_at(&leaf, 'f'), &bucket);
        leaf.image[bucket.version_offset]++;
        assert_int_equal(locked_verdict(&leaf, 'f'), FORMAT_HIT);
        leaf.header.version++;
        assert_int_equal(locked_verdict(&leaf, 'f'), FORMAT_TORN);
        leaf.header.version--;
        format_bucket_of(&leaf.layout, TAG, key_at(&leaf, 'd'), &bucket);
        leaf.image[leaf.layout.slot_offset[bucket.first]] ^= 2;
        assert_int_equal(locked_verdict(&leaf, 'd'), FORMAT_TORN);
    }
}

/* A key outside of the fence keys is not looked for, though it may still stand in a slot. */
static void a_moved_key_is_no_hit_under_the_lock(void **state)
{
    (void)state;
    struct leaf leaf;
    EACH_KIND(&leaf)
    {
        leaf.header.upper = key_at(&leaf, 'f');
        assert_int_equal(locked_verdict(&leaf, 'f'), FORMAT_RIGHT);
        assert_int_equal(locked_verdict(&leaf, 'k'), FORMAT_RIGHT);
        assert_int_equal(locked_verdict(&leaf, 'c'), FORMAT_HIT);
    }
}

/* ---- whole leaves ---- */

static enum format_verdict leaf_verdict(const struct leaf *leaf, char letter, bool reverse, bool unbounded)
{
    struct format_header header;
    const struct format_position position = {key_at(leaf, letter), reverse, unbounded};
    return format_leaf_verdict(&leaf->layout, leaf->image, link_here, INDEX, &position, &header);
}

static void a_scan_forward(void **state)
{
    (void)state;
    struct leaf leaf;
    EACH_KIND(&leaf)
    {
        assert_int_equal(leaf_verdict(&leaf, 'a', false, false), FORMAT_LEFT);
        assert_int_equal(leaf_verdict(&leaf, 'b', false, false), FORMAT_LIVE);
        assert_int_equal(leaf_verdict(&leaf, 'l', false, false), FORMAT_LIVE);
        assert_int_equal(leaf_verdict(&leaf, 'm', false, false), FORMAT_RIGHT);
        leaf_rightmost(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'm', false, false), FORMAT_LIVE);
    }
}

/* What lies just below the position is due. */
static void a_scan_in_reverse(void **state)
{
    (void)state;
    struct leaf leaf;
    EACH_KIND(&leaf)
    {
        assert_int_equal(leaf_verdict(&leaf, 'b', true, false), FORMAT_LEFT);
        assert_int_equal(leaf_verdict(&leaf, 'c', true, false), FORMAT_LIVE);
        assert_int_equal(leaf_verdict(&leaf, 'm', true, false), FORMAT_LIVE);
        assert_int_equal(leaf_verdict(&leaf, 'n', true, false), FORMAT_RIGHT);
        assert_int_equal(leaf_verdict(&leaf, 'a', true, true), FORMAT_RIGHT);
        leaf_rightmost(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'a', true, true), FORMAT_LIVE);
        assert_int_equal(leaf_verdict(&leaf, 'n', true, false), FORMAT_LIVE);
    }
}

/* Whatever the position: the header is asked first. */
static void a_scan_hears_what_the_header_says(void **state)
{
    (void)state;
    struct leaf leaf;
    EACH_KIND(&leaf)
    for (int reverse = 0; reverse < 2; reverse++) {
        leaf.header.state = FORMAT_NODE_SPLITTING;
        leaf_seal(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'z', reverse, false), FORMAT_SPLITTING);
        leaf.header.state = FORMAT_NODE_MERGING;
        leaf_seal(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'd', reverse, false), FORMAT_MERGING);
        leaf.header.state = FORMAT_NODE_FROZEN;
        leaf_seal(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'd', reverse, false), FORMAT_LIVE);
        leaf.header.state = FORMAT_NODE_DEAD;
        leaf_seal(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'a', reverse, false), FORMAT_DEAD);
        leaf.header.level = 1;
        leaf_seal(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'd', reverse, false), FORMAT_LEVEL);
        leaf.header.tag++;
        leaf_seal(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'd', reverse, false), FORMAT_OTHER);
        leaf.header.state = 0;
        leaf_seal(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'd', reverse, false), FORMAT_MALFORMED);
        leaf.image[4] ^= 1;
        assert_int_equal(leaf_verdict(&leaf, 'd', reverse, false), FORMAT_TORN);
        leaf.header.state = FORMAT_NODE_LIVE;
        leaf.header.level = 0;
        leaf.header.tag = TAG;
        leaf_seal(&leaf);
        assert_int_equal(leaf_verdict(&leaf, 'd', reverse, false), FORMAT_LIVE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_live_node_is_its_links),
        cmocka_unit_test(a_changed_byte_is_torn),
        cmocka_unit_test(an_impossible_header_is_malformed),
        cmocka_unit_test(another_tag_or_index_is_another_node),
        cmocka_unit_test(level_and_state_are_told),
        cmocka_unit_test(a_hit_needs_the_bucket_alone),
        cmocka_unit_test(without_the_header_a_miss_is_unproven),
        cmocka_unit_test(a_miss_needs_header_and_slots),
        cmocka_unit_test(behind_the_bucket_a_hit_is_not_looked_for),
        cmocka_unit_test(in_place_is_found_what_a_copy_has),
        cmocka_unit_test(in_place_keys_with_one_tail_are_told_apart),
        cmocka_unit_test(each_slot_of_the_bucket_must_be_valid),
        cmocka_unit_test(versions_must_be_one),
        cmocka_unit_test(a_slot_of_another_version_is_no_hit),
        cmocka_unit_test(a_point_hears_what_the_header_says),
        cmocka_unit_test(under_the_lock),
        cmocka_unit_test(a_moved_key_is_no_hit_under_the_lock),
        cmocka_unit_test(a_scan_forward),
        cmocka_unit_test(a_scan_in_reverse),
        cmocka_unit_test(a_scan_hears_what_the_header_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
