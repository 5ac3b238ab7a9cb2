/*
 * verbs_room.h - the registered memory through which the bytes of a queue's lists pass: a ring for all usual
 * lists, and memory of its own for a list that is longer than the ring.
 *
 * Rooms belong to one queue, and to its owner's thread. Lists are completed in the order of their posts, so
 * places are returned in the order in which they were taken. Taking and returning cost some nanoseconds
 * within the ring; a place of its own calls the system.
 */
#ifndef FABRIC_VERBS_ROOM_H
#define FABRIC_VERBS_ROOM_H

#include <assert.h>

#include "fabric/verbs_device.h"

/* Four scans' lists of 64 leaves of 1 KiB, or as many READs of one leaf as a queue can have under way, and
 * half of it spare; all in all some megabytes for a worker's queues to tens of memory nodes. */
#define VERBS_RING_BYTES (UINT32_C(256) << 10)
/* Places begin on a cache line of their own: NICs write whole lines faster. */
#define VERBS_RING_ALIGN 64u

struct verbs_room {
    const struct verbs_device *device;
    uint8_t *ring;
    struct ibv_mr *ring_region;
    uint64_t begin,
        end; /* the bytes in use; both count on without wrapping, and begin at 0 when it is empty */
    uint32_t own_bytes; /* of places outside of the ring */
};

/* Where one list's bytes pass. */
struct verbs_bytes {
    uint8_t *bytes;
    struct ibv_mr *own; /* NULL: part of the ring */
    uint32_t length;    /* of the ring, with what was left out at its end; or of `own` */
};

int verbs_room_create(struct verbs_room *room, const struct verbs_device *device, struct error *error);
/* When every place has been returned. */
void verbs_room_destroy(struct verbs_room *room);

int verbs_room_take_own(struct verbs_room *room, struct verbs_bytes *place, uint32_t bytes);
void verbs_room_return_own(struct verbs_room *room, struct verbs_bytes *place);

/* BANYAN_EBUSY: not before other places are returned. BANYAN_ENOMEM and others: no memory for a long list. */
static inline int verbs_room_take(struct verbs_room *room, struct verbs_bytes *place, uint32_t bytes)
{
    bytes = (bytes + VERBS_RING_ALIGN - 1) & ~(VERBS_RING_ALIGN - 1);
    if (__builtin_expect(bytes > VERBS_RING_BYTES, 0))
        return verbs_room_take_own(room, place, bytes);
    /* From its start, so that what fits the ring fits an empty ring. */
    if (room->begin == room->end)
        room->begin = room->end = 0;
    uint32_t at = (uint32_t)(room->end % VERBS_RING_BYTES);
    uint32_t left_out = at + bytes <= VERBS_RING_BYTES ? 0 : VERBS_RING_BYTES - at;
    if (room->end - room->begin + left_out + bytes > VERBS_RING_BYTES)
        return BANYAN_EBUSY;
    place->bytes = room->ring + (at + left_out) % VERBS_RING_BYTES;
    place->own = NULL;
    place->length = left_out + bytes;
    room->end += place->length;
    return BANYAN_OK;
}

static inline void verbs_room_return(struct verbs_room *room, struct verbs_bytes *place)
{
    if (__builtin_expect(place->own != NULL, 0)) {
        verbs_room_return_own(room, place);
        return;
    }
    room->begin += place->length;
    assert(room->begin <= room->end);
}

/* The key of the place's memory, for requests. */
static inline uint32_t verbs_room_key(const struct verbs_room *room, const struct verbs_bytes *place)
{
    return place->own != NULL ? place->own->lkey : room->ring_region->lkey;
}

#endif
