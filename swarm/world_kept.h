/*
 * world_kept.h - what must be on the disks of a simulated world after its power was cut: a book of all that
 * owners log, and the judges that hold it against what is read back. For the files of a world
 * (world_parts.h).
 *
 * THE BOOK has each change that goes into an owner's log, in the order in which the key's changes are made,
 * with the memory node whose stream gets it and how its commit ended; and each round of a disk that went
 * well. It stands between the tree and the log (tree/logging.h), so it knows what was logged from nothing
 * else that is judged: a client's write that is not in the book was written through, and is promised nothing.
 *
 * THE PROMISE. Of each key what is read back is what it held behind one of its changes in the book: at
 * disk-always the last one whose commit ended well, at disk-second the last one that was committed before a
 * round of its memory node that ended well began; or a later one, but for those that were refused. At
 * disk-second a value in a record of its own counts only if the record stood, whole, when that round began:
 * what takes its place may release it (P3), a change that is not logged too. A value whose parts lie on
 * several memory nodes is promised nothing, unless its log keeps two copies and has brought all pieces (P17).
 *
 * A DISK THAT IS GONE, at disk-always (P16). Promised is what was acknowledged when its log had written no
 * frame of one copy, if its value is in the entry, or the log has carried all records and brought all pieces;
 * and what a process that reads back believes: of a process whose last frame in the other journals says that
 * none had one copy, what was acknowledged before that frame was drawn, but for keys of which it is said that
 * their newest value is gone.
 *
 * A CHECKPOINT has what its scan has met, also of changes that were written through. So of a key it may bring
 * a value that the book does not have, or none: then there must be an operation in the history that has
 * written that, or deleted the key, or may have, and that was not over before the promised change began.
 *
 * THE CLIENTS. What a client was told has been done, of a key that was in one owner's logged row from the
 * call to its return, must be in the book, committed in between. At disk-always the history of each key of
 * which all changes are in the book is linearizable with a read at its end that finds what was read back.
 *
 * One thread, in tasks and in events.
 */
#ifndef SWARM_WORLD_KEPT_H
#define SWARM_WORLD_KEPT_H

#include "log/log.h"
#include "persist/checkpoint.h"
#include "swarm/world.h"

struct world_kept;

/* Aborts where this process has no memory, as all functions here do. */
struct world_kept *world_kept_create(struct world *world);
/* NULL: does nothing. */
void world_kept_destroy(struct world_kept *kept);
/* The compute node's log was set: the book stands before it from now on. */
void world_kept_watch(struct world_kept *kept, const struct world_compute *compute, const struct log *log,
                      unsigned copies);
/* A round of the memory node's disk begins: a number to be given back when it has ended well. */
uint64_t world_kept_round_begin(struct world_kept *kept, unsigned memory);
void world_kept_round_end(struct world_kept *kept, unsigned memory, uint64_t began);
/* Around a client's operations on these keys, the last of the task's history. */
void world_kept_call(struct world_kept *kept, const struct world_task *task, size_t count);
void world_kept_return(struct world_kept *kept, const struct world_task *task, size_t count);

struct world_kept_met {
    uint64_t changes, committed; /* in the book */
    uint64_t keys, recovered;    /* that something was promised of; that have a value */
    uint64_t sure;               /* acknowledged writes that had to be in the book */
    uint64_t whole;              /* keys whose history was judged with what was read back */
    uint64_t later;              /* keys that have more than was promised */
    uint64_t spared;             /* keys that something was promised of though a disk is gone */
    uint64_t missed;             /* keys of which it is said that their newest value went with it */
};
/* Holds what was read back against the book: the replay, over the checkpoint if that is not NULL; `gone`: one
 * of the disks is, of which the replay knows. 0, or the world has failed. */
int world_kept_judge(struct world_kept *kept, struct persist_checkpoint *checkpoint,
                     struct persist_replay *replay, bool gone, struct world_kept_met *met);

/* A store that notes its calls in the book of its world. */
extern const struct subject_ops subject_kept;

#endif
