/*
 * table.h - the table of a cluster's checkpoint: which parts it has, on which memory nodes, of which indexes,
 * and which of the logs' entries it makes unneeded (docs/internals/durability.md, P12). Each memory node has
 * a copy. Pure; the bytes that are decoded may be anything. All numbers are little-endian.
 *
 *   header  0  8  "BNYNSAVE"
 *           8  4  version: 2
 *          12  4  bytes of the whole
 *          16  8  the checkpoint's number
 *          24  4  parts,  28  4  floors,  32  4  indexes
 *          36  4  CRC32C of the bytes before; it stays here in all versions
 *   part    0  2  the index's number
 *           2  2  the memory node that has it,  4  2  another one; 65535: none has a copy
 *           6  2  0
 *           8  8  bytes,  16  8  entries,  24  4  CRC32C of the bytes,  28  4  0
 *   floor   0  2  the index's number
 *           2  2  bytes of the lower bound
 *           4  4  0
 *           8  8  epoch,  16  8  sequence
 *          24     the lower bound
 *   index   0  2  its number,  2  2  bytes of its name,  4  the name
 *   nodes   0  2  how many memory nodes the cluster has had, as far as its maker knew,  2  6  0
 *           8  8  a bit for each of the first 64 that took part: the others had left
 *   end     0  4  CRC32C of all bytes before
 *
 * Version 1 has no `nodes`: all took part.
 *
 * Parts of an index stand one behind the other, in key order. Floors ascend by index and bound; one counts
 * from its bound on, to the next one of the index.
 */
#ifndef PERSIST_TABLE_H
#define PERSIST_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "format/key.h"

#define PERSIST_TABLE_VERSION 2u
#define PERSIST_TABLE_NODES   64u
#define PERSIST_TABLE_NONE    UINT16_MAX /* no memory node */
#define PERSIST_NAME_MAX      255u
#define PERSIST_TABLE_MOST    (UINT32_C(64) << 20) /* bytes */

struct persist_table_part {
    uint16_t index, node, second;
    uint32_t check;
    uint64_t bytes, entries;
};
/* An entry of a key from the bound on is in the checkpoint, or is older than what is there, if it is of an
 * earlier epoch, or of this one with a sequence that is not greater. */
struct persist_table_floor {
    uint16_t index;
    uint8_t lower_length;
    uint8_t lower[FORMAT_KEY_MAX];
    uint64_t epoch, sequence;
};
struct persist_table_index {
    uint16_t number;
    char name[PERSIST_NAME_MAX + 1];
};
struct persist_table {
    uint64_t number;
    uint16_t nodes; /* 0: it is not said who took part */
    uint64_t took;  /* bits */
    uint32_t part_count, floor_count, index_count;
    uint32_t part_room, floor_room, index_room;
    struct persist_table_part *parts; /* owned, as the others */
    struct persist_table_floor *floors;
    struct persist_table_index *indexes;
};

void persist_table_free(struct persist_table *table);
/* A place more, at the end, for the caller to fill in; NULL: no memory. */
struct persist_table_part *persist_table_part_add(struct persist_table *table);
struct persist_table_floor *persist_table_floor_add(struct persist_table *table);
struct persist_table_index *persist_table_index_add(struct persist_table *table);
/* Floors into their order. */
void persist_table_sort(struct persist_table *table);
/* *bytes is the caller's, from malloc. */
int persist_table_encode(const struct persist_table *table, uint8_t **bytes, size_t *length,
                         struct error *error);
/* `where` is for messages. BANYAN_ECORRUPT, BANYAN_EVERSION, BANYAN_ENOMEM. */
int persist_table_decode(struct persist_table *table, const uint8_t *bytes, size_t length, const char *where,
                         struct error *error);
/* Whether the memory node is known to have left before the checkpoint was made. The entries of its journal
 * were merged by then: they are in the checkpoint, or older than it. */
bool persist_table_left(const struct persist_table *table, uint32_t node);
/* Whether the checkpoint was made by a compute node that had not heard of the memory node, which joined
 * meanwhile or later. The entries of its journal count like others. */
bool persist_table_unaware(const struct persist_table *table, uint32_t node);
/* Whether the checkpoint makes such an entry unneeded. */
bool persist_table_covers(const struct persist_table *table, uint16_t index, struct format_key key,
                          uint64_t epoch, uint64_t sequence);

/* The name of a part's file, and of the table's (`part` PERSIST_PART_TABLE). */
#define PERSIST_PART_TABLE UINT32_MAX
#define PERSIST_PART_NAME  48u
void persist_part_name(char name[PERSIST_PART_NAME], uint64_t number, uint32_t part);

#endif
