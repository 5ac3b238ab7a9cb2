/*
 * log.h - the state of the service LOG (request.h, log.c): which processes keep a log on this memory node,
 * and with which segments. Private to src/memory/.
 */
#ifndef MEMORY_LOG_H
#define MEMORY_LOG_H

#include <stdbool.h>

#include "memory/keep.h"
#include "memory/request.h"

/* A process with a log here. What must be known later lies in slots of the keep. */
struct memory_log_record {
    struct memory_board_process process;
    uint64_t serial;
    gaddr control;
    bool fenced;    /* since its last OPEN */
    uint64_t bytes; /* of its segments */
    uint32_t count, capacity;
    struct keep_process *slot;
    struct keep_segment **segments; /* owned; numbers ascend */
};

/* All of it is guarded by the node's lock, but `most`, which is fixed. */
struct memory_log {
    struct keep *keep;
    uint64_t most;                     /* bytes that all segments together may have */
    uint64_t used, segments;           /* of all processes' segments: bytes, and how many */
    uint32_t next;                     /* the segments' slot where looking for a free one begins */
    struct memory_log_record *records; /* owned; serials ascend */
    uint32_t count, capacity;
};

/* What all segments of a pool of that size may have, unless the options say otherwise: a 32nd of it; of a
 * small one 512 KiB, if that is at most a quarter. */
uint64_t memory_log_bytes(uint64_t pool_bytes);
struct memory_node;
/* As they were kept: everyone of the node's former life is fenced. The node's blocks are there.
 * BANYAN_ENOMEM, BANYAN_ECORRUPT. */
int memory_log_open(struct memory_node *node, struct error *error);
/* Forgets all logs, and holds no memory any more: for a memory node that is formatted, whose keep is clear
 * then, and at its end. */
void memory_log_clear(struct memory_log *log);

#endif
