/*
 * test_joining.c - what a memory node's disk does where others join its cluster (persist/saving.h): which
 * home node may begin a journal, what a failed change of the manifest leaves in doubt, checkpoints that are
 * made meanwhile; and where a checkpoint's maker has gone, when another one may take its place. One thread:
 * rounds are made by hand, on a simulated disk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "disk/disk_ops.h"
#include "disk/disk_simulated.h"
#include "disk/manifest.h"
#include "memory/cluster.h"
#include "memory/memory.h"
#include "memory/request.h"
#include "memory/service.h"
#include "persist/disk.h"

#define CLUSTER UINT64_C(7)
#define LOCKS   UINT64_C(1024)
#define TOKEN   UINT64_C(9)
#define MAKER   1u
#define ANOTHER 2u /* maker */

struct rig {
    struct memory_node *node;
    struct disk *disk;
    struct persist_disk *kept; /* NULL: it was not begun */
    struct memory_save_reply said;
    struct wire_journals_reply noted;
};

static int rig_begin(struct rig *rig, struct error *error)
{
    const struct persist_disk_options options = {.disk = rig->disk, .seed = 5};
    int status = persist_disk_create(&rig->kept, rig->node, &options, error);
    if (status)
        return status;
    memory_node_register(rig->node, &persist_disk_service, MEMORY_PERSIST, 2, rig->kept);
    memory_node_register(rig->node, &persist_disk_journals, MEMORY_JOURNALS, 1, rig->kept);
    return 0;
}

static void rig_end(struct rig *rig)
{
    if (!rig->kept)
        return;
    memory_node_unregister(rig->node, &persist_disk_journals, rig->kept);
    memory_node_unregister(rig->node, &persist_disk_service, rig->kept);
    persist_disk_destroy(rig->kept);
    rig->kept = NULL;
}

/* The home node of a cluster of two. */
static void rig_make(struct rig *rig)
{
    const struct memory_options options = {.pool_bytes = MEMORY_FIRST_CHUNK(LOCKS) + (64u << 10),
                                           .chunk_bytes = 64u << 10,
                                           .lock_bytes = LOCKS,
                                           .unformatted = true};
    struct error error = {0};
    *rig = (struct rig){.disk = disk_simulated_create(&(struct disk_simulated_options){.seed = 3})};
    assert_non_null(rig->disk);
    assert_int_equal(memory_node_create(&rig->node, &options, &error), 0);
    assert_int_equal(memory_node_format(rig->node, CLUSTER, 0, 2, &error), 0);
}

static void rig_free(struct rig *rig)
{
    rig_end(rig);
    disk_close(rig->disk);
    memory_node_destroy(rig->node);
}

static int serve(struct rig *rig, enum memory_role role, const void *request, size_t length, void *reply,
                 size_t capacity)
{
    struct memory_call call = {.role = role,
                               .compute_id = role == MEMORY_ROLE_DATA ? MAKER : 0,
                               .request = request,
                               .length = length,
                               .reply = reply,
                               .capacity = capacity};
    return memory_node_serve(rig->node, &call);
}

/* What came of an action of a checkpoint's maker, behind a round. */
static int act(struct rig *rig, struct memory_save_request request)
{
    request.kind = MEMORY_SAVE;
    int status = serve(rig, MEMORY_ROLE_DATA, &request, sizeof request, &rig->said, sizeof rig->said);
    if (status || !rig->said.busy)
        return status;
    persist_disk_round(rig->kept);
    request.action = MEMORY_SAVE_LOOK;
    assert_int_equal(serve(rig, MEMORY_ROLE_DATA, &request, sizeof request, &rig->said, sizeof rig->said), 0);
    assert_false(rig->said.busy);
    return rig->said.status;
}

static void part(struct rig *rig, uint64_t number, uint32_t which)
{
    static const uint8_t zeros[8];
    assert_int_equal(
        act(rig, (struct memory_save_request){.action = MEMORY_SAVE_WRITE,
                                              .number = number,
                                              .part = which,
                                              .length = sizeof zeros,
                                              .address = gaddr_make(0, MEMORY_FIRST_CHUNK(LOCKS))}),
        0);
    assert_int_equal(act(rig, (struct memory_save_request){.action = MEMORY_SAVE_END,
                                                           .number = number,
                                                           .part = which,
                                                           .bytes = sizeof zeros,
                                                           .check = crc32c(0, zeros, sizeof zeros)}),
                     0);
}

static void written(struct rig *rig, uint64_t number)
{
    assert_int_equal(act(rig, (struct memory_save_request){.action = MEMORY_SAVE_TAKE}), 0);
    assert_int_equal(act(rig, (struct memory_save_request){.action = MEMORY_SAVE_BEGIN, .number = number}),
                     0);
    part(rig, number, 0);
    part(rig, number, MEMORY_SAVE_TABLE);
}

static int step(struct rig *rig, uint32_t action, uint64_t number)
{
    return act(rig, (struct memory_save_request){.action = action, .number = number});
}

/* What came of an operator's note, behind a round. */
static int note(struct rig *rig, uint32_t nodes, bool joined)
{
    struct wire_journals_request request = {
        .kind = WIRE_JOURNALS, .nodes = nodes, .token = TOKEN, .joined = joined};
    int status = serve(rig, MEMORY_ROLE_FORMATTER, &request, sizeof request, &rig->noted, sizeof rig->noted);
    if (status || !rig->noted.busy)
        return status;
    persist_disk_round(rig->kept);
    request.look = 1;
    assert_int_equal(
        serve(rig, MEMORY_ROLE_FORMATTER, &request, sizeof request, &rig->noted, sizeof rig->noted), 0);
    assert_false(rig->noted.busy);
    return rig->noted.stands ? 0 : rig->noted.status;
}

/* The list of two, then of three. */
static void list_set(struct rig *rig, uint32_t generation, uint32_t count)
{
    struct wire_cluster_change change = {
        .kind = WIRE_CLUSTER_SET, .list = {.cluster_id = CLUSTER, .generation = generation, .count = count}};
    struct wire_cluster_list list;
    for (uint32_t i = 0; i < count; i++)
        change.list.nodes[i] = (struct wire_cluster_node){
            .instance = 1 + i, .state = WIRE_CLUSTER_MEMBER, .address = "tcp://10.0.0.1:7100"};
    for (uint32_t i = 0; i < count; i++)
        change.list.nodes[i].address[13] = (char)('1' + i);
    assert_int_equal(serve(rig, MEMORY_ROLE_FORMATTER, &change,
                           offsetof(struct wire_cluster_change, list) + wire_cluster_bytes(count), &list,
                           sizeof list),
                     0);
}

/* Its manifest says how many memory nodes there are, and would not know of one that has joined. */
static void the_home_node_begins_no_journal_late(void **state)
{
    struct error error = {0};
    struct rig rig;
    (void)state;
    for (uint32_t joined = 0; joined < 2; joined++) {
        rig_make(&rig);
        list_set(&rig, 0, 2);
        if (joined)
            list_set(&rig, 1, 3);
        assert_int_equal(rig_begin(&rig, &error), joined ? BANYAN_EINVAL : 0);
        if (joined)
            assert_non_null(strstr(error.text, "memory nodes have joined or left"));
        rig_free(&rig);
    }
}

/* A note that failed may be on the disk: a checkpoint that is prepared over what was before would be taken
 * for an old one. The next note that is whole ends the doubt. */
static void a_failed_note_leaves_doubt(void **state)
{
    struct manifest manifest, prepared;
    struct error error = {0};
    struct rig rig;
    (void)state;
    rig_make(&rig);
    assert_int_equal(rig_begin(&rig, &error), 0);
    for (uint64_t number = 1; number <= 2; number++) {
        written(&rig, number);
        if (number == 1) {
            disk_simulated_fail(rig.disk, DISK_FAULT_SYNC, 0, 1);
            assert_int_not_equal(note(&rig, 3, false), 0);
            assert_int_equal(step(&rig, MEMORY_SAVE_PREPARE, number), BANYAN_EUNKNOWN);
            assert_int_equal(rig.said.state, MEMORY_SAVE_IDLE);
        } else {
            assert_int_equal(note(&rig, 3, false), 0);
            assert_int_equal(step(&rig, MEMORY_SAVE_PREPARE, number), 0);
        }
        assert_int_equal(step(&rig, MEMORY_SAVE_LEAVE, 0), 0);
    }
    struct disk *cut = disk_simulated_cut(rig.disk);
    assert_int_equal(manifest_open_both(cut, CLUSTER, 0, 2, &manifest, &prepared, &error), 0);
    assert_int_equal(manifest.nodes, 3);
    assert_int_equal(prepared.nodes, 3);
    assert_int_equal(prepared.checkpoint, 2);
    manifest_free(&prepared);
    manifest_free(&manifest);
    disk_close(cut);
    rig_free(&rig);
}

/* Notes that come between any two steps of a checkpoint: both are there in the end, and in a next life. */
static void one_joins_during_a_checkpoint(void **state)
{
    struct manifest manifest;
    struct error error = {0};
    struct rig rig;
    (void)state;
    for (unsigned when = 0; when < 3; when++) {
        rig_make(&rig);
        assert_int_equal(rig_begin(&rig, &error), 0);
        assert_int_equal(step(&rig, MEMORY_SAVE_TAKE, 0), 0);
        assert_int_equal(step(&rig, MEMORY_SAVE_BEGIN, 1), 0);
        if (when == 0)
            assert_int_equal(note(&rig, 3, false), 0);
        part(&rig, 1, 0);
        part(&rig, 1, MEMORY_SAVE_TABLE);
        if (when == 1)
            assert_int_equal(note(&rig, 3, false), 0);
        assert_int_equal(step(&rig, MEMORY_SAVE_PREPARE, 1), 0);
        if (when < 2) /* it waits for what was prepared */
            assert_int_equal(note(&rig, 3, true), BANYAN_EBUSY);
        assert_int_equal(step(&rig, MEMORY_SAVE_COMMIT, 1), 0);
        assert_int_equal(note(&rig, 3, true), 0);
        rig_end(&rig);
        struct disk *cut = disk_simulated_cut(rig.disk);
        assert_int_equal(manifest_open(cut, CLUSTER, 0, 3, &manifest, &error), 0);
        assert_int_equal(manifest.checkpoint, 1);
        assert_int_equal(manifest.joins[2].state, MANIFEST_JOIN_DONE);
        manifest_free(&manifest);
        disk_close(cut);
        assert_int_equal(rig_begin(&rig, &error), 0);
        assert_int_equal(note(&rig, 3, true), 0);
        rig_free(&rig);
    }
}

/* ---- a maker that has gone ---- */

static struct rig *watched; /* of the test below: a disk's calls have no context of their own */
static const struct disk_ops *plain;
static unsigned removals;

static int another_takes(struct rig *rig, struct memory_save_reply *said)
{
    struct memory_save_request request = {.kind = MEMORY_SAVE, .action = MEMORY_SAVE_TAKE};
    struct memory_call call = {.role = MEMORY_ROLE_DATA,
                               .compute_id = ANOTHER,
                               .request = &request,
                               .length = sizeof request,
                               .reply = said,
                               .capacity = sizeof *said};
    return memory_node_serve(rig->node, &call);
}

/* A file of what is dropped goes: another maker asks just then. */
static int remove_watched(struct disk *disk, const char *name, struct error *error)
{
    struct memory_save_reply said;
    removals++;
    assert_int_equal(another_takes(watched, &said), BANYAN_EBUSY);
    return plain->remove(disk, name, error);
}

/* Until what the gone one began is dropped, another one is not let in: it would be told of a state that is no
 * more, and could neither go on with it nor begin. */
static void another_maker_waits_for_the_drop(void **state)
{
    struct memory_save_reply said;
    struct error error = {0};
    struct rig rig;
    (void)state;
    rig_make(&rig);
    assert_int_equal(rig_begin(&rig, &error), 0);
    assert_int_equal(step(&rig, MEMORY_SAVE_TAKE, 0), 0);
    assert_int_equal(step(&rig, MEMORY_SAVE_BEGIN, 1), 0);
    part(&rig, 1, 0);
    struct disk_ops ops = *rig.disk->ops;
    plain = rig.disk->ops;
    ops.remove = remove_watched;
    watched = &rig;
    rig.disk->ops = &ops;
    assert_int_equal(step(&rig, MEMORY_SAVE_LEAVE, 0), 0);
    rig.disk->ops = plain;
    assert_true(removals > 0);
    assert_int_equal(another_takes(&rig, &said), 0);
    assert_int_equal(said.state, MEMORY_SAVE_IDLE);
    rig_free(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_maker_waits_for_the_drop),
                                       cmocka_unit_test(the_home_node_begins_no_journal_late),
                                       cmocka_unit_test(a_failed_note_leaves_doubt),
                                       cmocka_unit_test(one_joins_during_a_checkpoint)};
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
