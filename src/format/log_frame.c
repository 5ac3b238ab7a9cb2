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

#define FLAG_CARRIER  1u
#define FLAG_ALONE    2u
#define FLAGS_CARRIED 2u /* from this bit on: blocks */
#define COUNT_BITS    16u

static uint32_t count_word(const struct format_log_frame *frame)
{
    assert(frame->count < 1u << COUNT_BITS && frame->carried <= FORMAT_LOG_CARRIED_MAX &&
           frame->carried % FORMAT_LOG_BLOCK == 0);
    const uint32_t flags = (frame->alone ? FLAG_ALONE : 0) | frame->carried / FORMAT_LOG_BLOCK
                                                                 << FLAGS_CARRIED;
    return frame->count | flags << COUNT_BITS;
}

/* False: the flags are impossible. */
static bool flags_decode(struct format_log_view *view, bool *carrier)
{
    const uint32_t flags = view->count >> COUNT_BITS;
    view->count &= (1u << COUNT_BITS) - 1;
    view->alone = flags & FLAG_ALONE;
    view->carried = (flags >> FLAGS_CARRIED) * FORMAT_LOG_BLOCK;
    *carrier = flags & FLAG_CARRIER;
    return (!view->carried || view->other.nonce) && (!*carrier || (!view->count && !view->other.nonce));
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
    const uint32_t count = count_word(frame);
    memcpy(frame->bytes + 28, &count, 4);
    memcpy(frame->bytes + 32, &frame->first, 8);
    memcpy(frame->bytes + 40, &frame->other.nonce, 8);
    memcpy(frame->bytes + 48, &frame->other.number, 8);
    memcpy(frame->bytes + 56, &frame->other.position, 4);
    memcpy(frame->bytes + 60, &frame->other.before, 4);
    crc = crc32c(0, frame->bytes + 4, FORMAT_LOG_FRAME_BYTES - 4);
    memcpy(frame->bytes, &crc, 4);
    return bytes;
}

/* ---- carriers ---- */

static void carrier_close(struct format_log_carriers *carriers)
{
    const uint32_t length = carriers->used - carriers->open;
    const uint32_t end = (carriers->used + FORMAT_LOG_BLOCK - 1) / FORMAT_LOG_BLOCK * FORMAT_LOG_BLOCK;
    if (carriers->bytes) {
        memset(carriers->bytes + carriers->used, 0, end - carriers->used);
        memcpy(carriers->bytes + carriers->open + 20, &length, 4);
    }
    carriers->used = carriers->open = end;
}

/* How much of a record the open carrier can take; begins one where none is open. */
static uint32_t carrier_room(struct format_log_carriers *carriers)
{
    const uint32_t least = FORMAT_LOG_PART_BYTES + FORMAT_LOG_BLOCK; /* what is worth a part */
    if (carriers->used > carriers->open && FORMAT_LOG_FRAME_MAX - (carriers->used - carriers->open) < least)
        carrier_close(carriers);
    if (carriers->used == carriers->open)
        carriers->used += FORMAT_LOG_FRAME_BYTES;
    return FORMAT_LOG_FRAME_MAX - (carriers->used - carriers->open) - FORMAT_LOG_PART_BYTES;
}

void format_log_carriers_add(struct format_log_carriers *carriers, gaddr address, const uint8_t *record,
                             uint32_t length)
{
    const uint32_t zero = 0;
    for (uint32_t offset = 0, part; offset < length; offset += part) {
        const uint32_t room = carrier_room(carriers);
        part = length - offset < room ? length - offset : room;
        uint8_t *to = carriers->bytes ? carriers->bytes + carriers->used : NULL;
        carriers->used += FORMAT_LOG_PART_BYTES + part;
        if (!to)
            continue;
        memcpy(to, &address, 8);
        memcpy(to + 8, &offset, 4);
        memcpy(to + 12, &part, 4);
        memcpy(to + 16, &length, 4);
        memcpy(to + 20, &zero, 4);
        memcpy(to + FORMAT_LOG_PART_BYTES, record + offset, part);
    }
}

uint32_t format_log_carriers_end(struct format_log_carriers *carriers)
{
    if (carriers->used > carriers->open)
        carrier_close(carriers);
    return carriers->used;
}

void format_log_carriers_seal(const struct format_log_carriers *carriers, uint64_t nonce, uint32_t position,
                              uint32_t committed, uint64_t first)
{
    assert(carriers->used == carriers->open && carriers->used <= FORMAT_LOG_CARRIED_MAX);
    for (uint32_t at = 0, length; at < carriers->used;
         at += (length + FORMAT_LOG_BLOCK - 1) / FORMAT_LOG_BLOCK * FORMAT_LOG_BLOCK) {
        uint8_t *frame = carriers->bytes + at;
        const uint32_t where = position + at, count = FLAG_CARRIER << COUNT_BITS;
        memcpy(&length, frame + 20, 4);
        uint32_t crc = crc32c(0, frame + FORMAT_LOG_FRAME_BYTES, length - FORMAT_LOG_FRAME_BYTES);
        memcpy(frame + 4, &crc, 4);
        memcpy(frame + 8, &nonce, 8);
        memcpy(frame + 16, &where, 4);
        memcpy(frame + 24, &committed, 4);
        memcpy(frame + 28, &count, 4);
        memcpy(frame + 32, &first, 8);
        memset(frame + 40, 0, FORMAT_LOG_FRAME_BYTES - 40);
        crc = crc32c(0, frame + 4, FORMAT_LOG_FRAME_BYTES - 4);
        memcpy(frame, &crc, 4);
    }
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

bool format_log_part_next(const struct format_log_view *view, uint32_t *at, struct format_log_part *part)
{
    uint32_t zero;
    if (!view->parts || view->parts_bytes - *at < FORMAT_LOG_PART_BYTES)
        return false;
    const uint8_t *from = view->parts + *at;
    memcpy(&part->address, from, 8);
    memcpy(&part->offset, from + 8, 4);
    memcpy(&part->length, from + 12, 4);
    memcpy(&part->whole, from + 16, 4);
    memcpy(&zero, from + 20, 4);
    part->bytes = from + FORMAT_LOG_PART_BYTES;
    if (zero || !part->length || part->length > view->parts_bytes - *at - FORMAT_LOG_PART_BYTES ||
        part->offset > part->whole || part->length > part->whole - part->offset)
        return false;
    *at += FORMAT_LOG_PART_BYTES + part->length;
    return true;
}

/* A carrier's bytes are parts, and nothing else. */
static bool parts_right(struct format_log_view *view)
{
    struct format_log_part part;
    uint32_t at = 0;
    view->parts = view->entries;
    view->parts_bytes = view->length;
    view->length = 0;
    view->last = 0;
    while (format_log_part_next(view, &at, &part))
        ;
    return at == view->parts_bytes;
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
    bool carrier;
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
    view->parts = NULL;
    view->parts_bytes = 0;
    if (!flags_decode(view, &carrier))
        return FORMAT_LOG_NOTHING;
    if (crc != crc32c(0, frame + 4, FORMAT_LOG_FRAME_BYTES - 4) || view->committed > position ||
        view->committed % FORMAT_LOG_BLOCK || !other_possible(&view->other))
        return FORMAT_LOG_NOTHING;
    view->entries = frame + FORMAT_LOG_FRAME_BYTES;
    view->length = length - FORMAT_LOG_FRAME_BYTES;
    view->bytes = (length + FORMAT_LOG_BLOCK - 1) / FORMAT_LOG_BLOCK * FORMAT_LOG_BLOCK;
    if (entries_crc != crc32c(0, view->entries, view->length) ||
        !(carrier ? parts_right(view) : entries_right(view)))
        return FORMAT_LOG_TORN;
    return FORMAT_LOG_WHOLE;
}
