/* copies.c - See copies.h. */
#include "log/copies.h"

#include <stdlib.h>

struct log_copy {
    uint64_t sequence;
    uint32_t bytes; /* of the frame whose first change it is; 0: not the first */
    uint16_t node;
};

static bool add(struct log_copies *copies, const struct log_copy *copy)
{
    if (copies->count == copies->capacity) {
        const uint32_t capacity = copies->capacity ? 2 * copies->capacity : 1024;
        struct log_copy *grown = realloc(copies->all, capacity * sizeof *grown);
        if (!grown)
            return false;
        copies->all = grown;
        copies->capacity = capacity;
    }
    copies->all[copies->count++] = *copy;
    copies->sorted = false;
    return true;
}

bool log_copies_add(struct log_copies *copies, uint16_t node, const struct format_log_view *frame)
{
    struct log_copy copy = {.bytes = frame->bytes, .node = node};
    struct format_log_entry entry;
    uint32_t at = 0;
    while (format_log_frame_next(frame, &at, &entry)) {
        copy.sequence = entry.sequence;
        if (!add(copies, &copy))
            return false;
        copy.bytes = 0;
    }
    return true;
}

static int copy_compare(const void *a, const void *b)
{
    const struct log_copy *one = a, *two = b;
    return one->sequence < two->sequence ? -1 : one->sequence > two->sequence;
}

/* The first copy of a change behind this one. */
static uint32_t copies_behind(const struct log_copies *copies, uint64_t sequence)
{
    uint32_t low = 0, high = copies->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (copies->all[middle].sequence <= sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool log_copies_elsewhere(struct log_copies *copies, uint16_t node, uint64_t before, uint64_t after,
                          uint32_t bytes)
{
    uint64_t missing = 0, expected = before + 1;
    if (!copies->sorted && copies->count)
        qsort(copies->all, copies->count, sizeof *copies->all, copy_compare);
    copies->sorted = true;
    for (uint32_t at = copies_behind(copies, before); at < copies->count; expected++) {
        const uint64_t sequence = copies->all[at].sequence;
        uint32_t length = 0;
        bool here = false;
        if (sequence >= after)
            break;
        if (sequence != expected)
            return false;
        for (; at < copies->count && copies->all[at].sequence == sequence; at++) {
            here |= copies->all[at].node == node;
            length = copies->all[at].bytes > length ? copies->all[at].bytes : length;
        }
        missing += here ? 0 : length;
    }
    return expected == after && missing == bytes;
}

void log_copies_free(struct log_copies *copies)
{
    free(copies->all);
    *copies = (struct log_copies){0};
}
