/* walk.c - what a memory node's walk takes for each node that it looks at (memory/walk.h), nine nodes of 1
 * KiB in the nearest caches; and what merging takes for each entry, in leaves that lie in memory. */
#include <stdlib.h>
#include <string.h>

#include "bench/micro/micro.h"
#include "format/internal_node.h"
#include "format/leaf.h"
#include "memory/memory.h"
#include "memory/walk.h"
#include "memory/walk_message.h"

#define REPEATS 64u
#define LEVELS  8u /* above the leaf */
#define ENTRIES 40u
#define INDEX   1u
#define TAG     77u
/* Far more leaves than caches hold, and keys of each. */
#define MERGE_LEAVES (128u << 10)
#define MERGE_KEYS   2u
#define MERGE_SHARE  16u

struct walks {
    struct memory_node *node;
    struct memory_walker *walker;
    struct format_layout layout;
    uint64_t random;
    uint8_t reply[MEMORY_WALK_REPLY_MAX];
};

static gaddr place(unsigned level)
{
    return MEMORY_FIRST_CHUNK(MEMORY_LOCK_BYTES) + level * 1024u;
}

/* Every entry of a node leads to the one node below it. */
static void fill(struct walks *walks)
{
    uint8_t *pool = memory_node_target(walks->node)->pool;
    static uint8_t image[1024];
    for (uint8_t level = 0; level <= LEVELS; level++) {
        struct format_header header = {.tag = TAG,
                                       .version = 1,
                                       .state = FORMAT_NODE_LIVE,
                                       .level = level,
                                       .index = INDEX,
                                       .lower = format_key_least(&walks->layout)};
        uint8_t keys[ENTRIES][8];
        struct format_entry entries[ENTRIES];
        for (uint32_t i = 0; i < ENTRIES; i++) {
            memset(keys[i], (int)(i * 6), sizeof keys[i]);
            entries[i].key = (struct format_key){keys[i], sizeof keys[i]};
            entries[i].link = (struct format_link){.address = place(level - 1u), .tag = TAG};
        }
        if (level)
            format_internal_encode(&walks->layout, &header, entries, ENTRIES, image);
        else
            format_leaf_format(&walks->layout, &header, image);
        memcpy(pool + place(level), image, sizeof image);
    }
}

static void walk(void *argument)
{
    struct walks *walks = argument;
    for (uint32_t i = 0; i < REPEATS; i++) {
        uint8_t bytes[256];
        size_t length;
        struct memory_walk_writer writer = {.bytes = bytes, .capacity = sizeof bytes};
        const struct memory_walk_request request = {.kind = MEMORY_WALK_FIND,
                                                    .index = INDEX,
                                                    .count = 1,
                                                    .geometry =
                                                        memory_walk_geometry_of(&walks->layout.geometry)};
        walks->random = walks->random * UINT64_C(6364136223846793005) + 1442695040888963407;
        const struct format_key key = {(const uint8_t *)&walks->random, 8};
        memory_walk_put(&writer, &request, sizeof request);
        memory_walk_put_start(&writer, (struct format_link){place(LEVELS), TAG}, LEVELS, key);
        memory_walk(walks->walker, bytes, writer.length, walks->reply, sizeof walks->reply, &length);
        micro_keep(length);
    }
}

/* Each of them takes any key. */
static void fill_leaves(struct walks *walks)
{
    uint8_t *pool = memory_node_target(walks->node)->pool;
    static uint8_t image[1024];
    const struct format_header header = {.tag = TAG,
                                         .version = 1,
                                         .state = FORMAT_NODE_LIVE,
                                         .index = INDEX,
                                         .lower = format_key_least(&walks->layout)};
    format_leaf_format(&walks->layout, &header, image);
    for (unsigned i = 0; i < MERGE_LEAVES; i++)
        memcpy(pool + place(LEVELS + 1 + i), image, sizeof image);
}

static void merge(void *argument)
{
    struct walks *walks = argument;
    for (uint32_t i = 0; i < REPEATS; i++) {
        uint8_t bytes[1024];
        size_t length;
        struct memory_walk_writer writer = {.bytes = bytes, .capacity = sizeof bytes};
        const struct memory_walk_request request = {.kind = MEMORY_MERGE,
                                                    .index = INDEX,
                                                    .count = MERGE_SHARE,
                                                    .geometry =
                                                        memory_walk_geometry_of(&walks->layout.geometry)};
        memory_walk_put(&writer, &request, sizeof request);
        for (uint32_t j = 0; j < MERGE_SHARE; j++) {
            walks->random = walks->random * UINT64_C(6364136223846793005) + 1442695040888963407;
            const unsigned leaf = (unsigned)(walks->random >> 33) % MERGE_LEAVES;
            const uint64_t key = leaf * MERGE_KEYS + (walks->random >> 60) % MERGE_KEYS;
            const struct memory_merge_entry entry = {
                .leaf = place(LEVELS + 1 + leaf), .tag = TAG, .key_length = 8, .value_length = 8};
            memory_walk_put(&writer, &entry, sizeof entry);
            memory_walk_put(&writer, &key, sizeof key);
            memory_walk_put(&writer, &walks->random, sizeof walks->random);
        }
        memory_walk(walks->walker, bytes, writer.length, walks->reply, sizeof walks->reply, &length);
        micro_keep(length);
    }
}

bool micro_walk(uint32_t rounds, struct micro_result results[MICRO_NAMES])
{
    struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    const struct memory_options options = {.pool_bytes = (MERGE_LEAVES + 4096) * UINT64_C(1024)};
    struct error error;
    struct walks *walks = calloc(1, sizeof *walks);
    bool done = walks && !memory_node_create(&walks->node, &options, &error);
    if (done)
        walks->walker = memory_walker_create(walks->node);
    done = done && walks->walker && !format_geometry_complete(&geometry, 4096, &error) &&
           !format_layout_init(&walks->layout, &geometry, &error);
    if (done) {
        fill(walks);
        done = micro_measure(rounds, REPEATS * (LEVELS + 1), walk, walks, &results[MICRO_WALK_NODE]) &&
               memory_walker_counts(walks->walker)->answered == memory_walker_counts(walks->walker)->walks;
    }
    if (done) {
        const struct memory_walk_counts *counts = memory_walker_counts(walks->walker);
        fill_leaves(walks);
        memory_walker_writes(walks->walker, NULL);
        done = micro_measure(rounds, REPEATS * MERGE_SHARE, merge, walks, &results[MICRO_MERGE_ENTRY]) &&
               counts->entries && counts->merged == counts->entries;
    }
    if (walks) {
        format_layout_free(&walks->layout);
        memory_walker_destroy(walks->walker);
        if (walks->node)
            memory_node_destroy(walks->node);
    }
    free(walks);
    return done;
}
