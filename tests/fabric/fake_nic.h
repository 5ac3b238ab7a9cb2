/*
 * fake_nic.h - a NIC of memory and patience, for tests of verbs_queue.c: it stands in for
 * libibverbs, for verbs_device.c and for a provider, does what it is posted when it is told to, and holds the
 * queue to a real NIC's rules: a request more than the send queue has room for, a completion too many for
 * its queue, a local place that is not registered, or anything that is not destroyed in the end fails the
 * test.
 *
 * There is one at a time (fake_nic_start, fake_nic_end).
 */
#ifndef TESTS_FABRIC_FAKE_NIC_H
#define TESTS_FABRIC_FAKE_NIC_H

#include "fabric/verbs_queue.h"

#define FAKE_POOL_BYTES (UINT64_C(3) << 20)
#define FAKE_LOCK_BYTES UINT64_C(4096)
#define FAKE_POOL_KEY   0x1111u
#define FAKE_LOCK_KEY   0x2222u
#define FAKE_REQUESTS   1024

enum fake_failure {
    FAKE_NONE,
    FAKE_CHANNEL,
    FAKE_COMPLETIONS,
    FAKE_REGISTER,
    FAKE_PAIR,
    FAKE_BEGIN,
    FAKE_FAILURES
};

struct fake_nic {
    struct verbs_device device; /* what a queue is made on; may be changed before */
    uint8_t *pool, *locks;      /* the other side's */
    struct verbs_memory memory; /* ... where they are */

    /* what the next calls do */
    enum fake_failure failure;
    uint32_t inline_max; /* longer ones are refused with EINVAL */
    int post_error;      /* an errno */
    bool notify_error;

    /* what was seen */
    uint32_t posts;
    struct verbs_work last[VERBS_WORKS_MAX]; /* of the last post */
    uint32_t last_count;
    uint32_t send_max, completions_max; /* granted */
    bool masked, connected;
    uint32_t channels, completion_queues, regions, pairs; /* that exist */
    uint32_t notified, acknowledged;

    /* requests that wait to be done, and their inlined bytes */
    struct fake_request {
        struct verbs_work work;
        uint8_t bytes[1024];
    } * requests;
    uint64_t posted, executed, released; /* counted on and on; released: their slots are free again */
    struct ibv_wc *completions;
    uint64_t covers[FAKE_REQUESTS]; /* requests done when it was made */
    uint64_t completed, polled;
    bool failed; /* the pair: all that follows is flushed */
};

extern struct fake_nic fake_nic;
void fake_nic_start(void);
void fake_nic_end(void);

/* Does so many requests, as far as there are. */
void fake_nic_run(uint32_t requests);
/* The next request ends with this status; all behind it are flushed. */
void fake_nic_fail(enum ibv_wc_status status);
/* A completion out of turn. */
void fake_nic_complete(const struct verbs_work *work, enum ibv_wc_status status);
uint32_t fake_nic_waiting(void);

#endif
