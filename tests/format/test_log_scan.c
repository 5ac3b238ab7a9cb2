/* test_log_scan.c - the scan of a segment of an owner's log believes what is whole, whatever lies around it,
 * and nothing else; and it names what is corrupt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "log_model.h"

#define NONCE UINT64_C(0x1122334455667788)

static struct model model;
static uint8_t background[MODEL_BYTES], image[MODEL_BYTES], buffer[FORMAT_LOG_FRAME_MAX];

enum ground { GROUND_ZEROS, GROUND_NOISE, GROUND_EARLIER, GROUND_SAME, GROUNDS };

/* What lies in the segment before it is used: nothing, anything, an earlier use of it whose frames stand
 * elsewhere, or one with the same frames at the same places. */
static void ground_make(enum ground ground)
{
    struct random random;
    random_seed(&random, 17);
    memset(background, 0, sizeof background);
    if (ground == GROUND_NOISE)
        for (uint32_t i = 0; i < MODEL_BYTES; i++)
            background[i] = (uint8_t)random_next(&random);
    if (ground < GROUND_EARLIER)
        return;
    static struct model earlier;
    model_begin(&earlier, NONCE - 1, NULL);
    earlier.committed = FORMAT_LOG_BLOCK;
    for (uint32_t i = 0; i < 40; i++)
        model_add(&earlier, ground == GROUND_SAME ? i % 7 : 3 + i % 5, 0);
    memcpy(background, earlier.bytes, MODEL_BYTES);
}

static void model_fill(uint32_t frames)
{
    model_begin(&model, NONCE, background);
    for (uint32_t i = 0; i < frames; i++)
        model_add(&model, i % 7, 0);
}

/* A process dies while its last frames are under way: any prefix of them in memory, in words of 8 bytes. */
static void test_every_prefix(void **state)
{
    for (enum ground ground = 0; ground < GROUNDS; ground++) {
        struct format_log_scan scan;
        ground_make(ground);
        model_fill(20);
        memcpy(image, model.bytes, MODEL_BYTES);
        for (uint32_t cut = model.end; cut >= model.frame[12].position; cut -= 8) {
            memcpy(image + cut, background + cut, 8);
            model_judge(&model, image, 0, &scan);
            assert_int_equal(scan.corrupt_regions, 0);
        }
        assert_int_equal(scan.frames, 12);
    }
}

/* Any one word of the last frames did not come; then any number of them. */
static void test_every_torn_word(void **state)
{
    struct random random;
    random_seed(&random, 5);
    for (enum ground ground = 0; ground < GROUNDS; ground++) {
        struct format_log_scan scan;
        uint32_t torn = 0;
        ground_make(ground);
        model_fill(20);
        uint32_t first = model.frame[12].position, words = (model.end - first) / 8;
        memcpy(image, model.bytes, MODEL_BYTES);
        for (uint32_t word = 0; word < words; word++) {
            memcpy(image + first + 8 * word, background + first + 8 * word, 8);
            model_judge(&model, image, 0, &scan);
            assert_int_equal(scan.corrupt_regions, 0);
            torn += scan.frames == 19;
            memcpy(image + first + 8 * word, model.bytes + first + 8 * word, 8);
        }
        /* Whatever lay there, three words of each header are other ones: checks, nonce and committed. */
        assert_true(torn >= 3 * 8);
        for (uint32_t round = 0; round < 300; round++) {
            memcpy(image, model.bytes, MODEL_BYTES);
            uint32_t rare = 1 + (uint32_t)random_below(&random, 2 * words);
            for (uint32_t word = 0; word < words; word++)
                if (random_below(&random, rare) < 2)
                    memcpy(image + first + 8 * word, background + first + 8 * word, 8);
            model_judge(&model, image, 0, &scan);
        }
    }
}

/* Frames that never came do not hide those behind them, however many blocks they would have had. */
static void test_holes(void **state)
{
    for (enum ground ground = 0; ground < GROUNDS; ground++) {
        struct format_log_scan scan;
        ground_make(ground);
        model_begin(&model, NONCE, background);
        for (uint32_t i = 0; i < 30; i++)
            model_add(&model, i % 7, i % 4 * FORMAT_LOG_BLOCK);
        memcpy(image, model.bytes, MODEL_BYTES);
        model_judge(&model, image, 0, &scan);
        assert_int_equal(scan.frames, 30);
        assert_int_equal(scan.corrupt_regions, 0);
        assert_true(scan.sequence == model.sequence - 1);
    }
}

/* Under another nonce nothing of it is there. */
static void test_earlier_use(void **state)
{
    struct format_log_scan scan;
    ground_make(GROUND_ZEROS);
    model_fill(20);
    struct format_log_segment segment = model.segment;
    for (unsigned bit = 0; bit < 64; bit++) {
        segment.nonce = NONCE ^ UINT64_C(1) << bit;
        assert_int_equal(format_log_scan(&segment, model.bytes, 0, NULL, NULL, &scan), 0);
        assert_int_equal(scan.frames, 0);
        assert_int_equal(scan.entries, 0);
        assert_int_equal(scan.end, FORMAT_LOG_BLOCK);
        assert_int_equal(scan.committed, 0);
    }
}

/* A frame is believed where it was written alone. */
static void test_position(void **state)
{
    struct format_log_scan scan;
    ground_make(GROUND_ZEROS);
    model_fill(20);
    memcpy(image, model.bytes, MODEL_BYTES);
    const struct model_frame *frame = &model.frame[19];
    uint32_t to = (model.end + 1023) / 1024 * 1024;
    memcpy(image + to, model.bytes + frame->position, frame->bytes);
    model_judge(&model, image, 0, &scan);
    assert_int_equal(scan.frames, 20);
    /* nor with the position that it stands at now: the crc is that of the old one */
    memcpy(image + to + 16, &to, 4);
    model_judge(&model, image, 0, &scan);
    assert_int_equal(scan.frames, 20);
}

/* ---- what is corrupt ---- */

static void corrupt_expect(const struct format_log_scan *scan, uint32_t regions, uint32_t first,
                           uint32_t first_bytes, uint32_t bytes)
{
    assert_int_equal(scan->corrupt_regions, regions);
    assert_int_equal(scan->corrupt_first, first);
    assert_int_equal(scan->corrupt_first_bytes, first_bytes);
    assert_int_equal(scan->corrupt_bytes, bytes);
}

/* Any byte of a frame that was known to be complete: its region, and no more. */
static void test_corrupt_middle(void **state)
{
    struct format_log_scan scan;
    ground_make(GROUND_EARLIER);
    model_fill(19);
    model.committed = model.end;
    model_add(&model, 5, 0);
    memcpy(image, model.bytes, MODEL_BYTES);
    model_judge(&model, image, 0, &scan);
    assert_int_equal(scan.committed, model.committed);
    corrupt_expect(&scan, 0, 0, 0, 0);
    for (uint32_t i = 0; i < 19; i++) {
        const struct model_frame *frame = &model.frame[i];
        for (uint32_t at = frame->position; at < frame->position + frame->used; at++) {
            image[at] ^= 0x10;
            model_judge(&model, image, 0, &scan);
            corrupt_expect(&scan, 1, frame->position, frame->bytes, frame->bytes);
            image[at] ^= 0x10;
        }
    }
    /* the last one was under way */
    image[model.frame[19].position + 1] ^= 1;
    model_judge(&model, image, 0, &scan);
    corrupt_expect(&scan, 0, 0, 0, 0);
}

static void test_corrupt_regions(void **state)
{
    struct format_log_scan scan;
    const struct model_frame *frame = model.frame;
    ground_make(GROUND_ZEROS);
    model_fill(19);
    model.committed = model.frame[16].position;
    model_add(&model, 5, 0);
    memcpy(image, model.bytes, MODEL_BYTES);
    /* two side by side, one alone, and one above what is known */
    memset(image + frame[4].position, 0, frame[4].bytes);
    memset(image + frame[5].position + 60, 0xff, 8);
    memset(image + frame[9].position, 0xff, frame[9].bytes);
    memset(image + frame[16].position, 0, frame[16].bytes);
    model_judge(&model, image, 0, &scan);
    corrupt_expect(&scan, 2, frame[4].position, frame[4].bytes + frame[5].bytes,
                   frame[4].bytes + frame[5].bytes + frame[9].bytes);
    /* the segment behind it knows more */
    model_judge(&model, image, model.end, &scan);
    corrupt_expect(&scan, 3, frame[4].position, frame[4].bytes + frame[5].bytes,
                   frame[4].bytes + frame[5].bytes + frame[9].bytes + frame[16].bytes);
    /* nothing of a segment whose frames are known to be complete is there, or it is cut */
    memset(image, 0, MODEL_BYTES);
    model_judge(&model, image, model.end, &scan);
    corrupt_expect(&scan, 1, FORMAT_LOG_BLOCK, model.end - FORMAT_LOG_BLOCK, model.end - FORMAT_LOG_BLOCK);
    model_judge(&model, image, UINT32_MAX, &scan);
    corrupt_expect(&scan, 1, FORMAT_LOG_BLOCK, MODEL_BYTES - FORMAT_LOG_BLOCK,
                   MODEL_BYTES - FORMAT_LOG_BLOCK);
}

/* A frame whose entries are torn still says what was complete when it was sealed. */
static void test_torn_frame_knows(void **state)
{
    struct format_log_scan scan;
    ground_make(GROUND_ZEROS);
    model_fill(19);
    model.committed = model.end;
    model_add(&model, 5, 0);
    memcpy(image, model.bytes, MODEL_BYTES);
    image[model.frame[19].position + model.frame[19].used - 1] ^= 1;
    image[model.frame[7].position + 10] ^= 1;
    model_judge(&model, image, 0, &scan);
    corrupt_expect(&scan, 1, model.frame[7].position, model.frame[7].bytes, model.frame[7].bytes);
}

/* ---- a log that is being written ---- */

#define LIVE_FRAMES 20u

/* Copies the blocks from `from` to `end`, each as it is at a moment of its own up to `last`, or all at
 * `last`. Frame i came at came[i]. */
static void live_read(const uint32_t came[LIVE_FRAMES], uint32_t from, uint32_t end, uint32_t last,
                      struct random *random)
{
    for (uint32_t i = 0; i < LIVE_FRAMES; i++) {
        const struct model_frame *frame = &model.frame[i];
        for (uint32_t at = frame->position; at < frame->position + frame->bytes; at += FORMAT_LOG_BLOCK) {
            uint32_t when = random ? (uint32_t)random_below(random, last + 1) : last;
            if (at >= from && at < end)
                memcpy(image + at, (came[i] <= when ? model.bytes : background) + at, FORMAT_LOG_BLOCK);
        }
    }
}

/* Blocks are read at different times while frames come, in any order of both. Whatever seems to be corrupt
 * then is there when it is read once more. */
static void test_owner_lives(void **state)
{
    struct random random;
    uint32_t seemed = 0;
    random_seed(&random, 3);
    ground_make(GROUND_EARLIER);
    for (uint32_t round = 0; round < 300; round++) {
        struct format_log_scan scan;
        uint32_t came[LIVE_FRAMES] = {0}, complete = 0,
                 last = 1 + (uint32_t)random_below(&random, LIVE_FRAMES + 4);
        model_begin(&model, NONCE, background);
        for (uint32_t i = 0; i < LIVE_FRAMES; i++) {
            while (complete < i && came[complete] < i)
                complete++; /* as the owner knows when it seals frame i */
            model.committed = complete < i ? model.frame[complete].position : model.end;
            model_add(&model, i % 7, 0);
            came[i] = i + (uint32_t)random_below(&random, 4);
        }
        memcpy(image, background, MODEL_BYTES);
        live_read(came, 0, MODEL_BYTES, last, &random);
        model_judge(&model, image, 0, &scan);
        if (scan.corrupt_regions) {
            seemed++;
            live_read(came, scan.corrupt_first, scan.committed, last, NULL);
            model_judge(&model, image, 0, &scan);
        }
        corrupt_expect(&scan, 0, 0, 0, 0);
    }
    assert_true(seemed > 100);
}

/* ---- any bytes ---- */

/* What a torn frame had reserved is skipped as a whole: nothing in it begins a frame, so no bytes make a scan
 * look at others twice. */
static void test_torn_frame_is_skipped(void **state)
{
    struct format_log_scan scan;
    ground_make(GROUND_ZEROS);
    model_begin(&model, NONCE, NULL);
    struct format_log_frame frame;
    format_log_frame_begin(&frame, buffer, 16384);
    uint8_t value[FORMAT_VALUE_MAX] = {0};
    struct format_log_entry entry = {
        .kind = FORMAT_LOG_PUT, .sequence = 5, .key = {value, 200}, .value = value, .value_length = 255};
    while (format_log_frame_add(&frame, &entry))
        continue;
    uint32_t bytes = format_log_frame_seal(&frame, NONCE, FORMAT_LOG_BLOCK, 0);
    memcpy(image, model.bytes, MODEL_BYTES);
    memcpy(image + FORMAT_LOG_BLOCK, buffer, bytes);
    for (uint32_t position = 2 * FORMAT_LOG_BLOCK; position < FORMAT_LOG_BLOCK + bytes;
         position += FORMAT_LOG_BLOCK) {
        format_log_frame_begin(&frame, buffer, FORMAT_LOG_BLOCK);
        memcpy(image + position, buffer, format_log_frame_seal(&frame, NONCE, position, 0));
    }
    format_log_frame_begin(&frame, buffer, FORMAT_LOG_BLOCK);
    memcpy(image + FORMAT_LOG_BLOCK + bytes, buffer,
           format_log_frame_seal(&frame, NONCE, FORMAT_LOG_BLOCK + bytes, 0));
    assert_int_equal(format_log_scan(&model.segment, image, 0, NULL, NULL, &scan), 0);
    assert_int_equal(scan.frames, 1);
    assert_int_equal(scan.end, bytes + 2 * FORMAT_LOG_BLOCK);
}

static int visit_third(void *context, const struct format_log_view *frame)
{
    uint32_t *seen = context;
    assert_true(frame->bytes);
    return ++*seen == 3 ? -7 : 0;
}

static void test_visit_ends(void **state)
{
    struct format_log_scan scan;
    uint32_t seen = 0;
    ground_make(GROUND_ZEROS);
    model_fill(20);
    assert_int_equal(format_log_scan(&model.segment, model.bytes, 0, visit_third, &seen, &scan), -7);
    assert_int_equal(seen, 3);
    assert_int_equal(scan.frames, 2);
    assert_int_equal(scan.entries, model.frame[0].entries + model.frame[1].entries);
}

/* ---- how far a segment must be read ---- */

#define WHOLE (4u << 20)
static uint8_t large[WHOLE];

/* A frame that begins there, some 60 to 60,000 bytes long; returns its end. */
static uint32_t large_frame(uint32_t position, uint32_t bytes)
{
    struct format_log_frame frame;
    const uint8_t key[8] = {1}, value[200] = {2};
    struct format_log_entry entry = {.kind = FORMAT_LOG_PUT,
                                     .index = 2,
                                     .epoch = 3,
                                     .sequence = 4,
                                     .key = {key, sizeof key},
                                     .value = value,
                                     .value_length = sizeof value};
    format_log_frame_begin(&frame, large + position, FORMAT_LOG_FRAME_MAX);
    for (uint32_t added = 0; added < bytes; added += 225, entry.sequence++)
        if (!format_log_frame_add(&frame, &entry))
            break;
    return position + format_log_frame_seal(&frame, NONCE, position, 0);
}

/* However a segment is READ in pieces, it is never said to end before the last frame that there is, whole or
 * torn, and it is READ no further than what proves that. */
static void test_reach(void **state)
{
    struct random random;
    const struct format_log_segment segment = {.size = WHOLE, .nonce = NONCE};
    random_seed(&random, 23);
    for (unsigned round = 0; round < 60; round++) {
        const uint32_t first_hole = round % 4 ? 0 : FORMAT_LOG_SPAN - FORMAT_LOG_FRAME_MAX - FORMAT_LOG_BLOCK;
        uint32_t end = FORMAT_LOG_BLOCK, position = end + first_hole, length = 0;
        struct format_log_reach reach = FORMAT_LOG_REACH_FIRST;
        memset(large, round % 3 ? 0 : 0xa5, sizeof large);
        for (uint64_t frames = random_below(&random, 30); frames--;) {
            const bool hole = position == end && random_chance(&random, 0.2);
            if (hole)
                position +=
                    (uint32_t)random_below(&random, (FORMAT_LOG_SPAN - FORMAT_LOG_FRAME_MAX) / 64) * 64;
            if (position + FORMAT_LOG_FRAME_MAX > WHOLE)
                break;
            end = large_frame(position, (uint32_t)random_below(&random, 60000));
            if (random_chance(&random, 0.1)) /* torn: its header is there */
                large[position + FORMAT_LOG_FRAME_BYTES + 2] ^= 1;
            position = end;
        }
        bool ended = false;
        while (!ended) {
            const uint32_t piece = 64 + (uint32_t)random_below(&random, 3000) * 64;
            assert_true(length < WHOLE);
            length = length + piece < WHOLE ? length + piece : WHOLE;
            ended = format_log_reach(&segment, large, length, &reach);
        }
        assert_true(length >= end);
        assert_int_equal(reach.end, end);
        const uint32_t proof = end + FORMAT_LOG_SPAN + FORMAT_LOG_FRAME_MAX + 3000 * 64;
        assert_true(length <= proof);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_prefix),    cmocka_unit_test(test_every_torn_word),
        cmocka_unit_test(test_holes),           cmocka_unit_test(test_earlier_use),
        cmocka_unit_test(test_position),        cmocka_unit_test(test_corrupt_middle),
        cmocka_unit_test(test_corrupt_regions), cmocka_unit_test(test_torn_frame_knows),
        cmocka_unit_test(test_owner_lives),     cmocka_unit_test(test_torn_frame_is_skipped),
        cmocka_unit_test(test_visit_ends),      cmocka_unit_test(test_reach),
    };
    return cmocka_run_group_tests_name("log_scan", tests, NULL, NULL);
}
