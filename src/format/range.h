/*
 * range.h - an entry of the map of ranges: who may change the leaves of an index from a key on
 * (docs/internals/ownership.md).
 *
 * Key: the index's number (2 bytes, big-endian), then the range's lower bound. So the entries of an index
 * stand together, in key order; a range ends where the next one begins, or with the index.
 *
 *   value, byte 0: version of this layout, 2   1: state   2: owner's id (u16)   4: next owner's id (u16)
 *   6: flags (u16): 1: unclaimed, 2: logged, 4: inherited, 8: logged next   8: owner's instance (u64)
 *   16: next owner's instance (u64)   24: epoch (u64)   32: version of the map (u64)
 *   40: ids of up to three heirs (u16 each)   46: 0 (u16)   48: their instances (u64 each)
 *   72: the epochs under which they had it (u64 each)   96: CRC32C of the key and all before (u32)
 *
 * An entry of version 1 has 44 bytes, and is refused.
 *
 * Integers of the value are little-endian. Pure, as header.h.
 */
#ifndef FORMAT_RANGE_H
#define FORMAT_RANGE_H

#include "fabric/peers.h"
#include "format/geometry.h"

#define FORMAT_RANGE_LOWER_MAX   (FORMAT_KEY_MAX - 2u)
#define FORMAT_RANGE_VALUE_BYTES 100u
#define FORMAT_RANGE_HEIRS_MAX   3u

enum format_range_state {
    FORMAT_RANGE_SETTLED, /* its owner's; id 0: shared */
    FORMAT_RANGE_MOVING,  /* from its owner to the next one; id 0: shared */
    FORMAT_RANGE_SPLIT,   /* a bound that is not a border yet: the range belongs to the one on its left */
    FORMAT_RANGE_CLOSED,  /* the index's only entry: shared, and no process can get ranges of it */
    FORMAT_RANGE_STATES
};

/* A process whose log may have changes of a range, of the time when it had the range under this epoch. */
struct format_heir {
    struct fabric_process process;
    uint64_t epoch;
};
struct format_range {
    uint16_t number; /* of the index */
    uint8_t state;   /* enum format_range_state */
    uint8_t lower_length;
    uint8_t lower[FORMAT_RANGE_LOWER_MAX];
    bool unclaimed; /* shared, or becoming so, since no process wanted it: the next one that wants ranges gets
                       it. Without this, a range that has been owned is shared on purpose */
    bool logged;    /* its owner writes it by its log: the pool may be older than what was acknowledged */
    bool logged_next; /* it moves, and the next owner will write it by its log */
    bool inherited;   /* it moves, and the next owner takes what is not merged from the owner's log: the owner
                         merges nothing before it gives the range up */
    uint8_t heir_count;
    struct fabric_process owner, next;
    uint64_t epoch, version;
    /* Owners whose logs may have changes of this range that are not merged, by ascending epochs. */
    struct format_heir heirs[FORMAT_RANGE_HEIRS_MAX];
};

/* Returns the key's length. */
size_t format_range_encode(const struct format_range *range, uint8_t key[FORMAT_KEY_MAX],
                           uint8_t value[FORMAT_RANGE_VALUE_BYTES]);
/* NULL: *range is the entry. Else what is wrong with it: half a sentence, to follow the entry's name; then
 * *range has the number and the bound as far as the key tells them. */
const char *format_range_decode(const uint8_t *key, size_t key_length, const uint8_t *value, size_t length,
                                struct format_range *range);
/* Whether `range` may stand behind `left` (NULL: first of its index); as above. */
const char *format_range_follows(const struct format_range *left, const struct format_range *range);
/* Whether the pool may lack changes of the range that its owner, or an owner before it, has acknowledged. */
static inline bool format_range_unmerged(const struct format_range *range)
{
    return range->logged || range->heir_count;
}
/* Whether both have the same heirs, in the same order. */
bool format_range_same_heirs(const struct format_range *a, const struct format_range *b);
/* By number, then by bound, as keys are. */
int format_range_compare(const struct format_range *a, const struct format_range *b);

#endif
