/*
 * window.c - See window.h.
 */
#include "store/window.h"

#include <assert.h>

/* The value, its pieces, and the bytes that change. */
struct aim {
    const struct format_piece *pieces;
    uint32_t count;
    uint64_t total, offset, end;
};

static bool is_zeros(const struct format_piece *piece)
{
    return piece->block == GADDR_NULL;
}

/* The change begins at the value's end or behind it. */
static void window_behind(const struct aim *aim, struct window *window)
{
    uint64_t gap = aim->offset - aim->total;
    window->first = window->end = aim->count;
    window->start = aim->total;
    if (gap >= window->grain || (gap && is_zeros(&aim->pieces[aim->count - 1]))) {
        window->zeros_before = gap;
        window->start = aim->offset;
    }
    window->length = aim->end - window->start;
}

/* The change begins within the value: the pieces that it touches. */
static void window_within(const struct aim *aim, struct window *window)
{
    uint64_t at = 0, begin = 0;
    uint32_t i = 0;
    for (; at + aim->pieces[i].length <= aim->offset; i++)
        at += aim->pieces[i].length;
    window->first = i;
    begin = at;
    for (; i < aim->count && at < aim->end; i++)
        at += aim->pieces[i].length;
    window->end = i;
    window->start = begin;
    if (is_zeros(&aim->pieces[window->first]) && aim->offset - begin >= window->grain) {
        window->zeros_before = aim->offset - begin;
        window->start = aim->offset;
    }
    if (at > aim->end && is_zeros(&aim->pieces[i - 1]) && at - aim->end >= window->grain) {
        window->zeros_behind = at - aim->end;
        at = aim->end;
    }
    window->length = (at > aim->end ? at : aim->end) - window->start;
}

static bool joins(const struct window *window, const struct format_piece *piece)
{
    return !is_zeros(piece) && piece->length + window->length <= window->grain &&
           (piece->length < WINDOW_PIECE_MIN || piece->length <= 2 * window->length);
}

static void window_widen(const struct aim *aim, struct window *window)
{
    for (bool more = true; more;) {
        more = false;
        if (!window->zeros_before && window->first && joins(window, &aim->pieces[window->first - 1])) {
            window->length += aim->pieces[--window->first].length;
            window->start -= aim->pieces[window->first].length;
            more = true;
        }
        if (!window->zeros_behind && window->end < aim->count && joins(window, &aim->pieces[window->end])) {
            window->length += aim->pieces[window->end++].length;
            more = true;
        }
    }
}

/* The two neighbours outside of the window that are shortest together, if they fit into one piece. Runs of
 * zeros and full pieces are at least as long as that. */
static void window_merge(const struct aim *aim, struct window *window)
{
    uint64_t least = (uint64_t)window->grain + 1;
    for (uint32_t i = 0; i + 1 < aim->count; i++) {
        uint64_t both = (uint64_t)aim->pieces[i].length + aim->pieces[i + 1].length;
        if ((i + 1 < window->first || i >= window->end) && both < least && !is_zeros(&aim->pieces[i]) &&
            !is_zeros(&aim->pieces[i + 1])) {
            least = both;
            window->merge = i;
        }
    }
}

void window_choose(const struct format_piece *pieces, uint32_t count, uint64_t offset, uint64_t length,
                   struct window *window)
{
    struct aim aim = {.pieces = pieces, .count = count, .offset = offset, .end = offset + length};
    assert(count && length);
    for (uint32_t i = 0; i < count; i++)
        aim.total += pieces[i].length;
    uint64_t after = aim.total > aim.end ? aim.total : aim.end;
    *window = (struct window){.merge = UINT32_MAX, .grain = format_record_grain(after)};
    if (after <= WINDOW_WHOLE_MAX) {
        window->end = count;
        window->length = after;
        return;
    }
    if (offset >= aim.total)
        window_behind(&aim, window);
    else
        window_within(&aim, window);
    window_widen(&aim, window);
    uint64_t number = window->first + (count - window->end) + (window->zeros_before != 0) +
                      (window->zeros_behind != 0) + (window->length + window->grain - 1) / window->grain;
    if (number > 2 * ((after + window->grain - 1) / window->grain) + 8)
        window_merge(&aim, window);
}
