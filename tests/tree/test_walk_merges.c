/* test_walk_merges.c - MERGE and EXCHANGE (memory/walk_merge.c): entries that a memory node puts into leaves
 * against the index that they go to, whatever their keys hold, or only if that is what is expected. What a
 * compute node finds there is what was merged, over several geometries; readers between any two stores find
 * the old value or the new one; what needs more than a slot is left alone; and requests from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "memory/node.h"
#include "memory/walk.h"
#include "memory/walk_message.h"
#include "side.h"
#include "tree/index.h"

#define KEYS 700u

struct scene {
    struct memory_node *memory;
    struct side side;
    struct memory_walker *walker, *reads;
    struct format_geometry geometry;
    struct random random;
    uint64_t values[KEYS]; /* 0: not there */
    unsigned outcomes[MEMORY_WALK_OUTCOMES];
    uint8_t request[MEMORY_WALK_REQUEST_MAX], reply[MEMORY_WALK_REPLY_MAX];
    size_t reply_length;
    /* between stores */
    bool looking;
    unsigned number, looks, saw_old, saw_new;
    uint64_t now; /* what the key is to hold */
};

static size_t key_make(const struct scene *scene, unsigned number, uint8_t *key)
{
    size_t length = scene->geometry.key_bytes;
    memset(key, 'k', length);
    if (scene->geometry.key_kind == FORMAT_KEY_VARIABLE)
        length = 4 + (number % 3 == 2 ? length - 4 : number % 3 * 7);
    const uint32_t spread = number * 2654435761u;
    for (unsigned i = 0; i < 4; i++)
        key[i] = (uint8_t)(spread >> (24 - 8 * i));
    return length;
}

static size_t value_make(const struct scene *scene, uint64_t number, uint8_t *value)
{
    memset(value, (int)(number * 7), scene->geometry.value_bytes);
    memcpy(value, &number, sizeof number);
    return scene->geometry.value_bytes;
}

static uint64_t value_number(const struct scene *scene, const uint8_t *value, size_t length)
{
    uint8_t wanted[FORMAT_VALUE_MAX];
    uint64_t number;
    assert_int_equal(length, scene->geometry.value_bytes);
    memcpy(&number, value, sizeof number);
    value_make(scene, number, wanted);
    assert_memory_equal(value, wanted, length);
    return number;
}

static uint64_t look_up(struct scene *scene, unsigned number)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
    size_t length = sizeof value;
    int status =
        tree_lookup(scene->side.session, scene->side.tree, key, key_make(scene, number, key), value, &length);
    assert_true(status == 0 || status == BANYAN_ENOTFOUND);
    return status ? 0 : value_number(scene, value, length);
}

/* By the compute node. */
static void change(struct scene *scene, unsigned number, uint64_t value)
{
    uint8_t key[FORMAT_KEY_MAX], bytes[FORMAT_VALUE_MAX];
    struct side *side = &scene->side;
    const size_t length = key_make(scene, number, key), value_length = value_make(scene, value, bytes);
    int status = value ? tree_upsert(side->session, side->tree, key, length, bytes, value_length)
                       : tree_delete(side->session, side->tree, key, length);
    assert_true(status == 0 || (!value && status == BANYAN_ENOTFOUND));
    scene->values[number] = value;
}

static void scene_open(struct scene *scene, const struct format_geometry *geometry)
{
    struct memory_options options = {.pool_bytes = 64 << 20};
    struct error error = {0};
    memset(scene, 0, sizeof *scene);
    random_seed(&scene->random, 21);
    assert_int_equal(memory_node_create(&scene->memory, &options, &error), 0);
    side_open(&scene->side, scene->memory, 1, TREE_READ_BUCKET);
    assert_int_equal(tree_format(scene->side.session), 0);
    assert_int_equal(tree_create(scene->side.session, "merges", geometry, &scene->side.tree), 0);
    scene->geometry = *tree_geometry(scene->side.tree);
    scene->walker = memory_walker_create(scene->memory);
    assert_non_null(scene->walker);
    memory_walker_writes(scene->walker, NULL);
    scene->reads = memory_walker_create(scene->memory);
    assert_non_null(scene->reads);
    for (unsigned i = 0; i < KEYS; i++)
        if (i % 3)
            change(scene, i, i + 1);
}

static void scene_close(struct scene *scene)
{
    memory_walker_destroy(scene->walker);
    memory_walker_destroy(scene->reads);
    side_close(&scene->side, true);
    memory_node_destroy(scene->memory);
}

/* ---- asking ---- */

static struct memory_walk_writer begin(struct scene *scene, uint32_t kind, unsigned count)
{
    struct memory_walk_writer writer = {.bytes = scene->request, .capacity = sizeof scene->request};
    const struct memory_walk_request request = {.kind = kind,
                                                .index = scene->side.tree->index,
                                                .count = (uint16_t)count,
                                                .path = kind >= MEMORY_MERGE,
                                                .geometry = memory_walk_geometry_of(&scene->geometry)};
    assert_true(memory_walk_put(&writer, &request, sizeof request));
    return writer;
}

static int ask(struct scene *scene, const struct memory_walk_writer *writer,
               struct memory_walk_reader *reader)
{
    int status = memory_walk(scene->walker, writer->bytes, writer->length, scene->reply, sizeof scene->reply,
                             &scene->reply_length);
    if (!status)
        assert_true(memory_walk_read(reader, scene->reply, scene->reply_length));
    return status;
}

/* The key's leaf, by a walk. */
static struct format_link leaf_of(struct scene *scene, unsigned number)
{
    const struct tree *tree = scene->side.tree;
    uint8_t key[FORMAT_KEY_MAX];
    struct memory_walk_reader reader;
    struct memory_walk_answer answer;
    const uint8_t *value;
    struct memory_walk_writer writer = begin(scene, MEMORY_WALK_FIND, 1);
    ((struct memory_walk_request *)(void *)scene->request)->path = 0;
    assert_true(tree->root.address != GADDR_NULL);
    assert_true(memory_walk_put_start(&writer, tree->root, tree->root_level,
                                      (struct format_key){key, (uint32_t)key_make(scene, number, key)}));
    assert_int_equal(ask(scene, &writer, &reader), 0);
    assert_true(memory_walk_read_answer(&reader, &answer, &value));
    assert_true(answer.outcome <= MEMORY_WALK_MISS);
    return (struct format_link){.address = answer.address, .tag = answer.tag};
}

static void put_entry(struct scene *scene, struct memory_walk_writer *writer, struct format_link leaf,
                      unsigned number, uint64_t value)
{
    uint8_t key[FORMAT_KEY_MAX], bytes[FORMAT_VALUE_MAX];
    const size_t key_length = key_make(scene, number, key),
                 length = value ? value_make(scene, value, bytes) : 0;
    const struct memory_merge_entry entry = {.leaf = leaf.address,
                                             .tag = leaf.tag,
                                             .key_length = (uint8_t)key_length,
                                             .value_length = (uint8_t)length,
                                             .deleted = !value};
    assert_true(memory_walk_put(writer, &entry, sizeof entry) && memory_walk_put(writer, key, key_length) &&
                memory_walk_put(writer, bytes, length));
}

/* An answer against what the keys hold. What was not merged the compute node does. */
static void judge(struct scene *scene, struct memory_walk_reader *reader, unsigned number, uint64_t value)
{
    struct memory_walk_answer answer;
    const uint8_t *old;
    assert_true(memory_walk_read_answer(reader, &answer, &old));
    scene->outcomes[answer.outcome]++;
    if (answer.outcome > MEMORY_WALK_MISS) {
        assert_int_equal(answer.outcome, MEMORY_WALK_MORE);
        assert_int_equal(look_up(scene, number), scene->values[number]); /* nothing was done */
        change(scene, number, value);
        return;
    }
    assert_int_equal(answer.outcome, scene->values[number] ? MEMORY_WALK_HIT : MEMORY_WALK_MISS);
    if (answer.outcome == MEMORY_WALK_HIT)
        assert_int_equal(value_number(scene, old, answer.value_length), scene->values[number]);
    assert_int_equal(answer.tag == UINT32_MAX, !value && !scene->values[number]);
    if (!value) { /* the block of a long key is nobody's any more */
        uint8_t key[FORMAT_KEY_MAX];
        pool_block_release(tree_session_pool(scene->side.session), answer.address,
                           (uint32_t)key_make(scene, number, key));
    }
    scene->values[number] = value;
    assert_int_equal(look_up(scene, number), value);
}

static void one(struct scene *scene, unsigned number, uint64_t value)
{
    struct memory_walk_reader reader;
    const struct format_link leaf = leaf_of(scene, number);
    struct memory_walk_writer writer = begin(scene, MEMORY_MERGE, 1);
    put_entry(scene, &writer, leaf, number, value);
    assert_int_equal(ask(scene, &writer, &reader), 0);
    judge(scene, &reader, number, value);
    assert_int_equal(reader.left, 0);
}

/* ---- the leaves have what was merged ---- */

static const struct format_geometry shapes[] = {
    {.key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .internal_bytes = 512},
    {.key_bytes = 16, .value_bytes = 100, .leaf_bytes = 2048},
    {.key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .leaf_kind = FORMAT_LEAF_UNSORTED},
    {.key_kind = FORMAT_KEY_VARIABLE,
     .key_bytes = 60,
     .value_bytes = 16,
     .leaf_bytes = 1024,
     .internal_bytes = 1024,
     .inline_key_bytes = 16},
    {.key_kind = FORMAT_KEY_VARIABLE, .value_bytes = 40, .internal_bytes = 4096},
    {.key_bytes = 8, .value_bytes = 8, .leaf_bytes = 1024, .leaf_kind = FORMAT_LEAF_DENSE},
    {.key_kind = FORMAT_KEY_VARIABLE,
     .value_bytes = 17,
     .internal_bytes = 4096,
     .inline_key_bytes = 16,
     .leaf_kind = FORMAT_LEAF_DENSE},
};

/* So many distinct keys at once, some twice: their entries are merged in their order. */
static void some(struct scene *scene, unsigned count)
{
    unsigned numbers[MEMORY_WALK_KEYS_MAX];
    uint64_t values[MEMORY_WALK_KEYS_MAX];
    struct format_link leaves[MEMORY_WALK_KEYS_MAX];
    struct memory_walk_reader reader;
    for (unsigned i = 0; i < count; i++) {
        numbers[i] = (unsigned)random_below(&scene->random, KEYS);
        for (unsigned j = 0; j < i; j++)
            if (numbers[i] == numbers[j]) {
                numbers[i] = (numbers[i] + 1) % KEYS;
                j = UINT32_MAX; /* from the first one on again */
            }
        values[i] = random_chance(&scene->random, 0.3) ? 0 : 1 + random_below(&scene->random, 1000000);
        leaves[i] = leaf_of(scene, numbers[i]);
    }
    struct memory_walk_writer writer = begin(scene, MEMORY_MERGE, count);
    for (unsigned i = 0; i < count; i++)
        put_entry(scene, &writer, leaves[i], numbers[i], values[i]);
    assert_int_equal(ask(scene, &writer, &reader), 0);
    /* What is left to the compute node may split leaves: the answers are of before. */
    static uint8_t reply[MEMORY_WALK_REPLY_MAX];
    memcpy(reply, scene->reply, scene->reply_length);
    assert_true(memory_walk_read(&reader, reply, scene->reply_length));
    for (unsigned i = 0; i < count; i++)
        judge(scene, &reader, numbers[i], values[i]);
}

static void leaves_have_it(void **state)
{
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct scene *scene = malloc(sizeof *scene);
        scene_open(scene, &shapes[i]);
        for (unsigned round = 0; round < 500; round++)
            one(scene, (unsigned)random_below(&scene->random, KEYS),
                random_chance(&scene->random, 0.3) ? 0 : round + 1);
        for (unsigned round = 0; round < 40; round++)
            some(scene, 1 + (unsigned)random_below(&scene->random, 20));
        for (unsigned number = 0; number < KEYS; number++)
            assert_int_equal(look_up(scene, number), scene->values[number]);
        struct tree_check_report report; /* sound, and no key's block was lost */
        side_account(&scene->side, 1, scene->memory, scene->side.tree, 0, &report);
        print_message("%u hits, %u misses, %u need more\n", scene->outcomes[MEMORY_WALK_HIT],
                      scene->outcomes[MEMORY_WALK_MISS], scene->outcomes[MEMORY_WALK_MORE]);
        assert_true(scene->outcomes[MEMORY_WALK_HIT] > 100 && scene->outcomes[MEMORY_WALK_MISS] > 50);
        const struct memory_walk_counts *counts = memory_walker_counts(scene->walker);
        assert_int_equal(counts->merged,
                         scene->outcomes[MEMORY_WALK_HIT] + scene->outcomes[MEMORY_WALK_MISS]);
        scene_close(scene);
        free(scene);
    }
}

/* ---- changes with a condition ---- */

static void put_expected(struct scene *scene, struct memory_walk_writer *writer,
                         enum memory_expectation expects, uint64_t expected)
{
    uint8_t bytes[FORMAT_VALUE_MAX];
    const size_t length = expects == MEMORY_EXPECT_VALUE ? value_make(scene, expected, bytes) : 0;
    const struct memory_exchange_expected head = {.expects = (uint8_t)expects, .length = (uint8_t)length};
    assert_true(memory_walk_put(writer, &head, sizeof head) && memory_walk_put(writer, bytes, length));
}

static bool is_met(uint64_t held, enum memory_expectation expects, uint64_t expected)
{
    return expects == MEMORY_EXPECT_ANYTHING || (expects == MEMORY_EXPECT_NOTHING && !held) ||
           (expects == MEMORY_EXPECT_SOMETHING && held) ||
           (expects == MEMORY_EXPECT_VALUE && held && held == expected);
}

/* Whether it was met. */
static bool exchange(struct scene *scene, unsigned number, uint64_t value, enum memory_expectation expects,
                     uint64_t expected)
{
    const uint64_t held = scene->values[number];
    struct memory_walk_reader reader;
    struct memory_walk_answer answer;
    const uint8_t *old;
    const struct format_link leaf = leaf_of(scene, number);
    struct memory_walk_writer writer = begin(scene, MEMORY_EXCHANGE, 1);
    put_entry(scene, &writer, leaf, number, value);
    put_expected(scene, &writer, expects, expected);
    assert_int_equal(ask(scene, &writer, &reader), 0);
    if (is_met(held, expects, expected)) {
        judge(scene, &reader, number, value);
        return true;
    }
    assert_true(memory_walk_read_answer(&reader, &answer, &old));
    assert_int_equal(answer.outcome, held ? MEMORY_WALK_HIT : MEMORY_WALK_MISS);
    assert_int_equal(answer.tag, UINT32_MAX);
    if (held)
        assert_int_equal(value_number(scene, old, answer.value_length), held);
    assert_int_equal(look_up(scene, number), held);
    return false;
}

static void changes_if_expected(void **state)
{
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct scene *scene = malloc(sizeof *scene);
        unsigned met[MEMORY_EXPECTATIONS] = {0}, unmet[MEMORY_EXPECTATIONS] = {0};
        scene_open(scene, &shapes[i]);
        for (unsigned round = 0; round < 700; round++) {
            const unsigned number = (unsigned)random_below(&scene->random, KEYS);
            const enum memory_expectation expects =
                (enum memory_expectation)random_below(&scene->random, MEMORY_EXPECTATIONS);
            const uint64_t expected = random_chance(&scene->random, 0.7) ? scene->values[number] : 4711;
            const uint64_t value = random_chance(&scene->random, 0.3) ? 0 : 100000 + round;
            if (exchange(scene, number, value, expects, expected))
                met[expects]++;
            else
                unmet[expects]++;
        }
        for (unsigned expects = 0; expects < MEMORY_EXPECTATIONS; expects++)
            assert_true(met[expects] > 20 && (!expects || unmet[expects] > 20));
        struct tree_check_report report;
        side_account(&scene->side, 1, scene->memory, scene->side.tree, 0, &report);
        const struct memory_walk_counts *counts = memory_walker_counts(scene->walker);
        assert_int_equal(counts->merges, 0);
        scene_close(scene);
        free(scene);
    }
}

/* ---- readers between any two stores ---- */

/* One walk of another thread; UINT64_MAX: the leaf does not prove what the key holds now. */
static uint64_t walk_to(struct scene *scene, unsigned number)
{
    static uint8_t request[1024], reply[MEMORY_WALK_REPLY_MAX];
    const struct tree *tree = scene->side.tree;
    uint8_t key[FORMAT_KEY_MAX];
    const struct memory_walk_request head = {.kind = MEMORY_WALK_FIND,
                                             .index = tree->index,
                                             .count = 1,
                                             .geometry = memory_walk_geometry_of(&scene->geometry)};
    struct memory_walk_writer writer = {.bytes = request, .capacity = sizeof request};
    struct memory_walk_reader reader;
    struct memory_walk_answer answer = {0};
    const uint8_t *value = NULL;
    size_t length;
    assert_true(memory_walk_put(&writer, &head, sizeof head));
    assert_true(memory_walk_put_start(&writer, tree->root, tree->root_level,
                                      (struct format_key){key, (uint32_t)key_make(scene, number, key)}));
    assert_int_equal(memory_walk(scene->reads, request, writer.length, reply, sizeof reply, &length), 0);
    assert_true(memory_walk_read(&reader, reply, length) &&
                memory_walk_read_answer(&reader, &answer, &value));
    if (answer.outcome == MEMORY_WALK_HIT)
        return value_number(scene, value, answer.value_length);
    assert_true(answer.outcome == MEMORY_WALK_MISS || answer.outcome == MEMORY_WALK_UNPROVEN);
    return answer.outcome == MEMORY_WALK_MISS ? 0 : UINT64_MAX;
}

static void look(void *context)
{
    struct scene *scene = context;
    if (!scene->looking)
        return;
    const uint64_t found = walk_to(scene, scene->number);
    if (found != UINT64_MAX) {
        assert_true(found == scene->values[scene->number] || found == scene->now);
        assert_true(found == scene->now || !scene->saw_new); /* never back */
        scene->saw_old += found != scene->now;
        scene->saw_new += found == scene->now;
    }
    const unsigned other = (unsigned)random_below(&scene->random, KEYS);
    if (other != scene->number) {
        const uint64_t beside = walk_to(scene, other);
        assert_true(beside == scene->values[other] || (!scene->values[other] && beside == UINT64_MAX));
    }
    scene->looks++;
}

static void between_stores(void **state)
{
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct scene *scene = malloc(sizeof *scene);
        scene_open(scene, &shapes[i]);
        memory_walker_between(scene->walker, look, scene);
        unsigned both = 0;
        for (unsigned round = 0; round < 400; round++) {
            scene->number = (unsigned)random_below(&scene->random, KEYS);
            scene->now = random_chance(&scene->random, 0.3) ? 0 : round + 1;
            scene->saw_old = scene->saw_new = 0;
            const struct format_link leaf = leaf_of(scene, scene->number);
            struct memory_walk_writer writer = begin(scene, MEMORY_MERGE, 1);
            struct memory_walk_reader reader;
            put_entry(scene, &writer, leaf, scene->number, scene->now);
            scene->looking = true;
            assert_int_equal(ask(scene, &writer, &reader), 0);
            scene->looking = false;
            both += scene->saw_old && scene->saw_new;
            judge(scene, &reader, scene->number, scene->now);
        }
        assert_true(both > 50 && scene->looks > 800);
        scene_close(scene);
        free(scene);
    }
}

/* ---- what is in the way ---- */

static enum memory_walk_outcome outcome_of(struct scene *scene, struct format_link leaf, unsigned number)
{
    struct memory_walk_reader reader;
    struct memory_walk_answer answer;
    const uint8_t *value;
    struct memory_walk_writer writer = begin(scene, MEMORY_MERGE, 1);
    put_entry(scene, &writer, leaf, number, 77);
    assert_int_equal(ask(scene, &writer, &reader), 0);
    assert_true(memory_walk_read_answer(&reader, &answer, &value));
    return (enum memory_walk_outcome)answer.outcome;
}

/* Writes a header as the compute node would, and back. */
static enum memory_walk_outcome with_state(struct scene *scene, struct format_link leaf, unsigned number,
                                           enum format_node_state wanted)
{
    const struct format_layout *layout = &scene->side.tree->layout;
    uint8_t *bytes = memory_node_target(scene->memory)->pool + gaddr_offset(leaf.address);
    static uint8_t before[65536], image[65536];
    struct format_header header;
    memcpy(before, bytes, layout->geometry.leaf_bytes);
    memcpy(image, bytes, layout->geometry.leaf_bytes);
    assert_true(format_header_decode(layout, image, &header));
    struct format_key_copy lower, upper;
    format_key_store(&lower, header.lower);
    header.lower = format_key_of(&lower);
    if (header.has_upper) {
        format_key_store(&upper, header.upper);
        header.upper = format_key_of(&upper);
    }
    header.state = (uint8_t)wanted;
    format_header_encode(layout, &header, image);
    memcpy(bytes, image, layout->geometry.leaf_bytes);
    const enum memory_walk_outcome outcome = outcome_of(scene, leaf, number);
    assert_memory_equal(bytes, image, layout->geometry.leaf_bytes); /* nothing was written */
    memcpy(bytes, before, layout->geometry.leaf_bytes);
    return outcome;
}

static void what_is_in_the_way(void **state)
{
    struct scene *scene = malloc(sizeof *scene);
    scene_open(scene, &shapes[0]);
    const struct format_link leaf = leaf_of(scene, 1);
    unsigned other = 2;
    while (leaf_of(scene, other).address == leaf.address)
        other++;
    assert_int_equal(outcome_of(scene, leaf, 1), MEMORY_WALK_HIT);
    scene->values[1] = 77;
    assert_int_equal(outcome_of(scene, leaf, other), MEMORY_WALK_ASTRAY); /* another leaf's key */
    assert_int_equal(outcome_of(scene, (struct format_link){leaf.address, leaf.tag + 1}, 1),
                     MEMORY_WALK_STALE);
    assert_int_equal(with_state(scene, leaf, 1, FORMAT_NODE_DEAD), MEMORY_WALK_STALE);
    assert_int_equal(with_state(scene, leaf, 1, FORMAT_NODE_SPLITTING), MEMORY_WALK_UNPROVEN);
    assert_int_equal(with_state(scene, leaf, 1, FORMAT_NODE_MERGING), MEMORY_WALK_UNPROVEN);
    assert_int_equal(with_state(scene, leaf, 1, FORMAT_NODE_FROZEN), MEMORY_WALK_UNPROVEN);
    uint8_t *header = memory_node_target(scene->memory)->pool + gaddr_offset(leaf.address);
    header[0] ^= 1; /* torn */
    assert_int_equal(outcome_of(scene, leaf, 1), MEMORY_WALK_UNPROVEN);
    header[0] ^= 1;
    for (unsigned number = 0; number < KEYS; number++)
        assert_int_equal(look_up(scene, number), scene->values[number]);
    scene_close(scene);
    free(scene);
}

/* ---- requests from outside ---- */

static void refused(struct scene *scene, const struct memory_walk_writer *writer, const char *what)
{
    const struct fabric_target *target = memory_node_target(scene->memory);
    struct memory_walk_reader reader;
    uint8_t *before = malloc(target->pool_bytes);
    assert_non_null(before);
    memcpy(before, target->pool, target->pool_bytes);
    int status = ask(scene, writer, &reader);
    if (status != BANYAN_EINVAL)
        fail_msg("%s: status %d", what, status);
    assert_memory_equal(before, target->pool, target->pool_bytes); /* not even the entries before it */
    free(before);
}

static void bad_requests(void **state)
{
    struct scene *scene = malloc(sizeof *scene);
    scene_open(scene, &shapes[0]);
    const struct format_link leaf = leaf_of(scene, 1);
    const size_t first = sizeof(struct memory_walk_request),
                 second = first + sizeof(struct memory_merge_entry) + 16;
    struct memory_walk_request *head = (void *)scene->request;
    struct memory_merge_entry *entry = (void *)(scene->request + second);
    struct memory_walk_writer writer;
#define REFUSED(change)                                                                                      \
    do {                                                                                                     \
        writer = begin(scene, MEMORY_MERGE, 2);                                                              \
        put_entry(scene, &writer, leaf, 1, 5);                                                               \
        put_entry(scene, &writer, leaf, 2, 6);                                                               \
        change;                                                                                              \
        refused(scene, &writer, #change);                                                                    \
    } while (0)
    REFUSED(writer.length--);
    REFUSED(writer.length -= 8);
    REFUSED(head->count = 3);
    REFUSED(head->count = 1);
    REFUSED(head->count = MEMORY_WALK_KEYS_MAX + 1);
    REFUSED(head->leaves = 1);
    REFUSED(head->before = 1);
    REFUSED(head->path = 2);
    REFUSED(entry->reserved = 1);
    REFUSED(entry->deleted = 2);
    REFUSED(entry->deleted = 1);
    REFUSED(entry->key_length = 7);
    REFUSED(entry->value_length = 7);
    REFUSED(entry->leaf += 8);
    REFUSED(entry->leaf = 64);
    REFUSED(entry->leaf += UINT64_C(1) << 40);
    REFUSED(entry->leaf |= GADDR_LOCK_REGION);
    REFUSED(entry->leaf = gaddr_make(3, gaddr_offset(leaf.address)));
#define REFUSED_EXCHANGE(change)                                                                             \
    do {                                                                                                     \
        writer = begin(scene, MEMORY_EXCHANGE, 1);                                                           \
        put_entry(scene, &writer, leaf, 1, 5);                                                               \
        put_expected(scene, &writer, MEMORY_EXPECT_VALUE, 2);                                                \
        change;                                                                                              \
        refused(scene, &writer, #change);                                                                    \
    } while (0)
    struct memory_merge_entry *alone = (void *)(scene->request + first);
    struct memory_exchange_expected *expected = (void *)(scene->request + second);
    REFUSED_EXCHANGE(writer.length--);
    REFUSED_EXCHANGE(writer.length -= 8);
    REFUSED_EXCHANGE(writer.length -= 8 + sizeof *expected);
    REFUSED_EXCHANGE(head->count = 2);
    REFUSED_EXCHANGE(head->count = 0);
    REFUSED_EXCHANGE(head->down_to = 1);
    REFUSED_EXCHANGE(expected->expects = MEMORY_EXPECTATIONS);
    REFUSED_EXCHANGE(expected->expects = MEMORY_EXPECT_ANYTHING);
    REFUSED_EXCHANGE(expected->length = 9);
    REFUSED_EXCHANGE(expected->length = 7);
    REFUSED_EXCHANGE(expected->reserved = 1);
    REFUSED_EXCHANGE(alone->reserved = 1);
    REFUSED_EXCHANGE(alone->leaf += 8);
    writer = begin(scene, MEMORY_EXCHANGE, 2);
    for (unsigned i = 0; i < 2; i++) {
        put_entry(scene, &writer, leaf, 1 + i, 5);
        put_expected(scene, &writer, MEMORY_EXPECT_ANYTHING, 0);
    }
    refused(scene, &writer, "two changes");
    const struct memory_walk_counts *counts = memory_walker_counts(scene->walker);
    assert_int_equal(counts->merges, 0);
    /* A walker that does not write says so. */
    writer = begin(scene, MEMORY_MERGE, 1);
    put_entry(scene, &writer, leaf, 1, 5);
    assert_int_equal(memory_walk(scene->reads, writer.bytes, writer.length, scene->reply, sizeof scene->reply,
                                 &scene->reply_length),
                     BANYAN_ENOTSUP);
    scene_close(scene);
    free(scene);
}

/* A key of no bytes, for which a slot would be written that is valid for nobody; and one that is too long. */
static void keys_of_no_index(void **state)
{
    struct scene *scene = malloc(sizeof *scene);
    scene_open(scene, &shapes[3]);
    const unsigned longest = scene->geometry.key_bytes;
    for (unsigned kind = MEMORY_MERGE; kind <= MEMORY_EXCHANGE; kind++)
        for (unsigned length = 0; length <= longest + 1; length += longest + 1) {
            uint8_t key[FORMAT_KEY_MAX] = {1}, value[FORMAT_VALUE_MAX];
            const struct format_link leaf = leaf_of(scene, 1);
            const struct memory_merge_entry entry = {.leaf = leaf.address,
                                                     .tag = leaf.tag,
                                                     .key_length = (uint8_t)length,
                                                     .value_length = (uint8_t)value_make(scene, 5, value)};
            struct memory_walk_writer writer = begin(scene, kind, 1);
            assert_true(memory_walk_put(&writer, &entry, sizeof entry) &&
                        memory_walk_put(&writer, key, length) &&
                        memory_walk_put(&writer, value, entry.value_length));
            if (kind == MEMORY_EXCHANGE)
                put_expected(scene, &writer, MEMORY_EXPECT_ANYTHING, 0);
            refused(scene, &writer, length ? "a key that is too long" : "a key of no bytes");
        }
    scene_close(scene);
    free(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_have_it), cmocka_unit_test(changes_if_expected),
        cmocka_unit_test(between_stores), cmocka_unit_test(what_is_in_the_way),
        cmocka_unit_test(bad_requests),   cmocka_unit_test(keys_of_no_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
