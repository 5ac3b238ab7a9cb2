/*
 * nic.h - a memory node's NIC: the node's memory registered for RDMA, one queue pair for each data connection
 * of a compute node that connects with `rdma://`, and locks of fenced compute nodes freed by the NIC itself.
 *
 * THE NIC ALONE CHANGES LOCK WORDS. CAS and FAA of a NIC are atomic against each other, not against this
 * machine's CPU (the InfiniBand specification, and every NIC that says IBV_ATOMIC_HCA). So a memory node
 * with a NIC lets in compute nodes over that NIC only (others get BANYAN_ENOTSUP; monitors and formatters
 * may come over the stream), and frees locks through a queue pair that is connected to itself.
 *
 * KEYS. The pool is registered once. Where the NIC has memory windows of type 2 each queue pair gets keys of
 * its own, which work through it alone and die with it. Elsewhere the keys are those of the registration;
 * they are of no use without a queue pair, and only an authenticated data connection gives one. Whether
 * windows work is tried out: a READ, a WRITE and a CAS through one, by a queue pair between the NIC and
 * itself. (mlx5's windows reach over 2 GiB at most.) Where the device can do that, registered memory begins
 * at address 0, so that offsets are addresses and compute nodes do not learn where it lies in this process.
 *
 * FENCING (G6). memoryd_nic_detach returns when the queue pair is destroyed: nothing of it can take effect.
 * The session calls it before it leaves its group, and a group's locks are freed when its last session has
 * left.
 *
 * Attach and detach run on I/O threads and wait for the kernel (some 100 us); locks are released on the
 * keeper's thread.
 */
#ifndef MEMORYD_NIC_H
#define MEMORYD_NIC_H

#include "fabric/verbs_device.h"
#include "fabric/wire.h"
#include "memory/memory.h"

struct memoryd_nic;
struct memoryd_nic_queue;

/* Opens the device (local: the address that is listened on, may be NULL) and registers pool and lock region.
 * The lock region lies in device memory where there is enough of it. Errors of verbs_device.h; BANYAN_EINVAL
 * where the memory node's lock width needs a masked CAS that the NIC has not. */
int memoryd_nic_create(struct memoryd_nic **nic, struct memory_node *node,
                       const struct verbs_options *options, const struct sockaddr *local,
                       struct error *error);
/* Only when no queue pair is left. NULL: does nothing. */
void memoryd_nic_destroy(struct memoryd_nic *nic);
/* Chooses the locks of a memory node that is to be made: 2 bytes each where the device has masked CAS, else
 * 8; and MEMORY_LOCK_BYTES of them, or as many as fit the device's own memory, if that holds
 * MEMORYD_NIC_CHIP_MIN bytes. */
#define MEMORYD_NIC_CHIP_MIN (UINT64_C(16) << 10)
int memoryd_nic_locks(const struct verbs_options *options, const struct sockaddr *local, uint32_t *lock_width,
                      uint64_t *lock_bytes, struct error *error);

/* For the welcome. */
uint16_t memoryd_nic_mtu(const struct memoryd_nic *nic);
uint8_t memoryd_nic_promises(const struct memoryd_nic *nic);
/* For people: "mlx5_0 port 1, RoCE v2, MTU 4096 bytes, locks in device memory". */
const char *memoryd_nic_text(const struct memoryd_nic *nic);

/* A queue pair for the other end `theirs`, connected; `ours` is what it must know. Any I/O thread. Errors are
 * for the other side too: BANYAN_EINVAL, BANYAN_EBUSY (the device has no more queue pairs), BANYAN_ENOMEM,
 * BANYAN_ENET. *queue NULL then, or what must be detached all the same. */
int memoryd_nic_attach(struct memoryd_nic *nic, const struct wire_nic *theirs, struct wire_nic *ours,
                       struct memoryd_nic_queue **queue, struct error *error);
/* Destroys it. NULL: does nothing. False: the device refuses, and commands of it may still arrive: the
 * compute node that had it never counts as fenced. */
bool memoryd_nic_detach(struct memoryd_nic_queue *queue);
uint32_t memoryd_nic_queues(const struct memoryd_nic *nic);

/* Does through the NIC what memory_node_release_locks does to lock words, for a compute node none of whose
 * queue pairs is left; services have finished before. *freed grows by how many locks it freed. Where the NIC
 * fails, its own queue pair is made anew; BANYAN_ENET: that did not help, some words may still bear the id,
 * call again later. */
int memoryd_nic_release_locks(struct memoryd_nic *nic, uint16_t compute_id, uint64_t *freed,
                              struct error *error);
/* After a format: empties the lock region that is in device memory. BANYAN_ENET: the device refuses. */
int memoryd_nic_format(struct memoryd_nic *nic, struct error *error);

/* The device's events. The descriptor becomes readable; then the keeper calls memoryd_nic_events, which calls
 * `broken` with a reason for each queue pair that cannot go on; queue NULL: none can. A queue pair that an
 * event names is not destroyed before that event is acknowledged, so `queue` exists as long as `broken` runs;
 * therefore `broken` must not wait for memoryd_nic_detach, which waits for it. False: the device is gone, and
 * there will be no more events. */
int memoryd_nic_descriptor(const struct memoryd_nic *nic);
bool memoryd_nic_events(struct memoryd_nic *nic,
                        void (*broken)(void *owner, struct memoryd_nic_queue *queue, const char *why),
                        void *owner);

#endif
