/* log_frame.c - see log.h: frames and their entries. */
#include <assert.h>
#include <string.h>

#include "base/crc32c.h"
#include "format/log.h"

static bool place_possible(uint32_t position)
{
    return position <= FORMAT_LOG_SEGMENT_MAX && position % FORMAT_LOG_BLOCK == 0;
}

static bool other_possible(const struct format_log_other *other)
{
    return place_possible(other->position) && place_possible(other->before) &&
           (other->nonce ? other->position : !other->number && !other->position && !other->before);
}

/* ---- writing ---- */

void format_log_frame_begin(struct format_log_frame *frame, uint8_t *bytes, uint32_t room)
{
    assert(room >= FORMAT_LOG_BLOCK && room <= FORMAT_LOG_FRAME_MAX && room % FORMAT_LOG_BLOCK == 0);
    *frame = (struct format_log_frame){.bytes = bytes, .room = room, .used = FORMAT_LOG_FRAME_BYTES};
}

/* What the fields say of each other. */
static bool entry_possible(const struct format_log_entry *entry)
{
    return entry->kind >= FORMAT_LOG_PUT && entry->kind < FORMAT_LOG_KINDS && entry->sequence &&
           entry->sequence <= FORMAT_LOG_SEQUENCE_MAX && entry->key.length <= FORMAT_KEY_MAX &&
           (entry->kind == FORMAT_LOG_PUT || !entry->value_length);
}

bool format_log_frame_add(struct format_log_frame *frame, const struct format_log_entry *entry)
{
    assert(entry_possible(entry));
    if (format_log_entry_bytes(entry) > frame->room - frame->used)
        return false;
    if (!frame->count)
        frame->first = frame->last = entry->sequence;
    int64_t distance = (int64_t)(entry->sequence - frame->first);
    if (distance > INT32_MAX || distance < -INT32_MAX)
        return false;
    uint8_t *to = frame->bytes + frame->used;
    int32_t delta = (int32_t)distance;
    to[0] = entry->kind;
    memcpy(to + 1, &entry->index, 2);
    memcpy(to + 3, &entry->epoch, 8);
    memcpy(to + 11, &delta, 4);
    to[15] = (uint8_t)entry->key.length;
    to[16] = entry->value_length;
    if (entry->key.length)
        memcpy(to + FORMAT_LOG_ENTRY_BYTES, entry->key.bytes, entry->key.length);
    if (entry->value_length)
        memcpy(to + FORMAT_LOG_ENTRY_BYTES + entry->key.length, entry->value, entry->value_length);
    frame->used += format_log_entry_bytes(entry);
    frame->count++;
    if (entry->sequence > frame->last)
        frame->last = entry->sequence;
    return true;
}

uint32_t format_log_frame_seal(struct format_log_frame *frame, uint64_t nonce, uint32_t position,
                               uint32_t committed)
{
    uint32_t bytes = format_log_frame_bytes(frame);
    assert(position >= FORMAT_LOG_BLOCK && position % FORMAT_LOG_BLOCK == 0 && nonce);
    assert(committed <= position && committed % FORMAT_LOG_BLOCK == 0);
    assert(other_possible(&frame->other));
    memset(frame->bytes + frame->used, 0, bytes - frame->used);
    uint32_t crc = crc32c(0, frame->bytes + FORMAT_LOG_FRAME_BYTES, frame->used - FORMAT_LOG_FRAME_BYTES);
    memcpy(frame->bytes + 4, &crc, 4);
    memcpy(frame->bytes + 8, &nonce, 8);
    memcpy(frame->bytes + 16, &position, 4);
    memcpy(frame->bytes + 20, &frame->used, 4);
    memcpy(frame->bytes + 24, &committed, 4);
    memcpy(frame->bytes + 28, &frame->count, 4);
    memcpy(frame->bytes + 32, &frame->first, 8);
    memcpy(frame->bytes + 40, &frame->other.nonce, 8);
    memcpy(frame->bytes + 48, &frame->other.number, 8);
    memcpy(frame->bytes + 56, &frame->other.position, 4);
    memcpy(frame->bytes + 60, &frame->other.before, 4);
    crc = crc32c(0, frame->bytes + 4, FORMAT_LOG_FRAME_BYTES - 4);
    memcpy(frame->bytes, &crc, 4);
    return bytes;
}

/* ---- reading ---- */

bool format_log_frame_next(const struct format_log_view *view, uint32_t *at, struct format_log_entry *entry)
{
    if (view->length - *at < FORMAT_LOG_ENTRY_BYTES)
        return false;
    const uint8_t *from = view->entries + *at;
    int32_t delta;
    *entry = (struct format_log_entry){.kind = from[0],
                                       .key = {from + FORMAT_LOG_ENTRY_BYTES, from[15]},
                                       .value = from + FORMAT_LOG_ENTRY_BYTES + from[15],
                                       .value_length = from[16]};
    memcpy(&entry->index, from + 1, 2);
    memcpy(&entry->epoch, from + 3, 8);
    memcpy(&delta, from + 11, 4);
    entry->sequence = view->first + (uint64_t)(int64_t)delta;
    if (format_log_entry_bytes(entry) > view->length - *at || !entry_possible(entry))
        return false;
    *at += format_log_entry_bytes(entry);
    return true;
}

/* Whether the entries are as many as the header says, and end where it says. */
static bool entries_right(struct format_log_view *view)
{
    struct format_log_entry entry;
    uint32_t at = 0, count = 0;
    for (view->last = 0; format_log_frame_next(view, &at, &entry); count++)
        if (entry.sequence > view->last)
            view->last = entry.sequence;
    return at == view->length && count == view->count;
}

enum format_log_found format_log_frame_find(const struct format_log_segment *segment, const uint8_t *bytes,
                                            uint32_t position, struct format_log_view *view)
{
    const uint8_t *frame = bytes + position;
    uint64_t nonce;
    uint32_t crc, entries_crc, where, length;
    assert(position % FORMAT_LOG_BLOCK == 0 && position < segment->size);
    memcpy(&nonce, frame + 8, 8);
    if (nonce != segment->nonce)
        return FORMAT_LOG_NOTHING;
    memcpy(&where, frame + 16, 4);
    if (where != position)
        return FORMAT_LOG_NOTHING;
    memcpy(&length, frame + 20, 4);
    if (length < FORMAT_LOG_FRAME_BYTES || length > FORMAT_LOG_FRAME_MAX || length > segment->size - position)
        return FORMAT_LOG_NOTHING;
    memcpy(&crc, frame, 4);
    memcpy(&entries_crc, frame + 4, 4);
    memcpy(&view->committed, frame + 24, 4);
    memcpy(&view->count, frame + 28, 4);
    memcpy(&view->first, frame + 32, 8);
    memcpy(&view->other.nonce, frame + 40, 8);
    memcpy(&view->other.number, frame + 48, 8);
    memcpy(&view->other.position, frame + 56, 4);
    memcpy(&view->other.before, frame + 60, 4);
    if (crc != crc32c(0, frame + 4, FORMAT_LOG_FRAME_BYTES - 4) || view->committed > position ||
        view->committed % FORMAT_LOG_BLOCK || !other_possible(&view->other))
        return FORMAT_LOG_NOTHING;
    view->entries = frame + FORMAT_LOG_FRAME_BYTES;
    view->length = length - FORMAT_LOG_FRAME_BYTES;
    view->bytes = (length + FORMAT_LOG_BLOCK - 1) / FORMAT_LOG_BLOCK * FORMAT_LOG_BLOCK;
    if (entries_crc != crc32c(0, view->entries, view->length) || !entries_right(view))
        return FORMAT_LOG_TORN;
    return FORMAT_LOG_WHOLE;
}
