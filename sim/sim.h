/*
 * sim.h - the simulated world: virtual time, NICs, faults, one thread, one seed.
 *
 * Every client thread of every compute node is a fiber of one OS thread; time passes only when all of
 * them wait. The same seed, parameters and program give the same run, bit for bit: nothing here depends
 * on addresses, the wall clock or the order of a hash table.
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "base/options.h"
#include "base/task.h"
#include "fabric/fabric.h"

struct sim;

/* The NIC and CPU model: every parameter is named, documented with its source and settable
 * (sim_params_table). */
struct sim_params; /* defined in sim/params.h */
struct sim_faults; /* defined in sim/params.h */

struct sim *sim_create(const struct sim_params *params, const struct sim_faults *faults, uint64_t seed,
                       struct error *error);
/* Drops every fiber as it stands, closes every fabric made by sim_connect. */
void sim_destroy(struct sim *sim);

/* Adds a memory node, its number is the order of adding. The target must outlive the world. */
int sim_add_memory(struct sim *sim, const struct fabric_target *target, struct error *error);
/*
 * The memory node, not the home node (0) and among the first 64, is not of the cluster yet: no compute node
 * knows of it. Before anything is posted. Later it joins: each compute node hears of it at a time of its
 * own within hear_ns, if its connection to the home node stands, or as soon as it meets a link to it or asks
 * for the list (fabric_refresh). BANYAN_ENOMEM: not all will hear of it.
 */
void sim_memory_await(struct sim *sim, int memory);
int sim_memory_join(struct sim *sim, int memory, uint64_t hear_ns);
/* The memory node, not the home node and among the first 64, leaves; or was removed, behind that: then a
 * compute node that has heard of it, as of one that joins, posts nothing there. BANYAN_ENOMEM likewise. */
int sim_memory_leave(struct sim *sim, int memory, bool removed, uint64_t hear_ns);
/* Adds a compute node (with a NIC of its own); returns its index from 0, or a negative error. */
int sim_add_compute(struct sim *sim, struct error *error);
/* The compute node's fabric; owned by the world. Its compute_id is 1, 2, ... in the order of sim_add_compute,
 * and after a restart that of the process before: callbacks that are given an index find the id here. */
struct fabric *sim_fabric(struct sim *sim, int compute);

/* Starts a task on a compute node's CPU thread (thread numbers are per compute node, made on first use;
 * fibers of one thread share its CPU: charged work of one delays the others). Runs when sim_run is called. */
int sim_spawn(struct sim *sim, int compute, unsigned thread, void (*function)(void *), void *argument,
              struct error *error);
/* Runs until no task can run any more (all returned, or all wait for ever), or virtual time reaches `until`
 * (ns; UINT64_MAX: no limit). Returns the number of tasks that have not returned (dead nodes' tasks not
 * counted). */
unsigned sim_run(struct sim *sim, uint64_t until);
/* The run under way is over after the event under way: sim_run returns, and goes on where it was when it is
 * called again. For worlds with tasks that never return. */
void sim_stop(struct sim *sim);
uint64_t sim_now(const struct sim *sim);
uint64_t sim_events(const struct sim *sim);
/* Stops sim_run after so many events more (0: no limit): the run is then over, sim_exhausted() tells. */
void sim_limit_events(struct sim *sim, uint64_t events);
bool sim_exhausted(const struct sim *sim);
/* A hash over every event so far (time, kind, list contents): equal for equal runs. */
uint64_t sim_trace_hash(const struct sim *sim);
struct random *sim_random(struct sim *sim);

/* Runs function(argument) at the given virtual time, outside of any task. */
int sim_at(struct sim *sim, uint64_t time, void (*function)(void *), void *argument);
/* The number of the running task, in order of sim_spawn, from 0; UINT32_MAX outside of a task. */
uint32_t sim_task_number(const struct sim *sim);
/* Its time in ns: later than sim_now by the work that it has done since it was resumed. Outside of a task:
 * sim_now. */
uint64_t sim_task_now(const struct sim *sim);

/* ---- memory nodes that answer later ----------------------------------------------------------------- */

/* What a memory node's process adds to its target: calls that wait, as PERSIST does for a disk. Functions are
 * called from the event loop, outside of any task. */
struct sim_later {
    /* In place of the target's call: its status, or SIM_LATER, with *ticket set. */
    int (*call)(void *context, uint16_t compute_id, const void *request, size_t length, void *reply,
                size_t capacity, size_t *reply_length, uint64_t *ticket);
    /* Whether it is known what came of the ticket, and what. */
    bool (*outcome)(void *context, uint64_t ticket, int *status);
    enum fabric_durability durability; /* what compute nodes are told of the memory node */
    void *context;
};
#define SIM_LATER 1
/* Before the first call. */
void sim_answer_later(struct sim *sim, int memory, const struct sim_later *later);
/* Of calls that wait, those are answered whose outcome is known by now. Whoever waits over a connection that
 * was lost meanwhile gets BANYAN_ENET then. From events, not from tasks. */
void sim_settled(struct sim *sim, int memory);

/* ---- faults, beside those that the rates of struct sim_faults bring --------------------------------- */

/* The faults from now on (NULL: none); what was delayed before still comes in its time. BANYAN_EINVAL:
 * nothing is changed. */
int sim_set_faults(struct sim *sim, const struct sim_faults *faults, struct error *error);
/* The compute node dies now: its tasks never run again, its lists under way are cut between two commands or,
 * in a WRITE longer than atomic_write, anywhere; after `lease_ns` the `fenced` callback runs (there the test
 * calls memory_node_release_locks). */
void sim_kill_compute(struct sim *sim, int compute, uint64_t lease_ns, void (*fenced)(void *),
                      void *argument);
/* Kills the compute node just before its n-th effect from now (1: the next), as sim_kill_compute does, and
 * cuts exactly there: nothing of it takes effect any more. An effect is one command of its lists (or one part
 * of a torn WRITE longer than atomic_write) taking place at a memory node, a call being served, or a request
 * or reply of it coming to another compute node. Only a
 * torn WRITE that is no longer, and that has begun, is finished. 0: it lives on, whatever was arranged so
 * before. */
void sim_kill_compute_at(struct sim *sim, int compute, uint64_t effects, uint64_t lease_ns,
                         void (*fenced)(void *), void *argument);
/* Another process takes the place of a dead compute node, which must be fenced (the callback may call this):
 * same compute_id, same NIC, nothing of its memory. Returns its index, a new one. BANYAN_EBUSY: not dead and
 * fenced. BANYAN_EINVAL: no such node, or it has a successor already. */
int sim_restart_compute(struct sim *sim, int compute, struct error *error);
/* All threads of a compute node stand still for so long, from now; what they have posted goes on. Longer than
 * lease_ns: at the lease's end every memory node fences it as at a loss (the sim_on_loss callback for each;
 * without one nothing is fenced), and it learns of that when it goes on, or soon after. */
void sim_stall_compute(struct sim *sim, int compute, uint64_t ns, uint64_t lease_ns);
/* The memory node's NIC serves nothing for so long. */
void sim_stall_memory(struct sim *sim, int memory, uint64_t ns);
/* Cuts the connection between the two now, as the fault `lose` does. Nothing happens where it is cut already,
 * where the compute node is dead, or before sim_on_loss was called. */
void sim_cut(struct sim *sim, int compute, int memory);
/* Connections may be lost from now on (sim_faults.lose): `lost` runs when the memory node has fenced the
 * compute node, which goes on living (there the test calls memory_node_release_locks). NULL: no more losses;
 * what processes fence by fabric_fence is told as before. */
void sim_on_loss(struct sim *sim, void (*lost)(void *, int compute, int memory), void *argument);
/* Connections lost so far. */
uint64_t sim_losses(const struct sim *sim);
/* What two compute nodes send to each other from now on never comes, either way, nor what is under way; until
 * it is healed. Of machines: it is so for restarted processes too. BANYAN_ENOMEM: nothing was cut. */
int sim_cut_peers(struct sim *sim, int compute, int other);
void sim_heal_peers(struct sim *sim, int compute, int other);
/* The compute node has no address for peers from now on, or has one again: calls to it are refused, and it
 * can receive none. It can still call others. */
void sim_hide_compute(struct sim *sim, int compute, bool hidden);
bool sim_compute_alive(const struct sim *sim, int compute);
/* Whether the compute node lives and the memory node has not fenced it, or has let it connect again: what it
 * posts there takes effect. */
bool sim_connected(const struct sim *sim, int compute, int memory);

/* ---- watching --------------------------------------------------------------------------------------- */

enum sim_sight {
    SIM_POSTED,   /* a list: on its way */
    SIM_EFFECT,   /* commands have taken effect at a memory node; status: how many instants the command has
                     still to come (seen at the first and at the last of them). After the last, what it has
                     read is there. No commands: a call is served */
    SIM_RETURNED, /* a list: its answer is there, or it was refused */
    SIM_CALLED,   /* a call: on its way */
    SIM_CALL_RETURNED, /* its reply is there, or it was refused */
    SIM_LOST,          /* a memory node has fenced a compute node; its locks are freed next */
    SIM_DIED,          /* a compute node is dead */
    SIM_FENCED,        /* a dead compute node's lease is over */
    SIM_RESTARTED,     /* status: the index of the process before */
    SIM_STALLED, /* a task, else a compute node (or the task's thread of it: status 1), or a memory node */
    /* between compute nodes; `compute` does it, `peer` is the other, `number` tells calls apart */
    SIM_PEER_CALLED,   /* a request: on its way */
    SIM_PEER_RECEIVED, /* it has come, and a task serves it now or when it runs next */
    SIM_PEER_REPLIED,  /* the reply: on its way; status: what it says */
    SIM_PEER_RETURNED, /* the call is over for its caller; status: how */
    SIM_MESSAGE_LOST,  /* a request or reply of `compute` never comes; peer -1: a notice to it */
    SIM_NOTICED        /* a notice has come; `number` is what it says */
};
struct sim_observation {
    enum sim_sight kind;
    uint64_t time_ns;
    int compute, memory, peer;             /* -1: none */
    uint32_t task;                         /* as sim_task_number; UINT32_MAX: none */
    const struct fabric_command *commands; /* valid during the call */
    uint32_t count;
    int status;
    uint64_t number; /* of what is between compute nodes, else 0 */
};
/* `see` is told what happens from now on (NULL: no more). It must call nothing of the simulator that changes
 * anything; then the run, and its hash, are the same as without. Within a task's time or outside of any. */
void sim_observe(struct sim *sim, void (*see)(void *context, const struct sim_observation *), void *context);

#endif
