/* session.c - see session.h. */
#include "durable/session.h"

#include "pool/pool.h"

int durable_session_open(struct durable_session *session, struct store *store, struct tree_compute *compute,
                         struct error *error)
{
    *session = (struct durable_session){.worker = NULL};
    int status = pool_worker_create(&session->worker, tree_compute_pool(compute), error);
    if (!status)
        status = tree_session_create(&session->tree, compute, session->worker, error);
    if (!status)
        status = store_session_create(&session->store, store, session->tree, error);
    if (status)
        durable_session_close(session);
    return status;
}

void durable_session_close(struct durable_session *session)
{
    store_session_destroy(session->store);
    tree_session_destroy(session->tree);
    pool_worker_destroy(session->worker);
    *session = (struct durable_session){.worker = NULL};
}
