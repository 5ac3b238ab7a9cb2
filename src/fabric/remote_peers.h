/*
 * remote_peers.h - the remote backend's part of peers.h that is not about memory nodes: what it implements,
 * and calls between compute nodes.
 */
#ifndef FABRIC_REMOTE_PEERS_H
#define FABRIC_REMOTE_PEERS_H

#include "fabric/peers.h"

extern const struct fabric_peer_ops remote_peer_ops;

#endif
