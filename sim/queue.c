/* queue.c - growth of the event queue (see queue.h). */
#include "sim/queue.h"

#include <stdlib.h>

static bool grow(struct sim_queue *queue, uint32_t capacity)
{
    struct sim_key *keys = realloc(queue->keys, capacity * sizeof *keys);
    if (!keys)
        return false;
    queue->keys = keys;
    struct sim_event *events = realloc(queue->events, capacity * sizeof *events);
    if (!events)
        return false;
    queue->events = events;
    for (uint32_t index = capacity; index-- > queue->capacity;) {
        events[index].next_free = queue->free_head;
        queue->free_head = index + 1;
    }
    queue->capacity = capacity;
    return true;
}

bool sim_queue_claim(struct sim_queue *queue, uint32_t count)
{
    if (count > SIM_PENDING_MAX - queue->claimed)
        return false;
    uint32_t wanted = queue->claimed + count, capacity = queue->capacity ? queue->capacity : 1024;
    while (capacity < wanted)
        capacity = capacity > SIM_PENDING_MAX / 2 ? SIM_PENDING_MAX : capacity * 2;
    if (capacity > queue->capacity && !grow(queue, capacity))
        return false;
    queue->claimed = wanted;
    return true;
}

void sim_queue_free(struct sim_queue *queue)
{
    free(queue->keys);
    free(queue->events);
    *queue = (struct sim_queue){0};
}
