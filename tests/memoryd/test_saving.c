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
                                       cmocka_unit_test(test_no_disk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
