/*
 * test_log_failures.c - failure loops over the owner's log (tests/tree/rig.h): each step of a logged write,
 * of merging, of the end of segments and of inheriting fails once, in every way. What was acknowledged is
 * there, what failed without doubt is not, the log goes on when the connection is back, gives all its
 * segments back, and nothing of the pool is in two hands. Where the owner dies, the next one inherits.
 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "log/state.h"
#include "memory/memory.h"
#include "tree/rights.h"

#define KEYS 60u

/* Beside the rig: who owns what, as src/owner/ would say it. */
struct scene {
    struct log *ours, *others;
    struct log_heir heirs[2];
    uint32_t heir_count;
    uint64_t version;
    unsigned waits; /* for a table of a new incarnation */
};
static struct scene scene;

static void log_make(struct log **log, struct rig_side *side)
{
    struct log_options options;
    struct error error = {0};
    log_options_default(&options);
    options.segment_bytes = MEMORY_LOG_SEGMENT_LEAST;
    options.frame_bytes = 1024;
    options.copies = RIG_NODES;
    options.threshold = 4; /* a segment in which a frame failed is used no more, and no merger is at work */
    options.wait_ns = 20 * MILLISECOND;
    options.seed = 1;
    assert_int_equal(log_create(log, side->compute, &options, &error), 0);
    assert_int_equal(log_attach(*log, side->tree, &error), 0);
}

static int adopt(struct rig_side *side, enum tree_right right, bool logged, uint64_t epoch)
{
    const struct tree_rights_row row = {.right = right, .epoch = epoch, .logged = logged};
    return tree_rights_adopt(side->spare, side->tree, ++scene.version, fabric_incarnation(side->fabric), &row,
                             1);
}

#define OURS_EPOCH   2u
#define OTHERS_EPOCH 1u
#define LAST_EPOCH   3u

/* An operation was refused: the map is read again, as it is. */
static int wait(void *context, struct tree_session *session, struct tree *tree, struct fabric_process owner,
                uint64_t since)
{
    struct rig *rig = context;
    (void)tree, (void)owner, (void)since;
    if (rig_dead(rig) || ++scene.waits > 100)
        return pool_fail(tree_session_pool(session), BANYAN_ENET, "the range is out of reach");
    return adopt(&rig->ours, TREE_OWNED, true, OURS_EPOCH);
}

/* ---- shapes, and what was there before ---- */

static void log_options(struct rig_options *options)
{
    rig_two_nodes(options);
    options->pool_bytes = 32 << 20;
    options->chunk_bytes = 1 << 20;
}

static void ours_begin(struct rig *rig)
{
    static const struct tree_forward forward = {.wait = wait};
    scene.waits = 0;
    tree_compute_set_forward(rig->ours.compute, &forward, rig);
    log_make(&scene.ours, &rig->ours);
}

static void own(struct rig *rig)
{
    scene = (struct scene){.ours = NULL};
    rig_fill(rig, 0, KEYS, 1);
    ours_begin(rig);
    assert_int_equal(adopt(&rig->ours, TREE_OWNED, true, OURS_EPOCH), 0);
}

static int put(struct rig *rig, struct rig_side *side, unsigned number, uint64_t value)
{
    uint8_t key[FORMAT_KEY_MAX], bytes[FORMAT_VALUE_MAX] = {0};
    const size_t length = rig_key(rig, number, key);
    memcpy(bytes, &value, sizeof value);
    const int status =
        value ? tree_upsert(side->session, side->tree, key, length, bytes, rig->options.geometry.value_bytes)
              : tree_delete(side->session, side->tree, key, length);
    rig_note(rig, number, value, status == BANYAN_ENOTFOUND && !value ? 0 : status);
    return status == BANYAN_ENOTFOUND && !value ? 0 : status;
}

static int worst(int status, int one)
{
    return status ? status : one;
}

/* What was refused, since the connection was lost before, was not done: it is tried again under the next
 * table of rights, as after any other loss. */
static int tried(int status)
{
    return status == BANYAN_EFENCED ? BANYAN_ENET : status;
}

/* Some of the changes are deletions, some keys are new. */
static int change(struct rig *rig, struct rig_side *side, unsigned from, unsigned to, unsigned step)
{
    int status = 0;
    for (unsigned i = from; i < to; i += step)
        status = worst(status, put(rig, side, i, i % 4 == 1 ? 0 : i + 5000));
    return status;
}

/* Puts of a key that no step changes, until the current segment has so little room. */
static void fill_segment(struct rig *rig, uint32_t left)
{
    assert_int_equal(put(rig, &rig->ours, 2, 7), 0);
    for (unsigned i = 0; i < 10000; i++) {
        const struct log_segment *current = scene.ours->streams[0].current;
        if (current && current->size - current->tail <= left)
            return;
        assert_int_equal(put(rig, &rig->ours, 2, i + 1), 0);
    }
    fail_msg("the segment is not filled");
}

static void own_and_write(struct rig *rig)
{
    own(rig);
    assert_int_equal(change(rig, &rig->ours, 0, KEYS + 20, 3), 0);
}

static void own_full(struct rig *rig)
{
    own(rig);
    fill_segment(rig, 300);
}

/* Two segments are full: nothing goes on before something is merged. */
static void own_fuller(struct rig *rig)
{
    own_full(rig);
    const uint64_t number = scene.ours->streams[0].current->number;
    for (unsigned i = 0; i < 100 && scene.ours->streams[0].current->number == number; i++)
        assert_int_equal(put(rig, &rig->ours, 2, i + 1), 0);
    fill_segment(rig, 300);
}

/* The others own and log, and give the range to us. */
static void to_inherit(struct rig *rig)
{
    scene = (struct scene){.ours = NULL};
    rig_fill(rig, 0, KEYS, 1);
    log_make(&scene.others, &rig->others);
    assert_int_equal(adopt(&rig->others, TREE_OWNED, true, OTHERS_EPOCH), 0);
    assert_int_equal(change(rig, &rig->others, 0, KEYS + 20, 2), 0);
    assert_int_equal(adopt(&rig->others, TREE_MOVING, false, OURS_EPOCH), 0);
    log_disown(scene.others, rig->others.session, rig->others.tree, (struct format_key){0}, NULL,
               OTHERS_EPOCH);
    scene.heirs[scene.heir_count++] = (struct log_heir){fabric_self(rig->others.fabric), OTHERS_EPOCH};
    ours_begin(rig);
    assert_int_equal(adopt(&rig->ours, TREE_MOVING, false, OURS_EPOCH), 0);
}

/* ---- under trouble ---- */

static int writes(struct rig *rig)
{
    return change(rig, &rig->ours, 0, KEYS + 20, 9);
}

static int flush(struct rig *rig)
{
    return tried(log_flush_all(scene.ours, rig->ours.session));
}

static int writes_and_merges(struct rig *rig)
{
    int status = change(rig, &rig->ours, 1, KEYS, 13);
    status = worst(status, flush(rig));
    status = worst(status, change(rig, &rig->ours, 5, KEYS, 13));
    return worst(status, flush(rig));
}

static int inherits(struct rig *rig)
{
    return tried(log_inherit(scene.ours, rig->ours.session, rig->ours.tree, scene.heirs, scene.heir_count,
                             (struct format_key){0}, NULL, OURS_EPOCH));
}

static int closes(struct rig *rig)
{
    return tried(log_close(scene.ours, rig->ours.session));
}

/* ---- afterwards ---- */

static void well(struct rig_side *side, int status)
{
    if (status)
        fail_msg("afterwards: %s: %s", error_name(status), tree_session_error(side->session)->text);
}

static void heirs_end(struct log *log, struct rig_side *side, uint64_t epoch)
{
    scene.heir_count = 0;
    scene.version++;
    log_released(log, side->tree, scene.version);
    log_cleared(log, side->tree, (struct format_key){0}, NULL, epoch);
}

/* What the memory nodes have handed out is what the log knows of, but for what it has not asked for yet. */
static void none_astray(struct rig *rig, const struct log *log)
{
    for (unsigned n = 0; n < RIG_NODES; n++) {
        struct memory_status_reply status;
        memory_node_status(rig->nodes[n], &status);
        if (!log->streams[n].astray)
            assert_int_equal(status.log_segments, log->streams[n].segments);
    }
}

/* It goes on: what is pending is settled, everything is merged, the segments are given back, and the range is
 * shared again. */
static void goes_on(struct rig *rig, struct log *log, struct rig_side *side, uint64_t epoch)
{
    well(side, adopt(side, TREE_OWNED, true, epoch));
    well(side, log_flush_all(log, side->session));
    well(side, put(rig, side, 3, 77));
    well(side, log_flush_all(log, side->session));
    if (tree_log_table(side->tree))
        assert_int_equal(unmerged_count(tree_log_table(side->tree)), 0);
    if (log == scene.ours && !scene.others)
        none_astray(rig, log);
    well(side, put(rig, side, 6, 78));
    well(side, log_close(log, side->session));
    well(side, adopt(side, TREE_SHARED, false, epoch));
}

/* The others hold nothing of an earlier log any more. */
static void others_end(struct rig *rig)
{
    if (!scene.others)
        return;
    heirs_end(scene.others, &rig->others, LAST_EPOCH);
    well(&rig->others, log_close(scene.others, rig->others.session));
    well(&rig->others, adopt(&rig->others, TREE_SHARED, false, LAST_EPOCH));
}

static void take_over(struct rig_side *side, struct log *log, uint64_t epoch)
{
    well(side, adopt(side, TREE_MOVING, false, epoch));
    well(side, log_inherit(log, side->session, side->tree, scene.heirs, scene.heir_count,
                           (struct format_key){0}, NULL, epoch));
}

/* We are dead: the others inherit from us. */
static void succeed(struct rig *rig, struct fabric_process dead)
{
    scene.heirs[scene.heir_count++] = (struct log_heir){dead, OURS_EPOCH};
    if (!scene.others)
        log_make(&scene.others, &rig->others);
    take_over(&rig->others, scene.others, LAST_EPOCH);
    heirs_end(scene.others, &rig->others, LAST_EPOCH);
    goes_on(rig, scene.others, &rig->others, LAST_EPOCH);
    well(&rig->others, log_release_dead(scene.others, rig->others.session, dead));
}

static void judge(struct rig *rig, int status, enum trouble kind)
{
    (void)status;
    const struct fabric_process self = fabric_self(rig->ours.fabric);
    if (rig_dead(rig)) {
        succeed(rig, self);
    } else {
        if (scene.heir_count) {
            take_over(&rig->ours, scene.ours, OURS_EPOCH);
            heirs_end(scene.ours, &rig->ours, OURS_EPOCH);
        }
        goes_on(rig, scene.ours, &rig->ours, OURS_EPOCH);
        others_end(rig);
    }
    log_destroy(scene.ours);
    log_destroy(scene.others);
    const uint64_t lost = rig_judge(rig, kind);
    /* A node of the tree may be lost with a list; no segment is. */
    assert_true(lost < MEMORY_LOG_SEGMENT_LEAST);
    if (kind == TROUBLE_NONE || kind == TROUBLE_REFUSAL || kind == TROUBLE_MEMORY)
        assert_int_equal(lost, 0);
}

/* ---- loops ---- */

static void the_first_writes(void **state)
{
    (void)state;
    rig_loop_all(&(struct rig_scenario){
        .name = "writes", .options = log_options, .prepare = own, .act = writes, .judge = judge});
}

static void merging(void **state)
{
    (void)state;
    rig_loop_all(&(struct rig_scenario){
        .name = "merging", .options = log_options, .prepare = own_and_write, .act = flush, .judge = judge});
}

static void writes_between_cycles(void **state)
{
    (void)state;
    rig_loop_all(&(struct rig_scenario){.name = "writes and merges",
                                        .options = log_options,
                                        .prepare = own_and_write,
                                        .act = writes_and_merges,
                                        .judge = judge});
}

static void the_next_segment(void **state)
{
    (void)state;
    rig_loop_all(&(struct rig_scenario){
        .name = "next segment", .options = log_options, .prepare = own_full, .act = writes, .judge = judge});
}

static void segments_that_are_free(void **state)
{
    (void)state;
    rig_loop_all(&(struct rig_scenario){.name = "free segments",
                                        .options = log_options,
                                        .prepare = own_fuller,
                                        .act = writes_and_merges,
                                        .judge = judge});
}

static void closing(void **state)
{
    (void)state;
    rig_loop_all(&(struct rig_scenario){
        .name = "closing", .options = log_options, .prepare = own_and_write, .act = closes, .judge = judge});
}

static void inheriting(void **state)
{
    (void)state;
    rig_loop_all(&(struct rig_scenario){.name = "inheriting",
                                        .options = log_options,
                                        .prepare = to_inherit,
                                        .act = inherits,
                                        .judge = judge});
}

int main(void)
{
    log_set_level(LOG_ERROR); /* copies that fail are told each */
    if (getenv("PART"))       /* one of them */
        cmocka_set_test_filter(getenv("PART"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_writes),
        cmocka_unit_test(merging),
        cmocka_unit_test(writes_between_cycles),
        cmocka_unit_test(the_next_segment),
        cmocka_unit_test(segments_that_are_free),
        cmocka_unit_test(closing),
        cmocka_unit_test(inheriting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
