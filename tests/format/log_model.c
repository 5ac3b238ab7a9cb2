/* log_model.c - see log_model.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "log_model.h"

struct format_log_entry model_entry(struct model_room *room, uint64_t seed, uint64_t sequence)
{
    struct random random;
    struct format_log_entry entry = {.sequence = sequence, .value = room->value};
    random_seed(&random, seed ^ sequence * 0x9e3779b97f4a7c15u);
    entry.kind = (uint8_t)(FORMAT_LOG_PUT + random_below(&random, 2));
    entry.index = (uint16_t)random_next(&random);
    entry.epoch = random_next(&random);
    for (uint32_t i = 0; i < FORMAT_KEY_MAX; i++) {
        room->key[i] = (uint8_t)random_next(&random);
        room->value[i] = (uint8_t)random_next(&random);
    }
    entry.key = (struct format_key){room->key, (uint32_t)random_below(&random, 24)};
    if (entry.kind == FORMAT_LOG_PUT)
        entry.value_length = (uint8_t)random_below(&random, 40);
    return entry;
}

void model_begin(struct model *model, uint64_t nonce, const uint8_t *background)
{
    *model = (struct model){.segment = {.owner = {.instance = 7, .compute_id = 3},
                                        .number = 11,
                                        .nonce = nonce,
                                        .size = MODEL_BYTES},
                            .end = FORMAT_LOG_BLOCK,
                            .sequence = 1000};
    if (background)
        memcpy(model->bytes, background, MODEL_BYTES);
    format_log_segment_encode(&model->segment, model->bytes);
}

void model_add(struct model *model, uint32_t entries, uint32_t gap)
{
    static uint8_t buffer[MODEL_BYTES];
    struct format_log_frame frame;
    struct model_room room = {0};
    struct model_frame *noted = &model->frame[model->frames++];
    assert_true(model->frames <= MODEL_FRAMES);
    *noted = (struct model_frame){
        .position = model->end + gap, .entries = entries, .seed = model->sequence * 31 + 5};
    format_log_frame_begin(&frame, buffer, MODEL_BYTES);
    for (uint32_t i = 0; i < entries; i++) {
        struct format_log_entry entry = model_entry(&room, noted->seed, model->sequence++);
        assert_true(format_log_frame_add(&frame, &entry));
    }
    noted->used = frame.used;
    noted->bytes = format_log_frame_seal(&frame, model->segment.nonce, noted->position, model->committed);
    assert_true(noted->position + noted->bytes <= MODEL_BYTES);
    memcpy(model->bytes + noted->position, buffer, noted->bytes);
    model->end = noted->position + noted->bytes;
}

bool model_whole(const struct model *model, const uint8_t *image, const struct model_frame *frame)
{
    return !memcmp(image + frame->position, model->bytes + frame->position, frame->used);
}

struct judge {
    const struct model *model;
    const uint8_t *image;
    uint32_t frame, entry; /* what comes next */
    uint64_t sequence;     /* the next entry's */
};

/* Steps over frames that must not be found, and those without entries. */
static void judge_settle(struct judge *judge)
{
    const struct model *model = judge->model;
    for (; judge->frame < model->frames; judge->frame++, judge->entry = 0) {
        const struct model_frame *frame = &model->frame[judge->frame];
        if (judge->entry < frame->entries && model_whole(model, judge->image, frame))
            return;
        judge->sequence += frame->entries - judge->entry;
    }
}

static void judge_entry(struct judge *judge, const struct format_log_entry *entry)
{
    struct model_room room = {0};
    judge_settle(judge);
    assert_true(judge->frame < judge->model->frames);
    struct format_log_entry expected =
        model_entry(&room, judge->model->frame[judge->frame].seed, judge->sequence);
    assert_int_equal(entry->kind, expected.kind);
    assert_int_equal(entry->index, expected.index);
    assert_true(entry->epoch == expected.epoch && entry->sequence == expected.sequence);
    assert_int_equal(format_key_compare(entry->key, expected.key), 0);
    assert_int_equal(entry->value_length, expected.value_length);
    assert_memory_equal(entry->value, expected.value, expected.value_length);
    judge->entry++;
    judge->sequence++;
}

static int judge_visit(void *context, const struct format_log_view *frame)
{
    struct format_log_entry entry;
    uint32_t at = 0;
    while (format_log_frame_next(frame, &at, &entry))
        judge_entry(context, &entry);
    return 0;
}

void model_judge(const struct model *model, const uint8_t *image, uint32_t known,
                 struct format_log_scan *scan)
{
    struct judge judge = {.model = model, .image = image, .sequence = 1000};
    uint32_t frames = 0, end = FORMAT_LOG_BLOCK;
    assert_int_equal(format_log_scan(&model->segment, image, known, judge_visit, &judge, scan), 0);
    judge_settle(&judge);
    assert_int_equal(judge.frame, model->frames);
    for (uint32_t i = 0; i < model->frames; i++)
        if (model_whole(model, image, &model->frame[i])) {
            frames++;
            end = model->frame[i].position + model->frame[i].bytes;
        }
    assert_int_equal(scan->frames, frames);
    assert_int_equal(scan->end, end);
}
