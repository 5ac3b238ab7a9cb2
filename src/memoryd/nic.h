/*
 * nic.h - a memory node's network card: its memory registered for RDMA, one queue pair for each data
 * connection of a compute node that comes over `rdma://`, and the locks of the dead freed by the card itself.
 *
 * THE CARD ALONE CHANGES LOCK WORDS. CAS and FAA of a card are atomic against each other, not against this
 * machine's CPU (the InfiniBand specification, and every card that says IBV_ATOMIC_HCA). So a memory node
 * with a card lets in compute nodes over that card only (others get BANYAN_ENOTSUP; monitors and formatters
 * may come over the stream), and frees locks through a queue pair that is connected to itself.
 *
 * KEYS. The pool is registered once. Where the card has memory windows of type 2 each queue pair gets its own
 * keys, bound to it, which die with it; elsewhere keys are those of the registration, of no use without a
 * queue pair, which only the authenticated data connection gives. Whether windows work is found out, not
 * believed: a READ, a WRITE and a CAS through one, by a queue pair between the card and itself. (mlx5's reach
 * over 2 GiB at most.) Registered memory begins at address 0, where the device can do that, so that offsets
 * are addresses, and nobody is told where it lies in this process.
 *
 * FENCING (G6). server_card_detach returns when the queue pair is destroyed: nothing of it can take effect.
 * The session calls it before it leaves its group, and a group's locks are freed when its last session has
 * left.
 *
 * Attach and detach run on I/O threads and wait for the kernel (some 100 us); releasing locks on the
 * keeper's.
 */
#ifndef MEMORY_SERVER_CARD_H
#define MEMORY_SERVER_CARD_H

#include "fabric/verbs_device.h"
#include "fabric/wire.h"
#include "memory/memory.h"

struct server_card;
struct server_card_queue;

/* Opens the device (local: the address that is listened on, may be NULL) and registers pool and lock region:
 * in device memory where there is enough of it. Errors of verbs_device.h; BANYAN_EINVAL where the memory
 * node's lock width needs a masked CAS that the card has not. */
int server_card_create(struct server_card **card, struct memory_node *node,
                       const struct verbs_options *options, const struct sockaddr *local,
                       struct error *error);
/* When no queue is left. NULL: does nothing. */
void server_card_destroy(struct server_card *card);
/* What to make a memory node's locks like, before one is made: 2 bytes each where the device has masked CAS,
 * else 8; so many that they fit the device's own memory, as long as that holds SERVER_CARD_CHIP_MIN bytes,
 * and MEMORY_LOCK_BYTES at most. */
#define SERVER_CARD_CHIP_MIN (UINT64_C(16) << 10)
int server_card_locks(const struct verbs_options *options, const struct sockaddr *local, uint32_t *lock_width,
                      uint64_t *lock_bytes, struct error *error);

/* For the welcome. */
uint16_t server_card_packet(const struct server_card *card);
uint8_t server_card_promises(const struct server_card *card);
/* For people: "mlx5_0 port 1, RoCE v2, packets of 4096 bytes, locks in device memory". */
const char *server_card_text(const struct server_card *card);

/* A queue pair for the other end `theirs`, connected; `ours` is what it must know. Any I/O thread. Errors are
 * for the other side too: BANYAN_EINVAL, BANYAN_EBUSY (the device has no more queue pairs), BANYAN_ENOMEM,
 * BANYAN_ENET. *queue NULL then, or what must be detached all the same. */
int server_card_attach(struct server_card *card, const struct wire_card *theirs, struct wire_card *ours,
                       struct server_card_queue **queue, struct error *error);
/* Destroys it. NULL: does nothing. False: the device refuses, and something of it may still arrive: who had
 * it must never be taken for fenced. */
bool server_card_detach(struct server_card_queue *queue);
uint32_t server_card_queues(const struct server_card *card);

/* memory_node_release_locks, through the card: for a compute node none of whose queues is left. *freed grows
 * by how many. Where the card fails, its own queue pair is made anew; BANYAN_ENET: that did not help, some
 * words may still bear the id, call again later. */
int server_card_release_locks(struct server_card *card, uint16_t compute_id, uint64_t *freed,
                              struct error *error);
/* After a format: empties the lock region that is in device memory. BANYAN_ENET: the device refuses. */
int server_card_format(struct server_card *card, struct error *error);

/* The device's events: queue pairs that broke. Becomes readable; the keeper calls `events` then, which calls
 * `broken` for each queue pair that cannot go on, with a reason; NULL: for all of them. `broken` must not
 * wait for server_card_detach, which waits for it: a queue pair that an event names is not destroyed before
 * that event has been dealt with, and so `queue` is there as long as `broken` runs. False: there will be no
 * more events, the device is gone. */
int server_card_descriptor(const struct server_card *card);
bool server_card_events(struct server_card *card,
                        void (*broken)(void *owner, struct server_card_queue *queue, const char *why),
                        void *owner);

#endif
