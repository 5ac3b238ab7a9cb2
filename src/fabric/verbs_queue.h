/*
 * verbs_queue.h - the compute node's end of a queue pair: command lists go out as chains of work requests,
 * one doorbell a list (Sherman §4.5), and complete when their last request does.
 *
 * A queue belongs to one thread at a time. Its memory is made when it is created: registered room through
 * which bytes pass (a caller's buffers are not registered, a copy is cheaper than that), and a ring of the
 * lists under way. So posting and polling neither allocate nor lock nor call the system (but
 * see verbs_provider.h). A list that is longer than all of that room gets memory of its own, which calls the
 * system.
 *
 * G1: reliable connections execute WRITEs and atomics in their order, and a READ after them. G2: the NIC's
 * words. G4: the completion comes after the effect. G5: verbs_mtu_bytes. Addresses and lengths are
 * validated here, before anything is posted, since a bad one would break the connection.
 */
#ifndef FABRIC_VERBS_QUEUE_H
#define FABRIC_VERBS_QUEUE_H

#include "fabric/fabric.h"
#include "fabric/verbs_device.h"

/* Where the memory node's memory is. */
struct verbs_memory {
    uint64_t pool_address, pool_bytes;
    uint64_t lock_address, lock_bytes;
    uint32_t pool_key, lock_key;
};

/* What went through a queue. The owner writes; other threads read it for statistics, relaxed. */
struct verbs_counts {
    uint64_t lists;       /* completed or failed */
    uint64_t doorbells;   /* calls of the provider's post */
    uint64_t works;       /* requests in them */
    uint64_t signalled;   /* ... that complete */
    uint64_t inlined;     /* ... whose bytes went within them */
    uint64_t completions; /* that were polled */
    uint64_t arms;        /* times that it was armed, for a sleep */
    uint64_t registered;  /* lists that needed memory of their own */
};

struct verbs_queue;

/* BANYAN_ENOMEM, BANYAN_ENOTSUP, BANYAN_EINVAL. The device must outlive it. */
int verbs_queue_create(struct verbs_queue **queue, const struct verbs_device *device, struct error *error);
/* This end, to be sent to the other side. */
const struct wire_nic *verbs_queue_end(const struct verbs_queue *queue);
int verbs_queue_connect(struct verbs_queue *queue, const struct wire_nic *theirs,
                        const struct verbs_memory *memory, struct error *error);
/* Destroys the pair, so that the NIC writes nothing more to our memory. Then calls `done` for every list that
 * was under way, with BANYAN_ENET. NULL: does nothing. */
typedef void verbs_done_function(void *owner, struct fabric_list *list, int status);
void verbs_queue_destroy(struct verbs_queue *queue, verbs_done_function *done, void *owner);

/* Posts the list's commands up to the first bad one. The list belongs to the queue until `done` was called
 * for it: with 0, BANYAN_EADDRESS (the commands before the bad one have been done) or BANYAN_ENET.
 * BANYAN_EBUSY: no room now, until another list is done. BANYAN_EADDRESS, BANYAN_ENOTSUP (a mask),
 * BANYAN_ENOMEM: nothing was posted. BANYAN_ENET: the queue is broken. */
int verbs_queue_post(struct verbs_queue *queue, struct fabric_list *list);
/* Takes what has completed; calls done for each list, in the order of their posts. Returns how many. READs'
 * bytes are in their buffers then. */
uint32_t verbs_queue_poll(struct verbs_queue *queue, verbs_done_function *done, void *owner);
/* Lists under way. */
uint32_t verbs_queue_under_way(const struct verbs_queue *queue);
/* NULL, or why the queue is broken for good; names the command and its address where one is at fault: "READ
 * of 64 bytes at 0:0x1000: remote access error ...". Its lists stay under way until it is destroyed. */
const char *verbs_queue_broken(const struct verbs_queue *queue);

/* ---- sleeping ---- */

/* Becomes readable when something completes after verbs_queue_arm. */
int verbs_queue_descriptor(const struct verbs_queue *queue);
/* Asks for that. What completed before it may never be told: poll once more before sleeping. A system call.
 */
void verbs_queue_arm(struct verbs_queue *queue);
/* After the descriptor was readable: makes it unreadable again. A system call. */
void verbs_queue_awake(struct verbs_queue *queue);

const struct verbs_counts *verbs_queue_counts(const struct verbs_queue *queue);

#endif
