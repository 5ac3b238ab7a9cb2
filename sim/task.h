/*
 * task.h - tasks in virtual time, and the CPU threads of compute nodes. For the simulator's own files; sim.h
 * is what others use. One OS thread: the event loop, or the task that it runs.
 */
#ifndef SIM_TASK_H
#define SIM_TASK_H

#include "base/task.h"
#include "sim/queue.h"
#include "sim/sim.h"

struct sim_cpu {
    sim_time busy;
    struct sim_task *ready_first,
        *ready_last; /* tasks that could run but for the CPU, first come first served */
    bool scheduled;  /* a SIM_EVENT_CPU is pending: whenever ready_first is set */
    unsigned number;
    struct sim_pair **pairs; /* by memory node, made on first use: pair.h */
    uint32_t pair_count;
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

/* A task whose wait is over, at now: runs it, or queues it for its CPU thread. */
void sim_task_ready(struct sim *sim, struct sim_task *task);
/* Back to the event loop; returns when the task is resumed. */
void sim_task_suspend(struct sim_task *task);
void sim_resume_at(struct sim_task *task, sim_time time);
/* The CPU thread's next task that is ready runs, unless the thread has become busy since. */
void sim_run_cpu(struct sim *sim, struct sim_cpu *cpu);

/* stall.c: a task's resumption, where sim->stalling: true if it comes later by an event of its own. */
bool sim_resume_late(struct sim *sim, struct sim_task *task);

#endif
