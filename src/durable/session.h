/*
 * session.h - a session of a store with what it stands on, a worker of the pool and a session of the tree.
 * Private to src/durable/, where each thread that reads or fills the store opens one for itself.
 *
 * One thread uses it. It costs an endpoint of the fabric; its end gives the worker's free blocks back to the
 * memory nodes, by calls.
 */
#ifndef DURABLE_SESSION_H
#define DURABLE_SESSION_H

#include "store/store.h"

struct durable_session { /* owned; all zero: not open */
    struct pool_worker *worker;
    struct tree_session *tree;
    struct store_session *store;
};

/* BANYAN_ENOMEM, and the errors of the three below it; then it is not open. */
int durable_session_open(struct durable_session *session, struct store *store, struct tree_compute *compute,
                         struct error *error);
/* Not open: does nothing. */
void durable_session_close(struct durable_session *session);

#endif
