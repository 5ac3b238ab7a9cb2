/*
 * format.h - what the records of a journal say (disk/journal.h): owners' logs, that is frames and the blocks
 * of the pool that their entries refer to; or keys with whole values, which a server with its pools in its
 * own process writes. Pure; docs/internals/durability.md has the rules (P1 to P4, P16, P17, K1 to K6).
 *
 * BLOCK, behind its 8 bytes of address: the bytes of a record's block, or of a piece's, as they lay in the
 * pool.
 * PIECE: the same of a piece that lies in another memory node's pool, and was brought (P17). Frames name it
 * by its place and the hash of its bytes, so it does not matter what else was copied from that place, or
 * when. FRAME, behind its 24 bytes of header: the entries of a frame of a log, as format/log.h has them. 0
 * instance of the process u64 | 8 sequence of the first entry u64 | 16 number of entries u32 20 compute id
 * u16 | 22 memory node u16 FRAME_TELLING: the same of a process that says which of its frames have one copy.
 *   16 number of entries u16 | 18 flags u16: 1 it has written frames of one copy; 2 this one has another copy
 *
 * All that a frame's entries refer to stands before it in the same journal, but for records that could not be
 * read any more.
 *
 * VALUES, entries one behind the other, each behind 16 bytes:
 *   0 flags u8: 1 the key has no value any more, 2 the value stands in BYTES records | 1 bytes of the key u8
 *   2 index u16 | 4 bytes of the value u32 | 8 when it expires, ms since 1970, or 0 u64 | 16 key, then value
 * BYTES: a part of a long value. Its parts stand one behind the other right before the VALUES record whose
 * first entry it belongs to. Before them may stand parts of values whose entries were never written: a
 * process ended there, or the disk was full. Of a key the entry that stands last in the journal counts.
 *
 * INDEX, in the journal of the memory node that has the catalogue, before any frame there that names the
 * index: what it is called and was made with. Of an index the record that stands last counts.
 *   0 number u16, 0: all that was named before is gone | 2 1 it was dropped u8 | 3 bytes of the name u8
 *   4 bytes of a leaf u32 | 8 of an internal node u32 | 12 the geometry's other fields u8 each: key_kind,
 *   leaf_kind, key_bytes, inline_key_bytes, value_bytes, value_variable, content, subtree_levels | 20 the
 *   name
 *   The upper bit of leaf_kind, dense leaves', is 8 in the key_kind's byte, where it is in the catalogue
 *   (format/catalogue.h): a memory node that knows no dense leaves copies it from there to here.
 * Integers are little-endian.
 */
#ifndef PERSIST_FORMAT_H
#define PERSIST_FORMAT_H

#include "format/geometry.h"
#include "format/log.h"

enum persist_kind {
    PERSIST_BLOCK = 1,
    PERSIST_FRAME,
    PERSIST_VALUES,
    PERSIST_BYTES,
    PERSIST_INDEX,
    PERSIST_FRAME_TELLING,
    PERSIST_PIECE
};

#define PERSIST_BLOCK_HEADER 8u
#define PERSIST_FRAME_HEADER 24u
#define PERSIST_VALUE_HEADER 16u
#define PERSIST_INDEX_HEADER 20u
#define PERSIST_INDEX_BYTES  (PERSIST_INDEX_HEADER + 255u) /* at most */
/* Values of up to so many bytes stand in VALUES. */
#define PERSIST_VALUE_SHORT (64u << 10)

struct persist_frame {
    struct fabric_process process;
    uint16_t node;
    bool tells, alone, twice; /* FRAME_TELLING; alone: frames of one copy were written; twice: not this one */
    struct format_log_view view; /* entries, length, count and first are set */
};
/* The kind of the record. */
enum persist_kind persist_frame_encode(const struct persist_frame *frame,
                                       uint8_t header[PERSIST_FRAME_HEADER]);
/* A record of one of the two kinds. False: it is too short, or no memory node has written it. frame->view
 * points into the bytes. */
bool persist_frame_decode(uint8_t kind, const uint8_t *bytes, uint32_t length, struct persist_frame *frame);

struct persist_value {
    struct format_key key;
    uint16_t index;
    bool deleted, apart; /* apart: its bytes stand in BYTES */
    uint32_t length;
    uint64_t expires;
    const uint8_t *bytes; /* NULL: deleted, or apart */
};
/* Bytes of the entry in VALUES. */
uint32_t persist_value_bytes(const struct persist_value *value);
void persist_value_encode(const struct persist_value *value, uint8_t *to);
/* The entry at `at`, which moves on. 1: there is one; 0: the record ends here; BANYAN_ECORRUPT: it makes no
 * sense. The bytes are the record's. */
int persist_value_next(const uint8_t *bytes, uint32_t length, uint32_t *at, struct persist_value *value);

struct persist_index {
    uint16_t number; /* 0: a list of all that there are begins */
    bool gone;       /* dropped; then, and with number 0, there is nothing else */
    struct format_geometry geometry;
    const char *name; /* not 0-terminated; none is empty */
    uint32_t name_length;
};
/* Returns the bytes of the record. */
uint32_t persist_index_encode(const struct persist_index *index, uint8_t to[PERSIST_INDEX_BYTES]);
/* False: it makes no sense. The name is the record's. */
bool persist_index_decode(const uint8_t *bytes, uint32_t length, struct persist_index *index);

#endif
