/*
 * cluster_session.h - one session of a cluster's indexes, for commands that do one thing and end: check,
 * drop, ranges. One thread; cluster_session_join starts another.
 */
#ifndef CLI_CLUSTER_SESSION_H
#define CLI_CLUSTER_SESSION_H

#include "cli/cluster.h"
#include "cli/data_directory.h"
#include "owner/process.h"

struct cluster_session {
    struct cluster_fabric cluster;
    struct data_directory data; /* of cluster_session_open_data */
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct owner_process *process; /* NULL: it does not take part in the ownership of ranges */
};
/* Connects to the memory nodes; `name` is what they are told of us. Must be closed, also when it fails. */
int cluster_session_open(struct cluster_session *session, const struct cluster_fabric_settings *settings,
                         const char *name, struct error *error);
/* The same on the store of a data directory, which nobody else has open: what is there, nothing is made. */
int cluster_session_open_data(struct cluster_session *session, const char *path, struct error *error);
/* Takes part in the ownership of ranges, wanting none: before anything of a cluster's indexes is changed. */
int cluster_session_join(struct cluster_session *session, struct error *error);
void cluster_session_close(struct cluster_session *session);
/* A call on the session came to `status`: its message, or the name of the status. */
void cluster_session_error(const struct cluster_session *session, int status, struct error *error);

#endif
