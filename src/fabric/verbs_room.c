/* verbs_room.c - making a room and its places outside of the ring (verbs_room.h). */
#include "fabric/verbs_room.h"

#include <sys/mman.h>

/* Of places outside of the ring, together: four of the longest lists. */
#define OWN_BYTES_MAX (4 * (FABRIC_LIST_BYTES_MAX + 8 * FABRIC_COMMANDS_MAX))

/* Registered memory that is 4 KiB aligned. */
static int memory_create(const struct verbs_device *device, uint32_t bytes, uint8_t **created,
                         struct ibv_mr **region, struct error *error)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u bytes of a queue", bytes);
    int status = verbs_memory_register(device, memory, bytes, IBV_ACCESS_LOCAL_WRITE,
                                       "a queue's ring of bytes", region, error);
    if (status) {
        munmap(memory, bytes);
        return status;
    }
    *created = memory;
    return BANYAN_OK;
}

static void memory_drop(uint8_t *memory, struct ibv_mr *region, uint32_t bytes)
{
    ibv_dereg_mr(region);
    munmap(memory, bytes);
}

int verbs_room_create(struct verbs_room *room, const struct verbs_device *device, struct error *error)
{
    *room = (struct verbs_room){.device = device};
    return memory_create(device, VERBS_RING_BYTES, &room->ring, &room->ring_region, error);
}

void verbs_room_destroy(struct verbs_room *room)
{
    assert(room->begin == room->end && room->own_bytes == 0);
    if (room->ring != NULL)
        memory_drop(room->ring, room->ring_region, VERBS_RING_BYTES);
    room->ring = NULL;
}

int verbs_room_take_own(struct verbs_room *room, struct verbs_bytes *place, uint32_t bytes)
{
    if (room->own_bytes + bytes > OWN_BYTES_MAX)
        return BANYAN_EBUSY;
    int status = memory_create(room->device, bytes, &place->bytes, &place->own, NULL);
    if (status)
        return status;
    place->length = bytes;
    room->own_bytes += bytes;
    return BANYAN_OK;
}

void verbs_room_return_own(struct verbs_room *room, struct verbs_bytes *place)
{
    assert(place->own != NULL && room->own_bytes >= place->length);
    memory_drop(place->bytes, place->own, place->length);
    place->own = NULL;
    room->own_bytes -= place->length;
}
