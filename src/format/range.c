/* range.c - see range.h. */
#include "format/range.h"

#include <assert.h>
#include <string.h>

#include "base/crc32c.h"

#define LAYOUT_VERSION  2u
#define HEIRS_OFFSET    40u
#define INSTANCE_OFFSET 48u
#define EPOCH_OFFSET    72u
#define CRC_OFFSET      96u
/* Of the flags. */
#define UNCLAIMED 1u
#define LOGGED    2u
#define INHERITED 4u
#define NEXT      8u
#define FLAGS     (UNCLAIMED | LOGGED | INHERITED | NEXT)
static_assert(HEIRS_OFFSET + 2 * FORMAT_RANGE_HEIRS_MAX + 2 == INSTANCE_OFFSET, "the instances are aligned");
static_assert(INSTANCE_OFFSET + 8 * FORMAT_RANGE_HEIRS_MAX == EPOCH_OFFSET, "the epochs stand behind them");
static_assert(EPOCH_OFFSET + 8 * FORMAT_RANGE_HEIRS_MAX == CRC_OFFSET, "the heirs stand before the CRC");
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
    assert(range->heir_count <= FORMAT_RANGE_HEIRS_MAX);
    size_t length = key_encode(range, key);
    memset(value, 0, FORMAT_RANGE_VALUE_BYTES);
    value[0] = LAYOUT_VERSION;
    value[1] = range->state;
    memcpy(value + 2, &range->owner.compute_id, 2);
    memcpy(value + 4, &range->next.compute_id, 2);
    value[6] = (uint8_t)((range->unclaimed ? UNCLAIMED : 0) | (range->logged ? LOGGED : 0) |
                         (range->inherited ? INHERITED : 0) | (range->logged_next ? NEXT : 0));
    memcpy(value + 8, &range->owner.instance, 8);
    memcpy(value + 16, &range->next.instance, 8);
    memcpy(value + 24, &range->epoch, 8);
    memcpy(value + 32, &range->version, 8);
    for (uint32_t i = 0; i < range->heir_count; i++) {
        memcpy(value + HEIRS_OFFSET + 2 * i, &range->heirs[i].process.compute_id, 2);
        memcpy(value + INSTANCE_OFFSET + 8 * i, &range->heirs[i].process.instance, 8);
        memcpy(value + EPOCH_OFFSET + 8 * i, &range->heirs[i].epoch, 8);
    }
    uint32_t crc = crc_of(key, length, value);
    memcpy(value + CRC_OFFSET, &crc, 4);
    return length;
}

/* Those that are named stand first, each is named whole, and they come in their order. */
static const char *judge_heirs(const struct format_range *range)
{
    for (uint32_t i = 0; i < FORMAT_RANGE_HEIRS_MAX; i++) {
        const struct fabric_process heir = range->heirs[i].process;
        const uint64_t epoch = range->heirs[i].epoch;
        if ((heir.compute_id == 0) != (heir.instance == 0))
            return "names a process by half";
        if ((heir.compute_id == 0) != (i >= range->heir_count))
            return "has a gap among its heirs";
        if (i < range->heir_count ? epoch >= range->epoch : epoch != 0)
            return "has an heir that had it later";
        if (i && i < range->heir_count && epoch <= range->heirs[i - 1].epoch)
            return "has heirs in disorder";
    }
    if (range->heir_count && !range->owner.compute_id)
        return "has heirs and no owner";
    if (range->heir_count && range->state == FORMAT_RANGE_MOVING && !range->inherited)
        return "has heirs and moves without them";
    return NULL;
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
    if (range->logged && !range->owner.compute_id)
        return "is logged and has no owner";
    if (range->logged_next && !range->next.compute_id)
        return "is to be logged and has no next owner";
    if (range->inherited && (!moves || !range->next.compute_id || !format_range_unmerged(range)))
        return "is inherited, and there is nothing to inherit or no one who does";
    return judge_heirs(range);
}

const char *format_range_decode(const uint8_t *key, size_t key_length, const uint8_t *value, size_t length,
                                struct format_range *range)
{
    uint32_t crc;
    uint16_t flags, zero;
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
    memcpy(&zero, value + INSTANCE_OFFSET - 2, 2);
    if (crc != crc_of(key, key_length, value) || flags > FLAGS || zero)
        return "fails its check";
    range->unclaimed = flags & UNCLAIMED;
    range->logged = flags & LOGGED;
    range->inherited = flags & INHERITED;
    range->logged_next = flags & NEXT;
    range->state = value[1];
    memcpy(&range->owner.compute_id, value + 2, 2);
    memcpy(&range->next.compute_id, value + 4, 2);
    memcpy(&range->owner.instance, value + 8, 8);
    memcpy(&range->next.instance, value + 16, 8);
    memcpy(&range->epoch, value + 24, 8);
    memcpy(&range->version, value + 32, 8);
    for (uint32_t i = 0; i < FORMAT_RANGE_HEIRS_MAX; i++) {
        memcpy(&range->heirs[i].process.compute_id, value + HEIRS_OFFSET + 2 * i, 2);
        memcpy(&range->heirs[i].process.instance, value + INSTANCE_OFFSET + 8 * i, 8);
        memcpy(&range->heirs[i].epoch, value + EPOCH_OFFSET + 8 * i, 8);
        range->heir_count = (uint8_t)(range->heir_count + (range->heirs[i].process.compute_id != 0));
    }
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
    if (range->state == FORMAT_RANGE_SPLIT &&
        (left->logged != range->logged || !format_range_same_heirs(left, range)))
        return "belongs to the one on its left, whose log is another";
    return NULL;
}

bool format_range_same_heirs(const struct format_range *a, const struct format_range *b)
{
    bool same = a->heir_count == b->heir_count;
    for (uint32_t i = 0; i < a->heir_count && same; i++)
        same = fabric_process_equal(a->heirs[i].process, b->heirs[i].process) &&
               a->heirs[i].epoch == b->heirs[i].epoch;
    return same;
}

int format_range_compare(const struct format_range *a, const struct format_range *b)
{
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    size_t common = a->lower_length < b->lower_length ? a->lower_length : b->lower_length;
    int order = memcmp(a->lower, b->lower, common);
    return order ? order : (int)a->lower_length - (int)b->lower_length;
}
