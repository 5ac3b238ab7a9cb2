/*
 * log_model.h - a segment of a log with what was written into it, to compare with what a scan finds.
 *
 * A model keeps what each frame's bytes were, so that a test may damage the segment at will: a frame must be
 * found exactly if all of its bytes that mean something still stand where they were written.
 */
#ifndef TESTS_LOG_MODEL_H
#define TESTS_LOG_MODEL_H

#include "format/log.h"

#define MODEL_BYTES  (32u << 10) /* of the segment */
#define MODEL_FRAMES 64u

struct model_frame {
    uint32_t position, used, bytes, entries;
    uint64_t seed; /* its entries follow from it */
};

struct model {
    struct format_log_segment segment;
    uint8_t bytes[MODEL_BYTES]; /* as written, on what was there before */
    uint32_t end, committed;
    uint64_t sequence; /* of the entry that comes next */
    uint32_t frames;
    struct model_frame frame[MODEL_FRAMES];
};

/* An entry that follows from a number; keys and values lie in the buffer. */
struct model_room {
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
};
struct format_log_entry model_entry(struct model_room *room, uint64_t seed, uint64_t sequence);

/* A segment whose bytes are `background` (NULL: zeros) behind its header. */
void model_begin(struct model *model, uint64_t nonce, const uint8_t *background);
/* Writes a frame of `entries` entries at the end, or `gap` bytes behind it. */
void model_add(struct model *model, uint32_t entries, uint32_t gap);
/* Scans `image` and compares: exactly the entries of the frames whose bytes all stand in it. The caller
 * judges the rest of *scan. */
void model_judge(const struct model *model, const uint8_t *image, uint32_t known,
                 struct format_log_scan *scan);
/* Whether all bytes of the frame that mean something stand in the image. */
bool model_whole(const struct model *model, const uint8_t *image, const struct model_frame *frame);

#endif
