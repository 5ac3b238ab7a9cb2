/*
 * log.h - the compute node's side of owners' logs on memory nodes: control blocks and segments (the service
 * LOG of memory/request.h; docs/internals/log.md).
 *
 * Called by the owner's log for its own streams, by successors for those of processes that are gone, and by
 * `banyan check`. Each function is one RPC to one memory node, counted among the session's costs, from a
 * task; nothing is allocated. What a memory node answers is validated: an answer that makes no sense is
 * BANYAN_ECORRUPT, with a message that names the memory node. BANYAN_ENET and BANYAN_ETIMEOUT leave open
 * whether the call was served: after a TAKE a listing tells, after a GIVE or a release it may be made again.
 *
 * Where the memory node copies logs to a disk, giving and releasing wait until it has done so (pool_persist),
 * one more RPC, and fail as that does: then nothing is given back.
 */
#ifndef POOL_LOG_H
#define POOL_LOG_H

#include "fabric/peers.h"
#include "memory/request.h"
#include "pool/pool.h"

/* What this process has on a memory node. */
struct pool_log {
    gaddr control; /* MEMORY_LOG_CONTROL_BYTES */
    uint32_t segments;
    uint64_t bytes; /* of them */
};

/* This process keeps a log on the memory node from now on. *log is all zero, its control block too, unless
 * the process had opened it before: then it is what was left, and pool_log_list tells the segments. After
 * each loss of the connection it must be opened again, before anything is taken or given. BANYAN_ENOSPC:
 * there is no room in the pool, or too many processes have a log there. */
int pool_log_open(struct pool_session *session, uint16_t node, struct pool_log *log);
/* A segment of about `bytes` or less: a multiple of MEMORY_LOG_SEGMENT_LEAST, up to MEMORY_LOG_SEGMENT_MOST;
 * its first MEMORY_LOG_HEADER_BYTES are zero. BANYAN_ENOSPC: none is to be had now; the message says what is
 * full. BANYAN_ENOTFOUND: the log was not opened. BANYAN_ECONFLICT: not again, since a loss. */
int pool_log_take(struct pool_session *session, uint16_t node, uint64_t bytes,
                  struct memory_log_segment *segment);
/* The segment, which lies on this memory node, is not used any more. Errors as above; BANYAN_EINVAL: it is
 * not one of this process's. */
int pool_log_give(struct pool_session *session, uint16_t node, const struct memory_log_segment *segment);
/* The segments of a process with numbers above `after`, in the order in which they were taken: up to
 * MEMORY_LOG_PAGE of them; fewer: there are no more. BANYAN_ENOTFOUND: the process has no log there. */
int pool_log_list(struct pool_session *session, uint16_t node, struct fabric_process process, uint64_t after,
                  struct memory_log_segments *page);
/* All of them, page after page: each is told to `visit`, which returns 0, or an error that ends it. An RPC
 * for each page. *page is room, and has afterwards what the last page said of the log. Errors as above. */
int pool_log_list_all(struct pool_session *session, uint16_t node, struct fabric_process process,
                      struct memory_log_segments *page,
                      int (*visit)(void *context, const struct memory_log_segment *segment), void *context);
/* The processes with a log there with serial numbers above `after`, likewise. */
int pool_log_processes(struct pool_session *session, uint16_t node, uint64_t after,
                       struct memory_log_processes *page);
/* Gives back all that the process has there: this process, or one that has been fenced there. 0 as well if it
 * has nothing. BANYAN_EBUSY: it was not fenced there since it opened its log. */
int pool_log_release(struct pool_session *session, uint16_t node, struct fabric_process process);

#endif
