/*
 * catalogue.h - how the catalogue of indexes lies on memory node 0: a superblock, then an entry for each
 * index. Pure functions of bytes. For src/tree/, which writes it under its lock, and src/persist/, which
 * reads from beside which indexes there are.
 *
 * An entry is written when its index is created and when it has been dropped; in between only its root word
 * changes, by CAS.
 *
 * Root word: the address of the root in its upper bits, which is a multiple of ROOT_ALIGNMENT. Of the six
 * bits below, the marks, the upper five hold the low bits of the entry's generation, and the lowest is 0. So
 * a CAS of the root by a session that knew an earlier index of this entry fails, although the new root may
 * lie at the old one's address (docs/internals/tree.md, Dropping). Once the index is being dropped the
 * lowest mark and two others are inverted: three bits, because the crc leaves the root word out, and one
 * damaged bit must not look like a drop.
 */
#ifndef FORMAT_CATALOGUE_H
#define FORMAT_CATALOGUE_H

#include "fabric/fabric.h"
#include "format/geometry.h"

#define FORMAT_CATALOGUE_ENTRIES     128u
#define FORMAT_CATALOGUE_ENTRY_BYTES 256u
#define FORMAT_CATALOGUE_FIRST       4096u /* bytes from the superblock to the first entry */
#define FORMAT_INDEX_NAME_MAX        63u
/* How many generations nodes are told apart by: their index number has 15 bits, 8 of them for the entry. */
#define FORMAT_INDEX_GENERATIONS 127u

struct format_catalogue_entry {
    uint64_t root; /* see above; not in the crc */
    uint32_t crc;  /* of what follows */
    uint32_t used; /* 1; 0: the entry is free */
    uint32_t leaf_bytes, internal_bytes;
    uint8_t kinds; /* enum format_key_kind in the lowest three bits; the two bits of enum format_leaf_kind,
                      the lower one in 16 and the upper one, dense leaves', in 8; above, the levels of a
                      placed subtree (three bits). Older programs take more of it for the key kind, and refuse
                      an index whose key kind is 2 or more: those that know no unsorted leaves the whole byte,
                      those that know no dense ones the lower half. Those that know no placement refuse a
                      leaf kind of 2 and more. */
    uint8_t key_bytes, inline_key_bytes, value_bytes, value_variable, content;
    uint16_t generation; /* how many indexes of this entry have been dropped; kept while it is free */
    char name[FORMAT_INDEX_NAME_MAX + 1];
};

uint32_t format_catalogue_crc(const struct format_catalogue_entry *entry);
/* An entry that is just being written may be seen torn, and its root word, which the crc leaves out, later
 * than the rest. */
bool format_catalogue_whole(const struct format_catalogue_entry *entry);
/* Of an entry in use: the index is being dropped, and nobody opens it any more. */
bool format_catalogue_dropping(const struct format_catalogue_entry *entry);
/* What the geometry is in the entry, and back. The entry's other fields stay. */
void format_catalogue_describe(struct format_catalogue_entry *entry, const struct format_geometry *geometry);
void format_catalogue_geometry(const struct format_catalogue_entry *entry, struct format_geometry *geometry);

/* The root's address in a root word, and the marks beside it: of an index, and of one that is being dropped.
 */
gaddr format_root_address(uint64_t word);
uint64_t format_root_marks(uint16_t generation);
uint64_t format_root_dropping(uint16_t generation);

/* The number by which nodes, logs and requests name the index of this entry; never 0. */
uint16_t format_index_number(uint32_t entry, uint16_t generation);

#endif
