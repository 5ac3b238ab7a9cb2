/*
 * cluster.h - the list of a cluster's memory nodes, which its home node keeps in its pool, so that it lives
 * as long as what the pool holds (struct wire_cluster_list). For the files of memory/ alone; compute nodes
 * and operators ask the service CLUSTER (request.h).
 *
 * There are two places for it in the pool. A change is written to the one that does not count, and counts
 * when it is whole: a process that is killed meanwhile has the former list. A list is read where it stands,
 * and believed only if its check and all it says make sense, since processes that have mapped the pool, or a
 * NIC, could write there.
 */
#ifndef MEMORY_CLUSTER_H
#define MEMORY_CLUSTER_H

#include <stddef.h>

#include "fabric/wire.h"

struct memory_node;

struct memory_cluster_place {
    uint32_t check; /* CRC32C of what follows, up to the list's last memory node */
    uint32_t reserved;
    struct wire_cluster_list list;
};
#define MEMORY_CLUSTER_PLACE_BYTES 12288u

/* Both under the node's lock, or while nothing uses it. A node that was formatted before is opened again: its
 * list is the one that it kept. */
void memory_cluster_open(struct memory_node *node);
/* It was formatted: it keeps no list. */
void memory_cluster_clear(struct memory_node *node);

/* Whether `next` may become the list after `now` (NULL: there is none); *why: a constant, for messages. Pure.
 * Both are valid (wire_cluster_valid). */
bool memory_cluster_may_follow(const struct wire_cluster_list *now, const struct wire_cluster_list *next,
                               const char **why);

#endif
