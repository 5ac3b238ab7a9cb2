/*
 * alone.c - What frames tell a process that reads back the disks, where one of these is lost (P18 of
 * docs/internals/durability.md): that there are frames of one copy, which may have stood on the lost disk.
 *
 * A frame of one copy is marked behind the draw of its sequences, and before it is acknowledged. A frame
 * whose sequences are drawn behind that says so. As soon as two disks have one that does, each journal but
 * one of them knows, and goes on to know it until a checkpoint has what was marked; so later frames need not
 * repeat it. A checkpoint that lets go of that frame has its sequences below its floors, and what was marked
 * before it as well.
 */
#include "base/atomic.h"
#include "base/task.h"
#include "log/state.h"

/* At disk-second the disks are asked for such a frame no more often than that. */
#define ASKED_NS (100 * MILLISECOND)

void log_alone(struct log *log)
{
    /* Release: a task that sees the count draws behind what is counted. */
    atomic_add_release(&log->marked, 1);
}

bool log_tells_alone(const struct log *log)
{
    /* Acquire, both: what is counted was drawn before. */
    return log->single || atomic_load_acquire(&log->marked) != atomic_load_acquire(&log->told);
}

void log_marks_take(struct log *log, struct log_frame *frame)
{
    frame->marks = atomic_load_acquire(&log->marked); /* as above: the caller draws behind it */
}

/* Whether both copies stand on memory nodes that copy them to disks. */
static bool on_disks(const struct log *log, const struct log_frame *frame)
{
    bool all = frame->copies == 2 && !frame->status;
    for (uint32_t i = 0; all && i < frame->copies; i++)
        all = !frame->lists[i].status &&
              fabric_durability(log->fabric, frame->places[i].stream->node) >= FABRIC_KEPT_ON_DISK;
    return all;
}

bool log_tells(const struct log *log, const struct log_frame *frame)
{
    /* Relaxed: commits alone write it, one after the other. */
    return !log->single && frame->marks != atomic_load_relaxed(&log->told) && on_disks(log, frame);
}

bool log_asks_told(struct log *log, const struct log_frame *frame)
{
    if (!log_tells(log, frame))
        return false;
    const uint64_t now = task_now();
    if (log->asked_at && now - log->asked_at < ASKED_NS)
        return false;
    log->asked_at = now;
    return true;
}

void log_told(struct log *log, const struct log_frame *frame)
{
    bool have = log_tells(log, frame);
    for (uint32_t i = 0; have && i < frame->copies; i++) {
        const struct log_frame *asked = &frame->batch->frames[frame->places[i].stream->node];
        have = asked->asks && !asked->disk;
    }
    if (have)
        atomic_store_release(&log->told, frame->marks); /* release: behind what the disks have said */
}
