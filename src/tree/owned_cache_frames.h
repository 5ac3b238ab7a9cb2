/*
 * owned_cache_frames.h - the cache's leaves: frames with a leaf's whole bytes, as they lie in the pool or
 * newer. Private to the cache of owned ranges (owned_cache.h).
 *
 * Found by address through a hash table. A frame's bytes stand behind a version (seqlock.h): readers copy
 * what they want and look whether it stayed the same; they take no lock, and write nothing but a count of
 * hits, up to 15. What is admitted and what goes is changed under a lock for a part of the table (a shard).
 *
 * Any thread. All calls but create and destroy lie between epoch_enter and epoch_leave: a frame that leaves
 * is freed when no reader can be in it. No round trips.
 */
#ifndef TREE_OWNED_CACHE_FRAMES_H
#define TREE_OWNED_CACHE_FRAMES_H

#include "base/seqlock.h"
#include "fabric/fabric.h"
#include "format/header.h"

struct epoch_slot;
struct owned_frames;

#define OWNED_FRAME_HITS 15u

enum owned_frame_state { OWNED_FRAME_WARM, OWNED_FRAME_COOLING, OWNED_FRAME_GONE };

struct owned_frame {
    struct owned_frame *next; /* of its hash bucket */
    gaddr address;
    struct seqlock latch;        /* of the bytes, and of what is busy */
    uint32_t busy_from, busy_to; /* a write to these bytes is under way */
    uint32_t place;              /* in its shard's array */
    uint8_t hits;                /* relaxed */
    uint8_t state;               /* enum owned_frame_state; changed under the shard's lock, read without */
    uint8_t bytes[] __attribute__((aligned(64)));
};

/* Part of a leaf, and where it is to be copied to. */
struct owned_piece {
    uint32_t offset, length;
    void *to;
};
enum owned_frame_found { OWNED_FRAME_NONE, OWNED_FRAME_COPIED, OWNED_FRAME_BUSY };

/* `bytes`: of all frames together at most, from which the tables' sizes follow. NULL: no memory. */
struct owned_frames *owned_frames_create(uint32_t leaf_bytes, uint64_t bytes);
void owned_frames_destroy(struct owned_frames *frames);

/* The bytes of a leaf to which a write is under way; from == to: none. */
struct owned_busy {
    uint32_t from, to;
};
/* Copies pieces of one state of the leaf. BUSY: a write to one of them is under way; they are copied as they
 * were before it. *hits: before this one. */
enum owned_frame_found owned_frames_read(struct owned_frames *frames, gaddr address,
                                         const struct owned_piece *pieces, uint32_t count, uint32_t *hits,
                                         struct owned_busy *busy);
struct owned_frame *owned_frames_find(struct owned_frames *frames, gaddr address);

/* A frame with these bytes, in place of an older one, if the word is still `stamp` (owned_cache_writes.h). */
bool owned_frames_admit(struct owned_frames *frames, struct epoch_slot *slot, gaddr address,
                        const uint8_t *bytes, const uint64_t *word, uint64_t stamp);
/* False: there was none. */
bool owned_frames_drop(struct owned_frames *frames, struct epoch_slot *slot, gaddr address);

/* A write to these bytes of the leaf begins: who wants them meets BUSY until owned_frames_settle. */
void owned_frames_busy(struct owned_frames *frames, gaddr address, uint32_t from, uint32_t to);
/* The write has ended: the WRITEs among the commands that lie in the leaf are done to the frame. */
void owned_frames_settle(struct owned_frames *frames, gaddr address, const struct fabric_command *writes,
                         uint32_t count);

/* Any frame, each about equally likely, by a random number; NULL: there is none. */
struct owned_frame *owned_frames_any(struct owned_frames *frames, uint64_t random);
/* From one state to another; false: it was in another. */
bool owned_frames_turn(struct owned_frames *frames, struct owned_frame *frame, enum owned_frame_state from,
                       enum owned_frame_state to);
/* Calls `visit` with each frame, and drops those for which it is true. Returns how many went. */
uint64_t owned_frames_drop_if(struct owned_frames *frames, struct epoch_slot *slot,
                              bool (*visit)(void *context, const struct owned_frame *frame), void *context);
/* The same for some of the frames of one of so many shards: those below *left, at first UINT32_MAX, which
 * goes to 0. Frames that come in meanwhile may be left out. */
uint32_t owned_frames_shards(const struct owned_frames *frames);
uint32_t owned_frames_drop_some(struct owned_frames *frames, struct epoch_slot *slot, uint32_t number,
                                uint32_t *left, bool (*visit)(void *context, const struct owned_frame *frame),
                                void *context);

uint64_t owned_frames_count(const struct owned_frames *frames);
/* What one takes. */
uint32_t owned_frames_size(const struct owned_frames *frames);

#endif
