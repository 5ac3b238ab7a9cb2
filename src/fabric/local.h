/* local.h - the `local` backend in one process: lists run at once on the calling thread, on CPU atomics. */
#ifndef FABRIC_LOCAL_H
#define FABRIC_LOCAL_H

#include "fabric/fabric.h"

/* targets[i] is memory node i; they must outlive the fabric. It has no peers. Their pools are all in files,
 * or none is; those in files are of one fabric at a time, and an endpoint takes one of their staging areas
 * (BANYAN_EINVAL: none is left). */
struct fabric *fabric_local_create(const struct fabric_target *const *targets, uint16_t count,
                                   uint16_t compute_id, struct error *error);

/* Compute nodes of one process that find each other (peers.h): the fabrics that were created with the same
 * group, each with an id of its own. The group outlives them. */
struct fabric_local_peers;
struct fabric_local_peers *fabric_local_peers_create(struct error *error);
void fabric_local_peers_destroy(struct fabric_local_peers *peers);
/* The same with peers; NULL with BANYAN_EEXIST: one of them has the id. */
struct fabric *fabric_local_create_peer(struct fabric_local_peers *peers,
                                        const struct fabric_target *const *targets, uint16_t count,
                                        uint16_t compute_id, struct error *error);

#endif
