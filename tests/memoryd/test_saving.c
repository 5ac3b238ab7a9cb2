/*
 * test_saving.c - a memory node's part in a checkpoint of its cluster (SAVE of memory/request.h): who may ask
 * for what and when, which bytes of a part are believed, what is left when the compute node that makes it is
 * gone, and what a next life of the memory node finds. The disk is simulated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/crc32c.h"
#include "base/task.h"
#include "client.h"
#include "disk/disk_simulated.h"
#include "disk/manifest.h"
#include "fabric/remote.h"
#include "memory/request.h"
#include "memoryd/disk.h"
#include "persist/table.h"

#define LOOK_NS UINT64_C(100000)
#define AT      UINT64_C(65536) /* of the pool: from where parts are taken */

struct maker {
    struct client control, data;
    struct memory_save_reply said;
};

static struct disk *make_disk(void)
{
    struct disk *disk = disk_simulated_create(&(struct disk_simulated_options){.seed = 3});
    assert_non_null(disk);
    return disk;
}

static void maker_open(struct maker *maker, struct site *site, uint64_t instance)
{
    client_control(&maker->control, &site->tcp, instance, 0);
    client_data(&maker->data, &site->tcp, &maker->control);
}

static void maker_close(struct maker *maker)
{
    client_close(&maker->data);
    client_close(&maker->control);
}

static int call(struct maker *maker, struct memory_save_request request)
{
    size_t length = 0;
    request.kind = MEMORY_SAVE;
    return client_call(&maker->data, &request, sizeof request, &maker->said, sizeof maker->said, &length);
}

static int simple(struct maker *maker, uint32_t action, uint64_t number)
{
    return call(maker, (struct memory_save_request){.action = action, .number = number});
}

/* What came of an action of the disk's thread; or the refusal. */
static int act(struct maker *maker, struct memory_save_request request)
{
    int status = call(maker, request);
    if (status)
        return status;
    do {
        assert_int_equal(simple(maker, MEMORY_SAVE_LOOK, 0), 0);
        task_sleep(LOOK_NS);
    } while (maker->said.busy);
    return maker->said.status;
}

static int act_simple(struct maker *maker, uint32_t action, uint64_t number)
{
    return act(maker, (struct memory_save_request){.action = action, .number = number});
}

/* A part of these bytes, in one piece. */
static int part(struct maker *maker, struct site *site, uint64_t number, uint32_t which, const char *text,
                uint32_t check)
{
    const uint32_t length = (uint32_t)strlen(text);
    /* Atomic, as a NIC's writes are: the disk's thread reads these bytes. */
    atomic_copy_to(site_pool(site, AT), text, length);
    int status = act(maker, (struct memory_save_request){.action = MEMORY_SAVE_WRITE,
                                                         .number = number,
                                                         .part = which,
                                                         .length = length,
                                                         .address = site_address(AT)});
    if (status)
        return status;
    return act(maker, (struct memory_save_request){.action = MEMORY_SAVE_END,
                                                   .number = number,
                                                   .part = which,
                                                   .bytes = length,
                                                   .entries = 1,
                                                   .check = check});
}

static uint32_t check_of(const char *text)
{
    return crc32c(0, text, strlen(text));
}

static void prepared(struct maker *maker, struct site *site, uint64_t number)
{
    assert_int_equal(simple(maker, MEMORY_SAVE_TAKE, 0), 0);
    assert_int_equal(act_simple(maker, MEMORY_SAVE_BEGIN, number), 0);
    assert_int_equal(part(maker, site, number, 0, "one", check_of("one")), 0);
    assert_int_equal(part(maker, site, number, MEMORY_SAVE_TABLE, "table", check_of("table")), 0);
    assert_int_equal(maker->said.state, MEMORY_SAVE_WRITTEN);
    assert_int_equal(act_simple(maker, MEMORY_SAVE_PREPARE, number), 0);
    assert_int_equal(maker->said.state, MEMORY_SAVE_PREPARED);
}

static bool has_file(struct disk *disk, uint64_t number, uint32_t which)
{
    char name[PERSIST_PART_NAME];
    struct disk_file *file = NULL;
    persist_part_name(name, number, which);
    const bool there = !disk_open(disk, name, &file, NULL);
    disk_file_close(file);
    return there;
}

/* From the beginning to the end, twice: the second makes the first one's files unneeded. */
static void test_whole(void **state)
{
    struct disk *disk = make_disk();
    struct site site;
    struct maker maker;
    (void)state;
    assert_int_equal(site_open(&site, &(struct site_options){.disk = disk}), 0);
    maker_open(&maker, &site, 1);
    for (uint64_t number = 1; number <= 2; number++) {
        prepared(&maker, &site, number);
        assert_int_equal(maker.said.committed, number - 1);
        assert_int_equal(act_simple(&maker, MEMORY_SAVE_COMMIT, number), 0);
        assert_int_equal(maker.said.state, MEMORY_SAVE_IDLE);
        assert_int_equal(maker.said.committed, number);
        assert_int_equal(simple(&maker, MEMORY_SAVE_LEAVE, 0), 0);
    }
    maker_close(&maker);
    site_close(&site);
    assert_true(has_file(disk, 2, 0) && has_file(disk, 2, PERSIST_PART_TABLE));
    assert_false(has_file(disk, 1, 0) || has_file(disk, 1, PERSIST_PART_TABLE));
    disk_close(disk);
}

/* One at a time, in order, with numbers that ascend, and from the pool alone. */
static void test_refusals(void **state)
{
    struct disk *disk = make_disk();
    struct site site;
    struct maker maker, other;
    (void)state;
    assert_int_equal(site_open(&site, &(struct site_options){.disk = disk}), 0);
    maker_open(&maker, &site, 1);
    maker_open(&other, &site, 2);
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_BEGIN, 1), BANYAN_EINVAL); /* it was not taken */
    assert_int_equal(simple(&maker, MEMORY_SAVE_TAKE, 0), 0);
    assert_int_equal(simple(&other, MEMORY_SAVE_TAKE, 0), BANYAN_EBUSY);
    assert_int_equal(simple(&other, MEMORY_SAVE_LEAVE, 0), BANYAN_EBUSY);
    for (uint32_t action = MEMORY_SAVE_WRITE; action <= MEMORY_SAVE_DROP + 1; action++)
        assert_int_equal(act_simple(&maker, action, 1), BANYAN_EINVAL); /* nothing was begun */
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_BEGIN, 0), BANYAN_EINVAL);
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_BEGIN, 4), 0);
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_BEGIN, 5), BANYAN_EINVAL);
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_PREPARE, 4), BANYAN_EINVAL); /* without its table */
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_COMMIT, 4), BANYAN_EINVAL);
    assert_int_equal(part(&maker, &site, 3, 0, "one", check_of("one")), BANYAN_EINVAL);
    assert_int_equal(part(&other, &site, 4, 0, "one", check_of("one")), BANYAN_EBUSY);
    struct memory_save_request outside = {
        .action = MEMORY_SAVE_WRITE, .number = 4, .length = 64, .address = site_address(SITE_POOL - 8)};
    assert_int_equal(act(&maker, outside), BANYAN_EINVAL);
    assert_int_equal(maker.said.state, MEMORY_SAVE_IDLE); /* it is given up */
    maker_close(&other);
    maker_close(&maker);
    site_close(&site);
    disk_close(disk);
}

/* Bytes that are not those that were sent end it: nothing of it stays. */
static void test_other_bytes(void **state)
{
    struct disk *disk = make_disk();
    struct site site;
    struct maker maker;
    (void)state;
    assert_int_equal(site_open(&site, &(struct site_options){.disk = disk}), 0);
    maker_open(&maker, &site, 1);
    assert_int_equal(simple(&maker, MEMORY_SAVE_TAKE, 0), 0);
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_BEGIN, 1), 0);
    assert_int_equal(part(&maker, &site, 1, 0, "one", check_of("one")), 0);
    assert_int_equal(part(&maker, &site, 1, 1, "two", check_of("TWO")), BANYAN_EINVAL);
    assert_int_equal(maker.said.state, MEMORY_SAVE_IDLE);
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_PREPARE, 1), BANYAN_EINVAL);
    maker_close(&maker);
    site_close(&site);
    assert_false(has_file(disk, 1, 0) || has_file(disk, 1, 1));
    disk_close(disk);
}

/* When its maker is gone: what was not prepared goes, and what was prepared waits for the next one. */
static void test_gone(void **state)
{
    struct disk *disk = make_disk();
    struct site site;
    struct maker maker, next;
    (void)state;
    assert_int_equal(site_open(&site, &(struct site_options){.disk = disk}), 0);
    maker_open(&maker, &site, 1);
    assert_int_equal(simple(&maker, MEMORY_SAVE_TAKE, 0), 0);
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_BEGIN, 1), 0);
    assert_int_equal(part(&maker, &site, 1, 0, "one", check_of("one")), 0);
    maker_close(&maker);
    maker_open(&next, &site, 2);
    while (simple(&next, MEMORY_SAVE_TAKE, 0) == BANYAN_EBUSY)
        task_sleep(LOOK_NS);
    assert_int_equal(next.said.state, MEMORY_SAVE_IDLE);
    prepared(&next, &site, 2);
    maker_close(&next);
    maker_open(&next, &site, 3);
    while (simple(&next, MEMORY_SAVE_TAKE, 0) == BANYAN_EBUSY)
        task_sleep(LOOK_NS);
    assert_int_equal(next.said.state, MEMORY_SAVE_PREPARED);
    assert_int_equal(next.said.number, 2);
    assert_int_equal(act_simple(&next, MEMORY_SAVE_DROP, 2), 0);
    maker_close(&next);
    site_close(&site);
    assert_false(has_file(disk, 1, 0) || has_file(disk, 2, 0) || has_file(disk, 2, PERSIST_PART_TABLE));
    disk_close(disk);
}

/* What was prepared outlives the power, whatever else is lost, beside the one that counts. */
static void test_prepared_outlives(void **state)
{
    struct disk *disk = make_disk(), *cut;
    struct site site;
    struct maker maker;
    struct manifest manifest, next;
    struct error error = {0};
    (void)state;
    assert_int_equal(site_open(&site, &(struct site_options){.disk = disk}), 0);
    maker_open(&maker, &site, 1);
    prepared(&maker, &site, 1);
    assert_int_equal(act_simple(&maker, MEMORY_SAVE_COMMIT, 1), 0);
    prepared(&maker, &site, 2);
    maker_close(&maker);
    site_close(&site);
    for (unsigned i = 0; i < 20; i++) {
        cut = disk_simulated_cut(disk);
        assert_non_null(cut);
        assert_int_equal(
            manifest_open_both(cut, SITE_CLUSTER, SITE_NODE, SITE_NODE + 1, &manifest, &next, &error), 0);
        assert_int_equal(manifest.checkpoint, 1);
        assert_int_equal(next.checkpoint, 2);
        assert_int_equal(next.part_count, 2);
        assert_true(has_file(cut, 1, 0) && has_file(cut, 2, 0) && has_file(cut, 2, PERSIST_PART_TABLE));
        manifest_free(&next);
        manifest_free(&manifest);
        /* Nobody who knows of none keeps it. */
        assert_int_equal(manifest_open(cut, SITE_CLUSTER, SITE_NODE, SITE_NODE + 1, &manifest, &error), 0);
        assert_false(has_file(cut, 2, 0));
        manifest_free(&manifest);
        disk_close(cut);
    }
    disk_close(disk);
}

/* ---- another memory node joins ---- */

struct operator
{
    struct client client;
    struct wire_journals_reply said;
};

/* Returns the memory node's instance. */
static uint64_t operator_open(struct operator* operator, const struct site * site)
{
    client_connect(&operator->client, &site->tcp);
    const struct wire_hello hello = client_hello(&operator->client, WIRE_FORMATTER, NULL);
    assert_int_equal(client_say_hello(&operator->client, &hello, NULL), 0);
    return operator->client.welcome.instance;
}

#define TOKEN UINT64_C(7001)

static int journals_call(struct operator* operator, struct wire_journals_request request)
{
    size_t length = 0;
    request.kind = WIRE_JOURNALS;
    return client_call(&operator->client, &request, sizeof request, &operator->said, sizeof operator->said,
                       &length);
}

/* What came of telling it; or the refusal. */
static int tell_token(struct operator* operator, uint32_t nodes, uint64_t token, bool joined)
{
    const struct wire_journals_request note = {.nodes = nodes, .token = token, .joined = joined},
                                       look = {.nodes = nodes, .token = token, .joined = joined, .look = 1};
    int status = journals_call(operator, note);
    while (!status && operator->said.busy) {
        task_sleep(LOOK_NS);
        status = journals_call(operator, look);
    }
    return status || operator->said.stands ? status : operator->said.status;
}

static int tell(struct operator* operator, uint32_t nodes)
{
    return tell_token(operator, nodes, TOKEN, false);
}

static uint32_t nodes_on(struct disk *disk)
{
    struct manifest manifest;
    struct error error = {0};
    assert_int_equal(manifest_read(disk, &manifest, &error), 0);
    const uint32_t nodes = manifest.nodes;
    manifest_free(&manifest);
    return nodes;
}

/* The disk as a cut behind its last change would leave it, while the thread of the disk goes on: that thread
 * makes the cut. */
struct cutter {
    struct spinlock lock;
    struct disk *cut; /* owned; guarded by the lock. NULL: nothing has changed since the last one was taken */
};

static void cutter_watch(void *context, struct disk *disk)
{
    struct cutter *cutter = context;
    struct disk *cut = disk_simulated_cut(disk);
    assert_non_null(cut);
    spinlock_lock(&cutter->lock);
    struct disk *before = cutter->cut;
    cutter->cut = cut;
    spinlock_unlock(&cutter->lock);
    if (before)
        disk_close(before);
}

/* The caller's. */
static struct disk *cutter_take(struct cutter *cutter)
{
    spinlock_lock(&cutter->lock);
    struct disk *cut = cutter->cut;
    cutter->cut = NULL;
    spinlock_unlock(&cutter->lock);
    assert_non_null(cut);
    return cut;
}

/* When the disk has no thread any more. */
static void cutter_end(struct cutter *cutter, struct disk *disk)
{
    disk_simulated_watch(disk, NULL, NULL);
    if (cutter->cut)
        disk_close(cutter->cut);
}

/* A memory node with a disk, which a compute node has make a checkpoint, and an operator tells of others. */
struct told {
    struct disk *disk;
    struct cutter cutter;
    struct site site;
    struct maker maker;
    struct operator operator;
};

static void told_open(struct told *told)
{
    *told = (struct told){.disk = make_disk()};
    disk_simulated_watch(told->disk, cutter_watch, &told->cutter);
    assert_int_equal(site_open(&told->site, &(struct site_options){.disk = told->disk}), 0);
    maker_open(&told->maker, &told->site, 1);
    operator_open(&told->operator, & told->site);
}

/* The disk stays, with what the next life finds. */
static void told_end(struct told *told)
{
    client_close(&told->operator.client);
    maker_close(&told->maker);
    site_close(&told->site);
}

static void checkpoint_begin(struct told *told)
{
    assert_int_equal(simple(&told->maker, MEMORY_SAVE_TAKE, 0), 0);
    assert_int_equal(act_simple(&told->maker, MEMORY_SAVE_BEGIN, 1), 0);
    assert_int_equal(part(&told->maker, &told->site, 1, 0, "one", check_of("one")), 0);
}

static void checkpoint_commit(struct told *told)
{
    assert_int_equal(part(&told->maker, &told->site, 1, MEMORY_SAVE_TABLE, "table", check_of("table")), 0);
    assert_int_equal(act_simple(&told->maker, MEMORY_SAVE_PREPARE, 1), 0);
    assert_int_equal(act_simple(&told->maker, MEMORY_SAVE_COMMIT, 1), 0);
}

/* What it has said outlives the power, and a checkpoint that was begun before; it never says fewer. */
static void test_told(void **state)
{
    struct told told;
    (void)state;
    told_open(&told);
    checkpoint_begin(&told);
    assert_int_equal(tell(&told.operator, SITE_NODE + 3), 0);
    assert_int_equal(told.operator.said.nodes, SITE_NODE + 3);
    assert_int_equal(tell(&told.operator, SITE_NODE + 2), 0);
    assert_int_equal(told.operator.said.nodes, SITE_NODE + 3);
    const struct wire_journals_request wrong[] = {
        {.nodes = WIRE_CLUSTER_NODES_MAX + 1}, {.nodes = 1, .joined = 2}, {.nodes = 1, .look = 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(journals_call(&told.operator, wrong[i]), BANYAN_EINVAL);
    struct disk *cut = cutter_take(&told.cutter);
    assert_int_equal(nodes_on(cut), SITE_NODE + 3);
    disk_close(cut);
    checkpoint_commit(&told);
    told_end(&told);
    cutter_end(&told.cutter, told.disk);
    assert_int_equal(nodes_on(told.disk), SITE_NODE + 3);
    assert_int_equal(site_open(&told.site, &(struct site_options){.disk = told.disk}), 0);
    site_close(&told.site);
    disk_close(told.disk);
}

/* What the disk says of that number, as of its last change; and its own token. */
static struct manifest_join join_on(struct cutter *cutter, uint32_t node, uint64_t *token)
{
    struct manifest manifest;
    struct error error = {0};
    spinlock_lock(&cutter->lock); /* that thread waits so long */
    assert_non_null(cutter->cut);
    assert_int_equal(manifest_read(cutter->cut, &manifest, &error), 0);
    spinlock_unlock(&cutter->lock);
    const struct manifest_join join = manifest.joins[node];
    *token = manifest.token;
    manifest_free(&manifest);
    return join;
}

/* Whose number it is outlives the power, lives, and a checkpoint; so does the directory's own token. */
static void test_told_tokens(void **state)
{
    const uint32_t number = SITE_NODE + 1;
    struct told told;
    uint64_t token = 0, again = 0;
    (void)state;
    told_open(&told);
    checkpoint_begin(&told);
    assert_int_equal(tell_token(&told.operator, number + 1, TOKEN, false), 0);
    assert_int_equal(tell_token(&told.operator, number + 1, TOKEN + 1, false), 0);
    assert_int_equal(join_on(&told.cutter, number, &token).state, MANIFEST_JOIN_SEVERAL);
    assert_int_not_equal(token, 0);
    assert_int_equal(told.operator.said.token, token);
    assert_int_equal(tell_token(&told.operator, number + 1, TOKEN + 1, true), 0);
    assert_int_equal(tell_token(&told.operator, number + 1, TOKEN, false), BANYAN_EEXIST);
    assert_int_equal(tell_token(&told.operator, number + 1, TOKEN, true), BANYAN_EEXIST);
    assert_int_equal(join_on(&told.cutter, number, &again).token, TOKEN + 1);
    assert_int_equal(join_on(&told.cutter, number, &again).state, MANIFEST_JOIN_DONE);
    checkpoint_commit(&told);
    told_end(&told);
    assert_int_equal(site_open(&told.site, &(struct site_options){.disk = told.disk}), 0);
    assert_int_equal(join_on(&told.cutter, number, &again).state, MANIFEST_JOIN_DONE);
    assert_int_equal(again, token);
    operator_open(&told.operator, & told.site);
    assert_int_equal(tell_token(&told.operator, number + 1, TOKEN, false), BANYAN_EEXIST);
    client_close(&told.operator.client);
    site_close(&told.site);
    cutter_end(&told.cutter, told.disk);
    disk_close(told.disk);
}

/* A cluster of one memory node with a disk, and another one that may join. */
struct pair {
    struct site sites[2];
    struct disk *disks[2];
    struct cutter cutters[2];
    struct fabric_remote_options options;
    struct wire_cluster_list list;
};

static void pair_open(struct pair *pair)
{
    struct error error = {0};
    *pair = (struct pair){.options = {.count = 1, .timeout_ms = 60000}};
    for (unsigned i = 0; i < 2; i++) {
        pair->disks[i] = disk_simulated_create(&(struct disk_simulated_options){.seed = 4 + i});
        assert_non_null(pair->disks[i]);
        disk_simulated_watch(pair->disks[i], cutter_watch, &pair->cutters[i]);
        assert_int_equal(
            site_open(&pair->sites[i],
                      &(struct site_options){.disk = pair->disks[i], .home = i == 0, .unformatted = true}),
            0);
    }
    pair->options.nodes = &pair->sites[0].tcp;
    assert_int_equal(fabric_remote_format(&pair->options, &error), 0);
    assert_int_equal(fabric_remote_list(&pair->options, &pair->list, &error), 0);
}

static void pair_close(struct pair *pair)
{
    for (unsigned i = 0; i < 2; i++) {
        site_close(&pair->sites[i]);
        cutter_end(&pair->cutters[i], pair->disks[i]);
        disk_close(pair->disks[i]);
    }
}

/* What the first one's directory has noted of the second one. */
static void expect_noted(struct pair *pair, uint32_t state)
{
    uint64_t token, ignored;
    (void)join_on(&pair->cutters[1], 0, &token);
    const struct manifest_join join = join_on(&pair->cutters[0], 1, &ignored);
    assert_int_equal(join.state, state);
    assert_int_equal(join.token, token);
}

static void test_joins(void **state)
{
    struct error error = {0};
    struct pair pair;
    (void)state;
    pair_open(&pair);
    if (fabric_remote_join(&pair.options, &pair.sites[1].tcp, &pair.list, &error))
        fail_msg("%s", error.text);
    expect_noted(&pair, MANIFEST_JOIN_DONE);
    pair_close(&pair);
}

/* As an operator's process does that ends behind the list: the second one is listed, and the first one's
 * directory says that it was to join. */
static void join_by_hand(struct pair *pair)
{
    static struct wire_cluster_change change;
    struct wire_cluster_node *entry = &change.list.nodes[1];
    const struct wire_format format = {.cluster_id = pair->list.cluster_id, .number = 1, .node_count = 2};
    char text[NET_TEXT_MAX];
    struct operator operator;
    uint64_t token;
    change = (struct wire_cluster_change){.kind = WIRE_CLUSTER_SET, .list = pair->list};
    change.list.count = 2;
    *entry = (struct wire_cluster_node){.state = WIRE_CLUSTER_MEMBER};
    entry->instance = operator_open(&operator, & pair->sites[1]);
    client_message(&operator.client, WIRE_FORMAT, 3, &format, sizeof format);
    assert_int_equal(client_take(&operator.client, text, sizeof text).status, 0);
    client_goodbye(&operator.client);
    (void)join_on(&pair->cutters[1], 0, &token);
    snprintf(entry->address, sizeof entry->address, "%s", net_address_format(&pair->sites[1].tcp, text));
    operator_open(&operator, & pair->sites[0]);
    assert_int_equal(tell_token(&operator, 2, token, false), 0);
    client_close(&operator.client);
    struct memory_call call = {.role = MEMORY_ROLE_FORMATTER,
                               .request = &change,
                               .length = offsetof(struct wire_cluster_change, list) + wire_cluster_bytes(2),
                               .reply = &pair->list,
                               .capacity = sizeof pair->list};
    assert_int_equal(memory_node_serve(pair->sites[0].node, &call), 0);
}

/* The same call again notes what is missing. */
static void test_join_is_ended(void **state)
{
    struct error error = {0};
    struct pair pair;
    (void)state;
    pair_open(&pair);
    join_by_hand(&pair);
    expect_noted(&pair, MANIFEST_JOIN_MEANT);
    assert_int_equal(fabric_remote_join(&pair.options, &pair.sites[1].tcp, &pair.list, &error),
                     BANYAN_EINVAL);
    if (!strstr(error.text, "it is memory node 1 of this cluster already"))
        fail_msg("%s", error.text);
    expect_noted(&pair, MANIFEST_JOIN_DONE);
    pair_close(&pair);
}

/* One that is prepared may count elsewhere, and follows the manifest of before: nothing is noted until it
 * counts, or is dropped. */
static void test_told_while_prepared(void **state)
{
    struct told told;
    struct manifest manifest, next;
    struct error error = {0};
    (void)state;
    told_open(&told);
    prepared(&told.maker, &told.site, 1);
    assert_int_equal(tell(&told.operator, SITE_NODE + 2), BANYAN_EBUSY);
    assert_int_equal(told.operator.said.nodes, SITE_NODE + 1);
    struct disk *cut = cutter_take(&told.cutter);
    assert_int_equal(
        manifest_open_both(cut, SITE_CLUSTER, SITE_NODE, SITE_NODE + 1, &manifest, &next, &error), 0);
    assert_int_equal(next.checkpoint, 1);
    manifest_free(&next);
    manifest_free(&manifest);
    disk_close(cut);
    assert_int_equal(act_simple(&told.maker, MEMORY_SAVE_COMMIT, 1), 0);
    assert_int_equal(tell(&told.operator, SITE_NODE + 2), 0);
    assert_int_equal(told.operator.said.nodes, SITE_NODE + 2);
    told_end(&told);
    cutter_end(&told.cutter, told.disk);
    disk_close(told.disk);
}

/* Without a disk there is nobody to ask. */
static void test_no_disk(void **state)
{
    struct site site;
    struct maker maker;
    (void)state;
    assert_int_equal(site_open(&site, &(struct site_options){.threads = 1}), 0);
    maker_open(&maker, &site, 1);
    assert_int_equal(simple(&maker, MEMORY_SAVE_TAKE, 0), BANYAN_ENOTSUP);
    maker_close(&maker);
    site_close(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_other_bytes),
                                       cmocka_unit_test(test_gone),
                                       cmocka_unit_test(test_prepared_outlives),
                                       cmocka_unit_test(test_told),
                                       cmocka_unit_test(test_told_tokens),
                                       cmocka_unit_test(test_joins),
                                       cmocka_unit_test(test_join_is_ended),
                                       cmocka_unit_test(test_told_while_prepared),
                                       cmocka_unit_test(test_no_disk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
