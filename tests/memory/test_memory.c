/* test_memory.c - the memory node: allocation to exhaustion, return and reuse, bad requests, locks of the
 * dead, and that a pool costs no memory before it is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/random.h"
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
    if (memory_node_create(&node, &options, &error) != BANYAN_OK)
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

static int allocate(struct memory_node *node, uint32_t node_bytes, uint32_t want,
                    struct memory_allocate_reply *reply)
{
    struct memory_allocate_request request = {
        .kind = MEMORY_ALLOCATE, .node_bytes = node_bytes, .want = want};
    size_t length = 0;
    int status = call(node, &request, sizeof request, reply, sizeof *reply, &length);
    assert_int_equal(length, status == BANYAN_OK ? sizeof *reply : 0);
    return status;
}

static gaddr chunk_of(struct memory_node *node, uint32_t node_bytes)
{
    struct memory_allocate_reply reply;
    assert_int_equal(allocate(node, node_bytes, 1, &reply), BANYAN_OK);
    assert_int_equal(reply.count, 0);
    assert_int_equal(reply.chunk_bytes, CHUNK);
    return reply.chunk;
}

static int give_back(struct memory_node *node, uint32_t node_bytes, const gaddr *nodes, uint32_t count)
{
    struct memory_free_request request = {.kind = MEMORY_FREE, .node_bytes = node_bytes, .count = count};
    size_t length = 0;
    for (uint32_t i = 0; i < count && i < MEMORY_BATCH_MAX; i++)
        request.nodes[i] = nodes[i];
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
    for (uint64_t i = sizeof *header; i < target->pool_bytes; i++)
        assert_int_equal(target->pool[i], 0);
    for (uint64_t i = 0; i < target->lock_bytes; i++)
        assert_int_equal(target->locks[i], 0);
    assert_int_equal(target->lock_width, 2);
    assert_int_equal((uintptr_t)target->pool % 4096, 0);
    struct memory_status_reply status = status_of(node);
    assert_true(status.pool_bytes == POOL && status.chunk_bytes == CHUNK && status.chunks_total == CHUNKS);
    assert_true(status.chunks_used == 0 && status.nodes_returned == 0);
    assert_true(status.frees_total == 0 && status.recycled_total == 0);
    memory_node_destroy(node);
    memory_node_destroy(NULL);
}

static void allocation_to_exhaustion(void **state)
{
    struct memory_node *node = make();
    const struct fabric_target *target = memory_node_target(node);
    struct memory_allocate_reply reply;
    for (unsigned i = 0; i < CHUNKS; i++) {
        gaddr chunk = chunk_of(node, 512u << i);
        assert_int_equal(chunk, gaddr_make(NODE, MEMORY_FIRST_CHUNK(LOCKS) + i * CHUNK));
        assert_true(gaddr_offset(chunk) + CHUNK <= target->pool_bytes);
    }
    assert_int_equal(allocate(node, 1024, 1, &reply), BANYAN_ENOSPC);
    assert_int_equal(status_of(node).chunks_used, CHUNKS);
    /* A returned node is handed out even now, and only for its size. */
    gaddr back = gaddr_make(NODE, MEMORY_FIRST_CHUNK(LOCKS) + CHUNK + 3 * 1024);
    assert_int_equal(give_back(node, 1024, &back, 1), BANYAN_OK);
    assert_int_equal(allocate(node, 512, 1, &reply), BANYAN_ENOSPC);
    assert_int_equal(allocate(node, 1024, 8, &reply), BANYAN_OK);
    assert_true(reply.count == 1 && reply.nodes[0] == back && reply.chunk == 0);
    assert_int_equal(allocate(node, 1024, 8, &reply), BANYAN_ENOSPC);
    memory_node_destroy(node);
}

static void count_visit(void *context, gaddr address, uint32_t node_bytes)
{
    uint64_t *sums = context;
    sums[0]++;
    sums[1] += gaddr_offset(address);
    sums[2] += node_bytes;
}

static void nodes_come_back(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    gaddr first = chunk_of(node, 1024), second = chunk_of(node, 1024), nodes[100];
    uint64_t chunks[3] = {0}, returned[3] = {0}, sum = 0;
    for (unsigned i = 0; i < 100;
         i++) { /* 60 nodes of the first chunk, last ones first, then 40 of the second */
        nodes[i] = i < 60 ? first + (63 - i) * 1024 : second + (i - 60) * 1024;
        sum += gaddr_offset(nodes[i]);
    }
    assert_int_equal(give_back(node, 1024, nodes, 50), BANYAN_OK);
    assert_int_equal(give_back(node, 1024, nodes + 50, 50), BANYAN_OK);
    struct memory_status_reply status = status_of(node);
    assert_true(status.nodes_returned == 100 && status.frees_total == 100 && status.recycled_total == 0);
    memory_node_each_chunk(node, count_visit, chunks);
    memory_node_each_free(node, count_visit, returned);
    assert_true(chunks[0] == 2 && chunks[1] == gaddr_offset(first) + gaddr_offset(second) &&
                chunks[2] == 2048);
    assert_true(returned[0] == 100 && returned[1] == sum && returned[2] == 102400);

    uint64_t count = 0;
    while (count < 100) {
        assert_int_equal(allocate(node, 1024, 30, &reply), BANYAN_OK);
        assert_true(reply.count > 0 && reply.count <= 30 && reply.chunk == 0);
        for (uint32_t i = 0; i < reply.count; i++)
            sum -= gaddr_offset(reply.nodes[i]);
        count += reply.count;
    }
    assert_true(count == 100 && sum == 0);
    status = status_of(node);
    assert_true(status.nodes_returned == 0 && status.frees_total == 100 && status.recycled_total == 100);
    assert_true(status.chunks_used == 2);
    assert_int_equal(chunk_of(node, 1024), second + CHUNK);
    /* What was recycled may be returned again. */
    assert_int_equal(give_back(node, 1024, nodes, 50), BANYAN_OK);
    memory_node_destroy(node);
}

static void bad_returns_change_nothing(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    gaddr chunk = chunk_of(node, 2048), other = chunk_of(node, 1024);
    gaddr once = chunk + 2048, again = chunk + 4096;
    const gaddr many[MEMORY_BATCH_MAX] = {again};
    assert_int_equal(give_back(node, 2048, &once, 1), BANYAN_OK);
    const gaddr bad[] = {once,                                      /* returned already */
                         again,                                     /* twice in the batch: see below */
                         chunk + 1024,                              /* misaligned */
                         chunk + 1,                                 /* misaligned */
                         other,                                     /* in a chunk of another size */
                         chunk + 2 * CHUNK,                         /* in a chunk not handed out */
                         gaddr_make(NODE + 1, gaddr_offset(chunk)), /* of another memory node */
                         gaddr_make(NODE, 0),                       /* the header */
                         gaddr_make(NODE, MEMORY_FIRST_CHUNK(LOCKS) - 2048), /* before the chunks */
                         gaddr_make(NODE, POOL - 2048),                      /* behind the chunks */
                         gaddr_make(NODE, GADDR_LOCK_REGION | 0x10000),      /* in the lock region */
                         GADDR_NULL,
                         UINT64_MAX};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const gaddr batch[] = {again, chunk + 3 * 2048, bad[i]};
        assert_int_equal(give_back(node, 2048, batch, 3), BANYAN_EINVAL);
        assert_true(status_of(node).nodes_returned == 1 && status_of(node).frees_total == 1);
    }
    assert_int_equal(give_back(node, 2048, &again, 0), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 2048, many, MEMORY_BATCH_MAX + 1), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 2048, many, UINT32_MAX), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 0, &again, 1), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 3000, &again, 1), BANYAN_EINVAL);
    assert_int_equal(give_back(node, 1u << 31, &again, 1), BANYAN_EINVAL);
    /* The good ones of the bad batches are not marked. */
    assert_int_equal(give_back(node, 2048, &again, 1), BANYAN_OK);
    assert_int_equal(allocate(node, 2048, 64, &reply), BANYAN_OK);
    assert_int_equal(reply.count, 2);
    memory_node_destroy(node);
}

static void bad_requests(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    struct memory_allocate_request request = {.kind = MEMORY_ALLOCATE, .node_bytes = 1024, .want = 1};
    struct memory_free_request give = {.kind = MEMORY_FREE, .node_bytes = 1024, .count = 2};
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    const uint32_t sizes[] = {0, 1, 256, 511, 513, 1000, 1536, 131072, 1u << 31, UINT32_MAX};
    const uint32_t wants[] = {0, MEMORY_BATCH_MAX + 1, UINT32_MAX};
    const uint32_t kinds[] = {0, 4, 255, UINT32_MAX};
    size_t length;
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        assert_int_equal(allocate(node, sizes[i], 1, &reply), BANYAN_EINVAL);
    for (unsigned i = 0; i < sizeof wants / sizeof wants[0]; i++)
        assert_int_equal(allocate(node, 1024, wants[i], &reply), BANYAN_EINVAL);
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        request.kind = kinds[i];
        assert_int_equal(call(node, &request, sizeof request, &reply, sizeof reply, &length), BANYAN_EINVAL);
    }
    request.kind = MEMORY_ALLOCATE;
    for (size_t cut = 0; cut < sizeof request; cut++)
        assert_int_equal(call(node, &request, cut, &reply, sizeof reply, &length), BANYAN_EINVAL);
    for (size_t capacity = 0; capacity < sizeof reply; capacity += 8)
        assert_int_equal(call(node, &request, sizeof request, &reply, capacity, &length), BANYAN_EINVAL);
    for (size_t cut = 0; cut < 8; cut++)
        assert_int_equal(call(node, &ask, cut, &reply, sizeof reply, &length), BANYAN_EINVAL);
    assert_int_equal(status_of(node).chunks_used, 0);

    /* A batch may be sent without the unused rest of its array, not without a part of its nodes. */
    gaddr chunk = chunk_of(node, 1024);
    give.nodes[0] = chunk;
    give.nodes[1] = chunk + 1024;
    for (size_t cut = 0; cut < 32; cut++)
        assert_int_equal(call(node, &give, cut, NULL, 0, &length), BANYAN_EINVAL);
    assert_int_equal(call(node, &give, 32, NULL, 0, &length), BANYAN_OK);
    memory_node_destroy(node);
}

/* Whatever bytes come, nothing crashes and the books stay right. */
static void random_requests(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    struct random random;
    uint64_t words[70], returned[3] = {0};
    random_seed(&random, 7);
    for (unsigned round = 0; round < 50000; round++) {
        uint32_t header[4] = {(uint32_t)random_below(&random, 5), 256u << random_below(&random, 10),
                              (uint32_t)random_below(&random, round % 3 == 0 ? 70 : 3), 0};
        size_t length;
        memcpy(words, header, sizeof header);
        for (unsigned i = 2; i < 70; i++)
            words[i] = gaddr_make(NODE, random_below(&random, POOL / 512) * 512);
        call(node, words, random_below(&random, sizeof words), &reply, sizeof reply, &length);
    }
    struct memory_status_reply status = status_of(node);
    memory_node_each_free(node, count_visit, returned);
    assert_int_equal(status.nodes_returned, returned[0]);
    assert_int_equal(status.frees_total - status.recycled_total, returned[0]);
    assert_true(status.frees_total > 0 && status.recycled_total > 0 && status.chunks_used == CHUNKS);
    memory_node_destroy(node);
}

static void refusal(void **state)
{
    struct memory_node *node = make();
    struct memory_allocate_reply reply;
    gaddr chunk = chunk_of(node, 1024);
    assert_int_equal(give_back(node, 1024, &chunk, 1), BANYAN_OK);
    memory_node_refuse(node, 2);
    assert_int_equal(allocate(node, 1024, 1, &reply), BANYAN_ENOSPC);
    assert_int_equal(allocate(node, 0, 1, &reply), BANYAN_EINVAL); /* does not count */
    assert_int_equal(allocate(node, 1024, 1, &reply), BANYAN_ENOSPC);
    assert_int_equal(allocate(node, 1024, 1, &reply), BANYAN_OK);
    assert_true(reply.count == 1 && reply.nodes[0] == chunk);
    memory_node_refuse(node, UINT64_MAX);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(allocate(node, 1024, 1, &reply), BANYAN_ENOSPC);
    memory_node_refuse(node, 0);
    chunk_of(node, 1024);
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
    struct memory_options bad[9];
    for (unsigned i = 0; i < 9; i++)
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
    for (unsigned i = 0; i < 9; i++) {
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

static void a_large_pool_is_sparse(void **state)
{
    for (unsigned huge = 0; huge < 2; huge++) {
        struct memory_options options = {
            .node = 1, .pool_bytes = UINT64_C(64) << 30, .huge_pages = huge != 0};
        struct memory_node *node = NULL;
        struct error error = {0};
        if (memory_node_create(&node, &options, &error) != BANYAN_OK)
            fail_msg("%s", error.text);
        const struct fabric_target *target = memory_node_target(node);
        assert_true(resident_pages(target->pool, options.pool_bytes) <= 512); /* one huge page at most */
        assert_int_equal(target->lock_bytes, MEMORY_LOCK_BYTES);
        assert_int_equal(status_of(node).chunk_bytes, MEMORY_CHUNK_BYTES);
        assert_int_equal(status_of(node).chunks_total,
                         (options.pool_bytes - MEMORY_FIRST_CHUNK(MEMORY_LOCK_BYTES)) / MEMORY_CHUNK_BYTES);
        target->pool[options.pool_bytes - 1] = 1;
        memory_node_destroy(node);
    }
}

/* ---- threads that allocate and return together: no node is ever held by two ---- */

struct holder {
    struct memory_node *node;
    uint32_t *owners; /* one per node of 512 bytes in the chunks */
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
            .kind = MEMORY_ALLOCATE, .node_bytes = 512, .want = 1 + round % 64};
        size_t length = 0;
        if (call(holder->node, &request, sizeof request, &reply, sizeof reply, &length) != BANYAN_OK)
            continue;
        if (reply.count == 0) { /* a fresh chunk: its first 64 nodes are ours */
            reply.count = MEMORY_BATCH_MAX;
            for (unsigned i = 0; i < MEMORY_BATCH_MAX; i++)
                reply.nodes[i] = reply.chunk + i * 512;
        }
        struct memory_free_request give = {.kind = MEMORY_FREE, .node_bytes = 512, .count = reply.count};
        memcpy(give.nodes, reply.nodes, sizeof give.nodes);
        for (unsigned i = 0; i < reply.count; i++) /* relaxed: a mark each, found by whoever comes second */
            holder->errors +=
                __atomic_exchange_n(owner_of(holder, reply.nodes[i]), holder->number, __ATOMIC_RELAXED) != 0;
        for (unsigned i = 0; i < reply.count; i++)
            holder->errors +=
                __atomic_exchange_n(owner_of(holder, reply.nodes[i]), 0, __ATOMIC_RELAXED) != holder->number;
        holder->errors += call(holder->node, &give, sizeof give, NULL, 0, &length) != BANYAN_OK;
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
    assert_int_equal(status.nodes_returned, status.chunks_used * MEMORY_BATCH_MAX);
    free(owners);
    memory_node_destroy(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_node),      cmocka_unit_test(allocation_to_exhaustion),
        cmocka_unit_test(nodes_come_back), cmocka_unit_test(bad_returns_change_nothing),
        cmocka_unit_test(bad_requests),    cmocka_unit_test(random_requests),
        cmocka_unit_test(refusal),         cmocka_unit_test(locks_of_the_dead),
        cmocka_unit_test(bad_options),     cmocka_unit_test(a_large_pool_is_sparse),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
