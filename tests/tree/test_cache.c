/*
 * test_cache.c - the cache of inner nodes: a frame that is made from what a node was encoded from is the one
 * that the node's image makes, and what a split leaves in the cache leads every key to its leaf.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/epoch.h"
#include "base/random.h"
#include "swarm/world.h"
#include "tree/cache.h"

/* ---- memory ---- */

/* What this process has in huge pages. UINT64_MAX: the system gives them without being asked. */
static uint64_t huge_bytes(void)
{
    char line[256];
    unsigned long kilobytes, all = 0;
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    bool always = file && fgets(line, sizeof line, file) && strstr(line, "[always]");
    if (file)
        fclose(file);
    if (always)
        return UINT64_MAX;
    file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %lu", &kilobytes) == 1)
            all += kilobytes;
    fclose(file);
    return all;
}

/* ---- frames ---- */

#define IMAGE_BYTES 4096u
#define ADDRESS     (UINT64_C(1) << 20)
#define TAG         9u

/* A node, and the same node in two caches. */
struct node {
    struct format_layout layout;
    struct epoch_domain *domain;
    struct epoch_slot *slot;
    struct tree_cache *decoded, *direct;
    struct format_header header;
    struct format_entry entries[FORMAT_ENTRIES_MAX], room[FORMAT_ENTRIES_MAX];
    uint8_t keys[FORMAT_ENTRIES_MAX + 1][FORMAT_KEY_MAX];
    uint8_t image[IMAGE_BYTES] __attribute__((aligned(8)));
};

static void node_open(struct node *node, uint8_t kind, uint8_t key_bytes)
{
    struct format_geometry geometry = {
        .key_kind = kind, .key_bytes = key_bytes, .internal_bytes = IMAGE_BYTES, .value_bytes = 8};
    struct error error = {0};
    assert_int_equal(format_geometry_complete(&geometry, IMAGE_BYTES, &error), 0);
    assert_int_equal(format_layout_init(&node->layout, &geometry, &error), 0);
    node->domain = epoch_domain_create();
    node->slot = epoch_slot_acquire(node->domain);
    node->decoded = tree_cache_create(1 << 20, 1, &node->layout);
    node->direct = tree_cache_create(1 << 20, 1, &node->layout);
    assert_true(node->slot && node->decoded && node->direct);
}

static void node_close(struct node *node)
{
    tree_cache_destroy(node->decoded);
    tree_cache_destroy(node->direct);
    epoch_slot_release(node->slot);
    epoch_domain_destroy(node->domain);
    format_layout_free(&node->layout);
}

/* Key `number` of some that ascend, of which many have the same head. */
static struct format_key key_make(struct node *node, struct random *random, uint32_t number)
{
    const bool fixed = node->layout.geometry.key_kind == FORMAT_KEY_FIXED;
    const uint32_t most = node->layout.geometry.key_bytes;
    uint8_t *bytes = node->keys[number];
    memset(bytes, 0, FORMAT_KEY_MAX);
    bytes[2] = (uint8_t)(number / 100);
    bytes[most - 3] = (uint8_t)(number / 10 % 10);
    bytes[most - 2] = (uint8_t)(number % 10);
    const bool least = !number && random_below(random, 2);
    const uint32_t length = fixed ? most : least ? 0 : most - (uint32_t)random_below(random, 2);
    return (struct format_key){bytes, length};
}

static void node_draw(struct node *node, struct random *random)
{
    const uint32_t count = 1 + (uint32_t)random_below(random, node->layout.internal_entries);
    node->header = (struct format_header){.tag = TAG,
                                          .version = (uint16_t)random_next(random),
                                          .state = FORMAT_NODE_LIVE,
                                          .level = (uint8_t)(1 + random_below(random, 3)),
                                          .has_upper = random_below(random, 2)};
    for (uint32_t i = 0; i < count; i++)
        node->entries[i] = (struct format_entry){
            key_make(node, random, i),
            {ADDRESS + 4096u * (1 + random_below(random, 1000)), (uint32_t)random_next(random)}};
    if (!random_below(random, 4)) /* its first child has gone */
        node->entries[0].link = (struct format_link){0};
    node->header.lower = node->entries[0].key;
    if (node->header.has_upper) {
        node->header.upper = key_make(node, random, count);
        node->header.sibling = (struct format_link){2 * ADDRESS, TAG + 1};
    }
    memset(node->image, 0xee, sizeof node->image);
    format_internal_encode(&node->layout, &node->header, node->entries, count, node->image);
}

static void frames_compare(const struct node *node, const struct tree_frame *a, const struct tree_frame *b)
{
    assert_true(format_link_equal(a->link, b->link) && format_link_equal(a->sibling, b->sibling));
    assert_int_equal(a->level, b->level);
    assert_int_equal(a->has_upper, b->has_upper);
    assert_int_equal(a->whole, b->whole);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->count, node->header.count);
    assert_int_equal(a->room, b->room);
    assert_int_equal(a->common, b->common);
    assert_memory_equal(a->prefix, b->prefix, sizeof a->prefix);
    assert_true(a->lower_head == b->lower_head);
    assert_true(!a->has_upper || a->upper_head == b->upper_head);
    assert_int_equal(!a->children, !b->children);
    const uint32_t lines = (a->count + TREE_HEADS_LINE - 1) / TREE_HEADS_LINE;
    assert_memory_equal(a->heads, b->heads, lines * TREE_HEADS_LINE * sizeof *a->heads);
    for (uint32_t i = a->count; i < lines * TREE_HEADS_LINE; i++)
        assert_true(a->heads[i] == UINT64_MAX);
    for (uint32_t i = 0; i < (uint32_t)a->count + a->has_upper; i++) {
        struct tree_key_room room[2];
        const struct format_key expected = i < a->count ? node->entries[i].key : node->header.upper;
        assert_int_equal(format_key_compare(tree_frame_key(&node->layout, a, i, &room[0]), expected), 0);
        assert_int_equal(format_key_compare(tree_frame_key(&node->layout, b, i, &room[1]), expected), 0);
    }
    for (uint32_t i = 0; i < a->count; i++) {
        assert_true(format_link_equal(tree_frame_link(a, i), node->entries[i].link));
        assert_true(format_link_equal(tree_frame_link(b, i), node->entries[i].link));
    }
}

static void entries_make_the_same_frame(void **state)
{
    static const uint8_t kinds[][2] = {
        {FORMAT_KEY_FIXED, 8}, {FORMAT_KEY_FIXED, 12}, {FORMAT_KEY_FIXED, 15}, {FORMAT_KEY_VARIABLE, 24}};
    static struct node node;
    const uint64_t seed = random_entropy();
    struct random random;
    (void)state;
    random_seed(&random, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        node_open(&node, kinds[kind][0], kinds[kind][1]);
        for (unsigned round = 0; round < 300; round++) {
            const struct format_link link = {ADDRESS, TAG};
            node_draw(&node, &random);
            assert_true(tree_cache_install(node.decoded, node.slot, link.address, node.image, node.room));
            assert_true(
                tree_cache_install_entries(node.direct, node.slot, link.address, &node.header, node.entries));
            epoch_enter(node.slot);
            const struct tree_frame *decoded = tree_cache_find(node.decoded, link);
            const struct tree_frame *direct = tree_cache_find(node.direct, link);
            assert_true(decoded && direct);
            frames_compare(&node, decoded, direct);
            epoch_leave(node.slot);
        }
        node_close(&node);
    }
}

/* ---- splits ---- */

#define INSERTED 3000u

/* Each key that is there, without a way that leads astray, and without a READ of an inner node. */
static void ways_check(struct world_task *task, const uint64_t *numbers, uint32_t count)
{
    struct tree_session *session = task->session;
    tree_session_stats_reset(session);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
        size_t length = sizeof value;
        const size_t key_length = world_key(task->world, numbers[i], key);
        assert_int_equal(tree_lookup(session, task->tree, key, key_length, value, &length), 0);
    }
    assert_int_equal(tree_session_stats(session)->cache_misses, 0);
    assert_int_equal(tree_session_stats(session)->retries, 0);
}

/* More than one node was split by one insert: an inner node too. */
static void splits_check(struct world_task *task, bool ascending)
{
    static uint64_t numbers[INSERTED];
    unsigned inner = 0;
    for (uint32_t i = 0; i < INSERTED; i++) {
        uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
        numbers[i] = ascending ? i : (i * 1009u) % INSERTED;
        const size_t key_length = world_key(task->world, numbers[i], key);
        const size_t length = world_value(task->world, i, value);
        tree_session_stats_reset(task->session);
        assert_int_equal(tree_insert(task->session, task->tree, key, key_length, value, length), 0);
        if (tree_session_stats(task->session)->splits < 2)
            continue;
        inner++;
        ways_check(task, numbers, i + 1);
    }
    assert_true(inner > 3);
}

static void splits_at_random(struct world_task *task)
{
    splits_check(task, false);
}

static void splits_at_the_end(struct world_task *task)
{
    splits_check(task, true);
}

static void splits_leave_right_ways(void **state)
{
    static void (*const orders[])(struct world_task * task) = {splits_at_random, splits_at_the_end};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct world world;
        struct world_options options;
        world_options_default(&options);
        options.geometry.leaf_bytes = options.geometry.internal_bytes = 512;
        if (i / 2) {
            options.geometry.key_kind = FORMAT_KEY_VARIABLE;
            options.geometry.key_bytes = 24;
        }
        int status = world_create(&world, &options);
        status = status ? status : world_run_one(&world, 0, orders[i % 2]);
        struct error error = world.error;
        world_destroy(&world);
        if (status)
            fail_msg("%d: %s", status, error.text);
    }
}

/* A cache for many inner nodes takes no huge page for the first of them. */
static void few_frames_take_no_huge_page(void **state)
{
    static struct node node;
    struct random random;
    (void)state;
    random_seed(&random, 3);
    node_open(&node, FORMAT_KEY_VARIABLE, 24);
    node_draw(&node, &random);
    struct tree_cache *cache = tree_cache_create(UINT64_C(64) << 20, 1, &node.layout);
    const uint64_t before = huge_bytes();
    assert_true(cache && tree_cache_install_entries(cache, node.slot, ADDRESS, &node.header, node.entries));
    epoch_enter(node.slot);
    assert_non_null(tree_cache_find(cache, (struct format_link){ADDRESS, TAG}));
    epoch_leave(node.slot);
    assert_true(huge_bytes() == before);
    tree_cache_destroy(cache);
    node_close(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_make_the_same_frame),
        cmocka_unit_test(few_frames_take_no_huge_page),
        cmocka_unit_test(splits_leave_right_ways),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
