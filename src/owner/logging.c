/* logging.c - see logging.h. */
#include "owner/logging.h"

#include <assert.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/cpus.h"
#include "base/log.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "owner/log_hooks.h"
#include "pool/pool.h"

#define RETRY_NS     UINT64_C(20000000)
#define IDLE_NS      UINT64_C(1000000000) /* between two calls of pool_worker_idle */
#define STOP_LOOK_NS UINT64_C(20000000)

/* A thread of mergers, each a fiber: while one waits for the network another goes on. */
struct merger_thread {
    struct owner_logging *logging;
    struct thread *thread;
    struct worker *fibers;
    struct pool_worker *worker;
    unsigned running; /* fibers that have not ended */
    bool told;        /* that they begin later */
};

struct owner_logging {
    struct tree_compute *compute;
    struct log *log;
    struct owner_log_hooks hooks;
    struct pool_worker *worker; /* of the hooks' session */
    struct merger_thread mergers[LOG_MERGERS];
    bool stopping; /* atomic */
};

/* ---- the mergers ---- */

static void merger_fiber(void *context)
{
    struct merger_thread *merger = context;
    struct owner_logging *logging = merger->logging;
    struct tree_session *session = NULL;
    struct error error = {0};
    while (tree_session_create(&session, logging->compute, merger->worker, &error)) {
        if (!merger->told)
            log_warning("the log: %s; merging begins later", error.text);
        merger->told = true;
        task_sleep(RETRY_NS);
        if (atomic_load_acquire(&logging->stopping)) /* acquire: as log_stop's */
            break;
    }
    if (session)
        (void)log_merge(logging->log, session); /* 0: it was stopped */
    tree_session_destroy(session);
    if (!--merger->running)                  /* they share it */
        pool_worker_destroy(merger->worker); /* from a task: it returns blocks */
}

/* What the thread's worker holds back of memory nodes goes back to them: without it one that is emptied, or
 * leaves, might wait for this process for ever. */
static void merger_idle(void *context)
{
    struct merger_thread *merger = context;
    uint64_t looked = task_now();
    while (!atomic_load_acquire(&merger->logging->stopping)) { /* acquire: as log_stop's */
        task_sleep(STOP_LOOK_NS);
        if (task_now() - looked < IDLE_NS)
            continue;
        looked = task_now();
        pool_worker_idle(merger->worker);
    }
    if (!--merger->running)
        pool_worker_destroy(merger->worker);
}

static void merger_thread(void *context)
{
    struct merger_thread *merger = context;
    worker_run(merger->fibers);
}

static int merger_start(struct owner_logging *logging, struct merger_thread *merger, unsigned fibers,
                        struct error *error)
{
    merger->logging = logging;
    merger->fibers = worker_create();
    if (!merger->fibers)
        return error_set(error, BANYAN_ENOMEM, "no memory for the log's mergers");
    int status = pool_worker_create(&merger->worker, tree_compute_pool(logging->compute), error);
    for (; !status && merger->running < fibers; merger->running++)
        if (worker_spawn(merger->fibers, merger_fiber, merger))
            status = error_set(error, BANYAN_ENOMEM, "no memory for the log's mergers");
    if (!status && worker_spawn(merger->fibers, merger_idle, merger))
        status = error_set(error, BANYAN_ENOMEM, "no memory for the log's mergers");
    merger->running += !status;
    return status ? status : thread_start(&merger->thread, merger_thread, merger, error);
}

static void merger_stop(struct merger_thread *merger)
{
    if (merger->thread)
        thread_join(merger->thread);
    else if (merger->worker)
        pool_worker_abandon(merger->worker);
    if (merger->fibers)
        worker_destroy(merger->fibers);
    *merger = (struct merger_thread){0};
}

/* A thread for each four CPUs: writers are held back where these do not keep up. At least two: while they are
 * held back a process gets CPU time for its mergers alone, and others may want each CPU. */
static int mergers_start(struct owner_logging *logging, struct error *error)
{
    const unsigned wanted = cpus_count() / 4, most = wanted < LOG_MERGERS ? wanted : LOG_MERGERS;
    const unsigned threads = most > 2 ? most : 2;
    int status = 0;
    for (unsigned i = 0; i < threads && !status; i++)
        status = merger_start(logging, &logging->mergers[i],
                              LOG_MERGERS * (i + 1) / threads - LOG_MERGERS * i / threads, error);
    return status;
}

static void mergers_stop(struct owner_logging *logging)
{
    atomic_store_release(&logging->stopping, true); /* a flag that orders nothing else */
    if (logging->log)
        log_stop(logging->log);
    for (unsigned i = 0; i < LOG_MERGERS; i++)
        merger_stop(&logging->mergers[i]);
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
        status = mergers_start(logging, error);
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
    mergers_stop(logging);
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
