/* message.c - see message.h: the codec. */
#include "owner/message.h"

#include <assert.h>
#include <string.h>

#define MESSAGE_VERSION 3u
#define REQUEST_MARK    'o'
#define REPLY_MARK      'O'
#define HEADER_BYTES    16u /* of a reply */
#define ITEM_BYTES      6u
#define ANSWER_BYTES    3u
#define FLAG_VALUE      1u
#define FLAG_REPLACED   2u /* of answers */

/* ---- writing ---- */

static void put_count(struct owner_writer *writer, size_t at)
{
    memcpy(writer->bytes + at, &writer->items, 2);
}

void owner_request_begin(struct owner_writer *writer, uint8_t *bytes, size_t capacity, uint16_t number,
                         uint64_t version, uint64_t given_up)
{
    assert(capacity >= OWNER_REQUEST_HEADER);
    *writer = (struct owner_writer){.bytes = bytes, .capacity = capacity, .length = OWNER_REQUEST_HEADER};
    memset(bytes, 0, OWNER_REQUEST_HEADER);
    bytes[0] = REQUEST_MARK;
    bytes[1] = MESSAGE_VERSION;
    memcpy(bytes + 2, &number, 2);
    memcpy(bytes + 8, &version, 8);
    memcpy(bytes + 16, &given_up, 8);
}

static void put(struct owner_writer *writer, const void *from, size_t length)
{
    if (length)
        memcpy(writer->bytes + writer->length, from, length);
    writer->length += length;
}

bool owner_request_add(struct owner_writer *writer, const struct owner_item *item)
{
    const size_t expected = item->expect == TREE_EXPECT_VALUE ? item->expected_length : 0;
    const size_t value = item->value ? item->length : 0;
    assert(item->key_length <= FORMAT_KEY_MAX && expected <= FORMAT_VALUE_MAX && value <= FORMAT_VALUE_MAX);
    if (writer->items == OWNER_MESSAGE_ITEMS ||
        writer->capacity - writer->length < ITEM_BYTES + item->key_length + expected + value)
        return false;
    const uint8_t header[ITEM_BYTES] = {
        (uint8_t)item->kind,       (uint8_t)item->expect, item->value ? FLAG_VALUE : 0,
        (uint8_t)item->key_length, (uint8_t)expected,     (uint8_t)value};
    put(writer, header, sizeof header);
    put(writer, item->key, item->key_length);
    put(writer, item->expected, expected);
    put(writer, item->value, value);
    writer->items++;
    put_count(writer, 4);
    return true;
}

void owner_reply_begin(struct owner_writer *writer, uint8_t *bytes, size_t capacity, uint64_t version)
{
    assert(capacity >= HEADER_BYTES);
    *writer = (struct owner_writer){.bytes = bytes, .capacity = capacity, .length = HEADER_BYTES};
    memset(bytes, 0, HEADER_BYTES);
    bytes[0] = REPLY_MARK;
    bytes[1] = MESSAGE_VERSION;
    memcpy(bytes + 8, &version, 8);
}

bool owner_reply_add(struct owner_writer *writer, const struct owner_answer *answer)
{
    const size_t value = answer->existed ? answer->length : 0;
    assert(value <= FORMAT_VALUE_MAX && answer->status <= 0 && answer->status >= ERROR_CODE_LOWEST);
    if (writer->items == OWNER_MESSAGE_ITEMS || writer->capacity - writer->length < ANSWER_BYTES + value)
        return false;
    const unsigned flags = (answer->existed ? FLAG_VALUE : 0) | (answer->replaced ? FLAG_REPLACED : 0);
    const uint8_t header[ANSWER_BYTES] = {(uint8_t)(int8_t)answer->status, (uint8_t)flags, (uint8_t)value};
    put(writer, header, sizeof header);
    put(writer, answer->value, value);
    writer->items++;
    put_count(writer, 2);
    return true;
}

/* ---- reading ---- */

static int open_message(struct owner_reader *reader, const void *bytes, size_t length, uint8_t mark,
                        size_t header)
{
    *reader = (struct owner_reader){.bytes = bytes, .length = length, .at = header};
    if (length < header || reader->bytes[0] != mark)
        return BANYAN_EINVAL;
    if (reader->bytes[1] != MESSAGE_VERSION)
        return BANYAN_EVERSION;
    memcpy(&reader->version, reader->bytes + 8, 8);
    return 0;
}

int owner_request_open(struct owner_reader *reader, const void *bytes, size_t length)
{
    int status = open_message(reader, bytes, length, REQUEST_MARK, OWNER_REQUEST_HEADER);
    if (status)
        return status;
    memcpy(&reader->number, reader->bytes + 2, 2);
    memcpy(&reader->items, reader->bytes + 4, 2);
    memcpy(&reader->given_up, reader->bytes + 16, 8);
    bool zero = !reader->bytes[6] && !reader->bytes[7];
    return zero && reader->items && reader->items <= OWNER_MESSAGE_ITEMS ? 0 : BANYAN_EINVAL;
}

int owner_reply_open(struct owner_reader *reader, const void *bytes, size_t length)
{
    int status = open_message(reader, bytes, length, REPLY_MARK, HEADER_BYTES);
    if (status)
        return status;
    memcpy(&reader->items, reader->bytes + 2, 2);
    uint32_t zero;
    memcpy(&zero, reader->bytes + 4, 4);
    return !zero && reader->items <= OWNER_MESSAGE_ITEMS ? 0 : BANYAN_EINVAL;
}

/* The next `length` bytes; NULL: there are fewer. */
static const uint8_t *take(struct owner_reader *reader, size_t length)
{
    if (reader->length - reader->at < length)
        return NULL;
    const uint8_t *at = reader->bytes + reader->at;
    reader->at += length;
    return at;
}

/* Whether another follows; the status to return if not. */
static bool more(const struct owner_reader *reader, int *status)
{
    *status = reader->at == reader->length ? BANYAN_ENOTFOUND : BANYAN_EINVAL;
    return reader->taken < reader->items;
}

static bool item_good(const struct owner_item *item, uint8_t flags)
{
    if (flags > FLAG_VALUE || item->expect > TREE_EXPECT_VALUE)
        return false;
    if (item->expect != TREE_EXPECT_VALUE && item->expected_length)
        return false;
    if (!flags && item->length)
        return false;
    switch (item->kind) {
    case OWNER_ITEM_LOOKUP:
    case OWNER_ITEM_SETTLED:
    case OWNER_ITEM_BORDER:
        return !flags && item->expect == TREE_EXPECT_ANYTHING;
    case OWNER_ITEM_MOVE:
        return flags == FLAG_VALUE && item->length == OWNER_MOVE_BYTES && !item->expected_length &&
               item->expect == TREE_EXPECT_ANYTHING;
    case OWNER_ITEM_EXCHANGE:
        return true;
    default:
        return false;
    }
}

int owner_request_next(struct owner_reader *reader, struct owner_item *item)
{
    int status;
    if (!more(reader, &status))
        return status;
    const uint8_t *header = take(reader, ITEM_BYTES);
    if (!header)
        return BANYAN_EINVAL;
    *item = (struct owner_item){.kind = header[0],
                                .expect = header[1],
                                .key_length = header[3],
                                .expected_length = header[4],
                                .length = header[5]};
    item->key = take(reader, item->key_length);
    item->expected = item->key ? take(reader, item->expected_length) : NULL;
    item->value = item->expected ? take(reader, item->length) : NULL;
    if (!item->value || !item_good(item, header[2]))
        return BANYAN_EINVAL;
    if (!header[2])
        item->value = NULL;
    reader->taken++;
    return 0;
}

int owner_reply_next(struct owner_reader *reader, struct owner_answer *answer)
{
    int status;
    if (!more(reader, &status))
        return status;
    const uint8_t *header = take(reader, ANSWER_BYTES);
    if (!header)
        return BANYAN_EINVAL;
    *answer = (struct owner_answer){.status = (int8_t)header[0],
                                    .existed = header[1] & FLAG_VALUE,
                                    .replaced = header[1] & FLAG_REPLACED,
                                    .length = header[2]};
    answer->value = take(reader, answer->length);
    if (!answer->value || header[1] > (FLAG_VALUE | FLAG_REPLACED) || (!answer->existed && answer->length) ||
        answer->status > 0 || answer->status < ERROR_CODE_LOWEST)
        return BANYAN_EINVAL;
    reader->taken++;
    return 0;
}
