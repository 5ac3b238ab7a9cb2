/*
 * examine.h - looks at the log of a process that is gone, as it lies in the pool, for what is corrupt in it;
 * and takes out of the way what its operator has accepted as lost. For `banyan recover`.
 *
 * log_inherit refuses a log of which something is corrupt in its middle, and no copy has what stood there:
 * acknowledged changes may have. What log_examine says of that is what log_inherit decides, since both ask
 * reader.h. log_accept covers such bytes with frames that have no entries (a segment or a control block whose
 * header is corrupt: with one that says that nothing is there), so that whoever inherits, now or later, on
 * whichever process, finds the log whole. Each frame of 64 bytes is whole or not: a reader that comes
 * meanwhile refuses the log once more, and reads it again later.
 *
 * One task, in no operation. Costs as reader.h says; the acceptance a WRITE.
 */
#ifndef LOG_EXAMINE_H
#define LOG_EXAMINE_H

#include "log/reader.h"

struct log_examination {
    uint32_t nodes, nodes_gone; /* with a log of the process; of these, where it was fenced since */
    uint64_t segments, segment_bytes, frames, entries;
    uint64_t watermark, sequence; /* the greatest that was published; that was found */
    uint32_t faults, mended;      /* mended: of them, those by which nothing is lost */
    uint64_t lost_bytes;          /* of the others */
};

/* `visit` (NULL: none) for each fault; what it gets is valid during the call, which makes none on the
 * session. 0, or why the log could not be read. Nothing is said of a process that is not gone but the first
 * line of the examination. */
int log_examine(struct tree_session *session, uint16_t memory_nodes, struct fabric_process process,
                void (*visit)(void *context, const struct log_fault *fault), void *context,
                struct log_examination *examination);

/* The caller has the map's lock, so that the log is not given back meanwhile, and has just examined it under
 * that. BANYAN_EBUSY: the process is not gone, or the bytes have changed since. */
int log_accept(struct tree_session *session, struct fabric_process process,
               const struct log_examination *examination, const struct log_fault *fault);

#endif
