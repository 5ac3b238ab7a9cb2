/*
 * world.h - the inside of struct sim, shared by the world (sim.c), the fabric's backend (fabric_sim.c), the
 * faults (faults.c, fetch.c, loss.c, stall.c, death.c) and the observer (observe.c). Nobody else includes it.
 * One OS thread.
 *
 * TIME. sim->now is the time of the event under way. A running task's own time is its CPU thread's
 * `busy`, which is never behind now: charged work moves it ahead, and whatever the task does next happens
 * then.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "base/fiber.h"
#include "base/random.h"
#include "sim/nic.h"
#include "sim/queue.h"
#include "sim/sim.h"

struct sim_cpu {
    sim_time busy;
    struct sim_task *ready_first,
        *ready_last; /* tasks that could run but for the CPU, first come first served */
    bool scheduled;  /* a SIM_EVENT_CPU is pending: whenever ready_first is set */
    unsigned number;
    struct sim_cpu *next;
};

struct sim_task {
    struct task task;
    struct sim *sim;
    struct sim_compute *compute;
    struct sim_cpu *cpu;
    struct fiber *fiber;
    bool parked, permit;
    bool late; /* its resumption has been delayed: not again */
    uint32_t number;
    struct sim_task *next_ready, *next;
    void (*function)(void *);
    void *argument;
};

/* From one endpoint to one memory node: delivers in order, and remembers that it was cut. */
struct sim_connection {
    sim_time last_arrival, last_effect, last_answer, last_return; /* last_answer: of lists with faults */
    bool cut;
};

struct sim_endpoint {
    struct fabric_endpoint endpoint;
    struct sim_compute *compute;
    struct sim_connection **connections; /* by memory node, made on first use */
    uint32_t connection_count;
    struct sim_endpoint *next, *previous;
};

/*
 * Between a compute node and a memory node: all connections of its endpoints are lost together. The memory
 * node fences at the loss (`lost` goes up: nothing posted before arrives any more), the compute node knows
 * later (`known` follows), and is connected again at `up`.
 */
struct sim_link {
    uint32_t lost, known;
    sim_time up;
    uint64_t incarnation; /* of the compute node, since the last loss that it knows */
    struct sim_compute *compute;
    uint16_t node;
};

struct sim_compute {
    struct fabric fabric;
    struct sim_link **links; /* by memory node, made on first use */
    uint32_t link_count;
    uint64_t incarnation;
    struct sim *sim;
    struct sim_nic *nic;
    uint16_t index, machine; /* machine: the order of sim_add_compute; a restarted process has that of the one
                                before */
    bool owns_nic;           /* else it is the memory node's, or that of the process before */
    bool dead, fenced, replaced;
    bool cut; /* dead, and nothing of it takes effect any more, but for short WRITEs that have begun */
    uint64_t effects; /* 0: it lives on; else it dies just before so many more, with lease_ns, on_fenced */
    uint64_t lease_ns;
    sim_time death, stalled_from, stalled_until;
    uint32_t live_tasks;
    struct sim_cpu *cpus;
    struct sim_endpoint *endpoints;
    void (*on_fenced)(void *);
    void *on_fenced_argument;
};

struct sim_memory {
    const struct fabric_target *target;
    struct sim_nic *nic;
    sim_time *core_free;       /* params.rpc_cores of them */
    bool works;                /* a SIM_EVENT_WORK is pending */
    struct sim_fetch *fetches; /* READs that are being fetched word by word */
};

/* What a list that is under way has beside it. */
struct FABRIC_LIST_STATE_STRUCT sim_list {
    struct sim_waiter *waiter;
    struct sim_connection *connection;
    uint32_t bytes; /* its load on the wire */
    uint32_t known; /* its link's losses when it was posted */
};
FABRIC_LIST_STATE(sim_list)

/* One fabric_execute: on its caller's stack. */
struct sim_waiter {
    struct sim_task *task;
    uint32_t pending;
    sim_time latest; /* when the last of the completions so far can be seen */
};

/* One fabric_call: on its caller's stack. */
struct sim_call {
    struct sim_waiter waiter;
    struct sim_connection *connection;
    uint16_t node;
    uint32_t known; /* its link's losses when it was posted */
    int status;
    const void *request;
    size_t length;
    void *reply;
    size_t capacity, *reply_length;
};

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
    SIM_DIE_DEATH, /* where a dead node's lists are cut */
    SIM_DICE
};

struct sim {
    sim_time now;
    struct sim_queue queue;
    struct sim_task *current; /* the running task, NULL outside of one */
    struct sim_model model;
    struct random jitter_random; /* separate streams, so that one's use does not shift another's */
    uint64_t hash, events, event_limit;
    bool faulty;        /* a fault is on, or a list that is spread in time is still under way */
    bool stalling;      /* a fault of resumptions is on */
    uint32_t transfers; /* lists that take effect by steps */
    struct sim_faults faults;
    struct random dice[SIM_DICE], user_random;
    void (*see)(void *, const struct sim_observation *);
    void *see_context;
    void (*on_loss)(void *, int compute, int memory);
    void *on_loss_argument;
    uint64_t losses;
    struct sim_params params;
    struct sim_memory *memories;
    struct sim_compute **computes;
    uint32_t memory_count, compute_count, machine_count, task_count, live_tasks;
    struct sim_task *tasks, *tasks_last;
};

/* A task whose wait is over, at now: runs it, or queues it for its CPU thread. */
void sim_task_ready(struct sim *sim, struct sim_task *task);
/* Back to the event loop; returns when the task is resumed. */
void sim_task_suspend(struct sim_task *task);
/* The time at which whatever the caller does happens. */
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
void sim_resume_at(struct sim_task *task, sim_time time);
/* sim_at, to the picosecond. */
int sim_at_time(struct sim *sim, sim_time time, void (*function)(void *), void *argument);

/* fabric_sim.c: sets up the compute node's fabric; frees its endpoints; the events of lists and calls. */
void sim_fabric_init(struct sim_compute *compute);
void sim_fabric_refresh(struct sim *sim);
void sim_fabric_free(struct sim_compute *compute);
void sim_list_arrive(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, sim_time posted);
void sim_list_respond(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, sim_time ready);
void sim_list_return(struct sim *sim, struct sim_compute *compute, struct fabric_list *list, uint64_t load);
void sim_call_request(struct sim *sim, struct sim_compute *compute, struct sim_call *call, sim_time posted);
void sim_call_served(struct sim *sim, struct sim_compute *compute, struct sim_call *call);
void sim_call_reply(struct sim *sim, struct sim_compute *compute, struct sim_call *call);

/* cores.c: a call that is there at `start` takes the memory node's CPU; returns when it is served. A call is
 * served, after which there may be background work; the event of that work. */
sim_time sim_core_serve(const struct sim *sim, const struct sim_memory *memory, uint16_t compute_id,
                        const struct sim_call *call, sim_time start);
void sim_core_work_begin(struct sim *sim, uint16_t node);
void sim_core_work(struct sim *sim, uint16_t node);

/* faults.c: a list arrives where faults are on (`starts`: when the NIC comes to each of its commands); its
 * next step; a list of a dead node arrives; what is under way when a connection or a node is fenced: short
 * WRITEs that have begun are finished, of one memory node or of SIM_EVERY_NODE. */
#define SIM_EVERY_NODE UINT32_MAX
void sim_nic_trouble(struct sim *sim, struct sim_nic *nic, const struct fabric_list *list);
void sim_transfer_start(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                        sim_time ready, const sim_time *starts);
void sim_transfer_step(struct sim *sim, struct sim_compute *compute, void *transfer);
void sim_transfer_drop(struct sim *sim, void *transfer);
void sim_list_arrive_dead(struct sim *sim, struct sim_compute *compute, struct fabric_list *list,
                          sim_time posted);
void sim_transfers_finish(struct sim *sim, const struct sim_compute *compute, uint32_t node);

/* fetch.c: a READ that must be within bounds begins, its words to be fetched from now to now + window (NULL:
 * no memory, it has taken place at once); ends (`deliver`: what is left is fetched); the bytes are about to
 * be changed; somebody unknown is about to change the memory node's memory. */
struct sim_fetch *sim_fetch_begin(struct sim *sim, const struct sim_compute *compute, uint16_t node,
                                  struct fabric_command *command, uint64_t seed, sim_time window);
void sim_fetch_end(struct sim *sim, struct sim_fetch *fetch, bool deliver);
void sim_fetch_before(struct sim *sim, uint16_t node, const uint8_t *where, uint32_t length);
void sim_fetch_settle(struct sim *sim, uint16_t node);
void sim_fetch_settle_all(struct sim *sim);

/* death.c: whether the node lives to see its next effect; false: it has died just now. The lease ends. */
bool sim_effect_counted(struct sim *sim, struct sim_compute *compute);
static inline bool sim_effect_happens(struct sim *sim, struct sim_compute *compute)
{
    return compute->effects == 0 || sim_effect_counted(sim, compute);
}
void sim_compute_fence(struct sim *sim, struct sim_compute *compute);
/* sim.c */
struct sim_compute *sim_compute_make(struct sim *sim, uint16_t machine, struct sim_nic *nic,
                                     struct error *error);

/* stall.c: a task's resumption, where sim->stalling: true if it comes later by an event of its own. */
bool sim_resume_late(struct sim *sim, struct sim_task *task);

/* observe.c: what `see` is told. The task is the list's; time: now, or the running task's. */
void sim_see_list(const struct sim *sim, enum sim_sight kind, const struct sim_task *task,
                  const struct fabric_list *list, uint32_t from, uint32_t count, int status);
void sim_see_call(const struct sim *sim, enum sim_sight kind, const struct sim_task *task, uint16_t node,
                  int status);
void sim_see_node(const struct sim *sim, enum sim_sight kind, int compute, int memory, int status);
void sim_see_stalled(const struct sim *sim, const struct sim_task *task, int status);

/* loss.c: NULL when memory is short; the fault's dice; the loss itself, known at the given time; whether
 * something posted then was lost since; for who gets to know of it; what a post comes to: 0, BANYAN_ENET or
 * BANYAN_EFENCED. */
struct sim_link *sim_link_get(struct sim_compute *compute, uint16_t node);
void sim_link_free(struct sim_compute *compute);
void sim_link_dice(struct sim *sim, struct sim_compute *compute, uint16_t node);
void sim_link_lose(struct sim *sim, struct sim_link *link, sim_time known);
bool sim_link_stale(const struct sim_compute *compute, uint16_t node, uint32_t known);
void sim_link_learn(struct sim_compute *compute, uint16_t node);
/* Neither lost already nor down. */
static inline bool sim_link_stands(const struct sim *sim, const struct sim_link *link)
{
    return link->lost == link->known && link->up <= sim->now;
}
static inline bool sim_list_stale(const struct sim_compute *compute, struct fabric_list *list)
{
    return sim_link_stale(compute, list->node, sim_list(list)->known);
}
int sim_link_admit(struct sim_compute *compute, uint16_t node, uint64_t incarnation, uint32_t *known);

#endif
