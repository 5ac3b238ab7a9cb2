/*
 * format.h - what the records of a journal say (disk/journal.h) that keeps owners' logs: frames, and the
 * blocks of the pool that their entries refer to. Pure; docs/internals/durability.md has the rules (P1 to
 * P4).
 *
 * BLOCK, behind its 8 bytes of address: the bytes of a record's block, or of a piece's, as they lay in the
 * pool.
 * FRAME, behind its 24 bytes of header: the entries of a frame of a log, as format/log.h has them.
 *   0 instance of the process u64 | 8 sequence of the first entry u64 | 16 number of entries u32
 *   20 compute id u16 | 22 memory node u16
 *
 * All that a frame's entries refer to stands before it in the same journal, but for what could not be read
 * any more. Integers are little-endian.
 */
#ifndef PERSIST_FORMAT_H
#define PERSIST_FORMAT_H

#include "format/log.h"

enum persist_kind { PERSIST_BLOCK = 1, PERSIST_FRAME };

#define PERSIST_BLOCK_HEADER 8u
#define PERSIST_FRAME_HEADER 24u

struct persist_frame {
    struct fabric_process process;
    uint16_t node;
    struct format_log_view view; /* entries, length, count and first are set */
};
void persist_frame_encode(const struct persist_frame *frame, uint8_t header[PERSIST_FRAME_HEADER]);
/* False: too short, or what no memory node has written. frame->view points into the bytes. */
bool persist_frame_decode(const uint8_t *bytes, uint32_t length, struct persist_frame *frame);

#endif
