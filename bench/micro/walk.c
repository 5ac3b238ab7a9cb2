/* walk.c - what a memory node's walk takes for each node that it looks at (memory/walk.h): nine nodes of 1
 * KiB in the nearest caches. */
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

bool micro_walk(uint32_t rounds, struct micro_result results[MICRO_NAMES])
{
    struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8};
    const struct memory_options options = {.pool_bytes = 4 << 20};
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
    if (walks) {
        format_layout_free(&walks->layout);
        memory_walker_destroy(walks->walker);
        if (walks->node)
            memory_node_destroy(walks->node);
    }
    free(walks);
    return done;
}
