/* part.c - see part.h. */
#include "owner/part.h"

#include <assert.h>
#include <string.h>

#define PART_VERSION   1u
#define REPLY_MARK     'S'
#define HEADER_BYTES   24u /* of a request */
#define REPLY_BYTES    16u
#define ENTRY_BYTES    2u
#define FLAG_REVERSE   1u
#define FLAG_FROM      2u
#define FLAG_FROM_OPEN 4u
#define FLAG_TO        8u
#define FLAG_TO_OPEN   16u
#define FLAGS          31u
#define FLAG_ENDED     1u /* of a reply */

/* ---- requests ---- */

size_t owner_part_request_write(uint8_t bytes[OWNER_PART_REQUEST_BYTES],
                                const struct owner_part_request *request)
{
    const struct tree_range *range = &request->range;
    const size_t from = range->from ? range->from_length : 0, to = range->to ? range->to_length : 0;
    const uint32_t limit = range->limit > UINT32_MAX ? 0 : (uint32_t)range->limit;
    const uint16_t flags =
        (uint16_t)((range->reverse ? FLAG_REVERSE : 0) | (range->from ? FLAG_FROM : 0) |
                   (range->from && range->from_open ? FLAG_FROM_OPEN : 0) | (range->to ? FLAG_TO : 0) |
                   (range->to && range->to_open ? FLAG_TO_OPEN : 0));
    assert(from <= FORMAT_KEY_MAX && to <= FORMAT_KEY_MAX);
    memset(bytes, 0, HEADER_BYTES);
    bytes[0] = OWNER_PART_MARK;
    bytes[1] = PART_VERSION;
    memcpy(bytes + 2, &request->number, 2);
    memcpy(bytes + 4, &flags, 2);
    bytes[6] = (uint8_t)from;
    bytes[7] = (uint8_t)to;
    memcpy(bytes + 8, &request->version, 8);
    memcpy(bytes + 16, &limit, 4);
    if (from)
        memcpy(bytes + HEADER_BYTES, range->from, from);
    if (to)
        memcpy(bytes + HEADER_BYTES + from, range->to, to);
    return HEADER_BYTES + from + to;
}

static bool flags_good(uint16_t flags, size_t from, size_t to)
{
    if (flags > FLAGS)
        return false;
    if (!(flags & FLAG_FROM) && (from || flags & FLAG_FROM_OPEN))
        return false;
    return flags & FLAG_TO || (!to && !(flags & FLAG_TO_OPEN));
}

int owner_part_request_read(const void *bytes, size_t length, struct owner_part_request *request)
{
    const uint8_t *at = bytes;
    uint16_t flags;
    uint32_t limit, zero;
    if (length < HEADER_BYTES || at[0] != OWNER_PART_MARK)
        return BANYAN_EINVAL;
    if (at[1] != PART_VERSION)
        return BANYAN_EVERSION;
    const size_t from = at[6], to = at[7];
    memcpy(&flags, at + 4, 2);
    memcpy(&limit, at + 16, 4);
    memcpy(&zero, at + 20, 4);
    if (zero || length != HEADER_BYTES + from + to || !flags_good(flags, from, to))
        return BANYAN_EINVAL;
    *request = (struct owner_part_request){.range = {.from = flags & FLAG_FROM ? at + HEADER_BYTES : NULL,
                                                     .from_length = from,
                                                     .from_open = flags & FLAG_FROM_OPEN,
                                                     .to = flags & FLAG_TO ? at + HEADER_BYTES + from : NULL,
                                                     .to_length = to,
                                                     .to_open = flags & FLAG_TO_OPEN,
                                                     .reverse = flags & FLAG_REVERSE,
                                                     .limit = limit}};
    memcpy(&request->number, at + 2, 2);
    memcpy(&request->version, at + 8, 8);
    return 0;
}

/* ---- writing a reply ---- */

void owner_part_begin(struct owner_part_writer *writer, uint8_t *bytes)
{
    *writer = (struct owner_part_writer){.bytes = bytes, .length = REPLY_BYTES};
}

bool owner_part_add(struct owner_part_writer *writer, const void *key, size_t key_length, const void *value,
                    size_t length)
{
    assert(key_length <= FORMAT_KEY_MAX && length <= FORMAT_VALUE_MAX);
    /* There stays room for the bound. */
    if (writer->entries == UINT16_MAX ||
        OWNER_PART_BYTES - FORMAT_KEY_MAX - writer->length < ENTRY_BYTES + key_length + length)
        return false;
    uint8_t *at = writer->bytes + writer->length;
    at[0] = (uint8_t)key_length;
    at[1] = (uint8_t)length;
    if (key_length)
        memcpy(at + ENTRY_BYTES, key, key_length);
    if (length)
        memcpy(at + ENTRY_BYTES + key_length, value, length);
    writer->length += ENTRY_BYTES + key_length + length;
    writer->entries++;
    return true;
}

void owner_part_end(struct owner_part_writer *writer, int status, const struct tree_scan_end *end,
                    uint64_t version)
{
    uint8_t *bytes = writer->bytes;
    assert(status <= 0 && status >= ERROR_CODE_LOWEST);
    if (status) {
        writer->length = REPLY_BYTES;
        writer->entries = 0;
    }
    const bool more = !status && !end->ended;
    memset(bytes, 0, REPLY_BYTES);
    bytes[0] = REPLY_MARK;
    bytes[1] = PART_VERSION;
    bytes[2] = (uint8_t)(int8_t)status;
    bytes[3] = !status && end->ended ? FLAG_ENDED : 0;
    memcpy(bytes + 4, &writer->entries, 2);
    bytes[6] = (uint8_t)(more ? end->next.length : 0);
    memcpy(bytes + 8, &version, 8);
    if (more) {
        memcpy(bytes + writer->length, end->next.bytes, end->next.length);
        writer->length += end->next.length;
    }
}

/* ---- reading a reply ---- */

bool owner_part_next(struct owner_part_reader *reader, struct format_key *key, struct format_key *value)
{
    if (reader->taken == reader->entries)
        return false;
    const uint8_t *at = reader->bytes + reader->at;
    *key = (struct format_key){at + ENTRY_BYTES, at[0]};
    *value = (struct format_key){at + ENTRY_BYTES + at[0], at[1]};
    reader->at += ENTRY_BYTES + at[0] + at[1];
    reader->taken++;
    return true;
}

static bool within(const struct tree_range *range, struct format_key key)
{
    const struct format_key from = {range->from, (uint32_t)range->from_length},
                            to = {range->to, (uint32_t)range->to_length};
    int order = range->from ? format_key_compare(key, from) : 1;
    if (order < 0 || (!order && range->from_open))
        return false;
    order = range->to ? format_key_compare(key, to) : -1;
    return order < 0 || (!order && !range->to_open);
}

/* What is due next: behind the last entry, and further on than where the range begins. */
static bool next_good(const struct owner_part_reader *reader, const struct tree_range *asked,
                      const struct format_key *last)
{
    const struct format_key next = format_key_of(&reader->end.next);
    if (!next.length)
        return false;
    if (asked->reverse) {
        if (last)
            return format_key_compare(next, *last) <= 0;
        return !asked->to ||
               format_key_compare(next, (struct format_key){asked->to, (uint32_t)asked->to_length}) < 0;
    }
    if (last)
        return format_key_compare(next, *last) > 0;
    return !asked->from ||
           format_key_compare(next, (struct format_key){asked->from, (uint32_t)asked->from_length}) > 0;
}

/* Whether the entries fill `length` bytes, in order and in the range; *last: the last one. */
static bool entries_good(const struct owner_part_reader *reader, size_t length,
                         const struct tree_range *asked, struct format_key *last)
{
    struct owner_part_reader walk = *reader;
    struct format_key key, value, before = {0};
    while (walk.taken < walk.entries) {
        if (length - walk.at < ENTRY_BYTES)
            return false;
        const uint8_t *at = walk.bytes + walk.at;
        if (length - walk.at - ENTRY_BYTES < (size_t)at[0] + at[1])
            return false;
        const bool first = !walk.taken;
        owner_part_next(&walk, &key, &value);
        int order = first ? 0 : format_key_compare(before, key);
        if (!within(asked, key) || (!first && (asked->reverse ? order <= 0 : order >= 0)))
            return false;
        before = key;
    }
    *last = before;
    return walk.at == length;
}

int owner_part_open(struct owner_part_reader *reader, const void *bytes, size_t length,
                    const struct tree_range *asked)
{
    const uint8_t *at = bytes;
    struct format_key last;
    if (length < REPLY_BYTES || at[0] != REPLY_MARK)
        return BANYAN_EINVAL;
    if (at[1] != PART_VERSION)
        return BANYAN_EVERSION;
    *reader = (struct owner_part_reader){.bytes = at, .at = REPLY_BYTES, .status = (int8_t)at[2]};
    memcpy(&reader->entries, at + 4, 2);
    memcpy(&reader->version, at + 8, 8);
    const size_t next = at[6];
    if (at[7] || at[3] > FLAG_ENDED || length - REPLY_BYTES < next || reader->status > 0 ||
        reader->status < ERROR_CODE_LOWEST)
        return BANYAN_EINVAL;
    if (reader->status)
        return at[3] || next || reader->entries || length != REPLY_BYTES ? BANYAN_EINVAL : 0;
    if ((asked->limit && reader->entries > asked->limit) ||
        !entries_good(reader, length - next, asked, &last))
        return BANYAN_EINVAL;
    reader->end.ended = at[3];
    format_key_store(&reader->end.next, (struct format_key){at + length - next, (uint32_t)next});
    if (reader->end.ended)
        return next ? BANYAN_EINVAL : 0;
    return next_good(reader, asked, reader->entries ? &last : NULL) ? 0 : BANYAN_EINVAL;
}
