/* copies.c - See copies.h. */
#include "log/copies.h"

#include <stdlib.h>

bool log_copies_add(struct log_copies *copies, const struct format_log_view *frame)
{
    if (!frame->other.nonce)
        return true;
    struct log_copy *grown =
        heap_grow(copies->heap, copies->all, copies->count, &copies->capacity, sizeof *grown);
    if (!grown)
        return false;
    copies->all = grown;
    grown[copies->count++] =
        (struct log_copy){.other = frame->other,
                          .bytes = frame->bytes,
                          .carried = frame->carried < frame->other.position ? frame->carried : 0,
                          .last = frame->last};
    copies->sorted = false;
    return true;
}

static int copy_compare(const void *a, const void *b)
{
    const struct format_log_other *one = &((const struct log_copy *)a)->other,
                                  *two = &((const struct log_copy *)b)->other;
    if (one->nonce != two->nonce)
        return one->nonce < two->nonce ? -1 : 1;
    return one->position < two->position ? -1 : one->position > two->position;
}

/* The first that lies in the segment with this nonce. */
static uint32_t copies_begin(struct log_copies *copies, uint64_t nonce)
{
    uint32_t low = 0, high = copies->count;
    if (!copies->sorted && copies->count)
        qsort(copies->all, copies->count, sizeof *copies->all, copy_compare);
    copies->sorted = true;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (copies->all[middle].other.nonce < nonce)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool log_copies_cover(struct log_copies *copies, uint64_t nonce, uint32_t begin, uint32_t end)
{
    for (uint32_t i = copies_begin(copies, nonce); begin < end; i++) {
        if (i == copies->count)
            return false;
        const struct log_copy *copy = &copies->all[i];
        if (copy->other.nonce != nonce || copy->other.position - copy->carried > begin)
            return false;
        if (copy->other.position + copy->bytes > begin)
            begin = copy->other.position + copy->bytes;
    }
    return true;
}

const struct log_copy *log_copies_segment(struct log_copies *copies, uint64_t nonce)
{
    const struct log_copy *latest = NULL;
    for (uint32_t i = copies_begin(copies, nonce); i < copies->count; i++) {
        const struct log_copy *copy = &copies->all[i];
        if (copy->other.nonce != nonce)
            break;
        if (!latest || copy->last > latest->last)
            latest = copy;
    }
    return latest;
}

void log_copies_clear(struct log_copies *copies)
{
    heap_free(copies->heap, copies->all);
    *copies = (struct log_copies){.heap = copies->heap};
}
