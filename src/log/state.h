/*
 * state.h - the objects behind log.h, and what the files of src/log/ call of each other. Private to src/log/.
 *
 * The LANE belongs to the process: all its threads fill the frames of its open batch, so what one of them has
 * written another may build on at once. One batch is under way at a time. A batch has a frame for each memory
 * node. A STREAM is this process's on one memory node.
 */
#ifndef LOG_STATE_H
#define LOG_STATE_H

#include "base/heap.h"
#include "base/random.h"
#include "format/log.h"
#include "log/log.h"
#include "pool/log.h"

#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)

/* ---- streams ---- */

struct log_segment {
    struct log_segment *next;
    struct memory_log_segment pool; /* as the memory node has handed it out */
    uint64_t number, nonce;
    uint32_t size, tail, before; /* before: as its header says */
    uint64_t last;               /* the greatest sequence in it */
    uint32_t flying;             /* frames under way */
    /* A frame failed, of it or of an earlier segment which its header calls complete: nothing more is written
     * into it, nor is it used again. */
    bool broken;
    bool asked;  /* the memory node was asked to take it back, and may have done so */
    bool trusts; /* its header says that the one before it is complete */
};

/* Where a frame lies, in one copy of it. */
struct log_place {
    struct log_stream *stream;
    struct log_segment *segment;
    uint32_t position, bytes;
    uint32_t carried;       /* of the bytes, those of carriers before the frame */
    uint32_t committed;     /* when the room was reserved */
    bool named;             /* by the frame's other copy, which was sent: set before log_stream_ended */
    struct log_place *next; /* of the stream, in the order of positions, while it is under way */
};

/* Up to where something is merged, for the merger's pace alone. */
struct log_mark {
    uint64_t segment; /* its number; what was written before it is merged too */
    uint32_t tail;
};

struct log_stream {
    struct log *log;
    uint16_t node;
    struct spinlock lock;
    /* guarded by the lock: */
    struct log_segment *current;           /* owned; NULL: none yet */
    struct log_segment *used, **used_last; /* owned; full or broken, the oldest first */
    struct log_segment *spare;             /* owned; all of it is merged */
    struct log_segment *broken;            /* owned; likewise, to be given back, and for nothing else */
    uint32_t used_count, segments;
    uint64_t segment_bytes;
    struct log_place *flights, **flights_last;
    uint32_t hole, hole_end; /* of the current segment, where frames were lost: it is covered with frames
                                without entries before anything else is reserved; hole_end 0: none */
    uint64_t next_number;
    uint64_t told;       /* the greatest number of a segment that the memory node has told */
    bool astray;         /* an answer was lost: it may have handed out one behind that */
    bool switching;      /* a task makes the next segment */
    bool giving;         /* all goes back to the memory node, and nothing is reserved meanwhile */
    uint64_t full_since; /* when a task found no room first, and none has found any since; 0: there is room */
    uint64_t taken_at;   /* when one found room last */
    uint64_t opened;     /* the incarnation in which the memory node was told; 0: never */
    gaddr control;       /* with `opened`; GADDR_NULL: none was written yet */
    bool owes; /* with neither: the memory node was asked to take the log back, and may have it still */
    struct log_mark begun, merged; /* where the stream ended when the last cycle began; ... that merged all */
    uint64_t cycled;               /* bytes between these two, while that cycle is under way; else 0 */
};

/* Of what writers may fill, in 1/256. */
struct log_pressure {
    uint32_t full;  /* is in segments that are not free */
    uint32_t fresh; /* was logged since the last cycle that merged all began */
    uint32_t left;  /* the same without what the cycle that is under way has merged already */
};
/* From so much on that is left writers are held back. */
#define LOG_CROWDED 48u
struct log_pressure log_stream_pressure(struct log_stream *stream);
/* Under the lock: bytes that were logged since the last cycle that merged all began. */
uint64_t log_stream_fresh(const struct log_stream *stream);

/* What frames that are reserved one after the other share, so that they wait no longer than one of them may.
 */
struct log_patience {
    uint64_t since; /* when one of them found no room first; 0: none has */
    bool refused;   /* one has waited for too long */
};
/* Room for a frame; waits for a segment where there is none, until the stream was full for as long as a
 * writer may wait; or until another one was, and this one has had no room since: so many writes in a row, as
 * those of a batch, wait no longer than one, whichever streams they go to. `patience` NULL: the frame has one
 * of its own. `beyond`, and while log->beyond: also more segments than writers may have. 0, or an error, and
 * nothing was written. BANYAN_EINVAL: a new segment is too short for it. */
int log_stream_reserve(struct log_stream *stream, struct tree_session *session, uint32_t bytes, bool beyond,
                       struct log_patience *patience, struct log_place *place);
/* Where the frame itself is to lie. */
static inline uint32_t log_place_frame(const struct log_place *place)
{
    return place->position + place->carried;
}
/* Writes the frame's header for its place. Its sequences are drawn behind the reserving: what waits for room
 * holds no watermark back, and what the header calls complete has smaller ones (L2). `other`: where its other
 * copy goes; NULL: it has none. */
void log_stream_seal(struct log_place *place, const struct log_place *other, struct format_log_frame *frame);
/* What became of the frame's list. 0: the frame is in memory. BANYAN_ENET, BANYAN_EFENCED: nothing of it can
 * arrive any more before what is sent from now on (G6), so its room is given back, or covered. Else it may
 * arrive at any time. */
void log_stream_ended(struct log_place *place, int status);
/* False: the segment that is written could not take so much for one frame, were it empty. */
bool log_stream_fits(struct log_stream *stream, uint32_t bytes);
/* Nothing of the frame was sent, nor will be. */
void log_stream_unreserve(struct log_place *place);
/* The memory node knows the log in the incarnation that this returns: what lists under it write to the
 * control block and the segments is the log's. A log that was given back, since its process was fenced and
 * named nowhere, has other ones then. *control: its control block. For the merger. */
int log_stream_open(struct log_stream *stream, struct tree_session *session, uint64_t *incarnation,
                    gaddr *control);
/* Segments up to the watermark, which is published, are free. */
/* Whether that would free any. */
bool log_stream_ends(struct log_stream *stream, uint64_t watermark);
void log_stream_free_up_to(struct log_stream *stream, uint64_t watermark);
/* Broken ones go back to the memory node. */
int log_stream_give_broken(struct log_stream *stream, struct tree_session *session);
int log_stream_close(struct log_stream *stream, struct tree_session *session);
/* The memory node leaves the cluster, or has left it. The first: a stream all of which is merged by the
 * watermark, and in which nothing is under way, goes on with another segment. The second: one that has none
 * in use is given back, or forgotten. For the merger. */
void log_stream_retire(struct log_stream *stream, uint64_t watermark);
int log_stream_leave(struct log_stream *stream, struct tree_session *session);
/* Whether there is something to give back for it. */
bool log_stream_lingers(struct log_stream *stream);

/* ---- what other processes' logs have (reading.c) ---- */

/* A change that is not merged, of some process and index. */
struct log_found {
    uint64_t epoch, sequence;
    uint32_t at;          /* of key and value in the bytes */
    uint16_t index, node; /* its number; in whose stream it lay */
    uint8_t key_length, value_length;
    uint8_t process; /* of the reading */
    bool deleted;
};

/* What the logs of some processes have above their watermarks, of all ranges. It was read behind the transfer
 * by which this process got the ranges of `epoch`: what the logs have of these does not grow any more. */
#define LOG_READING_PROCESSES 16u
struct log_reading {
    uint64_t epoch;
    struct fabric_process processes[LOG_READING_PROCESSES];
    uint32_t process_count;
    struct log_found *entries; /* owned; sorted: by index and key, of one key the latest first */
    uint32_t count, capacity;
    uint8_t *bytes; /* owned */
    uint32_t used, room;
};

/* The one that is kept, if it is of this epoch and has room for so many processes more, or an empty one; the
 * caller's, until it is kept or freed. NULL: no memory. */
struct log_reading *log_reading_take(struct log *log, uint64_t epoch, uint32_t processes);
void log_reading_keep(struct log *log, struct log_reading *reading);
void log_reading_free(struct log *log, struct log_reading *reading); /* NULL is ignored */
/* What is kept between ranges is not needed any more. */
void log_reading_drop(struct log *log);
/* Adds what the logs of these processes have, where it is not there yet: all of a log, or nothing.
 * BANYAN_ECORRUPT: something of it may be lost; the message names it. */
int log_reading_complete(struct log *log, struct tree_session *session, struct log_reading *reading,
                         const char *index, const struct log_heir *processes, uint32_t count);
/* Which process it is in the reading; -1: none. */
int log_reading_find(const struct log_reading *reading, struct fabric_process process);
static inline struct format_key log_found_key(const struct log_reading *reading,
                                              const struct log_found *entry)
{
    return (struct format_key){reading->bytes + entry->at, entry->key_length};
}
static inline struct format_key log_found_value(const struct log_reading *reading,
                                                const struct log_found *entry)
{
    return (struct format_key){reading->bytes + entry->at + entry->key_length, entry->value_length};
}

/* ---- lanes ---- */

/* A batch's records that are carried come to no more than that, or are one alone. Less where segments are
 * short. */
#define LOG_CARRIED_MOST (384u << 10)

/* What carriers before the second copy of a frame have (carry.c): the records that its entries name. */
struct log_carry {
    struct format_log_carriers carriers; /* counted until they are filled */
    uint64_t commands;                   /* bits: those of the frame that write or READ a record */
    uint32_t reads;                      /* bytes that are READ */
    uint8_t *bytes, *scratch;            /* owned; NULL until used */
    uint32_t bytes_room, scratch_room;
    bool filled;
};

struct log_frame {
    struct unmerged_frame drawn; /* first: what the tree knows of it */
    struct log_batch *batch;
    uint16_t node;
    struct format_log_frame frame;
    uint8_t *bytes, *copy; /* owned; copy: with another header, NULL until used */
    struct tree_logged *first, **last;
    uint32_t ahead, ahead_bytes, again;
    uint32_t brought;      /* entries with values in pieces, which were brought */
    uint16_t brought_node; /* to this memory node */
    /* The writes ahead, and READs of records that were written before and are to be carried; then the frame.
     * For the other copy the carriers, and the frame. */
    struct fabric_command commands[FABRIC_COMMANDS_MAX], copied[2];
    struct log_carry carry;
    struct fabric_list lists[2];
    struct log_place places[2];
    uint32_t copies; /* lists under way */
    uint64_t marks;  /* frames of one copy that were marked when the frame was drawn (P18) */
    bool lacks;      /* it has one copy, or one whose records are not carried */
    bool asks, must; /* of the memory node: its disk is asked whether it has the batch's copies there; and
                        writes wait for what it says */
    int disk;        /* what it has said */
    int status;
    struct error error; /* with `status`, of the last one that failed */
};

struct log_batch {
    struct log_lane *lane;
    struct log_frame *frames; /* [memory nodes]; owned */
    uint32_t entries, carried;
    uint64_t incarnation;
    bool led;
};

struct log_wait {
    struct log_wait *next;
    struct wakeup wakeup;
};

struct log_lane {
    struct log *log;
    struct spinlock lock;
    /* guarded by the lock: */
    struct log_batch batches[2], *open, *flying; /* what is in a batch that flies is its leader's alone */
    struct wakeup *leader;                       /* waits until nothing is flying */
    bool carries;                                /* from commit_open to commit_close: records are carried */
    struct log_wait *waits;                      /* for the end of the open batch */
    /* The leader's of the batch that flies: what merging had ended when that was seen to move last; what has
     * been waited for since a batch was refused nothing. */
    uint64_t merge_calls, merged_at;
    struct log_patience patience;
};

/* ---- merging ---- */

/* A merger that waits for work. */
struct log_helper {
    struct log_helper *next;
    struct wakeup wakeup;
    bool called; /* it counts as working; else the log was stopped */
};

/* What a walk lets go first: nothing; who inherits; operations too, while there is time. */
enum log_pace { LOG_PACE_FAST, LOG_PACE_YIELDS, LOG_PACE_PAUSES };
/* What the mergers do together at the moment. Its leader, whose turn it is, writes it while no helper works;
 * what helpers change says its lock. */
struct log_walk {
    struct tree_log_walk keys;
    struct tree *tree;
    enum log_pace pace;
    int status;           /* under its keys' lock: the first error */
    uint64_t before, all; /* entries that the cycle has tried in other indexes, and has to try; all 0: none */
    uint32_t working;     /* under the log's lock: helpers */
    struct wakeup *leader; /* likewise: waits for the last of them */
};

/* ---- the log ---- */

struct log_index {
    struct log_index *next;
    struct tree *tree;
    uint32_t users; /* mergers at work in it */
    bool leaving;
};

/* What must not be passed by the watermark: changes of a range that another process inherits, or of one whose
 * heirs stand in the map still. */
#define KEPT_INHERITED (UINT64_MAX - 1) /* the end of an index alone comes later */
struct log_kept {
    struct log_kept *next;
    struct tree *tree;
    uint64_t version; /* released by a map of this version or a later one; KEPT_INHERITED: by none */
    uint64_t floor;   /* the watermark stays below */
    /* Of a range that was inherited under this epoch, while its heirs stand in the map; else 0. */
    uint64_t epoch;
    struct format_key_copy lower, upper;
    bool bounded; /* by `upper` */
};

struct log {
    struct tree_compute *compute;
    struct fabric *fabric;
    struct log_options options;
    uint16_t most;              /* memory nodes that there may be */
    struct heap heap;           /* what tasks allocate for a while, and segments */
    struct log_stream *streams; /* [most]; owned */
    struct log_lane lane;
    uint64_t sequence; /* atomic; the last that was drawn */
    bool stopped;      /* atomic */
    struct spinlock lock;
    /* guarded by the lock: */
    struct random random;
    struct log_index *indexes;   /* owned */
    struct log_kept *kept;       /* owned */
    struct log_reading *reading; /* owned; NULL: none, or a task has it (reading.c) */
    uint64_t published;          /* also atomic; the watermark that some memory nodes may have */
    uint64_t certain;            /* likewise; that all of them have */
    /* Atomic: so many reasons to let frames have more segments than the threshold says. What is doubtful is
     * logged again, by a merger or in frames (an entry each): nothing may wait for segments that it keeps
     * from being free. Or operations must end soon (log_hurry). */
    uint32_t beyond;
    bool sealed;         /* nothing more is published: what is kept could not be noted */
    bool merging;        /* a merger makes a cycle */
    uint32_t turn_waits; /* under the lock: tasks that wait for that */
    bool watched;        /* a merger begins cycles; the others help */
    struct log_helper *helpers;
    struct log_walk walk;   /* of the merger whose turn it is */
    uint32_t progress;      /* atomic: so much of what the cycle has to try was tried, in 1/65536 */
    uint32_t inheriting;    /* atomic: tasks that inherit */
    uint64_t logged;        /* atomic: bytes, for the mergers' pace */
    uint64_t degraded_said; /* atomic: when it was said last; 0: never */
    /* P18 (alone.c). */
    bool single;            /* this process keeps one copy of each frame: its frames always say so */
    uint64_t marked;        /* atomic: frames of one copy, counted when they were drawn */
    uint64_t told;          /* atomic: so many of them a frame has told that two disks have */
    uint64_t asked_at;      /* the committing task's: when disks were asked for such a frame last */
    uint32_t carry_most;    /* atomic: what a batch may carry; a hint */
    uint64_t merged_at;     /* atomic, statistics: all that was logged before it is merged, and published */
    struct log_stats stats; /* atomic, relaxed */
};

/* All memory nodes have lower numbers: streams and frames are there for so many, and for more. It grows. */
static inline uint16_t log_nodes(const struct log *log)
{
    return fabric_memory_nodes(log->fabric);
}
/* Whether copies, and what is logged again, may go there. */
static inline bool log_takes(const struct log *log, uint32_t node)
{
    return fabric_membership(log->fabric, (uint16_t)node) == FABRIC_MEMBER;
}

/* All that is not below the watermark. False: no memory. */
bool log_keep(struct log *log, struct tree *tree, uint64_t version);
/* Of a range that was inherited under this epoch, until log_cleared: what is drawn from now on. */
bool log_keep_inherited(struct log *log, struct tree *tree, struct format_key lower,
                        const struct format_key *upper, uint64_t epoch);
/* Until log_unhold nothing that is drawn behind the call is passed. NULL: no memory. */
struct log_kept *log_hold(struct log *log);
void log_unhold(struct log *log, struct log_kept *hold);
/* No cycle is under way from here to log_turn_give. Suspends. */
void log_turn_wait(struct log *log);
void log_turn_give(struct log *log);
/* Mergers that wait for work end. */
void log_helpers_end(struct log *log);
/* So many sequences; returns the first. */
uint64_t log_draw(struct log *log, uint32_t count);
/* False: no memory. */
bool log_lane_create(struct log *log);
void log_lane_destroy(struct log *log);
/* A frame of this memory node has one copy, since no other one took the second: it is counted, and said. */
void log_degraded(struct log *log, uint16_t node);
/* ---- frames of one copy (alone.c, P18) ---- */

/* Marks one. Its sequences are drawn, and it is not acknowledged yet. */
void log_alone(struct log *log);
/* Whether a frame that is sealed now is to say that there are such. */
bool log_tells_alone(const struct log *log);
/* Before the frame's sequences are drawn: notes which it says it of. */
void log_marks_take(struct log *log, struct log_frame *frame);
/* The lists are back. Whether the frame stands on two memory nodes with disks, and says what no two disks are
 * known to have; and whether these are to be asked for it now, where no write waits for them. */
bool log_tells(const struct log *log, const struct log_frame *frame);
bool log_asks_told(struct log *log, const struct log_frame *frame);
/* The disks have answered. */
void log_told(struct log *log, const struct log_frame *frame);
/* pool_persist, counted and timed. */
int log_persist(struct log *log, struct tree_session *session, const uint16_t *nodes, uint32_t count,
                uint32_t *at);

/* ---- records that are carried (carry.c; L8) ---- */

/* Whether second copies carry records: to memory nodes that copy them to their disks. */
bool log_carries(const struct log *log);
/* The entry, which names a record, went into the frame, with what goes ahead: what is to be carried is
 * counted, and READ by frame->commands where the entry does not bring it. */
void log_carry_add(struct log_frame *frame, const struct tree_logged_entry *entry);
/* Whether the entry brings its record: else it takes a command more. */
bool log_carry_brought(const struct tree_logged_entry *entry);
/* Before the first list is sent. False: no memory. */
bool log_carry_prepare(struct log_frame *frame);
/* Behind it: all bytes are at hand, and go before the frame's copy at this place. */
void log_carry_fill(struct log_frame *frame, const struct log_place *place);
void log_carry_free(struct log_carry *carry);

/* Records that the second copy of a frame is to carry, which were all written before (inherit.c). */
struct log_record {
    gaddr address;
    uint32_t bytes;
};
struct log_records {
    struct heap *heap;
    struct log_record *items; /* owned */
    uint32_t count, capacity, bytes;
    uint8_t *scratch;                    /* owned: their bytes */
    struct format_log_carriers carriers; /* its bytes are owned */
};
/* False: no memory. */
bool log_records_add(struct log_records *records, gaddr address, uint32_t bytes);
/* READs them, and makes carriers of them, which are to be sealed. A round trip for each 1,024 of a memory
 * node. */
int log_records_read(struct log_records *records, struct tree_session *session);
/* Has none any more; the memory is freed. */
void log_records_clear(struct log_records *records);

/* ---- pieces that are brought (bring.c; P17 of docs/internals/durability.md) ---- */

/* Before an entry that goes to this memory node's stream: where it names a value in pieces, the disks that
 * will have it get those. Sets entry->brought. Suspends. 0, BANYAN_ENOSPC, BANYAN_ENOMEM, BANYAN_EFENCED:
 * then nothing is to be logged. */
int log_bring(struct log *log, struct tree_session *session, uint16_t home, struct tree_logged_entry *entry);
/* The memory node that has the second copy at this attempt; the same one: there is no other. */
static inline uint16_t log_copy_node(const struct log *log, uint16_t node, uint32_t attempt)
{
    const uint32_t count = log_nodes(log);
    uint32_t other = node;
    do
        other = (other + 1) % count;
    while (other != node && (!log_takes(log, other) || attempt-- > 0));
    return (uint16_t)other;
}
/* Entries have one copy of what they name, of which that is not known otherwise: it is counted, and frames
 * say so from now on to the process that reads back what the disks have (P16). */
void log_uncarried(struct log *log, uint32_t entries);
extern const struct tree_log log_tree;

static inline void log_count(uint64_t *counter, uint64_t more)
{
    atomic_add_relaxed(counter, more); /* statistics */
}
static inline void log_longest(uint64_t *longest, uint64_t now)
{
    uint64_t before = atomic_load_relaxed(longest); /* statistics */
    while (now > before && !atomic_swap_relaxed(longest, &before, now))
        ;
}

#endif
