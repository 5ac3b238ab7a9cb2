/*
 * state.h - the inside of struct sim: time, events, dice. For the simulator's own files; sim.h is what others
 * use. One OS thread.
 *
 * TIME. sim->now is the time of the event under way. A running task's own time is its CPU thread's `busy`,
 * which is never behind now: charged work moves it ahead, and the next thing that the task does happens then.
 */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include "base/random.h"
#include "sim/nic.h"
#include "sim/queue.h"
#include "sim/sim.h"
#include "sim/task.h"

/* Each fault has dice of its own, so that one that is switched on or off does not shift the others'. */
enum sim_die {
    SIM_DIE_TORN_READ,
    SIM_DIE_TORN_WRITE,
    SIM_DIE_SPREAD,
    SIM_DIE_LATE,
    SIM_DIE_LATE_REPLY,
    SIM_DIE_STALL,
    SIM_DIE_ATOMIC_QUEUE,
    SIM_DIE_FIBER_STALL,
    SIM_DIE_THREAD_STALL,
    SIM_DIE_COMPUTE_STALL,
    SIM_DIE_LOSE,
    SIM_DIE_DEATH,   /* where a dead node's lists are cut */
    SIM_DIE_MESSAGE, /* notices, and messages between compute nodes */
    SIM_DICE
};

struct sim {
    sim_time now;
    struct sim_queue queue;
    struct sim_task *current; /* the running task, NULL outside of one */
    struct sim_model model;
    struct random jitter_random,
        state_random; /* separate streams, so that one's use does not shift another's */
    uint64_t hash, events, event_limit;
    bool stopped;       /* sim_stop was called in the run under way */
    bool faulty;        /* a fault is on, or a list that is spread in time is still under way */
    bool stalling;      /* a fault of resumptions is on */
    uint32_t transfers; /* lists that take effect by steps */
    struct sim_faults faults;
    struct random dice[SIM_DICE], user_random;
    void (*see)(void *, const struct sim_observation *);
    void *see_context;
    bool losing; /* connections may be lost, for other reasons than fabric_fence */
    void (*on_loss)(void *, int compute, int memory);
    void *on_loss_argument;
    uint64_t losses;
    uint64_t beat_seed;      /* of heartbeats and of clocks: lease.c */
    struct sim_peers *peers; /* NULL: no compute node has called another yet; owned, peer.c's */
    uint32_t
        idle_events; /* pending time-outs of peer calls that were answered: a run need not wait for them */
    struct sim_params params;
    struct sim_memory *memories;
    struct sim_compute **computes;
    uint32_t memory_count, compute_count, machine_count, task_count, live_tasks;
    struct sim_task *tasks, *tasks_last;
};

/* The time at which the caller acts. */
static inline sim_time sim_effective(const struct sim *sim)
{
    return sim->current ? sim->current->cpu->busy : sim->now;
}
static inline void sim_push(struct sim *sim, sim_time time, enum sim_event_kind kind, void *object,
                            uint64_t number, uint16_t compute)
{
    struct sim_event event = {.object = object, .number = number, .compute = compute, .kind = (uint8_t)kind};
    sim_queue_push(&sim->queue, time, &event);
}
static inline void sim_note(struct sim *sim, uint64_t value)
{
    sim->hash = (sim->hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    sim->hash ^= sim->hash >> 29;
}

static inline sim_time sim_after(sim_time from, uint64_t nanoseconds)
{
    sim_time most = (UINT64_MAX - from) / SIM_NANOSECOND;
    return from + (nanoseconds < most ? nanoseconds : most) * SIM_NANOSECOND;
}
static inline bool sim_dice(struct sim *sim, enum sim_die die, double rate)
{
    return rate > 0 && random_chance(&sim->dice[die], rate);
}
static inline sim_time sim_dice_time(struct sim *sim, enum sim_die die, uint32_t most_ns)
{
    return random_below(&sim->dice[die], most_ns + 1ull) * SIM_NANOSECOND;
}
/* sim_at, to the picosecond. */
int sim_at_time(struct sim *sim, sim_time time, void (*function)(void *), void *argument);

#endif
