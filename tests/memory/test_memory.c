/* test_memory.c - the memory node: allocation to exhaustion, return and reuse, bad requests, locks of fenced
 * compute nodes, and that a pool takes no memory before it is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/random.h"
#include "base/task.h"
#include "memory/memory.h"

#define NODE   5
#define CHUNK  (UINT64_C(64) << 10)
#define CHUNKS 6
#define LOCKS  UINT64_C(1024)
#define POOL   (MEMORY_FIRST_CHUNK(LOCKS) + CHUNKS * CHUNK)

static struct memory_node *make_wide(uint32_t lock_width)
{
    struct memory_options options = {.node = NODE,
                                     .pool_bytes = POOL,
                                     .chunk_bytes = CHUNK,
                                     .lock_bytes = LOCKS,
                                     .lock_width = lock_width};
    struct memory_node *node = NULL;
    struct error error = {0};
    if (memory_node_create(&node, &options, &error))
        fail_msg("%s", error.text);
    return node;
}

static struct memory_node *make(void)
{
    return make_wide(0);
}

static int call(struct memory_node *node, const void *request, size_t length, void *reply, size_t capacity,
                size_t *reply_length)
{
    const struct fabric_target *target = memory_node_target(node);
    return target->call(target->owner, 1, request, length, reply, capacity, reply_length);
}

static int ask_for(struct memory_node *node, const struct memory_allocate_request *request,
                   struct memory_allocate_reply *reply)
{
    size_t length = 0, head = offsetof(struct memory_allocate_reply, blocks);
    int status = call(node, request, sizeof *request, reply, sizeof *reply, &length);
    assert_int_equal(length, !status ? head + reply->count * sizeof(gaddr) : 0);
    if (status)
        return status;
    assert_true(reply->count >= 1 && reply->count <= request->want);
    assert_true(reply->block_bytes == request->block_bytes ||
                (reply->block_bytes < request->block_bytes && request->least_bytes &&
                 reply->block_bytes >= request->least_bytes && reply->count == 1));
    for (uint32_t i = 0; request->purpose == MEMORY_FOR_NODES && i < reply->count; i++)
        assert_int_equal(gaddr_offset(reply->blocks[i]) % 64, 0);
    return status;
}

static int allocate_for(struct memory_node *node, enum memory_purpose purpose, uint32_t block_bytes,
                        uint32_t want, struct memory_allocate_reply *reply)
{
    struct memory_allocate_request request = {.kind = MEMORY_ALLOCATE,
                                              .block_bytes = block_bytes,
                                              .want = (uint16_t)want,
                                              .purpose = (uint16_t)purpose};
    return ask_for(node, &request, reply);
}

/* For nodes of the tree: from the low end up. */
static int allocate(struct memory_node *node, uint32_t block_bytes, uint32_t want,
                    struct memory_allocate_reply *reply)
{
    return allocate_for(node, MEMORY_FOR_NODES, block_bytes, want, reply);
}

static gaddr one_for(struct memory_node *node, enum memory_purpose purpose, uint32_t block_bytes)
{
    struct memory_allocate_reply reply;
    assert_int_equal(allocate_for(node, purpose, block_bytes, 1, &reply), BANYAN_OK);
    return reply.blocks[0];
}

static gaddr one_of(struct memory_node *node, uint32_t block_bytes)
{
    return one_for(node, MEMORY_FOR_NODES, block_bytes);
}

/* The address of a byte by its place behind the lock table. */
static gaddr place(uint64_t offset)
{
    return gaddr_make(NODE, MEMORY_FIRST_CHUNK(LOCKS) + offset);
}

static int give_back(struct memory_node *node, uint32_t block_bytes, const gaddr *blocks, uint32_t count)
{
    struct memory_free_request request = {.kind = MEMORY_FREE, .block_bytes = block_bytes, .count = count};
    size_t length = 0;
    for (uint32_t i = 0; i < count && i < MEMORY_BATCH_MAX; i++)
        request.blocks[i] = blocks[i];
    return call(node, &request, sizeof request, NULL, 0, &length);
}

static struct memory_status_reply status_of(struct memory_node *node)
{
    struct memory_status_reply status, direct;
    struct memory_status_request request = {.kind = MEMORY_STATUS};
    size_t length = 0;
    assert_int_equal(call(node, &request, sizeof request, &status, sizeof status, &length), BANYAN_OK);
    assert_int_equal(length, sizeof status);
    memory_node_status(node, &direct);
    assert_memory_equal(&status, &direct, sizeof status);
    return status;
}

static void a_new_node(void **state)
{
    struct memory_node *node = make();
    const struct fabric_target *target = memory_node_target(node);
    const struct memory_header *header = (const struct memory_header *)target->pool;
    assert_true(header->magic == MEMORY_MAGIC && header->pool_bytes == POOL && header->chunk_bytes == CHUNK);
    assert_true(header->node == NODE && header->next_tag == 0);
    assert_int_equal(offsetof(struct memory_header, next_tag), MEMORY_NEXT_TAG_OFFSET);
    assert_true(header->cluster_id == 1 && header->node_count == 0);
    for (uint64_t i = sizeof *header; i < target->pool_bytes; i++)
        assert_int_equal(target->pool[i], 0);
    for (uint64_t i = 0; i < target->lock_bytes; i++)
        assert_int_equal(target->locks[i], 0);
    assert_int_equal(target->lock_width, 2);
    assert_int_equal((uintptr_t)target->pool % 4096, 0);
    struct memory_status_reply status = status_of(node);
    assert_true(status.pool_bytes == POOL && status.chunk_bytes == CHUNK && status.chunks_total == CHUNKS);
    assert_true(status.chunks_used == 0 && status.blocks_used == 0 && status.bytes_used == 0);
    assert_true(status.frees_total == 0 && status.allocations_total == 0 && status.refusals_total == 0);
    assert_true(status.cluster_id == 1 && status.node == NODE && status.node_count == 0);
    assert_int_equal(memory_node_pool_descriptor(node), -1);
    assert_int_equal(memory_node_locks_descriptor(node), -1);
    memory_node_destroy(node);
    memory_node_destroy(NULL);
}

static void block_sizes(void **state)
{
    uint32_t previous = 0;
    for (unsigned i = 0; i < MEMORY_BLOCK_SIZES; i++) {
        uint32_t size = memory_block_size(i);
        assert_true(size > previous && size % 32 == 0);
        assert_int_equal(memory_block_index(size), i);
        assert_int_equal(memory_block_bytes(size), size);
        assert_int_equal(memory_block_bytes(previous + 1), size);
        assert_int_equal(memory_block_within(size), size);
        assert_int_equal(memory_block_within(size - 1), previous);
        /* at most a sixteenth more than asked for */
        assert_true(size <= 1024 || size <= (previous + 1) * UINT64_C(17) / 16);
        previous = size;
    }
    assert_int_equal(memory_block_size(0), MEMORY_BLOCK_MIN);
    assert_int_equal(previous, MEMORY_BLOCK_MAX);
    for (uint32_t power = 32; power <= MEMORY_BLOCK_MAX; power *= 2)
        assert_true(memory_block_index(power) < MEMORY_BLOCK_SIZES);
    const uint32_t none[] = {0, 1, 31, 33, 48, 144, 1056, MEMORY_BLOCK_MAX + 32, UINT32_MAX};
    for (unsigned i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_int_equal(memory_block_index(none[i]), MEMORY_BLOCK_SIZES);
    assert_int_equal(memory_block_bytes(1), 32);
    assert_int_equal(memory_block_bytes(MEMORY_BLOCK_MAX + UINT64_C(1)), 0);
    assert_int_equal(memory_block_bytes(UINT64_MAX), 0);
    assert_int_equal(memory_block_within(UINT64_MAX), MEMORY_BLOCK_MAX);
}

/* ---- space ---- */

/* Nodes of the tree from the low end up, data from the high end down, until nothing is left between them. */
static void both_ends(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    uint64_t low = 0, high = CHUNKS * CHUNK;
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(one_of(node, 1024), place(low));
        low += 1024;
        assert_int_equal(one_for(node, MEMORY_FOR_DATA, 96), place(high -= 96));
        assert_int_equal(one_for(node, MEMORY_FOR_DATA, 20480), place(high -= 20480));
    }
    assert_int_equal(allocate(node, 1024, 5, &reply), BANYAN_OK);
    assert_int_equal(reply.count, 5);
    for (unsigned i = 0; i < 5; i++, low += 1024)
        assert_int_equal(reply.blocks[i], place(low));
    assert_int_equal(allocate_for(node, MEMORY_FOR_DATA, 160, 64, &reply), BANYAN_OK);
    assert_int_equal(reply.count, 64);
    high -= 64 * 160;
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(reply.blocks[i], place(high + i * 160));
    while (!allocate(node, 1024, 64, &reply))
        low += reply.count * 1024;
    assert_in_range(high - low, 0, 1023 + 32);
    struct memory_status_reply status = status_of(node);
    assert_int_equal(status.bytes_used, low + CHUNKS * CHUNK - high);
    assert_int_equal(status.bytes_used + status.bytes_free, CHUNKS * CHUNK);
    assert_true(status.chunks_used == CHUNKS && status.refusals_total == 1);
    assert_int_equal(status.bytes_free_in_chunks, status.bytes_free);
    memory_node_destroy(node);
}

/* What is freed serves any size, whatever size it had. */
static void freed_space_serves_any_size(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    static gaddr blocks[CHUNKS * CHUNK / 32];
    const uint32_t sizes[] = {32, 65536, 96, 1024, 4352, 64};
    const uint64_t reserve = 16384; /* for nodes */
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t count = 0;
        while (!allocate_for(node, MEMORY_FOR_DATA, sizes[i], 1 + count % 64, &reply))
            for (uint32_t j = 0; j < reply.count; j++)
                blocks[count++] = reply.blocks[j];
        assert_int_equal(count, (CHUNKS * CHUNK - reserve) / sizes[i]);
        /* From different places, so that neighbours join in any order. */
        for (uint32_t step = 0, at = 0; step < count; step++, at = (at + 7919) % count) {
            if (!blocks[at])
                at = (uint32_t)(step % count);
            while (!blocks[at])
                at = (at + 1) % count;
            assert_int_equal(give_back(node, sizes[i], &blocks[at], 1), BANYAN_OK);
            blocks[at] = 0;
        }
        assert_true(status_of(node).blocks_used == 0 && status_of(node).chunks_used == 0);
    }
    memory_node_destroy(node);
}

/* Data is refused while there is still room for the tree to split. */
static void data_keeps_off_the_reserve(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    gaddr data = 0;
    unsigned nodes = 0;
    while (!allocate_for(node, MEMORY_FOR_DATA, 1024, 1, &reply))
        data = reply.blocks[0];
    assert_int_equal(data, place(16384));
    assert_int_equal(allocate_for(node, MEMORY_FOR_DATA, 32, 1, &reply), BANYAN_ENOSPC);
    one_of(node, 1024);
    /* What data gives back goes to the reserve first. */
    assert_int_equal(give_back(node, 1024, &data, 1), BANYAN_OK);
    for (nodes = 1; !allocate(node, 1024, 1, &reply); nodes++)
        assert_int_equal(allocate_for(node, MEMORY_FOR_DATA, 32, 1, &reply), BANYAN_ENOSPC);
    assert_int_equal(nodes, 17);
    memory_node_destroy(node);
}

/* Where there is no block of a size, the largest there is will do, if the request says so. */
static void parts(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    static gaddr blocks[CHUNKS * CHUNK / 1024];
    uint32_t count = 0;
    while (!allocate_for(node, MEMORY_FOR_DATA, 1024, 1, &reply))
        blocks[count++] = reply.blocks[0];
    const unsigned holes[][2] = {
        {10, 3}, {40, 5}, {100, 1}}; /* from the high end down: where, and how many */
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(give_back(node, 1024, &blocks[holes[i][0]], holes[i][1]), BANYAN_OK);
    struct memory_allocate_request request = {
        .kind = MEMORY_ALLOCATE, .block_bytes = 65536, .want = 4, .least_bytes = 1024};
    const uint32_t expected[] = {5120, 3072, 1024};
    for (unsigned i = 0; i < 3; i++) {
        request.least_bytes = expected[i] + 1024;
        assert_int_equal(ask_for(node, &request, &reply), BANYAN_ENOSPC);
        request.least_bytes = 1024;
        assert_int_equal(ask_for(node, &request, &reply), BANYAN_OK);
        assert_int_equal(reply.block_bytes, expected[i]);
    }
    assert_int_equal(ask_for(node, &request, &reply), BANYAN_ENOSPC);
    request.least_bytes = 65536 + 4096; /* more than is asked for */
    assert_int_equal(ask_for(node, &request, &reply), BANYAN_EINVAL);
    request.least_bytes = 1025; /* no size */
    assert_int_equal(ask_for(node, &request, &reply), BANYAN_EINVAL);
    memory_node_destroy(node);
}

/* One that is emptied hands out what comes back at once, from the space for data, and nothing else. */
static void staging_while_it_is_emptied(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    struct memory_allocate_request request = {
        .kind = MEMORY_ALLOCATE, .block_bytes = 1024, .want = 1, .purpose = MEMORY_FOR_STAGING};
    memory_node_drain(node, true);
    for (unsigned purpose = 0; purpose < MEMORY_PURPOSES; purpose++)
        assert_int_equal(allocate_for(node, (enum memory_purpose)purpose, 1024, 1, &reply), BANYAN_ENOSPC);
    assert_int_equal(ask_for(node, &request, &reply), BANYAN_OK);
    assert_true(reply.count == 1 && reply.keep == 0);
    assert_int_equal(give_back(node, 1024, reply.blocks, 1), BANYAN_OK);
    assert_true(status_of(node).blocks_used == 0);
    while (!ask_for(node, &request, &reply))
        ;
    memory_node_drain(node, false);
    one_of(node, 1024); /* the reserve is for nodes */
    request.purpose = MEMORY_FOR_STAGING + 1;
    assert_int_equal(ask_for(node, &request, &reply), BANYAN_EINVAL);
    memory_node_destroy(node);
}

/* A request to give back may name blocks of several sizes. */
static void several_sizes_at_once(void **state)
{
    struct memory_node *node = make();
    struct memory_free_reply reply;
    struct memory_free_request give = {.kind = MEMORY_FREE, .count = 3, .sizes = {1024, 32, 7168}};
    size_t length;
    for (unsigned i = 0; i < 3; i++)
        give.blocks[i] = one_for(node, i % 2 ? MEMORY_FOR_NODES : MEMORY_FOR_DATA, give.sizes[i]);
    for (size_t cut = 0; cut < sizeof give; cut++)
        assert_int_equal(call(node, &give, cut, &reply, sizeof reply, &length), BANYAN_EINVAL);
    give.sizes[2] = 3072; /* only a part of it */
    assert_int_equal(call(node, &give, sizeof give, &reply, sizeof reply, &length), BANYAN_EINVAL);
    assert_int_equal(status_of(node).blocks_used, 3);
    give.sizes[2] = 7168;
    assert_int_equal(call(node, &give, sizeof give, &reply, sizeof reply, &length), BANYAN_OK);
    assert_true(length == sizeof reply && reply.keep > 0);
    assert_true(status_of(node).blocks_used == 0 && status_of(node).bytes_used == 0);
    memory_node_destroy(node);
}

static void count_visit(void *context, gaddr address, uint32_t block_bytes)
{
    uint64_t *sums = context;
    sums[0]++;
    sums[1] += gaddr_offset(address);
    sums[2] += block_bytes;
}

/* Any mixture of sizes, compared with a plain list of the blocks that are held. */
static void random_sizes(void **state)
{
    struct memory_node *node = make();
    struct random random;
    struct {
        gaddr address;
        uint32_t bytes;
    } held[2000];
    size_t count = 0;
    uint64_t bytes = 0, refused = 0;
    random_seed(&random, 3);
    for (unsigned round = 0; round < 40000; round++) {
        struct memory_allocate_reply reply;
        bool growing = round / 500 % 2 == 0;
        if (count < 1900 && random_chance(&random, growing ? 0.8 : 0.2)) {
            enum memory_purpose purpose = random_chance(&random, 0.3) ? MEMORY_FOR_NODES : MEMORY_FOR_DATA;
            uint32_t size = memory_block_size((unsigned)random_below(&random, 120));
            if (allocate_for(node, purpose, size, 1 + (uint32_t)random_below(&random, 8), &reply)) {
                refused++;
                continue;
            }
            for (uint32_t i = 0; i < reply.count; i++, count++) {
                held[count].address = reply.blocks[i];
                held[count].bytes = size;
                bytes += size;
            }
        } else if (count) {
            size_t at = random_below(&random, count);
            assert_int_equal(give_back(node, held[at].bytes, &held[at].address, 1), BANYAN_OK);
            assert_int_equal(give_back(node, held[at].bytes, &held[at].address, 1), BANYAN_EINVAL);
            bytes -= held[at].bytes;
            held[at] = held[--count];
        }
        struct memory_status_reply status = status_of(node);
        assert_true(status.blocks_used == count && status.bytes_used == bytes);
        assert_true(status.bytes_used + status.bytes_free == CHUNKS * CHUNK);
        assert_true(status.bytes_used + status.bytes_free_in_chunks == status.chunks_used * CHUNK);
    }
    assert_true(refused > 100);
    for (size_t i = 0; i < count; i++) /* no two overlap */
        for (size_t j = 0; j < i; j++)
            assert_true(held[i].address + held[i].bytes <= held[j].address ||
                        held[j].address + held[j].bytes <= held[i].address);
    while (count) {
        count--;
        assert_int_equal(give_back(node, held[count].bytes, &held[count].address, 1), BANYAN_OK);
    }
    assert_int_equal(status_of(node).bytes_used, 0);
    for (unsigned i = 0; i < CHUNKS; i++) /* and one size may have all of it again */
        one_of(node, 65536);
    memory_node_destroy(node);
}

static void usage_of_the_pool(void **state)
{
    struct memory_node *node = make();
    static struct memory_usage_reply usage;
    const uint64_t granules = CHUNKS * CHUNK / 32;
    size_t length, head = offsetof(struct memory_usage_reply, bits);
    struct memory_usage_request request = {.kind = MEMORY_USAGE};
    assert_int_equal(call(node, &request, sizeof request, &usage, sizeof usage, &length), BANYAN_OK);
    assert_true(usage.words == 0 && usage.first == granules && usage.granules == granules && length == head);
    one_for(node, MEMORY_FOR_DATA, 96);
    one_for(node, MEMORY_FOR_DATA, 32);
    gaddr back = one_for(node, MEMORY_FOR_DATA, 64);
    one_for(node, MEMORY_FOR_DATA, 128);
    assert_int_equal(give_back(node, 64, &back, 1), BANYAN_OK);
    assert_int_equal(call(node, &request, sizeof request, &usage, sizeof usage, &length), BANYAN_OK);
    assert_true(usage.base == place(0) && usage.first == granules - CHUNK / 32);
    assert_true(usage.words == CHUNK / 32 / 64 && length == head + usage.words * sizeof usage.bits[0]);
    for (uint32_t i = 0; i + 1 < usage.words; i++)
        assert_true(usage.bits[i].used == 0 && usage.bits[i].starts == 0);
    assert_true(usage.bits[usage.words - 1].used == UINT64_C(0xf3c) << 52);
    assert_true(usage.bits[usage.words - 1].starts == UINT64_C(0x304) << 52);
    /* From a granule on, and as much as there is room for. */
    request.first = granules - 64;
    assert_int_equal(call(node, &request, sizeof request, &usage, head + 16, &length), BANYAN_OK);
    assert_true(usage.words == 1 && length == head + 16 && usage.bits[0].used == UINT64_C(0xf3c) << 52);
    request.first = granules;
    assert_int_equal(call(node, &request, sizeof request, &usage, sizeof usage, &length), BANYAN_OK);
    assert_true(usage.words == 0 && usage.first == granules);
    request.first = UINT64_MAX - 63;
    assert_int_equal(call(node, &request, sizeof request, &usage, sizeof usage, &length), BANYAN_OK);
    assert_true(usage.words == 0 && usage.first == granules);
    request.first = 32;
    assert_int_equal(call(node, &request, sizeof request, &usage, sizeof usage, &length), BANYAN_EINVAL);
    request.first = 0;
    assert_int_equal(call(node, &request, sizeof request, &usage, head + 15, &length), BANYAN_EINVAL);
    assert_int_equal(call(node, &request, sizeof request - 1, &usage, sizeof usage, &length), BANYAN_EINVAL);
    memory_node_destroy(node);
}

static void bad_returns_change_nothing(void **state)
{
    struct memory_node *node = make();
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(one_of(node, 3072), place(i * 3072));
    one_of(node, 1024);
    gaddr first = place(0), once = first + 3072, again = first + 2 * 3072;
    const gaddr many[MEMORY_BATCH_MAX] = {again};
    assert_int_equal(give_back(node, 3072, &once, 1), BANYAN_OK);
    const gaddr bad[] = {once,                                      /* returned already */
                         again,                                     /* twice in the batch: see below */
                         first + 20 * 3072,                         /* of another size */
                         first + 21 * 3072,                         /* never handed out */
                         first + 1024,                              /* inside a block */
                         first + 1,                                 /* misaligned */
                         first + 2 * CHUNK,                         /* in a chunk that is not used */
                         gaddr_make(NODE + 1, gaddr_offset(first)), /* of another memory node */
                         gaddr_make(NODE, 0),                       /* the header */
                         gaddr_make(NODE, MEMORY_FIRST_CHUNK(LOCKS) - 3072), /* before the blocks */
                         gaddr_make(NODE, POOL - 1024),                      /* across their end */
                         gaddr_make(NODE, POOL),                             /* behind them */
                         gaddr_make(NODE, GADDR_LOCK_REGION | 0x10000),      /* in the lock region */
                         GADDR_NULL,
                         UINT64_MAX};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const gaddr batch[] = {again, first + 3 * 3072, bad[i]};
        assert_int_equal(give_back(node, 3072, batch, 3), BANYAN_EINVAL);
        assert_true(status_of(node).blocks_used == 20 && status_of(node).frees_total == 1);
    }
    assert_int_equal(give_back(node, 3072, &again, 0), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 3072, many, MEMORY_BATCH_MAX + 1), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 3072, many, UINT32_MAX), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 3000, &again, 1), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 1u << 31, &again, 1), BANYAN_EINVAL);
    /* Half of a block, and two in one. */
    assert_int_equal(give_back(node, 1536, &again, 1), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 6144, &again, 1), BANYAN_EINVAL);
    /* The good blocks of the bad batches are still handed out. */
    assert_int_equal(give_back(node, 3072, &again, 1), BANYAN_OK);
    assert_int_equal(one_of(node, 3072), once);
    assert_int_equal(one_of(node, 3072), again);
    assert_int_equal(one_of(node, 3072), first + 20 * 3072 + 1024);
    memory_node_destroy(node);
}

static void bad_requests(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    struct memory_allocate_request request = {.kind = MEMORY_ALLOCATE, .block_bytes = 1024, .want = 3};
    struct memory_free_request give = {.kind = MEMORY_FREE, .block_bytes = 1024, .count = 2};
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    const uint32_t sizes[] = {0, 1, 31, 511, 513, 1000, 1056, 1u << 21, 1u << 31, UINT32_MAX};
    const uint32_t wants[] = {0, MEMORY_BATCH_MAX + 1, UINT16_MAX};
    const uint32_t kinds[] = {0, 255, 1000, UINT32_MAX}; /* that are not listed */
    size_t length, room = offsetof(struct memory_allocate_reply, blocks) + 3 * sizeof(gaddr);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_equal(allocate(node, sizes[i], 1, &reply), BANYAN_EINVAL);
    for (unsigned i = 0; i < sizeof wants / sizeof wants[0]; i++)
        assert_int_equal(allocate(node, 1024, wants[i], &reply), BANYAN_EINVAL);
    assert_int_equal(allocate_for(node, MEMORY_FOR_STAGING + 1, 1024, 1, &reply), BANYAN_EINVAL);
    assert_int_equal(allocate(node, MEMORY_BLOCK_MAX, 1, &reply), BANYAN_ENOSPC); /* more than the pool has */
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        request.kind = kinds[i];
        assert_int_equal(call(node, &request, sizeof request, &reply, sizeof reply, &length), BANYAN_EINVAL);
    }
    request.kind = MEMORY_PEERS;
    assert_int_equal(call(node, &request, sizeof request, &reply, sizeof reply, &length), BANYAN_ENOTSUP);
    request.kind = MEMORY_ALLOCATE;
    for (size_t cut = 0; cut < sizeof request; cut++)
        assert_int_equal(call(node, &request, cut, &reply, sizeof reply, &length), BANYAN_EINVAL);
    for (size_t capacity = 0; capacity < room; capacity += 8)
        assert_int_equal(call(node, &request, sizeof request, &reply, capacity, &length), BANYAN_EINVAL);
    for (size_t cut = 0; cut < 8; cut++)
        assert_int_equal(call(node, &ask, cut, &reply, sizeof reply, &length), BANYAN_EINVAL);
    assert_int_equal(status_of(node).chunks_used, 0);
    assert_int_equal(call(node, &request, sizeof request, &reply, room, &length), BANYAN_OK);
    assert_int_equal(reply.count, 3);

    /* A request may end after its last block, not before. */
    memcpy(give.blocks, reply.blocks, 2 * sizeof(gaddr));
    for (size_t cut = 0; cut < 32; cut++)
        assert_int_equal(call(node, &give, cut, NULL, 0, &length), BANYAN_EINVAL);
    assert_int_equal(call(node, &give, 32, NULL, 0, &length), BANYAN_OK);
    memory_node_destroy(node);
}

/* Random bytes crash nothing, and the accounts stay right. */
static void random_requests(void **state)
{
    struct memory_node *node = make();
    static struct memory_usage_reply reply;
    struct random random;
    uint64_t words[100], used[3] = {0};
    random_seed(&random, 7);
    for (unsigned round = 0; round < 50000; round++) {
        uint32_t header[4] = {(uint32_t)random_below(&random, 9), 256u << random_below(&random, 10),
                              (uint32_t)random_below(&random, round % 3 == 0 ? 70 : 3), 0};
        size_t length;
        memcpy(words, header, sizeof header);
        for (unsigned i = 2; i < 100; i++)
            words[i] = gaddr_make(NODE, MEMORY_FIRST_CHUNK(LOCKS) +
                                            random_below(&random, CHUNKS * CHUNK / 256) * 256);
        call(node, words, random_below(&random, sizeof words), &reply, sizeof reply, &length);
    }
    struct memory_status_reply status = status_of(node);
    memory_node_each_used(node, count_visit, used);
    assert_true(status.blocks_used == used[0] && status.bytes_used == used[2]);
    assert_int_equal(status.allocations_total - status.frees_total, used[0]);
    assert_true(status.frees_total > 0 && status.chunks_used > 0);
    memory_node_destroy(node);
}

static void refusal(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    gaddr block = one_of(node, 1024);
    assert_int_equal(give_back(node, 1024, &block, 1), BANYAN_OK);
    memory_node_refuse(node, 2);
    assert_int_equal(allocate(node, 1024, 1, &reply), BANYAN_ENOSPC);
    assert_int_equal(allocate(node, 0, 1, &reply), BANYAN_EINVAL); /* does not count */
    assert_int_equal(allocate(node, 1024, 1, &reply), BANYAN_ENOSPC);
    assert_int_equal(allocate(node, 1024, 1, &reply), BANYAN_OK);
    assert_true(reply.count == 1 && reply.blocks[0] == block);
    assert_int_equal(status_of(node).refusals_total, 2);
    memory_node_refuse(node, UINT64_MAX);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(allocate(node, 1024, 1, &reply), BANYAN_ENOSPC);
    memory_node_refuse(node, 0);
    one_of(node, 1024);
    memory_node_destroy(node);
}

/* ---- memory that other processes map ---- */

static struct memory_node *make_shared(bool unformatted, bool huge)
{
    struct memory_options options = {.node = NODE,
                                     .pool_bytes = POOL,
                                     .chunk_bytes = CHUNK,
                                     .lock_bytes = LOCKS,
                                     .huge_pages = huge ? PAGES_HUGE : PAGES_PLAIN,
                                     .shared = true,
                                     .unformatted = unformatted};
    struct memory_node *node = NULL;
    struct error error = {0};
    if (memory_node_create(&node, &options, &error))
        fail_msg("%s", error.text);
    return node;
}

static void descriptors_map_the_same_bytes(void **state)
{
    for (unsigned huge = 0; huge < 2; huge++) {
        struct memory_node *node = make_shared(false, huge != 0);
        const struct fabric_target *target = memory_node_target(node);
        int descriptors[] = {memory_node_pool_descriptor(node), memory_node_locks_descriptor(node)};
        uint8_t *bytes[] = {target->pool, target->locks};
        uint64_t lengths[] = {POOL, LOCKS};
        for (unsigned i = 0; i < 2; i++) {
            struct stat stat;
            assert_int_equal(fstat(descriptors[i], &stat), 0);
            assert_true((uint64_t)stat.st_size >= lengths[i]);
            uint8_t *other =
                mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[i], 0);
            assert_ptr_not_equal(other, MAP_FAILED);
            bytes[i][lengths[i] - 1] = 77;
            assert_int_equal(other[lengths[i] - 1], 77);
            other[lengths[i] - 2] = 78;
            assert_int_equal(bytes[i][lengths[i] - 2], 78);
            munmap(other, (size_t)stat.st_size);
            /* No process can cut it short under another that maps it. */
            assert_int_equal(ftruncate(descriptors[i], 4096 - 8), -1);
            assert_int_equal(ftruncate(descriptors[i], stat.st_size + 4096), -1);
            assert_int_equal(fcntl(descriptors[i], F_ADD_SEALS, F_SEAL_WRITE), -1);
        }
        memory_node_destroy(node);
    }
}

static void formatting_makes_it_new(void **state)
{
    for (unsigned shared = 0; shared < 2; shared++) {
        struct memory_node *node = shared ? make_shared(false, false) : make();
        const struct fabric_target *target = memory_node_target(node);
        const struct memory_header *header = (const struct memory_header *)target->pool;
        struct error error = {0};
        one_of(node, 32);
        one_of(node, 4096);
        memset(target->pool + 4096, 5, POOL - 4096);
        memset(target->locks, 5, LOCKS);
        assert_int_equal(memory_node_format(node, 0, 1, 2, &error), BANYAN_EINVAL);
        assert_int_equal(memory_node_format(node, 9, 2, 2, &error), BANYAN_EINVAL);
        assert_int_equal(status_of(node).blocks_used, 2);
        assert_int_equal(memory_node_format(node, 0xabcdef, 1, 3, &error), BANYAN_OK);
        assert_true(header->magic == MEMORY_MAGIC && header->pool_bytes == POOL && header->node == 1);
        assert_true(header->cluster_id == 0xabcdef && header->node_count == 3 && header->next_tag == 0);
        for (uint64_t i = sizeof *header; i < POOL; i++)
            assert_int_equal(target->pool[i], 0);
        for (uint64_t i = 0; i < LOCKS; i++)
            assert_int_equal(target->locks[i], 0);
        struct memory_status_reply status = status_of(node);
        assert_true(status.blocks_used == 0 && status.chunks_used == 0 && status.allocations_total == 0);
        assert_true(status.cluster_id == 0xabcdef && status.node == 1 && status.node_count == 3);
        assert_int_equal(one_of(node, 96), gaddr_make(1, MEMORY_FIRST_CHUNK(LOCKS)));
        memory_node_destroy(node);
    }
}

static void unformatted_gives_nothing(void **state)
{
    struct memory_node *node = make_shared(true, false);
    struct memory_allocate_reply reply;
    struct error error = {0};
    assert_int_equal(status_of(node).cluster_id, 0);
    assert_int_equal(allocate(node, 64, 1, &reply), BANYAN_EINVAL);
    assert_int_equal(status_of(node).refusals_total, 0);
    assert_int_equal(memory_node_format(node, 4, 0, 1, &error), BANYAN_OK);
    assert_int_equal(allocate(node, 64, 1, &reply), BANYAN_OK);
    memory_node_destroy(node);
}

static void locks_of_the_dead(void **state)
{
    for (uint32_t width = 2; width <= 8; width += 6) {
        struct memory_node *node = make_wide(width);
        const struct fabric_target *target = memory_node_target(node);
        uint8_t *tables[] = {target->locks, target->pool + MEMORY_LOCK_TABLE_OFFSET};
        const unsigned words = (unsigned)LOCKS / width;
        assert_int_equal(memory_node_release_locks(node, 3), 0);
        for (unsigned table = 0; table < 2; table++)
            for (unsigned i = 0; i < words; i++) { /* ids 0 to 4; the first and the last word are of 3 */
                uint64_t id = i == 0 || i == words - 1 ? 3 : i % 5;
                memcpy(tables[table] + i * width, &id, width);
            }
        memset(target->pool + MEMORY_LOCK_TABLE_OFFSET - 8, 3, 8);
        unsigned expected = 0;
        for (unsigned i = 0; i < words; i++)
            expected += i == 0 || i == words - 1 || i % 5 == 3;
        assert_int_equal(memory_node_release_locks(node, 0), 0);
        assert_int_equal(memory_node_release_locks(node, 3), 2 * expected);
        for (unsigned table = 0; table < 2; table++)
            for (unsigned i = 0; i < words; i++) {
                uint64_t id = 0, right = i == 0 || i == words - 1 || i % 5 == 3 ? 0 : i % 5;
                memcpy(&id, tables[table] + i * width, width);
                assert_int_equal(id, right);
            }
        assert_int_equal(target->pool[MEMORY_LOCK_TABLE_OFFSET - 1], 3);
        assert_int_equal(memory_node_release_locks(node, 3), 0);
        memory_node_destroy(node);
    }
}

static void bad_options(void **state)
{
    const struct memory_options good = {
        .node = NODE, .pool_bytes = POOL, .chunk_bytes = CHUNK, .lock_bytes = LOCKS};
    struct memory_options bad[11];
    for (unsigned i = 0; i < 11; i++)
        bad[i] = good;
    bad[0].pool_bytes = 0;
    bad[1].pool_bytes = MEMORY_FIRST_CHUNK(LOCKS) + CHUNK - 8;
    bad[2].pool_bytes = UINT64_MAX;
    bad[3].pool_bytes = POOL + 4;
    bad[4].chunk_bytes = CHUNK / 2;
    bad[5].chunk_bytes = CHUNK * 3;
    bad[6].chunk_bytes = UINT64_C(2) << 30;
    bad[7].lock_bytes = 12;
    bad[8].lock_width = 4;
    bad[9].lock_bytes = GADDR_LOCK_REGION;
    bad[10].pool_bytes = GADDR_LOCK_REGION + CHUNK;
    for (unsigned i = 0; i < 11; i++) {
        struct error error = {0};
        struct memory_node *node = (struct memory_node *)state;
        assert_int_equal(memory_node_create(&node, &bad[i], &error), BANYAN_EINVAL);
        assert_null(node);
        assert_non_null(strstr(error.text, "memory node 5"));
    }
}

/* Pages of the mapping that the kernel has given out so far. */
static uint64_t resident_pages(const uint8_t *start, uint64_t bytes)
{
    uint64_t pages = bytes / 4096, resident = 0;
    unsigned char *map = calloc(pages, 1);
    assert_non_null(map);
    assert_int_equal(mincore((void *)(uintptr_t)start, bytes, map), 0);
    for (uint64_t i = 0; i < pages; i++)
        resident += map[i] & 1;
    free(map);
    return resident;
}

/* ---- emptying, by requests ---- */

static int evacuate(struct memory_node *node, uint16_t compute_id, uint32_t kind, uint64_t id,
                    struct memory_evacuate_reply *reply)
{
    const struct fabric_target *target = memory_node_target(node);
    struct memory_evacuate_request request = {.kind = kind, .tried = 1, .evacuation = id};
    size_t length = 0;
    memset(reply, 0, sizeof *reply);
    int status =
        target->call(target->owner, compute_id, &request, sizeof request, reply, sizeof *reply, &length);
    if (!status)
        assert_int_equal(length, offsetof(struct memory_evacuate_reply, ranges) +
                                     reply->count * sizeof reply->ranges[0]);
    return status;
}

/* Four chunks of data, then of the last but one a block at its begin and another that reaches into it are
 * left. */
static void make_sparse(struct memory_node *node, gaddr *inside, gaddr *across)
{
    gaddr blocks[4 * CHUNK / 4096] = {0};
    uint32_t count = 0, crossing = 0;
    one_for(node, MEMORY_FOR_DATA, 32); /* so that blocks lie across the chunks' boundaries */
    for (; count < 4 * CHUNK / 4096 - 1; count++)
        blocks[count] = one_for(node, MEMORY_FOR_DATA, 4096);
    while (blocks[crossing] > place(4 * CHUNK))
        crossing++;
    *across = blocks[crossing];
    *inside = blocks[crossing - 1];
    assert_true(*across < place(4 * CHUNK) && *across + 4096 > place(4 * CHUNK) && *inside == *across + 4096);
    for (uint32_t i = 0; i < count; i++) {
        bool rest = blocks[i] >= place(5 * CHUNK) || blocks[i] < place(4 * CHUNK) - 8 * 4096;
        if (i != crossing && i != crossing - 1 && (!rest || i % 4 == 0))
            assert_int_equal(give_back(node, 4096, &blocks[i], 1), BANYAN_OK);
    }
}

static void evacuations_have_owners(void **state)
{
    struct memory_node *node = make();
    struct memory_evacuate_reply reply;
    gaddr inside, across;
    uint64_t first;
    make_sparse(node, &inside, &across);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_BEGIN, 0, &reply), BANYAN_OK);
    assert_true(reply.evacuation > 0 && reply.count == 1);
    /* The range begins where the block begins that reaches into the chunk. */
    assert_true(reply.ranges[0].from == across && reply.ranges[0].to == place(5 * CHUNK));
    assert_int_equal(status_of(node).chunks_emptying, 1);
    first = reply.evacuation;
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_RENEW, first, &reply), BANYAN_OK);
    assert_true(reply.evacuation == first && reply.count == 1);
    /* No other compute node can use it, and no other number. */
    assert_int_equal(evacuate(node, 8, MEMORY_EVACUATE_RENEW, first, &reply), BANYAN_ENOTFOUND);
    assert_int_equal(evacuate(node, 8, MEMORY_EVACUATE_END, first, &reply), BANYAN_ENOTFOUND);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_END, first + 1, &reply), BANYAN_ENOTFOUND);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_END, 0, &reply), BANYAN_ENOTFOUND);
    /* A new one of the same compute node takes the place of the last. */
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_BEGIN, 0, &reply), BANYAN_OK);
    uint64_t last = reply.evacuation;
    assert_true(last != first && reply.count == 1);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_RENEW, first, &reply), BANYAN_ENOTFOUND);
    /* Its blocks are gone: the chunk is handed out again, as soon as the compute node has heard of it. */
    assert_int_equal(give_back(node, 4096, &inside, 1), BANYAN_OK);
    assert_int_equal(give_back(node, 4096, &across, 1), BANYAN_OK);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_RENEW, last, &reply), BANYAN_OK);
    assert_int_equal(reply.count, 0);
    assert_true(status_of(node).chunks_emptying == 0 && status_of(node).chunks_emptied_total == 1);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_END, last, &reply), BANYAN_OK);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_END, last, &reply), BANYAN_ENOTFOUND);
    memory_node_destroy(node);
}

static void evacuations_end_with_their_owners(void **state)
{
    struct memory_node *node = make();
    struct memory_evacuate_reply reply, none;
    gaddr inside, across;
    make_sparse(node, &inside, &across);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_BEGIN, 0, &reply), BANYAN_OK);
    assert_int_equal(status_of(node).chunks_emptying, 1);
    memory_node_release_locks(node, 8); /* another one was fenced */
    assert_int_equal(status_of(node).chunks_emptying, 1);
    memory_node_release_locks(node, 7);
    assert_int_equal(status_of(node).chunks_emptying, 0);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_RENEW, reply.evacuation, &none), BANYAN_ENOTFOUND);
    /* Or when nothing is heard of them. */
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_BEGIN, 0, &reply), BANYAN_OK);
    assert_false(
        memory_node_trim(node, task_now() + (MEMORY_EVACUATION_MS - 1000) * UINT64_C(1000000), UINT64_MAX));
    assert_int_equal(status_of(node).chunks_emptying, 1);
    assert_false(memory_node_trim(node, task_now() + MEMORY_EVACUATION_MS * UINT64_C(1000000), UINT64_MAX));
    assert_int_equal(status_of(node).chunks_emptying, 0);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_RENEW, reply.evacuation, &none), BANYAN_ENOTFOUND);
    /* A format forgets them all. */
    struct error error = {0};
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_BEGIN, 0, &reply), BANYAN_OK);
    assert_int_equal(memory_node_format(node, 9, NODE, 6, &error), BANYAN_OK);
    assert_int_equal(status_of(node).chunks_emptying, 0);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_RENEW, reply.evacuation, &none), BANYAN_ENOTFOUND);
    memory_node_destroy(node);
}

static void evacuations_are_few(void **state)
{
    struct memory_node *node = make();
    struct memory_evacuate_reply reply;
    struct memory_evacuate_request request = {.kind = MEMORY_EVACUATE_BEGIN};
    size_t length;
    for (uint16_t compute_id = 1; compute_id < 30; compute_id++) { /* nothing is worth emptying */
        assert_int_equal(evacuate(node, compute_id, MEMORY_EVACUATE_BEGIN, 0, &reply), BANYAN_OK);
        assert_true(reply.evacuation == 0 && reply.count == 0);
    }
    assert_int_equal(call(node, &request, sizeof request - 1, &reply, sizeof reply, &length), BANYAN_EINVAL);
    assert_int_equal(call(node, &request, sizeof request, &reply, sizeof reply - 1, &length), BANYAN_EINVAL);
    memory_node_destroy(node);
}

static bool names(const struct memory_evacuate_reply *reply, gaddr to)
{
    for (uint32_t i = 0; i < reply->count; i++)
        if (reply->ranges[i].to == to)
            return true;
    return false;
}

/* What a pass that was cut short has not emptied can be chosen again at once. */
static void evacuations_cut_short(void **state)
{
    struct memory_node *node = make();
    struct memory_evacuate_reply reply;
    gaddr inside, across;
    size_t length;
    make_sparse(node, &inside, &across);
    for (uint32_t tried = 0; tried < 2; tried++) {
        assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_BEGIN, 0, &reply), BANYAN_OK);
        assert_true(names(&reply, place(5 * CHUNK)));
        struct memory_evacuate_request request = {
            .kind = MEMORY_EVACUATE_END, .tried = tried, .evacuation = reply.evacuation};
        const struct fabric_target *target = memory_node_target(node);
        assert_int_equal(
            target->call(target->owner, 7, &request, sizeof request, &reply, sizeof reply, &length),
            BANYAN_OK);
        assert_int_equal(status_of(node).chunks_emptying, 0);
    }
    /* It was tried: not before it has changed. */
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_BEGIN, 0, &reply), BANYAN_OK);
    assert_false(names(&reply, place(5 * CHUNK)));
    assert_int_equal(give_back(node, 4096, &inside, 1), BANYAN_OK);
    assert_int_equal(evacuate(node, 7, MEMORY_EVACUATE_BEGIN, 0, &reply), BANYAN_OK);
    assert_true(names(&reply, place(5 * CHUNK)));
    memory_node_destroy(node);
}

/* ---- memory that goes back to the system ---- */

#define LARGE (UINT64_C(64) << 20)

static uint64_t resident_bytes(struct memory_node *node)
{
    struct stat file;
    const struct fabric_target *target = memory_node_target(node);
    if (memory_node_pool_descriptor(node) < 0)
        return resident_pages(target->pool, target->pool_bytes) * 4096;
    assert_int_equal(fstat(memory_node_pool_descriptor(node), &file), 0);
    return (uint64_t)file.st_blocks * 512;
}

static void memory_goes_back(void **state)
{
    static gaddr blocks[LARGE / 65536];
    for (unsigned shared = 0; shared < 2; shared++) {
        struct memory_options options = {
            .node = NODE, .pool_bytes = LARGE, .lock_bytes = LOCKS, .shared = shared != 0, .return_ms = 500};
        struct memory_node *node = NULL;
        struct error error = {0};
        uint32_t count = 0;
        uint64_t now = task_now(), second = UINT64_C(1000000000);
        assert_int_equal(memory_node_create(&node, &options, &error), 0);
        for (; count < 900; count++) {
            blocks[count] = one_for(node, MEMORY_FOR_DATA, 65536);
            memset(memory_node_target(node)->pool + gaddr_offset(blocks[count]), 0xee, 65536);
        }
        assert_false(memory_node_trim(node, now, UINT64_MAX));
        uint64_t full = resident_bytes(node);
        assert_true(full >= 900 * UINT64_C(65536) && status_of(node).bytes_resident >= 900 * UINT64_C(65536));
        /* A chunk that is half empty stays, whole ones go, once they were free for a while. */
        for (uint32_t i = 0; i < 600; i++)
            assert_int_equal(give_back(node, 65536, &blocks[i], 1), BANYAN_OK);
        assert_false(memory_node_trim(node, now + second / 4, UINT64_MAX));
        assert_int_equal(resident_bytes(node), full);
        assert_true(memory_node_trim(node, now + second, UINT64_C(1) << 20)); /* that was not all */
        assert_in_range(status_of(node).chunks_returned_total, 8, 16);
        assert_false(memory_node_trim(node, now + second, UINT64_MAX));
        assert_in_range(resident_bytes(node), 300 * UINT64_C(65536), 304 * UINT64_C(65536));
        assert_in_range(status_of(node).bytes_resident, 300 * UINT64_C(65536), 304 * UINT64_C(65536));
        assert_in_range(status_of(node).chunks_returned_total, 298, 300);
        for (uint32_t i = 600; i < 900; i++) /* nothing else was touched */
            for (uint32_t at = 0; at < 65536; at += 4096)
                assert_int_equal(memory_node_target(node)->pool[gaddr_offset(blocks[i]) + at], 0xee);
        /* And they come again as zeros. */
        gaddr again = one_for(node, MEMORY_FOR_DATA, 65536);
        assert_int_equal(again, blocks[0]);
        assert_int_equal(memory_node_target(node)->pool[gaddr_offset(again) + 8192], 0);
        /* Where a NIC writes to them they stay. */
        memory_node_pin(node);
        uint64_t pinned = resident_bytes(node);
        assert_int_equal(give_back(node, 65536, &again, 1), BANYAN_OK);
        for (uint32_t i = 600; i < 900; i++)
            assert_int_equal(give_back(node, 65536, &blocks[i], 1), BANYAN_OK);
        assert_false(memory_node_trim(node, now + 2 * second, UINT64_MAX));
        assert_false(memory_node_trim(node, now + 4 * second, UINT64_MAX));
        assert_int_equal(resident_bytes(node), pinned);
        memory_node_destroy(node);
    }
}

/* ---- huge pages ---- */

#define HUGE UINT64_C(0x200000)

/* What the system says of the pool. */
struct seen {
    uint64_t from, to;  /* offsets between which huge pages are wished for; 0 and 0: nowhere */
    uint64_t huge;      /* bytes in transparent huge pages, now */
    bool explicit_ones; /* the pool consists of reserved huge pages */
};

static bool huge_allowed(void)
{
    char text[128] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file == NULL)
        return false;
    char *read = fgets(text, sizeof text, file);
    fclose(file);
    return read != NULL && strstr(text, "[never]") == NULL;
}

/* The flags of what lies from `from` to `to`, which may be a part of a mapping that also has others beside.
 */
static void see_flags(struct seen *seen, uint64_t from, uint64_t to, const char *flags)
{
    if (strstr(flags, " hg") == NULL)
        return;
    if (seen->to == 0)
        seen->from = from;
    else
        assert_int_equal(seen->to, from); /* in one piece */
    seen->to = to;
}

static struct seen see(struct memory_node *node)
{
    const struct fabric_target *target = memory_node_target(node);
    const uint64_t pool = (uintptr_t)target->pool, end = pool + target->pool_bytes;
    struct seen seen = {0};
    unsigned long from = 0, to = 0, kilobytes;
    char line[512];
    FILE *file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long low, high; /* a line of another kind may begin like a number */
        if (sscanf(line, "%lx-%lx ", &low, &high) == 2) {
            from = low;
            to = high;
            continue;
        }
        if (to <= pool || from >= end)
            continue;
        if (sscanf(line, "AnonHugePages: %lu", &kilobytes) == 1)
            seen.huge += kilobytes * 1024;
        else if (strncmp(line, "VmFlags:", 8) == 0)
            see_flags(&seen, (from > pool ? from : pool) - pool, (to < end ? to : end) - pool, line);
        if (strncmp(line, "VmFlags:", 8) == 0)
            seen.explicit_ones |= strstr(line, " ht") != NULL;
    }
    fclose(file);
    return seen;
}

static struct memory_node *make_huge(const struct memory_options *options)
{
    struct memory_node *node = NULL;
    struct error error = {0};
    if (memory_node_create(&node, options, &error))
        fail_msg("%s", error.text);
    return node;
}

static uint64_t first_of(struct memory_node *node)
{
    return MEMORY_FIRST_CHUNK(memory_node_target(node)->lock_bytes);
}

/* Where its first chunk begins, from a boundary of huge pages on. */
static uint64_t behind_boundary(struct memory_node *node)
{
    return ((uintptr_t)memory_node_target(node)->pool + first_of(node)) % HUGE;
}

static void huge_pages_between_the_ends(void **state)
{
    static const struct memory_options cases[] = {
        {.pool_bytes = UINT64_C(1) << 30},
        {.pool_bytes = (UINT64_C(64) << 30) + 4096},                              /* chunks of 8 MiB */
        {.pool_bytes = UINT64_C(256) << 20, .chunk_bytes = HUGE},                 /* as many, but few */
        {.pool_bytes = UINT64_C(1) << 30, .chunk_bytes = UINT64_C(64) << 20},     /* ends of one chunk */
        {.pool_bytes = UINT64_C(1) << 30, .lock_bytes = (UINT64_C(1) << 20) * 3}, /* first chunk elsewhere */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct memory_options options = cases[i];
        options.huge_pages = PAGES_AUTO;
        struct memory_node *node = make_huge(&options);
        struct memory_status_reply status = status_of(node);
        struct seen seen = see(node);
        if (!huge_allowed()) {
            assert_int_equal(seen.to, 0);
        } else {
            uint64_t first = first_of(node), end = first + status.chunks_total * status.chunk_bytes;
            uint64_t plain = status.chunk_bytes > PAGES_PLAIN_ENDS ? status.chunk_bytes : PAGES_PLAIN_ENDS;
            assert_int_equal(behind_boundary(node), 0);
            assert_int_equal(seen.from, first + plain);
            assert_int_equal(seen.to, end - plain);
        }
        memory_node_destroy(node);
    }
}

/* Where a chunk would be a part of a huge page, or of two, where there is too little between the ends, and in
 * pools that others map. */
static void pools_that_stay_plain(void **state)
{
    static const struct memory_options cases[] = {
        {.pool_bytes = UINT64_C(1) << 30, .chunk_bytes = HUGE / 2},
        {.pool_bytes = UINT64_C(256) << 20}, /* chunks of 512 KiB */
        {.pool_bytes = UINT64_C(1) << 30, .lock_bytes = 1024},
        {.pool_bytes = (UINT64_C(64) << 20) + (UINT64_C(512) << 10), .chunk_bytes = HUGE},
        {.pool_bytes = UINT64_C(1) << 30, .shared = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned way = 0; way < 2; way++) {
            struct memory_options options = cases[way ? 0 : i];
            options.huge_pages = way ? PAGES_PLAIN : PAGES_AUTO;
            struct memory_node *node = make_huge(&options);
            assert_int_equal(see(node).to, 0);
            memory_node_destroy(node);
        }
}

static void huge_pages_everywhere(void **state)
{
    const struct memory_options options = {.pool_bytes = (UINT64_C(1) << 30) + 4096,
                                           .huge_pages = PAGES_HUGE};
    struct memory_node *node = make_huge(&options);
    struct seen seen = see(node);
    if (huge_allowed() && !seen.explicit_ones) {
        assert_int_equal(behind_boundary(node), 0);
        assert_true(seen.from == 0 && seen.to == options.pool_bytes);
    }
    memory_node_destroy(node);
}

/* A chunk that goes back is whole huge pages: none of its neighbours' is split for it. */
static void huge_pages_go_back_whole(void **state)
{
    enum { FILLED = 24, BLOCK = 65536, EACH = HUGE / BLOCK, ENDS = PAGES_PLAIN_ENDS / BLOCK };
    static gaddr blocks[ENDS + FILLED * EACH];
    const uint32_t count = ENDS + FILLED * EACH;
    const struct memory_options options = {
        .pool_bytes = UINT64_C(256) << 20, .chunk_bytes = HUGE, .huge_pages = PAGES_AUTO, .return_ms = 500};
    const uint64_t now = task_now(), second = UINT64_C(1000000000);
    struct memory_node *node = make_huge(&options);
    uint8_t *pool = memory_node_target(node)->pool;
    for (uint32_t i = 0; i < count; i++) { /* from the high end down */
        blocks[i] = one_for(node, MEMORY_FOR_DATA, BLOCK);
        memset(pool + gaddr_offset(blocks[i]), 0xee, BLOCK);
    }
    assert_false(memory_node_trim(node, now, UINT64_MAX));
    for (uint32_t chunk = 1; chunk < FILLED; chunk += 2) {
        uint64_t resident = resident_bytes(node), huge = see(node).huge;
        for (uint32_t i = 0; i < EACH; i++)
            assert_int_equal(give_back(node, BLOCK, &blocks[ENDS + chunk * EACH + i], 1), BANYAN_OK);
        assert_false(memory_node_trim(node, now + (2 * chunk) * second, UINT64_MAX));
        assert_false(memory_node_trim(node, now + (2 * chunk + 1) * second, UINT64_MAX));
        assert_int_equal(status_of(node).chunks_returned_total, chunk / 2 + 1);
        assert_int_equal(resident_bytes(node), resident - HUGE);
        assert_true(see(node).huge + HUGE >= huge);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t chunk = i < ENDS ? 0 : (i - ENDS) / EACH;
        for (uint32_t at = 0; at < BLOCK; at += 4096)
            assert_int_equal(pool[gaddr_offset(blocks[i]) + at], chunk % 2 ? 0 : 0xee);
    }
    memory_node_destroy(node);
}

/* Roots of indexes leave six bits for what the catalogue keeps in them. */
static void blocks_are_aligned(void **state)
{
    struct memory_options options = {.node = NODE, .pool_bytes = POOL + 64, .chunk_bytes = CHUNK};
    struct error error = {0};
    for (options.lock_bytes = 8; options.lock_bytes <= 64; options.lock_bytes += 8) {
        struct memory_node *node = NULL;
        if (memory_node_create(&node, &options, &error))
            fail_msg("%s", error.text);
        assert_int_equal(gaddr_offset(one_of(node, 512)) % 64, 0);
        /* Also between blocks of odd sizes. */
        gaddr odd[3] = {one_of(node, 96), one_of(node, 544), one_of(node, 64)};
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(gaddr_offset(odd[i]) % 64, 0);
        assert_int_equal(give_back(node, 544, &odd[1], 1), BANYAN_OK);
        assert_int_equal(gaddr_offset(one_of(node, 512)) % 64, 0);
        memory_node_destroy(node);
    }
}

static void a_large_pool_is_sparse(void **state)
{
    static const enum pages_huge ways[] = {PAGES_PLAIN, PAGES_HUGE, PAGES_AUTO};
    for (unsigned way = 0; way < 3; way++) {
        struct memory_options options = {
            .node = 1, .pool_bytes = UINT64_C(64) << 30, .huge_pages = ways[way]};
        struct memory_node *node = NULL;
        struct error error = {0};
        if (memory_node_create(&node, &options, &error))
            fail_msg("%s", error.text);
        const struct fabric_target *target = memory_node_target(node);
        assert_true(resident_pages(target->pool, options.pool_bytes) <= 512); /* one huge page at most */
        assert_int_equal(target->lock_bytes, MEMORY_LOCK_BYTES);
        assert_int_equal(status_of(node).chunk_bytes, MEMORY_CHUNK_MOST);
        assert_int_equal(status_of(node).chunks_total,
                         (options.pool_bytes - MEMORY_FIRST_CHUNK(MEMORY_LOCK_BYTES)) / MEMORY_CHUNK_MOST);
        target->pool[options.pool_bytes - 1] = 1;
        memory_node_destroy(node);
    }
}

/* ---- threads that allocate and return at once: no block is ever held by two ---- */

struct holder {
    struct memory_node *node;
    uint32_t *owners; /* one for each block of 512 bytes in the chunks */
    unsigned number, errors;
};

static uint32_t *owner_of(struct holder *holder, gaddr address)
{
    return &holder->owners[(gaddr_offset(address) - MEMORY_FIRST_CHUNK(LOCKS)) / 512];
}

static void *hold(void *argument)
{
    struct holder *holder = argument;
    struct memory_allocate_reply reply;
    for (unsigned round = 0; round < 3000; round++) {
        struct memory_allocate_request request = {
            .kind = MEMORY_ALLOCATE, .block_bytes = 512, .want = (uint16_t)(1 + round % 64)};
        size_t length = 0;
        if (call(holder->node, &request, sizeof request, &reply, sizeof reply, &length))
            continue;
        struct memory_free_request give = {.kind = MEMORY_FREE, .block_bytes = 512, .count = reply.count};
        memcpy(give.blocks, reply.blocks, reply.count * sizeof(gaddr));
        for (unsigned i = 0; i < reply.count;
             i++) /* relaxed: a mark that the second holder of a block would find */
            holder->errors +=
                __atomic_exchange_n(owner_of(holder, reply.blocks[i]), holder->number, __ATOMIC_RELAXED) != 0;
        for (unsigned i = 0; i < reply.count; i++)
            holder->errors +=
                __atomic_exchange_n(owner_of(holder, reply.blocks[i]), 0, __ATOMIC_RELAXED) != holder->number;
        holder->errors += call(holder->node, &give, sizeof give, NULL, 0, &length) != 0;
    }
    return NULL;
}

static void many_threads(void **state)
{
    struct memory_node *node = make();
    uint32_t *owners = calloc(CHUNKS * CHUNK / 512, sizeof *owners);
    struct holder holders[4];
    pthread_t threads[4];
    assert_non_null(owners);
    for (unsigned i = 0; i < 4; i++) {
        holders[i] = (struct holder){node, owners, i + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, hold, &holders[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(holders[i].errors, 0);
    }
    struct memory_status_reply status = status_of(node);
    assert_true(status.blocks_used == 0 && status.frees_total == status.allocations_total);
    assert_true(status.frees_total > 1000);
    free(owners);
    memory_node_destroy(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_sizes),
        cmocka_unit_test(a_new_node),
        cmocka_unit_test(both_ends),
        cmocka_unit_test(freed_space_serves_any_size),
        cmocka_unit_test(data_keeps_off_the_reserve),
        cmocka_unit_test(parts),
        cmocka_unit_test(staging_while_it_is_emptied),
        cmocka_unit_test(several_sizes_at_once),
        cmocka_unit_test(random_sizes),
        cmocka_unit_test(usage_of_the_pool),
        cmocka_unit_test(evacuations_have_owners),
        cmocka_unit_test(evacuations_end_with_their_owners),
        cmocka_unit_test(evacuations_are_few),
        cmocka_unit_test(evacuations_cut_short),
        cmocka_unit_test(memory_goes_back),
        cmocka_unit_test(bad_returns_change_nothing),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(random_requests),
        cmocka_unit_test(refusal),
        cmocka_unit_test(descriptors_map_the_same_bytes),
        cmocka_unit_test(formatting_makes_it_new),
        cmocka_unit_test(unformatted_gives_nothing),
        cmocka_unit_test(locks_of_the_dead),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(blocks_are_aligned),
        cmocka_unit_test(huge_pages_between_the_ends),
        cmocka_unit_test(pools_that_stay_plain),
        cmocka_unit_test(huge_pages_everywhere),
        cmocka_unit_test(huge_pages_go_back_whole),
        cmocka_unit_test(a_large_pool_is_sparse),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
