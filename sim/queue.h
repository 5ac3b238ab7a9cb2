/*
 * queue.h - the event queue: a 4-ary heap of 16-byte keys over a pool of events.
 *
 * A key is (time, sequence number, index into the pool); keys are all different, so the order of events is
 * total and the same in every run: by time, and at one time by order of pushing. Push and pop move keys
 * only; nothing is allocated once the pool has grown to the run's need. Limits: 2^24 pending events and
 * 2^40 events in all. One thread.
 */
#ifndef SIM_QUEUE_H
#define SIM_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t sim_time; /* picoseconds: a NIC's service times are not whole nanoseconds */

#define SIM_NANOSECOND  ((sim_time)1000)
#define SIM_INDEX_BITS  24
#define SIM_PENDING_MAX ((1u << SIM_INDEX_BITS) - 1)

enum sim_event_kind {
    SIM_EVENT_RESUME,  /* object: task */
    SIM_EVENT_CPU,     /* object: CPU thread, whose next ready task may run */
    SIM_EVENT_ARRIVE,  /* object: list, at its memory node's NIC */
    SIM_EVENT_RESPOND, /* object: list whose response leaves after a long queue, number: when it is ready */
    SIM_EVENT_RETURN,  /* object: list, its response at the compute node's NIC */
    SIM_EVENT_STEP,    /* object: transfer, its next part (faults) */
    SIM_EVENT_REQUEST, /* object: call, at its memory node's NIC */
    SIM_EVENT_SERVED,  /* object: call, when the memory node's core has done it */
    SIM_EVENT_REPLY,   /* object: call, its reply at the compute node's NIC */
    SIM_EVENT_FENCE,   /* object: compute node whose lease has run out */
    SIM_EVENT_AT,      /* object: sim_at's argument, function */
    SIM_EVENT_WORK,    /* number: memory node whose CPU works in the background */
    SIM_EVENT_NOTICE,  /* object: notice, at its compute node's NIC */
    SIM_EVENT_PEER,    /* object: peer call, its request or reply at the other compute node's NIC */
    SIM_EVENT_TIMEOUT  /* object: peer call, whose time for a reply is over */
};

struct sim_event {
    void *object;
    union {
        uint64_t number;
        void (*function)(void *);
    };
    uint16_t compute; /* the node that the event belongs to, so that a dead node's objects are not touched */
    uint8_t kind;
    uint32_t next_free;
};

struct sim_key {
    sim_time time;
    uint64_t tag; /* sequence number << SIM_INDEX_BITS | index */
};

struct sim_queue {
    struct sim_key *keys;
    struct sim_event *events;
    uint32_t count, capacity, claimed, free_head; /* free_head: index + 1, 0 when none */
    uint64_t sequence;
};

/* Claims places for `count` more events that may be pending at one time, so that pushing them cannot fail:
 * a task, a list or a CPU thread has claimed its place before it begins. False when
 * memory is short or more than 2^24 - 1 would be claimed. */
bool sim_queue_claim(struct sim_queue *queue, uint32_t count);
static inline void sim_queue_release(struct sim_queue *queue, uint32_t count)
{
    queue->claimed -= count;
}
void sim_queue_free(struct sim_queue *queue);

/* Both parts in one comparison, without a branch: which of two keys is first is as good as random, and the
 * processor would guess wrong. */
static inline bool sim_key_before(const struct sim_key *a, const struct sim_key *b)
{
    return ((unsigned __int128)a->time << 64 | a->tag) < ((unsigned __int128)b->time << 64 | b->tag);
}

/* A place must have been claimed for it. */
static inline void sim_queue_push(struct sim_queue *queue, sim_time time, const struct sim_event *event)
{
    uint32_t index = queue->free_head - 1;
    queue->free_head = queue->events[index].next_free;
    queue->events[index] = *event;
    struct sim_key key = {time, queue->sequence++ << SIM_INDEX_BITS | index};
    uint32_t at = queue->count++;
    while (at > 0) {
        uint32_t parent = (at - 1) / 4;
        if (!sim_key_before(&key, &queue->keys[parent]))
            break;
        queue->keys[at] = queue->keys[parent];
        at = parent;
    }
    queue->keys[at] = key;
}

/* The queue must not be empty. The event is copied out: its place may be used again at once. */
static inline sim_time sim_queue_pop(struct sim_queue *queue, struct sim_event *event)
{
    struct sim_key first = queue->keys[0];
    uint32_t index = (uint32_t)(first.tag & SIM_PENDING_MAX);
    *event = queue->events[index];
    queue->events[index].next_free = queue->free_head;
    queue->free_head = index + 1;
    struct sim_key last = queue->keys[--queue->count];
    uint32_t at = 0, count = queue->count;
    for (;;) {
        uint32_t child = 4 * at + 1;
        if (child >= count)
            break;
        uint32_t least;
        if (child + 4 <= count) {
            uint32_t a = child + sim_key_before(&queue->keys[child + 1], &queue->keys[child]);
            uint32_t b = child + 2 + sim_key_before(&queue->keys[child + 3], &queue->keys[child + 2]);
            least = sim_key_before(&queue->keys[b], &queue->keys[a]) ? b : a;
        } else {
            least = child;
            for (uint32_t other = child + 1; other < count; other++)
                if (sim_key_before(&queue->keys[other], &queue->keys[least]))
                    least = other;
        }
        if (!sim_key_before(&queue->keys[least], &last))
            break;
        queue->keys[at] = queue->keys[least];
        at = least;
    }
    queue->keys[at] = last;
    return first.time;
}

#endif
