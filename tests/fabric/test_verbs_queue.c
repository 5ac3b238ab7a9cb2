/* test_verbs_queue.c - a queue of the verbs backend on a NIC that is not there (fake_nic.h): which requests
 * a list becomes, its bounds, its results against a model, its end when something fails; and what the plain
 * provider makes of requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric/target.h"
#include "fabric/verbs_works.h"
#include "fake_nic.h"
#include "trials.h"

#define NODE  3
#define LISTS 600

static struct verbs_queue *queue;
static struct error error;

/* What done was called for, in order. */
static struct {
    struct fabric_list *list;
    int status;
} done_lists[LISTS];
static uint32_t done_count;

static void done(void *owner, struct fabric_list *list, int status)
{
    assert_true(owner == &queue && done_count < LISTS);
    list->status = status;
    done_lists[done_count].list = list;
    done_lists[done_count++].status = status;
}

static uint32_t take(void)
{
    return verbs_queue_poll(queue, done, &queue);
}

static int setup(void **state)
{
    fake_nic_start();
    queue = NULL;
    done_count = 0;
    error = (struct error){0};
    return 0;
}
static int teardown(void **state)
{
    if (queue != NULL) {
        assert_int_equal(verbs_queue_under_way(queue), 0);
        verbs_queue_destroy(queue, done, &queue);
    }
    fake_nic_end();
    return 0;
}

static void open_queue(void)
{
    static const struct wire_nic theirs = {.queue = 8};
    assert_int_equal(verbs_queue_create(&queue, &fake_nic.device, &error), BANYAN_OK);
    assert_int_equal(verbs_queue_end(queue)->queue, 7);
    assert_int_equal(verbs_queue_connect(queue, &theirs, &fake_nic.memory, &error), BANYAN_OK);
}

static gaddr pool_at(uint64_t offset)
{
    return gaddr_make(NODE, offset);
}
static gaddr lock_at(uint64_t offset)
{
    return gaddr_make(NODE, GADDR_LOCK_REGION | offset);
}
static struct fabric_list list_of(struct fabric_command *commands, unsigned count)
{
    return (struct fabric_list){.node = NODE, .count = (uint16_t)count, .commands = commands, .status = 1};
}

/* Runs all that was posted; the list must be done with this status. */
static void finish(struct fabric_list *list, int status)
{
    uint32_t before = done_count;
    fake_nic_run(UINT32_MAX);
    assert_int_equal(take(), 1);
    assert_int_equal(done_count, before + 1);
    assert_ptr_equal(done_lists[before].list, list);
    assert_int_equal(list->status, status);
    assert_int_equal(verbs_queue_under_way(queue), 0);
}

static void expect_work(uint32_t index, enum fabric_operation operation, uint64_t remote, uint32_t key,
                        uint32_t length)
{
    const struct verbs_work *work = &fake_nic.last[index];
    assert_true(index < fake_nic.last_count);
    assert_int_equal(work->operation, operation);
    assert_int_equal(work->remote, remote);
    assert_int_equal(work->remote_key, key);
    assert_int_equal(work->length, length);
    assert_int_equal(work->signalled, index == fake_nic.last_count - 1);
}

/* ---- which requests ---- */

static void test_cas_and_read(void **state)
{
    uint64_t words[8] = {0};
    struct fabric_command commands[] = {cas_of(lock_at(64), 0, 7),
                                        read_of(pool_at(4096), words, sizeof words)};
    struct fabric_list list = list_of(commands, 2);
    open_queue();
    memset(fake_nic.pool + 4096, 0x33, sizeof words);
    assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
    assert_int_equal(fake_nic.posts, 1);
    assert_int_equal(fake_nic.last_count, 2);
    expect_work(0, FABRIC_CAS, fake_nic.memory.lock_address + 64, FAKE_LOCK_KEY, 8);
    assert_int_equal(fake_nic.last[0].compare, 0);
    assert_int_equal(fake_nic.last[0].swap, 7);
    assert_false(fake_nic.last[0].masked || fake_nic.last[0].inlined || fake_nic.last[1].inlined);
    expect_work(1, FABRIC_READ, fake_nic.memory.pool_address + 4096, FAKE_POOL_KEY, sizeof words);
    assert_int_equal(fake_nic.last[0].local % 64, 0); /* a list has its cache lines for itself */
    assert_int_equal(verbs_id_command(fake_nic.last[0].id), 0);
    assert_int_equal(verbs_id_command(fake_nic.last[1].id), 1);
    assert_int_equal(verbs_id_sequence(fake_nic.last[0].id), verbs_id_sequence(fake_nic.last[1].id));

    /* not before the last request */
    assert_int_equal(take(), 0);
    fake_nic_run(1);
    assert_int_equal(take(), 0);
    assert_int_equal(verbs_queue_under_way(queue), 1);
    assert_int_equal(words[0], 0);
    struct fabric_command faa = faa_of(pool_at(8), 1);
    struct fabric_list next = list_of(&faa, 1);
    assert_int_equal(verbs_queue_post(queue, &next), BANYAN_OK);
    assert_int_equal(fake_nic.last[0].local % 64, 0);
    fake_nic_run(1);
    assert_int_equal(take(), 1);
    finish(&next, BANYAN_OK);
    assert_int_equal(list.status, BANYAN_OK);
    assert_int_equal(words[7], 0x3333333333333333);
    assert_ptr_equal(commands[1].read.data, words);
    assert_int_equal(commands[0].cas.old, 0);
    assert_int_equal(fake_nic.locks[64], 7);

    const struct verbs_counts *counts = verbs_queue_counts(queue);
    assert_int_equal(counts->lists, 2);
    assert_int_equal(counts->doorbells, 2);
    assert_int_equal(counts->works, 3);
    assert_int_equal(counts->signalled, 2);
    assert_int_equal(counts->completions, 2);
    assert_int_equal(counts->inlined, 0);
    assert_int_equal(counts->registered, 0);
}

/* A leaf's slot and the unlock go within the requests; a whole leaf is copied when it is posted. */
static void test_writes(void **state)
{
    uint8_t slot[20], leaf[1024];
    uint64_t unlock = 0;
    struct fabric_command commands[] = {write_of(pool_at(8192), leaf, sizeof leaf),
                                        write_of(pool_at(8192 + 100), slot, sizeof slot),
                                        write_of(lock_at(0), &unlock, sizeof unlock)};
    struct fabric_list list = list_of(commands, 3);
    open_queue();
    memset(fake_nic.locks, 0xff, 8);
    memset(leaf, 1, sizeof leaf);
    memset(slot, 2, sizeof slot);
    assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
    assert_int_equal(fake_nic.last_count, 3);
    expect_work(0, FABRIC_WRITE, fake_nic.memory.pool_address + 8192, FAKE_POOL_KEY, sizeof leaf);
    expect_work(1, FABRIC_WRITE, fake_nic.memory.pool_address + 8292, FAKE_POOL_KEY, sizeof slot);
    expect_work(2, FABRIC_WRITE, fake_nic.memory.lock_address, FAKE_LOCK_KEY, 8);
    assert_false(fake_nic.last[0].inlined);
    assert_true(fake_nic.last[1].inlined && fake_nic.last[2].inlined);
    /* What the caller has there later does not matter. */
    memset(leaf, 0xee, sizeof leaf);
    memset(slot, 0xee, sizeof slot);
    unlock = 0xee;
    finish(&list, BANYAN_OK);
    assert_int_equal(fake_nic.pool[8192], 1);
    assert_int_equal(fake_nic.pool[8292], 2);
    assert_int_equal(fake_nic.pool[8312], 1);
    assert_int_equal(fake_nic.locks[0], 0);
    assert_int_equal(verbs_queue_counts(queue)->inlined, 2);
}

static void test_many_reads(void **state)
{
    static uint64_t buffers[FABRIC_COMMANDS_MAX][128];
    struct fabric_command commands[FABRIC_COMMANDS_MAX];
    struct fabric_list list = list_of(commands, FABRIC_COMMANDS_MAX);
    open_queue();
    for (uint32_t i = 0; i < FABRIC_COMMANDS_MAX; i++) {
        memset(fake_nic.pool + 1024 * (i + 1), (int)i + 1, 1024);
        commands[i] = read_of(pool_at(1024 * (i + 1)), buffers[i], 1024);
    }
    assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
    assert_int_equal(fake_nic.posts, 1);
    assert_int_equal(fake_nic.last_count, FABRIC_COMMANDS_MAX);
    for (uint32_t i = 0; i < FABRIC_COMMANDS_MAX; i++) {
        expect_work(i, FABRIC_READ, fake_nic.memory.pool_address + 1024 * (i + 1), FAKE_POOL_KEY, 1024);
        assert_int_equal(verbs_id_command(fake_nic.last[i].id), i);
    }
    finish(&list, BANYAN_OK);
    for (uint32_t i = 0; i < FABRIC_COMMANDS_MAX; i++)
        assert_memory_equal(buffers[i], fake_nic.pool + 1024 * (i + 1), 1024);
}

/* Longer than the NIC's messages: several requests, one completion. */
static void test_split(void **state)
{
    const uint32_t message = 65536, length = 150001;
    static uint8_t data[150001], back[150008];
    uint64_t word = 5;
    struct fabric_command commands[] = {write_of(pool_at(3), data, length),
                                        write_of(lock_at(8), &word, sizeof word),
                                        read_of(pool_at(3), back, length)};
    struct fabric_list list = list_of(commands, 3);
    fake_nic.device.limits.message = message;
    open_queue();
    for (uint32_t i = 0; i < length; i++)
        data[i] = (uint8_t)random_mix(i);
    assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
    assert_int_equal(fake_nic.posts, 1);
    assert_int_equal(fake_nic.last_count, 7);
    uint64_t base = fake_nic.memory.pool_address + 3;
    for (uint32_t part = 0; part < 3; part++) {
        uint32_t bytes = part < 2 ? message : length - 2 * message;
        expect_work(part, FABRIC_WRITE, base + part * message, FAKE_POOL_KEY, bytes);
        expect_work(part + 4, FABRIC_READ, base + part * message, FAKE_POOL_KEY, bytes);
        assert_int_equal(verbs_id_command(fake_nic.last[part].id), 0);
        assert_int_equal(verbs_id_command(fake_nic.last[part + 4].id), 2);
    }
    finish(&list, BANYAN_OK);
    assert_memory_equal(back, data, length);
    assert_int_equal(fake_nic.locks[8], 5);
}

/* Whatever list fabric_execute lets through fits an empty queue, even of the poorest NIC. */
static void test_largest_list(void **state)
{
    static uint8_t buffer[FABRIC_LENGTH_MAX];
    struct fabric_command commands[FABRIC_COMMANDS_MAX];
    struct fabric_list list = list_of(commands, FABRIC_COMMANDS_MAX);
    fake_nic.device.limits.message = VERBS_MESSAGE_MIN;
    fake_nic.device.limits.works = verbs_list_works_most(VERBS_MESSAGE_MIN);
    open_queue();
    /* 64 x 65,535 + 64 = 4 MiB; 61 of one more byte than a message is the worst split. */
    uint32_t left = FABRIC_LIST_BYTES_MAX;
    for (uint32_t i = 0; i < FABRIC_COMMANDS_MAX; i++) {
        uint32_t rest = FABRIC_COMMANDS_MAX - 1 - i; /* at least a byte for each */
        uint32_t length = left - rest > VERBS_MESSAGE_MIN + 1 ? (uint32_t)VERBS_MESSAGE_MIN + 1 : left - rest;
        commands[i] = i % 2 ? read_of(pool_at(8 * i + 1), buffer, length)
                            : write_of(pool_at(8 * i + 1), buffer, length);
        left -= length;
    }
    assert_int_equal(left, 0);
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
        assert_true(fake_nic.last_count > FABRIC_COMMANDS_MAX);
        assert_int_equal(fake_nic.regions, 2);
        finish(&list, BANYAN_OK);
        assert_int_equal(fake_nic.regions, 1);
    }
    assert_int_equal(verbs_queue_counts(queue)->registered, 3);
}

/* What the NIC cannot take within a request is asked for in smaller steps; the limit is the granted one. */
static void test_inline_limit(void **state)
{
    static const uint32_t maxima[] = {1000, 220, 219, 64, 63, 28, 27, 0};
    static const uint32_t granted[] = {220, 220, 128, 64, 28, 28, 0, 0};
    uint8_t data[256] = {0};
    for (unsigned i = 0; i < sizeof maxima / sizeof maxima[0]; i++) {
        fake_nic.inline_max = maxima[i];
        open_queue();
        for (uint32_t length = 1; length <= sizeof data; length++) {
            struct fabric_command command = write_of(pool_at(64), data, length);
            struct fabric_list list = list_of(&command, 1);
            assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
            assert_int_equal(fake_nic.last[0].inlined, length <= granted[i]);
            finish(&list, BANYAN_OK);
        }
        assert_int_equal(verbs_queue_counts(queue)->inlined, granted[i]);
        verbs_queue_destroy(queue, done, &queue);
        queue = NULL;
        done_count = 0;
    }
}

static void test_masked(void **state)
{
    for (int able = 0; able <= 1; able++) {
        uint64_t word = 0xaaaabbbbccccdddd;
        struct fabric_command commands[] = {faa_of(pool_at(8), 1),
                                            masked_of(lock_at(16), 0xcccc0000, 0x99990000, 0xffff0000),
                                            cas_of(lock_at(16), 0, 1)};
        struct fabric_list list = list_of(commands, 3);
        fake_nic.device.features.masked_cas = able;
        open_queue();
        assert_int_equal(fake_nic.masked, able);
        memcpy(fake_nic.locks + 16, &word, sizeof word);
        fake_nic.posts = 0;
        int status = verbs_queue_post(queue, &list);
        assert_int_equal(fake_nic.posts, able);
        if (able) {
            assert_int_equal(status, BANYAN_OK);
            assert_true(fake_nic.last[1].masked);
            assert_int_equal(fake_nic.last[1].mask, 0xffff0000);
            assert_false(fake_nic.last[0].masked || fake_nic.last[2].masked);
            finish(&list, BANYAN_OK);
            assert_int_equal(commands[1].cas.old, word);
            assert_int_equal(commands[2].cas.old, 0xaaaabbbb9999dddd);
        } else {
            assert_int_equal(status, BANYAN_ENOTSUP);
            assert_int_equal(verbs_queue_under_way(queue), 0);
        }
        verbs_queue_destroy(queue, done, &queue);
        queue = NULL;
    }
}

/* ---- bad commands ---- */

static void test_bad_commands(void **state)
{
    static uint8_t buffer[FABRIC_LENGTH_MAX + 8];
    uint64_t word = 0;
    open_queue();
    const struct fabric_command bad[] = {
        read_of(GADDR_NULL, buffer, 8),
        read_of(gaddr_make(NODE + 1, 64), buffer, 8),
        read_of(pool_at(FAKE_POOL_BYTES), buffer, 1),
        read_of(pool_at(FAKE_POOL_BYTES - 7), buffer, 8),
        read_of(pool_at(GADDR_LOCK_REGION - 1), buffer, 8),
        read_of(pool_at(64), buffer, 0),
        read_of(pool_at(64), buffer, FABRIC_LENGTH_MAX + 1),
        read_of(pool_at(64), buffer, UINT32_MAX),
        write_of(lock_at(FAKE_LOCK_BYTES), buffer, 1),
        write_of(lock_at(FAKE_LOCK_BYTES - 1), buffer, 2),
        cas_of(lock_at(4), 0, 0),
        cas_of(lock_at(FAKE_LOCK_BYTES), 0, 0),
        faa_of(pool_at(7), 1),
        faa_of(pool_at(FAKE_POOL_BYTES), 1),
        {.operation = (enum fabric_operation)4, .length = 8, .address = gaddr_make(NODE, 64)},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct fabric_command commands[] = {faa_of(pool_at(0x1000), 1), bad[i], faa_of(pool_at(0x1000), 100)};
        struct fabric_list list = list_of(commands + 1, 2);
        assert_int_equal(verbs_queue_post(queue, &list), BANYAN_EADDRESS);
        assert_int_equal(fake_nic_waiting(), 0);
        list = list_of(commands, 3);
        assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
        assert_int_equal(fake_nic.last_count, 1);
        finish(&list, BANYAN_EADDRESS);
        assert_int_equal(commands[0].faa.old, i);
    }
    /* The last bytes of either are good. */
    struct fabric_command ends[] = {read_of(pool_at(FAKE_POOL_BYTES - 8), &word, 8),
                                    faa_of(lock_at(FAKE_LOCK_BYTES - 8), 1)};
    struct fabric_list list = list_of(ends, 2);
    assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
    finish(&list, BANYAN_OK);
    assert_null(verbs_queue_broken(queue));
}

/* Of node 0 the first byte is null and cannot be addressed, the second can. */
static void test_null(void **state)
{
    uint8_t bytes[8];
    struct fabric_command commands[] = {read_of(GADDR_NULL, bytes, 8), read_of(gaddr_make(0, 1), bytes, 8)};
    struct fabric_list list = {.count = 1, .commands = commands};
    open_queue();
    assert_int_equal(verbs_queue_post(queue, &list), BANYAN_EADDRESS);
    list.commands++;
    assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
    finish(&list, BANYAN_OK);
}

/* ---- against a model ---- */

/* Lists are modelled when they are posted: the NIC does them in that order. */
static struct fabric_target model;

/* Takes what is done, in the order of the posts, and checks it. `first`: the number of the oldest. */
static void trials_take(struct trial **trials, uint32_t *first)
{
    done_count = 0;
    uint32_t taken = take();
    assert_int_equal(taken, done_count);
    for (uint32_t i = 0; i < taken; i++, ++*first) {
        assert_ptr_equal(done_lists[i].list, &trials[*first % LISTS]->list);
        trial_judge(trials[*first % LISTS]);
    }
}

/* Lists of all kinds, as many as go in, done a few requests at a time. The NIC checks the bounds. */
static void random_lists(uint64_t seed, uint64_t message)
{
    static struct trial *trials[LISTS];
    const struct trial_space space = {.node = NODE,
                                      .masked = true,
                                      .pool_begin = 8,
                                      .pool_end = FAKE_POOL_BYTES,
                                      .lock_end = FAKE_LOCK_BYTES,
                                      .bad = FAKE_POOL_BYTES};
    struct random random;
    uint32_t first = 0, posted = 0, busy = 0;
    random_seed(&random, seed);
    fake_nic.device.features.masked_cas = true;
    fake_nic.device.limits.message = message;
    fake_nic.device.limits.works = seed % 2 ? 300 : 4000;
    open_queue();
    model = (struct fabric_target){.pool = calloc(1, FAKE_POOL_BYTES),
                                   .pool_bytes = FAKE_POOL_BYTES,
                                   .locks = calloc(1, FAKE_LOCK_BYTES),
                                   .lock_bytes = FAKE_LOCK_BYTES,
                                   .lock_width = 8};
    while (posted < 3000) {
        struct trial *trial = trial_make(&random, &space);
        int status;
        while ((status = verbs_queue_post(queue, &trial->list)) == BANYAN_EBUSY) {
            assert_true(verbs_queue_under_way(queue) > 0);
            busy++;
            fake_nic_run((uint32_t)random_below(&random, 100) + 1);
            trials_take(trials, &first);
        }
        trial_model(trial, &model);
        if (!status) {
            trials[posted++ % LISTS] = trial;
        } else { /* the first command is bad */
            trial->list.status = status;
            trial_judge(trial);
        }
        if (random_chance(&random, 0.5))
            fake_nic_run((uint32_t)random_below(&random, 10));
        if (random_chance(&random, 0.3))
            trials_take(trials, &first);
        assert_int_equal(verbs_queue_under_way(queue), posted - first);
    }
    fake_nic_run(UINT32_MAX);
    while (first < posted)
        trials_take(trials, &first);
    assert_memory_equal(model.pool, fake_nic.pool, FAKE_POOL_BYTES);
    assert_memory_equal(model.locks, fake_nic.locks, FAKE_LOCK_BYTES);
    assert_true(busy > 0);
    const struct verbs_counts *counts = verbs_queue_counts(queue);
    assert_int_equal(counts->lists, 3000);
    assert_int_equal(counts->doorbells, 3000);
    assert_int_equal(counts->signalled, 3000);
    assert_int_equal(counts->completions, 3000);
    assert_int_equal(counts->works, fake_nic.posted);
    assert_true(counts->registered > 0);
    assert_int_equal(fake_nic.regions, 1);
    assert_int_equal(verbs_queue_under_way(queue), 0);
    verbs_queue_destroy(queue, done, &queue);
    queue = NULL;
    free(model.pool);
    free(model.locks);
}

static void test_random_lists(void **state)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        random_lists(seed, seed % 3 == 0 ? VERBS_MESSAGE_MIN : UINT64_C(1) << 30);
        fake_nic_end();
        fake_nic_start();
    }
}

/* ---- bounds ---- */

/* Fills the queue with lists like this one; returns how many went in. */
static uint32_t fill(struct fabric_list *lists, struct fabric_command *commands, uint32_t count)
{
    uint32_t posted = 0;
    for (; posted < LISTS; posted++) {
        lists[posted] = list_of(commands, count);
        int status = verbs_queue_post(queue, &lists[posted]);
        if (status == BANYAN_EBUSY)
            break;
        assert_int_equal(status, BANYAN_OK);
    }
    assert_int_equal(verbs_queue_under_way(queue), posted);
    return posted;
}

static void drain(uint32_t lists)
{
    done_count = 0;
    fake_nic_run(UINT32_MAX);
    assert_int_equal(take(), lists);
    for (uint32_t i = 0; i < lists; i++)
        assert_int_equal(done_lists[i].status, BANYAN_OK);
    assert_int_equal(verbs_queue_under_way(queue), 0);
}

static void test_bounds(void **state)
{
    static struct fabric_list lists[LISTS];
    static uint8_t large[FABRIC_LENGTH_MAX];
    struct fabric_command few[] = {write_of(pool_at(8), large, 8), write_of(pool_at(16), large, 8),
                                   write_of(pool_at(24), large, 8)};
    struct fabric_command leaf = read_of(pool_at(1024), large, 60000);
    struct fabric_command huge[] = {
        read_of(pool_at(8), large, FABRIC_LENGTH_MAX), read_of(pool_at(8), large, FABRIC_LENGTH_MAX),
        read_of(pool_at(8), large, FABRIC_LENGTH_MAX), read_of(pool_at(8), large, FABRIC_LENGTH_MAX)};
    open_queue();
    for (unsigned round = 0; round < 5; round++) {
        uint32_t most = fill(lists, few, 3); /* requests */
        assert_int_equal(most, 512 / 3);
        /* one goes, one comes */
        fake_nic_run(3);
        done_count = 0;
        assert_int_equal(take(), 1);
        lists[LISTS - 1] = list_of(few, 3);
        assert_int_equal(verbs_queue_post(queue, &lists[LISTS - 1]), BANYAN_OK);
        assert_int_equal(verbs_queue_post(queue, &lists[0]), BANYAN_EBUSY);
        drain(most);
        assert_int_equal(fill(lists, few, 1), 512);
        drain(512);
        assert_int_equal(fill(lists, &leaf, 1), 4); /* bytes of the ring */
        /* What needs none of it still goes. */
        lists[5] = list_of(few, 3);
        assert_int_equal(verbs_queue_post(queue, &lists[5]), BANYAN_OK);
        drain(5);
        assert_int_equal(fill(lists, huge, 4), 4); /* bytes of lists with memory of their own */
        assert_int_equal(fake_nic.regions, 5);
        drain(4);
        assert_int_equal(fake_nic.regions, 1);
    }
}

static void test_no_memory_for_a_large_list(void **state)
{
    static uint8_t large[FABRIC_LENGTH_MAX];
    struct fabric_command command = read_of(pool_at(8), large, sizeof large);
    struct fabric_list list = list_of(&command, 1);
    open_queue();
    fake_nic.failure = FAKE_REGISTER;
    assert_int_equal(verbs_queue_post(queue, &list), BANYAN_ENOMEM);
    assert_int_equal(fake_nic.posts, 0);
    assert_int_equal(verbs_queue_under_way(queue), 0);
    fake_nic.failure = FAKE_NONE;
    assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
    finish(&list, BANYAN_OK);
}

/* ---- failures ---- */

static void test_command_fails(void **state)
{
    uint64_t words[3][8] = {{0}};
    struct fabric_command commands[3][2];
    struct fabric_list lists[3];
    open_queue();
    for (unsigned i = 0; i < 3; i++) {
        commands[i][0] = write_of(pool_at(8), words[i], 8);
        commands[i][1] = read_of(pool_at(0x40 + i), words[i], 64);
        lists[i] = list_of(commands[i], 2);
        assert_int_equal(verbs_queue_post(queue, &lists[i]), BANYAN_OK);
    }
    fake_nic_run(3);
    fake_nic_fail(IBV_WC_REM_ACCESS_ERR); /* the READ of the second list */
    fake_nic_run(UINT32_MAX);
    assert_int_equal(take(), 1);
    assert_ptr_equal(done_lists[0].list, &lists[0]);
    assert_int_equal(lists[0].status, BANYAN_OK);
    assert_string_equal(verbs_queue_broken(queue), "READ of 64 bytes at 3:0x41: remote access error");
    /* The others stay, and nothing new is posted. */
    assert_int_equal(take(), 0);
    assert_int_equal(verbs_queue_under_way(queue), 2);
    struct fabric_list late = list_of(commands[0], 2);
    assert_int_equal(verbs_queue_post(queue, &late), BANYAN_ENET);
    assert_int_equal(fake_nic.posts, 3);
    verbs_queue_destroy(queue, done, &queue);
    queue = NULL;
    assert_int_equal(done_count, 3);
    for (unsigned i = 1; i < 3; i++) {
        assert_ptr_equal(done_lists[i].list, &lists[i]);
        assert_int_equal(lists[i].status, BANYAN_ENET);
    }
}

/* Each kind of command at fault is named. */
static void test_names(void **state)
{
    static const char *const texts[] = {
        "WRITE of 5 bytes at 3:0x8: retries exceeded", "READ of 64 bytes at 3:0x40: retries exceeded",
        "CAS of 8 bytes at 3:lock:0x10: retries exceeded", "FAA of 8 bytes at 3:0x18: retries exceeded"};
    uint64_t words[8] = {0};
    for (uint32_t which = 0; which < 4; which++) {
        struct fabric_command commands[] = {write_of(pool_at(8), words, 5), read_of(pool_at(64), words, 64),
                                            cas_of(lock_at(16), 1, 2), faa_of(pool_at(24), 1)};
        struct fabric_list list = list_of(commands, 4);
        fake_nic.failed = false;
        open_queue();
        assert_int_equal(verbs_queue_post(queue, &list), BANYAN_OK);
        fake_nic_run(which);
        /* The first is blamed, and no flush. */
        fake_nic_complete(&fake_nic.last[3 - which], IBV_WC_WR_FLUSH_ERR);
        fake_nic_fail(IBV_WC_RETRY_EXC_ERR);
        fake_nic_run(UINT32_MAX);
        fake_nic_complete(&fake_nic.last[3 - which], IBV_WC_GENERAL_ERR);
        assert_int_equal(take(), 0);
        assert_string_equal(verbs_queue_broken(queue), texts[which]);
        verbs_queue_destroy(queue, done, &queue);
    }
    queue = NULL;
}

static void destroyed_done(void *owner, struct fabric_list *list, int status)
{
    assert_int_equal(fake_nic.pairs, 0); /* nothing comes into our memory any more */
    done(owner, list, status);
}

/* A flush alone: the pair was ended from outside. More completions than one batch. */
static void test_flushed(void **state)
{
    uint64_t word = 0;
    struct fabric_command command = read_of(pool_at(8), &word, 8);
    static struct fabric_list lists[LISTS];
    open_queue();
    uint32_t posted = fill(lists, &command, 1);
    fake_nic_run(3);
    fake_nic.failed = true;
    fake_nic_run(UINT32_MAX); /* as many completions as there can be */
    assert_int_equal(take(), 3);
    assert_string_equal(verbs_queue_broken(queue), "fake0: flushed");
    assert_int_equal(verbs_queue_under_way(queue), posted - 3);
    verbs_queue_destroy(queue, destroyed_done, &queue);
    queue = NULL;
    assert_int_equal(done_count, posted);
    for (uint32_t i = 0; i < posted; i++) {
        assert_ptr_equal(done_lists[i].list, &lists[i]);
        assert_int_equal(done_lists[i].status, i < 3 ? BANYAN_OK : BANYAN_ENET);
    }
}

static void test_post_refused(void **state)
{
    static uint8_t large[FABRIC_LENGTH_MAX];
    struct fabric_command command = read_of(pool_at(8), large, 8),
                          longer = read_of(pool_at(8), large, sizeof large);
    struct fabric_list good = list_of(&command, 1), refused = list_of(&longer, 1);
    open_queue();
    assert_int_equal(verbs_queue_post(queue, &good), BANYAN_OK);
    fake_nic.post_error = ENOMEM;
    assert_int_equal(verbs_queue_post(queue, &refused), BANYAN_ENET);
    assert_non_null(strstr(verbs_queue_broken(queue), "fake0"));
    assert_non_null(strstr(verbs_queue_broken(queue), strerror(ENOMEM)));
    /* A part of it may be under way: its memory stays, but the list is the caller's again. */
    assert_int_equal(fake_nic.regions, 2);
    verbs_queue_destroy(queue, destroyed_done, &queue);
    queue = NULL;
    assert_int_equal(done_count, 1);
    assert_ptr_equal(done_lists[0].list, &good);
    assert_int_equal(good.status, BANYAN_ENET);
}

/* ---- its life ---- */

static void test_creation_fails(void **state)
{
    for (int failure = FAKE_CHANNEL; failure < FAKE_FAILURES; failure++) {
        fake_nic.failure = (enum fake_failure)failure;
        error = (struct error){0};
        int status = verbs_queue_create(&queue, &fake_nic.device, &error);
        assert_true(status == (failure == FAKE_BEGIN ? BANYAN_ENET : BANYAN_ENOMEM));
        assert_int_equal(error.code, status);
        assert_true(strlen(error.text) > 10);
        assert_null(queue);
        fake_nic_end();
        fake_nic_start();
    }
}

static void refuse(struct verbs_limits limits, const char *text)
{
    fake_nic.device.limits = limits;
    assert_int_equal(verbs_queue_create(&queue, &fake_nic.device, &error), BANYAN_ENOTSUP);
    assert_null(queue);
    assert_non_null(strstr(error.text, "fake0"));
    assert_non_null(strstr(error.text, text));
}

static void test_poor_nics(void **state)
{
    struct verbs_limits limits = fake_nic.device.limits, poor = limits;
    poor.message = VERBS_MESSAGE_MIN - 1;
    refuse(poor, "65535");
    poor = limits;
    poor.works = 63;
    refuse(poor, "63");
    poor = limits;
    poor.completions = 63;
    refuse(poor, "63");
    poor = limits;
    poor.message = VERBS_MESSAGE_MIN;
    poor.works = 127;
    refuse(poor, "127");
    /* Just good enough. */
    limits.works = 64;
    limits.completions = 100;
    fake_nic.device.limits = limits;
    open_queue();
    assert_int_equal(fake_nic.send_max, 64);
    verbs_queue_destroy(NULL, done, &queue);
}

static void test_impossible_memory(void **state)
{
    static const struct wire_nic theirs = {.queue = 8};
    const struct verbs_memory good = fake_nic.memory;
    struct verbs_memory bad[] = {good, good, good, good, good};
    bad[0].pool_address += 4;
    bad[1].pool_address = UINT64_MAX - 7;
    bad[2].pool_bytes = GADDR_LOCK_REGION + 8;
    bad[3].lock_address = UINT64_MAX - 4095;
    bad[3].lock_bytes = 8192;
    bad[4].lock_bytes = UINT64_MAX;
    assert_int_equal(verbs_queue_create(&queue, &fake_nic.device, &error), BANYAN_OK);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(verbs_queue_connect(queue, &theirs, &bad[i], &error), BANYAN_EINVAL);
    assert_false(fake_nic.connected);
    assert_int_equal(verbs_queue_connect(queue, &theirs, &good, &error), BANYAN_OK);
}

static void test_sleep(void **state)
{
    open_queue();
    struct pollfd waiting = {.fd = verbs_queue_descriptor(queue), .events = POLLIN};
    verbs_queue_arm(queue);
    verbs_queue_arm(queue);
    assert_int_equal(fake_nic.notified, 2);
    assert_int_equal(verbs_queue_counts(queue)->arms, 2);
    verbs_queue_awake(queue); /* does not wait where there is nothing */
    assert_int_equal(fake_nic.acknowledged, 0);
    assert_int_equal(eventfd_write(waiting.fd, 2), 0);
    assert_int_equal(poll(&waiting, 1, 0), 1);
    verbs_queue_awake(queue);
    assert_int_equal(poll(&waiting, 1, 0), 0);
    assert_int_equal(fake_nic.acknowledged, 2);
    assert_null(verbs_queue_broken(queue));
    fake_nic.notify_error = true;
    verbs_queue_arm(queue);
    assert_non_null(strstr(verbs_queue_broken(queue), "armed"));
}

/* ---- the plain provider ---- */

static const struct ibv_send_wr *sent;
static int sends, send_result;

static int keep_sent(struct ibv_qp *pair, struct ibv_send_wr *requests, struct ibv_send_wr **refused)
{
    sent = requests;
    sends++;
    return send_result;
}

static void test_plain_requests(void **state)
{
    struct ibv_context context = {.ops = {.post_send = keep_sent}};
    struct ibv_qp pair = {.context = &context};
    struct verbs_scratch *scratch = calloc(1, sizeof *scratch);
    const struct verbs_work works[] = {
        {.id = 1,
         .operation = FABRIC_READ,
         .length = 64,
         .local = 0x1000,
         .local_key = 5,
         .remote_key = 6,
         .remote = 0x2000},
        {.id = 2,
         .operation = FABRIC_WRITE,
         .length = 8,
         .local = 0x1100,
         .local_key = 5,
         .remote_key = 6,
         .remote = 0x2100,
         .inlined = true},
        {.id = 3,
         .operation = FABRIC_CAS,
         .length = 8,
         .local = 0x1200,
         .local_key = 5,
         .remote_key = 7,
         .remote = 0x2200,
         .compare = 11,
         .swap = 12,
         .mask = UINT64_MAX},
        {.id = 4,
         .operation = FABRIC_FAA,
         .length = 8,
         .local = 0x1300,
         .local_key = 5,
         .remote_key = 7,
         .remote = 0x2300,
         .swap = 13,
         .signalled = true},
    };
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
                                                 IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
    static const unsigned flags[] = {0, IBV_SEND_INLINE, 0, IBV_SEND_SIGNALED};
    assert_non_null(scratch);
    /* Twice: what the first left behind does no harm. */
    for (int round = 0; round < 2; round++) {
        sends = send_result = 0;
        assert_int_equal(verbs_plain.post(&pair, works, 4, scratch), 0);
        assert_int_equal(sends, 1);
        for (unsigned i = 0; i < 4; i++, sent = sent->next) {
            assert_int_equal(sent->wr_id, works[i].id);
            assert_int_equal(sent->opcode, opcodes[i]);
            assert_int_equal(sent->send_flags, flags[i]);
            assert_int_equal(sent->num_sge, 1);
            assert_int_equal(sent->sg_list->addr, works[i].local);
            assert_int_equal(sent->sg_list->length, works[i].length);
            assert_int_equal(sent->sg_list->lkey, 5);
            assert_int_equal(i < 2 ? sent->wr.rdma.remote_addr : sent->wr.atomic.remote_addr,
                             works[i].remote);
            assert_int_equal(i < 2 ? sent->wr.rdma.rkey : sent->wr.atomic.rkey, works[i].remote_key);
            if (i >= 2)
                assert_int_equal(sent->wr.atomic.compare_add, i == 2 ? 11 : 13);
            if (i == 2)
                assert_int_equal(sent->wr.atomic.swap, 12);
        }
        assert_null(sent);
    }
    assert_int_equal(verbs_plain.post(&pair, works, 1, scratch), 0);
    assert_null(sent->next);
    send_result = ENOMEM;
    assert_int_equal(verbs_plain.post(&pair, works, 4, scratch), ENOMEM);
    assert_null(verbs_plain.queue_create(NULL, NULL, true)); /* masks are not for it */
    assert_int_equal(errno, EOPNOTSUPP);
    assert_true(verbs_plain.knows(NULL));
    free(scratch);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_cas_and_read),
        CASE(test_writes),
        CASE(test_many_reads),
        CASE(test_split),
        CASE(test_largest_list),
        CASE(test_inline_limit),
        CASE(test_masked),
        CASE(test_bad_commands),
        CASE(test_null),
        CASE(test_random_lists),
        CASE(test_bounds),
        CASE(test_no_memory_for_a_large_list),
        CASE(test_command_fails),
        CASE(test_names),
        CASE(test_flushed),
        CASE(test_post_refused),
        CASE(test_creation_fails),
        CASE(test_poor_nics),
        CASE(test_impossible_memory),
        CASE(test_sleep),
        cmocka_unit_test(test_plain_requests),
    };
    return cmocka_run_group_tests_name("verbs_queue", tests, NULL, NULL);
}
