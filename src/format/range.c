/* range.c - see range.h. */
#include "format/range.h"

#include <assert.h>
#include <string.h>

#include "base/crc32c.h"

#define LAYOUT_VERSION 1u
#define CRC_OFFSET     40u
#define UNCLAIMED      1u /* of the flags */
static_assert(CRC_OFFSET + 4 == FORMAT_RANGE_VALUE_BYTES, "the CRC stands last");

static uint32_t crc_of(const uint8_t *key, size_t key_length, const uint8_t *value)
{
    return crc32c(crc32c(0, key, key_length), value, CRC_OFFSET);
}

static size_t key_encode(const struct format_range *range, uint8_t *key)
{
    key[0] = (uint8_t)(range->number >> 8);
    key[1] = (uint8_t)range->number;
    memcpy(key + 2, range->lower, range->lower_length);
    return 2u + range->lower_length;
}

size_t format_range_encode(const struct format_range *range, uint8_t key[FORMAT_KEY_MAX],
                           uint8_t value[FORMAT_RANGE_VALUE_BYTES])
{
    assert(range->state < FORMAT_RANGE_STATES && range->lower_length <= FORMAT_RANGE_LOWER_MAX);
    assert((range->owner.compute_id == 0) == (range->owner.instance == 0));
    assert((range->next.compute_id == 0) == (range->next.instance == 0));
    size_t length = key_encode(range, key);
    memset(value, 0, FORMAT_RANGE_VALUE_BYTES);
    value[0] = LAYOUT_VERSION;
    value[1] = range->state;
    memcpy(value + 2, &range->owner.compute_id, 2);
    memcpy(value + 4, &range->next.compute_id, 2);
    value[6] = range->unclaimed ? UNCLAIMED : 0;
    memcpy(value + 8, &range->owner.instance, 8);
    memcpy(value + 16, &range->next.instance, 8);
    memcpy(value + 24, &range->epoch, 8);
    memcpy(value + 32, &range->version, 8);
    uint32_t crc = crc_of(key, length, value);
    memcpy(value + CRC_OFFSET, &crc, 4);
    return length;
}

/* What the fields say of each other. */
static const char *judge(const struct format_range *range)
{
    bool moves = range->state == FORMAT_RANGE_MOVING;
    if (range->state >= FORMAT_RANGE_STATES)
        return "has a state that there is not";
    if ((range->owner.compute_id == 0) != (range->owner.instance == 0) ||
        (range->next.compute_id == 0) != (range->next.instance == 0))
        return "names a process by half";
    if (moves && fabric_process_equal(range->owner, range->next))
        return "moves to where it is";
    if (!moves && range->next.compute_id)
        return "has a next owner and does not move";
    if (range->state == FORMAT_RANGE_CLOSED && range->owner.compute_id)
        return "is closed and has an owner";
    if (range->unclaimed && (moves ? range->next.compute_id : range->owner.compute_id))
        return "is unclaimed and has an owner";
    if (range->unclaimed && range->state == FORMAT_RANGE_CLOSED)
        return "is unclaimed and closed";
    if (range->epoch > range->version)
        return "has an epoch that is later than its version";
    return NULL;
}

const char *format_range_decode(const uint8_t *key, size_t key_length, const uint8_t *value, size_t length,
                                struct format_range *range)
{
    uint32_t crc;
    uint16_t flags;
    memset(range, 0, sizeof *range);
    if (key_length < 2 || key_length > FORMAT_KEY_MAX)
        return "has a key of an impossible length";
    range->number = (uint16_t)(key[0] << 8 | key[1]);
    range->lower_length = (uint8_t)(key_length - 2);
    memcpy(range->lower, key + 2, range->lower_length);
    if (length != FORMAT_RANGE_VALUE_BYTES)
        return "has a value of another length";
    if (value[0] != LAYOUT_VERSION)
        return "is of another version of Banyan";
    memcpy(&crc, value + CRC_OFFSET, 4);
    memcpy(&flags, value + 6, 2);
    if (crc != crc_of(key, key_length, value) || flags > UNCLAIMED)
        return "fails its check";
    range->unclaimed = flags == UNCLAIMED;
    range->state = value[1];
    memcpy(&range->owner.compute_id, value + 2, 2);
    memcpy(&range->next.compute_id, value + 4, 2);
    memcpy(&range->owner.instance, value + 8, 8);
    memcpy(&range->next.instance, value + 16, 8);
    memcpy(&range->epoch, value + 24, 8);
    memcpy(&range->version, value + 32, 8);
    return judge(range);
}

const char *format_range_follows(const struct format_range *left, const struct format_range *range)
{
    if (!left) {
        if (range->lower_length)
            return "is its index's first, and does not begin at the least key";
        return range->state == FORMAT_RANGE_SPLIT ? "is its index's first, and belongs to the one on its left"
                                                  : NULL;
    }
    assert(left->number == range->number);
    if (format_range_compare(left, range) >= 0)
        return "does not lie behind the one before";
    if (left->state == FORMAT_RANGE_CLOSED || range->state == FORMAT_RANGE_CLOSED)
        return "stands in a closed index that has other entries";
    if (range->state == FORMAT_RANGE_SPLIT &&
        (!fabric_process_equal(left->owner, range->owner) || left->state == FORMAT_RANGE_MOVING))
        return "belongs to the one on its left, which has another owner";
    return NULL;
}

int format_range_compare(const struct format_range *a, const struct format_range *b)
{
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    size_t common = a->lower_length < b->lower_length ? a->lower_length : b->lower_length;
    int order = memcmp(a->lower, b->lower, common);
    return order ? order : (int)a->lower_length - (int)b->lower_length;
}
