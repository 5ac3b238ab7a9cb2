/*
 * fuzz_walk.c - a memory node's walks: requests and a pool's bytes, both of any kind. The pool holds what the
 * input says: nodes that are sound, changed, or noise, with links to anywhere.
 *
 * Oracle: a walk ends, and what it answers is a reply that a compute node can take apart, whose values fit
 * the index.
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

static void setup(void)
{
    struct memory_options options = {.pool_bytes = POOL, .chunk_bytes = 64u << 10, .lock_bytes = LOCKS};
    struct error error;
    if (node)
        return;
    fuzz_must(!memory_node_create(&node, &options, &error), "no memory node");
    walker = memory_walker_create(node);
    fuzz_must(walker, "no walker");
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

static void make_pool(struct fuzz_input *input, const struct format_layout *layout)
{
    uint8_t *pool = memory_node_target(node)->pool;
    const uint8_t made = fuzz_byte(input);
    for (unsigned i = 0; i < NODES; i++)
        if (made >> i & 1)
            make_node(input, layout, i, pool);
        else
            memset(pool + place(i), 0, 4096);
    for (uint8_t changes = fuzz_byte(input) % 8; changes; changes--)
        pool[place(fuzz_byte(input)) + fuzz_byte(input) * 8u] ^= fuzz_byte(input);
}

static size_t make_request(struct fuzz_input *input, const struct format_geometry *geometry, uint8_t *bytes,
                           size_t room)
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
    memory_walk_put(&writer, &request, sizeof request);
    for (uint32_t i = 0; i < request.count; i++) {
        uint8_t key[FORMAT_KEY_MAX];
        memset(key, fuzz_byte(input), sizeof key);
        memory_walk_put_start(&writer, any_link(input), fuzz_byte(input) % 6,
                              (struct format_key){key, geometry->key_bytes});
    }
    for (uint8_t changes = fuzz_byte(input) % 4; changes; changes--)
        bytes[fuzz_byte(input) % writer.length] ^= fuzz_byte(input);
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
    geometry.leaf_kind = shape >> 1 & 1;
    geometry.value_variable = shape >> 2 & 1;
    geometry.leaf_bytes = shape & 8 ? 4096 : 1024;
    fuzz_must(!format_geometry_complete(&geometry, 4096, &error), "an impossible geometry");
    fuzz_must(!format_layout_init(&layout, &geometry, &error), "no layout");
    make_pool(&input, &layout);
    const size_t asked = make_request(&input, &geometry, request, sizeof request);
    if (!memory_walk(walker, request, asked, reply, sizeof reply, &length))
        check_reply(&geometry, reply, length);
    format_layout_free(&layout);
    return 0;
}
