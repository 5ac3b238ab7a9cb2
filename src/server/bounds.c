/*
 * bounds.c - reads ranges out of the text of their bounds; contract in bounds.h.
 *
 * A bound that is longer than any key is cut to STORE_KEY_MAX bytes. The keys after the long bound are then
 * those after the cut one, which is itself excluded; the keys before the long bound are those up to the cut
 * one, included. The empty string, which is not a key, stands before all keys.
 */
#include "server/bounds.h"

#include <string.h>

enum bound_kind { BOUND_LEAST, BOUND_MOST, BOUND_KEY, BOUND_INVALID };
struct bound {
    enum bound_kind kind;
    bool open;
    const char *bytes;
    size_t length;
};

static struct bound bound_read(const struct resp_argument *text)
{
    if (text->length == 1 && text->bytes[0] == '-')
        return (struct bound){.kind = BOUND_LEAST};
    if (text->length == 1 && text->bytes[0] == '+')
        return (struct bound){.kind = BOUND_MOST};
    if (text->length && (text->bytes[0] == '[' || text->bytes[0] == '('))
        return (struct bound){.kind = BOUND_KEY,
                              .open = text->bytes[0] == '(',
                              .bytes = text->bytes + 1,
                              .length = text->length - 1};
    return (struct bound){.kind = BOUND_INVALID};
}

static void range_low(struct tree_range *range, const struct bound *bound)
{
    if (bound->kind != BOUND_KEY || !bound->length)
        return;
    range->from = bound->bytes;
    range->from_length = bound->length < STORE_KEY_MAX ? bound->length : STORE_KEY_MAX;
    range->from_open = bound->open || bound->length > STORE_KEY_MAX;
}

static void range_high(struct tree_range *range, const struct bound *bound)
{
    if (bound->kind != BOUND_KEY)
        return;
    range->to = bound->bytes;
    range->to_length = bound->length < STORE_KEY_MAX ? bound->length : STORE_KEY_MAX;
    range->to_open = bound->open && bound->length <= STORE_KEY_MAX;
}

static bool range_is_empty(const struct tree_range *range)
{
    if (!range->from || !range->to)
        return false;
    size_t a = range->from_length, b = range->to_length;
    int order = memcmp(range->from, range->to, a < b ? a : b);
    order = order ? order : (a > b) - (a < b);
    return order > 0 || (order == 0 && (range->from_open || range->to_open));
}

enum bounds_verdict bounds_read(const struct resp_argument *low, const struct resp_argument *high,
                                struct tree_range *range)
{
    const struct bound from = bound_read(low), to = bound_read(high);
    *range = (struct tree_range){.from = NULL};
    if (from.kind == BOUND_INVALID || to.kind == BOUND_INVALID)
        return BOUNDS_INVALID;
    if (from.kind == BOUND_MOST || to.kind == BOUND_LEAST || (to.kind == BOUND_KEY && !to.length))
        return BOUNDS_EMPTY;
    range_low(range, &from);
    range_high(range, &to);
    return range_is_empty(range) ? BOUNDS_EMPTY : BOUNDS_RANGE;
}

enum bounds_verdict bounds_beside(const struct resp_argument *key, bool before, struct tree_range *range)
{
    const struct bound bound = {.kind = BOUND_KEY, .open = true, .bytes = key->bytes, .length = key->length};
    *range = (struct tree_range){.from = NULL, .reverse = before, .limit = 1};
    if (before && !key->length)
        return BOUNDS_EMPTY;
    if (before)
        range_high(range, &bound);
    else
        range_low(range, &bound);
    return BOUNDS_RANGE;
}
