/* format.c - see format.h. */
#include "persist/format.h"

#include <assert.h>
#include <string.h>

#define FRAME_ALONE 1u
#define FRAME_TWICE 2u

enum persist_kind persist_frame_encode(const struct persist_frame *frame,
                                       uint8_t header[PERSIST_FRAME_HEADER])
{
    const uint16_t flags = (uint16_t)((frame->alone ? FRAME_ALONE : 0) | (frame->twice ? FRAME_TWICE : 0));
    memcpy(header, &frame->process.instance, 8);
    memcpy(header + 8, &frame->view.first, 8);
    memcpy(header + 16, &frame->view.count, 4);
    memcpy(header + 20, &frame->process.compute_id, 2);
    memcpy(header + 22, &frame->node, 2);
    if (!frame->tells)
        return PERSIST_FRAME;
    assert(frame->view.count <= UINT16_MAX);
    memcpy(header + 18, &flags, 2);
    return PERSIST_FRAME_TELLING;
}

/* Whether the entries are as many as the header says, and end where the bytes do. */
static bool entries_right(const struct format_log_view *view)
{
    struct format_log_entry entry;
    uint32_t at = 0, count = 0;
    while (format_log_frame_next(view, &at, &entry))
        count++;
    return count == view->count && at == view->length;
}

bool persist_frame_decode(uint8_t kind, const uint8_t *bytes, uint32_t length, struct persist_frame *frame)
{
    *frame = (struct persist_frame){.tells = kind == PERSIST_FRAME_TELLING};
    if (length < PERSIST_FRAME_HEADER)
        return false;
    memcpy(&frame->process.instance, bytes, 8);
    memcpy(&frame->view.first, bytes + 8, 8);
    memcpy(&frame->view.count, bytes + 16, 4);
    memcpy(&frame->process.compute_id, bytes + 20, 2);
    memcpy(&frame->node, bytes + 22, 2);
    const uint32_t flags = frame->tells ? frame->view.count >> 16 : 0;
    frame->view.count -= flags << 16;
    frame->alone = flags & FRAME_ALONE;
    frame->twice = flags & FRAME_TWICE;
    if (flags > (FRAME_ALONE | FRAME_TWICE))
        return false;
    frame->view.entries = bytes + PERSIST_FRAME_HEADER;
    frame->view.length = length - PERSIST_FRAME_HEADER;
    return frame->process.instance && frame->view.count && entries_right(&frame->view);
}

#define VALUE_DELETED 1u
#define VALUE_APART   2u

uint32_t persist_value_bytes(const struct persist_value *value)
{
    return PERSIST_VALUE_HEADER + value->key.length + (value->bytes ? value->length : 0);
}

void persist_value_encode(const struct persist_value *value, uint8_t *to)
{
    to[0] = (uint8_t)((value->deleted ? VALUE_DELETED : 0) | (value->apart ? VALUE_APART : 0));
    to[1] = (uint8_t)value->key.length;
    memcpy(to + 2, &value->index, 2);
    memcpy(to + 4, &value->length, 4);
    memcpy(to + 8, &value->expires, 8);
    if (value->key.length)
        memcpy(to + PERSIST_VALUE_HEADER, value->key.bytes, value->key.length);
    if (value->bytes && value->length)
        memcpy(to + PERSIST_VALUE_HEADER + value->key.length, value->bytes, value->length);
}

int persist_value_next(const uint8_t *bytes, uint32_t length, uint32_t *at, struct persist_value *value)
{
    const uint8_t *from = bytes + *at;
    const uint32_t left = length - *at;
    *value = (struct persist_value){.bytes = NULL};
    if (!left)
        return 0;
    if (left < PERSIST_VALUE_HEADER || from[0] > VALUE_APART)
        return BANYAN_ECORRUPT;
    value->deleted = from[0] == VALUE_DELETED;
    value->apart = from[0] == VALUE_APART;
    value->key = (struct format_key){from + PERSIST_VALUE_HEADER, from[1]};
    memcpy(&value->index, from + 2, 2);
    memcpy(&value->length, from + 4, 4);
    memcpy(&value->expires, from + 8, 8);
    const uint32_t here = value->deleted || value->apart ? 0 : value->length;
    if (here > PERSIST_VALUE_SHORT || left < PERSIST_VALUE_HEADER + value->key.length + here ||
        (value->deleted && value->length) || (value->apart && value->length <= PERSIST_VALUE_SHORT))
        return BANYAN_ECORRUPT;
    if (!value->deleted && !value->apart)
        value->bytes = value->key.bytes + value->key.length;
    *at += persist_value_bytes(value);
    return 1;
}

#define INDEX_DENSE 3u /* a bit of byte 12 */

uint32_t persist_index_encode(const struct persist_index *index, uint8_t to[PERSIST_INDEX_BYTES])
{
    const struct format_geometry *geometry = &index->geometry;
    assert(index->name_length <= UINT8_MAX);
    memcpy(to, &index->number, 2);
    to[2] = index->gone;
    to[3] = (uint8_t)index->name_length;
    memcpy(to + 4, &geometry->leaf_bytes, 4);
    memcpy(to + 8, &geometry->internal_bytes, 4);
    to[12] = (uint8_t)(geometry->key_kind | (geometry->leaf_kind >> 1) << INDEX_DENSE);
    to[13] = geometry->leaf_kind & 1;
    to[14] = geometry->key_bytes;
    to[15] = geometry->inline_key_bytes;
    to[16] = geometry->value_bytes;
    to[17] = geometry->value_variable;
    to[18] = geometry->content;
    to[19] = geometry->subtree_levels;
    if (index->name_length)
        memcpy(to + PERSIST_INDEX_HEADER, index->name, index->name_length);
    return PERSIST_INDEX_HEADER + index->name_length;
}

bool persist_index_decode(const uint8_t *bytes, uint32_t length, struct persist_index *index)
{
    struct format_geometry *geometry = &index->geometry;
    *index = (struct persist_index){.number = 0};
    if (length < PERSIST_INDEX_HEADER || bytes[2] > 1 || bytes[17] > 1 ||
        length != PERSIST_INDEX_HEADER + bytes[3])
        return false;
    memcpy(&index->number, bytes, 2);
    index->gone = bytes[2];
    index->name_length = bytes[3];
    index->name = (const char *)bytes + PERSIST_INDEX_HEADER;
    memcpy(&geometry->leaf_bytes, bytes + 4, 4);
    memcpy(&geometry->internal_bytes, bytes + 8, 4);
    geometry->key_kind = (uint8_t)(bytes[12] & ~(1u << INDEX_DENSE));
    geometry->leaf_kind = (uint8_t)(bytes[13] | (bytes[12] >> INDEX_DENSE & 1) << 1);
    geometry->key_bytes = bytes[14];
    geometry->inline_key_bytes = bytes[15];
    geometry->value_bytes = bytes[16];
    geometry->value_variable = bytes[17];
    geometry->content = bytes[18];
    geometry->subtree_levels = bytes[19];
    const bool named = index->number && !index->gone;
    return named == (index->name_length > 0) && !memchr(index->name, 0, index->name_length) &&
           bytes[13] <= 1 && geometry->key_kind <= FORMAT_KEY_VARIABLE &&
           geometry->leaf_kind <= FORMAT_LEAF_KIND_LAST && geometry->content <= FORMAT_CONTENT_STORE &&
           geometry->subtree_levels <= FORMAT_SUBTREE_LEVELS_MAX;
}
