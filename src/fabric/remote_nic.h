/*
 * remote_nic.h - memory nodes that are reached through a NIC (`rdma://`): lists go through a queue pair
 * (verbs_queue.h) beside the data connection. The connection keeps the calls, and its end is the queue pair's
 * end.
 *
 *  remote_nic.c       posting, completing, polling and sleeping; on the endpoint's owner
 *  remote_nic_open.c  the device, the queue pairs, the first READs; on the thread that opens a fabric or an
 *                     endpoint, and the reconnect's
 */
#ifndef FABRIC_REMOTE_NIC_H
#define FABRIC_REMOTE_NIC_H

#include "fabric/remote_fabric.h"
#include "fabric/verbs_queue.h"

/* ---- remote_nic_open.c ---- */

/* Opens the NIC that leads to the memory node, if that is not done yet: node->device. */
int remote_nic_open(struct remote_node *node, const struct remote_dialed *dialed, struct error *error);
void remote_nics_close(struct remote_fabric *remote);
/* Validates what the memory node says of its NIC against ours. */
int remote_nic_validate(const struct remote_node *node, const struct wire_welcome *welcome,
                        struct error *error);
/* Makes a queue pair for a data connection that was welcomed. The message does not name the memory node. */
int remote_nic_attach(const struct remote_node *node, struct net_stream *stream, uint64_t deadline,
                      struct verbs_queue **queue, struct error *error);
/* Reads the memory node's header through a queue pair, so that a way that does not work is an error when the
 * fabric is opened and not when it is used. Sets node->round_trip_ns: what the shortest READ took. */
int remote_nic_probe(struct remote_node *node, struct error *error);

/* ---- remote_nic.c ---- */

/* As remote_link_post. */
void remote_nic_post(struct remote_link *link, struct fabric_list *list, struct remote_wait *wait);
/* Completes what is done. Returns how many lists, one more when the link failed. */
uint32_t remote_nic_poll(struct remote_link *link);
/* Destroys the link's queue: its lists end with BANYAN_ENET, and lists that wait for room try again. */
void remote_nic_drop(struct remote_link *link, struct verbs_queue *queue);
/* The endpoint's hook. */
void remote_nic_turn(struct remote_endpoint *endpoint);
bool remote_nic_awake(struct worker_hook *hook);
/* Whether the worker's epoll tells of the link's queue; a link without a queue needs none. */
bool remote_nic_watched(struct remote_link *link);
/* A plain thread's: polls for a while, then arms. True: something is done, do not wait. */
bool remote_nic_pump(struct remote_endpoint *endpoint);
/* The queue's descriptor was readable. */
void remote_nic_told(struct remote_link *link);

#endif
