/*
 * log.h - how an owner's log lies in memory (docs/internals/log.md): segments, the frames in them, and the
 * entries in these; and the control block of a process's log on a memory node.
 *
 * SEGMENT: up to 8 MiB. 64 bytes of header, then frames at multiples of 64 bytes.
 *   0 crc32c of what follows | 4 magic | 8 version u16 | 10 owner's id u16 | 12 size u32
 *   16 owner's instance u64 | 24 number in its stream u64 | 32 nonce u64 | 40 end of the segment before u32
 *   44 zero
 * FRAME: a whole number of blocks of 64 bytes, up to 64 KiB; behind the entries it is zero.
 *   0 crc32c of the header's other bytes | 4 crc32c of the entries | 8 nonce of the segment u64
 *   16 position in the segment u32 | 20 length u32, without the zeros | 24 committed u32
 *   28 number of entries u16 | 30 flags u16: 1 a carrier; 2 its process has written frames of one copy; and
 *   from bit 2 on, in blocks, what carriers take before the frame's other copy
 *   32 sequence of the first entry u64
 *   of the frame's other copy, zero if there is none: 40 nonce of its segment u64 | 48 that one's number u64
 *   56 its position u32 | 60 where the segment before that one ends u32
 *   64 entries, packed
 * CARRIER: a frame without entries, which has bytes of records that lie on other memory nodes, for the disk
 * of this one. Carriers stand one behind the other right before the frame whose entries name the records; 32
 * is that one's. Parts of records, packed:
 *   0 the record's address u64 | 8 where in the record u32 | 12 bytes u32 | 16 bytes of the whole record u32
 *   20 zero u32 | 24 the bytes
 * ENTRY: 17 bytes, its key, its value.
 *   0 kind | 1 index u16 | 3 epoch u64
 *   11 sequence less the frame's first one, i32 | 15 key's length | 16 value's length
 * CONTROL BLOCK: 64 bytes.
 *   0 watermark word | 8 magic | 12 version u16 | 14 owner's id u16 | 16 owner's instance u64 | 24 zero
 *   60 crc32c of the bytes from 8 on
 * Integers are little-endian. Version 3 of segments; in version 2 there were no flags, which were zero.
 *
 * Two crcs, so that a frame's length can be believed although its entries are torn: the process had reserved
 * these bytes, so no other frame of the segment begins in them, and a scan skips them as a whole.
 *
 * Pure, as header.h; nobody may write the bytes meanwhile. Decoded keys and values point into the bytes that
 * they were decoded from.
 */
#ifndef FORMAT_LOG_H
#define FORMAT_LOG_H

#include "fabric/fabric.h"
#include "fabric/peers.h"
#include "format/key.h"

#define FORMAT_LOG_BLOCK       64u         /* what frames begin at multiples of, and a segment's header */
#define FORMAT_LOG_SEGMENT_MAX (8u << 20)  /* bytes */
#define FORMAT_LOG_FRAME_MAX   (64u << 10) /* bytes, the header and the zeros at the end included */
#define FORMAT_LOG_FRAME_BYTES 64u         /* of a frame's header */
#define FORMAT_LOG_ENTRY_BYTES 17u         /* of an entry, beside its key and its value */
#define FORMAT_LOG_ENTRY_MAX   (FORMAT_LOG_ENTRY_BYTES + FORMAT_KEY_MAX + FORMAT_VALUE_MAX)
#define FORMAT_LOG_PART_BYTES  24u /* of a part of a record, beside its bytes */
/* What carriers take before one frame, at most. */
#define FORMAT_LOG_CARRIED_MAX  (((1u << 14) - 1) * FORMAT_LOG_BLOCK)
#define FORMAT_LOG_SEQUENCE_MAX ((UINT64_C(1) << 52) - 1) /* 142 years of a million entries a second */

/* ---- segments ---- */

struct format_log_segment {
    struct fabric_process owner;
    uint64_t number; /* in its stream, ascending */
    uint64_t nonce;  /* not 0; drawn at random for each use of these bytes: it tells frames from older ones */
    uint32_t size;   /* of the segment, header included: a multiple of 64 */
    uint32_t before; /* where the frames of the segment before it in the stream end; 0: there is none, or all
                        of it is merged */
    bool tells;      /* its frames say which of them have one copy; false: an earlier release wrote it */
};

void format_log_segment_encode(const struct format_log_segment *segment, uint8_t bytes[FORMAT_LOG_BLOCK]);
/* NULL: *segment is it. Else what is wrong with the bytes: half a sentence, to follow their name. */
const char *format_log_segment_decode(const uint8_t bytes[FORMAT_LOG_BLOCK],
                                      struct format_log_segment *segment);

/* ---- entries ---- */

enum format_log_kind { FORMAT_LOG_PUT = 1, FORMAT_LOG_DELETE, FORMAT_LOG_KINDS };

struct format_log_entry {
    uint8_t kind;      /* enum format_log_kind */
    uint16_t index;    /* number of the index */
    uint64_t epoch;    /* of the range under which it was logged */
    uint64_t sequence; /* 1 to FORMAT_LOG_SEQUENCE_MAX */
    struct format_key key;
    const uint8_t *value; /* PUT: what the leaf's slot is to hold */
    uint8_t value_length; /* DELETE: 0 */
};

/* Bytes that the entry takes in a frame. */
static inline uint32_t format_log_entry_bytes(const struct format_log_entry *entry)
{
    return FORMAT_LOG_ENTRY_BYTES + entry->key.length + entry->value_length;
}

/* ---- a frame that is being filled; one task at a time ---- */

/* Where a frame's other copy lies, on another memory node: all that the header of its segment says, so that
 * this can be known again when that header is lost. */
struct format_log_other {
    uint64_t nonce, number;    /* its segment's; nonce 0: the frame has no other copy */
    uint32_t position, before; /* its own; its segment's */
};

struct format_log_frame {
    uint8_t *bytes; /* the caller's */
    uint32_t room, used, count;
    uint64_t first, last; /* sequences: the first entry's, the greatest */
    struct format_log_other other;
    uint32_t carried; /* bytes of carriers before the other copy: a multiple of 64 */
    bool alone;       /* its process has written frames of one copy, this one or others: log/alone.c */
};

/* `room` bytes: a multiple of 64 up to FORMAT_LOG_FRAME_MAX, at least one block, and no more than a segment
 * has behind its header. */
void format_log_frame_begin(struct format_log_frame *frame, uint8_t *bytes, uint32_t room);
/* Appends. False, and nothing changed: it does not fit any more, or its sequence is more than 2^31 - 1 from
 * the first entry's. The first entry of a frame with room for FORMAT_LOG_FRAME_BYTES and it always fits. */
bool format_log_frame_add(struct format_log_frame *frame, const struct format_log_entry *entry);
/* Bytes of the segment that the frame needs: a multiple of 64. */
static inline uint32_t format_log_frame_bytes(const struct format_log_frame *frame)
{
    return (frame->used + FORMAT_LOG_BLOCK - 1) / FORMAT_LOG_BLOCK * FORMAT_LOG_BLOCK;
}
/* Writes the header and the zeros at the end; returns format_log_frame_bytes. `position` is where in the
 * segment the frame will lie. `committed` is a position, at most that one, below which every frame of the
 * segment is complete in memory; if it is not 0, so is every frame of the segments before this one. A frame
 * may be sealed again for another place. One without entries just covers its 64 bytes.
 * Where frame->first is above 0, what lies below `committed`, and in segments before this one if it is not 0,
 * has sequences below frame->first. */
uint32_t format_log_frame_seal(struct format_log_frame *frame, uint64_t nonce, uint32_t position,
                               uint32_t committed);

/* ---- carriers that are being filled; one task at a time ---- */

/* `bytes` NULL: only counts what they take. Else there is room for what was counted. */
struct format_log_carriers {
    uint8_t *bytes;
    uint32_t used, open; /* open: where the one that is filled begins; used 0: none is */
};
void format_log_carriers_add(struct format_log_carriers *carriers, gaddr address, const uint8_t *record,
                             uint32_t length);
/* Ends the last one. Returns how much they take, a multiple of 64. */
uint32_t format_log_carriers_end(struct format_log_carriers *carriers);
/* Behind that. Their headers, for this place in the segment; `first` is that of the frame behind them. */
void format_log_carriers_seal(const struct format_log_carriers *carriers, uint64_t nonce, uint32_t position,
                              uint32_t committed, uint64_t first);

/* ---- frames and entries in a segment's bytes ---- */

struct format_log_view {
    const uint8_t *entries; /* of a whole frame */
    uint32_t length;        /* of them */
    uint32_t bytes;         /* of the frame: a multiple of 64 */
    uint32_t committed, count;
    uint64_t first, last; /* sequences: the first entry's; of a whole frame the greatest */
    struct format_log_other other;
    uint32_t carried; /* bytes of carriers before the other copy */
    bool alone;
    const uint8_t *parts; /* of a carrier, which has no entries; else NULL */
    uint32_t parts_bytes;
};

enum format_log_found {
    FORMAT_LOG_NOTHING, /* no frame of this segment begins there, or its header is damaged */
    FORMAT_LOG_TORN,    /* its header is right, and its entries are not: view->bytes is right */
    FORMAT_LOG_WHOLE
};

/* `bytes` are the segment's, segment->size of them, and may be anything. `position` is a multiple of 64 below
 * the size. Costs a crc of 60 bytes where the nonce, the position and the length are right, then one of the
 * frame. */
enum format_log_found format_log_frame_find(const struct format_log_segment *segment, const uint8_t *bytes,
                                            uint32_t position, struct format_log_view *view);
/* The entry that begins at view->entries + *at, of a whole frame; false behind the last one. */
bool format_log_frame_next(const struct format_log_view *view, uint32_t *at, struct format_log_entry *entry);
/* A part of a record. */
struct format_log_part {
    gaddr address; /* of the record */
    uint32_t offset, length, whole;
    const uint8_t *bytes;
};
/* The part at view->parts + *at, of a whole carrier; false behind the last one. */
bool format_log_part_next(const struct format_log_view *view, uint32_t *at, struct format_log_part *part);

/* ---- a segment's whole content, for recovery ---- */

struct format_log_scan {
    uint32_t committed; /* the greatest of all frames, torn ones too; 0: nothing is known to be complete */
    uint32_t end;       /* of the last whole frame; FORMAT_LOG_BLOCK: there is none */
    uint64_t sequence;  /* the greatest of all entries; 0: there is none */
    uint32_t frames, entries;
    /* Regions that are known to be complete and that no whole frame covers. If the owner lives, they must be
     * read again before they are called corrupt (docs/internals/log.md). */
    uint32_t corrupt_regions, corrupt_first, corrupt_first_bytes, corrupt_bytes;
};

/* Calls visit (NULL: none) for each whole frame, in the order in which they lie. `known`: the
 * frames below this position are known to be complete: the `before` of the segment behind this one in the
 * stream, if a frame of that or a later segment has a `committed` that is not 0; else 0.
 * Returns 0, or at once what visit returned if that is not 0: then *scan is what was found so far, and says
 * nothing of what is corrupt.
 * `bytes` may be anything. Each byte goes into one crc at most; if something is corrupt, into two. */
int format_log_scan(const struct format_log_segment *segment, const uint8_t *bytes, uint32_t known,
                    int (*visit)(void *context, const struct format_log_view *frame), void *context,
                    struct format_log_scan *scan);

/* The frames that are under way in a segment begin and end within so many bytes. So where no frame is for so
 * long, behind one that is, none was written. */
#define FORMAT_LOG_SPAN (1u << 20)

/* How far a segment's content was looked at, from its beginning on. */
struct format_log_reach {
    uint32_t position; /* nothing below is of interest any more */
    uint32_t end;      /* of the last frame, whole or torn */
};
#define FORMAT_LOG_REACH_FIRST                                                                               \
    {                                                                                                        \
        FORMAT_LOG_BLOCK, FORMAT_LOG_BLOCK                                                                   \
    }

/* Looks at the first `length` of a segment's bytes, going on where it has ended before. True: no frame begins
 * behind these bytes. */
bool format_log_reach(const struct format_log_segment *segment, const uint8_t *bytes, uint32_t length,
                      struct format_log_reach *reach);

/* ---- control blocks ---- */

/* The word says up to which sequence everything is merged. It can be written alone: 12 bits of it are a check
 * over the others, since a wrong one would take acknowledged writes away. */
uint64_t format_log_watermark_encode(uint64_t sequence);
bool format_log_watermark_decode(uint64_t word, uint64_t *sequence);
#define FORMAT_LOG_WATERMARK_OFFSET 0u

struct format_log_control {
    struct fabric_process owner;
    uint64_t watermark; /* a sequence; 0: nothing is merged */
};

void format_log_control_encode(const struct format_log_control *control, uint8_t bytes[FORMAT_LOG_BLOCK]);
/* As format_log_segment_decode. */
const char *format_log_control_decode(const uint8_t bytes[FORMAT_LOG_BLOCK],
                                      struct format_log_control *control);

#endif
