/* test_bad_input.c - nothing that comes from outside crashes the index: arguments, full pools, corrupt
 * bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <string.h>
#include "base/crc32c.h"
#include "swarm/world.h"
#include "format/internal_node.h"
#include "format/leaf.h"

/* Within a task: the first expectation that does not hold becomes the world's error. */
static void expect(struct world_task *task, int line, int status, int expected)
{
    const char *text = tree_session_error(task->session)->text;
    if (status != expected)
        world_fail(task->world, BANYAN_EABORT, "line %d: status %d instead of %d: %s", line, status, expected,
                   text);
    else if (expected != 0 && expected != BANYAN_ENOTFOUND && expected != BANYAN_EEXIST &&
             expected != BANYAN_ECONFLICT && !text[0])
        world_fail(task->world, BANYAN_EABORT, "line %d: status %d comes without a message", line, status);
}
#define EXPECT(call, expected) expect(task, __LINE__, call, expected)

static void run(const struct world_options *options, void (*function)(struct world_task *task))
{
    struct world world;
    int status = world_create(&world, options);
    status = status ? status : world_run_one(&world, 0, function);
    status = status || options->empty ? status : world_check(&world, NULL);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

/* ---- arguments ----------------------------------------------------------------------------------- */

static bool nobody(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct world_task *task = context;
    world_fail(task->world, BANYAN_EABORT, "an index that is empty has an entry");
    return false;
}

static enum tree_verdict too_much(void *context, const void *old, size_t old_length, void *value,
                                  size_t *length)
{
    *length = *(size_t *)context;
    return TREE_PUT;
}

static void bad_keys_fixed(struct world_task *task)
{
    struct tree_session *s = task->session;
    struct tree *t = task->tree;
    uint8_t key[300] = {1}, value[300] = {2};
    for (size_t length = 0; length < 300; length += length == 6 || length == 7 ? 1 : 3) {
        size_t room = sizeof value;
        if (length == 8)
            continue;
        const void *k = length ? key : NULL;
        EXPECT(tree_lookup(s, t, k, length, value, &room), BANYAN_EKEYSIZE);
        EXPECT(tree_insert(s, t, k, length, value, 8), BANYAN_EKEYSIZE);
        EXPECT(tree_update(s, t, k, length, value, 8), BANYAN_EKEYSIZE);
        EXPECT(tree_upsert(s, t, k, length, value, 8), BANYAN_EKEYSIZE);
        EXPECT(tree_delete(s, t, k, length), BANYAN_EKEYSIZE);
        EXPECT(tree_compare_and_set(s, t, k, length, value, 8, value, 8), BANYAN_EKEYSIZE);
    }
    for (size_t length = 0; length < 300; length += 7) {
        if (length == 8)
            continue;
        const void *v = length ? value : NULL;
        EXPECT(tree_insert(s, t, key, 8, v, length), BANYAN_EVALUESIZE);
        EXPECT(tree_upsert(s, t, key, 8, v, length), BANYAN_EVALUESIZE);
        EXPECT(tree_modify(s, t, key, 8, too_much, &length), BANYAN_EVALUESIZE);
    }
    struct tree_range range = {.from = NULL};
    EXPECT(tree_scan(s, t, &range, nobody, task), 0);
    range = (struct tree_range){.from = key, .from_length = 256, .to = key, .to_length = 8};
    int status = tree_scan(s, t, &range, nobody, task);
    if (status != 0) /* bounds need not be keys; if refused, then properly */
        EXPECT(status, BANYAN_EKEYSIZE);
    EXPECT(tree_multi_get(s, t, NULL, 0), 0);
    EXPECT(tree_multi_put(s, t, NULL, 0), 0);
    struct tree_item items[3];
    for (unsigned i = 0; i < 3; i++)
        items[i] = (struct tree_item){.key = key, .key_length = i == 1 ? 9 : 8, .value = value, .length = 8};
    tree_multi_get(s, t, items, 3);
    if (items[0].status != BANYAN_ENOTFOUND || items[1].status != BANYAN_EKEYSIZE ||
        items[2].status != BANYAN_ENOTFOUND)
        world_fail(task->world, BANYAN_EABORT, "multi_get: one bad key among good ones: %d %d %d",
                   items[0].status, items[1].status, items[2].status);
    items[0].key_length = 0;
    items[1].length = 9;
    items[1].key_length = 8;
    items[2].length = 8;
    tree_multi_put(s, t, items, 3);
    if (items[0].status != BANYAN_EKEYSIZE || items[1].status != BANYAN_EVALUESIZE || items[2].status != 0)
        world_fail(task->world, BANYAN_EABORT, "multi_put: bad items among good ones: %d %d %d",
                   items[0].status, items[1].status, items[2].status);
    EXPECT(tree_delete(s, t, key, 8), 0);
}

static void refuses_bad_keys_and_values(void **state)
{
    struct world_options options;
    world_options_default(&options);
    run(&options, bad_keys_fixed);
}

static void bad_keys_variable(struct world_task *task)
{
    struct tree_session *s = task->session;
    struct tree *t = task->tree;
    uint8_t key[300], value[300] = {2};
    size_t room = sizeof value;
    memset(key, 'k', sizeof key);
    EXPECT(tree_lookup(s, t, NULL, 0, value, &room), BANYAN_EKEYSIZE);
    EXPECT(tree_insert(s, t, NULL, 0, value, 4), BANYAN_EKEYSIZE);
    EXPECT(tree_insert(s, t, key, 256, value, 4), BANYAN_EKEYSIZE);
    EXPECT(tree_insert(s, t, key, 61, value, 4), BANYAN_EKEYSIZE);
    EXPECT(tree_lookup(s, t, key, 60, value, &room), BANYAN_ENOTFOUND);
    EXPECT(tree_insert(s, t, key, 60, value, 17), BANYAN_EVALUESIZE);
    EXPECT(tree_insert(s, t, key, 60, value, 4), 0); /* more than a slot can hold */
    EXPECT(tree_insert(s, t, key, 60, value, 4), BANYAN_EEXIST);
    EXPECT(tree_lookup(s, t, key, 60, value, &room), 0);
    EXPECT(tree_delete(s, t, key, 60), 0);
    EXPECT(tree_insert(s, t, key, 24, value, 17), BANYAN_EVALUESIZE);
    EXPECT(tree_insert(s, t, key, 24, NULL, 0), 0);
    EXPECT(tree_insert(s, t, key, 1, value, 16), 0);
    room = 15;
    EXPECT(tree_lookup(s, t, key, 1, value, &room), BANYAN_EVALUESIZE);
    room = 0;
    EXPECT(tree_lookup(s, t, key, 24, NULL, &room), 0);
    EXPECT(tree_delete(s, t, key, 1), 0);
    EXPECT(tree_delete(s, t, key, 24), 0);
}

static void refuses_bad_variable_keys(void **state)
{
    struct world_options options;
    world_options_default(&options);
    options.geometry = (struct format_geometry){
        .key_kind = FORMAT_KEY_VARIABLE, .key_bytes = 60, .value_bytes = 16, .value_variable = true};
    run(&options, bad_keys_variable);
}

/* ---- catalogue ----------------------------------------------------------------------------------- */

static void bad_names(struct world_task *task)
{
    struct tree_session *s = task->session;
    struct tree *t = NULL;
    struct format_geometry good = {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8};
    char name[80];
    memset(name, 'n', sizeof name);
    name[64] = 0;
    EXPECT(tree_create(s, name, &good, &t), BANYAN_EINVAL);
    EXPECT(tree_create(s, "", &good, &t), BANYAN_EINVAL);
    EXPECT(tree_open(s, "nobody", &t), BANYAN_ENOTFOUND);
    if (tree_open(s, name, &t) == 0)
        world_fail(task->world, BANYAN_EABORT, "opened an index whose name is too long");
    EXPECT(tree_create(s, "test", &good, &t), BANYAN_EEXIST);
    name[63] = 0;
    EXPECT(tree_create(s, name, &good, &t), 0);
    if (t)
        tree_close(t);
    static const struct format_geometry impossible[] = {
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 7, .value_bytes = 8},
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 0, .value_bytes = 8},
        {.key_kind = 2, .key_bytes = 8},
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8, .leaf_kind = 3},
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .leaf_bytes = 1000},
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .leaf_bytes = 256},
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .leaf_bytes = 131072},
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .internal_bytes = 8192},
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .internal_bytes = 513},
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 255, .value_bytes = 255, .leaf_bytes = 512},
        {.key_kind = FORMAT_KEY_FIXED,
         .key_bytes = 255,
         .value_bytes = 8,
         .leaf_bytes = 4096,
         .internal_bytes = 512},
        {.key_kind = FORMAT_KEY_VARIABLE, .key_bytes = 255, .value_bytes = 8, .internal_bytes = 512},
        {.key_kind = FORMAT_KEY_VARIABLE, .key_bytes = 60, .inline_key_bytes = 15, .value_bytes = 8},
        {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8, .content = FORMAT_CONTENT_STORE + 1},
    };
    for (unsigned i = 0; i < sizeof impossible / sizeof impossible[0]; i++) {
        int status = tree_create(s, "impossible", &impossible[i], &t);
        if (status != BANYAN_EINVAL || !tree_session_error(s)->text[0])
            world_fail(task->world, BANYAN_EABORT, "impossible geometry %u: status %d", i, status);
    }
}

static void refuses_bad_names_and_geometries(void **state)
{
    struct world_options options;
    world_options_default(&options);
    options.compute_nodes = 1;
    struct world world;
    int status = world_create(&world, &options);
    status = status ? status : world_run_one(&world, 0, bad_names);
    struct error error = world.error;
    world_destroy(&world);
    if (status)
        fail_msg("%d: %s", status, error.text);
}

static void bad_superblock(struct world_task *task)
{
    struct tree_session *s = task->session;
    struct tree *t = NULL;
    uint8_t *block = memory_node_target(task->world->memory[0])->pool + MEMORY_CATALOGUE_OFFSET, saved[4352];
    memcpy(saved, block, 16);
    for (unsigned i = 0; i < 16; i++) {
        block[i] ^= 0x40;
        EXPECT(tree_open(s, "test", &t), BANYAN_ECORRUPT);
        block[i] ^= 0x40;
    }
    uint32_t version = 77, crc;
    memcpy(block + 8, &version, 4);
    crc = crc32c(0, block, 12);
    memcpy(block + 12, &crc, 4);
    EXPECT(tree_open(s, "test", &t), BANYAN_EVERSION);
    memset(block, 0, 16);
    EXPECT(tree_open(s, "test", &t), BANYAN_ECORRUPT);
    memcpy(block, saved, 16);
    /* The first entry; its first eight bytes are the root, which is judged when it is followed. */
    uint8_t *entry = block + 4096;
    for (unsigned i = 8; i < 60; i++) {
        entry[i] ^= 0x21;
        int status = tree_open(s, "test", &t);
        if (status != BANYAN_ECORRUPT)
            world_fail(task->world, BANYAN_EABORT, "catalogue entry with byte %u flipped: status %d", i,
                       status);
        entry[i] ^= 0x21;
    }
    uint64_t root, wild[] = {UINT64_MAX, UINT64_C(1) << 47, 8, UINT64_C(0x0005000000010000), 12345};
    memcpy(&root, entry, 8);
    for (unsigned i = 0; i < sizeof wild / sizeof wild[0]; i++) {
        uint8_t key[8] = {0}, value[8];
        size_t length = sizeof value;
        memcpy(entry, &wild[i], 8);
        int status = tree_open(s, "test", &t);
        if (status == 0) {
            status = tree_lookup(s, t, key, 8, value, &length);
            tree_close(t);
        }
        if (status != BANYAN_ECORRUPT && status != BANYAN_EADDRESS)
            world_fail(task->world, BANYAN_EABORT, "wild root 0x%" PRIx64 ": status %d", wild[i], status);
    }
    memcpy(entry, &root, 8);
}

/* One damaged bit of an entry, or of its root word: neither is the index gone then, nor the key. */
static void bad_bits(struct world_task *task)
{
    struct tree_session *s = task->session;
    struct tree *open = NULL, *t = NULL;
    uint8_t *entry = memory_node_target(task->world->memory[0])->pool + MEMORY_CATALOGUE_OFFSET + 4096;
    uint8_t key[8] = {1}, value[8] = {2};
    EXPECT(tree_upsert(s, task->tree, key, 8, value, 8), 0);
    for (unsigned bit = 0; bit < 60 * 8; bit++) {
        const uint8_t mask = (uint8_t)(1u << bit % 8);
        size_t length = sizeof value;
        EXPECT(tree_open(s, "test", &open), 0);
        entry[bit / 8] ^= mask;
        int status = tree_lookup(s, open, key, 8, value, &length);
        if (status && status != BANYAN_ECORRUPT && status != BANYAN_EADDRESS)
            world_fail(task->world, BANYAN_EABORT, "a lookup, bit %u flipped: status %d", bit, status);
        if (bit < 6 && status != BANYAN_ECORRUPT)
            world_fail(task->world, BANYAN_EABORT, "a lookup, mark %u flipped: status %d", bit, status);
        status = tree_open(s, "test", &t);
        if (status != (bit < 64 ? 0 : BANYAN_ECORRUPT))
            world_fail(task->world, BANYAN_EABORT, "opening, bit %u flipped: status %d", bit, status);
        tree_close(t);
        entry[bit / 8] ^= mask;
        length = sizeof value;
        EXPECT(tree_lookup(s, open, key, 8, value, &length), 0); /* nothing was remembered */
        tree_close(open);
    }
}

static void one_flipped_bit_is_no_drop(void **state)
{
    struct world_options options;
    world_options_default(&options);
    run(&options, bad_bits);
}

static void notices_a_corrupt_catalogue(void **state)
{
    struct world_options options;
    world_options_default(&options);
    run(&options, bad_superblock);
}

static const struct format_geometry long_geometry = {.key_kind = FORMAT_KEY_VARIABLE,
                                                     .key_bytes = 200,
                                                     .inline_key_bytes = 16,
                                                     .value_bytes = 8,
                                                     .leaf_bytes = 2048,
                                                     .internal_bytes = 2048};

/* ---- full pool ----------------------------------------------------------------------------------- */

#define FULL_KEYS 100000u

static void fill_up(struct world_task *task)
{
    struct world *world = task->world;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    uint64_t stored = 0, refused = 0, last = 0;
    for (uint64_t i = 0; i < FULL_KEYS && refused < 50; i++) {
        int status = tree_insert(task->session, task->tree, key, world_key(world, i, key), value,
                                 world_value(world, i + 1, value));
        if (status == BANYAN_ENOSPC)
            refused++;
        else if (status)
            EXPECT(status, 0);
        else
            stored++;
        last = i;
    }
    if (!refused || !stored)
        world_fail(world, BANYAN_EABORT, "%" PRIu64 " keys stored, %" PRIu64 " refused", stored, refused);
    uint64_t found = 0;
    for (uint64_t i = 0; i <= last; i++) {
        size_t length = sizeof value;
        int status = tree_lookup(task->session, task->tree, key, world_key(world, i, key), value, &length);
        found += status == 0;
        if (status && status != BANYAN_ENOTFOUND)
            EXPECT(status, 0);
    }
    if (found != stored)
        world_fail(world, BANYAN_EABORT, "%" PRIu64 " keys stored, %" PRIu64 " found", stored, found);
    /* Deletes need no space; what they free can be used again. */
    uint64_t deleted = 0;
    for (uint64_t i = 0; i <= last / 2; i++)
        deleted += tree_delete(task->session, task->tree, key, world_key(world, i, key)) == 0;
    if (deleted < stored / 3)
        world_fail(world, BANYAN_EABORT, "%" PRIu64 " of %" PRIu64 " keys deleted", deleted, stored);
    for (uint64_t i = 0; i <= last / 8; i++)
        EXPECT(tree_insert(task->session, task->tree, key, world_key(world, i, key), value,
                           world_value(world, i + 1, value)),
               0);
}

static void full_pool(unsigned memory_nodes, uint64_t chunks)
{
    struct world_options options;
    world_options_default(&options);
    options.memory_nodes = memory_nodes;
    options.lock_bytes = 4096;
    options.pool_bytes = MEMORY_FIRST_CHUNK(4096) + chunks * (UINT64_C(64) << 10);
    run(&options, fill_up);
}

static void stays_usable_when_full(void **state)
{
    full_pool(1, 4);
    full_pool(1, 11);
    full_pool(2, 5);
    struct world_options options;
    world_options_default(&options);
    options.memory_nodes = 2;
    options.lock_bytes = 4096;
    options.pool_bytes = MEMORY_FIRST_CHUNK(4096) + 20 * (UINT64_C(64) << 10);
    options.geometry = long_geometry;
    options.long_keys = true;
    run(&options, fill_up);
}

/* ---- corrupt nodes ------------------------------------------------------------------------------- */

#define KEYS 3000u

struct nodes {
    gaddr leaves[1000], internals[1000];
    unsigned leaf_count, internal_count;
    struct world *world;
};

static uint8_t *bytes_at(struct world *world, gaddr address)
{
    return memory_node_target(world->memory[gaddr_node(address)])->pool + gaddr_offset(address);
}

static void collect(void *context, gaddr node, uint32_t bytes)
{
    struct nodes *nodes = context;
    uint8_t level = bytes_at(nodes->world, node)[10];
    if (level == 0 && nodes->leaf_count < 1000)
        nodes->leaves[nodes->leaf_count++] = node;
    else if (level != 0 && nodes->internal_count < 1000)
        nodes->internals[nodes->internal_count++] = node;
}

/* Reads every key: right, or corrupt with the node's name. Returns how many were corrupt. */
static unsigned read_all(struct world_task *task, struct tree *tree, gaddr node, uint64_t step)
{
    char name[GADDR_TEXT_BYTES];
    gaddr_format(node, name);
    unsigned corrupt = 0;
    for (uint64_t i = 0; i < KEYS; i += step) {
        uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
        size_t length = sizeof value;
        int status =
            tree_lookup(task->session, tree, key, world_key(task->world, i * 2, key), value, &length);
        if (status == BANYAN_ECORRUPT) {
            corrupt++;
            if (!strstr(tree_session_error(task->session)->text, name))
                world_fail(task->world, BANYAN_EABORT, "node %s is corrupt, but the message is: %s", name,
                           tree_session_error(task->session)->text);
        } else if (status || world_value_number(task->world, value, length) != i + 1) {
            world_fail(task->world, BANYAN_EABORT, "node %s is corrupt: key %" PRIu64 ": status %d %s", name,
                       i, status, tree_session_error(task->session)->text);
        }
    }
    return corrupt;
}

static bool visit_any(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    ++*(uint64_t *)context;
    return true;
}

static void store_keys(struct world_task *task)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    for (uint64_t i = 0; i < KEYS; i++)
        EXPECT(tree_insert(task->session, task->tree, key, world_key(task->world, i * 2, key), value,
                           world_value(task->world, i + 1, value)),
               0);
}

/* With one byte of a leaf flipped: everything else is still found, and nothing wrong is. */
static void corrupt_leaf(struct world_task *task, gaddr leaf, uint32_t offset, bool header)
{
    struct world *world = task->world;
    uint8_t *byte = bytes_at(world, leaf) + offset, flip = (uint8_t)(1u << random_below(&task->random, 8));
    uint64_t seen = 0;
    *byte ^= flip;
    unsigned corrupt = read_all(task, task->tree, leaf, 3);
    if (corrupt > KEYS / 10)
        world_fail(world, BANYAN_EABORT, "one corrupt leaf hides %u keys", corrupt);
    const struct tree_range all = {0};
    int status = tree_scan(task->session, task->tree, &all, visit_any, &seen);
    if (header)
        EXPECT(status, BANYAN_ECORRUPT);
    else if (status != BANYAN_ECORRUPT)
        EXPECT(status, 0); /* a byte that means nothing */
    struct tree_check_report report;
    status = tree_check(task->session, task->tree, &report, NULL, NULL);
    if (header)
        EXPECT(status, BANYAN_ECORRUPT);
    *byte ^= flip;
}

static void corrupt_leaves(struct world_task *task)
{
    struct nodes nodes = {.world = task->world};
    struct tree_check_report report;
    store_keys(task);
    EXPECT(tree_check(task->session, task->tree, &report, collect, &nodes), 0);
    if (nodes.leaf_count < 20)
        world_fail(task->world, BANYAN_EABORT, "only %u leaves", nodes.leaf_count);
    uint32_t leaf_bytes = task->world->options.geometry.leaf_bytes;
    for (unsigned i = 0; i < 32 && !task->world->error.code; i++)
        corrupt_leaf(task, nodes.leaves[random_below(&task->random, nodes.leaf_count)], i, true);
    for (unsigned i = 0; i < world_rounds(60) && !task->world->error.code; i++)
        corrupt_leaf(task, nodes.leaves[random_below(&task->random, nodes.leaf_count)],
                     (uint32_t)random_below(&task->random, leaf_bytes), false);
    if (read_all(task, task->tree, GADDR_NULL, 1))
        world_fail(task->world, BANYAN_EABORT, "still corrupt after the bytes were put back");
    /* A write to a corrupt leaf is refused and leaves no lock behind. */
    gaddr leaf = nodes.leaves[nodes.leaf_count / 2];
    unsigned refused = 0;
    bytes_at(task->world, leaf)[5] ^= 1;
    for (unsigned round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < KEYS; i++) {
            uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
            size_t length = world_value(task->world, i + 1, value);
            int status = tree_update(task->session, task->tree, key, world_key(task->world, i * 2, key),
                                     value, length);
            if (status != BANYAN_ECORRUPT || round == 1)
                EXPECT(status, 0);
            else
                refused++;
        }
        if (round == 0)
            bytes_at(task->world, leaf)[5] ^= 1;
    }
    if (!refused)
        world_fail(task->world, BANYAN_EABORT, "writes went into a corrupt leaf");
}

static void corrupt_internals(struct world_task *task)
{
    struct world *world = task->world;
    struct nodes nodes = {.world = world};
    struct tree_check_report report;
    store_keys(task);
    EXPECT(tree_check(task->session, task->tree, &report, collect, &nodes), 0);
    if (nodes.internal_count < 3)
        world_fail(world, BANYAN_EABORT, "only %u internal nodes", nodes.internal_count);
    uint32_t bytes = world->options.geometry.internal_bytes;
    unsigned met = 0;
    for (unsigned i = 0; i < world_rounds(60) && !world->error.code; i++) {
        gaddr node = nodes.internals[random_below(&task->random, nodes.internal_count)];
        uint8_t *byte = bytes_at(world, node) + (i < 32 ? i : random_below(&task->random, bytes)),
                flip = 0x10;
        *byte ^= flip;
        struct tree *fresh = NULL; /* with a cache that knows nothing */
        int status = tree_open(task->session, "test", &fresh);
        if (status != BANYAN_ECORRUPT)
            EXPECT(status, 0);
        if (fresh) {
            met += read_all(task, fresh, node, 37) > 0;
            tree_close(fresh);
        }
        EXPECT(tree_check(task->session, task->tree, &report, NULL, NULL), BANYAN_ECORRUPT);
        *byte ^= flip;
    }
    if (!met)
        world_fail(world, BANYAN_EABORT, "no flipped bit of an internal node was noticed by a lookup");
}

static void notices_corrupt_nodes(void **state)
{
    struct world_options options;
    world_options_default(&options);
    options.seed = world_seed(5);
    options.geometry.leaf_bytes = 512;
    options.geometry.internal_bytes = 512;
    run(&options, corrupt_leaves);
    run(&options, corrupt_internals);
    options.memory_nodes = 2;
    options.geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                                .key_bytes = 24,
                                                .value_bytes = 20,
                                                .leaf_bytes = 1024,
                                                .internal_bytes = 1024};
    run(&options, corrupt_leaves);
    run(&options, corrupt_internals);
}

/* ---- corrupt key blocks -------------------------------------------------------------------------- */

/* An operation that needs whole keys names the block at fault; the others find all there is. */
static void expect_blamed(struct world_task *task, gaddr block, const char *how)
{
    char name[GADDR_TEXT_BYTES];
    gaddr_format(block, name);
    struct tree_check_report report;
    const struct tree_range all = {0};
    uint64_t seen = 0;
    for (unsigned i = 0; i < 2; i++) {
        int status = i ? tree_check(task->session, task->tree, &report, NULL, NULL)
                       : tree_scan(task->session, task->tree, &all, visit_any, &seen);
        if (status != BANYAN_ECORRUPT || !strstr(tree_session_error(task->session)->text, name))
            world_fail(task->world, BANYAN_EABORT, "%s at %s: status %d: %s", how, name, status,
                       tree_session_error(task->session)->text);
    }
    if (read_all(task, task->tree, GADDR_NULL, 3))
        world_fail(task->world, BANYAN_EABORT, "a lookup needs a key block");
}

struct key_blocks {
    gaddr blocks[KEYS], leaves[1000];
    unsigned count, leaf_count;
};

static void collect_blocks(void *context, gaddr node, uint32_t bytes)
{
    struct key_blocks *blocks = context;
    if (bytes < 512)
        blocks->blocks[blocks->count++] = node;
    else if (blocks->leaf_count < 1000)
        blocks->leaves[blocks->leaf_count++] = node; /* internal ones too */
}

/* A long slot of the leaf, if it is one and has one. */
static bool long_slot(const struct format_layout *layout, const uint8_t *image, struct format_header *header,
                      struct format_slot *slot)
{
    if (!format_header_valid(layout, image) || !format_header_decode(layout, image, header) || header->level)
        return false;
    uint32_t seed = format_slot_seed(header->tag, header->version);
    for (uint32_t i = 0; i < layout->slots; i++)
        if (format_slot_read(layout, image, i, seed, header->lower, slot) == FORMAT_SLOT_TAKEN &&
            slot->block != GADDR_NULL)
            return true;
    return false;
}

/* A slot that proves itself and tells of another block, or another key's hash. */
static void corrupt_slots(struct world_task *task, const struct key_blocks *blocks)
{
    struct format_layout layout;
    EXPECT(format_layout_init(&layout, tree_geometry(task->tree), NULL), 0);
    unsigned met = 0;
    for (unsigned i = 0; i < blocks->leaf_count && met < 10; i++) {
        uint8_t *image = bytes_at(task->world, blocks->leaves[i]), saved[4096];
        struct format_header header;
        struct format_slot slot;
        if (!long_slot(&layout, image, &header, &slot))
            continue;
        gaddr wild[] = {gaddr_make(7, 4096),
                        slot.block + (UINT64_C(1) << 40),
                        GADDR_LOCK_REGION | slot.block,
                        blocks->blocks[met],
                        blocks->leaves[i],
                        slot.block};
        uint8_t bytes[2][FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
        memcpy(bytes[0], bytes_at(task->world, slot.block), slot.key_length);
        memcpy(bytes[1], bytes[0], slot.key_length);
        bytes[1][slot.key_length - 1] ^= 1;
        memcpy(value, slot.value.bytes, slot.value.length);
        memcpy(saved, image, layout.geometry.leaf_bytes);
        for (unsigned way = 0; way < 6; way++) {
            struct format_key key = {bytes[way == 5], slot.key_length};
            format_slot_write(&layout, image, slot.number, format_slot_seed(header.tag, header.version),
                              header.lower, wild[way], key, (struct format_key){value, slot.value.length});
            if (way == 5 || wild[way] == slot.block) { /* its key cannot be found any more */
                struct tree_check_report report;
                EXPECT(tree_check(task->session, task->tree, &report, NULL, NULL),
                       way == 5 ? BANYAN_ECORRUPT : 0);
            } else {
                expect_blamed(task, wild[way], "a wild address");
            }
            memcpy(image, saved, layout.geometry.leaf_bytes);
        }
        met++;
    }
    if (met < 10)
        world_fail(task->world, BANYAN_EABORT, "only %u leaves with long slots", met);
    format_layout_free(&layout);
}

static void corrupt_key_blocks(struct world_task *task)
{
    static struct key_blocks blocks;
    struct tree_check_report report;
    blocks = (struct key_blocks){.count = 0};
    store_keys(task);
    EXPECT(tree_check(task->session, task->tree, &report, collect_blocks, &blocks), 0);
    if (blocks.count < KEYS / 4 || blocks.count != report.key_blocks)
        world_fail(task->world, BANYAN_EABORT, "%u key blocks", blocks.count);
    for (unsigned i = 0; i < 40 && !task->world->error.code; i++) {
        gaddr block = blocks.blocks[random_below(&task->random, blocks.count)];
        uint8_t *byte = bytes_at(task->world, block) + i % 13; /* all keys have so many */
        *byte ^= 4;
        expect_blamed(task, block, "a flipped bit");
        *byte ^= 4;
    }
    corrupt_slots(task, &blocks);
}

static void notices_corrupt_key_blocks(void **state)
{
    struct world_options options;
    world_options_default(&options);
    options.memory_nodes = 2;
    options.geometry = long_geometry;
    options.long_keys = true;
    run(&options, corrupt_key_blocks);
}

/* ---- a bulk load that fails gives all back -------------------------------------------------------- */

struct bulk_stream {
    struct world_task *task;
    uint64_t next, wrong; /* the key `wrong` comes out of order */
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
};

static bool bulk_next(void *context, const void **key, size_t *key_length, const void **value, size_t *length)
{
    struct bulk_stream *stream = context;
    const struct world *world = stream->task->world;
    uint64_t number = stream->next++;
    *key = stream->key;
    *value = stream->value;
    *key_length = world_key(world, number == stream->wrong ? 0 : number, stream->key);
    *length = world_value(world, number + 1, stream->value);
    return number < KEYS;
}

static void failing_bulk_load(struct world_task *task)
{
    for (unsigned i = 0; i < 4; i++) {
        struct bulk_stream stream = {.task = task, .next = 1, .wrong = i == 3 ? KEYS : 3 + i * 1200};
        struct tree_bulk *bulk;
        struct error error = {0};
        EXPECT(tree_bulk_begin(&bulk, task->tree, 1, 0.8, &error), 0);
        EXPECT(tree_bulk_part(task->session, bulk, 0, bulk_next, &stream), i == 3 ? 0 : BANYAN_EINVAL);
        EXPECT(tree_bulk_finish(task->session, bulk), i == 3 ? 0 : BANYAN_EINVAL);
    }
}

static void failed_bulk_loads_leak_nothing(void **state)
{
    struct world_options options;
    world_options_default(&options);
    options.memory_nodes = 2;
    run(&options, failing_bulk_load);
    options.geometry = long_geometry;
    options.long_keys = true;
    run(&options, failing_bulk_load);
}

/* The first parts may bring nothing, and the first key be the least that there is. */
static bool zeros_next(void *context, const void **key, size_t *key_length, const void **value,
                       size_t *length)
{
    static const uint8_t zeros[8];
    unsigned *left = context;
    *key = *value = zeros;
    *key_length = *length = sizeof zeros;
    return (*left)-- > 0;
}

static void load_the_least_key(struct world_task *task)
{
    static const uint8_t zeros[8];
    uint8_t value[8];
    size_t length = sizeof value;
    struct tree_bulk *bulk;
    struct error error = {0};
    EXPECT(tree_bulk_begin(&bulk, task->tree, 3, 0.8, &error), 0);
    for (unsigned part = 0; part < 3; part++) {
        unsigned entries = part == 2;
        EXPECT(tree_bulk_part(task->session, bulk, part, zeros_next, &entries), 0);
    }
    EXPECT(tree_bulk_finish(task->session, bulk), 0);
    EXPECT(tree_lookup(task->session, task->tree, zeros, sizeof zeros, value, &length), 0);
}

static void bulk_loads_may_begin_late_with_the_least_key(void **state)
{
    struct world_options options;
    world_options_default(&options);
    run(&options, load_the_least_key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_bad_keys_and_values),
        cmocka_unit_test(refuses_bad_variable_keys),
        cmocka_unit_test(refuses_bad_names_and_geometries),
        cmocka_unit_test(notices_a_corrupt_catalogue),
        cmocka_unit_test(one_flipped_bit_is_no_drop),
        cmocka_unit_test(stays_usable_when_full),
        cmocka_unit_test(notices_corrupt_nodes),
        cmocka_unit_test(notices_corrupt_key_blocks),
        cmocka_unit_test(failed_bulk_loads_leak_nothing),
        cmocka_unit_test(bulk_loads_may_begin_late_with_the_least_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
