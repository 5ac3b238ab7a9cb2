/* test_disk.c - a memory node with a disk: PERSIST is answered when the disk has it and not before, blocks
 * nobody meanwhile, and says so when the disk fails or is full; whose directory it is; and what is in the
 * journal when the daemon has ended. The disk is simulated: what it does is up to the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "client.h"
#include "disk/disk_simulated.h"
#include "disk/journal.h"
#include "disk/manifest.h"
#include "format/log.h"
#include "memory/memory.h"
#include "memoryd/disk.h"

#define INSTANCE UINT64_C(101)
#define NONCE    UINT64_C(0x1234567)
#define LOOK_NS  UINT64_C(100000)

/* Holds the disk's thread behind a call that changes something. */
struct gate {
    bool closed, held, pass; /* atomic; pass: one call may go on */
};

static void gate_watch(void *context, struct disk *disk)
{
    struct gate *gate = context;
    (void)disk;
    while (atomic_load_acquire(&gate->closed)) {
        if (atomic_load_acquire(&gate->pass)) {
            atomic_store_release(&gate->held, false);
            atomic_store_release(&gate->pass, false);
            return;
        }
        atomic_store_release(&gate->held, true);
        task_sleep(LOOK_NS);
    }
}

struct owner {
    struct client control, data;
    gaddr segment;
    uint32_t bytes, at; /* where the next frame goes */
    uint32_t committed; /* what the next frame says that is complete */
    uint64_t sequence;
};

static struct disk *make_disk(uint64_t capacity)
{
    struct disk *disk =
        disk_simulated_create(&(struct disk_simulated_options){.seed = 7, .capacity = capacity});
    assert_non_null(disk);
    return disk;
}

static void list_run(struct client *client, struct script *script)
{
    uint8_t body[256];
    script_send(script, client, 7);
    assert_int_equal(client_take(client, body, sizeof body).kind, WIRE_REPLY);
}

/* Connects, opens a log and begins a segment. */
static void owner_open(struct owner *owner, struct site *site)
{
    *owner = (struct owner){.at = FORMAT_LOG_BLOCK};
    client_control(&owner->control, &site->tcp, INSTANCE, 0);
    client_data(&owner->data, &site->tcp, &owner->control);
    struct memory_log_request request = {.kind = MEMORY_LOG_OPEN, .instance = INSTANCE};
    struct memory_log_reply reply;
    size_t length;
    assert_int_equal(client_call(&owner->data, &request, sizeof request, &reply, sizeof reply, &length), 0);
    request.kind = MEMORY_LOG_TAKE;
    request.bytes = MEMORY_LOG_SEGMENT_LEAST;
    assert_int_equal(client_call(&owner->data, &request, sizeof request, &reply, sizeof reply, &length), 0);
    owner->segment = reply.segment.address;
    owner->bytes = (uint32_t)reply.segment.bytes;
    assert_true(owner->bytes > 0);

    const struct format_log_segment use = {
        .owner = {.instance = INSTANCE, .compute_id = owner->control.welcome.compute_id},
        .number = 1,
        .size = owner->bytes,
        .nonce = NONCE};
    uint8_t header[FORMAT_LOG_BLOCK];
    struct script script = {0};
    format_log_segment_encode(&use, header);
    script_write(&script, owner->segment, header, sizeof header);
    list_run(&owner->data, &script);
}

static void owner_close(struct owner *owner)
{
    client_close(&owner->data);
    client_close(&owner->control);
}

/* Logs that the key has this value. */
static void owner_log(struct owner *owner, const char *key, uint8_t value)
{
    uint8_t bytes[256], slot[2] = {0, value};
    struct format_log_frame frame;
    struct script script = {0};
    format_log_frame_begin(&frame, bytes, sizeof bytes);
    const struct format_log_entry entry = {.kind = FORMAT_LOG_PUT,
                                           .index = 1,
                                           .epoch = 1,
                                           .sequence = ++owner->sequence,
                                           .key = {(const uint8_t *)key, (uint8_t)strlen(key)},
                                           .value = slot,
                                           .value_length = sizeof slot};
    assert_true(format_log_frame_add(&frame, &entry));
    uint32_t length = format_log_frame_seal(&frame, NONCE, owner->at, owner->committed);
    script_write(&script, owner->segment + owner->at, bytes, length);
    owner->at += length;
    list_run(&owner->data, &script);
}

static void persist_ask(struct client *client, uint64_t number)
{
    const struct wire_persist_request request = {.kind = WIRE_PERSIST};
    client_message(client, WIRE_CALL, WIRE_DEFERRED | number, &request, sizeof request);
}

/* Its answer is the next message. */
static int persist_answer(struct client *client, uint64_t number)
{
    uint8_t body[16];
    struct wire_header head = client_take(client, body, sizeof body);
    assert_int_equal(head.kind, WIRE_RESULT);
    assert_true(head.id == (WIRE_DEFERRED | number));
    assert_int_equal(head.length, 0);
    return head.status;
}

static int persist(struct client *client, uint64_t number)
{
    persist_ask(client, number);
    return persist_answer(client, number);
}

/* ---- what a journal has ---- */

struct found {
    unsigned frames;
};

static int count_record(void *context, const struct journal_record *record, struct error *error)
{
    struct found *found = context;
    (void)error;
    found->frames += record->kind == 2 || record->kind == 6; /* PERSIST_FRAME, PERSIST_FRAME_TELLING */
    return 0;
}

/* After a cut of the power that leaves nothing but what was synced. */
static unsigned frames_after_cut(struct disk *disk)
{
    struct disk *cut = disk_simulated_state(disk, 0);
    struct found found = {0};
    struct journal_reader reader = {.visit = count_record, .context = &found};
    const struct journal_options options = {.cluster = SITE_CLUSTER, .node = SITE_NODE};
    struct journal *journal = NULL;
    struct manifest manifest;
    struct error error = {0};
    assert_non_null(cut);
    if (manifest_open(cut, SITE_CLUSTER, SITE_NODE, SITE_NODE + 1, &manifest, &error) ||
        journal_open(&journal, cut, &options, &reader, &error))
        fail_msg("%s", error.text);
    manifest_free(&manifest);
    journal_close(journal);
    disk_close(cut);
    return found.frames;
}

/* ---- tests ---- */

static void test_deferred(int engine)
{
    struct gate gate = {0};
    struct disk *disk = make_disk(0);
    const struct site_options options = {.engine = engine, .disk = disk, .always = true, .threads = 1};
    struct site site;
    struct owner owner;
    struct client other;
    disk_simulated_watch(disk, gate_watch, &gate);
    if (site_open(&site, &options)) {
        disk_close(disk);
        return; /* no io_uring here */
    }
    owner_open(&owner, &site);
    assert_int_equal(owner.control.welcome.durability, FABRIC_KEPT_ON_DISK_ALWAYS);
    client_monitor(&other, &site.tcp);

    atomic_store_release(&gate.closed, true);
    owner_log(&owner, "a", 1);
    persist_ask(&owner.data, 1);
    while (!atomic_load_acquire(&gate.held)) /* the pass is at the disk */
        task_sleep(LOOK_NS);
    owner_log(&owner, "b", 1);
    persist_ask(&owner.data, 2);        /* behind its beginning: the next one settles it */
    for (unsigned i = 0; i < 50; i++) { /* the same connection, and another one, go on */
        struct script script = {0};
        struct memory_status_request ask = {.kind = MEMORY_STATUS};
        struct memory_status_reply reply;
        size_t length;
        script_read(&script, owner.segment, 8);
        list_run(&owner.data, &script); /* a RESULT here fails */
        assert_int_equal(client_call(&other, &ask, sizeof ask, &reply, sizeof reply, &length), 0);
        assert_int_equal(reply.disk_persists_total, 2);
        assert_int_equal(reply.disk_syncs_total, 0);
    }
    /* The first pass comes to its end; the second one has something to write, and is held there. */
    while (!atomic_load_acquire(&gate.held) || site_status(&site).disk_syncs_total == 0) {
        if (atomic_load_acquire(&gate.held) && site_status(&site).disk_syncs_total == 0)
            atomic_store_release(&gate.pass, true);
        while (atomic_load_acquire(&gate.pass))
            task_sleep(LOOK_NS);
    }
    assert_int_equal(persist_answer(&owner.data, 1), 0);
    for (unsigned i = 0; i < 50; i++) {
        struct script script = {0};
        script_read(&script, owner.segment, 8);
        list_run(&owner.data, &script); /* a RESULT here fails */
    }
    atomic_store_release(&gate.closed, false);
    assert_int_equal(persist_answer(&owner.data, 2), 0);
    assert_int_equal(site_status(&site).disk_entries_total, 2);
    client_close(&other);
    owner_close(&owner);
    site_close(&site);
    assert_int_equal(frames_after_cut(disk), 2);
    disk_close(disk);
}

static void test_deferred_epoll(void **state)
{
    (void)state;
    test_deferred(MEMORY_ENGINE_EPOLL);
}

static void test_deferred_uring(void **state)
{
    (void)state;
    test_deferred(MEMORY_ENGINE_IO_URING);
}

/* A list whose message has come in part has its reply begun: the answer does not come into the middle. */
static void test_answer_beside_list(void **state)
{
    struct gate gate = {0};
    struct disk *disk = make_disk(0);
    const struct site_options options = {.disk = disk, .threads = 1};
    struct site site;
    struct owner owner;
    uint8_t body[64];
    (void)state;
    disk_simulated_watch(disk, gate_watch, &gate);
    assert_int_equal(site_open(&site, &options), 0);
    owner_open(&owner, &site);
    atomic_store_release(&gate.closed, true);
    owner_log(&owner, "a", 1);
    persist_ask(&owner.data, 1);
    while (!atomic_load_acquire(&gate.held))
        task_sleep(LOOK_NS);
    struct script script = {0};
    const uint64_t word = 12345, where = gaddr_offset(owner.segment) + 32768;
    script_read(&script, owner.segment, 8);
    script_write(&script, owner.segment + 32768, &word, sizeof word);
    size_t part = script.length;
    script_read(&script, owner.segment, 8);
    const struct wire_header head = {
        .length = (uint32_t)script.length, .kind = WIRE_LIST, .count = script.count, .id = 9};
    client_send(&owner.data, &head, sizeof head);
    client_send(&owner.data, script.bytes, part);
    while (site_word(&site, where) != word)
        task_sleep(LOOK_NS);
    atomic_store_release(&gate.closed, false);
    while (site_status(&site).disk_syncs_total == 0)
        task_sleep(LOOK_NS);
    client_send(&owner.data, script.bytes + part, script.length - part);
    free(script.bytes);
    struct wire_header reply = client_take(&owner.data, body, sizeof body);
    assert_int_equal(reply.kind, WIRE_REPLY);
    assert_int_equal(reply.length, 16);
    assert_int_equal(persist_answer(&owner.data, 1), 0);
    owner_close(&owner);
    site_close(&site);
    disk_close(disk);
}

/* What failed is never said to be safe, and everybody who asks later is refused. */
static void test_failed_sync(void **state)
{
    struct disk *disk = make_disk(0);
    const struct site_options options = {.disk = disk, .always = true};
    struct site site;
    struct owner owner;
    (void)state;
    /* The manifest's file and the journal's header are synced when it begins. */
    disk_simulated_fail(disk, DISK_FAULT_SYNC, 2, 1);
    assert_int_equal(site_open(&site, &options), 0);
    owner_open(&owner, &site);
    owner_log(&owner, "a", 1);
    assert_int_not_equal(persist(&owner.data, 1), 0);
    owner_log(&owner, "b", 1);
    assert_int_not_equal(persist(&owner.data, 2), 0); /* though the next sync would say that it is well */
    assert_int_equal(site_status(&site).disk_failed, 1);
    assert_int_equal(site_status(&site).disk_syncs_total, 0);
    owner_close(&owner);
    site_close(&site);
    disk_close(disk);
}

/* A process that does not know whether a frame has come writes another one to its place (log.md). Both are
 * copied, each once, also when a later frame says that all before it is complete. */
static void test_place_again(void **state)
{
    (void)state;
    struct disk *disk = make_disk(0);
    const struct site_options options = {.disk = disk, .always = true, .threads = 1};
    struct site site;
    struct owner owner;
    assert_int_equal(site_open(&site, &options), 0);
    owner_open(&owner, &site);
    const uint32_t place = owner.at;
    owner_log(&owner, "a", 1);
    assert_int_equal(persist(&owner.data, 1), 0);
    owner.at = place;
    owner_log(&owner, "b", 1);
    assert_int_equal(persist(&owner.data, 2), 0);
    assert_int_equal(site_status(&site).disk_entries_total, 2);
    owner.committed = owner.at;
    owner_log(&owner, "c", 1);
    for (uint64_t number = 3; number < 6; number++)
        assert_int_equal(persist(&owner.data, number), 0);
    assert_int_equal(site_status(&site).disk_entries_total, 3);
    owner_close(&owner);
    site_close(&site);
    assert_int_equal(frames_after_cut(disk), 3);
    disk_close(disk);
}

static void test_full(void **state)
{
    struct disk *disk = make_disk(4096);
    const struct site_options options = {.disk = disk};
    struct site site;
    struct owner owner;
    int status = 0;
    (void)state;
    assert_int_equal(site_open(&site, &options), 0);
    owner_open(&owner, &site);
    assert_int_equal(owner.control.welcome.durability, FABRIC_KEPT_ON_DISK);
    for (uint64_t i = 1; !status && i < 100; i++) {
        owner_log(&owner, "a", 1);
        status = persist(&owner.data, i);
    }
    assert_int_equal(status, BANYAN_ENOSPC);
    assert_int_equal(persist(&owner.data, 1000), BANYAN_ENOSPC); /* it was tried again */
    assert_int_equal(site_status(&site).disk_full, 1);
    assert_int_equal(site_status(&site).disk_failed, 0);
    owner_close(&owner);
    site_close(&site);
    disk_close(disk);
}

static void test_many_waits(void **state)
{
    enum { MOST = 64 };
    struct gate gate = {0};
    struct disk *disk = make_disk(0);
    const struct site_options options = {.disk = disk};
    struct site site;
    struct owner owner;
    bool answered[MOST + 2] = {false};
    (void)state;
    disk_simulated_watch(disk, gate_watch, &gate);
    assert_int_equal(site_open(&site, &options), 0);
    owner_open(&owner, &site);
    atomic_store_release(&gate.closed, true);
    owner_log(&owner, "a", 1);
    for (uint64_t i = 1; i <= MOST + 1; i++)
        persist_ask(&owner.data, i);
    assert_int_equal(persist_answer(&owner.data, MOST + 1), BANYAN_EBUSY);
    atomic_store_release(&gate.closed, false);
    for (unsigned i = 0; i < MOST; i++) {
        uint8_t body[16];
        struct wire_header head = client_take(&owner.data, body, sizeof body);
        uint64_t id = head.id & ~WIRE_DEFERRED;
        assert_int_equal(head.kind, WIRE_RESULT);
        assert_int_equal(head.status, 0);
        assert_true(id <= MOST && !answered[id]);
        answered[id] = true;
    }
    /* One that closes while it waits takes nobody along. */
    atomic_store_release(&gate.closed, true);
    atomic_store_release(&gate.held, false);
    owner_log(&owner, "b", 1);
    persist_ask(&owner.data, 1);
    while (!atomic_load_acquire(&gate.held))
        task_sleep(LOOK_NS);
    owner_close(&owner);
    site_wait_nodes(&site, 0);
    atomic_store_release(&gate.closed, false);
    site_close(&site);
    assert_int_equal(frames_after_cut(disk), 2);
    disk_close(disk);
}

/* The last pass, when the daemon ends: nobody has asked. */
static void test_end(void **state)
{
    struct disk *disk = make_disk(0);
    const struct site_options options = {.disk = disk};
    struct site site;
    struct owner owner;
    (void)state;
    assert_int_equal(site_open(&site, &options), 0);
    owner_open(&owner, &site);
    while (site_status(&site).disk_syncs_total == 0) /* the next pass is a second away */
        task_sleep(LOOK_NS);
    owner_log(&owner, "a", 1);
    owner_close(&owner);
    site_close(&site);
    assert_int_equal(frames_after_cut(disk), 1);
    disk_close(disk);
}

static void test_no_disk(void **state)
{
    struct site_options options = {0};
    struct site site;
    struct owner owner;
    (void)state;
    assert_int_equal(site_open(&site, &options), 0);
    owner_open(&owner, &site);
    assert_int_equal(owner.control.welcome.durability, FABRIC_KEPT_IN_MEMORY);
    assert_int_equal(persist(&owner.data, 1), BANYAN_ENOTSUP);
    owner_close(&owner);
    site_close(&site);
}

/* ---- whose directory it is ---- */

static int begin(struct memory_node *node, struct disk *disk, struct memoryd_disk **made, struct error *error)
{
    const struct persist_disk_options options = {.disk = disk};
    *error = (struct error){0};
    return memoryd_disk_create(made, node, &options, error);
}

static void test_identity(void **state)
{
    const struct memory_options memory = {.pool_bytes = SITE_POOL, .unformatted = true};
    struct disk *disk = make_disk(0);
    struct memory_node *node, *other;
    struct memoryd_disk *made;
    struct error error = {0};
    (void)state;
    assert_int_equal(memory_node_create(&node, &memory, &error), 0);
    assert_int_equal(memory_node_create(&other, &memory, &error), 0);
    assert_int_equal(begin(node, disk, &made, &error), 0); /* of no cluster, as the directory is */
    assert_int_equal(memoryd_disk_may_format(made, &error), 0);
    assert_int_equal(memory_node_format(node, 5, 1, 2, &error), 0);
    assert_int_equal(memoryd_disk_format(made, &error), 0);
    assert_int_equal(memoryd_disk_may_format(made, &error), BANYAN_EEXIST);
    assert_non_null(strstr(error.text, disk_path(disk)));
    memoryd_disk_destroy(made);
    assert_int_equal(begin(node, disk, &made, &error), 0);
    memoryd_disk_destroy(made);

    assert_int_equal(begin(other, disk, &made, &error), BANYAN_EINVAL); /* the pool was lost */
    assert_non_null(strstr(error.text, "recover"));
    assert_non_null(strstr(error.text, disk_path(disk)));
    assert_int_equal(memory_node_format(other, 6, 1, 2, &error), 0);
    assert_int_equal(begin(other, disk, &made, &error), BANYAN_EINVAL); /* another cluster */
    assert_non_null(strstr(error.text, disk_path(disk)));
    assert_int_equal(memory_node_format(other, 5, 0, 2, &error), 0);
    assert_int_equal(begin(other, disk, &made, &error), BANYAN_EINVAL); /* another memory node */
    assert_non_null(strstr(error.text, disk_path(disk)));
    disk_close(disk);

    /* A pool with data that no journal knows. */
    disk = make_disk(0);
    struct memory_allocate_request request = {
        .kind = MEMORY_ALLOCATE, .block_bytes = 64, .want = 1, .purpose = MEMORY_FOR_DATA};
    struct memory_allocate_reply reply;
    size_t length;
    const struct fabric_target *target = memory_node_target(node);
    assert_int_equal(target->call(target->owner, 1, &request, sizeof request, &reply, sizeof reply, &length),
                     0);
    assert_int_equal(begin(node, disk, &made, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "dump"));
    disk_close(disk);
    memory_node_destroy(node);
    memory_node_destroy(other);
}

int main(void)
{
    log_set_level((enum log_level)(LOG_ERROR + 1)); /* failing disks are loud */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deferred_epoll),
        cmocka_unit_test(test_deferred_uring),
        cmocka_unit_test(test_answer_beside_list),
        cmocka_unit_test(test_failed_sync),
        cmocka_unit_test(test_place_again),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_many_waits),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_no_disk),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
