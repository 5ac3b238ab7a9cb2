/* test_walks.c - walks on the memory node (memory/walk.h) against the index that they go down: the same
 * answers as a compute node's, over several geometries; nothing wrong while others change the tree between
 * any two of its reads; and requests from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "format/internal_node.h"
#include "format/verdict.h"
#include "memory/walk.h"
#include "memory/walk_message.h"
#include "memory/walk_service.h"
#include "side.h"
#include "tree/index.h"

#define KEYS 1500u

struct walks {
    struct memory_node *memory;
    struct side side;
    struct memory_walker *walker;
    struct format_geometry geometry;
    struct random random;
    uint64_t values[KEYS]; /* 0: not there */
    uint8_t request[MEMORY_WALK_REQUEST_MAX], reply[MEMORY_WALK_REPLY_MAX];
    size_t reply_length;
    /* of the churn between reads */
    uint64_t was[KEYS]; /* bits of what the key held since the walk began: its value's number modulo 64 */
    unsigned changes;
    bool changing;
    struct tree_merge_cursor merging;
};

/* ---- the index ---- */

static size_t key_make(const struct walks *walks, unsigned number, uint8_t *key)
{
    size_t length = walks->geometry.key_bytes;
    memset(key, 'k', length);
    if (walks->geometry.key_kind == FORMAT_KEY_VARIABLE)
        length = 4 + (number % 3 == 2 ? length - 4 : number % 3 * 7);
    uint32_t spread = number * 2654435761u;
    for (unsigned i = 0; i < 4; i++)
        key[i] = (uint8_t)(spread >> (24 - 8 * i));
    return length;
}

static void value_make(const struct walks *walks, uint64_t number, uint8_t *value)
{
    memset(value, (int)(number * 7), walks->geometry.value_bytes);
    memcpy(value, &number, sizeof number);
}

static void change(struct walks *walks, unsigned number, uint64_t value)
{
    uint8_t key[FORMAT_KEY_MAX], bytes[FORMAT_VALUE_MAX];
    struct side *side = &walks->side;
    size_t length = key_make(walks, number, key);
    value_make(walks, value, bytes);
    int status = value
                     ? tree_upsert(side->session, side->tree, key, length, bytes, walks->geometry.value_bytes)
                     : tree_delete(side->session, side->tree, key, length);
    assert_true(status == 0 || (!value && status == BANYAN_ENOTFOUND));
    walks->values[number] = value;
    walks->was[number] |= UINT64_C(1) << value % 64;
}

static void walks_open(struct walks *walks, const struct format_geometry *geometry)
{
    struct memory_options options = {.pool_bytes = 64 << 20};
    struct error error = {0};
    memset(walks, 0, sizeof *walks);
    random_seed(&walks->random, 20);
    assert_int_equal(memory_node_create(&walks->memory, &options, &error), 0);
    side_open(&walks->side, walks->memory, 1, TREE_READ_BUCKET);
    assert_int_equal(tree_format(walks->side.session), 0);
    assert_int_equal(tree_create(walks->side.session, "walks", geometry, &walks->side.tree), 0);
    walks->geometry = *tree_geometry(walks->side.tree);
    walks->walker = memory_walker_create(walks->memory);
    assert_non_null(walks->walker);
    for (unsigned i = 0; i < KEYS; i++)
        if (i % 3)
            change(walks, i, i + 1);
}

static void walks_close(struct walks *walks)
{
    memory_walker_destroy(walks->walker);
    side_close(&walks->side, true);
    memory_node_destroy(walks->memory);
}

/* ---- asking ---- */

static struct memory_walk_writer begin(struct walks *walks, uint32_t kind, uint16_t count)
{
    struct memory_walk_writer writer = {.bytes = walks->request, .capacity = sizeof walks->request};
    const struct memory_walk_request request = {.kind = kind,
                                                .index = walks->side.tree->index,
                                                .count = count,
                                                .geometry = memory_walk_geometry_of(&walks->geometry)};
    assert_true(memory_walk_put(&writer, &request, sizeof request));
    return writer;
}

static struct memory_walk_request *head(struct walks *walks)
{
    return (struct memory_walk_request *)(void *)walks->request;
}

static void put_key(struct walks *walks, struct memory_walk_writer *writer, unsigned number)
{
    uint8_t key[FORMAT_KEY_MAX];
    const struct tree *tree = walks->side.tree;
    const struct format_key whole = {key, (uint32_t)key_make(walks, number, key)};
    assert_true(tree->root.address != GADDR_NULL);
    assert_true(memory_walk_put_start(writer, tree->root, tree->root_level, whole));
}

static int ask(struct walks *walks, const struct memory_walk_writer *writer,
               struct memory_walk_reader *reader)
{
    int status = memory_walk(walks->walker, writer->bytes, writer->length, walks->reply, sizeof walks->reply,
                             &walks->reply_length);
    if (!status)
        assert_true(memory_walk_read(reader, walks->reply, walks->reply_length));
    return status;
}

static uint64_t value_number(const struct walks *walks, const struct memory_walk_answer *answer,
                             const uint8_t *value)
{
    uint8_t wanted[FORMAT_VALUE_MAX];
    uint64_t number;
    assert_int_equal(answer->value_length, walks->geometry.value_bytes);
    memcpy(&number, value, sizeof number);
    value_make(walks, number, wanted);
    assert_memory_equal(value, wanted, walks->geometry.value_bytes);
    return number;
}

/* ---- the same answers ---- */

static void points(struct walks *walks)
{
    for (unsigned from = 0; from < KEYS; from += MEMORY_WALK_KEYS_MAX) {
        const unsigned count = KEYS - from < MEMORY_WALK_KEYS_MAX ? KEYS - from : MEMORY_WALK_KEYS_MAX;
        struct memory_walk_writer writer = begin(walks, MEMORY_WALK_FIND, (uint16_t)count);
        struct memory_walk_reader reader;
        for (unsigned i = 0; i < count; i++)
            put_key(walks, &writer, from + i);
        assert_int_equal(ask(walks, &writer, &reader), 0);
        for (unsigned i = 0; i < count; i++) {
            struct memory_walk_answer answer;
            const uint8_t *value;
            assert_true(memory_walk_read_answer(&reader, &answer, &value));
            assert_int_equal(answer.level, 0);
            assert_int_equal(answer.outcome, walks->values[from + i] ? MEMORY_WALK_HIT : MEMORY_WALK_MISS);
            if (answer.outcome == MEMORY_WALK_HIT)
                assert_int_equal(value_number(walks, &answer, value), walks->values[from + i]);
        }
        assert_int_equal(reader.left, 0);
    }
}

struct seen {
    struct walks *walks;
    unsigned count;
    uint64_t sum;
};

static bool see(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct seen *seen = context;
    uint64_t number;
    assert_int_equal(length, seen->walks->geometry.value_bytes);
    memcpy(&number, value, sizeof number);
    seen->count++;
    seen->sum += number;
    return true;
}

/* All entries by FETCHes of leaves, from the least key to the last leaf, or from the end to the least key. */
static void leaves(struct walks *walks, bool before)
{
    const struct tree *tree = walks->side.tree;
    struct format_key_copy position = {0};
    struct seen seen = {.walks = walks};
    unsigned leaves = 0;
    if (before) {
        position.length = FORMAT_KEY_MAX;
        memset(position.bytes, 0xff, FORMAT_KEY_MAX);
    } else {
        format_key_store(&position, format_key_least(&tree->layout));
    }
    for (bool more = true; more;) {
        struct memory_walk_writer writer = begin(walks, MEMORY_WALK_FETCH, 1);
        struct memory_walk_reader reader;
        struct memory_walk_answer answer;
        struct memory_walk_node node;
        const uint8_t *bytes;
        head(walks)->leaves = 3;
        head(walks)->before = before;
        assert_true(memory_walk_put_start(&writer, tree->root, tree->root_level, format_key_of(&position)));
        assert_int_equal(ask(walks, &writer, &reader), 0);
        assert_true(memory_walk_read_answer(&reader, &answer, &bytes));
        assert_int_equal(answer.outcome, MEMORY_WALK_ARRIVED);
        uint8_t level = tree->root_level;
        unsigned met = 0;
        while (memory_walk_read_node(&reader, &node, &bytes)) {
            static uint8_t image[65536];
            struct format_header header;
            memcpy(image, bytes, node.bytes);
            if (node.level) { /* the way: one node of each level */
                assert_int_equal(node.level, level--);
                assert_int_equal(node.bytes, walks->geometry.internal_bytes);
                assert_true(format_internal_valid(&tree->layout, image));
                continue;
            }
            assert_int_equal(level, 0);
            assert_int_equal(node.bytes, tree->layout.used_bytes);
            if (!met++)
                assert_int_equal(node.address, answer.address);
            const struct format_position stands = {.key = format_key_of(&position), .reverse = before};
            assert_int_equal(format_leaf_verdict(&tree->layout, image,
                                                 (struct format_link){node.address, node.tag}, tree->index,
                                                 &stands, &header),
                             FORMAT_LIVE);
            for (uint32_t i = 0; i < tree->layout.slots; i++) {
                struct format_slot slot;
                enum format_slot_state state =
                    format_slot_read(&tree->layout, image, i, format_slot_seed(header.tag, header.version),
                                     header.lower, &slot);
                assert_int_not_equal(state, FORMAT_SLOT_INVALID);
                if (state == FORMAT_SLOT_TAKEN)
                    see(&seen, NULL, 0, slot.value.bytes, slot.value.length);
            }
            leaves++;
            more = before ? format_key_compare(header.lower, format_key_least(&tree->layout)) != 0
                          : header.has_upper;
            format_key_store(&position, before ? header.lower : more ? header.upper : header.lower);
        }
        assert_true(met > 0 && met <= 3);
    }
    struct seen all = {.walks = walks};
    const struct tree_range range = {0};
    assert_int_equal(tree_scan(walks->side.session, walks->side.tree, &range, see, &all), 0);
    assert_int_equal(seen.count, all.count);
    assert_int_equal(seen.sum, all.sum);
    assert_true(leaves > 3);
}

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

static void same_answers(void **state)
{
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct walks *walks = malloc(sizeof *walks);
        walks_open(walks, &shapes[i]);
        points(walks);
        leaves(walks, false);
        leaves(walks, true);
        assert_int_equal(memory_walker_counts(walks->walker)->refused, 0);
        walks_close(walks);
        free(walks);
    }
}

/* ---- the tree changes between any two reads ---- */

static void churn(void *context)
{
    struct walks *walks = context;
    if (!walks->changing)
        return;
    for (unsigned i = 0; i < 40; i++) {
        unsigned number = (unsigned)random_below(&walks->random, KEYS);
        if (number % 50 == 1) /* these stay */
            continue;
        /* In spells of growing and of shrinking, so that leaves split, and die. */
        bool put = random_chance(&walks->random, walks->changes / 20000 % 2 ? 0.9 : 0.1);
        walks->changes++;
        change(walks, number, put ? walks->changes + 1 : 0);
    }
    struct tree_merge_report report;
    assert_int_equal(tree_merge_step(walks->side.session, walks->side.tree, &walks->merging, 8, &report), 0);
}

static void between_reads(void **state)
{
    struct walks *walks = malloc(sizeof *walks);
    unsigned outcomes[MEMORY_WALK_OUTCOMES] = {0};
    walks_open(walks, &shapes[0]);
    memory_walker_between(walks->walker, churn, walks);
    for (unsigned round = 0; round < 3000; round++) {
        const unsigned number = (unsigned)random_below(&walks->random, KEYS);
        struct memory_walk_writer writer = begin(walks, MEMORY_WALK_FIND, 1);
        struct memory_walk_reader reader;
        struct memory_walk_answer answer;
        const uint8_t *value;
        uint8_t key[FORMAT_KEY_MAX];
        size_t length = FORMAT_VALUE_MAX;
        uint8_t room[FORMAT_VALUE_MAX];
        tree_lookup(walks->side.session, walks->side.tree, key, key_make(walks, number, key), room, &length);
        put_key(walks, &writer, number);
        walks->was[number] = UINT64_C(1) << walks->values[number] % 64;
        walks->changing = true;
        assert_int_equal(ask(walks, &writer, &reader), 0);
        walks->changing = false;
        assert_true(memory_walk_read_answer(&reader, &answer, &value));
        outcomes[answer.outcome]++;
        if (answer.outcome == MEMORY_WALK_MISS)
            assert_true(walks->was[number] & 1); /* it was not there at some instant */
        if (answer.outcome == MEMORY_WALK_HIT)
            assert_true(walks->was[number] >> value_number(walks, &answer, value) % 64 & 1);
        assert_int_not_equal(answer.outcome, MEMORY_WALK_CORRUPT);
    }
    print_message("%u hits, %u misses, %u stale, %u astray, %u unproven, %u gaps\n",
                  outcomes[MEMORY_WALK_HIT], outcomes[MEMORY_WALK_MISS], outcomes[MEMORY_WALK_STALE],
                  outcomes[MEMORY_WALK_ASTRAY], outcomes[MEMORY_WALK_UNPROVEN], outcomes[MEMORY_WALK_GAP]);
    assert_true(outcomes[MEMORY_WALK_HIT] > 500 && outcomes[MEMORY_WALK_MISS] > 200);
    assert_true(outcomes[MEMORY_WALK_STALE] > 0);
    walks_close(walks);
    free(walks);
}

/* The service of simulated memory nodes, whose walks take their time: what is changed between a request's
 * arrival and its answer is met or not, and never something else. */
static void nodes_of_two_ages(void **state)
{
    const struct memory_walk_costs costs = {.node_ns = 1, .aged_percent = 90};
    struct walks *walks = malloc(sizeof *walks);
    struct memory_walks *service;
    struct error error = {0};
    unsigned old = 0, new = 0, others = 0;
    walks_open(walks, &shapes[0]);
    assert_int_equal(memory_walks_create(&service, walks->memory, &costs, &error), 0);
    const struct fabric_target *target = memory_node_target(walks->memory);
    for (unsigned round = 0; round < 2000; round++) {
        const unsigned number = (unsigned)random_below(&walks->random, KEYS);
        struct memory_walk_writer writer = begin(walks, MEMORY_WALK_FIND, 1);
        struct memory_walk_reader reader;
        struct memory_walk_answer answer;
        const uint8_t *value;
        put_key(walks, &writer, number);
        const uint64_t before = walks->values[number];
        walks->was[number] = UINT64_C(1) << before % 64;
        assert_true(target->call_ns(target->owner, 1, writer.bytes, writer.length) > 0);
        walks->changing = true;
        churn(walks);
        walks->changing = false;
        change(walks, number, walks->changes + 1);
        assert_int_equal(target->call(target->owner, 1, writer.bytes, writer.length, walks->reply,
                                      sizeof walks->reply, &walks->reply_length),
                         0);
        assert_true(memory_walk_read(&reader, walks->reply, walks->reply_length));
        assert_true(memory_walk_read_answer(&reader, &answer, &value));
        assert_int_not_equal(answer.outcome, MEMORY_WALK_CORRUPT);
        const uint64_t answered = answer.outcome == MEMORY_WALK_HIT ? value_number(walks, &answer, value) : 0;
        if (answer.outcome != MEMORY_WALK_HIT && answer.outcome != MEMORY_WALK_MISS) {
            others++;
            continue;
        }
        assert_true(walks->was[number] >> answered % 64 & 1);
        old += answered == before;
        new += answered == walks->values[number];
    }
    print_message("%u old answers, %u new ones, %u without\n", old, new, others);
    assert_true(old > 200 && new > 200);
    memory_walks_destroy(service);
    walks_close(walks);
    free(walks);
}

static void some_are_turned_away(void **state)
{
    const struct memory_walk_costs costs = {.busy_percent = 40};
    struct walks *walks = malloc(sizeof *walks);
    struct memory_walks *service;
    struct error error = {0};
    unsigned busy = 0;
    walks_open(walks, &shapes[0]);
    assert_int_equal(memory_walks_create(&service, walks->memory, &costs, &error), 0);
    const struct fabric_target *target = memory_node_target(walks->memory);
    for (unsigned i = 0; i < 500; i++) {
        struct memory_walk_writer writer = begin(walks, MEMORY_WALK_FIND, 1);
        put_key(walks, &writer, i);
        const int status = target->call(target->owner, 1, writer.bytes, writer.length, walks->reply,
                                        sizeof walks->reply, &walks->reply_length);
        assert_true(!status || status == BANYAN_EBUSY);
        busy += status == BANYAN_EBUSY;
    }
    assert_in_range(busy, 150, 250);
    memory_walks_destroy(service);
    walks_close(walks);
    free(walks);
}

/* ---- requests from outside ---- */

static void refused(struct walks *walks, const struct memory_walk_writer *writer, const char *what)
{
    struct memory_walk_reader reader;
    const uint64_t before = memory_walker_counts(walks->walker)->refused;
    int status = ask(walks, writer, &reader);
    if (status != BANYAN_EINVAL)
        fail_msg("%s: status %d", what, status);
    assert_int_equal(memory_walker_counts(walks->walker)->refused, before + 1);
}

static struct memory_walk_writer sound(struct walks *walks, uint32_t kind)
{
    struct memory_walk_writer writer = begin(walks, kind, 1);
    put_key(walks, &writer, 1);
    return writer;
}

static struct memory_walk_start *first_start(struct walks *walks)
{
    return (struct memory_walk_start *)(void *)(walks->request + sizeof(struct memory_walk_request));
}

#define REFUSED(change)                                                                                      \
    do {                                                                                                     \
        writer = sound(walks, MEMORY_WALK_FIND);                                                             \
        change;                                                                                              \
        refused(walks, &writer, #change);                                                                    \
    } while (0)

static void bad_requests(void **state)
{
    struct walks *walks = malloc(sizeof *walks);
    struct memory_walk_reader reader;
    walks_open(walks, &shapes[0]);
    struct memory_walk_writer writer = sound(walks, MEMORY_WALK_FIND);
    assert_int_equal(ask(walks, &writer, &reader), 0);
    for (size_t length = writer.length; length-- > 0;) {
        struct memory_walk_writer cut = {.bytes = walks->request, .length = length};
        refused(walks, &cut, "cut short");
    }
    REFUSED(writer.length++);
    REFUSED(head(walks)->kind = MEMORY_WALK_LAST + 1);
    REFUSED(head(walks)->count = 0);
    REFUSED(head(walks)->count = 2);
    REFUSED(head(walks)->count = MEMORY_WALK_KEYS_MAX + 1);
    REFUSED(head(walks)->path = 2);
    REFUSED(head(walks)->leaves = 1);
    REFUSED(head(walks)->down_to = 1);
    REFUSED(head(walks)->before = 1);
    REFUSED(head(walks)->geometry.leaf_bytes = 0);
    REFUSED(head(walks)->geometry.leaf_bytes = 131072);
    REFUSED(head(walks)->geometry.internal_bytes = 8192);
    REFUSED(head(walks)->geometry.key_kind = 2);
    REFUSED(head(walks)->geometry.key_bytes = 3);
    REFUSED(head(walks)->geometry.leaf_kind = 7);
    REFUSED(head(walks)->geometry.value_bytes = 255);
    REFUSED(first_start(walks)->key_length--);
    REFUSED(first_start(walks)->level = FORMAT_LEVEL_MAX + 1);
    REFUSED(first_start(walks)->address = gaddr_make(1, gaddr_offset(first_start(walks)->address)));
    REFUSED(first_start(walks)->address = 0);
    REFUSED(first_start(walks)->address |= GADDR_LOCK_REGION);
    REFUSED(first_start(walks)->address = (64u << 20) - 64);
    REFUSED(first_start(walks)->address = 64u << 20);
    REFUSED(first_start(walks)->address += 8);
    /* Room for less than the longest answer is refused before anything is looked at. */
    size_t length;
    writer = sound(walks, MEMORY_WALK_FIND);
    assert_int_equal(memory_walk(walks->walker, writer.bytes, writer.length, walks->reply,
                                 sizeof(struct memory_walk_reply) + sizeof(struct memory_walk_answer),
                                 &length),
                     BANYAN_EINVAL);
    walks_close(walks);
    free(walks);
}

/* A damaged node is named; nothing of what it says is followed. */
static void damage(void **state)
{
    struct walks *walks = malloc(sizeof *walks);
    struct memory_walk_reader reader;
    struct memory_walk_answer answer;
    const uint8_t *value;
    walks_open(walks, &shapes[0]);
    struct tree *tree = walks->side.tree;
    uint8_t *root = memory_node_target(walks->memory)->pool + gaddr_offset(tree->root.address);
    struct format_header header;
    static uint8_t image[4096];
    static struct format_entry entries[FORMAT_ENTRIES_MAX];
    memcpy(image, root, walks->geometry.internal_bytes);
    assert_true(format_header_decode(&tree->layout, image, &header));
    assert_true(format_internal_decode(&tree->layout, image, &header, entries));
    uint8_t keys[FORMAT_ENTRIES_MAX][8];
    for (uint32_t i = 0; i < header.count; i++) {
        memcpy(keys[i], entries[i].key.bytes, 8);
        entries[i].key.bytes = keys[i];
        entries[i].link.address = (64u << 20) - 64; /* a leaf would reach beyond the pool */
    }
    uint8_t sound_root[4096];
    memcpy(sound_root, root, walks->geometry.internal_bytes);
    format_internal_encode(&tree->layout, &header, entries, header.count, root);
    struct memory_walk_writer writer = sound(walks, MEMORY_WALK_FIND);
    assert_int_equal(ask(walks, &writer, &reader), 0);
    assert_true(memory_walk_read_answer(&reader, &answer, &value));
    assert_int_equal(answer.outcome, MEMORY_WALK_CORRUPT);
    assert_int_equal(answer.address, (64u << 20) - 64);
    root[100] ^= 1; /* never proves itself: the walk ends there, after some tries */
    writer = sound(walks, MEMORY_WALK_FIND);
    assert_int_equal(ask(walks, &writer, &reader), 0);
    assert_true(memory_walk_read_answer(&reader, &answer, &value));
    assert_int_equal(answer.outcome, MEMORY_WALK_UNPROVEN);
    assert_int_equal(answer.address, tree->root.address);
    memcpy(root, sound_root, walks->geometry.internal_bytes);
    points(walks);
    walks_close(walks);
    free(walks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_answers),      cmocka_unit_test(between_reads),
        cmocka_unit_test(nodes_of_two_ages), cmocka_unit_test(some_are_turned_away),
        cmocka_unit_test(bad_requests),      cmocka_unit_test(damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
