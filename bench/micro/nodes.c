/*
 * nodes.c - what reading nodes costs one core: the code that lookups, descents and scans run on what they
 * have fetched, over and over on the same few nodes, in warm caches (micro.h).
 */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/crc32c.h"
#include "base/epoch.h"
#include "base/random.h"
#include "bench/micro/micro.h"
#include "format/verdict.h"
#include "tree/cache.h"
#include "tree/entries.h"
#include "tree/session.h"

#define LEAF_BYTES 1024u
#define LEAVES     4u /* about 100 entries: what a scan of usual length reads */
#define KEYS_MAX   256u
#define TAG        7u
#define INDEX      1u
#define REPEATS    32u

struct nodes {
    struct format_layout layout;
    struct format_header header;
    uint8_t leaves[LEAVES][LEAF_BYTES];
    uint64_t keys[LEAVES][KEYS_MAX]; /* that are in them */
    uint32_t counts[LEAVES], entries;
    uint8_t image[LEAF_BYTES];
    struct tree_session session; /* its buffers for sorting, and nothing else of it */
    struct epoch_domain *domain;
    struct epoch_slot *slot;
    struct tree_cache *cache;
    struct format_link inner;
    uint32_t inner_count;
    struct format_entry room[FORMAT_ENTRIES_MAX];
};

static struct format_key key_of(const uint64_t *key)
{
    return (struct format_key){(const uint8_t *)key, sizeof *key};
}

/* Numbers in key order. */
static uint64_t ordered(uint64_t number)
{
    return __builtin_bswap64(number);
}

/* Four fifths full, as a bulk load leaves it. */
static void leaf_fill(struct nodes *nodes, uint32_t leaf, struct random *random)
{
    const struct format_layout *layout = &nodes->layout;
    uint32_t seed = format_slot_seed(TAG, nodes->header.version);
    uint32_t wanted = layout->slots * 4 / 5;
    format_leaf_format(layout, &nodes->header, nodes->leaves[leaf]);
    for (uint32_t tries = 0; nodes->counts[leaf] < wanted && tries < 100 * wanted; tries++) {
        struct format_bucket bucket;
        uint64_t *key = &nodes->keys[leaf][nodes->counts[leaf]];
        *key = ordered(random_next(random));
        format_bucket_of(layout, TAG, key_of(key), &bucket);
        uint32_t number = format_bucket_free_slot(layout, nodes->leaves[leaf], &bucket, seed);
        if (number == UINT32_MAX)
            continue;
        format_slot_write(layout, nodes->leaves[leaf], number, seed, nodes->header.lower, GADDR_NULL,
                          key_of(key), key_of(key));
        nodes->counts[leaf]++;
    }
    nodes->entries += nodes->counts[leaf];
}

static bool inner_fill(struct nodes *nodes)
{
    static uint64_t keys[FORMAT_ENTRIES_MAX];
    uint8_t image[LEAF_BYTES];
    struct format_header header = nodes->header;
    uint32_t count = nodes->layout.internal_entries * 4 / 5;
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = ordered(i * (UINT64_MAX / count));
        nodes->room[i] = (struct format_entry){key_of(&keys[i]), {4096 + i * 1024, i + 1}};
    }
    header.level = 1;
    format_internal_encode(&nodes->layout, &header, nodes->room, count, image);
    nodes->inner = (struct format_link){1 << 20, TAG};
    nodes->inner_count = count;
    return tree_cache_install(nodes->cache, nodes->slot, nodes->inner.address, image, nodes->room);
}

static void nodes_destroy(struct nodes *nodes)
{
    if (nodes->cache)
        tree_cache_destroy(nodes->cache);
    if (nodes->slot)
        epoch_slot_release(nodes->slot);
    if (nodes->domain)
        epoch_domain_destroy(nodes->domain);
    free(nodes->session.entries);
    free(nodes->session.order);
    format_layout_free(&nodes->layout);
    free(nodes);
}

static struct nodes *nodes_create(void)
{
    static const uint8_t least[8];
    struct format_geometry geometry = {.leaf_bytes = LEAF_BYTES, .key_bytes = 8, .value_bytes = 8};
    struct error error;
    struct random random;
    struct nodes *nodes = calloc(1, sizeof *nodes);
    if (!nodes)
        return NULL;
    if (format_geometry_complete(&geometry, LEAF_BYTES, &error) ||
        format_layout_init(&nodes->layout, &geometry, &error)) {
        free(nodes);
        return NULL;
    }
    nodes->header = (struct format_header){
        .tag = TAG, .version = 1, .state = FORMAT_NODE_LIVE, .index = INDEX, .lower = {least, sizeof least}};
    random_seed(&random, 1);
    for (uint32_t i = 0; i < LEAVES; i++)
        leaf_fill(nodes, i, &random);
    nodes->domain = epoch_domain_create();
    nodes->slot = nodes->domain ? epoch_slot_acquire(nodes->domain) : NULL;
    nodes->cache = tree_cache_create(1 << 20, 1, &nodes->layout);
    if (nodes->slot && nodes->cache && inner_fill(nodes))
        return nodes;
    nodes_destroy(nodes);
    return NULL;
}

/* ---- the parts ---- */

static void slots_check(void *argument)
{
    struct nodes *nodes = argument;
    const struct format_link link = {4096, TAG};
    for (uint32_t i = 0; i < REPEATS; i++) {
        struct format_point point;
        struct format_header header;
        struct format_slot slot;
        uint32_t leaf = i % LEAVES, key = i * 7 % nodes->counts[leaf];
        format_point_set(&point, &nodes->layout, link, INDEX, key_of(&nodes->keys[leaf][key]));
        micro_keep(format_point_verdict(&point, nodes->leaves[leaf], FORMAT_SEEN_BUCKET, &header, &slot));
    }
}

static void entries_sort(void *argument)
{
    struct nodes *nodes = argument;
    for (uint32_t i = 0; i < LEAVES; i++) {
        uint32_t count = 0;
        atomic_copy_from(nodes->image, nodes->leaves[i], LEAF_BYTES);
        if (!tree_leaf_order(&nodes->session, &nodes->layout, nodes->image, &nodes->header, &count))
            micro_keep(count);
    }
}

/* After entries_sort: of the last leaf. */
static void entries_visit(void *argument)
{
    struct nodes *nodes = argument;
    uint8_t out[16];
    for (uint32_t repeat = 0; repeat < LEAVES; repeat++)
        for (uint32_t i = 0; i < nodes->counts[LEAVES - 1]; i++) {
            struct tree_leaf_entry entry;
            tree_leaf_entry_at(&nodes->session, &nodes->layout, nodes->image, i, &entry);
            memcpy(out, entry.key.bytes, 8);
            memcpy(out + 8, entry.value.bytes, 8);
            micro_keep((uintptr_t)out);
        }
}

static void checksum(void *argument)
{
    struct nodes *nodes = argument;
    for (uint32_t i = 0; i < LEAVES; i++)
        micro_keep(crc32c(0, nodes->leaves[i] + 4, LEAF_BYTES - 4));
}

static void inner_search(void *argument)
{
    struct nodes *nodes = argument;
    epoch_enter(nodes->slot);
    struct tree_frame *frame = tree_cache_find(nodes->cache, nodes->inner);
    uint32_t entry = 0;
    for (uint32_t i = 0; i < REPEATS; i++) { /* each search needs the answer of the one before */
        uint64_t key = ordered((i * UINT64_C(0x9e3779b97f4a7c15)) ^ entry);
        entry = tree_frame_search(&nodes->layout, frame, key_of(&key), false);
    }
    micro_keep(entry);
    epoch_leave(nodes->slot);
}

bool micro_nodes(uint32_t rounds, struct micro_result results[MICRO_NAMES])
{
    struct nodes *nodes = nodes_create();
    if (!nodes)
        return false;
    const struct {
        enum micro_name name;
        void (*part)(void *);
        double units;
    } parts[] = {
        {MICRO_SLOT_CHECK, slots_check, REPEATS * nodes->layout.bucket_slots},
        {MICRO_ENTRY_SORT, entries_sort, nodes->entries},
        {MICRO_ENTRY_VISIT, entries_visit, LEAVES * nodes->counts[LEAVES - 1]},
        {MICRO_CHECKSUM_LINE, checksum, LEAVES * LEAF_BYTES / 64},
        {MICRO_INNER_SEARCH, inner_search, REPEATS},
    };
    bool done = true;
    for (unsigned i = 0; i < sizeof parts / sizeof *parts && done; i++)
        done = micro_measure(rounds, parts[i].units, parts[i].part, nodes, &results[parts[i].name]);
    nodes_destroy(nodes);
    return done;
}
