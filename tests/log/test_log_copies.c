/*
 * test_log_copies.c - L7 and L8 of the owner's log with two copies: what memory loses of one of them is
 * served from the other one, and what it loses of both is refused, and named. Each frame, each segment's
 * header and each control block is damaged in turn, in the log of a process that was killed while it wrote
 * its third segment, and had merged a part. What `banyan recover` says (log_examine) is what inheriting does.
 */
#include "processes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "log/examine.h"
#include "log/state.h"
#include "pool/log.h"
#include "tree/wrapper.h"

#define NODES    2u
#define FRAMES   4096u
#define MERGED   560u /* keys that are merged when the process dies, and were written before the others */
#define KEYS     1100u
#define DEGRADED 1000u /* one of the keys: its frame may have one copy alone */
#define SAMPLES  12u

/* ---- a log ---- */

struct frame {
    uint16_t node;
    gaddr address;
    uint32_t bytes;
    uint64_t first, last;
    struct format_log_other other;
    uint64_t nonce;
    uint32_t position;
    bool complete; /* a later frame of its stream says so */
};

struct block {
    uint16_t node;
    gaddr address;
    uint64_t number; /* of a segment; 0: a control block */
};

static struct processes world;
static struct process *dead, *reader;
static struct frame frames[FRAMES];
static struct block blocks[64];
static unsigned frame_count, block_count;
static uint64_t watermark;

static uint64_t value_of(unsigned key)
{
    return key % 7 == 3 ? 0 : 5000 + key;
}

static void write_keys(struct process *process, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        process_check(process, process_put(process, i, value_of(i) ? value_of(i) : 1));
        if (!value_of(i))
            process_check(process, process_delete(process, i));
    }
}

/* The second list from now on is refused: the frame that it bears has one copy. */
static int refuse_second(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    unsigned *lists = context;
    return ++*lists == 2 ? process_refuse(dead, list) : wrapper_pass(endpoint, list, list->count);
}

static void write_degraded(unsigned key)
{
    struct log_stats stats;
    unsigned lists = 0;
    process_hooked(dead, refuse_second, &lists);
    process_check(dead, process_put(dead, key, value_of(key)));
    process_hooked(dead, NULL, NULL);
    log_stats(dead->log, &stats);
    assert_int_equal(stats.degraded, 1);
    process_own_still(&world, dead);
}

static void world_make(bool degraded)
{
    struct log_stats stats;
    processes_open(&world, NODES, 0);
    world.options.copies = 2;
    world.options.threshold = 8;
    dead = process_start(&world);
    process_own(&world, dead);
    heirs_end(&world, dead);
    write_keys(dead, 0, MERGED);
    process_check(dead, log_flush_all(dead->log, dead->session));
    write_keys(dead, MERGED, DEGRADED);
    if (degraded)
        write_degraded(DEGRADED);
    write_keys(dead, DEGRADED + degraded, KEYS);
    log_stats(dead->log, &stats);
    watermark = stats.watermark;
    assert_true(watermark >= MERGED && stats.segments >= 2 * NODES);
    process_dies(&world, dead);
    for (unsigned n = 0; n < NODES; n++)
        (void)memory_node_release_locks(world.memory[n], (uint16_t)(dead - world.all + 1));
    reader = process_start(&world);
}

static void bytes_read(gaddr address, void *bytes, uint32_t length)
{
    pool_session_begin(tree_session_pool(reader->session));
    process_check(reader, log_bytes_read(reader->session, address, bytes, length));
}

static void bytes_write(gaddr address, const void *bytes, uint32_t length)
{
    struct fabric_command write = pool_write_command(address, bytes, length);
    pool_session_begin(tree_session_pool(reader->session));
    process_check(reader, pool_execute(tree_session_pool(reader->session), gaddr_node(address), &write, 1));
}

static void flip(gaddr address)
{
    uint8_t byte;
    bytes_read(address, &byte, 1);
    byte ^= 0x10;
    bytes_write(address, &byte, 1);
}

/* ---- what stands in it ---- */

static int segment_note(void *context, const struct memory_log_segment *pool)
{
    static uint8_t bytes[MEMORY_LOG_SEGMENT_LEAST];
    const uint16_t node = *(const uint16_t *)context;
    struct format_log_segment segment;
    struct format_log_view view;
    assert_int_equal(pool->bytes, sizeof bytes);
    bytes_read(pool->address, bytes, sizeof bytes);
    assert_null(format_log_segment_decode(bytes, &segment));
    blocks[block_count++] = (struct block){node, pool->address, segment.number};
    for (uint32_t at = FORMAT_LOG_BLOCK; at < segment.size; at += view.bytes) {
        if (format_log_frame_find(&segment, bytes, at, &view) != FORMAT_LOG_WHOLE)
            break;
        assert_true(frame_count < FRAMES);
        frames[frame_count++] = (struct frame){.node = node,
                                               .address = pool->address + at,
                                               .bytes = view.bytes,
                                               .first = view.first,
                                               .last = view.last,
                                               .other = view.other,
                                               .nonce = segment.nonce,
                                               .position = at};
    }
    return 0;
}

/* The last frame of each stream is its tail: nothing says that it is complete. */
static void frames_note(void)
{
    static struct memory_log_segments page;
    frame_count = block_count = 0;
    for (uint16_t node = 0; node < NODES; node++) {
        const unsigned begin = frame_count;
        unsigned tail = begin;
        pool_session_begin(tree_session_pool(reader->session));
        process_check(reader, pool_log_list_all(tree_session_pool(reader->session), node,
                                                fabric_self(dead->fabric), &page, segment_note, &node));
        blocks[block_count++] = (struct block){node, page.control, 0};
        for (unsigned i = begin; i < frame_count; i++) {
            frames[i].complete = true;
            tail = frames[i].last >= frames[tail].last ? i : tail;
        }
        assert_true(frame_count > begin);
        frames[tail].complete = false;
    }
}

/* Frames that have their copy there. */
static unsigned copies_of(const struct frame *frame)
{
    unsigned found = 0;
    for (unsigned i = 0; i < frame_count; i++)
        found += frames[i].other.nonce == frame->nonce && frames[i].other.position == frame->position;
    return found;
}

static const struct frame *other_of(const struct frame *frame)
{
    for (unsigned i = 0; i < frame_count; i++)
        if (frames[i].nonce == frame->other.nonce && frames[i].position == frame->other.position)
            return &frames[i];
    fail_msg("a frame's other copy is not there");
    return NULL;
}

/* ---- what is said of it ---- */

static struct log_fault told[16];
static unsigned told_count;

static void fault_keep(void *context, const struct log_fault *fault)
{
    (void)context;
    assert_true(told_count < 16);
    told[told_count++] = *fault;
}

static struct log_examination examine(void)
{
    struct log_examination found;
    told_count = 0;
    process_check(reader,
                  log_examine(reader->session, NODES, fabric_self(dead->fabric), fault_keep, NULL, &found));
    assert_int_equal(found.faults, told_count);
    return found;
}

/* One place, and nothing is lost by it. */
static void expect_mended(enum log_fault_kind kind, gaddr address)
{
    const struct log_examination found = examine();
    assert_int_equal(found.faults, 1);
    assert_int_equal(found.mended, 1);
    assert_int_equal(found.lost_bytes, 0);
    assert_int_equal(told[0].kind, kind);
    assert_true(told[0].address == address);
}

/* These places, and all may have lost something. */
static void expect_lost(const gaddr *addresses, unsigned count)
{
    const struct log_examination found = examine();
    assert_int_equal(found.faults, count);
    assert_int_equal(found.mended, 0);
    for (unsigned i = 0; i < count; i++) {
        unsigned named = 0;
        for (unsigned k = 0; k < told_count; k++)
            named += told[k].address == addresses[i] && !told[k].mended;
        assert_int_equal(named, 1);
    }
}

static gaddr first_lost(void)
{
    for (unsigned i = 0; i < told_count; i++)
        if (!told[i].mended)
            return told[i].address;
    fail_msg("nothing is lost");
    return 0;
}

/* The successor has all that was acknowledged. */
static void expect_served(void)
{
    process_own(&world, reader);
    for (unsigned i = 0; i < KEYS; i++)
        if (process_get(reader, i) != value_of(i))
            fail_msg("key %u has %llu", i, (unsigned long long)process_get(reader, i));
}

/* The successor refuses, and says where. */
static void expect_refused(gaddr address)
{
    char text[32];
    const int status = log_inherit(reader->log, reader->session, reader->tree, world.heirs, world.heir_count,
                                   (struct format_key){0}, NULL, world.version + 1);
    assert_int_equal(status, BANYAN_ECORRUPT);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)address);
    assert_non_null(strstr(tree_session_error(reader->session)->text, text));
}

static void begin_with(bool degraded)
{
    world_make(degraded);
    frames_note();
}

static void begin(void)
{
    begin_with(false);
}

/* ---- frames ---- */

/* Any byte of a frame: of its header, of its entries. */
static gaddr somewhere(const struct frame *frame, unsigned i)
{
    return frame->address + (i % 2 ? i % 40 : FORMAT_LOG_FRAME_BYTES + i % 20);
}

static void each_frame_of_one_copy(void **state)
{
    (void)state;
    unsigned regions = 0;
    begin();
    for (unsigned i = 0; i < frame_count; i++) {
        flip(somewhere(&frames[i], i));
        if (frames[i].complete)
            expect_mended(LOG_FAULT_REGION, frames[i].address);
        else
            assert_int_equal(examine().faults, 0); /* the other copy has it */
        regions += frames[i].complete;
        flip(somewhere(&frames[i], i));
    }
    assert_int_equal(examine().faults, 0);
    assert_int_equal(regions, frame_count - NODES);
    processes_close(&world);
}

static void each_frame_of_both_copies(void **state)
{
    (void)state;
    unsigned lost = 0;
    begin();
    for (unsigned i = 0; i < frame_count; i++) {
        const struct frame *one = &frames[i], *two = other_of(one);
        if (one->node || !one->complete || !two->complete)
            continue;
        flip(somewhere(one, i));
        flip(somewhere(two, i + 1));
        if (one->last > watermark) {
            expect_lost((const gaddr[]){one->address, two->address}, 2);
            lost++;
        } else {
            assert_int_equal(examine().mended, 2); /* it is merged */
        }
        flip(somewhere(one, i));
        flip(somewhere(two, i + 1));
    }
    assert_true(lost > 300);
    processes_close(&world);
}

/* Many frames side by side, which lie on the other memory node among others. */
static void a_long_region_of_one_copy(void **state)
{
    (void)state;
    static uint8_t zeros[64 << 10];
    begin();
    for (uint16_t node = 0; node < NODES; node++) {
        unsigned first = 0;
        while (frames[first].node != node || frames[first].last <= watermark)
            first++;
        const unsigned last = first + 39;
        assert_true(last < frame_count && frames[last].complete && frames[last].nonce == frames[first].nonce);
        const uint32_t bytes = (uint32_t)(frames[last].address + frames[last].bytes - frames[first].address);
        uint8_t *before = malloc(bytes);
        bytes_read(frames[first].address, before, bytes);
        bytes_write(frames[first].address, zeros, bytes);
        expect_mended(LOG_FAULT_REGION, frames[first].address);
        const struct frame *other = other_of(&frames[(first + last) / 2]);
        flip(other->address + 3);
        expect_lost((const gaddr[]){frames[first].address, other->address}, 2);
        flip(other->address + 3);
        bytes_write(frames[first].address, before, bytes);
        free(before);
    }
    processes_close(&world);
}

static void a_frame_is_inherited_from_the_other_copy(void **state)
{
    (void)state;
    for (unsigned sample = 0; sample < SAMPLES; sample++) {
        begin();
        const struct frame *frame = &frames[(sample * frame_count + frame_count / 2) / SAMPLES % frame_count];
        flip(frame->address + FORMAT_LOG_FRAME_BYTES + 2);
        expect_served();
        processes_close(&world);
    }
}

static void a_frame_is_lost_with_both_copies(void **state)
{
    (void)state;
    unsigned refused = 0;
    for (unsigned sample = 0; sample < SAMPLES; sample++) {
        begin();
        const struct frame *one = &frames[(sample * frame_count + 7) / SAMPLES], *two = other_of(one);
        flip(one->address + FORMAT_LOG_FRAME_BYTES + 2);
        flip(two->address + FORMAT_LOG_FRAME_BYTES + 2);
        if (one->last > watermark) {
            expect_refused(one->node < two->node ? one->address : two->address);
            refused++;
            flip(one->address + FORMAT_LOG_FRAME_BYTES + 2);
        }
        expect_served(); /* one of them is whole again, or it was merged */
        processes_close(&world);
    }
    assert_true(refused >= SAMPLES / 4);
}

/* Nothing makes good what stands there: the range is refused while it is damaged. */
static void damage_refuses(const struct frame *frame)
{
    flip(somewhere(frame, 0));
    expect_lost(&frame->address, 1);
    expect_refused(frame->address);
    flip(somewhere(frame, 0));
    expect_served();
}

/* Nobody has what stood in a frame that went to one memory node alone, though the frame names a place for a
 * copy. */
static void a_frame_that_has_one_copy(void **state)
{
    (void)state;
    begin_with(true);
    unsigned i = 0;
    while (copies_of(&frames[i]) || frames[i].last <= watermark)
        i++;
    assert_true(i < frame_count && frames[i].complete);
    damage_refuses(&frames[i]);
    processes_close(&world);
}

/* The header of its segment is lost, and known again: then the frame is. */
static void a_header_before_a_frame_that_has_one_copy(void **state)
{
    (void)state;
    begin_with(true);
    unsigned i = 0;
    while (copies_of(&frames[i]) || frames[i].last <= watermark)
        i++;
    flip(frames[i].address - frames[i].position + 33);
    expect_mended(LOG_FAULT_SEGMENT, frames[i].address - frames[i].position);
    expect_served();
    processes_close(&world);
}

/* The frame's first copy is lost; or no copy of it goes to another memory node. */
struct lists {
    uint16_t node; /* the first copy's */
    bool lose, refuse;
    unsigned met;
};

static int lists_watch(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct lists *lists = context;
    if (list->commands[0].operation != FABRIC_WRITE)
        return wrapper_pass(endpoint, list, list->count);
    if (lists->lose && !lists->met++) {
        lists->node = list->node;
        return process_cut(dead, endpoint, list, 0);
    }
    if (!lists->refuse || list->node == lists->node)
        return wrapper_pass(endpoint, list, list->count);
    lists->met++;
    return process_refuse(dead, list);
}

static int put_failing(unsigned key, struct lists *lists)
{
    lists->met = 0;
    process_hooked(dead, lists_watch, lists);
    const int status = process_put(dead, key, value_of(key));
    process_hooked(dead, NULL, NULL);
    assert_true(lists->met > 0);
    process_own_still(&world, dead);
    return status;
}

/* One copy of a frame is lost, and the next frame of that memory node has no other copy. What the first frame
 * names is not the room of the second one: else it would hide that this is lost. */
static void a_frame_where_a_copy_was_lost(void **state)
{
    (void)state;
    struct log_stats stats;
    processes_open(&world, NODES, 0);
    world.options.copies = 2;
    dead = process_start(&world);
    process_own(&world, dead);
    heirs_end(&world, dead);
    write_keys(dead, 0, MERGED);
    process_check(dead, log_flush_all(dead->log, dead->session));
    struct lists lists = {.lose = true};
    assert_int_equal(put_failing(MERGED, &lists), BANYAN_EUNKNOWN);
    lists = (struct lists){.refuse = true, .node = lists.node};
    process_check(dead, put_failing(MERGED + 1, &lists));
    log_stats(dead->log, &stats);
    assert_int_equal(stats.degraded, 1);
    watermark = stats.watermark;
    write_keys(dead, MERGED, KEYS);
    process_dies(&world, dead);
    for (unsigned n = 0; n < NODES; n++)
        (void)memory_node_release_locks(world.memory[n], (uint16_t)(dead - world.all + 1));
    reader = process_start(&world);
    frames_note();
    assert_int_equal(examine().faults, 0);
    unsigned i = 0, copies = 0;
    while (frames[i].first != stats.sequence)
        i++;
    for (unsigned k = 0; k < frame_count; k++)
        copies += frames[k].first == stats.sequence;
    assert_int_equal(copies, 1);
    assert_true(i < frame_count && frames[i].complete);
    damage_refuses(&frames[i]);
    processes_close(&world);
}

/* ---- headers and control blocks ---- */

static void block_damage(const struct block *block, bool erased)
{
    static const uint8_t zeros[FORMAT_LOG_BLOCK];
    if (erased)
        bytes_write(block->address, zeros, sizeof zeros);
    else
        flip(block->address + (block->number ? 33 : 2)); /* a nonce; a watermark */
}

static void each_block_of_one_memory_node(void **state)
{
    (void)state;
    for (unsigned i = 0, count = 1; i < 2 * count; i++) {
        begin();
        count = block_count;
        const struct block block = blocks[i / 2];
        block_damage(&block, i % 2);
        expect_mended(block.number ? LOG_FAULT_SEGMENT : LOG_FAULT_CONTROL, block.address);
        expect_served();
        processes_close(&world);
    }
}

/* Of both memory nodes the block of the same number: their segments have almost the same frames. */
static void each_block_of_both_memory_nodes(void **state)
{
    (void)state;
    begin();
    const unsigned count = block_count;
    for (unsigned i = 0; i < count; i++) {
        const struct block *one = &blocks[i];
        for (unsigned k = 0; k < count; k++) {
            const struct block *two = &blocks[k];
            if (one->node || !two->node || one->number != two->number)
                continue;
            block_damage(one, false);
            block_damage(two, false);
            if (one->number) {
                const struct log_examination found = examine();
                assert_true(found.faults >= 2 && found.mended < found.faults);
                assert_int_equal(told[0].kind, LOG_FAULT_SEGMENT);
                expect_refused(first_lost());
            } else {
                expect_lost((const gaddr[]){one->address, two->address}, 2);
                expect_refused(one->address);
            }
            block_damage(one, false);
            block_damage(two, false);
            assert_int_equal(examine().faults, 0);
        }
    }
    processes_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_frame_of_one_copy),
        cmocka_unit_test(each_frame_of_both_copies),
        cmocka_unit_test(a_long_region_of_one_copy),
        cmocka_unit_test(a_frame_is_inherited_from_the_other_copy),
        cmocka_unit_test(a_frame_is_lost_with_both_copies),
        cmocka_unit_test(a_frame_that_has_one_copy),
        cmocka_unit_test(a_header_before_a_frame_that_has_one_copy),
        cmocka_unit_test(a_frame_where_a_copy_was_lost),
        cmocka_unit_test(each_block_of_one_memory_node),
        cmocka_unit_test(each_block_of_both_memory_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
