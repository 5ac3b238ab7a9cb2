/*
 * bits.c - SETBIT, GETBIT, BITCOUNT, BITPOS, and the table of all commands about bits (BITFIELD's stand in
 * bitfield.c, BITOP in bitop.c). On fibers. Replies and errors are those of Redis 7.0. They read and write
 * the part of the value that they are about: a long value's other pieces are not touched.
 */
#include "server/commands/bits.h"
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/replies.h"

#include <string.h>

#define OFFSET_ERROR "ERR bit offset is not an integer or out of range"

/* ---- arguments ---- */

static bool offset_read(const struct resp_argument *argument, unsigned width, int64_t *offset)
{
    bool scaled = width && argument->length && argument->bytes[0] == '#';
    if (!server_integer_parse(argument->bytes + scaled, argument->length - scaled, offset))
        return false;
    if (scaled && __builtin_mul_overflow(*offset, (int64_t)width, offset))
        return false;
    return *offset >= 0 && *offset >> 3 < BITS_VALUE_MAX;
}

bool bits_offset(struct server_call *call, const struct resp_argument *argument, unsigned width,
                 int64_t *offset)
{
    if (offset_read(argument, width, offset))
        return true;
    resp_error(call->reply, OFFSET_ERROR);
    return false;
}

/* A run of bits; none where it is empty. */
struct bit_range {
    int64_t first, last;
    bool end_given;
};

enum range_verdict { RANGE_GOOD, RANGE_NOT_INTEGER, RANGE_SYNTAX };

static bool unit_read(const struct resp_argument *argument, bool *bits)
{
    *bits = server_argument_is(argument, "BIT");
    return *bits || server_argument_is(argument, "BYTE");
}

static int64_t from_end(int64_t at, int64_t total)
{
    at = at < 0 ? at + total : at;
    return at < 0 ? 0 : at;
}

/* What BITCOUNT's and BITPOS's arguments mean for a value of `whole` bytes. */
static void range_place(struct bit_range *range, int64_t start, int64_t end, bool bits, uint64_t whole)
{
    int64_t total = bits ? (int64_t)whole * 8 : (int64_t)whole;
    start = from_end(start, total);
    end = from_end(end, total);
    end = end >= total ? total - 1 : end;
    range->first = 0;
    range->last = -1;
    if (start > end) /* first: what begins behind the end may be too far to be told in bits */
        return;
    range->first = bits ? start : start * 8;
    range->last = bits ? end : end * 8 + 7;
}

static bool integer_read(const struct resp_argument *argument, int64_t *value)
{
    return server_integer_parse(argument->bytes, argument->length, value);
}

/* BITCOUNT key [start end [BYTE|BIT]] */
static enum range_verdict count_range(const struct resp_argument *arguments, uint32_t count, uint64_t whole,
                                      struct bit_range *range)
{
    int64_t start = 0, end = -1;
    bool bits = false;
    *range = (struct bit_range){.first = 0, .last = -1};
    if (count == 3 || count > 5)
        return RANGE_SYNTAX;
    if (count > 3 && (!integer_read(&arguments[2], &start) || !integer_read(&arguments[3], &end)))
        return RANGE_NOT_INTEGER;
    if (count > 3 && start < 0 && end < 0 && start > end)
        return RANGE_GOOD;
    if (count == 5 && !unit_read(&arguments[4], &bits))
        return RANGE_SYNTAX;
    range_place(range, start, end, bits, whole);
    return RANGE_GOOD;
}

/* BITPOS key bit [start [end [BYTE|BIT]]] */
static enum range_verdict position_range(const struct resp_argument *arguments, uint32_t count,
                                         uint64_t whole, struct bit_range *range)
{
    int64_t start = 0, end = -1;
    bool bits = false;
    *range = (struct bit_range){.first = 0, .last = -1, .end_given = count > 4};
    if (count > 6)
        return RANGE_SYNTAX;
    if (count > 3 && !integer_read(&arguments[3], &start))
        return RANGE_NOT_INTEGER;
    if (count == 6 && !unit_read(&arguments[5], &bits))
        return RANGE_SYNTAX;
    if (count > 4 && !integer_read(&arguments[4], &end))
        return RANGE_NOT_INTEGER;
    range_place(range, start, end, bits, whole);
    return RANGE_GOOD;
}

static void range_error(struct server_call *call, enum range_verdict verdict)
{
    if (verdict == RANGE_SYNTAX)
        server_reply_syntax(call);
    else
        server_reply_not_integer(call);
}

/* The bytes that the range touches. */
static struct store_part range_part(const struct bit_range *range)
{
    if (range->first > range->last)
        return (struct store_part){0};
    return (struct store_part){.offset = (uint64_t)range->first >> 3,
                               .length = (uint64_t)((range->last >> 3) - (range->first >> 3) + 1)};
}

/* The bits of a byte from `first` to `last`, counted from its highest one. */
static uint8_t mask_of(int64_t first, int64_t last)
{
    return (uint8_t)(0xff >> first & 0xff << (7 - last));
}

/* ---- GETBIT ---- */

static struct store_part getbit_part(const struct resp_argument *arguments, uint32_t count, uint64_t whole)
{
    int64_t offset;
    if (!offset_read(&arguments[2], 0, &offset))
        return (struct store_part){0};
    return (struct store_part){.offset = (uint64_t)offset >> 3, .length = 1};
}

static void getbit_point(struct server_call *call, const struct store_value *value)
{
    int64_t offset;
    if (!bits_offset(call, &call->arguments[2], 0, &offset))
        return;
    server_call_count(call, value);
    bool byte = value && value->length;
    resp_integer(call->reply, byte ? value->bytes[0] >> (7 - (offset & 7)) & 1 : 0);
}

/* ---- SETBIT ---- */

struct set_bit {
    uint64_t byte;
    uint8_t mask;
    bool on;
    bool inside; /* the value has that byte */
    bool was;
};

static enum store_verdict setbit_aim(void *context, bool existed, uint64_t whole, struct store_edit *edit)
{
    struct set_bit *bit = context;
    bit->inside = bit->byte < whole;
    *edit = (struct store_edit){.offset = bit->byte, .length = 1};
    return STORE_PUT;
}

static enum store_verdict setbit_change(void *context, const struct store_edit *edit, uint8_t *bytes)
{
    struct set_bit *bit = context;
    bit->was = *bytes & bit->mask;
    if (bit->inside && bit->was == bit->on)
        return STORE_KEEP;
    *bytes = (uint8_t)((*bytes & ~bit->mask) | (bit->on ? bit->mask : 0));
    return STORE_PUT;
}

static void setbit_run(struct server_call *call)
{
    const struct resp_argument *key = &call->arguments[1], *value = &call->arguments[3];
    int64_t offset, on;
    if (!bits_offset(call, &call->arguments[2], 0, &offset))
        return;
    if (!server_integer_parse(value->bytes, value->length, &on) || on & ~1) {
        resp_error(call->reply, "ERR bit is not an integer or out of range");
        return;
    }
    if (!server_argument_key(call, key))
        return;
    struct set_bit bit = {.byte = (uint64_t)offset >> 3, .mask = (uint8_t)(0x80 >> (offset & 7)), .on = on};
    const struct store_editor editor = {setbit_aim, setbit_change, &bit};
    uint64_t whole;
    int status = store_edit(call->store, key->bytes, key->length, &editor, &whole, NULL);
    if (!status)
        resp_integer(call->reply, bit.was);
    else if (status == BANYAN_EVALUESIZE)
        server_reply_too_long(call);
    else
        server_reply_failure(call, status);
}

/* ---- BITCOUNT ---- */

static struct store_part bitcount_part(const struct resp_argument *arguments, uint32_t count, uint64_t whole)
{
    struct bit_range range;
    count_range(arguments, count, whole, &range);
    return range_part(&range);
}

static int64_t count_bits(const uint8_t *bytes, uint64_t length)
{
    int64_t count = 0;
    uint64_t word;
    for (; length >= 8; bytes += 8, length -= 8) {
        memcpy(&word, bytes, 8);
        count += __builtin_popcountll(word);
    }
    for (; length; bytes++, length--)
        count += __builtin_popcount(*bytes);
    return count;
}

/* The bits of the bytes that are outside of the range: before its first and behind its last. */
static int64_t count_outside(const struct bit_range *range, const uint8_t *bytes, uint64_t length)
{
    uint8_t before = (uint8_t)~mask_of(range->first & 7, 7), behind = (uint8_t)~mask_of(0, range->last & 7);
    return __builtin_popcount(bytes[0] & before) + __builtin_popcount(bytes[length - 1] & behind);
}

static void bitcount_point(struct server_call *call, const struct store_value *value)
{
    struct bit_range range;
    server_call_count(call, value);
    if (!value) {
        resp_integer(call->reply, 0);
        return;
    }
    enum range_verdict verdict = count_range(call->arguments, call->count, value->whole, &range);
    if (verdict != RANGE_GOOD)
        range_error(call, verdict);
    else if (range.first > range.last)
        resp_integer(call->reply, 0);
    else
        resp_integer(call->reply, count_bits(value->bytes, value->length) -
                                      count_outside(&range, value->bytes, value->length));
}

/* ---- BITPOS ---- */

static struct store_part bitpos_part(const struct resp_argument *arguments, uint32_t count, uint64_t whole)
{
    struct bit_range range;
    position_range(arguments, count, whole, &range);
    return range_part(&range);
}

/* The first byte that is not all `fill`; `length` if there is none. */
static uint64_t skip_bytes(const uint8_t *bytes, uint64_t length, uint8_t fill)
{
    uint64_t at = 0, word, full = fill ? UINT64_MAX : 0;
    for (; length - at >= 8; at += 8) {
        memcpy(&word, bytes + at, 8);
        if (word != full)
            break;
    }
    while (at < length && bytes[at] == fill)
        at++;
    return at;
}

/* The first bit of the range that is `on`, or -1. The bytes begin with the range's first one. */
static int64_t find_bit(const struct bit_range *range, bool on, const uint8_t *bytes, uint64_t length)
{
    const uint8_t fill = on ? 0 : 0xff;
    const int64_t base = range->first & ~INT64_C(7);
    for (uint64_t at = 0; at < length; at++) {
        if (at)
            at += skip_bytes(bytes + at, length - at, fill);
        if (at == length)
            break;
        uint8_t mask = mask_of(at ? 0 : range->first & 7, at == length - 1 ? range->last & 7 : 7);
        uint8_t wanted = (uint8_t)(bytes[at] ^ fill) & mask;
        if (wanted)
            return base + (int64_t)at * 8 + __builtin_clz(wanted) - 24;
    }
    return -1;
}

static void bitpos_point(struct server_call *call, const struct store_value *value)
{
    struct bit_range range;
    int64_t bit;
    if (!server_argument_integer(call, &call->arguments[2], &bit))
        return;
    if (bit != 0 && bit != 1) {
        resp_error(call->reply, "ERR The bit argument must be 1 or 0.");
        return;
    }
    server_call_count(call, value);
    if (!value) { /* as zeros without an end */
        resp_integer(call->reply, bit ? -1 : 0);
        return;
    }
    enum range_verdict verdict = position_range(call->arguments, call->count, value->whole, &range);
    if (verdict != RANGE_GOOD) {
        range_error(call, verdict);
        return;
    }
    int64_t found = range.first > range.last ? -1 : find_bit(&range, bit, value->bytes, value->length);
    /* Behind the value follow zeros, unless the client named an end. */
    if (found < 0 && !bit && !range.end_given && range.first <= range.last)
        found = range.last + 1;
    resp_integer(call->reply, found);
}

/* ---- the table ---- */

#define READ_PART (SERVER_READONLY | SERVER_POINT_VALUE)

const struct server_command server_bit_commands[] = {
    {.name = "setbit",
     .run = setbit_run,
     .arity = 4,
     .flags = SERVER_WRITE,
     .first_key = 1,
     .last_key = 1,
     .key_step = 1,
     .group = "bitmap",
     .summary = "Sets or clears a bit of a key's value; what it was before"},
    {.name = "getbit",
     .point = getbit_point,
     .part = getbit_part,
     .arity = 3,
     .flags = READ_PART | SERVER_FAST,
     .first_key = 1,
     .last_key = 1,
     .key_step = 1,
     .group = "bitmap",
     .summary = "A bit of a key's value"},
    {.name = "bitcount",
     .point = bitcount_point,
     .part = bitcount_part,
     .arity = -2,
     .flags = READ_PART,
     .first_key = 1,
     .last_key = 1,
     .key_step = 1,
     .group = "bitmap",
     .summary = "How many bits of a key's value are set"},
    {.name = "bitpos",
     .point = bitpos_point,
     .part = bitpos_part,
     .arity = -3,
     .flags = READ_PART,
     .first_key = 1,
     .last_key = 1,
     .key_step = 1,
     .group = "bitmap",
     .summary = "The first bit of a key's value that is set, or clear"},
    {.name = "bitfield",
     .run = bitfield_run,
     .arity = -2,
     .flags = SERVER_WRITE,
     .first_key = 1,
     .last_key = 1,
     .key_step = 1,
     .group = "bitmap",
     .summary = "Reads and writes integers of any width in a key's value"},
    {.name = "bitfield_ro",
     .run = bitfield_ro_run,
     .arity = -2,
     .flags = SERVER_READONLY | SERVER_FAST,
     .first_key = 1,
     .last_key = 1,
     .key_step = 1,
     .group = "bitmap",
     .summary = "Reads integers of any width in a key's value"},
    {.name = "bitop",
     .run = bitop_run,
     .arity = -4,
     .flags = SERVER_WRITE,
     .first_key = 2,
     .last_key = -1,
     .key_step = 1,
     .group = "bitmap",
     .summary = "Sets a key to AND, OR, XOR or NOT of the values of others"},
    {.name = NULL},
};
