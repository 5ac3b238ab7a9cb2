/*
 * fake_queue.h - queue pairs whose lists are done when a test says so: stands in for verbs_queue.c and
 * verbs_device.c, for tests of remote_nic.c. READs return bytes of 0x77, atomics old words of the same, and
 * nothing else happens; commands that do not end within the pool are bad. A list that is still there when a
 * queue goes that has none, or a queue or device that is left in the end, fails the test.
 *
 * There is one set of them (fake_queues_start, fake_queues_end). What the test may change while a fabric is
 * open is atomic, or done by the functions.
 */
#ifndef TESTS_FABRIC_FAKE_QUEUE_H
#define TESTS_FABRIC_FAKE_QUEUE_H

#include "fabric/verbs_queue.h"

struct fake_queues {
    /* before a fabric is opened */
    bool masked_cas;
    uint32_t room;      /* commands under way on one queue, at most */
    int create_status;  /* 0: it works */
    const char *broken; /* what is wrong with every new one; NULL: nothing */
    bool connect_fails; /* to the other end */
    /* atomic */
    uint32_t held;  /* 1: lists wait until fake_queues_finish */
    uint32_t races; /* 1: what was posted is done just before a queue is armed, which tells nothing of it */
    uint32_t arms, awakes, posts, devices, queues;
    uint64_t armed_at; /* task_now() of the last arm */
};
extern struct fake_queues fake_queues;

void fake_queues_start(void);
void fake_queues_end(void);
/* Completes all that was posted so far, and wakes its owners. Any thread. */
void fake_queues_finish(void);
/* Breaks all queues, and wakes their owners. Any thread. */
void fake_queues_break(const char *why);

#endif
