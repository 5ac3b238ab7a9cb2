/*
 * fuzz_cluster.c - the list of memory nodes that the home node keeps (memory/cluster.h): changes that may be
 * made, that may not, and noise, from callers of every role; and places in the pool that are written over.
 *
 * Oracle: a list that is told is valid, as compute nodes judge it, and is the last one that was taken; a
 * change adds one to its generation or changes nothing; numbers keep what they held, and those that were
 * removed stay so.
 */
#include "fuzz/fuzz.h"
#include "memory/cluster.h"
#include "memory/memory.h"

#define LOCKS   UINT64_C(1024)
#define CLUSTER UINT64_C(7)

struct world {
    struct memory_node *node;
    struct wire_cluster_list list; /* the last one that was taken; generation 0: none */
    bool spoilt;                   /* the pool was written over: what is told need only be valid */
};

static int call(struct world *world, enum memory_role role, const void *request, size_t length,
                struct wire_cluster_list *reply)
{
    struct memory_call call = {
        .role = role, .request = request, .length = length, .reply = reply, .capacity = sizeof *reply};
    int status = memory_node_serve(world->node, &call);
    if (!status)
        fuzz_must(wire_cluster_valid(reply, call.reply_length), "a list is told that is none");
    return status;
}

static void check_told(struct world *world)
{
    const struct wire_cluster_request request = {.kind = WIRE_CLUSTER_LIST};
    static struct wire_cluster_list told;
    int status = call(world, MEMORY_ROLE_MONITOR, &request, sizeof request, &told);
    if (world->spoilt)
        return;
    fuzz_must(!status == (world->list.generation != 0),
              "a list is told where there is none, or not where one is");
    fuzz_must(status || (told.generation == world->list.generation && told.count == world->list.count &&
                         !memcmp(told.nodes, world->list.nodes, told.count * sizeof *told.nodes)),
              "another list is told than was taken");
    fuzz_must(memory_node_cluster_generation(world->node) == world->list.generation, "another generation");
}

/* What a list that follows must have of the one before. */
static void check_followed(const struct wire_cluster_list *now, const struct wire_cluster_list *next)
{
    fuzz_must(next->generation == now->generation + 1 && next->count >= now->count, "no list follows so");
    for (uint32_t i = 0; i < now->count; i++) {
        const uint8_t before = now->nodes[i].state, after = next->nodes[i].state;
        fuzz_must(now->nodes[i].instance == next->nodes[i].instance, "a number holds something else");
        fuzz_must(before != WIRE_CLUSTER_REMOVED || after == WIRE_CLUSTER_REMOVED,
                  "a number is of one again");
        fuzz_must(before != WIRE_CLUSTER_MEMBER || after != WIRE_CLUSTER_REMOVED, "one is removed at once");
    }
    fuzz_must(next->nodes[0].state == WIRE_CLUSTER_MEMBER, "the home node has left");
}

static void change(struct world *world, struct fuzz_input *input)
{
    static struct wire_cluster_change change;
    static struct wire_cluster_list reply;
    const uint8_t how = fuzz_byte(input), more = fuzz_byte(input) % 4;
    change = (struct wire_cluster_change){.kind = WIRE_CLUSTER_SET, .list = world->list};
    change.list.cluster_id = CLUSTER;
    for (uint8_t i = 0; i < more && change.list.count < WIRE_CLUSTER_NODES_MAX; i++) {
        struct wire_cluster_node *node = &change.list.nodes[change.list.count++];
        *node = (struct wire_cluster_node){.instance = fuzz_byte(input), .state = WIRE_CLUSTER_MEMBER};
        snprintf(node->address, sizeof node->address, "tcp://10.0.0.%u:7100", fuzz_byte(input));
    }
    if (how & 1 && change.list.count)
        change.list.nodes[fuzz_byte(input) % change.list.count].state = fuzz_byte(input) % 5;
    size_t length = offsetof(struct wire_cluster_change, list) + wire_cluster_bytes(change.list.count);
    if (how & 2) /* one byte is another */
        ((uint8_t *)&change)[fuzz_u16(input) % length] ^= fuzz_byte(input);
    if (how & 4)
        length = fuzz_u16(input) % (sizeof change + 8);
    const enum memory_role role = how & 8 ? (enum memory_role)(1u << how / 16 % 4) : MEMORY_ROLE_FORMATTER;
    uint8_t *bytes = malloc(length + 1); /* of its own, so that a read behind its end is found */
    if (!bytes)
        return;
    memcpy(bytes, &change, length < sizeof change ? length : sizeof change);
    uint32_t kind = 0;
    memcpy(&kind, bytes, length < sizeof kind ? length : sizeof kind);
    if (kind == WIRE_CLUSTER_SET && !call(world, role, bytes, length, &reply)) {
        fuzz_must(role == MEMORY_ROLE_FORMATTER, "a caller changes the list that may not");
        if (!world->spoilt)
            check_followed(&world->list, &reply);
        world->list = reply;
    }
    free(bytes);
}

/* A process that has mapped the pool may write there. */
static void spoil(struct world *world, struct fuzz_input *input)
{
    uint8_t *pool = memory_node_target(world->node)->pool + MEMORY_CLUSTER_OFFSET;
    pool[fuzz_u16(input) % (2 * MEMORY_CLUSTER_PLACE_BYTES)] ^= (uint8_t)(fuzz_byte(input) | 1);
    world->spoilt = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct world world;
    struct fuzz_input input = {bytes, length};
    const struct memory_options options = {.pool_bytes = MEMORY_FIRST_CHUNK(LOCKS) + (64u << 10),
                                           .chunk_bytes = 64u << 10,
                                           .lock_bytes = LOCKS,
                                           .unformatted = true};
    world = (struct world){.node = NULL};
    if (memory_node_create(&world.node, &options, NULL) ||
        memory_node_format(world.node, CLUSTER, 0, 1, NULL))
        abort();
    while (input.length) {
        if (fuzz_byte(&input) % 16)
            change(&world, &input);
        else
            spoil(&world, &input);
        check_told(&world);
    }
    memory_node_destroy(world.node);
    return 0;
}
