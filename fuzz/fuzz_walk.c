/*
 * fuzz_walk.c - a memory node's walks: requests and a pool's bytes, both of any kind. The pool holds what the
 * input says: nodes that are sound, changed, or noise, with links to anywhere, and leaves with keys, some of
 * them in blocks of their own.
 *
 * Oracle: a walk ends, and what it answers is a reply that a compute node can take apart, whose values fit
 * the index. Walks that merge, or make a change, write slots, the others nothing; and what they say that they
 * have written is what the next walk finds.
 */
#include "format/internal_node.h"
#include "format/leaf.h"
#include "fuzz/fuzz.h"
#include "memory/memory.h"
#include "memory/walk.h"
#include "memory/walk_message.h"

#define LOCKS UINT64_C(1024)
#define POOL  (MEMORY_FIRST_CHUNK(LOCKS) + (64u << 10))
#define NODES 8u
#define INDEX 3u

static struct memory_node *node;
static struct memory_walker *walker;

/* The last entry of the request, if that is one that writes, as it was made. */
struct written {
    bool any, deleted;
    struct format_link leaf;
    uint8_t key_length, value_length;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
};

static void setup(void)
{
    struct memory_options options = {.pool_bytes = POOL, .chunk_bytes = 64u << 10, .lock_bytes = LOCKS};
    struct error error;
    if (node)
        return;
    fuzz_must(!memory_node_create(&node, &options, &error), "no memory node");
    walker = memory_walker_create(node);
    fuzz_must(walker, "no walker");
    memory_walker_writes(walker, NULL);
}

static gaddr place(unsigned number)
{
    return MEMORY_FIRST_CHUNK(LOCKS) + number % NODES * 4096u;
}

static struct format_link any_link(struct fuzz_input *input)
{
    const uint8_t kind = fuzz_byte(input);
    struct format_link link = {.address = place(kind), .tag = kind % NODES + 1};
    if (kind > 250)
        fuzz_take(input, &link, sizeof link);
    return link;
}

/* Any key of the index, out of one byte: most of the longest. */
static uint32_t any_key(const struct format_geometry *geometry, uint8_t byte, uint8_t key[FORMAT_KEY_MAX])
{
    const bool shorter = geometry->key_kind == FORMAT_KEY_VARIABLE && byte % 4 == 3;
    memset(key, byte, FORMAT_KEY_MAX);
    return shorter ? byte % (geometry->key_bytes + 1u) : geometry->key_bytes;
}

/* Keys of the leaf, in so many slots if their buckets have room; long ones name blocks that nobody reads. */
static void make_slots(const struct format_layout *layout, const struct format_header *header, uint32_t count,
                       uint8_t *image)
{
    const uint32_t seed = format_slot_seed(header->tag, header->version);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t bytes[FORMAT_KEY_MAX];
        static const uint8_t value[FORMAT_VALUE_MAX];
        const uint32_t length = any_key(&layout->geometry, (uint8_t)(i * 17), bytes);
        const struct format_key key = {bytes, length};
        struct format_bucket bucket;
        format_bucket_of(layout, header->tag, key, &bucket);
        const uint32_t number = format_bucket_free_slot(layout, image, &bucket, seed);
        if (number != UINT32_MAX)
            format_slot_write(layout, image, number, seed, header->lower,
                              format_slot_needs_block(layout, header->lower, key) ? place(i) : GADDR_NULL,
                              key, (struct format_key){value, layout->geometry.value_bytes});
    }
}

/* A sound node, whose header and entries may say anything. */
static void make_node(struct fuzz_input *input, const struct format_layout *layout, unsigned number,
                      uint8_t *pool)
{
    uint8_t keys[16][FORMAT_KEY_MAX] = {{0}};
    struct format_entry entries[16];
    const uint32_t length = layout->geometry.key_bytes, count = 1 + fuzz_byte(input) % 15;
    const uint8_t shape = fuzz_byte(input);
    struct format_header header = {.tag = number + 1,
                                   .version = 1,
                                   .level = shape % 4,
                                   .state = (uint8_t)(1 + shape / 4 % 5),
                                   .index = INDEX,
                                   .lower = format_key_least(layout)};
    static uint8_t upper[FORMAT_KEY_MAX];
    if (shape & 128) {
        memset(upper, fuzz_byte(input) | 1, sizeof upper);
        header.has_upper = true;
        header.upper = (struct format_key){upper, length};
        header.sibling = any_link(input);
        header.sibling.address |= header.sibling.address ? 0 : 64;
    }
    static uint8_t image[4096];
    memset(image, 0, sizeof image);
    if (!header.level) {
        format_leaf_format(layout, &header, image);
        make_slots(layout, &header, count - 1, image);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            memset(keys[i], (int)(i * 16), length);
            entries[i] = (struct format_entry){.key = i ? (struct format_key){keys[i], length} : header.lower,
                                               .link = any_link(input)};
        }
        if (format_internal_size(layout, entries, count) <= layout->geometry.internal_bytes)
            format_internal_encode(layout, &header, entries, count, image);
    }
    memcpy(pool + place(number), image, sizeof image);
}

/* Whether all nodes are sound. */
static bool make_pool(struct fuzz_input *input, const struct format_layout *layout)
{
    uint8_t *pool = memory_node_target(node)->pool;
    const uint8_t made = fuzz_byte(input);
    for (unsigned i = 0; i < NODES; i++)
        if (made >> i & 1)
            make_node(input, layout, i, pool);
        else
            memset(pool + place(i), 0, 4096);
    const uint8_t changed = fuzz_byte(input) % 8;
    for (uint8_t changes = changed; changes; changes--)
        pool[place(fuzz_byte(input)) + fuzz_byte(input) * 8u] ^= fuzz_byte(input);
    return !changed;
}

static void put_entry(struct fuzz_input *input, const struct format_geometry *geometry,
                      struct memory_walk_writer *writer, struct written *written)
{
    const struct format_link leaf = any_link(input);
    const uint8_t shape = fuzz_byte(input);
    *written = (struct written){.any = true, .leaf = leaf, .deleted = shape & 1};
    written->key_length = (uint8_t)any_key(geometry, fuzz_byte(input), written->key);
    written->value_length = written->deleted ? 0 : geometry->value_bytes;
    memset(written->value, shape, sizeof written->value);
    const struct memory_merge_entry entry = {.leaf = leaf.address,
                                             .tag = leaf.tag,
                                             .key_length = written->key_length,
                                             .value_length = written->value_length,
                                             .deleted = written->deleted};
    memory_walk_put(writer, &entry, sizeof entry);
    memory_walk_put(writer, written->key, entry.key_length);
    memory_walk_put(writer, written->value, entry.value_length);
}

static void put_expected(struct fuzz_input *input, const struct format_geometry *geometry,
                         struct memory_walk_writer *writer)
{
    uint8_t value[FORMAT_VALUE_MAX];
    const uint8_t shape = fuzz_byte(input);
    const struct memory_exchange_expected expected = {
        .expects = shape % (MEMORY_EXPECTATIONS + 1),
        .length = shape % (MEMORY_EXPECTATIONS + 1) == MEMORY_EXPECT_VALUE ? geometry->value_bytes : 0};
    memset(value, shape >> 4, sizeof value);
    memory_walk_put(writer, &expected, sizeof expected);
    memory_walk_put(writer, value, expected.length);
}

static size_t make_request(struct fuzz_input *input, const struct format_geometry *geometry, uint8_t *bytes,
                           size_t room, struct written *written)
{
    struct memory_walk_writer writer = {.bytes = bytes, .capacity = room};
    const uint8_t shape = fuzz_byte(input);
    struct memory_walk_request request = {.kind = shape & 1 ? MEMORY_WALK_FIND : MEMORY_WALK_FETCH,
                                          .index = INDEX,
                                          .count = shape & 1 ? (uint16_t)(1 + shape / 2 % 4) : 1,
                                          .geometry = memory_walk_geometry_of(geometry)};
    if (shape & 1)
        request.path = shape >> 7;
    else {
        request.down_to = shape / 2 % 3;
        request.leaves = request.down_to ? 0 : shape / 8 % 4;
        request.before = shape >> 7;
    }
    const bool merge = (shape & 9) == 9;
    const bool exchange = merge && shape & 16;
    if (merge)
        request.kind = exchange ? MEMORY_EXCHANGE : MEMORY_MERGE;
    if (exchange)
        request.count = 1;
    memory_walk_put(&writer, &request, sizeof request);
    for (uint32_t i = 0; i < request.count && merge; i++)
        put_entry(input, geometry, &writer, written);
    if (exchange)
        put_expected(input, geometry, &writer);
    for (uint32_t i = 0; i < request.count && !merge; i++) {
        uint8_t key[FORMAT_KEY_MAX];
        const uint32_t length = any_key(geometry, fuzz_byte(input), key);
        const struct format_link link = any_link(input);
        memory_walk_put_start(&writer, link, fuzz_byte(input) % 6, (struct format_key){key, length});
    }
    for (uint8_t changes = fuzz_byte(input) % 4; changes; changes--) {
        bytes[fuzz_byte(input) % writer.length] ^= fuzz_byte(input);
        written->any = false; /* another one than was made */
    }
    return writer.length - (fuzz_byte(input) == 1);
}

static void check_reply(const struct format_geometry *geometry, const uint8_t *reply, size_t length)
{
    struct memory_walk_reader reader;
    struct memory_walk_answer answer;
    struct memory_walk_node told;
    const uint8_t *bytes;
    fuzz_must(memory_walk_read(&reader, reply, length), "a reply without its head");
    while (reader.answers) {
        fuzz_must(memory_walk_read_answer(&reader, &answer, &bytes), "an answer that is none");
        fuzz_must(answer.value_length <= FORMAT_VALUE_MAX, "a value that is too long");
    }
    while (reader.nodes)
        fuzz_must(memory_walk_read_node(&reader, &told, &bytes), "a node that is none");
    fuzz_must(reader.left == 0, "more than was told");
    (void)geometry;
}

/* The answer to the last key of a reply that is sound. */
static struct memory_walk_answer last_answer(const uint8_t *reply, size_t length, const uint8_t **value)
{
    struct memory_walk_reader reader;
    struct memory_walk_answer answer = {0};
    memory_walk_read(&reader, reply, length);
    while (reader.answers)
        memory_walk_read_answer(&reader, &answer, value);
    return answer;
}

/* A slot of a sound leaf was written for the entry: the key is found in its leaf, or is not if it was
 * deleted. */
static void check_found(const struct format_geometry *geometry, const struct written *written)
{
    static uint8_t request[1024], reply[MEMORY_WALK_REPLY_MAX];
    struct memory_walk_writer writer = {.bytes = request, .capacity = sizeof request};
    const struct memory_walk_request head = {
        .kind = MEMORY_WALK_FIND, .index = INDEX, .count = 1, .geometry = memory_walk_geometry_of(geometry)};
    const uint8_t *value = NULL;
    size_t length = 0;
    memory_walk_put(&writer, &head, sizeof head);
    memory_walk_put_start(&writer, written->leaf, 0, (struct format_key){written->key, written->key_length});
    fuzz_must(!memory_walk(walker, request, writer.length, reply, sizeof reply, &length),
              "a leaf that was written cannot be asked for");
    const struct memory_walk_answer answer = last_answer(reply, length, &value);
    if (written->deleted)
        fuzz_must(answer.outcome == MEMORY_WALK_MISS, "a key that was deleted: outcome %u", answer.outcome);
    else
        fuzz_must(answer.outcome == MEMORY_WALK_HIT && answer.value_length == written->value_length &&
                      !memcmp(value, written->value, written->value_length),
                  "a key that was written: outcome %u", answer.outcome);
}

/* Nothing but slots is ever written, and by MERGE and EXCHANGE alone. */
static void check_written(const struct format_layout *layout, const uint8_t *request, const uint8_t *before,
                          const uint8_t *now)
{
    const struct memory_walk_geometry ours = memory_walk_geometry_of(&layout->geometry);
    struct memory_walk_request head;
    memcpy(&head, request, sizeof head);
    if (memcmp(&head.geometry, &ours, sizeof ours) != 0) /* other leaves have their headers elsewhere */
        return;
    const bool writes = head.kind == MEMORY_MERGE || head.kind == MEMORY_EXCHANGE;
    const size_t same = writes ? layout->header_bytes : 4096;
    for (unsigned i = 0; i < NODES; i++)
        fuzz_must(!memcmp(before + (size_t)i * 4096, now + (size_t)i * 4096, same),
                  "a walk has written what is not a slot's");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    static uint8_t request[4096], reply[MEMORY_WALK_REPLY_MAX];
    struct format_geometry geometry = {.key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512};
    struct format_layout layout;
    struct error error;
    size_t length = 0;
    setup();
    const uint8_t shape = fuzz_byte(&input);
    geometry.key_kind = shape & 1;
    geometry.leaf_kind = shape & 2 ? FORMAT_LEAF_UNSORTED : FORMAT_LEAF_HASHED;
    if ((shape & 0xe2) == 0x80)
        geometry.leaf_kind = FORMAT_LEAF_DENSE;
    geometry.value_variable = shape >> 2 & 1;
    geometry.leaf_bytes = shape & 8 ? 4096 : 1024;
    if (shape & 16 && geometry.key_kind == FORMAT_KEY_VARIABLE) {
        geometry.key_bytes = 60;
        geometry.inline_key_bytes = 16;
    }
    fuzz_must(!format_geometry_complete(&geometry, 4096, &error), "an impossible geometry");
    fuzz_must(!format_layout_init(&layout, &geometry, &error), "no layout");
    const bool sound = make_pool(&input, &layout);
    struct written written = {.any = false};
    const size_t asked = make_request(&input, &geometry, request, sizeof request, &written);
    static uint8_t before[NODES * 4096];
    const uint8_t *nodes = memory_node_target(node)->pool + place(0);
    memcpy(before, nodes, sizeof before);
    if (!memory_walk(walker, request, asked, reply, sizeof reply, &length)) {
        const uint8_t *value;
        check_reply(&geometry, reply, length);
        if (written.any && sound && last_answer(reply, length, &value).tag != UINT32_MAX)
            check_found(&geometry, &written);
    }
    check_written(&layout, request, before, nodes);
    format_layout_free(&layout);
    return 0;
}
