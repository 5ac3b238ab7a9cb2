/* nic_state.h - what the files of the memory node's NIC (nic*.c) share. See nic.h. */
#ifndef MEMORYD_NIC_STATE_H
#define MEMORYD_NIC_STATE_H

#include "memoryd/nic.h"

enum nic_part { NIC_POOL, NIC_LOCKS, NIC_PARTS };

/* A registered part of the memory node. */
struct nic_region {
    struct ibv_mr *registration;
    uint64_t address, bytes; /* the other end addresses it by address + offset */
    bool windowed;           /* each queue pair gets a window of its own to it */
};

struct memoryd_nic_queue {
    struct memoryd_nic *nic;
    struct ibv_cq *completions; /* of binding windows; this end posts nothing else */
    struct ibv_qp *pair;
    struct ibv_mw *windows[NIC_PARTS];
};

/* The memory node's own queue pair, with both ends on this device. Once the daemon runs the keeper alone uses
 * it. */
struct nic_own {
    struct memoryd_nic_queue *far; /* the end that commands arrive at */
    struct wire_nic where;         /* the far end, and the memory behind it */
    struct ibv_cq *completions;
    struct ibv_qp *near; /* the end that posts them */
    struct ibv_mr *registration;
    uint8_t *room; /* registered: bytes that were read, old words of atomics, words to write */
    struct verbs_scratch *scratch;
    uint64_t posted;
    bool broken; /* it must be made anew */
};

struct memoryd_nic {
    struct verbs_device *device;
    const struct fabric_target *target;
    struct nic_region regions[NIC_PARTS];
    struct ibv_dm *chip; /* device memory of the lock region; NULL: it is in host memory */
    struct nic_own own;
    uint32_t queues; /* atomic: attached ones */
    char text[192];
};

/* Rights of the other end. */
#define NIC_REMOTE ((unsigned)(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))

/* nic_region.c. Registers pool and lock region, where memory windows are to be bound to them if `windows`,
 * the lock region in device memory if `chip`. What was registered before a failure is left to
 * nic_regions_release. */
int nic_regions_register(struct memoryd_nic *nic, bool chip, bool windows, struct error *error);
void nic_regions_release(struct memoryd_nic *nic);
/* Fills the device memory with zeros. */
int nic_chip_clear(struct memoryd_nic *nic, struct error *error);

/* nic_queue.c. Waits for one completion, up to half a minute; what: for the message. */
int nic_wait(struct ibv_cq *completions, const char *what, struct error *error);
/* memoryd_nic_attach for own use: not counted. */
int nic_queue_open(struct memoryd_nic *nic, const struct wire_nic *theirs, struct wire_nic *ours,
                   struct memoryd_nic_queue **queue, struct error *error);
/* False: the queue pair could not be destroyed, and may still be executing. */
bool nic_queue_close(struct memoryd_nic_queue *queue);

/* nic_locks.c. The node's own queue pair: opens it; closes what there is of it; tries out that READ, WRITE
 * and CAS through it do what they should to pool and lock region. */
int nic_own_open(struct memoryd_nic *nic, struct error *error);
void nic_own_close(struct memoryd_nic *nic);
int nic_own_prove(struct memoryd_nic *nic, struct error *error);

#endif
