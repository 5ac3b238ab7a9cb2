/*
 * cluster_save.h - a checkpoint of a cluster (save/save.h), made over connections of its own: for `banyan
 * save`, and for a compute node, whose own session of the index goes on meanwhile. To the cluster it is one
 * more compute node, which owns nothing. On a thread that may wait.
 */
#ifndef CLI_CLUSTER_SAVE_H
#define CLI_CLUSTER_SAVE_H

#include "cli/cluster.h"
#include "save/save.h"

/* With `only_due`: only if a memory node wants one; *made tells. */
int cluster_save(const struct cluster_fabric_settings *settings, const struct save_options *options,
                 bool only_due, bool *made, struct save_stats *stats, struct error *error);

#endif
