/* logging.c - see logging.h. */
#include "owner/logging.h"

#include <assert.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "owner/log_hooks.h"
#include "pool/pool.h"

#define RETRY_NS UINT64_C(20000000)

struct owner_logging {
    struct tree_compute *compute;
    struct log *log;
    struct owner_log_hooks hooks;
    struct pool_worker *worker; /* of the hooks' session */
    /* The merger's. */
    struct thread *thread;
    struct worker *fibers;
    struct pool_worker *merger;
    bool stopping; /* atomic */
};

/* ---- the merger ---- */

static void merger_fiber(void *context)
{
    struct owner_logging *logging = context;
    struct tree_session *session = NULL;
    struct error error = {0};
    bool told = false;
    while (tree_session_create(&session, logging->compute, logging->merger, &error)) {
        if (!told)
            log_warning("the log: %s; merging begins later", error.text);
        told = true;
        task_sleep(RETRY_NS);
        if (atomic_load_acquire(&logging->stopping)) /* acquire: as log_stop's */
            break;
    }
    if (session)
        (void)log_merge(logging->log, session); /* 0: it was stopped */
    tree_session_destroy(session);
    pool_worker_destroy(logging->merger); /* from a task: it returns blocks */
}

static void merger_thread(void *context)
{
    struct owner_logging *logging = context;
    worker_run(logging->fibers);
}

static int merger_start(struct owner_logging *logging, struct error *error)
{
    logging->fibers = worker_create();
    if (!logging->fibers)
        return error_set(error, BANYAN_ENOMEM, "no memory for the log's merger");
    int status = pool_worker_create(&logging->merger, tree_compute_pool(logging->compute), error);
    if (!status && worker_spawn(logging->fibers, merger_fiber, logging))
        status = error_set(error, BANYAN_ENOMEM, "no memory for the log's merger");
    return status ? status : thread_start(&logging->thread, merger_thread, logging, error);
}

static void merger_stop(struct owner_logging *logging)
{
    atomic_store_release(&logging->stopping, true); /* a flag that orders nothing else */
    if (logging->log)
        log_stop(logging->log);
    if (logging->thread)
        thread_join(logging->thread);
    else if (logging->merger)
        pool_worker_abandon(logging->merger);
    if (logging->fibers)
        worker_destroy(logging->fibers);
    logging->thread = NULL;
    logging->merger = NULL;
    logging->fibers = NULL;
}

/* ---- life ---- */

int owner_logging_open(struct owner_logging **out, struct owner *owner, struct tree_compute *compute,
                       const struct log_options *options, struct error *error)
{
    struct owner_logging *logging = calloc(1, sizeof *logging);
    *out = logging;
    if (!logging)
        return error_set(error, BANYAN_ENOMEM, "no memory for the log");
    logging->compute = compute;
    int status = log_create(&logging->log, compute, options, error);
    logging->hooks.log = logging->log;
    if (!status)
        status = pool_worker_create(&logging->worker, tree_compute_pool(compute), error);
    if (!status)
        status = tree_session_create(&logging->hooks.session, compute, logging->worker, error);
    if (!status)
        status = merger_start(logging, error);
    if (status) {
        (void)owner_logging_end(logging, NULL);
        owner_logging_destroy(logging);
        *out = NULL;
        return status;
    }
    owner_log_hook(owner, &logging->hooks);
    return 0;
}

int owner_logging_attach(struct owner_logging *logging, struct tree *tree, struct error *error)
{
    return log_attach(logging->log, tree, error);
}

void owner_logging_detach(struct owner_logging *logging, struct tree_session *session, struct tree *tree,
                          int detached)
{
    if (detached)
        log_strand(logging->log, session, tree);
    else
        log_detach(logging->log, session, tree);
}

int owner_logging_end(struct owner_logging *logging, struct tree_session *session)
{
    merger_stop(logging);
    return session ? log_close(logging->log, session) : 0;
}

void owner_logging_destroy(struct owner_logging *logging)
{
    if (!logging)
        return;
    tree_session_destroy(logging->hooks.session);
    pool_worker_destroy(logging->worker);
    log_destroy(logging->log);
    free(logging);
}

struct log *owner_logging_log(const struct owner_logging *logging)
{
    return logging->log;
}
