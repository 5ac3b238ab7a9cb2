/*
 * reader.h - reads the log of a process as it lies in the pool, from all memory nodes, and judges what is
 * corrupt in it: whether a change may be lost by that, or other copies have all of it (L7 and L8 of
 * docs/internals/log.md). Whoever inherits decides by it whether a range is served (reading.c), and `banyan
 * recover` says the same (examine.c).
 *
 * One task, in no operation. Costs the READs of what is used of the segments that are not merged; of all of
 * them, once or for each segment whose header is known again from elsewhere, where something is corrupt.
 * Takes memory for one segment, and 40 bytes for each frame that was written twice.
 */
#ifndef LOG_READER_H
#define LOG_READER_H

#include "base/heap.h"
#include "log/copies.h"
#include "log/log.h"
#include "memory/request.h"

enum log_fault_kind {
    LOG_FAULT_REGION,  /* bytes that are known to have been complete, and that no whole frame covers */
    LOG_FAULT_SEGMENT, /* a segment's header */
    LOG_FAULT_CONTROL, /* a control block: up to where everything is merged is not known from it */
    LOG_FAULTS
};
extern const char *const log_fault_names[]; /* "region", "segment", "control block" */

/* A change beside a region. */
struct log_neighbour {
    bool there;
    uint16_t index; /* its number */
    uint64_t epoch, sequence;
    struct format_key_copy key;
};

struct log_fault {
    enum log_fault_kind kind;
    uint16_t node;
    struct memory_log_segment segment; /* REGION, SEGMENT */
    uint64_t nonce;                    /* REGION */
    gaddr address;
    uint32_t bytes;
    uint32_t merged;                    /* REGION: of them, from the first on; what stood there is merged */
    const char *what;                   /* half a sentence, to follow the name of the bytes */
    const char *mended;                 /* a sentence: why nothing is lost by it; NULL: something may be */
    struct log_neighbour before, after; /* REGION: the last change before it, the first one behind */
};

struct log_reader_segment;
struct log_reader {
    /* the caller's */
    struct heap *heap;
    struct tree_session *session;
    struct fabric_process process;
    uint16_t memory_nodes;
    bool whole; /* also segments of which all is merged */
    /* Each whole frame; some may come twice. The watermark is known by then. 0, or an error that ends it. */
    int (*visit)(void *context, uint16_t node, const struct format_log_view *frame);
    void *context;
    /* what was found */
    uint64_t watermark;       /* the greatest that any memory node has */
    uint64_t frames, entries; /* that are whole */
    uint64_t sequence;        /* the greatest of them */
    struct log_fault *faults; /* owned */
    uint32_t fault_count, fault_capacity;
    /* the reader's own */
    struct log_copies copies;
    struct log_reader_segment *segments,
        *known; /* owned; known: headers that were lost, and are known again */
    uint32_t segment_count, segment_capacity, known_count, known_capacity, controls;
    bool *sound;    /* [memory_nodes]; owned: the control block says something */
    uint8_t *bytes; /* FORMAT_LOG_SEGMENT_MAX; owned */
};

/* 0: all of the log was read, and what is corrupt is among the faults; or why it could not be read. */
int log_reader_run(struct log_reader *reader);
/* The first fault by which something may be lost; NULL: nothing is. */
const struct log_fault *log_reader_lost(const struct log_reader *reader);
void log_reader_end(struct log_reader *reader);

/* ---- single blocks, also of one's own log ---- */

int log_bytes_read(struct tree_session *session, gaddr from, uint8_t *to, uint32_t length);
bool log_block_empty(const uint8_t bytes[FORMAT_LOG_BLOCK]);
/* NULL: *header is that of a segment of this process. Else what is wrong, and its size is 0. */
const char *log_segment_judge(const uint8_t bytes[FORMAT_LOG_BLOCK], struct fabric_process process,
                              const struct memory_log_segment *pool, struct format_log_segment *header);

#endif
